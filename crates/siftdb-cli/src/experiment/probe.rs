//! One series of lookups in an open database, counted twice: by the engine and by its Env.
//!
//! The engine's counts are the difference of `Db::stats` before and after. The Env's counts are
//! what [`CountingEnv`] saw in between. No other thread may use the database at the same time, and
//! compaction is off, so both agree to the byte. A disagreement is a fault of the measurement.

use siftdb::env::CountingEnv;
use siftdb::{Db, LevelStats, ReadOptions, Result, Stats};
use std::time::Instant;

/// The cost of a series of lookups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurement {
    /// Lookups made.
    pub lookups: u64,
    /// Lookups that found a value.
    pub found: u64,
    /// The engine's counts, all levels together.
    pub total: LevelStats,
    /// The false-positive rate to expect of the filters, weighted by how often each level's were
    /// asked for an absent key; `None` if none was.
    pub expected_fpr: Option<f64>,
    /// Median time of a lookup.
    pub p50_nanos: u32,
    /// The time within which 99 of 100 lookups end.
    pub p99_nanos: u32,
    /// The whole distribution: the time that one in N lookups takes or exceeds, for 2, 4, 10
    /// and so on up to the number of lookups.
    pub slower_nanos: Vec<(u64, u32)>,
    /// Read calls that the Env saw.
    pub env_read_calls: u64,
    /// Bytes that the Env saw read.
    pub env_bytes_read: u64,
    /// Counts that disagree; empty in a sound measurement.
    pub faults: Vec<String>,
}

impl Measurement {
    /// Blocks of any kind read from files.
    pub fn blocks_read(&self) -> u64 {
        blocks_read(&self.total)
    }

    /// Bytes of those.
    pub fn bytes_read(&self) -> u64 {
        bytes_read(&self.total)
    }

    /// `count` for each lookup.
    pub fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.lookups.max(1) as f64
    }
}

/// Blocks of any kind that lookups and scans read from files.
pub(crate) fn blocks_read(total: &LevelStats) -> u64 {
    let lookups = total.data_blocks_read + total.index_blocks_read + total.filter_blocks_read;
    let scans = total.scan_data_blocks_read + total.scan_index_blocks_read;
    lookups + scans + total.scan_filter_blocks_read
}

/// Bytes of those.
pub(crate) fn bytes_read(total: &LevelStats) -> u64 {
    let lookups = total.data_bytes_read + total.index_bytes_read + total.filter_bytes_read;
    let scans = total.scan_data_bytes_read + total.scan_index_bytes_read;
    lookups + scans + total.scan_filter_bytes_read
}

/// The points of a distribution: the time of the slowest half, of one lookup in 4, in 10, and so
/// on.
const ONE_IN: [u64; 8] = [2, 4, 10, 30, 100, 1_000, 10_000, 100_000];

/// Looks up `keys`. `is_present` says what each lookup must find. `looked_up` gets the number of
/// lookups since its last call.
///
/// # Errors
/// A lookup failed.
pub fn measure<K: AsRef<[u8]>>(
    db: &Db,
    env: &CountingEnv,
    keys: impl IntoIterator<Item = K>,
    is_present: impl Fn(&[u8]) -> bool,
    options: &ReadOptions,
    looked_up: &mut dyn FnMut(u64),
) -> Result<Measurement> {
    const STEP: u64 = 1000;
    let mut nanos: Vec<u32> = Vec::new();
    let (mut lookups, mut found, mut present) = (0, 0, 0);
    let before = db.stats();
    let (calls, bytes) = (env.counts().read_calls, env.counts().read_bytes);
    for key in keys {
        present += u64::from(is_present(key.as_ref()));
        let started = Instant::now();
        let value = db.get_with(&key, options)?;
        nanos.push(u32::try_from(started.elapsed().as_nanos()).unwrap_or(u32::MAX));
        found += u64::from(value.is_some());
        lookups += 1;
        if lookups % STEP == 0 {
            looked_up(STEP);
        }
    }
    looked_up(lookups % STEP);
    let stats = db.stats().since(&before);
    nanos.sort_unstable();
    let mut measurement = Measurement {
        lookups,
        found,
        expected_fpr: expected_fpr(&stats),
        total: stats.total(),
        p50_nanos: percentile(&nanos, 50),
        p99_nanos: percentile(&nanos, 99),
        slower_nanos: slower(&nanos),
        env_read_calls: env.counts().read_calls - calls,
        env_bytes_read: env.counts().read_bytes - bytes,
        faults: Vec::new(),
    };
    measurement.faults = faults(&measurement, &stats, present);
    Ok(measurement)
}

/// Each level's expected rate, weighted by how often its filters were asked for an absent key.
fn expected_fpr(stats: &Stats) -> Option<f64> {
    let asked = |level: &LevelStats| (level.negatives + level.false_positives) as f64;
    let all: f64 = stats.levels.iter().map(asked).sum();
    let weighted: f64 = stats.levels.iter().map(|level| level.expected_fpr * asked(level)).sum();
    (all > 0.0).then(|| weighted / all)
}

fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let place = sorted.len() * percent / 100;
    sorted.get(place).or(sorted.last()).copied().unwrap_or_default()
}

/// The points of [`ONE_IN`] that this number of lookups has.
fn slower(sorted: &[u32]) -> Vec<(u64, u32)> {
    let lookups = sorted.len() as u64;
    let points = ONE_IN.into_iter().take_while(|one_in| *one_in <= lookups);
    let point = |one_in| sorted.get((lookups - lookups.div_ceil(one_in)) as usize).copied();
    points.filter_map(|one_in| Some((one_in, point(one_in)?))).collect()
}

/// Counts that disagree.
fn faults(measured: &Measurement, stats: &Stats, present: u64) -> Vec<String> {
    [
        ("keys found and keys present", measured.found, present),
        ("lookups counted and lookups made", stats.gets, measured.lookups),
        ("blocks read and read calls", measured.blocks_read(), measured.env_read_calls),
        ("bytes of blocks and bytes read", measured.bytes_read(), measured.env_bytes_read),
        ("damaged filters and none", stats.filter_errors, 0),
    ]
    .into_iter()
    .filter(|(_, counted, witnessed)| counted != witnessed)
    .map(|(what, counted, witnessed)| format!("{what} differ: {counted} and {witnessed}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let sorted: Vec<u32> = (0..100).collect();
        assert_eq!(percentile(&sorted, 50), 50);
        assert_eq!(percentile(&sorted, 99), 99);
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn one_of_so_many_lookups_is_slower() {
        let sorted: Vec<u32> = (1..=100).collect();
        assert_eq!(slower(&sorted), [(2, 51), (4, 76), (10, 91), (30, 97), (100, 100)]);
        assert_eq!((slower(&[7]), slower(&[])), (vec![], vec![]));
    }

    #[test]
    fn expected_rates_are_weighted_by_use() {
        let level = |expected_fpr, negatives, false_positives| {
            let mut level = LevelStats::default();
            (level.expected_fpr, level.entries) = (expected_fpr, 1_000_000);
            (level.negatives, level.false_positives) = (negatives, false_positives);
            level
        };
        let mut stats = Stats::default();
        assert_eq!(expected_fpr(&stats), None);
        stats.levels = vec![level(0.01, 290, 10), level(0.03, 100, 0), level(0.5, 0, 0)];
        let expected = expected_fpr(&stats).unwrap();
        assert!((expected - 0.015).abs() < 1e-12, "{expected}");
    }

    #[test]
    fn one_extra_read_call_is_a_fault() {
        let sound = Measurement { lookups: 3, ..Measurement::default() };
        let mut stats = Stats::default();
        stats.gets = 3;
        assert_eq!(faults(&sound, &stats, 0), Vec::<String>::new());
        assert_eq!(faults(&sound, &stats, 3).len(), 1);
        let unseen = Measurement { env_read_calls: 1, ..sound.clone() };
        assert!(faults(&unseen, &stats, 0)[0].contains("0 and 1"));
        let mut total = LevelStats::default();
        total.filter_bytes_read = 1;
        let uncounted = Measurement { total, ..sound };
        assert!(faults(&uncounted, &stats, 0)[0].contains("1 and 0"));
    }
}
