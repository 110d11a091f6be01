//! Puts the tables of a bulk load into the tree: all of them in one step, newer than every write.
//!
//! 1. Flush the memtables of the keyspace, while others write.
//! 2. Take the lead of the write queue: nothing is written until step 8. Flush what came since.
//! 3. Sync the logs: a crash must not keep the load and lose an older write (I13).
//! 4. Take one sequence, above every write. No log has it.
//! 5. Choose the level: no table there or above has keys of the load.
//! 6. Log and sync the edit that names the tables with that sequence.
//! 7. Begin a log that skips the sequence and names the tables, and sync its start.
//! 8. Store the view, then publish the sequence (I3).
//!
//! A lookup ends at the first version that it finds, so no older version may be where it looks
//! first (I25): not in a memtable, nor in a table of the same level or of one above.
//!
//! A crash before step 6 is durable leaves tables that nothing names. After it, recovery finds the
//! load whole, with or without the new log. A failure before step 6 leaves the database as it was;
//! later ones become the background error, as for a write: the load is invisible until the database
//! is reopened, and then it is there whole or not at all.

use crate::base::error::{Error, Result};
use crate::base::key::{OWN_SEQUENCE_FIRST, SequenceNumber};
use crate::base::stats::counters::Counter;
use crate::base::sync::{Arc, Ordering};
use crate::jobs::flush::flush_keyspace;
use crate::jobs::ingest::level::deepest_level;
use crate::jobs::ingest::tables::LoadTables;
use crate::jobs::workers::run_job;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::state::stalls::Stall;
use crate::tree::edit::VersionEdit;
use crate::tree::file_meta::FileMeta;

/// Where a load went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Installed {
    /// The sequence of all its entries.
    pub sequence: SequenceNumber,
    /// Its level.
    pub level: usize,
}

/// Installs the finished tables of a load, which has entries.
///
/// # Errors
/// `Closed`, `ReadOnly`, `KeyspaceDropped`; a table that cannot be read back. Nothing changed then,
/// and the files go with `load`. The failure of a flush, a log or the manifest: it is the
/// background error.
pub(crate) fn install(
    engine: &Engine,
    keyspace: &Arc<KeyspaceState>,
    load: &mut LoadTables,
) -> Result<Installed> {
    engine.context.process.check()?;
    let mut answer = None;
    run_job(engine, &mut || {
        let _one_at_a_time = engine.jobs.flushes.lock();
        flush_keyspace(engine, keyspace)?;
        Ok(false)
    });
    wait_for_level0(engine, keyspace, load)?;
    run_job(engine, &mut || {
        // Before the lock of flushes: a leader may wait for one.
        let _leads = engine.writer.queue.lead()?;
        let _one_at_a_time = engine.jobs.flushes.lock();
        flush_keyspace(engine, keyspace)?;
        answer = Some(try_install(engine, keyspace, load)?);
        Ok(false)
    });
    // A failure of the job is the background error.
    match answer {
        Some(answer) => answer,
        None => {
            engine.check_writable()?;
            Err(Error::Closed)
        }
    }
}

/// The inner result is of what leaves the database as it was.
fn try_install(
    engine: &Engine,
    keyspace: &Arc<KeyspaceState>,
    load: &mut LoadTables,
) -> Result<Result<Installed>> {
    let mut log = engine.writer.log.lock();
    engine.check_writable()?;
    // Under the lock that a drop takes.
    if keyspace.dropped_as.load(Ordering::SeqCst) != 0 {
        return Ok(Err(keyspace.dropped()));
    }
    let sequence = log.next_sequence;
    if sequence >= OWN_SEQUENCE_FIRST {
        let what = "all sequence numbers are used up".into();
        return Ok(Err(Error::InvalidArgument { what }));
    }
    // I4: no memtable has an older version, and none takes newer ones besides older ones.
    let view = keyspace.view.load_full();
    debug_assert!(view.active_log == 0 && view.immutables.is_empty(), "I4");
    session::sync_starts(engine, &mut log)?;
    engine.check_lock()?;
    let mut versions = engine.catalog.versions.lock();
    // Under that lock: a compaction claims its tables under it.
    let running = engine.jobs.schedule.lock().compacts_into.clone();
    let running = running.filter(|into| into.keyspace == keyspace.id);
    let spans: Vec<_> = load.finished().iter().map(FileMeta::span).collect();
    let levels = keyspace.view.load().version.files();
    let options = keyspace.options.load().compaction_options();
    let level = deepest_level(&levels, &spans, load.bytes(), &options, running.as_ref());
    let with_sequence = |meta: &FileMeta| {
        let mut meta = meta.clone();
        meta.set_global_sequence(sequence);
        (level, meta)
    };
    let edit = VersionEdit {
        added: load.finished().iter().map(with_sequence).collect(),
        // No `flushed_through`: the flush above covers what logs have of the keyspace.
        synced_through: Some(sequence),
        ..VersionEdit::default()
    };
    let changed = match versions.apply(edit, sequence) {
        Ok(changed) => changed,
        // The tables cannot be opened: the edit was not logged.
        Err(error) if !versions.has_failed() => return Ok(Err(error)),
        Err(error) => {
            // The edit may be there, and the sequence with it (I10).
            log.next_sequence = sequence + 1;
            load.keep();
            return Err(engine.set_background_error(error));
        }
    };
    load.keep();
    log.next_sequence = sequence + 1;
    // The error is set while no other edit can come.
    let loaded: Vec<_> = load.finished().iter().map(|meta| (meta.table_id, sequence)).collect();
    session::skip_sequences(engine, &mut log, &loaded)
        .map_err(|error| engine.set_background_error(error))?;
    log.last_sequence = sequence;
    log.synced_through = sequence;
    engine.catalog.show(changed);
    drop(versions);
    engine.catalog.published.publish(sequence);
    drop(log);
    count(engine, load);
    // Older logs may not be needed any more.
    engine.jobs.schedule_flush();
    engine.jobs.schedule_compactions([keyspace.id]);
    Ok(Ok(Installed { sequence, level }))
}

fn count(engine: &Engine, load: &LoadTables) {
    let stripe = engine.context.counters.stripe();
    stripe.add(Counter::Ingests, 1);
    stripe.add(Counter::EntriesIngested, load.entries());
    stripe.add(Counter::IngestBytes, load.bytes());
}

/// Waits while level 0 is full, if the load goes there: as writers do.
fn wait_for_level0(engine: &Engine, keyspace: &KeyspaceState, load: &LoadTables) -> Result<()> {
    let spans: Vec<_> = load.finished().iter().map(FileMeta::span).collect();
    let options = keyspace.options.load().compaction_options();
    let stop = engine.context.options.level0_stop();
    let is_full = || {
        let view = keyspace.view.load_full();
        // A refused compaction makes no room, however long a load waits.
        !view.dropped
            && view.version.level(0).len() >= stop
            && !keyspace.keeps_level0()
            && deepest_level(&view.version.files(), &spans, load.bytes(), &options, None) == 0
    };
    if !is_full() {
        return Ok(());
    }
    Stall::Level0.during(engine, || {
        engine.jobs.schedule_compactions([keyspace.id]);
        let mut jobs = engine.jobs.schedule.lock();
        while is_full() && !engine.jobs.background_error.is_set() && !jobs.stopping {
            engine.jobs.done.wait(jobs.for_condvar());
        }
    });
    engine.check_writable()
}
