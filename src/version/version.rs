//! A `Version`: the tables of the tree at one moment, immutable, and the point lookup in them.
//!
//! A version holds its tables open, so a lookup goes from here straight to a filter: for each
//! table a [`Slot`] keeps what a probe needs (fences, resident filter) side by side, in the order
//! of the search. Nothing else of a table is touched before its filter says "maybe".
//!
//! Invariants: level 0 is sorted newest first, its tables may overlap; every other level is sorted
//! by key and no user key lies in two of its tables (I4). A version never changes. A table's file
//! goes when the last version that names it is dropped (I9): [`TableHandle`]'s drop only puts the
//! number into the [`Graveyard`]; the background removes the file.
//!
//! The table says what happened; this module knows the level and counts it.

use crate::error::Result;
use crate::filter::hash::KeyHash;
use crate::filter::registry::PreparedFilter;
use crate::key::{Lookup, LookupKey, compare_internal, sort_prefix, user_key};
use crate::stats::counters::{Counter, Counters, LEVELS, LevelCounter, Stripe};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use crate::table::fetch::TableIo;
use crate::table::filter_block::layout::FilterVerdict;
use crate::table::reader::{Table, TableReadOptions};
use crate::version::edit::FileMeta;

/// The tables of each level by what the manifest says of them: what a picker needs.
pub type LevelShape = [Vec<Arc<FileMeta>>; LEVELS];

/// Numbers of files that no version names any more, waiting to be removed.
#[derive(Debug, Default)]
pub struct Graveyard(Mutex<Vec<u64>>);

impl Graveyard {
    /// Takes the numbers that came in since the last call.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// An open table, as versions share it.
#[derive(Debug)]
pub struct TableHandle {
    /// What the manifest says of it.
    pub meta: Arc<FileMeta>,
    /// The open table.
    pub table: Arc<Table>,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl TableHandle {
    /// A table that the next version names.
    #[must_use]
    pub fn new(meta: Arc<FileMeta>, table: Arc<Table>, graveyard: &Arc<Graveyard>) -> Arc<Self> {
        let graveyard = Arc::clone(graveyard);
        Arc::new(TableHandle { meta, table, obsolete: AtomicBool::new(false), graveyard })
    }

    /// The durable manifest no longer names this table: its file goes with its last version.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.graveyard.0.lock().push(self.meta.number);
        }
    }
}

/// What a probe of one table needs.
#[derive(Debug)]
pub struct Slot {
    /// The filter of the whole table, if it is resident.
    pub filter: Option<Arc<PreparedFilter>>,
    /// What the table's filter says of a key, it says of the key's prefix.
    by_prefix: bool,
    mean_block_bytes: u64,
    /// The table.
    pub handle: Arc<TableHandle>,
}

impl Slot {
    fn new(handle: &Arc<TableHandle>) -> Self {
        Slot {
            filter: handle.table.resident_filter().cloned(),
            by_prefix: !handle.table.filter().holds_whole_keys(),
            mean_block_bytes: handle.table.mean_block_bytes(),
            handle: Arc::clone(handle),
        }
    }
}

/// First and last user key of a table. The first eight bytes stand in the fence itself, so that
/// most comparisons touch nothing else.
#[derive(Debug)]
pub struct Fence {
    smallest_prefix: u64,
    largest_prefix: u64,
    smallest: Box<[u8]>,
    largest: Box<[u8]>,
}

impl Fence {
    fn new(meta: &FileMeta) -> Self {
        let (smallest, largest) = (user_key(&meta.smallest), user_key(&meta.largest));
        Fence {
            smallest_prefix: sort_prefix(smallest),
            largest_prefix: sort_prefix(largest),
            smallest: smallest.into(),
            largest: largest.into(),
        }
    }

    /// All keys of the table are above this one, whose first bytes are `prefix`.
    #[inline]
    pub fn starts_after(&self, prefix: u64, key: &[u8]) -> bool {
        self.smallest_prefix > prefix || (self.smallest_prefix == prefix && &*self.smallest > key)
    }

    /// All keys of the table are below this one, whose first bytes are `prefix`.
    #[inline]
    pub fn ends_before(&self, prefix: u64, key: &[u8]) -> bool {
        self.largest_prefix < prefix || (self.largest_prefix == prefix && &*self.largest < key)
    }
}

/// One level: fences and slots side by side, in the order of the search.
#[derive(Debug, Default)]
pub struct Level {
    /// Of each table.
    pub fences: Vec<Fence>,
    /// Of each table.
    pub slots: Vec<Slot>,
    handles: Vec<Arc<TableHandle>>,
}

/// What one lookup did in one table, for `explain`.
#[derive(Clone, Debug)]
pub struct TableStep {
    /// Level of the table.
    pub level: usize,
    /// Number of its file.
    pub number: u64,
    /// What its filter said.
    pub verdict: FilterVerdict,
    /// Blocks touched.
    pub io: TableIo,
    /// What the search found; `Absent` after a "no", without searching.
    pub lookup: Lookup,
}

/// How a lookup is done.
#[derive(Clone, Copy, Debug)]
pub struct VersionRead {
    /// Ask filters.
    pub use_filters: bool,
    /// Keep loaded blocks in the cache.
    pub fill_cache: bool,
}

/// The tables of the tree at one moment.
#[derive(Debug)]
pub struct Version {
    /// Level 0 first.
    pub levels: [Level; LEVELS],
    holds_prefixes: bool,
}

impl Version {
    /// A version of these tables; puts each level into its order.
    #[must_use]
    pub fn new(tables: [Vec<Arc<TableHandle>>; LEVELS]) -> Self {
        let mut number = 0;
        let levels = tables.map(|mut handles| {
            if number == 0 {
                // A later flush has the larger file number: newest first.
                handles.sort_by_key(|handle| std::cmp::Reverse(handle.meta.number));
            } else {
                handles.sort_by(|a, b| compare_internal(&a.meta.smallest, &b.meta.smallest));
            }
            number += 1;
            Level {
                fences: handles.iter().map(|handle| Fence::new(&handle.meta)).collect(),
                slots: handles.iter().map(Slot::new).collect(),
                handles,
            }
        });
        let mut handles = levels.iter().flat_map(|level| &level.handles);
        let holds_prefixes = handles.any(|handle| handle.table.filter().holds_prefixes());
        Version { levels, holds_prefixes }
    }

    /// True if a filter of these tables can be asked for prefixes.
    #[must_use]
    pub fn holds_prefixes(&self) -> bool {
        self.holds_prefixes
    }

    /// The tables of `level`: level 0 newest first, others by key.
    #[must_use]
    pub fn level(&self, level: usize) -> &[Arc<TableHandle>] {
        self.levels.get(level).map_or(&[], |level| &level.handles)
    }

    /// The tables by what the manifest says of them.
    #[must_use]
    pub fn shape(&self) -> LevelShape {
        std::array::from_fn(|level| {
            self.level(level).iter().map(|handle| Arc::clone(&handle.meta)).collect()
        })
    }

    /// The newest version of a key at or below the lookup's sequence: level 0 newest first, then
    /// at most one table a level.
    ///
    /// # Errors
    /// Any error on the way of the key: it must not uncover an older version below.
    pub fn get(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        read: VersionRead,
        counters: &Counters,
        mut trace: Option<&mut Vec<TableStep>>,
    ) -> Result<Lookup> {
        let user_key = key.user_key();
        let prefix = sort_prefix(user_key);
        let stripe = counters.stripe();
        let newest_first = &self.levels[0];
        for (fence, slot) in newest_first.fences.iter().zip(&newest_first.slots) {
            if fence.starts_after(prefix, user_key) || fence.ends_before(prefix, user_key) {
                continue;
            }
            match search(0, slot, key, hash, read, &stripe, trace.as_deref_mut())? {
                Lookup::Absent => {}
                ended => return Ok(ended),
            }
        }
        for (number, level) in self.levels.iter().enumerate().skip(1) {
            // Most levels are, and a search in nothing has its price, too.
            if level.fences.is_empty() {
                continue;
            }
            let place = level.fences.partition_point(|fence| fence.ends_before(prefix, user_key));
            let (Some(fence), Some(slot)) = (level.fences.get(place), level.slots.get(place))
            else {
                continue;
            };
            if fence.starts_after(prefix, user_key) {
                continue;
            }
            match search(number, slot, key, hash, read, &stripe, trace.as_deref_mut())? {
                Lookup::Absent => {}
                ended => return Ok(ended),
            }
        }
        Ok(Lookup::Absent)
    }

    /// True unless the resident filters and fences prove that no table has `user_key`; reads
    /// nothing. Tables without a resident filter count as "may contain".
    #[must_use]
    pub fn may_contain(&self, user_key: &[u8], hash: &KeyHash<'_>) -> bool {
        let prefix = sort_prefix(user_key);
        self.levels.iter().any(|level| {
            level.fences.iter().zip(&level.slots).any(|(fence, slot)| {
                !fence.starts_after(prefix, user_key)
                    && !fence.ends_before(prefix, user_key)
                    && slot.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
            })
        })
    }
}

/// Asks one table: its filter first, if it is resident, then the table itself; counts both.
#[inline]
fn search(
    level: usize,
    slot: &Slot,
    key: &LookupKey,
    hash: &KeyHash<'_>,
    read: VersionRead,
    stripe: &Stripe<'_>,
    trace: Option<&mut Vec<TableStep>>,
) -> Result<Lookup> {
    let resident = slot.filter.as_ref().filter(|_| read.use_filters);
    if resident.is_some_and(|filter| !filter.may_contain(hash)) {
        let (verdict, lookup) = (FilterVerdict::No, Lookup::Absent);
        count_verdict(level, slot, key, verdict, &lookup, stripe);
        if let Some(trace) = trace {
            let (number, io) = (slot.handle.meta.number, TableIo::default());
            trace.push(TableStep { level, number, verdict, io, lookup });
        }
        return Ok(Lookup::Absent);
    }
    let options = TableReadOptions {
        use_filters: read.use_filters,
        fill_cache: read.fill_cache,
        filter_said_maybe: resident.is_some(),
    };
    search_table(level, slot, key, hash, options, stripe, trace)
}

/// Asks the table itself. Apart from `search`, so that a "no", which most tables answer, is short.
#[inline(never)]
fn search_table(
    level: usize,
    slot: &Slot,
    key: &LookupKey,
    hash: &KeyHash<'_>,
    options: TableReadOptions,
    stripe: &Stripe<'_>,
    trace: Option<&mut Vec<TableStep>>,
) -> Result<Lookup> {
    let mut io = TableIo::default();
    let result = slot.handle.table.get(key, hash, options, &mut io);
    count_io(level, &io, stripe);
    let (lookup, verdict) = result?;
    count_verdict(level, slot, key, verdict, &lookup, stripe);
    if let Some(trace) = trace {
        let number = slot.handle.meta.number;
        trace.push(TableStep { level, number, verdict, io, lookup: lookup.clone() });
    }
    Ok(lookup)
}

/// Counts what a table's filter said of a key, in the light of what the search found. In line for
/// single lookups, whatever else calls it.
#[inline(always)]
pub fn count_verdict(
    level: usize,
    slot: &Slot,
    key: &LookupKey,
    verdict: FilterVerdict,
    lookup: &Lookup,
    stripe: &Stripe<'_>,
) {
    let counter = match (verdict, lookup) {
        (FilterVerdict::No, _) => {
            stripe.add_level(level, LevelCounter::BytesAvoided, slot.mean_block_bytes);
            if slot.by_prefix { LevelCounter::PrefixNegatives } else { LevelCounter::Negatives }
        }
        (FilterVerdict::NotConsulted, _) => LevelCounter::NotConsulted,
        // Right or wrong of the prefix is more than the search for one key can tell.
        (FilterVerdict::Maybe, _) if slot.by_prefix => LevelCounter::PrefixPositives,
        (FilterVerdict::Maybe, Lookup::Found(_) | Lookup::Deleted) => LevelCounter::TruePositives,
        // A newer version than the read's may be what the filter saw.
        (FilterVerdict::Maybe, Lookup::Absent)
            if slot.handle.meta.largest_sequence > key.sequence() =>
        {
            LevelCounter::Unresolved
        }
        (FilterVerdict::Maybe, Lookup::Absent) => LevelCounter::FalsePositives,
    };
    stripe.add_level(level, counter, 1);
}

/// Counts the blocks that were touched in a table. In line, as above.
#[inline(always)]
pub fn count_io(level: usize, io: &TableIo, stripe: &Stripe<'_>) {
    let touched = [
        (LevelCounter::IndexSeeks, io.index_seeks),
        (LevelCounter::DataBlocksCached, io.data_cached),
        (LevelCounter::FilterBlocksCached, io.filter_cached),
    ];
    for (counter, amount) in touched {
        if amount > 0 {
            stripe.add_level(level, counter, u64::from(amount));
        }
    }
    if io.data_read | io.filter_read | io.index_read | io.filter_errors > 0 {
        count_reads(level, io, stripe);
    }
}

#[cold]
fn count_reads(level: usize, io: &TableIo, stripe: &Stripe<'_>) {
    let read = [
        (LevelCounter::DataBlocksRead, u64::from(io.data_read)),
        (LevelCounter::DataBytesRead, io.data_bytes),
        (LevelCounter::FilterBlocksRead, u64::from(io.filter_read)),
        (LevelCounter::FilterBytesRead, io.filter_bytes),
        (LevelCounter::IndexBlocksRead, u64::from(io.index_read)),
        (LevelCounter::IndexBytesRead, io.index_bytes),
    ];
    for (counter, amount) in read {
        stripe.add_level(level, counter, amount);
    }
    stripe.add(Counter::FilterErrors, u64::from(io.filter_errors));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_settle_equal_prefixes_by_the_whole_key() {
        let fence = Fence {
            smallest_prefix: sort_prefix(b"abcdefghb"),
            largest_prefix: sort_prefix(b"abcdefghy"),
            smallest: b"abcdefghb".as_slice().into(),
            largest: b"abcdefghy".as_slice().into(),
        };
        let starts_after = |key: &[u8]| fence.starts_after(sort_prefix(key), key);
        let ends_before = |key: &[u8]| fence.ends_before(sort_prefix(key), key);
        assert!(starts_after(b"abcdefgha") && !starts_after(b"abcdefghb"));
        assert!(ends_before(b"abcdefghz") && !ends_before(b"abcdefghy"));
    }
}
