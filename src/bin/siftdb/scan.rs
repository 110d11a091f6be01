//! `siftdb scan DIR`: prints a range of entries, or counts them.
//!
//! Each entry is a line: key, TAB, value, with escapes that `load` reads. So a scan is a copy of a
//! database in text, byte by byte. `--raw` prints no escapes. `--from` is included, `--to` is not.
//! An error ends the scan with its exit code, after the entries before it.

use crate::args::{InKeyspace, Spelling, options};
use crate::bars::Bar;
use crate::failure::Outcome;
use crate::json::{bytes_field, joined};
use crate::output::{Output, Shown};
use crate::text::escaped;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;

const JSON: &str = "\
JSON, one object a line:
  format          1
  key             the key, or key_base64 if it is not UTF-8
  value           the value, or value_base64 if it is not UTF-8
With --count, one object in all:
  format          1
  count           entries in the range";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Scan {
    #[command(flatten)]
    place: InKeyspace,
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
    /// Print keys and values as they are, without escapes
    #[arg(long, conflicts_with_all = ["count", "json"])]
    raw: bool,
    #[command(flatten)]
    spelling: Spelling,
}

/// Entries between two updates of the progress bar.
const STEP: u64 = 1 << 14;

impl Scan {
    pub fn run(mut self, output: Output) -> Outcome<Shown> {
        let [prefix, from, to] = [self.prefix.take(), self.from.take(), self.to.take()];
        let range = self.spelling.range(from, to)?;
        let prefix = prefix.map(|prefix| self.spelling.bytes(prefix)).transpose()?;
        self.place.read(options(), |_, keyspace| {
            let entries = match prefix {
                Some(prefix) => keyspace.prefix(prefix),
                None => keyspace.range(range),
            };
            let entries: Box<dyn Iterator<Item = _>> =
                if self.reverse { Box::new(entries.rev()) } else { Box::new(entries) };
            let entries = entries.take(self.limit.unwrap_or(usize::MAX));
            if self.count { count(entries, output) } else { self.print(entries, output) }
        })
    }

    fn print(&self, entries: impl Iterator<Item = Entry>, output: Output) -> Outcome<Shown> {
        let mut rows = output.rows();
        for entry in entries {
            let (key, value) = entry?;
            rows.row(
                || joined([bytes_field("key", &key), bytes_field("value", &value)]),
                |out| match self.raw {
                    true => {
                        out.write_all(&key)?;
                        out.write_all(b"\t")?;
                        out.write_all(&value)?;
                        out.write_all(b"\n")
                    }
                    false => writeln!(out, "{}\t{}", escaped(&key), escaped(&value)),
                },
            )?;
        }
        rows.end()
    }
}

type Entry = siftdb::Result<(siftdb::Key, siftdb::Value)>;

fn count(entries: impl Iterator<Item = Entry>, output: Output) -> Outcome<Shown> {
    let bar = Bar::keys("count", None);
    let mut count = 0u64;
    for entry in entries {
        entry?;
        count += 1;
        if count.is_multiple_of(STEP) {
            bar.set(count);
        }
    }
    drop(bar);
    output.show(json!({ "count": count }), |out| writeln!(out, "{count}"))
}
