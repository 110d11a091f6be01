//! Arguments that several commands share: which database, which key.
//!
//! Commands flatten [`Database`], [`DatabaseToWrite`] and [`Spelling`] into their own arguments.
//! Commands that only read change no byte. Commands that write use the library's defaults and need
//! an existing database, because a missing one is more often a mistyped path. Programs tune
//! options; the command has only those of filters (`filter_args.rs`).

use crate::failure::{Failure, Outcome};
use crate::text::unescaped;
use clap::Args;
use siftdb::{Db, Error, Options, RepairReport};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::Bound;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A database that has to be there.
#[derive(Args)]
pub struct Database {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Database {
    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Opens it read-only: nothing is written, neither by recovery nor by counters.
    pub fn open_to_read(&self) -> Outcome<Db> {
        self.open_to_read_with(Options::new())
    }

    /// As `open_to_read`, with other options.
    pub fn open_to_read_with(&self, options: Options) -> Outcome<Db> {
        opened(options.open_read_only(&self.directory), &self.directory, None)
    }

    /// Opens it to rewrite tables with these options. Nothing else is compacted.
    pub fn open_to_rewrite_with(&self, options: Options) -> Outcome<Db> {
        let options = options.create_if_missing(false).auto_compaction(false);
        opened(options.open(&self.directory), &self.directory, None)
    }

    /// Repairs it, with the defaults of the library.
    pub fn repair(&self) -> Outcome<RepairReport> {
        Ok(Options::new().repair(&self.directory)?)
    }

    /// Opens it to write.
    pub fn open_to_write(&self) -> Outcome<Db> {
        let options = Options::new().create_if_missing(false);
        opened(options.open(&self.directory), &self.directory, None)
    }
}

/// A database to write to.
#[derive(Args)]
pub struct DatabaseToWrite {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Create the database if there is none
    #[arg(long)]
    create: bool,
}

impl DatabaseToWrite {
    /// Opens it, or makes it if that was asked for.
    pub fn open(&self) -> Outcome<Db> {
        let options = Options::new().create_if_missing(self.create);
        opened(options.open(&self.directory), &self.directory, Some("use --create"))
    }
}

/// Reports a missing database as such.
fn opened(
    result: siftdb::Result<Db>,
    directory: &Path,
    advice: Option<&'static str>,
) -> Outcome<Db> {
    match result {
        Err(Error::Io { path, source, .. })
            if path == directory && source.kind() == ErrorKind::NotFound =>
        {
            Err(Failure::NoDatabase { directory: path, advice })
        }
        result => Ok(result?),
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
        if self.escaped { unescaped(&bytes) } else { Ok(bytes) }
    }

    /// The range from the first key to the key before which to end.
    pub fn range(&self, from: Option<OsString>, to: Option<OsString>) -> Outcome<Range> {
        let from = from.map(|key| self.bytes(key)).transpose()?;
        let to = to.map(|key| self.bytes(key)).transpose()?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        Ok((from, to.map_or(Bound::Unbounded, Bound::Excluded)))
    }
}
