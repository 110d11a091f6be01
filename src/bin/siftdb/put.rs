//! `siftdb put DIR KEY VALUE`

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
