//! Counters that cost one load and one store each.
//!
//! Every thread has a number from a global list, and thread number `i` owns stripe `i` of every
//! [`Counters`]. So counting needs no atomic read-modify-write and shares no cache line. A number
//! returns to the list when its thread ends, and its next owner continues in the same stripe; the
//! lock of the list orders the two. When no number is left, threads share one stripe and use
//! `fetch_add`. [`Counters::total`] adds up the stripes. The sum is exact once the counting threads
//! are joined, and always includes what the calling thread counted.

use crate::base::levels::LEVELS;
use crate::base::stats::latency::{CELLS_OF_CALL, LATENCY_CELLS, Latencies, TimedCall, bucket_of};
pub(crate) use crate::base::stats::report::{Counter, LevelCounter};
use crate::base::sync::plain::{AtomicU64, Mutex, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

/// Stripes with one owner each; one more stripe is shared.
const OWNED_STRIPES: usize = 64;

/// The number of all counters.
pub(crate) const COUNTERS: usize = Counter::COUNT + LEVELS * LevelCounter::COUNT;

#[repr(C, align(128))]
#[derive(Debug)]
struct Cells {
    /// Not counters: numbers that the thread's lookups and scans keep, on a line that they write
    /// anyway.
    kept: [AtomicU64; 3],
    counts: [AtomicU64; COUNTERS],
    /// Histograms, once the thread times a call. At the end, so that the counters stay where they
    /// are.
    latencies: OnceLock<Box<[AtomicU64; LATENCY_CELLS]>>,
}

impl Cells {
    fn new() -> Box<Self> {
        let counts = [const { AtomicU64::new(0) }; COUNTERS];
        let kept = [const { AtomicU64::new(0) }; 3];
        Box::new(Cells { kept, counts, latencies: OnceLock::new() })
    }

    fn latencies(&self) -> &[AtomicU64; LATENCY_CELLS] {
        self.latencies.get_or_init(|| Box::new([const { AtomicU64::new(0) }; LATENCY_CELLS]))
    }
}

/// The counters of one database.
#[derive(Debug)]
pub(crate) struct Counters {
    owned: Box<[OnceLock<Box<Cells>>; OWNED_STRIPES]>,
    shared: Box<Cells>,
}

/// The stripe of the calling thread. Get it once and count many times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripe<'a> {
    cells: &'a Cells,
    shared: bool,
}

/// Times one call, or does nothing.
#[must_use = "a timer counts when it is stopped"]
pub(crate) struct Timer(Option<Instant>);

impl Timer {
    /// Reads the clock if calls are timed.
    #[inline]
    pub(crate) fn start(is_on: bool) -> Self {
        Timer(is_on.then(Instant::now))
    }

    /// Counts the call, if it was timed.
    #[inline]
    pub(crate) fn stop(self, counters: &Counters, call: TimedCall) {
        if let Some(started) = self.0 {
            let nanos = started.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
            counters.stripe().time(call, nanos);
        }
    }
}

impl Counters {
    /// All zero.
    pub(crate) fn new() -> Self {
        let owned = Box::new([const { OnceLock::new() }; OWNED_STRIPES]);
        Counters { owned, shared: Cells::new() }
    }

    /// The stripe of the calling thread. It must not be sent to another thread. Its type does not
    /// prevent that, because a stripe never leaves the function that counts.
    #[inline]
    pub(crate) fn stripe(&self) -> Stripe<'_> {
        match self.owned.get(slot()) {
            Some(cells) => Stripe { cells: cells.get_or_init(Cells::new), shared: false },
            None => Stripe { cells: &self.shared, shared: true },
        }
    }

    /// Adds to one counter of the database.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        self.stripe().add(counter, amount);
    }

    /// The sum of one counter over all threads.
    pub(crate) fn total(&self, counter: Counter) -> u64 {
        self.sum(counter as usize)
    }

    /// The sum of one counter of `level` over all threads.
    pub(crate) fn level_total(&self, level: usize, counter: LevelCounter) -> u64 {
        self.sum(level_index(level, counter))
    }

    /// All sums: the database's counters, then each level's.
    pub(crate) fn totals(&self) -> Vec<u64> {
        let mut sums = vec![0; COUNTERS];
        self.all_cells().for_each(|cells| add_cells(&mut sums, &cells.counts));
        sums
    }

    /// The histograms of timed calls, summed up over all threads.
    pub(crate) fn latencies(&self) -> Latencies {
        Latencies::of(&self.latency_totals())
    }

    /// Empty if no call was timed.
    fn latency_totals(&self) -> Vec<u64> {
        let mut sums = Vec::new();
        for cells in self.all_cells().filter_map(|cells| cells.latencies.get()) {
            sums.resize(LATENCY_CELLS, 0);
            add_cells(&mut sums, &cells[..]);
        }
        sums
    }

    /// What the next session is to restore: all sums, and the histograms if there are any.
    pub(crate) fn saved(&self) -> Vec<u64> {
        let mut saved = self.totals();
        saved.extend(self.latency_totals());
        saved
    }

    /// Adds what an earlier session [saved](Counters::saved). A list of another length is from
    /// another version and is ignored.
    pub(crate) fn restore(&self, saved: &[u64]) {
        if saved.len() != COUNTERS && saved.len() != COUNTERS + LATENCY_CELLS {
            return;
        }
        let (totals, latencies) = saved.split_at(COUNTERS);
        let add = |(cell, value): (&AtomicU64, &u64)| {
            cell.fetch_add(*value, Ordering::Relaxed);
        };
        self.shared.counts.iter().zip(totals).for_each(add);
        if !latencies.is_empty() {
            self.shared.latencies().iter().zip(latencies).for_each(add);
        }
    }

    /// The cells of all threads.
    fn all_cells(&self) -> impl Iterator<Item = &Cells> {
        let owned = self.owned.iter().filter_map(OnceLock::get).map(Box::as_ref);
        owned.chain([&*self.shared])
    }

    fn sum(&self, index: usize) -> u64 {
        let cells = self.all_cells().map(|cells| cells.counts[index].load(Ordering::Relaxed));
        cells.fold(0, u64::wrapping_add)
    }
}

impl<'a> Stripe<'a> {
    /// A number that the lookups of this thread keep, initially 0; none for threads that share a
    /// stripe. A thread that takes over the stripe of an ended thread takes over its numbers.
    #[inline]
    pub(crate) fn kept_by_lookups(&self) -> Option<&'a AtomicU64> {
        let [lookups, ..] = &self.cells.kept;
        (!self.shared).then_some(lookups)
    }

    /// The same, which its scans keep.
    #[inline]
    pub(crate) fn kept_by_scans(&self) -> Option<&'a AtomicU64> {
        let [_, scans, _] = &self.cells.kept;
        (!self.shared).then_some(scans)
    }

    /// The same, in which its scans remember their lengths.
    #[inline]
    pub(crate) fn kept_lengths(&self) -> Option<&'a AtomicU64> {
        let [.., lengths] = &self.cells.kept;
        (!self.shared).then_some(lengths)
    }

    /// Adds to one counter of the database.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        self.bump(counter as usize, amount);
    }

    /// Adds to one counter of `level`.
    #[inline]
    pub(crate) fn add_level(&self, level: usize, counter: LevelCounter, amount: u64) {
        self.bump(level_index(level, counter), amount);
    }

    /// Counts tables that were written to `level`.
    pub(crate) fn add_written(&self, level: usize, bytes: u64, filter_bytes: u64) {
        self.add_level(level, LevelCounter::BytesWritten, bytes);
        self.add_level(level, LevelCounter::FilterBytesWritten, filter_bytes);
    }

    /// Counts a call that took that many nanoseconds.
    pub(crate) fn time(&self, call: TimedCall, nanos: u64) {
        let first = call as usize * CELLS_OF_CALL;
        let cells = &self.cells.latencies()[first..first + CELLS_OF_CALL];
        self.raise(&cells[0], nanos);
        self.raise(&cells[1 + bucket_of(nanos)], 1);
    }

    #[inline]
    fn bump(&self, index: usize, amount: u64) {
        self.raise(&self.cells.counts[index], amount);
    }

    #[inline]
    fn raise(&self, cell: &AtomicU64, amount: u64) {
        if self.shared {
            cell.fetch_add(amount, Ordering::Relaxed);
        } else {
            // One thread owns this stripe, so no other store comes between load and store.
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }
}

fn add_cells(sums: &mut [u64], cells: &[AtomicU64]) {
    let counts = cells.iter().map(|cell| cell.load(Ordering::Relaxed));
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.wrapping_add(count));
}

#[inline]
fn level_index(level: usize, counter: LevelCounter) -> usize {
    Counter::COUNT + level.min(LEVELS - 1) * LevelCounter::COUNT + counter as usize
}

static FREE_SLOTS: Mutex<SlotList> = Mutex::new(SlotList { returned: Vec::new(), next: 0 });

struct SlotList {
    returned: Vec<usize>,
    next: usize,
}

struct Slot(usize);

impl Slot {
    fn take() -> Self {
        let mut list = FREE_SLOTS.lock();
        if let Some(slot) = list.returned.pop() {
            return Slot(slot);
        }
        if list.next == OWNED_STRIPES {
            return Slot(OWNED_STRIPES);
        }
        list.next += 1;
        Slot(list.next - 1)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.0 < OWNED_STRIPES {
            FREE_SLOTS.lock().returned.push(self.0);
        }
    }
}

/// The number of the calling thread; that of the shared stripe while thread-locals are destroyed.
#[inline]
fn slot() -> usize {
    thread_local!(static SLOT: Slot = Slot::take());
    SLOT.try_with(|slot| slot.0).unwrap_or(OWNED_STRIPES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// A thread with a stripe of its own adds without a read-modify-write; other threads know that
    /// they share theirs.
    #[test]
    fn concurrent_threads_have_their_own_stripes() {
        let (counters, threads) = (Counters::new(), OWNED_STRIPES + 8);
        let (slots, all) = (Mutex::new(Vec::new()), Barrier::new(threads));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    slots.lock().push((slot(), counters.stripe().shared));
                    all.wait();
                });
            }
        });
        let mut owned = slots.into_inner();
        assert!(owned.iter().all(|(slot, shared)| *shared == (*slot == OWNED_STRIPES)));
        owned.retain(|(_, shared)| !shared);
        owned.sort_unstable();
        assert!(owned.windows(2).all(|pair| pair[0] < pair[1]), "{owned:?}");
    }

    #[test]
    fn counts_are_exact_under_more_threads_than_stripes() {
        let counters = Counters::new();
        for _ in 0..3 {
            let all = Barrier::new(OWNED_STRIPES + 8);
            std::thread::scope(|scope| {
                for _ in 0..OWNED_STRIPES + 8 {
                    scope.spawn(|| {
                        // Each thread keeps its stripe until all have one or none is left.
                        counters.add(Counter::Gets, 1);
                        all.wait();
                        for _ in 0..500 {
                            counters.add(Counter::Gets, 1);
                            counters.stripe().add_level(6, LevelCounter::Negatives, 2);
                        }
                    });
                }
            });
        }
        let threads = 3 * (OWNED_STRIPES as u64 + 8);
        assert_eq!(counters.total(Counter::Gets), threads * 501);
        assert_eq!(counters.level_total(6, LevelCounter::Negatives), threads * 1000);
        assert_eq!(counters.level_total(5, LevelCounter::Negatives), 0);
    }

    #[test]
    fn totals_round_trip() {
        let first = Counters::new();
        first.add(Counter::Flushes, 3);
        first.stripe().add_level(2, LevelCounter::FalsePositives, 5);
        let second = Counters::new();
        first.stripe().time(TimedCall::Sync, 1_000);
        second.restore(&first.saved());
        second.restore(&[1, 2, 3]);
        assert_eq!(second.total(Counter::Flushes), 3);
        assert_eq!(second.level_total(2, LevelCounter::FalsePositives), 5);
        assert_eq!((second.latencies(), second.latencies().count("sync")), (first.latencies(), 1));
        // A session that times nothing keeps them.
        let third = Counters::new();
        third.restore(&second.saved());
        assert_eq!(third.saved(), first.saved());
        assert_eq!(Counters::new().saved().len(), COUNTERS);
    }

    #[test]
    fn timed_calls_of_all_threads_add_up() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..OWNED_STRIPES + 8 {
                scope.spawn(|| {
                    (0..100).for_each(|n| counters.stripe().time(TimedCall::Get, 100 * n));
                });
            }
        });
        let latencies = counters.latencies();
        let threads = OWNED_STRIPES as u64 + 8;
        assert_eq!(latencies.count("get"), 100 * threads);
        assert_eq!(latencies.of_call("get").map(|(sum, _)| sum), Some(4950 * 100 * threads));
        assert_eq!(latencies.count("write"), 0);
    }
}
