//! The order of keys: bytewise, as in siftdb and LevelDB, or its reverse, which RocksDB has, too.
//!
//! Other modules mean this order by "above", "below", "smallest" and "largest".

use crate::internal_key::split;
use std::cmp::Ordering;

/// The order of user keys. Of one user key the newest version comes first in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// Bytes ascend.
    #[default]
    Bytewise,
    /// Bytes descend.
    Reverse,
}

impl KeyOrder {
    /// The order of this name; `None` if it is another one.
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        let orders = [KeyOrder::Bytewise, KeyOrder::Reverse];
        orders.into_iter().find(|order| order.name().as_bytes() == name)
    }

    /// The name of its comparator in RocksDB.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KeyOrder::Bytewise => "leveldb.BytewiseComparator",
            KeyOrder::Reverse => "rocksdb.ReverseBytewiseComparator",
        }
    }

    /// The order of user keys.
    pub(crate) fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            KeyOrder::Bytewise => a.cmp(b),
            KeyOrder::Reverse => b.cmp(a),
        }
    }

    /// The order of internal keys: by user key, then trailer descending.
    pub(crate) fn compare_internal(self, a: &[u8], b: &[u8]) -> Ordering {
        match (split(a), split(b)) {
            (Some((key_a, trailer_a)), Some((key_b, trailer_b))) => {
                self.compare(key_a, key_b).then(trailer_b.cmp(&trailer_a))
            }
            // Only a damaged block has such a key.
            _ => self.compare(a, b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internal_key::internal_key;

    #[test]
    fn the_newest_version_is_first_in_both_orders() {
        let sorted = |order: KeyOrder| {
            let of = |(key, sequence): (&str, u64)| internal_key(key.as_bytes(), sequence << 8 | 1);
            let mut keys = [("a", 2), ("ab", 1), ("a", 3), ("b", 1), ("", 9)].map(of);
            keys.sort_by(|a, b| order.compare_internal(a, b));
            keys.map(|key| {
                let (key, trailer) = split(&key).unwrap();
                format!("{}{}", key.escape_ascii(), trailer >> 8)
            })
        };
        assert_eq!(sorted(KeyOrder::Bytewise), ["9", "a3", "a2", "ab1", "b1"]);
        assert_eq!(sorted(KeyOrder::Reverse), ["b1", "ab1", "a3", "a2", "9"]);
    }

    #[test]
    fn other_orders_are_not_known() {
        for order in [KeyOrder::Bytewise, KeyOrder::Reverse] {
            assert_eq!(KeyOrder::of_name(order.name().as_bytes()), Some(order));
        }
        assert_eq!(KeyOrder::of_name(b"leveldb.BytewiseComparator.u64ts"), None);
    }
}
