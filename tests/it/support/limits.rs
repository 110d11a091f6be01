//! Databases whose keys, bounds, names and settings are at their limits, and what they hold.

use super::rng::Rng;
use super::stores::{open, scan, scan_back, small_options};
use siftdb::env::MemEnv;
use siftdb::{Compression, Db, Filter, Keyspace, KeyspaceOptions, Options, WriteBatch};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The greatest length of a key.
pub const KEY_BYTES_MAX: usize = 65_535;

/// A key of the greatest length, or shorter by `less`.
pub fn long(byte: u8, less: usize) -> Vec<u8> {
    vec![byte; KEY_BYTES_MAX - less]
}

/// Options that flush and compact only when asked: one long bound fills a small write buffer.
pub fn options() -> Options {
    small_options().auto_compaction(false).write_buffer_bytes(8 << 20).index_partition_bytes(64)
}

/// The contents of all keyspaces, by every kind of scan.
pub fn contents(db: &Db) -> BTreeMap<String, Map> {
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

/// The saved settings of all keyspaces but `default`, which has those of the options.
fn settings(db: &Db) -> BTreeMap<String, String> {
    let named = db.keyspaces().into_iter().filter(|name| name != "default");
    let of = |name: String| {
        let settings = db.keyspace(&name).unwrap().settings().to_string();
        (name, settings)
    };
    named.map(of).collect()
}

/// What must be found in every form of a database.
pub struct Limits {
    pub env: MemEnv,
    pub contents: BTreeMap<String, Map>,
    pub settings: BTreeMap<String, String>,
}

impl Limits {
    /// Writes a database of these settings at their limits, and closes it.
    pub fn written(seed: u64) -> Limits {
        let (env, mut rng) = (MemEnv::new(), Rng::new(seed));
        let db = open(&env, &options()).unwrap();
        let long_names = ["n".to_string(), "n".repeat(255), "\u{20ac}".repeat(85)];
        let mut names = long_names.into_iter().chain((0..).map(|number| number.to_string()));
        let mut filled = BTreeMap::from([("default".to_string(), fill(&db, &mut rng))]);
        let mut settings = BTreeMap::new();
        for (of_it, name) in settings_at_limits().into_iter().zip(&mut names) {
            let keyspace = db.keyspace_with(&name, &of_it).unwrap();
            filled.insert(name.clone(), fill(&keyspace, &mut rng));
            settings.insert(name, of_it.to_string());
        }
        fill_in_one_batch(&db, &mut filled);
        let limits = Limits { env, contents: filled, settings };
        limits.check(&db, "written");
        db.close().unwrap();
        limits
    }

    /// Asserts that `db` has all of it, and is sound.
    pub fn check(&self, db: &Db, what: &str) {
        assert!(contents(db) == self.contents, "{what}");
        assert_eq!(settings(db), self.settings, "{what}");
        let report = db.verify(|_| {}).unwrap();
        assert!(report.is_sound(), "{what}: {report}");
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

/// Settings at and next to their limits.
fn settings_at_limits() -> Vec<KeyspaceOptions> {
    let none = KeyspaceOptions::new;
    let filter = |filter: Filter| none().filter(filter);
    let all_levels = |settings: KeyspaceOptions, level| {
        settings.filter_at_level(level, Filter::ribbon(1.0 + level as f64))
    };
    vec![
        none(),
        none().block_bytes(64),
        none().block_bytes(4 << 20).block_hash_index(true),
        none().index_partition_bytes(0),
        none().index_partition_bytes(64),
        none().index_partition_bytes(1 << 20),
        none().snappy(false).filter_last_level(false),
        none()
            .compression_at_level(0, Compression::None)
            .compression_at_level(6, Compression::Snappy),
        none().compression_at_last_level(Compression::None),
        none().filter_at_last_level(Filter::ribbon(100.0)),
        filter(Filter::none()),
        filter(Filter::bloom(1.0)),
        filter(Filter::bloom(30.0)),
        filter(Filter::monkey(1)),
        filter(Filter::monkey(u64::MAX)),
        (0..7).fold(none(), all_levels),
        none().expire_after(Duration::MAX),
        none().expire_after(Duration::from_millis(u64::MAX - 1)),
        none().expire_after(Duration::from_secs(1 << 33)),
    ]
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

/// Thousands of entries over all keyspaces in one batch, more than a block or a table takes.
fn fill_in_one_batch(db: &Db, contents: &mut BTreeMap<String, Map>) {
    let mut batch = WriteBatch::new();
    for (name, map) in contents {
        let keyspace = db.keyspace(name).unwrap();
        for number in 0..300u32 {
            let key = format!("n{number}").into_bytes();
            batch.in_keyspace(&keyspace).put(&key, []);
            map.insert(key, Vec::new());
        }
    }
    db.write(batch).unwrap();
}
