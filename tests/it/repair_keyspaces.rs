//! Repairs of databases with several keyspaces. Each keyspace keeps its own tables, name and
//! number; a dropped one stays dropped. Equal keys have other values in other keyspaces.

use crate::support::data::key;
use crate::support::reads::{Contents, all_keyspaces};
use crate::support::rng::Rng;
use crate::support::stores::{
    HOME, as_env, begun_logs, copy_of, files, files_ending, name, open, small_options,
};
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb::inspect::{self, DumpOptions};
use siftdb::{Db, Filter, Keyspace, KeyspaceOptions, Options, Recovery, RepairReport, WriteBatch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const KEYS: usize = 120;

fn options() -> Options {
    small_options().auto_compaction(false).write_buffer_bytes(1 << 20)
}

fn repair(env: &MemEnv) -> RepairReport {
    options().env(as_env(env)).repair(HOME).unwrap()
}

fn home(file: &str) -> PathBuf {
    Path::new(HOME).join(file)
}

fn manifest(env: &MemEnv) -> PathBuf {
    let named = env.list_files().into_iter().filter(|path| name(path).starts_with("MANIFEST"));
    named.filter(|path| path.parent() == Some(Path::new(HOME))).max().unwrap()
}

fn dump(env: &MemEnv, path: &Path) -> String {
    let mut text = Vec::new();
    inspect::dump(&as_env(env), path, &DumpOptions::default(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Opens the database in strict mode and reads all of every keyspace.
fn all(env: &MemEnv, what: &str) -> Contents {
    let db = open(env, &options().recovery(Recovery::Strict));
    let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = all_keyspaces(&db, (0..KEYS).map(key), what);
    let again = repair_of_open(&db, env);
    assert!(!again.changed, "{what}: repaired twice: {again}");
    found
}

/// The report of a repair after a clean close.
fn repair_of_open(db: &Db, env: &MemEnv) -> RepairReport {
    db.close().unwrap();
    let copy = copy_of(&files(env));
    repair(&copy)
}

/// Writes some keys of each keyspace, in batches that write to all of them.
fn write(db: &Db, keyspaces: &[Keyspace], now: &mut Contents, rng: &mut Rng, round: usize) {
    for number in (0..KEYS).filter(|_| round == 0 || rng.chance(30)).collect::<Vec<_>>() {
        let mut batch = WriteBatch::new();
        for keyspace in keyspaces {
            let of_it = now.entry(keyspace.name().into()).or_default();
            match rng.chance(15) {
                true => {
                    batch.in_keyspace(keyspace).delete(key(number));
                    of_it.remove(&key(number));
                }
                false => {
                    let value = format!("{} {number} {round}", keyspace.name()).into_bytes();
                    batch.in_keyspace(keyspace).put(key(number), &value);
                    of_it.insert(key(number), value);
                }
            }
        }
        db.write(batch).unwrap();
    }
    for keyspace in keyspaces.iter().filter(|_| round > 0) {
        // Of each keyspace other keys.
        let first = 7 * round + keyspace.name().len();
        keyspace.delete_range(key(first)..key(first + 9)).unwrap();
        let of_it = now.entry(keyspace.name().into()).or_default();
        (first..first + 9).for_each(|number| drop(of_it.remove(&key(number))));
    }
}

struct Store {
    env: MemEnv,
    now: Contents,
    /// Tables of the dropped keyspace as they were before the drop.
    of_dropped: BTreeMap<PathBuf, Vec<u8>>,
}

/// `default`, `a` (1), `b` (2), and `dropped` (3), all with tables in several levels. If the logs
/// have entries, these are of `dropped` too, from before the drop, and of `late` (4).
fn store(with_log: bool, closed: bool) -> Store {
    let mut env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    let (mut now, mut rng) = (Contents::new(), Rng::new(5));
    let named = |names: &[&str]| -> Vec<Keyspace> {
        names.iter().map(|name| db.keyspace(name).unwrap()).collect()
    };
    let keyspaces = named(&["default", "a", "b", "dropped"]);
    for round in 0..4 {
        write(&db, &keyspaces, &mut now, &mut rng, round);
        match round {
            0 => keyspaces.iter().for_each(|keyspace| keyspace.compact_range(..).unwrap()),
            1 => keyspaces[1].compact_range(key(20)..).unwrap(),
            2 => db.flush().unwrap(),
            _ => {}
        }
    }
    keyspaces[2].compact_range(key(KEYS / 2)..).unwrap();
    if !with_log {
        db.flush().unwrap();
    }
    // Obsolete files may be removed while this reads.
    let there = env.list_files().into_iter();
    let read = |path: PathBuf| env.read_file(&path).map(|bytes| (path, bytes));
    let before: BTreeMap<_, _> = there.filter_map(read).collect();
    let disk = copy_of(&before);
    let of_keyspace_3 =
        |path: &PathBuf| name(path).ends_with(".sst") && dump(&disk, path).contains("keyspace 3 ");
    let of_dropped: BTreeMap<_, _> =
        before.iter().filter(|(path, _)| of_keyspace_3(path)).map(owned).collect();
    assert!(!of_dropped.is_empty());
    db.drop_keyspace("dropped").unwrap();
    now.remove("dropped");
    drop(keyspaces);
    match with_log {
        true => write(&db, &named(&["default", "a", "late"]), &mut now, &mut rng, 0),
        false => {
            write(&db, &named(&["default", "a"]), &mut now, &mut rng, 4);
            db.flush().unwrap();
        }
    }
    db.sync().unwrap();
    // Obsolete files are removed in the background.
    let is_there = |path: &PathBuf| env.read_file(path).is_some();
    while !with_log && (begun_logs(&env).len() > 1 || of_dropped.keys().any(is_there)) {
        std::thread::yield_now();
    }
    match closed {
        true => db.close().unwrap(),
        false => env = env.replay(env.log_len(), CrashModel::Kill, 0),
    }
    drop(db);
    Store { env, now, of_dropped }
}

fn owned((path, bytes): (&PathBuf, &Vec<u8>)) -> (PathBuf, Vec<u8>) {
    (path.clone(), bytes.clone())
}

/// A byte in the last edit of a manifest.
fn flipped_at_end(bytes: &[u8]) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    let at = bytes.len() - 3;
    flipped[at] ^= 8;
    flipped
}

/// The ways to lose what says which keyspaces there are, and whether a manifest can be trusted
/// afterwards.
fn losses(env: &MemEnv) -> Vec<(&'static str, PathBuf, Option<Vec<u8>>, bool)> {
    let manifest = manifest(env);
    let bytes = env.read_file(&manifest).unwrap();
    vec![
        ("CURRENT missing", home("CURRENT"), None, true),
        ("CURRENT empty", home("CURRENT"), Some(Vec::new()), true),
        ("manifest flipped", manifest.clone(), Some(flipped_at_end(&bytes)), false),
        ("manifest cut", manifest.clone(), Some(bytes[..60].to_vec()), false),
        ("manifest missing", manifest, None, false),
    ]
}

fn lose(env: &MemEnv, path: &Path, contents: Option<&Vec<u8>>) {
    match contents {
        Some(contents) => env.write_file(path, contents),
        None => env.remove_file(path),
    }
}

#[test]
fn repair_keeps_every_keyspace() {
    for closed in [true, false] {
        let Store { env, now, .. } = store(false, closed);
        assert_eq!(now.keys().collect::<Vec<_>>(), ["a", "b", "default"]);
        for (what, path, contents, is_trusted) in losses(&env) {
            let what = &format!("{what}, closed {closed}");
            let env = copy_of(&files(&env));
            lose(&env, &path, contents.as_ref());
            let report = repair(&env);
            assert!(report.changed && report.lost.is_empty(), "{what}: {report}");
            assert!(report.missing.is_empty(), "{what}: {report}");
            assert_eq!(report.manifest_used, is_trusted, "{what}: {report}");
            assert_eq!(report.saved_everything(), is_trusted, "{what}: {report}");
            assert!(report.renamed.is_empty(), "{what}: {report}");
            assert_eq!(all(&env, what), now, "{what}: {report}");
            if is_trusted || what.starts_with("manifest flipped") {
                // The number of the dropped keyspace is not given again.
                let db = open(&env, &options()).unwrap();
                db.keyspace("new").unwrap();
                db.close().unwrap();
                let text = dump(&env, &manifest(&env));
                assert!(text.contains("keyspace 4 \"new\""), "{what}: {text}");
            }
        }
    }
}

/// Only its number is left of a keyspace that no table and no manifest names.
#[test]
fn keyspaces_of_logs_get_a_name() {
    let Store { env, now, .. } = store(true, true);
    for (what, path, contents, is_trusted) in losses(&env) {
        let env = copy_of(&files(&env));
        lose(&env, &path, contents.as_ref());
        let report = repair(&env);
        assert!(report.changed && report.lost.is_empty(), "{what}: {report}");
        assert_eq!(report.saved_everything(), is_trusted, "{what}: {report}");
        let mut expected = now.clone();
        // A manifest that says which keyspaces there are; the flip is in the mark of the close.
        if !is_trusted && what != "manifest flipped" {
            let late = expected.remove("late").unwrap();
            expected.insert("keyspace 4".into(), late);
            let made_up: Vec<_> =
                report.renamed.iter().map(|renamed| (renamed.number, &renamed.name[..])).collect();
            // Without a manifest nothing says that 3 was dropped, and its tables name it.
            assert!(made_up.contains(&(4, "keyspace 4")), "{what}: {report}");
            assert!(report.to_string().contains("keyspace 4 is named \"keyspace 4\""), "{report}");
            let mut found = all(&env, what);
            found.retain(|name, _| expected.contains_key(name));
            assert_eq!(found, expected, "{what}");
        } else {
            assert!(report.renamed.is_empty(), "{what}: {report}");
            assert_eq!(all(&env, what), expected, "{what}");
        }
    }
}

/// The tables of the dropped keyspace are on the disk, and its entries are in the logs.
#[test]
fn repair_does_not_revive_dropped_keyspaces() {
    let Store { env, now, of_dropped } = store(true, true);
    of_dropped.iter().for_each(|(path, bytes)| env.write_file(path, bytes));
    let image = files(&env);
    let tables: Vec<PathBuf> = files_ending(&env, ".sst")
        .into_iter()
        .filter(|path| !of_dropped.contains_key(path))
        .collect();
    let manifest = manifest(&env);
    let mut damages =
        vec![(home("CURRENT"), None), (manifest.clone(), Some(flipped_at_end(&image[&manifest])))];
    for path in tables.iter().chain(&begun_logs(&env)) {
        let mut bad = image[path].clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        damages.push((path.clone(), Some(bad)));
        damages.push((path.clone(), None));
    }
    for (path, contents) in damages {
        let what = path.display().to_string();
        let env = copy_of(&image);
        lose(&env, &path, contents.as_ref());
        let report = repair(&env);
        assert!(report.changed, "{what}");
        let found = all(&env, &what);
        assert!(found.keys().eq(now.keys()), "{what}: {:?}: {report}", found.keys());
        let aside = report.set_aside.iter().filter(|file| file.why == "its keyspace was dropped");
        assert_eq!(aside.count(), of_dropped.len(), "{what}: {report}");
        // The number is not given again.
        let db = open(&env, &options()).unwrap();
        db.keyspace("dropped").unwrap().put("k", "new").unwrap();
        db.close().unwrap();
        let text = dump(&env, &self::manifest(&env));
        assert!(text.contains("keyspace 5 \"dropped\""), "{what}: {text}");
    }
}

#[test]
fn damage_costs_only_its_own_keyspace() {
    let Store { env, now, .. } = store(false, true);
    let image = files(&env);
    let (mut kept, mut lost) = (0, 0);
    for table in files_ending(&env, ".sst") {
        let text = dump(&env, &table);
        let named = now.keys().find(|name| text.contains(&format!(" {name:?}, checksum")));
        let named = named.unwrap_or_else(|| panic!("{text}"));
        let good = &image[&table];
        for at in (0..good.len()).step_by(good.len() / 25) {
            let what = format!("{} at {at}", table.display());
            let env = copy_of(&image);
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            env.write_file(&table, &bad);
            let report = repair(&env);
            assert!(report.changed && report.manifest_used, "{what}: {report}");
            for part in &report.lost {
                assert_eq!(part.keyspace.as_ref(), Some(named), "{what}: {report}");
                assert!(report.to_string().contains(&format!("lost: keyspace {named:?}: keys")));
            }
            for (name, found) in all(&env, &what) {
                let is_whole = found == now[&name];
                assert!(is_whole || name == *named, "{what}: {name} changed: {report}");
                assert!(is_whole || !report.lost.is_empty(), "{what}: {report}");
            }
            match report.lost.is_empty() {
                true => kept += 1,
                false => lost += 1,
            }
        }
    }
    assert!(kept > 20 && lost > 20, "{kept}, {lost}");
}

/// A damaged record of a log has entries of several keyspaces. Those of the others are read.
#[test]
fn damaged_logs_cost_only_their_records() {
    let Store { env, now, .. } = store(true, true);
    let log = begun_logs(&env).pop().unwrap();
    let good = env.read_file(&log).unwrap();
    for at in (20..good.len()).step_by(good.len() / 40) {
        let what = format!("{} at {at}", log.display());
        let env = copy_of(&files(&env));
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        env.write_file(&log, &bad);
        let report = repair(&env);
        // Space that is allocated ahead has no record.
        let is_lost = !report.missing.is_empty();
        let found = all(&env, &what);
        assert!(found.keys().eq(now.keys()), "{what}: {report}");
        assert!(is_lost || found == now, "{what}: {report}");
        assert_eq!(found["b"], now["b"], "{what}: {report}");
    }
}

/// The first edits of a manifest, as a cut leaves them.
#[test]
fn numbers_that_the_manifest_never_gave_are_kept() {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    db.put("k", "of default").unwrap();
    let before = env.read_file(&manifest(&env)).unwrap().len();
    db.keyspace("users").unwrap().put("k", "of users").unwrap();
    db.sync().unwrap();
    let env = env.replay(env.log_len(), CrashModel::Kill, 0);
    drop(db);
    let path = manifest(&env);
    let cut = env.read_file(&path).unwrap()[..before].to_vec();
    env.write_file(&path, &cut);
    let error = open(&env, &options()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("never created"), "{error}");
    let report = repair(&env);
    assert_eq!(report.renamed.len(), 1, "{report}");
    let found = all(&env, "repaired");
    assert_eq!(found["default"][&b"k"[..]], b"of default");
    assert_eq!(found["keyspace 1"][&b"k"[..]], b"of users", "{report}");
}

/// A database with keyspaces of these names, each with a table.
fn tables_of(names: &[&str], value: &str) -> MemEnv {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    for name in names {
        let keyspace = db.keyspace(name).unwrap();
        keyspace.put(format!("{name} {value}"), value).unwrap();
        keyspace.compact_range(..).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let only: BTreeMap<_, _> =
        files(&env).into_iter().filter(|(path, _)| name(path).ends_with(".sst")).collect();
    copy_of(&only)
}

/// Both kinds of tables in one directory, and neither manifest nor log.
fn together(first: &MemEnv, second: &MemEnv) -> MemEnv {
    let both = copy_of(&files(first));
    for (number, path) in files_ending(second, ".sst").into_iter().enumerate() {
        both.write_file(
            &home(&format!("{:06}.sst", 900 + number)),
            &second.read_file(&path).unwrap(),
        );
    }
    both
}

#[test]
fn two_names_of_one_number_are_reported() {
    // The table with the higher sequence is the newer one.
    let env = together(&tables_of(&["old"], "1"), &tables_of(&["new", "other", "new"], "2"));
    let report = repair(&env);
    assert_eq!(report.renamed.len(), 1, "{report}");
    assert_eq!((report.renamed[0].number, &report.renamed[0].name[..]), (1, "new"), "{report}");
    assert!(report.renamed[0].why.contains("\"old\""), "{report}");
    let found = all(&env, "repaired");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["default", "new", "other"]);
    assert_eq!(found["new"].len(), 2, "both tables are of keyspace 1");
}

#[test]
fn two_numbers_of_one_name_are_told_apart() {
    let env = together(&tables_of(&["users"], "1"), &tables_of(&["other", "users"], "2"));
    // Now number 1 is `other` by the newer table; its older table was `users`.
    let report = repair(&env);
    let found = all(&env, "repaired");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["default", "other", "users"], "{report}");
    let env = together(&tables_of(&["x", "users"], "1"), &tables_of(&["y", "z", "users"], "2"));
    let path = home("000900.sst");
    // Without the tables of `y` and `z`, which would rename 1 and 2.
    assert!(dump(&env, &path).contains("keyspace 1 "));
    env.remove_file(&path);
    env.remove_file(&home("000901.sst"));
    let report = repair(&env);
    let found = all(&env, "repaired");
    let names = ["default", "users", "users (keyspace 2)", "x"];
    assert_eq!(found.keys().collect::<Vec<_>>(), names, "{report}");
    assert!(found["users"].contains_key(&b"users 2"[..]), "the higher number has the name");
    assert_eq!(report.renamed.len(), 1, "{report}");
    assert_eq!(report.renamed[0].number, 2, "{report}");
}

/// Id and epoch of the database, by its manifest: the field after the name of the key order.
fn identity(env: &MemEnv) -> (Vec<u8>, u8) {
    let bytes = env.read_file(&manifest(env)).unwrap();
    let order = b"siftdb.bytewise";
    let at = bytes.windows(order.len()).position(|window| window == order).unwrap();
    let field = &bytes[at + order.len()..];
    assert_eq!(field[..2], [2, 17], "the tag and the length of the field");
    (field[2..18].to_vec(), field[18])
}

#[test]
fn repair_keeps_the_id_and_raises_the_epoch() {
    let Store { env, .. } = store(true, true);
    let (id, epoch) = identity(&env);
    assert_eq!(epoch, 1);
    env.remove_file(&home("CURRENT"));
    repair(&env);
    assert_eq!(identity(&env), (id.clone(), 2));
    // Only the log says it.
    env.remove_file(&manifest(&env));
    repair(&env);
    assert_eq!(identity(&env), (id.clone(), 3));
    // No file says it.
    env.remove_file(&manifest(&env));
    begun_logs(&env).iter().for_each(|log| env.remove_file(log));
    repair(&env);
    let (other, epoch) = identity(&env);
    assert!(other != id && other != [0; 16]);
    assert_eq!(epoch, 1);
}

/// The new tables of a repair, and those that are written afterwards.
#[test]
fn repair_keeps_the_settings_of_keyspaces() {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    let settings = KeyspaceOptions::new().filter(Filter::ribbon(12.0));
    let keyspace = db.keyspace_with("users", &settings).unwrap();
    (0..KEYS).for_each(|number| keyspace.put(key(number), vec![7; 50]).unwrap());
    db.flush().unwrap();
    keyspace.put(key(7), "in the log").unwrap();
    db.close().unwrap();
    drop((db, keyspace));
    let table = files_ending(&env, ".sst").pop().unwrap();
    let mut bad = env.read_file(&table).unwrap();
    bad[100] ^= 1;
    env.write_file(&table, &bad);
    let image = files(&env);
    for (what, path, contents, _) in losses(&env).into_iter().take(3) {
        let env = copy_of(&image);
        lose(&env, &path, contents.as_ref());
        assert!(repair(&env).tables_written > 0, "{what}");
        let db = open(&env, &options()).unwrap();
        db.keyspace("users").unwrap().put(key(8), "later").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let tables = files_ending(&env, ".sst").into_iter();
        for table in tables.filter(|path| path.parent() == Some(Path::new(HOME))) {
            let text = dump(&env, &table);
            assert!(text.contains(" ribbon ") && text.contains("1 \"users\""), "{what}: {text}");
        }
    }
}
