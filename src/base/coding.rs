//! Encodings of integers and byte strings in files: little-endian, with LevelDB's varints.
//!
//! Writers append to a `Vec<u8>`; readers use a [`Decoder`], which returns `None` at the end of its
//! bytes, so that the caller can report file and offset. Nothing here panics, and no length from a
//! file decides how much memory is allocated.

/// Longest encoding of a `u64` as varint.
pub(crate) const VARINT64_BYTES_MAX: usize = 10;

/// Appends a `u32`, 4 bytes.
pub(crate) fn put_u32(dst: &mut Vec<u8>, value: u32) {
    dst.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u64`, 8 bytes.
pub(crate) fn put_u64(dst: &mut Vec<u8>, value: u64) {
    dst.extend_from_slice(&value.to_le_bytes());
}

/// Appends a varint of 1 to 10 bytes: seven bits a byte, low bits first; the top bit is set in
/// every byte but the last.
pub(crate) fn put_varint(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push(value as u8 | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}

/// Appends the length as varint, then the bytes.
#[inline]
pub(crate) fn put_length_prefixed(dst: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(dst, bytes.len() as u64);
    dst.extend_from_slice(bytes);
}

/// Reads a varint at the front of `src`; returns it with the number of bytes it took.
#[inline]
pub(crate) fn get_varint(src: &[u8]) -> Option<(u64, usize)> {
    let first = *src.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    if let Some(word) = src.first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            // `ends ^ (ends - 1)` has all bits up to the lowest set bit of `ends`, which is the top
            // bit of the last byte of the varint.
            let bytes = word & (ends ^ (ends - 1));
            return Some((join_sevens(bytes), ends.trailing_zeros() as usize / 8 + 1));
        }
    }
    get_varint_bytewise(src)
}

/// The low seven bits of each byte, moved together.
#[inline]
fn join_sevens(bytes: u64) -> u64 {
    let bits = bytes & 0x7f7f_7f7f_7f7f_7f7f;
    let bits = (bits & 0x007f_007f_007f_007f) | (bits & 0x7f00_7f00_7f00_7f00) >> 1;
    let bits = (bits & 0x0000_3fff_0000_3fff) | (bits & 0x3fff_0000_3fff_0000) >> 2;
    (bits & 0x0fff_ffff) | (bits & 0x0fff_ffff_0000_0000) >> 4
}

/// The slow path: near the end of a buffer, and for varints of more than eight bytes.
fn get_varint_bytewise(src: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, &byte) in src.iter().enumerate().take(VARINT64_BYTES_MAX) {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * i as u32;
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// The `u16` at `offset` of `src`.
#[inline]
pub(crate) fn get_u16(src: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*src.get(offset..)?.first_chunk()?))
}

/// The `u32` at `offset` of `src`.
#[inline]
pub(crate) fn get_u32(src: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*src.get(offset..)?.first_chunk()?))
}

/// The `u64` at `offset` of `src`.
#[inline]
pub(crate) fn get_u64(src: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*src.get(offset..)?.first_chunk()?))
}

/// A cursor over bytes from a file. Each method takes bytes from the front, or returns `None` and
/// takes nothing.
#[derive(Clone, Debug)]
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

    /// The bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True when nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        self.taken += count;
        Some(head)
    }

    /// One byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    /// A `u16`, 2 bytes.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    /// A `u32`, 4 bytes.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// A `u64`, 8 bytes.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A varint of up to 64 bits.
    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let (value, used) = get_varint(self.rest)?;
        self.bytes(used)?;
        Some(value)
    }

    /// A varint that must fit 32 bits.
    #[inline]
    pub(crate) fn varint32(&mut self) -> Option<u32> {
        let mut ahead = self.clone();
        let value = u32::try_from(ahead.varint()?).ok()?;
        *self = ahead;
        Some(value)
    }

    /// A varint length, then that many bytes.
    pub(crate) fn length_prefixed(&mut self) -> Option<&'a [u8]> {
        let mut ahead = self.clone();
        let length = usize::try_from(ahead.varint()?).ok()?;
        let bytes = ahead.bytes(length)?;
        *self = ahead;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                assert_eq!(get_varint(&bytes), Some((value, bytes.len())));
                for behind in [[0x80; 12], [0x7f; 12]] {
                    let longer = [&bytes[..], &behind].concat();
                    assert_eq!(get_varint(&longer), Some((value, bytes.len())));
                }
                for cut in 0..bytes.len() {
                    assert_eq!(get_varint(&bytes[..cut]), None, "{value} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn varint_beyond_64_bits_is_refused() {
        assert_eq!(get_varint(&[0xff; 11]), None);
        let mut bytes = vec![0xff; 9];
        bytes.push(2);
        assert_eq!(get_varint(&bytes), None);
    }

    #[test]
    fn a_failed_decode_consumes_nothing() {
        let mut decoder = Decoder::new(&[5, 1, 2]);
        assert_eq!(decoder.length_prefixed(), None);
        assert_eq!(decoder.position(), 0);
        assert_eq!(decoder.u32(), None);
        assert_eq!(decoder.u8(), Some(5));
        assert_eq!(decoder.u16(), Some(0x0201));
        assert!(decoder.is_empty());
    }
}
