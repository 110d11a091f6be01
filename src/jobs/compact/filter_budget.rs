//! The filters of the tables that a job writes, and how `Filter::monkey` keeps its budget.
//!
//! `options/levels.rs` divides the budget over a tree, level by level. Tables keep the filter that
//! they were written with, so this module also considers the size of existing filters:
//!
//! - The budget is divided over the tree that the job leaves, with the level 0 that compactions
//!   usually meet. Each run counts by the share of lookups that ask it in vain.
//! - A compaction brings the sum nearer to [`USED_AIM`] of the budget, less what flushes may add
//!   while it runs: see [`CORRECTION`]. It stays within [`ALLOTTED_MIN`] and [`ALLOTTED_MAX`] of
//!   what its level is allotted.
//! - A flush takes at most [`FLUSH_SHARE`] of what is left, and about even bits where nothing is
//!   left: a table without a filter costs more than the division saves. So a burst of flushes
//!   may take the sum above the budget, until a compaction ends.
//! - After each compaction one table is written again whose filter is far above its share, and
//!   where no compaction is due, those that are far off. That takes at most [`REWRITTEN_SHARE`]
//!   of the bytes that compactions write.
//! - A move rewrites a filter that is a quarter off, where that brings the sum nearer the budget.

use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::jobs::compact::task::CompactionTask;
use crate::options::database::Options;
use crate::state::claim::Claim;
use crate::state::filter_workload::FilterWorkload;
use crate::state::keyspace::KeyspaceState;
use crate::table::filter::layout::TableFilter;
use crate::tree::handle::TableHandle;
use crate::tree::runs::SortedRuns;
use crate::tree::version::{LevelFiles, Version};

/// The share of the budget that is used when a compaction ends.
const USED_AIM: f64 = 0.99;

/// Flushes leave this share of the budget for the rounding of filters to lines.
const USED_MAX: f64 = 0.998;

/// Below this share, filters are rewritten although they are nearly right.
const USED_MIN: f64 = 0.955;

/// A key that a compaction writes gets this many times the bits that each key of the tree lacks.
/// More would bring the sum to its aim sooner, but then the bits of a level vary from compaction to
/// compaction, and the filters with few bits pass more than those with many save.
const CORRECTION: f64 = 2.0;

/// What a compaction may give its tables at least, of what their level is allotted.
const ALLOTTED_MIN: f64 = 0.7;

/// The same at most.
const ALLOTTED_MAX: f64 = 1.5;

/// How much of the rest of the budget one flush may take.
const FLUSH_SHARE: f64 = 0.5;

/// Above the budget, a flush gets even bits, but no more than these thousandths of a bit per key.
const FLUSH_MILLIBITS_ENOUGH: f64 = 10_000.0;

/// From this many times its level's allotment on, a filter is far too large.
const FAR_OFF: f64 = 1.25;

/// This many times its level's allotment is as good as the allotment.
const NEARLY_RIGHT: f64 = 1.05;

/// The share of the bytes that compactions write that may be written for a filter alone.
const REWRITTEN_SHARE: f64 = 0.125;

/// The budget, divided over the tree that a job leaves.
struct BudgetDivision<'v> {
    version: &'v Version,
    /// The levels that share the budget.
    levels: Vec<usize>,
    budget_bytes: f64,
    /// Bytes of a filter for each byte of its bits: lines, trailers, indexes of partitions.
    overhead: f64,
    /// Entries of these levels.
    entries: u64,
    /// Thousandths of a bit per key, by level.
    allotted: [u32; LEVELS],
}

impl<'v> BudgetDivision<'v> {
    /// `runs` are what the job leaves, `planned` those the budget is divided over. `None` without
    /// a budget.
    fn of(
        options: &Options,
        version: &'v Version,
        runs: &SortedRuns,
        planned: &SortedRuns,
    ) -> Option<Self> {
        let budget_bytes = options.filter_budget()? as f64;
        let levels = options.budget_levels(runs);
        let entries = runs.entries(&levels);
        let allotted = [0; LEVELS];
        let mut division =
            BudgetDivision { version, levels, budget_bytes, overhead: 1.0, entries, allotted };
        let (mut bytes, mut millibits) = (0, 0);
        for (_, handle) in division.tables() {
            let properties = &handle.table.properties;
            bytes += properties.filter_bytes;
            millibits += properties.filter_entries * properties.filter_millibits_per_key;
        }
        if millibits > 0 {
            division.overhead = (8_000.0 * bytes as f64 / millibits as f64).clamp(1.0, 1.25);
        }
        let divided = USED_AIM * budget_bytes / division.overhead;
        division.allotted = options.allotted(planned, divided as u64);
        Some(division)
    }

    fn tables(&self) -> impl Iterator<Item = (usize, &'v Arc<TableHandle>)> {
        let version = self.version;
        let of_level =
            move |&level: &usize| version.level(level).iter().map(move |handle| (level, handle));
        self.levels.iter().flat_map(of_level)
    }

    /// Bytes of the filters under the budget.
    fn used_bytes(&self) -> f64 {
        self.tables().map(|(_, handle)| handle.table.properties.filter_bytes as f64).sum()
    }

    /// Those of the tables that `task` replaces.
    fn replaced_bytes(&self, task: &CompactionTask) -> f64 {
        let is_replaced = |number: u64| task.replaced().any(|(_, meta)| meta.number == number);
        let replaced = self.tables().filter(|(_, handle)| is_replaced(handle.meta.number));
        replaced.map(|(_, handle)| handle.table.properties.filter_bytes as f64).sum()
    }

    /// Thousandths of a bit per key of filters with this many bytes and keys.
    fn millibits(&self, bytes: f64, keys: u64) -> f64 {
        8_000.0 * bytes / self.overhead / keys.max(1) as f64
    }

    /// Bytes of filters with `millibits` for each of this many keys.
    fn bytes(&self, millibits: f64, keys: f64) -> f64 {
        self.overhead * millibits * keys / 8_000.0
    }

    fn even_millibits(&self) -> f64 {
        self.millibits(self.budget_bytes, self.entries)
    }

    /// The most bits that a flush gets: halfway between even bits and the best for this number of
    /// tables. The best alone would make the sum vary more as level 0 fills and empties.
    fn flush_millibits(&self) -> f64 {
        let best = f64::from(self.allotted[0]);
        best.min(0.5 * (best + self.even_millibits()))
    }

    /// The bits of the filter of `handle`, as a multiple of what its level is allotted.
    fn excess(&self, level: usize, handle: &TableHandle) -> f64 {
        // A table without a filter where none is allotted also gives 1.
        (own_millibits(handle) + 1.0) / (f64::from(self.allotted[level]) + 1.0)
    }

    /// By how much the sum grows if `handle` gets what its level is allotted.
    fn change_bytes(&self, level: usize, handle: &TableHandle) -> f64 {
        let more = f64::from(self.allotted[level]) - own_millibits(handle);
        self.bytes(more, handle.meta.entries as f64)
    }

    /// The deeper table that [`next_rewrite`] is to write, of those that `may_write` takes: level 0
    /// is soon compacted anyway.
    fn furthest_off(
        &self,
        is_idle: bool,
        may_write: impl Fn(&TableHandle) -> bool,
    ) -> Option<(usize, &'v Arc<TableHandle>)> {
        let tables = || self.tables().filter(|(level, handle)| *level > 0 && may_write(handle));
        let excess = |(level, handle): &(usize, &Arc<TableHandle>)| self.excess(*level, handle);
        let lowest = tables().min_by(|one, other| excess(one).total_cmp(&excess(other)))?;
        let highest = tables().max_by(|one, other| excess(one).total_cmp(&excess(other)))?;
        let used = self.used_bytes() / self.budget_bytes;
        let tolerated = if used < USED_MIN { NEARLY_RIGHT } else { FAR_OFF };
        if is_idle && excess(&lowest) <= 1.0 / tolerated {
            let after = used + self.change_bytes(lowest.0, lowest.1) / self.budget_bytes;
            if after <= USED_AIM {
                return Some(lowest);
            }
            return Some(highest).filter(|table| excess(table) >= NEARLY_RIGHT);
        }
        Some(highest).filter(|table| used > USED_MIN && excess(table) >= FAR_OFF)
    }
}

fn runs_after(version: &Version, task: &CompactionTask) -> SortedRuns {
    SortedRuns::after_rewrite(&version.files, task.replaced(), task.output_level)
}

fn own_millibits(handle: &TableHandle) -> f64 {
    handle.table.properties.filter_millibits_per_key as f64
}

/// `runs`, with the usual number of tables at level 0, for which the budget is divided.
fn with_usual_level0(
    options: &Options,
    workload: &FilterWorkload,
    runs: &SortedRuns,
) -> SortedRuns {
    if !options.auto_compaction {
        return runs.clone();
    }
    let tables = (workload.level0_tables.ceil() as usize).max(options.level0_compaction_trigger);
    runs.clone().with_level0(tables, workload.flush_entries as u64)
}

/// The filters that the options ask for now, by level.
pub(crate) fn wanted_filters(
    keyspace: &KeyspaceState,
    version: &Version,
) -> [Option<TableFilter>; LEVELS] {
    wanted_in(keyspace, version, SortedRuns::of(&version.files))
}

/// The filter of the tables that `task` writes to get the filter that the options ask for.
pub(crate) fn rebuild_filter(
    keyspace: &KeyspaceState,
    version: &Version,
    task: &CompactionTask,
) -> Option<TableFilter> {
    let mut wanted = wanted_in(keyspace, version, runs_after(version, task));
    wanted[task.output_level].take()
}

fn wanted_in(
    keyspace: &KeyspaceState,
    version: &Version,
    runs: SortedRuns,
) -> [Option<TableFilter>; LEVELS] {
    let options = &**keyspace.options.load();
    let runs = runs.asked_by(keyspace.filter_workload.lock().shares());
    let division = BudgetDivision::of(options, version, &runs, &runs);
    let allotted = division.map_or([0; LEVELS], |division| division.allotted);
    std::array::from_fn(|level| options.table_filter_of(level, &runs, allotted[level]))
}

/// The filter bytes and entries of the earlier tables of a bulk load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IngestedFilters {
    pub entries: u64,
    /// Bytes of their filters.
    pub bytes: u64,
}

/// The filter of the next table of a bulk load, of about `entries` at `level`. A budget is shared
/// as by flushes: nobody knows how many tables come.
pub(crate) fn ingest_filter(
    keyspace: &KeyspaceState,
    version: &Version,
    level: usize,
    before: &IngestedFilters,
    entries: u64,
) -> Option<TableFilter> {
    let options = &**keyspace.options.load();
    let shares = keyspace.filter_workload.lock().shares();
    let runs = SortedRuns::of(&version.files).with_more(level, before.entries + entries);
    let runs = runs.asked_by(shares);
    let Some(division) = BudgetDivision::of(options, version, &runs, &runs) else {
        return options.table_filter_of(level, &runs, 0);
    };
    let used = division.used_bytes() + before.bytes as f64;
    let share =
        division.millibits(FLUSH_SHARE * (USED_MAX * division.budget_bytes - used), entries);
    let least = division.even_millibits().min(FLUSH_MILLIBITS_ENOUGH);
    let millibits = share.max(least).min(f64::from(division.allotted[level]));
    options.table_filter_of(level, &runs, millibits as u32)
}

/// The filter of the table that a flush of `entries` writes above `levels`, which are the tables of
/// `version` and those flushed since.
pub(crate) fn flush_filter(
    keyspace: &KeyspaceState,
    version: &Version,
    levels: &LevelFiles,
    entries: u64,
) -> Option<TableFilter> {
    let options = &**keyspace.options.load();
    let mut workload = keyspace.filter_workload.lock();
    workload.count_lookups(&keyspace.counters, version);
    workload.flushed(entries);
    let runs = SortedRuns::after_flush(levels, entries).asked_by(workload.shares());
    let planned = with_usual_level0(options, &workload, &runs);
    let Some(division) = BudgetDivision::of(options, version, &runs, &planned) else {
        return options.table_filter_of(0, &runs, 0);
    };
    let used = division.used_bytes() + workload.pending_bytes.max(0.0);
    let left = USED_MAX * division.budget_bytes - used;
    let share = division.millibits(FLUSH_SHARE * left, entries);
    let least = division.even_millibits().min(FLUSH_MILLIBITS_ENOUGH);
    let millibits = share.max(least).min(division.flush_millibits());
    options.table_filter_of(0, &runs, millibits as u32)
}

/// The filter of the tables that `task` writes.
pub(crate) fn compaction_filter(
    keyspace: &KeyspaceState,
    version: &Version,
    task: &CompactionTask,
) -> Option<TableFilter> {
    let (options, level) = (&**keyspace.options.load(), task.output_level);
    let mut workload = keyspace.filter_workload.lock();
    workload.count_lookups(&keyspace.counters, version);
    let runs = runs_after(version, task).asked_by(workload.shares());
    let planned = with_usual_level0(options, &workload, &runs);
    let Some(division) = BudgetDivision::of(options, version, &runs, &planned) else {
        return options.table_filter_of(level, &runs, 0);
    };
    let entries: u64 = task.replaced().map(|(_, meta)| meta.entries).sum();
    let replaced = division.replaced_bytes(task);
    let flushed = division.bytes(division.flush_millibits(), workload.expected_entries());
    // What other compactions add is taken, too.
    let used = division.used_bytes() - replaced + workload.pending_bytes.max(0.0);
    let room = USED_AIM * division.budget_bytes - used - flushed;
    let allotted = f64::from(division.allotted[level]);
    let missing = room - division.bytes(allotted, entries as f64);
    let millibits = allotted + CORRECTION * division.millibits(missing, division.entries);
    let millibits = millibits.clamp(ALLOTTED_MIN * allotted, ALLOTTED_MAX * allotted);
    if !task.trivial_move {
        let level0_tables = if task.input_level == 0 { task.inputs.len() } else { 0 };
        let written = division.bytes(millibits, entries as f64);
        workload.compaction_begins(level0_tables, written - replaced);
        workload.written_bytes += task.replaced().map(|(_, meta)| meta.bytes).sum::<u64>();
    }
    options.table_filter_of(level, &runs, millibits as u32)
}

/// Whether a trivial move should rewrite its table, to give it another filter. True if the filter
/// is a quarter larger or smaller than the new level is allotted, and the new size brings the sum
/// of all filters nearer the budget.
pub(crate) fn rewrites_move(
    keyspace: &KeyspaceState,
    version: &Version,
    task: &CompactionTask,
) -> bool {
    let (options, level) = (&**keyspace.options.load(), task.output_level);
    let workload = keyspace.filter_workload.lock();
    let runs = runs_after(version, task).asked_by(workload.shares());
    let planned = with_usual_level0(options, &workload, &runs);
    let Some(division) = BudgetDivision::of(options, version, &runs, &planned) else {
        return false;
    };
    let Some(moved) = task.inputs.first().filter(|_| division.levels.contains(&level)) else {
        return false;
    };
    let mut tables = version.level(task.input_level).iter();
    let Some(handle) = tables.find(|handle| handle.meta.number == moved.number) else {
        return false;
    };
    let aim = USED_AIM * division.budget_bytes;
    let more = f64::from(division.allotted[level]) - own_millibits(handle);
    let after = division.used_bytes() + division.bytes(more, moved.entries as f64);
    let excess = division.excess(level, handle);
    (excess >= FAR_OFF && division.used_bytes() > aim) || (excess <= 1.0 / FAR_OFF && after <= aim)
}

/// The table to write again for its filter, and that filter. While compactions are due, this is
/// the table furthest above its allotment, if the budget is used up. Where none is due, it is the
/// one furthest below, or, where there is no room for it, the one furthest above. A table whose
/// rewrite was refused is left out, and so is one with keys of a running compaction.
pub(crate) fn next_rewrite(
    keyspace: &KeyspaceState,
    version: &Version,
    claims: &[Arc<Claim>],
    is_idle: bool,
) -> Option<(CompactionTask, Option<TableFilter>)> {
    let options = &**keyspace.options.load();
    let mut workload = keyspace.filter_workload.lock();
    let shape = &version.files;
    let runs = SortedRuns::of(shape).asked_by(workload.shares());
    let planned = if is_idle { runs.clone() } else { with_usual_level0(options, &workload, &runs) };
    let division = BudgetDivision::of(options, version, &runs, &planned)?;
    let may_write = |handle: &TableHandle| {
        let span = handle.meta.span();
        !keyspace.is_refused(&[handle.meta.number])
            && !claims.iter().any(|claim| claim.span().overlaps(&span))
    };
    let (level, handle) = division.furthest_off(is_idle, may_write)?;
    // A changed option must not have the whole tree written again.
    let affordable = REWRITTEN_SHARE * workload.written_bytes as f64;
    if (workload.rewritten_bytes + handle.meta.bytes) as f64 > affordable {
        return None;
    }
    workload.rewritten_bytes += handle.meta.bytes;
    workload.pending_bytes += division.change_bytes(level, handle);
    let filter = options.table_filter_of(level, &runs, division.allotted[level]);
    Some((CompactionTask::rewrite(shape, level, vec![Arc::clone(&handle.meta)]), filter))
}
