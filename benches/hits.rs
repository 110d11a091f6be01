//! The cost of filters for lookups that hit, which gain nothing from them: the same keys of one
//! settled level are read with filters and without. docs/measurements.md has the figures, which
//! bound what skipping such filters could save.
//!
//! `cargo bench -p siftdb-benches --bench hits`; `SIFTDB_BENCH_KEYS=1000000` for those figures.
//! Each side has its own database and cache. Short rounds alternate between the sides and are
//! measured in processor time. The result is the median ratio of the pairs, so a disturbance of the
//! machine disturbs both sides.

use siftdb::experiment::{Column, absent, bench_keys, mix, present, settled};
use siftdb::{Db, Filter, Options, ReadOptions};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

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

/// The same database twice: `[0]` is read with filters, `[1]` without.
struct Pair([Db; 2]);

impl Pair {
    #[expect(clippy::disallowed_methods, reason = "a closed database is copied file by file")]
    fn new(directory: &Path, options: &Options, filter: &Filter, keys: u64) -> Self {
        let original = directory.join("with");
        let large = self::options().filter(filter.clone());
        settled(&original, &large, keys).and_then(|db| db.close()).expect("build");
        let copy = directory.join("without");
        std::fs::create_dir(&copy).expect("directory");
        for file in std::fs::read_dir(&original).expect("directory") {
            let file = file.expect("file");
            std::fs::copy(file.path(), copy.join(file.file_name())).expect("copy");
        }
        let open = |path: &Path| options.clone().filter(filter.clone()).open(path).expect("open");
        Pair([open(&original), open(&copy)])
    }

    /// Alternates between the two sides and prints the medians.
    fn compare(&self, name: &str, rounds: u64, make: impl Fn(u64) -> [u8; 16], hit: bool) {
        const LOOKUPS: u64 = 10_000;
        let origin = Instant::now();
        let (mut times, mut ratios, mut reads) = ([const { Vec::new() }; 2], Vec::new(), [0.0; 2]);
        for round in 0..rounds {
            let first = (round * LOOKUPS..).take(LOOKUPS as usize);
            let keys: Vec<_> = first.map(|step| make(mix(step + 1))).collect();
            let mut nanos = [0.0; 2];
            for turn in 0..2 {
                let side = ((round + turn) % 2) as usize;
                let read = ReadOptions::new().use_filters(side == 0);
                let before = self.0[side].stats();
                let started = thread_nanos(origin);
                for key in &keys {
                    let found = self.0[side].get_with(black_box(key), &read).expect("get");
                    assert_eq!(found.is_some(), hit);
                }
                nanos[side] = (thread_nanos(origin) - started) as f64 / LOOKUPS as f64;
                let did = self.0[side].stats().since(&before).total();
                let blocks = did.data_blocks_read + did.filter_blocks_read + did.index_blocks_read;
                reads[side] += blocks as f64 / (LOOKUPS * rounds) as f64;
            }
            (0..2).for_each(|side| times[side].push(nanos[side]));
            ratios.push(nanos[1] / nanos[0]);
        }
        let [with, without] = times.map(|mut times| median(&mut times));
        let ratio = median(&mut ratios);
        let [read_with, read_without] = reads;
        println!(
            "{name:42} {with:6.0} ns, unasked {without:6.0} ns, ratio {ratio:.3}; \
             blocks read {read_with:.3}, unasked {read_without:.3}"
        );
    }
}

/// Processor time of this thread, which other processes disturb less than wall time. Without
/// Linux's figure, wall time since `origin`.
fn thread_nanos(origin: Instant) -> u64 {
    // The kernel updates the figure when the thread passes through its scheduler.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_processor = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    on_processor.unwrap_or_else(|| origin.elapsed().as_nanos() as u64)
}

/// Raw blocks and a cache larger than the data.
fn options() -> Options {
    Options::new().snappy(false).block_cache_bytes(1 << 30)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let (keys, rounds) = if test { (5_000, 2) } else { (bench_keys(), 101) };
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
        for (side, db) in pair.0.iter().enumerate() {
            let read = ReadOptions::new().use_filters(side == 0);
            for n in 0..keys {
                db.get_with(present(mix(n) % keys), &read).expect("get");
            }
        }
        for (kind, draw) in [("uniform", Draw::Uniform), ("skewed", Draw::Skewed)] {
            let key = |random: u64| present(draw.pick(random, keys));
            pair.compare(&format!("{name}: hits, {kind}"), rounds, key, true);
        }
        let key = |random: u64| absent(Draw::Uniform.pick(random, keys));
        pair.compare(&format!("{name}: misses"), rounds, key, false);
    }
}
