//! A cursor against the sorted entries that it must show.

use crate::support::model::Map;
use crate::support::rng::Rng;
use siftdb::{Cursor, Result};
use std::ops::{Bound, RangeBounds};

/// Sorted entries.
pub type Sorted = Vec<(Vec<u8>, Vec<u8>)>;

/// The entries of a map that lie in a range; none if the range is impossible.
pub fn entries_within(map: &Map, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Sorted {
    let entries = map.iter().filter(|(key, _)| bounds.contains(*key));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Seeks to `keys`, steps and turns, `moves` times, and compares each place with `entries`.
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
    // 0 is before the first entry, `entries.len() + 1` after the last one.
    let (mut at, after_last) = (0, entries.len() + 1);
    assert_eq!(cursor.entry(), None, "{place}: a new cursor is at an entry");
    let mut forward = true;
    for _ in 0..moves {
        // Runs of steps of one direction, with turns and seeks between them.
        if rng.chance(20) {
            forward = !forward;
        }
        let key = rng.pick(keys);
        let (what, found) = match rng.below(20) {
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
                at = after_last - 1;
                ("seek_to_last", cursor.seek_to_last())
            }
            _ if forward => {
                at = after_last.min(at + 1);
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

/// After an error the cursor is at no entry, and steps give the same error.
pub fn check_sticky(cursor: &mut Cursor, error: &str, place: &str) {
    for _ in 0..2 {
        assert_eq!(cursor.entry(), None, "{place}: an entry after {error}");
        assert_eq!(cursor.next().unwrap_err().to_string(), error, "{place}");
        assert_eq!(cursor.prev().unwrap_err().to_string(), error, "{place}");
    }
}
