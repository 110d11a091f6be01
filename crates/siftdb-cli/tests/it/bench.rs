//! The benchmark measures right: known delays, known counts, known differences.

use siftdb::env::{CountingEnv, Env, EnvLayer, MemEnv, RandomFile};
use siftdb::{Filter, Options};
use siftdb_cli::experiment::bench::{
    Counts, Data, Difference, Direction, Distribution, Footprint, KeyShape, Kind, Measured, Reader,
    Result, Run, Settings, SiftdbStore, Store, Tree, Variant, WORKLOADS, compare, load, run,
    samples, workload,
};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An Env whose reads take longer by this number of microseconds.
#[derive(Debug)]
struct SlowEnv {
    inner: Arc<dyn Env>,
    micros: Arc<AtomicU64>,
}

#[derive(Debug)]
struct SlowFile {
    inner: Arc<dyn RandomFile>,
    micros: Arc<AtomicU64>,
}

impl EnvLayer for SlowEnv {
    fn inner(&self) -> &dyn Env {
        self.inner.as_ref()
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let inner = self.inner.open_random(path)?;
        Ok(Arc::new(SlowFile { inner, micros: Arc::clone(&self.micros) }))
    }
}

impl RandomFile for SlowFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let micros = self.micros.load(Ordering::Relaxed);
        if micros > 0 {
            std::thread::sleep(Duration::from_micros(micros));
        }
        self.inner.read_exact_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

const KEYS: u64 = 6_000;

fn data() -> Data {
    Data::of_shape(KeyShape::Random, KEYS, 100)
}

/// An empty database with a cache that holds filters and indexes and hardly any data.
fn empty(env: Arc<dyn Env>) -> SiftdbStore {
    let options = Options::new().filter(Filter::bloom(10.0)).block_cache_bytes(64 << 10);
    let db = options.filter_pinned_share(0.9).env(Arc::clone(&env)).open("/bench").unwrap();
    SiftdbStore::new(db, env)
}

fn loaded(env: Arc<dyn Env>) -> SiftdbStore {
    let store = empty(env);
    load(&store, &data(), Tree::Levels, 1, &mut |_| {}).unwrap();
    // Indexes are read by the first read.
    store.reader(true).unwrap().scan(b"", Direction::Forward, u64::MAX, &mut |_, _| {}).unwrap();
    store
}

fn measured(store: &dyn Store, name: &str, settings: &Settings) -> Measured {
    run(store, &data(), &workload(name).unwrap(), settings, &mut ()).unwrap()
}

fn operations(count: u64) -> Settings {
    Settings { operations: Some(count), warm_up: false, ..Settings::default() }
}

#[test]
fn known_delays_are_found() {
    let micros = Arc::new(AtomicU64::new(0));
    let inner: Arc<dyn Env> = Arc::new(MemEnv::new());
    let store = loaded(Arc::new(SlowEnv { inner, micros: Arc::clone(&micros) }));
    let settings = Settings { filters: vec![true], ..operations(300) };
    let get = |measured: &Measured| {
        let latencies = &measured.variants[0].kinds[&Kind::Get];
        assert_eq!((measured.variants[0].kinds.len(), latencies.len()), (1, 300));
        (latencies.value_at_quantile(0.5), latencies.mean())
    };
    let (median, _) = get(&measured(&store, "readrandom", &settings));
    assert!(median < 1_000_000, "{median} ns without a delay");
    micros.store(2_000, Ordering::Relaxed);
    let slow = measured(&store, "readrandom", &settings);
    // Nearly every lookup of a present key reads one block, and few read two.
    let (median, mean) = get(&slow);
    assert!(median >= 2_000_000, "{median} ns with a delay of 2 ms");
    let blocks = slow.variants[0].counts.unwrap().blocks_read as f64 / 300.0;
    assert!((0.9..1.2).contains(&blocks), "{blocks} blocks");
    assert!(mean >= blocks * 2e6 * 0.99, "{mean} ns for {blocks} blocks");
    // Absent keys read no block with filters, and up to one of each table without.
    let both = measured(&store, "readmissing", &operations(300));
    let ratio = both.ratio.unwrap();
    assert!(ratio.low > 2.0, "{ratio:?}");
    assert!(both.variants[1].typical_nanos > 2e6, "{:?}", both.variants[1]);
}

#[test]
fn counts_equal_the_envs() {
    for threads in [1, 3] {
        let env = CountingEnv::new(Arc::new(MemEnv::new()));
        let store = loaded(Arc::new(env.clone()));
        let settings = Settings { threads, hit_ratio: 0.5, ..operations(3_000) };
        for name in ["readrandom", "readmissing", "multireadrandom", "readhot", "ycsb-c"] {
            let before = env.counts();
            let measured = measured(&store, name, &settings);
            let after = env.counts();
            assert_eq!(measured.wrong_answers, 0);
            let sum = |of: fn(&Variant) -> u64| measured.variants.iter().map(of).sum::<u64>();
            assert_eq!(sum(|variant| variant.operations), 3_000, "{name}");
            assert_eq!(sum(|v| v.counts.unwrap().lookups), sum(|v| v.entries), "{name}");
            let calls = after.read_calls - before.read_calls;
            let bytes = after.read_bytes - before.read_bytes;
            assert!(calls > 0, "{name} reads nothing");
            assert_eq!(sum(|v| v.counts.unwrap().blocks_read), calls, "{name}");
            assert_eq!(sum(|v| v.counts.unwrap().bytes_read), bytes, "{name}");
            let [on, off] = &measured.variants[..] else { panic!("{name}: one variant") };
            assert!(on.filters && !off.filters);
            assert_eq!(off.counts.unwrap().negatives, 0);
            assert!(name != "readmissing" || on.counts.unwrap().observed_fpr().unwrap() < 0.1);
        }
    }
}

/// A store whose lookup number `at` stalls; the others find their key at once.
struct StallingStore {
    lookups: AtomicU64,
    at: u64,
    stall: Duration,
}

impl Reader for &StallingStore {
    fn get(&mut self, _: &[u8]) -> Result<Option<u8>> {
        if self.lookups.fetch_add(1, Ordering::Relaxed) == self.at {
            std::thread::sleep(self.stall);
        }
        Ok(Some(0))
    }

    fn scan(
        &mut self,
        _: &[u8],
        _: Direction,
        _: u64,
        _: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        Ok(0)
    }
}

impl Store for StallingStore {
    fn put(&self, _: &[u8], _: &[u8], _: bool) -> Result<()> {
        Err("the disk is full".into())
    }

    fn delete(&self, _: &[u8], _: bool) -> Result<()> {
        panic!("deleted")
    }

    fn write(&self, _: &[(&[u8], &[u8])], _: bool) -> Result<()> {
        Ok(())
    }

    fn reader(&self, _: bool) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn footprint(&self) -> Result<Footprint> {
        Ok(Footprint::default())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_stall_delays_all_operations_that_should_start() {
    // 1000 lookups a second for half a second, one of which stalls for 200 ms: 200 lookups should
    // have started during the stall, and half of these wait for 100 ms or longer.
    let stall = Duration::from_millis(200);
    let store = StallingStore { lookups: AtomicU64::new(0), at: 100, stall };
    let paced = Settings { rate: Some(1_000.0), ..operations(500) };
    let latencies = |settings: &Settings| {
        let mut kinds = measured(&store, "ycsb-c", settings).variants.remove(0).kinds;
        assert_eq!(kinds.len(), 1);
        kinds.pop_first().unwrap().1
    };
    let with_rate = latencies(&Settings { filters: vec![true], ..paced.clone() });
    assert!(
        with_rate.value_at_quantile(0.85) >= 80_000_000,
        "{}",
        with_rate.value_at_quantile(0.85)
    );
    assert!(with_rate.max() >= 199_000_000);
    // Without a rate it is one slow lookup.
    store.lookups.store(0, Ordering::Relaxed);
    let plain = latencies(&Settings { rate: None, filters: vec![true], ..paced });
    assert!(plain.max() >= 199_000_000);
    assert!(plain.value_at_quantile(0.85) < 80_000_000, "{}", plain.value_at_quantile(0.85));
}

#[test]
fn a_rate_is_kept() {
    let store = StallingStore { lookups: AtomicU64::new(0), at: u64::MAX, stall: Duration::ZERO };
    let settings = Settings { rate: Some(5_000.0), threads: 2, ..operations(500) };
    let measured = measured(&store, "ycsb-c", &settings);
    let seconds: f64 = measured.variants.iter().map(|variant| variant.seconds).sum();
    // The last of 500 operations starts after 99.8 ms.
    assert!(seconds > 0.099, "{seconds}");
}

#[test]
fn errors_and_panics_of_a_store_end_the_run() {
    let store = StallingStore { lookups: AtomicU64::new(0), at: u64::MAX, stall: Duration::ZERO };
    let settings = Settings { threads: 3, ..operations(1_000) };
    let failed = run(&store, &data(), &workload("ycsb-a").unwrap(), &settings, &mut ());
    assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
    let panicked = std::panic::catch_unwind(|| {
        let store =
            StallingStore { lookups: AtomicU64::new(0), at: u64::MAX, stall: Duration::ZERO };
        run(&store, &data(), &workload("deleterandom").unwrap(), &settings, &mut ()).is_ok()
    });
    assert!(panicked.is_err());
    let none = Settings { threads: 0, ..operations(1) };
    assert!(run(&store, &data(), &workload("readseq").unwrap(), &none, &mut ()).is_err());
}

#[test]
fn every_workload_runs_and_finds_its_entries() {
    for workload in WORKLOADS {
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let store = if workload.fills() { empty(env) } else { loaded(env) };
        let limit = if workload.fills() { None } else { Some(500) };
        let settings = Settings {
            operations: limit,
            threads: 2,
            distribution: Distribution::Zipfian,
            ..operations(0)
        };
        let measured = run(&store, &data(), &workload, &settings, &mut ()).unwrap();
        assert_eq!(measured.wrong_answers, 0, "{}", workload.name);
        let operations: u64 = measured.variants.iter().map(|variant| variant.operations).sum();
        let entries: u64 = measured.variants.iter().map(|variant| variant.entries).sum();
        assert_eq!(measured.variants.len(), 1 + usize::from(workload.asks_filters()));
        if workload.fills() {
            assert_eq!(entries, KEYS, "{}", workload.name);
            assert_eq!(store.db.iter().count() as u64, KEYS, "{}", workload.name);
            let counts = measured.variants[0].counts.unwrap();
            let all = counts.write_amplification().unwrap();
            assert!(all > 1.0, "{counts:?}");
            let reasons = counts.write_amplification_by_reason();
            let sum: f64 = reasons.iter().filter(|one| one.0 != "filters").map(|one| one.1).sum();
            assert!((sum - all).abs() < 1e-9, "{reasons:?} of {all}");
            assert_eq!(reasons[0].0, "log");
        } else {
            assert_eq!(operations, 500, "{}", workload.name);
            assert!(entries >= 500, "{}", workload.name);
        }
        let kinds = measured.variants.iter().flat_map(|variant| &variant.kinds);
        let timed: u64 = kinds.map(|(_, latencies)| latencies.len()).sum();
        assert!(timed >= operations, "{}: {timed}", workload.name);
        store.close().unwrap();
    }
}

/// A store whose lookups take `factor` times as long.
struct Slowed<'a> {
    inner: &'a SiftdbStore,
    factor: f64,
}

struct SlowedReader<'a> {
    inner: Box<dyn Reader + 'a>,
    factor: f64,
}

impl Reader for SlowedReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        let started = Instant::now();
        let value = self.inner.get(key)?;
        let end = started.elapsed().mul_f64(self.factor);
        while started.elapsed() < end {
            std::hint::spin_loop();
        }
        Ok(value)
    }

    fn scan(
        &mut self,
        from: &[u8],
        direction: Direction,
        count: u64,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        self.inner.scan(from, direction, count, each)
    }
}

impl Store for Slowed<'_> {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.inner.put(key, value, sync)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.inner.delete(key, sync)
    }

    fn write(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        self.inner.write(entries, sync)
    }

    fn reader(&self, use_filters: bool) -> Result<Box<dyn Reader + '_>> {
        let inner = self.inner.reader(use_filters)?;
        Ok(Box::new(SlowedReader { inner, factor: self.factor }))
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn counts(&self) -> Option<Counts> {
        self.inner.counts()
    }

    fn footprint(&self) -> Result<Footprint> {
        self.inner.footprint()
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

/// Whether the comparison of a store with one that takes `factor` times as long reports any
/// difference, after `rounds` by turns.
fn differs(store: &SiftdbStore, factor: f64, rounds: u32, duration: Duration) -> bool {
    let mut sides = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        // The first of a pair changes, so that being first is no advantage.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let slowed = Slowed { inner: store, factor: if side == 1 { factor } else { 1.0 } };
            // Lookups that search four tables, so that the clock takes little of their time: it is
            // not slowed down.
            let settings = Settings {
                duration: Some(duration),
                filters: vec![false],
                seed: u64::from(round),
                ..Settings::default()
            };
            let measured = measured(&slowed, "readmissing", &settings);
            let run = Run::of("siftdb", &slowed, measured, &Vec::new(), round, None).unwrap();
            let answer = serde_json::json!({ "runs": [run.json()] });
            sides[side].extend(samples(&answer).unwrap());
        }
    }
    let comparison = compare(&sides[0], &sides[1]);
    assert!(rounds >= comparison.rounds_needed as u32, "{comparison:?}");
    for one in &comparison.figures {
        println!("{factor} {}: {:?}", one.figure, one.ratio);
    }
    comparison.figures.iter().any(Difference::is_certain)
}

/// `SIFTDB_BENCH_COMPARISONS=20` makes 20 comparisons of each kind, in some minutes.
#[test]
fn measured_differences_are_found() {
    let store = loaded(Arc::new(MemEnv::new()));
    let comparisons = std::env::var("SIFTDB_BENCH_COMPARISONS");
    let Ok(comparisons) = comparisons.map(|count| count.parse::<usize>().unwrap()) else {
        assert!(differs(&store, 3.0, 10, Duration::from_millis(20)));
        return;
    };
    let reported = |factor: f64| {
        let one = |_: &usize| differs(&store, factor, 100, Duration::from_millis(25));
        (0..comparisons).filter(one).count()
    };
    let (same, slower) = (reported(1.0), reported(1.05));
    println!("of {comparisons}: {same} of the same, {slower} with 5 % more");
    assert!(same * 10 <= comparisons, "{same} comparisons of a thing with itself");
    assert!(slower * 10 >= comparisons * 9, "{slower} comparisons with 5 % more");
}
