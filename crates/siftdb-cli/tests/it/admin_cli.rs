//! `siftdb verify` and `siftdb repair` end to end: their output, exit codes and changes.

use crate::cli::{Place, fails, files, json, ok, read, siftdb, write};
use serde_json::Value;
use std::path::{Path, PathBuf};

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
    assert!(text.contains("\n1 entry only in logs, not in tables yet\n"), "{text}");
    assert_eq!(report["log_entries"], 1);
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
    // A database with an unreadable table does not open. `verify` still names the table.
    write(table, &good[..good.len() - 1]);
    assert!(fails(3, &["verify", &db]).contains(table));
    let report = failed_json(3, &["verify", &db]);
    assert_eq!((&report["tables"], &report["tables_damaged"]), (&1.into(), &1.into()), "counted");
    assert_eq!(report["damage"][0]["path"], table);
    write(table, &good);
    assert!(contents().eq(before));
}

#[test]
fn repair_reports_and_leaves_a_sound_database() {
    let place = Place::new();
    let db = place.database();
    ok(&["put", &db, "in the log", "1"]);
    let scanned = ok(&["scan", &db]);
    assert!(ok(&["repair", &db]).contains("nothing to repair: 1 table is sound"));
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
    assert_eq!(ok(&["count", &db]), format!("{}\n", 3_001 - gone));
    assert!(ok(&["verify", &db]).ends_with("all in order\n"));

    // Without a manifest nothing says what is missing.
    let manifest =
        files(&db, "").into_iter().find(|path| path.to_str().unwrap().contains("MANIFEST"));
    std::fs::remove_file(manifest.unwrap()).unwrap();
    let sentence = fails(5, &["repair", &db]);
    assert!(sentence.contains("may be lost; no manifest could be used"), "{sentence}");
    fails(4, &["repair", &place.path("missing")]);
    let held = siftdb::Db::open(&db).unwrap();
    assert!(fails(4, &["repair", &db]).contains("locked"));
    drop(held);
}

/// For each kind of damage: the exit code of the command, and a sound database afterwards.
#[test]
fn repair_exits_with_5_after_a_loss() {
    let place = Place::new();
    let db = place.database();
    ok(&["put", &db, "in the log", "1"]);
    let image: Vec<_> =
        files(&db, "").into_iter().map(|path| (path.clone(), read(&path))).collect();
    let one = |end: &str| files(&db, end).pop().unwrap().to_str().unwrap().to_string();
    let (table, log) = (one(".sst"), one(".wal"));
    let manifest = files(&db, "").into_iter().find(|path| path.to_str().unwrap().contains("MANI"));
    let (manifest, current) =
        (manifest.unwrap().to_str().unwrap().to_string(), format!("{db}/CURRENT"));
    let bytes = |path: &str| read(std::path::Path::new(path));
    let flipped = |path: &str, at: usize| {
        let mut bytes = bytes(path);
        let at = at % bytes.len();
        bytes[at] ^= 1;
        Some(bytes)
    };
    let cut = |path: &str| Some(bytes(path)[..bytes(path).len() / 2].to_vec());
    let longer = |path: &str| Some([&bytes(path)[..], b"junk"].concat());
    let damages = [
        ("a table flipped", &table, flipped(&table, 2_000), 5),
        ("a table cut", &table, cut(&table), 5),
        ("a table extended", &table, longer(&table), 0),
        ("a table missing", &table, None, 5),
        ("a table replaced by a log", &table, Some(bytes(&log)), 5),
        ("a log flipped", &log, flipped(&log, 80), 5),
        ("a log cut", &log, cut(&log), 5),
        ("a log extended", &log, longer(&log), 0),
        ("a log missing", &log, None, 5),
        ("the manifest flipped", &manifest, flipped(&manifest, 50), 5),
        ("CURRENT cut", &current, cut(&current), 0),
        ("CURRENT missing", &current, None, 0),
    ];
    for (what, path, contents, code) in damages {
        for (path, bytes) in &image {
            write(path.to_str().unwrap(), bytes);
        }
        let _ = std::fs::remove_dir_all(format!("{db}/lost"));
        for path in files(&db, "") {
            if path.is_file() && image.iter().all(|(known, _)| *known != path) {
                std::fs::remove_file(path).unwrap();
            }
        }
        match contents {
            Some(contents) => write(path, &contents),
            None => std::fs::remove_file(path).unwrap(),
        }
        let output = siftdb(&["repair", &db]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{what}: {text}{errors}");
        assert_eq!(errors.contains("repaired, but entries"), code == 5, "{what}: {errors}");
        let says_lost = text.contains("\nlost: ") || text.contains("\nmissing: ");
        // Without a manifest nothing can be promised, although nothing is known to be lost.
        assert_eq!(says_lost, code == 5 && *path != manifest, "{what}: {text}");
        ok(&["verify", &db]);
    }
}

#[test]
fn checkpoints_are_made_brought_up_to_date_and_restored() {
    let place = Place::new();
    let (db, backup, back) = (place.database(), place.path("backup"), place.path("back"));
    let made = json(&["checkpoint", &db, &backup, "--json"]);
    assert_eq!((&made["tables"], &made["tables_new"]), (&1.into(), &1.into()));
    let before = ok(&["scan", &db]);
    ok(&["put", &db, "later", "1"]);
    let again = json(&["checkpoint", &db, &backup, "--json"]);
    assert_eq!((&again["tables"], &again["tables_new"]), (&2.into(), &1.into()));
    assert!(ok(&["restore", &backup, &back]).contains("2 tables"));
    assert_eq!(ok(&["scan", &back]), ok(&["scan", &db]));
    assert_ne!(ok(&["scan", &back]), before);
    // Neither a database nor a missing one becomes a checkpoint.
    ok(&["put", &back, "mine", "1"]);
    fails(2, &["checkpoint", &db, &back]);
    fails(4, &["restore", &place.path("missing"), &place.path("new")]);
    assert!(ok(&["verify", &backup]).ends_with("all in order\n"));
}

#[test]
fn restore_says_what_to_do_about_entries_of_the_log() {
    let place = Place::new();
    let (db, backup, back) = (place.database(), place.path("backup"), place.path("back"));
    ok(&["checkpoint", &db, &backup]);
    ok(&["put", &backup, "mine", "1"]);
    let message = fails(4, &["restore", &backup, &back]);
    assert!(message.contains("only in its log; `siftdb flush DIR`"), "{message}");
    assert!(!Path::new(&back).exists());
    ok(&["flush", &backup]);
    ok(&["restore", &backup, &back]);
    assert_eq!(ok(&["scan", &back]), ok(&["scan", &backup]));
}

#[test]
fn flush_writes_logs_that_are_too_large_to_read() {
    let place = Place::new();
    let path = place.path("db");
    let db = siftdb::Options::new().write_buffer_bytes(1 << 30).open(&path).unwrap();
    for key in 0..7u8 {
        db.put([b'0' + key], vec![key; 64 << 20]).unwrap();
    }
    db.close().unwrap();
    let message = fails(4, &["get", &path, "0"]);
    assert!(message.contains("are allowed; `siftdb flush DIR`"), "{message}");
    assert_eq!(json(&["flush", &path, "--json"])["log_entries"], 7);
    assert_eq!(ok(&["count", &path]), "7\n");
}

#[test]
fn verify_names_the_missing_tables_of_a_checkpoint() {
    let place = Place::new();
    let (db, backup) = (place.database(), place.path("backup"));
    ok(&["put", &db, "later", "1"]);
    ok(&["checkpoint", &db, &backup]);
    let tables = files(&backup, ".sst");
    assert_eq!(tables.len(), 2);
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    tables.iter().for_each(|table| std::fs::remove_file(table).unwrap());
    let errors = fails(3, &["verify", &backup]);
    assert!(tables.iter().all(|table| errors.contains(&name(table))), "{errors}");
    // Bringing it up to date makes it whole.
    let again = json(&["checkpoint", &db, &backup, "--json"]);
    assert_eq!((&again["tables"], &again["tables_new"]), (&2.into(), &2.into()));
    assert!(ok(&["verify", &backup]).ends_with("all in order\n"));
    let log = files(&backup, ".wal").remove(0);
    std::fs::remove_file(&log).unwrap();
    assert!(fails(3, &["verify", &backup]).contains(&name(&log)));
}

#[test]
fn checkpoints_of_chosen_keyspaces() {
    let place = Place::new();
    let (db, backup) = (place.database(), place.path("backup"));
    for name in ["users", "cache"] {
        ok(&["keyspace", "create", &db, name]);
        ok(&["put", &db, "k", name, "--keyspace", name]);
    }
    let message = fails(4, &["checkpoint", &db, &backup, "--keyspace", "missing"]);
    assert!(message.ends_with("\"missing\"; `siftdb keyspace list DIR` lists them\n"), "{message}");
    ok(&["checkpoint", &db, &backup, "--keyspace", "users"]);
    let listed = ok(&["keyspace", "list", &backup]);
    assert!(listed.contains("users") && !listed.contains("cache"), "{listed}");
    assert_eq!(ok(&["scan", &backup, "--keyspace", "users"]), "k\tusers\n");
    assert_eq!(ok(&["scan", &backup]), "");
}
