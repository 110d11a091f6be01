//! The phase of several writers: fresh entries put into an empty database by 1, 2, 4 and 8 threads
//! at once, without sync and durably.
//!
//! Puts a second of all threads together, by wall time. An engine that has one writer at a time
//! lets the others wait; one that groups waiting writes makes them durable by one sync. Each
//! thread's entries are made before the clock runs, and all are read back.

use crate::clock::{Span, at_once};
use crate::databases::{Databases, expect};
use crate::engine::{Result, Settings, Store};
use crate::sample::Sample;
use crate::workload::Batch;
use std::sync::Barrier;
use std::time::Instant;

/// Numbers of threads that write at once, one after the other.
const THREADS: [u64; 4] = [1, 2, 4, 8];

/// Puts of all threads together, at most.
const PUTS_MAX: u64 = 500_000;

/// The same for durable puts, which each wait for the disk.
const DURABLE_PUTS_MAX: u64 = 4000;

/// One round, for each number of threads.
pub fn writers(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let mut samples = Vec::new();
    for (row, durable, most) in
        [("writers", false, PUTS_MAX), ("writers-durable", true, DURABLE_PUTS_MAX)]
    {
        let settings = Settings { durable, ..databases.settings() };
        for threads in THREADS {
            let each = (workload.keys / 2).min(most) / threads;
            let batches: Vec<Batch<'_>> =
                (0..threads).map(|thread| workload.fresh(thread * each, each)).collect();
            let elapsed = databases.scratch(&settings, |store, _| {
                let put =
                    |batch: &Batch<'_>, start: &Barrier| put(store.as_ref(), batch, durable, start);
                let elapsed = at_once(&batches, put)?;
                for batch in &batches {
                    expect(store.reader()?.lookups(batch.keys())?, batch.expected())?;
                }
                store.close()?;
                Ok(elapsed)
            })?;
            let rate = (each * threads) as f64 / elapsed.as_secs_f64();
            samples.push(Sample::new(&format!("{row}-{threads}"), rate));
        }
    }
    Ok(samples)
}

/// Puts the entries of one thread.
fn put(store: &dyn Store, batch: &Batch<'_>, durable: bool, start: &Barrier) -> Result<Span> {
    start.wait();
    let start = Instant::now();
    for (key, value) in batch.iter() {
        store.put(key, value, durable)?;
    }
    Ok(Span { start, end: Instant::now() })
}
