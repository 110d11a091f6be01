//! A data index in partitions under a top level: how it is written, and its top level in memory.
//!
//! ```text
//! partition := entries of a data index: separator -> handle of a data block
//! top level := last separator of a partition -> its handle, its data blocks: varint
//! ```
//!
//! A partition has the form of an index of one block, and an [`Index`] reads it. The top level
//! counts the data blocks of each partition, so the number of a block in its table is known without
//! the partitions before it. Tables with a smaller index than one partition have one block.
//!
//! Source: the two-level index search of RocksDB, `table/block_based/partitioned_index_reader.cc`.
//! The bytes are siftdb's own.

use crate::base::coding::{Decoder, put_varint};
use crate::base::error::Result;
use crate::table::block::builder::BlockBuilder;
use crate::table::filter::layout::BlockSink;
use crate::table::format::{BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, BlockHandle, BlockKind};
use crate::table::index::{Index, IndexBuilder, without_restarts};

/// Partitions that were written.
pub(crate) struct WrittenPartitions {
    /// The block of the top level.
    pub top_level: Vec<u8>,
    /// Bytes of the partitions as stored.
    pub bytes: u64,
}

/// Writes the index of the data blocks at `handles` in partitions of at most `partition_bytes`, or
/// of one entry that is larger.
pub(crate) fn write_partitions(
    separators: &IndexBuilder,
    handles: &[BlockHandle],
    partition_bytes: usize,
    sink: &mut dyn BlockSink,
) -> Result<WrittenPartitions> {
    let bytes_max = partition_bytes.saturating_sub(BLOCK_PREFIX_BYTES + BLOCK_TRAILER_BYTES);
    let mut top_level = BlockBuilder::new(1);
    let (mut first, mut bytes) = (0, 0);
    while first < handles.len() {
        let (partition, blocks) = separators.build_from(first, handles, bytes_max);
        first += blocks;
        let handle = sink.write_raw(&partition, BlockKind::IndexPartition)?;
        let mut value = Vec::new();
        handle.encode(&mut value);
        put_varint(&mut value, blocks as u64);
        top_level.add(separators.key(first - 1), &value);
        bytes += handle.stored_bytes();
    }
    Ok(WrittenPartitions { top_level: top_level.finish().to_vec(), bytes })
}

/// The top level of a partitioned index.
#[derive(Debug)]
pub(crate) struct TopLevel {
    /// The index of the partitions.
    pub partitions: Index,
    /// For each partition, the data blocks up to its end.
    block_ends: Box<[u64]>,
}

impl TopLevel {
    /// Reads a block whose handles must lie in the first `limit` bytes of the file. The error says
    /// what is wrong.
    pub(crate) fn new(
        contents: Vec<u8>,
        keys_are_user_keys: bool,
        limit: u64,
    ) -> std::result::Result<Self, String> {
        let entries = without_restarts(contents)?;
        let (mut ends, mut blocks) = (Vec::new(), 0u64);
        let partitions = Index::of_entries(entries, keys_are_user_keys, limit, |value| {
            let mut decoder = Decoder::new(value);
            let handle = BlockHandle { offset: decoder.varint()?, size: decoder.varint()? };
            blocks = decoder.varint().filter(|count| *count > 0)?.checked_add(blocks)?;
            ends.push(blocks);
            decoder.is_empty().then_some(handle)
        })?;
        if ends.is_empty() {
            return Err("a top-level index of no partitions".into());
        }
        Ok(TopLevel { partitions, block_ends: ends.into() })
    }

    /// The data blocks before a partition.
    pub(crate) fn blocks_before(&self, partition: usize) -> u64 {
        let before = partition.checked_sub(1).and_then(|before| self.block_ends.get(before));
        before.copied().unwrap_or(0)
    }
}
