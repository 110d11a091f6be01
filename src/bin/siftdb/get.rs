//! `siftdb get DIR KEY`: prints one value.
//!
//! On a terminal it prints a line of text, with escapes that `--escaped` reads back. Into a pipe or
//! file it prints the bytes of the value and nothing else. An absent key is exit code 1 with empty
//! standard output. A failed read is never "absent": its exit code is 3 or 4.

use crate::args::{Database, Spelling};
use crate::failure::{Failure, Outcome};
use crate::json::{bytes_field, joined};
use crate::output::{Output, Shown};
use crate::text::escaped;
use clap::Args;
use std::ffi::OsString;
use std::io::Write;

const JSON: &str = "\
JSON fields:
  format          1
  key             the key, or key_base64 if it is not UTF-8
  value           the value, or value_base64 if it is not UTF-8";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Get {
    #[command(flatten)]
    database: Database,
    /// The key
    key: OsString,
    #[command(flatten)]
    spelling: Spelling,
}

impl Get {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.spelling.bytes(self.key)?;
        let db = self.database.open_to_read()?;
        let value = db.get(&key)?.ok_or(Failure::NotFound)?;
        let json = joined([bytes_field("key", &key), bytes_field("value", &value)]);
        let shown = output.show(json, |out| {
            match output.is_read_by_people() {
                true => writeln!(out, "{}", escaped(&value))?,
                false => out.write_all(&value)?,
            }
            Ok(())
        })?;
        db.close()?;
        Ok(shown)
    }
}
