//! Maintenance on request: a flush, the compaction of a range, a rebuild of filters.
//!
//! The flush worker does a flush while the caller waits. A compaction runs on the thread of the
//! caller while no other compaction runs.

use crate::admin::filter_report::{damaged_tables, differing_tables};
use crate::base::error::{Error, Result};
use crate::base::key::KeyspaceId;
use crate::base::range::KeyBounds;
use crate::base::sync::{Arc, Ordering};
use crate::jobs::compact::manual::{FilterRebuild, ManualCompaction, ManualGoal};
use crate::jobs::compact::run::{Cursors, run_compaction, run_filter_rebuild};
use crate::jobs::workers::{CompactionToken, compact_most_urgent, run_job};
use crate::memtable::memtable::Memtable;
use crate::options::access::CompactRangeOptions;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::state::write_queue::Switch;
use crate::tree::file_meta::FileMeta;
use crate::tree::version::LevelFiles;
use crate::write::commit;
use std::collections::BTreeSet;

/// A caller that compacts leaves turns to compactions that are due once a level 0 has this many
/// times the tables that make it due.
const LEVEL0_TRIGGERS: usize = 2;

/// Flushes the memtables that `switch` names and waits.
///
/// # Errors
/// The failure of a write or flush; `Closed` if the database is closed during the flush.
pub(crate) fn flush(engine: &Engine, switch: Switch) -> Result<()> {
    commit::switch(engine, switch)?;
    let keyspaces = match switch {
        Switch::No => Vec::new(),
        Switch::Keyspace(id) => {
            engine.catalog.keyspaces.lock().get(id).cloned().into_iter().collect()
        }
        Switch::All => engine.catalog.all_keyspaces(),
    };
    let memtables = |keyspace: &Arc<KeyspaceState>| -> Vec<Arc<Memtable>> {
        let view = keyspace.view.load();
        view.immutables.iter().map(|full| Arc::clone(&full.memtable)).collect()
    };
    let full: Vec<_> = keyspaces.iter().map(|k| (Arc::clone(k), memtables(k))).collect();
    let waits = || {
        full.iter().any(|(keyspace, full)| {
            let view = keyspace.view.load();
            let is_waiting = |one: &Arc<Memtable>| {
                view.immutables.iter().any(|other| Arc::ptr_eq(one, &other.memtable))
            };
            !view.dropped && full.iter().any(is_waiting)
        })
    };
    if full.iter().any(|(_, full)| !full.is_empty()) {
        // A clean opening may leave full memtables, and nothing was written since.
        session::activate(engine)?;
    }
    let mut jobs = engine.jobs.schedule.lock();
    jobs.flush_wanted = true;
    engine.jobs.work.wake();
    while waits() {
        engine.check_writable()?;
        if jobs.stopping {
            return Err(Error::Closed);
        }
        engine.jobs.done.wait(jobs.for_condvar());
    }
    Ok(())
}

/// Compacts a range of `keyspace`: waits until no compaction runs, then runs on the caller's
/// thread.
///
/// # Errors
/// The failure of the flush or of a compaction; `KeyspaceDropped`.
pub(crate) fn compact_range(
    engine: &Engine,
    keyspace: &KeyspaceState,
    bounds: &KeyBounds,
    options: &CompactRangeOptions,
) -> Result<()> {
    keyspace.check_there()?;
    session::activate(engine)?;
    flush(engine, Switch::Keyspace(keyspace.id))?;
    let _token = CompactionToken::wait(engine)?;
    let next_file = engine.catalog.numbers.next_file.load(Ordering::Relaxed);
    let goal = ManualGoal::Compact { force: options.force };
    let is_due = |meta: &FileMeta| meta.overlaps(bounds);
    // Of this version only the descriptions: the version would keep the files of all its tables.
    let levels = keyspace.view.load().version.files.clone();
    let mut compaction = ManualCompaction::new(goal, &levels, next_file, is_due);
    let bottom = compaction.bottom;
    let step = || {
        let options = keyspace.options.load().compaction_options();
        let next = |levels: &LevelFiles, _: &_| compaction.next_task(levels, &options, is_due);
        Ok(run_compaction(engine, keyspace, next)?.is_some())
    };
    in_turns(engine, (keyspace.id, bottom), step)?;
    keyspace.check_there()?;
    engine.check_writable()
}

/// True if tables collect in level 0 of a keyspace, which slows its writers down and stops them at
/// last. No worker compacts them while a caller compacts.
fn level0_is_behind(engine: &Engine) -> bool {
    let behind = LEVEL0_TRIGGERS * engine.context.options.level0_compaction_trigger;
    let is_behind =
        |keyspace: &Arc<KeyspaceState>| keyspace.view.load().version.level(0).len() >= behind;
    engine.catalog.all_keyspaces().iter().any(is_behind)
}

/// Runs `step` until it has nothing to do. While level 0 of a keyspace is behind, every other step
/// is a compaction that is due; in the keyspace of `limit`, it takes nothing below its level.
///
/// # Errors
/// `Defect`: a compaction was refused, and no step follows. The database takes writes all the same,
/// since nothing was lost.
fn in_turns(
    engine: &Engine,
    limit: (KeyspaceId, usize),
    mut step: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let (cursors, mut is_others_turn) = (Cursors::default(), true);
    let mut refused = Ok(());
    run_job(engine, &mut || {
        is_others_turn = !is_others_turn;
        if is_others_turn
            && level0_is_behind(engine)
            && compact_most_urgent(engine, &cursors, Some(limit))?
        {
            return Ok(true);
        }
        match step() {
            Err(error @ Error::Defect { .. }) => {
                refused = Err(error);
                Ok(false)
            }
            step => step,
        }
    });
    // What went down may be more than a level should have.
    engine.jobs.schedule_compactions([limit.0]);
    refused
}

/// Flushes the memtables of `keyspace` and waits.
///
/// # Errors
/// As for [`flush`]; `KeyspaceDropped`.
pub(crate) fn flush_keyspace(engine: &Engine, keyspace: &KeyspaceState) -> Result<()> {
    flush(engine, Switch::Keyspace(keyspace.id))?;
    keyspace.check_there()
}

/// Rewrites the tables of `keyspace` whose filter has to change; returns how many there were.
///
/// # Errors
/// The failure of a compaction; `Closed` if the database is closed during the rebuild;
/// `KeyspaceDropped`.
pub(crate) fn rebuild_filters(
    engine: &Engine,
    keyspace: &KeyspaceState,
    which: FilterRebuild,
) -> Result<u64> {
    engine.context.process.check()?;
    engine.check_writable()?;
    keyspace.check_there()?;
    // Checked once: a number is never reused, so the list stays right.
    let damaged = match which {
        FilterRebuild::Differing => damaged_tables(&Arc::clone(&keyspace.view.load().version))?,
        FilterRebuild::All => Vec::new(),
    };
    let due = || -> BTreeSet<u64> {
        let version = Arc::clone(&keyspace.view.load().version);
        match which {
            FilterRebuild::Differing => {
                differing_tables(keyspace, &version).into_iter().chain(damaged.clone()).collect()
            }
            FilterRebuild::All => version.tables().map(|handle| handle.meta.number).collect(),
        }
    };
    let tables = due().len() as u64;
    if tables == 0 {
        return Ok(0);
    }
    session::activate(engine)?;
    let _token = CompactionToken::wait(engine)?;
    let goal = ManualGoal::RebuildFilters;
    let levels = keyspace.view.load().version.files.clone();
    let next_file = engine.catalog.numbers.next_file.load(Ordering::Relaxed);
    let mut compaction = ManualCompaction::new(goal, &levels, next_file, |_| true);
    let bottom = compaction.bottom;
    let step = || {
        let due = due();
        let is_due = |meta: &FileMeta| due.contains(&meta.number);
        let options = keyspace.options.load().compaction_options();
        let next = |levels: &LevelFiles| compaction.next_task(levels, &options, is_due);
        Ok(run_filter_rebuild(engine, keyspace, next)?.is_some())
    };
    in_turns(engine, (keyspace.id, bottom), step)?;
    keyspace.check_there()?;
    engine.check_writable()?;
    Ok(tables)
}
