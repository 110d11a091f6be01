//! The `siftdb` command. This file dispatches. Each subcommand is a file of its own: it parses its
//! arguments, calls the library and gives its answer to [`output`].
//!
//! # Output
//!
//! Results go to standard output, everything else to standard error. A closed output (`| head`)
//! ends a command quietly. `topics.rs` has the rules for bytes, JSON and exit codes. Each command
//! fills a struct, which is its JSON; the comments of the fields are at the end of `siftdb COMMAND
//! --help` (`described.rs`). A test compares every object with that text, and docs/json.md, which a
//! test writes, has all of them. The field `format` is the version of the objects: within
//! a version fields are only added. With `--json`, errors are objects on standard error.

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
mod foreign_table;
mod shell;
mod topics;
mod rocksdb;
mod sink;
mod exchange;
mod new_database;
mod leveldb;
mod foreign_lock;
mod settings;

mod args;
mod bars;
mod memory_args;
mod figure_text;
mod step;
mod page_args;
mod whole_file;
mod filter_args;
mod lines;
mod output;
mod fold;
mod numbers;
mod interrupt;
mod failure;
mod json;
mod text;
mod described;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use output::Output;
use std::process::ExitCode;

/// The commands by what people do with them, as `siftdb --help` lists them.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Entries", &["get", "put", "delete", "scan", "count"]),
    ("Data in and out", &["load", "export", "import"]),
    ("Keyspaces and tables", &["keyspace", "settings", "flush", "compact"]),
    ("Backup and repair", &["checkpoint", "restore", "verify", "repair"]),
    ("Filters and figures", &["stats", "explain", "report", "filter", "sst", "demo", "bench"]),
    ("Help", &["help", "completions", "man"]),
];

/// An embedded key-value store whose reads ask a filter first.
#[derive(Parser)]
#[command(name = "siftdb", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    /// Print JSON; errors, too
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what filters save, with each filter layout
    Demo(demo::Demo),
    /// Measure workloads, with filters on and off by turns
    Bench(Box<bench::command::Bench>),
    /// Write lines of KEY TAB VALUE, as `scan` prints them
    ///
    /// Lines whose keys ascend are loaded in one step, which is fastest; others in batches. An
    /// unusable line ends the command, unless such lines are to be left out: the message names it
    /// and says how many lines before it were written. These stay; the rest is not written.
    ///
    /// Settings (--set) are saved with the keyspace; `siftdb settings --help` has their names.
    Load(load::Load),
    /// Print all entries in a format that other programs read
    Export(export::Export),
    /// Write entries from a file or from another store's files
    ///
    /// A database that is missing, or whose directory is empty, appears whole in the end, or not
    /// at all. In a mount point it is written in place. Databases of LevelDB and RocksDB are not
    /// changed.
    Import(import::Import),
    /// Print the value of a key, or the entries of several keys
    Get(entry::Get),
    /// Write a value under a key, also from a file
    Put(entry::Put),
    /// Delete keys, a range or a prefix
    Delete(entry::Delete),
    /// Print the entries of all keys, a range or a prefix
    Scan(scan::Scan),
    /// Count the entries of all keys, a range or a prefix
    Count(count::Count),
    /// List, create and drop keyspaces
    #[command(subcommand, visible_alias = "keyspaces")]
    Keyspace(Keyspace),
    /// Print and change the settings that are saved with the data
    Settings(settings::Settings),
    /// Write entries that are only in the log to tables
    Flush(manual::Flush),
    /// Compact all tables, or those with keys of a range
    Compact(manual::Compact),
    /// Make a copy of a database: tables are linked, not copied
    ///
    /// If TO is an earlier checkpoint of DIR that nobody wrote to, it is brought up to date.
    Checkpoint(checkpoint::Checkpoint),
    /// Make a database from a checkpoint
    Restore(checkpoint::Restore),
    /// Print contents and counters of a database, level by level
    Stats(stats::Stats),
    /// Write a page about a database: its tree, filters and lookups
    ///
    /// The database is opened read-only. Without -o or --csv, only the sentences of the page are
    /// printed; --json prints every figure.
    Report(report::Report),
    /// Look up a key and print what that touched, table by table
    Explain(explain::Explain),
    /// Check everything: checksums, order, counts, filters
    Verify(verify::Verify),
    /// Make a damaged database sound, and say what is lost
    ///
    /// A sound database is not changed. Unusable files move to the folder `lost` of the database
    /// and are never deleted. Where entries are lost, older versions of their keys may appear, and
    /// without a manifest deleted keys may return: the report says where. The exit code is 5 if
    /// anything is lost, including a missing table or log, or if no manifest could be used: then
    /// nothing says what is missing.
    Repair(repair::Repair),
    /// Report, advise, rebuild and measure filters
    #[command(subcommand)]
    Filter(Filter),
    /// Print and check single files, also tables of LevelDB and RocksDB
    #[command(subcommand)]
    Sst(Sst),
    /// Print the help of a command, or a topic: `siftdb help topics`
    Help(topics::Help),
    /// Print a script that completes commands and options in a shell
    Completions(shell::Completions),
    /// Print the manual page, or write those of all commands
    Man(shell::ManPages),
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
    ///
    /// DIR may be of LevelDB or RocksDB, or one of their tables. For a database of these, --probe
    /// also simulates the lookups with a block cache of --cache: what they read with the settings
    /// as they are, and with others. --keyspace is a column family then.
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
    /// Print the layout of a table, also of LevelDB or RocksDB: its blocks, offsets and sizes
    Layout(sst::Layout),
    /// Print a table, a write-ahead log, a manifest or CURRENT as text
    Dump(sst::Dump),
    /// Check every byte of a table, or of all tables of a database
    Verify(sst::Verify),
}

/// Runs the command of a variant of `$group`, or does what follows the patterns.
macro_rules! run {
    ($command:expr, $output:ident, $group:ident: $($variant:ident)+
        $(, $other:pat => $run:expr)*) => {
        match $command {
            $($group::$variant(command) => command.run($output),)+
            $($other => $run,)*
        }
    };
}

/// The whole command, with help as wide as the terminal.
fn root() -> clap::Command {
    let width = fold::columns().min(fold::HELP_COLUMNS_MAX);
    let root = fitted(Cli::command(), width);
    let help = root_help(&root, width);
    root.override_help(help)
}

/// `command` with help of `width` columns, subcommands included.
fn fitted(command: clap::Command, width: usize) -> clap::Command {
    let more = command.get_after_long_help().map(|more| fold::reflowed(&more.to_string(), width));
    let command = match more {
        Some(more) => command.after_long_help(more),
        None => command,
    };
    command
        .term_width(width)
        .disable_help_subcommand(true)
        .mut_subcommands(|command| fitted(command, width))
}

/// All commands on one screen, in lines of at most `width` columns.
fn root_help(root: &clap::Command, width: usize) -> String {
    let (header, literal) = (root.get_styles().get_header(), root.get_styles().get_literal());
    let about = root.get_about().map(|about| about.to_string()).unwrap_or_default();
    let about = fold::folded(&about, width);
    let mut text = format!("{about}\n\n{header}Usage:{header:#} {literal}siftdb{literal:#} ");
    text.push_str("[--json] COMMAND ...\n");
    for (group, names) in GROUPS {
        text.push_str(&format!("{header}{group}:{header:#}\n"));
        for name in names {
            let about = root.find_subcommand(name).and_then(|command| command.get_about());
            let about = about.map(|about| about.to_string()).unwrap_or_default();
            let line = fold::folded(&format!("  {name:<11}  {about}\n"), width);
            // Colored after it is folded: escape codes take no columns.
            text.push_str(&line.replacen(name, &format!("{literal}{name}{literal:#}"), 1));
        }
    }
    let more = "\n--json prints JSON, also of errors; --version the version. More: `siftdb help\n\
                COMMAND`, and `siftdb help topics` for formats, exit codes and the like.\n";
    text + &fold::reflowed(more, width)
}

fn main() -> ExitCode {
    let root = root();
    let parsed = root.clone().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(refusal) => return refused(&refusal),
    };
    let output = Output::new(cli.json);
    let outcome = run!(cli.command, output, Command: Demo Bench Load Export Import Get Put Delete
        Scan Count Settings Flush Compact Checkpoint Restore Stats Report Explain Verify Repair,
        Command::Keyspace(command) => run!(command, output, Keyspace: List Create Drop),
        Command::Filter(command) => run!(command, output, Filter: Stats Advise Rebuild Sim Bench),
        Command::Sst(command) => run!(command, output, Sst: Layout Dump Verify),
        Command::Help(command) => command.run(output, &root),
        Command::Completions(command) => command.run(output, &root),
        // Manual pages are the same in every terminal.
        Command::Man(command) =>
            command.run(output, &fitted(Cli::command(), fold::HELP_COLUMNS_MAX)));
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
    let json = json.into_iter().any(|argument| argument == "--json");
    if !refusal.use_stderr() {
        return match Output::new(json).show_help(refusal) {
            Ok(_shown) => ExitCode::SUCCESS,
            Err(failure) => failure.report(json),
        };
    }
    if json {
        // What is wrong, in a line: without the usage and the tips after it.
        let text = refusal.to_string();
        let what = text.split("\n\n").next().unwrap_or_default();
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        return Failure::usage(what.trim_start_matches("error: ")).report(true);
    }
    // There is no other place to report an error of standard error.
    let _ = refusal.print();
    ExitCode::from(2)
}
