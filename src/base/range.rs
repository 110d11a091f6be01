//! Ranges of keys in the syntax of Rust: `..`, `"a".."n"`, `key..=key`, pairs of bounds.
//!
//! They have a trait of their own, because `impl RangeBounds<K>` cannot infer `K` for `..`. The
//! trait is sealed. A range whose start is above its end is empty.

use crate::base::value::Key;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Owned bounds of user keys. Those of short keys need no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBounds {
    /// Where the range begins.
    pub start: Bound<Key>,
    pub end: Bound<Key>,
}

impl KeyBounds {
    /// Exactly the keys that start with `prefix`, whatever bytes it has.
    #[must_use]
    pub fn of_prefix(prefix: &[u8]) -> Self {
        KeyBounds {
            start: Bound::Included(prefix.into()),
            end: prefix_successor(prefix).map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    /// The same keys as a half-open range: from the first key on, and below the second one, or
    /// without an end. No key sorts between a key and that key with a zero byte appended.
    #[must_use]
    pub fn half_open(&self) -> (Key, Option<Key>) {
        let start = match &self.start {
            Bound::Unbounded => Key::from(&[][..]),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => Key::with_byte(key, 0),
        };
        let end = match &self.end {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(Key::with_byte(key, 0)),
            Bound::Excluded(key) => Some(key.clone()),
        };
        (start, end)
    }

    /// The keys that are also in `outer`.
    #[must_use]
    pub(crate) fn within(self, outer: &KeyBounds) -> Self {
        let starts_within = match &self.start {
            Bound::Unbounded => false,
            Bound::Included(key) | Bound::Excluded(key) => outer.is_after_start(key),
        };
        let ends_within = match &self.end {
            Bound::Unbounded => false,
            Bound::Included(key) | Bound::Excluded(key) => outer.is_before_end(key),
        };
        KeyBounds {
            start: if starts_within { self.start } else { outer.start.clone() },
            end: if ends_within { self.end } else { outer.end.clone() },
        }
    }

    /// True if `key` is not before the range.
    #[inline]
    #[must_use]
    pub fn is_after_start(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= &start[..],
            Bound::Excluded(start) => key > &start[..],
        }
    }

    /// True if `key` is not after the range. A scan asks at each entry: an open end costs no call.
    #[inline(always)]
    #[must_use]
    pub fn is_before_end(&self, key: &[u8]) -> bool {
        matches!(self.end, Bound::Unbounded) || self.is_before_bounded_end(key)
    }

    fn is_before_bounded_end(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= &end[..],
            Bound::Excluded(end) => key < &end[..],
        }
    }

    /// True if no key can lie in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end))
            | (Bound::Excluded(start), Bound::Included(end)) => start >= end,
        }
    }
}

/// The smallest byte string greater than every string that starts with `prefix`; `None` when the
/// prefix is empty or all 0xff, because then no string is greater.
#[must_use]
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

fn owned<T: AsRef<[u8]>>(key: T) -> Key {
    Key::from(key.as_ref())
}

macro_rules! key_range {
    ($($range:ty, $value:ident => $start:expr, $end:expr;)*) => {$(
        impl<T: AsRef<[u8]>> sealed::Sealed for $range {}

        impl<T: AsRef<[u8]>> KeyRange for $range {
            fn into_bounds(self) -> KeyBounds {
                let $value = self;
                KeyBounds { start: $start, end: $end }
            }
        }
    )*};
}

key_range! {
    Range<T>, r => Bound::Included(owned(r.start)), Bound::Excluded(owned(r.end));
    RangeFrom<T>, r => Bound::Included(owned(r.start)), Bound::Unbounded;
    RangeTo<T>, r => Bound::Unbounded, Bound::Excluded(owned(r.end));
    RangeToInclusive<T>, r => Bound::Unbounded, Bound::Included(owned(r.end));
    RangeInclusive<T>, r =>
        Bound::Included(owned(r.start())), Bound::Included(owned(r.end()));
    (Bound<T>, Bound<T>), r => r.0.map(owned), r.1.map(owned);
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
        KeyBounds { start: Bound::Unbounded, end: Bound::Unbounded }
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

    #[test]
    fn every_range_has_a_half_open_form() {
        let keys: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"a\x01", b"b", b"\xff"];
        let bounds = |key: &[u8]| -> [Bound<Key>; 3] {
            [Bound::Included(key.into()), Bound::Excluded(key.into()), Bound::Unbounded]
        };
        for start in keys.iter().flat_map(|key| bounds(key)) {
            for end in keys.iter().flat_map(|key| bounds(key)) {
                let range = KeyBounds { start: start.clone(), end: end.clone() };
                let (from, below) = range.half_open();
                for key in keys.map(Key::from) {
                    let within = range.is_after_start(&key) && range.is_before_end(&key);
                    let half_open =
                        key[..] >= *from && below.as_ref().is_none_or(|below| key[..] < **below);
                    assert_eq!(within, half_open, "{start:?} {end:?} {key:?}");
                }
            }
        }
    }

    #[test]
    fn ranges_within_a_range_hold_the_keys_of_both() {
        let keys: [&[u8]; 4] = [b"a", b"a\0", b"b", b"c"];
        let bounds = |key: &[u8]| -> [Bound<Key>; 3] {
            [Bound::Included(key.into()), Bound::Excluded(key.into()), Bound::Unbounded]
        };
        let bounds: Vec<_> = keys.iter().flat_map(|key| bounds(key)).collect();
        let pairs = bounds.iter().flat_map(|start| bounds.iter().map(move |end| (start, end)));
        let ranges = pairs.map(|(start, end)| KeyBounds { start: start.clone(), end: end.clone() });
        let ranges: Vec<_> = ranges.collect();
        let holds = |range: &KeyBounds, key| range.is_after_start(key) && range.is_before_end(key);
        for (outer, range) in ranges.iter().flat_map(|a| ranges.iter().map(move |b| (a, b))) {
            let both = range.clone().within(outer);
            for key in keys {
                let expected = holds(outer, key) && holds(range, key);
                assert_eq!(holds(&both, key), expected, "{range:?} within {outer:?}: {key:?}");
            }
        }
    }

    #[test]
    fn prefixes_of_0xff_have_no_end() {
        assert_eq!(KeyBounds::of_prefix(&[0xff, 0xff]).end, Bound::Unbounded);
        assert_eq!(KeyBounds::of_prefix(b"").end, Bound::Unbounded);
        assert_eq!(KeyBounds::of_prefix(b"a\xff").end, Bound::Excluded(Key::from(&b"b"[..])));
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
