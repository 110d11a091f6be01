//! The newest writes, sorted in memory: skip lists of internal keys, and a filter over them all.
//!
//! `write/commit.rs` applies batches, one writer at a time, in ascending order of their sequences;
//! any number of threads read at the same time. A writer sets a key's filter bits, inserts the
//! entry, and only then publishes the sequence ([`Published`]). A reader loads the published
//! sequence before it asks the filter, so it sees everything up to that sequence. Relaxed loads and
//! stores suffice for the rest: filter bits, counts, and the number of segments in use.
//! [`Memtable::get`] does not ask the filter of the whole memtable; its caller does, to count it.
//!
//! A [`Segment`] is one skip list. A list that fits in the processor's caches takes an entry in
//! half the time of one of 64 MiB, so a large memtable has several and fills one after the other.
//! The newer of two versions of a key is in the same segment or in a later one: a lookup goes from
//! the last segment back and ends at the first that has the key. Each segment but the first has a
//! filter of its own, so only one list is searched. An iterator reads one segment.
//!
//! The filters start small and grow with the memtable, see `memtable/bloom.rs`.
//!
//! Dropping a memtable takes time in proportion to its entries and belongs in the background.

use crate::base::error::Result;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{Lookup, LookupKey, SequenceNumber};
use crate::base::sync::{Arc, AtomicU64, AtomicUsize, Ordering};
use crate::base::value::Value;
use crate::base::write_batch::{BatchEntry, DecodedBatch, WriteKind};
use crate::filter::hash::KeyHash;
use crate::memtable::bloom::MemtableFilter;
use crate::memtable::segment::{Copies, Segment};
use crossbeam_epoch as epoch;
use std::fmt;
use std::ops::Bound;

/// What an entry costs besides its key and value: node, tower, its share of the allocator.
const ENTRY_BYTES: usize = 96;

/// Bytes of write buffer for one byte of the full memtable's filter.
const FILTER_SHARE: usize = 64;

/// Bytes of a segment for one byte of its own filter. Only keys that passed the memtable's filter
/// are asked of it.
const SEGMENT_FILTER_SHARE: usize = 128;

/// All filters take at most one byte of this many, or 1 KiB.
const FILTERS_SHARE_MAX: u64 = 16;

/// Most segments. Each further one makes puts faster by less, and the start of a scan slower by one
/// search.
const SEGMENTS_MAX: usize = 4;

/// Segments are at least this large: the processor's caches hold it.
const SEGMENT_BYTES_MIN: usize = 2 << 20;

/// Most entries that an iterator copies at a time.
const CHUNK_ENTRIES_MAX: usize = 32;

/// Entries of the first chunk after a seek; each further one doubles.
const CHUNK_ENTRIES_FIRST: usize = 4;

/// A memtable.
pub(crate) struct Memtable {
    /// Filled in order. Without filters there is one segment: only filters make searching several
    /// as cheap as searching one.
    segments: Box<[Segment]>,
    /// Segments in use: all but the last of them are full.
    used: AtomicUsize,
    segment_bytes: usize,
    filter: MemtableFilter,
    count: AtomicUsize,
    tombstones: AtomicUsize,
    bytes: AtomicUsize,
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memtable {{ entries: {}, bytes: {} }}", self.entries(), self.bytes())
    }
}

impl Memtable {
    /// An empty memtable for a write buffer of that size, with or without a filter.
    pub(crate) fn new(write_buffer_bytes: usize, filter: bool) -> Self {
        let segments = match filter {
            true => (write_buffer_bytes / SEGMENT_BYTES_MIN).clamp(1, SEGMENTS_MAX),
            false => 1,
        };
        Memtable::with_segments(write_buffer_bytes, filter, segments)
    }

    /// The same with that many segments.
    pub(crate) fn with_segments(write_buffer_bytes: usize, filter: bool, segments: usize) -> Self {
        let segment_bytes = write_buffer_bytes / segments;
        let share = |bytes: usize, wanted| if filter && wanted { bytes } else { 0 };
        // The first segment needs none: a lookup searches it last, when no other has the key.
        let segment_filter = |n| share(segment_bytes / SEGMENT_FILTER_SHARE, n > 0);
        Memtable {
            segments: (0..segments).map(|n| Segment::new(segment_filter(n))).collect(),
            used: AtomicUsize::new(1),
            segment_bytes,
            filter: MemtableFilter::new(share(write_buffer_bytes / FILTER_SHARE, true)),
            count: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// What `batch` adds to [`bytes`](Self::bytes), with the largest share that filters can take:
    /// an estimate that is rather too high.
    pub(crate) fn bytes_of(batch: &DecodedBatch<'_>) -> u64 {
        let bytes = batch.entry_bytes() as u64 + u64::from(batch.count) * ENTRY_BYTES as u64;
        bytes + bytes / FILTERS_SHARE_MAX
    }

    /// Inserts the entries of `batch`, numbered from its sequence: see [`insert`](Self::insert).
    pub(crate) fn apply(&self, batch: &DecodedBatch<'_>) {
        self.insert(batch.sequence, batch.iter());
    }

    /// Inserts `entries`, numbered from `first`. One caller at a time, which publishes their
    /// sequences afterwards.
    pub(crate) fn insert<'b>(
        &self,
        first: SequenceNumber,
        entries: impl Iterator<Item = BatchEntry<'b>> + Clone,
    ) {
        let (mut count, mut tombstones, mut bytes) = (0, 0, self.bytes());
        let segment = self.open_segment();
        bytes += segment.allocate_filter();
        let mut grows_above = self.filter.grows_above();
        segment.insert(first, entries, |hash, entry| {
            count += 1;
            tombstones += usize::from(entry.kind == WriteKind::Delete);
            bytes += entry.key.len() + entry.value.len() + ENTRY_BYTES;
            if bytes > grows_above {
                let guard = &epoch::pin();
                let hashes = self.filled().flat_map(|segment| segment.hashes(guard));
                bytes += self.filter.grow(bytes, hashes);
                grows_above = self.filter.grows_above();
            }
            self.filter.add(hash);
        });
        self.count.fetch_add(count, Ordering::Relaxed);
        self.tombstones.fetch_add(tombstones, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The segment for the next entries. The entries of one call go into one segment, even if they
    /// exceed it.
    fn open_segment(&self) -> &Segment {
        let (used, bytes) = (self.used.load(Ordering::Relaxed), self.bytes());
        if bytes >= used * self.segment_bytes && used < self.segments.len() {
            // Relaxed suffices: a reader needs the new segment only for a sequence in it, and that
            // is published with Release after this store.
            self.used.store(used + 1, Ordering::Relaxed);
            return &self.segments[used];
        }
        &self.segments[used - 1]
    }

    /// The segments in use, newest first.
    fn filled(&self) -> impl Iterator<Item = &Segment> {
        self.segments[..self.used.load(Ordering::Relaxed)].iter().rev()
    }

    /// The newest version of the key that the lookup's sequence can see. With `hash`, the filters
    /// of segments are asked.
    pub(crate) fn get(&self, key: &LookupKey, hash: Option<&KeyHash<'_>>) -> Lookup {
        // From the newest segment back: the first one with a visible version has the newest.
        // Versions above the lookup's sequence do not count, so the search may end in an older
        // segment.
        for segment in self.filled() {
            if hash.is_some_and(|hash| !segment.may_contain(hash.xxph3())) {
                continue;
            }
            let found = segment.get(key);
            if found != Lookup::Absent {
                return found;
            }
        }
        Lookup::Absent
    }

    /// False if the memtable has no version of the key at any published sequence; true is "maybe".
    #[inline]
    pub(crate) fn may_contain(&self, hash: &KeyHash<'_>) -> bool {
        self.filter.may_contain(hash.xxph3())
    }

    /// Prefetches the memory that [`may_contain`](Self::may_contain) reads.
    #[inline]
    pub(crate) fn prefetch(&self, hash: &KeyHash<'_>) {
        self.filter.prefetch(hash.xxph3());
    }

    /// Bytes of keys and values, a constant for each entry, and what the filters have allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Entries: every version counts.
    pub(crate) fn entries(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Entries that delete their key.
    pub(crate) fn tombstones(&self) -> usize {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// True before the first write.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// One iterator per segment, newest first, that have all entries together. Each keeps the
    /// memtable alive. They return every entry published before this call; they may return entries
    /// inserted later.
    pub(crate) fn iterators(
        self: &Arc<Self>,
        direction: Direction,
    ) -> impl Iterator<Item = MemtableIter> {
        let segments = (0..self.used.load(Ordering::Relaxed)).rev();
        segments.map(move |segment| MemtableIter {
            memtable: Arc::clone(self),
            segment,
            direction,
            copies: Copies::default(),
            position: 0,
            limit: CHUNK_ENTRIES_FIRST,
        })
    }
}

/// Iterates over a segment in chunks of entries.
// No entry outlives its epoch guard, and an iterator may live long: so each chunk is copied under
// one guard.
pub(crate) struct MemtableIter {
    memtable: Arc<Memtable>,
    segment: usize,
    direction: Direction,
    copies: Copies,
    position: usize,
    /// Entries that `copies` was asked to have. If it has fewer, the segment ends there.
    limit: usize,
}

impl MemtableIter {
    fn fill(&mut self, bound: Bound<&[u8]>) {
        self.position = 0;
        let segment = &self.memtable.segments[self.segment];
        segment.copy(self.direction, bound, self.limit, &mut self.copies);
    }

    /// Copies the next chunk, which is twice as long.
    fn refill(&mut self) {
        // Copied, because `fill` overwrites the chunk that has it. The list is searched again from
        // there: no position in it outlives the epoch guard.
        let last = self.copies.key(self.position - 1).to_vec();
        self.limit = CHUNK_ENTRIES_MAX.min(2 * self.limit);
        self.fill(Bound::Excluded(&last));
    }
}

impl InternalIterator for MemtableIter {
    fn seek(&mut self, bound: Option<&[u8]>) {
        self.limit = CHUNK_ENTRIES_FIRST;
        self.fill(match (bound, self.direction) {
            (None, _) => Bound::Unbounded,
            (Some(sought), Direction::Forward) => Bound::Included(sought),
            (Some(sought), Direction::Reverse) => Bound::Excluded(sought),
        });
    }

    #[inline]
    fn next(&mut self) -> bool {
        self.position += 1;
        // A chunk that is shorter than its limit reached the end of the segment.
        if self.position == self.copies.len() && self.position == self.limit {
            self.refill();
        }
        self.valid()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.position < self.copies.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.copies.key(self.position)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.copies.value(self.position)
    }

    fn value_owned(&self) -> Value {
        self.copies.value_owned(self.position)
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}

/// The last sequence that reads may see: the one step that makes a write visible.
///
/// The leader of a write group sets filter bits and inserts entries, with relaxed stores, then
/// publishes with Release. A reader loads the published sequence with Acquire, then looks at the
/// memtable. This pair orders the two; `tests/interleavings/orderings` checks it against the memory
/// model. It has a cache line of its own, since every writer stores to it and every reader loads
/// it.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Published(AtomicU64);

impl Published {
    /// Everything up to `sequence` is visible.
    pub(crate) fn new(sequence: SequenceNumber) -> Self {
        Published(AtomicU64::new(sequence))
    }

    /// The last sequence that a read may see.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        self.0.load(Ordering::Acquire)
    }

    /// Makes everything up to `sequence` visible, after it is applied.
    pub(crate) fn publish(&self, sequence: SequenceNumber) {
        self.0.store(sequence, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::iterator::merging::MergingIter;
    use crate::base::key::{
        SEQUENCE_MAX, ValueKind, compare_internal, put_internal_key, put_key_with_trailer,
        split_internal_key, user_key,
    };
    use crate::base::write_batch::WriteBatch;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// What the batches hold, one after the other.
    type Writes = Vec<Vec<(Vec<u8>, Option<Vec<u8>>)>>;

    /// Internal key and value, newest version first within a user key.
    type Model = Vec<(Vec<u8>, Option<Vec<u8>>)>;

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
                model.push((internal, value.clone()));
            }
            apply(memtable, first, &batch);
        }
        model.sort_by(|a, b| compare_internal(&a.0, &b.0));
        (model, sequence)
    }

    fn walk(memtable: &Arc<Memtable>, direction: Direction) -> MergingIter<MemtableIter> {
        MergingIter::new(direction, memtable.iterators(direction).collect())
    }

    /// As a read does it that asks filters; one that asks none must answer the same.
    fn get(memtable: &Memtable, key: &LookupKey) -> Lookup {
        let found = memtable.get(key, Some(&KeyHash::new(key.user_key())));
        assert_eq!(memtable.get(key, None), found);
        found
    }

    fn collect(
        iter: &mut MergingIter<MemtableIter>,
        bound: Option<&[u8]>,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
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
        fn every_version_is_found_at_its_sequence(
            writes in writes(),
            others in proptest::collection::vec(key(), 5),
            segments in 1..5usize,
        ) {
            let memtable = Memtable::with_segments(8 << 10, true, segments);
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
                prop_assert_eq!(get(&memtable, &lookup), expected);
                prop_assert!(memtable.may_contain(&KeyHash::new(key)));
            }
            keys.extend(others.iter().map(|key| &key[..]));
            for key in keys {
                let held = model.iter().any(|(k, _)| user_key(k) == key);
                let found = get(&memtable, &LookupKey::new(key, SEQUENCE_MAX));
                prop_assert_eq!(found != Lookup::Absent, held);
            }
        }

        #[test]
        fn growing_filters_answer_like_none(
            sizes in proptest::collection::vec((0..60u64, 0..6_000usize), 1..120),
            segments in 1..5usize,
        ) {
            // The memtable's filter has three steps: 256 bytes, 1 KiB, 4 KiB.
            let memtable = Memtable::with_segments(256 << 10, true, segments);
            let (mut newest, mut entry_bytes, mut filter_bytes) = (BTreeMap::new(), 0, 0);
            for (at, &(n, size)) in sizes.iter().enumerate() {
                let sequence = at as u64 + 1;
                put(&memtable, sequence, &n.to_le_bytes(), &vec![n as u8; size]);
                newest.insert(n, size);
                entry_bytes += 8 + size + ENTRY_BYTES;
                let grown = memtable.bytes() - entry_bytes;
                // After each step and at the end.
                if grown == filter_bytes && at + 1 < sizes.len() {
                    continue;
                }
                filter_bytes = grown;
                for key in 0..60u64 {
                    let found = get(&memtable, &LookupKey::new(&key.to_le_bytes(), sequence));
                    let held = newest.get(&key);
                    let value = held.map(|&size| Value::from(&vec![key as u8; size][..]));
                    prop_assert_eq!(found, value.map_or(Lookup::Absent, Lookup::Found));
                    let may = memtable.may_contain(&KeyHash::new(&key.to_le_bytes()));
                    prop_assert!(may || held.is_none());
                }
            }
        }

        #[test]
        fn memtable_iterators_respect_bounds_both_ways(
            writes in writes(),
            bounds: Vec<(u8, u8)>,
            far in key(),
            segments in 1..5usize,
        ) {
            let memtable = Arc::new(Memtable::with_segments(8 << 10, true, segments));
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
            let mut forward = walk(&memtable, Direction::Forward);
            let mut reverse = walk(&memtable, Direction::Reverse);
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
    }

    #[test]
    fn values_outlive_their_memtable() {
        let memtable = Arc::new(Memtable::new(1 << 20, true));
        put(&memtable, 1, b"large", &[5; 1000]);
        let mut iter = walk(&memtable, Direction::Forward);
        iter.seek(None);
        let weak = Arc::downgrade(&memtable);
        let Lookup::Found(value) = get(&memtable, &LookupKey::new(b"large", 1)) else {
            panic!("was put")
        };
        drop(memtable);
        assert_eq!(iter.value(), &[5; 1000]);
        drop(iter);
        assert!(weak.upgrade().is_none());
        assert_eq!(value, [5; 1000][..]);
    }

    #[test]
    fn size_counts_keys_values_and_filters() {
        let memtable = Memtable::new(64 << 20, true);
        assert_eq!(memtable.bytes(), 0);
        put(&memtable, 1, b"12345", b"123");
        assert_eq!(memtable.bytes(), 256 + 5 + 3 + ENTRY_BYTES);
        let fixed = size_of::<Memtable>() + memtable.segments.len() * size_of::<Segment>();
        assert!(fixed + memtable.bytes() < 6 << 10, "{fixed} bytes without entries");
        let large = [0; 1 << 20];
        put(&memtable, 2, b"k", &large);
        assert_eq!(memtable.bytes(), (256 + (16 << 10)) + 9 + large.len() + 2 * ENTRY_BYTES);
        let without = Memtable::new(64 << 10, false);
        put(&without, 1, b"k", b"");
        assert_eq!(without.bytes(), 1 + ENTRY_BYTES);
        assert!(without.may_contain(&KeyHash::new(b"absent")));
    }

    #[test]
    fn filters_stay_within_their_share() {
        let memtable = Memtable::new(16 << 20, true);
        let (mut entry_bytes, mut sequence) = (0, 0);
        while entry_bytes < 15 << 20 {
            sequence += 1;
            put(&memtable, sequence, format!("key {sequence:012}").as_bytes(), &[0; 484]);
            entry_bytes += 500 + ENTRY_BYTES;
            let filters = memtable.bytes() - entry_bytes;
            let most = entry_bytes / FILTERS_SHARE_MAX as usize;
            assert!(filters <= most.max(1 << 10), "{filters} of filters for {entry_bytes}");
            assert!(filters >= entry_bytes / 128, "{filters} of filters for {entry_bytes}");
        }
        assert_eq!(memtable.used.load(Ordering::Relaxed), 4);
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
    fn concurrent_readers_see_every_published_key() {
        const LAST: u64 = 3_000;
        let key = |sequence: u64| {
            // Scattered over the list, each key written four times.
            let mixed = (sequence / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{mixed:016x}").into_bytes()
        };
        // About 350 KB of entries: in all segments, and beyond the last one's share.
        let memtable = Arc::new(Memtable::with_segments(256 << 10, true, 4));
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
                    let found = get(&memtable, &LookupKey::new(&key, visible));
                    if sequence <= visible {
                        assert!(memtable.may_contain(&KeyHash::new(&key)));
                        assert_eq!(found, Lookup::Found(Value::from(&newest.to_le_bytes()[..])));
                    } else if sequence / 4 * 4 > visible {
                        assert_eq!(found, Lookup::Absent);
                    }
                }
                for direction in [Direction::Forward, Direction::Reverse] {
                    let entries = collect(&mut walk(&memtable, direction), None);
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

    #[test]
    fn runs_of_a_batch_insert_like_the_whole() {
        let mut batch = WriteBatch::new();
        (0..20u8).for_each(|n| _ = batch.put([n % 7], [n]).delete([n % 5, 1]));
        let entries = DecodedBatch::trusted(1, 40, batch.entries());
        let (whole, runs) = (Memtable::new(64 << 10, true), Memtable::new(64 << 10, true));
        whole.apply(&entries);
        for (start, count) in [(0, 1), (1, 0), (1, 9), (10, 30)] {
            runs.insert(1 + start as u64, entries.iter().skip(start).take(count));
        }
        let all = |memtable| collect(&mut walk(&Arc::new(memtable), Direction::Forward), None);
        assert_eq!((whole.entries(), whole.tombstones()), (runs.entries(), runs.tombstones()));
        assert_eq!(all(runs), all(whole));
    }
}
