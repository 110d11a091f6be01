//! Ingested tables: entries with sequence 0 in the file, and one sequence for all in the manifest.
//!
//! Until there is a call that ingests, `add_ingested_table` adds such a table to a closed database.
//! The expected contents are those of a database into which the same entries were written.

use crate::support::by_document::read_database;
use crate::support::filters::one_of_each_layout;
use crate::support::reads::all_reads;
use crate::support::rng::Rng;
use crate::support::stores::{HOME, as_env, files, files_ending, name, open, scan, small_options};
use siftdb::env::MemEnv;
use siftdb::{Db, Options, RepairReport, add_ingested_table};
use std::collections::BTreeMap;
use std::path::Path;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Change = (Vec<u8>, Option<Vec<u8>>);

/// A few keys with new values, some of them deleted; sorted, each once.
fn changes(rng: &mut Rng, round: usize) -> Vec<Change> {
    let mut changes = BTreeMap::new();
    for _ in 0..rng.below(60) + 1 {
        let key = format!("key{:03}", rng.below(200)).into_bytes();
        let value = format!("round {round} ").repeat(rng.below(5)).into_bytes();
        changes.insert(key, (rng.below(4) > 0).then_some(value));
    }
    changes.into_iter().collect()
}

fn apply(map: &mut Map, changes: &[Change]) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key.clone(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}

fn ingest(env: &MemEnv, changes: &[Change]) {
    add_ingested_table(&as_env(env), HOME, "default", changes).unwrap();
}

/// Every way of reading, and a verification.
fn check(db: &Db, expected: &Map, place: &str) {
    let found = all_reads(db, (0..200).map(|n| format!("key{n:03}")), place);
    assert!(found == *expected, "{place}: {} of {} entries", found.len(), expected.len());
}

#[test]
fn ingested_entries_read_like_written_ones() {
    for (seed, filter) in (1..).zip(one_of_each_layout()) {
        let (env, mut rng, mut expected) = (MemEnv::new(), Rng::new(seed), Map::new());
        let options = || small_options().filter(filter.filter.clone()).auto_compaction(false);
        for round in 0..30 {
            let place = format!("{}, round {round}", filter.name);
            let db = open(&env, &options()).unwrap();
            for (key, value) in changes(&mut rng, round) {
                match &value {
                    Some(value) => db.put(&key, value).unwrap(),
                    None => db.delete(&key).unwrap(),
                }
                apply(&mut expected, &[(key, value)]);
            }
            let before = (db.snapshot(), expected.clone());
            db.flush().unwrap();
            if rng.below(3) == 0 {
                db.compact_range(..).unwrap();
            }
            check(&db, &expected, &place);
            assert_eq!(before.0.iter().count(), before.1.len(), "{place}");
            drop(before);
            db.close().unwrap();
            drop(db);
            let changes = changes(&mut rng, 100 + round);
            ingest(&env, &changes);
            apply(&mut expected, &changes);
            let db = open(&env, &options()).unwrap();
            check(&db, &expected, &place);
            db.close().unwrap();
        }
        let db = open(&env, &options()).unwrap();
        db.compact_range(..).unwrap();
        check(&db, &expected, &filter.name);
    }
}

/// Two tables that were written, and one that was ingested on top. Their contents without it, too.
struct Store {
    env: MemEnv,
    written: Map,
    all: Map,
    table: String,
}

fn store() -> Store {
    let (env, mut rng) = (MemEnv::new(), Rng::new(7));
    let (mut written, mut all) = (Map::new(), Map::new());
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    for n in 0..400 {
        let (key, value) = (format!("key{:03}", n % 200), format!("written {n}"));
        db.put(&key, &value).unwrap();
        apply(&mut written, &[(key.into(), Some(value.into()))]);
        if n % 200 == 199 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
    let earlier = files_ending(&env, ".sst");
    all.extend(written.clone());
    let changes = changes(&mut rng, 0);
    ingest(&env, &changes);
    apply(&mut all, &changes);
    let table = files_ending(&env, ".sst").into_iter().find(|path| !earlier.contains(path));
    Store { env, written, all, table: name(&table.unwrap()).into() }
}

fn repair(env: &MemEnv) -> RepairReport {
    Options::new().env(as_env(env)).repair(HOME).unwrap()
}

fn contents(env: &MemEnv) -> Map {
    let db = open(env, &small_options()).unwrap();
    assert!(db.verify(|_| {}).unwrap().is_sound());
    scan(&db).unwrap()
}

#[test]
fn repairs_take_the_sequence_from_any_manifest() {
    let Store { env, all, table, .. } = store();
    assert!(!repair(&env).changed);
    env.remove_file(&Path::new(HOME).join("CURRENT"));
    let report = repair(&env);
    assert!(report.changed && report.lost.is_empty(), "{report:?}");
    assert_eq!(contents(&env), all);

    // A damaged block: the others keep their age, also if all tables are merged.
    for manifest_is_whole in [true, false] {
        let Store { env, written, all, .. } = store();
        let path = Path::new(HOME).join(&table);
        let mut bytes = env.read_file(&path).unwrap();
        bytes[60] ^= 1;
        env.write_file(&path, &bytes);
        if !manifest_is_whole {
            // The last byte of its one edit stays readable; the header is not.
            let manifest = files_ending(&env, "").into_iter().find(|path| {
                name(path).starts_with("MANIFEST") && env.read_file(path).unwrap().len() > 100
            });
            let mut bytes = env.read_file(manifest.as_ref().unwrap()).unwrap();
            bytes[3] ^= 1;
            env.write_file(manifest.as_ref().unwrap(), &bytes);
        }
        let report = repair(&env);
        assert!(report.entries_lost > 0 && !report.lost.is_empty(), "{report:?}");
        let left = contents(&env);
        let kept = left.iter().filter(|(key, value)| all.get(*key) == Some(value)).count();
        assert!(kept > written.len() / 2, "{kept} of {}", left.len());
        for (key, value) in &left {
            let values = [all.get(key), written.get(key)];
            assert!(values.contains(&Some(value)), "{key:?}");
        }
    }
}

#[test]
fn ingested_tables_without_a_sequence_are_named_losses() {
    let Store { env, written, table, .. } = store();
    let path = Path::new(HOME).join(&table);
    let bytes = env.read_file(&path).unwrap();
    // Logs name the sequences, too.
    let says = |path: &str| path.starts_with("MANIFEST") || path.ends_with(".wal");
    for file in files(&env).keys().filter(|path| says(name(path))) {
        env.remove_file(file);
    }
    let report = repair(&env);
    // The missing sequence may have been in a log that is gone, so that is named, too.
    let tables = report.lost.iter().filter(|lost| name(&lost.path).ends_with(".sst"));
    let lost: Vec<_> = tables.map(|lost| (lost.path.clone(), &lost.what)).collect();
    let [(lost_path, why)] = &lost[..] else { panic!("{lost:?}") };
    assert!(*lost_path == path && why.contains("ingested"), "{why}");
    assert!(report.entries_lost > 0, "{report:?}");
    let aside = report.set_aside.iter().find(|aside| name(&aside.path) == table).unwrap();
    assert!(aside.why.contains("ingested"), "{}", aside.why);
    assert_eq!(env.read_file(&aside.path), Some(bytes));
    assert_eq!(contents(&env), written);
}

#[test]
fn the_document_places_ingested_tables() {
    let Store { env, all, .. } = store();
    let files = files(&env).into_iter().map(|(path, bytes)| (name(&path).into(), bytes));
    assert_eq!(read_database(&files.collect(), 0)["default"], all);
}
