//! One level of a version: for each table its fences and a [`TableProbe`], in search order.
//!
//! Lookups in `version.rs` and `multi_get.rs` use them. The fences decide whether the key range of
//! a table covers a key. The probe holds the filter, so a lookup touches nothing else of the table
//! before the filter says "maybe". In level 0, where tables may overlap, every table is asked; in
//! any other level at most one ([`Level::probe_for`]).

use crate::base::key::key_head;
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::tree::handle::TableHandle;
use crate::tree::overlap::{KeySpan, ends_before, search_order};
use siftdb_filter::bloom::fast_local::LineBits;
use siftdb_filter::encoding::PreparedFilter;
use siftdb_filter::hash::KeyHash;
use std::ops::{Bound, Range};

/// The facts that a probe of one table needs.
#[derive(Clone, Debug)]
pub(crate) struct TableProbe {
    /// The filter of the whole table, if it is pinned. None if the table has range deletes: these
    /// may cover a key that the filter has never seen.
    pub filter: Option<PreparedFilter>,
    /// The filter holds prefixes only: it answers for the prefix of a key.
    pub by_prefix: bool,
    /// About how many bytes a "no" saves.
    pub mean_block_bytes: u64,
    pub has_range_deletes: bool,
    /// It has a filter that can be asked for ranges.
    pub answers_ranges: bool,
    pub handle: Arc<TableHandle>,
}

impl TableProbe {
    fn new(handle: &Arc<TableHandle>) -> Self {
        let has_range_deletes = handle.table.range_deletes().is_some();
        TableProbe {
            filter: match has_range_deletes {
                false => handle.table.filter.pinned_filter().cloned(),
                true => None,
            },
            has_range_deletes,
            answers_ranges: handle.table.answers_ranges(),
            by_prefix: !handle.table.filter.members.whole_keys,
            mean_block_bytes: handle.table.properties.mean_block_bytes(),
            handle: Arc::clone(handle),
        }
    }

    /// True if the pinned filter proves that the table does not have the key. `bits` are of its
    /// hash, the same for all tables of a lookup.
    #[inline(always)]
    pub(crate) fn denies(&self, hash: &KeyHash<'_>, bits: &mut LineBits) -> bool {
        match &self.filter {
            Some(filter) => !filter.may_contain_bits(hash, bits),
            None => false,
        }
    }
}

/// The span of a table. The head of each key, its first eight bytes, is in the fence itself, so
/// most comparisons touch no other memory. The kind of end matters only if the heads are equal.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    start_head: u64,
    /// All ones without an end: no head is above it.
    end_head: u64,
    start: Arc<[u8]>,
    end: Bound<Arc<[u8]>>,
}

impl Fence {
    fn new(KeySpan { start, end }: KeySpan<'_>) -> Self {
        Fence {
            start_head: key_head(start),
            end_head: match end {
                Bound::Included(key) | Bound::Excluded(key) => key_head(key),
                Bound::Unbounded => u64::MAX,
            },
            start: start.into(),
            end: end.map(Into::into),
        }
    }

    /// The key, whose head is `head`, is outside of the table's range.
    #[inline]
    pub(crate) fn excludes(&self, head: u64, key: &[u8]) -> bool {
        self.starts_after(head, key) || self.ends_before(head, key)
    }

    /// All keys of the table are above this one, whose head is `head`.
    #[inline]
    pub(crate) fn starts_after(&self, head: u64, key: &[u8]) -> bool {
        self.start_head > head || (self.start_head == head && &*self.start > key)
    }

    /// No key of the table is below this one, whose head is `head`.
    #[inline]
    pub(crate) fn starts_from(&self, head: u64, key: &[u8]) -> bool {
        self.start_head > head || (self.start_head == head && &*self.start >= key)
    }

    /// All keys of the table are below this one, whose head is `head`.
    #[inline]
    pub(crate) fn ends_before(&self, head: u64, key: &[u8]) -> bool {
        self.end_head < head || (self.end_head == head && ends_before(self.end(), key))
    }

    #[inline]
    fn end(&self) -> Bound<&[u8]> {
        self.end.as_ref().map(|end| &**end)
    }
}

/// The ends of a range with their heads, which a search of the fences compares first.
#[derive(Clone, Copy)]
pub(crate) struct RangeEnds<'r> {
    start: (u64, &'r [u8]),
    /// `None` without an end.
    end: Option<(u64, &'r [u8])>,
}

impl<'r> RangeEnds<'r> {
    #[inline]
    pub(crate) fn of(range: &'r KeyBounds) -> Self {
        let with_head = |key: &'r [u8]| (key_head(key), key);
        RangeEnds { start: with_head(&range.start), end: range.end.as_deref().map(with_head) }
    }

    /// The table with this fence ends before the range begins.
    #[inline]
    fn is_after(&self, fence: &Fence) -> bool {
        fence.ends_before(self.start.0, self.start.1)
    }

    /// The table with this fence begins after the range ends.
    #[inline]
    fn is_before(&self, fence: &Fence) -> bool {
        self.end.is_some_and(|(head, end)| fence.starts_from(head, end))
    }
}

/// One level: fences and probes side by side, in the order of the search. Versions with the same
/// tables in a level share it.
#[derive(Debug, Default)]
pub(crate) struct Level {
    /// One for each table, in the order of the search.
    pub fences: Vec<Fence>,
    /// One for each table, in the order of the search.
    pub probes: Vec<TableProbe>,
    pub handles: Vec<Arc<TableHandle>>,
    /// Bytes of the tables.
    pub bytes: u64,
}

impl Level {
    /// A level with these tables, which share no user key.
    pub(crate) fn of_run(tables: Vec<Arc<TableHandle>>) -> Self {
        Level::default().changed(1, &[], tables)
    }

    /// The level `number` with the tables `added`, and without those that are `gone`, by their
    /// places here, ascending. What stays is copied as it is: its tables are not looked at, and
    /// keys are compared only to find the places of what is added. Most edits change few tables of
    /// many.
    pub(crate) fn changed(
        &self,
        number: usize,
        gone: &[usize],
        mut added: Vec<Arc<TableHandle>>,
    ) -> Self {
        added.sort_by(|a, b| search_order(number, &a.meta, &b.meta));
        let place = |new: &Arc<TableHandle>| {
            let is_before = |old: &Arc<TableHandle>| search_order(number, &old.meta, &new.meta);
            self.handles.partition_point(|old| is_before(old).is_lt())
        };
        let mut added = added.into_iter().map(|new| (place(&new), new)).peekable();
        let mut gone = gone.iter().peekable();
        let count = self.handles.len() + added.len();
        let (mut fences, mut probes) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (index, old) in self.probes.iter().map(Some).chain([None]).enumerate() {
            while let Some((_, new)) = added.next_if(|(place, _)| *place == index) {
                fences.push(Fence::new(new.meta.span()));
                probes.push(TableProbe::new(&new));
            }
            let stays = old.filter(|_| gone.next_if_eq(&&index).is_none());
            probes.extend(stays.cloned());
            fences.extend(stays.and_then(|_| self.fences.get(index).cloned()));
        }
        // I4, and what a search of the fences relies on.
        debug_assert!(
            probes.is_sorted_by(|TableProbe { handle: a, .. }, TableProbe { handle: b, .. }| {
                search_order(number, &a.meta, &b.meta).is_lt()
                    && (number == 0 || a.meta.ends_before(&b.meta.start))
            }) && fences.iter().map(|f| &*f.start).eq(probes.iter().map(|p| &*p.handle.meta.start)),
            "I4"
        );
        Level {
            bytes: probes.iter().map(|probe| probe.handle.meta.bytes).sum(),
            handles: probes.iter().map(|probe| Arc::clone(&probe.handle)).collect(),
            fences,
            probes,
        }
    }

    /// The tables of level 0 that may hold keys of the range, by their places in the search.
    pub(crate) fn overlapping(&self, range: RangeEnds<'_>) -> impl Iterator<Item = usize> {
        let places = self.fences.iter().enumerate();
        let overlaps = move |fence: &Fence| !range.is_after(fence) && !range.is_before(fence);
        places.filter(move |(_, fence)| overlaps(fence)).map(|(place, _)| place)
    }

    /// The tables of a level sorted by key that may hold keys of the range: they are neighbours.
    pub(crate) fn neighbours(&self, range: RangeEnds<'_>) -> Range<usize> {
        let start = self.fences.partition_point(|fence| range.is_after(fence));
        let rest = self.fences.get(start..).unwrap_or_default();
        start..start + rest.partition_point(|fence| !range.is_before(fence))
    }

    /// The one table of a level sorted by key that can have this one, whose head is
    /// `head`.
    #[inline(always)]
    pub(crate) fn probe_for(&self, head: u64, key: &[u8]) -> Option<&TableProbe> {
        // `partition_point` by hand, so that it is always inlined: a call costs a twentieth of a
        // lookup that ends at the filter.
        let (mut index, mut count) = (0, self.fences.len());
        while count > 0 {
            let half = count / 2;
            if self.fences.get(index + half)?.ends_before(head, key) {
                index += half + 1;
                count -= half + 1;
            } else {
                count = half;
            }
        }
        let covers = !self.fences.get(index)?.starts_after(head, key);
        self.probes.get(index).filter(|_| covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_compare_whole_keys_after_equal_heads() {
        let fence = |end: Bound<&[u8]>| Fence::new(KeySpan { start: b"abcdefghb", end });
        let starts_after = |key: &[u8]| fence(Bound::Unbounded).starts_after(key_head(key), key);
        assert!(starts_after(b"abcdefgha") && !starts_after(b"abcdefghb"));
        let with = fence(Bound::Included(b"abcdefghy"));
        let without = fence(Bound::Excluded(b"abcdefghy"));
        let ends_before = |fence: &Fence, key: &[u8]| fence.ends_before(key_head(key), key);
        assert!(ends_before(&with, b"abcdefghz") && !ends_before(&with, b"abcdefghy"));
        assert!(ends_before(&without, b"abcdefghy") && !ends_before(&without, b"abcdefghx"));
        for key in [&b"z"[..], &[0xff; 8], &[0xff; 20]] {
            assert!(!ends_before(&fence(Bound::Unbounded), key));
        }
    }
}
