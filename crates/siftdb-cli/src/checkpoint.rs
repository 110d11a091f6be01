//! `siftdb checkpoint DIR TO` and `siftdb restore CHECKPOINT DIR`: a database at one moment, and
//! back.
//!
//! A checkpoint is a database like any other. `checkpoint` brings one up to date that nobody wrote
//! to. `restore` reads one without changing it, and makes a new database of it.

use crate::args::{Database, options};
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Shown};
use crate::text::counted;
use clap::Args;
use siftdb::CheckpointReport;
use siftdb_cli::experiment::bytes;
use std::io::Write;
use std::path::{Path, PathBuf};

result! {
    struct Copied of made: &CheckpointReport {
        /// every write up to this sequence number is in it
        last_sequence: u64;
        /// tables in it, and their bytes
        tables, bytes: u64;
        /// of these, what was linked or copied now
        tables_new, bytes_new: u64;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Copied>())]
pub struct Checkpoint {
    #[command(flatten)]
    database: Database,
    /// Directory of the checkpoint: a new one, or that of an earlier checkpoint
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Only this keyspace; may be repeated. `default` is there in any case, and empty if others are
    /// named
    #[arg(long = "keyspace", value_name = "NAME")]
    keyspaces: Vec<String>,
}

impl Checkpoint {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        differ(&self.database.directory, &self.to)?;
        let names: Vec<&str> = self.keyspaces.iter().map(String::as_str).collect();
        let made = self.database.write(options(), |db| match &names[..] {
            [] => Ok(db.checkpoint(&self.to)?),
            names => Ok(db.checkpoint_with(&self.to, names)?),
        })?;
        show(output, "checkpoint", &self.to, made)
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Copied>())]
pub struct Restore {
    /// Directory of the checkpoint
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,
    /// Directory of the database: a new one
    #[arg(value_name = "DIR")]
    to: PathBuf,
}

impl Restore {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        differ(&self.checkpoint, &self.to)?;
        let checkpoint = Database { directory: self.checkpoint };
        let opened = options().open_read_only(&checkpoint.directory);
        let made = checkpoint.with(opened, None, |db| Ok(db.checkpoint(&self.to)?))?;
        show(output, "database", &self.to, made)
    }
}

/// Refuses a copy of a directory into itself. Opening would say that the database is locked.
fn differ(from: &Path, to: &Path) -> Outcome {
    let same = from.canonicalize().ok().zip(to.canonicalize().ok());
    if same.is_some_and(|(from, to)| from == to) {
        let what = format!("{} and {} are the same directory", from.display(), to.display());
        return Err(Failure::usage(what));
    }
    Ok(())
}

fn show(output: Output, what: &str, to: &Path, made: CheckpointReport) -> Outcome<Shown> {
    output.show(&Copied::of(&made), |out| {
        let (tables, new) = (counted(made.tables, "table"), counted(made.tables_new, "table"));
        let (size, size_new) = (bytes(made.bytes), bytes(made.bytes_new));
        writeln!(out, "{what} {}: {tables}, {size}; {new} new, {size_new}", to.display())
    })
}
