//! The subcommands of `siftdb filter`; each is a file beside this one.

use crate::failure::Outcome;
use crate::filter::bench::Bench;
use crate::filter::sim::Sim;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Filter {
    /// What filters of given bits or rate take and let through, by encoding; needs no database
    Sim(Sim),
    /// Build and ask filters of every encoding: time, space, false positives
    Bench(Bench),
}

impl Filter {
    pub fn run(self) -> Outcome {
        match self {
            Filter::Sim(command) => command.run(),
            Filter::Bench(command) => command.run(),
        }
    }
}
