//! Reading commands while a process, this one, has the database open to write.

use crate::cli::{Place, command, fails, ok, siftdb};
use crate::support::openmetrics::parse;
use siftdb::{Db, Options};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

/// A database with tables, a keyspace and a log, open to write.
fn open(place: &Place) -> (Db, String) {
    let directory = place.database();
    let db = Options::new().open(&directory).unwrap();
    db.keyspace("orders").unwrap().put("order", "lamp").unwrap();
    db.put("key0001", "changed").unwrap();
    db.put("only in the log", "yes").unwrap();
    (db, directory)
}

const NOTE: &str = "a program has the database open to write; this is one moment of it\n";

/// Standard output of a command that must succeed while the writer is open, and must say so in one
/// line.
fn beside(arguments: &[&str]) -> String {
    let output = siftdb(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &stderr[..]), (Some(0), NOTE), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn reading_commands_show_a_locked_database() {
    let place = Place::new();
    let (db, path) = open(&place);
    assert_eq!(beside(&["get", &path, "key0001"]), "changed");
    assert_eq!(beside(&["get", &path, "only in the log"]), "yes");
    assert_eq!(beside(&["get", &path, "--keyspace", "orders", "order"]), "lamp");
    assert!(fails(1, &["get", &path, "absent"]).contains("not found"));
    assert_eq!(beside(&["count", &path]), "3001\n");
    assert!(beside(&["stats", &path]).contains("keyspace \"orders\""));
    let metrics = parse(&beside(&["stats", &path, "--openmetrics"])).unwrap();
    let in_logs = metrics.iter().find(|family| family.name == "siftdb_memtable_entries").unwrap();
    assert_eq!(in_logs.samples[0].value, 3.0);
    assert!(beside(&["filter", "stats", &path]).contains("fast-local-bloom"));
    assert!(beside(&["explain", &path, "key0001"]).contains("key0001"));
    assert!(beside(&["verify", &path]).contains("all in order"));
    assert!(beside(&["keyspace", "list", &path]).contains("orders"));
    assert!(ok(&["sst", "verify", &path]).contains("1 table"));
    // No note where errors are data.
    assert!(siftdb(&["get", &path, "key0001", "--json"]).stderr.is_empty());
    // The next command shows the next moment.
    db.put("key0001", "again").unwrap();
    db.flush().unwrap();
    assert_eq!(beside(&["get", &path, "key0001"]), "again");
    for refused in [&["put", &path, "a", "b"][..], &["flush", &path], &["compact", &path]] {
        assert!(fails(4, refused).contains("another process has the database open"));
    }
    db.close().unwrap();
    assert!(siftdb(&["get", &path, "key0001"]).stderr.is_empty());
}

/// Reads blocks of `--watch`, which end with an empty line, until one has `text`.
fn wait_for(lines: &mut impl Iterator<Item = std::io::Result<String>>, text: &str) {
    assert!(lines.any(|line| line.unwrap().contains(text)), "the output ended without {text:?}");
}

fn watch(path: &str, more: &[&str]) -> Child {
    let arguments = [&["stats", path, "--watch", "0.01"], more].concat();
    command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn watched_stats_follow_the_writer() {
    let place = Place::new();
    let (db, path) = open(&place);
    let mut child = watch(&path, &["--json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let entries = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["format"], 1);
        object["memtable_entries"].as_u64().unwrap()
    };
    let first = entries(&lines.next().unwrap().unwrap());
    for number in 0..50 {
        db.put(format!("new {number}"), "value").unwrap();
    }
    let mut later = lines.by_ref().map(|line| entries(&line.unwrap()));
    assert!(later.any(|entries| entries == first + 50));
    db.flush().unwrap();
    assert!(later.any(|entries| entries == 0));
    // It ends when nobody reads it any more, quietly.
    drop(lines);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn a_watch_ends_by_its_signal() {
    let place = Place::new();
    let (db, path) = open(&place);
    db.close().unwrap();
    let mut child = watch(&path, &[]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    wait_for(&mut lines, "counted");
    wait_for(&mut lines, "counted");
    // The database may be opened while it is watched, and is not changed by it.
    Options::new().open(&path).unwrap().put("a", "b").unwrap();
    wait_for(&mut lines, "counted");
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(fails(4, &["stats", &place.path("none"), "--watch"]).contains("no database"));
    assert!(fails(2, &["stats", &path, "--watch", "-1"]).contains("-1"));
}
