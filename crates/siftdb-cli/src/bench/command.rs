//! `siftdb bench [WORKLOAD]...`: runs workloads in every cell of a matrix, round by round.

use crate::bars::Bar;
use crate::bench::args::{BenchArgs, Filters};
use crate::bench::compare::Compare;
use crate::bench::databases::{CellSettings, Databases, failure_of};
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::interrupt::wait_if_interrupted;
use crate::json::What;
use crate::output::{Output, Shown, Text};
use crate::page_args::PageJson;
use crate::text::shell_word;
use crate::whole_file::{check_file, replace};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use siftdb_cli::experiment::bench::{
    Cell, CoresUsed, Data, KeyShape, Machine, Progress, Run, Settings, SiftdbStore, Store,
    WORKLOADS, Watch, Workload, cells, csv, figures, run, warning_of_others, workload,
};
use siftdb_cli::experiment::{Page, make_cold};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A cold run ends after this time, the dropping of caches included.
const COLD: Duration = Duration::from_secs(5);

result! {
    /// JSON fields. With --csv FILE the runs are also a table: a line for each entry of `kinds`,
    /// under the same names, with `kind_operations` for the operations of the kind, and a column
    /// for each of `settings`. Times are nanoseconds (_nanos) or seconds:
    struct Benched of args: &BenchArgs, answer: &Answer<'_>, warned: &[String], figures: &Page {
        /// the version of the command
        siftdb: &'static str = env!("CARGO_PKG_VERSION");
        /// how many, of a database or file too
        keys: u64 = answer.keys;
        seed, value_bytes, batch: u64;
        rounds: u32;
        key_shape: KeyShape;
        distribution: String = args.distribution.to_string();
        hit_ratio: f64;
        /// as given
        sync, cold: bool;
        /// operations a second, or null
        rate: Option<u64>;
        /// processor, cores, governor, memory_bytes, file_system, kernel, load_average, commit (of
        /// the sources, null if unknown), is_optimized
        machine: Value = json!(answer.machine);
        /// on average during the runs, or null
        cores_used_by_others: Option<f64> = answer.others;
        /// what of each
        warnings: Vec<What> = warned.iter().map(|one| What::of(one)).collect();
        /// one for each round of a workload in a cell of the matrix:
        runs: Vec<RunJson> = answer.runs.iter().map(|run| RunJson(run.json())).collect();
        #[serde(flatten)] page: PageJson = PageJson(figures.json());
    }

    value RunJson {
        /// what was run, and when in the order
        store, workload, round;
        /// those of the matrix: filter, layout, cache, compression, threads
        settings;
        /// seconds since 1970
        started;
        /// time of an operation without filters as a multiple of the time with filters: median, low
        /// and high (95 % interval), pairs (of turns); or null
        off_on_ratio;
        /// lookups that found an absent key or missed a present one; 0 in a sound run
        wrong_answers;
        /// bytes written, bytes of files, for one of the user's
        write_amplification, space_amplification;
        /// the first of them by reason: log, level0 to level6, and filters, which are parts of
        /// their levels; empty if nothing was written
        write_amplification_by_reason;
        /// at the end
        disk_bytes, cache_bytes, pinned_bytes, memtable_bytes, resident_bytes;
        /// filters (true: lookups may ask them), operations, entries (keys of these), seconds,
        /// operations_per_second, entries_per_second, typical_nanos (median over the turns of the
        /// mean time of an operation), lookups, data_blocks_per_operation (searched, from cache or
        /// file), blocks_read_per_operation, bytes_read_per_operation (from files), negatives,
        /// false_positives, observed_fpr (answers of filters), not_paying (lookups that asked no
        /// filter after many hits in a row), and:
        variants: VariantJson;
    }

    value VariantJson {
        /// one for each kind of operation: kind (get, multi_get, put, write, delete,
        /// read_modify_write, seek, scan), operations, mean_nanos, p50_nanos, p90_nanos, p99_nanos,
        /// p999_nanos (99.9 %), p9999_nanos, longest_nanos
        kinds;
    }
}

fn json_help() -> String {
    let workload = |one: &Workload| format!("  {:<18}{}\n", one.name, one.about);
    let workloads: String = WORKLOADS.iter().map(workload).collect();
    format!("Workloads:\n{workloads}\n{}", help::<Benched>())
}

#[derive(Args)]
#[command(after_long_help = json_help(), args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    command: Option<Other>,
    #[command(flatten)]
    args: BenchArgs,
}

#[derive(Subcommand)]
enum Other {
    /// Say what differs between two benchmarks beyond the noise
    Compare(Compare),
}

impl Bench {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        match self.command {
            Some(Other::Compare(compare)) => compare.run(output),
            None => measure(&self.args, output),
        }
    }
}

fn measure(args: &BenchArgs, output: Output) -> Outcome<Shown> {
    let workloads = workloads(args)?;
    for file in args.html.iter().chain(&args.csv) {
        check_file(file)?;
    }
    let cells = cells(&args.matrix).map_err(Failure::usage)?;
    let settings = cells.iter().map(|cell| CellSettings::new(args, cell));
    let settings = settings.collect::<Outcome<Vec<_>>>()?;
    let mut databases = Databases::new(args, cells.len())?;
    let data = databases.data(args)?;
    let machine = Machine::of(databases.directory());
    let cores = CoresUsed::now();
    let mut runs = Vec::new();
    for round in 1..=args.rounds {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        // Turned around in every second round, so that no cell is always the first.
        if round % 2 == 0 {
            order.reverse();
        }
        for cell in order {
            for workload in &workloads {
                let store = databases.open(cell, &settings[cell], args, &data, workload)?;
                let cold = args.cold.then(|| databases.database(cell));
                let one =
                    One { args, data: &data, workload, cold, threads: settings[cell].threads };
                runs.push(one.run(store, &cells[cell], round)?);
            }
        }
    }
    let others = cores.and_then(|cores| cores.by_others_since());
    // Removed before the answer, so that a closed pipe leaves nothing.
    drop(databases);
    Answer { args, machine, others, keys: data.count, runs }.show(output)
}

fn workloads(args: &BenchArgs) -> Outcome<Vec<Workload>> {
    let default = ["readrandom".to_owned(), "readmissing".to_owned()];
    let names = if args.workloads.is_empty() { &default[..] } else { &args.workloads[..] };
    let workloads: Vec<Workload> = names.iter().filter_map(|name| workload(name)).collect();
    let writing = workloads.iter().find(|workload| workload.writes());
    match writing {
        Some(workload) if args.db.is_some() || args.cold => {
            let option = if args.cold { "--cold reads" } else { "--db is opened read-only" };
            Err(Failure::usage(format!("{} writes, and {option}", workload.name)))
        }
        _ => Ok(workloads),
    }
}

/// One run.
struct One<'a> {
    args: &'a BenchArgs,
    data: &'a Data,
    workload: &'a Workload,
    cold: Option<PathBuf>,
    threads: usize,
}

impl One<'_> {
    fn run(self, store: SiftdbStore, cell: &Cell, round: u32) -> Outcome<Run> {
        let args = self.args;
        let settings = Settings {
            threads: self.threads,
            operations: args.operations,
            duration: args.duration,
            rate: args.rate.map(|rate| rate as f64),
            batch: args.batch as usize,
            sync: args.sync,
            hit_ratio: args.hit_ratio,
            distribution: args.distribution,
            filters: match args.filters {
                Filters::On => vec![true],
                Filters::Off => vec![false],
                Filters::Both => vec![true, false],
            },
            seed: args.seed ^ u64::from(round) << 32,
            ..Settings::default()
        };
        let store = match self.cold {
            Some(_) => store.without_filling_the_cache(),
            None => store,
        };
        let mut watching = Watching {
            bar: Bar::lines(self.workload.name),
            started: Instant::now(),
            last: Progress::default(),
            cold: self.cold,
            not_cold: None,
        };
        let measured = run(&store, self.data, self.workload, &settings, &mut watching);
        if let Some(why) = watching.not_cold {
            return Err(Failure::fault(why));
        }
        let measured = measured.map_err(failure_of)?;
        let entries: u64 = measured.variants.iter().map(|variant| variant.entries).sum();
        let is_whole = !self.workload.fills() || entries == self.data.count;
        let known = args.db.is_none() && self.workload.keeps_entries() && is_whole;
        let bytes = known.then(|| self.data.bytes());
        let run = Run::of("siftdb", &store, measured, cell, round, bytes).map_err(failure_of)?;
        store.close().map_err(failure_of)?;
        Ok(run)
    }
}

/// Shows a line a second; keeps the files cold.
struct Watching {
    bar: Bar,
    started: Instant,
    last: Progress,
    cold: Option<PathBuf>,
    not_cold: Option<String>,
}

impl Watch for Watching {
    fn before_turn(&mut self) -> siftdb_cli::experiment::bench::Result<bool> {
        wait_if_interrupted();
        let Some(directory) = &self.cold else { return Ok(true) };
        if self.started.elapsed() > COLD {
            return Ok(false);
        }
        self.not_cold = make_cold(directory).err();
        Ok(self.not_cold.is_none())
    }

    fn after_turn(&mut self, progress: &Progress) {
        let since = progress.elapsed.saturating_sub(self.last.elapsed);
        if since >= Duration::from_secs(1) {
            let done = progress.operations - self.last.operations;
            let rate = done as f64 / since.as_secs_f64();
            self.bar.line(&format!("{:4.0} s  {rate:10.0} ops/s", progress.elapsed.as_secs_f64()));
            self.last = *progress;
        }
    }
}

/// The outputs: printed and written.
struct Answer<'a> {
    args: &'a BenchArgs,
    machine: Machine,
    others: Option<f64>,
    keys: u64,
    runs: Vec<Run>,
}

impl Answer<'_> {
    fn show(self, output: Output) -> Outcome<Shown> {
        let page = self.page();
        if let Some(file) = &self.args.csv {
            replace(file, &csv(&self.runs))?;
        }
        if let Some(file) = &self.args.html {
            replace(file, &page.html())?;
        }
        let warnings = self.warnings();
        let result = Benched::of(self.args, &self, &warnings, &page);
        let shown = output.show(&result, |out| self.print(out, &warnings))?;
        let wrong: u64 = self.runs.iter().map(|run| run.measured.wrong_answers).sum();
        match wrong {
            0 => Ok(shown),
            wrong => Err(Failure::fault(format!("{wrong} lookups gave a wrong answer"))),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let others = self.others.and_then(|used| warning_of_others(used, self.machine.cores));
        let slow = (!self.machine.is_optimized)
            .then(|| "this build is not optimized: times mean nothing; use --release".to_owned());
        others.into_iter().chain(slow).collect()
    }

    fn page(&self) -> Page {
        let command = whole_command();
        let args = self.args;
        let mut facts = vec![("siftdb".into(), env!("CARGO_PKG_VERSION").into())];
        facts.extend(self.machine.facts());
        facts.extend([
            ("seed".to_owned(), args.seed.to_string()),
            ("rounds".to_owned(), args.rounds.to_string()),
        ]);
        facts.extend(self.warnings().into_iter().map(|warning| ("warning".into(), warning)));
        Page {
            title: "siftdb bench".into(),
            sentence: "Workloads in siftdb: how long operations take, how many there are in a \
                       second, and what they read."
                .into(),
            figures: figures(&self.runs, &command),
            command,
            facts,
        }
    }

    fn print(&self, out: &mut Text<'_>, warnings: &[String]) -> io::Result<()> {
        for (name, text) in self.machine.facts() {
            writeln!(out, "{name:<14}{text}")?;
        }
        for run in &self.runs {
            match self.args.cold {
                // The disk decides: what is read from it comes first.
                true => write!(out, "\n{run:#}")?,
                false => write!(out, "\n{run}")?,
            }
        }
        let space = if warnings.is_empty() { "" } else { "\n" };
        write!(out, "{space}")?;
        warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))
    }
}

/// The command line, as a shell reads it.
fn whole_command() -> String {
    let words = std::env::args_os().skip(1).map(|word| shell_word(&word.to_string_lossy()));
    std::iter::once("siftdb".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
