//! Keys and values: the same for every engine, whatever the order in which they are asked.
//!
//! [`Data`] has them, as for `siftdb bench`: absent keys lie between present ones in every
//! [`KeyShape`]. Here they become lists that need no work while a clock runs, each with the result
//! that is right.

use crate::tally::Tally;
use clap::{Args, value_parser};
use siftdb_cli::experiment::bench::{Data, Distribution, KeyShape, Sampler};
use siftdb_cli::experiment::mix;
use std::sync::OnceLock;

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
    #[arg(long, value_enum, default_value = "random")]
    pub key_shape: KeyShape,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..1 << 20))]
    pub value_bytes: u64,
    /// Number of values in the phase of large values, which has entries of its own.
    #[arg(long, default_value_t = 300_000, value_name = "VALUES")]
    #[arg(value_parser = value_parser!(u64).range(1000..1 << 32))]
    pub large_values: u64,
}

/// Bytes of each value in the phase of large values.
pub const LARGE_VALUE_BYTES: u64 = 16 << 10;

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
    /// Number of values in the phase of large values.
    pub large_values: u64,
    data: Data,
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
        Workload {
            keys: args.keys,
            lookups: args.lookups.unwrap_or(args.keys.min(1_000_000)),
            shape: args.key_shape,
            value_bytes,
            large_values: args.large_values,
            data: Data::of_shape(args.key_shape, args.keys, value_bytes),
            shuffled: OnceLock::new(),
            sorted: OnceLock::new(),
        }
    }

    /// The entries of the phase of large values, and at most as many lookups.
    pub fn large(&self) -> Self {
        Workload::new(&WorkloadArgs {
            keys: self.large_values,
            lookups: Some(self.lookups.min(self.large_values)),
            key_shape: self.shape,
            value_bytes: LARGE_VALUE_BYTES,
            large_values: self.large_values,
        })
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.data.bytes()
    }

    /// The value of entry `n`.
    pub fn value(&self, n: u64) -> &[u8] {
        self.data.value(n, 0)
    }

    /// A batch of the entries `numbers`.
    pub fn batch(&self, numbers: &[u32]) -> Batch<'_> {
        self.version(numbers, 0)
    }

    /// A batch of the entries `numbers`, each with another value.
    pub fn overwriting(&self, numbers: &[u32]) -> Batch<'_> {
        self.version(numbers, 1)
    }

    /// A batch of the entries `numbers`, each with the value after `version` overwrites.
    pub fn version(&self, numbers: &[u32], version: u64) -> Batch<'_> {
        self.batch_of(numbers.iter().map(|n| u64::from(*n)), version)
    }

    /// A batch of `count` entries that are in no other batch, from number `first` of such entries
    /// on.
    pub fn fresh(&self, first: u64, count: u64) -> Batch<'_> {
        self.batch_of((first..first + count).map(|n| self.keys + n), 0)
    }

    fn batch_of(&self, numbers: impl Iterator<Item = u64>, version: u64) -> Batch<'_> {
        let (mut keys, mut values, mut key) = (KeyList::default(), Vec::new(), Vec::new());
        for n in numbers {
            self.data.present(n, &mut key);
            keys.push(&key);
            values.push(self.data.value(n, version));
        }
        Batch { keys, values }
    }

    /// The numbers of all entries in an order without pattern.
    pub fn shuffled(&self) -> &[u32] {
        self.shuffled.get_or_init(|| self.reshuffled(0))
    }

    /// The same in another such order for each `seed` but 0.
    pub fn reshuffled(&self, seed: u64) -> Vec<u32> {
        self.data.shuffled(seed)
    }

    /// The numbers of all entries in the order of their keys.
    pub fn sorted(&self) -> &[u32] {
        self.sorted.get_or_init(|| self.data.ascending())
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
        let (mut lookups, mut key) = (Lookups::default(), Vec::new());
        let distribution = match draw {
            Draw::Zipfian => Distribution::Zipfian,
            Draw::Present | Draw::Absent | Draw::Mixed => Distribution::Uniform,
        };
        let (sampler, mut state) = (Sampler::new(distribution, self.keys), random(seed, 0));
        for step in 0..count {
            let n = sampler.draw(&mut state, self.keys);
            if draw == Draw::Absent || (draw == Draw::Mixed && step % 2 == 1) {
                self.data.absent(n, &mut key);
            } else {
                self.data.present(n, &mut key);
                lookups.expected.add(self.value(n).last().copied());
            }
            lookups.keys.push(&key);
        }
        lookups
    }

    /// The result of scans of `count` entries that start at these keys, which are present.
    pub fn scanned(&self, starts: &KeyList, count: usize) -> Tally {
        let sorted = self.sorted();
        let mut tally = Tally::default();
        for start in starts.iter() {
            let first = sorted.partition_point(|n| self.batch(&[*n]).keys.bytes[..] < *start);
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
#[derive(Default)]
pub struct Lookups {
    /// The keys.
    pub keys: KeyList,
    /// The expected result.
    pub expected: Tally,
}

/// Keys of one length, one after the other in one piece of memory.
#[derive(Default)]
pub struct KeyList {
    key_bytes: usize,
    bytes: Vec<u8>,
}

impl KeyList {
    fn push(&mut self, key: &[u8]) {
        self.key_bytes = key.len();
        self.bytes.extend_from_slice(key);
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.key_bytes.max(1))
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
        let mut keys = KeyList::default();
        entries.iter().for_each(|(key, _)| keys.push(key));
        Batch { keys, values: entries.iter().map(|(_, value)| *value).collect() }
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
