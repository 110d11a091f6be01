//! The report about the filters of another store, as text.

use crate::filter::foreign::report::{
    Level, PARTITION_BYTES, Partitions, Report, SameRate, Simulated,
};
use crate::foreign_table::store_name;
use crate::json::Interval;
use crate::numbers::{percent, percent_between};
use crate::text::counted;
use siftdb_cli::experiment::{Unit, bytes};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Prints a report.
pub fn print(figures: &Report, out: &mut dyn Write) -> io::Result<()> {
    let name = store_name(figures.store);
    if let Some(family) = &figures.family {
        writeln!(out, "column family {family:?}:")?;
    }
    let (tables, size) = (counted(figures.tables, "table"), bytes(figures.table_bytes));
    let blocks = counted(figures.data_blocks, "data block");
    writeln!(out, "{name}: {tables}, {size}, {blocks}")?;
    let Report { entries, keys, .. } = figures;
    writeln!(out, "keys in tables: {keys}, in {entries} entries with old versions and deletions")?;
    if figures.tables_without_filter > 0 {
        let without = counted(figures.tables_without_filter, "table");
        writeln!(out, "without a filter of {name}'s own for whole keys: {without}")?;
    }
    if figures.tables_with_prefixes_only > 0 {
        let prefixes = counted(figures.tables_with_prefixes_only, "table");
        writeln!(
            out,
            "with filters of prefixes alone, which RocksDB asks, but not this: {prefixes}"
        )?;
    }
    if figures.range_deletes > 0 {
        let deletes = counted(figures.range_deletes, "range delete");
        writeln!(out, "{deletes}: lookups do not end at them here, but in RocksDB")?;
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
    print_lookups(figures, out)?;
    if figures.levels.len() > 1 {
        print_levels(&figures.levels, out)?;
    }
    print_others(figures, out)?;
    match &figures.simulated {
        Some(simulated) => print_simulated(figures, simulated, out),
        None if figures.is_database && figures.lookups < 2 => {
            writeln!(out, "nothing is simulated without lookups: --probe FILE has keys, one a line")
        }
        None => Ok(()),
    }
}

/// What lookups did.
fn print_lookups(figures: &Report, out: &mut dyn Write) -> io::Result<()> {
    if figures.lookups > 0 {
        let (lookups, found) = (counted(figures.lookups, "lookup"), figures.found);
        writeln!(
            out,
            "{lookups}, {found} found (deletions, too), data blocks read: {}",
            figures.blocks_read
        )?;
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
    Ok(())
}

/// What other filters of the same rate take.
fn print_others(figures: &Report, out: &mut dyn Write) -> io::Result<()> {
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

/// A line for each level.
fn print_levels(levels: &[Level], out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "level tables       keys bits/key encoding         layout        filters   indexes"
    )?;
    writeln!(out, "  expected    lookups   negative     true +  false +  observed (95 %)")?;
    let dash = || "-".to_string();
    for level in levels {
        let bits = level.bits_per_key.filter(|_| level.filter_bytes > 0);
        let bits = bits.map_or_else(dash, |bits| format!("{bits:.2}"));
        let (encodings, layouts) = (words(&level.encodings), words(&level.layouts));
        let or_dash = |words: String| if words.is_empty() { dash() } else { words };
        let Level { level: number, tables, keys, lookups, negatives, .. } = level;
        let Interval { observed_fpr_low: low, observed_fpr_high: high } = level.interval;
        let observed = percent_between(level.observed_fpr, low.zip(high));
        writeln!(
            out,
            "{number:>5} {tables:>6} {keys:>10} {bits:>8} {:<16} {:<11} {:>9} {:>9} {:>9} \
             {lookups:>10} {negatives:>10} {:>10} {:>8}  {observed}",
            or_dash(encodings),
            or_dash(layouts),
            bytes(level.filter_bytes),
            bytes(level.index_bytes),
            level.expected_fpr.map_or_else(dash, percent),
            level.true_positives,
            level.false_positives
        )?;
    }
    Ok(())
}

/// A line for each setting, with the lines of options that give it.
fn print_simulated(figures: &Report, simulated: &Simulated, out: &mut dyn Write) -> io::Result<()> {
    let (lookups, cache) = (counted(simulated.lookups, "lookup"), bytes(simulated.cache_bytes));
    writeln!(out, "simulated: {lookups} with an LRU block cache of {cache}, after as many before")?;
    if figures.store == "rocksdb" {
        let file = figures.options_file.as_deref();
        let settings = file.unwrap_or("RocksDB's defaults, as there is no file OPTIONS");
        writeln!(out, "settings: {settings}; high_pri_pool_ratio 0.5; lines of options belong to")?;
        writeln!(out, "[TableOptions/BlockBasedTable], unless they name another section")?;
    }
    if let Some(now) = simulated.settings.first().filter(|now| !now.is_cache_full) {
        let held = bytes(now.cached_bytes);
        writeln!(out, "the cache did not fill: it has {held}, and each block is read once")?;
    }
    write!(out, "{:<47} {:>9} {:>9} ", "a lookup reads", "memory", "filters")?;
    writeln!(out, "{:>7} {:>9} {:>9}  of filters, indexes, data", "blocks", "bytes", "time")?;
    for setting in &simulated.settings {
        let size = |number: f64| bytes(number.round() as u64);
        writeln!(
            out,
            "{:<47} {:>9} {:>9} {:>7.3} {:>9} {:>9}  {}, {}, {}",
            setting.setting,
            bytes(setting.memory_bytes),
            bytes(setting.filter_bytes),
            setting.blocks_per_lookup,
            size(setting.bytes_per_lookup),
            Unit::Nanos.print(setting.nanos_per_lookup),
            size(setting.filter_bytes_per_lookup),
            size(setting.index_bytes_per_lookup),
            size(setting.data_bytes_per_lookup)
        )?;
        setting.options.iter().try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    if figures.store == "rocksdb" {
        let at_open = "Settings of cache and pins, filter_policy=nullptr and \
                       optimize_filters_for_hits count when the database is opened, others for \
                       tables written from then on.";
        writeln!(out, "{at_open}")?;
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
