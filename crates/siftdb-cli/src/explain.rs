//! `siftdb explain DIR KEY`: one lookup, table by table.
//!
//! `Db::explain_with` does the lookup; this prints its steps, as text or as JSON with the same
//! fields. An absent key is exit code 0 here, because the question is what the lookup cost.
//! `--no-filters` shows the cost without filters, `--step` the same lookup step by step.

use crate::args::{InKeyspace, Spelling, options};
use crate::failure::Outcome;
use crate::json::{bytes_field, fields, joined, list, variant};
use crate::output::{Output, Shown};
use crate::step::walk;
use clap::Args;
use serde_json::{Value, json};
use siftdb::{Explain as Explained, ExplainStep, ExplainTarget, ReadOptions};
use std::ffi::OsString;
use std::io::Write;

const JSON: &str = "\
JSON fields:
  format          1
  key             the key, or key_base64 if it is not UTF-8
  sequence        the sequence number that the lookup read at
  found           whether it has a value
  value_bytes     bytes of the value, or null
  steps           the memtables and tables that were asked, in order:
    target        memtable_age, 0 for the newest memtable; or level and table, its number
    filter        answer: not_asked, damaged, no or maybe; source: pinned, cached, file or null;
                  bytes_read: bytes of the filter read from the file
    touched       index_seeks, index_bytes_read, data_blocks_cached, data_blocks_read,
                  data_bytes_read
    outcome       found, deleted, absent, false_positive, skipped (by the filter) or empty
  out_of_range    by level: tables that were not asked
  data_blocks     data blocks looked at
  bytes_read      bytes read from files
  data_blocks_without_filters   data blocks that the same lookup looks at without filters";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Explain {
    #[command(flatten)]
    place: InKeyspace,
    /// The key
    key: OsString,
    /// Ask no filters
    #[arg(long)]
    no_filters: bool,
    /// Show each step by itself: what is asked, what the answer means, what is not read
    #[arg(long)]
    step: bool,
    #[command(flatten)]
    spelling: Spelling,
}

impl Explain {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.spelling.bytes(self.key)?;
        let how = ReadOptions::new().use_filters(!self.no_filters);
        let (explain, report) = self.place.read(options(), |_, keyspace| {
            Ok((keyspace.explain_with(&key, &how)?, keyspace.filter_report()))
        })?;
        output.show(explain_json(&explain), |out| match self.step {
            true => walk(&explain, &report, out),
            false => Ok(writeln!(out, "{explain}")?),
        })
    }
}

fn explain_json(explain: &Explained) -> Value {
    joined([
        bytes_field("key", &explain.key),
        fields!(explain;
            sequence, out_of_range, data_blocks, bytes_read, data_blocks_without_filters),
        json!({
            "found": explain.value.is_some(),
            "value_bytes": explain.value.as_ref().map(|value| value.len()),
            "steps": list(&explain.steps, step_json),
        }),
    ])
}

fn step_json(step: &ExplainStep) -> Value {
    json!({
        "target": match step.target {
            ExplainTarget::Memtable(age) => json!({ "memtable_age": age }),
            ExplainTarget::Table { level, number } => json!({ "level": level, "table": number }),
            _ => json!({}),
        },
        "filter": {
            "answer": variant(step.filter.answer),
            "source": step.filter.source.map(variant),
            "bytes_read": step.filter.bytes_read,
        },
        "touched": fields!(step.touched;
            index_seeks, index_bytes_read, data_blocks_cached, data_blocks_read, data_bytes_read),
        "outcome": variant(step.outcome),
    })
}
