//! What a filter costs to build and to ask, and what it lets through.
//!
//! `cargo bench -p siftdb-benches --bench filter_policy`. Prints bits per key and the share of
//! false positives of each encoding beside what its formula says, then measures building (per key)
//! and asking: an absent key of a filter that fits the processor's caches (10,000 keys) and of one
//! that does not (20 million keys, 25 MB), hashing included and apart. Each answer is needed before
//! the next question, as in one lookup after the other.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use siftdb::filter::{Encoding, FilterReader, KeyHash, PreparedFilter, leveldb_hash, xxph3_64};
use std::hint::black_box;
use std::time::Duration;

const INSIDE_KEYS: u64 = 10_000;
const OUTSIDE_KEYS: u64 = 20_000_000;

fn encodings() -> [(&'static str, Encoding); 4] {
    [
        ("LevelDB Bloom", Encoding::LevelDbBloom { bits_per_key: 10 }),
        ("FastLocalBloom", Encoding::FastLocalBloom { millibits: 10_000 }),
        ("Ribbon", Encoding::Ribbon { millibits: 10_000 }),
        ("legacy Bloom", Encoding::LegacyBloom { bits_per_key: 10 }),
    ]
}

/// Key `i`: 16 bytes, distinct, in no order that a hash could profit from.
fn key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&i.to_le_bytes());
    key
}

fn build(encoding: &Encoding, keys: u64) -> Vec<u8> {
    let mut builder = encoding.builder();
    (0..keys).for_each(|i| builder.add_key(&key(i)));
    let mut filter = Vec::new();
    builder.finish(&mut filter).expect("built-in encodings always build");
    filter
}

fn prepare(encoding: &Encoding, filter: Vec<u8>) -> PreparedFilter {
    let reader = FilterReader::for_name(&encoding.full_name(), &[]).expect("a built-in name");
    PreparedFilter::new(reader, filter.into())
}

fn print_rates() {
    for (name, encoding) in encodings() {
        for keys in [1_000, INSIDE_KEYS, 1_000_000] {
            let filter = build(&encoding, keys);
            let bits = 8.0 * filter.len() as f64 / keys as f64;
            let prepared = prepare(&encoding, filter);
            let probes = 1_000_000u64;
            let passed = (0..probes)
                .filter(|i| prepared.may_contain(&KeyHash::new(&key((1 << 40) + i))))
                .count();
            println!(
                "{name:<16} {keys:>8} keys  {bits:>6.2} bits/key  {:.3} % false positives \
                 (formula {:.3} %)",
                100.0 * passed as f64 / probes as f64,
                100.0 * encoding.expected_fpr().unwrap_or_default(),
            );
        }
    }
}

fn building(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build, per key");
    for (name, encoding) in encodings() {
        let keys: Vec<[u8; 16]> = (0..INSIDE_KEYS).map(key).collect();
        group.throughput(Throughput::Elements(INSIDE_KEYS));
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || (encoding.builder(), Vec::new()),
                |(builder, filter)| {
                    keys.iter().for_each(|key| builder.add_key(key));
                    builder.finish(filter).expect("built-in encodings always build");
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn hashing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash of 16 bytes");
    group.bench_function("XXPH3", |bencher| {
        bencher.iter(|| xxph3_64(black_box(&key(7))));
    });
    group.bench_function("LevelDB", |bencher| {
        bencher.iter(|| leveldb_hash(black_box(&key(7))));
    });
    group.finish();
}

fn asking(criterion: &mut Criterion) {
    for (place, keys) in [("inside the caches", INSIDE_KEYS), ("outside", OUTSIDE_KEYS)] {
        let mut group = criterion.benchmark_group(format!("ask for an absent key, {place}"));
        for (name, encoding) in encodings() {
            let filter = prepare(&encoding, build(&encoding, keys));
            group.bench_function(name, |bencher| {
                let mut next = 1u64 << 40;
                bencher.iter(|| {
                    let key = key(next);
                    // The answer decides the next key, as one lookup follows the other.
                    next += 1 + u64::from(filter.may_contain(black_box(&KeyHash::new(&key))));
                });
            });
        }
        group.finish();
    }
}

fn rates(_: &mut Criterion) {
    print_rates();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = rates, building, hashing, asking
}
criterion_main!(benches);
