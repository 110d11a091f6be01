//! The arguments of `siftdb bench`, and how they are spelled.

use crate::numbers::{count, size};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use siftdb_cli::experiment::bench::{Distribution, KeyShape, WORKLOADS};
use std::path::PathBuf;
use std::time::Duration;

/// Whether lookups ask filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Filters {
    On,
    Off,
    Both,
}

#[derive(Args)]
pub struct BenchArgs {
    /// Workloads, in this order; `siftdb bench --help` lists them [default: readrandom readmissing]
    #[arg(value_name = "WORKLOAD")]
    #[arg(value_parser = PossibleValuesParser::new(WORKLOADS.map(|workload| workload.name)))]
    pub workloads: Vec<String>,
    /// Number of keys, such as 1e6
    #[arg(long, default_value = "500_000", value_parser = count)]
    pub keys: u64,
    /// Take the keys from this file, one a line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "key_shape", "db"])]
    pub key_file: Option<PathBuf>,
    /// What keys look like
    #[arg(long, value_enum, default_value = "random")]
    pub key_shape: KeyShape,
    /// Bytes of each value
    #[arg(long, default_value = "100", value_parser = value_bytes)]
    pub value_bytes: u64,
    /// Which entries are asked for: uniform, zipfian, latest or hot[:KEYS[:OPERATIONS]], where a
    /// share of the keys gets a share of the operations, such as hot:1%:90%
    #[arg(long, default_value = "uniform", value_parser = distribution)]
    pub distribution: Distribution,
    /// The share of lookups whose key is there, such as 0.5 or 50%
    #[arg(long, default_value = "1", value_parser = ratio)]
    pub hit_ratio: f64,
    /// Threads that make operations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Time of each run, such as 500ms, 2s or 1m [default: 2s; a fill writes all keys]
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,
    /// Operations of each run: ends it sooner or instead
    #[arg(long, value_parser = count)]
    pub operations: Option<u64>,
    /// Operations a second of all threads together; then latency counts from the time at which an
    /// operation should have started
    #[arg(long, value_parser = count)]
    pub rate: Option<u64>,
    /// Entries of a batch in fillbatch, and keys of one operation of multireadrandom
    #[arg(long, default_value = "100", value_parser = batch)]
    pub batch: u64,
    /// Every write waits for the disk
    #[arg(long)]
    pub sync: bool,
    /// Filters of the tables, spelled as in `siftdb settings`
    #[arg(long, default_value = "bloom:10")]
    pub filter: String,
    /// Where their bits live: full, partitioned[:BYTES] or block-based[:BYTES] [default: full at
    /// levels 0 and 1 and partitioned below]
    #[arg(long)]
    pub layout: Option<String>,
    /// Size of the block cache
    #[arg(long, default_value = "64MiB")]
    pub cache: String,
    /// Compression of data blocks: none, snappy, lz4 or zstd:LEVEL
    #[arg(long, default_value = "snappy")]
    pub compression: String,
    /// Lookups with filters, without, or both by turns on the same database
    #[arg(long, value_enum, default_value = "both")]
    pub filters: Filters,
    /// Run everything in each combination of settings: filter, layout, cache, compression, threads.
    /// Name the workloads first
    #[arg(long, value_name = "SETTING=VALUE,...", num_args = 1..)]
    pub matrix: Vec<String>,
    /// Run everything this many times; each round reverses the order of the combinations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Decides keys, values and operations
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Drop the files from the system's cache before each turn, and keep nothing in the block
    /// cache; a run ends after 5 s
    #[arg(long)]
    pub cold: bool,
    /// Read an existing database, which is opened read-only
    #[arg(long, value_name = "DIR", conflicts_with_all = ["matrix", "dir", "filter", "layout"])]
    pub db: Option<PathBuf>,
    /// Where the temporary directory of the databases is made [default: where the system does so]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Write the runs as a table, a line for each kind of operation
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page with pictures: one HTML file that loads nothing
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Bytes of a value: many are made in memory.
fn value_bytes(text: &str) -> Result<u64, String> {
    size(text).and_then(|bytes| match bytes {
        0..=0x4000_0000 => Ok(bytes),
        _ => Err("at most 1GiB".into()),
    })
}

/// Entries of a batch, which is made in memory.
fn batch(text: &str) -> Result<u64, String> {
    count(text).and_then(|entries| match entries {
        0..=1_000_000 => Ok(entries),
        _ => Err("at most 1e6".into()),
    })
}

/// A share from 0 to 1, both included; also in percent.
fn ratio(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    share
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a share from 0 to 1, such as 0.5 or 50%".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().map_or(f64::NAN, |number| number * unit);
    match (0.001..=1e6).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("a time from 1ms to 1e6s, such as 500ms, 2s or 1m".into()),
    }
}

fn distribution(text: &str) -> Result<Distribution, String> {
    let mut words = text.split(':');
    let share = |word: Option<&str>, default: f64| word.map_or(Ok(default), ratio);
    let named = match words.next() {
        Some("uniform") => Some(Distribution::Uniform),
        Some("zipfian") => Some(Distribution::Zipfian),
        Some("latest") => Some(Distribution::Latest),
        Some("hot") => Some(Distribution::HotSet {
            keys: share(words.next(), 0.01)?,
            operations: share(words.next(), 0.9)?,
        }),
        _ => None,
    };
    let named = named.filter(|_| words.next().is_none());
    named.ok_or_else(|| "uniform, zipfian, latest or hot[:KEYS[:OPERATIONS]]".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_shares_and_distributions_are_parsed() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "5", "s", "0s", "-1s", "1d", "NaNs", "1e9s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!((ratio("0"), ratio("1"), ratio("25%")), (Ok(0.0), Ok(1.0), Ok(0.25)));
        for wrong in ["", "1.1", "-0.1", "NaN", "101%"] {
            assert!(ratio(wrong).is_err(), "{wrong}");
        }
        let hot = Distribution::HotSet { keys: 0.05, operations: 0.9 };
        assert_eq!(distribution("hot:5%"), Ok(hot));
        assert_eq!(distribution("zipfian"), Ok(Distribution::Zipfian));
        for wrong in ["", "hot:2", "uniform:1", "hot:1%:1%:1%", "normal"] {
            assert!(distribution(wrong).is_err(), "{wrong}");
        }
    }
}
