//! The path of a write. Writers join the queue. The leader of a group makes room, numbers the
//! entries, appends them to the log (and syncs if asked), applies them to the memtable, and
//! publishes them.
//!
//! One leader at a time means one appender, and sequences are published in order. An error means
//! "not acknowledged": the group is invisible until the database is reopened, and then it is there
//! whole or not at all. The error becomes the background error, which every later write answers
//! (I8). A sync covers every earlier write: older logs with unsynced writes are synced first (I13).
//!
//! `room.rs` has the waits for flushes and compactions.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::{Error, Result};
use crate::base::expiry::{Expiry, clock_millis};
use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId, OWN_SEQUENCE_FIRST, SequenceNumber};
use crate::base::stats::counters::Counter;
use crate::base::stats::latency::TimedCall;
use crate::base::sync::{Arc, Ordering};
use crate::base::write_batch::WriteBatch;
use crate::memtable::memtable::Memtable;
use crate::options::access::WriteOptions;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::TOMBSTONES_MAX;
use crate::state::keyspace::{self, KeyspaceState};
use crate::state::read_set::ReadSet;
use crate::state::session::{session_log, switch_memtables, sync_logs, writable_memtable};
use crate::state::write_queue::{CheckedReads, Committed, Joined, Request, Switch};
use crate::state::writer::LogState;
use crate::write::conflict::{self, Refusal};
use crate::write::room::{make_room, to_switch};
use std::cell::OnceCell;
use std::slice;

/// A transaction joins the queue this often before it is checked while it leads.
pub(crate) const CHECKS_MAX: usize = 3;

/// Writes a batch.
///
/// # Errors
/// `InvalidArgument` for a batch beyond a limit, `Closed`, `ReadOnly`, or the failure of the log.
pub(crate) fn write(engine: &Engine, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
    check_batch(engine, &batch, options)?;
    if batch.is_empty() && !options.sync {
        return Ok(());
    }
    let (sync, expiry) = (options.sync || batch.sync, options.expiry);
    let timer = engine.context.timer();
    let answer = submit(engine, Request { sync, expiry, ..Request::of(batch) });
    timer.stop(&engine.context.counters, timed_as(sync));
    written(answer?)
}

/// What a write is timed as.
fn timed_as(sync: bool) -> TimedCall {
    if sync { TimedCall::Sync } else { TimedCall::Write }
}

/// Writes the batch of a transaction that read `set` at the sequence `since`.
///
/// # Errors
/// `Conflict` if anything in `set` was written since; as for [`write`]; the error of a table that
/// the check must read. Nothing was written then.
pub(crate) fn write_checked(
    engine: &Engine,
    batch: WriteBatch,
    options: &WriteOptions,
    set: ReadSet,
    since: SequenceNumber,
) -> Result<()> {
    // Without a read there is nothing to check.
    if set.keyspaces().next().is_none() {
        return write(engine, batch, options);
    }
    check_batch(engine, &batch, options)?;
    let timer = engine.context.timer();
    let sync = options.sync || batch.sync;
    let reads = CheckedReads { set, through: since, alone: false };
    let written = submit_checked(engine, batch, options, reads);
    timer.stop(&engine.context.counters, timed_as(sync));
    written
}

fn submit_checked(
    engine: &Engine,
    batch: WriteBatch,
    options: &WriteOptions,
    mut reads: CheckedReads,
) -> Result<()> {
    conflict::check(engine, &mut reads)?;
    let (sync, expiry) = (options.sync || batch.sync, options.expiry);
    let reads = Some(Box::new(reads));
    let mut request = Request { sync, expiry, reads, ..Request::of(batch) };
    for checks in 1.. {
        match submit(engine, request)? {
            Committed::Written => break,
            Committed::Unchecked(back) => request = *back,
        }
        if let Some(reads) = &mut request.reads {
            // After some attempts it is checked while it leads: nothing is written in between.
            reads.alone = checks >= CHECKS_MAX;
            if !reads.alone {
                conflict::check(engine, reads)?;
            }
        }
    }
    Ok(())
}

/// The answer to a request without reads, which is never left unchecked.
fn written(committed: Committed) -> Result<()> {
    debug_assert!(matches!(committed, Committed::Written), "only reads are checked");
    Ok(())
}

/// Refuses what no group may have.
///
/// # Errors
/// `InvalidArgument`, `Closed`, `ReadOnly`, `OpenedReadOnly`.
#[inline]
pub(crate) fn check_batch(
    engine: &Engine,
    batch: &WriteBatch,
    options: &WriteOptions,
) -> Result<()> {
    batch.check()?;
    engine.check_writable()?;
    if batch.database.is_some_and(|database| database != engine.context.instance) {
        let what = "a batch with a keyspace of another database, or of an earlier opening";
        return Err(Error::InvalidArgument { what: what.into() });
    }
    options.expiry.map_or(Ok(()), Expiry::check)
}

/// Makes every write acknowledged so far durable.
///
/// # Errors
/// As for [`write`].
pub(crate) fn sync(engine: &Engine) -> Result<()> {
    write(engine, WriteBatch::new(), &WriteOptions::new().sync(true))
}

/// Turns active memtables into immutable ones, unless they are empty.
///
/// # Errors
/// As for [`write`].
pub(crate) fn switch(engine: &Engine, switch: Switch) -> Result<()> {
    engine.check_writable()?;
    written(submit(engine, Request { switch, ..Request::of(WriteBatch::new()) })?)
}

fn submit(engine: &Engine, request: Request) -> Result<Committed> {
    // A forked child must neither wait nor write.
    engine.context.process.check()?;
    match engine.writer.queue.join(request) {
        Joined::Done(result) => result,
        Joined::Lead(mut leadership, mut own) => {
            if let Some(reads) = own.reads.as_mut().filter(|reads| reads.alone) {
                conflict::check(engine, reads)?;
            }
            let guard = PanicGuard(engine);
            let mut others = leadership.take_group(&own);
            // Most groups have one request: no list of them is made.
            let group = match others.is_empty() {
                true => slice::from_mut(&mut own),
                false => {
                    others.insert(0, own);
                    &mut others
                }
            };
            let mut outcome = commit(engine, group);
            leadership.complete(|index| outcome.answer(index + 1));
            let result = outcome.answer(0);
            let has_wakers = loop {
                // They are called without the lead, and soon: another thread leads the next group.
                if engine.writer.watchers.wake_blocked() {
                    break true;
                }
                let mut group = leadership.take_next_group();
                if group.is_empty() {
                    break false;
                }
                let mut outcome = commit(engine, &mut group);
                leadership.complete(|index| outcome.answer(index));
            };
            drop(guard);
            drop(leadership);
            if has_wakers {
                engine.writer.watchers.call_wakers();
            }
            result
        }
    }
}

/// What became of a group.
struct Outcome<'g> {
    group: &'g mut [Request],
    /// The answer to all requests but the refused ones.
    result: Result<()>,
    /// Requests that were left out, by their index in the group, and why.
    refused: Vec<(usize, Refusal)>,
}

impl Outcome<'_> {
    #[inline]
    fn answer(&mut self, index: usize) -> Result<Committed> {
        match self.refused.is_empty() {
            true => self.result.clone().map(|()| Committed::Written),
            false => self.answer_any(index),
        }
    }

    #[cold]
    fn answer_any(&mut self, index: usize) -> Result<Committed> {
        match self.refused.iter().find(|(refused, _)| *refused == index) {
            Some((_, Refusal::Failed(error))) => Err(error.clone()),
            Some((_, Refusal::Unchecked)) if self.result.is_ok() => {
                let empty = Request::of(WriteBatch::new());
                let request = std::mem::replace(&mut self.group[index], empty);
                Ok(Committed::Unchecked(Box::new(request)))
            }
            Some((_, Refusal::Unchecked)) | None => {
                self.result.clone().map(|()| Committed::Written)
            }
        }
    }
}

/// A leader that panics leaves log and memtable in an unknown state: no more writes are taken.
struct PanicGuard<'a>(&'a Engine);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = std::io::Error::other("a thread panicked while it wrote");
            self.0.set_background_error(Error::io("write", &self.0.context.directory, cause));
        }
    }
}

#[inline]
fn commit<'g>(engine: &Engine, group: &'g mut [Request]) -> Outcome<'g> {
    let mut refused = Vec::new();
    let result = try_commit(engine, group, &mut refused);
    Outcome { group, result, refused }
}

fn try_commit(
    engine: &Engine,
    group: &[Request],
    refused: &mut Vec<(usize, Refusal)>,
) -> Result<()> {
    make_room(engine, group)?;
    let mut log = engine.writer.log.lock();
    // Under the lock: `close` sets the flag before it takes this lock to end the log, and a drop
    // takes it to end a keyspace.
    engine.check_writable()?;
    let switched = to_switch(engine, group);
    // The log is long without a full memtable if keyspaces were dropped.
    let log_bytes = log.current.as_ref().map_or(0, |wal| wal.records.bytes());
    if !switched.is_empty() || log_bytes >= engine.context.options.write_buffer_bytes as u64 {
        switch_memtables(engine, &mut log, &switched)?;
    }
    let named = accept(&engine.catalog, group, refused);
    let expiring = expiring_batches(&engine.context, &engine.catalog, group, &named, refused);
    // The last that refuses: what it lets pass is numbered and logged.
    conflict::refuse_conflicts(&engine.context, &engine.writer, &log, group, refused);
    let accepted = group.iter().enumerate();
    let accepted = accepted.filter(|(index, _)| refused.iter().all(|(left, _)| left != index));
    let sync = accepted.clone().any(|(_, request)| request.sync);
    let batches = accepted.map(|(index, request)| {
        match expiring.binary_search_by_key(&index, |(expiring, _)| *expiring) {
            Ok(at) => &expiring[at].1,
            Err(_) => &request.batch,
        }
    });
    let count: usize = batches.clone().map(WriteBatch::len).sum();
    let deletes_ranges = batches.clone().any(|batch| batch.deletes_ranges);
    if count > 0 {
        append(engine, &mut log, batches.clone(), count).map_err(|error| {
            // It has the writes of this group, and they were not made.
            engine.writer.recent.list().clear();
            engine.set_background_error(error)
        })?;
    }
    if sync {
        sync_logs(engine, &mut log).map_err(|error| engine.set_background_error(error))?;
    }
    if count > 0 {
        let default_may_pile_up = apply(engine, &log, batches, &named, count);
        drop(log);
        if !sync && engine.writer.lock_watch.note_write() {
            engine.jobs.work.wake();
        }
        if deletes_ranges {
            let all = named.iter().chain([&engine.catalog.default]);
            all.for_each(|keyspace| engine.jobs.schedule_table_removal(keyspace));
        }
        let named = named.iter().filter(|keyspace| may_pile_up(&keyspace.view.load().active));
        let default = default_may_pile_up.then_some(&engine.catalog.default);
        named.chain(default).for_each(|keyspace| engine.jobs.schedule_tombstone_flush(keyspace));
    }
    Ok(())
}

/// The keyspaces that the batches name, by number, without `default`. A batch that names a dropped
/// keyspace is refused; the others of the group are written.
fn accept(
    catalog: &Catalog,
    group: &[Request],
    refused: &mut Vec<(usize, Refusal)>,
) -> Vec<Arc<KeyspaceState>> {
    let mut keyspaces = Vec::new();
    for (index, request) in group.iter().enumerate() {
        let ids = &request.batch.keyspaces;
        if ids.is_empty() {
            continue;
        }
        let all = catalog.keyspaces.lock();
        match ids.iter().map(|id| keyspace::written(&all, *id).cloned()).collect::<Result<Vec<_>>>()
        {
            Ok(named) => keyspaces.extend(named),
            Err(error) => {
                let conflict = request.reads.as_ref().and_then(|reads| conflict::with_drop(reads));
                refused.push((index, Refusal::Failed(conflict.unwrap_or(error))));
            }
        }
    }
    keyspaces.sort_by_key(|keyspace| keyspace.id);
    keyspaces.dedup_by_key(|keyspace| keyspace.id);
    keyspaces
}

/// The batches of the group whose puts expire, with the time of each, by their index in the group.
/// This is the one place that computes the end of a duration. A batch that grows beyond the limit
/// is refused.
fn expiring_batches(
    context: &Context,
    catalog: &Catalog,
    group: &[Request],
    named: &[Arc<KeyspaceState>],
    refused: &mut Vec<(usize, Refusal)>,
) -> Vec<(usize, WriteBatch)> {
    let default = catalog.default.expiry();
    // Groups without expiry, which most are, pay these loads and never ask the clock.
    if default.is_none()
        && named.iter().all(|keyspace| keyspace.expiry().is_none())
        && group
            .iter()
            .all(|request| request.expiry.is_none() && request.batch.expire_after.is_empty())
    {
        return Vec::new();
    }
    let now = clock_millis(context.env.now());
    let of_keyspace = |id: KeyspaceId| match id {
        DEFAULT_KEYSPACE => default,
        id => {
            let index = named.binary_search_by_key(&id, |keyspace| keyspace.id);
            index.ok().and_then(|index| named[index].expiry())
        }
    };
    let mut batches = Vec::new();
    for (index, request) in group.iter().enumerate() {
        if refused.iter().any(|(left, _)| *left == index) {
            continue;
        }
        let expiry = |id| request.expiry.or_else(|| of_keyspace(id));
        let batch = request.batch.with_expiry(now, expiry);
        match batch.check() {
            Ok(()) => batches.push((index, batch)),
            Err(error) => refused.push((index, Refusal::Failed(error))),
        }
    }
    batches
}

/// Appends the batches to the log as one record and numbers their entries.
fn append<'g>(
    engine: &Engine,
    log: &mut LogState,
    batches: impl Iterator<Item = &'g WriteBatch> + Clone,
    count: usize,
) -> Result<()> {
    let first = log.next_sequence;
    let last = first + count as u64 - 1;
    if last >= OWN_SEQUENCE_FIRST {
        return Err(Error::InvalidArgument { what: "all sequence numbers are used up".into() });
    }
    let synced_through = log.synced_through;
    let wal = session_log(engine, log)?;
    let appended =
        wal.append(synced_through, first, count as u32, batches.map(|batch| &*batch.entries));
    // Even after a failure: the record may be in the log, so its numbers are used up (I10).
    log.next_sequence = last + 1;
    let bytes = appended?;
    log.last_sequence = last;
    engine.context.counters.add(Counter::WalBytes, bytes);
    Ok(())
}

/// Inserts the batches into the memtables of `default` and of the keyspaces `named`, then publishes
/// them. True if something was inserted into the memtable of `default` and it [`may_pile_up`].
fn apply<'g>(
    engine: &Engine,
    log: &LogState,
    batches: impl Iterator<Item = &'g WriteBatch> + Clone,
    named: &[Arc<KeyspaceState>],
    count: usize,
) -> bool {
    let mut sequence = log.last_sequence + 1 - count as u64;
    // I3: readers see a sequence only after its entry is inserted, so all inserts come first.
    debug_assert!(engine.catalog.published.visible() < sequence);
    // Most groups write to `default` alone: its memtable is looked up once.
    let default = OnceCell::new();
    let memtable = || {
        default.get_or_init(|| {
            let memtable =
                writable_memtable(&engine.context, &engine.writer, &engine.catalog.default);
            let bytes = memtable.bytes();
            (memtable, bytes)
        })
    };
    let (mut written, mut payload_bytes) = (0, 0);
    for batch in batches {
        let entries = batch.len() as u32;
        let decoded = DecodedBatch::trusted(sequence, entries, &batch.entries);
        match &batch.keyspaces[..] {
            [] if entries > 0 => memtable().0.apply(&decoded),
            [] => {}
            _ => insert_runs(engine, &decoded, named, &|| &memtable().0),
        }
        sequence += u64::from(entries);
        written += u64::from(entries > 0);
        payload_bytes += batch.payload_bytes as u64;
    }
    if let Some((memtable, before)) = default.get() {
        count_active_bytes(engine, memtable.bytes() - before);
    }
    // One store makes the whole group visible at once; a batch is never seen in part, whatever
    // keyspaces it writes to.
    engine.catalog.published.publish(log.last_sequence);
    let stripe = engine.context.counters.stripe();
    stripe.add(Counter::WriteGroups, 1);
    stripe.add(Counter::Batches, written);
    stripe.add(Counter::Entries, count as u64);
    stripe.add(Counter::EntryBytes, payload_bytes);
    default.get().is_some_and(|(memtable, _)| may_pile_up(memtable))
}

/// True if the memtable may have to be flushed although it is not full.
fn may_pile_up(memtable: &Memtable) -> bool {
    memtable.tombstones() >= TOMBSTONES_MAX || memtable.wants_flush()
}

/// Inserts a batch that names keyspaces, run by run. The caller counts the bytes of `default`.
fn insert_runs<'m>(
    engine: &Engine,
    batch: &DecodedBatch<'_>,
    named: &[Arc<KeyspaceState>],
    default: &dyn Fn() -> &'m Arc<Memtable>,
) {
    for (id, first, run) in batch.runs() {
        if id == DEFAULT_KEYSPACE {
            default().insert(first, run);
            continue;
        }
        // `accept` found each of them, and nothing drops one while the log is locked.
        let index = named.binary_search_by_key(&id, |keyspace| keyspace.id);
        let keyspace = &named[index.expect("a batch names its keyspaces")];
        let memtable = writable_memtable(&engine.context, &engine.writer, keyspace);
        let before = memtable.bytes();
        memtable.insert(first, run);
        count_active_bytes(engine, memtable.bytes() - before);
    }
}

/// Counts bytes that were inserted into active memtables. Has the next log made when half of the
/// write buffer is full: later than a small session needs, and long before a switch.
#[inline]
fn count_active_bytes(engine: &Engine, inserted: usize) {
    let before = engine.writer.active_bytes.fetch_add(inserted, Ordering::Relaxed);
    let half = engine.context.options.write_buffer_bytes / 2;
    if before < half && before + inserted >= half {
        engine.jobs.schedule_log();
    }
}

/// Commits these requests as one group; the answer to each.
#[cfg(test)]
pub(crate) fn commit_together(engine: &Engine, mut group: Vec<Request>) -> Vec<Result<Committed>> {
    let mut outcome = commit(engine, &mut group);
    (0..outcome.group.len()).map(|index| outcome.answer(index)).collect()
}
