//! What siftdb's `sync.rs` hands out, as far as these modules ask for it.

pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::Arc;

/// As `std::sync::OnceLock` with one thread that sets it: its readers see what was stored before.
#[derive(Debug)]
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

/// Locks that order nothing but what they protect, and atomics that order nothing. The slots of a
/// leaf are among those; the words of a record, which never change, are not loom's.
pub mod plain {
    pub use loom::sync::atomic::AtomicU32;
    pub use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

    #[derive(Default)]
    pub struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Default)]
    pub struct RwLock<T>(std::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
