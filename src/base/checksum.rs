//! Masked CRC-32, the checksum of every block, record and small file.
//!
//! A checksum is stored *masked*, as in LevelDB: rotated and shifted by a constant, so that a CRC
//! taken over bytes that themselves hold a CRC is not degenerate. The polynomial is that of
//! `crc32fast` (IEEE), not LevelDB's CRC-32C: only the contents of filters are shared with it.

const MASK_DELTA: u32 = 0xa282_ead8;

/// A checksum over several pieces, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Starts with no bytes.
    pub(crate) fn new() -> Self {
        Checksum::default()
    }

    #[must_use]
    pub(crate) fn with(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    /// The masked checksum.
    #[must_use]
    pub(crate) fn masked(self) -> u32 {
        let crc = self.0.finalize();
        crc.rotate_right(15).wrapping_add(MASK_DELTA)
    }
}

/// The masked checksum of one piece.
pub(crate) fn masked(bytes: &[u8]) -> u32 {
    Checksum::new().with(bytes).masked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_pieces_equal_the_whole() {
        // CRC-32 (IEEE) of "123456789" is 0xcbf43926, the check value of the polynomial.
        let expected = 0xcbf4_3926u32.rotate_right(15).wrapping_add(MASK_DELTA);
        assert_eq!(masked(b"123456789"), expected);
        assert_eq!(Checksum::new().with(b"1234").with(b"56789").masked(), expected);
    }

    #[test]
    fn zero_bytes_have_a_nonzero_checksum() {
        assert_ne!(masked(&[0; 7]), 0);
        assert_ne!(masked(&[]), 0);
    }
}
