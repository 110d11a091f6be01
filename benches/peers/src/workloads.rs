//! The workloads and the report of `siftdb bench`, with rivals side by side.
//!
//! `siftdb_cli::experiment::bench` makes keys and values, draws and times the operations, and
//! reports them. [`Driven`] lets it drive an engine. Engines take turns in this process: each is
//! open alone while it is measured, and starts from a copy of its loaded database, or from an empty
//! one. Every engine is read as it comes, with its filters. `siftdb bench compare` takes the JSON.

use crate::args::Args;
use crate::databases::{copy, disk_bytes};
use crate::engine::{self, Engine, Layout, Settings, name};
use crate::neighbour::Neighbour;
use crate::workload::Batch;
use serde_json::json;
use siftdb_cli::experiment::Page;
use siftdb_cli::experiment::bench::{
    self, Data, Direction, Footprint, KeyShape, Machine, Result, Run, Start, Store, Tree, Workload,
    csv, figures, load, run, workload,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Workloads that need what not every engine is asked for here: deletes, and scans backward.
const LEFT_OUT: [&str; 2] = ["readreverse", "deleterandom"];

/// Decides keys, values and operations.
const SEED: u64 = 42;

/// Runs the workloads, prints their tables and writes the files that were asked for.
pub fn measure(args: &Args) -> Result<()> {
    let (workloads, contenders) = (selected(args)?, contenders(args)?);
    let parent = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new().prefix("siftdb-peers-").tempdir_in(parent)?;
    let machine = Machine::of(directory.path());
    for (fact, text) in machine.facts() {
        println!("{fact:<14}{text}");
    }
    let bytes = usize::try_from(args.workload.value_bytes)?;
    let data = Data::of_shape(KeyShape::Random, args.workload.keys, bytes);
    let _neighbour = args.neighbour.map(Neighbour::start);
    let mut runs = Vec::new();
    for round in 1..=args.rounds {
        for workload in &workloads {
            for &(engine, layout) in &contenders {
                eprintln!("{}, round {round}: {} ({})", workload.name, engine.name, name(layout));
                let place = Place { args, data: &data, engine, layout, parent: directory.path() };
                let run = place.measure(workload, round)?;
                print!("\n{run}");
                if run.measured.wrong_answers > 0 {
                    return Err("wrong answers: see the last table".into());
                }
                runs.push(run);
            }
        }
    }
    let page = page(args, &machine, &runs);
    if let Some(file) = &args.html {
        fs::write(file, page.html())?;
    }
    if let Some(file) = &args.csv {
        fs::write(file, csv(&runs))?;
    }
    if let Some(file) = &args.json {
        let mut document = page.json();
        document["machine"] = json!(machine);
        document["versions"] = contenders
            .iter()
            .map(|(engine, _)| (engine.name.to_owned(), json!((engine.version)())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        document["runs"] = runs.iter().map(Run::json).collect();
        fs::write(file, format!("{document:#}\n"))?;
    }
    Ok(())
}

fn selected(args: &Args) -> Result<Vec<Workload>> {
    let find = |name: &String| match workload(name) {
        Some(workload) if !LEFT_OUT.contains(&workload.name) => Ok(workload),
        Some(_) => Err(format!("{name} is measured by `siftdb bench` alone").into()),
        None => Err(format!("no workload {name}: see `siftdb bench --help`").into()),
    };
    args.workloads.iter().map(find).collect()
}

/// The engines in each layout that was asked for; without such, each in its own.
fn contenders(args: &Args) -> Result<Vec<(&'static Engine, Layout)>> {
    let asked = match args.layouts.is_empty() {
        true => &[Layout::Own][..],
        false => &args.layouts,
    };
    let mut all = Vec::new();
    for engine in args.selected_engines()? {
        let layouts = engine.layouts.iter().filter(|layout| asked.contains(layout));
        all.extend(layouts.map(|layout| (engine, *layout)));
    }
    Ok(all)
}

fn page(args: &Args, machine: &Machine, runs: &[Run]) -> Page {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = format!(
        "cargo run --release --manifest-path benches/peers/Cargo.toml -- {}",
        words.join(" ")
    );
    let mut facts = machine.facts();
    let number = |name: &str, number: u64| (name.to_owned(), number.to_string());
    facts.extend([
        number("keys", args.workload.keys),
        number("bytes of a value", args.workload.value_bytes),
        number("rounds", args.rounds.into()),
        number("seed", SEED),
    ]);
    Page {
        title: "siftdb and other stores".into(),
        sentence: "The same workloads in each store: how long operations take, and how many there \
                   are in a second."
            .into(),
        figures: figures(runs, &command),
        command,
        facts,
    }
}

/// An engine in a layout, and where its databases are.
struct Place<'a> {
    args: &'a Args,
    data: &'a Data,
    engine: &'static Engine,
    layout: Layout,
    parent: &'a Path,
}

impl Place<'_> {
    fn measure(&self, workload: &Workload, round: u32) -> Result<Run> {
        let directory = self.directory("measured");
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        if workload.start == Start::Loaded {
            copy(&self.loaded()?, &directory)?;
        }
        let driven = self.open(&directory, Some(workload))?;
        let settings = bench::Settings {
            threads: self.args.threads.into(),
            duration: (!workload.fills()).then(|| Duration::from_secs_f64(self.args.seconds)),
            filters: vec![true],
            seed: SEED + u64::from(round),
            ..bench::Settings::default()
        };
        let measured = run(&driven, self.data, workload, &settings, &mut ())?;
        let cell = match self.layout {
            Layout::Own => Vec::new(),
            layout => vec![("layout".to_owned(), name(layout))],
        };
        let bytes = self.data.count * (16 + self.data.value_bytes as u64);
        let run = Run::of(self.engine.name, &driven, measured, &cell, round, Some(bytes))?;
        driven.engine.close()?;
        fs::remove_dir_all(directory)?;
        Ok(run)
    }

    /// The directory of a database with all entries in one level, which is made if it is not there.
    fn loaded(&self) -> Result<PathBuf> {
        let directory = self.directory("loaded");
        if !directory.exists() {
            fs::create_dir_all(&directory)?;
            let driven = self.open(&directory, None)?;
            load(&driven, self.data, Tree::Settled, SEED, &mut |_| ())?;
            driven.engine.close()?;
        }
        Ok(directory)
    }

    fn directory(&self, kind: &str) -> PathBuf {
        self.parent.join(format!("{}-{}-{kind}", self.engine.name, name(self.layout)))
    }

    fn open(&self, directory: &Path, workload: Option<&Workload>) -> Result<Driven> {
        let renews_readers = !self.engine.log_structured && workload.is_some_and(Workload::writes);
        let bytes = self.data.count * (64 + self.data.value_bytes as u64);
        let settings = Settings {
            layout: self.layout,
            cache_bytes: (4 * bytes).max(1 << 30),
            compression: false,
            map_files: false,
            compaction: true,
            durable: workload.is_some_and(|workload| workload.sync),
            map_bytes: 8 * bytes + (1 << 30),
        };
        let engine = (self.engine.open)(directory, &settings)?;
        Ok(Driven { engine, directory: directory.to_owned(), renews_readers })
    }
}

/// An engine as a store of siftdb's benchmark.
struct Driven {
    engine: Box<dyn engine::Store>,
    directory: PathBuf,
    /// The engine reads in transactions and the workload writes: a reader that held one would see
    /// none of the writes. Without writes it holds one, the fastest that the engine offers.
    renews_readers: bool,
}

impl Driven {
    fn held(&self) -> Result<Option<Box<dyn engine::Reader + '_>>> {
        if self.renews_readers { Ok(None) } else { self.engine.reader().map(Some) }
    }
}

impl Store for Driven {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.engine.put(key, value, sync)
    }

    fn delete(&self, _: &[u8], _: bool) -> Result<()> {
        Err("no workload that is offered deletes".into())
    }

    fn write(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        self.engine.write(&Batch::of(entries))?;
        if sync { self.engine.flush() } else { Ok(()) }
    }

    fn reader(&self, _: bool) -> Result<Box<dyn bench::Reader + '_>> {
        Ok(Box::new(DrivenReader { engine: &*self.engine, held: self.held()? }))
    }

    fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    fn settle(&self) -> Result<()> {
        self.engine.settle()
    }

    fn sync(&self) -> Result<()> {
        self.engine.flush()
    }

    fn footprint(&self) -> Result<Footprint> {
        Ok(Footprint { disk_bytes: disk_bytes(&self.directory)?, ..Footprint::default() })
    }

    fn close(&self) -> Result<()> {
        self.engine.flush()
    }
}

struct DrivenReader<'a> {
    engine: &'a dyn engine::Store,
    held: Option<Box<dyn engine::Reader + 'a>>,
}

impl bench::Reader for DrivenReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        match &mut self.held {
            Some(reader) => reader.get(key),
            None => self.engine.reader()?.get(key),
        }
    }

    fn scan(
        &mut self,
        from: &[u8],
        direction: Direction,
        count: u64,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        if direction == Direction::Backward {
            return Err("no workload that is offered scans backward".into());
        }
        let (mut read, count) = (0, usize::try_from(count)?);
        let each: &mut engine::Each<'_> = &mut |key, value| {
            read += 1;
            each(key, value);
        };
        match &mut self.held {
            Some(reader) => reader.scan(from, count, each)?,
            None => self.engine.reader()?.scan(from, count, each)?,
        }
        Ok(read)
    }
}
