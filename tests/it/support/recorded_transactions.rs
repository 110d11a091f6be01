//! Transactions in a history, and updates of one key, which are transactions too.
//!
//! A transaction that was committed found and wrote what it did at one moment of its commit. It
//! also found that when it began, because nothing of it was written since. A transaction without
//! writes, and one that met a conflict, read at the moment of its begin. Reads of its own writes
//! are compared here and are not part of the history.

use super::linearizability::{Action, Entries, Held, Operation};
use super::ranges::is_empty;
use super::recorder::{NAMES, Recorder, Space, expiring, held, value_of, walked};
use siftdb::{Error, Result, Savepoint, Transaction, WriteOptions};
use std::collections::{BTreeMap, BTreeSet};

/// A transaction that met a conflict: something that it read was written in the meantime.
#[derive(Clone, Debug)]
pub struct Refusal {
    begun: u64,
    ended: u64,
    read: BTreeSet<usize>,
    /// It read ranges, where a range delete may meet it between the keys of the history.
    scanned: bool,
}

impl Refusal {
    /// True if one of the operations, or of those before them, may be why.
    pub fn has_cause(&self, operations: &[Operation]) -> bool {
        operations.iter().any(|one| {
            let (Action::Write(written) | Action::Change { written, .. }) = &one.action else {
                return false;
            };
            let deletes_ranges = ["delete_range", "batch", "transaction"].contains(&one.name);
            one.begun < self.ended
                && one.ended > self.begun
                && (written.iter().any(|(key, _)| self.read.contains(key))
                    || (self.scanned && deletes_ranges))
        })
    }
}

/// What a transaction has done so far.
#[derive(Default)]
struct Progress {
    /// What it found of others.
    found: Entries,
    /// Keys that it read, and for how they may conflict.
    read: BTreeSet<usize>,
    scanned: bool,
    writes: Writes,
    savepoints: Vec<(Savepoint, Writes)>,
}

/// What it has written.
#[derive(Clone, Default)]
struct Writes {
    held: BTreeMap<usize, Held>,
    /// Some of them, perhaps deletes of ranges that hold none of the keys.
    any: bool,
    /// If it wrote to `PASSING`, the key that says whether that exists.
    life: Option<usize>,
}

impl Progress {
    /// What a read found: of keys, and so of the existence of their keyspace. Reads of own writes
    /// alone, and of nothing, are no reads of the keyspace.
    fn add(&mut self, space: &Space, entries: Result<Entries>) {
        let entries = match entries {
            Ok(entries) => entries,
            refused => return self.found.extend(space.found(refused)),
        };
        for (key, held) in entries {
            match self.writes.held.get(&key) {
                Some(own) => assert_eq!(*own, held, "its own write of {key}"),
                None => {
                    self.found.push((key, held));
                    self.found.extend(space.exists());
                }
            }
            self.add_key(space, key);
        }
    }

    /// A key that counts as read, whatever was found.
    fn add_key(&mut self, space: &Space, key: usize) {
        self.read.insert(key);
        self.read.extend(space.life);
    }

    /// What a write answered; false if the keyspace was dropped before the transaction began.
    fn is_written(&mut self, space: &Space, result: Result<()>) -> bool {
        match (result, space.life) {
            (Ok(()), life) => {
                self.writes.life = self.writes.life.or(life);
                self.writes.any = true;
            }
            (Err(Error::KeyspaceDropped { .. }), Some(life)) => {
                self.found.push((life, None));
                return false;
            }
            (Err(error), _) => panic!("{error}"),
        }
        true
    }
}

impl Recorder<'_> {
    /// Runs and commits a transaction, or drops it.
    pub fn transact(&mut self) {
        let spaces = self.spaces();
        let (begun, tx, begin_ended) = self.timed(|db| db.transaction());
        let mut progress = Progress::default();
        for _ in 0..1 + self.rng.below(6) {
            let space = &spaces[*self.rng.pick(&[0, 0, 1, 2])];
            match self.rng.below(100) {
                0..=54 => self.read_in(&tx, space, &mut progress),
                55..=89 => self.write_in(&tx, space, &mut progress),
                90..=94 => progress.savepoints.push((tx.savepoint(), progress.writes.clone())),
                _ if !progress.savepoints.is_empty() => {
                    let place = self.rng.below(progress.savepoints.len());
                    progress.savepoints.truncate(place + 1);
                    let (savepoint, writes) = &progress.savepoints[place];
                    tx.rollback_to(savepoint).unwrap();
                    progress.writes = writes.clone();
                }
                _ => std::thread::yield_now(),
            }
        }
        let at_begin = Action::Read(progress.found.clone());
        let Writes { held, any, life } = progress.writes;
        if self.rng.chance(8) {
            drop(tx);
            return self.note("rolled back", begun, begin_ended, at_begin);
        }
        let mut written: Entries = held.into_iter().collect();
        let mut options = WriteOptions::new().sync(self.rng.chance(10));
        if self.rng.chance(10) {
            options = expiring(0);
            written.iter_mut().for_each(|(_, held)| *held = None);
        }
        let (commit_begun, result, ended) = self.timed(|_| tx.commit_with(&options));
        match result {
            Ok(()) if !any => self.note("reads", begun, begin_ended, at_begin),
            Ok(()) => {
                if self.begins > 0 {
                    self.begins -= 1;
                    self.note("its begin", begun, begin_ended, at_begin);
                }
                let mut found = progress.found;
                found.extend(life.map(|life| (life, Some(1))));
                self.note("transaction", commit_begun, ended, Action::Change { found, written });
            }
            Err(Error::Conflict { .. }) => {
                self.note("conflict", begun, begin_ended, at_begin);
                let (read, scanned) = (progress.read, progress.scanned);
                self.conflicts.push(Refusal { begun, ended, read, scanned });
            }
            Err(Error::KeyspaceDropped { .. }) if life.is_some() => {
                self.refused += 1;
                if self.begins > 0 {
                    self.begins -= 1;
                    self.note("its begin", begun, begin_ended, at_begin);
                }
                let gone = life.map(|life| (life, None)).into_iter().collect();
                self.note("refused", commit_begun, ended, Action::Read(gone));
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn read_in(&mut self, tx: &Transaction, space: &Space, progress: &mut Progress) {
        let part = tx.in_keyspace(&space.handle);
        let (key, keys) = (self.key(space), space.keys.clone());
        let is_own = |progress: &Progress, key| progress.writes.held.contains_key(&key);
        match self.rng.below(10) {
            0..=3 => {
                let found = part.get(NAMES[key]).map(|value| vec![(key, held(value))]);
                progress.add(space, found);
            }
            4 => {
                let keys = [key, self.key(space)];
                let found = part.multi_get(keys.map(|key| NAMES[key]));
                let found = found.map(|all| keys.into_iter().zip(all.into_iter().map(held)));
                progress.add(space, found.map(Iterator::collect));
            }
            5 => match part.set_read_for_update(NAMES[key]) {
                Ok(()) => {
                    progress.add_key(space, key);
                    progress.found.extend(space.exists());
                }
                Err(error) => progress.add(space, Err(error)),
            },
            6 => {
                let found = part.contains_key(NAMES[key]);
                let absent = found.map(|there| match there || is_own(progress, key) {
                    true => Entries::new(),
                    false => vec![(key, None)],
                });
                progress.add_key(space, key);
                progress.add(space, absent);
            }
            kind => {
                progress.scanned = true;
                let last = key + self.rng.below(keys.end - key);
                let (forwards, backwards) = *self.rng.pick(&[
                    (1, 0),
                    (0, 1),
                    (2, 0),
                    (0, 2),
                    (1, 1),
                    (usize::MAX, 0),
                    (0, usize::MAX),
                ]);
                let (keys, iter) = match kind {
                    7 => (keys, part.iter()),
                    8 => (key..last, part.range(NAMES[key]..NAMES[last])),
                    _ => (key..last + 1, part.range(NAMES[key]..=NAMES[last])),
                };
                progress.add(space, walked(iter, &keys, forwards, backwards));
            }
        }
    }

    fn write_in(&mut self, tx: &Transaction, space: &Space, progress: &mut Progress) {
        let part = tx.in_keyspace(&space.handle);
        let key = self.key(space);
        match self.rng.below(100) {
            0..=19 => {
                if progress.is_written(space, part.delete(NAMES[key])) {
                    progress.writes.held.insert(key, None);
                }
            }
            20..=34 => {
                let (range, deleted) = self.range(space);
                // No write, so nothing refuses it.
                let is_write = !is_empty(&range);
                let result = part.delete_range(range);
                if is_write && progress.is_written(space, result) {
                    progress.writes.held.extend(deleted);
                }
            }
            _ => {
                let number = self.take_number();
                if progress.is_written(space, part.put(NAMES[key], value_of(number))) {
                    progress.writes.held.insert(key, Some(number));
                }
            }
        }
    }

    /// Changes one key depending on its value.
    pub fn update_one(&mut self) {
        let space = self.space();
        let (key, handle) = (self.key(&space), space.handle.clone());
        let (name, number) = (NAMES[key], self.take_number());
        let new = (!self.rng.chance(20)).then_some(number);
        let bytes = new.map(value_of);
        let written = vec![(key, new)];
        let (begun, (result, written), ended) = match self.rng.below(3) {
            0 => self.timed(|_| {
                let old = handle.update(name, |_| bytes.clone());
                // It does not delete what is absent.
                (old.map(|old| (key, held(old))), written)
            }),
            1 => self.timed(|_| {
                let is_written = handle.put_if_absent(name, value_of(number));
                match is_written {
                    Ok(true) => (Ok((key, None)), vec![(key, Some(number))]),
                    // Something is there; what, is not known.
                    Ok(false) => (Ok((usize::MAX, None)), Entries::new()),
                    Err(error) => (Err(error), Entries::new()),
                }
            }),
            _ => self.timed(|_| {
                let expected = handle.get(name).ok().flatten();
                match handle.compare_exchange(name, expected.as_deref(), bytes.as_deref()) {
                    Ok(Ok(())) => (Ok((key, held(expected))), written),
                    Ok(Err(other)) => (Ok((key, held(other))), Entries::new()),
                    Err(error) => (Err(error), Entries::new()),
                }
            }),
        };
        self.refused += usize::from(result.is_err());
        let is_refused = result.is_err();
        let mut found = space.found(result.map(|entry| vec![entry]));
        found.retain(|(key, _)| *key != usize::MAX);
        let action = match written.is_empty() || is_refused {
            true => Action::Read(found),
            false => Action::Change { found, written },
        };
        self.note("update", begun, ended, action);
    }
}
