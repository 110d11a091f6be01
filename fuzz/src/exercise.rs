//! A directory of any files: opened, read in every way, written to, compacted, closed, opened again.
//!
//! Whatever the files hold, every answer is a value or an error that blames files; an opening that
//! is refused changes none of them. Answers are not compared with anything: under forged checksums
//! there is nothing to compare with.

use crate::bundle::Files;
use siftdb::env::{Env, MemEnv};
use siftdb::{Db, Error, Filter, FilterPinning, Keyspace, Options, Prefix, Result, WriteBatch};
use std::path::Path;
use std::sync::Arc;

/// Where the directory is on its disk in memory.
pub const HOME: &str = "/db";

/// The most keys found by a scan that are looked up.
const LOOKUPS_MAX: usize = 40;

/// Keys of the corpus and others.
const KEYS: [&[u8]; 8] = [b"", b"k000", b"k007", b"k013/tail", b"k030", b"k059", b"zz", &[0xff; 9]];

/// A disk with these files.
pub fn disk_of(files: &Files) -> MemEnv {
    let env = MemEnv::new();
    for (name, contents) in files {
        env.write_file(&Path::new(HOME).join(name), contents);
    }
    env
}

/// Options that make many levels of little data. `choice` decides how filters and blocks are kept.
fn options(env: &MemEnv, choice: usize) -> Options {
    let options = Options::new()
        .write_buffer_bytes(64 << 10)
        .block_bytes(256)
        .table_bytes(16 << 10)
        .level_base_bytes(64 << 10)
        .auto_compaction(false)
        .env(Arc::new(env.clone()));
    match choice % 3 {
        0 => options.block_cache_bytes(128 << 10),
        1 => options.block_cache_bytes(0),
        _ => options
            .block_cache_bytes(128 << 10)
            .filter(Filter::bloom(10.0).prefix(Prefix::fixed(3)).pinning(FilterPinning::All)),
    }
}

/// The answer, or an error that files can be blamed for.
fn honest<T>(result: Result<T>) -> Option<T> {
    // `Defect`: a compaction met keys out of order that agree with their checksums.
    let blames_files = |error: &Error| {
        error.is_corruption()
            || matches!(
                error,
                Error::Io { .. } | Error::InvalidArgument { .. } | Error::Defect { .. }
            )
    };
    match result {
        Ok(value) => Some(value),
        Err(Error::ReadOnly { cause }) if blames_files(&cause) => None,
        Err(error) if blames_files(&error) => None,
        Err(error) => panic!("no file is blamed by {error:?}"),
    }
}

/// Does everything with these files.
pub fn exercise(files: &Files, choice: usize) {
    read_only(&disk_of(files), choice);
    repair(&disk_of(files), choice);
    let env = disk_of(files);
    let options = options(&env, choice);
    let before = contents(&env);
    let Some(db) = honest(options.clone().open(HOME)) else {
        assert!(contents(&env) == before, "a refused opening changed files");
        look(&env);
        return;
    };
    read(&db);
    write(&db);
    honest(db.close());
    drop(db);
    if let Some(db) = honest(options.open(HOME)) {
        read(&db);
        honest(db.verify(|_| {}));
        honest(db.compact_range(..));
        honest(db.close());
    }
    look(&env);
}

/// Reads and verifies without changing a byte.
fn read_only(env: &MemEnv, choice: usize) {
    let before = contents(env);
    if let Some(db) = honest(options(env, choice).open_read_only(HOME)) {
        read(&db);
        honest(db.verify(|_| {}));
        honest(db.close());
    }
    assert!(contents(env) == before, "a look changed files");
}

/// A repaired database opens and is sound, and a second repair finds nothing to do.
fn repair(env: &MemEnv, choice: usize) {
    let options = options(env, choice);
    let before = contents(env);
    let report = honest(options.clone().repair(HOME));
    let after = contents(env);
    let Some(report) = report else {
        assert!(before.iter().all(|file| after.contains(file)), "a refused repair changed a file");
        return;
    };
    assert!(report.changed || after == before, "a repair changed files and did not say so");
    let said = report.to_string();
    let db = options.clone().open(HOME);
    let db = db.unwrap_or_else(|error| panic!("repaired, and refused: {error}: {said}"));
    let found = db.verify(|_| {}).expect("it is open");
    assert!(found.is_sound(), "repaired, and damaged: {:?}: {said}", found.damage);
    read(&db);
    honest(db.close());
    drop(db);
    let again = honest(options.repair(HOME)).expect("it was repaired");
    assert!(!again.changed, "repaired twice: {again}");
}

/// All files but the lock, which an opening may create.
pub fn contents(env: &MemEnv) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    let paths = env.list_files().into_iter().filter(|path| !path.ends_with("LOCK"));
    paths.map(|path| (path.clone(), env.read_file(&path))).collect()
}

fn read(db: &Db) {
    for name in db.keyspaces() {
        if let Some(keyspace) = honest(db.keyspace(&name)) {
            read_keyspace(&keyspace);
        }
    }
    let _ = db.stats().to_string();
}

fn read_keyspace(db: &Keyspace) {
    let mut keys: Vec<Vec<u8>> = KEYS.iter().map(|key| key.to_vec()).collect();
    for entry in db.iter() {
        let Some((key, _)) = honest(entry) else { break };
        if keys.len() < LOOKUPS_MAX {
            keys.push(key.into_vec());
        }
    }
    db.iter().rev().all(|entry| honest(entry).is_some());
    for key in &keys {
        honest(db.get(key));
        honest(db.may_contain(key));
    }
    honest(db.multi_get(&keys));
    honest(db.explain(&keys[keys.len() - 1])).map(|explained| explained.to_string());
    db.prefix("k0").all(|entry| honest(entry).is_some());
    db.range(&b"k003"[..]..&b"k031"[..]).rev().all(|entry| honest(entry).is_some());
    honest(db.first());
    honest(db.last());
    let _ = (db.stats().to_string(), format!("{:?}", db.filter_report()), db.tables());
    honest(db.estimate_range(&b"k003"[..]..&b"k031"[..]));
}

fn write(db: &Db) {
    let snapshot = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.delete_range("k010".."k020").put("k007", "new").delete("k030");
    batch.put("", "empty").put("zzz", [7; 300]);
    let written = honest(db.write(batch)).is_some();
    if written {
        assert_eq!(honest(db.get("k007")).flatten().as_deref(), Some(&b"new"[..]));
        assert_eq!(honest(db.get("k013/tail")).flatten().as_deref(), None);
        assert!(!matches!(db.range("k010".."k020").next(), Some(Ok(_))), "deleted");
    }
    honest(db.flush());
    honest(db.compact_range(..));
    if written && let Some(found) = honest(db.get("zzz")) {
        assert_eq!(found.as_deref(), Some(&[7; 300][..]), "a write is gone");
    }
    snapshot.iter().all(|entry| honest(entry).is_some());
}

/// Runs every function of `inspect` on each file.
fn look(env: &MemEnv) {
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let dump = siftdb::inspect::DumpOptions::default();
    for path in env.list_files() {
        let out = &mut std::io::sink();
        honest(siftdb::inspect::dump(&shared, &path, &dump, out));
        honest(siftdb::inspect::table_facts(&shared, &path));
        honest(siftdb::inspect::layout(&shared, &path, out));
        honest(siftdb::inspect::verify_table(&shared, &path));
    }
    let home = Path::new(HOME);
    for table in honest(siftdb::inspect::live_tables(&shared, home)).flatten().unwrap_or_default() {
        honest(siftdb::inspect::verify_live_table(&shared, &table));
    }
}
