//! `siftdb filter advise DIR`: how to use memory for a database.
//!
//! With `--budget`, how to divide memory for filters over the levels. The figures are those of
//! `filter_advice`: for each level the false-positive rate now, with the same bits at all levels,
//! and with the division that has the lowest sum of rates. Half of `--cache` may hold filters.
//!
//! With `--memory`, what of filters, indexes and data that much memory holds, which pages lookups
//! read from the disk then, and which settings would save pages: the figures of `memory_advice`.
//!
//! Nothing is changed; the last lines say which options to set, and whether range filters would
//! pay.

use crate::args::{InKeyspace, options};
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::filter::doctor::{Finding, empty_scans};
use crate::filter_args::ENCODING_DEFAULT;
use crate::memory_args::GivenMemory;
use crate::numbers::{percent, size};
use crate::output::{Output, Shown, Text};
use crate::text::{keyspace_option, write_log_note};
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use siftdb_cli::experiment::bytes;
use siftdb_cli::filter_advice::{self, FilterAdvice, LevelAdvice};
use siftdb_cli::memory_advice::{MemoryAdvice, MemoryChange, MemoryPart, PagesRead};
use std::io::{self, Write};

result! {
    /// JSON fields, with --memory those of `memory`, with --budget those after it. A rate is false
    /// positives among lookups of absent keys, 0 to 1, or null:
    struct Advised {
        /// entries that are only in the log, in no table and no filter
        log_entries: u64;
        /// why range filters would pay, as `siftdb filter stats` finds it, or null
        empty_scans: Option<Value>;
        /// what that memory holds, and what lookups read:
        #[serde(skip_serializing_if = "Option::is_none")] memory: Option<OfMemory>;
        #[serde(flatten)] filters: Option<OfFilters>;
    }

    struct OfMemory of advice: &MemoryAdvice {
        /// the block cache and the system's page cache of the files
        memory_bytes: u64;
        /// the block cache
        cache_bytes: u64;
        /// of filters and indexes, what stays in memory
        top_level_bytes: u64;
        /// filters, indexes and data:
        parts: Vec<Part> = advice.parts.iter().map(Part::of).collect();
        /// pages of 4 KiB that the lookup of an absent key reads from the disk
        pages_absent: f64 = advice.pages.absent;
        /// the same of a present key
        pages_present: f64 = advice.pages.present;
        /// whether filters and indexes fit into the memory; if not, lookups read more than that
        fits: bool = advice.fits();
        /// settings that save pages, each by itself, the best one first:
        changes: Vec<Change> = advice.changes.iter().map(Change::of).collect();
    }

    struct Part of part: &MemoryPart {
        /// filters, indexes or data
        name: &'static str;
        /// in the files
        bytes: u64;
        /// the share of its uses by lookups of present keys that memory answers, 0 to 1
        in_memory: f64;
    }

    struct Change of change: &MemoryChange {
        /// the setting, in Rust
        setting: String;
        pages_absent: f64 = change.pages.absent;
        /// what lookups read then
        pages_present: f64 = change.pages.present;
    }

    struct OfFilters of advice: &FilterAdvice {
        /// memory for all filters
        budget_bytes: u64;
        /// levels that have tables:
        levels: Vec<Level> = advice.levels.iter().map(Level::of).collect();
        fpr_now: Option<f64> = advice.fpr_now();
        fpr_even: f64 = advice.fpr_even();
        /// false positives of a lookup of an absent key, all levels
        fpr_divided: f64 = advice.fpr_divided();
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
#[command(group = ArgGroup::new("what").args(["budget", "memory"]).required(true).multiple(true))]
pub struct Advise {
    #[command(flatten)]
    place: InKeyspace,
    /// Memory for all filters together, such as 64MB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    budget: Option<u64>,
    #[command(flatten)]
    given: GivenMemory,
}

impl Advise {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        self.given.check()?;
        let options = options().block_cache_bytes(self.given.cache);
        let name = self.place.name.as_deref().unwrap_or("default");
        let (filters, memory, log_entries, finding) = self.place.read(options, |_, keyspace| {
            let report = keyspace.filter_report();
            let filters = self.budget.map(|budget| filter_advice::advice(&report, budget));
            let (log_entries, finding) =
                (report.stats.memtable_entries, empty_scans(&report, name));
            Ok((filters, self.given.advice(keyspace), log_entries, finding))
        })?;
        let advised = Advised {
            log_entries,
            empty_scans: finding.as_ref().map(|finding| json!(finding)),
            memory: memory.as_ref().map(OfMemory::of),
            filters: filters.as_ref().map(OfFilters::of),
        };
        output.show(&advised, |out| {
            if let Some(filters) = &filters {
                print(filters, &keyspace_option(name), out)?;
            }
            if let Some(memory) = &memory {
                print_memory(memory, out)?;
            }
            if let Some(Finding { what, .. }) = &finding {
                writeln!(out, "ranges: {what}")?;
            }
            write_log_note(out, log_entries)
        })
    }
}

fn print_memory(advice: &MemoryAdvice, out: &mut Text<'_>) -> io::Result<()> {
    let (memory, cache) = (bytes(advice.memory_bytes), bytes(advice.cache_bytes));
    writeln!(out, "memory {memory}, block cache {cache} of it")?;
    writeln!(out, "what a lookup of a present key uses    in files  in memory")?;
    for part in &advice.parts {
        let (size, share) = (bytes(part.bytes), percent(part.in_memory));
        writeln!(out, "  {:<34}{size:>10}{share:>11}", part.name)?;
    }
    let top_levels = bytes(advice.top_level_bytes);
    writeln!(out, "top levels of filters and indexes, always in memory: {top_levels}")?;
    let read = |pages: &PagesRead| {
        format!("absent {}, present {}", each(pages.absent), each(pages.present))
    };
    writeln!(out, "pages of 4 KiB that a lookup reads, all keys asked equally often:")?;
    writeln!(out, "  {} now", read(&advice.pages))?;
    if !advice.fits() {
        writeln!(out, "  and more: filters and indexes do not fit into this memory")?;
    }
    for MemoryChange { setting, pages } in &advice.changes {
        writeln!(out, "  {} with {setting}", read(pages))?;
    }
    Ok(())
}

/// Prints the advice for a keyspace, which the option `of` names.
fn print(advice: &FilterAdvice, of: &str, out: &mut Text<'_>) -> io::Result<()> {
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
    writeln!(out, "  siftdb filter rebuild DIR{of} --monkey {budget}")
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
