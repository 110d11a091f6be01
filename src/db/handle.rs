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
/// it: calls that write, wait or begin a scan, and lookups that would have to read a file, answer
/// [`Error::Forked`]. Lookups of what is in memory still find it, as it was at the fork;
/// [`Db::stats`] and [`Db::filter_report`] are empty. Dropping
/// what was inherited, iterators and snapshots too, changes no file, waits for nobody and leaves
/// the directory to the parent, which has it locked as before. A child that needs a database opens
/// one of its own; as long as it or the parent has one open, the other gets [`Error::Locked`].
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
    /// `UnsupportedFormat`, also for a database of LevelDB or RocksDB, `Io`. Nothing is created or
    /// changed when open is refused.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let shared = open::open(self, path.as_ref())?;
        let workers = workers::start(&shared)?;
        Ok(Db::with(shared, workers))
    }

    /// Opens the database in the directory `path` to read it, and changes nothing there, not a
    /// byte: no right to write is needed, nothing is created, compacted or removed, and counters
    /// are not saved. What logs hold is read into memory, also after a crash. Calls that would
    /// write answer [`Error::OpenedReadOnly`](crate::Error::OpenedReadOnly); everything else works
    /// as usual.
    ///
    /// Any number of readers, in any number of processes, may have a database open like this, and
    /// no writer at the same time: `LOCK` is shared between them. A directory without `LOCK`, such
    /// as a copy of the other files, is read without.
    ///
    /// # Errors
    /// As for [`Options::open`]; `Locked` while a writer has the database open.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        let shared = open::open_read_only(self, path.as_ref())?;
        Ok(Db::with(shared, Vec::new()))
    }

    /// Makes a database that is damaged, or that does not open, into one that opens and passes
    /// [`Db::verify`](crate::Db::verify), from what its tables, logs and manifest still hold. The
    /// new tables have the filters and sizes of these options. A sound database is not touched.
    ///
    /// Nothing that could not be used, or not as a whole, is deleted: it goes to the folder `lost`
    /// of the database. The report says what was kept, what was set aside and why, and what could
    /// not be saved. Until everything new is durable nothing old is removed, so a repair that was
    /// interrupted is simply repeated.
    ///
    /// What a repair may do to the data: entries in unreadable places are gone, and then an older
    /// version of their keys may show, or a key that was deleted. Where the manifest itself is
    /// lost, every table and log that is found takes part, also one that had been replaced and was
    /// about to be removed: a deleted key comes back if its tombstone had been dropped since. The
    /// newest of the versions that are there always wins. Space for a copy of all tables is needed.
    ///
    /// # Errors
    /// `Locked`; `InvalidOptions`; `UnsupportedFormat` of any file, which a newer siftdb may read,
    /// and of a LevelDB or RocksDB database, of which nothing is touched, not even `LOCK`; `Io` if
    /// there is no database, or a file cannot be opened or written. Nothing is removed then.
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

    /// Opens the database in the directory `path` to read it, with default options, and changes
    /// nothing there: see [`Options::open_read_only`].
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

    /// The values of many keys, in the order asked, all as of one moment: no write comes between
    /// two of them, and a batch is seen by all or by none. Keys may come in any order and repeat.
    ///
    /// Cheaper than as many single lookups: filters are asked for many keys at once, and a block
    /// that several keys need is fetched once. In [`Db::stats`] each key counts as a lookup, each
    /// block as often as it was fetched.
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

    /// Makes every write acknowledged so far survive a power loss. Joins the write group of the
    /// moment, so it may be called from any thread, often.
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

    /// The entries whose keys start with `prefix`: exact, whatever bytes it has.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.iterate(KeyBounds::of_prefix(prefix.as_ref()), &ReadOptions::new())
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

    /// Compacts all tables that hold keys of `range` down, level by level, and waits. Gives back
    /// the space of deleted and overwritten entries that no snapshot needs, and makes one table of
    /// neighbours that fit one.
    ///
    /// A table that shares keys with no other, has no such entries and no small neighbour may be
    /// moved down, or stay where it is, unread. [`Db::compact_range_with`] can rewrite all.
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

    /// Rewrites the tables whose filter is not what the options ask for (or all), and waits.
    /// Returns how many tables there were to rewrite. Other threads may read and write in the
    /// meantime; compactions that are due take turns with this one, so that writers do not have to
    /// wait.
    ///
    /// A table is rewritten at its level and gets the filter of that level. Those of level 0 go
    /// down to level 1, with the tables of theirs that they share keys with. If a compaction
    /// moves a table unread during this call, the table keeps the filter of its old level. After a
    /// crash, call this again for the rest. With nothing to do it writes nothing.
    ///
    /// # Errors
    /// As for [`Db::compact_range`]: a failed compaction makes the database read-only.
    pub fn rebuild_filters(&self, which: FilterRebuild) -> Result<u64> {
        manual::rebuild_filters(self.shared(), which)
    }

    /// Takes writes again after the disk was full: if writes answer [`Error::ReadOnly`] because of
    /// a lack of space or quota, and there is room again. Without a failure it does nothing.
    ///
    /// It looks whether there is room, by a file as large as the write buffer that it writes, syncs
    /// and removes; then it flushes all memtables and begins a new log and a new manifest. Nothing
    /// that was acknowledged is lost, and a write that was refused does not come back any more, as
    /// it might when the database is reopened. Iterators and snapshots read on. Space of up to
    /// [`Options::immutable_memtables_max`] + 1 write buffers is needed for the tables, while
    /// the old logs are still there.
    ///
    /// # Errors
    /// `Io` if there is still no room: the database stays as it is, and `resume` may be called
    /// again. `ReadOnly`, which says to reopen, if anything but space was wanting: after a failed
    /// sync nobody knows what the disk holds. `Closed`; `OpenedReadOnly`; `Forked`.
    pub fn resume(&self) -> Result<()> {
        resume(self.shared())
    }

    /// The filters of all tables: what they are, what the options ask for, what they did, and, with
    /// the feature `cli`, by `FilterReport::findings`, what someone should look at. Reads no
    /// filter, so damage is in it only where a filter was read before: [`Db::check_filters`] reads
    /// them all.
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

    /// [`Db::filter_report`] after reading the filter of every table, past the cache, to see which
    /// are damaged. Nothing is counted.
    ///
    /// # Errors
    /// `Closed`; `Io` where a table cannot be opened. Damage is no error here.
    pub fn check_filters(&self) -> Result<FilterReport> {
        filter_report::check_filters(self.shared())
    }

    /// What the database did and holds. Cheap: it reads no file. In a forked child all figures are
    /// 0.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats_report::stats(self.shared())
    }

    /// What opening found in manifest and logs, and what it left out. Empty in a forked child.
    #[must_use]
    pub fn recovery_report(&self) -> RecoveryReport {
        let shared = self.shared();
        // In a forked child another thread may have held the lock.
        let mine = shared.process.is_current().then(|| shared.recovery.lock().clone());
        mine.unwrap_or_default()
    }

    /// Reads everything that the database is made of and checks it: manifest and logs, and of each
    /// table all checksums, the order of keys, the bounds in its index, sizes, counts and
    /// sequences against what it and the manifest say, and that each key is found by a lookup and
    /// passes the filter; and that no two tables of a level overlap where they must not. Nothing
    /// is taken from the cache and nothing stays there.
    ///
    /// Damage does not end the check, it is listed in the report. `progress` is called on this
    /// thread, after each data block. Reads and writes of other threads go on; tables that they
    /// replace in the meantime are checked too.
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

    /// Makes the damaged database in the directory `path` into one that opens, with default
    /// options: see [`Options::repair`].
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

    /// Ends background work, makes every acknowledged write durable, and reports what failed.
    /// Later calls answer `Closed`; iterators, snapshots and lookups that have begun read on. The
    /// directory is unlocked when the last of these is gone, at once if there are none. Clones of
    /// this `Db` that are still in scope do not keep it locked.
    ///
    /// Dropping the last handle does the same but cannot report an error. Call this, or
    /// [`Db::sync`], to know that all writes are durable.
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
            // The threads belong to the parent: a forked child has none to join or detach.
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
