//! Figures and lookups of the tables of a level.

use siftdb_foreign::{FilterFigures, LookupCounts, LookupTrace, TableFigures};
use std::collections::BTreeSet;

/// A level, its filters, and what lookups did there.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelFilters {
    /// The level.
    pub level: usize,
    /// Of all its tables.
    pub filters: FilterFigures,
    /// Of all its tables.
    pub counts: LookupCounts,
}

/// The levels that have tables. `tables` are those of the trace, in its order.
pub fn by_level(tables: &[TableFigures], trace: &LookupTrace) -> Vec<LevelFilters> {
    let levels: BTreeSet<usize> = tables.iter().map(|table| table.level).collect();
    let of = |level: usize| {
        let mut filters = FilterFigures::default();
        let here = tables.iter().filter(|table| table.level == level);
        here.for_each(|table| filters.add(&table.filters));
        let is_here = |at: usize| tables.get(at).is_some_and(|table| table.level == level);
        LevelFilters { level, filters, counts: counts_of(trace, is_here) }
    };
    levels.into_iter().map(of).collect()
}

/// What lookups did in the tables for which `is_counted` is true of their number.
pub fn counts_of(trace: &LookupTrace, is_counted: impl Fn(usize) -> bool) -> LookupCounts {
    let mut sum = LookupCounts::default();
    let counted = trace.tables().iter().enumerate().filter(|(at, _)| is_counted(*at));
    counted.for_each(|(_, counts)| sum.add(counts));
    sum
}
