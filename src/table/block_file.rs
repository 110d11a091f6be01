//! The data blocks of a table on their way to its file.
//!
//! A [`BlockFile`] completes, compresses and writes them. Where another thread has it,
//! [`DetachedBlocks`] collects full blocks for that thread, and takes the empty ones back.

use crate::base::error::Result;
use crate::table::block::builder::BlockBuilder;
use crate::table::compression::{Compression, Compressor};
use crate::table::format::{BlockHandle, BlockKind};
use crate::table::writer::TableWriter;

/// This many blocks go to the other thread at once: waking it for each takes longer than writing.
const BLOCKS_AT_ONCE: usize = 16;

/// The same for large blocks, in bytes.
const BYTES_AT_ONCE: u64 = 256 << 10;

/// The file of a table, and where its data blocks are.
pub(crate) struct BlockFile {
    pub(super) out: TableWriter,
    compressor: Compressor,
    /// The data blocks so far.
    pub(super) handles: Vec<BlockHandle>,
}

impl BlockFile {
    /// Blocks go to `out`, compressed if that saves enough.
    pub(super) fn new(out: TableWriter, compression: Compression) -> Self {
        BlockFile { out, compressor: Compressor::new(compression), handles: Vec::new() }
    }

    /// Completes a data block, writes it, and empties its builder.
    pub(crate) fn write(&mut self, block: &mut BlockBuilder) -> Result<()> {
        let (stored, codec) = self.compressor.compress(block.finish());
        self.handles.push(self.out.write_block(stored, BlockKind::Data, codec)?);
        block.reset();
        Ok(())
    }

    /// Size of the file so far without padding, so that tables with other filters, which are not
    /// padded, end at the same keys.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.out.position() - self.out.padding_bytes
    }
}

/// Full blocks, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct FullBlocks {
    pub blocks: Vec<BlockBuilder>,
    /// Their size before compression, about.
    pub bytes: u64,
    /// The memory that they take, about.
    pub memory: u64,
}

/// The full blocks of a table whose file another thread has.
#[derive(Debug, Default)]
pub(crate) struct DetachedBlocks {
    full: FullBlocks,
    /// Empty blocks that came back.
    spare: Vec<BlockBuilder>,
    /// Size of the file without padding, when the last blocks came back.
    file_bytes: u64,
    /// Bytes of the blocks that were given away since, before compression.
    away_bytes: u64,
    /// The memory that these take.
    pub away_memory: u64,
}

impl DetachedBlocks {
    /// No blocks, and a file of this size.
    pub(super) fn new(file_bytes: u64) -> Self {
        DetachedBlocks { file_bytes, ..DetachedBlocks::default() }
    }

    /// Takes a full block, and leaves an empty one that is otherwise like it.
    pub(super) fn push(&mut self, block: &mut BlockBuilder) {
        self.full.bytes += block.estimated_bytes() as u64;
        self.full.memory += block.memory_bytes() as u64;
        let empty = self.spare.pop().unwrap_or_else(|| block.another());
        self.full.blocks.push(std::mem::replace(block, empty));
    }

    /// The full blocks, for the other thread.
    pub(crate) fn take(&mut self) -> FullBlocks {
        let full = std::mem::take(&mut self.full);
        self.away_bytes += full.bytes;
        self.away_memory += full.memory;
        full
    }

    /// True if there are enough full blocks to give them to the other thread.
    pub(crate) fn are_enough(&self) -> bool {
        self.full.blocks.len() >= BLOCKS_AT_ONCE || self.full.bytes >= BYTES_AT_ONCE
    }

    /// Takes blocks back that were written. The file now has `file_bytes`.
    pub(crate) fn give_back(&mut self, written: FullBlocks, file_bytes: u64) {
        self.file_bytes = file_bytes;
        self.away_bytes -= written.bytes;
        self.away_memory -= written.memory;
        // A block of one large value keeps as much memory: not for all that follow.
        if written.bytes < 2 * BYTES_AT_ONCE {
            self.spare.extend(written.blocks);
        }
    }

    /// About the size of the file with all blocks.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes + self.away_bytes + self.full.bytes
    }
}
