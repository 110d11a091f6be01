//! Whole compactions, by hand and automatic at the same time, against a sorted map: tables that are
//! cut for their entries and for their range deletes share no key, and every read is right.
//!
//! A table ends where its block of range deletes would be larger than 64 data blocks. Small blocks
//! and long keys bring that down to a few range deletes, or to one.
//!
//! `SIFTDB_COMPACTIONS` sets how many jobs run.

use crate::support::data::bytes;
use crate::support::model::{Change, Map, apply, batch_of};
use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{open, scan, scan_back, small_options};
use siftdb::env::MemEnv;
use siftdb::{Db, Options, Snapshot};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Keys of a database, and how much it writes from one flush to the next.
struct Kind {
    name: &'static str,
    keys: Vec<Vec<u8>>,
    block_bytes: usize,
    puts: usize,
    range_deletes: usize,
    /// Keys that a range delete covers, at most.
    width: usize,
    value_bytes: usize,
}

/// `count` keys of one length that differ in their last bytes.
fn keys(count: usize, length: usize) -> Vec<Vec<u8>> {
    let digits = |number: usize| format!("{number:06}").into_bytes();
    (0..count).map(|number| [vec![b'k'; length - 6], digits(number)].concat()).collect()
}

fn kinds() -> Vec<Kind> {
    let long = |length| Kind {
        name: "the longest keys",
        keys: keys(12, length),
        block_bytes: 512,
        puts: 6,
        range_deletes: 4,
        width: 4,
        value_bytes: 3000,
    };
    vec![
        Kind {
            name: "many narrow range deletes",
            keys: keys(3000, 38),
            block_bytes: 64,
            puts: 60,
            range_deletes: 180,
            width: 3,
            value_bytes: 100,
        },
        Kind {
            name: "a table for each range delete",
            keys: keys(300, 2500),
            block_bytes: 64,
            puts: 30,
            range_deletes: 12,
            width: 40,
            value_bytes: 700,
        },
        long(65_534),
        long(65_535),
    ]
}

impl Kind {
    fn options(&self) -> Options {
        small_options().block_bytes(self.block_bytes).block_cache_bytes(1 << 20).max_open_files(100)
    }

    /// One round of writes, in one batch.
    fn changes(&self, rng: &mut Rng) -> Vec<Change> {
        let put = |rng: &mut Rng| {
            let value = bytes(rng.next(), rng.below(2 * self.value_bytes));
            match rng.chance(90) {
                true => Change::Put(rng.pick(&self.keys).clone(), value),
                false => Change::Delete(rng.pick(&self.keys).clone()),
            }
        };
        let delete = |rng: &mut Rng| {
            let first = rng.below(self.keys.len());
            let end = self.keys.get(first + 1 + rng.below(self.width));
            let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.clone()));
            Change::DeleteRange((Bound::Included(self.keys[first].clone()), end))
        };
        let mut changes: Vec<_> = (0..self.puts).map(|_| put(rng)).collect();
        changes.extend((0..rng.below(2 * self.range_deletes)).map(|_| delete(rng)));
        rng.shuffle(&mut changes);
        changes
    }

    fn range(&self, rng: &mut Rng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (a, b) = (rng.below(self.keys.len()), rng.below(self.keys.len()));
        match rng.chance(30) {
            true => (Bound::Unbounded, Bound::Unbounded),
            false => {
                let key = |at: usize| Bound::Included(self.keys[at].clone());
                (key(a.min(b)), key(a.max(b)))
            }
        }
    }

    /// Writes, compacts and checks until `jobs` compactions have run. Returns how many did.
    fn run(&self, seed: u64, jobs: u64) -> u64 {
        let rng = &mut Rng::new(seed);
        let env = MemEnv::new();
        let db = open(&env, &self.options()).unwrap();
        let (mut map, mut snapshots) = (Map::new(), Vec::<(Snapshot, Map)>::new());
        let place = format!("{}, seed {seed}", self.name);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends = Ends(&ended);
            let (beside, ended, place, mut rng_beside) = (&db, &ended, &place, Rng::new(!seed));
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let compacted = beside.compact_range(self.range(&mut rng_beside));
                    compacted.unwrap_or_else(|error| panic!("{place}, beside: {error}"));
                }
            });
            for round in 1.. {
                let changes = self.changes(rng);
                let written = db.write(batch_of(&changes)).and_then(|_| db.flush());
                written.unwrap_or_else(|error| panic!("{place}, round {round}: {error}"));
                apply(&mut map, &changes);
                match rng.below(12) {
                    0..2 if snapshots.len() < 4 => snapshots.push((db.snapshot(), map.clone())),
                    2 if !snapshots.is_empty() => {
                        drop(snapshots.swap_remove(rng.below(snapshots.len())));
                    }
                    3 => db.compact_range(self.range(rng)).unwrap(),
                    4 => check(&db, &map, &snapshots, place),
                    _ => {}
                }
                if db.stats().compactions >= jobs {
                    break;
                }
            }
        });
        check(&db, &map, &snapshots, &place);
        drop(snapshots);
        let ran = db.stats().compactions;
        db.close().unwrap();
        drop(db);
        // The manifest refuses a level in which two tables share keys.
        let db = open(&env, &self.options()).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(db.verify(|_| {}).unwrap().is_sound(), "{place}");
        check(&db, &map, &[], &place);
        ran
    }
}

/// Ends the thread beside, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check(db: &Db, map: &Map, snapshots: &[(Snapshot, Map)], place: &str) {
    assert!(scan(db).unwrap() == *map, "{place}");
    assert!(scan_back(db).unwrap().into_iter().rev().eq(map.clone()), "{place}, back");
    for (snapshot, map) in snapshots {
        let entries = snapshot.iter().map(|entry| entry.unwrap());
        let found: BTreeMap<_, _> =
            entries.map(|(key, value)| (key.into_vec(), value.into_vec())).collect();
        assert!(found == *map, "{place}, a snapshot");
    }
}

#[test]
fn outputs_share_no_key_with_their_level() {
    let (kinds, mut left) = (kinds(), setting("SIFTDB_COMPACTIONS", 240) as u64);
    let mut ran = vec![0; kinds.len()];
    // Consecutive seeds have different kinds of databases.
    for seed in seeds(1)[0].. {
        let number = seed as usize % kinds.len();
        let jobs = kinds[number].run(seed, 60.min(left));
        ran[number] += jobs;
        left = left.saturating_sub(jobs);
        if left == 0 {
            break;
        }
    }
    for (kind, jobs) in kinds.iter().zip(&ran) {
        println!("{}: {jobs} compactions", kind.name);
    }
}
