//! `siftdb delete DIR KEY`: deletes one key of a database that exists.
//!
//! A key that is not there is no error, as in the library: to know, `get` it before. The database
//! has to exist, unlike for `put` and `load`: deleting from nothing is more likely a wrong path.
//! Closing reports what a failed sync would otherwise hide.

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
