//! The file of a table that is being written, with a write buffer.
//!
//! The file begins with its header. `builder` and, through [`BlockSink`], the filter's builder
//! append blocks; each gets its prefix and its trailer here. All writes but the last have the same
//! size and are aligned to it. The page cache keeps the bytes of one write in large folios if it
//! can: larger writes make later reads faster and writing itself slower. After an error the caller
//! removes the file.

use crate::base::error::{Error, Result};
use crate::env::api::WritableFile;
use crate::table::filter::layout::BlockSink;
use crate::table::format::{
    BLOCK_BYTES_MAX, BLOCK_PREFIX_BYTES, BlockHandle, BlockIdentity, BlockKind, Codec, Header,
};
use std::path::{Path, PathBuf};

/// A file being written from front to back.
pub(crate) struct TableWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    table_id: u64,
    buffer: Vec<u8>,
    /// Size of one write.
    write_bytes: usize,
    /// Bytes in the file; those of the buffer follow.
    written: u64,
}

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
        TableWriter { file, path, table_id, buffer, write_bytes, written: 0 }
    }

    /// The id that blocks are tied to.
    pub(crate) fn table_id(&self) -> u64 {
        self.table_id
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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
        let offset = self.position() + BLOCK_PREFIX_BYTES as u64;
        let handle = BlockHandle { offset, size: stored.len() as u64 };
        let identity = BlockIdentity { table_id: self.table_id, offset, kind };
        self.put(&identity.prefix(stored.len() as u32))?;
        self.put(stored)?;
        self.put(&identity.trailer(stored, codec))?;
        Ok(handle)
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
    use std::path::Path;

    #[test]
    fn block_handles_locate_blocks_of_every_size() {
        let env = MemEnv::with_log();
        let path = Path::new("/1.sst");
        let header = Header { version: 1, table_id: 7, keyspace: 3 };
        let mut writer =
            TableWriter::new(env.create_new(path).unwrap(), path.into(), header, 1 << 20);
        let sizes = [0, 1, 100_000, 948_565, 1_048_571, 1_048_576, 1_048_577, 2_600_000, 3];
        let blocks: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let before = env.log_len();
        let kind = BlockKind::Filter;
        let handles: Vec<_> =
            blocks.iter().map(|block| writer.write_raw(block, kind).unwrap()).collect();
        let writes = (env.log_len() - before) as u64;
        assert_eq!(writes, writer.position() >> 20, "all of a mebibyte, at multiples of it");
        writer.finish().unwrap();
        let bytes = env.read_file(path).unwrap();
        assert_eq!(bytes.len() as u64, writer.position());
        assert_eq!(Header::decode(bytes.first_chunk().unwrap(), path).unwrap(), header);
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
}
