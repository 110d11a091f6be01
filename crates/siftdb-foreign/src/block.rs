//! A block of sorted entries, as LevelDB and RocksDB write it.
//!
//! ```text
//! block := entry* values? restart: u32* hash index?  (start of the values: u32)?  restarts: u32
//! entry := shared: varint  own: varint  value: varint  own bytes of the key  bytes of the value
//! hash index := bucket: u8*  buckets: u16
//! ```
//!
//! A key shares its first bytes with the key before it. A restart point is the offset of an entry
//! that shares nothing, for binary searches; the first entry is one. An iterator needs no restart
//! points, but it checks that searches would find them sound. RocksDB keeps flags in the upper bits
//! of `restarts`, one of them for the hash index.
//!
//! From RocksDB 11 on, values may be apart: after all entries, in their order. Then an entry has no
//! bytes of its value, and one at a restart point has the offset of its value among them, as a
//! varint after the lengths.

use crate::coding::{Decoder, get_u16, get_u32};
use std::ops::Range;

/// The block has a hash index.
const HASH_INDEX: u32 = 1 << 31;

/// The keys are spread evenly: a hint for searches.
const UNIFORM: u32 = 1 << 29;

/// The values are apart.
const VALUES_APART: u32 = 1 << 28;

const WRONG_RESTARTS: &str = "its restart points are malformed";

/// An iterator over the entries of a block that passed its checksum.
#[derive(Debug)]
pub(crate) struct BlockEntries {
    contents: Vec<u8>,
    parts: Parts,
    /// Restart points before `next`.
    restarts_passed: usize,
    next: usize,
    /// Where the value of the entry at `next` is, if values are apart.
    next_value: usize,
    /// The key of the entry.
    pub key: Vec<u8>,
    value: Range<usize>,
}

/// Where the parts of a block are.
#[derive(Clone, Copy, Debug)]
struct Parts {
    entries_end: usize,
    values_are_apart: bool,
    restarts_at: usize,
    restarts: usize,
}

impl BlockEntries {
    /// Before the first entry. The error says what is wrong.
    pub(crate) fn new(contents: Vec<u8>) -> Result<Self, String> {
        let parts = parts(&contents).ok_or(WRONG_RESTARTS)?;
        Ok(BlockEntries {
            contents,
            parts,
            restarts_passed: 0,
            next: 0,
            next_value: parts.entries_end,
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
        let Parts { entries_end, values_are_apart, restarts, .. } = self.parts;
        let entries = self.contents.get(self.next..entries_end).unwrap_or_default();
        if entries.is_empty() {
            // A block without entries has a restart point at 0, or none.
            let is_sound = entries_end == 0 || self.restarts_passed == restarts;
            return if is_sound { Ok(None) } else { Err(WRONG_RESTARTS.into()) };
        }
        let malformed = || format!("a malformed entry at byte {} of the block", self.next);
        let is_at_restart = self.is_at_restart();
        let mut decoder = Decoder::new(entries);
        let mut length = || Some(decoder.varint32()? as usize);
        let lengths = (length(), length(), if has_length { length() } else { Some(0) });
        let (Some(shared), Some(own), Some(value)) = lengths else { return Err(malformed()) };
        if values_are_apart && is_at_restart {
            let at = length().and_then(|offset| entries_end.checked_add(offset));
            if at != Some(self.next_value) {
                return Err(malformed());
            }
        }
        let in_entry = if values_are_apart { 0 } else { value };
        let (Some(own), Some(_)) = (decoder.bytes(own), decoder.bytes(in_entry)) else {
            return Err(malformed());
        };
        if shared > self.key.len() {
            return Err(malformed());
        }
        if is_at_restart {
            if shared != 0 {
                return Err(WRONG_RESTARTS.into());
            }
            self.restarts_passed += 1;
        } else if self.next == 0 {
            return Err(WRONG_RESTARTS.into());
        }
        let end = self.next + decoder.position();
        self.value = match values_are_apart {
            false => end - value..end,
            true => self.next_value..self.next_value + value,
        };
        if values_are_apart {
            if !has_length || self.value.end > self.parts.restarts_at {
                return Err(malformed());
            }
            self.next_value = self.value.end;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(own);
        self.next = end;
        Ok(Some(shared))
    }

    /// Whether the entry at `next` is the next restart point. Restart points that are not at an
    /// entry, or not in order, are never passed.
    fn is_at_restart(&self) -> bool {
        let at = self.parts.restarts_at + 4 * self.restarts_passed;
        let restart = get_u32(&self.contents, at).map(|restart| restart as usize);
        self.restarts_passed < self.parts.restarts && restart == Some(self.next)
    }

    /// The bytes of the whole block.
    pub(crate) fn bytes(&self) -> usize {
        self.contents.len()
    }

    /// The entries' bytes after the current entry.
    pub(crate) fn rest(&self) -> &[u8] {
        self.contents.get(self.next..self.parts.entries_end).unwrap_or_default()
    }

    /// Takes the first `bytes` of the rest as the value.
    pub(crate) fn take_value(&mut self, bytes: usize) {
        self.value = self.next..self.next + bytes;
        self.next += bytes;
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

/// Where the parts of a block are; `None` if it is too short for them.
fn parts(contents: &[u8]) -> Option<Parts> {
    let mut end = contents.len().checked_sub(4)?;
    let flags = get_u32(contents, end)?;
    let mut values = None;
    if flags & VALUES_APART != 0 {
        end = end.checked_sub(4)?;
        values = Some(get_u32(contents, end)? as usize);
    }
    if flags & HASH_INDEX != 0 {
        let buckets_end = end.checked_sub(2)?;
        end = buckets_end.checked_sub(get_u16(contents, buckets_end)?.into())?;
    }
    let restarts = (flags & !(HASH_INDEX | UNIFORM | VALUES_APART)) as usize;
    let restarts_at = end.checked_sub(restarts.checked_mul(4)?)?;
    let entries_end = values.unwrap_or(restarts_at);
    let values_are_apart = values.is_some();
    (entries_end <= restarts_at).then_some(Parts {
        entries_end,
        values_are_apart,
        restarts_at,
        restarts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries a to c with values apart, of which a and c are restart points.
    fn apart(offset_of_c: u8) -> Vec<u8> {
        let mut block = b"\x00\x01\x02\x00a\x00\x01\x01b\x00\x01\x01".to_vec();
        block.extend([offset_of_c, b'c']);
        let values_at = block.len() as u32;
        block.extend(b"AABC");
        for number in [0, 9, values_at, VALUES_APART | 2] {
            block.extend(number.to_le_bytes());
        }
        block
    }

    #[test]
    fn values_may_be_apart() {
        let mut entries = BlockEntries::new(apart(3)).unwrap();
        for (key, value) in [(b"a", &b"AA"[..]), (b"b", b"B"), (b"c", b"C")] {
            assert!(entries.next().unwrap());
            assert_eq!((&entries.key[..], entries.value()), (&key[..], value));
        }
        assert!(!entries.next().unwrap());
        let mut wrong = BlockEntries::new(apart(2)).unwrap();
        assert!(wrong.next().unwrap() && wrong.next().unwrap());
        assert!(wrong.next().unwrap_err().contains("malformed"));
        let mut beyond = apart(3);
        beyond[2] = 9;
        assert!(BlockEntries::new(beyond).unwrap().next().is_err());
    }
}
