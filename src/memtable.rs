//! The newest writes, sorted in memory: a skip list of internal keys with a small filter.
//!
//! `db/write.rs` applies batches, one writer at a time; any number of threads read meanwhile. A
//! writer sets a key's filter bits, inserts the entry, and only then publishes the sequence
//! (Release, in `db/`). A reader loads the published sequence (Acquire) before it asks the filter,
//! so everything at or below that sequence is visible to it, and relaxed loads and stores suffice
//! for the bits themselves. Entries are never removed, and none outlives its epoch guard: the
//! guards are the default collector's, since a memtable makes no garbage and a pin is then one
//! thread-local access. [`Memtable::get`] does not ask the filter; its caller does, to count it.
//!
//! `SkipMap::get` (counts references on hot nodes) and `range()` (leaks in 0.1.3) are not used.
//! Dropping a memtable takes time in proportion to its entries and belongs in the background.
//! There are no range tombstones yet; the decoder of batches refuses their kind.

use crate::error::Result;
use crate::filter::hash::{KeyHash, xxph3_64};
use crate::iterator::api::{Direction, InternalIterator};
use crate::key::{
    Lookup, LookupKey, ValueKind, put_key_with_trailer, sort_prefix, split_internal_key,
};
use crate::memtable_filter::MemtableFilter;
use crate::sync::{Arc, AtomicUsize, Ordering};
use crate::value::Value;
use crate::write_batch::DecodedBatch;
use crossbeam_epoch as epoch;
use crossbeam_skiplist::base::{Entry, SkipList};
use std::borrow::Borrow;
use std::cmp;
use std::fmt;
use std::ops::Bound;

/// What an entry costs beside its key and value: node, tower, `Arc` header, allocator.
const ENTRY_BYTES: usize = 96;

/// One byte of filter for as many of write buffer.
const FILTER_SHARE: usize = 64;

/// Most entries that an iterator copies at a time.
const CHUNK_ENTRIES_MAX: usize = 32;

/// Entries of the first chunk after a seek; each further one doubles.
const CHUNK_ENTRIES_FIRST: usize = 4;

/// An internal key, read through a reference: what the list compares.
trait KeyView {
    /// The first 8 bytes of the user key, zero-padded, big-endian: orders most keys by itself.
    fn prefix(&self) -> u64;
    fn user_key(&self) -> &[u8];
    fn trailer(&self) -> u64;
}

/// User key ascending, then trailer descending.
#[inline]
fn compare(a: &(impl KeyView + ?Sized), b: &(impl KeyView + ?Sized)) -> cmp::Ordering {
    (a.prefix().cmp(&b.prefix()))
        .then_with(|| a.user_key().cmp(b.user_key()))
        .then_with(|| b.trailer().cmp(&a.trailer()))
}

/// An entry's key. Short user keys stand in the node itself, which a search touches anyway.
struct MemKey {
    prefix: u64,
    trailer: u64,
    bytes: KeyBytes,
}

enum KeyBytes {
    Inline { len: u8, bytes: [u8; KeyBytes::INLINE] },
    Heap(Box<[u8]>),
}

impl KeyBytes {
    const INLINE: usize = 22;
}

impl MemKey {
    fn new(user_key: &[u8], trailer: u64) -> Self {
        let bytes = if user_key.len() <= KeyBytes::INLINE {
            let mut bytes = [0; KeyBytes::INLINE];
            bytes[..user_key.len()].copy_from_slice(user_key);
            KeyBytes::Inline { len: user_key.len() as u8, bytes }
        } else {
            KeyBytes::Heap(Box::from(user_key))
        };
        MemKey { prefix: sort_prefix(user_key), trailer, bytes }
    }
}

impl KeyView for MemKey {
    #[inline]
    fn prefix(&self) -> u64 {
        self.prefix
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        match &self.bytes {
            KeyBytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            KeyBytes::Heap(bytes) => bytes,
        }
    }

    #[inline]
    fn trailer(&self) -> u64 {
        self.trailer
    }
}

impl PartialEq for MemKey {
    fn eq(&self, other: &Self) -> bool {
        compare(self, other).is_eq()
    }
}

impl Eq for MemKey {}

impl PartialOrd for MemKey {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MemKey {
    #[inline]
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        compare(self, other)
    }
}

/// A key to search with, borrowed: lookups of any length allocate nothing.
struct KeyRef<'a> {
    prefix: u64,
    trailer: u64,
    user_key: &'a [u8],
}

impl<'a> KeyRef<'a> {
    fn new(user_key: &'a [u8], trailer: u64) -> Self {
        KeyRef { prefix: sort_prefix(user_key), trailer, user_key }
    }

    /// Bounds are whole internal keys; anything shorter stands before all its versions.
    fn of_internal(internal_key: &'a [u8]) -> Self {
        let (user_key, trailer) =
            split_internal_key(internal_key).unwrap_or((internal_key, u64::MAX));
        KeyRef::new(user_key, trailer)
    }
}

impl KeyView for KeyRef<'_> {
    #[inline]
    fn prefix(&self) -> u64 {
        self.prefix
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        self.user_key
    }

    #[inline]
    fn trailer(&self) -> u64 {
        self.trailer
    }
}

impl<'a> Borrow<dyn KeyView + 'a> for MemKey {
    #[inline]
    fn borrow(&self) -> &(dyn KeyView + 'a) {
        self
    }
}

impl PartialEq for dyn KeyView + '_ {
    fn eq(&self, other: &Self) -> bool {
        compare(self, other).is_eq()
    }
}

impl Eq for dyn KeyView + '_ {}

impl PartialOrd for dyn KeyView + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn KeyView + '_ {
    #[inline]
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        compare(self, other)
    }
}

/// A value as its entry holds it; `None` for a tombstone.
type Stored = Option<Arc<[u8]>>;

/// A memtable.
pub struct Memtable {
    entries: SkipList<MemKey, Stored>,
    filter: MemtableFilter,
    count: AtomicUsize,
    bytes: AtomicUsize,
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memtable {{ entries: {}, bytes: {} }}", self.entries(), self.bytes())
    }
}

impl Memtable {
    /// An empty memtable for a write buffer of that size; `filter`: whether to have a filter.
    pub fn new(write_buffer_bytes: usize, filter: bool) -> Self {
        let filter_bytes = if filter { write_buffer_bytes / FILTER_SHARE } else { 0 };
        let filter = MemtableFilter::new(filter_bytes);
        let bytes = AtomicUsize::new(filter.bytes());
        let entries = SkipList::new(epoch::default_collector().clone());
        Memtable { entries, filter, count: AtomicUsize::new(0), bytes }
    }

    /// Inserts the entries of `batch`, numbered from its sequence. One caller at a time, which
    /// publishes the sequence afterwards.
    pub fn apply(&self, batch: &DecodedBatch<'_>) {
        let guard = &epoch::pin();
        let (mut count, mut bytes) = (0, 0);
        for entry in batch.iter() {
            self.filter.add(xxph3_64(entry.key));
            let sequence = batch.sequence + count as u64;
            let key = MemKey::new(entry.key, sequence << 8 | entry.kind as u64);
            let value = (entry.kind == ValueKind::Put).then(|| Arc::from(entry.value));
            self.entries.insert(key, value, guard).release(guard);
            count += 1;
            bytes += entry.key.len() + entry.value.len() + ENTRY_BYTES;
        }
        self.count.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The newest version of the key that the lookup's sequence can see.
    pub fn get(&self, key: &LookupKey) -> Lookup {
        let guard = &epoch::pin();
        let sought = KeyRef::new(key.user_key(), key.trailer());
        let bound: Bound<&dyn KeyView> = Bound::Included(&sought);
        match self.entries.lower_bound(bound, guard) {
            Some(entry) if entry.key().user_key() == sought.user_key => match entry.value() {
                Some(value) => Lookup::Found(Value::from_arc(value)),
                None => Lookup::Deleted,
            },
            _ => Lookup::Absent,
        }
    }

    /// False if no version of the key is here at any published sequence; true is a "maybe".
    #[inline]
    pub fn may_contain(&self, hash: &KeyHash<'_>) -> bool {
        self.filter.may_contain(hash.xxph3())
    }

    /// Asks the processor for the memory that [`may_contain`](Self::may_contain) will read.
    #[inline]
    pub fn prefetch(&self, hash: &KeyHash<'_>) {
        self.filter.prefetch(hash.xxph3());
    }

    /// Bytes of keys and values, the same for each entry, and the filter.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Entries: every version counts.
    pub fn entries(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// True before the first write.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// A walk over all entries, which keeps the memtable alive. Entries that are inserted
    /// meanwhile may come or not; those published before the seek do.
    pub fn iter(self: &Arc<Self>, direction: Direction) -> MemtableIter {
        MemtableIter {
            memtable: Arc::clone(self),
            direction,
            keys: Vec::new(),
            chunk: Vec::new(),
            at: 0,
            limit: CHUNK_ENTRIES_FIRST,
        }
    }
}

/// An entry of the chunk: where its internal key ends in `keys`, and its value.
struct Copied {
    key_end: usize,
    value: Stored,
}

/// Walks a memtable by chunks of entries, copied under one guard each: the keys into one buffer,
/// the values shared.
pub struct MemtableIter {
    memtable: Arc<Memtable>,
    direction: Direction,
    keys: Vec<u8>,
    chunk: Vec<Copied>,
    at: usize,
    /// Entries that the chunk may have; if it has fewer, nothing is behind it.
    limit: usize,
}

impl MemtableIter {
    /// Copies the chunk whose first entry the list has at `bound`, in the walk's direction.
    fn fill(&mut self, bound: Bound<&dyn KeyView>) {
        self.keys.clear();
        self.chunk.clear();
        self.at = 0;
        let guard = &epoch::pin();
        let entries = &self.memtable.entries;
        let mut next = match self.direction {
            Direction::Forward => entries.lower_bound(bound, guard),
            Direction::Reverse => entries.upper_bound(bound, guard),
        };
        while let Some(entry) = next {
            put_key_with_trailer(&mut self.keys, entry.key().user_key(), entry.key().trailer());
            self.chunk.push(Copied { key_end: self.keys.len(), value: entry.value().clone() });
            if self.chunk.len() == self.limit {
                return;
            }
            next = match self.direction {
                Direction::Forward => Entry::next(&entry),
                Direction::Reverse => Entry::prev(&entry),
            };
        }
    }

    /// Copies the chunk behind this one, which was full: more may follow its last entry.
    fn refill(&mut self) {
        self.at -= 1;
        let last = self.key().to_vec();
        self.limit = CHUNK_ENTRIES_MAX.min(2 * self.limit);
        self.fill(Bound::Excluded(&KeyRef::of_internal(&last)));
    }

    fn stored(&self) -> Option<&Arc<[u8]>> {
        self.chunk.get(self.at)?.value.as_ref()
    }
}

impl InternalIterator for MemtableIter {
    fn seek(&mut self, bound: Option<&[u8]>) {
        self.limit = CHUNK_ENTRIES_FIRST;
        let sought = bound.map(KeyRef::of_internal);
        self.fill(match (&sought, self.direction) {
            (None, _) => Bound::Unbounded,
            (Some(sought), Direction::Forward) => Bound::Included(sought),
            (Some(sought), Direction::Reverse) => Bound::Excluded(sought),
        });
    }

    #[inline]
    fn next(&mut self) -> bool {
        self.at += 1;
        if self.at == self.chunk.len() && self.at == self.limit {
            self.refill();
        }
        self.valid()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at < self.chunk.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        let start = if self.at == 0 { 0 } else { self.chunk[self.at - 1].key_end };
        &self.keys[start..self.chunk[self.at].key_end]
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.stored().map_or(&[], |value| value)
    }

    fn value_owned(&self) -> Value {
        self.stored().map_or_else(|| Value::from(&[][..]), Value::from_arc)
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{SEQUENCE_MAX, compare_internal, put_internal_key, user_key};
    use crate::sync::AtomicU64;
    use crate::write_batch::WriteBatch;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// What the batches hold, one after the other.
    type Writes = Vec<Vec<(Vec<u8>, Option<Vec<u8>>)>>;

    /// Internal key and value, newest version first within a user key.
    type Model = Vec<(Vec<u8>, Stored)>;

    fn apply(memtable: &Memtable, sequence: u64, batch: &WriteBatch) {
        let entries = DecodedBatch::trusted(sequence, batch.len() as u32, batch.entries());
        memtable.apply(&entries);
    }

    fn put(memtable: &Memtable, sequence: u64, key: &[u8], value: &[u8]) {
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        apply(memtable, sequence, &batch);
    }

    /// Keys that tie in the prefix, in zero padding, and on both sides of the inline size.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(0..2u8, 0..12),
            proptest::collection::vec(0..2u8, 0..3).prop_map(|tail| [&[7; 21][..], &tail].concat()),
        ]
    }

    fn writes() -> impl Strategy<Value = Writes> {
        let value = proptest::option::weighted(0.7, proptest::collection::vec(any::<u8>(), 0..40));
        proptest::collection::vec(proptest::collection::vec((key(), value), 1..5), 0..40)
    }

    /// Applies `writes` from sequence 1 on; returns the model and the last sequence.
    fn build(memtable: &Memtable, writes: &Writes) -> (Model, u64) {
        let (mut model, mut sequence) = (Model::new(), 0);
        for entries in writes {
            let mut batch = WriteBatch::new();
            let first = sequence + 1;
            for (key, value) in entries {
                let kind = match value {
                    Some(value) => (batch.put(key, value), ValueKind::Put).1,
                    None => (batch.delete(key), ValueKind::Tombstone).1,
                };
                sequence += 1;
                let mut internal = Vec::new();
                put_internal_key(&mut internal, key, sequence, kind);
                model.push((internal, value.as_deref().map(Arc::from)));
            }
            apply(memtable, first, &batch);
        }
        model.sort_by(|a, b| compare_internal(&a.0, &b.0));
        (model, sequence)
    }

    fn collect(iter: &mut MemtableIter, bound: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
        iter.seek(bound);
        let mut entries = Vec::new();
        while iter.valid() {
            assert_eq!(iter.value_owned(), *iter.value());
            entries.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next();
        }
        assert!(iter.status().is_ok());
        entries
    }

    proptest! {
        #[test]
        fn every_key_at_every_sequence(
            writes in writes(),
            others in proptest::collection::vec(key(), 5),
        ) {
            let memtable = Memtable::new(64 << 10, true);
            prop_assert!(memtable.is_empty());
            let (model, last) = build(&memtable, &writes);
            prop_assert_eq!(memtable.entries(), model.len());
            let mut keys: BTreeSet<&[u8]> = model.iter().map(|(k, _)| user_key(k)).collect();
            let sequences = |key| (0..=last + 1).map(move |sequence| (key, sequence));
            for (key, sequence) in keys.iter().flat_map(sequences) {
                let lookup = LookupKey::new(key, sequence);
                let at = model.partition_point(|(k, _)| {
                    compare_internal(k, lookup.internal_key()).is_lt()
                });
                let expected = match model.get(at).filter(|(k, _)| user_key(k) == *key) {
                    Some((_, Some(value))) => Lookup::Found(Value::from(&value[..])),
                    Some((_, None)) => Lookup::Deleted,
                    None => Lookup::Absent,
                };
                prop_assert_eq!(memtable.get(&lookup), expected);
                prop_assert!(memtable.may_contain(&KeyHash::new(key)));
            }
            keys.extend(others.iter().map(|key| &key[..]));
            for key in keys {
                let held = model.iter().any(|(k, _)| user_key(k) == key);
                let found = memtable.get(&LookupKey::new(key, SEQUENCE_MAX));
                prop_assert_eq!(found != Lookup::Absent, held);
            }
        }

        #[test]
        fn walks_meet_their_bounds_both_ways(writes in writes(), bounds: Vec<(u8, u8)>, far in key()) {
            let memtable = Arc::new(Memtable::new(64 << 10, true));
            let (model, last) = build(&memtable, &writes);
            let mut sought = vec![None, Some(LookupKey::new(&far, 3).internal_key().to_vec())];
            for (n, sequence) in bounds.into_iter().take(6) {
                let Some((near, _)) = model.get(usize::from(n) % model.len().max(1)) else { break };
                sought.push(Some(near.clone()));
                let mut bound = Vec::new();
                let sequence = u64::from(sequence) % (last + 2);
                put_internal_key(&mut bound, user_key(near), sequence, ValueKind::Put);
                sought.push(Some(bound));
                let mut end = Vec::new();
                put_key_with_trailer(&mut end, user_key(near), 0);
                sought.push(Some(end));
            }
            let mut forward = memtable.iter(Direction::Forward);
            let mut reverse = memtable.iter(Direction::Reverse);
            prop_assert!(!forward.valid() && !reverse.valid());
            let all: Vec<(Vec<u8>, Vec<u8>)> = model
                .iter()
                .map(|(k, v)| (k.clone(), v.as_deref().unwrap_or_default().to_vec()))
                .collect();
            for bound in &sought {
                let bound = bound.as_deref();
                let behind = |k: &[u8]| bound.is_none_or(|b| compare_internal(k, b).is_ge());
                let upward: Vec<_> = all.iter().filter(|(k, _)| behind(k)).cloned().collect();
                prop_assert_eq!(collect(&mut forward, bound), upward);
                let before = |k: &[u8]| bound.is_none() || !behind(k);
                let downward: Vec<_> =
                    all.iter().rev().filter(|(k, _)| before(k)).cloned().collect();
                prop_assert_eq!(collect(&mut reverse, bound), downward);
            }
        }

        #[test]
        fn the_order_is_that_of_internal_keys(a in key(), b in key(), s in 1..4u64, t in 1..4u64) {
            let (a_bytes, b_bytes) = (LookupKey::new(&a, s), LookupKey::new(&b, t));
            let expected = compare_internal(a_bytes.internal_key(), b_bytes.internal_key());
            let mem = |key: &LookupKey| MemKey::new(key.user_key(), key.trailer());
            prop_assert_eq!(mem(&a_bytes).cmp(&mem(&b_bytes)), expected);
            let (a, b) = (mem(&a_bytes), KeyRef::of_internal(b_bytes.internal_key()));
            let (a, b): (&dyn KeyView, &dyn KeyView) = (&a, &b);
            prop_assert_eq!(a.cmp(b), expected);
        }
    }

    #[test]
    fn a_value_outlives_its_memtable_and_shares_only_itself() {
        let memtable = Arc::new(Memtable::new(1 << 20, true));
        put(&memtable, 1, b"large", &[5; 1000]);
        let mut iter = memtable.iter(Direction::Forward);
        iter.seek(None);
        let weak = Arc::downgrade(&memtable);
        let Lookup::Found(value) = memtable.get(&LookupKey::new(b"large", 1)) else {
            panic!("was put")
        };
        drop(memtable);
        assert_eq!(iter.value(), &[5; 1000]);
        drop(iter);
        assert!(weak.upgrade().is_none());
        assert_eq!(value, [5; 1000][..]);
    }

    #[test]
    fn size_counts_keys_values_and_the_filter() {
        let memtable = Memtable::new(64 << 10, true);
        assert_eq!(memtable.bytes(), 1 << 10);
        put(&memtable, 1, b"12345", b"123");
        assert_eq!(memtable.bytes(), (1 << 10) + 5 + 3 + ENTRY_BYTES);
        let without = Memtable::new(64 << 10, false);
        put(&without, 1, b"k", b"");
        assert_eq!(without.bytes(), 1 + ENTRY_BYTES);
        assert!(without.may_contain(&KeyHash::new(b"absent")));
    }

    #[test]
    fn a_full_memtable_has_a_useful_filter() {
        let memtable = Memtable::new(4 << 20, true);
        let mut sequence = 0;
        while memtable.bytes() < 4 << 20 {
            sequence += 1;
            put(&memtable, sequence, format!("key {sequence:012}").as_bytes(), &[0; 84]);
        }
        let may = |n: u64| memtable.may_contain(&KeyHash::new(format!("key {n:012}").as_bytes()));
        assert!((1..=sequence).all(may));
        let absent = 100_000;
        let positives = (1..=absent).filter(|n| may(sequence + n)).count();
        assert!(positives * 50 < absent as usize, "{positives} of {absent} absent keys");
    }

    /// One writer publishes as the engine does; readers find all that was published, by lookup
    /// and by both walks, and no version above it by lookup.
    #[test]
    fn readers_see_every_published_key_while_one_writes() {
        const LAST: u64 = 3_000;
        let key = |sequence: u64| {
            // Scattered over the list, each key written four times.
            let mixed = (sequence / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{mixed:016x}").into_bytes()
        };
        let memtable = Arc::new(Memtable::new(1 << 20, true));
        let published = AtomicU64::new(0);
        let read = |seed: u64| {
            let mut state = seed;
            let mut walked = 0;
            while walked < LAST {
                let visible = published.load(Ordering::Acquire);
                for _ in 0..50 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let sequence = 1 + (state >> 33) % LAST;
                    let key = key(sequence);
                    let newest = (sequence / 4 * 4 + 3).min(visible);
                    let found = memtable.get(&LookupKey::new(&key, visible));
                    if sequence <= visible {
                        assert!(memtable.may_contain(&KeyHash::new(&key)));
                        assert_eq!(found, Lookup::Found(Value::from(&newest.to_le_bytes()[..])));
                    } else if sequence / 4 * 4 > visible {
                        assert_eq!(found, Lookup::Absent);
                    }
                }
                for direction in [Direction::Forward, Direction::Reverse] {
                    let entries = collect(&mut memtable.iter(direction), None);
                    let sorted = entries.is_sorted_by(|a, b| {
                        let order = compare_internal(&a.0, &b.0);
                        if direction == Direction::Forward { order.is_lt() } else { order.is_gt() }
                    });
                    assert!(sorted);
                    let sequence = |e: &(Vec<u8>, Vec<u8>)| {
                        split_internal_key(&e.0).map_or(0, |(_, trailer)| trailer >> 8)
                    };
                    walked = entries.iter().filter(|e| sequence(e) <= visible).count() as u64;
                    assert_eq!(walked, visible);
                }
            }
        };
        std::thread::scope(|scope| {
            let readers = [scope.spawn(|| read(1)), scope.spawn(|| read(2))];
            for sequence in 1..=LAST {
                put(&memtable, sequence, &key(sequence), &sequence.to_le_bytes());
                published.store(sequence, Ordering::Release);
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }
}
