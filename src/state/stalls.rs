//! Stalls: a writer waits for flushes or compactions, or is slowed down. Each wait is counted with
//! its cause and duration, told to the user's listener, and a span of `tracing`.
//!
//! The leader of the write queue and a bulk load call it, without a lock.

use crate::base::events::event::Event;
use crate::base::stats::counters::Counter;
use crate::base::sync::{Ordering, thread};
use crate::base::trace::{Span, span};
use crate::state::context::Context;
use crate::state::session::nanos;
use crate::state::writer::Writer;
use std::time::{Duration, Instant};

/// What groups owe adds up to this before one of them waits: the system wakes no thread sooner
/// than some tens of microseconds after its time.
const OWED_MIN: Duration = Duration::from_millis(1);

/// The longest wait of one group. A large batch leaves the rest of what it owes to the next groups.
const SLOWDOWN_MAX: Duration = Duration::from_millis(10);

/// The most that is owed.
const OWED_MAX: Duration = Duration::from_millis(100);

/// The name of a slowdown in events.
const SLOWDOWN_CAUSE: &str = "slowdown";

/// Why writes stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stall {
    /// Memtables or logs wait for their flush.
    Memtable,
    /// Level 0 of a keyspace is full.
    Level0,
}

impl Stall {
    /// Its name in events, and what counts it and its nanoseconds.
    fn parts(self) -> (&'static str, Counter, Counter) {
        match self {
            Stall::Memtable => ("memtable", Counter::MemtableStalls, Counter::MemtableStallNanos),
            Stall::Level0 => ("level0", Counter::Level0Stalls, Counter::Level0StallNanos),
        }
    }

    /// Runs `wait`, which ends when writes may continue.
    pub(crate) fn during(self, context: &Context, wait: impl FnOnce()) {
        let (cause, stalls, stall_nanos) = self.parts();
        let _span = span!("stall", context.directory, cause = cause);
        context.events.emit(|| Event::StallBegun { cause });
        let started = Instant::now();
        wait();
        context.counters.add(stalls, 1);
        context.counters.add(stall_nanos, nanos(started));
        context.events.emit(|| Event::StallEnded { cause, duration: started.elapsed() });
    }
}

/// A group owes `owed_nanos`: it waits, unless that and what earlier ones owe is too little yet.
/// The listener is told of the first wait of several in a row.
#[cold]
pub(crate) fn slow_down(context: &Context, writer: &Writer, owed_nanos: u64) {
    // Only the leader of the write queue changes it.
    let owed = Duration::from_nanos(writer.owed_nanos.load(Ordering::Relaxed) + owed_nanos);
    let mut left = owed.min(OWED_MAX);
    if left >= OWED_MIN {
        tell_slowdown(context, writer);
        let _span = span!("stall", context.directory, cause = SLOWDOWN_CAUSE);
        let started = Instant::now();
        thread::sleep(left.min(SLOWDOWN_MAX));
        // Awake later than that, it has paid for later groups.
        left = left.saturating_sub(started.elapsed());
        context.counters.add(Counter::Slowdowns, 1);
        context.counters.add(Counter::SlowdownNanos, nanos(started));
    }
    let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    writer.owed_nanos.store(left, Ordering::Relaxed);
}

fn tell_slowdown(context: &Context, writer: &Writer) {
    if context.events.is_on() {
        let mut since = writer.slowed_since.lock();
        // A close has ended the episode, or will end it: it takes this lock after its flag is set.
        if since.is_none() && !context.closed.load(Ordering::SeqCst) {
            context.events.emit(|| Event::StallBegun { cause: SLOWDOWN_CAUSE });
            *since = Some(Instant::now());
        }
    }
}

/// Called for a group without debt, and by a close. What earlier groups still owe stays owed.
#[inline]
pub(crate) fn full_speed(context: &Context, writer: &Writer) {
    // Only a listener asks when a slowdown ends; without one this is a load and a branch.
    if context.events.is_on()
        && let Some(since) = writer.slowed_since.lock().take()
    {
        let duration = since.elapsed();
        context.events.emit(|| Event::StallEnded { cause: SLOWDOWN_CAUSE, duration });
    }
}
