//! Sizes and expected rates of the filters of LevelDB's and RocksDB's tables.
//!
//! Tables of LevelDB, and single tables, are read whole to count their keys. A table of a RocksDB
//! database is known by its properties: of such a table only the filters are read.

use crate::filter::TableFilter;
use crate::internal_key::user_key;
use crate::leveldb::database::LevelDb;
use crate::leveldb::table as leveldb;
use crate::rocksdb::database::{ColumnFamily, RocksDb};
use crate::rocksdb::properties::Properties;
use crate::rocksdb::table as rocksdb;
use crate::table::{Table, TableEntries};
use siftdb::Result;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The figures of a table of a database.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TableFigures {
    /// Its file.
    pub path: PathBuf,
    /// Its level.
    pub level: usize,
    /// Its filters. If the database was opened to salvage and the table is damaged, as far as they
    /// were read.
    pub filters: FilterFigures,
}

/// The filters of one table, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FilterFigures {
    /// Tables.
    pub tables: u64,
    /// Tables without a filter, or with one that is not asked, because its policy is not the
    /// store's own or it has no whole keys.
    pub tables_without_filter: u64,
    /// Of these, tables with filters for prefixes alone. RocksDB asks them, here they are not.
    pub tables_with_prefixes_only: u64,
    /// Range deletes in RocksDB's tables.
    pub range_deletes: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Data blocks of the tables.
    pub data_blocks: u64,
    /// Bytes of these blocks.
    pub data_bytes: u64,
    /// Bytes of the indexes, all levels together.
    pub index_bytes: u64,
    /// Partitions of the indexes; 0 for an index of one block.
    pub index_partitions: u64,
    /// Bytes of the blocks that name the partitions of an index.
    pub index_top_level_bytes: u64,
    /// Entries in tables, old versions and deletions included.
    pub entries: u64,
    /// Keys in tables, each counted once for each table that has it. In a RocksDB database that is
    /// the number of keys that were added to filters, or of entries where a table does not say it.
    pub keys: u64,
    /// Bytes of these keys.
    pub key_bytes: u64,
    /// The names of the policies of the filters.
    pub policies: BTreeSet<String>,
    /// The encodings of the filters, such as `ribbon`.
    pub encodings: BTreeSet<String>,
    /// The layouts of the filters: `block-based`, `full`, `partitioned`.
    pub layouts: BTreeSet<String>,
    /// Partitions of the filters; 0 in other layouts.
    pub partitions: u64,
    /// Bytes of the filter blocks, with the offsets or indexes that locate filters.
    pub filter_bytes: u64,
    /// Bytes of the blocks that name the partitions of a filter.
    pub filter_top_level_bytes: u64,
    /// Bits in the filters alone.
    pub filter_bits: u64,
    /// Probes of a key in a filter, or the columns of a Ribbon filter; 0 without filters.
    pub probes: u32,
    /// Bytes of data that share a filter, the largest of all tables; 0 in other layouts.
    pub window_bytes: u64,
    /// Keys in tables with filters.
    filtered_keys: u64,
    /// Keys in filters whose rate is known, and the sum of their rates.
    rated_keys: f64,
    rates: f64,
}

impl FilterFigures {
    /// Bits of filter for each key of tables with filters, with the offsets of filters; `None`
    /// without filters.
    #[must_use]
    pub fn bits_per_key(&self) -> Option<f64> {
        let keys = self.filtered_keys;
        (keys > 0).then(|| 8.0 * self.filter_bytes as f64 / keys as f64)
    }

    /// The same for the bits of the filters alone.
    #[must_use]
    pub fn probed_bits_per_key(&self) -> Option<f64> {
        let keys = self.filtered_keys;
        (keys > 0 && self.filter_bits > 0).then(|| self.filter_bits as f64 / keys as f64)
    }

    /// The expected false-positive rate of filters with these bits and probes, if keys are spread
    /// evenly over the filters; `None` without filters.
    #[must_use]
    pub fn expected_fpr(&self) -> Option<f64> {
        (self.rated_keys > 0.0).then(|| self.rates / self.rated_keys)
    }

    /// Adds the figures of other tables.
    pub fn add(&mut self, other: &FilterFigures) {
        // Those of properties can be any numbers.
        for (sum, more) in [
            (&mut self.tables, other.tables),
            (&mut self.tables_without_filter, other.tables_without_filter),
            (&mut self.tables_with_prefixes_only, other.tables_with_prefixes_only),
            (&mut self.range_deletes, other.range_deletes),
            (&mut self.filtered_keys, other.filtered_keys),
            (&mut self.table_bytes, other.table_bytes),
            (&mut self.data_blocks, other.data_blocks),
            (&mut self.data_bytes, other.data_bytes),
            (&mut self.index_bytes, other.index_bytes),
            (&mut self.index_partitions, other.index_partitions),
            (&mut self.index_top_level_bytes, other.index_top_level_bytes),
            (&mut self.entries, other.entries),
            (&mut self.keys, other.keys),
            (&mut self.key_bytes, other.key_bytes),
            (&mut self.partitions, other.partitions),
            (&mut self.filter_bytes, other.filter_bytes),
            (&mut self.filter_top_level_bytes, other.filter_top_level_bytes),
            (&mut self.filter_bits, other.filter_bits),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.policies.extend(other.policies.iter().cloned());
        self.encodings.extend(other.encodings.iter().cloned());
        self.layouts.extend(other.layouts.iter().cloned());
        self.probes = self.probes.max(other.probes);
        self.window_bytes = self.window_bytes.max(other.window_bytes);
        self.rated_keys += other.rated_keys;
        self.rates += other.rates;
    }

    /// Counts the entries of a table, which is read whole.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`. What was counted so far stays.
    pub(crate) fn count(&mut self, table: &Table, properties: Option<&Properties>) -> Result<()> {
        (self.tables, self.table_bytes) = (1, table.file.bytes());
        self.index_bytes = table.index.size;
        if let Some(properties) = properties {
            self.take_sizes(properties);
        }
        let mut entries = TableEntries::open(table)?;
        let mut last_key: Option<Vec<u8>> = None;
        while entries.next_block(table)? {
            self.data_blocks += 1;
            self.data_bytes += entries.blocks.handle().size;
            while entries.next(table)? {
                self.entries += 1;
                let key = user_key(entries.key());
                if last_key.as_deref() == Some(key) {
                    continue;
                }
                self.keys += 1;
                self.key_bytes += key.len() as u64;
                key.clone_into(last_key.get_or_insert_default());
            }
        }
        self.add_filter(table)
    }

    /// Takes the counts of a table from its properties.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    fn take(&mut self, table: &Table, properties: &Properties) -> Result<()> {
        let number = |name| properties.number(name).unwrap_or_default();
        (self.tables, self.table_bytes) = (1, table.file.bytes());
        self.data_blocks = number("rocksdb.num.data.blocks");
        self.data_bytes = number("rocksdb.data.size");
        self.entries =
            number("rocksdb.num.entries").saturating_sub(number("rocksdb.num.range-deletions"));
        let added = properties.number("rocksdb.num.filter_entries").filter(|&added| added > 0);
        // Without whole keys these are prefixes.
        self.keys = added.filter(|_| table.has_whole_keys).unwrap_or(self.entries);
        // Internal keys end with a trailer of eight bytes.
        let internal = number("rocksdb.raw.key.size");
        self.key_bytes = internal.saturating_sub(self.entries.saturating_mul(8));
        self.take_sizes(properties);
        self.add_filter(table)
    }

    fn take_sizes(&mut self, properties: &Properties) {
        let number = |name| properties.number(name).unwrap_or_default();
        self.range_deletes = number("rocksdb.num.range-deletions");
        self.index_bytes = number("rocksdb.index.size");
        self.index_partitions = number("rocksdb.index.partitions");
        self.index_top_level_bytes = number("rocksdb.top-level.index.size");
    }

    /// Adds the filter of the table, whose keys are counted.
    fn add_filter(&mut self, table: &Table) -> Result<()> {
        let filter = TableFilter::open(table)?;
        self.tables_without_filter = u64::from(filter.as_ref().is_none_or(|one| !one.is_asked()));
        let Some(filter) = filter else { return Ok(()) };
        self.tables_with_prefixes_only = u64::from(!table.has_whole_keys);
        self.filtered_keys = self.keys;
        self.policies.insert(filter.policy.clone());
        self.layouts.insert(filter.layout.name().into());
        self.window_bytes = filter.window_bytes();
        let tally = filter.tally(table, self.keys)?;
        (self.filter_bytes, self.filter_bits) = (tally.bytes, tally.bits);
        (self.probes, self.partitions) = (tally.probes, tally.partitions);
        if tally.partitions > 0 {
            self.filter_top_level_bytes = filter.handle.size;
        }
        self.encodings.extend(tally.encodings.into_iter().map(str::to_string));
        (self.rated_keys, self.rates) = (tally.keys, tally.rates);
        Ok(())
    }
}

impl LevelDb {
    /// The figures of each table, in the order in which lookups ask them. All tables are read.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `Missing`, unless the database was opened to salvage.
    pub fn filter_figures(&self) -> Result<Vec<TableFigures>> {
        let mut tables = Vec::new();
        for file in self.newest_first() {
            let mut filters = FilterFigures::default();
            let facts = file.expected.as_ref();
            leveldb::open(&*self.env, &file.path, facts.map(|facts| facts.bytes))
                .and_then(|table| filters.count(&table, None))
                .or_else(|error| self.damage.pass(error))?;
            let level = facts.map_or(0, |facts| facts.level);
            tables.push(TableFigures { path: file.path.clone(), level, filters });
        }
        Ok(tables)
    }
}

impl RocksDb {
    /// The figures of each table of a column family, in the order in which lookups ask them. Of the
    /// tables, properties and filters are read.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `Missing`, unless the database was opened to salvage.
    pub fn filter_figures(&self, family: &ColumnFamily) -> Result<Vec<TableFigures>> {
        let mut tables = Vec::new();
        for file in family.newest_first() {
            let mut filters = FilterFigures::default();
            rocksdb::open(&*self.env, &file.path, file.order)
                .and_then(|(table, rocks)| filters.take(&table, &rocks.properties))
                .or_else(|error| self.damage.pass(error))?;
            let level = file.expected.as_ref().map_or(0, |facts| facts.level);
            tables.push(TableFigures { path: file.path.clone(), level, filters });
        }
        Ok(tables)
    }
}
