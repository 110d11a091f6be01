//! `siftdb filter bench`: measures building and asking filters of every encoding.
//!
//! `siftdb_cli::experiment` builds and asks the filters; this prints what it measured. A filter
//! that denies a key of its own is a defect of the encoding and ends the command.

use crate::bars::Bar;
use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::json::Interval;
use crate::numbers::{bits, count, percent};
use crate::output::{Output, Shown, Text};
use clap::Args;
use siftdb::filter::Encoding;
use siftdb_cli::experiment::{FilterMeasurement, FilterTrial, INSIDE_KEYS, measure_filter};
use std::io::{self, Write};

/// Bytes that the copies of the large filter take together.
const OUTSIDE_BYTES: usize = 128 << 20;

/// More keys would take too long to build.
const KEYS_MAX: u64 = 200_000_000;

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
}

#[derive(Args)]
#[command(after_long_help = help::<Benched>())]
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

impl Bench {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if self.keys > KEYS_MAX {
            return Err(Failure::usage(format!("--keys {}: at most {KEYS_MAX}", self.keys)));
        }
        let encodings = Encoding::built_in((1_000.0 * self.bits).round() as u32);
        let total = encodings.len() as u64 * (3 * self.keys + 4 * self.lookups);
        let bar = Bar::keys("bench", Some(total));
        let (keys, lookups) = (self.keys, self.lookups);
        let trial = FilterTrial { keys, lookups, outside_bytes: OUTSIDE_BYTES };
        let measure = |encoding| Ok(measure_filter(encoding, &trial, &mut |keys| bar.add(keys))?);
        let measured = encodings.into_iter().map(measure);
        let measured = measured.collect::<Outcome<Vec<_>>>()?;
        drop(bar);
        let encodings = measured.iter().map(Row::of).collect();
        let (inside_keys, outside_bytes) = (keys.min(INSIDE_KEYS), OUTSIDE_BYTES);
        let benched = Benched { keys, lookups, inside_keys, outside_bytes, encodings };
        output.show(&benched, |out| self.print(&benched.encodings, out))
    }

    fn print(&self, encodings: &[Row], out: &mut Text<'_>) -> io::Result<()> {
        writeln!(out, "{} keys, {} lookups of each kind", self.keys, self.lookups)?;
        writeln!(out, "{:>44}{:>22}{:>22}", "", "ns/lookup in cache", "ns/lookup outside")?;
        write!(out, "{:<18}{:>10}{:>16}", "encoding", "bits/key", "build ns/key")?;
        writeln!(out, "{0:>11}{1:>11}{0:>11}{1:>11}  false positives", "absent", "present")?;
        for row in encodings {
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
