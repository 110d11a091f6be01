//! `siftdb explain DIR KEY`: one lookup, or the start of a scan, table by table.
//!
//! `Db::explain_with` does the lookup; for a range, `Db::explain_range_with` does what a scan does
//! until its first entry. This prints the steps, as text or as JSON with the same fields.
//! An absent key is exit code 0 here, because the question is what the lookup cost.
//! `--no-filters` shows the cost without filters, `--step` the same lookup step by step.

use crate::args::{InKeyspace, Part, options};
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::json::{Bytes, variant};
use crate::output::{Output, Shown};
use crate::step::walk;
use clap::Args;
use serde_json::{Value, json};
use siftdb::{
    Explain as Explained, ExplainFilter, ExplainStep, ExplainTarget, ExplainTouched, ReadOptions,
};
use std::ffi::OsString;
use std::io::Write;

result! {
    struct Explanation of explain: &Explained {
        /// the key, or key_base64 if it is not UTF-8; of a range, its first key
        #[serde(flatten)] key: Bytes = Bytes::new("key", &explain.key);
        /// true for a range
        is_range: bool = explain.end.is_some();
        /// the sequence number that the lookup read at
        sequence: u64;
        /// whether it has a value
        found: bool = explain.value.is_some();
        /// bytes of the value, or null
        value_bytes: Option<usize> = explain.value.as_ref().map(|value| value.len());
        /// the memtables and tables that were asked, in order:
        steps: Vec<Step> = explain.steps.iter().map(Step::of).collect();
        /// by level: tables that were not asked
        out_of_range: Vec<u64>;
        /// data blocks looked at
        data_blocks: u64;
        /// bytes read from files
        bytes_read: u64;
        /// data blocks that the same lookup or scan looks at without filters
        data_blocks_without_filters: u64;
    }

    struct Step of step: &ExplainStep {
        /// memtable_age, 0 for the newest memtable; or level and table, its number
        target: Value = match step.target {
            ExplainTarget::Memtable(age) => json!({ "memtable_age": age }),
            ExplainTarget::Table { level, number } => json!({ "level": level, "table": number }),
            _ => json!({}),
        };
        /// its filter:
        filter: Asked = Asked::of(&step.filter);
        /// what was searched and read:
        touched: Touched = Touched::of(&step.touched);
        /// found, deleted, absent, false_positive, skipped (by the filter) or empty
        outcome: String = variant(step.outcome);
    }

    struct Asked of filter: &ExplainFilter {
        /// not_asked, damaged, no or maybe
        answer: String = variant(filter.answer);
        /// pinned, cached, file or null
        source: Option<String> = filter.source.map(variant);
        /// bytes of the filter read from the file
        bytes_read: u64;
    }

    struct Touched of touched: &ExplainTouched {
        /// how often, or how much
        index_seeks, index_bytes_read, data_blocks_cached, data_blocks_read, data_bytes_read: u64;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Explanation>())]
pub struct Explain {
    #[command(flatten)]
    place: InKeyspace,
    /// The key of a lookup; or name a range
    #[arg(required_unless_present_any = ["prefix", "from", "to"],
          conflicts_with_all = ["prefix", "from", "to"])]
    key: Option<OsString>,
    #[command(flatten)]
    part: Part,
    /// Ask no filters
    #[arg(long)]
    no_filters: bool,
    /// Show each step by itself: what is asked, what the answer means, what is not read
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"])]
    step: bool,
}

impl Explain {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let how = ReadOptions::new().use_filters(!self.no_filters);
        let key = self.key.map(|key| self.part.key(key)).transpose()?;
        let range = self.part.range()?;
        let (explain, report) = self.place.read(options(), |_, keyspace| {
            let explain = match &key {
                Some(key) => keyspace.explain_with(key, &how)?,
                None => keyspace.explain_range_with(range, &how)?,
            };
            Ok((explain, keyspace.filter_report()))
        })?;
        output.show(&Explanation::of(&explain), |out| match self.step {
            true => walk(&explain, &report, out),
            false => Ok(writeln!(out, "{explain}")?),
        })
    }
}
