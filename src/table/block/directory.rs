//! A data block as the cache holds it: with a directory, by which a lookup finds its entry.
//!
//! The directory is a hash table of fingerprints and positions of entries. It names the few entries
//! that can have the key, in most cases one. Where it is near, right after the parts of the block,
//! its place depends on nothing that the lookup has to read first: the lines of both come together,
//! and only the entry's line after them. A block of more entries has its directory behind its
//! bytes, one miss more. What most entries share is in the [`Block`] itself.

use crate::base::coding::get_u32;
use crate::base::key::{
    KEY_BYTES_MAX, LookupKey, SequenceNumber, common_prefix, split_internal_key,
};
use crate::table::block::block::{
    Block, BlockKeys, DIRECTORY_SLOT_BYTES, Entry, Found, NEAR_SLOTS, far_bytes,
};
use crate::table::block::builder::ANCHOR_BYTES;
use crate::table::format::fingerprint_of;
use siftdb_filter::cache_line::{LINE_BYTES, prefetch};
use siftdb_filter::hash::xxph3_64;
use std::ops::Deref;

/// From this many entries on, the directory is after the bytes of the block.
const FAR_ENTRIES_MIN: usize = 50;

/// Three lines. A slot is read as four bytes, so the last one has a byte more.
const NEAR_BYTES: usize = 3 * LINE_BYTES;

/// A sound data block with its directory.
// In this order: the near directory begins where the first cache line of a cached block ends.
#[repr(C)]
#[derive(Clone, Debug)]
pub(crate) struct HashedBlock {
    block: Block,
    near: [u8; NEAR_BYTES],
}

impl HashedBlock {
    /// Where the near directory begins.
    pub(crate) const NEAR_OFFSET: usize = std::mem::offset_of!(Self, near);

    /// Checks a data block, decompressed and without its trailer, and copies it. The error says
    /// what is wrong.
    pub(crate) fn new(contents: &[u8]) -> Result<Self, String> {
        let (parsed, fingerprints) = Block::parse(contents, BlockKeys::Internal)?;
        // Entry positions have to fit u16. A larger block has few entries, since they are large.
        let hashed = contents.len() <= usize::from(u16::MAX);
        let count = fingerprints.len();
        let fingerprints = contents.get(fingerprints).filter(|_| hashed).unwrap_or_default();
        let slots = slots_for(fingerprints.len());
        let mut near = [u8::MAX; NEAR_BYTES];
        let all = contents.len() + far_bytes(slots);
        let mut bytes = Vec::with_capacity(all);
        bytes.extend_from_slice(contents);
        bytes.resize(all, u8::MAX);
        let (_, far) = bytes.split_at_mut(contents.len());
        let directory = if slots == NEAR_SLOTS { &mut near[..] } else { far };
        let mut ahead = fingerprints.iter();
        let entries = parsed.check(count, |at| {
            if let Some(&fingerprint) = ahead.next() {
                put_into_directory(directory, slots, fingerprint, at);
            }
        })?;
        let entry_bytes = parsed.entries_end() / entries.max(1);
        let (anchor, anchor_len) = find_anchor(&parsed);
        let mut block = parsed.with_bytes(bytes.into_boxed_slice());
        block.directory = slots as u16;
        block.entry_bytes = entry_bytes.min(usize::from(u16::MAX)) as u16;
        (block.anchor, block.anchor_len) = (anchor, anchor_len);
        Ok(HashedBlock { block, near })
    }

    /// A block to be iterated over, without a directory.
    pub(crate) fn without_directory(block: Block) -> Self {
        HashedBlock { block, near: [u8::MAX; NEAR_BYTES] }
    }

    /// As [`Block::with_sequence`], of a block that was not found sound before.
    pub(crate) fn with_sequence(
        self,
        sequence: Option<SequenceNumber>,
    ) -> Result<Self, &'static str> {
        Ok(HashedBlock { block: self.block.with_sequence(sequence, false)?, ..self })
    }

    /// The newest version of the key that its sequence can see, in a block of internal keys.
    /// `xxph3` is the hash of the user key.
    // Inlined into its one caller, with `find`: the calls would be a twentieth of a lookup.
    #[inline(always)]
    pub(crate) fn get(&self, key: &LookupKey, xxph3: u64) -> Option<Found> {
        if self.directory == 0 {
            return self.borrowed().get_by_order(key, fingerprint_of(xxph3));
        }
        let (_, entry, trailer) = self.find(key.user_key(), key.trailer(), xxph3)?;
        let value_len = entry.end - entry.value_start;
        Some(Found { trailer, value_start: entry.value_start, value_len })
    }

    /// Where the first entry at or above the internal key `bound` begins, and how many bytes it
    /// shares, if it is a version of the same user key and the block has a directory.
    // Not inlined, so that scans have one copy of `find`.
    #[inline(never)]
    pub(crate) fn version_from(&self, bound: &[u8]) -> Option<(usize, usize)> {
        let (user_key, trailer) = split_internal_key(bound).filter(|_| self.directory > 0)?;
        let (at, entry, _) = self.find(user_key, trailer, xxph3_64(user_key))?;
        Some((at, entry.shared))
    }

    /// Prefetches the slot of the directory where the search for a key begins.
    pub(crate) fn prefetch_directory(&self, xxph3: u64) {
        let slot = first_slot(fingerprint_of(xxph3), self.directory.into());
        prefetch(self.directory_bytes(), DIRECTORY_SLOT_BYTES * slot);
    }

    /// Prefetches the first entry that the directory names for a key.
    pub(crate) fn prefetch_entry(&self, xxph3: u64) {
        let (wanted, slots) = (fingerprint_of(xxph3), usize::from(self.directory));
        let first = first_slot(wanted, slots);
        for slot in (first..slots).chain(0..first) {
            let word = get_u32(self.directory_bytes(), DIRECTORY_SLOT_BYTES * slot);
            let Some((fingerprint, at)) = word.map(|word| (word as u8, (word >> 8) as u16)) else {
                return;
            };
            if at == u16::MAX {
                return;
            }
            if fingerprint == wanted {
                let end = usize::from(at) + usize::from(self.entry_bytes);
                return self.prefetch(at.into()..end + 1);
            }
        }
    }

    fn directory_bytes(&self) -> &[u8] {
        match usize::from(self.directory) {
            NEAR_SLOTS => &self.near,
            _ => self.bytes.get(self.len()..).unwrap_or_default(),
        }
    }

    /// The newest version with at most this trailer, by the directory: where it begins, its parts
    /// and its trailer.
    #[inline(always)]
    fn find(&self, user_key: &[u8], trailer: u64, xxph3: u64) -> Option<(usize, Entry, u64)> {
        if self.anchor_len as usize > ANCHOR_BYTES {
            // The rest of what entries share is compared with the first entry.
            prefetch(&self.bytes, 0);
        }
        let slots = usize::from(self.directory);
        // Two copies of the search: where the directory is near, no address in it depends on what
        // the parts of the block say, so the processor reads its line without waiting for them.
        if slots == NEAR_SLOTS {
            return self.find_in(&self.near, NEAR_SLOTS, user_key, trailer, xxph3);
        }
        self.find_far(user_key, trailer, xxph3)
    }

    #[inline(never)]
    fn find_far(&self, user_key: &[u8], trailer: u64, xxph3: u64) -> Option<(usize, Entry, u64)> {
        let far = self.bytes.get(self.len()..)?;
        self.find_in(far, self.directory.into(), user_key, trailer, xxph3)
    }

    #[inline(always)]
    fn find_in(
        &self,
        directory: &[u8],
        slots: usize,
        user_key: &[u8],
        trailer: u64,
        xxph3: u64,
    ) -> Option<(usize, Entry, u64)> {
        let wanted = fingerprint_of(xxph3);
        let mut slot = first_slot(wanted, slots);
        // One slot at least is empty.
        for _ in 0..slots {
            let word = get_u32(directory, DIRECTORY_SLOT_BYTES * slot)?;
            let (fingerprint, at) = (word as u8, (word >> 8) as u16);
            if at == u16::MAX {
                return None;
            }
            if fingerprint == wanted
                && let Some((entry, trailer)) = self.version_at(at.into(), user_key, trailer)
            {
                return Some((at.into(), entry, trailer));
            }
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        None
    }

    /// The entry at `at` and its trailer, if it is a version of `user_key` with at most `newest` as
    /// trailer. The newest version of a key comes first.
    #[inline(always)]
    fn version_at(&self, at: usize, user_key: &[u8], newest: u64) -> Option<(Entry, u64)> {
        // The lines of an entry of the usual size come together, not one after the other.
        let last = at + usize::from(self.entry_bytes);
        prefetch(&self.bytes, at + LINE_BYTES);
        prefetch(&self.bytes, last);
        let entry = self.entry_at(at)?;
        let (shared, rest) = user_key.split_at_checked(entry.shared)?;
        let trailer = self.trailer(&entry)?;
        if rest != self.own_key(&entry) || trailer > newest {
            return None;
        }
        // What the entry shares are bytes of its restart entry's key (see the builder).
        let has_shared = match self.anchor.get(..shared.len()) {
            Some(anchor) if shared.len() <= usize::from(self.anchor_len) => anchor == shared,
            _ => self.restart_begins_with(shared, at)?,
        };
        has_shared.then_some((entry, trailer))
    }

    /// Whether the restart entry of the entry at `at` begins with `shared`.
    #[inline(never)]
    fn restart_begins_with(&self, shared: &[u8], at: usize) -> Option<bool> {
        // The first restart entry begins with what all of them begin with, and its cache line was
        // just read.
        let all = shared.len() <= usize::from(self.anchor_len);
        let restart = if all { 0 } else { self.restart_before(at)? };
        Some(self.own_key(&self.entry_at(restart)?).starts_with(shared))
    }

    /// Where the restart interval of the entry at `at` begins.
    fn restart_before(&self, at: usize) -> Option<usize> {
        let (mut low, mut high) = (0, self.restarts());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.restart(middle)? <= at { low = middle } else { high = middle }
        }
        self.restart(low)
    }
}

impl Deref for HashedBlock {
    type Target = Block;

    #[inline(always)]
    fn deref(&self) -> &Block {
        &self.block
    }
}

/// Slots of the directory of so many entries; 0 without one.
fn slots_for(entries: usize) -> usize {
    match entries {
        0 => 0,
        // A quarter of the slots stays empty.
        FAR_ENTRIES_MIN.. => entries + entries / 3 + 1,
        _ => NEAR_SLOTS,
    }
}

/// The slot of a directory where the search for a fingerprint begins.
#[inline]
fn first_slot(fingerprint: u8, slots: usize) -> usize {
    (usize::from(fingerprint) * slots) >> 8
}

/// Adds an entry to a directory of `slots` slots, of which one at least is empty. Versions of one
/// key keep their order: each search meets the newest first.
fn put_into_directory(directory: &mut [u8], slots: usize, fingerprint: u8, at: usize) {
    let [low, high] = (at as u16).to_le_bytes();
    let first = first_slot(fingerprint, slots);
    for slot in (first..slots).chain(0..first) {
        let slot = directory.get_mut(DIRECTORY_SLOT_BYTES * slot..);
        let slot = slot.and_then(|bytes| bytes.first_chunk_mut::<DIRECTORY_SLOT_BYTES>());
        if let Some(slot) = slot.filter(|slot| slot[1..] == [u8::MAX; 2]) {
            *slot = [fingerprint, low, high];
            return;
        }
    }
}

/// The front of what all restart entries begin with, and the length of the whole. They are in
/// order, so it is what the first and the last of them have in common.
fn find_anchor(block: &Block<&[u8]>) -> ([u8; ANCHOR_BYTES], u16) {
    let entry = |number| block.restart(number).and_then(|at| block.entry_at(at));
    let key = |entry: Option<Entry>| entry.map_or(&[][..], |entry| block.own_key(&entry));
    let (first, last) = (key(entry(0)), key(entry(block.restarts().saturating_sub(1))));
    let common = &first[..common_prefix(first, last).min(KEY_BYTES_MAX)];
    let mut anchor = [0; ANCHOR_BYTES];
    anchor.iter_mut().zip(common).for_each(|(to, &from)| *to = from);
    (anchor, common.len() as u16)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::key::{SEQUENCE_MAX, ValueKind, compare_internal, put_internal_key, user_key};
    use crate::table::block::block::tests::{Entries, built, entries};
    use proptest::collection::vec;
    use proptest::prelude::*;

    pub(crate) fn block(
        entries: &Entries,
        restart_interval: usize,
        hash_index: bool,
    ) -> HashedBlock {
        HashedBlock::new(&built(entries, restart_interval, hash_index)).unwrap()
    }

    /// The model of `get`: the first entry at or after the lookup key, if of the same user key.
    fn linear_get<'e>(entries: &'e Entries, key: &LookupKey) -> Option<(u64, &'e [u8])> {
        let found =
            entries.iter().find(|(k, _)| compare_internal(k, key.internal_key()).is_ge())?;
        let (user, trailer) = split_internal_key(&found.0)?;
        (user == key.user_key()).then_some((trailer, &found.1))
    }

    fn assert_gets_agree(entries: &Entries, block: &HashedBlock, user: &[u8]) {
        for sequence in [0, 1, 2, 5, 7, 100, SEQUENCE_MAX] {
            let key = LookupKey::new(user, sequence);
            let value = |found: Found| {
                let end = found.value_start + found.value_len;
                (found.trailer, &block.contents()[found.value_start..end])
            };
            let expected = linear_get(entries, &key);
            let found = block.get(&key, xxph3_64(user)).map(value);
            assert_eq!(found, expected, "{user:?} at {sequence}");
            // A wrong hint changes nothing.
            for hint in [fingerprint_of(xxph3_64(user)), sequence as u8] {
                let by_order = block.borrowed().get_by_order(&key, hint).map(value);
                assert_eq!(by_order, expected, "{user:?} at {sequence}, by order");
            }
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
    }

    /// At the border between both kinds of directory, and where every entry has the same
    /// fingerprint or one of the last.
    #[test]
    fn directories_of_every_size_are_searched() {
        let users: Vec<_> = (0..80u32).map(|n| format!("key{n:03}").into_bytes()).collect();
        for count in 0..users.len() {
            let slots = slots_for(count);
            assert!(count == 0 || slots > count, "one slot is empty");
            assert_eq!(far_bytes(slots) == 0, count < FAR_ENTRIES_MIN);
            for fingerprint in [0, 128, 255] {
                let mut directory = [u8::MAX; 512];
                for at in 0..count {
                    put_into_directory(&mut directory, slots, fingerprint, at);
                }
                let end = DIRECTORY_SLOT_BYTES * slots;
                let room = if slots > NEAR_SLOTS { far_bytes(slots) } else { NEAR_BYTES };
                assert!(count == 0 || end < room, "a slot is read as four bytes");
                let taken = directory[..end].chunks(DIRECTORY_SLOT_BYTES);
                assert_eq!(taken.filter(|slot| slot[1..] != [u8::MAX; 2]).count(), count);
                assert!(directory[end..].iter().all(|&byte| byte == u8::MAX));
            }
            let entries: Entries = users[..count]
                .iter()
                .map(|user| {
                    let mut key = Vec::new();
                    put_internal_key(&mut key, user, 7, ValueKind::Put);
                    (key, user.clone())
                })
                .collect();
            let block = block(&entries, 16, count > 0);
            for user in &users {
                assert_gets_agree(&entries, &block, user);
            }
        }
    }
}
