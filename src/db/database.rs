//! [`Db`]: an open database. It derefs to its keyspace `default`, which has the methods that read
//! and write (`keyspace.rs`); here is what concerns all keyspaces.

use crate::admin::checkpoint::{CheckpointReport, checkpoint};
use crate::admin::destroy::destroy;
use crate::admin::manual;
use crate::admin::repair::report::RepairReport;
use crate::admin::repair::run::repair;
use crate::admin::stats_report;
use crate::admin::verify::{self, VerifyProgress, VerifyReport};
use crate::base::error::Result;
use crate::base::stats::report::Stats;
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Mutex};
use crate::base::write_batch::WriteBatch;
use crate::db::alter;
use crate::db::alter_batch;
use crate::db::handle::Handle;
use crate::db::keyspace::Keyspace;
use crate::db::open;
use crate::db::resume::resume;
use crate::jobs::sync_thread;
use crate::jobs::workers;
use crate::log::recovery::RecoveryReport;
use crate::options::access::WriteOptions;
use crate::options::database::Options;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::engine::Engine;
use crate::state::session;
use crate::state::sync_ticket::SyncTicket;
use crate::state::write_queue::Switch;
use crate::write::commit;
use std::fmt;
use std::ops::Deref;
use std::path::Path;

/// An open database. Cheap to clone; every method takes `&self` and may be called from any thread.
///
/// # After `fork`
///
/// A handle belongs to the process that opened it. A child that inherits one by `fork` cannot use
/// it. Calls that write, wait or would read a file return [`Error::Forked`](crate::Error::Forked).
/// Lookups and scans still find what is in memory, as it was at the fork. [`Db::stats`] and
/// [`Keyspace::filter_report`] are empty. Dropping inherited handles, iterators or snapshots
/// changes no file, does not wait, and leaves the directory locked by the parent. A child that
/// needs a database opens one of its own. While the child or the parent has a database open, the
/// other gets [`Error::Locked`](crate::Error::Locked) for it.
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
pub struct Db(Keyspace);

/// The keyspace `default`: what reads and writes a database without naming a keyspace.
impl Deref for Db {
    type Target = Keyspace;

    fn deref(&self) -> &Keyspace {
        &self.0
    }
}

/// One line, with the directory.
impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = &self.engine().context.directory;
        f.debug_struct("Db").field("directory", directory).finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the database in the directory `path`, creating it if these options allow.
    ///
    /// # Errors
    /// `InvalidOptions`, `Locked`, `Corruption` of any file that the database needs, `Missing` for
    /// one that is not there, `UnsupportedFormat`, also for a database of LevelDB or RocksDB,
    /// `Unfinished`, `Io`; `InvalidArgument` with `error_if_exists`. A refused opening creates and
    /// changes nothing.
    ///
    /// A relative path is looked up once: the process may change its working directory later.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let engine = open::open(self, path.as_ref())?;
        let workers = workers::start(&engine)?;
        Ok(Db::with(engine, workers))
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
        let engine = open::open_read_only(self, path.as_ref())?;
        Ok(Db::with(engine, Vec::new()))
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
    /// Keyspaces keep their names, settings and tables, and a dropped one stays dropped. If the
    /// manifest is lost, tables say the name of their keyspace. A keyspace of which only entries in
    /// logs are left gets a made-up name and the built-in settings; the report lists it.
    ///
    /// # Errors
    /// `Locked`; `InvalidOptions`; `Unfinished`; `UnsupportedFormat` of any file, which a newer
    /// siftdb may read, and for a LevelDB or RocksDB database, which is not touched, not even its
    /// `LOCK`; `Io` if there is no database, or if a file cannot be opened or written. Nothing is
    /// removed then.
    pub fn repair(self, path: impl AsRef<Path>) -> Result<RepairReport> {
        let path = open::absolute(&*self.env, path.as_ref())?;
        repair(self, &path)
    }

    /// Removes the database in the directory `path` with all its keyspaces, under its lock. The
    /// directory stays, with the folder `lost` and with files that siftdb did not write: their
    /// contents decide, not their names. Without a database it does nothing; a removal that was
    /// interrupted can be repeated.
    ///
    /// # Errors
    /// `Locked` while the database is open; `UnsupportedFormat` for a LevelDB or RocksDB database;
    /// `Io`.
    pub fn destroy(self, path: impl AsRef<Path>) -> Result<()> {
        destroy(&self, &open::absolute(&*self.env, path.as_ref())?)
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

    /// Opens the database in the directory `path`, creating it if `options` allow. It is
    /// [`Options::open`] with the path first.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// use siftdb::{Db, Options};
    ///
    /// let db = Db::open_with(path, Options::new().write_buffer_bytes(8 << 20))?;
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Options::open`].
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.open(path)
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

    /// The directory of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.engine().context.directory
    }

    /// The keyspace `name`, which is created if it is not there: durably, before this returns. A
    /// name has 1 to 255 bytes and no control characters; a database has at most 65,535 keyspaces.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be a name; `KeyspaceNotFound` if it is not there and the
    /// database is open read-only; `Closed`; `ReadOnly`, or the failure of the creation, after
    /// which the database is read-only.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.keyspace_with(name, &KeyspaceOptions::new())
    }

    /// As [`Db::keyspace`], with settings. A setting that is named here replaces the saved one: for
    /// tables that are written from now on, and durably with the next write of the database. A
    /// database that is open read-only uses it without saving it.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// use siftdb::{Filter, KeyspaceOptions};
    ///
    /// let db = siftdb::Db::open(directory.path().join("shop.sift"))?;
    /// // Looked up by key and mostly absent: a strong filter.
    /// let seen = KeyspaceOptions::new().filter(Filter::ribbon(16.0));
    /// let seen = db.keyspace_with("seen", &seen)?;
    /// // Only scanned: no filter, large blocks.
    /// let log = KeyspaceOptions::new().filter(Filter::none()).block_bytes(32 << 10);
    /// let log = db.keyspace_with("log", &log)?;
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Db::keyspace`]; `InvalidOptions` for settings that cannot work, and if the keyspace
    /// is open in this process with other settings.
    pub fn keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
        let state = alter::open_keyspace(self.engine(), name, options)?;
        Ok(Keyspace::new(Arc::clone(&self.handle), state))
    }

    /// Makes all settings durable that this opening names, in [`Options`] and by
    /// [`Db::keyspace_with`], without waiting for the next write.
    ///
    /// # Errors
    /// As for [`Db::write`].
    pub fn save_settings(&self) -> Result<()> {
        // The manifest that begins a session has them; later changes are edits of it.
        session::activate(self.engine())
    }

    /// The names of all keyspaces, in the order of their creation: first `default`.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        self.engine().catalog.all_keyspaces().iter().map(|keyspace| keyspace.name.clone()).collect()
    }

    /// Drops the keyspace `name` with everything in it, durably, at a cost that does not depend on
    /// its size. Handles of it return `KeyspaceDropped` from now on. Existing snapshots and
    /// iterators still read it, and its files are removed after the last of these is dropped.
    ///
    /// # Errors
    /// `InvalidArgument` for `default`; `KeyspaceNotFound`; as for [`Db::write`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        alter::drop_keyspace(self.engine(), name)
    }

    /// Writes a batch as one step, whatever keyspaces it writes to, creates or drops.
    ///
    /// # Errors
    /// As for [`Keyspace::put`]; also for a batch over 2 GiB. Of a batch with
    /// [`WriteBatch::create_keyspace`] or [`WriteBatch::drop_keyspace`] also `KeyspaceNotFound`,
    /// `InvalidOptions`, and `InvalidArgument` for a keyspace that is there already.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::new())
    }

    /// As [`Db::write`], with options.
    ///
    /// # Errors
    /// As for [`Db::write`].
    pub fn write_with(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        match batch.changes.as_deref() {
            None => commit::write(self.engine(), batch, options),
            Some(changes) => alter_batch::write(self.engine(), &batch, changes, options),
        }
    }

    /// Makes every write acknowledged so far survive a power loss. The sync is shared with the
    /// current write group, so any thread may call this often.
    ///
    /// # Errors
    /// As for [`Db::write`].
    pub fn sync(&self) -> Result<()> {
        commit::sync(self.engine())
    }

    /// As [`Db::sync`], without waiting: the ticket resolves when every write acknowledged so far
    /// survives a power loss. For servers and replicated logs: no thread blocks for a sync, and one
    /// sync serves every ticket that was taken while the last one ran.
    ///
    /// A write without [`WriteOptions::sync`] is visible when its call returns, and the ticket says
    /// when it is durable. The first ticket starts a thread, which syncs the log while others
    /// write.
    ///
    /// ```
    /// # async fn serve(db: &siftdb::Db) -> siftdb::Result<()> {
    /// db.put("ada", "1815")?;
    /// db.sync_ticket().await?; // on any executor
    /// # Ok(())
    /// # }
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("bob", "1912")?;
    /// let ticket = db.sync_ticket();
    /// // ... other work, while the disk writes ...
    /// ticket.wait()?; // without an executor
    /// # db.close()
    /// # }
    /// ```
    ///
    /// The ticket has every failure, also that of a database which is closed or read-only.
    pub fn sync_ticket(&self) -> SyncTicket {
        sync_thread::sync_ticket(self.engine())
    }

    /// Writes the memtables as tables and waits until they are durable.
    ///
    /// # Errors
    /// As for [`Db::write`], and the failure of the flush.
    pub fn flush(&self) -> Result<()> {
        manual::flush(self.engine(), Switch::All)
    }

    /// Makes a database of its own in the directory `path`: this one at a moment between the call
    /// and its return, in all keyspaces, while others read and write. Everything that was
    /// acknowledged before the call is in it.
    ///
    /// It flushes the memtables, gives the tables second names by hard links, and writes a manifest
    /// of its own. So it takes little time and no space, until tables of one of the two are
    /// replaced; but damage to a linked file is damage to both. Where links do not go, as on
    /// another disk, tables are copied. Writers wait for one switch of the log, and for the flush
    /// only if they fill the write buffer in the meantime.
    ///
    /// A database that was opened read-only can be one if all of it is in tables, as after
    /// [`Db::flush`] and a close.
    ///
    /// If `path` holds an earlier checkpoint of this database that nobody wrote to, it is brought
    /// up to date: only new tables are linked. If this is interrupted, it is as it was or the new
    /// one, and may be brought up to date again. A new checkpoint whose process died is
    /// [`Error::Unfinished`](crate::Error::Unfinished): the same call begins it again.
    ///
    /// A checkpoint has no moment before the call. To keep what an older
    /// [`Snapshot`](crate::Snapshot) sees, read it and write the entries to another database.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (directory.path().join("db"), directory.path().join("backup"));
    /// let db = siftdb::Db::open(&path)?;
    /// db.put("ada", "1815")?;
    /// db.checkpoint(&backup)?;
    /// db.delete("ada")?;
    /// assert_eq!(siftdb::Db::open(&backup)?.get("ada")?.unwrap(), "1815");
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `path` holds anything else of siftdb; `Locked` while it is open; `Io`;
    /// `UnsupportedFormat` for a database of LevelDB or RocksDB; as for [`Db::flush`]. A failure in
    /// `path` leaves this database as it is.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<CheckpointReport> {
        let path = open::absolute(&*self.engine().context.env, path.as_ref())?;
        checkpoint(self.engine(), &path, None)
    }

    /// As [`Db::checkpoint`], of these keyspaces only. `default` is always there, and empty unless
    /// it is named. An earlier checkpoint may be brought up to date with other names: then it has
    /// those keyspaces and no others.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (directory.path().join("db"), directory.path().join("backup"));
    /// let db = siftdb::Db::open(&path)?;
    /// db.keyspace("users")?.put("ada", "1815")?;
    /// db.keyspace("cache")?.put("ada", "<html>")?;
    /// db.checkpoint_with(&backup, &["users"])?;
    /// assert_eq!(siftdb::Db::open(&backup)?.keyspaces(), ["default", "users"]);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `KeyspaceNotFound`, also if one is dropped at the same time; as for [`Db::checkpoint`].
    pub fn checkpoint_with(
        &self,
        path: impl AsRef<Path>,
        keyspaces: &[&str],
    ) -> Result<CheckpointReport> {
        let path = open::absolute(&*self.engine().context.env, path.as_ref())?;
        checkpoint(self.engine(), &path, Some(keyspaces))
    }

    /// Takes writes again after the disk was full: if writes return
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) because of a lack of space or quota, and there
    /// is space again. Without such a failure it does nothing.
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
        resume(self.engine())
    }

    /// The counters, and what the database holds now. Reads no file. In a forked child all figures
    /// are 0.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats_report::stats(self.engine())
    }

    /// What opening found in manifest and logs, and what it dropped. Empty in a forked child.
    #[must_use]
    pub fn recovery_report(&self) -> RecoveryReport {
        let engine = self.engine();
        // In a forked child another thread may have held the lock.
        let mine =
            engine.context.process.is_current().then(|| engine.context.recovery.lock().clone());
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
        verify::verify(self.engine(), None, &mut progress)
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

    /// Removes the database in the directory `path`: see [`Options::destroy`].
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// let db = siftdb::Db::open(&path)?;
    /// db.put("ada", "1815")?;
    /// assert!(siftdb::Db::destroy(&path).is_err(), "it is open");
    /// drop(db);
    /// siftdb::Db::destroy(&path)?;
    /// assert_eq!(siftdb::Db::open(&path)?.get("ada")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Options::destroy`].
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        Options::new().destroy(path)
    }

    /// Ends background work, makes every acknowledged write durable, resolves every
    /// [`SyncTicket`], and reports failures. Later calls return `Closed`. Iterators, snapshots and
    /// lookups that have begun stay valid, and the directory is unlocked when the last of them is
    /// gone. Clones of this `Db` do not keep it locked. Closing again does nothing. If the opening
    /// recovered more than a quarter of the write buffer, closing waits until that is in tables.
    ///
    /// Dropping the last handle does the same but cannot report an error. To know that all writes
    /// are durable, call this or [`Db::sync`].
    ///
    /// # Errors
    /// A failed sync, or the failure that had already made the database read-only.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }

    /// As [`Db::close`], and the directory is free when this returns, whatever iterators, cursors,
    /// snapshots and transactions exist: each further step of them returns `Closed`. For programs
    /// that do not know when these are dropped, as in languages with a garbage collector.
    ///
    /// It waits for calls under way that write: flushes, compactions, installs of bulk loads,
    /// checkpoints. A read under way ends with its result or with `Closed`. An unfinished
    /// [`TableWriter`](crate::TableWriter) loads nothing, and the next session removes its files. A
    /// [`Value`](crate::Value) keeps its bytes.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// let db = siftdb::Db::open(&path)?;
    /// db.put("ada", "1815")?;
    /// let (year, mut names) = (db.get("ada")?.unwrap(), db.iter().keys());
    /// db.close_now()?;
    /// assert!(matches!(names.next(), Some(Err(siftdb::Error::Closed))));
    /// assert_eq!(year, "1815");
    /// siftdb::Db::open(&path)?.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Db::close`], after which the directory is free, too. `Closed` in the callback of a
    /// ticket while another thread closes.
    pub fn close_now(&self) -> Result<()> {
        self.handle.close_now()
    }

    /// A handle for an opened database and its workers.
    pub(crate) fn with(engine: Arc<Engine>, workers: Vec<JoinHandle<()>>) -> Self {
        let default = Arc::clone(&engine.catalog.default);
        let handle = Arc::new(Handle { engine, workers: Mutex::new(workers) });
        Db(Keyspace::new(handle, default))
    }

    /// The workers, to be ended by hand.
    #[cfg(test)]
    pub(super) fn workers(&self) -> impl std::ops::DerefMut<Target = Vec<JoinHandle<()>>> {
        self.handle.workers.lock()
    }
}
