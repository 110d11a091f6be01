//! `siftdb get|put|delete DIR KEY`: reads, writes or deletes one entry.
//!
//! Key and value are the bytes that the shell passes; `--escaped` spells others, such as NUL.
//!
//! `get` prints a line of text with such escapes on a terminal. Into a pipe or file it prints the
//! bytes of the value and nothing else. An absent key is exit code 1 with empty standard output. A
//! failed read is never "absent": its exit code is 3 or 4.
//!
//! `put` and `delete` sync when they close the database, so a write is durable when the command
//! exits with 0. Deleting an absent key is not an error, as in the library. Use `load` for many
//! values: opening and closing a database costs more than one write.

use crate::args::{InKeyspace, Spelling, ToWrite, options, unnamed};
use crate::failure::{Failure, Outcome};
use crate::json::{bytes_field, joined};
use crate::output::{Output, Shown};
use crate::text::escaped;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;

const GET_JSON: &str = "\
JSON fields:
  format          1
  key             the key, or key_base64 if it is not UTF-8
  value           the value, or value_base64 if it is not UTF-8";

#[derive(Args)]
#[command(after_long_help = GET_JSON)]
pub struct Get {
    #[command(flatten)]
    place: InKeyspace,
    /// The key
    key: OsString,
    #[command(flatten)]
    spelling: Spelling,
}

impl Get {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.spelling.bytes(self.key)?;
        let value = self.place.read(options(), |_, keyspace| Ok(keyspace.get(&key)?))?;
        let value = value.ok_or_else(Failure::not_found)?;
        let json = joined([bytes_field("key", &key), bytes_field("value", &value)]);
        output.show(json, |out| match output.is_read_by_people() {
            true => writeln!(out, "{}", escaped(&value)),
            false => out.write_all(&value),
        })
    }
}

const PUT_JSON: &str = "\
JSON fields:
  format          1
  entries         entries written";

#[derive(Args)]
#[command(after_long_help = PUT_JSON)]
pub struct Put {
    #[command(flatten)]
    place: ToWrite,
    /// The key
    key: OsString,
    /// The value
    value: OsString,
    #[command(flatten)]
    spelling: Spelling,
}

impl Put {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.spelling.bytes(self.key)?;
        let value = self.spelling.bytes(self.value)?;
        self.place.write(|_, keyspace| Ok(keyspace.put(key, value)?))?;
        output.show_json(json!({ "entries": 1 }))
    }
}

const DELETE_JSON: &str = "\
JSON fields:
  format          1
  entries         tombstones written";

#[derive(Args)]
#[command(after_long_help = DELETE_JSON)]
pub struct Delete {
    #[command(flatten)]
    place: InKeyspace,
    /// The key, which need not be there
    key: OsString,
    #[command(flatten)]
    spelling: Spelling,
}

impl Delete {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.spelling.bytes(self.key)?;
        self.place.write(options(), &unnamed(), |_, keyspace| Ok(keyspace.delete(key)?))?;
        output.show_json(json!({ "entries": 1 }))
    }
}
