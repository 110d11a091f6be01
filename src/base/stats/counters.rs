//! Counters that cost a plain load and store each.
//!
//! Every thread owns a slot, a small number from a global list; slot `i` owns stripe `i` of every
//! [`Counters`], so counting needs no atomic read-modify-write and shares no cache line. A slot
//! goes back when its thread ends, and the next owner counts on in the same stripe: the list's
//! lock orders the two. Threads beyond the last slot share one stripe and use `fetch_add`.
//! [`Counters::total`] sums the stripes: exact once the counting threads are joined, and never
//! behind what the asking thread itself did.

use crate::base::levels::LEVELS;
use crate::base::sync::plain::{AtomicU64, Mutex, Ordering};
use std::sync::OnceLock;

/// Stripes with one owner; one more is shared.
const OWNED_STRIPES: usize = 64;

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
        }
    };
}

counters! {
    /// Counted once for the database.
    Counter {
        /// Point lookups.
        Gets,
        /// Point lookups that found a value.
        GetsFound,
        /// Point lookups answered by a memtable, with a value or a tombstone.
        MemtableHits,
        /// Memtables that their filter let a lookup skip.
        MemtableNegatives,
        /// Iterators that were asked for an entry.
        Scans,
        /// Batches acknowledged.
        Batches,
        /// Entries of those batches.
        Entries,
        /// Bytes of user keys and values in them.
        EntryBytes,
        /// Write groups, each one append to the log.
        WriteGroups,
        /// Bytes appended to write-ahead logs.
        WalBytes,
        /// Syncs of write-ahead logs.
        WalSyncs,
        /// Memtables written as tables.
        Flushes,
        /// Bytes of those tables.
        FlushBytes,
        /// Compactions that rewrote tables.
        Compactions,
        /// Bytes they read.
        CompactionBytesRead,
        /// Bytes they wrote.
        CompactionBytesWritten,
        /// Entries they dropped: old versions, and tombstones with nothing below.
        CompactionEntriesDropped,
        /// Tables moved to the next level without rewriting.
        TrivialMoves,
        /// Writes slowed down because level 0 grows.
        Level0Slowdowns,
        /// Nanoseconds of these slowdowns.
        Level0SlowdownNanos,
        /// Writes stopped because level 0 is full.
        Level0Stalls,
        /// Nanoseconds of these stalls.
        Level0StallNanos,
        /// Writes stopped because the memtables before are not flushed yet.
        MemtableStalls,
        /// Nanoseconds of these stalls.
        MemtableStallNanos,
        /// Logs begun in place of a full one, while writers waited.
        LogSwitches,
        /// Nanoseconds of these waits.
        LogSwitchNanos,
        /// Filters that could not be read or decoded; each answered "may contain".
        FilterErrors,
    }
}

counters! {
    /// Counted by level: point lookups, then scans, which have counters of their own. What
    /// compactions read is in [`Counter`].
    LevelCounter {
        /// The filter said no.
        Negatives,
        /// The filter said maybe, and the table had the key.
        TruePositives,
        /// The filter said maybe, and the table did not have the key.
        FalsePositives,
        /// The filter said maybe, and newer versions than the read's hide whether it was right.
        Unresolved,
        /// The table was searched without asking a filter.
        NotConsulted,
        /// Bytes of data blocks that negatives avoided: an estimate by the table's mean block.
        BytesAvoided,
        /// Data indexes searched.
        IndexSeeks,
        /// Data blocks found in the cache.
        DataBlocksCached,
        /// Data blocks read from the file.
        DataBlocksRead,
        /// Bytes of those blocks as they stand in the file.
        DataBytesRead,
        /// Filters, partitions and their top-level indexes found in the cache.
        FilterBlocksCached,
        /// Filters, partitions and their top-level indexes read from the file.
        FilterBlocksRead,
        /// Bytes of those as they stand in the file.
        FilterBytesRead,
        /// Data indexes read from the file.
        IndexBlocksRead,
        /// Bytes of those as they stand in the file.
        IndexBytesRead,
        /// Asked for the prefix of a key, since it holds no whole keys, the filter said no.
        PrefixNegatives,
        /// Asked for the prefix of a key, the filter said maybe.
        PrefixPositives,
        /// Asked for the prefix of a scan's range, the filter said no: the table was passed by.
        ScanNegatives,
        /// Asked for the prefix of a scan's range, the filter said maybe.
        ScanPositives,
        /// Tables that scans entered, whether or not their filter was asked.
        ScanTables,
        /// Bytes of data blocks that scan negatives avoided: one mean block each, an estimate.
        ScanBytesAvoided,
        /// Data blocks that scans found in the cache.
        ScanDataBlocksCached,
        /// Data blocks that scans read from the file.
        ScanDataBlocksRead,
        /// Bytes of those blocks as they stand in the file.
        ScanDataBytesRead,
        /// Filter blocks that scans found in the cache.
        ScanFilterBlocksCached,
        /// Filter blocks that scans read from the file.
        ScanFilterBlocksRead,
        /// Bytes of those as they stand in the file.
        ScanFilterBytesRead,
        /// Data indexes that scans read from the file.
        ScanIndexBlocksRead,
        /// Bytes of those as they stand in the file.
        ScanIndexBytesRead,
    }
}

const GLOBALS: usize = Counter::ALL.len();
const PER_LEVEL: usize = LevelCounter::ALL.len();

/// Number of counters in all.
pub const COUNTERS: usize = GLOBALS + LEVELS * PER_LEVEL;

#[repr(align(128))]
#[derive(Debug)]
struct Cells([AtomicU64; COUNTERS]);

impl Cells {
    fn new() -> Box<Self> {
        Box::new(Cells([const { AtomicU64::new(0) }; COUNTERS]))
    }
}

/// The counters of one database.
#[derive(Debug)]
pub struct Counters {
    owned: Box<[OnceLock<Box<Cells>>; OWNED_STRIPES]>,
    shared: Box<Cells>,
}

/// The stripe of the calling thread: fetch it once, count many times.
#[derive(Clone, Copy, Debug)]
pub struct Stripe<'a> {
    cells: &'a Cells,
    shared: bool,
}

impl Default for Counters {
    fn default() -> Self {
        Counters::new()
    }
}

impl Counters {
    /// All zero.
    #[must_use]
    pub fn new() -> Self {
        let owned = Box::new([const { OnceLock::new() }; OWNED_STRIPES]);
        Counters { owned, shared: Cells::new() }
    }

    /// The calling thread's stripe. It must not be sent to another thread; it is not `Send`-proof
    /// by type, since it never leaves the function that counts.
    #[inline]
    #[must_use]
    pub fn stripe(&self) -> Stripe<'_> {
        match self.owned.get(slot()) {
            Some(cells) => Stripe { cells: cells.get_or_init(Cells::new), shared: false },
            None => Stripe { cells: &self.shared, shared: true },
        }
    }

    /// Adds to one counter of the database.
    #[inline]
    pub fn add(&self, counter: Counter, amount: u64) {
        self.stripe().add(counter, amount);
    }

    /// The sum of one counter over all threads.
    #[must_use]
    pub fn total(&self, counter: Counter) -> u64 {
        self.sum(counter as usize)
    }

    /// The sum of one counter of `level` over all threads.
    #[must_use]
    pub fn level_total(&self, level: usize, counter: LevelCounter) -> u64 {
        self.sum(level_index(level, counter))
    }

    /// All sums: the database's counters, then each level's.
    #[must_use]
    pub fn totals(&self) -> Vec<u64> {
        (0..COUNTERS).map(|index| self.sum(index)).collect()
    }

    /// Adds what [`Counters::totals`] gave in an earlier session; a list of another length is
    /// from another version and is ignored.
    pub fn restore(&self, totals: &[u64]) {
        if totals.len() == COUNTERS {
            for (cell, &value) in self.shared.0.iter().zip(totals) {
                cell.fetch_add(value, Ordering::Relaxed);
            }
        }
    }

    fn sum(&self, index: usize) -> u64 {
        let owned = self.owned.iter().filter_map(OnceLock::get);
        owned
            .map(|cells| cells.0[index].load(Ordering::Relaxed))
            .fold(self.shared.0[index].load(Ordering::Relaxed), u64::wrapping_add)
    }
}

impl Stripe<'_> {
    /// Adds to one counter of the database.
    #[inline]
    pub fn add(&self, counter: Counter, amount: u64) {
        self.bump(counter as usize, amount);
    }

    /// Adds to one counter of `level`.
    #[inline]
    pub fn add_level(&self, level: usize, counter: LevelCounter, amount: u64) {
        self.bump(level_index(level, counter), amount);
    }

    #[inline]
    fn bump(&self, index: usize, amount: u64) {
        let cell = &self.cells.0[index];
        if self.shared {
            cell.fetch_add(amount, Ordering::Relaxed);
        } else {
            // One thread owns this stripe, so nothing comes between load and store.
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }
}

#[inline]
fn level_index(level: usize, counter: LevelCounter) -> usize {
    GLOBALS + level.min(LEVELS - 1) * PER_LEVEL + counter as usize
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

/// The calling thread's slot; the shared stripe's while thread-locals are being torn down.
#[inline]
fn slot() -> usize {
    thread_local!(static SLOT: Slot = Slot::take());
    SLOT.try_with(|slot| slot.0).unwrap_or(OWNED_STRIPES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Who has a stripe adds to it as if nobody else did; the others know that theirs is shared.
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
                        // With its stripe, until all have one or none is left.
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
        second.restore(&first.totals());
        second.restore(&[1, 2, 3]);
        assert_eq!(second.total(Counter::Flushes), 3);
        assert_eq!(second.level_total(2, LevelCounter::FalsePositives), 5);
    }
}
