//! A block that a reader holds, and what it knows of a key.
//!
//! [`BlockRef`] is what `table/fetch.rs` answers: a block found in its slot, a share of a cached
//! block, or an uncached data block. An uncached block stays in the file, if that is in memory, or
//! in the buffer that it was read to, is searched there and dropped. That saves the copy, the
//! memory and the eviction that a cached block costs.

use crate::base::key::{Lookup, LookupKey, SequenceNumber, ValueKind, unpack_trailer};
use crate::base::sync::Arc;
use crate::base::value::{COPY_BYTES, Value};
use crate::cache::cache::Fetched;
use crate::cache::cached::Cached;
use crate::table::block::block::{Block, Found};
use crate::table::block::buffer::BlockBuffer;
use crate::table::block::directory::HashedBlock;
use crate::table::format::fingerprint_of;
use crate::table::index::{CachedBlock, Index};
use siftdb_filter::cache_line::AlignedBytes;
use siftdb_filter::hash::KeyHash;

/// A block that a reader holds.
pub(crate) type BlockRef<'f> = Fetched<CachedBlock, Block<BlockBuffer<'f>>>;

impl BlockRef<'_> {
    /// The block in the type of the cache; `None` for an uncached one.
    #[inline]
    pub(crate) fn cached(&self) -> Option<&Arc<Cached<CachedBlock>>> {
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
    pub(crate) fn filter(&self) -> Option<&AlignedBytes> {
        match &***self.cached()? {
            CachedBlock::Filter(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The same block in memory of its own: neither in the thread's buffer, which is for the next
    /// block that it reads, nor in a file.
    #[inline]
    pub(crate) fn for_long(self) -> BlockRef<'static> {
        match self {
            Fetched::Slotted(slotted) => Fetched::Slotted(slotted),
            other => Fetched::Shared(other.into_shared()),
        }
    }

    /// The block, to be held for long and iterated over.
    pub(crate) fn into_shared(self) -> Arc<Cached<CachedBlock>> {
        match self {
            Fetched::Slotted(slotted) => slotted.into_shared(),
            Fetched::Shared(cached) => cached,
            // The buffer is the thread's, for the next block that it reads.
            Fetched::Uncached(block) => {
                Cached::uncached(CachedBlock::Data(HashedBlock::of_uncached(&block)))
            }
        }
    }

    /// What the block knows of a key; `None` if it is no data block. A range delete with the
    /// sequence `floor` covers the key, unless it is 0.
    // Inlined with everything below it into its one caller on the way of a single lookup: the calls
    // would be a twentieth of it.
    #[inline(always)]
    pub(crate) fn search(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        floor: SequenceNumber,
    ) -> Option<Lookup> {
        let cached = match self {
            Fetched::Slotted(slotted) => slotted.cached(),
            Fetched::Shared(cached) => cached,
            Fetched::Uncached(block) => {
                return search_uncached(block, key, fingerprint_of(hash.xxph3()), floor);
            }
        };
        let block = cached.data()?;
        let Some(found) = block.get(key, hash.xxph3()) else { return Some(not_found(floor)) };
        let Some(expires) = put_of(&found, floor)? else { return Some(Lookup::Deleted) };
        let (start, len) = (found.value_start, found.value_len);
        let stored = match len <= COPY_BYTES {
            true => Value::from(block.memory().get(start..start.checked_add(len)?)?),
            // A larger value shares the block.
            false => Value::from_shared(cached, start, len)?,
        };
        Some(Lookup::Found { stored, expires })
    }
}

/// [`BlockRef::search`] in an uncached block, which has no directory.
#[inline(never)]
fn search_uncached(
    block: &Block<BlockBuffer<'_>>,
    key: &LookupKey,
    fingerprint: u8,
    floor: SequenceNumber,
) -> Option<Lookup> {
    let found = block.borrowed().get_by_order(key, fingerprint);
    let Some(found) = found else { return Some(not_found(floor)) };
    let Some(expires) = put_of(&found, floor)? else { return Some(Lookup::Deleted) };
    let (start, len) = (found.value_start, found.value_len);
    let stored = Value::from(block.contents().get(start..start.checked_add(len)?)?);
    Some(Lookup::Found { stored, expires })
}

/// The answer if a table has no version of a key: the range delete `floor` deletes older ones,
/// unless it is 0.
#[inline]
pub(crate) fn not_found(floor: SequenceNumber) -> Lookup {
    if floor == 0 { Lookup::Absent } else { Lookup::Deleted }
}

/// Whether the put that was found expires; inside `None` if the key is deleted. `None` if the
/// trailer is of no kind.
#[inline(always)]
fn put_of(found: &Found, floor: SequenceNumber) -> Option<Option<bool>> {
    let (sequence, kind) = unpack_trailer(found.trailer)?;
    // All other versions are older than the range delete.
    let is_deleted = sequence < floor || kind == ValueKind::Tombstone;
    Some((!is_deleted).then_some(kind == ValueKind::ExpiringPut))
}
