//! Range filters by themselves, without a database: what building and asking costs, and which
//! empty ranges they let pass.
//!
//! [`measure_range_filters`] cuts sorted keys into blocks, with separators as a table has them,
//! and builds a filter for each number of bits. Every filter is asked the same ranges. The data
//! index finds the blocks of a range; that search is not timed. Each question waits for the answer
//! before it. Times hold for one machine; counts and sizes are the same everywhere.

use crate::experiment::keys::KeySet;
use crate::experiment::range_keys::{
    KeySource, Range, RangeKeys, after_a_key, at_random, key_set, of_a_key,
};
use siftdb::inspect::separator;
use siftdb::{Error, Result};
use siftdb_filter::range::{BLOCKS_PER_PARTITION, BlockRange, RangeFilterBuilder, RangeModel};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Keys of a data block: those of 4 KiB with values of 100 bytes.
pub const RANGE_KEYS_PER_BLOCK: usize = 34;

/// Ranges that are drawn before they are timed; they fit into the processor's caches.
const BATCH: u64 = 1_000;

/// How range filters are measured.
#[derive(Clone, Debug)]
pub struct RangeTrial {
    /// Keys of a filter.
    pub keys: u64,
    /// Ranges of each kind.
    pub lookups: u64,
    /// Bits per key of the filters.
    pub bits: Vec<f64>,
}

/// The measurements of one filter. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct RangeMeasurement {
    /// The shape of its keys.
    pub shape: RangeKeys,
    /// Their number.
    pub keys: u64,
    /// Bits per key that it was built with.
    pub asked_bits: f64,
    /// Bytes of its partitions and its model.
    pub filter_bytes: u64,
    /// Time to build it, for each key.
    pub build_nanos_per_key: f64,
    /// A range with one key.
    pub present_nanos: f64,
    /// An empty range at a random place.
    pub empty_nanos: f64,
    /// Empty ranges of each kind.
    pub lookups: u64,
    /// How many of those at random places passed.
    pub random_passed: u64,
    /// How many of those directly after a key passed.
    pub after_key_passed: u64,
}

impl RangeMeasurement {
    /// Bits of the filter for each key.
    pub fn bits_per_key(&self) -> f64 {
        8.0 * self.filter_bytes as f64 / self.keys.max(1) as f64
    }

    /// The share of empty ranges at random places that passed.
    pub fn random_share(&self) -> f64 {
        self.random_passed as f64 / self.lookups.max(1) as f64
    }

    /// The share of empty ranges directly after a key that passed.
    pub fn after_key_share(&self) -> f64 {
        self.after_key_passed as f64 / self.lookups.max(1) as f64
    }
}

/// Builds a filter for each number of bits of the trial, of the same keys, and asks it. `done` gets
/// the number of keys built or ranges asked since its last call: for each filter one for each key
/// and three for each lookup.
///
/// # Errors
/// `InvalidArgument` if the bits are not those of a range filter; `MemoryCorruption` if a filter
/// denies a range that has one of its keys.
pub fn measure_range_filters(
    shape: RangeKeys,
    trial: &RangeTrial,
    done: &mut dyn FnMut(u64),
) -> Result<Vec<RangeMeasurement>> {
    let mut source = KeySource::new(shape, trial.keys as usize);
    let table = KeyBlocks::new(key_set(&mut source, trial.keys as usize));
    let mut filters = Vec::new();
    for bits in &trial.bits {
        filters.push(AskedFilter::build(&table, *bits)?);
        done(trial.keys);
    }
    type Draw = fn(&mut KeySource, &KeySet) -> Range;
    let kinds: [Draw; 3] = [of_a_key, at_random, after_a_key];
    for (kind, draw) in kinds.into_iter().enumerate() {
        let mut left = trial.lookups;
        while left > 0 {
            let count = left.min(BATCH);
            let ranges = (0..count).map(|_| table.located(draw(&mut source, &table.keys)));
            let ranges: Vec<LocatedRange> = ranges.collect();
            filters.iter_mut().for_each(|filter| filter.ask(kind, &table, &ranges));
            done(count * filters.len() as u64);
            left -= count;
        }
    }
    filters.into_iter().map(|filter| filter.measured(shape, trial)).collect()
}

/// Sorted keys in blocks.
struct KeyBlocks {
    keys: KeySet,
    /// The upper bound of each block.
    separators: Vec<Vec<u8>>,
}

/// A range and the blocks that may have a key of it; `None` if their separators show that one has.
struct LocatedRange {
    range: Range,
    blocks: Option<std::ops::Range<usize>>,
}

impl KeyBlocks {
    fn new(keys: KeySet) -> Self {
        let separators = (0..keys.len().div_ceil(RANGE_KEYS_PER_BLOCK)).map(|block| {
            let next = (block + 1) * RANGE_KEYS_PER_BLOCK;
            match keys.len().checked_sub(next + 1) {
                None => keys.key(keys.len() - 1).to_vec(),
                Some(_) => separator(keys.key(next - 1), keys.key(next)),
            }
        });
        let separators = separators.collect();
        KeyBlocks { keys, separators }
    }

    fn lower(&self, block: usize) -> &[u8] {
        block.checked_sub(1).map_or(self.keys.key(0), |before| &self.separators[before])
    }

    /// Finds the blocks as a table does: at most two, since a block between both ends has a key.
    fn located(&self, range: Range) -> LocatedRange {
        let first = self.separators.partition_point(|upper| *upper < range.start);
        let is_last =
            |block: &usize| self.separators.get(*block).is_some_and(|upper| range.end <= *upper);
        let last = [first, first + 1].into_iter().find(is_last);
        let blocks = match last {
            _ if first == self.separators.len() => Some(first..first),
            Some(last) => Some(first..last + 1),
            None => None,
        };
        LocatedRange { range, blocks }
    }
}

/// A filter and what was counted with it.
struct AskedFilter {
    bits: f64,
    model: RangeModel,
    partitions: Vec<Vec<u8>>,
    bytes: u64,
    built_in: Duration,
    /// For each kind of range, how long all took and how many passed.
    asked: [(Duration, u64); 3],
}

impl AskedFilter {
    fn build(table: &KeyBlocks, bits: f64) -> Result<Self> {
        let refuse = |what: String| Error::InvalidArgument { what };
        let corrupted = |what: String| Error::MemoryCorruption { what };
        let started = Instant::now();
        let mut builder = RangeFilterBuilder::new(bits).map_err(refuse)?;
        for (at, key) in table.keys.iter().enumerate() {
            builder.add_key(key);
            if (at + 1) % RANGE_KEYS_PER_BLOCK == 0 || at + 1 == table.keys.len() {
                let block = at / RANGE_KEYS_PER_BLOCK;
                builder.end_block(table.lower(block), &table.separators[block]);
            }
        }
        let built = builder.finish().map_err(|error| corrupted(error.to_string()))?;
        let built_in = started.elapsed();
        let model = RangeModel::decode(&built.model);
        Ok(AskedFilter {
            bits,
            model: model.ok_or_else(|| corrupted("the model of a range filter".into()))?,
            partitions: built.partitions().map(<[u8]>::to_vec).collect(),
            bytes: built.bytes() + built.model.len() as u64,
            built_in,
            asked: Default::default(),
        })
    }

    fn may_contain(&self, table: &KeyBlocks, located: &LocatedRange) -> bool {
        let Some(mut blocks) = located.blocks.clone() else { return true };
        blocks.any(|block| {
            let range = BlockRange {
                lower: table.lower(block),
                upper: &table.separators[block],
                start: Some(&located.range.start),
                end: Some(&located.range.end),
            };
            let partition = &self.partitions[block / BLOCKS_PER_PARTITION];
            self.model.may_contain(partition, block, &range).unwrap_or(true)
        })
    }

    fn ask(&mut self, kind: usize, table: &KeyBlocks, ranges: &[LocatedRange]) {
        // Unknown to the compiler, so that the next place depends on the answer.
        let zero = black_box(0);
        let mut passed = 0;
        let started = Instant::now();
        for place in 0..ranges.len() {
            let range = &ranges[place + (passed as usize & zero)];
            passed += u64::from(self.may_contain(table, range));
        }
        let (duration, all_passed) = &mut self.asked[kind];
        *duration += started.elapsed();
        *all_passed += passed;
    }

    fn measured(self, shape: RangeKeys, trial: &RangeTrial) -> Result<RangeMeasurement> {
        let RangeTrial { keys, lookups, .. } = *trial;
        let [(present, found), (empty, random_passed), (_, after_key_passed)] = self.asked;
        let denied = lookups - found;
        if denied > 0 {
            let (label, bits) = (shape.label(), self.bits);
            let what = format!(
                "a range filter of {bits} bits for {label} denies {denied} of {lookups} ranges \
                 that have a key; if memory is sound, this is a defect of siftdb"
            );
            return Err(Error::MemoryCorruption { what });
        }
        let nanos = |of: Duration, count: u64| of.as_nanos() as f64 / count.max(1) as f64;
        Ok(RangeMeasurement {
            shape,
            keys,
            asked_bits: self.bits,
            filter_bytes: self.bytes,
            build_nanos_per_key: nanos(self.built_in, keys),
            present_nanos: nanos(present, lookups),
            empty_nanos: nanos(empty, lookups),
            lookups,
            random_passed,
            after_key_passed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial() -> RangeTrial {
        RangeTrial { keys: 3_000, lookups: 2_500, bits: vec![8.0, 12.0] }
    }

    #[test]
    fn more_bits_let_fewer_ranges_pass() {
        for shape in RangeKeys::ALL {
            let (trial, mut steps) = (trial(), 0);
            let measured = measure_range_filters(shape, &trial, &mut |done| steps += done).unwrap();
            assert_eq!(steps, 2 * (3_000 + 3 * 2_500));
            let [few, many] = &measured[..] else { panic!("{measured:?}") };
            assert!(many.random_share() < few.random_share(), "{measured:?}");
            assert!((6.5..9.5).contains(&few.bits_per_key()), "{few:?}");
            assert!((10.5..13.5).contains(&many.bits_per_key()), "{many:?}");
        }
        let passed = |bits| {
            let trial = RangeTrial { bits: vec![bits], ..trial() };
            measure_range_filters(RangeKeys::Integers, &trial, &mut |_| {})
        };
        assert!(passed(12.0).unwrap()[0].random_share() < 0.01);
        assert!(matches!(passed(3.0), Err(Error::InvalidArgument { .. })));
    }

    #[test]
    fn filters_that_deny_their_keys_are_refused() {
        let trial = RangeTrial { lookups: 1, ..trial() };
        let table = KeyBlocks::new(KeySet::generate(3_000, 7));
        let mut filter = AskedFilter::build(&table, 12.0).unwrap();
        let range = |start: &[u8]| Range { start: start.to_vec(), end: [start, &[0]].concat() };
        let ask = |filter: &mut AskedFilter, key: &[u8]| {
            filter.ask(0, &table, &[table.located(range(key))]);
        };
        ask(&mut filter, table.keys.key(1_000));
        assert_eq!(filter.asked[0].1, 1);
        filter.asked[0].1 = 0;
        ask(&mut filter, b"zzz");
        let error = filter.measured(RangeKeys::Ids, &trial).unwrap_err();
        assert!(error.to_string().contains("for ids denies 1 of 1 ranges"), "{error}");
    }
}
