//! Reads blocks of a table of LevelDB or RocksDB: checks their checksums and decompresses them.
//!
//! ```text
//! stored := contents  compression: u8  checksum: u32
//! ```
//!
//! The checksum is over contents and compression. From its format version 6 on, RocksDB adds a
//! number that depends on the file and on the offset of the block. So a sound block of another file
//! or offset fails its check.

use crate::block_handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::checksum::{ChecksumKind, checksum_context};
use crate::coding::{get_u32, get_u64};
use crate::compression::{Failure, decompress};
use crate::error;
use crate::file;
use crate::store::Store;
use siftdb::env::{Env, RandomFile};
use siftdb::{Error, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of a table.
#[derive(Debug)]
pub(crate) struct BlockFile {
    pub path: PathBuf,
    file: Arc<dyn RandomFile>,
    /// The length of the file.
    pub bytes: u64,
    pub store: Store,
    /// Where the footer begins.
    pub blocks_end: u64,
    pub checksum: ChecksumKind,
    /// A number of the file that is part of its checksums; 0 if none is.
    pub checksum_base: u32,
    /// RocksDB: what its blocks were compressed with.
    pub dictionary: Option<Vec<u8>>,
}

impl BlockFile {
    /// Opens the file, with the fields of LevelDB. The caller sets them from the footer.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(env: &dyn Env, path: &Path) -> Result<Self> {
        let (file, bytes) = file::open(env, path)?;
        let path = path.to_path_buf();
        let (store, checksum) = (Store::LevelDb, ChecksumKind::Crc32c);
        Ok(BlockFile {
            path,
            file,
            bytes,
            store,
            blocks_end: bytes,
            checksum,
            checksum_base: 0,
            dictionary: None,
        })
    }

    /// The last eight bytes, which identify the format of a table; `None` if the file is shorter.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn magic(&self) -> Result<Option<u64>> {
        let Some(offset) = self.bytes.checked_sub(8) else { return Ok(None) };
        let mut magic = [0; 8];
        self.read_at(offset, &mut magic)?;
        Ok(get_u64(&magic, 0))
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(offset, buffer);
        read.map_err(|source| error::io("read", &self.path, source))
    }

    /// The error for damage at `offset`.
    pub(crate) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        error::corruption(&self.path, offset, what)
    }

    /// The error for a format that is not read.
    pub(crate) fn unsupported(&self, what: impl Into<String>) -> Error {
        error::unsupported(&self.path, what)
    }

    /// Refuses a block that does not lie within the file, or is of a size that is not read.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn expect_within(&self, handle: BlockHandle) -> Result<()> {
        match handle.lies_within(self.blocks_end) {
            true => Ok(()),
            false => Err(self.damage(handle.offset, "a block that does not lie within the file")),
        }
    }

    /// Reads a block and checks it against its checksum.
    ///
    /// # Errors
    /// `Corruption` if it does not lie within the file or fails its checksum; `Io`.
    pub(crate) fn check(&self, handle: BlockHandle) -> Result<()> {
        self.read_stored(handle).map(drop)
    }

    /// The contents of a block as they are stored, and its compression as the last byte.
    fn read_stored(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let (stored, checksum) = self.read_unchecked(handle)?;
        match checksum == self.checksum_at(handle.offset, &stored) {
            true => Ok(stored),
            false => Err(self.damage(handle.offset, "a block fails its checksum")),
        }
    }

    /// The same without the check, and the checksum.
    fn read_unchecked(&self, handle: BlockHandle) -> Result<(Vec<u8>, u32)> {
        self.expect_within(handle)?;
        let mut stored = vec![0; handle.size as usize + BLOCK_TRAILER_BYTES];
        self.read_at(handle.offset, &mut stored)?;
        let checksum = get_u32(&stored, stored.len() - 4).unwrap_or_default();
        stored.truncate(stored.len() - 4);
        Ok((stored, checksum))
    }

    fn checksum_at(&self, offset: u64, bytes: &[u8]) -> u32 {
        self.checksum.of(bytes).wrapping_add(checksum_context(self.checksum_base, offset))
    }

    /// The contents of the properties block, checked and decompressed. RocksDB may change a range
    /// of it in place and keeps the checksum of the block with zeros there. `changeable` finds it.
    ///
    /// # Errors
    /// As for [`BlockFile::read`].
    pub(crate) fn read_changed_in_place(
        &self,
        handle: BlockHandle,
        changeable: &dyn Fn(&[u8]) -> Option<Range<usize>>,
    ) -> Result<Vec<u8>> {
        let (stored, checksum) = self.read_unchecked(handle)?;
        if checksum == self.checksum_at(handle.offset, &stored) {
            return self.contents(handle, stored);
        }
        let mut as_written = stored.clone();
        let contents = as_written.split_last_mut().filter(|(compression, _)| **compression == 0);
        if let Some((_, contents)) = contents
            && let Some(range) = changeable(contents)
            && let Some(changed) = contents.get_mut(range)
        {
            changed.fill(0);
        }
        match checksum == self.checksum_at(handle.offset, &as_written) {
            true => self.contents(handle, stored),
            false => Err(self.damage(handle.offset, "a block fails its checksum")),
        }
    }

    /// The contents of a block, checked and decompressed.
    ///
    /// # Errors
    /// As for [`BlockFile::check`]; `UnsupportedFormat` for a compression that is not read.
    pub(crate) fn read(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        self.contents(handle, self.read_stored(handle)?)
    }

    /// The contents of a block as it is stored: its last byte is the compression.
    fn contents(&self, handle: BlockHandle, mut stored: Vec<u8>) -> Result<Vec<u8>> {
        let codec = stored.pop().unwrap_or_default();
        decompress(self.store, codec, stored, self.dictionary.as_deref()).map_err(|failure| {
            match failure {
                Failure::Damage(what) => self.damage(handle.offset, what),
                Failure::Unsupported(what) => {
                    self.unsupported(format!("{what}, at byte {}", handle.offset))
                }
            }
        })
    }
}
