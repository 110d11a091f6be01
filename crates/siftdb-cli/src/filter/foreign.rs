//! `siftdb filter stats` of a LevelDB database, or of a single table of LevelDB or RocksDB.
//!
//! It reports the filters, their effect on lookups of given keys, and the size of other encodings
//! at the same rate.

use crate::failure::Outcome;
use crate::foreign_table;
use crate::json::{fields, joined, list};
use crate::leveldb::OldDatabase;
use crate::lines::{next_line, open_lines};
use crate::numbers::percent;
use crate::output::{Output, Shown};
use crate::text::counted;
use serde_json::json;
use siftdb::filter::Encoding;
use siftdb::foreign::FilterFigures;
use siftdb_cli::experiment::{bytes, wilson_95};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// Bytes of a partition, with room for a key or two: what RocksDB and siftdb take by default.
const PARTITION_BYTES: u64 = 4096 * 9 / 10;

/// Prints the report of a LevelDB database. The keys of the file `probe` are looked up.
pub fn database(directory: &Path, probe: Option<&Path>, output: Output) -> Outcome<Shown> {
    let probes = probe.map(keys_of).transpose()?.unwrap_or_default();
    let old = OldDatabase::open(directory, false)?;
    report(&old.database.filter_figures(&probes)?, "leveldb", "LevelDB", output)
}

/// Prints the report of a table of LevelDB or RocksDB.
pub fn table(path: &Path, probe: Option<&Path>, output: Output) -> Outcome<Shown> {
    let probes = probe.map(keys_of).transpose()?.unwrap_or_default();
    let table = foreign_table::open(path)?;
    let figures = table.filter_figures(&probes)?;
    report(&figures, table.store(), foreign_table::store_name(&table), output)
}

fn report(figures: &FilterFigures, store: &str, name: &str, output: Output) -> Outcome<Shown> {
    let same_rate = same_rate(figures);
    let absent = figures.negatives + figures.false_positives;
    let interval = wilson_95(figures.false_positives, absent);
    let partitions = Partitions::of(figures);
    let json = joined([
        fields!(figures; tables, tables_without_filter, table_bytes, data_blocks, entries, keys,
            key_bytes, policies, encodings, layouts, partitions, filter_bytes, filter_bits, probes,
            window_bytes, lookups, found, negatives, true_positives, false_positives, blocks_read),
        json!({
            "store": store,
            "bits_per_key": figures.bits_per_key(),
            "expected_fpr": figures.expected_fpr(),
            "observed_fpr": figures.observed_fpr(),
            "observed_fpr_low": interval.map(|(low, _)| low),
            "observed_fpr_high": interval.map(|(_, high)| high),
            "same_rate": list(&same_rate, |(encoding, filter_bytes)| json!({
                "encoding": encoding.label(),
                "bits_per_key": encoding.bits_per_key(),
                "filter_bytes": filter_bytes,
            })),
            "in_partitions": partitions.as_ref().map(|all| json!({
                "partition_bytes": PARTITION_BYTES,
                "partitions": all.partitions,
                "index_bytes": all.index_bytes,
            })),
        }),
    ]);
    output.show(json, |out| print(figures, name, interval, &same_rate, partitions.as_ref(), out))
}

/// The filters as partitions: a lookup needs their index and one of them.
struct Partitions {
    partitions: u64,
    /// Of each partition a key and a handle.
    index_bytes: u64,
}

impl Partitions {
    /// `None` if the filters of a table would be one partition, or have partitions already.
    fn of(figures: &FilterFigures) -> Option<Self> {
        let is_whole = figures.partitions == 0 && figures.keys > 0;
        let is_large = figures.filter_bytes > PARTITION_BYTES * figures.tables;
        let partitions = figures.filter_bytes.div_ceil(PARTITION_BYTES);
        let entry_bytes = figures.key_bytes / figures.keys.max(1) + HANDLE_BYTES;
        (is_whole && is_large)
            .then(|| Partitions { partitions, index_bytes: partitions * entry_bytes })
    }
}

/// Bytes of a handle in an index, with the lengths of its key.
const HANDLE_BYTES: u64 = 8;

fn keys_of(file: &Path) -> Outcome<Vec<Vec<u8>>> {
    let (mut lines, _) = open_lines(file)?;
    let (mut line, mut keys) = (Vec::new(), Vec::new());
    while next_line(&mut lines, &mut line, file)?.is_some() {
        keys.push(line.clone());
    }
    Ok(keys)
}

/// Encodings that let as many absent keys pass, with the bytes that they take for the same keys.
fn same_rate(figures: &FilterFigures) -> Vec<(Encoding, u64)> {
    let Some(rate) = figures.observed_fpr().filter(|rate| *rate > 0.0).or(figures.expected_fpr())
    else {
        return Vec::new();
    };
    // As large as the tables of the database: a filter for each.
    let tables = figures.tables.max(1);
    let keys = figures.keys.div_ceil(tables);
    let encodings = Encoding::built_in_for_fpr(rate, keys).into_iter();
    encodings.filter_map(|one| Some((one.clone(), one.filter_bytes(keys)? * tables))).collect()
}

fn print(
    figures: &FilterFigures,
    name: &str,
    interval: Option<(f64, f64)>,
    same_rate: &[(Encoding, u64)],
    partitions: Option<&Partitions>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (tables, size) = (counted(figures.tables, "table"), bytes(figures.table_bytes));
    let blocks = counted(figures.data_blocks, "data block");
    writeln!(out, "{name}: {tables}, {size}, {blocks}")?;
    let FilterFigures { entries, keys, .. } = figures;
    writeln!(out, "keys in tables: {keys}, in {entries} entries with old versions and deletions")?;
    if figures.tables_without_filter > 0 {
        let without = counted(figures.tables_without_filter, "table");
        writeln!(out, "without a filter of {name}'s own for whole keys: {without}")?;
    }
    if let (Some(bits), Some(expected)) = (figures.bits_per_key(), figures.expected_fpr()) {
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
        let FilterFigures { negatives, true_positives, false_positives, .. } = figures;
        writeln!(
            out,
            "filters said no: {negatives}, maybe rightly: {true_positives}, \
             maybe in vain: {false_positives}"
        )?;
    }
    if let (Some(observed), Some((low, high))) = (figures.observed_fpr(), interval) {
        let [observed, low, high] = [observed, low, high].map(percent);
        writeln!(out, "observed: {observed} of absent keys pass (95 %: {low} to {high})")?;
    }
    if !same_rate.is_empty() {
        writeln!(out, "the same rate in siftdb, one filter a table:")?;
    }
    for (encoding, filter_bytes) in same_rate {
        let bits = 8.0 * *filter_bytes as f64 / figures.keys.max(1) as f64;
        let size = bytes(*filter_bytes);
        writeln!(out, "  {:<16} {bits:>6.2} bits a key {size:>10}", encoding.label())?;
    }
    if let Some(Partitions { partitions, index_bytes }) = partitions {
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
fn kind_of(figures: &FilterFigures) -> String {
    match figures.encodings.contains("ribbon") {
        true => format!("of {}", counted(figures.probes.into(), "column")),
        false => format!("with {}", counted(figures.probes.into(), "probe")),
    }
}

/// The unit that shares a filter, in words.
fn one_for(figures: &FilterFigures) -> String {
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
