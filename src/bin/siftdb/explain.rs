//! `siftdb explain DIR KEY`: one lookup, table by table.
//!
//! The library does the lookup and tells the story (`Db::explain_with`); this prints it, as text
//! or as JSON with the same fields. A key that is not there is a good answer here, with exit code
//! 0: what it cost is what was asked. `--no-filters` tells what it would cost without them.

use crate::args::{Database, Spelling};
use crate::failure::Outcome;
use crate::text::{escaped, output, print_json};
use clap::Args;
use serde_json::json;
use siftdb::ReadOptions;
use std::ffi::OsString;
use std::io::Write;

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    database: Database,
    /// The key
    key: OsString,
    /// Ask no filters
    #[arg(long)]
    no_filters: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    spelling: Spelling,
}

impl Explain {
    pub fn run(self) -> Outcome {
        let key = self.spelling.bytes(self.key)?;
        let db = self.database.open_to_read()?;
        let options = ReadOptions::new().use_filters(!self.no_filters);
        let explain = db.explain_with(&key, &options)?;
        if self.json {
            let steps = explain.steps.iter().map(|step| {
                json!({
                    "place": step.place,
                    "filter": step.filter,
                    "touched": step.touched,
                    "outcome": step.outcome,
                })
            });
            print_json(&json!({
                "key": escaped(&explain.key),
                "sequence": explain.sequence,
                "found": explain.value.is_some(),
                "value_bytes": explain.value.as_ref().map(|value| value.len()),
                "steps": steps.collect::<Vec<_>>(),
                "out_of_range": explain.out_of_range,
                "data_blocks": explain.data_blocks,
                "bytes_read": explain.bytes_read,
                "data_blocks_without_filters": explain.data_blocks_without_filters,
            }))?;
        } else {
            let mut out = output();
            writeln!(out, "{explain}")?;
            out.flush()?;
        }
        Ok(db.close()?)
    }
}
