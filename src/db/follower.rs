//! [`Follower`]: reads a database that another process may have open to write.
//!
//! It holds the read point that it shows, as a read-only [`Db`] that never changes, and replaces it
//! with a later one; `follow.rs` makes them.

use crate::base::error::Result;
use crate::base::process::Process;
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::stats::report::Stats;
use crate::base::sync::{Arc, ArcSwap, Mutex};
use crate::base::value::{Key, Value};
use crate::db::change_reader::ChangePlace;
use crate::db::changes::Changes;
use crate::db::database::Db;
use crate::db::follow::Following;
use crate::db::keyspace::Keyspace;
use crate::db::open::{absolute, no_database};
use crate::db::read_methods::{lookup_methods, scan_methods};
use crate::db::snapshot::Snapshot;
use crate::env::change_signal::ChangeSignal;
use crate::options::access::ReadOptions;
use crate::options::database::Options;
use crate::read::cursor::Cursor;
use crate::read::iter::Iter;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Reads a database that another process may have open to write, or nobody. It takes no lock,
/// changes no byte, and neither slows the writer nor makes it fail.
///
/// A follower shows one read point of all keyspaces. [`Follower::refresh`] advances to a later one.
/// Everything that was taken from it keeps the read point that it was taken at: a [`Keyspace`], a
/// [`Snapshot`], an [`Iter`], or the read point itself ([`Follower::moment`]).
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("people.sift");
/// let db = siftdb::Db::open(&path)?; // in another process
/// db.put("ada", "1815")?;
///
/// let follower = siftdb::Db::open_follower(&path)?;
/// assert_eq!(follower.get("ada")?.unwrap(), "1815");
/// db.put("alan", "1912")?;
/// assert_eq!(follower.get("alan")?, None);
/// assert!(follower.refresh()?);
/// assert_eq!(follower.get("alan")?.unwrap(), "1912");
/// # db.close()
/// # }
/// ```
///
/// # What it shows
///
/// - A read point is a prefix of the writes, in the order in which the writer made them. It has
///   everything that was acknowledged before the refresh began, and a batch whole or not at all. It
///   may have writes that are not acknowledged yet, or never will be.
/// - It has writes that no sync has covered: the process that reads them outlives neither the
///   computer nor its page cache. With [`Options::follow_synced_only`] it has only those that
///   manifest or logs say are durable.
/// - Entries expire in it by the clock, as in any other read.
/// - If the writer dies or closes, the next one is followed. If the history does not continue from
///   what was shown, [`Follower::refresh`] returns
///   [`Error::HistoryChanged`](crate::Error::HistoryChanged): after a repair, in a restored or
///   newly created database, or where writes were lost. So it does after more than 15 writers since
///   the last refresh. Then open another follower.
///
/// # What it costs
///
/// A refresh reads `CURRENT`, the directory, and what was appended to manifest and logs since the
/// last one. The entries of the logs are in memory, up to [`Options::read_only_log_bytes_max`].
/// Each table of a read point is held open as long as anything reads that read point, so no read
/// fails because the writer removed a file. [`Options::max_open_files`] does not bound that. Tables
/// that the writer has removed take space on disk until then.
///
/// Calls that would write return [`Error::OpenedReadOnly`](crate::Error::OpenedReadOnly).
pub struct Follower {
    moment: ArcSwap<Db>,
    following: Mutex<Following>,
    /// Where the changes ended that were read last.
    changes_ended_at: Arc<Mutex<Option<ChangePlace>>>,
    process: Process,
    directory: PathBuf,
}

/// One line, with directory and read point.
impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("directory", &self.directory)
            .field("last_sequence", &self.last_sequence())
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the database in the directory `path` to read it while another process may write to it:
    /// see [`Follower`]. No byte of the directory changes, and no write permission is needed.
    ///
    /// # Errors
    /// As for [`Options::open_read_only`], but never `Locked`. `LogsTooLarge`; `TooFewDescriptors`
    /// if this process may not have all tables open; `FollowerOvertaken`.
    pub fn open_follower(self, path: impl AsRef<Path>) -> Result<Follower> {
        Follower::open(self, path.as_ref())
    }
}

impl Db {
    /// Opens the database in the directory `path` to read it while another process may write to it,
    /// with default options: see [`Follower`].
    ///
    /// # Errors
    /// As for [`Options::open_follower`].
    pub fn open_follower(path: impl AsRef<Path>) -> Result<Follower> {
        Options::new().open_follower(path)
    }
}

impl Follower {
    fn open(options: Options, path: &Path) -> Result<Self> {
        let path = &absolute(&*options.env, path)?;
        let mut following = Following::new(options, path)?;
        let moment = following.refresh()?.ok_or_else(|| no_database(path))?;
        Ok(Follower {
            moment: ArcSwap::from_pointee(Db::with(moment, Vec::new())),
            following: Mutex::new(following),
            changes_ended_at: Arc::default(),
            process: Process::current(),
            directory: path.to_path_buf(),
        })
    }

    /// Advances to the present state of the database. False if no file has changed since the last
    /// refresh. Other threads read the earlier read point until this returns.
    ///
    /// # Errors
    /// The follower shows the earlier read point then. `HistoryChanged`: open another follower, all
    /// later calls return this. After any other error a later call may succeed: `Corruption` and
    /// `Missing`, where the writer cannot have been at work; `LogsTooLarge`; `TooFewDescriptors`;
    /// `FollowerOvertaken` if files changed again and again while they were read; `Io`; `Forked`.
    pub fn refresh(&self) -> Result<bool> {
        self.process.check()?;
        let mut following = self.following.lock();
        let Some(moment) = following.refresh()? else { return Ok(false) };
        // Under the lock, so that no later read point is replaced with this one.
        self.moment.store(Arc::new(Db::with(moment, Vec::new())));
        Ok(true)
    }

    /// As [`Follower::refresh`], but waits up to `timeout` until there is something new. On Linux
    /// the file system tells of the writer's calls. Elsewhere, and once a second, it looks by
    /// itself. False if nothing came.
    ///
    /// ```no_run
    /// # fn main() -> siftdb::Result<()> {
    /// use std::time::Duration;
    ///
    /// let follower = siftdb::Db::open_follower("people.sift")?;
    /// let mut next = follower.last_sequence() + 1;
    /// loop {
    ///     follower.wait(Duration::from_secs(60))?;
    ///     for change in follower.changes(next)? {
    ///         next = change?.sequence + 1;
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Follower::refresh`].
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now().checked_add(timeout);
        let env = Arc::clone(&self.moment.load().engine().context.env);
        let mut signal = ChangeSignal::of(&*env, &self.directory);
        // The first look after that misses nothing.
        loop {
            if self.refresh()? {
                return Ok(true);
            }
            let left = deadline.map_or(Duration::MAX, |end| end.duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            signal.wait(left);
        }
    }

    /// The writes from sequence `from` on, in their order, up to the read point that it shows.
    /// After a refresh, the changes from the sequence after the last one continue them:
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// use siftdb::ChangedEntry;
    ///
    /// let db = siftdb::Db::open(&path)?; // in another process
    /// db.put("ada", "1815")?;
    /// let follower = siftdb::Db::open_follower(&path)?;
    /// let mut next = follower.last_sequence() + 1;
    ///
    /// db.put("alan", "1912")?;
    /// db.delete("ada")?;
    /// follower.refresh()?;
    /// for change in follower.changes(next)? {
    ///     let change = change?;
    ///     match change.entry {
    ///         ChangedEntry::Put { key, .. } => assert_eq!(key, b"alan"),
    ///         ChangedEntry::Delete { key } => assert_eq!(key, b"ada"),
    ///         _ => unreachable!(),
    ///     }
    ///     next = change.sequence + 1;
    /// }
    /// # db.close()
    /// # }
    /// ```
    ///
    /// - Changes are read from the logs, as far as they reach: see [`Options::keep_log_bytes`].
    ///   Once they are taken, they may be read to the end, whatever the writer removes.
    /// - If they continue those that were read to their end last, only what was appended is read.
    ///   Otherwise the log that has the first of them is read from its start.
    /// - They are the writes as they were made, of all keyspaces. A write to a keyspace that was
    ///   dropped since has its number and no name, and the drop itself is no change (a
    ///   [`Watch`](crate::Watch) has it); nor is what expires, what a compaction filter removes, or
    ///   the creation of a keyspace.
    /// - All writes of a batch are there at one read point: none of them is left for a later one.
    /// - A bulk load, and a batch that creates or drops keyspaces, is
    ///   [`ChangedEntry::Load`](crate::ChangedEntry::Load), which says what to read again: once, or
    ///   once for each keyspace.
    ///
    /// # Errors
    /// `ChangesGone` names the first sequence that is there after a gap: read the database again,
    /// at a read point of the follower, and continue after its last sequence. The iterator returns
    /// it too, where the gap is not at the beginning. `Corruption`; `Io`; `Forked`.
    pub fn changes(&self, from: u64) -> Result<Changes> {
        self.process.check()?;
        // Under the lock, so that no refresh comes in between.
        let following = self.following.lock();
        let moment = self.moment.load();
        Changes::new(moment.engine(), following.needed_log(), from, &self.changes_ended_at)
    }

    /// The read point that it shows, as a read-only database that never changes. Closing it closes
    /// what the follower shows until the next refresh that finds something new.
    #[must_use]
    pub fn moment(&self) -> Db {
        Db::clone(&self.moment.load())
    }

    /// The sequence number of the last write that it shows. The writer numbers all writes, from 1.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.moment.load().engine().catalog.published.visible()
    }

    /// The directory of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The keyspace `name` at the read point that it shows.
    ///
    /// # Errors
    /// `KeyspaceNotFound` if it was not there; `InvalidArgument` for what cannot be a name.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.moment.load().keyspace(name)
    }

    /// The names of all keyspaces at the read point that it shows: first `default`.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        self.moment.load().keyspaces()
    }

    /// The read point that it shows, to be read later, in this keyspace or another.
    pub fn snapshot(&self) -> Snapshot {
        self.moment.load().snapshot()
    }

    /// The counters of its own reads on top of those that the writer saved last, and what the
    /// database held at the read point that it shows.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.moment.load().stats()
    }

    lookup_methods!("of the keyspace `default`, at the read point that it shows");
    scan_methods!("of the keyspace `default`, at the read point that it shows");

    /// As [`Follower::get`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        self.moment.load().get_with(key, options)
    }

    /// As [`Follower::multi_get`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::multi_get`].
    pub fn multi_get_with(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.moment.load().multi_get_with(keys, options)
    }

    /// As [`Follower::range`], with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        self.moment.load().range_with(range, options)
    }
}
