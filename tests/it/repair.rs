//! Repair: a damaged database opens afterwards, is sound, and never shows an older value over a
//! newer one that is there. Nothing unusable is deleted, and an interrupted repair can be repeated.

use crate::support::data::key;
use crate::support::reads::all_reads;
use crate::support::rng::Rng;
use crate::support::seal::{
    Stored, Table, data_block, internal_key, masked, put_varint, record_file,
};
use crate::support::stores::{
    HOME, as_env, begun_logs, copy_of, files, files_ending, name, open, scan, small_options,
};
use siftdb::env::testing::CrashModel;
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, MemEnv};
use siftdb::inspect::{self, DumpOptions};
use siftdb::{Db, Error, Options, Recovery, RepairReport, WriteOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: usize = 300;

fn options() -> Options {
    small_options().auto_compaction(false)
}

fn repair(env: &MemEnv) -> siftdb::Result<RepairReport> {
    options().env(as_env(env)).repair(HOME)
}

/// A store with tables in three levels whose ages overlap, a log, and all values that each key
/// ever had; `None` is a deletion.
struct Store {
    env: MemEnv,
    now: Map,
    ever: BTreeMap<Vec<u8>, BTreeSet<Option<Vec<u8>>>>,
}

fn write(db: &Db, store: &mut Store, number: usize, round: usize) {
    let (key, value) = (key(number), format!("{number} in round {round}").into_bytes());
    let deleted = (number + round).is_multiple_of(9);
    match deleted {
        true => {
            db.delete(&key).unwrap();
            store.now.remove(&key);
        }
        false => {
            db.put(&key, &value).unwrap();
            store.now.insert(key.clone(), value.clone());
        }
    }
    store.ever.entry(key).or_default().insert((!deleted).then_some(value));
}

fn delete_range(db: &Db, store: &mut Store, numbers: Range<usize>) {
    db.delete_range(key(numbers.start)..key(numbers.end)).unwrap();
    numbers.for_each(|number| drop(store.now.remove(&key(number))));
}

fn store(closed: bool) -> Store {
    let mut store = Store {
        env: MemEnv::with_log(),
        now: Map::new(),
        ever: (0..KEYS).map(|n| (key(n), BTreeSet::from([None]))).collect(),
    };
    let db = open(&store.env, &options()).unwrap();
    let mut rng = Rng::new(11);
    for round in 0..6 {
        for number in 0..KEYS {
            if round == 0 || rng.chance(30) {
                write(&db, &mut store, number, round);
            }
        }
        if round > 0 {
            delete_range(&db, &mut store, 40 * round..40 * round + 12);
        }
        match round {
            0 | 2 => db.compact_range(..).unwrap(),
            // Only a part is compacted: now tables below are newer than some above.
            3 => {
                db.flush().unwrap();
                db.compact_range(key(200)..).unwrap();
            }
            5 => {}
            _ => db.flush().unwrap(),
        }
    }
    db.sync().unwrap();
    // Obsolete files of flushes are removed in the background.
    while begun_logs(&store.env).len() > 1 {
        std::thread::yield_now();
    }
    match closed {
        true => db.close().unwrap(),
        false => store.env = store.env.replay(store.env.log_len(), CrashModel::Kill, 0),
    }
    drop(db);
    store
}

/// Opens the repaired database in strict mode and checks that it is sound.
fn sound(env: &MemEnv, what: &str) -> Db {
    let db = open(env, &options().recovery(Recovery::Strict));
    let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
    let verified = db.verify(|_| {}).unwrap();
    assert!(verified.is_sound(), "{what}: {:?}", verified.damage);
    db
}

/// All entries of the repaired database, read in every way.
fn all(env: &MemEnv, what: &str) -> Map {
    all_reads(&sound(env, what), (0..KEYS).map(key), what)
}

fn manifest(env: &MemEnv) -> PathBuf {
    let named = env.list_files().into_iter().filter(|path| name(path).starts_with("MANIFEST"));
    named.filter(|path| path.parent() == Some(Path::new(HOME))).max().unwrap()
}

fn home(file: &str) -> PathBuf {
    Path::new(HOME).join(file)
}

/// True if some file has these bytes.
fn is_somewhere(env: &MemEnv, bytes: &[u8]) -> bool {
    env.list_files().iter().any(|path| env.read_file(path).as_deref() == Some(bytes))
}

#[test]
fn repair_leaves_sound_databases_alone() {
    for closed in [true, false] {
        let Store { env, now, .. } = store(closed);
        let before = files(&env);
        let report = repair(&env).unwrap();
        assert!(!report.changed && report.saved_everything(), "{report}");
        assert!(files(&env) == before);
        assert_eq!(scan(&open(&env, &options()).unwrap()).unwrap(), now);
    }
}

#[test]
fn repair_without_manifest_keeps_the_newest_version() {
    for closed in [true, false] {
        let Store { env, now, .. } = store(closed);
        let manifest = manifest(&env);
        let bytes = env.read_file(&manifest).unwrap();
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 8;
        let damages: [(&str, PathBuf, Option<Vec<u8>>); 5] = [
            ("CURRENT missing", home("CURRENT"), None),
            ("CURRENT empty", home("CURRENT"), Some(Vec::new())),
            ("manifest missing", manifest.clone(), None),
            ("manifest flipped", manifest.clone(), Some(flipped)),
            ("manifest cut", manifest.clone(), Some(bytes[..60].to_vec())),
        ];
        for (what, path, contents) in damages {
            let env = copy_of(&files(&env));
            match &contents {
                Some(contents) => env.write_file(&path, contents),
                None => env.remove_file(&path),
            }
            assert!(open(&env, &options()).unwrap_err().is_corruption(), "{what}");
            let report = repair(&env).unwrap();
            // The manifest of a lost CURRENT is still valid.
            assert_eq!(report.manifest_used, what.starts_with("CURRENT"), "{report}");
            assert_eq!(report.saved_everything(), report.manifest_used, "{report}");
            let nothing_lost = report.lost.is_empty() && report.missing.is_empty();
            assert!(report.changed && nothing_lost, "{report}");
            let db = sound(&env, what);
            assert_eq!(all_reads(&db, (0..KEYS).map(key), what), now, "{what}");
            let stats = db.stats();
            assert!(report.manifest_used || stats.levels[0].tables == 0, "{what}");
            assert!(stats.total().tables > 0, "{what}");
            db.put(key(1), "after").unwrap();
            assert_eq!(db.get(key(1)).unwrap().as_deref(), Some(&b"after"[..]));
            db.close().unwrap();
            drop(db);
            if let Some(contents) = contents.filter(|contents| !contents.is_empty()) {
                assert!(is_somewhere(&env, &contents), "{what}: what was damaged is gone");
            }
            let before = files(&env);
            assert!(!repair(&env).unwrap().changed, "{what}: repaired twice");
            assert!(files(&env) == before);
        }
    }
}

/// The largest sequence of a table says nothing about each of its keys: here the table with the
/// larger one has the older version.
#[test]
fn repair_orders_versions_across_tables() {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    db.put("a", "old").unwrap();
    db.put("z", "1").unwrap();
    db.compact_range(..).unwrap();
    db.put("a", "new").unwrap();
    db.flush().unwrap();
    db.put("z", "2").unwrap();
    db.flush().unwrap();
    db.compact_range("b"..).unwrap();
    let levels: Vec<u64> = db.stats().levels.iter().map(|level| level.tables).collect();
    assert_eq!(&levels[..2], [1, 1], "the newer a is above, the newer z below");
    db.close().unwrap();
    drop(db);
    env.remove_file(&home("CURRENT"));
    env.remove_file(&manifest(&env));
    repair(&env).unwrap();
    let db = sound(&env, "repaired");
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(db.get("z").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn repair_reports_exactly_what_damage_cost() {
    let Store { env, now, ever } = store(true);
    let image = files(&env);
    let (mut with_loss, mut whole) = (0, 0);
    for table in files_ending(&env, ".sst") {
        let good = &image[&table];
        for at in (0..good.len()).step_by((good.len() / 40).max(1)) {
            let what = format!("{} at {at}", table.display());
            let env = copy_of(&image);
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            env.write_file(&table, &bad);
            let report = repair(&env).unwrap();
            assert!(report.changed && report.manifest_used, "{what}: {report}");
            assert!(is_somewhere(&env, &bad), "{what}: the damaged table is gone");
            let found = all(&env, &what);
            for (key, values) in &ever {
                if found.get(key) == now.get(key) {
                    continue;
                }
                assert!(
                    values.contains(&found.get(key).cloned()),
                    "{what}: a value out of thin air"
                );
                let named = report.lost.iter().any(|lost| {
                    lost.path == table
                        && lost.from.as_ref().is_none_or(|from| from <= key)
                        && lost.to.as_ref().is_none_or(|to| key <= to)
                });
                assert!(named, "{what}: {} changed unsaid: {report}", key.escape_ascii());
            }
            match report.lost.is_empty() {
                true => whole += 1,
                false => with_loss += 1,
            }
        }
    }
    assert!(with_loss > 40 && whole > 3, "{with_loss}, {whole}");
}

/// Who reads it has just repaired the database.
#[test]
fn reports_of_repairs_advise_no_repair() {
    let Store { env, .. } = store(true);
    let image = files(&env);
    let tables = files_ending(&env, ".sst");
    let mut said = 0;
    for (n, table) in tables.iter().enumerate() {
        for damage in [&[0x5a_u8; 40][..], &[]] {
            let env = copy_of(&image);
            let mut bad = image[table].clone();
            // The first block, or all blocks and the footer.
            match damage {
                [] => bad.truncate(100),
                damage => bad[40..80].copy_from_slice(damage),
            }
            env.write_file(table, &bad);
            if n == 0 {
                env.remove_file(&Path::new(HOME).join("CURRENT"));
                env.write_file(&begun_logs(&env)[0], b"siftdbWL no log");
            }
            let report = repair(&env).unwrap();
            said += report.lost.len() + report.set_aside.len() + report.dropped.len();
            for advice in ["siftdb repair", "repair the database", "from a copy"] {
                assert!(!report.to_string().contains(advice), "{report}");
            }
        }
    }
    assert!(said > 2 * tables.len(), "{said}");
}

/// A format version counts if the footer's checksum is correct. Then a newer siftdb wrote the table
/// and has to repair it. Otherwise the footer is damaged, and no block needs it.
#[test]
fn repair_stops_at_another_format_version() {
    let Store { env, .. } = store(true);
    let image = files(&env);
    for table in files_ending(&env, ".sst") {
        let version = image[&table].len() - 12;
        for bit in 0..32 {
            let env = copy_of(&image);
            let mut bad = image[&table].clone();
            bad[version + bit / 8] ^= 1 << (bit % 8);
            env.write_file(&table, &bad);
            let error = open(&env, &options()).unwrap_err();
            assert!(matches!(&error, Error::Corruption { path, .. } if *path == table), "{error}");
            let report = repair(&env).unwrap();
            assert!(report.manifest_used && report.tables_kept > 0, "{report}");
            assert!(report.saved_everything() && report.tables_written > 0, "{report}");
            let aside: Vec<_> = report.set_aside.iter().map(|file| name(&file.path)).collect();
            assert!(aside.contains(&name(&table)) && is_somewhere(&env, &bad), "{report}");
            sound(&env, "repaired");
        }
        let mut newer = image[&table].clone();
        newer[version] = 3;
        let footer = version - 44;
        let sum = masked(&[&newer[footer..footer + 40], &newer[footer + 44..]]);
        newer[footer + 40..footer + 44].copy_from_slice(&sum.to_le_bytes());
        let env = copy_of(&image);
        env.write_file(&table, &newer);
        let before = files(&env);
        let error = repair(&env).unwrap_err();
        assert!(matches!(&error, Error::UnsupportedFormat { path, .. } if *path == table));
        assert!(files(&env) == before);
    }
}

/// As for tables. The records of a log have checksums and the log's number, so no write is lost.
/// Without its manifest a database is rebuilt from the tables.
#[test]
fn a_flipped_version_costs_its_file_only() {
    let Store { env, now, .. } = store(false);
    let image = files(&env);
    let is_log = |path: &Path| name(path).ends_with(".wal");
    let headed = image.keys().filter(|path| is_log(path) || name(path).starts_with("MANIFEST-"));
    let headed: Vec<_> = headed.collect();
    assert_eq!(headed.len(), 2);
    for path in headed {
        for bit in 0..32 {
            let env = copy_of(&image);
            let mut bad = image[path].clone();
            bad[8 + bit / 8] ^= 1 << (bit % 8);
            env.write_file(path, &bad);
            let error = open(&env, &options()).unwrap_err();
            assert!(matches!(&error, Error::Corruption { path: at, .. } if at == path), "{error}");
            let report = repair(&env).unwrap();
            assert_eq!((report.changed, report.manifest_used), (true, is_log(path)), "{report}");
            assert_eq!(report.dropped.len(), 1, "{report}");
            assert!(report.dropped[0].path == *path && report.missing.is_empty(), "{report}");
            assert!(is_somewhere(&env, &bad), "{report}");
            assert_eq!(all(&env, "repaired"), now);
        }
        let mut newer = image[path].clone();
        newer[8] = 3;
        let sum = masked(&[&newer[..16]]);
        newer[16..20].copy_from_slice(&sum.to_le_bytes());
        // Everything else is in order, or other tables would have to be rescued first.
        for damaged in [false, true] {
            let env = copy_of(&image);
            env.write_file(path, &newer);
            if damaged {
                env.remove_file(&home("CURRENT"));
                let table = files_ending(&env, ".sst").remove(0);
                let mut bad = image[&table].clone();
                bad[100] ^= 1;
                env.write_file(&table, &bad);
            }
            let before = files(&env);
            let error = repair(&env).unwrap_err();
            assert!(matches!(&error, Error::UnsupportedFormat { path: at, .. } if at == path));
            assert!(files(&env) == before, "{}, {damaged}", path.display());
        }
    }
}

/// There is no file number above that of such a table. The repaired manifest named it, and was
/// refused. Found by fuzzing.
#[test]
fn tables_under_impossible_numbers_are_ignored() {
    let other = MemEnv::with_log();
    let db = open(&other, &options()).unwrap();
    db.put("zz", "of another").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let table = other.read_file(&files_ending(&other, ".sst")[0]).unwrap();
    let Store { env, now, .. } = store(true);
    let huge = home("18446744073709551593.sst");
    env.write_file(&huge, &table);
    env.remove_file(&home("CURRENT"));
    assert!(repair(&env).unwrap().changed);
    assert_eq!(all(&env, "repaired"), now);
    assert_eq!(env.read_file(&huge), Some(table));
}

/// The log stayed in place, and the repaired database was refused because of it. Found by fuzzing.
#[test]
fn logs_under_impossible_numbers_are_set_aside() {
    let Store { env, now, .. } = store(true);
    let huge = home("18446744073709551592.wal");
    env.write_file(&huge, b"no log");
    assert!(repair(&env).unwrap().changed);
    assert_eq!(all(&env, "repaired"), now);
    assert!(env.read_file(&huge).is_none() && is_somewhere(&env, b"no log"));
}

/// The log passed for a torn end until the next session began an older log. Found by fuzzing.
#[test]
fn empty_logs_under_huge_numbers_move_aside() {
    let Store { env, now, .. } = store(false);
    let huge = home("18446744073709551601.wal");
    env.write_file(&huge, b"");
    assert!(repair(&env).unwrap().changed);
    assert!(env.read_file(&huge).is_none());
    assert_eq!(all(&env, "repaired"), now);
    assert!(!repair(&env).unwrap().changed);
}

/// The repaired manifest repeated the sequence, and was refused. Found by fuzzing.
#[test]
fn logs_with_impossible_sequences_are_repaired() {
    let mut start = Vec::new();
    put_varint(&mut start, 1 << 56);
    start.extend_from_slice(&[0, 0, 1, 1, 0, 0]);
    start.extend_from_slice(&[[0; 16].as_slice(), &[1]].concat());
    let record = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, b'k', 1, b'v', 2];
    let env = MemEnv::with_log();
    env.create_dir(Path::new(HOME)).unwrap();
    env.write_file(&home("000002.wal"), &record_file(b"siftdbWL", 2, &[start, record]));
    let report = repair(&env).unwrap();
    assert_eq!((report.entries, report.last_sequence), (1, 1), "{report}");
    assert_eq!(sound(&env, "repaired").get("k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Such entries came back as the newest of all, against the manifest. Found by fuzzing.
#[test]
fn entries_newer_than_their_table_are_dropped() {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    db.put("k", "new").unwrap();
    let env = env.replay(env.log_len(), CrashModel::Kill, 0);
    let path = files_ending(&env, ".sst").remove(0);
    let mut table = Table::take_apart(&env.read_file(&path).unwrap()).unwrap();
    table.data[0].1 = Stored::raw(data_block(&internal_key(b"k", 1000, 1), b"old"));
    env.write_file(&path, &table.assemble());
    let report = repair(&env).unwrap();
    assert_eq!((report.manifest_used, report.entries_lost), (true, 1), "{report}");
    assert_eq!(sound(&env, "repaired").get("k").unwrap().as_deref(), Some(&b"new"[..]));
}

/// FAT and some network file systems have no hard links.
#[test]
fn repair_copies_files_without_hard_links() {
    let Store { env: original, ever, .. } = store(true);
    let table = files_ending(&original, ".sst").remove(0);
    for code in [1, 95] {
        let env = copy_of(&files(&original));
        let mut bad = env.read_file(&table).unwrap();
        // The copy takes more than one step, and must have every byte.
        bad.extend_from_slice(&vec![7; 3 << 20]);
        env.write_file(&table, &bad);
        let links = Calls::Named("hard_link");
        let faulty = FaultEnv::new(as_env(&env));
        faulty.fail_at(0, Fault::from_then_on(FaultKind::Error(code)).among(links));
        let report = options().env(Arc::new(faulty.clone())).repair(HOME).unwrap();
        assert!(faulty.has_fired() && report.set_aside.len() == 1, "{report}");
        assert_eq!(env.read_file(&report.set_aside[0].path).as_ref(), Some(&bad));
        let copied = env.power_cut().read_file(&report.set_aside[0].path);
        assert_eq!(copied.as_ref(), Some(&bad), "not durable");
        let found = all(&env, "repaired");
        assert!(found.iter().all(|(key, value)| ever[key].contains(&Some(value.clone()))));
    }
}

#[test]
fn repair_keeps_everything_readable() {
    let Store { env, ever, .. } = store(false);
    let image = files(&env);
    let tables = files_ending(&env, ".sst");
    for (number, missing) in tables.iter().enumerate() {
        let env = copy_of(&image);
        env.remove_file(missing);
        let other = &tables[(number + 1) % tables.len()];
        let mut bad = image[other].clone();
        let middle = bad.len() / 3;
        bad[middle] ^= 1;
        env.write_file(other, &bad);
        env.write_file(&home("000900.sst"), b"no table at all");
        let report = repair(&env).unwrap();
        assert!(report.manifest_used && !report.saved_everything(), "{report}");
        assert!(report.lost.iter().any(|lost| lost.path == *missing), "{report}");
        assert!(is_somewhere(&env, b"no table at all") && is_somewhere(&env, &bad));
        for (key, value) in all(&env, "repaired") {
            assert!(ever[&key].contains(&Some(value)));
        }
    }
}

/// Two tables of level 0 that share their keys: the newer one has all the deletions and the newer
/// values, the older one several blocks.
fn two_ages() -> (MemEnv, Map, [PathBuf; 2]) {
    let env = MemEnv::with_log();
    let db = open(&env, &options().write_buffer_bytes(1 << 20)).unwrap();
    for number in 0..2000 {
        db.put(key(number), format!("old {number}")).unwrap();
    }
    db.put("k", "old").unwrap();
    db.put("s", "secret").unwrap();
    db.flush().unwrap();
    db.put("k", "new").unwrap();
    db.delete("s").unwrap();
    db.put(key(1500), "new").unwrap();
    db.delete(key(700)).unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().levels[0].tables, 2);
    let now = scan(&db).unwrap();
    db.close().unwrap();
    drop(db);
    let tables = files_ending(&env, ".sst");
    (env, now, tables.try_into().unwrap())
}

fn all_of_two_ages(env: &MemEnv, what: &str) -> Map {
    let keys = (0..2000).step_by(7).map(key).chain(["k", "s"].map(Vec::from));
    let found = all_reads(&sound(env, what), keys, what);
    let before = files(env);
    let again = repair(env).unwrap();
    assert!(!again.changed && again.saved_everything(), "{what}: repaired twice: {again}");
    assert!(files(env) == before, "{what}");
    found
}

/// The rescued table got a higher number than the newer one, and was searched first.
#[test]
fn rescued_tables_keep_their_age() {
    let (env, now, [older, newer]) = two_ages();
    let image = files(&env);
    let mut with_loss = 0;
    for damaged in [&older, &newer] {
        let good = &image[damaged];
        for at in (0..good.len()).step_by(good.len() / 24) {
            let what = format!("{} at {at}", name(damaged));
            let env = copy_of(&image);
            let mut bad = good.clone();
            bad[at] ^= 1;
            env.write_file(damaged, &bad);
            let report = repair(&env).unwrap();
            assert!(report.changed && report.manifest_used, "{what}: {report}");
            with_loss += usize::from(!report.lost.is_empty());
            let found = all_of_two_ages(&env, &what);
            if damaged == &older {
                assert_eq!(found.get(&b"k"[..]), now.get(&b"k"[..]), "{what}");
                assert_eq!(found.get(&b"s"[..]), None, "{what}: a deleted key is back");
                assert!(found.iter().all(|(key, value)| now.get(key) == Some(value)), "{what}");
            }
        }
    }
    assert!(with_loss > 10, "{with_loss}");
}

#[test]
fn exchanged_tables_of_level_0_keep_their_ages() {
    let (env, now, [older, newer]) = two_ages();
    let bytes = [&older, &newer].map(|path| env.read_file(path).unwrap());
    env.write_file(&older, &bytes[1]);
    env.write_file(&newer, &bytes[0]);
    let report = repair(&env).unwrap();
    assert!(report.manifest_used && report.saved_everything(), "{report}");
    assert_eq!(all_of_two_ages(&env, "exchanged"), now);
}

#[test]
fn exchanged_tables_are_known_by_their_ids() {
    let Store { env, now, .. } = store(true);
    let tables = files_ending(&env, ".sst");
    let bytes: Vec<_> = tables.iter().map(|path| env.read_file(path).unwrap()).collect();
    env.write_file(&tables[0], &bytes[1]);
    env.write_file(&tables[1], &bytes[0]);
    assert!(open(&env, &options()).unwrap_err().is_corruption());
    let report = repair(&env).unwrap();
    assert!(report.manifest_used && report.saved_everything(), "{report}");
    assert_eq!(all(&env, "exchanged"), now);
}

#[test]
fn a_manifest_prevents_resurrected_keys() {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    (0..50).for_each(|number| db.put(key(number), "value").unwrap());
    db.flush().unwrap();
    let old = files(&env);
    db.delete(key(7)).unwrap();
    db.compact_range(..).unwrap();
    db.put("log", "1").unwrap();
    db.close().unwrap();
    drop(db);
    // The replaced table is still there, and the live one no longer has the tombstone.
    let live = files_ending(&env, ".sst");
    for (path, bytes) in old.iter().filter(|(path, _)| name(path).ends_with(".sst")) {
        env.write_file(path, bytes);
    }
    // A damaged filter needs a repair and loses no entry.
    let mut bytes = env.read_file(&live[0]).unwrap();
    let at = bytes.len() / 3;
    let damaged = (at..bytes.len() - 60).find_map(|at| {
        bytes[at] ^= 4;
        env.write_file(&live[0], &bytes);
        let copy = copy_of(&files(&env));
        let report = repair(&copy).unwrap_or_default();
        bytes[at] ^= 4;
        (report.manifest_used && report.changed && report.lost.is_empty()).then_some((copy, report))
    });
    let (env, report) = damaged.unwrap();
    assert!(report.set_aside.iter().any(|file| file.why.contains("does not name")), "{report}");
    let db = sound(&env, "repaired");
    assert_eq!(db.get(key(7)).unwrap(), None, "a deleted key is back");
    assert_eq!(db.iter().count(), 50);
}

#[test]
fn repair_reads_every_sound_log_record() {
    // A log in the middle; and the last one, which only the end of its predecessor mentions.
    for (closed, lost) in [(false, 7), (true, 19)] {
        let mut env = MemEnv::with_log();
        let db = open(&env, &options()).unwrap();
        for number in 0..20 {
            db.write_with(batch(number), &WriteOptions::new().sync(true)).unwrap();
        }
        match closed {
            true => db.close().unwrap(),
            false => env = env.replay(env.log_len(), CrashModel::Kill, 0),
        }
        drop(db);
        let log = begun_logs(&env).pop().unwrap();
        let mut bytes = env.read_file(&log).unwrap();
        let at = bytes.windows(key(lost).len()).position(|window| *window == *key(lost)).unwrap();
        bytes[at] ^= 1;
        env.write_file(&log, &bytes);
        assert!(open(&env, &options()).unwrap_err().is_corruption());
        let report = repair(&env).unwrap();
        assert!(report.manifest_used && report.log_entries == 19, "{report}");
        let number = lost as u64 + 1;
        assert_eq!((&report.missing[..], report.last_sequence), (&[number..=number][..], 20));
        assert!(is_somewhere(&env, &bytes));
        let db = sound(&env, "repaired");
        assert_eq!((db.iter().count(), db.get(key(lost)).unwrap()), (19, None));
        db.put(key(3), "again").unwrap();
        assert_eq!(db.get(key(3)).unwrap().as_deref(), Some(&b"again"[..]));
        assert!(db.explain(key(3)).unwrap().sequence > 20);
    }
}

fn batch(number: usize) -> siftdb::WriteBatch {
    let mut batch = siftdb::WriteBatch::new();
    batch.put(key(number), "in the log");
    batch
}

/// Damaged databases whose repair restores all entries of `now`, with the files that must stay.
fn damaged_stores() -> Vec<(&'static str, MemEnv, Map, Vec<u8>)> {
    let Store { env, now, .. } = store(true);
    let image = files(&env);
    let on_disk = |change: &dyn Fn(&MemEnv)| {
        let env = MemEnv::with_log();
        image.iter().for_each(|(path, bytes)| env.write_file(path, bytes));
        change(&env);
        env
    };
    let junk = b"siftdb, or what is left of it".to_vec();
    let without_current = on_disk(&|env| env.remove_file(&home("CURRENT")));
    without_current.write_file(&home("000900.sst"), &junk);
    // The data is sound and the filter is not: with the manifest everything is restored.
    let tables = files_ending(&env, ".sst");
    let filter = (0..image[&tables[0]].len()).rev().step_by(3).find_map(|at| {
        let mut bad = image[&tables[0]].clone();
        bad[at] ^= 1;
        let env = on_disk(&|env| env.write_file(&tables[0], &bad));
        let copy = copy_of(&files(&env));
        let report = repair(&copy).unwrap_or_default();
        (report.changed && report.saved_everything() && report.manifest_used).then_some((env, bad))
    });
    let (with_manifest, bad) = filter.unwrap();
    vec![
        ("without CURRENT", without_current, now.clone(), junk),
        ("with its manifest", with_manifest, now, bad),
    ]
}

#[test]
fn a_crashed_repair_can_be_repeated() {
    for (what, env, now, kept) in damaged_stores() {
        let before = env.log_len();
        repair(&env).unwrap();
        let (mut opened, mut repeated) = (0, 0);
        for call in before..=env.log_len() {
            for (model, seed) in
                [(CrashModel::Kill, 0), (CrashModel::Journal, 1), (CrashModel::Posix, 0)]
            {
                let place = format!("{what}, call {call}, {model:?}");
                let crashed = env.replay(call, model, seed);
                assert!(is_somewhere(&crashed, &kept), "{place}: what could not be used is gone");
                if let Ok(db) = open(&copy_of(&files(&crashed)), &options())
                    && db.verify(|_| {}).unwrap().is_sound()
                {
                    assert_eq!(scan(&db).unwrap(), now, "{place}, opened");
                    opened += 1;
                }
                let report = repair(&crashed).unwrap_or_else(|error| panic!("{place}: {error}"));
                repeated += usize::from(report.changed);
                assert!(report.missing.is_empty(), "{place}: {report}");
                // After every call, the directory has the old database or the repaired one.
                let has_manifest = what == "with its manifest";
                assert!(report.manifest_used || !has_manifest, "{place}: {report}");
                assert_eq!(all(&crashed, &place), now, "{place}, repaired");
                assert!(is_somewhere(&crashed, &kept), "{place}: gone after the second repair");
            }
        }
        assert!(opened > 5 && repeated > 20, "{what}: {opened}, {repeated}");
    }
}

#[test]
fn a_failed_repair_can_be_repeated() {
    for (what, env, now, kept) in damaged_stores() {
        let image = files(&env);
        for n in 0.. {
            let disk = copy_of(&image);
            let faulty = Arc::new(FaultEnv::new(Arc::new(disk.clone())));
            faulty.fail_at(n, Fault::once(FaultKind::Error(EIO)).among(Calls::Changes));
            let outcome = options().env(Arc::clone(&faulty) as Arc<dyn Env>).repair(HOME);
            let place = format!("{what}, call {n}");
            assert!(is_somewhere(&disk, &kept), "{place}: what could not be used is gone");
            if let Err(error) = &outcome {
                assert!(matches!(error, Error::Io { .. }), "{place}: {error}");
                repair(&disk).unwrap();
            }
            assert_eq!(all(&disk, &place), now, "{place}");
            if faulty.calls_of(Calls::Changes) <= n {
                assert!(outcome.is_ok() && n > 10, "{place}");
                break;
            }
        }
    }
}

#[test]
fn repair_refuses_locked_and_foreign_databases() {
    let env = MemEnv::with_log();
    assert!(matches!(repair(&env), Err(Error::Io { .. })), "no directory");
    env.create_dir(Path::new(HOME)).unwrap();
    env.write_file(&home("foreign"), b"of someone else");
    assert!(matches!(repair(&env), Err(Error::Io { .. })), "no database");
    assert_eq!(env.list_files(), [home("foreign")]);
    let Store { env, .. } = store(true);
    let db = open(&env, &options()).unwrap();
    assert!(matches!(repair(&env), Err(Error::Locked { .. })));
    drop(db);
    let invalid = options().block_bytes(0).env(as_env(&env)).repair(HOME);
    assert!(matches!(invalid, Err(Error::InvalidOptions { .. })));
    // Foreign files next to a database stay where they are.
    env.write_file(&home("foreign.sst"), b"of someone else");
    env.remove_file(&home("CURRENT"));
    repair(&env).unwrap();
    assert_eq!(env.read_file(&home("foreign.sst")).as_deref(), Some(&b"of someone else"[..]));
}

/// A separate disk with the files of a database whose `CURRENT` is damaged.
fn on_real_disk(image: &BTreeMap<PathBuf, Vec<u8>>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, bytes) in image {
        fs::write(directory.path().join(name(path)), bytes).unwrap();
    }
    directory
}

#[test]
fn repair_keeps_existing_lost_names() {
    let Store { env, now, .. } = store(true);
    let bad = b"no line of siftdb";
    env.write_file(&home("CURRENT"), bad);
    let image = files(&env);
    for (kind, folder) in [("file", "lost.2"), ("link", "lost.2"), ("folder", "lost")] {
        let directory = on_real_disk(&image);
        let at = |name: &str| directory.path().join(name);
        for lost in ["lost", "lost.1"] {
            match kind {
                "file" => fs::write(at(lost), b"of someone else").unwrap(),
                "link" => std::os::unix::fs::symlink("/nowhere", at(lost)).unwrap(),
                _ => fs::create_dir(at(lost)).unwrap(),
            }
        }
        let report = options().repair(directory.path()).unwrap();
        assert!(report.changed && report.saved_everything(), "{kind}: {report}");
        let aside = |name: &str| report.set_aside.iter().any(|file| file.path == at(name));
        assert!(aside(&format!("{folder}/CURRENT")), "{kind}: {report}");
        assert_eq!(fs::read(at(&format!("{folder}/CURRENT"))).unwrap(), bad, "{kind}");
        match kind {
            "file" => assert_eq!(fs::read(at("lost.1")).unwrap(), b"of someone else"),
            "link" => assert!(fs::symlink_metadata(at("lost")).unwrap().is_symlink()),
            _ => assert_eq!(fs::read_dir(at("lost.1")).unwrap().count(), 0),
        }
        let db = options().open(directory.path()).unwrap();
        assert_eq!(scan(&db).unwrap(), now, "{kind}");
    }
}

/// Fifty keys, of which one was deleted and its tombstone dropped; a second table; a log. A
/// replaced table with the deleted key is still on the disk.
fn with_a_replaced_table() -> MemEnv {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    (0..50).for_each(|number| db.put(key(number), "value").unwrap());
    db.flush().unwrap();
    let old = files(&env);
    db.delete(key(7)).unwrap();
    db.compact_range(..).unwrap();
    (60..90).for_each(|number| db.put(key(number), "value").unwrap());
    db.flush().unwrap();
    db.put("log", "1").unwrap();
    db.close().unwrap();
    drop(db);
    for (path, bytes) in old.iter().filter(|(path, _)| name(path).ends_with(".sst")) {
        env.write_file(path, bytes);
    }
    copy_of(&files(&env))
}

/// Files of a database of its own with 10 keys, `value` in all of them.
fn ten_keys(value: &str) -> MemEnv {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    (0..10).for_each(|number| db.put(key(number), value).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    copy_of(&files(&env))
}

fn table_with_text(report: &RepairReport, why: &str) -> bool {
    report.set_aside.iter().any(|file| name(&file.path).ends_with(".sst") && file.why == why)
}

#[test]
fn tables_of_other_databases_are_set_aside() {
    let foreign = ten_keys("foreign");
    let foreign = foreign.read_file(&files_ending(&foreign, ".sst")[0]).unwrap();
    for has_manifest in [true, false] {
        for replaces in [true, false] {
            let env = ten_keys("own");
            // A second table, which says without a manifest which database this is.
            let db = open(&env, &options()).unwrap();
            db.put("second", "own").unwrap();
            db.flush().unwrap();
            db.close().unwrap();
            drop(db);
            let env = copy_of(&files(&env));
            let own = files_ending(&env, ".sst").remove(0);
            let to = if replaces { own } else { home("000900.sst") };
            env.write_file(&to, &foreign);
            if !has_manifest {
                env.remove_file(&manifest(&env));
            }
            let what = format!("manifest {has_manifest}, replaces {replaces}");
            let report = repair(&env).unwrap();
            // Nothing is damaged if the manifest does not name the number.
            let changed = replaces || !has_manifest;
            assert_eq!(report.changed, changed, "{what}: {report}");
            let is_aside = table_with_text(&report, "another database wrote this table");
            assert_eq!(is_aside, changed, "{what}: {report}");
            assert_eq!(report.saved_everything(), !changed, "{what}: {report}");
            let shown = all(&env, &what);
            assert!(shown.values().all(|value| value == b"own"), "{what}");
            assert_eq!(shown.len(), if replaces { 1 } else { 11 }, "{what}");
        }
    }
}

/// A checkpoint of the database of `env`, as a database of its own, with a table more.
fn next_generation(env: &MemEnv, generation: usize) -> MemEnv {
    let db = open(env, &options()).unwrap();
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    drop(db);
    let of_copy = files(env).into_iter().filter(|(path, _)| path.starts_with("/copy"));
    let env = copy_of(&of_copy.map(|(path, bytes)| (home(name(&path)), bytes)).collect());
    let db = open(&env, &options()).unwrap();
    db.put(format!("generation {generation}"), "own").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    env
}

/// A table names the 15 nearest ancestors. Tables of those name farther ones.
#[test]
fn repair_keeps_tables_of_a_long_chain_of_checkpoints() {
    let mut env = ten_keys("own");
    for generation in 0..20 {
        env = next_generation(&env, generation);
    }
    let before = all(&env, "before");
    assert_eq!(before.len(), 30);
    for round in 0..2 {
        env.remove_file(&manifest(&env));
        let report = repair(&env).unwrap();
        let what = format!("round {round}: {report}");
        assert!(!table_with_text(&report, "another database wrote this table"), "{what}");
        assert_eq!(all(&env, &what), before, "{what}");
    }
    // Beyond the bound without the tables between: the oldest table could be of any database. It
    // stays where a manifest names it, and is set aside and reported otherwise.
    let mut env = ten_keys("own");
    for generation in 0..20 {
        env = next_generation(&env, generation);
    }
    let tables = files_ending(&env, ".sst");
    let newest = inspect::table_facts(&as_env(&env), tables.last().unwrap()).unwrap();
    assert_eq!(newest.databases.len(), 1 + 15, "{newest:?}");
    let mut manifest_text = Vec::new();
    let with = DumpOptions::default();
    inspect::dump(&as_env(&env), &manifest(&env), &with, &mut manifest_text).unwrap();
    let named = String::from_utf8(manifest_text).unwrap().matches("ancestor ").count();
    assert_eq!(named, 15);
    let between = &tables[1..tables.len() - 1];
    between.iter().for_each(|path| env.remove_file(path));
    let cut = copy_of(&files(&env));
    let report = repair(&env).unwrap();
    assert!(!table_with_text(&report, "another database wrote this table"), "{report}");
    assert!(all(&env, "with a manifest").contains_key(&key(9)));
    cut.remove_file(&manifest(&cut));
    let report = repair(&cut).unwrap();
    assert!(table_with_text(&report, "another database wrote this table"), "{report}");
    assert!(!report.saved_everything());
}

/// A checkpoint, and what is written to it, without its manifest.
#[test]
fn repair_of_checkpoints_keeps_tables_of_their_source() {
    for writes in [false, true] {
        let env = ten_keys("own");
        let db = open(&env, &options()).unwrap();
        db.checkpoint("/copy").unwrap();
        db.close().unwrap();
        drop(db);
        let of_copy = files(&env).into_iter().filter(|(path, _)| path.starts_with("/copy"));
        let moved = of_copy.map(|(path, bytes)| (home(name(&path)), bytes));
        let env = copy_of(&moved.collect());
        if writes {
            let db = open(&env, &options()).unwrap();
            db.put("second", "own").unwrap();
            db.flush().unwrap();
            db.close().unwrap();
        }
        // The second repair knows only what the first one wrote.
        for round in 0..2 {
            let what = format!("writes {writes}, round {round}");
            env.remove_file(&manifest(&env));
            let report = repair(&env).unwrap();
            assert!(report.changed && !report.saved_everything(), "{what}: {report}");
            assert_eq!(all(&env, &what).len(), 10 + usize::from(writes), "{what}: {report}");
            let db = open(&env, &options()).unwrap();
            db.put("second", "own").unwrap();
            db.delete("second").unwrap();
            if writes {
                db.put("second", "own").unwrap();
            }
            db.flush().unwrap();
            db.close().unwrap();
        }
    }
}

/// Each of these invalidated the manifest, and the replaced table resurrected its deleted key.
#[test]
fn repair_reports_only_missing_sequences() {
    let image = files(&with_a_replaced_table());
    let tables: Vec<_> = image.keys().filter(|path| name(path).ends_with(".sst")).collect();
    // The replaced table, the compacted one, the flushed one.
    assert_eq!(tables.len(), 3);
    for (missing, left) in [("CURRENT", 80), ("table 1", 31), ("table 2", 50), ("both", 31)] {
        let env = copy_of(&image);
        let table = if missing == "table 2" { tables[2] } else { tables[1] };
        if missing != "CURRENT" {
            env.remove_file(table);
        }
        if missing == "CURRENT" || missing == "both" {
            env.remove_file(&home("CURRENT"));
        }
        let report = repair(&env).unwrap();
        assert!(report.changed && report.manifest_used, "{missing}: {report}");
        assert_eq!(report.saved_everything(), missing == "CURRENT", "{missing}: {report}");
        if !report.saved_everything() {
            let [lost] = &report.lost[..] else { panic!("{missing}: {report}") };
            assert!(lost.path == *table && lost.what.contains("missing"), "{report}");
            let (from, to) = if missing == "table 2" { (60, 89) } else { (0, 49) };
            assert_eq!((&lost.from, &lost.to), (&Some(key(from)), &Some(key(to))), "{report}");
            assert_eq!(report.entries_lost, to as u64 - from as u64 + u64::from(from > 0));
        }
        let found = all(&env, missing);
        assert!(!found.contains_key(&key(7)), "{missing}: a deleted key is back");
        assert_eq!(found.len(), left, "{missing}");
        assert!(found.contains_key(&b"log"[..]));
    }
}

#[test]
fn repair_names_missing_logs() {
    // Short sessions. Each flushes what it recovered, unless its close comes first: then the logs of
    // all three are there.
    let (image, logs) = loop {
        let env = MemEnv::with_log();
        for session in 0..3 {
            let db = open(&env, &options().immutable_memtables_max(8)).unwrap();
            (0..5).for_each(|number| db.put(key(5 * session + number), "value").unwrap());
            db.close().unwrap();
        }
        let logs = begun_logs(&env);
        if logs.len() == 3 {
            break (files(&env), logs);
        }
    };
    for (place, log) in logs.iter().enumerate() {
        let env = copy_of(&image);
        env.remove_file(log);
        let report = repair(&env).unwrap();
        assert!(report.manifest_used && !report.saved_everything(), "{report}");
        let named = report.lost.iter().find(|lost| lost.path == *log);
        assert!(named.is_some_and(|lost| lost.what.contains("missing")), "{report}");
        let first = 5 * place as u64 + 1;
        assert_eq!(report.missing, [first..=first + 4], "{report}");
        let left = (0..15).filter(|number| number / 5 != place).map(key);
        assert!(all(&env, "repaired").into_keys().eq(left), "{}", log.display());
    }
}

/// Where each edit of a manifest ends.
fn ends_of_edits(env: &MemEnv, manifest: &Path) -> Vec<usize> {
    let mut text = Vec::new();
    let dump = siftdb::inspect::dump(&as_env(env), manifest, &Default::default(), &mut text);
    dump.unwrap();
    let bytes = env.read_file(manifest).unwrap().len();
    let text = String::from_utf8(text).unwrap();
    let edits = text.lines().filter_map(|line| line.trim_start().split_once("  edit "));
    let starts = edits.filter_map(|(start, _)| start.parse().ok());
    starts.skip(1).chain([bytes]).collect()
}

/// A manifest that lost its last edits names tables that a compaction has replaced, or a flushed
/// log, and not their replacements. Its tables are placed correctly, and the repair adds the
/// others.
#[test]
fn a_manifest_without_its_last_edits_costs_nothing() {
    for closed in [true, false] {
        let Store { env, now, .. } = store(closed);
        let image = files(&env);
        let manifest = manifest(&env);
        let good = &image[&manifest];
        let mut cuts: Vec<usize> = ends_of_edits(&env, &manifest);
        assert!(cuts.len() > 3, "{cuts:?}");
        cuts.extend((40..good.len()).step_by(good.len() / 60 + 1));
        for cut in cuts.into_iter().filter(|cut| *cut < good.len()) {
            let what = format!("cut at {cut} of {}", good.len());
            let env = copy_of(&image);
            env.write_file(&manifest, &good[..cut]);
            let report = repair(&env).unwrap_or_else(|error| panic!("{what}: {error}"));
            // A crash may leave a torn end, and nothing else.
            let db = match report.changed {
                true => sound(&env, &what),
                false => open(&env, &options()).unwrap(),
            };
            assert_eq!(all_reads(&db, (0..KEYS).map(key), &what), now, "{what}: {report}");
        }
    }
}

#[test]
fn repair_uses_the_newest_whole_manifest() {
    let env = MemEnv::with_log();
    let sessions: Vec<_> = (0..3)
        .map(|session| {
            let db = open(&env, &options()).unwrap();
            (0..9).for_each(|number| db.put(key(9 * session + number), "value").unwrap());
            db.flush().unwrap();
            db.close().unwrap();
            drop(db);
            let manifest = manifest(&env);
            (manifest.clone(), env.read_file(&manifest).unwrap())
        })
        .collect();
    let now = scan(&open(&env, &options()).unwrap()).unwrap();
    let image = files(&env);
    let (newest, contents) = sessions.last().unwrap();
    let copy = |broken: &[u8]| {
        let env = copy_of(&image);
        sessions.iter().for_each(|(path, bytes)| env.write_file(path, bytes));
        env.write_file(newest, broken);
        env.remove_file(&home("CURRENT"));
        env
    };
    let whole = copy(contents);
    let report = repair(&whole).unwrap();
    assert!(report.manifest_used && report.tables_kept == 3 && report.saved_everything());
    assert_eq!(scan(&sound(&whole, "newest")).unwrap(), now);
    // The damaged manifest was in force; older ones lack edits.
    for broken in [&contents[..20], &contents[..40], &vec![0; contents.len()]] {
        let env = copy(broken);
        let report = repair(&env).unwrap();
        assert!(!report.manifest_used, "{report}");
        assert_eq!(scan(&sound(&env, "older")).unwrap(), now);
    }
    // A manifest that was never in force, next to one that names every table.
    let env = copy(contents);
    env.write_file(&home("MANIFEST-000900"), &contents[..30]);
    let report = repair(&env).unwrap();
    assert!(report.manifest_used && report.saved_everything(), "{report}");
    assert_eq!(scan(&sound(&env, "torn")).unwrap(), now);
    // Under another name.
    let env = copy(contents);
    sessions.iter().for_each(|(path, _)| env.remove_file(path));
    env.write_file(&home("MANIFEST-000900"), contents);
    let report = repair(&env).unwrap();
    assert!(report.manifest_used && report.saved_everything(), "{report}");
    assert_eq!(scan(&sound(&env, "renamed")).unwrap(), now);
}

/// `CURRENT`, a manifest, a table and a log, each replaced by a folder or a link.
#[test]
fn repair_moves_folders_and_links_aside() {
    let Store { env, now, .. } = store(true);
    let image = files(&env);
    let names: Vec<&str> = image.keys().map(|path| name(path)).collect();
    for file in names.into_iter().filter(|name| *name != "STATS") {
        for kind in ["folder", "link"] {
            let what = format!("a {kind} in place of {file}");
            let directory = on_real_disk(&image);
            let path = directory.path().join(file);
            fs::remove_file(&path).unwrap();
            match kind {
                "folder" => {
                    fs::create_dir(&path).unwrap();
                    fs::write(path.join("inside"), b"kept").unwrap();
                }
                _ => std::os::unix::fs::symlink("/nowhere", &path).unwrap(),
            }
            let report = options().repair(directory.path());
            let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
            let moved = directory.path().join("lost").join(file);
            let named = |path: &Path| report.set_aside.iter().any(|aside| aside.path == path);
            assert!(named(&moved), "{what}: {report}");
            match kind {
                "folder" => assert_eq!(fs::read(moved.join("inside")).unwrap(), b"kept"),
                _ => assert!(fs::symlink_metadata(&moved).unwrap().is_symlink(), "{what}"),
            }
            let is_data = file.ends_with(".sst") || file.ends_with(".wal");
            let is_manifest = file.starts_with("MANIFEST");
            assert_eq!(report.saved_everything(), !is_data && !is_manifest, "{what}: {report}");
            let db = options().recovery(Recovery::Strict).open(directory.path()).unwrap();
            assert!(db.verify(|_| {}).unwrap().is_sound(), "{what}");
            let found = scan(&db).unwrap();
            match is_data {
                true => assert!(report.lost.iter().any(|lost| lost.path == path), "{report}"),
                false => assert_eq!(found, now, "{what}"),
            }
        }
    }
}
