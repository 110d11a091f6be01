//! The only way to a block of a table: its slot, the cache, its file.
//!
//! [`TableFile::fetch_named`] looks into the slot that the index has for the block. If that is
//! empty, the cache says whether it holds the block, wants it, or leaves it to the reader
//! ([`Cache::block`](crate::cache::cache::Cache::block)); then the file is read (`table/file.rs`).
//!
//! The answer is a [`BlockRef`]: a block found in its slot, a share of a cached block, or an
//! uncached data block. An uncached block stays in the file, if that is in memory, or in the buffer
//! that it was read to, is searched there and dropped. That saves the copy, the memory and the
//! eviction that a cached block costs.

use crate::base::error::Result;
use crate::base::key::{Lookup, LookupKey, SequenceNumber, ValueKind, unpack_trailer};
use crate::base::sync::Arc;
use crate::base::value::{COPY_BYTES, Value};
use crate::cache::cache::{Answer, Priority, Request, RowRequest};
use crate::cache::cached::{Cached, SlotRef, Slotted};
use crate::cache::recency_list::CacheKey;
use crate::table::block::block::{Block, Found};
use crate::table::block::directory::HashedBlock;
use crate::table::file::{BlockBuffer, TableFile, TableIo};
use crate::table::format::{BLOCK_TRAILER_BYTES, BlockHandle, BlockKind, Codec, fingerprint_of};
use crate::table::index::{CachedBlock, Index, IndexEntry};
use siftdb_filter::cache_line::AlignedBytes;
use siftdb_filter::hash::KeyHash;
use std::num::NonZeroU32;

/// A block that a reader holds.
pub(crate) enum BlockRef<'f> {
    /// Found in its slot. Cheap to take and to drop; meant to be held briefly.
    Slotted(Slotted<CachedBlock>),
    /// From the cache, or in the type of the cache.
    Shared(Arc<Cached<CachedBlock>>),
    /// A data block that was read for this reader alone.
    Uncached(Block<BlockBuffer<'f>>),
}

impl TableFile {
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
        match self.in_memory_block(index, entry, kind, fill, io) {
            Some(block) => Ok(block),
            None => {
                let (handle, slot) = (index.handle_of(entry), index.slot(entry));
                Ok(self.fetch_through_cache(handle, Some(slot), kind, fill, None, io)?.0)
            }
        }
    }

    /// The same if it is in its slot of the index, or if it can be used in place: no lock, no call
    /// to read.
    #[inline]
    pub(crate) fn in_memory_block(
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
        let is_usable =
            read.has_checksum(known_checksum(Some(slot))) && read.codec() == Some(Codec::None);
        if !is_usable || (fill && !self.cache.leaves_in_place(slot, handle.size)) {
            return None;
        }
        let block = self.decode_in_place(read, true, handle).ok()?;
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
        Ok(self.fetch_through_cache(handle, None, kind, fill, None, io)?.0)
    }

    /// The block, and whether the cache wants the row of it that is asked for.
    // Not inlined: readers that find a block in its slot should not carry this code.
    #[inline(never)]
    pub(super) fn fetch_through_cache(
        &self,
        handle: BlockHandle,
        slot: Option<SlotRef<'_, CachedBlock>>,
        kind: BlockKind,
        fill: bool,
        row: Option<RowRequest>,
        io: &mut TableIo,
    ) -> Result<(BlockRef<'_>, bool)> {
        let request = Request {
            key: CacheKey { table: self.table_id, offset: handle.offset },
            priority: if kind == BlockKind::Data { Priority::Low } else { Priority::High },
            slot,
            bytes: handle.size,
            fill,
            row,
        };
        if let Err(refusal) = self.check_may_read(handle, io) {
            // `Cache::block` would begin a load, or wait for that of another thread.
            let held = self.cache.get(request.key, request.priority).ok_or(refusal)?;
            io.count(kind, false, 0);
            return Ok((BlockRef::Shared(held), false));
        }
        let was_known = known_checksum(slot).is_some();
        let read = || self.decode(&self.read(handle, kind, None)?, handle, kind);
        let mut keeps = false;
        let block = match self.cache.block(request) {
            Answer::Held(held) => {
                io.count(kind, false, 0);
                return Ok((BlockRef::Shared(held), false));
            }
            Answer::Load(load) => {
                let block = read()?;
                let bytes = block.heap_bytes();
                BlockRef::Shared(load.keep(block, bytes))
            }
            Answer::Uncached { keeps_row } if kind == BlockKind::Data => {
                keeps = keeps_row;
                self.read_uncached(handle, slot)?
            }
            Answer::Uncached { .. } => BlockRef::Shared(Cached::uncached(read()?)),
        };
        io.count(kind, true, handle.size + BLOCK_TRAILER_BYTES as u64);
        io.data_in_memory += u32::from(was_known && self.in_memory(handle).is_some());
        Ok((block, keeps))
    }

    /// A data block that the cache does not keep: it stays in its buffer. Its checksum is checked
    /// at every read from the file, its structure only at the first one: then its slot remembers
    /// the checksum of the sound block.
    fn read_uncached(
        &self,
        handle: BlockHandle,
        slot: Option<SlotRef<'_, CachedBlock>>,
    ) -> Result<BlockRef<'_>> {
        let known = known_checksum(slot);
        let read = self.read(handle, BlockKind::Data, known)?;
        let (checksum, is_sound) = (read.checksum(), read.has_checksum(known));
        let block = self.decode_in_place(read, is_sound, handle)?;
        if let Some(marks) = slot.and_then(SlotRef::marks).filter(|_| !is_sound) {
            marks.remember_checksum(checksum);
        }
        Ok(BlockRef::Uncached(block))
    }
}

/// The checksum with which the block of a slot was found sound, if it was.
fn known_checksum(slot: Option<SlotRef<'_, CachedBlock>>) -> Option<NonZeroU32> {
    slot?.marks()?.known_checksum()
}

impl BlockRef<'_> {
    /// The block in the type of the cache; `None` for an uncached one.
    #[inline]
    pub(crate) fn cached(&self) -> Option<&Arc<Cached<CachedBlock>>> {
        match self {
            BlockRef::Slotted(slotted) => Some(slotted.cached()),
            BlockRef::Shared(cached) => Some(cached),
            BlockRef::Uncached(_) => None,
        }
    }

    /// The index, if it is one.
    #[inline]
    pub(crate) fn index(&self) -> Option<&Index> {
        self.cached()?.index()
    }

    /// The filter, if it is one.
    #[inline]
    pub(crate) fn filter(&self) -> Option<&AlignedBytes> {
        match &***self.cached()? {
            CachedBlock::Filter(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The same block in memory of its own: neither in the thread's buffer, which is for the next
    /// block that it reads, nor in a file.
    #[inline]
    pub(crate) fn for_long(self) -> BlockRef<'static> {
        match self {
            BlockRef::Slotted(slotted) => BlockRef::Slotted(slotted),
            other => BlockRef::Shared(other.into_shared()),
        }
    }

    /// The block, to be held for long and iterated over.
    pub(crate) fn into_shared(self) -> Arc<Cached<CachedBlock>> {
        match self {
            BlockRef::Slotted(slotted) => slotted.into_shared(),
            BlockRef::Shared(cached) => cached,
            // The buffer is the thread's, for the next block that it reads.
            BlockRef::Uncached(block) => Cached::uncached(CachedBlock::Data(
                HashedBlock::without_directory(block.to_owned_block()),
            )),
        }
    }

    /// What the block knows of a key; `None` if it is no data block. A range delete with the
    /// sequence `floor` covers the key, unless it is 0.
    // Inlined with everything below it into a lookup that finds its block in memory, of which the
    // calls would be a twentieth.
    #[inline(always)]
    pub(crate) fn search(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        floor: SequenceNumber,
    ) -> Option<Lookup> {
        let cached = match self {
            BlockRef::Slotted(slotted) => slotted.cached(),
            BlockRef::Shared(cached) => cached,
            BlockRef::Uncached(block) => {
                return search_uncached(block, key, fingerprint_of(hash.xxph3()), floor);
            }
        };
        let block = cached.data()?;
        let Some(found) = block.get(key, hash.xxph3()) else { return Some(not_found(floor)) };
        let Some(expires) = put_of(&found, floor)? else { return Some(Lookup::Deleted) };
        let (start, len) = (found.value_start, found.value_len);
        let stored = match len <= COPY_BYTES {
            true => Value::from(block.memory().get(start..start.checked_add(len)?)?),
            // A larger value shares the block.
            false => Value::from_shared(cached, start, len)?,
        };
        Some(Lookup::Found { stored, expires })
    }
}

/// [`BlockRef::search`] in an uncached block, which has no directory.
#[inline(never)]
fn search_uncached(
    block: &Block<BlockBuffer<'_>>,
    key: &LookupKey,
    fingerprint: u8,
    floor: SequenceNumber,
) -> Option<Lookup> {
    let found = block.borrowed().get_by_order(key, fingerprint);
    let Some(found) = found else { return Some(not_found(floor)) };
    let Some(expires) = put_of(&found, floor)? else { return Some(Lookup::Deleted) };
    let (start, len) = (found.value_start, found.value_len);
    let stored = Value::from(block.contents().get(start..start.checked_add(len)?)?);
    Some(Lookup::Found { stored, expires })
}

/// The answer if a table has no version of a key: the range delete `floor` deletes older ones,
/// unless it is 0.
#[inline]
pub(crate) fn not_found(floor: SequenceNumber) -> Lookup {
    if floor == 0 { Lookup::Absent } else { Lookup::Deleted }
}

/// Whether the put that was found expires; inside `None` if the key is deleted. `None` if the
/// trailer is of no kind.
#[inline(always)]
fn put_of(found: &Found, floor: SequenceNumber) -> Option<Option<bool>> {
    let (sequence, kind) = unpack_trailer(found.trailer)?;
    // All other versions are older than the range delete.
    let is_deleted = sequence < floor || kind == ValueKind::Tombstone;
    Some((!is_deleted).then_some(kind == ValueKind::ExpiringPut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::key::put_internal_key;
    use crate::base::sync::{AtomicBool, Ordering};
    use crate::cache::cache::Cache;
    use crate::cache::cached::Slots;
    use crate::env::api::RandomFile;
    use crate::env::handle::{FileHandle, FilePool};
    use crate::env::mem::MemEnv;
    use crate::table::block::builder::BlockBuilder;
    use crate::table::format::{BLOCK_PREFIX_BYTES, BlockIdentity, FOOTER_BYTES};
    use std::path::Path;

    const TABLE_ID: u64 = 7;

    /// A file of blocks of a kind, each stored as `(contents, compression)`, and its handles.
    fn file_of(kind: BlockKind, blocks: &[(&[u8], Codec)]) -> (TableFile, Vec<BlockHandle>) {
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
        let blocks = [(&block[..], Codec::None), (&compressed, Codec::Snappy)];
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
            let (file, handles) = file_of(BlockKind::Data, &[(contents, Codec::None)]);
            let (slot, io) = (Some(slots.slot(0)), &mut TableIo::default());
            let fetched =
                file.fetch_through_cache(handles[0], slot, BlockKind::Data, false, None, io);
            match fetched {
                Ok((block, _)) => {
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
            .trailer(contents, Codec::None);
            let known = known_checksum(Some(slots.slot(0))).map(|known| known.get().to_le_bytes());
            let known = known.is_some_and(|known| known == trailer[1..]);
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
        for compression in [Codec::None, Codec::Snappy] {
            let block = data_block();
            let stored = if compression == Codec::Snappy { snappy(&block) } else { block.clone() };
            let (on_disk, handles) = file_of(BlockKind::Data, &[(&stored, compression)]);
            let mut sound = vec![0; on_disk.bytes as usize];
            on_disk.handle.read_exact_at(0, &mut sound).unwrap();
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
                file.fetch_through_cache(handles[0], slot, BlockKind::Data, false, None, io)
                    .map(|(block, _)| block)
            };
            for _ in 0..2 {
                assert!(fetch().err().unwrap().is_corruption(), "damaged at its first use");
                assert_eq!(known_checksum(Some(slots.slot(0))), None);
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
            let kept = file.fetch_through_cache(handles[0], slot, BlockKind::Data, true, None, io);
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
            file.fetch_through_cache(handle, slot, BlockKind::Data, false, None, io).map(drop)
        };
        let (file, handles) = file_of(BlockKind::Data, &[(&block, Codec::None)]);
        let mut bytes = vec![0; file.bytes as usize];
        file.handle.read_exact_at(0, &mut bytes).unwrap();
        fetch(&file, handles[0]).unwrap();
        let known = known_checksum(Some(slots.slot(0)));
        assert_ne!(known, None);
        // Damaged bytes, read by a call.
        let middle = handles[0].offset as usize + block.len() / 2;
        bytes[middle] = b'w';
        let (path, disk) = (Path::new("/1.sst"), MemEnv::new());
        disk.write_file(path, &bytes);
        let pool = FilePool::new(Arc::new(disk), 8);
        let handle = FileHandle::new(&pool, path.to_path_buf());
        let damaged = TableFile::new(handle, TABLE_ID, bytes.len() as u64, &file.cache);
        assert!(fetch(&damaged, handles[0]).unwrap_err().is_corruption());
        // The map of another table, whose block has a damaged trailer.
        let (mut another, _) = file_of(BlockKind::Data, &[(&other, Codec::None)]);
        another.handle.read_exact_at(0, &mut bytes).unwrap();
        bytes[middle] = b'x';
        let contents = [bytes.clone(), bytes];
        let map = Arc::new(Changing { contents, now: AtomicBool::new(false) });
        another.handle.replace(map);
        assert!(fetch(&another, handles[0]).unwrap_err().is_corruption());
        assert_eq!(known_checksum(Some(slots.slot(0))), known);
    }

    /// A file that was opened again may be shorter than the table. The call has the error.
    #[test]
    fn blocks_beyond_a_map_are_read_by_calls() {
        let block = data_block();
        let (mut file, handles) = file_of(BlockKind::Data, &[(&block, Codec::None)]);
        let mut bytes = vec![0; file.bytes as usize];
        file.handle.read_exact_at(0, &mut bytes).unwrap();
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
        let (file, handles) = file_of(BlockKind::Filter, &[(&compressed, Codec::Snappy)]);
        let error = file.read_raw(handles[0], BlockKind::Filter, &mut TableIo::default());
        assert!(error.unwrap_err().to_string().contains("compressed filter"));
    }

    #[test]
    fn compression_bombs_and_hostile_handles_are_refused() {
        // A Snappy stream that declares 4 GiB - 1, one that declares a megabyte, and garbage.
        let streams: [&[u8]; 3] =
            [&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], &[0x80, 0x80, 0x40, 0, 0], &[9, 9, 9]];
        for stream in streams {
            let (file, handles) = file_of(BlockKind::Data, &[(stream, Codec::Snappy)]);
            let fetched = file.fetch(handles[0], BlockKind::Data, true, &mut TableIo::default());
            assert!(fetched.err().unwrap().to_string().contains("snappy"));
        }
        let (file, _) = file_of(BlockKind::Data, &[(&data_block(), Codec::None)]);
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
