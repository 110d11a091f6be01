//! The compactions of one `rebuild_filters` call, named one after the other.
//!
//! Tables of a sorted level are rewritten one by one where they are. Those of level 0 go down,
//! where they would go soon anyway; with each goes every table of the level that it shares keys
//! with, as in any compaction. Whatever goes down gets the filter of level 1.
//!
//! Every step moves on by level and key and passes over what was written since the call began, so
//! the walk ends whatever else happens to the tree, and also where a filter cannot be made as
//! wanted. Called by `jobs/workers.rs` with the shape of the tree as it is before each step.

use crate::base::key::user_key;
use crate::base::levels::LEVELS;
use crate::jobs::compact::task::{CompactionTask, overlap_closure};
use crate::tree::edit::FileMeta;
use crate::tree::targets::CompactionOptions;
use crate::tree::version::LevelFiles;

/// Which filters [`Db::rebuild_filters`](crate::Db::rebuild_filters) builds anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterRebuild {
    /// Those that differ from what the options ask for at the table's level: missing ones, other
    /// encodings, layouts or bits per key, and any where no filter is asked for; and those that
    /// are damaged, for which the filter of every table is read.
    Differing,
    /// All of them.
    All,
}

/// A walk down the tree.
#[derive(Debug)]
pub struct FilterRebuildWalk {
    level: usize,
    /// At the current level, all tables up to this user key are done.
    done: Option<Vec<u8>>,
    /// Files from this number on were written since the call began.
    first_new_number: u64,
}

impl FilterRebuildWalk {
    /// A walk over all tables; `next_file_number` as it is now.
    #[must_use]
    pub fn new(next_file_number: u64) -> Self {
        FilterRebuildWalk { level: 0, done: None, first_new_number: next_file_number }
    }

    /// The next step, or `None` when the walk is over.
    pub fn next_task(
        &mut self,
        levels: &LevelFiles,
        options: &CompactionOptions,
        is_due: impl Fn(&FileMeta) -> bool,
    ) -> Option<CompactionTask> {
        if self.level == 0 {
            // All at once: what is flushed from now on has the filter of today.
            self.level = 1;
            let due = levels[0].iter().filter(|meta| is_due(meta));
            let inputs = overlap_closure(&levels[0], due.cloned().collect());
            if !inputs.is_empty() {
                let task = CompactionTask::down(levels, 0, inputs, options);
                // Moved as it is, a table would keep its filter.
                return Some(CompactionTask { trivial_move: false, ..task });
            }
        }
        while self.level < LEVELS {
            let next = levels[self.level].iter().find(|meta| {
                let done = self.done.as_deref();
                meta.number < self.first_new_number
                    && done.is_none_or(|done| user_key(&meta.smallest) > done)
                    && is_due(meta)
            });
            match next {
                Some(meta) => {
                    self.done = Some(user_key(&meta.largest).to_vec());
                    return Some(CompactionTask::rewrite(levels, self.level, vec![meta.clone()]));
                }
                None => {
                    self.level += 1;
                    self.done = None;
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::compact::task::tests::{OPTIONS, after, described};
    use crate::tree::testing::drawn_levels;

    /// The steps that rebuild the tables with the numbers in `due`.
    fn walked(drawing: &str, due: &[u64]) -> Vec<String> {
        let mut levels = drawn_levels(drawing);
        let mut walk = FilterRebuildWalk::new(100);
        let mut steps = Vec::new();
        let is_due = |meta: &FileMeta| due.contains(&meta.number) || meta.number >= 100;
        while let Some(task) = walk.next_task(&levels, &OPTIONS, is_due) {
            steps.push(described(Some(&task)));
            levels = after(&levels, &task, 100 + steps.len() as u64);
        }
        steps
    }

    #[test]
    fn sorted_levels_are_rewritten_in_place() {
        let drawing = "L1: 1[a..c] 2[d..f] 3[g..i]\nL2: 4[a..e] 5[f..z]\nL6: 6[a..z]";
        assert_eq!(walked(drawing, &[]), Vec::<String>::new());
        assert_eq!(walked(drawing, &[2, 6]), ["L1 2 -> L1", "L6 6 -> L6"]);
        assert_eq!(
            walked(drawing, &[1, 2, 3, 4, 5]),
            ["L1 1 -> L1", "L1 2 -> L1", "L1 3 -> L1", "L2 4 -> L2", "L2 5 -> L2"]
        );
    }

    #[test]
    fn level_0_rebuilds_take_every_overlapping_table() {
        let drawing = "L0: 4[x..z] 3[e..g] 2[c..f] 1[a..d]\nL1: 9[f..h] 10[p..q]";
        assert_eq!(walked(drawing, &[4]), ["L0 4 -> L1"]);
        // What the step wrote is done, although it lies where the walk goes next.
        assert_eq!(walked(drawing, &[1, 9, 10]), ["L0 3 2 1 + L1 9 -> L1", "L1 10 -> L1"]);
    }

    #[test]
    fn a_rebuild_ends_although_nothing_changes() {
        let levels = drawn_levels("L0: 8[a..c]\nL5: 1[a..c] 2[d..f]");
        let mut walk = FilterRebuildWalk::new(100);
        let mut steps = Vec::new();
        while let Some(task) = walk.next_task(&levels, &OPTIONS, |_| true) {
            steps.push(described(Some(&task)));
        }
        assert_eq!(steps, ["L0 8 -> L1", "L5 1 -> L5", "L5 2 -> L5"]);
    }
}
