//! Trees drawn as text, for tests of code that plans by the shape of a tree.

use crate::base::sync::Arc;
use crate::tree::file_meta::{Expiring, FileMeta};
use crate::tree::version::LevelFiles;
use std::ops::Bound;

/// A table as it is drawn: `7[a..c]` with the key `c`, `7[a..c)` without it, `7[a..)` without an
/// end. Then what differs from 100 bytes, 100 entries, no garbage, no range deletes and sequences
/// from 1 to 10: `:300` bytes, `e9` entries, `g60` garbage, `r2` range deletes, `x9t50` entries
/// that expire by a time, `^40@50` sequences. A table that does not end with a key has one range
/// delete.
fn drawn_table(text: &str) -> Arc<FileMeta> {
    let (number, rest) = text.split_once('[').unwrap();
    let (range, extras) = rest.split_once([']', ')']).unwrap();
    let includes_end = rest[range.len()..].starts_with(']');
    let (first, last) = range.split_once("..").unwrap();
    let extra = |mark: char, default: u64| match extras.split_once(mark) {
        Some((_, digits)) => {
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().unwrap()
        }
        None => default,
    };
    let end = match last {
        last if includes_end => Bound::Included(last.into()),
        "" => Bound::Unbounded,
        end => Bound::Excluded(end.into()),
    };
    Arc::new(FileMeta {
        keyspace: 0,
        number: number.parse().unwrap(),
        table_id: 1,
        bytes: extra(':', 100),
        start: first.into(),
        end,
        entries: extra('e', 100),
        garbage: extra('g', 0),
        expiring: Expiring { entries: extra('x', 0), by: extra('t', 0) },
        range_deletes: extra('r', u64::from(!includes_end)),
        smallest_sequence: extra('^', 1),
        largest_sequence: extra('@', 10),
        global_sequence: None,
    })
}

/// The levels drawn as lines of `L1: 7[a..c] 8[d..f]:300`; level 0 newest first.
pub(crate) fn drawn_levels(text: &str) -> LevelFiles {
    let mut levels = LevelFiles::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (level, tables) = line.strip_prefix('L').unwrap().split_once(':').unwrap();
        let level: usize = level.parse().unwrap();
        Arc::make_mut(&mut levels[level]).extend(tables.split_whitespace().map(drawn_table));
    }
    levels
}
