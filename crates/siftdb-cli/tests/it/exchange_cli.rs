//! Entries leave a database and come back, in every format; other stores' files come in.

use crate::cli::{Place, command, fails, files, json, ok, read, siftdb, with_file_limit, write};
use crate::support::filters::{Marks, UpToDash};
use crate::support::repository::golden;
use crate::support::rng::Rng;
use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::{Value, json as object};
use siftdb::{Db, Filter, KeyspaceOptions, Options, Prefix, WriteOptions};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Key, value and when they expire.
type Found = (Vec<u8>, Vec<u8>, Option<SystemTime>);

/// Keys and values of all lengths and bytes: text, bytes, the empty ones, a few large ones.
fn random_entries(count: usize) -> Entries {
    let mut rng = Rng::new(22);
    let mut bytes = |limit: usize| -> Vec<u8> {
        let alphabet: &[u8] = match rng.below(4) {
            0 => b"\t\n\r\\\"\0 =x\x7f\xff",
            1 => "g\u{fc}\u{20ac}".as_bytes(),
            _ => &[],
        };
        let length = if rng.chance(1) { rng.below(20 * limit) } else { rng.below(limit) };
        let byte = |rng: &mut Rng| match alphabet {
            [] => rng.next() as u8,
            bytes => *rng.pick(bytes),
        };
        (0..length).map(|_| byte(&mut rng)).collect()
    };
    let mut entries = Entries::new();
    while entries.len() < count {
        let (key, value) = (bytes(24), bytes(60));
        entries.insert(key, value);
    }
    entries.insert(vec![0xff; 65_535], vec![0; 100_000]);
    entries
}

fn fill(path: &str, entries: &Entries) {
    let db = Db::open(path).unwrap();
    entries.iter().for_each(|(key, value)| db.put(key, value).unwrap());
    db.close().unwrap();
}

/// What each keyspace has.
fn contents(path: &str) -> BTreeMap<String, Vec<Found>> {
    let db = Db::open_read_only(path).unwrap();
    let of = |name: String| {
        let mut cursor = db.keyspace(&name).unwrap().cursor();
        let mut found = Vec::new();
        cursor.seek_to_first().unwrap();
        while let Some((key, value)) = cursor.entry() {
            found.push((key.to_vec(), value.to_vec(), cursor.expires_at()));
            cursor.next().unwrap();
        }
        (name, found)
    };
    db.keyspaces().into_iter().map(of).collect()
}

fn export(db: &str, format: &str, file: &str) {
    let output = siftdb(&["export", db, "--format", format]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    write(file, &output.stdout);
}

fn export_keyspace(db: &str, name: &str, format: &str, file: &str) {
    let output = siftdb(&["export", db, "--format", format, "--keyspace", name]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    write(file, &output.stdout);
}

/// The text of `ldb dump --hex`.
fn ldb_dump(entries: &Entries) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let line =
        |(key, value): (&Vec<u8>, &Vec<u8>)| format!("0x{} ==> 0x{}\n", hex(key), hex(value));
    let lines: String = entries.iter().map(line).collect();
    format!("{lines}Keys in range: {}\n", entries.len())
}

/// Two keyspaces share the entries; of those that expire, if any may, a third.
fn fill_keyspaces(path: &str, entries: &Entries, may_expire: bool) {
    let mut rng = Rng::new(7);
    let db = Db::open(path).unwrap();
    let keyspaces = [db.keyspace("default").unwrap(), db.keyspace("other").unwrap()];
    for (key, value) in entries {
        let at = UNIX_EPOCH + Duration::from_millis(9_999_999_999_999 + rng.below(1_000) as u64);
        let options = match may_expire && rng.chance(33) {
            true => WriteOptions::new().expire_at(at),
            false => WriteOptions::new(),
        };
        keyspaces[rng.below(2)].put_with(key, value, &options).unwrap();
    }
    db.close().unwrap();
}

#[test]
fn every_format_round_trips_every_byte() {
    let place = Place::new();
    let (db, expiring, file) = (place.path("db"), place.path("expiring"), place.path("file"));
    let entries = random_entries(30_000);
    fill_keyspaces(&db, &entries, false);
    fill_keyspaces(&expiring, &entries, true);
    let (whole, whole_expiring) = (contents(&db), contents(&expiring));
    let count = |found: &[Found]| found.iter().filter(|(.., at)| at.is_some()).count();
    assert!(count(&whole_expiring["other"]) > 3_000);
    // What carries it all.
    export(&expiring, "jsonl", &file);
    let copy = place.path("jsonl");
    let answer = json(&["import", "jsonl", &file, &copy, "--json"]);
    assert_eq!(answer["entries"], entries.len());
    assert!(contents(&copy) == whole_expiring);
    // What carries keyspaces.
    let (mut short, lmdb) = (entries.clone(), place.path("lmdb"));
    short.retain(|key, _| (1..=511).contains(&key.len()));
    fill_keyspaces(&lmdb, &short, false);
    for (format, db) in [("mdb", &lmdb), ("bdb", &db)] {
        export(db, format, &file);
        let copy = place.path(format);
        json(&["import", format, &file, &copy, "--json"]);
        assert!(contents(&copy) == contents(db), "{format}");
    }
    // What carries one.
    for format in ["tsv", "ldb"] {
        let copy = place.path(format);
        for (name, found) in &whole {
            match format {
                "tsv" => export_keyspace(&db, name, format, &file),
                _ => {
                    let entry = |(key, value, _): &Found| (key.clone(), value.clone());
                    write(&file, ldb_dump(&found.iter().map(entry).collect()).as_bytes());
                }
            }
            json(&["import", format, &file, &copy, "--keyspace", name, "--json"]);
        }
        assert!(contents(&copy) == whole, "{format}");
    }
}

#[test]
fn jsonl_carries_keyspaces_settings_and_expiry() {
    let place = Place::new();
    let (path, file, copy) = (place.path("db"), place.path("file"), place.path("copy"));
    let db = Db::open(&path).unwrap();
    let settings = KeyspaceOptions::new()
        .filter(Filter::ribbon(10.0))
        .block_bytes(16 << 10)
        .expire_after(Duration::from_secs(1 << 30));
    let sessions = db.keyspace_with("sessions", &settings).unwrap();
    db.keyspace_with("empty \"one\"", &KeyspaceOptions::new().snappy(false)).unwrap();
    db.put("forever", "1").unwrap();
    sessions.put("as the keyspace says", "1").unwrap();
    let never = WriteOptions::new().expire_after(Duration::MAX);
    sessions.put_with("never", "1", &never).unwrap();
    let at = UNIX_EPOCH + Duration::from_millis(9_999_999_999_999);
    db.put_with("late", "1", &WriteOptions::new().expire_at(at)).unwrap();
    db.put_with("past", "1", &WriteOptions::new().expire_at(UNIX_EPOCH)).unwrap();
    db.close().unwrap();
    export(&path, "jsonl", &file);
    json(&["import", "jsonl", &file, &copy, "--json"]);
    assert_eq!(contents(&copy), contents(&path));
    assert_eq!(contents(&copy)["default"][1].2, Some(at));
    assert_eq!(ok(&["settings", &copy]), ok(&["settings", &path]));
    // Once more into the same: nothing changes, and settings that are there stay.
    ok(&["settings", &copy, "--keyspace", "sessions", "--set", "block_bytes=4096"]);
    let answer = json(&["import", "jsonl", &file, &copy, "--json"]);
    assert_eq!(contents(&copy), contents(&path));
    assert!(ok(&["settings", &copy]).contains("block_bytes=4096"));
    let ignored = object!([{ "name": "block_bytes", "value": "16384" }]);
    let kept = object!([{ "keyspace": "sessions", "ignored": ignored }]);
    assert_eq!(answer["settings_kept"], kept);
    let noted = siftdb(&["import", "jsonl", &file, &copy]);
    let noted = String::from_utf8(noted.stderr).unwrap();
    let note =
        "keyspace \"sessions\" was there and keeps its settings; ignored: block_bytes=16384\n";
    assert!(noted.contains(note) && noted.matches("ignored").count() == 1, "{noted}");
    // A scan's entries have no keyspace, so an argument may name one.
    write(&file, ok(&["scan", &path, "--json"]).as_bytes());
    json(&["import", "jsonl", &file, &copy, "--keyspace", "more", "--json"]);
    let keys = |found: &[Found]| found.iter().map(|(key, ..)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&contents(&copy)["more"]), keys(&contents(&path)["default"]));
}

#[test]
fn jsonl_carries_every_setting_of_every_keyspace() {
    let place = Place::new();
    let none = KeyspaceOptions::new;
    let settings = [
        none().filter(Filter::bloom(12.0)),
        none().filter(Filter::none()),
        none().filter_at_level(0, Filter::ribbon(9.0)),
        none().filter_last_level(false),
        none().block_bytes(512),
        none().block_hash_index(true),
        none().snappy(false),
        none().expire_after(Duration::from_secs(1 << 30)),
    ];
    for (number, settings) in settings.iter().enumerate() {
        for name in ["default", "named"] {
            let path = |what: &str| place.path(&format!("{what}-{number}-{name}"));
            let (from, copy) = (path("from"), path("copy"));
            let db = Options::new().create_if_missing(true);
            let db = if name == "default" { db.default_keyspace(settings) } else { db };
            let db = db.open(&from).unwrap();
            db.keyspace_with(name, settings).unwrap().put("k", "v").unwrap();
            db.close().unwrap();
            let (file, again) = (path("file"), path("again"));
            export(&from, "jsonl", &file);
            json(&["import", "jsonl", &file, &copy, "--json"]);
            export(&copy, "jsonl", &again);
            let exported = read(Path::new(&file));
            assert!(String::from_utf8_lossy(&exported).contains(&settings.settings()[0].0));
            assert!(read(Path::new(&again)) == exported, "{settings} of {name}");
            // Once more into the same: it has them.
            let kept = json(&["import", "jsonl", &file, &copy, "--json"]);
            assert_eq!(kept["settings_kept"], object!([]), "{settings} of {name}");
            // A database that is there, whose keyspaces have no entries.
            let empty = path("empty");
            Db::open(&empty).unwrap().close().unwrap();
            json(&["import", "jsonl", &file, &empty, "--json"]);
            export(&empty, "jsonl", &again);
            assert!(read(Path::new(&again)) == exported, "{settings} of {name}");
            let full = path("full");
            fill(&full, &Entries::from([(b"old".to_vec(), b"1".to_vec())]));
            let answer = siftdb(&["import", "jsonl", &file, &full, "--json"]);
            let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
            let kept = answer["settings_kept"].as_array().unwrap().len();
            assert_eq!(kept, usize::from(name == "default"), "{settings} of {name}");
        }
    }
}

#[test]
fn settings_of_a_program_are_left_out_with_a_note() {
    let place = Place::new();
    let (path, file, copy) = (place.path("db"), place.path("file"), place.path("copy"));
    let own = KeyspaceOptions::new().filter(Filter::custom(Arc::new(Marks))).block_bytes(512);
    let prefix = Prefix::custom(Arc::new(UpToDash));
    let level = KeyspaceOptions::new().filter_at_level(2, Filter::bloom(9.0).prefix(prefix));
    let registered = Options::new()
        .register_filter_policy(Arc::new(Marks))
        .register_prefix(Arc::new(UpToDash))
        .default_keyspace(&own);
    let db = registered.open(&path).unwrap();
    db.put("k", "1").unwrap();
    db.keyspace_with("other", &level).unwrap().put("k", "2").unwrap();
    db.close().unwrap();
    let says = |arguments: &[&str]| {
        let output = siftdb(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let lines = |why: &str| {
        let at_level = "filter_at_level.2=fast-local-bloom:9 prefix=test.UpToDash";
        [
            format!("keyspace \"default\": {why}: filter=custom:test.Marks\n"),
            format!("keyspace \"other\": {why}: {at_level}\n"),
        ]
    };
    let noted = says(&["export", &path, "-o", &file]);
    assert_eq!(noted, lines("import leaves out, as only a program can name it").concat());
    let noted = says(&["import", "jsonl", &file, &copy]);
    for line in lines("left out, as only a program can name it") {
        assert!(noted.contains(&line), "{noted}");
    }
    let values = contents(&copy).into_values().map(|found| found[0].1.clone());
    assert_eq!(values.collect::<Vec<_>>(), [b"1", b"2"]);
    let settings = ok(&["settings", &copy]);
    assert!(settings.contains("block_bytes=512") && !settings.contains("filter"), "{settings}");
    // As data; once more, and where the keyspaces have these settings.
    for (to, count) in [(&copy, 2), (&path, 0)] {
        let answer = json(&["import", "jsonl", &file, to, "--json"]);
        let left_out = answer["settings_left_out"].as_array().unwrap();
        assert_eq!(left_out.len(), count, "{answer}");
        assert_eq!(answer["settings_kept"], object!([]));
    }
    // The other formats carry none.
    for format in ["tsv", "mdb", "bdb"] {
        let export = ["export", &path, "--keyspace", "default", "--format", format, "-o", &file];
        let why = "not exported, as only jsonl has settings";
        let all = "filter=custom:test.Marks, block_bytes=512";
        assert_eq!(says(&export), format!("keyspace \"default\": {why}: {all}\n"));
    }
    // What nobody can name is a mistake.
    write(&file, br#"{"keyspace":"k","settings":[{"name":"filter","value":"bloom:x"}]}"#);
    fails(2, &["import", "jsonl", &file, &copy]);
}

#[test]
fn formats_refuse_what_they_cannot_carry() {
    let place = Place::new();
    let path = place.path("db");
    let db = Db::open(&path).unwrap();
    db.keyspace("users").unwrap().put("ada", "1815").unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    assert!(fails(2, &["export", &path, "--format", "tsv"]).contains("one keyspace"));
    let users = ok(&["export", &path, "--format", "tsv", "--keyspace", "users"]);
    assert_eq!(users, "ada\t1815\n");
    // Keyspaces are databases of their own there.
    let (file, copy) = (place.path("file"), place.path("copy"));
    export(&path, "mdb", &file);
    json(&["import", "mdb", &file, &copy, "--json"]);
    assert_eq!(contents(&copy), contents(&path));
    let refused = fails(2, &["import", "mdb", &file, &copy, "--keyspace", "users"]);
    assert!(refused.contains("the file names keyspaces"), "{refused}");

    let db = Db::open(&path).unwrap();
    let soon = WriteOptions::new().expire_after(Duration::from_secs(1 << 30));
    db.put_with("tab\there", "1", &soon).unwrap();
    db.close().unwrap();
    for format in ["tsv", "mdb", "bdb"] {
        let refused = fails(2, &["export", &path, "--format", format, "--keyspace", "default"]);
        assert!(refused.contains("key tab\\there expires"), "{refused}");
        assert!(refused.contains("--format jsonl"), "{refused}");
        assert!(fails(2, &["export", &path, "--format", format, "--json"]).contains("--json"));
    }
}

/// LMDB keeps the names of databases among the keys of the main one.
#[test]
fn dumps_for_lmdb_refuse_keys_that_name_keyspaces() {
    let place = Place::new();
    let path = place.path("db");
    let db = Db::open(&path).unwrap();
    db.keyspace("users").unwrap().put("users", "1815").unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    ok(&["export", &path, "--format", "mdb"]);
    ok(&["put", &path, "users", "1"]);
    let refused = fails(2, &["export", &path, "--format", "mdb"]);
    assert!(refused.contains("the key \"users\"") && refused.contains("jsonl"), "{refused}");
    assert_eq!(siftdb(&["export", &path, "--format", "mdb"]).stdout, b"");
    // Alone, or in a file of Berkeley DB, they are apart.
    ok(&["export", &path, "--format", "bdb"]);
    for keyspace in ["default", "users"] {
        ok(&["export", &path, "--format", "mdb", "--keyspace", keyspace]);
    }
}

#[test]
fn failed_imports_say_how_many_entries_are_written() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    ok(&["put", "--create", &db, "other", "v"]);
    // Keys that descend are written in batches.
    let line = |i: usize| format!("key{i:06}\t{}\n", "v".repeat(90));
    let text: String = (0..5000).rev().map(line).chain(["no tab\n".into()]).collect();
    write(&lines, text.as_bytes());
    for to in [&place.path("new"), &db] {
        let refused = fails(2, &["import", "tsv", &lines, to, "--json"]);
        let error: Value = serde_json::from_str(&refused).unwrap();
        assert_eq!(error["error"]["line"], 5001, "{refused}");
        let written = error["error"]["entries_written"].as_u64().unwrap();
        assert_eq!(written > 0, to == &db, "{refused}");
        if to == &db {
            assert_eq!(ok(&["count", &db]), format!("{}\n", written + 1));
        }
    }
}

/// `mdb_load` refuses such keys.
#[test]
fn dumps_for_lmdb_refuse_keys_it_cannot_hold() {
    let place = Place::new();
    for (n, bytes, is_refused) in [(0, 0, true), (1, 1, false), (2, 511, false), (3, 512, true)] {
        let path = place.path(&n.to_string());
        fill(&path, &Entries::from([(vec![b'k'; bytes], vec![])]));
        ok(&["export", &path, "--format", "bdb"]);
        match is_refused {
            false => drop(ok(&["export", &path, "--format", "mdb"])),
            true => {
                let refused = fails(2, &["export", &path, "--format", "mdb"]);
                let says = [&format!("a key of {bytes} bytes"), "1 to 511", "--format jsonl"];
                assert!(says.iter().all(|says| refused.contains(*says)), "{refused}");
            }
        }
    }
}

/// A tool that fails prints nothing into its pipe.
#[test]
fn empty_files_are_refused() {
    let place = Place::new();
    let (file, copy, none) = (place.path("file"), place.path("copy"), place.path("none"));
    write(&file, b"");
    for format in ["mdb", "bdb", "jsonl", "ldb"] {
        let refused = fails(2, &["import", format, &file, &copy]);
        assert!(refused.contains("line 1: "), "{format}: {refused}");
        assert!(!Path::new(&copy).exists(), "{format}");
    }
    // An export of nothing is not empty.
    fill(&none, &Entries::new());
    for format in ["mdb", "bdb", "jsonl"] {
        export(&none, format, &file);
        let answer = json(&["import", format, &file, &place.path(format), "--json"]);
        assert_eq!(answer["entries"], 0);
    }
}

/// Entries of a scan do not say when they expire, so their new keyspace says it.
#[test]
fn scanned_entries_expire_as_their_keyspace_says() {
    let place = Place::new();
    let (file, db) = (place.path("file"), place.path("db"));
    let settings = KeyspaceOptions::new().expire_after(Duration::from_secs(1 << 30));
    let opened = Db::open(&db).unwrap();
    opened.keyspace_with("sessions", &settings).unwrap();
    opened.save_settings().unwrap();
    opened.close().unwrap();
    write(&file, b"{\"format\":1,\"key\":\"a\",\"value\":\"1\"}\n");
    json(&["import", "jsonl", &file, &db, "--keyspace", "sessions", "--json"]);
    assert!(contents(&db)["sessions"][0].2.is_some());
}

/// What `db_dump -p` prints, with fields that say nothing here.
#[test]
fn dumps_in_text_are_read() {
    let place = Place::new();
    let (file, db) = (place.path("file"), place.path("db"));
    let dump = "VERSION=3\nformat=print\ntype=btree\n\
        db_pagesize=4096\nHEADER=END\n ada\n 1815\n b\\\\\\0a\\FF\n  two words\n \n \nDATA=END\n\
        VERSION=3\nformat=bytevalue\ndatabase=other\ntype=hash\nHEADER=END\n 61\n 0Aff\nDATA=END\n\
        VERSION=3\nformat=print\nHEADER=END\n z\n last\nDATA=END\n";
    write(&file, dump.as_bytes());
    json(&["import", "mdb", &file, &db, "--json"]);
    let found = contents(&db);
    let entry = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec(), None);
    let default = vec![
        entry(b"", b""),
        entry(b"ada", b"1815"),
        entry(b"b\\\n\xff", b" two words"),
        entry(b"z", b"last"),
    ];
    assert_eq!(found["default"], default);
    assert_eq!(found["other"], [entry(b"a", b"\n\xff")]);
}

/// Any number of them: each is read in the same room.
#[test]
fn parts_of_dumps_without_entries_are_passed() {
    let place = Place::new();
    let (file, db) = (place.path("file"), place.path("db"));
    let part = "VERSION=3\nformat=bytevalue\nHEADER=END\nDATA=END\n";
    write(&file, part.repeat(100_000).as_bytes());
    assert_eq!(json(&["import", "mdb", &file, &db, "--json"])["entries"], 0);
}

/// `db_dump` spells bytes of names as it does those of text, and `db_load` reads them so.
/// `mdb_dump` prints names as they are.
#[test]
fn names_in_berkeley_dumps_have_escapes() {
    let place = Place::new();
    let db = place.database();
    let names = ["a\\b", "gr\u{fc}n", "c d"];
    names.iter().for_each(|name| drop(ok(&["keyspace", "create", &db, name])));
    let dumped = |format: &str| {
        let dump = ok(&["export", &db, "--format", format]);
        dump.lines().filter_map(|line| Some(line.strip_prefix("database=")?.into())).collect()
    };
    let of_berkeley: Vec<String> = dumped("bdb");
    assert_eq!(of_berkeley, ["default", "a\\\\b", "gr\\c3\\bcn", "c d"]);
    let of_lmdb: Vec<String> = dumped("mdb");
    assert_eq!(of_lmdb, names);
    for format in ["bdb", "mdb"] {
        let (file, copy) = (place.path(&format!("{format}.dump")), place.path(format));
        ok(&["export", &db, "--format", format, "-o", &file]);
        json(&["import", format, &file, &copy, "--json"]);
        let found = contents(&copy).into_keys();
        assert!(
            found.filter(|name| name != "default").eq(["a\\b", "c d", "gr\u{fc}n"]),
            "{format}"
        );
    }
    let file = place.path("file");
    for name in ["a\\q", "\\ff"] {
        let header = format!("VERSION=3\nformat=print\ndatabase={name}\nHEADER=END\nDATA=END\n");
        write(&file, header.as_bytes());
        let refused = fails(2, &["import", "bdb", &file, &place.path("none")]);
        assert!(refused.contains("the name of a database"), "{refused}");
    }
}

/// Dumps that the tools of the stores printed: `ldb` of RocksDB 11.8.1, LMDB 0.9.24, Berkeley DB
/// 5.3.28. A database was made of the same entries by each. In RocksDB one key was deleted, and
/// another written again.
#[test]
fn recorded_dumps_are_read() {
    let place = Place::new();
    let all: Vec<u8> = (0..=255).collect();
    let entries: [(&[u8], &[u8]); 8] = [
        (b"ada", b"1815"),
        (b"empty", b""),
        (b"\0", b"\0\xff"),
        (b"\t\n\r", b"two words"),
        ("gr\u{fc}n".as_bytes(), "\u{20ac}".as_bytes()),
        (b"\xff\xff", &all),
        (b" ==> 0x61", b"Keys in range: 3"),
        (b"back\\slash\\41", b"\\"),
    ];
    let entries: Entries =
        entries.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let dumps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/dumps");
    let recorded = |name: &str| dumps.join(name).to_str().unwrap().to_string();
    let readable = [
        ("ldb", "ldb_dump_hex"),
        ("mdb", "mdb_dump"),
        ("mdb", "db_dump"),
        ("bdb", "db_dump"),
        ("bdb", "db_dump_p"),
    ];
    for (n, (format, name)) in readable.into_iter().enumerate() {
        let db = place.path(&n.to_string());
        json(&["import", format, &recorded(&format!("{name}.txt")), &db, "--json"]);
        assert_eq!(scanned(&db), entries, "{name}");
    }
    // This one printed the backslashes as they are, which then begin escapes.
    let (file, db) = (place.path("file"), place.path("db"));
    let ambiguous = recorded("mdb_dump_p.txt");
    let refused = fails(2, &["import", "mdb", &ambiguous, &db]);
    assert!(refused.contains("line 16: ") && refused.contains("dump without -p"), "{refused}");
    let text = String::from_utf8(read(Path::new(&ambiguous))).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (header, data) = lines.split_at(7);
    let pairs = data.chunks(2).filter(|pair| !pair.concat().contains("\\]"));
    let pairs = pairs.filter(|pair| !pair[0].starts_with(" back"));
    let text = [header, &pairs.collect::<Vec<_>>().concat()].concat().join("\n");
    write(&file, text.as_bytes());
    json(&["import", "mdb", &file, &db, "--json"]);
    let mut others = entries.clone();
    others.retain(|key, value| !key.contains(&b'\\') && !value.contains(&b'\\'));
    assert_eq!((scanned(&db), others.len()), (others.clone(), 6));
    // Newer ones write a backslash in hex, and no other printable byte.
    for (line, is_read) in [("\\5c", true), ("\\0a", true), ("\\\\", false), ("\\41", false)] {
        write(&file, text.replace(" ada\n", &format!(" {line}\n")).as_bytes());
        let import = siftdb(&["import", "mdb", &file, &db]);
        assert_eq!(import.status.success(), is_read, "{line}");
    }
}

/// `mdb_load` makes a map of the size that a dump says; `db_load` refuses that line. It has no
/// database without a name in a file with others.
#[test]
fn dumps_suit_the_tool_that_loads_them() {
    let place = Place::new();
    let path = place.path("db");
    let db = Db::open(&path).unwrap();
    db.put("a", "1").unwrap();
    db.keyspace("users").unwrap().put("ada", "1815").unwrap();
    db.close().unwrap();
    let headers = |more: &[&str]| {
        let text = ok(&[&["export", &path, "--format"], more].concat());
        let is_header = |line: &&str| !line.starts_with(' ') && *line != "DATA=END";
        text.lines().filter(is_header).map(String::from).collect::<Vec<_>>().join(" ")
    };
    let (begin, end) = ("VERSION=3 format=bytevalue", "HEADER=END");
    let map = "type=btree mapsize=1052672";
    let lmdb = format!("{begin} {map} {end} {begin} database=users {map} {end}");
    assert_eq!(headers(&["mdb"]), lmdb);
    let berkeley = format!(
        "{begin} database=default type=btree {end} {begin} database=users type=btree {end}"
    );
    assert_eq!(headers(&["bdb"]), berkeley);
    let alone = format!("{begin} type=btree {end}");
    assert_eq!(headers(&["bdb", "--keyspace", "default"]), alone);
}

#[test]
fn unusable_files_are_named_with_their_line() {
    let place = Place::new();
    let (file, db) = (place.path("file"), place.path("db"));
    let header = "VERSION=3\nformat=bytevalue\ntype=btree\n";
    let cases = [
        ("tsv", "a\t1\nb\n".to_string(), 2, "no TAB"),
        ("tsv", "a\t\\q\n".into(), 1, "escape"),
        ("jsonl", "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"a\"\n".into(), 2, "no JSON"),
        ("jsonl", "[1]\n".into(), 1, "no JSON object"),
        ("jsonl", "{\"key\":\"a\"}\n".into(), 1, "value"),
        ("jsonl", "{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"\"}\n".into(), 1, "one of"),
        ("jsonl", "{\"key_base64\":\"Y\",\"value\":\"\"}\n".into(), 1, "no base64"),
        ("jsonl", "{\"format\":2,\"key\":\"a\",\"value\":\"\"}\n".into(), 1, "format"),
        ("jsonl", "{\"key\":\"a\",\"value\":\"\",\"expires_at\":-1}\n".into(), 1, "no time"),
        ("jsonl", "{\"keyspace\":\"\"}\n{\"entries\":0}\n".into(), 1, "keyspace"),
        (
            "jsonl",
            "{\"keyspace\":\"a\",\"settings\":[{\"name\":\"x\",\"value\":\"y\"}]}".into(),
            1,
            "x",
        ),
        (
            "jsonl",
            "{\"keyspace\":\"a\",\"settings\":{\"filter\":\"none\"}}\n".into(),
            1,
            "no array",
        ),
        ("jsonl", "{\"keyspace\":\"a\"}\n{\"entries\":1}\n".into(), 2, "0 entries"),
        ("jsonl", "{\"keyspace\":\"a\"}\n{\"entries\":0}\n{}\n".into(), 3, "after the end"),
        ("mdb", "hello\n".into(), 1, "NAME=VALUE"),
        ("mdb", "VERSION=2\n".into(), 1, "version 3"),
        ("mdb", format!("{header}duplicates=1\n"), 4, "several values"),
        ("mdb", "VERSION=3\nHEADER=END\n".into(), 2, "no format"),
        ("mdb", format!("{header}HEADER=END\n6\n"), 5, "malformed"),
        ("mdb", format!("{header}HEADER=END\n 6\n"), 5, "malformed"),
        ("mdb", format!("{header}HEADER=END\n 61\nDATA=END\n"), 6, "key without its value"),
        ("ldb", "a ==> b\n".into(), 1, "ldb dump --hex"),
        ("ldb", "0x61 ==> 0x62\nKeys in range: 2\n".into(), 2, "1 entries"),
        ("ldb", "0x61 ==> :0x62 0x63:0x64\n".into(), 1, "wide columns"),
        ("ldb", "0x61|timestamp:7 ==> 0x62\n".into(), 1, "timestamp"),
        ("ldb", "0x61 ==> 0x6\n".into(), 1, "ldb dump --hex"),
        ("ldb", "Keys in range: 0\n0x61 ==> 0x62\n".into(), 2, "after the end"),
    ];
    for (format, text, line, what) in cases {
        write(&file, text.as_bytes());
        let refused = fails(2, &["import", format, &file, &db]);
        let place = format!("{file}: line {line}: ");
        assert!(refused.contains(&place) && refused.contains(what), "{text}: {refused}");
    }
    let missing = fails(4, &["import", "tsv", &place.path("missing"), &place.path("new")]);
    assert!(missing.contains("missing"), "{missing}");
    assert!(!Path::new(&place.path("new")).exists(), "nothing is created");
}

/// What a failed import leaves: nothing of a new database, and of another what the message says.
#[test]
fn failed_imports_leave_no_new_database() {
    let place = Place::new();
    let (file, inside) = (place.path("file"), place.path("inside"));
    let names = |directory: &str| files(directory, "").len();
    std::fs::create_dir(&inside).unwrap();
    let deep = format!("{inside}/a/b/db");
    let text = |order: &mut dyn Iterator<Item = u32>| {
        let line = |i: u32| format!("key{i:05}\t{}\n", "v".repeat(90));
        order.map(line).chain(["no tab\n".into()]).collect::<String>()
    };
    let (up, down) = (text(&mut (0..9_000)), text(&mut (0..9_000).rev()));
    for text in [&up, &down] {
        write(&file, text.as_bytes());
        for new in [&format!("{inside}/db"), &deep] {
            let message = fails(2, &["import", "tsv", &file, new]);
            assert!(message.contains("line 9001: no TAB"), "{message}");
            assert!(!message.contains("stay"), "{message}");
            assert_eq!(names(&inside), 0);
        }
    }
    let db = place.path("db");
    fill(&db, &Entries::from([(b"old".to_vec(), b"1".to_vec())]));
    write(&file, up.as_bytes());
    assert!(!fails(2, &["import", "tsv", &file, &db]).contains("stay"));
    assert_eq!(scanned(&db).len(), 1);
    write(&file, down.as_bytes());
    let message = fails(2, &["import", "tsv", &file, &db]);
    let count = scanned(&db).len() - 1;
    assert!(count > 1_000, "{count}");
    let says = format!("entries written before it: {count}; they stay in {db}");
    assert!(message.contains(&says), "{message}");

    // Missing directories are made, once there is something to put there.
    write(&file, up.strip_suffix("no tab\n").unwrap().as_bytes());
    json(&["import", "tsv", &file, &deep, "--json"]);
    assert_eq!(scanned(&deep).len(), 9_000);
    assert_eq!(names(&inside), 1);
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&deep), mode(&inside));
    // A name without a directory is one in the current directory.
    let mut import = command(&["import", "tsv", &file, "here"]);
    assert!(import.current_dir(&inside).output().unwrap().status.success());
    assert_eq!(scanned(&format!("{inside}/here")).len(), 9_000);
    assert_eq!(names(&inside), 2);
}

#[test]
fn interrupted_imports_leave_nothing() {
    let place = Place::new();
    let inside = place.path("inside");
    std::fs::create_dir(&inside).unwrap();
    let db = format!("{inside}/db");
    let mut import = command(&["import", "tsv", "-", &db]);
    let mut child = import.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    // Once it builds, it waits for a line.
    let builds = || files(&inside, "").iter().any(|path| path.join("database").exists());
    while !builds() {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    assert!(child.wait().unwrap().signal().is_some());
    drop(input);
    assert_eq!(files(&inside, "").len(), 0);
}

/// An import that has begun to build in `directory`, and waits for a line.
fn waiting_import(directory: &str, to: &str) -> Child {
    let before = left_in(directory);
    let mut import = command(&["import", "tsv", "-", to]);
    let child = import.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let is_built = |path: &PathBuf| !before.contains(path) && path.join("database").exists();
    while !left_in(directory).iter().any(is_built) {
        std::thread::yield_now();
    }
    child
}

/// The names in `directory` of what imports build in.
fn left_in(directory: &str) -> Vec<PathBuf> {
    let mut files = files(directory, "");
    files.retain(|path| path.to_str().unwrap().contains(".siftdb-import-"));
    files
}

#[test]
fn leftovers_of_killed_imports_go_with_the_next() {
    let place = Place::new();
    let (file, inside) = (place.path("file"), place.path("inside"));
    std::fs::create_dir(&inside).unwrap();
    write(&file, b"a\t1\n");
    let mut killed = waiting_import(&inside, &format!("{inside}/killed"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(left_in(&inside).len(), 1);
    let mut runs = waiting_import(&inside, &format!("{inside}/runs"));
    // Those of 0.1.0 have no lock, so nobody knows whether one is in use.
    let (old, empty) =
        (format!("{inside}/.siftdb-import-old"), format!("{inside}/.siftdb-import-"));
    std::fs::create_dir_all(format!("{old}/database")).unwrap();
    std::fs::create_dir(&empty).unwrap();
    let says = siftdb(&["import", "tsv", &file, &format!("{inside}/next")]);
    assert!(says.status.success());
    let says = String::from_utf8(says.stderr).unwrap();
    assert!(says.contains(&format!("{old} was left by an import")), "{says}");
    assert_eq!(left_in(&inside).len(), 2, "the one of 0.1.0, and one that is in use");
    drop(runs.stdin.take());
    assert!(runs.wait().unwrap().success());
    assert!(Path::new(&format!("{inside}/runs/CURRENT")).exists());
    assert_eq!(left_in(&inside), [PathBuf::from(old)]);
}

/// Where no new directory can take the place of the target, its files come in the end.
#[test]
fn imports_into_directories_with_files_are_whole_or_absent() {
    let place = Place::new();
    let (file, db) = (place.path("file"), place.path("db"));
    std::fs::create_dir(&db).unwrap();
    write(&format!("{db}/note"), b"a file of the user");
    let has_only_the_note = || assert_eq!(files(&db, ""), [PathBuf::from(format!("{db}/note"))]);
    write(&file, b"a\t1\nno tab\n");
    fails(2, &["import", "tsv", &file, &db]);
    has_only_the_note();
    let mut killed = waiting_import(&db, &db);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(fails(4, &["count", &db]).contains("no database"));
    // As if it had died in the last step.
    write(&format!("{db}/CURRENT"), b"siftdb 2 UNFINISHED 352b7988\n");
    write(&format!("{db}/000007.sst"), b"");
    for arguments in
        [&["count", &db][..], &["repair", &db], &["verify", &db], &["put", &db, "k", "v"]]
    {
        let message = fails(4, arguments);
        assert!(message.contains("only a part of a database"), "{arguments:?}: {message}");
        assert!(message.ends_with("; run that again, or remove the directory\n"), "{message}");
        let error = String::from_utf8(siftdb(&[arguments, &["--json"]].concat()).stderr).unwrap();
        assert!(error.contains("\"kind\":\"unfinished\""), "{arguments:?}: {error}");
    }
    write(&file, b"a\t1\nb\t2\n");
    json(&["import", "tsv", &file, &db, "--json"]);
    assert_eq!(scanned(&db).len(), 2);
    assert!(left_in(&db).is_empty() && Path::new(&format!("{db}/note")).exists());
    // It is a database like any other now.
    json(&["import", "tsv", &file, &db, "--json"]);
    ok(&["put", &db, "c", "3"]);
    assert_eq!(scanned(&db).len(), 3);
    // The current directory keeps its identity.
    let here = place.path("here");
    std::fs::create_dir(&here).unwrap();
    let mut import = command(&["import", "tsv", &file, "."]);
    assert!(import.current_dir(&here).output().unwrap().status.success());
    assert_eq!(scanned(&here).len(), 2);
    assert!(left_in(&here).is_empty());
}

/// The signal comes at any moment, also while the database is closed and gets its name.
#[test]
fn interrupted_imports_are_whole_or_absent() {
    const ENTRIES: usize = 40_000;
    let place = Place::new();
    let (file, inside) = (place.path("file"), place.path("inside"));
    let line = |i: usize| format!("key{i:06}\t{}\n", "v".repeat(90));
    write(&file, (0..ENTRIES).map(line).collect::<String>().as_bytes());
    let is_named = |db: &str| Path::new(db).exists();
    let run = |db: &str, wait: Option<Duration>| {
        let mut import = command(&["import", "tsv", &file, db]);
        let started = Instant::now();
        let mut child = import.stderr(Stdio::null()).spawn().unwrap();
        if let Some(wait) = wait {
            std::thread::sleep(wait);
            // It may have ended already.
            let mut kill = Command::new("kill");
            let kill = kill.args(["-TERM", &child.id().to_string()]).stderr(Stdio::null());
            kill.status().unwrap();
        }
        (child.wait().unwrap(), started.elapsed())
    };
    std::fs::create_dir(&inside).unwrap();
    let (first, whole) = run(&format!("{inside}/first"), None);
    assert!(first.success());
    for i in 0..30u32 {
        let db = format!("{inside}/{i}");
        // The last moments get most of the signals.
        let (status, _) = run(&db, Some(whole * (60 + 5 * i % 50) / 100));
        assert!(is_named(&db) || status.signal().is_some(), "{i}: {status}");
        if is_named(&db) {
            let found = siftdb(&["count", &db]);
            assert_eq!(found.stdout, format!("{ENTRIES}\n").as_bytes(), "{i}: {status}");
        }
    }
    let is_left = |path: &PathBuf| path.to_str().unwrap().contains(".siftdb-import-");
    assert!(!files(&inside, "").iter().any(is_left));
}

/// An empty directory is as good as none.
#[test]
fn failed_imports_leave_empty_directories_empty() {
    let place = Place::new();
    let (file, db) = (place.path("file"), place.path("db"));
    std::fs::create_dir(&db).unwrap();
    std::fs::set_permissions(&db, std::fs::Permissions::from_mode(0o700)).unwrap();
    write(&file, b"a\t1\nno tab\n");
    fails(2, &["import", "tsv", &file, &db]);
    assert_eq!(files(&db, "").len(), 0);
    write(&file, b"a\t1\n");
    json(&["import", "tsv", &file, &db, "--json"]);
    assert_eq!(scanned(&db).len(), 1);
    let mode = std::fs::metadata(&db).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// The standard error of a command that can write no file.
fn without_space(directory: &str, arguments: &[&str]) -> String {
    let output = with_file_limit(0, directory, arguments);
    assert_eq!(output.status.code(), Some(4), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn messages_name_the_users_target() {
    let place = Place::new();
    let (db, inside) = (place.database(), place.path("inside"));
    std::fs::create_dir(&inside).unwrap();
    let lines = place.path("lines");
    let imports = ["import", "tsv", &lines, "new"];
    for (arguments, target) in [
        (&imports[..], "new/"),
        (&[&imports[..], &["--json"]].concat(), "\"new/"),
        (&["export", &db, "-o", "file"], "file: "),
        (&["report", &db, "-o", "page"], "page: "),
    ] {
        let message = without_space(&inside, arguments);
        assert!(message.contains(target), "{message}");
        assert!(message.contains("ile too large") && !message.contains(".siftdb-"), "{message}");
        assert!(!message.contains("standard output"), "{message}");
        assert_eq!(files(&inside, "").len(), 0);
    }
    // Nobody creates files there.
    for arguments in [["import", "tsv", &lines, "/sys/new"], ["report", &db, "-o", "/sys/new"]] {
        let message = fails(4, &arguments);
        assert!(message.contains("/sys/new: ") && !message.contains(".siftdb-"), "{message}");
    }
}

#[test]
fn exports_replace_a_file_whole() {
    let place = Place::new();
    let (db, file) = (place.database(), place.path("out/file"));
    let refused = fails(4, &["export", &db, "-o", &file]);
    assert!(refused.contains(&file) && refused.contains("create it"), "{refused}");
    std::fs::create_dir(place.path("out")).unwrap();
    for format in ["jsonl", "tsv", "mdb", "bdb"] {
        let said = ok(&["export", &db, "--format", format, "-o", &file]);
        assert_eq!(said, format!("3000 entries: {file}\n"));
        let printed = ok(&["export", &db, "--format", format]);
        assert!(read(Path::new(&file)) == printed.as_bytes(), "{format}");
    }
    assert_eq!(json(&["export", &db, "--json", "-o", &file])["entries"], 3_000);
    let before = read(Path::new(&file));
    // A failure after the first keyspace was written.
    ok(&["keyspace", "create", &db, "other"]);
    fails(2, &["export", &db, "--format", "tsv", "-o", &file]);
    assert!(read(Path::new(&file)) == before);
    assert_eq!(files(&place.path("out"), "").len(), 1);
}

#[test]
fn replaced_files_keep_their_permissions() {
    let place = Place::new();
    let (db, file) = (place.database(), place.path("file"));
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    write(&file, b"secret");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    ok(&["export", &db, "-o", &file]);
    assert_eq!(mode(), 0o600);
}

#[test]
fn sorted_imports_are_bulk_loads() {
    let place = Place::new();
    let (path, file) = (place.path("db"), place.path("file"));
    let db = Db::open(&path).unwrap();
    for name in ["default", "other"] {
        let keyspace = db.keyspace(name).unwrap();
        for i in 0..5_000u32 {
            let at = UNIX_EPOCH + Duration::from_secs(9_999_999_999 + u64::from(i % 3));
            let options = WriteOptions::new().expire_at(at);
            let options = if i % 2 == 0 { options } else { WriteOptions::new() };
            keyspace.put_with(format!("key{i:05}"), [7; 90], &options).unwrap();
        }
    }
    db.close().unwrap();
    export(&path, "jsonl", &file);
    let copy = place.path("copy");
    json(&["import", "jsonl", &file, &copy, "--json"]);
    assert!(contents(&copy) == contents(&path));
    let stats = json(&["stats", &copy, "--json"]);
    assert_eq!((&stats["ingests"], &stats["entries_ingested"]), (&2.into(), &10_000.into()));
}

/// A dump that says how long it is, or where it ends, is not taken for a shorter one.
#[test]
fn cut_dumps_are_refused() {
    let place = Place::new();
    let (path, file) = (place.path("db"), place.path("file"));
    let entries: Entries = (0..3u8).map(|i| (vec![b'k', i], vec![i; 3])).collect();
    fill(&path, &entries);
    for format in ["jsonl", "mdb", "ldb"] {
        match format {
            "ldb" => write(&file, ldb_dump(&entries).as_bytes()),
            format => export(&path, format, &file),
        }
        let whole = read(Path::new(&file));
        // The end of the last line may be missing.
        for cut in 1..whole.len() - 1 {
            write(&file, &whole[..cut]);
            let refused = siftdb(&["import", format, &file, &place.path("copy")]);
            assert_eq!(refused.status.code(), Some(2), "{format} cut at {cut}");
        }
    }
}

/// A LevelDB database of 30 entries, in tables of two levels and two logs. The writer of the tests
/// of `siftdb-foreign/leveldb` made it, which is held against LevelDB itself.
fn leveldb(place: &Place) -> String {
    let golden = golden("leveldb");
    let copy = place.path("old");
    std::fs::create_dir(&copy).unwrap();
    for file in files(golden.to_str().unwrap(), "") {
        std::fs::copy(&file, Path::new(&copy).join(file.file_name().unwrap())).unwrap();
    }
    copy
}

fn leveldb_entries() -> Entries {
    (0..30u8).map(|i| (vec![b'k', i], vec![i; 20])).collect()
}

fn scanned(path: &str) -> Entries {
    let found = contents(path)["default"].clone();
    found.into_iter().map(|(key, value, _)| (key, value)).collect()
}

fn bytes_of(directory: &str) -> Vec<(PathBuf, Vec<u8>)> {
    files(directory, "").into_iter().map(|path| (path.clone(), read(&path))).collect()
}

#[test]
fn leveldb_databases_come_in_unchanged() {
    let place = Place::new();
    let (old, db) = (leveldb(&place), place.path("db"));
    let before = bytes_of(&old);
    let answer = json(&["import", "leveldb", &old, &db, "--json"]);
    assert_eq!((&answer["entries"], &answer["dropped"]), (&30.into(), &serde_json::json!([])));
    assert_eq!(scanned(&db), leveldb_entries());
    json(&["import", "leveldb", &old, &db, "--keyspace", "old", "--json"]);
    assert_eq!(contents(&db)["old"].len(), 30);
    assert_eq!(bytes_of(&old), before);
    ok(&["verify", &db]);
    let Some(vectors) = std::env::var_os("SIFTDB_VECTORS") else { return };
    for name in ["none_crash_wal", "snappy_compacted"] {
        let directory = Path::new(&vectors).join("leveldb_db").join(name);
        let expected: serde_json::Value =
            serde_json::from_slice(&read(&directory.join("expected.json"))).unwrap();
        let db = place.path(name);
        let old = directory.join("db").to_str().unwrap().to_string();
        let answer = json(&["import", "leveldb", &old, &db, "--json"]);
        assert_eq!(answer["entries"], expected["live_count"]);
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let found = scanned(&db).into_iter().map(|(k, v)| serde_json::json!([hex(&k), hex(&v)]));
        assert_eq!(serde_json::Value::from_iter(found), expected["live"]);
    }
}

#[test]
fn directories_without_leveldb_are_named() {
    let place = Place::new();
    let (db, empty, file) = (place.database(), place.path("empty"), place.path("file"));
    std::fs::create_dir(&empty).unwrap();
    write(&format!("{empty}/notes.log"), b"of another program");
    write(&file, b"");
    for from in [&db, &empty, &file] {
        for options in [&[][..], &["--salvage"]] {
            let import = ["import", "leveldb", from, &place.path("to")];
            let message = fails(4, &[&import, options].concat());
            assert_eq!(message, format!("siftdb: no LevelDB database in {from}\n"));
        }
    }
    // Without CURRENT it still is one.
    let old = leveldb(&place);
    std::fs::remove_file(format!("{old}/CURRENT")).unwrap();
    let message = fails(4, &["import", "leveldb", &old, &place.path("to")]);
    assert!(message.contains("CURRENT"), "{message}");
}

#[test]
fn leveldb_databases_in_use_are_refused() {
    let place = Place::new();
    let (old, db) = (leveldb(&place), place.path("db"));
    let path = Path::new(&old).join("LOCK");
    write(path.to_str().unwrap(), b"");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    let refused = fails(4, &["import", "leveldb", &old, &db]);
    assert!(refused.contains("LOCK: LevelDB has this database open"), "{refused}");
    assert!(!Path::new(&db).exists(), "nothing is created");
    fcntl_lock(&file, FlockOperation::Unlock).unwrap();
    json(&["import", "leveldb", &old, &db, "--json"]);
}

#[test]
fn damage_in_leveldb_databases_is_named() {
    let place = Place::new();
    let old = leveldb(&place);
    let table = Path::new(&old).join("000011.ldb");
    let mut bytes = read(&table);
    bytes[3] ^= 1;
    write(table.to_str().unwrap(), &bytes);
    let db = place.path("db");
    let refused = fails(3, &["import", "leveldb", &old, &db]);
    assert!(refused.contains("000011.ldb") && refused.contains("checksum"), "{refused}");
    assert!(!refused.contains("siftdb repair"), "{refused}");
    let db = place.path("salvaged");
    let output = siftdb(&["import", "leveldb", &old, &db, "--salvage", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["dropped"][0]["path"], table.to_str().unwrap());
    assert_eq!(answer["dropped"][0]["offset"], 0);
    let found = scanned(&db);
    let whole = leveldb_entries();
    assert!(found.len() < 30 && found.len() as u64 == answer["entries"].as_u64().unwrap());
    assert!(found.iter().all(|(key, value)| whole.get(key) == Some(value)));
    assert!(fails(2, &["import", "tsv", &old, &db, "--salvage"]).contains("--salvage"));
}

#[test]
fn filters_of_leveldb_are_shown_before_a_move() {
    let place = Place::new();
    let (old, probes) = (leveldb(&place), place.path("probes"));
    let keys: Vec<u8> = (0..200u8).flat_map(|i| [b'k', 11 + i % 9, b'x', 50 + i, b'\n']).collect();
    write(&probes, &keys);
    let before = bytes_of(&old);
    let report = json(&["filter", "stats", &old, "--probe", &probes, "--json"]);
    assert_eq!((&report["store"], &report["tables"]), (&"leveldb".into(), &4.into()));
    assert_eq!((&report["keys"], &report["lookups"]), (&20.into(), &200.into()));
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((count("true_positives"), count("found")), (0, 0));
    assert!(count("negatives") > 100 && count("false_positives") == count("blocks_read"));
    let encodings = report["same_rate"].as_array().unwrap();
    assert!(encodings.iter().any(|one| one["encoding"] == "ribbon"), "{report}");
    let text = ok(&["filter", "stats", &old, "--probe", &probes]);
    assert!(text.contains("LevelDB: 4 tables") && text.contains("observed: "), "{text}");
    assert!(text.contains("ribbon"), "{text}");
    assert_eq!(bytes_of(&old), before);
}
