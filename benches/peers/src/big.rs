//! The phase of a database that memory does not hold.
//!
//! The entries are loaded and settled without a bound. Then another process opens the database in
//! a control group of the system (`memory_group`) whose memory, cached pages of files included, is
//! a part of the data. The cache of each store has a quarter of that. Operations of each kind run
//! one by one: as many to warm the caches, then those that are timed. Then everything runs again
//! next to a thread that overwrites entries.
//!
//! Bytes are those that the process read from the disk, reads those of the whole disk, so nothing
//! else may use it. What a thread that writes reads for its compactions would be among them, so
//! they are not reported for the second half.

use crate::cold::drop_pages;
use crate::databases::{Databases, expect};
use crate::engine::{Result, Store};
use crate::memory_group::MemoryGroup;
use crate::sample::Sample;
use crate::tally::Tally;
use crate::timed::{Timed, disk_reads, timed};
use crate::workload::{Draw, Workload};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The part of the memory that is the cache of a store.
pub const CACHE_PART: u64 = 4;

/// Most operations of each kind that are timed.
const OPERATIONS: u64 = 50_000;

/// Entries of a scan.
const SCANNED: usize = 100;

/// Entries that are overwritten in a second.
const OVERWRITES: u64 = 5_000;

/// How often the writer writes its share of a second.
const STEPS: u64 = 100;

/// The kinds of lookups, by the names of their rows.
const LOOKUPS: [(&str, Draw); 4] = [
    ("absent", Draw::Absent),
    ("present", Draw::Present),
    ("zipfian", Draw::Zipfian),
    ("mixed", Draw::Mixed),
];

/// Builds the database, and drops it from the system's page cache: pages that another process has
/// read would cost the measured one no memory.
pub fn prepare(databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    drop_pages(&databases.built_directory()?)?;
    Ok(Vec::new())
}

/// Opens the database in this process, which is in `group`, and measures.
pub fn measure(
    databases: &mut Databases<'_>,
    round: u64,
    group: &MemoryGroup,
) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let directory = databases.built_directory()?;
    let first = workload.draw(Draw::Present, round * 100, 1);
    let started = Instant::now();
    let store = databases.reopen()?;
    expect(store.reader()?.lookups(&first.keys)?, first.expected)?;
    let mut samples = vec![Sample::milliseconds("big-open", started.elapsed())];
    samples.push(Sample::new("big-open-memory", group.peak_bytes()? as f64 / 1e6));
    let operations = OPERATIONS.min(workload.lookups);
    let kinds = Kinds { store: store.as_ref(), workload, operations, round, directory: &directory };
    kinds.run(|kind, timed, reads| {
        let row = |what| format!("big-{kind}-{what}");
        samples.extend([
            Sample::new(&row("p50"), timed.p50),
            Sample::new(&row("p99"), timed.p99),
            Sample::new(&row("p999"), timed.p999),
            Sample::new(&row("bytes"), timed.disk_bytes),
            Sample::new(&row("reads"), reads),
        ]);
    })?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(store.as_ref(), workload, round, &is_over));
        let read = kinds.run(|kind, timed, _| {
            let row = |what| format!("big-{kind}-{what}-writer");
            samples.extend([
                Sample::new(&row("p50"), timed.p50),
                Sample::new(&row("p999"), timed.p999),
            ]);
        });
        is_over.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer panicked")??;
        read
    })?;
    store.close()?;
    samples.push(Sample::new("big-memory", group.peak_bytes()? as f64 / 1e6));
    Ok(samples)
}

/// Operations of each kind, on one thread.
struct Kinds<'a> {
    store: &'a dyn Store,
    workload: &'a Workload,
    operations: u64,
    round: u64,
    directory: &'a Path,
}

impl Kinds<'_> {
    /// Warms the caches with operations of each kind, then times others: gives times, and reads of
    /// the disk for each operation, to `each`.
    fn run(&self, mut each: impl FnMut(&str, Timed, f64)) -> Result<()> {
        let draw = |draw, step| self.workload.draw(draw, self.round * 100 + step, self.operations);
        for (number, (kind, drawn)) in (1..).zip(LOOKUPS) {
            let warming = draw(drawn, 2 * number);
            self.store.reader()?.lookups(&warming.keys)?;
            let lookups = draw(drawn, 2 * number + 1);
            let (mut reader, mut tally) = (self.store.reader()?, Tally::default());
            let before = disk_reads(self.directory)?;
            let found = timed(lookups.keys.iter(), |key| {
                tally.add(reader.get(key)?);
                Ok(())
            })?;
            let reads = disk_reads(self.directory)? - before;
            // Values change while they are overwritten, so only their number is compared.
            expect(Tally { sum: 0, ..tally }, Tally { sum: 0, ..lookups.expected })?;
            each(kind, found, reads as f64 / self.operations as f64);
        }
        let starts = draw(Draw::Present, 50);
        let scans = (self.operations / 10).max(1) as usize;
        let mut reader = self.store.reader()?;
        let mut scan = |from: &[u8]| reader.tally(from, SCANNED).map(drop);
        starts.keys.iter().take(scans).try_for_each(&mut scan)?;
        let before = disk_reads(self.directory)?;
        let found = timed(starts.keys.iter().skip(scans).take(scans), scan)?;
        let reads = disk_reads(self.directory)? - before;
        each("scan", found, reads as f64 / scans as f64);
        Ok(())
    }
}

/// Overwrites entries until the others are done, [`OVERWRITES`] in a second.
fn overwrite(
    store: &dyn Store,
    workload: &Workload,
    round: u64,
    is_over: &AtomicBool,
) -> Result<()> {
    let started = Instant::now();
    for step in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let numbers = workload.drawn_numbers(round << 20 | step, OVERWRITES / STEPS);
        for (key, value) in workload.overwriting(&numbers).iter() {
            store.put(key, value, false)?;
        }
        let due = Duration::from_secs(1) * (step as u32 + 1) / STEPS as u32;
        std::thread::sleep(due.saturating_sub(started.elapsed()));
    }
    Ok(())
}
