//! Files of the user that are read line by line: entries, keys, answers.

use crate::failure::{Failure, Outcome};
use siftdb_cli::experiment::KeySet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// A file of lines.
pub type Lines = BufReader<Box<dyn Read>>;

/// The largest value of the library.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// The longest line with a key: an escape takes four bytes. Ranges have two keys and no escapes.
const KEY_LINE_BYTES_MAX: u64 = 4 * KeySet::KEY_BYTES_MAX as u64;

/// The longest line of an entry with the spelling of a byte that takes `byte_bytes`. Names and
/// marks around key and value take little.
pub fn entry_line_bytes_max(byte_bytes: u64) -> u64 {
    byte_bytes * (KeySet::KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64 + (64 << 10)
}

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
/// `None` at the end of the file. Of a line longer than `bytes_max` no more is read.
pub fn next_line(
    lines: &mut Lines,
    line: &mut Vec<u8>,
    path: &Path,
    bytes_max: u64,
) -> Outcome<Option<u64>> {
    line.clear();
    let taken = lines.take(bytes_max + 1).read_until(b'\n', line);
    let taken = taken.map_err(|source| Failure::io(path, source))? as u64;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if taken > bytes_max {
        let what = format!("a line of more than {bytes_max} bytes, longer than any that is read");
        return Err(Failure::usage(what));
    }
    Ok((taken > 0).then_some(taken))
}

/// Calls `each` with the number and the bytes of every line, which has a key or two.
pub fn each_line(path: &Path, mut each: impl FnMut(u64, &mut Vec<u8>) -> Outcome) -> Outcome {
    let (mut lines, _) = open_lines(path)?;
    let mut line = Vec::new();
    for number in 1.. {
        let next = next_line(&mut lines, &mut line, path, KEY_LINE_BYTES_MAX);
        if next.map_err(|failure| failure.at_line(path, number, None))?.is_none() {
            break;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn lines_are_read_up_to_their_limit() {
        let read = |text: &'static str, bytes_max| {
            let mut lines: Lines = BufReader::new(Box::new(Cursor::new(text)));
            let (mut line, mut found) = (Vec::new(), Vec::new());
            loop {
                match next_line(&mut lines, &mut line, Path::new("file"), bytes_max) {
                    Ok(Some(_)) => found.push(String::from_utf8_lossy(&line).into_owned()),
                    Ok(None) => return found,
                    Err(_) => return [found, vec![format!("{} bytes", line.len())]].concat(),
                }
            }
        };
        assert_eq!(read("abc\n\nab\n", 3), ["abc", "", "ab"]);
        assert_eq!(read("abc", 3), ["abc"], "the last line needs no end");
        assert_eq!(read("a\nabcdefgh\n", 3), ["a", "4 bytes"], "no more is read");
        assert_eq!(read("abcd", 3), ["4 bytes"]);
    }
}
