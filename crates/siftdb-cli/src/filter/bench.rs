//! `siftdb filter bench`: measures building and asking filters of every encoding.
//!
//! `siftdb_cli::experiment` builds and asks the filters; this prints what it measured. A filter
//! that denies a key of its own is a defect of the encoding and ends the command.

use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::json::{fields, joined, list};
use crate::numbers::{bits, count, percent};
use crate::output::{Output, Shown, Text};
use clap::Args;
use serde_json::{Value, json};
use siftdb::filter::Encoding;
use siftdb_cli::experiment::{FilterMeasurement, FilterTrial, INSIDE_KEYS, measure_filter};
use std::io::{self, Write};

/// Bytes that the copies of the large filter take together.
const OUTSIDE_BYTES: usize = 128 << 20;

/// More keys would take too long to build.
const KEYS_MAX: u64 = 200_000_000;

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
        let json = json!({
            "keys": self.keys,
            "lookups": self.lookups,
            "inside_keys": self.keys.min(INSIDE_KEYS),
            "outside_bytes": OUTSIDE_BYTES,
            "encodings": list(&measured, row_json),
        });
        output.show(json, |out| self.print(&measured, out))
    }

    fn print(&self, measured: &[FilterMeasurement], out: &mut Text<'_>) -> io::Result<()> {
        writeln!(out, "{} keys, {} lookups of each kind", self.keys, self.lookups)?;
        writeln!(out, "{:>44}{:>22}{:>22}", "", "ns/lookup in cache", "ns/lookup outside")?;
        write!(out, "{:<18}{:>10}{:>16}", "encoding", "bits/key", "build ns/key")?;
        writeln!(out, "{0:>11}{1:>11}{0:>11}{1:>11}  false positives", "absent", "present")?;
        for one in measured {
            write!(out, "{:<18}{:>10.2}", one.encoding.label(), one.passed.bits_per_key())?;
            write!(out, "{:>16.1}{:>11.1}", one.build_nanos_per_key, one.inside_absent_nanos)?;
            write!(out, "{:>11.1}{:>11.1}", one.inside_present_nanos, one.outside_absent_nanos)?;
            write!(out, "{:>11.1}  ", one.outside_present_nanos)?;
            let passed = &one.passed;
            let (low, high) = passed.interval().unwrap_or_default();
            let expected = passed.expected_fpr.unwrap_or_default();
            write!(out, "{} ", percent(passed.observed_fpr()))?;
            write!(out, "({} to {})", percent(low), percent(high))?;
            writeln!(out, ", {} expected", percent(expected))?;
        }
        writeln!(out, "no false negatives: every key of a filter was found in it")
    }
}

fn row_json(measured: &FilterMeasurement) -> Value {
    let interval = measured.passed.interval();
    joined([
        fields!(measured;
            build_nanos_per_key, inside_absent_nanos, inside_present_nanos,
            outside_absent_nanos, outside_present_nanos),
        fields!(measured.passed; filter_bytes, false_positives, expected_fpr),
        json!({
            "encoding": measured.encoding.label(),
            "asked_bits": measured.encoding.bits_per_key(),
            "bits_per_key": measured.passed.bits_per_key(),
            "observed_fpr": measured.passed.observed_fpr(),
            "observed_fpr_low": interval.map(|(low, _)| low),
            "observed_fpr_high": interval.map(|(_, high)| high),
        }),
    ])
}
