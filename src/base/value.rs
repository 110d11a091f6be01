//! The keys and values that reads return: owned, cheap to clone, without a lifetime.
//!
//! Up to [`INLINE_BYTES`] bytes are stored in the `Value` itself. Point lookups copy up to
//! [`COPY_BYTES`]. Larger values, and those of iterators, share their memory with the cached block;
//! a memtable has an allocation for each larger value, which is shared. A shared value keeps its
//! block in memory while it lives, even after eviction; [`Value::detach`] ends that.

use crate::base::sync::Arc;
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

/// Values up to this size need no allocation.
pub(crate) const INLINE_BYTES: usize = 30;

/// Point lookups copy values up to this size out of their block; larger values share it. The value
/// of a lookup may long outlive its block, and two threads that read one hot block would contend
/// for its reference count. A scan moves on through the block, so there sharing saves an allocation
/// for each entry.
pub(crate) const COPY_BYTES: usize = 256;

/// A value, or the key of an iterated entry. Dereferences to `[u8]`.
///
/// ```
/// let value = siftdb::Value::from(&b"1815"[..]);
/// assert_eq!(&value[..], b"1815");
/// assert_eq!(value.into_vec(), b"1815".to_vec());
/// ```
#[derive(Clone)]
pub struct Value(Repr);

/// The key of an iterated entry; the same type as [`Value`], with the same costs.
pub type Key = Value;

/// Bytes that a value may share: a block, which lives as long as a value refers to it.
type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Owned(Arc<[u8]>),
    Chunk { chunk: Arc<[u8]>, start: u32, len: u32 },
    Shared { owner: SharedBytes, start: u32, len: u32 },
}

impl Value {
    /// A value of the first `len` of these bytes. A reader builds it by a copy of a fixed size: a
    /// copy of `len` bytes, read back at once, would stall on store forwarding.
    #[inline(always)]
    pub(crate) fn of_inline(bytes: &[u8; INLINE_BYTES], len: usize) -> Self {
        debug_assert!(len <= INLINE_BYTES, "the bytes do not have the value");
        Value(Repr::Inline { len: len as u8, bytes: *bytes })
    }

    /// The bytes of `front`, then `last`.
    pub(crate) fn with_byte(front: &[u8], last: u8) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..=front.len()) {
            Some([own @ .., end]) => {
                own.copy_from_slice(front);
                *end = last;
                Value::of_inline(&bytes, front.len() + 1)
            }
            _ => Value::from(&[front, &[last]].concat()[..]),
        }
    }

    /// The bytes `start..start + len` of `owner`, shared unless they fit inline. `None` if they are
    /// not all in `owner`.
    #[inline]
    pub(crate) fn from_shared<T>(owner: &Arc<T>, start: usize, len: usize) -> Option<Self>
    where
        T: AsRef<[u8]> + Send + Sync + 'static,
    {
        let bytes = (**owner).as_ref().get(start..start.checked_add(len)?)?;
        if len <= INLINE_BYTES {
            return Some(Value::copied(bytes));
        }
        let (start, len) = (u32::try_from(start).ok()?, u32::try_from(len).ok()?);
        let owner: SharedBytes = Arc::<T>::clone(owner);
        Some(Value(Repr::Shared { owner, start, len }))
    }

    /// As `Value::from`. Not inlined: callers that share most values should not contain this code.
    #[inline(never)]
    fn copied(source: &[u8]) -> Self {
        Value::from(source)
    }

    /// A value that shares these bytes, whatever their size.
    pub(crate) fn sharing(bytes: Arc<[u8]>) -> Self {
        Value(Repr::Owned(bytes))
    }

    /// The bytes after the first `count`, which the value must have. They stay shared unless they
    /// fit inline.
    #[must_use]
    pub(crate) fn without_front(self, count: usize) -> Self {
        let rest = &self.as_slice()[count..];
        if rest.len() <= INLINE_BYTES {
            return Value::from(rest);
        }
        // A value has at most 1 GiB, so `count` and all ends fit.
        let count = count as u32;
        Value(match self.0 {
            Repr::Inline { .. } => return Value::from(rest),
            Repr::Owned(chunk) => {
                let len = chunk.len() as u32 - count;
                Repr::Chunk { chunk, start: count, len }
            }
            Repr::Chunk { chunk, start, len } => {
                Repr::Chunk { chunk, start: start + count, len: len - count }
            }
            Repr::Shared { owner, start, len } => {
                Repr::Shared { owner, start: start + count, len: len - count }
            }
        })
    }

    /// The bytes, without a copy.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Owned(bytes) => bytes,
            Repr::Chunk { chunk, start, len } => {
                let start = *start as usize;
                &chunk[start..start + *len as usize]
            }
            Repr::Shared { owner, start, len } => {
                let start = *start as usize;
                &(**owner).as_ref()[start..start + *len as usize]
            }
        }
    }

    /// A value that shares nothing with a block: use it for values that are kept for long.
    #[must_use]
    pub fn detach(self) -> Self {
        match self.0 {
            Repr::Shared { .. } | Repr::Chunk { .. } => Value::from(self.as_slice()),
            other => Value(other),
        }
    }

    /// The bytes as a vector of their own, always a copy: a value stores or shares its bytes, but
    /// never as a `Vec`.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.as_slice().to_vec()
    }
}

impl From<&[u8]> for Value {
    #[inline]
    fn from(source: &[u8]) -> Self {
        if source.len() <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            bytes[..source.len()].copy_from_slice(source);
            return Value(Repr::Inline { len: source.len() as u8, bytes });
        }
        Value(Repr::Owned(Arc::from(source)))
    }
}

/// Copies the bytes, as [`Value::into_vec`] does.
impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.into_vec()
    }
}

/// Without a copy, except for values of up to 30 bytes. Like the value, the `Bytes` keeps its block
/// or chunk in memory while it lives: [`Value::detach`] first, for bytes that are kept for long.
#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    fn from(value: Value) -> Self {
        bytes::Bytes::from_owner(value)
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

macro_rules! equals_bytes {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for Value {
            fn eq(&self, other: &$other) -> bool {
                self.as_slice() == AsRef::<[u8]>::as_ref(other)
            }
        }
    )*};
}

equals_bytes!([u8], &[u8], Vec<u8>, str, &str);

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_slice().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_values_share_their_block() {
        let block: Vec<u8> = (0..2000u32).map(|i| i as u8).collect();
        let owner = Arc::new(block.clone());
        for len in [0, 1, INLINE_BYTES, INLINE_BYTES + 1, COPY_BYTES + 1, 1990] {
            let value = Value::from_shared(&owner, 7, len).unwrap();
            assert_eq!(&value[..], &block[7..7 + len]);
            assert_eq!(Arc::strong_count(&owner), 1 + usize::from(len > INLINE_BYTES));
            let kept = value.detach();
            assert_eq!(Arc::strong_count(&owner), 1);
            assert_eq!(kept.into_vec(), &block[7..7 + len]);
        }
        assert!(Value::from_shared(&owner, 1999, 2).is_none());
        assert!(Value::from_shared(&owner, usize::MAX, 2).is_none());
    }

    /// A value of every representation: inline, owned, chunk, shared.
    fn of_every_representation() -> [Value; 4] {
        let bytes: Vec<u8> = (0..=255).collect();
        let chunk = Value::sharing(Arc::from(&bytes[..])).without_front(3);
        let shared = Value::from_shared(&Arc::new(bytes.clone()), 7, 100).unwrap();
        [Value::of_inline(&[b'x'; INLINE_BYTES], 4), Value::from(&bytes[..]), chunk, shared]
    }

    #[test]
    fn values_without_front_share_the_rest() {
        for value in of_every_representation() {
            for count in [0, 1, value.len() / 2, value.len()] {
                let (address, rest) = (value.as_ptr(), value.clone().without_front(count));
                assert_eq!(rest, value[count..]);
                let shares = rest.len() > INLINE_BYTES;
                assert_eq!(rest.as_ptr() == address.wrapping_add(count), shares);
            }
        }
    }

    #[test]
    fn vectors_have_the_bytes_of_their_value() {
        for value in of_every_representation() {
            assert_eq!(Vec::from(value.clone()), value.as_slice());
        }
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn bytes_share_the_memory_of_their_value() {
        for value in of_every_representation() {
            let (address, expected) = (value.as_ptr(), value.to_vec());
            let inline = value.len() <= INLINE_BYTES;
            let bytes = bytes::Bytes::from(value);
            assert_eq!(bytes, expected);
            assert_eq!(bytes.as_ptr() == address, !inline, "{} bytes", bytes.len());
            let part = bytes.slice(1..3);
            drop(bytes);
            assert_eq!(part, expected[1..3]);
        }
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn bytes_keep_their_block_until_dropped() {
        let owner = Arc::new(vec![7; 100]);
        let bytes = bytes::Bytes::from(Value::from_shared(&owner, 0, 100).unwrap());
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(bytes);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn values_take_four_words() {
        assert_eq!(size_of::<Value>(), 32);
        assert_eq!(size_of::<Option<Value>>(), 32);
    }
}
