//! Random calls of the public API, compared with a model.
//!
//! A [`Case`] is a seed and the numbers of its steps. A step draws all it needs from the seed and
//! its own number, so leaving out other steps does not change it: [`Case::shrunk`] does that. The
//! seed also decides options, whether workers compact, and whether keys have up to 65,535 bytes.
//! The file system is in memory, with a clock of its own.

use crate::exercise::HOME;
use crate::feed::Feed;
use crate::model::{Map, Spaces, live};
use crate::rng::Rng;
use siftdb::env::MemEnv;
use siftdb::{
    CompactRangeOptions, Compression, Db, Filter, FilterLayout, Follower, Keyspace,
    KeyspaceOptions, Options, Readable, Snapshot, WriteBatch, WriteOptions,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Steps of a whole case.
const STEPS: u32 = 150;

const COMPRESSIONS: [Compression; 4] =
    [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd(1)];

/// Steps that a failure prints.
const PRINTED: usize = 40;

/// A run of the fuzzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub seed: u64,
    pub steps: Vec<u32>,
}

impl Case {
    /// All steps of a seed.
    pub fn whole(seed: u64) -> Self {
        Case { seed, steps: (0..STEPS).collect() }
    }

    /// Reads what [`Case::text`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace();
        let seed = numbers.next()?.parse().ok()?;
        Some(Case { seed, steps: numbers.map(str::parse).collect::<Result<_, _>>().ok()? })
    }

    /// The seed, and the numbers of the steps.
    pub fn text(&self) -> String {
        let numbers = self.steps.iter().map(|step| format!(" {step}"));
        format!("{}{}\n", self.seed, numbers.collect::<String>())
    }

    /// A smaller case that fails, too, found in about `time`.
    pub fn shrunk(self, time: Duration, fails: impl Fn(&Case) -> bool) -> Self {
        let (started, mut smallest) = (std::time::Instant::now(), self);
        let mut chunk = smallest.steps.len() / 2;
        while chunk > 0 {
            let mut at = 0;
            while at < smallest.steps.len() && started.elapsed() < time {
                let mut smaller = smallest.clone();
                smaller.steps.drain(at..(at + chunk).min(smallest.steps.len()));
                match fails(&smaller) {
                    true => smallest = smaller,
                    false => at += chunk,
                }
            }
            chunk /= 2;
        }
        smallest
    }

    /// Runs it; panics where database and model differ.
    pub fn run(&self) {
        let mut world = World::new(self.seed);
        for step in &self.steps {
            world.step(*step);
        }
        world.note(|| "the end".into());
        world.check_all();
    }
}

/// The database, the model, and what is held open.
struct World {
    seed: u64,
    env: MemEnv,
    keys: Vec<Vec<u8>>,
    db: Db,
    now: u64,
    model: Spaces,
    snapshots: Vec<(Snapshot, Spaces)>,
    follower: Option<(Follower, Spaces)>,
    feed: Option<Feed>,
    /// The last steps; printed if one fails.
    last: VecDeque<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && !crate::watch::is_quiet() {
            eprintln!("seed {}, the last steps:", self.seed);
            self.last.iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}

/// Keys that are prefixes and neighbours of each other, up to the longest in one of three cases.
fn keys_of(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0xff], vec![0xff; 40], vec![b'a'; 300]];
    keys.extend((0..40).map(|n| format!("k{n:03}").into_bytes()));
    keys.extend((0..10).map(|n| [&[b'a'; 290][..], &[n, 0xff]].concat()));
    if rng.below(3) == 0 {
        keys.truncate(20);
        for byte in [0, b'a', b'k', 0xff] {
            keys.extend([65_534, 65_535].map(|bytes| vec![byte; bytes]));
            keys.extend([b'b', 0].map(|last| [&vec![byte; 65_534][..], &[last]].concat()));
        }
    }
    keys
}

fn settings_of(rng: &mut Rng) -> KeyspaceOptions {
    let kind = rng.below(6);
    let filter = match kind {
        0 => Filter::none(),
        1 => Filter::ribbon(10.0),
        2 => Filter::legacy_bloom(10.0),
        3 => Filter::leveldb_bloom(8.0),
        4 => Filter::monkey(2_000),
        _ => Filter::bloom(10.0),
    };
    let filter = match rng.below(2) {
        1 if kind > 0 => filter.ranges(4.0 + rng.below(16) as f64),
        _ => filter,
    };
    let layout = match rng.below(3) {
        0 => FilterLayout::Full,
        // A budget needs a layout that can keep it.
        2 if kind != 4 => FilterLayout::BlockBased { window_bytes: 2048 },
        _ => FilterLayout::Partitioned { block_bytes: 64 },
    };
    KeyspaceOptions::new()
        .filter(filter.layout(layout))
        .block_bytes(*rng.pick(&[64, 256, 4096]))
        .block_hash_index(rng.chance(50))
        .index_partition_bytes(*rng.pick(&[0, 64, 4096]))
        .compression(*rng.pick(&COMPRESSIONS))
        .compression_at_last_level(*rng.pick(&COMPRESSIONS))
        .filter_last_level(rng.chance(70))
}

fn options_of(seed: u64, rng: &mut Rng, env: &MemEnv) -> Options {
    Options::new()
        .write_buffer_bytes(*rng.pick(&[64 << 10, 256 << 10]))
        .table_bytes(16 << 10)
        .manifest_bytes(1 << 10)
        .level_base_bytes(*rng.pick(&[16 << 10, 64 << 10]))
        .level0_compaction_trigger(rng.below(4) + 1)
        .block_cache_bytes(*rng.pick(&[0, 8 << 10, 1 << 20]))
        .max_open_files(*rng.pick(&[1, 8, 100]))
        .memtable_filter(rng.chance(50))
        .keep_log_bytes(*rng.pick(&[0, 1 << 20]))
        .read_only_log_bytes_max(1 << 40)
        .auto_compaction(seed.is_multiple_of(4))
        .default_keyspace(&settings_of(rng))
        .env(Arc::new(env.clone()))
}

fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

/// The beginning and the length of a key.
fn short(key: &[u8]) -> String {
    format!("{}({} B)", key[..key.len().min(6)].escape_ascii(), key.len())
}

/// Compares what both directions of a scan find with the model.
fn check_scan(reader: &impl Readable, expected: &Map, range: &Bounds, now: u64, what: &str) {
    let is_within = |(key, _): &(&Vec<u8>, &Vec<u8>)| range.contains(*key);
    let mut expected: Vec<_> = live(expected, now).filter(is_within).collect();
    for backward in [false, true] {
        let scan = reader.range(range.clone());
        let found: Vec<_> = match backward {
            false => scan.collect::<Result<_, _>>().expect("a scan"),
            true => scan.rev().collect::<Result<_, _>>().expect("a scan"),
        };
        assert_eq!(found.len(), expected.len(), "{what}: entries, backward: {backward}");
        for ((key, value), (own, stored)) in found.iter().zip(&expected) {
            assert!(key[..] == own[..], "{what}: {} for {}", short(key), short(own));
            assert!(value[..] == stored[..], "{what}: the value of {}", short(key));
        }
        expected.reverse();
    }
}

/// Compares all keyspaces of a database with the model.
fn check_database(db: &Db, expected: &Spaces, now: u64, what: &str) {
    let mut names: Vec<&String> = expected.values().map(|(name, _)| name).collect();
    let mut found = db.keyspaces();
    names.sort();
    found.sort();
    assert!(found.iter().eq(names), "{what}: keyspaces {found:?}");
    for (name, map) in expected.values() {
        let keyspace = db.keyspace(name).expect("a keyspace");
        check_scan(&keyspace, map, &(Bound::Unbounded, Bound::Unbounded), now, what);
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let env = MemEnv::new();
        env.set_now(time(1_000));
        let db = options_of(seed, &mut rng, &env).open(HOME).expect("a new database");
        let model = Spaces::from([(0, ("default".to_string(), Map::new()))]);
        let (keys, snapshots, last) = (keys_of(&mut rng), Vec::new(), VecDeque::new());
        let (follower, feed) = (None, None);
        World { seed, env, keys, db, now: 1_000, model, snapshots, follower, feed, last }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        self.last.push_back(line());
        if self.last.len() > PRINTED {
            self.last.pop_front();
        }
    }

    fn step(&mut self, number: u32) {
        let mut rng =
            Rng::new(self.seed ^ u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kind = rng.below(100);
        match kind {
            0..=44 => self.write(&mut rng, number),
            45..=49 => self.ingest(&mut rng, number),
            50..=55 => self.maintain(&mut rng, number),
            56..=60 => self.snapshot(&mut rng, number),
            61..=63 => self.change_keyspaces(&mut rng, number),
            64..=67 => self.reopen(&mut rng, number),
            68..=71 => self.follow(number),
            72 => self.checkpoint(number),
            73..=74 => {
                self.now += rng.below(50) as u64;
                self.env.set_now(time(self.now));
                let now = self.now;
                self.note(|| format!("{number}: it is {now} ms"));
            }
            75 => self.check_all(),
            76..=79 => self.watch(number),
            _ => self.read(&mut rng, number),
        }
    }

    /// A keyspace, and its number.
    fn keyspace(&self, rng: &mut Rng) -> (u32, Keyspace) {
        let numbers: Vec<u32> = self.model.keys().copied().collect();
        let number = *rng.pick(&numbers);
        (number, self.db.keyspace(&self.model[&number].0).expect("a keyspace"))
    }

    fn map(&mut self, number: u32) -> &mut Map {
        &mut self.model.get_mut(&number).expect("in the model").1
    }

    fn key(&self, rng: &mut Rng) -> Vec<u8> {
        rng.pick(&self.keys).clone()
    }

    fn bounds(&self, rng: &mut Rng) -> Bounds {
        let bound = |rng: &mut Rng| match rng.below(9) {
            0 => Bound::Unbounded,
            1..=4 => Bound::Included(self.key(rng)),
            _ => Bound::Excluded(self.key(rng)),
        };
        (bound(rng), bound(rng))
    }

    fn value(&self, rng: &mut Rng) -> Vec<u8> {
        let bytes = *rng.pick(&[0, 1, 30, 300, 5_000]);
        (0..bytes).map(|n| if n < 30 { rng.next() as u8 } else { n as u8 }).collect()
    }

    /// A batch, a transaction, or a single call.
    fn write(&mut self, rng: &mut Rng, number: u32) {
        let (id, keyspace) = self.keyspace(rng);
        let (how, mut batch) = (rng.below(5), WriteBatch::new());
        let count = if how < 2 { rng.below(12) + 1 } else { 1 };
        let mut changes: Vec<(Bounds, Option<Vec<u8>>)> = Vec::new();
        for _ in 0..count {
            let key = self.key(rng);
            let point = (Bound::Included(key.clone()), Bound::Included(key));
            changes.push(match rng.below(10) {
                0..=5 => (point, Some(self.value(rng))),
                6 | 7 => (point, None),
                _ => (self.bounds(rng), None),
            });
        }
        let described = changes.iter().map(|((from, to), value)| {
            let bytes = value.as_ref().map(Vec::len);
            format!(
                "{:?}..{:?}={bytes:?}",
                from.as_ref().map(|k| short(k)),
                to.as_ref().map(|k| short(k))
            )
        });
        let described = described.collect::<Vec<_>>().join(" ");
        self.note(|| format!("{number}: write {how} to {id}: {described}"));
        let at = rng.chance(15).then(|| self.now + rng.below(60) as u64);
        let mut options = WriteOptions::new().sync(rng.chance(10));
        if let Some(at) = at.filter(|_| how != 1) {
            options = options.expire_at(time(at));
        }
        {
            let mut batch = batch.in_keyspace(&keyspace);
            for (bounds, value) in &changes {
                match (value, &bounds.0) {
                    (Some(value), Bound::Included(key)) => drop(batch.put(key, value)),
                    _ => drop(batch.delete_range(bounds.clone())),
                }
            }
        }
        match how {
            1 => self.transact(&keyspace, &changes),
            _ => self.db.write_with(batch, &options).expect("a write"),
        }
        let map = self.map(id);
        for (bounds, value) in changes {
            map.retain(|key, _| !bounds.contains(key));
            if let (Some(value), Bound::Included(key)) = (value, bounds.0) {
                map.insert(key, (value, at.filter(|_| how != 1)));
            }
        }
    }

    /// Commits changes in a transaction that reads its own writes; first one that is given up.
    fn transact(&self, keyspace: &Keyspace, changes: &[(Bounds, Option<Vec<u8>>)]) {
        let write = |tx: &siftdb::Transaction| -> siftdb::Result<()> {
            let tx = tx.in_keyspace(keyspace);
            for (bounds, value) in changes {
                match (value, &bounds.0) {
                    (Some(value), Bound::Included(key)) => {
                        tx.put(key, value)?;
                        assert!(tx.get(key)?.is_some_and(|found| found[..] == value[..]));
                    }
                    _ => {
                        tx.delete_range(bounds.clone())?;
                        assert_eq!(tx.range(bounds.clone()).count(), 0, "deleted in a transaction");
                    }
                }
            }
            Ok(())
        };
        let given_up = self.db.transaction();
        write(&given_up).expect("writes of a transaction");
        drop(given_up);
        self.db.transact(write).expect("a transaction");
    }

    fn ingest(&mut self, rng: &mut Rng, number: u32) {
        let (id, keyspace) = self.keyspace(rng);
        let count = rng.below(30) + 1;
        let entries = (0..count).map(|_| (self.key(rng), self.value(rng))).collect::<Vec<_>>();
        let sorted: BTreeMap<_, _> = entries.iter().cloned().collect();
        let is_sorted = rng.chance(50);
        self.note(|| format!("{number}: load {count} into {id}, sorted: {is_sorted}"));
        match is_sorted {
            true => keyspace.ingest(sorted.clone()).expect("a load"),
            false => keyspace.ingest_unsorted(entries).expect("a load"),
        };
        self.map(id).extend(sorted.into_iter().map(|(key, value)| (key, (value, None))));
    }

    fn maintain(&mut self, rng: &mut Rng, number: u32) {
        let (id, keyspace) = self.keyspace(rng);
        let (kind, bounds) = (rng.below(4), self.bounds(rng));
        self.note(|| format!("{number}: maintenance {kind} of {id}"));
        match kind {
            0 | 1 => keyspace.flush(),
            2 => keyspace.compact_range(bounds),
            _ => keyspace.compact_range_with(.., &CompactRangeOptions::new().force(true)),
        }
        .expect("maintenance");
    }

    fn snapshot(&mut self, rng: &mut Rng, number: u32) {
        self.note(|| format!("{number}: a snapshot"));
        if self.snapshots.len() < 4 && rng.chance(60) {
            self.snapshots.push((self.db.snapshot(), self.model.clone()));
        } else if !self.snapshots.is_empty() {
            let (snapshot, seen) = self.snapshots.swap_remove(rng.below(self.snapshots.len()));
            self.check_snapshot(&snapshot, &seen);
        }
    }

    /// Compares the keyspaces that are still there.
    fn check_snapshot(&self, snapshot: &Snapshot, seen: &Spaces) {
        for (id, (name, map)) in seen.iter().filter(|(id, _)| self.model.contains_key(id)) {
            let keyspace = self.db.keyspace(name).expect("a keyspace");
            let all = (Bound::Unbounded, Bound::Unbounded);
            let reader = snapshot.in_keyspace(&keyspace);
            check_scan(&reader, map, &all, self.now, &format!("a snapshot of {id}"));
        }
    }

    fn change_keyspaces(&mut self, rng: &mut Rng, number: u32) {
        let name = "n".repeat(*rng.pick(&[1, 2, 255]));
        let there = self.model.iter().find(|(_, (own, _))| *own == name).map(|(id, _)| *id);
        let by_batch = rng.chance(50);
        self.note(|| {
            format!(
                "{number}: keyspace of {} B, there: {there:?}, by batch: {by_batch}",
                name.len()
            )
        });
        let settings = settings_of(rng);
        let (mut batch, mut entries) = (WriteBatch::new(), Map::new());
        match there {
            Some(id) => {
                self.model.remove(&id);
                match by_batch {
                    true => _ = batch.drop_keyspace(&name),
                    false => self.db.drop_keyspace(&name).expect("a keyspace is dropped"),
                }
            }
            None if by_batch => {
                let mut batch = batch.create_keyspace(&name, &settings);
                for _ in 0..rng.below(6) {
                    let (key, value) = (self.key(rng), self.value(rng));
                    batch.put(&key, &value);
                    entries.insert(key, (value, None));
                }
            }
            None => {}
        }
        if by_batch {
            self.write_besides(rng, batch);
        }
        if there.is_none() {
            let keyspace = self.db.keyspace_with(&name, &settings).expect("a keyspace");
            self.model.insert(keyspace.number(), (name, entries));
        }
    }

    /// Writes `batch` with a range delete and a put in a keyspace that stays.
    fn write_besides(&mut self, rng: &mut Rng, mut batch: WriteBatch) {
        let (id, keyspace) = self.keyspace(rng);
        let (bounds, key, value) = (self.bounds(rng), self.key(rng), self.value(rng));
        batch.in_keyspace(&keyspace).delete_range(bounds.clone()).put(&key, &value);
        self.db.write(batch).expect("a batch that changes keyspaces");
        let map = self.map(id);
        map.retain(|key, _| !bounds.contains(key));
        map.insert(key, (value, None));
    }

    fn reopen(&mut self, rng: &mut Rng, number: u32) {
        let is_closed = rng.chance(50);
        self.note(|| format!("{number}: reopen, closed: {is_closed}"));
        self.snapshots.clear();
        // It would keep the directory locked.
        self.feed = None;
        if is_closed {
            self.db.close().expect("a close");
        }
        let options = options_of(self.seed, rng, &self.env);
        // The last handle goes before the next opening; a database elsewhere takes its place.
        self.db = Options::new().env(Arc::new(MemEnv::new())).open("/none").expect("a database");
        self.db = options.open(HOME).expect("opened again");
    }

    /// Refreshes the follower, which has shown the same moment until then.
    fn follow(&mut self, number: u32) {
        self.note(|| format!("{number}: the follower"));
        let options = || Options::new().env(Arc::new(self.env.clone()));
        let open = || options().read_only_log_bytes_max(1 << 40).open_follower(HOME);
        let follower = match self.follower.take() {
            Some((follower, seen)) => {
                check_database(&follower.moment(), &seen, self.now, "a follower, before");
                follower.refresh().expect("a refresh");
                follower
            }
            None => open().expect("a follower"),
        };
        check_database(&follower.moment(), &self.model, self.now, "a follower");
        self.follower = Some((follower, self.model.clone()));
    }

    /// Reads what was committed since the last time, or begins to watch.
    fn watch(&mut self, number: u32) {
        self.note(|| format!("{number}: the watch"));
        match &mut self.feed {
            Some(feed) => feed.check(&self.model, self.now),
            None => self.feed = Some(Feed::new(&self.db, &self.model)),
        }
    }

    fn checkpoint(&mut self, number: u32) {
        self.note(|| format!("{number}: a checkpoint"));
        self.db.checkpoint("/checkpoint").expect("a checkpoint");
        let options = || Options::new().env(Arc::new(self.env.clone()));
        let copy = options().open_read_only("/checkpoint").expect("the checkpoint");
        check_database(&copy, &self.model, self.now, "the checkpoint");
        let report = copy.verify(|_| {}).expect("a verification");
        assert!(report.is_sound(), "the checkpoint: {report}");
    }

    /// A lookup, a batch of them, a scan, or a cursor.
    fn read(&mut self, rng: &mut Rng, number: u32) {
        let (id, keyspace) = self.keyspace(rng);
        let (kind, bounds) = (rng.below(4), self.bounds(rng));
        self.note(|| format!("{number}: read {kind} of {id}"));
        let now = self.now;
        let map = &self.model[&id].1;
        let expected = |key: &[u8]| {
            let stored = map.get(key).filter(|(_, at)| at.is_none_or(|at| at > now));
            stored.map(|(value, _)| &value[..])
        };
        match kind {
            0 => {
                let key = self.key(rng);
                let found = keyspace.get(&key).expect("a lookup");
                assert!(found.as_deref() == expected(&key), "the value of {}", short(&key));
                assert_eq!(keyspace.contains_key(&key).expect("a lookup"), found.is_some());
            }
            1 => {
                let keys: Vec<_> = (0..rng.below(20)).map(|_| self.key(rng)).collect();
                let found = keyspace.multi_get(&keys).expect("a batch of lookups");
                for (key, found) in keys.iter().zip(found) {
                    assert!(found.as_deref() == expected(key), "the value of {}", short(key));
                }
            }
            2 => check_scan(&keyspace, map, &bounds, now, "a range"),
            _ => {
                let (mut cursor, key) = (keyspace.cursor(), self.key(rng));
                let mut keys: Vec<_> = live(map, now).map(|(key, _)| key).collect();
                for _ in 0..rng.below(3) {
                    let range = self.bounds(rng);
                    let within = live(map, now).map(|(key, _)| key);
                    keys = within.filter(|key| range.contains(*key)).collect();
                    let is_there = cursor.seek_range(range).expect("a seek");
                    assert_eq!(is_there, !keys.is_empty(), "a cursor in a range");
                    assert!(cursor.key() == keys.first().map(|key| &key[..]));
                }
                let mut at = keys.partition_point(|own| **own < key);
                let mut is_there = cursor.seek(&key).expect("a seek");
                for _ in 0..10 {
                    assert_eq!(is_there, at < keys.len(), "a cursor at {at}");
                    assert!(cursor.key() == keys.get(at).map(|key| &key[..]), "a cursor at {at}");
                    if !is_there {
                        break;
                    }
                    if rng.chance(40) && at > 0 {
                        at -= 1;
                        is_there = cursor.prev().expect("a step");
                    } else {
                        at += 1;
                        is_there = cursor.next().expect("a step");
                    }
                }
            }
        }
    }

    fn check_all(&mut self) {
        check_database(&self.db, &self.model, self.now, "the database");
        for (snapshot, seen) in &self.snapshots {
            self.check_snapshot(snapshot, seen);
        }
        let report = self.db.verify(|_| {}).expect("a verification");
        assert!(report.is_sound(), "{report}");
    }
}
