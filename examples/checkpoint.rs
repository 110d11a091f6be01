//! A live backup: a checkpoint while another thread writes, brought up to date, and restored.
//!
//! ```console
//! $ cargo run --release --example checkpoint
//! ```

use siftdb::Db;
use siftdb::keys::{decode, encode};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Numbers its entries, in two keyspaces by one batch each.
fn write(db: &Db, done: &AtomicU64, stop: &AtomicBool) -> Result<(), Error> {
    let copies = db.keyspace("copies")?;
    for n in done.load(Ordering::SeqCst) + 1.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let mut batch = siftdb::WriteBatch::new();
        batch.put(encode(&n), [b'v'; 100]);
        batch.in_keyspace(&copies).put(encode(&n), [b'v'; 100]);
        db.write(batch)?;
        done.store(n, Ordering::SeqCst);
    }
    Ok(())
}

/// The last number in both keyspaces of a database: a checkpoint has both or neither.
fn last(path: &Path) -> Result<u64, Error> {
    let db = Db::open_read_only(path)?;
    let of = |entry: Option<(siftdb::Key, _)>| entry.map_or(Ok(0), |(key, _)| decode(&key));
    let (last, copied) = (of(db.last()?)?, of(db.keyspace("copies")?.last()?)?);
    assert_eq!(last, copied);
    Ok(last)
}

fn main() -> Result<(), Error> {
    let directory = std::env::temp_dir().join(format!("siftdb-checkpoint-{}", std::process::id()));
    let [home, backup, restored] = ["db", "backup", "restored"].map(|name| directory.join(name));
    let db = Db::open(&home)?;
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| -> Result<(), Error> {
        let writer = scope.spawn(|| write(&db, &done, &stop));
        for round in 1..=3 {
            while done.load(Ordering::SeqCst) < round * 20_000 && !writer.is_finished() {
                std::thread::yield_now();
            }
            let (before, begun) = (done.load(Ordering::SeqCst), Instant::now());
            let made = db.checkpoint(&backup)?;
            let (took, last) = (begun.elapsed(), last(&backup)?);
            println!(
                "checkpoint {round}: {} tables, {} of them new, up to {last}, in {took:.0?}",
                made.tables, made.tables_new
            );
            assert!(last >= before, "everything that was acknowledged before is in it");
        }
        stop.store(true, Ordering::SeqCst);
        writer.join().expect("the writer does not panic")
    })?;
    // Back: a checkpoint of the checkpoint, which itself stays as it is.
    Db::open_read_only(&backup)?.checkpoint(&restored)?;
    println!("restored up to {} of {}", last(&restored)?, done.load(Ordering::SeqCst));
    db.close()?;
    Ok(std::fs::remove_dir_all(directory)?)
}
