//! LevelDB's layout: one filter per window of data offsets, all in one block.
//!
//! ```text
//! block := filter* offset* array_offset: u32  base_lg: u8
//! ```
//!
//! The keys of all data blocks that *start* in window `i` (offsets `i << base_lg` on) go into
//! filter `i`. `offset` is a `u32` per window; an empty window has the offset of the next one. The
//! bytes equal LevelDB's for LevelDB Bloom and its window of 2 KiB; `base_lg` is stored, so that
//! other windows can be read.
//!
//! Legal order of writing: `(start_block add_key*)* finish`, and one more `start_block` behind the
//! last data block. Asked after the data index, with the offset of the block that it names. More
//! strictly than LevelDB, a shift beyond 63 and an empty range outside the filters are damage.

use crate::coding::{get_u32, put_u32};
use crate::error::Result;
use crate::filter::builder::FilterBuilder;
use crate::filter::hash::KeyHash;
use crate::filter::registry::{Encoding, FilterReader};
use crate::sync::Arc;
use crate::table::fetch::{TableFile, TableIo};
use crate::table::filter_block::layout::{
    BLOCK_BASED_PREFIX, BlockSink, FilterBlockSummary, FilterSource, FilterVerdict, build_error,
    is_writable,
};
use crate::table::format::BlockHandle;

/// Bytes behind the offsets: where they begin, and the logarithm of the window.
const TAIL_BYTES: usize = 5;

/// Writes a block-based filter.
#[derive(Debug)]
pub struct BlockBasedBuilder {
    name: String,
    base_lg: u32,
    window: FilterBuilder,
    filters: Vec<u8>,
    offsets: Vec<u32>,
    entries: u64,
    /// The first thing that went wrong; told at `finish`.
    failed: Option<String>,
}

impl BlockBasedBuilder {
    /// A filter per `window_bytes`, a power of two.
    pub fn new(encoding: &Encoding, window_bytes: usize) -> Self {
        BlockBasedBuilder {
            name: format!("{BLOCK_BASED_PREFIX}{}", encoding.block_based_name()),
            base_lg: window_bytes.max(1).ilog2(),
            window: encoding.block_based_builder(),
            filters: Vec::new(),
            offsets: Vec::new(),
            entries: 0,
            failed: None,
        }
    }

    /// The next keys belong to a data block that starts at `file_offset`.
    pub fn start_block(&mut self, file_offset: u64) {
        let window = file_offset >> self.base_lg;
        while window > self.offsets.len() as u64 && self.failed.is_none() {
            self.finish_window();
        }
    }

    /// Adds a user key.
    pub fn add_key(&mut self, user_key: &[u8]) {
        self.window.add_key(user_key);
    }

    /// Memory held.
    pub fn memory_bytes(&self) -> usize {
        self.window.memory_bytes() + self.filters.capacity() + 4 * self.offsets.capacity()
    }

    /// Writes the block; nothing if no key came.
    pub fn finish(&mut self, sink: &mut dyn BlockSink) -> Result<Option<FilterBlockSummary>> {
        let contents = self.finish_contents();
        if let Some(what) = self.failed.take() {
            return Err(build_error(what));
        }
        if self.entries == 0 || !is_writable(contents.len()) {
            return Ok(None);
        }
        Ok(Some(FilterBlockSummary {
            metaindex_name: self.name.clone(),
            handle: sink.write_raw(&contents)?,
            filter_bytes: contents.len() as u64,
            entries: self.entries,
            partitions: 0,
        }))
    }

    fn finish_window(&mut self) {
        match u32::try_from(self.filters.len()) {
            Ok(offset) => self.offsets.push(offset),
            Err(_) => self.failed = Some("filters of a table above 4 GiB".to_string()),
        }
        self.entries += self.window.entries() as u64;
        if let Err(what) = self.window.finish(&mut self.filters) {
            self.failed = Some(what);
        }
    }

    fn finish_contents(&mut self) -> Vec<u8> {
        if self.window.entries() > 0 {
            self.finish_window();
        }
        let mut contents = std::mem::take(&mut self.filters);
        let array_offset = contents.len() as u32;
        for offset in self.offsets.drain(..) {
            put_u32(&mut contents, offset);
        }
        put_u32(&mut contents, array_offset);
        contents.push(self.base_lg as u8);
        contents
    }
}

/// Reads a block-based filter.
#[derive(Debug)]
pub struct BlockBasedReader {
    reader: FilterReader,
    source: FilterSource,
    resident: Option<Arc<[u8]>>,
}

impl BlockBasedReader {
    /// The filter at `handle`, fetched at each use.
    pub fn new(reader: FilterReader, handle: BlockHandle) -> Self {
        BlockBasedReader { reader, source: FilterSource::new(handle), resident: None }
    }

    /// Loads the block to stay; if that fails it is fetched at each use.
    pub fn make_resident(&mut self, file: &TableFile, io: &mut TableIo) {
        self.resident = self.source.load(file, io);
    }

    /// Memory held.
    pub fn resident_bytes(&self) -> u64 {
        self.resident.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    /// Where the block stands.
    pub fn handle(&self) -> BlockHandle {
        self.source.handle()
    }

    /// May the data block at `block_offset` hold the key?
    pub fn block_may_contain(
        &self,
        file: &TableFile,
        block_offset: u64,
        key: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        if let Some(contents) = &self.resident {
            return self.verdict(contents, block_offset, key, io);
        }
        let Some(block) = self.source.fetch(file, io) else { return FilterVerdict::NotConsulted };
        let contents = block.filter().map_or(&[][..], |bytes| bytes);
        self.verdict(contents, block_offset, key, io)
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

/// What a block says of a data offset.
#[derive(Debug, PartialEq, Eq)]
enum Window<'c> {
    /// These bytes are the filter of the keys there; empty for none.
    Filter(&'c [u8]),
    /// No key was added so far back in the file.
    Outside,
    /// The block contradicts itself.
    Damaged,
}

#[inline]
fn window_of(contents: &[u8], block_offset: u64) -> Window<'_> {
    find_window(contents, block_offset).unwrap_or(Window::Damaged)
}

#[inline]
fn find_window(contents: &[u8], block_offset: u64) -> Option<Window<'_>> {
    let tail = contents.len().checked_sub(TAIL_BYTES)?;
    let base_lg = u32::from(*contents.last()?);
    let array_offset = get_u32(contents, tail)? as usize;
    let windows = tail.checked_sub(array_offset)? / 4;
    let Ok(window) = usize::try_from(block_offset.checked_shr(base_lg)?) else {
        return Some(Window::Outside);
    };
    if window >= windows {
        return Some(Window::Outside);
    }
    // The end of the last filter is the array offset itself, which stands behind the offsets.
    let entry = array_offset + 4 * window;
    let start = get_u32(contents, entry)? as usize;
    let end = get_u32(contents, entry + 4)? as usize;
    if end > array_offset {
        return None;
    }
    contents.get(start..end).map(Window::Filter)
}
