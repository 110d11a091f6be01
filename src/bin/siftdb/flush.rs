//! `siftdb flush DIR`: writes entries that are only in the log to tables.
//!
//! Filters, `siftdb sst` and most figures are about tables. Entries stay in the log until the write
//! buffer is full, so a small database may have no table before a flush.

use crate::args::Database;
use crate::bars::watched;
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries};
use clap::Args;
use serde_json::json;
use siftdb::Options;
use siftdb::experiment::bytes;
use std::io::Write;

const JSON: &str = "\
JSON fields:
  format          1
  log_entries     entries that were only in the log, tombstones included
  bytes_written   bytes of the tables that have them now
  tables          tables of the database now";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Flush {
    #[command(flatten)]
    database: Database,
}

impl Flush {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        // Opening to write may flush entries already, so they are counted before.
        let entries = self.database.read(Options::new(), |db| Ok(db.stats().memtable_entries))?;
        let stats = self.database.write(Options::new(), |db| {
            let memory = db.stats().memtable_bytes;
            watched("flush", db, memory, |stats| stats.flush_bytes, |db| db.flush())?;
            Ok(db.stats())
        })?;
        let (written, tables) = (stats.flush_bytes, stats.total().tables);
        let json = json!({ "log_entries": entries, "bytes_written": written, "tables": tables });
        output.show(json, |out| {
            let tables = counted(tables, "table");
            if entries == 0 {
                return writeln!(out, "nothing to flush: the log holds no entries; {tables}");
            }
            let (entries, written) = (counted_entries(entries), bytes(written));
            writeln!(out, "{entries} of the log flushed, {written}; {tables} now")
        })
    }
}
