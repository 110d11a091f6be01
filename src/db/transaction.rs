//! [`Transaction`]: reads of one moment and writes of its own, committed as one step or not at all.
//!
//! A transaction is a snapshot, a batch, and the set of what it has read. A read asks its own
//! writes first (`own_writes.rs`), then the snapshot, and is noted. A commit compares what was read
//! with what others have written since the snapshot (`write/conflict.rs`). It holds no lock in
//! between.

use crate::base::batch_format::WriteKind;
use crate::base::error::{Error, Result};
use crate::base::expiry::ReadClock;
use crate::base::key::KeyspaceId;
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::stats::counters::Counter;
use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex};
use crate::base::value::{Key, Value};
use crate::base::write_batch::WriteBatch;
use crate::db::again::run_again;
use crate::db::keyspace::Keyspace;
use crate::db::keyspace_batch::put_with;
use crate::db::own_writes::OwnWrites;
use crate::db::read_methods::{lookup_methods, scan_methods};
use crate::db::snapshot::Snapshot;
use crate::options::access::{ReadOptions, WriteOptions};
use crate::read::cursor::Cursor;
use crate::read::iter::Iter;
use crate::read::point::unexpired;
use crate::read::scan::TransactionScan;
use crate::state::engine::Engine;
use crate::state::read_set::ReadSet;
#[cfg(test)]
use crate::state::write_queue::{CheckedReads, Request};
use crate::write::commit;
use std::convert::Infallible;
use std::fmt;

/// How often [`Keyspace::transact`] runs a transaction at most.
const RUNS_MAX: u32 = 100;

/// An optimistic, serializable transaction: [`Keyspace::transaction`] begins one, and
/// [`Keyspace::transact`] runs a function in one.
///
/// It reads the database as it was when the transaction began, and its own writes. Nobody else sees
/// these before [`Transaction::commit`]. The commit fails with [`Error::Conflict`] if anything that
/// was read has been written since: a key, whether it had a value or not, or a range as far as it
/// was scanned. Then nothing of the transaction happened, and it may be run again. Dropping a
/// transaction takes back all that it wrote.
///
/// The methods act on the keyspace that the transaction was begun in; [`Transaction::in_keyspace`]
/// is the same transaction in another one.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = siftdb::Db::open(directory.path().join("db"))?;
/// db.put("stock", "1")?;
/// let (one, other) = (db.transaction(), db.transaction());
/// for order in [&one, &other] {
///     assert_eq!(order.get("stock")?.unwrap(), "1");
///     order.put("stock", "0")?;
/// }
/// one.commit()?;
/// assert!(matches!(other.commit(), Err(siftdb::Error::Conflict { .. })));
/// # Ok(())
/// # }
/// ```
///
/// # What is guaranteed
/// Transactions are *strictly serializable*: all of them, together with single reads and writes,
/// behave as if each had happened at one moment between its begin and its end. A transaction that
/// writes nothing is never refused and costs nothing at its commit: its moment is its begin. A
/// write without a read conflicts with nothing. Writes that are no transactions, range deletes and
/// the drop of a keyspace count as writes; that an entry expires does not.
///
/// # What it costs
/// A read takes a place in memory for its key; a scan takes one for its ends. A commit asks the
/// memtables, and of the tables those with newer entries, filters first. While a transaction lives,
/// compactions keep what it may read, as for a [`Snapshot`]. What it has written and read takes at
/// most [`Options::transaction_bytes_max`](crate::Options::transaction_bytes_max).
#[must_use = "a transaction that is dropped takes back its writes"]
pub struct Transaction {
    own: Mutex<OwnWrites>,
    reads: Arc<Mutex<ReadSet>>,
    snapshot: Snapshot,
    live: LiveTransaction,
}

/// A transaction in another of its keyspaces: [`Transaction::in_keyspace`].
pub struct KeyspaceTransaction<'t> {
    transaction: &'t Transaction,
    snapshot: Snapshot,
}

/// A moment of a transaction: [`Transaction::rollback_to`] takes back what was written after it.
#[derive(Debug)]
pub struct Savepoint(u64);

/// While it lives, the leaders of write groups note what they write.
struct LiveTransaction {
    engine: Arc<Engine>,
    /// What the transaction took when that was last counted.
    bytes: AtomicU64,
}

impl LiveTransaction {
    fn begin(engine: &Arc<Engine>) -> Self {
        engine.writer.recent.begin_transaction();
        LiveTransaction { engine: Arc::clone(engine), bytes: AtomicU64::new(0) }
    }

    /// Counts what the transaction takes now.
    fn count(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            self.engine.writer.recent.note_transaction_bytes(before, bytes);
        }
    }
}

impl Drop for LiveTransaction {
    fn drop(&mut self) {
        self.count(0);
        // In a forked child another thread may have held the lock of the list.
        if self.engine.context.process.is_current() {
            self.engine.writer.recent.end_transaction();
        }
    }
}

impl Keyspace {
    /// Begins a transaction. Its methods act on this keyspace; see [`Transaction`].
    pub fn transaction(&self) -> Transaction {
        // First, so that no write after the snapshot is missed.
        let live = LiveTransaction::begin(self.engine());
        let (own, reads) = (Mutex::default(), Arc::default());
        Transaction { own, reads, snapshot: self.snapshot(), live }
    }

    /// Runs `run` in a transaction and commits it. After a conflict it runs again, up to 100 times.
    /// From the third run on it takes turns with others that conflicted. After eight lost runs all
    /// new runs wait for it, 5 ms each, or up to 100 ms if many wait. If `run` returns an error or
    /// panics, nothing is written.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// use siftdb::keys::{decode, encode};
    ///
    /// db.put("visits", encode(&41u64))?;
    /// let visits = db.transact(|tx| {
    ///     let visits = tx.get("visits")?.and_then(|bytes| decode::<u64>(&bytes).ok());
    ///     let visits = visits.unwrap_or(0) + 1;
    ///     tx.put("visits", encode(&visits))?;
    ///     Ok(visits)
    /// })?;
    /// assert_eq!(visits, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `run`; `Conflict` if the last run met one, too; as for
    /// [`Transaction::commit`].
    pub fn transact<T>(&self, run: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&WriteOptions::new(), run)
    }

    /// As [`Keyspace::transact`], with options for the commit.
    ///
    /// # Errors
    /// As for [`Keyspace::transact`].
    pub fn transact_with<T>(
        &self,
        options: &WriteOptions,
        mut run: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        let run = |transaction: &Transaction| run(transaction).map(Ok::<T, Infallible>);
        self.run_committed(options, run).map(|Ok(value)| value)
    }

    /// As [`Keyspace::transact`], with a function that may fail with an error of the caller's own.
    /// This error ends the transaction: nothing is written, and it is not run again.
    ///
    /// ```
    /// #[derive(Debug, PartialEq)]
    /// enum Refused {
    ///     SoldOut,
    ///     Store(String),
    /// }
    ///
    /// impl From<siftdb::Error> for Refused {
    ///     fn from(error: siftdb::Error) -> Self {
    ///         Refused::Store(error.to_string())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Refused> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// db.put("stock", "0")?;
    /// let sold = db.try_transact(|tx| {
    ///     if tx.get("stock")?.is_none_or(|stock| stock == *"0") {
    ///         return Err(Refused::SoldOut);
    ///     }
    ///     tx.put("stock", "0")?;
    ///     Ok(())
    /// });
    /// assert_eq!(sold, Err(Refused::SoldOut));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `run`; as for [`Keyspace::transact`].
    pub fn try_transact<T, E: From<Error>>(
        &self,
        run: impl FnMut(&Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.try_transact_with(&WriteOptions::new(), run)
    }

    /// As [`Keyspace::try_transact`], with options for the commit.
    ///
    /// # Errors
    /// As for [`Keyspace::try_transact`].
    pub fn try_transact_with<T, E: From<Error>>(
        &self,
        options: &WriteOptions,
        mut run: impl FnMut(&Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.run_committed(options, |transaction| Ok(run(transaction)))?
    }

    /// Runs `run` in transactions until one is committed, or `run` fails. Its inner error ends
    /// this; its outer one, too, unless that is a conflict.
    fn run_committed<T, E>(
        &self,
        options: &WriteOptions,
        mut run: impl FnMut(&Transaction) -> Result<std::result::Result<T, E>>,
    ) -> Result<std::result::Result<T, E>> {
        // A forked child must not wait for a turn.
        self.engine().context.process.check()?;
        run_again(&self.engine().writer.retries, RUNS_MAX, || {
            let transaction = self.transaction();
            match run(&transaction)? {
                Ok(value) => transaction.commit_with(options).map(|()| Ok(value)),
                Err(error) => Ok(Err(error)),
            }
        })
    }
}

/// The methods that a transaction has in each of its keyspaces. `part` is that keyspace's.
macro_rules! methods {
    () => {
        lookup_methods!("as the transaction sees them");
        scan_methods!("as the transaction sees them");

        /// As [`get`](Self::get), with options.
        ///
        /// # Errors
        /// As for [`Keyspace::get`]; `TransactionTooLarge`.
        pub fn get_with(
            &self,
            key: impl AsRef<[u8]>,
            options: &ReadOptions,
        ) -> Result<Option<Value>> {
            self.part().get(key.as_ref(), options)
        }

        /// As [`multi_get`](Self::multi_get), with options.
        ///
        /// # Errors
        /// As for [`get_with`](Self::get_with).
        pub fn multi_get_with(
            &self,
            keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
            options: &ReadOptions,
        ) -> Result<Vec<Option<Value>>> {
            self.part().multi_get(keys, options)
        }

        /// As [`range`](Self::range), with options. The iterator has the writes that the
        /// transaction had made when it was asked for. The keys between its begin and its last
        /// entry count as read. Drop it before the commit: until then all of its range counts as
        /// read. [`first`](Self::first) and [`last`](Self::last) read one entry, and the gap
        /// before or after it.
        pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
            self.part().range(range.into_bounds(), options)
        }

        /// Counts `key` as read without reading it: the commit fails if another write touched it.
        ///
        /// # Errors
        /// `TransactionTooLarge`.
        pub fn set_read_for_update(&self, key: impl AsRef<[u8]>) -> Result<()> {
            self.part().note_read(key.as_ref())
        }

        /// Writes `value` under `key`, for this transaction until it is committed.
        ///
        /// # Errors
        /// `InvalidArgument` for a key over 65,535 bytes or a value over 1 GiB;
        /// `TransactionTooLarge`.
        pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
            self.part().add(|batch, to| {
                batch.push_in(to, WriteKind::Put, key.as_ref(), value.as_ref());
            })
        }

        /// As [`put`](Self::put), with options of this entry. Its expiry goes before that of
        /// [`commit_with`](Transaction::commit_with), and a duration begins with the commit.
        ///
        /// # Errors
        /// As for [`put`](Self::put).
        pub fn put_with(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            options: &WriteOptions,
        ) -> Result<()> {
            self.part().add(|batch, to| {
                put_with(batch, Some(to), key.as_ref(), value.as_ref(), options);
            })
        }

        /// Deletes `key`, which need not exist.
        ///
        /// # Errors
        /// As for [`put`](Self::put).
        pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
            self.part().add(|batch, to| batch.push_in(to, WriteKind::Delete, key.as_ref(), &[]))
        }

        /// Deletes all keys of `range`: those that the transaction sees, and what others have
        /// written there by the commit. It reads nothing, so it conflicts with nothing.
        ///
        /// # Errors
        /// As for [`put`](Self::put).
        pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
            self.part().add(|batch, to| batch.push_range(Some(to), &range.into_bounds()))
        }

        /// Deletes all keys that start with `prefix`; otherwise as
        /// [`delete_range`](Self::delete_range).
        ///
        /// # Errors
        /// As for [`put`](Self::put).
        pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
            self.delete_range(KeyBounds::of_prefix(prefix.as_ref()))
        }
    };
}

impl Transaction {
    methods!();

    /// The same transaction in `keyspace`, of the same database.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// let (jobs, done) = (db.keyspace("jobs")?, db.keyspace("done")?);
    /// jobs.put("1", "write a letter")?;
    /// db.transact(|tx| {
    ///     let (jobs, done) = (tx.in_keyspace(&jobs), tx.in_keyspace(&done));
    ///     let Some((number, job)) = jobs.first()? else { return Ok(()) };
    ///     jobs.delete(&number)?;
    ///     done.put(&number, &job)
    /// })?;
    /// assert_eq!(done.get("1")?.unwrap(), "write a letter");
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_keyspace(&self, keyspace: &Keyspace) -> KeyspaceTransaction<'_> {
        KeyspaceTransaction { transaction: self, snapshot: self.snapshot.in_keyspace(keyspace) }
    }

    /// Notes this moment, in all keyspaces.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.own.lock().savepoint())
    }

    /// Takes back what was written after `savepoint`, and all later savepoints. What was read stays
    /// read. It may be called again with the same savepoint.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// let tx = db.transaction();
    /// tx.put("a", "1")?;
    /// let savepoint = tx.savepoint();
    /// tx.delete("a")?;
    /// tx.rollback_to(&savepoint)?;
    /// assert_eq!(tx.get("a")?.unwrap(), "1");
    /// tx.commit()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a savepoint of another transaction, or one that was taken back.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        self.own.lock().rollback_to(savepoint.0)
    }

    /// Writes everything as one step, unless something that was read has been written since the
    /// transaction began.
    ///
    /// # Errors
    /// `Conflict`; `TransactionTooLarge`; `InvalidArgument` after an entry beyond a limit; as for
    /// [`Db::write`](crate::Db::write). An error of the check, or a conflict, means that nothing
    /// was written. After any other error the outcome is that of a failed write: not visible now,
    /// and all or nothing of it after reopening.
    pub fn commit(self) -> Result<()> {
        self.commit_with(&WriteOptions::new())
    }

    /// As [`Transaction::commit`], with options.
    ///
    /// # Errors
    /// As for [`Transaction::commit`].
    pub fn commit_with(self, options: &WriteOptions) -> Result<()> {
        // The snapshot is released afterwards: until then compactions keep what shows a conflict.
        let result = self.try_commit(options);
        let counters = &self.live.engine.context.counters;
        match &result {
            Ok(()) => counters.add(Counter::TransactionsCommitted, 1),
            Err(Error::Conflict { .. }) => counters.add(Counter::TransactionConflicts, 1),
            Err(_) => {}
        }
        result
    }

    fn try_commit(&self, options: &WriteOptions) -> Result<()> {
        let engine = &self.live.engine;
        engine.context.process.check()?;
        self.check_bytes()?;
        let reads = self.reads.lock().take();
        let batch = std::mem::take(&mut *self.own.lock()).batch;
        batch.check()?;
        // All was read at the moment of the snapshot, also if the database takes no writes now. A
        // sync is a write of nothing.
        match (batch.is_empty(), options.sync) {
            (true, false) => Ok(()),
            (true, true) => commit::write(engine, batch, options),
            (false, _) => {
                let since = self.snapshot.last_sequence();
                commit::write_checked(engine, batch, options, reads, since)
            }
        }
    }

    /// Its writes and reads so far, as a request that was not checked yet.
    #[cfg(test)]
    pub(super) fn request(&self, sync: bool) -> Request {
        let (set, through) = (self.reads.lock().take(), self.snapshot.last_sequence());
        let batch = std::mem::take(&mut *self.own.lock()).batch;
        let reads = Some(Box::new(CheckedReads { set, through, alone: false }));
        Request { sync, reads, ..Request::of(batch) }
    }

    fn part(&self) -> Part<'_> {
        Part { transaction: self, snapshot: &self.snapshot }
    }

    fn check_bytes(&self) -> Result<()> {
        let own_bytes = self.own.lock().bytes();
        let mut reads = self.reads.lock();
        reads.note_own_bytes(own_bytes);
        self.live.count(reads.bytes() as u64);
        reads.check_bytes(self.live.engine.context.options.transaction_bytes_max)
    }
}

impl KeyspaceTransaction<'_> {
    methods!();

    fn part(&self) -> Part<'_> {
        Part { transaction: self.transaction, snapshot: &self.snapshot }
    }
}

/// One keyspace of a transaction.
struct Part<'t> {
    transaction: &'t Transaction,
    snapshot: &'t Snapshot,
}

impl Part<'_> {
    fn id(&self) -> KeyspaceId {
        self.snapshot.keyspace.id
    }

    /// Refuses a keyspace that cannot be used: of another database, whose number is none here; one
    /// that was dropped before; and all of them in a forked child, where another thread may have
    /// held a lock.
    fn check(&self) -> Result<()> {
        self.transaction.live.engine.context.process.check()?;
        self.snapshot.check()
    }

    fn get(&self, key: &[u8], options: &ReadOptions) -> Result<Option<Value>> {
        self.check()?;
        let (keyspace, clock) = (&self.snapshot.keyspace, ReadClock::default());
        let unexpired = |stored| unexpired(keyspace, &clock, stored);
        if let Some(own) = self.transaction.own.lock().get(self.id(), key, unexpired) {
            return Ok(own);
        }
        self.note_read(key)?;
        self.snapshot.get_with(key, options)
    }

    fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.check()?;
        let keys: Vec<K> = keys.into_iter().collect();
        // Of what the transaction wrote, and of the snapshot.
        let clock = ReadClock::default();
        let own: Vec<_> = {
            let unexpired = |stored| unexpired(&self.snapshot.keyspace, &clock, stored);
            let mut own = self.transaction.own.lock();
            keys.iter().map(|key| own.get(self.id(), key.as_ref(), unexpired)).collect()
        };
        let others = || keys.iter().zip(&own).filter(|(_, own)| own.is_none());
        others().try_for_each(|(key, _)| self.note_read(key.as_ref()))?;
        let found = self.snapshot.multi_get_by(others().map(|(key, _)| key), options, &clock)?;
        let mut found = found.into_iter();
        Ok(own.into_iter().map(|own| own.unwrap_or_else(|| found.next().flatten())).collect())
    }

    fn range(&self, bounds: KeyBounds, options: &ReadOptions) -> Iter {
        // A loop of scans that share no key takes memory, too.
        if let Err(refused) = self.check().and_then(|()| self.transaction.check_bytes()) {
            return self.snapshot.refused_iterator(bounds, options, refused);
        }
        let scan = {
            let mut own = self.transaction.own.lock();
            let own_writes = own.batch.len() as u64;
            let reads = Arc::clone(&self.transaction.reads);
            TransactionScan { own: own.memtables(self.id()).cloned().collect(), own_writes, reads }
        };
        self.snapshot.iterate_with(bounds, options, Some(Box::new(scan)))
    }

    fn note_read(&self, key: &[u8]) -> Result<()> {
        self.check()?;
        self.transaction.reads.lock().add_key(&self.snapshot.keyspace, key);
        self.transaction.check_bytes()
    }

    /// Adds to its own writes. `add` gets the database and the keyspace.
    fn add(&self, add: impl FnOnce(&mut WriteBatch, (u64, KeyspaceId))) -> Result<()> {
        self.check()?;
        {
            let mut own = self.transaction.own.lock();
            add(&mut own.batch, (self.snapshot.database(), self.id()));
            own.batch.check()?;
        }
        self.transaction.check_bytes()
    }
}

/// One line, without what was read and written.
impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = self.snapshot.last_sequence();
        f.debug_struct("Transaction").field("sequence", &sequence).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyspaceTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.snapshot.keyspace.name;
        f.debug_struct("KeyspaceTransaction").field("keyspace", name).finish_non_exhaustive()
    }
}
