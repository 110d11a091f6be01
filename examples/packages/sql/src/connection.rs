//! [`Database`] and its [`Connection`]s: who reads and writes in which transaction.
//!
//! A statement outside of `BEGIN` … `COMMIT` is a transaction of its own. Each transaction is one
//! of siftdb: it reads one snapshot and its own writes, and its commit fails if anything that it
//! read was changed in between. Nothing waits, and a reader is never refused.

use crate::keys;
use gluesql_core::error::{Error, Result};
use gluesql_core::store;
use siftdb::keys::{decode, encode};
use siftdb::{Db, Iter, Options, Savepoint, Transaction, Value, WriteOptions};
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How many row numbers are taken from the database at a time, at least.
const ROW_NUMBERS: u64 = 1024;

/// An open database of SQL tables.
#[derive(Clone, Debug)]
pub struct Database {
    db: Db,
    /// Row numbers that were taken from the database and are not given out yet.
    row_numbers: Arc<Mutex<Range<u64>>>,
}

/// One user of a [`Database`], with at most one transaction: the storage of a
/// [`Glue`](gluesql_core::prelude::Glue).
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// use gluesql_core::prelude::Glue;
///
/// let database = siftdb_sql::Database::open(directory.path(), siftdb::Options::new())?;
/// let mut sql = Glue::new(database.connect());
/// sql.execute("CREATE TABLE people (name TEXT PRIMARY KEY, born INT)")?;
/// sql.execute("INSERT INTO people VALUES ('ada', 1815), ('alan', 1912)")?;
/// let found = sql.execute("SELECT name FROM people WHERE name > 'b' OR born < 1900")?;
/// assert_eq!(found[0].select().unwrap().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    database: Database,
    open: Option<OpenTransaction>,
}

#[derive(Debug)]
struct OpenTransaction {
    transaction: Transaction,
    /// Before the current statement.
    statement: Savepoint,
    has_written: bool,
}

impl Database {
    /// Opens or creates the database in `directory`.
    ///
    /// # Errors
    /// The failure of siftdb.
    pub fn open(directory: &Path, options: Options) -> siftdb::Result<Self> {
        Ok(Database { db: options.open(directory)?, row_numbers: Arc::default() })
    }

    /// A new connection, without a transaction.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection { database: self.clone(), open: None }
    }

    /// The database of siftdb, for statistics and backups.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Numbers for `count` rows, which no row of any table had before. They are given out in no
    /// transaction: else all that insert into tables without primary keys would conflict.
    pub(crate) fn row_numbers(&self, count: u64) -> Result<Range<u64>> {
        let mut left = self.row_numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if left.end - left.start < count {
            // Written before the rows that use it, so it survives if they do.
            let key = keys::of_next_row();
            let first = match self.db.get(&key).map_err(failed)? {
                Some(bytes) => decode::<u64>(&bytes).map_err(|_| damaged("the next row number"))?,
                None => 0,
            };
            let next = first + count.max(ROW_NUMBERS);
            self.db.put(&key, encode(&next)).map_err(failed)?;
            *left = first..next;
        }
        let taken = left.start..left.start + count;
        left.start = taken.end;
        Ok(taken)
    }
}

impl Connection {
    /// Whether `BEGIN` was called, and neither `COMMIT` nor `ROLLBACK` after it.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Reads in the transaction. Statements are planned before theirs begins.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let found = match &self.open {
            Some(open) => open.transaction.get(key),
            None => self.database.db.get(key),
        };
        found.map_err(failed)
    }

    pub(crate) fn range(&self, range: RangeInclusive<Vec<u8>>) -> Iter {
        match &self.open {
            Some(open) => open.transaction.range(range),
            None => self.database.db.range(range),
        }
    }

    pub(crate) fn prefix(&self, prefix: &[u8]) -> Iter {
        match &self.open {
            Some(open) => open.transaction.prefix(prefix),
            None => self.database.db.prefix(prefix),
        }
    }

    /// Writes in the transaction: everything that `write` writes, or nothing of the statement.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&Transaction) -> siftdb::Result<()>,
    ) -> Result<()> {
        let open = self.open.as_mut().ok_or_else(none_is_open)?;
        open.has_written = true;
        write(&open.transaction).map_err(|error| {
            match open.transaction.rollback_to(&open.statement) {
                Ok(()) => failed(error),
                Err(of_the_rollback) => failed(of_the_rollback),
            }
        })
    }
}

impl store::Transaction for Connection {
    /// Returns whether the statement that asks is a transaction of its own.
    fn begin(&mut self, autocommit: bool) -> Result<bool> {
        match &mut self.open {
            Some(open) if autocommit => {
                open.statement = open.transaction.savepoint();
                Ok(false)
            }
            Some(_) => Err(storage("a transaction is open already: COMMIT or ROLLBACK ends it")),
            None => {
                let transaction = self.database.db.transaction();
                let statement = transaction.savepoint();
                self.open = Some(OpenTransaction { transaction, statement, has_written: false });
                Ok(autocommit)
            }
        }
    }

    fn rollback(&mut self) -> Result<()> {
        self.open.take().map(drop).ok_or_else(none_is_open)
    }

    /// Returns after the transaction is on the disk.
    fn commit(&mut self) -> Result<()> {
        let open = self.open.take().ok_or_else(none_is_open)?;
        // A query needs none. It also works when the database takes no writes.
        let options = WriteOptions::new().sync(open.has_written);
        open.transaction.commit_with(&options).map_err(failed)
    }
}

fn none_is_open() -> Error {
    storage("no transaction is open: BEGIN begins one")
}

/// The error of GlueSQL for a message of the storage.
pub(crate) fn storage(message: impl Into<String>) -> Error {
    Error::StorageMsg(message.into())
}

/// The error of GlueSQL for one of siftdb.
pub(crate) fn failed(error: siftdb::Error) -> Error {
    match error {
        siftdb::Error::Conflict { .. } => storage(
            "conflict: another transaction has changed what this one read. Nothing was written; \
             try again",
        ),
        error => storage(error.to_string()),
    }
}

/// The error for an entry that is not what this package writes.
pub(crate) fn damaged(what: &str) -> Error {
    storage(format!("{what} cannot be read: the database was not written by this version"))
}
