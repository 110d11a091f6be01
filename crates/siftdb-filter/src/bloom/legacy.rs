//! RocksDB's older Bloom filter: a line for each key as in FastLocalBloom, from a 32-bit hash.
//!
//! Bytes: `lines * 64 ‖ k ‖ lines: u32`. A key sets `k` bits in the line `hash mod lines`: bit `i`
//! is `(hash + i * rotate_right(hash, 17)) mod 512`. RocksDB wrote lines as long as the cache lines
//! of its machine; a reader takes any power of two. No keys, no bytes; at most 512 MiB.
//!
//! Source: `LegacyLocalityBloomImpl` in RocksDB's `util/bloom_impl.h` and `LegacyBloomBitsBuilder`
//! in its `filter_policy.cc`. The bytes equal RocksDB's for the same keys, weaknesses included:
//! one key in 512 sets a single bit, which no number of bits per key repairs, and in a filter of
//! millions of keys whole hashes collide (`line_rates.rs`; rocksdb#4120).

use crate::bloom::fast_local::{self, ROCKSDB_TRAILER_BYTES};
use crate::bloom::leveldb;
use crate::cache_line::{self, LINE_BYTES};

/// The persisted name in the block-based layout, which RocksDB never wrote with this encoding. In
/// the others it is [`fast_local::NAME`].
pub const BLOCK_BASED_NAME: &str = "siftdb.LegacyBloom";

/// The most bits of a filter, before they are rounded up to lines.
const BITS_MAX: u64 = 0xffff_0000;

const LINE_BITS: u64 = 8 * LINE_BYTES as u64;

/// Whole bits per key of thousandths, rounded as RocksDB does.
#[must_use]
pub fn whole_bits(millibits: u32) -> u32 {
    millibits.saturating_add(500) / 1_000
}

/// Bytes of the filter of `entries` keys, trailer included: an odd number of lines, or none.
#[must_use]
pub fn calculate_space(entries: u64, bits_per_key: u32) -> u64 {
    let bits = entries.saturating_mul(u64::from(bits_per_key)).min(BITS_MAX);
    // The low 9 bits of the hash choose the first bit in the line. With an odd number of lines the
    // choice of the line depends on the other bits too.
    let lines = if entries == 0 { 0 } else { bits.div_ceil(LINE_BITS) | 1 };
    lines * LINE_BYTES as u64 + ROCKSDB_TRAILER_BYTES as u64
}

/// The number of keys that a filter of `bytes` has room for; the inverse of [`calculate_space`].
#[must_use]
pub fn approximate_num_entries(bytes: u64, bits_per_key: u32) -> u64 {
    let bits_per_key = u64::from(bits_per_key.max(1));
    let lines = bytes.saturating_sub(ROCKSDB_TRAILER_BYTES as u64) / LINE_BYTES as u64;
    if lines == 0 {
        return 0;
    }
    // The number of keys that fill the largest odd number of lines.
    let filled = (lines - (lines + 1) % 2).saturating_mul(LINE_BITS) / bits_per_key;
    // A filter of the largest size takes any number of keys. RocksDB ends its search here.
    filled.min(bytes.saturating_mul(8).min(BITS_MAX) / bits_per_key + 1)
}

/// Appends the filter of the keys with these 32-bit hashes; nothing for none.
pub fn create_filter(hashes: &[u64], bits_per_key: u32, dst: &mut Vec<u8>) {
    if hashes.is_empty() {
        return;
    }
    let probes = leveldb::probes(bits_per_key);
    let bytes = calculate_space(hashes.len() as u64, bits_per_key) as usize;
    let body_bytes = bytes - ROCKSDB_TRAILER_BYTES;
    fast_local::set_bits(hashes, body_bytes, dst, |hash, lines| {
        let hash = hash as u32;
        ((hash % lines) as usize, bits_in_line(hash, probes, LINE_BYTES as u64))
    });
    let lines = (body_bytes / LINE_BYTES) as u32;
    dst.push(probes as u8);
    dst.extend_from_slice(&lines.to_le_bytes());
}

/// The bits of one key, counted in its line of `line_bytes`, a power of two.
#[inline]
fn bits_in_line(mut hash: u32, probes: u32, line_bytes: u64) -> impl Iterator<Item = usize> {
    let delta = hash.rotate_right(17);
    let mask = 8 * line_bytes - 1;
    (0..probes).map(move |_| {
        let bit = u64::from(hash) & mask;
        hash = hash.wrapping_add(delta);
        bit as usize
    })
}

/// The parsed trailer of a legacy Bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyTrailer {
    lines: u32,
    line_bytes_log2: u32,
    /// Probes of a key.
    pub probes: u32,
}

impl LegacyTrailer {
    /// Reads the trailer. `None` unless it has 1 to 127 probes and lines that divide the body into
    /// equal powers of two.
    #[must_use]
    pub fn parse(filter: &[u8]) -> Option<Self> {
        let (body, &[probes, a, b, c, d]) = filter.split_last_chunk::<ROCKSDB_TRAILER_BYTES>()?;
        let lines = u32::from_le_bytes([a, b, c, d]);
        let line_bytes = (body.len() as u64).checked_div(u64::from(lines))?;
        // Above 127 are the markers of other encodings, and 0 means "matches everything".
        let whole = line_bytes * u64::from(lines) == body.len() as u64;
        if !(1..=127).contains(&probes) || !whole || !line_bytes.is_power_of_two() {
            return None;
        }
        Some(LegacyTrailer {
            lines,
            line_bytes_log2: line_bytes.ilog2(),
            probes: u32::from(probes),
        })
    }

    /// The byte range of the line of `hash`.
    #[inline]
    fn line(self, hash: u32) -> std::ops::Range<usize> {
        let start = u64::from(hash % self.lines) << self.line_bytes_log2;
        start as usize..(start + (1 << self.line_bytes_log2)) as usize
    }

    /// False only if no key with this hash was among those that `filter` was built from. `filter`
    /// is what was parsed; a shorter one answers "may match".
    #[inline]
    #[must_use]
    pub fn may_match(self, filter: &[u8], hash: u32) -> bool {
        let Some(line) = filter.get(self.line(hash)) else { return true };
        bits_in_line(hash, self.probes, 1 << self.line_bytes_log2)
            .all(|bit| line.get(bit / 8).is_none_or(|byte| byte & (1 << (bit % 8)) != 0))
    }

    /// Prefetches both ends of the line of `hash`. The middle of a longer foreign line is left to
    /// the processor.
    #[inline]
    pub fn prefetch(self, filter: &[u8], hash: u32) {
        let line = self.line(hash);
        cache_line::prefetch(filter, line.start);
        cache_line::prefetch(filter, line.end - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{legacy_hash, xxph3_64};
    use crate::testing::vectors;
    use serde_json::Value;

    fn filter_of(n: u64, bits_per_key: u32) -> Vec<u8> {
        let hashes: Vec<u64> = (0..n).map(|i| legacy_hash(&vectors::key8(i)).into()).collect();
        let mut filter = Vec::new();
        create_filter(&hashes, bits_per_key, &mut filter);
        filter
    }

    fn asks(filter: &[u8], key: &[u8]) -> bool {
        LegacyTrailer::parse(filter).expect("a filter").may_match(filter, legacy_hash(key))
    }

    fn positives(filter: &[u8]) -> Vec<u64> {
        (0..2000).filter(|j| asks(filter, &vectors::key8(1_000_000 + j))).collect()
    }

    fn numbers(value: &Value, name: &str) -> Vec<u64> {
        vectors::array(value, name).iter().filter_map(Value::as_u64).collect()
    }

    #[test]
    fn filters_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_legacy_bloom.json") else { return };
        for case in vectors::array(&file, "cases") {
            let bits_per_key = vectors::number(case, "bits_per_key") as u32;
            let n = vectors::number(case, "n");
            let filter = filter_of(n, bits_per_key);
            assert_eq!(filter, vectors::bytes(case, "filter"), "{bits_per_key} bits, {n} keys");
            assert_eq!(calculate_space(n, bits_per_key), vectors::number(case, "calculate_space"));
            if n == 0 {
                continue;
            }
            let shape = LegacyTrailer::parse(&filter).expect("a filter");
            let (lines, probes) = (u64::from(shape.lines), u64::from(shape.probes));
            assert_eq!(lines, vectors::number(case, "num_lines"));
            assert_eq!(probes, vectors::number(case, "num_probes"));
            assert!((0..n).all(|i| asks(&filter, &vectors::key8(i))));
            assert_eq!(positives(&filter), numbers(case, "probe_positives"));
        }
    }

    /// The bits of one key in RocksDB's *extra rotates* form, counted from the start of the body.
    /// RocksDB used it for memtables only, no file holds it.
    fn extra_rotates_bits(
        hash: u32,
        probes: u32,
        lines: u32,
        line_bytes_log2: u32,
    ) -> impl Iterator<Item = u64> {
        let line_bits_log2 = line_bytes_log2 + 3;
        let line = u64::from(hash.rotate_right(11) % lines);
        let delta = hash.rotate_right(17);
        let mut rotated = hash;
        (0..probes).map(move |_| {
            let bit = u64::from(rotated) & ((1 << line_bits_log2) - 1);
            rotated = rotated.rotate_right(line_bits_log2).wrapping_add(delta);
            (line << line_bits_log2) + bit
        })
    }

    #[test]
    fn lines_of_every_size_equal_rocksdb() {
        let Some(file) = vectors::load("rocksdb_legacy_bloom.json") else { return };
        let mut forms = [0, 0];
        for case in vectors::array(&file, "raw") {
            let hash = vectors::number(case, "h") as u32;
            let lines = vectors::number(case, "num_lines") as u32;
            let probes = vectors::number(case, "num_probes") as u32;
            let line_bytes_log2 = vectors::number(case, "log2_line_bytes") as u32;
            let expected = vectors::bytes(case, "line");
            let at = vectors::number(case, "byte_offset") as usize;
            let rotates = case["extra_rotates"].as_bool() == Some(true);
            forms[usize::from(rotates)] += 1;
            let mut line = vec![0u8; expected.len()];
            if rotates {
                for bit in extra_rotates_bits(hash, probes, lines, line_bytes_log2) {
                    line[bit as usize / 8 - at] |= 1 << (bit % 8);
                }
            } else {
                let shape = LegacyTrailer { lines, line_bytes_log2, probes };
                assert_eq!(shape.line(hash), at..at + expected.len());
                for bit in bits_in_line(hash, probes, expected.len() as u64) {
                    line[bit / 8] |= 1 << (bit % 8);
                }
            }
            assert_eq!(line, expected, "{case}");
        }
        assert_eq!(forms, [60, 60]);
        let foreign = vectors::array(&file["foreign_line_size"], "cases");
        assert_eq!(foreign.len(), 4);
        for case in foreign {
            let filter = vectors::bytes(case, "filter");
            assert!((0..40).all(|i| asks(&filter, &vectors::key8(i))));
            assert_eq!(positives(&filter), numbers(case, "probe_positives"));
        }
    }

    #[test]
    fn figures_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_legacy_bloom.json") else { return };
        let int = |row: &Value, i: usize| row[i].as_u64().expect("number");
        for row in vectors::array(&file, "calculate_space") {
            assert_eq!(calculate_space(int(row, 1), int(row, 0) as u32), int(row, 2), "{row}");
        }
    }

    #[test]
    fn golden_bytes_and_digest() {
        assert!(filter_of(0, 10).is_empty());
        let one = filter_of(1, 10);
        assert_eq!((one.len(), vectors::hex(&one[64..]).as_str()), (69, "0601000000"));
        assert_eq!(vectors::hex(&filter_of(1_000, 10)[1344..]), "0615000000");
        // One number for many sizes and settings, recorded when the vectors of RocksDB passed.
        let mut digest = 0u64;
        for bits_per_key in [1, 4, 10, 16, 30, 100] {
            for n in [1, 2, 10, 51, 52, 100, 1_000, 3_000] {
                digest = digest.rotate_left(7) ^ xxph3_64(&filter_of(n, bits_per_key));
            }
        }
        let mut rotated = 0u64;
        for hash in (0..200u32).map(|i| legacy_hash(&i.to_le_bytes())) {
            for bit in extra_rotates_bits(hash, 1 + hash % 30, 1 + hash % 999, 4 + hash % 5) {
                rotated = rotated.rotate_left(7) ^ bit;
            }
        }
        assert_eq!((digest, rotated), (0x4b4b25ed7705ae8e, 0xb7fda11183643892));
    }

    #[test]
    fn bits_per_key_are_rounded() {
        for (millibits, bits) in
            [(1_000, 1), (1_499, 1), (1_500, 2), (9_499, 9), (9_500, 10), (100_000, 100)]
        {
            assert_eq!(whole_bits(millibits), bits);
        }
    }

    #[test]
    fn impossible_trailers_are_refused() {
        let with = |body: usize, probes: u8, lines: u32| {
            [vec![0; body], vec![probes], lines.to_le_bytes().to_vec()].concat()
        };
        for (body, probes, lines) in [
            (64, 0, 1),
            (64, 128, 1),
            (64, 0xff, 1),
            (64, 6, 0),
            (64, 6, 3),
            (64, 6, 65),
            (96, 6, 2),
            (0, 6, 0),
            (0, 6, 1),
            // 64 times this number is 64 in 32 bits.
            (64, 6, (1 << 26) + 1),
            (64, 6, u32::MAX),
        ] {
            assert_eq!(
                LegacyTrailer::parse(&with(body, probes, lines)),
                None,
                "{body} {probes} {lines}"
            );
        }
        assert_eq!(LegacyTrailer::parse(&[]), None);
        for probes in [1, 30, 31, 100, 127] {
            for (body, lines) in [(64, 1), (64, 2), (64, 64), (192, 3), (1 << 14, 1)] {
                let mut filter = with(body, probes, lines);
                assert!(!asks(&filter, b"key"), "{probes} {body} {lines}");
                filter[..body].fill(0xff);
                assert!(asks(&filter, b"key"), "{probes} {body} {lines}");
                let shape = LegacyTrailer::parse(&filter).expect("a filter");
                assert!(shape.may_match(&[], 7), "too short");
                shape.prefetch(&filter, 7);
                shape.prefetch(&[], 7);
            }
        }
    }

    #[test]
    fn space_and_entries_are_inverse() {
        for bits_per_key in [1, 4, 10, 16, 100] {
            for bytes in 0..3_000u64 {
                let n = approximate_num_entries(bytes, bits_per_key);
                let fits = |n: u64| calculate_space(n, bits_per_key) <= bytes;
                // The largest number that fits, which RocksDB finds by counting down.
                assert!(n == 0 || fits(n), "{bytes} bytes, {bits_per_key} bits");
                assert!(!fits(n + 1), "{bytes} bytes, {bits_per_key} bits: {n}");
            }
            assert_eq!(calculate_space(u64::MAX, bits_per_key), 8_388_481 * 64 + 5);
            let most = approximate_num_entries(u64::MAX, bits_per_key);
            assert_eq!(most, BITS_MAX / u64::from(bits_per_key) + 1);
        }
    }

    #[test]
    fn false_positives_stay_in_their_band() {
        for (n, bits_per_key, band) in [
            (1u64, 10, 0.0..0.002),
            (100, 10, 0.0..0.02),
            (10_000, 10, 0.0095..0.0145),
            (30_000, 5, 0.08..0.105),
            // Twenty bits a key would give 0.02 % without the keys that set a single bit.
            (30_000, 20, 0.001..0.0045),
        ] {
            let filter = filter_of(n, bits_per_key);
            let hits = (0..20_000).filter(|j| asks(&filter, &vectors::key8(1_000_000 + j))).count();
            let fpr = hits as f64 / 20_000.0;
            assert!(band.contains(&fpr), "{n} keys, {bits_per_key} bits: {fpr}");
        }
    }
}
