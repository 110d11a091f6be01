//! `siftdb verify DIR`: reads a whole database and checks everything.
//!
//! The library checks (`Db::verify`), on a database opened to read only, so that nothing is
//! changed; this prints. What is not in order is a sentence each on standard error, and the exit
//! code is 3. A database that cannot even be opened has its reason there. `sst verify` needs no
//! lock and looks at tables alone.

use crate::args::Database;
use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::text::{counted, output, print_json};
use clap::Args;
use serde_json::json;
use siftdb::{Error, Options, Remedy, VerifyReport};
use std::io::Write;

#[derive(Args)]
pub struct Verify {
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub fn run(self) -> Outcome {
        let db = match self.database.open_to_read_with(Options::new()) {
            Err(Failure::Database(error)) if error.is_corruption() => {
                return self.print(&VerifyReport::default(), "", vec![error]);
            }
            opened => opened?,
        };
        let mut bar = None;
        let report = db.verify(|progress| {
            let bar = bar.get_or_insert_with(|| Bar::bytes("verify", Some(progress.bytes)));
            bar.set(progress.bytes_done);
        })?;
        if let Some(bar) = bar {
            bar.finish(&counted(report.tables, "table"));
        }
        let recovery = db.recovery_report();
        let torn = match recovery.is_complete() {
            true => String::new(),
            false => recovery.to_string(),
        };
        self.print(&report, &torn, report.damage.clone())
    }

    fn print(&self, report: &VerifyReport, torn: &str, damage: Vec<Error>) -> Outcome {
        if self.json {
            let texts: Vec<String> = damage.iter().map(Error::to_string).collect();
            print_json(&json!({
                "sound": damage.is_empty(),
                "tables": report.tables,
                "table_bytes": report.table_bytes,
                "entries": report.entries,
                "data_blocks": report.data_blocks,
                "filter_probes": report.filter_probes,
                "unclean_end": torn,
                "damage": texts,
            }))?;
        } else {
            let mut out = output();
            let tables = counted(report.tables, "table");
            let (entries, blocks) = (report.entries, counted(report.data_blocks, "data block"));
            write!(out, "{tables}, {entries} entries in {blocks}, ")?;
            writeln!(out, "{} asked of filters", report.filter_probes)?;
            if !torn.is_empty() {
                writeln!(out, "the last session did not close; {torn}")?;
            }
            let of_filter = |error: &Error| {
                matches!(error, Error::Corruption { remedy: Remedy::RebuildFilters, .. })
            };
            match damage.len() {
                0 => writeln!(out, "all in order")?,
                bad if damage.iter().all(of_filter) => {
                    writeln!(out, "{bad} not in order; `siftdb filter rebuild` mends it")?;
                }
                bad => writeln!(out, "{bad} not in order; `siftdb repair` saves what is left")?,
            }
            out.flush()?;
        }
        if damage.is_empty() { Ok(()) } else { Err(Failure::Tables(damage)) }
    }
}
