//! [`ReadSet`]: what a transaction has read: keys, and ranges as far as they were scanned.
//!
//! A commit compares it with what was written since the transaction's snapshot. A key or range that
//! a transaction found *absent* is read, too: a later insert there is a conflict.
//!
//! Ranges that touch are joined, so a loop of scans takes no more memory than what it covers. An
//! iterator or cursor may still be alive when its transaction commits. So each walk is registered
//! with its whole range when it begins, and replaced by what it crossed when it ends
//! ([`ReadRange`]). A commit counts a walk that has not ended as if it had crossed everything.

use crate::base::error::{Error, Result};
use crate::base::key::KeyspaceId;
use crate::base::range::KeyBounds;
use crate::base::sync::{Arc, Mutex};
use crate::base::value::Key;
use crate::state::keyspace::KeyspaceState;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// About what a key or a range costs besides its bytes.
const ENTRY_BYTES: usize = 64;

/// The reads of a transaction, by keyspace.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// Ascending by number. Most often there is one: that takes less than a node of a tree.
    keyspaces: Vec<KeyspaceReads>,
    /// Walks that have not ended, by number: what they may cross.
    walks: BTreeMap<u64, (Arc<KeyspaceState>, KeyBounds)>,
    last_walk: u64,
    bytes: usize,
    /// What the writes of the transaction took when that was last counted.
    own_bytes: usize,
}

/// The reads of one keyspace.
#[derive(Debug)]
pub(crate) struct KeyspaceReads {
    pub keyspace: Arc<KeyspaceState>,
    /// Single keys.
    pub keys: BTreeSet<Key>,
    /// Ranges that share no key.
    pub ranges: KeyRanges,
}

impl ReadSet {
    pub(crate) fn add_key(&mut self, keyspace: &Arc<KeyspaceState>, key: &[u8]) {
        if self.of(keyspace).keys.insert(Key::from(key)) {
            self.bytes += key.len() + ENTRY_BYTES;
        }
    }

    fn add_range(&mut self, keyspace: &Arc<KeyspaceState>, bounds: &KeyBounds) {
        if bounds.is_empty() {
            return;
        }
        let ranges = &mut self.of(keyspace).ranges;
        let before = ranges.bytes;
        ranges.add(bounds.start.to_vec(), bounds.end.as_deref().map(<[u8]>::to_vec));
        let after = ranges.bytes;
        self.bytes = self.bytes - before + after;
    }

    fn of(&mut self, keyspace: &Arc<KeyspaceState>) -> &mut KeyspaceReads {
        let index = self.index_of(keyspace.id).unwrap_or_else(|index| {
            let keyspace = Arc::clone(keyspace);
            let reads =
                KeyspaceReads { keyspace, keys: BTreeSet::new(), ranges: KeyRanges::default() };
            self.keyspaces.insert(index, reads);
            index
        });
        &mut self.keyspaces[index]
    }

    /// Where the reads of a keyspace are, or would be.
    fn index_of(&self, id: KeyspaceId) -> std::result::Result<usize, usize> {
        self.keyspaces.binary_search_by_key(&id, |reads| reads.keyspace.id)
    }

    /// Notes how many bytes of memory the writes of the transaction take.
    pub(crate) fn note_own_bytes(&mut self, bytes: usize) {
        self.own_bytes = bytes;
    }

    /// About how many bytes of memory the transaction takes, its writes included.
    pub(crate) fn bytes(&self) -> usize {
        self.own_bytes + self.bytes
    }

    /// Refuses a transaction that takes more than `bytes_max`.
    ///
    /// # Errors
    /// `TransactionTooLarge`.
    pub(crate) fn check_bytes(&self, bytes_max: usize) -> Result<()> {
        match self.bytes() > bytes_max {
            true => Err(Error::TransactionTooLarge { bytes_max }),
            false => Ok(()),
        }
    }

    /// Takes everything out, with what walks that have not ended may cross.
    pub(crate) fn take(&mut self) -> ReadSet {
        let mut taken = std::mem::take(self);
        for (keyspace, bounds) in std::mem::take(&mut taken.walks).into_values() {
            taken.add_range(&keyspace, &bounds);
        }
        taken
    }

    /// The reads, keyspace by keyspace.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &KeyspaceReads> {
        self.keyspaces.iter()
    }

    /// The reads of the keyspace with that number.
    pub(crate) fn keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceReads> {
        self.index_of(id).ok().map(|index| &self.keyspaces[index])
    }
}

impl KeyspaceReads {
    /// True if `key` was read.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key) || self.ranges.overlap(key, Some(key), true).is_some()
    }

    /// A key that was read and lies in the range from `start` on and below `end`, or the first key
    /// of such a part of a range.
    pub(crate) fn first_within(&self, start: &[u8], end: Option<&[u8]>) -> Option<Vec<u8>> {
        let first = self.keys.range::<[u8], _>((Bound::Included(start), Bound::Unbounded)).next();
        let key = first.filter(|key| end.is_none_or(|end| &key[..] < end));
        match key {
            Some(key) => Some(key.to_vec()),
            None => self.ranges.overlap(start, end, false).map(<[u8]>::to_vec),
        }
    }

    /// A key that was read, or the first key of a range: for errors that concern all of it.
    pub(crate) fn any_key(&self) -> Vec<u8> {
        self.first_within(&[], None).unwrap_or_default()
    }
}

/// Half-open ranges of keys that neither overlap nor touch, by their first keys; a range without an
/// end has `None`.
#[derive(Debug, Default)]
pub(crate) struct KeyRanges {
    by_start: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl KeyRanges {
    /// Adds a range and joins it with those that it overlaps or touches.
    fn add(&mut self, mut start: Vec<u8>, mut end: Option<Vec<u8>>) {
        let reaches = |end: &Option<Vec<u8>>, key: &Vec<u8>| end.as_ref().is_none_or(|e| e >= key);
        if let Some((first, own_end)) = self.by_start.range(..=start.clone()).next_back()
            && reaches(own_end, &start)
        {
            start.clone_from(first);
        }
        let from = (Bound::Included(start.clone()), Bound::Unbounded);
        let joined = self.by_start.range(from).take_while(|(first, _)| reaches(&end, first));
        let joined: Vec<_> = joined.map(|(first, _)| first.clone()).collect();
        // A range that is joined may reach farther, but then none follows that it touches.
        for first in joined {
            let Some(own_end) = self.by_start.remove(&first) else { continue };
            self.bytes -= bytes_of(&first, own_end.as_ref());
            end = match (end, own_end) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
        }
        self.bytes += bytes_of(&start, end.as_ref());
        self.by_start.insert(start, end);
    }

    /// The first key of the last part that the ranges share with the keys from `start` on and below
    /// `end`; with `inclusive`, up to `end`.
    fn overlap<'a>(
        &'a self,
        start: &'a [u8],
        end: Option<&[u8]>,
        inclusive: bool,
    ) -> Option<&'a [u8]> {
        let until = match end {
            None => Bound::Unbounded,
            Some(end) if inclusive => Bound::Included(end),
            Some(end) => Bound::Excluded(end),
        };
        let (first, own_end) =
            self.by_start.range::<[u8], _>((Bound::Unbounded, until)).next_back()?;
        let shares = own_end.as_deref().is_none_or(|own_end| own_end > start);
        shares.then(|| start.max(&first[..]))
    }

    /// The ranges, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.by_start.iter().map(|(start, end)| (&start[..], end.as_deref()))
    }
}

fn bytes_of(start: &[u8], end: Option<&Vec<u8>>) -> usize {
    start.len() + end.map_or(0, Vec::len) + ENTRY_BYTES
}

/// How far one walk of a transaction has gone. Its drop ends the walk.
#[derive(Debug)]
pub(crate) struct ReadRange {
    reads: Arc<Mutex<ReadSet>>,
    keyspace: Arc<KeyspaceState>,
    walk: u64,
}

impl ReadRange {
    /// Registers a walk that may cross `bounds`.
    pub(crate) fn begin(
        reads: &Arc<Mutex<ReadSet>>,
        keyspace: &Arc<KeyspaceState>,
        bounds: &KeyBounds,
    ) -> Self {
        let mut set = reads.lock();
        set.last_walk += 1;
        let walk = set.last_walk;
        set.walks.insert(walk, (Arc::clone(keyspace), bounds.clone()));
        ReadRange { reads: Arc::clone(reads), keyspace: Arc::clone(keyspace), walk }
    }

    /// Adds keys that the walk has crossed. After the commit it does nothing.
    pub(crate) fn add(&self, bounds: &KeyBounds) {
        let mut set = self.reads.lock();
        if set.walks.contains_key(&self.walk) {
            set.add_range(&self.keyspace, bounds);
        }
    }
}

impl Drop for ReadRange {
    fn drop(&mut self) {
        self.reads.lock().walks.remove(&self.walk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn joined_ranges_hold_what_was_added(
            added in proptest::collection::vec((0..40u8, proptest::option::of(0..40u8)), 0..12),
            asked in (0..42u8, proptest::option::of(0..42u8)),
        ) {
            let mut ranges = KeyRanges::default();
            let mut model = [false; 64];
            for (start, end) in added {
                if end.is_some_and(|end| end <= start) {
                    continue;
                }
                ranges.add(vec![start], end.map(|end| vec![end]));
                model[usize::from(start)..end.map_or(64, usize::from)].fill(true);
            }
            for key in 0..64u8 {
                let found = ranges.overlap(&[key], Some(&[key]), true).is_some();
                prop_assert_eq!(found, model[usize::from(key)], "key {}", key);
            }
            let all: Vec<_> = ranges.iter().collect();
            for pair in all.windows(2) {
                prop_assert!(pair[0].1.is_some_and(|end| end < pair[1].0), "{:?}", all);
            }
            let bytes: usize =
                all.iter().map(|(s, e)| s.len() + e.map_or(0, <[u8]>::len) + ENTRY_BYTES).sum();
            prop_assert_eq!(ranges.bytes, bytes);
            let (start, end) = asked;
            if end.is_none_or(|end| start < end) {
                let part = &model[usize::from(start)..end.map_or(64, usize::from)];
                let end = end.map(|end| [end]);
                let end = end.as_ref().map(|end| &end[..]);
                let start = [start];
                let found = ranges.overlap(&start, end, false).map(<[u8]>::to_vec);
                prop_assert_eq!(found.is_some(), part.contains(&true));
                prop_assert!(found.is_none_or(|key| model[usize::from(key[0])]));
            }
        }
    }
}
