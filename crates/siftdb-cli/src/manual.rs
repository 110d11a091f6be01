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
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries};
use clap::Args;
use siftdb::env::{DiskEnv, Env};
use siftdb::{CompactRangeOptions, Db, Error, Keyspace, LevelStats, Stats, inspect};
use siftdb_cli::experiment::bytes;
use std::io::Write;
use std::sync::Arc;

result! {
    struct Flushed {
        /// entries that were only in the log, tombstones included
        log_entries: u64;
        /// bytes of the tables that have them now
        bytes_written: u64;
        /// tables of the database now, or of the keyspace that --keyspace names
        tables: u64;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Flushed>())]
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
        let log_entries = match self.place.open_alone() {
            // Memory does not hold them. Opening to write flushes them, of all keyspaces.
            Err(Error::LogsTooLarge { directory, .. }) => {
                let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
                inspect::unchecked_logs(&env, &directory)?.entries
            }
            opened => self.place.with(opened, before)?,
        };
        let flushed = self.place.write(options(), &unnamed(), |db, keyspace| {
            let memory = stats(db, keyspace).memtable_bytes;
            let flush = |db: &Db| if is_whole { db.flush() } else { keyspace.flush() };
            watched("flush", db, memory, |stats| stats.flush_bytes, flush)?;
            let tables = stats(db, keyspace).total().tables;
            Ok(Flushed { log_entries, bytes_written: db.stats().flush_bytes, tables })
        })?;
        output.show(&flushed, |out| {
            let tables = counted(flushed.tables, "table");
            if log_entries == 0 {
                return writeln!(out, "nothing to flush: the log holds no entries; {tables}");
            }
            let (entries, written) = (counted_entries(log_entries), bytes(flushed.bytes_written));
            writeln!(out, "{entries} of the log flushed, {written}; {tables} now")
        })
    }
}

result! {
    struct Compacted of before: &LevelStats, after: &LevelStats, work: &Stats {
        /// tables of the keyspace before, after the flush
        tables_before: u64 = before.tables;
        /// tables of the keyspace now
        tables_after: u64 = after.tables;
        /// bytes of the tables before
        bytes_before: u64 = before.bytes;
        /// bytes of the tables now
        bytes_after: u64 = after.bytes;
        /// bytes that the compactions read
        bytes_read: u64 = work.compaction_bytes_read;
        /// bytes that the compactions wrote
        bytes_written: u64 = work.compaction_bytes_written;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Compacted>())]
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
        let compacted = Compacted::of(&before, &after, &work);
        output.show(&compacted, |out| {
            let [then, now] = [&before, &after]
                .map(|total| format!("{}, {}", counted(total.tables, "table"), bytes(total.bytes)));
            let [read, wrote] = [compacted.bytes_read, compacted.bytes_written].map(bytes);
            writeln!(out, "{then} before; {now} now; read {read}, wrote {wrote}")
        })
    }
}
