//! `siftdb filter stats DIR`: the filters of a database, their counters, and what is wrong.
//!
//! `Db::check_filters` reads every filter and makes the findings; this prints them. Each kind of
//! filter of a level has a line. Counters belong to the level and are on its first line. They cover
//! all programs that wrote to the database since the date in the last lines, or with `--probe` the
//! lookups of this command.
//!
//! Every keyspace has a report of its own. Filters are compared with `--bits`, `--encoding` and
//! `--layout`, or else with the saved settings. Memory is compared with `--cache`, which is not
//! saved; its default is that of the library. The keys of `--probe` are looked up in one keyspace.
//!
//! The directory may be one of LevelDB, or a single table of LevelDB or RocksDB: `foreign.rs`
//! prints what their filters are.

use crate::args::{InKeyspace, options};
use crate::failure::{Failure, Outcome};
use crate::filter::foreign;
use crate::filter_args::WantedFilter;
use crate::foreign_table;
use crate::json::{fields, joined, list};
use crate::lines::{next_line, open_lines};
use crate::numbers::{percent, size};
use crate::output::{Output, Shown, Text};
use crate::text::{counted, date, write_log_note};
use clap::Args;
use serde_json::{Value, json};
use siftdb::env::DiskEnv;
use siftdb::foreign::LevelDb;
use siftdb::{FilterFinding, FilterGroup, FilterReport, FindingFigure, Keyspace, LevelStats};
use siftdb_cli::experiment::bytes;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const JSON: &str = "\
JSON, one object a line for each keyspace. Counters run since since_unix_seconds, or over the
lookups of --probe.
  format            1
  keyspace          its name
  levels            levels that have tables or were asked:
    level           the level
    filters         one for each kind of filter it has:
      tables, entries, keys, bytes     tables, their entries, keys and bytes of filters
      policy, encoding, layout         as the tables say; empty without a filter
      asked_bits_per_key, bits_per_key   as configured, and as they are
      expected_fpr                     share of absent keys that pass, 0 to 1, or null
      is_asked                         whether lookups can ask it
      differs                          whether it is not the wanted one
      damaged                          tables of which the filter is damaged
    wanted          what --bits, ... or the settings ask for: encoding, layout, bits_per_key,
                    expected_fpr; or null
    lookups         lookups that asked a filter
    negatives, true_positives, false_positives   that said no, maybe rightly, maybe wrongly
    unresolved, not_consulted   maybe where newer versions hide whether rightly; none asked
    not_paying      not asked because many lookups in a row had found their keys there
    observed_fpr, observed_fpr_low, observed_fpr_high   the rate, its 95 % interval, or null
  findings          what needs attention: kind, what, and the figures it is about, such as
                    level, tables, table, offset, filter_bytes, cache_bytes, errors, found, low,
                    few_keys_fpr, wanted_fpr
  since_unix_seconds   when counting began; 0 if not known
  probe             lookups and found, those of --probe; or null
  log_entries       entries that are only in the log, in no table and no filter
  cache_capacity_bytes, pinned_bytes_max   the cache, and what of it filters may take for good
Of a LevelDB database, or of a table of LevelDB or RocksDB, one object:
  format, store     1, leveldb or rocksdb
  tables, tables_without_filter, table_bytes, data_blocks   its tables
  entries, keys, key_bytes   in tables: all versions and deletions, and keys by table
  policies, encodings, layouts, partitions, filter_bytes, filter_bits, probes, window_bytes,
  bits_per_key      its filters
  expected_fpr, observed_fpr, observed_fpr_low, observed_fpr_high   absent keys that pass, or null
  lookups, found, negatives, true_positives, false_positives, blocks_read   of --probe
  same_rate         what takes how much for that rate: encoding, bits_per_key, filter_bytes
  in_partitions     the filters in partitions: partition_bytes, partitions, index_bytes; or null";

/// The library's default.
const CACHE_BYTES_DEFAULT: u64 = 64 << 20;

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Stats {
    #[command(flatten)]
    place: InKeyspace,
    /// Count lookups of the keys in this file, one a line, instead; `-` is standard input
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    #[command(flatten)]
    wanted: WantedFilter,
    /// The block cache that programs give the database, such as 64MB [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<u64>,
}

/// The lookups of `--probe`: the keys of a file.
struct Probed<'a> {
    file: &'a Path,
    lookups: u64,
    found: u64,
}

/// The report of a keyspace, by name.
struct Reported<'a> {
    name: String,
    report: FilterReport,
    probed: Option<Probed<'a>>,
}

impl Stats {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let directory = &self.place.database.directory;
        if LevelDb::is_at(&DiskEnv::new(), directory) {
            self.refuse_options_of_databases()?;
            return foreign::database(directory, self.probe.as_deref(), output);
        }
        if foreign_table::is_at(directory) {
            self.refuse_options_of_databases()?;
            return foreign::table(directory, self.probe.as_deref(), output);
        }
        let options = options().block_cache_bytes(self.cache.unwrap_or(CACHE_BYTES_DEFAULT));
        let settings = self.wanted.settings()?;
        let reports = self.place.read_all(options, &settings, |_, keyspaces| {
            // Keys are of one keyspace: `default`, which is the first, or the one that is named.
            let probed = if self.probe.is_some() { 1 } else { keyspaces.len() };
            keyspaces.iter().take(probed).map(|one| self.report(one)).collect::<Outcome<Vec<_>>>()
        })?;
        let mut rows = output.folded_rows();
        for (place, reported) in reports.iter().enumerate() {
            let json = || report_json(reported);
            rows.row(json, |out| {
                if reports.len() > 1 {
                    let blank = if place > 0 { "\n" } else { "" };
                    writeln!(out, "{blank}keyspace {:?}:", reported.name)?;
                }
                print(&reported.report, reported.probed.as_ref(), out)
            })?;
        }
        rows.end()
    }

    /// Refuses options that say nothing about files of other stores.
    fn refuse_options_of_databases(&self) -> Outcome {
        let keyspace = self.place.name.as_ref().map(|_| "--keyspace");
        let cache = self.cache.map(|_| "--cache");
        match keyspace.or(self.wanted.given()).or(cache) {
            None => Ok(()),
            Some(option) => {
                let what = format!("{option} is for databases of siftdb, not for other stores");
                Err(Failure::usage(what))
            }
        }
    }

    fn report(&self, keyspace: &Keyspace) -> Outcome<Reported<'_>> {
        let before = keyspace.stats();
        let probed = self.probe.as_deref().map(|file| probe(keyspace, file)).transpose()?;
        let report = keyspace.check_filters()?;
        let report = if probed.is_some() { report.since(&before) } else { report };
        Ok(Reported { name: keyspace.name().into(), report, probed })
    }
}

fn probe<'a>(keyspace: &Keyspace, file: &'a Path) -> Outcome<Probed<'a>> {
    let (mut lines, _) = open_lines(file)?;
    let (mut line, mut probed) = (Vec::new(), Probed { file, lookups: 0, found: 0 });
    while next_line(&mut lines, &mut line, file)?.is_some() {
        probed.found += u64::from(keyspace.get(&line)?.is_some());
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

fn print(report: &FilterReport, probed: Option<&Probed<'_>>, out: &mut Text<'_>) -> io::Result<()> {
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
        Some(Probed { file, lookups, found }) => {
            let (file, lookups) = (file.display(), counted(*lookups, "lookup"));
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
    for FilterFinding { kind, what, .. } in findings {
        writeln!(out, "  {kind}: {what}")?;
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
    let not_paying = match counts.not_paying {
        0 => String::new(),
        lookups => format!("; not asked after many hits: {lookups}"),
    };
    format!(
        "{:>10} {:>10} {:>10} {:>8}  {observed}{not_paying}",
        asked(counts),
        counts.negatives,
        counts.true_positives,
        counts.false_positives
    )
}

fn report_json(Reported { name, report, probed }: &Reported<'_>) -> Value {
    let level_json = |(level, groups, counts): &(usize, Vec<FilterGroup>, LevelStats)| {
        let interval = counts.observed_fpr_interval();
        let wanted = report.wanted.get(*level).and_then(Option::as_ref);
        joined([
            fields!(counts;
                negatives, true_positives, false_positives, unresolved, not_consulted, not_paying),
            json!({
                "level": level,
                "filters": list(groups, group_json),
                "wanted": wanted.map(|wanted| {
                    fields!(wanted; encoding, layout, bits_per_key, expected_fpr)
                }),
                "lookups": asked(counts),
                "observed_fpr": counts.observed_fpr(),
                "observed_fpr_low": interval.map(|(low, _)| low),
                "observed_fpr_high": interval.map(|(_, high)| high),
            }),
        ])
    };
    json!({
        "keyspace": name,
        "log_entries": report.stats.memtable_entries,
        "levels": list(&levels(report), level_json),
        "findings": list(&report.findings(), finding_json),
        "since_unix_seconds": report.stats.since_unix_seconds,
        "probe": probed.as_ref().map(|probed| fields!(probed; lookups, found)),
        "cache_capacity_bytes": report.stats.cache_capacity_bytes,
        "pinned_bytes_max": report.pinned_bytes_max,
    })
}

fn finding_json(finding: &FilterFinding) -> Value {
    let fields = fields!(finding; kind, what);
    finding.figures.iter().fold(fields, |object, (name, figure)| {
        let field = match figure {
            FindingFigure::Count(count) => json!({ *name: count }),
            FindingFigure::Rate(rate) => json!({ *name: rate }),
            FindingFigure::Name(text) => json!({ *name: text }),
        };
        joined([object, field])
    })
}

fn group_json(group: &FilterGroup) -> Value {
    joined([
        fields!(group; tables, damaged, entries, keys, bytes, expected_fpr),
        fields!(group.like; policy, encoding, layout, asked_bits_per_key, is_asked, differs),
        json!({ "bits_per_key": group.bits_per_key() }),
    ])
}
