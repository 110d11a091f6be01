//! The confidence interval of an observed rate.
//!
//! Wilson's score interval (Wilson, "Probable Inference, the Law of Succession, and Statistical
//! Inference", 1927). Unlike the textbook interval it stays within 0 and 1, and it is right after
//! few observations and at rates near 0, like those of false positives.

/// Standard deviations on each side that contain 95 of 100 cases.
const Z_95: f64 = 1.959_963_984_540_054;

/// The 95 % confidence interval of a rate, after `hits` of `trials`. `None` without trials.
///
/// ```
/// let (low, high) = siftdb::inspect::wilson_95(10, 1_000).unwrap();
/// assert!(low < 0.0055 && 0.018 < high);
/// ```
#[must_use]
pub fn wilson_95(hits: u64, trials: u64) -> Option<(f64, f64)> {
    if trials == 0 {
        return None;
    }
    let trials = trials as f64;
    let rate = (hits as f64 / trials).min(1.0);
    let spread = Z_95 * Z_95 / trials;
    let middle = rate + spread / 2.0;
    let half = Z_95 * ((rate * (1.0 - rate) + spread / 4.0) / trials).sqrt();
    let (low, high) = ((middle - half) / (1.0 + spread), (middle + half) / (1.0 + spread));
    Some((low.max(0.0), high.min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_equal_published_values() {
        // Expected values from an independent calculation.
        for (hits, trials, low, high) in [
            (0, 10, 0.0, 0.277_532_8),
            (10, 10, 0.722_467_2, 1.0),
            (1, 10, 0.017_876_2, 0.404_150_0),
            (10, 1_000, 0.005_440_8, 0.018_309_5),
            (500, 1_000, 0.469_069_6, 0.530_930_4),
        ] {
            let found = wilson_95(hits, trials).unwrap();
            assert!((found.0 - low).abs() < 1e-6, "{hits} of {trials}: {found:?}");
            assert!((found.1 - high).abs() < 1e-6, "{hits} of {trials}: {found:?}");
        }
        assert_eq!(wilson_95(0, 0), None);
        assert_eq!(wilson_95(u64::MAX, 1).unwrap().1, 1.0);
    }

    #[test]
    fn more_trials_narrow_the_interval() {
        let mut before = 1.0;
        for trials in [10, 100, 1_000, 1_000_000] {
            let (low, high) = wilson_95(trials / 10, trials).unwrap();
            assert!(low < 0.1 && 0.1 < high && high - low < before);
            before = high - low;
        }
    }
}
