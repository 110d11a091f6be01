//! The phases that write, and what is measured about whole databases: reopening, disk, memory.
//!
//! Wall time, since an engine's background threads are part of what a write costs. Entries are
//! made before the clock runs. After each phase the entries are read back.

use crate::clock::{memory_peak, reset_memory_peak};
use crate::databases::{Databases, Stage, disk_bytes, expect};
use crate::engine::{Result, Settings, Store};
use crate::sample::Sample;
use crate::workload::{Draw, Workload};
use std::time::{Duration, Instant};

/// Entries that are made at a time, and of one batch of the sorted load.
const CHUNK_ENTRIES: usize = 1000;

/// Entries of one batch that overwrites.
const OVERWRITE_ENTRIES: usize = 100;

/// Puts all entries one by one in random order, then settles.
pub fn load(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let store = databases.create()?;
    let puts = put_all(store.as_ref(), workload)?;
    let started = Instant::now();
    store.settle()?;
    let settle = started.elapsed();
    databases.keep(store)?;
    expect_absent(databases.at(Stage::Settled)?, workload)?;
    Ok(vec![Sample::wall("put", puts, workload.keys), Sample::milliseconds("settle", settle)])
}

/// What the settled database takes on disk.
pub fn disk(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let bytes = disk_bytes(&databases.settled_directory()?)?;
    Ok(vec![Sample::new("disk", bytes as f64 / 1e6)])
}

/// Opens the settled database some times, since one opening is short; answers their median.
pub fn reopen(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    const OPENINGS: usize = 7;
    databases.settled_directory()?;
    let mut elapsed = Vec::new();
    for _ in 0..OPENINGS {
        let started = Instant::now();
        let store = databases.reopen()?;
        elapsed.push(started.elapsed());
        store.close()?;
    }
    elapsed.sort_unstable();
    Ok(vec![Sample::milliseconds("reopen", elapsed[OPENINGS / 2])])
}

/// Overwrites entries in batches of 100.
pub fn overwrite(databases: &mut Databases<'_>, round: u64) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let numbers = workload.drawn_numbers(round, workload.lookups);
    databases.at(Stage::Overwritten)?;
    databases.even_out()?;
    let store = databases.at(Stage::Overwritten)?;
    let elapsed = write_batches(store, workload, &numbers, OVERWRITE_ENTRIES)?;
    let lookups = workload.draw(Draw::Mixed, round, workload.lookups / 10);
    expect(store.reader()?.lookups(&lookups.keys)?, lookups.expected)?;
    Ok(vec![Sample::wall("overwrite", elapsed, workload.lookups)])
}

/// Loads all entries in the order of their keys, in batches of 1000, and flushes.
pub fn sorted(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let numbers = workload.sorted();
    let settings = databases.settings();
    let elapsed = databases.scratch(&settings, |store, _| {
        let written = write_batches(store.as_ref(), workload, numbers, CHUNK_ENTRIES)?;
        let started = Instant::now();
        store.flush()?;
        let elapsed = written + started.elapsed();
        expect(store.reader()?.tally(&[], usize::MAX)?, workload.all())?;
        store.close()?;
        Ok(elapsed)
    })?;
    Ok(vec![Sample::wall("sorted", elapsed, workload.keys)])
}

/// Puts that each wait for the disk.
pub fn durable(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let count = (workload.keys / 100).clamp(100, 10_000);
    let settings = Settings { durable: true, ..databases.settings() };
    let elapsed = databases.scratch(&settings, |store, _| {
        let batch = workload.fresh(0, count);
        // Some engines create their log with the first write; here it is the last entry.
        if let Some((key, value)) = batch.iter().last() {
            store.put(key, value, true)?;
        }
        let started = Instant::now();
        for (key, value) in batch.iter() {
            store.put(key, value, true)?;
        }
        let elapsed = started.elapsed();
        expect(store.reader()?.lookups(batch.keys())?, batch.expected())?;
        store.close()?;
        Ok(elapsed)
    })?;
    Ok(vec![Sample::new("durable", count as f64 / elapsed.as_secs_f64())])
}

/// High-water marks of the resident memory above what the harness itself takes: while loading and
/// settling, and while everything is read with a cache that holds it.
pub fn memory(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    // Made before the measurement, so its memory counts as the harness's.
    workload.shuffled();
    let harness = reset_memory_peak()?;
    let store = databases.create()?;
    put_all(store.as_ref(), workload)?;
    store.settle()?;
    let loading = memory_peak()? - harness;
    store.close()?;
    reset_memory_peak()?;
    let store = databases.reopen()?;
    databases.keep(store)?;
    let reading = memory_peak()? - harness;
    Ok(vec![Sample::new("memory-loading", loading), Sample::new("memory-reading", reading)])
}

fn write_batches(
    store: &dyn Store,
    workload: &Workload,
    numbers: &[u32],
    entries: usize,
) -> Result<Duration> {
    let mut elapsed = Duration::ZERO;
    for numbers in numbers.chunks(entries) {
        let batch = workload.batch(numbers);
        let started = Instant::now();
        store.write(&batch)?;
        elapsed += started.elapsed();
    }
    Ok(elapsed)
}

fn put_all(store: &dyn Store, workload: &Workload) -> Result<Duration> {
    let mut elapsed = Duration::ZERO;
    for numbers in workload.shuffled().chunks(CHUNK_ENTRIES) {
        let batch = workload.batch(numbers);
        let started = Instant::now();
        for (key, value) in batch.iter() {
            store.put(key, value, false)?;
        }
        elapsed += started.elapsed();
    }
    Ok(elapsed)
}

fn expect_absent(store: &dyn Store, workload: &Workload) -> Result<()> {
    let lookups = workload.draw(Draw::Absent, 0, workload.lookups / 10);
    expect(store.reader()?.lookups(&lookups.keys)?, lookups.expected)
}
