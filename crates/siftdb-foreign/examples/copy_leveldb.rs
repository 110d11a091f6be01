//! Copies a LevelDB database into one of siftdb: `copy_leveldb OLD NEW`.

use siftdb::{Db, Error, env::DiskEnv};
use siftdb_foreign::LevelDb;
use std::path::Path;
use std::sync::Arc;

/// Copies the live entries; returns how many there are.
fn copy(old: &Path, new: &Path) -> Result<u64, Error> {
    let old = LevelDb::open(Arc::new(DiskEnv::new()), old, false)?;
    let db = Db::open(new)?;
    let mut copied = 0;
    for entry in old.entries() {
        let (key, value) = entry?;
        db.put(key, value)?;
        copied += 1;
    }
    // A record at the end of the log that a crash cut short, as LevelDB drops it.
    for loss in old.losses() {
        eprintln!("not read: {loss}");
    }
    db.close()?;
    Ok(copied)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [old, new] = &paths[..] else { return Err("usage: copy_leveldb OLD NEW".into()) };
    println!("{} entries copied", copy(old.as_ref(), new.as_ref())?);
    Ok(())
}
