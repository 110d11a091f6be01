//! Iterating over one block in key order.
//!
//! A [`BlockCursor`] holds positions and decoded keys, and no block: the caller passes the same
//! block to every call until the next seek. Forward it rebuilds one key in place; in reverse it
//! decodes a whole restart interval and then steps back through it. Nothing is allocated per entry.
//! Blocks were checked at load, so there is no error path: at an unsound entry the iteration ends.

use crate::base::iterator::api::Direction;
use crate::base::key::{
    INTERNAL_KEY_TRAILER_BYTES, common_prefix, compare_internal, split_internal_key,
};
use crate::table::block::block::{Block, Entry};
use std::cmp::Ordering;

/// Most keys have at most this many bytes of their own.
const SHORT_KEY_BYTES: usize = 16;

/// What decoding such an entry writes to its key: own bytes and a trailer.
pub(crate) const SHORT_ENTRY_BYTES: usize = SHORT_KEY_BYTES + INTERNAL_KEY_TRAILER_BYTES;

/// A decoded entry: where its key is in the cursor, and its value in the block.
#[derive(Clone, Copy, Debug, Default)]
struct Decoded {
    key_start: usize,
    key_end: usize,
    value_start: usize,
    value_end: usize,
}

/// A position in a block, in one direction. Legal calls: `seek (key | value | next)*`, the latter
/// while `valid`, always with the block of the last seek.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    direction: Direction,
    valid: bool,
    current: Decoded,
    /// Forward: the key. Reverse: the keys of the current restart interval, one after the other.
    /// After them are the remains of earlier keys.
    keys: Vec<u8>,
    /// Forward: where the next entry begins.
    next: usize,
    /// Reverse: the entries of the current interval that are still to come; the next is the last.
    ahead: Vec<Decoded>,
    /// Reverse: the number of the interval.
    interval: usize,
}

impl BlockCursor {
    /// A cursor that is not positioned.
    pub(crate) fn new(direction: Direction) -> Self {
        BlockCursor {
            direction,
            valid: false,
            current: Decoded::default(),
            keys: Vec::new(),
            next: 0,
            ahead: Vec::new(),
            interval: 0,
        }
    }

    /// Positions as `base::iterator::api` says; `bound` is an internal key.
    pub(crate) fn seek(&mut self, block: &Block, bound: Option<&[u8]>) {
        match self.direction {
            Direction::Forward => self.seek_forward(block, bound),
            Direction::Reverse => self.seek_reverse(block, bound),
        }
    }

    /// The next entry in the cursor's direction; returns `valid`.
    #[inline(always)]
    pub(crate) fn next(&mut self, block: &Block) -> bool {
        match self.direction {
            Direction::Forward => self.decode_next(block),
            Direction::Reverse => self.step_back(block),
        }
        self.valid
    }

    /// True while positioned at an entry.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    /// The key; empty unless valid.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.get(self.current.key_start..self.current.key_end).unwrap_or_default()
    }

    /// Where the value is in the block: start and length.
    #[inline]
    pub(crate) fn value_range(&self) -> (usize, usize) {
        (self.current.value_start, self.current.value_end - self.current.value_start)
    }

    /// Forward: where the next entry begins.
    #[inline]
    pub(crate) fn next_at(&self) -> usize {
        self.next
    }

    #[inline]
    pub(crate) fn value<'b>(&self, block: &'b Block) -> &'b [u8] {
        block.slice(self.current.value_start, self.current.value_end)
    }

    fn seek_forward(&mut self, block: &Block, bound: Option<&[u8]>) {
        // Without a bound at the first entry: no need to touch the restart array, a cold line.
        let Some(bound) = bound else {
            self.enter(block, &[], (0, 0));
            return;
        };
        let interval = block.restarts_below(bound).saturating_sub(1);
        let start = block.restart(interval).unwrap_or(block.entries_end());
        self.enter(block, bound, first_at_or_above(block, start, bound));
    }

    /// Forward: positions at `found`, the first entry at or above `bound`: where it begins and how
    /// many bytes it shares, which the bound has too.
    pub(crate) fn enter(&mut self, block: &Block, bound: &[u8], found: (usize, usize)) {
        let (at, shared) = found;
        let shared = bound.get(..shared).unwrap_or_default();
        let needed = shared.len() + SHORT_ENTRY_BYTES;
        if self.keys.len() < needed {
            self.keys.resize(2 * needed, 0);
        }
        self.keys[..shared.len()].copy_from_slice(shared);
        self.next = at;
        self.decode_next(block);
    }

    #[inline(always)]
    fn decode_next(&mut self, block: &Block) {
        let Some((entry, key_end)) = block.put_entry(&mut self.keys, 0, self.next) else {
            self.valid = false;
            return;
        };
        let (value_start, value_end) = (entry.value_start, entry.end);
        self.current = Decoded { key_start: 0, key_end, value_start, value_end };
        self.next = entry.end;
        self.valid = true;
    }

    fn seek_reverse(&mut self, block: &Block, bound: Option<&[u8]>) {
        self.valid = false;
        self.ahead.clear();
        self.interval = bound.map_or(block.restarts(), |bound| block.restarts_below(bound));
        self.step_back(block);
        while let Some(bound) = bound
            && self.valid
            && compare_internal(self.key(), bound) != Ordering::Less
        {
            self.step_back(block);
        }
    }

    #[inline(never)]
    fn step_back(&mut self, block: &Block) {
        if self.ahead.is_empty() && self.interval > 0 {
            self.interval -= 1;
            self.decode_interval(block);
        }
        match self.ahead.pop() {
            Some(entry) => {
                self.current = entry;
                self.valid = true;
            }
            None => self.valid = false,
        }
    }

    /// Decodes the entries of the current interval, so that each step back only pops one.
    fn decode_interval(&mut self, block: &Block) {
        // An entry's key is built on that of the entry before. So the keys are laid out one after
        // the other: each starts as a copy of the one before, and `put_entry` then overwrites what
        // the two do not share. `previous..key_start` is the key before; for the first it is empty.
        let mut at = block.restart(self.interval).unwrap_or(block.entries_end());
        let end = block.restart(self.interval + 1).unwrap_or(block.entries_end());
        let (mut previous, mut key_start) = (0, 0);
        while at < end {
            // Room for that copy: `key_start + (key_start - previous)`.
            self.keys.resize(self.keys.len().max(2 * key_start - previous), 0);
            self.keys.copy_within(previous..key_start, key_start);
            let decoded = block.put_entry(&mut self.keys, key_start, at);
            let Some((entry, key_end)) = decoded else { return };
            let (value_start, value_end) = (entry.value_start, entry.end);
            self.ahead.push(Decoded { key_start, key_end, value_start, value_end });
            (previous, key_start) = (key_start, key_end);
            at = entry.end;
        }
    }
}

/// Passes every entry of a block, key and value, to `take`, which may end this by an error.
pub(crate) fn for_each_entry<E>(
    block: &Block,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut cursor = BlockCursor::new(Direction::Forward);
    cursor.seek(block, None);
    while cursor.valid() {
        take(cursor.key(), cursor.value(block))?;
        cursor.next(block);
    }
    Ok(())
}

/// The position of the first entry, from the restart point `start` on, that is at or above the
/// internal key `bound`; the end of the entries if there is none. Also returns how many bytes it
/// shares with the entry before, which the bound has too.
fn first_at_or_above(block: &Block, start: usize, bound: &[u8]) -> (usize, usize) {
    let (bound, bound_trailer) = split_internal_key(bound).unwrap_or((bound, 0));
    // No key is built. `matched` is the length of the prefix that the entry before has in common
    // with the bound's user key. An entry that shares more than that with the entry before is below
    // the bound for the same reason; any other is compared from `shared` on.
    let (mut at, mut matched) = (start, 0);
    while let Some(entry) = block.entry_at(at) {
        if entry.shared <= matched {
            let rest = bound.get(entry.shared..).unwrap_or_default();
            let own = block.own_key(&entry);
            let common = common_prefix(own, rest);
            let order = match (own.get(common), rest.get(common)) {
                (None, None) => Some(bound_trailer).cmp(&block.trailer(&entry)),
                (theirs, ours) => theirs.cmp(&ours),
            };
            if order != Ordering::Less {
                return (at, entry.shared);
            }
            matched = entry.shared + common;
        }
        at = entry.end;
    }
    (block.entries_end(), 0)
}

impl Block {
    /// Decodes the entry at `at` and writes its key to `keys` from `start` on, where the key of the
    /// entry before is. Returns where the key ends, too. `keys` grows as needed; what it holds
    /// after that end is unspecified. `None` as for `entry_at`.
    #[inline(always)]
    pub(crate) fn put_entry(
        &self,
        keys: &mut Vec<u8>,
        start: usize,
        at: usize,
    ) -> Option<(Entry, usize)> {
        let key = keys.get_mut(start..).unwrap_or_default();
        match self.put_short_entry(key, at) {
            Some((entry, key_len)) => Some((entry, start + key_len)),
            None => self.put_any_entry(keys, start, at),
        }
    }

    /// The same for an entry like most: of short lengths, and not at the end of the block.
    #[inline(always)]
    fn put_short_entry(&self, key: &mut [u8], at: usize) -> Option<(Entry, usize)> {
        // All reads and writes have a constant size, so each is a move or two and no call to
        // `memcpy`. More is written than the key has; the next key overwrites it.
        const HEADER_BYTES: usize = 3;
        const READ_BYTES: usize = HEADER_BYTES + SHORT_ENTRY_BYTES;
        let trailers = self.trailers()?;
        let read = self.bytes.get(at..)?.first_chunk::<READ_BYTES>()?;
        let [shared, own_len, value_len] = [read[0], read[1], read[2]].map(usize::from);
        if (shared | value_len) >= 0x80 || own_len > SHORT_KEY_BYTES {
            return None;
        }
        let written = key.get_mut(shared..)?.first_chunk_mut::<SHORT_ENTRY_BYTES>()?;
        let key_start = at + HEADER_BYTES;
        let key_end = key_start + own_len;
        let value_start = key_end + usize::from(trailers.width);
        let end = value_start + value_len;
        if end > self.entries_end() {
            return None;
        }
        let trailer = trailers.get(read, HEADER_BYTES + own_len)?;
        written[..SHORT_KEY_BYTES].copy_from_slice(&read[HEADER_BYTES..][..SHORT_KEY_BYTES]);
        written[own_len..own_len + INTERNAL_KEY_TRAILER_BYTES]
            .copy_from_slice(&trailer.to_le_bytes());
        let entry = Entry { shared, key_start, key_end, value_start, end };
        Some((entry, shared + own_len + INTERNAL_KEY_TRAILER_BYTES))
    }

    #[inline(never)]
    fn put_any_entry(&self, keys: &mut Vec<u8>, start: usize, at: usize) -> Option<(Entry, usize)> {
        let entry = self.entry_at(at)?;
        let own = self.own_key(&entry);
        let own_start = start + entry.shared;
        let own_end = own_start + own.len();
        let needed = own_end + SHORT_KEY_BYTES + INTERNAL_KEY_TRAILER_BYTES;
        if keys.len() < needed {
            keys.resize(2 * needed, 0);
        }
        keys.get_mut(own_start..own_end)?.copy_from_slice(own);
        let Some(trailer) = self.trailer(&entry) else { return Some((entry, own_end)) };
        let key_end = own_end + INTERNAL_KEY_TRAILER_BYTES;
        keys.get_mut(own_end..key_end)?.copy_from_slice(&trailer.to_le_bytes());
        Some((entry, key_end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{LookupKey, put_key_with_trailer, user_key};
    use crate::table::block::block::tests::{Entries, built, entries};
    use crate::table::block::directory::HashedBlock;
    use crate::table::block::directory::tests::block;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use siftdb_filter::hash::xxph3_64;

    fn iterate(block: &Block, direction: Direction, bound: Option<&[u8]>) -> Entries {
        let mut cursor = BlockCursor::new(direction);
        cursor.seek(block, bound);
        let mut found = Vec::new();
        while cursor.valid() {
            found.push((cursor.key().to_vec(), cursor.value(block).to_vec()));
            cursor.next(block);
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn cursors_agree_with_a_list(
            entries in entries(),
            absent in vec(vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xff)], 0..12), 20),
            restart_interval in 1usize..20,
        ) {
            let block = block(&entries, restart_interval, true);
            let mut bounds: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.clone()).collect();
            for user in &absent {
                let mut bound = Vec::new();
                put_key_with_trailer(&mut bound, user, 0);
                bounds.push(bound);
            }
            for bound in bounds.iter().map(|b| Some(&b[..])).chain([None]) {
                let at_or_above = |key: &[u8]| bound.is_none_or(|b| compare_internal(key, b).is_ge());
                let before = |key: &[u8]| bound.is_none_or(|b| compare_internal(key, b).is_lt());
                let ahead: Entries = entries.iter().filter(|e| at_or_above(&e.0)).cloned().collect();
                let behind: Entries =
                    entries.iter().rev().filter(|e| before(&e.0)).cloned().collect();
                if let Some(bound) = bound {
                    let found = block.version_from(bound);
                    let key = ahead.first().map(|entry| user_key(&entry.0));
                    prop_assert_eq!(found.is_some(), key == Some(user_key(bound)));
                    let mut cursor = BlockCursor::new(Direction::Forward);
                    if let Some(found) = found {
                        cursor.enter(&block, bound, found);
                        prop_assert!(cursor.valid() && cursor.key() == &ahead[0].0[..]);
                        prop_assert!(cursor.next(&block) == (ahead.len() > 1));
                    }
                }
                prop_assert_eq!(iterate(&block, Direction::Forward, bound), ahead);
                prop_assert_eq!(iterate(&block, Direction::Reverse, bound), behind);
            }
        }

        /// Damage that the checksum does not show: the block is refused or can be read to an end.
        #[test]
        fn damaged_blocks_are_refused_or_readable(
            entries in entries(),
            restart_interval in 1usize..20,
            hash_index: bool,
            flips in vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        ) {
            let mut bytes = built(&entries, restart_interval, hash_index);
            for (at, mask) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= mask;
            }
            let Ok(block) = HashedBlock::new(&bytes) else { return Ok(()) };
            for (key, _) in &entries {
                let _ = block.get(&LookupKey::new(user_key(key), 9), xxph3_64(user_key(key)));
                iterate(&block, Direction::Reverse, Some(key));
            }
            let forward = iterate(&block, Direction::Forward, None);
            let mut reverse = iterate(&block, Direction::Reverse, None);
            reverse.reverse();
            prop_assert!(forward.is_sorted_by(|a, b| compare_internal(&a.0, &b.0).is_lt()));
            prop_assert_eq!(forward, reverse);
        }
    }
}
