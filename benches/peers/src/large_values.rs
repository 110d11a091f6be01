//! The phase of large values: what it costs to store them inside the tree or outside of it.
//!
//! Values of 16 KiB are put into an empty database in random order, then overwritten twice in other
//! orders: one by one, without sync. Then the database is settled, keys that are present are looked
//! up, and everything is read in order. The cache holds an eighth of the entries, so most reads go
//! to the files. The system's page cache may hold those.
//!
//! - Write amplification is what the process gave to write calls over the bytes of keys and values
//!   put (`sustained` says what that leaves out): by the last put, when compactions may be
//!   outstanding, and when it is settled, which includes one compaction of everything.
//! - Space amplification is what the files take on disk over the bytes of the live entries: the
//!   most at the end of a slice of the puts, and when it is settled and closed.
//! - Reads are timed by wall time, on one thread. Scanned bytes are those of keys and values. Only
//!   the last byte of each value is used, so it pays for an engine not to copy values.

use crate::clock::written_bytes;
use crate::databases::{Databases, disk_bytes, expect};
use crate::engine::{Result, Settings, Store};
use crate::sample::Sample;
use crate::workload::Workload;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often every entry is put.
const VERSIONS: u64 = 3;

/// Slices of the puts of a version.
const SLICES: usize = 20;

/// The part of the live bytes that the cache holds.
pub const CACHE_PART: u64 = 8;

/// One round.
pub fn large_values(databases: &mut Databases<'_>, round: u64) -> Result<Vec<Sample>> {
    let workload = &databases.workload.large();
    let cache_bytes = workload.bytes() / CACHE_PART;
    let settings = Settings { cache_bytes, ..databases.settings() };
    databases.scratch(&settings, |store, directory| {
        let written_before = written_bytes()?;
        let puts = put_all(store.as_ref(), directory, workload)?;
        let written_by_puts = written_bytes()? - written_before;
        let started = Instant::now();
        store.settle()?;
        let settle = started.elapsed();
        let written = written_bytes()? - written_before;
        let hits = hits(store.as_ref(), workload, round)?;
        let scan = full_scan(store.as_ref(), workload)?;
        store.close()?;
        let settled_bytes = disk_bytes(directory)?;

        let live_bytes = workload.bytes() as f64;
        let put_bytes = VERSIONS as f64 * live_bytes;
        Ok(vec![
            Sample::wall("large-put", puts.elapsed, VERSIONS * workload.keys),
            Sample::milliseconds("large-settle", settle),
            Sample::new("large-written-puts", written_by_puts as f64 / put_bytes),
            Sample::new("large-written", written as f64 / put_bytes),
            Sample::new("large-space-most", puts.disk_bytes_most as f64 / live_bytes),
            Sample::new("large-space", settled_bytes as f64 / live_bytes),
            Sample::new("large-hit", workload.lookups as f64 / hits.as_secs_f64()),
            Sample::new("large-full-scan", live_bytes / 1e6 / scan.as_secs_f64()),
        ])
    })
}

/// What puts took.
#[derive(Default)]
struct Puts {
    elapsed: Duration,
    disk_bytes_most: u64,
}

/// Puts every version of all entries, each version in an order of its own.
fn put_all(store: &dyn Store, directory: &Path, workload: &Workload) -> Result<Puts> {
    let mut puts = Puts::default();
    for version in 0..VERSIONS {
        let numbers = workload.reshuffled(version);
        for slice in numbers.chunks(numbers.len().div_ceil(SLICES)) {
            let batch = workload.version(slice, version);
            let started = Instant::now();
            for (key, value) in batch.iter() {
                store.put(key, value, false)?;
            }
            puts.elapsed += started.elapsed();
            puts.disk_bytes_most = puts.disk_bytes_most.max(disk_bytes(directory)?);
        }
    }
    Ok(puts)
}

/// Looks random entries up, which are all present.
fn hits(store: &dyn Store, workload: &Workload, round: u64) -> Result<Duration> {
    let numbers = workload.drawn_numbers(round, workload.lookups);
    let batch = workload.version(&numbers, VERSIONS - 1);
    let mut reader = store.reader()?;
    let started = Instant::now();
    let found = reader.lookups(batch.keys())?;
    let elapsed = started.elapsed();
    expect(found, batch.expected())?;
    Ok(elapsed)
}

/// Reads everything in order.
fn full_scan(store: &dyn Store, workload: &Workload) -> Result<Duration> {
    let mut reader = store.reader()?;
    let started = Instant::now();
    let found = reader.tally(&[], usize::MAX)?;
    let elapsed = started.elapsed();
    expect(found, workload.version(workload.shuffled(), VERSIONS - 1).expected())?;
    Ok(elapsed)
}
