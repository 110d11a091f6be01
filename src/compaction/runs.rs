//! How many entries each run of the tree holds once a job is done: what filters are sized by.
//!
//! A run is a set of tables of which a lookup asks at most one: each table of level 0 is one, and
//! each deeper level is one. Made by the background before a job from the shape of the tree, read
//! by `options/levels.rs`. Entries are an upper bound of the keys that a filter is built from: what
//! the job will drop, and several versions of one key, are counted.

use crate::compaction::task::CompactionTask;
use crate::stats::counters::LEVELS;
use crate::version::version::LevelShape;

/// Entries of each run, by level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs([Vec<u64>; LEVELS]);

impl Runs {
    /// The tree as it is.
    #[must_use]
    pub fn of(levels: &LevelShape) -> Self {
        Runs::keeping(levels, |_, _| true)
    }

    /// The tree with `entries` more, flushed into the newest table of level 0.
    #[must_use]
    pub fn after_flush(levels: &LevelShape, entries: u64) -> Self {
        let mut runs = Runs::of(levels);
        runs.0[0].insert(0, entries);
        runs
    }

    /// The tree with all that `task` reads at its output level.
    #[must_use]
    pub fn after(levels: &LevelShape, task: &CompactionTask) -> Self {
        let replaced: Vec<(usize, u64)> =
            task.replaced().map(|(level, meta)| (level, meta.number)).collect();
        let mut runs = Runs::keeping(levels, |level, number| !replaced.contains(&(level, number)));
        let entries: u64 = task.replaced().map(|(_, meta)| meta.entries).sum();
        match runs.0[task.output_level].first_mut() {
            Some(run) if task.output_level > 0 => *run += entries,
            _ => runs.0[task.output_level].insert(0, entries),
        }
        runs
    }

    /// The runs of a level; of level 0 the newest first, of others at most one.
    #[must_use]
    pub fn level(&self, level: usize) -> &[u64] {
        self.0.get(level).map_or(&[], Vec::as_slice)
    }

    /// True for a sorted level below which there is nothing.
    #[must_use]
    pub fn is_last(&self, level: usize) -> bool {
        level > 0 && self.0.iter().skip(level + 1).all(Vec::is_empty)
    }

    fn keeping(levels: &LevelShape, stays: impl Fn(usize, u64) -> bool) -> Self {
        Runs(std::array::from_fn(|level| {
            let staying = levels[level].iter().filter(|meta| stays(level, meta.number));
            let entries: Vec<u64> = staying.map(|meta| meta.entries).collect();
            match level {
                0 => entries,
                _ if entries.is_empty() => entries,
                _ => vec![entries.iter().sum()],
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::task::tests::{OPTIONS, drawn_levels};

    #[test]
    fn entries_stand_where_the_job_will_have_put_them() {
        // Every drawn table has 100 entries.
        let levels = drawn_levels(
            "L0: 5[x..z] 4[a..d] 3[a..d]\nL1: 9[b..c] 8[x..y]\nL3: 7[a..b] 6[c..d] 2[e..f]",
        );
        let runs = Runs::after_flush(&levels, 7);
        assert_eq!(runs.level(0), [7, 100, 100, 100]);
        assert_eq!(
            (runs.level(1), runs.level(2), runs.level(3)),
            (&[200][..], &[][..], &[300][..])
        );
        assert_eq!((0..7).filter(|&level| runs.is_last(level)).collect::<Vec<_>>(), [3, 4, 5, 6]);

        let down = CompactionTask::down(&levels, 0, levels[0][1..].to_vec(), &OPTIONS);
        let runs = Runs::after(&levels, &down);
        assert_eq!(
            (runs.level(0), runs.level(1), runs.level(3)),
            (&[100][..], &[400][..], &[300][..])
        );
        assert!(!runs.is_last(0) && !runs.is_last(1));
        // All of the last level goes on: the level under it is the last one then.
        let down = CompactionTask::down(&levels, 3, levels[3].clone(), &OPTIONS);
        let runs = Runs::after(&levels, &down);
        assert_eq!((runs.level(3), runs.level(4)), (&[][..], &[300][..]));
        assert!(!runs.is_last(3) && runs.is_last(4) && !runs.is_last(1));
        let rewrite = CompactionTask::rewrite(&levels, 1, levels[1][..1].to_vec());
        assert_eq!(Runs::after(&levels, &rewrite).level(1), [200]);
    }
}
