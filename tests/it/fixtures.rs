//! Databases that version 0.1 wrote, in `tests/fixtures/`: every later version reads them.
//!
//! Each fixture is one file (`support/archive.rs`) with the files of a small database. A fixture is
//! never written again once its version is released. Before that:
//!
//! `cargo test --all-features --test it write_every_fixture -- --ignored`
//!
//! The same steps that wrote a fixture tell what it holds, so that nothing else is stored. A reader
//! that was written from docs/format.md alone reads each of them, too.
//!
//! Directories in `tests/fixtures/` are of RocksDB. `rocksdb` has databases for the import;
//! `rocksdb-queries` has databases with lookups and the counters of RocksDB for these lookups.
//! The programs that wrote them are in `rocksdb-writer`.

use crate::support::archive::{pack, unpack};
use crate::support::by_document::{Contents, Files, read_database};
use crate::support::filters::layouts;
use crate::support::seal::masked;
use crate::support::stores::{HOME, as_env, name};
use siftdb::env::MemEnv;
use siftdb::{
    Db, Error, Filter, Keyspace, KeyspaceOptions, Options, Prefix, WriteBatch, add_ingested_table,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The time at which fixtures are read, in milliseconds since 1970.
const NOW: u64 = 1_900_000_000_000;

/// How a fixture is written, and with what.
struct Fixture {
    name: String,
    options: Options,
    steps: fn(&mut Session),
}

/// A database that is being written, next to its expected contents. Without the database, only the
/// contents are worked out.
struct Session {
    env: MemEnv,
    options: Options,
    db: Option<Db>,
    expected: Contents,
}

impl Session {
    fn new(options: &Options, writes: bool) -> Self {
        let env = MemEnv::new();
        let options = options.clone().env(as_env(&env));
        let db = writes.then(|| options.clone().open(HOME).unwrap());
        let expected = BTreeMap::from([("default".into(), BTreeMap::new())]);
        Session { env, options, db, expected }
    }

    /// Does something to the database, if there is one.
    fn with(&self, step: impl FnOnce(&Db)) {
        if let Some(db) = &self.db {
            step(db);
        }
    }

    fn create(&mut self, keyspace: &str, settings: &KeyspaceOptions) {
        self.with(|db| drop(db.keyspace_with(keyspace, settings).unwrap()));
        self.expected.insert(keyspace.into(), BTreeMap::new());
    }

    fn drop_keyspace(&mut self, keyspace: &str) {
        self.with(|db| db.drop_keyspace(keyspace).unwrap());
        self.expected.remove(keyspace);
    }

    fn contents_of(&mut self, keyspace: &str) -> &mut BTreeMap<Vec<u8>, Vec<u8>> {
        self.expected.get_mut(keyspace).unwrap()
    }

    fn put(&mut self, keyspace: &str, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        let (key, value) = (key.into(), value.into());
        self.with(|db| db.keyspace(keyspace).unwrap().put(&key, &value).unwrap());
        self.contents_of(keyspace).insert(key, value);
    }

    fn delete(&mut self, keyspace: &str, key: impl Into<Vec<u8>>) {
        let key = key.into();
        self.with(|db| db.keyspace(keyspace).unwrap().delete(&key).unwrap());
        self.contents_of(keyspace).remove(&key);
    }

    /// Deletes from `start` to before `end`, or without an end.
    fn delete_range(&mut self, keyspace: &str, start: &str, end: Option<&str>) {
        let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_bytes()));
        let range = (Bound::Included(start.as_bytes()), end);
        self.with(|db| db.keyspace(keyspace).unwrap().delete_range(range).unwrap());
        self.contents_of(keyspace).retain(|key, _| !RangeBounds::<[u8]>::contains(&range, &**key));
    }

    /// Puts `key`, which has expired by [`NOW`] if the time of the write says so.
    fn put_at(&mut self, millis: u64, keyspace: &str, key: String, lives: Duration) {
        let time = Duration::from_millis(millis);
        self.env.set_now(UNIX_EPOCH + time);
        self.put(keyspace, key.as_str(), format!("until {:?}", time + lives));
        if (time + lives).as_millis() <= u128::from(NOW) {
            self.contents_of(keyspace).remove(key.as_bytes());
        }
    }

    /// Adds an ingested table; the database is closed and opened again for that.
    fn ingest(&mut self, keyspace: &str, entries: &[(Vec<u8>, Option<Vec<u8>>)]) {
        self.flush();
        if self.db.is_some() {
            self.close();
            add_ingested_table(&as_env(&self.env), HOME, keyspace, entries).unwrap();
            self.db = Some(self.options.clone().open(HOME).unwrap());
        }
        let contents = self.contents_of(keyspace);
        for (key, value) in entries {
            match value {
                Some(value) => drop(contents.insert(key.clone(), value.clone())),
                None => drop(contents.remove(key)),
            }
        }
    }

    fn flush(&mut self) {
        self.with(|db| db.flush().unwrap());
    }

    fn compact(&mut self) {
        self.with(|db| db.compact_range(..).unwrap());
    }

    fn close(&mut self) {
        self.with(|db| db.close().unwrap());
        self.db = None;
    }

    fn reopen(&mut self) {
        if self.db.is_some() {
            self.close();
            self.db = Some(self.options.clone().open(HOME).unwrap());
        }
    }

    /// The files as they are.
    fn files(&self) -> Files {
        let files = self.env.list_files().into_iter().filter(|path| !path.ends_with("LOCK"));
        files.map(|path| (name(&path).into(), self.env.read_file(&path).unwrap())).collect()
    }
}

fn key(number: usize) -> String {
    format!("key{number:03}")
}

/// A sorted level, a newer table with overwritten and deleted keys, and unflushed writes.
fn three_ages(session: &mut Session) {
    (0..150).for_each(|n| session.put("default", key(2 * n), format!("value {n}")));
    session.flush();
    session.compact();
    (0..20).for_each(|n| session.put("default", key(7 * n), format!("newer {n}")));
    (0..10).for_each(|n| session.delete("default", key(10 * n)));
    session.flush();
    session.put("default", "in the log", "1815");
    session.delete("default", key(4));
    session.put("default", "", "the empty key");
    session.put("default", "empty value", "");
}

/// Blocks that Snappy shrinks and others that it does not, and one value of several pages.
fn large_values(session: &mut Session) {
    (0..40).for_each(|n| session.put("default", key(n), format!("{n} ").repeat(100)));
    let noise = |n: usize| (0..600).map(|i| (((i * i + n) * 2_654_435_761) >> 9) as u8).collect();
    (40..50).for_each(|n| session.put("default", key(n), Vec::<u8>::clone(&noise(n))));
    session.flush();
    session.put("default", "pages", "page ".repeat(14_000));
    session.flush();
    session.put("default", "pages in the log", "log ".repeat(18_000));
}

/// Keyspaces with settings, in tables and logs; one without entries, one that was dropped.
fn keyspaces(session: &mut Session) {
    session.create("users", &KeyspaceOptions::new().block_bytes(300).filter(Filter::ribbon(12.0)));
    session.create("orders by user", &KeyspaceOptions::new().filter(Filter::none()).snappy(false));
    session.create("empty", &KeyspaceOptions::new().block_hash_index(false));
    session.create("gone", &KeyspaceOptions::new());
    for n in 0..60 {
        session.put("users", key(n), format!("user {n}"));
        session.put("orders by user", format!("{:02}/{n}", n % 7), "order");
        session.put("gone", key(n), "gone");
    }
    session.flush();
    session.put("default", "ada", "1815");
    session.delete("users", key(3));
    session.drop_keyspace("gone");
    session.put("users", key(61), "user 61");
}

/// Several logs without a close, the last of them with unsynced writes.
fn unclean(session: &mut Session) {
    (0..30).for_each(|n| session.put("default", key(n), format!("value {n}")));
    session.flush();
    session.create("late", &KeyspaceOptions::new());
    for round in 0..3 {
        (0..40).for_each(|n| session.put("late", key(n), format!("round {round} ").repeat(10)));
        session.put("default", format!("round {round}"), "done");
    }
    session.with(|db| db.sync().unwrap());
    (0..5).for_each(|n| session.delete("default", key(n)));
}

/// Several versions of a key over more than a block: the index has internal keys.
fn versions(session: &mut Session) {
    let mut snapshots = Vec::new();
    for n in 0..60 {
        session.put("default", "often", format!("version {n} ").repeat(5));
        session.put("default", key(n), "once");
        session.with(|db| snapshots.push(db.snapshot()));
    }
    session.flush();
}

fn prefixes(session: &mut Session) {
    (0..200).for_each(|n| session.put("default", format!("{}/{n}", n % 9), format!("{n}")));
    session.flush();
}

/// Closed twice, so that the manifest and the log are those of a second session.
fn sessions(session: &mut Session) {
    three_ages(session);
    session.reopen();
    (0..30).for_each(|n| session.put("default", key(n), format!("second {n}")));
    session.reopen();
    session.delete("default", key(0));
    session.flush();
}

/// A table that was ingested above one that was written, in each of two keyspaces.
fn ingested(session: &mut Session) {
    session.create("users", &KeyspaceOptions::new());
    for keyspace in ["default", "users"] {
        (0..60).for_each(|n| session.put(keyspace, key(n), format!("written {n}")));
        let value = |n| (n % 5 > 0).then(|| format!("ingested {n}").into_bytes());
        let entries = (0..60).map(|n| (key(2 * n).into_bytes(), value(n)));
        session.ingest(keyspace, &entries.collect::<Vec<_>>());
    }
    session.put("users", key(8), "after the ingest");
}

/// Range deletes in tables and in the log: overlapping, without an end, of nothing, written over,
/// and one in a table without entries.
fn range_deletes(session: &mut Session) {
    session.create("users", &KeyspaceOptions::new());
    for keyspace in ["default", "users"] {
        (0..200).for_each(|n| session.put(keyspace, key(n), format!("value {n}")));
    }
    session.flush();
    session.compact();
    session.delete_range("default", "key010", Some("key050"));
    session.delete_range("default", "key040", Some("key060"));
    session.put("default", key(45), "written over");
    session.delete_range("default", "key044x", Some("key045"));
    session.delete_range("users", "key150", None);
    session.flush();
    session.delete_range("default", "key100", Some("key101"));
    session.delete_range("default", "nothing", Some("nothing here"));
    session.delete_range("users", "", Some("key002"));
    session.put("users", key(1), "written over");
    session.put("users", key(170), "written over");
    session.delete_range("users", "key170", None);
}

/// Entries that expire in tables and in the log, before and after [`NOW`], above ones that do not.
fn expiry(session: &mut Session) {
    const DAY: Duration = Duration::from_secs(86_400);
    let (long_ago, just_now) = (NOW - 100_000_000_000, NOW - 3_600_000);
    session.create("plain", &KeyspaceOptions::new());
    (0..50).for_each(|n| session.put("plain", key(n), format!("value {n}")));
    session.create("a day", &KeyspaceOptions::new().expire_after(DAY));
    session.create("ten years", &KeyspaceOptions::new().expire_after(3650 * DAY));
    for n in 0..60 {
        session.put_at(long_ago, "a day", key(n), DAY);
        session.put_at(long_ago, "ten years", key(n), 3650 * DAY);
    }
    session.flush();
    (0..20).for_each(|n| session.put_at(just_now, "a day", key(3 * n), DAY));
    session.delete("a day", key(6));
    session.flush();
    (0..5).for_each(|n| session.put_at(just_now, "a day", key(100 + n), DAY));
    // Expires above a version that lives.
    session.put_at(long_ago, "a day", key(9), DAY);
}

fn nothing(_: &mut Session) {}

/// Options for files of a few kilobytes.
fn small() -> Options {
    Options::new()
        .block_bytes(512)
        .write_buffer_bytes(64 << 10)
        .table_bytes(16 << 10)
        .auto_compaction(false)
}

fn fixtures() -> Vec<Fixture> {
    let fixture = |name: &str, options: Options, steps: fn(&mut Session)| Fixture {
        name: name.into(),
        options,
        steps,
    };
    let mut fixtures = vec![
        fixture("empty", small(), nothing),
        fixture("no-filter", small().filter(Filter::none()), three_ages),
        fixture("large-values", small(), large_values),
        fixture("keyspaces", small(), keyspaces),
        fixture("unclean", small(), unclean),
        fixture("versions", small(), versions),
        fixture("sessions", small(), sessions),
        fixture("ingested", small(), ingested),
        fixture("expiry", small(), expiry),
        fixture("range-deletes", small(), range_deletes),
    ];
    let encodings = [
        ("leveldb", Filter::leveldb_bloom(10.0)),
        ("bloom", Filter::bloom(9.5)),
        ("ribbon", Filter::ribbon(10.0)),
        ("legacy", Filter::legacy_bloom(10.0)),
    ];
    for (layout_name, layout) in layouts() {
        for (encoding, filter) in &encodings {
            let options = small().filter(filter.clone().layout(layout));
            fixtures.push(fixture(&format!("{layout_name}-{encoding}"), options, three_ages));
        }
        if layout_name != "block-based" {
            let filter = Filter::bloom(10.0).layout(layout);
            let filter = filter.prefix(Prefix::delimited(b'/', 1)).whole_key(false);
            let name = format!("{layout_name}-prefixes");
            fixtures.push(fixture(&name, small().filter(filter), prefixes));
        }
    }
    fixtures
}

impl Fixture {
    fn path(&self) -> PathBuf {
        directory().join(format!("{}.siftdb-0.1", self.name))
    }

    /// The files that this version writes.
    fn written(&self) -> Files {
        let mut session = Session::new(&self.options, true);
        (self.steps)(&mut session);
        let unclosed = self.name.starts_with("unclean").then(|| session.files());
        session.close();
        unclosed.unwrap_or_else(|| session.files())
    }

    fn read(&self) -> Files {
        let path = self.path();
        unpack(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    fn expected(&self) -> Contents {
        let mut session = Session::new(&self.options, false);
        (self.steps)(&mut session);
        session.expected
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

#[test]
#[ignore = "writes tests/fixtures again"]
fn write_every_fixture() {
    let _ = fs::remove_dir_all(directory());
    fs::create_dir_all(directory()).unwrap();
    for fixture in fixtures() {
        fs::write(fixture.path(), pack(&fixture.written())).unwrap();
    }
}

fn disk(files: &Files) -> MemEnv {
    let env = MemEnv::new();
    env.set_now(UNIX_EPOCH + Duration::from_millis(NOW));
    for (name, bytes) in files {
        env.write_file(&Path::new(HOME).join(name), bytes);
    }
    env
}

/// Every way of reading gives the expected contents.
fn check(db: &Db, expected: &Contents, place: &str) {
    assert_eq!(db.keyspaces().len(), expected.len(), "{place}: {:?}", db.keyspaces());
    for (name, contents) in expected {
        let keyspace: Keyspace = db.keyspace(name).unwrap();
        let place = format!("{place}, keyspace {name}");
        let forward: Vec<_> = keyspace.iter().map(|entry| entry.unwrap()).collect();
        let mut backward: Vec<_> = keyspace.iter().rev().map(|entry| entry.unwrap()).collect();
        backward.reverse();
        assert_eq!(forward, backward, "{place}");
        let scanned = forward.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert_eq!(&scanned.collect::<BTreeMap<_, _>>(), contents, "{place}");
        let absent = (0..300).map(|n| format!("{}x", key(n)).into_bytes());
        let asked: Vec<_> = contents.keys().cloned().chain(absent).collect();
        let many = keyspace.multi_get(&asked).unwrap();
        for (key, value) in asked.iter().zip(many) {
            let expected = contents.get(key).map(Vec::as_slice);
            assert_eq!(value.as_deref(), expected, "{place}, key {key:?}");
            assert_eq!(keyspace.get(key).unwrap().as_deref(), expected, "{place}, key {key:?}");
        }
    }
}

fn check_sound(db: &Db, place: &str) {
    let report = db.verify(|_| {}).unwrap();
    assert!(report.is_sound(), "{place}: {:?}", report.damage);
}

fn open(env: &MemEnv, place: &str) -> Db {
    let opened = Options::new().env(as_env(env)).open(HOME);
    opened.unwrap_or_else(|error| panic!("{place}: {error}"))
}

/// Writes, deletes, flushes, compacts, and opens again.
fn write_on(env: &MemEnv, mut expected: Contents, place: &str) {
    let db = open(env, place);
    check(&db, &expected, place);
    check_sound(&db, place);
    let mut batch = WriteBatch::new();
    for (name, contents) in &mut expected {
        let keyspace = db.keyspace(name).unwrap();
        let gone: Vec<_> = contents.keys().step_by(3).cloned().collect();
        for key in gone {
            batch.in_keyspace(&keyspace).delete(&key);
            contents.remove(&key);
        }
        batch.in_keyspace(&keyspace).put("written on", name);
        contents.insert(b"written on".to_vec(), name.clone().into_bytes());
    }
    db.write(batch).unwrap();
    check(&db, &expected, place);
    db.flush().unwrap();
    check(&db, &expected, place);
    for name in expected.keys() {
        db.keyspace(name).unwrap().compact_range(..).unwrap();
    }
    check(&db, &expected, place);
    db.close().unwrap();
    drop(db);
    let db = open(env, place);
    check(&db, &expected, place);
    check_sound(&db, place);
}

#[test]
fn every_fixture_is_there_and_small() {
    let mut found: Vec<_> =
        fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    // Those of RocksDB are in directories.
    found.retain(|path| path.is_file());
    found.sort();
    let mut named: Vec<_> = fixtures().iter().map(Fixture::path).collect();
    named.sort();
    assert_eq!(found, named);
    let bytes: u64 = found.iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes of fixtures");
}

#[test]
fn every_database_with_queries_is_there_and_small() {
    let directory = directory().join("rocksdb-queries");
    let mut found: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (name(&path).to_owned(), fs::read(&path).unwrap()))
        .collect();
    found.sort();
    let settings = ["full-cached", "full-resident", "partitioned", "ribbon-pinned"];
    let sizes = ["large", "medium", "small"];
    let named = settings
        .iter()
        .flat_map(|setting| sizes.map(|size| format!("{setting}-{size}.rocksdb-7.8")));
    assert!(found.iter().map(|(name, _)| name.clone()).eq(named));
    for (name, archive) in &found {
        let files = unpack(archive);
        let text = |file: &str| String::from_utf8(files[file].clone()).unwrap();
        let counters = text("COUNTERS");
        let counted = counters.lines().find_map(|line| line.strip_prefix("lookups ")).unwrap();
        let warmup = text("QUERIES").lines().count() / 2;
        assert_eq!(counted, warmup.to_string(), "{name}");
    }
    let bytes: usize = found.iter().map(|(_, archive)| archive.len()).sum();
    assert!(bytes < 1_600_000, "{bytes} bytes of databases with queries");
}

#[test]
fn fixtures_read_as_they_were_written() {
    for fixture in fixtures() {
        let files = fixture.read();
        let env = disk(&files);
        let db = Options::new().env(as_env(&env)).open_read_only(HOME).unwrap();
        check(&db, &fixture.expected(), &fixture.name);
        check_sound(&db, &fixture.name);
        drop(db);
        assert!(files_of(&env) == files, "{}: a reader changed a byte", fixture.name);
        write_on(&env, fixture.expected(), &fixture.name);
    }
}

fn files_of(env: &MemEnv) -> Files {
    let files = env.list_files().into_iter().filter(|path| !path.ends_with("LOCK"));
    files.map(|path| (name(&path).into(), env.read_file(&path).unwrap())).collect()
}

#[test]
fn fixtures_are_repaired_without_loss() {
    for fixture in fixtures() {
        let files = fixture.read();
        let env = disk(&files);
        let repair = || Options::new().env(as_env(&env)).repair(HOME).unwrap();
        assert!(!repair().changed, "{} is sound", fixture.name);
        env.remove_file(&Path::new(HOME).join("CURRENT"));
        let report = repair();
        assert!(report.changed && report.lost.is_empty(), "{}: {report:?}", fixture.name);
        write_on(&env, fixture.expected(), &fixture.name);
    }
}

/// What this version writes, and what it once wrote.
#[test]
fn the_document_is_enough_for_a_reader() {
    for fixture in fixtures() {
        assert_eq!(read_database(&fixture.written(), NOW), fixture.expected(), "{}", fixture.name);
        assert_eq!(read_database(&fixture.read(), NOW), fixture.expected(), "{}", fixture.name);
    }
}

/// The file as a release with version 3 of its format, which none has yet, would begin it.
fn of_version_3(name: &str, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let put = |bytes: &mut Vec<u8>, at: usize, number: u32| {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    };
    if name == "CURRENT" {
        let text = String::from_utf8(bytes).unwrap();
        let front = format!("siftdb 3 {} ", text.split(' ').nth(2).unwrap());
        return Some(format!("{front}{:08x}\n", masked(&[front.as_bytes()])).into_bytes());
    }
    put(&mut bytes, 8, 3);
    if name.ends_with(".sst") {
        let footer = bytes.len() - 56;
        put(&mut bytes, footer + 44, 3);
        let sum = masked(&[&bytes[footer..footer + 40], &bytes[footer + 44..]]);
        put(&mut bytes, footer + 40, sum);
        let sum = masked(&[&bytes[..24]]);
        put(&mut bytes, 24, sum);
        return Some(bytes);
    }
    let sum = masked(&[&bytes[..16]]);
    put(&mut bytes, 16, sum);
    (name != "STATS").then_some(bytes)
}

#[test]
fn newer_versions_are_refused_by_name() {
    let fixtures = fixtures();
    let files = fixtures.iter().find(|fixture| fixture.name == "sessions").unwrap().read();
    let mut kinds = BTreeSet::new();
    for (name, bytes) in &files {
        let Some(newer) = of_version_3(name, bytes.clone()) else { continue };
        kinds.insert(name.trim_matches(|c: char| c.is_ascii_digit()).to_string());
        let mut files = files.clone();
        files.insert(name.clone(), newer);
        let env = disk(&files);
        let options = || Options::new().env(as_env(&env));
        let errors = [
            options().open(HOME).map(drop).unwrap_err(),
            options().open_read_only(HOME).map(drop).unwrap_err(),
            options().repair(HOME).map(drop).unwrap_err(),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(matches!(error, Error::UnsupportedFormat { .. }), "{name}: {text}");
            assert!(text.contains(name.as_str()) && text.contains("version"), "{text}");
            assert!(text.ends_with("; a newer siftdb may have written it"), "{text}");
        }
        assert!(files_of(&env) == files, "{name}: a byte was changed");
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [".sst", ".wal", "CURRENT", "MANIFEST-"]);
}
