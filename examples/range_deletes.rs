//! How long range deletes take, and the reads after them: each line has a figure and its bar.
//!
//! ```console
//! $ cargo run --release --example range_deletes          # two million entries; a number scales it
//! ```

use siftdb::{Db, Options};
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

fn key(n: u64) -> [u8; 12] {
    let mut key = *b"000000000000";
    let digits = n.to_string();
    key[12 - digits.len()..].copy_from_slice(digits.as_bytes());
    key
}

fn open(name: &str) -> Result<(Db, std::path::PathBuf), Error> {
    let directory = std::env::temp_dir().join(format!("siftdb-{}-{name}", std::process::id()));
    Ok((Options::new().open(&directory)?, directory))
}

fn print(what: &str, took: Duration, bar: &str) {
    println!("{what:<58} {:>9.3} ms   bar: {bar}", took.as_secs_f64() * 1e3);
}

fn timed<T>(of: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (of(), begun.elapsed())
}

/// One range delete of half of the entries, and the first entry after it.
fn half(entries: u64) -> Result<(), Error> {
    let (db, directory) = open("half")?;
    (0..entries).try_for_each(|n| db.put(key(n), [b'v'; 100]))?;
    let (deleted, took) = timed(|| db.delete_range(..key(entries / 2)));
    print(&format!("delete_range of {} of {entries}", entries / 2), deleted.map(|()| took)?, "10");
    let (first, took) = timed(|| db.first());
    assert_eq!(first?.map(|(found, _)| found.into_vec()), Some(key(entries / 2).to_vec()));
    print("first() right after it", took, "1");
    db.close()?;
    Ok(std::fs::remove_dir_all(directory)?)
}

/// Adjacent range deletes, in the memtable and in a table.
fn adjacent(ranges: u64) -> Result<(), Error> {
    let (db, directory) = open("adjacent")?;
    (0..ranges * 10 + 1).try_for_each(|n| db.put(key(n), "v"))?;
    (0..ranges).try_for_each(|n| db.delete_range(key(n * 10)..key(n * 10 + 10)))?;
    for place in ["memtable", "table"] {
        let (first, took) = timed(|| db.first());
        assert_eq!(first?.map(|(found, _)| found.into_vec()), Some(key(ranges * 10).to_vec()));
        print(&format!("first() after {ranges} adjacent ranges, in a {place}"), took, "1");
        db.flush()?;
    }
    db.close()?;
    Ok(std::fs::remove_dir_all(directory)?)
}

/// Gets between range deletes, against gets between single deletes.
fn alternating(count: u64) -> Result<(), Error> {
    let mut nanos = [0, 0];
    for (ranges, nanos) in [false, true].into_iter().zip(&mut nanos) {
        let (db, directory) = open("alternating")?;
        (0..count).try_for_each(|n| db.put(key(n), "v"))?;
        for n in (0..count).map(|n| n * 7919 % count) {
            if ranges {
                db.delete_range(key(n)..key(n + 1))?
            } else {
                db.delete(key(n))?
            }
            *nanos += timed(|| db.get(key((n + count / 2) % count))).1.as_nanos();
        }
        db.close()?;
        std::fs::remove_dir_all(directory)?;
    }
    let [without, with] = nanos.map(|nanos| nanos as f64 / count as f64);
    println!(
        "get between {count} range deletes: {with:.0} ns, else {without:.0} ns   bar: 3 times"
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let entries = std::env::args().nth(1).map_or(Ok(2_000_000), |entries| entries.parse())?;
    half(entries)?;
    adjacent(entries / 200)?;
    alternating(entries / 20)
}
