//! The properties block of a RocksDB table: names with values.
//!
//! Most numbers are varints. A few, of property collectors, have four or eight bytes. Text is
//! stored as it is.

use crate::block::BlockEntries;
use crate::block_file::BlockFile;
use crate::block_handle::BlockHandle;
use crate::coding::{Decoder, get_u32, get_u64};
use siftdb::Result;
use std::collections::BTreeMap;
use std::ops::Range;

/// The name of the block in the metaindex.
pub(crate) const NAME: &[u8] = b"rocksdb.properties";

/// The type of the index: four bytes.
pub(crate) const INDEX_TYPE: &str = "rocksdb.block.based.table.index.type";

/// The sequence number of all entries of an ingested table: eight bytes, changed in place.
pub(crate) const GLOBAL_SEQUENCE: &str = "rocksdb.external_sst_file.global_seqno";

/// The form of a table that was made to be ingested: four bytes.
pub(crate) const EXTERNAL_VERSION: &str = "rocksdb.external_sst_file.version";

/// The numbers that RocksDB stores as varints.
const NUMBERS: [&str; 36] = [
    "rocksdb.column.family.id",
    "rocksdb.creation.time",
    "rocksdb.data.block.restart.interval",
    "rocksdb.data.size",
    "rocksdb.deleted.keys",
    "rocksdb.file.creation.time",
    "rocksdb.filter.size",
    "rocksdb.fixed.key.length",
    "rocksdb.format.version",
    "rocksdb.index.block.restart.interval",
    "rocksdb.index.key.is.user.key",
    "rocksdb.index.partitions",
    "rocksdb.index.size",
    "rocksdb.index.value.is.delta.encoded",
    "rocksdb.key.largest.seqno",
    "rocksdb.key.smallest.seqno",
    "rocksdb.merge.operands",
    "rocksdb.newest.key.time",
    "rocksdb.num.data.blocks",
    "rocksdb.num.data.blocks.compression.bypassed",
    "rocksdb.num.data.blocks.compression.rejected",
    "rocksdb.num.entries",
    "rocksdb.num.filter_entries",
    "rocksdb.num.range-deletions",
    "rocksdb.num.uniform.blocks",
    "rocksdb.oldest.key.time",
    "rocksdb.original.file.number",
    "rocksdb.raw.key.size",
    "rocksdb.raw.value.size",
    "rocksdb.sample_for_compression.fast.data.size",
    "rocksdb.sample_for_compression.slow.data.size",
    "rocksdb.separate.key.value.in.data.block",
    "rocksdb.tail.start.offset",
    "rocksdb.top-level.index.size",
    "rocksdb.udi.is.primary.index",
    "rocksdb.user.defined.timestamps.persisted",
];

/// The texts that are needed to read the table.
const TEXTS: [&str; 5] = [
    "rocksdb.block.based.table.whole.key.filtering",
    "rocksdb.column.family.name",
    "rocksdb.comparator",
    "rocksdb.compression",
    "rocksdb.embedded.blob.stats",
];

/// The longest text that is kept.
const TEXT_BYTES_MAX: usize = 4096;

/// A table has no more entries or bytes. So figures of many tables, and products of them with the
/// bits of a key, do not overflow.
const COUNT_MAX: u64 = 1 << 40;

/// The value of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyValue<'a> {
    /// A number.
    Number(u64),
    /// Text, or other bytes.
    Bytes(&'a [u8]),
}

/// The properties that are needed to read and check a table.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    /// Where the block is.
    offset: u64,
    pub(super) numbers: BTreeMap<String, u64>,
    texts: BTreeMap<String, Vec<u8>>,
}

impl Properties {
    /// Reads the block.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub(crate) fn read(file: &BlockFile, handle: BlockHandle) -> Result<Self> {
        let mut properties = Properties { offset: handle.offset, ..Properties::default() };
        each(file, handle, &mut |name, value| {
            let name = String::from_utf8_lossy(name).into_owned();
            match value {
                PropertyValue::Number(number) => _ = properties.numbers.insert(name, number),
                PropertyValue::Bytes(text) if TEXTS.contains(&&*name) => {
                    let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
                    properties.texts.insert(name, text.to_vec());
                }
                PropertyValue::Bytes(_) => {}
            }
            Ok(())
        })?;
        Ok(properties)
    }

    /// The number of this name.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    /// How many entries, blocks or bytes the table of `file` has by this name; 0 without it.
    ///
    /// # Errors
    /// `Corruption` if no table has as many.
    pub(crate) fn count(&self, file: &BlockFile, name: &str) -> Result<u64> {
        let count = self.number(name).unwrap_or_default();
        if count > COUNT_MAX {
            let what = format!("the property {name} is {count}: no table has as many");
            return Err(file.damage(self.offset, what));
        }
        Ok(count)
    }

    /// True if the number of this name is there and not 0.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.number(name).is_some_and(|number| number != 0)
    }

    /// The bytes of this name, of those that are text as a rule.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.texts.get(name).map(Vec::as_slice)
    }

    /// The text of this name; `None` if it is no UTF-8.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.bytes(name).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

/// Calls `call` with every property, in the order of their names.
///
/// # Errors
/// `Io`, `Corruption`; those of `call`.
pub(crate) fn each(
    file: &BlockFile,
    handle: BlockHandle,
    call: &mut dyn FnMut(&[u8], PropertyValue<'_>) -> Result<()>,
) -> Result<()> {
    let contents = file.read_changed_in_place(handle, &global_sequence_at)?;
    let wrong = |what: String| file.damage(handle.offset, what);
    let mut entries = BlockEntries::new(contents).map_err(wrong)?;
    let mut last: Option<Vec<u8>> = None;
    while entries.next().map_err(wrong)? {
        let (name, bytes) = (&entries.key[..], entries.value());
        if last.as_deref().is_some_and(|last| last >= name) {
            return Err(wrong("properties out of order".into()));
        }
        let value = value_of(name, bytes)
            .ok_or_else(|| wrong(format!("a malformed property {}", name.escape_ascii())))?;
        call(name, value)?;
        last = Some(name.to_vec());
    }
    Ok(())
}

fn value_of<'a>(name: &[u8], bytes: &'a [u8]) -> Option<PropertyValue<'a>> {
    let is = |other: &str| name == other.as_bytes();
    let number = if NUMBERS.iter().any(|number| is(number)) {
        let mut decoder = Decoder::new(bytes);
        decoder.varint().filter(|_| decoder.is_empty())?
    } else if is(INDEX_TYPE) || is(EXTERNAL_VERSION) {
        (bytes.len() == 4).then_some(get_u32(bytes, 0)?)?.into()
    } else if is(GLOBAL_SEQUENCE) {
        (bytes.len() == 8).then_some(get_u64(bytes, 0)?)?
    } else {
        return Some(PropertyValue::Bytes(bytes));
    };
    Some(PropertyValue::Number(number))
}

/// The position of the global sequence in the block. It was 0 when the checksum was computed; a
/// database that ingests the table may overwrite it.
fn global_sequence_at(contents: &[u8]) -> Option<Range<usize>> {
    let mut entries = BlockEntries::new(contents.to_vec()).ok()?;
    while entries.next().ok()? {
        if entries.key == GLOBAL_SEQUENCE.as_bytes() {
            let range = entries.value_range();
            return (range.len() == 8).then_some(range);
        }
    }
    None
}
