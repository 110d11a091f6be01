//! Lines of KEY TAB VALUE, as `scan` prints them and `load` reads them: one keyspace, no expiry.
//!
//! [`Columns`] reads lines of other separators and columns, too.

use crate::exchange::input::Input;
use crate::exchange::record::{Entry, Expiry, KeyspaceBegin, Reader, Record, Writer};
use crate::failure::{Failure, Outcome};
use crate::text::{counted, escaped, unescaped};
use std::borrow::Cow;
use std::io::Write;

/// Both directions.
pub struct Tsv;

/// Parts of a line, or what their escapes say.
type KeyAndValue<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Where key and value are in a line.
pub struct Columns {
    /// The byte between two columns.
    pub separator: u8,
    /// The column of the key, from 1.
    pub key: usize,
    /// The column of the value, from 1; without it the value is all that follows the key.
    pub value: Option<usize>,
    /// Lines have no escapes.
    pub raw: bool,
}

impl Columns {
    /// As `scan` prints lines.
    const SCANNED: Columns = Columns { separator: b'\t', key: 1, value: None, raw: false };

    /// Key and value of `line`.
    pub fn entry<'a>(&self, line: &'a [u8]) -> Outcome<KeyAndValue<'a>> {
        let key = self.column(line, self.key)?;
        let value = match self.value {
            Some(number) => self.column(line, number)?,
            None => {
                let mut columns = line.splitn(self.key + 1, |byte| *byte == self.separator);
                columns.nth(self.key).ok_or_else(|| self.too_few(line, self.key + 1))?
            }
        };
        Ok((self.bytes(key)?, self.bytes(value)?))
    }

    fn column<'a>(&self, line: &'a [u8], number: usize) -> Outcome<&'a [u8]> {
        let column = line.split(|byte| *byte == self.separator).nth(number - 1);
        column.ok_or_else(|| self.too_few(line, number))
    }

    fn too_few(&self, line: &[u8], number: usize) -> Failure {
        match (self.key, self.value, self.separator) {
            (1, None, b'\t') => Failure::usage("no TAB between key and value"),
            (1, None, byte) => {
                let separator = byte.escape_ascii();
                Failure::usage(format!("no separator '{separator}' between key and value"))
            }
            _ => {
                let count = line.split(|byte| *byte == self.separator).count();
                let are = counted(count as u64, "column");
                Failure::usage(format!("{are}; column {number} is not there"))
            }
        }
    }

    fn bytes<'a>(&self, column: &'a [u8]) -> Outcome<Cow<'a, [u8]>> {
        if self.raw || !column.contains(&b'\\') {
            return Ok(Cow::Borrowed(column));
        }
        unescaped(column).map(Cow::Owned).map_err(|what| {
            Failure::usage(format!("{what}; siftdb load --raw reads lines without escapes"))
        })
    }
}

impl Reader for Tsv {
    fn next(&mut self, input: &mut Input) -> Outcome<Option<Record>> {
        let Some(line) = input.line()? else { return Ok(None) };
        let (key, value) = Columns::SCANNED.entry(line)?;
        let (key, value) = (key.into_owned(), value.into_owned());
        Ok(Some(Record::Entry { key, value, expiry: Expiry::OfKeyspace }))
    }
}

impl Writer for Tsv {
    fn keyspace(&mut self, _out: &mut dyn Write, begins: &KeyspaceBegin<'_>) -> Outcome {
        match begins.alone {
            true => Ok(()),
            false => Err(Failure::usage(
                "tsv carries one keyspace; choose it with --keyspace, or use --format jsonl",
            )),
        }
    }

    fn entry(&mut self, out: &mut dyn Write, entry: &Entry<'_>) -> Outcome {
        refuse_expiry("tsv", entry)?;
        Ok(writeln!(out, "{}\t{}", escaped(entry.key), escaped(entry.value))?)
    }
}

/// Refuses an entry that expires, which the format cannot say.
pub fn refuse_expiry(format: &str, entry: &Entry<'_>) -> Outcome {
    match entry.expires_at {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!(
            "the entry of key {} expires, which {format} cannot say; use --format jsonl",
            escaped(entry.key)
        ))),
    }
}
