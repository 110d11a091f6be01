//! LevelDB's record files: logs and manifests.
//!
//! ```text
//! file   := blocks of 32 KiB
//! block  := record* and at most 6 unused bytes
//! record := checksum: u32  length: u16  type: u8  bytes
//! ```
//!
//! A long record has several parts: type 1 is a whole record, 2 a first part, 3 a middle part, 4 a
//! last part. The masked CRC-32C is over type and bytes.

use crate::checksum::masked_crc32c;
use crate::coding::{get_u16, get_u32};
use crate::error;
use siftdb::Result;
use siftdb::env::{Env, RandomFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// The next piece of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A record; it begins at `offset`.
    Record { offset: u64, bytes: Vec<u8> },
    /// No valid record at `offset`. The next step continues in the next block.
    Bad { offset: u64, what: &'static str },
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
}

impl LogReader {
    /// Before the first record.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(env: &dyn Env, path: &Path) -> Result<Self> {
        let file = env.open_random(path).map_err(|source| error::io("open", path, source))?;
        let file_bytes = file.len().map_err(|source| error::io("read", path, source))?;
        let (path, block) = (path.to_path_buf(), Vec::new());
        Ok(LogReader { path, file, file_bytes, start: 0, block, at: 0 })
    }

    /// The next record, bad part, or the end.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn step(&mut self) -> Result<Step> {
        let mut parts: Option<(u64, Vec<u8>)> = None;
        loop {
            let offset = self.start + self.at as u64;
            let bad = |what| Ok(Step::Bad { offset, what });
            let (kind, bytes) = match self.part()? {
                Part::Found(kind, bytes) => (kind, bytes),
                Part::End if parts.is_some() => return bad("the file ends within a record"),
                Part::End => return Ok(Step::End),
                Part::Bad(what) => {
                    self.at = self.block.len();
                    return bad(what);
                }
            };
            match (kind, &mut parts) {
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
                    return bad("parts of records that do not fit together");
                }
            }
        }
    }

    /// The next part of a record in this block, or in the next one.
    fn part(&mut self) -> Result<Part<'_>> {
        if self.block.len() - self.at < HEADER_BYTES {
            let is_cut = self.at < self.block.len() && self.block.len() < BLOCK_BYTES;
            if is_cut {
                return Ok(Part::Bad("the file ends within the header of a record"));
            }
            if !self.load_next()? {
                return Ok(Part::End);
            }
        }
        let rest = self.block.get(self.at..).unwrap_or_default();
        let (Some(checksum), Some(length), Some(&kind)) =
            (get_u32(rest, 0), get_u16(rest, 4), rest.get(6))
        else {
            return Ok(Part::Bad("the file ends within the header of a record"));
        };
        // LevelDB's writer may have reserved the rest of the file.
        if kind == 0 && length == 0 && self.only_zeros_follow()? {
            return Ok(Part::End);
        }
        let rest = self.block.get(self.at..).unwrap_or_default();
        let end = HEADER_BYTES + usize::from(length);
        let Some(bytes) = rest.get(HEADER_BYTES..end) else {
            return Ok(Part::Bad("a record is longer than what is left of its block"));
        };
        if masked_crc32c(&[&[kind], bytes]) != checksum {
            return Ok(Part::Bad("a record fails its checksum"));
        }
        self.at += end;
        Ok(Part::Found(kind, bytes))
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
        loop {
            if self.block.get(self.at..).unwrap_or_default().iter().any(|&byte| byte != 0) {
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
    Bad(&'static str),
    End,
}
