//! An open table of LevelDB or RocksDB, and iterators over its blocks and entries in key order.
//!
//! One block of each index and one data block are in memory at a time.

use crate::block::BlockEntries;
use crate::block_file::BlockFile;
use crate::block_handle::BlockHandle;
use crate::index::{IndexEntries, IndexStyle};
use crate::internal_key::split;
use crate::store::EntryKind;
use siftdb::{Error, Result};

/// The kind of a range delete, which is in a block of its own.
const RANGE_DELETION: u8 = 0xf;

/// A range delete: its first key, the first key after it, and the sequence as it is stored.
pub(crate) type StoredRange<'e> = (&'e [u8], &'e [u8], u64);

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    pub file: BlockFile,
    pub metaindex: BlockHandle,
    pub index: BlockHandle,
    pub style: IndexStyle,
    /// Its filter has whole keys, not only prefixes.
    pub has_whole_keys: bool,
}

impl Table {
    /// The blocks that the metaindex names, before the first.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn metaindex(&self) -> Result<NamedBlocks> {
        NamedBlocks::open(&self.file, self.metaindex)
    }

    /// The entries of a block.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn entries(&self, block: BlockHandle) -> Result<BlockEntries> {
        entries_of(&self.file, block)
    }

    /// The entries of a block of an index.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn index_entries(
        &self,
        block: BlockHandle,
        style: IndexStyle,
    ) -> Result<IndexEntries> {
        let entries = IndexEntries::new(self.file.read(block)?, style);
        entries.map_err(|what| self.damage(block, what))
    }

    /// The partitions that the index in `block` names, before the first.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn partitions(&self, block: BlockHandle) -> Result<Partitions> {
        let entries = self.index_entries(block, self.style.without_first_keys())?;
        Ok(Partitions { block, entries, last_key: None, end: 0 })
    }

    /// The first and the last internal key; `None` without entries. The table is read whole.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn ends(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut entries = TableEntries::open(self)?;
        let mut ends: Option<(Vec<u8>, Vec<u8>)> = None;
        while entries.next_block(self)? {
            while entries.next(self)? {
                let key = entries.key();
                match &mut ends {
                    None => ends = Some((key.to_vec(), key.to_vec())),
                    Some((_, last)) => key.clone_into(last),
                }
            }
        }
        Ok(ends)
    }

    /// Moves `entries` of `block` to the next range delete; `None` after the last.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn next_range_delete<'e>(
        &self,
        block: BlockHandle,
        entries: &'e mut BlockEntries,
    ) -> Result<Option<StoredRange<'e>>> {
        if !entries.next().map_err(|what| self.damage(block, what))? {
            return Ok(None);
        }
        let (key, end) = (&entries.key[..], entries.value());
        let parts = split(key).filter(|(_, trailer)| *trailer as u8 == RANGE_DELETION);
        match parts {
            Some((start, trailer)) if self.style.order.compare(start, end).is_le() => {
                Ok(Some((start, end, trailer >> 8)))
            }
            _ => Err(self.damage(block, "a malformed range delete")),
        }
    }

    /// Where a block ends that an index in `named_in` names after one that ends at `end`. Stores
    /// write blocks in this order. Without the check, many entries that name one block would cost a
    /// read each, out of proportion to the file.
    fn end_of_next(&self, named_in: BlockHandle, end: u64, next: BlockHandle) -> Result<u64> {
        self.file.expect_within(next)?;
        match next.end().filter(|_| next.offset >= end) {
            Some(end) => Ok(end),
            None => Err(self.damage(named_in, "a block that is not after the one before")),
        }
    }

    /// The error for damage in a block.
    pub(crate) fn damage(&self, block: BlockHandle, what: impl Into<String>) -> Error {
        self.file.damage(block.offset, what)
    }
}

fn entries_of(file: &BlockFile, block: BlockHandle) -> Result<BlockEntries> {
    BlockEntries::new(file.read(block)?).map_err(|what| file.damage(block.offset, what))
}

/// An iterator over the metaindex: names and handles of blocks.
#[derive(Debug)]
pub(crate) struct NamedBlocks {
    metaindex: BlockHandle,
    entries: BlockEntries,
    /// Where it is.
    pub handle: BlockHandle,
}

impl NamedBlocks {
    /// Before the first block.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn open(file: &BlockFile, metaindex: BlockHandle) -> Result<Self> {
        let entries = entries_of(file, metaindex)?;
        Ok(NamedBlocks { metaindex, entries, handle: BlockHandle::default() })
    }

    /// Moves to the next block; false after the last.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn next(&mut self, file: &BlockFile) -> Result<bool> {
        let damage = |what: String| file.damage(self.metaindex.offset, what);
        if !self.entries.next().map_err(damage)? {
            return Ok(false);
        }
        let handle = BlockHandle::decode(self.entries.value());
        self.handle = handle.ok_or_else(|| damage("a malformed handle".into()))?;
        Ok(true)
    }

    /// The name of the block.
    pub(crate) fn name(&self) -> &[u8] {
        &self.entries.key
    }
}

/// An iterator over the partitions of an index or a filter, in the order of their keys.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// The block that names them.
    block: BlockHandle,
    entries: IndexEntries,
    last_key: Option<Vec<u8>>,
    /// Where the partition ends in the file.
    end: u64,
}

impl Partitions {
    /// Moves to the next partition; false after the last.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn next(&mut self, table: &Table) -> Result<bool> {
        if !self.entries.next().map_err(|what| table.damage(self.block, what))? {
            return Ok(false);
        }
        let key = self.entries.key();
        if self.last_key.as_deref().is_some_and(|last| table.style.compare(last, key).is_gt()) {
            return Err(table.damage(self.block, "partitions out of order"));
        }
        self.end = table.end_of_next(self.block, self.end, self.entries.handle)?;
        self.last_key = Some(key.to_vec());
        Ok(true)
    }

    /// A user key at or above all keys of the partition.
    pub(crate) fn separator_key(&self, style: IndexStyle) -> &[u8] {
        style.user_key(self.entries.key())
    }

    /// Where the partition is.
    pub(crate) fn handle(&self) -> BlockHandle {
        self.entries.handle
    }
}

/// An iterator over the data blocks of a table, in the order of their keys.
#[derive(Debug)]
pub(crate) struct DataBlocks {
    /// The index, or the top level of an index of partitions.
    top: IndexEntries,
    partition: Option<IndexEntries>,
    /// No entry of the partition was read so far.
    is_empty: bool,
    /// The block of the index that names the data block.
    pub named_in: BlockHandle,
    /// The top-level key of the partition before, to check the order; `None` in the first
    /// partition.
    last_top_key: Option<Vec<u8>>,
    /// The separator of the block before; `None` at the first block.
    last_separator: Option<Vec<u8>>,
    /// It is before the first block.
    pub is_first: bool,
    /// Where the block ends in the file.
    end: u64,
}

impl DataBlocks {
    /// Before the first block.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn open(table: &Table) -> Result<Self> {
        let style = match table.style.is_partitioned {
            true => table.style.without_first_keys(),
            false => table.style,
        };
        Ok(DataBlocks {
            top: table.index_entries(table.index, style)?,
            partition: None,
            is_empty: false,
            named_in: table.index,
            last_top_key: None,
            last_separator: None,
            is_first: true,
            end: 0,
        })
    }

    /// Moves to the next block; false after the last.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`. The iterator must not be used again.
    pub(crate) fn next(&mut self, table: &Table) -> Result<bool> {
        if !self.is_first {
            let mut kept = self.last_separator.take().unwrap_or_default();
            self.separator().clone_into(&mut kept);
            self.last_separator = Some(kept);
        }
        if !self.advance(table)? {
            return Ok(false);
        }
        self.is_first = false;
        if !ascends(table.style, self.last_separator.as_deref(), self.separator()) {
            return Err(table.damage(self.named_in, "keys of the index out of order"));
        }
        self.end = table.end_of_next(self.named_in, self.end, self.handle())?;
        if self.partition.is_some() {
            self.check_partition(table)?;
        }
        Ok(true)
    }

    /// Checks the key of an entry of a partition. Lookups choose a partition by its top-level key,
    /// so the key must not be above that, and above the top-level key of the partition before.
    fn check_partition(&self, table: &Table) -> Result<()> {
        let (style, separator) = (table.style, self.separator());
        if style.compare(separator, self.top.key()).is_gt() {
            let what = "a key above what the top level says of its partition of the index";
            return Err(table.damage(self.named_in, what));
        }
        if !ascends(style, self.last_top_key.as_deref(), separator) {
            let what = "a key that the top level says is in a partition of the index before";
            return Err(table.damage(self.named_in, what));
        }
        Ok(())
    }

    fn advance(&mut self, table: &Table) -> Result<bool> {
        loop {
            if let Some(partition) = &mut self.partition
                && partition.next().map_err(|what| table.damage(self.named_in, what))?
            {
                self.is_empty = false;
                return Ok(true);
            }
            // Without this, many top-level entries that name one empty partition would cost a read
            // each, out of proportion to the file.
            if self.partition.is_some() && self.is_empty {
                return Err(table.damage(self.named_in, "an empty partition of the index"));
            }
            if self.partition.is_some() {
                self.last_top_key = Some(self.top.key().to_vec());
            }
            let next = self.top.next().map_err(|what| table.damage(table.index, what))?;
            if !next || !table.style.is_partitioned {
                return Ok(next);
            }
            if !ascends(table.style, self.last_top_key.as_deref(), self.top.key()) {
                let what = "keys of the top level of the index out of order";
                return Err(table.damage(table.index, what));
            }
            self.is_empty = true;
            self.named_in = self.top.handle;
            self.partition = Some(table.index_entries(self.named_in, table.style)?);
        }
    }

    fn here(&self) -> &IndexEntries {
        self.partition.as_ref().unwrap_or(&self.top)
    }

    /// The bytes in memory of the block of the index that names the data block.
    pub(crate) fn index_block_bytes(&self) -> usize {
        self.here().bytes()
    }

    /// A key at or above all keys of the block; without its trailer if the index has user keys.
    pub(crate) fn separator(&self) -> &[u8] {
        self.here().key()
    }

    /// The user key of the separator.
    pub(crate) fn separator_key(&self, style: IndexStyle) -> &[u8] {
        style.user_key(self.separator())
    }

    /// Whether lookups of this internal key would search a block before this one.
    fn is_before(&self, style: IndexStyle, key: &[u8]) -> bool {
        self.last_separator.as_deref().is_some_and(|last| style.compare_entry(key, last).is_le())
    }

    /// Where the block is.
    pub(crate) fn handle(&self) -> BlockHandle {
        self.here().handle
    }

    /// The first key of the block, if the index has it.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.here().first_key()
    }

    /// Whether `key` may be in this block or before it, as the index says.
    pub(crate) fn reaches(&self, style: IndexStyle, key: &[u8]) -> bool {
        style.order.compare(key, self.separator_key(style)).is_le()
    }
}

/// Whether a key of an index is well formed, and above the one before it.
fn ascends(style: IndexStyle, last: Option<&[u8]>, key: &[u8]) -> bool {
    let is_sound = style.has_user_keys || split(key).is_some();
    is_sound && last.is_none_or(|last| style.compare(last, key).is_lt())
}

/// An iterator over the entries of a table.
#[derive(Debug)]
pub(crate) struct TableEntries {
    pub blocks: DataBlocks,
    block: Option<BlockEntries>,
    /// The key before, to check the order; empty before the first one.
    last_key: Vec<u8>,
}

impl TableEntries {
    /// Before the first block.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn open(table: &Table) -> Result<Self> {
        let blocks = DataBlocks::open(table)?;
        Ok(TableEntries { blocks, block: None, last_key: Vec::new() })
    }

    /// Moves to the next block, before its first entry; false after the last.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn next_block(&mut self, table: &Table) -> Result<bool> {
        self.block = None;
        if !self.blocks.next(table)? {
            return Ok(false);
        }
        self.block = Some(table.entries(self.blocks.handle())?);
        Ok(true)
    }

    /// Moves to the next entry of the block; false after its last.
    ///
    /// # Errors
    /// `Corruption`, also for a key that is not above the one before it, or that lookups would
    /// search in another block.
    pub(crate) fn next(&mut self, table: &Table) -> Result<bool> {
        let handle = self.blocks.handle();
        let Some(block) = &mut self.block else { return Ok(false) };
        if !block.next().map_err(|what| table.damage(handle, what))? {
            return Ok(false);
        }
        let key = &block.key[..];
        if split(key).is_none() {
            return Err(table.damage(handle, "a key without its sequence"));
        }
        let style = table.style;
        if !self.last_key.is_empty() && style.order.compare_internal(&self.last_key, key).is_ge() {
            return Err(table.damage(handle, "keys out of order"));
        }
        if style.compare_entry(key, self.blocks.separator()).is_gt() {
            return Err(table.damage(handle, "a key above what the index says of its block"));
        }
        if self.blocks.is_before(style, key) {
            let what = "a key that the index says is in a block before";
            return Err(table.damage(handle, what));
        }
        key.clone_into(&mut self.last_key);
        Ok(true)
    }

    /// The internal key of the entry.
    pub(crate) fn key(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.key)
    }

    /// The kind of the entry.
    ///
    /// # Errors
    /// `Corruption` for a kind that the store does not write.
    pub(crate) fn kind(&self, table: &Table) -> Result<EntryKind> {
        let (_, trailer) = split(self.key()).unwrap_or_default();
        let number = trailer as u8;
        EntryKind::of_number(table.file.store, number).ok_or_else(|| {
            let what = format!("an entry of the unknown kind {number}");
            table.damage(self.blocks.handle(), what)
        })
    }

    /// The value of the entry.
    pub(crate) fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockEntries::value)
    }
}
