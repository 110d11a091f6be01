//! [`Stats`] as text: a line for each level that has tables or was searched, then writes, stalls
//! and memory.
//!
//! The text is for people: sizes are rounded, and it is not meant to be parsed. Programs use the
//! fields of [`Stats`].

use crate::base::stats::report::{LevelStats, Stats};
use std::fmt;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "level  tables       bytes    entries  filters    negative   true +  false +  \
             unresolved  no filter      FPR  expected  blocks read  avoided"
        )?;
        for (number, level) in self.levels.iter().enumerate() {
            let asked = level.negatives + level.not_consulted + level.not_paying;
            let asked = asked + level.prefix_checks() + level.scan_tables + level.scan_checks();
            if level.tables + level.data_blocks() + asked > 0 {
                write_level(f, &format!("{number}"), level)?;
            }
        }
        write_level(f, "all", &self.total())?;
        write_not_paying(f, &self.levels)?;
        write_prefixes(f, &self.levels)?;
        write_scans(f, self.scans, &self.levels)?;
        write_gets(f, self)?;
        write_written(f, &self.levels)?;
        match self.keyspace {
            Some(_) => writeln!(f, "memtables {}", bytes(self.memtable_bytes))?,
            None => {
                write_jobs(f, self)?;
                write_memory(f, self)?;
            }
        }
        write_in_tables(f, &self.total())?;
        write!(f, "{}", counted(self.filter_errors, "filter error"))
    }
}

/// What is counted for all keyspaces together.
fn write_jobs(f: &mut fmt::Formatter<'_>, stats: &Stats) -> fmt::Result {
    writeln!(
        f,
        "writes {}, {}, {} in {}; log {}, {}",
        counted(stats.batches, "batch"),
        counted(stats.entries, "entry"),
        bytes(stats.entry_bytes),
        counted(stats.write_groups, "group"),
        bytes(stats.wal_bytes),
        counted(stats.wal_syncs, "sync")
    )?;
    writeln!(
        f,
        "flushes {} ({}), compactions {} (read {}, wrote {}, dropped {}), moves {}",
        stats.flushes,
        bytes(stats.flush_bytes),
        stats.compactions,
        bytes(stats.compaction_bytes_read),
        bytes(stats.compaction_bytes_written),
        counted(stats.compaction_entries_dropped, "entry"),
        stats.trivial_moves
    )?;
    write_ingests(f, stats)?;
    writeln!(
        f,
        "stalls: memtables not flushed {} ({} ms), level 0 full {} ({} ms), \
         slowed {} ({} ms), logs begun {} ({} ms)",
        stats.memtable_stalls,
        stats.memtable_stall_nanos / 1_000_000,
        stats.level0_stalls,
        stats.level0_stall_nanos / 1_000_000,
        stats.slowdowns,
        stats.slowdown_nanos / 1_000_000,
        stats.log_switches,
        stats.log_switch_nanos / 1_000_000
    )?;
    write_transactions(f, stats)
}

/// The bytes and the bounds of what takes memory.
fn write_memory(f: &mut fmt::Formatter<'_>, stats: &Stats) -> fmt::Result {
    let part = |name: &str, now: u64, bound: u64| match bound {
        0 => format!("{name} {}", bytes(now)),
        _ => format!("{name} {} of {}", bytes(now), bytes(bound)),
    };
    let memtables = part("memtables", stats.memtable_bytes, stats.memtable_bytes_max);
    let recent = part("recent writes", stats.recent_write_bytes, stats.recent_write_bytes_max);
    let transactions = part("transactions", stats.transaction_bytes, stats.transaction_bytes_max);
    let evicted = part("evicted blocks in use", stats.evicted_bytes_in_use, 0);
    writeln!(f, "memory: {memtables}, {recent}, {transactions} each, {evicted}")?;
    let used = stats.cache_bytes + stats.pinned_bytes + stats.construction_bytes;
    let cache = part("cache", used, stats.cache_capacity_bytes);
    let blocks = part("blocks", stats.cache_bytes, 0);
    let pinned = part("pinned filters and indexes", stats.pinned_bytes, stats.pinned_bytes_max);
    let whole =
        part("whole indexes in these", stats.whole_index_bytes, stats.whole_index_bytes_max);
    let building =
        part("filters being built", stats.construction_bytes, stats.construction_bytes_max);
    writeln!(f, "{cache}: {blocks}, {pinned}, {whole}, {building}")
}

/// What of the tables lookups would have in memory.
fn write_in_tables(f: &mut fmt::Formatter<'_>, total: &LevelStats) -> fmt::Result {
    let filters = bytes(total.filter_bytes + total.range_filter_bytes);
    let (indexes, top_levels) = (bytes(total.index_bytes), bytes(total.top_level_bytes));
    writeln!(f, "in tables: filters {filters}, indexes {indexes}, top levels of both {top_levels}")
}

/// Lookups, and a line for each kind of call that was timed.
fn write_gets(f: &mut fmt::Formatter<'_>, stats: &Stats) -> fmt::Result {
    let Stats { gets, gets_found, memtable_hits, memtable_negatives, .. } = stats;
    let false_positives = stats.memtable_false_positives;
    writeln!(
        f,
        "gets {gets} (found {gets_found}), answered by a memtable {memtable_hits}, memtables \
         skipped by their filter {memtable_negatives}, false + {false_positives}"
    )?;
    write_latencies(f, stats)
}

/// A line for each kind of call that was timed.
fn write_latencies(f: &mut fmt::Formatter<'_>, stats: &Stats) -> fmt::Result {
    for call in Stats::TIMED_CALLS {
        let (calls, mean) = (stats.timed_calls(call), stats.mean_latency(call));
        let Some(mean) = mean else { continue };
        write!(f, "{call}: {}, mean {mean:.1?}", counted(calls, "call"))?;
        for (name, share) in [("half", 0.5), ("99 %", 0.99), ("99.9 %", 0.999)] {
            let bound = stats.latency(call, share).unwrap_or_default();
            write!(f, ", {name} within {bound:.1?}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// Bulk loads, if there were any.
fn write_ingests(f: &mut fmt::Formatter<'_>, stats: &Stats) -> fmt::Result {
    if stats.ingests == 0 {
        return Ok(());
    }
    let entries = counted(stats.entries_ingested, "entry");
    writeln!(f, "bulk loads {} ({entries}, {})", stats.ingests, bytes(stats.ingest_bytes))
}

/// What was written to each level, if a table was.
fn write_written(f: &mut fmt::Formatter<'_>, levels: &[LevelStats]) -> fmt::Result {
    let written: Vec<_> =
        levels.iter().enumerate().filter(|(_, level)| level.bytes_written > 0).collect();
    if written.is_empty() {
        return Ok(());
    }
    write!(f, "tables written:")?;
    for (number, level) in &written {
        write!(f, " level {number} {},", bytes(level.bytes_written))?;
    }
    let filters: u64 = written.iter().map(|(_, level)| level.filter_bytes_written).sum();
    writeln!(f, " filters in them {}", bytes(filters))
}

/// Transactions, and what the oldest one or another snapshot holds back.
fn write_transactions(f: &mut fmt::Formatter<'_>, stats: &Stats) -> fmt::Result {
    let conflicts = counted(stats.transaction_conflicts, "conflict");
    write!(f, "transactions {} committed, {conflicts}; ", stats.transactions_committed)?;
    write!(f, "snapshots {}", stats.snapshots)?;
    if let Some(age) = stats.oldest_snapshot_millis {
        write!(f, ", oldest {age} ms")?;
    }
    let (tables, held) = (stats.obsolete_tables_in_use, bytes(stats.obsolete_bytes_in_use));
    writeln!(f, ", replaced tables in use {tables} ({held})")
}

/// One line, if lookups did without filters that had not paid.
fn write_not_paying(f: &mut fmt::Formatter<'_>, levels: &[LevelStats]) -> fmt::Result {
    match levels.iter().map(|level| level.not_paying).sum::<u64>() {
        0 => Ok(()),
        lookups => writeln!(f, "filters not asked because it did not pay {lookups}"),
    }
}

/// One line, if a lookup asked a filter for a prefix.
fn write_prefixes(f: &mut fmt::Formatter<'_>, levels: &[LevelStats]) -> fmt::Result {
    if levels.iter().all(|level| level.prefix_checks() == 0) {
        return Ok(());
    }
    write!(f, "tables whose filter lookups asked for a prefix, and skipped:")?;
    for (number, level) in levels.iter().enumerate().filter(|(_, level)| level.prefix_checks() > 0)
    {
        write!(f, "  level {number} {}, {}", level.prefix_checks(), level.prefix_negatives)?;
    }
    writeln!(f)
}

/// A line for each level that scans read or skipped tables of.
fn write_scans(f: &mut fmt::Formatter<'_>, scans: u64, levels: &[LevelStats]) -> fmt::Result {
    if scans == 0 {
        return Ok(());
    }
    writeln!(f, "scans {scans}; tables, and blocks in them:")?;
    for (number, level) in levels.iter().enumerate() {
        if level.scan_tables + level.scan_checks() == 0 {
            continue;
        }
        write!(f, "  level {number} read {}, ", level.scan_tables)?;
        write!(f, "skipped {} of {} asked, ", level.scan_negatives, level.scan_checks())?;
        write!(f, "false + {}, ", level.scan_false_positives)?;
        write!(f, "data blocks read {}, ", level.scan_data_blocks_read)?;
        writeln!(f, "cached {}", level.scan_data_blocks_cached)?;
    }
    Ok(())
}

fn write_level(f: &mut fmt::Formatter<'_>, name: &str, level: &LevelStats) -> fmt::Result {
    let observed = level.observed_fpr().map_or("-".into(), |fpr| format!("{:.3}%", 100.0 * fpr));
    let expected = if level.filter_bytes == 0 {
        "-".into()
    } else {
        format!("{:.3}%", 100.0 * level.expected_fpr)
    };
    writeln!(
        f,
        "{name:>5}  {:>6}  {:>10}  {:>9}  {:>7}  {:>10}  {:>7}  {:>7}  {:>10}  {:>9}  {:>7}  \
         {:>8}  {:>11}  {:>7}",
        level.tables,
        bytes(level.bytes),
        level.entries,
        bytes(level.filter_bytes),
        level.negatives,
        level.true_positives,
        level.false_positives,
        level.unresolved,
        level.not_consulted,
        observed,
        expected,
        level.data_blocks_read,
        level.data_blocks_avoided(),
    )
}

/// `1 table`, `2 tables`, `1 entry`, `2 entries`, `1 batch`, `2 batches`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match noun.strip_suffix("ry") {
        _ if count == 1 => format!("1 {noun}"),
        Some(stem) => format!("{count} {stem}ries"),
        None if noun.ends_with("ch") => format!("{count} {noun}es"),
        None => format!("{count} {noun}s"),
    }
}

/// A size for people: three digits and a unit.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.95 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_three_digits() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500), "1.5 kB");
        assert_eq!(bytes(999_950_000), "1.0 GB");
    }

    /// What is counted for the database alone is zero in the report of a keyspace.
    #[test]
    fn the_text_of_a_keyspace_has_no_figures_of_the_database() {
        let of_database = Stats { memtable_bytes: 1_500, ..Stats::default() };
        let of_keyspace = Stats { keyspace: Some("users".into()), ..of_database.clone() };
        let has = |stats: &Stats, start: &str| {
            stats.to_string().lines().any(|line| line.starts_with(start))
        };
        for start in ["level", "gets", "in tables:", "0 filter errors"] {
            assert!(has(&of_database, start) && has(&of_keyspace, start), "{start}");
        }
        for start in ["writes", "flushes", "stalls:", "transactions", "memory:", "cache"] {
            assert!(has(&of_database, start) && !has(&of_keyspace, start), "{start}");
        }
        assert!(of_keyspace.to_string().contains("\nmemtables 1.5 kB\n"));
    }

    #[test]
    fn nouns_follow_their_count() {
        let cases = [(1, "key"), (2, "key"), (1, "entry"), (0, "entry"), (3, "batch"), (1, "log")];
        let text = cases.map(|(count, noun)| counted(count, noun)).join(", ");
        assert_eq!(text, "1 key, 2 keys, 1 entry, 0 entries, 3 batches, 1 log");
    }
}
