//! The newest writes, sorted in memory: segments of entries, a filter over all keys, and the range
//! deletes.
//!
//! `write/commit.rs` applies batches, one writer at a time, in ascending order of their sequences;
//! any number of threads read at the same time. A writer sets a key's filter bits, inserts the
//! entry, and only then publishes the sequence ([`Published`]). A reader loads the published
//! sequence before it asks the filter, so it sees everything up to that sequence. Relaxed loads and
//! stores suffice for the rest: filter bits, counts, and the number of segments in use.
//! [`Memtable::get`] does not ask the filter of the whole memtable; its caller does, to count it.
//!
//! A [`Segment`] is one sorted list. The writer's place in a short one is in the processor's caches
//! more often, so a large memtable has several segments and fills one after the other.
//! The newer of two versions of a key is in the same segment or in a later one: a lookup goes from
//! the last segment back and ends at the first that has the key. Each segment but the first has a
//! filter of its own, so only one list is searched. An iterator reads one segment.
//!
//! A range delete hides the older entries of its range, here and in everything older. A lookup asks
//! for the *covering* sequence first, and passes it to the search as the floor: entries at or below
//! it are deleted. So the "no" of a filter never hides a range delete. A range delete begins a
//! segment, unless the open one has few entries: then whole segments are older than it, and a scan
//! jumps over its range in them.
//!
//! The filters start small and grow with the memtable, see `memtable/bloom.rs`.
//!
//! Dropping a memtable gives many pages back to the system, so it belongs in the background.

use crate::base::batch_format::{BatchEntry, DecodedBatch, WriteKind};
use crate::base::error::Result;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::newer::newer_within;
use crate::base::key::{Lookup, LookupKey, SequenceNumber};
use crate::base::range::KeyBounds;
use crate::base::range_deletes::RangeDelete;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, OnceLock, Ordering};
use crate::base::value::{COPY_BYTES, Value};
use crate::memtable::arena::Arena;
use crate::memtable::bloom::MemtableFilter;
use crate::memtable::node_key::KeyRef;
use crate::memtable::range_deletes::MemtableRangeDeletes;
use crate::memtable::segment::{Copies, Segment};
use crossbeam_epoch as epoch;
use siftdb_filter::hash::{KeyHash, xxph3_64};
use std::fmt;

/// The memory of an entry besides its key and value: header, padding, its share of a leaf.
const ENTRY_BYTES: usize = 48;

/// The same, further, of a value that has an allocation of its own.
const SHARED_VALUE_BYTES: usize = 48;

/// Bytes of write buffer for one byte of the full memtable's filter.
const FILTER_SHARE: usize = 48;

/// Bytes of a segment for one byte of its own filter. Only keys that passed the memtable's filter
/// are asked of it.
const SEGMENT_FILTER_SHARE: usize = 96;

/// All filters take at most one byte of this many, or 1 KiB.
const FILTERS_SHARE_MAX: u64 = 12;

/// Most segments. Each further one makes puts faster by less, and the start of a scan slower by one
/// search.
const SEGMENTS_MAX: usize = 4;

/// Most segments that are begun by range deletes. When they are used up, the memtable asks for its
/// flush.
const RANGE_SEGMENTS_MAX: usize = 12;

/// A segment with fewer entries takes entries after a range delete too: a scan steps over so few.
const RANGE_SEGMENT_ENTRIES_MIN: usize = 1_000;

/// Segments are at least this large: the processor's caches hold it.
const SEGMENT_BYTES_MIN: usize = 2 << 20;

/// Most entries that an iterator copies at a time.
const CHUNK_ENTRIES_MAX: usize = 32;

/// Entries of the first chunk after a seek; each further one doubles.
const CHUNK_ENTRIES_FIRST: usize = 4;

/// The memory of an entry.
fn entry_bytes(entry: &BatchEntry<'_>) -> usize {
    let shared = if entry.value.len() > COPY_BYTES { SHARED_VALUE_BYTES } else { 0 };
    entry.key.len() + entry.value.len() + ENTRY_BYTES + shared
}

pub(crate) struct Memtable {
    /// Filled in order. Without filters there is one segment: only filters make searching several
    /// as cheap as searching one.
    segments: Box<[Segment]>,
    /// The segments after those: there are as many more as range deletes begin.
    more_segments: OnceLock<Box<[Segment]>>,
    /// Segments in use: only the last of them takes entries.
    used: AtomicUsize,
    segment_bytes: usize,
    /// Of the open segment; for the writer alone.
    open: OpenSegment,
    filter: MemtableFilter,
    pub range_deletes: MemtableRangeDeletes,
    /// The entries of all segments.
    arena: Arc<Arena>,
    /// Entries and range deletes.
    count: AtomicUsize,
    tombstones: AtomicUsize,
    bytes: AtomicUsize,
    /// It should be flushed although it is not full.
    wants_flush: AtomicBool,
}

/// The writer's state of the segment that takes entries.
#[derive(Default)]
struct OpenSegment {
    /// How many segments range deletes have begun.
    begun_by_ranges: AtomicUsize,
    /// Entries of the memtable when it was begun.
    entries_before: AtomicUsize,
    /// Bytes of the memtable when it was begun.
    bytes_before: AtomicUsize,
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
        let arena = Arc::default();
        Memtable {
            segments: (0..segments).map(|n| Segment::new(&arena, segment_filter(n))).collect(),
            more_segments: OnceLock::new(),
            used: AtomicUsize::new(1),
            segment_bytes,
            open: OpenSegment::default(),
            filter: MemtableFilter::new(share(write_buffer_bytes / FILTER_SHARE, true)),
            range_deletes: MemtableRangeDeletes::default(),
            arena,
            count: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            wants_flush: AtomicBool::new(false),
        }
    }

    /// What `entries` add to [`bytes`](Self::bytes), with the largest share that filters can take:
    /// an estimate that is rather too high.
    pub(crate) fn bytes_of<'b>(entries: impl Iterator<Item = BatchEntry<'b>>) -> u64 {
        let bytes = entries.map(|entry| match entry.kind {
            WriteKind::DeleteRange => MemtableRangeDeletes::bytes_of(entry.key, entry.range_end()),
            WriteKind::Put | WriteKind::PutExpiring | WriteKind::Delete => entry_bytes(&entry),
        });
        let bytes = bytes.sum::<usize>() as u64;
        bytes + bytes / FILTERS_SHARE_MAX
    }

    /// Inserts the entries of `batch`, numbered from its sequence: see [`insert`](Self::insert).
    #[inline]
    pub(crate) fn apply(&self, batch: &DecodedBatch<'_>) {
        self.insert(batch.sequence, batch.iter());
    }

    /// Inserts `entries`, numbered from `first`. One caller at a time, which publishes their
    /// sequences afterwards.
    #[inline]
    pub(crate) fn insert<'b>(
        &self,
        first: SequenceNumber,
        entries: impl Iterator<Item = BatchEntry<'b>>,
    ) {
        let (mut count, mut ranges, mut tombstones, mut bytes) = (0, 0, 0, self.bytes());
        bytes += self.begin_by_size(first, bytes);
        let mut grows_above = self.filter.grows_above();
        let entries_before = self.entries();
        // Pinned once for all of them.
        let _guard = epoch::pin();
        for (sequence, entry) in (first..).zip(entries) {
            if entry.kind == WriteKind::DeleteRange {
                let end = entry.range_end();
                bytes += MemtableRangeDeletes::bytes_of(entry.key, end);
                let (start, end) = (entry.key.to_vec(), end.map(<[u8]>::to_vec));
                self.range_deletes.insert(RangeDelete { start, end, sequence });
                self.begin_by_range(sequence, entries_before + count, bytes);
                ranges += 1;
                continue;
            }
            count += 1;
            tombstones += usize::from(entry.kind == WriteKind::Delete);
            bytes += entry_bytes(&entry);
            if bytes > grows_above {
                bytes += self.filter.grow(bytes);
                grows_above = self.filter.grows_above();
            }
            let segment = self.segment(self.used.load(Ordering::Relaxed) - 1);
            let held = bytes - self.open.bytes_before.load(Ordering::Relaxed);
            if held > segment.filter.grows_above() {
                bytes += segment.filter.grow(held);
            }
            let hash = xxph3_64(entry.key);
            self.filter.add(hash);
            segment.insert(&entry, sequence << 8 | entry.kind as u64, hash);
        }
        self.count.fetch_add(count + ranges, Ordering::Relaxed);
        self.tombstones.fetch_add(tombstones, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Begins a segment with `sequence` if the memtable of `bytes` has outgrown those in use. The
    /// entries of one call go into one segment, even if they exceed it. Answers the bytes of its
    /// filter.
    fn begin_by_size(&self, sequence: SequenceNumber, bytes: usize) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        let by_size = used - self.open.begun_by_ranges.load(Ordering::Relaxed);
        if bytes < by_size * self.segment_bytes || by_size >= self.segments.len() {
            return 0;
        }
        // At once in its full size: the memtable is larger than that already.
        let filter_bytes = self.segment(used).allocate_filter();
        self.begin(used, sequence, bytes);
        filter_bytes
    }

    /// Begins a segment after the range delete with `sequence`, if the open one has many entries.
    /// Its filter grows with it.
    fn begin_by_range(&self, sequence: SequenceNumber, entries: usize, bytes: usize) {
        let OpenSegment { begun_by_ranges, entries_before, .. } = &self.open;
        if entries - entries_before.load(Ordering::Relaxed) < RANGE_SEGMENT_ENTRIES_MIN {
            return;
        }
        let begun = begun_by_ranges.load(Ordering::Relaxed);
        if begun == RANGE_SEGMENTS_MAX {
            return self.ask_for_flush();
        }
        begun_by_ranges.store(begun + 1, Ordering::Relaxed);
        entries_before.store(entries, Ordering::Relaxed);
        self.begin(self.used.load(Ordering::Relaxed), sequence, bytes);
    }

    fn begin(&self, number: usize, sequence: SequenceNumber, bytes: usize) {
        self.open.bytes_before.store(bytes, Ordering::Relaxed);
        self.segment(number).begin(sequence);
        // Relaxed suffices: a reader needs the new segment only for a sequence in it, and that is
        // published with Release after this store.
        self.used.store(number + 1, Ordering::Relaxed);
    }

    /// A segment by its number, oldest first.
    fn segment(&self, number: usize) -> &Segment {
        match number.checked_sub(self.segments.len()) {
            None => &self.segments[number],
            Some(number) => &self.more_segments.get_or_init(|| self.new_segments())[number],
        }
    }

    /// The segments that [`more_segments`](Self::more_segments) holds.
    #[cold]
    fn new_segments(&self) -> Box<[Segment]> {
        let filter_bytes = match self.filter.is_none() {
            true => 0,
            false => self.segment_bytes / SEGMENT_FILTER_SHARE,
        };
        (0..RANGE_SEGMENTS_MAX).map(|_| Segment::new(&self.arena, filter_bytes)).collect()
    }

    /// The segments in use, newest first.
    fn filled(&self) -> impl Iterator<Item = &Segment> {
        let used = self.used.load(Ordering::Relaxed);
        let (first, more) = match used.checked_sub(self.segments.len()) {
            None | Some(0) => (used, &[][..]),
            Some(more) => {
                let segments = self.more_segments.get();
                (self.segments.len(), segments.map_or(&[][..], |segments| &segments[..more]))
            }
        };
        more.iter().rev().chain(self.segments[..first].iter().rev())
    }

    /// The sequence up to which range deletes delete the key, for the sequence of the lookup; 0 if
    /// none does. Everything in older memtables and in tables is older than it.
    #[inline]
    pub(crate) fn covering(&self, key: &LookupKey) -> SequenceNumber {
        match self.range_deletes.count() {
            0 => 0,
            _ => self.range_deletes.covering(key.user_key(), key.sequence()),
        }
    }

    /// The newest version of the key that the lookup's sequence can see, if it is above `floor`,
    /// the [`covering`](Self::covering) sequence. With `hash`, the filters of segments are asked.
    pub(crate) fn get(
        &self,
        key: &LookupKey,
        hash: Option<&KeyHash<'_>>,
        floor: SequenceNumber,
    ) -> Lookup {
        // From the newest segment back: the first one with a visible version has the newest.
        // Versions above the lookup's sequence do not count, so the search may end in an older
        // segment.
        for segment in self.filled() {
            if hash.is_none_or(|hash| segment.may_contain(hash.xxph3())) {
                let found = segment.get(key, floor);
                if found != Lookup::Absent {
                    return found;
                }
            }
            // Everything in earlier segments is older still.
            if segment.begins() <= floor {
                break;
            }
        }
        Lookup::Absent
    }

    /// Whether it has a filter.
    pub(crate) fn has_filter(&self) -> bool {
        !self.filter.is_none()
    }

    /// True if something above `since` writes or deletes the key, which `key` looks up at the
    /// largest sequence.
    pub(crate) fn has_newer(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        since: SequenceNumber,
    ) -> bool {
        self.covering(key) > since
            || (self.may_contain(hash) && self.get(key, Some(hash), since) != Lookup::Absent)
    }

    /// A key of `bounds` that something above `since` writes or deletes.
    pub(crate) fn newer_within(
        self: &Arc<Self>,
        bounds: &KeyBounds,
        since: SequenceNumber,
    ) -> Result<Option<Vec<u8>>> {
        if self.range_deletes.count() > 0
            && let Some(key) = self.range_deletes.newer_within(bounds, since)
        {
            return Ok(Some(key));
        }
        for mut entries in self.iterators(Direction::Forward) {
            // Older segments have only older entries.
            if entries.sequence_end() <= since + 1 {
                break;
            }
            if let Some(key) = newer_within(&mut entries, bounds, since)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
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

    /// As [`bytes`](Self::bytes), with what reads have added.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes() as u64 + self.range_deletes.cached_bytes()
    }

    /// Entries: every version counts. Range deletes are none.
    pub(crate) fn entries(&self) -> usize {
        // Of a memtable that is written the two counts may be of different moments.
        self.count.load(Ordering::Relaxed).saturating_sub(self.range_deletes.count())
    }

    /// From now on it should be flushed although it is not full: scans step over many entries that
    /// are covered or expired, or that more segments would let them jump over.
    pub(crate) fn ask_for_flush(&self) {
        self.wants_flush.store(true, Ordering::Relaxed);
    }

    /// True once it was asked for.
    pub(crate) fn wants_flush(&self) -> bool {
        self.wants_flush.load(Ordering::Relaxed)
    }

    /// Entries that delete their key.
    pub(crate) fn tombstones(&self) -> usize {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// True before the first write.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
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
    /// A sequence above those of all its entries.
    pub(crate) fn sequence_end(&self) -> SequenceNumber {
        match self.segment + 1 < self.memtable.used.load(Ordering::Relaxed) {
            true => self.memtable.segment(self.segment + 1).begins(),
            // More may come.
            false => SequenceNumber::MAX,
        }
    }

    /// The trailer of the newest version of the key in its segment that the lookup's sequence can
    /// see.
    pub(crate) fn newest(&self, key: &LookupKey) -> Option<u64> {
        self.memtable.segment(self.segment).newest(key)
    }

    fn fill(&mut self, cut: Option<&KeyRef<'_>>) {
        self.position = 0;
        let segment = self.memtable.segment(self.segment);
        segment.copy(self.direction, cut, self.limit, &mut self.copies);
    }

    /// Copies the next chunk, which is twice as long.
    fn refill(&mut self) {
        // Copied, because `fill` overwrites the chunk that has it. The list is searched again from
        // there: no position in it outlives the epoch guard.
        let last = self.copies.key(self.position - 1).to_vec();
        self.limit = CHUNK_ENTRIES_MAX.min(2 * self.limit);
        self.fill(Some(&match self.direction {
            Direction::Forward => KeyRef::after(&last),
            Direction::Reverse => KeyRef::of_internal(&last),
        }));
    }
}

impl InternalIterator for MemtableIter {
    fn seek(&mut self, bound: Option<&[u8]>) {
        self.limit = CHUNK_ENTRIES_FIRST;
        self.fill(bound.map(KeyRef::of_internal).as_ref());
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

    /// The entries of the batches, one after the other.
    type Writes = Vec<Vec<(Vec<u8>, Option<Vec<u8>>)>>;

    /// Internal key and value, newest version first within a user key.
    type Model = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    fn apply(memtable: &Memtable, sequence: u64, batch: &WriteBatch) {
        let entries = DecodedBatch::trusted(sequence, batch.len() as u32, &batch.entries);
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
        let floor = memtable.covering(key);
        let found = memtable.get(key, Some(&KeyHash::new(key.user_key())), floor);
        assert_eq!(memtable.get(key, None, floor), found);
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
                    Some((_, Some(value))) => Lookup::found(Value::from(&value[..])),
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
                    prop_assert_eq!(found, value.map_or(Lookup::Absent, Lookup::found));
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
        let Lookup::Found { stored: value, .. } = get(&memtable, &LookupKey::new(b"large", 1))
        else {
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
        assert_eq!(memtable.bytes(), 320 + 5 + 3 + ENTRY_BYTES);
        let fixed = size_of::<Memtable>() + memtable.segments.len() * size_of::<Segment>();
        assert!(fixed + memtable.bytes() < 6 << 10, "{fixed} bytes without entries");
        let large = [0; 1 << 20];
        put(&memtable, 2, b"k", &large);
        let filter = 320 + (20 << 10);
        let entries = 9 + large.len() + 2 * ENTRY_BYTES + SHARED_VALUE_BYTES;
        assert_eq!(memtable.bytes(), filter + entries);
        let without = Memtable::new(64 << 10, false);
        put(&without, 1, b"k", b"");
        assert_eq!(without.bytes(), 1 + ENTRY_BYTES);
        assert!(without.may_contain(&KeyHash::new(b"absent")));
    }

    /// Keys of 16 bytes in no order, values of several sizes.
    #[test]
    fn entries_take_about_what_they_count() {
        for value_bytes in [0, 100, 256, 257, 1000] {
            let memtable = Memtable::with_segments(1 << 30, false, 1);
            for sequence in 1..=20_000_u64 {
                let mixed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let key = format!("{mixed:016x}");
                put(&memtable, sequence, key.as_bytes(), &vec![7; value_bytes]);
            }
            let allocated = memtable.arena.allocated() + memtable.segments[0].allocated();
            let ratio = allocated as f64 / memtable.bytes() as f64;
            assert!((0.85..1.1).contains(&ratio), "{value_bytes}: {ratio:.3}");
        }
    }

    #[test]
    fn filters_stay_within_their_share() {
        let memtable = Memtable::new(16 << 20, true);
        let (mut entry_bytes, mut sequence) = (0, 0);
        while entry_bytes < 15 << 20 {
            sequence += 1;
            put(&memtable, sequence, format!("key {sequence:012}").as_bytes(), &[0; 484]);
            entry_bytes += 500 + ENTRY_BYTES + SHARED_VALUE_BYTES;
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
                        assert_eq!(found, Lookup::found(Value::from(&newest.to_le_bytes()[..])));
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
        let entries = DecodedBatch::trusted(1, 40, &batch.entries);
        let (whole, runs) = (Memtable::new(64 << 10, true), Memtable::new(64 << 10, true));
        whole.apply(&entries);
        for (start, count) in [(0, 1), (1, 0), (1, 9), (10, 30)] {
            runs.insert(1 + start as u64, entries.iter().skip(start).take(count));
        }
        let all = |memtable| collect(&mut walk(&Arc::new(memtable), Direction::Forward), None);
        assert_eq!((whole.entries(), whole.tombstones()), (runs.entries(), runs.tombstones()));
        assert_eq!(all(runs), all(whole));
    }

    /// A key that sorts as its number.
    fn ordered(n: u64) -> Vec<u8> {
        format!("{n:06}").into_bytes()
    }

    /// What the entries of a history do.
    #[derive(Clone, Debug)]
    enum Op {
        Put(Vec<u8>),
        Delete(Vec<u8>),
        DeleteRange(Vec<u8>, Option<Vec<u8>>),
    }

    fn history() -> impl Strategy<Value = Vec<Vec<Op>>> {
        let range = (key(), proptest::option::weighted(0.8, key()));
        let op = prop_oneof![
            5 => key().prop_map(Op::Put),
            1 => key().prop_map(Op::Delete),
            2 => range.prop_map(|(start, end)| Op::DeleteRange(start, end)),
        ];
        proptest::collection::vec(proptest::collection::vec(op, 1..6), 0..40)
    }

    /// Each entry that a batch of `ops` has, with its number.
    fn numbered(history: &[Vec<Op>]) -> Vec<(u64, Op)> {
        let is_sound = |op: &&Op| match op {
            Op::DeleteRange(start, Some(end)) => start < end,
            _ => true,
        };
        (1..).zip(history.iter().flatten().filter(is_sound).cloned()).collect()
    }

    fn batch_of(ops: &[Op]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for op in ops {
            match op {
                Op::Put(key) => batch.put(key, key),
                Op::Delete(key) => batch.delete(key),
                Op::DeleteRange(start, None) => batch.delete_range(start..),
                Op::DeleteRange(start, Some(end)) => batch.delete_range(start..end),
            };
        }
        batch
    }

    /// What a lookup in a memtable with `history` finds.
    fn expected(history: &[(u64, Op)], key: &[u8], at: u64) -> Lookup {
        let newest = history.iter().rev().filter(|(sequence, _)| *sequence <= at);
        let lookup = |(_, op): &(u64, Op)| match op {
            Op::Put(put) => (put == key).then(|| Lookup::found(Value::from(key))),
            Op::Delete(deleted) => (deleted == key).then_some(Lookup::Deleted),
            Op::DeleteRange(start, end) => {
                let covers = &start[..] <= key && end.as_ref().is_none_or(|end| key < &end[..]);
                covers.then_some(Lookup::Deleted)
            }
        };
        { newest }.find_map(lookup).unwrap_or(Lookup::Absent)
    }

    /// As a lookup does it: a key that is covered and not found is deleted.
    fn get_covered(memtable: &Memtable, key: &[u8], at: u64) -> Lookup {
        let lookup = LookupKey::new(key, at);
        let may_contain = memtable.may_contain(&KeyHash::new(key));
        let found = if may_contain { get(memtable, &lookup) } else { Lookup::Absent };
        match found {
            Lookup::Absent if memtable.covering(&lookup) > 0 => Lookup::Deleted,
            found => found,
        }
    }

    proptest! {
        #[test]
        fn range_deletes_hide_older_entries(
            history in history(),
            others in proptest::collection::vec(key(), 5),
            segments in 1..5usize,
        ) {
            let memtable = Memtable::with_segments(8 << 10, true, segments);
            let (mut sequence, mut bytes) = (1, 0);
            for ops in &history {
                let batch = batch_of(ops);
                let decoded = DecodedBatch::trusted(sequence, batch.len() as u32, &batch.entries);
                bytes += Memtable::bytes_of(decoded.iter());
                memtable.apply(&decoded);
                sequence += batch.len() as u64;
            }
            let model = numbered(&history);
            prop_assert_eq!(model.len() as u64, sequence - 1);
            prop_assert_eq!(memtable.is_empty(), model.is_empty());
            let ranges = memtable.range_deletes.all();
            prop_assert_eq!(memtable.entries() + ranges.len(), model.len());
            prop_assert!(memtable.bytes() as u64 <= bytes + (1 << 10));
            let mut keys: BTreeSet<&Vec<u8>> = others.iter().collect();
            keys.extend(model.iter().map(|(_, op)| match op {
                Op::Put(key) | Op::Delete(key) | Op::DeleteRange(key, _) => key,
            }));
            for key in keys {
                for at in 0..=sequence {
                    let found = get_covered(&memtable, key, at);
                    prop_assert_eq!(found, expected(&model, key, at), "{:?} at {}", key, at);
                }
            }
        }
    }

    /// Rounds of entries, each deleted by the next range delete.
    fn rounds(memtable: &Memtable, rounds: u64, entries: u64) {
        for round in 0..rounds {
            let first = round * (entries + 1) + 1;
            for n in 0..entries {
                put(memtable, first + n, &ordered(round * entries + n), b"");
            }
            let mut batch = WriteBatch::new();
            batch.delete_range(..ordered((round + 1) * entries));
            apply(memtable, first + entries, &batch);
        }
    }

    #[test]
    fn range_deletes_begin_segments() {
        for filter in [false, true] {
            let memtable = Memtable::new(64 << 20, filter);
            let full = RANGE_SEGMENT_ENTRIES_MIN as u64;
            rounds(&memtable, 3, full - 1);
            // Two rounds make a segment.
            assert_eq!(memtable.used.load(Ordering::Relaxed), 2);
            let memtable = Memtable::new(64 << 20, filter);
            rounds(&memtable, RANGE_SEGMENTS_MAX as u64, full);
            assert_eq!(memtable.used.load(Ordering::Relaxed), 1 + RANGE_SEGMENTS_MAX);
            assert!(!memtable.wants_flush());
            // What is newer than the last range delete is in the last segment alone.
            let begins: Vec<_> = memtable.filled().map(Segment::begins).collect();
            let deletes = memtable.range_deletes.all();
            let sequences: Vec<_> = deletes.iter().rev().map(|delete| delete.sequence).collect();
            assert_eq!(begins[..RANGE_SEGMENTS_MAX], sequences);
            rounds(&memtable, 1, 0);
            assert!(!memtable.wants_flush());
            let memtable = Memtable::new(64 << 20, filter);
            rounds(&memtable, 1 + RANGE_SEGMENTS_MAX as u64, full);
            assert!(memtable.wants_flush());
        }
    }

    /// A writer appends and purges, as a log does; readers look up at every moment, and at the
    /// moments before it.
    #[test]
    fn concurrent_readers_see_range_deletes_in_order() {
        const LAST: u64 = 6_000;
        // Entry `n` puts key `n`, but each tenth one deletes the keys below `n - 5`, and each
        // thirtieth one a range in the middle of what is left.
        let op = |n: u64| match n {
            _ if n.is_multiple_of(30) => Op::DeleteRange(ordered(n - 4), Some(ordered(n - 2))),
            _ if n.is_multiple_of(10) => Op::DeleteRange(vec![], Some(ordered(n - 5))),
            _ => Op::Put(ordered(n)),
        };
        let memtable = Memtable::with_segments(256 << 10, true, 4);
        let published = AtomicU64::new(0);
        let read = |seed: u64| {
            let (mut state, mut done) = (seed, false);
            while !done {
                let visible = published.load(Ordering::Acquire);
                done = visible == LAST;
                for at in [visible, visible.saturating_sub(7), visible / 2, visible / 3] {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let n = at.saturating_sub((state >> 33) % 64);
                    let found = get_covered(&memtable, &ordered(n), at);
                    let history: Vec<_> = (n.max(1)..=at).map(|n| (n, op(n))).collect();
                    // Every key that was never put may be covered, or not be there.
                    let expected = expected(&history, &ordered(n), at);
                    assert_eq!(found, expected, "{n} at {at}");
                }
            }
        };
        std::thread::scope(|scope| {
            let readers = [scope.spawn(|| read(1)), scope.spawn(|| read(2))];
            for sequence in 1..=LAST {
                apply(&memtable, sequence, &batch_of(&[op(sequence)]));
                published.store(sequence, Ordering::Release);
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }
}
