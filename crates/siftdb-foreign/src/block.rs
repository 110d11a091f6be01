//! A block of sorted entries, as LevelDB and RocksDB write it.
//!
//! ```text
//! block := entry* restart: u32* hash index?  restarts: u32
//! entry := shared: varint  own: varint  value: varint  own bytes of the key  bytes of the value
//! hash index := bucket: u8*  buckets: u16
//! ```
//!
//! A key shares its first bytes with the key before it. A restart point is the offset of an entry
//! that shares nothing, for binary searches; the first entry is one. An iterator needs no restart
//! points, but it checks that searches would find them sound. RocksDB keeps flags in the upper bits
//! of `restarts`, one of them for the hash index.

use crate::coding::{Decoder, get_u16, get_u32};
use std::ops::Range;

/// The block has a hash index.
const HASH_INDEX: u32 = 1 << 31;

/// The keys are spread evenly: a hint for searches.
const UNIFORM: u32 = 1 << 29;

const WRONG_RESTARTS: &str = "its restart points are malformed";

/// An iterator over the entries of a block that passed its checksum.
#[derive(Debug)]
pub(crate) struct BlockEntries {
    contents: Vec<u8>,
    /// The restart points begin here.
    entries_end: usize,
    restarts: usize,
    /// Restart points before `next`.
    restarts_passed: usize,
    next: usize,
    key: Vec<u8>,
    value: Range<usize>,
}

impl BlockEntries {
    /// Before the first entry. The error says what is wrong.
    pub(crate) fn new(contents: Vec<u8>) -> Result<Self, String> {
        let (entries_end, restarts) = restarts(&contents).ok_or(WRONG_RESTARTS)?;
        Ok(BlockEntries {
            contents,
            entries_end,
            restarts,
            restarts_passed: 0,
            next: 0,
            key: Vec::new(),
            value: 0..0,
        })
    }

    /// Moves to the next entry; false after the last. The error says what is wrong.
    pub(crate) fn next(&mut self) -> Result<bool, String> {
        self.step(true).map(|shared| shared.is_some())
    }

    /// Moves to the next entry of a block that stores no lengths of values. The value begins
    /// [`rest`](Self::rest), and [`take_value`](Self::take_value) must follow. Returns how many
    /// bytes the key shares with the key before it; `None` after the last entry. The error says
    /// what is wrong.
    pub(crate) fn next_key(&mut self) -> Result<Option<usize>, String> {
        self.step(false)
    }

    fn step(&mut self, has_length: bool) -> Result<Option<usize>, String> {
        let entries = self.contents.get(self.next..self.entries_end).unwrap_or_default();
        if entries.is_empty() {
            // A block without entries has a restart point at 0, or none.
            let is_sound = self.entries_end == 0 || self.restarts_passed == self.restarts;
            return if is_sound { Ok(None) } else { Err(WRONG_RESTARTS.into()) };
        }
        let malformed = || format!("a malformed entry at byte {} of the block", self.next);
        let mut decoder = Decoder::new(entries);
        let mut length = || Some(decoder.varint32()? as usize);
        let lengths = (length(), length(), if has_length { length() } else { Some(0) });
        let (Some(shared), Some(own), Some(value)) = lengths else { return Err(malformed()) };
        let (Some(own), Some(_)) = (decoder.bytes(own), decoder.bytes(value)) else {
            return Err(malformed());
        };
        if shared > self.key.len() {
            return Err(malformed());
        }
        if self.is_at_restart() {
            if shared != 0 {
                return Err(WRONG_RESTARTS.into());
            }
            self.restarts_passed += 1;
        } else if self.next == 0 {
            return Err(WRONG_RESTARTS.into());
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(own);
        self.next += decoder.position();
        self.value = self.next - value..self.next;
        Ok(Some(shared))
    }

    /// Whether the entry at `next` is the next restart point. Restart points that are not at an
    /// entry, or not in order, are never passed.
    fn is_at_restart(&self) -> bool {
        let at = self.entries_end + 4 * self.restarts_passed;
        let restart = get_u32(&self.contents, at).map(|restart| restart as usize);
        self.restarts_passed < self.restarts && restart == Some(self.next)
    }

    /// The entries' bytes after the current entry.
    pub(crate) fn rest(&self) -> &[u8] {
        self.contents.get(self.next..self.entries_end).unwrap_or_default()
    }

    /// Takes the first `bytes` of the rest as the value.
    pub(crate) fn take_value(&mut self, bytes: usize) {
        self.value = self.next..self.next + bytes;
        self.next += bytes;
    }

    /// The key of the entry.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Where the block has the value of the entry.
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.value.clone()
    }

    /// The value of the entry.
    pub(crate) fn value(&self) -> &[u8] {
        self.contents.get(self.value.clone()).unwrap_or_default()
    }
}

/// Where the restart points begin, and how many there are.
fn restarts(contents: &[u8]) -> Option<(usize, usize)> {
    let mut restarts_end = contents.len().checked_sub(4)?;
    let flags = get_u32(contents, restarts_end)?;
    if flags & HASH_INDEX != 0 {
        let buckets_end = restarts_end.checked_sub(2)?;
        restarts_end = buckets_end.checked_sub(get_u16(contents, buckets_end)?.into())?;
    }
    let restarts = (flags & !(HASH_INDEX | UNIFORM)) as usize;
    Some((restarts_end.checked_sub(restarts.checked_mul(4)?)?, restarts))
}
