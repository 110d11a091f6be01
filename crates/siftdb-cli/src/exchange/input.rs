//! A file of lines that is read once, from front to end.

use crate::failure::{Failure, Outcome};
use crate::lines::{Lines, next_line, open_lines};
use std::path::{Path, PathBuf};

/// The file, and where in it reading is.
pub struct Input {
    lines: Lines,
    path: PathBuf,
    line: Vec<u8>,
    /// The number of the line that was read last, from 1.
    number: u64,
    taken: u64,
}

impl Input {
    /// Opens the file, `-` for standard input; with its length, if it has one.
    pub fn open(path: &Path) -> Outcome<(Self, Option<u64>)> {
        let (lines, length) = open_lines(path)?;
        let (line, path) = (Vec::new(), path.to_path_buf());
        Ok((Input { lines, path, line, number: 0, taken: 0 }, length))
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> Outcome<Option<&[u8]>> {
        self.number += 1;
        match next_line(&mut self.lines, &mut self.line, &self.path)? {
            Some(bytes) => {
                self.taken += bytes;
                Ok(Some(&self.line))
            }
            None => Ok(None),
        }
    }

    /// The next line and its number.
    pub fn next(&mut self) -> Outcome<Option<(u64, &[u8])>> {
        // Before the line is borrowed.
        let number = self.number + 1;
        Ok(self.line()?.map(|line| (number, line)))
    }

    /// Bytes read so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// `failure`, with the file and the line that was read last; `written` lines were written.
    pub fn at_line(&self, failure: Failure, written: Option<u64>) -> Failure {
        failure.at_line(&self.path, self.number, written)
    }
}
