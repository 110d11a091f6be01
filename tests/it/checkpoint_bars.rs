//! What checkpoints cost, in time and to writers: bars for an optimized build on a quiet machine.
//!
//! `cargo test --release --test it checkpoint_bars -- --ignored --nocapture --test-threads 1`

use crate::support::data::{bytes, key};
use siftdb::{Db, Options};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Half of what a memtable may hold before it is switched, in [`with_tables`].
const BUFFER_BYTES: usize = 32 << 20;

/// A database with at least this number of tables, and nothing unflushed.
fn with_tables(path: &Path, tables: usize) -> Db {
    let options = Options::new().table_bytes(64 << 10).auto_compaction(false);
    let db = options.write_buffer_bytes(5 * BUFFER_BYTES / 2).open(path).unwrap();
    for number in 0..tables * 70 {
        db.put(key(number), bytes(number as u64, 1000)).unwrap();
    }
    db.compact_range(..).unwrap();
    assert!(db.tables().len() >= tables, "{}", db.tables().len());
    db
}

/// Fills two buffers: entries of 100 bytes take 100 more in a memtable.
fn fill(db: &Db) {
    for number in 0..2 * BUFFER_BYTES / 220 {
        db.put(key(number), bytes(number as u64, 100)).unwrap();
    }
}

fn time<T>(call: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    drop(call());
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "a bar; see the head of the file"]
fn checkpoints_take_twice_the_writing_at_most() {
    let directory = tempfile::tempdir().unwrap();
    let [home, alone, raw] = ["db", "alone", "raw"].map(|name| directory.path().join(name));
    let (db, alone) = (with_tables(&home, 1_000), with_tables(&alone, 0));
    let (mut flushes, mut raws, mut checkpoints) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..7 {
        let backup = directory.path().join(format!("backup-{round}"));
        fill(&alone);
        flushes.push(time(|| alone.flush().unwrap()));
        fill(&db);
        checkpoints.push(time(|| db.checkpoint(&backup).unwrap()));
        // The same bytes, without making a table of them.
        let table = db.tables().iter().map(|table| table.bytes).max().unwrap();
        let contents = bytes(round, table as usize);
        raws.push(time(|| {
            let mut file = std::fs::File::create(&raw).unwrap();
            file.write_all(&contents).and_then(|()| file.sync_all()).unwrap();
        }));
    }
    let [flush, raw, checkpoint] = [flushes, raws, checkpoints].map(median);
    let tables = db.tables().len();
    println!("{tables} tables, 2 buffers: checkpoint {checkpoint:.1?}, flush alone {flush:.1?}");
    println!("the bytes of its table written and synced: {raw:.1?}");
    assert!(checkpoint <= 2 * flush);
}

/// How long puts took during some calls.
#[derive(Default)]
struct Latencies {
    all: Vec<Duration>,
    /// The slowest put of each call and the wait after it.
    slowest: Vec<Duration>,
}

impl Latencies {
    /// Adds those of a writer while another thread calls `beside`, at equal intervals, so that
    /// equally many puts meet each call.
    fn measure(&mut self, db: &Db, mut beside: impl FnMut() + Send) {
        const CALLS: usize = 10;
        let calls = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for call in 1..=CALLS {
                    let took = time(&mut beside);
                    thread::sleep(Duration::from_millis(250).saturating_sub(took));
                    calls.store(call, Ordering::Relaxed);
                }
            });
            let mut slowest = [Duration::ZERO; CALLS];
            for number in 0.. {
                let call = calls.load(Ordering::Relaxed);
                let Some(slowest) = slowest.get_mut(call) else { break };
                let took = time(|| db.put(key(number % 100_000), [7; 100]).unwrap());
                *slowest = took.max(*slowest);
                self.all.push(took);
            }
            self.slowest.extend(slowest);
        });
    }

    /// The time that all puts but one in 1,000 take at most.
    fn print(mut self, what: &str) -> Duration {
        self.all.sort();
        let at = |part: f64| self.all[(self.all.len() as f64 * part) as usize];
        let (p50, p999, p9999) = (at(0.5), at(0.999), at(0.9999));
        let (puts, slowest) = (self.all.len(), median(self.slowest));
        println!("{what}: {puts} puts, p50 {p50:.1?}, p99.9 {p999:.1?}, p99.99 {p9999:.1?}");
        println!("  the slowest put during each, median {slowest:.1?}");
        p999
    }
}

#[test]
#[ignore = "a bar; see the head of the file"]
fn writers_wait_for_one_switch_at_most() {
    let directory = tempfile::tempdir().unwrap();
    let db = with_tables(&directory.path().join("db"), 1_000);
    let (mut switches, mut checkpoints) = (Latencies::default(), Latencies::default());
    for _ in 0..7 {
        switches.measure(&db, || db.flush().unwrap());
        checkpoints.measure(&db, || {
            let backup = tempfile::tempdir_in(directory.path()).unwrap();
            db.checkpoint(backup.path()).unwrap();
        });
    }
    let (switches, checkpoints) = (switches.print("flushes"), checkpoints.print("checkpoints"));
    // A tenth for the machine.
    assert!(checkpoints <= switches.mul_f64(1.1));
}
