//! Progress bars on standard error; nothing is drawn when that is not a terminal.
//!
//! A command reports its progress to a [`Bar`], and says what replaces the bar at the end.
//! [`watched`] draws a bar for one long call, from counters. Results never go through here, and a
//! script that reads both streams sees no bar.

use indicatif::{ProgressBar, ProgressStyle};
use siftdb::{Db, Stats};
use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How often [`watched`] reads the counters.
const TICK: Duration = Duration::from_millis(100);

/// One line of progress.
pub struct Bar {
    bar: ProgressBar,
    /// Entries that [`Bar::step`] counted.
    steps: Cell<u64>,
}

impl Bar {
    /// Counts bytes, of a known total or not.
    pub fn bytes(name: &'static str, total: Option<u64>) -> Self {
        Bar::new(name, total, "{bytes}", "{bytes} of {total_bytes}")
    }

    /// Counts keys, of a known total or not.
    pub fn keys(name: &'static str, total: Option<u64>) -> Self {
        Bar::new(name, total, "{human_pos}", "{human_pos} of {human_len}")
    }

    /// Counts keys, of a total that is an estimate.
    pub fn about_keys(name: &'static str, total: u64) -> Self {
        Bar::new(name, Some(total), "", "{human_pos} of about {human_len}")
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
        Bar { bar: bar.with_message(name), steps: Cell::new(0) }
    }

    /// Advances by `count`.
    pub fn add(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Advances by one, for loops that are too fast to draw each time. Returns the sum.
    pub fn step(&self) -> u64 {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps.is_multiple_of(1 << 14) {
            self.set(steps);
        }
        steps
    }

    /// Advances to `count`.
    pub fn set(&self, count: u64) {
        self.bar.set_position(count);
    }

    /// Does `work`, which prints, without the bar.
    pub fn hidden<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }

    /// A name that turns, above which lines appear.
    pub fn lines(name: &'static str) -> Self {
        Bar::new(name, None, "", "")
    }

    /// Prints a line above the bar, if that is drawn.
    pub fn line(&self, line: &str) {
        self.bar.println(format!("  {:<9} {line}", self.bar.message()));
        self.bar.tick();
    }

    /// Replaces the bar by a line, if it was drawn.
    pub fn finish(&self, line: &str) {
        self.line(line);
        self.bar.finish_and_clear();
    }
}

/// Dropping removes the bar, also at an early return, so that the error has a line of its own.
impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Does `work` on `db` with a bar of bytes. `done` computes the finished part of `total` from the
/// counters since the start.
pub fn watched<T>(
    name: &'static str,
    db: &Db,
    total: u64,
    done: impl Fn(&Stats) -> u64 + Send,
    work: impl FnOnce(&Db) -> T,
) -> T {
    if !std::io::stderr().is_terminal() {
        return work(db);
    }
    let bar = Bar::bytes(name, Some(total));
    let before = db.stats();
    std::thread::scope(|scope| {
        // Ends the loop when this function returns or panics: the channel then has no sender.
        let (_working, end) = sync_channel::<()>(0);
        scope.spawn(move || {
            while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                bar.set(done(&db.stats().since(&before)).min(total));
            }
        });
        work(db)
    })
}
