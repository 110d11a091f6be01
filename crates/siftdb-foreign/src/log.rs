//! The record files of LevelDB and RocksDB: logs and manifests.
//!
//! ```text
//! file   := blocks of 32 KiB
//! block  := record* and at most 6 unused bytes
//! record := checksum: u32  length: u16  type: u8  (number of the log: u32)?  bytes
//! ```
//!
//! A long record has several parts: type 1 is a whole record, 2 a first part, 3 a middle part, 4 a
//! last part. The masked CRC-32C is over everything from the type on.
//!
//! RocksDB may write a log over an old one. Parts of such a log have the types 5 to 8 and its
//! number (the lower half). The first part with another number is what is left of the old one, and
//! the log ends there. RocksDB's other types say how records are written, and are no records.

use crate::checksum::masked_crc32c;
use crate::coding::{get_u16, get_u32};
use crate::error;
use crate::file;
use crate::store::Store;
use siftdb::Result;
use siftdb::env::{Env, RandomFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
const NUMBER_BYTES: usize = 4;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// The difference of the types of parts in a log that was written over another one.
const RECYCLED: u8 = 4;

/// RocksDB: how the following records are compressed.
const COMPRESSION: u8 = 9;
/// RocksDB: the sizes of timestamps, of which no family that is read has any; with and without the
/// number of the log.
const TIMESTAMP_SIZES: [u8; 2] = [10, 11];
/// RocksDB: the bit of types that a reader need not know. The lowest bit of these says whether the
/// number of the log is there.
const IGNORABLE: u8 = 0x80;

/// The next piece of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A record; it begins at `offset`.
    Record { offset: u64, bytes: Vec<u8> },
    /// No valid record at `offset`. The next step continues in the next block.
    Bad {
        offset: u64,
        what: &'static str,
        /// The file ends too early, as after a crash.
        is_cut: bool,
    },
    /// A compressed record.
    Compressed,
    /// The end of the file.
    End,
}

/// Reads one record after the other, a block at a time.
#[derive(Debug)]
pub(crate) struct LogReader {
    path: PathBuf,
    file: Arc<dyn RandomFile>,
    file_bytes: u64,
    /// The offset of the block in memory.
    start: u64,
    block: Vec<u8>,
    /// The next byte to read in the block.
    at: usize,
    store: Store,
    /// The lower half of the log's number, which parts of a log of RocksDB may have.
    number: u32,
    /// A part with a number was read: the log was written over another one.
    pub is_recycled: bool,
    /// The records are compressed, if there are any.
    is_compressed: bool,
    /// The end of the first block, of those that were searched, with other bytes than zeros.
    not_zeros_before: u64,
}

impl LogReader {
    /// Before the first record. `number` is the number of a log, and 0 of a manifest.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(env: &dyn Env, path: &Path, store: Store, number: u64) -> Result<Self> {
        let (file, file_bytes) = file::open(env, path)?;
        let (path, block, number) = (path.to_path_buf(), Vec::new(), number as u32);
        Ok(LogReader {
            path,
            file,
            file_bytes,
            start: 0,
            block,
            at: 0,
            store,
            number,
            is_recycled: false,
            is_compressed: false,
            not_zeros_before: 0,
        })
    }

    /// The next record, bad part, or the end.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn step(&mut self) -> Result<Step> {
        let mut parts: Option<(u64, Vec<u8>)> = None;
        loop {
            let offset = self.start + self.at as u64;
            let bad = |what, is_cut| Ok(Step::Bad { offset, what, is_cut });
            let is_compressed = self.is_compressed;
            let (kind, bytes) = match self.part()? {
                Part::Found(kind, bytes) => (kind, bytes),
                Part::End if parts.is_some() => return bad("the file ends within a record", true),
                Part::End => return Ok(Step::End),
                Part::Bad { what, is_cut } => {
                    self.at = self.block.len();
                    return bad(what, is_cut);
                }
            };
            match (kind, &mut parts) {
                (COMPRESSION, None) => self.is_compressed = bytes.iter().any(|&byte| byte != 0),
                (WHOLE | FIRST, _) if is_compressed => return Ok(Step::Compressed),
                (kind, _) if TIMESTAMP_SIZES.contains(&kind) || kind & IGNORABLE != 0 => {}
                (WHOLE, None) => return Ok(Step::Record { offset, bytes: bytes.to_vec() }),
                (FIRST, None) => parts = Some((offset, bytes.to_vec())),
                (MIDDLE, Some((_, record))) => record.extend_from_slice(bytes),
                (LAST, Some((_, record))) => {
                    record.extend_from_slice(bytes);
                    let (offset, bytes) = parts.unwrap_or_default();
                    return Ok(Step::Record { offset, bytes });
                }
                _ => {
                    // A record that begins here is whole: it is read again after this step.
                    if matches!(kind, WHOLE | FIRST) {
                        self.at = (offset - self.start) as usize;
                    }
                    return bad("parts of records that do not fit together", false);
                }
            }
        }
    }

    /// The next part of a record in this block, or in the next one.
    fn part(&mut self) -> Result<Part<'_>> {
        const IN_HEADER: &str = "the file ends within the header of a record";
        if self.block.len() - self.at < HEADER_BYTES {
            let is_cut = self.at < self.block.len() && self.block.len() < BLOCK_BYTES;
            if is_cut {
                return Ok(Part::Bad { what: IN_HEADER, is_cut });
            }
            if !self.load_next()? {
                return Ok(Part::End);
            }
        }
        let is_last = self.start + self.block.len() as u64 == self.file_bytes;
        let rest = self.block.get(self.at..).unwrap_or_default();
        let (Some(checksum), Some(length), Some(&kind)) =
            (get_u32(rest, 0), get_u16(rest, 4), rest.get(6))
        else {
            return Ok(Part::Bad { what: IN_HEADER, is_cut: is_last });
        };
        // The writer may have reserved the rest of the file.
        if kind == 0 && length == 0 && self.only_zeros_follow()? {
            return Ok(Part::End);
        }
        let rest = self.block.get(self.at..).unwrap_or_default();
        let (as_part, has_number) = kind_of(kind, self.store);
        let header_bytes = HEADER_BYTES + if has_number { NUMBER_BYTES } else { 0 };
        let end = header_bytes + usize::from(length);
        let (Some(checked), Some(bytes)) = (rest.get(6..end), rest.get(header_bytes..end)) else {
            let what = "a record is longer than what is left of its block";
            return Ok(Part::Bad { what, is_cut: is_last });
        };
        if masked_crc32c(&[checked]) != checksum {
            return Ok(Part::Bad { what: "a record fails its checksum", is_cut: false });
        }
        self.is_recycled |= has_number;
        // What is left of the old log is sound; else a changed number would hide what follows.
        if has_number && get_u32(rest, HEADER_BYTES) != Some(self.number) {
            return Ok(Part::End);
        }
        self.at += end;
        Ok(Part::Found(as_part, bytes))
    }

    /// Reads the next block; false at the end of the file.
    fn load_next(&mut self) -> Result<bool> {
        self.start += self.block.len() as u64;
        self.at = 0;
        let left = self.file_bytes.saturating_sub(self.start);
        self.block.resize(left.min(BLOCK_BYTES as u64) as usize, 0);
        let read = self.file.read_exact_at(self.start, &mut self.block);
        read.map_err(|source| error::io("read", &self.path, source))?;
        Ok(!self.block.is_empty())
    }

    /// Whether the file has nothing but zeros from here on. If so, it was read to its end.
    fn only_zeros_follow(&mut self) -> Result<bool> {
        let (start, at) = (self.start, self.at);
        // Each block may begin with zeros: what follows is searched once, not for each of them.
        if start + (self.block.len() as u64) < self.not_zeros_before {
            return Ok(false);
        }
        loop {
            if self.block.get(self.at..).unwrap_or_default().iter().any(|&byte| byte != 0) {
                self.not_zeros_before = self.start + self.block.len() as u64;
                // Back to the block that was being read.
                self.start = start;
                self.block.clear();
                self.load_next()?;
                self.at = at;
                return Ok(false);
            }
            if !self.load_next()? {
                return Ok(true);
            }
        }
    }
}

/// A part of a record.
enum Part<'a> {
    Found(u8, &'a [u8]),
    Bad { what: &'static str, is_cut: bool },
    End,
}

/// The type of a part without the difference that a number makes, and whether it has a number.
/// LevelDB has no parts with a number, and none of RocksDB's own types.
fn kind_of(kind: u8, store: Store) -> (u8, bool) {
    const RECYCLED_FIRST: u8 = WHOLE + RECYCLED;
    const RECYCLED_LAST: u8 = LAST + RECYCLED;
    match (store, kind) {
        (Store::LevelDb, COMPRESSION.. | RECYCLED_FIRST..=RECYCLED_LAST) => (0, false),
        (Store::RocksDb, RECYCLED_FIRST..=RECYCLED_LAST) => (kind - RECYCLED, true),
        (Store::RocksDb, kind) if kind > COMPRESSION => (kind, kind & 1 == 1),
        _ => (kind, false),
    }
}
