//! `siftdb count DIR`: how many entries there are, of all keys, of a range or of a prefix.
//!
//! The count is exact: every key is read, and no value. `--estimate` reads data indexes alone, and
//! also counts old versions and tombstones that no compaction has dropped yet.

use crate::args::{InKeyspace, Part, Range, options};
use crate::bars::Bar;
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use clap::Args;
use serde_json::json;
use siftdb::Keyspace;
use std::io::Write;

const JSON: &str = "\
Examples:
  siftdb count DIR --prefix user/
  siftdb count DIR --estimate
JSON fields:
  format          1
  entries         entries of these keys
  estimated       true with --estimate: then old versions and deletions count, too";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Count {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    part: Part,
    /// Estimate from the data indexes, without reading the entries
    #[arg(long)]
    estimate: bool,
}

/// Entries between two updates of the progress bar.
const STEP: u64 = 1 << 14;

impl Count {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let range = self.part.range()?;
        let entries = self.place.read(options(), |_, keyspace| match self.estimate {
            true => Ok(keyspace.estimate_range(range)?.entries),
            false => counted(keyspace, range),
        })?;
        let json = json!({ "entries": entries, "estimated": self.estimate });
        output.show(json, |out| writeln!(out, "{entries}"))
    }
}

fn counted(keyspace: &Keyspace, range: Range) -> Outcome<u64> {
    let bar = Bar::keys("count", None);
    let mut entries = 0u64;
    for key in keyspace.range(range).keys() {
        key?;
        entries += 1;
        if entries.is_multiple_of(STEP) {
            bar.set(entries);
        }
    }
    Ok(entries)
}
