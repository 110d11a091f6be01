//! Which filter and compression the tables of a job get: by level, by what the tree holds, and
//! filters by a budget.
//!
//! Asked by `jobs/compact/filter_budget.rs` before each flush and compaction with the entries of
//! each run. Tables keep the filter they were written with until a compaction rewrites them. So
//! after a change of options, or of the tree, there are old and new filters at the same time.

use crate::base::events::delivery::Events;
use crate::base::key::KeyspaceLabel;
use crate::base::levels::LEVELS;
use crate::options::database::Options;
use crate::options::filter::{FILTER_DEFAULT, Filter};
use crate::options::keyspace::{BLOCK_BYTES_DEFAULT, INDEX_PARTITION_BYTES_DEFAULT};
use crate::table::block::builder::RESTART_INTERVAL;
use crate::table::builder::TableOptions;
use crate::table::compression::Compression;
use crate::table::filter::layout::{FilterPinning, TableFilter};
use crate::tree::runs::SortedRuns;
use crate::tree::version::LevelFiles;
use siftdb_filter::allocation::{Run, millibits_by_run};
use siftdb_filter::construction::Construction;

/// Where a job's tables go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TablePlace {
    pub level: usize,
    /// True if no deeper level has data, and the level is not 0.
    pub is_last: bool,
}

impl TablePlace {
    /// Level 0, which is never the last.
    pub(crate) const LEVEL_0: Self = TablePlace { level: 0, is_last: false };

    /// A level of this tree.
    pub(crate) fn in_tree(level: usize, levels: &LevelFiles) -> Self {
        let mut deeper = levels.iter().skip(level + 1);
        TablePlace { level, is_last: level > 0 && deeper.all(|tables| tables.is_empty()) }
    }
}

impl Options {
    /// The compression of tables at `place`.
    pub(crate) fn compression_at(&self, place: TablePlace) -> Compression {
        let of_last = self.data.compression_at_last_level.filter(|_| place.is_last);
        let of_level = || self.data.compression_at_level.get(&place.level).copied();
        of_last.or_else(of_level).or(self.data.compression).unwrap_or_default()
    }

    /// The settings of the tables that a job writes to `place`, with `filter`. `databases` are the
    /// id of the database and those of its ancestors.
    pub(crate) fn table_options(
        &self,
        keyspace: KeyspaceLabel,
        databases: Vec<u128>,
        place: TablePlace,
        filter: Option<TableFilter>,
    ) -> TableOptions {
        let partition_bytes = self.data.index_partition_bytes;
        let partition_bytes = partition_bytes.unwrap_or(INDEX_PARTITION_BYTES_DEFAULT);
        TableOptions {
            keyspace,
            databases,
            block_bytes: self.data.block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT),
            restart_interval: RESTART_INTERVAL,
            hash_index: self.data.block_hash_index.unwrap_or(true),
            index_partition_bytes: partition_bytes as usize,
            compression: self.compression_at(place),
            filter,
            construction: Construction { verify: self.verify_filters, budget: None },
            // A flush should end soon, and its table is rewritten soon. Tables of deeper levels are
            // read for a long time.
            write_bytes: if place.level == 0 { 64 << 10 } else { 1 << 20 },
            events: Events::default(),
        }
    }

    /// Tables at level 0 that stop writes.
    pub(crate) fn level0_stop(&self) -> usize {
        if self.auto_compaction { 9 * self.level0_compaction_trigger } else { usize::MAX }
    }

    /// The filter that was set for `level`.
    pub(crate) fn filter_of_level(&self, level: usize) -> &Filter {
        self.data.filter_at_level.get(&level).unwrap_or(self.filter_of_all_levels())
    }

    /// The filter that was set for tables of `level` in a tree of `runs`.
    fn filter_in(&self, level: usize, runs: &SortedRuns) -> &Filter {
        let of_last = self.data.filter_at_last_level.as_deref();
        of_last.filter(|_| runs.is_last(level)).unwrap_or(self.filter_of_level(level))
    }

    fn filter_of_all_levels(&self) -> &Filter {
        self.data.filter.as_ref().unwrap_or(&FILTER_DEFAULT)
    }

    /// How much of a table's filter stays in memory, by the level it is opened at. Another opening
    /// may have saved `All`: where no memory may be pinned, it means the default.
    pub(crate) fn filter_pinning(&self) -> [FilterPinning; LEVELS] {
        std::array::from_fn(|level| match self.filter_of_level(level).pinning {
            FilterPinning::All if !self.may_pin() => FilterPinning::default(),
            pinning => pinning,
        })
    }

    /// True if a level asks for `FilterPinning::All`, and no memory may be pinned.
    pub(crate) fn asks_for_unpinnable(&self) -> bool {
        let pins_all = |level| self.filter_of_level(level).pinning == FilterPinning::All;
        !self.may_pin() && (0..LEVELS).any(pins_all)
    }

    fn may_pin(&self) -> bool {
        self.filter_pinned_share * (self.block_cache_bytes as f64) >= 1.0
    }

    /// The filter of tables at `level` in a tree of `runs`.
    pub(crate) fn table_filter(&self, level: usize, runs: &SortedRuns) -> Option<TableFilter> {
        let allotted = self.filter_budget().map(|budget| self.allotted(runs, budget)[level]);
        self.table_filter_of(level, runs, allotted.unwrap_or(0))
    }

    /// The same with this many thousandths of a bit per key, where the level shares a budget.
    pub(crate) fn table_filter_of(
        &self,
        level: usize,
        runs: &SortedRuns,
        millibits: u32,
    ) -> Option<TableFilter> {
        if self.leaves_out(level, runs) {
            return None;
        }
        let filter = self.filter_in(level, runs);
        match filter.budget() {
            None => filter.at_level(level),
            Some(_) => filter.with_millibits(level, millibits),
        }
    }

    /// The budget of `Filter::monkey`, if there is one.
    pub(crate) fn filter_budget(&self) -> Option<u64> {
        self.filter_of_all_levels().budget()
    }

    /// The levels that share the budget: those without a filter of their own. A last level that
    /// is to have no filter takes no part.
    pub(crate) fn budget_levels(&self, runs: &SortedRuns) -> Vec<usize> {
        let is_shared = |level: &usize| {
            self.filter_in(*level, runs).budget().is_some() && !self.leaves_out(*level, runs)
        };
        (0..LEVELS).filter(is_shared).collect()
    }

    /// Thousandths of a bit per key by level, for `budget_bytes` divided over `runs`. An empty
    /// level gets what the next one below it gets.
    pub(crate) fn allotted(&self, runs: &SortedRuns, budget_bytes: u64) -> [u32; LEVELS] {
        let levels = self.budget_levels(runs);
        let runs_of = |&level: &usize| {
            runs.level(level).iter().map(move |&keys| Run { keys, share: runs.share(level) })
        };
        let all: Vec<Run> = levels.iter().flat_map(runs_of).collect();
        let mut millibits = millibits_by_run(&all, budget_bytes).into_iter();
        let mut by_level = [0; LEVELS];
        for &level in &levels {
            let of_level: Vec<u32> = millibits.by_ref().take(runs.level(level).len()).collect();
            // Of level 0, the newest table is the one that the job writes.
            by_level[level] = of_level.first().copied().unwrap_or(0);
        }
        for level in (0..LEVELS - 1).rev() {
            if runs.level(level).is_empty() {
                by_level[level] = by_level[level + 1];
            }
        }
        by_level
    }

    fn leaves_out(&self, level: usize, runs: &SortedRuns) -> bool {
        !self.data.filter_last_level.unwrap_or(true) && runs.is_last(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::keyspace::KeyspaceOptions;
    use crate::table::filter::layout::FilterLayout;
    use crate::tree::testing::drawn_levels;

    /// A flush of 100 entries above tables of 100 entries each at levels 1 and 3.
    fn runs() -> SortedRuns {
        let many = (0..30).map(|n| format!(" {n}[k{n}..k{n}]")).collect::<String>();
        SortedRuns::after_flush(&drawn_levels(&format!("L1: 90[a..b]\nL3:{many}")), 100)
    }

    fn bits(options: &Options, level: usize) -> Option<f64> {
        options.validate().unwrap();
        options.table_filter(level, &runs()).and_then(|filter| filter.encoding.bits_per_key())
    }

    #[test]
    fn unset_settings_have_the_builtin_defaults() {
        assert!(Options::new().data.settings().is_empty());
        let database = Options::new().block_bytes(512).snappy(false).filter(Filter::none());
        let database = database.table_bytes(1 << 20);
        assert_eq!(database.data.to_string(), "filter=none, block_bytes=512, compression=none");
        let keyspace = database.for_keyspace(&KeyspaceOptions::new().block_hash_index(false));
        let table =
            keyspace.table_options(KeyspaceLabel::default(), Vec::new(), TablePlace::LEVEL_0, None);
        assert_eq!((table.block_bytes, table.hash_index), (4096, false));
        assert_eq!(table.compression, Compression::Snappy);
        assert_eq!(keyspace.filter_of_level(3).to_string(), "fast-local-bloom:10");
        assert_eq!(keyspace.compaction_options().table_bytes, 1 << 20);
        let filter = keyspace.filter_of_level(0).clone();
        assert_eq!(format!("{filter:?}"), format!("{:?}", Filter::bloom(10.0)));
    }

    #[test]
    fn the_last_level_has_a_compression_of_its_own() {
        let options = Options::new()
            .compression_at_level(2, Compression::None)
            .compression_at_last_level(Compression::Zstd(3));
        let levels = drawn_levels("L0: 9[a..b]\nL1: 8[a..b]\nL2: 7[a..b]");
        let all =
            [0, 1, 2, 3].map(|level| options.compression_at(TablePlace::in_tree(level, &levels)));
        let [snappy, zstd] = [Compression::Snappy, Compression::Zstd(3)];
        assert_eq!(all, [snappy, snappy, zstd, zstd]);
        // A flush into an empty tree is no last level.
        assert_eq!(options.compression_at(TablePlace::LEVEL_0), snappy);
        let upper = drawn_levels("L2: 7[a..b]\nL3: 6[a..b]");
        let of_2 = options.compression_at(TablePlace::in_tree(2, &upper));
        assert_eq!(of_2, Compression::None);
    }

    #[test]
    fn level_filters_override_the_general_one() {
        let options = Options::new().filter(Filter::none()).filter_at_level(3, Filter::bloom(5.0));
        assert_eq!((bits(&options, 2), bits(&options, 3)), (None, Some(5.0)));
    }

    #[test]
    fn a_short_budget_skips_the_largest_run() {
        let options = Options::new().filter(Filter::monkey(4_000));
        let [flush, first, last] = [0, 1, 3].map(|level| bits(&options, level).unwrap());
        assert!((flush - first).abs() < 0.3, "runs of 100 entries: {flush} and {first} bits");
        assert!(first > last + 4.0, "{first} and {last} bits");
        let spent = 100.0 * flush + 100.0 * first + 3_000.0 * last;
        assert!((31_900.0..=32_000.0).contains(&spent), "{spent} of 32000 bits");
        let options = Options::new().filter(Filter::monkey(300));
        assert!(bits(&options, 1).unwrap() > 10.0);
        assert_eq!(bits(&options, 3), None);
    }

    #[test]
    fn levels_with_own_filters_leave_the_budget() {
        let filter = Filter::monkey(300).layout(FilterLayout::Full);
        let options = Options::new().filter(filter).filter_at_level(3, Filter::bloom(5.0));
        assert_eq!(bits(&options, 3), Some(5.0));
        assert!((11.0..=12.0).contains(&bits(&options, 0).unwrap()), "2400 bits for 200 entries");
        let without_last = Options::new().filter(Filter::monkey(300)).filter_last_level(false);
        assert_eq!(bits(&without_last, 3), None);
        assert!((11.0..=12.0).contains(&bits(&without_last, 0).unwrap()));
    }

    #[test]
    fn the_filter_of_the_last_level_follows_the_data() {
        let options = Options::new()
            .filter(Filter::monkey(300))
            .filter_at_level(4, Filter::bloom(4.0))
            .filter_at_last_level(Filter::bloom(5.0));
        let [flush, last, below] = [0, 3, 4].map(|level| bits(&options, level));
        assert!((11.0..=12.0).contains(&flush.unwrap()), "2400 bits for 200 entries");
        assert_eq!((last, below), (Some(5.0), Some(5.0)));
        assert_eq!(bits(&options.clone().filter_last_level(false), 3), None);
        let refused = [Filter::monkey(9), Filter::bloom(5.0).pinning(FilterPinning::All)];
        for filter in refused {
            assert!(Options::new().filter_at_last_level(filter).validate().is_err());
        }
    }

    #[test]
    fn an_unfiltered_last_level_follows_the_data() {
        let options = Options::new().filter_last_level(false);
        let filtered: Vec<bool> =
            (0..LEVELS).map(|level| bits(&options, level).is_some()).collect();
        assert_eq!(filtered, [true, true, true, false, false, false, false]);
        // A table that is flushed into an empty tree has a filter.
        let empty = SortedRuns::after_flush(&Default::default(), 5);
        assert!(options.table_filter(0, &empty).is_some());
        assert!(options.table_filter(1, &empty).is_none());
    }
}
