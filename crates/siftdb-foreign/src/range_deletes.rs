//! RocksDB's range deletes: which of them cover an entry.
//!
//! A range delete of a table covers only what is between the table's ends, as internal keys. A
//! compaction may have written one range delete into several tables, and dropped it from some of
//! them since, where newer entries may have the sequence number 0 by now.

use crate::internal_key::{SEQUENCE_MAX, split};
use crate::key_order::KeyOrder;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// The trailer at the end of a table that a range delete extended: the end is no key.
const SENTINEL: u64 = SEQUENCE_MAX << 8 | 0xf;

/// A place in the order of internal keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    key: Vec<u8>,
    /// The complement of the trailer, because of one user key the newest version comes first.
    rank: u64,
    /// The order of user keys, the same in all places of a column family.
    order: KeyOrder,
}

impl Place {
    fn compare(&self, key: &[u8], rank: u64) -> Ordering {
        self.order.compare(&self.key, key).then(self.rank.cmp(&rank))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(&other.key, other.rank)
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A range delete: entries from `start` on, before `end`, of older sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    start: Place,
    end: Place,
    sequence: u64,
}

impl RangeDelete {
    /// The range delete of the keys from `start` on, before `end`, in this order; `None` if these
    /// are none.
    pub(crate) fn of_keys(
        start: &[u8],
        end: &[u8],
        sequence: u64,
        order: KeyOrder,
    ) -> Option<Self> {
        let [start, end] = [start, end].map(|key| Place { key: key.to_vec(), rank: 0, order });
        let range = RangeDelete { start, end, sequence };
        (range.start < range.end).then_some(range)
    }

    /// The part of it between the internal keys at the ends of its table; `None` if there is none.
    pub(crate) fn within(self, smallest: &[u8], largest: &[u8]) -> Option<Self> {
        let (smallest, trailer) = split(smallest)?;
        // Before all kinds of entries of this sequence number.
        let order = self.start.order;
        let first = Place { key: smallest.to_vec(), rank: !(trailer | 0xff), order };
        let (largest, trailer) = split(largest)?;
        let after = match trailer >> 8 {
            _ if trailer == SENTINEL => trailer,
            // No other table has an older version of this key, so a range delete that covered it
            // would have extended the table.
            0 => trailer,
            sequence => (sequence - 1) << 8 | 0xff,
        };
        let last = Place { key: largest.to_vec(), rank: !after, order };
        let range = RangeDelete {
            start: self.start.max(first),
            end: self.end.min(last),
            sequence: self.sequence,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Finds the newest range delete that covers an entry. It is asked in the order of internal keys.
#[derive(Debug)]
pub(crate) struct RangeDeletes {
    /// Those that begin after the last entry, the first one last.
    ahead: Vec<RangeDelete>,
    /// Those that have begun and may not be over: ends and sequence numbers, the first end on top.
    open: BinaryHeap<Reverse<(Place, u64)>>,
    /// How many of these have each sequence number.
    sequences: BTreeMap<u64, usize>,
}

impl RangeDeletes {
    /// Before the first entry.
    pub(crate) fn new(mut ranges: Vec<RangeDelete>) -> Self {
        ranges.sort_by(|a, b| b.start.cmp(&a.start));
        RangeDeletes { ahead: ranges, open: BinaryHeap::new(), sequences: BTreeMap::new() }
    }

    /// Whether a range delete covers the entry of this user key and trailer.
    pub(crate) fn covers(&mut self, key: &[u8], trailer: u64) -> bool {
        let is_at_most = |place: &Place| place.compare(key, !trailer).is_le();
        while self.ahead.last().is_some_and(|range| is_at_most(&range.start)) {
            let Some(range) = self.ahead.pop() else { break };
            *self.sequences.entry(range.sequence).or_default() += 1;
            self.open.push(Reverse((range.end, range.sequence)));
        }
        while self.open.peek().is_some_and(|Reverse((end, _))| is_at_most(end)) {
            let Some(Reverse((_, sequence))) = self.open.pop() else { break };
            if let Some(count) = self.sequences.get_mut(&sequence) {
                *count -= 1;
                if *count == 0 {
                    self.sequences.remove(&sequence);
                }
            }
        }
        self.sequences.last_key_value().is_some_and(|(newest, _)| *newest > trailer >> 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internal_key::internal_key;
    use proptest::prelude::*;

    const KEYS: [&[u8]; 6] = [b"", b"a", b"ab", b"b", b"ba", b"c"];

    proptest! {
        /// Each entry is covered as a search of all range deletes says.
        #[test]
        fn entries_are_covered_as_by_a_search_of_all(
            order in prop_oneof![Just(KeyOrder::Bytewise), Just(KeyOrder::Reverse)],
            ranges in prop::collection::vec((0usize..6, 0usize..6, 1u64..20), 0..12),
            entries in prop::collection::vec((0usize..6, 1u64..20), 0..30),
        ) {
            let of_keys = |(start, end, sequence): &(usize, usize, u64)| {
                RangeDelete::of_keys(KEYS[*start], KEYS[*end], *sequence, order)
            };
            let mut deletes = RangeDeletes::new(ranges.iter().filter_map(of_keys).collect());
            let mut keys: Vec<_> = entries
                .iter()
                .map(|(key, sequence)| internal_key(KEYS[*key], sequence << 8 | 1))
                .collect();
            keys.sort_by(|a, b| order.compare_internal(a, b));
            for internal in keys {
                let (user_key, trailer) = split(&internal).unwrap();
                let covered = ranges.iter().any(|(start, end, sequence)| {
                    let (start, end) = (KEYS[*start], KEYS[*end]);
                    let is_within = match order {
                        KeyOrder::Bytewise => start <= user_key && user_key < end,
                        KeyOrder::Reverse => start >= user_key && user_key > end,
                    };
                    is_within && *sequence > trailer >> 8
                });
                prop_assert_eq!(deletes.covers(user_key, trailer), covered);
            }
        }
    }

    /// Checks tables with ends of these user keys, of which the order is a, b, l, m, y, z.
    fn check_ends(order: KeyOrder, [a, b, l, m, y, z]: [&[u8]; 6]) {
        let covered = |smallest: Vec<u8>, largest: Vec<u8>, key: &[u8], sequence: u64| {
            let range = RangeDelete::of_keys(b, y, 50, order).unwrap();
            let ranges = range.within(&smallest, &largest).into_iter().collect();
            RangeDeletes::new(ranges).covers(key, sequence << 8 | 1)
        };
        let of = |key: &[u8], sequence: u64| internal_key(key, sequence << 8 | 1);
        let (all, cut) = ((of(a, 9), of(z, 9)), internal_key(m, SENTINEL));
        assert!(covered(all.0.clone(), all.1.clone(), b, 49));
        assert!(!covered(all.0.clone(), all.1.clone(), b, 50));
        assert!(!covered(all.0.clone(), all.1.clone(), y, 3));
        assert!(covered(all.0.clone(), cut.clone(), l, 3));
        assert!(!covered(all.0.clone(), cut, m, 3));
        // Versions of one key may be in two tables.
        assert!(covered(all.0.clone(), of(m, 7), m, 7));
        assert!(!covered(all.0.clone(), of(m, 7), m, 6));
        assert!(!covered(of(m, 7), all.1.clone(), m, 8));
        assert!(covered(of(m, 7), all.1, m, 7));
        assert!(!covered(all.0, of(m, 0), m, 0));
        assert!(!covered(of(y, 7), of(z, 7), y, 7));
    }

    #[test]
    fn a_range_delete_ends_with_its_table() {
        check_ends(KeyOrder::Bytewise, [b"a", b"b", b"l", b"m", b"y", b"z"]);
        check_ends(KeyOrder::Reverse, [b"z", b"y", b"m", b"l", b"b", b"a"]);
    }
}
