//! Filters by themselves, without a database: what building and asking costs, what they take and
//! what they let through.
//!
//! [`measure_filter`] asks a small filter that fits the processor's caches (at most 10,000 keys),
//! and copies of the large filter that exceed any cache. Each answer decides the next key, so
//! lookups do not overlap; a program that asks many at once waits less for memory. False positives
//! are counted in the large filter. Times hold for one machine; counts and sizes are the same
//! everywhere.

use crate::experiment::keys::mix;
use siftdb::filter::{Encoding, FilterReader, KeyHash, PreparedFilter};
use siftdb::inspect::wilson_95;
use siftdb::{Error, Result};
use std::time::Instant;

/// Keys of the filter inside the processor's caches: 12.5 kB at 10 bits a key.
pub const INSIDE_KEYS: u64 = 10_000;

/// Numbers of keys that no filter holds begin here.
const ABSENT: u64 = 1 << 40;

/// How filters are measured.
#[derive(Clone, Copy, Debug)]
pub struct FilterTrial {
    /// Keys of a filter.
    pub keys: u64,
    /// Lookups of each kind.
    pub lookups: u64,
    /// Bytes that the copies of the large filter take together.
    pub outside_bytes: usize,
}

/// The measurements of one encoding. Times are nanoseconds of one lookup.
#[derive(Clone, Debug)]
pub struct FilterMeasurement {
    /// The encoding.
    pub encoding: Encoding,
    /// The counts.
    pub passed: PassedKeys,
    /// Time to build it, for each key.
    pub build_nanos_per_key: f64,
    /// An absent key in the small filter.
    pub inside_absent_nanos: f64,
    /// A present key in the small filter.
    pub inside_present_nanos: f64,
    /// An absent key in the large filters.
    pub outside_absent_nanos: f64,
    /// A present key in the large filters.
    pub outside_present_nanos: f64,
}

/// Absent keys that a filter let pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassedKeys {
    /// Keys in the filter.
    pub keys: u64,
    /// Its bytes.
    pub filter_bytes: u64,
    /// Absent keys that it was asked for.
    pub lookups: u64,
    /// How many of them passed.
    pub false_positives: u64,
    /// The rate to expect; `None` where a policy decides.
    pub expected_fpr: Option<f64>,
}

impl PassedKeys {
    /// Bits of the filter for each key.
    pub fn bits_per_key(&self) -> f64 {
        8.0 * self.filter_bytes as f64 / self.keys.max(1) as f64
    }

    /// The share of absent keys that passed.
    pub fn observed_fpr(&self) -> f64 {
        self.false_positives as f64 / self.lookups.max(1) as f64
    }

    /// The 95 % interval of that share; `None` without lookups.
    pub fn interval(&self) -> Option<(f64, f64)> {
        wilson_95(self.false_positives, self.lookups)
    }
}

/// Builds a filter with `encoding` and asks it for each of its keys, and for as many absent ones as
/// the trial says.
///
/// # Errors
/// `MemoryCorruption` if the filter denies a key of its own; the builder's errors.
pub fn count_passed(encoding: &Encoding, trial: &FilterTrial) -> Result<PassedKeys> {
    let filter = build(encoding, trial.keys)?;
    let filter_bytes = filter.len() as u64;
    let filter = [prepare(encoding, &filter)?];
    check_members(encoding, &filter[0], trial.keys)?;
    let (_, false_positives) = ask(&filter, trial.lookups, |turn| ABSENT + turn);
    Ok(passed(encoding, trial, filter_bytes, false_positives))
}

fn passed(
    encoding: &Encoding,
    trial: &FilterTrial,
    filter_bytes: u64,
    false_positives: u64,
) -> PassedKeys {
    let expected_fpr = encoding.expected_fpr_of(trial.keys);
    let (keys, lookups) = (trial.keys, trial.lookups);
    PassedKeys { keys, filter_bytes, lookups, false_positives, expected_fpr }
}

/// Builds filters with `encoding` and times them. `done` gets the number of keys built or asked
/// since its last call: three for each key and four for each lookup in all.
///
/// # Errors
/// As for [`count_passed`].
pub fn measure_filter(
    encoding: Encoding,
    trial: &FilterTrial,
    done: &mut dyn FnMut(u64),
) -> Result<FilterMeasurement> {
    let (keys, lookups) = (trial.keys, trial.lookups);
    let small_keys = keys.min(INSIDE_KEYS);
    let started = Instant::now();
    let large = build(&encoding, keys)?;
    let build_nanos_per_key = started.elapsed().as_nanos() as f64 / keys.max(1) as f64;
    done(2 * keys);
    let small = [prepare(&encoding, &build(&encoding, small_keys)?)?];
    check_members(&encoding, &small[0], small_keys)?;
    let copies = trial.outside_bytes.div_ceil(large.len().max(1)).clamp(1, 1 << 16);
    let copies = (0..copies).map(|_| prepare(&encoding, &large));
    let copies = copies.collect::<Result<Vec<_>>>()?;
    check_members(&encoding, &copies[0], keys)?;
    done(keys);
    let absent = |turn: u64| ABSENT + turn;
    let present = |keys: u64| move |turn: u64| scattered(turn) % keys.max(1);
    // Progress is told after each measurement.
    let mut timed = |filters: &[PreparedFilter], number: &dyn Fn(u64) -> u64| {
        let asked = ask(filters, lookups, number);
        done(lookups);
        asked
    };
    let (outside_absent_nanos, false_positives) = timed(&copies, &absent);
    Ok(FilterMeasurement {
        passed: passed(&encoding, trial, large.len() as u64, false_positives),
        build_nanos_per_key,
        inside_absent_nanos: timed(&small, &absent).0,
        inside_present_nanos: timed(&small, &present(small_keys)).0,
        outside_absent_nanos,
        outside_present_nanos: timed(&copies, &present(keys)).0,
        encoding,
    })
}

/// Key `number`: 16 bytes, distinct, without a pattern. LevelDB's 32-bit hash can double its rate
/// for keys with a pattern, which would be a figure about the keys and not about the encoding.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scattered(number).to_le_bytes());
    key[8..].copy_from_slice(&scattered(!number).to_le_bytes());
    key
}

/// A number that looks random, another one for each `number`.
fn scattered(number: u64) -> u64 {
    mix(number.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

fn build(encoding: &Encoding, keys: u64) -> Result<Vec<u8>> {
    let mut builder = encoding.builder();
    (0..keys).for_each(|number| builder.add_key(&key(number)));
    let mut filter = Vec::new();
    builder
        .finish(&mut filter)
        .map_err(|error| Error::InvalidOptions { what: error.to_string() })?;
    Ok(filter)
}

fn prepare(encoding: &Encoding, filter: &[u8]) -> Result<PreparedFilter> {
    let name = encoding.full_name();
    let reader = FilterReader::for_name(&name, &[]).ok_or_else(|| {
        let what = format!("no reader for filters named {name}");
        Error::InvalidArgument { what }
    })?;
    Ok(PreparedFilter::new(reader, filter))
}

fn check_members(encoding: &Encoding, filter: &PreparedFilter, keys: u64) -> Result<()> {
    match (0..keys).find(|number| !filter.may_contain(&KeyHash::new(&key(*number)))) {
        Some(number) => Err(Error::MemoryCorruption {
            what: format!(
                "{}: a filter of {keys} keys denies key {number}, which it contains; if memory is \
                 sound, this is a defect of siftdb",
                encoding.label()
            ),
        }),
        None => Ok(()),
    }
}

/// Nanoseconds of a lookup, and how many said "maybe".
fn ask(filters: &[PreparedFilter], lookups: u64, number: impl Fn(u64) -> u64) -> (f64, u64) {
    let mut positives = 0u64;
    let started = Instant::now();
    for lookup in 0..lookups {
        // The answers so far decide what is asked next, and where.
        let turn = lookup + positives;
        let filter = &filters[(scattered(turn) >> 16) as usize % filters.len()];
        positives += u64::from(filter.may_contain(&KeyHash::new(&key(number(turn)))));
    }
    (started.elapsed().as_nanos() as f64 / lookups.max(1) as f64, positives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_deny_their_keys_are_refused() {
        for encoding in Encoding::built_in(10_000) {
            let filter = prepare(&encoding, &build(&encoding, 1_000).unwrap()).unwrap();
            assert!(check_members(&encoding, &filter, 1_000).is_ok());
            let what = check_members(&encoding, &filter, 2_000).unwrap_err().to_string();
            assert!(what.contains(encoding.label()) && what.contains("denies key 1"), "{what}");
        }
    }

    #[test]
    fn absent_keys_are_asked_once() {
        let encoding = Encoding::FastLocalBloom { millibits: 10_000 };
        let trial = FilterTrial { keys: 500, lookups: 5_000, outside_bytes: 1 << 20 };
        let passed = count_passed(&encoding, &trial).unwrap();
        assert!((10..150).contains(&passed.false_positives), "{passed:?}");
        let mut keys = 0;
        let measured = measure_filter(encoding, &trial, &mut |done| keys += done).unwrap();
        assert_eq!((measured.passed, keys), (passed, 3 * 500 + 4 * 5_000));
        let filter = build(&measured.encoding, 500).unwrap();
        let filter = prepare(&measured.encoding, &filter).unwrap();
        assert_eq!(ask(&[filter], 5_000, |turn| scattered(turn) % 500).1, 5_000);
    }

    #[test]
    fn bits_and_rates_follow_from_counts() {
        let passed = PassedKeys {
            keys: 80,
            filter_bytes: 100,
            lookups: 1_000,
            false_positives: 10,
            expected_fpr: None,
        };
        assert_eq!((passed.bits_per_key(), passed.observed_fpr()), (10.0, 0.01));
        assert_eq!(passed.interval(), wilson_95(10, 1_000));
    }
}
