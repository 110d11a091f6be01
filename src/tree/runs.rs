//! How many entries each run of the tree holds once a job is done: what filters are sized by.
//!
//! A run is a set of tables of which a lookup asks at most one: each table of level 0 is one, and
//! each deeper level is one. Made by the background before a job from the shape of the tree, read
//! by `options/levels.rs`. Entries are an upper bound of the keys that a filter is built from: what
//! the job will drop, and several versions of one key, are counted.

use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::tree::file_meta::FileMeta;
use crate::tree::version::LevelFiles;
use std::collections::BTreeSet;

/// Entries of each run, by level, and how often lookups ask the runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SortedRuns {
    levels: [Vec<u64>; LEVELS],
    /// For each level the share of lookups that ask one of its runs in vain.
    shares: [f64; LEVELS],
}

impl Default for SortedRuns {
    fn default() -> Self {
        SortedRuns { levels: Default::default(), shares: [1.0; LEVELS] }
    }
}

impl SortedRuns {
    /// The tree as it is.
    pub(crate) fn of(levels: &LevelFiles) -> Self {
        SortedRuns::keeping(levels, |_, _| true)
    }

    /// The tree with `entries` more, flushed into the newest table of level 0.
    pub(crate) fn after_flush(levels: &LevelFiles, entries: u64) -> Self {
        let mut runs = SortedRuns::of(levels);
        runs.levels[0].insert(0, entries);
        runs
    }

    /// The tree with the tables in `replaced`, given with their levels, rewritten into
    /// `output_level`.
    pub(crate) fn after_rewrite<'t>(
        levels: &LevelFiles,
        replaced: impl Iterator<Item = (usize, &'t Arc<FileMeta>)> + Clone,
        output_level: usize,
    ) -> Self {
        let gone: BTreeSet<(usize, u64)> =
            replaced.clone().map(|(level, meta)| (level, meta.number)).collect();
        let runs = SortedRuns::keeping(levels, |level, number| !gone.contains(&(level, number)));
        runs.with_more(output_level, replaced.map(|(_, meta)| meta.entries).sum())
    }

    /// The tree with `entries` more in one run of `level`.
    #[must_use]
    pub(crate) fn with_more(mut self, level: usize, entries: u64) -> Self {
        match self.levels[level].first_mut() {
            Some(run) if level > 0 => *run += entries,
            _ => self.levels[level].insert(0, entries),
        }
        self
    }

    /// The same runs, asked in vain by these shares of the lookups.
    #[must_use]
    pub(crate) fn asked_by(self, shares: [f64; LEVELS]) -> Self {
        SortedRuns { shares, ..self }
    }

    /// The same with at least `tables` tables at level 0; those that are missing have `entries`.
    #[must_use]
    pub(crate) fn with_level0(mut self, tables: usize, entries: u64) -> Self {
        let missing = tables.saturating_sub(self.levels[0].len());
        self.levels[0].extend(std::iter::repeat_n(entries, missing));
        self
    }

    /// The share of lookups that ask a run of `level` in vain.
    pub(crate) fn share(&self, level: usize) -> f64 {
        self.shares.get(level).copied().unwrap_or(1.0)
    }

    /// The entries of all runs of some levels.
    pub(crate) fn entries(&self, levels: &[usize]) -> u64 {
        levels.iter().flat_map(|&level| self.level(level)).sum()
    }

    /// The runs of a level; of level 0 the newest first, of others at most one.
    pub(crate) fn level(&self, level: usize) -> &[u64] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// True for a sorted level below which there is nothing.
    pub(crate) fn is_last(&self, level: usize) -> bool {
        level > 0 && self.levels.iter().skip(level + 1).all(Vec::is_empty)
    }

    fn keeping(levels: &LevelFiles, stays: impl Fn(usize, u64) -> bool) -> Self {
        let levels = std::array::from_fn(|level| {
            let staying = levels[level].iter().filter(|meta| stays(level, meta.number));
            let entries: Vec<u64> = staying.map(|meta| meta.entries).collect();
            match level {
                0 => entries,
                _ if entries.is_empty() => entries,
                _ => vec![entries.iter().sum()],
            }
        });
        SortedRuns { levels, ..SortedRuns::default() }
    }
}
