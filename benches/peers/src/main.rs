//! siftdb and other embedded stores on the same keys, in one run.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml` measures what README.md shows;
//! `-- --help` lists the options. Each engine and layout runs in a process of its own (this binary
//! again, with `--worker`), so that neither heaps nor caches are shared. The first process tells
//! them one after the other what to do. So phases alternate between engines: A B C A B C.
//!
//! - `args`, `main`: options; which of the two roles this process has
//! - `runner`, `report`, `machine`: the first process: alternation, tables and JSON, versions
//! - `rows`: every row of the report, with the budgets
//! - `worker`, `phases`: the others: one round of one phase at a time
//! - `reads`, `cold`, `big`, `writes`, `sustained`, `large_values`, `writers`, `transactions`: what
//!   the phases do
//! - `databases`, `clock`, `timed`, `memory_group`: what the phases need: databases in the right
//!   state, time, and a bound of memory
//! - `sample`, `tally`: a figure, and what was found
//! - `neighbour`: a thread that keeps the shared cache busy, if asked for
//! - `workloads`: another mode, the workloads and the report of `siftdb bench`
//! - `workload`: keys and values; `engine`, `engines`: what an engine is, and all of them

mod args;
mod big;
mod clock;
mod cold;
mod databases;
mod engine;
mod engines;
mod large_values;
mod machine;
mod memory_group;
mod neighbour;
mod phases;
mod reads;
mod report;
mod rows;
mod runner;
mod sample;
mod sustained;
mod tally;
mod timed;
mod transactions;
mod worker;
mod workload;
mod workloads;
mod writers;
mod writes;

use crate::engine::Result;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &args::Args) -> Result<()> {
    if let [engine, layout, directory] = args.worker.as_slice() {
        return worker::serve(engine, layout, directory.as_ref(), args);
    }
    if !args.workloads.is_empty() {
        return workloads::measure(args);
    }
    let results = runner::measure(args)?;
    report::print(args, &results);
    args.json.as_ref().map_or(Ok(()), |file| report::write_json(args, &results, file))
}
