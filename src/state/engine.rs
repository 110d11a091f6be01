//! [`Engine`]: one open database, as its four owners. A function takes the owners that it uses;
//! only `db/` and the tops of paths and jobs take all four.

use crate::base::error::{Error, Result};
use crate::base::events::event::Event;
use crate::base::sync::{Arc, Ordering};
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::jobs::Jobs;
use crate::state::snapshots::ReadPoint;
use crate::state::stats_file::{SavedStats, save};
use crate::state::writer::Writer;
use std::fmt;

/// One open database. Owned by handles, workers, iterators and snapshots.
pub(crate) struct Engine {
    /// What the database is, and what all parts use.
    pub context: Arc<Context>,
    pub catalog: Catalog,
    /// What writes go through.
    pub writer: Writer,
    /// What runs in the background.
    pub jobs: Jobs,
}

/// One line: the fields would fill pages.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = &self.context.directory;
        f.debug_struct("Database").field("directory", directory).finish_non_exhaustive()
    }
}

impl Engine {
    /// Makes `error` the background error: the database takes no writes until `resume` or reopening
    /// (I8). Returns the error.
    pub(crate) fn set_background_error(&self, error: Error) -> Error {
        if self.jobs.background_error.set(&error) {
            self.context.events.emit(|| Event::BackgroundError { error: error.clone() });
        }
        // Under the lock: a waiter checks and waits under it, so it cannot miss this signal.
        let _schedule = self.jobs.schedule.lock();
        self.jobs.work.wake();
        self.jobs.done.notify_all();
        error
    }

    /// `Closed`, `ReadOnly` or `OpenedReadOnly` if writes are not taken.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.context.check_takes_writes()?;
        self.jobs.background_error.check()
    }

    /// Checks that no other process can have the directory open to write: before a log is begun,
    /// the manifest is changed, or a file is removed at the end, after a log was synced, and while
    /// there are other writes.
    ///
    /// # Errors
    /// `LockLost`; the caller makes it the background error.
    pub(crate) fn check_lock(&self) -> Result<()> {
        self.catalog.hold()?.check(&*self.context.env)
    }

    /// Ends what `close` leaves: frees the directory, whatever iterators, snapshots and loads there
    /// are. Reads that are under way end with their result, because files of tables never
    /// change, or with `Closed`, because no file can be opened any more.
    pub(crate) fn end(&self) {
        self.context.ended.store(true, Ordering::SeqCst);
        let mut schedule = self.jobs.schedule.lock();
        while schedule.running > 0 || schedule.checkpoints > 0 {
            self.jobs.done.wait(schedule.for_condvar());
        }
        drop(schedule);
        // No call on a file of the directory follows (I20).
        self.context.gate.shut();
        if let Some(lock) = self.context.lock.upgrade() {
            lock.release();
        }
    }

    /// Takes back the registration of a snapshot. Dropped keyspaces that only it could read let go
    /// of their tables.
    pub(crate) fn release_snapshot(&self, read_point: ReadPoint) {
        let snapshots = &self.catalog.snapshots;
        let oldest_went = snapshots.release(read_point);
        self.catalog.clear_dropped();
        // An older snapshot that still lives keeps nearly all that this one kept. Without this
        // condition each transaction would wake both workers although they find no work.
        if oldest_went && snapshots.is_awaited.swap(false, Ordering::SeqCst) {
            let mut all = self.catalog.all_keyspaces();
            self.jobs.schedule_compactions(all.iter().map(|keyspace| keyspace.id));
            all.retain(|keyspace| keyspace.view.load().may_have_deleted_tables());
            all.iter().for_each(|keyspace| self.jobs.schedule_table_removal(keyspace));
        }
    }

    /// Saves the counters for the next session.
    pub(crate) fn save_stats(&self) {
        let keyspaces = self.catalog.all_keyspaces();
        let totals = keyspaces.iter().map(|keyspace| (keyspace.id, keyspace.counters.saved()));
        let stats = SavedStats {
            since_unix_seconds: self.context.counting_since,
            database: self.context.counters.saved(),
            keyspaces: totals.filter(|(_, all)| all.iter().any(|total| *total > 0)).collect(),
        };
        let Context { env, directory, .. } = &*self.context;
        save(&**env, directory, self.catalog.numbers.take_file_number(), &stats);
    }
}
