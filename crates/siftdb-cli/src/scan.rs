//! `siftdb scan DIR`: prints a range of entries.
//!
//! Each entry is a line: key, TAB, value, with escapes that `load` reads. So a scan is a copy of a
//! database in text, byte by byte. `--raw` prints no escapes. `--from` is included, `--to` is not.
//! An error ends the scan with its exit code, after the entries before it.

use crate::args::{InKeyspace, Part, options};
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::output::{KeyValue, Output, Shown};
use clap::Args;

result! {
    /// JSON, one object a line:
    value Scanned {
        entry: KeyValue;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Scanned>())]
pub struct Scan {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    part: Part,
    /// At most this many entries
    #[arg(long)]
    limit: Option<usize>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Print keys and values as they are, without escapes
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

impl Scan {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let range = self.part.range()?;
        self.place.read(options(), |_, keyspace| {
            let mut rows = output.rows();
            let entries = keyspace.range(range);
            let entries: Box<dyn Iterator<Item = _>> =
                if self.reverse { Box::new(entries.rev()) } else { Box::new(entries) };
            for entry in entries.take(self.limit.unwrap_or(usize::MAX)) {
                let (key, value) = entry?;
                rows.entry(&key, &value, self.raw)?;
            }
            rows.end()
        })
    }
}
