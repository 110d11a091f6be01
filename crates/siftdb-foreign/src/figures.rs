//! Sizes and rates of the filters of LevelDB's and RocksDB's tables, and their effect on lookups.
//!
//! Lookups work as in these stores. Keys of the logs are found first. Then tables are asked from
//! the newest to the oldest: the index, the filter, and a block if the filter says "maybe". One
//! table is open at a time. Its entries are merged with the keys that are looked up, so every block
//! is read once.

use crate::filter::TableFilter;
use crate::internal_key::user_key;
use crate::leveldb::database::LevelDb;
use crate::leveldb::table;
use crate::table::{Table, TableEntries};
use siftdb::Result;
use std::collections::BTreeSet;

/// The figures of [`LevelDb::filter_figures`] and
/// [`ForeignTable::filter_figures`](crate::ForeignTable::filter_figures).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FilterFigures {
    /// Tables.
    pub tables: u64,
    /// Tables without a filter, or with one that is not asked, because its policy is not the
    /// store's own or it has no whole keys.
    pub tables_without_filter: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Data blocks of the tables.
    pub data_blocks: u64,
    /// Entries in tables, old versions and deletions included.
    pub entries: u64,
    /// Keys in tables, each counted once for each table that has it.
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
    /// Bits in the filters alone.
    pub filter_bits: u64,
    /// Probes of a key in a filter, or the columns of a Ribbon filter; 0 without filters.
    pub probes: u32,
    /// Bytes of data that share a filter, the largest of all tables; 0 in other layouts.
    pub window_bytes: u64,
    /// Lookups of the given keys.
    pub lookups: u64,
    /// Lookups that found something, a deletion included.
    pub found: u64,
    /// Filters that said "no".
    pub negatives: u64,
    /// Filters that said "maybe" of a table that has the key.
    pub true_positives: u64,
    /// Filters that said "maybe" of a table without the key.
    pub false_positives: u64,
    /// Data blocks that lookups read.
    pub blocks_read: u64,
    /// Keys in filters whose rate is known, and the sum of their rates.
    rated_keys: u64,
    rates: f64,
}

impl FilterFigures {
    /// Bits of filter for each key, with the offsets of filters; `None` without keys.
    #[must_use]
    pub fn bits_per_key(&self) -> Option<f64> {
        (self.keys > 0).then(|| 8.0 * self.filter_bytes as f64 / self.keys as f64)
    }

    /// The expected false-positive rate of filters with these bits and probes, if keys are spread
    /// evenly over the filters; `None` without filters.
    #[must_use]
    pub fn expected_fpr(&self) -> Option<f64> {
        (self.rated_keys > 0).then(|| self.rates / self.rated_keys as f64)
    }

    /// The observed false-positive rate; `None` if no filter was asked for an absent key.
    #[must_use]
    pub fn observed_fpr(&self) -> Option<f64> {
        let absent = self.negatives + self.false_positives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }
}

impl LevelDb {
    /// Reads all tables, and looks up the keys of `probes` as LevelDB would.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `Missing`, unless the database was opened to salvage. Then a damaged
    /// table counts as far as it was read.
    pub fn filter_figures(&self, probes: &[Vec<u8>]) -> Result<FilterFigures> {
        let mut figures = FilterFigures { lookups: probes.len() as u64, ..Default::default() };
        let mut sought = sorted(probes);
        sought.retain(|key| !self.is_logged(key));
        for file in self.newest_first() {
            let bytes = file.expected.as_ref().map(|facts| facts.bytes);
            let read = table::open(&**self.env(), &file.path, bytes)
                .and_then(|table| figures.add_table(&table, &mut sought));
            if let Err(error) = read {
                self.pass(error)?;
            }
        }
        figures.found = figures.lookups - sought.len() as u64;
        Ok(figures)
    }
}

fn sorted(probes: &[Vec<u8>]) -> Vec<&[u8]> {
    let mut sought: Vec<&[u8]> = probes.iter().map(Vec::as_slice).collect();
    sought.sort_unstable();
    sought
}

/// The lookups of sorted keys in a table.
struct Lookups<'a> {
    filter: Option<TableFilter>,
    sought: std::iter::Peekable<std::vec::IntoIter<&'a [u8]>>,
    missed: Vec<&'a [u8]>,
}

impl FilterFigures {
    /// The figures of one table.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn of_table(table: &Table, probes: &[Vec<u8>]) -> Result<Self> {
        let mut figures = FilterFigures { lookups: probes.len() as u64, ..Default::default() };
        let mut sought = sorted(probes);
        figures.add_table(table, &mut sought)?;
        figures.found = figures.lookups - sought.len() as u64;
        Ok(figures)
    }

    /// Counts a table, and removes its keys from `sought`. After an error, `sought` is unchanged.
    fn add_table(&mut self, table: &Table, sought: &mut Vec<&[u8]>) -> Result<()> {
        let filter = TableFilter::open(table)?;
        self.tables += 1;
        self.table_bytes += table.file.bytes();
        self.tables_without_filter += u64::from(filter.as_ref().is_none_or(|one| !one.is_asked()));
        if let Some(filter) = &filter {
            self.policies.insert(filter.policy.clone());
            self.layouts.insert(filter.layout.name().into());
            self.window_bytes = self.window_bytes.max(filter.window_bytes());
        }
        let sought_here = sought.clone().into_iter().peekable();
        let mut lookups = Lookups { filter, sought: sought_here, missed: Vec::new() };
        self.add_entries(table, &mut lookups)?;
        if let Some(tally) = lookups.filter.take().map(TableFilter::finish) {
            self.filter_bytes += tally.bytes;
            self.filter_bits += tally.bits;
            self.probes = self.probes.max(tally.probes);
            self.partitions += tally.partitions;
            self.encodings.extend(tally.encodings.into_iter().map(str::to_string));
            self.rated_keys += tally.keys;
            self.rates += tally.rates;
        }
        *sought = lookups.missed;
        sought.extend(lookups.sought);
        Ok(())
    }

    /// Merges the entries of a table with the keys that are looked up, from the table's first key
    /// to its last.
    fn add_entries(&mut self, table: &Table, lookups: &mut Lookups<'_>) -> Result<()> {
        let mut entries = TableEntries::open(table)?;
        let mut last_key: Option<Vec<u8>> = None;
        let mut after: Vec<&[u8]> = Vec::new();
        let mut offset = 0;
        while entries.next_block(table)? {
            self.data_blocks += 1;
            // These keys are between two blocks, so they are not above the last key.
            for key in after.drain(..) {
                self.look_up(table, lookups, key, offset, Some(false))?;
            }
            offset = entries.blocks.handle().offset;
            let first = entries.blocks.first_key().map(|key| user_key(key).to_vec());
            while entries.next(table)? {
                self.entries += 1;
                let key = user_key(entries.key());
                if last_key.as_deref() == Some(key) {
                    continue;
                }
                while let Some(absent) = lookups.sought.next_if(|sought| *sought < key) {
                    if last_key.is_none() {
                        lookups.missed.push(absent);
                        continue;
                    }
                    let is_read = first.as_deref().is_none_or(|first| first <= absent);
                    self.look_up(table, lookups, absent, offset, is_read.then_some(false))?;
                }
                if let Some(filter) = &mut lookups.filter {
                    filter.add_member(table, key)?;
                }
                while let Some(found) = lookups.sought.next_if(|sought| *sought == key) {
                    self.look_up(table, lookups, found, offset, Some(true))?;
                }
                self.keys += 1;
                self.key_bytes += key.len() as u64;
                let last = last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            let blocks = &entries.blocks;
            while let Some(key) = lookups.sought.next_if(|key| blocks.reaches(table.style, key)) {
                after.push(key);
            }
        }
        lookups.missed.append(&mut after);
        Ok(())
    }

    /// Looks up a key. `is_there` says whether its block has it; `None` if the index already says
    /// no.
    fn look_up<'a>(
        &mut self,
        table: &Table,
        lookups: &mut Lookups<'a>,
        key: &'a [u8],
        offset: u64,
        is_there: Option<bool>,
    ) -> Result<()> {
        let maybe = match &mut lookups.filter {
            Some(filter) => filter.ask(table, key, offset)?,
            None => None,
        };
        let found = is_there == Some(true);
        if !found {
            lookups.missed.push(key);
        }
        match (maybe, found) {
            (Some(false), _) => self.negatives += 1,
            (Some(true), true) => self.true_positives += 1,
            (Some(true), false) => self.false_positives += 1,
            (None, _) => {}
        }
        self.blocks_read += u64::from(maybe != Some(false) && is_there.is_some());
        Ok(())
    }
}
