//! The tables of one level: in which order they are searched, and which of them share keys.
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
use crate::base::key::{SEQUENCE_MAX, SequenceNumber, compare_internal, user_key};
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::tree::edit::FileMeta;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// The order in which the tables of `level` are searched: newest first at level 0, by key in the
/// others.
#[must_use]
pub(crate) fn search_order(level: usize, a: &FileMeta, b: &FileMeta) -> Ordering {
    // The number decides only between tables that share no key: it makes the order total.
    let age = |meta: &FileMeta| (meta.largest_sequence, meta.number);
    match level {
        0 => age(b).cmp(&age(a)),
        _ => compare_internal(&a.smallest, &b.smallest),
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
#[must_use]
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
    let mut ends: Vec<(&[u8], bool, &FileMeta)> = Vec::with_capacity(2 * tables.len());
    for meta in &tables {
        ends.push((meta.first_key(), false, meta));
        ends.push((meta.last_key(), true, meta));
    }
    // Beginnings before ends: tables that touch at one user key share it.
    ends.sort_by_key(|(key, is_end, meta)| (*key, *is_end, meta.number));
    // A sweep over the keys. `open` has the tables around the current key by their smallest
    // sequence. Their ranges of sequences are disjoint, so only the last one that begins before the
    // end of the next table can overlap it.
    let mut open: BTreeMap<u64, &FileMeta> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, is_end, meta) in ends {
        let (smallest, largest) = ages(meta);
        if is_end {
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

/// The user keys from the first to the last of a table.
impl FileMeta {
    /// Its smallest user key.
    #[must_use]
    pub(crate) fn first_key(&self) -> &[u8] {
        user_key(&self.smallest)
    }

    /// Its largest user key.
    #[must_use]
    pub(crate) fn last_key(&self) -> &[u8] {
        user_key(&self.largest)
    }

    /// True if the table may hold keys of a range.
    #[must_use]
    pub(crate) fn overlaps(&self, range: &KeyBounds) -> bool {
        range.is_before_end(self.first_key()) && range.is_after_start(self.last_key())
    }
}

/// The bytes of some tables.
#[must_use]
pub(crate) fn total_bytes(tables: &[Arc<FileMeta>]) -> u64 {
    tables.iter().map(|meta| meta.bytes).sum()
}

/// From the smallest to the largest sequence that some tables record.
#[must_use]
pub(crate) fn sequence_span(tables: &[Arc<FileMeta>]) -> Option<RangeInclusive<SequenceNumber>> {
    let smallest = tables.iter().map(|meta| meta.smallest_sequence).min()?;
    let largest = tables.iter().map(|meta| meta.largest_sequence).max()?;
    Some(smallest..=largest)
}

/// The smallest and the largest user key of some tables.
#[must_use]
pub(crate) fn key_span(tables: &[Arc<FileMeta>]) -> Option<(&[u8], &[u8])> {
    let smallest = tables.iter().map(|meta| meta.first_key()).min()?;
    let largest = tables.iter().map(|meta| meta.last_key()).max()?;
    Some((smallest, largest))
}

/// Those of `tables` that may hold a user key from `smallest` to `largest`, both included.
#[must_use]
pub(crate) fn overlapping_tables(
    tables: &[Arc<FileMeta>],
    smallest: &[u8],
    largest: &[u8],
) -> Vec<Arc<FileMeta>> {
    let touching =
        tables.iter().filter(|meta| meta.first_key() <= largest && meta.last_key() >= smallest);
    touching.cloned().collect()
}

/// `chosen` and all tables of the same level that share user keys with it, directly or through
/// another one, in the order of the level: what must go down together.
#[must_use]
pub(crate) fn overlap_closure(
    tables: &[Arc<FileMeta>],
    chosen: Vec<Arc<FileMeta>>,
) -> Vec<Arc<FileMeta>> {
    let mut closure = chosen;
    loop {
        let Some((smallest, largest)) = key_span(&closure) else { return closure };
        let wider = overlapping_tables(tables, smallest, largest);
        if wider.len() <= closure.len() {
            return wider;
        }
        closure = wider;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use proptest::prelude::*;

    fn table(number: u64, keys: (u8, u8), ages: (u64, u64)) -> FileMeta {
        let key = |key: u8, sequence| {
            let mut bytes = Vec::new();
            put_internal_key(&mut bytes, &[key], sequence, ValueKind::Put);
            bytes
        };
        FileMeta {
            keyspace: 0,
            number,
            table_id: number,
            bytes: 100,
            smallest: key(keys.0, ages.1),
            largest: key(keys.1, ages.0),
            entries: 2,
            garbage: 0,
            smallest_sequence: ages.0,
            largest_sequence: ages.1,
        }
    }

    #[test]
    fn larger_sequences_are_newer() {
        let (old, new) = (table(9, (1, 5), (1, 4)), table(3, (2, 7), (5, 6)));
        assert_eq!(search_order(0, &new, &old), Ordering::Less);
        assert_eq!(search_order(1, &new, &old), Ordering::Greater);
    }

    proptest! {
        /// The sweep finds a clash exactly where comparing every pair finds one.
        #[test]
        fn order_conflicts_agree_with_all_pairs(
            drawn in proptest::collection::vec((0u8..9, 0u8..4, 0u64..20, 0u64..4), 0..9),
            level in 0usize..2,
        ) {
            let tables: Vec<FileMeta> = (1u64..).zip(drawn).map(|(number, (key, keys, age, ages))| {
                table(number, (key, key + keys), (age, age + ages))
            }).collect();
            let clash = |a: &FileMeta, b: &FileMeta| {
                a.first_key() <= b.last_key()
                    && b.first_key() <= a.last_key()
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
    }
}
