//! Other settings for the filters of a LevelDB or RocksDB database: what each would be, as a plan
//! to simulate, and the lines of options that give it.

use crate::foreign_filters::simulation::{Layout, Plan, ReadSettings, TablePlan, Verdicts};
use siftdb_filter::allocation::{Run, millibits_by_run};
use siftdb_filter::encoding::Encoding;
use siftdb_foreign::{LookupTrace, TableFigures};
use std::collections::{BTreeMap, BTreeSet};

/// RocksDB's default of `metadata_block_size`.
const PARTITION_BYTES: u64 = 4096;

/// Bits per key to try.
const BITS: [u32; 5] = [6, 8, 10, 12, 16];

/// Encodings that RocksDB and LevelDB write, by their labels in siftdb.
const BLOOM: &str = "fast-local-bloom";
const RIBBON: &str = "ribbon";
const LEVELDB_BLOOM: &str = "leveldb-bloom";

/// The store whose settings are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// LevelDB 1.23.
    LevelDb,
    /// RocksDB 5 to 11.
    RocksDb,
}

impl Store {
    /// Its name in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Store::LevelDb => "leveldb",
            Store::RocksDb => "rocksdb",
        }
    }
}

/// Settings to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// What is different, in a few words.
    pub setting: String,
    /// Lines of the file `OPTIONS` (RocksDB), or of C++.
    pub options: Vec<String>,
    /// What is simulated.
    pub plan: Plan,
}

/// How the database is read as it is. The settings of tables of RocksDB are by their names in
/// `OPTIONS`; a missing one has RocksDB's default.
pub fn read_settings(
    store: Store,
    settings: &BTreeMap<String, String>,
    cache_bytes: u64,
) -> ReadSettings {
    let is = |name: &str, usual: bool| settings.get(name).map_or(usual, |value| value == "true");
    match store {
        // Open tables hold filter and index, and the cache is one LRU queue.
        Store::LevelDb => ReadSettings {
            cache_bytes,
            high_share: 0.0,
            caches_metadata: false,
            metadata_is_high: false,
            pins_top_levels: false,
            pins_level_0: false,
        },
        Store::RocksDb => ReadSettings {
            cache_bytes,
            high_share: 0.5,
            caches_metadata: is("cache_index_and_filter_blocks", false),
            metadata_is_high: is("cache_index_and_filter_blocks_with_high_priority", true),
            pins_top_levels: is("pin_top_level_index_and_filter", true),
            pins_level_0: is("pin_l0_filter_and_index_blocks_in_cache", false),
        },
    }
}

/// The settings as they are, then others.
pub fn alternatives(
    store: Store,
    tables: &[TableFigures],
    trace: &LookupTrace,
    read: ReadSettings,
) -> Vec<Alternative> {
    let made = Maker { store, tables, trace, read };
    let mut all = vec![made.with("as it is", &[], TablePlan::real)];
    all.push(made.without_filters());
    all.push(made.with_twice_the_cache());
    all.extend(BITS.iter().filter_map(|&bits| made.with_bits(bits)));
    if store == Store::RocksDb {
        all.push(made.with_metadata_elsewhere());
        all.extend(
            [made.partitioned(), made.ribbon(), made.without_last_level()].into_iter().flatten(),
        );
        all.extend(made.monkey());
    }
    all
}

struct Maker<'a> {
    store: Store,
    tables: &'a [TableFigures],
    trace: &'a LookupTrace,
    read: ReadSettings,
}

impl Maker<'_> {
    fn with(
        &self,
        setting: &str,
        options: &[&str],
        plan: impl FnMut(&TableFigures) -> TablePlan,
    ) -> Alternative {
        let tables = self.tables.iter().map(plan).collect();
        Alternative {
            setting: setting.into(),
            options: options.iter().map(|line| (*line).to_string()).collect(),
            plan: Plan { tables, read: self.read },
        }
    }

    /// The table with other filters, in its own layout.
    fn encoded(&self, table: &TableFigures, encoding: Option<&Encoding>) -> TablePlan {
        let keys = table.filters.keys.max(1);
        // LevelDB has a filter for each data block.
        let filters = match self.store {
            Store::LevelDb => table.filters.data_blocks.clamp(1, keys),
            Store::RocksDb => 1,
        };
        let of_one = |encoding: &Encoding| {
            let keys = keys / filters;
            Some((filters * encoding.filter_bytes(keys)?, encoding.expected_fpr_of(keys)?))
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

    fn without_filters(&self) -> Alternative {
        let line = match self.store {
            Store::LevelDb => "options.filter_policy = nullptr;",
            Store::RocksDb => "filter_policy=nullptr",
        };
        self.with("no filters", &[line], |table| self.encoded(table, None))
    }

    fn with_twice_the_cache(&self) -> Alternative {
        let cache_bytes = 2 * self.read.cache_bytes;
        let line = match self.store {
            Store::LevelDb => {
                format!("options.block_cache = leveldb::NewLRUCache({cache_bytes});")
            }
            Store::RocksDb => format!("block_cache={cache_bytes}"),
        };
        let mut twice = self.with("twice the block cache", &[&line], TablePlan::real);
        twice.plan.read.cache_bytes = cache_bytes;
        twice
    }

    /// Bloom filters with this many bits per key, unless they have them already.
    fn with_bits(&self, bits: u32) -> Option<Alternative> {
        let (label, line) = match self.store {
            Store::LevelDb => {
                let policy = format!("leveldb::NewBloomFilterPolicy({bits})");
                (LEVELDB_BLOOM, format!("options.filter_policy = {policy};"))
            }
            Store::RocksDb => (BLOOM, format!("filter_policy=bloomfilter:{bits}")),
        };
        let encoding = Encoding::of_table(label, 1_000 * u64::from(bits))?;
        let filtered = || self.tables.iter().map(|table| &table.filters);
        let are_these = filtered().all(|filters| filters.encodings.iter().eq([label]));
        let (bytes, keys) = filtered()
            .fold((0, 0), |sum, filters| (sum.0 + filters.filter_bytes, sum.1 + filters.keys));
        let have = 8.0 * bytes as f64 / keys.max(1) as f64;
        let is_same = are_these && (have - f64::from(bits)).abs() < 0.75;
        let setting = format!("Bloom, {bits} bits a key");
        (!is_same)
            .then(|| self.with(&setting, &[&line], |table| self.encoded(table, Some(&encoding))))
    }

    /// Filters and indexes in the block cache if they are outside of it, or the reverse.
    fn with_metadata_elsewhere(&self) -> Alternative {
        let caches = !self.read.caches_metadata;
        let setting = match caches {
            true => "filters and indexes in the block cache",
            false => "filters and indexes outside of the cache",
        };
        let line = format!("cache_index_and_filter_blocks={caches}");
        let mut changed = self.with(setting, &[&line], TablePlan::real);
        changed.plan.read.caches_metadata = caches;
        changed
    }

    /// Filters and indexes in partitions; `None` if all tables have them so.
    fn partitioned(&self) -> Option<Alternative> {
        let is_cut =
            |table: &TableFigures| table.filters.partitions > 0 || table.filters.filter_bytes == 0;
        let options = [
            "index_type=kTwoLevelIndexSearch",
            "partition_filters=true",
            "metadata_block_size=4096",
            "cache_index_and_filter_blocks=true",
            "pin_top_level_index_and_filter=true",
        ];
        let mut cut = self.with("partitioned filters and indexes", &options, |table| {
            let partitions = Layout::Partitions(PARTITION_BYTES);
            TablePlan { filter: partitions, index: partitions, ..TablePlan::real(table) }
        });
        (cut.plan.read.caches_metadata, cut.plan.read.pins_top_levels) = (true, true);
        (!self.tables.iter().all(is_cut)).then_some(cut)
    }

    /// Ribbon filters of the same rate at the last level, where most keys are; `None` if it has
    /// them, or no filters.
    fn ribbon(&self) -> Option<Alternative> {
        let last = self.last_level()?;
        let of_last = || self.tables.iter().filter(|table| table.level == last);
        // Filters of few keys are Bloom filters under that policy, too.
        if of_last().any(|table| table.filters.encodings.contains(RIBBON)) {
            return None;
        }
        let (rates, keys) = of_last().fold((0.0, 0), |sum, table| {
            let (rate, keys) = (table.filters.expected_fpr().unwrap_or(0.0), table.filters.keys);
            (sum.0 + rate * keys as f64, sum.1 + keys)
        });
        let rate = rates / keys.max(1) as f64;
        let same = Encoding::built_in_for_fpr(Some(rate).filter(|rate| *rate > 0.0)?, keys);
        let encoding = same.into_iter().find(|encoding| encoding.label() == RIBBON)?;
        let bits = encoding.bits_per_key()?;
        let line = format!("filter_policy=ribbonfilter:{bits:.1}:{last}");
        Some(self.with("Ribbon of the same rate at the last level", &[&line], |table| {
            match table.level == last {
                true => self.encoded(table, Some(&encoding)),
                false => TablePlan::real(table),
            }
        }))
    }

    /// No filters at the last level; `None` if it is the only one.
    fn without_last_level(&self) -> Option<Alternative> {
        let last = self.last_level()?;
        let options = ["optimize_filters_for_hits=true"];
        let plan = self.with("no filters at the last level", &options, |table| {
            match table.level == last {
                true => self.encoded(table, None),
                false => TablePlan::real(table),
            }
        });
        Some(plan).filter(|_| self.tables.iter().any(|table| table.level != last))
    }

    /// The memory of the filters divided over the levels as by Monkey (Dayan, Athanassoulis and
    /// Idreos, 2017): so that all of them together pass the fewest absent keys.
    fn monkey(&self) -> Option<Alternative> {
        let all_bytes: u64 = self.tables.iter().map(|table| table.filters.filter_bytes).sum();
        let runs = self.runs();
        let lookups = self.trace.lookups().len().max(1) as f64;
        let shares: Vec<Run> = runs
            .iter()
            .map(|tables| {
                let asked = tables.iter().filter_map(|&at| self.trace.tables().get(at));
                let asked: u64 = asked.map(|counts| counts.lookups).sum();
                let keys = tables.iter().filter_map(|&at| self.tables.get(at));
                let share = (asked as f64 / lookups).clamp(1e-6, 1.0);
                Run { keys: keys.map(|table| table.filters.keys).sum(), share }
            })
            .collect();
        if all_bytes == 0 || runs.len() < 2 {
            return None;
        }
        let bits = millibits_by_run(&shares, all_bytes);
        let mut by_table = BTreeMap::new();
        let mut by_level: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        for (tables, millibits) in runs.iter().zip(bits) {
            for &at in tables {
                by_table.insert(at, millibits);
                let level = self.tables.get(at).map_or(0, |table| table.level);
                by_level.entry(level).or_default().insert(millibits);
            }
        }
        let mut lines = vec![
            "// a FilterPolicy whose GetBuilderWithContext asks, by level_at_creation:".to_string(),
        ];
        lines.extend(by_level.iter().map(|(level, bits)| {
            let mean = bits.iter().sum::<u32>() as f64 / bits.len().max(1) as f64 / 1_000.0;
            match mean > 0.0 {
                true => format!("// level {level}: NewBloomFilterPolicy({mean:.1})"),
                false => format!("// level {level}: no filter"),
            }
        }));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut at = 0;
        Some(self.with("Bloom, the same memory divided over the levels", &lines, |table| {
            let millibits = by_table.get(&at).copied().unwrap_or_default();
            at += 1;
            self.encoded(table, Encoding::of_table(BLOOM, millibits.into()).as_ref())
        }))
    }

    /// Positions of the tables of each sorted run: those of level 0 alone, then each level.
    fn runs(&self) -> Vec<Vec<usize>> {
        let mut runs: Vec<Vec<usize>> = Vec::new();
        let mut level_of_last = 0;
        for (at, table) in self.tables.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if table.level > 0 && table.level == level_of_last => run.push(at),
                _ => runs.push(vec![at]),
            }
            level_of_last = table.level;
        }
        runs
    }

    /// The deepest level that has tables.
    fn last_level(&self) -> Option<usize> {
        self.tables.iter().map(|table| table.level).max()
    }
}
