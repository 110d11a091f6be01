//! `siftdb filter stats DIR`: the filters of a database, their counters, and what is wrong.
//!
//! `Db::check_filters` reads every filter, `doctor.rs` makes findings of its report. Each kind of
//! filter of a level has a line. Counters belong to the level and are on its first line. They cover
//! all programs that wrote to the database since the date in the last lines, or with `--probe` the
//! lookups of this command, and with `--probe-ranges` its scans.
//!
//! Every keyspace has a report of its own. Filters are compared with `--bits`, `--encoding` and
//! `--layout`, or else with the saved settings. Memory is compared with `--cache`, which is not
//! saved; its default is that of the library. The keys of `--probe` are looked up in one keyspace.
//!
//! The directory may be one of LevelDB or RocksDB, or a single table of these: `foreign/` has the
//! report about their filters.

use crate::args::{InKeyspace, options, prefix_range, range};
use crate::described::{help, more_help, result};
use crate::failure::{Failure, Outcome};
use crate::filter::doctor::{Finding, findings};
use crate::filter::foreign::asked::Asked;
use crate::filter::foreign::report::Report;
use crate::filter_args::WantedFilter;
use crate::foreign_table;
use crate::json::Interval;
use crate::lines::each_line;
use crate::numbers::{percent, percent_between, size};
use crate::output::{Output, Shown, Text};
use crate::page_args::PageArgs;
use crate::text::{counted, date, write_log_note};
use clap::Args;
use serde_json::{Value, json};
use siftdb::env::DiskEnv;
use siftdb::{
    FilterGroup, FilterReport, Keyspace, LevelStats, Stats as DbStats, WantedFilter as Wanted,
};
use siftdb_cli::experiment::bytes;
use siftdb_foreign::{LevelDb, RocksDb};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

result! {
    /// JSON, one object a line for each keyspace. Counters run since since_unix_seconds, or over
    /// what --probe or --probe-ranges read:
    struct Answer of reported: &Reported<'_>, report: &FilterReport, stats: &DbStats {
        /// its name
        keyspace: String = reported.name.clone();
        /// levels that have tables or were asked:
        levels: Vec<Level> = {
            let of = |(level, groups, counts): &OfLevel| {
                let wanted = report.wanted.get(*level).and_then(Option::as_ref);
                Level::of(counts, *level, groups, wanted)
            };
            levels(report).iter().map(of).collect()
        };
        /// what needs attention: kind, what, and the figures it is about, such as level, tables,
        /// table, offset, filter_bytes, cache_bytes, errors, found, low, few_keys_fpr, wanted_fpr
        findings: Vec<Value> = {
            let all = findings(report, &reported.name);
            all.iter().map(|finding| json!(finding)).collect()
        };
        /// when counting began; 0 if not known
        since_unix_seconds: u64 => stats;
        /// scans, and those that found nothing
        scans, scans_empty: u64 => stats;
        /// lookups and found, those of --probe or the ranges of --probe-ranges; or null
        probe: Option<Lookups> = reported.probed.as_ref().map(Lookups::of);
        /// entries that are only in the log, in no table and no filter
        log_entries: u64 = stats.memtable_entries;
        /// the block cache
        cache_capacity_bytes: u64 => stats;
        /// what of the cache filters may take for good
        pinned_bytes_max: u64 => report;
    }

    struct Lookups of probed: &Probed<'_> {
        lookups, found: u64;
    }

    struct Level of counts: &LevelStats, at: usize, groups: &[FilterGroup], of: Option<&Wanted> {
        /// the level
        level: usize = at;
        /// one for each kind of filter it has:
        filters: Vec<Kind> = groups.iter().map(Kind::of).collect();
        /// what --bits, ... or the settings ask for: encoding, layout, bits_per_key, expected_fpr,
        /// range_bits_per_key; or null
        wanted: Option<WantedKind> = of.map(WantedKind::of);
        /// lookups that asked a filter
        lookups: u64 = asked(counts);
        /// that said no, maybe rightly, maybe wrongly
        negatives, true_positives, false_positives: u64;
        /// maybe where newer versions hide whether rightly; none asked
        unresolved, not_consulted: u64;
        /// not asked because many lookups in a row had found their keys there
        not_paying: u64;
        /// tables that scans entered, and those that a filter excluded
        scan_tables, scan_negatives: u64;
        /// that scans entered since a filter said maybe, rightly and wrongly
        scan_true_positives, scan_false_positives: u64;
        /// the share of tables without a key of the range that pass, or null
        observed_scan_fpr: Option<f64> = counts.observed_scan_fpr();
        /// the rate, or null
        observed_fpr: Option<f64> = counts.observed_fpr();
        #[serde(flatten)] interval: Interval = Interval::of(counts.observed_fpr_interval());
    }

    struct Kind of group: &FilterGroup {
        /// tables, their entries, keys and bytes of filters
        tables, entries, keys, bytes: u64;
        /// bytes of range filters
        range_filter_bytes: u64;
        /// as the tables say; empty without a filter
        policy, encoding, layout: String => group.like;
        /// as configured
        asked_bits_per_key: Option<f64> => group.like;
        /// of the range filter, as configured; null without one
        range_bits_per_key: Option<f64> => group.like;
        /// as they are
        bits_per_key: Option<f64> = group.bits_per_key();
        /// share of absent keys that pass, 0 to 1, or null
        expected_fpr: Option<f64>;
        /// whether lookups can ask it
        is_asked: bool => group.like;
        /// whether it is not the wanted one
        differs: bool => group.like;
        /// tables of which the filter is damaged
        damaged: u64;
    }

    struct WantedKind of wanted: &Wanted {
        encoding, layout: String;
        bits_per_key, expected_fpr, range_bits_per_key: Option<f64>;
    }
}

/// The library's default.
const CACHE_BYTES_DEFAULT: u64 = 64 << 20;

#[derive(Args)]
#[command(after_long_help = help::<Answer>() + &more_help::<Report>())]
pub struct Stats {
    #[command(flatten)]
    place: InKeyspace,
    /// Count lookups of the keys in this file, one a line, instead; `-` is standard input
    #[arg(long, visible_alias = "queries", value_name = "FILE")]
    probe: Option<PathBuf>,
    /// Count scans of the ranges in this file instead, one a line: the first key, a tab and the key
    /// before which to end, or a prefix alone; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    probe_ranges: Option<PathBuf>,
    #[command(flatten)]
    wanted: WantedFilter,
    /// The block cache that programs give the database, such as 64MB [default: 64MiB; for
    /// LevelDB 8MiB and for RocksDB 32MiB are assumed]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<u64>,
    /// Look for tables of a RocksDB database in DIR, too: those of db_paths and cf_paths
    #[arg(long, value_name = "DIR")]
    db_path: Vec<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

/// The lookups of `--probe`, or the scans of `--probe-ranges`.
struct Probed<'a> {
    file: &'a Path,
    /// What was read: "lookup" or "scan".
    what: &'static str,
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
        let env = DiskEnv::new();
        let is_table = foreign_table::is_at(directory);
        let is_rocksdb = RocksDb::is_at(&env, directory);
        if is_table || is_rocksdb || LevelDb::is_at(&env, directory) {
            self.refuse_options_of_databases()?;
            let asked = Asked {
                path: directory,
                table_directories: &self.db_path,
                family: self.place.name.as_deref(),
                probe: self.probe.as_deref(),
                cache_bytes: self.cache,
                page: &self.page,
            };
            return if is_table {
                asked.table(output)
            } else if is_rocksdb {
                asked.rocksdb(output)
            } else {
                asked.leveldb(output)
            };
        }
        if !self.db_path.is_empty() {
            return Err(Failure::usage("--db-path is for databases of RocksDB"));
        }
        if self.page.is_asked() {
            let what = "pages are for databases of other stores; `siftdb report` has one of siftdb";
            return Err(Failure::usage(what));
        }
        let options = options().block_cache_bytes(self.cache.unwrap_or(CACHE_BYTES_DEFAULT));
        let settings = self.wanted.settings_at_all_levels()?;
        let reports = self.place.read_all(options, &settings, |_, keyspaces| {
            // Keys are of one keyspace: `default`, which is the first, or the one that is named.
            let is_probe = self.probe.is_some() || self.probe_ranges.is_some();
            let probed = if is_probe { 1 } else { keyspaces.len() };
            keyspaces.iter().take(probed).map(|one| self.report(one)).collect::<Outcome<Vec<_>>>()
        })?;
        let mut rows = output.folded_rows();
        for (place, reported) in reports.iter().enumerate() {
            let answer = Answer::of(reported, &reported.report, &reported.report.stats);
            rows.row(&answer, |out| {
                if reports.len() > 1 {
                    let blank = if place > 0 { "\n" } else { "" };
                    writeln!(out, "{blank}keyspace {:?}:", reported.name)?;
                }
                print(reported, out)
            })?;
        }
        rows.end()
    }

    /// Refuses options that say nothing about files of other stores.
    fn refuse_options_of_databases(&self) -> Outcome {
        let ranges = self.probe_ranges.as_ref().map(|_| "--probe-ranges");
        match self.wanted.given().or(ranges) {
            None => Ok(()),
            Some(option) => {
                let what = format!("{option} is for databases of siftdb, not for other stores");
                Err(Failure::usage(what))
            }
        }
    }

    fn report(&self, keyspace: &Keyspace) -> Outcome<Reported<'_>> {
        let before = keyspace.stats();
        let probed = match (&self.probe, &self.probe_ranges) {
            (Some(file), _) => Some(probe(keyspace, file)?),
            (_, Some(file)) => Some(probe_ranges(keyspace, file)?),
            _ => None,
        };
        let report = keyspace.check_filters()?;
        let report = if probed.is_some() { report.since(&before) } else { report };
        Ok(Reported { name: keyspace.name().into(), report, probed })
    }
}

fn probe<'a>(keyspace: &Keyspace, file: &'a Path) -> Outcome<Probed<'a>> {
    let mut probed = Probed { file, what: "lookup", lookups: 0, found: 0 };
    each_line(file, |_, line| {
        probed.found += u64::from(keyspace.get(line)?.is_some());
        probed.lookups += 1;
        Ok(())
    })?;
    Ok(probed)
}

fn probe_ranges<'a>(keyspace: &Keyspace, file: &'a Path) -> Outcome<Probed<'a>> {
    let mut probed = Probed { file, what: "scan", lookups: 0, found: 0 };
    each_line(file, |number, line| {
        let range = match line.iter().position(|byte| *byte == b'\t') {
            Some(tab) => range(Some(line[..tab].to_vec()), Some(line[tab + 1..].to_vec()))
                .map_err(|failure| failure.at_line(file, number, None))?,
            None => prefix_range(line.clone()),
        };
        probed.found += u64::from(keyspace.range(range).next().transpose()?.is_some());
        probed.lookups += 1;
        Ok(())
    })?;
    Ok(probed)
}

/// A level, its kinds of filters and its counters.
type OfLevel = (usize, Vec<FilterGroup>, LevelStats);

/// The levels to print: those that have tables or were asked.
fn levels(report: &FilterReport) -> Vec<OfLevel> {
    let levels = report.stats.levels.iter().enumerate();
    let levels = levels.map(|(level, counts)| (level, report.groups(level), counts.clone()));
    levels.filter(|(_, groups, counts)| !groups.is_empty() || asked(counts) > 0).collect()
}

/// Lookups that asked a filter.
fn asked(counts: &LevelStats) -> u64 {
    counts.negatives + counts.true_positives + counts.false_positives + counts.unresolved
}

/// What scans did, by level.
fn print_scans(report: &FilterReport, out: &mut Text<'_>) -> io::Result<()> {
    let stats = &report.stats;
    let levels = || stats.levels.iter().enumerate().filter(|(_, counts)| has_scans(counts));
    if levels().next().is_none() {
        return Ok(());
    }
    let scans = counted(stats.scans, "scan");
    writeln!(out, "{scans}, {} of them without an entry", stats.scans_empty)?;
    writeln!(out, "level    entered    skipped     true +    false +  observed")?;
    for (level, counts) in levels() {
        let observed = counts.observed_scan_fpr().map_or_else(|| "-".into(), percent);
        writeln!(
            out,
            "{level:>5} {:>10} {:>10} {:>10} {:>10}  {observed}",
            counts.scan_tables,
            counts.scan_negatives,
            counts.scan_true_positives,
            counts.scan_false_positives
        )?;
    }
    Ok(())
}

fn has_scans(counts: &LevelStats) -> bool {
    counts.scan_tables + counts.scan_negatives > 0
}

fn print(reported: &Reported<'_>, out: &mut Text<'_>) -> io::Result<()> {
    let Reported { name, report, probed } = reported;
    write!(out, "level tables       keys bits/key encoding         layout            ")?;
    write!(out, " filters    ranges  expected    lookups   negative     true +  false +  ")?;
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
            writeln!(out, "{level:>5} {:<90} {}", "     0", bill_of(&counts))?;
        }
    }
    if report.tables.is_empty() {
        writeln!(out, "no tables, so no filters")?;
    }
    print_scans(report, out)?;
    write_log_note(out, report.stats.memtable_entries)?;
    match probed {
        Some(Probed { file, what, lookups, found }) => {
            let (file, made) = (file.display(), counted(*lookups, what));
            let of = if *what == "scan" { "ranges" } else { "keys" };
            writeln!(out, "counted: {made} of {of} of {file}, {found} found")?;
        }
        None if report.stats.since_unix_seconds > 0 => {
            writeln!(out, "counted since {}", date(report.stats.since_unix_seconds))?;
        }
        None => {}
    }
    let findings = findings(report, name);
    match findings.len() {
        0 => writeln!(out, "doctor: nothing to say")?,
        count => writeln!(out, "doctor: {}", counted(count as u64, "finding"))?,
    }
    for Finding { kind, what, .. } in findings {
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
        "{:>6} {:>10} {:>8} {:<16} {:<16} {:>9} {:>9} {:>9}",
        group.tables,
        if group.keys > 0 { group.keys } else { group.entries },
        group.bits_per_key().map_or_else(dash, |bits| format!("{bits:.2}")),
        encoding,
        layout,
        bytes(group.bytes),
        like.range_bits_per_key.map_or_else(dash, |_| bytes(group.range_filter_bytes)),
        group.expected_fpr.map_or_else(dash, percent)
    )
}

/// The part of a line that comes from lookups.
fn bill_of(counts: &LevelStats) -> String {
    let observed = percent_between(counts.observed_fpr(), counts.observed_fpr_interval());
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
