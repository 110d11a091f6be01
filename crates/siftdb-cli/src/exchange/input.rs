//! A file of lines that is read once, from front to end.

use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::lines::{Lines, entry_line_bytes_max, next_line, open_lines};
use std::path::{Path, PathBuf};

/// The file, and where in it reading is.
pub struct Input {
    lines: Lines,
    path: PathBuf,
    line: Vec<u8>,
    /// The number of the line that was read last, from 1.
    number: u64,
    line_bytes_max: u64,
    bar: Bar,
}

impl Input {
    /// Opens the file, `-` for standard input. Its lines spell a byte of a key or a value in up to
    /// `byte_bytes`. A bar of this name shows how far it was read.
    pub fn open(path: &Path, name: &'static str, byte_bytes: u64) -> Outcome<Self> {
        let (lines, length) = open_lines(path)?;
        let (line, path, bar) = (Vec::new(), path.to_path_buf(), Bar::bytes(name, length));
        let line_bytes_max = entry_line_bytes_max(byte_bytes);
        Ok(Input { lines, path, line, number: 0, line_bytes_max, bar })
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> Outcome<Option<&[u8]>> {
        self.number += 1;
        match next_line(&mut self.lines, &mut self.line, &self.path, self.line_bytes_max)? {
            Some(bytes) => {
                self.bar.add(bytes);
                Ok(Some(&self.line))
            }
            None => Ok(None),
        }
    }

    /// The next line with its number, and the bar.
    pub fn next(&mut self) -> Outcome<Option<(u64, &[u8], &Bar)>> {
        let is_there = self.line()?.is_some();
        Ok(is_there.then_some((self.number, &self.line[..], &self.bar)))
    }

    /// `failure`, with the file and the line that was read last; `written` lines were written.
    pub fn at_line(&self, failure: Failure, written: Option<u64>) -> Failure {
        failure.at_line(&self.path, self.number, written)
    }
}
