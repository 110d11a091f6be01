//! The first fifteen lines: open, write, read, delete, iterate.

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-quickstart-{}", std::process::id()));
    let db = siftdb::Db::open(&directory)?;
    db.put("ada", "1815")?;
    db.put("alan", "1912")?;
    db.put("grace", "1906")?;
    db.delete("alan")?;
    if let Some(year) = db.get("ada")? {
        println!("ada was born in {}", year.escape_ascii());
    }
    for entry in db.prefix("g") {
        let (key, value) = entry?;
        println!("{} was born in {}", key.escape_ascii(), value.escape_ascii());
    }
    println!("\n{}", db.explain("alan")?);
    db.close()?;
    // Not part of the quick start: an example leaves nothing behind.
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}
