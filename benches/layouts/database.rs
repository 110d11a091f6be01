//! Databases to count in: disjoint tables at level 0, in memory, each flushed from sorted keys.
//!
//! A lookup asks exactly one table, the one whose fences hold its key, as in a settled level.

use crate::support::{present, random_indexes, value};
use siftdb::env::{CountingEnv, Env, MemEnv};
use siftdb::inspect::{TableFacts, layout, live_tables, table_facts};
use siftdb::{Db, Filter, FilterLayout, LevelStats, Options, ReadOptions, WriteBatch};
use std::path::Path;
use std::sync::Arc;

const HOME: &str = "/db";

/// How long keys are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// 16 bytes.
    Short,
    /// 96 bytes, of which the first 80 are shared by many.
    Long,
}

impl Shape {
    pub fn name(self) -> &'static str {
        match self {
            Shape::Short => "16 B",
            Shape::Long => "96 B",
        }
    }

    fn key(self, n: u64) -> Vec<u8> {
        let digits = present(n);
        let mut key = Vec::new();
        if self == Shape::Long {
            let shelf = u32::from(digits[0]) * 256 + u32::from(digits[1]);
            key = format!(
                "https://shelves.example.org/{shelf:06}/a/rather/long/path/that/many/keys/"
            )
            .into_bytes();
            key.resize(80, b'/');
        }
        key.extend_from_slice(&digits);
        key
    }
}

/// What to build.
#[derive(Clone)]
pub struct Plan {
    pub keys: u64,
    pub tables: u64,
    pub shape: Shape,
    pub block_bytes: usize,
    pub filter: Filter,
}

impl Plan {
    /// Short keys in blocks of 4 KiB.
    pub fn new(keys: u64, tables: u64, filter: Filter) -> Self {
        Plan { keys, tables, shape: Shape::Short, block_bytes: 4096, filter }
    }

    pub fn build(self) -> Database {
        let env = CountingEnv::new(Arc::new(MemEnv::without_log()));
        let mut keys: Vec<(Vec<u8>, u64)> =
            (0..self.keys).map(|n| (self.shape.key(n), n)).collect();
        keys.sort_unstable();
        let options = Options::new()
            .env(Arc::new(env.clone()))
            .snappy(false)
            .auto_compaction(false)
            .memtable_filter(false)
            .write_buffer_bytes(4 << 30)
            .block_bytes(self.block_bytes)
            .filter(self.filter);
        let db = options.open(HOME).expect("open");
        for table in keys.chunks(self.keys.div_ceil(self.tables) as usize) {
            for batch in table.chunks(1000) {
                let mut writes = WriteBatch::new();
                batch.iter().for_each(|(key, n)| {
                    writes.put(key, value(*n));
                });
                db.write(writes).expect("write");
            }
            db.flush().expect("flush");
        }
        db.close().expect("close");
        drop(db);
        let shared: Arc<dyn Env> = Arc::new(env.clone());
        let live = live_tables(&shared, Path::new(HOME)).expect("manifest").expect("a database");
        let mut facts = TableFacts::default();
        let mut top_level_bytes = 0;
        for table in &live {
            let one = table_facts(&shared, &table.path).expect("facts");
            top_level_bytes += top_level(&shared, &table.path);
            facts.bytes += one.bytes;
            facts.entries += one.entries;
            facts.data_blocks += one.data_blocks;
            facts.data_bytes += one.data_bytes;
            facts.index_bytes += one.index_bytes;
            facts.filter_bytes += one.filter_bytes;
            facts.filter_partitions += one.filter_partitions;
        }
        assert_eq!((live.len() as u64, facts.entries), (self.tables, self.keys));
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        Database { env, keys, tables: self.tables, facts, top_level_bytes }
    }
}

/// A closed database, and its keys in order.
pub struct Database {
    env: CountingEnv,
    pub keys: Vec<Vec<u8>>,
    tables: u64,
    /// Of all tables together.
    pub facts: TableFacts,
    /// Bytes of their top-level indexes.
    pub top_level_bytes: u64,
}

/// Bytes of the top-level index of a partitioned filter, which the table's layout names.
fn top_level(env: &Arc<dyn Env>, table: &Path) -> u64 {
    let mut text = Vec::new();
    layout(env, table, &mut text).expect("layout");
    let text = String::from_utf8(text).expect("text");
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("top-level index "));
    let number = lines.next().and_then(|rest| rest.split(' ').next());
    number.map_or(0, |number| number.parse().expect("bytes"))
}

impl Database {
    /// Opens it; `resident_share` of the cache is for filters and indexes that stay. Every table has
    /// read its index then.
    pub fn open(&self, cache_bytes: u64, resident_share: f64) -> Opened<'_> {
        let options = Options::new()
            .env(Arc::new(self.env.clone()))
            .create_if_missing(false)
            .auto_compaction(false)
            .block_cache_bytes(cache_bytes)
            .filter_resident_share(resident_share);
        let db = options.open(HOME).expect("open");
        let past_all = ReadOptions::new().use_filters(false).fill_cache(false);
        for table in self.keys.chunks(self.keys.len().div_ceil(self.tables as usize)) {
            assert!(db.get_with(&table[0], &past_all).expect("get").is_some());
        }
        Opened { db, of: self, read: ReadOptions::new() }
    }

    /// Bytes that filters and indexes hold where all of them stay in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.open(1 << 40, 1.0).db.stats().resident_bytes
    }

    pub fn bits_per_key(&self) -> f64 {
        8.0 * self.facts.filter_bytes as f64 / self.facts.entries as f64
    }
}

/// The places of keys that are looked up one after the other.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// Any key.
    Even,
    /// Nine of ten lookups go to neighbours, a twentieth of the keys.
    Skewed,
}

impl Pattern {
    pub fn places(self, keys: u64, count: u64) -> impl Iterator<Item = usize> {
        let places = random_indexes(keys).zip(random_indexes(10)).map(move |(place, die)| {
            let hot = matches!(self, Pattern::Skewed) && die > 0;
            (if hot { keys / 3 + place / 20 } else { place }) as usize
        });
        places.take(count as usize)
    }
}

/// An open one.
pub struct Opened<'a> {
    pub db: Db,
    of: &'a Database,
    pub read: ReadOptions,
}

impl Opened<'_> {
    /// Looks up the keys at `places`, or keys directly behind them that are not there.
    pub fn look_up(&self, places: impl Iterator<Item = usize>, present: bool) -> Counts {
        let (before, calls, bytes) =
            (self.db.stats(), self.of.env.read_calls(), self.of.env.read_bytes());
        let mut lookups = 0;
        let mut key = Vec::new();
        for place in places {
            key.clear();
            key.extend_from_slice(&self.of.keys[place]);
            if !present {
                key.push(b'+');
            }
            assert_eq!(self.db.get_with(&key, &self.read).expect("get").is_some(), present);
            lookups += 1;
        }
        let total = self.db.stats().since(&before).total();
        let counts = Counts {
            lookups,
            reads: self.of.env.read_calls() - calls,
            bytes: self.of.env.read_bytes() - bytes,
            total,
        };
        counts.check();
        counts
    }

    /// The same for `count` keys drawn by `pattern`.
    pub fn draw(&self, pattern: Pattern, count: u64, present: bool) -> Counts {
        self.look_up(pattern.places(self.of.keys.len() as u64, count), present)
    }
}

/// What lookups cost, as the file system saw it and as the engine counted it.
pub struct Counts {
    pub lookups: u64,
    pub reads: u64,
    pub bytes: u64,
    pub total: LevelStats,
}

impl Counts {
    fn check(&self) {
        let total = &self.total;
        let reads = total.data_blocks_read + total.filter_blocks_read + total.index_blocks_read;
        let bytes = total.data_bytes_read + total.filter_bytes_read + total.index_bytes_read;
        assert_eq!(
            (reads, bytes),
            (self.reads, self.bytes),
            "counts differ from the file system's"
        );
    }

    pub fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.lookups as f64
    }

    /// Of the filter blocks that lookups wanted, the share that the cache had.
    pub fn filter_hit_rate(&self) -> f64 {
        let cached = self.total.filter_blocks_cached;
        cached as f64 / (cached + self.total.filter_blocks_read).max(1) as f64
    }
}

/// FastLocalBloom with these bits in one filter a table.
pub fn full(bits: f64) -> Filter {
    Filter::bloom(bits).layout(FilterLayout::Full)
}

/// FastLocalBloom in partitions of 4 KiB.
pub fn partitioned(bits: f64) -> Filter {
    Filter::bloom(bits).layout(FilterLayout::Partitioned { block_bytes: 4096 })
}

/// FastLocalBloom in LevelDB's windows.
pub fn block_based(bits: f64) -> Filter {
    Filter::bloom(bits).layout(FilterLayout::BlockBased { window_bytes: 2048 })
}
