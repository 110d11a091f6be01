//! `siftdb filter rebuild DIR`: writes tables anew whose filter is not the one asked for.
//!
//! The library does it (`Db::rebuild_filters`), as compactions: each result is durable before the
//! tables it replaces go, so the command may be killed at any time and run again. Tables are
//! rewritten at their level; those of level 0 go down to level 1. Answers do not change. Tables
//! with a program's own policy, or with prefixes in their filters, count as different here, since
//! no word names these: what is rebuilt has a built-in filter of whole keys.

use crate::args::Database;
use crate::failure::Outcome;
use crate::filter_args::WantedFilter;
use crate::text::{counted, output, print_json};
use clap::Args;
use serde_json::json;
use siftdb::stats::text::bytes;
use siftdb::{FilterRebuild, Options};
use std::io::Write;

#[derive(Args)]
pub struct Rebuild {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    wanted: WantedFilter,
    /// Also rewrite tables whose filter is as asked for
    #[arg(long)]
    all: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Rebuild {
    pub fn run(self) -> Outcome {
        let which = if self.all { FilterRebuild::All } else { FilterRebuild::Differing };
        let db = self.database.open_to_rewrite_with(self.wanted.set(Options::new())?)?;
        let before = db.stats();
        let tables = db.rebuild_filters(which)?;
        let after = db.stats();
        let filter_bytes = [before.total().filter_bytes, after.total().filter_bytes];
        let work = after.since(&before);
        db.close()?;
        if self.json {
            return print_json(&json!({
                "tables_rewritten": tables,
                "tables_before": before.total().tables,
                "tables_after": after.total().tables,
                "bytes_read": work.compaction_bytes_read,
                "bytes_written": work.compaction_bytes_written,
                "filter_bytes_before": filter_bytes[0],
                "filter_bytes_after": filter_bytes[1],
            }));
        }
        let mut out = output();
        let of = counted(before.total().tables, "table");
        write!(out, "{tables} of {of} rewritten")?;
        write!(out, ", read {}", bytes(work.compaction_bytes_read))?;
        write!(out, ", wrote {}", bytes(work.compaction_bytes_written))?;
        let [before, after] = filter_bytes.map(bytes);
        writeln!(out, "; filters {before} before, {after} after")?;
        Ok(out.flush()?)
    }
}
