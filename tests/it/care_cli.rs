//! `siftdb verify` end to end: what it prints, its exit codes, and that it changes nothing.

use crate::cli::{Place, fails, files, json, ok, read, siftdb, write};
use serde_json::Value;

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
    let report = siftdb(&["verify", &db, "--json"]);
    assert_eq!(report.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["sound"], report["damage"].as_array().unwrap().len()), (&false.into(), 1));
    // A table that cannot be opened keeps the database from opening, and is named all the same.
    write(table, &good[..good.len() - 1]);
    assert!(fails(3, &["verify", &db]).contains(table));
    write(table, &good);
    assert!(contents().eq(before));
}
