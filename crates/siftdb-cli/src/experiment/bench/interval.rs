//! The interval of a median, which says whether a difference is more than noise.
//!
//! Times have long tails and no known distribution, so an interval from mean and deviation would be
//! wrong for them. The median needs no more than independent values: each lies above the true
//! median with probability one half, like a coin. So the k-th smallest and the k-th largest of n
//! values enclose the true median unless fewer than k coins of n show the same side, and the
//! binomial distribution says how rare that is. Outliers, however large, count as one value each.

use serde::Serialize;

/// A median and the interval that contains the true one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The median of the values.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How many values there were.
    #[serde(rename = "pairs")]
    pub values: usize,
}

impl Interval {
    /// True if `value` is in it.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The median of `values`, and the interval that contains the true median with at least this
/// `confidence`, such as 0.95. `None` if there are too few values: [`values_needed`] many.
///
/// ```
/// use siftdb_cli::experiment::bench::median_interval;
///
/// let interval = median_interval(vec![5.0, 1.0, 3.0, 2.0, 4.0, 99.0], 0.95).unwrap();
/// assert_eq!((interval.low, interval.median, interval.high), (1.0, 3.5, 99.0));
/// assert!(median_interval(vec![1.0; 5], 0.95).is_none());
/// ```
pub fn median_interval(mut values: Vec<f64>, confidence: f64) -> Option<Interval> {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let rank = rank_of(count, confidence)?;
    let (low, high) = (*values.get(rank)?, *values.get(count - 1 - rank)?);
    Some(Interval { median: median(values)?, low, high, values: count })
}

/// The least number of values from which an interval of this confidence can be had.
pub fn values_needed(confidence: f64) -> usize {
    // Without any skipped value the interval misses if all coins show the same side.
    (1..64).find(|count| 0.5f64.powi(*count - 1) <= 1.0 - confidence).map_or(64, |n| n as usize)
}

/// The median; `None` without values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get(values.len().checked_sub(1)? / 2)?;
    Some((lower + upper) / 2.0)
}

/// How many values may be skipped at each end: the most with which both tails of the binomial
/// distribution stay within what the confidence leaves.
fn rank_of(count: usize, confidence: f64) -> Option<usize> {
    let tail_most = (1.0 - confidence) / 2.0;
    // The logarithm, since the probability of no heads among 2000 coins is no `f64`.
    let mut term = -(count as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for heads in 0..=count / 2 {
        tail += term.exp();
        if tail > tail_most * (1.0 + 1e-9) {
            return heads.checked_sub(1);
        }
        term += ((count - heads) as f64 / (heads + 1) as f64).ln();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_equal_published_tables() {
        // Order statistics of the 95 % interval of a median, as in tables of the sign test.
        let ranks = [(5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (12, Some(2))];
        for (count, rank) in ranks {
            assert_eq!(rank_of(count, 0.95), rank, "{count}");
        }
        assert_eq!(rank_of(20, 0.95), Some(5));
        assert_eq!(rank_of(100, 0.95), Some(39));
        // By the normal approximation: (5000 - 1.96 * sqrt(5000)) / 2.
        assert!(rank_of(5_000, 0.95).unwrap().abs_diff(2_430) <= 1);
        assert_eq!((values_needed(0.95), values_needed(0.99)), (6, 8));
        assert!(median_interval(Vec::new(), 0.95).is_none());
        assert_eq!((median(vec![3.0, 1.0]), median(Vec::new())), (Some(2.0), None));
    }
}
