//! The output of the command: bytes that round-trip, JSON with documented fields, errors as data.

use crate::cli::{Place, command, fails, files, json, ok, siftdb, write};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Random bytes, many of them such as have an escape.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b'\\'),
        Just(b'\t'),
        Just(b'\n'),
        Just(b'\r'),
        Just(0),
        Just(0xff),
        Just(b'x'),
        Just(b'n'),
        Just(b'0'),
        any::<u8>(),
    ];
    let text = "\\PC{0,6}".prop_map(String::into_bytes);
    prop_oneof![prop::collection::vec(byte, 0..12), text]
}

/// How many databases go through `scan` and `load`.
fn round_trips() -> u32 {
    std::env::var("SIFTDB_ROUND_TRIPS").map_or(12, |count| count.parse().unwrap())
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn entries_of(path: &str) -> Entries {
    let db = siftdb::Options::new().open_read_only(path).unwrap();
    db.iter().map(|entry| entry.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn store(path: &str, entries: &Entries) {
    let db = siftdb::Db::open(path).unwrap();
    entries.iter().for_each(|(key, value)| db.put(key, value).unwrap());
    db.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: round_trips(),
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn scan_piped_into_load_keeps_bytes(
        entries in prop::collection::btree_map(bytes(), bytes(), 0..30)
    ) {
        let place = Place::new();
        let [db, copy, lines] = ["db", "copy", "lines"].map(|name| place.path(name));
        store(&db, &entries);
        let scanned = siftdb(&["scan", &db]).stdout;
        write(&lines, &scanned);
        ok(&["load", "--create", &copy, &lines]);
        prop_assert_eq!(&entries_of(&copy), &entries);
        prop_assert_eq!(siftdb(&["scan", &copy]).stdout, scanned);
        // JSON has the same bytes.
        let rows = ok(&["scan", &db, "--json"]);
        let read = |row: &Value, name: &str| match &row[name] {
            Value::String(text) => text.clone().into_bytes(),
            _ => from_base64(row[format!("{name}_base64")].as_str().unwrap()),
        };
        let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows: Entries = rows.map(|row| (read(&row, "key"), read(&row, "value"))).collect();
        prop_assert_eq!(&rows, &entries);
        if let Some((key, value)) = entries.iter().next() {
            let spelled = ok(&["scan", &db, "--limit", "1"]);
            let spelled = spelled.split('\t').next().unwrap();
            let got = siftdb(&["get", "--escaped", &db, "--", spelled]).stdout;
            prop_assert_eq!(&got, value, "{:?}", key);
        }
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | u32::from(digit(byte));
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[test]
fn raw_lines_have_no_escapes() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, b"C:\\new\tD:\\tmp\n");
    ok(&["load", "--create", "--raw", &db, &lines]);
    assert_eq!(ok(&["get", &db, "C:\\new"]), "D:\\tmp");
    assert_eq!(ok(&["scan", "--raw", &db]), "C:\\new\tD:\\tmp\n");
    assert_eq!(ok(&["scan", &db]), "C:\\\\new\tD:\\\\tmp\n");
    write(&lines, b"C:\\quux\t1\n");
    assert!(fails(2, &["load", &db, &lines]).contains("--raw reads lines without escapes"));
}

/// Runs the command on a terminal of its own; `None` where there is no `script` to make one.
fn on_a_terminal(arguments: &[&str]) -> Option<String> {
    let words = [&[env!("CARGO_BIN_EXE_siftdb")], arguments].concat();
    let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = Command::new("script")
        .args(["-qec", &line.join(" "), "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    script.status.success().then(|| String::from_utf8(script.stdout).unwrap())
}

#[test]
fn terminals_get_escaped_values() {
    let place = Place::new();
    let db = place.path("db");
    ok(&["put", "--create", "--escaped", &db, "key", r"a\x00\xff"]);
    assert_eq!(siftdb(&["get", &db, "key"]).stdout, b"a\0\xff");
    let Some(shown) = on_a_terminal(&["get", &db, "key"]) else { return };
    assert_eq!(shown.trim_end(), r"a\x00\xff");
    assert!(shown.ends_with('\n'));
}

/// One run of every subcommand that answers with JSON.
fn every_command(place: &Place) -> Vec<Vec<String>> {
    let db = place.database();
    let table = files(&db, ".sst").remove(0).to_str().unwrap().to_string();
    let (lines, new) = (place.path("lines"), place.path("new"));
    write(&lines, b"a\t1\n");
    let answer = place.path("answer");
    let words = ["bench", "readrandom", "--keys", "100", "--operations", "100", "--json"];
    write(&answer, ok(&words).as_bytes());
    // Some entries in the log, and findings for the doctor.
    ok(&["put", &db, "in the log", "1"]);
    let file = |part: &str| {
        let mut all = files(&db, "").into_iter().map(|path| path.to_str().unwrap().to_string());
        all.rfind(|path| path.contains(part)).unwrap()
    };
    let [log, manifest, current] = [".wal", "MANIFEST", "CURRENT"].map(file);
    // Dumps first: writing replaces logs and manifests.
    let commands = [
        "demo --keys 1e3 --lookups 100 --json",
        "bench readrandom fillseq --keys 1e3 --operations 1e3 --matrix cache=1MB,2MB",
        "bench compare ANSWER ANSWER",
        "sst dump TABLE --limit 3",
        "sst dump LOG",
        "sst dump MANIFEST",
        "sst dump CURRENT",
        "sst dump ROCKSDB --limit 3",
        "sst dump LEVELDB --block 0",
        "load --create NEW LINES",
        "get DB key0007",
        "put DB key 1",
        "delete DB key",
        "scan DB --limit 3",
        "count DB",
        "get DB key0007 key0008",
        "export DB",
        "import tsv LINES IMPORTED",
        "keyspace create DB users --set filter=bloom:12",
        "put DB ada 1815 --keyspace users",
        "keyspace list DB",
        "stats DB",
        "stats DB --keyspace users",
        "settings DB --set filter_at_level.0=none",
        "explain DB key0007",
        "report DB",
        "verify DB",
        "verify DB --keyspace users",
        "filter stats DB --bits 16 --cache 1kB --probe LINES",
        "filter advise DB --budget 1MB",
        "filter sim --bits 10",
        "filter bench --keys 1e3 --lookups 1e3",
        "filter bench --ranges --keys 1e3 --lookups 1e3",
        "sst layout TABLE",
        "sst verify DB",
        "sst layout ROCKSDB",
        "sst verify ROCKSDB",
        "sst layout LEVELDB",
        "sst verify LEVELDB",
        "filter stats ROCKSDB --probe LINES",
        "filter stats LEVELDB",
        "filter rebuild DB --bits 12",
        "flush DB",
        "compact DB",
        "filter stats DB --keyspace users",
        "keyspace drop DB users",
        "checkpoint DB BACKUP",
        "restore BACKUP BACK",
        "repair DB",
        "help filters",
        "completions fish",
        "man",
    ];
    let words = |line: &str| -> Vec<String> {
        let words = line.split(' ').map(|word| match word {
            "DB" => db.clone(),
            "NEW" => new.clone(),
            "BACKUP" => place.path("backup"),
            "BACK" => place.path("back"),
            "ANSWER" => answer.clone(),
            "LINES" => lines.clone(),
            "IMPORTED" => place.path("imported"),
            "TABLE" => table.clone(),
            "LOG" => log.clone(),
            "MANIFEST" => manifest.clone(),
            "CURRENT" => current.clone(),
            "ROCKSDB" => foreign_table("rocksdb/v7_crc32c_snappy.sst"),
            "LEVELDB" => foreign_table("leveldb/000011.ldb"),
            word => word.to_string(),
        });
        words.collect()
    };
    commands.iter().map(|line| words(line)).collect()
}

/// A table of another store.
pub fn foreign_table(name: &str) -> String {
    let golden = crate::support::repository::golden(name);
    golden.to_str().unwrap().to_string()
}

/// The names of all fields in `value`, at any depth.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            fields(value, names);
        }),
        Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        _ => {}
    }
}

/// Strings that look like sentences, each with the name of its field.
fn sentences(name: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            // These are for people, and documented as such.
            let people = [
                "what",
                "advice",
                "title",
                "sentence",
                "command",
                "finding",
                "text",
                "rows",
                "processor",
                // Bytes of a file.
                "value",
            ];
            if !people.contains(&&name[..]) {
                sentences(name, value, found);
            }
        }),
        Value::Array(items) => items.iter().for_each(|item| sentences(name, item, found)),
        Value::String(text) if text.split(' ').count() > 3 => found.push(format!("{name}: {text}")),
        _ => {}
    }
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn every_json_field_is_in_the_help() {
    let place = Place::new();
    for words in every_command(&place) {
        let words = strs(&words);
        let output = ok(&[&words[..], &["--json"]].concat().into_iter().fold(
            Vec::new(),
            // The command line of the demonstration has `--json` already.
            |mut all: Vec<&str>, word| {
                if word != "--json" || !all.contains(&"--json") {
                    all.push(word);
                }
                all
            },
        ));
        let nested = ["filter", "sst", "keyspace"].contains(&words[0])
            || words.starts_with(&["bench", "compare"]);
        let help = ok(&[&words[..if nested { 2 } else { 1 }], &["--help"]].concat());
        let rows = words.starts_with(&["sst", "dump"])
            || ["export", "scan"].contains(&words[0])
            || words[0] == "get" && words.len() > 3;
        let values: Vec<Value> = match rows {
            true => output.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            false => vec![serde_json::from_str(&output).unwrap()],
        };
        let documented: BTreeSet<&str> =
            help.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for value in values {
            assert_eq!(value["format"], 1, "{words:?}");
            let mut names = BTreeSet::new();
            fields(&value, &mut names);
            let missing: Vec<_> =
                names.iter().filter(|name| !documented.contains(&name[..])).collect();
            assert!(missing.is_empty(), "{words:?}: {missing:?} is not in the help");
            let mut found = Vec::new();
            sentences("", &value, &mut found);
            assert!(found.is_empty(), "{words:?}: {found:?}");
        }
    }
}

#[test]
fn every_command_prints_json() {
    let place = Place::new();
    let tried: Vec<Vec<String>> = every_command(&place);
    for whole in crate::help_cli::commands() {
        let is_tried = tried.iter().any(|words| words.starts_with(&whole));
        assert!(is_tried, "{whole:?}");
    }
}

/// The error of a command that fails with `code`, as JSON.
fn error(code: i32, arguments: &[&str]) -> Value {
    let text = fails(code, &[arguments, &["--json"]].concat());
    let line = text.lines().next().unwrap();
    let object: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&object["format"], &object["error"]["exit_code"]), (&1.into(), &code.into()));
    object["error"].clone()
}

#[test]
fn json_errors_are_objects() {
    let place = Place::new();
    let (db, missing, lines) = (place.database(), place.path("missing"), place.path("bad"));
    assert_eq!(error(1, &["get", &db, "nothing"])["kind"], "not_found");
    let usage = error(2, &["get", &db]);
    assert_eq!(usage["kind"], "usage");
    assert!(!usage["what"].as_str().unwrap().contains('\n'), "{usage}");
    let nowhere = error(4, &["put", &missing, "k", "v"]);
    assert_eq!((&nowhere["kind"], &nowhere["path"]), (&"no_database".into(), &missing.into()));
    assert!(nowhere["advice"].as_str().unwrap().contains("--create"), "{nowhere}");
    write(&lines, b"no tab\n");
    let line = error(2, &["load", &db, &lines]);
    assert_eq!((&line["line"], &line["lines_written"]), (&1.into(), &0.into()));
    assert_eq!(line["path"], lines);
    let held = siftdb::Db::open(&db).unwrap();
    assert_eq!(error(4, &["put", &db, "k", "v"])["kind"], "locked");
    drop(held);
    let table = files(&db, ".sst").remove(0);
    let mut bytes = crate::cli::read(&table);
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    write(table.to_str().unwrap(), &bytes);
    let damage = error(3, &["scan", &db]);
    assert_eq!((&damage["kind"], &damage["path"]), (&"corruption".into(), &table.to_str().into()));
    assert!(damage["offset"].is_u64() && damage["advice"].is_string(), "{damage}");
    let what = damage["what"].as_str().unwrap();
    assert!(!what.contains(table.to_str().unwrap()), "{what}");
}

#[test]
fn writing_needs_a_database_or_create() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, b"a\t1\n");
    for arguments in [&["put", &db, "k", "v"][..], &["load", &db, &lines]] {
        let message = fails(4, arguments);
        assert!(message.contains(&format!("no database in {db} (use --create")), "{message}");
        assert!(!Path::new(&db).exists(), "{arguments:?}");
    }
    ok(&["put", "--create", &db, "k", "v"]);
    ok(&["put", &db, "k", "w"]);
    assert_eq!(ok(&["get", &db, "k"]), "w");
}

#[test]
fn a_relative_path_without_a_database_is_said_to_have_none() {
    let place = Place::new();
    for (directory, arguments) in [
        ("db", &["get", "db", "k"][..]),
        ("./db", &["put", "./db", "k", "v"]),
        ("db/", &["stats", "db/"]),
    ] {
        let output = command(arguments).current_dir(place.path("")).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{message}");
        assert!(message.contains(&format!("no database in {directory}")), "{message}");
    }
}

#[test]
fn entries_only_in_the_log_are_announced() {
    let place = Place::new();
    let db = place.path("db");
    store(&db, &(0..10u8).map(|i| (vec![b'k', b'0' + i], vec![b'v'])).collect());
    let looks: [&[&str]; 5] = [
        &["stats", &db],
        &["filter", "stats", &db],
        &["filter", "advise", &db, "--budget", "1MB"],
        &["filter", "rebuild", &db],
        &["sst", "verify", &db],
    ];
    for arguments in looks {
        let text = ok(arguments);
        let said = text.contains("in no table") && text.contains("`siftdb flush DIR`");
        assert!(said && text.contains("10 entries"), "{arguments:?}: {text}");
    }
    assert_eq!(json(&["filter", "stats", &db, "--json"])["log_entries"], 10);
    let unchecked = &json(&["sst", "verify", &db, "--json"])["unchecked_logs"];
    assert_eq!((&unchecked["logs"], &unchecked["log_entries"]), (&1.into(), &10.into()));
    let flushed = json(&["flush", &db, "--json"]);
    assert_eq!((&flushed["log_entries"], &flushed["tables"]), (&10.into(), &1.into()));
    for arguments in looks {
        assert!(!ok(arguments).contains("in no table"), "{arguments:?}");
    }
    assert!(ok(&["flush", &db]).starts_with("nothing to flush"));
    assert!(ok(&["filter", "stats", &db]).contains("fast-local-bloom"));
}

#[test]
fn load_ends_with_a_flush() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, b"a\t1\nb\t2\n");
    ok(&["load", "--create", &db, &lines]);
    assert_eq!(json(&["stats", &db, "--json"])["total"]["tables"], 1);
    assert!(ok(&["sst", "verify", &db]).ends_with("1 table, all in order\n"));
}

#[test]
fn compact_merges_tables_of_a_range() {
    let place = Place::new();
    let db = place.path("db");
    // Too few for the compaction that a full level 0 begins by itself.
    for (round, half) in ["a", "m", "a"].into_iter().enumerate() {
        let lines = place.path("lines");
        let text: String = (0..50).map(|i| format!("{half}{i:02}\tvalue {round}\n")).collect();
        write(&lines, text.as_bytes());
        ok(&["load", "--create", &db, &lines]);
    }
    let held = ok(&["scan", &db]);
    let part = json(&["compact", &db, "--from", "a", "--to", "b", "--json"]);
    assert!(part["tables_after"].as_u64() < part["tables_before"].as_u64(), "{part}");
    let all = json(&["compact", &db, "--json"]);
    assert!(all["tables_after"].as_u64().unwrap() <= 2, "{all}");
    assert!(ok(&["compact", &db]).contains(" now; read "));
    let unread = json(&["compact", &db, "--json"]);
    let forced = json(&["compact", &db, "--force", "--json"]);
    assert_eq!(
        (&unread["bytes_read"], &forced["bytes_read"]),
        (&0.into(), &forced["bytes_before"])
    );
    assert_eq!(ok(&["scan", &db]), held);
    assert_eq!(json(&["stats", &db, "--json"])["total"]["entries"], 100);
}

#[test]
fn a_locked_database_is_named_as_such() {
    let place = Place::new();
    let path = place.path("db");
    let db = siftdb::Db::open(&path).unwrap();
    (0..7).for_each(|i| db.put(format!("key{i}"), "value").unwrap());
    let text = ok(&["sst", "verify", &path]);
    assert!(
        text.contains("in use") && text.contains("not checked: 1 log with 7 entries"),
        "{text}"
    );
    assert!(!text.contains("all in order"), "{text}");
    let report = json(&["sst", "verify", &path, "--json"]);
    assert_eq!(report["in_use"], true);
    db.flush().unwrap();
    assert!(ok(&["sst", "verify", &path]).contains("in use"));
    db.close().unwrap();
    drop(db);
    assert_eq!(json(&["sst", "verify", &path, "--json"])["in_use"], false);
    assert!(ok(&["sst", "verify", &path]).ends_with("1 table, all in order\n"));
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    // A shell starts what runs in the background without SIGINT, and the command respects that.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    let is_ignored = ignored & (1 << 1) != 0;
    for signal in ["-TERM", "-INT"].into_iter().take(if is_ignored { 1 } else { 2 }) {
        let place = Place::new();
        let temporary = place.path("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let mut child = command(&["demo", "--keys", "2e5"])
            .env("TMPDIR", &temporary)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Until the first database is being written.
        let is_loading = || {
            let made = files(&temporary, "").into_iter();
            made.flat_map(|directory| files(directory.to_str().unwrap(), "")).next().is_some()
        };
        while !is_loading() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
            std::thread::yield_now();
        }
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let status = child.wait().unwrap();
        assert!(status.signal().is_some(), "{signal}: {status}");
        assert!(files(&temporary, "").is_empty(), "{signal}: {:?}", files(&temporary, ""));
    }
}

#[test]
fn files_that_are_not_tables_are_named() {
    let place = Place::new();
    let text = place.path("000007.sst");
    write(&text, "Not a table, but a text of many lines.\n".repeat(100).as_bytes());
    for subcommand in ["layout", "verify", "dump"] {
        let message = fails(3, &["sst", subcommand, &text]);
        assert!(message.contains(": not a siftdb table"), "{message}");
        assert!(!message.contains("at byte"), "{message}");
    }
    write(&text, b"short");
    assert!(fails(3, &["sst", "verify", &text]).contains("not a siftdb table"));
    let db = place.database();
    std::fs::remove_file(format!("{db}/CURRENT")).unwrap();
    for arguments in [&["get", &db, "key0001"][..], &["sst", "verify", &db], &["verify", &db]] {
        let message = fails(3, arguments);
        assert!(message.contains("/CURRENT is missing: "), "{message}");
        assert!(!message.contains("at byte"), "{message}");
    }
}

#[test]
fn dump_limits_apply_to_logs() {
    let place = Place::new();
    let db = place.path("db");
    store(&db, &(0..50u8).map(|i| (vec![b'k', b'0' + i], vec![b'v'])).collect());
    let log = files(&db, ".wal").pop().unwrap();
    let log = log.to_str().unwrap();
    assert_eq!(ok(&["sst", "dump", log]).matches(" = \"v\"").count(), 50);
    let text = ok(&["sst", "dump", log, "--limit", "3"]);
    assert_eq!(text.matches(" = \"v\"").count(), 3, "{text}");
    assert_eq!(text.matches("batch: ").count(), 3, "{text}");
    assert!(text.ends_with("the rest is left out: 3 entries printed\n"), "{text}");
}
