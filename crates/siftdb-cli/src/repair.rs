//! `siftdb repair DIR`: makes a damaged database sound, with everything that can be read.
//!
//! `Options::repair` does the work. The command prints what was kept, set aside and lost. Rewritten
//! tables get the default filter; a program with its own policy or prefix rebuilds its filters
//! afterwards. If entries are lost, or no manifest says what there was, the database is sound too,
//! and the exit code is 5.

use crate::args::{Database, options};
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::json::{Bytes, Dropped, ranges};
use crate::output::{Output, Shown};
use clap::Args;
use siftdb::{LostEntries, RenamedKeyspace, RepairReport, SetAside};
use std::io::Write;

result! {
    struct Repaired of report: &RepairReport {
        /// whether a manifest was used and nothing is lost; else the exit code is 5
        saved_everything: bool = report.saved_everything();
        /// whether anything was written
        changed: bool;
        /// whether a manifest told which tables there are; without one, nobody knows what is
        /// missing
        manifest_used: bool;
        /// tables that stay as they were
        tables_kept: u64;
        /// tables written again
        tables_written: u64;
        /// entries in all tables now
        entries: u64;
        /// entries that damaged tables say they had, beyond those that were read
        entries_lost: u64;
        /// writes that were read from logs
        log_entries: u64;
        /// the highest sequence number
        last_sequence: u64;
        /// where entries of tables were lost:
        lost: Vec<Lost> = report.lost.iter().map(Lost::of).collect();
        /// parts of logs, manifest and CURRENT:
        not_used: Vec<Dropped> = report.dropped.iter().map(Dropped::of).collect();
        /// writes that should have been in the logs: pairs of first and last
        missing_sequences: Vec<[u64; 2]> = ranges(&report.missing);
        /// keyspaces whose names are not certain:
        renamed: Vec<Renamed> = report.renamed.iter().map(Renamed::of).collect();
        /// files in the folder lost:
        set_aside: Vec<Aside> = report.set_aside.iter().map(Aside::of).collect();
    }

    struct Lost of lost: &LostEntries {
        /// null if not known, and for a log
        keyspace: Option<String>;
        /// the table
        #[serde(flatten)] path: Bytes = Bytes::path(&lost.path);
        /// null if not known, or with _base64 if it is not UTF-8
        #[serde(flatten)] first_key: Bytes = Bytes::or_null("first_key", lost.from.as_deref());
        /// the same
        #[serde(flatten)] last_key: Bytes = Bytes::or_null("last_key", lost.to.as_deref());
        /// the damage
        what: String;
    }

    struct Renamed of keyspace: &RenamedKeyspace {
        number: u32;
        /// as they are now
        name, why: String;
    }

    struct Aside of file: &SetAside {
        /// the file
        #[serde(flatten)] path: Bytes = Bytes::path(&file.path);
        /// the reason
        what: String = file.why.clone();
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Repaired>())]
pub struct Repair {
    #[command(flatten)]
    database: Database,
}

impl Repair {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let directory = &self.database.directory;
        let repaired = options().repair(directory);
        let report = repaired.map_err(|error| Failure::opening(error, directory, None))?;
        let shown = output.show(&Repaired::of(&report), |out| writeln!(out, "{report}"))?;
        let is_known = report.lost.is_empty() && report.missing.is_empty();
        match report.saved_everything() {
            true => Ok(shown),
            false if is_known => {
                let why = "no manifest could be used, which alone says what there was";
                Err(Failure::losses("repaired, but entries may be lost", why))
            }
            false => {
                Err(Failure::losses("repaired, but entries are lost", "the report says which"))
            }
        }
    }
}
