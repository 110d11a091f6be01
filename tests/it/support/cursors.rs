//! A cursor against the sorted entries that it must show.

use crate::support::model::Map;
use crate::support::rng::Rng;
use siftdb::{Cursor, Result};
use std::ops::{Bound, RangeBounds};

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// Sorted entries.
pub type Sorted = Vec<Entry>;

/// The entries of a map that lie in a range; none if the range is impossible.
pub fn entries_within(map: &Map, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Sorted {
    let entries = map.iter().filter(|(key, _)| bounds.contains(*key));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Seeks to `keys` and to ranges between them, steps and turns, `moves` times, and compares each place with `entries`.
///
/// Returns the first error of the cursor, after it checked that the error stays.
pub fn roam(
    cursor: &mut Cursor,
    entries: &Sorted,
    keys: &[Vec<u8>],
    moves: usize,
    rng: &mut Rng,
    place: &str,
) -> Result<()> {
    // The entries within the bounds: 0 is before the first of them, `entries.len() + 1` after the
    // last one.
    let (all, mut entries) = (&entries[..], &entries[..]);
    let mut at = 0;
    assert_eq!(cursor.entry(), None, "{place}: a new cursor is at an entry");
    let mut forward = true;
    for _ in 0..moves {
        // Runs of steps of one direction, with turns and seeks between them.
        if rng.chance(20) {
            forward = !forward;
        }
        let key = rng.pick(keys);
        let (what, found) = match rng.below(22) {
            0 => {
                at = 1 + entries.partition_point(|(entry, _)| entry < key);
                ("seek", cursor.seek(key))
            }
            1 => {
                at = entries.partition_point(|(entry, _)| entry <= key);
                ("seek_for_prev", cursor.seek_for_prev(key))
            }
            2 if rng.chance(30) => {
                at = 1;
                ("seek_to_first", cursor.seek_to_first())
            }
            3 if rng.chance(30) => {
                at = entries.len();
                ("seek_to_last", cursor.seek_to_last())
            }
            4 => {
                let prefix = &key[..rng.below(key.len() + 1)];
                (at, entries) = (1, part(all, |key| key.starts_with(prefix)));
                ("seek_prefix", cursor.seek_prefix(prefix))
            }
            5 => {
                let range = any_range(rng, keys);
                (at, entries) = (1, part(all, |key| range.contains(key)));
                ("seek_range", cursor.seek_range(range))
            }
            _ if forward => {
                at = (entries.len() + 1).min(at + 1);
                ("next", cursor.next())
            }
            _ => {
                at = at.saturating_sub(1);
                ("prev", cursor.prev())
            }
        };
        let wanted = at.checked_sub(1).and_then(|index| entries.get(index));
        match found {
            Ok(found) => assert_eq!(found, wanted.is_some(), "{place}: {what} to {at}"),
            Err(error) => {
                check_sticky(cursor, &error.to_string(), place);
                return Err(error);
            }
        }
        let wanted = wanted.map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(cursor.entry(), wanted, "{place}: {what} to {at}");
        assert_eq!(cursor.key().zip(cursor.value()), wanted);
    }
    Ok(())
}

/// The neighbours among `entries` whose keys are within bounds.
fn part(entries: &[Entry], is_within: impl Fn(&Vec<u8>) -> bool) -> &[Entry] {
    let first = entries.iter().position(|(key, _)| is_within(key)).unwrap_or(entries.len());
    let rest = &entries[first..];
    &rest[..rest.iter().position(|(key, _)| !is_within(key)).unwrap_or(rest.len())]
}

/// A range with bounds of each kind at two of `keys`, which may be inverted; sometimes all.
fn any_range(rng: &mut Rng, keys: &[Vec<u8>]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut bound = || match (rng.pick(keys).clone(), rng.below(7)) {
        (_, 0) => Bound::Unbounded,
        (key, 1..=3) => Bound::Included(key),
        (key, _) => Bound::Excluded(key),
    };
    let (start, end) = (bound(), bound());
    if rng.chance(20) { (Bound::Unbounded, Bound::Unbounded) } else { (start, end) }
}

/// After an error the cursor is at no entry, and steps give the same error.
pub fn check_sticky(cursor: &mut Cursor, error: &str, place: &str) {
    for _ in 0..2 {
        assert_eq!(cursor.entry(), None, "{place}: an entry after {error}");
        assert_eq!(cursor.next().unwrap_err().to_string(), error, "{place}");
        assert_eq!(cursor.prev().unwrap_err().to_string(), error, "{place}");
    }
}
