//! The phases that only read: lookups on one thread and on two, scans.
//!
//! What is looked up is drawn before the clock runs, the same for every engine in the same round.

use crate::clock::Clock;
use crate::databases::{Databases, Stage, expect};
use crate::engine::{Reader, Result, Store, Tally};
use crate::phases::Sample;
use crate::workload::{Draw, Lookups, Workload};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Threads of the phase with several.
const THREADS: u64 = 2;

/// Entries of one scan.
const SCAN_ENTRIES: usize = 100;

/// One round of a phase that reads.
pub struct Reads<'a> {
    /// What is read.
    pub databases: &'a mut Databases,
    /// What it holds.
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
            let store = self.databases.at(Stage::Settled, self.workload)?;
            let elapsed = at_once(store, &drawn)?;
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

/// Looks each list up on a thread of its own, all at once: the time from the first start to the
/// last end, told by the threads themselves, since the thread that waits for them may be late.
fn at_once(store: &dyn Store, drawn: &[Lookups]) -> Result<Duration> {
    let barrier = Barrier::new(drawn.len());
    let spans: Result<Vec<Span>> = std::thread::scope(|scope| {
        let barrier = &barrier;
        let start = |lookups| scope.spawn(move || lookups_at(store, lookups, barrier));
        let threads: Vec<_> = drawn.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
    });
    let spans = spans?;
    let first = spans.iter().map(|span| span.start).min();
    let last = spans.iter().map(|span| span.end).max();
    Ok(last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first))
}

/// When a thread was at work.
struct Span {
    start: Instant,
    end: Instant,
}

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
