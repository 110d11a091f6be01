//! The order of the engine's locks. A thread takes them in the order of this table, so no two
//! threads can wait for each other.
//!
//! | lock | owner | guards | held during I/O |
//! |---|---|---|---|
//! | `queue` | `Writer` | which writer leads, which wait | no |
//! | turn of a writer in the queue | `Writer` | its request, then the result | no |
//! | `sync_tickets` | `Writer` | the open batch of tickets | no |
//! | a batch of tickets | `Writer` | its waiters | no |
//! | `flushes` | `Jobs` | nothing: one flush at a time | yes |
//! | `log` | `Writer` | the logs being written; taken by the leader | yes |
//! | turns of `RecordSyncer` | `Writer` | nothing: one sync of a log at a time | yes |
//! | `versions` | `Catalog` | manifest and current versions | yes |
//! | `schedule` | `Jobs` | what background work is due or running | no |
//! | `keyspaces` | `Catalog` | the list of keyspaces | no |
//! | `live_logs` | `Writer` | which logs may be needed | yes |
//! | `view_update` of a keyspace | `Catalog` | replacing its read view | no |
//! | `snapshots` | `Catalog` | live snapshots | no |
//! | `recent` | `Writer` | what was written last | no |
//! | `filter_workload` of a keyspace | `Catalog` | recent lookups and flushes | no |
//!
//! Debug builds check at each lock that ranks ascend. Release builds keep neither ranks nor lists.
//! The turns of `RecordSyncer` have no rank: `log/` is below this room, so it cannot take a lock of
//! this table during a turn.

#[cfg(debug_assertions)]
use crate::base::sync::thread_local;
use crate::base::sync::{Mutex, MutexGuard};
#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The locks that have a rank, in the order of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockRank {
    Queue,
    QueueTurn,
    SyncTickets,
    SyncBatch,
    Flushes,
    Log,
    Versions,
    Schedule,
    Keyspaces,
    LiveLogs,
    ViewUpdate,
    Snapshots,
    RecentWrites,
    FilterWorkload,
}

#[cfg(debug_assertions)]
thread_local! {
    /// The ranks of the locks that this thread holds, in no order: guards may be dropped in any.
    static HELD: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) };
}

/// A mutex with a rank.
#[derive(Debug)]
pub(crate) struct RankedMutex<T> {
    mutex: Mutex<T>,
    #[cfg(debug_assertions)]
    rank: LockRank,
}

impl<T> RankedMutex<T> {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only checks need it"))]
    pub(crate) fn new(rank: LockRank, value: T) -> Self {
        RankedMutex {
            mutex: Mutex::new(value),
            #[cfg(debug_assertions)]
            rank,
        }
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of this rank or a later one.
    #[inline]
    pub(crate) fn lock(&self) -> RankedGuard<'_, T> {
        #[cfg(debug_assertions)]
        let held = HeldRank::new(self.rank);
        RankedGuard {
            guard: self.mutex.lock(),
            #[cfg(debug_assertions)]
            _held: held,
        }
    }

    /// True if some thread holds the lock.
    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.mutex.try_lock().is_none()
    }
}

/// Holds the lock of a [`RankedMutex`] until it is dropped.
pub(crate) struct RankedGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    _held: HeldRank,
}

impl<'a, T> RankedGuard<'a, T> {
    /// The guard as a `Condvar` takes it. The rank counts as held during the wait, so a thread
    /// that wakes has the lock again in its place of the order.
    pub(crate) fn for_condvar(&mut self) -> &mut MutexGuard<'a, T> {
        &mut self.guard
    }
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// The entry of a lock in `HELD`.
#[cfg(debug_assertions)]
struct HeldRank(LockRank);

#[cfg(debug_assertions)]
impl HeldRank {
    /// Checked before the thread waits for the lock: a wrong order fails although no other thread
    /// holds it.
    fn new(rank: LockRank) -> Self {
        // While a thread ends, its list may be gone before a value that still takes a lock.
        let last = HELD.try_with(|held| {
            let last = held.borrow().iter().max().copied();
            held.borrow_mut().push(rank);
            last
        });
        if let Ok(Some(last)) = last
            && last >= rank
        {
            Self::remove(rank);
            panic!("lock {rank:?} taken while {last:?} is held (state/lock_rank.rs)");
        }
        HeldRank(rank)
    }

    fn remove(rank: LockRank) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|&of| of == rank) {
                held.remove(at);
            }
        });
    }
}

#[cfg(debug_assertions)]
impl Drop for HeldRank {
    fn drop(&mut self) {
        Self::remove(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn locks_in_descending_order_are_refused() {
        let log = RankedMutex::new(LockRank::Log, ());
        let jobs = RankedMutex::new(LockRank::Schedule, ());
        let outer = log.lock();
        drop(jobs.lock());
        drop(outer);
        let held = jobs.lock();
        let refused = catch_unwind(std::panic::AssertUnwindSafe(|| drop(log.lock())));
        assert_eq!(refused.is_err(), cfg!(debug_assertions));
        // Neither the refused lock nor a released one counts as held.
        drop(held);
        drop(log.lock());
    }
}
