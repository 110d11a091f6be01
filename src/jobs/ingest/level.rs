//! The level that a bulk load goes to, and the memtables that are in its way.

use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{put_key_with_trailer, user_key};
use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::memtable::memtable::Memtable;
use crate::state::claim::Claim;
use crate::tree::file_meta::FileMeta;
use crate::tree::overlap::{KeySpan, overlapping_places, total_bytes};
use crate::tree::targets::CompactionOptions;
use crate::tree::version::LevelFiles;
use std::ops::Bound;

/// The deepest level that may take tables with these keys, newer than all others: neither it nor a
/// level above has a table that shares keys with one of them, and it is not one that a running
/// compaction writes tables around them to.
///
/// It is not deeper than the last level of the tree, or than the first level after that in which
/// `bytes` more are not too many: each level more makes later compactions longer.
pub(crate) fn deepest_level(
    levels: &LevelFiles,
    spans: &[KeySpan<'_>],
    bytes: u64,
    options: &CompactionOptions,
    claims: &[Arc<Claim>],
) -> usize {
    let shares_keys = |other: &KeySpan<'_>| spans.iter().any(|span| span.overlaps(other));
    let has_shared = |level: usize, tables: &[Arc<FileMeta>]| match level {
        0 => tables.iter().any(|meta| shares_keys(&meta.span())),
        _ => spans.iter().any(|span| !overlapping_places(tables, span).is_empty()),
    };
    let last = levels.iter().rposition(|tables| !tables.is_empty()).unwrap_or(0).max(1);
    let has_room =
        |level: &usize| total_bytes(&levels[*level]) + bytes <= options.target_bytes(*level);
    let last = (last..LEVELS - 1).find(has_room).unwrap_or(LEVELS - 1);
    let mut deepest = 0;
    for (level, tables) in levels.iter().enumerate().take(last + 1) {
        if has_shared(level, tables) {
            break;
        }
        let writes_here = |claim: &Arc<Claim>| *claim.levels.end() == level;
        let is_written =
            claims.iter().any(|claim| writes_here(claim) && shares_keys(&claim.span()));
        if !is_written {
            deepest = level;
        }
    }
    deepest
}

/// True if the memtable has an entry or a range delete within one of `spans`. A lookup ends at the
/// first version that it finds, so such a memtable has to be flushed before a load appears in
/// tables (I25).
pub(super) fn shares_keys(memtable: &Arc<Memtable>, spans: &[KeySpan<'_>]) -> bool {
    let mut bound = Vec::new();
    let has_entry = memtable.iterators(Direction::Forward).into_iter().any(|mut iter| {
        spans.iter().any(|span| {
            bound.clear();
            put_key_with_trailer(&mut bound, span.start, u64::MAX);
            iter.seek(Some(&bound));
            iter.valid() && !span.ends_before(user_key(iter.key()))
        })
    });
    has_entry
        || memtable.range_deletes.all().iter().any(|delete| {
            let end = delete.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let deleted = KeySpan { start: &delete.start, end };
            spans.iter().any(|span| span.overlaps(&deleted))
        })
}
