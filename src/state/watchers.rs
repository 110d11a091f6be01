//! [`Watchers`]: the watches of a database, and how a writer wakes them.
//!
//! A writer without watchers pays one load. With some it takes a lock for a moment, and no watcher
//! does anything else while it holds that lock.
//!
//! No wakeup is missed: a watcher reads the generation, looks for changes, and blocks only until
//! the generation changes. A watcher that has just registered takes the lock of the log once before
//! it looks for changes. A writer that did not see it yet has published by then.

use crate::base::sync::plain::AtomicU64;
use crate::base::sync::{AtomicUsize, Mutex, Ordering, Wakeup};
use siftdb_filter::policy::guarded;
use std::collections::BTreeMap;
use std::fmt;
use std::task::Waker;
use std::time::Instant;

/// The watches of a database.
#[derive(Default)]
pub(crate) struct Watchers {
    count: AtomicUsize,
    /// The number of the last watch.
    last: AtomicU64,
    pub wakeup: Wakeup,
    /// The wakers of watches that were polled, by the number of the watch.
    wakers: Mutex<BTreeMap<u64, Waker>>,
}

/// One line.
impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Watchers {
    /// Registers a watch; returns its number.
    pub(crate) fn add(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes the registration of a watch back.
    pub(crate) fn remove(&self, watch: u64) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        let waker = self.wakers.lock().remove(&watch);
        // Its drop is code of the user.
        drop(waker);
    }

    /// Wakes all watches: something was published, or the database is closed. A waker is code of
    /// the user, which may close the database. So the caller holds nothing that a close waits for:
    /// no lock, not the lead of the write queue, and it is no job.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.wake_blocked() {
            self.call_wakers();
        }
    }

    /// Wakes the threads that block for changes, and calls nothing. True if there are wakers, too:
    /// then [`call_wakers`](Self::call_wakers) follows as soon as it may.
    #[inline]
    pub(crate) fn wake_blocked(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.wake_all_blocked()
    }

    #[cold]
    fn wake_all_blocked(&self) -> bool {
        // The generation first: see `wake_by`.
        self.wakeup.wake();
        !self.wakers.lock().is_empty()
    }

    /// The second half of [`wake`](Self::wake).
    #[cold]
    pub(crate) fn call_wakers(&self) {
        let wakers = std::mem::take(&mut *self.wakers.lock());
        for waker in wakers.into_values() {
            // A panic of a waker concerns no writer. It was printed when it happened.
            let _ = guarded(|| waker.wake());
        }
    }

    /// Waits for a wakeup newer than `generation`, until `deadline` if there is one; false if none
    /// came.
    pub(crate) fn wait_past(&self, generation: u64, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else {
            self.wakeup.wait_past(generation);
            return true;
        };
        self.wakeup.wait_past_for(generation, deadline.duration_since(Instant::now()))
    }

    /// Has `waker` woken by the next wakeup. False if there was one newer than `generation`.
    pub(crate) fn wake_by(&self, watch: u64, generation: u64, waker: Waker) -> bool {
        let mut wakers = self.wakers.lock();
        // A wakeup that this does not see takes the wakers later, and this one with them.
        if self.wakeup.generation() > generation {
            return false;
        }
        let before = wakers.insert(watch, waker);
        drop(wakers);
        drop(before);
        true
    }
}
