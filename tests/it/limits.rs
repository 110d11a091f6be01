//! Whatever a call accepts is written and read again: keys, bounds and names at their limits, in
//! the log, in tables, after a compaction, in a checkpoint, by a follower, repaired and exported.

use crate::support::by_document::read_database;
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{HOME, as_env, files, name, open, scan, scan_back, small_options};
use siftdb::env::MemEnv;
use siftdb::{Db, Keyspace, Options, TableInfo};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The greatest length of a key.
const KEY_BYTES_MAX: usize = 65_535;

/// A key of the greatest length, or shorter by `less`.
fn long(byte: u8, less: usize) -> Vec<u8> {
    vec![byte; KEY_BYTES_MAX - less]
}

/// Options that flush and compact only when asked: one long bound fills a small write buffer.
fn options() -> Options {
    small_options().auto_compaction(false).write_buffer_bytes(8 << 20)
}

/// The contents of all keyspaces, by every kind of scan.
fn contents(db: &Db) -> BTreeMap<String, Map> {
    let of = |name: String| {
        let keyspace = db.keyspace(&name).unwrap();
        let forward = scan(&keyspace).unwrap();
        let back = scan_back(&keyspace).unwrap();
        assert!(back.into_iter().rev().eq(forward.clone()), "{name}");
        assert!(forward.iter().all(|(key, value)| keyspace.get(key).unwrap().unwrap() == *value));
        (name, forward)
    };
    db.keyspaces().into_iter().map(of).collect()
}

/// What must be found in every form of the database.
struct Expected<'a> {
    env: &'a MemEnv,
    contents: BTreeMap<String, Map>,
}

impl Expected<'_> {
    fn check(&self, db: &Db, what: &str) {
        assert!(contents(db) == self.contents, "{what}");
        let report = db.verify(|_| {}).unwrap();
        assert!(report.is_sound(), "{what}: {report}");
    }

    /// Opens the database again, and reads it in every other way that there is.
    fn check_all(&self, checkpoint: &str, what: &str) {
        let db = open(self.env, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
        self.check(&db, what);
        db.checkpoint(checkpoint).unwrap();
        db.close().unwrap();
        let with_env = || options().env(as_env(self.env));
        self.check(&with_env().open_read_only(checkpoint).unwrap(), "the checkpoint");
        let follower = with_env().open_follower(HOME).unwrap();
        assert!(contents(&follower.moment()) == self.contents, "{what}: the follower");
        let of_home = files(self.env).into_iter().filter(|(path, _)| path.starts_with(HOME));
        let files = of_home.map(|(path, bytes)| (name(&path).to_string(), bytes)).collect();
        assert!(read_database(&files, 0) == self.contents, "{what}: by the document");
    }
}

/// A range delete begins after a key of the greatest length, and entries follow it in the table.
#[test]
fn starts_after_the_longest_key_are_read() {
    for last in ["z".into(), long(b'z', 0)] {
        let env = MemEnv::new();
        let db = open(&env, &options()).unwrap();
        db.put("a", "1").unwrap();
        db.put("LM", "2").unwrap();
        db.flush().unwrap();
        let snapshot = db.snapshot();
        db.delete_range((Bound::Excluded(long(b'L', 0)), Bound::Excluded(b"M".to_vec()))).unwrap();
        db.put(&last, "3").unwrap();
        db.flush().unwrap();
        let left = Map::from([(b"a".to_vec(), b"1".to_vec()), (last, b"3".to_vec())]);
        assert_eq!(snapshot.iter().count(), 2);
        let begins_late = |table: &TableInfo| table.first_key.len() > KEY_BYTES_MAX;
        let tables = db.tables();
        assert!(tables.iter().any(|table| begins_late(table) && table.entries > 0));
        drop(snapshot);
        db.close().unwrap();
        let contents = BTreeMap::from([("default".to_string(), left)]);
        Expected { env: &env, contents }.check_all("/checkpoint", "flushed");
    }
}

/// Keys at and next to the limits, the empty one, and short ones among them.
fn keys() -> Vec<Vec<u8>> {
    let mut keys = vec![vec![], b"a".to_vec(), b"L\0".to_vec(), b"LM".to_vec(), b"z".to_vec()];
    keys.extend([0, 1].map(|less| long(b'L', less)));
    keys.extend([0, 1].map(|less| long(0xff, less)));
    keys.extend([long(0, 0), [&long(b'L', 1)[..], &[0]].concat()]);
    keys.sort();
    keys
}

fn bound(rng: &mut Rng, keys: &[Vec<u8>]) -> Bound<Vec<u8>> {
    match rng.below(9) {
        0 => Bound::Unbounded,
        1..=4 => Bound::Included(rng.pick(keys).clone()),
        _ => Bound::Excluded(rng.pick(keys).clone()),
    }
}

/// Writes entries and range deletes of every kind, and flushes some of it.
fn fill(keyspace: &Keyspace, rng: &mut Rng) -> Map {
    let (keys, mut expected, mut snapshots) = (keys(), Map::new(), Vec::new());
    for step in 0..rng.below(12) + 6 {
        if rng.chance(40) {
            let range: Range = (bound(rng, &keys), bound(rng, &keys));
            keyspace.delete_range(range.clone()).unwrap();
            expected.retain(|key, _| !range.contains(key));
        } else {
            let (key, value) = (rng.pick(&keys), step.to_string().into_bytes());
            keyspace.put(key, &value).unwrap();
            expected.insert(key.clone(), value);
        }
        match rng.below(4) {
            0 => keyspace.flush().unwrap(),
            1 => snapshots.push((keyspace.snapshot(), expected.clone())),
            _ => {}
        }
        if rng.chance(10) {
            keyspace.compact_range((bound(rng, &keys), bound(rng, &keys))).unwrap();
        }
    }
    for (snapshot, seen) in snapshots {
        let found = snapshot.in_keyspace(keyspace).iter().map(|entry| entry.unwrap());
        assert!(found.map(|(key, value)| (key.into_vec(), value.into_vec())).eq(seen));
    }
    expected
}

#[test]
fn whatever_is_accepted_is_read_again() {
    for seed in seeds(1) {
        let (env, mut rng) = (MemEnv::new(), Rng::new(seed));
        let db = open(&env, &options()).unwrap();
        let names = ["default".to_string(), "n".into(), "n".repeat(255), "\u{20ac}".repeat(85)];
        let mut filled = BTreeMap::new();
        for name in names.into_iter().chain((0..4).map(|n| n.to_string())) {
            let expected = fill(&db.keyspace(&name).unwrap(), &mut rng);
            filled.insert(name, expected);
        }
        let expected = Expected { env: &env, contents: filled };
        expected.check(&db, "written");
        db.close().unwrap();
        expected.check_all("/checkpoint", &format!("seed {seed}"));
        let db = open(&env, &options()).unwrap();
        for name in expected.contents.keys() {
            db.keyspace(name).unwrap().compact_range(..).unwrap();
        }
        db.close().unwrap();
        expected.check_all("/compacted", &format!("seed {seed}, compacted"));
        // Without a manifest the tables say what is in them.
        let manifest = files(&env)
            .into_keys()
            .find(|path| path.starts_with(HOME) && name(path).starts_with("MANIFEST"));
        env.remove_file(&manifest.unwrap());
        options().env(as_env(&env)).repair(HOME).unwrap();
        let repaired = contents(&open(&env, &options()).unwrap());
        let has_any = |(_, found): &(&String, &Map)| !found.is_empty();
        let expected = expected.contents.iter().filter(has_any);
        assert!(expected.eq(repaired.iter().filter(has_any)), "seed {seed}, repaired");
    }
}
