//! The locks and atomics of the engine, from one place.
//!
//! Everything above takes its mutexes, condition variables, swapped pointers, thread-locals and
//! threads from here, so that a scheduler can stand in for the system's in tests (`scheduled`,
//! `interleavings`). A `Condvar` belongs to one `Mutex` for life. The order in which locks are
//! taken stands in `state/shared.rs`. What only counts, and orders nothing, uses [`plain`].

#[cfg(feature = "interleavings")]
pub use crate::base::scheduled::{
    ArcSwap, ArcSwapOption, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, thread,
    thread_local, yield_until,
};
#[cfg(not(feature = "interleavings"))]
pub use arc_swap::{ArcSwap, ArcSwapOption};
#[cfg(not(feature = "interleavings"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
pub use std::sync::atomic::Ordering;
#[cfg(not(feature = "interleavings"))]
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use std::sync::{Arc, OnceLock};
#[cfg(not(feature = "interleavings"))]
pub use std::{thread, thread_local};

/// Lets other threads run, up to ten times, until `done` holds: for what takes less time than
/// waking a thread that sleeps.
#[cfg(not(feature = "interleavings"))]
pub fn yield_until(done: impl Fn() -> bool) {
    for _ in 0..10 {
        if done() {
            return;
        }
        thread::yield_now();
    }
}

/// Wakes workers that wait for something to do. No ring is missed: a worker reads the count of
/// rings, looks for work, and then sleeps only until the count moves on. Ringing takes no lock but
/// the bell's own, which nobody holds while doing anything else.
#[derive(Debug, Default)]
pub struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// Wakes everyone who waits.
    pub fn ring(&self) {
        *self.rings.lock() += 1;
        self.rung.notify_all();
    }

    /// How often it rang.
    pub fn rings(&self) -> u64 {
        *self.rings.lock()
    }

    /// Waits until it rang more often than `rings` times.
    pub fn wait_beyond(&self, rings: u64) {
        let mut count = self.rings.lock();
        while *count <= rings {
            self.rung.wait(&mut count);
        }
    }
}

/// The system's own, in tests too.
pub mod plain {
    pub use parking_lot::Mutex;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}
