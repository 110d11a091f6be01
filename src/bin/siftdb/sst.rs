//! `siftdb sst layout|dump|verify`: looks into files, by `siftdb::inspect`, without the lock.
//!
//! `verify` of a directory asks CURRENT and the manifest which tables there have to be; files that
//! they do not name are not counted, those that are missing are damage. Tables that are in order
//! are listed on standard output with the count at the end; each one that is not is a sentence on
//! standard error, and the exit code is 3 if any is damaged. `--json` has both in one object.

use crate::failure::{Failure, Outcome};
use crate::text::{counted, output, print_json};
use clap::{Args, Subcommand};
use serde_json::json;
use siftdb::env::{DiskEnv, Env, FileKind};
use siftdb::inspect;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Subcommand)]
pub enum Sst {
    /// What stands where in a table
    Layout(Layout),
    /// The contents of a table, a write-ahead log, a manifest or CURRENT, as text
    Dump(Dump),
    /// Check every byte of a table, or of all tables of a database
    Verify(Verify),
}

#[derive(Args)]
pub struct Layout {
    /// A table (`.sst`)
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct Dump {
    /// A table, a write-ahead log, a manifest or CURRENT, also if renamed
    file: PathBuf,
    /// Of a table, only the data block of this number, counted from 0
    #[arg(long)]
    block: Option<usize>,
    /// Of a table or a log, at most this many entries
    #[arg(long)]
    limit: Option<u64>,
}

#[derive(Args)]
pub struct Verify {
    /// A table, or the directory of a database
    path: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn disk() -> Arc<dyn Env> {
    Arc::new(DiskEnv::new())
}

impl Sst {
    pub fn run(self) -> Outcome {
        match self {
            Sst::Layout(command) => command.run(),
            Sst::Dump(command) => command.run(),
            Sst::Verify(command) => command.run(),
        }
    }
}

impl Layout {
    fn run(self) -> Outcome {
        if self.json {
            let facts = inspect::table_facts(&disk(), &self.file)?;
            return print_json(&facts_json(&facts));
        }
        let mut out = output();
        inspect::layout(&disk(), &self.file, &mut out)?;
        Ok(out.flush()?)
    }
}

impl Dump {
    fn run(self) -> Outcome {
        let mut options = inspect::DumpOptions::default();
        options.block = self.block;
        options.entries_max = self.limit.unwrap_or(u64::MAX);
        let mut out = output();
        inspect::dump(&disk(), &self.file, &options, &mut out)?;
        Ok(out.flush()?)
    }
}

impl Verify {
    fn run(self) -> Outcome {
        let checks = checks_of(&self.path)?;
        let mut out = output();
        let mut reports = Vec::new();
        let mut failures = Vec::new();
        for (path, check) in checks {
            let name = path.display().to_string();
            match check() {
                Ok(None) => {}
                Ok(Some(facts)) => {
                    if !self.json {
                        let blocks = counted(facts.data_blocks, "data block");
                        let entries = match facts.entries {
                            1 => "1 entry".into(),
                            entries => format!("{entries} entries"),
                        };
                        writeln!(out, "{name}: ok, {entries} in {blocks}")?;
                    }
                    reports.push(json!({ "file": name, "ok": true, "table": facts_json(&facts) }));
                }
                Err(error) => {
                    let error_text = error.to_string();
                    reports.push(json!({ "file": name, "ok": false, "error": error_text }));
                    failures.push(error);
                }
            }
        }
        if !self.json {
            let tables = counted(reports.len() as u64, "table");
            match failures.len() {
                0 => writeln!(out, "{tables}, all in order")?,
                bad => writeln!(out, "{tables}, {bad} not in order")?,
            }
        }
        out.flush()?;
        drop(out);
        if self.json {
            print_json(&json!({ "tables": reports }))?;
        }
        if failures.is_empty() { Ok(()) } else { Err(Failure::Tables(failures)) }
    }
}

/// A check to be done. `None`: a running database has replaced the table meanwhile.
type Check = Box<dyn FnOnce() -> siftdb::Result<Option<inspect::TableFacts>>>;

fn checks_of(path: &Path) -> Outcome<Vec<(PathBuf, Check)>> {
    let env = disk();
    let metadata = env.metadata(path).map_err(|source| Failure::io(path, source))?;
    if metadata.kind != FileKind::Directory {
        let table = path.to_path_buf();
        let check: Check = Box::new(move || inspect::verify_table(&env, &table).map(Some));
        return Ok(vec![(path.to_path_buf(), check)]);
    }
    let tables = inspect::live_tables(&env, path)?;
    let tables = tables.ok_or_else(|| Failure::NoDatabase(path.to_path_buf()))?;
    let checks = tables.into_iter().map(|table| {
        let (env, path) = (Arc::clone(&env), table.path.clone());
        let check: Check = Box::new(move || inspect::verify_live_table(&env, &table));
        (path, check)
    });
    Ok(checks.collect())
}

fn facts_json(facts: &inspect::TableFacts) -> serde_json::Value {
    json!({
        "bytes": facts.bytes,
        "table_id": format!("{:016x}", facts.table_id),
        "entries": facts.entries,
        "tombstones": facts.tombstones,
        "data_blocks": facts.data_blocks,
        "data_bytes": facts.data_bytes,
        "index_bytes": facts.index_bytes,
        "filter_bytes": facts.filter_bytes,
        "filter_partitions": facts.filter_partitions,
        "filter_policy": facts.filter_policy,
        "filter_encoding": facts.filter_encoding,
        "filter_layout": facts.filter_layout,
        "smallest_sequence": facts.smallest_sequence,
        "largest_sequence": facts.largest_sequence,
    })
}
