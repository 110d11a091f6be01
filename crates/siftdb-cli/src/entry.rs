//! `siftdb get|put|delete DIR`: reads, writes or deletes single entries.
//!
//! Keys and values are the bytes that the shell passes; `--escaped` spells others, such as NUL.
//!
//! `get` of one key prints a line of text with such escapes on a terminal. Into a pipe or file it
//! prints the bytes of the value and nothing else. Of several keys it prints lines as `scan` does,
//! in the order of the arguments. Each absent key is named on standard error, and the exit code is
//! 1. A failed read is never "absent": its exit code is 3 or 4.
//!
//! `put` and `delete` sync when they close the database, so a write is durable when the command
//! exits with 0. Deleting an absent key is not an error, as in the library. Use `load` for many
//! values: opening and closing a database costs more than one write.

use crate::args::{InKeyspace, Spelling, ToWrite, options, prefix_range, range, unnamed};
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::lines::{VALUE_BYTES_MAX, each_line, open_lines};
use crate::output::{KeyValue, Output, Rows, Shown};
use crate::text::escaped;
use clap::Args;
use siftdb::{Keyspace, WriteBatch};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Keys that are looked up together.
const KEYS_AT_ONCE: usize = 1 << 10;

/// More bytes than a value may have.
const VALUE_READ_MAX: u64 = VALUE_BYTES_MAX as u64 + 1;

result! {
    /// Examples:
    ///   siftdb get DIR KEY
    ///   siftdb get DIR KEY1 KEY2 KEY3
    ///   siftdb get DIR --input FILE
    /// JSON fields; of several keys one object a line. Each absent key is an error on standard
    /// error, which has the key, too:
    value Got {
        entry: KeyValue;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Got>())]
pub struct Get {
    #[command(flatten)]
    place: InKeyspace,
    /// The key; the entries of several keys are printed as lines of KEY TAB VALUE
    #[arg(value_name = "KEY", required_unless_present = "input")]
    keys: Vec<OsString>,
    /// Take the keys from this file, one a line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    input: Option<PathBuf>,
    #[command(flatten)]
    spelling: Spelling,
}

impl Get {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let keys = self.keys.into_iter().map(|key| self.spelling.bytes(key));
        let keys = keys.collect::<Outcome<Vec<_>>>()?;
        if let ([key], None) = (&keys[..], &self.input) {
            return get_one(&self.place, key, output);
        }
        let mut rows = output.rows();
        let missing = self.place.read(options(), |_, keyspace| match &self.input {
            Some(path) => look_up_file(keyspace, path, &self.spelling, &mut rows),
            None => look_up(keyspace, &keys, &mut rows),
        })?;
        let shown = rows.end()?;
        if missing > 0 { Err(Failure::some_not_found()) } else { Ok(shown) }
    }
}

fn get_one(place: &InKeyspace, key: &[u8], output: Output) -> Outcome<Shown> {
    let value = place.read(options(), |_, keyspace| Ok(keyspace.get(key)?))?;
    let value = value.ok_or_else(|| Failure::not_found(key))?;
    output.show_whole(&KeyValue::new(key, &value), |out| match output.is_read_by_people() {
        true => writeln!(out, "{}", escaped(&value)),
        false => out.write_all(&value),
    })
}

/// Prints the entries of `keys`, names the absent ones, and returns how many these are.
fn look_up(keyspace: &Keyspace, keys: &[Vec<u8>], rows: &mut Rows) -> Outcome<u64> {
    let mut missing = 0;
    for (key, value) in keys.iter().zip(keyspace.multi_get(keys)?) {
        match value {
            Some(value) => rows.entry(key, &value, false)?,
            None => {
                missing += 1;
                rows.error(&Failure::not_found(key))?;
            }
        }
    }
    Ok(missing)
}

/// The same for the lines of a file, many at once.
fn look_up_file(
    keyspace: &Keyspace,
    path: &Path,
    spelling: &Spelling,
    rows: &mut Rows,
) -> Outcome<u64> {
    let (mut keys, mut missing) = (Vec::new(), 0);
    each_line(path, |number, line| {
        let key = spelling.unspelled(std::mem::take(line));
        keys.push(key.map_err(|cause| cause.at_line(path, number, None))?);
        if keys.len() == KEYS_AT_ONCE {
            missing += look_up(keyspace, &keys, rows)?;
            keys.clear();
        }
        Ok(())
    })?;
    Ok(missing + look_up(keyspace, &keys, rows)?)
}

result! {
    /// Examples:
    ///   siftdb put DIR KEY VALUE --create
    ///   siftdb put DIR KEY --input FILE
    struct Written {
        /// entries written
        entries: usize;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Written>())]
pub struct Put {
    #[command(flatten)]
    place: ToWrite,
    /// The key
    key: OsString,
    /// The value
    #[arg(required_unless_present = "input")]
    value: Option<OsString>,
    /// Take the value from this file, all bytes as they are; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    input: Option<PathBuf>,
    #[command(flatten)]
    spelling: Spelling,
}

impl Put {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.spelling.bytes(self.key)?;
        let value = match &self.input {
            Some(path) => contents(path)?,
            None => self.spelling.bytes(self.value.unwrap_or_default())?,
        };
        self.place.write(&unnamed(), |_, keyspace| Ok(keyspace.put(key, value)?))?;
        output.show_json(&Written { entries: 1 })
    }
}

/// The bytes of a file. The database refuses what is too long.
fn contents(path: &Path) -> Outcome<Vec<u8>> {
    let (file, length) = open_lines(path)?;
    let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(VALUE_READ_MAX) as usize);
    let read = file.take(VALUE_READ_MAX).read_to_end(&mut bytes);
    read.map_err(|source| Failure::io(path, source))?;
    Ok(bytes)
}

result! {
    /// Examples:
    ///   siftdb delete DIR KEY1 KEY2
    ///   siftdb delete DIR --prefix user/7/
    ///   siftdb delete DIR --range 2025-01-01 2026-01-01
    struct Deleted {
        /// tombstones written; a range or prefix takes one
        entries: usize;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Deleted>())]
pub struct Delete {
    #[command(flatten)]
    place: InKeyspace,
    /// The keys, which need not be there
    #[arg(value_name = "KEY", required_unless_present_any = ["range", "prefix"])]
    keys: Vec<OsString>,
    /// All keys from the first one to the one before which to end
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["keys", "prefix"])]
    range: Option<Vec<OsString>>,
    /// All keys that start with this
    #[arg(long, conflicts_with = "keys", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    #[command(flatten)]
    spelling: Spelling,
}

impl Delete {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let bytes = |key: OsString| self.spelling.bytes(key);
        let keys = self.keys.into_iter().map(bytes).collect::<Outcome<Vec<_>>>()?;
        let prefix = self.prefix.map(bytes).transpose()?;
        // It may be a variable of a shell that is not set.
        if prefix.as_ref().is_some_and(Vec::is_empty) {
            return Err(Failure::usage(
                "--prefix is empty, which would delete all keys; name a prefix, or use --range",
            ));
        }
        let mut ends = self.range.into_iter().flatten().map(bytes);
        let (from, to) = (ends.next().transpose()?, ends.next().transpose()?);
        // Of a range, both ends are named, so an empty one is no mistake for "all keys".
        let deleted = match (prefix, from.is_some()) {
            (Some(prefix), _) => Some(prefix_range(prefix)),
            (None, true) => Some(range(from, to)?),
            (None, false) => None,
        };
        let entries = self.place.write(options(), &unnamed(), |db, keyspace| {
            let mut batch = WriteBatch::new();
            for key in &keys {
                batch.in_keyspace(keyspace).delete(key);
            }
            deleted.into_iter().for_each(|range| {
                batch.in_keyspace(keyspace).delete_range(range);
            });
            let entries = batch.len();
            db.write(batch)?;
            Ok(entries)
        })?;
        output.show_json(&Deleted { entries })
    }
}
