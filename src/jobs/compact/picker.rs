//! Which compaction the tree needs next: a pure function of its shape.
//!
//! 1. Every level but the last has a score: level 0 its tables over their trigger, since each is
//!    one more place to search; the others their bytes over what they may hold
//!    (`tree/targets.rs`). The highest score of at least 1 wins, the upper level on a tie.
//! 2. Level 0 gives its oldest table with all that overlap it, directly or through others. A deeper
//!    level gives the next table after its cursor, so compactions rotate through the key space.
//!    Small tables are taken together with the next ones of their level. If little data of level 0
//!    would rewrite much of level 1, tables of consecutive age are merged within level 0 instead.
//! 3. If no level is due, a table that is half garbage (tombstones, covered versions, range
//!    deletes, entries that have all expired) goes down, or is rewritten in place if no deeper
//!    table overlaps it. This frees the space of deleted data and spares scans. A table with any
//!    range delete is rewritten as soon as no deeper table overlaps it: lookups cannot rely on its
//!    filter alone. All this waits while a snapshot may need the garbage, because the same table
//!    could be picked for ever. Garbage that goes down must be worth the entries it rewrites.
//!
//! The caller applies the task, tells the cursors, and asks again until there is nothing to do;
//! `manual.rs` names the compactions that a user asks for.

use crate::base::key::SequenceNumber;
use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::jobs::compact::task::CompactionTask;
use crate::state::claim::Claim;
use crate::tree::file_meta::FileMeta;
use crate::tree::overlap::{
    borrowed, ends_before, key_span, overlap_closure, overlapping_places, overlapping_tables,
    sequence_span, total_bytes,
};
use crate::tree::targets::CompactionOptions;
use crate::tree::version::LevelFiles;
use std::collections::HashSet;
use std::ops::Bound;

/// Small inputs that would rewrite more than this many times their bytes stay at level 0.
const REWRITE_FACTOR: u64 = 8;

/// A tombstone is worth rewriting this many entries of the next level at once. So a queue whose
/// front is deleted is compacted every few thousand deletes. A few deletions spread over a large
/// database wait until their level is due.
const GARBAGE_WORTH: u64 = 256;

/// Where the next compaction of each level starts. Kept in memory only: after a restart every level
/// starts at its first table.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompactionCursors {
    /// For each level where the tables end that the last compaction took from it.
    ends: [Option<Bound<Vec<u8>>>; LEVELS],
}

impl CompactionCursors {
    /// Notes that `task` was done.
    pub(crate) fn advance(&mut self, task: &CompactionTask) {
        if let Some(span) = key_span(&task.inputs) {
            self.ends[task.input_level] = Some(span.end.map(<[u8]>::to_vec));
        }
    }
}

/// The most urgent compaction, if any. `oldest_sequence_needed` is the oldest live snapshot, or
/// the published sequence without one; `now` is the time by which entries expire. A task that
/// `is_refused` leaves its turn to the next one of its level, then to other levels and garbage. So
/// does one that has to wait for a running compaction; `claims` has what those change.
pub(crate) fn pick(
    levels: &LevelFiles,
    options: &CompactionOptions,
    cursors: &CompactionCursors,
    oldest_sequence_needed: SequenceNumber,
    now: u64,
    claims: &[Arc<Claim>],
    is_refused: &dyn Fn(&CompactionTask) -> bool,
) -> Option<CompactionTask> {
    let staying = without_leaving(levels, claims);
    let scores = (0..LEVELS - 1).map(|level| (level, score(&staying, level, options)));
    let mut due: Vec<_> = scores.filter(|(_, score)| *score >= 1.0).collect();
    // Stable: the upper level wins a tie.
    due.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let tasks = due.into_iter().flat_map(|(level, _)| {
        let tables = next_tables(levels, level, cursors);
        tables.map(move |table| down(levels, level, table, options))
    });
    let garbage = garbage_tasks(levels, options, oldest_sequence_needed, now);
    first_free(tasks.chain(garbage).filter(|task| !is_refused(task)), claims)
}

/// The tables without those that running compactions take down from their level.
fn without_leaving(levels: &LevelFiles, claims: &[Arc<Claim>]) -> LevelFiles {
    let mut staying = levels.clone();
    for claim in claims {
        for tables in &mut staying[*claim.levels.start()..*claim.levels.end()] {
            Arc::make_mut(tables).retain(|meta| !claim.tables.contains(&meta.number));
        }
    }
    staying
}

/// The first of `tasks` that has no conflict with `claims`, nor with a task before it in the list.
/// So a task that has to wait is not overtaken: otherwise one compaction of level 1 after the other
/// could begin, and level 0, which needs all of level 1, would never have its turn.
fn first_free(
    mut tasks: impl Iterator<Item = CompactionTask>,
    claims: &[Arc<Claim>],
) -> Option<CompactionTask> {
    let mut claims = claims.to_vec();
    tasks.find(|task| {
        let Some(claim) = task.claim() else { return false };
        let is_free = !claims.iter().any(|other| other.conflicts(&claim));
        if !is_free {
            claims.push(Arc::new(claim));
        }
        is_free
    })
}

/// The tables that may begin the next compaction of a level, the first one first: only the oldest
/// table at level 0, and at others all from the cursor on and round to it.
fn next_tables<'t>(
    levels: &'t LevelFiles,
    level: usize,
    cursors: &CompactionCursors,
) -> impl Iterator<Item = &'t Arc<FileMeta>> {
    let tables = &levels[level];
    let (first, count) = match (level, &cursors.ends[level]) {
        (0, _) => (tables.len().saturating_sub(1), 1),
        (_, Some(end)) => {
            let passed = |meta: &Arc<FileMeta>| !ends_before(borrowed(end), &meta.start);
            (tables.partition_point(passed), tables.len())
        }
        (_, None) => (0, tables.len()),
    };
    tables.iter().cycle().skip(first).take(count)
}

/// The compaction of a level that is due, with `table` as its first input.
fn down(
    levels: &LevelFiles,
    level: usize,
    table: &Arc<FileMeta>,
    options: &CompactionOptions,
) -> CompactionTask {
    let inputs = overlap_closure(level, &levels[level], vec![Arc::clone(table)]);
    let down = CompactionTask::down(levels, level, inputs, options);
    let down = with_next_tables(levels, down, options);
    match level {
        0 => merge_within_level0(levels, &down, options).unwrap_or(down),
        _ => down,
    }
}

/// `task` with the tables that follow its inputs at their level, by age at level 0 and by key at
/// others. A table is added while the whole task is small, or if it is small itself and nothing
/// more is rewritten.
// Several are added at once, first ever more and then ever fewer. One by one, thousands of tiny
// tables would take the square of their number, and each look is made under a lock.
fn with_next_tables(
    levels: &LevelFiles,
    mut task: CompactionTask,
    options: &CompactionOptions,
) -> CompactionTask {
    let level = task.input_level;
    let (mut count, mut grows) = (1, true);
    while options.is_small(total_bytes(&task.inputs)) {
        let next = tables_after(&levels[level], &task, count);
        if next.is_empty() {
            break;
        }
        let inputs = overlap_closure(level, &levels[level], [&task.inputs[..], &next[..]].concat());
        let wider = CompactionTask::down(levels, level, inputs, options);
        let (bytes, rewritten) = (total_bytes(&wider.inputs), total_bytes(&wider.overlapping));
        let is_taken = options.is_small(bytes + rewritten)
            || (next.iter().all(|meta| options.is_small(meta.bytes))
                && rewritten <= total_bytes(&task.overlapping)
                // The inputs before the last table were small.
                && (next.len() == 1 || options.is_small(bytes)));
        if !is_taken && next.len() == 1 {
            break;
        }
        grows &= is_taken;
        count = if grows { 2 * count } else { (count / 2).max(1) };
        if is_taken {
            task = wider;
        }
    }
    task
}

/// The next `count` tables after the inputs of `task` at their level, from the oldest on at level
/// 0; fewer if there are no more.
fn tables_after(
    tables: &[Arc<FileMeta>],
    task: &CompactionTask,
    count: usize,
) -> Vec<Arc<FileMeta>> {
    let Some(first) = task.inputs.first() else { return Vec::new() };
    if task.input_level == 0 {
        let inputs: HashSet<u64> = task.inputs.iter().map(|meta| meta.number).collect();
        let others = tables.iter().rev().filter(|meta| !inputs.contains(&meta.number));
        return others.take(count).cloned().collect();
    }
    // The inputs are neighbours.
    let first = tables.partition_point(|meta| meta.start < first.start);
    tables.iter().skip(first + task.inputs.len()).take(count).cloned().collect()
}

/// One table of several of level 0 instead of `down`, if that would rewrite many times its inputs.
/// Of all runs of consecutive age that bring level 0 below its trigger the one that rewrites least
/// for each table that goes.
fn merge_within_level0(
    levels: &LevelFiles,
    down: &CompactionTask,
    options: &CompactionOptions,
) -> Option<CompactionTask> {
    let bytes = total_bytes(&down.inputs);
    let rewrites_much = total_bytes(&down.overlapping) > REWRITE_FACTOR * bytes;
    if !rewrites_much || !options.is_small(bytes) {
        return None;
    }
    let tables = &levels[0];
    // A run of n tables becomes one, so it takes n - 1 from the level. This is the shortest run
    // that leaves fewer tables than the trigger.
    let shortest = (tables.len() + 2).saturating_sub(options.level0_compaction_trigger).max(2);
    // Longer runs first: they win a tie.
    let runs = (shortest..=tables.len()).rev().flat_map(|length| tables.windows(length));
    // Bytes written for each table that the level loses.
    let cost = |run: &[Arc<FileMeta>]| total_bytes(run) as f64 / (run.len() - 1) as f64;
    let runs = runs.filter(|run| stays_in_order(tables, run));
    let run = runs.min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    options.is_small(total_bytes(run)).then(|| CompactionTask::rewrite(levels, 0, run.to_vec()))
}

/// True if one table of `run` would be older or newer than each other table of level 0 that it
/// shares keys with.
fn stays_in_order(tables: &[Arc<FileMeta>], run: &[Arc<FileMeta>]) -> bool {
    let (Some(span), Some(ages)) = (key_span(run), sequence_span(run)) else {
        return false;
    };
    let numbers: HashSet<u64> = run.iter().map(|meta| meta.number).collect();
    let stays = |meta: &&Arc<FileMeta>| !numbers.contains(&meta.number);
    let overlapping = overlapping_tables(0, tables, &span);
    overlapping
        .iter()
        .filter(stays)
        .all(|meta| meta.largest_sequence < *ages.start() || meta.smallest_sequence > *ages.end())
}

/// How far over its limit a level is; from 1 on it is due.
pub(crate) fn score(levels: &LevelFiles, level: usize, options: &CompactionOptions) -> f64 {
    let tables = &levels[level];
    if level == 0 {
        return tables.len() as f64 / options.level0_compaction_trigger.max(1) as f64;
    }
    let deepest = levels.iter().rposition(|tables| !tables.is_empty()).unwrap_or(0);
    let due_bytes = options.due_bytes(level, deepest, total_bytes(&levels[deepest]));
    total_bytes(tables) as f64 / due_bytes.max(1) as f64
}

/// The compactions that free garbage, upper levels first.
fn garbage_tasks<'t>(
    levels: &'t LevelFiles,
    options: &'t CompactionOptions,
    oldest_sequence_needed: SequenceNumber,
    now: u64,
) -> impl Iterator<Item = CompactionTask> + 't {
    garbage_tables(levels, now)
        .filter(move |(_, meta)| meta.largest_sequence <= oldest_sequence_needed)
        .filter_map(move |(level, meta)| garbage_task(levels, level, meta, options, now))
}

/// The tables with garbage that compactions free once no snapshot needs it, upper levels first.
fn garbage_tables(levels: &LevelFiles, now: u64) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> {
    let tables = (0..LEVELS).flat_map(|level| levels[level].iter().map(move |meta| (level, meta)));
    tables.filter(move |(level, meta)| {
        meta.is_mostly_garbage(now) || (meta.range_deletes > 0 && is_last(levels, *level, meta))
    })
}

/// True if snapshots keep garbage that a compaction could free. `needed` are the sequences of all
/// snapshots and the published one, ascending.
pub(crate) fn keeps_garbage(levels: &LevelFiles, needed: &[SequenceNumber], now: u64) -> bool {
    let [oldest, .., published] = needed else { return false };
    let mut newest = garbage_tables(levels, now).map(|(_, meta)| meta.largest_sequence);
    newest.any(|sequence| oldest < &sequence && &sequence <= published)
}

/// The compaction that frees the garbage of `meta`; `None` if it would rewrite too much for that.
fn garbage_task(
    levels: &LevelFiles,
    level: usize,
    meta: &Arc<FileMeta>,
    options: &CompactionOptions,
    now: u64,
) -> Option<CompactionTask> {
    let inputs = overlap_closure(level, &levels[level], vec![Arc::clone(meta)]);
    if level > 0 {
        let in_place = CompactionTask::rewrite(levels, level, inputs.clone());
        if in_place.below.iter().all(Vec::is_empty) {
            return Some(in_place);
        }
    }
    let down = CompactionTask::down(levels, level, inputs, options);
    let garbage: u64 = down.inputs.iter().map(|meta| meta.droppable(now)).sum();
    let rewritten: u64 = down.overlapping.iter().map(|meta| meta.entries).sum();
    let is_worth_it = rewritten <= GARBAGE_WORTH.saturating_mul(garbage);
    // Nobody counts what range deletes cover. Tables that they cover whole are not rewritten.
    let may_cover_more = level > 0 && meta.range_deletes > 0;
    // A trivial move from level 0 would keep the garbage, and the next level would pick it again.
    let trivial_move = down.trivial_move && level > 0;
    (is_worth_it || may_cover_more).then_some(CompactionTask { trivial_move, ..down })
}

/// True if no deeper table overlaps the table `meta` of a sorted level.
fn is_last(levels: &LevelFiles, level: usize, meta: &FileMeta) -> bool {
    let mut deeper = levels[level + 1..].iter();
    level > 0 && deeper.all(|tables| overlapping_places(tables, &meta.span()).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::compact::task::tests::{OPTIONS, after, described};
    use crate::tree::overlap::{order_conflicts, search_order};
    use crate::tree::testing::drawn_levels;
    use proptest::prelude::*;

    fn picked(drawing: &str, cursors: &CompactionCursors) -> String {
        described(
            pick(&drawn_levels(drawing), &OPTIONS, cursors, 10, 1_000, &[], &|_| false).as_ref(),
        )
    }

    #[test]
    fn drawn_trees_give_the_expected_picks() {
        let golden = [
            ("", "nothing"),
            ("L0: 3[a..z] 2[a..z] 1[a..z]\nL1: 9[a..b]:299", "nothing"),
            // All of level 0 overlaps.
            ("L0: 4[a..z] 3[a..z] 2[a..z] 1[a..z]", "L0 4 3 2 1 -> L1"),
            // 1 and 3 overlap through 2; 4 overlaps none and stays.
            ("L0: 4[x..z] 3[e..g] 2[c..f] 1[a..d]", "L0 3 2 1 -> L1"),
            ("L0: 4[d..e] 3[x..z] 2[a..b] 1[c..d]\nL1: 9[e..f]", "L0 4 1 + L1 9 -> L1"),
            // Touching at one user key is overlap.
            ("L0: 4[c..d] 3[x..z] 2[a..b] 1[d..e]\nL1: 8[a..b] 9[e..f]", "L0 4 1 + L1 9 -> L1"),
            ("L0: 4[g..h] 3[e..f] 2[c..d] 1[a..b]\nL1: 9[c..z]", "L0 1 -> L1, a move"),
            // A large one is cut on its way.
            ("L0: 4[g..h] 3[e..f] 2[c..d] 1[a..b]:202", "L0 1 -> L1"),
            // Level 1 is at its target; the first table goes.
            ("L1: 1[a..c] 2[d..f] 3[g..i]", "L1 1 -> L2, a move"),
            ("L1: 1[a..c] 2[d..f] 3[g..i]\nL2: 4[b..b] 5[c..e] 6[f..f]", "L1 1 + L2 4 5 -> L2"),
            // Both are due: the higher score wins, the upper level on a tie.
            ("L0: 4[a..z] 3[a..z] 2[a..z] 1[a..z]\nL1: 9[a..c]:301", "L1 9 -> L2, a move"),
            ("L0: 4[a..z] 3[a..z] 2[a..z] 1[a..z]\nL1: 9[a..c]:300", "L0 4 3 2 1 + L1 9 -> L1"),
            // The target of level 2 is ten times that of level 1; the last level is never due.
            ("L2: 1[a..c]:2999", "nothing"),
            ("L2: 1[a..c]:3000", "L2 1 -> L3, a move"),
            // Above the deepest level, it is a tenth of that, but never less than that of level 1.
            ("L2: 1[a..c]:300\nL3: 2[x..z]", "L2 1 -> L3, a move"),
            ("L2: 1[a..c]:299\nL3: 2[x..z]", "nothing"),
            ("L2: 1[a..c]:400\nL3: 2[x..z]:4010", "nothing"),
            ("L2: 1[a..c]:401\nL3: 2[x..z]:4010", "L2 1 -> L3, a move"),
            ("L2: 1[a..c]:400\nL4: 2[x..z]:40100", "nothing"),
            ("L2: 1[a..c]:401\nL4: 2[x..z]:40100", "L2 1 -> L3, a move"),
            ("L6: 1[a..c]:9000000000000", "nothing"),
            // No move where the next compaction would be a long one.
            ("L1: 1[a..c]:300\nL3: 5[a..b]:900 6[c..d]", "L1 1 -> L2, a move"),
            ("L1: 1[a..c]:300\nL3: 5[a..b]:900 6[c..d]:101", "L1 1 -> L2"),
        ];
        for (drawing, expected) in golden {
            assert_eq!(picked(drawing, &CompactionCursors::default()), expected, "{drawing}");
        }
    }

    /// The tasks that are picked one after the other, if each one is refused.
    fn refused_tasks(drawing: &str) -> Vec<String> {
        let (levels, cursors) = (drawn_levels(drawing), CompactionCursors::default());
        let mut refused: Vec<String> = Vec::new();
        loop {
            let is_refused = |task: &CompactionTask| refused.contains(&described(Some(task)));
            let picked = pick(&levels, &OPTIONS, &cursors, 10, 0, &[], &is_refused);
            let Some(task) = picked else { return refused };
            let task = described(Some(&task));
            assert!(!refused.contains(&task), "{task}, again");
            refused.push(task);
        }
    }

    #[test]
    fn refused_tasks_leave_their_turn_to_others() {
        assert_eq!(
            refused_tasks("L0: 4[a..z] 3[a..z] 2[a..z] 1[a..z]\nL1: 9[a..c]:301\nL6: 7[d..f]r1"),
            ["L1 9 -> L2, a move", "L0 4 3 2 1 + L1 9 -> L1", "L6 7 -> L6"]
        );
        // Of the same level, too: the next tables of a level that is due, and other garbage.
        assert_eq!(
            refused_tasks("L1: 1[a..c] 2[d..f] 3[g..i]"),
            ["L1 1 -> L2, a move", "L1 2 -> L2, a move", "L1 3 -> L2, a move"]
        );
        assert_eq!(
            refused_tasks("L0: 4[u..v]g90 3[x..z]g90\nL5: 7[a..c]g90\nL6: 8[d..f]r1 9[g..h]g90"),
            ["L0 4 -> L1", "L0 3 -> L1", "L5 7 -> L5", "L6 8 -> L6", "L6 9 -> L6"]
        );
    }

    /// The tasks that are picked one after the other, if none of them ends.
    fn tasks_side_by_side(drawing: &str) -> Vec<String> {
        let (levels, mut cursors) = (drawn_levels(drawing), CompactionCursors::default());
        let (mut claims, mut tasks) = (Vec::new(), Vec::new());
        while let Some(task) = pick(&levels, &OPTIONS, &cursors, 10, 0, &claims, &|_| false) {
            cursors.advance(&task);
            claims.push(Arc::new(task.claim().unwrap()));
            tasks.push(described(Some(&task)));
        }
        tasks
    }

    #[test]
    fn tasks_side_by_side_are_apart() {
        let golden = [
            // Tables of one level that share none of the next.
            (
                "L1: 1[a..c]:300 2[d..f]:300 3[g..i]:300\nL2: 4[b..e] 5[h..h]",
                "L1 1 + L2 4 -> L2; L1 3 + L2 5 -> L2",
            ),
            // What leaves a level does not count there any more.
            ("L1: 1[a..c] 2[d..f] 3[g..i]\nL2: 4[b..c]", "L1 1 + L2 4 -> L2"),
            // Two levels are due.
            (
                "L0: 4[a..z] 3[a..z] 2[a..z] 1[a..z]\nL2: 5[a..c]:3001\nL3: 6[b..b]",
                "L2 5 + L3 6 -> L3; L0 4 3 2 1 -> L1",
            ),
            // What level 1 gives would come between what level 0 gives.
            (
                "L0: 4[a..z] 3[a..z] 2[a..z] 1[a..z]\nL1: 5[a..c]:200 6[d..f]:200",
                "L1 5 -> L2, a move",
            ),
            // Level 0 waits for the first of level 1, and the second waits for level 0.
            (
                "L0: 4[a..c] 3[a..z] 2[a..z] 1[x..z]\nL1: 5[a..c]:300 6[d..f]:300\nL2: 7[a..a]",
                "L1 5 + L2 7 -> L2",
            ),
            // 2 and 4 would become one table with their small neighbour 3, around 1.
            ("L1: 1[c..d]:300 2[g..h]:5g90\nL2: 3[a..b]:5 4[g..g]:5", "L1 1 -> L2, a move"),
            // Garbage of other levels, but not what lies among the tables of a running task.
            (
                "L1: 1[a..c]:300\nL2: 2[b..b] 3[c..d]\nL5: 4[b..b]g90 5[x..y]g90",
                "L1 1 + L2 2 3 -> L2; L5 4 -> L5; L5 5 -> L5",
            ),
            ("L2: 1[a..c]g90 2[d..e]g90\nL3: 3[b..d]", "L2 1 + L3 3 -> L3"),
        ];
        for (drawing, expected) in golden {
            assert_eq!(tasks_side_by_side(drawing).join("; "), expected, "{drawing}");
        }
    }

    #[test]
    fn rounds_continue_after_the_last_table() {
        let drawing = "L1: 1[a..c] 2[d..f] 3[g..i]";
        let levels = drawn_levels(drawing);
        let mut cursors = CompactionCursors::default();
        let mut inputs = Vec::new();
        for _ in 0..4 {
            let task = pick(&levels, &OPTIONS, &cursors, 10, 0, &[], &|_| false).unwrap();
            inputs.push(task.inputs[0].number);
            cursors.advance(&task);
        }
        assert_eq!(inputs, [1, 2, 3, 1]);
        // The table after the cursor may be another one by now.
        assert_eq!(picked("L1: 1[a..b] 4[aa..h]:150 3[i..j]", &cursors), "L1 3 -> L2, a move");
    }

    #[test]
    fn tombstones_sink_and_disappear() {
        let golden = [
            ("L1: 1[a..c]g49\nL2: 2[a..c]", "nothing"),
            ("L1: 1[a..c]g50\nL2: 2[a..c]", "L1 1 + L2 2 -> L2"),
            ("L1: 1[a..c]g50\nL4: 2[a..c]", "L1 1 -> L2, a move"),
            ("L1: 1[a..c]g50\nL4: 2[d..e]", "L1 1 -> L1"),
            ("L6: 1[a..c] 2[d..e]g70", "L6 2 -> L6"),
            // A snapshot may need the garbage, so rewriting could free nothing.
            ("L6: 1[a..c] 2[d..e]g70@11", "nothing"),
            ("L6: 1[a..c]g70@11 2[d..e]g70", "L6 2 -> L6"),
            ("L1: 1[a..c]g70@11\nL2: 2[a..c]", "nothing"),
            // What expires counts once all of it has.
            ("L1: 1[a..c]x50t1000\nL2: 2[a..c]", "L1 1 + L2 2 -> L2"),
            ("L1: 1[a..c]g9x41t900\nL4: 2[d..e]", "L1 1 -> L1"),
            ("L1: 1[a..c]x49t1000", "nothing"),
            ("L1: 1[a..c]x100t1001", "nothing"),
            ("L1: 1[a..c]x100t1000@11", "nothing"),
            // A scan would pass it at level 0, too; unless that rewrites much for little.
            ("L0: 1[a..c]g90\nL2: 2[a..c]", "L0 1 -> L1"),
            ("L0: 2[a..c] 1[a..c]g50\nL1: 3[a..c]", "L0 2 1 + L1 3 -> L1"),
            ("L0: 1[a..c]g50@11\nL1: 2[a..c]", "nothing"),
            ("L0: 1[a..c]g1e1\nL1: 2[a..c]e257", "nothing"),
            ("L0: 1[a..c]g1e1\nL1: 2[a..c]e256", "L0 1 + L1 2 -> L1"),
            // Range deletes count as garbage, and one alone is due if nothing lies below.
            ("L1: 1[a..c]r1\nL3: 2[c..d]", "nothing"),
            ("L1: 1[a..c]r99e99\nL2: 2[c..d]", "L1 1 + L2 2 -> L2"),
            ("L1: 1[a..c]r1\nL3: 2[d..e]", "L1 1 -> L1"),
            ("L1: 1[a..c)r1\nL3: 2[c..e]", "L1 1 -> L1"),
            ("L1: 1[a..)r1\nL3: 2[x..z]", "nothing"),
            ("L6: 1[a..c] 2[d..f]r1", "L6 2 -> L6"),
            ("L6: 1[a..c] 2[d..f]r1@11", "nothing"),
            ("L0: 1[a..c)e0r1\nL1: 2[a..c]e257", "nothing"),
            ("L0: 1[a..c)e0r1\nL1: 2[a..c]e256", "L0 1 + L1 2 -> L1"),
        ];
        for (drawing, expected) in golden {
            assert_eq!(picked(drawing, &CompactionCursors::default()), expected, "{drawing}");
        }
    }

    #[test]
    fn small_tables_sink_together_and_merge() {
        let golden = [
            // Below an eighth of a full table, which has 100 bytes.
            ("L0: 4[g..h]:3 3[e..f]:3 2[c..d]:3 1[a..b]:3", "L0 4 3 2 1 -> L1"),
            ("L0: 4[g..h]:3 3[e..f]:90 2[c..d]:3 1[a..b]:3", "L0 2 1 -> L1"),
            ("L0: 4[g..h]:9 3[e..f]:9 2[c..d]:9 1[a..b]:9", "L0 2 1 -> L1"),
            ("L0: 4[g..h] 3[e..f] 2[c..d] 1[a..b]:12", "L0 1 -> L1, a move"),
            // A neighbour of at most twice their bytes; then the next one.
            ("L0: 4[g..h] 3[e..f] 2[c..d] 1[x..z]:4\nL1: 9[a..b]:8", "L0 1 + L1 9 -> L1"),
            ("L0: 4[g..h] 3[e..f] 2[c..d] 1[x..z]:4\nL1: 9[a..b]:9", "L0 1 -> L1, a move"),
            (
                "L0: 4[g..h] 3[e..f] 2[c..d] 1[k..l]:3\nL1: 7[a..b]:12 8[i..j]:2 9[x..y]:5",
                "L0 1 + L1 8 9 -> L1",
            ),
            ("L0: 4[g..h] 3[e..f] 2[c..d] 1[x..z]:4\nL1: 8[a..b]:1 9[p..q]", "L0 1 -> L1, a move"),
            // Far apart, they would rewrite all that lies between them.
            ("L0: 4[g..h] 3[e..f] 2[y..z]:3 1[a..b]:3\nL1: 9[k..l]", "L0 1 -> L1, a move"),
            ("L1: 1[a..b]:5 2[c..d]:5 3[e..f]:290", "L1 1 2 -> L2"),
        ];
        for (drawing, expected) in golden {
            assert_eq!(picked(drawing, &CompactionCursors::default()), expected, "{drawing}");
        }
    }

    #[test]
    fn small_overlapping_tables_merge_within_level_0() {
        let below = "\nL1: 9[a..z]:200";
        let golden = [
            ("L0: 4[a..z]^7@8:2 3[a..z]^5@6:2 2[a..z]^3@4:2 1[a..z]^1@2:2", "L0 4 3 2 1 -> L0"),
            // The cheapest run that brings the level below its trigger.
            ("L0: 4[a..z]^7@8:1 3[a..z]^5@6:1 2[a..z]^3@4:1 1[a..z]^1@2:8", "L0 4 3 2 -> L0"),
            (
                "L0: 5[a..z]^9@9:1 4[a..z]^7@8:1 3[a..z]^5@6:1 2[a..z]^3@4:1 1[a..z]^1@2:7",
                "L0 5 4 3 2 -> L0",
            ),
            // More than an eighth of 200 bytes, or of a full table.
            (
                "L0: 4[a..z]^7@8:7 3[a..z]^5@6:7 2[a..z]^3@4:7 1[a..z]^1@2:7",
                "L0 4 3 2 1 + L1 9 -> L1",
            ),
            // 3 and 2 alone would be older than 4 by one sequence, and newer by another.
            ("L0: 4[a..b]^7@9:1 3[c..z]^6@8:1 2[a..d]^3@4:1 1[a..z]^1@2:7", "L0 4 3 2 -> L0"),
            // 3 and 2 come from one flush: their sequences overlap, and they share no key.
            ("L0: 5[a..k]^8@9:1 3[a..k]^6@7:1 2[l..z]^4@7:1 1[a..z]^1@2:7", "L0 5 3 2 -> L0"),
            // 3 and 2 would be cheapest. But the sequences of 4 overlap those of 3, and 4 shares
            // keys with 2.
            ("L0: 4[a..b]^7@9:5 3[c..z]^6@8:1 2[a..z]^3@4:1 1[a..z]^1@2:3", "L0 4 3 2 1 -> L0"),
        ];
        for (drawing, expected) in golden {
            let drawing = format!("{drawing}{below}");
            assert_eq!(picked(&drawing, &CompactionCursors::default()), expected, "{drawing}");
        }
    }

    /// A tree whose level 0 was flushed table by table. Some flushes wrote several tables.
    fn grown(flushes: &[Vec<(u8, u8, u16)>], deeper: &[(usize, u8, u8, u16)]) -> LevelFiles {
        let mut drawing = String::new();
        let (mut number, mut sequence) = (1, 100);
        for flush in flushes {
            let mut end = 0;
            for &(gap, width, bytes) in flush {
                let first = end + gap;
                end = first + width + 1;
                let last = end - 1;
                let text =
                    format!(" {number}[{first:03}..{last:03}]^{sequence}@{}:{bytes}", sequence + 9);
                drawing = format!("{text}{drawing}");
                number += 1;
            }
            sequence += 10;
        }
        drawing = format!("L0:{drawing}");
        for level in 1..LEVELS {
            drawing += &format!("\nL{level}:");
            let mut end = 0;
            for &(_, gap, width, bytes) in deeper.iter().filter(|table| table.0 == level) {
                let first = end + u16::from(gap);
                end = first + u16::from(width) + 1;
                drawing += &format!(" {number}[{first:03}..{:03}]@9:{bytes}", end - 1);
                number += 1;
            }
        }
        let mut levels = drawn_levels(&drawing);
        Arc::make_mut(&mut levels[0]).sort_by(|a, b| search_order(0, a, b));
        levels
    }

    proptest! {
        /// Whatever the tree, tasks bring it to rest, and after each one every level is in order:
        /// no table is older and newer than another one that it shares keys with.
        #[test]
        fn levels_stay_sorted_until_the_tree_rests(
            flushes in proptest::collection::vec(
                proptest::collection::vec((0u8..20, 0u8..40, 1u16..9), 1..4), 0..12),
            deeper in proptest::collection::vec((1usize..4, 0u8..30, 0u8..30, 1u16..600), 0..12),
        ) {
            let mut levels = grown(&flushes, &deeper);
            prop_assert!((0..LEVELS).all(|l| order_conflicts(l, levels[l].iter().map(|m| &**m)).is_empty()));
            let mut cursors = CompactionCursors::default();
            let mut steps = 0;
            while let Some(task) = pick(&levels, &OPTIONS, &cursors, 1000, 0, &[], &|_| false) {
                let text = described(Some(&task));
                steps += 1;
                prop_assert!(steps < 200, "{}", text);
                if task.output_level > task.input_level {
                    // No table that stays may be older than one that passes it.
                    let stay = levels[task.input_level].iter();
                    let stay = stay.filter(|m| task.inputs.iter().all(|i| i.number != m.number));
                    for meta in stay {
                        prop_assert!(overlapping_tables(0, &task.inputs, &meta.span()).is_empty(), "{}", text);
                    }
                }
                let next = after(&levels, &task, 1000 + steps);
                for (level, tables) in next.iter().enumerate() {
                    let found = order_conflicts(level, tables.iter().map(|m| &**m));
                    prop_assert!(found.is_empty(), "{}: {:?}", text, found);
                }
                cursors.advance(&task);
                levels = next;
            }
            prop_assert!((0..LEVELS - 1).all(|level| score(&levels, level, &OPTIONS) < 1.0));
        }
    }

    /// Each table of level 1 is garbage that is not worth the entries below it, so all are looked
    /// at, and no task comes of it.
    #[test]
    fn a_look_takes_no_square_of_the_number_of_tables() {
        let options = CompactionOptions { level_base_bytes: 1 << 40, ..OPTIONS };
        let look_at = |count: usize| {
            let keys = || (0..count).map(|n| format!("[{n:05}..{n:05}]"));
            let garbage: String = keys().map(|keys| format!(" 1{keys}e1g1")).collect();
            let below: String = keys().map(|keys| format!(" 2{keys}e9999")).collect();
            let levels = drawn_levels(&format!("L1:{garbage}\nL2:{below}"));
            let started = std::time::Instant::now();
            let cursors = CompactionCursors::default();
            assert!(pick(&levels, &options, &cursors, 10, 0, &[], &|_| false).is_none());
            started.elapsed()
        };
        let few = (0..9).map(|_| look_at(500)).min().unwrap();
        let many = (0..3).map(|_| look_at(10_000)).min().unwrap();
        // 20 times as many; the square of that is 400.
        assert!(many < 100 * few, "{few:?} and {many:?}");
    }

    /// All tables of a level are small, so they go down together.
    #[test]
    fn a_task_of_many_small_tables_takes_no_square_of_their_number() {
        let options =
            CompactionOptions { table_bytes: 64 << 20, level_base_bytes: 64 << 20, ..OPTIONS };
        for (level, below) in [(0, ""), (1, ""), (1, "\nL2: 88888[0..9]:44444444")] {
            let look_at = |count: usize| {
                let tables = (0..count).rev().map(|n| format!(" {}[{n:05}..{n:05}]:99", n + 1));
                let mut drawing: Vec<String> = tables.collect();
                if level > 0 {
                    drawing.reverse();
                    drawing.push(" 99999[x..z]:99999999".into());
                }
                let levels = drawn_levels(&format!("L{level}:{}{below}", drawing.concat()));
                let started = std::time::Instant::now();
                let cursors = CompactionCursors::default();
                let task = pick(&levels, &options, &cursors, 10, 0, &[], &|_| false);
                let took = started.elapsed();
                assert_eq!(task.unwrap().inputs.len(), count, "of level {level}{below}");
                took
            };
            let few = (0..9).map(|_| look_at(500)).min().unwrap();
            let many = (0..5).map(|_| look_at(8_000)).min().unwrap();
            // 16 times as many; the square of that is 256.
            assert!(many < 120 * few, "level {level}{below}: {few:?} and {many:?}");
        }
    }

    #[test]
    fn ascending_single_entry_tables_are_merged() {
        let mut levels = LevelFiles::default();
        let options =
            CompactionOptions { table_bytes: 64 << 20, level_base_bytes: 256 << 20, ..OPTIONS };
        let mut cursors = CompactionCursors::default();
        let (mut written, mut most) = (0, 0);
        for flush in 0..3000u64 {
            let table =
                format!("L0: {}[{flush:05}..{flush:05}]^{flush}@{flush}:1000", 2 * flush + 1);
            let new = Arc::clone(&drawn_levels(&table)[0][0]);
            Arc::make_mut(&mut levels[0]).insert(0, new);
            while let Some(task) = pick(&levels, &options, &cursors, u64::MAX, 0, &[], &|_| false) {
                cursors.advance(&task);
                if !task.trivial_move {
                    written += task.replaced().map(|(_, meta)| meta.bytes).sum::<u64>();
                }
                levels = after(&levels, &task, 2 * flush + 2);
            }
            most = most.max(levels.iter().map(|tables| tables.len()).sum());
        }
        assert!(most <= 12, "{most} tables at once");
        // Each entry is written a logarithmic number of times.
        assert!(written < 20 * 3000 * 1000, "{written} bytes");
    }

    #[test]
    fn every_tree_comes_to_rest() {
        let mut levels = drawn_levels(
            "L0: 9[a..m]g80 8[c..d] 7[x..z]:5000 6[k..l] 5[m..x]
             L1: 11[a..e]:4000 12[f..j]g100@99 13[k..p]
             L2: 21[a..b]:9000 22[c..k] 23[l..z]:40000g60
             L6: 61[a..k]:700000g99 62[l..z]:900000g50@77",
        );
        let mut cursors = CompactionCursors::default();
        let mut steps = 0;
        while let Some(task) = pick(&levels, &OPTIONS, &cursors, 10, 0, &[], &|_| false) {
            cursors.advance(&task);
            steps += 1;
            assert!(steps < 100, "{}", described(Some(&task)));
            levels = after(&levels, &task, 1000 + steps);
        }
        assert!((0..LEVELS - 1).all(|level| score(&levels, level, &OPTIONS) < 1.0));
    }
}
