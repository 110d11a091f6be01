//! The hash functions that filters are made of.
//!
//! Bytes in files depend on three functions, so none may ever change: a changed hash reads every
//! existing filter as a wrong "no".
//!
//! - `xxph3_64`: RocksDB's 64-bit hash (`util/xxph3.h`), the frozen preview of XXH3 in xxHash
//!   0.7.2. It differs from today's XXH3. Filters use seed 0; the seeded forms are left out.
//! - `leveldb_hash`: LevelDB's 32-bit hash (`util/hash.cc`).
//! - `legacy_hash`: RocksDB's older 32-bit hash (`util/hash.cc`). It takes the bytes after the last
//!   whole 4 as signed, LevelDB's as unsigned. They agree unless such a byte is 0x80 or above.
//!
//! A lookup carries one [`KeyHash`] through the tree: the 64-bit hash is computed once per `get`,
//! the others only when a table that needs them is met.

use std::cell::OnceCell;

/// A key and its hashes, computed once per lookup.
#[derive(Clone, Debug)]
pub struct KeyHash<'k> {
    key: &'k [u8],
    xxph3: u64,
    leveldb: OnceCell<u32>,
    legacy: OnceCell<u32>,
}

impl<'k> KeyHash<'k> {
    /// Hashes `key` (a user key, without sequence and kind) with XXPH3.
    #[inline]
    #[must_use]
    pub fn new(key: &'k [u8]) -> Self {
        KeyHash { key, xxph3: xxph3_64(key), leveldb: OnceCell::new(), legacy: OnceCell::new() }
    }

    /// The hashes of a key of which only one hash is known, where the key itself is not needed.
    /// `hash` is the one that the filter's encoding uses, widened if it has 32 bits; the other two
    /// are wrong.
    pub fn of_hash(hash: u64) -> Self {
        let narrow = OnceCell::from(hash as u32);
        KeyHash { key: &[], xxph3: hash, leveldb: narrow.clone(), legacy: narrow }
    }

    /// The key itself, which users' policies are asked with.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'k [u8] {
        self.key
    }

    /// `xxph3_64` of the key.
    #[inline]
    #[must_use]
    pub fn xxph3(&self) -> u64 {
        self.xxph3
    }

    /// `leveldb_hash` of the key, computed at the first call.
    #[inline]
    #[must_use]
    pub fn leveldb(&self) -> u32 {
        *self.leveldb.get_or_init(|| leveldb_hash(self.key))
    }

    /// `legacy_hash` of the key, computed at the first call.
    #[inline]
    #[must_use]
    pub fn legacy(&self) -> u32 {
        *self.legacy.get_or_init(|| legacy_hash(self.key))
    }
}

/// LevelDB's 32-bit hash with the seed of its Bloom filter.
#[must_use]
pub fn leveldb_hash(bytes: &[u8]) -> u32 {
    hash32(bytes, BLOOM_SEED, u32::from)
}

/// The 32-bit hash of RocksDB's older Bloom filter: `leveldb_hash` with the bytes after the
/// last whole 4 taken as signed.
///
/// ```
/// use siftdb_filter::{legacy_hash, leveldb_hash};
/// assert_eq!(legacy_hash(b"plain"), leveldb_hash(b"plain"));
/// assert_ne!(legacy_hash(b"\xff"), leveldb_hash(b"\xff"));
/// ```
#[must_use]
pub fn legacy_hash(bytes: &[u8]) -> u32 {
    hash32(bytes, BLOOM_SEED, |byte| i32::from(byte as i8) as u32)
}

const BLOOM_SEED: u32 = 0xbc9f_1d34;

/// `widen` makes a word of each byte after the last whole 4.
#[inline]
fn hash32(bytes: &[u8], seed: u32, widen: impl Fn(u8) -> u32) -> u32 {
    const M: u32 = 0xc6a4_a793;
    let mut hash = seed ^ (bytes.len() as u32).wrapping_mul(M);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(M);
        hash ^= hash >> 16;
    }
    if !tail.is_empty() {
        for (i, &byte) in tail.iter().enumerate() {
            hash = hash.wrapping_add(widen(byte) << (8 * i));
        }
        hash = hash.wrapping_mul(M);
        hash ^= hash >> 24;
    }
    hash
}

/// XXH3's 192-byte secret, which its preview has too.
#[rustfmt::skip]
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

const P32_1: u32 = 0x9e37_79b1;
const P32_2: u32 = 0x85eb_ca77;
const P32_3: u32 = 0xc2b2_ae3d;
const P64_1: u64 = 0x9e37_79b1_85eb_ca87;
const P64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P64_3: u64 = 0x1656_67b1_9e37_79f9;
const P64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const P64_5: u64 = 0x27d4_eb2f_1656_67c5;

/// RocksDB's 64-bit hash of keys: XXPH3 with seed 0.
///
/// ```
/// assert_eq!(siftdb_filter::xxph3_64(b""), 0x5342_c301_0fe1_dd04);
/// ```
#[inline]
#[must_use]
pub fn xxph3_64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => up_to_16(bytes),
        17..=128 => up_to_128(bytes),
        129..=240 => up_to_240(bytes),
        _ => long(bytes),
    }
}

/// The `u32` at `offset`, which the length class of the caller keeps inside.
#[inline]
fn r32(bytes: &[u8], offset: usize) -> u32 {
    bytes[offset..offset + 4].try_into().map_or(0, u32::from_le_bytes)
}

#[inline]
fn r64(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..offset + 8].try_into().map_or(0, u64::from_le_bytes)
}

/// 128-bit product, folded by xor.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn avalanche(mut hash: u64) -> u64 {
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(P64_3);
    hash ^ hash >> 32
}

#[inline]
fn mix16(bytes: &[u8], offset: usize, secret_offset: usize) -> u64 {
    fold(
        r64(bytes, offset) ^ r64(&SECRET, secret_offset),
        r64(bytes, offset + 8) ^ r64(&SECRET, secret_offset + 8),
    )
}

#[inline]
fn up_to_16(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    match len {
        // RocksDB's own change: the preview returns 0 for the empty key.
        0 => fold(r64(&SECRET, 0), P64_2),
        1..=3 => {
            let combined = u32::from(bytes[0])
                | u32::from(bytes[len >> 1]) << 8
                | u32::from(bytes[len - 1]) << 16
                | (len as u32) << 24;
            avalanche(u64::from(combined ^ r32(&SECRET, 0)).wrapping_mul(P64_1))
        }
        4..=8 => {
            let word = u64::from(r32(bytes, 0)) + (u64::from(r32(bytes, len - 4)) << 32);
            let keyed = word ^ r64(&SECRET, 0);
            let mixed =
                (len as u64).wrapping_add((keyed ^ keyed >> 51).wrapping_mul(u64::from(P32_1)));
            avalanche((mixed ^ mixed >> 47).wrapping_mul(P64_2))
        }
        _ => {
            let low = r64(bytes, 0) ^ r64(&SECRET, 0);
            let high = r64(bytes, len - 8) ^ r64(&SECRET, 8);
            let sum = (len as u64).wrapping_add(low).wrapping_add(high);
            avalanche(sum.wrapping_add(fold(low, high)))
        }
    }
}

#[inline]
fn up_to_128(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let mut acc = (len as u64).wrapping_mul(P64_1);
    // From the middle outwards, 16 bytes from each end at a time.
    for pair in (1..=3).rev() {
        if len > 32 * pair {
            acc = acc.wrapping_add(mix16(bytes, 16 * pair, 32 * pair)).wrapping_add(mix16(
                bytes,
                len - 16 * (pair + 1),
                32 * pair + 16,
            ));
        }
    }
    acc = acc.wrapping_add(mix16(bytes, 0, 0)).wrapping_add(mix16(bytes, len - 16, 16));
    avalanche(acc)
}

fn up_to_240(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let mut acc = (len as u64).wrapping_mul(P64_1);
    for i in 0..8 {
        acc = acc.wrapping_add(mix16(bytes, 16 * i, 16 * i));
    }
    acc = avalanche(acc);
    for i in 8..len / 16 {
        acc = acc.wrapping_add(mix16(bytes, 16 * i, 16 * (i - 8) + 3));
    }
    avalanche(acc.wrapping_add(mix16(bytes, len - 16, 119)))
}

const STRIPE_BYTES: usize = 64;
const BLOCK_BYTES: usize = 1024;

fn long(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let mut lanes =
        [u64::from(P32_3), P64_1, P64_2, P64_3, P64_4, u64::from(P32_2), P64_5, u64::from(P32_1)];
    // A key of whole blocks has no rest. Final XXH3 keeps the last block for the rest instead.
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        for (i, stripe) in block.chunks_exact(STRIPE_BYTES).enumerate() {
            accumulate(&mut lanes, stripe, 8 * i);
        }
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane ^= *lane >> 47;
            *lane ^= r64(&SECRET, 128 + 8 * i);
            *lane = lane.wrapping_mul(u64::from(P32_1));
        }
    }
    for (i, stripe) in rest.chunks_exact(STRIPE_BYTES).enumerate() {
        accumulate(&mut lanes, stripe, 8 * i);
    }
    if !len.is_multiple_of(STRIPE_BYTES) {
        // The last stripe overlaps the one before it, under a shifted part of the secret.
        accumulate(&mut lanes, &bytes[len - STRIPE_BYTES..], 121);
    }
    let mut hash = (len as u64).wrapping_mul(P64_1);
    for i in 0..4 {
        let low = lanes[2 * i] ^ r64(&SECRET, 11 + 16 * i);
        let high = lanes[2 * i + 1] ^ r64(&SECRET, 19 + 16 * i);
        hash = hash.wrapping_add(fold(low, high));
    }
    avalanche(hash)
}

/// Adds one 64-byte stripe. Each lane adds its own value; final XXH3 adds that of its neighbour.
#[inline]
fn accumulate(lanes: &mut [u64; 8], stripe: &[u8], secret_offset: usize) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        let value = r64(stripe, 8 * i);
        let keyed = value ^ r64(&SECRET, secret_offset + 8 * i);
        let product = (keyed & 0xffff_ffff).wrapping_mul(keyed >> 32);
        *lane = lane.wrapping_add(value).wrapping_add(product);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::vectors;

    /// Byte `j` of key `i` of length `len`, as in the golden vectors.
    fn splitmix_key(i: u64, len: usize) -> Vec<u8> {
        (0..len as u64)
            .map(|j| {
                let mut x = (i * 65_536 + j).wrapping_add(0x9e37_79b9_7f4a_7c15);
                x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                (x ^ x >> 31) as u8
            })
            .collect()
    }

    #[test]
    fn xxph3_equals_rocksdb_at_every_length() {
        let Some(file) = vectors::load("rocksdb_hash64.json") else { return };
        let entries = vectors::array(&file, "entries");
        assert!(entries.len() > 300);
        for entry in entries {
            let key = vectors::bytes(entry, "key");
            assert_eq!(xxph3_64(&key), vectors::hex_u64(entry, "hash64"), "length {}", key.len());
        }
    }

    #[test]
    fn leveldb_hash_equals_leveldb() {
        let Some(file) = vectors::load("leveldb_hash.json") else { return };
        for entry in vectors::array(&file, "entries") {
            let key = vectors::bytes(entry, "key");
            assert_eq!(u64::from(leveldb_hash(&key)), vectors::number(entry, "bloom_hash"));
        }
        for entry in vectors::array(&file, "other_seeds") {
            let key = vectors::bytes(entry, "key");
            let seed = vectors::number(entry, "seed") as u32;
            assert_eq!(u64::from(hash32(&key, seed, u32::from)), vectors::number(entry, "hash"));
        }
    }

    #[test]
    fn legacy_hash_equals_rocksdb() {
        let Some(file) = vectors::load("rocksdb_legacy_bloom.json") else { return };
        let mut differ = 0;
        for entry in vectors::array(&file, "bloom_hash") {
            let key = vectors::bytes(entry, "key");
            assert_eq!(u64::from(legacy_hash(&key)), vectors::number(entry, "bloom_hash"));
            differ += u32::from(legacy_hash(&key) != leveldb_hash(&key));
        }
        assert!(differ > 20, "{differ}");
    }

    #[test]
    fn tail_sign_separates_the_32_bit_hashes() {
        for len in 0..24 {
            for at in 0..len {
                for byte in [0x7f, 0x80, 0xff] {
                    let mut key = vec![b'k'; len];
                    key[at] = byte;
                    let tail = byte >= 0x80 && at >= len / 4 * 4;
                    assert_eq!(legacy_hash(&key) != leveldb_hash(&key), tail, "{key:?}");
                }
            }
        }
        assert_eq!((legacy_hash(b"\xc0"), leveldb_hash(b"\xc0")), (987_839_007, 3_750_284_794));
    }

    #[test]
    fn hash_digests_are_pinned() {
        // One number for 5300 lengths, recorded when the vectors of RocksDB and LevelDB passed.
        let mut wide = 0u64;
        let mut narrow = 0u32;
        let mut legacy = 0u32;
        for len in 0..5300 {
            let key = splitmix_key(7, len);
            wide = wide.rotate_left(5) ^ xxph3_64(&key);
            narrow = narrow.rotate_left(5) ^ leveldb_hash(&key);
            legacy = legacy.rotate_left(5) ^ legacy_hash(&key);
        }
        assert_eq!((wide, narrow, legacy), (0x895b59e323383d17, 0x919c433b, 0x633e2481));
    }

    #[test]
    fn single_hashes_are_pinned() {
        assert_eq!(xxph3_64(b""), 0x5342_c301_0fe1_dd04);
        assert_eq!(leveldb_hash(b""), 3_164_544_308);
    }

    #[test]
    fn a_lookup_key_computes_every_hash() {
        let hash = KeyHash::new(b"k\xff");
        assert_eq!((hash.key(), hash.xxph3()), (&b"k\xff"[..], xxph3_64(b"k\xff")));
        for _ in 0..2 {
            assert_eq!(hash.leveldb(), leveldb_hash(b"k\xff"));
            assert_eq!(hash.legacy(), legacy_hash(b"k\xff"));
        }
    }
}
