//! Which keys the tables of a version have that were written since some sequence: for the check of
//! a transaction.
//!
//! A table whose largest sequence is not above that one is not asked. A filter's "no" ends the
//! question for a key or a range, unless the table has range deletes.
//!
//! The transaction's snapshot is registered at that sequence until the commit has ended. So what
//! jobs drop in the meantime does not matter: of versions, tombstones and range deletes above a
//! registered sequence they drop one only where a newer one stays, or where nothing of the key is
//! left and nothing was there at that sequence.

use crate::base::error::Result;
use crate::base::iterator::api::Direction;
use crate::base::iterator::newer::newer_within;
use crate::base::key::{LookupKey, SEQUENCE_MAX, SequenceNumber, key_head};
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::table::file::TableIo;
use crate::table::filter::ranges::RangeQuestion;
use crate::table::reader::Table;
use crate::tree::handle::TableHandle;
use crate::tree::level::TableProbe;
use crate::tree::level_iter::LevelIter;
use crate::tree::version::Version;
use siftdb_filter::bloom::fast_local::LineBits;
use siftdb_filter::encoding::FilterVerdict;
use siftdb_filter::hash::KeyHash;
use std::ops::Bound;

impl Version {
    /// True if a table has a version of the key above `since`, or a range delete that covers it.
    /// `key` looks it up at the largest sequence.
    ///
    /// # Errors
    /// The first error of a table that must be read.
    pub(crate) fn has_newer(
        &self,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        since: SequenceNumber,
    ) -> Result<bool> {
        let head = key_head(hash.key());
        let mut bits = LineBits::of(hash.xxph3());
        let [newest_first, sorted @ ..] = &self.levels;
        let level0 = newest_first.fences.iter().zip(&newest_first.probes);
        let level0 = level0.filter(|(fence, _)| !fence.excludes(head, hash.key()));
        let deeper = sorted.iter().filter_map(|level| level.probe_for(head, hash.key()));
        for probe in level0.map(|(_, probe)| probe).chain(deeper) {
            if probe.handle.meta.largest_sequence > since
                && !probe.denies(hash, &mut bits)
                && has_newer(probe, key, hash, since)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A key of `bounds` that a table has a version of above `since`, or that such a range delete
    /// covers.
    ///
    /// # Errors
    /// As for [`has_newer`](Self::has_newer).
    pub(crate) fn newer_within(
        &self,
        bounds: &KeyBounds,
        since: SequenceNumber,
    ) -> Result<Option<Vec<u8>>> {
        let handles = self.tables();
        let is_asked = |handle: &&Arc<TableHandle>| {
            handle.meta.largest_sequence > since && handle.meta.overlaps(bounds)
        };
        let start = LookupKey::new(&bounds.start, SEQUENCE_MAX);
        let range = RangeQuestion { start: &start, end: bounds.end.as_deref(), common: &[] };
        for handle in handles.filter(is_asked) {
            if let Some(key) = deleted_within(&handle.table, bounds, since) {
                return Ok(Some(key));
            }
            let io = &mut TableIo::default();
            if handle.table.range_may_match(&range, io) == FilterVerdict::No {
                continue;
            }
            // A scan of much must not take the cache from lookups.
            let mut walk = walk(handle, false);
            if let Some(key) = newer_within(&mut walk, bounds, since)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

fn has_newer(
    probe: &TableProbe,
    key: &LookupKey,
    hash: &KeyHash<'_>,
    since: SequenceNumber,
) -> Result<bool> {
    let table = &probe.handle.table;
    if let Some(deletes) = table.range_deletes()
        && deletes.covering(hash.key(), SEQUENCE_MAX) > since
    {
        return Ok(true);
    }
    if table.may_contain(key, hash, &mut TableIo::default())? == FilterVerdict::No {
        return Ok(false);
    }
    let only = Bound::Included(hash.key());
    let only = KeyBounds::between(only, only);
    Ok(newer_within(&mut walk(&probe.handle, true), &only, since)?.is_some())
}

fn walk(handle: &Arc<TableHandle>, fill_cache: bool) -> LevelIter {
    LevelIter::new(Direction::Forward, vec![Arc::clone(handle)], fill_cache)
}

/// A key of `bounds` that a range delete of the table above `since` covers.
fn deleted_within(table: &Table, bounds: &KeyBounds, since: SequenceNumber) -> Option<Vec<u8>> {
    table.range_deletes()?.newer_within(bounds, since)
}
