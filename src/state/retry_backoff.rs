//! [`RetryBackoff`]: transactions that conflict again and again run one at a time.
//!
//! Optimistic transactions have no fair order. One that begins a little later than another loses,
//! begins again a little later, and may lose every run. So a transaction that lost some runs takes
//! the turn before the next one. If it still loses, its turn is *urgent*: then other transactions
//! wait for it before their first run, whatever keys they use. Each wait is bounded, because the
//! holder may be the same thread, with a transaction inside of a transaction.

use crate::base::sync::{AtomicBool, Ordering, Wakeup};
use std::time::Duration;

/// A wait for the turn ends when it was not free for this long,
const WAIT_MAX: Duration = Duration::from_millis(5);

/// or when others were faster this often.
const WAITS_MAX: usize = 20;

/// Whose turn it is among the transactions of a database that run again.
#[derive(Debug, Default)]
pub(crate) struct RetryBackoff {
    taken: AtomicBool,
    urgent: AtomicBool,
    freed: Wakeup,
}

/// The turn of one transaction. Its drop frees it.
#[derive(Debug)]
pub(crate) struct RetryToken<'a>(&'a RetryBackoff);

impl RetryBackoff {
    /// Waits for the turn, for a while: `None` if it was not free then.
    pub(crate) fn take(&self) -> Option<RetryToken<'_>> {
        for _ in 0..WAITS_MAX {
            // Read before the attempt, so a turn that is freed after it wakes a newer generation.
            let generation = self.freed.generation();
            if !self.taken.swap(true, Ordering::SeqCst) {
                return Some(RetryToken(self));
            }
            if !self.freed.wait_past_for(generation, WAIT_MAX) {
                break;
            }
        }
        None
    }

    /// True if the holder of the turn cannot get on unless others wait.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
    }
}

impl RetryToken<'_> {
    /// Others wait from now on.
    pub(crate) fn set_urgent(&self) {
        self.0.urgent.store(true, Ordering::SeqCst);
    }
}

impl Drop for RetryToken<'_> {
    fn drop(&mut self) {
        self.0.urgent.store(false, Ordering::SeqCst);
        self.0.taken.store(false, Ordering::SeqCst);
        self.0.freed.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_inside_of_a_turn_does_not_block() {
        let retries = RetryBackoff::default();
        let outer = retries.take().unwrap();
        outer.set_urgent();
        assert!(retries.take().is_none() && retries.is_urgent());
        drop(outer);
        assert!(retries.take().is_some() && !retries.is_urgent());
    }
}
