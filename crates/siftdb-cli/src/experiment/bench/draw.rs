//! Which entry an operation concerns: uniform, zipfian, latest or a hot set.

use crate::experiment::keys::{mix, splitmix64, unit};
use std::fmt;

/// How often entries are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Each entry equally often.
    Uniform,
    /// Few entries most of the time: Zipf's law with exponent 0.99, as in YCSB. The frequent ones
    /// lie anywhere.
    Zipfian,
    /// As zipfian, and the newest entries are the frequent ones.
    Latest,
    /// A share of the entries gets a share of the operations.
    HotSet {
        /// The share of the entries.
        keys: f64,
        /// The share of the operations.
        operations: f64,
    },
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => write!(f, "uniform"),
            Distribution::Zipfian => write!(f, "zipfian"),
            Distribution::Latest => write!(f, "latest"),
            Distribution::HotSet { keys, operations } => write!(f, "hot:{keys}:{operations}"),
        }
    }
}

/// A distribution over a number of entries, ready to draw from.
#[derive(Debug)]
pub struct Sampler {
    distribution: Distribution,
    zipf: Option<Zipf>,
}

impl Sampler {
    /// Takes time in proportion to `count` for zipfian and latest.
    pub fn new(distribution: Distribution, count: u64) -> Self {
        let has_zipf = matches!(distribution, Distribution::Zipfian | Distribution::Latest);
        Sampler { distribution, zipf: has_zipf.then(|| Zipf::new(count)) }
    }

    /// The number of an entry below `count`, which may have grown and is at least 1.
    pub fn draw(&self, state: &mut u64, count: u64) -> u64 {
        let rank = |state: &mut u64| self.zipf.as_ref().map_or(0, |zipf| zipf.rank(unit(state)));
        match self.distribution {
            Distribution::Uniform => splitmix64(state) % count,
            // Ranks are scattered, so that the frequent entries share no block.
            Distribution::Zipfian => mix(rank(state) + 1) % count,
            Distribution::Latest => count - 1 - rank(state).min(count - 1),
            Distribution::HotSet { keys, operations } => {
                if unit(state) >= operations {
                    return splitmix64(state) % count;
                }
                let hot = ((keys * count as f64) as u64).clamp(1, count);
                mix(splitmix64(state) % hot + 1) % count
            }
        }
    }
}

/// Ranks by Zipf's law, drawn as in "Quickly Generating Billion-Record Synthetic Databases" (Gray
/// et al., SIGMOD 1994), which needs one sum over all ranks and then no loop.
#[derive(Debug)]
struct Zipf {
    count: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    const EXPONENT: f64 = 0.99;

    fn new(count: u64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-Self::EXPONENT)).sum();
        let (all, two): (f64, f64) = (zeta(count), zeta(2));
        let count = count as f64;
        let eta = (1.0 - (2.0 / count).powf(1.0 - Self::EXPONENT)) / (1.0 - two / all);
        Zipf { count, zeta: all, eta }
    }

    fn rank(&self, uniform: f64) -> u64 {
        let share = uniform * self.zeta;
        if share < 1.0 {
            0
        } else if share < 1.0 + 0.5f64.powf(Self::EXPONENT) {
            1
        } else {
            let base = self.eta * uniform - self.eta + 1.0;
            (self.count * base.powf(1.0 / (1.0 - Self::EXPONENT))) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn drawn(distribution: Distribution, count: u64) -> Vec<u64> {
        let (sampler, mut state) = (Sampler::new(distribution, count), 7);
        (0..100_000).map(|_| sampler.draw(&mut state, count)).collect()
    }

    #[test]
    fn distributions_have_their_shares() {
        const COUNT: u64 = 1_000;
        let hot = Distribution::HotSet { keys: 0.01, operations: 0.9 };
        for distribution in
            [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest, hot]
        {
            let numbers = drawn(distribution, COUNT);
            assert!(numbers.iter().all(|n| *n < COUNT), "{distribution}");
            let mut times = BTreeMap::new();
            numbers.iter().for_each(|n| *times.entry(*n).or_insert(0u64) += 1);
            let mut times: Vec<u64> = times.into_values().collect();
            times.sort_unstable_by(|a, b| b.cmp(a));
            let first_ten = times.iter().take(10).sum::<u64>() as f64 / 1e5;
            // Of Zipf's law: the sum of 1/rank^0.99 over 10 ranks and over 1000 is 2.95 : 7.73.
            let expected = match distribution {
                Distribution::Uniform => 0.01,
                Distribution::HotSet { .. } => 0.90,
                _ => 0.385,
            };
            // Scattered ranks sometimes share an entry.
            assert!((first_ten - expected).abs() < 0.03, "{distribution}: {first_ten}");
        }
        let latest = drawn(Distribution::Latest, COUNT);
        let newest = latest.iter().filter(|n| **n == COUNT - 1).count();
        assert!((0.11..0.15).contains(&(newest as f64 / 1e5)), "{newest}");
    }

    #[test]
    fn one_entry_is_always_drawn() {
        let hot = Distribution::HotSet { keys: 0.01, operations: 0.9 };
        for distribution in
            [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest, hot]
        {
            assert!(drawn(distribution, 1).iter().all(|n| *n == 0), "{distribution}");
        }
    }
}
