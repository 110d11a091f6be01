//! Counters that cost one load and one store each.
//!
//! Every thread has a number from a global list, and thread number `i` owns stripe `i` of every
//! [`Counters`]. So counting needs no atomic read-modify-write and shares no cache line. A number
//! returns to the list when its thread ends, and its next owner continues in the same stripe; the
//! lock of the list orders the two. When no number is left, threads share one stripe and use
//! `fetch_add`. [`Counters::total`] adds up the stripes. The sum is exact once the counting threads
//! are joined, and always includes what the calling thread counted.

use crate::base::levels::LEVELS;
use crate::base::sync::plain::{AtomicU64, Mutex, Ordering};
use std::sync::OnceLock;

/// Stripes with one owner each; one more stripe is shared.
const OWNED_STRIPES: usize = 64;

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All counters, in order.
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
        /// Memtables that lookups skipped because of their filter.
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
        /// Writes delayed because level 0 grows.
        Level0Slowdowns,
        /// Nanoseconds of these slowdowns.
        Level0SlowdownNanos,
        /// Writes stopped because level 0 is full.
        Level0Stalls,
        /// Nanoseconds of these stalls.
        Level0StallNanos,
        /// Writes stopped because earlier memtables are not flushed yet.
        MemtableStalls,
        /// Nanoseconds of these stalls.
        MemtableStallNanos,
        /// Logs started after a full one, while writers waited.
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
        /// The filter said maybe; versions newer than the read hide whether it was right.
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
        /// Bytes of these blocks in the file.
        DataBytesRead,
        /// Filters, partitions and their top-level indexes found in the cache.
        FilterBlocksCached,
        /// Filters, partitions and their top-level indexes read from the file.
        FilterBlocksRead,
        /// Bytes of these blocks in the file.
        FilterBytesRead,
        /// Data indexes read from the file.
        IndexBlocksRead,
        /// Bytes of these blocks in the file.
        IndexBytesRead,
        /// A filter without whole keys was asked for the prefix of a key and said no.
        PrefixNegatives,
        /// A filter without whole keys was asked for the prefix of a key and said maybe.
        PrefixPositives,
        /// The filter was asked for the prefix of a scan and said no: the scan skipped the table.
        ScanNegatives,
        /// The filter was asked for the prefix of a scan and said maybe.
        ScanPositives,
        /// Tables that scans read, whether or not their filter was asked.
        ScanTables,
        /// Bytes of data blocks that scan negatives avoided: one mean block each, an estimate.
        ScanBytesAvoided,
        /// Data blocks that scans found in the cache.
        ScanDataBlocksCached,
        /// Data blocks that scans read from the file.
        ScanDataBlocksRead,
        /// Bytes of these blocks in the file.
        ScanDataBytesRead,
        /// Filter blocks that scans found in the cache.
        ScanFilterBlocksCached,
        /// Filter blocks that scans read from the file.
        ScanFilterBlocksRead,
        /// Bytes of these blocks in the file.
        ScanFilterBytesRead,
        /// Data indexes that scans read from the file.
        ScanIndexBlocksRead,
        /// Bytes of these blocks in the file.
        ScanIndexBytesRead,
    }
}

const GLOBALS: usize = Counter::ALL.len();
const PER_LEVEL: usize = LevelCounter::ALL.len();

/// The number of all counters.
pub(crate) const COUNTERS: usize = GLOBALS + LEVELS * PER_LEVEL;

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

/// The stripe of the calling thread. Get it once and count many times.
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

    /// The stripe of the calling thread. It must not be sent to another thread. Its type does not
    /// prevent that, because a stripe never leaves the function that counts.
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

    /// Adds the totals of an earlier session. A list of another length is from another version and
    /// is ignored.
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
            // One thread owns this stripe, so no other store comes between load and store.
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
        second.restore(&first.totals());
        second.restore(&[1, 2, 3]);
        assert_eq!(second.total(Counter::Flushes), 3);
        assert_eq!(second.level_total(2, LevelCounter::FalsePositives), 5);
    }
}
