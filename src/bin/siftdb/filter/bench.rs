//! `siftdb filter bench`: measures building and asking filters of every encoding.
//!
//! For each encoding it builds a filter of `--keys` keys and asks it for each of them. A "no" is a
//! defect of the encoding and ends the command with code 4. Then it looks up absent and present
//! keys, hashing included: in a small filter that fits the processor's caches (at most 10,000
//! keys), and in copies of the large filter that exceed any cache. Each answer decides the next
//! key, so lookups do not overlap; a program that asks many at once waits less for memory.
//!
//! False positives are counted in the large filter. Times hold for this machine; counts and sizes
//! are the same everywhere.

use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::json::{fields, joined, list};
use crate::numbers::{bits, count, percent};
use crate::output::{Output, Shown, Text};
use clap::Args;
use serde_json::{Value, json};
use siftdb::experiment::{splitmix64, wilson_95};
use siftdb::filter::{Encoding, FilterReader, KeyHash, PreparedFilter};
use std::io::{self, Write};
use std::time::Instant;

/// Keys of the filter inside the caches: 12.5 kB at 10 bits a key.
const INSIDE_KEYS: u64 = 10_000;

/// Bytes that the copies of the large filter take together.
const OUTSIDE_BYTES: usize = 128 << 20;

/// More keys would take too long to build.
const KEYS_MAX: u64 = 200_000_000;

/// Numbers of keys that no filter holds begin here.
const ABSENT: u64 = 1 << 40;

const JSON: &str = "\
JSON fields. Times are nanoseconds.
  format            1
  keys, lookups     as given
  inside_keys       keys of the filter that fits into the processor's caches
  outside_bytes     bytes of all copies of the large filter
  encodings         one for each:
    encoding        its name
    asked_bits, bits_per_key, filter_bytes   bits asked for, bits and bytes of the filter
    build_nanos_per_key
    inside_absent_nanos, inside_present_nanos     a lookup in the small filter
    outside_absent_nanos, outside_present_nanos   a lookup in the large ones
    false_positives   absent keys that passed
    expected_fpr, observed_fpr, observed_fpr_low, observed_fpr_high   the rate to expect, the
                    one that was counted and its 95 % interval";

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Bench {
    /// Keys of each filter; also 1e6
    #[arg(long, default_value = "1e6", value_parser = count)]
    keys: u64,
    /// Bits of filter for each key, rounded to what an encoding takes
    #[arg(long, default_value = "10", value_parser = bits)]
    bits: f64,
    /// Lookups of each kind
    #[arg(long, default_value = "1e6", value_parser = count)]
    lookups: u64,
}

/// What was measured of one encoding. Times are nanoseconds.
struct Measured {
    encoding: Encoding,
    filter_bytes: usize,
    build_nanos_per_key: f64,
    inside_absent_nanos: f64,
    inside_present_nanos: f64,
    outside_absent_nanos: f64,
    outside_present_nanos: f64,
    false_positives: u64,
}

impl Bench {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if self.keys > KEYS_MAX {
            return Err(Failure::usage(format!("--keys {}: at most {KEYS_MAX}", self.keys)));
        }
        let encodings = Encoding::built_in((1_000.0 * self.bits).round() as u32);
        let total = encodings.len() as u64 * (3 * self.keys + 4 * self.lookups);
        let bar = Bar::keys("bench", Some(total));
        let measured = encodings.into_iter().map(|encoding| self.measure(encoding, &bar));
        let measured = measured.collect::<Outcome<Vec<_>>>()?;
        drop(bar);
        let json = json!({
            "keys": self.keys,
            "lookups": self.lookups,
            "inside_keys": self.keys.min(INSIDE_KEYS),
            "outside_bytes": OUTSIDE_BYTES,
            "encodings": list(&measured, |one| self.row_json(one)),
        });
        output.show(json, |out| self.print(&measured, out))
    }

    fn print(&self, measured: &[Measured], out: &mut Text<'_>) -> io::Result<()> {
        writeln!(out, "{} keys, {} lookups of each kind", self.keys, self.lookups)?;
        writeln!(out, "{:>44}{:>22}{:>22}", "", "ns/lookup in cache", "ns/lookup outside")?;
        write!(out, "{:<18}{:>10}{:>16}", "encoding", "bits/key", "build ns/key")?;
        writeln!(out, "{0:>11}{1:>11}{0:>11}{1:>11}  false positives", "absent", "present")?;
        for one in measured {
            write!(out, "{:<18}{:>10.2}", one.encoding.label(), self.bits_per_key(one))?;
            write!(out, "{:>16.1}{:>11.1}", one.build_nanos_per_key, one.inside_absent_nanos)?;
            write!(out, "{:>11.1}{:>11.1}", one.inside_present_nanos, one.outside_absent_nanos)?;
            write!(out, "{:>11.1}  ", one.outside_present_nanos)?;
            let (low, high) = wilson_95(one.false_positives, self.lookups).unwrap_or_default();
            let observed = one.false_positives as f64 / self.lookups as f64;
            let expected = one.encoding.expected_fpr_of(self.keys).unwrap_or_default();
            write!(out, "{} ({} to {})", percent(observed), percent(low), percent(high))?;
            writeln!(out, ", {} expected", percent(expected))?;
        }
        writeln!(out, "no false negatives: every key of a filter was found in it")
    }

    fn bits_per_key(&self, measured: &Measured) -> f64 {
        8.0 * measured.filter_bytes as f64 / self.keys as f64
    }

    fn measure(&self, encoding: Encoding, bar: &Bar) -> Outcome<Measured> {
        let started = Instant::now();
        let large = build(&encoding, self.keys)?;
        let build_nanos_per_key = started.elapsed().as_nanos() as f64 / self.keys as f64;
        bar.add(2 * self.keys);
        let small = build(&encoding, self.keys.min(INSIDE_KEYS))?;
        let small = [prepare(&encoding, &small)?];
        check_members(&encoding, &small[0], self.keys.min(INSIDE_KEYS))?;
        let copies = OUTSIDE_BYTES.div_ceil(large.len().max(1)).clamp(1, 1 << 16);
        let copies = (0..copies).map(|_| prepare(&encoding, &large));
        let copies = copies.collect::<Outcome<Vec<_>>>()?;
        check_members(&encoding, &copies[0], self.keys)?;
        bar.add(self.keys);
        let absent = |turn: u64| ABSENT + turn;
        let present = |keys: u64| move |turn: u64| scattered(turn) % keys;
        let small_present = present(self.keys.min(INSIDE_KEYS));
        let (outside_absent_nanos, false_positives) = ask(&copies, self.lookups, bar, absent);
        Ok(Measured {
            filter_bytes: large.len(),
            build_nanos_per_key,
            inside_absent_nanos: ask(&small, self.lookups, bar, absent).0,
            inside_present_nanos: ask(&small, self.lookups, bar, small_present).0,
            outside_absent_nanos,
            outside_present_nanos: ask(&copies, self.lookups, bar, present(self.keys)).0,
            false_positives,
            encoding,
        })
    }

    fn row_json(&self, measured: &Measured) -> Value {
        let interval = wilson_95(measured.false_positives, self.lookups);
        joined([
            fields!(measured;
                filter_bytes, build_nanos_per_key, inside_absent_nanos, inside_present_nanos,
                outside_absent_nanos, outside_present_nanos, false_positives),
            json!({
                "encoding": measured.encoding.label(),
                "asked_bits": measured.encoding.bits_per_key(),
                "bits_per_key": self.bits_per_key(measured),
                "observed_fpr": measured.false_positives as f64 / self.lookups as f64,
                "observed_fpr_low": interval.map(|(low, _)| low),
                "observed_fpr_high": interval.map(|(_, high)| high),
                "expected_fpr": measured.encoding.expected_fpr_of(self.keys),
            }),
        ])
    }
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
fn scattered(mut number: u64) -> u64 {
    splitmix64(&mut number)
}

fn build(encoding: &Encoding, keys: u64) -> Outcome<Vec<u8>> {
    let mut builder = encoding.builder();
    (0..keys).for_each(|number| builder.add_key(&key(number)));
    let mut filter = Vec::new();
    builder.finish(&mut filter)?;
    Ok(filter)
}

fn prepare(encoding: &Encoding, filter: &[u8]) -> Outcome<PreparedFilter> {
    let reader = FilterReader::for_name(&encoding.full_name(), &[]).ok_or_else(|| {
        Failure::fault(format!("no reader for filters named {}", encoding.full_name()))
    })?;
    Ok(PreparedFilter::new(reader, filter))
}

fn check_members(encoding: &Encoding, filter: &PreparedFilter, keys: u64) -> Outcome {
    match (0..keys).find(|number| !filter.may_contain(&KeyHash::new(&key(*number)))) {
        Some(number) => Err(Failure::fault(format!(
            "{}: a filter of {keys} keys denies key {number}, which it contains; this is a defect \
             of siftdb",
            encoding.label()
        ))),
        None => Ok(()),
    }
}

/// Nanoseconds of a lookup, and how many said "maybe". The bar advances after the measurement.
fn ask(
    filters: &[PreparedFilter],
    lookups: u64,
    bar: &Bar,
    number: impl Fn(u64) -> u64,
) -> (f64, u64) {
    let mut positives = 0u64;
    let started = Instant::now();
    for lookup in 0..lookups {
        // The answers so far decide what is asked next, and where.
        let turn = lookup + positives;
        let filter = &filters[(scattered(turn) >> 16) as usize % filters.len()];
        positives += u64::from(filter.may_contain(&KeyHash::new(&key(number(turn)))));
    }
    let nanos = started.elapsed().as_nanos() as f64 / lookups.max(1) as f64;
    bar.add(lookups);
    (nanos, positives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_false_negative_is_a_fault() {
        for encoding in Encoding::built_in(10_000) {
            let filter = prepare(&encoding, &build(&encoding, 1_000).unwrap()).unwrap();
            assert!(check_members(&encoding, &filter, 1_000).is_ok());
            let denied = check_members(&encoding, &filter, 2_000);
            let Err(failure) = denied else { panic!("{encoding:?}") };
            let what = format!("{failure:?}");
            assert!(what.contains(encoding.label()) && what.contains("denies key 1"), "{what}");
        }
    }

    #[test]
    fn absent_keys_are_asked_once() {
        let bench = Bench { keys: 500, bits: 10.0, lookups: 5_000 };
        let Ok(measured) = bench
            .measure(Encoding::FastLocalBloom { millibits: 10_000 }, &Bar::keys("bench", None))
        else {
            panic!("measured")
        };
        assert!(measured.false_positives < 150, "{}", measured.false_positives);
        let (_, positives) = {
            let filter = build(&measured.encoding, 500).unwrap();
            let filter = prepare(&measured.encoding, &filter).unwrap();
            ask(&[filter], 5_000, &Bar::keys("bench", None), |turn| scattered(turn) % 500)
        };
        assert_eq!(positives, 5_000);
    }
}
