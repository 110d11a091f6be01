//! The report about the filters of another store: the fields of its JSON, and how they are filled.

use crate::described::result;
use crate::filter::foreign::read_cost::ReadCost;
use crate::json::Interval;
use siftdb_cli::experiment::wilson_95;
use siftdb_cli::foreign_filters::{
    Alternative, LevelFilters, LookupCost, Part, ReadSettings, by_level, counts_of,
};
use siftdb_filter::encoding::Encoding;
use siftdb_foreign::{FilterFigures, LookupCounts, LookupTrace, TableFigures};
use std::collections::BTreeSet;

/// Bytes of a partition, with room for a key or two: what RocksDB and siftdb take by default.
pub const PARTITION_BYTES: u64 = 4096 * 9 / 10;

/// What was read of a database, a column family or a table.
pub struct Found {
    /// `leveldb` or `rocksdb`.
    pub store: &'static str,
    pub family: Option<String>,
    pub tables: Vec<TableFigures>,
    pub trace: LookupTrace,
    /// The file `OPTIONS` that was read.
    pub options_file: Option<String>,
    /// How a database is read; `None` for a table, whose lookups are not simulated.
    pub read: Option<ReadSettings>,
}

/// Simulated lookups: the settings as they are come first.
pub struct Simulation {
    pub cache_bytes: u64,
    pub read_cost: ReadCost,
    pub settings: Vec<(Alternative, LookupCost)>,
}

impl Report {
    /// The report on what was read, with simulated lookups if there are any.
    pub fn new(found: &Found, simulation: Option<&Simulation>) -> Self {
        let mut sum = FilterFigures::default();
        found.tables.iter().for_each(|table| sum.add(&table.filters));
        Report::of(&sum, &counts_of(&found.trace, |_| true), found, simulation)
    }
}

result! {
    /// Of a LevelDB database, of each column family of a RocksDB database, or of a table of these,
    /// one object:
    pub struct Report of figures: &FilterFigures, counts: &LookupCounts, of: &Found,
            simulation: Option<&Simulation> {
        /// leveldb or rocksdb
        store: &'static str = of.store;
        /// the column family, or null
        family: Option<String> = of.family.clone();
        /// the file of RocksDB's settings, or null
        options_file: Option<String> = of.options_file.clone();
        /// its tables
        tables, tables_without_filter, table_bytes, data_blocks, index_bytes: u64;
        /// of RocksDB: tables with filters of prefixes alone, which are not asked here
        tables_with_prefixes_only, range_deletes: u64;
        /// in tables: all versions and deletions, and keys by table
        entries, keys, key_bytes: u64;
        policies, encodings, layouts: BTreeSet<String>;
        partitions, filter_bytes, filter_bits: u64;
        probes: u32;
        window_bytes: u64;
        /// its filters
        bits_per_key: Option<f64> = figures.bits_per_key();
        expected_fpr: Option<f64> = figures.expected_fpr();
        /// absent keys that pass, or null
        observed_fpr: Option<f64> = counts.observed_fpr();
        #[serde(flatten)] interval: Interval = interval_of(counts);
        /// of --probe
        lookups: u64 = of.trace.lookups().len() as u64;
        found: u64 = of.trace.found();
        negatives, true_positives, false_positives, blocks_read: u64 => counts;
        /// the same by level:
        levels: Vec<Level> = {
            let levels = by_level(&of.tables, &of.trace);
            let level = |all: &LevelFilters| Level::of(&all.filters, &all.counts, all.level);
            levels.iter().map(level).collect()
        };
        /// what takes how much for that rate: encoding, bits_per_key, filter_bytes
        same_rate: Vec<SameRate> = same_rate(figures, counts);
        /// the filters in partitions; or null:
        in_partitions: Option<Partitions> = Partitions::of(figures);
        /// the lookups of --probe with a block cache of --cache, for databases; or null:
        simulated: Option<Simulated> = simulation.map(|all| Simulated::of(all, &all.read_cost));
        /// whether it is a database
        is_database: bool = of.read.is_some();
    }

    pub struct Level of figures: &FilterFigures, counts: &LookupCounts, at: usize {
        /// the level
        level: usize = at;
        tables, tables_without_filter, keys, filter_bytes, index_bytes: u64;
        encodings, layouts: BTreeSet<String>;
        bits_per_key: Option<f64> = figures.bits_per_key();
        expected_fpr: Option<f64> = figures.expected_fpr();
        observed_fpr: Option<f64> = counts.observed_fpr();
        #[serde(flatten)] interval: Interval = interval_of(counts);
        lookups, negatives, true_positives, false_positives: u64 => counts;
    }

    pub struct SameRate {
        encoding: &'static str;
        bits_per_key: Option<f64>;
        filter_bytes: u64;
    }

    pub struct Simulated of simulation: &Simulation, read_cost: &ReadCost {
        /// the block cache
        cache_bytes: u64;
        /// lookups that are counted, after as many that fill the cache
        lookups: u64 = simulation.settings.first().map_or(0, |(_, cost)| cost.lookups);
        read_nanos: f64 = read_cost.nanos;
        /// what reading a block takes, as measured on the files: as such, and for each byte
        read_nanos_per_byte: f64 = read_cost.nanos_per_byte;
        /// first as it is:
        settings: Vec<Setting> = {
            let settings = simulation.settings.iter();
            settings.map(|(other, cost)| Setting::of(cost, other, read_cost)).collect()
        };
    }

    pub struct Setting of cost: &LookupCost, other: &Alternative, read_cost: &ReadCost {
        /// what is different
        setting: String = other.setting.clone();
        /// lines of OPTIONS or of C++ that give it
        options: Vec<String> = other.options.clone();
        /// when they do; empty for the first
        takes_effect: &'static str = other.takes_effect;
        /// the cache, and filters and indexes outside of it
        memory_bytes: u64 = other.plan.read.cache_bytes + cost.outside_bytes;
        /// all filters
        filter_bytes: u64;
        /// in the cache at the end, without what is pinned; whether blocks left it for others
        cached_bytes: u64;
        is_cache_full: bool;
        /// that a lookup reads, and of that filters, indexes and data
        blocks_per_lookup: f64 = cost.blocks_per_lookup();
        bytes_per_lookup: f64 = cost.bytes_per_lookup();
        filter_bytes_per_lookup: f64 = cost.part_bytes_per_lookup(Part::Filter);
        index_bytes_per_lookup: f64 = cost.part_bytes_per_lookup(Part::Index);
        data_bytes_per_lookup: f64 = cost.part_bytes_per_lookup(Part::Data);
        /// what these reads take
        nanos_per_lookup: f64 = read_cost.nanos_per_lookup(cost);
    }
}

fn interval_of(counts: &LookupCounts) -> Interval {
    Interval::of(wilson_95(counts.false_positives, counts.negatives + counts.false_positives))
}

result! {
    /// The filters as partitions: a lookup needs their index and one of them.
    pub struct Partitions {
        /// bytes of each
        partition_bytes: u64;
        /// how many
        partitions: u64;
        /// of each partition a key and a handle
        index_bytes: u64;
    }
}

impl Partitions {
    /// `None` if the filters of a table would be one partition, or have partitions already.
    fn of(figures: &FilterFigures) -> Option<Self> {
        let is_whole = figures.partitions == 0 && figures.keys > 0;
        let is_large = figures.filter_bytes > PARTITION_BYTES * figures.tables;
        let partitions = figures.filter_bytes.div_ceil(PARTITION_BYTES);
        let entry_bytes = figures.key_bytes / figures.keys.max(1) + HANDLE_BYTES;
        (is_whole && is_large).then(|| Partitions {
            partition_bytes: PARTITION_BYTES,
            partitions,
            index_bytes: partitions * entry_bytes,
        })
    }
}

/// Bytes of a handle in an index, with the lengths of its key.
const HANDLE_BYTES: u64 = 8;

/// Encodings that let as many absent keys pass, with the bytes that they take for the same keys.
fn same_rate(figures: &FilterFigures, counts: &LookupCounts) -> Vec<SameRate> {
    let Some(rate) = counts.observed_fpr().filter(|rate| *rate > 0.0).or(figures.expected_fpr())
    else {
        return Vec::new();
    };
    // As large as the tables of the database: a filter for each.
    let tables = figures.tables.max(1);
    let keys = figures.keys.div_ceil(tables);
    let same = |one: &Encoding| {
        let (encoding, bits_per_key) = (one.label(), one.bits_per_key());
        let filter_bytes = one.filter_bytes(keys)? * tables;
        Some(SameRate { encoding, bits_per_key, filter_bytes })
    };
    Encoding::built_in_for_fpr(rate, keys).iter().filter_map(same).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_advised_for_large_filters_only() {
        let mut figures = FilterFigures::default();
        (figures.tables, figures.keys, figures.key_bytes) = (2, 1000, 16_000);
        for (filter_bytes, partitions) in [
            (0, None),
            (PARTITION_BYTES, None),
            (2 * PARTITION_BYTES, None),
            (2 * PARTITION_BYTES + 1, Some(3)),
            (100 * PARTITION_BYTES, Some(100)),
        ] {
            figures.filter_bytes = filter_bytes;
            let advised = Partitions::of(&figures);
            assert_eq!(advised.map(|all| all.partitions), partitions, "{filter_bytes} bytes");
        }
        figures.partitions = 100;
        assert!(Partitions::of(&figures).is_none(), "they are there already");
    }
}
