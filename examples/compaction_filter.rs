//! A compaction filter: compactions remove the log entries of a level that nobody reads any more,
//! and shorten long ones, while they rewrite tables anyway.

use siftdb::{CompactRangeOptions, CompactionDecision, CompactionFilter, Db, KeyspaceOptions};
use std::sync::Arc;

/// Removes debug messages and cuts others to a number of bytes.
#[derive(Debug)]
struct ShortLog {
    bytes_max: usize,
}

impl CompactionFilter for ShortLog {
    fn name(&self) -> &str {
        "example.ShortLog"
    }

    fn filter(&self, _key: &[u8], message: &[u8]) -> CompactionDecision {
        if message.starts_with(b"debug:") {
            return CompactionDecision::Remove;
        }
        match message.get(..self.bytes_max) {
            Some(short) if short.len() < message.len() => {
                CompactionDecision::Replace(short.to_vec())
            }
            _ => CompactionDecision::Keep,
        }
    }
}

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-filter-{}", std::process::id()));
    let db = Db::open(&directory)?;
    // It is not saved: each opening names it again.
    let filter = Arc::new(ShortLog { bytes_max: 24 });
    let options = KeyspaceOptions::new().compaction_filter(filter);
    let log = db.keyspace_with("log", &options)?;
    log.put("001", "info: the program starts and reads its settings")?;
    log.put("002", "debug: setting colour is blue")?;
    log.put("003", "info: ready")?;
    let before = log.snapshot();

    // What a snapshot sees is left alone.
    log.flush()?;
    let all = CompactRangeOptions::new().force(true);
    log.compact_range_with(.., &all)?;
    assert_eq!(log.iter().count(), 3);

    drop(before);
    log.compact_range_with(.., &all)?;
    for entry in log.iter() {
        let (number, message) = entry?;
        println!("{} {}", number.escape_ascii(), message.escape_ascii());
    }
    assert_eq!(log.get("002")?, None);
    println!("filtered: {}", db.stats().entries_filtered);

    db.close()?;
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}
