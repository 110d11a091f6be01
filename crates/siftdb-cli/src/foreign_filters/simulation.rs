//! What lookups read of the files of a LevelDB or RocksDB database, by simulation of its block
//! cache.
//!
//! The lookups of a [`LookupTrace`] are made again in their order. Each asks its tables: the
//! filter, then the index, then a data block, and each block is in memory for good, in the
//! [`SimulatedCache`], or is read. The first half of the lookups fills the cache, the second half
//! is counted.
//!
//! A [`Plan`] may differ from the files. Then a filter passes an absent key by the rate that is
//! expected of it, and a block is found by the share of the table's data before its key.

use crate::foreign_filters::cache::SimulatedCache;
use crate::foreign_filters::settings::{Pinning, ReadSettings};
use siftdb_filter::hash::xxph3_64;
use siftdb_foreign::{LookupTrace, TableFigures, TableVisit};

/// The parts of a table that a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its filter, or a partition of it.
    Filter,
    /// Its index, or a partition of it.
    Index,
    /// A data block.
    Data,
}

/// What filters say in a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdicts {
    /// What those of the table said.
    Real,
    /// "Maybe" of every key of the table, and of this share of the others.
    Rate(f64),
}

/// How the bytes of a filter or an index are cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// As in the file.
    Real,
    /// One block.
    Whole,
    /// Blocks of this size, under a top level.
    Partitions(u64),
}

/// Filter and index of a table, as they are or as they would be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TablePlan {
    /// Bytes of the filter, all of its blocks; 0 without one.
    pub filter_bytes: u64,
    /// What the filter says.
    pub verdicts: Verdicts,
    /// How the filter is cut.
    pub filter: Layout,
    /// How the index is cut.
    pub index: Layout,
}

impl TablePlan {
    /// As the table is. Without `asks_filter`, the filter is there and not asked.
    pub fn real(table: &TableFigures, asks_filter: bool) -> Self {
        let is_asked = asks_filter && table.filters.tables_without_filter == 0;
        TablePlan {
            filter_bytes: if is_asked { table.filters.filter_bytes } else { 0 },
            verdicts: Verdicts::Real,
            filter: Layout::Real,
            index: Layout::Real,
        }
    }
}

/// What is simulated: a plan for each table, and how the store reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// By the numbers of the tables in the trace.
    pub tables: Vec<TablePlan>,
    /// How the store reads.
    pub read: ReadSettings,
}

/// What lookups read, and what memory that takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LookupCost {
    /// The lookups that were counted.
    pub lookups: u64,
    /// Blocks that these read, of filters, indexes and data.
    pub blocks: [u64; 3],
    /// Bytes of these blocks in the files.
    pub bytes: [u64; 3],
    /// Filters and indexes in memory outside of the block cache.
    pub outside_bytes: u64,
    /// Bytes of all filters that are asked.
    pub filter_bytes: u64,
    /// Bytes in the block cache at the end.
    pub cached_bytes: u64,
    /// Blocks left the cache, for others.
    pub is_cache_full: bool,
}

impl LookupCost {
    /// Blocks that a lookup reads, on average.
    pub fn blocks_per_lookup(&self) -> f64 {
        self.blocks.iter().sum::<u64>() as f64 / self.lookups.max(1) as f64
    }

    /// Bytes that a lookup reads, on average.
    pub fn bytes_per_lookup(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 / self.lookups.max(1) as f64
    }

    /// Bytes of one part that a lookup reads, on average.
    pub fn part_bytes_per_lookup(&self, part: Part) -> f64 {
        self.bytes[part as usize] as f64 / self.lookups.max(1) as f64
    }
}

/// Makes the lookups of `trace` again. `tables` are those of the trace, in its order.
pub fn simulate(trace: &LookupTrace, tables: &[TableFigures], plan: &Plan) -> LookupCost {
    let mut simulation = Simulation::new(trace, tables, plan);
    let all = trace.lookups().len();
    for (number, (key, visits)) in trace.lookups().enumerate() {
        if number == all / 2 {
            simulation.begin_count();
        }
        simulation.cost.lookups += 1;
        visits.iter().for_each(|visit| simulation.visit(key, visit));
    }
    let (cached_bytes, is_cache_full) = simulation.cache.held();
    LookupCost { cached_bytes, is_cache_full, ..simulation.cost }
}

/// Where a block is before it is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In memory, but not in the cache.
    Outside,
    /// In the cache for good.
    Pinned,
    /// In the cache or in its file.
    Cached { is_high: bool },
}

struct Simulation<'a> {
    trace: &'a LookupTrace,
    tables: &'a [TableFigures],
    plan: &'a Plan,
    cache: SimulatedCache,
    cost: LookupCost,
    /// Bytes in memory by byte in the file, of data blocks that no lookup read.
    expansion: f64,
}

/// A filter or an index as it is planned.
struct Metadata {
    part: Part,
    layout: Layout,
    /// Bytes of all of its blocks.
    bytes: u64,
    /// Bytes of its top level; `None` if it is one block.
    top: Option<u64>,
    /// Its blocks, without the top level.
    blocks: u64,
}

impl Metadata {
    fn filter(table: &TableFigures, planned: &TablePlan) -> Self {
        let figures = &table.filters;
        let real = (figures.partitions, figures.filter_top_level_bytes);
        Metadata::of(table, Part::Filter, planned.filter, planned.filter_bytes, real)
    }

    fn index(table: &TableFigures, planned: &TablePlan) -> Self {
        let figures = &table.filters;
        let real = (figures.index_partitions, figures.index_top_level_bytes);
        Metadata::of(table, Part::Index, planned.index, figures.index_bytes, real)
    }

    /// `real` has the partitions in the file and the bytes of their top level.
    fn of(table: &TableFigures, part: Part, layout: Layout, bytes: u64, real: (u64, u64)) -> Self {
        let (blocks, top) = match layout {
            Layout::Real if real.0 > 0 => (real.0, Some(real.1)),
            Layout::Real | Layout::Whole => (1, None),
            Layout::Partitions(size) => {
                let blocks = bytes.div_ceil(size);
                let key_bytes = table.filters.key_bytes / table.filters.keys.max(1);
                (blocks, Some(blocks * (key_bytes + TOP_LEVEL_ENTRY_BYTES)))
            }
        };
        Metadata { part, layout, bytes, top, blocks }
    }
}

/// Bytes in a top level by partition, besides the key: a handle, lengths, and the trailer of a key.
const TOP_LEVEL_ENTRY_BYTES: u64 = 16;

/// Bytes of compression and checksum after a block.
const BLOCK_TRAILER_BYTES: u64 = 5;

/// What tells blocks of top levels from those of a [`Part`] in the cache.
const TOP_LEVEL: u8 = 3;

impl<'a> Simulation<'a> {
    fn new(trace: &'a LookupTrace, tables: &'a [TableFigures], plan: &'a Plan) -> Self {
        let read = trace.blocks().iter().filter_map(|block| Some((block, block.memory_bytes?)));
        let (in_files, in_memory) = read.fold((0u64, 0u64), |sum, (block, bytes)| {
            (sum.0 + u64::from(block.file_bytes), sum.1 + u64::from(bytes))
        });
        let expansion = if in_files > 0 { in_memory as f64 / in_files as f64 } else { 1.0 };
        let ReadSettings { store, cache_bytes, high_share, .. } = plan.read;
        let cache = SimulatedCache::new(store, cache_bytes, high_share);
        let cost = LookupCost::default();
        let mut all = Simulation { trace, tables, plan, cache, cost, expansion };
        for (table, planned) in tables.iter().zip(&plan.tables) {
            all.cost.filter_bytes += planned.filter_bytes;
            all.add_resident(table, &Metadata::filter(table, planned));
            all.add_resident(table, &Metadata::index(table, planned));
        }
        all
    }

    /// Adds what of a filter or an index is in memory for good.
    fn add_resident(&mut self, table: &TableFigures, metadata: &Metadata) {
        let Metadata { bytes, top, blocks, .. } = *metadata;
        let rest = bytes.saturating_sub(top.unwrap_or_default());
        let of_top = (true, u64::from(top.is_some()), top.unwrap_or_default());
        for (is_top_level, blocks, bytes) in [of_top, (false, blocks, rest)] {
            if bytes == 0 {
                continue;
            }
            match self.place(table.level, is_top_level, top.is_some()) {
                Place::Outside => self.cost.outside_bytes += bytes,
                Place::Pinned => self.cache.pin(blocks, bytes),
                Place::Cached { .. } => {}
            }
        }
    }

    /// Counts from here on.
    fn begin_count(&mut self) {
        let LookupCost { outside_bytes, filter_bytes, .. } = self.cost;
        self.cost = LookupCost { outside_bytes, filter_bytes, ..LookupCost::default() };
    }

    /// Where filters and indexes of a level are.
    fn place(&self, level: usize, is_top_level: bool, is_partitioned: bool) -> Place {
        let read = &self.plan.read;
        let pinning = match (is_top_level, is_partitioned) {
            (true, _) => read.pinned_top_levels,
            (false, true) => read.pinned_partitions,
            (false, false) => read.pinned_whole,
        };
        if !read.caches_metadata && (is_top_level || !is_partitioned) {
            Place::Outside
        } else if pinning == Pinning::All || pinning == Pinning::Level0 && level == 0 {
            Place::Pinned
        } else {
            Place::Cached { is_high: read.metadata_is_high }
        }
    }

    /// A lookup asks a table.
    fn visit(&mut self, key: u32, visit: &TableVisit) {
        let table = visit.table as usize;
        let (Some(figures), Some(planned)) = (self.tables.get(table), self.plan.tables.get(table))
        else {
            return;
        };
        if planned.filter_bytes > 0 {
            self.access_metadata(figures, &Metadata::filter(figures, planned), visit);
            let may_contain = match planned.verdicts {
                Verdicts::Real => visit.may_contain.unwrap_or(true),
                Verdicts::Rate(rate) => visit.has_key || share(key, visit.table) < rate,
            };
            if !may_contain {
                return;
            }
        }
        self.access_metadata(figures, &Metadata::index(figures, planned), visit);
        // Whether the next block is read is known of blocks that were read.
        for block in [visit.data, visit.next_data].into_iter().flatten() {
            self.access_data(visit.table, block);
        }
    }

    /// Reads a data block, unless it is in memory.
    fn access_data(&mut self, table: u32, block: u32) {
        let Some(block) = self.trace.blocks().get(block as usize) else { return };
        let in_memory = match block.memory_bytes {
            Some(bytes) => bytes.into(),
            None => (f64::from(block.file_bytes) * self.expansion) as u64,
        };
        if !self.cache.access((Part::Data as u8, table, block.offset), in_memory, false) {
            self.count(Part::Data, block.file_bytes.into());
        }
    }

    /// Reads the block of a filter or an index that has the key of a lookup, and its top level,
    /// unless they are in memory.
    fn access_metadata(&mut self, table: &TableFigures, metadata: &Metadata, visit: &TableVisit) {
        let Metadata { part, layout, bytes, top, blocks } = *metadata;
        if let Some(top) = top
            && let Place::Cached { is_high } = self.place(table.level, true, true)
            && !self.cache.access((TOP_LEVEL, visit.table, part as u64), top, is_high)
        {
            self.count(part, top + BLOCK_TRAILER_BYTES);
        }
        let Place::Cached { is_high } = self.place(table.level, false, top.is_some()) else {
            return;
        };
        let real = if part == Part::Filter { visit.filter } else { Some(visit.index) };
        let real = real.and_then(|block| self.trace.blocks().get(block as usize));
        let (at, in_memory, in_file) = match (layout, real) {
            (Layout::Real, Some(block)) => {
                let in_memory = block.memory_bytes.unwrap_or(block.file_bytes);
                (block.offset, in_memory.into(), block.file_bytes.into())
            }
            (Layout::Partitions(_), _) => {
                let partitions = blocks.max(1);
                let at = (self.share_before(table, visit) * partitions as f64) as u64;
                let size = bytes / partitions;
                (at.min(partitions - 1), size, size + BLOCK_TRAILER_BYTES)
            }
            (Layout::Real | Layout::Whole, _) => (0, bytes, bytes + BLOCK_TRAILER_BYTES),
        };
        if !self.cache.access((part as u8, visit.table, at), in_memory, is_high) {
            self.count(part, in_file);
        }
    }

    /// The share of the table's data before the block of a lookup.
    fn share_before(&self, table: &TableFigures, visit: &TableVisit) -> f64 {
        let block = visit.data.and_then(|block| self.trace.blocks().get(block as usize));
        let offset = block.map_or(table.filters.data_bytes, |block| block.offset);
        offset as f64 / table.filters.data_bytes.max(1) as f64
    }

    fn count(&mut self, part: Part, bytes: u64) {
        self.cost.blocks[part as usize] += 1;
        self.cost.bytes[part as usize] += bytes;
    }
}

/// A number from 0 to 1, always the same for a key and a table.
fn share(key: u32, table: u32) -> f64 {
    let random = xxph3_64(&(u64::from(table) << 32 | u64::from(key)).to_le_bytes());
    (random >> 11) as f64 / (1u64 << 53) as f64
}
