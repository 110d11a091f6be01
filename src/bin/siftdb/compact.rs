//! `siftdb compact DIR [FROM TO]`: compacts all tables, or those with keys of a range.
//!
//! What only the log holds is flushed first. Space of deleted and overwritten entries comes back,
//! and lookups have fewer tables to ask. The database may be killed at any time: each result is
//! durable before the tables it replaces go. `FROM` is included, `TO` is not, as in `scan`. A table
//! that is in its place already may stay unread; `--force` rewrites all.

use crate::args::{Database, Spelling};
use crate::bars::watched;
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use crate::text::counted;
use clap::Args;
use serde_json::json;
use siftdb::CompactRangeOptions;
use siftdb::experiment::bytes;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

const JSON: &str = "\
JSON fields:
  format          1
  tables_before   tables of the database before, with those of a flush
  tables_after    tables of the database now
  bytes_before    their bytes before
  bytes_after     their bytes now
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
    /// Rewrite also tables that nothing would be gained for
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    spelling: Spelling,
}

impl Compact {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let from = self.from.map(|key| self.spelling.bytes(key)).transpose()?;
        let to = self.to.map(|key| self.spelling.bytes(key)).transpose()?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let range = (from, to.map_or(Bound::Unbounded, Bound::Excluded));
        let options = CompactRangeOptions::new().force(self.force);
        let db = self.database.open_to_write()?;
        db.flush()?;
        let before = db.stats();
        let total = before.total().bytes;
        watched(
            "compact",
            &db,
            total,
            |stats| stats.compaction_bytes_read,
            |db| db.compact_range_with(range, &options),
        )?;
        let after = db.stats();
        db.close()?;
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
            let (read, wrote) =
                (bytes(work.compaction_bytes_read), bytes(work.compaction_bytes_written));
            writeln!(out, "{then} before; {now} now; read {read}, wrote {wrote}")?;
            Ok(())
        })
    }
}
