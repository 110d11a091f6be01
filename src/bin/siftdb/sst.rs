//! `siftdb sst layout|dump|verify`

use crate::failure::{Failure, Outcome};
use crate::text::{output, print_json};
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
    /// Any file of a database
    file: PathBuf,
    /// Of a table, only the data block of this number
    #[arg(long)]
    block: Option<usize>,
    /// At most this many entries
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
        let tables = tables_of(&self.path)?;
        let mut out = output();
        let mut reports = Vec::new();
        let mut first_failure = None;
        for table in &tables {
            let name = table.display().to_string();
            match inspect::verify_table(&disk(), table) {
                Ok(facts) => {
                    if !self.json {
                        let (entries, blocks) = (facts.entries, facts.data_blocks);
                        writeln!(out, "{name}: ok, {entries} entries in {blocks} data blocks")?;
                    }
                    reports.push(json!({ "file": name, "ok": true, "table": facts_json(&facts) }));
                }
                Err(error) => {
                    if !self.json {
                        writeln!(out, "{name}: {error}")?;
                    }
                    let error_text = error.to_string();
                    reports.push(json!({ "file": name, "ok": false, "error": error_text }));
                    first_failure.get_or_insert(error);
                }
            }
        }
        if !self.json {
            writeln!(out, "{} tables", tables.len())?;
        }
        out.flush()?;
        drop(out);
        if self.json {
            print_json(&json!({ "tables": reports }))?;
        }
        first_failure.map_or(Ok(()), |error| Err(Failure::Database(error)))
    }
}

fn tables_of(path: &Path) -> Outcome<Vec<PathBuf>> {
    let env = disk();
    let metadata = env.metadata(path).map_err(|source| Failure::io(path, source))?;
    if metadata.kind != FileKind::Directory {
        return Ok(vec![path.to_path_buf()]);
    }
    let listed = env.list(path).map_err(|source| Failure::io(path, source))?;
    let tables = listed.iter().filter(|file| file.name.ends_with(".sst"));
    let mut tables: Vec<PathBuf> = tables.map(|file| path.join(&file.name)).collect();
    tables.sort();
    Ok(tables)
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
        "filter_layout": facts.filter_layout,
        "smallest_sequence": facts.smallest_sequence,
        "largest_sequence": facts.largest_sequence,
    })
}
