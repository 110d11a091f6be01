//! Integers and byte strings in files of LevelDB and RocksDB: little-endian numbers, and varints.
//!
//! Nothing here panics, and no length from a file decides how much memory is allocated.

/// The `u16` at `offset` of `bytes`.
pub(crate) fn get_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The `u32` at `offset` of `bytes`.
pub(crate) fn get_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The `u64` at `offset` of `bytes`.
pub(crate) fn get_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// A cursor over bytes from a file. Each method takes bytes from the front. After `None` it must
/// not be used again.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the front of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes, taken: 0 }
    }

    /// Bytes taken so far.
    pub(crate) fn position(&self) -> usize {
        self.taken
    }

    /// True if no bytes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        self.taken += count;
        Some(head)
    }

    /// One byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    /// A number of four bytes.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        get_u32(self.bytes(4)?, 0)
    }

    /// A number of eight bytes.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        get_u64(self.bytes(8)?, 0)
    }

    /// A varint of up to 64 bits: seven bits a byte, low bits first. The top bit is set in every
    /// byte but the last.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A varint that must fit 32 bits.
    pub(crate) fn varint32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    /// A varint length, then that many bytes.
    pub(crate) fn length_prefixed(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.bytes(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put_varint;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let mut decoder = Decoder::new(&bytes);
                assert_eq!(decoder.varint(), Some(value));
                assert_eq!(decoder.position(), bytes.len());
                assert_eq!(Decoder::new(&bytes).varint32(), u32::try_from(value).ok());
                assert_eq!(Decoder::new(&bytes[..bytes.len() - 1]).varint(), None);
            }
        }
    }

    #[test]
    fn varints_beyond_64_bits_are_refused() {
        let mut bytes = [0xff; 11];
        for last in [0x7f, 0x02, 0xff] {
            bytes[9] = last;
            assert_eq!(Decoder::new(&bytes).varint(), None, "{last:#x}");
        }
        bytes[9] = 1;
        assert_eq!(Decoder::new(&bytes).varint(), Some(u64::MAX));
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        for bytes in [&b"\x03ab"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"", b"\x80"] {
            assert_eq!(Decoder::new(bytes).length_prefixed(), None);
        }
        assert_eq!(Decoder::new(b"\x02abc").length_prefixed(), Some(&b"ab"[..]));
    }
}
