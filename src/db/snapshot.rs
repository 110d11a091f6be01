//! [`Snapshot`]: all keyspaces as they were at one moment, owned and `Send`. It reads one of them.
//!
//! A snapshot is a registered sequence number: flushes and compactions keep the versions that it
//! sees until it is dropped. It costs no memory, only the disk space of those versions. It can be
//! read after `Db::close`, and it keeps the directory locked until it is dropped, or until
//! `Db::close_now`.

use crate::base::error::{Error, Result};
use crate::base::expiry::ReadClock;
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::sync::{Arc, Ordering};
use crate::base::value::{Key, Value};
use crate::db::read_methods::{lookup_methods, scan_methods};
use crate::env::directory_lock::DirectoryLock;
use crate::options::access::ReadOptions;
use crate::read::cursor::Cursor;
use crate::read::explain::{Explain, explain};
use crate::read::iter::Iter;
use crate::read::multi_get;
use crate::read::point;
use crate::read::scan::{ScanOf, TransactionScan};
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::snapshots::ReadPoint;

/// The database as it was when the snapshot was taken. It reads the keyspace that it was taken of;
/// [`Snapshot::in_keyspace`] is the same moment in another one. Reads see neither later writes nor
/// part of a batch, and a keyspace that was dropped since is still there. Dropping the snapshot
/// lets compactions drop what only it saw.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = siftdb::Db::open(directory.path().join("db"))?;
/// db.put("k", "old")?;
/// let snapshot = db.snapshot();
/// db.put("k", "new")?;
/// assert_eq!(snapshot.get("k")?.unwrap(), "old");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a snapshot that is dropped at once keeps nothing"]
pub struct Snapshot {
    engine: Arc<Engine>,
    pub(crate) keyspace: Arc<KeyspaceState>,
    /// The moment that it reads. `None` in a forked child, where it is not registered.
    moment: Option<ReadPoint>,
    /// Drops of keyspaces before it was taken.
    drops: u64,
    /// Keeps the directory locked; `Closed` if it was taken of a closed database.
    lock: Result<Arc<DirectoryLock>>,
    /// Why this keyspace cannot be read: others can.
    refused: Option<Error>,
}

impl Snapshot {
    pub(crate) fn new(engine: &Arc<Engine>, keyspace: &Arc<KeyspaceState>) -> Self {
        let with = |moment, drops, lock| Snapshot {
            engine: Arc::clone(engine),
            keyspace: Arc::clone(keyspace),
            moment,
            drops,
            lock,
            refused: None,
        };
        if let Err(forked) = engine.context.process.check() {
            // Not registered, so its drop does not release it.
            return with(None, 0, Err(forked));
        }
        // From here on no job drops a version that this sequence sees. A drop that is not counted
        // here finds the registration and keeps the tables. In one step: a batch may publish its
        // entries and drop a keyspace.
        let drops = || engine.catalog.drops.load(Ordering::SeqCst);
        let (moment, drops) =
            engine.catalog.snapshots.register_with(&engine.catalog.published, drops);
        with(Some(moment), drops, engine.catalog.hold()).refused_if_dropped()
    }

    /// The same moment in the keyspace `state` of `engine`.
    pub(super) fn moved_to(&self, engine: &Arc<Engine>, state: &Arc<KeyspaceState>) -> Self {
        // In a forked child another thread may have held the lock, and nothing is released.
        if let Some(moment) = self.moment
            && self.engine.context.process.is_current()
        {
            self.engine.catalog.snapshots.register_again(moment);
        }
        let is_here = Arc::ptr_eq(engine, &self.engine);
        // A handle of another moment of the same follower: the keyspace as it is in this one.
        let is_of_moment = !is_here && engine.context.instance == self.engine.context.instance;
        let here =
            is_of_moment.then(|| self.engine.catalog.keyspaces.lock().get(state.id).cloned());
        let mut moved = Snapshot {
            engine: Arc::clone(&self.engine),
            keyspace: here.clone().flatten().unwrap_or_else(|| Arc::clone(state)),
            moment: self.moment,
            drops: self.drops,
            lock: self.lock.clone(),
            refused: None,
        };
        // One that was created after this moment has a later number: at this sequence it is empty.
        let was_created =
            || u64::from(state.id) < self.engine.catalog.versions.lock().next_keyspace;
        if here.is_some_and(|here| here.is_none()) && was_created() {
            moved.refused = Some(state.dropped());
        } else if !is_here && !is_of_moment {
            let what = format!("the keyspace {:?} is of another database", state.name);
            moved.refused = Some(Error::InvalidArgument { what });
        }
        moved.refused_if_dropped()
    }

    /// Refuses all reads if its keyspace was dropped before the snapshot was taken.
    fn refused_if_dropped(mut self) -> Self {
        let dropped_as = self.keyspace.dropped_as.load(Ordering::SeqCst);
        if dropped_as != 0 && dropped_as <= self.drops && self.refused.is_none() {
            self.refused = Some(self.keyspace.dropped());
        }
        self
    }

    /// The sequence number of the last write that it shows: a [`Watch`](crate::Watch) hands out
    /// the changes after it. 0 in a forked child, where no read works.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.moment.map_or(0, |moment| moment.sequence)
    }

    lookup_methods!("as the snapshot has them");
    scan_methods!("as the snapshot has them");

    /// As [`Snapshot::get`], with options.
    ///
    /// # Errors
    /// An unreadable or damaged file on the way of the key; `Closed` if the snapshot was taken of a
    /// closed database, or after `Db::close_now`; `KeyspaceDropped` if the keyspace had been
    /// dropped before.
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        self.check()?;
        point::timed_get(&self.keyspace, key.as_ref(), Some(self.last_sequence()), options)
    }

    /// As [`Snapshot::multi_get`], with options.
    ///
    /// # Errors
    /// As for [`Snapshot::multi_get`].
    pub fn multi_get_with(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.multi_get_by(keys, options, &ReadClock::default())
    }

    /// The same, with expiring entries compared with `clock`.
    pub(super) fn multi_get_by(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: &ReadOptions,
        clock: &ReadClock,
    ) -> Result<Vec<Option<Value>>> {
        self.check()?;
        multi_get::multi_get(&self.keyspace, keys, Some(self.last_sequence()), options, clock)
    }

    /// As [`Snapshot::range`], with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        self.iterate_with(range.into_bounds(), options, None)
    }

    /// Looks `key` up at the snapshot and says what that touched, table by table.
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explain> {
        self.check()?;
        let options = ReadOptions::new();
        explain(&self.keyspace, key.as_ref(), Some(self.last_sequence()), &options)
    }

    /// The entries of a range of keys, with what a transaction adds.
    pub(super) fn iterate_with(
        &self,
        bounds: KeyBounds,
        options: &ReadOptions,
        transaction: Option<Box<TransactionScan>>,
    ) -> Iter {
        let lock = self.readable().map(Arc::clone);
        let of = ScanOf { sequence: self.last_sequence(), lock, transaction };
        Iter::new(&self.keyspace, Some(of), bounds, options)
    }

    /// An iterator that answers `refused`.
    pub(super) fn refused_iterator(
        &self,
        bounds: KeyBounds,
        options: &ReadOptions,
        refused: Error,
    ) -> Iter {
        let of = ScanOf { sequence: self.last_sequence(), lock: Err(refused), transaction: None };
        Iter::new(&self.keyspace, Some(of), bounds, options)
    }

    pub(super) fn database(&self) -> u64 {
        self.engine.context.instance
    }

    /// The error that all its reads return, if there is one.
    pub(super) fn check(&self) -> Result<()> {
        self.readable().and_then(|_| self.engine.context.check_reads())
    }

    fn readable(&self) -> Result<&Arc<DirectoryLock>> {
        let lock = self.lock.as_ref().map_err(Error::clone)?;
        self.refused.clone().map_or(Ok(lock), Err)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Some(moment) = self.moment
            && self.engine.context.process.is_current()
        {
            self.engine.release_snapshot(moment);
        }
    }
}
