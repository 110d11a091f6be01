//! Whole RocksDB databases come in, or are refused by name; RocksDB's own answers are expected.

use crate::cli::{Place, command, fails, files, json, ok, read, siftdb, with_file_limit, write};
use crate::support::archive::Files;
use crate::support::rocksdb_fixtures::{Contents, Fixture, fixtures};
use rustix::fs::{FlockOperation, fcntl_lock};
use siftdb::{Db, KeyspaceOptions, Options, WriteOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// Writes the files of a database.
pub fn unpacked(place: &Place, name: &str, database: &Files) -> String {
    let directory = place.path(name);
    std::fs::create_dir(&directory).unwrap();
    for (file, bytes) in database {
        write(&format!("{directory}/{file}"), bytes);
    }
    directory
}

fn bytes_of(directory: &str) -> Vec<(PathBuf, Vec<u8>)> {
    files(directory, "").into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The fixture of this name, written by the newest RocksDB.
fn fixture(name: &str) -> Fixture {
    let wanted = |fixture: &Fixture| fixture.name.split_once('.').unwrap().0 == name;
    fixtures().into_iter().find(wanted).unwrap()
}

/// What each keyspace has, as if it were a column family.
fn contents(path: &str) -> Contents {
    let db = Db::open_read_only(path).unwrap();
    let of = |name: String| {
        let keyspace = db.keyspace(&name).unwrap();
        let pair = |entry: siftdb::Result<(siftdb::Value, siftdb::Value)>| {
            let (key, value) = entry.unwrap();
            (key.to_vec(), value.to_vec())
        };
        let entries: Vec<_> = keyspace.iter().map(pair).collect();
        let mut reversed: Vec<_> = keyspace.iter().rev().map(pair).collect();
        reversed.reverse();
        assert_eq!(entries, reversed);
        for (key, value) in &entries {
            assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        (name.into_bytes(), entries)
    };
    let families = db.keyspaces().into_iter().map(of).collect();
    Contents { families, prepared: Vec::new() }
}

#[test]
fn databases_come_in_as_rocksdb_reads_them() {
    let place = Place::new();
    let (mut imported, mut refusals) = (0, 0);
    // Each of them is read by the tests of `siftdb-foreign`.
    for Fixture { name, files, expected, reversed, refused } in fixtures().iter().step_by(3) {
        let old = unpacked(&place, &format!("old-{name}"), files);
        let (before, db) = (bytes_of(&old), place.path(name));
        let is_text = expected.families.keys().all(|name| std::str::from_utf8(name).is_ok());
        if refused.is_some() || !reversed.is_empty() || !is_text {
            let message = fails(3, &["import", "rocksdb", &old, &db]);
            assert!(!Path::new(&db).exists(), "{name}: {message}");
            refusals += 1;
        } else {
            let answer = json(&["import", "rocksdb", &old, &db, "--check", "--json"]);
            let found = contents(&db);
            assert_eq!(found.families, expected.families, "{name}");
            let count: usize = found.families.values().map(Vec::len).sum();
            assert_eq!(answer["entries"], count, "{name}");
            let prepared = answer["prepared"].as_array().unwrap().len();
            assert_eq!(prepared, expected.prepared.len(), "{name}");
            ok(&["verify", &db]);
            imported += 1;
        }
        assert_eq!(bytes_of(&old), before, "{name}");
    }
    assert!(imported >= 20 && refusals >= 3, "{imported} imported, {refusals} refused");
}

#[test]
fn encrypted_databases_are_named() {
    let place = Place::new();
    let (old, db) = (place.path("old"), place.path("db"));
    std::fs::create_dir(&old).unwrap();
    // 4,096 bytes come before the contents of a file, and all are encrypted.
    for file in ["CURRENT", "IDENTITY", "MANIFEST-000004"] {
        write(&format!("{old}/{file}"), &[0x5a; 4112]);
    }
    for command in [&["import", "rocksdb", &old, &db][..], &["filter", "stats", &old]] {
        let refused = fails(3, command);
        assert!(refused.contains("an encrypting `Env`"), "{refused}");
        assert!(!Path::new(&db).exists());
    }
}

#[test]
fn keys_in_reverse_order_come_in_on_request() {
    let place = Place::new();
    for name in ["reverse-families", "reverse-tables"] {
        let Fixture { files, expected, reversed, .. } = fixture(name);
        let (old, db) = (unpacked(&place, &format!("old-{name}"), &files), place.path(name));
        let refused = fails(3, &["import", "rocksdb", &old, &db]);
        assert!(refused.contains("ask for reverse keys (`--reverse-keys`)"), "{refused}");
        assert!(!Path::new(&db).exists());
        // Operators and salvage change nothing of it.
        let merge = ["--merge", "max", "--salvage"];
        let import = ["import", "rocksdb", &old, &db, "--reverse-keys", "--check", "--json"];
        let answer = json(&[&import[..], &merge].concat());
        let mut found = contents(&db).families;
        for family in &reversed {
            found.get_mut(family).unwrap().reverse();
            let keyspace = std::str::from_utf8(family).unwrap();
            let left_out = answer["settings_left_out"].as_array().unwrap();
            let of = left_out.iter().find(|of| of["keyspace"] == keyspace).unwrap();
            // Others depend on features.
            let ignored = of["ignored"].as_array().unwrap();
            let order = ignored.iter().find(|setting| setting["name"] == "comparator").unwrap();
            assert_eq!(order["value"], "rocksdb.ReverseBytewiseComparator");
        }
        assert_eq!(found, expected.families, "{name}");
        ok(&["verify", &db]);
    }
    let Fixture { files, .. } = fixture("comparator");
    let (old, db) = (unpacked(&place, "old", &files), place.path("db"));
    for arguments in [&[][..], &["--reverse-keys"]] {
        let refused = fails(3, &[&["import", "rocksdb", &old, &db], arguments].concat());
        assert!(refused.contains("in the order of") && !refused.contains("--rev"), "{refused}");
    }
    let refused = fails(2, &["import", "leveldb", &old, &db, "--reverse-keys"]);
    assert!(refused.contains("--reverse-keys"), "{refused}");
}

#[test]
fn logs_and_tables_come_in_from_other_directories() {
    let place = Place::new();
    let Fixture { mut files, expected, .. } = fixture("snapshots");
    let (wals, tables) = (place.path("wals"), place.path("tables"));
    let options = files.iter_mut().find(|(name, _)| name.starts_with("OPTIONS-")).unwrap().1;
    let text = String::from_utf8(options.clone()).unwrap();
    *options = text.replace("[DBOptions]", &format!("[DBOptions]\n  wal_dir={wals}")).into();
    let take = |files: &mut Files, end: &str| -> Files {
        let is_taken = |name: &String, _: &mut Vec<u8>| name.ends_with(end);
        files.extract_if(.., is_taken).collect()
    };
    let (logs, moved) = (take(&mut files, ".log"), take(&mut files, ".sst"));
    files.insert("LOCK".into(), Vec::new());
    let old = unpacked(&place, "old", &files);
    unpacked(&place, "wals", &logs);
    unpacked(&place, "tables", &moved);
    let import = |to: &str, more: &[&str]| {
        json(&[&["import", "rocksdb", &old, to, "--json"], more].concat())
    };
    let db = place.path("db");
    let refused = fails(2, &["import", "rocksdb", &old, &db, "--db-path", &tables]);
    assert!(refused.contains(&format!("--wal-dir {wals}")), "{refused}");
    let refused = fails(3, &["import", "rocksdb", &old, &db, "--wal-dir", &wals]);
    assert!(refused.contains("--db-path"), "{refused}");
    let missing = place.path("missing");
    let refused = fails(4, &["import", "rocksdb", &old, &db, "--wal-dir", &missing]);
    assert!(refused.contains(&missing), "{refused}");
    assert!(!Path::new(&db).exists());
    let tables = ["--db-path", &wals, "--db-path", &tables, "--check"];
    import(&db, &[&tables[..], &["--wal-dir", &wals]].concat());
    assert_eq!(contents(&db).families, expected.families);
    let without = place.path("without");
    let is_listed = |answer: &serde_json::Value| answer.to_string().contains("\"wal_dir\"");
    let answer = import(&without, &[&tables[..], &["--wal-dir", &old]].concat());
    assert_ne!(contents(&without).families, expected.families);
    assert!(!is_listed(&answer), "{answer}");
    // As in a checkpoint: the logs are those of its origin.
    for name in ["LOCK", "IDENTITY"] {
        let _ = std::fs::remove_file(format!("{old}/{name}"));
    }
    let answer = import(&place.path("checkpoint"), &tables);
    let left_out = answer["settings_left_out"][0]["ignored"].as_array().unwrap();
    assert_eq!(left_out.last().unwrap(), &serde_json::json!({ "name": "wal_dir", "value": wals }));
    assert!(fails(2, &["import", "leveldb", &old, &db, "--wal-dir", "x"]).contains("--wal-dir"));
}

#[test]
fn operands_of_merges_come_in_with_their_operator() {
    let place = Place::new();
    let Fixture { files, expected, .. } = fixture("merge-append");
    let (old, db) = (unpacked(&place, "old", &files), place.path("db"));
    let refused = fails(3, &["import", "rocksdb", &old, &db]);
    assert!(refused.contains("operands of merges"), "{refused}");
    let refused = fails(2, &["import", "rocksdb", &old, &db, "--merge", "max"]);
    assert!(refused.contains("its merge operator is StringAppendOperator"), "{refused}");
    json(&["import", "rocksdb", &old, &db, "--merge", "append", "--json"]);
    assert_eq!(contents(&db).families, expected.families);
    assert!(fails(2, &["import", "leveldb", &old, &db, "--merge", "max"]).contains("--merge"));
    // In a database of DBWithTTL each operand has a stamp, which would end up within values.
    let both = ["import", "rocksdb", &old, &db, "--merge", "append", "--ttl-db", "60"];
    assert!(fails(2, &both).contains("cannot be used with"));
}

/// The keyspace that is there lets entries expire at once, so no lookup finds them.
#[test]
fn a_copy_that_differs_is_found() {
    let place = Place::new();
    let (old, db) = (unpacked(&place, "old", &fixture("snapshots").files), place.path("db"));
    let settings = KeyspaceOptions::new().expire_after(Duration::from_millis(1));
    let target = Options::new().default_keyspace(&settings).open(&db).unwrap();
    target.put_with("a", "1", &WriteOptions::new().expire_after(Duration::MAX)).unwrap();
    target.close().unwrap();
    let failed = fails(4, &["import", "rocksdb", &old, &db, "--check"]);
    assert!(failed.contains("has another value"), "{failed}");
}

#[test]
fn stamps_of_dbwithttl_become_expiries() {
    let place = Place::new();
    let Fixture { files, expected, .. } = fixture("ttl-tables");
    let (old, db) = (unpacked(&place, "old", &files), place.path("db"));
    let century = "3155760000";
    let import = ["import", "rocksdb", &old, &db, "--ttl-db", century, "--check", "--json"];
    json(&import);
    let opened = Db::open_read_only(&db).unwrap();
    let mut cursor = opened.cursor();
    let mut is_there = cursor.seek_to_first().unwrap();
    for (key, stamped) in &expected.families[&b"default"[..]] {
        let (value, stamp) = stamped.split_last_chunk::<4>().unwrap();
        assert!(is_there && cursor.entry() == Some((&key[..], value)));
        let written = u64::from(u32::from_le_bytes(*stamp));
        let expires_at = UNIX_EPOCH + Duration::from_secs(written + 3_155_760_000);
        assert_eq!(cursor.expires_at(), Some(expires_at));
        is_there = cursor.next().unwrap();
    }
    assert!(!is_there);
    // Entries of a second are over.
    let over = place.path("over");
    json(&["import", "rocksdb", &old, &over, "--ttl-db", "1", "--check", "--json"]);
    assert!(contents(&over).families[&b"default"[..]].is_empty());
    let is_plain = |fixture: &&Fixture| {
        let mut entries = fixture.expected.families.values().flatten();
        fixture.refused.is_none() && entries.any(|(_, value)| value.len() < 4)
    };
    let fixtures = fixtures();
    let plain = unpacked(&place, "plain", &fixtures.iter().find(is_plain).unwrap().files);
    let refused = fails(2, &["import", "rocksdb", &plain, &place.path("to"), "--ttl-db", "9"]);
    assert!(refused.contains("has no stamp"), "{refused}");
}

#[test]
fn rocksdb_databases_in_use_are_refused() {
    let place = Place::new();
    let Fixture { files, .. } = fixture("snapshots");
    let (old, db) = (unpacked(&place, "old", &files), place.path("db"));
    let lock = std::fs::File::create(format!("{old}/LOCK")).unwrap();
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    // A lock is of a process, so this one keeps the command out.
    let refused = fails(4, &["import", "rocksdb", &old, &db]);
    assert!(refused.contains("RocksDB has this database open"), "{refused}");
    assert!(!Path::new(&db).exists());
    drop(lock);
    json(&["import", "rocksdb", &old, &db, "--json"]);
}

#[test]
fn damage_in_rocksdb_databases_is_named() {
    let place = Place::new();
    let Fixture { mut files, .. } = fixture("snapshots");
    let table = files.keys().find(|name| name.ends_with(".sst")).unwrap().clone();
    files.get_mut(&table).unwrap()[5] ^= 1;
    let (old, db) = (unpacked(&place, "old", &files), place.path("db"));
    let refused = fails(3, &["import", "rocksdb", &old, &db]);
    assert!(refused.contains(&table) && refused.contains("checksum"), "{refused}");
    assert!(!Path::new(&db).exists());
    let output = siftdb(&["import", "rocksdb", &old, &db, "--salvage", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let dropped = answer["dropped"].as_array().unwrap();
    assert!(dropped.iter().all(|part| part["path"].as_str().unwrap().ends_with(&table)));
    assert!(!dropped.is_empty());
    // Deletions in the lost blocks are lost, too, so there may be more or fewer.
    assert!(contents(&db).families.contains_key(&b"default"[..]));
    ok(&["verify", &db]);
}

/// The signal comes while the database is built, at a moment that its files show.
#[test]
fn interrupted_rocksdb_imports_are_whole_or_absent() {
    let place = Place::new();
    let Fixture { files: old, expected, .. } = fixture("large-values");
    let (old, inside) = (unpacked(&place, "old", &old), place.path("inside"));
    std::fs::create_dir(&inside).unwrap();
    let before = bytes_of(&old);
    // The names of the files of the database that is built, or of the one that is done.
    let built = |db: &str| {
        let is_new = |path: &PathBuf| path.to_str().unwrap().contains(".siftdb-import-");
        let new = files(&inside, "").into_iter().find(is_new);
        let directory = new.map_or(PathBuf::from(db), |new| new.join("database"));
        let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let has =
        |end: &'static str| move |names: &[String]| names.iter().any(|name| name.ends_with(end));
    type Moment<'a> = &'a dyn Fn(&[String]) -> bool;
    let moments: [Moment<'_>; 5] =
        [&|_| true, &|names| !names.is_empty(), &has("LOCK"), &has("CURRENT"), &has(".sst")];
    let (mut absent, mut tries) = (0, 0);
    for (signal, moment) in ["-INT", "-TERM"].iter().cycle().zip(moments.iter().cycle()).take(20) {
        let db = format!("{inside}/db");
        let mut import = command(&["import", "rocksdb", &old, &db]);
        let mut child = import.stderr(Stdio::null()).spawn().unwrap();
        while !moment(&built(&db)) && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        // It may have ended already.
        let mut kill = Command::new("kill");
        kill.args([signal, &&*child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
        let status = child.wait().unwrap();
        let is_there = Path::new(&db).exists();
        assert!(is_there || status.signal().is_some(), "{status}");
        if is_there {
            assert_eq!(contents(&db).families, expected.families, "{status}");
            std::fs::remove_dir_all(&db).unwrap();
        }
        assert!(files(&inside, "").is_empty());
        (absent, tries) = (absent + usize::from(!is_there), tries + 1);
    }
    assert!(absent > 0, "of {tries} imports");
    assert_eq!(bytes_of(&old), before);
}

/// The limit of each file is reached in the log, in a table, or at the end.
#[cfg(target_os = "linux")]
#[test]
fn rocksdb_imports_on_a_full_disk_leave_nothing() {
    let place = Place::new();
    let Fixture { files: old, expected, .. } = fixture("large-values");
    let (old, inside) = (unpacked(&place, "old", &old), place.path("inside"));
    std::fs::create_dir(&inside).unwrap();
    let (mut failures, mut blocks) = (0, 0);
    loop {
        // The second directory is there and empty.
        std::fs::create_dir(format!("{inside}/empty")).unwrap();
        let outputs = ["new", "empty"].map(|to| {
            with_file_limit(blocks, &inside, &["import", "rocksdb", &old, to, "--check"])
        });
        if outputs.iter().all(|output| output.status.success()) {
            break;
        }
        for output in outputs {
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(4), "{blocks} blocks: {message}");
            assert!(
                message.contains("ile too large") && !message.contains(".siftdb-"),
                "{message}"
            );
        }
        assert_eq!(files(&inside, ""), [PathBuf::from(format!("{inside}/empty"))]);
        std::fs::remove_dir(format!("{inside}/empty")).unwrap();
        failures += 1;
        blocks = (2 * blocks).max(1);
    }
    assert!(failures > 2, "{failures}");
    for to in ["new", "empty"] {
        assert_eq!(contents(&format!("{inside}/{to}")).families, expected.families);
    }
}

#[test]
fn damaged_rocksdb_databases_leave_no_target() {
    let place = Place::new();
    let Fixture { files: sound, expected, .. } = fixture("snapshots");
    let (inside, existing) = (place.path("inside"), place.path("existing"));
    std::fs::create_dir(&inside).unwrap();
    let db = format!("{inside}/db");
    let (mut refusals, mut n) = (0, 0);
    for (name, bytes) in &sound {
        for at in [0, bytes.len() / 2, bytes.len().saturating_sub(60)] {
            let mut damaged = sound.clone();
            let Some(byte) = damaged.get_mut(name).unwrap().get_mut(at) else { continue };
            *byte ^= 1;
            n += 1;
            let old = unpacked(&place, &format!("old{n}"), &damaged);
            let output = siftdb(&["import", "rocksdb", &old, &db]);
            match output.status.code() {
                Some(0) => {
                    let families = contents(&db).families;
                    // As in RocksDB, a log counts up to its first bad part.
                    assert!(families == expected.families || name.ends_with(".log"), "{name} {at}");
                    std::fs::remove_dir_all(&db).unwrap();
                }
                code => {
                    assert!(matches!(code, Some(3 | 4)), "{name} {at}: {output:?}");
                    refusals += 1;
                    // A database that is there keeps what it had.
                    let _ = std::fs::remove_dir_all(&existing);
                    ok(&["put", "--create", &existing, "kept", "1"]);
                    assert_eq!(siftdb(&["import", "rocksdb", &old, &existing]).status.code(), code);
                    assert_eq!(ok(&["get", &existing, "kept"]), "1");
                    ok(&["verify", &existing]);
                }
            }
            assert!(files(&inside, "").is_empty(), "{name} {at}");
        }
    }
    assert!(refusals > 5, "{refusals} of {n}");
}

#[test]
fn settings_of_column_families_become_those_of_keyspaces() {
    let place = Place::new();
    let Fixture { mut files, .. } = fixture("snapshots");
    let options = "[DBOptions]\n  wal_recovery_mode=kPointInTimeRecovery\n\
                   [CFOptions \"default\"]\n  compression=kSnappyCompression\n  \
                   bottommost_compression=kNoCompression\n  prefix_extractor=rocksdb.FixedPrefix.4\n  \
                   ttl=77\n  merge_operator=MaxOperator\n  compaction_filter=nullptr\n\
                   [TableOptions/BlockBasedTable \"default\"]\n  block_size=8192\n  \
                   filter_policy=bloomfilter:12:false\n  partition_filters=true\n  \
                   whole_key_filtering=true\n";
    files.retain(|name, _| !name.starts_with("OPTIONS"));
    files.insert("OPTIONS-000099".into(), options.into());
    let (old, db) = (unpacked(&place, "old", &files), place.path("db"));
    let answer = json(&["import", "rocksdb", &old, &db, "--json"]);
    let left_out = &answer["settings_left_out"][0];
    let names: Vec<_> = left_out["ignored"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"merge_operator".into(), &"ttl".into()));
    let settings = ok(&["settings", &db]);
    for line in [
        "filter=fast-local-bloom:12 layout=partitioned:4096 prefix=siftdb.FixedPrefix.4",
        "block_bytes=8192",
        "compression=snappy",
        "compression_at_last_level=none",
    ] {
        assert!(settings.contains(line), "{settings}");
    }
}
