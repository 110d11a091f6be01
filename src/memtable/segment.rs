//! One part of a memtable: the entries of a stretch of writes, in a skip list of internal keys.
//!
//! `memtable/memtable.rs` has a few of them, of which the last one takes the writes: a list that
//! stays in the processor's caches takes an entry in half the time of one of 64 MiB. One writer at
//! a time, any number of readers. Entries are never removed, and none outlives its epoch guard: the
//! guards are the default collector's, since a memtable makes no garbage and a pin is then one
//! thread-local access. [`Segment::get`] does not ask the filter; its caller does.
//!
//! The values of a batch stand in chunks that its entries share, so that they cost an allocation a
//! chunk and not one each. A value that was read keeps its chunk alive, and nothing else.
//!
//! `SkipMap::get` (counts references on hot nodes) and `range()` (leaks in 0.1.3) are not used.

use crate::base::iterator::api::Direction;
use crate::base::key::{
    Lookup, LookupKey, ValueKind, key_head, put_key_with_trailer, split_internal_key,
};
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::base::write_batch::{BatchEntry, DecodedBatch};
use crate::filter::hash::xxph3_64;
use crate::memtable::bloom::MemtableFilter;
use crossbeam_epoch as epoch;
use crossbeam_skiplist::base::{Entry, SkipList};
use std::borrow::Borrow;
use std::cmp;
use std::ops::Bound;

/// Values that stand together take at most this much; a larger one stands alone.
const VALUE_CHUNK_BYTES: usize = 16 << 10;

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
        KeyRef { prefix: key_head(user_key), trailer, user_key }
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

/// A value as its entry holds it: a part of a chunk.
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

/// The values of the next entries of a batch in one chunk, and of how many entries: as many as the
/// chunk may hold, or one.
fn next_chunk<'b>(mut entries: impl Iterator<Item = BatchEntry<'b>>) -> (Arc<[u8]>, usize) {
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

/// The entries of a stretch of writes.
pub struct Segment {
    /// `None` for a tombstone.
    entries: SkipList<MemKey, Option<Stored>>,
    filter: MemtableFilter,
}

impl Segment {
    /// An empty segment with a filter of that size; 0 for none.
    pub fn new(filter_bytes: usize) -> Self {
        let entries = SkipList::new(epoch::default_collector().clone());
        Segment { entries, filter: MemtableFilter::new(filter_bytes) }
    }

    /// Size of the filter.
    pub fn filter_bytes(&self) -> usize {
        self.filter.bytes()
    }

    /// Inserts the entries of `batch`, numbered from its sequence, after it told `added` the hash
    /// and the entry. One caller at a time.
    pub fn apply(&self, batch: &DecodedBatch<'_>, mut added: impl FnMut(u64, &BatchEntry<'_>)) {
        let guard = &epoch::pin();
        let (mut entries, mut sequence) = (batch.iter(), batch.sequence);
        loop {
            let (chunk, count) = next_chunk(entries.clone());
            let mut end = 0;
            for entry in entries.by_ref().take(count) {
                let hash = xxph3_64(entry.key);
                added(hash, &entry);
                self.filter.add(hash);
                let (start, len) = (end, entry.value.len() as u32);
                end += len;
                let stored = || Stored { chunk: Arc::clone(&chunk), start, len };
                let value = (entry.kind == ValueKind::Put).then(stored);
                let key = MemKey::new(entry.key, sequence << 8 | entry.kind as u64);
                self.entries.insert(key, value, guard).release(guard);
                sequence += 1;
            }
            if count == 0 {
                return;
            }
        }
    }

    /// False if no version of the key is here; true is a "maybe".
    #[inline]
    pub fn may_contain(&self, xxph3: u64) -> bool {
        self.filter.may_contain(xxph3)
    }

    /// The newest version of the key that the lookup's sequence can see.
    pub fn get(&self, key: &LookupKey) -> Lookup {
        let guard = &epoch::pin();
        let sought = KeyRef::new(key.user_key(), key.trailer());
        let bound: Bound<&dyn KeyView> = Bound::Included(&sought);
        match self.entries.lower_bound(bound, guard) {
            Some(entry) if entry.key().user_key() == sought.user_key => match entry.value() {
                Some(value) => Lookup::Found(value.value()),
                None => Lookup::Deleted,
            },
            _ => Lookup::Absent,
        }
    }

    /// Copies into `copies` the first `count` entries in `direction` from `bound` on, an internal
    /// key; fewer if no more are there.
    pub fn copy(
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

/// Entries copied out of a segment: the keys into one buffer, the values shared.
#[derive(Default)]
pub struct Copies {
    keys: Vec<u8>,
    /// Of each entry, where its internal key ends in `keys`, and its value.
    entries: Vec<(usize, Option<Stored>)>,
}

impl Copies {
    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The internal key of entry `at`.
    #[inline]
    pub fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.entries[at - 1].0 };
        &self.keys[start..self.entries[at].0]
    }

    /// The value of entry `at`; of a tombstone an empty one.
    #[inline]
    pub fn value(&self, at: usize) -> &[u8] {
        self.entries[at].1.as_ref().map_or(&[], Stored::bytes)
    }

    /// The same, sharing it.
    pub fn value_owned(&self, at: usize) -> Value {
        self.entries[at].1.as_ref().map_or_else(|| Value::from(&[][..]), Stored::value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        segment.apply(&DecodedBatch::trusted(10, count, batch.entries()), |_, _| ());
        let mut copies = Copies::default();
        segment.copy(Direction::Forward, Bound::Unbounded, 100, &mut copies);
        assert_eq!(copies.len(), 2 * sizes.len());
        for n in 0..sizes.len() {
            let sequence = 10 + 2 * n as u64;
            let found = segment.get(&LookupKey::new(&[n as u8], sequence));
            assert_eq!(found, Lookup::Found(Value::from(&value(n)[..])), "{n}");
            assert_eq!(segment.get(&LookupKey::new(&[n as u8], sequence - 1)), Lookup::Absent);
            let deleted = segment.get(&LookupKey::new(&[n as u8, 0], sequence + 1));
            assert_eq!(deleted, Lookup::Deleted);
            assert_eq!((copies.value(2 * n), copies.value(2 * n + 1)), (&value(n)[..], &[][..]));
            assert_eq!(copies.value_owned(2 * n), value(n)[..]);
        }
    }
}
