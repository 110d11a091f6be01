//! Ranges of keys for range deletes: random ones around given keys, and which keys they hold.

use super::model::Map;
use super::rng::Rng;
use std::ops::Bound;

/// A range as a call takes it; it may be empty or inverted.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A random range around some of `keys`, which ascend: bounds of each kind, that are a key, lie
/// close to one or between two. Now and then it is empty, inverted, or without a bound.
pub fn any_range(rng: &mut Rng, keys: &[Vec<u8>]) -> KeyRange {
    let first = rng.below(keys.len());
    // Short ranges mostly, so that a history keeps entries.
    let length = *rng.pick(&[0, 1, 1, 2, 2, 3, 5, keys.len() / 2, keys.len()]);
    let last = (first + length).min(keys.len() - 1);
    let (mut start, mut end) = (bound(rng, &keys[first]), bound(rng, &keys[last]));
    if rng.chance(4) {
        std::mem::swap(&mut start, &mut end);
    }
    if rng.chance(4) {
        start = Bound::Unbounded;
    }
    if rng.chance(4) {
        end = Bound::Unbounded;
    }
    (start, end)
}

fn bound(rng: &mut Rng, key: &[u8]) -> Bound<Vec<u8>> {
    let near = match rng.below(6) {
        0 => [key, &[0]].concat(),
        1 => [key, &[0xff]].concat(),
        2 => key[..key.len().saturating_sub(1)].to_vec(),
        _ => key.to_vec(),
    };
    if rng.chance(50) { Bound::Included(near) } else { Bound::Excluded(near) }
}

/// The part of the range from the key `start` on and below `end`.
pub fn within(range: KeyRange, start: &[u8], end: &[u8]) -> KeyRange {
    let starts = match &range.0 {
        Bound::Unbounded => false,
        Bound::Included(own) | Bound::Excluded(own) => &own[..] >= start,
    };
    let ends = match &range.1 {
        Bound::Unbounded => false,
        Bound::Included(own) => &own[..] < end,
        Bound::Excluded(own) => &own[..] <= end,
    };
    let first = if starts { range.0 } else { Bound::Included(start.to_vec()) };
    (first, if ends { range.1 } else { Bound::Excluded(end.to_vec()) })
}

/// True if the range holds the key.
pub fn holds(range: &KeyRange, key: &[u8]) -> bool {
    let starts = match &range.0 {
        Bound::Unbounded => true,
        Bound::Included(start) => &start[..] <= key,
        Bound::Excluded(start) => &start[..] < key,
    };
    starts
        && match &range.1 {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= &end[..],
            Bound::Excluded(end) => key < &end[..],
        }
}

/// True if no key can lie in the range: a delete of it is no write.
pub fn is_empty(range: &KeyRange) -> bool {
    let above = |key: &Vec<u8>| [&key[..], &[0]].concat();
    let start = match &range.0 {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => above(key),
    };
    match &range.1 {
        Bound::Unbounded => false,
        Bound::Included(key) => above(key) <= start,
        Bound::Excluded(key) => *key <= start,
    }
}

/// Removes the keys of the range.
pub fn remove_range(map: &mut Map, range: &KeyRange) {
    map.retain(|key, _| !holds(range, key));
}
