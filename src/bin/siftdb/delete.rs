//! `siftdb delete DIR KEY`: deletes one key of a database that exists.
//!
//! An absent key is not an error, as in the library. Closing syncs and reports a failed sync.

use crate::args::{Database, Spelling};
use crate::failure::Outcome;
use crate::output::{Output, Shown};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;

const JSON: &str = "\
JSON fields:
  format          1
  entries         tombstones written";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Delete {
    #[command(flatten)]
    database: Database,
    /// The key, which need not be there
    key: OsString,
    #[command(flatten)]
    spelling: Spelling,
}

impl Delete {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.spelling.bytes(self.key)?;
        let db = self.database.open_to_write()?;
        db.delete(key)?;
        db.close()?;
        output.show(json!({ "entries": 1 }), |_| Ok(()))
    }
}
