//! Puts the tables of a bulk load into the tree: all of them in one step, newer than every write.
//!
//! 1. Flush the memtables that have keys of the load, while others write.
//! 2. Open the tables for the level that they will probably go to.
//! 3. Take the lead of the write queue: nothing is written until step 9. Flush such memtables that
//!    came since, all of them if the load goes to level 0.
//! 4. Sync the logs: a crash must not keep the load and lose an older write (I13).
//! 5. Take one sequence, above every write. No log has it.
//! 6. Choose the level: no table there or above has keys of the load. If filters of that level are
//!    pinned in another way than the tables were opened for, begin again with step 1.
//! 7. Log and sync the edit that names the tables with that sequence.
//! 8. Begin a log that skips the sequence and names the tables, and sync its start.
//! 9. Store the view, then publish the sequence (I3).
//!
//! A lookup ends at the first version that it finds, so no older version may be where it looks
//! first (I25): not in a memtable, nor in a table of the same level or of one above. Other
//! memtables stay: they may be older than the load. A table of level 0 has the sequences between
//! those of its neighbours, so a load to level 0 needs all memtables of its keyspace flushed.
//!
//! A crash before step 7 is durable leaves tables that nothing names. After it, recovery finds the
//! load whole, with or without the new log. A failure before step 7 leaves the database as it was;
//! later ones become the background error, as for a write: the load is invisible until the database
//! is reopened, and then it is there whole or not at all.

use crate::base::error::{Error, Result};
use crate::base::key::{OWN_SEQUENCE_FIRST, SequenceNumber};
use crate::base::stats::counters::Counter;
use crate::base::sync::Arc;
use crate::jobs::flush::flush_keyspace;
use crate::jobs::ingest::level::{deepest_level, shares_keys};
use crate::jobs::ingest::tables::LoadTables;
use crate::jobs::workers::{run_job, run_once};
use crate::memtable::memtable::Memtable;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::jobs::Jobs;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::state::stalls::Stall;
use crate::tree::edit::VersionEdit;
use crate::tree::new_tables::NewTables;

/// Where a load went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Installed {
    /// The sequence of all its entries.
    pub sequence: SequenceNumber,
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
    loop {
        run_job(engine, &mut || {
            let _one_at_a_time = engine.jobs.flushes.lock();
            flush_in_the_way(engine, keyspace, load, false)?;
            Ok(false)
        });
        wait_for_level0(engine, keyspace, load)?;
        let level = level_of(&engine.jobs, keyspace, load);
        let (directory, durable) = (&engine.context.directory, load.durable.clone());
        let mut new = engine.catalog.open_new(directory, durable, level, &[keyspace])?;
        let attempt = run_once(engine, || {
            // Before the lock of flushes: a leader may wait for one.
            let _exclusive = engine.writer.queue.exclusive()?;
            let _one_at_a_time = engine.jobs.flushes.lock();
            let to_level0 = level_of(&engine.jobs, keyspace, load) == 0;
            flush_in_the_way(engine, keyspace, load, to_level0)?;
            try_install(engine, keyspace, load, &mut new)
        });
        match attempt? {
            Attempt::Installed(installed) => {
                engine.writer.watchers.wake();
                return Ok(installed);
            }
            Attempt::Again => {}
            Attempt::Refused(error) => return Err(error),
        }
    }
}

/// Flushes the memtables of `keyspace` if one has keys of the load, or if `all` of them must go.
/// The caller holds the lock of flushes.
fn flush_in_the_way(
    engine: &Engine,
    keyspace: &Arc<KeyspaceState>,
    load: &LoadTables,
    all: bool,
) -> Result<()> {
    let view = keyspace.view.load_full();
    let mut memtables = view.memtables().filter(|memtable| !memtable.is_empty());
    let spans = load.spans();
    match memtables.any(|memtable| all || shares_keys(memtable, &spans)) {
        true => flush_keyspace(engine, keyspace),
        false => Ok(()),
    }
}

/// The level that the load would go to now.
fn level_of(jobs: &Jobs, keyspace: &KeyspaceState, load: &LoadTables) -> usize {
    // A compaction claims its tables under the lock of versions, which the last call holds.
    let claims = jobs.claims_of(keyspace.id);
    let version = Arc::clone(&keyspace.view.load().version);
    let options = keyspace.options.load().compaction_options();
    deepest_level(&version.files, &load.spans(), load.bytes(), &options, &claims)
}

/// How an attempt ended.
enum Attempt {
    Installed(Installed),
    /// The tree has changed since the tables were opened.
    Again,
    /// The load cannot be installed; the database is as it was.
    Refused(Error),
}

/// Steps 4 to 9.
///
/// # Errors
/// What becomes the background error.
fn try_install(
    engine: &Engine,
    keyspace: &Arc<KeyspaceState>,
    load: &mut LoadTables,
    new: &mut NewTables,
) -> Result<Attempt> {
    let mut log = engine.writer.log.lock();
    engine.check_writable()?;
    // Under the lock that a drop takes.
    if let Err(dropped) = keyspace.check_there() {
        return Ok(Attempt::Refused(dropped));
    }
    let sequence = log.next_sequence;
    if sequence >= OWN_SEQUENCE_FIRST {
        let what = "all sequence numbers are used up".into();
        return Ok(Attempt::Refused(Error::InvalidArgument { what }));
    }
    session::sync_starts(engine, &mut log)?;
    engine.check_lock()?;
    let mut versions = engine.catalog.versions.lock();
    let level = level_of(&engine.jobs, keyspace, load);
    let pinning = keyspace.options.load().filter_pinning();
    let view = keyspace.view.load_full();
    let has_entries = view.memtables().any(|memtable| !memtable.is_empty());
    if pinning[level] != pinning[new.level] || (level == 0 && has_entries) {
        return Ok(Attempt::Again);
    }
    // I25: no memtable has an older version of a key of the load.
    let is_in_the_way = |memtable: &Arc<Memtable>| shares_keys(memtable, &load.spans());
    debug_assert!(!view.memtables().any(is_in_the_way), "I25");
    new.level = level;
    new.set_global_sequence(sequence);
    let edit = VersionEdit {
        added: new.added(),
        // No `flushed_through`: logs may have entries of the keyspace that are not in tables.
        synced_through: Some(sequence),
        ..VersionEdit::default()
    };
    let changed = match versions.apply(edit, new, sequence) {
        Ok(changed) => changed,
        // The edit was not logged.
        Err(error) if versions.manifest.failed.is_none() => return Ok(Attempt::Refused(error)),
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
    let loaded: Vec<_> = load.finished.iter().map(|meta| (meta.table_id, sequence)).collect();
    session::skip_sequences(engine, &mut log, &loaded)?;
    log.last_sequence = sequence;
    log.synced_through = sequence;
    engine.catalog.show(changed);
    drop(versions);
    engine.catalog.published.publish(sequence);
    drop(log);
    count(&engine.context, keyspace, load, level);
    // Older logs may not be needed any more.
    engine.jobs.schedule_flush();
    engine.jobs.schedule_compactions([keyspace.id]);
    Ok(Attempt::Installed(Installed { sequence, level }))
}

fn count(context: &Context, keyspace: &KeyspaceState, load: &LoadTables, level: usize) {
    let stripe = context.counters.stripe();
    stripe.add(Counter::Ingests, 1);
    stripe.add(Counter::EntriesIngested, load.entries);
    stripe.add(Counter::IngestBytes, load.bytes());
    keyspace.counters.stripe().add_written(level, load.bytes(), load.filter_bytes);
}

/// Waits while level 0 is full, if the load goes there: as writers do.
fn wait_for_level0(engine: &Engine, keyspace: &KeyspaceState, load: &LoadTables) -> Result<()> {
    let spans = load.spans();
    let options = keyspace.options.load().compaction_options();
    let stop = engine.context.options.level0_stop();
    let is_full = || {
        let view = keyspace.view.load_full();
        // A refused compaction makes no room, however long a load waits.
        !view.dropped
            && view.version.level(0).len() >= stop
            && !keyspace.keeps_level0()
            && deepest_level(&view.version.files, &spans, load.bytes(), &options, &[]) == 0
    };
    if !is_full() {
        return Ok(());
    }
    Stall::Level0.during(&engine.context, || {
        engine.jobs.schedule_compactions([keyspace.id]);
        let mut jobs = engine.jobs.schedule.lock();
        while is_full() && !engine.jobs.background_error.is_set() && !jobs.stopping {
            engine.jobs.done.wait(jobs.for_condvar());
        }
    });
    engine.check_writable()
}
