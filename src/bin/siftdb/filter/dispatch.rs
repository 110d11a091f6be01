//! The subcommands of `siftdb filter`; each is a file beside this one.

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
    /// What the filters of a database are, what they did, and what is wrong with them
    Stats(Stats),
    /// How to spend memory on filters: bits by level, expected false positives now and then
    Advise(Advise),
    /// Write tables anew whose filter is not the one asked for
    ///
    /// Tables get a built-in filter of whole keys: a program's own policy or prefixes, which no
    /// word here names, come back when the program itself calls `Db::rebuild_filters`.
    Rebuild(Rebuild),
    /// What filters of given bits or rate take and let through, by encoding; needs no database
    Sim(Sim),
    /// Build and ask filters of every encoding: time, space, false positives
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
