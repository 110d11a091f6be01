//! Durable puts of many clients: tickets against threads that block for each sync.
//!
//! `cargo bench -p siftdb-benches --bench tickets`; `SIFTDB_BENCH_SECONDS` is how long each way
//! runs in each round (2), `SIFTDB_BENCH_ROUNDS` how many rounds there are (5). The ways take
//! turns, each in a new database, and the table has medians. A client puts, waits until that is
//! durable, and puts again. `SIFTDB_BENCH_SYNC_MICROS` makes each sync take that much longer, for
//! disks that are slower than this one. docs/results/recorded.md has the figures. `-- --test` runs
//! all of it for a moment.

use siftdb::env::{DiskEnv, Env, EnvLayer, WritableFile};
use siftdb::{Db, Options, Result, WriteOptions};
use siftdb_cli::experiment::bench::median;
use siftdb_cli::experiment::mix;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

const VALUE_BYTES: usize = 100;

/// The disk, with syncs that take longer.
#[derive(Debug)]
struct SlowSyncs {
    disk: DiskEnv,
    longer: Duration,
}

impl EnvLayer for SlowSyncs {
    fn inner(&self) -> &dyn Env {
        &self.disk
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let (inner, longer) = (self.disk.create_new(path)?, self.longer);
        Ok(Box::new(SlowFile { inner, longer }))
    }
}

#[derive(Debug)]
struct SlowFile {
    inner: Box<dyn WritableFile>,
    longer: Duration,
}

impl WritableFile for SlowFile {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.allocate_zeroed(offset, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        std::thread::sleep(self.longer);
        self.inner.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.inner.sync_all()
    }

    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        let (inner, longer) = (self.inner.try_clone()?, self.longer);
        Ok(Box::new(SlowFile { inner, longer }))
    }
}

/// What the clients share.
struct Load {
    db: Db,
    puts: AtomicU64,
    ended: AtomicBool,
}

impl Load {
    fn put(&self, sync: bool) -> Result<()> {
        let key = mix(self.puts.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
        self.db.put_with(key, [7; VALUE_BYTES], &WriteOptions::new().sync(sync))
    }

    fn continues(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }
}

/// How clients wait for the sync.
#[derive(Clone, Copy)]
enum Way {
    /// Each client is a thread that writes with `WriteOptions::sync`.
    Threads,
    /// Each client is a task on this many threads; it writes and awaits a ticket.
    Tickets(usize),
    /// Each client is a task that writes with `WriteOptions::sync` by `spawn_blocking`, which has
    /// this many threads.
    Blocking(usize),
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Threads => "a thread each, `sync(true)`".into(),
            Way::Tickets(threads) => format!("tickets on {threads} threads"),
            Way::Blocking(threads) => format!("`spawn_blocking` on {threads} threads"),
        }
    }
}

fn runtime(workers: usize, blocking: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).max_blocking_threads(blocking);
    builder.build().expect("threads")
}

/// Runs `clients` tasks of `client` until the time is over.
fn run_tasks<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    load: &Arc<Load>,
    clients: usize,
    time: Duration,
    client: fn(Arc<Load>) -> F,
) {
    let tasks: Vec<_> = (0..clients).map(|_| runtime.spawn(client(Arc::clone(load)))).collect();
    std::thread::sleep(time);
    load.ended.store(true, Ordering::Relaxed);
    for task in tasks {
        runtime.block_on(task).expect("no client panics");
    }
}

async fn with_tickets(load: Arc<Load>) {
    while load.continues() {
        load.put(false).expect("the write");
        load.db.sync_ticket().await.expect("the sync");
    }
}

async fn with_blocking(load: Arc<Load>) {
    while load.continues() {
        let load = Arc::clone(&load);
        let put = tokio::task::spawn_blocking(move || load.put(true));
        put.await.expect("no panic").expect("the write");
    }
}

/// Durable puts a second, and puts for each sync.
fn measure(directory: &Path, clients: usize, way: Way, time: Duration) -> Result<(f64, f64)> {
    let longer = Duration::from_micros(setting("SIFTDB_BENCH_SYNC_MICROS").unwrap_or(0.0) as u64);
    let options = match longer.is_zero() {
        true => Options::new(),
        false => Options::new().env(Arc::new(SlowSyncs { disk: DiskEnv::new(), longer })),
    };
    let db = options.open(directory)?;
    let (puts, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let load = Arc::new(Load { db, puts, ended });
    let started = Instant::now();
    match way {
        Way::Threads => std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    while load.continues() {
                        load.put(true).expect("the write");
                    }
                });
            }
            std::thread::sleep(time);
            load.ended.store(true, Ordering::Relaxed);
        }),
        Way::Tickets(threads) => {
            run_tasks(&runtime(threads, 1), &load, clients, time, with_tickets);
        }
        Way::Blocking(threads) => {
            run_tasks(&runtime(4, threads), &load, clients, time, with_blocking);
        }
    }
    let puts = load.puts.load(Ordering::Relaxed) as f64;
    let rate = puts / started.elapsed().as_secs_f64();
    let syncs = load.db.stats().wal_syncs;
    load.db.close()?;
    Ok((rate, puts / syncs.max(1) as f64))
}

fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Compares `ways`, of which the first is 1.
fn compare(clients: usize, ways: &[Way], rounds: usize, time: Duration) -> Result<()> {
    let mut figures = vec![(Vec::new(), Vec::new()); ways.len()];
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let place = (round + turn) % ways.len();
            let directory = tempfile::tempdir().expect("a directory");
            let (rate, per_sync) = measure(directory.path(), clients, ways[place], time)?;
            figures[place].0.push(rate);
            figures[place].1.push(per_sync);
        }
    }
    println!("\n{clients} clients\n");
    println!("| | puts a second | for each sync | against the first |\n|---|---|---|---|");
    let median = |values| median(values).unwrap_or(f64::NAN);
    let first = median(figures[0].0.clone());
    for (way, (rates, per_sync)) in ways.iter().zip(figures) {
        let (rate, per_sync) = (median(rates), median(per_sync));
        println!("| {} | {rate:.0} | {per_sync:.0} | {:.2} |", way.name(), rate / first);
    }
    Ok(())
}

fn main() -> Result<()> {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (seconds, rounds) = if is_test { (0.1, 1.0) } else { (2.0, 5.0) };
    let time = Duration::from_secs_f64(setting("SIFTDB_BENCH_SECONDS").unwrap_or(seconds));
    let rounds = setting("SIFTDB_BENCH_ROUNDS").unwrap_or(rounds) as usize;
    compare(64, &[Way::Threads, Way::Tickets(4)], rounds, time)?;
    compare(1024, &[Way::Blocking(64), Way::Tickets(4)], rounds, time)
}
