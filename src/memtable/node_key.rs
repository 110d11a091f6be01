//! [`NodeKey`] and [`KeyRef`]: the internal keys that a segment's list of leaves compares, and what
//! it is searched with.
//!
//! Keys are compared by their first 8 bytes, which are in the node, and only then by the rest.

use crate::base::key::{key_head, split_internal_key};
use std::borrow::Borrow;
use std::cmp;

/// An internal key, owned by a node or borrowed for a search: what the list compares.
pub(crate) trait KeyView {
    /// The first 8 bytes of the user key, zero-padded, big-endian: enough to order most keys.
    fn prefix(&self) -> u64;
    fn user_key(&self) -> &[u8];
    fn trailer(&self) -> u64;
}

/// User key ascending, then trailer descending.
#[inline]
fn compare(a: &(impl KeyView + ?Sized), b: &(impl KeyView + ?Sized)) -> cmp::Ordering {
    (a.prefix().cmp(&b.prefix()))
        .then_with(|| a.user_key().cmp(b.user_key()))
        .then_with(|| b.trailer().cmp(&a.trailer()))
}

/// The low key of a leaf. Short user keys are in the node itself, which a search touches anyway.
pub(crate) struct NodeKey {
    prefix: u64,
    trailer: u64,
    bytes: KeyBytes,
}

enum KeyBytes {
    Inline { len: u8, bytes: [u8; KeyBytes::INLINE] },
    Heap(Box<[u8]>),
}

impl KeyBytes {
    const INLINE: usize = 22;
}

impl NodeKey {
    pub(crate) fn new(user_key: &[u8], trailer: u64) -> Self {
        let bytes = if user_key.len() <= KeyBytes::INLINE {
            let mut bytes = [0; KeyBytes::INLINE];
            bytes[..user_key.len()].copy_from_slice(user_key);
            KeyBytes::Inline { len: user_key.len() as u8, bytes }
        } else {
            KeyBytes::Heap(Box::from(user_key))
        };
        NodeKey { prefix: key_head(user_key), trailer, bytes }
    }

    /// The key before every other one.
    pub(crate) fn lowest() -> Self {
        NodeKey::new(&[], u64::MAX)
    }

    pub(crate) fn is_before(&self, other: &KeyRef<'_>) -> bool {
        compare(self, other).is_lt()
    }
}

impl KeyView for NodeKey {
    #[inline]
    fn prefix(&self) -> u64 {
        self.prefix
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        match &self.bytes {
            KeyBytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            KeyBytes::Heap(bytes) => bytes,
        }
    }

    #[inline]
    fn trailer(&self) -> u64 {
        self.trailer
    }
}

/// The skip list wants the order as traits, of its keys and of what it is searched with.
macro_rules! ordered_by_compare {
    ($key:ty) => {
        impl PartialEq for $key {
            fn eq(&self, other: &Self) -> bool {
                compare(self, other).is_eq()
            }
        }

        impl Eq for $key {}

        impl PartialOrd for $key {
            fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $key {
            #[inline]
            fn cmp(&self, other: &Self) -> cmp::Ordering {
                compare(self, other)
            }
        }
    };
}

ordered_by_compare!(NodeKey);
ordered_by_compare!(dyn KeyView + '_);

/// A key to search with, borrowed: lookups of any length allocate nothing.
pub(crate) struct KeyRef<'a> {
    prefix: u64,
    trailer: u64,
    user_key: &'a [u8],
}

impl<'a> KeyRef<'a> {
    pub(crate) fn new(user_key: &'a [u8], trailer: u64) -> Self {
        KeyRef { prefix: key_head(user_key), trailer, user_key }
    }

    /// An internal key; a shorter one sorts before all versions of that user key.
    pub(crate) fn of_internal(internal_key: &'a [u8]) -> Self {
        let (user_key, trailer) =
            split_internal_key(internal_key).unwrap_or((internal_key, u64::MAX));
        KeyRef::new(user_key, trailer)
    }

    /// What comes directly after the internal key of an entry.
    pub(crate) fn after(internal_key: &'a [u8]) -> Self {
        let KeyRef { trailer, user_key, .. } = KeyRef::of_internal(internal_key);
        debug_assert!(trailer > 0, "entries have sequences above 0");
        KeyRef::new(user_key, trailer.saturating_sub(1))
    }
}

impl KeyView for KeyRef<'_> {
    #[inline]
    fn prefix(&self) -> u64 {
        self.prefix
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        self.user_key
    }

    #[inline]
    fn trailer(&self) -> u64 {
        self.trailer
    }
}

impl<'a> Borrow<dyn KeyView + 'a> for NodeKey {
    #[inline]
    fn borrow(&self) -> &(dyn KeyView + 'a) {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{LookupKey, compare_internal};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_order_internal_keys(
            a in proptest::collection::vec(0..2u8, 0..25),
            b in proptest::collection::vec(0..2u8, 0..25),
            s in 1..4u64,
            t in 1..4u64,
        ) {
            let (a_bytes, b_bytes) = (LookupKey::new(&a, s), LookupKey::new(&b, t));
            let expected = compare_internal(a_bytes.internal_key(), b_bytes.internal_key());
            let mem = |key: &LookupKey| NodeKey::new(key.user_key(), key.trailer());
            prop_assert_eq!(mem(&a_bytes).cmp(&mem(&b_bytes)), expected);
            let (a, b) = (mem(&a_bytes), KeyRef::of_internal(b_bytes.internal_key()));
            let (a, b): (&dyn KeyView, &dyn KeyView) = (&a, &b);
            prop_assert_eq!(a.cmp(b), expected);
        }
    }
}
