//! The background threads: one flushes memtables, makes logs ahead of need and removes tables that
//! range deletes cover; the others compact. While there are writes, one that is free compares
//! `LOCK` every 100 ms.
//!
//! The failure or panic of a job or worker becomes the background error: the database takes no more
//! writes and still reads (I8). At most one flush runs at a time. Compactions belong to the threads
//! that hold a [`CompactionToken`]: one for each worker that compacts, or one alone for a caller of
//! `compact_range`. A worker owns the engine, never a handle: the drop of the last `Db` stops and
//! joins the workers. `sync_thread.rs` has a thread that only tickets start.

use crate::base::error::{Error, Result};
use crate::base::key::KeyspaceId;
use crate::base::levels::LEVELS;
use crate::base::sync::thread::{Builder, JoinHandle};
use crate::base::sync::{Arc, Ordering};
use crate::jobs::compact::run::{Cursors, compact_once, urgency};
use crate::jobs::deleted_tables::remove_deleted_tables;
use crate::jobs::expired_tables::{ExpiryWatch, WAIT_MAX, Watched, remove_expired_tables};
use crate::jobs::flush::{flush_pending, flush_pending_through};
use crate::jobs::obsolete::{free_memtables, remove_files};
use crate::jobs::sync_thread;
use crate::state::engine::Engine;
use crate::state::jobs::Jobs;
use crate::state::jobs::Schedule;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::state::writer::Writer;
use siftdb_filter::policy::guarded;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::mem::take;
use std::time::Duration;

/// Starts the workers of a database that was just opened.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn start(engine: &Arc<Engine>) -> Result<Vec<JoinHandle<()>>> {
    flush_if_much(engine);
    let mut workers = Vec::new();
    match start_all(engine, &mut workers) {
        Ok(()) => Ok(workers),
        Err(error) => {
            let _ = stop(engine, &mut workers);
            Err(error)
        }
    }
}

fn start_all(engine: &Arc<Engine>, workers: &mut Vec<JoinHandle<()>>) -> Result<()> {
    let mut spawn = |name: &str, worker: Box<dyn FnOnce(&Engine) + Send>| {
        let owned = Arc::clone(engine);
        let run = move || {
            // Nobody does its work from then on, and writers would wait for that for ever.
            if let Err(panic) = guarded(|| worker(&owned)) {
                set_panic_error(&owned, "a background thread", &panic);
            }
        };
        let thread = Builder::new().name(name.into()).spawn(run);
        workers.push(thread.map_err(|e| Error::io("spawn", &engine.context.directory, e))?);
        Ok(())
    };
    spawn("siftdb-flush", Box::new(flush_worker))?;
    let cursors = Arc::new(Cursors::default());
    for number in 0..engine.context.options.compaction_threads {
        let cursors = Arc::clone(&cursors);
        // One of them is enough to see that tables expire.
        let watch = (number == 0).then(ExpiryWatch::default);
        let worker = move |engine: &Engine| compaction_worker(engine, &cursors, watch);
        spawn("siftdb-compact", Box::new(worker))?;
    }
    Ok(())
}

/// Asks for a flush of recovered memtables if they take a quarter of the write buffer. Otherwise a
/// program that only reads would read the same logs at every opening. A smaller rest stays in
/// memory, so opening a small database writes nothing.
fn flush_if_much(engine: &Engine) {
    if engine.catalog.immutable_bytes() > engine.context.options.write_buffer_bytes / 4 {
        engine.jobs.schedule.lock().recovered_through = engine.catalog.published.visible();
        engine.jobs.schedule_flush();
    }
}

/// Before a close: finishes the flush that the opening asked for. A close stops the worker, so
/// without this a program that closes early would read the same logs at every opening.
pub(crate) fn flush_recovered(engine: &Engine) {
    let through = engine.jobs.schedule.lock().recovered_through;
    let waits = |keyspace: &Arc<KeyspaceState>| {
        keyspace.view.load().immutables.iter().any(|full| full.last_sequence <= through)
    };
    if engine.catalog.all_keyspaces().iter().any(waits) {
        run_job(engine, &mut || {
            session::activate(engine)?;
            flush_pending_through(engine, through)
        });
    }
}

/// Marks the database closed, joins its workers and waits for a caller's own compaction; a
/// running job ends early.
///
/// # Errors
/// The syncing thread panicked.
pub(crate) fn stop(engine: &Engine, workers: &mut Vec<JoinHandle<()>>) -> Result<()> {
    engine.context.closed.store(true, Ordering::SeqCst);
    {
        let mut jobs = engine.jobs.schedule.lock();
        jobs.stopping = true;
        engine.jobs.work.wake();
        engine.jobs.done.notify_all();
    }
    let outcome = sync_thread::stop(engine);
    for worker in workers.drain(..) {
        // Its panic is the background error.
        let _ = worker.join();
    }
    // Neither a checkpoint nor a `compact_range` on another thread may log edits once the directory
    // is unlocked.
    drop(engine.jobs.flushes.lock());
    let mut jobs = engine.jobs.schedule.lock();
    while jobs.is_compacting() {
        engine.jobs.done.wait(jobs.for_condvar());
    }
    outcome
}

/// The right to compact; returned on drop, also if the compaction panics.
pub(crate) struct CompactionToken<'a> {
    engine: &'a Engine,
    /// No worker compacts at the same time.
    is_alone: bool,
}

impl<'a> CompactionToken<'a> {
    /// Waits until no other compaction runs, and has none begin. While it waits, the workers take
    /// no further task: under a steady load there is always a next one.
    ///
    /// # Errors
    /// `Closed` if the database is closed in the meantime.
    pub(crate) fn wait(engine: &'a Engine) -> Result<Self> {
        let mut jobs = engine.jobs.schedule.lock();
        jobs.callers_waiting += 1;
        while jobs.is_compacting() && !jobs.stopping {
            engine.jobs.done.wait(jobs.for_condvar());
        }
        jobs.callers_waiting -= 1;
        if jobs.stopping {
            return Err(Error::Closed);
        }
        jobs.caller_compacts = true;
        Ok(CompactionToken { engine, is_alone: true })
    }

    /// One for a worker, if there may be something to compact.
    fn of_worker(engine: &'a Engine) -> Option<Self> {
        let mut jobs = engine.jobs.schedule.lock();
        // What waits for a close or a resume would begin again and again.
        let begins = !engine.context.closed.load(Ordering::Relaxed)
            && !engine.jobs.background_error.is_set()
            && !jobs.caller_compacts
            && jobs.callers_waiting == 0
            && jobs.compacting_threads < engine.context.options.compaction_threads
            && !jobs.compactions_wanted.is_empty();
        jobs.compacting_threads += usize::from(begins);
        begins.then(|| CompactionToken { engine, is_alone: false })
    }
}

impl Drop for CompactionToken<'_> {
    fn drop(&mut self) {
        let mut jobs = self.engine.jobs.schedule.lock();
        match self.is_alone {
            true => jobs.caller_compacts = false,
            false => jobs.compacting_threads -= 1,
        }
        drop(jobs);
        self.engine.jobs.work.wake();
        self.engine.jobs.done.notify_all();
    }
}

/// Compares `LOCK` if writes ask for it. Without it another process may write here, too.
fn compare_lock(engine: &Engine) {
    if engine.writer.lock_watch.take_due()
        && let Err(error) = engine.check_lock()
        && !matches!(error, Error::Closed)
    {
        engine.set_background_error(error);
    }
}

/// Waits for a wakeup newer than `generation`, or until `LOCK` is to be compared; at most
/// `longest`, and false after that time.
fn wait_for_wakeup(
    writer: &Writer,
    jobs: &Jobs,
    generation: u64,
    longest: Option<Duration>,
) -> bool {
    let left = writer.lock_watch.left();
    if let Some(longest) = longest.filter(|longest| left.is_none_or(|left| *longest <= left)) {
        return jobs.work.wait_past_for(generation, longest);
    }
    match left {
        Some(left) => {
            jobs.work.wait_past_for(generation, left);
        }
        None => jobs.work.wait_past(generation),
    }
    true
}

fn flush_worker(engine: &Engine) {
    loop {
        compare_lock(engine);
        // Read before the check for work. A request after the check wakes again, so the wait below
        // returns at once and no request is lost.
        let generation = engine.jobs.work.generation();
        let (log_wanted, mut flush_wanted, tombstone_flushes, deleted_tables) = {
            let mut jobs = engine.jobs.schedule.lock();
            if jobs.stopping {
                return;
            }
            let Schedule { log_wanted, flush_wanted, tombstone_flushes, deleted_tables, .. } =
                &mut *jobs;
            (take(log_wanted), take(flush_wanted), take(tombstone_flushes), take(deleted_tables))
        };
        if log_wanted {
            run_job(engine, &mut || session::make_log_ahead(engine).map(|()| false));
        }
        let named = |ids: BTreeSet<KeyspaceId>| -> Vec<_> {
            let keyspaces = engine.catalog.keyspaces.lock();
            ids.into_iter().filter_map(|id| keyspaces.get(id).cloned()).collect()
        };
        // Before the flush: it takes a moment and gives space back.
        for keyspace in named(deleted_tables) {
            run_job(engine, &mut || remove_deleted_tables(engine, &keyspace).map(|()| false));
        }
        let mut tombstone_flushes = named(tombstone_flushes);
        let is_passed =
            |keyspace: &&Arc<KeyspaceState>| keyspace.scans_pass_tombstones.load(Ordering::Relaxed);
        tombstone_flushes.extend(engine.catalog.keyspaces.lock().iter().filter(is_passed).cloned());
        // A failure is already the background error; here it means that nothing is to be flushed.
        flush_wanted |= session::switch_for_flush(engine, &tombstone_flushes).unwrap_or(false);
        if flush_wanted {
            run_job(engine, &mut || {
                if engine.catalog.immutable_bytes() > 0 {
                    // Recovered memtables: the session begins with this flush.
                    session::activate(engine)?;
                }
                flush_pending(engine)
            });
        } else if !engine.catalog.obsolete.is_empty() && !engine.jobs.background_error.is_set() {
            // The last reader of a replaced table is gone. After a failure its file stays.
            clear_up(engine);
        } else {
            wait_for_wakeup(&engine.writer, &engine.jobs, generation, None);
        }
    }
}

fn compaction_worker(engine: &Engine, cursors: &Cursors, mut watch: Option<ExpiryWatch>) {
    loop {
        compare_lock(engine);
        let generation = engine.jobs.work.generation();
        if engine.jobs.schedule.lock().stopping {
            return;
        }
        if let Some(_token) = CompactionToken::of_worker(engine) {
            run_job(engine, &mut || {
                let more = compact_most_urgent(engine, cursors, None)?;
                Ok(more && engine.jobs.schedule.lock().callers_waiting == 0)
            });
        } else if let Some(watch) = &mut watch {
            wait_for_compaction(engine, watch, generation);
        } else {
            wait_for_wakeup(&engine.writer, &engine.jobs, generation, None);
        }
    }
}

/// Waits for a wakeup newer than `generation`, or until a table has expired.
fn wait_for_compaction(engine: &Engine, watch: &mut ExpiryWatch, generation: u64) {
    // A session changes no file before its first write, which wakes the workers.
    let may_remove =
        || engine.context.options.auto_compaction && engine.catalog.versions.lock().is_active();
    let watched = match !engine.context.read_only && may_remove() {
        true => watch.look(engine),
        false => Watched::Never,
    };
    match watched {
        Watched::Expired(keyspaces) => {
            engine.jobs.schedule_compactions(keyspaces);
        }
        Watched::Later(wait) => {
            if !wait_for_wakeup(&engine.writer, &engine.jobs, generation, Some(wait))
                && wait == WAIT_MAX
            {
                watch.forget();
            }
        }
        Watched::Never => {
            wait_for_wakeup(&engine.writer, &engine.jobs, generation, None);
        }
    }
}

/// Runs one compaction of the keyspace that is most in need of one, of those that were named, and
/// passes those that have nothing to do. False if none is named any more. In the keyspace of
/// `limit`, nothing goes below its level.
pub(crate) fn compact_most_urgent(
    engine: &Engine,
    cursors: &Cursors,
    limit: Option<(KeyspaceId, usize)>,
) -> Result<bool> {
    let mut wanted: Vec<_> = {
        let jobs = engine.jobs.schedule.lock();
        let keyspaces = engine.catalog.keyspaces.lock();
        // Most keyspaces are dropped while nothing compacts them.
        cursors.lock().retain(|id, _| keyspaces.get(*id).is_some());
        let wanted = jobs.compactions_wanted.iter();
        wanted.filter_map(|id| keyspaces.get(*id).cloned()).collect()
    };
    if wanted.is_empty() {
        // What is named was dropped, unless a flush has named another one since.
        let mut jobs = engine.jobs.schedule.lock();
        let keyspaces = engine.catalog.keyspaces.lock();
        jobs.compactions_wanted.retain(|id| keyspaces.get(*id).is_some());
        return Ok(!jobs.compactions_wanted.is_empty());
    }
    // Asked once for all that are passed: after a flush of many keyspaces these are most of them.
    // It is not negative, so its bits are in its order.
    wanted.sort_by_cached_key(|keyspace| Reverse(urgency(keyspace).to_bits()));
    for keyspace in wanted {
        let has_changed = compact_named(engine, &keyspace, cursors, limit)?;
        let jobs = engine.jobs.schedule.lock();
        if has_changed || jobs.stopping || jobs.callers_waiting > 0 {
            break;
        }
    }
    Ok(!engine.jobs.schedule.lock().compactions_wanted.is_empty())
}

/// Runs one compaction of `keyspace`, unless another worker looks at it. False if none is due.
fn compact_named(
    engine: &Engine,
    keyspace: &Arc<KeyspaceState>,
    cursors: &Cursors,
    limit: Option<(KeyspaceId, usize)>,
) -> Result<bool> {
    let id = keyspace.id;
    // Taken out before the look at its tree: a flush that ends during the look names it again.
    if !engine.jobs.schedule.lock().compactions_wanted.remove(&id) {
        return Ok(false);
    }
    let expired = match engine.context.options.auto_compaction {
        true => remove_expired_tables(engine, keyspace),
        false => Ok(false),
    };
    let changed = match expired {
        Ok(false) => {
            let of_keyspace = limit.filter(|(limited, _)| *limited == id);
            compact_once(engine, keyspace, cursors, of_keyspace.map_or(LEVELS, |(_, level)| level))
        }
        ended => ended,
    };
    match changed {
        Ok(false) => Ok(false),
        Ok(true) => {
            engine.jobs.schedule.lock().compactions_wanted.insert(id);
            Ok(true)
        }
        Err(Error::KeyspaceDropped { .. }) => {
            // Its task has named it again, and the list may still have it for a moment.
            engine.jobs.schedule.lock().compactions_wanted.remove(&id);
            Ok(false)
        }
        Err(error) => {
            // As before: nothing else compacts it once the error is cleared.
            engine.jobs.schedule.lock().compactions_wanted.insert(id);
            Err(error)
        }
    }
}

/// A job, up to the record of its failure; ended on drop.
struct RunningJob<'a>(&'a Engine);

impl<'a> RunningJob<'a> {
    fn begin(engine: &'a Engine) -> Self {
        engine.jobs.schedule.lock().running += 1;
        RunningJob(engine)
    }
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.0.jobs.schedule.lock().running -= 1;
        self.0.jobs.done.notify_all();
    }
}

/// Waits until no job runs. After a failure a new job does nothing, so from then on no failure of
/// a job is still to be recorded.
pub(crate) fn wait_for_jobs(jobs: &Jobs) {
    let mut schedule = jobs.schedule.lock();
    while schedule.running > 0 && !schedule.stopping {
        jobs.done.wait(schedule.for_condvar());
    }
}

/// Runs `job` until it answers that nothing is left. A failure or panic becomes the background
/// error, unless the database is closing.
pub(crate) fn run_job(engine: &Engine, job: &mut dyn FnMut() -> Result<bool>) {
    let _running = RunningJob::begin(engine);
    let more = |job: &mut dyn FnMut() -> Result<bool>| -> Result<bool> {
        if engine.jobs.schedule.lock().stopping || engine.jobs.background_error.is_set() {
            return Ok(false);
        }
        job()
    };
    loop {
        match guarded(|| more(job)) {
            // Between two jobs too: under a steady load there is always a next one.
            Ok(Ok(true)) => clear_up(engine),
            Ok(Ok(false) | Err(Error::Closed | Error::KeyspaceDropped { .. })) => break,
            Ok(Err(error)) => {
                engine.set_background_error(error);
                break;
            }
            Err(panic) => {
                set_panic_error(engine, "a background job", &panic);
                break;
            }
        }
    }
    clear_up(engine);
}

/// Runs `job` once, as [`run_job`] does; returns its answer.
///
/// # Errors
/// `Closed`, `ReadOnly`: it did not run, or its failure is the background error.
pub(crate) fn run_once<T>(engine: &Engine, mut job: impl FnMut() -> Result<T>) -> Result<T> {
    let mut answer = None;
    run_job(engine, &mut || {
        answer = Some(job()?);
        Ok(false)
    });
    match answer {
        Some(answer) => Ok(answer),
        None => engine.check_writable().and(Err(Error::Closed)),
    }
}

/// Makes the panic of `what` the background error.
fn set_panic_error(engine: &Engine, what: &str, panic: &str) {
    let cause = std::io::Error::other(format!("{what} panicked: {panic}"));
    engine.set_background_error(Error::io("background job", &engine.context.directory, cause));
}

/// After a job: frees replaced memtables, removes obsolete files, and wakes waiters.
fn clear_up(engine: &Engine) {
    free_memtables(&engine.catalog);
    remove_files(engine);
    let _jobs = engine.jobs.schedule.lock();
    engine.jobs.done.notify_all();
}
