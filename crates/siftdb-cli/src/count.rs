//! `siftdb count DIR`: how many entries there are, of all keys, of a range or of a prefix.
//!
//! The count is exact: every key is read, and no value. `--estimate` reads data indexes alone, and
//! also counts old versions and tombstones that no compaction has dropped yet.

use crate::args::{InKeyspace, Part, Range, options};
use crate::bars::Bar;
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use clap::Args;
use siftdb::Keyspace;
use std::io::Write;

result! {
    /// Examples:
    ///   siftdb count DIR --prefix user/
    ///   siftdb count DIR --estimate
    struct Counted {
        /// entries of these keys
        entries: u64;
        /// true with --estimate: then old versions and deletions count, too
        estimated: bool;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Counted>())]
pub struct Count {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    part: Part,
    /// Estimate from the data indexes, without reading the entries
    #[arg(long)]
    estimate: bool,
}

impl Count {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let range = self.part.range()?;
        let entries = self.place.read(options(), |_, keyspace| match self.estimate {
            true => Ok(keyspace.estimate_range(range)?.entries),
            false => counted(keyspace, range),
        })?;
        let counted = Counted { entries, estimated: self.estimate };
        output.show(&counted, |out| writeln!(out, "{entries}"))
    }
}

fn counted(keyspace: &Keyspace, range: Range) -> Outcome<u64> {
    let bar = Bar::keys("count", None);
    let mut keys = keyspace.range(range).keys();
    Ok(keys.try_fold(0, |_, key| key.map(|_| bar.step()))?)
}
