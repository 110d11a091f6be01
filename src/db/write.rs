//! The trip of a write: join the queue; the leader of a group makes room, numbers the entries,
//! appends them to the log (and syncs if asked), applies them to the memtable, publishes.
//!
//! One leader at a time, so one appender, one applier, and sequences published in order. An error
//! means "not acknowledged": the group is invisible until reopen, and then there whole or not at
//! all; the error is latched and every later write answers it (I8). A sync covers every write
//! before it: older logs with unsynced writes are synced first (there must be
//! no hole between logs).
//!
//! Stalls: a write that needs a new memtable waits while too many wait for their flush or level 0
//! is full; each wait is counted with its reason and duration.

use crate::db::queue::{Joined, Request};
use crate::db::state::{ImmutableMemtable, LogState, ReadView, Shared, TOMBSTONES_MAX};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::key::SEQUENCE_MAX;
use crate::options::access::WriteOptions;
use crate::stats::counters::Counter;
use crate::sync::{Arc, Ordering, thread};
use crate::version::edit::{FileMeta, FirstLog, VersionEdit};
use crate::version::set::{ManifestPosition, VersionSet};
use crate::wal::evidence::CleanClose;
use crate::wal::format::WalStart;
use crate::wal::writer::WalWriter;
use crate::write_batch::{DecodedBatch, WriteBatch};
use std::time::{Duration, Instant};

/// A write waits this long, once a group, while level 0 grows faster than it is compacted.
const SLOWDOWN: Duration = Duration::from_millis(1);

/// How far ahead of its tail a log is allocated, at most.
const LOG_ALLOCATION_BYTES_MAX: u64 = 1 << 20;

/// Writes a batch.
///
/// # Errors
/// `InvalidArgument` for a batch beyond a limit, `Closed`, `ReadOnly`, or the failure of the log.
pub fn write(shared: &Shared, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
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
pub fn sync(shared: &Shared) -> Result<()> {
    write(shared, WriteBatch::new(), &WriteOptions::new().sync(true))
}

/// Turns the active memtable into an immutable one, unless it is empty.
///
/// # Errors
/// As for [`write`].
pub fn switch(shared: &Shared) -> Result<()> {
    shared.check_writable()?;
    submit(shared, Request { batch: WriteBatch::new(), sync: false, switch: true })
}

fn submit(shared: &Shared, request: Request) -> Result<()> {
    // Before it waits in line or writes to the log.
    shared.process.check()?;
    match shared.queue.join(request) {
        Joined::Done(result) => result,
        Joined::Lead(mut leadership, own) => {
            let latch = LatchOnPanic(shared);
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
            drop(latch);
            result
        }
    }
}

/// A leader that unwinds leaves log and memtable in an unknown state: no more writes.
struct LatchOnPanic<'a>(&'a Shared);

impl Drop for LatchOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = std::io::Error::other("a thread panicked while it wrote");
            self.0.latch(Error::io("write", &self.0.directory, cause));
        }
    }
}

fn commit(shared: &Shared, group: &[Request]) -> Result<()> {
    let switch = group.iter().any(|request| request.switch);
    let sync = group.iter().any(|request| request.sync);
    let count: usize = group.iter().map(|request| request.batch.len()).sum();
    make_room(shared, switch, count > 0)?;
    let mut log = shared.log.lock();
    // Under the lock: `close` marks the database closed before it ends the log.
    shared.check_writable()?;
    if must_switch(shared, switch) {
        switch_memtable(shared, &mut log).map_err(|error| shared.latch(error))?;
    }
    if count > 0 {
        append(shared, &mut log, group, count).map_err(|error| shared.latch(error))?;
    }
    if sync {
        sync_logs(shared, &mut log).map_err(|error| shared.latch(error))?;
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

/// Switches a memtable that is to be flushed for its tombstones; answers whether there was one.
///
/// # Errors
/// The failure of the new log; it is latched.
pub fn switch_for_tombstones(shared: &Shared) -> Result<bool> {
    if !shared.tombstones_pile_up() {
        return Ok(false);
    }
    // Whoever holds it stands in the place of a leader.
    let mut log = shared.log.lock();
    shared.check_writable()?;
    if log.current.is_none() || !shared.tombstones_pile_up() {
        return Ok(false);
    }
    shared.scans_pass_tombstones.store(false, Ordering::Relaxed);
    switch_memtable(shared, &mut log).map_err(|error| shared.latch(error))?;
    Ok(true)
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
    // Also if that failed: the record may be in the log all the same, so its numbers are used.
    log.next_sequence = last + 1;
    let bytes = appended?;
    log.last_sequence = last;
    shared.counters.add(Counter::WalBytes, bytes);
    Ok(())
}

/// Puts the group into the memtable, then makes it visible; answers how many tombstones are there.
fn apply(shared: &Shared, log: &LogState, group: &[Request], count: usize) -> usize {
    let view = shared.view.load();
    let mut sequence = log.last_sequence + 1 - count as u64;
    // I3: no reader may see what is not inserted yet.
    debug_assert!(shared.published.visible() < sequence);
    for request in group {
        let entries = request.batch.len() as u32;
        view.active.apply(&DecodedBatch::trusted(sequence, entries, request.batch.entries()));
        sequence += u64::from(entries);
    }
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

/// Ends the session: everything synced, then the mark of a clean close in the manifest. A session
/// that wrote nothing has no log and leaves the mark of the one before.
///
/// # Errors
/// The failure of a sync or of the mark.
pub fn finish_log(shared: &Shared) -> Result<()> {
    let mut log = shared.log.lock();
    sync_older_logs(shared, &mut log)?;
    let Some(mut wal) = log.current.take() else { return Ok(()) };
    wal.sync()?;
    shared.versions.lock().mark_closed(CleanClose {
        log: wal.number(),
        log_bytes: wal.bytes(),
        last_sequence: log.last_sequence,
    })
}

fn sync_older_logs(shared: &Shared, log: &mut LogState) -> Result<()> {
    for wal in &mut log.unsynced {
        wal.sync()?;
        shared.counters.add(Counter::WalSyncs, 1);
    }
    log.unsynced.clear();
    Ok(())
}

/// Syncs every log with unsynced writes, oldest first.
fn sync_logs(shared: &Shared, log: &mut LogState) -> Result<()> {
    sync_older_logs(shared, log)?;
    if let Some(wal) = log.current.as_mut()
        && log.synced_through < log.last_sequence
    {
        wal.sync()?;
        shared.counters.add(Counter::WalSyncs, 1);
    }
    // I13: this log was synced after every older one.
    debug_assert!(log.unsynced.is_empty() && log.synced_through <= log.last_sequence);
    log.synced_through = log.last_sequence;
    Ok(())
}

fn must_switch(shared: &Shared, asked: bool) -> bool {
    let active = &shared.view.load().active;
    !active.is_empty() && (asked || active.bytes() >= shared.options.write_buffer_bytes)
}

/// Waits until the group may go on: called by the leader, holding no lock.
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
        while full() && !shared.failure.is_set() && !jobs.stopping {
            shared.done.wait(&mut jobs);
        }
        drop(jobs);
        shared.counters.add(stalls, 1);
        shared.counters.add(stall_nanos, nanos(started));
        shared.check_writable()?;
    }
    Ok(())
}

fn nanos(started: Instant) -> u64 {
    started.elapsed().as_nanos() as u64
}

/// A new memtable and its log; the old memtable waits for its flush.
fn switch_memtable(shared: &Shared, log: &mut LogState) -> Result<()> {
    let number = shared.numbers.take_file_number();
    if let Some(old) = &log.current {
        log.previous_log = old.number();
    }
    // The log first: an edit may name it as soon as it is in the view, and a log that an edit
    // names must be there after a crash.
    let started = Instant::now();
    let wal = create_log(shared, log, number, *shared.numbers.position.lock())?;
    shared.counters.add(Counter::LogSwitches, 1);
    shared.counters.add(Counter::LogSwitchNanos, nanos(started));
    let last_sequence = log.last_sequence;
    // I3: a memtable is full only when all of it is published. Readers of the new view count on it.
    debug_assert_eq!(shared.published.visible(), last_sequence);
    shared.update_view(|view| {
        let old = ImmutableMemtable {
            memtable: Arc::clone(&view.active),
            log_number: view.active_log,
            last_sequence,
        };
        ReadView {
            active: Shared::new_memtable(&shared.options),
            active_log: number,
            immutables: std::iter::once(old).chain(view.immutables.iter().cloned()).collect(),
            ..view.clone()
        }
    });
    if let Some(old) = log.current.replace(wal)
        && log.synced_through < log.last_sequence
    {
        log.unsynced.push(old);
    }
    shared.want(true, false);
    Ok(())
}

/// Makes sure that this session has a manifest and a log of its own: before the first write is
/// acknowledged, before the first edit, and not before, so that opening writes nothing.
///
/// # Errors
/// The failure of either file; it is latched.
pub fn activate(shared: &Shared) -> Result<()> {
    shared.process.check()?;
    let mut log = shared.log.lock();
    shared.check_writable()?;
    session_log(shared, &mut log).map(drop).map_err(|error| shared.latch(error))
}

/// The log of this session; its first use begins the session.
fn session_log<'a>(shared: &Shared, log: &'a mut LogState) -> Result<&'a mut WalWriter> {
    // Taken out and put back, so that no path leads on without a log.
    let wal = match log.current.take() {
        Some(wal) => wal,
        None => start_session(shared, log, None)?,
    };
    Ok(log.current.insert(wal))
}

/// Begins the session of a database whose logs were written forward into `tables`.
///
/// # Errors
/// The failure of the log or the manifest.
pub fn begin_recovered(shared: &Shared, tables: Vec<FileMeta>) -> Result<()> {
    let mut log = shared.log.lock();
    let wal = start_session(shared, &log, Some(tables))?;
    log.current = Some(wal);
    // In tables, all of it.
    log.synced_through = log.last_sequence;
    Ok(())
}

/// Creates the first log of this session, and its manifest where it has none. Everything that was
/// recovered is in the tables `recovered`, if they are given, or in the logs and memtables.
fn start_session(
    shared: &Shared,
    log: &LogState,
    recovered: Option<Vec<FileMeta>>,
) -> Result<WalWriter> {
    let number = shared.numbers.take_file_number();
    let mut versions = shared.versions.lock();
    let wal = if versions.is_active() {
        // The session that created the database: from now on a missing log is damage.
        let wal = create_log(shared, log, number, *shared.numbers.position.lock())?;
        let first_log = FirstLog { number, flushed_through: log.last_sequence };
        let edit = VersionEdit { first_log: Some(first_log), ..VersionEdit::default() };
        versions.apply(edit, log.last_sequence)?;
        wal
    } else {
        // The log first, naming the manifest to come: should a crash come between, recovery sees
        // a log of a session that never began.
        let manifest = shared.numbers.take_file_number();
        let coming = ManifestPosition { number: manifest, synced_bytes: 0 };
        let wal = create_log(shared, log, number, coming)?;
        let first_log = FirstLog { number, flushed_through: log.last_sequence };
        let edit = VersionEdit {
            first_log: recovered.is_some().then_some(first_log),
            added: recovered.into_iter().flatten().map(|meta| (0, meta)).collect(),
            ..VersionEdit::default()
        };
        if let Err(error) = versions.activate_with(manifest, Some(number), &edit, log.last_sequence)
        {
            remove_abandoned(shared, &versions, number);
            return Err(error);
        }
        // Now, while every table that anyone may read is in the version; removed in the background.
        let orphans = versions.orphans()?;
        shared.jobs.lock().orphans = orphans;
        wal
    };
    // Before the lock goes: a flush that waits for it writes down which logs are still needed.
    let version = Arc::clone(versions.current());
    shared.update_view(|view| ReadView { active_log: number, version, ..view.clone() });
    drop(versions);
    // What recovery left as immutable memtables can now be flushed.
    shared.want(true, true);
    Ok(wal)
}

/// The files of a session that never began: nothing names them, and each further attempt would
/// leave as many. Where the new manifest may be in force they stay.
fn remove_abandoned(shared: &Shared, versions: &VersionSet, log: u64) {
    let abandoned = versions.abandoned();
    let log = (!abandoned.is_empty()).then_some(FileName::Wal(log));
    for name in abandoned.iter().copied().chain(log) {
        let _ = shared.env.remove(&name.path(&shared.directory));
    }
}

/// The first log after a restart, which names the manifest to come.
///
/// # Errors
/// The failure of the log.
pub fn begin_log(
    shared: &Shared,
    log: &mut LogState,
    number: u64,
    manifest: u64,
) -> Result<WalWriter> {
    if let Some(old) = &log.current {
        log.previous_log = old.number();
    }
    create_log(shared, log, number, ManifestPosition { number: manifest, synced_bytes: 0 })
}

fn create_log(
    shared: &Shared,
    log: &LogState,
    number: u64,
    manifest: ManifestPosition,
) -> Result<WalWriter> {
    shared.check_lock()?;
    let start = WalStart {
        synced_through: log.synced_through,
        previous_log: log.previous_log,
        previous_last_sequence: log.last_sequence,
        first_sequence: log.next_sequence,
        manifest_number: manifest.number,
        manifest_synced_bytes: manifest.synced_bytes,
    };
    // An eighth of what the log is to hold, so that a small store has small logs.
    let step = (shared.options.write_buffer_bytes as u64 / 8).min(LOG_ALLOCATION_BYTES_MAX);
    WalWriter::create(&*shared.env, &shared.directory, number, &start, step)
}
