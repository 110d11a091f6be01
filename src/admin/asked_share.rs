//! How often a lookup asks each table: the share of lookups whose key lies between its fences.
//!
//! Lookups are taken to go where the stored keys are, so each table stands for as many of them as
//! it has entries. Where a table reaches beyond the fences of another one, its data index says how
//! many of its blocks lie between them. `filter_report` states the shares of level 0, where tables
//! may overlap or not: three that share no keys are one question for a lookup, three that share
//! all of them are three. Deeper levels have one question at most.

use crate::base::key::{LookupKey, SEQUENCE_MAX, user_key};
use crate::base::levels::LEVELS;
use crate::table::fetch::TableIo;
use crate::table::index::Index;
use crate::tree::edit::FileMeta;
use crate::tree::handle::TableHandle;
use crate::tree::version::Version;

/// For each table of level 0, in the order of a search, the share of lookups that ask it.
#[must_use]
pub fn shares_of_level_0(version: &Version) -> Vec<f64> {
    let all = || (0..LEVELS).flat_map(|level| version.level(level));
    let entries: u64 = all().map(|handle| handle.meta.entries).sum();
    let shares = version.level(0).iter().map(|asked| {
        let lookups: f64 =
            all().map(|table| table.meta.entries as f64 * share_between(table, &asked.meta)).sum();
        lookups / entries.max(1) as f64
    });
    shares.collect()
}

/// The share of `table`'s entries that lie between the fences of `asked`, to about a block.
fn share_between(table: &TableHandle, asked: &FileMeta) -> f64 {
    let [first, last] = [&table.meta.smallest, &table.meta.largest].map(|key| user_key(key));
    let [from, to] = [&asked.smallest, &asked.largest].map(|key| user_key(key));
    if to < first || last < from {
        return 0.0;
    }
    let mut held = None;
    let mut place_of = |key: &[u8]| match table.table.index(&mut held, &mut TableIo::default()) {
        Ok(index) => place_within(index, key),
        // A damaged index is for `verify` to find; here the middle is as good as any place.
        Err(_) => 0.5,
    };
    let start = if from <= first { 0.0 } else { place_of(from) };
    let end = if last <= to { 1.0 } else { place_of(to) };
    (end - start).max(0.0)
}

/// How far into a table, from 0 to 1, a key lies: in the middle of its block.
fn place_within(index: &Index, key: &[u8]) -> f64 {
    let block = index.seek(LookupKey::new(key, SEQUENCE_MAX).internal_key());
    ((block as f64 + 0.5) / index.len().max(1) as f64).min(1.0)
}
