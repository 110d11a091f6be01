//! Files of the user that are read line by line: entries, keys, answers.

use crate::failure::{Failure, Outcome};
use siftdb_cli::experiment::KeySet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// A file of lines.
pub type Lines = BufReader<Box<dyn Read>>;

/// Opens a file of lines with its length, if it has one; `-` is standard input.
#[expect(clippy::disallowed_methods, reason = "the user's own file, no part of a database")]
pub fn open_lines(path: &Path) -> Outcome<(Lines, Option<u64>)> {
    if path.as_os_str() == "-" {
        return Ok((BufReader::new(Box::new(std::io::stdin())), None));
    }
    let file = File::open(path).map_err(|source| Failure::io(path, source))?;
    let data = file.metadata().map_err(|source| Failure::io(path, source))?;
    if data.is_dir() {
        let failure = Failure::io(path, ErrorKind::IsADirectory.into());
        return Err(failure.with_advice("name a file"));
    }
    let length = data.is_file().then_some(data.len());
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

/// Calls `each` with the number and the bytes of every line.
pub fn each_line(path: &Path, mut each: impl FnMut(u64, &mut Vec<u8>) -> Outcome) -> Outcome {
    let (mut lines, _) = open_lines(path)?;
    let (mut line, mut number) = (Vec::new(), 0);
    while next_line(&mut lines, &mut line, path)?.is_some() {
        number += 1;
        each(number, &mut line)?;
    }
    Ok(())
}

/// The keys of a file, one a line. Empty lines are none.
pub fn key_set(path: &Path) -> Outcome<KeySet> {
    let mut keys = Vec::new();
    each_line(path, |number, line| match (line.len(), KeySet::KEY_BYTES_MAX) {
        (0, _) => Ok(()),
        (bytes, limit) if bytes > limit => {
            let what = format!("a key of {bytes} bytes; at most {limit} are allowed");
            Err(Failure::usage(what).at_line(path, number, None))
        }
        _ => {
            keys.push(std::mem::take(line));
            Ok(())
        }
    })?;
    Ok(KeySet::new(keys))
}
