//! `get`, `put`, `delete` and `count`: several keys, files, ranges, prefixes, and bad input.

use crate::cli::{Place, command, fails, json, ok, siftdb, write};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Output, Stdio};

/// The result of a command that reads `input`.
fn with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// A database of the keys `a` to `e`, with the values `1` to `5`.
fn letters(place: &Place) -> String {
    let (db, lines) = (place.path("letters"), place.path("lines"));
    write(&lines, b"a\t1\nb\t2\nc\t3\nd\t4\ne\t5\n");
    ok(&["load", "--create", &db, &lines]);
    db
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn several_keys_are_printed_in_their_order() {
    let place = Place::new();
    let db = letters(&place);
    assert_eq!(ok(&["get", &db, "d", "a", "d"]), "d\t4\na\t1\nd\t4\n");
    let rows = ok(&["get", &db, "d", "a", "--json"]);
    let first = "{\"format\":1,\"key\":\"d\",\"value\":\"4\"}\n";
    assert_eq!(rows, format!("{first}{{\"format\":1,\"key\":\"a\",\"value\":\"1\"}}\n"));
    ok(&["put", &db, "--escaped", "t\\tab", "\\xff"]);
    assert_eq!(ok(&["get", &db, "--escaped", "t\\tab", "a"]), "t\\tab\t\\xff\na\t1\n");
    // Such lines are what `load` reads.
    let (copy, lines) = (place.path("copy"), place.path("copied"));
    write(&lines, ok(&["get", &db, "b", "e"]).as_bytes());
    ok(&["load", "--create", &copy, &lines]);
    assert_eq!(ok(&["scan", &copy]), "b\t2\ne\t5\n");
}

#[test]
fn each_absent_key_is_named() {
    let place = Place::new();
    let db = letters(&place);
    let output = siftdb(&["get", &db, "a", "x", "b", "y\n"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "a\t1\nb\t2\n");
    assert_eq!(text(&output.stderr), "siftdb: not found: x\nsiftdb: not found: y\\n\n");
    assert_eq!(fails(1, &["get", &db, "x"]), "siftdb: not found: x\n");
    let output = siftdb(&["get", &db, "x", "b", "--json"]);
    assert_eq!(text(&output.stdout), "{\"format\":1,\"key\":\"b\",\"value\":\"2\"}\n");
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    let error = &error["error"];
    let told = (&error["kind"], &error["key"], &error["exit_code"]);
    assert_eq!(told, (&"not_found".into(), &"x".into(), &1.into()));
}

#[test]
fn keys_come_from_files_and_standard_input() {
    let place = Place::new();
    let (db, keys) = (place.database(), place.path("keys"));
    // More keys than one call looks up, in reverse order, the last line without an end.
    let wanted: Vec<String> = (0..2_500).rev().map(|i| format!("key{i:04}")).collect();
    write(&keys, wanted.join("\n").as_bytes());
    let expected: String = (0..2_500).rev().map(|i| format!("key{i:04}\tvalue {i}\n")).collect();
    assert_eq!(ok(&["get", &db, "--input", &keys]), expected);
    let piped = with_input(&["get", &db, "--input", "-"], wanted.join("\n").as_bytes());
    assert_eq!(text(&piped.stdout), expected);
    let none = with_input(&["get", &db, "--input", "-"], b"");
    assert_eq!((none.status.code(), none.stdout, none.stderr), (Some(0), vec![], vec![]));
    // One line is still a list.
    assert_eq!(
        with_input(&["get", &db, "--input", "-"], b"key0001\n").stdout,
        b"key0001\tvalue 1\n"
    );
    let spelled = with_input(&["get", &db, "--input", "-", "--escaped"], b"key000\\x31\n");
    assert_eq!(text(&spelled.stdout), "key0001\tvalue 1\n");
    let wrong = with_input(&["get", &db, "--input", "-", "--escaped"], b"key0001\nkey\\q\n");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("-: line 2: an escape that is none"), "{wrong:?}");
    fails(2, &["get", &db, "key0001", "--input", &keys]);
    fails(2, &["get", &db]);
    assert!(
        fails(4, &["get", &db, "--input", &place.path("missing")]).contains("missing: No such")
    );
    assert!(fails(4, &["get", &db, "--input", &db]).contains("is a directory"));
}

/// A line that no key can have is refused before it is read to its end.
#[test]
fn lines_longer_than_keys_are_refused() {
    let place = Place::new();
    let (db, keys) = (letters(&place), place.path("keys"));
    write(&keys, format!("a\n{}\nb\n", "x".repeat(300_000)).as_bytes());
    for command in [["get", &db, "--input", &keys], ["filter", "stats", &db, "--probe"]] {
        let more: &[&str] = if command[0] == "get" { &[] } else { &[&keys] };
        let refused = fails(2, &[&command, more].concat());
        assert!(refused.contains(": line 2: a line of more than"), "{refused}");
    }
}

#[test]
fn values_come_from_files_with_all_bytes() {
    let place = Place::new();
    let (db, file) = (place.path("db"), place.path("value"));
    let bytes: Vec<u8> = (0..=255u8).cycle().take(300_000).collect();
    write(&file, &bytes);
    ok(&["put", "--create", &db, "file", "--input", &file]);
    assert_eq!(siftdb(&["get", &db, "file"]).stdout, bytes);
    // No escapes, also with --escaped, and no end of line is cut off.
    assert!(
        with_input(&["put", &db, "pipe", "--input", "-", "--escaped"], b"a\\n\n").status.success()
    );
    assert_eq!(siftdb(&["get", &db, "pipe"]).stdout, b"a\\n\n");
    assert!(with_input(&["put", &db, "none", "--input", "-"], b"").status.success());
    assert_eq!(ok(&["get", &db, "none"]), "");
    fails(2, &["put", &db, "key"]);
    fails(2, &["put", &db, "key", "value", "--input", &file]);
    let missing = place.path("missing");
    for input in [&missing, &db] {
        let new = place.path("new");
        assert!(fails(4, &["put", "--create", &new, "key", "--input", input]).contains(input));
        assert!(!std::path::Path::new(&new).exists(), "the file is read first");
    }
}

/// The directory of a link that leads nowhere is not created.
#[test]
fn impossible_databases_are_not_called_missing() {
    let place = Place::new();
    let (link, target) = (place.path("link"), place.path("nowhere"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let refused = fails(4, &["put", &link, "a", "1", "--create"]);
    assert!(refused.contains(&link) && !refused.contains("no database"), "{refused}");
    assert!(fails(4, &["put", &link, "a", "1"]).contains("no database"));
}

#[test]
fn delete_takes_keys_ranges_and_prefixes() {
    let place = Place::new();
    let db = letters(&place);
    let deleted = json(&["delete", &db, "a", "c", "not there", "--json"]);
    assert_eq!(deleted["entries"], 3);
    assert_eq!(ok(&["scan", &db]), "b\t2\nd\t4\ne\t5\n");
    assert_eq!(json(&["delete", &db, "--range", "a", "d", "--json"])["entries"], 1);
    assert_eq!(ok(&["scan", &db]), "d\t4\ne\t5\n");
    assert_eq!(json(&["delete", &db, "--range", "d", "d", "--json"])["entries"], 0);
    for key in ["-x/1", "-x/2", "-y"] {
        ok(&["put", &db, "--", key, ""]);
    }
    ok(&["delete", &db, "--prefix", "-x"]);
    ok(&["delete", &db, "--", "-y"]);
    assert_eq!(ok(&["scan", &db]), "d\t4\ne\t5\n");
    ok(&["put", &db, "--escaped", "\\xff\\xff", "last"]);
    ok(&["delete", &db, "--escaped", "--prefix", "\\xff"]);
    assert_eq!(ok(&["count", &db]), "2\n");
    // What is not named as a whole is refused.
    for wrong in [
        &["delete", &db][..],
        &["delete", &db, "--range", "a"],
        &["delete", &db, "--range", "b", "a"],
        &["delete", &db, "d", "--prefix", "d"],
        &["delete", &db, "d", "--range", "a", "b"],
        &["delete", &db, "--prefix", "d", "--range", "a", "b"],
        &["delete", &db, "d", "--escaped", "\\q"],
    ] {
        fails(2, wrong);
        assert_eq!(ok(&["count", &db]), "2\n", "{wrong:?}");
    }
    fails(4, &["delete", &db, "d", "--keyspace", "missing"]);
    // A key that is too long takes the others with it.
    assert!(fails(2, &["delete", &db, "d", &"k".repeat(65_536)]).contains("65536"));
    assert_eq!(ok(&["get", &db, "d"]), "4");
}

#[test]
fn one_range_delete_is_one_entry() {
    let place = Place::new();
    let db = place.database();
    let written = json(&["stats", &db, "--json"])["entries"].as_u64().unwrap();
    ok(&["delete", &db, "--prefix", "key"]);
    assert_eq!(json(&["stats", &db, "--json"])["entries"], written + 1);
    assert_eq!(ok(&["count", &db]), "0\n");
}

#[test]
fn count_is_exact_unless_estimated() {
    let place = Place::new();
    let db = place.database();
    assert_eq!(ok(&["count", &db]), "3000\n");
    assert_eq!(ok(&["count", &db, "--prefix", "key00"]), "100\n");
    assert_eq!(ok(&["count", &db, "--from", "key0010", "--to", "key0020"]), "10\n");
    assert_eq!(ok(&["count", &db, "--from", "key2999"]), "1\n");
    assert_eq!(ok(&["count", &db, "--to", "key0000"]), "0\n");
    let whole = json(&["count", &db, "--estimate", "--json"]);
    assert_eq!((&whole["entries"], &whole["estimated"]), (&3_000.into(), &true.into()));
    let part = ["count", &db, "--estimate", "--from", "key1000", "--to", "key2000", "--json"];
    let part = json(&part)["entries"].as_u64().unwrap();
    assert!((700..1_300).contains(&part), "{part}");
    assert_eq!(json(&["count", &db, "--json"])["estimated"], false);
    // Deletions hide entries from the count, and not from the estimate.
    ok(&["delete", &db, "--range", "key0000", "key0500"]);
    assert_eq!(ok(&["count", &db]), "2500\n");
    let backwards = fails(2, &["count", &db, "--from", "b", "--to", "a"]);
    assert!(backwards.contains("the range ends before it begins: b is after a"), "{backwards}");
    for subcommand in ["scan", "compact"] {
        fails(2, &[subcommand, &db, "--from", "b", "--to", "a"]);
        fails(2, &[subcommand, &db, "--from", "b", "--prefix", "a"]);
    }
    fails(4, &["count", &db, "--keyspace", "missing"]);
    fails(4, &["count", &place.path("missing")]);
}

#[test]
fn keys_may_look_like_options() {
    let place = Place::new();
    let db = place.path("db");
    ok(&["put", "--create", &db, "--", "--json", "-v"]);
    assert_eq!(ok(&["get", &db, "--", "--json"]), "-v");
    assert_eq!(ok(&["scan", &db, "--prefix", "--j"]), "--json\t-v\n");
    assert_eq!(ok(&["count", &db, "--from", "--json", "--to", "-j"]), "1\n");
    ok(&["compact", &db, "--from", "-"]);
    assert!(fails(2, &["get", &db, "--jso"]).contains("--"));
    ok(&["delete", &db, "--range", "--", "-j"]);
    assert_eq!(ok(&["count", &db]), "0\n");
}

/// `arguments` without regard to UTF-8.
fn raw(arguments: &[&OsStr]) -> Output {
    command(&[]).args(arguments).output().unwrap()
}

/// Keys of few bytes, so that prefixes and ranges meet many of them; no argument holds a NUL.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(b'a'), Just(b'-'), Just(0xff), 1..=255u8], 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]
    #[test]
    fn ranges_and_prefixes_agree_with_a_map(
        keys in prop::collection::vec(key(), 1..60),
        (from, to, prefix) in (key(), key(), key()),
    ) {
        let place = Place::new();
        let path = OsString::from(place.path("db"));
        let mut expected: BTreeMap<Vec<u8>, Vec<u8>> =
            keys.iter().map(|key| (key.clone(), b"v".to_vec())).collect();
        let db = siftdb::Db::open(&path).unwrap();
        keys.iter().for_each(|key| db.put(key, "v").unwrap());
        db.close().unwrap();
        drop(db);
        let (from, to) = (from.clone().min(to.clone()), from.max(to));
        let of = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let run = |words: &[&str], keys: &[&[u8]]| {
            let keys: Vec<OsString> = keys.iter().map(|key| of(key)).collect();
            let mut all: Vec<&OsStr> = vec![OsStr::new(words[0]), &path];
            // Each word after the first is followed by one key.
            for (at, key) in keys.iter().enumerate() {
                all.extend(words.get(at + 1).map(OsStr::new));
                all.push(key);
            }
            let output = raw(&all);
            assert!(output.status.success(), "{all:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let counted = |text: String| text.trim().parse::<usize>().unwrap();
        let in_range = expected.range(from.clone()..to.clone()).count();
        prop_assert_eq!(counted(run(&["count", "--from", "--to"], &[&from, &to])), in_range);
        let with_prefix = expected.keys().filter(|key| key.starts_with(&prefix)).count();
        prop_assert_eq!(counted(run(&["count", "--prefix"], &[&prefix])), with_prefix);
        let lines = |text: String| text.lines().count();
        prop_assert_eq!(lines(run(&["scan", "--prefix"], &[&prefix])), with_prefix);
        run(&["delete", "--range"], &[&from, &to]);
        expected.retain(|key, _| !(from.as_slice()..to.as_slice()).contains(&key.as_slice()));
        prop_assert_eq!(counted(run(&["count"], &[])), expected.len());
        if !prefix.is_empty() {
            run(&["delete", "--prefix"], &[&prefix]);
            expected.retain(|key, _| !key.starts_with(&prefix));
        }
        prop_assert_eq!(counted(run(&["count"], &[])), expected.len());
        if !expected.is_empty() {
            let present: Vec<&[u8]> = expected.keys().map(Vec::as_slice).collect();
            let words = ["get", "--"];
            let got = run(&words, &present);
            prop_assert_eq!(lines(got), if present.len() == 1 { 1 } else { present.len() });
        }
    }
}

#[test]
fn arguments_need_not_be_text() {
    let place = Place::new();
    let db = OsString::from(place.path("db"));
    let [put, create, get] = ["put", "--create", "get"].map(OsStr::new);
    let (key, value) = (OsStr::from_bytes(b"\xff\x01"), OsStr::from_bytes(b"\xfe\x80"));
    assert!(raw(&[put, create, &db, key, value]).status.success());
    assert_eq!(raw(&[get, &db, key]).stdout, b"\xfe\x80");
    assert_eq!(raw(&[get, &db, key, key]).stdout, b"\\xff\\x01\t\\xfe\\x80\n".repeat(2));
    let absent = raw(&[get, &db, OsStr::from_bytes(b"\xfd")]);
    assert_eq!(text(&absent.stderr), "siftdb: not found: \\xfd\n");
}

/// A variable that is not set is an empty prefix, which all keys have.
#[test]
fn empty_prefixes_delete_nothing() {
    let place = Place::new();
    let db = letters(&place);
    let refused = fails(2, &["delete", &db, "--prefix", ""]);
    assert!(refused.contains("--prefix is empty"), "{refused}");
    assert_eq!(ok(&["count", &db]), "5\n");
}
