//! A counter that loses nothing: `fetch_add`, built on `update`.
//!
//! `update` reads a key, hands its value to a function and writes the answer, as one step. If
//! another thread wrote the key in between, it calls the function again with the new value.
//!
//! `cargo run --example counter`

use siftdb::keys::{decode, encode};
use siftdb::{Db, Keyspace};
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: u64 = 4;
const VISITS_EACH: u64 = 5_000;

/// Adds to a counter, which begins at 0. Returns what it was before, as an atomic integer does.
fn fetch_add(counters: &Keyspace, key: &str, add: u64) -> siftdb::Result<u64> {
    let count = |bytes: Option<&[u8]>| bytes.and_then(|bytes| decode(bytes).ok()).unwrap_or(0);
    let old = counters.update(key, |old| Some(encode(&(count(old) + add))))?;
    Ok(count(old.as_deref()))
}

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-counter-{}", std::process::id()));
    let db = Db::open(&directory)?;
    let counters = db.keyspace("counters")?;
    // Each visit gets a number of its own, so the sum of all numbers is known.
    let numbers = AtomicU64::new(0);
    let visit = || -> siftdb::Result<()> {
        for _ in 0..VISITS_EACH {
            numbers.fetch_add(fetch_add(&counters, "visits", 1)?, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(visit)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;

    let visits = fetch_add(&counters, "visits", 0)?;
    println!("{THREADS} threads, {VISITS_EACH} visits each, {visits} counted");
    assert_eq!(visits, THREADS * VISITS_EACH);
    assert_eq!(numbers.into_inner(), visits * (visits - 1) / 2);

    // The same idea with less: only the first of several claims a name.
    assert!(counters.put_if_absent("owner", "ada")?);
    assert!(!counters.put_if_absent("owner", "bob")?);
    db.close()?;
    let _ = std::fs::remove_dir_all(&directory); // Leave no files.
    Ok(())
}
