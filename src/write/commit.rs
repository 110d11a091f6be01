//! The path of a write. Writers join the queue. The leader of a group makes room, numbers the
//! entries, appends them to the log (and syncs if asked), applies them to the memtable, and
//! publishes them.
//!
//! One leader at a time means one appender, and sequences are published in order. An error means
//! "not acknowledged": the group is invisible until the database is reopened, and then it is there
//! whole or not at all. The error becomes the background error, which every later write answers
//! (I8). A sync covers every earlier write: older logs with unsynced writes are synced first (I13).
//!
//! Stalls: a write that needs a new memtable waits while too many memtables wait for their flush or
//! level 0 is full. Each wait is counted with its reason and duration.

use crate::base::error::{Error, Result};
use crate::base::key::SEQUENCE_MAX;
use crate::base::stats::counters::Counter;
use crate::base::sync::thread;
use crate::base::write_batch::{DecodedBatch, WriteBatch};
use crate::options::access::WriteOptions;
use crate::state::session::{nanos, session_log, switch_memtable, sync_logs};
use crate::state::shared::{LogState, Shared, TOMBSTONES_MAX};
use crate::state::write_queue::{Joined, Request};
use std::time::{Duration, Instant};

/// Each group waits this long while level 0 grows faster than it is compacted.
const SLOWDOWN: Duration = Duration::from_millis(1);

/// Writes a batch.
///
/// # Errors
/// `InvalidArgument` for a batch beyond a limit, `Closed`, `ReadOnly`, or the failure of the log.
pub(crate) fn write(shared: &Shared, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
    batch.check()?;
    shared.check_writable()?;
    if batch.is_empty() && !options.sync {
        return Ok(());
    }
    submit(shared, Request { batch, sync: options.sync, switch: false })
}

/// Makes every write acknowledged so far durable.
///
/// # Errors
/// As for [`write`].
pub(crate) fn sync(shared: &Shared) -> Result<()> {
    write(shared, WriteBatch::new(), &WriteOptions::new().sync(true))
}

/// Turns the active memtable into an immutable one, unless it is empty.
///
/// # Errors
/// As for [`write`].
pub(crate) fn switch(shared: &Shared) -> Result<()> {
    shared.check_writable()?;
    submit(shared, Request { batch: WriteBatch::new(), sync: false, switch: true })
}

fn submit(shared: &Shared, request: Request) -> Result<()> {
    // A forked child must neither wait nor write.
    shared.process.check()?;
    match shared.queue.join(request) {
        Joined::Done(result) => result,
        Joined::Lead(mut leadership, own) => {
            let guard = PanicGuard(shared);
            let mut group = leadership.take_group(&own);
            group.insert(0, own);
            let result = commit(shared, &group);
            leadership.complete(&result);
            loop {
                let group = leadership.take_next_group();
                if group.is_empty() {
                    break;
                }
                leadership.complete(&commit(shared, &group));
            }
            drop(guard);
            result
        }
    }
}

/// A leader that panics leaves log and memtable in an unknown state: no more writes are taken.
struct PanicGuard<'a>(&'a Shared);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = std::io::Error::other("a thread panicked while it wrote");
            self.0.set_background_error(Error::io("write", &self.0.directory, cause));
        }
    }
}

fn commit(shared: &Shared, group: &[Request]) -> Result<()> {
    let switch = group.iter().any(|request| request.switch);
    let sync = group.iter().any(|request| request.sync);
    let count: usize = group.iter().map(|request| request.batch.len()).sum();
    make_room(shared, switch, count > 0)?;
    let mut log = shared.log.lock();
    // Under the lock: `close` sets the flag before it takes this lock to end the log.
    shared.check_writable()?;
    if must_switch(shared, switch) {
        switch_memtable(shared, &mut log).map_err(|error| shared.set_background_error(error))?;
    }
    if count > 0 {
        append(shared, &mut log, group, count)
            .map_err(|error| shared.set_background_error(error))?;
    }
    if sync {
        sync_logs(shared, &mut log).map_err(|error| shared.set_background_error(error))?;
    }
    if count > 0 {
        let tombstones = apply(shared, &log, group, count);
        drop(log);
        if tombstones >= TOMBSTONES_MAX && shared.tombstones_pile_up() {
            shared.work.ring();
        }
    }
    Ok(())
}

/// Appends the group to the log as one record and numbers its entries.
fn append(shared: &Shared, log: &mut LogState, group: &[Request], count: usize) -> Result<()> {
    let first = log.next_sequence;
    let last = first + count as u64 - 1;
    if last > SEQUENCE_MAX {
        return Err(Error::InvalidArgument { what: "all sequence numbers are used up".into() });
    }
    let entries: Vec<&[u8]> = group.iter().map(|request| request.batch.entries()).collect();
    let synced_through = log.synced_through;
    let wal = session_log(shared, log)?;
    let appended = wal.append(synced_through, first, count as u32, &entries);
    // Even after a failure: the record may be in the log, so its numbers are used up (I10).
    log.next_sequence = last + 1;
    let bytes = appended?;
    log.last_sequence = last;
    shared.counters.add(Counter::WalBytes, bytes);
    Ok(())
}

/// Inserts the group into the memtable, then publishes it. Returns the tombstones of the memtable.
fn apply(shared: &Shared, log: &LogState, group: &[Request], count: usize) -> usize {
    let view = shared.view.load();
    let mut sequence = log.last_sequence + 1 - count as u64;
    // I3: readers see a sequence only after its entry is inserted, so all inserts come first.
    debug_assert!(shared.published.visible() < sequence);
    for request in group {
        let entries = request.batch.len() as u32;
        view.active.apply(&DecodedBatch::trusted(sequence, entries, request.batch.entries()));
        sequence += u64::from(entries);
    }
    // One store makes the whole group visible at once; a batch is never seen in part.
    shared.published.publish(log.last_sequence);
    let stripe = shared.counters.stripe();
    let batches = group.iter().filter(|request| !request.batch.is_empty());
    stripe.add(Counter::WriteGroups, 1);
    stripe.add(Counter::Batches, batches.count() as u64);
    stripe.add(Counter::Entries, count as u64);
    let bytes = group.iter().map(|request| request.batch.payload_bytes() as u64);
    stripe.add(Counter::EntryBytes, bytes.sum());
    view.active.tombstones()
}

fn must_switch(shared: &Shared, asked: bool) -> bool {
    let active = &shared.view.load().active;
    !active.is_empty() && (asked || active.bytes() >= shared.options.write_buffer_bytes)
}

/// Waits until the group may be written. Called by the leader without a lock.
fn make_room(shared: &Shared, asked: bool, writes: bool) -> Result<()> {
    let level0 = || shared.view.load().version.level(0).len();
    if writes && level0() >= shared.options.level0_slowdown() {
        let started = Instant::now();
        thread::sleep(SLOWDOWN);
        shared.counters.add(Counter::Level0Slowdowns, 1);
        shared.counters.add(Counter::Level0SlowdownNanos, nanos(started));
    }
    if !must_switch(shared, asked) {
        return Ok(());
    }
    let memtables_full =
        || shared.view.load().immutables.len() >= shared.options.immutable_memtables_max;
    let reasons: [(&dyn Fn() -> bool, Counter, Counter); 2] = [
        (&memtables_full, Counter::MemtableStalls, Counter::MemtableStallNanos),
        (
            &|| level0() >= shared.options.level0_stop(),
            Counter::Level0Stalls,
            Counter::Level0StallNanos,
        ),
    ];
    for (full, stalls, stall_nanos) in reasons {
        if !full() {
            continue;
        }
        let started = Instant::now();
        let mut jobs = shared.jobs.lock();
        jobs.flush_wanted = true;
        jobs.compaction_wanted = true;
        shared.work.ring();
        while full() && !shared.background_error.is_set() && !jobs.stopping {
            shared.done.wait(&mut jobs);
        }
        drop(jobs);
        shared.counters.add(stalls, 1);
        shared.counters.add(stall_nanos, nanos(started));
        shared.check_writable()?;
    }
    Ok(())
}
