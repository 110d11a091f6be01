//! The checksums of LevelDB's and RocksDB's files: CRC-32C, and xxHash in three forms.
//!
//! xxHash is the crate `twox-hash`. CRC-32C uses Castagnoli's polynomial.

use twox_hash::{XxHash3_64, XxHash32, XxHash64};

/// The factor of the last byte in checksums of XXH3. RocksDB computes XXH3 without that byte.
const LAST_BYTE_FACTOR: u32 = 0x6b90_83d9;

/// The checksum after each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ChecksumKind {
    None = 0,
    Crc32c = 1,
    XxHash32 = 2,
    XxHash64 = 3,
    Xxh3 = 4,
}

impl ChecksumKind {
    /// The kind of a stored byte.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        use ChecksumKind::{Crc32c, None, XxHash32, XxHash64, Xxh3};
        [None, Crc32c, XxHash32, XxHash64, Xxh3].into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ChecksumKind::None => "none",
            ChecksumKind::Crc32c => "CRC-32C",
            ChecksumKind::XxHash32 => "xxHash",
            ChecksumKind::XxHash64 => "xxHash64",
            ChecksumKind::Xxh3 => "XXH3",
        }
    }

    /// The checksum of `bytes`, with seed 0. RocksDB keeps the lower half of longer ones.
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        match self {
            ChecksumKind::None => 0,
            ChecksumKind::Crc32c => masked_crc32c(&[bytes]),
            ChecksumKind::XxHash32 => XxHash32::oneshot(0, bytes),
            ChecksumKind::XxHash64 => XxHash64::oneshot(0, bytes) as u32,
            ChecksumKind::Xxh3 => bytes.split_last().map_or(0, |(&last, front)| {
                XxHash3_64::oneshot(front) as u32 ^ u32::from(last).wrapping_mul(LAST_BYTE_FACTOR)
            }),
        }
    }
}

/// The number that format version 6 adds to the checksum of a block at `offset`; 0 without a
/// `base`.
pub(crate) fn checksum_context(base: u32, offset: u64) -> u32 {
    match base {
        0 => 0,
        base => base ^ (offset as u32).wrapping_add((offset >> 32) as u32),
    }
}

/// The polynomial of CRC-32C, bits in reverse order.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// For each byte, its change of the checksum.
static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// The CRC-32C of `parts`, one after the other.
fn crc32c(parts: &[&[u8]]) -> u32 {
    let step = |crc: u32, &byte: &u8| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize];
    !parts.iter().copied().flatten().fold(!0, step)
}

/// The checksum as LevelDB stores it. The CRC of bytes that contain their own CRC is weak, so it is
/// rotated, and a constant is added.
pub(crate) fn masked_crc32c(parts: &[&[u8]]) -> u32 {
    crc32c(parts).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of checksums, and RFC 3720, appendix B.4.
    #[test]
    fn crc32c_of_published_examples() {
        assert_eq!(crc32c(&[b"12345", b"6789"]), 0xe306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 32]]), 0x62a8_ab43);
        assert_eq!(crc32c(&[]), 0);
    }

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
        let hashes = |bytes: &[u8]| {
            (XxHash32::oneshot(0, bytes), XxHash64::oneshot(0, bytes), XxHash3_64::oneshot(bytes))
        };
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
            assert_eq!(hashes(&input(len)), (of32, of64, of_xxh3), "{len}");
        }
        let mut all = (0u32, 0u64, 0u64);
        for len in 0..5300 {
            let (of32, of64, of_xxh3) = hashes(&input(len));
            all.0 = all.0.rotate_left(5) ^ of32;
            all.1 = all.1.rotate_left(5) ^ of64;
            all.2 = all.2.rotate_left(5) ^ of_xxh3;
        }
        assert_eq!(all, (0x73a8_0f27, 0x0241_8969_f9a0_2600, 0x1194_53ab_bab6_9a2d));
    }
}
