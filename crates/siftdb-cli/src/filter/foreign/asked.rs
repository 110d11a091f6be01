//! What `siftdb filter stats` does for files of other stores: reads, simulates, shows.

use crate::failure::{Failure, Outcome};
use crate::filter::foreign::read_cost::ReadCost;
use crate::filter::foreign::report::{Found, Report, Simulation};
use crate::filter::foreign::text::print;
use crate::foreign_table;
use crate::leveldb;
use crate::lines::each_line;
use crate::output::{Output, Shown};
use crate::page_args::PageArgs;
use crate::rocksdb::open_for_keys;
use crate::text::shell_word;
use siftdb::env::{DiskEnv, Env, RandomFile};
use siftdb_cli::experiment::{
    Figure, Page, bytes, foreign_levels_figure, foreign_settings_figures,
};
use siftdb_cli::foreign_filters::{LookupCost, ReadSettings, alternatives, by_level, simulate};
use siftdb_foreign::{LookupTrace, TableFigures};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The block cache of LevelDB and of RocksDB, unless a program sets another.
const LEVELDB_CACHE_BYTES: u64 = 8 << 20;
const ROCKSDB_CACHE_BYTES: u64 = 32 << 20;

/// Blocks that are read to measure the time of a read.
const READS: usize = 1_000;

/// What `siftdb filter stats` is asked about the files of another store.
pub struct Asked<'a> {
    pub path: &'a Path,
    /// Directories with more tables of a RocksDB database.
    pub table_directories: &'a [PathBuf],
    /// The column family; `None` for all of them.
    pub family: Option<&'a str>,
    /// Keys to look up, one a line.
    pub probe: Option<&'a Path>,
    /// The block cache to simulate.
    pub cache_bytes: Option<u64>,
    pub page: &'a PageArgs,
}

impl Asked<'_> {
    /// Prints the report of a LevelDB database.
    pub fn leveldb(&self, output: Output) -> Outcome<Shown> {
        if self.family.is_some() {
            return Err(Failure::usage("--keyspace is for column families of RocksDB databases"));
        }
        let probes = self.probes()?;
        let (database, _lock) = leveldb::open(self.path, false)?;
        let (tables, trace) = (database.filter_figures()?, database.trace_lookups(&probes)?);
        let read = ReadSettings::of_leveldb(self.cache_bytes.unwrap_or(LEVELDB_CACHE_BYTES));
        let found = Found {
            store: "leveldb",
            family: None,
            options_file: None,
            tables,
            trace,
            read: Some(read),
        };
        self.show(&[found], output)
    }

    /// Prints the report of the column families of a RocksDB database.
    pub fn rocksdb(&self, output: Output) -> Outcome<Shown> {
        let probes = self.probes()?;
        let (database, _lock) = open_for_keys(self.path, self.table_directories)?;
        let mut all = Vec::new();
        for family in database.families() {
            // A name that is no UTF-8 is spelled with escapes.
            let name = std::str::from_utf8(family.name()).map(str::to_string);
            let name = name.unwrap_or_else(|_| family.name().escape_ascii().to_string());
            // Without a name, the keys are of `default`, as in databases of siftdb.
            let is_asked = self.family.map_or(name == "default", |wanted| wanted == name);
            if !is_asked && (self.family.is_some() || self.probe.is_some()) {
                continue;
            }
            let (tables, trace) = (
                database.filter_figures(family)?,
                database.trace_lookups(family, if is_asked { &probes } else { &[] })?,
            );
            let cache_bytes = self.cache_bytes.unwrap_or(ROCKSDB_CACHE_BYTES);
            let (own, of_tables) = (family.settings(), family.table_settings());
            let read = Some(ReadSettings::of_rocksdb(own, of_tables, cache_bytes));
            let name_of = |file: &Path| file.file_name().map(|name| name.display().to_string());
            let options_file = database.options_file().and_then(name_of);
            let (store, family) = ("rocksdb", Some(name));
            all.push(Found { store, family, options_file, tables, trace, read });
        }
        match (all.is_empty(), self.family) {
            (true, Some(name)) => {
                let names = database.families().iter().map(|family| family.name());
                let names: Vec<_> = names.map(|name| name.escape_ascii().to_string()).collect();
                let what = format!("no column family {name:?}; there are: {}", names.join(", "));
                Err(Failure::usage(what))
            }
            _ => self.show(&all, output),
        }
    }

    /// Prints the report of a table.
    pub fn table(&self, output: Output) -> Outcome<Shown> {
        let given = self.cache_bytes.map(|_| "--cache");
        if let Some(option) = given.or(self.family.map(|_| "--keyspace")) {
            let what = format!("{option} is for databases, not for a single table");
            return Err(Failure::usage(what));
        }
        let probes = self.probes()?;
        let table = foreign_table::open(self.path)?;
        let (tables, trace) = (vec![table.filter_figures()?], table.trace_lookups(&probes)?);
        let store = table.store();
        let found = Found { store, family: None, options_file: None, tables, trace, read: None };
        self.show(&[found], output)
    }

    fn probes(&self) -> Outcome<Vec<Vec<u8>>> {
        self.page.check()?;
        let mut keys = Vec::new();
        if let Some(file) = self.probe {
            each_line(file, |_, line| {
                keys.push(std::mem::take(line));
                Ok(())
            })?;
        }
        Ok(keys)
    }

    fn show(&self, all: &[Found], output: Output) -> Outcome<Shown> {
        let simulated =
            all.iter().map(|found| self.simulate(found)).collect::<Outcome<Vec<_>>>()?;
        let pairs = || all.iter().zip(&simulated);
        let reports: Vec<Report> =
            pairs().map(|(found, simulated)| Report::new(found, simulated.as_ref())).collect();
        // The ids of figures differ, so one family has pictures: the named one, or the first.
        let figures = pairs()
            .next()
            .map_or(Vec::new(), |(found, simulated)| figures(found, simulated.as_ref()));
        let written = self.page.write(&self.page(&reports, figures))?;
        let mut rows = output.folded_rows();
        for (place, report) in reports.iter().enumerate() {
            rows.row(report, |out| {
                if place > 0 {
                    writeln!(out)?;
                }
                print(report, out)?;
                match place + 1 == reports.len() {
                    true => written.iter().try_for_each(|line| writeln!(out, "{line}")),
                    false => Ok(()),
                }
            })?;
        }
        rows.end()
    }

    /// The lookups with the settings as they are, and with others; `None` without lookups.
    fn simulate(&self, found: &Found) -> Outcome<Option<Simulation>> {
        let Some(read) = found.read.filter(|_| found.trace.lookups().len() > 1) else {
            return Ok(None);
        };
        let read_cost = ReadCost::measured(&found.trace, &found.tables)?;
        let simulated = alternatives(&found.tables, &found.trace, read).into_iter();
        let settings = simulated.map(|alternative| {
            let cost = simulate(&found.trace, &found.tables, &alternative.plan);
            (alternative, cost)
        });
        let (cache_bytes, settings) = (read.cache_bytes, settings.collect());
        Ok(Some(Simulation { cache_bytes, read_cost, settings }))
    }

    fn page(&self, reports: &[Report], mut figures: Vec<Figure>) -> Page {
        let command = self.command();
        figures.iter_mut().for_each(|figure| figure.command.clone_from(&command));
        let family = reports.first().and_then(|report| report.family.as_ref());
        let of_family =
            family.map_or(String::new(), |family| format!(", column family {family:?}"));
        let fact = |name: &str, text: String| (name.to_string(), text);
        let mut facts = vec![fact("siftdb", env!("CARGO_PKG_VERSION").into())];
        for report in reports {
            let of =
                report.family.as_ref().map_or(String::new(), |family| format!(" of {family:?}"));
            facts.push(fact(&format!("tables{of}"), report.tables.to_string()));
            facts.push(fact(&format!("bytes of tables{of}"), bytes(report.table_bytes)));
        }
        Page {
            title: format!("The filters of {}{of_family}", self.path.display()),
            sentence: "What the filters are, what they did for the given lookups, and what other \
                       settings would do."
                .into(),
            command,
            facts,
            figures,
        }
    }

    /// The command that shows it again.
    fn command(&self) -> String {
        let mut command = "siftdb filter stats".to_string();
        if let Some(name) = self.family {
            command += &format!(" --keyspace {}", shell_word(name));
        }
        if let Some(file) = self.probe {
            command += &format!(" --probe {}", shell_word(&file.to_string_lossy()));
        }
        if let Some(bytes) = self.cache_bytes {
            command += &format!(" --cache {bytes}");
        }
        command + " -o filters.html -- " + &shell_word(&self.path.to_string_lossy())
    }
}

fn figures(found: &Found, simulation: Option<&Simulation>) -> Vec<Figure> {
    let mut figures = vec![foreign_levels_figure(&by_level(&found.tables, &found.trace))];
    if let Some(Simulation { read_cost, settings, .. }) = simulation {
        let nanos = |cost: &LookupCost| read_cost.nanos_per_lookup(cost);
        figures.extend(foreign_settings_figures(settings, &nanos));
    }
    figures
}

impl ReadCost {
    /// Reads blocks that the lookups use, and measures the time: with what the system's page cache
    /// has.
    fn measured(trace: &LookupTrace, tables: &[TableFigures]) -> Outcome<Self> {
        let env = DiskEnv::new();
        let step = (trace.blocks().len() / READS).max(1);
        let mut reads = Vec::new();
        let mut open: Option<(u32, Arc<dyn RandomFile>)> = None;
        for block in trace.blocks().iter().step_by(step) {
            let Some(table) = tables.get(block.table as usize) else { continue };
            let io = |error| Failure::io(&table.path, error);
            let file = match &open {
                Some((number, file)) if *number == block.table => file,
                _ => &open.insert((block.table, env.open_random(&table.path).map_err(io)?)).1,
            };
            let mut bytes = vec![0; block.file_bytes as usize];
            let began = Instant::now();
            file.read_exact_at(block.offset, &mut bytes).map_err(io)?;
            reads.push((f64::from(block.file_bytes), began.elapsed().as_nanos() as f64));
        }
        Ok(ReadCost::of(&reads))
    }
}
