//! Sizes and expected rates of the filters of LevelDB's and RocksDB's tables.
//!
//! Tables of LevelDB, and single tables, are read whole to count their keys. A table of a RocksDB
//! database is known by its properties: of such a table only the filters are read.

use crate::filter::TableFilter;
use crate::filter_figures::FilterFigures;
use crate::internal_key::user_key;
use crate::leveldb::database::LevelDb;
use crate::leveldb::table as leveldb;
use crate::rocksdb::database::{ColumnFamily, RocksDb};
use crate::rocksdb::properties::Properties;
use crate::rocksdb::table as rocksdb;
use crate::table::{Table, TableEntries};
use siftdb::Result;
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

impl FilterFigures {
    /// Counts the entries of a table, which is read whole.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`. What was counted so far stays.
    pub(crate) fn count(&mut self, table: &Table, properties: Option<&Properties>) -> Result<()> {
        (self.tables, self.table_bytes) = (1, table.file.bytes);
        self.index_bytes = table.index.size;
        if let Some(properties) = properties {
            self.take_sizes(table, properties)?;
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
        let count = |name| properties.count(&table.file, name);
        (self.tables, self.table_bytes) = (1, table.file.bytes);
        self.data_blocks = count("rocksdb.num.data.blocks")?;
        self.data_bytes = count("rocksdb.data.size")?;
        self.entries =
            count("rocksdb.num.entries")?.saturating_sub(count("rocksdb.num.range-deletions")?);
        let added = count("rocksdb.num.filter_entries")?;
        // Without whole keys these are prefixes.
        self.keys = if added > 0 && table.has_whole_keys { added } else { self.entries };
        // Internal keys end with a trailer of eight bytes.
        self.key_bytes = count("rocksdb.raw.key.size")?.saturating_sub(self.entries * 8);
        self.take_sizes(table, properties)?;
        self.add_filter(table)
    }

    fn take_sizes(&mut self, table: &Table, properties: &Properties) -> Result<()> {
        let count = |name| properties.count(&table.file, name);
        self.range_deletes = count("rocksdb.num.range-deletions")?;
        self.index_bytes = count("rocksdb.index.size")?;
        self.index_partitions = count("rocksdb.index.partitions")?;
        self.index_top_level_bytes = count("rocksdb.top-level.index.size")?;
        Ok(())
    }

    /// Adds the filter of the table, whose keys are counted.
    fn add_filter(&mut self, table: &Table) -> Result<()> {
        let filter = TableFilter::open(table)?;
        self.tables_without_filter = u64::from(filter.as_ref().is_none_or(|one| !one.is_asked()));
        let Some(filter) = filter else { return Ok(()) };
        self.tables_with_prefixes_only = u64::from(!table.has_whole_keys);
        self.filtered_keys = self.keys;
        filter.add_to(self, table)
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
            leveldb::open_expected(&*self.env, file)
                .and_then(|open| filters.count(&open.table, None))
                .or_else(|error| self.damage.pass(error))?;
            tables.push(TableFigures { path: file.path.clone(), level: file.level(), filters });
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
            tables.push(TableFigures { path: file.path.clone(), level: file.level(), filters });
        }
        Ok(tables)
    }
}
