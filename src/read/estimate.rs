//! How much a range of keys holds, about, without reading its data: [`RangeEstimate`].
//!
//! A table that lies in the range counts whole. Of a table that the range cuts, the data index says
//! how many of its blocks the range covers, so the estimate is off by at most a block at each end.
//! In a memtable, the first thousand entries of the range are counted. If there are more, the
//! estimate is half of the memtable.

use crate::base::error::Result;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{LookupKey, SEQUENCE_MAX, user_key};
use crate::base::levels::LEVELS;
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::memtable::memtable::Memtable;
use crate::read::point::sequence_in;
use crate::state::keyspace::KeyspaceState;
use crate::tree::handle::TableHandle;

/// Most entries of a memtable that are counted.
const COUNTED_MAX: u64 = 1_000;

/// About how much a range of keys holds: see
/// [`Keyspace::estimate_range`](crate::Keyspace::estimate_range).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Entries: old versions, tombstones and entries that a range delete hides count too, until a
    /// compaction drops them.
    pub entries: u64,
    /// Bytes in the files of tables, and in memtables.
    pub bytes: u64,
}

/// What `bounds` hold in `keyspace`.
///
/// # Errors
/// A data index cannot be read or is damaged; `Closed`; `KeyspaceDropped`.
pub(crate) fn estimate(keyspace: &KeyspaceState, bounds: &KeyBounds) -> Result<RangeEstimate> {
    let view = keyspace.view.load_full();
    sequence_in(keyspace, &view, None)?;
    let mut sum = RangeEstimate::default();
    if bounds.is_empty() {
        return Ok(sum);
    }
    for memtable in view.memtables().filter(|memtable| !memtable.is_empty()) {
        let entries = entries_of(memtable, bounds);
        sum.entries += entries;
        sum.bytes += entries * memtable.bytes() as u64 / memtable.entries().max(1) as u64;
    }
    for level in 0..LEVELS {
        let tables = view.version.level(level).iter();
        for handle in tables.filter(|handle| handle.meta.overlaps(bounds)) {
            let share = share_of(handle, bounds)?;
            sum.entries += (handle.meta.entries as f64 * share).round() as u64;
            sum.bytes += (handle.meta.bytes as f64 * share).round() as u64;
        }
    }
    Ok(sum)
}

/// The share of the table that the range covers, by data blocks.
fn share_of(handle: &TableHandle, bounds: &KeyBounds) -> Result<f64> {
    let meta = &handle.meta;
    if meta.lies_within(bounds) {
        return Ok(1.0);
    }
    let blocks = handle.table.properties.data_blocks as f64;
    let before =
        |key: &[u8]| handle.table.blocks_before(LookupKey::new(key, SEQUENCE_MAX).internal_key());
    // The block that the end cuts counts half.
    let end = match &bounds.end {
        Some(end) => (before(end)? as f64 + 0.5).min(blocks),
        None => blocks,
    };
    Ok((end - before(&bounds.start)? as f64).max(0.0) / blocks.max(1.0))
}

fn entries_of(memtable: &Arc<Memtable>, bounds: &KeyBounds) -> u64 {
    let start = LookupKey::new(&bounds.start, SEQUENCE_MAX);
    let mut entries = 0;
    for mut iter in memtable.iterators(Direction::Forward) {
        iter.seek(Some(start.internal_key()));
        while iter.valid() && bounds.is_before_end(user_key(iter.key())) {
            entries += 1;
            if entries == COUNTED_MAX {
                return COUNTED_MAX.max(memtable.entries() as u64 / 2);
            }
            iter.next();
        }
    }
    entries
}
