//! The share of lookups that search each table of level 0.
//!
//! A lookup searches a table if the key is between its fences. Looked-up keys are assumed to be
//! distributed like stored ones, so a table with more entries gets more lookups. If the ranges of
//! two tables overlap in part, the data index says how many blocks are in the overlap.
//! `filter_report` uses the shares of level 0, whose tables may overlap: a lookup searches one of
//! three tables with disjoint ranges, but all three tables if they have the same range. In deeper
//! levels a lookup searches one table at most.

use crate::base::key::{LookupKey, SEQUENCE_MAX};
use crate::base::sync::Arc;
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::TableHandle;
use crate::tree::overlap::compare_ends;
use crate::tree::version::Version;
use std::ops::Bound;

/// For each table of level 0, in search order, the share of lookups that search it.
pub(crate) fn shares_of_level_0(version: &Version) -> Vec<f64> {
    let entries: u64 = version.tables().map(|handle| handle.meta.entries).sum();
    let shares = version.level(0).iter().map(|asked| {
        let lookups = |table: &Arc<TableHandle>| {
            table.meta.entries as f64 * share_between(table, &asked.meta)
        };
        version.tables().map(lookups).sum::<f64>() / entries.max(1) as f64
    });
    shares.collect()
}

/// The share of the entries of `table` between the fences of `asked`, exact to about one block.
fn share_between(table: &TableHandle, asked: &FileMeta) -> f64 {
    let (own, asked) = (table.meta.span(), asked.span());
    if !own.overlaps(&asked) {
        return 0.0;
    }
    let start = if asked.start <= own.start { 0.0 } else { position_of(table, asked.start) };
    let end = match asked.end {
        Bound::Included(to) | Bound::Excluded(to) if compare_ends(asked.end, own.end).is_lt() => {
            position_of(table, to)
        }
        _ => 1.0,
    };
    (end - start).max(0.0)
}

/// The relative position of a key in a table, from 0 to 1: the middle of its block.
fn position_of(table: &TableHandle, key: &[u8]) -> f64 {
    let bound = LookupKey::new(key, SEQUENCE_MAX);
    let blocks = table.table.properties.data_blocks.max(1) as f64;
    match table.table.blocks_before(bound.internal_key()) {
        Ok(before) => ((before as f64 + 0.5) / blocks).min(1.0),
        // `verify` reports a damaged index; here the middle of the table is a fair guess.
        Err(_) => 0.5,
    }
}
