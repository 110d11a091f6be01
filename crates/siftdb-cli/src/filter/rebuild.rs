//! `siftdb filter rebuild DIR`: rewrites tables whose filter differs from the arguments, or from
//! the saved settings if there are none. The filter of the arguments is saved as the setting of the
//! keyspace, so that later tables have it too.
//!
//! `Db::rebuild_filters` rewrites them as compactions. Each result is durable before the tables it
//! replaces are removed, so the command may be killed at any time and run again. Tables are
//! rewritten at their level; those of level 0 move to level 1. Tables with a custom policy, with
//! prefixes in their filters or with a range filter count as different, because the arguments
//! cannot name these. The settings can: `siftdb settings DIR --set filter='bloom ranges=12'`.
//!
//! With `--monkey SIZE` each level gets what `filter advise --budget SIZE` recommends for it.

use crate::args::{InKeyspace, options};
use crate::bars::watched;
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::filter_args::{WantedFilter, at_saved_levels};
use crate::output::{Output, Shown};
use crate::text::{counted, write_log_note};
use clap::Args;
use siftdb::{Db, FilterRebuild, LevelStats, Stats};
use siftdb_cli::experiment::bytes;
use siftdb_cli::filter_advice::advice;
use std::io::Write;

result! {
    struct Rebuilt of before: &LevelStats, after: &LevelStats, work: &Stats, rewritten: u64,
            in_log: u64 {
        /// tables that were written again
        tables_rewritten: u64 = rewritten;
        tables_before: u64 = before.tables;
        /// tables of the keyspace
        tables_after: u64 = after.tables;
        bytes_read: u64 = work.compaction_bytes_read;
        /// what that read and wrote
        bytes_written: u64 = work.compaction_bytes_written;
        filter_bytes_before: u64 = before.filter_bytes;
        /// bytes of all filters
        filter_bytes_after: u64 = after.filter_bytes;
        range_filter_bytes_before: u64 = before.range_filter_bytes;
        /// bytes of all range filters
        range_filter_bytes_after: u64 = after.range_filter_bytes;
        /// entries that are only in the log, in no table and no filter
        log_entries: u64 = in_log;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Rebuilt>())]
pub struct Rebuild {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    wanted: WantedFilter,
    /// Also rewrite tables whose filter is the wanted one
    #[arg(long)]
    all: bool,
}

impl Rebuild {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let which = if self.all { FilterRebuild::All } else { FilterRebuild::Differing };
        let named = self.wanted.settings()?;
        let (saved, settings) = self.place.with(self.place.open_alone(), |_, keyspace| {
            let saved = keyspace.settings();
            let named = match self.wanted.monkey {
                Some(budget) => self.wanted.advised(&advice(&keyspace.filter_report(), budget)),
                None => named,
            };
            Ok((saved.clone(), at_saved_levels(named, &saved)?))
        })?;
        // Nothing but the filters changes.
        let how = options().auto_compaction(false);
        let (tables_rewritten, before, after, work) =
            self.place.write(how, &settings, |db, keyspace| {
                if keyspace.settings() != saved {
                    // Also if no table differs: later tables get this filter.
                    db.save_settings()?;
                }
                let (before, counted) = (keyspace.stats(), db.stats());
                let (total, read) =
                    (before.total().bytes, |work: &Stats| work.compaction_bytes_read);
                let rebuild = |_: &Db| keyspace.rebuild_filters(which);
                let tables = watched("rebuild", db, total, read, rebuild)?;
                Ok((tables, before, keyspace.stats(), db.stats().since(&counted)))
            })?;
        let log_entries = after.memtable_entries;
        let (before, after) = (before.total(), after.total());
        let rebuilt = Rebuilt::of(&before, &after, &work, tables_rewritten, log_entries);
        output.show(&rebuilt, |out| {
            let of = counted(before.tables, "table");
            let [read, wrote] = [rebuilt.bytes_read, rebuilt.bytes_written].map(bytes);
            let all = |total: &LevelStats| bytes(total.filter_bytes + total.range_filter_bytes);
            let [before, after] = [&before, &after].map(all);
            write!(out, "{tables_rewritten} of {of} rewritten, read {read}, wrote {wrote}; ")?;
            writeln!(out, "filters {before} before, {after} after")?;
            write_log_note(out, log_entries)
        })
    }
}
