//! Random operations over several keyspaces against one map for each: creations, drops and
//! re-creations under the same name, batches over several keyspaces, range deletes, snapshots
//! across them, iterators that outlive a drop, flushes, compactions, closings and killed processes.
//! Entries of one keyspace expire.
//!
//! `SIFTDB_MODEL_SEEDS` sets the number of runs.

use crate::support::data::bytes;
use crate::support::model::Map;
use crate::support::ranges::{any_range, remove_range};
use crate::support::reads::{Contents, all_keyspaces};
use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{any_block_settings, open, small_options};
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb::{Db, Error, Filter, FilterRebuild, Iter, Keyspace, Snapshot, WriteBatch};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

const NAMES: [&str; 5] = ["default", "a", "b", "c", "d"];

/// The keyspace whose entries expire, and after how many seconds.
const EXPIRING: &str = "d";
const LIFE: u64 = 10;

/// A handle of each keyspace that was there at some moment, and what it held then.
type Handles = BTreeMap<String, (Keyspace, Map)>;

/// Something that still reads an earlier state.
enum Held {
    Snapshot(Snapshot, Handles),
    /// With the name of its keyspace.
    Iter(String, Box<Iter>, Vec<(Vec<u8>, Vec<u8>)>),
}

fn all_keys() -> Vec<Vec<u8>> {
    (0..40).map(|number| format!("key{number:02}").into_bytes()).collect()
}

struct World {
    env: MemEnv,
    db: Db,
    /// The keyspaces that are there, with their contents.
    now: Handles,
    /// Handles of dropped keyspaces.
    gone: Vec<Keyspace>,
    held: Vec<Held>,
    rng: Rng,
    seconds: u64,
    place: String,
}

impl World {
    fn new(seed: u64) -> Self {
        let (env, rng) = (MemEnv::with_log(), Rng::new(seed));
        env.set_now(UNIX_EPOCH);
        let db = open(&env, &small_options()).unwrap();
        let now = Handles::from([("default".into(), ((*db).clone(), Map::new()))]);
        let (gone, held) = (Vec::new(), Vec::new());
        World { env, db, now, gone, held, rng, seconds: 0, place: format!("SIFTDB_SEED={seed}") }
    }

    fn name(&mut self) -> String {
        self.rng.pick(&NAMES).to_string()
    }

    fn there(&mut self) -> String {
        let names: Vec<String> = self.now.keys().cloned().collect();
        self.rng.pick(&names).clone()
    }

    fn key(&mut self) -> Vec<u8> {
        self.rng.pick(&all_keys()).clone()
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        self.fill(&mut batch);
        self.db.write(batch).unwrap();
    }

    fn fill(&mut self, batch: &mut WriteBatch) {
        let favorite = self.there();
        for _ in 0..1 + self.rng.below(6) {
            let name = if self.rng.chance(70) { favorite.clone() } else { self.there() };
            if self.rng.chance(8) {
                let range = any_range(&mut self.rng, &all_keys());
                let (keyspace, map) = self.now.get_mut(&name).unwrap();
                remove_range(map, &range);
                batch.in_keyspace(keyspace).delete_range(range);
                continue;
            }
            let (key, number) = (self.key(), self.rng.next());
            let size = *self.rng.pick(&[0, 30, 3000]);
            let value = self.rng.chance(75).then(|| bytes(number, size));
            let (keyspace, map) = self.now.get_mut(&name).unwrap();
            match value {
                Some(value) => {
                    batch.in_keyspace(keyspace).put(&key, &value);
                    map.insert(key, value);
                }
                None => {
                    batch.in_keyspace(keyspace).delete(&key);
                    map.remove(&key);
                }
            }
        }
    }

    fn create_or_drop(&mut self) {
        let name = self.name();
        if name == "default" {
            assert!(self.db.drop_keyspace(&name).is_err());
        } else if let Some((keyspace, _)) = self.now.remove(&name) {
            match self.rng.chance(50) {
                true => self.db.drop_keyspace(&name).unwrap(),
                false => self.write_and(|batch| _ = batch.drop_keyspace(&name)),
            }
            self.gone.push(keyspace);
        } else {
            let filters = [Filter::none(), Filter::bloom(10.0), Filter::ribbon(8.0)];
            let mut settings = any_block_settings(&mut self.rng)
                .filter(self.rng.pick(&filters).clone())
                .block_bytes(*self.rng.pick(&[64, 512, 4096]));
            if name == EXPIRING {
                settings = settings.expire_after(Duration::from_secs(LIFE));
            }
            let mut map = Map::new();
            if self.rng.chance(50) {
                let count = self.rng.below(5);
                let entry = |_| (self.key(), bytes(self.rng.next(), 30));
                let entries: Vec<_> = (0..count).map(entry).collect();
                map.extend(entries.clone());
                self.write_and(|batch| {
                    let mut batch = batch.create_keyspace(&name, &settings);
                    entries.iter().for_each(|(key, value)| _ = batch.put(key, value));
                });
            }
            let keyspace = self.db.keyspace_with(&name, &settings).unwrap();
            self.now.insert(name, (keyspace, map));
        }
    }

    /// Writes a batch with what `change` adds; some have writes to keyspaces that stay.
    fn write_and(&mut self, change: impl FnOnce(&mut WriteBatch)) {
        let mut batch = WriteBatch::new();
        if self.rng.chance(60) {
            self.fill(&mut batch);
        }
        change(&mut batch);
        self.db.write(batch).unwrap();
    }

    /// Lets everything expire that is there.
    fn wait(&mut self) {
        self.seconds += LIFE;
        self.env.set_now(UNIX_EPOCH + Duration::from_secs(self.seconds));
        // An iterator goes by the time at which it met the first entry that expires.
        self.held.retain(|held| !matches!(held, Held::Iter(name, ..) if name == EXPIRING));
        let held = self.held.iter_mut().filter_map(|held| match held {
            Held::Snapshot(_, handles) => Some(handles),
            Held::Iter(..) => None,
        });
        for handles in held.chain([&mut self.now]) {
            if let Some((_, map)) = handles.get_mut(EXPIRING) {
                map.clear();
            }
        }
    }

    fn read(&mut self) {
        let (name, key) = (self.there(), self.key());
        let (keyspace, map) = &self.now[&name];
        let found = keyspace.get(&key).unwrap().map(|value| value.into_vec());
        assert_eq!(found.as_ref(), map.get(&key), "{}, {name}", self.place);
        if let Some(gone) = self.gone.last() {
            let answer = gone.get(&key);
            assert!(matches!(answer, Err(Error::KeyspaceDropped { .. })), "{}", self.place);
        }
    }

    fn hold(&mut self) {
        if self.held.len() > 4 {
            let place = self.rng.below(self.held.len());
            self.held.swap_remove(place);
        }
        let name = self.there();
        let (keyspace, map) = &self.now[&name];
        let held = if self.rng.chance(60) {
            Held::Snapshot(keyspace.snapshot(), self.now.clone())
        } else {
            let expected = map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            Held::Iter(name, Box::new(keyspace.iter()), expected)
        };
        self.held.push(held);
    }

    fn look_at_held(&mut self) {
        let place = &self.place;
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.below(self.held.len());
        let entries = |iter: Iter| -> Vec<(Vec<u8>, Vec<u8>)> {
            let entry = |entry: siftdb::Result<(siftdb::Key, siftdb::Value)>| {
                let (key, value) = entry.unwrap_or_else(|error| panic!("{place}: {error}"));
                (key.into_vec(), value.into_vec())
            };
            iter.map(entry).collect()
        };
        match self.held.swap_remove(at) {
            Held::Iter(_, iter, expected) => assert_eq!(entries(*iter), expected, "{place}"),
            Held::Snapshot(snapshot, handles) => {
                for (name, (keyspace, map)) in &handles {
                    let snapshot = snapshot.in_keyspace(keyspace);
                    let found: Map = entries(snapshot.iter()).into_iter().collect();
                    assert_eq!(found, *map, "{place}, snapshot of {name}");
                    let keys: Vec<_> = map.keys().collect();
                    let together = snapshot.multi_get(&keys).unwrap();
                    let found = together.into_iter().map(|value| value.unwrap().into_vec());
                    assert!(found.eq(map.values().cloned()), "{place}, multi_get of {name}");
                }
                // A keyspace that came later has nothing at that moment.
                for (name, (keyspace, _)) in &self.now {
                    if !handles.contains_key(name) {
                        assert_eq!(snapshot.in_keyspace(keyspace).iter().count(), 0, "{place}");
                    }
                }
                self.held.push(Held::Snapshot(snapshot, handles));
            }
        }
    }

    fn maintain(&mut self) {
        let name = self.there();
        match self.rng.below(4) {
            0 => self.db.flush().unwrap(),
            1 => self.now[&name].0.compact_range(..).unwrap(),
            2 => drop(self.now[&name].0.rebuild_filters(FilterRebuild::Differing).unwrap()),
            _ => self.db.sync().unwrap(),
        }
    }

    fn check(&self) {
        let expected: Contents =
            self.now.iter().map(|(name, (_, map))| (name.clone(), map.clone())).collect();
        assert_eq!(all_keyspaces(&self.db, ["absent"], &self.place), expected, "{}", self.place);
    }

    /// Closes, drops or kills, and opens again.
    fn reopen(&mut self) {
        let maps: Vec<_> =
            std::mem::take(&mut self.now).into_iter().map(|(n, (_, m))| (n, m)).collect();
        match self.rng.below(3) {
            0 => {
                self.db.close().unwrap();
                while !self.held.is_empty() {
                    self.look_at_held();
                    self.held.pop();
                }
            }
            1 => {}
            _ => {
                self.env = self.env.replay(self.env.log_len(), CrashModel::Kill, 0);
                self.env.set_now(UNIX_EPOCH + Duration::from_secs(self.seconds));
            }
        }
        self.held.clear();
        self.gone.clear();
        let elsewhere = open(&MemEnv::new(), &small_options()).unwrap();
        drop(std::mem::replace(&mut self.db, elsewhere));
        self.db = open(&self.env, &small_options()).unwrap();
        for (name, map) in maps {
            assert!(self.db.keyspaces().contains(&name), "{}: {name} is lost", self.place);
            let keyspace = self.db.keyspace(&name).unwrap();
            self.now.insert(name, (keyspace, map));
        }
        self.check();
    }
}

#[test]
fn keyspaces_agree_with_maps() {
    for seed in seeds(setting("SIFTDB_MODEL_SEEDS", 25) as u64) {
        let mut world = World::new(seed);
        for step in 0..400 {
            world.place = format!("SIFTDB_SEED={seed}, step {step}");
            match world.rng.below(100) {
                0..50 => world.write(),
                50..62 => world.read(),
                62..72 => world.create_or_drop(),
                72..79 => world.hold(),
                79..88 => world.look_at_held(),
                88..92 => world.maintain(),
                92..94 => world.wait(),
                94..97 => world.check(),
                _ => world.reopen(),
            }
        }
        world.check();
    }
}
