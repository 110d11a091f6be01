//! An iterator over the tables of a sorted level, one table at a time.
//!
//! `read/scan.rs` and `jobs/compact/run.rs` use it, also for a single table of level 0. The caller
//! gives the tables, in the order of their keys, disjoint by user key.
//!
//! A table that is read from one end to the other must yield as many entries as the manifest says;
//! otherwise the iterator ends with `Corruption`. It also ends at any error of a table, because
//! continuing with the next one would hide missing entries. An iterator that starts inside a table
//! cannot check the count of that table.
//!
//! With a [`RangeProbe`], each table is asked when its turn comes, and skipped on a "no": such a
//! table holds no key of the caller's range.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{key_head, user_key};
use crate::base::stats::counters::{Counters, LevelCounter};
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::table::iter::TableIter;
use crate::table::reader::TableReadOptions;
use crate::tree::handle::TableHandle;
use crate::tree::level::{Fence, Level};
use crate::tree::range_probe::RangeProbe;
use crate::tree::scan_lengths::ScanLengths;
use crate::tree::version::count_scan_io;
use siftdb_filter::encoding::FilterVerdict;
use std::ops::Range;

/// An iterator over a sorted level.
pub(crate) struct LevelIter {
    direction: Direction,
    level: Arc<Level>,
    /// The neighbours in `level` that the iterator walks through. A walk that ends early touches
    /// few of them.
    places: Range<usize>,
    read: TableReadOptions,
    /// Where to count what is read, and at which level.
    counters: Option<(Arc<Counters>, usize)>,
    /// Which tables to skip; counted at the level of `counters`.
    range: Option<Arc<RangeProbe>>,
    /// What the filter of the only table has said of `range`, until the first seek.
    answer: Option<FilterVerdict>,
    /// At an entry, except during a step.
    current: Option<Current>,
    /// In the table where the next seek goes, if there is one.
    is_prepared: bool,
    error: Option<Error>,
}

/// The table that the iterator is in.
struct Current {
    index: usize,
    iter: TableIter,
    /// What the filter of the table said.
    verdict: FilterVerdict,
    /// True if the iterator entered the table at its end, not inside it.
    whole: bool,
    /// Entries passed.
    passed: u64,
}

impl LevelIter {
    /// An iterator over `tables`. It has no position until the first seek.
    pub(crate) fn new(
        direction: Direction,
        tables: Vec<Arc<TableHandle>>,
        fill_cache: bool,
    ) -> Self {
        let (count, read) =
            (tables.len(), TableReadOptions { fill_cache, ..TableReadOptions::new() });
        LevelIter::of_level(direction, &Arc::new(Level::of_run(tables)), 0..count, read)
    }

    /// An iterator over neighbours in a level.
    pub(crate) fn of_level(
        direction: Direction,
        level: &Arc<Level>,
        places: Range<usize>,
        read: TableReadOptions,
    ) -> Self {
        LevelIter {
            direction,
            level: Arc::clone(level),
            places,
            read,
            counters: None,
            range: None,
            answer: None,
            current: None,
            is_prepared: false,
            error: None,
        }
    }

    fn handles(&self) -> &[Arc<TableHandle>] {
        self.level.handles.get(self.places.clone()).unwrap_or_default()
    }

    fn fences(&self) -> &[Fence] {
        self.level.fences.get(self.places.clone()).unwrap_or_default()
    }

    /// Counts what the iterator reads as a scan of this level.
    // Not a call: it would copy the iterator twice.
    #[inline]
    #[must_use]
    pub(crate) fn counted(mut self, counters: &Arc<Counters>, level: usize) -> Self {
        self.counters = Some((Arc::clone(counters), level));
        self
    }

    /// Counts what was read since the last call. Called when a table is entered or left and on
    /// drop, not for each block, which would slow down every step.
    fn count_reads(&mut self) {
        if let (Some((counters, level)), Some(current)) = (&self.counters, &mut self.current) {
            count_scan_io(*level, &current.iter.take_io(), &counters.stripe());
        }
    }

    fn leave(&mut self) {
        self.count_reads();
        if let (Some((counters, level)), Some(current)) = (&self.counters, &self.current) {
            let blocks = current.iter.blocks_read();
            if blocks > 0 {
                ScanLengths::of(&counters.stripe()).note(*level, blocks);
            }
        }
        self.current = None;
    }

    /// From the next seek on, skips the tables that `range` excludes. The iterator may then lack
    /// keys outside that range. It is [`counted`](Self::counted). An `answer` is what the filter of
    /// the only table has said already: the next seek does not ask it again.
    #[inline]
    pub(crate) fn skip_outside(
        &mut self,
        range: Option<Arc<RangeProbe>>,
        answer: Option<FilterVerdict>,
    ) {
        debug_assert!(answer.is_none() || self.handles().len() == 1);
        (self.range, self.answer) = (range, answer);
    }

    /// The index of the first table from `index` on, in this direction, that is not skipped, and
    /// what its filter said.
    fn not_skipped(&self, mut index: Option<usize>) -> (Option<usize>, FilterVerdict) {
        let (Some(range), Some((_, level))) = (&self.range, &self.counters) else {
            return (index, FilterVerdict::NotConsulted);
        };
        let (tables, fences) = (self.handles(), self.fences());
        while let Some((at, handle)) = index.and_then(|at| Some((at, tables.get(at)?))) {
            if fences.get(at).is_some_and(|fence| range.ends_before(self.direction, fence)) {
                break;
            }
            match range.ask(*level, &handle.table) {
                FilterVerdict::No => index = self.after(at),
                verdict => return (index, verdict),
            }
        }
        (None, FilterVerdict::NotConsulted)
    }

    /// Counts whether a filter said "maybe" rightly, after the seek to `bound` in its table.
    #[inline(never)]
    fn count_positive(&self, bound: Option<&[u8]>) {
        if let (Some(range), Some((_, level)), Some(current)) =
            (&self.range, &self.counters, &self.current)
            && current.iter.status().is_ok()
        {
            let found = current.iter.valid().then(|| user_key(current.iter.key()));
            range.count_positive(*level, self.direction, bound.map(user_key), found);
        }
    }

    /// The index after `index` in this direction.
    fn after(&self, index: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => index.checked_add(1),
            Direction::Reverse => index.checked_sub(1),
        }
    }

    /// Takes the table where a seek to `bound` goes, if there is one.
    fn find_table(&mut self, bound: Option<&[u8]>) {
        self.error = None;
        let index = match (self.direction, bound) {
            (Direction::Forward, None) => Some(0),
            (Direction::Reverse, None) => self.handles().len().checked_sub(1),
            (_, Some(bound)) => self.first_from(bound),
        };
        self.take_table(index, bound);
    }

    /// Takes the table at `index`, or the first one after it that is not skipped, if there is one.
    fn take_table(&mut self, index: Option<usize>, bound: Option<&[u8]>) {
        self.leave();
        let (index, verdict) = match self.answer.take() {
            Some(verdict) => (index, verdict),
            None => self.not_skipped(index),
        };
        let tables = self.handles();
        let Some((index, handle)) = index.and_then(|at| Some((at, tables.get(at)?))) else {
            return;
        };
        let whole = !bound.is_some_and(|bound| self.is_inside(index, handle, bound));
        let iter = handle.table.iter(self.direction, self.read);
        let current = Current { index, iter, verdict, whole, passed: 0 };
        // Sought where it stays, because it is large.
        let iter = &mut self.current.insert(current).iter;
        if let Some((counters, level)) = &self.counters {
            iter.expect_blocks(ScanLengths::of(&counters.stripe()).expected(*level));
        }
        iter.locate(bound.filter(|_| !whole));
    }

    /// Starts in the table that was taken, if there is one: at `bound`, or at the end of the table
    /// if the bound is outside of it.
    fn start(&mut self, bound: Option<&[u8]>) {
        let Some(current) = &mut self.current else { return };
        let inside = bound.filter(|_| !current.whole);
        current.iter.start(inside);
        if current.verdict == FilterVerdict::Maybe {
            self.count_positive(inside);
        }
        if let Some((counters, level)) = &self.counters {
            counters.stripe().add_level(*level, LevelCounter::ScanTables, 1);
        }
        self.count_reads();
    }

    /// Whether the table at `index` may have entries before `bound`, in this direction. It may have
    /// versions of the bound's key on both sides of it.
    fn is_inside(&self, index: usize, handle: &TableHandle, bound: &[u8]) -> bool {
        let key = user_key(bound);
        match self.direction {
            // The fence is in memory that the search has touched, unlike the meta.
            Direction::Forward => {
                let fence = self.fences().get(index);
                fence.is_some_and(|fence| !fence.starts_after(key_head(key), key))
            }
            Direction::Reverse => !handle.meta.ends_before(key),
        }
    }

    /// The index of the first table from `bound` on, in this direction. By user keys: it may have
    /// other versions only of the bound's key.
    fn first_from(&self, bound: &[u8]) -> Option<usize> {
        let key = user_key(bound);
        match self.direction {
            Direction::Forward => {
                let (head, fences) = (key_head(key), self.fences());
                let ends_before = |fence: &Fence| fence.ends_before(head, key);
                // A scan begins where its range does.
                let begins = !fences.first().is_some_and(ends_before);
                Some(if begins { 0 } else { fences.partition_point(ends_before) })
            }
            Direction::Reverse => {
                let starts_by = |handle: &Arc<TableHandle>| &handle.meta.start[..] <= key;
                self.handles().partition_point(starts_by).checked_sub(1)
            }
        }
    }

    /// Moves to the next table as long as the current one has no entries left; returns `valid`.
    #[inline(never)]
    fn settle(&mut self) -> bool {
        while let Some(current) = &self.current
            && !current.iter.valid()
        {
            if let Err(error) = self.check_whole(current) {
                self.error = Some(error);
                self.leave();
                return false;
            }
            let next = self.after(current.index);
            self.take_table(next, None);
            self.start(None);
        }
        self.current.is_some()
    }

    /// Checks that the table ended without an error and yielded all of its entries.
    fn check_whole(&self, current: &Current) -> Result<()> {
        current.iter.status()?;
        let Some(handle) = self.handles().get(current.index) else { return Ok(()) };
        let (passed, entries) = (current.passed, handle.meta.entries);
        if current.whole && passed != entries {
            let what = format!("{passed} entries instead of {entries}");
            return Err(Error::corruption(handle.table.path(), 0, what));
        }
        Ok(())
    }
}

impl Drop for LevelIter {
    fn drop(&mut self) {
        self.leave();
    }
}

impl InternalIterator for LevelIter {
    fn prepare_seek(&mut self, bound: Option<&[u8]>) {
        self.find_table(bound);
        if let Some(current) = &mut self.current {
            current.iter.ask_for_block();
        }
        self.is_prepared = true;
    }

    fn seek(&mut self, bound: Option<&[u8]>) {
        if !std::mem::take(&mut self.is_prepared) {
            self.find_table(bound);
        }
        self.start(bound);
        self.settle();
    }

    #[inline(always)]
    fn next(&mut self) -> bool {
        let Some(current) = self.current.as_mut() else { return false };
        current.passed += 1;
        current.iter.next() || self.settle()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |current| current.iter.key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |current| current.iter.value())
    }

    #[inline]
    fn value_owned(&self) -> Value {
        let current = self.current.as_ref();
        current.map_or_else(|| Value::from(&[][..]), |current| current.iter.value_owned())
    }

    fn status(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::events::delivery::Events;
    use crate::base::key::{KeyspaceLabel, ValueKind, pack_trailer, put_key_with_trailer};
    use crate::base::levels::LEVELS;
    use crate::base::range::KeyRange;
    use crate::cache::cache::Cache;
    use crate::env::api::Env;
    use crate::env::handle::FilePool;
    use crate::env::mem::MemEnv;
    use crate::table::builder::{TableBuilder, TableOptions};
    use crate::table::compression::Compression;
    use crate::table::filter::layout::{FilterLayout, FilterMembers, TableFilter};
    use crate::table::reader::{Expect, Table, TableContext};
    use crate::tree::file_meta::FileMeta;
    use crate::tree::level::RangeEnds;
    use crate::tree::version::Version;
    use siftdb_filter::construction::Construction;
    use siftdb_filter::encoding::Encoding;
    use siftdb_filter::prefix::Prefix;
    use std::ops::Bound;
    use std::path::Path;

    fn key(number: u32) -> Vec<u8> {
        key_with(number, pack_trailer(5, ValueKind::Put))
    }

    fn key_with(number: u32, trailer: u64) -> Vec<u8> {
        let mut key = Vec::new();
        put_key_with_trailer(&mut key, format!("{number:04}").as_bytes(), trailer);
        key
    }

    /// A version that has these tables in one level.
    fn version(number: usize, tables: &[Arc<TableHandle>]) -> Arc<Version> {
        let mut levels: [Vec<_>; LEVELS] = Default::default();
        levels[number] = tables.to_vec();
        Arc::new(Version::new(levels))
    }

    /// A table for each list of keys; its meta counts `extra` entries more than it holds.
    fn level(tables: &[&[u32]], extra: u64) -> Vec<Arc<TableHandle>> {
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let context =
            TableContext::new(FilePool::new(Arc::clone(&env), 10), Cache::new(1 << 16, 0.5));
        let options = TableOptions {
            keyspace: KeyspaceLabel::default(),
            databases: Vec::new(),
            block_bytes: 64,
            restart_interval: 2,
            hash_index: false,
            index_partition_bytes: 0,
            compression: Compression::None,
            filter: Some(TableFilter {
                encoding: Encoding::FastLocalBloom { millibits: 20_000 },
                layout: FilterLayout::Full,
                members: FilterMembers { whole_keys: true, prefix: Some(Prefix::fixed(2)) },
                range_millibits: 0,
            }),
            construction: Construction::default(),
            write_bytes: 64 << 10,
            events: Events::default(),
        };
        let handle = |(number, keys): (usize, &&[u32])| {
            let (name, table_id) = (format!("/{number}"), 1 + number as u64);
            let path = Path::new(&name);
            let file = env.create_new(path).unwrap();
            let mut builder = TableBuilder::new(file, path.into(), table_id, options.clone());
            for &number in *keys {
                builder.add(&key(number), &number.to_le_bytes()).unwrap();
            }
            let summary = builder.finish().unwrap();
            let table = Table::open(
                &context,
                path,
                Expect { table_id: Some(table_id), ..Expect::default() },
            );
            let mut meta = FileMeta::of_summary(number as u64, &summary);
            meta.entries += extra;
            TableHandle::new(Arc::new(meta), Arc::new(table.unwrap()), &Arc::default())
        };
        tables.iter().enumerate().map(handle).collect()
    }

    fn walk(iter: &mut LevelIter, bound: Option<&[u8]>) -> Vec<u32> {
        iter.seek(bound);
        let mut found = Vec::new();
        while iter.valid() {
            let number = u32::from_le_bytes(iter.value().try_into().unwrap());
            assert_eq!(iter.key(), key(number));
            assert_eq!(&iter.value_owned()[..], iter.value());
            found.push(number);
            iter.next();
        }
        found
    }

    #[test]
    fn every_bound_splits_the_level_in_two() {
        let keys: [&[u32]; 3] = [&[2, 4, 6, 8, 10, 12, 14, 16, 18], &[24], &[40, 42, 44, 46]];
        let all = keys.concat();
        let tables = level(&keys, 0);
        let version = version(1, &tables);
        let listed = |direction| LevelIter::new(direction, tables.clone(), true);
        let of_level = |direction| {
            LevelIter::of_level(direction, &version.levels[1], 0..3, TableReadOptions::new())
        };
        let mut walks = [Direction::Forward, Direction::Reverse].map(|direction| {
            let walks = [listed(direction), of_level(direction)];
            (direction, walks)
        });
        for number in 0..50 {
            // Before all versions of the key, at the one that there may be, after all of them.
            for trailer in [u64::MAX, pack_trailer(5, ValueKind::Put), 0] {
                let bound = key_with(number, trailer);
                let is_before = |k: &&u32| **k < number || (**k == number && trailer == 0);
                let (mut before, behind) = all.iter().partition::<Vec<u32>, _>(is_before);
                before.reverse();
                for (direction, walks) in &mut walks {
                    let expected =
                        [&behind, &before][usize::from(*direction == Direction::Reverse)];
                    for iter in walks {
                        assert_eq!(walk(iter, Some(&bound)), *expected, "{number} {trailer}");
                        iter.status().unwrap();
                    }
                }
            }
        }
        for (direction, walks) in &mut walks {
            for iter in walks {
                let mut found = walk(iter, None);
                if *direction == Direction::Reverse {
                    found.reverse();
                }
                assert_eq!(found, all);
            }
        }
        assert!(walk(&mut LevelIter::new(Direction::Reverse, Vec::new(), true), None).is_empty());
    }

    #[test]
    fn the_tables_of_a_range_are_neighbours() {
        let keys: [&[u32]; 4] = [&[2, 4], &[6], &[8, 9], &[14, 20]];
        let tables = level(&keys, 0);
        let (newest_first, sorted) = (version(0, &tables), version(1, &tables));
        let bounds = |number: u32| {
            let key = format!("{number:04}");
            [Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded]
        };
        for start in (0..22).flat_map(bounds) {
            for end in (0..22).flat_map(bounds) {
                let range = (start.clone(), end).into_bounds();
                let overlapping = |version: &Version, number: usize| -> Vec<usize> {
                    let tables = version.level(number).iter().enumerate();
                    let tables = tables.filter(|(_, handle)| handle.meta.overlaps(&range));
                    tables.map(|(place, _)| place).collect()
                };
                let found: Vec<usize> =
                    newest_first.levels[0].overlapping(RangeEnds::of(&range)).collect();
                assert_eq!(found, overlapping(&newest_first, 0), "{range:?}");
                let found = sorted.levels[1].neighbours(RangeEnds::of(&range));
                // A range that is inverted may overlap tables at both of its ends.
                if !range.is_empty() {
                    assert!(found.clone().eq(overlapping(&sorted, 1)), "{found:?} {range:?}");
                }
            }
        }
    }

    #[test]
    fn tables_outside_a_prefix_are_skipped() {
        let keys: [&[u32]; 4] = [&[2, 4, 6], &[2401, 2402], &[2405, 2450], &[4000, 4002]];
        for extra in [0, 1] {
            for direction in [Direction::Forward, Direction::Reverse] {
                let counters = Arc::new(Counters::new());
                let counted = || {
                    [LevelCounter::ScanNegatives, LevelCounter::ScanPositives]
                        .map(|counter| counters.level_total(3, counter))
                };
                let walker = |prefix: &str, end: &str| {
                    let read = TableReadOptions::new();
                    let range =
                        Arc::new(RangeProbe::new(&(prefix..end).into_bounds(), read, &counters));
                    let iter = LevelIter::new(direction, level(&keys, extra), true);
                    let mut iter = iter.counted(&counters, 3);
                    iter.skip_outside(Some(range), None);
                    iter
                };
                let mut iter = walker("24", "25");
                iter.seek(None);
                assert_eq!(counted(), [1, 1], "those that the walk has come to");
                let found = walk(&mut iter, None);
                // Tables that are entered must be complete; skipped ones are not checked.
                if extra == 0 {
                    iter.status().unwrap();
                    assert_eq!(found.len(), 4);
                    assert_eq!(counted(), [1 + 1, 1 + 2], "none after the range");
                } else {
                    assert!(iter.status().is_err());
                    assert_eq!(found.len(), 2);
                }
                let mut iter = walker("99", "9:");
                assert!(walk(&mut iter, None).is_empty());
                iter.status().unwrap();
            }
        }
    }

    #[test]
    fn a_truncated_table_ends_iteration_with_error() {
        let tables = level(&[&[1, 2, 3], &[7, 8]], 1);
        let version = version(1, &tables);
        let listed = |direction| LevelIter::new(direction, tables.clone(), true);
        let of_level = |direction| {
            LevelIter::of_level(direction, &version.levels[1], 0..2, TableReadOptions::new())
        };
        let directions = [Direction::Forward, Direction::Reverse];
        let walks = directions.into_iter().flat_map(|d| [(d, listed(d)), (d, of_level(d))]);
        for (direction, mut iter) in walks {
            let found = walk(&mut iter, None);
            assert_eq!(
                found,
                if direction == Direction::Forward { [1, 2, 3].to_vec() } else { [8, 7].to_vec() }
            );
            let message = iter.status().unwrap_err().to_string();
            assert!(message.contains("entries instead of"), "{message}");
            // From the middle of a table it cannot check the count. The next seek starts again.
            let bound = key(if direction == Direction::Forward { 8 } else { 2 });
            assert_eq!(walk(&mut iter, Some(&bound)).len(), 1);
            iter.status().unwrap();
        }
    }
}
