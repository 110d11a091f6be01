//! [`LockWatch`]: when a worker compares `LOCK` again, for writes that no sync acknowledges.
//!
//! The leader of a write group loads one flag. Where it is clear, the leader sets it and wakes the
//! workers. One of them clears it [`LOCK_WATCH_TIME`] later, and compares the file after that. So
//! every write has a comparison after it, and writers read the clock once in that time.

use crate::base::sync::{AtomicBool, Mutex, Ordering};
use std::time::{Duration, Instant};

/// From a write to the comparison of `LOCK` after it, unless all workers are busy.
const LOCK_WATCH_TIME: Duration = Duration::from_millis(100);

/// Whether `LOCK` is to be compared, and when.
#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    /// Changes only under the lock of `due`.
    is_due: AtomicBool,
    due: Mutex<Option<Instant>>,
}

impl LockWatch {
    /// Notes a write. True if the workers must be woken: it is the first since the last comparison.
    #[inline]
    pub(crate) fn note_write(&self) -> bool {
        // A scheduler has no time.
        cfg!(not(feature = "interleavings")) && !self.is_due.load(Ordering::Relaxed) && self.begin()
    }

    #[cold]
    fn begin(&self) -> bool {
        let mut due = self.due.lock();
        *due = Some(Instant::now() + LOCK_WATCH_TIME);
        self.is_due.store(true, Ordering::Relaxed);
        true
    }

    /// The time until the next comparison; `None` without a write since the last one.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.due.lock().map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// True if the caller is to compare the file now. Later writes ask for another comparison.
    pub(crate) fn take_due(&self) -> bool {
        let mut due = self.due.lock();
        let is_due = due.is_some_and(|due| due <= Instant::now());
        if is_due {
            *due = None;
            self.is_due.store(false, Ordering::Relaxed);
        }
        is_due
    }
}
