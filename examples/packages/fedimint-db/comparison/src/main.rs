//! Measures one of fedimint's databases through fedimint's own `Database`: `comparison DIR [SECONDS]`.
//!
//! A feature chooses the database, so that each binary has one. `DIR` must not exist yet.

use fedimint_core::db::{Database, IDatabaseTransactionOpsCore, IRawDatabaseExt};
use futures_util::StreamExt;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ENTRIES: u64 = 100_000;
const ENTRIES_EACH: u64 = 1000;
const VALUE: [u8; 100] = [7; 100];

#[cfg(feature = "siftdb")]
fn open(directory: &Path) -> Result<Database> {
    Ok(siftdb_fedimint_db::SiftDb::open(directory)?.into_database())
}

#[cfg(all(feature = "rocksdb", not(feature = "siftdb")))]
fn open(directory: &Path) -> Result<Database> {
    Ok(fedimint_rocksdb::RocksDb::build(directory).open_blocking()?.into_database())
}

#[cfg(not(any(feature = "siftdb", feature = "rocksdb")))]
fn open(_directory: &Path) -> Result<Database> {
    Ok(fedimint_core::db::mem_impl::MemDatabase::new().into_database())
}

/// Keys in an order that looks random: the multiplier is odd, so no two numbers share a key.
fn key(number: u64) -> [u8; 9] {
    let mut key = [b'k'; 9];
    key[1..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

async fn fill(db: &Database) -> Result<()> {
    for first in (0..ENTRIES).step_by(ENTRIES_EACH as usize) {
        let mut dbtx = db.begin_transaction().await;
        for number in first..first + ENTRIES_EACH {
            dbtx.raw_insert_bytes(&key(number), &VALUE).await?;
        }
        dbtx.commit_tx_result().await?;
    }
    Ok(())
}

/// Each task commits transactions of four inserts, in keys of its own. Returns transactions a second.
async fn commit(db: &Database, tasks: u64, time: Duration) -> Result<f64> {
    let started = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut count = 0_u64;
                while started.elapsed() < time {
                    let mut dbtx = db.begin_transaction().await;
                    for n in 0..4 {
                        let key = [b't', task as u8, n, count as u8, (count >> 8) as u8];
                        dbtx.raw_insert_bytes(&key, &VALUE).await?;
                    }
                    dbtx.commit_tx_result().await?;
                    count += 1;
                }
                Result::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Returns lookups a second, 100 in a transaction.
async fn get(db: &Database, time: Duration) -> Result<f64> {
    let (started, mut count) = (Instant::now(), 0_u64);
    while started.elapsed() < time {
        let mut dbtx = db.begin_transaction_nc().await;
        for _ in 0..100 {
            let number = count.wrapping_mul(7919) % ENTRIES;
            dbtx.raw_get_bytes(&key(number)).await?.ok_or("an entry is missing")?;
            count += 1;
        }
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Returns entries a second of scans over everything.
async fn scan(db: &Database, time: Duration) -> Result<f64> {
    let (started, mut count) = (Instant::now(), 0_u64);
    while started.elapsed() < time {
        let mut dbtx = db.begin_transaction_nc().await;
        let found = dbtx.raw_find_by_prefix(b"k").await?.count().await as u64;
        if found != ENTRIES {
            return Err(format!("{found} entries instead of {ENTRIES}").into());
        }
        count += found;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: comparison DIR [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(5), |seconds| seconds.parse())?;
    let (directory, time) = (Path::new(&directory), Duration::from_secs(seconds));
    let started = Instant::now();
    let mut db = open(directory)?;
    println!("create         {:>10.2} ms", started.elapsed().as_secs_f64() * 1e3);
    let started = Instant::now();
    fill(&db).await?;
    println!("fill           {:>10.2} ms", started.elapsed().as_secs_f64() * 1e3);
    println!("1 task         {:>10.0} transactions/s", commit(&db, 1, time).await?);
    println!("16 tasks       {:>10.0} transactions/s", commit(&db, 16, time).await?);
    if cfg!(any(feature = "siftdb", feature = "rocksdb")) {
        drop(db);
        let started = Instant::now();
        db = open(directory)?;
        println!("open           {:>10.2} ms", started.elapsed().as_secs_f64() * 1e3);
    }
    println!("get            {:>10.0} lookups/s", get(&db, time).await?);
    println!("find_by_prefix {:>10.0} entries/s", scan(&db, time).await?);
    Ok(())
}
