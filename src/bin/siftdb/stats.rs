//! `siftdb stats DIR`: what a database holds and did.
//!
//! Counters are kept in the directory from opening to opening, so they tell of the programs that
//! used the database before, from the date in the last line on. The text is the library's
//! `Display`; the JSON has every counter by its name in `siftdb::Stats`, levels in order, and their
//! total.

use crate::args::Database;
use crate::failure::Outcome;
use crate::text::{date, output, print_json};
use clap::Args;
use serde_json::{Value, json};
use siftdb::stats::{LevelStats, Stats as Figures};
use std::io::Write;

#[derive(Args)]
pub struct Stats {
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub fn run(self) -> Outcome {
        let db = self.database.open_to_read()?;
        let stats = db.stats();
        if self.json {
            print_json(&stats_json(&stats))?;
        } else {
            let mut out = output();
            writeln!(out, "{stats}")?;
            if stats.since_unix_seconds > 0 {
                writeln!(out, "counted since {}", date(stats.since_unix_seconds))?;
            }
            out.flush()?;
        }
        Ok(db.close()?)
    }
}

/// An object of the named fields.
macro_rules! object {
    ($from:expr; $($field:ident),* $(,)?) => {{
        let mut object = serde_json::Map::new();
        $(object.insert(stringify!($field).into(), Value::from($from.$field));)*
        object
    }};
}

fn stats_json(stats: &Figures) -> Value {
    let mut object = object!(stats;
        gets, gets_found, memtable_hits, memtable_negatives, memtable_bytes, batches, entries,
        entry_bytes, write_groups, wal_bytes, wal_syncs, flushes, flush_bytes, compactions,
        compaction_bytes_read, compaction_bytes_written, compaction_entries_dropped,
        trivial_moves, level0_slowdowns, level0_slowdown_nanos, level0_stalls,
        level0_stall_nanos, memtable_stalls, memtable_stall_nanos, log_switches,
        log_switch_nanos, filter_errors,
        cache_capacity_bytes, cache_bytes, cache_uncached, cache_turned_away,
        resident_bytes, construction_bytes, pinned_bytes, snapshots, since_unix_seconds,
    );
    let levels: Vec<Value> = stats.levels.iter().map(level_json).collect();
    object.insert("levels".into(), json!(levels));
    object.insert("total".into(), level_json(&stats.total()));
    Value::Object(object)
}

fn level_json(level: &LevelStats) -> Value {
    let mut object = object!(level;
        tables, bytes, entries, filter_bytes, expected_fpr, negatives, true_positives,
        false_positives, unresolved, not_consulted, bytes_avoided, index_seeks,
        data_blocks_cached, data_blocks_read, data_bytes_read, filter_blocks_cached,
        filter_blocks_read, filter_bytes_read, index_blocks_read, index_bytes_read,
    );
    object.insert("observed_fpr".into(), json!(level.observed_fpr()));
    Value::Object(object)
}
