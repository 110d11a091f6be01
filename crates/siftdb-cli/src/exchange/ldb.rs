//! The output of RocksDB's `ldb dump --hex`: a line for each entry, `0x6B6579 ==> 0x76616C7565`,
//! and in the end how many there were. Only read.
//!
//! `ldb` prints that last line also after an error, such as a damaged block. Only its exit code
//! tells, so a pipe alone is not safe.

use crate::exchange::input::Input;
use crate::exchange::record::{Expiry, Reader, Record};
use crate::failure::{Failure, Outcome};
use data_encoding::HEXLOWER_PERMISSIVE;

const BETWEEN: &[u8] = b" ==> ";
const COUNT: &[u8] = b"Keys in range: ";
const TIMESTAMP: &[u8] = b"|timestamp:";
const NO_ENTRY: &str = "not a line of `ldb dump --hex`: 0x, hex digits, ` ==> `, 0x, hex digits";

/// Reads a dump.
#[derive(Default)]
pub struct Ldb {
    entries: u64,
    /// The line with the count was read.
    ended: bool,
}

impl Reader for Ldb {
    fn next(&mut self, input: &mut Input) -> Outcome<Option<Record>> {
        let Some(line) = input.line()? else {
            return match self.ended {
                true => Ok(None),
                // A dump that was cut looks whole without it.
                false => Err(Failure::usage("the dump ends before its line `Keys in range`")),
            };
        };
        if let Some(count) = line.strip_prefix(COUNT) {
            let entries = self.entries.to_string();
            if count != entries.as_bytes() {
                let count = String::from_utf8_lossy(count).into_owned();
                return Err(Failure::usage(format!("{entries} entries, the dump says {count}")));
            }
            self.ended = true;
            return self.next(input);
        }
        if self.ended {
            return Err(Failure::usage("a line after the end of the dump"));
        }
        let (key, value) = entry(line)?;
        self.entries += 1;
        Ok(Some(Record::Entry { key, value, expiry: Expiry::OfKeyspace }))
    }
}

/// Key and value of a line.
fn entry(line: &[u8]) -> Outcome<(Vec<u8>, Vec<u8>)> {
    let refuse = |what: &str| Err(Failure::usage(what));
    let Some(at) = line.windows(BETWEEN.len()).position(|part| part == BETWEEN) else {
        return refuse(NO_ENTRY);
    };
    let (key, value) = (&line[..at], &line[at + BETWEEN.len()..]);
    let bytes = |text: &[u8]| HEXLOWER_PERMISSIVE.decode(text.strip_prefix(b"0x")?).ok();
    match (bytes(key), bytes(value)) {
        (Some(key), Some(value)) => Ok((key, value)),
        (None, _) if key.windows(TIMESTAMP.len()).any(|part| part == TIMESTAMP) => {
            refuse("the key has a timestamp of its user; siftdb has none")
        }
        (Some(_), None) if value.starts_with(b":") => {
            refuse("the entry has wide columns; siftdb has one value for each key")
        }
        _ => refuse(NO_ENTRY),
    }
}
