//! LevelDB's tables.
//!
//! ```text
//! table   := data block*  filter block?  metaindex block  index block  footer
//! stored  := contents  compression: u8  checksum: u32
//! footer  := handle of the metaindex  handle of the index  zeros up to 40 bytes  magic: u64
//! ```
//!
//! The masked CRC-32C is over contents and compression. The index names every data block.

use crate::base::coding::{Decoder, get_u32, get_u64};
use crate::base::error::{Error, Result};
use crate::base::iterator::api::InternalIterator;
use crate::base::key::{compare_internal, split_internal_key};
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::env::api::{Env, RandomFile};
use crate::foreign::block::BlockEntries;
use crate::foreign::checksum::masked_crc32c;
use crate::foreign::damage::Damage;
use crate::foreign::leveldb::filter::TableFilter;
use crate::foreign::leveldb::manifest::TableFacts;
use crate::table::format::BlockHandle;
use std::path::{Path, PathBuf};

const FOOTER_BYTES: usize = 48;
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const TRAILER_BYTES: usize = 5;

/// Snappy makes nothing smaller than a 22nd.
const SNAPPY_FACTOR: usize = 24;

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    file: Arc<dyn RandomFile>,
    /// Where the footer begins.
    blocks_end: u64,
    bytes: u64,
    /// The data blocks in order, each with an internal key at or above all of its keys.
    blocks: Vec<(Vec<u8>, BlockHandle)>,
    metaindex: BlockHandle,
}

impl Table {
    /// Opens a table and reads its index. `expected_bytes` is what the manifest says.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn open(env: &dyn Env, path: &Path, expected_bytes: Option<u64>) -> Result<Self> {
        let file = env.open_random(path).map_err(|error| Error::io("open", path, error))?;
        let bytes = file.len().map_err(|error| Error::io("metadata", path, error))?;
        if let Some(expected) = expected_bytes.filter(|&expected| expected != bytes) {
            let what = format!("the file has {bytes} bytes, the manifest says {expected}");
            return Err(Error::corruption(path, bytes.min(expected), what));
        }
        let Some(blocks_end) = bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Err(Error::corruption(path, 0, "the file is too short for a table"));
        };
        let path = path.to_path_buf();
        let metaindex = BlockHandle::default();
        let mut table = Table { path, file, blocks_end, bytes, blocks: Vec::new(), metaindex };
        let (metaindex, index) = table.read_footer()?;
        table.metaindex = metaindex;
        table.blocks = table.read_index(index)?;
        Ok(table)
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The data blocks in order, each with an internal key at or above all of its keys.
    pub(crate) fn blocks(&self) -> &[(Vec<u8>, BlockHandle)] {
        &self.blocks
    }

    /// The filter block, if it has one.
    ///
    /// # Errors
    /// As for [`Table::open`].
    pub(crate) fn filter(&self) -> Result<Option<TableFilter>> {
        let at = |handle: BlockHandle| {
            move |what: String| Error::corruption(&self.path, handle.offset, what)
        };
        let wrong = at(self.metaindex);
        let mut entries = BlockEntries::new(self.read_block(self.metaindex)?).map_err(&wrong)?;
        while entries.next().map_err(&wrong)? {
            let Some(policy) = entries.key().strip_prefix(b"filter.") else { continue };
            let handle = BlockHandle::decode(entries.value());
            let handle = handle.ok_or_else(|| wrong("a malformed handle".into()))?;
            let policy = String::from_utf8_lossy(policy).into_owned();
            let filter = TableFilter::new(policy, self.read_block(handle)?);
            return filter.map(Some).map_err(at(handle));
        }
        Ok(None)
    }

    /// The entries of a block.
    ///
    /// # Errors
    /// As for [`Table::open`].
    pub(crate) fn entries(&self, block: BlockHandle) -> Result<BlockEntries> {
        BlockEntries::new(self.read_block(block)?).map_err(|what| self.damage(block, what))
    }

    /// The error for damage in a block.
    pub(crate) fn damage(&self, block: BlockHandle, what: String) -> Error {
        Error::corruption(&self.path, block.offset, what)
    }

    /// The handles of metaindex and index.
    fn read_footer(&self) -> Result<(BlockHandle, BlockHandle)> {
        let mut footer = [0; FOOTER_BYTES];
        self.read_at(self.blocks_end, &mut footer)?;
        let malformed = |what| Error::corruption(&self.path, self.blocks_end, what);
        if get_u64(&footer, FOOTER_BYTES - 8) != Some(MAGIC) {
            return Err(malformed("it does not end with the magic number of LevelDB's tables"));
        }
        let mut decoder = Decoder::new(&footer[..FOOTER_BYTES - 8]);
        let mut handle =
            || Some(BlockHandle { offset: decoder.varint()?, size: decoder.varint()? });
        match (handle(), handle()) {
            (Some(metaindex), Some(index)) => Ok((metaindex, index)),
            _ => Err(malformed("a malformed footer")),
        }
    }

    fn read_index(&self, handle: BlockHandle) -> Result<Vec<(Vec<u8>, BlockHandle)>> {
        let wrong = |what: String| Error::corruption(&self.path, handle.offset, what);
        let mut entries = BlockEntries::new(self.read_block(handle)?).map_err(wrong)?;
        let mut blocks = Vec::new();
        while entries.next().map_err(wrong)? {
            let Some(block) = BlockHandle::decode(entries.value()) else {
                return Err(wrong("a malformed handle in the index".into()));
            };
            blocks.push((entries.key().to_vec(), block));
        }
        Ok(blocks)
    }

    /// The contents of a block, checked and decompressed.
    fn read_block(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let damaged = |what: String| Error::corruption(&self.path, handle.offset, what);
        if !handle.lies_within(self.blocks_end) {
            return Err(damaged("a block that does not lie within the file".into()));
        }
        let mut stored = vec![0; handle.size as usize + TRAILER_BYTES];
        self.read_at(handle.offset, &mut stored)?;
        let checksum = get_u32(&stored, stored.len() - 4);
        stored.truncate(stored.len() - 4);
        if checksum != Some(masked_crc32c(&[&stored])) {
            return Err(damaged("a block fails its checksum".into()));
        }
        match stored.pop() {
            Some(0) => Ok(stored),
            Some(1) => decompress(&stored).map_err(damaged),
            kind => Err(Error::UnsupportedFormat {
                path: self.path.clone(),
                what: format!(
                    "compression {} at byte {}; known are none (0) and Snappy (1)",
                    kind.unwrap_or_default(),
                    handle.offset
                ),
            }),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(offset, buffer);
        read.map_err(|error| Error::io("read", &self.path, error))
    }
}

fn decompress(compressed: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let declared = snap::raw::decompress_len(compressed).map_err(|error| error.to_string())?;
    if declared > compressed.len().saturating_mul(SNAPPY_FACTOR) {
        return Err(format!("a block declares {declared} bytes from {}", compressed.len()));
    }
    snap::raw::Decoder::new().decompress_vec(compressed).map_err(|error| error.to_string())
}

/// A table that is yet to be opened.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub path: PathBuf,
    /// What the manifest says of it, if it is to be compared.
    pub expected: Option<TableFacts>,
}

/// Goes over tables whose keys follow each other; one of them is open at a time.
#[derive(Debug)]
pub(crate) struct TableRun {
    env: Arc<dyn Env>,
    files: Vec<TableFile>,
    damage: Damage,
    /// The open table is the one before this.
    next_file: usize,
    table: Option<Table>,
    next_block: usize,
    block: Option<BlockEntries>,
    /// The key before, to check the order.
    last_key: Vec<u8>,
    /// No key of the open table was read yet.
    is_fresh: bool,
    error: Option<Error>,
}

impl TableRun {
    /// Not positioned until the first seek.
    pub(crate) fn new(env: &Arc<dyn Env>, files: Vec<TableFile>, damage: &Damage) -> Self {
        TableRun {
            env: Arc::clone(env),
            files,
            damage: damage.clone(),
            next_file: 0,
            table: None,
            next_block: 0,
            block: None,
            last_key: Vec::new(),
            is_fresh: true,
            error: None,
        }
    }

    /// Goes to the next entry. False behind the last.
    fn advance(&mut self) -> Result<bool> {
        loop {
            match self.advance_in_block() {
                Ok(true) => return Ok(true),
                Ok(false) => self.block = None,
                // The rest of the block is not read.
                Err(error) => {
                    self.block = None;
                    self.damage.pass(error)?;
                }
            }
            match self.load_block() {
                Ok(true) => {}
                Ok(false) => {
                    self.table = None;
                    if self.next_file == self.files.len() {
                        return Ok(false);
                    }
                    if let Err(error) = self.open_table() {
                        self.damage.pass(error)?;
                    }
                }
                Err(error) => self.damage.pass(error)?,
            }
        }
    }

    fn advance_in_block(&mut self) -> Result<bool> {
        let stepped = self.block.as_mut().map_or(Ok(false), BlockEntries::next);
        let (Some(block), Some(table)) = (&self.block, &self.table) else { return Ok(false) };
        let handle = self.next_block.checked_sub(1).and_then(|i| table.blocks.get(i));
        let offset = handle.map_or(0, |(_, handle)| handle.offset);
        let wrong = |what: &str| Error::corruption(&table.path, offset, what);
        if !stepped.map_err(|what| wrong(&what))? {
            return self.check_end().map(|()| false);
        }
        let key = block.key();
        if split_internal_key(key).is_none_or(|(_, trailer)| trailer as u8 > 1) {
            return Err(wrong("a key that LevelDB does not write"));
        }
        if !self.last_key.is_empty() && compare_internal(&self.last_key, key).is_ge() {
            return Err(wrong("keys out of order"));
        }
        // Of the keys in between, their order says enough.
        if let Some(TableFacts { smallest, largest, .. }) = self.expected()
            && (self.is_fresh && key != smallest || compare_internal(key, largest).is_gt())
        {
            return Err(wrong("keys beyond what the manifest says of this table"));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.is_fresh = false;
        Ok(true)
    }

    /// At the end of a block: the last one must end with the largest key that the manifest names.
    fn check_end(&self) -> Result<()> {
        let (Some(table), Some(expected)) = (&self.table, self.expected()) else { return Ok(()) };
        if self.next_block == table.blocks.len() && self.last_key != expected.largest {
            let what = "the table ends before the largest key that the manifest names";
            return Err(Error::corruption(&table.path, table.blocks_end, what));
        }
        Ok(())
    }

    /// What the manifest says of the open table, if it is to be compared.
    fn expected(&self) -> Option<&TableFacts> {
        let file = self.next_file.checked_sub(1).and_then(|i| self.files.get(i))?;
        file.expected.as_ref()
    }

    /// Reads the next block of the open table; false if there is none.
    fn load_block(&mut self) -> Result<bool> {
        let Some(table) = &self.table else { return Ok(false) };
        let Some(&(_, handle)) = table.blocks.get(self.next_block) else { return Ok(false) };
        self.next_block += 1;
        self.block = Some(table.entries(handle)?);
        Ok(true)
    }

    fn open_table(&mut self) -> Result<()> {
        let Some(file) = self.files.get(self.next_file) else { return Ok(()) };
        self.next_file += 1;
        (self.next_block, self.is_fresh) = (0, true);
        let expected = file.expected.as_ref().map(|facts| facts.bytes);
        match Table::open(&*self.env, &file.path, expected) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::missing(&file.path, "the manifest names this table"))
            }
            opened => {
                self.table = Some(opened?);
                Ok(())
            }
        }
    }

    fn note(&mut self, advanced: Result<bool>) -> bool {
        match advanced {
            Ok(valid) => valid,
            Err(error) => {
                self.block = None;
                self.error = Some(error);
                false
            }
        }
    }
}

impl InternalIterator for TableRun {
    /// From the beginning, entry by entry: imports read everything.
    fn seek(&mut self, bound: Option<&[u8]>) {
        (self.next_file, self.table, self.block, self.error) = (0, None, None, None);
        self.last_key.clear();
        let mut valid = self.next();
        while valid && bound.is_some_and(|bound| compare_internal(self.key(), bound).is_lt()) {
            valid = self.next();
        }
    }

    fn next(&mut self) -> bool {
        let advanced = self.advance();
        self.note(advanced)
    }

    fn valid(&self) -> bool {
        self.block.is_some()
    }

    fn key(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockEntries::key)
    }

    fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockEntries::value)
    }

    fn value_owned(&self) -> Value {
        Value::from(self.value())
    }

    fn status(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }
}
