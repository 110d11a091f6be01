//! The order of the tables of a level, and what must hold for it: one rule for all of siftdb.
//!
//! Level 0 is searched newest table first. The newer of two tables is the one with the larger
//! `largest_sequence`; file numbers say nothing, since a table can be written anew. Tables of level
//! 0 that share user keys have disjoint ranges of sequences, so every entry of the newer one is
//! newer than every entry of the older one, and two such tables never tie. A table that is written
//! anew at level 0 keeps the range that was recorded for it, although entries may have gone.
//!
//! Every deeper level is sorted by key, and no user key lies in two of its tables.
//!
//! `set.rs` checks [`clashes`] before it logs an edit, `manifest.rs` when it replays one, `verify`
//! whenever it is asked to.

use crate::base::filename::FileName;
use crate::base::key::{SEQUENCE_MAX, compare_internal, user_key};
use crate::tree::edit::FileMeta;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// The order in which the tables of `level` are searched: newest first at level 0, by key in the
/// others.
#[must_use]
pub fn search_order(level: usize, a: &FileMeta, b: &FileMeta) -> Ordering {
    // The number decides only between tables that share no key: it makes the order total.
    let age = |meta: &FileMeta| (meta.largest_sequence, meta.number);
    match level {
        0 => age(b).cmp(&age(a)),
        _ => compare_internal(&a.smallest, &b.smallest),
    }
}

/// Two tables of one level that share user keys and must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The level of both.
    pub level: usize,
    /// The number of the one whose keys begin first.
    pub left: u64,
    /// The number of the other one.
    pub right: u64,
}

impl fmt::Display for Clash {
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
pub fn clashes<'t>(level: usize, tables: impl IntoIterator<Item = &'t FileMeta>) -> Vec<Clash> {
    let tables: Vec<&FileMeta> = tables.into_iter().collect();
    // In a sorted level age excuses nothing: there every table counts as of all ages.
    let ages = |meta: &FileMeta| match level {
        0 => (meta.smallest_sequence, meta.largest_sequence),
        _ => (0, SEQUENCE_MAX),
    };
    let mut ends: Vec<(&[u8], bool, &FileMeta)> = Vec::with_capacity(2 * tables.len());
    for meta in &tables {
        ends.push((user_key(&meta.smallest), false, meta));
        ends.push((user_key(&meta.largest), true, meta));
    }
    // Beginnings before ends: tables that touch at one user key share it.
    ends.sort_by_key(|(key, is_end, meta)| (*key, *is_end, meta.number));
    // A sweep over the keys. The tables around the current key, by their smallest sequence: their
    // ranges are disjoint, so of all of them only one can reach into the next table's.
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
                found.push(Clash { level, left: other.number, right: meta.number });
            }
            None => {
                open.insert(smallest, meta);
            }
        }
    }
    found
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
                user_key(&a.smallest) <= user_key(&b.largest)
                    && user_key(&b.smallest) <= user_key(&a.largest)
                    && (level > 0 || a.smallest_sequence <= b.largest_sequence
                        && b.smallest_sequence <= a.largest_sequence)
            };
            let found = clashes(level, &tables);
            let any = tables.iter().any(|a| tables.iter().any(|b| a.number < b.number && clash(a, b)));
            prop_assert_eq!(any, !found.is_empty());
            for pair in found {
                let [left, right] = [pair.left, pair.right].map(|n| &tables[n as usize - 1]);
                prop_assert!(clash(left, right) && pair.level == level);
            }
        }
    }
}
