//! The false-positive rates of filters whose keys set all their bits in one line of 512.
//!
//! Lines hold unequal numbers of keys: of `keys` keys each falls into one of `lines` with equal
//! chance, so the number in a line is binomial, and the rate is the mean over it (Putze, Sanders
//! and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007). In a line of `j` keys it
//! follows from how the bits of a key are chosen:
//!
//! - FastLocalBloom draws them one by one, as good as independent. The number of bits that are set
//!   varies, which adds a little to the mean of its power.
//! - The legacy Bloom takes `k` steps of `d` modulo 512 from a start. Where `d` is even, steps meet
//!   again: one key in 512 has a single bit. And two keys whose steps are alike share many bits.
//!   How often two keys share how many is counted over all steps and starts; first order in the
//!   number of keys, this is exact but for 5 %. Keys with equal hashes of 32 bits are added. The
//!   formula takes the line as independent of start and step. But all three come from one 32-bit
//!   hash, and the hashes of one line are a multiple of the number of lines apart. From about a
//!   million keys on, a line has so few hashes that this shows: with 17 bits a key, 12 to 17 % more
//!   keys passed than the formula says (docs/results/recorded.md).
//!
//! Called by `estimates.rs` with the size that a filter has.

use std::sync::OnceLock;

/// Bits of a line.
const LINE: usize = 512;

/// The most probes of a filter.
const PROBES_MAX: usize = 30;

/// A line with this many keys counts as full. Even if each key sets one bit only, the chance of a
/// bit to stay zero is e^-32.
const KEYS_OF_FULL_LINE: f64 = 32.0 * LINE as f64;

/// The chances of 0, 1, 2 … keys in a line, as long as they matter.
fn keys_in_line(keys: f64, lines: f64) -> impl Iterator<Item = (i32, f64)> {
    let (mean, odds) = (keys / lines, 1.0 / (lines - 1.0).max(1e-9));
    // In logarithms: of a line with 500 keys on average, none is as rare as 10^-217.
    let none = if lines > 1.0 { keys * (-1.0 / lines).ln_1p() } else { f64::NEG_INFINITY };
    let last = (mean + 12.0 * mean.sqrt() + 20.0).min(keys.max(1.0)) as i32;
    let mut chance = none;
    (0..=last).map(move |j| {
        if j > 0 {
            chance +=
                ((keys - f64::from(j) + 1.0).max(f64::MIN_POSITIVE) * odds / f64::from(j)).ln();
        }
        if lines > 1.0 { (j, chance.exp()) } else { (j, if j == last { 1.0 } else { 0.0 }) }
    })
}

/// The mean of `rate` over the number of keys in a line.
fn mean_over_lines(keys: f64, lines: f64, rate: impl Fn(i32) -> f64) -> f64 {
    if keys > lines * KEYS_OF_FULL_LINE {
        return 1.0;
    }
    let weighted = keys_in_line(keys, lines).map(|(j, chance)| (chance * rate(j), chance));
    let (sum, chances) = weighted.fold((0.0, 0.0), |(sum, all), (r, c)| (sum + r, all + c));
    // The mean size of several filters is not always a whole number of keys. Then the chances do
    // not add up to 1: with little more than one line they are nearly 0.
    sum / chances
}

/// The share of absent keys that a FastLocalBloom of this many lines lets through.
#[must_use]
pub fn fast_local(keys: f64, lines: f64, probes: u32) -> f64 {
    let k = f64::from(probes);
    let bits = LINE as f64;
    let rate = |j: i32| {
        let throws = f64::from(j) * k;
        // The chances that one given bit is not set, and that two given bits are not.
        let [one, two] = [1.0, 2.0].map(|unset| (1.0 - unset / bits).powf(throws));
        let set = 1.0 - one;
        let variance = one * (1.0 - bits * one) / bits + two * (bits - 1.0) / bits;
        let spread = if set > 0.0 { k * (k - 1.0) / 2.0 * variance / (set * set) } else { 0.0 };
        set.powf(k) * (1.0 + spread)
    };
    mean_over_lines(keys, lines, rate).min(1.0)
}

/// The share of absent keys that a legacy Bloom of this many lines lets through.
#[must_use]
pub fn legacy(keys: f64, lines: f64, probes: u32) -> f64 {
    let steps = steps_of((probes.max(1) as usize).min(PROBES_MAX));
    let mean_bits: f64 = steps.iter().map(|step| step.chance * step.bits as f64).sum();
    let hit = mean_bits / LINE as f64;
    let rate = |j: i32| {
        let set = 1.0 - (1.0 - hit).powi(j);
        let unset = 1.0 - set;
        let of_step = |step: &Step| {
            let bits = step.bits as i32;
            let shared = step.shared.iter().enumerate().skip(2).map(|(c, chance)| {
                let c = c as i32;
                let beyond_mean = 1.0 - set.powi(c) - f64::from(c) * unset * set.powi(c - 1);
                chance * set.powi(bits - c) * beyond_mean
            });
            // The number of set bits already includes those that keys share by chance.
            let pairs = f64::from(bits * (bits - 1)) / 2.0;
            let by_chance = pairs * (hit * unset).powi(2) * set.powi((bits - 2).max(0));
            let more = f64::from(j) * (shared.sum::<f64>() - by_chance);
            step.chance * (set.powi(bits) + more).clamp(0.0, 1.0)
        };
        steps.iter().map(of_step).sum::<f64>()
    };
    let rate = mean_over_lines(keys, lines, rate);
    let equal_hash = -(-keys / 2f64.powi(32)).exp_m1();
    rate + equal_hash - rate * equal_hash
}

/// Keys whose steps contain the same power of two. Multiplication by an odd number turns one such
/// step into another.
#[derive(Debug)]
struct Step {
    /// The share of keys with such a step.
    chance: f64,
    /// Different bits of such a key.
    bits: usize,
    /// The chance that another key in the line shares this many of them.
    shared: Vec<f64>,
}

/// All kinds of steps with this many probes, counted once.
fn steps_of(probes: usize) -> &'static [Step] {
    static STEPS: [OnceLock<Vec<Step>>; PROBES_MAX + 1] =
        [const { OnceLock::new() }; PROBES_MAX + 1];
    let count = || {
        let powers = LINE.ilog2();
        let of_step = |power: u32| {
            let step = if power < powers { 1 << power } else { 0 };
            let bits = bits_of(step, probes);
            let mut shared = vec![0.0; bits.len() + 1];
            for other in (0..LINE).map(|other| bits_of(other, probes)) {
                let mut at_start = [0usize; LINE];
                for (bit, from) in bits.iter().flat_map(|bit| other.iter().map(move |o| (bit, o))) {
                    at_start[(bit + LINE - from) % LINE] += 1;
                }
                at_start.iter().for_each(|&c| shared[c] += 1.0 / (LINE * LINE) as f64);
            }
            let chance = 0.5f64.powi((power + 1).min(powers) as i32);
            Step { chance, bits: bits.len(), shared }
        };
        (0..=powers).map(of_step).collect()
    };
    STEPS.get(probes).map_or(&[], |steps| steps.get_or_init(count))
}

/// The different bits of a key with this step that starts at 0.
fn bits_of(step: usize, probes: usize) -> Vec<usize> {
    let mut bits: Vec<usize> = (0..probes).map(|i| i * step % LINE).collect();
    bits.sort_unstable();
    bits.dedup();
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_continuous_near_one_line() {
        for keys in [2.5, 35.8, 40.0] {
            for rate in [|k, l| fast_local(k, l, 6), |k, l| legacy(k, l, 6)] {
                let one = rate(keys, 1.0);
                for lines in [1.000_01, 1.004, 1.02] {
                    let more = rate(keys, lines);
                    assert!((0.7..1.3).contains(&(more / one)), "{keys} in {lines}: {more}, {one}");
                }
            }
        }
    }

    /// A file may claim any number of keys.
    #[test]
    fn the_rate_of_an_overfull_filter_is_known_at_once() {
        let start = std::time::Instant::now();
        for keys in [1e6, 1e12, 1e18] {
            for rate in [fast_local(keys, 1.0, 6), legacy(keys, 20.0, 1)] {
                assert!((0.999..=1.0).contains(&rate), "{keys}: {rate}");
            }
        }
        assert!(start.elapsed().as_secs() < 2, "{:?}", start.elapsed());
    }
}
