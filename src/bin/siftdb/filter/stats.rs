//! `siftdb filter stats DIR`: the filters of a database, their counters, and what is wrong.
//!
//! `Db::check_filters` reads every filter and makes the findings; this prints them. Each kind of
//! filter of a level has a line. Counters belong to the level and are on its first line. They cover
//! all programs that wrote to the database since the date in the last lines, or with `--probe` the
//! lookups of this command.
//!
//! A database does not store its options. So filters are compared with `--bits`, `--encoding` and
//! `--layout`, and memory with `--cache`. Their defaults are those of the library.

use crate::args::Database;
use crate::failure::Outcome;
use crate::filter_args::WantedFilter;
use crate::json::joined;
use crate::load::{next_line, open_lines};
use crate::numbers::{percent, size};
use crate::output::{Output, Shown, Text};
use crate::text::{counted, date, write_log_note};
use clap::Args;
use serde_json::{Value, json};
use siftdb::experiment::bytes;
use siftdb::{Db, FilterFinding, FilterGroup, FilterReport, LevelStats, Options};
use std::io::Write;
use std::path::{Path, PathBuf};

const JSON: &str = "\
JSON fields. Counters run since since_unix_seconds, or over the lookups of --probe.
  format            1
  levels            levels that have tables or were asked:
    level           the level
    filters         one for each kind of filter it has:
      tables, entries, keys, bytes     tables, their entries, keys and bytes of filters
      policy, encoding, layout         as the tables say; empty without a filter
      asked_bits_per_key, bits_per_key   as configured, and as they are
      expected_fpr                     share of absent keys that pass, 0 to 1, or null
      is_asked                         whether lookups can ask it
      differs                          whether it is not the one that --bits, ... ask for
      damaged                          tables of which the filter is damaged
    wanted          what --bits, ... ask for: encoding, layout, bits_per_key, expected_fpr; or null
    lookups         lookups that asked a filter
    negatives, true_positives, false_positives   that said no, maybe rightly, maybe wrongly
    unresolved, not_consulted   maybe where newer versions hide whether rightly; none asked
    observed_fpr, observed_fpr_low, observed_fpr_high   the rate, its 95 % interval, or null
  findings          what needs attention: kind, what, and the figures it is about, such as
                    level, tables, table, offset, filter_bytes, cache_bytes, errors, found, low,
                    few_keys_fpr, wanted_fpr
  since_unix_seconds   when counting began; 0 if not known
  probe             lookups and found, those of --probe; or null
  log_entries       entries that are only in the log, in no table and no filter
  cache_capacity_bytes, pinned_bytes_max   the cache, and what of it filters may take for good";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Stats {
    #[command(flatten)]
    database: Database,
    /// Count lookups of the keys in this file, one a line, instead; `-` is standard input
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    #[command(flatten)]
    wanted: WantedFilter,
    /// The block cache that programs give the database, such as 64MB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    cache: u64,
}

/// The lookups of `--probe`.
#[derive(Clone, Copy)]
struct Probed {
    lookups: u64,
    found: u64,
}

impl Stats {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let options = self.wanted.set(Options::new().block_cache_bytes(self.cache))?;
        let db = self.database.open_to_read_with(options)?;
        let before = db.stats();
        let probed = self.probe.as_deref().map(|file| probe(&db, file)).transpose()?;
        let report = match probed {
            Some(_) => db.check_filters()?.since(&before),
            None => db.check_filters()?,
        };
        db.close()?;
        output.show(report_json(&report, probed), |out| {
            print(&report, self.probe.as_deref().zip(probed), out)
        })
    }
}

fn probe(db: &Db, file: &Path) -> Outcome<Probed> {
    let (mut lines, _) = open_lines(file)?;
    let (mut line, mut probed) = (Vec::new(), Probed { lookups: 0, found: 0 });
    while next_line(&mut lines, &mut line, file)?.is_some() {
        probed.found += u64::from(db.get(&line)?.is_some());
        probed.lookups += 1;
    }
    Ok(probed)
}

/// The levels to print: those that have tables or were asked.
fn levels(report: &FilterReport) -> Vec<(usize, Vec<FilterGroup>, LevelStats)> {
    let levels = report.stats.levels.iter().enumerate();
    let levels = levels.map(|(level, counts)| (level, report.groups(level), counts.clone()));
    levels.filter(|(_, groups, counts)| !groups.is_empty() || asked(counts) > 0).collect()
}

/// Lookups that asked a filter.
fn asked(counts: &LevelStats) -> u64 {
    counts.negatives + counts.true_positives + counts.false_positives + counts.unresolved
}

fn print(report: &FilterReport, probed: Option<(&Path, Probed)>, out: &mut Text<'_>) -> Outcome {
    write!(out, "level tables       keys bits/key encoding         layout            ")?;
    write!(out, " filters  expected    lookups   negative     true +  false +  ")?;
    writeln!(out, "observed (95 %)")?;
    for (level, groups, counts) in levels(report) {
        for (place, group) in groups.iter().enumerate() {
            write!(out, "{level:>5} {}", kind_of(group))?;
            match place {
                0 => writeln!(out, " {}", bill_of(&counts))?,
                _ => writeln!(out)?,
            }
        }
        if groups.is_empty() {
            writeln!(out, "{level:>5} {:<78} {}", "     0", bill_of(&counts))?;
        }
    }
    if report.tables.is_empty() {
        writeln!(out, "no tables, so no filters")?;
    }
    write_log_note(out, report.stats.memtable_entries)?;
    match probed {
        Some((file, Probed { lookups, found })) => {
            let file = file.display();
            let lookups = counted(lookups, "lookup");
            writeln!(out, "counted: {lookups} of keys of {file}, {found} found")?;
        }
        None if report.stats.since_unix_seconds > 0 => {
            writeln!(out, "counted since {}", date(report.stats.since_unix_seconds))?;
        }
        None => {}
    }
    let findings = report.findings();
    match findings.len() {
        0 => writeln!(out, "doctor: nothing to say")?,
        count => writeln!(out, "doctor: {}", counted(count as u64, "finding"))?,
    }
    for finding in findings {
        writeln!(out, "  {}: {finding}", finding.kind())?;
    }
    Ok(())
}

/// The part of a line that comes from the tables.
fn kind_of(group: &FilterGroup) -> String {
    let dash = || "-".to_string();
    let like = &group.like;
    let encoding = match (like.is_asked, like.encoding.as_str()) {
        (false, "") => "none",
        (false, _) => "not known",
        // A custom policy is called by its name.
        (true, "custom") => &like.policy,
        (true, label) => label,
    };
    let layout = if like.layout.is_empty() { "-" } else { &like.layout };
    format!(
        "{:>6} {:>10} {:>8} {:<16} {:<16} {:>9} {:>9}",
        group.tables,
        if group.keys > 0 { group.keys } else { group.entries },
        group.bits_per_key().map_or_else(dash, |bits| format!("{bits:.2}")),
        encoding,
        layout,
        bytes(group.bytes),
        group.expected_fpr.map_or_else(dash, percent)
    )
}

/// The part of a line that comes from lookups.
fn bill_of(counts: &LevelStats) -> String {
    let observed = match (counts.observed_fpr(), counts.observed_fpr_interval()) {
        (Some(observed), Some((low, high))) => {
            format!("{} ({} to {})", percent(observed), percent(low), percent(high))
        }
        _ => "-".into(),
    };
    format!(
        "{:>10} {:>10} {:>10} {:>8}  {observed}",
        asked(counts),
        counts.negatives,
        counts.true_positives,
        counts.false_positives
    )
}

fn report_json(report: &FilterReport, probed: Option<Probed>) -> Value {
    let levels: Vec<Value> = levels(report)
        .iter()
        .map(|(level, groups, counts)| {
            let interval = counts.observed_fpr_interval();
            json!({
                "level": level,
                "filters": groups.iter().map(group_json).collect::<Vec<_>>(),
                "wanted": report.wanted.get(*level).and_then(Option::as_ref).map(|wanted| json!({
                    "encoding": wanted.encoding,
                    "layout": wanted.layout,
                    "bits_per_key": wanted.bits_per_key,
                    "expected_fpr": wanted.expected_fpr,
                })),
                "lookups": asked(counts),
                "negatives": counts.negatives,
                "true_positives": counts.true_positives,
                "false_positives": counts.false_positives,
                "unresolved": counts.unresolved,
                "not_consulted": counts.not_consulted,
                "observed_fpr": counts.observed_fpr(),
                "observed_fpr_low": interval.map(|(low, _)| low),
                "observed_fpr_high": interval.map(|(_, high)| high),
            })
        })
        .collect();
    let findings: Vec<Value> = report.findings().iter().map(finding_json).collect();
    json!({
        "log_entries": report.stats.memtable_entries,
        "levels": levels,
        "findings": findings,
        "since_unix_seconds": report.stats.since_unix_seconds,
        "probe": probed.map(|Probed { lookups, found }| {
            json!({ "lookups": lookups, "found": found })
        }),
        "cache_capacity_bytes": report.stats.cache_capacity_bytes,
        "pinned_bytes_max": report.pinned_bytes_max,
    })
}

fn finding_json(finding: &FilterFinding) -> Value {
    let figures = match finding {
        FilterFinding::NoFilter { level, tables } => json!({ "level": level, "tables": tables }),
        FilterFinding::UnknownPolicy { level, tables, policy } => {
            json!({ "level": level, "tables": tables, "policy": policy })
        }
        FilterFinding::Budget { filter_bytes, budget_bytes } => json!({
            "filter_bytes": filter_bytes,
            "budget_bytes": budget_bytes,
        }),
        FilterFinding::Weaker { level, tables, expected_fpr, wanted_fpr } => json!({
            "level": level,
            "tables": tables,
            "expected_fpr": expected_fpr,
            "wanted_fpr": wanted_fpr,
        }),
        FilterFinding::AboveExpected { level, observed_fpr, low, expected_fpr } => json!({
            "level": level,
            "observed_fpr": observed_fpr,
            "low": low,
            "expected_fpr": expected_fpr,
        }),
        FilterFinding::ShortHash { level, table, encoding, keys, expected_fpr, few_keys_fpr } => {
            json!({
                "level": level,
                "table": table,
                "encoding": encoding,
                "keys": keys,
                "expected_fpr": expected_fpr,
                "few_keys_fpr": few_keys_fpr,
            })
        }
        FilterFinding::Damaged { level, tables, table, damage, not_consulted } => json!({
            "level": level,
            "tables": tables,
            "table": table,
            "offset": damage.offset,
            "not_consulted": not_consulted,
        }),
        FilterFinding::Unreadable { errors } => json!({ "errors": errors }),
        FilterFinding::LargerThanCache { filter_bytes, cache_bytes } => {
            json!({ "filter_bytes": filter_bytes, "cache_bytes": cache_bytes })
        }
        FilterFinding::LargerThanPinned { filter_bytes, pinned_bytes_max } => {
            json!({ "filter_bytes": filter_bytes, "pinned_bytes_max": pinned_bytes_max })
        }
        FilterFinding::DoesNotPay { level, lookups, found, filter_bytes } => json!({
            "level": level,
            "lookups": lookups,
            "found": found,
            "filter_bytes": filter_bytes,
        }),
        // The enum may get new findings; kind and what describe them.
        _ => json!({}),
    };
    joined([json!({ "kind": finding.kind(), "what": finding.to_string() }), figures])
}

fn group_json(group: &FilterGroup) -> Value {
    json!({
        "tables": group.tables,
        "damaged": group.damaged,
        "entries": group.entries,
        "keys": group.keys,
        "bytes": group.bytes,
        "policy": group.like.policy,
        "encoding": group.like.encoding,
        "layout": group.like.layout,
        "asked_bits_per_key": group.like.asked_bits_per_key,
        "bits_per_key": group.bits_per_key(),
        "expected_fpr": group.expected_fpr,
        "is_asked": group.like.is_asked,
        "differs": group.like.differs,
    })
}
