//! The `siftdb` command. This file dispatches. Each subcommand is a file of its own: it parses its
//! arguments, calls the library and gives its answer to [`output`].
//!
//! # Output
//!
//! Results go to standard output, everything else to standard error. A closed output (`| head`)
//! ends a command quietly. `siftdb --help` prints `RULES` below: bytes, JSON and exit codes. The
//! fields of each object are at the end of `siftdb COMMAND --help`; a test compares every object
//! with that text. The field `format` is the version of the objects: within a version fields are
//! only added. With `--json`, errors are objects on standard error.

// Subcommands first, then what they share: a module uses only modules below it.
mod bench;
mod checkpoint;
mod count;
mod demo;
mod explain;
mod export;
mod filter;
mod entry;
mod import;
mod keyspace;
mod load;
mod manual;
mod repair;
mod report;
mod scan;
mod stats;
mod verify;
mod sst;
mod sink;
mod exchange;
mod new_database;
mod leveldb;
mod settings;

mod args;
mod bars;
mod cold;
mod figure_text;
mod step;
mod page_args;
mod filter_args;
mod lines;
mod output;
mod text;
mod numbers;
mod interrupt;
mod failure;
mod json;

use clap::{Parser, Subcommand};
use failure::Failure;
use output::Output;
use std::process::ExitCode;

const MORE: &str = "`siftdb --help` has the rules for bytes, JSON and exit codes.";

const RULES: &str = "\
Keyspaces:
  A database has keyspaces, each with keys, tables and settings of its own. --keyspace NAME names
  one. Without it, get, put, delete, scan, count, load, explain, compact, filter advise and
  filter rebuild use the keyspace `default`; stats, settings, flush, filter stats, verify and repair concern all.

While a program writes:
  Commands that only read show one moment of a database that a program has open to write, and say
  so on standard error. What that program has not synced yet is part of it. `stats --watch` goes on
  from moment to moment.

Bytes and text:
  Keys and values given as arguments have no escapes; --escaped reads \\t, \\n, \\\\ and \\xNN
  in them. On a terminal `get` prints a value as a line with such escapes; into a pipe or file
  it prints the bytes and nothing else. `scan` prints KEY TAB VALUE lines with escapes and `load`
  reads them, so every byte survives; --raw on either means no escapes. Files of keys (--input,
  --probe) have no escapes and one key a line.

JSON:
  With --json the result is one object on standard output, or one a line for `scan`,
  `sst dump` and `stats --watch`. `format` is the version of its shape; within a version fields
  are only added. The fields are at the end of `siftdb COMMAND --help`. A field NAME of bytes is a
  string if they are UTF-8; else it is NAME_base64. `what` and `advice` are text for people, and
  so are `title`, `sentence`, `command`, `finding`, `text` and the cells of `rows` in figures.
  An error is an object on standard error, one a line: format, and error with
    kind        not_found, usage, no_database, keyspace_not_found, disagreement, losses, or of
                the database: io, corruption, missing_file, memory_corruption, invalid_options,
                invalid_argument, locked, lock_lost, read_only, opened_read_only, closed,
                keyspace_dropped, follower_overtaken, too_few_descriptors, logs_too_large,
                unsupported_format
    exit_code   as below
    path        the file, or null
    offset      where in it, in bytes, or null
    operation   open, read, write, sync, ..., or null
    what        what happened
    advice      what to do, or null
    line, lines_written   of `load`: the line of input, and how many before it were written

Exit codes:
  0  done
  1  `get`: the key is not there
  2  usage: a wrong argument, or an unusable line of input
  3  damaged files, or files of an unknown format
  4  anything else: I/O, no such database or keyspace, a locked one, counts that disagree
  5  `repair`, `import --salvage`, `load` with bad lines: done, but entries are lost or left out";

/// An embedded key-value store whose reads ask a filter first, from the command line.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_long_help = RULES, after_help = MORE)]
struct Cli {
    /// Print JSON; errors, too
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what filters save: the same keys and lookups with each filter layout
    Demo(demo::Demo),
    /// Measure workloads, with filters on and off by turns; see `siftdb bench --help`
    Bench(Box<bench::command::Bench>),
    /// Write lines of KEY TAB VALUE into a database, as `scan` prints them
    ///
    /// Lines whose keys ascend are loaded in one step, which is fastest; others in batches. An
    /// unusable line ends the command, unless such lines are to be left out: the message names it
    /// and says how many lines before it were written. These stay; the rest is not written.
    ///
    /// Settings (--set) are saved with the keyspace; `siftdb settings --help` has their names.
    Load(load::Load),
    /// Print all entries in a format that other programs read, and `import`
    Export(export::Export),
    /// Write entries from a file, from another store's dump, or from a LevelDB database
    ///
    /// The database is created if it is missing; then it appears whole in the end, or not at all.
    /// A LevelDB database is not changed.
    Import(import::Import),
    /// Print the value of a key, or the entries of several keys
    Get(entry::Get),
    /// Write a value under a key, also from a file
    Put(entry::Put),
    /// Delete keys, a range of keys or all keys of a prefix
    Delete(entry::Delete),
    /// Print the entries of a range of keys, as `load` reads them
    Scan(scan::Scan),
    /// Count the entries of a keyspace, of a range of keys or of a prefix
    Count(count::Count),
    /// List, create and drop keyspaces: keys and settings of their own in one database
    #[command(subcommand, visible_alias = "keyspaces")]
    Keyspace(Keyspace),
    /// Print and change the settings that are saved with the data
    Settings(settings::Settings),
    /// Write entries that are only in the log to tables, which have filters
    Flush(manual::Flush),
    /// Compact all tables, or those with keys of a range
    Compact(manual::Compact),
    /// Make a copy of a database that costs little: tables are linked, not copied
    ///
    /// If TO is an earlier checkpoint of DIR that nobody wrote to, it is brought up to date.
    Checkpoint(checkpoint::Checkpoint),
    /// Make a database from a checkpoint, which stays as it is
    Restore(checkpoint::Restore),
    /// Print the contents and counters of a database, level by level
    Stats(stats::Stats),
    /// Write a page about a database: its tree, its filters, what two lookups touch
    ///
    /// The database is opened read-only. Without -o or --csv, only the sentences of the page are
    /// printed; --json prints every figure.
    Report(report::Report),
    /// Look up a key and print what that touched, table by table
    Explain(explain::Explain),
    /// Check everything: checksums, order, counts, filters; changes nothing
    Verify(verify::Verify),
    /// Make a damaged database sound, from what can be read of its files
    ///
    /// A sound database is not changed. Unusable files move to the folder `lost` of the database
    /// and are never deleted. Where entries are lost, older versions of their keys may appear, and
    /// without a manifest deleted keys may return: the report says where. The exit code is 5 if
    /// anything is lost, including a missing table or log.
    Repair(repair::Repair),
    /// Report, advise, rebuild and measure filters; see `siftdb filter --help`
    #[command(subcommand)]
    Filter(Filter),
    /// Print and check single files, without opening the database
    #[command(subcommand)]
    Sst(Sst),
}

#[derive(Subcommand)]
enum Keyspace {
    /// Print the keyspaces of a database: contents and settings
    List(keyspace::List),
    /// Create a keyspace, with settings if any are named
    Create(keyspace::Create),
    /// Drop a keyspace with all its entries
    Drop(keyspace::Drop),
}

#[derive(Subcommand)]
enum Filter {
    /// Print the filters of a database, their counters, and what is wrong with them
    Stats(filter::stats::Stats),
    /// Divide memory for filters over the levels, with expected false positives
    Advise(filter::advise::Advise),
    /// Rewrite tables whose filter differs from the arguments
    ///
    /// Without arguments, the saved settings say which filter tables should have. The filter of the
    /// arguments is saved, so later tables get it too. Custom filter policies and prefix extractors
    /// cannot be named on the command line; a program restores them with `Db::rebuild_filters`.
    Rebuild(filter::rebuild::Rebuild),
    /// Compute size and rate of filters by encoding, for given bits or rate; needs no database
    Sim(filter::sim::Sim),
    /// Measure filters of every encoding: time, space, false positives
    Bench(filter::bench::Bench),
}

#[derive(Subcommand)]
enum Sst {
    /// Print the layout of a table: its blocks, offsets and sizes
    Layout(sst::Layout),
    /// Print a table, a write-ahead log, a manifest or CURRENT as text
    Dump(sst::Dump),
    /// Check every byte of a table, or of all tables of a database
    Verify(sst::Verify),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => return refused(&refusal),
    };
    let output = Output::new(cli.json);
    let outcome = match cli.command {
        Command::Demo(command) => command.run(output),
        Command::Bench(command) => command.run(output),
        Command::Load(command) => command.run(output),
        Command::Export(command) => command.run(output),
        Command::Import(command) => command.run(output),
        Command::Get(command) => command.run(output),
        Command::Put(command) => command.run(output),
        Command::Delete(command) => command.run(output),
        Command::Scan(command) => command.run(output),
        Command::Count(command) => command.run(output),
        Command::Keyspace(Keyspace::List(command)) => command.run(output),
        Command::Keyspace(Keyspace::Create(command)) => command.run(output),
        Command::Keyspace(Keyspace::Drop(command)) => command.run(output),
        Command::Settings(command) => command.run(output),
        Command::Flush(command) => command.run(output),
        Command::Checkpoint(command) => command.run(output),
        Command::Restore(command) => command.run(output),
        Command::Compact(command) => command.run(output),
        Command::Stats(command) => command.run(output),
        Command::Report(command) => command.run(output),
        Command::Explain(command) => command.run(output),
        Command::Verify(command) => command.run(output),
        Command::Repair(command) => command.run(output),
        Command::Filter(Filter::Stats(command)) => command.run(output),
        Command::Filter(Filter::Advise(command)) => command.run(output),
        Command::Filter(Filter::Rebuild(command)) => command.run(output),
        Command::Filter(Filter::Sim(command)) => command.run(output),
        Command::Filter(Filter::Bench(command)) => command.run(output),
        Command::Sst(Sst::Layout(command)) => command.run(output),
        Command::Sst(Sst::Dump(command)) => command.run(output),
        Command::Sst(Sst::Verify(command)) => command.run(output),
    };
    match outcome {
        Ok(_shown) => ExitCode::SUCCESS,
        Err(failure) => {
            // After a signal, commands fail because their files are being removed.
            interrupt::wait_if_interrupted();
            failure.report(cli.json)
        }
    }
}

/// Wrong arguments, or a request for help.
fn refused(refusal: &clap::Error) -> ExitCode {
    let json = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    if refusal.use_stderr() && json.into_iter().any(|argument| argument == "--json") {
        let text = refusal.to_string();
        let what = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        return Failure::usage(what).report(true);
    }
    refusal.exit()
}
