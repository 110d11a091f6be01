//! One series of lookups in one open database, counted twice: by the engine and by its Env.
//!
//! The engine's share is the difference of `Db::stats` before and after; the Env's share is what
//! [`CountingEnv`] saw in between. Nothing else may run on either meanwhile: compaction is off and
//! nothing is written, so both have to agree to the byte.

use crate::base::error::Result;
use crate::base::stats::report::{LevelStats, Stats};
use crate::db::handle::Db;
use crate::env::counting::CountingEnv;
use crate::experiment::report::{Column, Measurement};
use crate::options::access::ReadOptions;
use std::time::Instant;

/// Looks up all of `keys`, of which `present` says whether they have to be found.
///
/// # Errors
/// A lookup failed.
pub fn probe(
    db: &Db,
    env: &CountingEnv,
    column: Column,
    keys: &[Vec<u8>],
    present: bool,
    looked_up: &mut dyn FnMut(u64),
) -> Result<Measurement> {
    let options = ReadOptions::new().use_filters(column.asks_filters());
    let mut nanos: Vec<u32> = Vec::with_capacity(keys.len());
    let mut found = 0u64;
    let before = db.stats();
    let (calls, bytes) = (env.read_calls(), env.read_bytes());
    for chunk in keys.chunks(1000) {
        for key in chunk {
            let started = Instant::now();
            let value = db.get_with(key, &options)?;
            nanos.push(u32::try_from(started.elapsed().as_nanos()).unwrap_or(u32::MAX));
            found += u64::from(value.is_some());
        }
        looked_up(chunk.len() as u64);
    }
    let env_read_calls = env.read_calls() - calls;
    let env_bytes_read = env.read_bytes() - bytes;
    let stats = db.stats().since(&before);
    let total = stats.total();
    nanos.sort_unstable();
    let mut measurement = Measurement {
        lookups: keys.len() as u64,
        found,
        data_blocks: total.data_blocks(),
        data_blocks_read: total.data_blocks_read,
        data_bytes_read: total.data_bytes_read,
        index_seeks: total.index_seeks,
        index_blocks_read: total.index_blocks_read,
        index_bytes_read: total.index_bytes_read,
        filter_blocks_read: total.filter_blocks_read,
        filter_bytes_read: total.filter_bytes_read,
        data_blocks_avoided: total.data_blocks_avoided(),
        false_positives: total.false_positives,
        filter_answers_absent: total.false_positives + total.negatives,
        observed_fpr: total.observed_fpr(),
        expected_fpr: expected_fpr(&stats),
        p50_nanos: percentile(&nanos, 50),
        p99_nanos: percentile(&nanos, 99),
        env_read_calls,
        env_bytes_read,
        ..Measurement::of(column)
    };
    measurement.faults = faults(&measurement, &stats, present);
    Ok(measurement)
}

/// The rate to expect of these very lookups: each level's own, weighted by how often its filters
/// were asked for a key they do not have.
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

/// What does not add up.
fn faults(measured: &Measurement, stats: &Stats, present: bool) -> Vec<String> {
    let expected_found = if present { measured.lookups } else { 0 };
    let checks = [
        ("keys found, against keys that are there", measured.found, expected_found),
        ("lookups counted, against lookups made", stats.gets, measured.lookups),
        ("blocks read, against read calls", measured.blocks_read(), measured.env_read_calls),
        ("bytes of blocks, against bytes read", measured.bytes_read(), measured.env_bytes_read),
        ("damaged filters", stats.filter_errors, 0),
    ];
    checks
        .into_iter()
        .filter(|(_, counted, witnessed)| counted != witnessed)
        .map(|(what, counted, witnessed)| {
            format!("{}: {what}: {counted} against {witnessed}", measured.column)
        })
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
    fn expected_rates_are_weighted_by_use() {
        let level = |expected_fpr, negatives, false_positives| LevelStats {
            expected_fpr,
            negatives,
            false_positives,
            entries: 1_000_000,
            ..LevelStats::default()
        };
        let mut stats = Stats::default();
        assert_eq!(expected_fpr(&stats), None);
        stats.levels = vec![level(0.01, 290, 10), level(0.03, 100, 0), level(0.5, 0, 0)];
        let expected = expected_fpr(&stats).unwrap();
        assert!((expected - 0.015).abs() < 1e-12, "{expected}");
    }

    #[test]
    fn one_extra_read_call_is_a_fault() {
        let sound = Measurement { lookups: 3, ..Measurement::of(Column::Full) };
        let stats = Stats { gets: 3, ..Stats::default() };
        assert_eq!(faults(&sound, &stats, false), Vec::<String>::new());
        assert_eq!(faults(&sound, &stats, true).len(), 1);
        let unseen = Measurement { env_read_calls: 1, ..sound.clone() };
        assert!(faults(&unseen, &stats, false)[0].contains("0 against 1"));
        let uncounted = Measurement { filter_bytes_read: 1, ..sound };
        assert!(faults(&uncounted, &stats, false)[0].contains("1 against 0"));
    }
}
