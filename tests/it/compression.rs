//! Compression by level: which tables get which, what needs a feature, and who says so.

use crate::support::stores::{HOME, as_env, compressions, files, open, scan, small_options, until};
#[cfg(not(feature = "zstd"))]
use siftdb::Error;
use siftdb::env::{Env, MemEnv};
use siftdb::{Compression, Db, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Options that compact only when asked.
fn options() -> Options {
    small_options().auto_compaction(false)
}

fn fill(db: &Db, from: u32) {
    for n in from..from + 400 {
        db.put(format!("key{n:06}"), format!("value {n:>9} ").repeat(3)).unwrap();
    }
    db.flush().unwrap();
}

/// The compression of each level that has tables.
fn by_level(db: &Db) -> BTreeMap<usize, BTreeSet<&'static str>> {
    let mut found: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for table in db.tables() {
        found.entry(table.level).or_default().insert(table.compression);
    }
    found
}

fn one(name: &'static str) -> BTreeSet<&'static str> {
    BTreeSet::from([name])
}

/// The versions that headers and footers of all tables have.
fn versions(env: &MemEnv) -> BTreeSet<u8> {
    let tables = files(env)
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|kind| kind == "sst"));
    tables.flat_map(|(_, bytes)| [bytes[8], bytes[bytes.len() - 12]]).collect()
}

#[test]
fn levels_have_their_own_compression() {
    for upper in compressions() {
        for last in compressions() {
            let env = MemEnv::new();
            let options = options().compression_at_level(0, upper).compression_at_last_level(last);
            let db = open(&env, &options).unwrap();
            let [upper, last] = [upper, last].map(|c| c.to_string().replace(":1", ""));
            fill(&db, 0);
            let names = |db: &Db| {
                let all = by_level(db).into_iter();
                all.map(|(level, names)| (level, names.into_iter().collect::<Vec<_>>().join(" ")))
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(&db), [(0, upper.clone())]);
            // A table that could move is rewritten if its codec changes.
            let moves = db.stats().trivial_moves;
            db.compact_range(..).unwrap();
            assert_eq!(names(&db), [(1, last.clone())]);
            assert_eq!(db.stats().trivial_moves - moves, u64::from(upper == last));
            fill(&db, 200);
            assert_eq!(names(&db), [(0, upper), (1, last)]);
            let (all, report) = (scan(&db).unwrap(), db.verify(|_| {}).unwrap());
            assert!(report.is_sound(), "{report:?}");
            for (key, value) in &all {
                assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
            }
            // What was saved is in force after opening without a word, and repair reads all of it.
            db.close().unwrap();
            let again = open(&env, &self::options()).unwrap();
            assert_eq!(again.settings().to_string(), db.settings().to_string());
            fill(&again, 1000);
            again.close().unwrap();
            for path in files(&env).into_keys().filter(|path| path.ends_with("CURRENT")) {
                env.remove(&path).unwrap();
            }
            Options::new().env(as_env(&env)).repair(HOME).unwrap();
            let repaired = open(&env, &self::options()).unwrap();
            assert_eq!(repaired.iter().count(), 1000);
            assert!(all.iter().all(|(k, v)| repaired.get(k).unwrap().as_deref() == Some(&v[..])));
        }
    }
}

#[test]
fn tables_without_features_have_version_1() {
    for compression in compressions() {
        let env = MemEnv::new();
        let options = options().compression(compression).index_partition_bytes(0);
        let db = open(&env, &options).unwrap();
        fill(&db, 0);
        let needs = !matches!(compression, Compression::None | Compression::Snappy);
        assert_eq!(versions(&env), BTreeSet::from([1 + u8::from(needs)]), "{compression}");
    }
}

#[test]
fn a_level_that_is_no_longer_last_keeps_its_tables() {
    let [one_of, other] = [Compression::None, Compression::Snappy];
    let env = MemEnv::new();
    let options = small_options().compression(one_of).compression_at_last_level(other);
    let db = open(&env, &options).unwrap();
    for round in 0..8 {
        for n in 0..1500 {
            let key = (n * 7919 + round * 13) % 12_000;
            db.put(format!("key{key:06}"), format!("value {n:>9} ").repeat(6)).unwrap();
        }
        db.flush().unwrap();
    }
    until("settled", || db.tables().iter().filter(|table| table.level == 0).count() < 2);
    db.close().unwrap();
    let db = open(&env, &self::options()).unwrap();
    let levels = by_level(&db);
    let last = *levels.keys().max().unwrap();
    assert!(last >= 2, "{levels:?}");
    assert_eq!(levels[&last], one("snappy"));
    assert!(levels.iter().all(|(level, names)| *level == last || names.contains("none")));
    db.compact_range(..).unwrap();
    assert!(by_level(&db).values().all(|names| *names == one("snappy")));
}

/// A database with tables of both codecs that need a feature. `.ci/run` opens it, too.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/compressed")
}

fn golden_env() -> MemEnv {
    let env = MemEnv::new();
    for file in std::fs::read_dir(golden()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap();
        env.write_file(&Path::new(HOME).join(name), &std::fs::read(&path).unwrap());
    }
    env
}

#[cfg(all(feature = "lz4", feature = "zstd"))]
#[test]
#[ignore = "writes tests/it/golden/compressed again"]
fn write_the_compressed_database() {
    let env = MemEnv::new();
    let options = options().compression(Compression::Zstd(3));
    let options = options.compression_at_level(0, Compression::Lz4);
    let db = open(&env, &options).unwrap();
    fill(&db, 0);
    db.compact_range(..).unwrap();
    fill(&db, 300);
    db.close().unwrap();
    std::fs::create_dir_all(golden()).unwrap();
    for (path, bytes) in files(&env) {
        std::fs::write(golden().join(path.file_name().unwrap()), bytes).unwrap();
    }
}

#[cfg(all(feature = "lz4", feature = "zstd"))]
#[test]
fn a_compressed_database_of_before_is_read() {
    let env = golden_env();
    let db = open(&env, &options()).unwrap();
    assert_eq!(by_level(&db), BTreeMap::from([(0, one("lz4")), (1, one("zstd"))]));
    let settings = db.settings().to_string();
    assert!(settings.ends_with("compression=zstd:3, compression_at_level.0=lz4"), "{settings}");
    let found = scan(&db).unwrap();
    let expected = (0..700).map(|n| {
        (format!("key{n:06}").into_bytes(), format!("value {n:>9} ").repeat(3).into_bytes())
    });
    assert_eq!(found, expected.collect());
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

#[cfg(not(feature = "zstd"))]
#[test]
fn a_database_that_needs_a_feature_says_which() {
    let env = golden_env();
    let before = files(&env);
    let refused = |opened: Result<Db, Error>| {
        let error = opened.unwrap_err();
        let names = |feature| error.to_string().contains(&format!("the feature \"{feature}\""));
        assert!(names("zstd") || (cfg!(not(feature = "lz4")) && names("lz4")), "{error}");
        error
    };
    let error = refused(open(&env, &options()));
    assert!(matches!(error, Error::InvalidOptions { .. }), "{error}");
    // The tables need it, too.
    let named = options().compression(Compression::None);
    let error = refused(open(&env, &named.compression_at_level(0, Compression::None)));
    assert!(matches!(error, Error::UnsupportedFormat { .. }), "{error}");
    assert!(Options::new().env(as_env(&env)).repair(HOME).is_err());
    let after: BTreeMap<_, _> = files(&env);
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)), "nothing is lost");
}

#[cfg(not(feature = "lz4"))]
#[test]
fn compression_without_its_feature_is_refused() {
    let error = open(&MemEnv::new(), &options().compression(Compression::Lz4)).unwrap_err();
    assert!(error.to_string().contains("the feature \"lz4\""), "{error}");
    let db = open(&MemEnv::new(), &options()).unwrap();
    let settings = siftdb::KeyspaceOptions::new().compression_at_level(3, Compression::Lz4);
    assert!(db.keyspace_with("other", &settings).is_err());
}
