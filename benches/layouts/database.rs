//! Databases to count in: disjoint tables at level 0, in memory, each flushed from sorted keys.
//!
//! A lookup asks exactly one table, the one whose range contains its key, as in a settled level.

use siftdb::env::{CountingEnv, Env, MemEnv};
use siftdb::inspect::{TableFacts, layout, live_tables};
use siftdb::{Db, Filter, Options, ReadOptions};
use siftdb_cli::experiment::{
    Column, Measurement, load, measure, present, random_numbers, table_totals, value,
};
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
        let env = CountingEnv::new(Arc::new(MemEnv::new()));
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
            load(&db, table.iter().map(|(key, n)| (key, value(*n)))).expect("write");
            db.flush().expect("flush");
        }
        db.close().expect("close");
        drop(db);
        let shared: Arc<dyn Env> = Arc::new(env.clone());
        let home = Path::new(HOME);
        let live = live_tables(&shared, home).expect("manifest").expect("a database");
        let top_level_bytes = live.iter().map(|table| top_level(&shared, &table.path)).sum();
        let facts = table_totals(&shared, &live).expect("facts");
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
    /// Opens it, and reads the index of every table. Pinned filters and indexes may take
    /// `pinned_share` of the cache.
    pub fn open(&self, cache_bytes: u64, pinned_share: f64) -> Opened<'_> {
        let options = Options::new()
            .env(Arc::new(self.env.clone()))
            .create_if_missing(false)
            .auto_compaction(false)
            .block_cache_bytes(cache_bytes)
            .filter_pinned_share(pinned_share);
        let db = options.open(HOME).expect("open");
        let past_all = ReadOptions::new().use_filters(false).fill_cache(false);
        for table in self.keys.chunks(self.keys.len().div_ceil(self.tables as usize)) {
            assert!(db.get_with(&table[0], &past_all).expect("get").is_some());
        }
        Opened { db, of: self, read: ReadOptions::new() }
    }

    /// Bytes that filters and indexes hold where all of them stay in memory.
    pub fn pinned_bytes(&self) -> u64 {
        self.open(1 << 40, 1.0).db.stats().pinned_bytes
    }

    pub fn bits_per_key(&self) -> f64 {
        8.0 * self.facts.filter_bytes as f64 / self.facts.entries as f64
    }
}

/// The order in which lookups go through the keys.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// Any key.
    Even,
    /// Nine of ten lookups go to neighbours, a twentieth of the keys.
    Skewed,
}

impl Pattern {
    pub fn places(self, keys: u64, count: u64) -> impl Iterator<Item = usize> {
        let places = random_numbers(keys).zip(random_numbers(10)).map(move |(place, die)| {
            let hot = matches!(self, Pattern::Skewed) && die > 0;
            (if hot { keys / 3 + place / 20 } else { place }) as usize
        });
        places.take(count as usize)
    }
}

/// An open database.
pub struct Opened<'a> {
    pub db: Db,
    of: &'a Database,
    pub read: ReadOptions,
}

impl Opened<'_> {
    /// Looks up the keys at these indexes, or absent keys directly after them.
    pub fn look_up(&self, places: impl Iterator<Item = usize>, present: bool) -> Measurement {
        let keys = places.map(|place| {
            let mut key = self.of.keys[place].clone();
            key.extend((!present).then_some(b'+'));
            key
        });
        let measured = measure(&self.db, &self.of.env, keys, |_| present, &self.read, &mut |_| {});
        let measured = measured.expect("lookups");
        assert_eq!(measured.faults, Vec::<String>::new());
        measured
    }

    /// The same for `count` keys drawn by `pattern`.
    pub fn draw(&self, pattern: Pattern, count: u64, present: bool) -> Measurement {
        self.look_up(pattern.places(self.of.keys.len() as u64, count), present)
    }
}

/// FastLocalBloom with these bits in one filter a table.
pub fn full(bits: f64) -> Filter {
    Column::Full.filter(Filter::bloom(bits))
}

/// FastLocalBloom in partitions of 4 KiB.
pub fn partitioned(bits: f64) -> Filter {
    Column::Partitioned.filter(Filter::bloom(bits))
}
