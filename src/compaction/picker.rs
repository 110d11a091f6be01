//! Which compaction the tree needs next: a pure function of its shape.
//!
//! 1. Every level but the last has a score: level 0 its tables over their trigger, since each is
//!    one more place to search; the others their bytes over their target. The highest score of at
//!    least 1 wins, the upper level on a tie.
//! 2. Level 0 gives its oldest table with all that overlap it, through others too. A deeper level
//!    gives the next table behind its cursor, so that compactions go round the key space.
//! 3. Without a level that is due, a table of which half is garbage (tombstones, covered versions)
//!    goes down, or is rewritten in place where nothing lies below, so that deleted data gives
//!    back its space. Not while a snapshot may keep the garbage: that could repeat for ever.
//!
//! The caller applies the task, tells the cursors, and asks again until there is nothing to do;
//! `range.rs` is the other picker, for compactions that a user asks for.

use crate::compaction::task::{CompactionOptions, CompactionTask, overlap_closure, span};
use crate::key::{SequenceNumber, user_key};
use crate::stats::counters::LEVELS;
use crate::sync::Arc;
use crate::version::edit::FileMeta;
use crate::version::version::LevelShape;

/// How far the rounds through the levels have come. Kept in memory only: after a restart they
/// begin anew.
#[derive(Clone, Debug, Default)]
pub struct CompactionCursors {
    /// For each level the largest user key that the last compaction took from it.
    largest: [Option<Vec<u8>>; LEVELS],
}

impl CompactionCursors {
    /// Notes that `task` was done.
    pub fn advance(&mut self, task: &CompactionTask) {
        if let Some((_, largest)) = span(&task.inputs) {
            self.largest[task.input_level] = Some(largest.to_vec());
        }
    }
}

/// The most urgent compaction, if any. `oldest_sequence_needed` is the oldest live snapshot, or
/// the published sequence without one.
#[must_use]
pub fn pick(
    levels: &LevelShape,
    options: &CompactionOptions,
    cursors: &CompactionCursors,
    oldest_sequence_needed: SequenceNumber,
) -> Option<CompactionTask> {
    let mut due = None;
    let mut highest = 1.0;
    for level in 0..LEVELS - 1 {
        let score = score(levels, level, options);
        if score > highest || (score >= 1.0 && due.is_none()) {
            highest = score;
            due = Some(level);
        }
    }
    let Some(level) = due else {
        return pick_garbage(levels, options, oldest_sequence_needed);
    };
    let tables = &levels[level];
    let chosen = match level {
        0 => tables.last(),
        _ => next_behind(tables, cursors.largest[level].as_deref()),
    };
    let inputs = overlap_closure(tables, vec![Arc::clone(chosen?)]);
    Some(CompactionTask::down(levels, level, inputs, options))
}

/// How far over its limit a level is; from 1 on it is due.
#[must_use]
pub fn score(levels: &LevelShape, level: usize, options: &CompactionOptions) -> f64 {
    let tables = &levels[level];
    if level == 0 {
        return tables.len() as f64 / options.level0_tables.max(1) as f64;
    }
    let bytes: u64 = tables.iter().map(|meta| meta.bytes).sum();
    bytes as f64 / options.target_bytes(level).max(1) as f64
}

/// The first table that begins behind the cursor, or the first of all.
fn next_behind<'t>(
    tables: &'t [Arc<FileMeta>],
    cursor: Option<&[u8]>,
) -> Option<&'t Arc<FileMeta>> {
    let place = match cursor {
        Some(key) => tables.partition_point(|meta| user_key(&meta.smallest) <= key),
        None => 0,
    };
    tables.get(place).or_else(|| tables.first())
}

fn pick_garbage(
    levels: &LevelShape,
    options: &CompactionOptions,
    oldest_sequence_needed: SequenceNumber,
) -> Option<CompactionTask> {
    for level in 1..LEVELS {
        let mostly_garbage = levels[level].iter().find(|meta| {
            meta.garbage >= meta.entries.div_ceil(2).max(1)
                && meta.largest_sequence <= oldest_sequence_needed
        });
        let Some(meta) = mostly_garbage else { continue };
        let inputs = overlap_closure(&levels[level], vec![Arc::clone(meta)]);
        let in_place = CompactionTask::rewrite(levels, level, inputs);
        return Some(match in_place.below.iter().all(Vec::is_empty) {
            true => in_place,
            false => CompactionTask::down(levels, level, in_place.inputs, options),
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::task::tests::{OPTIONS, after, described, drawn_levels};

    fn picked(drawing: &str, cursors: &CompactionCursors) -> String {
        described(pick(&drawn_levels(drawing), &OPTIONS, cursors, 10).as_ref())
    }

    #[test]
    fn drawings_and_what_is_picked() {
        let golden = [
            ("", "nothing"),
            ("L0: 3[a..z] 2[a..z] 1[a..z]\nL1: 9[a..b]:299", "nothing"),
            // All of level 0 overlaps.
            ("L0: 4[a..z] 3[a..z] 2[a..z] 1[a..z]", "L0 4 3 2 1 -> L1"),
            // 1 and 3 overlap through 2, 4 stands alone and stays.
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
            ("L6: 1[a..c]:9000000000000", "nothing"),
            // No move where the next compaction would be a long one.
            ("L1: 1[a..c]:300\nL3: 5[a..b]:900 6[c..d]", "L1 1 -> L2, a move"),
            ("L1: 1[a..c]:300\nL3: 5[a..b]:900 6[c..d]:101", "L1 1 -> L2"),
        ];
        for (drawing, expected) in golden {
            assert_eq!(picked(drawing, &CompactionCursors::default()), expected, "{drawing}");
        }
    }

    #[test]
    fn rounds_go_on_behind_the_last_table_and_wrap() {
        let drawing = "L1: 1[a..c] 2[d..f] 3[g..i]";
        let levels = drawn_levels(drawing);
        let mut cursors = CompactionCursors::default();
        let mut inputs = Vec::new();
        for _ in 0..4 {
            let task = pick(&levels, &OPTIONS, &cursors, 10).unwrap();
            inputs.push(task.inputs[0].number);
            cursors.advance(&task);
        }
        assert_eq!(inputs, [1, 2, 3, 1]);
        // The table behind the cursor may be another one by now.
        assert_eq!(picked("L1: 1[a..b] 4[aa..h]:150 3[i..j]", &cursors), "L1 3 -> L2, a move");
    }

    #[test]
    fn garbage_goes_down_and_away() {
        let golden = [
            ("L1: 1[a..c]g49\nL2: 2[a..c]", "nothing"),
            ("L1: 1[a..c]g50\nL2: 2[a..c]", "L1 1 + L2 2 -> L2"),
            ("L1: 1[a..c]g50\nL4: 2[a..c]", "L1 1 -> L2, a move"),
            ("L1: 1[a..c]g50\nL4: 2[d..e]", "L1 1 -> L1"),
            ("L6: 1[a..c] 2[d..e]g70", "L6 2 -> L6"),
            // A snapshot may hold it: rewriting could change nothing.
            ("L6: 1[a..c] 2[d..e]g70@11", "nothing"),
            ("L6: 1[a..c]g70@11 2[d..e]g70", "L6 2 -> L6"),
            ("L1: 1[a..c]g70@11\nL2: 2[a..c]", "nothing"),
            ("L0: 1[a..c]g90\nL2: 2[a..c]", "nothing"),
        ];
        for (drawing, expected) in golden {
            assert_eq!(picked(drawing, &CompactionCursors::default()), expected, "{drawing}");
        }
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
        while let Some(task) = pick(&levels, &OPTIONS, &cursors, 10) {
            cursors.advance(&task);
            steps += 1;
            assert!(steps < 100, "{}", described(Some(&task)));
            levels = after(&levels, &task, 1000 + steps);
        }
        assert!((0..LEVELS - 1).all(|level| score(&levels, level, &OPTIONS) < 1.0));
    }
}
