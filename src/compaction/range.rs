//! The compactions of one `compact_range` call, named one after the other.
//!
//! All data of the range goes down level by level to the deepest level that had any when the call
//! began, at least to level 1. That bottom level is then cleaned in place: tables that hold
//! garbage (tombstones, covered versions) and were not written by this very call are rewritten.
//!
//! Every step moves on by level and key, so the walk ends whatever else happens to the tree: it
//! looks at each place once, and data that arrives behind it is not its business. The caller asks
//! [`RangeCompaction::next_task`] with the shape of the tree as it is, runs and applies the task,
//! and asks again.

use crate::compaction::task::{CompactionOptions, CompactionTask, overlap_closure};
use crate::key::user_key;
use crate::stats::counters::LEVELS;
use crate::sync::Arc;
use crate::version::edit::FileMeta;
use crate::version::version::LevelShape;
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
}

impl RangeCompaction {
    /// A walk for the user keys in `range`; `next_file_number` as it is now.
    #[must_use]
    pub fn new(
        levels: &LevelShape,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        next_file_number: u64,
    ) -> Self {
        let touched = |level: &usize| levels[*level].iter().any(|meta| touches(meta, &range));
        let bottom = (1..LEVELS).rev().find(touched).unwrap_or(1);
        RangeCompaction { range, level: 0, bottom, done: None, first_new_number: next_file_number }
    }

    /// The next step, or `None` when the walk is over.
    pub fn next_task(
        &mut self,
        levels: &LevelShape,
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
                        false => CompactionTask::down(levels, level, inputs, options),
                    });
                }
            }
        }
        None
    }

    fn level0_inputs(&self, tables: &[Arc<FileMeta>]) -> Vec<Arc<FileMeta>> {
        let touched = tables.iter().filter(|meta| touches(meta, &self.range));
        overlap_closure(tables, touched.cloned().collect())
    }

    /// The next few neighbours of a sorted level: enough for full output tables, and few enough
    /// that the space they take twice stays small.
    fn sorted_inputs(
        &self,
        tables: &[Arc<FileMeta>],
        options: &CompactionOptions,
    ) -> Vec<Arc<FileMeta>> {
        let is_next = |meta: &&Arc<FileMeta>| {
            let done = self.done.as_deref();
            done.is_none_or(|done| user_key(&meta.smallest) > done)
                && touches(meta, &self.range)
                && (self.level < self.bottom || self.is_worth_rewriting(meta))
        };
        let mut inputs = Vec::new();
        let mut bytes = 0;
        for meta in tables.iter().skip_while(|meta| !is_next(meta)).take_while(is_next) {
            bytes += meta.bytes;
            inputs.push(Arc::clone(meta));
            if bytes >= options.grandparent_bytes_max() {
                break;
            }
        }
        inputs
    }

    fn is_worth_rewriting(&self, meta: &FileMeta) -> bool {
        meta.number < self.first_new_number && meta.garbage > 0
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
    use crate::compaction::task::tests::{OPTIONS, after, described, drawn_levels};

    fn included(first: &str, last: &str) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(first.into()), Bound::Included(last.into()))
    }

    fn walked(drawing: &str, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<String> {
        let mut levels = drawn_levels(drawing);
        let mut walk = RangeCompaction::new(&levels, range, 100);
        let mut steps = Vec::new();
        while let Some(task) = walk.next_task(&levels, &OPTIONS) {
            steps.push(described(Some(&task)));
            levels = after(&levels, &task, 100 + steps.len() as u64);
        }
        steps
    }

    const ALL: (Bound<Vec<u8>>, Bound<Vec<u8>>) = (Bound::Unbounded, Bound::Unbounded);

    #[test]
    fn everything_in_the_range_comes_to_the_bottom() {
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
    fn tables_outside_the_range_stay_unless_they_share_keys_with_it() {
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
    fn the_bottom_is_cleaned_once_where_it_needs_it() {
        assert_eq!(
            walked("L2: 1[a..c]g1 2[d..f]g2 3[g..i] 4[k..l]g1\nL4: 5[k..l]", included("a", "i")),
            ["L2 1 2 -> L2"]
        );
        // Moved as it is, then cleaned; what was merged on the way is clean already.
        assert_eq!(walked("L0: 1[a..c]g9", ALL), ["L0 1 -> L1, a move", "L1 1 -> L1"]);
        assert_eq!(walked("L0: 2[a..c]g9 1[c..d]", ALL), ["L0 2 1 -> L1"]);
    }

    #[test]
    fn the_walk_ends_although_rewriting_frees_nothing() {
        let levels = drawn_levels("L5: 1[a..c]g9 2[d..f] 3[g..i]g1");
        let mut walk = RangeCompaction::new(&levels, ALL, 100);
        let mut steps = Vec::new();
        while let Some(task) = walk.next_task(&levels, &OPTIONS) {
            steps.push(described(Some(&task)));
        }
        assert_eq!(steps, ["L5 1 -> L5", "L5 3 -> L5"]);
    }
}
