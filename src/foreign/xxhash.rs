//! xxHash in the three forms that RocksDB checks blocks by: XXH32, XXH64 and XXH3 of 64 bits, each
//! with seed 0.
//!
//! Source: Y. Collet, "xxHash fast digest algorithm", `doc/xxhash_spec.md` of the xxHash
//! repository. Filters hash keys with a preview of XXH3 that differs from it, so they do not share
//! code; they share the secret.

use crate::base::coding::{get_u32, get_u64};
use crate::filter::hash::SECRET;

const P32_1: u32 = 0x9e37_79b1;
const P32_2: u32 = 0x85eb_ca77;
const P32_3: u32 = 0xc2b2_ae3d;
const P32_4: u32 = 0x27d4_eb2f;
const P32_5: u32 = 0x1656_67b1;
const P64_1: u64 = 0x9e37_79b1_85eb_ca87;
const P64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P64_3: u64 = 0x1656_67b1_9e37_79f9;
const P64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const P64_5: u64 = 0x27d4_eb2f_1656_67c5;
const MIX_1: u64 = 0x1656_6791_9e37_79f9;
const MIX_2: u64 = 0x9fb2_1c65_1e98_df25;

/// The `u32` at `offset`, which the length class of the caller keeps inside.
fn r32(bytes: &[u8], offset: usize) -> u32 {
    get_u32(bytes, offset).unwrap_or_default()
}

fn r64(bytes: &[u8], offset: usize) -> u64 {
    get_u64(bytes, offset).unwrap_or_default()
}

/// XXH32.
pub(crate) fn xxh32(bytes: &[u8]) -> u32 {
    let round = |lane: u32, word: u32| {
        lane.wrapping_add(word.wrapping_mul(P32_2)).rotate_left(13).wrapping_mul(P32_1)
    };
    let (stripes, rest) = bytes.as_chunks::<16>();
    let mut hash = P32_5;
    if !stripes.is_empty() {
        let mut lanes = [P32_1.wrapping_add(P32_2), P32_2, 0, P32_1.wrapping_neg()];
        for stripe in stripes {
            for (i, lane) in lanes.iter_mut().enumerate() {
                *lane = round(*lane, r32(stripe, 4 * i));
            }
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        hash = turned.fold(0, u32::wrapping_add);
    }
    hash = hash.wrapping_add(bytes.len() as u32);
    let (words, tail) = rest.as_chunks::<4>();
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(P32_3);
        hash = hash.wrapping_add(word).rotate_left(17).wrapping_mul(P32_4);
    }
    for &byte in tail {
        let byte = u32::from(byte).wrapping_mul(P32_5);
        hash = hash.wrapping_add(byte).rotate_left(11).wrapping_mul(P32_1);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(P32_2);
    hash = (hash ^ hash >> 13).wrapping_mul(P32_3);
    hash ^ hash >> 16
}

/// XXH64.
pub(crate) fn xxh64(bytes: &[u8]) -> u64 {
    let round = |lane: u64, word: u64| {
        lane.wrapping_add(word.wrapping_mul(P64_2)).rotate_left(31).wrapping_mul(P64_1)
    };
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = P64_5;
    if !stripes.is_empty() {
        let mut lanes = [P64_1.wrapping_add(P64_2), P64_2, 0, P64_1.wrapping_neg()];
        for stripe in stripes {
            for (i, lane) in lanes.iter_mut().enumerate() {
                *lane = round(*lane, r64(stripe, 8 * i));
            }
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        hash = turned.fold(0, u64::wrapping_add);
        for lane in lanes {
            hash = (hash ^ round(0, lane)).wrapping_mul(P64_1).wrapping_add(P64_4);
        }
    }
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, mut tail) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(P64_1).wrapping_add(P64_4);
    }
    if let Some((half, after)) = tail.split_first_chunk::<4>() {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(P64_1);
        hash = hash.rotate_left(23).wrapping_mul(P64_2).wrapping_add(P64_3);
        tail = after;
    }
    for &byte in tail {
        hash = (hash ^ u64::from(byte).wrapping_mul(P64_5)).rotate_left(11).wrapping_mul(P64_1);
    }
    xxh64_avalanche(hash)
}

fn xxh64_avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(P64_2);
    hash = (hash ^ hash >> 29).wrapping_mul(P64_3);
    hash ^ hash >> 32
}

/// XXH3 of 64 bits.
pub(crate) fn xxh3_64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => up_to_16(bytes),
        17..=128 => up_to_128(bytes),
        129..=240 => up_to_240(bytes),
        _ => long(bytes),
    }
}

fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 37).wrapping_mul(MIX_1);
    hash ^ hash >> 32
}

/// 128-bit product, folded by xor.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn mix16(bytes: &[u8], offset: usize, secret_offset: usize) -> u64 {
    fold(
        r64(bytes, offset) ^ r64(&SECRET, secret_offset),
        r64(bytes, offset + 8) ^ r64(&SECRET, secret_offset + 8),
    )
}

fn up_to_16(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    match len {
        0 => xxh64_avalanche(r64(&SECRET, 56) ^ r64(&SECRET, 64)),
        1..=3 => {
            let combined = u32::from(bytes[0]) << 16
                | u32::from(bytes[len >> 1]) << 24
                | u32::from(bytes[len - 1])
                | (len as u32) << 8;
            xxh64_avalanche(u64::from(combined ^ r32(&SECRET, 0) ^ r32(&SECRET, 4)))
        }
        4..=8 => {
            let flip = r64(&SECRET, 8) ^ r64(&SECRET, 16);
            let word = u64::from(r32(bytes, len - 4)) + (u64::from(r32(bytes, 0)) << 32);
            let mut hash = word ^ flip;
            hash ^= hash.rotate_left(49) ^ hash.rotate_left(24);
            hash = hash.wrapping_mul(MIX_2);
            hash ^= (hash >> 35).wrapping_add(len as u64);
            hash = hash.wrapping_mul(MIX_2);
            hash ^ hash >> 28
        }
        _ => {
            let low = r64(bytes, 0) ^ r64(&SECRET, 24) ^ r64(&SECRET, 32);
            let high = r64(bytes, len - 8) ^ r64(&SECRET, 40) ^ r64(&SECRET, 48);
            let sum = (len as u64).wrapping_add(low.swap_bytes()).wrapping_add(high);
            avalanche(sum.wrapping_add(fold(low, high)))
        }
    }
}

fn up_to_128(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let mut acc = (len as u64).wrapping_mul(P64_1);
    // 16 bytes from each end at a time.
    for pair in 0..len.div_ceil(32) {
        acc = acc.wrapping_add(mix16(bytes, 16 * pair, 32 * pair));
        acc = acc.wrapping_add(mix16(bytes, len - 16 * (pair + 1), 32 * pair + 16));
    }
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
    // The last block, even a whole one, is left to the rest.
    let (blocks, rest) = bytes.split_at((len - 1) / BLOCK_BYTES * BLOCK_BYTES);
    for block in blocks.chunks_exact(BLOCK_BYTES) {
        for (i, stripe) in block.chunks_exact(STRIPE_BYTES).enumerate() {
            accumulate(&mut lanes, stripe, 8 * i);
        }
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane ^= *lane >> 47;
            *lane ^= r64(&SECRET, 128 + 8 * i);
            *lane = lane.wrapping_mul(u64::from(P32_1));
        }
    }
    let whole = (rest.len() - 1) / STRIPE_BYTES;
    for (i, stripe) in rest.chunks_exact(STRIPE_BYTES).take(whole).enumerate() {
        accumulate(&mut lanes, stripe, 8 * i);
    }
    // The last stripe ends with the input; it may overlap the one before it.
    accumulate(&mut lanes, &bytes[len - STRIPE_BYTES..], 121);
    let mut hash = (len as u64).wrapping_mul(P64_1);
    for i in 0..4 {
        let low = lanes[2 * i] ^ r64(&SECRET, 11 + 16 * i);
        let high = lanes[2 * i + 1] ^ r64(&SECRET, 19 + 16 * i);
        hash = hash.wrapping_add(fold(low, high));
    }
    avalanche(hash)
}

/// Adds one 64-byte stripe. Each lane adds the value of its neighbour.
fn accumulate(lanes: &mut [u64; 8], stripe: &[u8], secret_offset: usize) {
    for i in 0..lanes.len() {
        let value = r64(stripe, 8 * i);
        let keyed = value ^ r64(&SECRET, secret_offset + 8 * i);
        lanes[i ^ 1] = lanes[i ^ 1].wrapping_add(value);
        lanes[i] = lanes[i].wrapping_add((keyed & 0xffff_ffff).wrapping_mul(keyed >> 32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte `j` of an input.
    fn input(len: usize) -> Vec<u8> {
        let byte = |j: u64| {
            let mut x = (7 * 65_536 + j).wrapping_add(0x9e37_79b9_7f4a_7c15);
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (x ^ x >> 31) as u8
        };
        (0..len as u64).map(byte).collect()
    }

    /// Recorded from the reference implementation, version 0.8, as RocksDB has it.
    #[test]
    fn hashes_equal_the_reference_at_every_length() {
        let pinned = [
            (0, 0x02cc_5d05, 0xef46_db37_51d8_e999, 0x2d06_8005_38d3_94c2),
            (3, 0x2fb1_ef34, 0xfc1b_371c_ba39_ecce, 0x6ef2_837b_0586_426d),
            (8, 0x80fe_64a5, 0xd5ae_4fa6_5655_60c4, 0x1af0_89d3_a203_bc3c),
            (16, 0xf6b9_9c16, 0xe8c9_ec74_9a21_f2e0, 0x6bdf_f800_0128_e945),
            (100, 0x84a9_d990, 0x172d_92b7_dc5e_283b, 0x3ff1_f850_6bbe_b13d),
            (200, 0xbb17_6235, 0x0a1b_e7f2_f411_bc12, 0xa1f0_2ba4_f1e9_1446),
            (1024, 0xf3c8_4328, 0xc104_7f96_21bb_1742, 0x7f9e_f887_9074_b646),
            (1025, 0x81a3_e6f7, 0x3eb1_1118_139e_f822, 0xe37e_1e98_4354_f8af),
        ];
        for (len, of32, of64, of_xxh3) in pinned {
            let bytes = input(len);
            assert_eq!((xxh32(&bytes), xxh64(&bytes)), (of32, of64), "{len}");
            assert_eq!(xxh3_64(&bytes), of_xxh3, "{len}");
        }
        let mut all = (0u32, 0u64, 0u64);
        for len in 0..5300 {
            let bytes = input(len);
            all.0 = all.0.rotate_left(5) ^ xxh32(&bytes);
            all.1 = all.1.rotate_left(5) ^ xxh64(&bytes);
            all.2 = all.2.rotate_left(5) ^ xxh3_64(&bytes);
        }
        assert_eq!(all, (0x73a8_0f27, 0x0241_8969_f9a0_2600, 0x1194_53ab_bab6_9a2d));
    }
}
