//! `siftdb compact DIR [FROM TO]`: compacts all tables, or those with keys of a range.
//!
//! Entries that are only in the log are flushed first. Compaction frees the space of deleted and
//! overwritten entries, and lookups have fewer tables to search. The command may be killed at any
//! time: each result is durable before the tables it replaces are removed. `FROM` is included,
//! `TO` is not, as in `scan`. `--force` also rewrites tables that need no compaction.

use crate::args::{Database, Spelling};
use crate::bars::watched;
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use crate::text::counted;
use clap::Args;
use serde_json::json;
use siftdb::experiment::bytes;
use siftdb::{CompactRangeOptions, Options, Stats};
use std::ffi::OsString;
use std::io::Write;

const JSON: &str = "\
JSON fields:
  format          1
  tables_before   tables of the database before, after the flush
  tables_after    tables of the database now
  bytes_before    bytes of the tables before
  bytes_after     bytes of the tables now
  bytes_read      bytes that the compactions read
  bytes_written   bytes that the compactions wrote";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Compact {
    #[command(flatten)]
    database: Database,
    /// The first key; without it, from the beginning
    #[arg(value_name = "FROM")]
    from: Option<OsString>,
    /// The key before which to end; without it, to the end
    #[arg(value_name = "TO")]
    to: Option<OsString>,
    /// Rewrite all tables, also those that gain nothing
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    spelling: Spelling,
}

impl Compact {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let range = self.spelling.range(self.from, self.to)?;
        let options = CompactRangeOptions::new().force(self.force);
        let (before, after) = self.database.write(Options::new(), |db| {
            db.flush()?;
            let before = db.stats();
            let (total, read) = (before.total().bytes, |work: &Stats| work.compaction_bytes_read);
            watched("compact", db, total, read, |db| db.compact_range_with(range, &options))?;
            Ok((before, db.stats()))
        })?;
        let work = after.since(&before);
        let (before, after) = (before.total(), after.total());
        let json = json!({
            "tables_before": before.tables,
            "tables_after": after.tables,
            "bytes_before": before.bytes,
            "bytes_after": after.bytes,
            "bytes_read": work.compaction_bytes_read,
            "bytes_written": work.compaction_bytes_written,
        });
        output.show(json, |out| {
            let [then, now] = [&before, &after]
                .map(|total| format!("{}, {}", counted(total.tables, "table"), bytes(total.bytes)));
            let [read, wrote] =
                [work.compaction_bytes_read, work.compaction_bytes_written].map(bytes);
            writeln!(out, "{then} before; {now} now; read {read}, wrote {wrote}")
        })
    }
}
