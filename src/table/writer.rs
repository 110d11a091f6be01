//! The file of a table that is being written, with a write buffer.
//!
//! The file begins with its header. `builder` and, through [`BlockSink`], the filter's builder
//! append blocks; each gets its prefix and its trailer here. A block that would touch one page more
//! than its size needs begins at the next page, after zeros, if there are few of them.
//!
//! All writes but the last have the same size and are aligned to it. The page cache keeps the bytes
//! of one write in large folios if it can: larger writes make later reads faster and writing itself
//! slower. After an error the caller removes the file.

use crate::base::error::{Error, Result};
use crate::env::api::WritableFile;
use crate::table::filter::layout::BlockSink;
use crate::table::format::{
    BLOCK_BYTES_MAX, BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, BlockHandle, BlockIdentity,
    BlockKind, Codec, Header, PAGE_BYTES,
};
use std::path::PathBuf;

/// A file being written from front to back.
pub(crate) struct TableWriter {
    file: Box<dyn WritableFile>,
    /// The path of the file.
    pub path: PathBuf,
    /// The id that blocks are tied to.
    pub table_id: u64,
    buffer: Vec<u8>,
    /// Size of one write.
    write_bytes: usize,
    /// Bytes in the file; those of the buffer follow.
    written: u64,
    /// Zeros before blocks so far.
    pub padding_bytes: u64,
    /// Whether blocks may begin at the next page.
    may_pad: bool,
}

/// A block is moved if that costs at most this part of it: the small gaps save the most pages for
/// their bytes.
const GAP_PART: u64 = 16;

/// All gaps together take at most this part of the file.
const PADDING_PART: u64 = 50;

impl TableWriter {
    /// Begins a new `file` with `header`. It is written `write_bytes` at a time; `path` is for
    /// errors.
    pub(crate) fn new(
        file: Box<dyn WritableFile>,
        path: PathBuf,
        header: Header,
        write_bytes: usize,
    ) -> Self {
        let write_bytes = write_bytes.max(1);
        let (table_id, buffer) = (header.table_id, header.encode());
        TableWriter {
            file,
            path,
            table_id,
            buffer,
            write_bytes,
            written: 0,
            padding_bytes: 0,
            may_pad: true,
        }
    }

    /// Leaves no gap between blocks, so that it is known where the next one begins.
    pub(crate) fn without_padding(mut self) -> Self {
        self.may_pad = false;
        self
    }

    /// Where the next byte goes.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes a block with its prefix and its trailer.
    pub(crate) fn write_block(
        &mut self,
        stored: &[u8],
        kind: BlockKind,
        codec: Codec,
    ) -> Result<BlockHandle> {
        if stored.len() > BLOCK_BYTES_MAX {
            let what = format!("a block of {} bytes; make smaller tables", stored.len());
            return Err(Error::InvalidArgument { what });
        }
        let gap = self.gap_before(stored.len(), kind);
        self.padding_bytes += gap;
        self.put(&[0; PAGE_BYTES as usize][..gap as usize])?;
        let offset = self.position() + BLOCK_PREFIX_BYTES as u64;
        let handle = BlockHandle { offset, size: stored.len() as u64 };
        let identity = BlockIdentity { table_id: self.table_id, offset, kind };
        self.put(&identity.prefix(stored.len() as u32))?;
        self.put(stored)?;
        self.put(&identity.trailer(stored, codec))?;
        Ok(handle)
    }

    /// Zeros before a block of `size` stored bytes. Only blocks that lookups read are moved. The
    /// prefix, which lookups do not read, goes to the end of the page before.
    fn gap_before(&self, size: usize, kind: BlockKind) -> u64 {
        let is_read_by_lookups =
            matches!(kind, BlockKind::Data | BlockKind::Filter | BlockKind::IndexPartition);
        let position = self.position();
        let in_page = (position + BLOCK_PREFIX_BYTES as u64) % PAGE_BYTES;
        let bytes = (size + BLOCK_TRAILER_BYTES) as u64;
        let touches_least = (in_page + bytes).div_ceil(PAGE_BYTES) == bytes.div_ceil(PAGE_BYTES);
        if !self.may_pad || !is_read_by_lookups || touches_least {
            return 0;
        }
        let gap = PAGE_BYTES - in_page;
        let is_small =
            gap <= bytes / GAP_PART && self.padding_bytes + gap <= position / PADDING_PART;
        if is_small { gap } else { 0 }
    }

    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.write_bytes.saturating_sub(self.buffer.len());
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            if self.buffer.len() >= self.write_bytes {
                self.flush()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            let written = self.file.write_at(self.written, &self.buffer);
            written.map_err(|error| Error::io("write_at", &self.path, error))?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes what is buffered and syncs the file.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync_all().map_err(|error| Error::io("sync_all", &self.path, error))
    }
}

impl BlockSink for TableWriter {
    fn write_raw(&mut self, contents: &[u8], kind: BlockKind) -> Result<BlockHandle> {
        self.write_block(contents, kind, Codec::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::api::Env;
    use crate::env::mem::MemEnv;
    use crate::table::format::{HEADER_BYTES, read_prefix};
    use proptest::prelude::*;
    use std::path::Path;

    const PATH: &str = "/1.sst";

    fn new_writer(env: &MemEnv, write_bytes: usize) -> TableWriter {
        let header = Header { version: 1, table_id: 7, keyspace: 3 };
        let path = Path::new(PATH);
        TableWriter::new(env.create_new(path).unwrap(), path.into(), header, write_bytes)
    }

    #[test]
    fn block_handles_locate_blocks_of_every_size() {
        let env = MemEnv::with_log();
        let mut writer = new_writer(&env, 1 << 20).without_padding();
        let sizes = [0, 1, 100_000, 948_565, 1_048_571, 1_048_576, 1_048_577, 2_600_000, 3];
        let blocks: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let before = env.log_len();
        let kind = BlockKind::Filter;
        let handles: Vec<_> =
            blocks.iter().map(|block| writer.write_raw(block, kind).unwrap()).collect();
        let writes = (env.log_len() - before) as u64;
        assert_eq!(writes, writer.position() >> 20, "all of a mebibyte, at multiples of it");
        writer.finish().unwrap();
        let bytes = env.read_file(Path::new(PATH)).unwrap();
        assert_eq!(bytes.len() as u64, writer.position());
        let header = Header::decode(bytes.first_chunk().unwrap(), Path::new(PATH)).unwrap();
        assert_eq!((header.version, header.table_id, header.keyspace), (1, 7, 3));
        let mut end = HEADER_BYTES as u64;
        for (block, handle) in blocks.iter().zip(handles) {
            let BlockHandle { offset, size } = handle;
            assert_eq!(handle.start(), Some(end), "one after the other");
            end = handle.end().unwrap();
            let prefix = bytes[..offset as usize].last_chunk().unwrap();
            assert_eq!(read_prefix(*prefix, 7, offset), Some((kind, size as u32)));
            let stored = &bytes[offset as usize..end as usize];
            let identity = BlockIdentity { table_id: 7, offset, kind };
            assert_eq!(identity.check(stored), Ok((&block[..], Codec::None)));
        }
        assert_eq!(end, bytes.len() as u64);
    }

    /// Pages that a read of the block touches, beyond those that its size needs.
    fn excess_pages(handle: BlockHandle) -> u64 {
        let (first, end) = (handle.offset / PAGE_BYTES, handle.end().unwrap());
        end.div_ceil(PAGE_BYTES)
            - first
            - (handle.end().unwrap() - handle.offset).div_ceil(PAGE_BYTES)
    }

    proptest! {
        /// Whatever the sizes, gaps are zeros, few, and only where they save a page.
        #[test]
        fn gaps_are_small_and_save_a_page(
            sizes in prop::collection::vec(
                prop_oneof![0usize..9000, 3900usize..4084, Just(4083), Just(4084), 8000usize..8180],
                1..200,
            ),
            is_read_by_lookups in any::<bool>(),
        ) {
            let env = MemEnv::new();
            let mut writer = new_writer(&env, 1000);
            let kind = if is_read_by_lookups { BlockKind::Data } else { BlockKind::Metaindex };
            let mut end = HEADER_BYTES as u64;
            let mut padding_bytes = 0;
            let mut gaps = Vec::new();
            for size in sizes {
                let handle = writer.write_raw(&vec![1; size], kind).unwrap();
                let gap = handle.start().unwrap() - end;
                if gap > 0 {
                    prop_assert!(is_read_by_lookups && excess_pages(handle) == 0);
                    let unmoved = BlockHandle { offset: handle.offset - gap, ..handle };
                    prop_assert_eq!(excess_pages(unmoved), 1);
                    prop_assert!(gap * 16 <= (size + BLOCK_TRAILER_BYTES) as u64);
                    gaps.push(end..end + gap);
                }
                padding_bytes += gap;
                prop_assert!(padding_bytes * 50 <= end, "at most a fiftieth of what is before");
                end = handle.end().unwrap();
            }
            prop_assert_eq!(writer.padding_bytes, padding_bytes);
            writer.finish().unwrap();
            let bytes = env.read_file(Path::new(PATH)).unwrap();
            for gap in gaps {
                prop_assert!(bytes[gap.start as usize..gap.end as usize].iter().all(|b| *b == 0));
            }
        }
    }

    #[test]
    fn blocks_of_nearly_a_page_touch_one() {
        let mut writer = new_writer(&MemEnv::new(), 1 << 16);
        // The first block shares its page with the header.
        writer.write_raw(&[1; 4000], BlockKind::Data).unwrap();
        for number in 0..1000 {
            let handle = writer.write_raw(&[1; 4030][number % 53..], BlockKind::Data).unwrap();
            assert_eq!((excess_pages(handle), handle.offset % PAGE_BYTES), (0, 0), "{number}");
        }
    }
}
