//! `siftdb filter advise DIR --budget SIZE`: how to divide memory for filters over the levels.
//!
//! The figures are those of `filter_advice`: for each level the false-positive rate now, with the
//! same bits at all levels, and with the division that has the lowest sum of rates. Nothing is
//! changed; the last lines say which options to set, and whether range filters would pay. Half of
//! `--cache` may hold filters.

use crate::args::{InKeyspace, options};
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::filter::doctor::{Finding, empty_scans};
use crate::filter_args::ENCODING_DEFAULT;
use crate::numbers::{percent, size};
use crate::output::{Output, Shown, Text};
use crate::text::write_log_note;
use clap::Args;
use serde_json::{Value, json};
use siftdb_cli::experiment::bytes;
use siftdb_cli::filter_advice::{FilterAdvice, LevelAdvice, advice};
use std::io::{self, Write};

result! {
    /// JSON fields. A rate is false positives among lookups of absent keys, 0 to 1, or null:
    struct Advised of advice: &FilterAdvice, log: u64, finding: &Option<Finding> {
        /// memory for all filters
        budget_bytes: u64;
        /// entries that are only in the log, in no table and no filter
        log_entries: u64 = log;
        /// levels that have tables:
        levels: Vec<Level> = advice.levels.iter().map(Level::of).collect();
        fpr_now: Option<f64> = advice.fpr_now();
        fpr_even: f64 = advice.fpr_even();
        /// false positives of a lookup of an absent key, all levels
        fpr_divided: f64 = advice.fpr_divided();
        /// why range filters would pay, as `siftdb filter stats` finds it, or null
        empty_scans: Option<Value> = finding.as_ref().map(|finding| json!(finding));
    }

    struct Level of advised: &LevelAdvice {
        /// the level
        level: usize;
        /// how many of its tables a lookup searches on average
        tables_per_lookup: f64;
        /// keys in its tables
        keys: u64;
        /// bytes of its filters
        bytes_now: u64;
        /// their rate
        fpr_now: Option<f64>;
        /// bits per key and rate if all levels have the same bits
        bits_even, fpr_even: f64;
        /// bits and rate if bits are divided by level
        bits_divided, fpr_divided: f64;
        /// their bytes
        bytes_divided: u64;
        encoding: &'static str = ENCODING_DEFAULT;
        /// of the advised filters
        layout: String = advised.layout.to_string();
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Advised>())]
pub struct Advise {
    #[command(flatten)]
    place: InKeyspace,
    /// Memory for all filters together, such as 64MB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    budget: u64,
    /// The block cache that programs give the database, such as 64MB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    cache: u64,
}

impl Advise {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let options = options().block_cache_bytes(self.cache);
        let (advice, log_entries, empty_scans) = self.place.read(options, |_, keyspace| {
            let report = keyspace.filter_report();
            let log_entries = report.stats.memtable_entries;
            Ok((advice(&report, self.budget), log_entries, empty_scans(&report)))
        })?;
        output.show(&Advised::of(&advice, log_entries, &empty_scans), |out| {
            print(&advice, out)?;
            if let Some(Finding { what, .. }) = &empty_scans {
                writeln!(out, "ranges: {what}")?;
            }
            write_log_note(out, log_entries)
        })
    }
}

fn print(advice: &FilterAdvice, out: &mut Text<'_>) -> io::Result<()> {
    if advice.levels.is_empty() {
        return writeln!(out, "no tables, so no filters");
    }
    let now: u64 = advice.levels.iter().map(|level| level.bytes_now).sum();
    writeln!(out, "filters {} now, budget {}", bytes(now), bytes(advice.budget_bytes))?;
    writeln!(out, "{:>46}{:>22}{:>22}", "now", "same bits everywhere", "bits by level")?;
    write!(out, "level searched        keys   filters       FPR")?;
    writeln!(out, "{0:>12}{1:>10}{0:>12}{1:>10}  layout", "bits/key", "FPR")?;
    for level in &advice.levels {
        let now = level.fpr_now.map_or_else(|| "-".into(), percent);
        write!(out, "{:>5}{:>9.2}{:>12}", level.level, level.tables_per_lookup, level.keys)?;
        write!(out, "{:>10}{now:>10}", bytes(level.bytes_now))?;
        write!(out, "{:>12.1}{:>10}", level.bits_even, percent(level.fpr_even))?;
        write!(out, "{:>12.1}{:>10}", level.bits_divided, percent(level.fpr_divided))?;
        let layout = if level.bits_divided > 0.0 { level.layout.to_string() } else { "-".into() };
        writeln!(out, "  {layout}")?;
    }
    let now = advice.fpr_now().map_or_else(|| "not known".into(), each);
    writeln!(out, "false positives of a lookup of an absent key, all levels together:")?;
    let (even, divided) = (each(advice.fpr_even()), each(advice.fpr_divided()));
    writeln!(out, "  {now} now, {even} with the same bits everywhere, {divided} by level")?;
    let budget = advice.budget_bytes;
    writeln!(out, "for bits that follow the tree: Options::filter(Filter::monkey({budget}))")?;
    writeln!(out, "for bits that stay (fast-local-bloom):")?;
    for level in &advice.levels {
        writeln!(out, "  .filter_at_level({}, {})", level.level, filter_of(level))?;
    }
    writeln!(out, "tables change when they are compacted, or by Db::rebuild_filters, or now by")?;
    writeln!(out, "  siftdb filter rebuild DIR --monkey {budget}")
}

/// A number for each lookup.
fn each(count: f64) -> String {
    format!("{count:.4}")
}

/// The filter in Rust, bits rounded down so that the budget holds.
fn filter_of(level: &LevelAdvice) -> String {
    if level.bits_divided == 0.0 {
        return "Filter::none()".into();
    }
    let bits = (10.0 * level.bits_divided).floor() / 10.0;
    format!("Filter::bloom({bits:?}).layout(FilterLayout::{:?})", level.layout)
}
