//! A batch of writes: applied as one step, and recovered whole or not at all.
//!
//! `batch_format` has the encoding. Limits (key 65,535 B, value 1 GiB, batch 2 GiB) are checked as
//! the batch is filled. The batch keeps the first violation, and the write returns it before
//! anything is logged.
//!
//! No log record creates or drops a keyspace. A batch that does has the entries of each keyspace
//! that it creates in a batch of their own, and `db/alter_batch.rs` writes all of it.

use crate::base::batch_format::{
    BATCH_BYTES_MAX, DecodedBatch, HEADER_BYTES, NAMES_KEYSPACE, WriteKind,
};
use crate::base::coding::{put_length_prefixed, put_varint};
use crate::base::error::{Error, Result};
use crate::base::expiry::{EXPIRY_BYTES, Expiry, clock_millis, put_expiring, split_expiring};
use crate::base::key::{
    DEFAULT_KEYSPACE, KEY_BYTES_MAX, KeyspaceId, SequenceNumber, VALUE_BYTES_MAX,
    check_keyspace_name,
};
use crate::base::range::{KeyBounds, KeyRange};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Writes to be applied together.
///
/// ```
/// let mut batch = siftdb::WriteBatch::new();
/// batch.put("a", "1").put("b", "2").delete("c");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a batch does nothing until it is written"]
pub struct WriteBatch {
    /// Encoded, without the header.
    pub(crate) entries: Vec<u8>,
    count: u32,
    pub(crate) payload_bytes: usize,
    pub(crate) deletes_ranges: bool,
    /// The puts that expire this long after the batch is written, by their place in the batch.
    pub(crate) expire_after: Vec<(u32, Duration)>,
    /// An entry asked for a sync of the batch.
    pub(crate) sync: bool,
    refused: Option<String>,
    /// The open database whose keyspaces it names, `default` included.
    pub(crate) database: Option<u64>,
    /// The keyspaces that it names but `default`, each once.
    pub(crate) keyspaces: Vec<KeyspaceId>,
    /// The keyspaces that it creates and drops. Few batches have any.
    pub(crate) changes: Option<Box<KeyspaceChanges>>,
}

/// The keyspaces that a [`WriteBatch`] creates and drops.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyspaceChanges {
    /// Those that it creates, by distinct names.
    pub created: Vec<CreatedKeyspace>,
    /// Where each of them is in `created`.
    by_name: BTreeMap<String, usize>,
    /// The names of those that it drops.
    pub dropped: BTreeSet<String>,
}

/// A keyspace that a [`WriteBatch`] creates.
#[derive(Clone, Debug)]
pub(crate) struct CreatedKeyspace {
    pub name: String,
    /// Its settings, encoded.
    pub settings: Vec<u8>,
    /// What is written to it, as if to `default`.
    pub batch: WriteBatch,
}

impl WriteBatch {
    /// A batch without entries.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// Adds a write of `value` under `key`. A later entry of the batch replaces an earlier one.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(DEFAULT_KEYSPACE, WriteKind::Put, key.as_ref(), value.as_ref());
        self
    }

    /// Adds a deletion of `key`, which need not exist.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(DEFAULT_KEYSPACE, WriteKind::Delete, key.as_ref(), &[]);
        self
    }

    /// Adds a deletion of all keys of `range` that are there by then: later entries of the batch
    /// may write to it again. An empty range adds nothing. It costs the same however many keys it
    /// deletes.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// db.put("log/1", "old")?;
    /// let mut batch = siftdb::WriteBatch::new();
    /// batch.delete_range("log/".."log0").put("log/2", "new");
    /// db.write(batch)?;
    /// assert_eq!(db.range(..).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        self.push_range(None, &range.into_bounds());
        self
    }

    /// Adds a deletion of all keys that start with `prefix` and are there by then. An empty prefix
    /// deletes all keys.
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.push_range(None, &KeyBounds::of_prefix(prefix.as_ref()));
        self
    }

    /// Number of entries; a range delete is one.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize + self.created().map(WriteBatch::len).sum::<usize>()
    }

    /// True without entries, and without keyspaces to create or drop.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.changes.is_none()
    }

    /// Encoded size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.entries.len() + self.created().map(WriteBatch::bytes).sum::<usize>()
    }

    /// The entries in the order in which they were added, of all keyspaces; those of keyspaces that
    /// the batch creates come last.
    ///
    /// ```
    /// use siftdb::Write;
    ///
    /// let mut batch = siftdb::WriteBatch::new();
    /// batch.put("a", "1").delete("b").delete_range("c"..);
    /// let entries: Vec<_> = batch.iter().collect();
    /// assert_eq!(entries[0], Write::Put { key: b"a", value: b"1" });
    /// assert_eq!(entries[1], Write::Delete { key: b"b" });
    /// assert_eq!(entries[2], Write::DeleteRange { start: b"c", end: None });
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = Write<'_>> {
        let batches = std::iter::once(self).chain(self.created());
        let entries = batches.flat_map(|batch| batch.decoded(0).iter());
        entries.map(|entry| match entry.kind {
            WriteKind::Put => Write::Put { key: entry.key, value: entry.value },
            WriteKind::PutExpiring => {
                let (_, value) =
                    split_expiring(entry.value).expect("the batch wrote it with a time");
                Write::Put { key: entry.key, value }
            }
            WriteKind::Delete => Write::Delete { key: entry.key },
            WriteKind::DeleteRange => {
                Write::DeleteRange { start: entry.key, end: entry.range_end() }
            }
        })
    }

    /// Adds all entries of `other`, after those that are there.
    pub fn append(&mut self, other: &WriteBatch) -> &mut Self {
        if let Some(what) = &other.refused {
            self.refused.get_or_insert_with(|| what.clone());
        }
        let first = self.count;
        for entry in DecodedBatch::trusted(0, other.count, &other.entries).iter() {
            let to = other.database.map(|database| (database, entry.keyspace));
            self.push_to(to, entry.kind, entry.key, entry.value);
        }
        if self.refused.is_none() {
            let moved = other.expire_after.iter().map(|(index, after)| (first + index, *after));
            self.expire_after.extend(moved);
        }
        self.sync |= other.sync;
        if let Some(KeyspaceChanges { created, dropped, .. }) = other.changes.as_deref() {
            for CreatedKeyspace { name, settings, batch } in created {
                self.create_named(name, settings).append(batch);
            }
            dropped.iter().for_each(|name| self.drop_named(name));
        }
        self
    }

    /// The writes to a keyspace that the batch creates with these settings, now or by an earlier
    /// call.
    pub(crate) fn create_named(&mut self, name: &str, settings: &[u8]) -> &mut WriteBatch {
        if let Err(why) = check_keyspace_name(name) {
            self.refuse(format!("not a keyspace: {why}"));
        }
        let changes = &mut **self.changes.get_or_insert_default();
        let KeyspaceChanges { created, by_name, dropped } = changes;
        if dropped.contains(name) {
            self.refused.get_or_insert_with(|| in_and_out(name));
        }
        let index = by_name.get(name).copied().unwrap_or_else(|| {
            let (name, settings) = (name.to_string(), settings.to_vec());
            by_name.insert(name.clone(), created.len());
            created.push(CreatedKeyspace { name, settings, batch: WriteBatch::new() });
            created.len() - 1
        });
        let found = &mut created[index];
        if found.settings != settings {
            let what = format!("a batch that creates the keyspace {name:?} with two settings");
            found.batch.refuse(what);
        }
        &mut found.batch
    }

    /// Drops the keyspace `name` with the batch.
    pub(crate) fn drop_named(&mut self, name: &str) {
        let changes = &mut **self.changes.get_or_insert_default();
        if changes.by_name.contains_key(name) {
            self.refused.get_or_insert_with(|| in_and_out(name));
        }
        changes.dropped.insert(name.into());
    }

    /// What it writes to the keyspaces that it creates.
    fn created(&self) -> impl Iterator<Item = &WriteBatch> {
        self.changes.iter().flat_map(|changes| &changes.created).map(|created| &created.batch)
    }

    /// Refuses the batch, unless it is refused already.
    pub(crate) fn refuse(&mut self, what: String) {
        self.refused.get_or_insert(what);
    }

    /// Its entries to keyspaces that are there, numbered from `sequence` on.
    pub(crate) fn decoded(&self, sequence: SequenceNumber) -> DecodedBatch<'_> {
        DecodedBatch::trusted(sequence, self.count, &self.entries)
    }

    /// Adds a write of `value` under `key` that expires; `None` for a put without a time of its
    /// own. `to` is a keyspace of an open database, or `default` of any.
    pub(crate) fn push_put(
        &mut self,
        to: Option<(u64, KeyspaceId)>,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) {
        match expiry {
            None => self.push_to(to, WriteKind::Put, key, value),
            Some(Expiry::After(after)) => {
                let index = self.count;
                self.push_to(to, WriteKind::Put, key, value);
                if self.refused.is_none() {
                    self.expire_after.push((index, after));
                }
            }
            Some(Expiry::At(time)) => {
                if let Err(Error::InvalidArgument { what }) = Expiry::At(time).check() {
                    self.refused.get_or_insert(what);
                }
                let mut stored = Vec::with_capacity(EXPIRY_BYTES + value.len());
                put_expiring(&mut stored, clock_millis(time), value);
                self.push_to(to, WriteKind::PutExpiring, key, &stored);
            }
        }
    }

    /// The batch, written at `now`, with expiring puts in place of the puts that expire: as they
    /// say themselves, or else as `expiry` says of their keyspace.
    pub(crate) fn with_expiry(
        &self,
        now: u64,
        expiry: impl Fn(KeyspaceId) -> Option<Expiry>,
    ) -> Self {
        let mut batch = WriteBatch::new();
        let mut stored = Vec::new();
        let mut own = self.expire_after.iter().peekable();
        for (index, entry) in (0..).zip(DecodedBatch::trusted(0, self.count, &self.entries).iter())
        {
            let own = own.next_if(|(own, _)| *own == index).map(|(_, after)| Expiry::After(*after));
            let expiry = own.or_else(|| expiry(entry.keyspace));
            let expiry = expiry.filter(|_| entry.kind == WriteKind::Put);
            match expiry.and_then(|expiry| expiry.expires_at(now)) {
                Some(expires_at) => {
                    stored.clear();
                    put_expiring(&mut stored, expires_at, entry.value);
                    batch.push(entry.keyspace, WriteKind::PutExpiring, entry.key, &stored);
                }
                None => batch.push(entry.keyspace, entry.kind, entry.key, entry.value),
            }
        }
        batch.database = self.database;
        batch.keyspaces.clone_from(&self.keyspaces);
        batch
    }

    /// The entries between two places, numbered from `sequence` on.
    pub(crate) fn piece(
        &self,
        begin: BatchPlace,
        end: BatchPlace,
        sequence: SequenceNumber,
    ) -> DecodedBatch<'_> {
        let entries = self.entries.get(begin.bytes..end.bytes).unwrap_or_default();
        DecodedBatch::trusted(sequence, end.count - begin.count, entries)
    }

    /// The present end of the batch, to go back to.
    pub(crate) fn mark(&self) -> BatchMark {
        BatchMark {
            end: BatchPlace { bytes: self.entries.len(), count: self.count },
            payload_bytes: self.payload_bytes,
            deletes_ranges: self.deletes_ranges,
            expire_after: self.expire_after.len(),
            sync: self.sync,
            refused: self.refused.clone(),
            keyspaces: self.keyspaces.len(),
        }
    }

    /// Removes all entries after `mark`, an earlier end of this batch.
    pub(crate) fn truncate(&mut self, mark: &BatchMark) {
        self.entries.truncate(mark.end.bytes);
        self.count = mark.end.count;
        self.payload_bytes = mark.payload_bytes;
        self.deletes_ranges = mark.deletes_ranges;
        self.expire_after.truncate(mark.expire_after);
        self.sync = mark.sync;
        self.refused.clone_from(&mark.refused);
        self.keyspaces.truncate(mark.keyspaces);
    }

    /// Removes all entries and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.truncate(&BatchMark::default());
        self.database = None;
        self.changes = None;
    }

    /// `InvalidArgument` if an entry or the batch exceeded a limit.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.refused {
            Some(what) => Err(Error::InvalidArgument { what: what.clone() }),
            // Alone, each of its parts is checked as it is filled.
            None if self.bytes() > BATCH_BYTES_MAX => {
                Err(Error::InvalidArgument { what: too_large(self.bytes()) })
            }
            None => self.created().try_for_each(WriteBatch::check),
        }
    }

    /// Adds an entry to keyspace `id` of the open database `database`.
    pub(crate) fn push_in(
        &mut self,
        (database, id): (u64, KeyspaceId),
        kind: WriteKind,
        key: &[u8],
        value: &[u8],
    ) {
        if *self.database.get_or_insert(database) != database {
            self.refused.get_or_insert("a batch with keyspaces of two databases".into());
        }
        if id != DEFAULT_KEYSPACE {
            // From the end: entries of one keyspace mostly follow each other.
            if !self.keyspaces.iter().rev().any(|named| *named == id) {
                self.keyspaces.push(id);
            }
        }
        self.push(id, kind, key, value);
    }

    /// Adds a range delete to `default`, or to the keyspace `to` of an open database.
    pub(crate) fn push_range(&mut self, to: Option<(u64, KeyspaceId)>, bounds: &KeyBounds) {
        for bound in [Some(&bounds.start), bounds.end.as_ref()].into_iter().flatten() {
            // A bound may be the successor of a key.
            let key = bound.strip_suffix(&[0]).unwrap_or(bound);
            if key.len() > KEY_BYTES_MAX {
                self.refused.get_or_insert_with(|| too_long(key));
            }
        }
        // An empty end would mean no end.
        if !bounds.is_empty() {
            let end = bounds.end.as_deref().unwrap_or_default();
            self.push_to(to, WriteKind::DeleteRange, &bounds.start, end);
        }
    }

    /// Adds an entry to `default`, or to the keyspace `to` of an open database.
    pub(crate) fn push_to(
        &mut self,
        to: Option<(u64, KeyspaceId)>,
        kind: WriteKind,
        key: &[u8],
        value: &[u8],
    ) {
        match to {
            Some(to) => self.push_in(to, kind, key, value),
            None => self.push(DEFAULT_KEYSPACE, kind, key, value),
        }
    }

    fn push(&mut self, keyspace: KeyspaceId, kind: WriteKind, key: &[u8], value: &[u8]) {
        if self.refused.is_some() {
            return;
        }
        // 26: the kind, a keyspace of at most 5 bytes, and two varint lengths of at most 10 bytes.
        let entry_bytes = key.len() + value.len() + 26;
        let bytes = HEADER_BYTES + self.entries.len() + entry_bytes;
        self.refused = if key.len() > kind.key_bytes_max() {
            Some(too_long(key))
        } else if value.len() > kind.value_bytes_max() {
            Some(format!("a value of {} bytes; at most {VALUE_BYTES_MAX} are allowed", value.len()))
        } else if bytes > BATCH_BYTES_MAX || self.count == u32::MAX {
            Some(too_large(bytes))
        } else {
            None
        };
        if self.refused.is_some() {
            return;
        }
        self.deletes_ranges |= kind == WriteKind::DeleteRange;
        self.entries.reserve(entry_bytes);
        if keyspace == DEFAULT_KEYSPACE {
            self.entries.push(kind as u8);
        } else {
            self.entries.push(kind as u8 | NAMES_KEYSPACE);
            put_varint(&mut self.entries, u64::from(keyspace));
        }
        put_length_prefixed(&mut self.entries, key);
        if kind != WriteKind::Delete {
            put_length_prefixed(&mut self.entries, value);
        }
        self.count += 1;
        self.payload_bytes += key.len() + value.len();
    }
}

/// A place between two entries of a [`WriteBatch`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchPlace {
    /// Bytes of the entries before it.
    pub bytes: usize,
    /// How many these are.
    pub count: u32,
}

/// An end of a [`WriteBatch`], before later entries were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchMark {
    /// The end of its entries.
    pub end: BatchPlace,
    payload_bytes: usize,
    deletes_ranges: bool,
    expire_after: usize,
    pub(crate) sync: bool,
    refused: Option<String>,
    keyspaces: usize,
}

/// One entry of a [`WriteBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write<'a> {
    /// A write of `value` under `key`.
    #[allow(missing_docs)]
    Put { key: &'a [u8], value: &'a [u8] },
    /// A deletion of `key`.
    #[allow(missing_docs)]
    Delete { key: &'a [u8] },
    /// A deletion of the keys from `start` on and below `end`; of all from `start` on without one.
    #[allow(missing_docs)]
    DeleteRange { start: &'a [u8], end: Option<&'a [u8]> },
}

fn in_and_out(name: &str) -> String {
    format!("a batch that creates and drops the keyspace {name:?}")
}

fn too_large(bytes: usize) -> String {
    format!("a batch of {bytes} bytes; at most {BATCH_BYTES_MAX} are allowed")
}

fn too_long(key: &[u8]) -> String {
    format!("a key of {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::batch_format::put_batch_header;
    use proptest::prelude::*;
    use std::ops::Bound;

    fn encoded(batch: &WriteBatch, sequence: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_batch_header(&mut bytes, sequence, batch.len() as u32);
        bytes.extend_from_slice(&batch.entries);
        bytes
    }

    /// The end of a range before the empty key once stood for no end: all keys were deleted. And a
    /// range between two neighbours was logged and made the log unreadable.
    #[test]
    fn ranges_without_keys_add_nothing() {
        let mut batch = WriteBatch::new();
        let (key, above) = (b"a".as_slice(), b"a\0".as_slice());
        batch.delete_range(.."");
        batch.delete_range("b".."a").delete_range("b"..="a").delete_range("a".."a");
        batch.delete_range((Bound::Excluded(key), Bound::Excluded(above)));
        batch.delete_range((Bound::Excluded(key), Bound::Included(key)));
        batch.delete_range((Bound::Unbounded, Bound::Excluded(b"".as_slice())));
        assert!(batch.is_empty() && batch.check().is_ok());
    }

    #[test]
    fn oversized_entries_leave_the_batch_unchanged() {
        let mut batch = WriteBatch::new();
        batch.put(vec![b'k'; KEY_BYTES_MAX], "at the limit");
        assert!(batch.check().is_ok());
        batch.put(vec![b'k'; KEY_BYTES_MAX + 1], "beyond").put("later", "ignored");
        assert!(matches!(batch.check(), Err(Error::InvalidArgument { .. })));
        assert_eq!(batch.len(), 1);
        batch.clear();
        assert!(batch.check().is_ok() && batch.is_empty());
    }

    /// A program with a keyspace for each of thousands of customers may create all in one batch.
    #[test]
    fn each_created_keyspace_costs_the_same() {
        let time_of = |keyspaces: u32| {
            let mut batch = WriteBatch::new();
            let started = std::time::Instant::now();
            for n in 0..keyspaces {
                batch.create_named(&format!("customer {n}"), &[]).put("k", "v");
                batch.put(n.to_le_bytes(), "customer");
                batch.drop_named(&format!("former customer {n}"));
            }
            let elapsed = started.elapsed();
            assert_eq!(batch.len(), 2 * keyspaces as usize);
            assert!(batch.check().is_ok());
            elapsed / keyspaces
        };
        let few = (0..9).map(|_| time_of(200)).min().unwrap();
        let many = (0..3).map(|_| time_of(20_000)).min().unwrap();
        assert!(many < 12 * few, "{few:?} and {many:?}");
    }

    #[test]
    fn damaged_batches_are_refused() {
        let mut batch = WriteBatch::new();
        batch.put("key", "value").delete("other");
        let good = encoded(&batch, 5);
        assert!(DecodedBatch::decode(&good).is_ok());
        for cut in 0..good.len() {
            assert!(DecodedBatch::decode(&good[..cut]).is_err(), "cut at {cut}");
        }
        let mut extended = good.clone();
        extended.push(0);
        assert!(DecodedBatch::decode(&extended).is_err());
        let mut reserved_kind = good.clone();
        reserved_kind[HEADER_BYTES] = 9;
        assert!(DecodedBatch::decode(&reserved_kind).is_err());
        // A keyspace that is 0, or beyond 32 bits, and a keyspace without a key.
        for keyspace in [&[0][..], &[0xff, 0xff, 0xff, 0xff, 0x7f], &[0x80]] {
            let mut named = good[..HEADER_BYTES].to_vec();
            named.push(good[HEADER_BYTES] | NAMES_KEYSPACE);
            named.extend_from_slice(keyspace);
            named.extend_from_slice(&good[HEADER_BYTES + 1..]);
            assert!(DecodedBatch::decode(&named).is_err());
        }
    }

    #[test]
    fn only_puts_of_expiring_keyspaces_expire() {
        let mut batch = WriteBatch::new();
        batch.put("a", "1").delete("b").delete_range("c"..);
        batch.push_in((7, 4), WriteKind::Put, b"d", b"2");
        let nine = Expiry::After(Duration::from_millis(4));
        let expiring = batch.with_expiry(5, |keyspace| (keyspace == 4).then_some(nine));
        let bytes = encoded(&expiring, 1);
        let kinds = DecodedBatch::decode(&bytes).unwrap().iter().map(|entry| entry.kind);
        let put = WriteKind::Put;
        let kept = [put, WriteKind::Delete, WriteKind::DeleteRange];
        assert!(kinds.eq(kept.into_iter().chain([WriteKind::PutExpiring])));
        assert!(expiring.iter().eq(batch.iter()), "the same keys and values");
        assert_eq!((&expiring.keyspaces[..], expiring.database), (&[4][..], Some(7)));
        for cut in 0..bytes.len() {
            assert!(DecodedBatch::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    /// The time of each put: its own, or that of its keyspace. Rolling back and joining batches
    /// leave each with its own.
    #[test]
    fn puts_keep_their_own_expiry() {
        let after = |millis| Some(Expiry::After(Duration::from_millis(millis)));
        let put = |batch: &mut WriteBatch, key: &str, expiry| {
            batch.push_put(None, key.as_bytes(), b"value", expiry);
        };
        let mut batch = WriteBatch::new();
        put(&mut batch, "a", after(3));
        put(&mut batch, "b", None);
        let mark = batch.mark();
        put(&mut batch, "gone", after(1));
        batch.sync = true;
        batch.truncate(&mark);
        put(&mut batch, "c", None);
        put(&mut batch, "d", Some(Expiry::At(std::time::UNIX_EPOCH + Duration::from_millis(7))));
        let mut joined = WriteBatch::new();
        joined.put("e", "value").append(&batch);
        put(&mut joined, "f", Some(Expiry::After(Duration::MAX)));
        let written = joined.with_expiry(100, |_| after(50));
        let times: Vec<_> = DecodedBatch::trusted(0, 6, &written.entries)
            .iter()
            .map(|entry| match entry.kind {
                WriteKind::PutExpiring => split_expiring(entry.value).map(|(time, _)| time),
                _ => None,
            })
            .collect();
        let keyspaces = Some(150);
        assert_eq!(times, [keyspaces, Some(103), keyspaces, keyspaces, Some(7), None]);
        assert!(written.iter().eq(joined.iter()) && !joined.sync);
    }

    #[test]
    fn expiring_puts_without_a_time_are_refused() {
        for bytes in 0..=EXPIRY_BYTES {
            let mut batch = WriteBatch::new();
            batch.push(0, WriteKind::PutExpiring, b"k", &vec![1; bytes]);
            let decoded = DecodedBatch::decode(&encoded(&batch, 1)).is_ok();
            assert_eq!(decoded, bytes == EXPIRY_BYTES, "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn batches_round_trip(
            entries: Vec<(Vec<u8>, Option<Vec<u8>>, u32)>,
            few: bool,
            sequence in 0u64..1 << 60,
        ) {
            let few = |id| if few { id % 3 } else { id };
            let entries: Vec<_> = entries.into_iter().map(|(k, v, id)| (k, v, few(id))).collect();
            let mut batch = WriteBatch::new();
            for (key, value, id) in &entries {
                let kind = if value.is_some() { WriteKind::Put } else { WriteKind::Delete };
                batch.push_in((7, *id), kind, key, value.as_deref().unwrap_or_default());
            }
            let mut ids: Vec<u32> = entries.iter().map(|entry| entry.2).filter(|id| *id > 0).collect();
            let mut named = batch.keyspaces.to_vec();
            ids.sort_unstable();
            ids.dedup();
            named.sort_unstable();
            prop_assert_eq!(ids, named);
            let bytes = encoded(&batch, sequence);
            let decoded = DecodedBatch::decode(&bytes).unwrap();
            prop_assert_eq!(decoded.sequence, sequence);
            let back: Vec<_> = decoded
                .iter()
                .map(|e| {
                    let value = (e.kind == WriteKind::Put).then(|| e.value.to_vec());
                    (e.key.to_vec(), value, e.keyspace)
                })
                .collect();
            prop_assert_eq!(&back, &entries);
            let mut at = 0;
            for (keyspace, first, run) in decoded.runs() {
                prop_assert_eq!(first, sequence + at as u64);
                let run: Vec<_> = run.collect();
                prop_assert!(!run.is_empty() && run.iter().all(|e| e.keyspace == keyspace));
                prop_assert!(entries.get(at + run.len()).is_none_or(|next| next.2 != keyspace));
                at += run.len();
            }
            prop_assert_eq!(at, entries.len());
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = DecodedBatch::decode(&bytes);
        }
    }
}
