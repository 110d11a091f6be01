//! `siftdb flush DIR` and `siftdb compact DIR`: maintain tables on request.
//!
//! `flush` concerns all keyspaces unless one is named, `compact` one: `default` or the named one.
//!
//! `flush` writes entries that are only in the log to tables. Filters, `siftdb sst` and most
//! figures are about tables. Entries stay in the log until the write buffer is full, so a small
//! database may have no table before a flush.
//!
//! `compact` flushes, then compacts all tables, or those with keys of a range. This frees the space
//! of deleted and overwritten entries, and lookups have fewer tables to search. `--force`
//! also rewrites tables that need no compaction. The command may be killed at any time: each
//! result is durable before the tables it replaces are removed.

use crate::args::{InKeyspace, Part, options, unnamed};
use crate::bars::watched;
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries};
use clap::Args;
use serde_json::json;
use siftdb::{CompactRangeOptions, Db, Keyspace, Stats};
use siftdb_cli::experiment::bytes;
use std::io::Write;

const FLUSH_JSON: &str = "\
JSON fields:
  format          1
  log_entries     entries that were only in the log, tombstones included
  bytes_written   bytes of the tables that have them now
  tables          tables of the database now, or of the keyspace that --keyspace names";

#[derive(Args)]
#[command(after_long_help = FLUSH_JSON)]
pub struct Flush {
    #[command(flatten)]
    place: InKeyspace,
}

impl Flush {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let is_whole = self.place.name.is_none();
        let stats = |db: &Db, keyspace: &Keyspace| match is_whole {
            true => db.stats(),
            false => keyspace.stats(),
        };
        // Opening to write may flush entries already, so they are counted before.
        let before = |db: &Db, keyspace: &Keyspace| Ok(stats(db, keyspace).memtable_entries);
        let entries = self.place.read_alone(options(), before)?;
        let (written, tables) = self.place.write(options(), &unnamed(), |db, keyspace| {
            let memory = stats(db, keyspace).memtable_bytes;
            let flush = |db: &Db| if is_whole { db.flush() } else { keyspace.flush() };
            watched("flush", db, memory, |stats| stats.flush_bytes, flush)?;
            Ok((db.stats().flush_bytes, stats(db, keyspace).total().tables))
        })?;
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

const COMPACT_JSON: &str = "\
JSON fields:
  format          1
  tables_before   tables of the keyspace before, after the flush
  tables_after    tables of the keyspace now
  bytes_before    bytes of the tables before
  bytes_after     bytes of the tables now
  bytes_read      bytes that the compactions read
  bytes_written   bytes that the compactions wrote";

#[derive(Args)]
#[command(after_long_help = COMPACT_JSON)]
pub struct Compact {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    part: Part,
    /// Rewrite all tables, also those that gain nothing
    #[arg(long)]
    force: bool,
}

impl Compact {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let range = self.part.range()?;
        let how = CompactRangeOptions::new().force(self.force);
        let (before, after, work) = self.place.write(options(), &unnamed(), |db, keyspace| {
            keyspace.flush()?;
            let (before, counted) = (keyspace.stats().total(), db.stats());
            let read = |work: &Stats| work.compaction_bytes_read;
            let compact = |_: &Db| keyspace.compact_range_with(range, &how);
            watched("compact", db, before.bytes, read, compact)?;
            Ok((before, keyspace.stats().total(), db.stats().since(&counted)))
        })?;
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
