//! What filters cost lookups that hit, which gain nothing from them, and what it costs to leave
//! them out: the same keys of one settled level are read on two sides.
//!
//! - *Hits:* one side looks up an absent key before each round, so its filters are asked. On the
//!   other side all lookups hit, so the filter of the last level is left out.
//! - *Misses:* with filters, and by `use_filters(false)`.
//! - *Misses after hits:* one side only misses; the other changes between hits and misses, and each
//!   time guesses wrong once.
//!
//! `cargo bench -p siftdb-benches --bench hits`; `SIFTDB_BENCH_KEYS=1000000` for the figures in
//! docs/results/recorded.md. Each side has its own database and cache. Short rounds alternate
//! between the sides and are measured in processor time. The result is the median ratio of the
//! pairs, so a disturbance of the machine disturbs both sides.

use siftdb::{Db, Filter, Options, ReadOptions};
use siftdb_benches::{Paired, bench_keys, processor_time};
use siftdb_cli::experiment::{Column, absent, mix, present, settled};
use std::hint::black_box;
use std::path::Path;

/// How a row draws its keys.
#[derive(Clone, Copy)]
enum Draw {
    Uniform,
    /// u cubed: half of the lookups ask an eighth of the keys, a tenth of them a thousandth.
    Skewed,
}

impl Draw {
    fn pick(self, random: u64, keys: u64) -> u64 {
        let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
        match self {
            Draw::Uniform => (unit * keys as f64) as u64,
            Draw::Skewed => (unit.powi(3) * keys as f64) as u64,
        }
    }
}

/// What the lookups of a row do, on the first side and on the second.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    /// Filters asked; left out after many hits.
    Hits,
    /// With filters; without.
    Misses,
    /// After other misses; after hits.
    MissesAfterHits,
}

/// The same database twice.
struct Pair([Db; 2]);

impl Pair {
    #[expect(clippy::disallowed_methods, reason = "a closed database is copied file by file")]
    fn new(directory: &Path, options: &Options, filter: &Filter, keys: u64) -> Self {
        let original = directory.join("original");
        let large = self::options().filter(filter.clone());
        settled(&original, &large, keys).and_then(|db| db.close()).expect("build");
        // Both are copies: a file that is written in small pieces is cached in small pages, too.
        Pair(["first", "second"].map(|side| {
            let copy = directory.join(side);
            std::fs::create_dir(&copy).expect("directory");
            for file in std::fs::read_dir(&original).expect("directory") {
                let file = file.expect("file");
                std::fs::copy(file.path(), copy.join(file.file_name())).expect("copy");
            }
            options.clone().filter(filter.clone()).open(copy).expect("open")
        }))
    }

    /// Alternates between the two sides and prints the medians.
    fn compare(&self, name: &str, rounds: u64, make: impl Fn(u64) -> [u8; 16], row: Row) {
        // Fewer than the hits that make siftdb leave out a filter.
        const LOOKUPS: u64 = 4_000;
        let mut reads = [0.0; 2];
        let paired = Paired::measure(rounds, |round, side| {
            // Both sides look up the same keys.
            let first = (round * LOOKUPS..).take(LOOKUPS as usize);
            let keys: Vec<_> = first.map(|step| make(mix(step + 1))).collect();
            let read = ReadOptions::new().use_filters(side == 0 || row != Row::Misses);
            self.prepare(side, row);
            let before = self.0[side].stats();
            let took = processor_time(|| {
                for key in &keys {
                    let found = self.0[side].get_with(black_box(key), &read).expect("get");
                    assert_eq!(found.is_some(), row == Row::Hits);
                }
            });
            let did = self.0[side].stats().since(&before).total();
            let blocks = did.data_blocks_read + did.filter_blocks_read + did.index_blocks_read;
            reads[side] += blocks as f64 / (LOOKUPS * rounds) as f64;
            took.as_nanos() as f64 / LOOKUPS as f64
        });
        let ([with, without], ratio) = (paired.medians, paired.ratio);
        let [read_with, read_without] = reads;
        println!(
            "{name:42} {with:6.0} ns, other side {without:6.0} ns, ratio {ratio:.3}; \
             blocks read {read_with:.3}, other side {read_without:.3}"
        );
    }

    /// Brings one side to where the row's lookups begin.
    fn prepare(&self, side: usize, row: Row) {
        let db = &self.0[side];
        match (row, side) {
            (Row::Hits, 0) => assert!(db.get(absent(0)).expect("get").is_none()),
            (Row::MissesAfterHits, 1) => {
                let hits = (0..5_000).filter(|_| db.get(present(0)).expect("get").is_some());
                assert_eq!(hits.count(), 5_000);
            }
            _ => {}
        }
    }
}

/// Raw blocks and a cache larger than the data.
fn options() -> Options {
    Options::new().snappy(false).block_cache_bytes(1 << 30)
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let (keys, rounds) = if test { (5_000, 2) } else { (bench_keys(), 251) };
    // Eight bytes a key hold filters and indexes, and a few percent of the data blocks.
    let small = options().block_cache_bytes(8 * keys);
    let rows = [
        ("full", Column::Full, options()),
        ("partitioned", Column::Partitioned, options()),
        ("block-based", Column::BlockBased, options()),
        ("small cache, partitioned", Column::Partitioned, small),
    ];
    for (name, column, options) in rows {
        let filter = &column.filter(Filter::bloom(10.0));
        let directory = tempfile::tempdir().expect("directory");
        let pair = Pair::new(directory.path(), &options, filter, keys);
        for db in &pair.0 {
            for n in 0..keys.max(5_000) {
                db.get(present(mix(n) % keys)).expect("get");
            }
        }
        for (kind, draw) in [("uniform", Draw::Uniform), ("skewed", Draw::Skewed)] {
            let key = |random: u64| present(draw.pick(random, keys));
            pair.compare(&format!("{name}: hits, {kind}"), rounds, key, Row::Hits);
        }
        let key = |random: u64| absent(Draw::Uniform.pick(random, keys));
        pair.compare(&format!("{name}: misses"), rounds, key, Row::Misses);
        pair.compare(&format!("{name}: misses after hits"), rounds, key, Row::MissesAfterHits);
    }
}
