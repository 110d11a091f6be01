//! The public report: [`Stats`], with one [`LevelStats`] for each level.
//!
//! These are plain numbers that `Db::stats` takes. All arithmetic on them (rates, totals,
//! differences between two reports) is here, so that no caller divides by the wrong denominator.
//! `text` prints them.

use crate::base::levels::LEVELS;
use crate::base::stats::counters::{Counter, Counters, LevelCounter};
use crate::base::stats::interval::wilson_95;

/// What a database did, and what it holds now. Counters run since the database was created, or
/// since `Options::reset_stats`; the advisory file `STATS` keeps them across openings.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// One entry a level, level 0 first.
    pub levels: Vec<LevelStats>,
    /// Point lookups.
    pub gets: u64,
    /// Point lookups that found a value.
    pub gets_found: u64,
    /// Point lookups that a memtable answered.
    pub memtable_hits: u64,
    /// Memtables skipped by their filter.
    pub memtable_negatives: u64,
    /// Bytes in memtables now, bookkeeping and flushed memtables that are not yet freed included.
    pub memtable_bytes: u64,
    /// Entries in memtables that are not flushed. In a database that was opened read-only, these
    /// are the entries that are only in the logs.
    pub memtable_entries: u64,
    /// Iterators that were asked for an entry.
    pub scans: u64,
    /// Batches acknowledged.
    pub batches: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of user keys and values in them.
    pub entry_bytes: u64,
    /// Write groups; `batches / write_groups` is the mean group.
    pub write_groups: u64,
    /// Bytes appended to write-ahead logs.
    pub wal_bytes: u64,
    /// Syncs of write-ahead logs.
    pub wal_syncs: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Bytes of flushed tables.
    pub flush_bytes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Bytes they read.
    pub compaction_bytes_read: u64,
    /// Bytes they wrote.
    pub compaction_bytes_written: u64,
    /// Entries they dropped.
    pub compaction_entries_dropped: u64,
    /// Tables moved down without rewriting.
    pub trivial_moves: u64,
    /// Writes delayed because level 0 grows.
    pub level0_slowdowns: u64,
    /// Nanoseconds of these delays.
    pub level0_slowdown_nanos: u64,
    /// Writes stopped because level 0 is full.
    pub level0_stalls: u64,
    /// Nanoseconds of these stalls.
    pub level0_stall_nanos: u64,
    /// Writes stopped because earlier memtables are not flushed yet.
    pub memtable_stalls: u64,
    /// Nanoseconds of these stalls.
    pub memtable_stall_nanos: u64,
    /// Logs started after a full one, while writers waited for the sync of the directory.
    pub log_switches: u64,
    /// Nanoseconds of these waits.
    pub log_switch_nanos: u64,
    /// Filters that could not be read or decoded; each answered "may contain".
    pub filter_errors: u64,
    /// Capacity of the block cache in bytes.
    pub cache_capacity_bytes: u64,
    /// Bytes in the cache now, pinned reservations not included.
    pub cache_bytes: u64,
    /// Blocks that were not cached because each is larger than a quarter of the capacity.
    pub cache_uncached: u64,
    /// Data blocks that were not cached because the cache was full and they were not read lately.
    pub cache_rejected: u64,
    /// Bytes of filters and indexes that are pinned in memory, charged to the same budget.
    pub pinned_bytes: u64,
    /// Bytes of filters that are being built, charged to the same budget.
    pub construction_bytes: u64,
    /// Bytes of blocks that were evicted from the cache and that a value or iterator still uses.
    pub evicted_bytes_in_use: u64,
    /// Live snapshots.
    pub snapshots: u64,
    /// When counting began, in seconds since 1970; 0 if unknown.
    pub since_unix_seconds: u64,
}

/// Counters and contents of one level. Those that do not begin with `scan_` count point lookups.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Tables now.
    pub tables: u64,
    /// Bytes of those tables.
    pub bytes: u64,
    /// Entries in them, old versions and tombstones included.
    pub entries: u64,
    /// Bytes of their filters.
    pub filter_bytes: u64,
    /// False-positive rate to expect of their filters, weighted by entries; 0 without filters.
    pub expected_fpr: f64,
    /// The filter said no.
    pub negatives: u64,
    /// The filter said maybe, and the table had the key.
    pub true_positives: u64,
    /// The filter said maybe, and the table did not have the key.
    pub false_positives: u64,
    /// The filter said maybe; versions newer than the read hide whether it was right.
    pub unresolved: u64,
    /// The table was searched without asking a filter.
    pub not_consulted: u64,
    /// Data block bytes avoided: an estimate from each table's mean block.
    pub bytes_avoided: u64,
    /// Data indexes searched.
    pub index_seeks: u64,
    /// Data blocks found in the cache.
    pub data_blocks_cached: u64,
    /// Data blocks read from files.
    pub data_blocks_read: u64,
    /// Bytes of these blocks in the files.
    pub data_bytes_read: u64,
    /// Filter blocks found in the cache.
    pub filter_blocks_cached: u64,
    /// Filter blocks read from files.
    pub filter_blocks_read: u64,
    /// Bytes of these blocks in the files.
    pub filter_bytes_read: u64,
    /// Index blocks read from files.
    pub index_blocks_read: u64,
    /// Bytes of these blocks in the files.
    pub index_bytes_read: u64,
    /// A filter without whole keys was asked for the prefix of a looked-up key and said no: the
    /// lookup skipped the table.
    pub prefix_negatives: u64,
    /// A filter without whole keys was asked for the prefix of a looked-up key and said maybe. This
    /// does not count in the false-positive rate: the table may have the prefix without the key.
    pub prefix_positives: u64,
    /// The filter was asked for the common prefix of a scan and said no: the scan skipped the
    /// table. Scans of both directions count, and every table that they skip.
    pub scan_negatives: u64,
    /// The filter was asked for the common prefix of a scan and said maybe.
    pub scan_positives: u64,
    /// Tables that scans read, whether or not their filter was asked.
    ///
    /// The blocks that a scan reads are counted when it starts on a table, and when it leaves the
    /// table or is dropped.
    pub scan_tables: u64,
    /// Data block bytes that `scan_negatives` avoided: an estimate of one mean block each, which is
    /// the least that reading the table would have cost.
    pub scan_bytes_avoided: u64,
    /// Data blocks that scans found in the cache.
    pub scan_data_blocks_cached: u64,
    /// Data blocks that scans read from files.
    pub scan_data_blocks_read: u64,
    /// Bytes of these blocks in the files.
    pub scan_data_bytes_read: u64,
    /// Filter blocks that scans found in the cache.
    pub scan_filter_blocks_cached: u64,
    /// Filter blocks that scans read from files.
    pub scan_filter_blocks_read: u64,
    /// Bytes of these blocks in the files.
    pub scan_filter_bytes_read: u64,
    /// Index blocks that scans read from files.
    pub scan_index_blocks_read: u64,
    /// Bytes of these blocks in the files.
    pub scan_index_bytes_read: u64,
}

impl LevelStats {
    /// The share of false positives in the lookups of absent keys; `None` before the first such
    /// lookup.
    #[must_use]
    pub fn observed_fpr(&self) -> Option<f64> {
        let absent = self.false_positives + self.negatives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }

    /// The 95 % confidence interval of [`observed_fpr`](Self::observed_fpr); `None` before the
    /// first lookup of an absent key.
    #[must_use]
    pub fn observed_fpr_interval(&self) -> Option<(f64, f64)> {
        wilson_95(self.false_positives, self.false_positives + self.negatives)
    }

    /// Data blocks used, from cache or file.
    #[must_use]
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks_cached + self.data_blocks_read
    }

    /// Data blocks that lookups avoided, exactly one for each negative.
    #[must_use]
    pub fn data_blocks_avoided(&self) -> u64 {
        self.negatives + self.prefix_negatives
    }

    /// How often lookups asked filters for a prefix.
    #[must_use]
    pub fn prefix_checks(&self) -> u64 {
        self.prefix_negatives + self.prefix_positives
    }

    /// How often scans asked filters for a prefix.
    #[must_use]
    pub fn scan_checks(&self) -> u64 {
        self.scan_negatives + self.scan_positives
    }

    fn counters(&mut self) -> [(LevelCounter, &mut u64); 29] {
        [
            (LevelCounter::Negatives, &mut self.negatives),
            (LevelCounter::TruePositives, &mut self.true_positives),
            (LevelCounter::FalsePositives, &mut self.false_positives),
            (LevelCounter::Unresolved, &mut self.unresolved),
            (LevelCounter::NotConsulted, &mut self.not_consulted),
            (LevelCounter::BytesAvoided, &mut self.bytes_avoided),
            (LevelCounter::IndexSeeks, &mut self.index_seeks),
            (LevelCounter::DataBlocksCached, &mut self.data_blocks_cached),
            (LevelCounter::DataBlocksRead, &mut self.data_blocks_read),
            (LevelCounter::DataBytesRead, &mut self.data_bytes_read),
            (LevelCounter::FilterBlocksCached, &mut self.filter_blocks_cached),
            (LevelCounter::FilterBlocksRead, &mut self.filter_blocks_read),
            (LevelCounter::FilterBytesRead, &mut self.filter_bytes_read),
            (LevelCounter::IndexBlocksRead, &mut self.index_blocks_read),
            (LevelCounter::IndexBytesRead, &mut self.index_bytes_read),
            (LevelCounter::PrefixNegatives, &mut self.prefix_negatives),
            (LevelCounter::PrefixPositives, &mut self.prefix_positives),
            (LevelCounter::ScanNegatives, &mut self.scan_negatives),
            (LevelCounter::ScanPositives, &mut self.scan_positives),
            (LevelCounter::ScanTables, &mut self.scan_tables),
            (LevelCounter::ScanBytesAvoided, &mut self.scan_bytes_avoided),
            (LevelCounter::ScanDataBlocksCached, &mut self.scan_data_blocks_cached),
            (LevelCounter::ScanDataBlocksRead, &mut self.scan_data_blocks_read),
            (LevelCounter::ScanDataBytesRead, &mut self.scan_data_bytes_read),
            (LevelCounter::ScanFilterBlocksCached, &mut self.scan_filter_blocks_cached),
            (LevelCounter::ScanFilterBlocksRead, &mut self.scan_filter_blocks_read),
            (LevelCounter::ScanFilterBytesRead, &mut self.scan_filter_bytes_read),
            (LevelCounter::ScanIndexBlocksRead, &mut self.scan_index_blocks_read),
            (LevelCounter::ScanIndexBytesRead, &mut self.scan_index_bytes_read),
        ]
    }
}

impl Stats {
    /// A report of the counters; the caller adds what the database holds now.
    #[must_use]
    pub fn from_counters(counters: &Counters) -> Self {
        let mut stats = Stats { levels: vec![LevelStats::default(); LEVELS], ..Stats::default() };
        for (level, levels) in stats.levels.iter_mut().enumerate() {
            for (counter, value) in levels.counters() {
                *value = counters.level_total(level, counter);
            }
        }
        for (counter, value) in stats.counters() {
            *value = counters.total(counter);
        }
        stats
    }

    /// The counters since `earlier`; the figures of what the database holds now stay.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        let (mut now, mut before) = (self.clone(), earlier.clone());
        for ((_, value), (_, base)) in now.counters().into_iter().zip(before.counters()) {
            *value = value.saturating_sub(*base);
        }
        for (level, base) in now.levels.iter_mut().zip(&mut before.levels) {
            for ((_, value), (_, base)) in level.counters().into_iter().zip(base.counters()) {
                *value = value.saturating_sub(*base);
            }
        }
        now
    }

    /// The sum of all levels; the expected rate is weighted by entries.
    #[must_use]
    pub fn total(&self) -> LevelStats {
        let mut total = LevelStats::default();
        for level in &self.levels {
            let mut level = level.clone();
            let entries = (total.entries + level.entries).max(1) as f64;
            total.expected_fpr = (total.expected_fpr * total.entries as f64
                + level.expected_fpr * level.entries as f64)
                / entries;
            total.tables += level.tables;
            total.bytes += level.bytes;
            total.entries += level.entries;
            total.filter_bytes += level.filter_bytes;
            for ((_, sum), (_, value)) in total.counters().into_iter().zip(level.counters()) {
                *sum += *value;
            }
        }
        total
    }

    fn counters(&mut self) -> [(Counter, &mut u64); 27] {
        [
            (Counter::Gets, &mut self.gets),
            (Counter::GetsFound, &mut self.gets_found),
            (Counter::MemtableHits, &mut self.memtable_hits),
            (Counter::MemtableNegatives, &mut self.memtable_negatives),
            (Counter::Scans, &mut self.scans),
            (Counter::Batches, &mut self.batches),
            (Counter::Entries, &mut self.entries),
            (Counter::EntryBytes, &mut self.entry_bytes),
            (Counter::WriteGroups, &mut self.write_groups),
            (Counter::WalBytes, &mut self.wal_bytes),
            (Counter::WalSyncs, &mut self.wal_syncs),
            (Counter::Flushes, &mut self.flushes),
            (Counter::FlushBytes, &mut self.flush_bytes),
            (Counter::Compactions, &mut self.compactions),
            (Counter::CompactionBytesRead, &mut self.compaction_bytes_read),
            (Counter::CompactionBytesWritten, &mut self.compaction_bytes_written),
            (Counter::CompactionEntriesDropped, &mut self.compaction_entries_dropped),
            (Counter::TrivialMoves, &mut self.trivial_moves),
            (Counter::Level0Slowdowns, &mut self.level0_slowdowns),
            (Counter::Level0SlowdownNanos, &mut self.level0_slowdown_nanos),
            (Counter::Level0Stalls, &mut self.level0_stalls),
            (Counter::Level0StallNanos, &mut self.level0_stall_nanos),
            (Counter::MemtableStalls, &mut self.memtable_stalls),
            (Counter::MemtableStallNanos, &mut self.memtable_stall_nanos),
            (Counter::LogSwitches, &mut self.log_switches),
            (Counter::LogSwitchNanos, &mut self.log_switch_nanos),
            (Counter::FilterErrors, &mut self.filter_errors),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_reaches_the_report_once() {
        let counters = Counters::new();
        counters.restore(&vec![1; crate::base::stats::counters::COUNTERS]);
        let mut stats = Stats::from_counters(&counters);
        assert_eq!(stats.counters().len(), Counter::ALL.len());
        for (place, (counter, value)) in stats.counters().into_iter().enumerate() {
            assert_eq!((counter, *value), (Counter::ALL[place], 1));
        }
        for (place, (counter, value)) in stats.levels[3].counters().into_iter().enumerate() {
            assert_eq!((counter, *value), (LevelCounter::ALL[place], 1));
        }
        assert_eq!(stats.total().negatives, LEVELS as u64);
        let text = stats.to_string();
        assert!(text.contains("for a prefix, and skipped:  level 0 2, 1  level 1 2, 1"), "{text}");
        let scans = "level 0 read 1, skipped 1 of 2 asked, data blocks read 1, cached 1";
        assert!(text.contains(scans), "{text}");
        let none = Stats::default().to_string();
        assert!(!none.contains("and skipped") && !none.contains("scans"), "{none}");
        let zero = stats.since(&stats);
        assert_eq!((zero.gets, zero.total().data_blocks()), (0, 0));
    }

    #[test]
    fn true_positives_are_outside_the_false_positive_rate() {
        let level = LevelStats {
            negatives: 99,
            false_positives: 1,
            true_positives: 1000,
            unresolved: 50,
            ..LevelStats::default()
        };
        assert_eq!(level.observed_fpr(), Some(0.01));
        assert_eq!(LevelStats { true_positives: 5, ..LevelStats::default() }.observed_fpr(), None);
    }
}
