//! `siftdb filter rebuild DIR`: rewrites tables whose filter differs from the arguments.
//!
//! `Db::rebuild_filters` rewrites them as compactions. Each result is durable before the tables it
//! replaces are removed, so the command may be killed at any time and run again. Tables are
//! rewritten at their level; those of level 0 move to level 1. Tables with a custom policy, or with
//! prefixes in their filters, count as different, because the arguments cannot name these.
//!
//! With `--monkey SIZE` each level gets what `filter advise --budget SIZE` recommends for it.

use crate::args::Database;
use crate::bars::watched;
use crate::failure::Outcome;
use crate::filter_args::WantedFilter;
use crate::output::{Output, Shown};
use crate::text::{counted, write_log_note};
use clap::Args;
use serde_json::json;
use siftdb::experiment::bytes;
use siftdb::{FilterRebuild, Options, Stats};
use std::io::Write;

const JSON: &str = "\
JSON fields:
  format            1
  tables_rewritten  tables that were written again
  tables_before, tables_after   tables of the database
  bytes_read, bytes_written     what that read and wrote
  filter_bytes_before, filter_bytes_after   bytes of all filters
  log_entries       entries that are only in the log, in no table and no filter";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Rebuild {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    wanted: WantedFilter,
    /// Also rewrite tables whose filter is the wanted one
    #[arg(long)]
    all: bool,
}

impl Rebuild {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let which = if self.all { FilterRebuild::All } else { FilterRebuild::Differing };
        let options = match self.wanted.monkey() {
            Some(budget) => {
                let db = self.database.open_to_read_with(Options::new())?;
                let advice = db.filter_report().advice(budget);
                db.close()?;
                self.wanted.set_advised(Options::new(), &advice)
            }
            None => self.wanted.set(Options::new())?,
        };
        let db = self.database.open_to_rewrite_with(options)?;
        let before = db.stats();
        let (total, read) = (before.total().bytes, |work: &Stats| work.compaction_bytes_read);
        let tables = watched("rebuild", &db, total, read, |db| db.rebuild_filters(which))?;
        let after = db.stats();
        let filter_bytes = [before.total().filter_bytes, after.total().filter_bytes];
        let work = after.since(&before);
        db.close()?;
        let log_entries = after.memtable_entries;
        let json = json!({
            "tables_rewritten": tables,
            "tables_before": before.total().tables,
            "tables_after": after.total().tables,
            "bytes_read": work.compaction_bytes_read,
            "bytes_written": work.compaction_bytes_written,
            "filter_bytes_before": filter_bytes[0],
            "filter_bytes_after": filter_bytes[1],
            "log_entries": log_entries,
        });
        output.show(json, |out| {
            let of = counted(before.total().tables, "table");
            write!(out, "{tables} of {of} rewritten")?;
            write!(out, ", read {}", bytes(work.compaction_bytes_read))?;
            write!(out, ", wrote {}", bytes(work.compaction_bytes_written))?;
            let [before, after] = filter_bytes.map(bytes);
            writeln!(out, "; filters {before} before, {after} after")?;
            write_log_note(out, log_entries)?;
            Ok(())
        })
    }
}
