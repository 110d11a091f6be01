//! Reads during writes, switches of the memtable, flushes, compactions and removal of files: the
//! whole path of each, on a database in memory whose jobs the scenario calls itself.

use crate::base::expiry::ReadClock;
use crate::base::levels::LEVELS;
use crate::base::range::KeyRange;
use crate::base::sync::{Arc, AtomicU64, Ordering, thread};
use crate::base::value::Value;
use crate::base::write_batch::WriteBatch;
use crate::db::open;
use crate::db::snapshot::Snapshot;
use crate::env::mem::MemEnv;
use crate::interleavings::run::check;
use crate::jobs::compact::run::{Cursors, compact_once};
use crate::jobs::flush::flush_pending;
use crate::jobs::ingest::install::install;
use crate::jobs::ingest::tables::LoadTables;
use crate::jobs::obsolete::remove_files;
use crate::options::access::{ReadOptions, WriteOptions};
use crate::options::database::Options;
use crate::read::iter::Iter;
use crate::read::multi_get::multi_get;
use crate::read::point;
use crate::state::engine::Engine;
use crate::state::write_queue::Switch;
use crate::write::commit;
use std::path::Path;

const KEYS: [&str; 2] = ["a", "b"];

struct Store {
    env: MemEnv,
    engine: Arc<Engine>,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

impl Store {
    fn new() -> Self {
        let env = MemEnv::new();
        let options = Options::new()
            .env(Arc::new(env.clone()))
            .write_buffer_bytes(64 << 10)
            .immutable_memtables_max(16)
            .max_open_files(1)
            .level0_compaction_trigger(1);
        let engine = open::open(options, Path::new("/db")).unwrap();
        Store { env, engine, begun: AtomicU64::new(0), acknowledged: AtomicU64::new(0) }
    }

    /// Writes `number` under every key, as one batch. One writer.
    fn write(&self, number: u64) {
        let mut batch = WriteBatch::new();
        for key in KEYS {
            batch.put(key, number.to_le_bytes());
        }
        self.begun.store(number, Ordering::SeqCst);
        commit::write(&self.engine, batch, &WriteOptions::new()).unwrap();
        self.acknowledged.store(number, Ordering::SeqCst);
    }

    fn switch(&self) {
        commit::switch(&self.engine, Switch::All).unwrap();
    }

    fn flush(&self) {
        flush_pending(&self.engine).unwrap();
    }

    fn compact(&self) {
        compact_once(&self.engine, &self.engine.catalog.default, &Cursors::default(), LEVELS)
            .unwrap();
    }

    /// What `read` finds: no older than what was acknowledged when it began, no newer than what
    /// was begun when it ended.
    fn bracketed(&self, read: impl FnOnce() -> u64) -> u64 {
        let least = self.acknowledged.load(Ordering::SeqCst);
        let found = read();
        let most = self.begun.load(Ordering::SeqCst);
        assert!((least..=most).contains(&found), "{found}, not {least} to {most}");
        found
    }

    fn get(&self, key: &str) -> u64 {
        let options = ReadOptions::new();
        let default = &self.engine.catalog.default;
        number(point::get(default, key.as_bytes(), None, &options, None).unwrap())
    }

    /// All keys at one moment.
    fn multi_get(&self) -> u64 {
        let default = &self.engine.catalog.default;
        let found =
            multi_get(default, KEYS, None, &ReadOptions::new(), &ReadClock::default()).unwrap();
        let found: Vec<u64> = found.into_iter().map(number).collect();
        assert_eq!(found, [found[0]; KEYS.len()], "torn");
        found[0]
    }

    fn iter(&self) -> Iter {
        let bounds = (..).into_bounds();
        Iter::new(&self.engine.catalog.default, None, bounds, &ReadOptions::new())
    }

    /// Table files that there are, and those that the version names.
    fn tables(&self) -> (usize, usize) {
        let files = self.env.list_files();
        let tables = files.iter().filter(|path| path.extension().is_some_and(|end| end == "sst"));
        let version = &self.engine.catalog.default.view.load().version;
        (tables.count(), (0..LEVELS).map(|level| version.level(level).len()).sum())
    }
}

fn number(value: Option<Value>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

/// What a scan finds under all keys, or 0 if there are none.
fn walked(iter: Iter) -> u64 {
    let found: Vec<u64> = iter.map(|entry| number(Some(entry.unwrap().1))).collect();
    assert!(found.is_empty() || found == [found[0]; KEYS.len()], "torn: {found:?}");
    found.first().copied().unwrap_or(0)
}

pub fn lookups_find_exactly_what_was_published() {
    check("view, sequence, memtable filter", 3000, 8, || {
        let store = Store::new();
        let found = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 1..=3 {
                    store.write(number);
                    store.switch();
                }
            });
            let flusher = scope.spawn(|| (0..2).for_each(|_| store.flush()));
            let reader = scope.spawn(|| {
                let gets = [KEYS[0], KEYS[1], KEYS[0]];
                let found = gets.map(|key| store.bracketed(|| store.get(key)));
                assert!(found.is_sorted(), "back in time: {found:?}");
                found
            });
            writer.join().unwrap();
            flusher.join().unwrap();
            reader.join().unwrap()
        });
        assert_eq!(store.get(KEYS[1]), 3);
        found
    });
}

/// A flush keeps the versions that reads at the published sequence see, and no older ones. So a
/// read at an earlier sequence must use the view of that time.
pub fn reads_load_their_view_before_the_sequence() {
    type Read = fn(&Store) -> u64;
    let reads: [(&str, Read); 3] = [
        ("get", |store| store.get(KEYS[0])),
        ("multi_get", Store::multi_get),
        ("scan", |store| walked(store.iter())),
    ];
    for (name, read) in reads {
        check(&format!("{name} during a flush"), 4000, 2, move || {
            let store = Store::new();
            store.write(1);
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    store.write(2);
                    store.switch();
                    store.flush();
                });
                let found = scope.spawn(|| store.bracketed(|| read(&store))).join().unwrap();
                writer.join().unwrap();
                found
            })
        });
    }
}

pub fn readers_see_batches_whole() {
    check("batches", 3000, 8, || {
        let store = Store::new();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                store.write(1);
                store.switch();
                store.write(2);
                store.write(3);
            });
            let flusher = scope.spawn(|| store.flush());
            let reader = scope.spawn(|| {
                let many = store.bracketed(|| store.multi_get());
                let walk = store.bracketed(|| walked(store.iter()));
                assert!(many <= walk);
                [many, walk]
            });
            writer.join().unwrap();
            flusher.join().unwrap();
            reader.join().unwrap()
        })
    });
}

/// Versions that only the snapshot or iterator sees must survive flushes and compactions, also
/// those that run while it is created.
pub fn snapshots_are_stable_under_writes_and_jobs() {
    check("snapshots", 3000, 3, || {
        let store = Store::new();
        store.write(1);
        let found = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 2..=3 {
                    store.write(number);
                    store.switch();
                }
            });
            let jobs = scope.spawn(|| {
                for _ in 0..2 {
                    store.flush();
                    store.compact();
                }
            });
            let reader = scope.spawn(|| {
                let mut taken = None;
                let first = store.bracketed(|| {
                    let snapshot = Snapshot::new(&store.engine, &store.engine.catalog.default);
                    let seen = number(snapshot.get(KEYS[0]).unwrap());
                    taken = Some(snapshot);
                    seen
                });
                (first, taken.unwrap())
            });
            writer.join().unwrap();
            jobs.join().unwrap();
            let (first, snapshot) = reader.join().unwrap();
            store.flush();
            store.compact();
            assert_eq!(number(snapshot.get(KEYS[1]).unwrap()), first, "it moved");
            assert_eq!(walked(snapshot.iter()), first, "it moved");
            first
        });
        assert_eq!(store.engine.catalog.snapshots.len(), 0);
        found
    });
}

/// A load is installed while others read. Its tables are in the view before its sequence can be
/// read.
pub fn snapshots_show_loads_always_or_never() {
    check("bulk loads", 3000, 2, || {
        let store = Store::new();
        store.write(1);
        store.switch();
        store.flush();
        let mut load = LoadTables::new(&store.engine, &store.engine.catalog.default).unwrap();
        KEYS.iter().for_each(|key| {
            load.add(key.as_bytes(), &2u64.to_le_bytes(), None).unwrap();
        });
        load.finish().unwrap();
        let (first, snapshot) = thread::scope(|scope| {
            let loader = scope.spawn(|| {
                install(&store.engine, &store.engine.catalog.default, &mut load).unwrap()
            });
            let reader = scope.spawn(|| {
                let snapshot = Snapshot::new(&store.engine, &store.engine.catalog.default);
                let seen = number(snapshot.get(KEYS[0]).unwrap());
                let (many, walk) = (store.multi_get(), walked(store.iter()));
                assert!([seen, many, walk].is_sorted(), "back in time");
                (seen, snapshot)
            });
            loader.join().unwrap();
            reader.join().unwrap()
        });
        assert_eq!(number(snapshot.get(KEYS[1]).unwrap()), first, "it moved");
        assert_eq!(walked(snapshot.iter()), first, "it moved");
        assert_eq!((store.get(KEYS[0]), store.multi_get()), (2, 2));
        first
    });
}

/// The version changes while readers use it. What they read stays readable, and its files are
/// removed when the readers are gone.
pub fn unreferenced_tables_are_removed() {
    check("version switch and removal", 3000, 2, || {
        let store = Store::new();
        for number in 1..=2 {
            store.write(number);
            store.switch();
            store.flush();
        }
        let found = thread::scope(|scope| {
            let jobs = scope.spawn(|| store.compact());
            let writer = scope.spawn(|| {
                store.write(3);
                store.switch();
                store.flush();
            });
            let reader = scope.spawn(|| {
                let walk = store.bracketed(|| walked(store.iter()));
                let next = store.bracketed(|| store.get(KEYS[1]));
                assert!(walk <= next);
                walk
            });
            jobs.join().unwrap();
            writer.join().unwrap();
            reader.join().unwrap()
        });
        assert_eq!(store.get(KEYS[0]), 3);
        remove_files(&store.engine);
        let (files, named) = store.tables();
        assert_eq!(files, named);
        found
    });
}
