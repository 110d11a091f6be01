//! One filter for the whole table, in one block, asked before anything else of the table.
//!
//! The block is the filter, byte for byte as the encoding writes it; RocksDB's for RocksDB's
//! encodings. No keys, no block. A block of no bytes, which no writer makes, is not consulted.
//!
//! A resident filter is a [`PreparedFilter`] with its trailer parsed, which the version's probe
//! array reaches without touching the table; else the block comes through the cache at each use.

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::filter::builder::Construction;
use crate::filter::builder::FilterBuilder;
use crate::filter::encoding::{Encoding, FilterReader, FilterVerdict, PreparedFilter};
use crate::filter::hash::KeyHash;
use crate::table::batch_key::{BatchKey, ask, set_all};
use crate::table::fetch::{TableFile, TableIo};
use crate::table::filter::layout::{
    BlockSink, FULL_PREFIX, FilterBlockSummary, FilterMembers, FilterSource, is_writable,
};
use crate::table::format::{BlockHandle, BlockKind};

/// Writes a full filter.
#[derive(Debug)]
pub struct FullBuilder {
    name: String,
    members: FilterMembers,
    keys: FilterBuilder,
    /// The first thing that went wrong; told at `finish`.
    failed: Option<Error>,
}

impl FullBuilder {
    /// One filter for all keys.
    pub fn new(encoding: &Encoding, members: &FilterMembers) -> Self {
        FullBuilder {
            name: format!("{FULL_PREFIX}{}", encoding.full_name()),
            members: members.clone(),
            keys: encoding.builder(),
            failed: None,
        }
    }

    /// The same builder under these settings: before the first key.
    #[must_use]
    pub fn under(mut self, construction: &Construction) -> Self {
        self.keys = self.keys.under(construction);
        self
    }

    /// Adds a user key.
    pub fn add_key(&mut self, user_key: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        match self.members.prefix_of(user_key) {
            Ok(prefix) => self.members.add(user_key, prefix, &mut self.keys),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Writes the block; nothing if no key came.
    pub fn finish(&mut self, sink: &mut dyn BlockSink) -> Result<Option<FilterBlockSummary>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let entries = self.keys.entries() as u64;
        let mut contents = Vec::new();
        self.keys.finish(&mut contents)?;
        if contents.is_empty() || !is_writable(contents.len()) {
            return Ok(None);
        }
        Ok(Some(FilterBlockSummary {
            metaindex_name: self.name.clone(),
            handle: sink.write_raw(&contents, BlockKind::Filter)?,
            filter_bytes: contents.len() as u64,
            entries,
            partitions: 0,
        }))
    }
}

/// Reads a full filter.
#[derive(Debug)]
pub struct FullReader {
    reader: FilterReader,
    source: FilterSource,
    resident: Option<PreparedFilter>,
}

impl FullReader {
    /// The filter at `handle`, fetched at each use.
    pub fn new(reader: FilterReader, handle: BlockHandle) -> Self {
        FullReader { reader, source: FilterSource::new(handle), resident: None }
    }

    /// Loads the filter to stay; if that fails it is fetched at each use.
    pub fn make_resident(&mut self, file: &TableFile, io: &mut TableIo) {
        let bytes = self.source.load(file, io).filter(|bytes| !bytes.is_empty());
        self.resident = bytes.map(|bytes| PreparedFilter::new(self.reader.clone(), bytes));
    }

    /// The filter, if it stays in memory.
    #[inline]
    pub fn resident(&self) -> Option<&PreparedFilter> {
        self.resident.as_ref()
    }

    /// Where the block stands.
    pub fn handle(&self) -> BlockHandle {
        self.source.handle()
    }

    /// Reads the filter past the cache.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, file: &TableFile) -> Result<()> {
        let handle = self.source.handle();
        match file.read_filter(handle, &mut TableIo::default())?.is_empty() {
            true => Err(file.corruption(handle.offset, "an empty filter")),
            false => Ok(()),
        }
    }

    /// True if it was found damaged when it was last read.
    pub fn is_known_damaged(&self) -> bool {
        self.source.is_known_damaged()
    }

    /// May the table hold the key?
    #[inline]
    pub fn table_may_contain(
        &self,
        file: &TableFile,
        key: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        if let Some(filter) = &self.resident {
            return FilterVerdict::of(filter.may_contain(key));
        }
        let Some(block) = self.source.fetch(file, io) else { return FilterVerdict::NotConsulted };
        match block.filter() {
            Some(filter) if !filter.is_empty() => {
                FilterVerdict::of(self.reader.may_contain(filter, key))
            }
            _ => {
                io.filter_errors += 1;
                FilterVerdict::NotConsulted
            }
        }
    }

    /// May the table hold these keys? One fetch for all of them where the filter is not resident.
    pub fn ask_table(&self, file: &TableFile, keys: &mut [&mut BatchKey<'_>], io: &mut TableIo) {
        let fetched;
        let filter = match &self.resident {
            Some(filter) => filter,
            None => {
                set_all(keys, FilterVerdict::NotConsulted);
                let Some(block) = self.source.fetch(file, io) else { return };
                let Some(bytes) = block.filter().filter(|bytes| !bytes.is_empty()) else {
                    io.filter_errors += 1;
                    return;
                };
                fetched = PreparedFilter::new(self.reader.clone(), Arc::clone(bytes));
                &fetched
            }
        };
        ask(keys, |hash| filter.prefetch(hash), |hash| filter.may_contain(hash));
    }
}
