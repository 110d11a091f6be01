//! `siftdb filter stats` of a LevelDB database, or of a single table of LevelDB or RocksDB.
//!
//! It reports the filters, their effect on lookups of given keys, and the size of other encodings
//! at the same rate.

use crate::described::result;
use crate::failure::Outcome;
use crate::foreign_table;
use crate::json::Interval;
use crate::leveldb::OldDatabase;
use crate::lines::each_line;
use crate::numbers::percent;
use crate::output::{Output, Shown};
use crate::text::counted;
use siftdb::filter::Encoding;
use siftdb_cli::experiment::{bytes, wilson_95};
use siftdb_foreign::FilterFigures;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// Bytes of a partition, with room for a key or two: what RocksDB and siftdb take by default.
const PARTITION_BYTES: u64 = 4096 * 9 / 10;

/// Prints the report of a LevelDB database. The keys of the file `probe` are looked up.
pub fn database(directory: &Path, probe: Option<&Path>, output: Output) -> Outcome<Shown> {
    let probes = probe.map(keys_of).transpose()?.unwrap_or_default();
    let old = OldDatabase::open(directory, false)?;
    show(&old.database.filter_figures(&probes)?, "leveldb", "LevelDB", output)
}

/// Prints the report of a table of LevelDB or RocksDB.
pub fn table(path: &Path, probe: Option<&Path>, output: Output) -> Outcome<Shown> {
    let probes = probe.map(keys_of).transpose()?.unwrap_or_default();
    let table = foreign_table::open(path)?;
    let figures = table.filter_figures(&probes)?;
    show(&figures, table.store(), foreign_table::store_name(&table), output)
}

result! {
    /// Of a LevelDB database, or of a table of LevelDB or RocksDB, one object:
    pub struct Report of figures: &FilterFigures, of: &'static str {
        /// leveldb or rocksdb
        store: &'static str = of;
        /// its tables
        tables, tables_without_filter, table_bytes, data_blocks: u64;
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
        observed_fpr: Option<f64> = figures.observed_fpr();
        #[serde(flatten)] interval: Interval = {
            let absent = figures.negatives + figures.false_positives;
            Interval::of(wilson_95(figures.false_positives, absent))
        };
        /// of --probe
        lookups, found, negatives, true_positives, false_positives, blocks_read: u64;
        /// what takes how much for that rate: encoding, bits_per_key, filter_bytes
        same_rate: Vec<SameRate> = same_rate(figures);
        /// the filters in partitions; or null:
        in_partitions: Option<Partitions> = Partitions::of(figures);
    }

    pub struct SameRate {
        encoding: &'static str;
        bits_per_key: Option<f64>;
        filter_bytes: u64;
    }
}

fn show(
    figures: &FilterFigures,
    store: &'static str,
    name: &str,
    output: Output,
) -> Outcome<Shown> {
    let report = Report::of(figures, store);
    output.show(&report, |out| print(&report, name, out))
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

fn keys_of(file: &Path) -> Outcome<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    each_line(file, |_, line| {
        keys.push(std::mem::take(line));
        Ok(())
    })?;
    Ok(keys)
}

/// Encodings that let as many absent keys pass, with the bytes that they take for the same keys.
fn same_rate(figures: &FilterFigures) -> Vec<SameRate> {
    let Some(rate) = figures.observed_fpr().filter(|rate| *rate > 0.0).or(figures.expected_fpr())
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

fn print(figures: &Report, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let (tables, size) = (counted(figures.tables, "table"), bytes(figures.table_bytes));
    let blocks = counted(figures.data_blocks, "data block");
    writeln!(out, "{name}: {tables}, {size}, {blocks}")?;
    let Report { entries, keys, .. } = figures;
    writeln!(out, "keys in tables: {keys}, in {entries} entries with old versions and deletions")?;
    if figures.tables_without_filter > 0 {
        let without = counted(figures.tables_without_filter, "table");
        writeln!(out, "without a filter of {name}'s own for whole keys: {without}")?;
    }
    if let (Some(bits), Some(expected)) = (figures.bits_per_key, figures.expected_fpr) {
        writeln!(
            out,
            "filters: {}, {bits:.2} bits a key, {} {}, {}",
            bytes(figures.filter_bytes),
            words(&figures.encodings),
            kind_of(figures),
            one_for(figures)
        )?;
        writeln!(out, "expected: {} of absent keys pass", percent(expected))?;
    }
    if figures.lookups > 0 {
        let (lookups, found) = (counted(figures.lookups, "lookup"), figures.found);
        writeln!(out, "{lookups}, {found} found, data blocks read: {}", figures.blocks_read)?;
        let Report { negatives, true_positives, false_positives, .. } = figures;
        writeln!(
            out,
            "filters said no: {negatives}, maybe rightly: {true_positives}, \
             maybe in vain: {false_positives}"
        )?;
    }
    let Interval { observed_fpr_low, observed_fpr_high } = figures.interval;
    if let (Some(observed), Some(low), Some(high)) =
        (figures.observed_fpr, observed_fpr_low, observed_fpr_high)
    {
        let [observed, low, high] = [observed, low, high].map(percent);
        writeln!(out, "observed: {observed} of absent keys pass (95 %: {low} to {high})")?;
    }
    if !figures.same_rate.is_empty() {
        writeln!(out, "the same rate in siftdb, one filter a table:")?;
    }
    for SameRate { encoding, filter_bytes, .. } in &figures.same_rate {
        let bits = 8.0 * *filter_bytes as f64 / figures.keys.max(1) as f64;
        let size = bytes(*filter_bytes);
        writeln!(out, "  {encoding:<16} {bits:>6.2} bits a key {size:>10}")?;
    }
    if let Some(Partitions { partitions, index_bytes, .. }) = &figures.in_partitions {
        let (count, size) = (counted(*partitions, "partition"), bytes(*index_bytes));
        let (one, all) = (bytes(PARTITION_BYTES), bytes(figures.filter_bytes));
        writeln!(
            out,
            "in {count} of {one}: a lookup needs their index of {size} and one of them, not {all}"
        )?;
    }
    Ok(())
}

fn words(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
}

/// How many bits of a filter a lookup reads.
fn kind_of(figures: &Report) -> String {
    match figures.encodings.contains("ribbon") {
        true => format!("of {}", counted(figures.probes.into(), "column")),
        false => format!("with {}", counted(figures.probes.into(), "probe")),
    }
}

/// The unit that shares a filter, in words.
fn one_for(figures: &Report) -> String {
    match (figures.window_bytes, figures.partitions) {
        (0, 0) => "one a table".into(),
        (0, partitions) => format!("in {}", counted(partitions, "partition")),
        (window, _) => format!("one for each {} of data", bytes(window)),
    }
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
