//! Differences between two sets of runs that exceed the noise.
//!
//! Runs of one workload repeat in rounds. The n-th round of one side is compared with the n-th of
//! the other: their ratio. If the sides were run by turns, a pair is close in time, so whatever
//! slows the machine for a while slows both and leaves their ratio. If nothing differs, a ratio is
//! above 1 as often as below, so an interval of the median of the ratios that excludes 1 is a
//! difference. The interval assumes no distribution: see [`median_interval`].
//!
//! Each compared figure may differ by chance. With many of them one will, so the 5 % that a
//! comparison may err are divided among its figures (Bonferroni). A comparison of a thing with
//! itself then reports no difference at all in at least 95 of 100 cases.

use crate::experiment::bench::interval::{Interval, median, median_interval, values_needed};
use serde_json::Value;
use std::collections::BTreeSet;

/// How often a comparison of a thing with itself may report any difference.
const ERRORS: f64 = 0.05;

/// The figures that are compared, by their names in JSON: the times within which 50 and 99 of 100
/// operations of a kind end, the time of an operation in a typical turn, and the blocks that an
/// operation reads. On a busy machine the first is the steadiest by far: half of the operations are
/// not disturbed.
pub const COMPARED: [&str; 4] =
    ["p50_nanos", "p99_nanos", "typical_nanos", "blocks_read_per_operation"];

/// One figure of one workload in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What was run: store, workload, settings, filters, and for percentiles the operation.
    pub name: String,
    /// Which figure it is, one of [`COMPARED`].
    pub figure: String,
    /// When the round began, in seconds since 1970.
    pub started: f64,
    /// The figure.
    pub value: f64,
}

/// One figure of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// What was run.
    pub name: String,
    /// Which figure it is.
    pub figure: String,
    /// The median of the first side.
    pub first: f64,
    /// The median of the second side.
    pub second: f64,
    /// Pairs of rounds.
    pub rounds: usize,
    /// The second as a multiple of the first, with its interval. `None` if there are too few
    /// rounds.
    pub ratio: Option<Interval>,
}

impl Difference {
    /// True if the sides differ beyond the noise.
    pub fn is_certain(&self) -> bool {
        self.ratio.is_some_and(|ratio| !ratio.contains(1.0))
    }
}

/// The answer of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// All figures that both sides have.
    pub figures: Vec<Difference>,
    /// Pairs of rounds that each figure needs.
    pub rounds_needed: usize,
    /// Whether the rounds of both sides were made by turns.
    pub is_by_turns: bool,
    /// Runs that only one side has.
    pub unmatched: Vec<String>,
}

/// The samples in the JSON of `siftdb bench`.
///
/// # Errors
/// A sentence that says what is missing.
pub fn samples(document: &Value) -> Result<Vec<Sample>, String> {
    let runs = document["runs"].as_array().ok_or("no field `runs`: not an answer of `bench`")?;
    let mut samples = Vec::new();
    for run in runs {
        let text = |name: &str| run[name].as_str().unwrap_or_default();
        let cell: Vec<String> = run["settings"].as_object().map_or_else(Vec::new, |settings| {
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect()
        });
        let started = run["started"].as_f64().ok_or("a run without `started`")?;
        let variants = run["variants"].as_array().ok_or("a run without `variants`")?;
        for variant in variants {
            let filters = if variant["filters"] == true { "on" } else { "off" };
            let mut name = format!("{} {}", text("store"), text("workload"));
            cell.iter().for_each(|setting| name = format!("{name} {}", setting.replace('"', "")));
            name = format!("{name}, filters {filters}");
            let mut add = |name: String, of: &Value, figure: &str| {
                if let Some(value) = of[figure].as_f64() {
                    samples.push(Sample { name, figure: figure.into(), started, value });
                }
            };
            add(name.clone(), variant, "typical_nanos");
            add(name.clone(), variant, "blocks_read_per_operation");
            for kind in variant["kinds"].as_array().into_iter().flatten() {
                let kind_name = kind["kind"].as_str().unwrap_or_default();
                let name = format!("{name}, {kind_name}");
                add(name.clone(), kind, "p50_nanos");
                add(name, kind, "p99_nanos");
            }
        }
    }
    Ok(samples)
}

/// Compares two sides, each of which may come from several answers.
pub fn compare(first: &[Sample], second: &[Sample]) -> Comparison {
    let second = with_filters_of(second, first);
    let second = &second[..];
    let (names, others) = (names(first), names(second));
    let both: Vec<_> = names.iter().filter(|name| others.contains(name)).collect();
    let only = names.iter().filter(|name| !others.contains(name));
    let only = only.chain(others.iter().filter(|name| !names.contains(name)));
    let unmatched = only.map(|(name, figure)| format!("{name}: {figure}")).collect();
    let confidence = 1.0 - ERRORS / both.len().max(1) as f64;
    let mut is_by_turns = true;
    let figures = both.into_iter().map(|(name, figure)| {
        let of = |side: &[Sample]| {
            let is_it = |sample: &&Sample| sample.name == *name && sample.figure == *figure;
            let mut rounds: Vec<(f64, f64)> =
                side.iter().filter(is_it).map(|sample| (sample.started, sample.value)).collect();
            rounds.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
            rounds
        };
        let (one, other) = (of(first), of(second));
        let pairs: Vec<_> = one.iter().copied().zip(other.iter().copied()).collect();
        is_by_turns &= pairs.windows(2).all(|pairs| {
            let end = pairs[0].0.0.max(pairs[0].1.0);
            end <= pairs[1].0.0.min(pairs[1].1.0)
        });
        let ratios = pairs.iter().map(|((_, one), (_, other))| match one == other {
            // Both may be zero.
            true => 1.0,
            false => other / one,
        });
        let middle = |side: &[(f64, f64)]| median(side.iter().map(|round| round.1).collect());
        Difference {
            name: name.clone(),
            figure: figure.clone(),
            first: middle(&one).unwrap_or(0.0),
            second: middle(&other).unwrap_or(0.0),
            rounds: pairs.len(),
            ratio: median_interval(ratios.collect(), confidence),
        }
    });
    let figures = figures.collect();
    Comparison { figures, rounds_needed: values_needed(confidence), is_by_turns, unmatched }
}

/// The samples of a side. If each side has one setting of filters and they differ, the user
/// compares these settings, so the samples are named as those of the `first` side.
fn with_filters_of(side: &[Sample], first: &[Sample]) -> Vec<Sample> {
    let settings = [", filters on", ", filters off"];
    let all = |side: &[Sample], setting: &str| {
        !side.is_empty() && side.iter().all(|sample| sample.name.contains(setting))
    };
    let mut renamed = side.to_vec();
    for (from, to) in [(settings[0], settings[1]), (settings[1], settings[0])] {
        if all(side, from) && all(first, to) {
            renamed.iter_mut().for_each(|sample| sample.name = sample.name.replacen(from, to, 1));
            break;
        }
    }
    renamed
}

/// The names and figures of samples, each once, in their order.
fn names(samples: &[Sample]) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let names = samples.iter().map(|sample| (sample.name.clone(), sample.figure.clone()));
    names.filter(|name| seen.insert(name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::keys::splitmix64;

    /// Rounds by turns on a machine that drifts, jitters by 2 %, and is disturbed in every tenth
    /// round, which then takes up to half as long again. The second side takes `slower` times as
    /// long.
    fn rounds(seed: u64, slower: f64) -> [Vec<Sample>; 2] {
        let mut state = seed;
        let mut unit = || (splitmix64(&mut state) >> 11) as f64 / (1u64 << 53) as f64;
        let mut sides = [Vec::new(), Vec::new()];
        for round in 0..15 {
            let drift = 1.0 + 0.2 * (f64::from(round) / 4.0).sin();
            for (side, samples) in sides.iter_mut().enumerate() {
                // Twelve uniform numbers are nearly normal, with a deviation of 1.
                let normal = (0..12).map(|_| unit()).sum::<f64>() - 6.0;
                let disturbed = if unit() < 0.1 { 1.0 + 0.5 * unit() } else { 1.0 };
                let factor = if side == 1 { slower } else { 1.0 };
                samples.push(Sample {
                    name: "siftdb readrandom".into(),
                    figure: "typical_nanos".into(),
                    started: f64::from(2 * round) + side as f64,
                    value: 400.0 * drift * disturbed * factor * (1.0 + 0.02 * normal),
                });
            }
        }
        sides
    }

    fn reported(slower: f64) -> usize {
        let certain = |seed: u64| {
            let [one, other] = rounds(seed, slower);
            let comparison = compare(&one, &other);
            assert!(comparison.is_by_turns && comparison.unmatched.is_empty());
            assert_eq!((comparison.figures.len(), comparison.figures[0].rounds), (1, 15));
            comparison.figures[0].is_certain()
        };
        (1..=20).filter(|seed| certain(*seed)).count()
    }

    #[test]
    fn five_percent_are_found_and_noise_is_not() {
        let (same, slower) = (reported(1.0), reported(1.05));
        assert!(same <= 2, "{same} of 20 comparisons of a thing with itself");
        assert!(slower >= 18, "{slower} of 20 comparisons with 5 % more");
    }

    #[test]
    fn few_rounds_are_not_compared() {
        let [one, other] = rounds(1, 2.0);
        let comparison = compare(&one[..5], &other[..5]);
        assert_eq!(comparison.rounds_needed, 6);
        assert_eq!(comparison.figures[0].ratio, None);
        assert!(compare(&one[..6], &other[..6]).figures[0].is_certain());
        // More figures need more certainty.
        let twice = |samples: &[Sample]| -> Vec<Sample> {
            let other = |sample: &Sample| Sample { name: "another".into(), ..sample.clone() };
            samples.iter().cloned().chain(samples.iter().map(other)).collect()
        };
        assert_eq!(compare(&twice(&one), &twice(&other)).rounds_needed, 7);
        assert_eq!(compare(&twice(&one), &other).unmatched.len(), 1);
    }

    #[test]
    fn filters_on_are_compared_with_filters_off() {
        let named = |samples: &[Sample], filters: &str| -> Vec<Sample> {
            let name = format!("siftdb readrandom, filters {filters}, get");
            let of = |sample: &Sample| Sample { name: name.clone(), ..sample.clone() };
            samples.iter().map(of).collect()
        };
        let [one, other] = rounds(1, 2.0);
        for (first, second) in [("on", "off"), ("off", "on")] {
            let comparison = compare(&named(&one, first), &named(&other, second));
            assert_eq!(comparison.unmatched, Vec::<String>::new());
            assert!(comparison.figures[0].is_certain() && comparison.figures[0].first < 600.0);
        }
        // A file with both has nothing to exchange.
        let both = [named(&one, "on"), named(&one, "off")].concat();
        let comparison = compare(&both, &named(&other, "off"));
        assert_eq!((comparison.figures.len(), comparison.unmatched.len()), (1, 1));
    }

    #[test]
    fn rounds_that_do_not_alternate_are_told() {
        let [one, mut other] = rounds(1, 1.0);
        other.iter_mut().for_each(|sample| sample.started += 100.0);
        assert!(!compare(&one, &other).is_by_turns);
    }

    #[test]
    fn equal_counts_do_not_differ() {
        let count = |value: f64| -> Vec<Sample> {
            let sample = |round: u32| Sample {
                name: "reads".into(),
                figure: "blocks_read_per_operation".into(),
                started: f64::from(round),
                value,
            };
            (0..8).map(sample).collect()
        };
        assert!(!compare(&count(0.0), &count(0.0)).figures[0].is_certain());
        assert!(!compare(&count(0.31), &count(0.31)).figures[0].is_certain());
        assert!(compare(&count(0.0), &count(0.01)).figures[0].is_certain());
        assert!(compare(&count(0.01), &count(0.0)).figures[0].is_certain());
    }
}
