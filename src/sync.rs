//! The locks and atomics of the engine, from one place.
//!
//! Everything above takes its mutexes and condition variables from here, so that a model checker
//! can stand in for them in tests. A `Condvar` belongs to one `Mutex` for life. The order in which
//! locks are taken stands in `db/state.rs`.

pub use parking_lot::{Condvar, Mutex};
pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
