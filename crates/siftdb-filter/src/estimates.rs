//! The size and the false-positive rate of a filter, estimated before it is built.
//!
//! `siftdb filter sim` prints it, siftdb expects it of its tables. Sizes are exact for
//! the full layout (a Ribbon filter's to 16 bytes). Rates are computed from the size that a filter
//! really has, and assume random hashes. For 1,000 to 10 million keys at 5 to 20 bits they are
//! within 10 % of the measured rates (`tests/it/encodings.rs`). Custom policies have neither.

use crate::bloom::fast_local::{self, ROCKSDB_TRAILER_BYTES};
use crate::bloom::legacy;
use crate::bloom::leveldb;
use crate::bloom::leveldb_rate;
use crate::bloom::line_rates;
use crate::cache_line::LINE_BYTES;
use crate::encoding::Encoding;
use crate::ribbon::space;

/// Steps in which the bits for a wanted rate are sought.
const MILLIBITS_STEP: usize = 10;

impl Encoding {
    /// Bits that a probe reads for a key that may be there; for Ribbon, the parities. `None` if a
    /// policy decides.
    #[must_use]
    pub fn probes(&self) -> Option<u32> {
        match self {
            Encoding::LevelDbBloom { bits_per_key } => Some(leveldb::probes(*bits_per_key)),
            Encoding::FastLocalBloom { millibits } => {
                Some(fast_local::choose_num_probes(*millibits))
            }
            Encoding::Ribbon { millibits } => Some(space::columns(*millibits)),
            Encoding::LegacyBloom { bits_per_key } => Some(leveldb::probes(*bits_per_key)),
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
                Some(fast_local::calculate_space(keys, *millibits))
            }
            Encoding::Ribbon { millibits } => Some(space::calculate_space(keys, *millibits)),
            Encoding::LegacyBloom { bits_per_key } => {
                Some(legacy::calculate_space(keys, *bits_per_key))
            }
        }
    }

    /// The share of absent keys that a filter of a million keys lets through; `None` where a policy
    /// decides.
    #[must_use]
    pub fn expected_fpr(&self) -> Option<f64> {
        self.expected_fpr_of(1_000_000)
    }

    /// The share of absent keys that a filter of this many keys lets through; `None` where a policy
    /// decides. Some encodings tell keys apart by a hash of 32 bits. Their rate includes the keys
    /// whose hash equals that of one of `keys`: one in a thousand with four million keys, however
    /// many bits each has. A legacy Bloom of a million keys or more may let a fifth more
    /// through, if its number of lines is an unlucky one.
    #[must_use]
    pub fn expected_fpr_of(&self, keys: u64) -> Option<f64> {
        let keys = keys.max(1);
        self.expected_fpr_in(keys as f64, self.filter_bytes(keys)? as f64)
    }

    /// The same for a filter, or the mean of several, with this many keys in this many bytes.
    #[doc(hidden)]
    pub fn expected_fpr_in(&self, keys: f64, bytes: f64) -> Option<f64> {
        let lines = ((bytes - ROCKSDB_TRAILER_BYTES as f64) / LINE_BYTES as f64).max(1.0);
        let fast_local = |millibits| {
            line_rates::fast_local(keys, lines, fast_local::choose_num_probes(millibits))
        };
        match self {
            Encoding::LevelDbBloom { bits_per_key } => {
                let bits = (8.0 * (bytes - 1.0)) as u64;
                let probes = leveldb::probes(*bits_per_key);
                Some(leveldb_rate::expected_fpr(keys as u64, bits, probes))
            }
            Encoding::FastLocalBloom { millibits } => Some(fast_local(*millibits)),
            Encoding::Ribbon { millibits } => {
                let is_ribbon = space::Plan::new(keys as usize, 0, *millibits).is_some();
                let ribbon = || space::expected_fpr(*millibits);
                Some(if is_ribbon { ribbon() } else { fast_local(*millibits) })
            }
            Encoding::LegacyBloom { bits_per_key } => {
                Some(line_rates::legacy(keys, lines, leveldb::probes(*bits_per_key)))
            }
            Encoding::Custom(_) => None,
        }
    }

    /// The built-in encodings that can keep to `fpr` with `keys` keys in a filter, each with the
    /// fewest bits per key that do, to a hundredth.
    #[must_use]
    pub fn built_in_for_fpr(fpr: f64, keys: u64) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for millibits in (1_000..=100_000).step_by(MILLIBITS_STEP) {
            for encoding in Encoding::built_in(millibits) {
                let known = found.iter().any(|other| other.label() == encoding.label());
                // Between two whole bits, such an encoding was already tried.
                let tried = encoding.takes_whole_bits() && millibits % 1_000 != 0;
                if !known
                    && !tried
                    && encoding.expected_fpr_of(keys).is_some_and(|rate| rate <= fpr)
                {
                    found.push(encoding);
                }
            }
        }
        found
    }

    /// The share of absent keys whose hash equals that of one of `keys`; `None` where hashes are
    /// too long for that to matter.
    #[doc(hidden)]
    pub fn equal_hash_rate(&self, keys: u64) -> Option<f64> {
        self.takes_whole_bits().then(|| -(-(keys as f64) / 2f64.powi(32)).exp_m1())
    }

    /// The older encodings, whose hash has 32 bits.
    fn takes_whole_bits(&self) -> bool {
        matches!(self, Encoding::LevelDbBloom { .. } | Encoding::LegacyBloom { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimated_sizes_equal_built_ones() {
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
    fn the_fewest_bits_reach_a_rate() {
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
    fn only_short_hashes_collide_in_large_filters() {
        let at = |encoding: &Encoding, keys| encoding.expected_fpr_of(keys).unwrap();
        let fast = Encoding::FastLocalBloom { millibits: 20_000 };
        let (many, some) = (at(&fast, 100_000_000), at(&fast, 100_000));
        assert!((many / some - 1.0).abs() < 0.01, "{many} {some}");
        let leveldb = Encoding::LevelDbBloom { bits_per_key: 20 };
        let loss = at(&leveldb, 40_000_000) - at(&leveldb, 4_000_000);
        assert!((0.008..0.0094).contains(&loss), "{loss}");
        assert!((0.999..=1.0).contains(&at(&leveldb, u64::MAX)));
    }
}
