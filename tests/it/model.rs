//! Random operations against a `BTreeMap`: writes, reads with and without filters, scans from both
//! ends, snapshots, flushes, compactions, closings, openings with other options, and power cuts.
//!
//! A run is decided by its seed and its first filter. The metamorphic test runs the same operations
//! under every filter and under very different options, and expects the same answers.

use crate::support::cursors::roam;
use crate::support::data::{odd_keys, value};
use crate::support::filters::{Marks, NamedFilter, UpToDash, all_filters, prefix_filters};
use crate::support::mirror::Mirror;
use crate::support::model::{Change, Changes, Map, Model, apply, batch_of, first_difference};
use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{any_block_settings, as_env, scan, scan_back, small_options};
use crate::support::table_reads::ReadsEnv;
use siftdb::env::testing::CrashModel;
use siftdb::env::{Env, MemEnv};
use siftdb::{Db, Error, FilterRebuild, Iter, Options, ReadOptions, Snapshot, WriteOptions};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Operations of one run.
const OPERATIONS: usize = 350;

#[test]
fn random_operations_agree_with_a_map() {
    for filter in every_filter() {
        for seed in seeds(setting("SIFTDB_MODEL_SEEDS", 5) as u64) {
            let mut world = World::new(seed, &filter, Play { changing: true, power_cuts: true });
            world.run(OPERATIONS);
        }
    }
}

#[test]
fn options_never_change_answers() {
    for seed in seeds(setting("SIFTDB_MODEL_SEEDS", 3) as u64) {
        let seed = seed + 1000;
        let mut first: Option<(String, u64)> = None;
        for filter in every_filter() {
            let mut world = World::new(seed, &filter, Play { changing: false, power_cuts: false });
            world.run(OPERATIONS);
            let (other, expected) = first.get_or_insert((filter.name.clone(), world.answers));
            assert_eq!(
                *expected, world.answers,
                "seed {seed}: answers under \"{}\" and \"{other}\" differ",
                filter.name
            );
        }
    }
}

fn every_filter() -> Vec<NamedFilter> {
    [all_filters(), prefix_filters()].concat()
}

/// `env`, or the same with tables in memory.
fn some_env(env: &MemEnv, rng: &mut Rng) -> Arc<dyn Env> {
    match rng.chance(50) {
        true => as_env(env),
        false => Arc::new(ReadsEnv::in_memory(as_env(env))),
    }
}

/// What a run may do in addition to plain operations.
#[derive(Clone, Copy, Debug)]
struct Play {
    /// Every opening has other options.
    changing: bool,
    power_cuts: bool,
}

/// Something that still reads an earlier state.
enum Held {
    Snapshot(Snapshot, Map),
    Iter(Box<Iter>, VecDeque<(Vec<u8>, Vec<u8>)>),
}

struct World {
    env: MemEnv,
    db: Db,
    model: Model,
    held: Vec<Held>,
    /// A copy that is made of the changes of a watch.
    mirror: Mirror,
    keys: Vec<Vec<u8>>,
    /// Decides the operations, whatever their results are.
    rng: Rng,
    /// Decides the options. It is separate, so options do not change the operations.
    option_rng: Rng,
    filter: NamedFilter,
    play: Play,
    seed: u64,
    step: usize,
    last_operation: &'static str,
    /// A hash of all results so far.
    answers: u64,
}

impl World {
    fn new(seed: u64, filter: &NamedFilter, play: Play) -> Self {
        let mut rng = Rng::new(seed);
        let keys = odd_keys(250, &mut rng);
        let env = MemEnv::with_log();
        let mut option_rng = Rng::new(seed ^ filter.name.len() as u64);
        let options = random_options(&mut option_rng, filter);
        let db = options.env(some_env(&env, &mut option_rng)).open("/db").unwrap();
        World {
            env,
            mirror: Mirror::new(&db).unwrap(),
            db,
            model: Model::new(),
            held: Vec::new(),
            keys,
            rng,
            option_rng,
            filter: filter.clone(),
            play,
            seed,
            step: 0,
            last_operation: "open",
            answers: 0,
        }
    }

    fn run(&mut self, operations: usize) {
        for step in 0..operations {
            self.step = step;
            self.operate();
        }
        self.last_operation = "the end";
        self.check_everything();
        self.release_held();
        self.ok(self.db.close());
        self.mirror.end();
    }

    fn operate(&mut self) {
        let (name, operation): (&'static str, fn(&mut Self)) = match self.rng.below(1000) {
            0..280 => ("put", Self::put),
            280..350 => ("delete", Self::delete),
            350..360 => ("delete range", Self::delete_range),
            360..450 => ("batch", Self::batch),
            450..460 => ("ingest", Self::ingest),
            460..700 => ("get", Self::get),
            700..800 => ("range", Self::range),
            800..830 => ("prefix", Self::prefix),
            830..860 => ("hold", Self::hold),
            860..890 => ("look at held", Self::look_at_held),
            890..910 => ("let go", Self::let_go),
            910..920 => ("look at the watch", Self::look_at_watch),
            920..930 => ("sync", Self::sync),
            930..950 => ("flush", Self::flush),
            950..965 => ("compact", Self::compact),
            965..975 => ("check everything", Self::check_everything),
            975..990 => ("reopen", Self::reopen),
            _ if self.play.power_cuts => ("power cut", Self::power_cut),
            _ => ("get", Self::get),
        };
        self.last_operation = name;
        operation(self);
    }

    fn place(&self) -> String {
        format!(
            "filter {}, SIFTDB_SEED={}, step {}, {}",
            self.filter.name, self.seed, self.step, self.last_operation
        )
    }

    #[track_caller]
    fn ok<T>(&self, result: siftdb::Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{}: {error}", self.place()))
    }

    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, found: &T, expected: &T) {
        assert!(found == expected, "{}: {found:?}, not {expected:?}", self.place());
    }

    #[track_caller]
    fn same_map(&self, found: &Map, expected: &Map) {
        if let Some(difference) = first_difference(found, expected) {
            panic!("{}: {difference}", self.place());
        }
    }

    fn answer(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.answers = (self.answers ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.answers = self.answers.rotate_left(5) ^ bytes.len() as u64;
    }

    fn key(&mut self) -> Vec<u8> {
        // Some keys far more often than others.
        let among = if self.rng.chance(30) { 20 } else { self.keys.len() };
        self.keys[self.rng.below(among)].clone()
    }

    fn value(&mut self) -> Vec<u8> {
        let number = self.rng.next();
        value(number, &mut self.rng)
    }

    fn put(&mut self) {
        let (key, value) = (self.key(), self.value());
        self.ok(self.db.put(&key, &value));
        self.model.write(vec![Change::Put(key, value)]);
    }

    fn delete(&mut self) {
        let key = self.key();
        self.ok(self.db.delete(&key));
        self.model.write(vec![Change::Delete(key)]);
    }

    fn delete_range(&mut self) {
        if self.rng.chance(20) {
            let mut prefix = self.key();
            prefix.truncate(self.rng.below(6));
            self.ok(self.db.delete_prefix(&prefix));
            let keys = self.model.map.keys().filter(|key| key.starts_with(&prefix));
            let deleted = keys.cloned().map(Change::Delete).collect();
            self.model.write(deleted);
            return;
        }
        let range = self.short_range();
        self.ok(self.db.delete_range(range.clone()));
        self.model.write(vec![Change::DeleteRange(range)]);
    }

    /// Mostly from a key to one of the next, so that most keys stay.
    fn short_range(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        if self.rng.chance(5) {
            return (self.bound(), self.bound());
        }
        let start = self.key();
        let skipped = self.rng.below(8);
        let end = self.model.map.range(start.clone()..).nth(skipped).map(|(key, _)| key.clone());
        let start =
            if self.rng.chance(50) { Bound::Included(start) } else { Bound::Excluded(start) };
        (start, end.map_or(Bound::Unbounded, Bound::Excluded))
    }

    fn batch(&mut self) {
        let count = self.rng.below(30);
        let mut entries = Changes::new();
        for _ in 0..count {
            let key = self.key();
            entries.push(match self.rng.below(100) {
                0..73 => Change::Put(key, self.value()),
                73..98 => Change::Delete(key),
                _ => Change::DeleteRange(self.short_range()),
            });
        }
        let sync = self.rng.chance(20);
        let batch = batch_of(&entries);
        self.ok(self.db.write_with(batch, &WriteOptions::new().sync(sync)));
        self.model.write(entries);
        if sync {
            self.model.synced();
        }
    }

    /// A bulk load, of neighbours or of keys from everywhere, in any order.
    fn ingest(&mut self) {
        let count = *self.rng.pick(&[1, 5, 60, 400]);
        let (from, width) = (self.rng.below(self.keys.len()), 1 + self.rng.below(self.keys.len()));
        let mut sorted = self.keys.clone();
        sorted.sort();
        let mut entries = Vec::new();
        for _ in 0..count {
            let key = sorted[(from + self.rng.below(width)) % sorted.len()].clone();
            entries.push((key, self.value()));
        }
        let distinct: Map = entries.iter().cloned().collect();
        let report = match self.rng.chance(50) {
            true => self.ok(self.db.ingest_unsorted(entries)),
            false => self.ok(self.db.ingest(&distinct)),
        };
        self.same(&report.entries, &(distinct.len() as u64));
        self.model
            .write(distinct.into_iter().map(|(key, value)| Change::Put(key, value)).collect());
        self.model.synced();
    }

    fn get(&mut self) {
        let mut key = self.key();
        if self.rng.chance(30) {
            key.push(b'x');
        }
        let expected = self.model.map.get(&key).cloned();
        let options =
            ReadOptions::new().use_filters(self.rng.chance(50)).fill_cache(self.rng.chance(50));
        let mut found = None;
        // The fourth of lookups in a row may be answered without a block.
        for _ in 0..if self.rng.chance(25) { 4 } else { 1 } {
            found = self.ok(self.db.get_with(&key, &options)).map(|value| value.into_vec());
            self.same(&found, &expected);
        }
        let explained = self.ok(self.db.explain_with(&key, &options)).value;
        self.same(&explained.map(|value| value.into_vec()), &expected);
        self.same(&self.ok(self.db.contains_key(&key)), &expected.is_some());
        let may_contain = self.ok(self.db.may_contain(&key));
        assert!(may_contain || expected.is_none(), "{}: denied by may_contain", self.place());
        self.answer(&found.unwrap_or_default());
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        let key = self.key();
        match self.rng.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    fn range(&mut self) {
        let bounds = (self.bound(), self.bound());
        let expected = within(&self.model.map, &bounds);
        let options = ReadOptions::new().fill_cache(self.rng.chance(50));
        let iter = self.db.range_with(bounds, &options);
        self.read(iter, expected);
    }

    fn prefix(&mut self) {
        let mut prefix = self.key();
        prefix.truncate(self.rng.below(6));
        let entries = self.model.map.iter().filter(|(key, _)| key.starts_with(&prefix));
        let expected = entries.map(|(key, value)| (key.clone(), value.clone())).collect();
        let iter = self.db.prefix(&prefix);
        self.read(iter, expected);
    }

    /// Reads a range as an iterator, as keys alone or with a cursor.
    fn read(&mut self, iter: Iter, expected: VecDeque<(Vec<u8>, Vec<u8>)>) {
        match self.rng.below(4) {
            0 => {
                let keys = self.ok(iter.keys().collect::<siftdb::Result<Vec<_>>>());
                let keys: Vec<_> = keys.into_iter().map(|key| key.into_vec()).collect();
                self.same(&keys, &expected.into_iter().map(|(key, _)| key).collect());
            }
            1 => {
                let (place, moves) = (self.place(), self.rng.below(60));
                let (entries, rng) = (expected.into(), &mut self.rng);
                let result = roam(&mut iter.cursor(), &entries, &self.keys, moves, rng, &place);
                self.ok(result);
            }
            _ => self.walk(iter, expected),
        }
    }

    /// Iterates from both ends until they meet, or stops before that.
    fn walk(&mut self, mut iter: Iter, mut expected: VecDeque<(Vec<u8>, Vec<u8>)>) {
        let percent_back = *self.rng.pick(&[0, 0, 100, 50, 10, 90]);
        let stop_early = self.rng.chance(30);
        for _ in 0..expected.len() + 1 {
            if stop_early && self.rng.chance(10) {
                return;
            }
            let (found, wanted) = if self.rng.chance(percent_back) {
                (iter.next_back(), expected.pop_back())
            } else {
                (iter.next(), expected.pop_front())
            };
            let found = self.ok(found.transpose());
            let found = found.map(|(key, value)| (key.into_vec(), value.into_vec()));
            self.same(&found, &wanted);
            self.answer(&found.map(|(key, value)| [key, value].concat()).unwrap_or_default());
        }
        assert!(expected.is_empty());
        assert!(iter.next().is_none() && iter.next_back().is_none(), "{}", self.place());
    }

    fn hold(&mut self) {
        if self.held.len() == 5 {
            self.let_go();
        }
        let held = if self.rng.chance(60) {
            Held::Snapshot(self.db.snapshot(), self.model.map.clone())
        } else {
            let mut iter = self.db.iter();
            let mut expected = within(&self.model.map, &(Bound::Unbounded, Bound::Unbounded));
            if self.rng.chance(50) {
                let found = self.ok(iter.next().transpose());
                let found = found.map(|(key, value)| (key.into_vec(), value.into_vec()));
                self.same(&found, &expected.pop_front());
            }
            Held::Iter(Box::new(iter), expected)
        };
        self.held.push(held);
    }

    fn look_at_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.rng.below(self.held.len());
        match self.held.swap_remove(place) {
            Held::Snapshot(snapshot, map) => {
                for _ in 0..10 {
                    let key = self.key();
                    let use_filters = self.rng.chance(50);
                    let options = ReadOptions::new().use_filters(use_filters);
                    let found = self.ok(snapshot.get_with(&key, &options));
                    self.same(&found.map(|value| value.into_vec()), &map.get(&key).cloned());
                }
                let bounds = (self.bound(), self.bound());
                let expected = within(&map, &bounds);
                self.read(snapshot.range(bounds), expected);
                self.held.push(Held::Snapshot(snapshot, map));
            }
            Held::Iter(iter, expected) => self.walk(*iter, expected),
        }
    }

    fn let_go(&mut self) {
        if !self.held.is_empty() {
            let place = self.rng.below(self.held.len());
            self.held.swap_remove(place);
        }
    }

    fn look_at_watch(&mut self) {
        let followed = self.mirror.catch_up(&self.db);
        self.ok(followed);
        self.same_map(&self.mirror.map, &self.model.map);
    }

    fn sync(&mut self) {
        self.ok(self.db.sync());
        self.model.synced();
    }

    fn flush(&mut self) {
        self.ok(self.db.flush());
        self.model.synced();
    }

    fn compact(&mut self) {
        if self.option_rng.chance(40) {
            let which = *self.option_rng.pick(&[FilterRebuild::Differing, FilterRebuild::All]);
            self.ok(self.db.rebuild_filters(which));
        }
        let bounds = (self.bound(), self.bound());
        self.ok(self.db.compact_range(bounds));
        self.model.synced();
    }

    fn check_everything(&mut self) {
        let forwards = self.ok(scan(&self.db));
        self.same_map(&forwards, &self.model.map);
        let backwards: Vec<_> = self.ok(scan_back(&self.db));
        let climbs = backwards.windows(2).find(|pair| pair[0].0 <= pair[1].0);
        let climbs = climbs.map(|pair| (pair[0].0.escape_ascii(), pair[1].0.escape_ascii()));
        if let Some((first, second)) = climbs {
            panic!("{}: \"{second}\" comes after \"{first}\", backwards", self.place());
        }
        self.same_map(&backwards.into_iter().collect(), &self.model.map);
        let first = self.ok(self.db.first()).map(|(key, _)| key.into_vec());
        self.same(&first.as_ref(), &self.model.map.keys().next());
        let last = self.ok(self.db.last()).map(|(key, _)| key.into_vec());
        self.same(&last.as_ref(), &self.model.map.keys().next_back());
        self.look_at_watch();
    }

    fn release_held(&mut self) {
        while !self.held.is_empty() {
            self.last_operation = "look at held after close";
            self.look_at_held();
            self.let_go();
        }
    }

    /// Closes or drops, and opens again.
    fn reopen(&mut self) {
        if self.rng.chance(50) {
            self.ok(self.db.close());
            assert!(matches!(self.db.get("k"), Err(Error::Closed)), "{}", self.place());
            self.model.synced();
            if !self.held.is_empty() {
                let locked = small_options().env(as_env(&self.env)).open("/db");
                assert!(matches!(locked, Err(Error::Locked { .. })), "{}", self.place());
            }
            self.release_held();
        } else {
            self.held.clear();
        }
        self.open_again(self.env.clone());
        let resumed = self.mirror.resume(&self.db);
        self.ok(resumed);
        self.last_operation = "after reopen";
        self.check_everything();
    }

    fn power_cut(&mut self) {
        let crash_model = *self.rng.pick(&[CrashModel::Journal, CrashModel::Posix]);
        let env = if self.rng.chance(40) {
            self.env.power_cut()
        } else {
            self.env.replay(self.env.log_len(), crash_model, self.rng.next())
        };
        self.held.clear();
        self.open_again(env);
        self.mirror = Mirror::new(&self.db).unwrap();
        let found = self.ok(scan(&self.db));
        let recovered = self.model.recover(&found);
        recovered.unwrap_or_else(|what| panic!("{}: {what}", self.place()));
        self.last_operation = "after power cut";
        self.check_everything();
    }

    fn open_again(&mut self, env: MemEnv) {
        let filters = every_filter();
        let filter = if self.play.changing { self.option_rng.pick(&filters) } else { &self.filter };
        let options = random_options(&mut self.option_rng, filter);
        // The old handle must be gone before the new one takes the lock.
        let elsewhere = MemEnv::new();
        self.db = small_options().env(as_env(&elsewhere)).open("/nowhere").unwrap();
        self.mirror.end();
        self.env = env;
        let env = some_env(&self.env, &mut self.option_rng);
        self.db = self.ok(options.env(env).open("/db"));
    }
}

/// The small options, and random values for everything else.
fn random_options(rng: &mut Rng, filter: &NamedFilter) -> Options {
    let mut options = small_options()
        .allow_unregistered_filters(true)
        .filter(filter.filter.clone())
        .default_keyspace(&any_block_settings(rng))
        .block_hash_index(rng.chance(50))
        .memtable_filter(rng.chance(70))
        .auto_compaction(rng.chance(80))
        .block_bytes(*rng.pick(&[64, 512, 4096]))
        .block_cache_bytes(*rng.pick(&[0, 8 << 10, 1 << 20]))
        .filter_pinned_share(*rng.pick(&[0.0, 0.5, 1.0]));
    if rng.chance(70) {
        // Without it, tables that name this policy are read as if they had no filter.
        options =
            options.register_filter_policy(Arc::new(Marks)).register_prefix(Arc::new(UpToDash));
    }
    if rng.chance(30) {
        let filters = every_filter();
        options = options.filter_at_level(rng.below(3), rng.pick(&filters).filter.clone());
    }
    options
}

/// The entries of a map within bounds, in order.
fn within(map: &Map, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> VecDeque<(Vec<u8>, Vec<u8>)> {
    let after_start = |key: &Vec<u8>| match &bounds.0 {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    };
    let before_end = |key: &Vec<u8>| match &bounds.1 {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    };
    let entries = map.iter().filter(|(key, _)| after_start(key) && before_end(key));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn the_model_distinguishes_prefixes_from_holes() {
    let write = |key: &str, value: &str| vec![Change::Put(key.into(), value.into())];
    let mut model = Model::new();
    model.write(write("a", "1"));
    model.synced();
    let later = [write("b", "2"), write("a", "3"), write("c", "4")];
    later.iter().for_each(|entries| model.write(entries.clone()));
    let with = |chosen: &[usize]| {
        let mut map = Map::from([(b"a".to_vec(), b"1".to_vec())]);
        chosen.iter().for_each(|&place| apply(&mut map, &later[place]));
        map
    };
    for prefix in [vec![], vec![0], vec![0, 1], vec![0, 1, 2]] {
        assert_eq!(model.clone().recover(&with(&prefix)), Ok(()), "{prefix:?}");
    }
    for hole in [vec![1], vec![2], vec![0, 2], vec![1, 2]] {
        assert!(model.clone().recover(&with(&hole)).is_err(), "{hole:?}");
    }
    assert!(model.clone().recover(&Map::new()).is_err(), "the synced write is missing");
}
