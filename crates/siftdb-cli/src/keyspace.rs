//! `siftdb keyspace list|create|drop DIR [NAME]`: the keyspaces of a database.
//!
//! A keyspace has keys, tables and settings of its own; the log is the database's. `default` is
//! always there. Creating and dropping are durable when the command ends. A dropped keyspace is
//! gone with all its entries; the command does not ask first.

use crate::args::{Database, InKeyspace, LIST_THEM, options, unnamed};
use crate::failure::{Failure, Outcome};
use crate::json::list;
use crate::output::{Output, Shown};
use crate::settings::{Named, settings_json, write_settings};
use crate::text::{counted, counted_entries};
use clap::Args;
use serde_json::{Value, json};
use siftdb::{Keyspace, KeyspaceOptions, LevelStats};
use siftdb_cli::experiment::bytes;
use std::io::{self, Write};

const LIST_JSON: &str = "\
JSON fields:
  format          1
  keyspaces       each keyspace, in the order of creation:
    keyspace      its name
    number        its number, which is never used again
    tables, bytes, entries, filter_bytes   its tables, their bytes, entries and bytes of filters
    log_entries   entries that are only in the log, in no table
    settings      those that are not the defaults of the library: name and value";

#[derive(Args)]
#[command(after_long_help = LIST_JSON)]
pub struct List {
    #[command(flatten)]
    place: InKeyspace,
}

/// The listed facts of a keyspace.
struct Listed {
    name: String,
    number: u32,
    total: LevelStats,
    log_entries: u64,
    settings: KeyspaceOptions,
}

impl List {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let listed = self.place.read_all(options(), &unnamed(), |_, keyspaces| {
            Ok(keyspaces.iter().map(Listed::of).collect::<Vec<_>>())
        })?;
        output.show(json!({ "keyspaces": list(&listed, Listed::json) }), |out| {
            listed.iter().try_for_each(|keyspace| keyspace.write(out))
        })
    }
}

impl Listed {
    fn of(keyspace: &Keyspace) -> Self {
        let stats = keyspace.stats();
        Listed {
            name: keyspace.name().into(),
            number: keyspace.number(),
            total: stats.total(),
            log_entries: stats.memtable_entries,
            settings: keyspace.settings(),
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (tables, entries) = (counted(self.total.tables, "table"), self.total.entries);
        let (entries, size) = (counted_entries(entries), bytes(self.total.bytes));
        write!(out, "{} {:?}: {tables}, {entries}, {size}", self.number, self.name)?;
        match self.log_entries {
            0 => writeln!(out)?,
            count => writeln!(out, "; {} only in the log", counted_entries(count))?,
        }
        write_settings(&self.settings, out)
    }

    fn json(&self) -> Value {
        json!({
            "keyspace": self.name,
            "number": self.number,
            "tables": self.total.tables,
            "bytes": self.total.bytes,
            "entries": self.total.entries,
            "filter_bytes": self.total.filter_bytes,
            "log_entries": self.log_entries,
            "settings": settings_json(&self.settings),
        })
    }
}

const CREATE_JSON: &str = "\
JSON fields:
  format          1
  keyspace        its name
  number          its number";

#[derive(Args)]
#[command(after_long_help = CREATE_JSON)]
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
        output.show_json(json!({ "keyspace": name, "number": number }))
    }
}

const DROP_JSON: &str = "\
JSON fields:
  format          1
  keyspace        the name of the dropped keyspace";

#[derive(Args)]
#[command(after_long_help = DROP_JSON)]
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
        output.show_json(json!({ "keyspace": name }))
    }
}
