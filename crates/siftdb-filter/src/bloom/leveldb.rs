//! LevelDB's Bloom filter: one array of bits, double hashing with a 32-bit hash.
//!
//! Bytes: `body ‖ k`, where the body has `max(64, keys * bits_per_key)` bits rounded up to bytes
//! and `k` is one byte. Probe `i` of a key reads bit `(h + i * rotate_right(h, 17)) mod bits`. A
//! reader takes `k` from the filter, never from the options.
//!
//! Source: LevelDB's `util/bloom.cc`; double hashing is from Kirsch and Mitzenmacher, "Less
//! Hashing, Same Performance", 2006. The bytes equal LevelDB's for the same keys, repeats included.

/// The persisted name, in every layout.
pub const NAME: &str = "leveldb.BuiltinBloomFilter2";

/// Larger numbers of probes are reserved for other encodings and mean "may match".
const PROBES_MAX: u32 = 30;

/// Probes per key: about `bits_per_key * ln 2`.
#[must_use]
pub fn probes(bits_per_key: u32) -> u32 {
    ((f64::from(bits_per_key) * 0.69) as u32).clamp(1, PROBES_MAX)
}

/// The number of keys that a filter of at most `filter_bytes` has room for.
#[must_use]
pub fn keys_for_bytes(filter_bytes: usize, bits_per_key: u32) -> usize {
    filter_bytes.saturating_sub(1).saturating_mul(8) / (bits_per_key.max(1) as usize)
}

/// Appends the filter of the keys with these 32-bit hashes.
pub fn create_filter(hashes: &[u64], bits_per_key: u32, dst: &mut Vec<u8>) {
    let probes = probes(bits_per_key);
    let bits = hashes.len().saturating_mul(bits_per_key as usize).max(64);
    let start = dst.len();
    let body_bytes = bits.div_ceil(8);
    dst.resize(start + body_bytes, 0);
    let bits = body_bytes as u64 * 8;
    let body = &mut dst[start..];
    for &hash in hashes {
        for position in positions(hash as u32, probes, bits) {
            body[position / 8] |= 1 << (position % 8);
        }
    }
    dst.push(probes as u8);
}

/// False only if no key with this hash was among those that `filter` was built from.
#[inline]
#[must_use]
pub fn may_match(filter: &[u8], hash: u32) -> bool {
    // LevelDB writes "no keys" as a filter of fewer than 2 bytes.
    let Some((&probes, body @ [_, ..])) = filter.split_last() else { return false };
    let probes = u32::from(probes);
    if probes > PROBES_MAX {
        return true;
    }
    positions(hash, probes, body.len() as u64 * 8)
        .all(|position| body.get(position / 8).is_none_or(|byte| byte & (1 << (position % 8)) != 0))
}

/// The bits of `hash` in a filter of this length.
#[must_use]
pub fn probed(filter_bytes: u64, bits_per_key: u32, hash: u32) -> Vec<usize> {
    let bits = 8 * filter_bytes.saturating_sub(1).max(1);
    positions(hash, probes(bits_per_key), bits).collect()
}

/// The bits of one key. A 32-bit hash reaches the first 512 MiB of a larger body.
#[inline]
fn positions(mut hash: u32, probes: u32, bits: u64) -> impl Iterator<Item = usize> {
    let delta = hash.rotate_right(17);
    let bits = u32::try_from(bits).ok();
    (0..probes).map(move |_| {
        let position = bits.map_or(hash, |bits| hash % bits);
        hash = hash.wrapping_add(delta);
        position as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::leveldb_hash;
    use crate::testing::vectors;

    fn filter_of<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>, bits_per_key: u32) -> Vec<u8> {
        let hashes: Vec<u64> =
            keys.into_iter().map(|key| leveldb_hash(key.as_ref()).into()).collect();
        let mut filter = Vec::new();
        create_filter(&hashes, bits_per_key, &mut filter);
        filter
    }

    fn asks(filter: &[u8], key: &[u8]) -> bool {
        may_match(filter, leveldb_hash(key))
    }

    #[test]
    fn filters_equal_those_of_leveldb() {
        let Some(file) = vectors::load("leveldb_bloom.json") else { return };
        for case in vectors::array(&file, "cases") {
            let bits_per_key = vectors::number(case, "bits_per_key") as u32;
            let n = vectors::number(case, "n");
            let filter = filter_of((0..n).map(vectors::key8), bits_per_key);
            assert_eq!(filter, vectors::bytes(case, "filter"), "{bits_per_key} bits, {n} keys");
            assert!((0..n).all(|i| asks(&filter, &vectors::key8(i))));
            let positives: Vec<u64> =
                (0..2000).filter(|j| asks(&filter, &vectors::key8(1_000_000 + j))).collect();
            let expected: Vec<u64> = vectors::array(case, "probe_positives")
                .iter()
                .filter_map(serde_json::Value::as_u64)
                .collect();
            assert_eq!(positives, expected);
        }
    }

    #[test]
    fn sizes_and_edge_cases_equal_leveldb() {
        let Some(file) = vectors::load("leveldb_bloom.json") else { return };
        for case in vectors::array(&file, "k_for_bits_per_key") {
            let bits_per_key = vectors::number(case, "bits_per_key") as u32;
            assert_eq!(u64::from(probes(bits_per_key)), vectors::number(case, "k"));
            let filter = filter_of([b"key"], bits_per_key);
            assert_eq!(filter.len() as u64, vectors::number(case, "len_for_1_key"));
        }
        let append = &file["append_to_existing"];
        let mut dst = vectors::bytes(append, "initial_dst");
        create_filter(&[b"hello", b"world"].map(|key| leveldb_hash(key).into()), 10, &mut dst);
        assert_eq!(dst, vectors::bytes(append, "dst"));
        let repeats = filter_of([b"dup"; 20], 10);
        assert_eq!(repeats, vectors::bytes(&file["duplicates"], "filter"));
        for case in vectors::array(&file, "reader_edge") {
            let filter = vectors::bytes(case, "filter");
            let expected = case["may_match"].as_bool().expect("bool");
            assert_eq!(asks(&filter, &vectors::bytes(case, "key")), expected, "{case}");
        }
    }

    #[test]
    fn golden_bytes() {
        let filter = filter_of(["hello", "world"], 10);
        assert_eq!(vectors::hex(&filter), "114000414410401006");
        assert_eq!(vectors::hex(&filter_of([b""; 0], 10)), "000000000000000006");
        let repeats = filter_of([b"dup"; 20], 10);
        assert_eq!(vectors::hex(&repeats), "0000000000000000008000800080008000800080000000000006");
        assert!(!asks(&filter, b"x") && !asks(&filter, b"foo"));
    }

    #[test]
    fn degenerate_filters_match_like_leveldb() {
        assert!(!asks(&[], b"key") && !asks(&[6], b"key"));
        for k in [0, 31, 0x80, 0xff] {
            assert!(asks(&[0, 0, 0, 0, 0, 0, 0, 0, k], b"key"), "k = {k}");
        }
        for k in 1..=30 {
            assert!(!asks(&[0, 0, 0, k], b"key"), "k = {k}");
            assert!(asks(&[0xff, 0xff, 0xff, k], b"key"), "k = {k}");
        }
    }

    #[test]
    fn false_positives_stay_in_their_band() {
        for (n, bits_per_key, most) in [
            (1, 10, 0.01),
            (10, 10, 0.025),
            (100, 10, 0.02),
            (10_000, 10, 0.0125),
            (10_000, 16, 0.002),
        ] {
            let filter = filter_of((0..n).map(|i: u32| i.to_le_bytes()), bits_per_key);
            assert!((0..n).all(|i| asks(&filter, &i.to_le_bytes())));
            let hits = (0..10_000u32)
                .filter(|i| asks(&filter, &(1_000_000_000 + i).to_le_bytes()))
                .count();
            assert!(hits as f64 / 10_000.0 <= most, "{n} keys, {bits_per_key} bits: {hits}");
        }
    }
}
