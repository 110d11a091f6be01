//! `siftdb demo`: shows what filters save; `siftdb_cli::experiment` measures it.
//!
//! With `--html`, `--csv` or `--json` it makes all figures, else that of scans and those that an
//! option names. Keys are generated from the seed or read from `--input`, and checked before
//! anything is created. The databases are in a temporary directory, which is removed at the end and
//! on Ctrl-C, unless `--keep` is given. Figures go to standard output, the hint of `--keep` to
//! standard error. If counts disagree, the command prints everything and then exits with code 4.

use crate::args::options;
use crate::bars::Bar;
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::figure_text::figure_text;
use crate::filter_args::{ENCODING_DEFAULT, encoding_labels, encoding_of};
use crate::interrupt::{temporary_directory, wait_if_interrupted};
use crate::json::{Bytes, What, variant};
use crate::lines::key_set;
use crate::numbers::{Sweep, count, share, size, sweep};
use crate::output::{Output, Shown, Text};
use crate::page_args::{PageArgs, PageJson};
use crate::step::walk;
use crate::text::{escaped, shell_word};
use clap::{Args, value_parser};
use siftdb::{Db, Error, Filter, LevelStats, ReadOptions};
use siftdb_cli::experiment::{
    Act, ActKind, Column, DatabaseFacts, Figure, FilterTrial, KEYS_MAX, KEYS_MIN, KeySet,
    Measurement, Page, Progress, Report, Settings, blocks_figure, cache_figure, cold_figure,
    encoding_figures, fpr_figure, latency_figure, monkey_figure, run, scan_figure, steps_figure,
    tree_figures,
};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

result! {
    struct Demonstrated of demo: &Demo, all: &KeySet, report: &Report, figures: &Page {
        /// the version of the command
        siftdb: &'static str = env!("CARGO_PKG_VERSION");
        /// how many keys, and their bytes
        keys: usize = all.len();
        /// bytes of all keys
        key_bytes: u64 = all.bytes();
        /// bytes of each value
        value_bytes: u32;
        /// the file of the keys, or null
        #[serde(flatten)] input: Bytes =
            Bytes::or_null("input", demo.input.as_ref().map(|path| path.as_os_str().as_bytes()));
        /// how keys become bits
        encoding: String;
        /// bits of filter for each key
        bits: f64;
        seed: u64;
        lookups: u32;
        layouts: Vec<String>;
        /// as given
        hit_ratio: Option<f64>;
        /// one for each column:
        databases: Vec<DatabaseColumn> = report.databases.iter().map(DatabaseColumn::of).collect();
        /// absent keys, present keys, with --hit-ratio both, absent keys with a cache too small:
        acts: Vec<ActColumns> = report.acts.iter().map(ActColumns::of).collect();
        /// counts that disagree: what
        faults: Vec<What> = report.faults.iter().map(|one| What::of(one)).collect();
        #[serde(flatten)] page: PageJson = PageJson(figures.json());
    }

    struct DatabaseColumn of facts: &DatabaseFacts {
        /// its column
        column: &'static str = facts.column.name();
        /// its tables, by level
        tables: Vec<u64>;
        /// what all of them have
        entries, data_blocks, data_bytes, filter_bytes, index_bytes: u64 => facts.total;
    }

    struct ActColumns of measured: &Act {
        /// absent, present, mixed or starved
        act: String = variant(measured.kind);
        /// the block cache
        cache_bytes: u64;
        /// one for each way to look up:
        columns: Vec<ActColumn> = {
            let columns = measured.columns.iter();
            columns.map(|(column, one)| ActColumn::of(one, &one.total, measured, *column)).collect()
        };
    }

    struct ActColumn of measured: &Measurement, total: &LevelStats, act: &Act, way: Column {
        /// its heading
        column: &'static str = way.name();
        /// lookups made, and those that found a value
        lookups, found: u64;
        /// data blocks searched
        data_blocks: u64 = total.data_blocks();
        /// read from files, and their bytes
        data_blocks_read, data_bytes_read: u64 => total;
        /// share of data block reads that filters saved, or null
        data_reads_saved: Option<f64> = act.data_reads_saved(way);
        /// data blocks not searched because a filter said no
        data_blocks_avoided: u64 = total.data_blocks_avoided();
        index_seeks, index_blocks_read, index_bytes_read: u64 => total;
        /// what indexes and filters took
        filter_blocks_read, filter_bytes_read: u64 => total;
        /// filters that said maybe of absent keys
        false_positives: u64 => total;
        /// all that were asked for absent keys
        filter_answers_absent: u64 = total.false_positives + total.negatives;
        /// the rate, or null
        observed_fpr: Option<f64> = total.observed_fpr();
        /// the one to expect, or null
        expected_fpr: Option<f64>;
        /// time within which 50 or 99 of 100 lookups end
        p50_nanos, p99_nanos: u32;
        /// reads of files, counted by the file system layer
        env_read_calls, env_bytes_read: u64;
    }
}

/// The number of keys to generate, such as 1e5.
fn key_count(text: &str) -> Result<u64, String> {
    let (least, most) = (KEYS_MIN as u64, KEYS_MAX as u64);
    count(text)
        .ok()
        .filter(|keys| (least..=most).contains(keys))
        .ok_or_else(|| format!("a whole number from {least} to {most}, such as 5000 or 1e5"))
}

#[derive(Args)]
#[command(after_long_help = help::<Demonstrated>())]
pub struct Demo {
    /// Take the keys from this file, one a line, instead of generating them; `-` is standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Number of keys to generate, such as 1e5
    #[arg(long, default_value = "500_000", conflicts_with = "input", value_parser = key_count)]
    keys: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(..=1 << 30))]
    value_bytes: u32,
    /// Bits of filter for each key
    #[arg(long, default_value_t = 10.0)]
    bits: f64,
    /// Encoding of the filters
    #[arg(long, default_value = ENCODING_DEFAULT, value_parser = encoding_labels())]
    encoding: String,
    /// Lookups of each act in each column; a fifth of them with a cache too small
    #[arg(long, default_value_t = 30_000, value_parser = value_parser!(u32).range(1..))]
    lookups: u32,
    /// Seed of the keys, the values and the lookups
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Keep the databases, and print where they are
    #[arg(long)]
    keep: bool,
    /// Layouts to compare with none, with commas between: full, partitioned, block-based
    #[arg(long, value_name = "LAYOUTS", value_delimiter = ',')]
    #[arg(value_parser = ["none", "full", "partitioned", "block-based"])]
    #[arg(default_value = "full,partitioned,block-based")]
    layouts: Vec<String>,
    /// Also look up keys of which this share is there, such as 0.9 or 90%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    hit_ratio: Option<f64>,
    /// Also count false positives by bits a key: bits=2..20, or bits=5,10
    #[arg(long, value_name = "bits=BITS", value_parser = sweep)]
    sweep: Option<Sweep>,
    /// Also compare block caches of these sizes, with commas between, such as 100kB,1MB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size)]
    cache: Vec<u64>,
    /// Also look keys up after dropping the files from the system's cache, for 5 s a run
    #[arg(long)]
    cold: bool,
    /// Then show one lookup of an absent and one of a present key, step by step
    #[arg(long)]
    step: bool,
    #[command(flatten)]
    page: PageArgs,
}

/// The figures that are shown after the acts.
#[derive(Default)]
struct Shows {
    figures: Vec<Figure>,
    /// Why there are no cold figures.
    not_cold: Option<String>,
}

impl Demo {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let encoding = encoding_of(&self.encoding, self.bits)?;
        let keys = self.key_set()?;
        self.page.check()?;
        let (parent, advice) = (std::env::temp_dir(), "set TMPDIR to another directory");
        let directory = temporary_directory("siftdb-demo-", &parent, self.keep, advice)?;
        let mut settings = Settings::new(directory.path());
        settings.value_bytes = self.value_bytes as usize;
        settings.lookups = self.lookups as usize;
        settings.seed = self.seed;
        settings.filter = Filter::from(encoding);
        settings.hit_ratio = self.hit_ratio;
        let is_named = |column: &Column| self.layouts.iter().any(|name| name == column.layout());
        settings.columns.retain(|column| *column == Column::NoFilter || is_named(column));
        let mut bars = Bars::default();
        let report = run(&settings, &keys, &mut |progress| bars.show(progress))
            .map_err(|error| without_space(directory.path(), error))?;
        let all = self.page.is_asked() || output.is_json();
        let tell = &mut |progress| bars.show(progress);
        let mut figures = Figures { demo: &self, settings: &settings, keys: &keys, tell };
        let shows = figures.of(&report, all);
        let shows = shows.map_err(|error| without_space(directory.path(), error))?;
        drop(bars);
        let page = self.page_of(&keys, &report, shows);
        self.page.write(&page)?;
        let result = Demonstrated::of(&self, &keys, &report, &page);
        let shown = output.show(&result, |out| {
            writeln!(out, "siftdb {} demo: {}\n", env!("CARGO_PKG_VERSION"), self.heading(&keys))?;
            writeln!(out, "{report}")?;
            for figure in page.figures.iter().filter(|figure| self.names(figure)) {
                out.write_all(figure_text(figure).as_bytes())?;
            }
            if let Some((_, why)) = page.facts.iter().find(|(name, _)| name == "cold") {
                writeln!(out, "\n{why}")?;
            }
            if self.step { walk_two(&settings, &keys, out) } else { Ok(()) }
        })?;
        if self.keep {
            let key = keys.absent(1, self.seed).pop().unwrap_or_default();
            let next = explain_command(&settings.database(settings.filtered()), &key);
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "databases kept in {}", directory.path().display());
            let _ = writeln!(stderr, "next: {next}");
        }
        if report.faults.is_empty() {
            Ok(shown)
        } else {
            Err(Failure::fault(format!("{} counts disagree", report.faults.len())))
        }
    }

    fn key_set(&self) -> Outcome<KeySet> {
        match &self.input {
            Some(path) => key_set(path),
            None => Ok(KeySet::generate(self.keys as usize, self.seed)),
        }
    }

    fn heading(&self, keys: &KeySet) -> String {
        let mean = keys.bytes() as f64 / keys.len().max(1) as f64;
        let source = match &self.input {
            Some(path) => format!("keys of {}", path.display()),
            None => "keys".into(),
        };
        format!(
            "{} {source}, {mean:.0} B on average, values of {} B;\n{}, {} bits a key; seed {}",
            keys.len(),
            self.value_bytes,
            self.encoding,
            self.bits,
            self.seed
        )
    }

    /// The command that shows the same, with `more` options.
    fn command(&self, more: &str) -> String {
        let source = match &self.input {
            Some(path) => format!("--input {}", shell_word(&path.to_string_lossy())),
            None => format!("--keys {}", self.keys),
        };
        let mut command = format!("siftdb demo {source} --seed {}", self.seed);
        let layouts = self.layouts.join(",");
        for (option, value, default) in [
            ("--value-bytes", self.value_bytes.to_string(), "100"),
            ("--bits", self.bits.to_string(), "10"),
            ("--encoding", self.encoding.clone(), ENCODING_DEFAULT),
            ("--lookups", self.lookups.to_string(), "30000"),
            ("--layouts", layouts, "full,partitioned,block-based"),
        ] {
            if value != default {
                command += &format!(" {option} {value}");
            }
        }
        command + more
    }

    /// Whether the text shows this figure: scans always, the others if an option asks for them.
    fn names(&self, figure: &Figure) -> bool {
        match figure.id {
            "fpr-by-bits" => self.sweep.is_some(),
            "bytes-by-cache" => !self.cache.is_empty(),
            "cold" => self.cold,
            "scans" => true,
            _ => false,
        }
    }

    fn page_of(&self, keys: &KeySet, report: &Report, shows: Shows) -> Page {
        let fact = |name: &str, text: String| (name.to_string(), text);
        let mut facts = vec![
            fact("siftdb", env!("CARGO_PKG_VERSION").into()),
            fact("keys and values", self.heading(keys).replace('\n', " ")),
            fact(
                "checked",
                match report.faults.as_slice() {
                    [] => "the engine's counts of reads are exactly what the files saw".into(),
                    faults => format!("figures are not to be trusted: {}", faults.join("; ")),
                },
            ),
            fact("times", "one thread, files mostly in the system's page cache".into()),
        ];
        facts.extend(shows.not_cold.map(|why| fact("cold", why)));
        Page {
            title: "What filters save".into(),
            sentence: "The same keys in databases that differ only in their filters, and the same \
                       lookups in each."
                .into(),
            command: self.command(" --html demo.html"),
            facts,
            figures: shows.figures,
        }
    }
}

/// Makes the figures of a finished run.
struct Figures<'a> {
    demo: &'a Demo,
    settings: &'a Settings,
    keys: &'a KeySet,
    tell: &'a mut dyn FnMut(Progress),
}

impl Figures<'_> {
    /// All figures, or those that the text shows.
    fn of(&mut self, report: &Report, all: bool) -> siftdb::Result<Shows> {
        let (demo, settings, keys) = (self.demo, self.settings, self.keys);
        let mut shows = Shows::default();
        let page = demo.command(" --html demo.html");
        if all {
            for act in report.acts.iter().filter(|act| act.kind != ActKind::Starved) {
                let hits = demo.hit_ratio.filter(|_| act.kind == ActKind::Mixed);
                let more = hits.map_or(String::new(), |share| format!(" --hit-ratio {share}"));
                shows.figures.push(blocks_figure(act).again(demo.command(&more)));
            }
        }
        if all || demo.sweep.is_some() {
            shows.figures.push(self.sweep()?);
        }
        if all || !demo.cache.is_empty() {
            let sizes: Vec<String> = demo.cache.iter().map(u64::to_string).collect();
            let more = match sizes.as_slice() {
                [] => " --html demo.html".into(),
                sizes => format!(" --cache {}", sizes.join(",")),
            };
            let figure = cache_figure(settings, keys, &demo.cache, self.tell)?;
            shows.figures.push(figure.again(demo.command(&more)));
        }
        if all {
            let starved = report.acts.iter().find(|act| act.kind == ActKind::Starved);
            shows.figures.extend(starved.map(|act| blocks_figure(act).again(demo.command(""))));
            let acts = report.acts.iter().filter(|act| act.kind != ActKind::Starved);
            shows.figures.extend(acts.map(|act| latency_figure(act).again(&page)));
            shows.figures.extend(self.tree_and_steps(&page)?);
            shows.figures.extend(self.encodings()?);
            let monkey = monkey_figure(settings, keys, self.tell)?;
            shows.figures.extend(monkey.map(|figure| figure.again(&page)));
        }
        // The scans begin at keys that are generated too.
        if demo.input.is_none() {
            shows.figures.push(scan_figure(settings, keys, self.tell)?.again(demo.command("")));
        }
        if demo.cold {
            (self.tell)(Progress { step: "cold", done: 0, total: 1 });
            match cold_figure(settings, keys)? {
                Ok(figure) => shows.figures.push(figure.again(demo.command(" --cold"))),
                Err(why) => shows.not_cold = Some(why),
            }
        }
        Ok(shows)
    }

    /// How the figures of a page measure filters by themselves: all in the same way, so that an
    /// encoding has one rate.
    fn trial(&self) -> FilterTrial {
        let keys = self.keys.len().min(100_000) as u64;
        let lookups = (10 * self.settings.lookups).min(500_000) as u64;
        // Several times what processors cache, for many keys.
        FilterTrial { keys, lookups, outside_bytes: 800 * keys as usize }
    }

    fn sweep(&mut self) -> siftdb::Result<Figure> {
        let (sweep, trial) = (self.demo.sweep.clone().unwrap_or_default(), self.trial());
        let total = (4 * sweep.bits.len()) as u64 * (trial.keys + trial.lookups);
        let mut done = Progress::count("filters", total, self.tell);
        let figure = fpr_figure(&sweep.bits, &trial, &mut done)?;
        Ok(figure.again(self.demo.command(&format!(" --sweep {}", sweep.text))))
    }

    fn encodings(&mut self) -> siftdb::Result<[Figure; 2]> {
        let (bits, trial) = (self.demo.bits, self.trial());
        let FilterTrial { keys, lookups, .. } = trial;
        let total = 4 * (3 * keys + 4 * lookups);
        let mut done = Progress::count("filters", total, self.tell);
        let figures = encoding_figures(bits, &trial, &mut done)?;
        let command =
            format!("siftdb filter bench --keys {keys} --bits {bits} --lookups {lookups}");
        Ok(figures.map(|figure| figure.again(&command)))
    }

    /// The tree of a database, and what a lookup of an absent and of a present key touched in it.
    fn tree_and_steps(&self, page: &str) -> siftdb::Result<Vec<Figure>> {
        let db = database_to_show(self.settings)?;
        let (figures, report) = (tree_figures(&db)?, db.filter_report());
        let mut figures: Vec<_> = figures.into_iter().map(|figure| figure.again(page)).collect();
        let step = self.demo.command(" --step");
        let keys = two_keys(self.settings, self.keys)?;
        for (id, key) in ["lookup-absent", "lookup-present"].into_iter().zip(keys) {
            figures.push(steps_figure(id, &db.explain(key)?, &report).again(&step));
        }
        db.close()?;
        Ok(figures)
    }
}

/// Prints the steps of a lookup of an absent and of a present key.
fn walk_two(settings: &Settings, keys: &KeySet, out: &mut Text<'_>) -> Outcome {
    let db = database_to_show(settings)?;
    for key in two_keys(settings, keys)? {
        writeln!(out)?;
        walk(&db.explain(key)?, &db.filter_report(), out)?;
    }
    Ok(db.close()?)
}

/// A shell command that explains `key`, started in the same way as this process.
fn explain_command(database: &Path, key: &[u8]) -> String {
    // Cargo sets this for programs it runs, which need not be on the path.
    let program = match std::env::var_os("CARGO") {
        Some(_) => "cargo run --release --".into(),
        None => shell_word(&std::env::args().next().unwrap_or_else(|| "siftdb".into())),
    };
    let spelled = escaped(key);
    let option = if spelled.as_bytes() == key { "" } else { "--escaped " };
    let database = shell_word(&database.to_string_lossy());
    // After `--` a key may begin with a dash.
    format!("{program} explain {option}-- {database} {}", shell_word(&spelled))
}

/// The database that the tree and the steps show, with indexes in memory and no data.
fn database_to_show(settings: &Settings) -> siftdb::Result<Db> {
    let db = options().open_read_only(settings.database(settings.filtered()))?;
    let mut all = db.range_with(.., &ReadOptions::new().fill_cache(false));
    all.try_for_each(|entry| entry.map(drop))?;
    Ok(db)
}

/// A key that is absent, and a present one below all tables that may have it.
fn two_keys(settings: &Settings, keys: &KeySet) -> siftdb::Result<Vec<Vec<u8>>> {
    const DRAWN: usize = 100;
    let db = database_to_show(settings)?;
    let (mut chosen, mut most) = (keys.absent(1, settings.seed), 0);
    for key in keys.present(DRAWN, settings.seed) {
        let steps = db.explain(&key)?.steps.len();
        if steps > most {
            most = steps;
            chosen.truncate(1);
            chosen.push(key);
        }
    }
    db.close()?;
    Ok(chosen)
}

/// Says what to do when the disk of the temporary directory is full.
fn without_space(directory: &Path, error: Error) -> Failure {
    if !error.is_out_of_space() {
        return error.into();
    }
    let advice = "free space, set TMPDIR to a directory on another disk, or name fewer --keys";
    Failure::unwritable(directory, ErrorKind::StorageFull.into(), advice)
}

/// Says what the demonstration does, with a bar for each step.
#[derive(Default)]
struct Bars(Option<(&'static str, Bar)>);

impl Bars {
    fn show(&mut self, progress: Progress) {
        wait_if_interrupted();
        if self.0.as_ref().is_none_or(|(step, _)| *step != progress.step) {
            let bar = Bar::keys(progress.step, Some(progress.total));
            if let Some((_, finished)) = self.0.replace((progress.step, bar)) {
                finished.finish("done");
            }
        }
        if let Some((_, bar)) = &self.0 {
            bar.set(progress.done);
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish("done");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn full_disks_say_what_to_do() {
        let error = |kind: ErrorKind| Error::Io {
            op: "write",
            path: "/tmp/siftdb-demo-x/full/000012.sst".into(),
            source: Arc::new(kind.into()),
        };
        let directory = Path::new("/tmp/siftdb-demo-x");
        let full = error(ErrorKind::StorageFull);
        let later = Error::ReadOnly { cause: Arc::new(error(ErrorKind::QuotaExceeded)) };
        for full in [full, later] {
            let what = format!("{:?}", without_space(directory, full));
            assert!(what.contains("free space, set TMPDIR"), "{what}");
        }
        let other = format!("{:?}", without_space(directory, error(ErrorKind::PermissionDenied)));
        assert!(!other.contains("TMPDIR") && other.contains("000012.sst"), "{other}");
    }
}
