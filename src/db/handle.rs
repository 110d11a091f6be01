//! [`Handle`]: owns the workers of an open database. [`Db`](crate::Db) and every
//! [`Keyspace`](crate::Keyspace) share it; workers, iterators and snapshots own the shared state.
//!
//! `close`, or the drop of the last owner, stops and joins the workers, syncs the log, and drops
//! its share in the directory's lock. Calls of other threads, iterators and snapshots have shares
//! of their own, and the last one unlocks the directory (I20). `close_now` does not wait for them.

use crate::base::error::{Error, Result};
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Mutex, Ordering};
use crate::jobs::obsolete::remove_files;
use crate::jobs::workers;
use crate::state::session;
use crate::state::shared::Shared;
use crate::state::stalls;

/// The state of an open database, and its workers.
pub(crate) struct Handle {
    /// The state.
    pub shared: Arc<Shared>,
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
        self.end_session(|| self.shared.end())
    }

    /// Calls `then` when the session has ended, by this call or an earlier one.
    fn end_session(&self, then: impl FnOnce()) -> Result<()> {
        self.shared.process.check()?;
        // Held to the end, so that a second `close` returns only when the first is done.
        let mut workers = match self.shared.sync_tickets.is_own_thread() {
            false => self.workers.lock(),
            // A callback of a ticket. If another thread closes, it waits for this one.
            true => self.workers.try_lock().ok_or(Error::Closed)?,
        };
        if self.shared.closed.load(Ordering::SeqCst) {
            // Of a close that failed, and of a database that had failed before, each call tells.
            then();
            let failure = self.shared.background_error.get();
            return failure.map_or(Ok(()), |cause| Err(Error::ReadOnly { cause: Arc::new(cause) }));
        }
        workers::flush_recovered(&self.shared);
        let stopped = workers::stop(&self.shared, &mut workers);
        let finished = finish(&self.shared);
        // Last of all: another process may open the database as soon as the lock is free.
        self.shared.close_views();
        then();
        stalls::full_speed(&self.shared);
        // Without the lock: the listener may be in a `close` of its own.
        drop(workers);
        // The listener may wait for a ticket, which the syncing thread could not resolve here.
        if !self.shared.sync_tickets.is_own_thread() {
            self.shared.events.wait();
        }
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
