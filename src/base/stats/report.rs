//! The public report: [`Stats`], with one [`LevelStats`] for each level.
//!
//! These are plain numbers that `Db::stats` takes. All arithmetic on them (rates, totals,
//! differences between two reports) is here, so that no caller divides by the wrong denominator.
//! `text` prints them for people, `openmetrics` for programs that collect figures.

use crate::base::levels::LEVELS;
use crate::base::stats::interval::wilson_95;
use crate::base::stats::latency::{Latencies, TIMED_CALLS};
use std::time::Duration;

/// A figure of a report, as `openmetrics` prints it.
pub(crate) struct Figure<R: 'static> {
    /// The name of its field.
    pub name: &'static str,
    /// The documentation of its field.
    pub help: &'static str,
    /// `counter` for one that only rises, or `gauge`.
    pub kind: &'static str,
    /// The reports that have it.
    pub scope: Scope,
    /// The value of its field, if there is one.
    pub read: fn(&R) -> Option<u64>,
}

/// Which reports have a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope {
    /// The report of a database.
    Database,
    /// The report of each keyspace. The report of a database has the sum of its keyspaces.
    Keyspaces,
    /// Both reports. The figure of a database exceeds the sum of its keyspaces: flushed memtables
    /// that are not yet freed belong to no keyspace.
    Both,
}

/// Declares the figures of one report, each in one place. A figure that is counted has a variant
/// that the engine counts with, and a field for its sum; the order of the variants is that in the
/// file `STATS`. Figures of the present have a field alone. The documentation of a field is its
/// help in OpenMetrics, too. `others` are printed by methods.
macro_rules! report {
    (
        $(#[$report_doc:meta])* $Report:ident, counted by $(#[$counter_doc:meta])* $Counter:ident;
        counted { $($(#[doc = $doc:literal])* $Variant:ident: $sum:ident $(in $scope:ident)?,)* }
        present {
            $(
                $(#[doc = $figure_doc:literal])*
                $figure:ident: $type:ty => $kind:ident $(in $figure_scope:ident)?,
            )*
        }
        others { $($(#[$other_doc:meta])* $vis:vis $other:ident: $other_type:ty,)* }
    ) => {
        $(#[$counter_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $Counter { $($(#[doc = $doc])* $Variant,)* }

        impl $Counter {
            /// The number of counters.
            pub(crate) const COUNT: usize = [$($Counter::$Variant,)*].len();
        }

        $(#[$report_doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $Report {
            $($(#[doc = $doc])* pub $sum: u64,)*
            $($(#[doc = $figure_doc])* pub $figure: $type,)*
            $($(#[$other_doc])* $vis $other: $other_type,)*
        }

        impl $Report {
            /// The sums, in the order of the counters.
            fn counters(&mut self) -> [&mut u64; $Counter::COUNT] {
                [$(&mut self.$sum,)*]
            }

            /// All figures by name: the documentation of each, and its value if it has one.
            pub fn figures(
                &self,
            ) -> impl Iterator<Item = (&'static str, &'static str, Option<u64>)> {
                let figures = Self::FIGURES.iter();
                figures.map(|figure| (figure.name, figure.help, (figure.read)(self)))
            }

            /// The same as `openmetrics` prints them.
            pub(crate) const FIGURES: &[Figure<$Report>] = &[
                $(Figure {
                    name: stringify!($sum),
                    help: concat!($($doc),*),
                    kind: "counter",
                    scope: [$(Scope::$scope,)? Scope::Database][0],
                    read: |report| Some(report.$sum),
                },)*
                $(Figure {
                    name: stringify!($figure),
                    help: concat!($($figure_doc),*),
                    kind: stringify!($kind),
                    scope: [$(Scope::$figure_scope,)? Scope::Database][0],
                    read: |report| report.$figure.into(),
                },)*
            ];
        }
    };
}

report! {
    /// What a database did, and what it holds now. Counters run since the database was created, or
    /// since `Options::reset_stats`; the advisory file `STATS` keeps them across openings.
    Stats, counted by
    /// Counted once for the database.
    Counter;
    counted {
        /// Point lookups.
        Gets: gets in Keyspaces,
        /// Point lookups that found a value.
        GetsFound: gets_found in Keyspaces,
        /// Point lookups that a memtable answered.
        MemtableHits: memtable_hits in Keyspaces,
        /// Memtables skipped by their filter.
        MemtableNegatives: memtable_negatives in Keyspaces,
        /// Memtables whose filter said maybe, and that do not have the key.
        MemtableFalsePositives: memtable_false_positives in Keyspaces,
        /// Iterators and cursors that were asked for an entry, and further ranges of cursors.
        Scans: scans in Keyspaces,
        /// Those that found none: iterators, and ranges that cursors sought.
        ScansEmpty: scans_empty in Keyspaces,
        /// Batches acknowledged.
        Batches: batches,
        /// Entries in them.
        Entries: entries,
        /// Bytes of user keys and values in them.
        EntryBytes: entry_bytes,
        /// Write groups; `batches / write_groups` is the mean group.
        WriteGroups: write_groups,
        /// Bytes appended to write-ahead logs.
        WalBytes: wal_bytes,
        /// Syncs of write-ahead logs.
        WalSyncs: wal_syncs,
        /// Memtables flushed.
        Flushes: flushes,
        /// Bytes of flushed tables.
        FlushBytes: flush_bytes,
        /// Bulk loads.
        Ingests: ingests,
        /// Entries that they loaded.
        EntriesIngested: entries_ingested,
        /// Bytes of their tables.
        IngestBytes: ingest_bytes,
        /// Compactions that rewrote tables.
        Compactions: compactions,
        /// Bytes they read.
        CompactionBytesRead: compaction_bytes_read,
        /// Bytes they wrote.
        CompactionBytesWritten: compaction_bytes_written,
        /// Entries they dropped.
        CompactionEntriesDropped: compaction_entries_dropped,
        /// Expired entries that compactions made tombstones of, or dropped.
        EntriesExpired: entries_expired,
        /// Entries that compaction filters removed or replaced.
        EntriesFiltered: entries_filtered,
        /// Compactions whose tables would break the order of a level, or whose keys do not ascend:
        /// their tables were discarded.
        CompactionsRefused: compactions_refused,
        /// Tables moved down without rewriting.
        TrivialMoves: trivial_moves,
        /// Groups of writes delayed because flushes or compactions are behind.
        Slowdowns: slowdowns,
        /// Nanoseconds of these delays.
        SlowdownNanos: slowdown_nanos,
        /// Writes stopped because level 0 is full.
        Level0Stalls: level0_stalls,
        /// Nanoseconds of these stalls.
        Level0StallNanos: level0_stall_nanos,
        /// Writes stopped because memtables or logs wait for their flush.
        MemtableStalls: memtable_stalls,
        /// Nanoseconds of these stalls.
        MemtableStallNanos: memtable_stall_nanos,
        /// Logs started after a full one, while writers waited. One that was not made ahead of need
        /// takes a sync of the directory.
        LogSwitches: log_switches,
        /// Nanoseconds of these waits.
        LogSwitchNanos: log_switch_nanos,
        /// Filters that could not be read or decoded; each answered "may contain".
        FilterErrors: filter_errors in Keyspaces,
        /// Transactions committed, those that wrote nothing included.
        TransactionsCommitted: transactions_committed,
        /// Transactions refused because something that they read was written.
        TransactionConflicts: transaction_conflicts,
    }
    present {
        /// Bytes in memtables now, bookkeeping and flushed memtables that are not yet freed
        /// included.
        memtable_bytes: u64 => gauge in Both,
        /// Entries in memtables that are not flushed. In a database that was opened read-only,
        /// these are the entries that are only in the logs.
        memtable_entries: u64 => gauge in Both,
        /// Bytes that memtables may take: the active ones and those that wait for their flush. In a
        /// database that was opened read-only or is followed, the bytes that the entries of its
        /// logs may take.
        memtable_bytes_max: u64 => gauge,
        /// Bytes of what transactions have written and read that are not committed or dropped.
        transaction_bytes: u64 => gauge,
        /// Bytes that each of them may take.
        transaction_bytes_max: u64 => gauge,
        /// Bytes of the keys of recent writes, which transactions are compared with.
        recent_write_bytes: u64 => gauge,
        /// Bytes that they may take.
        recent_write_bytes_max: u64 => gauge,
        /// Capacity of the block cache in bytes.
        cache_capacity_bytes: u64 => gauge,
        /// Bytes in the cache now, pinned reservations not included.
        cache_bytes: u64 => gauge,
        /// Blocks that were not cached because each is too large: a data block of more than a
        /// quarter of the capacity, a filter or index of more than three quarters.
        cache_uncached: u64 => counter,
        /// Blocks that were not cached because the cache was full and they were not read often of
        /// late: data, and filters and indexes of more than a 64th of the capacity.
        cache_rejected: u64 => counter,
        /// Bytes of filters and indexes that are pinned in memory, charged to the same budget.
        pinned_bytes: u64 => gauge,
        /// Bytes that they may take.
        pinned_bytes_max: u64 => gauge,
        /// Of the pinned bytes, those of data indexes with partitions that are pinned as a whole.
        whole_index_bytes: u64 => gauge,
        /// Bytes that these may take.
        whole_index_bytes_max: u64 => gauge,
        /// Bytes of filters that are being built, charged to the same budget.
        construction_bytes: u64 => gauge,
        /// Bytes that they may take.
        construction_bytes_max: u64 => gauge,
        /// Bytes of blocks that were evicted from the cache and that a value or iterator still
        /// uses.
        evicted_bytes_in_use: u64 => gauge,
        /// Live snapshots, those of transactions included.
        snapshots: u64 => gauge,
        /// Age of the oldest of them in milliseconds, if there is one. Compactions keep what it may
        /// read.
        oldest_snapshot_millis: Option<u64> => gauge,
        /// Tables that nothing but older iterators and snapshots needs. Their files are removed
        /// after the last of these is dropped.
        obsolete_tables_in_use: u64 => gauge,
        /// Bytes of those tables.
        obsolete_bytes_in_use: u64 => gauge,
        /// When counting began, in seconds since 1970; 0 if unknown.
        since_unix_seconds: u64 => gauge,
    }
    others {
        /// One entry a level, level 0 first.
        pub levels: Vec<LevelStats>,
        /// Calls by how long they took.
        pub(crate) latencies: Latencies,
        /// Of the report of a keyspace: its name.
        pub(crate) keyspace: Option<String>,
        /// Of the report of a database: those of its first keyspaces, and if there are more, one
        /// without a name for the others together.
        pub(crate) keyspaces: Vec<Stats>,
    }
}

report! {
    /// Counters and contents of one level. Those that do not begin with `scan_` or end with
    /// `_written` count point lookups.
    LevelStats, counted by
    /// Counted by level: point lookups, then scans, which have counters of their own, and what was
    /// written. What compactions read is in [`Counter`].
    LevelCounter;
    counted {
        /// The filter said no.
        Negatives: negatives,
        /// The filter said maybe, and the table had the key.
        TruePositives: true_positives,
        /// The filter said maybe, and the table did not have the key.
        FalsePositives: false_positives,
        /// The filter said maybe; versions newer than the read hide whether it was right.
        Unresolved: unresolved,
        /// The table was searched without asking a filter.
        NotConsulted: not_consulted,
        /// A table of the last level was searched without asking its filter, because that had not
        /// paid: many lookups in a row had found their keys there.
        Bypassed: not_paying,
        /// Data block bytes avoided: an estimate from each table's mean block.
        BytesAvoided: bytes_avoided,
        /// Data indexes searched.
        IndexSeeks: index_seeks,
        /// Data blocks, or single entries in place of them, found in the cache.
        DataBlocksCached: data_blocks_cached,
        /// Data blocks read from files.
        DataBlocksRead: data_blocks_read,
        /// Bytes of these blocks in the files.
        DataBytesRead: data_bytes_read,
        /// Filter blocks found in the cache.
        FilterBlocksCached: filter_blocks_cached,
        /// Filter blocks read from files.
        FilterBlocksRead: filter_blocks_read,
        /// Bytes of these blocks in the files.
        FilterBytesRead: filter_bytes_read,
        /// Index blocks read from files.
        IndexBlocksRead: index_blocks_read,
        /// Bytes of these blocks in the files.
        IndexBytesRead: index_bytes_read,
        /// A filter without whole keys was asked for the prefix of a looked-up key and said no: the
        /// lookup skipped the table.
        PrefixNegatives: prefix_negatives,
        /// A filter without whole keys was asked for the prefix of a looked-up key and said maybe.
        /// This does not count in the false-positive rate: the table may have the prefix without
        /// the key.
        PrefixPositives: prefix_positives,
        /// Filters were asked for the range of a scan, and one said no: the scan skipped the
        /// table. Scans of both directions count, and every table that they skip.
        ScanNegatives: scan_negatives,
        /// Filters were asked for the range of a scan, and said maybe.
        ScanPositives: scan_positives,
        /// Of these, tables with an entry of the range, old versions and tombstones included.
        ScanTruePositives: scan_true_positives,
        /// Of these, tables without any entry of the range. The rest could not be told: the table
        /// could not be read, or a cursor sought into the middle of the range.
        ScanFalsePositives: scan_false_positives,
        /// Tables that scans read, whether or not their filter was asked.
        ///
        /// The blocks that a scan reads are counted when it starts on a table, and when it leaves
        /// the table or is dropped.
        ScanTables: scan_tables,
        /// Data block bytes that `scan_negatives` avoided: an estimate of one mean block each,
        /// which is the least that reading the table would have cost.
        ScanBytesAvoided: scan_bytes_avoided,
        /// Data blocks that scans found in the cache.
        ScanDataBlocksCached: scan_data_blocks_cached,
        /// Data blocks that scans read from files.
        ScanDataBlocksRead: scan_data_blocks_read,
        /// Bytes of these blocks in the files.
        ScanDataBytesRead: scan_data_bytes_read,
        /// Filter blocks that scans found in the cache.
        ScanFilterBlocksCached: scan_filter_blocks_cached,
        /// Filter blocks that scans read from files.
        ScanFilterBlocksRead: scan_filter_blocks_read,
        /// Bytes of these blocks in the files.
        ScanFilterBytesRead: scan_filter_bytes_read,
        /// Index blocks that scans read from files.
        ScanIndexBlocksRead: scan_index_blocks_read,
        /// Bytes of these blocks in the files.
        ScanIndexBytesRead: scan_index_bytes_read,
        /// Bytes of the tables that were written to the level: by flushes to level 0, by
        /// compactions, and by bulk loads. Moved tables are not written.
        BytesWritten: bytes_written,
        /// Bytes of the filters in these tables.
        FilterBytesWritten: filter_bytes_written,
    }
    present {
        /// Tables now.
        tables: u64 => gauge,
        /// Bytes of those tables.
        bytes: u64 => gauge,
        /// Entries in them, old versions and tombstones included.
        entries: u64 => gauge,
        /// Bytes of their filters.
        filter_bytes: u64 => gauge,
        /// Bytes of their range filters.
        range_filter_bytes: u64 => gauge,
        /// Bytes of their data indexes.
        index_bytes: u64 => gauge,
        /// Of the bytes of filters and indexes, those of top levels, which stay in memory.
        top_level_bytes: u64 => gauge,
    }
    others {
        /// False-positive rate to expect of their filters, weighted by entries; 0 without filters.
        pub expected_fpr: f64,
    }
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

    /// The share of false positives in the questions of scans to tables without any entry of the
    /// range; `None` before the first such question. A range that is narrower than its prefix asks
    /// for more than it reads, so this may exceed the rate of the filter.
    #[must_use]
    pub fn observed_scan_fpr(&self) -> Option<f64> {
        let absent = self.scan_false_positives + self.scan_negatives;
        (absent > 0).then(|| self.scan_false_positives as f64 / absent as f64)
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

    /// How often scans asked the filters of a table for their range.
    #[must_use]
    pub fn scan_checks(&self) -> u64 {
        self.scan_negatives + self.scan_positives
    }
}

impl Stats {
    /// A report of [`Counters::totals`]; the caller adds what the database holds now.
    ///
    /// [`Counters::totals`]: crate::base::stats::counters::Counters::totals
    pub(crate) fn from_totals(totals: &[u64]) -> Self {
        let mut stats = Stats { levels: vec![LevelStats::default(); LEVELS], ..Stats::default() };
        let mut totals = totals.iter();
        stats.counters().into_iter().zip(&mut totals).for_each(|(sum, total)| *sum = *total);
        for level in &mut stats.levels {
            level.counters().into_iter().zip(&mut totals).for_each(|(sum, total)| *sum = *total);
        }
        stats
    }

    /// The counters since `earlier`; the figures of what the database holds now stay.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        fn subtract<const N: usize>(sums: [&mut u64; N], before: [&mut u64; N]) {
            sums.into_iter().zip(before).for_each(|(sum, base)| *sum = sum.saturating_sub(*base));
        }
        let (mut now, mut before) = (self.clone(), earlier.clone());
        subtract(now.counters(), before.counters());
        for (level, base) in now.levels.iter_mut().zip(&mut before.levels) {
            subtract(level.counters(), base.counters());
        }
        now.latencies.subtract(&before.latencies);
        for keyspace in &mut now.keyspaces {
            let before = earlier.keyspaces.iter().find(|base| base.keyspace == keyspace.keyspace);
            *keyspace = before.map_or_else(|| keyspace.clone(), |base| keyspace.since(base));
        }
        now
    }

    /// The kinds of calls that are timed with
    /// [`Options::latency_histograms`](crate::Options::latency_histograms), as
    /// [`latency`](Self::latency) names them: `get`; `multi_get`, the call as a whole; `seek`, the
    /// first entry of an iterator and the seeks of a cursor; `write`, without sync, commits of
    /// transactions included; `sync`, writes with sync and [`Db::sync`](crate::Db::sync). Calls
    /// that fail are timed, too.
    pub const TIMED_CALLS: [&'static str; 5] = TIMED_CALLS;

    /// How many calls of this kind were timed: of [`TIMED_CALLS`](Self::TIMED_CALLS), one. Writes
    /// and syncs are those of the database; the report of a keyspace has none.
    #[must_use]
    pub fn timed_calls(&self, call: &str) -> u64 {
        self.latencies.count(call)
    }

    /// A duration that this share (0 to 1) of the calls of a kind did not exceed: 0.5 gives the
    /// median. At most a quarter too long, between 64 ns and 69 s; `Duration::MAX` for longer
    /// ones. `None` if none was timed.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("db");
    /// let db = siftdb::Options::new().latency_histograms(true).open(path)?;
    /// db.put("ada", "1815")?;
    /// db.get("ada")?;
    /// let stats = db.stats();
    /// assert_eq!(stats.timed_calls("get"), 1);
    /// println!("99 % of gets took at most {:?}", stats.latency("get", 0.99));
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn latency(&self, call: &str, share: f64) -> Option<Duration> {
        self.latencies.quantile(call, share)
    }

    /// The mean duration of the calls of a kind; `None` if none was timed.
    #[must_use]
    pub fn mean_latency(&self, call: &str) -> Option<Duration> {
        let (nanos, _) = self.latencies.of_call(call)?;
        nanos.checked_div(self.timed_calls(call)).map(Duration::from_nanos)
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
            total.range_filter_bytes += level.range_filter_bytes;
            total.index_bytes += level.index_bytes;
            total.top_level_bytes += level.top_level_bytes;
            let sums = total.counters().into_iter().zip(level.counters());
            sums.for_each(|(sum, value)| *sum += *value);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_reaches_the_report_once() {
        let count = Counter::COUNT + LEVELS * LevelCounter::COUNT;
        let totals: Vec<u64> = (1..=count as u64).collect();
        let mut stats = Stats::from_totals(&totals);
        let mut sums = stats.counters().map(|sum| *sum).to_vec();
        stats.levels.iter_mut().for_each(|level| sums.extend(level.counters().map(|sum| *sum)));
        assert_eq!(sums, totals);
        assert_eq!(stats.filter_errors, Counter::FilterErrors as u64 + 1);
        let last = LevelCounter::ScanIndexBytesRead as usize;
        assert_eq!(stats.levels[0].scan_index_bytes_read, totals[Counter::COUNT + last]);
        let stats = Stats::from_totals(&vec![1; count]);
        assert_eq!(stats.total().negatives, LEVELS as u64);
        let text = stats.to_string();
        assert!(text.contains("for a prefix, and skipped:  level 0 2, 1  level 1 2, 1"), "{text}");
        let scans = "level 0 read 1, skipped 1 of 2 asked, false + 1, data blocks read 1, cached 1";
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
        let scans = LevelStats {
            scan_negatives: 3,
            scan_positives: 10,
            scan_true_positives: 8,
            scan_false_positives: 1,
            ..LevelStats::default()
        };
        assert_eq!(scans.observed_scan_fpr(), Some(0.25));
        assert_eq!(LevelStats { scan_negatives: 0, ..scans }.observed_scan_fpr(), Some(1.0));
        assert_eq!(LevelStats::default().observed_scan_fpr(), None);
    }
}
