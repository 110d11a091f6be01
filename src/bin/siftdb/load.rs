//! `siftdb load DIR FILE|-`: writes lines of KEY TAB VALUE, as `scan` prints them.
//!
//! Escapes are read as `scan` writes them, so every byte survives. With `--raw` the key ends at the
//! first TAB, and there are no escapes. Lines are written in atomic batches, and flushed to tables
//! at the end. The first unusable line ends the command: earlier batches stay, and its own batch is
//! not written. The message names the file, the line and the number of lines written, so that the
//! rest can be loaded after a correction.
//!
//! `demo --input` also reads lines by [`open_lines`] and [`next_line`].

use crate::args::ToWrite;
use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Shown};
use crate::text::{counted_entries, unescaped};
use clap::Args;
use serde_json::json;
use siftdb::{Db, Keyspace, KeyspaceBatch, WriteBatch};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes at which a batch is written.
const BATCH_BYTES: usize = 256 << 10;

const JSON: &str = "\
JSON fields:
  format          1
  entries         entries written
  seconds         how long it took, flush and close included";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Load {
    #[command(flatten)]
    place: ToWrite,
    /// Lines of KEY TAB VALUE, as `scan` prints them; `-` is standard input
    file: PathBuf,
    /// Read no escapes in keys and values
    #[arg(long)]
    raw: bool,
}

/// A file of lines.
pub type Lines = BufReader<Box<dyn Read>>;

/// Opens a file of lines with its length, if it has one; `-` is standard input.
#[expect(clippy::disallowed_methods, reason = "the user's own file, no part of a database")]
pub fn open_lines(path: &Path) -> Outcome<(Lines, Option<u64>)> {
    if path.as_os_str() == "-" {
        return Ok((BufReader::new(Box::new(std::io::stdin())), None));
    }
    let file = File::open(path).map_err(|source| Failure::io(path, source))?;
    let length = file.metadata().ok().filter(|data| data.is_file()).map(|data| data.len());
    Ok((BufReader::with_capacity(1 << 20, Box::new(file)), length))
}

/// Reads the next line without its end into `line`, and returns the bytes it took from the file.
/// `None` at the end of the file.
pub fn next_line(lines: &mut Lines, line: &mut Vec<u8>, path: &Path) -> Outcome<Option<u64>> {
    line.clear();
    let taken = lines.read_until(b'\n', line).map_err(|source| Failure::io(path, source))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok((taken > 0).then_some(taken as u64))
}

impl Load {
    fn put(&self, line: &[u8], mut batch: KeyspaceBatch<'_>) -> Outcome {
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
            return Err(Failure::usage("no TAB between key and value"));
        };
        let (key, value) = (&line[..tab], &line[tab + 1..]);
        if self.raw {
            batch.put(key, value);
            return Ok(());
        }
        let advice = |what| Failure::usage(format!("{what}; --raw reads lines without escapes"));
        batch.put(unescaped(key).map_err(advice)?, unescaped(value).map_err(advice)?);
        Ok(())
    }

    /// Writes all lines in batches. Returns their number.
    fn write_lines(
        &self,
        lines: &mut Lines,
        db: &Db,
        keyspace: &Keyspace,
        bar: &Bar,
    ) -> Outcome<u64> {
        let mut batch = WriteBatch::new();
        let mut line = Vec::new();
        let (mut entries, mut written) = (0u64, 0u64);
        loop {
            let at_line = |cause: Failure| cause.at_line(&self.file, entries + 1, Some(written));
            let taken = next_line(lines, &mut line, &self.file).map_err(at_line)?;
            if taken.is_some() {
                self.put(&line, batch.in_keyspace(keyspace)).map_err(at_line)?;
                entries += 1;
            }
            // A batch that refused the line has not grown. Writing it returns the reason.
            let refused = written + batch.len() as u64 != entries;
            let is_last = taken.is_none() && !batch.is_empty();
            if refused || batch.bytes() >= BATCH_BYTES || is_last {
                db.write(std::mem::take(&mut batch)).map_err(|error| {
                    Failure::from(error).at_line(&self.file, entries, Some(written))
                })?;
                written = entries;
            }
            match taken {
                Some(bytes) => bar.add(bytes),
                None => return Ok(entries),
            }
        }
    }

    pub fn run(self, output: Output) -> Outcome<Shown> {
        let (mut lines, length) = open_lines(&self.file)?;
        let mut started = Instant::now();
        let bar = Bar::bytes("load", length);
        let entries = self.place.write(|db, keyspace| {
            started = Instant::now();
            let entries = self.write_lines(&mut lines, db, keyspace, &bar)?;
            // Only tables have filters and appear in most figures.
            keyspace.flush()?;
            Ok(entries)
        })?;
        drop(bar);
        let seconds = started.elapsed().as_secs_f64();
        output.note(&format!("{} loaded in {seconds:.1} s", counted_entries(entries)));
        output.show_json(json!({ "entries": entries, "seconds": seconds }))
    }
}
