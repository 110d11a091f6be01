//! Ranges of keys in the syntax of Rust: `..`, `"a".."n"`, `key..=key`, pairs of bounds.
//!
//! They have a trait of their own, because `impl RangeBounds<K>` cannot infer `K` for `..`. The
//! trait is sealed. Inside, every range is half-open: no key sorts between a key and that key with
//! a zero byte appended, so a bound that includes its key, or starts after it, is one before the
//! next key. A range whose start is not below its end is empty.

use crate::base::value::Key;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// A range of user keys. Its bounds are owned; those of short keys need no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBounds {
    /// The first key.
    pub start: Key,
    /// The key after the last one; `None` without an end.
    pub end: Option<Key>,
}

impl KeyBounds {
    /// The range between two bounds.
    pub(crate) fn between(start: Bound<&[u8]>, end: Bound<&[u8]>) -> Self {
        KeyBounds {
            start: match start {
                Bound::Unbounded => Key::from(&[][..]),
                Bound::Included(key) => Key::from(key),
                Bound::Excluded(key) => Key::with_byte(key, 0),
            },
            end: match end {
                Bound::Unbounded => None,
                Bound::Included(key) => Some(Key::with_byte(key, 0)),
                Bound::Excluded(key) => Some(Key::from(key)),
            },
        }
    }

    /// Exactly the keys that start with `prefix`, whatever bytes it has.
    #[must_use]
    pub fn of_prefix(prefix: &[u8]) -> Self {
        KeyBounds { start: prefix.into(), end: prefix_successor(prefix) }
    }

    /// The keys that are also in `outer`.
    #[must_use]
    pub(crate) fn within(self, outer: &KeyBounds) -> Self {
        let end = match (self.end, &outer.end) {
            (Some(own), Some(outer)) => Some(own.min(outer.clone())),
            (own, outer) => own.or_else(|| outer.clone()),
        };
        KeyBounds { start: self.start.max(outer.start.clone()), end }
    }

    /// True if `key` is in the range.
    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.is_after_start(key) && self.is_before_end(key)
    }

    /// True if `key` is not before the range.
    #[inline]
    #[must_use]
    pub fn is_after_start(&self, key: &[u8]) -> bool {
        key >= &self.start[..]
    }

    /// True if `key` is not after the range. A scan asks at each entry: an open end costs no call.
    #[inline(always)]
    #[must_use]
    pub fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// True if no key can lie in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The smallest byte string greater than every string that starts with `prefix`; `None` when the
/// prefix is empty or all 0xff, because then no string is greater.
pub(crate) fn prefix_successor(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    Some(Key::with_byte(&prefix[..last], prefix[last] + 1))
}

mod sealed {
    pub trait Sealed {}
}

/// A range of keys: any range type of Rust over strings, byte slices or vectors.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = siftdb::Db::open(directory.path().join("db"))?;
/// db.put("b", "2")?;
/// assert_eq!(db.range(..).count(), 1);
/// assert_eq!(db.range("a".."b").count(), 0);
/// assert_eq!(db.range(b"a".as_slice()..=b"b".as_slice()).count(), 1);
/// # Ok(())
/// # }
/// ```
pub trait KeyRange: sealed::Sealed {
    /// The owned bounds.
    #[doc(hidden)]
    fn into_bounds(self) -> KeyBounds;
}

macro_rules! key_range {
    ($($range:ty),*) => {$(
        impl<T: AsRef<[u8]>> sealed::Sealed for $range {}

        impl<T: AsRef<[u8]>> KeyRange for $range {
            fn into_bounds(self) -> KeyBounds {
                let start = RangeBounds::<T>::start_bound(&self).map(AsRef::as_ref);
                KeyBounds::between(start, RangeBounds::<T>::end_bound(&self).map(AsRef::as_ref))
            }
        }
    )*};
}

key_range! {
    Range<T>, RangeFrom<T>, RangeTo<T>, RangeToInclusive<T>, RangeInclusive<T>, (Bound<T>, Bound<T>)
}

impl sealed::Sealed for RangeFull {}

impl sealed::Sealed for KeyBounds {}

impl KeyRange for KeyBounds {
    fn into_bounds(self) -> KeyBounds {
        self
    }
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> KeyBounds {
        KeyBounds::between(Bound::Unbounded, Bound::Unbounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn impossible_ranges_are_empty() {
        assert!(("b".."a").into_bounds().is_empty());
        assert!(("a".."a").into_bounds().is_empty());
        assert!(!("a"..="a").into_bounds().is_empty());
        assert!((Bound::Excluded("a"), Bound::Included("a")).into_bounds().is_empty());
        assert!(!(..).into_bounds().is_empty());
    }

    const KEYS: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"a\x01", b"b", b"\xff"];

    type KeyBound = Bound<&'static [u8]>;

    /// All pairs of bounds over some keys.
    fn pairs(keys: &[&'static [u8]]) -> Vec<(KeyBound, KeyBound)> {
        let of = |key: &&'static [u8]| [Bound::Included(*key), Bound::Excluded(key)];
        let bounds = keys.iter().flat_map(of).chain([Bound::Unbounded]);
        bounds.clone().flat_map(|start| bounds.clone().map(move |end| (start, end))).collect()
    }

    #[test]
    fn every_range_has_a_half_open_form() {
        for bounds in pairs(&KEYS) {
            let range = bounds.into_bounds();
            for key in KEYS {
                let expected = RangeBounds::<[u8]>::contains(&bounds, key);
                assert_eq!(range.contains(key), expected, "{bounds:?} {key:?}");
                assert!(!expected || !range.is_empty(), "{bounds:?}");
            }
        }
    }

    #[test]
    fn ranges_within_a_range_hold_the_keys_of_both() {
        let keys: [&[u8]; 4] = [b"a", b"a\0", b"b", b"c"];
        let ranges: Vec<_> = pairs(&keys).into_iter().map(KeyRange::into_bounds).collect();
        for (outer, range) in ranges.iter().flat_map(|a| ranges.iter().map(move |b| (a, b))) {
            let both = range.clone().within(outer);
            for key in keys {
                let expected = outer.contains(key) && range.contains(key);
                assert_eq!(both.contains(key), expected, "{range:?} within {outer:?}: {key:?}");
            }
        }
    }

    #[test]
    fn prefixes_of_0xff_have_no_end() {
        assert_eq!(KeyBounds::of_prefix(&[0xff, 0xff]).end, None);
        assert_eq!(KeyBounds::of_prefix(b"").end, None);
        assert_eq!(KeyBounds::of_prefix(b"a\xff").end, Some(Key::from(&b"b"[..])));
    }

    proptest! {
        #[test]
        fn the_prefix_successor_is_tight(prefix: Vec<u8>, tail: Vec<u8>, other: Vec<u8>) {
            let mut inside = prefix.clone();
            inside.extend_from_slice(&tail);
            if let Some(end) = prefix_successor(&prefix) {
                prop_assert!(inside[..] < *end);
                if other > prefix && !other.starts_with(&prefix) {
                    prop_assert!(other[..] >= *end);
                }
            } else {
                prop_assert!(prefix.iter().all(|&byte| byte == 0xff));
            }
        }
    }
}
