//! A block that a reader got, and the point lookup in it.
//!
//! [`BlockRef`] is the cache's answer for a table: a block found in its slot, a share of a cached
//! block, or an uncached data block. An uncached block stays in the buffer that it was read to, is
//! searched there and dropped. That saves the copy, the memory and the eviction that a cached block
//! costs.

use crate::base::key::{Lookup, LookupKey, ValueKind, unpack_trailer};
use crate::base::sync::Arc;
use crate::base::value::{COPY_BYTES, Value};
use crate::cache::cache::Fetched;
use crate::cache::cached::Cached;
use crate::filter::hash::KeyHash;
use crate::table::block::block::{Block, Found};
use crate::table::block::buffer::BlockBuffer;
use crate::table::index::{CachedBlock, Index};

/// A block that a reader holds.
pub(crate) type BlockRef = Fetched<CachedBlock, Block<BlockBuffer>>;

impl BlockRef {
    /// The block in the type of the cache; `None` for an uncached one.
    #[inline]
    fn cached(&self) -> Option<&Arc<Cached<CachedBlock>>> {
        match self {
            Fetched::Slotted(slotted) => Some(slotted.cached()),
            Fetched::Shared(cached) => Some(cached),
            Fetched::Uncached(_) => None,
        }
    }

    /// The index, if it is one.
    #[inline]
    pub(crate) fn index(&self) -> Option<&Index> {
        match &***self.cached()? {
            CachedBlock::Index(index) => Some(index),
            _ => None,
        }
    }

    /// The filter, if it is one.
    #[inline]
    pub(crate) fn filter(&self) -> Option<&Arc<[u8]>> {
        match &***self.cached()? {
            CachedBlock::Filter(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The block, to be held for long and iterated over.
    pub(crate) fn into_shared(self) -> Arc<Cached<CachedBlock>> {
        match self {
            Fetched::Slotted(slotted) => slotted.into_shared(),
            Fetched::Shared(cached) => cached,
            // The buffer is the thread's, for the next block that it reads.
            Fetched::Uncached(block) => Cached::uncached(CachedBlock::Data(block.to_owned_block())),
        }
    }

    /// What the block knows of a key; `None` if it is no data block.
    // Not inlined, so that single and batched lookups share one copy with everything below it
    // inlined. With two copies nothing below is inlined, and a hit takes 4 % more instructions.
    #[inline(never)]
    pub(crate) fn search(&self, key: &LookupKey, hash: &KeyHash<'_>) -> Option<Lookup> {
        let Some(cached) = self.cached() else {
            let Fetched::Uncached(block) = self else { return None };
            let found = block.get(key, hash.xxph3());
            return lookup_of(found, |start, len| copied(block.contents(), start, len));
        };
        let block = cached.data()?;
        lookup_of(block.get(key, hash.xxph3()), |start, len| match len <= COPY_BYTES {
            true => copied(block.contents(), start, len),
            // A larger value shares the block.
            false => Value::from_shared(cached, start, len),
        })
    }
}

#[inline]
fn lookup_of(
    found: Option<Found>,
    value: impl FnOnce(usize, usize) -> Option<Value>,
) -> Option<Lookup> {
    let Some(found) = found else { return Some(Lookup::Absent) };
    match unpack_trailer(found.trailer)? {
        (_, ValueKind::Tombstone) => Some(Lookup::Deleted),
        (_, ValueKind::Put) => value(found.value_start, found.value_len).map(Lookup::Found),
    }
}

#[inline]
fn copied(block: &[u8], start: usize, len: usize) -> Option<Value> {
    block.get(start..start.checked_add(len)?).map(Value::from)
}
