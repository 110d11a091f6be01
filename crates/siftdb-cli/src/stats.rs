//! `siftdb stats DIR`: the contents and the counters of a database.
//!
//! Counters are stored in the directory. They cover all programs that wrote to the database since
//! the date in the last lines; read-only commands count nothing. The text is the library's
//! `Display`, and a line for each keyspace if there are several. The JSON has every counter under
//! its name in `siftdb::Stats`, of the database and of each keyspace.
//!
//! `--watch` follows the database, whether a program has it open or not. Each moment is a block of
//! text, or a JSON object in a line.

use crate::args::{InKeyspace, options, unnamed};
use crate::failure::{Failure, Outcome};
use crate::json::{fields, joined, list};
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries, date, write_log_note};
use clap::Args;
use serde_json::{Value, json};
use siftdb::{Db, Error, Follower, Keyspace, LevelStats, Stats as Figures};
use siftdb_cli::experiment::bytes;
use std::io::{ErrorKind, Write};
use std::time::Duration;

const JSON: &str = "\
JSON fields; with --watch one object a line, with the counters that were saved when the command
began. Counters run since since_unix_seconds, over all programs that wrote; read-only commands,
such as `siftdb get`, count nothing. With --keyspace they are those of one keyspace: what is
counted once for a database, such as batches and its log, is 0 then.
  format                  1
  keyspace, number        name and number of the keyspace; null for the database
  keyspaces               of a database, the same fields of each keyspace
  gets, gets_found        point lookups, and those that found a value
  scans                   iterators that were asked for an entry
  memtable_hits           point lookups that a memtable answered
  memtable_negatives      memtables skipped by their filter
  memtable_bytes          bytes in memtables now
  memtable_entries        entries in memtables now: of a closed database, those only in the log
  batches, entries, entry_bytes   batches written, their entries, bytes of keys and values
  write_groups            write groups
  wal_bytes, wal_syncs    bytes appended to write-ahead logs, and their syncs
  log_switches, log_switch_nanos   logs begun while writers waited, and how long they did
  flushes, flush_bytes    memtables flushed, and the bytes of their tables
  ingests, entries_ingested, ingest_bytes   bulk loads, their entries and bytes of their tables
  compactions             compactions that rewrote tables
  compaction_bytes_read, compaction_bytes_written, compaction_entries_dropped
  entries_expired         expired entries that jobs made tombstones of, or dropped
  entries_filtered        entries that compaction filters removed or replaced
  compactions_refused     compactions whose tables would break the order of a level
  trivial_moves           tables moved down without being rewritten
  level0_slowdowns, level0_slowdown_nanos   writes slowed down since level 0 grows
  level0_stalls, level0_stall_nanos         writes stopped since level 0 is full
  memtable_stalls, memtable_stall_nanos     writes stopped since memtables wait for their flush
  filter_errors           filters that could not be used
  cache_capacity_bytes, cache_bytes   block cache: capacity and use
  cache_uncached, cache_rejected   blocks served without being kept
  pinned_bytes            filters and indexes that live in their tables
  construction_bytes      filters that are being built
  evicted_bytes_in_use    evicted bytes that a value or iterator still holds
  snapshots               snapshots alive, those of transactions included
  oldest_snapshot_millis  age of the oldest one; null without one
  obsolete_tables_in_use, obsolete_bytes_in_use   replaced tables that older reads still need
  transactions_committed, transaction_conflicts   transactions committed, and refused
  since_unix_seconds      when counting began; 0 if not known
  latencies               kinds of calls that were timed, by programs that switch that on:
    call                  get, multi_get, seek, write or sync
    calls, mean_nanos     how many, and how long they took in the mean
    p50_nanos, p99_nanos, p999_nanos   half of them, 99 and 99.9 %, took at most so long
  levels, total           for each level, level 0 first, and for all together:
    tables, bytes, entries, filter_bytes   tables, their bytes, entries and bytes of filters
    expected_fpr          false-positive rate to expect, 0 to 1
    observed_fpr          false positives among lookups of keys that tables do not have, or null
    negatives             filters that said no
    true_positives, false_positives   filters that said maybe: rightly, wrongly
    unresolved            filters that said maybe where newer versions hide whether rightly
    not_consulted         tables searched without asking a filter
    not_paying            tables searched without their filter, since many lookups in a row had hit
    bytes_avoided         data block bytes not read since filters said no, an estimate
    index_seeks           data indexes searched
    data_blocks_cached, data_blocks_read, data_bytes_read
    filter_blocks_cached, filter_blocks_read, filter_bytes_read
    index_blocks_read, index_bytes_read
    prefix_negatives, prefix_positives   filters that lookups asked for a prefix: no, maybe
    scan_negatives, scan_positives, scan_tables   filters that scans asked for a prefix: no, maybe;
                          tables that scans entered
    scan_bytes_avoided    data block bytes that scans did not read since filters said no
    scan_data_blocks_cached, scan_data_blocks_read, scan_data_bytes_read
    scan_filter_blocks_cached, scan_filter_blocks_read, scan_filter_bytes_read
    scan_index_blocks_read, scan_index_bytes_read   what scans read";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Stats {
    #[command(flatten)]
    place: InKeyspace,
    /// Print them again every SECONDS [default: 1], until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    watch: Option<f64>,
    /// Print them as OpenMetrics text, which Prometheus reads
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    openmetrics: bool,
}

/// A keyspace: its name, its number, and what it counted and holds.
type OfKeyspace = (String, u32, Figures);

/// The report of one moment.
struct Moment {
    stats: Figures,
    keyspaces: Vec<OfKeyspace>,
    /// Only one keyspace is printed.
    is_one: bool,
}

impl Stats {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if let Some(seconds) = self.watch {
            return self.watch(seconds, output);
        }
        let read = |db: &Db, keyspaces: &[Keyspace]| Ok(self.moment(db, keyspaces));
        let moment = self.place.read_all(options(), &unnamed(), read)?;
        if self.openmetrics {
            let text = moment.shown().to_openmetrics();
            return output.show_whole(moment.json(), |out| out.write_all(text.as_bytes()));
        }
        output.show(moment.json(), |out| moment.write(out))
    }

    fn moment(&self, db: &Db, keyspaces: &[Keyspace]) -> Moment {
        let of = |one: &Keyspace| (one.name().to_string(), one.number(), one.stats());
        let keyspaces = keyspaces.iter().map(of).collect();
        Moment { stats: db.stats(), keyspaces, is_one: self.place.name.is_some() }
    }

    /// Prints moment after moment, until the output is closed or the process ends.
    fn watch(&self, seconds: f64, output: Output) -> Outcome<Shown> {
        let wait = Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero());
        let wait = wait.ok_or_else(|| {
            Failure::usage(format!("--watch {seconds}: a number of seconds above 0"))
        })?;
        let mut follower = self.follow()?;
        let mut rows = output.folded_rows();
        loop {
            let db = follower.moment();
            let moment = self.moment(&db, &self.place.keyspaces(&db, &unnamed())?);
            rows.row(|| moment.json(), |out| moment.write(out).and_then(|()| writeln!(out)))?;
            rows.flush()?;
            std::thread::sleep(wait);
            match follower.refresh() {
                // The database was repaired, or is another one: it is still the one of this path.
                Err(Error::HistoryChanged { .. }) => follower = self.follow()?,
                refreshed => drop(refreshed?),
            }
        }
    }

    fn follow(&self) -> Outcome<Follower> {
        let directory = &self.place.database.directory;
        match options().open_follower(directory) {
            Err(Error::Io { path, source, .. })
                if path == *directory && source.kind() == ErrorKind::NotFound =>
            {
                Err(Failure::no_database(&path, None))
            }
            opened => Ok(opened?),
        }
    }
}

impl Moment {
    fn json(&self) -> Value {
        match self.keyspaces.first().filter(|_| self.is_one) {
            Some(one) => keyspace_json(one),
            None => joined([
                json!({ "keyspace": null, "number": null }),
                stats_json(&self.stats),
                json!({ "keyspaces": list(&self.keyspaces, keyspace_json) }),
            ]),
        }
    }

    /// What is printed: of the one keyspace, or of the database.
    fn shown(&self) -> &Figures {
        let one = self.keyspaces.first().filter(|_| self.is_one);
        one.map_or(&self.stats, |(_, _, stats)| stats)
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let stats = self.shown();
        writeln!(out, "{stats}")?;
        if self.keyspaces.len() > 1 {
            self.keyspaces.iter().try_for_each(|one| write_keyspace(one, out))?;
        }
        let since = match stats.since_unix_seconds {
            0 => String::new(),
            seconds => format!(" since {}", date(seconds)),
        };
        writeln!(out, "counted{since}, by programs that write;")?;
        writeln!(out, "read-only commands, such as get and scan, count nothing")?;
        write_log_note(out, stats.memtable_entries)
    }
}

/// Prints a keyspace in a line; `--keyspace` prints the rest.
fn write_keyspace((name, _, stats): &OfKeyspace, out: &mut dyn Write) -> std::io::Result<()> {
    let total = stats.total();
    let (tables, entries) = (counted(total.tables, "table"), counted_entries(total.entries));
    let (size, filters) = (bytes(total.bytes), bytes(total.filter_bytes));
    let (lookups, negatives) = (counted(stats.gets, "lookup"), total.negatives);
    write!(out, "keyspace {name:?}: {tables}, {entries}, {size}, filters {filters}; ")?;
    writeln!(out, "{lookups}, filters said no {negatives} times")
}

fn keyspace_json((name, number, stats): &OfKeyspace) -> Value {
    joined([json!({ "keyspace": name, "number": number }), stats_json(stats)])
}

fn stats_json(stats: &Figures) -> Value {
    let counters = fields!(stats;
        gets, gets_found, memtable_hits, memtable_negatives, memtable_bytes, memtable_entries,
        scans, batches, entries, entry_bytes, write_groups, wal_bytes, wal_syncs, flushes,
        flush_bytes, ingests, entries_ingested, ingest_bytes, compactions, compaction_bytes_read,
        compaction_bytes_written, compaction_entries_dropped, entries_expired, entries_filtered,
        compactions_refused, trivial_moves, level0_slowdowns, level0_slowdown_nanos, level0_stalls,
        level0_stall_nanos, memtable_stalls, memtable_stall_nanos, log_switches,
        log_switch_nanos, filter_errors,
        cache_capacity_bytes, cache_bytes, cache_uncached, cache_rejected,
        pinned_bytes, construction_bytes, evicted_bytes_in_use, snapshots,
        oldest_snapshot_millis, obsolete_tables_in_use, obsolete_bytes_in_use,
        transactions_committed, transaction_conflicts, since_unix_seconds,
    );
    let levels = list(&stats.levels, level_json);
    let latencies = Figures::TIMED_CALLS.into_iter().filter_map(|call| latency_json(stats, call));
    joined([
        counters,
        json!({ "latencies": latencies.collect::<Vec<_>>() }),
        json!({ "levels": levels, "total": level_json(&stats.total()) }),
    ])
}

/// The calls of one kind, if any was timed.
fn latency_json(stats: &Figures, call: &str) -> Option<Value> {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mean = nanos(stats.mean_latency(call)?);
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| stats.latency(call, share).map(nanos));
    Some(json!({
        "call": call, "calls": stats.timed_calls(call), "mean_nanos": mean,
        "p50_nanos": p50, "p99_nanos": p99, "p999_nanos": p999,
    }))
}

fn level_json(level: &LevelStats) -> Value {
    let counters = fields!(level;
        tables, bytes, entries, filter_bytes, expected_fpr, negatives, true_positives,
        false_positives, unresolved, not_consulted, not_paying, bytes_avoided, index_seeks,
        data_blocks_cached, data_blocks_read, data_bytes_read, filter_blocks_cached,
        filter_blocks_read, filter_bytes_read, index_blocks_read, index_bytes_read,
        prefix_negatives, prefix_positives, scan_negatives, scan_positives, scan_tables,
        scan_bytes_avoided, scan_data_blocks_cached, scan_data_blocks_read, scan_data_bytes_read,
        scan_filter_blocks_cached, scan_filter_blocks_read, scan_filter_bytes_read,
        scan_index_blocks_read, scan_index_bytes_read,
    );
    joined([counters, json!({ "observed_fpr": level.observed_fpr() })])
}
