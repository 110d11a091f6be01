//! A data block as a point lookup gets it, and the search in it.
//!
//! `fetch` gives one to `reader` and `multi_get`. Most come from the cache. One that a full cache
//! does not keep is *passing*: it stays where it was read to, is searched there and let go, which
//! spares the copy, the memory and the eviction that a cached block costs. It is as sound as any
//! other: what is checked of a block, beside its checksum, is checked when it comes by for the
//! first time, and the directory remembers the checksum of what was found sound.

use crate::base::key::{Lookup, LookupKey, ValueKind, unpack_trailer};
use crate::base::sync::Arc;
use crate::base::value::{COPY_BYTES, Value};
use crate::cache::cached::Cached;
use crate::filter::hash::KeyHash;
use crate::table::block::block::Block;
use crate::table::block::check::{BlockKeys, BlockShape, check_entries};
use crate::table::block::view::{BlockView, Found};
use crate::table::cached_block::{BlockDirectory, BlockPlace, CachedBlock, HeldBlock};
use crate::table::read_block::ReadBlock;

/// A data block to look one key, or some, up in.
pub enum LookupBlock {
    /// In the cache, or shared with others that asked for it.
    Held(HeldBlock),
    /// Read for this lookup alone.
    Passing(PassingBlock),
}

/// A block where it was read to.
pub struct PassingBlock(ReadBlock);

impl PassingBlock {
    /// The block at `place`, checked unless the same was before. The error says what is wrong.
    pub fn new(
        read: ReadBlock,
        blocks: &BlockDirectory,
        place: BlockPlace,
    ) -> Result<Self, String> {
        let contents = read.contents();
        let shape = BlockShape::parse(contents, BlockKeys::Internal)?;
        let checksum = read.checksum();
        if !blocks.is_sound(place, checksum) {
            check_entries(contents, shape, |_| {})?;
            blocks.note_sound(place, checksum);
        }
        Ok(PassingBlock(read))
    }

    fn get(&self, key: &LookupKey) -> Option<Lookup> {
        let contents = self.0.contents();
        let shape = BlockShape::parse(contents, BlockKeys::Internal).ok()?;
        let Some(found) = BlockView::new(contents, shape).get(key) else {
            return Some(Lookup::Absent);
        };
        lookup_of(found, || {
            let end = found.value_start.checked_add(found.value_len)?;
            contents.get(found.value_start..end).map(Value::from)
        })
    }
}

impl LookupBlock {
    /// What the block knows of a key; `None` if it is no data block. Not inlined, so that single
    /// and batched lookups share one copy with all below it in line: with two, nothing below is,
    /// and a hit takes 4 % more instructions.
    #[inline(never)]
    pub fn search(&self, key: &LookupKey, hash: &KeyHash<'_>) -> Option<Lookup> {
        let cached = match self {
            LookupBlock::Held(held) => held.block()?,
            LookupBlock::Passing(block) => return block.get(key),
        };
        let Some(found) = cached.data()?.get(key, hash.xxph3()) else {
            return Some(Lookup::Absent);
        };
        lookup_of(found, || value_in(cached, found.value_start, found.value_len))
    }
}

#[inline]
fn lookup_of(found: Found, value: impl FnOnce() -> Option<Value>) -> Option<Lookup> {
    match unpack_trailer(found.trailer)? {
        (_, ValueKind::Tombstone) => Some(Lookup::Deleted),
        (_, ValueKind::Put) => value().map(Lookup::Found),
    }
}

/// The value at a place of a data block: a copy up to [`COPY_BYTES`], else it shares the block.
#[inline]
fn value_in(cached: &Arc<Cached<CachedBlock>>, start: usize, len: usize) -> Option<Value> {
    if len <= COPY_BYTES {
        let contents = cached.data().map(Block::contents)?;
        return contents.get(start..start.checked_add(len)?).map(Value::from);
    }
    Value::from_shared(cached, start, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::put_internal_key;
    use crate::table::block::builder::BlockBuilder;
    use crate::table::format::{BlockHandle, BlockIdentity, BlockKind, Compression};
    use crate::table::index::Index;
    use crate::table::index_builder::IndexBuilder;

    /// A block of two keys as it is read; its first entry claims to share so many bytes.
    fn block(shared: u8) -> ReadBlock {
        let mut builder = BlockBuilder::data(16, true);
        let mut key = Vec::new();
        for user in [b"deck", b"dock"] {
            key.clear();
            put_internal_key(&mut key, user, 1, ValueKind::Put);
            builder.add(&key, b"value");
        }
        let mut contents = builder.finish().to_vec();
        contents[0] = shared;
        let identity = BlockIdentity { table_id: 1, offset: 0, kind: BlockKind::Data };
        let trailer = identity.trailer(&contents, Compression::None);
        let mut read = ReadBlock::new(contents.len() + trailer.len());
        read.stored_mut().copy_from_slice(&[&contents[..], &trailer].concat());
        read
    }

    /// The search would not notice what is wrong.
    #[test]
    fn an_uncached_block_is_checked_once() {
        let mut index = IndexBuilder::default();
        let mut last = Vec::new();
        put_internal_key(&mut last, b"dock", 1, ValueKind::Put);
        index.push(&last, None, BlockHandle { offset: 0, size: 40 });
        let index = Index::new(index.build(), index.user_keys_suffice(), 1000).unwrap();
        let blocks = BlockDirectory::new(index);
        let place = blocks.place(0).unwrap();
        let key = LookupKey::new(b"dock", 9);
        for (shared, sound) in [(1, false), (0, true), (1, false), (0, true)] {
            match PassingBlock::new(block(shared), &blocks, place) {
                Ok(block) => {
                    let found = block.get(&key);
                    assert!(sound && found == Some(Lookup::Found(Value::from(&b"value"[..]))));
                }
                Err(what) => assert!(!sound && what.contains("shares a prefix"), "{what}"),
            }
            assert_eq!(blocks.is_sound(place, block(shared).checksum()), sound);
        }
    }
}
