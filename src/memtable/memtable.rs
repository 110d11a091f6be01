//! The newest writes, sorted in memory: a few skip lists, filled one after the other, and a small
//! filter over them all.
//!
//! `write/commit.rs` applies batches, one writer at a time, in ascending order of their sequences;
//! any number of threads read meanwhile. A writer sets a key's filter bits, inserts the entry, and
//! only then publishes the sequence (`memtable/published.rs`). A reader loads the published
//! sequence before it asks the filter, so everything at or below that sequence is visible to it,
//! and relaxed loads and stores suffice for all else: filter bits, counts, and how many segments
//! are used. [`Memtable::get`] does not ask the filter; its caller does, to count it.
//!
//! Of two versions of a key, the newer is in the same segment or in a later one: a lookup goes from
//! the last segment back and ends at the first that has the key. Where there are several, each has
//! a filter of its own, so that only one list is searched; a walk goes over each by itself.
//!
//! Dropping a memtable takes time in proportion to its entries and belongs in the background.
//! There are no range tombstones yet; the decoder of batches refuses their kind.

use crate::base::error::Result;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{Lookup, LookupKey, ValueKind};
use crate::base::sync::{Arc, AtomicUsize, Ordering};
use crate::base::value::Value;
use crate::base::write_batch::DecodedBatch;
use crate::filter::hash::KeyHash;
use crate::memtable::bloom::MemtableFilter;
use crate::memtable::segment::{Copies, Segment};
use std::fmt;
use std::ops::Bound;

/// What an entry costs beside its key and value: node, tower, its share of the allocator.
const ENTRY_BYTES: usize = 96;

/// One byte of filter for as many of write buffer; of a segment's own filter, for as many of it.
const FILTER_SHARE: usize = 64;

/// Most segments. Each makes puts faster, by less than the one before, and the start of a scan
/// slower by one search of a list, as long as the memtable is full.
const SEGMENTS_MAX: usize = 4;

/// Segments are not smaller than this: the processor's caches hold it.
const SEGMENT_BYTES_MIN: usize = 2 << 20;

/// Most entries that an iterator copies at a time.
const CHUNK_ENTRIES_MAX: usize = 32;

/// Entries of the first chunk after a seek; each further one doubles.
const CHUNK_ENTRIES_FIRST: usize = 4;

/// A memtable.
pub struct Memtable {
    /// Filled in order. One of them without a filter, since only with one are several searched in
    /// the time of one.
    segments: Box<[Segment]>,
    /// How many of them take or took writes.
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
    /// An empty memtable for a write buffer of that size; `filter`: whether to have a filter.
    pub fn new(write_buffer_bytes: usize, filter: bool) -> Self {
        let segments = match filter {
            true => (write_buffer_bytes / SEGMENT_BYTES_MIN).clamp(1, SEGMENTS_MAX),
            false => 1,
        };
        Memtable::with_segments(write_buffer_bytes, filter, segments)
    }

    /// The same with that many segments.
    pub fn with_segments(write_buffer_bytes: usize, filter: bool, segments: usize) -> Self {
        let segment_bytes = write_buffer_bytes / segments;
        let share = |bytes: usize, wanted| if wanted { bytes / FILTER_SHARE } else { 0 };
        let filter = MemtableFilter::new(share(write_buffer_bytes, filter));
        let segment = || Segment::new(share(segment_bytes, segments > 1));
        let segments: Box<[Segment]> = std::iter::repeat_with(segment).take(segments).collect();
        let filter_bytes = segments.iter().map(Segment::filter_bytes).sum::<usize>();
        Memtable {
            bytes: AtomicUsize::new(filter.bytes() + filter_bytes),
            segments,
            used: AtomicUsize::new(1),
            segment_bytes,
            filter,
            count: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
        }
    }

    /// What `batch` adds to [`bytes`](Self::bytes), or a few bytes more.
    pub fn bytes_of(batch: &DecodedBatch<'_>) -> u64 {
        batch.entry_bytes() as u64 + u64::from(batch.count) * ENTRY_BYTES as u64
    }

    /// Inserts the entries of `batch`, numbered from its sequence. One caller at a time, which
    /// publishes the sequence afterwards.
    pub fn apply(&self, batch: &DecodedBatch<'_>) {
        let (mut count, mut tombstones, mut bytes) = (0, 0, 0);
        self.open_segment().apply(batch, |hash, entry| {
            self.filter.add(hash);
            count += 1;
            tombstones += usize::from(entry.kind == ValueKind::Tombstone);
            bytes += entry.key.len() + entry.value.len() + ENTRY_BYTES;
        });
        self.count.fetch_add(count, Ordering::Relaxed);
        self.tombstones.fetch_add(tombstones, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The segment that takes the next batch. A batch stands in one: its writer may read none of
    /// it before all of it is published.
    fn open_segment(&self) -> &Segment {
        let (used, bytes) = (self.used.load(Ordering::Relaxed), self.bytes());
        if bytes >= used * self.segment_bytes && used < self.segments.len() {
            self.used.store(used + 1, Ordering::Relaxed);
            return &self.segments[used];
        }
        &self.segments[used - 1]
    }

    /// Those that may have entries, newest first.
    fn filled(&self) -> impl Iterator<Item = &Segment> {
        self.segments[..self.used.load(Ordering::Relaxed)].iter().rev()
    }

    /// The newest version of the key that the lookup's sequence can see. `hash` is the key's, or
    /// `None` to ask no filter.
    pub fn get(&self, key: &LookupKey, hash: Option<&KeyHash<'_>>) -> Lookup {
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

    /// Bytes of keys and values, the same for each entry, and the filters.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Entries: every version counts.
    pub fn entries(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Those of the entries that delete their key.
    pub fn tombstones(&self) -> usize {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// True before the first write.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Walks that have all entries together, one over each segment, newest first, each of which
    /// keeps the memtable alive. Entries that are inserted meanwhile may come or not; those
    /// published before this call do.
    pub fn walks(self: &Arc<Self>, direction: Direction) -> impl Iterator<Item = MemtableIter> {
        let segments = (0..self.used.load(Ordering::Relaxed)).rev();
        segments.map(move |segment| MemtableIter {
            memtable: Arc::clone(self),
            segment,
            direction,
            copies: Copies::default(),
            at: 0,
            limit: CHUNK_ENTRIES_FIRST,
        })
    }
}

/// Walks a segment by chunks of entries, copied under one guard each.
pub struct MemtableIter {
    memtable: Arc<Memtable>,
    segment: usize,
    direction: Direction,
    copies: Copies,
    at: usize,
    /// Entries that `copies` may have; if it has fewer, nothing is behind it.
    limit: usize,
}

impl MemtableIter {
    fn fill(&mut self, bound: Bound<&[u8]>) {
        self.at = 0;
        let segment = &self.memtable.segments[self.segment];
        segment.copy(self.direction, bound, self.limit, &mut self.copies);
    }

    /// Copies the entries behind these, which are as many as they might be: more may follow.
    fn refill(&mut self) {
        let last = self.copies.key(self.at - 1).to_vec();
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
        self.at += 1;
        if self.at == self.copies.len() && self.at == self.limit {
            self.refill();
        }
        self.valid()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at < self.copies.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.copies.key(self.at)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.copies.value(self.at)
    }

    fn value_owned(&self) -> Value {
        self.copies.value_owned(self.at)
    }

    fn status(&self) -> Result<()> {
        Ok(())
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
    use crate::base::sync::AtomicU64;
    use crate::base::write_batch::WriteBatch;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
        MergingIter::new(direction, memtable.walks(direction).collect())
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
    fn size_counts_keys_values_and_the_filter() {
        let memtable = Memtable::new(64 << 10, true);
        assert_eq!(memtable.bytes(), 1 << 10);
        put(&memtable, 1, b"12345", b"123");
        assert_eq!(memtable.bytes(), (1 << 10) + 5 + 3 + ENTRY_BYTES);
        let segmented = Memtable::with_segments(64 << 10, true, 4);
        assert_eq!(segmented.bytes(), 2 << 10);
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
}
