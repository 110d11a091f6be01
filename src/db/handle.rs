//! [`Db`]: a shared handle. The handle owns the workers; workers, iterators and snapshots own the
//! shared state.
//!
//! `close`, or the drop of the last `Db`, stops and joins the workers, syncs the log, and drops its
//! share in the directory's lock. Calls of other threads, iterators and snapshots have shares of
//! their own, and the last one unlocks the directory (I20).

use crate::admin::filter_report::{self, FilterReport};
use crate::admin::manual;
use crate::admin::repair::report::RepairReport;
use crate::admin::repair::run::repair;
use crate::admin::stats_report;
use crate::admin::verify::{self, VerifyProgress, VerifyReport};
use crate::base::error::{Error, Result};
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::stats::report::Stats;
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Mutex, Ordering};
use crate::base::value::{Key, Value};
use crate::base::write_batch::WriteBatch;
use crate::db::open;
use crate::db::resume::resume;
use crate::db::snapshot::Snapshot;
use crate::jobs::compact::manual::FilterRebuild;
use crate::jobs::obsolete::remove_files;
use crate::jobs::workers;
use crate::log::recovery::RecoveryReport;
use crate::options::access::{CompactRangeOptions, ReadOptions, WriteOptions};
use crate::options::database::Options;
use crate::read::cursor::Cursor;
use crate::read::explain::{Explain, explain};
use crate::read::multi_get;
use crate::read::point;
use crate::read::scan::Iter;
use crate::state::session;
use crate::state::shared::Shared;
use crate::write::commit;
use std::fmt;
use std::path::Path;

/// An open database. Cheap to clone; every method takes `&self` and may be called from any thread.
///
/// # After `fork`
///
/// A handle belongs to the process that opened it. A child that inherits one by `fork` cannot use
/// it. Calls that write, wait, begin a scan or would read a file return [`Error::Forked`]. Lookups
/// still find what is in memory, as it was at the fork. [`Db::stats`] and [`Db::filter_report`] are
/// empty. Dropping inherited handles, iterators or snapshots changes no file, does not wait, and
/// leaves the directory locked by the parent. A child that needs a database opens one of its own.
/// While the child or the parent has a database open, the other gets [`Error::Locked`] for it.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("people.sift");
/// let db = siftdb::Db::open(path)?;
/// db.put("ada", "1815")?;
/// assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// db.delete("ada")?;
/// assert_eq!(db.get("ada")?, None);
/// db.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Db(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// One line, with the directory.
impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = &self.0.shared.directory;
        f.debug_struct("Db").field("directory", directory).finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the database in the directory `path`, creating it if these options allow.
    ///
    /// # Errors
    /// `InvalidOptions`, `Locked`, `Corruption` of any file that the database needs,
    /// `UnsupportedFormat`, also for a database of LevelDB or RocksDB, `Io`. A refused opening
    /// creates and changes nothing.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let shared = open::open(self, path.as_ref())?;
        let workers = workers::start(&shared)?;
        Ok(Db::with(shared, workers))
    }

    /// Opens the database in the directory `path` read-only. No byte of the directory changes:
    /// nothing is created, compacted or removed, counters are not saved, and no write permission is
    /// needed. The contents of logs are read into memory, also after a crash. Calls that would
    /// write return [`Error::OpenedReadOnly`](crate::Error::OpenedReadOnly); everything else works
    /// as usual.
    ///
    /// Any number of readers, in any number of processes, may have a database open read-only, but
    /// no writer at the same time: readers share `LOCK`. If there is no `LOCK`, as in a copy of the
    /// other files, the directory is read without it.
    ///
    /// # Errors
    /// As for [`Options::open`]; `Locked` while a writer has the database open.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        let shared = open::open_read_only(self, path.as_ref())?;
        Ok(Db::with(shared, Vec::new()))
    }

    /// Repairs a damaged database from its tables, logs and manifest, so that it opens and passes
    /// [`Db::verify`](crate::Db::verify). New tables have the filters and sizes of these options. A
    /// sound database is not changed.
    ///
    /// Files that cannot be used as a whole are not deleted: they move to the folder `lost` of the
    /// database. The report says what was kept, what was set aside and why, and what was lost. Old
    /// files are removed only after all new ones are durable, so an interrupted repair can be
    /// repeated.
    ///
    /// Entries in unreadable places are lost. Then an older version of their keys may appear, or a
    /// deleted key may return. If the manifest is lost, every table and log that is found is used,
    /// obsolete ones included. Then a deleted key returns if its tombstone was dropped. Of the
    /// versions that are found, the newest always wins. A repair needs space for a copy of all
    /// tables.
    ///
    /// # Errors
    /// `Locked`; `InvalidOptions`; `UnsupportedFormat` of any file, which a newer siftdb may read,
    /// and for a LevelDB or RocksDB database, which is not touched, not even its `LOCK`; `Io` if
    /// there is no database, or if a file cannot be opened or written. Nothing is removed then.
    pub fn repair(self, path: impl AsRef<Path>) -> Result<RepairReport> {
        repair(self, path.as_ref())
    }
}

impl Db {
    /// Opens or creates the database in the directory `path`, with default options.
    ///
    /// # Errors
    /// As for [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Opens the database in the directory `path` read-only, with default options: see
    /// [`Options::open_read_only`].
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// # let db = siftdb::Db::open(&path)?;
    /// # db.put("ada", "1815")?;
    /// # db.close()?;
    /// let db = siftdb::Db::open_read_only(&path)?;
    /// assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// assert!(matches!(db.put("bob", "1912"), Err(siftdb::Error::OpenedReadOnly)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open_read_only(path)
    }

    /// The value of `key`, or `None` if there is none.
    ///
    /// # Errors
    /// An unreadable or damaged file on the way of the key, or `Closed`. Never "not found" for a
    /// key that is there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::new())
    }

    /// As [`Db::get`], with options.
    ///
    /// # Errors
    /// As for [`Db::get`].
    #[inline]
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        point::get(self.shared(), key.as_ref(), None, options, None)
    }

    /// The values of many keys, in the order of `keys`, all as of one moment: no write comes
    /// between two of them, and a batch is visible as a whole or not at all. Keys may come in any
    /// order and repeat.
    ///
    /// This costs less than single lookups: filters are asked for many keys at once, and a block
    /// that several keys need is fetched once. In [`Db::stats`] each key counts as a lookup, and
    /// each fetch of a block counts once.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("ada", "1815")?;
    /// let years = db.multi_get(["grace", "ada"])?;
    /// assert_eq!(years[0], None);
    /// assert_eq!(years[1].as_deref(), Some(&b"1815"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Db::get`]; the first error on the way of any key is the answer for all.
    pub fn multi_get(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::new())
    }

    /// As [`Db::multi_get`], with options.
    ///
    /// # Errors
    /// As for [`Db::multi_get`].
    pub fn multi_get_with(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        multi_get::multi_get(self.shared(), keys, None, options)
    }

    /// True if `key` has a value.
    ///
    /// # Errors
    /// As for [`Db::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// False only if `key` certainly has no value. Reads no file: tables whose filter is not
    /// pinned count as "may contain".
    ///
    /// # Errors
    /// `Closed`.
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        point::may_contain(self.shared(), key.as_ref())
    }

    /// Looks `key` up and says what that touched, table by table.
    ///
    /// # Errors
    /// As for [`Db::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explain> {
        self.explain_with(key, &ReadOptions::new())
    }

    /// As [`Db::explain`], with options.
    ///
    /// # Errors
    /// As for [`Db::get`].
    pub fn explain_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Explain> {
        explain(self.shared(), key.as_ref(), options)
    }

    /// Writes `value` under `key`. Acknowledged writes survive the death of the process.
    ///
    /// # Errors
    /// `InvalidArgument` for a key over 65,535 bytes or a value over 1 GiB; `Closed`; `ReadOnly`
    /// after an earlier failure; or the failure of this write, after which the database is
    /// read-only.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        self.write(batch)
    }

    /// Deletes `key`, which need not exist.
    ///
    /// # Errors
    /// As for [`Db::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(key);
        self.write(batch)
    }

    /// Writes a batch as one step.
    ///
    /// # Errors
    /// As for [`Db::put`]; also for a batch over 2 GiB.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::new())
    }

    /// As [`Db::write`], with options.
    ///
    /// # Errors
    /// As for [`Db::write`].
    pub fn write_with(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        commit::write(self.shared(), batch, options)
    }

    /// Makes every write acknowledged so far survive a power loss. The sync is shared with the
    /// current write group, so any thread may call this often.
    ///
    /// # Errors
    /// As for [`Db::write`].
    pub fn sync(&self) -> Result<()> {
        commit::sync(self.shared())
    }

    /// All entries, ascending.
    pub fn iter(&self) -> Iter {
        self.range(..)
    }

    /// The entries of a range of keys.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.range_with(range, &ReadOptions::new())
    }

    /// As [`Db::range`], with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        self.iterate(range.into_bounds(), options)
    }

    /// The entries whose keys start with `prefix`, which may be any bytes.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.iterate(KeyBounds::of_prefix(prefix.as_ref()), &ReadOptions::new())
    }

    /// A cursor over all entries, which seeks and steps both ways. [`Iter::cursor`] makes one over
    /// a range.
    pub fn cursor(&self) -> Cursor {
        self.iter().cursor()
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As for [`Db::get`].
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As for [`Db::get`].
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next_back().transpose()
    }

    /// The database as it is now, to be read later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.shared())
    }

    /// Writes the memtables as tables and waits until they are durable.
    ///
    /// # Errors
    /// As for [`Db::write`], and the failure of the flush.
    pub fn flush(&self) -> Result<()> {
        manual::flush(self.shared())
    }

    /// Compacts all tables with keys of `range` down, level by level, and waits. This frees the
    /// space of deleted and overwritten entries that no snapshot needs, and joins neighbors that
    /// fit one table.
    ///
    /// A table that shares no keys with another, has no such entries and has no small neighbor may
    /// be moved down, or stay, without being read. [`Db::compact_range_with`] can rewrite all
    /// tables.
    ///
    /// # Errors
    /// As for [`Db::flush`], and the failure of the compaction.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.compact_range_with(range, &CompactRangeOptions::new())
    }

    /// As [`Db::compact_range`], with options.
    ///
    /// # Errors
    /// As for [`Db::compact_range`].
    pub fn compact_range_with(
        &self,
        range: impl KeyRange,
        options: &CompactRangeOptions,
    ) -> Result<()> {
        manual::compact_range(self.shared(), &range.into_bounds(), options)
    }

    /// Rewrites the tables whose filter differs from the options (or all tables), and waits.
    /// Returns how many tables there were to rewrite. Other threads may read and write at the same
    /// time. Compactions that are due alternate with the rebuild, so writers do not have to wait.
    ///
    /// A table is rewritten at its level and gets the filter of that level. Tables of level 0 go
    /// down to level 1, together with the tables that share keys with them. If a compaction moves a
    /// table without reading it during this call, the table keeps the filter of its old level.
    /// After a crash, call this again for the rest. If there is nothing to do, nothing is written.
    ///
    /// # Errors
    /// As for [`Db::compact_range`]: a failed compaction makes the database read-only.
    pub fn rebuild_filters(&self, which: FilterRebuild) -> Result<u64> {
        manual::rebuild_filters(self.shared(), which)
    }

    /// Takes writes again after the disk was full: if writes return [`Error::ReadOnly`] because of
    /// a lack of space or quota, and there is space again. Without such a failure it does nothing.
    ///
    /// It first writes, syncs and removes a file as large as the write buffer, to check for space.
    /// Then it flushes all memtables and begins a new log and a new manifest. No acknowledged write
    /// is lost. A refused write cannot reappear any more, as it might when the database is
    /// reopened. Iterators and snapshots stay valid. The tables need space for up to
    /// [`Options::immutable_memtables_max`] + 1 write buffers, while the old logs still exist.
    ///
    /// # Errors
    /// `Io` if there is still no space: the database stays as it is, and `resume` may be called
    /// again. `ReadOnly` if a failure had another cause than space: after a failed sync the
    /// contents of the disk are unknown, so the database must be reopened. `Closed`;
    /// `OpenedReadOnly`; `Forked`.
    pub fn resume(&self) -> Result<()> {
        resume(self.shared())
    }

    /// The filters of all tables: what they are, what the options ask for, and what the counters
    /// say. With the feature `cli`, `FilterReport::findings` lists the problems. This reads no
    /// filter, so it shows damage only in filters that were read before. [`Db::check_filters`]
    /// reads them all.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("ada", "1815")?;
    /// db.flush()?;
    /// let report = db.filter_report();
    /// assert_eq!(report.groups(0)[0].like.encoding, "fast-local-bloom");
    /// for finding in report.findings() {
    ///     println!("{finding}");
    /// }
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn filter_report(&self) -> FilterReport {
        filter_report::filter_report(self.shared())
    }

    /// [`Db::filter_report`] after reading the filter of every table, past the cache, to find
    /// damaged ones. Nothing is counted.
    ///
    /// # Errors
    /// `Closed`; `Io` if a table cannot be opened. Damage is not an error here.
    pub fn check_filters(&self) -> Result<FilterReport> {
        filter_report::check_filters(self.shared())
    }

    /// The counters, and what the database holds now. Reads no file. In a forked child all figures
    /// are 0.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats_report::stats(self.shared())
    }

    /// What opening found in manifest and logs, and what it dropped. Empty in a forked child.
    #[must_use]
    pub fn recovery_report(&self) -> RecoveryReport {
        let shared = self.shared();
        // In a forked child another thread may have held the lock.
        let mine = shared.process.is_current().then(|| shared.recovery.lock().clone());
        mine.unwrap_or_default()
    }

    /// Reads and checks the whole database: manifest, logs and tables. In each table it checks all
    /// checksums, the order of keys, the bounds in the index, and sizes, counts and sequences
    /// against the table's properties and the manifest. Lookups must find each key, and the filter
    /// must pass it. Tables of a sorted level must not overlap. Nothing is taken from the cache or
    /// stays in it.
    ///
    /// Damage does not end the check; the report lists it. `progress` is called on this thread
    /// after each data block. Other threads may read and write at the same time; tables that they
    /// replace are checked too.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("ada", "1815")?;
    /// db.flush()?;
    /// let report = db.verify(|done| println!("{} of {} bytes", done.bytes_done, done.bytes))?;
    /// assert!(report.is_sound() && report.entries == 1);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Closed`; damage is no error here.
    pub fn verify(&self, mut progress: impl FnMut(&VerifyProgress)) -> Result<VerifyReport> {
        verify::verify(self.shared(), &mut progress)
    }

    /// Repairs the damaged database in the directory `path`, with default options: see
    /// [`Options::repair`].
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// # let db = siftdb::Db::open(&path)?;
    /// # db.put("ada", "1815")?;
    /// # db.close()?;
    /// # drop(db);
    /// let report = siftdb::Db::repair(&path)?;
    /// assert!(!report.changed, "{report}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Options::repair`].
    pub fn repair(path: impl AsRef<Path>) -> Result<RepairReport> {
        Options::new().repair(path)
    }

    /// Ends background work, makes every acknowledged write durable, and reports failures. Later
    /// calls return `Closed`. Iterators, snapshots and lookups that have begun stay valid, and the
    /// directory is unlocked when the last of them is gone. Clones of this `Db` do not keep it
    /// locked.
    ///
    /// Dropping the last handle does the same but cannot report an error. To know that all writes
    /// are durable, call this or [`Db::sync`].
    ///
    /// # Errors
    /// A failed sync, or the failure that had already made the database read-only.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }

    /// A handle for an opened database and its workers.
    pub(super) fn with(shared: Arc<Shared>, workers: Vec<JoinHandle<()>>) -> Self {
        Db(Arc::new(Handle { shared, workers: Mutex::new(workers) }))
    }

    /// The workers, to be ended by hand.
    #[cfg(test)]
    pub(super) fn workers(&self) -> impl std::ops::DerefMut<Target = Vec<JoinHandle<()>>> {
        self.0.workers.lock()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    fn iterate(&self, bounds: KeyBounds, options: &ReadOptions) -> Iter {
        Iter::new(self.shared(), None, bounds, options)
    }
}

impl Handle {
    fn close(&self) -> Result<()> {
        self.shared.process.check()?;
        // Held to the end, so that a second `close` returns only when the first is done.
        let mut workers = self.workers.lock();
        if self.shared.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        let stopped = workers::stop(&self.shared, &mut workers);
        let finished = finish(&self.shared);
        // Last of all: another process may open the database as soon as the lock is free.
        self.shared.close_view();
        stopped.and(finished)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // The threads belong to the parent, so a forked child cannot join or detach them.
            std::mem::forget(std::mem::take(self.workers.get_mut()));
            return;
        }
        // A drop cannot report an error. Acknowledged writes are with the system already, and a
        // caller that needs the answer calls `close`.
        let _ = self.close();
    }
}

/// Ends a session after its workers: syncs and ends the log, removes obsolete files, saves the
/// counters.
///
/// # Errors
/// The failure of the log, or the one that had made the database read-only.
pub(super) fn finish(shared: &Shared) -> Result<()> {
    if let Some(cause) = shared.background_error.get() {
        return Err(Error::ReadOnly { cause: Arc::new(cause) });
    }
    if shared.read_only {
        return Ok(());
    }
    shared
        .check_lock()
        .and_then(|()| session::finish_log(shared))
        .map_err(|e| shared.set_background_error(e))?;
    shared.retired.lock().clear();
    remove_files(shared);
    shared.save_stats();
    Ok(())
}
