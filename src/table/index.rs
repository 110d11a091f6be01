//! A table's index: from a key to the block that may hold it, and to that block in memory.
//!
//! On disk an index is one block whose keys share no prefixes: `separator -> handle`. Each
//! separator is at or above every key of its block and below every key of the next. Separators are
//! user keys where no user key is in two adjacent blocks, else internal keys; a property says
//! which. The data index and the top-level index of filter partitions have this form.
//! [`IndexBuilder`] writes it.
//!
//! In memory, the head of a key is its first 8 bytes after the prefix that all share; the keys
//! themselves are compared only where heads tie. Next to each head is the cache slot of its block,
//! four to a cache line ([`Slots`]). So a search touches a small array of every fourth head, which
//! stays in the processor's caches, and one line more, which has the pointer to the block too. A
//! cached block is found there without the lock and the search that the cache takes, and without
//! its handle. Handles are checked at load: each is in the file's data area, after the one before,
//! so an iteration over them ends.

use crate::base::coding::{Decoder, get_u32};
use crate::base::key::{
    LookupKey, common_prefix, compare_internal, key_head, put_key_with_trailer, separator,
    split_internal_key, user_key,
};
use crate::base::sync::Arc;
use crate::cache::cache::Cache;
use crate::cache::cached::{Cached, GROUP_SLOTS, SlotRef, Slots};
use crate::table::block::builder::BlockBuilder;
use crate::table::block::directory::HashedBlock;
use crate::table::format::BlockHandle;
use siftdb_filter::cache_line::{AlignedBytes, LINE_BYTES};
use std::cmp::Ordering;

/// The block cache of a database.
pub(crate) type BlockCache = Cache<CachedBlock>;

/// A block as the cache holds it. It is in the file of the index, since each refers to the other.
// Almost all are data blocks, and a box would be a miss more.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum CachedBlock {
    /// Entries of a table.
    Data(HashedBlock),
    /// The data index or a partition of it, or the top-level index of filter partitions. Boxed,
    /// since it is large and data blocks are many.
    Index(Box<Index>),
    /// A filter or a partition of one, as written.
    Filter(AlignedBytes),
}

/// What a lookup touches of a data block in front of its directory is one line. Both types have the
/// same size, so one begins where the other does.
const _: () = assert!(
    cfg!(any(feature = "interleavings", not(target_pointer_width = "64")))
        || (Cached::<CachedBlock>::VALUE_OFFSET + HashedBlock::NEAR_OFFSET == LINE_BYTES
            && size_of::<CachedBlock>() == size_of::<HashedBlock>()),
    "a lookup touches another cache line"
);

impl CachedBlock {
    /// The data block, if it is one.
    #[inline]
    pub(crate) fn data(&self) -> Option<&HashedBlock> {
        match self {
            CachedBlock::Data(block) => Some(block),
            _ => None,
        }
    }

    /// The index, if it is one.
    #[inline]
    pub(crate) fn index(&self) -> Option<&Index> {
        match self {
            CachedBlock::Index(index) => Some(index),
            _ => None,
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            CachedBlock::Data(block) => block.heap_bytes(),
            CachedBlock::Index(index) => index.memory_bytes(),
            CachedBlock::Filter(bytes) => bytes.len(),
        }
    }
}

/// Large values share their data block through this.
impl AsRef<[u8]> for CachedBlock {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.data().map_or(&[], |block| block.memory())
    }
}

/// A block as an index names it: its position in the index. Where it is in the file is another
/// question ([`Index::handle_of`]), which a lookup in a cached block does not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry(usize);

impl IndexEntry {
    /// Its position in the index.
    #[inline]
    pub(crate) fn position(self) -> usize {
        self.0
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    /// The entries of the block.
    contents: Vec<u8>,
    keys_are_user_keys: bool,
    /// The bytes that all user keys begin with.
    common: Box<[u8]>,
    /// The largest head of each group of slots. The head of a user key are the 8 bytes after
    /// `common`, big-endian and zero-padded: heads order the keys where they differ.
    group_heads: Box<[u64]>,
    /// Start and length of each key in `contents`. A value follows, which begins with the handle.
    keys: Box<[(u32, u32)]>,
    slots: Arc<Slots<CachedBlock>>,
}

impl Index {
    /// Reads an index block whose handles must lie in the first `limit` bytes of the file. The
    /// error says what is wrong.
    pub(crate) fn new(
        contents: Vec<u8>,
        keys_are_user_keys: bool,
        limit: u64,
    ) -> Result<Self, String> {
        let entries = without_restarts(contents)?;
        Index::of_entries(entries, keys_are_user_keys, limit, BlockHandle::decode)
    }

    /// An index of the entries of one or more blocks. Their values begin with handles, which
    /// `handle_in` takes from them.
    pub(crate) fn of_entries(
        mut contents: Vec<u8>,
        keys_are_user_keys: bool,
        limit: u64,
        mut handle_in: impl FnMut(&[u8]) -> Option<BlockHandle>,
    ) -> Result<Self, String> {
        let mut index = Index {
            contents: Vec::new(),
            keys_are_user_keys,
            common: Box::default(),
            group_heads: Box::default(),
            keys: Box::default(),
            slots: Slots::new(std::iter::empty()),
        };
        let mut keys = Vec::new();
        let mut decoder = Decoder::new(&contents);
        let mut last: Option<&[u8]> = None;
        let mut file_position = 0;
        while !decoder.is_empty() {
            let wrong = |what: &str| format!("{what} in entry {} of the index", keys.len());
            let header = (decoder.varint32(), decoder.varint32(), decoder.varint32());
            let (Some(shared), Some(key_len), Some(value_len)) = header else {
                return Err(wrong("malformed lengths"));
            };
            let start = decoder.position() as u32;
            let (Some(key), Some(value)) =
                (decoder.bytes(key_len as usize), decoder.bytes(value_len as usize))
            else {
                return Err(wrong("lengths beyond the block"));
            };
            if shared != 0 {
                return Err(wrong("shared prefix"));
            }
            let handle = handle_in(value).ok_or_else(|| wrong("malformed handle"))?;
            if !handle.lies_within(limit) || handle.offset < file_position {
                return Err(wrong("handle outside the file or not after the one before it"));
            }
            file_position = handle.end().unwrap_or(u64::MAX);
            if !keys_are_user_keys && split_internal_key(key).is_none() {
                return Err(wrong("key shorter than its trailer"));
            }
            if last.is_some_and(|last| index.compare_keys(last, key) != Ordering::Less) {
                return Err(wrong("key out of order"));
            }
            last = Some(key);
            keys.push((start, key_len));
        }
        contents.shrink_to_fit();
        (index.contents, index.keys) = (contents, keys.into());
        let last = index.len().saturating_sub(1);
        let common = common_prefix(index.user_key(0), index.user_key(last));
        index.common = index.user_key(0).get(..common).unwrap_or_default().into();
        let head = |i| key_head(index.user_key(i).get(common..).unwrap_or_default());
        index.slots = Slots::new((0..index.len()).map(head));
        index.group_heads = index.slots.group_heads().collect();
        Ok(index)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Where block `i` is in the file; `None` beyond the last.
    pub(crate) fn handle(&self, i: usize) -> Option<BlockHandle> {
        let &(start, len) = self.keys.get(i)?;
        let mut value = Decoder::new(self.contents.get(start as usize + len as usize..)?);
        Some(BlockHandle { offset: value.varint()?, size: value.varint()? })
    }

    /// Where a block is in the file.
    pub(crate) fn handle_of(&self, entry: IndexEntry) -> BlockHandle {
        // Only `entry` makes one, of a block that this index names. The handle of another index's
        // block lies in no file.
        self.handle(entry.0).unwrap_or(BlockHandle { offset: u64::MAX, size: 0 })
    }

    /// The handles of all blocks.
    pub(crate) fn handles(&self) -> impl Iterator<Item = BlockHandle> {
        (0..self.len()).map_while(|i| self.handle(i))
    }

    /// The block at `position`; `None` beyond the last.
    #[inline]
    pub(crate) fn entry(&self, position: usize) -> Option<IndexEntry> {
        (position < self.len()).then_some(IndexEntry(position))
    }

    /// The slot of a block.
    #[inline]
    pub(crate) fn slot(&self, entry: IndexEntry) -> SlotRef<'_, CachedBlock> {
        self.slots.slot(entry.0)
    }

    /// The separator of block `i` as stored, a user key or an internal key; empty beyond the end.
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let Some(&(start, len)) = self.keys.get(i) else { return &[] };
        let (start, len) = (start as usize, len as usize);
        self.contents.get(start..start + len).unwrap_or_default()
    }

    /// The only block that can hold what a lookup wants; `None` if the key is above all blocks.
    #[inline]
    pub(crate) fn find(&self, key: &LookupKey) -> Option<IndexEntry> {
        self.entry(self.lower_bound(key.user_key(), key.trailer()))
    }

    /// The first block whose separator is at or above the internal key `bound`; `len` if none is.
    pub(crate) fn seek(&self, bound: &[u8]) -> usize {
        let (user_key, trailer) = split_internal_key(bound).unwrap_or((bound, u64::MAX));
        self.lower_bound(user_key, trailer)
    }

    /// Whether an entry with this internal key may be in block `i`, by the separator of block `i`.
    #[cfg(test)]
    pub(crate) fn reaches(&self, i: usize, internal_key: &[u8]) -> bool {
        let (user_key, trailer) =
            split_internal_key(internal_key).unwrap_or((internal_key, u64::MAX));
        i < self.len() && !self.is_below(i, user_key, trailer)
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.contents.capacity()
            + self.common.len()
            + size_of_val(&*self.group_heads)
            + size_of_val(&*self.keys)
            + self.slots.memory_bytes()
            + size_of::<Self>()
    }

    /// The first block whose separator is at or above an internal key.
    // Not inlined, so that `find` is: it is small and returns much.
    #[inline(never)]
    fn lower_bound(&self, user_key: &[u8], trailer: u64) -> usize {
        // What is common is short, as a rule: a call to compare it would cost more.
        let same = common_prefix(user_key, &self.common);
        let wanted = match user_key.get(same..) {
            Some(rest) if same == self.common.len() => key_head(rest),
            // The wanted key does not begin with what all have in common, so it is below or above
            // all of them.
            _ if user_key < &*self.common => return 0,
            _ => return self.len(),
        };
        let group = self.group_heads.partition_point(|&head| head < wanted);
        let low = self.slots.first_at_or_above(group, wanted);
        if low == self.len() || self.slots.head(low) != wanted {
            return low;
        }
        self.lower_bound_of_ties(low, wanted, user_key, trailer)
    }

    /// The same where the head of block `low` is that of the wanted key, and no head before it.
    #[inline(never)]
    fn lower_bound_of_ties(
        &self,
        mut low: usize,
        wanted: u64,
        user_key: &[u8],
        trailer: u64,
    ) -> usize {
        // Up to where whole groups end with the wanted head, then within the group after them.
        let group = self.group_heads.partition_point(|&head| head <= wanted);
        let mut high = (GROUP_SLOTS * group).clamp(low, self.len());
        while high < self.len() && self.slots.head(high) == wanted {
            high += 1;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_below(middle, user_key, trailer) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether separator `i` is below the internal key. A user key as separator is above every
    /// version of that key.
    fn is_below(&self, i: usize, user_key: &[u8], trailer: u64) -> bool {
        if self.keys_are_user_keys {
            return self.key(i) < user_key;
        }
        let Some((own, own_trailer)) = split_internal_key(self.key(i)) else {
            return false;
        };
        own.cmp(user_key).then(trailer.cmp(&own_trailer)) == Ordering::Less
    }

    /// The separator of block `i` as a user key; empty beyond the end.
    pub(crate) fn user_key(&self, i: usize) -> &[u8] {
        self.user_part(self.key(i))
    }

    fn user_part<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        if self.keys_are_user_keys {
            return key;
        }
        split_internal_key(key).map_or(key, |(user_key, _)| user_key)
    }

    fn compare_keys(&self, a: &[u8], b: &[u8]) -> Ordering {
        if self.keys_are_user_keys { a.cmp(b) } else { compare_internal(a, b) }
    }
}

/// The entries of an index block, which a reader finds without its restart points.
pub(crate) fn without_restarts(mut contents: Vec<u8>) -> Result<Vec<u8>, String> {
    let entries_end = || {
        let end = contents.len().checked_sub(4)?;
        let restarts = get_u32(&contents, end)? as usize;
        end.checked_sub(restarts.checked_mul(4)?)
    };
    let end = entries_end().ok_or("index with a malformed restart array")?;
    contents.truncate(end);
    Ok(contents)
}

/// The approximate bytes of an entry besides its key: lengths, handle, restart point.
const ENTRY_BYTES: usize = 24;

/// Builds the data index: one separator and handle per data block.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    /// Separators as internal keys: only the end shows whether user keys suffice.
    keys: Vec<u8>,
    /// End of each key in `keys`.
    ends: Vec<usize>,
    need_internal_keys: bool,
}

impl IndexBuilder {
    /// The next block ends with `last`, the following begins with `next`.
    pub(crate) fn push(&mut self, last: &[u8], next: Option<&[u8]>) {
        match next {
            // The versions of one user key continue in the next block: only the last key itself is
            // between the two blocks.
            Some(next) if user_key(next) == user_key(last) => {
                self.need_internal_keys = true;
                self.keys.extend_from_slice(last);
            }
            // Trailer 0 sorts after every version of the separator.
            Some(next) => {
                let short = separator(user_key(last), user_key(next));
                put_key_with_trailer(&mut self.keys, &short, 0);
            }
            None => put_key_with_trailer(&mut self.keys, user_key(last), 0),
        }
        self.ends.push(self.keys.len());
    }

    /// About the size of the block so far.
    pub(crate) fn estimated_bytes(&self) -> usize {
        self.keys.len() + self.ends.len() * ENTRY_BYTES
    }

    /// Whether separators can be user keys: no user key is in two adjacent blocks.
    pub(crate) fn user_keys_suffice(&self) -> bool {
        !self.need_internal_keys
    }

    /// Separators so far.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The separator of block `i` as the index will have it; empty beyond the end.
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        if self.user_keys_suffice() { self.user_key(i) } else { self.internal_key(i) }
    }

    /// The separator of block `i` as a user key.
    pub(crate) fn user_key(&self, i: usize) -> &[u8] {
        user_key(self.internal_key(i))
    }

    fn internal_key(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let Some(&end) = self.ends.get(i) else { return &[] };
        self.keys.get(start.unwrap_or(0)..end).unwrap_or_default()
    }

    /// The index of the data blocks at `handles`, as one block.
    pub(crate) fn build(&self, handles: &[BlockHandle]) -> Vec<u8> {
        self.build_from(0, handles, usize::MAX).0
    }

    /// An index block of about `bytes_max` at most, for the data blocks from number `first` on, and
    /// how many it names: at least one.
    pub(crate) fn build_from(
        &self,
        first: usize,
        handles: &[BlockHandle],
        bytes_max: usize,
    ) -> (Vec<u8>, usize) {
        let mut builder = BlockBuilder::new(1);
        let mut value = Vec::new();
        debug_assert_eq!(self.len(), handles.len(), "one for each block");
        for (i, handle) in handles.iter().enumerate().skip(first) {
            let key = self.key(i);
            if i > first && builder.estimated_bytes() + key.len() + ENTRY_BYTES > bytes_max {
                break;
            }
            value.clear();
            handle.encode(&mut value);
            builder.add(key, &value);
        }
        let blocks = builder.entries;
        (builder.finish().to_vec(), blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    fn built(keys: &[Vec<u8>], handle: impl Fn(usize) -> BlockHandle) -> Vec<u8> {
        let mut builder = BlockBuilder::new(1);
        for (i, key) in keys.iter().enumerate() {
            let mut value = Vec::new();
            handle(i).encode(&mut value);
            builder.add(key, &value);
        }
        builder.finish().to_vec()
    }

    fn contiguous(i: usize) -> BlockHandle {
        BlockHandle { offset: 105 * i as u64, size: 100 }
    }

    fn user_keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let letter = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xff)];
        let prefix = prop_oneof![Just(&b""[..]), Just(&b"a common prefix of 24 by"[..])];
        (prefix, btree_set(vec(letter, 0..14), 1..60)).prop_map(|(prefix, tails)| {
            tails.into_iter().map(|tail| [prefix, &tail].concat()).collect()
        })
    }

    proptest! {
        #[test]
        fn index_search_agrees_with_a_scan(
            keys in user_keys(),
            others in user_keys(),
            keys_are_user_keys: bool,
            versions in 1u64..4,
        ) {
            let mut stored = Vec::new();
            for key in &keys {
                for version in (0..versions).rev() {
                    let mut bytes = key.clone();
                    if !keys_are_user_keys {
                        bytes.clear();
                        put_key_with_trailer(&mut bytes, key, version * 512);
                    } else if version > 0 {
                        continue;
                    }
                    stored.push(bytes);
                }
            }
            let contents = built(&stored, contiguous);
            let index = Index::new(contents, keys_are_user_keys, u64::MAX).unwrap();
            prop_assert_eq!(index.len(), stored.len());
            for user in keys.iter().chain(&others) {
                for sequence in 0..6 {
                    let key = LookupKey::new(user, sequence);
                    let at_or_above = |i: &usize| {
                        if keys_are_user_keys {
                            index.key(*i) >= &user[..]
                        } else {
                            compare_internal(index.key(*i), key.internal_key()).is_ge()
                        }
                    };
                    let expected = (0..index.len()).find(at_or_above);
                    prop_assert_eq!(index.find(&key), expected.and_then(|i| index.entry(i)));
                    let sought = index.seek(key.internal_key());
                    prop_assert_eq!(sought, expected.unwrap_or(index.len()));
                    if let Some(i) = expected {
                        prop_assert_eq!(index.handle(i), Some(contiguous(i)));
                        prop_assert!(index.reaches(i, key.internal_key()));
                    }
                }
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, user: bool, limit: u64) {
            if let Ok(index) = Index::new(bytes, user, limit) {
                let _ = index.find(&LookupKey::new(b"key", 1));
            }
        }
    }

    #[test]
    fn hostile_handles_and_keys_are_refused() {
        let keys = vec![b"a".to_vec(), b"b".to_vec()];
        let refused = |handles: [(u64, u64); 2], limit| {
            let handle = |i: usize| BlockHandle { offset: handles[i].0, size: handles[i].1 };
            Index::new(built(&keys, handle), true, limit).is_err()
        };
        assert!(!refused([(0, 10), (15, 10)], 30));
        assert!(refused([(0, 10), (15, 10)], 29), "beyond the file");
        assert!(refused([(0, 10), (14, 10)], 30), "overlapping");
        assert!(refused([(15, 10), (0, 10)], 30), "backwards");
        assert!(refused([(0, 10), (u64::MAX - 4, 10)], u64::MAX), "overflow");
        assert!(refused([(0, 10), (15, 2 << 30)], u64::MAX), "larger than any block");
        let unordered = vec![b"b".to_vec(), b"b".to_vec()];
        assert!(Index::new(built(&unordered, contiguous), true, 1000).is_err());
        assert!(Index::new(built(&keys, contiguous), false, 1000).is_err(), "no trailers");
        let mut sharing = BlockBuilder::new(16);
        sharing.add(b"ka", &[0, 10]);
        sharing.add(b"kb", &[15, 10]);
        assert!(Index::new(sharing.finish().to_vec(), true, 1000).is_err(), "shared prefix");
        let empty = Index::new(built(&[], contiguous), true, 1000).unwrap();
        assert_eq!(empty.find(&LookupKey::new(b"", 1)), None);
    }

    fn key(user: &str, sequence: u64) -> Vec<u8> {
        let mut key = Vec::new();
        put_internal_key(&mut key, user.as_bytes(), sequence, ValueKind::Put);
        key
    }

    fn pushed(blocks: &[(Vec<u8>, Vec<u8>)]) -> Index {
        let mut builder = IndexBuilder::default();
        for (i, (_, last)) in blocks.iter().enumerate() {
            let next = blocks.get(i + 1).map(|(first, _)| &first[..]);
            builder.push(last, next);
        }
        let handle = |i| BlockHandle { offset: 100 * i as u64, size: 95 };
        let handles: Vec<_> = (0..blocks.len()).map(handle).collect();
        Index::new(builder.build(&handles), builder.user_keys_suffice(), 1000).unwrap()
    }

    #[test]
    fn separators_are_short_user_keys() {
        let index = pushed(&[
            (key("aardvark", 1), key("abacus", 1)),
            (key("mammoth", 1), key("mamm\u{f8}", 1)),
            (key("zebra", 9), key("zebra", 2)),
        ]);
        let keys: Vec<_> = (0..3).map(|i| index.key(i).escape_ascii().to_string()).collect();
        assert_eq!(keys, ["b", "n", "zebra"]);
    }

    #[test]
    fn versions_are_found_across_blocks() {
        let index = pushed(&[
            (key("a", 1), key("k", 8)),
            (key("k", 7), key("k", 5)),
            (key("k", 4), key("m", 1)),
        ]);
        for (sequence, block) in [(9, 0), (8, 0), (7, 1), (6, 1), (5, 1), (4, 2), (1, 2)] {
            let found = index.find(&LookupKey::new(b"k", sequence));
            assert_eq!(found.map(IndexEntry::position), Some(block), "at {sequence}");
        }
        assert_eq!(index.find(&LookupKey::new(b"n", 1)), None);
    }
}
