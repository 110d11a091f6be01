//! Keys and values of a benchmark: the same for every store, whatever the order in which they are
//! asked.
//!
//! Entry `n` has the key of index `2 n`. Index `2 n + 1` is a key that is absent and lies among the
//! present ones, so that only a filter or a data block can tell. Keys are made from numbers and
//! take no memory, unless they are those of a file or of a database. Values are windows of one pool
//! of bytes, so that making one costs nothing.

use crate::experiment::keys::{KeySet, below, mix, numbered, shuffled, splitmix64, swapped, uuid};
use clap::ValueEnum;
use serde::Serialize;

/// The shape of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KeyShape {
    /// 16 hex digits in no order and without a common prefix.
    #[value(alias = "hex")]
    Random,
    /// 16 decimal digits, ascending.
    Sequential,
    /// A random UUID as text, of 36 bytes.
    Uuid,
    /// A path of 45 bytes, of which neighbours share most.
    #[value(alias = "paths")]
    Path,
    /// A number in 8 bytes, big-endian, ascending.
    #[value(alias = "big-endian")]
    U64,
    /// 24 equal bytes before 16 hex digits in no order.
    Shared24,
    /// 8 bytes in no order.
    Bytes8,
    /// 64 hex digits in no order.
    Bytes64,
}

impl KeyShape {
    /// Replaces `key` by the key of an index.
    fn write(self, index: u64, key: &mut Vec<u8>) {
        key.clear();
        match self {
            KeyShape::Random => key.extend(numbered(index)),
            KeyShape::Sequential => key.extend(format!("{index:016}").bytes()),
            KeyShape::Uuid => key.extend(uuid_of(index).bytes()),
            KeyShape::Path => {
                let (folder, file) = (index >> 12, index & 0xfff);
                let path = format!("/srv/data/archive/{folder:010}/object-{file:04}.json");
                key.extend(path.bytes());
            }
            KeyShape::U64 => key.extend(swapped(index)),
            KeyShape::Shared24 => {
                key.extend(b"tenant/0042/collection/8");
                key.extend(numbered(index));
            }
            KeyShape::Bytes8 => key.extend(swapped(mix(index))),
            KeyShape::Bytes64 => (0..4).for_each(|part| key.extend(numbered(index ^ part << 60))),
        }
    }

    /// A number that grows with the key of an index.
    fn order(self, index: u64) -> u64 {
        match self {
            KeyShape::Random | KeyShape::Shared24 | KeyShape::Bytes8 | KeyShape::Bytes64 => {
                mix(index)
            }
            KeyShape::Uuid => uuid_head(index),
            KeyShape::Sequential | KeyShape::Path | KeyShape::U64 => index,
        }
    }
}

/// The first half of a UUID, with the version 4 in its place.
fn uuid_head(index: u64) -> u64 {
    // The index is within the 60 bits that the version leaves, so that no two are equal.
    let mixed = mix(index);
    (mixed & !0xf000) | 0x4000
}

fn uuid_of(index: u64) -> String {
    // The tail has the four bits of the head that the version takes, so that no two are equal.
    uuid(uuid_head(index), mix(index) >> 12 & 0xf | mix(index ^ 1 << 63) << 4)
}

#[derive(Debug)]
enum Source {
    Shape(KeyShape),
    /// Given keys, ascending, and as many that are absent.
    Listed(Vec<Vec<u8>>, Vec<Vec<u8>>),
}

/// The entries that are written and looked up.
#[derive(Debug)]
pub struct Data {
    /// Number of entries.
    pub count: u64,
    source: Source,
    /// Bytes of each value.
    pub value_bytes: usize,
    pool: Vec<u8>,
}

/// Offsets in the pool at which values start.
const POOL_STARTS: usize = 1 << 20;

impl Data {
    /// The most keys: a position in the order of loading is a `u32`.
    pub const KEYS_MAX: u64 = u32::MAX as u64;

    /// `count` entries with keys of a shape and values of `value_bytes`, half of which can be
    /// compressed. `count` is 1 to [`Data::KEYS_MAX`].
    pub fn of_shape(shape: KeyShape, count: u64, value_bytes: usize) -> Self {
        Data::new(Source::Shape(shape), count.clamp(1, Data::KEYS_MAX), value_bytes)
    }

    /// Entries with the keys of a set, which is not empty.
    pub fn of_keys(keys: &KeySet, value_bytes: usize, seed: u64) -> Self {
        let absent = keys.absent(keys.len(), seed);
        Data::of_lists(keys.iter().map(<[u8]>::to_vec).collect(), absent, value_bytes)
    }

    /// Entries with keys that are `present`, ascending, and lookups of those and of `absent` ones.
    /// There is at least one of both.
    pub fn of_lists(present: Vec<Vec<u8>>, absent: Vec<Vec<u8>>, value_bytes: usize) -> Self {
        let count = present.len() as u64;
        Data::new(Source::Listed(present, absent), count, value_bytes)
    }

    fn new(source: Source, count: u64, value_bytes: usize) -> Self {
        let mut pool = Vec::new();
        let mut state = 1;
        while pool.len() <= POOL_STARTS + value_bytes {
            pool.extend_from_slice(&splitmix64(&mut state).to_le_bytes());
            pool.extend_from_slice(b"constant");
        }
        Data { count, source, value_bytes, pool }
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        let mut key = Vec::new();
        let mut key_bytes = |n| {
            self.present(n, &mut key);
            key.len() as u64
        };
        let keys = match &self.source {
            Source::Shape(_) => self.count * key_bytes(0),
            Source::Listed(..) => (0..self.count).map(key_bytes).sum(),
        };
        keys + self.count * self.value_bytes as u64
    }

    /// Replaces `key` by the key of entry `n`. From [`Data::count`] on these are new keys.
    pub fn present(&self, n: u64, key: &mut Vec<u8>) {
        match &self.source {
            Source::Shape(shape) => shape.write(2 * n, key),
            Source::Listed(keys, _) => {
                key.clear();
                let listed = keys.get((n % self.count) as usize);
                key.extend_from_slice(listed.map_or(&[], Vec::as_slice));
                if n >= self.count {
                    key.extend_from_slice(format!("#{n}").as_bytes());
                }
            }
        }
    }

    /// Replaces `key` by a key that no entry has, next to that of entry `n`.
    pub fn absent(&self, n: u64, key: &mut Vec<u8>) {
        match &self.source {
            Source::Shape(shape) => shape.write(2 * n + 1, key),
            Source::Listed(_, keys) => {
                key.clear();
                let listed = keys.get((n % keys.len().max(1) as u64) as usize);
                key.extend_from_slice(listed.map_or(&[], Vec::as_slice));
            }
        }
    }

    /// The value of entry `n`, after it was written this often before.
    pub fn value(&self, n: u64, version: u64) -> &[u8] {
        let mut state = mix(n) ^ version;
        let start = below(&mut state, POOL_STARTS);
        &self.pool[start..start + self.value_bytes]
    }

    /// The numbers of all entries, in the order of their keys.
    pub fn ascending(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..self.count as u32).collect();
        if let Source::Shape(shape) = &self.source {
            numbers.sort_unstable_by_key(|n| shape.order(2 * u64::from(*n)));
        }
        numbers
    }

    /// The numbers of all entries, in an order that looks random.
    pub fn shuffled(&self, seed: u64) -> Vec<u32> {
        shuffled(self.count as u32, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keys(data: &Data, make: impl Fn(&Data, u64, &mut Vec<u8>)) -> Vec<Vec<u8>> {
        let key = |n| {
            let mut key = b"old".to_vec();
            make(data, n, &mut key);
            key
        };
        (0..data.count).map(key).collect()
    }

    #[test]
    fn keys_are_distinct_in_every_shape() {
        let listed = KeySet::new((0..3_000u32).map(|i| format!("{i:04}").into_bytes()));
        let shapes = KeyShape::value_variants();
        let shapes = shapes.iter().map(|shape| Data::of_shape(*shape, 3_000, 10));
        for data in shapes.into_iter().chain([Data::of_keys(&listed, 10, 1)]) {
            let (present, absent) = (keys(&data, Data::present), keys(&data, Data::absent));
            let all: BTreeSet<&Vec<u8>> = present.iter().collect();
            assert_eq!(all.len(), 3_000);
            assert!(absent.iter().all(|key| !all.contains(key)));
            let mut new = Vec::new();
            data.present(3_000, &mut new);
            assert!(!all.contains(&new) && !absent.contains(&new), "{new:?}");
            let sorted: Vec<&Vec<u8>> =
                data.ascending().iter().map(|n| &present[*n as usize]).collect();
            assert!(sorted.is_sorted(), "{:?}", data.source);
            // Absent keys are inside the range of the present ones.
            let inside = absent.iter().filter(|key| **key < **all.last().unwrap()).count();
            assert!(inside > 2_990, "{inside}");
        }
    }

    #[test]
    fn values_have_their_length_and_repeat() {
        for bytes in [0, 1, 100, 5_000] {
            let data = Data::of_shape(KeyShape::U64, 10, bytes);
            assert_eq!(data.value(3, 0).len(), bytes);
            assert_eq!(data.value(3, 0), data.value(3, 0));
        }
        let data = Data::of_shape(KeyShape::U64, 10, 100);
        assert_ne!(data.value(3, 0), data.value(3, 1));
        let mut key = Vec::new();
        Data::of_shape(KeyShape::Uuid, 10, 0).present(7, &mut key);
        let text = String::from_utf8(key).unwrap();
        assert!(text.len() == 36 && text.as_bytes()[14] == b'4', "{text}");
    }
}
