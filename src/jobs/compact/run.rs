//! One compaction, from the picker to the installed edit.
//!
//! [`compact_once`] asks the picker for a task; [`run_compaction`] runs one and installs it in this
//! order: new tables and their names durable, the edit logged and synced, the new view stored, only
//! then the old tables removed (I5). After a failed change of the manifest nothing is removed: the
//! record may have reached the disk (I8).

use crate::base::error::{Error, Result};
use crate::base::key::KeyspaceId;
use crate::base::levels::LEVELS;
use crate::base::stats::counters::Counter;
use crate::base::sync::{Arc, Mutex};
use crate::jobs::compact::filter_budget;
use crate::jobs::compact::merge::{Division, merge};
use crate::jobs::compact::pace::Pace;
use crate::jobs::compact::parts::key_parts;
use crate::jobs::compact::picker::{CompactionCursors, keeps_garbage, pick, score};
use crate::jobs::compact::reservation::{Helpers, Reservation};
use crate::jobs::compact::task::CompactionTask;
use crate::jobs::job_events::{CompactionEvents, TableSums};
use crate::jobs::obsolete::remove_files;
use crate::jobs::rewrite::entry_rules::{EntryRules, job_time};
use crate::jobs::rewrite::output::{JobContext, JobCounts};
use crate::options::levels::TablePlace;
use crate::state::claim::Claim;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::table::filter::layout::TableFilter;
use crate::tree::edit::VersionEdit;
use crate::tree::handle::TableHandle;
use crate::tree::new_tables::{DurableTables, NewTables};
use crate::tree::version::{LevelFiles, Version};
use std::collections::{BTreeMap, HashSet};

/// Where the next compactions of each keyspace start. Workers share it.
pub(crate) type Cursors = Mutex<BTreeMap<KeyspaceId, CompactionCursors>>;

/// Runs the most urgent compaction of `keyspace` that takes nothing below level `deepest`, and no
/// garbage to it as it is. False if none is due, or if all that are due wait for others.
///
/// # Errors
/// The failure of the compaction or of the manifest; `KeyspaceDropped`.
pub(crate) fn compact_once(
    engine: &Engine,
    keyspace: &KeyspaceState,
    cursors: &Cursors,
    deepest: usize,
) -> Result<bool> {
    if !engine.context.options.auto_compaction {
        return Ok(false);
    }
    let needed = engine.catalog.snapshots.needed(&engine.catalog.published);
    let oldest = needed.first().copied().unwrap_or(0);
    let options = keyspace.options.load().compaction_options();
    let now = job_time(&engine.context, &engine.catalog);
    let pick = |shape: &LevelFiles, claims: &[Arc<Claim>]| {
        forget_changed(keyspace, shape);
        let is_refused = |task: &CompactionTask| {
            task.output_level > deepest || keyspace.is_refused(&replaced_tables(task))
        };
        let mut cursors = cursors.lock();
        let cursors = cursors.entry(keyspace.id).or_default();
        let task = pick(shape, &options, cursors, oldest, now, claims, &is_refused)?;
        let task = task.clean_at(deepest);
        // Before the task runs, so that another worker takes the tables after it.
        cursors.advance(&task);
        Some(task)
    };
    let changed = match run_compaction(engine, keyspace, pick) {
        Ok(None) => rewrite_filter(engine, keyspace, true),
        Ok(Some(task)) => {
            let rewritten = match task.trivial_move {
                true => Ok(false),
                false => rewrite_filter(engine, keyspace, false),
            };
            rewritten.map(|_| true)
        }
        Err(error) => Err(error),
    };
    match changed {
        // Nothing was lost, and the next look leaves this task out.
        Err(Error::Defect { .. }) => Ok(true),
        Ok(false) => {
            let version = Arc::clone(&keyspace.view.load().version);
            let is_kept = keeps_garbage(&version.files, &needed, now);
            Ok(is_kept && !engine.catalog.snapshots.await_release(&needed))
        }
        changed => changed,
    }
}

/// The tables that `task` replaces, by number.
fn replaced_tables(task: &CompactionTask) -> Vec<u64> {
    let mut tables: Vec<u64> = task.replaced().map(|(_, meta)| meta.number).collect();
    tables.sort_unstable();
    tables
}

fn remember_refused(keyspace: &KeyspaceState, task: &CompactionTask) {
    let (tables, mut refused) = (replaced_tables(task), keyspace.refused.lock());
    if !refused.contains(&tables) {
        refused.push(tables);
    }
}

/// Forgets refused tasks that cannot come again: some of their tables are gone.
fn forget_changed(keyspace: &KeyspaceState, shape: &LevelFiles) {
    let mut refused = keyspace.refused.lock();
    if !refused.is_empty() {
        let tables = shape.iter().flat_map(|tables| tables.iter());
        let there: HashSet<u64> = tables.map(|meta| meta.number).collect();
        refused.retain(|tables| tables.iter().all(|number| there.contains(number)));
    }
}

/// How urgent a compaction of `keyspace` is: the highest score of its levels.
pub(crate) fn urgency(keyspace: &KeyspaceState) -> f64 {
    let version = Arc::clone(&keyspace.view.load().version);
    let options = keyspace.options.load().compaction_options();
    (0..LEVELS - 1).map(|level| score(&version.files, level, &options)).fold(0.0, f64::max)
}

/// Rewrites the table whose filter is furthest off its share of a budget. False if none is.
/// `is_idle` if no compaction is due.
fn rewrite_filter(engine: &Engine, keyspace: &KeyspaceState, is_idle: bool) -> Result<bool> {
    let mut filter = None;
    let reservation = Reservation::pick(engine, keyspace, |version, claims| {
        let is_idle = is_idle && claims.is_empty();
        let (task, table_filter) = filter_budget::next_rewrite(keyspace, version, claims, is_idle)?;
        filter = table_filter;
        Some(task)
    });
    let Some((reservation, version)) = reservation else { return Ok(false) };
    run_with_filter(&reservation, version, filter)?;
    Ok(true)
}

/// Runs the task that `pick` answers, given what running compactions claim, and installs its
/// result. Returns the task; `None` without one.
///
/// # Errors
/// As for [`compact_once`].
pub(crate) fn run_compaction(
    engine: &Engine,
    keyspace: &KeyspaceState,
    pick: impl FnOnce(&LevelFiles, &[Arc<Claim>]) -> Option<CompactionTask>,
) -> Result<Option<CompactionTask>> {
    let reservation =
        Reservation::pick(engine, keyspace, |version, claims| pick(&version.files, claims));
    let Some((mut reservation, version)) = reservation else { return Ok(None) };
    let task = reservation.task.clone();
    if task.trivial_move
        && (filter_budget::rewrites_move(keyspace, &version, &task)
            || recompresses_move(keyspace, &version, &task))
    {
        reservation.task.trivial_move = false;
    }
    let filter = filter_budget::compaction_filter(keyspace, &version, &reservation.task);
    run_with_filter(&reservation, version, filter)?;
    Ok(Some(task))
}

/// True if a table that could move unread should be rewritten for its compression: the level that
/// it goes to has another codec, and not just another level of one.
fn recompresses_move(keyspace: &KeyspaceState, version: &Version, task: &CompactionTask) -> bool {
    let options = keyspace.options.load();
    let place = TablePlace::in_tree(task.output_level, &version.files);
    let is_moved = |handle: &&Arc<TableHandle>| {
        task.inputs.iter().any(|meta| meta.number == handle.meta.number)
    };
    let mut moved = version.level(task.input_level).iter().filter(is_moved);
    let codec = options.compression_at(place).codec();
    moved.any(|handle| handle.table.properties.compression != codec)
}

/// Runs the task that `pick` answers, to rebuild filters: its tables get what the options ask for
/// at their level. Returns the task; `None` without one.
///
/// # Errors
/// As for [`compact_once`].
pub(crate) fn run_filter_rebuild(
    engine: &Engine,
    keyspace: &KeyspaceState,
    pick: impl FnOnce(&LevelFiles) -> Option<CompactionTask>,
) -> Result<Option<CompactionTask>> {
    let reservation = Reservation::pick(engine, keyspace, |version, _| pick(&version.files));
    let Some((reservation, version)) = reservation else { return Ok(None) };
    let filter = filter_budget::rebuild_filter(keyspace, &version, &reservation.task);
    run_with_filter(&reservation, version, filter)?;
    Ok(Some(reservation.task.clone()))
}

fn run_with_filter(
    reservation: &Reservation<'_>,
    version: Arc<Version>,
    filter: Option<TableFilter>,
) -> Result<()> {
    let Reservation { engine, keyspace, task, .. } = reservation;
    let levels = (task.input_level, task.output_level);
    let replaced = task.replaced().map(|(_, meta)| &**meta);
    let events = CompactionEvents::begin(engine, keyspace, levels, replaced);
    run_reserved(reservation, version, filter, &events).inspect_err(|error| {
        if matches!(error, Error::Defect { .. }) {
            engine.context.counters.stripe().add(Counter::CompactionsRefused, 1);
            remember_refused(keyspace, task);
        }
        events.failed(error);
    })
}

fn run_reserved(
    reservation: &Reservation<'_>,
    version: Arc<Version>,
    filter: Option<TableFilter>,
    events: &CompactionEvents<'_>,
) -> Result<()> {
    let Reservation { engine, keyspace, task, .. } = reservation;
    let Context { env, directory, .. } = &*engine.context;
    let (mut new, mut expired_through, mut merged) = (NewTables::default(), None, None);
    if !task.trivial_move {
        let snapshots = engine.catalog.snapshots.needed(&engine.catalog.published);
        let place = TablePlace::in_tree(task.output_level, &version.files);
        let options = keyspace.options.load().compaction_options();
        let context = JobContext {
            rules: EntryRules::of_compaction(engine, keyspace, &snapshots),
            failure: Some(&engine.jobs.background_error),
            ..JobContext::new(engine, keyspace, place, filter)
        };
        let parts = key_parts(task, &options);
        let helpers = Helpers::take(engine, parts.len() - 1);
        let pace = Pace::of(engine);
        let division = Division { parts, threads: 1 + helpers.count, pace };
        let outcome = merge(&context, task, version, &snapshots, &options, &division);
        drop(helpers);
        let outcome = outcome.map_err(|error| match keyspace.view.load().dropped {
            // A drop that came between may have emptied the version.
            true => keyspace.dropped(),
            false => error,
        })?;
        expired_through = Some(context.rules.now).filter(|_| outcome.counts.entries_expired > 0);
        merged = Some(outcome.counts);
        let tables = DurableTables::sync(&**env, directory, outcome.tables)?;
        new = engine.catalog.open_new(directory, tables, task.output_level, &[keyspace])?;
    }
    let sums = TableSums::of(new.metas());
    install(reservation, new, expired_through)?;
    // Only now: what a refused compaction drops is still there.
    count(reservation, merged);
    events.done(sums, merged.map_or(0, |counts| counts.entries_dropped));
    remove_files(engine);
    engine.jobs.schedule_tombstone_flush(keyspace);
    // Wake writers that stall because level 0 is full.
    let _jobs = engine.jobs.schedule.lock();
    engine.jobs.done.notify_all();
    Ok(())
}

/// Counts a compaction that was installed; `merged` is `None` for a trivial move.
fn count(Reservation { engine, keyspace, task, .. }: &Reservation<'_>, merged: Option<JobCounts>) {
    let stripe = engine.context.counters.stripe();
    let Some(counts) = merged else { return stripe.add(Counter::TrivialMoves, 1) };
    stripe.add(Counter::Compactions, 1);
    stripe.add(Counter::CompactionBytesRead, counts.bytes_read);
    stripe.add(Counter::CompactionBytesWritten, counts.bytes_written);
    stripe.add(Counter::CompactionEntriesDropped, counts.entries_dropped);
    stripe.add(Counter::EntriesExpired, counts.entries_expired);
    stripe.add(Counter::EntriesFiltered, counts.entries_filtered);
    let of_keyspace = keyspace.counters.stripe();
    of_keyspace.add_written(task.output_level, counts.bytes_written, counts.filter_bytes_written);
}

/// Logs the edit of a task, whose new tables are `new`, and shows its result.
///
/// # Errors
/// The failure of the manifest; `KeyspaceDropped`, `Defect`; `Closed` after a failure that is the
/// background error. Nothing was replaced.
fn install(
    reservation: &Reservation<'_>,
    mut new: NewTables,
    expired_through: Option<u64>,
) -> Result<()> {
    let Reservation { engine, keyspace, task, .. } = reservation;
    engine.check_lock()?;
    let files = new.file_names();
    let edit = |new: &NewTables| {
        // After a failure the version may have the tables of a bulk load that was refused in its
        // last step, and a new view would show them.
        engine.jobs.claims_before_change(keyspace.id)?;
        let added = new.metas().cloned().collect();
        Some(VersionEdit { expired_through, ..task.edit(keyspace.id, added) })
    };
    let applied = engine.catalog.apply(&mut new, edit);
    let installed = applied.and_then(|is_logged| is_logged.then_some(()).ok_or(Error::Closed));
    installed.inspect_err(|error| {
        if matches!(error, Error::KeyspaceDropped { .. } | Error::Defect { .. } | Error::Closed) {
            // No manifest ever named them.
            engine.catalog.obsolete.add(files);
        }
    })
}
