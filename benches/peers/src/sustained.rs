//! The phase of sustained writing: whether puts stay fast, how long the slowest take, and how many
//! bytes it all costs.
//!
//! Every entry is put into an empty database in random order, then again with another value in
//! another order: one by one, without sync and without a pause. Then the database is settled. Each
//! half is cut into 20 slices. Each put is measured by wall time, as in `writes`, so each includes
//! reading the clock, some 25 ns. Entries are made between puts.
//!
//! - Write amplification is what the process gave to write calls from the first put to the end of
//!   settling over the bytes of keys and values put. It leaves out what is written through memory
//!   maps (no engine here does that; LMDB only reads through its map), space that is allocated
//!   without being written, and the file system's own writing. A page that is written twice counts
//!   twice, whether or not the disk sees it twice.
//! - Space amplification is what the files take on disk over the bytes of the live entries: the
//!   most at the end of a slice, and when it is settled and closed.
//! - Engines count how long they made writers wait ([`Store::stalled`]). That time is subtracted
//!   from each put of a millisecond or more. The longest rest is what these statistics do not
//!   explain.

use crate::clock::written_bytes;
use crate::databases::{Databases, disk_bytes, expect};
use crate::engine::{Result, Store};
use crate::sample::Sample;
use crate::workload::{Batch, Draw, Workload};
use std::path::Path;
use std::time::{Duration, Instant};

/// Slices of each half.
const SLICES: usize = 20;

/// Entries that are made at a time.
const CHUNK_ENTRIES: usize = 1000;

/// An engine is asked how long it made writers wait after puts that took this long: no shorter
/// wait matters, and asking takes time.
const SLOW: Duration = Duration::from_millis(1);

/// A put that takes longer is counted: one that somebody may notice.
const LONG: Duration = Duration::from_millis(10);

/// One round.
pub fn sustained(databases: &mut Databases<'_>, round: u64) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    // Both orders now, so that nothing pauses later.
    let (first, second) = (workload.shuffled(), workload.reshuffled(1));
    let settings = databases.settings();
    databases.scratch(&settings, |store, directory| {
        let written_before = written_bytes()?;
        let each = Vec::with_capacity(2 * first.len());
        let mut puts = Puts { each, ..Puts::default() };
        let load =
            puts.half(store.as_ref(), directory, first, |numbers| workload.batch(numbers))?;
        let overwriting =
            puts.half(store.as_ref(), directory, &second, |numbers| workload.overwriting(numbers))?;
        let stalled = store.stalled();
        let started = Instant::now();
        store.settle()?;
        let settle = started.elapsed();
        let written = written_bytes()? - written_before;
        check(store.as_ref(), workload, round)?;
        store.close()?;
        let settled_bytes = disk_bytes(directory)?;

        let live_bytes = workload.bytes() as f64;
        let mut samples = vec![
            Sample::over_time("sustained-load", load),
            Sample::over_time("sustained-overwrite", overwriting),
            Sample::milliseconds("sustained-settle", settle),
            Sample::new("sustained-written", written as f64 / (2.0 * live_bytes)),
            Sample::new("sustained-space-most", puts.disk_bytes_most as f64 / live_bytes),
            Sample::new("sustained-space", settled_bytes as f64 / live_bytes),
        ];
        samples.extend(puts.samples());
        if let Some(stalled) = stalled {
            samples.push(Sample::milliseconds("sustained-stalled", stalled));
            samples.push(Sample::milliseconds("sustained-unexplained", puts.unexplained));
        }
        Ok(samples)
    })
}

/// Looks some entries up, which were all overwritten, and some that are absent.
fn check(store: &dyn Store, workload: &Workload, round: u64) -> Result<()> {
    let mut reader = store.reader()?;
    let count = workload.lookups / 10;
    for numbers in workload.drawn_numbers(round, count).chunks(CHUNK_ENTRIES) {
        let batch = workload.overwriting(numbers);
        expect(reader.lookups(batch.keys())?, batch.expected())?;
    }
    let absent = workload.draw(Draw::Absent, round, count);
    expect(reader.lookups(&absent.keys)?, absent.expected)
}

/// What puts took, of both halves.
#[derive(Default)]
struct Puts {
    /// Each put, with room for all of them from the start, so that nothing pauses later.
    each: Vec<Duration>,
    slices: Vec<f64>,
    disk_bytes_most: u64,
    /// How long writers had waited, by the engine's statistics, when it was last asked.
    stalled: Duration,
    /// The most that a put took beyond what writers waited during it.
    unexplained: Duration,
}

impl Puts {
    /// Puts the entries `numbers`, as `make` makes them: nanoseconds a put of each slice.
    fn half<'a>(
        &mut self,
        store: &dyn Store,
        directory: &Path,
        numbers: &[u32],
        make: impl Fn(&[u32]) -> Batch<'a>,
    ) -> Result<Vec<f64>> {
        let mut slices = Vec::new();
        for slice in numbers.chunks(numbers.len().div_ceil(SLICES)) {
            let mut elapsed = Duration::ZERO;
            for numbers in slice.chunks(CHUNK_ENTRIES) {
                for (key, value) in make(numbers).iter() {
                    let started = Instant::now();
                    store.put(key, value, false)?;
                    let took = started.elapsed();
                    elapsed += took;
                    self.note(store, took);
                }
            }
            slices.push(elapsed.as_nanos() as f64 / slice.len() as f64);
            self.disk_bytes_most = self.disk_bytes_most.max(disk_bytes(directory)?);
        }
        self.slices.extend(&slices);
        Ok(slices)
    }

    fn note(&mut self, store: &dyn Store, took: Duration) {
        self.each.push(took);
        let mut waited = Duration::ZERO;
        if took >= SLOW
            && let Some(stalled) = store.stalled()
        {
            waited = stalled.saturating_sub(self.stalled);
            self.stalled = stalled;
        }
        self.unexplained = self.unexplained.max(took.saturating_sub(waited));
    }

    fn samples(&mut self) -> [Sample; 4] {
        self.each.sort_unstable();
        self.slices.sort_by(f64::total_cmp);
        let percentile = self.each[(self.each.len() as f64 * 0.999).ceil() as usize - 1];
        let long = self.each.len() - self.each.partition_point(|took| *took <= LONG);
        let slowest = self.slices[self.slices.len() - 1] / self.slices[self.slices.len() / 2];
        [
            Sample::new("sustained-slowest", slowest),
            Sample::wall("sustained-p999", percentile, 1),
            Sample::new("sustained-long", long as f64),
            Sample::milliseconds("sustained-longest", self.each[self.each.len() - 1]),
        ]
    }
}
