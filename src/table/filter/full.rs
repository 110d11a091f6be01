//! One filter for the whole table, in one block, asked before anything else of the table.
//!
//! The block is the filter, byte for byte as the encoding writes it; for RocksDB's encodings it
//! equals RocksDB's (`FullFilterBlockBuilder` in its `full_filter_block.cc`). No keys, no block. An
//! empty block, which no writer makes, is not consulted.
//!
//! A pinned filter is a [`PreparedFilter`], which the version's probe array reaches without
//! touching the table. Otherwise the block comes through the cache at each use.

use crate::base::error::{Error, Result};
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::layout::{
    BlockSink, FilterBlockSummary, FilterMembers, FilterSource, write_one_block,
};
use crate::table::format::BlockHandle;
use siftdb_filter::builder::FilterBuilder;
use siftdb_filter::encoding::{FilterReader, FilterView, PreparedFilter};

/// Writes a full filter.
#[derive(Debug)]
pub(crate) struct FullBuilder {
    members: FilterMembers,
    pub keys: FilterBuilder,
}

impl FullBuilder {
    /// One filter for all keys.
    pub(crate) fn new(keys: FilterBuilder, members: FilterMembers) -> Self {
        FullBuilder { members, keys }
    }

    /// Adds a user key.
    pub(crate) fn add_key(&mut self, user_key: &[u8]) -> Result<()> {
        let prefix = self.members.prefix_of(user_key)?;
        self.members.add(user_key, prefix, &mut self.keys);
        Ok(())
    }

    /// Writes the block; nothing if there were no keys.
    pub(crate) fn finish(
        &mut self,
        sink: &mut dyn BlockSink,
    ) -> Result<Option<FilterBlockSummary>> {
        let entries = self.keys.entries() as u64;
        let mut contents = Vec::new();
        self.keys.finish(&mut contents).map_err(Error::of_filter_build)?;
        write_one_block(&contents, entries, sink)
    }
}

/// Reads a full filter.
#[derive(Debug)]
pub(crate) struct FullReader {
    reader: FilterReader,
    pub source: FilterSource,
    /// The filter, if it is pinned.
    pub pinned: Option<PreparedFilter>,
}

impl FullReader {
    /// Reads the filter at each use, until it is pinned.
    pub(crate) fn new(reader: FilterReader, handle: BlockHandle) -> Self {
        FullReader { reader, source: FilterSource::new(handle), pinned: None }
    }

    /// Loads the filter to stay; if that fails it is fetched at each use.
    pub(crate) fn pin(&mut self, file: &TableFile, io: &mut TableIo) {
        let bytes = self.source.load(file, io).filter(|bytes| !bytes.is_empty());
        self.pinned = bytes.map(|bytes| PreparedFilter::of(self.reader.clone(), bytes));
    }

    /// Reads the filter past the cache.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self, file: &TableFile) -> Result<()> {
        let handle = self.source.handle;
        match file.read_filter(handle, &mut TableIo::default())?.is_empty() {
            true => Err(file.corruption(handle.offset, "an empty filter")),
            false => Ok(()),
        }
    }

    /// Calls `ask` with the filter; `None` and a counted error if it cannot be read.
    #[inline]
    pub(crate) fn with_filter<R>(
        &self,
        file: &TableFile,
        io: &mut TableIo,
        ask: impl FnOnce(FilterView<'_>) -> R,
    ) -> Option<R> {
        if let Some(filter) = &self.pinned {
            return Some(ask(filter.view()));
        }
        let answer = self.source.with_bytes(file, io, |bytes, io| {
            if bytes.is_empty() {
                io.filter_errors += 1;
                return None;
            }
            Some(ask(self.reader.view(bytes)))
        });
        answer.flatten()
    }
}
