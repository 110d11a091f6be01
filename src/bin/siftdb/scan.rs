//! `siftdb scan DIR`: prints a range of entries, or counts them.
//!
//! One line for each entry: key, TAB, value, escaped, which is what `load --escaped` reads; so a
//! scan is a copy of a database in text. `--from` is included, `--to` is not, as in Rust's ranges.
//! An error ends the scan with its code: what was printed before it stands.

use crate::args::{Database, Spelling};
use crate::failure::Outcome;
use crate::text::{escaped, output, print_json};
use clap::Args;
use serde_json::json;
use siftdb::{Db, Iter};
use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

#[derive(Args)]
pub struct Scan {
    #[command(flatten)]
    database: Database,
    /// Only keys that start with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// The first key
    #[arg(long)]
    from: Option<OsString>,
    /// The key before which to end
    #[arg(long)]
    to: Option<OsString>,
    /// At most this many entries
    #[arg(long)]
    limit: Option<usize>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Print how many entries there are instead of the entries
    #[arg(long)]
    count: bool,
    /// One JSON object a line; with --count, one in all
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    spelling: Spelling,
}

impl Scan {
    pub fn run(mut self) -> Outcome {
        let db = self.database.open_to_read()?;
        let entries = self.entries(&db)?;
        let entries: Box<dyn Iterator<Item = _>> =
            if self.reverse { Box::new(entries.rev()) } else { Box::new(entries) };
        let entries = entries.take(self.limit.unwrap_or(usize::MAX));
        let mut count = 0u64;
        let mut out = output();
        for entry in entries {
            let (key, value) = entry?;
            count += 1;
            if self.count {
                continue;
            }
            let (key, value) = (escaped(&key), escaped(&value));
            if self.json {
                writeln!(out, "{}", json!({ "key": key, "value": value }))?;
            } else {
                writeln!(out, "{key}\t{value}")?;
            }
        }
        if self.count && !self.json {
            writeln!(out, "{count}")?;
        }
        out.flush()?;
        drop(out);
        if self.count && self.json {
            print_json(&json!({ "count": count }))?;
        }
        Ok(db.close()?)
    }

    fn entries(&mut self, db: &Db) -> Outcome<Iter> {
        if let Some(prefix) = self.prefix.take() {
            return Ok(db.prefix(self.spelling.bytes(prefix)?));
        }
        let from = self.from.take().map(|key| self.spelling.bytes(key)).transpose()?;
        let to = self.to.take().map(|key| self.spelling.bytes(key)).transpose()?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        Ok(db.range((from, to.map_or(Bound::Unbounded, Bound::Excluded))))
    }
}
