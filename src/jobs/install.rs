//! The jobs themselves: flush what waits, run one compaction, install the result, remove files.
//!
//! Called by the workers and by `flush`, `compact_range` and `open`. A job installs its result in
//! this order: outputs and their names durable, the edit logged and synced (`VersionSet::apply`),
//! the new view stored, only then old logs and tables removed. After a failed change of the
//! manifest nothing is removed any more: the record may have reached the disk (I8).

use crate::base::error::Result;
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::base::levels::LEVELS;
use crate::base::stats::counters::Counter;
use crate::base::sync::Arc;
use crate::jobs::compact::merge::{MergeJob, merge};
use crate::jobs::compact::picker::{CompactionCursors, pick};
use crate::jobs::compact::task::{CompactionTask, INDEX_BYTES_MAX, JobContext, JobOutcome};
use crate::jobs::flush::{FlushJob, flush};
use crate::jobs::obsolete::{remove, remove_tables};
use crate::memtable::memtable::Memtable;
use crate::state::shared::{ImmutableMemtable, ReadView, Shared};
use crate::tree::edit::{FileMeta, FirstLog, VersionEdit};
use crate::tree::runs::Runs;
use crate::tree::version::Version;

fn job_context<'s>(shared: &'s Shared, level: usize, runs: &Runs) -> JobContext<'s> {
    let mut table_options = shared.options.table_options(level, runs);
    table_options.construction.budget = Some(Arc::clone(&shared.cache) as _);
    JobContext {
        env: &shared.env,
        directory: &shared.directory,
        next_file_number: &shared.numbers.next_file,
        table_options,
        index_bytes_max: INDEX_BYTES_MAX,
        stop: &shared.closed,
    }
}

/// Flushes all immutable memtables into a table. False if there were none.
///
/// # Errors
/// The failure of the table or of the manifest: nothing was removed.
pub fn flush_pending(shared: &Shared) -> Result<bool> {
    let _one_at_a_time = shared.flushes.lock();
    let view = shared.view.load_full();
    let waiting = &view.immutables;
    if waiting.is_empty() {
        return Ok(false);
    }
    let memtables = waiting.iter().rev().map(|full| Arc::clone(&full.memtable)).collect();
    let outcome = write_tables(shared, &view, memtables)?;
    install_flush(shared, waiting, outcome.tables)?;
    let stripe = shared.counters.stripe();
    stripe.add(Counter::Flushes, waiting.len() as u64);
    stripe.add(Counter::FlushBytes, outcome.counts.bytes_written);
    shared.want(false, true);
    shared.save_stats();
    Ok(true)
}

/// Writes memtables, oldest first, into tables that nothing names yet.
///
/// # Errors
/// The failure of a table: none is left.
pub fn write_tables(
    shared: &Shared,
    view: &ReadView,
    memtables: Vec<Arc<Memtable>>,
) -> Result<JobOutcome> {
    let snapshots = shared.snapshots.needed(&shared.published);
    let levels = view.version.shape();
    let entries = memtables.iter().map(|memtable| memtable.entries() as u64).sum();
    let runs = Runs::after_flush(&levels, entries);
    let job = FlushJob { memtables, snapshots, levels };
    flush(&job_context(shared, 0, &runs), job)
}

/// Flushes memtables that recovery filled, the oldest first, into tables that no manifest names
/// yet. `before` are those that it has written so far, `last_sequence` is the last one in
/// `memtables`.
///
/// # Errors
/// The failure of the table.
pub fn flush_recovered(
    shared: &Shared,
    memtables: Vec<Arc<Memtable>>,
    before: &[FileMeta],
    last_sequence: SequenceNumber,
) -> Result<Vec<FileMeta>> {
    let mut levels = shared.view.load().version.shape();
    // A tombstone must not be dropped while one of these may hold its key.
    levels[0].extend(before.iter().cloned().map(Arc::new));
    let flushes = memtables.len() as u64;
    let entries = memtables.iter().map(|memtable| memtable.entries() as u64).sum();
    let runs = Runs::after_flush(&levels, entries);
    let job = FlushJob { memtables, snapshots: vec![last_sequence], levels };
    let outcome = flush(&job_context(shared, 0, &runs), job)?;
    let stripe = shared.counters.stripe();
    stripe.add(Counter::Flushes, flushes);
    stripe.add(Counter::FlushBytes, outcome.counts.bytes_written);
    Ok(outcome.tables)
}

/// Makes it durable that `flushed` are in `tables`, then lets their logs go.
///
/// # Errors
/// The failure of the manifest: nothing was removed.
fn install_flush(
    shared: &Shared,
    flushed: &[ImmutableMemtable],
    tables: Vec<FileMeta>,
) -> Result<()> {
    let is_flushed = |full: &ImmutableMemtable| {
        flushed.iter().any(|other| Arc::ptr_eq(&full.memtable, &other.memtable))
    };
    {
        shared.check_lock()?;
        let mut versions = shared.versions.lock();
        let view = shared.view.load();
        let oldest = view.immutables.iter().rev().find(|full| !is_flushed(full));
        let published = shared.published.visible();
        let edit = VersionEdit {
            added: tables.into_iter().map(|meta| (0, meta)).collect(),
            first_log: Some(FirstLog {
                number: oldest.map_or(view.active_log, |full| full.log_number),
                flushed_through: flushed.first().map_or(published, |newest| newest.last_sequence),
            }),
            ..VersionEdit::default()
        };
        let version = versions.apply(edit, published)?;
        shared.update_view(|view| ReadView {
            immutables: view.immutables.iter().filter(|full| !is_flushed(full)).cloned().collect(),
            version,
            ..view.clone()
        });
    }
    let logs: Vec<u64> = flushed.iter().map(|full| full.log_number).collect();
    shared.log.lock().unsynced.retain(|wal| !logs.contains(&wal.number()));
    for number in logs {
        remove(shared, FileName::Wal(number));
    }
    shared.retired.lock().extend(flushed.iter().map(|full| Arc::clone(&full.memtable)));
    Ok(())
}

/// Runs the most urgent compaction. False if none is due.
///
/// # Errors
/// The failure of the compaction or of the manifest.
pub fn compact_once(shared: &Shared, cursors: &mut CompactionCursors) -> Result<bool> {
    if !shared.options.auto_compaction {
        return Ok(false);
    }
    let oldest = shared.snapshots.needed(&shared.published).first().copied().unwrap_or(0);
    let shape = shared.view.load().version.shape();
    let Some(task) = pick(&shape, &shared.options.compaction_options(), cursors, oldest) else {
        return Ok(false);
    };
    run_compaction(shared, &task)?;
    cursors.advance(&task);
    Ok(true)
}

/// Runs `task` and installs its result.
///
/// # Errors
/// As for [`compact_once`].
pub fn run_compaction(shared: &Shared, task: &CompactionTask) -> Result<()> {
    let stripe = shared.counters.stripe();
    let version = Arc::clone(&shared.view.load().version);
    let runs = task.runs_after(&version.shape());
    let rewriting;
    let task = match task.trivial_move && moves_too_large_a_filter(shared, task, &version, &runs) {
        true => {
            rewriting = CompactionTask { trivial_move: false, ..task.clone() };
            &rewriting
        }
        false => task,
    };
    let mut added = Vec::new();
    if !task.trivial_move {
        let snapshots = shared.snapshots.needed(&shared.published);
        let options = shared.options.compaction_options();
        let job = MergeJob { task, version: &version, snapshots, options };
        let outcome = merge(&job_context(shared, task.output_level, &runs), job)?;
        stripe.add(Counter::Compactions, 1);
        stripe.add(Counter::CompactionBytesRead, outcome.counts.bytes_read);
        stripe.add(Counter::CompactionBytesWritten, outcome.counts.bytes_written);
        stripe.add(Counter::CompactionEntriesDropped, outcome.counts.entries_dropped);
        added = outcome.tables;
    }
    {
        shared.check_lock()?;
        let mut versions = shared.versions.lock();
        let published = shared.published.visible();
        let version = versions.apply(task.edit(added), published)?;
        shared.update_view(|view| ReadView { version, ..view.clone() });
    }
    stripe.add(Counter::TrivialMoves, u64::from(task.trivial_move));
    remove_tables(shared);
    // Writers that stall on level 0 look again.
    let _jobs = shared.jobs.lock();
    shared.done.notify_all();
    Ok(())
}

/// True for a move while the filters of all levels take more than their common budget, if the
/// table's own is a quarter or more above what its new level is allotted. Tables that are loaded
/// in order would else all keep the many bits that level 0 had to give when they were flushed.
fn moves_too_large_a_filter(
    shared: &Shared,
    task: &CompactionTask,
    version: &Version,
    runs: &Runs,
) -> bool {
    let budget = |level: usize| shared.options.filter_budget_bytes(level);
    let Some(budget_bytes) = budget(task.output_level) else { return false };
    let of_budget = (0..LEVELS).filter(|level| budget(*level).is_some());
    let tables = of_budget.flat_map(|level| version.level(level));
    let filter_bytes: u64 = tables.map(|handle| handle.table.properties().filter_bytes).sum();
    let moved = task.inputs.first().map(|meta| meta.number);
    let mut tables = version.level(task.input_level).iter();
    let moved = tables.find(|handle| Some(handle.meta.number) == moved);
    let own = moved.map_or(0, |handle| handle.table.properties().filter_millibits_per_key);
    let allotted = shared.options.table_filter(task.output_level, runs);
    let allotted = allotted.and_then(|filter| filter.encoding.bits_per_key()).unwrap_or_default();
    filter_bytes > budget_bytes && own as f64 >= 1_250.0 * allotted && own > 0
}
