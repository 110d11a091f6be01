//! One block in memory: validated once, then read without an error path.
//!
//! `fetch` makes a [`Block`] of what it read; the grammar stands in `block_builder`, what makes a
//! block sound in `block_check`. Should something unsound be met all the same, lookups end as
//! "absent from here on" and nothing panics.
//!
//! [`Block::get`] is the point lookup. With a hash index it looks at the tags, which say which few
//! entries can have the key, most often one, and goes straight there: where each entry begins was
//! noted at load. That entry and its restart entry are all it reads. Without, it is the search of
//! `block_view`. Walks in order are `block_cursor`'s; which keys a block covers is the index's
//! business.

use crate::base::coding::get_u16;
use crate::base::key::{LookupKey, TRAILER_BYTES};
use crate::base::prefetch::{LINE_BYTES, prefetch};
use crate::table::block::builder::tag_of;
use crate::table::block::check::{BlockKeys, BlockShape, Entry, Trailers, check_entries};
use crate::table::block::view::{BlockView, Found};
use std::hint::black_box;
use std::ops::Range;

/// Bytes that most keys have of their own at most.
const SHORT_KEY_BYTES: usize = 16;

/// A sound block.
#[derive(Debug)]
pub struct Block {
    /// The block, and behind it, for those of a hash index, where each entry begins: u16 each.
    bytes: Box<[u8]>,
    /// How trailers are written; `None` where keys have none.
    trailers: Option<Trailers>,
    /// Bytes of the block itself.
    len: u32,
    entries_end: u32,
    restarts: u32,
    /// Tags that lookups use; 0 without a hash index.
    tags: u16,
    /// Entries of every restart interval but the last.
    interval: u16,
}

impl Block {
    /// Checks `block`, decompressed and without its trailer, and copies it. The error says what is
    /// wrong.
    pub fn new(block: &[u8], keys: BlockKeys) -> Result<Self, String> {
        let shape = BlockShape::parse(block, keys)?;
        let len = u32::try_from(block.len()).map_err(|_| "block larger than any may be")?;
        // A larger block has few entries, for what it has to hold is large.
        let tags = if len <= u32::from(u16::MAX) { shape.tags } else { 0 };
        let mut bytes = Vec::with_capacity(block.len() + 2 * tags);
        bytes.extend_from_slice(block);
        let interval = check_entries(block, shape, |at| {
            if tags > 0 {
                bytes.extend_from_slice(&(at as u16).to_le_bytes());
            }
        })?;
        Ok(Block {
            bytes: bytes.into_boxed_slice(),
            trailers: shape.trailers,
            len,
            entries_end: shape.entries_end as u32,
            restarts: shape.restarts as u32,
            tags: tags as u16,
            interval: interval as u16,
        })
    }

    /// Where the entries end.
    #[inline]
    #[must_use]
    pub fn entries_end(&self) -> usize {
        self.entries_end as usize
    }

    /// Number of restart intervals.
    #[inline]
    #[must_use]
    pub fn restarts(&self) -> usize {
        self.restarts as usize
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    /// The block; positions in it come from [`Found`] and [`Entry`].
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        self.slice(0, self.len as usize)
    }

    /// The newest version of the key that its sequence can see, in a block of internal keys.
    /// `xxph3` is the hash of the user key.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &LookupKey, xxph3: u64) -> Option<Found> {
        if self.tags == 0 {
            return self.view().get(key);
        }
        let tags_start = self.entries_end() + 4 * self.restarts();
        let tags = self.slice(tags_start, tags_start + usize::from(self.tags));
        let wanted = u64::from_le_bytes([tag_of(xxph3); 8]);
        let (words, rest) = tags.as_chunks::<8>();
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, &from)| *to = from);
        for (number, word) in words.iter().chain([&last]).enumerate() {
            let mut equal = zero_bytes(u64::from_le_bytes(*word) ^ wanted);
            while equal != 0 {
                let entry = 8 * number + equal.trailing_zeros() as usize / 8;
                if let Some(found) = self.version_at(entry, key) {
                    return Some(found);
                }
                equal &= equal - 1;
            }
        }
        None
    }

    /// Entry number `entry`, if it is a version of the wanted key that its sequence can see. Of a
    /// key's versions the newest stands first.
    #[inline]
    fn version_at(&self, entry: usize, key: &LookupKey) -> Option<Found> {
        let at = self.beginning(entry)?;
        let head_at = self.beginning(entry - entry % usize::from(self.interval.max(1)))?;
        prefetch(&self.bytes, head_at);
        self.touch(at, self.beginning(entry + 1).unwrap_or(self.entries_end()));
        let entry = self.entry_at(at)?;
        let (shared, rest) = key.user_key().split_at_checked(entry.shared)?;
        let trailer = self.trailer(&entry)?;
        if rest != self.own_key(&entry) || trailer > key.trailer() {
            return None;
        }
        if !shared.is_empty() {
            let head = self.entry_at(head_at)?;
            if self.own_key(&head).get(..shared.len()) != Some(shared) {
                return None;
            }
        }
        let value_len = entry.end - entry.value_start;
        Some(Found { trailer, value_start: entry.value_start, value_len })
    }

    /// Where entry number `entry` begins, in a block with tags.
    #[inline]
    fn beginning(&self, entry: usize) -> Option<usize> {
        get_u16(&self.bytes, self.len as usize + 2 * entry).map(usize::from)
    }

    /// Loads the cache lines of an entry all at once.
    #[inline]
    fn touch(&self, start: usize, end: usize) {
        const TOUCHED_BYTES_MAX: usize = 512;
        let lines = self.slice(start, end.min(start + TOUCHED_BYTES_MAX)).iter();
        black_box(lines.step_by(LINE_BYTES).fold(0, |all, &byte| all | byte));
    }

    /// Asks for the cache lines of `bytes` of the block ahead of a walk, which alone would meet
    /// them one by one. Waits for none, unlike `touch`.
    #[inline]
    pub fn prefetch(&self, bytes: Range<usize>) {
        for at in (bytes.start..bytes.end.min(self.len as usize)).step_by(LINE_BYTES) {
            prefetch(&self.bytes, at);
        }
    }

    /// How many restart entries stand below the internal key `bound`.
    #[must_use]
    pub fn restarts_below(&self, bound: &[u8]) -> usize {
        self.view().restarts_below(bound)
    }

    /// Where restart interval `interval` begins; `None` beyond the last.
    #[inline]
    #[must_use]
    pub fn restart(&self, interval: usize) -> Option<usize> {
        self.view().restart(interval)
    }

    #[inline]
    fn view(&self) -> BlockView<'_> {
        let (entries_end, restarts) = (self.entries_end(), self.restarts());
        let (tags, trailers) = (usize::from(self.tags), self.trailers);
        BlockView::new(&self.bytes, BlockShape { entries_end, restarts, tags, trailers })
    }

    /// Those bytes of the block; empty where they do not lie in it.
    #[inline]
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Decodes the entry at `at`; `None` at the end of the entries and where nothing sound stands.
    #[inline]
    #[must_use]
    pub fn entry_at(&self, at: usize) -> Option<Entry> {
        self.view().entry_at(at)
    }

    /// Decodes the entry at `at` and writes its key to `keys` from `start` on, where the key of the
    /// entry before stands; answers where it ends, too. `keys` grows as needed and has anything
    /// behind that end. `None` as `entry_at`.
    #[inline]
    pub fn put_entry(&self, keys: &mut Vec<u8>, start: usize, at: usize) -> Option<(Entry, usize)> {
        let key = keys.get_mut(start..).unwrap_or_default();
        match self.put_short_entry(key, at) {
            Some((entry, key_len)) => Some((entry, start + key_len)),
            None => self.put_any_entry(keys, start, at),
        }
    }

    /// The same for an entry like most, of short lengths and not at the end of the block: all of
    /// it that is read is one piece of fixed size, and so is all that is written.
    #[inline]
    fn put_short_entry(&self, key: &mut [u8], at: usize) -> Option<(Entry, usize)> {
        const HEADER_BYTES: usize = 3;
        const READ_BYTES: usize = HEADER_BYTES + WRITTEN_BYTES;
        const WRITTEN_BYTES: usize = SHORT_KEY_BYTES + TRAILER_BYTES;
        let trailers = self.trailers?;
        let read = self.bytes.get(at..)?.first_chunk::<READ_BYTES>()?;
        let [shared, own_len, value_len] = [read[0], read[1], read[2]].map(usize::from);
        if (shared | value_len) >= 0x80 || own_len > SHORT_KEY_BYTES {
            return None;
        }
        let written = key.get_mut(shared..)?.first_chunk_mut::<WRITTEN_BYTES>()?;
        let key_start = at + HEADER_BYTES;
        let key_end = key_start + own_len;
        let value_start = key_end + trailers.width();
        let end = value_start + value_len;
        if end > self.entries_end() {
            return None;
        }
        let trailer = trailers.get(read, HEADER_BYTES + own_len)?;
        written[..SHORT_KEY_BYTES].copy_from_slice(&read[HEADER_BYTES..][..SHORT_KEY_BYTES]);
        written[own_len..own_len + TRAILER_BYTES].copy_from_slice(&trailer.to_le_bytes());
        let entry = Entry { shared, key_start, key_end, value_start, end };
        Some((entry, shared + own_len + TRAILER_BYTES))
    }

    #[inline(never)]
    fn put_any_entry(&self, keys: &mut Vec<u8>, start: usize, at: usize) -> Option<(Entry, usize)> {
        let entry = self.entry_at(at)?;
        let own = self.own_key(&entry);
        let own_start = start + entry.shared;
        let own_end = own_start + own.len();
        let needed = own_end + SHORT_KEY_BYTES + TRAILER_BYTES;
        if keys.len() < needed {
            keys.resize(2 * needed, 0);
        }
        keys.get_mut(own_start..own_end)?.copy_from_slice(own);
        let Some(trailer) = self.trailer(&entry) else { return Some((entry, own_end)) };
        let key_end = own_end + TRAILER_BYTES;
        keys.get_mut(own_end..key_end)?.copy_from_slice(&trailer.to_le_bytes());
        Some((entry, key_end))
    }

    /// What the key of `entry` does not share.
    #[inline]
    #[must_use]
    pub fn own_key(&self, entry: &Entry) -> &[u8] {
        entry.own_key(&self.bytes)
    }

    /// The trailer of `entry`, if keys have one.
    #[inline]
    #[must_use]
    pub fn trailer(&self, entry: &Entry) -> Option<u64> {
        self.view().trailer(entry)
    }
}

/// A top bit for each byte of `word` that is zero; those above the lowest may be wrong.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self.contents()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::base::key::{
        SEQUENCE_MAX, ValueKind, compare_internal, put_internal_key, split_internal_key, user_key,
    };
    use crate::filter::hash::xxph3_64;
    use crate::table::block::builder::BlockBuilder;
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
        Block::new(&built(entries, restart_interval, hash_index), BlockKeys::Internal).unwrap()
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
            let value = |found: Found| {
                let end = found.value_start + found.value_len;
                (found.trailer, &block.contents()[found.value_start..end])
            };
            let expected = linear_get(entries, &key);
            let found = block.get(&key, xxph3_64(user)).map(value);
            assert_eq!(found, expected, "{user:?} at {sequence}");
            let by_order = block.view().get(&key).map(value);
            assert_eq!(by_order, expected, "{user:?} at {sequence}, without tags");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn block_lookups_agree_with_a_list(
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
            let _ = Block::new(&bytes, BlockKeys::Bytes);
            let _ = Block::new(&bytes, BlockKeys::Internal);
        }
    }
}
