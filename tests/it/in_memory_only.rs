//! Reads without I/O: the answer of a normal read or `WouldRead`, and no call to read a file.

use crate::support::data::{absent_key, bytes, key};
use crate::support::filters::{NamedFilter, all_filters, one_of_each_layout, prefix_filters};
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::model::Map;
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{HOME, as_env, small_options};
use crate::support::table_reads::ReadsEnv;
use siftdb::env::{CountingEnv, Env, MemEnv};
use siftdb::{Db, Error, Options, ReadOptions, Readable, Result};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const KEYS: usize = 300;

static NORMAL: ReadOptions = ReadOptions::new();
static IN_MEMORY: ReadOptions = ReadOptions::new().in_memory_only(true);

/// A cache that keeps every block, and the share of it that filters and indexes may pin.
fn options(pinned_share: f64) -> Options {
    let options = small_options().auto_compaction(false).block_cache_bytes(64 << 20);
    options.filter_pinned_share(pinned_share)
}

/// A database whose calls are counted, with all of its entries.
struct Store {
    env: CountingEnv,
    options: Options,
    db: Db,
    map: Map,
}

impl Store {
    /// Overlapping tables with tombstones and range deletes. The database was opened again, so no
    /// block is in its cache.
    fn new(options: &Options, rng: &mut Rng) -> Self {
        let env = CountingEnv::new(as_env(&MemEnv::new()));
        let options = options.clone().env(Arc::new(env.clone()));
        let db = options.clone().open(HOME).unwrap();
        let mut store = Store { env, options, db, map: Map::new() };
        for round in 0..4 {
            store.write(KEYS >> round, rng);
            let first = rng.below(KEYS - 10);
            let (start, end) = (key(first), key(first + 1 + rng.below(9)));
            store.db.delete_range(&start[..]..&end[..]).unwrap();
            store.map.retain(|key, _| *key < start || *key >= end);
            match round {
                0 => store.db.compact_range(..).unwrap(),
                _ => store.db.flush().unwrap(),
            }
        }
        store.db.close().unwrap();
        store.db = store.options.clone().open(HOME).unwrap();
        store
    }

    /// Puts or deletes random keys.
    fn write(&mut self, count: usize, rng: &mut Rng) {
        for _ in 0..count {
            let (key, value) = (key(rng.below(KEYS)), bytes(rng.next(), 20 + rng.below(100)));
            match rng.chance(15) {
                true => {
                    self.db.delete(&key).unwrap();
                    self.map.remove(&key);
                }
                false => {
                    self.db.put(&key, &value).unwrap();
                    self.map.insert(key, value);
                }
            }
        }
    }

    /// The answer of a read, which makes no call to read if it must not; `None` if it refuses.
    fn ask<T>(&self, how: &ReadOptions, read: impl FnOnce() -> Result<T>) -> Option<T> {
        let before = self.env.counts().read_calls;
        let answer = read();
        if std::ptr::eq(how, &NORMAL) {
            return Some(answer.unwrap());
        }
        assert_eq!(self.env.counts().read_calls, before, "a call to read");
        match answer {
            Ok(answer) => Some(answer),
            Err(Error::WouldRead { path }) => {
                assert!(self.env.metadata(&path).is_ok(), "{}", path.display());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A key, half of them present, some outside of all tables.
fn any_key(rng: &mut Rng) -> Vec<u8> {
    let number = rng.below(KEYS + 10);
    if rng.chance(50) { key(number) } else { absent_key(number) }
}

/// One random read of `source`, which has the entries of `map`. False if it was refused.
fn read(store: &Store, source: &impl Readable, map: &Map, how: &ReadOptions, seed: u64) -> bool {
    let rng = &mut Rng::new(seed);
    match rng.below(5) {
        0 | 1 => {
            let key = any_key(rng);
            let found = store.ask(how, || source.get_with(&key, how));
            let expected = map.get(&key).map(Vec::as_slice);
            found.inspect(|found| assert_eq!(found.as_deref(), expected)).is_some()
        }
        2 => {
            let keys: Vec<_> = (0..1 + rng.below(6)).map(|_| any_key(rng)).collect();
            let found = store.ask(how, || source.multi_get_with(&keys, how));
            for (key, found) in keys.iter().zip(found.iter().flatten()) {
                assert_eq!(found.as_deref(), map.get(key).map(Vec::as_slice));
            }
            found.is_some()
        }
        3 => scan(store, source, map, how, rng),
        _ => walk(store, source, map, how, rng),
    }
}

/// A range, forwards or backwards. Up to a refusal it lacks no entry, and there it ends.
fn scan(
    store: &Store,
    source: &impl Readable,
    map: &Map,
    how: &ReadOptions,
    rng: &mut Rng,
) -> bool {
    let number = rng.below(KEYS);
    // Ends that share all but a few bytes are for filters of prefixes and ranges.
    let (start, end) = (absent_key(number), key(number + *rng.pick(&[0, 1, 2, 9, KEYS])));
    let end = end.max(start.clone());
    let is_reverse = rng.chance(40);
    let mut entries = source.range_with(&start[..]..&end[..], how);
    let mut expected = map.range(start..end);
    loop {
        let step = || match is_reverse {
            true => entries.next_back().transpose(),
            false => entries.next().transpose(),
        };
        let Some(found) = store.ask(how, step) else {
            assert!(entries.next().is_none() && entries.next_back().is_none());
            return false;
        };
        let next = if is_reverse { expected.next_back() } else { expected.next() };
        let found = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(found, next.map(|(key, value)| (&key[..], &value[..])));
        if found.is_none() {
            return true;
        }
    }
}

/// A cursor that seeks and then steps both ways. It stays at a refusal until it seeks.
fn walk(
    store: &Store,
    source: &impl Readable,
    map: &Map,
    how: &ReadOptions,
    rng: &mut Rng,
) -> bool {
    let mut cursor = source.range_with(.., how).cursor();
    let sought = any_key(rng);
    let mut moved = store.ask(how, || cursor.seek(&sought));
    let mut expected = map.range(sought.clone()..).next();
    for _ in 0..8 {
        let Some(is_at_entry) = moved else {
            assert!(cursor.entry().is_none());
            assert!(matches!(cursor.next(), Err(Error::WouldRead { .. })));
            assert!(matches!(cursor.prev(), Err(Error::WouldRead { .. })));
            // A key behind all tables of a level needs no block of it.
            let seek = store.ask(how, || cursor.seek(&sought));
            let first = map.range(sought..).next();
            let found = cursor.entry();
            assert!(seek.is_none() || found == first.map(|(key, value)| (&key[..], &value[..])));
            return false;
        };
        assert_eq!(is_at_entry, expected.is_some());
        assert_eq!(cursor.entry(), expected.map(|(key, value)| (&key[..], &value[..])));
        let Some((at, _)) = expected else { break };
        let is_back = rng.chance(40);
        expected = match is_back {
            true => map.range(..at.clone()).next_back(),
            false => map.range([&at[..], &[0]].concat()..).next(),
        };
        moved = store.ask(how, || if is_back { cursor.prev() } else { cursor.next() });
    }
    true
}

/// Reads at random, some of them first in the normal way. Returns how many were answered and how
/// many refused. With `keeps_all`, a read is answered that was made in the normal way before.
fn read_many(
    store: &Store,
    source: &impl Readable,
    map: &Map,
    keeps_all: bool,
    rng: &mut Rng,
) -> [usize; 2] {
    let mut answered = [0, 0];
    for _ in 0..60 {
        let seed = rng.next();
        let is_warm = rng.chance(25);
        if is_warm {
            read(store, source, map, &NORMAL, seed);
        }
        let is_answered = read(store, source, map, &IN_MEMORY, seed);
        assert!(is_answered || !(is_warm && keeps_all), "refused after a normal read");
        answered[usize::from(!is_answered)] += 1;
    }
    answered
}

#[test]
fn answers_are_those_of_normal_reads() {
    let filters = all_filters().into_iter().chain(prefix_filters());
    for (number, NamedFilter { name, filter, .. }) in filters.enumerate() {
        for (pinned_share, cache) in [(0.5, 64 << 20), (0.0, 64 << 20), (0.0, 16 << 10)] {
            let rng = &mut Rng::new(seeds(1)[0] + number as u64);
            let options = options(pinned_share).block_cache_bytes(cache).filter(filter.clone());
            let mut store = Store::new(&options, rng);
            let keeps_all = cache > 1 << 20;
            let (snapshot, before) = (store.db.snapshot(), store.map.clone());
            store.write(10, rng);
            let transaction = store.db.transaction();
            let mut own = store.map.clone();
            for _ in 0..5 {
                let key = any_key(rng);
                transaction.put(&key, "own").unwrap();
                own.insert(key, b"own".to_vec());
            }
            let follower = store.options.clone().open_follower(HOME).unwrap();
            let answered = [
                read_many(&store, &store.db, &store.map, keeps_all, rng),
                read_many(&store, &snapshot, &before, keeps_all, rng),
                read_many(&store, &transaction, &own, keeps_all, rng),
                read_many(&store, &follower, &store.map, keeps_all, rng),
            ];
            let [yes, no] = [0, 1].map(|which| answered.map(|of| of[which]).iter().sum::<usize>());
            // How many depends on when compactions ran.
            assert!(yes > 0 && no > 0, "{name}, {cache}: {answered:?}");
            assert_eq!(store.db.stats().filter_errors, 0, "{name}");
        }
    }
}

/// Only the newer version is not in memory: the older one is no answer (I11).
#[test]
fn older_versions_stay_hidden() {
    for NamedFilter { name, filter, .. } in one_of_each_layout() {
        for is_delete in [false, true] {
            let env = as_env(&MemEnv::new());
            let db = options(0.5).filter(filter.clone()).env(env).open(HOME).unwrap();
            (0..9).for_each(|number| db.put(key(number), "old").unwrap());
            db.compact_range(..).unwrap();
            assert_eq!(db.iter().count(), 9);
            assert_eq!(db.get_with(key(4), &IN_MEMORY).unwrap().unwrap(), "old");
            match is_delete {
                true => db.delete(key(4)).unwrap(),
                false => db.put(key(4), "new").unwrap(),
            }
            db.flush().unwrap();
            let found = db.get_with(key(4), &IN_MEMORY);
            assert!(matches!(found, Err(Error::WouldRead { .. })), "{name}: {found:?}");
            let found = db.multi_get_with([key(3), key(4)], &IN_MEMORY);
            assert!(matches!(found, Err(Error::WouldRead { .. })), "{name}: {found:?}");
            let first = db.range_with(.., &IN_MEMORY).next();
            assert!(matches!(first, Some(Err(Error::WouldRead { .. }))), "{name}");
            // Fences leave the new table out.
            assert_eq!(db.get_with(key(3), &IN_MEMORY).unwrap().unwrap(), "old");
        }
    }
}

#[test]
fn missing_filters_are_left_out() {
    let unfiltered = ReadOptions::new().use_filters(false);
    for NamedFilter { name, filter, .. } in all_filters().into_iter().chain(prefix_filters()) {
        let store = Store::new(&options(0.0).filter(filter), &mut Rng::new(seeds(1)[0]));
        let keys: Vec<_> = (0..KEYS).flat_map(|number| [key(number), absent_key(number)]).collect();
        for key in &keys {
            store.db.get_with(key, &unfiltered).unwrap();
        }
        let before = store.db.stats();
        let reads = store.env.counts().read_calls;
        for key in &keys {
            let found = store.db.get_with(key, &IN_MEMORY).unwrap();
            assert_eq!(found.as_deref(), store.map.get(key).map(Vec::as_slice), "{name}");
        }
        let found = store.db.multi_get_with(&keys, &IN_MEMORY).unwrap();
        assert_eq!(found.iter().flatten().count(), store.map.len(), "{name}");
        for number in 0..KEYS {
            let (start, end) = (key(number), absent_key(number));
            let found = store.db.range_with(&start[..]..&end[..], &IN_MEMORY).map(Result::unwrap);
            assert_eq!(found.count(), usize::from(store.map.contains_key(&start)), "{name}");
        }
        let stats = store.db.stats().since(&before);
        let total = stats.total();
        assert_eq!((store.env.counts().read_calls, stats.filter_errors), (reads, 0), "{name}");
        assert_eq!((total.negatives, total.scan_negatives), (0, 0), "{name}");
        assert!(total.not_consulted as usize > KEYS, "{name}");
    }
}

/// What is not there is known without a data block, whether filters are pinned or cached.
#[test]
fn filters_in_memory_answer() {
    for NamedFilter { name, filter, .. } in all_filters() {
        for pinned_share in [0.0, 0.5] {
            let options = options(pinned_share).filter(filter.clone());
            let store = Store::new(&options, &mut Rng::new(seeds(1)[0]));
            for number in 0..KEYS {
                store.db.get_with(absent_key(number), &NORMAL.clone().fill_cache(false)).unwrap();
            }
            let answered = |key: &dyn Fn(usize) -> Vec<u8>| {
                let get = |number| store.db.get_with(key(number), &IN_MEMORY);
                (0..KEYS).filter(|&number| store.ask(&IN_MEMORY, || get(number)).is_some()).count()
            };
            let before = store.db.stats();
            let [absent, present] = [answered(&absent_key), answered(&key)];
            let total = store.db.stats().since(&before).total();
            let is_cached = name != "none" && pinned_share == 0.0;
            assert_eq!(
                total.filter_blocks_cached > 0,
                is_cached || name.contains("part"),
                "{name}"
            );
            let expected = if name == "none" { 0 } else { KEYS * 9 / 10 };
            assert!(absent >= expected && present < KEYS / 2, "{name}: {absent}, {present}");
        }
    }
}

/// The disk answers no read. Another thread waits for it, for an index or a data block, and holds
/// what it must.
#[test]
fn no_read_of_another_thread_is_awaited() {
    for (pinned_share, is_index_read) in [(0.5, false), (0.5, true), (0.0, false), (0.0, true)] {
        let (memory, gate) = (MemEnv::new(), Gate::default());
        let env = Arc::new(GateEnv::new(as_env(&memory), &gate));
        let options = options(pinned_share).env(env);
        let db = options.clone().open(HOME).unwrap();
        (0..KEYS).for_each(|number| db.put(key(number), bytes(number as u64, 50)).unwrap());
        db.flush().unwrap();
        db.close().unwrap();
        let db = options.open(HOME).unwrap();
        if is_index_read {
            db.get(key(KEYS - 1)).unwrap();
        }
        gate.shut(Stops::Reads);
        thread::scope(|scope| {
            let _opens = OpensOnDrop([&gate]);
            let waiting = scope.spawn(|| db.get(key(0)));
            gate.wait_for_a_call();
            let (send, receive) = mpsc::channel();
            let db = &db;
            scope.spawn(move || {
                let one = db.get_with(key(0), &IN_MEMORY).err();
                let many = db.multi_get_with([key(0), key(1)], &IN_MEMORY).err();
                let scan = db.range_with(.., &IN_MEMORY).next().and_then(Result::err);
                send.send([one, many, scan]).unwrap();
            });
            let refused = receive.recv_timeout(Duration::from_secs(60)).expect("it waits");
            assert!(refused.iter().all(|error| matches!(error, Some(Error::WouldRead { .. }))));
            gate.open();
            assert!(waiting.join().unwrap().unwrap().is_some());
        });
        assert!(db.get_with(key(0), &IN_MEMORY).unwrap().is_some());
    }
}

/// Nothing is cached, so each block is used where it is.
#[test]
fn tables_in_memory_are_never_refused() {
    for NamedFilter { name, filter, .. } in one_of_each_layout() {
        for snappy in [false, true] {
            let env = ReadsEnv::in_memory(as_env(&MemEnv::new()));
            let options = options(0.0).block_cache_bytes(0).filter(filter.clone()).snappy(snappy);
            let db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
            (0..KEYS).for_each(|number| db.put(key(number), bytes(7, 50)).unwrap());
            db.compact_range(..).unwrap();
            env.take();
            for number in 0..KEYS {
                assert!(db.get_with(key(number), &IN_MEMORY).unwrap().is_some(), "{name}");
                assert!(db.get_with(absent_key(number), &IN_MEMORY).unwrap().is_none(), "{name}");
            }
            let found = db.multi_get_with((0..KEYS).map(key), &IN_MEMORY).unwrap();
            assert_eq!(found.iter().flatten().count(), KEYS, "{name}");
            assert_eq!(db.range_with(.., &IN_MEMORY).map(Result::unwrap).count(), KEYS, "{name}");
            assert!(env.take().is_empty(), "{name}");
        }
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let db = options(0.5).env(as_env(&MemEnv::new())).open(HOME).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let error = db.get_with("key", &IN_MEMORY).unwrap_err();
    assert_eq!(error.kind(), "would_read");
    assert!(!error.is_corruption() && !error.is_out_of_space());
    let Error::WouldRead { path } = &error else { panic!("{error}") };
    let expected = format!(
        "a block of {} that the read needs is not in memory; read again without `in_memory_only`",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    // The refused read wrote nothing, so the database stays usable.
    db.put("key", "newer").unwrap();
    assert_eq!(db.get_with("key", &IN_MEMORY).unwrap().unwrap(), "newer");
}
