//! The compactions of one `compact_range` call, named one after the other.
//!
//! All data of the range goes down level by level to the deepest level that had any when the call
//! began, at least to level 1. That bottom level is then cleaned in place: tables that hold
//! garbage (tombstones, covered versions) and were not written by this very call are rewritten,
//! and neighbours that fit one table become one. With `force` nothing is moved as it is and every
//! table of the range is rewritten.
//!
//! Every step moves on by level and key, so the walk ends whatever else happens to the tree: it
//! looks at each place once, and data that arrives behind it is not its business. The caller asks
//! [`RangeCompaction::next_task`] with the shape of the tree as it is, runs and applies the task,
//! and asks again.

use crate::base::key::user_key;
use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::jobs::compact::task::{CompactionTask, overlap_closure};
use crate::tree::edit::FileMeta;
use crate::tree::targets::CompactionOptions;
use crate::tree::version::LevelFiles;
use std::ops::Bound;

/// A walk down the tree.
#[derive(Debug)]
pub struct RangeCompaction {
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    level: usize,
    bottom: usize,
    /// At the current level, all tables up to this user key are done.
    done: Option<Vec<u8>>,
    /// Files from this number on were written since the call began.
    first_new_number: u64,
    /// Rewrite every table.
    force: bool,
}

impl RangeCompaction {
    /// A walk for the user keys in `range`; `next_file_number` as it is now; `force` to rewrite
    /// all tables.
    #[must_use]
    pub fn new(
        levels: &LevelFiles,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        next_file_number: u64,
        force: bool,
    ) -> Self {
        let touched = |level: &usize| levels[*level].iter().any(|meta| touches(meta, &range));
        let bottom = (1..LEVELS).rev().find(touched).unwrap_or(1);
        let first_new_number = next_file_number;
        RangeCompaction { range, level: 0, bottom, done: None, first_new_number, force }
    }

    /// The next step, or `None` when the walk is over.
    pub fn next_task(
        &mut self,
        levels: &LevelFiles,
        options: &CompactionOptions,
    ) -> Option<CompactionTask> {
        while self.level <= self.bottom {
            let tables = &levels[self.level];
            let inputs = match self.level {
                0 => self.level0_inputs(tables),
                _ => self.sorted_inputs(tables, options),
            };
            match inputs.last() {
                None => {
                    self.level += 1;
                    self.done = None;
                }
                Some(last) => {
                    let level = self.level;
                    if level == 0 {
                        // All at once: what is flushed from now on is newer than the call.
                        self.level = 1;
                    } else {
                        self.done = Some(user_key(&last.largest).to_vec());
                    }
                    return Some(match level == self.bottom {
                        true => CompactionTask::rewrite(levels, level, inputs),
                        false => self.down(levels, level, inputs, options),
                    });
                }
            }
        }
        None
    }

    fn down(
        &self,
        levels: &LevelFiles,
        level: usize,
        inputs: Vec<Arc<FileMeta>>,
        options: &CompactionOptions,
    ) -> CompactionTask {
        let task = CompactionTask::down(levels, level, inputs, options);
        CompactionTask { trivial_move: task.trivial_move && !self.force, ..task }
    }

    fn level0_inputs(&self, tables: &[Arc<FileMeta>]) -> Vec<Arc<FileMeta>> {
        let touched = tables.iter().filter(|meta| touches(meta, &self.range));
        overlap_closure(tables, touched.cloned().collect())
    }

    /// The next few neighbours of a sorted level: enough for full output tables, and few enough
    /// that the space they take twice stays small. At the bottom those that are worth rewriting,
    /// and those that fit one table with the one before.
    fn sorted_inputs(
        &self,
        tables: &[Arc<FileMeta>],
        options: &CompactionOptions,
    ) -> Vec<Arc<FileMeta>> {
        let in_range = tables.iter().filter(|meta| touches(meta, &self.range));
        let tables: Vec<&Arc<FileMeta>> = in_range.collect();
        let done = self.done.as_deref();
        let is_done = |meta: &FileMeta| done.is_some_and(|done| user_key(&meta.smallest) <= done);
        let open = tables.iter().take_while(|meta| is_done(meta)).count();
        let fits = |left: Option<usize>, right: usize| {
            let [left, right] = [left?, right].map(|place| tables.get(place));
            Some(left?.bytes + right?.bytes <= options.table_bytes)
        };
        let joins_before = |place: usize| fits(place.checked_sub(1), place).unwrap_or(false);
        let is_due = |place: &usize| {
            self.level < self.bottom
                || self.is_worth_rewriting(tables[*place])
                || joins_before(*place)
                || joins_before(place + 1)
        };
        let Some(first) = (open..tables.len()).find(is_due) else { return Vec::new() };
        // Then the table before is what the last step left over.
        let start = first - usize::from(self.level == self.bottom && joins_before(first));
        let mut inputs = Vec::new();
        let mut bytes = 0;
        for place in (start..tables.len()).take_while(is_due) {
            bytes += tables[place].bytes;
            inputs.push(Arc::clone(tables[place]));
            if bytes >= options.grandparent_bytes_max() && place >= first {
                break;
            }
        }
        inputs
    }

    fn is_worth_rewriting(&self, meta: &FileMeta) -> bool {
        meta.number < self.first_new_number && (self.force || meta.garbage > 0)
    }
}

fn touches(meta: &FileMeta, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    let (smallest, largest) = (user_key(&meta.smallest), user_key(&meta.largest));
    let begins_in_time = match &range.0 {
        Bound::Unbounded => true,
        Bound::Included(start) => largest >= &start[..],
        Bound::Excluded(start) => largest > &start[..],
    };
    let ends_in_time = match &range.1 {
        Bound::Unbounded => true,
        Bound::Included(end) => smallest <= &end[..],
        Bound::Excluded(end) => smallest < &end[..],
    };
    begins_in_time && ends_in_time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::compact::task::tests::{OPTIONS, after, described};
    use crate::tree::testing::drawn_levels;

    fn included(first: &str, last: &str) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(first.into()), Bound::Included(last.into()))
    }

    fn walked(drawing: &str, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<String> {
        walked_with(drawing, range, false)
    }

    fn walked_with(
        drawing: &str,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        force: bool,
    ) -> Vec<String> {
        let mut levels = drawn_levels(drawing);
        let mut walk = RangeCompaction::new(&levels, range, 100, force);
        let mut steps = Vec::new();
        while let Some(task) = walk.next_task(&levels, &OPTIONS) {
            steps.push(described(Some(&task)));
            levels = after(&levels, &task, 100 + steps.len() as u64);
        }
        steps
    }

    const ALL: (Bound<Vec<u8>>, Bound<Vec<u8>>) = (Bound::Unbounded, Bound::Unbounded);

    #[test]
    fn range_compaction_reaches_the_bottom_level() {
        assert!(walked("", ALL).is_empty());
        assert!(walked("L3: 1[a..c] 2[d..f]", ALL).is_empty());
        assert_eq!(walked("L0: 3[a..z] 2[a..z]", ALL), ["L0 3 2 -> L1"]);
        assert_eq!(
            walked("L0: 3[a..c] 2[x..z]\nL2: 4[b..d] 5[e..g]", ALL),
            ["L0 3 2 -> L1", "L1 101 + L2 4 5 -> L2"]
        );
        assert_eq!(
            walked("L1: 1[a..b]:900 2[c..d]:200 3[e..f]\nL2: 4[a..b]", ALL),
            ["L1 1 2 + L2 4 -> L2", "L1 3 -> L2, a move"]
        );
    }

    #[test]
    fn tables_outside_the_range_stay() {
        let drawing = "L0: 9[f..g] 8[c..d] 7[a..c] 6[x..z]\nL1: 1[a..b] 2[k..l]\nL2: 3[a..z]";
        assert_eq!(
            walked(drawing, included("d", "e")),
            ["L0 8 7 + L1 1 -> L1", "L1 101 + L2 3 -> L2"]
        );
        assert_eq!(walked(drawing, included("m", "n")), Vec::<String>::new());
        let open = (Bound::Excluded(b"g".to_vec()), Bound::Excluded(b"x".to_vec()));
        assert_eq!(walked(drawing, open), ["L1 2 + L2 3 -> L2"]);
    }

    #[test]
    fn the_bottom_level_is_cleaned_once() {
        assert_eq!(
            walked("L2: 1[a..c]g1 2[d..f]g2 3[g..i] 4[k..l]g1\nL4: 5[k..l]", included("a", "i")),
            ["L2 1 2 -> L2"]
        );
        // Moved as it is, then cleaned; what was merged on the way is clean already.
        assert_eq!(walked("L0: 1[a..c]g9", ALL), ["L0 1 -> L1, a move", "L1 1 -> L1"]);
        assert_eq!(walked("L0: 2[a..c]g9 1[c..d]", ALL), ["L0 2 1 -> L1"]);
    }

    #[test]
    fn small_neighbours_are_joined() {
        let drawing = "L3: 1[a..b]:30 2[c..d]:40 3[e..f]:90 4[g..h]:20 5[i..j]:20 6[k..l]";
        assert_eq!(walked(drawing, ALL), ["L3 1 2 -> L3", "L3 4 5 -> L3"]);
        // Only those of the range.
        assert_eq!(walked(drawing, included("d", "g")), Vec::<String>::new());
        assert_eq!(walked("L3: 1[a..b]:50 2[c..d]:51", ALL), Vec::<String>::new());
        // What comes down joins a small neighbour on its way.
        assert_eq!(walked("L0: 3[x..y]:9\nL1: 1[a..b]:9", ALL), ["L0 3 + L1 1 -> L1"]);
        // A step takes up what the one before left over.
        let levels = drawn_levels("L3: 1[a..b]:50 2[c..d]:50 3[e..f]:60");
        let mut walk = RangeCompaction::new(&levels, ALL, 100, false);
        let first = walk.next_task(&levels, &OPTIONS);
        assert_eq!(described(first.as_ref()), "L3 1 2 -> L3");
        let left_over = drawn_levels("L3: 101[a..b]:95 102[d..d]:30 3[e..f]:60 4[g..h]:50");
        let second = walk.next_task(&left_over, &OPTIONS);
        assert_eq!(described(second.as_ref()), "L3 102 3 -> L3");
    }

    #[test]
    fn force_rewrites_every_table() {
        let drawing = "L1: 1[a..c] 2[x..z]\nL2: 3[d..f] 4[g..i]:900 5[k..l]";
        assert_eq!(
            walked_with(drawing, ALL, true),
            ["L1 1 2 + L2 3 4 5 -> L2"].map(String::from).to_vec()
        );
        let drawing = "L1: 1[a..c]\nL2: 3[d..f] 4[g..i]:900 5[k..l]";
        assert_eq!(walked_with(drawing, ALL, true), ["L1 1 -> L2", "L2 3 4 -> L2", "L2 5 -> L2"]);
    }

    #[test]
    fn range_compaction_ends_although_nothing_is_freed() {
        let levels = drawn_levels("L5: 1[a..c]g9 2[d..f] 3[g..i]g1");
        let mut walk = RangeCompaction::new(&levels, ALL, 100, false);
        let mut steps = Vec::new();
        while let Some(task) = walk.next_task(&levels, &OPTIONS) {
            steps.push(described(Some(&task)));
        }
        assert_eq!(steps, ["L5 1 -> L5", "L5 3 -> L5"]);
    }
}
