//! A table's file, the source of its blocks: read by a call, or in memory already.
//!
//! A handle is checked against the file before memory is allocated, and the declared length of a
//! compressed block against what its codec allows (`compression.rs`). The prefix of a block is not
//! read: the handle has the same facts, and the checksum covers them.
//! Every failure names file and offset. The caller decides what it means: an error for data, "may
//! contain" for a filter. [`TableIo`] counts what one lookup touched.
//!
//! A block is read into a [`BlockBuffer`], checked and decompressed. A block to be cached is copied
//! out, so only the cached block is allocated; an uncached block is searched in the buffer. Where
//! the file is in memory anyway, the stored bytes stay there, and no buffer is needed for them. A
//! thread has one pair of buffers, which the next block takes over when this one is dropped. A
//! thread that holds two blocks allocates for the second.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::events::event::Event;
use crate::base::key::SequenceNumber;
use crate::base::range_deletes::RangeDeletes;
use crate::base::sync::{Arc, AtomicBool, Ordering, thread_local};
use crate::env::handle::FileHandle;
use crate::table::block::block::{Block, BlockKeys};
use crate::table::block::directory::HashedBlock;
use crate::table::compression;
use crate::table::features::lacking_codec;
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, BlockHandle, BlockIdentity, BlockKind, Codec,
    FOOTER_BYTES, PAGE_BYTES, run_bytes,
};
use crate::table::index::{BlockCache, CachedBlock, Index};
use siftdb_filter::cache_line::AlignedBytes;
use std::cell::Cell;
use std::num::NonZeroU32;
use std::ops::{Deref, Range};
use std::path::Path;

/// What one lookup or one iterator touched. "Read" means from the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableIo {
    /// Filter blocks, partitions and top-level indexes found in the cache.
    pub filter_cached: u32,
    /// The same, read from the file.
    pub filter_read: u32,
    /// Bytes of the latter.
    pub filter_bytes: u64,
    pub index_read: u32,
    pub index_bytes: u64,
    /// Data blocks, or rows in place of them, found in the cache.
    pub data_cached: u32,
    pub data_read: u32,
    /// Bytes of those, as stored.
    pub data_bytes: u64,
    /// Of those, blocks of files in memory that were used before: no wait for a disk.
    pub data_in_memory: u32,
    /// Cached data blocks that a range filter excluded.
    pub data_spared: u32,
    /// Searches in a data index.
    pub index_seeks: u32,
    /// Filters that could not be consulted because they, or a part, could not be read.
    pub filter_errors: u32,
    /// No count: a block that would have to be read from the file is refused with `WouldRead`.
    pub in_memory_only: bool,
}

impl TableIo {
    /// Counts a block that was read, or found in the cache.
    pub(super) fn count(&mut self, kind: BlockKind, read: bool, bytes: u64) {
        match (kind, read) {
            (BlockKind::Data, false) => self.data_cached += 1,
            (BlockKind::Data, true) => {
                self.data_read += 1;
                self.data_bytes += bytes;
            }
            (BlockKind::Index | BlockKind::IndexPartition, false)
            | (BlockKind::Properties | BlockKind::Metaindex | BlockKind::RangeDeletes, _) => {}
            (BlockKind::Index | BlockKind::IndexPartition, true) => {
                self.index_read += 1;
                self.index_bytes += bytes;
            }
            (BlockKind::Filter | BlockKind::FilterIndex, false) => self.filter_cached += 1,
            (BlockKind::Filter | BlockKind::FilterIndex, true) => {
                self.filter_read += 1;
                self.filter_bytes += bytes;
            }
        }
    }
}

/// The file of one table.
pub(crate) struct TableFile {
    pub(super) handle: FileHandle,
    /// The random number that its blocks are tied to.
    pub table_id: u64,
    pub bytes: u64,
    /// The cache its blocks go through.
    pub cache: Arc<BlockCache>,
    /// Whether separators of its indexes are user keys, as the properties say. Needed before an
    /// index is fetched.
    pub(super) index_key_is_user_key: bool,
    /// The sequence of all entries of an ingested table, which are stored with 0. Needed before a
    /// data block is fetched.
    pub(super) global_sequence: Option<SequenceNumber>,
    /// Where to tell that its filter is damaged.
    pub(super) events: Events,
    /// Its filter was found damaged, and that was told.
    emitted_damage: AtomicBool,
}

impl TableFile {
    /// A file of `bytes` bytes with this table id. No I/O.
    pub(crate) fn new(
        handle: FileHandle,
        table_id: u64,
        bytes: u64,
        cache: &Arc<BlockCache>,
    ) -> Self {
        TableFile {
            handle,
            table_id,
            bytes,
            cache: Arc::clone(cache),
            index_key_is_user_key: false,
            global_sequence: None,
            events: Events::default(),
            emitted_damage: AtomicBool::new(false),
        }
    }

    /// Tells that its filter is damaged, once. A system error is no damage.
    #[cold]
    pub(crate) fn emit_damaged_filter(&self, error: &Error) {
        if error.is_corruption() && !self.emitted_damage.swap(true, Ordering::Relaxed) {
            self.events.emit(|| Event::FilterDamaged {
                path: self.path().to_path_buf(),
                error: error.clone().of_filter(),
            });
        }
    }

    /// Its path, for errors.
    pub(crate) fn path(&self) -> &Path {
        &self.handle.path
    }

    /// The end of the blocks, where the footer begins.
    pub(crate) fn blocks_end(&self) -> u64 {
        self.bytes.saturating_sub(FOOTER_BYTES as u64)
    }

    /// The error for damage at `offset` of this file.
    pub(crate) fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.path(), offset, what)
    }

    /// The contents of the block at `handle`, checked and decompressed, without the cache: for
    /// pinned filters and for `verify`.
    pub(crate) fn read_raw(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        io: &mut TableIo,
    ) -> Result<Vec<u8>> {
        let contents = self.read(handle, kind, None)?.to_vec();
        io.count(kind, true, handle.size + BLOCK_TRAILER_BYTES as u64);
        Ok(contents)
    }

    /// The data block at `handle`, without the cache. One without entries is damage.
    pub(crate) fn read_data(&self, handle: BlockHandle, io: &mut TableIo) -> Result<HashedBlock> {
        let contents = self.read_raw(handle, BlockKind::Data, io)?;
        let block = self.decode_data(&contents, handle)?;
        if block.entries_end() == 0 {
            return Err(self.corruption(handle.offset, "a data block without entries"));
        }
        Ok(block)
    }

    /// The contents of a filter, without the cache. A filter is large, so it is read into its final
    /// memory and not copied. Its trailer takes a second read.
    pub(crate) fn read_filter(
        &self,
        handle: BlockHandle,
        io: &mut TableIo,
    ) -> Result<AlignedBytes> {
        let BlockHandle { offset, size } = handle;
        self.check_handle(handle)?;
        let mut trailer = [0; BLOCK_TRAILER_BYTES];
        self.handle.read_exact_at(offset + size, &mut trailer)?;
        let mut filter = AlignedBytes::zeroed(size as usize);
        self.handle.read_exact_at(offset, filter.get_mut())?;
        let identity = self.identity(handle, BlockKind::Filter);
        identity.check_parts(&filter, trailer).map_err(self.damage(handle))?;
        io.count(BlockKind::Filter, true, size + BLOCK_TRAILER_BYTES as u64);
        Ok(filter)
    }

    /// Reads blocks of a kind that is never compressed, and that a writer left in one run, by one
    /// read. For each, what `take` makes of its contents, or what is wrong with it.
    ///
    /// # Errors
    /// They are not in one run, or cannot be read.
    pub(super) fn read_run<T>(
        &self,
        handles: &[BlockHandle],
        kind: BlockKind,
        mut take: impl FnMut(&[u8]) -> T,
    ) -> Result<Vec<Result<T>>> {
        let (Some(bytes), Some(first)) = (run_bytes(handles), handles.first()) else {
            let at = handles.first().map_or(0, |handle| handle.offset);
            return Err(self.corruption(at, "blocks that are not in one run"));
        };
        let mut stored = vec![0; bytes as usize];
        self.handle.read_exact_at(first.offset, &mut stored)?;
        let taken = handles.iter().map(|handle| {
            let start = (handle.offset - first.offset) as usize;
            let end = start + handle.size as usize + BLOCK_TRAILER_BYTES;
            let stored = stored.get(start..end).unwrap_or_default();
            match self.identity(*handle, kind).check(stored) {
                Ok((contents, Codec::None)) => Ok(take(contents)),
                Ok(_) => Err("compressed, which no writer does".to_string()),
                Err(what) => Err(what),
            }
            .map_err(self.damage(*handle))
        });
        Ok(taken.collect())
    }

    /// The index at `handle`, without the cache.
    pub(crate) fn read_index(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        io: &mut TableIo,
    ) -> Result<Index> {
        let contents = self.read_raw(handle, kind, io)?;
        self.decode_index(contents, handle)
    }

    /// The metaindex or properties block at `handle`, without the cache.
    pub(crate) fn read_meta(&self, handle: BlockHandle, kind: BlockKind) -> Result<Block> {
        let read = self.read(handle, kind, None)?;
        Block::new(&read, BlockKeys::Bytes).map_err(self.damage(handle))
    }

    /// The range deletes at `handle`, which all of the table's answers depend on.
    pub(crate) fn read_range_deletes(&self, handle: BlockHandle) -> Result<RangeDeletes> {
        let contents = self.read(handle, BlockKind::RangeDeletes, None)?;
        RangeDeletes::decode(&contents).map_err(self.damage(handle))
    }

    /// Says which bytes of the file will be read soon.
    pub(super) fn read_ahead(&self, bytes: Range<u64>) {
        let bytes = bytes.start..bytes.end.min(self.blocks_end());
        if !bytes.is_empty() && !self.is_in_memory() {
            self.handle.read_ahead(bytes.start, bytes.end - bytes.start);
        }
    }

    /// Where the next block's prefix begins if the block that ends at `position` is followed by
    /// padding: zeros up to the last bytes of a page. `None` if other bytes follow.
    pub(super) fn padding_end(&self, position: u64) -> Result<Option<u64>> {
        let prefix_bytes = BLOCK_PREFIX_BYTES as u64;
        let page = position.saturating_add(prefix_bytes).checked_next_multiple_of(PAGE_BYTES);
        let Some(end) =
            page.map(|page| page - prefix_bytes).filter(|end| *end <= self.blocks_end())
        else {
            return Ok(None);
        };
        let mut zeros = vec![0; (end - position) as usize];
        self.handle.read_exact_at(position, &mut zeros)?;
        Ok((!zeros.is_empty() && zeros.iter().all(|byte| *byte == 0)).then_some(end))
    }

    /// Reads the block at `handle`, checks and decompresses it. `known` is the checksum with which
    /// it was found sound before.
    pub(super) fn read(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        known: Option<NonZeroU32>,
    ) -> Result<BlockBuffer<'_>> {
        self.check_handle(handle)?;
        let mut read = match self.in_memory(handle) {
            Some(stored) => stored,
            None => {
                let mut read = BlockBuffer::new(handle.size as usize + BLOCK_TRAILER_BYTES);
                self.handle.read_exact_at(handle.offset, read.stored_mut())?;
                read
            }
        };
        // Checked bytes of a file in memory need no second check. Bytes that are read again do.
        let was_checked = read.in_file.is_some() && read.has_checksum(known);
        let codec = match read.codec().filter(|_| was_checked) {
            Some(codec) => Ok(codec),
            None => self.identity(handle, kind).check(read.stored()).map(|(_, codec)| codec),
        };
        match codec.map_err(self.damage(handle))? {
            Codec::None => {}
            codec if !codec.is_available() => return Err(lacking_codec(codec, self.path())),
            codec => {
                let name = codec.name();
                let wrong = |what| self.corruption(handle.offset, format!("{name} block: {what}"));
                read.decompress(codec).map_err(wrong)?;
            }
        }
        Ok(read)
    }

    /// Whether its blocks are in memory, so that no call reads them.
    pub(super) fn is_in_memory(&self) -> bool {
        self.handle.in_memory().is_some()
    }

    /// The block as stored, if its file is in memory.
    #[inline]
    pub(super) fn in_memory(&self, handle: BlockHandle) -> Option<BlockBuffer<'_>> {
        let stored = handle.stored_in(self.handle.in_memory()?)?;
        Some(BlockBuffer { in_file: Some(stored), buffers: None })
    }

    /// Refuses a read without I/O for which the block at `handle` would have to be read.
    ///
    /// # Errors
    /// `WouldRead`.
    pub(super) fn check_may_read(&self, handle: BlockHandle, io: &TableIo) -> Result<()> {
        match io.in_memory_only && self.in_memory(handle).is_none() {
            true => Err(Error::WouldRead { path: self.path().to_path_buf() }),
            false => Ok(()),
        }
    }

    /// A block in the type of the cache.
    pub(super) fn decode(
        &self,
        read: &[u8],
        handle: BlockHandle,
        kind: BlockKind,
    ) -> Result<CachedBlock> {
        Ok(match kind {
            BlockKind::Data => CachedBlock::Data(self.decode_data(read, handle)?),
            BlockKind::Index | BlockKind::IndexPartition | BlockKind::FilterIndex => {
                CachedBlock::Index(Box::new(self.decode_index(read.to_vec(), handle)?))
            }
            // The last three do not go through the cache.
            BlockKind::Filter
            | BlockKind::Properties
            | BlockKind::Metaindex
            | BlockKind::RangeDeletes => CachedBlock::Filter(AlignedBytes::from(read)),
        })
    }

    fn decode_data(&self, contents: &[u8], handle: BlockHandle) -> Result<HashedBlock> {
        let block = HashedBlock::new(contents).map_err(self.damage(handle))?;
        block.with_sequence(self.global_sequence).map_err(self.damage(handle))
    }

    /// A data block to be searched where it was read to, with the sequence that the manifest gives
    /// the table, if it gives one. It is checked unless `is_sound`.
    pub(super) fn decode_in_place<'f>(
        &self,
        read: BlockBuffer<'f>,
        is_sound: bool,
        handle: BlockHandle,
    ) -> Result<Block<BlockBuffer<'f>>> {
        let block = Block::in_place(read, is_sound).map_err(self.damage(handle))?;
        block.with_sequence(self.global_sequence, is_sound).map_err(self.damage(handle))
    }

    fn decode_index(&self, contents: Vec<u8>, handle: BlockHandle) -> Result<Index> {
        // The blocks that an index names are before the index.
        Index::new(contents, self.index_key_is_user_key, handle.offset).map_err(self.damage(handle))
    }

    /// Makes the error for a block whose damage a decoder describes.
    fn damage<W: Into<String>>(&self, handle: BlockHandle) -> impl FnOnce(W) -> Error {
        move |what| self.corruption(handle.offset, what)
    }

    fn identity(&self, handle: BlockHandle, kind: BlockKind) -> BlockIdentity {
        BlockIdentity { table_id: self.table_id, offset: handle.offset, kind }
    }

    fn check_handle(&self, handle: BlockHandle) -> Result<()> {
        if handle.lies_within(self.blocks_end()) {
            return Ok(());
        }
        let what = format!("block of {} bytes where the file has {}", handle.size, self.bytes);
        Err(self.corruption(handle.offset, what))
    }
}

impl std::fmt::Debug for TableFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableFile({}, id {:016x})", self.path().display(), self.table_id)
    }
}

/// The buffers of one thread.
#[derive(Debug, Default)]
struct Buffers {
    stored: Vec<u8>,
    decompressed: Vec<u8>,
    /// Bytes as stored, trailer included.
    stored_len: usize,
    /// Bytes decompressed; `None` for a raw block.
    decompressed_len: Option<usize>,
}

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// A larger buffer is freed, so that one large block does not cost a thread its size for good.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// A block in the file in memory that has it, or in the buffers that it was read to.
#[derive(Debug)]
pub(crate) struct BlockBuffer<'f> {
    /// The stored bytes, trailer included, in a file in memory.
    in_file: Option<&'f [u8]>,
    /// What was read or decompressed.
    buffers: Option<Box<Buffers>>,
}

impl BlockBuffer<'_> {
    /// A block of `stored_len` bytes, trailer included, without its contents.
    fn new(stored_len: usize) -> Self {
        BlockBuffer { in_file: None, buffers: Some(Buffers::of_thread(stored_len)) }
    }

    /// The block as stored, with its trailer.
    #[inline]
    fn stored(&self) -> &[u8] {
        match (self.in_file, &self.buffers) {
            (Some(stored), _) => stored,
            (None, Some(buffers)) => buffers.stored.get(..buffers.stored_len).unwrap_or_default(),
            (None, None) => &[],
        }
    }

    /// Room for the same, to read into. Its contents are unspecified.
    fn stored_mut(&mut self) -> &mut [u8] {
        let Some(buffers) = self.buffers.as_mut() else { return &mut [] };
        let len = buffers.stored_len.max(buffers.stored.len());
        buffers.stored.resize(len, 0);
        buffers.stored.get_mut(..buffers.stored_len).unwrap_or_default()
    }

    /// The checksum in its trailer, unless that is 0. Two reads of one block of one table that have
    /// the same checksum, which holds, have the same bytes.
    pub(super) fn checksum(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(u32::from_le_bytes(*self.stored().last_chunk()?))
    }

    /// True if these are the bytes that were found sound with the checksum `known`.
    pub(super) fn has_checksum(&self, known: Option<NonZeroU32>) -> bool {
        known.is_some() && self.checksum() == known
    }

    /// How it is stored, by its trailer; `None` if that names no way.
    pub(super) fn codec(&self) -> Option<Codec> {
        let at = self.stored().len().checked_sub(BLOCK_TRAILER_BYTES)?;
        Codec::from_byte(*self.stored().get(at)?)
    }

    /// Decompresses a block that `codec` compressed. The error says what is wrong.
    fn decompress(&mut self, codec: Codec) -> std::result::Result<(), String> {
        let buffers = self.buffers.get_or_insert_with(|| Buffers::of_thread(0));
        let Buffers { stored, decompressed, stored_len, .. } = &mut **buffers;
        let read = stored.get(..*stored_len).unwrap_or_default();
        let compressed = without_trailer(self.in_file.unwrap_or(read));
        let written = compression::decompress(codec, compressed, decompressed)?;
        buffers.decompressed_len = Some(written);
        Ok(())
    }
}

/// The block without its trailer, decompressed.
impl Deref for BlockBuffer<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let decompressed = self.buffers.as_ref().and_then(|buffers| {
            buffers.decompressed_len.map(|len| buffers.decompressed.get(..len).unwrap_or_default())
        });
        decompressed.unwrap_or_else(|| without_trailer(self.stored()))
    }
}

impl Buffers {
    /// Takes the thread's buffers, to read a block of `stored_len` bytes.
    fn of_thread(stored_len: usize) -> Box<Self> {
        // The thread-local is gone while the thread ends.
        let mut buffers = BUFFERS.try_with(Cell::take).ok().flatten().unwrap_or_default();
        buffers.stored_len = stored_len;
        buffers.decompressed_len = None;
        buffers
    }
}

impl Drop for BlockBuffer<'_> {
    fn drop(&mut self) {
        let Some(mut buffers) = self.buffers.take() else { return };
        let Buffers { stored, decompressed, .. } = &mut *buffers;
        for buffer in [stored, decompressed] {
            if buffer.capacity() > BUFFER_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        // They are freed if the thread ends.
        let _ = BUFFERS.try_with(|kept| kept.set(Some(buffers)));
    }
}

#[inline]
fn without_trailer(stored: &[u8]) -> &[u8] {
    stored.get(..stored.len().saturating_sub(BLOCK_TRAILER_BYTES)).unwrap_or_default()
}
