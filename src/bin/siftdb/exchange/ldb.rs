//! What RocksDB's `ldb dump --hex` prints: a line for each entry, `0x6B6579 ==> 0x76616C7565`, and
//! in the end how many there were. Only read.

use crate::exchange::input::Input;
use crate::exchange::record::{Expiry, Reader, Record};
use crate::failure::{Failure, Outcome};
use crate::text::unhexed;

const BETWEEN: &[u8] = b" ==> ";
const COUNT: &[u8] = b"Keys in range: ";

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
        let (key, value) = entry(line).ok_or_else(|| {
            Failure::usage(
                "not a line of `ldb dump --hex`: 0x, hex digits, ` ==> `, 0x, hex digits",
            )
        })?;
        self.entries += 1;
        Ok(Some(Record::Entry { key, value, expiry: Expiry::OfKeyspace }))
    }
}

fn entry(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = line.windows(BETWEEN.len()).position(|part| part == BETWEEN)?;
    let bytes = |text: &[u8]| unhexed(text.strip_prefix(b"0x")?);
    Some((bytes(&line[..at])?, bytes(&line[at + BETWEEN.len()..])?))
}
