//! User keys, sequence numbers and the internal keys that the tree is sorted by.
//!
//! An *internal key* is the user key followed by 8 bytes, the *trailer*: the little-endian `u64`
//! `sequence << 8 | kind`. Internal keys are ordered by user key ascending (bytewise, the only
//! order there is), then by trailer descending, so that the newest version comes first.
//!
//! Two internal keys enclose the versions of a user key: [`LookupKey`] sorts before every version
//! that is visible at its sequence, and trailer 0, which no entry has, sorts after all versions.
//! [`filter_key`] is the only way from an internal key to the key that a filter gets.

use crate::base::value::Value;
use std::cmp::Ordering;

/// The number of a write, counted from 1; 56 bits.
pub(crate) type SequenceNumber = u64;

/// The number of a keyspace. Numbers are never used twice.
pub(crate) type KeyspaceId = u32;

/// The number of the keyspace `default`, which every database has.
pub(crate) const DEFAULT_KEYSPACE: KeyspaceId = 0;

/// The name of the keyspace that every database has.
pub(crate) const DEFAULT_KEYSPACE_NAME: &str = "default";

/// The longest name of a keyspace.
pub(crate) const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// Refuses what cannot be the name of a keyspace; the error says why.
pub(crate) fn check_keyspace_name(name: &str) -> Result<(), String> {
    let bytes = name.len();
    if bytes == 0 || bytes > KEYSPACE_NAME_BYTES_MAX {
        return Err(format!("its name has {bytes} bytes; 1 to {KEYSPACE_NAME_BYTES_MAX} may be"));
    }
    match name.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("its name has the control character {c:?}")),
        None => Ok(()),
    }
}

/// The number and the name of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyspaceLabel {
    pub id: KeyspaceId,
    pub name: String,
}

impl Default for KeyspaceLabel {
    fn default() -> Self {
        KeyspaceLabel { id: DEFAULT_KEYSPACE, name: DEFAULT_KEYSPACE_NAME.into() }
    }
}

/// The largest sequence number.
pub(crate) const SEQUENCE_MAX: SequenceNumber = (1 << 56) - 1;

/// The first of the sequence numbers that a transaction gives to its own writes while it reads
/// them: as many as a batch has entries at most, and above all that a log ever gives.
pub(crate) const OWN_SEQUENCE_FIRST: SequenceNumber = SEQUENCE_MAX - u32::MAX as u64;

/// Bytes of sequence and kind after the user key.
pub(crate) const INTERNAL_KEY_TRAILER_BYTES: usize = 8;

/// Longest user key.
pub(crate) const KEY_BYTES_MAX: usize = 65_535;

/// Longest value: 1 GiB.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// The kind of an entry. Readers refuse unknown kinds; 2 is that of a range delete in a batch
/// (`base/batch_format.rs`), which no memtable or table has among its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ValueKind {
    /// The key was deleted.
    Tombstone = 0,
    /// The key has a value.
    Put = 1,
    /// The key has a value until a time, which is stored before the value (`base/expiry.rs`).
    ExpiringPut = 3,
}

impl ValueKind {
    /// The kind of a stored byte.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(ValueKind::Tombstone),
            1 => Some(ValueKind::Put),
            3 => Some(ValueKind::ExpiringPut),
            _ => None,
        }
    }
}

/// What one memtable or table knows about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The newest visible version has this stored value. If it expires, the search ends here, and
    /// the read decides by its clock whether the key has a value.
    // One variant with a value: two would make every lookup drop what it did not find by a call.
    #[allow(missing_docs)]
    Found { stored: Value, expires: bool },
    /// The newest visible version is a tombstone: the search must not continue in older tables.
    Deleted,
    /// There is no visible version here.
    Absent,
}

impl Lookup {
    /// The answer for a put with this value.
    #[inline]
    pub(crate) fn found(value: Value) -> Self {
        Lookup::Found { stored: value, expires: false }
    }

    /// The answer for an expiring put with this stored value.
    #[inline]
    pub(crate) fn expiring(stored: Value) -> Self {
        Lookup::Found { stored, expires: true }
    }
}

/// `sequence << 8 | kind`.
#[inline]
pub(crate) fn pack_trailer(sequence: SequenceNumber, kind: ValueKind) -> u64 {
    sequence << 8 | u64::from(kind as u8)
}

/// Appends the internal key of `user_key`.
pub(crate) fn put_internal_key(
    dst: &mut Vec<u8>,
    user_key: &[u8],
    sequence: SequenceNumber,
    kind: ValueKind,
) {
    put_key_with_trailer(dst, user_key, pack_trailer(sequence, kind));
}

/// Appends `user_key` and a trailer of any value.
pub(crate) fn put_key_with_trailer(dst: &mut Vec<u8>, user_key: &[u8], trailer: u64) {
    dst.extend_from_slice(user_key);
    dst.extend_from_slice(&trailer.to_le_bytes());
}

/// User key and trailer of an internal key; `None` if it is shorter than a trailer.
#[inline]
pub(crate) fn split_internal_key(internal_key: &[u8]) -> Option<(&[u8], u64)> {
    let (user_key, trailer) = internal_key.split_last_chunk::<INTERNAL_KEY_TRAILER_BYTES>()?;
    Some((user_key, u64::from_le_bytes(*trailer)))
}

/// The user key of an internal key. Keys from files were checked when their block was loaded. A key
/// that is too short is returned whole.
#[inline]
pub(crate) fn user_key(internal_key: &[u8]) -> &[u8] {
    split_internal_key(internal_key).map_or(internal_key, |(key, _)| key)
}

/// The part of an internal key that filters are built from and asked with: the user key without
/// sequence and kind. Every filter in siftdb gets its keys through this function.
#[inline]
pub(crate) fn filter_key(internal_key: &[u8]) -> &[u8] {
    user_key(internal_key)
}

/// Sequence and kind of a trailer; `None` if the kind is unknown.
#[inline]
pub(crate) fn unpack_trailer(trailer: u64) -> Option<(SequenceNumber, ValueKind)> {
    Some((trailer >> 8, ValueKind::from_byte(trailer as u8)?))
}

/// The order of internal keys: user key ascending, then trailer descending.
#[inline]
pub(crate) fn compare_internal(a: &[u8], b: &[u8]) -> Ordering {
    match (split_internal_key(a), split_internal_key(b)) {
        (Some((key_a, trailer_a)), Some((key_b, trailer_b))) => {
            key_a.cmp(key_b).then(trailer_b.cmp(&trailer_a))
        }
        // Only a damaged block has such a key, and loading that block fails.
        _ => a.cmp(b),
    }
}

/// The first eight bytes as a number that sorts like them; a shorter key is filled up with zeros.
/// If two heads are equal, compare the whole keys.
#[inline]
pub(crate) fn key_head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(head) => u64::from_le_bytes(*head).swap_bytes(),
        None => bytes.iter().rev().fold(0, |low, &byte| low >> 8 | u64::from(byte) << 56),
    }
}

/// A short user key `s` with `a <= s < b`, for an index entry between two blocks; `a` itself if
/// there is no shorter one. Needs `a < b`.
///
/// No other than `a` is a prefix of `b`: a scan of what begins with that prefix would start in the
/// block before. So it can be a byte longer than the shortest.
#[must_use]
pub fn separator(a: &[u8], b: &[u8]) -> Vec<u8> {
    let common = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let mut short = a.to_vec();
    let (Some(&x), Some(&y)) = (a.get(common), b.get(common)) else { return short };
    // A larger byte in place of `x` must be below `y`. Behind `x`, any larger byte will do.
    let first = if x < y.saturating_sub(1) { common } else { common + 1 };
    if let Some(at) = (first..short.len().saturating_sub(1)).find(|&i| short[i] < u8::MAX) {
        short.truncate(at + 1);
        short[at] += 1;
    }
    short
}

/// The key of one point lookup: an internal key that sorts before every version that is visible at
/// `sequence`. Keys up to 56 bytes need no allocation.
#[derive(Clone, Debug)]
pub(crate) struct LookupKey {
    inline: [u8; LookupKey::INLINE],
    heap: Option<Box<[u8]>>,
    len: usize,
}

impl LookupKey {
    const INLINE: usize = 64;

    /// The key that finds the newest version of `user_key` at or below `sequence`.
    #[inline]
    pub(crate) fn new(user_key: &[u8], sequence: SequenceNumber) -> Self {
        // 0xff is above every kind, and larger trailers sort first, so this sorts before all
        // entries of the same sequence.
        LookupKey::with_trailer(user_key, sequence << 8 | 0xff)
    }

    /// The internal key of `user_key` with that trailer.
    #[inline]
    pub(crate) fn with_trailer(user_key: &[u8], trailer: u64) -> Self {
        let trailer = trailer.to_le_bytes();
        let len = user_key.len() + INTERNAL_KEY_TRAILER_BYTES;
        let mut inline = [0; Self::INLINE];
        let mut heap = None;
        if len <= Self::INLINE {
            inline[..user_key.len()].copy_from_slice(user_key);
            inline[user_key.len()..len].copy_from_slice(&trailer);
        } else {
            let mut bytes = Vec::with_capacity(len);
            bytes.extend_from_slice(user_key);
            bytes.extend_from_slice(&trailer);
            heap = Some(bytes.into_boxed_slice());
        }
        LookupKey { inline, heap, len }
    }

    /// The internal key to seek with.
    #[inline]
    pub(crate) fn internal_key(&self) -> &[u8] {
        match &self.heap {
            Some(bytes) => bytes,
            None => &self.inline[..self.len],
        }
    }

    #[inline]
    pub(crate) fn user_key(&self) -> &[u8] {
        let key = self.internal_key();
        &key[..key.len() - INTERNAL_KEY_TRAILER_BYTES]
    }

    /// The trailer to seek with; every visible version has a smaller one.
    #[inline]
    pub(crate) fn trailer(&self) -> u64 {
        split_internal_key(self.internal_key()).map_or(0, |(_, trailer)| trailer)
    }

    /// The sequence at which the lookup reads.
    #[inline]
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.trailer() >> 8
    }
}

/// Length of the longest common prefix, eight bytes at a time.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let mut common = 0;
    // Not `zip`, whose parts are calls where they land in another unit of the compiler.
    while let (Some(word_a), Some(word_b)) =
        (a[common..len].first_chunk(), b[common..len].first_chunk())
    {
        let difference = u64::from_le_bytes(*word_a) ^ u64::from_le_bytes(*word_b);
        if difference != 0 {
            return common + difference.trailing_zeros() as usize / 8;
        }
        common += 8;
    }
    while common < len && a[common] == b[common] {
        common += 1;
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn internal(key: &[u8], sequence: u64, kind: ValueKind) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_internal_key(&mut bytes, key, sequence, kind);
        bytes
    }

    #[test]
    fn newer_versions_sort_first() {
        let newer = internal(b"k", 9, ValueKind::Put);
        let older = internal(b"k", 8, ValueKind::Tombstone);
        let next = internal(b"k\0", 1, ValueKind::Put);
        assert!(compare_internal(&newer, &older).is_lt());
        assert!(compare_internal(&older, &next).is_lt());
        let lookup = LookupKey::new(b"k", 8);
        assert!(compare_internal(&newer, lookup.internal_key()).is_lt());
        assert!(compare_internal(lookup.internal_key(), &older).is_lt());
        assert_eq!(lookup.sequence(), 8);
    }

    #[test]
    fn reserved_kinds_are_refused() {
        assert_eq!(ValueKind::from_byte(2), None);
        assert_eq!(ValueKind::from_byte(4), None);
        assert_eq!(unpack_trailer(7 << 8 | 2), None);
    }

    proptest! {
        #[test]
        fn sort_prefixes_sort_like_keys(
            a in proptest::collection::vec(0u8..3, 0..12),
            b in proptest::collection::vec(0u8..3, 0..12),
        ) {
            match key_head(&a).cmp(&key_head(&b)) {
                Ordering::Equal => prop_assert!(
                    a.iter().chain(&[0; 8]).take(8).eq(b.iter().chain(&[0; 8]).take(8))
                ),
                unequal => prop_assert_eq!(unequal, a.cmp(&b)),
            }
        }

        #[test]
        fn separators_are_short_and_between_their_keys(
            a in proptest::collection::vec(prop_oneof![0u8..3, 254u8..], 0..6),
            b in proptest::collection::vec(prop_oneof![0u8..3, 254u8..], 0..6),
        ) {
            prop_assume!(a < b);
            let s = separator(&a, &b);
            prop_assert!(a <= s && s < b && s.len() <= a.len());
            prop_assert!(s == a || !b.starts_with(&s));
            // A shorter one is `a` up to one of these places, with a larger byte there.
            for at in 0..s.len().saturating_sub(1) {
                if let Some(larger) = a[at].checked_add(1) {
                    let shorter = [&a[..at], &[larger]].concat();
                    prop_assert!(shorter >= b || b.starts_with(&shorter), "{a:?} {b:?} {s:?}");
                }
            }
        }

        #[test]
        fn lookup_keys_have_any_length(key in proptest::collection::vec(any::<u8>(), 0..200)) {
            let lookup = LookupKey::new(&key, 77);
            prop_assert_eq!(lookup.user_key(), &key[..]);
            prop_assert_eq!(filter_key(lookup.internal_key()), &key[..]);
        }
    }

    #[test]
    fn common_prefixes_are_found_at_every_length() {
        for a in 0..20 {
            for b in 0..20 {
                for at in 0..20 {
                    let left = vec![7; a];
                    let mut right = vec![7; b];
                    if let Some(byte) = right.get_mut(at) {
                        *byte = 9;
                    }
                    assert_eq!(common_prefix(&left, &right), a.min(b).min(at), "{a} {b} {at}");
                }
            }
        }
    }
}
