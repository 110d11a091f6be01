//! `siftdb import FORMAT FROM TO`: writes the entries of a file, or of a LevelDB database, into a
//! database, which is created if it is missing.
//!
//! Entries are written in batches, in the order in which they come, and flushed to tables in the
//! end. A line that cannot be used ends the command; what was written before stays.
//!
//! A LevelDB database is only read: no byte of it changes. Its lock is held meanwhile, as another
//! reader would, so that LevelDB cannot open it. Damage is an error with file and offset;
//! `--salvage` goes on after it and says what it left out.

use crate::args::{Database, options, unnamed};
use crate::bars::Bar;
use crate::exchange::input::Input;
use crate::exchange::jsonl::JsonlReader;
use crate::exchange::ldb::Ldb;
use crate::exchange::mdb::MdbReader;
use crate::exchange::record::{Expiry, Reader, Record};
use crate::exchange::tsv::Tsv;
use crate::failure::{Failure, Outcome};
use crate::json::{dropped_json, list};
use crate::leveldb::OldDatabase;
use crate::output::{Output, Shown};
use crate::text::counted_entries;
use clap::{Args, ValueEnum};
use serde_json::json;
use siftdb::{Db, DroppedPart, Keyspace, WriteBatch, WriteOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes at which a batch is written.
const BATCH_BYTES: usize = 256 << 10;

const AFTER: &str = "\
From other stores:
  LevelDB    siftdb import leveldb DIR TO
  RocksDB    ldb --db=DIR dump --hex | siftdb import ldb - TO
             for each column family: ldb --column_family=NAME ..., and --keyspace NAME
  LMDB       mdb_dump DIR | siftdb import mdb - TO, with -a for all its databases
  Berkeley   db_dump FILE | siftdb import mdb - TO

";

const JSON: &str = "\
JSON fields:
  format          1
  entries         entries written
  seconds         how long it took, flush and close included
  dropped         parts of a LevelDB database that were not read: each has
    path, offset, what   the file, where in it, and why";

#[derive(Args)]
#[command(after_long_help = format!("{AFTER}{JSON}"))]
pub struct Import {
    /// What FROM is
    #[arg(value_enum)]
    format: Format,
    /// The file, or - for standard input; the directory of a LevelDB database
    #[arg(value_name = "FROM")]
    source: PathBuf,
    /// Directory of the database to write to; created if it is missing
    #[arg(value_name = "TO")]
    target: PathBuf,
    /// The keyspace to write to, created if it is missing; not for a file that names keyspaces
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Go on after damage in a LevelDB database, and say what was left out; exit code 5 if any was
    #[arg(long)]
    salvage: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// What `export` prints, and `scan --json`
    Jsonl,
    /// Lines of KEY TAB VALUE, as `scan` prints them
    Tsv,
    /// The text of LMDB's `mdb_dump` and Berkeley DB's `db_dump`
    Mdb,
    /// What RocksDB's `ldb dump --hex` prints
    Ldb,
    /// The directory of a LevelDB database
    Leveldb,
}

impl Import {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if self.salvage && self.format != Format::Leveldb {
            return Err(Failure::usage("--salvage is for LevelDB databases"));
        }
        let started = Instant::now();
        // Before anything is created: the source may be unusable.
        let source = self.open_source()?;
        let database = Database { directory: self.target.clone() };
        let opened = options().create_if_missing(true).open(&self.target);
        let (entries, dropped) = database.with(opened, None, |db| {
            let mut sink = Sink::new(db, self.keyspace.as_deref())?;
            let copied = source.copy(&mut sink);
            sink.write_batch()?;
            let dropped = copied.map_err(|failure| sink.incomplete(failure))?;
            db.flush()?;
            Ok((sink.entries, dropped))
        })?;
        let seconds = started.elapsed().as_secs_f64();
        output.note(&format!("{} imported in {seconds:.1} s", counted_entries(entries)));
        for DroppedPart { path, offset, what, .. } in &dropped {
            output.note(&format!("not read: {} from byte {offset}: {what}", path.display()));
        }
        let json = json!({
            "entries": entries,
            "seconds": seconds,
            "dropped": list(&dropped, dropped_json),
        });
        let shown = output.show_json(json)?;
        if self.salvage && !dropped.is_empty() { Err(Failure::losses()) } else { Ok(shown) }
    }

    fn open_source(&self) -> Outcome<Source> {
        let reader: Box<dyn Reader> = match self.format {
            Format::Jsonl => Box::new(JsonlReader::default()),
            Format::Tsv => Box::new(Tsv),
            Format::Mdb => Box::new(MdbReader::default()),
            Format::Ldb => Box::new(Ldb::default()),
            Format::Leveldb => {
                return Ok(Source::LevelDb(OldDatabase::open(&self.source, self.salvage)?));
            }
        };
        let (input, length) = Input::open(&self.source)?;
        Ok(Source::Lines { reader, input, length })
    }
}

/// Where entries come from.
enum Source {
    Lines { reader: Box<dyn Reader>, input: Input, length: Option<u64> },
    LevelDb(OldDatabase),
}

impl Source {
    /// Gives all entries to `sink`. Returns what could not be read.
    fn copy(self, sink: &mut Sink<'_>) -> Outcome<Vec<DroppedPart>> {
        match self {
            Source::Lines { mut reader, mut input, length } => {
                let bar = Bar::bytes("import", length);
                let mut shown = 0;
                loop {
                    let record = reader.next(&mut input);
                    let Some(record) = record.map_err(|failure| input.at_line(failure))? else {
                        return Ok(Vec::new());
                    };
                    sink.put(record).map_err(|failure| input.at_line(failure))?;
                    bar.add(input.taken() - shown);
                    shown = input.taken();
                }
            }
            Source::LevelDb(OldDatabase { database, .. }) => {
                let bar = Bar::keys("import", None);
                for entry in database.entries() {
                    let (key, value) = entry?;
                    sink.put(Record::Entry { key, value, expiry: Expiry::OfKeyspace })?;
                    bar.add(1);
                }
                Ok(database.losses())
            }
        }
    }
}

/// Where entries go: one keyspace at a time.
struct Sink<'a> {
    db: &'a Db,
    keyspace: Keyspace,
    /// The keyspace was named by an argument.
    by_argument: bool,
    batch: WriteBatch,
    expiry: Expiry,
    entries: u64,
}

impl<'a> Sink<'a> {
    fn new(db: &'a Db, name: Option<&str>) -> Outcome<Self> {
        let keyspace = db.keyspace(name.unwrap_or("default"))?;
        let (batch, expiry) = (WriteBatch::new(), Expiry::OfKeyspace);
        let by_argument = name.is_some();
        Ok(Sink { db, keyspace, by_argument, batch, expiry, entries: 0 })
    }

    fn put(&mut self, record: Record) -> Outcome {
        match record {
            Record::Keyspace { .. } if self.by_argument => {
                Err(Failure::usage("the file names keyspaces; leave out --keyspace"))
            }
            Record::Keyspace { name, settings } => {
                self.write_batch()?;
                // What is there keeps its settings.
                let is_new =
                    !self.db.keyspaces().contains(&name) || self.is_empty_default(&name)?;
                let settings = if is_new { settings } else { unnamed() };
                self.keyspace = self.db.keyspace_with(&name, &settings)?;
                Ok(self.db.save_settings()?)
            }
            Record::Entry { key, value, expiry } => {
                if self.expiry != expiry || self.batch.bytes() >= BATCH_BYTES {
                    self.write_batch()?;
                    self.expiry = expiry;
                }
                self.batch.in_keyspace(&self.keyspace).put(key, value);
                self.entries += 1;
                Ok(())
            }
        }
    }

    /// `default` is there in every database.
    fn is_empty_default(&self, name: &str) -> Outcome<bool> {
        Ok(name == "default" && self.db.first()?.is_none())
    }

    /// Writes the entries that wait.
    fn write_batch(&mut self) -> Outcome {
        if self.batch.is_empty() {
            return Ok(());
        }
        let options = match self.expiry {
            Expiry::OfKeyspace => WriteOptions::new(),
            // The setting of the keyspace is for new entries.
            Expiry::Never => WriteOptions::new().expire_after(Duration::MAX),
            Expiry::At(time) => WriteOptions::new().expire_at(time),
        };
        Ok(self.db.write_with(std::mem::take(&mut self.batch), &options)?)
    }

    /// `failure`, with how much of the source is in the target.
    fn incomplete(&self, failure: Failure) -> Failure {
        match self.entries {
            0 => failure,
            count => failure.with_advice(&format!(
                "entries written before it: {count}; they stay in {}",
                self.db.path().display()
            )),
        }
    }
}
