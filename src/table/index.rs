//! A table's index in memory: from a key to the block that may hold it.
//!
//! On disk an index is one block whose keys share no prefixes: `separator -> handle`, each
//! separator at or above every key of its block and below every key of the next. Separators are
//! user keys where no user key stands in two adjacent blocks, else internal keys; a property says
//! which. Both the data index and the top-level index of filter partitions have this form.
//!
//! In memory, the first 8 bytes of each key behind the prefix that all share stand in one flat
//! array; the keys themselves are looked at only where those tie. Handles are checked at load: in
//! the file's data area, each behind the one before, so a walk over them ends.

use crate::base::coding::{Decoder, get_u32};
use crate::base::key::common_prefix;
use crate::base::key::{LookupKey, compare_internal, key_head, split_internal_key};
use crate::table::format::BlockHandle;
use std::cmp::Ordering;

/// A decoded index. Entries are named by their position.
#[derive(Debug)]
pub struct Index {
    contents: Vec<u8>,
    keys_are_user_keys: bool,
    /// Bytes that all user keys begin with.
    common: usize,
    /// Big-endian, zero-padded: their order is that of the keys where they differ.
    prefixes: Vec<u64>,
    keys: Vec<KeyPlace>,
    offsets: Vec<u64>,
    sizes: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct KeyPlace {
    start: u32,
    len: u32,
}

impl Index {
    /// Reads an index block whose handles must lie in the first `limit` bytes of the file. The
    /// error says what is wrong.
    pub fn new(contents: Vec<u8>, keys_are_user_keys: bool, limit: u64) -> Result<Self, String> {
        let entries_end = entries_end(&contents).ok_or("index with a malformed restart array")?;
        // A restart point each; that many fit the block, so there is no more than it is long.
        let restarts = (contents.len() - entries_end) / 4;
        let mut index = Index {
            contents: Vec::new(),
            keys_are_user_keys,
            common: 0,
            prefixes: Vec::new(),
            keys: Vec::with_capacity(restarts),
            offsets: Vec::with_capacity(restarts),
            sizes: Vec::with_capacity(restarts),
        };
        let mut decoder = Decoder::new(contents.get(..entries_end).unwrap_or_default());
        let mut last: Option<&[u8]> = None;
        let mut file_position = 0;
        while !decoder.is_empty() {
            let wrong = |what: &str| format!("{what} in entry {} of the index", index.keys.len());
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
            let handle = BlockHandle::decode(value).ok_or_else(|| wrong("malformed handle"))?;
            if !handle.lies_within(limit) || handle.offset < file_position {
                return Err(wrong("handle outside the file or not behind the one before it"));
            }
            file_position = handle.end().unwrap_or(u64::MAX);
            if !keys_are_user_keys && split_internal_key(key).is_none() {
                return Err(wrong("key shorter than its trailer"));
            }
            if last.is_some_and(|last| index.compare_keys(last, key) != Ordering::Less) {
                return Err(wrong("key out of order"));
            }
            last = Some(key);
            index.keys.push(KeyPlace { start, len: key_len });
            index.offsets.push(handle.offset);
            index.sizes.push(handle.size as u32);
        }
        index.contents = contents;
        index.fill_prefixes();
        Ok(index)
    }

    fn fill_prefixes(&mut self) {
        let last = self.len().saturating_sub(1);
        self.common = common_prefix(self.user_key(0), self.user_key(last));
        self.prefixes = (0..self.len())
            .map(|i| key_head(self.user_key(i).get(self.common..).unwrap_or_default()))
            .collect();
    }

    /// Number of blocks.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The handle of block `i`.
    #[inline]
    #[must_use]
    pub fn handle(&self, i: usize) -> Option<BlockHandle> {
        let (&offset, &size) = (self.offsets.get(i)?, self.sizes.get(i)?);
        Some(BlockHandle { offset, size: u64::from(size) })
    }

    /// The separator of block `i` as stored, a user key or an internal key; empty beyond the end.
    #[must_use]
    pub fn key(&self, i: usize) -> &[u8] {
        let place = self.keys.get(i).map(|key| (key.start as usize, key.len as usize));
        place.and_then(|(start, len)| self.contents.get(start..start + len)).unwrap_or_default()
    }

    /// The only block that can hold what a lookup wants; `None` if the key is above all blocks.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &LookupKey) -> Option<usize> {
        let i = self.lower_bound(key.user_key(), key.trailer());
        (i < self.len()).then_some(i)
    }

    /// The first block whose separator is at or above the internal key `bound`; `len` if none is.
    #[must_use]
    pub fn seek(&self, bound: &[u8]) -> usize {
        let (user_key, trailer) = split_internal_key(bound).unwrap_or((bound, u64::MAX));
        self.lower_bound(user_key, trailer)
    }

    /// Whether an entry with this internal key may stand in block `i`, as far as block `i`'s
    /// separator says.
    #[cfg(test)]
    #[must_use]
    pub fn reaches(&self, i: usize, internal_key: &[u8]) -> bool {
        let (user_key, trailer) =
            split_internal_key(internal_key).unwrap_or((internal_key, u64::MAX));
        i < self.len() && !self.is_below(i, user_key, trailer)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.contents.capacity()
            + 8 * self.prefixes.capacity()
            + 8 * self.keys.capacity()
            + 8 * self.offsets.capacity()
            + 4 * self.sizes.capacity()
            + size_of::<Self>()
    }

    #[inline]
    fn lower_bound(&self, user_key: &[u8], trailer: u64) -> usize {
        let shared = self.user_key(0).get(..self.common).unwrap_or_default();
        let wanted = match user_key.split_at_checked(self.common) {
            Some((head, rest)) if head == shared => key_head(rest),
            // All keys are on one side of the wanted one.
            _ if user_key < shared => return 0,
            _ => return self.len(),
        };
        let low = self.prefixes.partition_point(|&prefix| prefix < wanted);
        if self.prefixes.get(low) != Some(&wanted) {
            return low;
        }
        let ties = self.prefixes.get(low..).unwrap_or_default();
        let mut high = low + ties.partition_point(|&prefix| prefix == wanted);
        let mut low = low;
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

    /// Whether separator `i` stands before the internal key. A user key as separator stands behind
    /// every version of that key.
    fn is_below(&self, i: usize, user_key: &[u8], trailer: u64) -> bool {
        if self.keys_are_user_keys {
            return self.key(i) < user_key;
        }
        let Some((own, own_trailer)) = split_internal_key(self.key(i)) else {
            return false;
        };
        own.cmp(user_key).then(trailer.cmp(&own_trailer)) == Ordering::Less
    }

    fn user_key(&self, i: usize) -> &[u8] {
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

fn entries_end(contents: &[u8]) -> Option<usize> {
    let end = contents.len().checked_sub(4)?;
    let restarts = get_u32(contents, end)? as usize;
    end.checked_sub(restarts.checked_mul(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::put_key_with_trailer;
    use crate::table::block::builder::BlockBuilder;
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
                    prop_assert_eq!(index.find(&key), expected);
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
}
