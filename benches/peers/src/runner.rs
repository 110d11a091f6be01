//! The first process: starts a worker for each engine and layout and alternates between them.
//!
//! For each phase and each round, every worker that has the phase runs it once, one after the
//! other. Data goes to a temporary directory that is removed at the end, failed or not.

use crate::args::Args;
use crate::engine::{Engine, Layout, Result};
use crate::phases::Phase;
use crate::sample::Sample;
use crate::worker::Reply;
use clap::ValueEnum;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// What a row holds for one engine: one value for each round.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// The figures that are compared, in the order of the rounds.
    pub rounds: Vec<f64>,
    /// The same by wall time, where `rounds` is processor time.
    pub wall: Vec<f64>,
    /// For each round, the same by parts of the run, if it was divided into parts.
    pub over_time: Vec<Vec<f64>>,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Results {
    figures: Vec<(String, Layout, &'static str, Figure)>,
}

impl Results {
    /// The figures of a row for an engine.
    pub fn figure(&self, row: &str, layout: Layout, engine: &str) -> Option<&Figure> {
        let found = self
            .figures
            .iter()
            .find(|(id, at, name, _)| id == row && *at == layout && *name == engine);
        found.map(|(_, _, _, figure)| figure)
    }

    fn add(&mut self, layout: Layout, engine: &'static str, sample: Sample) {
        let place = self
            .figures
            .iter()
            .position(|(id, at, name, _)| *id == sample.row && *at == layout && *name == engine);
        let place = place.unwrap_or_else(|| {
            self.figures.push((sample.row, layout, engine, Figure::default()));
            self.figures.len() - 1
        });
        let figure = &mut self.figures[place].3;
        figure.rounds.push(sample.value);
        figure.wall.extend(sample.wall);
        if !sample.over_time.is_empty() {
            figure.over_time.push(sample.over_time);
        }
    }
}

/// Runs everything that `args` select.
pub fn measure(args: &Args) -> Result<Results> {
    let parent = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new().prefix("siftdb-peers-").tempdir_in(parent)?;
    let phases = args.selected_phases();
    let mut workers = Vec::new();
    for engine in args.selected_engines()? {
        for &layout in engine.layouts {
            let asked = args.layouts.is_empty() || args.layouts.contains(&layout);
            if asked && phases.iter().any(|phase| phase.applies(engine, layout)) {
                workers.push(Worker::start(engine, layout, directory.path())?);
            }
        }
    }
    let mut results = Results::default();
    for phase in phases {
        for round in 1..=args.rounds {
            for worker in workers.iter_mut().filter(|w| phase.applies(w.engine, w.layout)) {
                eprintln!("{}, round {round}: {}", name(phase), worker.name());
                let samples = if phase.needs_fresh_process() {
                    let folder = directory.path().join("fresh");
                    let samples =
                        Worker::start(worker.engine, worker.layout, &folder)?.run(phase, round);
                    fs::remove_dir_all(folder)?;
                    samples?
                } else {
                    worker.run(phase, round)?
                };
                for sample in samples {
                    results.add(worker.layout, worker.engine.name, sample);
                }
            }
        }
    }
    // Closes the databases, so that a failure to close is a failure of the run.
    workers.into_iter().try_for_each(Worker::finish)?;
    Ok(results)
}

/// A process that drives one engine in one layout.
struct Worker {
    engine: &'static Engine,
    layout: Layout,
    process: Child,
    replies: BufReader<ChildStdout>,
}

impl Worker {
    fn start(engine: &'static Engine, layout: Layout, directory: &Path) -> Result<Self> {
        let data: PathBuf = directory.join(format!("{}-{}", engine.name, layout.name()));
        fs::create_dir_all(&data)?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .args(["--worker", engine.name, layout.name()])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let replies = BufReader::new(process.stdout.take().ok_or("no output of the worker")?);
        Ok(Worker { engine, layout, process, replies })
    }

    fn run(&mut self, phase: Phase, round: u32) -> Result<Vec<Sample>> {
        let mut line = String::new();
        let input = self.process.stdin.as_mut().ok_or("no input of the worker")?;
        writeln!(input, "{} {round}", name(phase))?;
        self.replies.read_line(&mut line)?;
        let failed = |what: &str| format!("{} of {}: {what}", name(phase), self.name());
        match serde_json::from_str(&line) {
            Ok(Reply::Samples(samples)) => Ok(samples),
            Ok(Reply::Failed(what)) => Err(failed(&what).into()),
            Err(_) => Err(failed("the worker died").into()),
        }
    }

    fn finish(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        match self.process.wait()?.success() {
            true => Ok(()),
            false => Err(format!("{} failed at its end", self.name()).into()),
        }
    }

    fn name(&self) -> String {
        format!("{} ({})", self.engine.name, self.layout.name())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // After `finish` it is over already; after a failure nobody waits for its answer.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn name(phase: Phase) -> String {
    phase.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
