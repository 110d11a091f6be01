//! What the filters of a LevelDB database are, and what they do for lookups of given keys.
//!
//! Lookups go as LevelDB's: what the logs have is found first, then tables are asked from the
//! newest to the oldest, each with its index, its filter, and a block if the filter says "maybe".
//! One table is open at a time, so the keys go through one table after the other.

use crate::base::error::Result;
use crate::base::key::{compare_internal, put_key_with_trailer, split_internal_key, user_key};
use crate::filter::hash::leveldb_hash;
use crate::foreign::leveldb::database::LevelDb;
use crate::foreign::leveldb::filter::TableFilter;
use crate::foreign::leveldb::table::Table;
use std::collections::BTreeSet;

/// The figures of [`LevelDb::filter_figures`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterFigures {
    /// Tables.
    pub tables: u64,
    /// Tables without a filter, or with one of a policy that is not LevelDB's own.
    pub tables_without_filter: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Data blocks of the tables.
    pub data_blocks: u64,
    /// Entries in tables, old versions and deletions included.
    pub entries: u64,
    /// Keys in tables, each counted once for each table that has it.
    pub keys: u64,
    /// The names of the policies of the filters.
    pub policies: BTreeSet<String>,
    /// Bytes of the filter blocks.
    pub filter_bytes: u64,
    /// Bits in the filters, without what finds them.
    pub filter_bits: u64,
    /// Probes of a key in a filter; 0 without filters.
    pub probes: u32,
    /// Bytes of data that share a filter: the largest window.
    pub window_bytes: u64,
    /// Lookups of the given keys.
    pub lookups: u64,
    /// Lookups that found something, a deletion included.
    pub found: u64,
    /// Filters that said "no".
    pub negatives: u64,
    /// Filters that said "maybe" where the key is.
    pub true_positives: u64,
    /// Filters that said "maybe" in vain.
    pub false_positives: u64,
    /// Data blocks that were read.
    pub blocks_read: u64,
}

impl FilterFigures {
    /// Bits of filter for each key, offsets of filters included; `None` without keys.
    #[must_use]
    pub fn bits_per_key(&self) -> Option<f64> {
        (self.keys > 0).then(|| 8.0 * self.filter_bytes as f64 / self.keys as f64)
    }

    /// The share of absent keys that filters of these bits and probes let pass, if the keys are
    /// spread evenly over them; `None` without filters.
    ///
    /// Source: B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970.
    #[must_use]
    pub fn expected_fpr(&self) -> Option<f64> {
        let per_bit = f64::from(self.probes) * self.keys as f64 / self.filter_bits as f64;
        let is_known = self.filter_bits > 0 && self.keys > 0;
        is_known.then(|| (-(-per_bit).exp_m1()).powi(self.probes as i32))
    }

    /// The share of absent keys that passed; `None` if no filter was asked about one.
    #[must_use]
    pub fn observed_fpr(&self) -> Option<f64> {
        let absent = self.negatives + self.false_positives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }
}

impl LevelDb {
    /// Reads all tables, and looks the keys of `probes` up as LevelDB would.
    ///
    /// # Errors
    /// The failure of a file; `Corruption` or `Missing`, unless the database was opened to salvage:
    /// then a damaged table counts as far as it was read.
    pub fn filter_figures(&self, probes: &[Vec<u8>]) -> Result<FilterFigures> {
        let mut figures = FilterFigures { lookups: probes.len() as u64, ..Default::default() };
        let mut sought: Vec<&[u8]> = probes.iter().map(Vec::as_slice).collect();
        sought.retain(|key| !self.is_logged(key));
        // Neighbours share a block.
        sought.sort_unstable();
        for file in self.newest_first() {
            let bytes = file.expected.as_ref().map(|facts| facts.bytes);
            let read = Table::open(&**self.env(), &file.path, bytes)
                .and_then(|table| figures.add_table(&table, &mut sought));
            if let Err(error) = read {
                self.pass(error)?;
            }
        }
        figures.found = figures.lookups - sought.len() as u64;
        Ok(figures)
    }
}

impl FilterFigures {
    /// Counts a table, and takes the keys out of `sought` that are in it.
    fn add_table(&mut self, table: &Table, sought: &mut Vec<&[u8]>) -> Result<()> {
        let filter = table.filter()?;
        self.tables += 1;
        self.table_bytes += table.bytes();
        self.data_blocks += table.blocks().len() as u64;
        if let Some(filter) = &filter {
            self.policies.insert(filter.policy().into());
            self.filter_bytes += filter.bytes();
            self.window_bytes = self.window_bytes.max(filter.window_bytes());
        }
        match filter.as_ref().and_then(TableFilter::bits_and_probes) {
            Some((bits, probes)) => {
                self.filter_bits += bits;
                self.probes = probes;
            }
            None => self.tables_without_filter += 1,
        }
        // The smallest key and the largest.
        let mut ends: Option<(Vec<u8>, Vec<u8>)> = None;
        for (_, block) in table.blocks() {
            let mut entries = table.entries(*block)?;
            while entries.next().map_err(|what| table.damage(*block, what))? {
                self.entries += 1;
                let key = user_key(entries.key());
                match &mut ends {
                    Some((_, last)) if last == key => continue,
                    Some((_, last)) => key.clone_into(last),
                    None => ends = Some((key.to_vec(), key.to_vec())),
                }
                self.keys += 1;
            }
        }
        let Some((first, last)) = ends else { return Ok(()) };
        let within = |key: &[u8]| first.as_slice() <= key && key <= last.as_slice();
        let mut rest = Vec::with_capacity(sought.len());
        for key in std::mem::take(sought) {
            if !(within(key) && self.lookup(table, filter.as_ref(), key)?) {
                rest.push(key);
            }
        }
        *sought = rest;
        Ok(())
    }

    /// Whether the table has the key.
    fn lookup(&mut self, table: &Table, filter: Option<&TableFilter>, key: &[u8]) -> Result<bool> {
        let mut newest = Vec::with_capacity(key.len() + 8);
        put_key_with_trailer(&mut newest, key, u64::MAX);
        let blocks = table.blocks();
        let at = blocks.partition_point(|(last, _)| compare_internal(last, &newest).is_lt());
        let Some(&(_, block)) = blocks.get(at) else { return Ok(false) };
        let hash = leveldb_hash(key);
        let maybe = filter.and_then(|filter| filter.block_may_contain(block.offset, hash));
        if maybe == Some(false) {
            self.negatives += 1;
            return Ok(false);
        }
        self.blocks_read += 1;
        let mut entries = table.entries(block)?;
        let mut found = false;
        while !found && entries.next().map_err(|what| table.damage(block, what))? {
            found = split_internal_key(entries.key()).is_some_and(|(own, _)| own == key);
        }
        match (maybe, found) {
            (None, _) => {}
            (_, true) => self.true_positives += 1,
            (_, false) => self.false_positives += 1,
        }
        Ok(found)
    }
}
