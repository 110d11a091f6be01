//! What a filter takes and lets through, reckoned before one is built: for plans and reports.
//!
//! `siftdb filter sim` prints it, `table/properties.rs` expects it of tables. Sizes are exact for
//! the full layout (a Ribbon filter's to 16 bytes); rates are those of many keys in filters that
//! are as full as they are meant to be, so a filter of a few keys, rounded up to a line, does
//! better. Custom policies have neither.

use crate::filter::fast_local_bloom;
use crate::filter::legacy_bloom;
use crate::filter::leveldb_bloom;
use crate::filter::registry::Encoding;
use crate::filter::ribbon_space;

/// Steps in which the bits for a wanted rate are sought.
const MILLIBITS_STEP: usize = 10;

impl Encoding {
    /// Bits that are looked at for a key that may be there: of Ribbon, the parities. `None` where a
    /// policy decides.
    #[must_use]
    pub fn probes(&self) -> Option<u32> {
        match self {
            Encoding::LevelDbBloom { bits_per_key } => Some(leveldb_bloom::probes(*bits_per_key)),
            Encoding::FastLocalBloom { millibits } => {
                Some(fast_local_bloom::choose_num_probes(*millibits))
            }
            Encoding::Ribbon { millibits } => Some(ribbon_space::columns(*millibits)),
            Encoding::LegacyBloom { bits_per_key } => Some(leveldb_bloom::probes(*bits_per_key)),
            Encoding::Custom(_) => None,
        }
    }

    /// Bytes of the filter of `keys` different keys; `None` where a policy decides.
    #[must_use]
    pub fn filter_bytes(&self, keys: u64) -> Option<u64> {
        match self {
            Encoding::Custom(_) => None,
            _ if keys == 0 => Some(0),
            Encoding::LevelDbBloom { bits_per_key } => {
                Some(keys.saturating_mul(u64::from(*bits_per_key)).max(64).div_ceil(8) + 1)
            }
            Encoding::FastLocalBloom { millibits } => {
                Some(fast_local_bloom::calculate_space(keys, *millibits))
            }
            Encoding::Ribbon { millibits } => Some(ribbon_space::calculate_space(keys, *millibits)),
            Encoding::LegacyBloom { bits_per_key } => {
                Some(legacy_bloom::calculate_space(keys, *bits_per_key))
            }
        }
    }

    /// The share of absent keys that a filter of this many keys lets through. Where keys are told
    /// apart by 32 bits of hash, those come on top whose hash equals one of `keys`: one in a
    /// thousand with four million keys, however many bits each has.
    #[must_use]
    pub fn expected_fpr_of(&self, keys: u64) -> Option<f64> {
        let fpr = self.expected_fpr()?;
        if self.has_64_bit_hash() {
            return Some(fpr);
        }
        let equal_hash = -(-(keys as f64) / 2f64.powi(32)).exp_m1();
        Some(fpr + equal_hash - fpr * equal_hash)
    }

    /// The built-in encodings that can keep to `fpr` with `keys` keys in a filter, each with the
    /// fewest bits per key that do, to a hundredth.
    #[must_use]
    pub fn built_in_for_fpr(fpr: f64, keys: u64) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for millibits in (1_000..=100_000).step_by(MILLIBITS_STEP) {
            for encoding in Encoding::built_in(millibits) {
                let known = found.iter().any(|other| other.label() == encoding.label());
                if !known && encoding.expected_fpr_of(keys).is_some_and(|rate| rate <= fpr) {
                    found.push(encoding);
                }
            }
        }
        found
    }

    fn has_64_bit_hash(&self) -> bool {
        matches!(self, Encoding::FastLocalBloom { .. } | Encoding::Ribbon { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_filters_that_are_built() {
        for millibits in [1_000, 5_000, 10_000, 16_000, 100_000] {
            for encoding in Encoding::built_in(millibits) {
                for keys in [0u64, 1, 2, 51, 52, 1_000, 9_999] {
                    let mut builder = encoding.builder();
                    (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
                    let mut filter = Vec::new();
                    builder.finish(&mut filter).unwrap();
                    let bytes = encoding.filter_bytes(keys).unwrap();
                    // A Ribbon filter rounds up or down by its first key.
                    let rounding = if encoding.label() == "ribbon" { 16 } else { 0 };
                    let off = bytes.abs_diff(filter.len() as u64);
                    assert!(off <= rounding, "{encoding:?}, {keys} keys: {off} bytes");
                }
            }
        }
    }

    #[test]
    fn the_fewest_bits_for_a_rate() {
        for (fpr, bits) in [(0.01, 9.88), (0.001, 15.53), (0.0001, 21.53), (1.0, 1.0)] {
            let all = Encoding::built_in_for_fpr(fpr, 1_000);
            let fast = all.iter().find(|one| one.label() == "fast-local-bloom").unwrap();
            let found = fast.bits_per_key().unwrap();
            assert!((found - bits).abs() < 0.3, "{fpr}: {found}");
            for encoding in all {
                assert!(encoding.expected_fpr_of(1_000).unwrap() <= fpr, "{encoding:?}");
                let millibits = (1_000.0 * encoding.bits_per_key().unwrap()) as u64 - 10;
                let fewer = Encoding::of_table(encoding.label(), millibits).unwrap();
                let same = fewer.bits_per_key() == encoding.bits_per_key();
                let more = fewer.expected_fpr_of(1_000).unwrap() > fpr;
                assert!(same || more || fpr >= 1.0, "{fewer:?} for {fpr}");
            }
        }
        assert!(Encoding::built_in_for_fpr(0.0, 1_000).is_empty());
        assert!(Encoding::built_in_for_fpr(f64::NAN, 1_000).is_empty());
    }

    #[test]
    fn only_short_hashes_meet_in_large_filters() {
        let at = |encoding: &Encoding, keys| encoding.expected_fpr_of(keys).unwrap();
        let fast = Encoding::FastLocalBloom { millibits: 20_000 };
        assert_eq!(at(&fast, u64::MAX), at(&fast, 1));
        let leveldb = Encoding::LevelDbBloom { bits_per_key: 20 };
        let loss = at(&leveldb, 40_000_000) - at(&leveldb, 1);
        assert!((0.009..0.0094).contains(&loss), "{loss}");
        assert!((0.999..=1.0).contains(&at(&leveldb, u64::MAX)));
    }
}
