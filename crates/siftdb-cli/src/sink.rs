//! Where the entries of `load` and `import` go: one keyspace of an open database.
//!
//! Keys in ascending order become tables directly, by a bulk load, which appears as a whole. Other
//! keys are written in batches. The first entries are kept in memory until they decide which way is
//! taken. A key out of order ends a bulk load: its entries appear, and batches follow.

use crate::exchange::record::Expiry;
use crate::failure::{Failure, Outcome};
use crate::lines::VALUE_BYTES_MAX;
use siftdb::{Db, Keyspace, TableWriter, WriteBatch, WriteOptions};
use siftdb_cli::experiment::KeySet;
use std::time::Duration;

/// Bytes at which a batch is written, and at which ascending keys become a bulk load.
const BATCH_BYTES: usize = 256 << 10;

/// Memory of an entry that waits, besides its bytes.
const WAITING_BYTES: usize = 64;

/// Writes entries to a keyspace. All entries that it took are visible after [`Sink::finish`].
pub struct Sink<'a> {
    db: &'a Db,
    keyspace: Keyspace,
    state: State,
    /// Entries it took, and those of them that are in the database.
    pub taken: u64,
    /// The entries that are in the database already.
    pub written: u64,
}

enum State {
    /// The first entries, whose keys ascend so far.
    Waiting { entries: Vec<Waiting>, bytes: usize },
    /// A bulk load, and its last key.
    Bulk { writer: Box<TableWriter>, last: Vec<u8> },
    /// Entries of one expiry.
    Batches { batch: WriteBatch, expiry: Expiry },
}

struct Waiting {
    key: Vec<u8>,
    value: Vec<u8>,
    expiry: Expiry,
}

const NO_ENTRIES: State = State::Waiting { entries: Vec::new(), bytes: 0 };

/// The limit that an entry of these lengths breaks, if any. The library refuses it too, but without
/// its line.
pub fn check_sizes(key: &[u8], value: &[u8]) -> Outcome {
    let refuse = |what: &str, bytes: usize, limit: usize| {
        Err(Failure::usage(format!("a {what} of {bytes} bytes; at most {limit} are allowed")))
    };
    match (key.len(), value.len()) {
        (bytes, _) if bytes > KeySet::KEY_BYTES_MAX => refuse("key", bytes, KeySet::KEY_BYTES_MAX),
        (_, bytes) if bytes > VALUE_BYTES_MAX => refuse("value", bytes, VALUE_BYTES_MAX),
        _ => Ok(()),
    }
}

impl<'a> Sink<'a> {
    /// Writes to `keyspace` of `db`.
    pub fn new(db: &'a Db, keyspace: Keyspace) -> Self {
        Sink { db, keyspace, state: NO_ENTRIES, taken: 0, written: 0 }
    }

    /// Writes all that it took, and switches to another keyspace.
    pub fn turn_to(&mut self, keyspace: Keyspace) -> Outcome {
        self.finish()?;
        self.keyspace = keyspace;
        Ok(())
    }

    /// Takes an entry.
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Outcome {
        check_sizes(key, value)?;
        match &mut self.state {
            State::Waiting { entries, bytes } => {
                if entries.last().is_some_and(|last| key <= &last.key[..]) {
                    self.begin_batches()?;
                    return self.put(key, value, expiry);
                }
                *bytes += key.len() + value.len() + WAITING_BYTES;
                entries.push(Waiting { key: key.to_vec(), value: value.to_vec(), expiry });
                if *bytes >= BATCH_BYTES {
                    self.begin_bulk()?;
                }
            }
            State::Bulk { writer, last } => {
                if key <= &last[..] {
                    self.begin_batches()?;
                    return self.put(key, value, expiry);
                }
                writer.put_with(key, value, &options(expiry))?;
                key.clone_into(last);
            }
            State::Batches { batch, expiry: of_batch } => {
                if *of_batch != expiry || batch.bytes() >= BATCH_BYTES {
                    self.written += write_batch(self.db, batch, *of_batch)?;
                    *of_batch = expiry;
                }
                batch.in_keyspace(&self.keyspace).put(key, value);
            }
        }
        self.taken += 1;
        Ok(())
    }

    /// Writes all that it took.
    pub fn finish(&mut self) -> Outcome {
        self.begin_batches()?;
        if let State::Batches { batch, expiry } = &mut self.state {
            self.written += write_batch(self.db, batch, *expiry)?;
        }
        self.state = NO_ENTRIES;
        Ok(())
    }

    fn begin_bulk(&mut self) -> Outcome {
        let State::Waiting { entries, .. } = &mut self.state else { return Ok(()) };
        let mut writer = Box::new(self.keyspace.table_writer()?);
        let mut last = Vec::new();
        for entry in std::mem::take(entries) {
            writer.put_with(&entry.key, &entry.value, &options(entry.expiry))?;
            last = entry.key;
        }
        self.state = State::Bulk { writer, last };
        Ok(())
    }

    /// Ends waiting, or a bulk load: its entries appear.
    fn begin_batches(&mut self) -> Outcome {
        let none = State::Batches { batch: WriteBatch::new(), expiry: Expiry::OfKeyspace };
        match std::mem::replace(&mut self.state, none) {
            State::Waiting { entries, .. } => {
                // They are taken once more.
                self.taken -= entries.len() as u64;
                let again = |entry: Waiting| self.put(&entry.key, &entry.value, entry.expiry);
                entries.into_iter().try_for_each(again)
            }
            State::Bulk { writer, .. } => {
                self.written += writer.finish()?.entries;
                Ok(())
            }
            batches @ State::Batches { .. } => {
                self.state = batches;
                Ok(())
            }
        }
    }
}

/// Writes a batch, and returns how many entries it had.
fn write_batch(db: &Db, batch: &mut WriteBatch, expiry: Expiry) -> Outcome<u64> {
    let batch = std::mem::take(batch);
    let entries = batch.len() as u64;
    if entries > 0 {
        db.write_with(batch, &options(expiry))?;
    }
    Ok(entries)
}

fn options(expiry: Expiry) -> WriteOptions {
    match expiry {
        Expiry::OfKeyspace => WriteOptions::new(),
        // The setting of the keyspace is for new entries.
        Expiry::Never => WriteOptions::new().expire_after(Duration::MAX),
        Expiry::At(time) => WriteOptions::new().expire_at(time),
    }
}
