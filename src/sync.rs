//! The locks and atomics of the engine, from one place.
//!
//! Everything above takes its mutexes, condition variables, swapped pointers, thread-locals and
//! threads from here, so that a scheduler can stand in for the system's in tests (`scheduled`,
//! `interleavings`). A `Condvar` belongs to one `Mutex` for life. The order in which locks are
//! taken stands in `db/state.rs`. What only counts, and orders nothing, uses [`plain`].

#[cfg(feature = "interleavings")]
pub use crate::scheduled::{
    ArcSwap, ArcSwapOption, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, thread,
    thread_local, yield_until,
};
#[cfg(not(feature = "interleavings"))]
pub use arc_swap::{ArcSwap, ArcSwapOption};
#[cfg(not(feature = "interleavings"))]
pub use parking_lot::{Condvar, Mutex};
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

/// The system's own, in tests too.
pub mod plain {
    pub use parking_lot::Mutex;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}
