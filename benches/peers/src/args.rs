//! The options, and which engines and layouts they select.

use crate::engine::{Engine, Layout, Result};
use crate::engines::ENGINES;
use crate::phases::Phase;
use crate::workload::WorkloadArgs;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// siftdb and other embedded stores on the same keys, in one run.
#[derive(Parser, Clone, Debug)]
#[command(name = "peers")]
pub struct Args {
    /// Keys, values and lookups.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Rounds of each phase; the report gives their median and spread.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub rounds: u32,
    /// Engines to compare, by name; by default all that this binary was built with
    /// and that have a selected phase.
    #[arg(long, value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Layouts to measure, by name: own, partitioned, block-based, no-filter; by default all that
    /// an engine has. Each layout has a process and a database of its own, which all exist at the
    /// same time.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub layouts: Vec<Layout>,
    /// Phases to run; by default all but those that say otherwise.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub phases: Vec<Phase>,
    /// Instead of phases, run these workloads of `siftdb bench`: all but `readreverse` and
    /// `deleterandom`. Keys are 16 hex digits. By default an engine's own layout alone is measured.
    #[arg(long, value_delimiter = ',', value_name = "NAME", conflicts_with = "phases")]
    pub workloads: Vec<String>,
    /// Seconds of each workload that does not fill the database.
    #[arg(long, default_value_t = 2.0, requires = "workloads", value_parser = seconds)]
    pub seconds: f64,
    /// Threads of each workload.
    #[arg(long, default_value_t = 1, requires = "workloads")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Write the pictures of the workloads to this file, as one page.
    #[arg(long, requires = "workloads", value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the workloads as comma-separated values to this file.
    #[arg(long, requires = "workloads", value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Memory of the phase `big`, such as 500MiB: it ends if it needs more. Cached pages count.
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    pub memory: Option<u64>,
    /// Keep the processor's shared cache busy: a thread of its own writes an array of this many
    /// megabytes in no order while the run measures. Several times the shared cache are enough.
    #[arg(long, value_name = "MB")]
    pub neighbour: Option<usize>,
    /// Write everything measured to this file.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Where the temporary directory is made; by default where the system makes them.
    #[arg(long)]
    pub directory: Option<PathBuf>,
    /// Drive an engine in a layout, in a directory: for processes that the run itself starts.
    #[arg(long, hide = true, num_args = 3)]
    pub worker: Vec<String>,
    /// The control group that such a process enters.
    #[arg(long, hide = true)]
    pub memory_group: Option<String>,
}

impl Args {
    /// The selected engines, in the order of the columns; without names, those that have one of the
    /// selected phases.
    pub fn selected_engines(&self) -> Result<Vec<&'static Engine>> {
        for name in &self.engines {
            find_engine(name)?;
        }
        let phases = self.selected_phases();
        let chosen = |engine: &&&Engine| match self.engines.is_empty() {
            true => phases.iter().any(|phase| phase.applies(engine, Layout::Own)),
            false => self.engines.iter().any(|name| name == engine.name),
        };
        Ok(ENGINES.iter().filter(chosen).copied().collect())
    }

    /// The selected phases, in the order in which they run.
    pub fn selected_phases(&self) -> Vec<Phase> {
        let chosen = |phase: &Phase| match self.phases.is_empty() {
            true => phase.by_default(),
            false => self.phases.contains(phase),
        };
        Phase::value_variants().iter().copied().filter(chosen).collect()
    }
}

/// The engine of a name.
pub fn find_engine(name: &str) -> Result<&'static Engine> {
    let found = ENGINES.iter().find(|engine| engine.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
        format!("no engine {name}: this binary was built with {}", names.join(", ")).into()
    })
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
        .unwrap_or((text, 0));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes >= 1 << 20).ok_or_else(|| "a size such as 500MiB".into())
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..1e5).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.01 to 100,000".into())
}
