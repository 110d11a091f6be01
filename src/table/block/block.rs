//! A block in memory: checked once, then read without an error path.
//!
//! A [`Block`] is the bytes of a block and where its parts lie; `block/builder.rs` has the grammar.
//! The bytes may be a copy of its own (a cached block) or the buffer that the block was read to (an
//! uncached block). [`Block::check`] looks at every entry once: structure, restart points, kinds,
//! order. So a reader meets only sound entries. If it met an unsound one in spite of that, a lookup
//! would end with "absent" and nothing would panic.
//!
//! `block/directory.rs` is what lookups in cached blocks search by, `block/restart_search.rs` what
//! lookups in uncached blocks do; `block/cursor.rs` iterates in order.

use crate::base::coding::{get_u16, get_u32, get_u64, get_varint};
use crate::base::expiry::EXPIRY_BYTES;
use crate::base::key::{
    INTERNAL_KEY_TRAILER_BYTES, KEY_BYTES_MAX, SequenceNumber, ValueKind, common_prefix,
    unpack_trailer,
};
use crate::table::block::builder::{ANCHOR_BYTES, HASH_INDEX_FLAG, RESTART_INTERVAL_MAX};
use siftdb_filter::cache_line::{LINE_BYTES, prefetch};
use std::cmp::Ordering;
use std::ops::{Deref, Range};

/// What the keys of a block are, which decides what is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKeys {
    /// Internal keys, in their order: a data block.
    Internal,
    /// Any bytes, in bytewise order: properties and metaindex.
    Bytes,
}

/// A sound block. `B` holds its bytes. A lookup touches all of it: with the anchor it fits into one
/// cache line with what else a lookup touches of a cached block.
#[derive(Clone, Debug)]
pub(crate) struct Block<B = Box<[u8]>> {
    /// The block, and after it what the directory has there.
    pub(super) bytes: B,
    /// The smallest trailer; where keys have none, 0.
    trailer_base: u64,
    entries_end: u32,
    restarts: u32,
    /// Slots of the directory; 0 without one. This and the next fields are of `block/directory.rs`.
    pub(super) directory: u16,
    /// Mean bytes of an entry.
    pub(super) entry_bytes: u16,
    /// Bytes of each trailer; 0 where keys have none.
    trailer_width: u8,
    /// What the keys are. It also leaves [`CachedBlock`] the values to tell its variants apart,
    /// which would need a word of their own.
    ///
    /// [`CachedBlock`]: crate::table::index::CachedBlock
    keys: BlockKeys,
    /// How many bytes all restart entries begin with.
    pub(super) anchor_len: u16,
    /// The first of those bytes: what an entry shares, if it shares no more.
    pub(super) anchor: [u8; ANCHOR_BYTES],
}

/// Bytes of a directory's slot: a fingerprint and a position, u16. Where no entry can begin is an
/// empty slot.
pub(super) const DIRECTORY_SLOT_BYTES: usize = 3;

/// Slots of a near directory. At least a fifth of them is empty: a search is short and ends.
pub(super) const NEAR_SLOTS: usize = 63;

/// What is wrong with a data block of an ingested table whose entries have sequences.
const WITH_SEQUENCE: &str = "an entry of an ingested table that has a sequence of its own";

/// How the trailers of a data block are written: as differences to the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailers {
    base: u64,
    /// Bytes of each, 1 to 8.
    pub(super) width: u8,
}

/// Positions of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Bytes that the key shares with the entry before.
    pub shared: usize,
    /// Where its own bytes begin.
    pub key_start: usize,
    /// Where they end. In a data block the trailer follows, in any other the value.
    pub key_end: usize,
    /// Where the value begins.
    pub value_start: usize,
    /// Where it ends, and the next entry begins.
    pub end: usize,
}

/// What a lookup found: the newest visible version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Sequence and kind.
    pub trailer: u64,
    /// Where the value begins in the block.
    pub value_start: usize,
    pub value_len: usize,
}

impl Trailers {
    /// Bytes of base and width at the end of a data block.
    const ENCODED_BYTES: usize = INTERNAL_KEY_TRAILER_BYTES + 1;

    fn decode(bytes: &[u8]) -> Option<Self> {
        let width = *bytes.get(INTERNAL_KEY_TRAILER_BYTES)?;
        let sound = (1..=INTERNAL_KEY_TRAILER_BYTES as u8).contains(&width);
        Some(Trailers { base: get_u64(bytes, 0)?, width }).filter(|_| sound)
    }

    /// The trailer that is written at `at`; `None` if it would exceed 64 bits.
    #[inline]
    pub(super) fn get(&self, block: &[u8], at: usize) -> Option<u64> {
        // Reads eight bytes and masks the rest off: more than eight follow the last entry.
        let above = get_u64(block, at)? & (u64::MAX >> (64 - 8 * u32::from(self.width)));
        self.base.checked_add(above)
    }
}

impl Block {
    /// Checks `block`, decompressed and without its trailer, and copies it. The error says what is
    /// wrong.
    pub(crate) fn new(block: &[u8], keys: BlockKeys) -> Result<Self, String> {
        let (parsed, fingerprints) = Block::parse(block, keys)?;
        parsed.check(fingerprints.len(), |_| {})?;
        Ok(parsed.with_bytes(Box::from(block)))
    }

    /// Bytes of it on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes in memory: those of the block, and others after them.
    #[inline]
    pub(crate) fn memory(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B> Block<B> {
    pub(super) fn with_bytes<C>(&self, bytes: C) -> Block<C> {
        let Block { trailer_base, entries_end, restarts, directory, .. } = *self;
        let Block { entry_bytes, trailer_width, keys, anchor_len, anchor, .. } = *self;
        Block {
            bytes,
            trailer_base,
            entries_end,
            restarts,
            directory,
            entry_bytes,
            trailer_width,
            keys,
            anchor_len,
            anchor,
        }
    }

    /// How trailers are written; `None` where keys have none.
    #[inline]
    pub(super) fn trailers(&self) -> Option<Trailers> {
        let trailers = Trailers { base: self.trailer_base, width: self.trailer_width };
        (self.keys == BlockKeys::Internal).then_some(trailers)
    }
}

impl<B: Deref<Target = [u8]>> Block<B> {
    /// A data block in the buffer that it was read to. It is checked unless `is_sound` says that
    /// the same bytes were found sound before. The error says what is wrong.
    pub(crate) fn in_place(bytes: B, is_sound: bool) -> Result<Self, String> {
        let (block, fingerprints) = Self::parse(bytes, BlockKeys::Internal)?;
        if !is_sound {
            block.borrowed().check(fingerprints.len(), |_| {})?;
        }
        Ok(block)
    }

    /// A copy with bytes of its own, to be iterated over.
    pub(crate) fn to_owned_block(&self) -> Block {
        Block { directory: 0, ..self.with_bytes(Box::from(self.contents())) }
    }

    /// Reads the end of a block, which says where its parts lie. Without a directory. Returns where
    /// the fingerprints are, too.
    pub(super) fn parse(bytes: B, keys: BlockKeys) -> Result<(Self, Range<usize>), &'static str> {
        let (block, fingerprints) = parse_end(&bytes, keys).ok_or("block with a malformed end")?;
        Ok((block.with_bytes(bytes), fingerprints))
    }

    /// The same block, whose bytes this one owns.
    pub(crate) fn borrowed(&self) -> Block<&[u8]> {
        self.with_bytes(&*self.bytes)
    }

    /// The data block with `sequence` in place of the sequence 0 of every entry, if it is of an
    /// ingested table. `is_sound` as for [`Block::in_place`].
    pub(crate) fn with_sequence(
        mut self,
        sequence: Option<SequenceNumber>,
        is_sound: bool,
    ) -> Result<Self, &'static str> {
        let Some(sequence) = sequence else { return Ok(self) };
        let mut at = if is_sound { self.entries_end() } else { 0 };
        while let Some(entry) = self.entry_at(at) {
            at = entry.end;
            if self.trailer(&entry).and_then(unpack_trailer).is_none_or(|(own, _)| own != 0) {
                return Err(WITH_SEQUENCE);
            }
        }
        // Trailers are differences to the base, so this moves all of them. No reader needs to know.
        self.trailer_base = self.trailer_base.checked_add(sequence << 8).ok_or(WITH_SEQUENCE)?;
        Ok(self)
    }

    /// Bytes of the block itself.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - far_bytes(self.directory.into())
    }

    /// Where the entries end.
    #[inline]
    pub(crate) fn entries_end(&self) -> usize {
        self.entries_end as usize
    }

    /// Number of restart intervals.
    #[inline]
    pub(crate) fn restarts(&self) -> usize {
        self.restarts as usize
    }

    /// The block; positions in it come from [`Found`] and [`Entry`].
    pub(crate) fn contents(&self) -> &[u8] {
        self.slice(0, self.len())
    }

    /// The fingerprints of a data block; empty if it has none.
    pub(super) fn fingerprints(&self) -> &[u8] {
        let start = self.entries_end() + 4 * self.restarts();
        // Their number, base and width of the trailers, and the number of restarts follow, as
        // `parse_end` reads them. In a block without fingerprints that number is missing, too.
        let after = 2 + Trailers::ENCODED_BYTES + 4;
        self.slice(start, self.len().saturating_sub(after))
    }

    /// These bytes of the block; empty where they are not in it.
    #[inline]
    pub(crate) fn slice(&self, start: usize, end: usize) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Prefetches the cache lines of these bytes of the block. Does not wait, unlike `touch`.
    #[inline]
    pub(crate) fn prefetch(&self, bytes: Range<usize>) {
        let lines = self.bytes.get(bytes.start..bytes.end.min(self.len()));
        for line in lines.unwrap_or_default().chunks(LINE_BYTES) {
            prefetch(line, 0);
        }
    }

    /// Prefetches the cache line of one byte of the block, if it has that byte.
    #[inline(always)]
    pub(crate) fn prefetch_line(&self, at: usize) {
        prefetch(&self.bytes, at);
    }

    /// Where restart interval `interval` begins; `None` beyond the last.
    #[inline]
    pub(crate) fn restart(&self, interval: usize) -> Option<usize> {
        if interval >= self.restarts() {
            return None;
        }
        get_u32(&self.bytes, self.entries_end() + 4 * interval).map(|offset| offset as usize)
    }

    /// Decodes the entry at `at`; `None` at the end of the entries and where none is sound.
    #[inline]
    pub(crate) fn entry_at(&self, at: usize) -> Option<Entry> {
        let header = self.bytes.get(at..self.entries_end())?;
        let (shared, non_shared, value_len, header_len) = match *header {
            [shared, non_shared, value_len, ..] if (shared | non_shared | value_len) < 0x80 => {
                (u64::from(shared), u64::from(non_shared), u64::from(value_len), 3)
            }
            _ => long_header(header)?,
        };
        let key_start = at + header_len;
        let key_end = key_start.checked_add(usize::try_from(non_shared).ok()?)?;
        let value_start = key_end.checked_add(self.trailer_width.into())?;
        let end = value_start.checked_add(usize::try_from(value_len).ok()?)?;
        if end > self.entries_end() {
            return None;
        }
        Some(Entry { shared: usize::try_from(shared).ok()?, key_start, key_end, value_start, end })
    }

    /// The bytes of the key of `entry` that it does not share.
    #[inline]
    pub(crate) fn own_key(&self, entry: &Entry) -> &[u8] {
        self.slice(entry.key_start, entry.key_end)
    }

    /// The trailer of `entry`; `None` in a block whose keys have none.
    #[inline(always)]
    pub(crate) fn trailer(&self, entry: &Entry) -> Option<u64> {
        self.trailers()?.get(&self.bytes, entry.key_end)
    }
}

impl<'b> Block<&'b [u8]> {
    /// Checks every entry and tells `begins` where each one begins. There have to be as many as
    /// `fingerprints`, if there are any of those. Returns the number of entries. The error says
    /// what is wrong.
    pub(super) fn check(
        &self,
        fingerprints: usize,
        begins: impl FnMut(usize),
    ) -> Result<usize, String> {
        let entries = match self.keys {
            BlockKeys::Internal => self.check_with(InternalKeys::default(), begins)?,
            BlockKeys::Bytes => self.check_with(AnyKeys::default(), begins)?,
        };
        if fingerprints > 0 && fingerprints != entries {
            return Err(format!("hash index of {fingerprints} entries where there are {entries}"));
        }
        Ok(entries)
    }

    fn check_with(
        &self,
        mut keys: impl KeyCheck<'b>,
        mut begins: impl FnMut(usize),
    ) -> Result<usize, String> {
        let (mut at, mut entries, mut restart) = (0, 0, 0);
        let (mut interval, mut since_restart) = (RESTART_INTERVAL_MAX, 0);
        let mut next_restart = self.restart(0);
        while at < self.entries_end() {
            let wrong = |what: &str| format!("{what} at byte {at} of the block");
            let entry = self.entry_at(at).ok_or_else(|| wrong("malformed entry"))?;
            let restarts = next_restart == Some(at);
            if restarts {
                if entry.shared != 0 {
                    return Err(wrong("restart entry that shares a prefix"));
                }
                match restart {
                    0 => {}
                    1 => interval = since_restart,
                    _ if since_restart == interval => {}
                    _ => return Err(wrong("restart interval of another length")),
                }
                restart += 1;
                since_restart = 0;
                next_restart = self.restart(restart);
            }
            if restart == 0 || since_restart >= interval {
                return Err(wrong("entry without a restart point"));
            }
            since_restart += 1;
            if !keys.advance(restarts, self, &entry).map_err(wrong)? && at > 0 {
                return Err(wrong("key out of order"));
            }
            begins(at);
            entries += 1;
            at = entry.end;
        }
        let only_empty = self.entries_end == 0 && self.restarts == 1;
        if restart != self.restarts() && !(only_empty && next_restart == Some(0)) {
            return Err("restart point that is no entry".into());
        }
        Ok(entries)
    }
}

/// Bytes of a directory after a block: one more than its slots have, because a slot is read as
/// four.
#[inline]
pub(super) fn far_bytes(slots: usize) -> usize {
    if slots <= NEAR_SLOTS { 0 } else { DIRECTORY_SLOT_BYTES * slots + 1 }
}

/// Where the parts of a block lie, and where its fingerprints.
fn parse_end(block: &[u8], keys: BlockKeys) -> Option<(Block<()>, Range<usize>)> {
    let mut end = block.len().checked_sub(4)?;
    let count = get_u32(block, end)?;
    let hashed = count & HASH_INDEX_FLAG != 0;
    let trailers = match keys {
        BlockKeys::Internal => {
            end = end.checked_sub(Trailers::ENCODED_BYTES)?;
            Some(Trailers::decode(block.get(end..)?)?)
        }
        BlockKeys::Bytes => None,
    };
    let mut fingerprints = 0;
    if hashed {
        end = end.checked_sub(2)?;
        fingerprints = usize::from(get_u16(block, end)?);
        end = end.checked_sub(fingerprints)?;
    }
    let restarts = count & !HASH_INDEX_FLAG;
    let entries_end = end.checked_sub((restarts as usize).checked_mul(4)?)?;
    let _: u32 = block.len().try_into().ok()?;
    let sound = restarts > 0 && (fingerprints > 0) == hashed;
    let parsed = Block {
        bytes: (),
        trailer_base: trailers.map_or(0, |trailers| trailers.base),
        entries_end: entries_end.try_into().ok()?,
        restarts,
        directory: 0,
        entry_bytes: 0,
        trailer_width: trailers.map_or(0, |trailers| trailers.width),
        keys,
        anchor_len: 0,
        anchor: [0; ANCHOR_BYTES],
    };
    sound.then_some((parsed, end..end + fingerprints))
}

#[cold]
fn long_header(header: &[u8]) -> Option<(u64, u64, u64, usize)> {
    let (shared, a) = get_varint(header)?;
    let (non_shared, b) = get_varint(header.get(a..)?)?;
    let (value_len, c) = get_varint(header.get(a + b..)?)?;
    Some((shared, non_shared, value_len, a + b + c))
}

/// The last key of a check, to compare the next one with.
trait KeyCheck<'b> {
    /// Takes the next entry's key. Returns whether it is above the one before.
    fn advance(
        &mut self,
        restarts: bool,
        block: &Block<&'b [u8]>,
        entry: &Entry,
    ) -> Result<bool, &'static str>;
}

/// Keys in bytewise order, each built from the one before.
#[derive(Default)]
struct AnyKeys(Vec<u8>);

impl<'b> KeyCheck<'b> for AnyKeys {
    fn advance(
        &mut self,
        _: bool,
        block: &Block<&'b [u8]>,
        entry: &Entry,
    ) -> Result<bool, &'static str> {
        let key = &mut self.0;
        let Some(rest) = key.get(entry.shared..) else {
            return Err("entry that shares more than the key before");
        };
        let own = block.own_key(entry);
        let ordered = rest < own;
        key.truncate(entry.shared);
        key.extend_from_slice(own);
        Ok(ordered)
    }
}

/// Internal keys, which are not built: what an entry shares are bytes of its restart entry's key.
/// So the last key is two slices of the block, `head[..shared]` and `own`, and its trailer.
#[derive(Default)]
struct InternalKeys<'b> {
    /// The user key of the restart entry.
    head: &'b [u8],
    shared: usize,
    own: &'b [u8],
    trailer: u64,
}

impl<'b> KeyCheck<'b> for InternalKeys<'b> {
    #[inline]
    fn advance(
        &mut self,
        restarts: bool,
        block: &Block<&'b [u8]>,
        entry: &Entry,
    ) -> Result<bool, &'static str> {
        let bytes: &'b [u8] = block.bytes;
        let (shared, own) =
            (entry.shared, bytes.get(entry.key_start..entry.key_end).unwrap_or_default());
        let Some(trailer) = block.trailer(entry) else {
            return Err("entry with a sequence beyond all");
        };
        match unpack_trailer(trailer) {
            None => return Err("entry of an unknown kind"),
            Some((_, ValueKind::ExpiringPut)) if entry.end - entry.value_start < EXPIRY_BYTES => {
                return Err("expiring entry without its time");
            }
            Some(_) => {}
        }
        // `head[..shared]` is common to both keys. What the last key has after that is `rest`, then
        // its `own`; the new key has its own bytes there. An entry that shares more than the last
        // one did would share bytes of `own`, which its restart entry does not have.
        let Some(rest) = self.head.get(shared..self.shared) else {
            return Err("entry that shares more than the one before it");
        };
        if shared + own.len() > KEY_BYTES_MAX {
            return Err("key longer than any key may be");
        }
        // Most neighbours differ in the first byte that either has of its own.
        let order = match (own.first(), rest.first()) {
            (Some(a), Some(b)) if a != b => a.cmp(b),
            (_, None) => compare(own, self.own).then(self.trailer.cmp(&trailer)),
            _ => compare_to_both(own, rest, self.own).then(self.trailer.cmp(&trailer)),
        };
        (self.shared, self.own, self.trailer) = (shared, own, trailer);
        if restarts {
            (self.head, self.shared, self.own) = (own, own.len(), &[]);
        }
        Ok(order == Ordering::Greater)
    }
}

/// The order of `bytes` and the concatenation of `first` and `second`.
fn compare_to_both(bytes: &[u8], first: &[u8], second: &[u8]) -> Ordering {
    match bytes.split_at_checked(first.len()) {
        Some((head, tail)) => compare(head, first).then_with(|| compare(tail, second)),
        None => compare(bytes, first),
    }
}

/// The order of two short slices. Inlined: a call costs more than most comparisons.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let common = common_prefix(a, b);
    match (a.get(common), b.get(common)) {
        (Some(x), Some(y)) => x.cmp(y),
        _ => a.len().cmp(&b.len()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::key::{
        SEQUENCE_MAX, compare_internal, put_internal_key, put_key_with_trailer,
    };
    use crate::table::block::builder::BlockBuilder;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    /// User keys over few letters, some of them trailer-like bytes, so that prefixes abound, below
    /// an anchor's length and above it; few sequences, so that versions do.
    pub(crate) fn entries() -> impl Strategy<Value = Entries> {
        let letter = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(0xff)];
        let key = (vec(letter, 0..12), prop_oneof![4 => 0u64..8, 1 => Just(SEQUENCE_MAX)]);
        let prefix = prop_oneof![Just(0), Just(1), ANCHOR_BYTES - 2..ANCHOR_BYTES + 3];
        (prefix, btree_set(key, 0..120)).prop_map(|(prefix, keys)| {
            let mut entries: Entries = keys
                .into_iter()
                .map(|(user, sequence)| {
                    let user = [&vec![b'p'; prefix], &user[..]].concat();
                    let value = format!("{sequence}").repeat(user.len() * 13 % 40);
                    let kind = match sequence % 3 {
                        0 => ValueKind::Tombstone,
                        1 if value.len() >= EXPIRY_BYTES => ValueKind::ExpiringPut,
                        _ => ValueKind::Put,
                    };
                    let mut key = Vec::new();
                    put_internal_key(&mut key, &user, sequence, kind);
                    (key, value.into_bytes())
                })
                .collect();
            entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
            entries
        })
    }

    pub(crate) fn built(entries: &Entries, restart_interval: usize, hash_index: bool) -> Vec<u8> {
        let mut builder = BlockBuilder::data(restart_interval, hash_index);
        for (key, value) in entries {
            builder.add(key, value);
        }
        builder.finish().to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Block::new(&bytes, BlockKeys::Bytes);
            let _ = Block::new(&bytes, BlockKeys::Internal);
        }
    }

    #[test]
    fn expiring_entries_without_time_are_refused() {
        for bytes in 0..=EXPIRY_BYTES {
            let mut builder = BlockBuilder::data(16, true);
            let mut internal = Vec::new();
            put_internal_key(&mut internal, b"key", 1, ValueKind::ExpiringPut);
            builder.add(&internal, &vec![b'v'; bytes]);
            let block = Block::new(builder.finish(), BlockKeys::Internal);
            assert_eq!(block.is_ok(), bytes == EXPIRY_BYTES, "{bytes}");
        }
    }

    #[test]
    fn entries_share_the_anchor_where_that_is_cheap() {
        // Bytes that the fourth entry shares. Restart entries are the first and the third.
        let shared = |value: usize, keys: [&str; 4]| {
            let mut builder = BlockBuilder::data(2, true);
            for key in keys {
                let mut internal = Vec::new();
                put_internal_key(&mut internal, key.as_bytes(), 1, ValueKind::Put);
                builder.add(&internal, &vec![b'v'; value]);
            }
            let block = Block::new(builder.finish(), BlockKeys::Internal).unwrap();
            block
                .entry_at(block.restart(1).unwrap())
                .and_then(|e| block.entry_at(e.end))
                .unwrap()
                .shared
        };
        let near = ["anchor0", "anchor1", "anchor20", "anchor21"];
        assert_eq!(
            (shared(100, near), shared(0, near)),
            (6, 7),
            "a byte more costs little or much"
        );
        let long = [
            "a long common prefix 0",
            "a long common prefix 1",
            "a long common prefix 20",
            "a long common prefix 21",
        ];
        assert_eq!(shared(400, long), 21, "more than a reader keeps in memory");
    }

    #[test]
    fn shared_bytes_come_from_the_restart_entry() {
        let mut builder = BlockBuilder::data(4, false);
        for key in ["abcde", "abcdf", "abd", "abdef", "abdeg"] {
            let mut internal = Vec::new();
            put_internal_key(&mut internal, key.as_bytes(), 1, ValueKind::Put);
            builder.add(&internal, b"");
        }
        let block = builder.finish();
        let (block, _) = Block::parse(block, BlockKeys::Internal).unwrap();
        assert_eq!(block.trailers().unwrap().width, 1);
        let (mut at, mut shared) = (0, Vec::new());
        while let Some(entry) = block.entry_at(at) {
            shared.push(entry.shared);
            at = entry.end;
        }
        assert_eq!(shared, [0, 4, 2, 2, 0], "`abdef` has 3 bytes in common with `abd`");
    }

    fn check(bytes: &[u8], keys: BlockKeys) -> Result<usize, String> {
        let (block, fingerprints) = Block::parse(bytes, keys)?;
        block.check(fingerprints.len(), |_| {})
    }

    fn refusal(bytes: &[u8], keys: BlockKeys) -> String {
        check(bytes, keys).unwrap_err()
    }

    #[test]
    fn block_damage_is_named() {
        let entry = |shared: u8, user: &[u8], trailer: u64| {
            let mut bytes = vec![shared, user.len() as u8, 0];
            put_key_with_trailer(&mut bytes, user, trailer);
            bytes
        };
        let ending = |base: u64, width: u8| [&base.to_le_bytes()[..], &[width]].concat();
        let sealed_by = |entries: &[Vec<u8>], ending: &[u8]| {
            [&entries.concat()[..], &[0; 4], ending, &[1, 0, 0, 0]].concat()
        };
        let sealed = |entries: &[Vec<u8>]| sealed_by(entries, &ending(0, 8));
        let check_all = |entries: &[Vec<u8>]| refusal(&sealed(entries), BlockKeys::Internal);
        assert!(check_all(&[entry(0, b"a", 2)]).contains("unknown kind"));
        assert!(check_all(&[entry(1, b"a", 1)]).contains("shares a prefix"));
        assert!(check_all(&[entry(0, b"b", 1), entry(0, b"a", 1)]).contains("out of order"));
        assert!(check_all(&[entry(0, b"a", 1), entry(1, b"", 257)]).contains("out of order"));
        assert!(check_all(&[entry(0, b"a", 1), entry(2, b"b", 1)]).contains("shares more"));
        assert!(check_all(&[vec![0, 2, 0, b'a', b'b']]).contains("malformed entry"));
        let one = [entry(0, b"a", 1)];
        for (base, width, what) in
            [(0, 0, "malformed end"), (0, 9, "malformed end"), (u64::MAX, 8, "beyond all")]
        {
            let block = sealed_by(&one, &ending(base, width));
            assert!(refusal(&block, BlockKeys::Internal).contains(what), "{base}, {width}");
        }
        assert!(check_all(&[vec![0, 200, 1, 0]]).contains("malformed entry"));
        let many: Vec<_> = (0..=256u64).rev().map(|i| entry(0, b"a", i << 8)).collect();
        assert!(check_all(&many).contains("without a restart"));
        assert!(check(&sealed(&many[1..]), BlockKeys::Internal).is_ok());
        let tail = |count: u32, restart: u32| {
            let entry = entry(0, b"a", 1);
            [&entry[..], &restart.to_le_bytes(), &ending(0, 8), &count.to_le_bytes()].concat()
        };
        for count in [0, 2, 100, u32::MAX >> 1, u32::MAX, HASH_INDEX_FLAG, HASH_INDEX_FLAG | 1] {
            check(&tail(count, 0), BlockKeys::Internal).unwrap_err();
        }
        assert!(refusal(&tail(1, 3), BlockKeys::Internal).contains("without a restart"));
        check(&tail(1, 0), BlockKeys::Internal).unwrap();
    }
}
