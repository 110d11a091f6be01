//! An open table and the point lookup in it.
//!
//! [`Table::open`] reads footer, metaindex, properties and, where the cache grants the memory, the
//! filter, which then stays ("pinned"); else it comes through the cache at each use. It checks the
//! file's size and id against what the manifest expects, so that a swapped or cut file is found
//! before its first use. The data index (`data_index.rs`) is read at its first use, or by
//! [`Table::load_index`]: for tables that were just written, and to look for damage.
//!
//! Range deletes are read when the table is opened and stay in memory. They hide entries of this
//! table and of older ones, so one that cannot be read is an error of opening. Their memory is
//! taken off the cache's budget as far as that has room: they are needed in any case.
//!
//! [`Table::get`] is a lookup: ask the filter, search the index, ask a block-based filter, fetch
//! the block, search it; `batch.rs` does so for many keys at once. A key that a range delete covers
//! is deleted unless the table has a newer version. The failure of a filter is `NotConsulted`; any
//! other failure is an error, never "absent". `iter` iterates over a table, `verify` checks all of
//! it.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::key::{KeyspaceId, Lookup, LookupKey, SequenceNumber, user_key};
use crate::base::range_deletes::RangeDeletes;
use crate::base::sync::{Arc, OnceLock};
use crate::cache::cache::{Reservation, RowRequest};
use crate::cache::recency_list::CacheKey;
use crate::env::handle::{FileHandle, FilePool};
use crate::table::data_index::DataIndex;
use crate::table::fetch::not_found;
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::dispatch::OpenFilter;
use crate::table::filter::layout::{CustomRules, FilterMembers, FilterPinning};
use crate::table::filter::ranges::{RangeQuestion, RangeReader};
use crate::table::format::{
    BlockHandle, BlockKind, FOOTER_BYTES, Footer, PROPERTIES_NAME, RANGE_DELETES_NAME,
};
use crate::table::index::{BlockCache, CachedBlock, Index, IndexEntry};
use crate::table::opening::{
    given_sequence, read_footer, read_metaindex, read_properties, read_range_deletes,
};
use crate::table::properties::Properties;
use crate::table::row;
use siftdb_filter::encoding::FilterVerdict;
use siftdb_filter::hash::KeyHash;
use siftdb_filter::range::BlockRange;
use std::path::Path;

/// A row is kept in place of a block only where a block has at least that many entries on average.
/// With eight in 4 KiB it takes about a seventh of the memory.
const ROWS_IN_BLOCK_MIN: u64 = 8;

/// What all tables of a database share.
#[derive(Clone, Debug)]
pub(crate) struct TableContext {
    pub files: Arc<FilePool>,
    pub cache: Arc<BlockCache>,
    pub rules: CustomRules,
    /// How much of a filter stays in memory; by level, so it differs between the tables.
    pub pinning: FilterPinning,
    /// Where to tell of damaged filters.
    pub events: Events,
}

impl TableContext {
    /// Without rules of the user's, with the default pinning, and without a listener.
    pub(crate) fn new(files: Arc<FilePool>, cache: Arc<BlockCache>) -> Self {
        let (rules, pinning, events) = Default::default();
        TableContext { files, cache, rules, pinning, events }
    }
}

/// What the manifest records of a file. A field that is `None` is not checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expect {
    pub table_id: Option<u64>,
    pub bytes: Option<u64>,
    /// The keyspace that the table is of.
    pub keyspace: Option<KeyspaceId>,
    /// The sequence that the manifest gives all entries, if it gives one.
    pub global_sequence: Option<Option<SequenceNumber>>,
}

/// How a read uses tables.
// Aligned so that one load copies it: a lookup that the filter ends takes 2 % fewer instructions.
#[repr(align(4))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableReadOptions {
    pub use_filters: bool,
    /// Keep what is read in the cache.
    pub fill_cache: bool,
    /// Fail with `WouldRead` where a block would have to be read from a file.
    pub in_memory_only: bool,
}

impl TableReadOptions {
    /// The default: filters on, blocks are read and kept in the cache.
    pub(crate) const fn new() -> Self {
        TableReadOptions { use_filters: true, fill_cache: true, in_memory_only: false }
    }

    /// The counts of a read that has touched nothing yet.
    #[inline]
    pub(crate) fn io(self) -> TableIo {
        TableIo { in_memory_only: self.in_memory_only, ..TableIo::default() }
    }
}

/// The part of the filter in one lookup, if filters are used at all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilterUse {
    /// The table asks its filter.
    Ask,
    /// The version has asked the pinned filter, which said "maybe".
    SaidMaybe,
    /// The key is probably here: ask only if the data block is not in memory.
    Bypass,
}

/// An open table. Its descriptor is opened and closed as the pool sees fit.
pub(crate) struct Table {
    pub file: TableFile,
    pub footer: Footer,
    pub properties: Properties,
    pub index: DataIndex,
    /// The filter: what it holds, its name and layout.
    pub filter: OpenFilter,
    /// Boxed, since its model is large.
    pub range_filter: Option<Box<RangeReader>>,
    /// Boxed, since few tables have any.
    range_deletes: Option<Box<ResidentDeletes>>,
    /// Handle of the filter, for errors of `verify`.
    pub filter_offset: u64,
    expected_fpr: OnceLock<Option<f64>>,
}

/// Range deletes in memory.
struct ResidentDeletes {
    deletes: RangeDeletes,
    /// What they take off the budget, if it had room.
    _memory: Option<Reservation<CachedBlock>>,
}

impl ResidentDeletes {
    fn new(deletes: RangeDeletes, file: &TableFile) -> Box<Self> {
        let memory = file.cache.try_reserve(deletes.memory_bytes());
        Box::new(ResidentDeletes { deletes, _memory: memory })
    }

    /// Not inlined: lookups in tables without range deletes should not carry this code.
    #[inline(never)]
    fn covering(&self, key: &LookupKey) -> SequenceNumber {
        self.deletes.covering(key.user_key(), key.sequence())
    }
}

impl Table {
    /// Opens the table at `path`, without its data index.
    pub(crate) fn open(context: &TableContext, path: &Path, expect: Expect) -> Result<Self> {
        let handle = FileHandle::new(&context.files, path.to_path_buf());
        let bytes = handle.len()?;
        if let Some(expected) = expect.bytes.filter(|&expected| expected != bytes) {
            let what = format!("the file has {bytes} bytes, the manifest says {expected}");
            return Err(Error::corruption(path, bytes.min(expected), what));
        }
        let footer = read_footer(&handle, bytes)?;
        if let Some(expected) = expect.table_id.filter(|&expected| expected != footer.table_id) {
            let found = footer.table_id;
            let what = format!("table id {found:016x}, the manifest says {expected:016x}");
            return Err(Error::corruption(path, bytes - FOOTER_BYTES as u64, what));
        }
        let mut file = TableFile::new(handle, footer.table_id, bytes, &context.cache);
        file.events = context.events.clone();
        let metaindex = read_metaindex(&file, footer.metaindex)?;
        let mut properties = read_properties(&file, &metaindex, footer.version)?;
        let found = &properties.keyspace;
        if let Some(expected) = expect.keyspace.filter(|&expected| expected != found.id) {
            let (id, name) = (found.id, &found.name);
            let what = format!("a table of keyspace {id} ({name:?}), the manifest says {expected}");
            return Err(file.corruption(0, what));
        }
        file.global_sequence = given_sequence(&file, &mut properties, expect.global_sequence)?;
        file.index_key_is_user_key = properties.index_key_is_user_key;

        let mut io = TableIo::default();
        let range_deletes = read_range_deletes(&file, &metaindex, &properties)?;
        let range_deletes = range_deletes.map(|deletes| ResidentDeletes::new(deletes, &file));
        let is_filter = |name: &str| name != PROPERTIES_NAME && name != RANGE_DELETES_NAME;
        let filter_entry = metaindex.iter().find(|(name, _)| is_filter(name));
        let filter_offset = filter_entry.map_or(0, |(_, handle)| handle.offset);
        let members = FilterMembers::of_table(&properties, &context.rules.prefixes);
        let mut filter = OpenFilter::new(&metaindex, &context.rules.policies, members);
        filter.pin(&file, context.pinning, &mut io);
        let index = DataIndex::new(&file, footer.index, &properties);
        let mut range_filter = RangeReader::new(&metaindex, &properties).map(Box::new);
        if let Some(reader) = &mut range_filter {
            reader.pin(&file, context.pinning, &mut io);
        }
        if context.pinning == FilterPinning::All {
            // Last, because partitions are large and the index serves every lookup.
            filter.pin_partitions(&file);
        }
        Ok(Table {
            file,
            footer,
            properties,
            index,
            filter,
            range_filter,
            range_deletes,
            filter_offset,
            expected_fpr: OnceLock::new(),
        })
    }

    /// Gives an ingested table, which nobody has read data from, its sequence.
    pub(crate) fn set_global_sequence(&mut self, sequence: SequenceNumber) {
        debug_assert!(self.properties.ingested, "only ingested tables get a sequence");
        self.properties.set_sequence(sequence);
        self.file.global_sequence = Some(sequence);
    }

    /// What the table has of a key, and what its filter said. "Maybe" with `Absent` is a false
    /// positive, unless the key has versions here that the lookup's sequence cannot see.
    #[inline]
    pub(crate) fn get(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        options: TableReadOptions,
        filter_use: FilterUse,
        io: &mut TableIo,
    ) -> Result<(Lookup, FilterVerdict)> {
        let floor = self.covering(key);
        // A filter that is not there would be asked twice, before the index and after it. One that
        // said maybe is there.
        let said_maybe = matches!(filter_use, FilterUse::SaidMaybe);
        let use_filters = options.use_filters && (said_maybe || self.filter.is_there());
        let mut verdict = match filter_use {
            _ if !use_filters => FilterVerdict::NotConsulted,
            FilterUse::SaidMaybe => FilterVerdict::Maybe,
            FilterUse::Bypass => FilterVerdict::Bypassed,
            FilterUse::Ask => self.filter.table_may_contain(&self.file, key, hash, io),
        };
        if let FilterVerdict::No = verdict {
            return Ok((not_found(floor), verdict));
        }

        io.index_seeks += 1;
        let fetched;
        let index = match self.index.pinned() {
            // As `part_for` would, without moving a part: 2 % fewer instructions.
            Some(index) => Some(index),
            None => {
                fetched = self.index.part_for(&self.file, key, io)?;
                fetched.as_ref().map(|(_, part)| &**part)
            }
        };
        let Some((index, entry)) = index.and_then(|index| Some((index, index.find(key)?))) else {
            return Ok((not_found(floor), verdict));
        };

        let mut in_memory = None;
        if let FilterVerdict::Bypassed = verdict {
            in_memory =
                self.file.in_memory_block(index, entry, BlockKind::Data, options.fill_cache, io);
            if in_memory.is_none() {
                // The block may have to be read, and a "no" saves that.
                verdict = self.filter.table_may_contain(&self.file, key, hash, io);
                if verdict == FilterVerdict::No {
                    return Ok((not_found(floor), verdict));
                }
            }
        }
        if use_filters && matches!(verdict, FilterVerdict::NotConsulted) {
            let data_offset = index.handle_of(entry).data_offset();
            verdict = self.filter.block_may_contain(&self.file, data_offset, hash, io);
            if verdict == FilterVerdict::No {
                return Ok((not_found(floor), verdict));
            }
        }

        let in_memory = in_memory.or_else(|| {
            self.file.in_memory_block(index, entry, BlockKind::Data, options.fill_cache, io)
        });
        let found = match in_memory {
            Some(block) => block.search(key, hash, floor),
            None => self.search_missing_block((index, entry), key, hash, floor, options, io)?,
        };
        match found {
            Some(lookup) => Ok((lookup, verdict)),
            None => Err(self.not_data(index.handle_of(entry))),
        }
    }

    /// What a data block has of a key; the block is not in memory. `None` if it is no data block.
    // Not inlined: a lookup that finds its block in memory should not carry this code.
    #[inline(never)]
    fn search_missing_block(
        &self,
        (index, entry): (&Index, IndexEntry),
        key: &LookupKey,
        hash: &KeyHash<'_>,
        floor: SequenceNumber,
        options: TableReadOptions,
        io: &mut TableIo,
    ) -> Result<Option<Lookup>> {
        let (handle, slot) = (index.handle_of(entry), Some(index.slot(entry)));
        if let Some(answer) = self.row_answer(handle, key, hash, io) {
            return Ok(Some(answer));
        }
        let row = self.row_request(handle, key, hash);
        let (kind, fill) = (BlockKind::Data, options.fill_cache);
        let (block, keeps_row) =
            self.file.fetch_through_cache(handle, slot, kind, fill, row, io)?;
        let found = block.search(key, hash, floor);
        if let (true, Some(row), Some(answer)) = (keeps_row, row, &found) {
            self.file.cache.keep_row(row.key, row::encode(key.user_key(), answer));
        }
        Ok(found)
    }

    /// The row that a lookup wants of a block, if it may have one: entries are small, the lookup
    /// sees all versions, and the block would have to be read by a call.
    fn row_request(
        &self,
        handle: BlockHandle,
        key: &LookupKey,
        hash: &KeyHash<'_>,
    ) -> Option<RowRequest> {
        if !self.file.cache.may_have_rows() || self.file.is_in_memory() {
            return None;
        }
        let properties = &self.properties;
        let entries = properties.entries.max(1);
        let are_small = entries >= properties.data_blocks.saturating_mul(ROWS_IN_BLOCK_MIN)
            // A large entry has a block of its own.
            && handle.size <= self.properties.mean_block_bytes().saturating_mul(2);
        let sees_all = key.sequence() >= properties.largest_sequence;
        let raw_bytes = properties.raw_key_bytes.saturating_add(properties.raw_value_bytes);
        let row_key = CacheKey::of_row(self.file.table_id, hash.xxph3());
        (are_small && sees_all).then_some(RowRequest { key: row_key, bytes: raw_bytes / entries })
    }

    /// The answer from the row of a key, if the cache has it.
    pub(super) fn row_answer(
        &self,
        handle: BlockHandle,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> Option<Lookup> {
        let row = self.row_request(handle, key, hash)?;
        let answer = row::decode(&self.file.cache.row(row.key)?, key.user_key())?;
        io.count(BlockKind::Data, false, 0);
        Some(answer)
    }

    /// The newest range delete that covers the key and that its sequence can see; 0 without one.
    #[inline]
    pub(crate) fn covering(&self, key: &LookupKey) -> SequenceNumber {
        match &self.range_deletes {
            None => 0,
            Some(resident) => resident.covering(key),
        }
    }

    /// Its range deletes, if it has any.
    pub(crate) fn range_deletes(&self) -> Option<&RangeDeletes> {
        self.range_deletes.as_ref().map(|resident| &resident.deletes)
    }

    /// Whether the filter lets the key pass, without a look at data: for `may_contain` and
    /// `verify`.
    pub(crate) fn may_contain(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> Result<FilterVerdict> {
        let verdict = self.filter.table_may_contain(&self.file, key, hash, io);
        if verdict != FilterVerdict::NotConsulted {
            return Ok(verdict);
        }
        io.index_seeks += 1;
        let part = self.index.part_for(&self.file, key, io)?;
        match part.as_ref().and_then(|(_, index)| Some((index, index.find(key)?))) {
            Some((index, entry)) => {
                let data_offset = index.handle_of(entry).data_offset();
                Ok(self.filter.block_may_contain(&self.file, data_offset, hash, io))
            }
            // Above every block: the index alone excludes the key.
            None => Ok(FilterVerdict::No),
        }
    }

    /// True if a filter of the table can be asked for ranges.
    pub(crate) fn answers_ranges(&self) -> bool {
        self.range_filter.is_some() || self.filter.holds_prefixes()
    }

    /// May the table hold a key of the range? Asks for the prefix that all its keys share, then the
    /// range filter.
    pub(crate) fn range_may_match(
        &self,
        range: &RangeQuestion<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        let verdict = self.filter.range_may_match(&self.file, range.common, range.start, io);
        let Some(reader) = self.range_filter.as_deref().filter(|_| verdict != FilterVerdict::No)
        else {
            return verdict;
        };
        // An index that cannot be read is an error of the seek that follows.
        match self.ask_range_filter(reader, range, io) {
            Err(_) | Ok(FilterVerdict::NotConsulted) => verdict,
            Ok(answer) => answer,
        }
    }

    /// `NotConsulted` if the index shows a key in the range, without the filter.
    fn ask_range_filter(
        &self,
        reader: &RangeReader,
        range: &RangeQuestion<'_>,
        io: &mut TableIo,
    ) -> Result<FilterVerdict> {
        let (index, file, start) = (&self.index, &self.file, range.start);
        // Without an end, the range has the largest key of the table or none.
        let Some(end) = range.end else { return Ok(FilterVerdict::NotConsulted) };
        let Some((number, part)) = index.part_for(file, start, io)? else {
            return Ok(FilterVerdict::No);
        };
        let part: &Index = &part;
        let Some(entry) = part.find(start) else { return Ok(FilterVerdict::No) };
        let position = entry.position();
        let before = match position {
            0 => number.checked_sub(1).and_then(|before| index.end_of_part(before)),
            _ => Some(part.user_key(position - 1)),
        };
        let lower = before.unwrap_or(user_key(&self.properties.smallest_key));
        let (block, upper) =
            (index.blocks_before(number) + position as u64, part.user_key(position));
        let asked = |lower, upper| BlockRange {
            lower,
            upper,
            start: Some(start.user_key()),
            end: Some(end),
        };
        let ask = |blocks: &[_], io: &mut TableIo| {
            let verdict = reader.may_match(file, blocks, io);
            let is_spared = verdict == FilterVerdict::No && part.slot(entry).is_filled();
            io.data_spared += u32::from(is_spared);
            verdict
        };
        if end <= upper {
            return Ok(ask(&[(block, asked(lower, upper))], io));
        }
        // The end is in the next block, or all keys of that are in the range.
        let next_part;
        let next = if position + 1 < part.len() {
            Some(part.user_key(position + 1))
        } else if number + 1 < index.parts(file, io)? {
            next_part = index.part(file, number + 1, true, io)?;
            Some(next_part.user_key(0))
        } else {
            None
        };
        let Some(next) = next.filter(|next| end <= *next) else {
            return Ok(FilterVerdict::NotConsulted);
        };
        Ok(ask(&[(block, asked(lower, upper)), (block + 1, asked(upper, next))], io))
    }

    /// [`Properties::expected_fpr`], computed once.
    pub(crate) fn expected_fpr(&self) -> Option<f64> {
        *self.expected_fpr.get_or_init(|| self.properties.expected_fpr())
    }

    /// Bytes of the top levels of its data index and its filters: they stay in memory while their
    /// partitions come and go.
    pub(crate) fn top_level_bytes(&self) -> u64 {
        let of_ranges = self.range_filter.as_deref().map_or(0, RangeReader::top_level_bytes);
        self.index.top_level_bytes() + self.filter.top_level_bytes() + of_ranges
    }

    /// Names and handles of filter and properties, read from the file.
    ///
    /// # Errors
    /// The metaindex cannot be read, or is damaged.
    pub(crate) fn metaindex(&self) -> Result<Vec<(String, BlockHandle)>> {
        read_metaindex(&self.file, self.footer.metaindex)
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads all of the data index now, unless it is in memory. So damage in it is found before the
    /// table is used.
    ///
    /// # Errors
    /// It cannot be read or is damaged.
    pub(crate) fn load_index(&self) -> Result<()> {
        let io = &mut TableIo::default();
        self.index.top_level(&self.file, io)?;
        match self.index.pinned() {
            Some(_) => Ok(()),
            None => self.index.read(&self.file, io).map(drop),
        }
    }

    /// The number of data blocks before the one where the internal key `bound` would be.
    ///
    /// # Errors
    /// The data index cannot be read or is damaged.
    pub(crate) fn blocks_before(&self, bound: &[u8]) -> Result<u64> {
        let io = &mut TableIo::default();
        let Some(number) = self.index.part_number(&self.file, bound, io)? else {
            return Ok(self.properties.data_blocks);
        };
        let part = self.index.part(&self.file, number, true, io)?;
        Ok(self.index.blocks_before(number) + part.seek(bound) as u64)
    }

    /// The error for an index that names a block without entries of a table, or of an unknown kind.
    #[cold]
    pub(crate) fn not_data(&self, handle: BlockHandle) -> Error {
        self.file.corruption(handle.offset, "the data index names no data block")
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.path().display())
    }
}
