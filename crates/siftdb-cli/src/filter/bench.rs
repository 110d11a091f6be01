//! `siftdb filter bench`: measures building and asking filters of every encoding.
//!
//! `siftdb_cli::experiment` builds and asks the filters; this prints what it measured. A filter
//! that denies a key of its own is a defect of the encoding and ends the command. With `--ranges`
//! it measures range filters, for keys of several shapes.

use crate::bars::Bar;
use crate::described::{help, more_help, result};
use crate::failure::{Failure, Outcome};
use crate::json::Interval;
use crate::numbers::{bits, count, percent};
use crate::output::{Output, Shown, Text};
use clap::Args;
use siftdb::filter::Encoding;
use siftdb_cli::experiment::{
    FilterMeasurement, FilterTrial, INSIDE_KEYS, RANGE_KEYS_PER_BLOCK, RangeKeys, RangeMeasurement,
    RangeTrial, measure_filter, measure_range_filters,
};
use std::io::{self, Write};

/// Bytes that the copies of the large filter take together.
const OUTSIDE_BYTES: usize = 128 << 20;

/// More keys would take too long to build.
const KEYS_MAX: u64 = 200_000_000;

/// More keys would take too much memory, because those of a range filter are kept.
const RANGE_KEYS_MAX: u64 = 20_000_000;

/// Bits per key of the range filters.
const RANGE_BITS: [f64; 4] = [8.0, 10.0, 12.0, 16.0];

result! {
    /// JSON fields. Times are nanoseconds:
    struct Benched {
        /// as given
        keys, lookups: u64;
        /// keys of the filter that fits into the processor's caches
        inside_keys: u64;
        /// bytes of all copies of the large filter
        outside_bytes: usize;
        /// one for each:
        encodings: Vec<Row>;
    }

    struct Row of measured: &FilterMeasurement {
        /// its name
        encoding: &'static str = measured.encoding.label();
        /// bits asked for
        asked_bits: Option<f64> = measured.encoding.bits_per_key();
        /// bits of the filter
        bits_per_key: f64 = measured.passed.bits_per_key();
        /// its bytes
        filter_bytes: u64 => measured.passed;
        /// how long building takes
        build_nanos_per_key: f64;
        /// a lookup in the small filter
        inside_absent_nanos, inside_present_nanos: f64;
        /// a lookup in the large ones
        outside_absent_nanos, outside_present_nanos: f64;
        /// absent keys that passed
        false_positives: u64 => measured.passed;
        /// the rate to expect
        expected_fpr: Option<f64> => measured.passed;
        /// the one that was counted
        observed_fpr: f64 = measured.passed.observed_fpr();
        #[serde(flatten)] interval: Interval = Interval::of(measured.passed.interval());
    }

    /// With --ranges:
    struct BenchedRanges {
        /// as given
        keys, lookups: u64;
        /// keys of a data block
        keys_per_block: usize;
        /// one for each shape of keys and number of bits:
        range_filters: Vec<RangeRow>;
    }

    struct RangeRow of measured: &RangeMeasurement {
        /// the shape of its keys: integers, uuids, timestamps, ids, urls or paths
        shape: &'static str = measured.shape.label();
        /// bits asked for
        asked_bits: f64;
        /// bits of the filter
        bits_per_key: f64 = measured.bits_per_key();
        /// its bytes
        filter_bytes: u64;
        /// how long building takes
        build_nanos_per_key: f64;
        /// a question for a range without a key, and with one
        empty_nanos, present_nanos: f64;
        /// empty ranges at random places that passed
        random_passed: u64;
        /// their share
        random_share: f64 = measured.random_share();
        /// empty ranges directly after a key that passed
        after_key_passed: u64;
        /// their share
        after_key_share: f64 = measured.after_key_share();
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Benched>() + &more_help::<BenchedRanges>())]
pub struct Bench {
    /// Keys of each filter; also 1e6
    #[arg(long, default_value = "1e6", value_parser = count)]
    keys: u64,
    /// Bits of filter for each key, rounded to what an encoding takes [default: 10, or with
    /// --ranges 8, 10, 12 and 16]
    #[arg(long, value_parser = bits)]
    bits: Option<f64>,
    /// Lookups of each kind [default: 1e6, or with --ranges 1e5]
    #[arg(long, value_parser = count)]
    lookups: Option<u64>,
    /// Measure range filters instead
    ///
    /// Keys are random 8-byte integers; random UUIDs as text; random milliseconds of a year as
    /// decimal text; ids such as user:00000123:name, of an eighth of all users and fields; made-up
    /// URLs and paths of files, with a few frequent words and many rare ones (Zipf).
    ///
    /// Empty ranges at random places begin at a key of the same shape that is not in the filter,
    /// and have the keys that begin with it. Those of integers have 2^-20 to 1/2 of the mean gap.
    /// The other empty ranges begin directly after a stored key, like a scan for the next page.
    /// Most of them pass, because the filter knows only approximate positions.
    #[arg(long)]
    ranges: bool,
}

impl Bench {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let keys_max = if self.ranges { RANGE_KEYS_MAX } else { KEYS_MAX };
        if self.keys > keys_max {
            return Err(Failure::usage(format!("--keys {}: at most {keys_max}", self.keys)));
        }
        match self.ranges {
            true => self.run_ranges(self.lookups.unwrap_or(100_000), output),
            false => self.run_encodings(self.lookups.unwrap_or(1_000_000), output),
        }
    }

    fn run_encodings(&self, lookups: u64, output: Output) -> Outcome<Shown> {
        let millibits = (1_000.0 * self.bits.unwrap_or(10.0)).round();
        let encodings = Encoding::built_in(millibits as u32);
        let total = encodings.len() as u64 * (3 * self.keys + 4 * lookups);
        let bar = Bar::keys("bench", Some(total));
        let keys = self.keys;
        let trial = FilterTrial { keys, lookups, outside_bytes: OUTSIDE_BYTES };
        let measure = |encoding| Ok(measure_filter(encoding, &trial, &mut |keys| bar.add(keys))?);
        let measured = encodings.into_iter().map(measure);
        let measured = measured.collect::<Outcome<Vec<_>>>()?;
        drop(bar);
        let encodings = measured.iter().map(Row::of).collect();
        let (inside_keys, outside_bytes) = (keys.min(INSIDE_KEYS), OUTSIDE_BYTES);
        let benched = Benched { keys, lookups, inside_keys, outside_bytes, encodings };
        output.show(&benched, |out| benched.print(out))
    }

    fn run_ranges(&self, lookups: u64, output: Output) -> Outcome<Shown> {
        let keys = self.keys;
        let bits = self.bits.map_or(RANGE_BITS.to_vec(), |bits| vec![bits]);
        let filters = (RangeKeys::ALL.len() * bits.len()) as u64;
        let bar = Bar::keys("bench", Some(filters * (keys + 3 * lookups)));
        let trial = RangeTrial { keys, lookups, bits };
        let measure = |shape| measure_range_filters(shape, &trial, &mut |keys| bar.add(keys));
        let measured = RangeKeys::ALL.into_iter().map(measure);
        let measured = measured.collect::<siftdb::Result<Vec<_>>>()?;
        drop(bar);
        let range_filters = measured.iter().flatten().map(RangeRow::of).collect();
        let keys_per_block = RANGE_KEYS_PER_BLOCK;
        let benched = BenchedRanges { keys, lookups, keys_per_block, range_filters };
        output.show(&benched, |out| benched.print(out))
    }
}

impl Benched {
    fn print(&self, out: &mut Text<'_>) -> io::Result<()> {
        writeln!(out, "{} keys, {} lookups of each kind", self.keys, self.lookups)?;
        writeln!(out, "{:>44}{:>22}{:>22}", "", "ns/lookup in cache", "ns/lookup outside")?;
        write!(out, "{:<18}{:>10}{:>16}", "encoding", "bits/key", "build ns/key")?;
        writeln!(out, "{0:>11}{1:>11}{0:>11}{1:>11}  false positives", "absent", "present")?;
        for row in &self.encodings {
            write!(out, "{:<18}{:>10.2}", row.encoding, row.bits_per_key)?;
            write!(out, "{:>16.1}{:>11.1}", row.build_nanos_per_key, row.inside_absent_nanos)?;
            write!(out, "{:>11.1}{:>11.1}", row.inside_present_nanos, row.outside_absent_nanos)?;
            write!(out, "{:>11.1}  {} ", row.outside_present_nanos, percent(row.observed_fpr))?;
            let Interval { observed_fpr_low: low, observed_fpr_high: high } = row.interval;
            let [low, high, expected] =
                [low, high, row.expected_fpr].map(|rate| percent(rate.unwrap_or_default()));
            writeln!(out, "({low} to {high}), {expected} expected")?;
        }
        writeln!(out, "no false negatives: every key of a filter was found in it")
    }
}

impl BenchedRanges {
    fn print(&self, out: &mut Text<'_>) -> io::Result<()> {
        write!(out, "{} keys in blocks of {RANGE_KEYS_PER_BLOCK}, ", self.keys)?;
        writeln!(out, "{} ranges of each kind", self.lookups)?;
        writeln!(out, "{:>57}{:>24}", "ns/range", "empty ranges passed")?;
        write!(out, "{:<11}{:>5}{:>10}{:>14}", "keys", "bits", "bits/key", "build ns/key")?;
        writeln!(out, "{:>8}{:>9}{:>11}{:>13}", "empty", "present", "at random", "after a key")?;
        for row in &self.range_filters {
            write!(out, "{:<11}{:>5}{:>10.2}", row.shape, row.asked_bits, row.bits_per_key)?;
            write!(out, "{:>14.1}{:>8.1}", row.build_nanos_per_key, row.empty_nanos)?;
            let shares = [row.random_share, row.after_key_share].map(percent);
            writeln!(out, "{:>9.1}{:>11}{:>13}", row.present_nanos, shares[0], shares[1])?;
        }
        writeln!(out, "no false negatives: every range with a key passed")
    }
}
