//! Runs a transaction until it is committed: it runs again after each conflict.
//!
//! A conflict means that another write was committed, so of many threads one always gets on.
//! `state/retry_backoff.rs` makes sure that each of them does.

use crate::base::error::{Error, Result};
use crate::base::sync::thread;
use crate::state::retry_backoff::{RetryBackoff, RetryToken};

/// Runs without the turn: most transactions that conflict once do not conflict again.
const RUNS_WITHOUT_TURN: u32 = 2;

/// Runs before the turn is urgent.
const RUNS_WITHOUT_URGENCY: u32 = 8;

/// Calls `run` until it answers no conflict, at most `runs_max` times.
///
/// # Errors
/// The last error of `run`.
pub(super) fn run_again<T>(
    retries: &RetryBackoff,
    runs_max: u32,
    mut run: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut turn: Option<RetryToken<'_>> = None;
    for runs in 1.. {
        if turn.is_none() && (runs > RUNS_WITHOUT_TURN || retries.is_urgent()) {
            turn = retries.take();
        }
        if runs > RUNS_WITHOUT_URGENCY
            && let Some(turn) = &turn
        {
            turn.set_urgent();
        }
        match run() {
            Err(Error::Conflict { .. }) if runs < runs_max => {}
            result => return result,
        }
        // The thread that was faster may continue.
        thread::yield_now();
    }
    unreachable!("the last run returns")
}
