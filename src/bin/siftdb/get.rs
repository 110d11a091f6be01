//! `siftdb get DIR KEY`: prints one value.
//!
//! A line of text by default, with what is not text escaped as `--escaped` reads it back; `--raw`
//! prints the bytes and nothing else, for pipes. A key that is not there is exit code 1 with
//! nothing on standard output, and never the answer to a failed read: that is 3 or 4.

use crate::args::{Database, Spelling};
use crate::failure::{Failure, Outcome};
use crate::text::{escaped, output};
use clap::Args;
use std::ffi::OsString;
use std::io::Write;

#[derive(Args)]
pub struct Get {
    #[command(flatten)]
    database: Database,
    /// The key
    key: OsString,
    /// Print the bytes as they are, without escapes and without a line's end
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    spelling: Spelling,
}

impl Get {
    pub fn run(self) -> Outcome {
        let key = self.spelling.bytes(self.key)?;
        let db = self.database.open_to_read()?;
        let value = db.get(&key)?.ok_or(Failure::NotFound)?;
        let mut out = output();
        if self.raw {
            out.write_all(&value)?;
        } else {
            writeln!(out, "{}", escaped(&value))?;
        }
        out.flush()?;
        Ok(db.close()?)
    }
}
