//! [`Segment`]: one skip list of a memtable, with its own filter.
//!
//! Keys are compared by their first 8 bytes, which are in the node, and only then by the rest. The
//! values of a batch are in chunks that several entries share, so that a batch makes few
//! allocations. A value that was read keeps its chunk alive, but not the segment.
//!
//! No entry outlives its epoch guard. A lookup takes the value out under the guard; an iterator
//! copies entries in chunks ([`Copies`]).
//!
//! `SkipMap::get` (counts references on hot nodes) and `range()` (leaks in 0.1.3) are not used.

use crate::base::batch_format::{BatchEntry, WriteKind};
use crate::base::iterator::api::Direction;
use crate::base::key::{
    Lookup, LookupKey, SequenceNumber, ValueKind, key_head, put_key_with_trailer,
    split_internal_key,
};
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::value::Value;
use crate::memtable::bloom::MemtableFilter;
use crossbeam_epoch as epoch;
use crossbeam_skiplist::base::{Entry, SkipList};
use siftdb_filter::hash::xxph3_64;
use std::borrow::Borrow;
use std::cmp;
use std::ops::Bound;

/// Bytes of a chunk of values; a larger value has a chunk of its own.
const VALUE_CHUNK_BYTES: usize = 16 << 10;

/// A skip list with a filter. One thread inserts, any number read.
pub(crate) struct Segment {
    /// A value, with its time if the put expires, or `None` for a tombstone.
    entries: SkipList<MemKey, Option<Stored>>,
    filter: MemtableFilter,
    /// Everything in it has this sequence or a larger one, everything in earlier segments a smaller
    /// one. A reader that does not see it yet reads the largest number, of which nothing follows.
    begins: AtomicU64,
}

impl Segment {
    /// An empty segment with a filter of that size; 0 for none.
    pub(crate) fn new(filter_bytes: usize) -> Self {
        // The default collector: a memtable makes no garbage, and pinning it costs one access to a
        // thread-local.
        let entries = SkipList::new(epoch::default_collector().clone());
        let filter = MemtableFilter::new(filter_bytes);
        Segment { entries, filter, begins: AtomicU64::new(u64::MAX) }
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
            0 => self.filter.grow(usize::MAX, std::iter::empty()),
            _ => 0,
        }
    }

    /// Bytes of entries above which the filter must [`grow_filter`](Self::grow_filter).
    #[inline]
    pub(crate) fn filter_grows_above(&self) -> usize {
        self.filter.grows_above()
    }

    /// Makes the filter suffice for `held` bytes of entries. Answers the bytes allocated.
    pub(crate) fn grow_filter(&self, held: usize) -> usize {
        let guard = &epoch::pin();
        self.filter.grow(held, self.hashes(guard))
    }

    /// The hashes of all keys; a key with several versions has its hash several times.
    pub(crate) fn hashes<'g>(&'g self, guard: &'g epoch::Guard) -> impl Iterator<Item = u64> {
        let first = self.entries.front(guard);
        std::iter::successors(first, Entry::next).map(|entry| xxph3_64(entry.key().user_key()))
    }

    /// Inserts `entries`, numbered from `sequence`, up to the first range delete, and leaves the
    /// rest. Passes each with its hash to `added` before. Answers the sequence of the rest. One
    /// caller at a time.
    pub(crate) fn insert<'b>(
        &self,
        mut sequence: SequenceNumber,
        entries: &mut (impl Iterator<Item = BatchEntry<'b>> + Clone),
        mut added: impl FnMut(u64, &BatchEntry<'_>),
    ) -> SequenceNumber {
        let guard = &epoch::pin();
        loop {
            // `next_chunk` looks ahead on a clone; the loop below takes the same entries.
            let (chunk, count) = next_chunk(entries.clone());
            let mut end = 0;
            for entry in entries.by_ref().take(count) {
                let hash = xxph3_64(entry.key);
                // I3: both filters get the key before the list gets the entry. The caller publishes
                // the sequence after the whole batch.
                added(hash, &entry);
                self.filter.add(hash);
                let (start, len) = (end, entry.value.len() as u32);
                end += len;
                let stored = || Stored { chunk: Arc::clone(&chunk), start, len };
                let value = match entry.kind {
                    WriteKind::Put | WriteKind::PutExpiring => Some(stored()),
                    // A chunk ends before a range delete, which goes to a list of its own.
                    WriteKind::Delete | WriteKind::DeleteRange => None,
                };
                let key = MemKey::new(entry.key, sequence << 8 | entry.kind as u64);
                self.entries.insert(key, value, guard).release(guard);
                sequence += 1;
            }
            if count == 0 {
                return sequence;
            }
        }
    }

    /// False if the segment has no version of the key; true is "maybe".
    #[inline]
    pub(crate) fn may_contain(&self, xxph3: u64) -> bool {
        self.filter.may_contain(xxph3)
    }

    /// The newest version of the key that the lookup's sequence can see, if it is above `floor`.
    pub(crate) fn get(&self, key: &LookupKey, floor: SequenceNumber) -> Lookup {
        let guard = &epoch::pin();
        let sought = KeyRef::new(key.user_key(), key.trailer());
        // The sought key sorts before every version that its sequence sees, and after all newer
        // ones. So the first entry from there on is the answer, if it has the user key.
        let bound: Bound<&dyn KeyView> = Bound::Included(&sought);
        match self.entries.lower_bound(bound, guard) {
            Some(entry)
                if entry.key().user_key() == sought.user_key
                    && entry.key().trailer() >> 8 > floor =>
            {
                match entry.value() {
                    Some(value) if entry.key().trailer as u8 == ValueKind::ExpiringPut as u8 => {
                        Lookup::expiring(value.value())
                    }
                    Some(value) => Lookup::found(value.value()),
                    None => Lookup::Deleted,
                }
            }
            _ => Lookup::Absent,
        }
    }

    /// Copies into `copies` the first `count` entries in `direction` from `bound` on, an internal
    /// key; fewer at the end of the segment.
    pub(crate) fn copy(
        &self,
        direction: Direction,
        bound: Bound<&[u8]>,
        count: usize,
        copies: &mut Copies,
    ) {
        copies.keys.clear();
        copies.entries.clear();
        let guard = &epoch::pin();
        let sought = bound.map(KeyRef::of_internal);
        let bound: Bound<&dyn KeyView> = sought.as_ref().map(|sought| sought as &dyn KeyView);
        let mut next = match direction {
            Direction::Forward => self.entries.lower_bound(bound, guard),
            Direction::Reverse => self.entries.upper_bound(bound, guard),
        };
        while let Some(entry) = next {
            let key = entry.key();
            put_key_with_trailer(&mut copies.keys, key.user_key(), key.trailer());
            copies.entries.push((copies.keys.len(), entry.value().clone()));
            if copies.entries.len() == count {
                return;
            }
            next = match direction {
                Direction::Forward => Entry::next(&entry),
                Direction::Reverse => Entry::prev(&entry),
            };
        }
    }
}

/// Entries copied out of a segment: the keys in one buffer, the values shared.
#[derive(Default)]
pub(crate) struct Copies {
    keys: Vec<u8>,
    /// Of each entry, where its internal key ends in `keys`, and its value.
    entries: Vec<(usize, Option<Stored>)>,
}

impl Copies {
    /// Entries in this chunk.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The internal key of an entry.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.entries[at - 1].0 };
        &self.keys[start..self.entries[at].0]
    }

    /// The value of an entry; empty for a tombstone.
    #[inline]
    pub(crate) fn value(&self, at: usize) -> &[u8] {
        self.entries[at].1.as_ref().map_or(&[], Stored::bytes)
    }

    /// The same as a [`Value`], which shares the bytes.
    pub(crate) fn value_owned(&self, at: usize) -> Value {
        self.entries[at].1.as_ref().map_or_else(|| Value::from(&[][..]), Stored::value)
    }
}

/// A value in its entry: a part of a chunk.
#[derive(Clone)]
struct Stored {
    chunk: Arc<[u8]>,
    start: u32,
    len: u32,
}

impl Stored {
    fn bytes(&self) -> &[u8] {
        let start = self.start as usize;
        &self.chunk[start..start + self.len as usize]
    }

    fn value(&self) -> Value {
        Value::from_chunk(&self.chunk, self.start, self.len)
    }
}

/// The values of the next entries of a batch in one chunk, and the number of entries; none at a
/// range delete. One allocation serves several entries; a value that was read keeps its chunk alive
/// and nothing else.
fn next_chunk<'b>(entries: impl Iterator<Item = BatchEntry<'b>>) -> (Arc<[u8]>, usize) {
    let mut entries = entries.take_while(|entry| entry.kind != WriteKind::DeleteRange);
    let Some(first) = entries.next() else { return (Arc::from([]), 0) };
    let mut next = entries.next();
    if next.is_none() || first.value.len() > VALUE_CHUNK_BYTES {
        return (Arc::from(first.value), 1);
    }
    let (mut values, mut count) = (first.value.to_vec(), 1);
    while let Some(entry) = next
        && values.len() + entry.value.len() <= VALUE_CHUNK_BYTES
    {
        values.extend_from_slice(entry.value);
        count += 1;
        next = entries.next();
    }
    (Arc::from(values), count)
}

/// An internal key, owned by a node or borrowed for a search: what the list compares.
trait KeyView {
    /// The first 8 bytes of the user key, zero-padded, big-endian: enough to order most keys.
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

/// An entry's key. Short user keys are in the node itself, which a search touches anyway.
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
        MemKey { prefix: key_head(user_key), trailer, bytes }
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

/// The skip list wants the order as traits, of its keys and of what it is searched with.
macro_rules! ordered_by_compare {
    ($key:ty) => {
        impl PartialEq for $key {
            fn eq(&self, other: &Self) -> bool {
                compare(self, other).is_eq()
            }
        }

        impl Eq for $key {}

        impl PartialOrd for $key {
            fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $key {
            #[inline]
            fn cmp(&self, other: &Self) -> cmp::Ordering {
                compare(self, other)
            }
        }
    };
}

ordered_by_compare!(MemKey);
ordered_by_compare!(dyn KeyView + '_);

/// A key to search with, borrowed: lookups of any length allocate nothing.
struct KeyRef<'a> {
    prefix: u64,
    trailer: u64,
    user_key: &'a [u8],
}

impl<'a> KeyRef<'a> {
    fn new(user_key: &'a [u8], trailer: u64) -> Self {
        KeyRef { prefix: key_head(user_key), trailer, user_key }
    }

    /// A bound is an internal key; a shorter one sorts before all versions of that user key.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::batch_format::DecodedBatch;
    use crate::base::key::compare_internal;
    use crate::base::write_batch::WriteBatch;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_order_internal_keys(
            a in proptest::collection::vec(0..2u8, 0..25),
            b in proptest::collection::vec(0..2u8, 0..25),
            s in 1..4u64,
            t in 1..4u64,
        ) {
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
    fn values_of_every_size_round_trip() {
        let full = VALUE_CHUNK_BYTES;
        let sizes = [0, 1, 31, full - 32, 1, 0, full, full + 1, 5, 3 * full, 40, 0, 41, full - 81];
        let mut batch = WriteBatch::new();
        let value = |n: usize| vec![n as u8 + 1; sizes[n]];
        for n in 0..sizes.len() {
            batch.put([n as u8], value(n)).delete([n as u8, 0]);
        }
        let segment = Segment::new(0);
        let count = 2 * sizes.len() as u32;
        let entries = DecodedBatch::trusted(10, count, batch.entries());
        segment.insert(10, &mut entries.iter(), |_, _| ());
        let mut copies = Copies::default();
        segment.copy(Direction::Forward, Bound::Unbounded, 100, &mut copies);
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
