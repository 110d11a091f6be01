//! One block in memory: validated once, then read without an error path.
//!
//! `fetch` makes a [`Block`] of what it read; the grammar stands in `block_builder`. [`Block::new`]
//! checks structure, key order, entry kinds, restart points and hash buckets, so that whoever reads
//! later meets only sound entries; should that ever fail, lookups end as "absent from here on" and
//! nothing panics.
//!
//! [`Block::get`] is the point lookup: hash bucket or binary search over restarts, then a walk that
//! compares only bytes it has not compared before and builds no key. Walks in order are
//! `block_cursor`'s; which keys a block covers is the index's business.

use crate::coding::{get_u32, get_varint};
use crate::filter::simd::{LINE_BYTES, prefetch};
use crate::key::{KEY_BYTES_MAX, LookupKey, compare_internal, split_internal_key, unpack_trailer};
use crate::table::block_builder::{
    BUCKET_COLLISION, BUCKET_EMPTY, HASH_INDEX_FLAG, RESTART_INTERVAL_MAX, bucket_of, common_prefix,
};
use std::cmp::Ordering;
use std::hint::black_box;

/// What the keys of a block are, which decides what is checked at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKeys {
    /// Internal keys, in their order: a data block.
    Internal,
    /// Any bytes, in bytewise order: properties and metaindex.
    Bytes,
}

/// A sound block.
#[derive(Debug)]
pub struct Block {
    contents: Vec<u8>,
    /// Where the restart array begins.
    entries_end: usize,
    restarts: usize,
    /// Buckets of the hash index; 0 without one.
    buckets: usize,
}

/// What [`Block::get`] found: the newest visible version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Sequence and kind.
    pub trailer: u64,
    /// Where the value begins in the block.
    pub value_start: usize,
    /// Its length.
    pub value_len: usize,
}

/// Positions of one entry. The key's own bytes end where the value begins.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Bytes of the key that are those of the entry before.
    pub shared: usize,
    /// Where the others begin.
    pub key_start: usize,
    /// Where the value begins.
    pub value_start: usize,
    /// Where it ends, and the next entry begins.
    pub end: usize,
}

impl Block {
    /// Checks `contents`, the decompressed block without its trailer. The error says what is
    /// wrong.
    pub fn new(contents: Vec<u8>, keys: BlockKeys) -> Result<Self, String> {
        let block = Self::parse_tail(contents).ok_or("block with a malformed restart array")?;
        if !block.bucket_slice().iter().all(|&bucket| {
            usize::from(bucket) < block.restarts
                || bucket == BUCKET_EMPTY
                || bucket == BUCKET_COLLISION
        }) {
            return Err("block with a hash bucket beyond its restarts".into());
        }
        block.check_entries(keys)?;
        Ok(block)
    }

    fn parse_tail(contents: Vec<u8>) -> Option<Self> {
        let mut end = contents.len().checked_sub(4)?;
        let count = get_u32(&contents, end)?;
        let mut buckets = 0;
        if count & HASH_INDEX_FLAG != 0 {
            end = end.checked_sub(2)?;
            buckets = usize::from(u16::from_le_bytes(contents.get(end..end + 2)?.try_into().ok()?));
            end = end.checked_sub(buckets)?;
        }
        let restarts = (count & !HASH_INDEX_FLAG) as usize;
        let entries_end = end.checked_sub(restarts.checked_mul(4)?)?;
        let sound = restarts > 0 && (buckets > 0) == (count & HASH_INDEX_FLAG != 0);
        sound.then_some(Block { contents, entries_end, restarts, buckets })
    }

    /// One walk over everything: structure, restarts, kinds, order.
    fn check_entries(&self, keys: BlockKeys) -> Result<(), String> {
        let mut key: Vec<u8> = Vec::new();
        let (mut at, mut restart, mut since_restart) = (0, 0, 0);
        while at < self.entries_end {
            let wrong = |what: &str| format!("{what} at byte {at} of the block");
            let entry = self.entry_at(at).ok_or_else(|| wrong("malformed entry"))?;
            since_restart += 1;
            if self.restart(restart) == Some(at) {
                if entry.shared != 0 {
                    return Err(wrong("restart entry that shares a prefix"));
                }
                restart += 1;
                since_restart = 1;
            }
            if restart == 0 || since_restart > RESTART_INTERVAL_MAX {
                return Err(wrong("entry without a restart point"));
            }
            let suffix = self.slice(entry.key_start, entry.value_start);
            let ordered = match keys {
                BlockKeys::Internal => {
                    check_internal_entry(&key, entry.shared, suffix).map_err(wrong)?
                }
                BlockKeys::Bytes => {
                    entry.shared <= key.len() && key.get(entry.shared..).is_some_and(|k| k < suffix)
                }
            };
            if !ordered && at > 0 {
                return Err(wrong("key out of order"));
            }
            key.truncate(entry.shared);
            key.extend_from_slice(suffix);
            at = entry.end;
        }
        let only_empty = self.entries_end == 0 && self.restarts == 1;
        match restart == self.restarts || (only_empty && self.restart(0) == Some(0)) {
            true => Ok(()),
            false => Err("restart point that is no entry".into()),
        }
    }

    /// Where the entries end.
    #[must_use]
    pub fn entries_end(&self) -> usize {
        self.entries_end
    }

    /// Number of restart intervals.
    #[must_use]
    pub fn restarts(&self) -> usize {
        self.restarts
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.contents.capacity() + size_of::<Self>()
    }

    /// The contents; positions in it come from [`Found`] and [`Entry`].
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// The newest version of the key that its sequence can see, in a block of internal keys.
    /// `xxph3` is the hash of the user key.
    ///
    /// The walk keeps `matched`, the length of the prefix that the entry before has in common with
    /// the wanted user key. An entry that shares more than that with its predecessor is below the
    /// wanted key for the same reason; any other is compared from `shared` on. That holds because
    /// `shared` stays inside user keys, which was checked at load.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &LookupKey, xxph3: u64) -> Option<Found> {
        let wanted = key.user_key();
        let mut at = self.start_of_lookup(key, xxph3)?;
        let mut matched = 0;
        while let Some(entry) = self.entry_at(at) {
            at = entry.end;
            if entry.shared > matched {
                continue;
            }
            let own = self.slice(entry.key_start, entry.value_start);
            let (own, trailer) = split_internal_key(own)?;
            let rest = wanted.get(entry.shared..)?;
            let common = common_prefix(own, rest);
            match (own.get(common), rest.get(common)) {
                (None, None) => {
                    if trailer <= key.trailer() {
                        let value_len = entry.end - entry.value_start;
                        return Some(Found { trailer, value_start: entry.value_start, value_len });
                    }
                }
                (None, Some(_)) => {}
                (Some(theirs), Some(ours)) if theirs < ours => {}
                _ => return None,
            }
            matched = entry.shared + common;
        }
        None
    }

    /// The restart entry to walk from: at or before the wanted version, if that exists here.
    #[inline]
    fn start_of_lookup(&self, key: &LookupKey, xxph3: u64) -> Option<usize> {
        let buckets = self.bucket_slice();
        let interval = match buckets.get(bucket_of(xxph3, buckets.len())) {
            Some(&BUCKET_EMPTY) => return None,
            None | Some(&BUCKET_COLLISION) => {
                self.restarts_below(key.internal_key()).saturating_sub(1)
            }
            Some(&interval) => usize::from(interval),
        };
        let start = self.restart(interval)?;
        self.touch(start, self.restart(interval + 1).unwrap_or(self.entries_end));
        Some(start)
    }

    /// Loads the cache lines of an interval all at once; a walk alone would meet them one by one,
    /// each only when the length of the entry before is known.
    #[inline]
    fn touch(&self, start: usize, end: usize) {
        const TOUCHED_BYTES_MAX: usize = 2048;
        let lines = self.slice(start, end.min(start + TOUCHED_BYTES_MAX)).iter();
        black_box(lines.step_by(LINE_BYTES).fold(0, |all, &byte| all | byte));
    }

    /// Asks for the cache lines of the whole block ahead of a walk, which alone would meet them
    /// one by one. Waits for none, unlike `touch`.
    #[inline]
    pub fn prefetch(&self) {
        const PREFETCHED_BYTES_MAX: usize = 8192;
        for at in (0..self.contents.len().min(PREFETCHED_BYTES_MAX)).step_by(LINE_BYTES) {
            prefetch(&self.contents, at);
        }
    }

    /// How many restart entries stand below the internal key `bound`.
    pub fn restarts_below(&self, bound: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.restart(middle).and_then(|at| self.entry_at(at));
            let below = entry.is_some_and(|entry| {
                let key = self.slice(entry.key_start, entry.value_start);
                compare_internal(key, bound) == Ordering::Less
            });
            if below { low = middle + 1 } else { high = middle }
        }
        low
    }

    #[inline]
    fn bucket_slice(&self) -> &[u8] {
        let start = self.entries_end + 4 * self.restarts;
        self.slice(start, start + self.buckets)
    }

    /// Where restart interval `interval` begins; `None` beyond the last.
    #[inline]
    pub fn restart(&self, interval: usize) -> Option<usize> {
        if interval >= self.restarts {
            return None;
        }
        get_u32(&self.contents, self.entries_end + 4 * interval).map(|offset| offset as usize)
    }

    /// Those bytes of the contents; empty where they do not lie in it.
    #[inline]
    pub fn slice(&self, start: usize, end: usize) -> &[u8] {
        self.contents.get(start..end).unwrap_or_default()
    }

    /// Decodes the entry at `at`; `None` at the end of the entries and where nothing sound stands.
    #[inline]
    pub fn entry_at(&self, at: usize) -> Option<Entry> {
        let header = self.contents.get(at..self.entries_end)?;
        let (shared, non_shared, value_len, header_len) = match *header {
            [shared, non_shared, value_len, ..] if (shared | non_shared | value_len) < 0x80 => {
                (u64::from(shared), u64::from(non_shared), u64::from(value_len), 3)
            }
            _ => long_header(header)?,
        };
        let key_start = at + header_len;
        let value_start = key_start.checked_add(usize::try_from(non_shared).ok()?)?;
        let end = value_start.checked_add(usize::try_from(value_len).ok()?)?;
        if end > self.entries_end {
            return None;
        }
        Some(Entry { shared: usize::try_from(shared).ok()?, key_start, value_start, end })
    }
}

#[cold]
fn long_header(header: &[u8]) -> Option<(u64, u64, u64, usize)> {
    let (shared, a) = get_varint(header)?;
    let (non_shared, b) = get_varint(header.get(a..)?)?;
    let (value_len, c) = get_varint(header.get(a + b..)?)?;
    Some((shared, non_shared, value_len, a + b + c))
}

/// Checks an entry of a data block that shares `shared` bytes with `previous` and has `suffix` of
/// its own; answers whether it stands behind `previous`.
#[inline]
fn check_internal_entry(
    previous: &[u8],
    shared: usize,
    suffix: &[u8],
) -> Result<bool, &'static str> {
    let Some((own, trailer)) = split_internal_key(suffix) else {
        return Err("key shorter than its trailer");
    };
    if unpack_trailer(trailer).is_none() {
        return Err("entry of an unknown kind");
    }
    let (previous_user, previous_trailer) = split_internal_key(previous).unwrap_or((&[], u64::MAX));
    let Some(rest) = previous_user.get(shared..) else {
        return Err("entry that shares more than the previous user key");
    };
    if shared + own.len() > KEY_BYTES_MAX {
        return Err("key longer than any key may be");
    }
    Ok(match (own.first(), rest.first()) {
        (Some(a), Some(b)) if a != b => a > b,
        _ => own.cmp(rest).then(previous_trailer.cmp(&trailer)) == Ordering::Greater,
    })
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.contents
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::filter::hash::xxph3_64;
    use crate::key::{SEQUENCE_MAX, ValueKind, put_internal_key, put_key_with_trailer, user_key};
    use crate::table::block_builder::BlockBuilder;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    /// User keys over few letters, some of them trailer-like bytes, so that prefixes abound; few
    /// sequences, so that versions do.
    pub fn entries() -> impl Strategy<Value = Entries> {
        let letter = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(0xff)];
        let key = (vec(letter, 0..12), prop_oneof![4 => 0u64..8, 1 => Just(SEQUENCE_MAX)]);
        btree_set(key, 0..120).prop_map(|keys| {
            let mut entries: Entries = keys
                .into_iter()
                .map(|(user, sequence)| {
                    let kind =
                        if sequence % 3 == 0 { ValueKind::Tombstone } else { ValueKind::Put };
                    let mut key = Vec::new();
                    put_internal_key(&mut key, &user, sequence, kind);
                    let value = format!("{sequence}").repeat(user.len() * 13 % 40);
                    (key, value.into_bytes())
                })
                .collect();
            entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
            entries
        })
    }

    pub fn built(entries: &Entries, restart_interval: usize, hash_index: bool) -> Vec<u8> {
        let mut builder = BlockBuilder::data(restart_interval, hash_index);
        for (key, value) in entries {
            builder.add(key, value);
        }
        builder.finish().to_vec()
    }

    pub fn block(entries: &Entries, restart_interval: usize, hash_index: bool) -> Block {
        Block::new(built(entries, restart_interval, hash_index), BlockKeys::Internal).unwrap()
    }

    /// The model of `get`: the first entry at or behind the lookup key, if of the same user key.
    fn linear_get<'e>(entries: &'e Entries, key: &LookupKey) -> Option<(u64, &'e [u8])> {
        let found =
            entries.iter().find(|(k, _)| compare_internal(k, key.internal_key()).is_ge())?;
        let (user, trailer) = split_internal_key(&found.0)?;
        (user == key.user_key()).then_some((trailer, &found.1))
    }

    fn assert_gets_agree(entries: &Entries, block: &Block, user: &[u8]) {
        for sequence in [0, 1, 2, 5, 7, 100, SEQUENCE_MAX] {
            let key = LookupKey::new(user, sequence);
            let found = block.get(&key, xxph3_64(user)).map(|found| {
                let end = found.value_start + found.value_len;
                (found.trailer, &block.contents()[found.value_start..end])
            });
            assert_eq!(found, linear_get(entries, &key), "{user:?} at {sequence}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn lookups_agree_with_a_list(
            entries in entries(),
            absent in vec(vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xff)], 0..12), 20),
            restart_interval in 1usize..20,
            hash_index: bool,
        ) {
            let block = block(&entries, restart_interval, hash_index);
            for user in entries.iter().map(|(key, _)| user_key(key)).chain(absent.iter().map(|k| &k[..])) {
                assert_gets_agree(&entries, &block, user);
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Block::new(bytes.clone(), BlockKeys::Bytes);
            let _ = Block::new(bytes, BlockKeys::Internal);
        }
    }

    fn refusal(bytes: Vec<u8>, keys: BlockKeys) -> String {
        Block::new(bytes, keys).unwrap_err()
    }

    #[test]
    fn each_damage_is_named() {
        let entry = |shared: u8, user: &[u8], trailer: u64| {
            let mut bytes = vec![shared, user.len() as u8 + 8, 0];
            put_key_with_trailer(&mut bytes, user, trailer);
            bytes
        };
        let sealed =
            |entries: &[Vec<u8>]| [&entries.concat()[..], &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
        let check = |entries: &[Vec<u8>]| refusal(sealed(entries), BlockKeys::Internal);
        assert!(check(&[entry(0, b"a", 2)]).contains("unknown kind"));
        assert!(check(&[entry(1, b"a", 1)]).contains("shares a prefix"));
        assert!(check(&[entry(0, b"b", 1), entry(0, b"a", 1)]).contains("out of order"));
        assert!(check(&[entry(0, b"a", 1), entry(1, b"", 257)]).contains("out of order"));
        assert!(check(&[entry(0, b"a", 1), entry(2, b"b", 1)]).contains("shares more"));
        assert!(check(&[vec![0, 2, 0, b'a', b'b']]).contains("shorter than its trailer"));
        assert!(check(&[vec![0, 200, 1, 0]]).contains("malformed entry"));
        let many: Vec<_> = (0..=256u64).rev().map(|i| entry(0, b"a", i << 8)).collect();
        assert!(check(&many).contains("without a restart"));
        assert!(Block::new(sealed(&many[1..]), BlockKeys::Internal).is_ok());
        let tail = |count: u32, restart: u32| {
            let entry = entry(0, b"a", 1);
            [&entry[..], &restart.to_le_bytes(), &count.to_le_bytes()].concat()
        };
        for count in [0, 2, 100, u32::MAX >> 1, u32::MAX, HASH_INDEX_FLAG, HASH_INDEX_FLAG | 1] {
            Block::new(tail(count, 0), BlockKeys::Internal).unwrap_err();
        }
        assert!(refusal(tail(1, 3), BlockKeys::Internal).contains("without a restart"));
        Block::new(tail(1, 0), BlockKeys::Internal).unwrap();
    }
}
