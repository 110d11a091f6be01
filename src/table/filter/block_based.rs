//! LevelDB's layout: one filter per window of data offsets, all in one block, whose bytes
//! `siftdb-filter/block_based.rs` describes.
//!
//! Offsets count from the first data block, which is at 0 as in LevelDB: the table's header does
//! not count, prefixes and trailers of data blocks do. The filter block is asked after the data
//! index, with the offset of the block that the index names.

use crate::base::error::Result;
use crate::table::batch_key::BatchKey;
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::layout::FilterSource;
use crate::table::format::BlockHandle;
use crate::table::index::Index;
use siftdb_filter::block_based::{Window, each_window, window_of};
use siftdb_filter::cache_line::AlignedBytes;
use siftdb_filter::encoding::{FilterReader, FilterVerdict};
use siftdb_filter::hash::KeyHash;

/// Reads a block-based filter.
#[derive(Debug)]
pub(crate) struct BlockBasedReader {
    reader: FilterReader,
    pub source: FilterSource,
    pinned: Option<AlignedBytes>,
}

impl BlockBasedReader {
    /// Reads the block at each use, until it is pinned.
    pub(crate) fn new(reader: FilterReader, handle: BlockHandle) -> Self {
        BlockBasedReader { reader, source: FilterSource::new(handle), pinned: None }
    }

    /// Loads the block to stay; if that fails it is fetched at each use.
    pub(crate) fn pin(&mut self, file: &TableFile, io: &mut TableIo) {
        self.pinned = self.source.load(file, io);
    }

    /// Memory held.
    #[cfg(test)]
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    /// Reads the block past the cache, and finds the filter of every window.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self, file: &TableFile) -> Result<()> {
        let handle = self.source.handle;
        let contents = file.read_filter(handle, &mut TableIo::default())?;
        match each_window(&contents, |_| {}) {
            true => Ok(()),
            false => {
                let what = "offsets of filters that contradict each other";
                Err(file.corruption(handle.offset, what))
            }
        }
    }

    /// May the data block at `block_offset` hold the key?
    pub(crate) fn block_may_contain(
        &self,
        file: &TableFile,
        block_offset: u64,
        key: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        let ask = |contents: &[u8], io: &mut _| self.verdict(contents, block_offset, key, io);
        self.with_contents(file, io, ask).unwrap_or(FilterVerdict::NotConsulted)
    }

    /// Asks for every key without a verdict whether the data block that the index named may hold
    /// it. One fetch of the filter block where it is not pinned.
    pub(crate) fn ask_blocks(
        &self,
        file: &TableFile,
        index: &Index,
        keys: &mut [&mut BatchKey<'_>],
        io: &mut TableIo,
    ) {
        self.with_contents(file, io, |contents, io| {
            for key in keys {
                if let (FilterVerdict::NotConsulted, Some(block)) = (key.verdict, key.block) {
                    let offset = index.handle_of(block).data_offset();
                    key.verdict = self.verdict(contents, offset, &key.hash, io);
                }
            }
        });
    }

    /// Calls `ask` with the block; `None` and a counted error if it cannot be read.
    fn with_contents<R>(
        &self,
        file: &TableFile,
        io: &mut TableIo,
        ask: impl FnOnce(&[u8], &mut TableIo) -> R,
    ) -> Option<R> {
        match &self.pinned {
            Some(contents) => Some(ask(contents, io)),
            None => self.source.with_bytes(file, io, ask),
        }
    }

    fn verdict(
        &self,
        contents: &[u8],
        block_offset: u64,
        key: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        match window_of(contents, block_offset) {
            Window::Filter(filter) => FilterVerdict::of(self.reader.may_contain(filter, key)),
            Window::Outside => FilterVerdict::NotConsulted,
            Window::Damaged => {
                io.filter_errors += 1;
                FilterVerdict::NotConsulted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty filter says "no". An offset after the last window and damage say nothing, and
    /// damage is counted.
    #[test]
    fn undefined_windows_are_not_consulted() {
        let reader = FilterReader::for_name("leveldb.BuiltinBloomFilter2", &[]).expect("built in");
        let reader = BlockBasedReader::new(reader, BlockHandle::default());
        let one_empty_window = [0, 0, 0, 0, 0, 0, 0, 0, 11];
        let mut io = TableIo::default();
        let mut ask = |contents: &[u8], offset| {
            let verdict = reader.verdict(contents, offset, &KeyHash::new(b"hello"), &mut io);
            (verdict, io.filter_errors)
        };
        assert_eq!(ask(&one_empty_window, 0), (FilterVerdict::No, 0));
        assert_eq!(ask(&one_empty_window, 2048), (FilterVerdict::NotConsulted, 0));
        assert_eq!(ask(&one_empty_window[..4], 0), (FilterVerdict::NotConsulted, 1));
    }
}
