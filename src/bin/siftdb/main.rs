//! The `siftdb` command. This file only dispatches: each subcommand is a file of its own, which
//! takes apart its arguments, calls the library and prints. Nothing of the engine is decided here.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 ok, 1 not
//! found, 2 usage, 3 corruption, 4 I/O or locked, 5 repaired with losses. A closed output
//! (`| head`) ends a command quietly.

// Subcommands first, then what they share: a module uses only what stands below it.
mod demo;
mod delete;
mod explain;
mod filter;
mod get;
mod load;
mod put;
mod repair;
mod scan;
mod sst;
mod stats;
mod verify;

mod args;
mod bars;
mod filter_args;
mod text;
mod numbers;
mod failure;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  `get`: the key is not there
  2  usage: a wrong argument, or a line of input that makes no sense
  3  damaged files, or files of an unknown format
  4  anything else: I/O, no such database, a locked one, figures that do not agree
  5  `repair`: the database is sound again, and some of what it held is lost";

/// An embedded key-value store whose reads ask a filter first, from the command line.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what filters save: four databases of the same keys, the same lookups in each
    Demo(demo::Demo),
    /// Write lines of KEY TAB VALUE into a database
    ///
    /// Lines are written in batches. A line that cannot be used ends the command: the message names
    /// it and says how many lines before it were written. These stay; the others of the file are
    /// not written.
    Load(load::Load),
    /// Print the value of a key
    Get(get::Get),
    /// Write a value under a key
    Put(put::Put),
    /// Delete a key
    Delete(delete::Delete),
    /// Print the entries of a range of keys
    Scan(scan::Scan),
    /// Print what a database holds and did, level by level
    Stats(stats::Stats),
    /// Look a key up and print what that touched, table by table
    Explain(explain::Explain),
    /// Read everything and check it: checksums, order, counts, filters; changes nothing
    Verify(verify::Verify),
    /// Make a damaged database into one that opens, from what its files still hold
    ///
    /// A sound database is not touched. What cannot be used goes to the folder `lost` of the
    /// database and is never deleted. Where entries cannot be read, older versions of their keys
    /// may show, and without a manifest deleted keys may come back: the report says where. The exit
    /// code is 5 if anything is lost, a missing table or log included.
    Repair(repair::Repair),
    /// What filters are and did, what others would take; see `siftdb filter --help`
    #[command(subcommand)]
    Filter(filter::Filter),
    /// Look into single files, without the database and without its lock
    #[command(subcommand)]
    Sst(sst::Sst),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(command) => command.run(),
        Command::Load(command) => command.run(),
        Command::Get(command) => command.run(),
        Command::Put(command) => command.run(),
        Command::Delete(command) => command.run(),
        Command::Scan(command) => command.run(),
        Command::Stats(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Repair(command) => command.run(),
        Command::Filter(command) => command.run(),
        Command::Sst(command) => command.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
