//! How many entries each run of the tree holds once a job is done: what filters are sized by.
//!
//! A run is a set of tables of which a lookup asks at most one: each table of level 0 is one, and
//! each deeper level is one. Made by the background before a job from the shape of the tree, read
//! by `options/levels.rs`. Entries are an upper bound of the keys that a filter is built from: what
//! the job will drop, and several versions of one key, are counted.

use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::tree::edit::FileMeta;
use crate::tree::version::LevelFiles;

/// Entries of each run, by level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortedRuns([Vec<u64>; LEVELS]);

impl SortedRuns {
    /// The tree as it is.
    #[must_use]
    pub fn of(levels: &LevelFiles) -> Self {
        SortedRuns::keeping(levels, |_, _| true)
    }

    /// The tree with `entries` more, flushed into the newest table of level 0.
    #[must_use]
    pub fn after_flush(levels: &LevelFiles, entries: u64) -> Self {
        let mut runs = SortedRuns::of(levels);
        runs.0[0].insert(0, entries);
        runs
    }

    /// The tree with the tables in `replaced`, given with their levels, written anew into
    /// `output_level`.
    #[must_use]
    pub fn after_rewrite<'t>(
        levels: &LevelFiles,
        replaced: impl Iterator<Item = (usize, &'t Arc<FileMeta>)> + Clone,
        output_level: usize,
    ) -> Self {
        let numbers: Vec<(usize, u64)> =
            replaced.clone().map(|(level, meta)| (level, meta.number)).collect();
        let mut runs =
            SortedRuns::keeping(levels, |level, number| !numbers.contains(&(level, number)));
        let entries: u64 = replaced.map(|(_, meta)| meta.entries).sum();
        match runs.0[output_level].first_mut() {
            Some(run) if output_level > 0 => *run += entries,
            _ => runs.0[output_level].insert(0, entries),
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

    fn keeping(levels: &LevelFiles, stays: impl Fn(usize, u64) -> bool) -> Self {
        SortedRuns(std::array::from_fn(|level| {
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
