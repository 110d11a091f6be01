//! The phases that only read: lookups on one thread and on two, scans.
//!
//! What is looked up is drawn before the clock runs, the same for every engine in the same round.

use crate::clock::{Clock, Span, at_once};
use crate::databases::{Databases, Stage, expect};
use crate::engine::{Reader, Result, Store};
use crate::sample::Sample;
use crate::tally::Tally;
use crate::workload::{Draw, Lookups, Workload};
use std::sync::Barrier;
use std::time::Instant;

/// Threads of the phase with several.
const THREADS: u64 = 2;

/// Entries of one scan.
const SCAN_ENTRIES: usize = 100;

/// One round of a phase that reads.
pub struct Reads<'a> {
    /// The databases to read.
    pub databases: &'a mut Databases,
    /// Their entries.
    pub workload: &'a Workload,
    /// Decides which keys are drawn.
    pub round: u64,
}

impl Reads<'_> {
    /// Lookups on one thread.
    pub fn lookups(&mut self, row: &str, stage: Stage, draw: Draw) -> Result<Vec<Sample>> {
        let lookups = self.workload.draw(draw, self.round, self.workload.lookups);
        let store = self.databases.at(stage, self.workload)?;
        let mut reader = store.reader()?;
        let clock = Clock::start();
        let tally = reader.lookups(&lookups.keys)?;
        let elapsed = clock.stop();
        expect(tally, lookups.expected)?;
        Ok(vec![Sample::cpu(row, elapsed, self.workload.lookups)])
    }

    /// Misses, then hits, on two threads: wall time for each lookup among both.
    pub fn threads(&mut self) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for (row, draw) in [("threads-miss", Draw::Absent), ("threads-hit", Draw::Present)] {
            let each = self.workload.lookups / THREADS;
            let seeds = (0..THREADS).map(|thread| self.round * THREADS + thread);
            let drawn: Vec<Lookups> =
                seeds.map(|seed| self.workload.draw(draw, seed, each)).collect();
            let store: &dyn Store = self.databases.at(Stage::Settled, self.workload)?;
            let lookups = |lookups: &Lookups, start: &Barrier| lookups_at(store, lookups, start);
            let elapsed = at_once(&drawn, lookups)?;
            samples.push(Sample::wall(row, elapsed, each * THREADS));
        }
        Ok(samples)
    }

    /// Scans of 100 entries from keys that are there.
    pub fn scans(&mut self) -> Result<Vec<Sample>> {
        let count = (self.workload.lookups / 50).max(100);
        let starts = self.workload.draw(Draw::Present, self.round, count);
        let expected = self.workload.scanned(&starts.keys, SCAN_ENTRIES);
        let mut reader = self.databases.at(Stage::Settled, self.workload)?.reader()?;
        let mut tally = Tally::default();
        let clock = Clock::start();
        for from in starts.keys.iter() {
            tally += reader.scan(from, SCAN_ENTRIES)?;
        }
        let elapsed = clock.stop();
        expect(tally, expected)?;
        Ok(vec![Sample::cpu("scan", elapsed, count)])
    }

    /// A scan of everything.
    pub fn full_scan(&mut self) -> Result<Vec<Sample>> {
        let mut reader = self.databases.at(Stage::Settled, self.workload)?.reader()?;
        let clock = Clock::start();
        let tally = reader.scan(&[], usize::MAX)?;
        let elapsed = clock.stop();
        expect(tally, self.workload.all())?;
        Ok(vec![Sample::cpu("full-scan", elapsed, self.workload.keys)])
    }
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
