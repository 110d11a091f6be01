//! The first process: starts a worker for each engine and layout and alternates between them.
//!
//! For each phase and each round, every worker that has the phase runs it once, one after the
//! other. Data goes to a temporary directory that is removed at the end, failed or not.

use crate::args::Args;
use crate::engine::{Engine, Layout, Result, name};
use crate::memory_group::MemoryGroup;
use crate::neighbour::Neighbour;
use crate::phases::Phase;
use crate::rows::Row;
use crate::sample::Sample;
use crate::worker::Reply;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// All samples of a run, with the layout and the engine of each.
#[derive(Debug, Default)]
pub struct Results(Vec<(Layout, &'static str, Sample)>);

impl Results {
    /// What was measured of a row for an engine, in the order of the rounds.
    pub fn rounds(&self, row: &Row, engine: &str) -> Vec<&Sample> {
        let of_row = |(layout, name, sample): &&(Layout, &str, Sample)| {
            *layout == row.layout && *name == engine && sample.row == row.id
        };
        self.0.iter().filter(of_row).map(|(_, _, sample)| sample).collect()
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
    let _neighbour = args.neighbour.map(Neighbour::start);
    let mut results = Results::default();
    for phase in phases {
        for round in 1..=args.rounds {
            for worker in workers.iter_mut().filter(|w| phase.applies(w.engine, w.layout)) {
                eprintln!("{}, round {round}: {}", name(phase), worker.name());
                let samples = if phase == Phase::Memory {
                    let folder = directory.path().join("fresh");
                    let samples =
                        Worker::start(worker.engine, worker.layout, &folder)?.run(phase, round);
                    fs::remove_dir_all(folder)?;
                    samples?
                } else if phase == Phase::Big {
                    worker.run(phase, round)?;
                    in_bounded_memory(args, |group| {
                        let mut bounded = Worker::start_with(
                            worker.engine,
                            worker.layout,
                            directory.path(),
                            &["--memory-group", group],
                        )?;
                        let samples = bounded.run(phase, round)?;
                        bounded.finish().map(|()| samples)
                    })?
                } else {
                    worker.run(phase, round)?
                };
                let named = |sample| (worker.layout, worker.engine.name, sample);
                results.0.extend(samples.into_iter().map(named));
            }
        }
    }
    // Closes the databases, so that a failure to close is a failure of the run.
    workers.into_iter().try_for_each(Worker::finish)?;
    Ok(results)
}

/// Calls `run` with the name of a control group, which has the memory that `args` say.
fn in_bounded_memory<T>(args: &Args, run: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let memory_bytes = args.memory.ok_or("the phase `big` needs --memory, such as 500MiB")?;
    let name = format!("siftdb-peers-{}", std::process::id());
    let group = MemoryGroup::named(&name);
    group.create(memory_bytes)?;
    let done = run(&name);
    // The process has ended, but the system may still count it for a moment.
    let removed = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        group.remove().ok()
    });
    done.and_then(|done| removed.map(|()| done).ok_or("a control group stays".into()))
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
        Worker::start_with(engine, layout, directory, &[])
    }

    fn start_with(
        engine: &'static Engine,
        layout: Layout,
        directory: &Path,
        more: &[&str],
    ) -> Result<Self> {
        let data: PathBuf = directory.join(format!("{}-{}", engine.name, name(layout)));
        fs::create_dir_all(&data)?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .args(more)
            .args(["--worker", engine.name, &name(layout)])
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
        let reply = serde_json::from_str(&line).unwrap_or(Reply::Err("the worker died".into()));
        reply.map_err(|what| failed(&what).into())
    }

    fn finish(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        match self.process.wait()?.success() {
            true => Ok(()),
            false => Err(format!("{} failed at its end", self.name()).into()),
        }
    }

    fn name(&self) -> String {
        format!("{} ({})", self.engine.name, name(self.layout))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // After `finish` it is over already; after a failure nobody waits for its answer.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
