//! A histogram of measured times, in memory of fixed size.
//!
//! `sustained` times every put. A bucket is at most a sixty-fourth of its time wide, 1.6 %, and
//! times below 128 ns have one each, so that a percentile is off by no more than that.

use std::time::Duration;

/// Buckets for each doubling of the time: two to this power.
const SUBDIVISION_BITS: u32 = 6;

/// Enough for every number of 64 bits.
const BUCKETS: usize = (65 - SUBDIVISION_BITS as usize) << SUBDIVISION_BITS;

/// Counts of times.
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    longest: Duration,
}

impl Histogram {
    /// Without a time.
    pub fn new() -> Self {
        Histogram { buckets: vec![0; BUCKETS], count: 0, longest: Duration::ZERO }
    }

    /// Counts one.
    pub fn add(&mut self, time: Duration) {
        self.buckets[bucket(time.as_nanos() as u64)] += 1;
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    /// The longest, exactly.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The shortest time that at least `share` of all times do not exceed, rounded up to the end
    /// of its bucket; zero without times.
    pub fn percentile(&self, share: f64) -> Duration {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let end = found.map_or(0, last_of);
        Duration::from_nanos(end).min(self.longest)
    }
}

/// The bucket of a number: its leading one, and the bits that follow.
fn bucket(nanos: u64) -> usize {
    let doublings = nanos.checked_ilog2().unwrap_or(0).saturating_sub(SUBDIVISION_BITS);
    ((doublings as usize) << SUBDIVISION_BITS) + (nanos >> doublings) as usize
}

/// The largest number of a bucket.
fn last_of(bucket: usize) -> u64 {
    let doublings = (bucket >> SUBDIVISION_BITS).saturating_sub(1);
    let first = (bucket - (doublings << SUBDIVISION_BITS)) as u64;
    (first << doublings) + ((1 << doublings) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        for nanos in (0..3000).chain((0..500).map(|i| u64::MAX >> 40 << (i % 41))) {
            let bucket = bucket(nanos);
            assert!(bucket < BUCKETS);
            assert!(last_of(bucket) >= nanos, "{nanos}");
            assert!(bucket == 0 || last_of(bucket - 1) < nanos, "{nanos}");
            assert!((last_of(bucket) - nanos) as f64 <= nanos as f64 / 64.0, "{nanos}");
        }
        assert_eq!(last_of(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn percentiles_are_found() {
        let mut times = Histogram::new();
        assert_eq!(times.percentile(0.999), Duration::ZERO);
        (1..=1000).for_each(|micros| times.add(Duration::from_micros(micros)));
        for (share, micros) in [(0.5, 500.0), (0.999, 999.0), (1.0, 1000.0)] {
            let found = times.percentile(share).as_nanos() as f64 / 1000.0;
            assert!((micros..micros * 1.016).contains(&found), "{share}: {found}");
        }
        assert_eq!(times.longest(), Duration::from_millis(1));
    }
}
