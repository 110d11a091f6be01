//! The encoding of a batch of writes, which a WAL record contains after its own header:
//!
//! ```text
//! batch  := sequence: u64  count: u32  entry*
//! entry  := kind: u8  [keyspace: varint]  key: length-prefixed  [value: length-prefixed]
//! ```
//!
//! Entry `i` has the sequence number `sequence + i`. The bit 0x40 of the kind says that a keyspace
//! follows; without it the entry is of keyspace 0, `default`. A tombstone has no value. A range
//! delete has the first key as its key and the key after the range as its value, which is empty if
//! the range has no end. The value of an expiring put begins with its time (`base/expiry.rs`).

use crate::base::coding::Decoder;
use crate::base::expiry::EXPIRY_BYTES;
use crate::base::key::{
    DEFAULT_KEYSPACE, KEY_BYTES_MAX, KeyspaceId, SequenceNumber, VALUE_BYTES_MAX, ValueKind,
};
use crate::base::range_deletes::RANGE_BOUND_BYTES_MAX;
use std::iter::{Skip, Take};

/// Largest encoded batch: 2 GiB.
pub(crate) const BATCH_BYTES_MAX: usize = 2 << 30;

/// Bytes before the first entry.
pub(super) const HEADER_BYTES: usize = 8 + 4;

/// Set in the kind of an entry that names its keyspace.
pub(super) const NAMES_KEYSPACE: u8 = 0x40;

/// What an entry of a batch does. The number of a variant is the kind byte in the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WriteKind {
    Delete = ValueKind::Tombstone as u8,
    Put = ValueKind::Put as u8,
    /// Deletes a range of keys.
    DeleteRange = 2,
    /// Writes a value that expires. The leader of a write group makes these of puts that expire
    /// some time after the write.
    PutExpiring = ValueKind::ExpiringPut as u8,
}

impl WriteKind {
    const ALL: [WriteKind; 4] =
        [WriteKind::Delete, WriteKind::Put, WriteKind::DeleteRange, WriteKind::PutExpiring];

    fn from_byte(byte: u8) -> Option<Self> {
        WriteKind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The longest key of such an entry.
    pub(super) fn key_bytes_max(self) -> usize {
        match self {
            WriteKind::DeleteRange => RANGE_BOUND_BYTES_MAX,
            WriteKind::Put | WriteKind::PutExpiring | WriteKind::Delete => KEY_BYTES_MAX,
        }
    }

    /// The longest value of such an entry.
    pub(super) fn value_bytes_max(self) -> usize {
        match self {
            WriteKind::PutExpiring => VALUE_BYTES_MAX + EXPIRY_BYTES,
            WriteKind::Put | WriteKind::Delete | WriteKind::DeleteRange => VALUE_BYTES_MAX,
        }
    }
}

/// Appends the header of a batch of `count` entries, numbered from `sequence`.
pub(crate) fn put_batch_header(dst: &mut Vec<u8>, sequence: SequenceNumber, count: u32) {
    dst.extend_from_slice(&sequence.to_le_bytes());
    dst.extend_from_slice(&count.to_le_bytes());
}

/// One entry of a decoded batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEntry<'a> {
    /// The keyspace it is of.
    pub keyspace: KeyspaceId,
    pub kind: WriteKind,
    /// The user key; the first one of a range.
    pub key: &'a [u8],
    /// The value; empty for a tombstone. Of a range delete the key after the range.
    pub value: &'a [u8],
}

impl<'a> BatchEntry<'a> {
    /// The key after the range that it deletes; `None` if that has no end.
    pub(crate) fn range_end(&self) -> Option<&'a [u8]> {
        Some(self.value).filter(|end| !end.is_empty())
    }

    /// True unless it is a range delete without keys or with a bound that no batch has.
    fn is_sound(&self) -> bool {
        self.key.len() <= self.kind.key_bytes_max()
            && match self.kind {
                WriteKind::Put | WriteKind::Delete => true,
                WriteKind::PutExpiring => self.value.len() >= EXPIRY_BYTES,
                WriteKind::DeleteRange => {
                    self.value.len() <= RANGE_BOUND_BYTES_MAX
                        && self.range_end().is_none_or(|end| self.key < end)
                }
            }
    }
}

/// A decoded batch, all of whose entries were checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodedBatch<'a> {
    /// Number of the first entry.
    pub sequence: SequenceNumber,
    pub count: u32,
    pub entries: &'a [u8],
}

impl<'a> DecodedBatch<'a> {
    /// Decodes a batch and checks all of it. The error says what is wrong; the caller adds the
    /// place.
    pub(crate) fn decode(bytes: &'a [u8]) -> std::result::Result<Self, String> {
        let mut decoder = Decoder::new(bytes);
        let (Some(sequence), Some(count)) = (decoder.u64(), decoder.u32()) else {
            return Err("a write batch shorter than its header".into());
        };
        let batch = DecodedBatch { sequence, count, entries: decoder.rest() };
        let mut iter = batch.iter();
        let found = iter.by_ref().count() as u64;
        if !iter.decoder.is_empty() {
            return Err(format!("a write batch with a malformed entry: {found} of {count}"));
        }
        if found != u64::from(count) {
            return Err(format!("a write batch of {found} entries, expected {count}"));
        }
        Ok(batch)
    }

    /// Number of the last entry. Every batch of a log has an entry.
    pub(crate) fn last_sequence(&self) -> SequenceNumber {
        self.sequence.saturating_add(u64::from(self.count).saturating_sub(1))
    }

    /// The entries in runs of one keyspace: the keyspace, the first sequence, the entries.
    pub(crate) fn runs(
        &self,
    ) -> impl Iterator<Item = (KeyspaceId, SequenceNumber, Take<BatchIter<'a>>)> + use<'a> {
        let (mut rest, mut sequence) = (self.iter(), self.sequence);
        std::iter::from_fn(move || {
            let keyspace = rest.clone().next()?.keyspace;
            let count = rest.clone().take_while(|entry| entry.keyspace == keyspace).count();
            let (run, first) = (rest.clone().take(count), sequence);
            rest.nth(count - 1);
            sequence += count as u64;
            Some((keyspace, first, run))
        })
    }

    /// The runs without their entries that are in tables: those up to the sequence that
    /// `flushed_through` has for the keyspace. A keyspace without one is left out.
    pub(crate) fn runs_after(
        &self,
        flushed_through: impl Fn(KeyspaceId) -> Option<SequenceNumber>,
    ) -> impl Iterator<Item = (KeyspaceId, SequenceNumber, Skip<Take<BatchIter<'a>>>)> {
        self.runs().filter_map(move |(id, first, run)| {
            let skipped = (flushed_through(id)? + 1).saturating_sub(first);
            let run = run.skip(skipped as usize);
            run.clone().next().map(|_| (id, first + skipped, run))
        })
    }

    /// A batch that this process encoded; its entries are not checked.
    pub(crate) fn trusted(sequence: SequenceNumber, count: u32, entries: &'a [u8]) -> Self {
        DecodedBatch { sequence, count, entries }
    }

    /// The entries in order.
    pub(crate) fn iter(&self) -> BatchIter<'a> {
        BatchIter { decoder: Decoder::new(self.entries) }
    }
}

/// Iterates the entries of a [`DecodedBatch`]; ends at the first malformed one.
#[derive(Clone, Debug)]
pub(crate) struct BatchIter<'a> {
    decoder: Decoder<'a>,
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = BatchEntry<'a>;

    fn next(&mut self) -> Option<BatchEntry<'a>> {
        let mut ahead = self.decoder.clone();
        let kind = ahead.u8()?;
        let keyspace = match kind & NAMES_KEYSPACE {
            0 => DEFAULT_KEYSPACE,
            // One encoding for each entry: the default keyspace is never named.
            _ => ahead.varint().and_then(|id| id.try_into().ok()).filter(|id| *id != 0)?,
        };
        let kind = WriteKind::from_byte(kind & !NAMES_KEYSPACE)?;
        let key = ahead.length_prefixed()?;
        let value = match kind {
            WriteKind::Put | WriteKind::PutExpiring | WriteKind::DeleteRange => {
                ahead.length_prefixed()?
            }
            WriteKind::Delete => &[],
        };
        let entry = BatchEntry { keyspace, kind, key, value };
        if !entry.is_sound() {
            return None;
        }
        self.decoder = ahead;
        Some(entry)
    }
}
