//! [`Segment`]: a part of a memtable's entries, sorted, with its own filter.
//!
//! The entries are records of the memtable's [`Arena`], in the order of their [leaves](Leaf). The
//! leaves are in a skip list, each with its *low* key: its entries are at or above that, and below
//! the low key of the next leaf. A list of entries would have ten times the nodes, and a search
//! would meet more of them that are in no cache of the processor.
//!
//! A full leaf is split: its upper half is copied to a new leaf, the new leaf is put into the list
//! after the old one, and only then the old leaf drops that half. So an entry that a reader no
//! longer finds in a leaf is in the next leaf of the list, and every read goes on there. Entries
//! only move to the right, as in a B-link tree (Lehman and Yao, 1981).
//!
//! No node outlives its epoch guard, so an iterator copies entries ([`Copies`]).
//!
//! `SkipMap::get` (counts references on hot nodes) and `range()` (leaks in 0.1.3) are not used.

use crate::base::batch_format::BatchEntry;
use crate::base::iterator::api::Direction;
use crate::base::key::{Lookup, LookupKey, SequenceNumber, ValueKind};
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::value::Value;
use crate::memtable::arena::{Arena, Place, Record};
use crate::memtable::bloom::MemtableFilter;
use crate::memtable::leaf::{LEAF_ENTRIES, Leaf};
use crate::memtable::node_key::{KeyRef, KeyView, NodeKey};
use crossbeam_epoch::{self as epoch, Guard};
use crossbeam_skiplist::base::{Entry, SkipList};
use std::ops::Bound;

/// Entries that a full leaf keeps when it is split.
const LOWER_ENTRIES: usize = LEAF_ENTRIES.div_ceil(2);

/// Sorted entries with a filter. One thread inserts, any number read.
pub(crate) struct Segment {
    leaves: SkipList<NodeKey, Leaf>,
    arena: Arc<Arena>,
    pub filter: MemtableFilter,
    /// Everything in it has this sequence or a larger one, everything in earlier segments a smaller
    /// one. A reader that does not see it yet reads the largest number, of which nothing follows.
    begins: AtomicU64,
}

/// A leaf in its list.
type Node<'g> = Entry<'g, 'g, NodeKey, Leaf>;

impl Segment {
    /// An empty segment with a filter of that size, 0 for none. Its entries go to `arena`.
    pub(crate) fn new(arena: &Arc<Arena>, filter_bytes: usize) -> Self {
        // The default collector: a memtable makes no garbage, and pinning it costs one access to a
        // thread-local.
        let leaves = SkipList::new(epoch::default_collector().clone());
        let (arena, filter) = (Arc::clone(arena), MemtableFilter::new(filter_bytes));
        Segment { leaves, arena, filter, begins: AtomicU64::new(u64::MAX) }
    }

    /// About the bytes of its leaves in their nodes.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        // The tower and the count of references, and the allocator's part.
        self.leaves.len() * (size_of::<(NodeKey, Leaf)>() + 16 + 8 + 8)
    }

    /// Begins the segment with this sequence, before it is in use.
    pub(crate) fn begin(&self, sequence: SequenceNumber) {
        self.begins.store(sequence, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn begins(&self) -> SequenceNumber {
        self.begins.load(Ordering::Relaxed)
    }

    /// Allocates the filter in its full size, before the first key. Answers the bytes allocated.
    pub(crate) fn allocate_filter(&self) -> usize {
        match self.filter.grows_above() {
            0 => self.filter.grow(usize::MAX),
            _ => 0,
        }
    }

    /// Inserts an entry with the trailer of its internal key and the hash of its user key. The
    /// filter gets the key first (I3). One caller at a time, which publishes the sequence later.
    pub(crate) fn insert(&self, entry: &BatchEntry<'_>, trailer: u64, hash: u64) {
        self.filter.add(hash);
        let key = KeyRef::new(entry.key, trailer);
        let place = self.arena.push(entry.key, trailer, entry.value);
        let guard = &epoch::pin();
        let Some(node) = self.leaf_of(&key, guard) else {
            // Everything else is above the low key of the first leaf.
            let leaf = Leaf::of([(key.prefix(), place)].into_iter());
            self.leaves.insert(NodeKey::lowest(), leaf, guard).release(guard);
            return;
        };
        let leaf = node.value();
        let at = self.seek(leaf, &key).0;
        if leaf.len() < LEAF_ENTRIES {
            leaf.insert(at, key.prefix(), place);
        } else if at == LEAF_ENTRIES {
            // Nothing moves: entries in ascending order fill their leaves.
            self.link(Leaf::of([(key.prefix(), place)].into_iter()), guard);
        } else {
            let upper = leaf.upper(LOWER_ENTRIES);
            if at > LOWER_ENTRIES {
                upper.insert(at - LOWER_ENTRIES, key.prefix(), place);
            }
            // Before the old leaf loses these entries.
            self.link(upper, guard);
            leaf.truncate(LOWER_ENTRIES);
            if at <= LOWER_ENTRIES {
                leaf.insert(at, key.prefix(), place);
            }
        }
    }

    /// Puts a leaf with entries into the list.
    fn link(&self, leaf: Leaf, guard: &Guard) {
        let places = leaf.places();
        let first = self.arena.record(places.as_slice()[0]);
        let mut user_key = Vec::new();
        first.put_user_key(&mut user_key);
        let low = NodeKey::new(&user_key, first.trailer());
        self.leaves.insert(low, leaf, guard).release(guard);
    }

    /// The last leaf with a low key at or below `key`. Leaves to its right may have such keys only
    /// if it is split meanwhile.
    #[inline]
    fn leaf_of<'g>(&'g self, key: &KeyRef<'_>, guard: &'g Guard) -> Option<Node<'g>> {
        let bound: Bound<&dyn KeyView> = Bound::Included(key);
        self.leaves.upper_bound(bound, guard)
    }

    /// How many entries of the leaf are before `key`, and the place of the next one.
    #[inline]
    fn seek(&self, leaf: &Leaf, key: &KeyRef<'_>) -> (usize, Option<Place>) {
        let compare = |place| self.arena.record(place).compare(key.user_key(), key.trailer());
        leaf.seek(key.prefix(), compare)
    }

    /// False if the segment has no version of the key; true is "maybe".
    #[inline]
    pub(crate) fn may_contain(&self, xxph3: u64) -> bool {
        self.filter.may_contain(xxph3)
    }

    /// The trailer of the newest version of the key that the lookup's sequence can see.
    pub(crate) fn newest(&self, key: &LookupKey) -> Option<u64> {
        let guard = &epoch::pin();
        let sought = KeyRef::new(key.user_key(), key.trailer());
        let record = self.leaf_of(&sought, guard).and_then(|leaf| self.first_from(leaf, &sought));
        let record = record.filter(|record| record.compare_key(sought.user_key()).is_eq());
        record.map(|record| record.trailer())
    }

    /// The newest version of the key that the lookup's sequence can see, if it is above `floor`.
    pub(crate) fn get(&self, key: &LookupKey, floor: SequenceNumber) -> Lookup {
        let guard = &epoch::pin();
        // The sought key sorts before every version that its sequence sees, and after all newer
        // ones. So the first entry from there on is the answer, if it has the user key.
        let sought = KeyRef::new(key.user_key(), key.trailer());
        let record = self.leaf_of(&sought, guard).and_then(|leaf| self.first_from(leaf, &sought));
        let Some(record) = record.filter(|record| {
            record.trailer() >> 8 > floor && record.compare_key(sought.user_key()).is_eq()
        }) else {
            return Lookup::Absent;
        };
        match record.trailer() as u8 {
            kind if kind == ValueKind::Tombstone as u8 => Lookup::Deleted,
            kind if kind == ValueKind::ExpiringPut as u8 => Lookup::expiring(record.value()),
            _ => Lookup::found(record.value()),
        }
    }

    /// The first entry at or after `key`, for which this leaf was found.
    #[inline]
    fn first_from<'g>(&'g self, mut node: Node<'g>, key: &KeyRef<'_>) -> Option<Record<'g>> {
        loop {
            if let (_, Some(place)) = self.seek(node.value(), key) {
                return Some(self.arena.record(place));
            }
            node = node.next()?;
        }
    }

    /// Copies `count` entries in `direction`: forward from the first one that is not before `cut`
    /// on, in reverse from the last one that is. Fewer at the end of the segment.
    pub(crate) fn copy(
        &self,
        direction: Direction,
        cut: Option<&KeyRef<'_>>,
        count: usize,
        copies: &mut Copies,
    ) {
        copies.clear();
        let guard = &epoch::pin();
        match (direction, cut) {
            (Direction::Forward, None) => {
                self.copy_forward(self.leaves.front(guard), None, count, copies);
            }
            (Direction::Forward, Some(key)) => {
                self.copy_forward(self.leaf_of(key, guard), cut, count, copies);
            }
            (Direction::Reverse, None) => {
                self.copy_reverse(self.leaves.back(guard), None, count, copies);
            }
            (Direction::Reverse, Some(key)) => {
                let bound: Bound<&dyn KeyView> = Bound::Excluded(key);
                self.copy_reverse(self.leaves.upper_bound(bound, guard), cut, count, copies);
            }
        }
    }

    /// Copies forward from the leaf that was found for `cut`.
    fn copy_forward(
        &self,
        mut node: Option<Node<'_>>,
        cut: Option<&KeyRef<'_>>,
        count: usize,
        copies: &mut Copies,
    ) {
        while let Some(leaf) = node {
            let places = leaf.value().places();
            let places = places.as_slice();
            // After the entries: what they no longer have is in the next leaf.
            node = leaf.next();
            // A leaf that is being split has entries of the next one.
            let end = match &node {
                Some(next) => self.count_before(places, next.key()),
                None => places.len(),
            };
            // Until something is copied: the entries from `cut` on may be in a later leaf.
            let cut = cut.filter(|_| copies.len() == 0);
            let first = cut.map_or(0, |cut| self.count_before(places, cut));
            for place in &places[first.min(end)..end] {
                copies.push(self.arena.record(*place));
                if copies.len() == count {
                    return;
                }
            }
        }
    }

    /// Copies in reverse from the leaf that was found for `cut`.
    fn copy_reverse(
        &self,
        mut node: Option<Node<'_>>,
        cut: Option<&KeyRef<'_>>,
        count: usize,
        copies: &mut Copies,
    ) {
        while let Some(mut leaf) = node {
            let before = copies.last_key().map(KeyRef::of_internal);
            let cut = before.as_ref().or(cut);
            let mut places = leaf.value().places();
            // A leaf that was split since it was found has its later entries on its right.
            let is_within = |later: &Node<'_>| cut.is_none_or(|cut| later.key().is_before(cut));
            while let Some(later) = leaf.next().filter(is_within) {
                places = later.value().places();
                leaf = later;
            }
            let places = places.as_slice();
            let end = cut.map_or(places.len(), |cut| self.count_before(places, cut));
            for place in places[..end].iter().rev() {
                copies.push(self.arena.record(*place));
                if copies.len() == count {
                    return;
                }
            }
            node = leaf.prev();
        }
    }

    /// How many of the entries are before `key`.
    fn count_before(&self, places: &[Place], key: &(impl KeyView + ?Sized)) -> usize {
        let is_before =
            |place: Place| self.arena.record(place).compare(key.user_key(), key.trailer()).is_lt();
        match places.last() {
            // Mostly so, of the low key of the next leaf.
            Some(last) if is_before(*last) => places.len(),
            _ => places.partition_point(|place| is_before(*place)),
        }
    }
}

/// Entries copied out of a segment. Values up to [`COPY_BYTES`](crate::base::value::COPY_BYTES) are
/// copied, larger ones shared.
#[derive(Default)]
pub(crate) struct Copies {
    /// The internal key of each entry, then its value unless that is shared.
    bytes: Vec<u8>,
    entries: Vec<Copied>,
}

struct Copied {
    key_end: usize,
    end: usize,
    shared: Option<Arc<[u8]>>,
}

impl Copies {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    fn push(&mut self, record: Record<'_>) {
        record.put_internal_key(&mut self.bytes);
        let key_end = self.bytes.len();
        let shared = record.put_value(&mut self.bytes);
        self.entries.push(Copied { key_end, end: self.bytes.len(), shared });
    }

    /// Entries in this chunk.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.entries.len().checked_sub(1).map(|last| self.key(last))
    }

    /// The internal key of an entry.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.entries[at - 1].end };
        &self.bytes[start..self.entries[at].key_end]
    }

    /// The value of an entry; empty for a tombstone.
    #[inline]
    pub(crate) fn value(&self, at: usize) -> &[u8] {
        let Copied { key_end, end, shared } = &self.entries[at];
        shared.as_deref().unwrap_or(&self.bytes[*key_end..*end])
    }

    /// The same as a [`Value`]; a large one shares its bytes.
    pub(crate) fn value_owned(&self, at: usize) -> Value {
        match &self.entries[at].shared {
            Some(shared) => Value::sharing(Arc::clone(shared)),
            None => Value::from(self.value(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::batch_format::DecodedBatch;
    use crate::base::value::COPY_BYTES;
    use crate::base::write_batch::WriteBatch;
    use siftdb_filter::hash::xxph3_64;

    fn insert(segment: &Segment, first: u64, batch: &WriteBatch) {
        let entries = DecodedBatch::trusted(first, batch.len() as u32, &batch.entries);
        for (sequence, entry) in (first..).zip(entries.iter()) {
            let trailer = sequence << 8 | entry.kind as u64;
            segment.insert(&entry, trailer, xxph3_64(entry.key));
        }
    }

    /// Keys 0, 10, ..., 140, which fill one leaf.
    fn full_leaf() -> Segment {
        let segment = Segment::new(&Arc::default(), 0);
        let mut batch = WriteBatch::new();
        for n in 0..LEAF_ENTRIES as u8 {
            batch.put([10 * n], [n]);
        }
        insert(&segment, 1, &batch);
        segment
    }

    fn keys(copies: &Copies) -> Vec<u8> {
        (0..copies.len()).map(|at| copies.key(at)[0]).collect()
    }

    /// The state between the two steps of a split: the upper half is in both leaves.
    #[test]
    fn scans_see_entries_of_a_leaf_in_its_split_once() {
        let (segment, mut copies) = (full_leaf(), Copies::default());
        let guard = &epoch::pin();
        segment.link(segment.leaves.front(guard).unwrap().value().upper(LOWER_ENTRIES), guard);
        let all: Vec<u8> = (0..LEAF_ENTRIES as u8).map(|n| 10 * n).collect();
        segment.copy(Direction::Forward, None, 100, &mut copies);
        assert_eq!(keys(&copies), all);
        segment.copy(Direction::Reverse, None, 100, &mut copies);
        assert!(keys(&copies).iter().rev().eq(&all));
        for (at, key) in all.iter().enumerate() {
            let cut = Some(&KeyRef::new(std::slice::from_ref(key), u64::MAX));
            segment.copy(Direction::Forward, cut, 100, &mut copies);
            assert_eq!(keys(&copies), all[at..]);
            segment.copy(Direction::Reverse, cut, 100, &mut copies);
            assert!(keys(&copies).iter().rev().eq(&all[..at]));
        }
    }

    /// What a read does whose leaf is split after it has found it.
    #[test]
    fn reads_follow_entries_of_a_leaf_that_was_split() {
        let (segment, mut copies) = (full_leaf(), Copies::default());
        let guard = &epoch::pin();
        let node = || segment.leaves.front(guard);
        let found = node();
        let mut batch = WriteBatch::new();
        batch.put([5], "more");
        insert(&segment, 100, &batch);
        assert_eq!((segment.leaves.len(), found.as_ref().unwrap().value().len()), (2, 9));
        for n in 0..LEAF_ENTRIES as u8 {
            let key = [10 * n];
            let sought = KeyRef::new(&key, u64::MAX);
            let record = segment.first_from(node().unwrap(), &sought).unwrap();
            assert!(record.compare_key(&key).is_eq(), "{n}");
            copies.clear();
            segment.copy_reverse(node(), Some(&sought), 1, &mut copies);
            let before = if n == 1 { Some(5) } else { n.checked_sub(1).map(|n| 10 * n) };
            assert_eq!(keys(&copies), Vec::from_iter(before), "{n}");
            copies.clear();
            segment.copy_forward(node(), Some(&sought), 1, &mut copies);
            assert_eq!(keys(&copies), key);
        }
    }

    #[test]
    fn values_of_every_size_round_trip() {
        let full = COPY_BYTES;
        let sizes = [0, 1, 31, full - 1, 7, 8, full, full + 1, 9, 3 * full, 40, 0, 16, 1 << 20];
        let mut batch = WriteBatch::new();
        let value = |n: usize| vec![n as u8 + 1; sizes[n]];
        for n in 0..sizes.len() {
            batch.put([n as u8], value(n)).delete([n as u8, 0]);
        }
        let segment = Segment::new(&Arc::default(), 0);
        insert(&segment, 10, &batch);
        let mut copies = Copies::default();
        segment.copy(Direction::Forward, None, 100, &mut copies);
        assert_eq!(copies.len(), 2 * sizes.len());
        for n in 0..sizes.len() {
            let sequence = 10 + 2 * n as u64;
            let found = segment.get(&LookupKey::new(&[n as u8], sequence), 0);
            assert_eq!(found, Lookup::found(Value::from(&value(n)[..])), "{n}");
            let key = LookupKey::new(&[n as u8], sequence);
            assert_eq!(segment.get(&key, sequence), Lookup::Absent);
            assert_eq!(segment.get(&LookupKey::new(&[n as u8], sequence - 1), 0), Lookup::Absent);
            let deleted = segment.get(&LookupKey::new(&[n as u8, 0], sequence + 1), sequence);
            assert_eq!(deleted, Lookup::Deleted);
            assert_eq!((copies.value(2 * n), copies.value(2 * n + 1)), (&value(n)[..], &[][..]));
            assert_eq!(copies.value_owned(2 * n), value(n)[..]);
        }
    }
}
