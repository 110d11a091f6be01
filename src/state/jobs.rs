//! [`Jobs`]: which background work is due or running, and how waiters learn that it has ended.

use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::{Arc, AtomicU64, Condvar, Mutex, Wakeup};
use crate::state::background_error::BackgroundError;
use crate::state::claim::Claim;
use crate::state::keyspace::KeyspaceState;
use crate::state::lock_rank::{LockRank, RankedMutex};
use std::collections::BTreeSet;
use std::time::Instant;

/// The workers' schedule, reservations, and the background error.
pub(crate) struct Jobs {
    /// What is due and what runs.
    pub schedule: RankedMutex<Schedule>,
    /// Woken when `schedule` has work or stops, and when a file can be removed.
    pub work: Arc<Wakeup>,
    /// Signalled when background work was done, or failed.
    pub done: Condvar,
    /// Set by the first failure of a write, flush or compaction.
    pub background_error: BackgroundError,
    /// Held during a flush: one at a time.
    pub flushes: RankedMutex<()>,
    /// Until when the compactions have to wait for what they wrote, if they have a pace.
    pub paid_until: Mutex<Option<Instant>>,
    /// Compactions that have begun, which the listener knows by their number.
    pub compactions_begun: AtomicU64,
}

/// The background work that is wanted or running.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// A memtable waits for its flush.
    pub flush_wanted: bool,
    /// The write buffer is half full: soon a switch needs the next log.
    pub log_wanted: bool,
    /// Keyspaces whose tree may need a compaction.
    pub compactions_wanted: BTreeSet<KeyspaceId>,
    /// Keyspaces whose active memtable may have to be switched for its tombstones.
    pub tombstone_flushes: BTreeSet<KeyspaceId>,
    /// Keyspaces in which range deletes may hide whole tables.
    pub deleted_tables: BTreeSet<KeyspaceId>,
    /// Jobs that run, in workers and in callers. Their failure may still have to be recorded.
    pub running: usize,
    /// Workers that compact, and threads that help them or a caller.
    pub compacting_threads: usize,
    /// A caller of `compact_range` compacts, and no worker does.
    pub caller_compacts: bool,
    /// Callers that wait to compact: the workers leave them the next turn.
    pub callers_waiting: usize,
    /// What the running compactions change.
    pub claims: Vec<Arc<Claim>>,
    /// The last recovered sequence, if the opening asked for a flush of what it recovered.
    pub recovered_through: SequenceNumber,
    /// Checkpoints that are being made.
    pub checkpoints: usize,
    /// Workers end as soon as they can.
    pub stopping: bool,
}

impl Schedule {
    /// True if a compaction runs, in a worker or in a caller.
    pub(crate) fn is_compacting(&self) -> bool {
        self.caller_compacts || self.compacting_threads > 0
    }
}

impl Jobs {
    /// No work. `work` is woken when a file can be removed, too.
    pub(crate) fn new(work: Arc<Wakeup>) -> Self {
        Jobs {
            schedule: RankedMutex::new(LockRank::Schedule, Schedule::default()),
            work,
            done: Condvar::default(),
            background_error: BackgroundError::default(),
            flushes: RankedMutex::new(LockRank::Flushes, ()),
            paid_until: Mutex::default(),
            compactions_begun: AtomicU64::new(0),
        }
    }

    /// What the running compactions of `keyspace` change.
    pub(crate) fn claims_of(&self, keyspace: KeyspaceId) -> Vec<Arc<Claim>> {
        let schedule = self.schedule.lock();
        schedule.claims.iter().filter(|claim| claim.keyspace == keyspace).cloned().collect()
    }

    /// The same, for a job that is about to replace or remove other tables; `None` if it must not,
    /// because something failed. Called under the lock of versions, like the last step of a bulk
    /// load. If the log after a load cannot be begun, the load's tables are all that says that
    /// their sequence was durable, so they have to stay (`log/wal/recover.rs`).
    pub(crate) fn claims_before_change(&self, keyspace: KeyspaceId) -> Option<Vec<Arc<Claim>>> {
        (!self.background_error.is_set()).then(|| self.claims_of(keyspace))
    }

    /// Asks the workers for a flush.
    pub(crate) fn schedule_flush(&self) {
        self.schedule.lock().flush_wanted = true;
        self.work.wake();
    }

    /// Asks the workers for the next log.
    #[cold]
    pub(crate) fn schedule_log(&self) {
        self.schedule.lock().log_wanted = true;
        self.work.wake();
    }

    /// Asks the workers to check whether these keyspaces need a compaction.
    pub(crate) fn schedule_compactions(&self, keyspaces: impl IntoIterator<Item = KeyspaceId>) {
        self.schedule.lock().compactions_wanted.extend(keyspaces);
        self.work.wake();
    }

    /// Asks the workers to remove the fully deleted tables of `keyspace`, if it has range deletes
    /// and tables. Called after range deletes were published, and after each job that changed the
    /// tables.
    pub(crate) fn schedule_table_removal(&self, keyspace: &KeyspaceState) {
        if keyspace.view.load().may_have_deleted_tables() {
            self.schedule.lock().deleted_tables.insert(keyspace.id);
            self.work.wake();
        }
    }

    /// Has the worker switch the memtable of `keyspace` if tombstones pile up in it. Called after
    /// writes, and after every job that changed the tables: a pile may have waited for that job,
    /// and no further write may come.
    pub(crate) fn schedule_tombstone_flush(&self, keyspace: &KeyspaceState) {
        if keyspace.needs_tombstone_flush() {
            self.schedule.lock().tombstone_flushes.insert(keyspace.id);
            self.work.wake();
        }
    }
}
