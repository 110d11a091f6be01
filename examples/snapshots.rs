//! A snapshot sees the database at its creation, during later writes, flushes and compactions.

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-snapshots-{}", std::process::id()));
    let db = siftdb::Db::open(&directory)?;
    for month in ["jan", "feb", "mar"] {
        db.put(format!("sales/{month}"), "100")?;
    }

    let end_of_quarter = db.snapshot();

    // All of this is one step: a reader sees either none or all of it.
    let mut batch = siftdb::WriteBatch::new();
    batch.put("sales/jan", "90").delete("sales/feb").put("sales/apr", "120");
    db.write(batch)?;
    db.compact_range(..)?;

    // A snapshot is owned and can be given to another thread.
    let report = std::thread::spawn(move || -> siftdb::Result<()> {
        println!("at the end of the quarter:");
        for entry in end_of_quarter.prefix("sales/") {
            let (key, value) = entry?;
            println!("  {} {}", key.escape_ascii(), value.escape_ascii());
        }
        Ok(())
    });
    report.join().expect("the report does not panic")?;

    println!("now, backwards:");
    for entry in db.prefix("sales/").rev() {
        let (key, value) = entry?;
        println!("  {} {}", key.escape_ascii(), value.escape_ascii());
    }
    println!("snapshots alive: {}", db.stats().snapshots);

    db.close()?;
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}
