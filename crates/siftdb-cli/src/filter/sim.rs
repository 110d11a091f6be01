//! `siftdb filter sim`: a calculator for filters; it builds none and needs no database.
//!
//! For m/n bits per key the ideal Bloom filter has k = ln 2 * m/n probes and the rate (1/2)^k.
//! Conversely, a rate e takes 1.44 * log2(1/e) bits (1.44 is 1/ln 2). Real encodings have whole
//! probes and cache lines, so they take more bits; the last column says how many more than the
//! ideal for their rate. Ribbon filters take fewer; no such filter can take less than log2(1/e).

use crate::described::{help, result};
use crate::failure::Outcome;
use crate::numbers::{bits, count, percent, share};
use crate::output::{Output, Shown, Text};
use crate::text::counted;
use clap::Args;
use siftdb::filter::Encoding;
use siftdb_cli::experiment::bytes;
use std::f64::consts::LN_2;
use std::io::{self, Write};

result! {
    struct Simulated {
        /// how many keys
        keys: u64;
        /// one for each encoding and each of --bits or --fpr:
        filters: Vec<Row>;
    }

    struct Row {
        /// its name; ideal Bloom is no encoding but the theory
        encoding: &'static str;
        /// bits per key to ask for; the filter may take less
        asked_bits: f64;
        /// bits per key of the filter
        bits_per_key: f64;
        /// its bytes
        bytes: u64;
        /// bits that a lookup looks at
        probes: f64;
        /// share of absent keys that pass, 0 to 1
        expected_fpr: f64;
        /// bits more than an ideal Bloom filter of that rate has, as a share
        above_ideal: f64;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Simulated>())]
#[command(group(clap::ArgGroup::new("aim").required(true)))]
pub struct Sim {
    /// How many keys; also 1e6
    #[arg(long, default_value = "1e6", value_parser = count)]
    keys: u64,
    /// Bits of filter for each key; several with commas between
    #[arg(long, group = "aim", value_delimiter = ',', value_parser = bits)]
    bits: Vec<f64>,
    /// The share of absent keys that may pass, such as 0.01 or 1%; several with commas between
    #[arg(long, group = "aim", value_delimiter = ',', value_parser = share)]
    fpr: Vec<f64>,
}

impl Row {
    /// The ideal Bloom filter with these bits per key.
    fn ideal(keys: u64, bits: f64) -> Self {
        let probes = LN_2 * bits;
        let expected_fpr = 0.5f64.powf(probes);
        Row {
            encoding: "ideal Bloom",
            asked_bits: bits,
            bits_per_key: bits,
            bytes: (bits * keys as f64 / 8.0).round() as u64,
            probes,
            expected_fpr,
            above_ideal: above_ideal(bits, expected_fpr),
        }
    }

    fn of(encoding: &Encoding, keys: u64) -> Option<Self> {
        let bytes = encoding.filter_bytes(keys)?;
        let bits_per_key = 8.0 * bytes as f64 / keys as f64;
        let expected_fpr = encoding.expected_fpr_of(keys)?;
        Some(Row {
            encoding: encoding.label(),
            asked_bits: encoding.bits_per_key()?,
            bits_per_key,
            bytes,
            probes: f64::from(encoding.probes()?),
            expected_fpr,
            above_ideal: above_ideal(bits_per_key, expected_fpr),
        })
    }
}

/// Bits more than an ideal Bloom filter of the same rate has, as a share of its bits.
fn above_ideal(bits_per_key: f64, fpr: f64) -> f64 {
    bits_per_key / ideal_bits(fpr) - 1.0
}

/// Bits per key that an ideal Bloom filter takes for a rate: 1.44 * log2(1/e).
fn ideal_bits(fpr: f64) -> f64 {
    (1.0 / fpr).log2() / LN_2
}

impl Sim {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let simulated = Simulated { keys: self.keys, filters: self.rows() };
        output.show(&simulated, |out| self.print(&simulated.filters, out))
    }

    fn print(&self, rows: &[Row], out: &mut Text<'_>) -> io::Result<()> {
        let probes = "probes: k = ln 2 * bits is ideal; above: bits over 1.44 * log2(1 / expected)";
        writeln!(out, "{}; {probes}", counted(self.keys, "key"))?;
        let head = ["encoding", "asked", "bits/key", "memory", "probes", "expected", "one in"];
        let [encoding, asked, bits, memory, probes, expected, one_in] = head;
        write!(out, "{encoding:<18}{asked:>8}{bits:>10}{memory:>10}{probes:>8}")?;
        writeln!(out, "{expected:>12}{one_in:>10}{:>10}", "above")?;
        for row in rows {
            write!(out, "{:<18}{:>8.2}", row.encoding, row.asked_bits)?;
            write!(out, "{:>10.2}{:>10}", row.bits_per_key, bytes(row.bytes))?;
            write!(out, "{:>8}", format!("{:.2}", row.probes).trim_end_matches(".00"))?;
            write!(out, "{:>12}{:>10.0}", percent(row.expected_fpr), 1.0 / row.expected_fpr)?;
            writeln!(out, "{:>+8.1} %", 100.0 * row.above_ideal)?;
        }
        for (fpr, label) in self.out_of_reach(rows) {
            writeln!(out, "{label} cannot keep to {} with {} keys", percent(fpr), self.keys)?;
        }
        Ok(())
    }

    /// The ideal filter first, then all encodings, for each aim.
    fn rows(&self) -> Vec<Row> {
        let of_all = |encodings: Vec<Encoding>| {
            let mut rows: Vec<Row> =
                encodings.iter().filter_map(|encoding| Row::of(encoding, self.keys)).collect();
            rows.sort_by_key(|row| place(row.encoding));
            rows
        };
        let mut rows = Vec::new();
        for &bits in &self.bits {
            rows.push(Row::ideal(self.keys, bits));
            rows.extend(of_all(Encoding::built_in((1_000.0 * bits).round() as u32)));
        }
        for &fpr in &self.fpr {
            rows.push(Row::ideal(self.keys, ideal_bits(fpr)));
            rows.extend(of_all(Encoding::built_in_for_fpr(fpr, self.keys)));
        }
        rows
    }

    fn out_of_reach(&self, rows: &[Row]) -> Vec<(f64, &'static str)> {
        let mut missing = Vec::new();
        for &fpr in &self.fpr {
            for encoding in Encoding::built_in(10_000) {
                let label = encoding.label();
                if !rows.iter().any(|row| row.encoding == label && row.expected_fpr <= fpr) {
                    missing.push((fpr, label));
                }
            }
        }
        missing
    }
}

/// The index of an encoding in the library's list.
fn place(label: &str) -> Option<usize> {
    Encoding::built_in(10_000).iter().position(|encoding| encoding.label() == label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sim(bits: &[f64], fpr: &[f64]) -> Vec<Row> {
        Sim { keys: 1_000_000, bits: bits.into(), fpr: fpr.into() }.rows()
    }

    #[test]
    fn ideal_filters_have_ln_2_probes_a_bit() {
        let ideal = Row::ideal(1_000_000, 10.0);
        assert!(
            (ideal.probes - 6.931).abs() < 0.001 && (ideal.expected_fpr - 0.008_193).abs() < 1e-6
        );
        assert!(ideal.above_ideal.abs() < 1e-12 && ideal.bytes == 1_250_000);
        assert!((ideal_bits(0.01) - 9.585).abs() < 0.001);
        let back = Row::ideal(1, ideal_bits(0.01));
        assert!((back.expected_fpr - 0.01).abs() < 1e-12 && (back.probes - 6.644).abs() < 0.001);
    }

    #[test]
    fn bits_and_rates_give_the_same_row() {
        for row in sim(&[10.0, 16.0], &[]) {
            let aim = row.expected_fpr * 1.000_001;
            let back = sim(&[], &[aim]);
            let same = back.iter().find(|other| other.encoding == row.encoding).unwrap();
            assert!((same.asked_bits - row.asked_bits).abs() < 0.51, "{row:?} {same:?}");
            assert!(same.expected_fpr <= aim * 1.000_001);
        }
        let names: Vec<&str> = sim(&[10.0], &[]).iter().map(|row| row.encoding).collect();
        assert_eq!(names[..3], ["ideal Bloom", "leveldb-bloom", "fast-local-bloom"]);
    }

    #[test]
    fn fast_local_bloom_is_close_to_ideal() {
        let rows = sim(&[10.0], &[]);
        let fast = rows.iter().find(|row| row.encoding == "fast-local-bloom").unwrap();
        assert!((0.02..0.05).contains(&fast.above_ideal), "{}", fast.above_ideal);
        assert_eq!((fast.probes, fast.bits_per_key.round()), (6.0, 10.0));
    }
}
