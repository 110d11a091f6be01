//! Keys to load and keys to miss, the same for the same seed.
//!
//! A [`KeySet`] holds given or generated keys. Its absent keys are neighbours of present ones: they
//! lie inside the key range of tables, so only a filter or a data block can tell that they are
//! absent. Benchmarks use numbered keys instead, which take no memory: [`present`] and [`absent`]
//! make the key of a number, [`value`] makes its value.

use std::collections::BTreeSet;

/// A reversible mixer: distinct numbers give distinct numbers that look random.
pub fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The splitmix64 generator: advances `state` and returns a random number.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// Numbers below `count` in random order, without end.
pub fn random_numbers(count: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |step: u64| mix(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % count)
}

/// 16 hex digits in no order, other ones for each index.
pub(crate) fn numbered(index: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mixed = mix(index);
    std::array::from_fn(|place| DIGITS[(mixed >> (60 - 4 * place) & 15) as usize])
}

/// A random UUID (version 4) as text, of 36 bytes: `head` is what comes before the variant.
pub(crate) fn uuid(head: u64, tail: u64) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        head >> 32,
        head >> 16 & 0xffff,
        head & 0xfff,
        0x8000 | tail >> 48 & 0x3fff,
        tail & 0xffff_ffff_ffff
    )
}

/// The bytes of a number, the highest first.
pub(crate) fn swapped(number: u64) -> [u8; 8] {
    std::array::from_fn(|place| (number >> (56 - 8 * place)) as u8)
}

/// The key of entry `n`: 16 hex digits, in no order and without a common prefix.
pub fn present(n: u64) -> [u8; 16] {
    numbered(2 * n)
}

/// A key between those of [`present`].
pub fn absent(n: u64) -> [u8; 16] {
    numbered(2 * n + 1)
}

/// The value of entry `n`: 100 bytes, of which half can be compressed.
pub fn value(n: u64) -> Vec<u8> {
    let mut bytes = vec![b'v'; 100];
    for (place, chunk) in bytes[..48].chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix(n ^ (place as u64) << 56).to_le_bytes());
    }
    bytes
}

/// A number below `bound`, which is at least 1. The bias is below 2^-32 for any set that fits
/// memory.
pub(crate) fn below(state: &mut u64, bound: usize) -> usize {
    ((u128::from(splitmix64(state)) * bound as u128) >> 64) as usize
}

/// A number from 0 to 1, without 1.
pub(crate) fn unit(state: &mut u64) -> f64 {
    (splitmix64(state) >> 11) as f64 / (1u64 << 53) as f64
}

/// The numbers below `count` in an order that looks random.
pub(crate) fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    let mut state = seed;
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, below(&mut state, last + 1));
    }
    numbers
}

/// Different keys, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<Vec<u8>>,
}

impl KeySet {
    /// Bytes of the longest key that a database takes; loading a longer one fails.
    pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

    /// The different ones among `keys`.
    pub fn new(keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        KeySet { keys }
    }

    /// `count` different keys of 16 bytes, such as `user:07364129880`.
    pub fn generate(count: usize, seed: u64) -> Self {
        let mut state = seed;
        let mut numbers = BTreeSet::new();
        let span = KeySet::generated_span(count);
        while numbers.len() < count {
            numbers.insert(splitmix64(&mut state) % span);
        }
        KeySet::new(numbers.into_iter().map(KeySet::generated_key))
    }

    /// The numbers of `count` generated keys are below this.
    pub(crate) fn generated_span(count: usize) -> u64 {
        // A share of one in two of the numbers there are, so that `generate` ends for every count.
        (2 * count as u64).max(100_000_000_000)
    }

    /// The generated key of a number.
    pub(crate) fn generated_key(number: u64) -> Vec<u8> {
        format!("user:{number:011}").into_bytes()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of all keys.
    pub fn bytes(&self) -> u64 {
        self.keys.iter().map(|key| key.len() as u64).sum()
    }

    /// How many keys are below `key`.
    pub(crate) fn rank(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|other| other.as_slice() < key)
    }

    /// True if `key` is one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.keys.binary_search_by(|other| other.as_slice().cmp(key)).is_ok()
    }

    /// The keys, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// The indexes of all keys in an order that looks random: the order of loading.
    pub(crate) fn shuffled(&self, seed: u64) -> Vec<u32> {
        shuffled(self.keys.len() as u32, seed)
    }

    pub(crate) fn key(&self, place: usize) -> &[u8] {
        self.keys.get(place).map_or(&[], Vec::as_slice)
    }

    /// `count` keys of the set, each drawn from all.
    pub fn present(&self, count: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut state = seed;
        if self.keys.is_empty() {
            return Vec::new();
        }
        (0..count).map(|_| self.key(below(&mut state, self.keys.len())).to_vec()).collect()
    }

    /// `count` keys that are not in the set, each a neighbour of one that is.
    pub fn absent(&self, count: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut state = seed;
        if self.keys.is_empty() {
            return Vec::new();
        }
        (0..count)
            .map(|_| {
                let mut key = self.key(below(&mut state, self.keys.len())).to_vec();
                let draw = splitmix64(&mut state);
                match key.last_mut() {
                    // Within a nibble: a digit stays near the digits, a letter near the letters.
                    Some(last) if draw & 1 == 0 => *last ^= (draw >> 1) as u8 & 15 | 1,
                    _ => key.push(b'0' + ((draw >> 1) % 10) as u8),
                }
                while self.contains(&key) {
                    key.push(b'0' + (splitmix64(&mut state) % 10) as u8);
                }
                key
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_equals_published_values() {
        let mut state = 1_234_567;
        assert_eq!(splitmix64(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(&mut state), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_seed_determines_sorted_distinct_keys() {
        let keys = KeySet::generate(5_000, 7);
        assert_eq!(keys, KeySet::generate(5_000, 7));
        assert_ne!(keys, KeySet::generate(5_000, 8));
        assert_eq!(keys.len(), 5_000);
        assert!(keys.iter().all(|key| key.len() == 16));
        assert!(keys.iter().zip(keys.iter().skip(1)).all(|(a, b)| a < b));
        let mut order = keys.shuffled(1);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert!(order.iter().zip(0..).all(|(a, b)| *a == b));
    }

    #[test]
    fn absent_keys_lie_within_the_range() {
        // Dense on purpose: many neighbours are in the set.
        let keys = KeySet::new((0..2_000u32).map(|i| format!("{i:04}").into_bytes()));
        let absent = keys.absent(3_000, 5);
        assert_eq!(absent.len(), 3_000);
        assert!(absent.iter().all(|key| !keys.contains(key)));
        let inside = absent.iter().filter(|key| key.as_slice() < b"1999".as_slice()).count();
        assert!(inside > 2_900, "{inside}");
        assert!(keys.present(100, 5).iter().all(|key| keys.contains(key)));
        let lone = KeySet::new([Vec::new()]);
        assert!(lone.absent(10, 1).iter().all(|key| !key.is_empty()));
        assert!(KeySet::default().absent(10, 1).is_empty());
    }
}
