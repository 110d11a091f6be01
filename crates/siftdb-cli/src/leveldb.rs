//! Opens a LevelDB database to read it.

use crate::failure::{Failure, Outcome};
use crate::foreign_lock::lock;
use siftdb::env::{DiskEnv, Env};
use siftdb_foreign::LevelDb;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Opens the database in `directory`, after taking the lock that keeps LevelDB from opening it.
/// Changes no byte.
pub fn open(directory: &Path, salvage: bool) -> Outcome<(LevelDb, Option<File>)> {
    if !may_be_leveldb(directory) {
        return Err(Failure::no_foreign("LevelDB", directory));
    }
    let lock = lock(directory, "LevelDB")?;
    Ok((LevelDb::open(Arc::new(DiskEnv::new()), directory, salvage)?, lock))
}

/// Whether `directory` has a file with a name that LevelDB writes, and is no database of siftdb.
fn may_be_leveldb(directory: &Path) -> bool {
    let env = DiskEnv::new();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_its = |name: &str| match name.rsplit_once(['-', '.']) {
        Some(("MANIFEST", number)) => is_number(number),
        Some((number, "ldb" | "sst" | "log")) => is_number(number),
        _ => name == "CURRENT",
    };
    let may_be = match env.list(directory) {
        Ok(files) => files.iter().any(|file| is_its(&file.name)),
        Err(error) => error.kind() != ErrorKind::NotADirectory,
    };
    // That of siftdb names a version.
    let begins = env.open_random(&directory.join("CURRENT")).and_then(|file| {
        let mut begins = [0; 7];
        file.read_exact_at(0, &mut begins).map(|()| begins)
    });
    may_be && !begins.is_ok_and(|begins| begins == *b"siftdb ")
}
