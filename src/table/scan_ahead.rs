//! Read-ahead for iterators over a table.
//!
//! Tables are opened for random reads, because most of their reads are lookups of one block
//! (`env/handle.rs`). The operating system then reads no further pages by itself, so iterators ask
//! for *windows*: blocks that are read together. The sizes of windows depend on how many blocks the
//! scan will probably read (`tree/scan_lengths.rs`):
//!
//! - not known: the first block alone, then windows of three blocks, six, twelve;
//! - one block: windows of one block, one, two, four;
//! - more: one window of that number, then windows of three blocks, six, twelve.
//!
//! A scan that ends early has read some blocks of its last window in vain.
//!
//! A scan of several levels asks for the first window of each, also if that has one block only,
//! before it waits for any of them.

use crate::base::iterator::api::Direction;
use crate::table::format::BlockHandle;
use std::ops::Range;

/// How many blocks of the present size the smallest window has room for, unless one was expected.
const FIRST_WINDOW_BLOCKS: u64 = 3;

/// The largest window.
const WINDOW_BYTES_MAX: u64 = 256 << 10;

/// The next window is asked for when this much of one is used, and less than half is left: then the
/// disk works while blocks are used. Shorter scans wait, because they may end before that.
const USED_BYTES_MIN: u64 = 32 << 10;

/// What was read, and asked for, since the iterator was made: it is positioned once.
#[derive(Debug, Default)]
pub(super) struct ScanAhead {
    /// How many blocks will be read, if that is known; else 0.
    expected: u64,
    /// How many blocks were read.
    pub(super) blocks: u32,
    window_bytes: u64,
    /// The end that was asked for in the direction of the iterator.
    asked_to: Option<u64>,
}

impl ScanAhead {
    /// For an iterator that will probably read that many blocks.
    #[inline]
    pub(super) fn expecting(expected: u64) -> Self {
        ScanAhead { expected, ..ScanAhead::default() }
    }

    /// The first block will be read from the file, but other files are read before that. Returns
    /// the bytes to ask for.
    pub(super) fn first_block_is_later(
        &mut self,
        handle: BlockHandle,
        direction: Direction,
    ) -> Option<Range<u64>> {
        self.ask(handle, direction, 0, self.expected.max(1))
    }

    /// The block at `handle` will be read from the file, as the next one in this direction. Returns
    /// the bytes to ask for before that, if any are due. They may end after the last block.
    pub(super) fn block_is_next(
        &mut self,
        handle: BlockHandle,
        direction: Direction,
    ) -> Option<Range<u64>> {
        self.blocks = self.blocks.saturating_add(1);
        let is_first = self.blocks == 1;
        if is_first && self.expected < 2 {
            return None;
        }
        let (start, end) = (handle.offset, handle.end()?);
        let left = match (self.asked_to, direction) {
            (None, _) => 0,
            (Some(asked_to), Direction::Forward) => asked_to.saturating_sub(start),
            (Some(asked_to), Direction::Reverse) => end.saturating_sub(asked_to),
        };
        let is_due = left == 0
            || (left <= self.window_bytes / 2 && self.window_bytes - left >= USED_BYTES_MIN);
        if !is_due {
            return None;
        }
        let blocks = match self.expected {
            // A scan that was expected to end in one block probably ends in the next one.
            1 => 1,
            expected if is_first => expected,
            _ => FIRST_WINDOW_BLOCKS,
        };
        let bytes = self.ask(handle, direction, left, blocks)?;
        // What was expected may be too few by one, so it does not make the next window larger.
        self.window_bytes = if is_first { 0 } else { bytes.end - bytes.start };
        (bytes.end - bytes.start > end - start).then_some(bytes)
    }

    /// The window of that many blocks, or of twice the bytes of the last one, that begins `left`
    /// bytes after the begin of the block at `handle`, in this direction.
    fn ask(
        &mut self,
        handle: BlockHandle,
        direction: Direction,
        left: u64,
        blocks: u64,
    ) -> Option<Range<u64>> {
        let (start, end) = (handle.offset, handle.end()?);
        let bytes = blocks.saturating_mul(end - start).max(2 * self.window_bytes);
        let bytes = bytes.min(WINDOW_BYTES_MAX);
        let (bytes, asked_to) = match direction {
            Direction::Forward => {
                let from = start + left;
                (from..from + bytes, from + bytes)
            }
            Direction::Reverse => {
                let to = end - left;
                let from = to.saturating_sub(bytes);
                (from..to, from)
            }
        };
        self.asked_to = Some(asked_to);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::format::BLOCK_TRAILER_BYTES;

    const BLOCK_BYTES: u64 = 4000;

    /// What is asked for while 500 blocks are read in this direction: before which read, and what.
    fn windows(direction: Direction) -> Vec<(u64, Range<u64>)> {
        let mut scan_ahead = ScanAhead::default();
        let numbers: Vec<u64> = match direction {
            Direction::Forward => (0..500).collect(),
            Direction::Reverse => (0..500).rev().collect(),
        };
        let mut windows = Vec::new();
        for (read, number) in numbers.into_iter().enumerate() {
            let handle = BlockHandle { offset: 4096 * (number + 1), size: BLOCK_BYTES };
            if let Some(window) = scan_ahead.block_is_next(handle, direction) {
                windows.push((read as u64 + 1, window));
            }
        }
        windows
    }

    #[test]
    fn windows_follow_each_other_and_double() {
        for direction in [Direction::Forward, Direction::Reverse] {
            let windows = windows(direction);
            let reads = windows.iter().map(|(read, _)| *read).take(4);
            assert_eq!(reads.collect::<Vec<_>>(), [2, 5, 11, 19]);
            let sizes: Vec<u64> =
                windows.iter().map(|(_, window)| window.end - window.start).collect();
            let first = 3 * (BLOCK_BYTES + BLOCK_TRAILER_BYTES as u64);
            assert_eq!(sizes[..5], [1, 2, 4, 8, 16].map(|times| times * first));
            assert_eq!(sizes[5..7], [WINDOW_BYTES_MAX; 2]);
            for pair in windows.windows(2) {
                let ((_, one), (read, next)) = (&pair[0], &pair[1]);
                let (between, left) = match direction {
                    Direction::Forward => {
                        (next.start - one.end, one.end as i64 - 4096 * *read as i64)
                    }
                    Direction::Reverse => {
                        let end = 4096 * (501 - read) + BLOCK_BYTES + BLOCK_TRAILER_BYTES as u64;
                        (one.start - next.end, end as i64 - one.start as i64)
                    }
                };
                assert!(between < 4096, "the system reads whole pages: {one:?}, {next:?}");
                // The file begins within the last window of a reverse iteration.
                let size = if one.start == 0 { WINDOW_BYTES_MAX } else { one.end - one.start };
                let is_large = size > USED_BYTES_MIN;
                assert_eq!(left > 0, is_large, "{left} of {one:?} left");
                assert!(left <= size as i64 / 2, "{left} of {one:?} left");
            }
        }
    }

    #[test]
    fn expected_blocks_are_asked_for_at_once() {
        for expected in (0..20).filter(|expected| *expected != 1) {
            let mut scan_ahead = ScanAhead::expecting(expected);
            let handle =
                |number: u64| BlockHandle { offset: 4096 * (number + 1), size: BLOCK_BYTES };
            let mut windows = (0..20)
                .filter_map(|number| scan_ahead.block_is_next(handle(number), Direction::Forward));
            let (first, second) = (windows.next().unwrap(), windows.next().unwrap());
            let (from, blocks) = if expected < 2 { (1, 3) } else { (0, expected) };
            assert_eq!(first.start, handle(from).offset);
            let block_bytes = BLOCK_BYTES + BLOCK_TRAILER_BYTES as u64;
            assert_eq!(first.end - first.start, blocks * block_bytes);
            let blocks = if expected < 2 { 6 } else { 3 };
            assert_eq!(second.end - second.start, blocks * block_bytes);
        }
    }

    #[test]
    fn the_first_block_is_asked_for_once() {
        for direction in [Direction::Forward, Direction::Reverse] {
            for expected in 0..20 {
                let mut scan_ahead = ScanAhead::expecting(expected);
                let handle =
                    |number: u64| BlockHandle { offset: 4096 * (number + 1), size: BLOCK_BYTES };
                let nth = |nth: u64| match direction {
                    Direction::Forward => handle(nth),
                    Direction::Reverse => handle(100 - nth),
                };
                let first = scan_ahead.first_block_is_later(nth(0), direction).unwrap();
                let block_bytes = BLOCK_BYTES + BLOCK_TRAILER_BYTES as u64;
                assert_eq!(first.end - first.start, expected.max(1) * block_bytes);
                assert!(first.contains(&nth(0).offset) && first.end >= nth(0).end().unwrap());
                assert_eq!(scan_ahead.block_is_next(nth(0), direction), None);
                let mut windows = (1..30).filter_map(|number| {
                    let window = scan_ahead.block_is_next(nth(number), direction)?;
                    Some((number, (window.end - window.start) / block_bytes))
                });
                let second = if expected == 1 { (2, 2) } else { (expected.max(1), 3) };
                assert_eq!(windows.next(), Some(second));
            }
        }
    }

    #[test]
    fn scans_that_should_be_short_ask_for_little() {
        let mut scan_ahead = ScanAhead::expecting(1);
        let mut windows = Vec::new();
        for number in 0..10 {
            let handle = BlockHandle { offset: 4096 * number, size: BLOCK_BYTES };
            let window = scan_ahead.block_is_next(handle, Direction::Forward);
            windows
                .extend(window.map(|window| (number, (window.end - window.start) / BLOCK_BYTES)));
        }
        assert_eq!(windows, [(2, 2), (4, 4), (8, 8)]);
    }

    #[test]
    fn windows_end_with_the_file() {
        let mut scan_ahead = ScanAhead::default();
        for offset in [4 << 12, 3 << 12, 2 << 12, 1 << 12] {
            let handle = BlockHandle { offset, size: BLOCK_BYTES };
            let window = scan_ahead.block_is_next(handle, Direction::Reverse);
            let end = (3 << 12) + BLOCK_BYTES + BLOCK_TRAILER_BYTES as u64;
            let expected = end - 3 * (BLOCK_BYTES + BLOCK_TRAILER_BYTES as u64)..end;
            assert_eq!(window, (offset == 3 << 12).then_some(expected));
        }
    }
}
