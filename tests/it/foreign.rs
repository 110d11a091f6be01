//! Databases of LevelDB and RocksDB: every opening and repair names them and changes nothing, not
//! even the time of a file. A refused opening leaves no file.

use crate::support::foreign::{
    contents, fakes, with_databases_of_leveldb, with_fakes, with_tables_of_rocksdb,
};
use crate::support::stores::{HOME, as_env, begun_logs, files, files_ending, open, small_options};
use siftdb::env::{DiskEnv, Env, MemEnv};
use siftdb::{Db, Error, Options, Recovery, WriteOptions, inspect};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Asserts that `directory` is refused by everything that takes one, and stays as it is.
fn must_be_left_alone(directory: &Path) {
    let before = contents(directory);
    let opened = |options: Options| options.open(directory).map(drop);
    let disk: Arc<dyn Env> = Arc::new(DiskEnv::new());
    let source = TempDir::new().unwrap();
    let source = Db::open(source.path().join("database")).unwrap();
    let refused = [
        ("open", opened(Options::new())),
        ("open without creating", opened(Options::new().create_if_missing(false))),
        ("open with salvage", opened(Options::new().recovery(Recovery::Salvage))),
        ("open to read", Options::new().open_read_only(directory).map(drop)),
        ("repair", Options::new().repair(directory).map(drop)),
        ("destroy", Db::destroy(directory)),
        ("checkpoint", source.checkpoint(directory).map(drop)),
        ("live tables", inspect::live_tables(&disk, directory).map(drop)),
    ];
    for (call, outcome) in refused {
        let error = outcome.expect_err(call);
        assert!(matches!(error, Error::UnsupportedFormat { .. }), "{call}: {error}");
        assert!(error.to_string().contains("a LevelDB or RocksDB database"), "{call}: {error}");
        assert!(error.to_string().ends_with("does not open or change it"), "{call}: {error}");
        assert!(contents(directory) == before, "{call} changed something");
    }
}

#[test]
fn foreign_databases_are_named_and_untouched() {
    with_fakes(must_be_left_alone);
}

#[test]
fn tables_of_rocksdb_alone_are_untouched() {
    with_tables_of_rocksdb(must_be_left_alone);
}

/// With `SIFTDB_VECTORS`, on databases that LevelDB itself wrote.
#[test]
fn leveldb_databases_are_left_untouched() {
    with_databases_of_leveldb(must_be_left_alone);
}

fn home(name: &str) -> PathBuf {
    Path::new(HOME).join(name)
}

/// With two entries that stay, two that expire, and range deletes, in a table and in the log.
fn database() -> MemEnv {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let hour = WriteOptions::new().expire_after(Duration::from_secs(3600));
    for place in ["in a table", "in the log"] {
        db.put(place, "1").unwrap();
        db.put(format!("deleted {place}"), "1").unwrap();
        db.delete_prefix("deleted").unwrap();
        db.put_with(format!("expires {place}"), "1", &hour).unwrap();
        if place == "in a table" {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
    env
}

/// Asserts that `db` has what `database` wrote.
fn must_have_all(db: &Db) {
    let keys: Vec<_> = db.iter().map(|entry| entry.unwrap().0.into_vec()).collect();
    let expected =
        ["expires in a table", "expires in the log", "in a table", "in the log"].map(Vec::from);
    assert_eq!(keys, expected);
}

#[test]
fn foreign_files_do_not_block_opening() {
    let env = database();
    for (name, bytes) in fakes().concat() {
        if name != "CURRENT" {
            env.write_file(&home(name), bytes);
        }
    }
    let db = open(&env, &small_options()).unwrap();
    must_have_all(&db);
    db.close().unwrap();
    drop(db);
    // Files of siftdb count more than the CURRENT of another program.
    for (name, bytes) in fakes().concat() {
        env.write_file(&home(name), bytes);
    }
    let error = open(&env, &small_options()).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    let report = small_options().env(as_env(&env)).repair(HOME).unwrap();
    assert!(report.changed, "{report}");
    must_have_all(&open(&env, &small_options()).unwrap());
}

type Damage<'a> = &'a dyn Fn(&MemEnv);

#[test]
fn a_refused_opening_leaves_no_lock() {
    let sound = database();
    let image = files(&sound);
    let manifest = image.keys().find(|path| path.to_str().unwrap().contains("MANIFEST")).unwrap();
    let stray = files_ending(&sound, ".sst").remove(0);
    let damages: [(&str, Damage<'_>); 8] = [
        ("a table and no CURRENT", &|env| {
            files(env).keys().filter(|path| **path != stray).for_each(|path| env.remove_file(path));
        }),
        ("no CURRENT", &|env| env.remove_file(&home("CURRENT"))),
        ("a damaged CURRENT", &|env| env.write_file(&home("CURRENT"), b"no line of siftdb")),
        ("no manifest", &|env| env.remove_file(manifest)),
        ("a damaged manifest", &|env| env.write_file(manifest, &image[manifest][..30])),
        // Known only after the manifest was read, with LOCK in place.
        ("a missing table", &|env| env.remove_file(&stray)),
        ("a damaged table", &|env| env.write_file(&stray, &image[&stray][..100])),
        ("a missing log", &|env| env.remove_file(&begun_logs(env)[0])),
    ];
    let refused = |env: &MemEnv, options: Options, what: &str| {
        let before = env.list_files();
        let error = open(env, &options).expect_err(what);
        assert!(!matches!(error, Error::Io { .. }), "{what}: {error}");
        assert_eq!(env.list_files(), before, "{what}");
    };
    // Without LOCK, as in a copy.
    let copy = || {
        let env = MemEnv::new();
        image.iter().for_each(|(path, bytes)| env.write_file(path, bytes));
        env
    };
    for (what, damage) in damages {
        let env = copy();
        damage(&env);
        refused(&env, small_options(), what);
    }
    refused(&copy(), small_options().error_if_exists(true), "a database where none may be");
    must_have_all(&open(&copy(), &small_options()).unwrap());
}

/// Whatever siftdb does in its own directory, tables of other programs there keep their bytes.
#[test]
fn strays_keep_their_bytes() {
    let stray = |number: u64| home(&format!("{number:06}.sst"));
    let rocks = include_bytes!("golden/rocksdb/v6_none.sst");
    let level = fakes()[0][3].1;
    let others: [(PathBuf, &[u8]); 4] = [
        (stray(1), rocks),
        (stray(60), level),
        (home("000061.tmp"), b"a file of the user"),
        (home("STATS"), b"figures of the user"),
    ];
    let tables = &others[..2];
    let env = database();
    let put = |others: &[(PathBuf, &[u8])]| {
        others.iter().for_each(|(path, bytes)| env.write_file(path, bytes));
    };
    let must_stay = |others: &[(PathBuf, &[u8])], what: &str| {
        let now = files(&env);
        for (path, bytes) in others {
            assert_eq!(now.get(path).map(Vec::as_slice), Some(*bytes), "{what}: {path:?}");
        }
    };
    put(tables);
    let work = |what: &str| {
        let db = open(&env, &small_options()).unwrap();
        for round in 0..4 {
            db.put("in a table", format!("{round}")).unwrap();
            db.flush().unwrap();
        }
        db.ingest([("z", "1")]).unwrap();
        db.compact_range(..).unwrap();
        must_have_more(&db);
        db.close().unwrap();
        must_stay(tables, what);
    };
    work("an opening");
    work("another one");
    for path in files_ending(&env, "CURRENT") {
        env.remove_file(&path);
    }
    let report = small_options().env(as_env(&env)).repair(HOME).unwrap();
    assert!(report.changed, "{report}");
    must_stay(tables, "a repair");
    work("the repaired database");
    put(&others);
    small_options().env(as_env(&env)).destroy(HOME).unwrap();
    must_stay(&others, "a removal");
    let mut left: Vec<_> = files(&env).into_keys().collect();
    left.retain(|path| path.parent() == Some(Path::new(HOME)));
    assert_eq!(left.len(), others.len(), "{left:?}");
}

/// Asserts that `db` has the keys of `database`, and more.
fn must_have_more(db: &Db) {
    for key in ["expires in a table", "expires in the log", "in a table", "in the log", "z"] {
        assert!(db.get(key).unwrap().is_some(), "{key}");
    }
}

/// Tables of other programs that appear in a checkpoint stay when it is brought up to date.
#[test]
fn a_refused_checkpoint_leaves_no_lock() {
    let env = database();
    let db = open(&env, &small_options()).unwrap();
    let target = Path::new("/target");
    let refused = |what: &str| {
        let before = files(&env);
        let error = db.checkpoint(target).expect_err(what);
        assert!(matches!(error, Error::InvalidArgument { .. }), "{what}: {error}");
        let mut after = files(&env);
        after.retain(|path, _| path.starts_with(target));
        assert!(after.iter().all(|(path, bytes)| before.get(path) == Some(bytes)), "{what}");
    };
    env.create_dir(target).unwrap();
    env.write_file(&target.join("000009.wal"), b"siftdbWL");
    refused("a log and no CURRENT");
    env.remove_file(&target.join("000009.wal"));
    db.checkpoint(target).unwrap();
    let rocks = include_bytes!("golden/rocksdb/v6_none.sst");
    let (far, next) = (target.join("000999.sst"), target.join("000001.sst"));
    env.write_file(&far, rocks);
    env.write_file(&next, rocks);
    db.put("more", "1").unwrap();
    db.checkpoint(target).unwrap();
    for path in [far, next] {
        assert_eq!(files(&env)[&path], rocks);
    }
}
