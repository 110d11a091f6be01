//! Writes a table: sorted entries in, one synced file out.
//!
//! Legal calls: `add+ finish`. Keys are internal keys, strictly ascending; anything else is an
//! error, as is an empty table. After an error the builder is dropped and its file removed by the
//! caller. Flush and compaction call it; the sync of the directory is theirs.
//!
//! Memory is one block, the index and the filter's keys, besides a write buffer of 256 KiB. The
//! filter is told of every key through `key::filter_key`, and after each data block, the last one
//! too, where the file then ends. The separator of a block waits for the first key of the next, so
//! that it can be the shortest string between them. For a given table id the bytes are determined
//! by the entries and the options.

use crate::env::api::WritableFile;
use crate::error::{Error, Result};
use crate::key::{
    KEY_BYTES_MAX, VALUE_BYTES_MAX, ValueKind, compare_internal, filter_key, put_key_with_trailer,
    separator, split_internal_key, unpack_trailer, user_key,
};
use crate::table::block_builder::BlockBuilder;
use crate::table::filter_block::dispatch::FilterBlockBuilder;
use crate::table::filter_block::layout::{BlockSink, FilterBlockSummary, TableFilter};
use crate::table::format::{
    BLOCK_BYTES_MAX, BLOCK_TRAILER_BYTES, BlockHandle, Compression, Footer, PROPERTIES_NAME,
    block_trailer,
};
use crate::table::properties::Properties;
use std::path::PathBuf;

/// How a table is written. Tables say themselves how they are to be read.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Size at which a data block is closed. Larger ones compress better and need less index;
    /// each lookup reads a whole one.
    pub block_bytes: usize,
    /// Entries between restart points. More save space and cost lookups a longer walk.
    pub restart_interval: usize,
    /// Adds a hash index to each data block: about 1.3 bytes per key for one binary search less.
    pub hash_index: bool,
    /// Compression of data blocks.
    pub compression: Compression,
    /// The filter, if there is to be one.
    pub filter: Option<TableFilter>,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// Length of the file.
    pub bytes: u64,
    /// The id it was given.
    pub table_id: u64,
    /// First internal key.
    pub smallest: Vec<u8>,
    /// Last internal key.
    pub largest: Vec<u8>,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Entries that delete their key.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub smallest_sequence: u64,
    /// Largest sequence number.
    pub largest_sequence: u64,
}

/// A table being written.
pub struct TableBuilder {
    out: TableWriter,
    options: TableOptions,
    data: BlockBuilder,
    encoder: snap::raw::Encoder,
    compressed: Vec<u8>,
    filter: Option<FilterBlockBuilder>,
    index: IndexEntries,
    /// A block whose separator waits for the next key.
    unseparated: Option<BlockHandle>,
    last_key: Vec<u8>,
    properties: Properties,
}

impl TableBuilder {
    /// Starts a table in `file`, which must be new; `path` is for errors.
    #[must_use]
    pub fn new(
        file: Box<dyn WritableFile>,
        path: PathBuf,
        table_id: u64,
        options: TableOptions,
    ) -> Self {
        let mut filter = options.filter.as_ref().map(FilterBlockBuilder::new);
        if let Some(filter) = &mut filter {
            filter.start_block(0);
        }
        let properties = Properties { compression: options.compression, ..Properties::default() };
        TableBuilder {
            out: TableWriter { file, path, table_id, buffer: Vec::new(), written: 0 },
            data: BlockBuilder::data(options.restart_interval, options.hash_index),
            options,
            encoder: snap::raw::Encoder::new(),
            compressed: Vec::new(),
            filter,
            index: IndexEntries::default(),
            unseparated: None,
            last_key: Vec::new(),
            properties,
        }
    }

    /// Adds an entry; its key must be above all before.
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        self.check(internal_key, value)?;
        if let Some(handle) = self.unseparated.take() {
            self.index.push(&self.last_key, Some(internal_key), handle);
        }
        if value.len() > self.options.block_bytes && self.data.entries() > 0 {
            // A large value gets a block of its own: neighbours should not have to read it.
            self.write_data_block()?;
            if let Some(handle) = self.unseparated.take() {
                self.index.push(&self.last_key, Some(internal_key), handle);
            }
        }
        if let Some(filter) = &mut self.filter {
            filter.add_key(filter_key(internal_key));
        }
        self.data.add(internal_key, value);
        self.note(internal_key, value);
        if self.data.estimated_bytes() >= self.options.block_bytes {
            self.write_data_block()?;
        }
        Ok(())
    }

    /// Size of the file so far, the block in the making included; index and filter come on top.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let pending = if self.data.entries() > 0 { self.data.estimated_bytes() } else { 0 };
        self.out.position() + pending as u64
    }

    /// Entries added.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Writes what is left (filter, properties, metaindex, index, footer) and syncs the file.
    pub fn finish(mut self) -> Result<TableSummary> {
        if self.properties.entries == 0 {
            return Err(Error::InvalidArgument { what: "a table without entries".into() });
        }
        if self.data.entries() > 0 {
            self.write_data_block()?;
        }
        if let Some(handle) = self.unseparated.take() {
            self.index.push(&self.last_key, None, handle);
        }
        self.properties.data_bytes = self.out.position();
        let mut metaindex = Vec::new();
        if let Some(filter) = self.write_filter()? {
            metaindex.push((filter.metaindex_name, filter.handle));
        }
        let index = self.index.build();
        self.properties.index_key_is_user_key = self.index.user_keys_suffice();
        self.properties.index_bytes = (index.len() + BLOCK_TRAILER_BYTES) as u64;
        self.properties.largest_key.clone_from(&self.last_key);
        let properties = self.out.write_raw(&self.properties.encode())?;
        metaindex.push((PROPERTIES_NAME.to_string(), properties));
        let metaindex = self.write_metaindex(metaindex)?;
        let index = self.out.write_raw(&index)?;
        let mut footer = Vec::new();
        let table_id = self.out.table_id;
        Footer { table_id, metaindex, index }.encode(&mut footer);
        self.out.put(&footer)?;
        self.out.finish()?;
        Ok(TableSummary {
            bytes: self.out.written,
            table_id,
            smallest: self.properties.smallest_key,
            largest: self.properties.largest_key,
            entries: self.properties.entries,
            tombstones: self.properties.tombstones,
            smallest_sequence: self.properties.smallest_sequence,
            largest_sequence: self.properties.largest_sequence,
        })
    }

    fn check(&self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidArgument { what });
        let Some((user_key, trailer)) = split_internal_key(internal_key) else {
            return refuse("a table key shorter than its trailer".into());
        };
        if unpack_trailer(trailer).is_none() {
            return refuse(format!("a table entry of kind {}", trailer as u8));
        }
        if user_key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            let (key, value) = (user_key.len(), value.len());
            return refuse(format!("a table entry of {key} bytes of key and {value} of value"));
        }
        if self.properties.entries > 0
            && compare_internal(&self.last_key, internal_key) != std::cmp::Ordering::Less
        {
            return refuse(format!(
                "table keys out of order: \"{}\" after \"{}\"",
                internal_key.escape_ascii(),
                self.last_key.escape_ascii()
            ));
        }
        Ok(())
    }

    fn note(&mut self, internal_key: &[u8], value: &[u8]) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.smallest_key = internal_key.to_vec();
        }
        if let Some((sequence, kind)) =
            split_internal_key(internal_key).and_then(|(_, trailer)| unpack_trailer(trailer))
        {
            properties.smallest_sequence = properties.smallest_sequence.min(sequence);
            properties.largest_sequence = properties.largest_sequence.max(sequence);
            properties.tombstones += u64::from(kind == ValueKind::Tombstone);
        }
        properties.entries += 1;
        properties.raw_key_bytes += internal_key.len() as u64;
        properties.raw_value_bytes += value.len() as u64;
        self.last_key.clear();
        self.last_key.extend_from_slice(internal_key);
    }

    fn write_data_block(&mut self) -> Result<()> {
        let contents = self.data.finish();
        let (stored, compression) = match self.options.compression {
            Compression::None => (contents, Compression::None),
            Compression::Snappy => compress(&mut self.encoder, contents, &mut self.compressed),
        };
        let handle = self.out.write_block(stored, compression)?;
        self.data.reset();
        self.properties.data_blocks += 1;
        self.unseparated = Some(handle);
        if let Some(filter) = &mut self.filter {
            filter.start_block(self.out.position());
        }
        Ok(())
    }

    fn write_filter(&mut self) -> Result<Option<FilterBlockSummary>> {
        let Some(mut builder) = self.filter.take() else {
            return Ok(None);
        };
        let user_keys = self.index.user_keys_suffice();
        let Some(summary) = builder.finish(user_keys, &mut self.out)? else {
            return Ok(None);
        };
        let properties = &mut self.properties;
        let name = &summary.metaindex_name;
        properties.filter_policy =
            name.split_once('.').map_or(name.as_str(), |(_, policy)| policy).to_string();
        if let Some(filter) = &self.options.filter {
            properties.filter_layout = filter.layout.to_string();
            let bits = filter.encoding.bits_per_key().unwrap_or_default();
            properties.filter_millibits_per_key = (bits * 1000.0).round() as u64;
        }
        properties.filter_bytes = summary.filter_bytes;
        properties.filter_entries = summary.entries;
        properties.filter_partitions = summary.partitions;
        Ok(Some(summary))
    }

    fn write_metaindex(&mut self, mut entries: Vec<(String, BlockHandle)>) -> Result<BlockHandle> {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut builder = BlockBuilder::new(1);
        for (name, handle) in entries {
            let mut value = Vec::new();
            handle.encode(&mut value);
            builder.add(name.as_bytes(), &value);
        }
        self.out.write_raw(builder.finish())
    }
}

/// Compressed into `buffer` where that saves at least an eighth, else as it is.
fn compress<'b>(
    encoder: &mut snap::raw::Encoder,
    contents: &'b [u8],
    buffer: &'b mut Vec<u8>,
) -> (&'b [u8], Compression) {
    let needed = snap::raw::max_compress_len(contents.len());
    if buffer.len() < needed {
        buffer.resize(needed, 0);
    }
    match encoder.compress(contents, buffer) {
        Ok(bytes) if bytes < contents.len() - contents.len() / 8 => {
            (&buffer[..bytes], Compression::Snappy)
        }
        // Snappy refuses only what is larger than 4 GiB.
        _ => (contents, Compression::None),
    }
}

/// The index in the making: separators as internal keys, until it is known whether user keys do.
#[derive(Debug, Default)]
struct IndexEntries {
    keys: Vec<u8>,
    /// End of each key in `keys`, and the block.
    entries: Vec<(usize, BlockHandle)>,
    need_internal_keys: bool,
}

impl IndexEntries {
    /// The block at `handle` ends with `last`, the following begins with `next`.
    fn push(&mut self, last: &[u8], next: Option<&[u8]>, handle: BlockHandle) {
        match next {
            Some(next) if user_key(next) == user_key(last) => {
                self.need_internal_keys = true;
                self.keys.extend_from_slice(last);
            }
            // Trailer 0 stands behind every version of the separator.
            Some(next) => {
                let short = separator(user_key(last), user_key(next));
                put_key_with_trailer(&mut self.keys, &short, 0);
            }
            None => put_key_with_trailer(&mut self.keys, user_key(last), 0),
        }
        self.entries.push((self.keys.len(), handle));
    }

    fn user_keys_suffice(&self) -> bool {
        !self.need_internal_keys
    }

    fn build(&self) -> Vec<u8> {
        let mut builder = BlockBuilder::new(1);
        let mut value = Vec::new();
        let mut start = 0;
        for &(end, handle) in &self.entries {
            let key = self.keys.get(start..end).unwrap_or_default();
            start = end;
            value.clear();
            handle.encode(&mut value);
            builder.add(if self.user_keys_suffice() { user_key(key) } else { key }, &value);
        }
        builder.finish().to_vec()
    }
}

/// The file, behind a write buffer.
struct TableWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    table_id: u64,
    buffer: Vec<u8>,
    /// Bytes that the file has; the buffer's come behind them.
    written: u64,
}

impl TableWriter {
    const BUFFER_BYTES: usize = 256 << 10;

    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn write_block(&mut self, stored: &[u8], compression: Compression) -> Result<BlockHandle> {
        if stored.len() > BLOCK_BYTES_MAX {
            let what = format!("a block of {} bytes; make smaller tables", stored.len());
            return Err(Error::InvalidArgument { what });
        }
        let handle = BlockHandle { offset: self.position(), size: stored.len() as u64 };
        self.put(stored)?;
        self.put(&block_trailer(stored, compression, self.table_id, handle.offset))?;
        Ok(handle)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > Self::BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() > Self::BUFFER_BYTES {
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
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

    fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync_all().map_err(|error| Error::io("sync_all", &self.path, error))
    }
}

impl BlockSink for TableWriter {
    fn write_raw(&mut self, contents: &[u8]) -> Result<BlockHandle> {
        self.write_block(contents, Compression::None)
    }
}
