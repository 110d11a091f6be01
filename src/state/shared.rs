//! The state of one open database, which reads, writes and jobs share.
//!
//! `lock_rank` has the order of its locks. A point lookup takes none: it loads the `view` of its
//! keyspace, then `published`. A writer applies a group, then publishes it with `Release`. A switch
//! stores the new view before the first write into the new memtable (I3; `read/point.rs` says why
//! this order is right).
//!
//! The view also holds a share of the directory's lock. So loading the view decides in one step
//! whether a read finds the database open. `close` stores a view without the lock; a read that
//! still holds an older view keeps the directory locked (I20). `close_now` shuts the gate before
//! the Env, and releases the lock although such reads exist.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::events::event::Event;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::process::Process;
use crate::base::stats::counters::{Counters, Timer};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Bell, Condvar, Mutex, Ordering};
use crate::env::api::Env;
use crate::env::directory_lock::DirectoryLock;
use crate::env::gate::EnvGate;
use crate::log::recovery::RecoveryReport;
use crate::log::wal::format::DatabaseIdentity;
use crate::log::wal::writer::WalWriter;
use crate::memtable::memtable::Memtable;
use crate::memtable::memtable::Published;
use crate::options::database::Options;
use crate::state::background_error::BackgroundError;
use crate::state::keyspace::{KeyspaceState, Keyspaces};
use crate::state::live_logs::LiveLogs;
use crate::state::lock_rank::RankedMutex;
use crate::state::lock_watch::LockWatch;
use crate::state::read_view::ReadView;
use crate::state::recent_writes::RecentWrites;
use crate::state::snapshots::{SnapshotList, SnapshotMoment};
use crate::state::stats_file::{SavedStats, save};
use crate::state::sync_ticket::SyncTickets;
use crate::state::turns::Turns;
use crate::state::write_queue::WriteQueue;
use crate::table::index::BlockCache;
use crate::tree::handle::ObsoleteFiles;
use crate::tree::session_manifest::SharedNumbers;
use crate::tree::set::{NewVersion, VersionSet};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Weak;
use std::time::Instant;

/// A scan that passes more tombstones than this to reach one entry, some 100 us of work, asks for
/// a flush of the memtable.
pub(crate) const TOMBSTONES_PASSED_MAX: usize = 1024;

/// Tombstones in a memtable that has little else at which it is flushed: a scan passes them in
/// less than a millisecond.
pub(crate) const TOMBSTONES_MAX: usize = 4096;

/// The logs that are being written; belongs to the leader of the write queue.
#[derive(Debug, Default)]
pub(crate) struct LogState {
    /// The log that is written; none before the first write.
    pub current: Option<WalWriter>,
    /// Older logs with writes that were never synced, oldest first.
    pub unsynced: Vec<WalWriter>,
    /// The last sequence of the history: the last one written.
    pub last_sequence: SequenceNumber,
    /// What the next entry gets: above `last_sequence`, and by more than one only where recovery
    /// saw numbers that are not part of the history.
    pub next_sequence: SequenceNumber,
    /// The last sequence known to be synced.
    pub synced_through: SequenceNumber,
    /// Number of the log before the current one, or of the last one that was recovered; 0 if
    /// there was none.
    pub previous_log: u64,
    /// How many times a `resume` has put everything into tables and given up all logs before.
    pub resumes: u64,
}

/// Where the tables of a running compaction will be.
#[derive(Clone, Debug)]
pub(crate) struct CompactsInto {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The level.
    pub level: usize,
    /// Their first key, or a smaller one.
    pub start: Vec<u8>,
    /// Their end, or a later one.
    pub end: Bound<Vec<u8>>,
}

/// The background work that is wanted or running.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// A memtable waits for its flush.
    pub flush_wanted: bool,
    /// Keyspaces whose tree may need a compaction.
    pub compactions_wanted: BTreeSet<KeyspaceId>,
    /// Keyspaces whose active memtable may have to be switched for its tombstones.
    pub piles: BTreeSet<KeyspaceId>,
    /// Keyspaces in which range deletes may hide whole tables.
    pub hidden_tables: BTreeSet<KeyspaceId>,
    /// Jobs that run, in workers and in callers. Their failure may still have to be recorded.
    pub running: usize,
    /// A compaction runs, in the worker or in a caller of `compact_range`.
    pub compacting: bool,
    /// The numbers of the tables that the compaction replaces.
    pub compacted_tables: Vec<u64>,
    /// Where its tables will be.
    pub compacts_into: Option<CompactsInto>,
    /// The last recovered sequence, if the opening asked for a flush of what it recovered.
    pub recovered_through: SequenceNumber,
    /// Checkpoints that are being made.
    pub checkpoints: usize,
    /// Workers end as soon as they can.
    pub stopping: bool,
}

/// The state of one open database. Owned by handles, workers, iterators and snapshots.
pub(crate) struct Shared {
    /// How the database was opened.
    pub options: Options,
    /// Where its files are.
    pub directory: PathBuf,
    /// The file system.
    pub env: Arc<dyn Env>,
    /// All counters.
    pub counters: Arc<Counters>,
    /// What the user's listener is told.
    pub events: Events,
    /// When writes were first slowed down, as the listener was told; `None` while they are not.
    pub slowed_since: Mutex<Option<Instant>>,
    /// When counting began, seconds since 1970.
    pub counting_since: u64,
    /// Blocks, filters, indexes.
    pub cache: Arc<BlockCache>,
    /// The keyspace `default`.
    pub default: Arc<KeyspaceState>,
    /// All keyspaces.
    pub keyspaces: RankedMutex<Keyspaces>,
    /// Drops of keyspaces so far: tells snapshots from before a drop.
    pub drops: AtomicU64,
    /// The active memtable of every keyspace without unflushed writes.
    pub empty_memtable: Arc<Memtable>,
    /// Bytes of all active memtables.
    pub active_bytes: AtomicUsize,
    /// Which logs may be needed.
    pub live_logs: RankedMutex<LiveLogs>,
    /// Bytes of these logs but the current one.
    pub old_log_bytes: AtomicU64,
    /// The identity of the database: in every log.
    pub database: DatabaseIdentity,
    /// The ids of the other databases whose tables it may have, the nearest ones first.
    pub ancestors: Vec<u128>,
    /// A number that no other open database of this process has.
    pub instance: u64,
    /// The last sequence that reads may see.
    pub published: Published,
    /// Live snapshots.
    pub snapshots: SnapshotList,
    /// Waiting writers.
    pub queue: WriteQueue,
    /// Tickets that wait for a sync, and the thread that syncs.
    pub sync_tickets: SyncTickets,
    /// When a worker compares `LOCK` again.
    pub lock_watch: LockWatch,
    /// The last writes, while transactions are alive.
    pub recent: RecentWrites,
    /// Whose turn it is among transactions that run again.
    pub turns: Turns,
    /// The logs being written.
    pub log: RankedMutex<LogState>,
    /// Manifest and current version.
    pub versions: RankedMutex<VersionSet>,
    /// File numbers and the manifest's position.
    pub numbers: Arc<SharedNumbers>,
    /// Background work.
    pub jobs: RankedMutex<Jobs>,
    /// Rings when `jobs` wants work or stops, and when a file can be removed.
    pub work: Arc<Bell>,
    /// Files that wait to be removed.
    pub obsolete: Arc<ObsoleteFiles>,
    /// Signalled when background work was done, or failed.
    pub done: Condvar,
    /// Replaced memtables: freed by the background once nobody reads them.
    pub retired: Mutex<Vec<Arc<Memtable>>>,
    /// `close` was called: no more writes and jobs. Reads end when the view is closed.
    pub closed: AtomicBool,
    /// `close_now` was called: no more steps of iterators, cursors and snapshots.
    pub ended: AtomicBool,
    /// Shut by `close_now`: `env` is behind it.
    pub gate: Arc<EnvGate>,
    /// The directory's lock, for `close_now`. The views have the shares of it.
    pub lock: Weak<DirectoryLock>,
    /// Set by the first failure of a write, flush or compaction.
    pub background_error: BackgroundError,
    /// Held during a flush: one at a time.
    pub flushes: RankedMutex<()>,
    /// The process that opened it.
    pub process: Process,
    /// Opened to read only: no file may be written, renamed or removed.
    pub read_only: bool,
    /// One moment of a database that another process may write to: files that it names may be gone
    /// by name, and its manifest may have gone on.
    pub follows: bool,
    /// What opening found in manifest and logs.
    pub recovery: Mutex<RecoveryReport>,
}

/// One line: the fields would fill pages.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Shared {
    /// The id of the database, then those of its ancestors: in every table.
    pub(crate) fn databases(&self) -> Vec<u128> {
        [&[self.database.id], &self.ancestors[..]].concat()
    }

    /// Makes `error` the background error: the database takes no writes until `resume` or reopening
    /// (I8). Returns the error.
    pub(crate) fn set_background_error(&self, error: Error) -> Error {
        if self.background_error.set(&error) {
            self.events.note(|| Event::BackgroundError { error: error.clone() });
        }
        // Under the lock: a waiter checks and waits under it, so it cannot miss this signal.
        let _jobs = self.jobs.lock();
        self.work.ring();
        self.done.notify_all();
        error
    }

    /// `Closed`, `ReadOnly` or `OpenedReadOnly` if writes are not taken.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::OpenedReadOnly);
        }
        match self.background_error.get() {
            Some(cause) => Err(Error::ReadOnly { cause: Arc::new(cause) }),
            None => Ok(()),
        }
    }

    /// A timer for a write, which does nothing unless calls are timed.
    #[inline]
    pub(crate) fn timer(&self) -> Timer {
        Timer::start(self.options.latency_histograms)
    }

    /// `Closed` once `close` was called.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// `Closed` once `close_now` was called. Each step of a read asks before it begins.
    #[inline]
    pub(crate) fn check_reads(&self) -> Result<()> {
        if self.ended.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Ends what `close` leaves: gives the directory free, whatever iterators, snapshots and loads
    /// there are. Reads that are under way end with their result, because files of tables never
    /// change, or with `Closed`, because no file can be opened any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        let mut jobs = self.jobs.lock();
        while jobs.running > 0 || jobs.checkpoints > 0 {
            self.done.wait(jobs.for_condvar());
        }
        drop(jobs);
        // No call on a file of the directory follows (I20).
        self.gate.shut();
        if let Some(lock) = self.lock.upgrade() {
            lock.release();
        }
    }

    /// All keyspaces, by number.
    pub(crate) fn all_keyspaces(&self) -> Vec<Arc<KeyspaceState>> {
        self.keyspaces.lock().iter().cloned().collect()
    }

    /// Stores the new versions of an edit in the views of their keyspaces, where reads find them.
    /// Called under the lock of `versions`, so that views change in the order of edits.
    pub(crate) fn show(&self, versions: Vec<NewVersion>) {
        for (id, version) in versions {
            let keyspace = self.keyspaces.lock().get(id).cloned();
            if let Some(keyspace) = keyspace {
                keyspace.update_view(|view| ReadView { version, ..view.clone() });
            }
        }
    }

    /// Takes back the registration of a snapshot. Dropped keyspaces that only it could read let go
    /// of their tables.
    pub(crate) fn release_snapshot(&self, moment: SnapshotMoment) {
        let oldest_went = self.snapshots.release(moment);
        self.clear_dropped();
        // While an older snapshot lives, it keeps nearly all that this one kept. Without this
        // condition each transaction beside it would wake both workers for nothing.
        if oldest_went && self.snapshots.keep_deleted.swap(false, Ordering::Relaxed) {
            let mut all = self.all_keyspaces();
            all.retain(|keyspace| keyspace.view.load().may_hide_tables());
            all.iter().for_each(|keyspace| self.want_hidden_tables_removed(keyspace));
            self.want_compactions(all.iter().map(|keyspace| keyspace.id));
        }
    }

    /// Lets go of the tables of dropped keyspaces that no snapshot reads.
    pub(crate) fn clear_dropped(&self) {
        let unread = {
            let mut keyspaces = self.keyspaces.lock();
            match keyspaces.has_dropped() {
                true => keyspaces.take_unread(self.snapshots.oldest()),
                false => return,
            }
        };
        for keyspace in unread {
            let view = keyspace.view.load_full();
            keyspace.clear_dropped(&self.empty_memtable);
            self.retired.lock().extend(view.memtables().filter(|m| !m.is_empty()).cloned());
        }
        self.work.ring();
    }

    /// A share in the directory's lock. Every reader holds one until it has read.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn hold(&self) -> Result<Arc<DirectoryLock>> {
        self.default.view.load().lock.clone().ok_or(Error::Closed)
    }

    /// Checks that no other process can have the directory open to write: before a log is begun,
    /// the manifest is changed, or a file is removed at the end, after a log was synced, and while
    /// there are other writes.
    ///
    /// # Errors
    /// `LockLost`; the caller makes it the background error.
    pub(crate) fn check_lock(&self) -> Result<()> {
        self.hold()?.check(&*self.env)
    }

    /// Stores views without the directory's lock: this step closes each keyspace to reads. A read
    /// that holds an older view continues, and keeps the lock.
    pub(crate) fn close_views(&self) {
        if let Some(lock) = &self.default.view.load().lock {
            lock.close();
        }
        for keyspace in self.all_keyspaces() {
            keyspace.update_view(|view| ReadView { lock: None, ..view.clone() });
        }
    }

    /// Asks the workers for a flush.
    pub(crate) fn want_flush(&self) {
        self.jobs.lock().flush_wanted = true;
        self.work.ring();
    }

    /// Asks the workers to look whether these keyspaces need a compaction.
    pub(crate) fn want_compactions(&self, keyspaces: impl IntoIterator<Item = KeyspaceId>) {
        self.jobs.lock().compactions_wanted.extend(keyspaces);
        self.work.ring();
    }

    /// Asks the workers to remove the tables of `keyspace` that range deletes hide whole, if it has
    /// range deletes and tables. Called after range deletes were published, and after each job that
    /// changed the tables.
    pub(crate) fn want_hidden_tables_removed(&self, keyspace: &KeyspaceState) {
        if keyspace.view.load().may_hide_tables() {
            self.jobs.lock().hidden_tables.insert(keyspace.id);
            self.work.ring();
        }
    }

    /// Called by a scan that passed many tombstones on its way to one entry. The worker checks
    /// whether the memtable holds them; the scan does not know where they were.
    #[cold]
    pub(crate) fn note_passed_tombstones(&self, keyspace: &KeyspaceState) {
        keyspace.scans_pass_tombstones.store(true, Ordering::Relaxed);
        self.flush_pile(keyspace);
    }

    /// Has the worker switch the memtable of `keyspace` if tombstones pile up in it. Called after
    /// writes, and after every job that changed the tables: a pile may have waited for that job,
    /// and no further write may come.
    pub(crate) fn flush_pile(&self, keyspace: &KeyspaceState) {
        if self.tombstones_pile_up(keyspace) {
            self.jobs.lock().piles.insert(keyspace.id);
            self.work.ring();
        }
    }

    /// True if the active memtable should be flushed for its tombstones although it is not full:
    /// scans pass them, it holds little else, or it has no segment left for the entries after a
    /// range delete. One such memtable at a time: the next waits until
    /// the table of the last one is compacted. So deletes cost only as many flushes as compactions
    /// can follow.
    #[must_use]
    pub(crate) fn tombstones_pile_up(&self, keyspace: &KeyspaceState) -> bool {
        let view = keyspace.view.load();
        let (tombstones, entries) = (view.active.tombstones(), view.active.entries());
        let many = match keyspace.scans_pass_tombstones.load(Ordering::Relaxed) {
            true => tombstones >= TOMBSTONES_PASSED_MAX / 2,
            false => tombstones >= TOMBSTONES_MAX && tombstones >= entries / 2,
        };
        let many = many || view.active.wants_segments();
        many && self.options.auto_compaction
            && view.immutables.is_empty()
            && !view.version.level(0).iter().any(|handle| handle.meta.is_mostly_garbage(0))
    }

    /// Bytes of the memtables that wait for their flush.
    pub(crate) fn immutable_bytes(&self) -> usize {
        let views = self.all_keyspaces().into_iter().map(|keyspace| keyspace.view.load_full());
        views.map(|view| view.immutables.iter().map(|f| f.memtable.bytes()).sum::<usize>()).sum()
    }

    /// A new memtable.
    #[must_use]
    pub(crate) fn new_memtable(options: &Options) -> Arc<Memtable> {
        Arc::new(Memtable::new(options.write_buffer_bytes, options.memtable_filter))
    }

    /// Saves the counters for the next session.
    pub(crate) fn save_stats(&self) {
        let totals = |keyspace: &Arc<KeyspaceState>| (keyspace.id, keyspace.counters.saved());
        let counted = |(_, totals): &(KeyspaceId, Vec<u64>)| totals.iter().any(|total| *total > 0);
        let stats = SavedStats {
            since_unix_seconds: self.counting_since,
            database: self.counters.saved(),
            keyspaces: self.all_keyspaces().iter().map(totals).filter(counted).collect(),
        };
        save(&*self.env, &self.directory, self.numbers.take_file_number(), &stats);
    }
}
