//! Progress bars on standard error; nothing is drawn when that is not a terminal.
//!
//! A bar is only ever told how much is done; the command that ends it says what is left in its
//! place. [`watched`] draws one for a single long call, from counters. Results never go through
//! here: those are for standard output, and a script that reads both streams sees no drawing.

use indicatif::{ProgressBar, ProgressStyle};
use siftdb::{Db, Stats};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How often [`watched`] looks at the counters.
const TICK: Duration = Duration::from_millis(100);

/// One line of progress.
pub struct Bar(ProgressBar);

impl Bar {
    /// Counts bytes, of a known total or not.
    pub fn bytes(name: &'static str, total: Option<u64>) -> Self {
        Bar::new(name, total, "{bytes}", "{bytes} of {total_bytes}")
    }

    /// Counts keys, of a known total or not.
    pub fn keys(name: &'static str, total: Option<u64>) -> Self {
        Bar::new(name, total, "{human_pos}", "{human_pos} of {human_len}")
    }

    fn new(name: &'static str, total: Option<u64>, count: &str, of: &str) -> Self {
        let (bar, template) = match total {
            Some(total) => {
                (ProgressBar::new(total), format!("  {{msg:<9}} {{bar:32}} {of}  {{eta}} left"))
            }
            None => (ProgressBar::new_spinner(), format!("  {{msg:<9}} {{spinner}} {count}")),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Bar(bar.with_message(name))
    }

    /// More is done.
    pub fn add(&self, count: u64) {
        self.0.inc(count);
    }

    /// This much is done.
    pub fn set(&self, count: u64) {
        self.0.set_position(count);
    }

    /// Takes the bar away and leaves a line, if there was a bar to see.
    pub fn finish(&self, line: &str) {
        self.0.println(format!("  {:<9} {line}", self.0.message()));
        self.0.finish_and_clear();
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// An early end takes the bar away as well, so that the error stands on a line of its own.
impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Does `work` on `db` with a bar of bytes: `done` reads from the counters since the start how
/// much of `total` is done.
pub fn watched<T: Send>(
    name: &'static str,
    db: &Db,
    total: u64,
    done: impl Fn(&Stats) -> u64,
    work: impl FnOnce(&Db) -> T + Send,
) -> T {
    if !std::io::stderr().is_terminal() {
        return work(db);
    }
    let bar = Bar::bytes(name, Some(total));
    let before = db.stats();
    std::thread::scope(|scope| {
        let (ended, end) = sync_channel::<()>(0);
        let worker = scope.spawn(move || {
            // Dropped at the end, also by a panic: that wakes the loop.
            let _ended = ended;
            work(db)
        });
        while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            bar.set(done(&db.stats().since(&before)).min(total));
        }
        bar.clear();
        match worker.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
