//! How many bits a key gets in each run, so that filters of one memory budget pass the fewest
//! absent keys.
//!
//! A lookup of an absent key asks one filter per run, so it pays for the sum of their
//! false-positive rates. One more bit a key costs a run of `n` keys `n` bits and lowers its rate by
//! a fixed share. The sum is least if one more bit of memory would gain the same in every run
//! (Dayan, Athanassoulis and Idreos, "Monkey: Optimal Navigable Key-Value Store", 2017). A run that
//! only a share of the lookups reach counts by that share. At the optimum, rates are about
//! proportional to sizes: the small upper levels get many bits, the largest may get no filter.
//!
//! siftdb calls this at each flush and compaction. The rates are those of
//! FastLocalBloom, as a convex polyline with a point every quarter of a bit. On a convex polyline,
//! buying the best step first is exact. (The ideal rate `exp(-b ln(2)^2)` gives a closed form whose
//! sum is 0 to 1.2 % above this one.) No filter has less than one bit a key, so the last run to get
//! a filter is tried with and without it. From 18 bits on, the real rate is uneven, because the
//! number of probes changes; the sum may then be a few percent above the least, at rates below 0.04
//! %. A run of fewer keys never gets fewer bits. Trailers and the rounding to lines are not part of
//! the budget.

use crate::bloom::fast_local::{choose_num_probes, expected_fpr};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

const MILLIBITS_MIN: u32 = 1_000;
/// With more bits a filter saves no read that one would notice: it passes fewer than one absent key
/// in 100,000. Besides, the first tables of an empty tree would keep them when there are many keys.
pub const MILLIBITS_MAX: u32 = 30_000;
const GRID_MILLIBITS: usize = 250;

/// A piece of the polyline: the millibits at its start and end, and the rate that each of them
/// saves.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: u32,
    to: u32,
    gain: f64,
}

/// The share of absent keys that a filter with this many thousandths of a bit per key passes; 0 is
/// no filter.
#[must_use]
pub fn false_positive_rate(millibits: u32) -> f64 {
    match millibits {
        0 => 1.0,
        _ => expected_fpr(f64::from(millibits) / 1_000.0, choose_num_probes(millibits)),
    }
}

/// A sorted run, of which a lookup asks one filter at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Keys of its filters.
    pub keys: u64,
    /// The share of lookups that ask them, above 0 and at most 1.
    pub share: f64,
}

/// Thousandths of a bit per key for runs, in their order: 0 (no filter), or 1000 to 30000.
/// Together they take at most `budget_bytes`.
#[must_use]
pub fn millibits_by_run(runs: &[Run], budget_bytes: u64) -> Vec<u32> {
    let mut order: Vec<usize> = (0..runs.len()).filter(|&run| runs[run].keys > 0).collect();
    let keys_per_share = |run: usize| runs[run].keys as f64 / runs[run].share;
    order.sort_by(|&one, &other| keys_per_share(one).total_cmp(&keys_per_share(other)));
    let sorted: Vec<Run> = order.iter().map(|&run| runs[run]).collect();
    let budget = u128::from(budget_bytes) * 8_000;
    let greedy = fill(&sorted, 0, budget).unwrap_or_default();
    let filtered = greedy.iter().filter(|&&millibits| millibits > 0).count();
    let sum = |bits: &Vec<u32>| {
        let rates =
            bits.iter().zip(&sorted).map(|(&bits, run)| run.share * false_positive_rate(bits));
        rates.sum::<f64>()
    };
    let best = match fill(&sorted, filtered + 1, budget) {
        Some(one_more) if sum(&one_more) < sum(&greedy) => one_more,
        _ => greedy,
    };
    let mut millibits = vec![0; runs.len()];
    for (run, bits) in order.into_iter().zip(best) {
        millibits[run] = bits;
    }
    millibits
}

/// Gives the first `certain` runs a filter. Then buys the steps that gain most for their price, as
/// long as the budget (in thousandths of a bit) lasts. `None` if it does not last for the filters.
fn fill(runs: &[Run], certain: usize, budget: u128) -> Option<Vec<u32>> {
    let mut bits = vec![0; runs.len()];
    let mut left = budget;
    for (bits, run) in bits.get_mut(..certain)?.iter_mut().zip(runs) {
        left = left.checked_sub(u128::from(run.keys) * u128::from(MILLIBITS_MIN))?;
        *bits = MILLIBITS_MIN;
    }
    let steps = steps();
    let next = |from: u32| steps.get(steps.partition_point(|step| step.from < from));
    // Positive numbers compare like their bits.
    let worth = |step: &Step, run: &Run| (step.gain * run.share / run.keys as f64).to_bits();
    let mut offers = BinaryHeap::new();
    for (at, (&bits, run)) in bits.iter().zip(runs).enumerate() {
        offers.extend(next(bits).map(|step| (worth(step, run), Reverse(at))));
    }
    while let Some((_, Reverse(at))) = offers.pop() {
        let run = &runs[at];
        let Some(step) = next(bits[at]) else { continue };
        let affordable = u32::try_from(left / u128::from(run.keys)).unwrap_or(u32::MAX);
        let taken = affordable.min(step.to - step.from);
        // A part of a step may be less than any filter has, or end where the rate rises.
        let reached = bits[at] + taken;
        let lowers = false_positive_rate(reached) < false_positive_rate(bits[at]);
        if reached < MILLIBITS_MIN || !lowers {
            continue;
        }
        left -= u128::from(taken) * u128::from(run.keys);
        bits[at] = reached;
        if bits[at] == step.to {
            offers.extend(next(step.to).map(|step| (worth(step, run), Reverse(at))));
        }
    }
    // The last step, cut short, may lift a run above a smaller one. With their bits exchanged they
    // cost less and pass as many keys, if every lookup asks both.
    if runs.windows(2).all(|pair| pair[0].share == pair[1].share) {
        bits.sort_unstable_by_key(|&bits| Reverse(bits));
    }
    Some(bits)
}

/// The lower convex hull of the rate over the bits, steepest first.
fn steps() -> &'static [Step] {
    static STEPS: OnceLock<Vec<Step>> = OnceLock::new();
    STEPS.get_or_init(|| {
        let mut steps: Vec<Step> = Vec::new();
        for to in (MILLIBITS_MIN..=MILLIBITS_MAX).step_by(GRID_MILLIBITS) {
            let from = |start: u32| Step {
                from: start,
                to,
                gain: (false_positive_rate(start) - false_positive_rate(to))
                    / f64::from(to - start),
            };
            let mut step = from(steps.last().map_or(0, |last| last.to));
            // A step that gains more than the one before it is joined with it.
            while let Some(last) = steps.pop_if(|last| last.gain <= step.gain) {
                step = from(last.from);
            }
            steps.push(step);
        }
        steps
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// For runs with these numbers of keys, all of which every lookup asks.
    fn by_keys(keys: &[u64], budget_bytes: u64) -> Vec<u32> {
        let runs: Vec<Run> = keys.iter().map(|&keys| Run { keys, share: 1.0 }).collect();
        millibits_by_run(&runs, budget_bytes)
    }

    fn sum_of_rates(bits: &[u32]) -> f64 {
        bits.iter().map(|&bits| false_positive_rate(bits)).sum()
    }

    fn spent(keys: &[u64], bits: &[u32]) -> u128 {
        keys.iter().zip(bits).map(|(&n, &bits)| u128::from(n) * u128::from(bits)).sum()
    }

    /// Marginal optimization without a hull: repeats the increase of bits, of any length, that
    /// lowers the sum most for its price.
    fn greedy(keys: &[u64], budget_bytes: u64) -> f64 {
        const STEP: u32 = 200;
        let rates: Vec<f64> =
            (0..=MILLIBITS_MAX / STEP).map(|at| false_positive_rate(at * STEP)).collect();
        let least = (MILLIBITS_MIN / STEP) as usize;
        let mut at = vec![0; keys.len()];
        let mut left = u128::from(budget_bytes) * 8_000;
        loop {
            let offers = keys.iter().enumerate().filter(|(_, n)| **n > 0).flat_map(|(run, &n)| {
                let (rates, from) = (&rates, at[run]);
                let affordable = (left / (u128::from(n) * u128::from(STEP))) as usize;
                let reach = (from + affordable.min(12)).min(rates.len() - 1);
                (from.max(least - 1) + 1..=reach).map(move |to| {
                    let gain = rates[from] - rates[to];
                    (gain / n as f64 / (to - from) as f64, run, to)
                })
            });
            let best = offers.max_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, run, to)) = best else { break };
            left -= u128::from(keys[run]) * (to - at[run]) as u128 * u128::from(STEP);
            at[run] = to;
        }
        at.iter().map(|&at| rates[at]).sum()
    }

    fn tree() -> impl Strategy<Value = (Vec<u64>, u64)> {
        let any_sizes = proptest::collection::vec(0u64..3_000_000, 1..8);
        let growing = (1u64..2_000, 2u64..12, 1u32..6, 0usize..6).prop_map(
            |(first, times, levels, level0)| {
                let mut sizes = vec![first; level0];
                sizes.extend((0..levels).map(|level| first * times.pow(level)));
                sizes
            },
        );
        (prop_oneof![any_sizes, growing], 0.0f64..30.0).prop_map(|(sizes, mean_bits)| {
            let keys: u64 = sizes.iter().sum();
            (sizes, (keys as f64 * mean_bits / 8.0) as u64)
        })
    }

    proptest! {
        #[test]
        fn the_budget_minimizes_the_sum_of_rates((keys, budget_bytes) in tree()) {
            let bits = by_keys(&keys, budget_bytes);
            prop_assert!(spent(&keys, &bits) <= u128::from(budget_bytes) * 8_000);
            for (&n, &bits) in keys.iter().zip(&bits) {
                prop_assert!(bits == 0 || (n > 0 && (1_000..=30_000).contains(&bits)));
            }
            // A run of fewer keys has at least as many bits for each.
            for (&n, &bits_of_n) in keys.iter().zip(&bits) {
                for (&m, &bits_of_m) in keys.iter().zip(&bits) {
                    prop_assert!(n == 0 || n >= m || bits_of_n >= bits_of_m, "{keys:?}: {bits:?}");
                }
            }
            let sum = sum_of_rates(&bits);
            let by_greedy = greedy(&keys, budget_bytes);
            // Where the rate rises again, a few percent of the optimum may be lost.
            let dented = bits.iter().map(|&bits| false_positive_rate(bits)).filter(|&r| r < 4e-4);
            let lost = 0.1 * dented.sum::<f64>();
            prop_assert!(sum <= 1.01 * by_greedy + lost, "{keys:?}: {bits:?}, not {by_greedy}");
            let all: u64 = keys.iter().sum();
            let uniform = (budget_bytes as f64 * 8_000.0 / all.max(1) as f64).min(3e4) as u32;
            let uniform = if uniform < 1_000 { 0 } else { uniform };
            let uniform: Vec<u32> = keys.iter().map(|&n| if n > 0 { uniform } else { 0 }).collect();
            let uniform = sum_of_rates(&uniform);
            prop_assert!(sum <= 1.01 * uniform + lost, "{keys:?}: {bits:?}, not {uniform}");
        }

        /// All divisions of the budget in steps of a quarter bit of the smallest run.
        #[test]
        fn no_division_of_three_runs_is_better(
            first in 50u64..2_000,
            times in 1u64..12,
            mean_bits in 0.1f64..18.0,
        ) {
            let keys = [first, first * times, first * times * 3];
            let budget_bytes = (keys.iter().sum::<u64>() as f64 * mean_bits / 8.0) as u64;
            let sum = sum_of_rates(&by_keys(&keys, budget_bytes));
            let choices: Vec<u32> = [0].into_iter().chain((1_000..=30_000).step_by(250)).collect();
            let budget = u128::from(budget_bytes) * 8_000;
            let mut best = f64::INFINITY;
            for &a in &choices {
                for &b in &choices {
                    let Some(left) = budget.checked_sub(spent(&keys, &[a, b, 0])) else { break };
                    let c = (left / u128::from(keys[2])).min(30_000) as u32;
                    let c = if c < 1_000 { 0 } else { c };
                    best = best.min(sum_of_rates(&[a, b, c]));
                }
            }
            prop_assert!(sum <= 1.01 * best, "{keys:?}, {budget_bytes}: {sum}, not {best}");
        }
    }

    #[test]
    fn rates_are_proportional_to_run_sizes() {
        let keys = [10_000, 100_000, 1_000_000, 10_000_000];
        let bits = by_keys(&keys, 12_500_000);
        let rates: Vec<f64> = bits.iter().map(|&bits| false_positive_rate(bits)).collect();
        for pair in rates.windows(2) {
            assert!((6.0..14.0).contains(&(pair[1] / pair[0])), "{bits:?}: {rates:?}");
        }
        let uniform = 4.0 * false_positive_rate(9_000);
        assert!(sum_of_rates(&bits) < 0.45 * uniform, "{bits:?}: {rates:?}");
    }

    /// The table "Divided memory" of docs/results/recorded.md, in hundredths of a percent and
    /// tenths of a bit.
    #[test]
    fn memory_divided_by_level_passes_fewer_absent_keys() {
        let table: [(u64, u64, &[u64]); 3] =
            [(191, 130, &[150, 95]), (286, 136, &[203, 148, 94]), (381, 137, &[268, 203, 148, 94])];
        for (even, divided, tenths) in table {
            let levels = tenths.len() as u32;
            let keys: Vec<u64> = (0..levels).map(|level| 10_000 * 10u64.pow(level)).collect();
            let bits = by_keys(&keys, keys.iter().sum::<u64>() * 10 / 8);
            let hundredths = |rate: f64| (10_000.0 * rate).round() as u64;
            assert_eq!(hundredths(f64::from(levels) * false_positive_rate(10_000)), even);
            assert_eq!(hundredths(sum_of_rates(&bits)), divided, "{bits:?}");
            let found: Vec<u64> = bits.iter().map(|&bits| (u64::from(bits) + 50) / 100).collect();
            assert_eq!(found, tenths, "{bits:?}");
        }
    }

    #[test]
    fn a_run_counts_by_the_share_that_asks_it() {
        let run = |keys, share| Run { keys, share };
        let bits = millibits_by_run(&[run(1_000, 0.1), run(9_000, 0.9)], 12_500);
        // A lookup asks only one of disjoint runs, so the same bits everywhere are best.
        assert!(bits[0].abs_diff(bits[1]) < 500, "{bits:?}");
        let bits = millibits_by_run(&[run(1_000, 1.0), run(1_000, 0.01)], 2_500);
        assert!(bits[0] > bits[1] + 5_000, "{bits:?}");
    }

    #[test]
    fn larger_runs_never_get_more_bits() {
        let bits = by_keys(&[1_182_065, 2_341_259, 1_000_216], 13_852_199);
        assert!(bits[2] >= bits[0] && bits[0] >= bits[1], "{bits:?}");
    }

    #[test]
    fn budgets_are_bounded_at_both_ends() {
        assert!(by_keys(&[], 1_000).is_empty());
        assert_eq!(by_keys(&[0, 5], u64::MAX), [0, 30_000]);
        assert!(false_positive_rate(MILLIBITS_MAX) < 0.000_01);
        assert_eq!(by_keys(&[1_000, 1_000_000], 0), [0, 0]);
        assert_eq!(by_keys(&[8_000], 999), [0]);
        assert_eq!(by_keys(&[8_000], 1_000), [1_000]);
        assert_eq!(by_keys(&[u64::MAX, 8_000], 10_000)[0], 0);
    }
}
