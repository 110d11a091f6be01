//! The compactions of one call by hand, one after the other: `compact_range` or `rebuild_filters`.
//!
//! To compact a range, its tables go down to the deepest level that had any when the call began, at
//! least to level 1: level by level, or from level 0 at once if all of it is small enough. That
//! bottom level is then cleaned in place: tables that hold garbage (tombstones, covered versions,
//! range deletes) or entries that expire, and were not written by this call, are rewritten, and
//! neighbours that fit one table become one. With `force` no table is moved unread, and every table
//! of the range is rewritten.
//!
//! To rebuild filters, the tables of level 0 go down, each with all tables of the level that it
//! shares keys with, and get the filter of level 1. Tables of sorted levels are rewritten one by
//! one at their level.
//!
//! The caller asks [`ManualCompaction::next_task`] with the tree as it is, runs and installs the
//! task, and asks again. Other compactions may run between two steps, down to the bottom level.
//!
//! Steps go from level to level, and through the keys of a level in order. They never go back: new
//! data at keys that were visited stays where it is, and so do new tables after the last key that
//! the level had at its first step. So the call ends, even if somebody writes all the time.

use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::jobs::compact::task::{CompactionTask, may_drop};
use crate::tree::file_meta::FileMeta;
use crate::tree::overlap::{borrowed, compare_ends, ends_before, overlap_closure};
use crate::tree::targets::CompactionOptions;
use crate::tree::version::LevelFiles;
use std::ops::Bound;

/// Which filters [`Keyspace::rebuild_filters`](crate::Keyspace::rebuild_filters) rebuilds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterRebuild {
    /// Those that differ from the options for the level of the table, and those that are damaged.
    /// Other encodings, layouts or bits per key differ, and so do a missing filter and one that the
    /// options do not ask for. To find damage, the filter of every table is read.
    Differing,
    /// The filters of all tables.
    All,
}

/// The purpose of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManualGoal {
    /// Tables go down to the bottom level, which is then cleaned.
    Compact {
        /// Rewrite every table.
        force: bool,
    },
    /// Tables of sorted levels are rewritten where they are.
    RebuildFilters,
}

/// Level 0 goes straight to the bottom if the whole step replaces at most this many times the bytes
/// that a table may overlap. A step between two levels may be as large: that many bytes of inputs,
/// and what they overlap.
const WHOLE_STEPS: u64 = 2;

/// A level in the middle of a visit.
#[derive(Debug)]
struct Visited {
    /// Tables that do not end after this are done.
    done: Bound<Vec<u8>>,
    /// Tables that begin after this came since the first step, and stay.
    until: Bound<Vec<u8>>,
}

/// The compactions of one call.
#[derive(Debug)]
pub(crate) struct ManualCompaction {
    goal: ManualGoal,
    level: usize,
    /// The last level to visit.
    pub bottom: usize,
    /// What is visited of the current level; `None` before its first step.
    visited: Option<Visited>,
    /// Files from this number on were written since the call began.
    first_new_number: u64,
}

impl ManualCompaction {
    /// For the tables that `is_due`; `next_file_number` as it is now.
    pub(crate) fn new(
        goal: ManualGoal,
        levels: &LevelFiles,
        next_file_number: u64,
        is_due: impl Fn(&FileMeta) -> bool,
    ) -> Self {
        let has_due = |level: &usize| levels[*level].iter().any(|meta| is_due(meta));
        let bottom = match goal {
            ManualGoal::Compact { .. } => (1..LEVELS).rev().find(has_due).unwrap_or(1),
            ManualGoal::RebuildFilters => LEVELS - 1,
        };
        let first_new_number = next_file_number;
        ManualCompaction { goal, level: 0, bottom, visited: None, first_new_number }
    }

    /// The next step, or `None` when all are done.
    pub(crate) fn next_task(
        &mut self,
        levels: &LevelFiles,
        options: &CompactionOptions,
        is_due: impl Fn(&FileMeta) -> bool,
    ) -> Option<CompactionTask> {
        while self.level <= self.bottom {
            let level = self.level;
            let is_in_reach = |meta: &&Arc<FileMeta>| is_due(meta) && !self.came_later(meta);
            let due: Vec<_> = levels[level].iter().filter(is_in_reach).cloned().collect();
            let inputs = match (level, self.goal) {
                // With all tables that overlap them: an older table that stays would be searched
                // first.
                (0, _) => overlap_closure(0, &levels[0], due.clone()),
                (_, ManualGoal::Compact { force }) => self.neighbours(&due, force, options),
                (_, ManualGoal::RebuildFilters) => {
                    let next = due.iter().find(|meta| self.is_old(meta) && !self.is_done(meta));
                    next.cloned().into_iter().collect()
                }
            };
            let Some((last, last_due)) = inputs.last().zip(due.last()) else {
                (self.level, self.visited) = (level + 1, None);
                continue;
            };
            match level {
                // All at once: tables that are flushed from now on are newer than the call.
                0 => self.level = 1,
                _ => {
                    let (done, until) = (last.end.clone(), last_due.end.clone());
                    let visited = self.visited.get_or_insert(Visited { done: done.clone(), until });
                    visited.done = done;
                }
            }
            let rebuilds = self.goal == ManualGoal::RebuildFilters;
            if level > 0 && (rebuilds || level == self.bottom) {
                return Some(CompactionTask::rewrite(levels, level, inputs));
            }
            let task = self.down(levels, level, inputs, options);
            // A table that is moved as it is keeps its filter and is not read.
            let may_move = self.goal == ManualGoal::Compact { force: false };
            let task = CompactionTask { trivial_move: task.trivial_move && may_move, ..task };
            return Some(task.clean_at(self.bottom));
        }
        None
    }

    /// The step that takes `inputs` down from `level`. From level 0 all goes to the bottom at once,
    /// with what lies between, if that is not too much: step by step, the levels between would be
    /// written again and again.
    fn down(
        &self,
        levels: &LevelFiles,
        level: usize,
        inputs: Vec<Arc<FileMeta>>,
        options: &CompactionOptions,
    ) -> CompactionTask {
        if level == 0 && matches!(self.goal, ManualGoal::Compact { .. }) {
            let whole =
                CompactionTask::down_to(levels, level, self.bottom, inputs.clone(), options);
            let bytes: u64 = whole.replaced().map(|(_, meta)| meta.bytes).sum();
            if bytes <= options.grandparent_bytes_max().saturating_mul(WHOLE_STEPS) {
                return whole;
            }
        }
        CompactionTask::down(levels, level, inputs, options)
    }

    /// The next few neighbours of a sorted level: enough for full output tables, and few enough
    /// that the space of inputs and outputs together stays small. At the bottom level only tables
    /// that are worth rewriting, or that fit one table with a neighbour.
    fn neighbours(
        &self,
        tables: &[Arc<FileMeta>],
        force: bool,
        options: &CompactionOptions,
    ) -> Vec<Arc<FileMeta>> {
        let open = tables.iter().take_while(|meta| self.is_done(meta)).count();
        let fits = |left: Option<usize>, right: usize| {
            let [left, right] = [left?, right].map(|index| tables.get(index));
            Some(left?.bytes + right?.bytes <= options.table_bytes)
        };
        let joins_before = |index: usize| fits(index.checked_sub(1), index).unwrap_or(false);
        let is_due = |index: &usize| {
            self.level < self.bottom
                || (self.is_old(&tables[*index]) && (force || may_drop(&tables[*index])))
                || joins_before(*index)
                || joins_before(index + 1)
        };
        let Some(first) = (open..tables.len()).find(is_due) else { return Vec::new() };
        // If so, the previous table is the small rest of the last step.
        let start = first - usize::from(self.level == self.bottom && joins_before(first));
        let mut inputs = Vec::new();
        let mut bytes = 0;
        for index in (start..tables.len()).take_while(is_due) {
            bytes += tables[index].bytes;
            inputs.push(Arc::clone(&tables[index]));
            if bytes >= options.grandparent_bytes_max() && index >= first {
                break;
            }
        }
        inputs
    }

    fn is_old(&self, meta: &FileMeta) -> bool {
        meta.number < self.first_new_number
    }

    /// True for a table after the last key that the level had.
    fn came_later(&self, meta: &FileMeta) -> bool {
        let is_behind = |level: &Visited| ends_before(borrowed(&level.until), &meta.start);
        self.visited.as_ref().is_some_and(is_behind)
    }

    fn is_done(&self, meta: &FileMeta) -> bool {
        let is_over =
            |level: &Visited| compare_ends(meta.span().end, borrowed(&level.done)).is_le();
        self.visited.as_ref().is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::range::{KeyBounds, KeyRange};
    use crate::jobs::compact::task::tests::{OPTIONS, after, described};
    use crate::tree::testing::drawn_levels;
    use std::ops::Bound;

    const COMPACT: ManualGoal = ManualGoal::Compact { force: false };

    fn included(first: &str, last: &str) -> KeyBounds {
        (first..=last).into_bounds()
    }

    fn all() -> KeyBounds {
        (..).into_bounds()
    }

    fn walked(drawing: &str, range: KeyBounds) -> Vec<String> {
        walked_with(drawing, range, false)
    }

    fn walked_with(drawing: &str, range: KeyBounds, force: bool) -> Vec<String> {
        let mut levels = drawn_levels(drawing);
        let is_due = |meta: &FileMeta| meta.overlaps(&range);
        let goal = ManualGoal::Compact { force };
        let mut compaction = ManualCompaction::new(goal, &levels, 100, is_due);
        let mut steps = Vec::new();
        while let Some(task) = compaction.next_task(&levels, &OPTIONS, is_due) {
            steps.push(described(Some(&task)));
            levels = after(&levels, &task, 100 + steps.len() as u64);
        }
        steps
    }

    #[test]
    fn range_compaction_reaches_the_bottom_level() {
        assert!(walked("", all()).is_empty());
        assert!(walked("L3: 1[a..c] 2[d..f]", all()).is_empty());
        assert_eq!(walked("L0: 3[a..z] 2[a..z]", all()), ["L0 3 2 -> L1"]);
        assert_eq!(
            walked("L0: 3[a..c] 2[x..z]\nL2: 4[b..d] 5[e..g]", all()),
            ["L0 3 2 + L2 4 5 -> L2"]
        );
        // Step by step, if one step would be too large.
        assert_eq!(
            walked("L0: 3[a..c] 2[x..z]\nL2: 4[b..d]:1701 5[e..g]", all()),
            ["L0 3 2 -> L1", "L1 101 + L2 4 5 -> L2"]
        );
        // Of the levels between, what shares keys with level 0, or with what goes down above it.
        assert_eq!(
            walked("L0: 9[a..c]\nL1: 1[b..f] 2[x..z]\nL2: 3[e..g] 4[h..i]\nL3: 5[g..k]", all()),
            ["L0 9 + L1 1 + L2 3 + L3 5 -> L3", "L1 2 -> L2, a move", "L2 4 2 + L3 101 -> L3"]
        );
        assert_eq!(
            walked("L1: 1[a..b]:900 2[c..d]:200 3[e..f]\nL2: 4[a..b]", all()),
            ["L1 1 2 + L2 4 -> L2", "L1 3 -> L2, a move"]
        );
    }

    #[test]
    fn tables_outside_the_range_stay() {
        let drawing = "L0: 9[f..g] 8[c..d] 7[a..c] 6[x..z]\nL1: 1[a..b] 2[k..l]\nL2: 3[a..z]";
        assert_eq!(walked(drawing, included("d", "e")), ["L0 8 7 + L1 1 + L2 3 -> L2"]);
        assert_eq!(walked(drawing, included("m", "n")), Vec::<String>::new());
        let open = (Bound::Excluded("g"), Bound::Excluded("x")).into_bounds();
        assert_eq!(walked(drawing, open), ["L1 2 + L2 3 -> L2"]);
    }

    #[test]
    fn the_bottom_level_is_cleaned_once() {
        assert_eq!(
            walked("L2: 1[a..c]g1 2[d..f]g2 3[g..i] 4[k..l]g1\nL4: 5[k..l]", included("a", "i")),
            ["L2 1 2 -> L2"]
        );
        // Merged tables are clean already.
        assert_eq!(walked("L0: 1[a..c]g9", all()), ["L0 1 -> L1"]);
        assert_eq!(walked("L0: 2[a..c]g9 1[c..d]", all()), ["L0 2 1 -> L1"]);
        assert_eq!(walked("L2: 1[a..c]r1 2[d..)", all()), ["L2 1 2 -> L2"]);
    }

    /// Table 100 was written by the call, so the bottom level does not clean it.
    #[test]
    fn garbage_is_not_moved_to_the_bottom() {
        let moved = |drawing| walked(drawing, all()).concat().contains("a move");
        assert!(!moved("L1: 100[a..c]g1\nL2: 2[x..z]"));
        assert!(moved("L1: 100[a..c]\nL2: 2[x..z]"));
        assert!(moved("L1: 100[a..c]g1\nL3: 2[x..z]"), "from level 1 to 2");
    }

    #[test]
    fn small_neighbours_are_joined() {
        let drawing = "L3: 1[a..b]:30 2[c..d]:40 3[e..f]:90 4[g..h]:20 5[i..j]:20 6[k..l]";
        assert_eq!(walked(drawing, all()), ["L3 1 2 -> L3", "L3 4 5 -> L3"]);
        // Only those of the range.
        assert_eq!(walked(drawing, included("d", "g")), Vec::<String>::new());
        assert_eq!(walked("L3: 1[a..b]:50 2[c..d]:51", all()), Vec::<String>::new());
        // A table that goes down is merged with a small neighbour.
        assert_eq!(walked("L0: 3[x..y]:9\nL1: 1[a..b]:9", all()), ["L0 3 + L1 1 -> L1"]);
        // A step takes the small rest of the step before it.
        let levels = drawn_levels("L3: 1[a..b]:50 2[c..d]:50 3[e..f]:60");
        let mut compaction = ManualCompaction::new(COMPACT, &levels, 100, |_| true);
        let first = compaction.next_task(&levels, &OPTIONS, |_| true);
        assert_eq!(described(first.as_ref()), "L3 1 2 -> L3");
        let left_over = drawn_levels("L3: 101[a..b]:95 102[d..d]:30 3[e..f]:60 4[g..h]:50");
        let second = compaction.next_task(&left_over, &OPTIONS, |_| true);
        assert_eq!(described(second.as_ref()), "L3 102 3 -> L3");
    }

    #[test]
    fn force_rewrites_every_table() {
        let drawing = "L1: 1[a..c] 2[x..z]\nL2: 3[d..f] 4[g..i]:900 5[k..l]";
        assert_eq!(
            walked_with(drawing, all(), true),
            ["L1 1 2 + L2 3 4 5 -> L2"].map(String::from).to_vec()
        );
        let drawing = "L1: 1[a..c]\nL2: 3[d..f] 4[g..i]:900 5[k..l]";
        assert_eq!(walked_with(drawing, all(), true), ["L1 1 -> L2", "L2 3 4 -> L2", "L2 5 -> L2"]);
    }

    #[test]
    fn range_compaction_ends_although_nothing_is_freed() {
        let levels = drawn_levels("L5: 1[a..c]g9 2[d..f] 3[g..i]g1");
        let mut compaction = ManualCompaction::new(COMPACT, &levels, 100, |_| true);
        let mut steps = Vec::new();
        while let Some(task) = compaction.next_task(&levels, &OPTIONS, |_| true) {
            steps.push(described(Some(&task)));
        }
        assert_eq!(steps, ["L5 1 -> L5", "L5 3 -> L5"]);
    }

    /// The steps of a forced call. Before each step, other compactions have made the tree what the
    /// next drawing shows.
    fn forced_between(drawings: &[&str]) -> Vec<String> {
        let mut levels = drawn_levels(drawings[0]);
        let goal = ManualGoal::Compact { force: true };
        let mut compaction = ManualCompaction::new(goal, &levels, 100, |_| true);
        let step = |drawing: &&str| {
            levels = drawn_levels(drawing);
            described(compaction.next_task(&levels, &OPTIONS, |_| true).as_ref())
        };
        drawings.iter().map(step).collect()
    }

    /// Tables 101 and 102 have new data of level 0, and what was left of table 2. Tables from `k` on
    /// are new.
    #[test]
    fn tables_merged_from_above_go_down_with_what_was_due() {
        let steps = forced_between(&[
            "L1: 1[a..c]:1000 2[d..f]:1000 3[g..i]:1000\nL2: 9[a..z]",
            "L1: 101[b..e]:1000 102[f..f] 3[g..i]:1000\nL2: 103[a..z]",
            "L1: 102[f..f] 3[g..i]:1000 104[k..z]\nL2: 105[a..z]",
            "L1: 104[k..p] 106[q..z]\nL2: 107[a..z]",
        ]);
        let down = ["L1 1 + L2 9 -> L2", "L1 101 + L2 103 -> L2", "L1 102 3 + L2 105 -> L2"];
        assert_eq!(steps[..3], down);
        assert_eq!(steps[3], "nothing");
    }

    /// The steps that rebuild the tables with the numbers in `due`.
    fn rebuilt(drawing: &str, due: &[u64]) -> Vec<String> {
        let mut levels = drawn_levels(drawing);
        let mut compaction =
            ManualCompaction::new(ManualGoal::RebuildFilters, &levels, 100, |_| true);
        let mut steps = Vec::new();
        let is_due = |meta: &FileMeta| due.contains(&meta.number) || meta.number >= 100;
        while let Some(task) = compaction.next_task(&levels, &OPTIONS, is_due) {
            steps.push(described(Some(&task)));
            levels = after(&levels, &task, 100 + steps.len() as u64);
        }
        steps
    }

    #[test]
    fn sorted_levels_are_rewritten_in_place() {
        let drawing = "L1: 1[a..c] 2[d..f] 3[g..i]\nL2: 4[a..e] 5[f..z]\nL6: 6[a..z]";
        assert_eq!(rebuilt(drawing, &[]), Vec::<String>::new());
        assert_eq!(rebuilt(drawing, &[2, 6]), ["L1 2 -> L1", "L6 6 -> L6"]);
        assert_eq!(
            rebuilt(drawing, &[1, 2, 3, 4, 5]),
            ["L1 1 -> L1", "L1 2 -> L1", "L1 3 -> L1", "L2 4 -> L2", "L2 5 -> L2"]
        );
    }

    #[test]
    fn level_0_rebuilds_take_every_overlapping_table() {
        let drawing = "L0: 4[x..z] 3[e..g] 2[c..f] 1[a..d]\nL1: 9[f..h] 10[p..q]";
        assert_eq!(rebuilt(drawing, &[4]), ["L0 4 -> L1"]);
        // The new table is not rewritten, although the next step comes to its keys.
        assert_eq!(rebuilt(drawing, &[1, 9, 10]), ["L0 3 2 1 + L1 9 -> L1", "L1 10 -> L1"]);
    }

    #[test]
    fn a_rebuild_ends_although_nothing_changes() {
        let levels = drawn_levels("L0: 8[a..c]\nL5: 1[a..c] 2[d..f]");
        let mut compaction =
            ManualCompaction::new(ManualGoal::RebuildFilters, &levels, 100, |_| true);
        let mut steps = Vec::new();
        while let Some(task) = compaction.next_task(&levels, &OPTIONS, |_| true) {
            steps.push(described(Some(&task)));
        }
        assert_eq!(steps, ["L0 8 -> L1", "L5 1 -> L5", "L5 2 -> L5"]);
    }
}
