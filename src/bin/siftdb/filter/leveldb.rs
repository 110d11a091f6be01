//! `siftdb filter stats` of a LevelDB database: what its filters are, what they do for lookups of
//! given keys, and what other filters of the same rate would take.

use crate::failure::Outcome;
use crate::json::{fields, joined, list};
use crate::leveldb::OldDatabase;
use crate::lines::{next_line, open_lines};
use crate::numbers::percent;
use crate::output::{Output, Shown};
use crate::text::counted;
use serde_json::json;
use siftdb::experiment::{bytes, wilson_95};
use siftdb::filter::Encoding;
use siftdb::foreign::FilterFigures;
use std::io::{self, Write};
use std::path::Path;

/// Prints the report. The keys of the file `probe` are looked up.
pub fn stats(directory: &Path, probe: Option<&Path>, output: Output) -> Outcome<Shown> {
    let probes = probe.map(keys_of).transpose()?.unwrap_or_default();
    let old = OldDatabase::open(directory, false)?;
    let figures = old.database.filter_figures(&probes)?;
    let same_rate = same_rate(&figures);
    let absent = figures.negatives + figures.false_positives;
    let interval = wilson_95(figures.false_positives, absent);
    let json = joined([
        fields!(figures; tables, tables_without_filter, table_bytes, data_blocks, entries, keys,
            policies, filter_bytes, filter_bits, probes, window_bytes, lookups, found, negatives,
            true_positives, false_positives, blocks_read),
        json!({
            "store": "leveldb",
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
        }),
    ]);
    output.show(json, |out| print(&figures, interval, &same_rate, out))
}

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
    interval: Option<(f64, f64)>,
    same_rate: &[(Encoding, u64)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let (tables, size) = (counted(figures.tables, "table"), bytes(figures.table_bytes));
    let blocks = counted(figures.data_blocks, "data block");
    writeln!(out, "LevelDB: {tables}, {size}, {blocks}")?;
    let FilterFigures { entries, keys, .. } = figures;
    writeln!(out, "keys in tables: {keys}, in {entries} entries with old versions and deletions")?;
    if figures.tables_without_filter > 0 {
        let without = counted(figures.tables_without_filter, "table");
        writeln!(out, "without a filter of LevelDB's own: {without}")?;
    }
    if let (Some(bits), Some(expected)) = (figures.bits_per_key(), figures.expected_fpr()) {
        writeln!(
            out,
            "filters: {}, {bits:.2} bits a key, {} probes, one for each {} of data",
            bytes(figures.filter_bytes),
            figures.probes,
            bytes(figures.window_bytes)
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
    Ok(())
}
