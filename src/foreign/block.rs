//! A block of sorted entries, as LevelDB and RocksDB write it.
//!
//! ```text
//! block := entry* restart: u32* restarts: u32
//! entry := shared: varint  own: varint  value: varint  own bytes of the key  bytes of the value
//! ```
//!
//! A key shares its first bytes with the key before it. Restart points, where nothing is shared,
//! are for searches; a walk over the entries needs none.

use crate::base::coding::{Decoder, get_u32};
use std::ops::Range;

/// A walk over the entries of a block that was checked against its checksum.
#[derive(Debug)]
pub(crate) struct BlockEntries {
    contents: Vec<u8>,
    entries_end: usize,
    next: usize,
    key: Vec<u8>,
    value: Range<usize>,
}

impl BlockEntries {
    /// Before the first entry. The error says what is wrong.
    pub(crate) fn new(contents: Vec<u8>) -> Result<Self, String> {
        let entries_end = entries_end(&contents).ok_or("its restart points are malformed")?;
        Ok(BlockEntries { contents, entries_end, next: 0, key: Vec::new(), value: 0..0 })
    }

    /// Goes to the next entry; false behind the last. The error says what is wrong.
    pub(crate) fn next(&mut self) -> Result<bool, String> {
        let entries = self.contents.get(self.next..self.entries_end).unwrap_or_default();
        if entries.is_empty() {
            return Ok(false);
        }
        let malformed = || format!("a malformed entry at byte {} of the block", self.next);
        let mut decoder = Decoder::new(entries);
        let mut length = || Some(decoder.varint32()? as usize);
        let lengths = (length(), length(), length());
        let (Some(shared), Some(own), Some(value)) = lengths else { return Err(malformed()) };
        let (Some(own), Some(_)) = (decoder.bytes(own), decoder.bytes(value)) else {
            return Err(malformed());
        };
        if shared > self.key.len() {
            return Err(malformed());
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(own);
        self.next += decoder.position();
        self.value = self.next - value..self.next;
        Ok(true)
    }

    /// The key of the entry.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value of the entry.
    pub(crate) fn value(&self) -> &[u8] {
        self.contents.get(self.value.clone()).unwrap_or_default()
    }
}

fn entries_end(contents: &[u8]) -> Option<usize> {
    let count_at = contents.len().checked_sub(4)?;
    let restarts = get_u32(contents, count_at)? as usize;
    count_at.checked_sub(restarts.checked_mul(4)?)
}
