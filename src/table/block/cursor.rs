//! Walking one block in key order, for `iter` and for reading properties.
//!
//! A [`BlockCursor`] holds positions and decoded keys, no block: the caller passes the same block
//! to every call until the next seek. Forward it rebuilds one key in place; in reverse it decodes a
//! restart interval once, so that each step back costs no more than a pop. Nothing is allocated per
//! entry. Blocks were checked at load, so there is no error path: where nothing sound stands, the
//! walk ends.

use crate::base::iterator::api::Direction;
use crate::base::key::common_prefix;
use crate::base::key::{compare_internal, split_internal_key};
use crate::table::block::block::Block;
use std::cmp::Ordering;

/// An entry that was decoded ahead: where its key stands in the cursor, its value in the block.
#[derive(Clone, Copy, Debug, Default)]
struct Decoded {
    key_start: usize,
    key_end: usize,
    value_start: usize,
    value_end: usize,
}

/// A position in a block, going one way. Legal calls: `seek (key | value | next)*`, the latter
/// while `valid`, always with the block of the last seek.
#[derive(Debug)]
pub struct BlockCursor {
    direction: Direction,
    valid: bool,
    current: Decoded,
    /// Forward: the key. Reverse: the keys of the current restart interval, one behind the other.
    /// What stands behind them is what keys before left there.
    keys: Vec<u8>,
    /// Forward: where the next entry begins.
    next: usize,
    /// Reverse: the entries of the current interval that are still to come, last first from the
    /// end, and the number of the interval.
    ahead: Vec<Decoded>,
    interval: usize,
}

impl BlockCursor {
    /// A cursor that is not positioned.
    #[must_use]
    pub fn new(direction: Direction) -> Self {
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
    pub fn seek(&mut self, block: &Block, bound: Option<&[u8]>) {
        match self.direction {
            Direction::Forward => self.seek_forward(block, bound),
            Direction::Reverse => self.seek_reverse(block, bound),
        }
    }

    /// The next entry in the cursor's direction; answers `valid`.
    #[inline]
    pub fn next(&mut self, block: &Block) -> bool {
        match self.direction {
            Direction::Forward => self.decode_next(block),
            Direction::Reverse => self.step_back(block),
        }
        self.valid
    }

    /// Positioned at an entry?
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key; empty unless valid.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.keys.get(self.current.key_start..self.current.key_end).unwrap_or_default()
    }

    /// Where the value stands in the block: start and length.
    #[inline]
    #[must_use]
    pub fn value_place(&self) -> (usize, usize) {
        (self.current.value_start, self.current.value_end - self.current.value_start)
    }

    /// Forward: where the next entry begins.
    #[inline]
    #[must_use]
    pub fn next_at(&self) -> usize {
        self.next
    }

    /// The value.
    #[inline]
    #[must_use]
    pub fn value<'b>(&self, block: &'b Block) -> &'b [u8] {
        block.slice(self.current.value_start, self.current.value_end)
    }

    fn seek_forward(&mut self, block: &Block, bound: Option<&[u8]>) {
        // Without a bound at the first entry, and the restart array, a cold line, is left alone.
        let Some(bound) = bound else {
            self.next = 0;
            self.decode_next(block);
            return;
        };
        let interval = block.restarts_below(bound).saturating_sub(1);
        let start = block.restart(interval).unwrap_or(block.entries_end());
        let (at, shared) = first_not_before(block, start, bound);
        self.keys.clear();
        self.keys.extend_from_slice(bound.get(..shared).unwrap_or_default());
        self.next = at;
        self.decode_next(block);
    }

    #[inline]
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

    /// Decodes the current interval once, so that each step back costs no more than a pop.
    fn decode_interval(&mut self, block: &Block) {
        let mut at = block.restart(self.interval).unwrap_or(block.entries_end());
        let end = block.restart(self.interval + 1).unwrap_or(block.entries_end());
        let (mut previous, mut key_start) = (0, 0);
        while at < end {
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

/// Where the first entry from `start`, a restart point, on stands that is not before the internal
/// key `bound`, and how many bytes it shares with the entry before, which are those of the bound.
/// The end of the entries if there is none.
///
/// No key is put together for this. `matched` is the length of the prefix that the entry before has
/// in common with the bound's user key: an entry that shares more than that with its predecessor is
/// before the bound for the same reason, any other is compared from `shared` on.
fn first_not_before(block: &Block, start: usize, bound: &[u8]) -> (usize, usize) {
    let (bound, bound_trailer) = split_internal_key(bound).unwrap_or((bound, 0));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{LookupKey, put_key_with_trailer, user_key};
    use crate::filter::hash::xxph3_64;
    use crate::table::block::block::BlockKeys;
    use crate::table::block::block::tests::{Entries, block, built, entries};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn walk(block: &Block, direction: Direction, bound: Option<&[u8]>) -> Entries {
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
            let block = block(&entries, restart_interval, false);
            let mut bounds: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.clone()).collect();
            for user in &absent {
                let mut bound = Vec::new();
                put_key_with_trailer(&mut bound, user, 0);
                bounds.push(bound);
            }
            for bound in bounds.iter().map(|b| Some(&b[..])).chain([None]) {
                let at_or_behind = |key: &[u8]| bound.is_none_or(|b| compare_internal(key, b).is_ge());
                let before = |key: &[u8]| bound.is_none_or(|b| compare_internal(key, b).is_lt());
                let ahead: Entries = entries.iter().filter(|e| at_or_behind(&e.0)).cloned().collect();
                let behind: Entries =
                    entries.iter().rev().filter(|e| before(&e.0)).cloned().collect();
                prop_assert_eq!(walk(&block, Direction::Forward, bound), ahead);
                prop_assert_eq!(walk(&block, Direction::Reverse, bound), behind);
            }
        }

        /// Past the checksum: whatever the bytes, either refused or read to an end.
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
            let Ok(block) = Block::new(&bytes, BlockKeys::Internal) else { return Ok(()) };
            for (key, _) in &entries {
                let _ = block.get(&LookupKey::new(user_key(key), 9), xxph3_64(user_key(key)));
                walk(&block, Direction::Reverse, Some(key));
            }
            let forward = walk(&block, Direction::Forward, None);
            let mut reverse = walk(&block, Direction::Reverse, None);
            reverse.reverse();
            prop_assert!(forward.is_sorted_by(|a, b| compare_internal(&a.0, &b.0).is_lt()));
            prop_assert_eq!(forward, reverse);
        }
    }
}
