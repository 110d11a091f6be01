//! Arguments that several commands share: which database, which key.
//!
//! Commands flatten [`Database`] and [`Spelling`] into their own arguments. A command that looks
//! changes no byte; a command that writes uses the defaults of the library. Options for tuning have
//! no place here: they belong to programs, except those of filters (`filter_args.rs`).

use crate::failure::Outcome;
use crate::text::unescaped;
use clap::Args;
use siftdb::{Db, Options, RepairReport};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A database that has to be there.
#[derive(Args)]
pub struct Database {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Database {
    /// Opens it to look: no file is written, also not to recover from a crash or to keep counters.
    pub fn open_to_read(&self) -> Outcome<Db> {
        self.open_to_read_with(Options::new())
    }

    /// As `open_to_read`, with these options besides.
    pub fn open_to_read_with(&self, options: Options) -> Outcome<Db> {
        Ok(options.open_read_only(&self.directory)?)
    }

    /// Opens it to write tables anew, with these options; compacts nothing else.
    pub fn open_to_rewrite_with(&self, options: Options) -> Outcome<Db> {
        let options = options.create_if_missing(false).auto_compaction(false);
        Ok(options.open(&self.directory)?)
    }

    /// Repairs it, with the defaults of the library.
    pub fn repair(&self) -> Outcome<RepairReport> {
        Ok(Options::new().repair(&self.directory)?)
    }

    /// Opens it to write, creating it if `create`.
    pub fn open_to_write(&self, create: bool) -> Outcome<Db> {
        Ok(Options::new().create_if_missing(create).open(&self.directory)?)
    }
}

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
        if self.escaped { unescaped(&bytes) } else { Ok(bytes) }
    }
}
