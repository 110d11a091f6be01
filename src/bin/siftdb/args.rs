//! Arguments that several commands share: which database, which key.
//!
//! Commands flatten [`Database`], [`DatabaseToWrite`] and [`Spelling`] into their own arguments.
//! Every command uses its database inside [`Database::read`] or [`Database::write`], which open it
//! before and close it afterwards. Commands that only read change no byte. Commands that write use
//! the library's defaults and need an existing database, because a missing one is more often a
//! mistyped path. Programs tune options; the command has only those of filters (`filter_args.rs`).

use crate::failure::{Failure, Outcome};
use crate::text::unescaped;
use clap::Args;
use siftdb::{Db, Error, Options};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::Bound;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A database that has to be there.
#[derive(Args)]
pub struct Database {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

impl Database {
    /// Does `work` with the database open read-only: neither recovery nor counters write anything.
    pub fn read<T>(&self, options: Options, work: impl FnOnce(&Db) -> Outcome<T>) -> Outcome<T> {
        self.with(options.open_read_only(&self.directory), None, work)
    }

    /// Does `work` with the database open to write.
    pub fn write<T>(&self, options: Options, work: impl FnOnce(&Db) -> Outcome<T>) -> Outcome<T> {
        self.with(options.create_if_missing(false).open(&self.directory), None, work)
    }

    /// Does `work` with an opened database and closes it, which reports a failed sync. Reports a
    /// missing database as such.
    pub fn with<T>(
        &self,
        opened: siftdb::Result<Db>,
        advice: Option<&str>,
        work: impl FnOnce(&Db) -> Outcome<T>,
    ) -> Outcome<T> {
        let db = match opened {
            Err(Error::Io { path, source, .. })
                if path == self.directory && source.kind() == ErrorKind::NotFound =>
            {
                return Err(Failure::no_database(&path, advice));
            }
            opened => opened?,
        };
        let done = work(&db)?;
        db.close()?;
        Ok(done)
    }
}

/// A database to write to.
#[derive(Args)]
pub struct DatabaseToWrite {
    #[command(flatten)]
    database: Database,
    /// Create the database if there is none
    #[arg(long)]
    create: bool,
}

impl DatabaseToWrite {
    /// Does `work` with the database open to write, or created if that was asked for.
    pub fn write<T>(&self, work: impl FnOnce(&Db) -> Outcome<T>) -> Outcome<T> {
        let options = Options::new().create_if_missing(self.create);
        self.database.with(options.open(&self.database.directory), Some("use --create"), work)
    }
}

/// A range of keys.
pub type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// How bytes are spelled on the command line.
#[derive(Args)]
pub struct Spelling {
    /// Read \t, \n, \\ and \xNN in keys and values given to this command
    #[arg(long)]
    pub escaped: bool,
}

impl Spelling {
    /// The bytes of an argument.
    pub fn bytes(&self, argument: OsString) -> Outcome<Vec<u8>> {
        let bytes = argument.into_vec();
        if self.escaped { unescaped(&bytes).map_err(Failure::usage) } else { Ok(bytes) }
    }

    /// The range from the first key to the key before which to end.
    pub fn range(&self, from: Option<OsString>, to: Option<OsString>) -> Outcome<Range> {
        let from = from.map(|key| self.bytes(key)).transpose()?;
        let to = to.map(|key| self.bytes(key)).transpose()?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        Ok((from, to.map_or(Bound::Unbounded, Bound::Excluded)))
    }
}
