//! Writes one block: sorted entries that share prefixes, restart points, an optional hash index.
//!
//! ```text
//! block   := entry* restart* [fingerprint* fingerprints: u16] [base: u64 width: u8] count: u32
//! entry   := shared: varint  non_shared: varint  value_length: varint
//!            key[shared..]: non_shared bytes  [trailer - base: width bytes]  value
//! restart := offset of an entry with shared = 0: u32       every `restart_interval` entries
//! count   := number of restarts; the top bit says that a hash index precedes it
//! fingerprint := u8: eight bits of the hash of an entry's user key, in the order of the entries
//! ```
//!
//! Legal calls: `(add+ finish reset)*`, keys strictly ascending by the caller's order. The keys of
//! a data block are internal keys. The user key is `key`. Its trailer (sequence and kind) follows
//! as the difference to the block's smallest trailer, in as few bytes as the largest needs. In a
//! data block, `shared` never grows from one restart point to the next. So an entry shares only
//! bytes of its restart entry's user key, and a reader needs these two entries to know a key. Where
//! it costs little, an entry shares only what all restart entries begin with. A reader in memory
//! has that in memory ([`ANCHOR_BYTES`]), and needs one entry. The block's own trailer (type,
//! checksum) is written by `format`.

use crate::base::coding::{get_u64, put_u32, put_u64, put_varint};
use crate::base::key::{INTERNAL_KEY_TRAILER_BYTES, common_prefix, split_internal_key};
use crate::table::format::fingerprint_of;
use siftdb_filter::hash::xxph3_64;

/// Most entries of a block with a hash index. A reader compares every fingerprint: in a larger
/// block a binary search is faster.
pub(crate) const FINGERPRINTS_MAX: usize = 1024;

/// Entries of a restart interval in the tables that the database writes.
pub(crate) const RESTART_INTERVAL: usize = 16;

/// Most entries of one restart interval. A reader that iterates in reverse holds one interval.
pub(crate) const RESTART_INTERVAL_MAX: usize = 256;

/// Bytes of the anchor, what all restart entries of a block begin with, that a reader keeps in
/// memory.
pub(crate) const ANCHOR_BYTES: usize = 16;

/// Entries share less than they could, for the sake of the anchor, if the block grows by at most
/// this part of it.
const ANCHOR_COST: usize = 64;

/// Top bit of the restart count: the block has a hash index.
pub(crate) const HASH_INDEX_FLAG: u32 = 1 << 31;

/// Builds blocks one after the other, and reuses its memory.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    restart_interval: usize,
    internal_keys: bool,
    hash_index: bool,
    /// The block; in a data block, entries with whole trailers until it is finished.
    buffer: Vec<u8>,
    /// The finished data block.
    finished: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    /// Bytes that the next entry of a data block may share.
    last_shared: usize,
    /// The last key, without its trailer.
    last_key: Vec<u8>,
    /// Entries added since the last reset.
    pub entries: usize,
    /// The entries in `buffer` of a data block.
    parts: Vec<EntryParts>,
    /// Length of the anchor of these entries.
    anchor: usize,
    /// Bytes that entries share beyond the anchor.
    beyond_anchor: usize,
    smallest_trailer: u64,
    largest_trailer: u64,
    /// One per entry; empty without a hash index.
    fingerprints: Vec<u8>,
}

/// An entry of a data block that is not finished.
#[derive(Clone, Copy, Debug)]
struct EntryParts {
    /// Bytes that its key has in common with its restart entry and all entries between.
    shared: usize,
    /// Where its own bytes begin.
    key_start: usize,
    /// Where they end and the trailer of eight bytes begins.
    key_end: usize,
    /// Where the value ends.
    end: usize,
}

impl BlockBuilder {
    /// A builder for keys that are any bytes: indexes, properties, metaindex. No hash index.
    pub(crate) fn new(restart_interval: usize) -> Self {
        BlockBuilder {
            restart_interval: restart_interval.clamp(1, RESTART_INTERVAL_MAX),
            restarts: vec![0],
            anchor: usize::MAX,
            smallest_trailer: u64::MAX,
            ..BlockBuilder::default()
        }
    }

    /// A builder for data blocks, whose keys are internal keys.
    pub(crate) fn data(restart_interval: usize, hash_index: bool) -> Self {
        BlockBuilder { internal_keys: true, hash_index, ..Self::new(restart_interval) }
    }

    /// An empty builder of blocks like this one.
    pub(crate) fn another(&self) -> Self {
        let BlockBuilder { internal_keys, hash_index, restart_interval, .. } = *self;
        BlockBuilder { internal_keys, hash_index, ..Self::new(restart_interval) }
    }

    /// Adds an entry. In a data block the key must be an internal key.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        let (key, trailer) = match split_internal_key(key) {
            Some((user_key, trailer)) if self.internal_keys => (user_key, Some(trailer)),
            _ => (key, None),
        };
        let common = common_prefix(&self.last_key, key);
        if self.hash_index {
            self.add_fingerprint(key, common);
        }
        let shared = if self.entries > 0 && self.since_restart < self.restart_interval {
            if self.internal_keys { common.min(self.last_shared) } else { common }
        } else {
            if self.entries > 0 {
                self.restarts.push(self.buffer.len() as u32);
            }
            self.since_restart = 0;
            0
        };
        self.last_shared = if self.since_restart == 0 { usize::MAX } else { shared };
        put_varint(&mut self.buffer, shared as u64);
        put_varint(&mut self.buffer, (key.len() - shared) as u64);
        put_varint(&mut self.buffer, value.len() as u64);
        let key_start = self.buffer.len();
        self.buffer.extend_from_slice(&key[shared..]);
        let key_end = self.buffer.len();
        if let Some(trailer) = trailer {
            put_u64(&mut self.buffer, trailer);
            let end = self.buffer.len() + value.len();
            self.parts.push(EntryParts { shared, key_start, key_end, end });
            self.measure(self.parts.len() - 1, trailer);
        }
        self.buffer.extend_from_slice(value);
        self.last_key.truncate(common);
        self.last_key.extend_from_slice(&key[common..]);
        self.since_restart += 1;
        self.entries += 1;
    }

    /// Size of the block if it were finished now. Keys of 128 bytes and more may take a few bytes
    /// more, where the anchor makes their lengths longer.
    pub(crate) fn estimated_bytes(&self) -> usize {
        let hash_index = if self.hash_index { self.fingerprints.len() + 2 } else { 0 };
        let trailers = if self.internal_keys { INTERNAL_KEY_TRAILER_BYTES + 1 } else { 0 };
        let narrowed = self.parts.len() * (INTERNAL_KEY_TRAILER_BYTES - self.trailer_width());
        let restarts = 4 * (self.restarts.len() + 1);
        let anchor = if self.is_anchored() { self.beyond_anchor } else { 0 };
        self.buffer.len() - narrowed + restarts + hash_index + trailers + anchor
    }

    /// About the memory of the block until it is written. It depends on its entries alone.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.estimated_bytes() + size_of_val(&self.parts[..])
    }

    /// Removes the last entry of a data block, which then must be finished.
    pub(crate) fn remove_last(&mut self) {
        self.parts.pop();
        self.entries = self.parts.len();
        self.buffer.truncate(self.parts.last().map_or(0, |parts| parts.end));
        self.fingerprints.truncate(self.entries);
        self.restarts.truncate(self.entries.div_ceil(self.restart_interval).max(1));
        (self.anchor, self.beyond_anchor) = (usize::MAX, 0);
        (self.smallest_trailer, self.largest_trailer) = (u64::MAX, 0);
        for number in 0..self.entries {
            let trailer = get_u64(&self.buffer, self.parts[number].key_end);
            self.measure(number, trailer.unwrap_or_default());
        }
    }

    /// Completes the block. Call `reset` before the next `add`.
    pub(crate) fn finish(&mut self) -> &[u8] {
        if self.internal_keys {
            self.encode_entries();
        }
        for &restart in &self.restarts {
            put_u32(&mut self.buffer, restart);
        }
        let mut count = self.restarts.len() as u32;
        if self.put_hash_index() {
            count |= HASH_INDEX_FLAG;
        }
        if self.internal_keys {
            put_u64(&mut self.buffer, self.smallest_trailer);
            self.buffer.push(self.trailer_width() as u8);
        }
        put_u32(&mut self.buffer, count);
        &self.buffer
    }

    /// Starts the next block.
    pub(crate) fn reset(&mut self) {
        self.buffer.clear();
        self.restarts.clear();
        self.restarts.push(0);
        self.since_restart = 0;
        self.last_key.clear();
        self.entries = 0;
        self.parts.clear();
        (self.anchor, self.beyond_anchor) = (usize::MAX, 0);
        self.smallest_trailer = u64::MAX;
        self.largest_trailer = 0;
        self.fingerprints.clear();
    }

    /// Bytes that every trailer takes, 1 to 8.
    fn trailer_width(&self) -> usize {
        let largest = self.largest_trailer.saturating_sub(self.smallest_trailer);
        (u64::BITS - largest.leading_zeros()).div_ceil(8).max(1) as usize
    }

    /// Writes the entries again, with narrow trailers and with what each shares with the anchor.
    fn encode_entries(&mut self) {
        let width = self.trailer_width();
        let anchor = if self.is_anchored() { self.anchor } else { usize::MAX };
        self.finished.clear();
        let (mut head, mut restarts) = (0, self.restarts.iter_mut());
        for (number, parts) in self.parts.iter().enumerate() {
            let EntryParts { shared, key_start, key_end, end } = *parts;
            if number % self.restart_interval == 0 {
                head = key_start;
                restarts.next().into_iter().for_each(|at| *at = self.finished.len() as u32);
            }
            let kept = shared.min(anchor);
            let value_start = key_end + INTERNAL_KEY_TRAILER_BYTES;
            put_varint(&mut self.finished, kept as u64);
            put_varint(&mut self.finished, (key_end - key_start + shared - kept) as u64);
            put_varint(&mut self.finished, (end - value_start) as u64);
            self.finished.extend_from_slice(&self.buffer[head + kept..head + shared]);
            self.finished.extend_from_slice(&self.buffer[key_start..key_end]);
            let trailer = get_u64(&self.buffer, key_end).unwrap_or_default();
            let above = (trailer - self.smallest_trailer).to_le_bytes();
            self.finished.extend_from_slice(&above[..width]);
            self.finished.extend_from_slice(&self.buffer[value_start..end]);
        }
        std::mem::swap(&mut self.buffer, &mut self.finished);
    }

    /// Updates what the entries have in common, and their trailers, by the entry `number`. All
    /// before it are in.
    fn measure(&mut self, number: usize, trailer: u64) {
        self.smallest_trailer = self.smallest_trailer.min(trailer);
        self.largest_trailer = self.largest_trailer.max(trailer);
        if !number.is_multiple_of(self.restart_interval) {
            self.beyond_anchor += self.parts[number].shared.saturating_sub(self.anchor);
            return;
        }
        let key = |parts: EntryParts| &self.buffer[parts.key_start..parts.key_end];
        let anchor = common_prefix(key(self.parts[0]), key(self.parts[number]));
        if anchor < self.anchor {
            let beyond = |parts: &EntryParts| parts.shared.saturating_sub(anchor);
            self.beyond_anchor = self.parts[..number].iter().map(beyond).sum();
            self.anchor = anchor;
        }
    }

    /// Whether entries share the anchor at most: if that costs little.
    fn is_anchored(&self) -> bool {
        self.beyond_anchor <= self.buffer.len() / ANCHOR_COST
    }

    /// Adds the fingerprint of a user key whose first `common` bytes are those of the last one.
    fn add_fingerprint(&mut self, user_key: &[u8], common: usize) {
        let repeats = common == user_key.len() && self.last_key.len() == user_key.len();
        let fingerprint = match self.fingerprints.last() {
            Some(&last) if repeats => last,
            _ => fingerprint_of(xxph3_64(user_key)),
        };
        self.fingerprints.push(fingerprint);
    }

    fn put_hash_index(&mut self) -> bool {
        if self.fingerprints.is_empty() || self.fingerprints.len() > FINGERPRINTS_MAX {
            return false;
        }
        self.buffer.extend_from_slice(&self.fingerprints);
        self.buffer.extend_from_slice(&(self.fingerprints.len() as u16).to_le_bytes());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_plain_block() {
        let mut builder = BlockBuilder::new(2);
        for (key, value) in [("deck", "v1"), ("dock", "v2"), ("duck", "v3")] {
            builder.add(key.as_bytes(), value.as_bytes());
        }
        assert_eq!(builder.estimated_bytes(), 38);
        let expected = concat!(
            "0004026465636b7631",
            "0103026f636b7632",
            "0004026475636b7633",
            "00000000",
            "11000000",
            "02000000",
        );
        let block = builder.finish().to_vec();
        assert_eq!(hex(&block), expected);
        builder.reset();
        for (key, value) in [("deck", "v1"), ("dock", "v2"), ("duck", "v3")] {
            builder.add(key.as_bytes(), value.as_bytes());
        }
        assert_eq!(builder.finish(), block, "a reused builder writes the same");
    }

    #[test]
    fn golden_data_block_with_hash_index() {
        let mut builder = BlockBuilder::data(2, true);
        for (key, sequence) in [("deck", 9), ("deck", 3), ("dock", 1)] {
            let mut internal = Vec::new();
            put_internal_key(&mut internal, key.as_bytes(), sequence, ValueKind::Put);
            builder.add(&internal, b"v");
        }
        let expected = concat!(
            "0004016465636b000876",
            "040001000276",
            "000401646f636b000076",
            "00000000",
            "10000000",
            "585813",
            "0300",
            "010100000000000002",
            "02000080",
        );
        // XXPH3 fixes the fingerprints; two versions of a key have the same one.
        let found = hex(builder.finish());
        assert_eq!(found, expected);
    }

    #[test]
    fn key_sharing_stops_at_the_trailer() {
        // The second user key begins with the first and that one's kind byte.
        let mut builder = BlockBuilder::data(16, false);
        for (key, sequence) in [(&b"a"[..], 1), (b"a\x01\x01", 1)] {
            let mut internal = Vec::new();
            put_internal_key(&mut internal, key, sequence, ValueKind::Put);
            builder.add(&internal, b"");
        }
        assert_eq!(hex(&builder.finish()[..10]), "00010061000102000101", "shared: the user key");
    }

    #[test]
    fn trailer_deltas_take_minimal_bytes() {
        for bytes in 1..=7 {
            for (above, width) in
                [((1u64 << (8 * bytes)) - 1, bytes), (1 << (8 * bytes), bytes + 1)]
            {
                let mut builder = BlockBuilder::data(2, true);
                for (key, trailer) in [(b"a", 1 + above), (b"b", 1), (b"c", 2), (b"d", 1)] {
                    builder.add(&[&key[..], &trailer.to_le_bytes()].concat(), b"v");
                }
                let estimated = builder.estimated_bytes();
                let block = builder.finish();
                assert_eq!(block.len(), estimated);
                assert_eq!(block.len(), 4 * (3 + 1 + width + 1) + 2 * 4 + 6 + 9 + 4, "{above:x}");
            }
        }
    }

    proptest! {
        /// A block whose last entry was removed is the block that never had it, and is as large as
        /// it said.
        #[test]
        fn removed_entries_leave_no_trace(
            keys in prop::collection::btree_set("[ab]{0,9}[abc]{1,2}", 2..90),
            trailers in prop::collection::vec(prop_oneof![0u64..9, any::<u64>()], 90),
            (restart_interval, hash_index) in (1usize..20, any::<bool>()),
        ) {
            let mut builder = BlockBuilder::data(restart_interval, hash_index);
            let mut shorter = BlockBuilder::data(restart_interval, hash_index);
            let last = keys.len() - 1;
            for (number, (key, trailer)) in keys.iter().zip(trailers).enumerate() {
                let key = [key.as_bytes(), &trailer.to_le_bytes()].concat();
                builder.add(&key, &[7; 20][..number % 20]);
                if number < last {
                    shorter.add(&key, &[7; 20][..number % 20]);
                }
            }
            let whole_bytes = builder.estimated_bytes();
            builder.remove_last();
            prop_assert_eq!(builder.entries, last);
            prop_assert!(builder.estimated_bytes() < whole_bytes);
            prop_assert_eq!(builder.estimated_bytes(), shorter.estimated_bytes());
            let shorter = shorter.finish();
            prop_assert_eq!(builder.estimated_bytes(), shorter.len());
            prop_assert_eq!(builder.finish(), shorter);
        }
    }

    #[test]
    fn too_many_entries_leave_the_hash_index_out() {
        for (entries, hashed) in [(FINGERPRINTS_MAX, true), (FINGERPRINTS_MAX + 1, false)] {
            let mut builder = BlockBuilder::data(1, true);
            for i in 0..entries {
                let mut internal = Vec::new();
                put_internal_key(&mut internal, format!("{i:04}").as_bytes(), 1, ValueKind::Put);
                builder.add(&internal, b"");
            }
            let block = builder.finish();
            assert_eq!(block[block.len() - 1] == 0x80, hashed, "{entries} entries");
        }
    }
}
