//! The layouts of filters in counts: sizes, reads, bytes and cache lines, no times.
//!
//! `cargo bench -p siftdb-benches --bench layouts`; `SIFTDB_BENCH_KEYS=2100000` for the figures
//! of docs/results/layouts.txt. An argument selects the sections whose name contains
//! it, for instance `-- starved`.
//!
//! Files are in memory and nothing runs in the background, so the figures are the same in every
//! run, except those of small caches: a block's shard depends on the random id of its table. Every
//! measurement compares the engine's counts with what the file system saw, and panics if they
//! differ.

mod database;
mod encodings;
mod lines;
mod locality;
mod sizes;
mod starved;

type Section = (&'static str, &'static str, fn(u64));

const SECTIONS: [Section; 7] = [
    ("sizes", "What one table takes", sizes::print),
    ("starved", "A cache smaller than the filters: 16 tables, absent keys", starved::print),
    ("alternatives", "Fewer bits or larger blocks instead of partitions", starved::alternatives),
    ("top", "Nothing cached but what is named: one table, absent keys", locality::top_level),
    ("hot", "Hot keys of one table at level 0, from a cold cache", locality::hot_keys),
    ("lines", "Cache lines that one probe touches", lines::print),
    ("encodings", "Encoding and layout: 16 tables, 10 bits a key", encodings::print),
];

fn main() {
    // `cargo bench` passes `--bench`, and `.ci/run` passes `--test`; there is one way to run.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let keys = siftdb_benches::bench_keys().max(1_000);
    for (name, title, print) in SECTIONS {
        if arguments.is_empty() || arguments.iter().any(|argument| name.contains(&**argument)) {
            println!("\n{name}: {title}");
            print(keys);
        }
    }
}
