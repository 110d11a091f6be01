//! Verifies a table: reads all of it and compares all its parts.
//!
//! [`TableCheck::run`] is what `Db::verify`, `repair` and the command `sst verify` call. It opens
//! the file again and, with [`Table::verify`], reads past every cache. It checks the header, and of
//! each block prefix, checksum and structure. Blocks must be in order, within their separators, and
//! follow each other from header to footer without a gap, except for zeros up to the end of a page.
//! Counts, sizes and the ranges of keys and sequences must agree with the properties. A lookup must
//! find every key, and the filter must be readable and pass each key and its prefix. The first
//! contradiction is a `Corruption`.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::Direction;
use crate::base::key::{
    LookupKey, compare_internal, filter_key, split_internal_key, unpack_trailer, user_key,
};
use crate::base::sync::Arc;
use crate::cache::cache::Cache;
use crate::env::api::Env;
use crate::env::handle::FilePool;
use crate::table::block::cursor::for_each_entry;
use crate::table::block::directory::HashedBlock;
use crate::table::features::{PADDED_BLOCKS, version_of};
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::layout::{CustomRules, FilterPinning, PARTITIONED_PREFIX};
use crate::table::filter::ranges::RangeQuestion;
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BlockHandle, BlockKind, HEADER_BYTES, Header, PROPERTIES_NAME,
    RANGE_DELETES_NAME, read_prefix,
};
use crate::table::index::Index;
use crate::table::partitioned_index::TopLevel;
use crate::table::properties::Properties;
use crate::table::reader::{Expect, Table, TableContext};
use crate::table::scan_ahead::ScanAhead;
use siftdb_filter::encoding::FilterVerdict;
use siftdb_filter::hash::KeyHash;
use std::cmp::Ordering;
use std::path::Path;

/// Memory for index and filter on top of their bytes.
const ROOM_BYTES: u64 = 1 << 20;

/// Counts of a complete check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerifyCounts {
    pub entries: u64,
    pub data_blocks: u64,
    /// Bytes of those, as stored.
    pub data_bytes: u64,
    /// Keys that the filter was asked for; 0 without a filter, or with one of an unknown policy.
    pub filter_probes: u64,
}

/// The settings of a check.
pub(crate) struct TableCheck<'a> {
    pub env: &'a Arc<dyn Env>,
    pub rules: CustomRules,
}

impl TableCheck<'_> {
    /// Opens the table at `path` and checks all of it. Returns the table, too. Its index and filter
    /// are read once and held as long as the table, whatever their size.
    ///
    /// # Errors
    /// The first contradiction, as `Corruption`; `Io`; `UnsupportedFormat`.
    pub(crate) fn run(
        &self,
        path: &Path,
        expect: Expect,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Table, VerifyCounts)> {
        let sizes = self.open_with(path, expect, 0)?;
        let properties = &sizes.properties;
        // In memory, heads and offsets come on top of an index block. Sizes that the file claims
        // are limited by the length of the file.
        let filters = properties.filter_bytes.saturating_add(properties.range_filter_bytes);
        let claimed = filters.saturating_add(properties.index_bytes);
        // Nothing is allocated by it, and whole indexes have the smallest share of all.
        let bytes = claimed.min(sizes.file.bytes).saturating_mul(16);
        let table = self.open_with(path, expect, bytes.saturating_add(ROOM_BYTES))?;
        let counts = table.verify(progress)?;
        Ok((table, counts))
    }

    /// Opens the table and reads its index, and pins nothing in memory.
    ///
    /// # Errors
    /// As for [`TableCheck::run`].
    pub(crate) fn open(&self, path: &Path, expect: Expect) -> Result<Table> {
        let table = self.open_with(path, expect, 0)?;
        table.load_index()?;
        Ok(table)
    }

    fn open_with(&self, path: &Path, expect: Expect, memory_bytes: u64) -> Result<Table> {
        let files = FilePool::new(Arc::clone(self.env), 1);
        let context = TableContext {
            rules: self.rules.clone(),
            pinning: FilterPinning::All,
            ..TableContext::new(files, Cache::new(memory_bytes, 1.0))
        };
        Table::open(&context, path, expect)
    }
}

impl Table {
    /// Checks the whole table. Passes the bytes of each data block to `progress` when it is done.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyCounts> {
        let io = &mut TableIo::default();
        let (index, top_level) = self.index.read(&self.file, io)?;
        let mut check = DataCheck {
            table: self,
            index: &index,
            found: Properties::new(),
            filter_probes: 0,
            io: TableIo::default(),
            scan_ahead: ScanAhead::default(),
        };
        self.file.check_header(&self.properties)?;
        let mut position = HEADER_BYTES as u64;
        for (i, handle) in index.handles().enumerate() {
            position = self.check_position(position, handle, BlockKind::Data)?;
            check.block(i, handle)?;
            progress(handle.stored_bytes());
        }
        check.compare_properties()?;
        if check.io.filter_errors > 0 {
            // All entries are sound, so the table only needs a new filter.
            self.filter.check(&self.file)?;
            self.range_filter.as_deref().map_or(Ok(()), |filter| filter.check(&self.file))?;
            let error = self.file.corruption(self.filter_offset, "the filter cannot be read");
            return Err(error.of_filter());
        }
        self.check_rest(position, top_level.as_ref())?;
        Ok(VerifyCounts {
            entries: check.found.entries,
            data_blocks: check.found.data_blocks,
            data_bytes: check.found.data_bytes,
            filter_probes: check.filter_probes,
        })
    }

    /// Reads all blocks after the data, so that every byte of the file is checked.
    fn check_rest(&self, mut position: u64, top_level: Option<&TopLevel>) -> Result<()> {
        for (handle, kind) in self.blocks_after_data(top_level)? {
            let is_filter = matches!(kind, BlockKind::Filter | BlockKind::FilterIndex);
            let remedy = |error: Error| if is_filter { error.of_filter() } else { error };
            position = self.check_position(position, handle, kind).map_err(remedy)?;
            self.file.read_raw(handle, kind, &mut TableIo::default()).map_err(remedy)?;
        }
        let end = self.file.blocks_end();
        if position == end {
            return Ok(());
        }
        let what = format!("the last block ends here, the footer begins at {end}");
        Err(self.file.corruption(position, what))
    }

    /// Every other block, in the order of writing.
    fn blocks_after_data(
        &self,
        top_level: Option<&TopLevel>,
    ) -> Result<Vec<(BlockHandle, BlockKind)>> {
        let mut blocks = Vec::new();
        let (mut properties, mut range_deletes) = (None, None);
        for (name, handle) in self.metaindex()? {
            if name == PROPERTIES_NAME {
                properties = Some((handle, BlockKind::Properties));
            } else if name == RANGE_DELETES_NAME {
                range_deletes = Some((handle, BlockKind::RangeDeletes));
            } else if name.starts_with(PARTITIONED_PREFIX) {
                let io = &mut TableIo::default();
                let partitions = self.file.read_index(handle, BlockKind::FilterIndex, io);
                let partitions = partitions.map_err(Error::of_filter)?;
                blocks.extend(partitions.handles().map(|handle| (handle, BlockKind::Filter)));
                blocks.push((handle, BlockKind::FilterIndex));
            } else {
                blocks.push((handle, BlockKind::Filter));
            }
        }
        blocks.sort_by_key(|(handle, _)| handle.offset);
        let partitions = top_level.into_iter().flat_map(|top| top.partitions.handles());
        blocks.extend(partitions.map(|handle| (handle, BlockKind::IndexPartition)));
        blocks.extend(range_deletes.into_iter().chain(properties));
        blocks.push((self.footer.metaindex, BlockKind::Metaindex));
        blocks.push((self.footer.index, BlockKind::Index));
        Ok(blocks)
    }

    /// Where the block ends, if it begins at `position` or after padding from there, and its prefix
    /// agrees with its handle.
    fn check_position(&self, position: u64, handle: BlockHandle, kind: BlockKind) -> Result<u64> {
        let may_pad = self.properties.requires(PADDED_BLOCKS);
        if handle.start() != Some(position)
            && !(may_pad && self.file.padding_end(position)? == handle.start())
        {
            let what = format!("the block at {} should begin here", handle.offset);
            return Err(self.file.corruption(position, what));
        }
        self.file.check_prefix(handle, kind)?;
        Ok(handle.end().unwrap_or(u64::MAX))
    }
}

impl TableFile {
    /// Compares the header with the id in the footer, and with keyspace and version of the
    /// properties. For `inspect` too; lookups do not read the header.
    pub(crate) fn check_header(&self, properties: &Properties) -> Result<()> {
        let mut bytes = [0; HEADER_BYTES];
        self.handle.read_exact_at(0, &mut bytes)?;
        let header = Header::decode(&bytes, self.path())?;
        let keyspace = properties.keyspace.id;
        if header.keyspace != keyspace {
            let header = header.keyspace;
            let what = format!("keyspace {header} in the header, {keyspace} in the properties");
            return Err(self.corruption(0, what));
        }
        // The header has the version of the data blocks, for a reader that knows only them.
        let version = version_of(properties.compression.feature().unwrap_or_default());
        if header.version != version {
            let header = header.version;
            let what = format!("version {header} in the header, data blocks of {version}");
            return Err(self.corruption(0, what));
        }
        if header.table_id == self.table_id {
            return Ok(());
        }
        let (header, footer) = (header.table_id, self.table_id);
        let what = format!("table id {header:016x} in the header, {footer:016x} in the footer");
        Err(self.corruption(0, what))
    }

    /// Compares the prefix of the block at `handle` with the handle. For the same callers.
    pub(crate) fn check_prefix(&self, handle: BlockHandle, kind: BlockKind) -> Result<()> {
        let Some(start) = handle.start() else {
            return Err(self.corruption(handle.offset, "a block before the first"));
        };
        let mut bytes = [0; BLOCK_PREFIX_BYTES];
        self.handle.read_exact_at(start, &mut bytes)?;
        match read_prefix(bytes, self.table_id, handle.offset) {
            Some((is, size)) if is == kind && u64::from(size) == handle.size => Ok(()),
            Some((is, size)) => {
                let wanted = handle.size;
                let what = format!("prefix of {size} bytes of {is:?}, not {wanted} of {kind:?}");
                Err(self.corruption(start, what))
            }
            None => Err(self.corruption(start, "the check of a block's prefix does not hold")),
        }
    }
}

/// The check of the data blocks, one after the other.
struct DataCheck<'t> {
    table: &'t Table,
    index: &'t Index,
    /// Counted while reading, to be compared with the table's own. Its largest key is the last one.
    found: Properties,
    filter_probes: u64,
    io: TableIo,
    scan_ahead: ScanAhead,
}

impl DataCheck<'_> {
    fn block(&mut self, i: usize, handle: BlockHandle) -> Result<()> {
        let ahead = self.scan_ahead.block_is_next(handle, Direction::Forward);
        ahead.into_iter().for_each(|bytes| self.table.file.read_ahead(bytes));
        let block = self.table.file.read_data(handle, &mut self.io)?;
        for_each_entry(&block, |key, value| self.entry(&block, i, handle, key, value))?;
        self.found.data_blocks += 1;
        // Padding between blocks counts, too.
        self.found.data_bytes = handle.end().unwrap_or(u64::MAX) - HEADER_BYTES as u64;
        Ok(())
    }

    /// Checks an entry of block `i`.
    fn entry(
        &mut self,
        block: &HashedBlock,
        i: usize,
        handle: BlockHandle,
        internal_key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let file = &self.table.file;
        let wrong = |what: &str| Err(file.corruption(handle.offset, what));
        let last_key = &self.found.largest_key;
        if self.found.entries > 0 && compare_internal(last_key, internal_key) != Ordering::Less {
            return wrong("keys out of order between blocks");
        }
        let is_first = self.found.entries == 0;
        let again = !is_first && user_key(last_key) == user_key(internal_key);
        if again && self.table.properties.ingested {
            return wrong("a key that is twice in an ingested table");
        }
        if self.index.seek(internal_key) != i {
            return wrong("a key outside what the index says of its block");
        }
        self.found.count(internal_key, value);
        let key = split_internal_key(internal_key)
            .and_then(|(user_key, trailer)| Some((user_key, trailer, unpack_trailer(trailer)?)));
        let Some((user_key, trailer, (sequence, _))) = key else {
            return wrong("entry of an unknown kind");
        };
        let key = LookupKey::new(user_key, sequence);
        let hash = KeyHash::new(filter_key(internal_key));
        // The keys of a block ascend, so no other entry has this trailer.
        if block.get(&key, hash.xxph3()).map(|found| found.trailer) != Some(trailer) {
            return wrong("an entry that a lookup does not find");
        }
        let end = [user_key, &[0]].concat();
        let range = RangeQuestion { start: &key, end: Some(&end), common: user_key };
        let verdicts = [
            self.table.may_contain(&key, &hash, &mut self.io)?,
            self.table.filter.prefix_may_match(file, &key, &mut self.io),
            self.table.range_may_match(&range, &mut self.io),
        ];
        if verdicts.contains(&FilterVerdict::No) {
            // The filter looks sound, so only a rebuild of all filters replaces it.
            let what = "the filter denies a key that the table holds (rebuild with --all)";
            return Err(file.corruption(self.table.filter_offset, what).of_filter());
        }
        self.filter_probes += u64::from(verdicts.contains(&FilterVerdict::Maybe));
        Ok(())
    }

    fn compare_properties(&self) -> Result<()> {
        let (says, has) = (&self.table.properties, &self.found);
        let file = &self.table.file;
        let wrong = |what: String| Err(file.corruption(file.blocks_end(), what));
        for (name, says, has) in [
            ("entries", says.entries, has.entries),
            ("tombstones", says.tombstones, has.tombstones),
            ("expiring", says.expiring, has.expiring),
            ("expires_by", says.expires_by, has.expires_by),
            ("data_blocks", says.data_blocks, has.data_blocks),
            ("data_bytes", says.data_bytes, has.data_bytes),
            ("raw_key_bytes", says.raw_key_bytes, has.raw_key_bytes),
            ("raw_value_bytes", says.raw_value_bytes, has.raw_value_bytes),
        ] {
            if says != has {
                return wrong(format!("property {name} is {says}, the table has {has}"));
            }
        }
        // A rewritten table keeps its range, which may be wider than its entries.
        if has.smallest_sequence < says.smallest_sequence
            || has.largest_sequence > says.largest_sequence
        {
            let [says, has] = [says, has].map(|p| (p.smallest_sequence, p.largest_sequence));
            return wrong(format!("properties say sequences {says:?}, the table has {has:?}"));
        }
        if says.smallest_key != has.smallest_key || says.largest_key != has.largest_key {
            return wrong("smallest or largest key is not that of the properties".into());
        }
        Ok(())
    }
}
