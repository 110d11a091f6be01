//! What siftdb's `sync.rs` hands out, as far as these modules ask for it.

pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub use std::sync::Arc;

use loom::sync::atomic::AtomicBool;

/// As `std::sync::OnceLock` with one thread that sets it: its readers see what was stored before.
pub struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub fn new() -> Self {
        OnceLock { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(make);
        self.is_set.store(true, Ordering::Release);
        value
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}
