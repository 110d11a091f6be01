//! The only way to read a block of a table: cache, file, checksum, decompression, check, counting.
//!
//! [`TableFile`] is one table's file. [`TableFile::fetch`] answers where a block is: one call to
//! the cache, which returns what it holds or has the block read, once for all that ask. A handle is
//! checked against the file before memory is allocated, and the declared length of a compressed
//! block against `BLOCK_BYTES_MAX` and 24 times its input (Snappy cannot exceed 22).
//!
//! The prefix of a block is not read: the handle has the same facts, and the checksum covers them.
//! Every failure names file and offset. The caller decides what it means: an error for data, "may
//! contain" for a filter. [`TableIo`] counts what one lookup touched.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::events::event::Event;
use crate::base::key::SequenceNumber;
use crate::base::range_deletes::RangeDeletes;
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::cache::cache::{CacheKey, Priority, Request};
use crate::cache::cached::{Cached, SlotRef};
use crate::env::handle::FileHandle;
use crate::table::block::block::{Block, BlockKeys};
use crate::table::block::buffer::BlockBuffer;
use crate::table::block::directory::HashedBlock;
use crate::table::block_ref::BlockRef;
use crate::table::format::{
    BLOCK_TRAILER_BYTES, BlockHandle, BlockIdentity, BlockKind, Compression, FOOTER_BYTES,
};
use crate::table::index::{BlockCache, CachedBlock, Index, IndexEntry};
use siftdb_filter::cache_line::AlignedBytes;
use std::cell::Cell;
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
    /// Data indexes read.
    pub index_read: u32,
    /// Bytes of those.
    pub index_bytes: u64,
    /// Data blocks found in the cache.
    pub data_cached: u32,
    /// Data blocks read.
    pub data_read: u32,
    /// Bytes of those, as stored.
    pub data_bytes: u64,
    /// Of those, blocks of files in memory that were used before: no wait for a disk.
    pub data_in_memory: u32,
    /// Searches in a data index.
    pub index_seeks: u32,
    /// Filters that could not be consulted because they, or a part, could not be read.
    pub filter_errors: u32,
}

impl TableIo {
    /// Adds the data blocks of another fetch.
    pub(crate) fn absorb(&mut self, other: &TableIo) {
        self.data_cached += other.data_cached;
        self.data_read += other.data_read;
        self.data_bytes += other.data_bytes;
        self.data_in_memory += other.data_in_memory;
    }

    fn count(&mut self, kind: BlockKind, read: bool, bytes: u64) {
        match (kind, read) {
            (BlockKind::Data, false) => self.data_cached += 1,
            (BlockKind::Data, true) => {
                self.data_read += 1;
                self.data_bytes += bytes;
            }
            (BlockKind::Index, false)
            | (BlockKind::Properties | BlockKind::Metaindex | BlockKind::RangeDeletes, _) => {}
            (BlockKind::Index, true) => {
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
    handle: FileHandle,
    table_id: u64,
    bytes: u64,
    cache: Arc<BlockCache>,
    index_key_is_user_key: bool,
    /// The sequence of all entries of an ingested table, which are stored with 0.
    global_sequence: Option<SequenceNumber>,
    events: Events,
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

    /// Sets the kind of index keys, which the properties say. Needed before an index is fetched.
    pub(crate) fn with_index_keys(mut self, index_key_is_user_key: bool) -> Self {
        self.index_key_is_user_key = index_key_is_user_key;
        self
    }

    /// Sets the sequence of all entries, which the manifest gives an ingested table. Needed before
    /// a data block is fetched.
    pub(crate) fn with_global_sequence(mut self, sequence: Option<SequenceNumber>) -> Self {
        self.global_sequence = sequence;
        self
    }

    /// As [`TableFile::with_global_sequence`], after the table was opened.
    pub(crate) fn set_global_sequence(&mut self, sequence: SequenceNumber) {
        self.global_sequence = Some(sequence);
    }

    /// Sets where to tell that its filter is damaged.
    pub(crate) fn with_events(mut self, events: &Events) -> Self {
        self.events = events.clone();
        self
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
        self.handle.path()
    }

    /// The random number that its blocks are tied to.
    pub(crate) fn table_id(&self) -> u64 {
        self.table_id
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The cache its blocks go through.
    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The end of the blocks, where the footer begins.
    pub(crate) fn blocks_end(&self) -> u64 {
        self.bytes.saturating_sub(FOOTER_BYTES as u64)
    }

    /// The error for damage at `offset` of this file.
    pub(crate) fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.path(), offset, what)
    }

    /// The block that `index` names: from its slot, else from the cache, else from the file. With
    /// `fill` off, or where a full cache rejects the block, a block that is read is not kept. A
    /// cached block is used in any case.
    #[inline]
    pub(crate) fn fetch_named(
        &self,
        index: &Index,
        entry: IndexEntry,
        kind: BlockKind,
        fill: bool,
        io: &mut TableIo,
    ) -> Result<BlockRef<'_>> {
        match self.at_hand(index, entry, kind, fill, io) {
            Some(block) => Ok(block),
            None => {
                let (handle, slot) = (index.handle_of(entry), index.slot(entry));
                self.fetch_through_cache(handle, Some(slot), kind, fill, io)
            }
        }
    }

    /// The same if it is in its slot of the index, or if it can be used in place: no lock, no call
    /// to read.
    #[inline]
    pub(crate) fn at_hand(
        &self,
        index: &Index,
        entry: IndexEntry,
        kind: BlockKind,
        fill: bool,
        io: &mut TableIo,
    ) -> Option<BlockRef<'_>> {
        match index.slot(entry).get() {
            Some(slotted) => {
                io.count(kind, false, 0);
                Some(BlockRef::Slotted(slotted))
            }
            None if kind == BlockKind::Data => self.in_place(index, entry, fill, io),
            None => None,
        }
    }

    /// The data block if it lies in a file in memory, is not compressed, was found sound there
    /// before, and is not worth a place in the cache.
    #[inline(never)]
    fn in_place(
        &self,
        index: &Index,
        entry: IndexEntry,
        fill: bool,
        io: &mut TableIo,
    ) -> Option<BlockRef<'_>> {
        let (handle, slot) = (index.handle_of(entry), index.slot(entry));
        let read = self.in_memory(handle)?;
        let checksum = read.checksum();
        let is_sound = checksum != 0 && slot.note() == checksum;
        let is_usable = is_sound && read.compression() == Some(Compression::None);
        if !is_usable || (fill && !self.cache.leaves_in_place(slot, handle.size)) {
            return None;
        }
        let block = self.uncached_block(read, is_sound, handle).ok()?;
        io.count(BlockKind::Data, true, handle.size + BLOCK_TRAILER_BYTES as u64);
        io.data_in_memory += 1;
        Some(BlockRef::Uncached(block))
    }

    /// The block at `handle`, which no index names: from the cache, else from the file; see
    /// [`TableFile::fetch_named`].
    pub(crate) fn fetch(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        fill: bool,
        io: &mut TableIo,
    ) -> Result<BlockRef<'_>> {
        self.fetch_through_cache(handle, None, kind, fill, io)
    }

    /// Not inlined: readers that find a block in its slot should not carry this code.
    #[inline(never)]
    fn fetch_through_cache(
        &self,
        handle: BlockHandle,
        slot: Option<SlotRef<'_, CachedBlock>>,
        kind: BlockKind,
        fill: bool,
        io: &mut TableIo,
    ) -> Result<BlockRef<'_>> {
        let request = Request {
            key: CacheKey { table: self.table_id, offset: handle.offset },
            priority: if kind == BlockKind::Data { Priority::Low } else { Priority::High },
            slot,
            bytes: handle.size,
            fill,
        };
        let known = slot.map_or(0, SlotRef::note);
        let was_read = Cell::new(false);
        let read = |known| {
            was_read.set(true);
            self.read_known(handle, kind, known)
        };
        let block = self.cache.fetch(
            request,
            || self.decode(&read(0)?, handle, kind),
            || self.uncached(read(known)?, handle, slot, kind),
        )?;
        io.count(kind, was_read.get(), handle.size + BLOCK_TRAILER_BYTES as u64);
        let was_used_before = known != 0 && self.handle.in_memory().is_some();
        io.data_in_memory += u32::from(was_read.get() && was_used_before);
        Ok(block)
    }

    /// A block that the cache does not keep. A data block stays in its buffer. Its checksum is
    /// checked at every read from the file, its structure only at the first one: then its slot
    /// remembers the checksum of the sound block.
    fn uncached<'f>(
        &'f self,
        read: BlockBuffer<'f>,
        handle: BlockHandle,
        slot: Option<SlotRef<'_, CachedBlock>>,
        kind: BlockKind,
    ) -> Result<BlockRef<'f>> {
        if kind != BlockKind::Data {
            let (block, _) = self.decode(&read, handle, kind)?;
            return Ok(BlockRef::Shared(Cached::uncached(block)));
        }
        let checksum = read.checksum();
        let is_sound = checksum != 0 && slot.is_some_and(|slot| slot.note() == checksum);
        let block = self.uncached_block(read, is_sound, handle)?;
        if let Some(slot) = slot.filter(|_| !is_sound) {
            slot.set_note(checksum);
        }
        Ok(BlockRef::Uncached(block))
    }

    /// The contents of the block at `handle`, checked and decompressed, without the cache: for
    /// pinned filters and for `verify`.
    pub(crate) fn read_raw(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        io: &mut TableIo,
    ) -> Result<Vec<u8>> {
        let contents = self.read(handle, kind)?.to_vec();
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
        self.read_bytes(offset + size, &mut trailer)?;
        let mut filter = AlignedBytes::zeroed(size as usize);
        self.read_bytes(offset, filter.get_mut())?;
        match self.identity(handle, BlockKind::Filter).check_parts(&filter, trailer) {
            Ok(Compression::None) => {}
            Ok(Compression::Snappy) => return Err(self.compressed_filter(offset)),
            Err(what) => return Err(self.corruption(offset, what)),
        }
        io.count(BlockKind::Filter, true, size + BLOCK_TRAILER_BYTES as u64);
        Ok(filter)
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
        let read = self.read(handle, kind)?;
        self.decode_block(&read, BlockKeys::Bytes, handle)
    }

    /// The range deletes at `handle`, which all of the table's answers depend on.
    pub(crate) fn read_range_deletes(&self, handle: BlockHandle) -> Result<RangeDeletes> {
        let contents = self.read(handle, BlockKind::RangeDeletes)?;
        RangeDeletes::decode(&contents).map_err(|what| self.corruption(handle.offset, what))
    }

    fn identity(&self, handle: BlockHandle, kind: BlockKind) -> BlockIdentity {
        BlockIdentity { table_id: self.table_id, offset: handle.offset, kind }
    }

    /// Refuses a forked child, which must not wait for threads of its parent.
    ///
    /// # Errors
    /// `Forked`.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.handle.check_process()
    }

    /// Reads bytes of the file.
    pub(crate) fn read_bytes(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.handle.read_exact_at(offset, buffer)
    }

    /// A block in the type of the cache, and the bytes that it holds on the heap.
    fn decode(
        &self,
        read: &[u8],
        handle: BlockHandle,
        kind: BlockKind,
    ) -> Result<(CachedBlock, usize)> {
        let block = match kind {
            BlockKind::Data => CachedBlock::Data(self.decode_data(read, handle)?),
            BlockKind::Index | BlockKind::FilterIndex => {
                CachedBlock::Index(Box::new(self.decode_index(read.to_vec(), handle)?))
            }
            // The last three do not go through the cache.
            BlockKind::Filter
            | BlockKind::Properties
            | BlockKind::Metaindex
            | BlockKind::RangeDeletes => CachedBlock::Filter(AlignedBytes::from(read)),
        };
        let bytes = block.heap_bytes();
        Ok((block, bytes))
    }

    fn decode_block(&self, contents: &[u8], keys: BlockKeys, handle: BlockHandle) -> Result<Block> {
        Block::new(contents, keys).map_err(|what| self.corruption(handle.offset, what))
    }

    fn decode_data(&self, contents: &[u8], handle: BlockHandle) -> Result<HashedBlock> {
        let block =
            HashedBlock::new(contents).map_err(|what| self.corruption(handle.offset, what))?;
        match self.global_sequence {
            None => Ok(block),
            Some(sequence) => {
                block.with_sequence(sequence).map_err(|what| self.corruption(handle.offset, what))
            }
        }
    }

    /// A data block to be searched where it was read to, with the sequence that the manifest gives
    /// the table, if it gives one. It is checked unless `is_sound`.
    fn uncached_block<'f>(
        &self,
        read: BlockBuffer<'f>,
        is_sound: bool,
        handle: BlockHandle,
    ) -> Result<Block<BlockBuffer<'f>>> {
        let block =
            Block::in_place(read, is_sound).map_err(|what| self.corruption(handle.offset, what))?;
        match self.global_sequence {
            None => Ok(block),
            Some(sequence) => block
                .with_sequence(sequence, is_sound)
                .map_err(|what| self.corruption(handle.offset, what)),
        }
    }

    fn decode_index(&self, contents: Vec<u8>, handle: BlockHandle) -> Result<Index> {
        // The blocks that an index names are before the index.
        Index::new(contents, self.index_key_is_user_key, handle.offset)
            .map_err(|what| self.corruption(handle.offset, what))
    }

    /// Reads the block at `handle`, checks and decompresses it.
    fn read(&self, handle: BlockHandle, kind: BlockKind) -> Result<BlockBuffer<'_>> {
        self.read_known(handle, kind, 0)
    }

    /// The same for a block that was found sound before with the checksum `known`; 0 if it was not.
    fn read_known(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        known: u32,
    ) -> Result<BlockBuffer<'_>> {
        let offset = handle.offset;
        self.check_handle(handle)?;
        let mut read = self.stored(handle)?;
        // The bytes of a file in memory are still those that were checked. A read may fail anew.
        let was_checked = known != 0 && read.is_in_file() && known == read.checksum();
        let compression = match read.compression().filter(|_| was_checked) {
            Some(compression) => Ok(compression),
            None => self.identity(handle, kind).check(read.stored()).map(|(_, is)| is),
        };
        match compression {
            Ok(Compression::None) => {}
            Ok(Compression::Snappy) if kind == BlockKind::Filter => {
                return Err(self.compressed_filter(offset));
            }
            Ok(Compression::Snappy) => read
                .decompress()
                .map_err(|what| self.corruption(offset, format!("Snappy block: {what}")))?,
            Err(what) => return Err(self.corruption(offset, what)),
        }
        Ok(read)
    }

    /// The block as stored: in the file, if that is in memory, else read from it.
    fn stored(&self, handle: BlockHandle) -> Result<BlockBuffer<'_>> {
        if let Some(stored) = self.in_memory(handle) {
            return Ok(stored);
        }
        // The first use opens the file. From then on it may be in memory.
        let file = self.handle.file()?;
        if let Some(stored) = self.in_memory(handle) {
            return Ok(stored);
        }
        let mut read = BlockBuffer::new(handle.size as usize + BLOCK_TRAILER_BYTES);
        self.handle.read_from(&*file, handle.offset, read.stored_mut())?;
        Ok(read)
    }

    #[inline]
    fn in_memory(&self, handle: BlockHandle) -> Option<BlockBuffer<'_>> {
        Some(BlockBuffer::in_file(handle.stored_in(self.handle.in_memory()?)?))
    }

    fn check_handle(&self, handle: BlockHandle) -> Result<()> {
        if handle.lies_within(self.blocks_end()) {
            return Ok(());
        }
        let what = format!("block of {} bytes where the file has {}", handle.size, self.bytes);
        Err(self.corruption(handle.offset, what))
    }

    fn compressed_filter(&self, offset: u64) -> Error {
        self.corruption(offset, "compressed filter, which no writer makes")
    }
}

impl std::fmt::Debug for TableFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableFile({}, id {:016x})", self.path().display(), self.table_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{Lookup, LookupKey, ValueKind, put_internal_key};
    use crate::base::sync::{AtomicBool, Ordering};
    use crate::base::value::Value;
    use crate::cache::cache::Cache;
    use crate::cache::cached::Slots;
    use crate::env::api::RandomFile;
    use crate::env::handle::FilePool;
    use crate::env::mem::MemEnv;
    use crate::table::block::builder::BlockBuilder;
    use crate::table::format::BLOCK_PREFIX_BYTES;
    use siftdb_filter::hash::KeyHash;

    const TABLE_ID: u64 = 7;

    /// A file of blocks of a kind, each stored as `(contents, compression)`, and its handles.
    fn file_of(kind: BlockKind, blocks: &[(&[u8], Compression)]) -> (TableFile, Vec<BlockHandle>) {
        let mut bytes = Vec::new();
        let mut handles = Vec::new();
        for (contents, compression) in blocks {
            let offset = (bytes.len() + BLOCK_PREFIX_BYTES) as u64;
            let identity = BlockIdentity { table_id: TABLE_ID, offset, kind };
            handles.push(BlockHandle { offset, size: contents.len() as u64 });
            bytes.extend_from_slice(&identity.prefix(contents.len() as u32));
            bytes.extend_from_slice(contents);
            bytes.extend_from_slice(&identity.trailer(contents, *compression));
        }
        bytes.resize(bytes.len() + FOOTER_BYTES, 0);
        let env = MemEnv::new();
        let path = Path::new("/1.sst");
        env.write_file(path, &bytes);
        let pool = FilePool::new(Arc::new(env), 8);
        let handle = FileHandle::new(&pool, path.to_path_buf());
        let cache = Cache::new(1 << 20, 0.5);
        (TableFile::new(handle, TABLE_ID, bytes.len() as u64, &cache), handles)
    }

    fn data_block() -> Vec<u8> {
        let mut builder = BlockBuilder::data(16, true);
        let mut key = Vec::new();
        put_internal_key(&mut key, b"key", 1, ValueKind::Put);
        builder.add(&key, &[b'v'; 400]);
        builder.finish().to_vec()
    }

    fn snappy(contents: &[u8]) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(contents).unwrap()
    }

    #[test]
    fn blocks_are_read_once_and_counted() {
        let block = data_block();
        let compressed = snappy(&block);
        let blocks = [(&block[..], Compression::None), (&compressed, Compression::Snappy)];
        let (file, handles) = file_of(BlockKind::Data, &blocks);
        for &handle in &handles {
            let mut io = TableIo::default();
            for fill in [false, true, true, false] {
                let fetched = file.fetch(handle, BlockKind::Data, fill, &mut io).unwrap();
                assert_eq!(fetched.into_shared().data().unwrap().contents(), &block[..]);
            }
            assert_eq!((io.data_read, io.data_cached), (2, 2));
            assert_eq!(io.data_bytes, 2 * (handle.size + 5));
        }
    }

    /// A search of the block would not notice the damage.
    #[test]
    fn an_uncached_block_is_checked_once() {
        let sound = data_block();
        // The first entry claims to share a byte.
        let unsound = [&[1], &sound[1..]].concat();
        let slots = Slots::of(1);
        for (contents, is_sound) in
            [(&unsound, false), (&sound, true), (&unsound, false), (&sound, true)]
        {
            let (file, handles) = file_of(BlockKind::Data, &[(contents, Compression::None)]);
            let (slot, io) = (Some(slots.slot(0)), &mut TableIo::default());
            let fetched = file.fetch_through_cache(handles[0], slot, BlockKind::Data, false, io);
            match fetched {
                Ok(block) => {
                    let found = block.search(&LookupKey::new(b"key", 9), &KeyHash::new(b"key"), 0);
                    let value = Value::from(&[b'v'; 400][..]);
                    assert!(is_sound && found == Some(Lookup::found(value)));
                }
                Err(error) => assert!(!is_sound && error.to_string().contains("shares a prefix")),
            }
            let trailer = BlockIdentity {
                table_id: TABLE_ID,
                offset: handles[0].offset,
                kind: BlockKind::Data,
            }
            .trailer(contents, Compression::None);
            let known = slots.slot(0).note().to_le_bytes() == trailer[1..];
            assert_eq!(known, is_sound);
        }
    }

    /// A table in memory that changes, which no `RandomFile` may do: it shows what is looked at.
    #[derive(Debug)]
    struct Changing {
        contents: [Vec<u8>; 2],
        now: AtomicBool,
    }

    impl RandomFile for Changing {
        fn read_exact_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
            Err(std::io::ErrorKind::Unsupported.into())
        }

        fn len(&self) -> std::io::Result<u64> {
            Ok(self.contents[0].len() as u64)
        }

        fn as_bytes(&self) -> Option<&[u8]> {
            Some(&self.contents[usize::from(self.now.load(Ordering::Relaxed))])
        }
    }

    #[test]
    fn a_block_in_memory_is_checked_at_its_first_use() {
        for compression in [Compression::None, Compression::Snappy] {
            let block = data_block();
            let stored =
                if compression == Compression::Snappy { snappy(&block) } else { block.clone() };
            let (on_disk, handles) = file_of(BlockKind::Data, &[(&stored, compression)]);
            let mut sound = vec![0; on_disk.bytes() as usize];
            on_disk.read_bytes(0, &mut sound).unwrap();
            let mut damaged = sound.clone();
            // The last byte of the value, which the structure of the block does not depend on.
            let at = sound.iter().rposition(|&byte| byte == b'v').unwrap();
            damaged[at] = b'w';
            let contents = [sound, damaged];
            let table = Arc::new(Changing { contents, now: AtomicBool::new(true) });
            let (mut file, _) = file_of(BlockKind::Data, &[(&stored, compression)]);
            file.handle.replace(Arc::clone(&table) as Arc<dyn RandomFile>);
            let slots = Slots::of(1);
            let fetch = || {
                let (slot, io) = (Some(slots.slot(0)), &mut TableIo::default());
                file.fetch_through_cache(handles[0], slot, BlockKind::Data, false, io)
            };
            for _ in 0..2 {
                assert!(fetch().err().unwrap().is_corruption(), "damaged at its first use");
                assert_eq!(slots.slot(0).note(), 0);
            }
            table.now.store(false, Ordering::Relaxed);
            assert!(fetch().is_ok());
            table.now.store(true, Ordering::Relaxed);
            let block = fetch().unwrap();
            let found = block.search(&LookupKey::new(b"key", 9), &KeyHash::new(b"key"), 0);
            let Some(Lookup::Found { stored, .. }) = found else { panic!("{compression:?}") };
            assert_eq!(stored.len(), 400, "it was checked, and is not read again");
            drop(block);
            // A block that the cache keeps is checked at every read.
            let (slot, io) = (Some(slots.slot(0)), &mut TableIo::default());
            let kept = file.fetch_through_cache(handles[0], slot, BlockKind::Data, true, io);
            assert!(kept.err().unwrap().is_corruption());
        }
    }

    /// The slot remembers the checksum of a sound block. Other bytes with the same checksum come
    /// from a disk that fails, and a map with another checksum is another file.
    #[test]
    fn a_remembered_checksum_vouches_only_for_its_bytes() {
        let block = data_block();
        let other = [&block[..block.len() / 2], b"w", &block[block.len() / 2 + 1..]].concat();
        let slots = Slots::of(1);
        let fetch = |file: &TableFile, handle| {
            let (slot, io) = (Some(slots.slot(0)), &mut TableIo::default());
            file.fetch_through_cache(handle, slot, BlockKind::Data, false, io).map(drop)
        };
        let (file, handles) = file_of(BlockKind::Data, &[(&block, Compression::None)]);
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_bytes(0, &mut bytes).unwrap();
        fetch(&file, handles[0]).unwrap();
        let known = slots.slot(0).note();
        assert_ne!(known, 0);
        // Damaged bytes, read by a call.
        let middle = handles[0].offset as usize + block.len() / 2;
        bytes[middle] = b'w';
        let (path, disk) = (Path::new("/1.sst"), MemEnv::new());
        disk.write_file(path, &bytes);
        let pool = FilePool::new(Arc::new(disk), 8);
        let handle = FileHandle::new(&pool, path.to_path_buf());
        let damaged = TableFile::new(handle, TABLE_ID, bytes.len() as u64, file.cache());
        assert!(fetch(&damaged, handles[0]).unwrap_err().is_corruption());
        // The map of another table, whose block has a damaged trailer.
        let (mut another, _) = file_of(BlockKind::Data, &[(&other, Compression::None)]);
        another.read_bytes(0, &mut bytes).unwrap();
        bytes[middle] = b'x';
        let contents = [bytes.clone(), bytes];
        let map = Arc::new(Changing { contents, now: AtomicBool::new(false) });
        another.handle.replace(map);
        assert!(fetch(&another, handles[0]).unwrap_err().is_corruption());
        assert_eq!(slots.slot(0).note(), known);
    }

    /// A file that was opened again may be shorter than the table. The call has the error.
    #[test]
    fn blocks_beyond_a_map_are_read_by_calls() {
        let block = data_block();
        let (mut file, handles) = file_of(BlockKind::Data, &[(&block, Compression::None)]);
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_bytes(0, &mut bytes).unwrap();
        let end = (handles[0].offset + handles[0].size) as usize + BLOCK_TRAILER_BYTES;
        for (len, is_whole) in [(end, true), (end - 1, false), (1, false), (0, false)] {
            let contents = [bytes[..len].to_vec(), Vec::new()];
            file.handle.replace(Arc::new(Changing { contents, now: AtomicBool::new(false) }));
            match file.read_raw(handles[0], BlockKind::Data, &mut TableIo::default()) {
                Ok(read) => assert!(is_whole && read == block),
                // What the call of this file says.
                Err(error) => assert!(!is_whole && matches!(error, Error::Io { op: "read", .. })),
            }
        }
    }

    #[test]
    fn a_filter_is_never_compressed() {
        let compressed = snappy(&[0; 300]);
        let (file, handles) = file_of(BlockKind::Filter, &[(&compressed, Compression::Snappy)]);
        let error = file.read_raw(handles[0], BlockKind::Filter, &mut TableIo::default());
        assert!(error.unwrap_err().to_string().contains("compressed filter"));
    }

    #[test]
    fn compression_bombs_and_hostile_handles_are_refused() {
        // A Snappy stream that declares 4 GiB - 1, one that declares a megabyte, and garbage.
        let streams: [&[u8]; 3] =
            [&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], &[0x80, 0x80, 0x40, 0, 0], &[9, 9, 9]];
        for stream in streams {
            let (file, handles) = file_of(BlockKind::Data, &[(stream, Compression::Snappy)]);
            let fetched = file.fetch(handles[0], BlockKind::Data, true, &mut TableIo::default());
            assert!(fetched.err().unwrap().to_string().contains("Snappy"));
        }
        let (file, _) = file_of(BlockKind::Data, &[(&data_block(), Compression::None)]);
        let end = file.blocks_end();
        for (offset, size) in [(0, end - 4), (end, 0), (u64::MAX, 1), (0, u64::MAX), (3, 1 << 30)] {
            let fetched = file.fetch(
                BlockHandle { offset, size },
                BlockKind::Data,
                true,
                &mut TableIo::default(),
            );
            assert!(fetched.err().unwrap().is_corruption(), "{offset} {size}");
        }
    }
}
