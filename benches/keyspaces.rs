//! What many keyspaces cost: memory, time to open, and write amplification against one keyspace.
//!
//! `cargo bench -p siftdb-benches --bench keyspaces`; `SIFTDB_BENCH_MEGABYTES` sets how much the
//! second part writes (2,000), with a write buffer of 1/160 of it. Memory is what the process has
//! resident (`VmRSS`), above what it had before; each opening is measured in a process of its own.
//! docs/results/recorded.md has the figures. `-- --test` runs all of it on little data.

use siftdb::{Db, Options, Result, WriteBatch};
use siftdb_cli::experiment::bench::resident_bytes;
use siftdb_cli::experiment::mix;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const KEYSPACES: u64 = 1_000;
const VALUE_BYTES: usize = 100;

/// Bytes of the process that are resident now.
fn resident() -> u64 {
    resident_bytes().unwrap_or(0)
}

fn names(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("keyspace {number:04}"))
}

/// Set in a process that only opens a database and says what that costs.
const OPEN: &str = "SIFTDB_BENCH_OPEN";

/// Opens the database of that directory and says what that costs.
fn open_here(directory: &Path) -> Result<()> {
    let (before, started) = (resident(), Instant::now());
    let db = Db::open(directory)?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let megabytes = resident().saturating_sub(before) as f64 / 1e6;
    println!("  {milliseconds:.1} ms, {megabytes:.1} MB, {} keyspaces", db.keyspaces().len());
    db.close()
}

/// The same in a new process; `what` the database holds.
fn open(directory: &Path, what: &str) {
    println!("open, {what}:");
    let program = std::env::current_exe().expect("the name of this program");
    let status = Command::new(program).env(OPEN, directory).status();
    assert!(status.expect("a new process").success());
}

/// Opens databases of many keyspaces: empty ones, then one entry in each, in the log and in tables.
fn openings(directory: &Path, keyspaces: u64) -> Result<()> {
    let db = Db::open(directory)?;
    let started = Instant::now();
    names(keyspaces).try_for_each(|name| db.keyspace(&name).map(drop))?;
    let each = started.elapsed() / keyspaces as u32;
    println!("create: {:.1} us a keyspace", each.as_secs_f64() * 1e6);
    db.close()?;
    drop(db);
    open(directory, "empty keyspaces");
    let db = Db::open(directory)?;
    for name in names(keyspaces) {
        db.keyspace(&name)?.put("key", [7; VALUE_BYTES])?;
    }
    db.close()?;
    drop(db);
    open(directory, "one entry in each, in the log");
    let db = Db::open(directory)?;
    db.flush()?;
    db.close()?;
    drop(db);
    open(directory, "one entry in each, in tables");
    Ok(())
}

/// Writes `bytes` of entries with random keys, evenly to `keyspaces`. Returns the bytes written to
/// tables for each byte of entries.
fn write(directory: &Path, keyspaces: u64, bytes: u64) -> Result<f64> {
    let options = Options::new()
        .write_buffer_bytes((bytes / 160) as usize)
        .table_bytes(bytes / 160)
        .level_base_bytes(bytes / 40)
        .snappy(false)
        .block_cache_bytes(8 << 20);
    let db = options.open(directory)?;
    let handles: Vec<_> = names(keyspaces).map(|name| db.keyspace(&name)).collect::<Result<_>>()?;
    let before = resident();
    let (entries, started) = (bytes / (VALUE_BYTES as u64 + 16), Instant::now());
    let mut most = before;
    for first in (0..entries).step_by(100) {
        let mut batch = WriteBatch::new();
        for number in first..first + 100 {
            let place = mix(number) % keyspaces;
            let key = format!("{:016x}", mix(!number) % entries);
            let value = mix(number).to_le_bytes().repeat(VALUE_BYTES / 8 + 1);
            batch.in_keyspace(&handles[place as usize]).put(key, &value[..VALUE_BYTES]);
        }
        db.write(batch)?;
        if first % 10_000 == 0 {
            most = most.max(resident());
        }
    }
    db.flush()?;
    let stats = db.stats();
    let written = stats.flush_bytes + stats.compaction_bytes_written;
    let amplification = written as f64 / stats.entry_bytes as f64;
    println!(
        "write {} MB to {keyspaces} keyspaces: {amplification:.2} bytes written for each, {:.0} s, \
         {:.1} MB more at most (write buffer {:.1} MB), {} flushes, {} compactions, {} tables",
        bytes / 1_000_000,
        started.elapsed().as_secs_f64(),
        (most - before) as f64 / 1e6,
        (bytes / 160) as f64 / 1e6,
        stats.flushes,
        stats.compactions,
        stats.total().tables,
    );
    db.close()?;
    Ok(amplification)
}

fn main() -> Result<()> {
    if let Some(directory) = std::env::var_os(OPEN) {
        return open_here(Path::new(&directory));
    }
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (keyspaces, megabytes) = if is_test { (50, 20) } else { (KEYSPACES, 2_000) };
    let set = std::env::var("SIFTDB_BENCH_MEGABYTES").ok();
    let megabytes = set.and_then(|text| text.parse().ok()).unwrap_or(megabytes);
    let place = tempfile::tempdir().expect("directory");
    openings(&place.path().join("many"), keyspaces)?;
    let one = write(&place.path().join("one"), 1, megabytes * 1_000_000)?;
    let many = write(&place.path().join("even"), keyspaces, megabytes * 1_000_000)?;
    println!("ratio of {keyspaces} keyspaces to one: {:.2}", many / one);
    Ok(())
}
