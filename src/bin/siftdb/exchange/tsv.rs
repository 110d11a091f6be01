//! Lines of KEY TAB VALUE, as `scan` prints them and `load` reads them: one keyspace, no expiry.

use crate::exchange::input::Input;
use crate::exchange::record::{Entry, Expiry, KeyspaceBegin, Reader, Record, Writer};
use crate::failure::{Failure, Outcome};
use crate::text::{escaped, unescaped};
use std::io::Write;

/// Both directions.
pub struct Tsv;

impl Reader for Tsv {
    fn next(&mut self, input: &mut Input) -> Outcome<Option<Record>> {
        let Some(line) = input.line()? else { return Ok(None) };
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
            return Err(Failure::usage("no TAB between key and value"));
        };
        let bytes = |spelled| unescaped(spelled).map_err(Failure::usage);
        let (key, value) = (bytes(&line[..tab])?, bytes(&line[tab + 1..])?);
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
