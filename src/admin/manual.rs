//! Maintenance on request: a flush, the compaction of a range, a rebuild of filters.
//!
//! The flush worker does a flush while the caller waits. A compaction runs on the thread of the
//! caller while no other compaction runs.

use crate::admin::filter_report::{damaged_tables, differing_tables};
use crate::base::error::{Error, Result};
use crate::base::range::KeyBounds;
use crate::base::sync::{Arc, Ordering};
use crate::jobs::compact::manual::{FilterRebuild, ManualCompaction, ManualGoal};
use crate::jobs::compact::picker::CompactionCursors;
use crate::jobs::compact::run::{compact_once, run_compaction, run_filter_rebuild};
use crate::jobs::compact::task::CompactionTask;
use crate::jobs::workers::{CompactionToken, run_job};
use crate::memtable::memtable::Memtable;
use crate::options::access::CompactRangeOptions;
use crate::state::session;
use crate::state::shared::Shared;
use crate::tree::edit::FileMeta;
use crate::write::commit;
use std::collections::BTreeSet;

/// Flushes all memtables and waits.
///
/// # Errors
/// The failure of a write or flush; `Closed` if the database is closed during the flush.
pub(crate) fn flush(shared: &Shared) -> Result<()> {
    commit::switch(shared)?;
    let full: Vec<Arc<Memtable>> =
        shared.view.load().immutables.iter().map(|full| Arc::clone(&full.memtable)).collect();
    let waits = || {
        let waiting = &shared.view.load().immutables;
        waiting.iter().any(|other| full.iter().any(|one| Arc::ptr_eq(one, &other.memtable)))
    };
    if !full.is_empty() {
        // A clean opening may leave full memtables, and nothing was written since.
        session::activate(shared)?;
    }
    let mut jobs = shared.jobs.lock();
    jobs.flush_wanted = true;
    shared.work.ring();
    while waits() {
        shared.check_writable()?;
        if jobs.stopping {
            return Err(Error::Closed);
        }
        shared.done.wait(&mut jobs);
    }
    Ok(())
}

/// Compacts a range: waits until no compaction runs, then runs on the caller's thread.
///
/// # Errors
/// The failure of the flush or of a compaction.
pub(crate) fn compact_range(
    shared: &Shared,
    bounds: &KeyBounds,
    options: &CompactRangeOptions,
) -> Result<()> {
    session::activate(shared)?;
    flush(shared)?;
    let _token = CompactionToken::wait(shared)?;
    let next_file = shared.numbers.next_file.load(Ordering::Relaxed);
    let goal = ManualGoal::Compact { force: options.force };
    let is_due = |meta: &FileMeta| meta.overlaps(bounds);
    let levels = shared.view.load().version.files();
    let mut compaction = ManualCompaction::new(goal, &levels, next_file, is_due);
    run_job(shared, &mut || next_step(shared, &mut compaction, is_due, run_compaction));
    shared.check_writable()
}

/// Runs the next compaction of a call; false if there is none.
fn next_step(
    shared: &Shared,
    compaction: &mut ManualCompaction,
    is_due: impl Fn(&FileMeta) -> bool,
    run: impl Fn(&Shared, &CompactionTask) -> Result<()>,
) -> Result<bool> {
    let levels = shared.view.load().version.files();
    match compaction.next_task(&levels, &shared.options.compaction_options(), is_due) {
        Some(task) => run(shared, &task).map(|()| true),
        None => Ok(false),
    }
}

/// Rewrites the tables whose filter has to change; returns how many there were.
///
/// # Errors
/// The failure of a compaction; `Closed` if the database is closed during the rebuild.
pub(crate) fn rebuild_filters(shared: &Shared, which: FilterRebuild) -> Result<u64> {
    shared.process.check()?;
    shared.check_writable()?;
    // Checked once: a number is never reused, so the list stays right.
    let damaged = match which {
        FilterRebuild::Differing => damaged_tables(&Arc::clone(&shared.view.load().version))?,
        FilterRebuild::All => Vec::new(),
    };
    let due = || -> BTreeSet<u64> {
        let version = Arc::clone(&shared.view.load().version);
        match which {
            FilterRebuild::Differing => {
                differing_tables(shared, &version).into_iter().chain(damaged.clone()).collect()
            }
            FilterRebuild::All => {
                version.files().iter().flatten().map(|meta| meta.number).collect()
            }
        }
    };
    let tables = due().len() as u64;
    if tables == 0 {
        return Ok(0);
    }
    session::activate(shared)?;
    let _token = CompactionToken::wait(shared)?;
    let (goal, levels) = (ManualGoal::RebuildFilters, shared.view.load().version.files());
    let next_file = shared.numbers.next_file.load(Ordering::Relaxed);
    let mut compaction = ManualCompaction::new(goal, &levels, next_file, |_| true);
    let (mut cursors, mut turn) = (CompactionCursors::default(), 0u64);
    run_job(shared, &mut || {
        // Every other turn is for a compaction that is due anyway: writers wait for level 0.
        turn += 1;
        if turn.is_multiple_of(2) && compact_once(shared, &mut cursors)? {
            return Ok(true);
        }
        let due = due();
        let is_due = |meta: &FileMeta| due.contains(&meta.number);
        next_step(shared, &mut compaction, is_due, run_filter_rebuild)
    });
    shared.check_writable()?;
    Ok(tables)
}
