//! Directories of LevelDB and RocksDB that siftdb must leave alone.

use crate::support::repository::golden;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::TempDir;

/// The contents of a directory: names, contents, and when each file was last written.
pub type Contents = Vec<(PathBuf, Option<Vec<u8>>, SystemTime)>;

pub fn contents(directory: &Path) -> Contents {
    let mut found = Vec::new();
    let times = |path: &Path| fs::symlink_metadata(path).unwrap().modified().unwrap();
    found.push((directory.to_path_buf(), None, times(directory)));
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        found.push((path.clone(), fs::read(&path).ok(), times(&path)));
    }
    found.sort();
    found
}

/// How both programs begin their manifests: with a checksum, a length, and the comparator.
const MANIFEST: &[u8] =
    b"\x56\xf9\xb8\xf8\x1c\0\x01\x01\x1aleveldb.BytewiseComparator\x02\x03\x09\0";

/// Directories as LevelDB and RocksDB leave them, reduced to the names and first bytes that matter.
pub fn fakes() -> [Vec<(&'static str, &'static [u8])>; 6] {
    let level = vec![
        ("CURRENT", &b"MANIFEST-000002\n"[..]),
        ("MANIFEST-000002", MANIFEST),
        ("000004.log", b""),
        ("000005.ldb", b"\0\x01\x02keyvalue and a footer \x57\xfb\x80\x8b\x24\x75\x47\xdb"),
        ("LOG", b"recovering log #3"),
    ];
    let rocks = vec![
        ("CURRENT", &b"MANIFEST-000005\n"[..]),
        ("IDENTITY", b"5a1f0e9c-4a52-4b5e-9d10-3d1f1a2b3c4d"),
        ("MANIFEST-000005", MANIFEST),
        ("OPTIONS-000007", b"[Version]\n  rocksdb_version=7.8.3\n"),
        ("000008.sst", b"\0\x01\x02keyvalue and a footer \xf7\xcf\xf4\x85\xb7\x41\xe2\x88"),
    ];
    // Directories without CURRENT, as repairs meet them.
    let without_current = level.iter().filter(|(name, _)| *name != "CURRENT").copied().collect();
    let tables_alone = vec![level[3]];
    // A directory of RocksDB's option `db_paths`, and one of a LevelDB before 1.14.
    let path_of_rocks = vec![rocks[4]];
    let old_level = vec![("000070.sst", level[3].1), ("000072.sst", level[3].1)];
    [level, rocks, without_current, tables_alone, path_of_rocks, old_level]
}

/// Calls `check` with each of [`fakes`].
pub fn with_fakes(check: impl Fn(&Path)) {
    for files in fakes() {
        let place = TempDir::new().unwrap();
        for (name, bytes) in files {
            fs::write(place.path().join(name), bytes).unwrap();
        }
        check(place.path());
    }
}

/// Calls `check` with a directory of RocksDB's tables alone.
pub fn with_tables_of_rocksdb(check: impl Fn(&Path)) {
    let tables = fs::read_dir(golden("rocksdb")).unwrap().map(|entry| entry.unwrap().path());
    let tables: Vec<_> = tables.filter(|path| path.extension().unwrap() == "sst").collect();
    assert!(tables.len() > 10);
    let place = TempDir::new().unwrap();
    for (number, table) in tables.iter().enumerate() {
        fs::write(place.path().join(format!("{number:06}.sst")), fs::read(table).unwrap()).unwrap();
    }
    check(place.path());
}

/// Calls `check` with each database in `SIFTDB_VECTORS` that LevelDB itself wrote.
pub fn with_databases_of_leveldb(check: impl Fn(&Path)) {
    let Some(vectors) = std::env::var_os("SIFTDB_VECTORS") else { return };
    let databases = fs::read_dir(Path::new(&vectors).join("leveldb_db")).unwrap();
    let mut seen = 0;
    for database in databases {
        let place = TempDir::new().unwrap();
        for file in fs::read_dir(database.unwrap().path().join("db")).unwrap() {
            let file = file.unwrap();
            // Copies only the contents, because the originals must not change.
            fs::write(place.path().join(file.file_name()), fs::read(file.path()).unwrap()).unwrap();
        }
        check(place.path());
        seen += 1;
    }
    assert_eq!(seen, 6);
}
