//! One thread of a history: runs random operations and records what each found and wrote.
//!
//! A range delete counts as one write of nothing to each key that its range holds. Some puts expire
//! at once, and count as deletions, others never do. A snapshot or iterator counts at the time of
//! its creation, whenever it is read. Transactions are in `recorded_transactions`.
//!
//! The keys are those of three keyspaces. One thread drops the third and creates it again. An
//! operation that it refuses must lie at a moment when it was dropped and has no effect.

use super::linearizability::{Action, Entries, Held, KEYS, Operation};
use super::ranges::{KeyRange, any_range, holds, is_empty};
use super::recorded_transactions::Refusal;
use super::rng::Rng;
use siftdb::{
    Db, Error, FilterRebuild, Iter, Keyspace, Result, Snapshot, Value, WriteBatch, WriteOptions,
};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The keys: first those of `default`, then those of `OTHER`, then those of `PASSING`, each in
/// order. Some occur in several keyspaces.
pub const NAMES: [&[u8]; 11] =
    [b"", b"a", b"a\0", b"a\xff", &[b'k'; 40], b"z", b"", b"a", b"z", b"a", b"z"];

/// The keys of each keyspace.
pub const SPACES: [Range<usize>; 3] = [0..6, 6..9, 9..11];

/// The keyspace that stays.
pub const OTHER: &str = "other";

/// The keyspace that is dropped and created again.
pub const PASSING: &str = "passing";

/// For the checker the existence of `PASSING` is a key too: one for each creation, used
/// alternately.
pub const LIVES: Range<usize> = 11..KEYS;

/// Creations of `PASSING` in one history: those and the one before have keys of their own.
pub const CREATIONS: usize = KEYS - 11 - 1;

/// Handles of `PASSING` with the number of the creation that each is of; the last may be there.
pub type Lives = Vec<(usize, Keyspace)>;

/// One thread and what it did.
pub struct Recorder<'a> {
    pub db: &'a Db,
    pub other: &'a Keyspace,
    pub passing: &'a Mutex<Lives>,
    pub clock: &'a AtomicU64,
    pub thread: usize,
    pub rng: Rng,
    /// What the next put writes.
    pub number: u32,
    /// Operations that answered `KeyspaceDropped`.
    pub refused: usize,
    pub done: Vec<Operation>,
    /// Transactions that met a conflict.
    pub conflicts: Vec<Refusal>,
    /// How many transactions that write are also recorded as reads of their begin.
    pub begins: usize,
}

/// A keyspace with its keys. If it is of `PASSING`, `life` is the key that says if it exists.
#[derive(Clone)]
pub struct Space {
    pub handle: Keyspace,
    pub keys: Range<usize>,
    pub life: Option<usize>,
}

impl Space {
    /// What an operation finds that was not refused.
    pub fn exists(&self) -> Entries {
        self.life.map(|life| (life, Some(1))).into_iter().collect()
    }

    /// What was found: `entries` in a keyspace that exists, or that it was dropped.
    pub fn found(&self, entries: Result<Entries>) -> Entries {
        match (entries, self.life) {
            (Err(Error::KeyspaceDropped { .. }), Some(life)) => vec![(life, None)],
            (entries, _) => [self.exists(), entries.unwrap()].concat(),
        }
    }
}

/// A snapshot or iterator. It shows the moment of its creation.
// There are few of them.
#[allow(clippy::large_enum_variant)]
enum Moment {
    /// With handles of all keyspaces that were taken before it.
    Snapshot(Snapshot, [Space; 3]),
    Iter {
        iter: Box<Iter>,
        space: Space,
        front: usize,
        back: usize,
    },
}

impl Recorder<'_> {
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Runs `operation` between two time stamps.
    pub fn timed<T>(&self, operation: impl FnOnce(&Db) -> T) -> (u64, T, u64) {
        let begun = self.now();
        let result = operation(self.db);
        (begun, result, self.now())
    }

    pub fn note(&mut self, name: &'static str, begun: u64, ended: u64, action: Action) {
        self.done.push(Operation { thread: self.thread, name, begun, ended, action });
    }

    /// All keyspaces. The handle of `PASSING` is sometimes an old one.
    pub fn spaces(&mut self) -> [Space; 3] {
        let lives = self.passing.lock().unwrap();
        let at = if self.rng.chance(80) { lives.len() - 1 } else { self.rng.below(lives.len()) };
        let (number, passing) = &lives[at];
        let life = Some(LIVES.start + number % LIVES.len());
        let handles = [&**self.db, self.other, passing];
        let mut spaces = handles.into_iter().zip(SPACES).zip([None, None, life]);
        std::array::from_fn(|_| {
            let ((handle, keys), life) = spaces.next().unwrap();
            Space { handle: handle.clone(), keys, life }
        })
    }

    pub fn space(&mut self) -> Space {
        let place = *self.rng.pick(&[0, 0, 1, 2]);
        self.spaces()[place].clone()
    }

    pub fn read(
        &mut self,
        name: &'static str,
        space: &Space,
        operation: impl FnOnce(&Keyspace) -> Result<Entries>,
    ) {
        let (begun, entries, ended) = self.timed(|_| operation(&space.handle));
        self.refused += usize::from(entries.is_err());
        self.note(name, begun, ended, Action::Read(space.found(entries)));
    }

    /// A write of `written`, which may be refused if something of it is for the keyspace of `life`.
    pub fn write(
        &mut self,
        name: &'static str,
        life: Option<usize>,
        written: Entries,
        operation: impl FnOnce(&Db) -> Result<()>,
    ) {
        let (begun, result, ended) = self.timed(operation);
        let action = match (result, life) {
            (Ok(()), None) => Action::Write(written),
            (Ok(()), Some(life)) => Action::Change { found: vec![(life, Some(1))], written },
            (Err(Error::KeyspaceDropped { .. }), Some(life)) => {
                self.refused += 1;
                Action::Read(vec![(life, None)])
            }
            (Err(error), _) => panic!("{error}"),
        };
        self.note(name, begun, ended, action);
    }

    /// Runs that many operations.
    pub fn run(&mut self, operations: usize) {
        let mut held: Vec<(usize, Moment)> = Vec::new();
        let mut creations = 0;
        for _ in 0..operations {
            if self.thread == 0 && creations < CREATIONS && self.rng.chance(6) {
                self.renew();
                creations += 1;
            }
            match self.rng.below(100) {
                0..=27 => self.write_one(),
                28..=36 => self.write_batch(),
                37 | 38 => self.load(),
                39..=57 => self.read_some(),
                58..=73 => self.transact(),
                74..=78 => self.update_one(),
                79..=83 => {
                    let moment = self.take_moment();
                    held.push(moment);
                }
                84..=94 if !held.is_empty() => {
                    let place = self.rng.below(held.len());
                    self.look(&mut held[place]);
                    if self.rng.chance(30) {
                        held.swap_remove(place);
                    }
                }
                95 | 96 => self.db.flush().unwrap(),
                97 => {
                    let Space { handle, life, .. } = self.space();
                    let result = handle.compact_range(..);
                    let dropped = matches!(result, Err(Error::KeyspaceDropped { .. }));
                    assert!(result.is_ok() || dropped && life.is_some(), "{result:?}");
                }
                98 => drop(self.db.rebuild_filters(FilterRebuild::All).unwrap()),
                _ if self.rng.chance(50) => self.db.sync_ticket().wait().unwrap(),
                _ => self.db.sync().unwrap(),
            }
        }
        held.iter_mut().for_each(|moment| self.look(moment));
    }

    /// Drops `PASSING` and creates it again.
    fn renew(&mut self) {
        let number = self.passing.lock().unwrap().last().unwrap().0;
        let life = |number: usize| LIVES.start + number % LIVES.len();
        let empty: Entries = SPACES[2].clone().map(|key| (key, None)).collect();
        let dropped = [vec![(life(number), None)], empty.clone()].concat();
        self.write("drop", None, dropped, |db| db.drop_keyspace(PASSING));
        for _ in 0..self.rng.below(3) {
            self.write_batch();
            self.read_some();
        }
        let (begun, passing, ended) = self.timed(|db| db.keyspace(PASSING).unwrap());
        let created = [vec![(life(number + 1), Some(1))], empty].concat();
        self.note("create", begun, ended, Action::Write(created));
        self.passing.lock().unwrap().push((number + 1, passing));
    }

    pub fn read_everything(&mut self) {
        let newest = self.passing.lock().unwrap().last().unwrap().clone();
        *self.passing.lock().unwrap() = vec![newest];
        let spaces = self.spaces();
        let (begun, snapshot, ended) = self.timed(|db| db.snapshot());
        let found = spaces.iter().flat_map(|space| {
            let iter = snapshot.in_keyspace(&space.handle).iter();
            space.found(walked(iter, &space.keys, usize::MAX, 0))
        });
        let found = found.collect();
        self.note("final scan", begun, ended, Action::Read(found));
    }

    pub fn take_number(&mut self) -> u32 {
        self.number += 1;
        self.number - 1
    }

    pub fn key(&mut self, space: &Space) -> usize {
        space.keys.start + self.rng.below(space.keys.len())
    }

    fn write_one(&mut self) {
        let space = self.space();
        let (key, life, handle) = (self.key(&space), space.life, &space.handle);
        match self.rng.below(100) {
            0..=17 => self.write("delete", life, vec![(key, None)], |_| handle.delete(NAMES[key])),
            18..=33 => {
                let (range, deleted) = self.range(&space);
                // No write, so nothing refuses it.
                let life = life.filter(|_| !is_empty(&range));
                self.write("delete_range", life, deleted, |_| handle.delete_range(range));
            }
            34..=41 => {
                let (value, options) = (value_of(self.take_number()), expiring(0));
                let put = |_: &Db| handle.put_with(NAMES[key], value, &options);
                self.write("expired put", life, vec![(key, None)], put);
            }
            kind => {
                let (number, options) = (self.take_number(), WriteOptions::new());
                let options = if kind < 55 { expiring(u64::MAX) } else { options };
                let put = |_: &Db| handle.put_with(NAMES[key], value_of(number), &options);
                self.write("put", life, vec![(key, Some(number))], put);
            }
        }
    }

    /// A random range in a keyspace, and the keys that a delete of it leaves without a value.
    pub fn range(&mut self, space: &Space) -> (KeyRange, Entries) {
        let names: Vec<Vec<u8>> = NAMES[space.keys.clone()].iter().map(|n| n.to_vec()).collect();
        let range = any_range(&mut self.rng, &names);
        let deleted = space.keys.clone().filter(|key| holds(&range, NAMES[*key]));
        let deleted = deleted.map(|key| (key, None)).collect();
        (range, deleted)
    }

    fn write_batch(&mut self) {
        let (mut batch, mut life) = (WriteBatch::new(), None);
        let spaces = self.spaces();
        let mut entries = Entries::new();
        for _ in 0..2 + self.rng.below(3) {
            let space = &spaces[*self.rng.pick(&[0, 0, 1, 1, 2])];
            let key = self.key(space);
            let bytes = batch.bytes();
            let mut part = batch.in_keyspace(&space.handle);
            match self.rng.below(100) {
                0..=14 => {
                    let (range, deleted) = self.range(space);
                    part.delete_range(range);
                    entries.extend(deleted);
                }
                15..=29 => {
                    part.delete(NAMES[key]);
                    entries.push((key, None));
                }
                _ => {
                    let number = self.take_number();
                    part.put(NAMES[key], value_of(number));
                    entries.push((key, Some(number)));
                }
            }
            // An empty range adds nothing, so it is not refused either.
            if batch.bytes() > bytes {
                life = life.or(space.life);
            }
        }
        let mut options = WriteOptions::new();
        if self.rng.chance(20) {
            options = expiring(u64::MAX);
        } else if self.rng.chance(6) {
            options = expiring(0);
            entries.iter_mut().for_each(|(_, held)| *held = None);
        }
        let options = options.sync(self.rng.chance(20));
        self.write("batch", life, entries, |db| db.write_with(batch, &options));
    }

    /// A bulk load of some keys of one keyspace.
    fn load(&mut self) {
        let Space { handle, keys, life } = self.space();
        let first = self.rng.below(keys.len());
        let mut entries = Entries::new();
        for key in keys.skip(first) {
            if entries.is_empty() || self.rng.chance(60) {
                entries.push((key, Some(self.take_number())));
            }
        }
        let loaded = entries.clone().into_iter();
        let loaded = loaded.map(|(key, n)| (NAMES[key], value_of(n.unwrap_or_default())));
        match self.rng.chance(50) {
            true => self.write("ingest", life, entries, |_| handle.ingest(loaded).map(drop)),
            false => self.write("ingest_unsorted", life, entries, |_| {
                handle.ingest_unsorted(loaded.rev()).map(drop)
            }),
        }
    }

    fn read_some(&mut self) {
        let space = self.space();
        let (key, keys) = (self.key(&space), space.keys.clone());
        let name = NAMES[key];
        match self.rng.below(10) {
            0..=3 => {
                self.read("get", &space, |keyspace| Ok(vec![(key, held(keyspace.get(name)?))]))
            }
            // The fourth in a row may be answered without a block.
            4 => self.read("get", &space, |keyspace| {
                (0..3).try_for_each(|_| keyspace.get(name).map(drop))?;
                Ok(vec![(key, held(keyspace.get(name)?))])
            }),
            5 | 6 => {
                let keys = [key, self.key(&space), self.key(&space)];
                self.read("multi_get", &space, |keyspace| {
                    let found = keyspace.multi_get(keys.map(|key| NAMES[key]))?;
                    Ok(keys.into_iter().zip(found.into_iter().map(held)).collect())
                });
            }
            7 => self.read("may_contain", &space, |keyspace| {
                Ok(if keyspace.may_contain(name)? { Entries::new() } else { vec![(key, None)] })
            }),
            8 => {
                self.read("first, by scan", &space, |keyspace| walked(keyspace.iter(), &keys, 1, 0))
            }
            _ => self.read("scan from behind", &space, |keyspace| {
                walked(keyspace.iter(), &keys, 0, usize::MAX)
            }),
        }
    }

    /// Creates a snapshot or iterator; returns its index among the operations.
    fn take_moment(&mut self) -> (usize, Moment) {
        let (begun, moment, name, ended) = if self.rng.chance(60) {
            let spaces = self.spaces();
            let from = spaces[self.rng.below(2)].handle.clone();
            let (begun, snapshot, ended) = self.timed(|_| from.snapshot());
            (begun, Moment::Snapshot(snapshot, spaces), "snapshot", ended)
        } else {
            let space = self.space();
            let (begun, iter, ended) = self.timed(|_| Box::new(space.handle.iter()));
            let Range { start: front, end: back } = space.keys;
            (begun, Moment::Iter { iter, space, front, back }, "iterator", ended)
        };
        self.note(name, begun, ended, Action::Read(Entries::new()));
        (self.done.len() - 1, moment)
    }

    /// Reads from a snapshot or iterator. What it finds joins the earlier reads of that moment.
    fn look(&mut self, (place, moment): &mut (usize, Moment)) {
        let mut found = match moment {
            Moment::Iter { iter, space, front, back } => {
                let mut found = Entries::new();
                let steps = (0..1 + self.rng.below(3)).try_for_each(|_| {
                    match self.rng.chance(50) {
                        true => *front = step(iter.next(), *front, *back, true, &mut found)?,
                        false => *back = step(iter.next_back(), *front, *back, false, &mut found)?,
                    }
                    Ok(())
                });
                // A refused iterator gives its error once, and then nothing.
                if steps.is_err() {
                    *front = *back;
                    space.found(steps.map(|()| found))
                } else if *front == *back && found.is_empty() {
                    found
                } else {
                    space.found(Ok(found))
                }
            }
            Moment::Snapshot(snapshot, spaces) => {
                let space = &spaces[self.rng.below(3)];
                let (snapshot, key) = (snapshot.in_keyspace(&space.handle), self.key(space));
                space.found(match self.rng.below(3) {
                    0 => walked(snapshot.iter(), &space.keys, usize::MAX, 0),
                    1 => walked(snapshot.range(&b""[..]..), &space.keys, 2, 1),
                    _ => snapshot.get(NAMES[key]).map(|value| vec![(key, held(value))]),
                })
            }
        };
        if let Action::Read(entries) = &mut self.done[*place].action {
            entries.append(&mut found);
        }
    }
}

/// Reads up to that many entries from each end of a keyspace that has these keys.
pub fn walked(
    mut iter: Iter,
    keys: &Range<usize>,
    forwards: usize,
    backwards: usize,
) -> Result<Entries> {
    let (mut front, mut back, mut found) = (keys.start, keys.end, Entries::new());
    for _ in 0..forwards.min(keys.len() + 1) {
        front = step(iter.next(), front, back, true, &mut found)?;
    }
    for _ in 0..backwards.min(keys.len() + 1) {
        back = step(iter.next_back(), front, back, false, &mut found)?;
    }
    Ok(found)
}

/// One step of a scan that has the keys `front..back` left. Adds the key that it found, and those
/// that it passed by, which are absent. Returns the new end of that side.
fn step(
    item: Option<Result<(siftdb::Key, Value)>>,
    front: usize,
    back: usize,
    forwards: bool,
    found: &mut Entries,
) -> Result<usize> {
    let Some(item) = item else {
        found.extend((front..back).map(|key| (key, None)));
        return Ok(if forwards { back } else { front });
    };
    let (key, value) = item?;
    let at = NAMES[front..back].iter().position(|name| key == **name);
    let at = front + at.unwrap_or_else(|| panic!("{key:?} is not within {front}..{back}"));
    found.push((at, held(Some(value))));
    let passed = if forwards { front..at } else { at + 1..back };
    found.extend(passed.map(|key| (key, None)));
    Ok(if forwards { at + 1 } else { at })
}

/// Of puts that live that many seconds: none, or without end.
pub fn expiring(seconds: u64) -> WriteOptions {
    WriteOptions::new().expire_after(Duration::from_secs(seconds))
}

/// Sizes of values for every way to store them. About twenty values fill a memtable.
const SIZES: [usize; 7] = [4, 24, 40, 300, 1500, 6000, 12_000];

pub fn value_of(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(SIZES[number as usize % SIZES.len()] / 4)
}

/// The number in a value, which must be whole.
pub fn held(value: Option<Value>) -> Held {
    let value = value?;
    let number = u32::from_le_bytes(value[..4].try_into().unwrap());
    assert!(value == *value_of(number), "value {number} is not what was written");
    Some(number)
}
