//! The locks and atomics of the engine, in one place.
//!
//! The engine takes its mutexes, condition variables, swapped pointers, thread-locals and threads
//! from here, so that tests can run it under a scheduler (`scheduled`, `interleavings`). A
//! `Condvar` is used with one `Mutex` only. `state/lock_rank.rs` states the lock order. Atomics
//! that only count, and order nothing, come from [`plain`].

#[cfg(feature = "interleavings")]
pub use crate::base::scheduled::{
    ArcSwap, ArcSwapOption, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, mpsc,
    thread, thread_local, wait_briefly,
};
#[cfg(not(feature = "interleavings"))]
pub(crate) use arc_swap::{ArcSwap, ArcSwapOption};
#[cfg(not(feature = "interleavings"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(feature = "interleavings"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(not(feature = "interleavings"))]
pub(crate) use std::sync::mpsc;
pub(crate) use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
#[cfg(not(feature = "interleavings"))]
pub(crate) use std::{thread, thread_local};

/// Waits until `done` holds or some microseconds have passed: for a wait that is shorter than
/// waking a blocked thread takes. `spins` if a processor is left for that, which saves the calls to
/// yield.
#[cfg(not(feature = "interleavings"))]
pub(crate) fn wait_briefly(spins: bool, done: impl Fn() -> bool) {
    for _ in 0..if spins { 1000 } else { 0 } {
        if done() {
            return;
        }
        std::hint::spin_loop();
    }
    for _ in 0..10 {
        if done() {
            return;
        }
        thread::yield_now();
    }
}

/// How many threads can run at once.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Waits for a signal until `deadline`; false if none came. Under a scheduler, which has no time,
/// none ever comes.
#[cfg(not(feature = "interleavings"))]
pub(crate) fn signalled_until<T>(
    condvar: &Condvar,
    guard: &mut MutexGuard<'_, T>,
    deadline: Instant,
) -> bool {
    !condvar.wait_until(guard, deadline).timed_out()
}

#[cfg(feature = "interleavings")]
pub(crate) fn signalled_until<T>(_: &Condvar, _: &mut MutexGuard<'_, T>, _: Instant) -> bool {
    false
}

/// Wakes workers that wait for work. No ring is missed: a worker reads the count of rings, looks
/// for work, and then blocks only until the count changes. Ringing takes only the lock of the bell,
/// and no thread holds that lock while it does anything else.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// Wakes all waiting threads.
    pub(crate) fn ring(&self) {
        *self.rings.lock() += 1;
        self.rung.notify_all();
    }

    /// The number of rings so far.
    pub(crate) fn rings(&self) -> u64 {
        *self.rings.lock()
    }

    /// Waits until the number of rings is above `rings`.
    pub(crate) fn wait_beyond(&self, rings: u64) {
        let mut count = self.rings.lock();
        while *count <= rings {
            self.rung.wait(&mut count);
        }
    }

    /// As `wait_beyond`, but at most this long: false if that was too short. A scheduler has no
    /// time, so under one there is no limit.
    #[cfg(not(feature = "interleavings"))]
    pub(crate) fn wait_beyond_for(&self, rings: u64, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut count = self.rings.lock();
        while *count <= rings {
            if self.rung.wait_until(&mut count, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    #[cfg(feature = "interleavings")]
    pub(crate) fn wait_beyond_for(&self, rings: u64, _longest: Duration) -> bool {
        self.wait_beyond(rings);
        true
    }
}

/// The types of the system, under every scheduler.
pub(crate) mod plain {
    pub(crate) use parking_lot::{Mutex, RwLock};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}
