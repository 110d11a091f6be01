//! The report of `Db::stats`: the counters, and what the database holds now.
//!
//! Counters come from `base::stats::counters`; tables, bytes and filters of each level from the
//! current version; memory from the memtables and the cache. Each part is right by itself, but
//! writes and lookups go on at the same time, so the parts are not of one moment.
//!
//! The expected false-positive rate of a level is the mean of its tables, weighted by entries.
//! Nothing is read from files, and no lock is held across the parts.

use crate::base::levels::LEVELS;
use crate::base::stats::counters::Counters;
use crate::base::stats::report::Stats;
use crate::state::shared::Shared;

/// The report for `Db::stats`.
#[must_use]
pub(crate) fn stats(shared: &Shared) -> Stats {
    if !shared.process.is_current() {
        // A thread of the parent process may hold the locks that the report takes.
        return Stats::from_totals(&Counters::new().totals());
    }
    let mut stats = Stats::from_totals(&shared.counters.totals());
    let view = shared.view.load();
    for level in 0..LEVELS {
        let report = &mut stats.levels[level];
        let mut weighted_fpr = 0.0;
        for handle in view.version.level(level) {
            let properties = handle.table.properties();
            report.tables += 1;
            report.bytes += handle.meta.bytes;
            report.entries += handle.meta.entries;
            report.filter_bytes += properties.filter_bytes;
            let fpr = handle.table.expected_fpr().unwrap_or(0.0);
            weighted_fpr += handle.meta.entries as f64 * fpr;
        }
        report.expected_fpr = weighted_fpr / report.entries.max(1) as f64;
    }
    let immutables = view.immutables.iter().map(|full| full.memtable.bytes());
    let retired: usize = shared.retired.lock().iter().map(|memtable| memtable.bytes()).sum();
    stats.memtable_bytes = (view.active.bytes() + immutables.sum::<usize>() + retired) as u64;
    let immutables = view.immutables.iter().map(|full| full.memtable.entries());
    stats.memtable_entries = (view.active.entries() + immutables.sum::<usize>()) as u64;
    stats.cache_capacity_bytes = shared.cache.capacity_bytes();
    stats.cache_bytes = shared.cache.used_bytes();
    stats.cache_uncached = shared.cache.uncached();
    stats.cache_rejected = shared.cache.rejected();
    stats.pinned_bytes = shared.cache.reserved_bytes();
    stats.construction_bytes = shared.cache.construction_bytes();
    stats.evicted_bytes_in_use = shared.cache.evicted_bytes_in_use();
    stats.snapshots = shared.snapshots.len() as u64;
    stats.since_unix_seconds = shared.counting_since;
    stats
}
