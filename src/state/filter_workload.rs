//! Recent lookups, flushes and compactions: the input of the division of a filter budget.
//!
//! `jobs/compact/filter_budget.rs` updates it when a job begins. It lives in memory only: each
//! opening starts with no lookups, which counts every run alike.

use crate::base::levels::LEVELS;
use crate::base::stats::counters::{Counter, Counters, LevelCounter};
use crate::tree::version::Version;

/// Lookups that count fully. When there are more, the weight of older ones shrinks.
const LOOKUPS_KEPT: f64 = 1e6;

/// The workload starts as if this many lookups had asked every run for an absent key.
const LOOKUPS_ASSUMED: f64 = 1_000.0;

/// A run counts at least as if this share of lookups asked it: the workload may change.
const SHARE_MIN: f64 = 0.1;

/// At each compaction, the remembered maximum of flushed entries shrinks to this share.
const FLUSHED_KEPT: f64 = 0.95;

/// Counted since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct FilterWorkload {
    /// Lookups, and questions in vain at each level, when the last job began.
    counted: Option<(u64, [u64; LEVELS])>,
    /// Recent lookups while the level had tables, and questions in vain of one of its runs.
    lookups: [f64; LEVELS],
    in_vain: [f64; LEVELS],
    /// Tables of level 0 when a compaction takes them, on average.
    pub level0_tables: f64,
    /// Entries of a flush, on average.
    pub flush_entries: f64,
    /// Entries flushed since the last compaction began, and the most flushed during a recent one.
    flushed: f64,
    flushed_in_compaction: f64,
    /// By how many bytes the running compactions change the sum of all filters.
    pub pending_bytes: f64,
    /// Bytes that jobs wrote, and those of them that were written for a filter alone.
    pub written_bytes: u64,
    pub rewritten_bytes: u64,
}

impl FilterWorkload {
    /// For each level the share of lookups that ask one of its runs in vain: a filter saves
    /// nothing for a lookup that finds its key in the run, or above it.
    pub(crate) fn shares(&self) -> [f64; LEVELS] {
        std::array::from_fn(|level| {
            let in_vain = self.in_vain[level] + LOOKUPS_ASSUMED;
            (in_vain / (self.lookups[level] + LOOKUPS_ASSUMED)).clamp(SHARE_MIN, 1.0)
        })
    }

    /// Adds the lookups since the last call, which met about the tables of `version`.
    pub(crate) fn count_lookups(&mut self, counters: &Counters, version: &Version) {
        let total = |counter| counters.total(counter);
        let lookups = total(Counter::Gets).saturating_sub(total(Counter::MemtableHits));
        let in_vain = std::array::from_fn(|level| {
            let of = |counter| counters.level_total(level, counter);
            // Without a filter nothing says whether the key was there. If it was, a filter shows
            // it, and the share falls again.
            of(LevelCounter::Negatives)
                + of(LevelCounter::FalsePositives)
                + of(LevelCounter::NotConsulted)
        });
        let runs = std::array::from_fn(|level| match level {
            0 => version.level(0).len(),
            _ => usize::from(!version.level(level).is_empty()),
        });
        self.add_lookups(lookups, in_vain, runs);
    }

    fn add_lookups(&mut self, lookups: u64, in_vain: [u64; LEVELS], runs: [usize; LEVELS]) {
        let before = self.counted.replace((lookups, in_vain));
        // Earlier sessions asked other trees, and their counters continue here.
        let (lookups_before, in_vain_before) = before.unwrap_or((lookups, in_vain));
        for level in (0..LEVELS).filter(|&level| runs[level] > 0) {
            self.lookups[level] += lookups.saturating_sub(lookups_before) as f64;
            let more = in_vain[level].saturating_sub(in_vain_before[level]);
            self.in_vain[level] += more as f64 / runs[level] as f64;
            let excess = (self.lookups[level] / LOOKUPS_KEPT).max(1.0);
            self.lookups[level] /= excess;
            self.in_vain[level] /= excess;
        }
    }

    pub(crate) fn flushed(&mut self, entries: u64) {
        let weight = if self.flush_entries == 0.0 { 1.0 } else { 0.5 };
        self.flush_entries += weight * (entries as f64 - self.flush_entries);
        self.flushed += entries as f64;
    }

    /// Entries that flushes may add while a compaction runs; at least those of one flush.
    pub(crate) fn expected_entries(&self) -> f64 {
        self.flushed_in_compaction.max(self.flushed).max(self.flush_entries)
    }

    /// Notes the start of a compaction that takes `level0_tables` of level 0.
    pub(crate) fn compaction_begins(&mut self, level0_tables: usize, pending_bytes: f64) {
        self.pending_bytes += pending_bytes;
        self.flushed_in_compaction = (FLUSHED_KEPT * self.flushed_in_compaction).max(self.flushed);
        self.flushed = 0.0;
        if level0_tables > 0 {
            self.level0_tables += 0.5 * (level0_tables as f64 - self.level0_tables);
        }
    }

    /// Notes that no compaction runs any more: the tables of all are in the tree, or refused.
    pub(crate) fn compactions_ended(&mut self) {
        self.pending_bytes = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<T: Default + Copy>(values: &[T]) -> [T; LEVELS] {
        std::array::from_fn(|level| values.get(level).copied().unwrap_or_default())
    }

    #[test]
    fn shares_follow_questions_in_vain() {
        let mut workload = FilterWorkload::default();
        assert_eq!(workload.shares(), [1.0; LEVELS]);
        // Counters of earlier sessions are ignored.
        workload.add_lookups(5_000_000, at(&[9, 9, 9]), at(&[1, 1, 1]));
        assert_eq!(workload.shares(), [1.0; LEVELS]);
        // Four tables of level 0 are asked by all, level 2 by one lookup of two, level 3 is empty.
        let (more, tables) = (at(&[400_009, 100_009, 50_009]), at(&[4, 1, 1]));
        workload.add_lookups(5_100_000, more, tables);
        let [top, first, second, third, ..] = workload.shares();
        assert!((top, first) == (1.0, 1.0) && third == 1.0);
        assert!((0.50..0.51).contains(&second), "{second}");
        // All keys are found above this level. It still counts for something.
        workload.add_lookups(9_100_000, more, tables);
        assert_eq!(workload.shares()[2], SHARE_MIN);
        // Newer lookups count more than those long ago.
        let later = |lookups: u64| at(&[0, 0, 50_009 + lookups]);
        workload.add_lookups(12_100_000, later(3_000_000), tables);
        assert!(workload.shares()[2] > 0.7, "{:?}", workload.shares());
    }

    #[test]
    fn the_most_flushed_in_a_compaction_is_expected_again() {
        let mut workload = FilterWorkload::default();
        workload.flushed(100);
        assert_eq!(workload.expected_entries(), 100.0);
        workload.compaction_begins(4, -7.0);
        for _ in 0..5 {
            workload.flushed(100);
        }
        workload.compaction_begins(0, 0.0);
        workload.compaction_begins(0, 0.0);
        assert!((470.0..500.0).contains(&workload.expected_entries()));
        for _ in 0..100 {
            workload.compaction_begins(0, 0.0);
        }
        assert_eq!(workload.expected_entries(), 100.0, "one flush may always come");
    }
}
