//! A run with range deletes answers as the same run in which each of them is replaced by single
//! deletes of the keys that are there: lookups, scans, cursors and snapshots, under every filter.
//!
//! Both databases do the same flushes, compactions, filter rebuilds and openings, and have clocks
//! that move together. `SIFTDB_MODEL_SEEDS` sets the number of runs for each filter.

use crate::support::cursors::{Sorted, entries_within, roam};
use crate::support::data::{bytes, odd_keys};
use crate::support::filters::{all_filters, prefix_filters};
use crate::support::model::Map;
use crate::support::ranges::{KeyRange, any_range, holds};
use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{open, small_options};
use siftdb::env::MemEnv;
use siftdb::{Db, FilterRebuild, Iter, Options, ReadOptions, Snapshot, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, UNIX_EPOCH};

/// A value, and the second at which it expires.
type Expiring = (Vec<u8>, u64);

/// What is there by key, expired entries too.
type There = BTreeMap<Vec<u8>, Expiring>;

/// Two databases: the first deletes ranges, the second each key of them.
struct Twins {
    envs: [MemEnv; 2],
    dbs: [Db; 2],
    snapshots: Vec<([Snapshot; 2], There)>,
    there: There,
    /// Ascending.
    keys: Vec<Vec<u8>>,
    seconds: u64,
    rng: Rng,
    options: Options,
    place: String,
}

impl Twins {
    fn new(options: Options, seed: u64, name: &str) -> Self {
        let mut rng = Rng::new(seed);
        let envs = [MemEnv::new(), MemEnv::new()];
        envs.iter().for_each(|env| env.set_now(UNIX_EPOCH));
        let dbs = envs.each_ref().map(|env| open(env, &options).unwrap());
        let mut keys = odd_keys(90, &mut rng);
        keys.sort();
        let place = format!("{name}, SIFTDB_SEED={seed}");
        let (there, snapshots) = (BTreeMap::new(), Vec::new());
        Twins { envs, dbs, snapshots, there, keys, seconds: 0, rng, options, place }
    }

    fn run(&mut self, steps: usize) {
        let place = self.place.clone();
        for step in 0..steps {
            self.place = format!("{place}, step {step}");
            match self.rng.below(100) {
                0..=69 => self.write(),
                70..=74 => self.each(|db| db.flush()),
                75..=77 => {
                    let range = any_range(&mut self.rng, &self.keys);
                    self.each(|db| db.compact_range(range.clone()));
                }
                78..=83 => self.take_snapshots(),
                84 => self.each(|db| db.rebuild_filters(FilterRebuild::All).map(drop)),
                85 | 86 => self.wait(),
                87 => self.reopen(),
                _ => self.compare_some(),
            }
        }
        self.compare_all();
        self.each(|db| db.compact_range(..));
        self.compare_all();
        self.each(|db| db.close());
    }

    fn each(&self, act: impl Fn(&Db) -> siftdb::Result<()>) {
        let done = |db| act(db).unwrap_or_else(|error| panic!("{}: {error}", self.place));
        self.dbs.iter().for_each(done);
    }

    /// A batch of puts, deletions and range deletes, of which some expire.
    fn write(&mut self) {
        let mut batches = [WriteBatch::new(), WriteBatch::new()];
        let lives = *self.rng.pick(&[None, None, None, None, Some(0), Some(5), Some(u64::MAX)]);
        let expires = lives.map_or(u64::MAX, |lives| self.seconds.saturating_add(lives));
        for _ in 0..*self.rng.pick(&[1, 1, 2, 9]) {
            let key = self.rng.pick(&self.keys).clone();
            match self.rng.below(100) {
                0..=9 => {
                    let range = any_range(&mut self.rng, &self.keys);
                    batches[0].delete_range(range.clone());
                    for key in self.keys.iter().filter(|key| holds(&range, key)) {
                        if self.there.remove(key).is_some() {
                            batches[1].delete(key);
                        }
                    }
                }
                10..=19 => {
                    batches.iter_mut().for_each(|batch| _ = batch.delete(&key));
                    self.there.remove(&key);
                }
                _ => {
                    let size = *self.rng.pick(&[0, 8, 30, 31, 200, 900, 3000]);
                    let value = bytes(self.rng.next(), size);
                    batches.iter_mut().for_each(|batch| _ = batch.put(&key, &value));
                    self.there.insert(key, (value, expires));
                }
            }
        }
        let mut options = WriteOptions::new();
        if let Some(lives) = lives {
            options = options.expire_after(Duration::from_secs(lives));
        }
        for (db, batch) in self.dbs.iter().zip(batches) {
            db.write_with(batch, &options).unwrap();
        }
    }

    fn wait(&mut self) {
        self.seconds += 3;
        let now = UNIX_EPOCH + Duration::from_secs(self.seconds);
        self.envs.iter().for_each(|env| env.set_now(now));
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        if self.rng.chance(50) {
            self.each(|db| db.close());
        }
        let elsewhere = || open(&MemEnv::new(), &small_options()).unwrap();
        self.dbs = [elsewhere(), elsewhere()];
        self.dbs = self.envs.each_ref().map(|env| open(env, &self.options).unwrap());
    }

    fn take_snapshots(&mut self) {
        if self.snapshots.len() > 3 {
            let place = self.rng.below(self.snapshots.len());
            drop(self.snapshots.swap_remove(place));
        }
        let taken = self.dbs.each_ref().map(|db| db.snapshot());
        self.snapshots.push((taken, self.there.clone()));
    }

    fn shown(&self, there: &There) -> Map {
        let alive = there.iter().filter(|(_, (_, expires))| *expires > self.seconds);
        alive.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    /// Compares the reads of one range, now or in a snapshot.
    fn compare_some(&mut self) {
        let mut range = any_range(&mut self.rng, &self.keys);
        if self.rng.chance(30) {
            range.1 = Bound::Unbounded;
        }
        let options = ReadOptions::new().use_filters(self.rng.chance(50));
        let at = self.rng.below(self.snapshots.len() + 1);
        let place = format!("{}, {range:?}, of {at}", self.place);
        let (iters, there): (Vec<Box<dyn Fn() -> Iter + '_>>, _) = match self.snapshots.get(at) {
            Some((taken, there)) => {
                let iter = |taken: &'_ Snapshot| taken.range_with(range.clone(), &options);
                let iters = taken.iter().map(|one| Box::new(move || iter(one)) as _);
                (iters.collect(), there)
            }
            None => {
                let iter = |db: &'_ Db| db.range_with(range.clone(), &options);
                (self.dbs.iter().map(|db| Box::new(move || iter(db)) as _).collect(), &self.there)
            }
        };
        let expected = entries_within(&self.shown(there), &range);
        for (twin, iter) in iters.iter().enumerate() {
            let place = format!("{place}, twin {twin}");
            assert_eq!(entries(iter()), expected, "{place}");
            let mut back = entries(iter().rev());
            back.reverse();
            assert_eq!(back, expected, "{place}, back");
            let rng = &mut self.rng.clone();
            roam(&mut iter().cursor(), &expected, &self.keys, 60, rng, &place).unwrap();
        }
        drop(iters);
        self.rng.next();
    }

    fn compare_all(&mut self) {
        (0..8).for_each(|_| self.compare_some());
        let all: KeyRange = (Bound::Unbounded, Bound::Unbounded);
        let expected = entries_within(&self.shown(&self.there), &all);
        let owned = |(key, value): (siftdb::Key, siftdb::Value)| (key.to_vec(), value.into_vec());
        for db in &self.dbs {
            let place = &self.place;
            assert_eq!(entries(db.iter()), expected, "{place}");
            assert_eq!(db.first().unwrap().map(owned).as_ref(), expected.first(), "{place}");
            assert_eq!(db.last().unwrap().map(owned).as_ref(), expected.last(), "{place}");
            assert!(db.verify(|_| {}).unwrap().is_sound(), "{place}");
        }
        let then = self.snapshots.iter().map(|(taken, there)| (Some(taken), there));
        for (taken, there) in then.chain([(None, &self.there)]) {
            let shown = self.shown(there);
            for (twin, use_filters) in [(0, true), (0, false), (1, true)] {
                let place = format!("{}, twin {twin}, filters {use_filters}", self.place);
                let options = ReadOptions::new().use_filters(use_filters);
                let together = match taken {
                    Some(taken) => taken[twin].multi_get_with(&self.keys, &options).unwrap(),
                    None => self.dbs[twin].multi_get_with(&self.keys, &options).unwrap(),
                };
                for (key, together) in self.keys.iter().zip(together) {
                    let alone = match taken {
                        Some(taken) => taken[twin].get_with(key, &options).unwrap(),
                        None => self.dbs[twin].get_with(key, &options).unwrap(),
                    };
                    let expected = shown.get(key).map(Vec::as_slice);
                    let key = key.escape_ascii();
                    assert_eq!(alone.as_deref(), expected, "{place}: get {key}");
                    assert_eq!(together.as_deref(), expected, "{place}: multi_get {key}");
                }
            }
        }
        for prefix in self.keys.iter().map(|key| &key[..key.len().min(3)]) {
            let of = |db: &Db| entries(db.prefix(prefix));
            assert_eq!(of(&self.dbs[0]), of(&self.dbs[1]), "{}, prefix {prefix:?}", self.place);
        }
    }
}

fn entries(iter: impl Iterator<Item = siftdb::Result<(siftdb::Key, siftdb::Value)>>) -> Sorted {
    let owned = iter.map(|entry| entry.unwrap());
    owned.map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
}

#[test]
fn range_deletes_answer_as_single_ones() {
    for filter in [all_filters(), prefix_filters()].concat() {
        for seed in seeds(setting("SIFTDB_MODEL_SEEDS", 2) as u64) {
            let options = small_options()
                .filter(filter.filter.clone())
                .snappy(seed % 2 == 1)
                .auto_compaction(seed % 3 != 2);
            Twins::new(options, seed, &filter.name).run(150);
        }
    }
}
