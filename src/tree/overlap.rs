//! The tables of one level: in which order they are searched, and which of them share keys.
//!
//! The *span* of a table is the range of user keys that it has entries or range deletes of:
//! [`KeySpan`]. It ends at its last key, before a key (where a range delete ends), or nowhere. All
//! comparisons of spans are here; a lookup compares the same way in `level.rs`.
//!
//! Level 0 is searched newest table first. The newer of two tables is the one with the larger
//! `largest_sequence`. File numbers do not tell age, because a table can be rewritten. Two tables
//! of level 0 that share user keys have disjoint ranges of sequences. So every entry of the newer
//! one is newer than every entry of the older one, and they never tie. A table that is rewritten at
//! level 0 keeps the recorded range of its inputs, even if entries were dropped.
//!
//! Every deeper level is sorted by key, and no user key is in two of its tables (I4).
//!
//! `set.rs` checks [`order_conflicts`] before it logs an edit, `manifest.rs` when it replays one,
//! and `verify` whenever it is called. Compactions choose their inputs with the other functions.

use crate::base::filename::FileName;
use crate::base::key::{SEQUENCE_MAX, SequenceNumber};
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::tree::file_meta::FileMeta;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, Range, RangeInclusive};

/// The order in which the tables of `level` are searched: newest first at level 0, by key in the
/// others.
pub(crate) fn search_order(level: usize, a: &FileMeta, b: &FileMeta) -> Ordering {
    // The number decides only between tables that share no key: it makes the order total.
    let age = |meta: &FileMeta| (meta.largest_sequence, meta.number);
    match level {
        0 => age(b).cmp(&age(a)),
        _ => a.start.cmp(&b.start),
    }
}

/// Two tables of one level that share user keys and must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderConflict {
    /// The level of both.
    pub level: usize,
    /// The number of the one whose keys begin first.
    pub left: u64,
    /// The number of the other one.
    pub right: u64,
}

impl fmt::Display for OrderConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (FileName::Table(self.left), FileName::Table(self.right));
        write!(f, "{left} and {right} overlap in level {}", self.level)?;
        if self.level == 0 {
            f.write_str(", and neither of them is the newer one")?;
        }
        Ok(())
    }
}

/// The tables of `level` that break its rule. Each table is named once as `right` at most.
pub(crate) fn order_conflicts<'t>(
    level: usize,
    tables: impl IntoIterator<Item = &'t FileMeta>,
) -> Vec<OrderConflict> {
    let tables: Vec<&FileMeta> = tables.into_iter().collect();
    // In a sorted level no two tables may share keys, whatever their sequences are: so each one
    // counts as having all sequences.
    let ages = |meta: &FileMeta| match level {
        0 => (meta.smallest_sequence, meta.largest_sequence),
        _ => (0, SEQUENCE_MAX),
    };
    let mut ends: Vec<(Border<'_>, &FileMeta)> = Vec::with_capacity(2 * tables.len());
    for meta in &tables {
        ends.push((Border::Key(&meta.start, Place::Start), meta));
        ends.push((Border::of_end(meta.span().end), meta));
    }
    ends.sort_by_key(|(border, meta)| (*border, meta.number));
    // A sweep over the keys. `open` has the tables around the current key by their smallest
    // sequence. Their ranges of sequences are disjoint, so only the last one that begins before the
    // end of the next table can overlap it.
    let mut open: BTreeMap<u64, &FileMeta> = BTreeMap::new();
    let mut found = Vec::new();
    for (border, meta) in ends {
        let (smallest, largest) = ages(meta);
        if !matches!(border, Border::Key(_, Place::Start)) {
            if open.get(&smallest).is_some_and(|other| std::ptr::eq(*other, meta)) {
                open.remove(&smallest);
            }
            continue;
        }
        let below = open.range(..=largest).next_back();
        match below.filter(|(_, other)| ages(other).1 >= smallest) {
            Some((_, other)) => {
                found.push(OrderConflict { level, left: other.number, right: meta.number });
            }
            None => {
                open.insert(smallest, meta);
            }
        }
    }
    found
}

/// Where a span begins or ends, in the order of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Border<'a> {
    Key(&'a [u8], Place),
    NoEnd,
}

/// What happens at a key: a span that ends before it is over when another one starts there. One
/// that ends with the key shares it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    EndBefore,
    Start,
    EndAfter,
}

impl<'a> Border<'a> {
    fn of_end(end: Bound<&'a [u8]>) -> Self {
        match end {
            Bound::Excluded(key) => Border::Key(key, Place::EndBefore),
            Bound::Included(key) => Border::Key(key, Place::EndAfter),
            Bound::Unbounded => Border::NoEnd,
        }
    }
}

/// A range of user keys: never empty, and its first key belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySpan<'a> {
    pub start: &'a [u8],
    pub end: Bound<&'a [u8]>,
}

impl<'a> KeySpan<'a> {
    /// True if every key of the span is below `key`.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        ends_before(self.end, key)
    }

    /// True if `key` lies in the span.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.start <= key && !self.ends_before(key)
    }

    /// True if both have a key in common.
    pub(crate) fn overlaps(&self, other: &KeySpan<'_>) -> bool {
        !self.ends_before(other.start) && !other.ends_before(self.start)
    }

    /// True if each key of `other` lies in this span.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn covers(&self, other: &KeySpan<'_>) -> bool {
        self.start <= other.start && compare_ends(other.end, self.end).is_le()
    }

    /// The smallest span that has all keys of both.
    #[must_use]
    pub(crate) fn joined(self, other: KeySpan<'a>) -> KeySpan<'a> {
        let further = compare_ends(self.end, other.end).is_lt();
        KeySpan {
            start: self.start.min(other.start),
            end: if further { other.end } else { self.end },
        }
    }
}

/// A borrowed end.
pub(crate) fn borrowed(end: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    end.as_ref().map(Vec::as_slice)
}

/// True if every key up to `end` is below `key`.
pub(crate) fn ends_before(end: Bound<&[u8]>, key: &[u8]) -> bool {
    match end {
        Bound::Included(last) => last < key,
        Bound::Excluded(end) => end <= key,
        Bound::Unbounded => false,
    }
}

/// The order of two ends: the one that excludes a key is before the one that includes it.
pub(crate) fn compare_ends(a: Bound<&[u8]>, b: Bound<&[u8]>) -> Ordering {
    Border::of_end(a).cmp(&Border::of_end(b))
}

impl FileMeta {
    /// The user keys from the first to the last that it has entries or range deletes of.
    pub(crate) fn span(&self) -> KeySpan<'_> {
        KeySpan { start: &self.start, end: borrowed(&self.end) }
    }

    /// True if every key of the table is below `key`.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.span().ends_before(key)
    }

    /// True if the table may hold keys of a range.
    pub(crate) fn overlaps(&self, range: &KeyBounds) -> bool {
        range.is_before_end(&self.start) && !self.ends_before(&range.start)
    }

    /// True if all keys of the table lie in a range.
    pub(crate) fn lies_within(&self, range: &KeyBounds) -> bool {
        let ends_within = range.end.as_ref().is_none_or(|end| self.ends_before(end));
        range.is_after_start(&self.start) && ends_within
    }
}

/// The bytes of some tables.
pub(crate) fn total_bytes(tables: &[Arc<FileMeta>]) -> u64 {
    tables.iter().map(|meta| meta.bytes).sum()
}

/// From the smallest to the largest sequence that some tables record.
pub(crate) fn sequence_span(tables: &[Arc<FileMeta>]) -> Option<RangeInclusive<SequenceNumber>> {
    let smallest = tables.iter().map(|meta| meta.smallest_sequence).min()?;
    let largest = tables.iter().map(|meta| meta.largest_sequence).max()?;
    Some(smallest..=largest)
}

/// The smallest span that has all keys of some tables.
pub(crate) fn key_span(tables: &[Arc<FileMeta>]) -> Option<KeySpan<'_>> {
    tables.iter().map(|meta| meta.span()).reduce(KeySpan::joined)
}

/// The places of the tables of a sorted level that share keys with `span`: they are neighbours, and
/// two binary searches find them in a level of any size.
pub(crate) fn overlapping_places(tables: &[Arc<FileMeta>], span: &KeySpan<'_>) -> Range<usize> {
    let start = tables.partition_point(|meta| meta.ends_before(span.start));
    let end = tables.partition_point(|meta| !span.ends_before(&meta.start));
    start..end.max(start)
}

/// The tables of `level`, which are `tables`, that share keys with `span`.
pub(crate) fn overlapping_tables(
    level: usize,
    tables: &[Arc<FileMeta>],
    span: &KeySpan<'_>,
) -> Vec<Arc<FileMeta>> {
    match level {
        0 => tables.iter().filter(|meta| meta.span().overlaps(span)).cloned().collect(),
        _ => tables[overlapping_places(tables, span)].to_vec(),
    }
}

/// `chosen` and all tables of the same level that share user keys with it, directly or through
/// another one, in the order of the level: what must go down together. `tables` are those of
/// `level`.
pub(crate) fn overlap_closure(
    level: usize,
    tables: &[Arc<FileMeta>],
    chosen: Vec<Arc<FileMeta>>,
) -> Vec<Arc<FileMeta>> {
    let mut closure = chosen;
    loop {
        let Some(span) = key_span(&closure) else { return closure };
        let wider = overlapping_tables(level, tables, &span);
        if wider.len() <= closure.len() {
            return wider;
        }
        closure = wider;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::range::KeyRange;
    use proptest::prelude::*;

    fn table(number: u64, keys: (Vec<u8>, Bound<Vec<u8>>), ages: (u64, u64)) -> FileMeta {
        FileMeta {
            keyspace: 0,
            number,
            table_id: number,
            bytes: 100,
            start: keys.0,
            end: keys.1,
            entries: 2,
            garbage: 0,
            expiring: Default::default(),
            range_deletes: 1,
            smallest_sequence: ages.0,
            largest_sequence: ages.1,
            global_sequence: None,
        }
    }

    #[test]
    fn larger_sequences_are_newer() {
        let upto = |key: u8| Bound::Included(vec![key]);
        let old = table(9, (vec![1], upto(5)), (1, 4));
        let new = table(3, (vec![2], upto(7)), (5, 6));
        assert_eq!(search_order(0, &new, &old), Ordering::Less);
        assert_eq!(search_order(1, &new, &old), Ordering::Greater);
    }

    /// Keys that are prefixes and successors of each other, ascending.
    const KEYS: [&[u8]; 9] = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"ab", b"b", b"b\0", b"\xff"];

    fn bound(kind: u8, key: usize) -> Bound<Vec<u8>> {
        match kind {
            0 => Bound::Included(KEYS[key].to_vec()),
            1 => Bound::Excluded(KEYS[key].to_vec()),
            _ => Bound::Unbounded,
        }
    }

    /// A span that is not empty.
    fn spans() -> impl Strategy<Value = (Vec<u8>, Bound<Vec<u8>>)> {
        (0..KEYS.len(), 0u8..3, 0..KEYS.len()).prop_map(|(start, kind, end)| {
            let (start, end) = (start.min(end), start.max(end));
            let kind = if start == end && kind == 1 { 0 } else { kind };
            (KEYS[start].to_vec(), bound(kind, end))
        })
    }

    /// Keys that tell all spans and ranges over [`KEYS`] apart: each of them, and some between it
    /// and its neighbours.
    fn probes() -> Vec<Vec<u8>> {
        let after =
            |key: &[u8]| [&[0][..], &[0, 0], &[0, 1], &[1]].map(|more| [key, more].concat());
        let mut probes: Vec<_> = KEYS.iter().flat_map(|key| after(key)).collect();
        probes.extend(KEYS.map(<[u8]>::to_vec));
        probes.sort();
        probes.dedup();
        probes
    }

    fn lies_in(key: &[u8], (start, end): &(Vec<u8>, Bound<Vec<u8>>)) -> bool {
        (Bound::Included(start.clone()), end.clone()).into_bounds().contains(key)
    }

    proptest! {
        #[test]
        fn spans_agree_with_the_keys_they_have(a in spans(), b in spans()) {
            let (left, right) = (table(1, a.clone(), (1, 1)), table(2, b.clone(), (1, 1)));
            let (left, right) = (left.span(), right.span());
            let keys = |is_in: &dyn Fn(&[u8]) -> bool| -> Vec<Vec<u8>> {
                probes().into_iter().filter(|key| is_in(key)).collect()
            };
            let (of_a, of_b) = (keys(&|key| lies_in(key, &a)), keys(&|key| lies_in(key, &b)));
            prop_assert_eq!(&of_a, &keys(&|key| left.holds(key)));
            prop_assert_eq!(left.overlaps(&right), of_a.iter().any(|key| of_b.contains(key)));
            let is_within = of_b.iter().all(|key| of_a.contains(key));
            // That an end before a successor is one with the key is no rule of the order of ends.
            prop_assert!(!left.covers(&right) || is_within);
            let successors = match (&a.1, &b.1) {
                (Bound::Included(a), Bound::Excluded(b)) => b.split_last() == Some((&0, a)),
                _ => false,
            };
            prop_assert!(left.covers(&right) || !is_within || successors);
            let joined = left.joined(right);
            prop_assert!(joined.covers(&left) && joined.covers(&right));
            for key in probes() {
                prop_assert_eq!(left.ends_before(&key), of_a.iter().all(|own| *own < key));
            }
        }

        #[test]
        fn ranges_agree_with_the_keys_of_a_table(
            keys in spans(),
            (from, start, to, end) in (0u8..3, 0..KEYS.len(), 0u8..3, 0..KEYS.len()),
        ) {
            let range = (bound(from, start), bound(to, end)).into_bounds();
            let meta = table(1, keys.clone(), (1, 1));
            let own: Vec<_> = probes().into_iter().filter(|key| lies_in(key, &keys)).collect();
            prop_assert_eq!(meta.lies_within(&range), own.iter().all(|key| range.contains(key)));
            if probes().iter().any(|key| range.contains(key)) {
                prop_assert_eq!(meta.overlaps(&range), own.iter().any(|key| range.contains(key)));
            }
        }

        /// The sweep finds a clash exactly where comparing every pair finds one.
        #[test]
        fn order_conflicts_agree_with_all_pairs(
            drawn in proptest::collection::vec((spans(), 0u64..20, 0u64..4), 0..9),
            level in 0usize..2,
        ) {
            let tables: Vec<FileMeta> = (1u64..).zip(drawn).map(|(number, (keys, age, ages))| {
                table(number, keys, (age, age + ages))
            }).collect();
            let clash = |a: &FileMeta, b: &FileMeta| {
                a.span().overlaps(&b.span())
                    && (level > 0 || a.smallest_sequence <= b.largest_sequence
                        && b.smallest_sequence <= a.largest_sequence)
            };
            let found = order_conflicts(level, &tables);
            let any = tables.iter().any(|a| tables.iter().any(|b| a.number < b.number && clash(a, b)));
            prop_assert_eq!(any, !found.is_empty());
            for pair in found {
                let [left, right] = [pair.left, pair.right].map(|n| &tables[n as usize - 1]);
                prop_assert!(clash(left, right) && pair.level == level);
            }
        }

        #[test]
        fn searches_of_a_sorted_level_find_what_comparing_all_finds(
            mut drawn in proptest::collection::vec(spans(), 0..9),
            probe in spans(),
        ) {
            // Tables of a sorted level share no keys.
            drawn.sort_by(|a, b| a.0.cmp(&b.0));
            let mut tables: Vec<Arc<FileMeta>> = Vec::new();
            for keys in drawn {
                let meta = Arc::new(table(tables.len() as u64, keys, (1, 1)));
                if tables.last().is_none_or(|last| last.ends_before(&meta.start)) {
                    tables.push(meta);
                }
            }
            let probe = table(99, probe, (1, 1));
            let found = overlapping_tables(1, &tables, &probe.span());
            prop_assert_eq!(found, overlapping_tables(0, &tables, &probe.span()));
        }

        #[test]
        fn closures_take_every_table_that_overlaps(
            drawn in proptest::collection::vec(spans(), 1..9),
        ) {
            let tables: Vec<_> =
                (1u64..).zip(drawn).map(|(n, keys)| Arc::new(table(n, keys, (n, n)))).collect();
            let closure = overlap_closure(0, &tables, vec![Arc::clone(&tables[0])]);
            let is_in = |meta: &FileMeta| closure.iter().any(|own| own.number == meta.number);
            let span = key_span(&closure).unwrap();
            for meta in &tables {
                prop_assert_eq!(is_in(meta), meta.span().overlaps(&span));
            }
        }
    }
}
