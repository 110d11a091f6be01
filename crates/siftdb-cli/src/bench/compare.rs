//! `siftdb bench compare A.json B.json`: what differs between two benchmarks beyond the noise.
//!
//! Each file has one or more answers of `siftdb bench --json`, one after the other. Two programs
//! are compared by running them by turns, each adding to its own file.

use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::json::What;
use crate::lines::open_lines;
use crate::output::{Output, Shown, Text};
use clap::Args;
use serde_json::{Deserializer, Value};
use siftdb_cli::experiment::Unit;
use siftdb_cli::experiment::bench::{Comparison, Difference, Sample, compare, samples};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

result! {
    /// Each file has answers of `siftdb bench --json`, one after the other. To compare two programs
    /// or machines fairly, run them by turns:
    ///   for i in 1 2 3 4 5 6 7 8 9 10; do
    ///     old/siftdb bench readrandom --json >> A.json
    ///     new/siftdb bench readrandom --json >> B.json
    ///   done
    ///
    struct Compared of comparison: &Comparison {
        /// pairs of rounds that a figure needs
        rounds_needed: usize;
        /// whether the rounds of both files were made by turns
        by_turns: bool = comparison.is_by_turns;
        /// one for each figure that both files have:
        compared: Vec<Pair> = comparison.figures.iter().map(Pair::of).collect();
        /// what only one file has: what of each
        unmatched: Vec<What> = comparison.unmatched.iter().map(|one| What::of(one)).collect();
    }

    struct Pair of difference: &Difference {
        /// what was run
        what: String = difference.name.clone();
        /// p50_nanos, p99_nanos, typical_nanos or blocks_read_per_operation of it
        figure: String;
        /// the medians of the files
        first, second: f64;
        /// pairs of rounds
        rounds: usize;
        /// the median of second / first; null with too few rounds
        ratio: Option<f64> = difference.ratio.map(|ratio| ratio.median).filter(is_finite);
        low: Option<f64> = difference.ratio.map(|ratio| ratio.low).filter(is_finite);
        /// the ends of its interval
        high: Option<f64> = difference.ratio.map(|ratio| ratio.high).filter(is_finite);
        /// whether the interval excludes 1: true in at most 5 of 100 comparisons of a thing with
        /// itself, all figures together
        differs: bool = difference.is_certain();
    }
}

/// JSON has no infinity: a figure that was zero has no ratio.
fn is_finite(number: &f64) -> bool {
    number.is_finite()
}

#[derive(Args)]
#[command(after_long_help = help::<Compared>())]
pub struct Compare {
    /// The first answers
    #[arg(value_name = "A.json")]
    first: PathBuf,
    /// The second answers
    #[arg(value_name = "B.json")]
    second: PathBuf,
}

impl Compare {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let comparison = compare(&read(&self.first)?, &read(&self.second)?);
        if comparison.figures.is_empty() {
            return Err(Failure::usage(
                "the files have no workload with the same settings in common",
            ));
        }
        output.show(&Compared::of(&comparison), |out| print(&comparison, out))
    }
}

fn read(path: &Path) -> Outcome<Vec<Sample>> {
    let (lines, _) = open_lines(path)?;
    let refuse = |what: String| Failure::usage(format!("{}: {what}", path.display()));
    let mut all = Vec::new();
    for document in Deserializer::from_reader(lines).into_iter::<Value>() {
        let document = document.map_err(|error| {
            refuse(format!("{error}; it takes answers of `siftdb bench --json`"))
        })?;
        all.extend(samples(&document).map_err(refuse)?);
    }
    match all.is_empty() {
        true => Err(refuse("no runs; it takes answers of `siftdb bench --json`".into())),
        false => Ok(all),
    }
}

fn print(comparison: &Comparison, out: &mut Text<'_>) -> io::Result<()> {
    let mut last = "";
    for one in &comparison.figures {
        if one.name != last {
            writeln!(out, "{}", one.name)?;
            last = &one.name;
        }
        let unit = if one.figure.ends_with("_nanos") { Unit::Nanos } else { Unit::Number };
        let (first, second) = (unit.print(one.first), unit.print(one.second));
        let verdict = match one.ratio {
            None => format!("{} rounds are too few", one.rounds),
            Some(ratio) => {
                let interval =
                    format!("{:.3} ({:.3} to {:.3})", ratio.median, ratio.low, ratio.high);
                let differs = if one.is_certain() { "DIFFERS" } else { "no difference" };
                format!("{interval}  {differs}")
            }
        };
        writeln!(out, "  {:<26}{first:>10} {second:>10}  {verdict}", one.figure)?;
    }
    if comparison.figures.iter().any(|one| one.ratio.is_none()) {
        writeln!(out, "at least {} rounds are needed: --rounds", comparison.rounds_needed)?;
    }
    if !comparison.is_by_turns {
        writeln!(
            out,
            "the rounds were not made by turns: a machine that changed between them shows as a \
             difference"
        )?;
    }
    comparison.unmatched.iter().try_for_each(|name| writeln!(out, "only in one file: {name}"))
}
