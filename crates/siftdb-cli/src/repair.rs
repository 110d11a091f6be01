//! `siftdb repair DIR`: makes a damaged database sound, with everything that can be read.
//!
//! `Options::repair` does the work. The command prints what was kept, set aside and lost. Rewritten
//! tables get the default filter; a program with its own policy or prefix rebuilds its filters
//! afterwards. If entries are lost, or no manifest says what there was, the database is sound too,
//! and the exit code is 5.

use crate::args::{Database, options};
use crate::failure::{Failure, Outcome};
use crate::json::{bytes_field, dropped_json, fields, joined, list, path_field, ranges};
use crate::output::{Output, Shown};
use clap::Args;
use serde_json::{Value, json};
use siftdb::{Error, RepairReport};
use std::io::{ErrorKind, Write};

const JSON: &str = "\
JSON fields:
  format          1
  saved_everything   whether a manifest was used and nothing is lost; else the exit code is 5
  changed         whether anything was written
  manifest_used   whether a manifest told which tables there are; without one, nobody knows
                  what is missing
  tables_kept     tables that stay as they were
  tables_written  tables written again
  entries         entries in all tables now
  entries_lost    entries that damaged tables say they had, beyond those that were read
  log_entries     writes that were read from logs
  last_sequence   the highest sequence number
  lost            where entries of tables were lost: keyspace (null if not known, and for a log),
                  path of the table, first_key and last_key
                  (each null if not known, or with _base64 if it is not UTF-8), what: the damage
  not_used        parts of logs, manifest and CURRENT: path, offset, what
  missing_sequences   writes that should have been in the logs: pairs of first and last
  renamed         keyspaces whose names are not certain: number, name, why
  set_aside       files in the folder lost: path, what: the reason";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Repair {
    #[command(flatten)]
    database: Database,
}

impl Repair {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let directory = &self.database.directory;
        let report = match options().repair(directory) {
            Err(Error::Io { path, source, .. })
                if path == *directory && source.kind() == ErrorKind::NotFound =>
            {
                return Err(Failure::no_database(&path, None));
            }
            repaired => repaired?,
        };
        let shown = output.show(report_json(&report), |out| writeln!(out, "{report}"))?;
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

fn report_json(report: &RepairReport) -> Value {
    let key = |name: &str, key: &Option<Vec<u8>>| match key {
        Some(key) => bytes_field(name, key),
        None => json!({ name: null }),
    };
    let lost = list(&report.lost, |lost| {
        joined([
            json!({ "keyspace": lost.keyspace }),
            path_field("path", &lost.path),
            key("first_key", &lost.from),
            key("last_key", &lost.to),
            fields!(lost; what),
        ])
    });
    let set_aside = list(&report.set_aside, |file| {
        joined([path_field("path", &file.path), json!({ "what": file.why })])
    });
    joined([
        fields!(report;
            changed, manifest_used, tables_kept, tables_written, entries, entries_lost,
            log_entries, last_sequence),
        json!({
            "saved_everything": report.saved_everything(),
            "lost": lost,
            "not_used": list(&report.dropped, dropped_json),
            "missing_sequences": ranges(&report.missing),
            "renamed": list(&report.renamed, |keyspace| fields!(keyspace; number, name, why)),
            "set_aside": set_aside,
        }),
    ])
}
