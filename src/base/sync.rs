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
#[cfg(not(feature = "interleavings"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub(crate) use std::sync::atomic::{Ordering, fence};
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

/// Wakes workers that wait for work. No wakeup is missed: a worker reads the generation, looks
/// for work, and then blocks only until the count changes. Waking takes only its own lock, and
/// no thread holds that lock while it does anything else.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    generation: Mutex<u64>,
    woken: Condvar,
}

impl Wakeup {
    /// Wakes all waiting threads.
    pub(crate) fn wake(&self) {
        *self.generation.lock() += 1;
        self.woken.notify_all();
    }

    /// The number of wakeups so far.
    pub(crate) fn generation(&self) -> u64 {
        *self.generation.lock()
    }

    /// Waits for a wakeup newer than `generation`.
    pub(crate) fn wait_past(&self, generation: u64) {
        let mut count = self.generation.lock();
        while *count <= generation {
            self.woken.wait(&mut count);
        }
    }

    /// As `wait_past`, but at most this long: false if that was too short. A scheduler has no
    /// time, so under one there is no limit.
    #[cfg(not(feature = "interleavings"))]
    pub(crate) fn wait_past_for(&self, generation: u64, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut count = self.generation.lock();
        while *count <= generation {
            if self.woken.wait_until(&mut count, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    #[cfg(feature = "interleavings")]
    pub(crate) fn wait_past_for(&self, generation: u64, _longest: Duration) -> bool {
        self.wait_past(generation);
        true
    }
}

/// The types of the system, under every scheduler.
pub(crate) mod plain {
    pub(crate) use parking_lot::{Mutex, RwLock};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}
