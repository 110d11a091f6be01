//! The phases that only read: lookups on one thread and on two, scans.
//!
//! What is looked up is drawn before the clock runs, the same for every engine in the same round.

use crate::clock::{Clock, Span, at_once};
use crate::databases::{Databases, Stage, expect};
use crate::engine::{Reader, Result, Store};
use crate::sample::Sample;
use crate::tally::Tally;
use crate::workload::{Draw, Lookups};
use std::sync::Barrier;
use std::time::Instant;

/// Threads of the phase with several.
const THREADS: u64 = 2;

/// Rows of scans, and the entries of each.
const SCANS: [(&str, usize); 2] = [("scan-10", 10), ("scan", 100)];

/// Lookups on one thread.
pub fn lookups(
    databases: &mut Databases<'_>,
    round: u64,
    row: &str,
    stage: Stage,
    draw: Draw,
) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let lookups = workload.draw(draw, round, workload.lookups);
    let store = databases.at(stage)?;
    let mut reader = store.reader()?;
    let clock = Clock::start();
    let tally = reader.lookups(&lookups.keys)?;
    let elapsed = clock.stop();
    expect(tally, lookups.expected)?;
    Ok(vec![Sample::cpu(row, elapsed, workload.lookups)])
}

/// Misses, then hits, on two threads: wall time for each lookup among both.
pub fn threads(databases: &mut Databases<'_>, round: u64) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let mut samples = Vec::new();
    for (row, draw) in [("threads-miss", Draw::Absent), ("threads-hit", Draw::Present)] {
        let each = workload.lookups / THREADS;
        let seeds = (0..THREADS).map(|thread| round * THREADS + thread);
        let drawn: Vec<Lookups> = seeds.map(|seed| workload.draw(draw, seed, each)).collect();
        let store: &dyn Store = databases.at(Stage::Settled)?;
        let lookups = |lookups: &Lookups, start: &Barrier| lookups_at(store, lookups, start);
        let elapsed = at_once(&drawn, lookups)?;
        samples.push(Sample::wall(row, elapsed, each * THREADS));
    }
    Ok(samples)
}

/// Scans of 10 and 100 entries from keys that are there.
pub fn scans(databases: &mut Databases<'_>, round: u64) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let mut samples = Vec::new();
    for (row, entries) in SCANS {
        let count = (workload.lookups / 50).max(100);
        let starts = workload.draw(Draw::Present, round, count);
        let expected = workload.scanned(&starts.keys, entries);
        let mut reader = databases.at(Stage::Settled)?.reader()?;
        let mut tally = Tally::default();
        let clock = Clock::start();
        for from in starts.keys.iter() {
            tally += reader.tally(from, entries)?;
        }
        let elapsed = clock.stop();
        expect(tally, expected)?;
        samples.push(Sample::cpu(row, elapsed, count));
    }
    Ok(samples)
}

/// A scan of everything.
pub fn full_scan(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let mut reader = databases.at(Stage::Settled)?.reader()?;
    let clock = Clock::start();
    let tally = reader.tally(&[], usize::MAX)?;
    let elapsed = clock.stop();
    expect(tally, workload.all())?;
    Ok(vec![Sample::cpu("full-scan", elapsed, workload.keys)])
}

/// Looks the keys of one thread up.
fn lookups_at(store: &dyn Store, lookups: &Lookups, barrier: &Barrier) -> Result<Span> {
    let reader: Result<Box<dyn Reader + '_>> = store.reader();
    // Whether or not there is a reader: the others wait at the barrier.
    barrier.wait();
    let start = Instant::now();
    let tally = reader?.lookups(&lookups.keys)?;
    let end = Instant::now();
    expect(tally, lookups.expected)?;
    Ok(Span { start, end })
}
