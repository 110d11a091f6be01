//! `siftdb verify DIR`: reads a whole database and checks everything.
//!
//! `Db::verify` checks the database, which is opened read-only. Each damage is a sentence on
//! standard error, and the exit code is 3. If a damaged file prevents opening, the command checks
//! the tables one by one, so that the counts include damaged ones. `sst verify` needs no lock and
//! checks tables alone.

use crate::args::{InKeyspace, open_to_read, options};
use crate::bars::Bar;
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::json::{Dropped, ErrorFields, ranges};
use crate::output::{Output, Shown};
use crate::sst::check_tables;
use crate::text::{counted, counted_entries, keyspace_option};
use clap::Args;
use siftdb::env::{DiskEnv, Env};
use siftdb::{
    Error, RecoveryReport, Remedy, VerifiedKeyspace, VerifyProgress, VerifyReport, inspect,
};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

result! {
    struct Verified of report: &VerifyReport, unclean_end: Option<&RecoveryReport> {
        /// whether all is in order
        sound: bool = report.is_sound();
        /// tables that were checked
        tables: u64;
        /// tables that are not in order
        tables_damaged: u64 = tables_damaged(report);
        /// bytes of all of them
        table_bytes: u64;
        /// entries in those that are in order
        entries: u64;
        /// data blocks in those that are in order
        data_blocks: u64;
        /// keys that passed their filter
        filter_probes: u64;
        /// by keyspace:
        keyspaces: Vec<OfKeyspace> = report.keyspaces.iter().map(OfKeyspace::of).collect();
        /// logs that were checked
        logs: u64;
        /// entries and range deletes that are only in logs
        log_entries: u64;
        /// null after a clean close; else what opening dropped:
        unclean_end: Option<UncleanEnd> = unclean_end.map(UncleanEnd::of);
        /// each damage: kind, path, offset, operation, what, advice
        damage: Vec<ErrorFields> = report.damage.iter().map(ErrorFields::of).collect();
    }

    struct OfKeyspace of verified: &VerifiedKeyspace {
        /// its name
        keyspace: String = verified.name.clone();
        /// its tables, their entries, and damaged tables
        tables, entries, damaged: u64;
    }

    struct UncleanEnd of recovery: &RecoveryReport {
        /// parts of logs:
        dropped: Vec<Dropped> = recovery.dropped.iter().map(Dropped::of).collect();
        /// missing writes: pairs of first and last sequence number
        missing_sequences: Vec<[u64; 2]> = ranges(&recovery.missing);
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Verified>())]
pub struct Verify {
    #[command(flatten)]
    place: InKeyspace,
}

impl Verify {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let directory = &self.place.database.directory;
        let opened = match open_to_read(options(), directory) {
            // All tables are checked then: without its manifest, keyspaces are not known.
            Err(error) if error.is_corruption() => {
                return print(&verify_tables(directory, error), None, output);
            }
            opened => opened,
        };
        self.place.with(opened, |db, keyspace| {
            let mut bar = None;
            let show = |progress: &VerifyProgress| {
                let bar = bar.get_or_insert_with(|| Bar::bytes("verify", Some(progress.bytes)));
                bar.set(progress.bytes_done);
            };
            let report = match self.place.name {
                None => db.verify(show),
                Some(_) => keyspace.verify(show),
            }?;
            drop(bar);
            let recovery = db.recovery_report();
            print(&report, Some(&recovery).filter(|report| !report.is_complete()), output)
        })
    }
}

/// Checks the tables of a database that cannot be opened because of `refused`.
fn verify_tables(directory: &Path, refused: Error) -> VerifyReport {
    let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
    let mut report = VerifyReport::default();
    // Without a manifest the set of tables is unknown.
    let tables = inspect::live_tables(&env, directory).ok().flatten().unwrap_or_default();
    let unchecked = inspect::unchecked_logs(&env, directory).unwrap_or_default();
    report.log_entries = unchecked.entries;
    report.tables = tables.len() as u64;
    report.table_bytes = tables.iter().map(|table| table.bytes).sum();
    for checked in check_tables(&env, tables) {
        match checked.result {
            Ok(facts) => {
                report.entries += facts.entries;
                report.data_blocks += facts.data_blocks;
            }
            Err(error) => report.damage.push(error),
        }
    }
    if report.damage.is_empty() {
        report.damage.push(refused);
    }
    report
}

fn tables_damaged(report: &VerifyReport) -> u64 {
    let is_table = |error: &&Error| match error {
        Error::Corruption { path, .. }
        | Error::Missing { path, .. }
        | Error::UnsupportedFormat { path, .. }
        | Error::Io { path, .. } => path.extension().is_some_and(|end| end == "sst"),
        _ => false,
    };
    report.damage.iter().filter(is_table).count() as u64
}

fn tables_in_words(tables: u64, damaged: u64) -> String {
    match damaged {
        0 => counted(tables, "table"),
        damaged => format!("{} ({damaged} damaged)", counted(tables, "table")),
    }
}

/// How to repair the filters of the damaged tables. A rebuild concerns one keyspace.
fn filters_way(report: &VerifyReport) -> String {
    let damaged = report.keyspaces.iter().filter(|keyspace| keyspace.damaged > 0);
    let command = |keyspace: &VerifiedKeyspace| {
        format!("`siftdb filter rebuild DIR{}`", keyspace_option(&keyspace.name))
    };
    let commands: Vec<String> = damaged.map(command).collect();
    let verb = if commands.len() == 1 { "repairs" } else { "repair" };
    format!("; {} {verb} filters", commands.join(" and "))
}

fn print(
    report: &VerifyReport,
    unclean_end: Option<&RecoveryReport>,
    output: Output,
) -> Outcome<Shown> {
    let shown = output.show(&Verified::of(report, unclean_end), |out| {
        let tables = tables_in_words(report.tables, tables_damaged(report));
        let blocks = counted(report.data_blocks, "data block");
        let entries = counted_entries(report.entries);
        writeln!(
            out,
            "{tables}, {entries} in {blocks}, {} asked of filters",
            report.filter_probes
        )?;
        for keyspace in report.keyspaces.iter().filter(|_| report.keyspaces.len() > 1) {
            let tables = tables_in_words(keyspace.tables, keyspace.damaged);
            let entries = counted_entries(keyspace.entries);
            writeln!(out, "keyspace {:?}: {tables}, {entries}", keyspace.name)?;
        }
        if report.log_entries > 0 {
            let entries = counted_entries(report.log_entries);
            writeln!(out, "{entries} only in logs, not in tables yet")?;
        }
        if let Some(recovery) = unclean_end {
            writeln!(out, "the database was not closed cleanly; {recovery}")?;
        }
        let of_filter = |error: &Error| {
            matches!(error, Error::Corruption { remedy: Remedy::RebuildFilters, .. })
        };
        // A repair refuses files of a newer siftdb, and the database of another store.
        let is_refused = |error: &Error| matches!(error, Error::UnsupportedFormat { .. });
        let way = match &report.damage[..] {
            damage if damage.iter().all(of_filter) => filters_way(report),
            damage if damage.iter().any(is_refused) => String::new(),
            _ => "; `siftdb repair DIR` saves the readable part".into(),
        };
        match report.damage.len() {
            0 => writeln!(out, "all in order"),
            bad => writeln!(out, "{bad} not in order{way}"),
        }
    })?;
    if report.is_sound() { Ok(shown) } else { Err(Failure::damage(&report.damage)) }
}
