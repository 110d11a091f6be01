//! `siftdb import FORMAT FROM TO`: writes the entries of a file, or of a database of LevelDB or
//! RocksDB, into a database, which is created if it is missing.
//!
//! A new database appears whole in the end, or not at all; see [`NewDatabase`]. In one that is
//! there entries are written as [`Sink`] says. A line that cannot be used ends the command. What
//! was written to that database before it stays, and the message says how much it is.
//!
//! A database of LevelDB or RocksDB is only read: no byte of it changes. Its lock is held, so that
//! its store cannot open it. Damage is an error with file and offset; `--salvage` continues
//! after damage and reports what it left out.

use crate::args::{Database, options, unnamed};
use crate::bars::Bar;
use crate::described::{help, result};
use crate::exchange::input::Input;
use crate::exchange::jsonl::JsonlReader;
use crate::exchange::ldb::Ldb;
use crate::exchange::mdb::MdbReader;
use crate::exchange::record::{Expiry, Reader, Record};
use crate::exchange::tsv::Tsv;
use crate::failure::{Failure, Outcome};
use crate::json::{Bytes, Dropped};
use crate::leveldb;
use crate::new_database::NewDatabase;
use crate::output::{Output, Shown, note};
use crate::rocksdb::{RocksDbArgs, RocksSource};
use crate::settings::{Setting, pairs, settings_of};
use crate::sink::Sink;
use crate::text::counted_entries;
use clap::{Args, ValueEnum};
use siftdb::{Db, Keyspace, KeyspaceOptions};
use siftdb_foreign::{LevelDb, Loss};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

result! {
    /// From other stores:
    ///   LevelDB    siftdb import leveldb DIR TO
    ///   RocksDB    siftdb import rocksdb DIR TO
    ///              each column family becomes a keyspace; what siftdb has no counterpart for is
    ///              refused by name: then
    ///              ldb --db=DIR dump --hex > FILE && siftdb import ldb FILE TO
    ///              for each column family: ldb --column_family=NAME ..., and --keyspace NAME;
    ///              not by a pipe alone: ldb ends a dump as if it were whole, also if it failed
    ///   LMDB       mdb_dump DIR | siftdb import mdb - TO
    ///              with -a it prints only the databases with names, no entries of the main one;
    ///              not with -p, which loses backslashes in older versions
    ///   Berkeley   db_dump FILE | siftdb import bdb - TO
    ///
    /// A keyspace that is there keeps its settings (`default` only if it has entries); a note names
    /// those of the file that were ignored. An import that is killed (kill -9) leaves a directory
    /// .siftdb-import-... next to TO or in it; the next import there removes it.
    ///
    struct Imported {
        /// entries written
        entries: u64;
        /// how long it took, flush and close included
        seconds: f64;
        /// keyspaces that kept other settings than the file has:
        settings_kept: Vec<Ignored>;
        /// settings that only a program can name, or that are RocksDB's alone, in the same form
        settings_left_out: Vec<Ignored>;
        /// RocksDB's transactions that were prepared and not committed, so they are left out:
        prepared: Vec<Prepared>;
        /// parts of a database of LevelDB or RocksDB that were not read:
        dropped: Vec<Dropped>;
    }

    /// A transaction.
    struct Prepared {
        #[serde(flatten)] name: Bytes;
    }

    /// A keyspace, and the settings of the file that it does not have.
    struct Ignored {
        /// its name
        keyspace: String;
        /// the settings of the file that were ignored: name and value
        ignored: Vec<Setting>;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Imported>())]
pub struct Import {
    /// What FROM is
    #[arg(value_enum)]
    format: Format,
    /// The file, or - for standard input; the directory of a database of LevelDB or RocksDB
    #[arg(value_name = "FROM")]
    source: PathBuf,
    /// Directory of the database to write to; created if it is missing
    #[arg(value_name = "TO")]
    target: PathBuf,
    /// The keyspace to write to, created if it is missing; not for a file that names keyspaces
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Continue after damage in a database of LevelDB or RocksDB, and report what is left out; exit
    /// code 5 if anything is
    #[arg(long)]
    salvage: bool,
    #[command(flatten)]
    rocksdb: RocksDbArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// What `export` prints, and `scan --json`
    Jsonl,
    /// Lines of KEY TAB VALUE, as `scan` prints them
    Tsv,
    /// The text of LMDB's `mdb_dump`
    Mdb,
    /// The text of Berkeley DB's `db_dump`
    Bdb,
    /// What RocksDB's `ldb dump --hex` prints
    Ldb,
    /// The directory of a LevelDB database
    Leveldb,
    /// The directory of a RocksDB database that is closed, or of a checkpoint
    Rocksdb,
}

impl Import {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if self.salvage && !matches!(self.format, Format::Leveldb | Format::Rocksdb) {
            return Err(Failure::usage("--salvage is for databases of LevelDB and RocksDB"));
        }
        if self.format != Format::Rocksdb {
            self.rocksdb.refuse_any()?;
        }
        let started = Instant::now();
        // Before anything is created: the source may be unusable.
        let mut source = self.open_source()?;
        let new = NewDatabase::at(&self.target)?;
        let directory = new.as_ref().map_or(&self.target, |new| &new.directory);
        let database = Database { directory: directory.clone() };
        let settings = self.settings_of_default(&mut source, &database)?;
        let options = options().create_if_missing(true).default_keyspace(&settings);
        let opened = options.open(directory);
        let copied = database.with(opened, None, |db| {
            let mut target = Target::new(db, self.keyspace.as_deref())?;
            let copied = source.copy(&mut target);
            let written = if new.is_some() { 0 } else { target.sink.written };
            let unread = copied.map_err(|failure| incomplete(failure, &self.target, written))?;
            db.flush()?;
            if self.rocksdb.check {
                RocksSource::open(&self.source, self.salvage, &self.rocksdb)?.check(db)?;
            }
            let Target { sink, kept, left_out, .. } = target;
            Ok(Copied { entries: sink.taken, kept, left_out, unread })
        });
        let copied = copied.map_err(|failure| match &new {
            Some(new) => failure.with_place(&new.directory, &self.target),
            None => failure,
        })?;
        new.map_or(Ok(()), NewDatabase::appear)?;
        let has_losses = self.salvage && !copied.unread.dropped.is_empty();
        let why = match self.format {
            Format::Rocksdb => "siftdb has no such setting",
            _ => "only a program can name it",
        };
        let shown = copied.report(started.elapsed().as_secs_f64(), why, output)?;
        match has_losses {
            false => Ok(shown),
            true => Err(Failure::losses("imported, but entries are lost", "the report says where")),
        }
    }

    /// The settings of `default` that the source begins with, unless `default` has entries. An open
    /// keyspace does not change its settings, so the database is opened with them.
    fn settings_of_default(
        &self,
        source: &mut Source,
        database: &Database,
    ) -> Outcome<KeyspaceOptions> {
        // The only formats with settings.
        if !matches!(self.format, Format::Jsonl | Format::Rocksdb) || self.keyspace.is_some() {
            return Ok(unnamed());
        }
        let settings = source.default_settings();
        let settings = settings.map_err(|failure| incomplete(failure, &self.target, 0))?;
        // Every database has this file.
        let is_there = database.directory.join("CURRENT").exists();
        let is_empty = || {
            let opened = options().open_read_only(&database.directory);
            database.with(opened, None, |db| Ok(db.first()?.is_none()))
        };
        match settings.settings().is_empty() || is_there && !is_empty()? {
            true => Ok(unnamed()),
            false => Ok(settings),
        }
    }

    fn open_source(&self) -> Outcome<Source> {
        // With the most bytes that a line takes for a byte of a key or a value.
        let (reader, byte_bytes): (Box<dyn Reader>, _) = match self.format {
            Format::Jsonl => (Box::new(JsonlReader::default()), 6),
            Format::Tsv => (Box::new(Tsv), 4),
            Format::Mdb | Format::Bdb => (Box::new(MdbReader::default()), 3),
            Format::Ldb => (Box::new(Ldb::default()), 2),
            Format::Leveldb => {
                let (database, lock) = leveldb::open(&self.source, self.salvage)?;
                return Ok(Source::LevelDb(database, lock));
            }
            Format::Rocksdb => {
                let source = RocksSource::open(&self.source, self.salvage, &self.rocksdb)?;
                return Ok(Source::RocksDb(Box::new(source)));
            }
        };
        let input = Input::open(&self.source, "import", byte_bytes)?;
        Ok(Source::Lines { reader, input, begin: None })
    }
}

/// A finished import.
struct Copied {
    entries: u64,
    kept: Vec<Ignored>,
    left_out: Vec<Ignored>,
    unread: Unread,
}

/// What was not read of a database of another store.
#[derive(Default)]
struct Unread {
    dropped: Vec<Loss>,
    prepared: Vec<Vec<u8>>,
}

impl Ignored {
    /// Those of `settings` that `keyspace` does not have, if any.
    fn of(keyspace: &Keyspace, mut settings: Vec<Setting>) -> Option<Self> {
        let has = settings_of(&keyspace.settings());
        settings.retain(|setting| !has.contains(setting));
        let keyspace = keyspace.name().into();
        (!settings.is_empty()).then_some(Ignored { keyspace, ignored: settings })
    }
}

impl Copied {
    fn report(self, seconds: f64, why: &str, output: Output) -> Outcome<Shown> {
        let Copied { entries, kept, left_out, unread: Unread { dropped, prepared } } = self;
        note(&format!("{} imported in {seconds:.1} s", counted_entries(entries)));
        for Ignored { keyspace, ignored } in &kept {
            let ignored = pairs(ignored);
            note(&format!(
                "keyspace {keyspace:?} was there and keeps its settings; ignored: {ignored}"
            ));
        }
        for Ignored { keyspace, ignored } in &left_out {
            let ignored = pairs(ignored);
            note(&format!("keyspace {keyspace:?}: left out, as {why}: {ignored}"));
        }
        for name in &prepared {
            let name = name.escape_ascii();
            note(&format!("left out: transaction \"{name}\", prepared and not committed"));
        }
        for Loss { path, offset, what, .. } in &dropped {
            note(&format!("not read: {} from byte {offset}: {what}", path.display()));
        }
        let dropped = dropped.into_iter().map(|Loss { path, offset, what, .. }| Dropped {
            path: Bytes::path(&path),
            offset,
            what,
        });
        let prepared = prepared.iter().map(|name| Prepared { name: Bytes::new("name", name) });
        output.show_json(&Imported {
            entries,
            seconds,
            settings_kept: kept,
            settings_left_out: left_out,
            prepared: prepared.collect(),
            dropped: dropped.collect(),
        })
    }
}

/// Where entries come from.
enum Source {
    Lines {
        reader: Box<dyn Reader>,
        input: Input,
        /// A record that was read, and is still to be written.
        begin: Option<Box<Record>>,
    },
    LevelDb(LevelDb, Option<File>),
    RocksDb(Box<RocksSource>),
}

impl Source {
    /// The settings of `default`, if the source begins with it.
    fn default_settings(&mut self) -> Outcome<KeyspaceOptions> {
        let (reader, input, begin) = match self {
            Source::Lines { reader, input, begin } => (reader, input, begin),
            Source::RocksDb(source) => return source.default_settings(),
            Source::LevelDb(..) => return Ok(unnamed()),
        };
        // The first record stays to be copied.
        let first = reader.next(input).map_err(|failure| input.at_line(failure, None))?;
        *begin = first.map(Box::new);
        Ok(match begin.as_deref() {
            Some(Record::Keyspace { name, settings, .. }) if name == "default" => {
                (**settings).clone()
            }
            _ => unnamed(),
        })
    }

    /// Gives all entries to `target`. Returns what could not be read.
    fn copy(self, target: &mut Target<'_>) -> Outcome<Unread> {
        let unread = match self {
            Source::Lines { mut reader, mut input, mut begin } => loop {
                let record = match begin.take() {
                    None => reader.next(&mut input),
                    Some(begin) => Ok(Some(*begin)),
                };
                let taken = record.and_then(|next| next.map(|one| target.take(one)).transpose());
                if taken.map_err(|failure| input.at_line(failure, None))?.is_none() {
                    break Unread::default();
                }
            },
            Source::LevelDb(database, _lock) => {
                let bar = Bar::keys("import", None);
                for entry in database.entries() {
                    let (key, value) = entry?;
                    target.sink.put(&key, &value, Expiry::OfKeyspace)?;
                    bar.step();
                }
                Unread { dropped: database.losses(), prepared: Vec::new() }
            }
            Source::RocksDb(mut source) => {
                while let Some(record) = source.next()? {
                    target.take(record)?;
                }
                Unread {
                    dropped: source.database.losses(),
                    prepared: source.database.prepared().to_vec(),
                }
            }
        };
        target.sink.finish()?;
        Ok(unread)
    }
}

/// Where records go: one keyspace at a time.
struct Target<'a> {
    db: &'a Db,
    sink: Sink<'a>,
    /// The keyspace was named by an argument.
    by_argument: bool,
    /// The keyspaces that were there.
    kept: Vec<Ignored>,
    /// Settings that only a program can name.
    left_out: Vec<Ignored>,
}

impl<'a> Target<'a> {
    fn new(db: &'a Db, name: Option<&str>) -> Outcome<Self> {
        let sink = Sink::new(db, db.keyspace(name.unwrap_or("default"))?);
        let (kept, left_out) = (Vec::new(), Vec::new());
        Ok(Target { db, sink, by_argument: name.is_some(), kept, left_out })
    }

    fn take(&mut self, record: Record) -> Outcome {
        match record {
            Record::Keyspace { .. } if self.by_argument => {
                Err(Failure::usage("the file names keyspaces; leave out --keyspace"))
            }
            Record::Keyspace { name, settings, left_out } => {
                // Before it is asked whether the keyspace is empty.
                self.sink.finish()?;
                // What is there keeps its settings.
                let is_there = self.db.keyspaces().contains(&name);
                // `default` is there in every database.
                let is_new = !is_there || name == "default" && self.db.first()?.is_none();
                let named = if is_new { &*settings } else { &unnamed() };
                let keyspace = self.db.keyspace_with(&name, named)?;
                let lacking = |settings| Ignored::of(&keyspace, settings);
                self.kept.extend(lacking(settings_of(&settings)));
                self.left_out.extend(lacking(left_out));
                self.sink.turn_to(keyspace)?;
                Ok(self.db.save_settings()?)
            }
            Record::Entry { key, value, expiry } => self.sink.put(&key, &value, expiry),
        }
    }
}

/// `failure`, with how many entries of the source are in the target.
fn incomplete(failure: Failure, target: &Path, written: u64) -> Failure {
    let failure = failure.with_entries_written(written);
    match written {
        0 => failure,
        count => failure.with_advice(&format!(
            "entries written before it: {count}; they stay in {}",
            target.display()
        )),
    }
}
