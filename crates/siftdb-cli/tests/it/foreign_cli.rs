//! Databases of LevelDB and RocksDB: every command names them and changes nothing, not even the time
//! of a file.

use crate::cli::siftdb;
use crate::support::foreign::{
    contents, with_databases_of_leveldb, with_fakes, with_tables_of_rocksdb,
};
use siftdb::Db;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Asserts that every command that takes a directory refuses this one and leaves it as it is.
fn commands_leave_alone(directory: &Path) {
    let before = contents(directory);
    let path = directory.to_str().unwrap();
    let input = TempDir::new().unwrap();
    let lines = input.path().join("lines");
    fs::write(&lines, "a\tb\n").unwrap();
    let database = input.path().join("database");
    let database = database.to_str().unwrap();
    Db::open(database).unwrap().close().unwrap();
    let commands: [&[&str]; 18] = [
        &["load", path, lines.to_str().unwrap()],
        &["get", path, "a"],
        &["put", path, "a", "b"],
        &["delete", path, "a"],
        &["scan", path],
        &["stats", path],
        &["explain", path, "a"],
        &["verify", path],
        &["repair", path],
        &["filter", "stats", path],
        &["filter", "advise", path, "--budget", "1000000"],
        &["filter", "rebuild", path],
        &["sst", "verify", path],
        &["repair", path, "--json"],
        &["checkpoint", database, path],
        &["restore", database, path],
        &["import", "tsv", lines.to_str().unwrap(), path],
        &["keyspace", "create", path, "new"],
    ];
    let files = before.iter().filter(|(_, bytes, _)| bytes.is_some());
    let files: Vec<&str> = files.map(|(path, ..)| path.to_str().unwrap()).collect();
    let mut commands: Vec<Vec<&str>> = commands.map(<[_]>::to_vec).into();
    for file in files {
        commands.push(vec!["sst", "dump", file]);
        commands.push(vec!["sst", "layout", file]);
        commands.push(vec!["sst", "verify", file]);
    }
    for command in commands {
        let output = siftdb(&command);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        // It reads a database of LevelDB, and single tables, if they are sound.
        let is_table = [".ldb", ".sst"].iter().any(|end| command.last().unwrap().ends_with(end));
        if command[0] == "sst" && is_table {
            let refused = text.contains("the file is too short for a table");
            assert_eq!(output.status.code(), Some(if refused { 3 } else { 0 }), "{text}");
        } else if command[..2] != ["filter", "stats"] {
            assert!(text.contains("a LevelDB or RocksDB database"), "{command:?}: {text}");
            assert_eq!(output.status.code(), Some(3), "{command:?}: {text}");
        }
        assert!(!text.contains("panicked"), "{command:?}: {text}");
        // A repair refuses the directory, and no siftdb is new enough for it.
        let is_advised = ["siftdb repair", "newer siftdb"].iter().any(|way| text.contains(way));
        assert!(!is_advised || is_table, "{command:?}: {text}");
        assert!(contents(directory) == before, "{command:?} changed something");
    }
}

#[test]
fn commands_name_foreign_databases() {
    with_fakes(commands_leave_alone);
}

#[test]
fn commands_leave_tables_of_rocksdb_alone() {
    with_tables_of_rocksdb(commands_leave_alone);
}

/// With `SIFTDB_VECTORS`, on databases that LevelDB itself wrote.
#[test]
fn commands_leave_leveldb_databases_alone() {
    with_databases_of_leveldb(commands_leave_alone);
}
