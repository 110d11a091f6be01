//! `siftdb load DIR FILE|-`: writes lines of KEY TAB VALUE, and creates the database if need be.
//!
//! The key ends at the first TAB; without `--escaped` everything else is taken as it is. Lines are
//! written in batches, each whole or not at all. The first line that cannot be used ends the
//! command: the batches before it stay, the one it is in is not written, and the message names
//! file, line and how many lines were written, so that the rest can be loaded after a correction.
//!
//! [`open_lines`] and [`next_line`] are also how `demo --input` reads.

use crate::args::Database;
use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::text::{print_json, unescaped};
use clap::Args;
use serde_json::json;
use siftdb::WriteBatch;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A batch is written once it has this many bytes.
const BATCH_BYTES: usize = 256 << 10;

#[derive(Args)]
pub struct Load {
    #[command(flatten)]
    database: Database,
    /// Lines of KEY TAB VALUE; `-` is standard input
    file: PathBuf,
    /// Read \t, \n, \\ and \xNN, as `scan` prints them
    #[arg(long)]
    escaped: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
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

/// Reads the next line without its end into `line`. False at the end of the file; the number of
/// bytes is what was taken from it.
pub fn next_line(lines: &mut Lines, line: &mut Vec<u8>, path: &Path) -> Outcome<Option<u64>> {
    line.clear();
    let taken = lines.read_until(b'\n', line).map_err(|source| Failure::io(path, source))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok((taken > 0).then_some(taken as u64))
}

impl Load {
    fn put(&self, line: &[u8], batch: &mut WriteBatch) -> Outcome {
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
            return Err(Failure::Usage("no TAB between key and value".into()));
        };
        let (key, value) = (&line[..tab], &line[tab + 1..]);
        if self.escaped {
            batch.put(unescaped(key)?, unescaped(value)?);
        } else {
            batch.put(key, value);
        }
        Ok(())
    }

    fn at_line(&self, line: u64, written: u64, cause: Failure) -> Failure {
        let (file, cause) = (self.file.clone(), Box::new(cause));
        Failure::Line { file, line, cause, written: Some(written) }
    }

    pub fn run(self) -> Outcome {
        let (mut lines, length) = open_lines(&self.file)?;
        let db = self.database.open_to_write(true)?;
        let started = Instant::now();
        let bar = Bar::bytes("load", length);
        let mut batch = WriteBatch::new();
        let mut line = Vec::new();
        let (mut entries, mut written) = (0u64, 0u64);
        loop {
            let at_line = |cause| self.at_line(entries + 1, written, cause);
            let taken = next_line(&mut lines, &mut line, &self.file).map_err(at_line)?;
            let Some(taken) = taken else { break };
            self.put(&line, &mut batch).map_err(at_line)?;
            entries += 1;
            // A batch that refused the line has not grown, and says why when it is written.
            let refused = written + batch.len() as u64 != entries;
            if refused || batch.bytes() >= BATCH_BYTES {
                let batch = std::mem::take(&mut batch);
                db.write(batch).map_err(|error| self.at_line(entries, written, error.into()))?;
                written = entries;
            }
            bar.add(taken);
        }
        if !batch.is_empty() {
            db.write(batch).map_err(|error| self.at_line(entries, written, error.into()))?;
        }
        db.close()?;
        let seconds = started.elapsed().as_secs_f64();
        bar.finish(&format!("{entries} entries in {seconds:.1} s"));
        if self.json {
            print_json(&json!({ "entries": entries, "seconds": seconds }))?;
        }
        Ok(())
    }
}
