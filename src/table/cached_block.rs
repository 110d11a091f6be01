//! A block as the cache holds it, and an index with a slot for each of the blocks it names.
//!
//! `fetch` makes both; `reader`, `iter`, `multi_get` and `filter_block` look blocks up in a
//! [`BlockDirectory`] and fetch what it names. A block that was fetched before is then found in its
//! slot: one pointer behind the index entry, where the cache itself would cost a lock and a search.

use crate::base::key::LookupKey;
use crate::base::sync::Arc;
use crate::cache::cache::Cache;
use crate::cache::cached::{Cached, Slot, Slots, Slotted};
use crate::table::block::block::Block;
use crate::table::format::BlockHandle;
use crate::table::index::Index;

/// The block cache of a database.
pub type BlockCache = Cache<CachedBlock>;

/// A block as the cache holds it.
#[derive(Debug)]
pub enum CachedBlock {
    /// Entries of a table.
    Data(Block),
    /// The data index, or the top-level index of filter partitions. Boxed, since it is large and
    /// data blocks are many.
    Index(Box<BlockDirectory>),
    /// A filter or a partition of one, as written.
    Filter(Arc<[u8]>),
}

impl CachedBlock {
    /// The data block, if it is one.
    #[inline]
    #[must_use]
    pub fn data(&self) -> Option<&Block> {
        match self {
            CachedBlock::Data(block) => Some(block),
            _ => None,
        }
    }

    /// The index, if it is one.
    #[inline]
    #[must_use]
    pub fn index(&self) -> Option<&BlockDirectory> {
        match self {
            CachedBlock::Index(index) => Some(index),
            _ => None,
        }
    }

    /// The filter, if it is one.
    #[inline]
    #[must_use]
    pub fn filter(&self) -> Option<&Arc<[u8]>> {
        match self {
            CachedBlock::Filter(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            CachedBlock::Data(block) => block.memory_bytes(),
            CachedBlock::Index(index) => index.memory_bytes(),
            CachedBlock::Filter(bytes) => bytes.len(),
        }
    }
}

/// Large values share their data block through this.
impl AsRef<[u8]> for CachedBlock {
    fn as_ref(&self) -> &[u8] {
        self.data().map_or(&[], Block::contents)
    }
}

/// A block as a directory names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Its number in the index.
    pub number: usize,
    /// Where it stands in the file.
    pub handle: BlockHandle,
}

/// An index, and where its blocks are found if the cache holds them.
#[derive(Debug)]
pub struct BlockDirectory {
    index: Index,
    slots: Arc<Slots<CachedBlock>>,
}

impl BlockDirectory {
    /// The directory of the blocks that `index` names; no slot holds one yet.
    #[must_use]
    pub fn new(index: Index) -> Self {
        let slots = Slots::new(index.len());
        BlockDirectory { index, slots }
    }

    /// The index.
    #[inline]
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Block `number`; `None` beyond the last.
    #[inline]
    #[must_use]
    pub fn place(&self, number: usize) -> Option<BlockPlace> {
        self.index.handle(number).map(|handle| BlockPlace { number, handle })
    }

    /// The only block that can hold what a lookup wants.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &LookupKey) -> Option<BlockPlace> {
        self.place(self.index.find(key)?)
    }

    /// The slot of a block of this directory.
    #[inline]
    #[must_use]
    pub fn slot(&self, place: BlockPlace) -> Slot<'_, CachedBlock> {
        self.slots.slot(place.number)
    }

    /// Whether the block with this checksum was found sound.
    #[inline]
    #[must_use]
    pub fn is_sound(&self, place: BlockPlace, checksum: u32) -> bool {
        checksum != 0 && self.slot(place).note() == checksum
    }

    /// Remembers that it was.
    pub fn note_sound(&self, place: BlockPlace, checksum: u32) {
        self.slot(place).set_note(checksum);
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.slots.memory_bytes() + size_of::<Self>()
    }
}

/// A block that was fetched: from its slot, or a share of its own.
pub enum HeldBlock {
    /// Found in its slot. Cheap to take and to give back; meant to be held briefly.
    Slotted(Slotted<CachedBlock>),
    /// From the cache or the file.
    Shared(Arc<Cached<CachedBlock>>),
}

impl HeldBlock {
    /// The block; `None` never, but its type does not say so.
    #[inline]
    #[must_use]
    pub fn block(&self) -> Option<&Arc<Cached<CachedBlock>>> {
        match self {
            HeldBlock::Slotted(slotted) => slotted.as_ref(),
            HeldBlock::Shared(shared) => Some(shared),
        }
    }

    /// The block, to be held for long.
    #[must_use]
    pub fn into_shared(self) -> Option<Arc<Cached<CachedBlock>>> {
        match self {
            HeldBlock::Slotted(slotted) => Slotted::into_inner(slotted),
            HeldBlock::Shared(shared) => Some(shared),
        }
    }
}
