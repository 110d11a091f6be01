//! `siftdb put DIR KEY VALUE`: writes one value into a database that exists, or with `--create`.
//!
//! Key and value are the bytes that the shell passes; `--escaped` spells others, such as NUL.
//! Closing syncs, so the value is durable when the command exits with 0. Use `load` for many
//! values: opening and closing a database costs more than one write.

use crate::args::{DatabaseToWrite, Spelling};
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;

const JSON: &str = "\
JSON fields:
  format          1
  entries         entries written";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Put {
    #[command(flatten)]
    database: DatabaseToWrite,
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
        let db = self.database.open()?;
        db.put(key, value)?;
        db.close()?;
        output.show(json!({ "entries": 1 }), |_| Ok(()))
    }
}
