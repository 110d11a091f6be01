//! Ownership: [`Db`] is a shared handle; the handle owns the workers; workers, iterators and
//! snapshots own the shared state.
//!
//! `close`, or the drop of the last `Db`, stops and joins the workers and syncs the log, then gives
//! up its share in the directory's lock. What reads at that moment has a share of its own: calls
//! of other threads, iterators, snapshots. The last of them unlocks the directory.

use crate::compaction::filter_rebuild::FilterRebuild;
use crate::db::background;
use crate::db::explain::{Explain, explain};
use crate::db::filter_report::{self, FilterReport};
use crate::db::multi_get;
use crate::db::open;
use crate::db::range::{KeyBounds, KeyRange};
use crate::db::read;
use crate::db::report;
use crate::db::resume::resume;
use crate::db::scan::Iter;
use crate::db::snapshot::Snapshot;
use crate::db::state::Shared;
use crate::db::write;
use crate::error::{Error, Result};
use crate::options::access::{CompactRangeOptions, ReadOptions, WriteOptions};
use crate::options::database::Options;
use crate::stats::report::Stats;
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, Mutex, Ordering};
use crate::value::{Key, Value};
use crate::write_batch::WriteBatch;
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
        let workers = background::start(&shared)?;
        Ok(Db::with(shared, workers))
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
        read::get(self.shared(), key.as_ref(), None, options, None)
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
    /// resident count as "may contain".
    ///
    /// # Errors
    /// `Closed`.
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        read::may_contain(self.shared(), key.as_ref())
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
        write::write(self.shared(), batch, options)
    }

    /// Makes every write acknowledged so far survive a power loss. Joins the write group of the
    /// moment, so it may be called from any thread, often.
    ///
    /// # Errors
    /// As for [`Db::write`].
    pub fn sync(&self) -> Result<()> {
        write::sync(self.shared())
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
        background::flush(self.shared())
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
        background::compact_range(self.shared(), &range.into_bounds(), options)
    }

    /// Writes tables anew whose filter is not what the options ask for (or all), and waits. Answers
    /// how many tables there were to rewrite. Other threads may read and write meanwhile;
    /// compactions that are due take turns with this one, so that writers do not have to wait.
    ///
    /// A table is rewritten at its level and gets the filter of that level. Those of level 0 go
    /// down to level 1, with the tables of theirs that they share keys with. A table that is
    /// moved down as it is while this goes on keeps the filter of its old level. What a crash
    /// leaves undone, another call does. With nothing to do it writes nothing.
    ///
    /// # Errors
    /// As for [`Db::compact_range`]: a failed compaction makes the database read-only.
    pub fn rebuild_filters(&self, which: FilterRebuild) -> Result<u64> {
        background::rebuild_filters(self.shared(), which)
    }

    /// Goes on after the disk was full: where writes answer [`Error::ReadOnly`] for want of space,
    /// or quota, and there is room again, they are taken from now on. With no failure it does
    /// nothing.
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

    /// The filters of all tables: what they are, what the options ask for, what they did, and, by
    /// [`FilterReport::findings`], what someone should look at. Reads no filter, so damage is in it
    /// only where a filter was read before: [`Db::check_filters`] reads them all.
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
        report::stats(self.shared())
    }

    /// Ends background work, makes every acknowledged write durable, and reports what failed.
    /// Later calls answer `Closed`; iterators, snapshots and lookups that have begun read on. The
    /// directory is unlocked when the last of these is gone, at once if there are none. Clones of
    /// this `Db` that are still in scope do not keep it locked.
    ///
    /// Dropping the last handle does the same and has nobody to tell: a failed sync is lost with
    /// it. Whoever must know that unsynced writes are durable calls this, or [`Db::sync`].
    ///
    /// # Errors
    /// A failed sync, or the failure that had already made the database read-only.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }

    /// A handle of its own for what was opened, with its workers.
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
        Iter::new(self.shared(), bounds, options)
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
        let stopped = background::stop(&self.shared, &mut workers);
        let finished = background::finish(&self.shared);
        // Last of all: whoever locks the directory next may rely on it.
        self.shared.close_view();
        stopped.and(finished)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // The threads are the parent's: a forked child has none to join, nor to detach.
            std::mem::forget(std::mem::take(self.workers.get_mut()));
            return;
        }
        // Nobody is left to tell; acknowledged writes are with the system already, and whoever
        // wants to know calls `close`.
        let _ = self.close();
    }
}
