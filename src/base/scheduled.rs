//! Replacements for the locks and atomics of `base/sync.rs` that run under a scheduler. At every
//! call the scheduler decides which thread runs next. The checks in `tests/interleavings` run the
//! engine under many such schedules, each of which can be repeated.
//!
//! Only the package `tests/interleavings/` compiles this file, with the feature of that name. The
//! threads are coroutines of one system thread. Code without our locks and atomics (the skip list,
//! its epochs, the inside of `arc-swap`) therefore runs as one step. Memory is sequentially
//! consistent; ThreadSanitizer and Miri check memory orderings.

use arc_swap::{AsRaw, Guard, RefCnt};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, TryLockError};

pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use shuttle::sync::mpsc;
pub use shuttle::{thread, thread_local};

/// Does nothing: the scheduler can run another thread at any call anyway.
pub fn wait_briefly(_: bool, _: impl Fn() -> bool) {}

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// As `parking_lot::MutexGuard`. Empty only while a `Condvar` waits.
pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

/// As `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("does not wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("does not wait")
    }
}

impl Condvar {
    pub const fn new() -> Self {
        Condvar(shuttle::sync::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("does not wait");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As `arc_swap::ArcSwapAny`, with a choice before each call.
#[derive(Debug)]
pub struct Swapped<T: RefCnt> {
    pointer: arc_swap::ArcSwapAny<T>,
    turn: AtomicBool,
}

/// As `arc_swap::ArcSwap`.
pub type ArcSwap<T> = Swapped<Arc<T>>;

/// As `arc_swap::ArcSwapOption`.
pub type ArcSwapOption<T> = Swapped<Option<Arc<T>>>;

impl<T: RefCnt> Swapped<T> {
    pub fn new(value: T) -> Self {
        let pointer = arc_swap::ArcSwapAny::new(value);
        Swapped { pointer, turn: AtomicBool::new(false) }
    }

    /// Lets the scheduler choose the thread that runs next.
    fn choose(&self) -> &arc_swap::ArcSwapAny<T> {
        self.turn.load(std::sync::atomic::Ordering::SeqCst);
        &self.pointer
    }

    pub fn load(&self) -> Guard<T> {
        self.choose().load()
    }

    pub fn load_full(&self) -> T {
        self.choose().load_full()
    }

    pub fn store(&self, value: T) {
        self.choose().store(value);
    }

    pub fn swap(&self, value: T) -> T {
        self.choose().swap(value)
    }

    pub fn compare_and_swap<C: AsRaw<T::Base>>(&self, current: C, new: T) -> Guard<T> {
        self.choose().compare_and_swap(current, new)
    }
}

impl<T> Swapped<Arc<T>> {
    pub fn from_pointee(value: T) -> Self {
        Swapped::new(Arc::new(value))
    }
}

impl<T> Swapped<Option<Arc<T>>> {
    pub fn empty() -> Self {
        Swapped::new(None)
    }
}
