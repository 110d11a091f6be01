//! Transactions: what they read, when they conflict, and what a refused one leaves.

use crate::support::rng::{Rng, seeds};
use crate::support::stores::{as_env, small_options};
use siftdb::env::MemEnv;
use siftdb::{
    Cursor, Db, Error, Keyspace, Result, Savepoint, Transaction, WriteBatch, WriteOptions,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(env: &MemEnv) -> Db {
    small_options().env(as_env(env)).open("/db").unwrap()
}

/// The key of a conflict; none without one.
fn conflict(result: Result<()>) -> Option<Vec<u8>> {
    match result {
        Ok(()) => None,
        Err(Error::Conflict { key, .. }) => Some(key),
        Err(error) => panic!("{error}"),
    }
}

const SPACES: usize = 2;

/// Keys of one letter, so that ranges meet often.
const KEYS: u8 = 24;

fn key(n: u8) -> Vec<u8> {
    vec![b'a' + n]
}

/// Random transactions and the writes of others at the same time, with what each must read and
/// whether it must conflict.
struct World {
    spaces: [Keyspace; SPACES],
    /// Its keys are no matter.
    beside: Keyspace,
    db: Db,
    now: [Map; SPACES],
    values: u64,
}

/// A transaction, what it sees, and what it has read.
struct Open {
    transaction: Transaction,
    sees: [Map; SPACES],
    own: [BTreeSet<u8>; SPACES],
    own_deletes: [BTreeSet<u8>; SPACES],
    read: BTreeSet<(usize, u8)>,
    written: bool,
}

impl World {
    fn new(env: &MemEnv) -> Self {
        let db = open(env);
        let spaces = [db.keyspace("default").unwrap(), db.keyspace("other").unwrap()];
        let beside = db.keyspace("beside").unwrap();
        World { spaces, beside, db, now: Default::default(), values: 0 }
    }

    fn value(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.values += 1;
        let mut value = self.values.to_string().into_bytes();
        value.resize(value.len() + rng.below(200), b'.');
        value
    }

    fn begin(&self) -> Open {
        Open {
            transaction: self.db.transaction(),
            sees: self.now.clone(),
            own: Default::default(),
            own_deletes: Default::default(),
            read: BTreeSet::new(),
            written: false,
        }
    }

    /// A write of someone else; answers the keys.
    fn write(&mut self, rng: &mut Rng) -> BTreeSet<(usize, u8)> {
        let mut touched = BTreeSet::new();
        let mut batch = WriteBatch::new();
        for _ in 0..1 + rng.below(3) {
            let (space, first) = (rng.below(SPACES), rng.below(KEYS.into()) as u8);
            let mut part = batch.in_keyspace(&self.spaces[space]);
            match rng.below(4) {
                0 => {
                    let end = (first + 1 + rng.below(5) as u8).min(KEYS);
                    part.delete_range(key(first)..key(end));
                    self.now[space].retain(|own, _| *own < key(first) || *own >= key(end));
                    touched.extend((first..end).map(|n| (space, n)));
                    continue;
                }
                1 => {
                    part.delete(key(first));
                    self.now[space].remove(&key(first));
                }
                _ => {
                    let value = self.value(rng);
                    batch.in_keyspace(&self.spaces[space]).put(key(first), &value);
                    self.now[space].insert(key(first), value);
                }
            }
            touched.insert((space, first));
        }
        self.db.write(batch).unwrap();
        touched
    }
}

impl Open {
    /// One read in one of the keyspaces, compared with what the transaction must see.
    fn read(&mut self, world: &World, rng: &mut Rng) {
        let space = rng.below(SPACES);
        let part = self.transaction.in_keyspace(&world.spaces[space]);
        let sees = &self.sees[space];
        let (first, count) = (rng.below(KEYS.into()) as u8, 1 + rng.below(8) as u8);
        let end = (first + count).min(KEYS);
        let within = || sees.range(key(first)..key(end)).map(|(k, v)| (k.clone(), v.clone()));
        let owned = |entry: Result<(siftdb::Key, siftdb::Value)>| {
            let (key, value) = entry.unwrap();
            (key.to_vec(), value.to_vec())
        };
        let steps = rng.below(5);
        let mut crossed = |from: u8, to: u8| {
            self.read.extend((from..to).map(|n| (space, n)));
        };
        let number = |key: &[u8]| key[0] - b'a';
        match rng.below(8) {
            0 | 1 => {
                assert_eq!(
                    part.get(key(first)).unwrap().as_deref(),
                    sees.get(&key(first)).map(|v| &v[..])
                );
                if !self.own[space].contains(&first) && !self.own_deletes[space].contains(&first) {
                    crossed(first, first + 1);
                }
            }
            2 => {
                let keys: Vec<_> = (first..end).map(key).collect();
                let found = part.multi_get(&keys).unwrap();
                for (n, value) in (first..end).zip(found) {
                    assert_eq!(value.as_deref(), sees.get(&key(n)).map(|v| &v[..]));
                    if !self.own[space].contains(&n) && !self.own_deletes[space].contains(&n) {
                        crossed(n, n + 1);
                    }
                }
            }
            3 => {
                let found: Vec<_> =
                    part.range(key(first)..key(end)).take(steps).map(owned).collect();
                assert_eq!(found, within().take(steps).collect::<Vec<_>>());
                if steps > 0 {
                    match found.len() == steps {
                        true => crossed(first, number(&found[steps - 1].0) + 1),
                        false => crossed(first, end),
                    }
                }
            }
            4 => {
                let found: Vec<_> =
                    part.range(key(first)..key(end)).rev().take(steps).map(owned).collect();
                assert_eq!(found, within().rev().take(steps).collect::<Vec<_>>());
                if steps > 0 {
                    match found.len() == steps {
                        true => crossed(number(&found[steps - 1].0), end),
                        false => crossed(first, end),
                    }
                }
            }
            5 => {
                let found = part.first().unwrap().map(|entry| owned(Ok(entry)));
                assert_eq!(found, sees.first_key_value().map(|(k, v)| (k.clone(), v.clone())));
                crossed(0, found.map_or(KEYS, |(key, _)| number(&key) + 1));
            }
            6 => {
                let mut cursor = part.cursor();
                let there = cursor.seek_range(key(first)..key(end)).unwrap();
                let found = cursor.key().map(number);
                assert_eq!(found, within().next().map(|(key, _)| number(&key)), "{there}");
                crossed(first, found.map_or(end, |n| n + 1));
            }
            _ => {
                let mut cursor: Cursor = part.range(key(first)..key(end)).cursor();
                let from = (first + rng.below(4) as u8).min(end);
                let there = cursor.seek(key(from)).unwrap();
                let found = cursor.key().map(number);
                let expected = sees.range(key(from)..).next().map(|(key, _)| number(key));
                assert_eq!(found, expected.filter(|n| *n < end), "{there}");
                if from < end {
                    crossed(from, found.map_or(end, |n| n + 1));
                }
                if let Some(n) = found
                    && cursor.prev().unwrap()
                {
                    crossed(number(cursor.key().unwrap()), n);
                } else if found.is_some() {
                    crossed(first, from);
                }
            }
        }
    }

    fn write(&mut self, world: &mut World, rng: &mut Rng) {
        let space = rng.below(SPACES);
        let value = world.value(rng);
        let part = self.transaction.in_keyspace(&world.spaces[space]);
        let first = rng.below(KEYS.into()) as u8;
        self.written = true;
        match rng.below(4) {
            0 => {
                let end = (first + 1 + rng.below(4) as u8).min(KEYS);
                part.delete_range(key(first)..key(end)).unwrap();
                self.sees[space].retain(|own, _| *own < key(first) || *own >= key(end));
                for n in first..end {
                    self.own[space].remove(&n);
                    self.own_deletes[space].insert(n);
                }
            }
            1 => {
                part.delete(key(first)).unwrap();
                self.sees[space].remove(&key(first));
                self.own_deletes[space].insert(first);
            }
            _ => {
                part.put(key(first), &value).unwrap();
                self.sees[space].insert(key(first), value);
                self.own[space].insert(first);
            }
        }
    }

    /// Commits, and answers what must be the state afterwards if it was not refused.
    fn commit(self, world: &mut World, touched: &BTreeSet<(usize, u8)>) -> bool {
        let overlap: Vec<_> = self.read.intersection(touched).collect();
        let expected = self.written && !overlap.is_empty();
        let found = conflict(self.transaction.commit());
        assert_eq!(found.is_some(), expected, "found {found:?}, overlap {overlap:?}");
        if let Some(found) = &found {
            assert!(overlap.iter().any(|(_, n)| key(*n) == *found), "{found:?}, {overlap:?}");
            return false;
        }
        if self.written {
            for space in 0..SPACES {
                for n in 0..KEYS {
                    let own = self.own[space].contains(&n) || self.own_deletes[space].contains(&n);
                    match self.sees[space].get(&key(n)) {
                        Some(value) if own => _ = world.now[space].insert(key(n), value.clone()),
                        None if own => _ = world.now[space].remove(&key(n)),
                        _ => {}
                    }
                }
            }
        }
        true
    }
}

#[test]
fn transactions_conflict_where_reads_were_written() {
    for seed in seeds(40) {
        let mut rng = Rng::new(seed);
        let (env, mut committed) = (MemEnv::new(), 0);
        let mut world = World::new(&env);
        for _ in 0..60 {
            for _ in 0..rng.below(4) {
                world.write(&mut rng);
            }
            let mut open = world.begin();
            let mut touched = BTreeSet::new();
            for _ in 0..rng.below(8) {
                match rng.below(12) {
                    0..4 => open.read(&world, &mut rng),
                    4..7 => open.write(&mut world, &mut rng),
                    7..9 => touched.extend(world.write(&mut rng)),
                    9 => world.db.flush().unwrap(),
                    10 => world.db.compact_range(..).unwrap(),
                    // More than the list of recent writes holds.
                    _ => {
                        for _ in 0..100 {
                            world.beside.put("k", [7; 200]).unwrap();
                        }
                    }
                }
            }
            committed += usize::from(open.commit(&mut world, &touched));
            for (space, now) in world.spaces.iter().zip(&world.now) {
                let found: Map = space
                    .iter()
                    .map(|entry| entry.unwrap())
                    .map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .collect();
                assert_eq!(&found, now, "seed {seed}");
            }
        }
        assert!(committed > 5, "{committed} commits, seed {seed}");
        world.db.verify(|_| {}).unwrap();
    }
}

#[test]
fn lost_updates_are_refused() {
    let db = open(&MemEnv::new());
    db.put("counter", "0").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    db.transact(|tx| {
                        let old: u64 = std::str::from_utf8(&tx.get("counter")?.unwrap())
                            .unwrap()
                            .parse()
                            .unwrap();
                        tx.put("counter", (old + 1).to_string())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(db.get("counter").unwrap().unwrap(), "800");
}

#[test]
fn refused_transactions_leave_no_byte() {
    let env = MemEnv::new();
    let db = open(&env);
    db.put("k", "1").unwrap();
    let tx = db.transaction();
    tx.get("k").unwrap();
    tx.put("k", "3").unwrap();
    db.put("k", "2").unwrap();
    let before = (db.stats().wal_bytes, db.stats().entries);
    assert_eq!(conflict(tx.commit_with(&WriteOptions::new().sync(true))), Some(b"k".to_vec()));
    assert_eq!((db.stats().wal_bytes, db.stats().entries), before);
    assert_eq!(db.get("k").unwrap().unwrap(), "2");
}

#[test]
fn slow_transactions_get_on_among_fast_ones() {
    let db = open(&MemEnv::new());
    let count = |bytes: Option<&[u8]>| {
        bytes.map_or(0, |bytes| std::str::from_utf8(bytes).unwrap().parse::<u64>().unwrap())
    };
    let (fast, slow_are_done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !slow_are_done.load(Ordering::SeqCst) {
                db.update("n", |old| Some((count(old) + 1).to_string())).unwrap();
                fast.fetch_add(1, Ordering::SeqCst);
            }
        });
        let slow = || {
            db.transact(|tx| {
                let old = count(tx.get("n")?.as_deref());
                // Another write comes first, unless that waits for this transaction.
                let (before, since) = (fast.load(Ordering::SeqCst), Instant::now());
                while fast.load(Ordering::SeqCst) <= before + 1
                    && (since.elapsed() < Duration::from_millis(1) || before == 0)
                {
                    std::thread::yield_now();
                }
                tx.put("n", (old + 1).to_string())
            })
        };
        let done: Vec<_> = (0..3).map(|_| slow()).collect();
        slow_are_done.store(true, Ordering::SeqCst);
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    });
    assert_eq!(count(db.get("n").unwrap().as_deref()), fast.into_inner() + 3);
}

/// The error of a program that uses a database.
#[derive(Debug)]
enum Refused {
    SoldOut,
    Store(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Store(error)
    }
}

#[test]
fn try_transact_returns_the_callers_error() {
    let db = open(&MemEnv::new());
    db.put("stock", "1").unwrap();
    let (mut runs, rival) = (0, db.clone());
    let mut order = |meets_rival: bool| {
        let mut meets_rival = meets_rival;
        db.try_transact(|tx| {
            runs += 1;
            if tx.get("stock")?.unwrap() == "0" {
                tx.put("refused", "yes")?;
                return Err(Refused::SoldOut);
            }
            if std::mem::take(&mut meets_rival) {
                rival.put("stock", "1")?;
            }
            tx.put("stock", "0")?;
            Ok(runs)
        })
    };
    // It runs again after a conflict, as `transact` does.
    assert_eq!(order(true).unwrap(), 2);
    assert!(matches!(order(false), Err(Refused::SoldOut)));
    assert_eq!((runs, db.get("refused").unwrap()), (3, None));
    let stuck = db.try_transact(|tx| {
        tx.get("stock")?;
        db.put("stock", "0")?;
        tx.put("stock", "1").map_err(Refused::from)
    });
    assert!(matches!(stuck, Err(Refused::Store(Error::Conflict { .. }))), "{stuck:?}");
    db.close().unwrap();
    let closed = db.try_transact(|tx| tx.put("stock", "1").map_err(Refused::from));
    assert!(matches!(closed, Err(Refused::Store(Error::Closed))), "{closed:?}");
}

/// The power goes after the commit: only a synced one is still there.
#[test]
fn one_entry_syncs_its_transaction_and_batch() {
    for synced in [false, true] {
        let env = MemEnv::with_log();
        let db = open(&env);
        let options = WriteOptions::new().sync(synced);
        let syncs = || db.stats().wal_syncs;
        let before = syncs();
        db.transact(|tx| {
            tx.get("a")?;
            tx.put_with("a", "1", &options)
        })
        .unwrap();
        let mut batch = WriteBatch::new();
        batch.put("b", "1").put_with("c", "1", &options);
        let mut outer = WriteBatch::new();
        outer.append(&batch);
        db.write(outer).unwrap();
        assert_eq!(syncs() - before, if synced { 2 } else { 0 });
        let tx = db.transaction();
        let savepoint = tx.savepoint();
        tx.put_with("d", "1", &options).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        tx.put("d", "2").unwrap();
        tx.commit().unwrap();
        assert_eq!(syncs() - before, if synced { 2 } else { 0 });
    }
}

/// A read after a rollback once inserted all earlier writes of the transaction again.
#[test]
fn a_rollback_costs_what_it_takes_back() {
    let db = open(&MemEnv::new());
    let time_of = |writes: u32| {
        let tx = db.transaction();
        (0..writes).for_each(|n| tx.put(n.to_le_bytes(), "v").unwrap());
        let outer = tx.savepoint();
        assert!(tx.get("a").unwrap().is_none());
        let started = Instant::now();
        for n in 0..1000u32 {
            let savepoint = tx.savepoint();
            tx.put("a", n.to_le_bytes()).unwrap();
            let inner = tx.savepoint();
            tx.put("b", "c").unwrap();
            assert!(tx.get("a").unwrap().is_some() && tx.get("b").unwrap().is_some());
            tx.rollback_to(&inner).unwrap();
            assert!(tx.get("a").unwrap().is_some() && tx.get("b").unwrap().is_none());
            tx.rollback_to(if n % 2 == 0 { &savepoint } else { &outer }).unwrap();
            assert!(tx.get("a").unwrap().is_none());
        }
        started.elapsed()
    };
    let few = (0..3).map(|_| time_of(50)).min().unwrap();
    let many = (0..2).map(|_| time_of(20_000)).min().unwrap();
    assert!(many < 30 * few, "{few:?} and {many:?}");
}

/// A walk over what a transaction saw when it was begun, and what it has yet to yield.
struct Scan {
    iter: siftdb::Iter,
    left: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Scan {
    fn step(&mut self, rng: &mut Rng) {
        let (found, expected) = match rng.chance(50) {
            true => (self.iter.next(), self.left.pop_front()),
            false => (self.iter.next_back(), self.left.pop_back()),
        };
        let found = found.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap());
        assert_eq!(found, expected);
    }
}

/// Writes, savepoints and rollbacks of one transaction; every scan that was begun keeps its writes.
#[test]
fn scans_and_rollbacks_agree_with_a_map() {
    for seed in seeds(40) {
        let (mut rng, db) = (Rng::new(seed), open(&MemEnv::new()));
        let other = db.keyspace("other").unwrap();
        let mut values = 0u32;
        let mut sees = Map::new();
        for n in (0..KEYS).step_by(2) {
            db.put(key(n), "before").unwrap();
            sees.insert(key(n), b"before".to_vec());
        }
        let tx = db.transaction();
        let mut savepoints: Vec<(Savepoint, Map)> = Vec::new();
        let mut scans: Vec<Scan> = Vec::new();
        for _ in 0..400 {
            let first = rng.below(KEYS.into()) as u8;
            let range = key(first)..key(first + rng.below(10) as u8);
            match rng.below(16) {
                0..=4 => {
                    values += 1;
                    tx.put(key(first), values.to_string()).unwrap();
                    sees.insert(key(first), values.to_string().into_bytes());
                }
                5 => {
                    tx.delete(key(first)).unwrap();
                    sees.remove(&key(first));
                }
                6 => {
                    tx.delete_range(range.clone()).unwrap();
                    sees.retain(|key, _| !range.contains(key));
                }
                7 => tx.in_keyspace(&other).put(key(first), "other").unwrap(),
                8 | 9 => savepoints.push((tx.savepoint(), sees.clone())),
                10 if !savepoints.is_empty() => {
                    savepoints.truncate(1 + rng.below(savepoints.len()));
                    let (savepoint, then) = savepoints.last().unwrap();
                    tx.rollback_to(savepoint).unwrap();
                    sees.clone_from(then);
                }
                11 => {
                    let within = sees.iter().filter(|(key, _)| range.contains(*key));
                    let left = within.map(|(key, value)| (key.clone(), value.clone())).collect();
                    scans.push(Scan { iter: tx.range(range), left });
                }
                12 if !scans.is_empty() => {
                    scans.swap_remove(rng.below(scans.len()));
                }
                13 | 14 => scans.iter_mut().for_each(|scan| scan.step(&mut rng)),
                _ => {
                    let found = tx.get(key(first)).unwrap();
                    assert_eq!(found.as_deref(), sees.get(&key(first)).map(|v| &v[..]));
                }
            }
        }
        scans.iter_mut().for_each(|scan| (0..12).for_each(|_| scan.step(&mut rng)));
        drop(scans);
        tx.commit().unwrap();
        let entries = db.iter().map(|entry| entry.unwrap());
        assert_eq!(entries.map(|(k, v)| (k.into_vec(), v.into_vec())).collect::<Map>(), sees);
    }
}
