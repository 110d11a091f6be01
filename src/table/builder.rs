//! Writes a table: sorted entries in, one synced file out.
//!
//! Legal calls: `add* add_range_deletes? finish`. Keys are internal keys, strictly ascending;
//! anything else is an error, as is a table without entries and range deletes. After an error the
//! builder is dropped and its file removed by the caller. Flush and compaction call it; the sync of
//! the directory is theirs.
//!
//! Another thread may write the data blocks: `add* detach add* attach finish`. A detached builder
//! collects full blocks, and the thread puts them into the [`BlockFile`]. The bytes are the same.
//!
//! Memory is one block, the index and the filter's keys, besides a write buffer. The filter gets
//! every key through `key::filter_key`, and the end of each data block. A block ends before the
//! first key that does not fit, so its separator is the shortest string before that key. Table id,
//! entries and options determine the bytes.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::events::event::Event;
use crate::base::expiry::EXPIRY_BYTES;
use crate::base::key::{
    KEY_BYTES_MAX, KeyspaceLabel, SequenceNumber, VALUE_BYTES_MAX, ValueKind, compare_internal,
    filter_key, split_internal_key, unpack_trailer, user_key,
};
use crate::base::range_deletes::RangeDeletes;
use crate::env::api::WritableFile;
use crate::table::block::builder::BlockBuilder;
use crate::table::block_file::{BlockFile, DetachedBlocks};
use crate::table::compression::Compression;
use crate::table::features::{PADDED_BLOCKS, PARTITIONED_INDEX, version_of};
use crate::table::filter::dispatch::FilterBlockBuilder;
use crate::table::filter::layout::{BlockSink, FilterLayout, TableFilter};
use crate::table::filter::ranges::{RANGE_FILTER_NAME, write_range_filter};
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, BlockHandle, BlockKind, Footer, HEADER_BYTES, Header,
    PROPERTIES_NAME, RANGE_DELETES_NAME,
};
use crate::table::index::IndexBuilder;
use crate::table::partitioned_index::write_partitions;
use crate::table::properties::Properties;
use crate::table::writer::TableWriter;
use siftdb_filter::construction::Construction;
use siftdb_filter::range::RangeFilterBuilder;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Instant;

/// Bytes of keys of a table's filter, beyond the budget for filters, at which the table ends.
const FILTER_REFUSED_MAX: u64 = 4 << 20;

/// How a table is written. Each table records what a reader needs to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableOptions {
    /// The keyspace that the table is of.
    pub keyspace: KeyspaceLabel,
    /// The id of the database that writes the table, then those of its ancestors.
    pub databases: Vec<u128>,
    /// Most bytes that a data block of several entries takes of the file before compression, prefix
    /// and trailer included. Larger ones compress better and need less index; each lookup reads a
    /// whole one.
    pub block_bytes: usize,
    /// Entries between restart points. More of them save space and make lookups slower.
    pub restart_interval: usize,
    /// Adds a hash index to each data block: a byte an entry for one binary search less.
    pub hash_index: bool,
    /// Size of the partitions of a data index that does not fit into one of them; 0 for an index of
    /// one block, whatever its size.
    pub index_partition_bytes: usize,
    /// Compression of data blocks.
    pub compression: Compression,
    /// The filter; `None` for none.
    pub filter: Option<TableFilter>,
    /// The check that the filter must pass, and the budget of its memory until it is written.
    pub construction: Construction,
    /// Bytes of one write to the file, which are buffered.
    pub write_bytes: usize,
    /// Where to tell that a filter was built.
    pub events: Events,
}

/// The table that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableSummary {
    /// Length of the file.
    pub bytes: u64,
    /// The id it was given.
    pub table_id: u64,
    pub properties: Properties,
    pub range_deletes: RangeDeletes,
}

/// A table being written.
pub(crate) struct TableBuilder {
    /// `None` while another thread has it.
    file: Option<BlockFile>,
    detached: DetachedBlocks,
    options: TableOptions,
    data: BlockBuilder,
    filter: Option<FilterBlockBuilder>,
    range_filter: Option<RangeFilterBuilder>,
    index: IndexBuilder,
    /// Counts of the entries added so far; `largest_key` is the last key.
    pub properties: Properties,
    range_deletes: RangeDeletes,
}

impl TableBuilder {
    /// Starts a table in `file`, which must be new; `path` is for errors.
    pub(crate) fn new(
        file: Box<dyn WritableFile>,
        path: PathBuf,
        table_id: u64,
        options: TableOptions,
    ) -> Self {
        let new = |filter| FilterBlockBuilder::new(filter, &options.construction);
        let mut filter = options.filter.as_ref().map(new);
        if let Some(filter) = &mut filter {
            filter.start_block(0);
        }
        let range_filter = options.filter.as_ref().and_then(TableFilter::range_filter_builder);
        let range_filter = range_filter.map(|builder| builder.under(&options.construction));
        let codec = options.compression.codec();
        let properties = Properties {
            compression: codec,
            required_features: codec.feature().unwrap_or_default().to_string(),
            keyspace: options.keyspace.clone(),
            databases: options.databases.clone(),
            ..Properties::new()
        };
        // The header has the version that a reader of the data blocks needs. Whether the index will
        // have partitions is known only at the end.
        let version = version_of(&properties.required_features);
        let header = Header { version, table_id, keyspace: options.keyspace.id };
        let mut out = TableWriter::new(file, path, header, options.write_bytes);
        if options.filter.as_ref().is_some_and(is_block_based) {
            // The filter must know where a block is before its keys come.
            out = out.without_padding();
        }
        TableBuilder {
            file: Some(BlockFile::new(out, options.compression)),
            detached: DetachedBlocks::default(),
            data: BlockBuilder::data(options.restart_interval, options.hash_index),
            options,
            filter,
            range_filter,
            index: IndexBuilder::default(),
            properties,
            range_deletes: RangeDeletes::default(),
        }
    }

    /// Records `sequences` as the range of the table, although its entries may span less: at level
    /// 0 the range says which table is newer (see `tree::overlap`).
    pub(crate) fn record_sequences(&mut self, sequences: &RangeInclusive<SequenceNumber>) {
        // Entries can only widen it.
        self.properties.smallest_sequence = *sequences.start();
        self.properties.largest_sequence = *sequences.end();
    }

    /// Makes the table an ingested one: all keys have sequence 0 and are different.
    pub(crate) fn mark_ingested(&mut self) {
        self.properties.ingested = true;
    }

    /// Adds an entry. Its key must be above all earlier ones.
    pub(crate) fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        self.check(internal_key, value)?;
        self.add_to_block(internal_key, value)?;
        if let Some(filter) = &mut self.filter {
            filter.add_key(filter_key(internal_key));
        }
        if let Some(range_filter) = &mut self.range_filter {
            range_filter.add_key(filter_key(internal_key));
        }
        self.properties.count(internal_key, value);
        Ok(())
    }

    /// Adds an entry to the data block, or to the next one if it does not fit.
    fn add_to_block(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        if self.data.entries > 0 {
            // The prefix of the next block comes before a page ends, so that the block can begin
            // with the next page.
            let around_bytes = BLOCK_PREFIX_BYTES + BLOCK_TRAILER_BYTES;
            let limit = self.options.block_bytes.saturating_sub(around_bytes);
            // A value that is too large is not copied to find out.
            if self.data.estimated_bytes() + value.len() <= limit {
                self.data.add(internal_key, value);
                if self.data.estimated_bytes() <= limit {
                    return Ok(());
                }
                self.data.remove_last();
            }
            self.write_data_block(Some(internal_key))?;
        }
        self.data.add(internal_key, value);
        Ok(())
    }

    /// Sets the range deletes of the table, which hide entries of other tables and of this one.
    pub(crate) fn add_range_deletes(&mut self, deletes: RangeDeletes) {
        if let Some((smallest, largest)) = deletes.sequences() {
            let properties = &mut self.properties;
            properties.smallest_sequence = properties.smallest_sequence.min(smallest);
            properties.largest_sequence = properties.largest_sequence.max(largest);
        }
        self.properties.range_deletes = deletes.count();
        self.range_deletes = deletes;
    }

    /// Size of the file so far with the unfinished block; padding, index and filter come on top.
    /// What another thread has not written yet counts as not compressed.
    pub(crate) fn file_bytes(&self) -> u64 {
        let pending = if self.data.entries > 0 { self.data.estimated_bytes() } else { 0 };
        let written = match &self.file {
            Some(file) => file.file_bytes(),
            None => self.detached.file_bytes(),
        };
        written + pending as u64
    }

    /// Whether the table should end because its filter takes much memory that the budget does not
    /// have.
    pub(crate) fn filter_is_too_large(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.refused_bytes() >= FILTER_REFUSED_MAX)
    }

    /// Whether another thread can write the blocks. A block-based filter must know where each block
    /// is before its keys come.
    pub(crate) fn can_detach(&self) -> bool {
        self.file.is_some() && !self.options.filter.as_ref().is_some_and(is_block_based)
    }

    /// Gives the file away, so that another thread writes the blocks. `None` if it
    /// is away, or if that [is not possible](TableBuilder::can_detach).
    pub(crate) fn detach(&mut self) -> Option<BlockFile> {
        if !self.can_detach() {
            return None;
        }
        let file = self.file.take()?;
        self.detached = DetachedBlocks::new(file.file_bytes());
        Some(file)
    }

    /// The full blocks of a detached builder, for the thread that has the file.
    pub(crate) fn detached(&mut self) -> &mut DetachedBlocks {
        &mut self.detached
    }

    /// Takes the file back. All blocks that were given away must be in it.
    ///
    /// # Errors
    /// Those of writing the other blocks.
    pub(crate) fn attach(&mut self, mut file: BlockFile) -> Result<()> {
        self.detached.take().blocks.iter_mut().try_for_each(|block| file.write(block))?;
        self.file = Some(file);
        Ok(())
    }

    /// About the size of the data index so far. All of it must be readable at once, as one block or
    /// as joined partitions (`BLOCK_BYTES_MAX`), so a job starts another table well before that.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index.estimated_bytes() as u64
    }

    /// Writes the rest (filter, range deletes, properties, metaindex, index, footer) and syncs the
    /// file. A detached builder must be attached again.
    pub(crate) fn finish(mut self) -> Result<TableSummary> {
        let refused = |what: &str| Error::InvalidArgument { what: what.into() };
        if self.properties.entries == 0 && self.range_deletes.is_empty() {
            return Err(refused("a table without entries"));
        }
        if self.data.entries > 0 {
            self.write_data_block(None)?;
        }
        let file = self.file.take().ok_or_else(|| refused("a table without its file"))?;
        let BlockFile { mut out, handles, .. } = file;
        // The distance from the first block to the one that would be next.
        self.properties.data_bytes = out.position() - HEADER_BYTES as u64;
        let mut metaindex = Vec::from_iter(self.write_filter(&mut out)?);
        if let Some(builder) = self.range_filter.take() {
            let properties = &mut self.properties;
            let handle = write_range_filter(builder, &self.index, properties, &mut out)?;
            metaindex.extend(handle.map(|handle| (RANGE_FILTER_NAME.to_string(), handle)));
        }
        let index = self.write_partitions(&handles, &mut out)?;
        if out.padding_bytes > 0 {
            self.properties.require(PADDED_BLOCKS);
        }
        metaindex.extend(self.write_range_deletes(&mut out)?);
        let properties = out.write_raw(&self.properties.encode(), BlockKind::Properties)?;
        metaindex.push((PROPERTIES_NAME.to_string(), properties));
        let metaindex = write_metaindex(metaindex, &mut out)?;
        let index = out.write_raw(&index, BlockKind::Index)?;
        let table_id = out.table_id;
        let version = version_of(&self.properties.required_features);
        out.put(&Footer { version, table_id, metaindex, index }.encode())?;
        out.finish()?;
        Ok(TableSummary {
            bytes: out.position(),
            table_id,
            properties: self.properties,
            range_deletes: self.range_deletes,
        })
    }

    fn check(&self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidArgument { what });
        let Some((user_key, trailer)) = split_internal_key(internal_key) else {
            return refuse("a table key shorter than its trailer".into());
        };
        let Some((_, kind)) = unpack_trailer(trailer) else {
            return refuse(format!("a table entry of kind {}", trailer as u8));
        };
        let time_bytes = if kind == ValueKind::ExpiringPut { EXPIRY_BYTES } else { 0 };
        if value.len() < time_bytes {
            return refuse("an expiring table entry without its time".into());
        }
        if user_key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX + time_bytes {
            let (key, value) = (user_key.len(), value.len());
            return refuse(format!("a table entry of {key} bytes of key and {value} of value"));
        }
        if self.properties.entries > 0
            && compare_internal(&self.properties.largest_key, internal_key)
                != std::cmp::Ordering::Less
        {
            return refuse(format!(
                "table keys out of order: \"{}\" after \"{}\"",
                internal_key.escape_ascii(),
                self.properties.largest_key.escape_ascii()
            ));
        }
        Ok(())
    }

    /// Completes the data block. The next one begins with `next`.
    fn write_data_block(&mut self, next: Option<&[u8]>) -> Result<()> {
        match &mut self.file {
            None => self.detached.push(&mut self.data),
            Some(file) => {
                file.write(&mut self.data)?;
                if let Some(filter) = &mut self.filter {
                    filter.start_block(file.out.position() - HEADER_BYTES as u64);
                }
            }
        }
        let block = self.properties.data_blocks as usize;
        self.properties.data_blocks += 1;
        self.index.push(&self.properties.largest_key, next);
        if let Some(range_filter) = &mut self.range_filter {
            let smallest = user_key(&self.properties.smallest_key);
            let before = block.checked_sub(1).map(|before| self.index.user_key(before));
            range_filter.end_block(before.unwrap_or(smallest), self.index.user_key(block));
        }
        Ok(())
    }

    /// Writes the filter; its metaindex entry, if there are keys in it.
    fn write_filter(&mut self, out: &mut TableWriter) -> Result<Option<(String, BlockHandle)>> {
        let (Some(mut builder), Some(filter)) = (self.filter.take(), &self.options.filter) else {
            return Ok(None);
        };
        let (user_keys, started) = (self.index.user_keys_suffice(), Instant::now());
        let Some(summary) = builder.finish(user_keys, out)? else {
            if self.properties.entries > 0 {
                filter.describe_no_member(&mut self.properties);
            }
            return Ok(None);
        };
        self.options.events.emit(|| Event::FilterBuilt {
            keyspace: self.options.keyspace.name.clone(),
            path: out.path.to_path_buf(),
            layout: filter.layout.to_string(),
            policy: filter.policy_name(),
            entries: summary.entries,
            bytes: summary.filter_bytes,
            duration: started.elapsed(),
        });
        let properties = &mut self.properties;
        filter.describe(properties);
        properties.filter_bytes = summary.filter_bytes;
        properties.filter_entries = summary.entries;
        properties.filter_partitions = summary.partitions;
        Ok(Some((filter.metaindex_name(), summary.handle)))
    }

    /// Writes the partitions of the data index, if it gets any. Returns the block that comes last:
    /// the whole index, or its top level.
    fn write_partitions(
        &mut self,
        handles: &[BlockHandle],
        out: &mut TableWriter,
    ) -> Result<Vec<u8>> {
        let (properties, limit) = (&mut self.properties, self.options.index_partition_bytes);
        properties.index_key_is_user_key = self.index.user_keys_suffice();
        let block = if limit == 0 || self.index.estimated_bytes() <= limit {
            self.index.build(handles)
        } else {
            properties.require(PARTITIONED_INDEX);
            let written = write_partitions(&self.index, handles, limit, out)?;
            properties.index_bytes = written.bytes;
            written.top_level
        };
        let around_bytes = BLOCK_PREFIX_BYTES + BLOCK_TRAILER_BYTES;
        properties.index_bytes += (block.len() + around_bytes) as u64;
        Ok(block)
    }

    /// Writes the range deletes; their metaindex entry, if there are any.
    fn write_range_deletes(
        &mut self,
        out: &mut TableWriter,
    ) -> Result<Option<(String, BlockHandle)>> {
        if self.range_deletes.is_empty() {
            return Ok(None);
        }
        let mut block = Vec::new();
        self.range_deletes.encode(&mut block);
        let handle = out.write_raw(&block, BlockKind::RangeDeletes)?;
        Ok(Some((RANGE_DELETES_NAME.to_string(), handle)))
    }
}

fn is_block_based(filter: &TableFilter) -> bool {
    matches!(filter.layout, FilterLayout::BlockBased { .. })
}

fn write_metaindex(
    mut entries: Vec<(String, BlockHandle)>,
    out: &mut TableWriter,
) -> Result<BlockHandle> {
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let mut builder = BlockBuilder::new(1);
    for (name, handle) in entries {
        let mut value = Vec::new();
        handle.encode(&mut value);
        builder.add(name.as_bytes(), &value);
    }
    out.write_raw(builder.finish(), BlockKind::Metaindex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checksum::masked;
    use crate::base::key::{put_internal_key, put_key_with_trailer};
    use crate::env::api::Env;
    use crate::env::mem::MemEnv;
    use crate::table::filter::layout::{FilterLayout, FilterMembers};
    use siftdb_filter::encoding::Encoding;
    use std::path::Path;

    const PATH: &str = "/000001.sst";

    fn builder(env: &MemEnv, options: &TableOptions) -> TableBuilder {
        let file = env.create_new(Path::new(PATH)).unwrap();
        TableBuilder::new(file, PATH.into(), 0x0123_4567_89ab_cdef, options.clone())
    }

    fn options(filter: Option<TableFilter>) -> TableOptions {
        TableOptions {
            keyspace: KeyspaceLabel::default(),
            databases: Vec::new(),
            block_bytes: 20,
            restart_interval: 16,
            hash_index: false,
            index_partition_bytes: 0,
            compression: Compression::None,
            filter,
            construction: Construction::default(),
            write_bytes: 64 << 10,
            events: Events::default(),
        }
    }

    #[test]
    fn impossible_entries_are_refused() {
        let env = MemEnv::new();
        let mut table = builder(&env, &options(None));
        let key = |user: &[u8], trailer: u64| {
            let mut key = Vec::new();
            put_key_with_trailer(&mut key, user, trailer);
            key
        };
        table.add(&key(b"b", 5 << 8 | 1), b"v").unwrap();
        let refused = [
            key(b"a", 5 << 8 | 1),
            key(b"b", 5 << 8 | 1),
            key(b"b", 6 << 8 | 1),
            key(b"c", 5 << 8 | 2),
            b"short".to_vec(),
            key(&[b'x'; 65_536], 1),
        ];
        for key in refused {
            let error = table.add(&key, b"v").unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        }
        table.add(&key(b"b", 4 << 8), b"").unwrap();
        let summary = table.finish().unwrap();
        let found = summary.properties;
        assert_eq!((found.entries, found.tombstones), (2, 1));
        assert_eq!((found.smallest_sequence, found.largest_sequence), (4, 5));
        assert_eq!(
            (found.smallest_key, found.largest_key),
            (key(b"b", 5 << 8 | 1), key(b"b", 4 << 8))
        );
        let empty = builder(&MemEnv::new(), &options(None));
        assert!(empty.finish().is_err(), "an empty table");
    }

    #[test]
    fn a_recorded_range_outlives_its_entries() {
        for (recorded, expected) in [(1..=9, (1, 9)), (6..=9, (5, 9)), (5..=5, (5, 5))] {
            let env = MemEnv::new();
            let mut table = builder(&env, &options(None));
            table.record_sequences(&recorded);
            let mut key = Vec::new();
            put_internal_key(&mut key, b"b", 5, ValueKind::Put);
            table.add(&key, b"v").unwrap();
            let found = table.finish().unwrap().properties;
            assert_eq!((found.smallest_sequence, found.largest_sequence), expected);
        }
    }

    #[test]
    fn golden_table() {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (user, sequence, value) in [("deck", 3, "v1"), ("dock", 2, "v2"), ("duck", 1, "v3")] {
            let mut key = Vec::new();
            put_internal_key(&mut key, user.as_bytes(), sequence, ValueKind::Put);
            entries.push((key, value.as_bytes().to_vec()));
        }
        let filter = TableFilter {
            encoding: Encoding::LevelDbBloom { bits_per_key: 10 },
            layout: FilterLayout::Full,
            members: FilterMembers::default(),
            range_millibits: 0,
        };
        let bytes_of = |options: &TableOptions| {
            let env = MemEnv::new();
            let mut table = builder(&env, options);
            for (key, value) in &entries {
                table.add(key, value).unwrap();
            }
            table.finish().unwrap();
            env.read_file(Path::new(PATH)).unwrap()
        };
        let options = options(Some(filter));
        let bytes = bytes_of(&options);
        assert_eq!(bytes, bytes_of(&options), "the same bytes again");
        let hex = |range: std::ops::Range<usize>| {
            bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let header = ["7369667464625354", "01000000", "00000000", "efcdab8967452301"].concat();
        assert_eq!(hex(0..28), header + "88e3e302", "magic, version, keyspace, table id");
        assert_eq!(hex(28..36), "1b00000001a5036e", "27 bytes of data");
        let data =
            ["000402", "6465636b", "00", "7631", "00000000", "010300000000000001", "01000000"];
        let data = data.concat();
        assert_eq!(hex(36..68), data + "0009e640f1", "deck; dock and duck have blocks like it");
        let filter = ["21810211b018044b", "06"].concat();
        assert_eq!(hex(156..170), filter + "00af0d1976", "as LevelDB writes it");
        let index = ["0002026466", "241b", "000202", "6470", "4c1b", "000402", "6475636b", "741b"];
        let index_at = bytes.len() - 56 - 44;
        assert_eq!(hex(index_at..index_at + 23), index.concat(), "df, dp, duck: user keys");
        let footer = [
            "2a03000000000000",
            "5000000000000000",
            "8703000000000000",
            "2700000000000000",
            "efcdab8967452301",
            "4ba0d67a",
            "01000000",
            "7369667464625354",
        ];
        assert_eq!(hex(bytes.len() - 56..bytes.len()), footer.concat());
        assert_eq!((bytes.len(), masked(&bytes)), (1003, 2_026_021_687));
    }
}
