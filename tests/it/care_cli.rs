//! `siftdb verify` and `siftdb repair` end to end: what they print, their exit codes, what they
//! change.

use crate::cli::{Place, fails, files, json, ok, read, siftdb, write};
use serde_json::Value;

/// The result of a command that fails with `code` after it has printed one.
fn failed_json(code: i32, arguments: &[&str]) -> Value {
    let output = siftdb(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn verify_reads_everything_and_changes_nothing() {
    let place = Place::new();
    let db = place.database();
    ok(&["put", &db, "in the log", "1"]);
    let contents = || files(&db, "").into_iter().map(|path| (path.clone(), read(&path)));
    let before: Vec<_> = contents().collect();
    let text = ok(&["verify", &db]);
    assert!(text.contains("1 table, 3000 entries") && text.ends_with("all in order\n"), "{text}");
    let report = json(&["verify", &db, "--json"]);
    assert_eq!((&report["sound"], &report["filter_probes"]), (&true.into(), &3_000.into()));
    fails(4, &["verify", &place.path("missing")]);

    let table = files(&db, ".sst").remove(0);
    let table = table.to_str().unwrap();
    let good = before.iter().find(|(path, _)| path.to_str() == Some(table)).unwrap().1.clone();
    let mut bad = good.clone();
    bad[good.len() / 3] ^= 1;
    write(table, &bad);
    assert!(fails(3, &["verify", &db]).contains(table));
    let report = failed_json(3, &["verify", &db]);
    assert_eq!((&report["sound"], report["damage"].as_array().unwrap().len()), (&false.into(), 1));
    assert_eq!((&report["tables"], &report["tables_damaged"]), (&1.into(), &1.into()));
    // A table that cannot be opened keeps the database from opening, and is named all the same.
    write(table, &good[..good.len() - 1]);
    assert!(fails(3, &["verify", &db]).contains(table));
    let report = failed_json(3, &["verify", &db]);
    assert_eq!((&report["tables"], &report["tables_damaged"]), (&1.into(), &1.into()), "counted");
    assert_eq!(report["damage"][0]["path"], table);
    write(table, &good);
    assert!(contents().eq(before));
}

#[test]
fn repair_says_what_it_did_and_the_database_is_sound_afterwards() {
    let place = Place::new();
    let db = place.database();
    ok(&["put", &db, "in the log", "1"]);
    let scanned = ok(&["scan", &db]);
    assert!(ok(&["repair", &db]).contains("nothing to repair: 1 tables are sound"));
    let current = format!("{db}/CURRENT");
    write(&current, b"no line of siftdb");
    assert!(fails(3, &["get", &db, "key0001"]).contains("CURRENT"));
    let text = ok(&["repair", &db]);
    assert!(text.contains("as the manifest says") && text.contains("/lost/CURRENT"), "{text}");
    assert_eq!(ok(&["scan", &db]), scanned);
    assert!(ok(&["verify", &db]).ends_with("all in order\n"));

    let table = files(&db, ".sst").remove(0);
    let mut bytes = read(&table);
    bytes[2_000] ^= 1;
    write(table.to_str().unwrap(), &bytes);
    fails(3, &["verify", &db]);
    let output = siftdb(&["repair", &db, "--json"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["saved_everything"], false);
    assert_eq!((&report["changed"], &report["manifest_used"]), (&true.into(), &true.into()));
    let [lost] = &report["lost"].as_array().unwrap()[..] else { panic!("{report}") };
    assert!(lost["first_key"].as_str() < lost["last_key"].as_str(), "{lost}");
    let gone = report["entries_lost"].as_u64().unwrap();
    assert_eq!(ok(&["scan", &db, "--count"]), format!("{}\n", 3_001 - gone));
    assert!(ok(&["verify", &db]).ends_with("all in order\n"));
    fails(4, &["repair", &place.path("missing")]);
    let held = siftdb::Db::open(&db).unwrap();
    assert!(fails(4, &["repair", &db]).contains("locked"));
    drop(held);
}
