//! Histograms of how long calls take: the buckets, and the sums of all threads.
//!
//! A bucket holds the durations above the bound of the one before, up to its own. There are four
//! buckets for each doubling from 64 ns to 69 s, so a bound is at most a quarter above any duration
//! in its bucket. The first bucket has everything below, the last one everything above.
//!
//! Each thread counts in its own stripe ([`Stripe::time`]). Only databases with
//! `Options::latency_histograms` read the clock and have these cells.
//!
//! [`Stripe::time`]: crate::base::stats::counters::Stripe::time

use std::time::Duration;

/// The kinds of calls that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedCall {
    Get,
    /// A batch of them.
    MultiGet,
    /// An iterator or cursor goes to an entry by its key: the first entry of an iterator, a seek.
    Seek,
    /// A write without a sync, or the commit of a transaction.
    Write,
    /// A write with a sync, and a sync alone.
    Sync,
}

/// Their names, in the order of the kinds.
pub(crate) const TIMED_CALLS: [&str; 5] = ["get", "multi_get", "seek", "write", "sync"];

/// The bound of the first bucket is 2 to this power, in nanoseconds.
const FIRST_LOG2: u32 = 6;

/// Doublings that have buckets of their own.
const DOUBLINGS: usize = 30;

/// Buckets for each of these, as a power of two.
const STEPS_LOG2: u32 = 2;

const STEPS: usize = 1 << STEPS_LOG2;

/// All buckets of a kind.
pub(crate) const BUCKETS: usize = 1 + DOUBLINGS * STEPS + 1;

/// Counters of a kind: the sum of nanoseconds, then the buckets.
pub(crate) const CELLS_OF_CALL: usize = 1 + BUCKETS;

/// Counters of all kinds.
pub(crate) const LATENCY_CELLS: usize = TIMED_CALLS.len() * CELLS_OF_CALL;

/// The bucket of a duration in nanoseconds.
pub(crate) fn bucket_of(nanos: u64) -> usize {
    // Bounds belong to the bucket below them.
    let below = nanos.saturating_sub(1);
    if below < 1 << FIRST_LOG2 {
        return 0;
    }
    let log2 = below.ilog2();
    let step = (below >> (log2 - STEPS_LOG2)) as usize % STEPS;
    (1 + (log2 - FIRST_LOG2) as usize * STEPS + step).min(BUCKETS - 1)
}

/// The longest duration in a bucket, in nanoseconds; `None` for the last one, which has no bound.
pub(crate) fn bound_of(bucket: usize) -> Option<u64> {
    match bucket.checked_sub(1) {
        None => Some(1 << FIRST_LOG2),
        Some(at) if at < DOUBLINGS * STEPS => {
            let (doubling, step) = ((at / STEPS) as u32, (at % STEPS) as u64);
            Some((STEPS as u64 + step + 1) << (FIRST_LOG2 + doubling - STEPS_LOG2))
        }
        Some(_) => None,
    }
}

/// True if the bound of `bucket` is a power of two, or infinite: the ends of coarser buckets.
pub(crate) fn ends_doubling(bucket: usize) -> bool {
    bound_of(bucket).is_none_or(u64::is_power_of_two)
}

/// The histograms of all kinds, summed up; empty where no call is timed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Latencies(Vec<u64>);

impl Latencies {
    /// The sums in the order of the cells; any other number of them counts as nothing.
    pub(crate) fn of(cells: &[u64]) -> Self {
        Latencies(if cells.len() == LATENCY_CELLS { cells.to_vec() } else { Vec::new() })
    }

    /// Sum of nanoseconds and buckets of a call; `None` if no call of any kind was timed, and for
    /// a name that is none.
    pub(crate) fn of_call(&self, call: &str) -> Option<(u64, &[u64])> {
        let kind = TIMED_CALLS.iter().position(|name| *name == call)?;
        let (sum, buckets) =
            self.0.chunks(CELLS_OF_CALL).nth(kind).and_then(<[u64]>::split_first)?;
        Some((*sum, buckets))
    }

    /// How many calls were timed.
    pub(crate) fn count(&self, call: &str) -> u64 {
        self.of_call(call).map_or(0, |(_, buckets)| buckets.iter().sum())
    }

    /// A duration that this share of the calls did not exceed, at most a quarter too long.
    pub(crate) fn quantile(&self, call: &str, share: f64) -> Option<Duration> {
        let (_, buckets) = self.of_call(call)?;
        let count: u64 = buckets.iter().sum();
        if count == 0 {
            return None;
        }
        let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
        let mut below = 0;
        let bucket = buckets.iter().position(|calls| {
            below += calls;
            below >= rank
        })?;
        Some(bound_of(bucket).map_or(Duration::MAX, Duration::from_nanos))
    }

    /// Adds those of another report.
    pub(crate) fn add(&mut self, other: &Latencies) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
        } else {
            self.0.iter_mut().zip(&other.0).for_each(|(sum, cell)| *sum += cell);
        }
    }

    /// Takes away those of an earlier report.
    pub(crate) fn subtract(&mut self, earlier: &Latencies) {
        let cells = self.0.iter_mut().zip(&earlier.0);
        cells.for_each(|(sum, cell)| *sum = sum.saturating_sub(*cell));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_within_its_bucket() {
        let edges = (0..64).flat_map(|bit| [-1i64, 0, 1, 2].map(|by| (1u64 << bit, by)));
        for nanos in edges.filter_map(|(nanos, by)| nanos.checked_add_signed(by)) {
            for nanos in [nanos, nanos.saturating_mul(3) / 2, nanos.saturating_mul(7) / 5] {
                let bucket = bucket_of(nanos);
                assert!(bound_of(bucket).is_none_or(|bound| nanos <= bound), "{nanos}");
                if let Some(before) = bucket.checked_sub(1).and_then(bound_of) {
                    assert!(before < nanos, "{nanos} in bucket {bucket}");
                    // Not by more than a quarter.
                    let wide = bound_of(bucket).is_some_and(|bound| bound > before + before / 4);
                    assert!(!wide, "{nanos}");
                }
            }
        }
        assert_eq!((bound_of(BUCKETS - 2), bound_of(BUCKETS - 1)), (Some(1 << 36), None));
        let ends: Vec<_> = (0..BUCKETS).filter(|bucket| ends_doubling(*bucket)).collect();
        assert_eq!(ends.len(), DOUBLINGS + 2);
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let mut cells = vec![0; LATENCY_CELLS];
        let seek = TimedCall::Seek as usize * CELLS_OF_CALL;
        cells[seek] = 1_000;
        for nanos in [50, 100, 100, 1000] {
            cells[seek + 1 + bucket_of(nanos)] += 1;
        }
        let latencies = Latencies::of(&cells);
        let nanos = |share| latencies.quantile("seek", share).unwrap().as_nanos();
        assert_eq!([0.0, 0.25, 0.5, 0.75, 0.76, 1.0].map(nanos), [64, 64, 112, 112, 1024, 1024]);
        assert_eq!((latencies.count("seek"), latencies.count("get")), (4, 0));
        assert_eq!(latencies.quantile("get", 0.5), None);
        assert_eq!(latencies.quantile("no call", 0.5), None);
        assert_eq!(Latencies::default().quantile("seek", 0.5), None);
        let mut twice = Latencies::default();
        twice.add(&latencies);
        twice.add(&latencies);
        assert_eq!(twice.count("seek"), 8);
        twice.subtract(&latencies);
        assert_eq!(twice, latencies);
    }
}
