//! RocksDB's write batches: the records of its logs.
//!
//! ```text
//! batch     := sequence: u64  count: u32  operation*
//! operation := type: u8  (column family: varint)?  fields
//! ```
//!
//! Types: RocksDB's `db/dbformat.h`; fields: `db/write_batch.cc`.

use crate::coding::Decoder;
use crate::internal_key::SEQUENCE_MAX;
use crate::store::EntryKind;

/// An operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// An entry of a column family. A deletion has an empty value.
    Entry { family: u32, kind: EntryKind, key: &'a [u8], value: &'a [u8] },
    /// All keys of a column family from `start` on and before `end` are deleted.
    RangeDelete { family: u32, start: &'a [u8], end: &'a [u8] },
    /// The operations up to the next `EndPrepare` belong to a transaction.
    BeginPrepare,
    /// The transaction has this name.
    EndPrepare(&'a [u8]),
    /// The transaction of this name is committed, as if its operations were here.
    Commit(&'a [u8]),
    /// The transaction of this name is rolled back.
    Rollback(&'a [u8]),
    /// An operation without effect.
    Nothing,
    /// An operation that is not read: its name.
    Unsupported(&'static str),
}

/// An iterator over the operations of a batch.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    /// The sequence number of its first entry.
    pub sequence: u64,
    /// How many entries and range deletes it has.
    pub count: u32,
    pub decoder: Decoder<'a>,
}

impl<'a> Batch<'a> {
    /// Before the first operation; `None` if the bytes are no batch.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let sequence = decoder.u64().filter(|&sequence| sequence <= SEQUENCE_MAX)?;
        Some(Batch { sequence, count: decoder.u32()?, decoder })
    }

    /// Before the first of these operations, which are those of a transaction.
    pub(crate) fn of_operations(bytes: &'a [u8]) -> Self {
        Batch { sequence: 0, count: 0, decoder: Decoder::new(bytes) }
    }

    /// The next operation, or the end.
    ///
    /// # Errors
    /// The batch is malformed.
    pub(crate) fn next(&mut self) -> Result<Option<Operation<'a>>, &'static str> {
        match self.decoder.is_empty() {
            true => Ok(None),
            false => self.operation().map(Some).ok_or("a malformed batch"),
        }
    }

    fn operation(&mut self) -> Option<Operation<'a>> {
        let decoder = &mut self.decoder;
        let kind = decoder.u8()?;
        let family = match kind {
            0x4..=0x6 | 0x8 | 0xe | 0x10 | 0x17 | 0x19 => decoder.varint32()?,
            _ => 0,
        };
        let kind = match kind {
            0x0 | 0x4 => EntryKind::Deletion,
            0x1 | 0x5 => EntryKind::Value,
            0x2 | 0x6 => EntryKind::Merge,
            0x7 | 0x8 => EntryKind::SingleDeletion,
            0x10 | 0x11 => EntryKind::BlobIndex,
            0x16 | 0x17 => EntryKind::WideColumns,
            0x18 | 0x19 => EntryKind::ValueWithTime,
            0xe | 0xf => {
                let (start, end) = (decoder.length_prefixed()?, decoder.length_prefixed()?);
                return Some(Operation::RangeDelete { family, start, end });
            }
            kind => return self.mark(kind),
        };
        let key = decoder.length_prefixed()?;
        let value = if kind.is_deletion() { &[] } else { decoder.length_prefixed()? };
        Some(Operation::Entry { family, kind, key, value })
    }

    /// An operation that is no entry.
    fn mark(&mut self, kind: u8) -> Option<Operation<'a>> {
        let decoder = &mut self.decoder;
        Some(match kind {
            0x3 => {
                decoder.length_prefixed()?;
                Operation::Nothing
            }
            0x9 => Operation::BeginPrepare,
            0xa => Operation::EndPrepare(decoder.length_prefixed()?),
            0xb => Operation::Commit(decoder.length_prefixed()?),
            0xc => Operation::Rollback(decoder.length_prefixed()?),
            0xd => Operation::Nothing,
            0x12 => Operation::Unsupported("a transaction of the policy `WritePrepared`"),
            0x13 => Operation::Unsupported("a transaction of the policy `WriteUnprepared`"),
            0x14 | 0x15 => Operation::Unsupported("keys with timestamps"),
            _ => return None,
        })
    }
}
