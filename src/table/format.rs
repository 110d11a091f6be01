//! The fixed pieces of the SST format: block handles, block trailers, the footer.
//!
//! ```text
//! handle  := offset: varint  size: varint                  size without the block's trailer
//! trailer := type: u8 (0 raw, 1 Snappy)  crc: u32          5 bytes behind every block
//! footer  := metaindex offset, size, index offset, size: 4 x u64  table id: u64
//!            crc: u32  version: u32  magic: u64            56 bytes at the end of the file
//! ```
//!
//! The trailer's masked CRC-32 covers the block as stored, its type, the table id and the block's
//! offset, so that a sound block of another table or place does not pass. The footer's covers the
//! footer without the CRC itself; every version must keep to that, since a version is believed
//! only if the checksum holds. Nothing here reads or writes files.

use crate::checksum::Checksum;
use crate::coding::{Decoder, get_u32, get_u64, put_u32, put_u64, put_varint};
use crate::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Bytes behind every block: its type and its checksum.
pub const BLOCK_TRAILER_BYTES: usize = 5;

/// Largest block, stored or decompressed: one entry at the limits of key and value, and room for
/// the structure around it. Whoever needs a larger index or filter has to make smaller tables.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX + (64 << 10);

/// Size of the footer.
pub const FOOTER_BYTES: usize = 56;

/// Last eight bytes of every table: "siftdbST" in ASCII.
pub const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"siftdbST");

/// The version of the table format that this module reads and writes.
pub const TABLE_VERSION: u32 = 1;

/// Metaindex name of the properties block.
pub const PROPERTIES_NAME: &str = "siftdb.properties";

/// Metaindex name reserved for a block of range tombstones. A table that has one is refused.
pub const RANGE_DELETES_NAME: &str = "siftdb.rangedel";

/// Where a block stands in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHandle {
    /// First byte of the block.
    pub offset: u64,
    /// Its length without the trailer.
    pub size: u64,
}

impl BlockHandle {
    /// Appends the handle.
    pub fn encode(&self, dst: &mut Vec<u8>) {
        put_varint(dst, self.offset);
        put_varint(dst, self.size);
    }

    /// The handle that fills `bytes` exactly.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let handle = BlockHandle { offset: decoder.varint()?, size: decoder.varint()? };
        decoder.is_empty().then_some(handle)
    }

    /// The first byte behind the block's trailer; `None` where no file can be that long.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.size)?.checked_add(BLOCK_TRAILER_BYTES as u64)
    }

    /// Whether the block, trailer included, lies in the first `limit` bytes and is of a size that
    /// this version writes. Asked before memory is reserved for it.
    #[must_use]
    pub fn lies_within(&self, limit: u64) -> bool {
        self.size <= BLOCK_BYTES_MAX as u64 && self.end().is_some_and(|end| end <= limit)
    }
}

/// How the contents of a block are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    None = 0,
    /// Compressed by Snappy, without its framing.
    Snappy = 1,
}

impl Compression {
    /// The compression of a stored type byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Compression::None),
            1 => Some(Compression::Snappy),
            _ => None,
        }
    }

    /// Its name in properties.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Snappy => "snappy",
        }
    }
}

fn block_checksum(stored: &[u8], block_type: u8, table_id: u64, offset: u64) -> u32 {
    let mut place = [0; 17];
    place[0] = block_type;
    place[1..9].copy_from_slice(&table_id.to_le_bytes());
    place[9..].copy_from_slice(&offset.to_le_bytes());
    Checksum::new().with(stored).with(&place).masked()
}

/// The trailer of a block whose stored contents are `stored`.
#[must_use]
pub fn block_trailer(
    stored: &[u8],
    compression: Compression,
    table_id: u64,
    offset: u64,
) -> [u8; BLOCK_TRAILER_BYTES] {
    let crc = block_checksum(stored, compression as u8, table_id, offset).to_le_bytes();
    [compression as u8, crc[0], crc[1], crc[2], crc[3]]
}

/// Splits a block as read from `offset` into stored contents and compression, once its checksum
/// holds. The error says what is wrong.
pub fn check_block(
    stored_with_trailer: &[u8],
    table_id: u64,
    offset: u64,
) -> Result<(&[u8], Compression), String> {
    let Some((stored, trailer)) = stored_with_trailer.split_last_chunk::<BLOCK_TRAILER_BYTES>()
    else {
        return Err("block shorter than its trailer".into());
    };
    check_parts(stored, *trailer, table_id, offset).map(|compression| (stored, compression))
}

/// [`check_block`] of a block whose trailer was read by itself.
pub fn check_parts(
    stored: &[u8],
    trailer: [u8; BLOCK_TRAILER_BYTES],
    table_id: u64,
    offset: u64,
) -> Result<Compression, String> {
    let [block_type, crc @ ..] = trailer;
    let expected = u32::from_le_bytes(crc);
    let found = block_checksum(stored, block_type, table_id, offset);
    if found != expected {
        return Err(format!("block checksum {found:08x}, its trailer says {expected:08x}"));
    }
    Compression::from_byte(block_type).ok_or_else(|| format!("unknown block type {block_type}"))
}

/// The end of a table: where everything else is found from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The random number that ties the table's blocks, its footer and the manifest together.
    pub table_id: u64,
    /// The block of names and handles.
    pub metaindex: BlockHandle,
    /// The data index.
    pub index: BlockHandle,
}

/// Why a footer was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FooterError {
    /// Not a footer, or a damaged one.
    Damaged(String),
    /// The footer of another version.
    Unsupported(String),
}

impl Footer {
    /// Appends the footer, [`FOOTER_BYTES`] bytes.
    pub fn encode(&self, dst: &mut Vec<u8>) {
        let start = dst.len();
        for handle in [self.metaindex, self.index] {
            put_u64(dst, handle.offset);
            put_u64(dst, handle.size);
        }
        put_u64(dst, self.table_id);
        let crc = footer_checksum(&dst[start..], TABLE_VERSION);
        put_u32(dst, crc);
        put_u32(dst, TABLE_VERSION);
        put_u64(dst, TABLE_MAGIC);
    }

    /// Reads the last [`FOOTER_BYTES`] bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<Self, FooterError> {
        let damaged = |what: &str| FooterError::Damaged(what.into());
        let words: Option<Vec<u64>> = (0..5).map(|i| get_u64(bytes, 8 * i)).collect();
        let (Some(words), Some(crc), Some(version), Some(magic)) =
            (words, get_u32(bytes, 40), get_u32(bytes, 44), get_u64(bytes, 48))
        else {
            return Err(damaged("file shorter than a table footer"));
        };
        if magic != TABLE_MAGIC {
            return Err(damaged("no table footer at its end (wrong magic number)"));
        }
        // First, so that a flipped bit is not taken for the mark of another siftdb.
        if footer_checksum(bytes.get(..40).unwrap_or_default(), version) != crc {
            return Err(damaged("footer checksum does not hold"));
        }
        if version != TABLE_VERSION {
            return Err(FooterError::Unsupported(format!(
                "table format version {version}; this siftdb knows version {TABLE_VERSION}"
            )));
        }
        let handle = |i: usize| BlockHandle {
            offset: words.get(i).copied().unwrap_or_default(),
            size: words.get(i + 1).copied().unwrap_or_default(),
        };
        Ok(Footer { metaindex: handle(0), index: handle(2), table_id: words[4] })
    }
}

fn footer_checksum(handles_and_id: &[u8], version: u32) -> u32 {
    Checksum::new()
        .with(handles_and_id)
        .with(&version.to_le_bytes())
        .with(&TABLE_MAGIC.to_le_bytes())
        .masked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_and_huge_ones_do_not_wrap() {
        for handle in [
            BlockHandle { offset: 0, size: 0 },
            BlockHandle { offset: 4101, size: 4096 },
            BlockHandle { offset: u64::MAX, size: u64::MAX },
        ] {
            let mut bytes = Vec::new();
            handle.encode(&mut bytes);
            assert_eq!(BlockHandle::decode(&bytes), Some(handle));
            assert_eq!(BlockHandle::decode(&bytes[..bytes.len() - 1]), None);
            bytes.push(0);
            assert_eq!(BlockHandle::decode(&bytes), None);
        }
        assert_eq!(BlockHandle { offset: u64::MAX - 7, size: 3 }.end(), None);
        assert!(!BlockHandle { offset: u64::MAX, size: 9 }.lies_within(u64::MAX));
        assert!(BlockHandle { offset: 10, size: 5 }.lies_within(20));
        assert!(!BlockHandle { offset: 10, size: 6 }.lies_within(20));
        assert!(!BlockHandle { offset: 0, size: 2 << 30 }.lies_within(u64::MAX));
    }

    #[test]
    fn a_block_of_another_table_or_place_does_not_pass() {
        let mut block = b"contents".to_vec();
        block.extend_from_slice(&block_trailer(b"contents", Compression::None, 7, 100));
        assert_eq!(check_block(&block, 7, 100), Ok((&b"contents"[..], Compression::None)));
        assert!(check_block(&block, 8, 100).is_err());
        assert!(check_block(&block, 7, 101).is_err());
        for i in 0..block.len() {
            let mut flipped = block.clone();
            flipped[i] ^= 1;
            assert!(check_block(&flipped, 7, 100).is_err(), "byte {i}");
            assert!(check_block(&block[..i], 7, 100).is_err(), "cut at {i}");
        }
        let unknown = block_checksum(b"", 9, 7, 100).to_le_bytes();
        let block = [&[9][..], &unknown].concat();
        assert_eq!(check_block(&block, 7, 100), Err("unknown block type 9".into()));
    }

    #[test]
    fn footer_is_checked_whole() {
        let footer = Footer {
            table_id: 0x0123_4567_89ab_cdef,
            metaindex: BlockHandle { offset: 4000, size: 60 },
            index: BlockHandle { offset: 4065, size: 300 },
        };
        let mut bytes = Vec::new();
        footer.encode(&mut bytes);
        assert_eq!(bytes.len(), FOOTER_BYTES);
        assert_eq!(Footer::decode(&bytes), Ok(footer));
        for i in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[i] ^= 0x40;
            let error = Footer::decode(&flipped).unwrap_err();
            assert!(matches!(error, FooterError::Damaged(_)), "byte {i}");
            assert!(Footer::decode(&bytes[..i]).is_err());
        }
        // A version is believed if the checksum holds for it.
        let newer = TABLE_VERSION + 1;
        let sum = footer_checksum(&bytes[..40], newer);
        bytes[40..44].copy_from_slice(&sum.to_le_bytes());
        bytes[44..48].copy_from_slice(&newer.to_le_bytes());
        assert!(matches!(Footer::decode(&bytes), Err(FooterError::Unsupported(_))));
    }
}
