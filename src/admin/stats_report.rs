//! The reports of `Db::stats` and `Keyspace::stats`: the counters, and what the database holds now.
//!
//! Counters come from `base::stats::counters`; tables, bytes and filters of each level from the
//! current version; memory from the memtables and the cache. Each part is right by itself, but
//! writes and lookups continue at the same time, so the parts are not of one moment.
//!
//! The expected false-positive rate of a level is the mean of its tables, weighted by entries.
//! Nothing is read from files, and no lock is held across the parts.

use crate::base::levels::LEVELS;
use crate::base::stats::counters::{COUNTERS, Counters};
use crate::base::stats::latency::Latencies;
use crate::base::stats::report::Stats;
use crate::base::sync::Arc;
use crate::cache::budget::Purpose;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::recent_writes::recent_write_bytes_max;

/// The keyspaces of which a report has one by one what OpenMetrics names them with: each has up to
/// 250 figures.
const KEYSPACES_NAMED_MAX: usize = 100;

/// The report for `Db::stats`: all keyspaces together.
pub(crate) fn stats(engine: &Engine) -> Stats {
    if !engine.context.process.is_current() {
        // A thread of the parent process may hold the locks that the report takes.
        return Stats::from_totals(&[0; COUNTERS]);
    }
    let keyspaces = engine.catalog.all_keyspaces();
    let mut stats =
        report(&engine.context, &engine.catalog, &keyspaces, Some(&engine.context.counters));
    let (named, others) = keyspaces.split_at(keyspaces.len().min(KEYSPACES_NAMED_MAX));
    stats.keyspaces = named.iter().map(|keyspace| keyspace_stats(engine, keyspace)).collect();
    if !others.is_empty() {
        stats.keyspaces.push(report(&engine.context, &engine.catalog, others, None));
    }
    add_bounds(&mut stats, engine);
    stats
}

/// Adds the bounds of memory, and what transactions take of it.
fn add_bounds(stats: &mut Stats, engine: &Engine) {
    let (options, recent) = (&engine.context.options, &engine.writer.recent);
    stats.memtable_bytes_max = match engine.context.read_only {
        true => options.read_only_log_bytes(),
        false => options.memtable_bytes_max(),
    };
    stats.transaction_bytes = recent.transaction_bytes();
    stats.transaction_bytes_max = options.transaction_bytes_max as u64;
    stats.recent_write_bytes = recent.list().bytes as u64;
    stats.recent_write_bytes_max = recent_write_bytes_max(options.write_buffer_bytes) as u64;
    let cache = &engine.context.cache;
    stats.pinned_bytes_max = cache.budget.reservable(Purpose::Pinned);
    stats.whole_index_bytes_max = cache.budget.reservable(Purpose::WholeIndex);
    stats.construction_bytes_max = cache.budget.reservable(Purpose::Construction);
}

/// The report for `Keyspace::stats`: what is counted once for the database is 0.
pub(crate) fn keyspace_stats(engine: &Engine, keyspace: &Arc<KeyspaceState>) -> Stats {
    if !engine.context.process.is_current() {
        return Stats::from_totals(&[0; COUNTERS]);
    }
    let mut stats = report(&engine.context, &engine.catalog, std::slice::from_ref(keyspace), None);
    stats.keyspace = Some(keyspace.name.clone());
    stats
}

fn report(
    context: &Context,
    catalog: &Catalog,
    keyspaces: &[Arc<KeyspaceState>],
    database: Option<&Arc<Counters>>,
) -> Stats {
    let counters = keyspaces.iter().map(|keyspace| &keyspace.counters).chain(database);
    let (mut totals, mut latencies) = (vec![0; COUNTERS], Latencies::default());
    for counters in counters {
        totals.iter_mut().zip(counters.totals()).for_each(|(sum, total)| *sum += total);
        latencies.add(&counters.latencies());
    }
    let mut stats = Stats::from_totals(&totals);
    stats.latencies = latencies;
    let mut weighted_fpr = [0.0; LEVELS];
    for keyspace in keyspaces {
        let view = keyspace.view.load();
        for (level, weighted_fpr) in weighted_fpr.iter_mut().enumerate() {
            let report = &mut stats.levels[level];
            for handle in view.version.level(level) {
                let properties = &handle.table.properties;
                report.tables += 1;
                report.bytes += handle.meta.bytes;
                report.entries += handle.meta.entries;
                report.filter_bytes += properties.filter_bytes;
                report.range_filter_bytes += properties.range_filter_bytes;
                report.index_bytes += properties.index_bytes;
                report.top_level_bytes += handle.table.top_level_bytes();
                let fpr = handle.table.expected_fpr().unwrap_or(0.0);
                *weighted_fpr += handle.meta.entries as f64 * fpr;
            }
        }
        stats.memtable_bytes += view.memtables().map(|m| m.memory_bytes()).sum::<u64>();
        stats.memtable_entries += view.memtables().map(|m| m.entries() as u64).sum::<u64>();
    }
    for (report, weighted_fpr) in stats.levels.iter_mut().zip(weighted_fpr) {
        report.expected_fpr = weighted_fpr / report.entries.max(1) as f64;
    }
    if database.is_some() {
        let retired = catalog.retired.lock();
        stats.memtable_bytes += retired.iter().map(|memtable| memtable.memory_bytes()).sum::<u64>();
    }
    stats.cache_capacity_bytes = context.cache.budget.capacity;
    stats.cache_bytes = context.cache.used_bytes();
    stats.cache_uncached = context.cache.uncached();
    stats.cache_rejected = context.cache.rejected();
    stats.pinned_bytes = context.cache.reserved_bytes();
    stats.whole_index_bytes = context.cache.whole_index_bytes();
    stats.construction_bytes = context.cache.construction_bytes();
    stats.evicted_bytes_in_use = context.cache.evicted_bytes_in_use();
    stats.snapshots = catalog.snapshots.len() as u64;
    stats.oldest_snapshot_millis =
        catalog.snapshots.oldest_age().map(|age| age.as_millis().try_into().unwrap_or(u64::MAX));
    (stats.obsolete_tables_in_use, stats.obsolete_bytes_in_use) = catalog.obsolete.in_use();
    stats.since_unix_seconds = context.counting_since;
    stats
}
