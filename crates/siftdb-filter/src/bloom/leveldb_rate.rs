//! The false-positive rate of LevelDB's Bloom filter, with what its one hash of 32 bits costs.
//!
//! Probe `i` of a key looks at `h + i * d` modulo 2^32, then modulo the filter's `bits`, where `d`
//! is `h` rotated right by 17. Kirsch and Mitzenmacher ("Less Hashing, Same Performance", 2006)
//! show that probes `h + i * d` are as good as independent ones if `h` and `d` are. Here they are
//! not: a rotation multiplies by 2^15 modulo 2^32 - 1, so probe `i` is `h * (1 + i * 2^15)` modulo
//! 2^32 - 1, less one for each carry beyond 2^32 (from 0 to `i` of them). That has four costs:
//!
//! 1. *Residues.* 2^32 - 1 is 3 * 5 * 17 * 257 * 65537. The factor of probe 1 is a multiple of 3,
//!    that of probe 3 of 5, and so on: such a probe meets only some residues modulo 3 or 5. Where
//!    `bits` has that factor too, these residues are set more often and asked more often.
//! 2. *Probe 2* multiplies by 65537, so it only meets the multiples of 65537 below 2^32, and those
//!    one or two below. These 200,000 *special places* are all set once a filter has some 300,000
//!    keys, and then the probe says nothing.
//! 3. *Probes together.* If `d` modulo `bits` is the distance of two special places, all probes of
//!    the key are near special places. That happens to some 65535 / `bits` of all keys.
//! 4. *Equal hashes*: one absent key in 2^32 / `keys` has the hash of a key.
//!
//! Any double hashing also loses in a small filter: keys with the same `d`, or the opposite one,
//! share most of their bits (Dillinger and Manolios, "Bloom Filters in Probabilistic Verification",
//! 2004). The rate is a sum of small terms, each of first order. Called by `estimates.rs`.

use std::ops::RangeInclusive;

/// The special places are multiples of this number.
const STRIDE: i64 = 65_537;

/// How many multiples of it there are below 2^32.
const MULTIPLES: f64 = 65_535.0;

/// The probe that only meets special places.
const SPECIAL: usize = 2;

/// In filters with fewer bits special places are everywhere, so no probe differs from another.
const SPREAD_BITS: u64 = 1_024;

/// In filters with fewer bits most places are special, so their probes have nothing in common.
const TOGETHER_BITS: u64 = 1 << 17;

/// Points of the integrals in each direction; with more the rates change by less than 2 %.
const GRID: usize = 12;

/// The share of absent keys that a filter of `keys` keys lets through.
#[must_use]
pub fn expected_fpr(keys: u64, bits: u64, probes: u32) -> f64 {
    // Bits beyond the reach of a 32-bit hash stay unused.
    let (keys, bits) = (keys as f64, bits.clamp(1, 1 << 32));
    let probes = probes.max(1) as usize;
    let load = keys / bits as f64;
    let rate = if bits < SPREAD_BITS {
        let set = 1.0 - (-(probes as f64) * load).exp();
        set.powi(probes as i32) + same_step(load, bits, probes, set)
    } else if probes <= SPECIAL {
        // No probe is special, but the second one meets only some residues.
        let set = 1.0 - (-(probes as f64) * load).exp();
        by_residues(load, bits, probes, 0.0) + same_step(load, bits, probes, set)
    } else {
        // First the other probes, then special places by how often each occurs.
        let others = 1.0 - (-(probes as f64 - 1.0) * load).exp();
        let places = SpecialPlaces::of(keys, bits);
        let (covered, missed) = places.covered_and_missed();
        let covered = (covered * MULTIPLES / bits as f64).min(1.0);
        let set = others + (1.0 - others) * covered;
        let second = 1.0 - (1.0 - others) * missed;
        let alone = by_residues(load, bits, probes, covered) * second;
        alone + places.together(probes, others, set) + same_step(load, bits, probes, set)
    };
    let equal_hash = -(-keys / 2f64.powi(32)).exp_m1();
    let rate = rate.min(1.0);
    rate + equal_hash - rate * equal_hash
}

/// The rate added by keys with the same step or the opposite one: `c` bits are shared and others
/// set the rest, less the mean that already counts these `c` bits.
fn same_step(load: f64, bits: u64, probes: usize, set: f64) -> f64 {
    let most = probes as i32;
    let shifts = (1 - most..most).map(|shift: i32| {
        let c = most - shift.abs();
        let beyond_mean = 1.0 - set.powi(c) - f64::from(c) * (1.0 - set) * set.powi(c - 1);
        set.powi(shift.abs()) * beyond_mean
    });
    2.0 * load / bits as f64 * shifts.sum::<f64>()
}

/// The share of absent keys of which every probe but the special one finds a set bit. Special
/// probes set the share `covered` of the bits.
fn by_residues(load: f64, bits: u64, probes: usize, covered: f64) -> f64 {
    let classes = gcd(bits, 15) as usize;
    let others = || (0..probes).filter(|&probe| probe != SPECIAL);
    // The residue of a probe with this many carries; `classes` divides 2^32 - 1.
    let residue = |hash: usize, probe: usize, carries: usize| {
        (hash * (1 + (probe << 15)) + classes * probe - carries) % classes
    };
    let mut loads = vec![0.0; classes];
    for (hash, probe) in (0..classes).flat_map(|hash| others().map(move |probe| (hash, probe))) {
        for carries in 0..=probe {
            // `h + i * d`, with both spread evenly over 2^32: half as many at both ends.
            let ends = probe > 0 && (carries == 0 || carries == probe);
            let share = if ends { 0.5 } else { 1.0 } / probe.max(1) as f64;
            loads[residue(hash, probe, carries)] += share * load;
        }
    }
    let set: Vec<f64> = loads.iter().map(|load| 1.0 - (-load).exp() * (1.0 - covered)).collect();
    let points = if classes > 1 { GRID } else { 1 };
    let mut sum = 0.0;
    for (h, d) in grid(points).flat_map(|h| grid(points).map(move |d| (h, d))) {
        for hash in 0..classes {
            let set = others().map(|i| set[residue(hash, i, (h + i as f64 * d) as usize)]);
            sum += set.product::<f64>();
        }
    }
    sum / (points * points * classes) as f64
}

/// The places of probe 2: `STRIDE * q - carries` modulo the filter's bits.
struct SpecialPlaces {
    /// Keys for each `q`.
    per_multiple: f64,
    bits: u64,
    /// Other places that are the same bit: the difference in carries, and in `q` as a share of all.
    same: Vec<(i64, f64)>,
    /// The smallest such difference in `q` with its carries, if there is one. Places repeat after
    /// it.
    period: Option<(i64, f64)>,
}

impl SpecialPlaces {
    fn of(keys: f64, bits: u64) -> Self {
        let mut places =
            SpecialPlaces { per_multiple: keys / MULTIPLES, bits, same: Vec::new(), period: None };
        let Some(inverse) = inverse_of_stride(bits as i64) else { return places };
        let bits = bits as i64;
        // `STRIDE * step` is `carries` modulo the bits.
        for carries in -2..=2 {
            let first = -MULTIPLES as i64 + (carries * inverse + MULTIPLES as i64).rem_euclid(bits);
            let steps = (first..=MULTIPLES as i64).step_by(bits as usize);
            let other = steps.filter(|&step| step != 0);
            places.same.extend(other.map(|step| (carries, step as f64 / MULTIPLES)));
        }
        let nearest = |carries: i64| {
            let step = (carries * inverse).rem_euclid(bits);
            let step = if step > bits / 2 { step - bits } else { step };
            (carries, step as f64 / MULTIPLES)
        };
        places.period = (1..=6).map(nearest).find(|(_, step)| step.abs() < 2.5);
        places
    }

    /// The share of the keys of a multiple that reach it with this many carries. `at` is its place
    /// from 0 to 1: `h + 2 * d`, with both spread evenly over 2^32.
    fn share(carries: i64, at: f64) -> f64 {
        match carries {
            _ if !(0.0..1.0).contains(&at) => 0.0,
            0 => at / 2.0,
            1 => 0.5,
            2 => (1.0 - at) / 2.0,
            _ => 0.0,
        }
    }

    /// The number of places that probe 2 sets, as a multiple of [`MULTIPLES`], and how often no
    /// other key has set the place that probe 2 of a key reads.
    fn covered_and_missed(&self) -> (f64, f64) {
        let points = 2 * GRID;
        let (mut covered, mut missed) = (0.0, 0.0);
        for (at, carries) in grid(points).flat_map(|at| (0..=2).map(move |carries| (at, carries))) {
            let own = Self::share(carries, at);
            let same = self.same.iter().map(|(more, step)| Self::share(carries + more, at + step));
            let same: Vec<f64> = same.filter(|share| *share > 0.0).collect();
            let unset = (-self.per_multiple * (own + same.iter().sum::<f64>())).exp();
            covered += (1.0 - unset) / (1 + same.len()) as f64;
            missed += own * unset;
        }
        (covered / points as f64, missed / points as f64)
    }

    /// The chance that keys set a place, under any of its numbers; `None` outside of all places.
    fn set(&self, carries: i64, at: f64, others: f64) -> Option<f64> {
        let share = match self.period {
            None => Self::share(carries, at),
            Some((period, step)) => (0..=2)
                .filter(|name| (name - carries).rem_euclid(period) == 0)
                .map(|name| Self::share(name, at + ((name - carries) / period) as f64 * step))
                .sum(),
        };
        (share > 0.0).then(|| 1.0 - (1.0 - others) * (-self.per_multiple * share).exp())
    }

    /// The rate added because probes meet special places together: an integral over the hash, its
    /// step, and the number of times that the step goes around the filter, `turns`. One key in
    /// [`STRIDE`] has a given number of turns and carries a step.
    fn together(&self, probes: usize, others: f64, set: f64) -> f64 {
        if self.bits < TOGETHER_BITS {
            return 0.0;
        }
        let (reach, more_carries): (usize, RangeInclusive<i64>) = match self.period {
            None => (1, -1..=2),
            Some((1, _)) => (2, 0..=0),
            Some((2, _)) => (2, 0..=1),
            Some((3, _)) => (2, -1..=1),
            Some(_) => (2, -1..=2),
        };
        let (first, mean) = (set.powi(probes as i32 - 1), set.powi(probes as i32 - 2));
        let mut sum = 0.0;
        for (h, d) in grid(GRID).flat_map(|h| grid(GRID).map(move |d| (h, d))) {
            let second = h + SPECIAL as f64 * d;
            let second = self.set(second as i64, second.fract(), others).unwrap_or(set);
            for turns in grid(2 * reach * GRID).map(|turn| (2.0 * turn - 1.0) * reach as f64) {
                for more in more_carries.clone() {
                    let (mut product, mut above, mut special) = (1.0, 0.0, 0);
                    for probe in (0..probes).filter(|&probe| probe != SPECIAL) {
                        let (from_second, at) =
                            (probe as i64 - SPECIAL as i64, h + probe as f64 * d);
                        let place = at.fract() - from_second as f64 * turns;
                        let carries = at as i64 - from_second * more;
                        let here = self.set(carries, place, others);
                        product *= here.unwrap_or(set);
                        above += here.map_or(0.0, |here| here - set);
                        special += usize::from(here.is_some());
                    }
                    // A single special probe is in the mean of `set` already; several count with
                    // their mean.
                    if special > 1 {
                        sum += (product - first - above * mean) * second;
                    }
                }
            }
        }
        sum / GRID.pow(3) as f64 * MULTIPLES / self.bits as f64
    }
}

/// The number that times [`STRIDE`] is 1 modulo `bits`, by Euclid's algorithm.
fn inverse_of_stride(bits: i64) -> Option<i64> {
    let (mut a, mut b, mut x, mut y) = (STRIDE % bits, bits, 1, 0);
    while b != 0 {
        let quotient = a / b;
        (a, b) = (b, a - quotient * b);
        (x, y) = (y, x - quotient * y);
    }
    (a == 1).then(|| x.rem_euclid(bits))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The middles of `points` equal parts of 0 to 1.
fn grid(points: usize) -> impl Iterator<Item = f64> {
    (0..points).map(move |point| (point as f64 + 0.5) / points as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::leveldb::{create_filter, may_match, probes};
    use crate::hash::leveldb_hash;

    #[test]
    fn one_or_two_probes_pass_as_many_keys_as_expected() {
        // Three bits a key make a multiple of 3, and probe 1 meets one residue modulo 3 alone.
        for bits_per_key in [2, 3, 4] {
            let (n, asked) = (20_000u32, 40_000u32);
            let hash = |i: u32| leveldb_hash(&i.to_le_bytes());
            let hashes: Vec<u64> = (0..n).map(|i| hash(i).into()).collect();
            let mut filter = Vec::new();
            create_filter(&hashes, bits_per_key, &mut filter);
            let passed = (n..n + asked).filter(|i| may_match(&filter, hash(*i))).count();
            let passed = passed as f64 / f64::from(asked);
            let bits = 8 * (filter.len() as u64 - 1);
            let expected = expected_fpr(n.into(), bits, probes(bits_per_key));
            assert!((passed / expected - 1.0).abs() < 0.04, "{bits_per_key}: {passed} {expected}");
        }
    }
}
