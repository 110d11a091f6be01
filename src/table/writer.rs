//! The file of a table that is being written, behind a write buffer.
//!
//! `builder` and, through [`BlockSink`], the filter's builder append blocks; each gets its trailer
//! here. The file is written a number of bytes at a time, each at a multiple of that. The page
//! cache keeps what one write brings in large folios, as far as it can: more at a time makes later
//! reads faster and writing itself slower. After an error the file is of no use and the caller
//! removes it.

use crate::env::api::WritableFile;
use crate::error::{Error, Result};
use crate::table::filter_block::layout::BlockSink;
use crate::table::format::{BLOCK_BYTES_MAX, BlockHandle, Compression, block_trailer};
use std::path::PathBuf;

/// A file being written from front to back.
pub struct TableWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    table_id: u64,
    buffer: Vec<u8>,
    /// Bytes of one write.
    write_bytes: usize,
    /// Bytes that the file has; the buffer's come behind them.
    written: u64,
}

impl TableWriter {
    /// Starts at the front of `file`, to be written `write_bytes` at a time; `path` is for errors.
    #[must_use]
    pub fn new(
        file: Box<dyn WritableFile>,
        path: PathBuf,
        table_id: u64,
        write_bytes: usize,
    ) -> Self {
        let write_bytes = write_bytes.max(1);
        TableWriter { file, path, table_id, buffer: Vec::new(), write_bytes, written: 0 }
    }

    /// The id that blocks are tied to.
    #[must_use]
    pub fn table_id(&self) -> u64 {
        self.table_id
    }

    /// Where the next byte goes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes a block and its trailer.
    pub fn write_block(&mut self, stored: &[u8], compression: Compression) -> Result<BlockHandle> {
        if stored.len() > BLOCK_BYTES_MAX {
            let what = format!("a block of {} bytes; make smaller tables", stored.len());
            return Err(Error::InvalidArgument { what });
        }
        let handle = BlockHandle { offset: self.position(), size: stored.len() as u64 };
        self.put(stored)?;
        self.put(&block_trailer(stored, compression, self.table_id, handle.offset))?;
        Ok(handle)
    }

    /// Appends bytes.
    pub fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
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
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.file
            .write_at(self.written, bytes)
            .map_err(|error| Error::io("write_at", &self.path, error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes what is buffered and syncs the file.
    pub fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync_all().map_err(|error| Error::io("sync_all", &self.path, error))
    }
}

impl BlockSink for TableWriter {
    fn write_raw(&mut self, contents: &[u8]) -> Result<BlockHandle> {
        self.write_block(contents, Compression::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::api::Env;
    use crate::env::mem::MemEnv;
    use crate::table::format::check_block;
    use std::path::Path;

    #[test]
    fn blocks_of_all_sizes_stand_where_their_handles_say() {
        let env = MemEnv::new();
        let path = Path::new("/1.sst");
        let mut writer = TableWriter::new(env.create_new(path).unwrap(), path.into(), 7, 1 << 20);
        let sizes = [0, 1, 100_000, 948_565, 1_048_571, 1_048_576, 1_048_577, 2_600_000, 3];
        let blocks: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let before = env.log_len();
        let handles: Vec<_> = blocks.iter().map(|block| writer.write_raw(block).unwrap()).collect();
        let writes = (env.log_len() - before) as u64;
        assert_eq!(writes, writer.position() >> 20, "all of a mebibyte, at multiples of it");
        writer.finish().unwrap();
        let bytes = env.read_file(path).unwrap();
        assert_eq!(bytes.len() as u64, writer.position());
        for (block, handle) in blocks.iter().zip(handles) {
            let stored = &bytes[handle.offset as usize..handle.end().unwrap() as usize];
            assert_eq!(check_block(stored, 7, handle.offset), Ok((&block[..], Compression::None)));
        }
    }
}
