//! [`SyncTicket`]: resolves when the writes before it are synced. And [`SyncTickets`], the line of
//! tickets that wait for the syncing thread (`jobs/sync_thread.rs`).
//!
//! Tickets form batches. A batch is open until the syncing thread takes it: tickets that are taken
//! while a sync runs wait for the next one together, and all of them get its result. A write that
//! was acknowledged before its ticket was taken is in the log before the batch is taken, so the
//! sync of the batch covers it.
//!
//! A client whose ticket has resolved often writes again at once. If the next sync began with the
//! first of these writes, the others would wait for two syncs. So the thread waits a moment before
//! it takes a batch: for as many tickets as it has just resolved, besides those that wait already.
//! It waits only while tickets come, for a part of the time of a sync. A client that is alone never
//! waits, since its ticket is the only one that is expected.
//!
//! Legal order: [`SyncTickets::take`] any number of times; [`SyncTickets::next_batch`] and
//! [`SyncTickets::resolve`], alternately, by the syncing thread; [`SyncTickets::end`]. After that
//! no ticket joins a batch, and the thread takes the last one.
//!
//! Wakers and callbacks are a user's code, and so are their clones and drops. None of it runs while
//! a lock is held. A ticket holds its batch alone: it keeps no database open.

use crate::base::error::{Error, Result};
use crate::base::process::Process;
use crate::base::sync::thread::{self, JoinHandle, ThreadId};
use crate::base::sync::{Arc, Condvar, OnceLock, signalled_until};
use crate::state::lock_rank::{LockRank, RankedMutex};
use siftdb_filter::policy::guarded;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Resolves when every write that was acknowledged before it was taken survives a power loss: see
/// [`Db::sync_ticket`](crate::Db::sync_ticket).
///
/// It is a future for any executor, and needs none: [`wait`](Self::wait) blocks a thread, and
/// [`on_done`](Self::on_done) calls a function. It resolves once the sync has ended, never before:
/// with `Ok`, or with the failure of the sync, which also makes the database read-only. Polled
/// again after that, it gives the same result. Dropping a ticket does not take the sync back.
///
/// [`Db::close`](crate::Db::close) and the drop of the last handle resolve every ticket. A ticket
/// neither keeps the database open nor its directory locked.
#[must_use = "a ticket says when the writes before it are synced, and whether that failed"]
pub struct SyncTicket {
    batch: Arc<SyncBatch>,
    /// The place of its waker in the batch, once it was polled.
    index: Option<usize>,
}

impl SyncTicket {
    /// A ticket that has resolved.
    pub(crate) fn resolved(outcome: Result<()>) -> Self {
        let batch = SyncBatch::open();
        batch.resolve(outcome);
        SyncTicket { batch, index: None }
    }

    /// Blocks this thread until the ticket resolves. Not for a callback of another ticket, which
    /// runs on the thread that would resolve this one.
    ///
    /// # Errors
    /// The failure of the sync; `ReadOnly`, `OpenedReadOnly`, `Closed` or `Forked`, as for
    /// [`Db::sync`](crate::Db::sync); `Io` if the system refuses the syncing thread.
    pub fn wait(self) -> Result<()> {
        if let Some(outcome) = self.batch.outcome() {
            return outcome;
        }
        let mut waiters = self.batch.waiters.lock();
        loop {
            if let Some(outcome) = self.batch.outcome.get() {
                return outcome.clone();
            }
            self.batch.resolved.wait(waiters.for_condvar());
        }
    }

    /// Calls `callback` once, with what [`wait`](Self::wait) would return: on the syncing thread of
    /// the database, or on this one before the call returns, if the ticket has resolved.
    ///
    /// All other tickets wait for the callback, so it should hand the result on and return. It may
    /// write and take tickets, but must not wait for one. A panic in it is caught.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = siftdb::Db::open(directory.path().join("log.sift"))?;
    /// let (sender, flushed) = std::sync::mpsc::channel();
    /// db.put("entry 1", "set x")?;
    /// db.sync_ticket().on_done(move |synced| sender.send(synced).unwrap());
    /// flushed.recv().unwrap()?;
    /// db.close()
    /// # }
    /// ```
    pub fn on_done(self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        if let Some(outcome) = self.batch.outcome() {
            return callback(outcome);
        }
        let callback = Waiter::Callback(Box::new(callback));
        if let Err((callback, outcome)) = self.batch.set(None, callback) {
            callback.call(&outcome);
        }
    }
}

impl Future for SyncTicket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(outcome) = self.batch.outcome() {
            return Poll::Ready(outcome);
        }
        let waker = Waiter::Waker(context.waker().clone());
        match self.batch.set(self.index, waker) {
            Ok(index) => {
                self.index = Some(index);
                Poll::Pending
            }
            Err((_, outcome)) => Poll::Ready(outcome),
        }
    }
}

impl Drop for SyncTicket {
    fn drop(&mut self) {
        // What no longer waits is not woken: a waker may keep a whole task alive.
        if let (Some(index), None) = (self.index, self.batch.outcome()) {
            let waiter = self.batch.waiters.lock().get_mut(index).and_then(Option::take);
            drop(waiter);
        }
    }
}

impl fmt::Debug for SyncTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.batch.outcome.get();
        f.debug_struct("SyncTicket").field("outcome", &outcome).finish_non_exhaustive()
    }
}

/// What is told that a ticket has resolved.
enum Waiter {
    Waker(Waker),
    Callback(Box<dyn FnOnce(Result<()>) + Send>),
}

impl Waiter {
    fn call(self, outcome: &Result<()>) {
        match self {
            Waiter::Waker(waker) => waker.wake(),
            Waiter::Callback(callback) => callback(outcome.clone()),
        }
    }
}

/// Tickets that wait for the same sync.
pub(crate) struct SyncBatch {
    process: Process,
    /// Set with `waiters` locked, once.
    outcome: OnceLock<Result<()>>,
    /// Those of dropped tickets are empty.
    waiters: RankedMutex<Vec<Option<Waiter>>>,
    resolved: Condvar,
}

impl SyncBatch {
    fn open() -> Arc<Self> {
        Arc::new(SyncBatch {
            process: Process::current(),
            outcome: OnceLock::new(),
            waiters: RankedMutex::new(LockRank::SyncBatch, Vec::new()),
            resolved: Condvar::new(),
        })
    }

    /// What the tickets resolve with, once that is known. A forked child has no syncing thread, and
    /// the lock may be locked in it for ever: what had not resolved by then fails.
    fn outcome(&self) -> Option<Result<()>> {
        match self.outcome.get() {
            Some(outcome) => Some(outcome.clone()),
            None => self.process.check().err().map(Err),
        }
    }

    /// Adds a waiter, or replaces the one at `index`; returns its index.
    ///
    /// # Errors
    /// The batch has resolved in the meantime; the waiter comes back.
    fn set(
        &self,
        index: Option<usize>,
        waiter: Waiter,
    ) -> std::result::Result<usize, (Waiter, Result<()>)> {
        let mut waiters = self.waiters.lock();
        if let Some(outcome) = self.outcome.get() {
            return Err((waiter, outcome.clone()));
        }
        let index = index.unwrap_or_else(|| {
            waiters.push(None);
            waiters.len() - 1
        });
        let before = waiters.get_mut(index).and_then(|at| at.replace(waiter));
        drop(waiters);
        // Its drop runs code of the user.
        drop(before);
        Ok(index)
    }

    /// Resolves all tickets of the batch. A panic of a waiter is caught: it concerns no other.
    fn resolve(&self, outcome: Result<()>) {
        let mut locked = self.waiters.lock();
        let outcome = self.outcome.get_or_init(|| outcome);
        let waiters = std::mem::take(&mut *locked);
        drop(locked);
        self.resolved.notify_all();
        for waiter in waiters.into_iter().flatten() {
            // The panic was printed when it happened, like that of any thread.
            let _ = guarded(|| waiter.call(outcome));
        }
    }
}

/// The tickets of a database, and its syncing thread.
pub(crate) struct SyncTickets {
    line: RankedMutex<Line>,
    /// Signalled when a batch opens, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct Line {
    /// The batch that the next sync resolves.
    open: Option<Arc<SyncBatch>>,
    /// Tickets of that batch.
    waiting: usize,
    /// Tickets of the batch that the thread has taken.
    taken: usize,
    /// Tickets that may wait soon: as many as the last batch had, and those that waited when it
    /// resolved.
    expected: usize,
    /// The thread waits for that many tickets.
    wanted: usize,
    /// Once a ticket was taken, until the end.
    thread: Option<JoinHandle<()>>,
    thread_id: Option<ThreadId>,
    ended: bool,
}

impl Default for SyncTickets {
    fn default() -> Self {
        let line = RankedMutex::new(LockRank::SyncTickets, Line::default());
        SyncTickets { line, changed: Condvar::new() }
    }
}

impl SyncTickets {
    /// A ticket of the open batch. The first one starts the thread.
    pub(crate) fn take(&self, start: impl FnOnce() -> Result<JoinHandle<()>>) -> SyncTicket {
        let mut line = self.line.lock();
        if line.ended {
            return SyncTicket::resolved(Err(Error::Closed));
        }
        if line.thread.is_none() {
            match start() {
                Ok(thread) => {
                    line.thread_id = Some(thread.thread().id());
                    line.thread = Some(thread);
                }
                Err(error) => return SyncTicket::resolved(Err(error)),
            }
        }
        let batch = Arc::clone(line.open.get_or_insert_with(SyncBatch::open));
        line.waiting += 1;
        let is_awaited = line.waiting == line.wanted;
        drop(line);
        if is_awaited {
            self.changed.notify_one();
        }
        SyncTicket { batch, index: None }
    }

    /// Waits for the next batch; `None` at the end, when each has been taken. Waits up to
    /// `patience` for tickets of those clients whose tickets have just resolved.
    pub(crate) fn next_batch(&self, patience: Duration) -> Option<Arc<SyncBatch>> {
        let deadline = Instant::now() + patience;
        let mut line = self.line.lock();
        line.wanted = 1;
        while line.waiting == 0 && !line.ended {
            self.changed.wait(line.for_condvar());
        }
        line.wanted = line.expected;
        while line.waiting < line.expected && !line.ended {
            let (before, now) = (line.waiting, Instant::now());
            let pause = deadline.min(now + patience / 4);
            if now >= deadline
                || !signalled_until(&self.changed, line.for_condvar(), pause)
                    && line.waiting == before
            {
                break;
            }
        }
        line.wanted = 0;
        line.taken = std::mem::take(&mut line.waiting);
        line.open.take()
    }

    /// Resolves the tickets of the batch that was taken last.
    pub(crate) fn resolve(&self, batch: &SyncBatch, outcome: Result<()>) {
        let mut line = self.line.lock();
        // Before the first of them comes back.
        line.expected = line.taken + line.waiting;
        drop(line);
        batch.resolve(outcome);
    }

    /// Lets no further ticket wait. The thread resolves those that do and ends.
    pub(crate) fn end(&self) -> Option<JoinHandle<()>> {
        let mut line = self.line.lock();
        line.ended = true;
        self.changed.notify_one();
        line.thread.take()
    }

    /// True on the syncing thread, which runs callbacks and wakers.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.line.lock().thread_id == Some(thread::current().id())
    }
}
