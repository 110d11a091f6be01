//! Reads the blocks of a table of LevelDB or RocksDB: checked against their checksum, and
//! decompressed.
//!
//! ```text
//! stored := contents  compression: u8  checksum: u32
//! ```
//!
//! The checksum is over contents and compression. From its format version 6 on, RocksDB adds a
//! number that depends on the file and on the offset of the block, so that a sound block of another
//! file or place does not pass.

use crate::base::coding::{get_u32, get_u64};
use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::env::api::{Env, RandomFile};
use crate::foreign::checksum::masked_crc32c;
use crate::foreign::xxhash::{xxh3_64, xxh32, xxh64};
use crate::table::format::{BLOCK_TRAILER_BYTES, BlockHandle};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Snappy makes nothing smaller than a 22nd.
const SNAPPY_FACTOR: usize = 24;

/// What the last byte is multiplied by in checksums of XXH3, which RocksDB takes without it.
const LAST_BYTE_FACTOR: u32 = 0x6b90_83d9;

/// The checksum after each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ChecksumKind {
    None = 0,
    Crc32c = 1,
    XxHash32 = 2,
    XxHash64 = 3,
    Xxh3 = 4,
}

impl ChecksumKind {
    /// The kind of a stored byte.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        use ChecksumKind::{Crc32c, None, XxHash32, XxHash64, Xxh3};
        [None, Crc32c, XxHash32, XxHash64, Xxh3].into_iter().find(|kind| *kind as u8 == byte)
    }

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ChecksumKind::None => "none",
            ChecksumKind::Crc32c => "CRC-32C",
            ChecksumKind::XxHash32 => "xxHash",
            ChecksumKind::XxHash64 => "xxHash64",
            ChecksumKind::Xxh3 => "XXH3",
        }
    }

    /// The checksum of `bytes`. RocksDB keeps the lower half of longer ones.
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        match self {
            ChecksumKind::None => 0,
            ChecksumKind::Crc32c => masked_crc32c(&[bytes]),
            ChecksumKind::XxHash32 => xxh32(bytes),
            ChecksumKind::XxHash64 => xxh64(bytes) as u32,
            ChecksumKind::Xxh3 => bytes.split_last().map_or(0, |(&last, front)| {
                xxh3_64(front) as u32 ^ u32::from(last).wrapping_mul(LAST_BYTE_FACTOR)
            }),
        }
    }
}

/// What format version 6 adds to the checksum of what is at `offset`. A `base` of 0 adds nothing.
pub(crate) fn checksum_context(base: u32, offset: u64) -> u32 {
    match base {
        0 => 0,
        base => base ^ (offset as u32).wrapping_add((offset >> 32) as u32),
    }
}

/// The name of a compression, if it has one.
pub(crate) fn compression_name(kind: u8) -> &'static str {
    match kind {
        0 => "none",
        1 => "Snappy",
        2 => "zlib",
        3 => "bzip2",
        4 => "LZ4",
        5 => "LZ4HC",
        6 => "XPRESS",
        7 => "zstd",
        _ => "unknown",
    }
}

/// The file of a table.
#[derive(Debug)]
pub(crate) struct BlockFile {
    path: PathBuf,
    file: Arc<dyn RandomFile>,
    bytes: u64,
    /// Where the footer begins.
    pub blocks_end: u64,
    pub checksum: ChecksumKind,
    /// The number of the file that checksums depend on; 0 if they do not.
    pub checksum_base: u32,
}

impl BlockFile {
    /// Opens the file. The footer sets the fields.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(env: &dyn Env, path: &Path) -> Result<Self> {
        let file = env.open_random(path).map_err(|error| Error::io("open", path, error))?;
        let bytes = file.len().map_err(|error| Error::io("metadata", path, error))?;
        let path = path.to_path_buf();
        let checksum = ChecksumKind::Crc32c;
        Ok(BlockFile { path, file, bytes, blocks_end: bytes, checksum, checksum_base: 0 })
    }

    /// The last eight bytes, by which tables are recognized; `None` if it is shorter.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn magic(&self) -> Result<Option<u64>> {
        let Some(offset) = self.bytes.checked_sub(8) else { return Ok(None) };
        let mut magic = [0; 8];
        self.read_at(offset, &mut magic)?;
        Ok(get_u64(&magic, 0))
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(offset, buffer);
        read.map_err(|error| Error::io("read", &self.path, error))
    }

    /// The error for damage at `offset`.
    pub(crate) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }

    /// The error for a format that is not read.
    pub(crate) fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::UnsupportedFormat { path: self.path.clone(), what: what.into() }
    }

    /// A block as it is stored: its contents and its compression.
    ///
    /// # Errors
    /// `Corruption` if it does not lie within the file or fails its checksum; `Io`.
    pub(crate) fn read_stored(&self, handle: BlockHandle) -> Result<(Vec<u8>, u8)> {
        let (mut stored, checksum) = self.read_unchecked(handle)?;
        if checksum != self.checksum_at(handle.offset, &stored) {
            return Err(self.damage(handle.offset, "a block fails its checksum"));
        }
        let compression = stored.pop().unwrap_or_default();
        Ok((stored, compression))
    }

    /// Contents and compression of a block, and its checksum.
    fn read_unchecked(&self, handle: BlockHandle) -> Result<(Vec<u8>, u32)> {
        if !handle.lies_within(self.blocks_end) {
            let what = "a block that does not lie within the file";
            return Err(self.damage(handle.offset, what));
        }
        let mut stored = vec![0; handle.size as usize + BLOCK_TRAILER_BYTES];
        self.read_at(handle.offset, &mut stored)?;
        let checksum = get_u32(&stored, stored.len() - 4).unwrap_or_default();
        stored.truncate(stored.len() - 4);
        Ok((stored, checksum))
    }

    fn checksum_at(&self, offset: u64, bytes: &[u8]) -> u32 {
        self.checksum.of(bytes).wrapping_add(checksum_context(self.checksum_base, offset))
    }

    /// The contents of a block that is not compressed. If it fails its checksum, it is checked as
    /// if the bytes that `zeroed` names were zeros: these may have been changed in place.
    ///
    /// # Errors
    /// As for [`BlockFile::read`].
    pub(crate) fn read_but_for(
        &self,
        handle: BlockHandle,
        zeroed: &dyn Fn(&[u8]) -> Option<Range<usize>>,
    ) -> Result<Vec<u8>> {
        let (mut stored, checksum) = self.read_unchecked(handle)?;
        if checksum == self.checksum_at(handle.offset, &stored) {
            return self.read(handle);
        }
        let compression = stored.pop().unwrap_or_default();
        let mut as_written = stored.clone();
        if let Some(bytes) = zeroed(&stored).and_then(|range| as_written.get_mut(range)) {
            bytes.fill(0);
        }
        as_written.push(compression);
        if compression != 0 || checksum != self.checksum_at(handle.offset, &as_written) {
            return Err(self.damage(handle.offset, "a block fails its checksum"));
        }
        Ok(stored)
    }

    /// The contents of a block, checked and decompressed.
    ///
    /// # Errors
    /// As for [`BlockFile::read_stored`]; `UnsupportedFormat` for a compression that is not read.
    pub(crate) fn read(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        match self.read_stored(handle)? {
            (stored, 0) => Ok(stored),
            (stored, 1) => decompress(&stored).map_err(|what| self.damage(handle.offset, what)),
            (_, kind) => Err(self.unsupported(format!(
                "compression {} ({kind}) at byte {}; read are none (0) and Snappy (1)",
                compression_name(kind),
                handle.offset
            ))),
        }
    }
}

fn decompress(compressed: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let declared = snap::raw::decompress_len(compressed).map_err(|error| error.to_string())?;
    if declared > compressed.len().saturating_mul(SNAPPY_FACTOR) {
        return Err(format!("a block declares {declared} bytes from {}", compressed.len()));
    }
    snap::raw::Decoder::new().decompress_vec(compressed).map_err(|error| error.to_string())
}
