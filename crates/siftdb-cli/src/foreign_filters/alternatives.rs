//! Other settings for the filters of a LevelDB or RocksDB database: what each would be, as a plan
//! to simulate, and the lines of options that give it.

use crate::foreign_filters::settings::{Pinning, ReadSettings, Store};
use crate::foreign_filters::simulation::{Layout, Plan, TablePlan, Verdicts};
use siftdb_filter::allocation::{Run, millibits_by_run};
use siftdb_filter::encoding::Encoding;
use siftdb_foreign::{LookupCounts, LookupTrace, TableFigures};
use std::collections::BTreeMap;

/// RocksDB's default of `metadata_block_size`.
const PARTITION_BYTES: u64 = 4096;

/// Bits per key to try.
const BITS: [u32; 5] = [6, 8, 10, 12, 16];

/// Fewer bits than this apart are the same setting: filters end at cache lines.
const SAME_BITS: f64 = 0.75;

/// The encodings that RocksDB and LevelDB write, by their labels in siftdb.
const BLOOM: &str = "fast-local-bloom";
const RIBBON: &str = "ribbon";
const LEVELDB_BLOOM: &str = "leveldb-bloom";

/// Absent keys from which on an observed rate counts.
const ASKED_MIN: u64 = 1_000;

/// When a setting takes effect.
const AT_OPEN: &str = "when the database is opened";
const FOR_NEW_TABLES: &str = "for tables written from then on";

/// Settings to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// What is different, in a few words.
    pub setting: String,
    /// Lines of the file `OPTIONS` (RocksDB), or of C++. Those of RocksDB belong to the section
    /// `TableOptions/BlockBasedTable`, unless they name another one.
    pub options: Vec<String>,
    /// When they take effect; empty for the settings as they are.
    pub takes_effect: &'static str,
    /// What is simulated.
    pub plan: Plan,
}

/// The settings as they are, then others.
pub fn alternatives(
    tables: &[TableFigures],
    trace: &LookupTrace,
    read: ReadSettings,
) -> Vec<Alternative> {
    let made = Maker::new(tables, trace, read);
    let as_it_is = made.with("as it is", Vec::new(), "", |table| made.real(table));
    let has_filters = as_it_is.plan.tables.iter().any(|table| table.filter_bytes > 0);
    let mut all = vec![as_it_is];
    all.extend(has_filters.then(|| made.without_filters()));
    all.push(made.with_twice_the_cache());
    all.extend(BITS.iter().filter_map(|&bits| made.with_bits(bits)));
    if read.store == Store::RocksDb {
        all.push(made.with_metadata_moved());
        let others = [made.partitioned(), made.ribbon(), made.last_level(), made.monkey()];
        all.extend(others.into_iter().flatten());
    }
    all
}

struct Maker<'a> {
    tables: &'a [TableFigures],
    trace: &'a LookupTrace,
    read: ReadSettings,
    /// The deepest level that has tables.
    last_level: usize,
    /// What absent keys pass in fact, as a multiple of what is expected of the encoding.
    excess: f64,
}

impl<'a> Maker<'a> {
    fn new(tables: &'a [TableFigures], trace: &'a LookupTrace, read: ReadSettings) -> Self {
        let last_level = tables.iter().map(|table| table.level).max().unwrap_or_default();
        let (mut asked, mut passed, mut expected) = (0, 0, 0.0);
        for (table, counts) in tables.iter().zip(trace.tables()) {
            let Some(rate) = table.filters.expected_fpr() else { continue };
            let absent = counts.negatives + counts.false_positives;
            asked += absent;
            passed += counts.false_positives;
            expected += rate * absent as f64;
        }
        let is_known = asked >= ASKED_MIN && expected > 0.0;
        // Similar keys may share the bits of a weak hash.
        let excess = if is_known { (passed as f64 / expected).max(1.0) } else { 1.0 };
        Maker { tables, trace, read, last_level, excess }
    }

    fn with(
        &self,
        setting: &str,
        options: Vec<String>,
        takes_effect: &'static str,
        plan: impl FnMut(&TableFigures) -> TablePlan,
    ) -> Alternative {
        Alternative {
            setting: setting.into(),
            options,
            takes_effect,
            plan: Plan { tables: self.tables.iter().map(plan).collect(), read: self.read },
        }
    }

    /// The table as it is asked now.
    fn real(&self, table: &TableFigures) -> TablePlan {
        let is_skipped = self.read.skips_last_level && table.level == self.last_level;
        TablePlan::real(table, self.read.asks_filters && !is_skipped)
    }

    /// The table with other filters, in its own layout; without one, with none.
    fn encoded(&self, table: &TableFigures, encoding: Option<&Encoding>) -> TablePlan {
        let keys = table.filters.keys.max(1);
        // LevelDB has a filter for each data block.
        let filters = match self.read.store {
            Store::LevelDb => table.filters.data_blocks.clamp(1, keys),
            Store::RocksDb => 1,
        };
        let of_one = |encoding: &Encoding| {
            let keys = keys / filters;
            let is_like = table.filters.encodings.iter().eq([encoding.label()]);
            let excess = if is_like { self.excess } else { 1.0 };
            let rate = (encoding.expected_fpr_of(keys)? * excess).min(1.0);
            Some((filters * encoding.filter_bytes(keys)?, rate))
        };
        let (filter_bytes, rate) = encoding.and_then(of_one).unwrap_or((0, 1.0));
        // Partitions keep their size.
        let filter = match table.filters.partitions {
            0 => Layout::Whole,
            partitions => Layout::Partitions((table.filters.filter_bytes / partitions).max(1)),
        };
        let verdicts = Verdicts::Rate(rate);
        TablePlan { filter_bytes, verdicts, filter, index: Layout::Real }
    }

    /// Lines that a setting for new filters of all levels needs besides its own.
    fn lines_for_filters(&self, own: String) -> Vec<String> {
        let mut lines = vec![own];
        if !self.read.has_whole_keys {
            lines.push("whole_key_filtering=true".into());
        }
        if self.read.skips_last_level {
            lines.push("[CFOptions] optimize_filters_for_hits=false".into());
        }
        lines
    }

    fn without_filters(&self) -> Alternative {
        let line = match self.read.store {
            Store::LevelDb => "options.filter_policy = nullptr;",
            Store::RocksDb => "filter_policy=nullptr",
        };
        let lines = vec![line.into()];
        let mut none = self.with("no filters", lines, AT_OPEN, |table| self.encoded(table, None));
        none.plan.read.asks_filters = false;
        none
    }

    fn with_twice_the_cache(&self) -> Alternative {
        let cache_bytes = 2 * self.read.cache_bytes;
        let line = match self.read.store {
            Store::LevelDb => {
                format!("options.block_cache = leveldb::NewLRUCache({cache_bytes});")
            }
            Store::RocksDb => format!("block_cache={cache_bytes}"),
        };
        let mut twice =
            self.with("twice the block cache", vec![line], AT_OPEN, |table| self.real(table));
        twice.plan.read.cache_bytes = cache_bytes;
        twice
    }

    /// Bloom filters with this many bits per key, unless they have them already.
    fn with_bits(&self, bits: u32) -> Option<Alternative> {
        let (label, line) = match self.read.store {
            Store::LevelDb => {
                let policy = format!("leveldb::NewBloomFilterPolicy({bits})");
                (LEVELDB_BLOOM, format!("options.filter_policy = {policy};"))
            }
            Store::RocksDb => (BLOOM, format!("filter_policy=bloomfilter:{bits}")),
        };
        let encoding = Encoding::of_table(label, 1_000 * u64::from(bits))?;
        let has_them = |table: &TableFigures| {
            let have = table.filters.probed_bits_per_key();
            let is_near = have.is_some_and(|have| (have - f64::from(bits)).abs() < SAME_BITS);
            let is_asked = self.real(table).filter_bytes > 0;
            is_asked && is_near && table.filters.encodings.iter().eq([label])
        };
        let keys = |is_counted: &dyn Fn(&TableFigures) -> bool| {
            let counted = self.tables.iter().filter(|table| is_counted(table));
            counted.map(|table| table.filters.keys).sum::<u64>()
        };
        // Small tables have more bits.
        if 10 * keys(&has_them) >= 9 * keys(&|_| true) {
            return None;
        }
        let lines = self.lines_for_filters(line);
        let setting = format!("Bloom, {bits} bits a key");
        Some(
            self.with(&setting, lines, FOR_NEW_TABLES, |table| {
                self.encoded(table, Some(&encoding))
            }),
        )
    }

    /// Filters and indexes in the block cache if they are outside of it, or the reverse.
    fn with_metadata_moved(&self) -> Alternative {
        let caches = !self.read.caches_metadata;
        let setting = match caches {
            true => "filters and indexes in the block cache",
            false => "filters and indexes outside of the cache",
        };
        let line = format!("cache_index_and_filter_blocks={caches}");
        let mut changed = self.with(setting, vec![line], AT_OPEN, |table| self.real(table));
        changed.plan.read.caches_metadata = caches;
        changed
    }

    /// Filters and indexes in partitions; `None` if all tables have them so, or no filters.
    fn partitioned(&self) -> Option<Alternative> {
        let is_cut = |table: &TableFigures| {
            table.filters.partitions > 0 || self.real(table).filter_bytes == 0
        };
        let options = [
            "index_type=kTwoLevelIndexSearch",
            "partition_filters=true",
            "metadata_block_size=4096",
            "cache_index_and_filter_blocks=true",
            "pin_top_level_index_and_filter=true",
        ];
        let setting = "partitioned filters and indexes";
        let options = options.map(String::from).into();
        let mut cut = self.with(setting, options, FOR_NEW_TABLES, |table| {
            let partitions = Layout::Partitions(PARTITION_BYTES);
            TablePlan { filter: partitions, index: partitions, ..self.real(table) }
        });
        cut.plan.read.caches_metadata = true;
        cut.plan.read.pinned_top_levels = Pinning::All;
        (!self.tables.iter().all(is_cut)).then_some(cut)
    }

    /// Ribbon filters of the same rate at the last level, where most keys are, and Bloom filters
    /// above; `None` if it has them, or no filters.
    fn ribbon(&self) -> Option<Alternative> {
        let last = self.last_level;
        let of_last = || self.tables.iter().filter(|table| table.level == last);
        // Filters of few keys are Bloom filters under that policy, too.
        if of_last().any(|table| table.filters.encodings.contains(RIBBON)) {
            return None;
        }
        let (mut rates, mut keys) = (0.0, 0);
        for table in of_last().filter(|table| self.real(table).filter_bytes > 0) {
            let Some(rate) = table.filters.expected_fpr() else { continue };
            rates += rate * table.filters.keys as f64;
            keys += table.filters.keys;
        }
        let rate = Some(rates / keys.max(1) as f64).filter(|rate| *rate > 0.0)?;
        let same = Encoding::built_in_for_fpr(rate, keys);
        let encoding = same.into_iter().find(|encoding| encoding.label() == RIBBON)?;
        let bits = encoding.bits_per_key()?;
        let bloom = Encoding::of_table(BLOOM, (1_000.0 * bits) as u64)?;
        // With level 0, flushes would still make Bloom filters.
        let from = if last == 0 { -1 } else { last as i64 };
        let lines = self.lines_for_filters(format!("filter_policy=ribbonfilter:{bits:.1}:{from}"));
        let setting = "Ribbon of the same rate at the last level";
        Some(self.with(setting, lines, FOR_NEW_TABLES, |table| {
            let encoding = if table.level == last { &encoding } else { &bloom };
            self.encoded(table, Some(encoding))
        }))
    }

    /// The filters of the last level not asked, or asked again; `None` without a level above, or
    /// without filters there.
    fn last_level(&self) -> Option<Alternative> {
        let skips = !self.read.skips_last_level;
        let setting = match skips {
            true => "no filters at the last level",
            false => "filters at the last level, too",
        };
        let line = format!("[CFOptions] optimize_filters_for_hits={skips}");
        let is_last = |table: &TableFigures| table.level == self.last_level;
        let asks = |table: &TableFigures| self.read.asks_filters && !(skips && is_last(table));
        let mut changed =
            self.with(setting, vec![line], AT_OPEN, |table| TablePlan::real(table, asks(table)));
        changed.plan.read.skips_last_level = skips;
        let has_filter = |table: &TableFigures| TablePlan::real(table, true).filter_bytes > 0;
        let has_others = self.tables.iter().any(|table| !is_last(table));
        let has_last = self.tables.iter().any(|table| is_last(table) && has_filter(table));
        (has_others && has_last && self.read.asks_filters).then_some(changed)
    }

    /// The memory of the filters divided over the levels as by Monkey (Dayan, Athanassoulis and
    /// Idreos, 2017): so that all of them together pass the fewest absent keys.
    fn monkey(&self) -> Option<Alternative> {
        let all_bytes: u64 = self.tables.iter().map(|table| self.real(table).filter_bytes).sum();
        let asked: Vec<_> = self.tables.iter().zip(self.trace.tables()).collect();
        // Sorted runs: the tables of level 0 alone, then each level.
        let runs = asked.chunk_by(|(a, _), (b, _)| a.level > 0 && a.level == b.level);
        let runs: Vec<_> = runs.collect();
        let lookups = self.trace.lookups().len().max(1) as f64;
        let of_run = |run: &&[(&TableFigures, &LookupCounts)]| {
            let asked: u64 = run.iter().map(|(_, counts)| counts.lookups).sum();
            let share = (asked as f64 / lookups).clamp(1e-6, 1.0);
            Run { keys: run.iter().map(|(table, _)| table.filters.keys).sum(), share }
        };
        let shares: Vec<Run> = runs.iter().map(of_run).collect();
        if all_bytes == 0 || runs.len() < 2 {
            return None;
        }
        // A policy knows the level alone: the tables of level 0 get the mean of their bits.
        let mut of_level: BTreeMap<usize, (u128, u128)> = BTreeMap::new();
        for ((tables, run), millibits) in
            runs.iter().zip(&shares).zip(millibits_by_run(&shares, all_bytes))
        {
            let sum = of_level.entry(tables[0].0.level).or_default();
            let keys = u128::from(run.keys);
            *sum = (sum.0 + keys * u128::from(millibits), sum.1 + keys);
        }
        let of_level: BTreeMap<usize, u64> = of_level
            .into_iter()
            .map(|(level, (bits, keys))| (level, (bits / keys.max(1)) as u64))
            .collect();
        let mut lines = vec![
            "// In C++, a FilterPolicy whose GetBuilderWithContext asks, by level_at_creation:"
                .to_string(),
        ];
        lines.extend(of_level.iter().map(|(level, millibits)| match millibits {
            0 => format!("// level {level}: no filter"),
            _ => format!("// level {level}: NewBloomFilterPolicy({:.1})", *millibits as f64 / 1e3),
        }));
        lines.push("// and whose CompatibilityName is \"rocksdb.BuiltinBloomFilter\"".into());
        let setting = "Bloom, the same memory divided over the levels";
        Some(self.with(setting, lines, FOR_NEW_TABLES, |table| {
            let millibits = of_level.get(&table.level).copied().unwrap_or_default();
            self.encoded(table, Encoding::of_table(BLOOM, millibits).as_ref())
        }))
    }
}
