//! `siftdb keyspace list|create|drop DIR [NAME]`: the keyspaces of a database.
//!
//! A keyspace has keys, tables and settings of its own; the log is the database's. `default` is
//! always there. Creating and dropping are durable when the command ends. A dropped keyspace is
//! gone with all its entries; the command does not ask first.

use crate::args::{Database, InKeyspace, LIST_THEM, options, unnamed};
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Shown};
use crate::settings::{Named, Setting, settings_of, write_settings};
use crate::text::{counted, counted_entries};
use clap::Args;
use siftdb::{Keyspace, LevelStats};
use siftdb_cli::experiment::bytes;
use std::io::{self, Write};

result! {
    struct All {
        /// each keyspace, in the order of creation:
        keyspaces: Vec<Listed>;
    }

    struct Listed of total: &LevelStats, of: &Keyspace {
        /// its name
        keyspace: String = of.name().into();
        /// its number, which is never used again
        number: u32 = of.number();
        /// its tables, their bytes, entries and bytes of filters
        tables, bytes, entries, filter_bytes: u64;
        /// entries that are only in the log, in no table
        log_entries: u64 = of.stats().memtable_entries;
        /// those that are not the defaults of the library: name and value
        settings: Vec<Setting> = settings_of(&of.settings());
    }
}

#[derive(Args)]
#[command(after_long_help = help::<All>())]
pub struct List {
    #[command(flatten)]
    place: InKeyspace,
}

impl List {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let listed = |one: &Keyspace| Listed::of(&one.stats().total(), one);
        let keyspaces = self.place.read_all(options(), &unnamed(), |_, keyspaces| {
            Ok(keyspaces.iter().map(listed).collect())
        })?;
        let all = All { keyspaces };
        output.show(&all, |out| all.keyspaces.iter().try_for_each(|one| one.write(out)))
    }
}

impl Listed {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (tables, entries) = (counted(self.tables, "table"), counted_entries(self.entries));
        let size = bytes(self.bytes);
        write!(out, "{} {:?}: {tables}, {entries}, {size}", self.number, self.keyspace)?;
        match self.log_entries {
            0 => writeln!(out)?,
            count => writeln!(out, "; {} only in the log", counted_entries(count))?,
        }
        write_settings(&self.settings, out)
    }
}

result! {
    struct Created {
        /// its name
        keyspace: String;
        /// its number
        number: u32;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Created>())]
pub struct Create {
    #[command(flatten)]
    database: Database,
    /// The name: 1 to 255 bytes without control characters
    name: String,
    #[command(flatten)]
    named: Named,
}

impl Create {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let (name, settings) = (&self.name, self.named.settings()?);
        let number = self.database.write(options(), |db| {
            if db.keyspaces().contains(name) {
                return Err(Failure::usage(format!("there is a keyspace {name:?} already")));
            }
            Ok(db.keyspace_with(name, &settings)?.number())
        })?;
        output.show_json(&Created { keyspace: self.name, number })
    }
}

result! {
    struct Dropped {
        /// the name of the dropped keyspace
        keyspace: String;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Dropped>())]
pub struct Drop {
    #[command(flatten)]
    database: Database,
    /// The name
    name: String,
}

impl Drop {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let name = &self.name;
        self.database.write(options(), |db| match db.drop_keyspace(name) {
            Err(siftdb::Error::KeyspaceNotFound { .. }) => {
                Err(Failure::no_keyspace(db.path(), name, LIST_THEM))
            }
            dropped => Ok(dropped?),
        })?;
        output.show_json(&Dropped { keyspace: self.name })
    }
}
