//! Blocks of an index. An entry has a key, which is at or above all keys of one block, and the
//! handle of that block.
//!
//! From its format version 4 on, RocksDB shortens the entries. Handles have no length before them.
//! If the key of an entry shares bytes with the key before it, the handle is only the difference of
//! its size to the size before it: the block begins where the previous one ends. Keys may have no
//! sequence and kind.

use crate::block::BlockEntries;
use crate::block_handle::BlockHandle;
use crate::coding::Decoder;
use crate::internal_key::user_key;
use crate::key_order::KeyOrder;
use std::cmp::Ordering;

/// How an index is written, and the order of its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexStyle {
    /// The index names its partitions, which name the data blocks.
    pub is_partitioned: bool,
    /// Handles have no lengths and may be differences.
    pub has_delta_values: bool,
    /// Keys are without sequence and kind.
    pub has_user_keys: bool,
    /// The first key of a block is stored after its handle.
    pub has_first_keys: bool,
    /// The order of the user keys of its table.
    pub order: KeyOrder,
}

impl IndexStyle {
    /// The style of an index of partitions: only entries for data blocks have first keys.
    pub(crate) fn without_first_keys(self) -> Self {
        IndexStyle { has_first_keys: false, ..self }
    }

    /// The user key of a key of the index.
    pub(crate) fn user_key(self, key: &[u8]) -> &[u8] {
        if self.has_user_keys { key } else { user_key(key) }
    }

    /// The order of keys of the index.
    pub(crate) fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self.has_user_keys {
            true => self.order.compare(a, b),
            false => self.order.compare_internal(a, b),
        }
    }

    /// The order of the internal key of an entry and a key of the index.
    pub(crate) fn compare_entry(self, internal_key: &[u8], key: &[u8]) -> Ordering {
        match self.has_user_keys {
            true => self.order.compare(user_key(internal_key), key),
            false => self.order.compare_internal(internal_key, key),
        }
    }
}

/// An iterator over the entries of one block of an index.
#[derive(Debug)]
pub(crate) struct IndexEntries {
    entries: BlockEntries,
    style: IndexStyle,
    /// Where the block is.
    pub handle: BlockHandle,
    first_key: Option<Vec<u8>>,
}

impl IndexEntries {
    /// Before the first entry. The error says what is wrong.
    pub(crate) fn new(contents: Vec<u8>, style: IndexStyle) -> Result<Self, String> {
        let (entries, handle) = (BlockEntries::new(contents)?, BlockHandle::default());
        Ok(IndexEntries { entries, style, handle, first_key: None })
    }

    /// Moves to the next entry; false after the last. The error says what is wrong.
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

    /// The bytes of the whole block of the index.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    /// A key at or above all keys of the block.
    pub(crate) fn key(&self) -> &[u8] {
        &self.entries.key
    }

    /// The first key of the block, if the index has it.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.first_key.as_deref()
    }
}

/// The handle and the first key at the start of `bytes`, and how many bytes they take. `before` is
/// the handle of the previous entry, if this one is stored as a difference to it.
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
            BlockHandle { offset: before.end()?, size: before.size.checked_add_signed(difference)? }
        }
        None => BlockHandle::read(&mut decoder)?,
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
