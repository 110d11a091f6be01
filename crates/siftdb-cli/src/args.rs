//! Arguments that several commands share: which database, which key.
//!
//! Commands flatten [`Database`], [`InKeyspace`], [`ToWrite`], [`Part`] and [`Spelling`] into their
//! own arguments. Every command uses its database inside one of their methods, which open it before
//! and close it afterwards. Commands that only read change no byte. Commands that write use the
//! saved settings of the data, and need an existing database and keyspace, because a missing one is
//! more often a mistyped name. Programs tune options; the command changes settings (`settings.rs`).

use crate::failure::{Failure, Outcome};
use crate::output::note;
use crate::text::{escaped, unescaped};
use clap::Args;
use siftdb::{Db, Error, Keyspace, KeyspaceOptions, Options};
use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A database that has to be there.
#[derive(Args)]
pub struct Database {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// The options of all commands. A filter policy or prefix extractor that only a program knows does
/// not keep the command from its data; such filters are not asked, and new tables have none.
pub fn options() -> Options {
    Options::new().create_if_missing(false).allow_unregistered_filters(true)
}

/// Opens a database read-only, or one moment of it if a program has it open to write.
pub fn open_to_read(options: Options, directory: &Path) -> siftdb::Result<Db> {
    match options.clone().open_read_only(directory) {
        Err(Error::Locked { .. }) => {
            let follower = options.open_follower(directory)?;
            note("a program has the database open to write; this is one moment of it");
            Ok(follower.moment())
        }
        opened => opened,
    }
}

impl Database {
    /// Does `work` with the database open to write.
    pub fn write<T>(&self, options: Options, work: impl FnOnce(&Db) -> Outcome<T>) -> Outcome<T> {
        self.with(options.open(&self.directory), None, work)
    }

    /// Does `work` with an opened database and closes it, which reports a failed sync. Reports a
    /// missing database as such.
    pub fn with<T>(
        &self,
        opened: siftdb::Result<Db>,
        advice: Option<&str>,
        work: impl FnOnce(&Db) -> Outcome<T>,
    ) -> Outcome<T> {
        let db = opened.map_err(|error| Failure::opening(error, &self.directory, advice))?;
        let done = work(&db)?;
        db.close()?;
        Ok(done)
    }
}

/// A database and a keyspace of it, both of which have to be there.
#[derive(Args)]
pub struct InKeyspace {
    #[command(flatten)]
    pub database: Database,
    /// The keyspace; without it `default` or all, see `siftdb help keyspaces`
    #[arg(long = "keyspace", value_name = "NAME")]
    pub name: Option<String>,
}

impl InKeyspace {
    /// Opens the database read-only, for what a program that writes would change under the command.
    pub fn open_alone(&self) -> siftdb::Result<Db> {
        options().open_read_only(&self.database.directory)
    }

    /// Calls `work` with the opened database and the named keyspace; without a name, `default`.
    pub fn with<T>(
        &self,
        opened: siftdb::Result<Db>,
        work: impl FnOnce(&Db, &Keyspace) -> Outcome<T>,
    ) -> Outcome<T> {
        let one = |db: &Db| work(db, &keyspace(db, self.name.as_deref(), &unnamed(), None)?);
        self.database.with(opened, None, one)
    }

    /// The same, with the database opened read-only.
    pub fn read<T>(
        &self,
        options: Options,
        work: impl FnOnce(&Db, &Keyspace) -> Outcome<T>,
    ) -> Outcome<T> {
        self.with(open_to_read(options, &self.database.directory), work)
    }

    /// Does `work` with the keyspace of the database open to write, after naming `settings` of it.
    pub fn write<T>(
        &self,
        options: Options,
        settings: &KeyspaceOptions,
        work: impl FnOnce(&Db, &Keyspace) -> Outcome<T>,
    ) -> Outcome<T> {
        let name = self.name.as_deref();
        let one = |db: &Db| work(db, &keyspace(db, name, settings, None)?);
        self.database.write(with_settings(options, name, settings), one)
    }

    /// Does `work` with the keyspace, or all of them if none is named, of the database open
    /// read-only, after naming `settings` of each.
    pub fn read_all<T>(
        &self,
        options: Options,
        settings: &KeyspaceOptions,
        work: impl FnOnce(&Db, &[Keyspace]) -> Outcome<T>,
    ) -> Outcome<T> {
        let options = with_settings(options, self.name.as_deref(), settings);
        let opened = open_to_read(options, &self.database.directory);
        self.database.with(opened, None, |db| work(db, &self.keyspaces(db, settings)?))
    }

    /// The named keyspace, or all of them if none is named, after naming `settings` of each.
    pub fn keyspaces(&self, db: &Db, settings: &KeyspaceOptions) -> Outcome<Vec<Keyspace>> {
        let names = self.name.as_ref().map_or_else(|| db.keyspaces(), |name| vec![name.clone()]);
        names.iter().map(|name| keyspace(db, Some(name), settings, None)).collect()
    }
}

/// No setting of a keyspace.
pub fn unnamed() -> KeyspaceOptions {
    KeyspaceOptions::new()
}

/// `options` with the `settings` of `default`, unless another keyspace is named.
fn with_settings(options: Options, name: Option<&str>, settings: &KeyspaceOptions) -> Options {
    match name {
        None | Some("default") => options.default_keyspace(settings),
        Some(_) => options,
    }
}

/// The keyspace `name`, or `default`. A missing one is an error with `advice`, or is created if the
/// advice was followed.
fn keyspace(
    db: &Db,
    name: Option<&str>,
    settings: &KeyspaceOptions,
    create: Option<Create>,
) -> Outcome<Keyspace> {
    let Some(name) = name else { return Ok(Keyspace::clone(db)) };
    let is_there = || db.keyspaces().iter().any(|other| other == name);
    match create {
        Some(Create { create: true }) => {}
        _ if is_there() => {}
        create => {
            let advice = if create.is_some() { "use --create" } else { LIST_THEM };
            return Err(Failure::no_keyspace(db.path(), name, advice));
        }
    }
    Ok(db.keyspace_with(name, settings)?)
}

/// Advice for a keyspace that is not there.
pub const LIST_THEM: &str = "`siftdb keyspace list DIR` lists them";

/// Whether to create what is missing.
#[derive(Args, Clone, Copy)]
pub struct Create {
    /// Create the database and the keyspace if they are missing
    #[arg(long)]
    create: bool,
}

/// A database and a keyspace to write entries to.
#[derive(Args)]
pub struct ToWrite {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    create: Create,
}

impl ToWrite {
    /// Does `work` with the keyspace open to write, or created if that was asked for, after saving
    /// `settings` of it.
    pub fn write<T>(
        &self,
        settings: &KeyspaceOptions,
        work: impl FnOnce(&Db, &Keyspace) -> Outcome<T>,
    ) -> Outcome<T> {
        let database = &self.place.database;
        let name = self.place.name.as_deref();
        let options = with_settings(options(), name, settings);
        // Every database has this file.
        let is_there = || database.directory.join("CURRENT").exists();
        let was_there = is_there();
        let mut is_new_keyspace = false;
        let opened = options.create_if_missing(self.create.create).open(&database.directory);
        let work = |db: &Db| {
            let had_keyspace = name.is_none_or(|name| db.keyspaces().iter().any(|one| one == name));
            let keyspace = keyspace(db, name, settings, Some(self.create))?;
            is_new_keyspace = !had_keyspace;
            if !settings.settings().is_empty() {
                db.save_settings()?;
            }
            work(db, &keyspace)
        };
        let done = match opened {
            // What is missing then, such as the target of a link, is not created by --create.
            Err(error) if self.create.create => Err(error.into()),
            opened => database.with(opened, Some("use --create"), work),
        };
        done.map_err(|failure| match name {
            _ if !was_there && is_there() => {
                let directory = database.directory.display();
                failure.with_advice(&format!("the new database {directory} stays"))
            }
            Some(name) if is_new_keyspace => {
                failure.with_advice(&format!("the new keyspace {name:?} stays"))
            }
            _ => failure,
        })
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
        self.unspelled(argument.into_vec())
    }

    /// The bytes of a spelling, from an argument or a line of a file.
    pub fn unspelled(&self, bytes: Vec<u8>) -> Outcome<Vec<u8>> {
        if self.escaped { unescaped(&bytes).map_err(Failure::usage) } else { Ok(bytes) }
    }
}

/// The keys that a command concerns: all, those of a range, or those of a prefix.
#[derive(Args)]
pub struct Part {
    /// Only keys that start with this
    #[arg(long, conflicts_with_all = ["from", "to"], allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// The first key; without it, from the beginning
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// The key before which to end; without it, to the end
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    #[command(flatten)]
    spelling: Spelling,
}

impl Part {
    /// The bytes of another key argument, in the same spelling.
    pub fn key(&self, argument: OsString) -> Outcome<Vec<u8>> {
        self.spelling.bytes(argument)
    }

    /// The range of these keys.
    pub fn range(self) -> Outcome<Range> {
        let bytes = |key: Option<OsString>| key.map(|key| self.spelling.bytes(key)).transpose();
        match bytes(self.prefix)? {
            Some(prefix) => Ok(prefix_range(prefix)),
            None => range(bytes(self.from)?, bytes(self.to)?),
        }
    }
}

/// The range from the first key to the key before which to end.
pub fn range(from: Option<Vec<u8>>, to: Option<Vec<u8>>) -> Outcome<Range> {
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        let (from, to) = (escaped(from), escaped(to));
        return Err(Failure::usage(format!(
            "the range ends before it begins: {from} is after {to}"
        )));
    }
    let from = from.map_or(Bound::Unbounded, Bound::Included);
    Ok((from, to.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// The range of all keys that start with `prefix`.
pub fn prefix_range(prefix: Vec<u8>) -> Range {
    let mut end = prefix.clone();
    // The first key after them: no byte is above 0xff, so such an end is cut off.
    while end.pop_if(|last| *last == 0xff).is_some() {}
    let end = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ranges_end_after_the_prefix() {
        let cases: [(&[u8], Option<&[u8]>); 5] = [
            (b"ab", Some(b"ac")),
            (b"a\xff", Some(b"b")),
            (b"a\xff\xfe", Some(b"a\xff\xff")),
            (b"\xff\xff", None),
            (b"", None),
        ];
        for (prefix, end) in cases {
            let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
            assert_eq!(prefix_range(prefix.to_vec()), (Bound::Included(prefix.to_vec()), end));
        }
    }
}
