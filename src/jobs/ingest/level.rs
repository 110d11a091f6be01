//! The level that a bulk load goes to.

use crate::base::levels::LEVELS;
use crate::state::jobs::CompactsInto;
use crate::tree::overlap::{KeySpan, borrowed, total_bytes};
use crate::tree::targets::CompactionOptions;
use crate::tree::version::LevelFiles;

/// The deepest level that may take tables with these keys, newer than all others: neither it nor a
/// level above has a table that shares keys with one of them, and it is not the one that a running
/// compaction writes tables around them to.
///
/// It is not deeper than the last level of the tree, or than the first level after that in which
/// `bytes` more are not too many: each level more makes later compactions longer.
pub(crate) fn deepest_level(
    levels: &LevelFiles,
    spans: &[KeySpan<'_>],
    bytes: u64,
    options: &CompactionOptions,
    running: Option<&CompactsInto>,
) -> usize {
    let shares_keys = |other: &KeySpan<'_>| spans.iter().any(|span| span.overlaps(other));
    let last = levels.iter().rposition(|tables| !tables.is_empty()).unwrap_or(0).max(1);
    let has_room =
        |level: &usize| total_bytes(&levels[*level]) + bytes <= options.target_bytes(*level);
    let last = (last..LEVELS - 1).find(has_room).unwrap_or(LEVELS - 1);
    let mut deepest = 0;
    for (level, tables) in levels.iter().enumerate().take(last + 1) {
        if tables.iter().any(|meta| shares_keys(&meta.span())) {
            break;
        }
        let is_written = running.is_some_and(|into| {
            let span = KeySpan { start: &into.start, end: borrowed(&into.end) };
            into.level == level && shares_keys(&span)
        });
        if !is_written {
            deepest = level;
        }
    }
    deepest
}
