//! `siftdb delete DIR KEY`

use crate::args::{Database, Spelling};
use crate::failure::Outcome;
use clap::Args;
use std::ffi::OsString;

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    database: Database,
    /// The key, which need not be there
    key: OsString,
    #[command(flatten)]
    spelling: Spelling,
}

impl Delete {
    pub fn run(self) -> Outcome {
        let key = self.spelling.bytes(self.key)?;
        let db = self.database.open_to_write(false)?;
        db.delete(key)?;
        Ok(db.close()?)
    }
}
