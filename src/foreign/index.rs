//! Blocks of an index: for each block that they name a key at or above its keys, and its handle.
//!
//! From its format version 4 on, RocksDB leaves out the length of a handle, and of a handle whose
//! key shares bytes with the one before it all but the difference of the sizes: the block begins
//! where the one before it ends. It may also leave sequence and kind out of the keys.

use crate::base::coding::Decoder;
use crate::base::key::{compare_internal, user_key};
use crate::foreign::block::BlockEntries;
use crate::table::format::{BLOCK_TRAILER_BYTES, BlockHandle};
use std::cmp::Ordering;

/// How an index is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexStyle {
    /// The index names blocks of an index.
    pub is_partitioned: bool,
    /// Handles have no lengths and may be differences.
    pub has_delta_values: bool,
    /// Keys are without sequence and kind.
    pub has_user_keys: bool,
    /// After a handle is the first key of its block.
    pub has_first_keys: bool,
}

impl IndexStyle {
    /// The same without first keys, which only name data blocks.
    pub(crate) fn without_first_keys(self) -> Self {
        IndexStyle { has_first_keys: false, ..self }
    }

    /// The user key of a key of the index.
    pub(crate) fn user_key(self, key: &[u8]) -> &[u8] {
        if self.has_user_keys { key } else { user_key(key) }
    }

    /// The order of keys of the index.
    pub(crate) fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        if self.has_user_keys { a.cmp(b) } else { compare_internal(a, b) }
    }
}

/// A walk over the entries of one block of an index.
#[derive(Debug)]
pub(crate) struct IndexEntries {
    entries: BlockEntries,
    style: IndexStyle,
    handle: BlockHandle,
    first_key: Option<Vec<u8>>,
}

impl IndexEntries {
    /// Before the first entry. The error says what is wrong.
    pub(crate) fn new(contents: Vec<u8>, style: IndexStyle) -> Result<Self, String> {
        let (entries, handle) = (BlockEntries::new(contents)?, BlockHandle::default());
        Ok(IndexEntries { entries, style, handle, first_key: None })
    }

    /// Goes to the next entry; false behind the last. The error says what is wrong.
    pub(crate) fn next(&mut self) -> Result<bool, String> {
        let is_delta = match self.style.has_delta_values {
            true => self.entries.next_key()?.map(|shared| shared > 0),
            false => self.entries.next()?.then_some(false),
        };
        let Some(is_delta) = is_delta else { return Ok(false) };
        let bytes = match self.style.has_delta_values {
            true => self.entries.rest(),
            false => self.entries.value(),
        };
        let decoded = decode(bytes, self.style, is_delta.then_some(self.handle));
        let Some((handle, first_key, used)) = decoded else {
            return Err("a malformed handle in the index".into());
        };
        if !self.style.has_delta_values && used != bytes.len() {
            return Err("a malformed handle in the index".into());
        }
        (self.handle, self.first_key) = (handle, first_key.map(<[u8]>::to_vec));
        if self.style.has_delta_values {
            self.entries.take_value(used);
        }
        Ok(true)
    }

    /// A key at or above all keys of the block.
    pub(crate) fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// Where the block is.
    pub(crate) fn handle(&self) -> BlockHandle {
        self.handle
    }

    /// The first key of the block, if the index has it.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.first_key.as_deref()
    }
}

/// Handle, first key, and the bytes that both take.
fn decode(
    bytes: &[u8],
    style: IndexStyle,
    before: Option<BlockHandle>,
) -> Option<(BlockHandle, Option<&[u8]>, usize)> {
    let mut decoder = Decoder::new(bytes);
    let handle = match before {
        Some(before) => {
            let zigzag = decoder.varint()?;
            let difference = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            let end = before.offset.checked_add(before.size)?;
            BlockHandle {
                offset: end.checked_add(BLOCK_TRAILER_BYTES as u64)?,
                size: before.size.checked_add_signed(difference)?,
            }
        }
        None => BlockHandle { offset: decoder.varint()?, size: decoder.varint()? },
    };
    let first_key = match style.has_first_keys {
        true => {
            let length = decoder.varint32()? as usize;
            Some(decoder.bytes(length)?)
        }
        false => None,
    };
    Some((handle, first_key, decoder.position()))
}
