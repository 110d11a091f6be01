//! Where a block is in the file of a table.

use crate::coding::Decoder;

/// Bytes after the contents of a block: compression and checksum.
pub(crate) const BLOCK_TRAILER_BYTES: usize = 5;

/// The most bytes of a block that is read: the largest value that siftdb takes, with room for the
/// rest of its block.
pub(crate) const BLOCK_BYTES_MAX: u64 = (1 << 30) + (1 << 20);

/// Position and size of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    /// First byte of its contents.
    pub offset: u64,
    /// Length of the contents as stored, without the trailer.
    pub size: u64,
}

impl BlockHandle {
    /// The handle at the front of `decoder`.
    pub(crate) fn read(decoder: &mut Decoder<'_>) -> Option<Self> {
        Some(BlockHandle { offset: decoder.varint()?, size: decoder.varint()? })
    }

    /// The handle that fills `bytes` exactly.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        Self::read(&mut decoder).filter(|_| decoder.is_empty())
    }

    /// The first byte after the block's trailer; `None` if no file can be that long.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.size)?.checked_add(BLOCK_TRAILER_BYTES as u64)
    }

    /// Whether the block, trailer included, lies in the first `limit` bytes and is of a size that
    /// is read. Asked before memory is allocated for it.
    pub(crate) fn lies_within(&self, limit: u64) -> bool {
        self.size <= BLOCK_BYTES_MAX && self.end().is_some_and(|end| end <= limit)
    }
}
