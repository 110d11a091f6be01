//! Read-ahead for iterators over a table.
//!
//! Tables are opened for random reads, because most of their reads are lookups of one block
//! (`env/handle.rs`). The operating system then reads no further pages by itself. An iterator that
//! has read a few blocks from the file therefore asks for the bytes that it will read next. Each
//! request is twice as large as the one before, up to a limit. A short scan makes no request, so it
//! reads no page in vain.

use crate::base::iterator::api::Direction;
use crate::table::format::BlockHandle;
use std::ops::Range;

/// Blocks that an iterator reads before anything is read ahead of it.
const READS_BEFORE: u32 = 4;

/// The first window and the largest one.
const WINDOW_BYTES: (u64, u64) = (16 << 10, 256 << 10);

/// What was read, and asked for, since the iterator was made: it is positioned once.
#[derive(Debug, Default)]
pub(super) struct ScanAhead {
    reads: u32,
    window_bytes: u64,
    /// The end that was asked for in the direction of the iterator.
    asked_to: Option<u64>,
}

impl ScanAhead {
    /// The block at `handle` was read from the file, as the next one in this direction. Returns the
    /// bytes to read ahead, if any are due. They may end after the last block.
    pub(super) fn block_was_read(
        &mut self,
        handle: BlockHandle,
        direction: Direction,
    ) -> Option<Range<u64>> {
        self.reads = self.reads.saturating_add(1);
        if self.reads > READS_BEFORE { self.next_window(handle, direction) } else { None }
    }

    /// The next window, once half of the last one is left: the disk works while blocks are used.
    fn next_window(&mut self, handle: BlockHandle, direction: Direction) -> Option<Range<u64>> {
        let (start, end) = (handle.offset, handle.end()?);
        let left = match (self.asked_to, direction) {
            (None, _) => 0,
            (Some(asked_to), Direction::Forward) => asked_to.saturating_sub(end),
            (Some(asked_to), Direction::Reverse) => start.saturating_sub(asked_to),
        };
        if left > self.window_bytes / 2 {
            return None;
        }
        self.window_bytes = (2 * self.window_bytes).clamp(WINDOW_BYTES.0, WINDOW_BYTES.1);
        let bytes = match direction {
            Direction::Forward => end + left..end + left + self.window_bytes,
            Direction::Reverse => {
                let to = start - left;
                to.saturating_sub(self.window_bytes)..to
            }
        };
        self.asked_to = Some(match direction {
            Direction::Forward => bytes.end,
            Direction::Reverse => bytes.start,
        });
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_BYTES: u64 = 4000;

    /// What is asked for while 500 blocks are read in this direction.
    fn windows(direction: Direction) -> Vec<(u64, Range<u64>)> {
        let mut scan_ahead = ScanAhead::default();
        let numbers: Vec<u64> = match direction {
            Direction::Forward => (0..500).collect(),
            Direction::Reverse => (0..500).rev().collect(),
        };
        let mut windows = Vec::new();
        for (read, number) in numbers.into_iter().enumerate() {
            let handle = BlockHandle { offset: 4096 * (number + 1), size: BLOCK_BYTES };
            if let Some(window) = scan_ahead.block_was_read(handle, direction) {
                windows.push((read as u64 + 1, window));
            }
        }
        windows
    }

    #[test]
    fn windows_follow_each_other_and_double() {
        for direction in [Direction::Forward, Direction::Reverse] {
            let windows = windows(direction);
            assert_eq!(windows[0].0, 5, "short scans are exact");
            let sizes: Vec<u64> =
                windows.iter().map(|(_, window)| window.end - window.start).collect();
            let first = [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 256 << 10];
            assert_eq!(sizes[..6], first);
            for pair in windows.windows(2) {
                let ((_, one), (read, next)) = (&pair[0], &pair[1]);
                let (is_next, left) = match direction {
                    Direction::Forward => {
                        (one.end == next.start, one.end.saturating_sub(4096 * read))
                    }
                    Direction::Reverse => {
                        (next.end == one.start, (4096 * (501 - read)).saturating_sub(one.start))
                    }
                };
                assert!(is_next, "{one:?}, {next:?}");
                // The file begins within the last window of a reverse iteration.
                let size = if one.start == 0 { WINDOW_BYTES.1 } else { one.end - one.start };
                assert!((1..=size / 2 + 4096).contains(&left), "{left} of {one:?} left");
            }
        }
    }

    #[test]
    fn windows_end_with_the_file() {
        let mut scan_ahead = ScanAhead::default();
        for offset in [5 << 12, 4 << 12, 3 << 12, 2 << 12, 1 << 12] {
            let handle = BlockHandle { offset, size: BLOCK_BYTES };
            let window = scan_ahead.block_was_read(handle, Direction::Reverse);
            assert_eq!(window, (offset == 1 << 12).then_some(0..1 << 12));
        }
    }
}
