//! CRC-32C, Castagnoli's polynomial, which LevelDB and RocksDB check their files by.

/// The polynomial, bits in reverse order.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Of each byte, what it does to the checksum.
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

/// The checksum of `parts`, one after the other.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let step = |crc: u32, &byte: &u8| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize];
    !parts.iter().copied().flatten().fold(!0, step)
}

/// The checksum as LevelDB stores it. A checksum of bytes that hold a checksum is weak, so it is
/// turned and moved.
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
}
