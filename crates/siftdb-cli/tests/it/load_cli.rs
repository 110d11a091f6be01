//! `siftdb load`: columns, bad lines, settings, and loads in one step.

use crate::cli::{Place, command, fails, files, json, ok, read, siftdb, write};
use serde_json::{Value, json as object};
use std::path::Path;
use std::process::Output;

/// The entries of a database, as `scan` prints them.
fn scan(db: &str) -> String {
    String::from_utf8(siftdb(&["scan", db]).stdout).unwrap()
}

/// Loads `text` with `arguments` into a new database, and returns what it has then.
fn loaded(text: &[u8], arguments: &[&str]) -> String {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, text);
    ok(&[&["load", "--create", &db, &lines][..], arguments].concat());
    scan(&db)
}

#[test]
fn columns_are_chosen_by_number() {
    let text = b"1,ada,1815,x\n2,alan,1912,\n";
    assert_eq!(loaded(text, &["--separator", ","]), "1\tada,1815,x\n2\talan,1912,\n");
    let of = |more: &[&str]| loaded(text, &[&["--separator", ","], more].concat());
    assert_eq!(of(&["--key-column", "2"]), "ada\t1815,x\nalan\t1912,\n");
    assert_eq!(of(&["--key-column", "2", "--value-column", "1"]), "ada\t1\nalan\t2\n");
    assert_eq!(of(&["--value-column", "4"]), "1\tx\n2\t\n");
    assert_eq!(of(&["--key-column", "3", "--value-column", "3"]), "1815\t1815\n1912\t1912\n");
    // Escapes are read in columns, and name bytes that are separators, too.
    assert_eq!(loaded(b"a\\x2c;\\t;c", &["--separator", "\\x3b"]), "a,\t\\t;c\n");
    assert_eq!(loaded(b"a|b\\|c", &["--separator", "|", "--raw"]), "a\tb\\\\|c\n");
    let bytes = loaded(b"a\x1f\x1fb\x1fc", &["--separator", "\\x1f", "--value-column", "3"]);
    assert_eq!(bytes, "a\tb\n");
    assert_eq!(loaded(b"C:\\n", &["--separator", ":", "--raw"]), "C\t\\\\n\n");
    assert_eq!(loaded(b"abc", &["--separator", "b", "--raw"]), "a\tc\n");
}

#[test]
fn existing_files_for_bad_lines_create_nothing() {
    let place = Place::new();
    let (db, lines, bad) = (place.path("db"), place.path("lines"), place.path("bad"));
    write(&lines, b"a\t1\n");
    write(&bad, b"");
    let message = fails(4, &["load", "--create", &db, &lines, "--bad-lines", &bad]);
    assert!(message.contains("name a new file") && !Path::new(&db).exists(), "{message}");
}

#[test]
fn lines_with_too_few_columns_are_named() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, b"1;2;3\n4;5\n");
    let refused = |arguments: &[&str]| {
        let load = ["load", "--create", &db, &lines, "--separator", ";"];
        let message = fails(2, &[&load[..], arguments].concat());
        assert!(message.contains("; nothing was written"), "{message}");
        message
    };
    let message = refused(&["--value-column", "3"]);
    assert!(message.contains("line 2: 2 columns; column 3 is not there"), "{message}");
    let message = refused(&["--key-column", "3", "--value-column", "1"]);
    assert!(message.contains("line 2: 2 columns; column 3 is not there"), "{message}");
    let message = refused(&["--key-column", "2"]);
    assert!(message.contains("line 2: 2 columns; column 3 is not there"), "{message}");
    let message = fails(2, &["load", &db, &lines, "--separator", ","]);
    assert!(message.contains("line 1: no separator ',' between key and value"), "{message}");
    assert!(fails(2, &["load", &db, &lines]).contains("no TAB"));
}

#[test]
fn impossible_separators_and_columns_are_refused() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, b"a\t1\n");
    let wrong: &[&[&str]] = &[
        &["--separator", ""],
        &["--separator", ",,"],
        &["--separator", "\\n"],
        &["--separator", "\\q"],
        &["--separator", "\n", "--raw"],
        // These may be part of an escape.
        &["--separator", "x"],
        &["--separator", "\\\\"],
        &["--key-column", "0"],
        &["--value-column", "0"],
        &["--value-column", "two"],
        &["--set", "filter"],
        &["--set", "filter=bloom:x"],
    ];
    for arguments in wrong {
        fails(2, &[&["load", "--create", &db, &lines][..], arguments].concat());
        assert!(!Path::new(&db).exists(), "{arguments:?}");
    }
}

fn output(arguments: &[&str]) -> (Output, String) {
    let output = command(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, stderr)
}

#[test]
fn bad_lines_are_left_out_on_request() {
    let place = Place::new();
    let (db, lines, bad) = (place.path("db"), place.path("lines"), place.path("bad"));
    let long = "k".repeat(65_536);
    let text = format!("a\t1\nno tab\nb\t\\q\nc\t3\n{long}\t4\nd\t5\nlast");
    write(&lines, text.as_bytes());
    let load = ["load", "--create", &db, &lines, "--skip-bad-lines"];
    let (result, stderr) = output(&load);
    assert_eq!(result.status.code(), Some(5), "{stderr}");
    assert_eq!(scan(&db), "a\t1\nc\t3\nd\t5\n");
    assert!(stderr.contains("line 2 left out: no TAB"), "{stderr}");
    assert!(stderr.contains("line 5 left out: a key of 65536 bytes"), "{stderr}");
    assert!(stderr.contains("3 entries loaded"), "{stderr}");
    assert!(stderr.contains("siftdb: 4 bad lines left out; all others were loaded"), "{stderr}");

    // Collected, they are as they were, and can be loaded after a correction.
    let load = ["load", &db, &lines, "--bad-lines", &bad, "--json"];
    let (result, stderr) = output(&load);
    assert_eq!(result.status.code(), Some(5), "{stderr}");
    let answer: Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!((&answer["entries"], &answer["bad_lines"]), (&3.into(), &4.into()));
    assert_eq!(answer["first_bad_lines"][0]["line"], 2);
    assert_eq!(answer["first_bad_lines"].as_array().unwrap().len(), 4);
    let error: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!(error["error"]["kind"], "losses");
    let collected = format!("no tab\nb\t\\q\n{long}\t4\nlast\n");
    assert!(read(Path::new(&bad)) == collected.as_bytes());

    // What is collected is never written over.
    let refused = fails(4, &["load", &db, &lines, "--bad-lines", &bad]);
    assert!(refused.contains(&bad) && refused.contains("name a new file"), "{refused}");
    assert!(read(Path::new(&bad)) == collected.as_bytes());

    // Without any, all is well.
    write(&lines, b"e\t6\n");
    let none = place.path("none");
    let answer = json(&["load", &db, &lines, "--bad-lines", &none, "--json"]);
    assert_eq!((&answer["bad_lines"], &answer["first_bad_lines"]), (&0.into(), &object!([])));
    assert!(!Path::new(&none).exists(), "a file for no lines");
}

#[test]
fn only_the_first_bad_lines_are_reported() {
    let place = Place::new();
    let (db, lines, bad) = (place.path("db"), place.path("lines"), place.path("bad"));
    let text: String = (0..50).map(|i| format!("bad {i}\ngood{i:02}\t1\n")).collect();
    write(&lines, text.as_bytes());
    let (result, stderr) = output(&["load", "--create", &db, &lines, "--bad-lines", &bad]);
    assert_eq!(result.status.code(), Some(5));
    assert_eq!(stderr.matches(" left out: ").count(), 10, "{stderr}");
    assert!(stderr.contains(&format!("50 bad lines left out; they are in {bad}")), "{stderr}");
    assert_eq!(ok(&["count", &db]), "50\n");
    assert_eq!(read(Path::new(&bad)).iter().filter(|byte| **byte == b'\n').count(), 50);
}

#[test]
fn settings_are_those_of_loaded_tables() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    let text: String = (0..9_000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(90))).collect();
    write(&lines, text.as_bytes());
    for keyspace in ["default", "other"] {
        let sets = ["--set", "filter=ribbon:16", "--set", "snappy=false"];
        let load = ["load", "--create", &db, &lines, "--keyspace", keyspace];
        ok(&[&load[..], &sets].concat());
        let settings = ok(&["settings", &db, "--keyspace", keyspace]);
        assert!(settings.ends_with(":\n  filter=ribbon:16\n  compression=none\n"), "{settings}");
        let stats = json(&["filter", "stats", &db, "--keyspace", keyspace, "--json"]);
        let filters = stats.to_string();
        assert!(filters.contains("ribbon") && !filters.contains("bloom"), "{filters}");
    }
    // Settings of what is there change, even if there is nothing to load.
    write(&lines, b"");
    ok(&["load", &db, &lines, "--set", "filter=bloom:12"]);
    assert!(ok(&["settings", &db]).contains("filter=fast-local-bloom:12\n"));
    // `v` repeats: compressed tables would take a tenth.
    let bytes = files(&db, ".sst").iter().map(|path| read(path).len()).sum::<usize>();
    assert!(bytes > 2 * 9_000 * 98, "{bytes}");
}

/// How many of `keys` a load brought in by a bulk load.
fn ingested(keys: impl Iterator<Item = u32>) -> u64 {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    let text: String = keys.map(|i| format!("key{i:05}\t{i:090}\n")).collect();
    write(&lines, text.as_bytes());
    ok(&["load", "--create", &db, &lines]);
    let stats = json(&["stats", &db, "--json"]);
    let mut expected: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    expected.sort();
    expected.dedup();
    assert_eq!(scan(&db), expected.concat());
    ok(&["verify", &db]);
    stats["entries_ingested"].as_u64().unwrap()
}

#[test]
fn ascending_keys_are_loaded_in_one_step() {
    assert_eq!(ingested(0..9_000), 9_000);
    // Batches take the rest after a key out of order, or a second time the same.
    assert_eq!(ingested((0..6_000).chain(3_000..9_000)), 6_000);
    assert_eq!(ingested((0..6_000).chain(5_999..9_000)), 6_000);
    // And all, if the first keys are out of order, or few.
    assert_eq!(ingested((0..9_000).rev()), 0);
    assert_eq!(ingested([5].into_iter().chain(0..9_000)), 0);
    assert_eq!(ingested([0].into_iter().chain(0..9_000)), 0);
    assert_eq!(ingested(0..100), 0);
}

#[test]
fn failed_loads_name_what_they_created() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, b"a\t1\nb\t2\nno tab\n");
    let message = fails(2, &["load", "--create", &db, &lines]);
    let new = format!(
        "line 3: no TAB between key and value; nothing was written; the new database {db} stays\n"
    );
    assert!(message.ends_with(&new), "{message}");
    assert_eq!(ok(&["count", &db]), "0\n");
    let again = fails(2, &["load", "--create", &db, &lines]);
    assert!(again.ends_with("; nothing was written\n"), "{again}");
    let keyspace = fails(2, &["load", "--create", &db, &lines, "--keyspace", "users"]);
    assert!(keyspace.ends_with("; the new keyspace \"users\" stays\n"), "{keyspace}");
    let again = fails(2, &["load", "--create", &db, &lines, "--keyspace", "users"]);
    assert!(again.ends_with("; nothing was written\n"), "{again}");
}

#[test]
fn directories_are_no_files_of_lines() {
    let place = Place::new();
    let (db, new, folder) = (place.database(), place.path("new"), place.path(""));
    for arguments in [
        &["load", "--create", &new, &folder][..],
        &["import", "jsonl", &folder, &new],
        &["get", &db, "--input", &folder],
        &["filter", "stats", &db, "--probe", &folder],
        &["demo", "--input", &folder],
    ] {
        let message = fails(4, arguments);
        assert!(message.contains(&format!("{folder}: is a directory; name a file")), "{message}");
    }
    assert!(!Path::new(&new).exists());
}

#[test]
fn unknown_encodings_list_those_there_are() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    write(&lines, b"a\t1\n");
    let message = fails(2, &["load", "--create", &db, &lines, "--set", "filter=blom:9"]);
    assert!(message.contains("no encoding \"blom\"; there are "), "{message}");
    for label in ["fast-local-bloom", "ribbon", "leveldb-bloom", "legacy-bloom"] {
        assert!(message.contains(label), "{message}");
        ok(&["load", "--create", &db, &lines, "--set", &format!("filter={label}:9")]);
    }
}
