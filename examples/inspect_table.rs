//! Print the files of a database: the layout of a table, and the records of a log.

use siftdb::env::{Env, MemEnv};
use siftdb::inspect::{self, DumpOptions};
use siftdb::{Filter, FilterLayout, Options};
use std::path::Path;
use std::sync::Arc;

fn main() -> siftdb::Result<()> {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let filter = Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 512 });
    let db = Options::new().env(Arc::clone(&env)).filter(filter).open("/db")?;
    for number in 0..1_000 {
        db.put(format!("key{number:04}"), format!("value {number}"))?;
    }
    db.flush()?;
    db.put("key0007", "a newer value")?;
    db.close()?;

    let mut out = std::io::stdout().lock();
    let listed = env.list(Path::new("/db")).expect("the database is there");
    let mut names: Vec<String> = listed.into_iter().map(|file| file.name).collect();
    names.sort();
    for name in names {
        let path = Path::new("/db").join(&name);
        println!("== {name}");
        if name.ends_with(".sst") {
            inspect::layout(&env, &path, &mut out)?;
            let facts = inspect::verify_table(&env, &path)?;
            println!("verified: {} entries, {} B of filter", facts.entries, facts.filter_bytes);
        } else if name != "LOCK" && name != "STATS" {
            inspect::dump(&env, &path, &DumpOptions::default(), &mut out)?;
        }
    }
    Ok(())
}
