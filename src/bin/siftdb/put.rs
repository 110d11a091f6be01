//! `siftdb put DIR KEY VALUE`: writes one value, and creates the database if there is none.
//!
//! Any bytes that the shell can pass are taken as they are; `--escaped` spells the others, a NUL
//! for instance. Closing syncs, so the value is durable when the command has ended with 0.
//! Many values are for `load`: opening and closing a database costs more than one write.

use crate::args::{Database, Spelling};
use crate::failure::Outcome;
use clap::Args;
use std::ffi::OsString;

#[derive(Args)]
pub struct Put {
    #[command(flatten)]
    database: Database,
    /// The key
    key: OsString,
    /// The value
    value: OsString,
    #[command(flatten)]
    spelling: Spelling,
}

impl Put {
    pub fn run(self) -> Outcome {
        let key = self.spelling.bytes(self.key)?;
        let value = self.spelling.bytes(self.value)?;
        let db = self.database.open_to_write(true)?;
        db.put(key, value)?;
        Ok(db.close()?)
    }
}
