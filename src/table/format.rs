//! The fixed pieces of the SST format: header, block prefixes and trailers, handles, the footer.
//!
//! ```text
//! header  := magic: u64  version: u32  keyspace: u32  table id: u64  crc: u32          28 bytes
//! prefix  := size: u32  kind: u8  check: u24                       8 bytes before every block
//! trailer := codec: u8  crc: u32                                   5 bytes after every block
//! handle  := offset: varint  size: varint         of the contents, without prefix and trailer
//! footer  := metaindex offset, size, index offset, size: 4 x u64  table id: u64
//!            crc: u32  version: u32  magic: u64                     56 bytes, the file's last
//! ```
//!
//! The trailer's masked CRC-32 covers the block as stored, its type, kind and size, the table id
//! and the block's offset, so that a sound block of another table, offset or kind does not pass. A
//! reader knows kind and size from the handle, so it reads no prefix. The prefix is for a repair
//! without an index: its check, the low 24 bits of the masked CRC-32 of size, kind, table id and
//! offset, distinguishes a prefix from other bytes without reading the block.
//!
//! Header and footer each end with a checksum over their other bytes. Every version must keep that,
//! since a version number is believed only if the checksum holds. Nothing here reads files.

use crate::base::checksum::Checksum;
use crate::base::coding::{Decoder, get_u32, get_u64, put_u32, put_u64, put_varint};
use crate::base::error::{Error, Result};
use crate::base::key::{KEY_BYTES_MAX, KeyspaceId, VALUE_BYTES_MAX};
use std::path::Path;

/// Bytes before the first block.
pub(crate) const HEADER_BYTES: usize = 28;

/// Bytes before every block: its size and kind, and their check.
pub(crate) const BLOCK_PREFIX_BYTES: usize = 8;

/// Bytes after every block: its type and its checksum.
pub(crate) const BLOCK_TRAILER_BYTES: usize = 5;

/// Largest block, stored or decompressed: one entry at the limits of key and value, and room for
/// the structure around it. A table whose index or filter would be larger must be split.
pub(crate) const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX + (64 << 10);

/// Bytes that a file system reads at least. A block that lookups read begins at a multiple of it,
/// after zeros, if it would touch one page more elsewhere and the gap is small.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Size of the footer.
pub(crate) const FOOTER_BYTES: usize = 56;

/// First and last eight bytes of every table: "siftdbST" in ASCII.
pub(crate) const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"siftdbST");

/// The version of a table that every siftdb can read.
pub(crate) const TABLE_VERSION: u32 = 1;

/// The version of a table that needs features of its reader, which its properties name
/// (`features.rs`).
pub(crate) const TABLE_VERSION_WITH_FEATURES: u32 = 2;

/// Metaindex name of the properties block.
pub(crate) const PROPERTIES_NAME: &str = "siftdb.properties";

/// Metaindex name of the block of range deletes; a table without any has none.
pub(crate) const RANGE_DELETES_NAME: &str = "siftdb.rangedel";

/// The role of a block in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    Data = 1,
    /// A filter or a partition of one. Never compressed.
    Filter = 2,
    /// The top-level index of filter partitions.
    FilterIndex = 3,
    /// The properties of the table.
    Properties = 4,
    /// Names and handles of filter and properties.
    Metaindex = 5,
    /// The data index, or the top level of a partitioned one: the last block of every table.
    Index = 6,
    /// The range deletes of the table, as [`RangeDeletes`] encodes them. Never compressed.
    ///
    /// [`RangeDeletes`]: crate::base::range_deletes::RangeDeletes
    RangeDeletes = 7,
    /// A partition of the data index.
    IndexPartition = 8,
}

impl BlockKind {
    /// The kind of a stored byte. Zero is no kind, so that a run of zeros is no prefix.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        use BlockKind::{
            Data, Filter, FilterIndex, Index, IndexPartition, Metaindex, Properties, RangeDeletes,
        };
        let meta = [Properties, Metaindex, RangeDeletes];
        let all = [Data, Filter, FilterIndex, Index, IndexPartition].into_iter().chain(meta);
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Where a block is in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    /// First byte of its contents; the prefix is before it.
    pub offset: u64,
    /// Length of the contents as stored.
    pub size: u64,
}

impl BlockHandle {
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) {
        put_varint(dst, self.offset);
        put_varint(dst, self.size);
    }

    /// The handle that fills `bytes` exactly.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let handle = BlockHandle { offset: decoder.varint()?, size: decoder.varint()? };
        decoder.is_empty().then_some(handle)
    }

    /// The first byte of the block's prefix; `None` if the offset leaves no room for it.
    pub(crate) fn start(&self) -> Option<u64> {
        self.offset.checked_sub(BLOCK_PREFIX_BYTES as u64)
    }

    /// The distance from the first data block to this one: the offset that block-based filters use.
    /// The first data block is at 0, as in LevelDB.
    #[inline]
    pub(crate) fn data_offset(&self) -> u64 {
        self.offset.saturating_sub((HEADER_BYTES + BLOCK_PREFIX_BYTES) as u64)
    }

    /// Bytes that the block takes of its file, prefix and trailer included.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.size.saturating_add((BLOCK_PREFIX_BYTES + BLOCK_TRAILER_BYTES) as u64)
    }

    /// The first byte after the block's trailer; `None` if no file can be that long.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.size)?.checked_add(BLOCK_TRAILER_BYTES as u64)
    }

    /// The block as stored, with its trailer, in the bytes of its file; `None` if it ends before.
    #[inline]
    pub(crate) fn stored_in<'f>(&self, file: &'f [u8]) -> Option<&'f [u8]> {
        file.get(usize::try_from(self.offset).ok()?..usize::try_from(self.end()?).ok()?)
    }

    /// Whether the block, trailer included, lies in the first `limit` bytes and is of a size that
    /// this version writes. Asked before memory is reserved for it.
    pub(crate) fn lies_within(&self, limit: u64) -> bool {
        self.size <= BLOCK_BYTES_MAX as u64 && self.end().is_some_and(|end| end <= limit)
    }
}

/// Bytes from the contents of the first of these blocks to the trailer of the last; `None` unless
/// each begins where the one before ends, or at the next page.
pub(crate) fn run_bytes(handles: &[BlockHandle]) -> Option<u64> {
    let mut pairs = handles.iter().zip(handles.iter().skip(1));
    let is_run = pairs.all(|(one, next)| {
        let gap = one.end().zip(next.start()).and_then(|(end, start)| start.checked_sub(end));
        let gap_bytes_max = if next.offset.is_multiple_of(PAGE_BYTES) { PAGE_BYTES } else { 1 };
        gap.is_some_and(|gap| gap < gap_bytes_max)
    });
    let bytes = handles.last()?.end()?.checked_sub(handles.first()?.offset)?;
    is_run.then_some(bytes)
}

/// How the contents of a block are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Codec {
    /// Stored as they are, without compression.
    #[default]
    None = 0,
    /// Compressed by Snappy, without its framing.
    Snappy = 1,
    /// Their length as a varint, then a block of LZ4.
    Lz4 = 2,
    /// Their length as a varint, then a frame of Zstandard.
    Zstd = 3,
}

impl Codec {
    const ALL: [Self; 4] = [Codec::None, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// The codec of a stored byte.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Codec::ALL.into_iter().find(|known| *known as u8 == byte)
    }

    /// The codec with this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Codec::ALL.into_iter().find(|known| known.name().as_bytes() == name)
    }

    /// Its name in properties.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

/// The table, offset and kind of a block, which its checksums cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockIdentity {
    pub table_id: u64,
    /// Where the contents begin.
    pub offset: u64,
    /// The kind of the block.
    pub kind: BlockKind,
}

impl BlockIdentity {
    /// The bytes that checksums cover besides the contents, after one byte of the caller's.
    fn bytes(self, first: u8, size: u32) -> [u8; 22] {
        let mut bytes = [0; 22];
        bytes[0] = first;
        bytes[1] = self.kind as u8;
        bytes[2..6].copy_from_slice(&size.to_le_bytes());
        bytes[6..14].copy_from_slice(&self.table_id.to_le_bytes());
        bytes[14..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    fn prefix_check(self, size: u32) -> [u8; 3] {
        let [low, middle, high, _] =
            Checksum::new().with(&self.bytes(0, size)[1..]).masked().to_le_bytes();
        [low, middle, high]
    }

    /// The prefix of a block of `size` stored bytes.
    pub(crate) fn prefix(self, size: u32) -> [u8; BLOCK_PREFIX_BYTES] {
        let ([a, b, c, d], [e, f, g]) = (size.to_le_bytes(), self.prefix_check(size));
        [a, b, c, d, self.kind as u8, e, f, g]
    }

    fn checksum(self, stored: &[u8], codec: u8) -> u32 {
        // The size is that of the slice: a reader has it from the handle.
        Checksum::new().with(stored).with(&self.bytes(codec, stored.len() as u32)).masked()
    }

    /// The trailer of a block whose stored contents are `stored`.
    pub(crate) fn trailer(self, stored: &[u8], codec: Codec) -> [u8; BLOCK_TRAILER_BYTES] {
        let [a, b, c, d] = self.checksum(stored, codec as u8).to_le_bytes();
        [codec as u8, a, b, c, d]
    }

    /// Splits a block as read into stored contents and codec, if its checksum holds. The
    /// error says what is wrong.
    pub(crate) fn check(
        self,
        stored_with_trailer: &[u8],
    ) -> std::result::Result<(&[u8], Codec), String> {
        let Some((stored, trailer)) = stored_with_trailer.split_last_chunk() else {
            return Err("block shorter than its trailer".into());
        };
        self.check_parts(stored, *trailer).map(|codec| (stored, codec))
    }

    /// [`BlockIdentity::check`] of a block whose trailer was read by itself.
    pub(crate) fn check_parts(
        self,
        stored: &[u8],
        trailer: [u8; BLOCK_TRAILER_BYTES],
    ) -> std::result::Result<Codec, String> {
        let [codec, crc @ ..] = trailer;
        let expected = u32::from_le_bytes(crc);
        let found = self.checksum(stored, codec);
        if found != expected {
            return Err(format!("block checksum {found:08x}, its trailer says {expected:08x}"));
        }
        match (Codec::from_byte(codec), self.kind) {
            (Some(Codec::Snappy | Codec::Lz4 | Codec::Zstd), BlockKind::Filter) => {
                Err("compressed filter, which no writer makes".into())
            }
            (known, _) => known.ok_or_else(|| format!("unknown block type {codec}")),
        }
    }
}

/// Kind and stored size by the prefix of the block whose contents begin at `offset`; `None` if
/// these bytes are no prefix of this table at this offset.
pub(crate) fn read_prefix(
    bytes: [u8; BLOCK_PREFIX_BYTES],
    table_id: u64,
    offset: u64,
) -> Option<(BlockKind, u32)> {
    let [a, b, c, d, kind, check @ ..] = bytes;
    let size = u32::from_le_bytes([a, b, c, d]);
    let kind = BlockKind::from_byte(kind)?;
    let holds = check == BlockIdentity { table_id, offset, kind }.prefix_check(size);
    (holds && size as usize <= BLOCK_BYTES_MAX).then_some((kind, size))
}

/// The beginning of a table: enough to read its blocks one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What a reader of the data blocks must know: 2 if they need a feature. The footer has the
    /// version of the whole table, which may be higher.
    pub version: u32,
    /// The random number that ties the table's blocks, its footer and the manifest together.
    pub table_id: u64,
    /// The keyspace that the table is of.
    pub keyspace: KeyspaceId,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        put_u64(&mut bytes, TABLE_MAGIC);
        put_u32(&mut bytes, self.version);
        put_u32(&mut bytes, self.keyspace);
        put_u64(&mut bytes, self.table_id);
        let crc = Checksum::new().with(&bytes).masked();
        put_u32(&mut bytes, crc);
        bytes
    }

    /// Reads the first [`HEADER_BYTES`] bytes of the file at `path`.
    ///
    /// # Errors
    /// `Corruption`, or `UnsupportedFormat` for a sound header of another version.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES], path: &Path) -> Result<Self> {
        let damaged = |what| Error::corruption(path, 0, what);
        let number = |at| get_u32(bytes, at).unwrap_or_default();
        let [version, keyspace, crc] = [8, 12, 24].map(number);
        if get_u64(bytes, 0) != Some(TABLE_MAGIC) {
            return Err(damaged("no table header at its beginning (wrong magic number)"));
        }
        if Checksum::new().with(&bytes[..HEADER_BYTES - 4]).masked() != crc {
            return Err(damaged("header checksum does not hold"));
        }
        check_version(version, path)?;
        Ok(Header { version, table_id: get_u64(bytes, 16).unwrap_or_default(), keyspace })
    }
}

fn check_version(version: u32, path: &Path) -> Result<()> {
    if (TABLE_VERSION..=TABLE_VERSION_WITH_FEATURES).contains(&version) {
        return Ok(());
    }
    let what = format!(
        "table format version {version}; this siftdb knows versions up to \
         {TABLE_VERSION_WITH_FEATURES}"
    );
    Err(Error::of_newer_format(path, what))
}

/// The end of a table: all other blocks are found from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub version: u32,
    /// The random number that ties the table's blocks, its footer and the manifest together.
    pub table_id: u64,
    /// The block of names and handles.
    pub metaindex: BlockHandle,
    pub index: BlockHandle,
}

impl Footer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut dst = Vec::with_capacity(FOOTER_BYTES);
        for handle in [self.metaindex, self.index] {
            put_u64(&mut dst, handle.offset);
            put_u64(&mut dst, handle.size);
        }
        put_u64(&mut dst, self.table_id);
        let crc = footer_checksum(&dst, self.version);
        put_u32(&mut dst, crc);
        put_u32(&mut dst, self.version);
        put_u64(&mut dst, TABLE_MAGIC);
        dst
    }

    /// Reads the footer of the file at `path`, which begins at `offset` there.
    ///
    /// # Errors
    /// `Corruption`, or `UnsupportedFormat` for a sound footer of another version.
    pub(crate) fn decode(bytes: &[u8; FOOTER_BYTES], path: &Path, offset: u64) -> Result<Self> {
        let damaged = |what| Error::corruption(path, offset, what);
        let word = |i: usize| get_u64(bytes, 8 * i).unwrap_or_default();
        let [crc, version] = [40, 44].map(|at| get_u32(bytes, at).unwrap_or_default());
        if word(6) != TABLE_MAGIC {
            return Err(damaged("no table footer at its end (wrong magic number)"));
        }
        // Checked first, so that a flipped bit does not pass as a newer version.
        if footer_checksum(&bytes[..40], version) != crc {
            return Err(damaged("footer checksum does not hold"));
        }
        check_version(version, path)?;
        let handle = |i| BlockHandle { offset: word(i), size: word(i + 1) };
        Ok(Footer { version, metaindex: handle(0), index: handle(2), table_id: word(4) })
    }
}

fn footer_checksum(handles_and_id: &[u8], version: u32) -> u32 {
    Checksum::new()
        .with(handles_and_id)
        .with(&version.to_le_bytes())
        .with(&TABLE_MAGIC.to_le_bytes())
        .masked()
}

/// The fingerprint that a block's hash index has for a user key with this XXPH3 hash.
#[inline]
pub(crate) fn fingerprint_of(xxph3: u64) -> u8 {
    (xxph3 >> 24) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_handles_round_trip() {
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
        let first = BlockHandle { offset: 36, size: 5 };
        assert_eq!((first.start(), first.data_offset(), first.stored_bytes()), (Some(28), 0, 18));
        assert_eq!(BlockHandle::default().start(), None);
    }

    const IDENTITY: BlockIdentity =
        BlockIdentity { table_id: 7, offset: 100, kind: BlockKind::Filter };

    #[test]
    fn blocks_of_other_tables_or_offsets_fail() {
        let mut block = b"contents".to_vec();
        block.extend_from_slice(&IDENTITY.trailer(b"contents", Codec::None));
        assert_eq!(IDENTITY.check(&block), Ok((&b"contents"[..], Codec::None)));
        for other in [
            BlockIdentity { table_id: 8, ..IDENTITY },
            BlockIdentity { offset: 101, ..IDENTITY },
            BlockIdentity { kind: BlockKind::Data, ..IDENTITY },
        ] {
            assert!(other.check(&block).is_err(), "{other:?}");
        }
        for i in 0..block.len() {
            let mut flipped = block.clone();
            flipped[i] ^= 1;
            assert!(IDENTITY.check(&flipped).is_err(), "byte {i}");
            assert!(IDENTITY.check(&block[..i]).is_err(), "cut at {i}");
        }
        let unknown = IDENTITY.checksum(b"", 9).to_le_bytes();
        let block = [&[9][..], &unknown].concat();
        assert_eq!(IDENTITY.check(&block), Err("unknown block type 9".into()));
    }

    #[test]
    fn checksum_prefixes_hold_at_their_offset_only() {
        let prefix = IDENTITY.prefix(4096);
        assert_eq!(read_prefix(prefix, 7, 100), Some((BlockKind::Filter, 4096)));
        assert_eq!(read_prefix(prefix, 8, 100), None);
        assert_eq!(read_prefix(prefix, 7, 101), None);
        for bit in 0..8 * prefix.len() {
            let mut flipped = prefix;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_prefix(flipped, 7, 100), None, "bit {bit}");
        }
        assert_eq!(read_prefix([0; 8], 7, 100), None);
        assert_eq!(read_prefix(IDENTITY.prefix(u32::MAX), 7, 100), None, "larger than any block");
    }

    #[test]
    fn every_header_byte_is_checked() {
        let header = Header { version: 1, table_id: 0x0123_4567_89ab_cdef, keyspace: 0x0102_0304 };
        let bytes: [u8; HEADER_BYTES] = header.encode().try_into().unwrap();
        let decode = |bytes: &[u8; HEADER_BYTES]| Header::decode(bytes, Path::new("/1.sst"));
        assert_eq!(decode(&bytes).unwrap(), header);
        for i in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[i] ^= 0x40;
            assert!(decode(&flipped).is_err_and(|error| error.is_corruption()), "byte {i}");
        }
        // A version is believed if the checksum holds for it.
        let mut newer = bytes;
        newer[8] += 2;
        let crc = Checksum::new().with(&newer[..24]).masked().to_le_bytes();
        newer[24..].copy_from_slice(&crc);
        assert!(matches!(decode(&newer), Err(Error::UnsupportedFormat { .. })));
    }

    #[test]
    fn every_footer_byte_is_checked() {
        let footer = Footer {
            version: 1,
            table_id: 0x0123_4567_89ab_cdef,
            metaindex: BlockHandle { offset: 4000, size: 60 },
            index: BlockHandle { offset: 4065, size: 300 },
        };
        let mut bytes: [u8; FOOTER_BYTES] = footer.encode().try_into().unwrap();
        let decode = |bytes: &[u8; FOOTER_BYTES]| Footer::decode(bytes, Path::new("/1.sst"), 4370);
        assert_eq!(decode(&bytes).unwrap(), footer);
        for i in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[i] ^= 0x40;
            assert!(decode(&flipped).is_err_and(|error| error.is_corruption()), "byte {i}");
        }
        // A version is believed if the checksum holds for it.
        let newer = TABLE_VERSION_WITH_FEATURES + 1;
        let sum = footer_checksum(&bytes[..40], newer);
        bytes[40..44].copy_from_slice(&sum.to_le_bytes());
        bytes[44..48].copy_from_slice(&newer.to_le_bytes());
        assert!(matches!(decode(&bytes), Err(Error::UnsupportedFormat { .. })));
    }
}
