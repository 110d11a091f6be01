//! [`Handle`]: owns the workers of an open database. [`Db`](crate::Db) and every
//! [`Keyspace`](crate::Keyspace) share it; workers, iterators and snapshots own the engine.
//!
//! `close`, or the drop of the last owner, stops and joins the workers, syncs the log, and drops
//! its share in the directory's lock. Calls of other threads, iterators and snapshots have shares
//! of their own, and the last one unlocks the directory (I20). `close_now` does not wait for them.

use crate::base::error::{Error, Result};
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Mutex, Ordering};
use crate::jobs::obsolete::remove_files;
use crate::jobs::workers;
use crate::state::engine::Engine;
use crate::state::session;
use crate::state::stalls;

/// The state of an open database, and its workers.
pub(crate) struct Handle {
    pub engine: Arc<Engine>,
    /// The workers; none once the database is closed.
    pub workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Handle {
    /// Ends the session; see `Db::close`.
    ///
    /// # Errors
    /// A failed sync, or the failure that had already made the database read-only; `Closed` in the
    /// callback of a ticket while another thread closes.
    pub(crate) fn close(&self) -> Result<()> {
        self.end_session(|| {})
    }

    /// Ends the session, and then all reads; see `Db::close_now`.
    ///
    /// # Errors
    /// As for [`Handle::close`]; the directory is free after a failure, too.
    pub(crate) fn close_now(&self) -> Result<()> {
        self.end_session(|| self.engine.end())
    }

    /// Calls `then` when the session has ended, by this call or an earlier one.
    fn end_session(&self, then: impl FnOnce()) -> Result<()> {
        self.engine.context.process.check()?;
        // Held to the end, so that a second `close` returns only when the first is done.
        let mut workers = match self.engine.writer.sync_tickets.is_own_thread() {
            false => self.workers.lock(),
            // A callback of a ticket. If another thread closes, it waits for this one.
            true => self.workers.try_lock().ok_or(Error::Closed)?,
        };
        if self.engine.context.closed.load(Ordering::SeqCst) {
            // Of a close that failed, and of a database that had failed before, each call tells.
            then();
            drop(workers);
            self.engine.writer.watchers.wake();
            return self.engine.jobs.background_error.check();
        }
        workers::flush_recovered(&self.engine);
        let stopped = workers::stop(&self.engine, &mut workers);
        let finished = finish(&self.engine);
        // Last of all: another process may open the database as soon as the lock is free.
        self.engine.catalog.close_views();
        then();
        stalls::full_speed(&self.engine.context, &self.engine.writer);
        // Without the lock: the listener may be in a `close` of its own, and a waker may call it.
        drop(workers);
        self.engine.writer.watchers.wake();
        // The listener may wait for a ticket, which the syncing thread could not resolve here.
        if !self.engine.writer.sync_tickets.is_own_thread() {
            self.engine.context.events.wait();
        }
        stopped.and(finished)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.engine.context.process.is_current() {
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
pub(super) fn finish(engine: &Engine) -> Result<()> {
    engine.jobs.background_error.check()?;
    if engine.context.read_only {
        return Ok(());
    }
    engine
        .check_lock()
        .and_then(|()| session::finish_log(engine))
        .map_err(|e| engine.set_background_error(e))?;
    engine.catalog.retired.lock().clear();
    remove_files(engine);
    engine.save_stats();
    Ok(())
}
