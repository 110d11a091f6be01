//! Keys and values: the same for every engine, whatever the order in which they are asked.
//!
//! An entry has a number `n` below the number of keys. Its key is made from the index `4 n`;
//! the indexes between are keys that are absent (`4 n + 1`) or written later (`4 n + 2`), so that
//! both fall between present keys in every [`KeyShape`]. Values are windows of one pool of bytes,
//! half of it random, so that making one costs nothing while a clock runs.

use crate::tally::Tally;
use clap::{Args, ValueEnum, value_parser};
use siftdb_cli::experiment::bench::{Distribution, Sampler};
use siftdb_cli::experiment::mix;
use std::sync::OnceLock;

/// Offsets in the pool at which values start.
const POOL_STARTS: usize = 1 << 20;

/// What keys look like. All keys of one run are equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyShape {
    /// 16 hex digits of the mixed index: no common prefix, no order.
    Hex,
    /// 24 equal bytes before the 16 hex digits.
    Shared24,
    /// The index in 8 bytes, big-endian: neighbours in number are neighbours in order.
    BigEndian,
    /// A path of 45 bytes, of which neighbours share most.
    Paths,
    /// 8 bytes of the mixed index.
    Bytes8,
    /// 64 hex digits of the mixed index.
    Bytes64,
}

impl KeyShape {
    /// Bytes of a key.
    pub fn key_bytes(self) -> usize {
        match self {
            KeyShape::Hex => 16,
            KeyShape::Shared24 => 40,
            KeyShape::BigEndian | KeyShape::Bytes8 => 8,
            KeyShape::Paths => 45,
            KeyShape::Bytes64 => 64,
        }
    }

    /// Appends the key of an index.
    fn put(self, index: u64, keys: &mut Vec<u8>) {
        match self {
            KeyShape::Hex => put_hex(keys, mix(index)),
            KeyShape::Shared24 => {
                keys.extend_from_slice(b"tenant/0042/collection/8");
                put_hex(keys, mix(index));
            }
            KeyShape::BigEndian => keys.extend_from_slice(&index.to_be_bytes()),
            KeyShape::Paths => {
                let (folder, file) = (index >> 12, index & 0xfff);
                let path = format!("/srv/data/archive/{folder:010}/object-{file:04}.json");
                keys.extend_from_slice(path.as_bytes());
            }
            KeyShape::Bytes8 => keys.extend_from_slice(&mix(index).to_be_bytes()),
            KeyShape::Bytes64 => {
                for part in 0..4 {
                    put_hex(keys, mix(index ^ part << 60));
                }
            }
        }
    }
}

/// The options for keys, values and lookups.
#[derive(Args, Clone, Debug)]
pub struct WorkloadArgs {
    /// Number of entries.
    #[arg(long, default_value_t = 1_000_000)]
    #[arg(value_parser = value_parser!(u64).range(1000..1 << 32))]
    pub keys: u64,
    /// Lookups in each round of a phase; by default as many as there are keys, at most a million.
    #[arg(long, value_parser = value_parser!(u64).range(100..1 << 32))]
    pub lookups: Option<u64>,
    /// What keys look like.
    #[arg(long, value_enum, default_value = "hex")]
    pub key_shape: KeyShape,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..1 << 20))]
    pub value_bytes: u64,
}

/// Everything there is to write and to look up.
pub struct Workload {
    /// Number of entries.
    pub keys: u64,
    /// Lookups in each round of a phase.
    pub lookups: u64,
    /// What keys look like.
    pub shape: KeyShape,
    /// Bytes of each value.
    pub value_bytes: usize,
    pool: Vec<u8>,
    shuffled: OnceLock<Vec<u32>>,
    sorted: OnceLock<Vec<u32>>,
}

/// Which entry a lookup asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// Each entry equally often.
    Present,
    /// No entry.
    Absent,
    /// Few entries most of the time: Zipf's law with exponent 0.99.
    Zipfian,
    /// Every second one is absent.
    Mixed,
}

impl Workload {
    /// The workload that the options describe.
    pub fn new(args: &WorkloadArgs) -> Self {
        let value_bytes = args.value_bytes as usize;
        let mut pool = Vec::new();
        while pool.len() <= POOL_STARTS + value_bytes {
            let random = mix(pool.len() as u64 + 1);
            pool.extend_from_slice(&random.to_le_bytes());
            pool.extend_from_slice(b"constant");
        }
        Workload {
            keys: args.keys,
            lookups: args.lookups.unwrap_or(args.keys.min(1_000_000)),
            shape: args.key_shape,
            value_bytes,
            pool,
            shuffled: OnceLock::new(),
            sorted: OnceLock::new(),
        }
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.keys * (self.shape.key_bytes() + self.value_bytes) as u64
    }

    /// The value of entry `n`.
    pub fn value(&self, n: u64) -> &[u8] {
        let at = below(mix(n ^ 1 << 63), POOL_STARTS as u64) as usize;
        &self.pool[at..at + self.value_bytes]
    }

    /// A batch of the entries `numbers`.
    pub fn batch(&self, numbers: &[u32]) -> Batch<'_> {
        self.batch_at(numbers.iter().map(|n| u64::from(*n)), 0)
    }

    /// A batch of the entries `numbers`, each with another value.
    pub fn overwriting(&self, numbers: &[u32]) -> Batch<'_> {
        let batch = self.batch(numbers);
        let values = numbers.iter().map(|n| self.value(u64::from(*n) + self.keys)).collect();
        Batch { values, ..batch }
    }

    /// A batch of `count` entries that are in no other batch, from number `first` of such entries
    /// on.
    pub fn fresh(&self, first: u64, count: u64) -> Batch<'_> {
        self.batch_at(first..first + count, 2)
    }

    fn batch_at(&self, numbers: impl Iterator<Item = u64>, offset: u64) -> Batch<'_> {
        let mut batch = Batch { keys: KeyList::new(self.shape), values: Vec::new() };
        for n in numbers {
            self.shape.put(4 * n + offset, &mut batch.keys.bytes);
            batch.values.push(self.value(n));
        }
        batch
    }

    /// The numbers of all entries in an order without pattern.
    pub fn shuffled(&self) -> &[u32] {
        self.shuffled.get_or_init(|| self.reshuffled(0))
    }

    /// The same in another such order for each `seed` but 0.
    pub fn reshuffled(&self, seed: u64) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..self.keys as u32).collect();
        for last in (1..numbers.len()).rev() {
            let random = mix(seed << 40 ^ last as u64);
            numbers.swap(last, below(random, last as u64 + 1) as usize);
        }
        numbers
    }

    /// The numbers of all entries in the order of their keys.
    pub fn sorted(&self) -> &[u32] {
        self.sorted.get_or_init(|| {
            let keys = self.batch_at(0..self.keys, 0).keys;
            let mut numbers: Vec<u32> = (0..self.keys as u32).collect();
            numbers.sort_unstable_by_key(|n| keys.get(*n as usize));
            numbers
        })
    }

    /// The numbers of random entries to overwrite; each `seed` draws others.
    pub fn drawn_numbers(&self, seed: u64, count: u64) -> Vec<u32> {
        (0..count).map(|step| below(random(seed, step), self.keys) as u32).collect()
    }

    /// Pairs of different numbers below `bound`; each `seed` draws others.
    pub fn drawn_pairs(&self, seed: u64, count: u64, bound: u64) -> Vec<[usize; 2]> {
        let pair = |step| {
            let random = random(seed, step);
            let first = below(random, bound);
            [first as usize, ((first + 1 + below(mix(random), bound - 1)) % bound) as usize]
        };
        (0..count).map(pair).collect()
    }

    /// Keys to look up; another `seed` draws others.
    pub fn draw(&self, draw: Draw, seed: u64, count: u64) -> Lookups {
        let mut lookups = Lookups { keys: KeyList::new(self.shape), expected: Tally::default() };
        let distribution = match draw {
            Draw::Zipfian => Distribution::Zipfian,
            Draw::Present | Draw::Absent | Draw::Mixed => Distribution::Uniform,
        };
        let (sampler, mut state) = (Sampler::new(distribution, self.keys), random(seed, 0));
        for step in 0..count {
            let n = sampler.draw(&mut state, self.keys);
            if draw == Draw::Absent || (draw == Draw::Mixed && step % 2 == 1) {
                self.shape.put(4 * n + 1, &mut lookups.keys.bytes);
            } else {
                self.shape.put(4 * n, &mut lookups.keys.bytes);
                lookups.expected.add(self.value(n).last().copied());
            }
        }
        lookups
    }

    /// The result of scans of `count` entries that start at these keys, which are present.
    pub fn scanned(&self, starts: &KeyList, count: usize) -> Tally {
        let sorted = self.sorted();
        let mut tally = Tally::default();
        for start in starts.iter() {
            let first = sorted.partition_point(|n| self.batch(&[*n]).keys.get(0) < start);
            let found = sorted.iter().skip(first).take(count);
            found.for_each(|n| tally.add(self.value(u64::from(*n)).last().copied()));
        }
        tally
    }

    /// What a scan of everything finds.
    pub fn all(&self) -> Tally {
        let mut tally = Tally::default();
        (0..self.keys).for_each(|n| tally.add(self.value(n).last().copied()));
        tally
    }
}

/// Keys to look up, and the expected result.
pub struct Lookups {
    /// The keys.
    pub keys: KeyList,
    /// The expected result.
    pub expected: Tally,
}

/// Keys one after the other in one piece of memory.
pub struct KeyList {
    key_bytes: usize,
    bytes: Vec<u8>,
}

impl KeyList {
    fn new(shape: KeyShape) -> Self {
        KeyList { key_bytes: shape.key_bytes(), bytes: Vec::new() }
    }

    fn get(&self, place: usize) -> &[u8] {
        &self.bytes[place * self.key_bytes..(place + 1) * self.key_bytes]
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.key_bytes)
    }
}

/// Entries to write.
pub struct Batch<'a> {
    keys: KeyList,
    values: Vec<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// A batch of these entries. All keys are equally long, and there is at least one.
    pub fn of(entries: &[(&[u8], &'a [u8])]) -> Self {
        let key_bytes = entries.first().map_or(1, |(key, _)| key.len());
        let bytes = entries.iter().flat_map(|(key, _)| *key).copied().collect();
        let values = entries.iter().map(|(_, value)| *value).collect();
        Batch { keys: KeyList { key_bytes, bytes }, values }
    }

    /// The keys of the entries.
    pub fn keys(&self) -> &KeyList {
        &self.keys
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys.iter().zip(self.values.iter().copied())
    }

    /// The result of looking up all of them.
    pub fn expected(&self) -> Tally {
        let mut tally = Tally::default();
        self.values.iter().for_each(|value| tally.add(value.last().copied()));
        tally
    }
}

/// The random number of a step.
fn random(seed: u64, step: u64) -> u64 {
    mix(seed << 40 ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Maps a random number to one below `bound`.
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

fn put_hex(keys: &mut Vec<u8>, number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    keys.extend((0..16).map(|place| DIGITS[(number >> (60 - 4 * place) & 15) as usize]));
}
