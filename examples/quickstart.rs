//! The first steps: write, read, delete, walk a prefix, and see what one lookup touched.
//!
//! `cargo run --example quickstart`

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-quickstart-{}", std::process::id()));
    let db = siftdb::Db::open(&directory)?;
    db.put("ada", "1815")?;
    db.put("alan", "1912")?;
    db.delete("alan")?;
    assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
    for entry in db.prefix("a") {
        let (name, year) = entry?;
        println!("{} was born in {}", name.escape_ascii(), year.escape_ascii());
    }
    println!("{}", db.explain("alan")?);
    db.close()?;
    let _ = std::fs::remove_dir_all(&directory); // Leave no files.
    Ok(())
}
