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
use crate::described::{Described, Field, help, result};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries, date, write_log_note};
use clap::Args;
use serde::Serialize;
use siftdb::{Db, Error, Follower, Keyspace, LevelStats, Stats as Figures};
use siftdb_cli::experiment::bytes;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

result! {
    /// JSON fields; with --watch one object a line, with the counters that were saved when the
    /// command began. Counters run since since_unix_seconds, over all programs that wrote;
    /// read-only commands, such as `siftdb get`, count nothing. With --keyspace they are those of
    /// one keyspace: what is counted once for a database, such as batches and its log, is 0 then:
    struct Shot {
        /// of a database, the same fields of each keyspace
        #[serde(skip_serializing_if = "Option::is_none")] keyspaces: Option<Vec<Counters>>;
        #[serde(flatten)] counters: Counters;
    }

    struct Counters of stats: &Figures, of: Option<&OfKeyspace> {
        /// name of the keyspace; null for the database
        keyspace: Option<String> = of.map(|(name, ..)| name.clone());
        /// its number
        number: Option<u32> = of.map(|(_, number, _)| *number);
        #[serde(flatten)] figures: OfDatabase = OfDatabase::of(stats);
        /// kinds of calls that were timed, by programs that switch that on:
        latencies: Vec<Latency> = {
            let calls = Figures::TIMED_CALLS.into_iter();
            calls.filter_map(|call| latency(stats, call)).collect()
        };
        /// the levels, level 0 first:
        levels: Vec<Level> = stats.levels.iter().map(Level::of).collect();
        /// the same of all levels together
        total: Level = Level::of(&stats.total());
    }

    struct Latency {
        /// get, multi_get, seek, write or sync
        call: &'static str;
        /// how many, and how long they took in the mean
        calls, mean_nanos: u64;
        /// half of them, 99 and 99.9 %, took at most so long
        p50_nanos, p99_nanos, p999_nanos: Option<u64>;
    }

    struct Level of level: &LevelStats {
        #[serde(flatten)] figures: OfLevel = OfLevel::of(level);
        /// false-positive rate to expect, 0 to 1
        expected_fpr: f64;
        /// false positives among lookups of keys that tables do not have, or null
        observed_fpr: Option<f64> = level.observed_fpr();
        /// the same among scans that asked tables without any entry of their range
        observed_scan_fpr: Option<f64> = level.observed_scan_fpr();
    }
}

/// Declares the figures of a report, which the engine names and documents.
macro_rules! figures {
    ($name:ident of $report:ty) => {
        #[derive(Clone, Debug, PartialEq, Serialize)]
        struct $name(BTreeMap<&'static str, Option<u64>>);

        impl $name {
            fn of(report: &$report) -> Self {
                $name(report.figures().map(|(name, _, value)| (name, value)).collect())
            }
        }

        impl Described for $name {
            fn fields() -> Vec<Field> {
                let field = |(name, about, _)| Field {
                    names: vec![name],
                    about: vec![about],
                    inner: Vec::new(),
                };
                <$report>::default().figures().map(field).collect()
            }
        }
    };
}
figures!(OfDatabase of Figures);
figures!(OfLevel of LevelStats);

#[derive(Args)]
#[command(after_long_help = help::<Shot>())]
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
            return output.show_whole(&moment.shot(), |out| out.write_all(text.as_bytes()));
        }
        output.show(&moment.shot(), |out| moment.write(out))
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
            Failure::usage(format!("--watch {seconds}: a number of seconds above 0, below 1e19"))
        })?;
        let mut follower = self.follow()?;
        let mut rows = output.folded_rows();
        loop {
            let db = follower.moment();
            let moment = self.moment(&db, &self.place.keyspaces(&db, &unnamed())?);
            rows.row(&moment.shot(), |out| moment.write(out).and_then(|()| writeln!(out)))?;
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
        let opened = options().open_follower(directory);
        opened.map_err(|error| Failure::opening(error, directory, None))
    }
}

impl Moment {
    fn shot(&self) -> Shot {
        let of = |one: &OfKeyspace| Counters::of(&one.2, Some(one));
        match self.keyspaces.first().filter(|_| self.is_one) {
            Some(one) => Shot { keyspaces: None, counters: of(one) },
            None => Shot {
                keyspaces: Some(self.keyspaces.iter().map(of).collect()),
                counters: Counters::of(&self.stats, None),
            },
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

/// The calls of one kind, if any was timed.
fn latency(stats: &Figures, call: &'static str) -> Option<Latency> {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mean_nanos = nanos(stats.mean_latency(call)?);
    let [p50_nanos, p99_nanos, p999_nanos] =
        [0.5, 0.99, 0.999].map(|share| stats.latency(call, share).map(nanos));
    let calls = stats.timed_calls(call);
    Some(Latency { call, calls, mean_nanos, p50_nanos, p99_nanos, p999_nanos })
}
