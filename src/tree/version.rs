//! A `Version`: the tables of the tree at one moment, immutable, and the point lookup in them.
//!
//! A version holds its tables open, so a lookup goes from here straight to a filter. `level.rs`
//! keeps what a probe needs in one array, and a lookup touches nothing else of a table before its
//! filter says "maybe".
//!
//! Invariants: level 0 is in the order of age, newest first. Every other level is in the order of
//! keys, and no user key is in two of its tables (I4; `overlap.rs`). A version never changes. The
//! file of a table is removed after the last version that names it is dropped (I9; `handle.rs`).
//!
//! A table answers what happened in it; this module knows the level and counts.

use crate::base::error::Result;
use crate::base::key::{Lookup, LookupKey, SequenceNumber, key_head};
use crate::base::levels::LEVELS;
use crate::base::range_deletes::RangeDelete;
use crate::base::stats::counters::{Counter, LevelCounter, Stripe};
use crate::base::sync::Arc;
use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::table::file::TableIo;
use crate::table::reader::{FilterUse, TableReadOptions};
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::TableHandle;
use crate::tree::level::{Level, TableProbe};
use siftdb_filter::bloom::fast_local::LineBits;
use siftdb_filter::encoding::{FilterVerdict, PreparedFilter};
use siftdb_filter::hash::KeyHash;

/// The descriptions of the tables, by level: the input of the compaction picker. Versions share
/// those of levels that did not change between them.
pub(crate) type LevelFiles = [Arc<Vec<Arc<FileMeta>>>; LEVELS];

/// The places of some tables in each level, ascending.
pub(crate) type Places = [Vec<usize>; LEVELS];

/// The step of one lookup in one table, for `explain`.
#[derive(Clone, Debug)]
pub(crate) struct TableStep {
    /// Level of the table.
    pub level: usize,
    /// Number of its file.
    pub number: u64,
    /// The answer of its filter.
    pub verdict: FilterVerdict,
    pub io: TableIo,
    /// The result of the search; `Absent` after a "no", without searching, unless `is_covered`.
    pub lookup: Lookup,
    /// A range delete of the table covers the key.
    pub is_covered: bool,
}

impl TableStep {
    #[cold]
    fn denied(level: usize, probe: &TableProbe) -> Self {
        TableStep {
            level,
            number: probe.handle.meta.number,
            verdict: FilterVerdict::No,
            io: TableIo::default(),
            lookup: Lookup::Absent,
            is_covered: false,
        }
    }
}

/// The tables of the tree at one moment.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// Level 0 first.
    pub levels: [Arc<Level>; LEVELS],
    /// The descriptions of the tables, by level.
    pub files: LevelFiles,
    /// Levels down to the last that has a table.
    depth: usize,
    /// True if a filter of these tables can be asked for ranges.
    pub answers_ranges: bool,
    /// True if each table has a pinned filter of whole keys, and none has range deletes.
    pub pins_all_filters: bool,
    /// The tables with range deletes, by source, newest source first; empty if there are none.
    pub range_deletes: Vec<DeletingTables>,
}

/// The tables of one source that have range deletes. A source is a table of level 0, or a deeper
/// level: everything in it is newer than what the next sources have of the same keys.
#[derive(Clone, Debug)]
pub(crate) struct DeletingTables {
    pub level: usize,
    /// At level 0 the index of the table in the search order; 0 in other levels.
    pub index: usize,
    /// One table at level 0; in other levels in the order of keys.
    pub tables: Vec<Arc<TableHandle>>,
}

impl DeletingTables {
    /// What `RangeDeletes::coverage` says of the first table whose range deletes do not end
    /// before `key`: the only one of these tables that may cover it. `None` if all of them do.
    pub(crate) fn coverage(&self, key: &[u8], at: SequenceNumber) -> Option<RangeDelete> {
        let ends_before = |handle: &Arc<TableHandle>| {
            handle.table.range_deletes().is_none_or(|deletes| deletes.end_before(key))
        };
        let first = self.tables.partition_point(ends_before);
        Some(self.tables.get(first)?.table.range_deletes()?.coverage(key, at))
    }
}

impl Version {
    /// A version of these tables; puts each level into its order.
    pub(crate) fn new(tables: [Vec<Arc<TableHandle>>; LEVELS]) -> Self {
        Version::default().changed(&Default::default(), tables)
    }

    /// The version after this one: without the tables at the places `gone`, and with `added`. It
    /// shares the levels that do not change.
    pub(crate) fn changed(&self, gone: &Places, added: [Vec<Arc<TableHandle>>; LEVELS]) -> Self {
        let (mut levels, mut files) = (self.levels.clone(), self.files.clone());
        for (number, (gone, added)) in gone.iter().zip(added).enumerate() {
            if gone.is_empty() && added.is_empty() {
                continue;
            }
            let level = self.levels[number].changed(number, gone, added);
            files[number] =
                Arc::new(level.handles.iter().map(|handle| Arc::clone(&handle.meta)).collect());
            levels[number] = Arc::new(level);
        }
        let probes = || levels.iter().flat_map(|level| level.probes.iter());
        let answers_ranges = probes().any(|probe| probe.answers_ranges);
        let pins_all_filters = probes().all(|probe| probe.filter.is_some());
        let depth = levels.iter().rposition(|level| !level.probes.is_empty()).map_or(0, |i| i + 1);
        let range_deletes = deleting_tables(&levels);
        Version { levels, files, depth, answers_ranges, pins_all_filters, range_deletes }
    }

    /// Appends the tables whose key ranges cover a key, whose head is `head`, with their levels, in
    /// the order of the search.
    pub(crate) fn covering<'v>(
        &'v self,
        head: u64,
        user_key: &[u8],
        tables: &mut Vec<(usize, &'v TableProbe)>,
    ) {
        let [newest_first, sorted @ ..] = &self.levels[..self.depth] else { return };
        for (fence, probe) in newest_first.fences.iter().zip(&newest_first.probes) {
            if !fence.excludes(head, user_key) {
                tables.push((0, probe));
            }
        }
        for (number, level) in (1..).zip(sorted) {
            tables.extend(level.probe_for(head, user_key).map(|probe| (number, probe)));
        }
    }

    /// The tables of `level`: level 0 newest first, others by key.
    pub(crate) fn level(&self, level: usize) -> &[Arc<TableHandle>] {
        self.levels.get(level).map_or(&[], |level| &level.handles)
    }

    /// All tables, level by level, each in the order of [`level`](Self::level).
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.levels.iter().flat_map(|level| level.handles.iter())
    }

    /// The same with their levels.
    pub(crate) fn tables_by_level(&self) -> impl Iterator<Item = (usize, &Arc<TableHandle>)> {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(level, own)| own.handles.iter().map(move |handle| (level, handle)))
    }

    /// The newest version of a key at or below the lookup's sequence: level 0 newest first, then
    /// at most one table a level. Inlined into its two callers: a call costs 5 % of a lookup that
    /// the filter ends.
    ///
    /// With `EXPECTS_HIT` the filter of the last level is left out ([`HitStreak`]).
    ///
    /// # Errors
    /// Any error on the way of the key: it must not uncover an older version below.
    #[inline(always)]
    pub(crate) fn get<const EXPECTS_HIT: bool>(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        read: TableReadOptions,
        stripe: &Stripe<'_>,
        trace: Option<&mut Vec<TableStep>>,
    ) -> Result<Lookup> {
        let user_key = hash.key();
        let head = key_head(user_key);
        let bits = LineBits::of(hash.xxph3());
        let mut lookup = PointLookup { key, hash, bits, read, stripe, trace };
        let [newest_first, sorted @ ..] = &self.levels[..self.depth] else {
            return Ok(Lookup::Absent);
        };
        for (fence, probe) in newest_first.fences.iter().zip(&newest_first.probes) {
            if fence.excludes(head, user_key) || lookup.is_denied(0, probe) {
                continue;
            }
            match lookup.search(0, probe, LastLevel::No)? {
                Lookup::Absent => {}
                ended => return Ok(ended),
            }
        }
        for (number, level) in (1..).zip(sorted) {
            let Some(probe) = level.probe_for(head, user_key) else { continue };
            let last = match (number + 1 == self.depth, EXPECTS_HIT) {
                (true, true) => LastLevel::FilterLeftOut,
                (true, false) => LastLevel::FilterAsked,
                (false, _) => LastLevel::No,
            };
            if !matches!(last, LastLevel::FilterLeftOut) && lookup.is_denied(number, probe) {
                continue;
            }
            match lookup.search(number, probe, last)? {
                Lookup::Absent => {}
                ended => return Ok(ended),
            }
        }
        if read.use_filters {
            HitStreak::of(stripe).note(false);
        }
        Ok(Lookup::Absent)
    }

    /// True unless the pinned filters and fences prove that no table has `user_key`; reads
    /// nothing. Tables without a pinned filter count as "may contain".
    pub(crate) fn may_contain(&self, user_key: &[u8], hash: &KeyHash<'_>) -> bool {
        let head = key_head(user_key);
        self.levels.iter().any(|level| {
            level.fences.iter().zip(&level.probes).any(|(fence, probe)| {
                !fence.excludes(head, user_key)
                    && pinned_filter(probe).is_none_or(|filter| filter.may_contain(hash))
            })
        })
    }
}

fn deleting_tables(levels: &[Arc<Level>; LEVELS]) -> Vec<DeletingTables> {
    let [newest_first, sorted @ ..] = levels;
    let has_any = |(_, probe): &(usize, &TableProbe)| probe.has_range_deletes;
    let singles = newest_first.probes.iter().enumerate().filter(has_any);
    let singles = singles.map(|(index, probe)| DeletingTables {
        level: 0,
        index,
        tables: vec![Arc::clone(&probe.handle)],
    });
    let deeper = (1..).zip(sorted).map(|(level, own)| {
        let tables = own.probes.iter().filter(|probe| probe.has_range_deletes);
        let tables = tables.map(|probe| Arc::clone(&probe.handle)).collect();
        DeletingTables { level, index: 0, tables }
    });
    singles.chain(deeper.filter(|own| !own.tables.is_empty())).collect()
}

/// The pinned filter, also of a table with range deletes: it knows which entries there are.
fn pinned_filter(probe: &TableProbe) -> Option<&PreparedFilter> {
    probe.filter.as_ref().or_else(|| probe.handle.table.filter.pinned_filter())
}

/// The number of hits after which a streak is long.
const LONG: u64 = 4096;

/// The hits of the last level in a row: they tell whether asking its filter pays.
///
/// A filter saves the search of a table that does not have the key. A lookup that finds its key in
/// the last level has asked that level's filter for nothing: for one or two cache lines, or for a
/// partition. After [`LONG`] such lookups in a row the next one searches without asking. The first
/// lookup that no table answers ends the streak, and filters are asked again; so does one that
/// finds no value in the last level, or has to wait for a block of it.
///
/// The guess can be wrong once for each streak. It then costs the search of one block that is
/// cached, or lies in a file in memory and was used there before: a few times as much as asking the
/// filter. Before any other block is read, the filter is asked after all. So wrong guesses take
/// less than a thousandth of the time of all lookups.
///
/// A streak belongs to one thread and one keyspace. Threads that share a stripe of the counters
/// have none, because the hits of one say nothing about the keys of the others.
pub(crate) struct HitStreak<'a>(Option<&'a AtomicU64>);

impl<'a> HitStreak<'a> {
    /// The streak of the calling thread.
    #[inline]
    pub(crate) fn of(stripe: &Stripe<'a>) -> Self {
        HitStreak(stripe.kept_by_lookups())
    }

    /// True if the streak is long enough to expect that the next lookup hits too.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.0.is_some_and(|hits| hits.load(Ordering::Relaxed) >= LONG)
    }

    /// Notes a lookup that searched the last level: one more hit, or the end of the streak.
    #[inline]
    fn note(&self, hit_in_memory: bool) {
        let Some(hits) = self.0 else { return };
        let longer = hits.load(Ordering::Relaxed).saturating_add(1);
        hits.store(if hit_in_memory { longer } else { 0 }, Ordering::Relaxed);
    }
}

/// Whether a table is in the last level, and what its filter is for.
#[derive(Clone, Copy)]
enum LastLevel {
    /// It is above, or in level 0, of which a lookup searches every table.
    No,
    FilterAsked,
    FilterLeftOut,
}

/// The state of one lookup in the tables.
struct PointLookup<'a, 'k> {
    key: &'a LookupKey,
    hash: &'a KeyHash<'k>,
    bits: LineBits,
    read: TableReadOptions,
    stripe: &'a Stripe<'a>,
    trace: Option<&'a mut Vec<TableStep>>,
}

impl PointLookup<'_, '_> {
    /// True, and counted, if the pinned filter of the table says "no". Inlined with everything
    /// that it calls: most lookups in most tables end here.
    #[inline(always)]
    fn is_denied(&mut self, level: usize, probe: &TableProbe) -> bool {
        if !self.read.use_filters || !probe.denies(self.hash, &mut self.bits) {
            return false;
        }
        self.stripe.add_level(level, LevelCounter::Negatives, 1);
        self.stripe.add_level(level, LevelCounter::BytesAvoided, probe.mean_block_bytes);
        if let Some(trace) = &mut self.trace {
            trace.push(TableStep::denied(level, probe));
        }
        true
    }

    /// Asks the table itself, and counts what it says.
    #[inline(never)]
    fn search(&mut self, level: usize, probe: &TableProbe, last: LastLevel) -> Result<Lookup> {
        let filter_use = match last {
            LastLevel::FilterLeftOut => FilterUse::Bypass,
            _ if probe.filter.is_some() => FilterUse::SaidMaybe,
            _ => FilterUse::Ask,
        };
        let mut io = self.read.io();
        let result = probe.handle.table.get(self.key, self.hash, self.read, filter_use, &mut io);
        count_io(level, &io, self.stripe);
        let (lookup, verdict) = result?;
        count_verdict(level, probe, self.key, verdict, &lookup, self.stripe);
        if !matches!(last, LastLevel::No) && self.read.use_filters {
            let has_filter = !matches!(verdict, FilterVerdict::NotConsulted);
            let was_in_memory = io.data_read == io.data_in_memory;
            let is_hit = matches!(lookup, Lookup::Found { .. });
            HitStreak::of(self.stripe).note(has_filter && is_hit && was_in_memory);
        }
        if let Some(trace) = &mut self.trace {
            let number = probe.handle.meta.number;
            let is_covered = probe.handle.table.covering(self.key) > 0;
            let lookup = lookup.clone();
            trace.push(TableStep { level, number, verdict, io, lookup, is_covered });
        }
        Ok(lookup)
    }
}

/// Counts the answer of a filter, given what the search found. Inlined for single lookups.
#[inline(always)]
pub(crate) fn count_verdict(
    level: usize,
    probe: &TableProbe,
    key: &LookupKey,
    verdict: FilterVerdict,
    lookup: &Lookup,
    stripe: &Stripe<'_>,
) {
    let counter = match (verdict, lookup) {
        (FilterVerdict::No, _) => {
            stripe.add_level(level, LevelCounter::BytesAvoided, probe.mean_block_bytes);
            if probe.by_prefix { LevelCounter::PrefixNegatives } else { LevelCounter::Negatives }
        }
        (FilterVerdict::NotConsulted, _) => LevelCounter::NotConsulted,
        (FilterVerdict::Bypassed, _) => LevelCounter::Bypassed,
        // A search for one key cannot tell whether the table holds another key of the prefix.
        (FilterVerdict::Maybe, _) if probe.by_prefix => LevelCounter::PrefixPositives,
        // A range delete may have ended the search: then nothing says whether it hides an entry.
        (FilterVerdict::Maybe, Lookup::Deleted) if probe.handle.table.range_deletes().is_some() => {
            LevelCounter::Unresolved
        }
        (FilterVerdict::Maybe, Lookup::Found { .. } | Lookup::Deleted) => {
            LevelCounter::TruePositives
        }
        // The filter may have seen a version that is newer than the read.
        (FilterVerdict::Maybe, Lookup::Absent)
            if probe.handle.meta.largest_sequence > key.sequence() =>
        {
            LevelCounter::Unresolved
        }
        (FilterVerdict::Maybe, Lookup::Absent) => LevelCounter::FalsePositives,
    };
    stripe.add_level(level, counter, 1);
}

/// Counts the blocks that a lookup touched in a table. Inlined, as above.
#[inline(always)]
pub(crate) fn count_io(level: usize, io: &TableIo, stripe: &Stripe<'_>) {
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
    count_all(level, &read, io, stripe);
}

/// Counts the blocks that a scan touched in a table, apart from those of lookups.
pub(crate) fn count_scan_io(level: usize, io: &TableIo, stripe: &Stripe<'_>) {
    let touched = [
        (LevelCounter::ScanDataBlocksCached, u64::from(io.data_cached)),
        (LevelCounter::ScanDataBlocksRead, u64::from(io.data_read)),
        (LevelCounter::ScanDataBytesRead, io.data_bytes),
        (LevelCounter::ScanFilterBlocksCached, u64::from(io.filter_cached)),
        (LevelCounter::ScanFilterBlocksRead, u64::from(io.filter_read)),
        (LevelCounter::ScanFilterBytesRead, io.filter_bytes),
        (LevelCounter::ScanIndexBlocksRead, u64::from(io.index_read)),
        (LevelCounter::ScanIndexBytesRead, io.index_bytes),
    ];
    count_all(level, &touched, io, stripe);
}

fn count_all(level: usize, amounts: &[(LevelCounter, u64)], io: &TableIo, stripe: &Stripe<'_>) {
    for &(counter, amount) in amounts.iter().filter(|(_, amount)| *amount > 0) {
        stripe.add_level(level, counter, amount);
    }
    if io.filter_errors > 0 {
        stripe.add(Counter::FilterErrors, u64::from(io.filter_errors));
    }
}
