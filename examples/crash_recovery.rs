//! A power cut keeps every synced write, and a prefix of the writes after it.
//!
//! The file system is in memory. At a power cut it loses everything that was not synced.

use siftdb::env::MemEnv;
use siftdb::{Options, WriteOptions};
use std::sync::Arc;

fn main() -> siftdb::Result<()> {
    let disk = MemEnv::new();
    let db = Options::new().env(Arc::new(disk.clone())).open("/db")?;

    let mut transfer = siftdb::WriteBatch::new();
    transfer.put("account/a", "60").put("account/b", "40");
    db.write_with(transfer, &WriteOptions::new().sync(true))?;
    println!("synced:       a = 60, b = 40");

    db.put("account/a", "0")?;
    println!("not synced:   a = 0");

    let after_the_cut = disk.power_cut();
    println!("power is cut; reopening what the disk holds");
    let recovered = Options::new().env(Arc::new(after_the_cut)).open("/db")?;
    for entry in recovered.prefix("account/") {
        let (key, value) = entry?;
        println!("recovered:    {} = {}", key.escape_ascii(), value.escape_ascii());
    }
    assert_eq!(recovered.get("account/b")?.as_deref(), Some(&b"40"[..]));

    // `Db::sync` makes every write acknowledged so far durable, from any thread.
    db.sync()?;
    let recovered = Options::new().env(Arc::new(disk.power_cut())).open("/db")?;
    assert_eq!(recovered.get("account/a")?.as_deref(), Some(&b"0"[..]));
    println!("after a sync: a = 0 survives, too");
    recovered.close()?;
    db.close()
}
