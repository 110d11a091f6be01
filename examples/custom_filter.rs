//! A custom filter policy: exact for small tables, where false positives cost more than the few
//! bytes of the keys themselves.

use siftdb::env::MemEnv;
use siftdb::filter::FilterPolicy;
use siftdb::{Db, Filter, FilterLayout, Options};
use std::sync::Arc;

/// The keys themselves, each after its length, if they are few and short. Otherwise an empty
/// filter, which means "may contain any key".
#[derive(Debug)]
struct ExactSet;

const FILTER_BYTES_MAX: usize = 4096;

impl FilterPolicy for ExactSet {
    fn name(&self) -> &str {
        "example.ExactSet1"
    }

    fn create_filter(&self, keys: &[&[u8]], dst: &mut Vec<u8>) {
        if keys.iter().map(|key| 2 + key.len()).sum::<usize>() <= FILTER_BYTES_MAX {
            for key in keys {
                let length = key.len() as u16; // Keys have at most 65,535 bytes.
                dst.extend_from_slice(&length.to_le_bytes());
                dst.extend_from_slice(key);
            }
        }
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        let mut rest = filter;
        while let [low, high, tail @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            // Bytes that end within a key are damaged: the safe answer is "may match".
            let Some((member, others)) = tail.split_at_checked(length) else { return true };
            if member == key {
                return true;
            }
            rest = others;
        }
        filter.is_empty()
    }
}

fn false_positives(name: &str, filter: Filter) -> siftdb::Result<u64> {
    let options = Options::new().env(Arc::new(MemEnv::new())).auto_compaction(false);
    let db: Db = options.filter(filter.layout(FilterLayout::Full)).open("/db")?;
    for table in 0..50 {
        for key in 0..100 {
            db.put(format!("{key:04}-{table}"), "a value")?;
        }
        db.flush()?;
    }
    for key in 0..2_000 {
        assert_eq!(db.get(format!("{:04}-?", key % 99))?, None);
        assert!(db.contains_key(format!("{:04}-{}", key % 100, key % 50))?);
    }
    let total = db.stats().total();
    let (wrong, size) = (total.false_positives, total.filter_bytes);
    println!("{name:<15} {wrong:>5} false positives in 50 tables of 100 keys, {size} bytes");
    Ok(wrong)
}

fn main() -> siftdb::Result<()> {
    assert!(false_positives("Bloom, 10 bits", Filter::bloom(10.0))? > 0);
    assert_eq!(false_positives("exact set", Filter::custom(Arc::new(ExactSet)))?, 0);
    Ok(())
}
