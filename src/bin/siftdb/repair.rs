//! `siftdb repair DIR`: makes what is left of a damaged database into one that opens.
//!
//! The library repairs (`Options::repair`), this prints what it kept, set aside and lost. Tables
//! that are written anew get the default filter: a program with a policy or prefix of its own calls
//! the library, or rebuilds its filters afterwards. Where entries are lost the database is sound
//! afterwards too, and the exit code says that it has less than before.

use crate::args::Database;
use crate::failure::{Failure, Outcome};
use crate::text::{escaped, output, print_json};
use clap::Args;
use serde_json::json;
use siftdb::RepairReport;
use std::io::Write;

#[derive(Args)]
pub struct Repair {
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub fn run(self) -> Outcome {
        let report = self.database.repair()?;
        if self.json {
            print_json(&report_json(&report))?;
        } else {
            let mut out = output();
            writeln!(out, "{report}")?;
            out.flush()?;
        }
        if report.saved_everything() { Ok(()) } else { Err(Failure::Losses) }
    }
}

fn report_json(report: &RepairReport) -> serde_json::Value {
    let key = |key: &Option<Vec<u8>>| key.as_deref().map(escaped);
    let lost = report.lost.iter().map(|lost| {
        json!({
            "file": lost.path.display().to_string(),
            "from": key(&lost.from),
            "to": key(&lost.to),
            "what": lost.what,
        })
    });
    let aside = report.set_aside.iter();
    let aside =
        aside.map(|file| json!({ "file": file.path.display().to_string(), "why": file.why }));
    let missing = report.missing.iter().map(|gap| [*gap.start(), *gap.end()]);
    json!({
        "changed": report.changed,
        "saved_everything": report.saved_everything(),
        "manifest_used": report.manifest_used,
        "tables_kept": report.tables_kept,
        "tables_written": report.tables_written,
        "entries": report.entries,
        "entries_lost": report.entries_lost,
        "log_entries": report.log_entries,
        "last_sequence": report.last_sequence,
        "lost": lost.collect::<Vec<_>>(),
        "not_used": report.dropped.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "missing_sequences": missing.collect::<Vec<_>>(),
        "set_aside": aside.collect::<Vec<_>>(),
    })
}
