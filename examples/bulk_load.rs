//! How long a bulk load takes, and the same entries in batches, in one run.
//!
//! ```console
//! $ cargo run --release --example bulk_load              # ten million entries; a number says how many
//! ```

use siftdb::{Db, WriteBatch};
use std::path::PathBuf;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

/// Entries of a batch.
const BATCH: u64 = 1_000;

/// A key of 16 bytes and a value of 84, half of which compresses.
fn entry(n: u64) -> ([u8; 16], [u8; 84]) {
    let (mut key, mut value) = (*b"key-000000000000", [b'v'; 84]);
    let digits = n.to_string();
    key[16 - digits.len()..].copy_from_slice(digits.as_bytes());
    let mut state = n;
    for bytes in value[..42].chunks_mut(8) {
        state = state.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        bytes.copy_from_slice(&state.to_le_bytes()[..bytes.len()]);
    }
    (key, value)
}

fn open(name: &str) -> Result<(Db, PathBuf), Error> {
    let directory = std::env::temp_dir().join(format!("siftdb-{}-{name}", std::process::id()));
    Ok((Db::open(&directory)?, directory))
}

/// Until all entries are in tables, durably.
fn in_batches(db: &Db, count: u64) -> Result<Duration, Error> {
    let begun = Instant::now();
    for first in (0..count).step_by(BATCH as usize) {
        let mut batch = WriteBatch::new();
        for (key, value) in (first..count.min(first + BATCH)).map(entry) {
            batch.put(key, value);
        }
        db.write(batch)?;
    }
    db.flush()?;
    Ok(begun.elapsed())
}

fn main() -> Result<(), Error> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(10_000_000), |count| count.parse())?;
    let (batches, batches_at) = open("batches")?;
    let written = in_batches(&batches, count)?;
    batches.close()?; // or its compactions would run during the load
    // Or the load would pay for what the system has not yet written of the batches.
    std::process::Command::new("sync").status()?;
    let (loads, loads_at) = open("load")?;
    let begun = Instant::now();
    let report = loads.ingest((0..count).map(entry))?;
    let loaded = begun.elapsed();
    println!("{count} entries in batches of {BATCH}   {written:>8.2?}");
    println!("the same as a bulk load           {loaded:>8.2?}: {report:?}");
    println!("{:.1} times as fast   bar: 3", written.as_secs_f64() / loaded.as_secs_f64());
    let batches = Db::open(&batches_at)?;
    for n in (0..count).step_by((count as usize / 1000).max(1)) {
        let (key, value) = entry(n);
        assert!([&batches, &loads].iter().all(|db| *db.get(key).unwrap().unwrap() == value));
    }
    drop((batches, loads));
    std::fs::remove_dir_all(batches_at)?;
    std::fs::remove_dir_all(loads_at)?;
    Ok(())
}
