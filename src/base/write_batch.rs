//! A batch of writes: applied as one step, and recovered whole or not at all.
//!
//! The encoding, which a WAL record contains after its own header:
//!
//! ```text
//! batch  := sequence: u64  count: u32  keyspace: varint (0)  entry*
//! entry  := kind: u8  key: length-prefixed  [value: length-prefixed, if kind is Put]
//! ```
//!
//! Entry `i` has the sequence number `sequence + i`. Keyspace is reserved: readers refuse any value
//! but 0. Limits (key 65,535 B, value 1 GiB, batch 2 GiB) are checked as the batch is filled. The
//! batch keeps the first violation, and the write returns it before anything is logged.

use crate::base::coding::{Decoder, put_length_prefixed};
use crate::base::error::{Error, Result};
use crate::base::key::{KEY_BYTES_MAX, SequenceNumber, VALUE_BYTES_MAX, ValueKind};

/// Largest encoded batch: 2 GiB.
pub(crate) const BATCH_BYTES_MAX: usize = 2 << 30;

/// Bytes before the first entry.
const HEADER_BYTES: usize = 8 + 4 + 1;

/// Writes to be applied together.
///
/// ```
/// let mut batch = siftdb::WriteBatch::new();
/// batch.put("a", "1").put("b", "2").delete("c");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a batch does nothing until it is written"]
pub struct WriteBatch {
    /// Encoded, without the header.
    entries: Vec<u8>,
    count: u32,
    payload_bytes: usize,
    refused: Option<String>,
}

impl Default for WriteBatch {
    fn default() -> Self {
        WriteBatch::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        WriteBatch { entries: Vec::new(), count: 0, payload_bytes: 0, refused: None }
    }

    /// Adds a write of `value` under `key`. A later entry of the batch replaces an earlier one.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(ValueKind::Put, key.as_ref(), value.as_ref());
        self
    }

    /// Adds a deletion of `key`, which need not exist.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(ValueKind::Tombstone, key.as_ref(), &[]);
        self
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Encoded size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.entries.len()
    }

    /// Removes all entries and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.count = 0;
        self.payload_bytes = 0;
        self.refused = None;
    }

    /// `InvalidArgument` if an entry or the batch exceeded a limit.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.refused {
            Some(what) => Err(Error::InvalidArgument { what: what.clone() }),
            None => Ok(()),
        }
    }

    /// Bytes of user keys and values.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// The encoded entries without the header, to join the batches of a write group.
    pub(crate) fn entries(&self) -> &[u8] {
        &self.entries
    }

    fn push(&mut self, kind: ValueKind, key: &[u8], value: &[u8]) {
        if self.refused.is_some() {
            return;
        }
        // 21: the kind, and two varint lengths of at most 10 bytes.
        let entry_bytes = key.len() + value.len() + 21;
        let bytes = self.bytes() + entry_bytes;
        self.refused = if key.len() > KEY_BYTES_MAX {
            Some(format!("a key of {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len()))
        } else if value.len() > VALUE_BYTES_MAX {
            Some(format!("a value of {} bytes; at most {VALUE_BYTES_MAX} are allowed", value.len()))
        } else if bytes > BATCH_BYTES_MAX || self.count == u32::MAX {
            Some(format!("a batch of {bytes} bytes; at most {BATCH_BYTES_MAX} are allowed"))
        } else {
            None
        };
        if self.refused.is_some() {
            return;
        }
        self.entries.reserve(entry_bytes);
        self.entries.push(kind as u8);
        put_length_prefixed(&mut self.entries, key);
        if kind == ValueKind::Put {
            put_length_prefixed(&mut self.entries, value);
        }
        self.count += 1;
        self.payload_bytes += key.len() + value.len();
    }
}

/// Appends the header of a batch of `count` entries, numbered from `sequence`.
pub(crate) fn put_batch_header(dst: &mut Vec<u8>, sequence: SequenceNumber, count: u32) {
    dst.extend_from_slice(&sequence.to_le_bytes());
    dst.extend_from_slice(&count.to_le_bytes());
    dst.push(0);
}

/// One entry of a decoded batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEntry<'a> {
    /// Put or tombstone.
    pub kind: ValueKind,
    /// The user key.
    pub key: &'a [u8],
    /// The value; empty for a tombstone.
    pub value: &'a [u8],
}

/// A decoded batch, all of whose entries were checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodedBatch<'a> {
    /// Number of the first entry.
    pub sequence: SequenceNumber,
    /// Number of entries.
    pub count: u32,
    entries: &'a [u8],
}

impl<'a> DecodedBatch<'a> {
    /// Decodes a batch and checks all of it. The error says what is wrong; the caller adds the
    /// place.
    pub(crate) fn decode(bytes: &'a [u8]) -> std::result::Result<Self, String> {
        let mut decoder = Decoder::new(bytes);
        let header = (decoder.u64(), decoder.u32(), decoder.varint());
        let (Some(sequence), Some(count), Some(keyspace)) = header else {
            return Err("a write batch shorter than its header".into());
        };
        if keyspace != 0 {
            return Err(format!("a write batch of keyspace {keyspace}; only 0 is supported"));
        }
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

    /// Bytes of the encoded entries.
    #[must_use]
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entries.len()
    }

    /// A batch that this process encoded; its entries are not checked.
    #[must_use]
    pub(crate) fn trusted(sequence: SequenceNumber, count: u32, entries: &'a [u8]) -> Self {
        DecodedBatch { sequence, count, entries }
    }

    /// The entries in order.
    #[must_use]
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
        let kind = ValueKind::from_byte(ahead.u8()?)?;
        let key = ahead.length_prefixed()?;
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let value = match kind {
            ValueKind::Put => ahead.length_prefixed()?,
            ValueKind::Tombstone => &[],
        };
        self.decoder = ahead;
        Some(BatchEntry { kind, key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(batch: &WriteBatch, sequence: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_batch_header(&mut bytes, sequence, batch.len() as u32);
        bytes.extend_from_slice(batch.entries());
        bytes
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
        reserved_kind[HEADER_BYTES] = 2;
        assert!(DecodedBatch::decode(&reserved_kind).is_err());
        let mut foreign_keyspace = good;
        foreign_keyspace[HEADER_BYTES - 1] = 1;
        assert!(DecodedBatch::decode(&foreign_keyspace).is_err());
    }

    proptest! {
        #[test]
        fn batches_round_trip(entries: Vec<(Vec<u8>, Option<Vec<u8>>)>, sequence: u64) {
            let mut batch = WriteBatch::new();
            for (key, value) in &entries {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                };
            }
            let bytes = encoded(&batch, sequence);
            let decoded = DecodedBatch::decode(&bytes).unwrap();
            prop_assert_eq!(decoded.sequence, sequence);
            let back: Vec<_> = decoded
                .iter()
                .map(|e| (e.key.to_vec(), (e.kind == ValueKind::Put).then(|| e.value.to_vec())))
                .collect();
            prop_assert_eq!(back, entries);
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = DecodedBatch::decode(&bytes);
        }
    }
}
