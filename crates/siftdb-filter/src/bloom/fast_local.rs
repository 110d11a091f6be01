//! RocksDB's FastLocalBloom: every key sets all its bits in one 64-byte line.
//!
//! Bytes: `lines * 64 ‖ ff 00 k 00 00`. The low half of the 64-bit hash chooses the line and the
//! high half the `k` bits in it, so that a probe costs one cache miss. The size follows from the
//! number of keys and the *millibits* (thousandths of a bit per key). No keys, no bytes.
//!
//! Source: `FastLocalBloomImpl` in RocksDB's `util/bloom_impl.h` and `FastLocalBloomBitsBuilder` in
//! its `filter_policy.cc`; the idea of one line per key is from Putze, Sanders and Singler,
//! "Cache-, Hash- and Space-Efficient Bloom Filters", 2007. The bytes equal RocksDB's for the same
//! keys, up to its limit of 4 GiB - 64 bytes. `optimize_filters_for_memory` is left out: with it
//! the bytes depend on the allocator.

use crate::bloom::simd;
use crate::cache_line::{self, LINE_BYTES};

/// The persisted name in the full and partitioned layouts. It is that of all of RocksDB's
/// built-in encodings; the trailer tells which.
pub const NAME: &str = "rocksdb.BuiltinBloomFilter";

/// The persisted name in the block-based layout, which RocksDB never wrote with this encoding.
pub const BLOCK_BASED_NAME: &str = "siftdb.FastLocalBloom";

/// Bytes after the body of every filter of RocksDB's encodings.
pub const ROCKSDB_TRAILER_BYTES: usize = 5;

/// First byte of the trailer.
pub const MARKER: u8 = 0xff;

/// The largest body: whole lines below 4 GiB.
const BODY_BYTES_MAX: u64 = 0xffff_ffc0;

/// Bits per key as RocksDB takes them, in thousandths: below 0.5 there is no filter (0), below 1
/// it is 1, from 100 on (and for NaN) it is 100.
#[must_use]
pub fn millibits(bits_per_key: f64) -> u32 {
    if bits_per_key < 0.5 {
        0
    } else if bits_per_key < 1.0 {
        1_000
    } else if bits_per_key < 100.0 {
        (bits_per_key * 1_000.0 + 0.500_001) as u32
    } else {
        100_000
    }
}

/// Probes per key for a filter of `millibits`.
#[must_use]
pub fn choose_num_probes(millibits: u32) -> u32 {
    // RocksDB's table, measured for lines: fewer probes than the textbook's `bits * ln 2`.
    const LIMITS: [u32; 12] =
        [2_080, 3_580, 5_100, 6_640, 8_300, 10_070, 11_720, 14_001, 16_050, 18_300, 22_001, 25_501];
    if let Some(i) = LIMITS.iter().position(|&limit| millibits <= limit) {
        return i as u32 + 1;
    }
    if millibits > 50_000 { 24 } else { (millibits - 1) / 2_000 - 1 }
}

/// Bytes of the filter of `entries` keys, trailer included.
#[must_use]
pub fn calculate_space(entries: u64, millibits: u32) -> u64 {
    let body = (u128::from(entries) * u128::from(millibits)).div_ceil(8_000);
    let body = u64::try_from(body).unwrap_or(u64::MAX).min(BODY_BYTES_MAX);
    body.next_multiple_of(LINE_BYTES as u64) + ROCKSDB_TRAILER_BYTES as u64
}

/// The number of keys that a filter of `bytes` has room for; the inverse of [`calculate_space`].
#[must_use]
pub fn approximate_num_entries(bytes: u64, millibits: u32) -> u64 {
    let Some(body) = bytes.checked_sub(ROCKSDB_TRAILER_BYTES as u64) else { return 0 };
    let lines = body.min(BODY_BYTES_MAX) & !(LINE_BYTES as u64 - 1);
    8_000 * lines / u64::from(millibits.max(1))
}

/// RocksDB's estimate of the false-positive rate at this many bits per key (`CacheLocalFpRate` in
/// its `bloom_impl.h`). The sizes of its Ribbon filters follow from it.
///
/// Lines hold unequal numbers of keys; the estimate is the mean of one standard deviation to both
/// sides. It is 2 % too low at 10 bits and 14 % at 20, so reports use `line_rates.rs`.
#[must_use]
pub fn expected_fpr(bits_per_key: f64, probes: u32) -> f64 {
    const LINE_BITS: f64 = 8.0 * LINE_BYTES as f64;
    let keys_per_line = LINE_BITS / bits_per_key;
    let deviation = keys_per_line.sqrt();
    let k = f64::from(probes);
    // The order of operations is RocksDB's: a Ribbon filter's size depends on the last bit.
    let at = |keys: f64| (1.0 - (-k / (LINE_BITS / keys)).exp()).powf(k);
    (at(keys_per_line + deviation) + at((keys_per_line - deviation).max(0.0))) / 2.0
}

/// Appends the filter of the keys with these hashes; nothing for none.
pub fn create_filter(hashes: &[u64], millibits: u32, dst: &mut Vec<u8>) {
    if hashes.is_empty() {
        return;
    }
    let probes = choose_num_probes(millibits);
    // At least one line: RocksDB makes no filter of no bits.
    let bytes = calculate_space(hashes.len() as u64, millibits.max(1)) as usize;
    set_bits(hashes, bytes - ROCKSDB_TRAILER_BYTES, dst, |hash, lines| {
        (line_of(hash, lines), simd::bits_in_line((hash >> 32) as u32, probes))
    });
    dst.extend_from_slice(&[MARKER, 0, probes as u8, 0, 0]);
}

/// Appends a body in lines and sets the bits of every hash. `place` returns the line of a hash,
/// given the number of lines, and the bits in that line.
#[inline]
pub(super) fn set_bits<B: Iterator<Item = usize>>(
    hashes: &[u64],
    body_bytes: usize,
    dst: &mut Vec<u8>,
    place: impl Fn(u64, u32) -> (usize, B),
) {
    /// How many keys ahead a line is prefetched.
    const LOOKAHEAD: usize = 8;
    let start = dst.len();
    dst.resize(start + body_bytes, 0);
    let (lines, _) = dst[start..].as_chunks_mut::<LINE_BYTES>();
    let count = lines.len() as u32;
    for (i, &hash) in hashes.iter().enumerate() {
        if let Some(&ahead) = hashes.get(i + LOOKAHEAD) {
            prefetch_line(&lines[place(ahead, count).0], 0);
        }
        let (line, bits) = place(hash, count);
        let line = &mut lines[line];
        bits.for_each(|bit| line[bit / 8] |= 1 << (bit % 8));
    }
}

/// Prefetches the line of a filter at `offset`. Both its ends: the body need not start at a cache
/// line, so a line of the filter may lie in two of them.
#[inline]
pub(super) fn prefetch_line(filter: &[u8], offset: usize) {
    cache_line::prefetch(filter, offset);
    cache_line::prefetch(filter, offset + LINE_BYTES - 1);
}

/// The index of the line that a hash belongs to.
#[inline]
fn line_of(hash: u64, lines: u32) -> usize {
    // Multiply and shift (Lemire, "Fast Random Integer Generation in an Interval", 2019): for an
    // even hash below 2^32, `hash * lines >> 32` is even below `lines`, without a division. It
    // uses the high bits of the low half. The bits in the line use the high half, so the choices
    // are independent.
    ((u64::from(hash as u32) * u64::from(lines)) >> 32) as usize
}

/// The line of `hash` in a filter of `filter_bytes` bytes, the number of lines, and the bits in the
/// line.
#[must_use]
pub fn probed(filter_bytes: u64, millibits: u32, hash: u64) -> (u64, u64, Vec<usize>) {
    let lines = filter_bytes.saturating_sub(ROCKSDB_TRAILER_BYTES as u64) / LINE_BYTES as u64;
    let lines = u32::try_from(lines).unwrap_or(u32::MAX);
    let bits = simd::bits_in_line((hash >> 32) as u32, choose_num_probes(millibits));
    (line_of(hash, lines) as u64, lines.into(), bits.collect())
}

/// The parsed trailer of a FastLocalBloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastLocalTrailer {
    lines: u32,
    /// Probes of a key.
    pub probes: u32,
}

impl FastLocalTrailer {
    /// Reads the trailer. `None` unless it is one of this encoding with a known sub-implementation,
    /// line size and count of probes, after a body of whole lines. RocksDB checks neither the
    /// body's size nor that it has a line, and would read past the end.
    #[must_use]
    #[inline(always)]
    pub fn parse(filter: &[u8]) -> Option<Self> {
        let (body, trailer) = filter.split_last_chunk::<ROCKSDB_TRAILER_BYTES>()?;
        let [MARKER, 0, line_and_probes, 0, 0] = *trailer else { return None };
        // The top 3 bits are the logarithm of the line size, 0 for 64 bytes; any other makes the
        // byte 32 or more and fails the range below.
        let probes = u32::from(line_and_probes);
        if !(1..=30).contains(&probes) || body.is_empty() || !body.len().is_multiple_of(LINE_BYTES)
        {
            return None;
        }
        Some(FastLocalTrailer { lines: u32::try_from(body.len() / LINE_BYTES).ok()?, probes })
    }

    #[inline(always)]
    fn line(self, filter: &[u8], hash: u64) -> Option<&[u8; LINE_BYTES]> {
        filter.as_chunks::<LINE_BYTES>().0.get(line_of(hash, self.lines))
    }

    /// False only if no key with this hash was among those that `filter` was built from. `filter`
    /// is what was parsed; a shorter one answers "may match".
    #[inline]
    #[must_use]
    pub fn may_match(self, filter: &[u8], hash: u64) -> bool {
        match self.line(filter, hash) {
            Some(line) => simd::probe_line(line, (hash >> 32) as u32, self.probes),
            None => true,
        }
    }

    /// Like [`may_match`](Self::may_match), with the bits of the hash shared by many filters.
    #[inline(always)]
    #[must_use]
    pub fn may_match_bits(self, filter: &[u8], key: &mut LineBits) -> bool {
        match self.line(filter, key.hash) {
            Some(line) => key.are_set_in(line, self.probes),
            None => true,
        }
    }

    /// Prefetches the line of `hash`.
    #[inline]
    pub fn prefetch(self, filter: &[u8], hash: u64) {
        prefetch_line(filter, line_of(hash, self.lines) * LINE_BYTES);
    }
}

/// The bits of one hash in its line. They are the same in every filter with as many probes, so a
/// lookup that asks many filters computes them once.
#[derive(Clone, Debug)]
pub struct LineBits {
    hash: u64,
    /// A filter was asked.
    asked: bool,
    /// The number of probes that `bits` is made of; 0 before a second filter is asked.
    probes: u32,
    bits: [u64; LINE_BYTES / 8],
}

impl LineBits {
    /// For this hash. The bits are computed when a second filter is asked.
    #[inline]
    #[must_use]
    pub fn of(hash: u64) -> Self {
        LineBits { hash, asked: false, probes: 0, bits: [0; LINE_BYTES / 8] }
    }

    /// True if all bits of the first `probes` probes are set.
    #[inline(always)]
    fn are_set_in(&mut self, line: &[u8; LINE_BYTES], probes: u32) -> bool {
        if self.probes != probes {
            // One filter is cheaper to probe than to compute the mask for.
            if !self.asked {
                self.asked = true;
                return simd::probe_line(line, (self.hash >> 32) as u32, probes);
            }
            self.find(probes);
        }
        // Plain code: compilers turn it into a few wide instructions.
        let (words, _) = line.as_chunks::<8>();
        let missing = |(bits, word): (&u64, &[u8; 8])| bits & !u64::from_le_bytes(*word);
        self.bits.iter().zip(words).map(missing).fold(0, |all, some| all | some) == 0
    }

    /// Not inlined, so that a lookup with one filter to ask stays short.
    #[inline(never)]
    fn find(&mut self, probes: u32) {
        self.probes = probes;
        self.bits = [0; LINE_BYTES / 8];
        for bit in simd::bits_in_line((self.hash >> 32) as u32, probes) {
            self.bits[bit / 64] |= 1 << (bit % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::xxph3_64;
    use crate::testing::vectors;
    use serde_json::Value;

    fn filter_of(n: u64, millibits: u32) -> Vec<u8> {
        let hashes: Vec<u64> = (0..n).map(|i| xxph3_64(&vectors::key8(i))).collect();
        let mut filter = Vec::new();
        create_filter(&hashes, millibits, &mut filter);
        filter
    }

    fn asks(filter: &[u8], key: &[u8]) -> bool {
        FastLocalTrailer::parse(filter).expect("a filter").may_match(filter, xxph3_64(key))
    }

    #[test]
    fn a_filter_without_bits_has_a_line() {
        let filter = filter_of(100, 0);
        assert_eq!(filter.len(), 64 + ROCKSDB_TRAILER_BYTES);
        assert!((0..100).all(|i| asks(&filter, &vectors::key8(i))));
    }

    #[test]
    fn filters_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_fast_local_bloom.json") else { return };
        for case in vectors::array(&file, "cases") {
            let millibits = vectors::number(case, "millibits_per_key") as u32;
            let n = vectors::number(case, "n");
            let filter = filter_of(n, millibits);
            assert_eq!(filter, vectors::bytes(case, "filter"), "{millibits} millibits, {n} keys");
            assert_eq!(calculate_space(n, millibits), vectors::number(case, "calculate_space"));
            let probes = u64::from(choose_num_probes(millibits));
            assert_eq!(probes, vectors::number(case, "num_probes"));
            if n == 0 {
                continue;
            }
            assert!((0..n).all(|i| asks(&filter, &vectors::key8(i))));
            let positives: Vec<u64> =
                (0..2000).filter(|j| asks(&filter, &vectors::key8(1_000_000 + j))).collect();
            let expected: Vec<u64> =
                vectors::array(case, "probe_positives").iter().filter_map(Value::as_u64).collect();
            assert_eq!(positives, expected);
        }
    }

    #[test]
    fn raw_lines_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_fast_local_bloom.json") else { return };
        for case in vectors::array(&file, "raw") {
            let hash = vectors::hex_u64(case, "hash64");
            let lines = vectors::number(case, "len_bytes") as u32 / LINE_BYTES as u32;
            let offset = line_of(hash, lines) * LINE_BYTES;
            assert_eq!(offset as u64, vectors::number(case, "byte_offset"));
            let probes = vectors::number(case, "num_probes") as u32;
            let line = <[u8; LINE_BYTES]>::try_from(vectors::bytes(case, "line")).expect("64");
            assert!(simd::probe_line(&line, (hash >> 32) as u32, probes));
            let set: u32 = line.iter().map(|byte| byte.count_ones()).sum();
            let mut bits: Vec<u64> =
                vectors::array(case, "bits").iter().filter_map(Value::as_u64).collect();
            bits.sort_unstable();
            bits.dedup();
            assert_eq!(set as usize, bits.len());
        }
    }

    #[test]
    fn figures_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_fast_local_bloom.json") else { return };
        let int = |row: &Value, i: usize| row[i].as_u64().expect("number");
        for row in vectors::array(&file, "choose_num_probes") {
            assert_eq!(u64::from(choose_num_probes(int(row, 0) as u32)), int(row, 1), "{row}");
        }
        for row in vectors::array(&file, "calculate_space") {
            assert_eq!(calculate_space(int(row, 1), int(row, 0) as u32), int(row, 2), "{row}");
        }
        for row in vectors::array(&file, "approximate_num_entries") {
            assert_eq!(approximate_num_entries(int(row, 1), int(row, 0) as u32), int(row, 2));
        }
        for row in vectors::array(&file, "estimated_fp_rate") {
            let (millibits, n) = (int(row, 0) as u32, int(row, 1));
            let body = calculate_space(n, millibits) - ROCKSDB_TRAILER_BYTES as u64;
            let fpr = expected_fpr(8.0 * body as f64 / n as f64, choose_num_probes(millibits));
            // RocksDB adds the chance that two keys share all 64 bits of their hash.
            let collision = n as f64 / 2f64.powi(64);
            let fpr = fpr + collision - fpr * collision;
            let expected = row[2].as_f64().expect("number");
            assert!((fpr - expected).abs() < 1e-9 * expected + 1e-15, "{row}: {fpr}");
        }
    }

    #[test]
    fn golden_bytes_and_digest() {
        assert!(filter_of(0, 10_000).is_empty());
        let one = filter_of(1, 10_000);
        assert_eq!(one.len(), 69);
        assert_eq!(vectors::hex(&one[64..]), "ff00060000");
        // One number for many sizes and settings, recorded when the vectors of RocksDB passed.
        let mut digest = 0u64;
        for millibits in [1_000, 2_500, 5_000, 9_990, 10_000, 15_000, 23_456, 60_000, 100_000] {
            for n in [1, 2, 10, 51, 52, 100, 1_000, 3_000] {
                digest = digest.rotate_left(7) ^ xxph3_64(&filter_of(n, millibits));
            }
        }
        assert_eq!(digest, 0xba47a6fe19fc768b);
    }

    #[test]
    fn shared_probe_bits_answer_like_fresh_ones() {
        // Filters with 1 to 24 probes, some numbers repeated, each asked first once.
        let filters: Vec<Vec<u8>> = (1..=60).map(|i| filter_of(50 * i, 1_700 * i as u32)).collect();
        let (mut yes, mut no) = (0, 0);
        for j in 0..3_000usize {
            let hash = xxph3_64(&vectors::key8(2 * j as u64));
            let mut bits = LineBits::of(hash);
            for turn in 0..4 {
                let filter = &filters[(j * 7 + turn / 2 * 13) % filters.len()];
                let shape = FastLocalTrailer::parse(filter).expect("a filter");
                let expected = shape.may_match(filter, hash);
                assert_eq!(shape.may_match_bits(filter, &mut bits), expected, "{j}, {turn}");
                assert!(shape.may_match_bits(&filter[..40], &mut bits), "a filter cut off");
                *if expected { &mut yes } else { &mut no } += 1;
            }
        }
        assert!(yes > 1_000 && no > 1_000, "{yes} {no}");
    }

    #[test]
    fn bits_per_key_are_sanitised() {
        for (bits, expected) in [
            (f64::NEG_INFINITY, 0),
            (0.0, 0),
            (0.499, 0),
            (0.5, 1_000),
            (1.0, 1_000),
            (1.234, 1_234),
            (9.99, 9_990),
            (10.0, 10_000),
            (99.9999, 100_000),
            (1_234.0, 100_000),
            (f64::INFINITY, 100_000),
            (f64::NAN, 100_000),
        ] {
            assert_eq!(millibits(bits), expected, "{bits}");
        }
    }

    #[test]
    fn space_and_entries_are_inverse() {
        for millibits in [1_000, 4_321, 10_000, 25_000, 100_000] {
            let mut n = 1;
            while n < 1_000_000 {
                let space = calculate_space(n, millibits);
                let entries = approximate_num_entries(space, millibits);
                assert!(entries >= n);
                assert_eq!(calculate_space(entries, millibits), space, "{n} at {millibits}");
                n += 1 + n / 50;
            }
            assert_eq!(calculate_space(u64::MAX, millibits), 0xffff_ffc5);
            let _ = approximate_num_entries(u64::MAX, millibits);
        }
    }

    #[test]
    fn false_positives_stay_in_their_band() {
        for (n, millibits, most) in [
            (1u64, 10_000, 0.001),
            (10, 10_000, 0.005),
            (100, 10_000, 0.018),
            (1_000, 10_000, 0.0145),
            (10_000, 10_000, 0.012),
            (30_000, 5_000, 0.105),
            (30_000, 16_000, 0.002),
        ] {
            let filter = filter_of(n, millibits);
            let hits = (0..20_000).filter(|j| asks(&filter, &vectors::key8(1_000_000 + j))).count();
            let fpr = hits as f64 / 20_000.0;
            assert!(fpr <= most, "{n} keys, {millibits} millibits: {fpr}");
            let bits = 8.0 * filter.len() as f64 / n as f64;
            let expected = expected_fpr(bits, choose_num_probes(millibits));
            assert!(fpr >= expected / 3.0 - 0.001, "{n} keys, {millibits} millibits: {fpr}");
        }
    }
}
