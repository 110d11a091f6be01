//! What makes a block sound: checked once, when it is loaded.
//!
//! Called by `block` with what `fetch` read; the grammar stands in `block_builder`. [`BlockShape`]
//! says where the parts of a block lie, [`decode_entry`] where those of an entry do, [`Trailers`]
//! what an entry's trailer is, and [`check_entries`] walks over all of them: structure, restart
//! points, kinds, order. Whoever reads later meets only sound entries.
//!
//! Keys of a data block are not put together for this. What an entry shares are bytes of its
//! restart entry's key, so each key is two slices of the block, and two neighbours mostly differ in
//! the first byte that either has of its own.

use crate::base::coding::{get_u16, get_u32, get_u64, get_varint};
use crate::base::key::common_prefix;
use crate::base::key::{KEY_BYTES_MAX, TRAILER_BYTES, unpack_trailer};
use crate::table::block::builder::{HASH_INDEX_FLAG, RESTART_INTERVAL_MAX};
use std::cmp::Ordering;
use std::num::NonZeroU8;

/// What the keys of a block are, which decides what is checked at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKeys {
    /// Internal keys, in their order: a data block.
    Internal,
    /// Any bytes, in bytewise order: properties and metaindex.
    Bytes,
}

/// Where the parts of a block lie.
#[derive(Clone, Copy, Debug)]
pub struct BlockShape {
    /// Where the restart array begins.
    pub entries_end: usize,
    /// Number of restart points.
    pub restarts: usize,
    /// Number of tags; 0 without a hash index.
    pub tags: usize,
    /// How trailers are written; `None` in a block whose keys have none.
    pub trailers: Option<Trailers>,
}

/// How the trailers of a data block are written: as what they are above the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailers {
    base: u64,
    /// Bytes of each, 1 to 8.
    width: NonZeroU8,
}

/// Positions of one entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Bytes of the key that are those of the entry before.
    pub shared: usize,
    /// Where the others begin.
    pub key_start: usize,
    /// Where they end. In a data block the trailer follows, in any other the value.
    pub key_end: usize,
    /// Where the value begins.
    pub value_start: usize,
    /// Where it ends, and the next entry begins.
    pub end: usize,
}

impl BlockShape {
    /// Reads the end of a block; an error if there is no room for what it says.
    pub fn parse(block: &[u8], keys: BlockKeys) -> Result<Self, &'static str> {
        Self::parse_end(block, keys).ok_or("block with a malformed end")
    }

    fn parse_end(block: &[u8], keys: BlockKeys) -> Option<Self> {
        let mut end = block.len().checked_sub(4)?;
        let count = get_u32(block, end)?;
        let hashed = count & HASH_INDEX_FLAG != 0;
        let trailers = match keys {
            BlockKeys::Internal => {
                end = end.checked_sub(TRAILERS_BYTES)?;
                Some(Trailers::decode(block.get(end..)?)?)
            }
            BlockKeys::Bytes => None,
        };
        let mut tags = 0;
        if hashed {
            end = end.checked_sub(2)?;
            tags = usize::from(get_u16(block, end)?);
            end = end.checked_sub(tags)?;
        }
        let restarts = (count & !HASH_INDEX_FLAG) as usize;
        let entries_end = end.checked_sub(restarts.checked_mul(4)?)?;
        let sound = restarts > 0 && (tags > 0) == hashed;
        sound.then_some(BlockShape { entries_end, restarts, tags, trailers })
    }

    /// Where restart interval `interval` begins; `None` beyond the last.
    #[inline]
    #[must_use]
    pub fn restart(&self, block: &[u8], interval: usize) -> Option<usize> {
        if interval >= self.restarts {
            return None;
        }
        get_u32(block, self.entries_end + 4 * interval).map(|offset| offset as usize)
    }
}

/// Bytes of base and width.
pub const TRAILERS_BYTES: usize = TRAILER_BYTES + 1;

impl Trailers {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let width = NonZeroU8::new(*bytes.get(TRAILER_BYTES)?)?;
        let sound = usize::from(width.get()) <= TRAILER_BYTES;
        Some(Trailers { base: get_u64(bytes, 0)?, width }).filter(|_| sound)
    }

    /// Bytes of each.
    #[inline]
    #[must_use]
    pub fn width(&self) -> usize {
        usize::from(self.width.get())
    }

    /// The trailer that is written at `at`; `None` if it would be larger than any number. Reads
    /// eight bytes: more than that follows the last entry of a data block.
    #[inline]
    #[must_use]
    pub fn get(&self, block: &[u8], at: usize) -> Option<u64> {
        let above = get_u64(block, at)? & (u64::MAX >> (64 - 8 * u32::from(self.width.get())));
        self.base.checked_add(above)
    }
}

/// Decodes the entry at `at` of a block whose entries end at `entries_end` and whose trailers take
/// `trailer_bytes`; `None` at the end and where nothing sound stands.
#[inline]
#[must_use]
pub fn decode_entry(
    block: &[u8],
    at: usize,
    entries_end: usize,
    trailer_bytes: usize,
) -> Option<Entry> {
    let header = block.get(at..entries_end)?;
    let (shared, non_shared, value_len, header_len) = match *header {
        [shared, non_shared, value_len, ..] if (shared | non_shared | value_len) < 0x80 => {
            (u64::from(shared), u64::from(non_shared), u64::from(value_len), 3)
        }
        _ => long_header(header)?,
    };
    let key_start = at + header_len;
    let key_end = key_start.checked_add(usize::try_from(non_shared).ok()?)?;
    let value_start = key_end.checked_add(trailer_bytes)?;
    let end = value_start.checked_add(usize::try_from(value_len).ok()?)?;
    if end > entries_end {
        return None;
    }
    Some(Entry { shared: usize::try_from(shared).ok()?, key_start, key_end, value_start, end })
}

impl Entry {
    /// The bytes that the key does not share.
    #[inline]
    #[must_use]
    pub fn own_key<'b>(&self, block: &'b [u8]) -> &'b [u8] {
        block.get(self.key_start..self.key_end).unwrap_or_default()
    }
}

#[cold]
fn long_header(header: &[u8]) -> Option<(u64, u64, u64, usize)> {
    let (shared, a) = get_varint(header)?;
    let (non_shared, b) = get_varint(header.get(a..)?)?;
    let (value_len, c) = get_varint(header.get(a + b..)?)?;
    Some((shared, non_shared, value_len, a + b + c))
}

/// One walk over everything; `begins` is told where each entry begins. Answers how many entries
/// each restart interval has but the last, which may have fewer. The error says what is wrong.
pub fn check_entries(
    block: &[u8],
    shape: BlockShape,
    begins: impl FnMut(usize),
) -> Result<usize, String> {
    match shape.trailers {
        Some(trailers) => walk(block, shape, InternalKeys::new(trailers), begins),
        None => walk(block, shape, AnyKeys::default(), begins),
    }
}

/// What a walk knows of the key before, to hold the next one against it.
trait KeyWalk<'b> {
    /// Bytes of a trailer.
    fn trailer_bytes(&self) -> usize;

    /// Takes the next entry's key; answers whether it stands behind the one before.
    fn advance(
        &mut self,
        restarts: bool,
        block: &'b [u8],
        entry: &Entry,
    ) -> Result<bool, &'static str>;
}

fn walk<'b>(
    block: &'b [u8],
    shape: BlockShape,
    mut keys: impl KeyWalk<'b>,
    mut begins: impl FnMut(usize),
) -> Result<usize, String> {
    let (mut at, mut entries, mut restart) = (0, 0, 0);
    let (mut interval, mut since_restart) = (RESTART_INTERVAL_MAX, 0);
    let mut next_restart = shape.restart(block, 0);
    while at < shape.entries_end {
        let wrong = |what: &str| format!("{what} at byte {at} of the block");
        let entry = decode_entry(block, at, shape.entries_end, keys.trailer_bytes())
            .ok_or_else(|| wrong("malformed entry"))?;
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
            next_restart = shape.restart(block, restart);
        }
        if restart == 0 || since_restart >= interval {
            return Err(wrong("entry without a restart point"));
        }
        since_restart += 1;
        if !keys.advance(restarts, block, &entry).map_err(wrong)? && at > 0 {
            return Err(wrong("key out of order"));
        }
        begins(at);
        entries += 1;
        at = entry.end;
    }
    let only_empty = shape.entries_end == 0 && shape.restarts == 1;
    if restart != shape.restarts && !(only_empty && next_restart == Some(0)) {
        return Err("restart point that is no entry".into());
    }
    if shape.tags > 0 && shape.tags != entries {
        return Err(format!("hash index of {} entries where there are {entries}", shape.tags));
    }
    Ok(interval)
}

/// Keys in bytewise order, each put together from the one before.
#[derive(Default)]
struct AnyKeys(Vec<u8>);

impl KeyWalk<'_> for AnyKeys {
    fn trailer_bytes(&self) -> usize {
        0
    }

    fn advance(&mut self, _: bool, block: &[u8], entry: &Entry) -> Result<bool, &'static str> {
        let key = &mut self.0;
        let Some(rest) = key.get(entry.shared..) else {
            return Err("entry that shares more than the key before");
        };
        let own = entry.own_key(block);
        let ordered = rest < own;
        key.truncate(entry.shared);
        key.extend_from_slice(own);
        Ok(ordered)
    }
}

/// Internal keys: the one before is `head[..shared]`, then `own`, then the trailer. `head` is the
/// user key of its restart entry.
struct InternalKeys<'b> {
    trailers: Trailers,
    head: &'b [u8],
    shared: usize,
    own: &'b [u8],
    trailer: u64,
}

impl InternalKeys<'_> {
    fn new(trailers: Trailers) -> Self {
        InternalKeys { trailers, head: &[], shared: 0, own: &[], trailer: 0 }
    }
}

impl<'b> KeyWalk<'b> for InternalKeys<'b> {
    #[inline]
    fn trailer_bytes(&self) -> usize {
        self.trailers.width()
    }

    #[inline]
    fn advance(
        &mut self,
        restarts: bool,
        block: &'b [u8],
        entry: &Entry,
    ) -> Result<bool, &'static str> {
        let (shared, own) = (entry.shared, entry.own_key(block));
        let Some(trailer) = self.trailers.get(block, entry.key_end) else {
            return Err("entry with a sequence beyond all");
        };
        if unpack_trailer(trailer).is_none() {
            return Err("entry of an unknown kind");
        }
        let Some(rest) = self.head.get(shared..self.shared) else {
            return Err("entry that shares more than the one before it");
        };
        if shared + own.len() > KEY_BYTES_MAX {
            return Err("key longer than any key may be");
        }
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

/// The order of `bytes` and of `first` with `second` behind it.
fn compare_to_both(bytes: &[u8], first: &[u8], second: &[u8]) -> Ordering {
    match bytes.split_at_checked(first.len()) {
        Some((head, tail)) => compare(head, first).then_with(|| compare(tail, second)),
        None => compare(bytes, first),
    }
}

/// The order of two short slices. In line: a call for each pair costs more than most of them need.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let common = common_prefix(a, b);
    match (a.get(common), b.get(common)) {
        (Some(x), Some(y)) => x.cmp(y),
        _ => a.len().cmp(&b.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key, put_key_with_trailer};
    use crate::table::block::builder::BlockBuilder;

    #[test]
    fn shared_bytes_come_from_the_restart_entry() {
        let mut builder = BlockBuilder::data(4, false);
        for key in ["abcde", "abcdf", "abd", "abdef", "abdeg"] {
            let mut internal = Vec::new();
            put_internal_key(&mut internal, key.as_bytes(), 1, ValueKind::Put);
            builder.add(&internal, b"");
        }
        let block = builder.finish();
        let shape = BlockShape::parse(block, BlockKeys::Internal).unwrap();
        assert_eq!(shape.trailers.unwrap().width(), 1);
        let (mut at, mut shared) = (0, Vec::new());
        while let Some(entry) = decode_entry(block, at, shape.entries_end, 1) {
            shared.push(entry.shared);
            at = entry.end;
        }
        assert_eq!(shared, [0, 4, 2, 2, 0], "`abdef` has 3 bytes in common with `abd`");
    }

    fn check(bytes: &[u8], keys: BlockKeys) -> Result<usize, String> {
        let shape = BlockShape::parse(bytes, keys)?;
        check_entries(bytes, shape, |_| {})
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
