//! The subcommands of `siftdb filter`, one file each.

use crate::failure::Outcome;
use crate::filter::advise::Advise;
use crate::filter::bench::Bench;
use crate::filter::rebuild::Rebuild;
use crate::filter::sim::Sim;
use crate::filter::stats::Stats;
use crate::output::{Output, Shown};
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Filter {
    /// Print the filters of a database, their counters, and what is wrong with them
    Stats(Stats),
    /// Divide memory for filters over the levels, with expected false positives
    Advise(Advise),
    /// Rewrite tables whose filter differs from the arguments
    ///
    /// Tables get a built-in filter of whole keys. Custom filter policies and prefix extractors
    /// cannot be named on the command line; a program restores them with `Db::rebuild_filters`.
    Rebuild(Rebuild),
    /// Compute size and rate of filters by encoding, for given bits or rate; needs no database
    Sim(Sim),
    /// Measure filters of every encoding: time, space, false positives
    Bench(Bench),
}

impl Filter {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        match self {
            Filter::Stats(command) => command.run(output),
            Filter::Advise(command) => command.run(output),
            Filter::Rebuild(command) => command.run(output),
            Filter::Sim(command) => command.run(output),
            Filter::Bench(command) => command.run(output),
        }
    }
}
