//! The first steps: write, read, delete, keep two kinds of data apart in keyspaces, write to both in
//! one step, walk a prefix, and see what one lookup touched.
//!
//! `cargo run --example quickstart`

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-quickstart-{}", std::process::id()));
    let db = siftdb::Db::open(&directory)?;
    db.put("ada", "1815")?;
    assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
    db.delete("ada")?;

    // A keyspace has keys, filters and settings of its own.
    let years = db.keyspace_with("years", &siftdb::KeyspaceOptions::new().block_bytes(16 << 10))?;
    let mut batch = siftdb::WriteBatch::new();
    batch.put("alan", "1912").put("anna", "1920");
    batch.in_keyspace(&years).put("1912/alan", "").put("1920/anna", "");
    db.write(batch)?; // Both keyspaces or neither.
    for entry in years.prefix("1912/") {
        let (key, _) = entry?;
        println!("{}", key.escape_ascii());
    }
    println!("{}", db.explain("alan")?);
    db.close()?;
    let _ = std::fs::remove_dir_all(&directory); // Leave no files.
    Ok(())
}
