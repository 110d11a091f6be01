//! [`MemtableRangeDeletes`]: the range deletes of a memtable, which grow while other threads read
//! them.
//!
//! Almost all reads are newer than every delete of the memtable. They ask one fragmented list, the
//! *newest*: each fragment has only the newest delete that covers it. A list of all sequences
//! would have `n * n` of them for `n` nested deletes.
//!
//! The newest list also answers an older read, unless the newest delete of the key is newer than
//! the read. Then the read looks through all deletes, back from its own sequence. The last few are
//! compared one by one. Those before are in *cached* lists of the same kind, each of 64, 128, 256
//! or more deletes that follow each other. They are built when they are first needed. A number of
//! deletes has one list for each bit of it, so a read asks few lists, and no list is built twice.
//!
//! *Runs* are the ranges that the deletes cover together, without regard to which delete covers
//! which part. With them a scan passes ten thousand adjacent deletes in one step.

use crate::base::key::SequenceNumber;
use crate::base::range::KeyBounds;
use crate::base::range_deletes::{RangeDelete, RangeDeletes};
use crate::base::sync::plain::{AtomicU64, Mutex, RwLock};
use crate::base::sync::{Arc, AtomicUsize, Ordering};
use std::collections::BTreeMap;

/// The smallest number of deletes that a cached list has; a power of two.
const LIST_DELETES_MIN: usize = 64;

/// The memory of a delete besides its keys: in all three collections.
const DELETE_BYTES: usize = 384;

/// How often the keys of a delete are stored at most.
const KEY_COPIES: usize = 4;

/// The range deletes of a memtable. One thread inserts, any number read.
// No lock is held while another one is taken, or while a list is built.
#[derive(Default)]
pub(crate) struct MemtableRangeDeletes {
    /// How many there are.
    count: AtomicUsize,
    lists: RwLock<Lists>,
    /// Lists of some consecutive deletes, by the index of the first and their number.
    cached: Mutex<BTreeMap<(usize, usize), Arc<RangeDeletes>>>,
    /// Bytes of these lists.
    cached_bytes: AtomicU64,
}

/// The state that the lock protects.
#[derive(Default)]
struct Lists {
    /// Of each fragment the newest delete.
    newest: RangeDeletes,
    /// Fragments neither share a key nor touch. Each has the oldest of its deletes.
    runs: RangeDeletes,
    /// All deletes, oldest first.
    all: Vec<Arc<RangeDelete>>,
}

impl Lists {
    /// True if a read at `at` sees all deletes. Only such a read may ask the runs.
    fn are_seen(&self, at: SequenceNumber) -> bool {
        self.all.last().is_none_or(|last| last.sequence <= at)
    }
}

impl MemtableRangeDeletes {
    /// About how many bytes of memory a delete takes.
    pub(crate) fn bytes_of(start: &[u8], end: Option<&[u8]>) -> usize {
        DELETE_BYTES + KEY_COPIES * (start.len() + end.map_or(0, <[u8]>::len))
    }

    /// How many there are.
    // Relaxed suffices, as for the entries of a memtable: a read that must see a delete loaded a
    // sequence that was published after this count was stored.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a delete with a larger sequence than all others. Its range has a key.
    pub(crate) fn insert(&self, delete: RangeDelete) {
        let mut lists = self.lists.write();
        lists.newest.cover(&delete);
        lists.runs.join(&delete);
        lists.all.push(Arc::new(delete));
        drop(lists);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// About how many bytes of memory the cached lists take, besides [`bytes_of`](Self::bytes_of)
    /// their deletes: the writer does not know of them.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached_bytes.load(Ordering::Relaxed)
    }

    /// All deletes, oldest first.
    pub(crate) fn all(&self) -> Vec<RangeDelete> {
        self.lists.read().all.iter().map(|delete| RangeDelete::clone(delete)).collect()
    }

    /// A key of `bounds` that a delete above `since` covers.
    pub(crate) fn newer_within(
        &self,
        bounds: &KeyBounds,
        since: SequenceNumber,
    ) -> Option<Vec<u8>> {
        self.lists.read().newest.newer_within(bounds, since)
    }

    /// The sequence up to which entries of `key` are deleted for a read at `at`; 0 if none is.
    // Apart from the lookup: most memtables have no range deletes.
    #[inline(never)]
    pub(crate) fn covering(&self, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let newest = self.lists.read().newest.covering(key, SequenceNumber::MAX);
        if newest <= at { newest } else { self.earlier_coverage(key, at).sequence }
    }

    /// The range around `key` that has the same covering sequence for a read at `at`, and that
    /// sequence.
    pub(crate) fn coverage(&self, key: &[u8], at: SequenceNumber) -> RangeDelete {
        let newest = self.lists.read().newest.coverage(key, SequenceNumber::MAX);
        if newest.sequence <= at { newest } else { self.earlier_coverage(key, at) }
    }

    /// Moves the end of `range` past the keys that follow it and have a covering sequence above
    /// `above` for a read at `at`. False if there are none. A key whose newest delete is newer than
    /// the read counts as uncovered.
    pub(crate) fn extend_end(
        &self,
        range: &mut RangeDelete,
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> bool {
        let lists = self.lists.read();
        (lists.are_seen(at) && lists.runs.extend_end(range, at, above))
            || lists.newest.extend_end(range, at, above)
    }

    /// Moves the start of `range` before the keys that come before it, as
    /// [`extend_end`](Self::extend_end).
    pub(crate) fn extend_start(
        &self,
        range: &mut RangeDelete,
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> bool {
        let lists = self.lists.read();
        (lists.are_seen(at) && lists.runs.extend_start(range, at, above))
            || lists.newest.extend_start(range, at, above)
    }

    /// The coverage of `key` by the deletes up to `at`, of which some newer one hides it.
    #[cold]
    fn earlier_coverage(&self, key: &[u8], at: SequenceNumber) -> RangeDelete {
        let mut coverage = RangeDelete::default();
        let mut listed = {
            let all = &self.lists.read().all;
            let seen = all.partition_point(|delete| delete.sequence <= at);
            let listed = seen - seen % LIST_DELETES_MIN;
            for delete in all[listed..seen].iter().rev() {
                coverage.intersect(&delete.coverage(key));
                if coverage.sequence > 0 {
                    return coverage;
                }
            }
            listed
        };
        while listed > 0 && coverage.sequence == 0 {
            // The lowest bit of the number has the newest list.
            let length = listed & listed.wrapping_neg();
            listed -= length;
            coverage.intersect(&self.list(listed, length).coverage(key, at));
        }
        coverage
    }

    /// The list of `length` deletes from the index `first` on, each fragment with the newest: only
    /// reads that see all of them ask.
    fn list(&self, first: usize, length: usize) -> Arc<RangeDeletes> {
        if let Some(list) = self.cached.lock().get(&(first, length)) {
            return Arc::clone(list);
        }
        let deletes = self.lists.read().all[first..first + length].to_vec();
        let mut list = RangeDeletes::default();
        deletes.iter().for_each(|delete| list.cover(delete));
        let mut cached = self.cached.lock();
        Arc::clone(cached.entry((first, length)).or_insert_with(|| {
            self.cached_bytes.fetch_add(list.memory_bytes(), Ordering::Relaxed);
            Arc::new(list)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Deletes numbered 3, 6, 9 …: enough for several cached lists.
    fn drawn(count: usize) -> impl Strategy<Value = Vec<RangeDelete>> {
        let key = || proptest::collection::vec(0u8..4, 0..3);
        let end = proptest::option::weighted(0.95, proptest::collection::vec(0u8..5, 1..3));
        proptest::collection::vec((key(), end), 0..count).prop_map(|ranges| {
            let sound =
                ranges.into_iter().filter(|(start, end)| end.as_ref().is_none_or(|e| start < e));
            let delete = |(n, (start, end)): (u64, _)| RangeDelete { start, end, sequence: 3 * n };
            (1..).zip(sound).map(delete).collect()
        })
    }

    /// The keys that bounds of `drawn` can tell apart.
    fn keys() -> Vec<Vec<u8>> {
        let long = (0u8..6).flat_map(|a| (0u8..6).map(move |b| vec![a, b]));
        let mut keys: Vec<_> = long.chain((0u8..6).map(|a| vec![a])).chain([vec![]]).collect();
        keys.extend(keys.clone().iter().map(|key| [&key[..], &[0]].concat()));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn covering(deletes: &[RangeDelete], key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let visible = deletes.iter().rev().filter(|delete| delete.sequence <= at);
        visible
            .map(|delete| delete.coverage(key).sequence)
            .find(|covering| *covering > 0)
            .unwrap_or(0)
    }

    fn inserted(deletes: &[RangeDelete]) -> MemtableRangeDeletes {
        let ranges = MemtableRangeDeletes::default();
        deletes.iter().for_each(|delete| ranges.insert(delete.clone()));
        ranges
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_read_sees_its_deletes(
            deletes in prop_oneof![drawn(12), drawn(700)],
            reads in proptest::collection::vec(0u64..2_200, 8),
        ) {
            let ranges = inserted(&deletes);
            prop_assert_eq!(ranges.count(), deletes.len());
            prop_assert_eq!(&ranges.all(), &deletes);
            let last = deletes.last().map_or(0, |last| last.sequence);
            for at in reads.into_iter().map(|at| at % (last + 2)).chain([last, u64::MAX]) {
                for key in keys() {
                    let expected = covering(&deletes, &key, at);
                    prop_assert_eq!(ranges.covering(&key, at), expected, "{:?} at {}", key, at);
                    let coverage = ranges.coverage(&key, at);
                    prop_assert!(coverage.contains(&key) && coverage.sequence == expected);
                    for other in keys().iter().filter(|other| coverage.contains(other)) {
                        prop_assert_eq!(covering(&deletes, other, at), expected);
                    }
                }
            }
        }

        #[test]
        fn covered_ranges_extend_both_ways(
            deletes in prop_oneof![drawn(12), drawn(200)],
            reads in proptest::collection::vec((0u64..600, 0u64..600), 8),
        ) {
            let ranges = inserted(&deletes);
            let last = deletes.last().map_or(0, |last| last.sequence);
            let keys = keys();
            let newest = [(last, 0), (u64::MAX, 0), (last, last / 2)];
            // Most reads are older than some deletes.
            let reads = reads.into_iter().map(|(at, above)| (at % (last + 2), above % (last + 2)));
            for (at, above) in reads.chain(newest) {
                let is_covered = |key: &Vec<u8>| covering(&deletes, key, at) > above;
                for (position, key) in keys.iter().enumerate() {
                    let at_key = RangeDelete { start: key.clone(), end: Some(key.clone()), sequence: 0 };
                    let (mut up, mut down) = (at_key.clone(), at_key);
                    let has_next = ranges.extend_end(&mut up, at, above);
                    prop_assert!(has_next || up.end.as_ref() == Some(key));
                    prop_assert!(!has_next || is_covered(key));
                    let before = |other: &&Vec<u8>| up.end.as_ref().is_none_or(|end| *other < end);
                    prop_assert!(keys[position..].iter().take_while(before).all(is_covered));
                    let has_previous = ranges.extend_start(&mut down, at, above);
                    prop_assert_eq!(has_previous, down.start < *key);
                    let after = |other: &&Vec<u8>| **other >= down.start;
                    prop_assert!(keys[..position].iter().filter(after).all(is_covered));
                    // All of them, if the read is newer than every delete.
                    if at >= last {
                        let uncovered = keys[position..].iter().find(|key| !is_covered(key));
                        prop_assert_eq!(up.end.as_ref(), uncovered);
                        let uncovered = keys[..position].iter().rposition(|key| !is_covered(key));
                        prop_assert_eq!(&down.start, &keys[uncovered.map_or(0, |last| last + 1)]);
                    }
                }
            }
        }
    }

    #[test]
    fn cached_lists_are_built_once() {
        let delete = |n: u64| {
            let start = format!("{:05}", n * 7919 % 10_000).into_bytes();
            RangeDelete { end: Some([&start[..], b"5"].concat()), start, sequence: 2 * n }
        };
        let deletes: Vec<_> = (1..=10_000).map(delete).collect();
        let ranges = inserted(&deletes);
        ranges.insert(RangeDelete { start: vec![], end: None, sequence: 20_001 });
        let read = |n: u64| {
            assert_eq!(ranges.covering(&delete(n).start, 2 * n), 2 * n);
            assert_eq!(ranges.covering(&delete(n).start, 2 * n - 1), 0);
            assert_eq!(ranges.covering(&delete(n).start, 20_000), 2 * n);
            ranges.cached.lock().len()
        };
        for n in 1..=10_000 {
            read(n);
        }
        // One list ends at each multiple of the smallest length, and no read makes another one.
        let lists = read(1);
        assert!(lists <= 10_000 / LIST_DELETES_MIN, "{lists} lists");
        assert_eq!((1..=10_000).map(read).max(), Some(lists));
    }
}
