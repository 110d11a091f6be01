//! [`Mirror`]: a copy of a keyspace that is made of the changes of a watch; and writes to follow.

use super::data::key;
use super::rng::Rng;
use super::stores::scan;
use siftdb::{Change, ChangedEntry, Db, Error, Keyspace, Result, Watch, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Entries, with the time of those that expire.
type Expiring = BTreeMap<Vec<u8>, (Vec<u8>, Option<SystemTime>)>;

/// All entries at one read point, and its sequence.
fn everything(keyspace: &Keyspace) -> Result<(Map, u64)> {
    let snapshot = keyspace.snapshot();
    let entries = snapshot.iter();
    let entry = |(key, value): (siftdb::Key, siftdb::Value)| (key.into_vec(), value.into_vec());
    let map = entries.map(|found| found.map(entry)).collect::<Result<_>>()?;
    Ok((map, snapshot.last_sequence()))
}

/// What is wrong with the changes of a database from the first one on, read at `now` while nobody
/// writes; nothing if they are gone.
pub fn contradiction(db: &Db, now: SystemTime) -> Result<Option<String>> {
    let mut watch = match db.watch_from(1) {
        Err(Error::ChangesGone { .. }) => return Ok(None),
        watch => watch?,
    };
    let mut copies: BTreeMap<u32, Expiring> = BTreeMap::new();
    let is_in = |key: &Vec<u8>, start: &Vec<u8>, end: &Option<Vec<u8>>| {
        key >= start && end.as_ref().is_none_or(|end| key < end)
    };
    loop {
        let change = match watch.next_timeout(Duration::ZERO) {
            Ok(None) => break,
            // A crash took part of a log whose writes were in tables already.
            Err(Error::ChangesGone { .. }) => return Ok(None),
            Ok(Some(change)) => change,
            Err(error) => return Err(error),
        };
        let copy = copies.entry(change.keyspace_number).or_default();
        match change.entry {
            ChangedEntry::Put { key, value, expires_at } => {
                drop(copy.insert(key, (value, expires_at)));
            }
            ChangedEntry::Delete { key } => drop(copy.remove(&key)),
            ChangedEntry::DeleteRange { start, end } => {
                copy.retain(|key, _| !is_in(key, &start, &end));
            }
            ChangedEntry::Load { start, end } => {
                copy.retain(|key, _| !is_in(key, &start, &end));
                let Some(name) = change.keyspace else { continue };
                let loaded = scan(&db.keyspace(&name)?)?.into_iter();
                let loaded = loaded.filter(|(key, _)| is_in(key, &start, &end));
                copy.extend(loaded.map(|(key, value)| (key, (value, None))));
            }
            ChangedEntry::DropKeyspace => drop(copies.remove(&change.keyspace_number)),
            other => panic!("{other:?}"),
        }
    }
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        let copy = copies.remove(&keyspace.number()).unwrap_or_default();
        let is_alive = |expires_at: &Option<SystemTime>| expires_at.is_none_or(|at| at > now);
        let copy = copy.into_iter().filter(|(_, (_, expires_at))| is_alive(expires_at));
        let copy: Map = copy.map(|(key, (value, _))| (key, value)).collect();
        let there = scan(&keyspace)?;
        if copy != there {
            let differs = |key: &&Vec<u8>| copy.get(*key) != there.get(*key);
            let first = copy.keys().chain(there.keys()).find(differs);
            return Ok(Some(format!("{name}: the changes of {first:?}")));
        }
    }
    Ok(copies.keys().next().map(|number| format!("keyspace {number} is not there, nor dropped")))
}

/// A copy of a keyspace, as far as its watch was read.
pub struct Mirror {
    /// `None` while its database is not open.
    watch: Option<Watch>,
    pub map: Map,
    /// The sequence of the last change.
    pub last: u64,
    /// How often changes were gone.
    pub lags: usize,
    /// How many changes came as tables.
    pub loads: usize,
}

impl Mirror {
    /// Everything that is there, and a watch of what comes.
    pub fn new(keyspace: &Keyspace) -> Result<Self> {
        let watch = keyspace.watch(..)?;
        let (map, last) = everything(keyspace)?;
        Ok(Mirror { watch: Some(watch), map, last, lags: 0, loads: 0 })
    }

    /// Reads what a database had committed that is closed by now. What came as tables, or is gone,
    /// cannot be read any more, so the next opening continues there.
    pub fn end(&mut self) {
        let Some(mut watch) = self.watch.take() else { return };
        for change in watch.by_ref() {
            let change = match change {
                Err(Error::ChangesGone { .. }) => return,
                change => change.unwrap(),
            };
            if matches!(change.entry, ChangedEntry::Load { .. }) && change.sequence > self.last {
                return;
            }
            self.apply_entry(change, || unreachable!("no load")).unwrap();
        }
        assert!(watch.next().is_none());
    }

    /// Continues with the next opening of the database.
    pub fn resume(&mut self, keyspace: &Keyspace) -> Result<()> {
        match keyspace.watch_from(.., self.last + 1) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                self.watch = Some(keyspace.watch(..)?);
                self.apply(keyspace, Err(error))?;
            }
        }
        Ok(())
    }

    /// Reads what was committed before this call, all of it.
    pub fn catch_up(&mut self, keyspace: &Keyspace) -> Result<()> {
        self.follow(keyspace, Duration::ZERO)
    }

    /// Reads until nothing is committed for that long.
    pub fn follow(&mut self, keyspace: &Keyspace, pause: Duration) -> Result<()> {
        loop {
            match self.watch().next_timeout(pause) {
                Ok(None) => return Ok(()),
                Ok(Some(change)) => self.apply(keyspace, Ok(change))?,
                Err(error) => self.apply(keyspace, Err(error))?,
            }
        }
    }

    /// Applies a change of the watch. What came as tables, or is gone, is read again.
    pub fn apply(&mut self, keyspace: &Keyspace, change: Result<Change>) -> Result<()> {
        let change = match change {
            Ok(change) => change,
            Err(Error::ChangesGone { from, first, .. }) => {
                assert!(from <= first, "no change is gone: {from} to {first}");
                self.lags += 1;
                (self.map, self.last) = everything(keyspace)?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        assert_eq!(change.keyspace.as_deref(), Some(keyspace.name()));
        assert_eq!(change.keyspace_number, keyspace.number());
        self.apply_entry(change, || scan(keyspace))
    }

    fn apply_entry(&mut self, change: Change, scan: impl FnOnce() -> Result<Map>) -> Result<()> {
        // Those that were read with the whole keyspace come again after it.
        let is_new = change.sequence > self.last;
        self.last = self.last.max(change.sequence);
        let is_in = |key: &Vec<u8>, start: &Vec<u8>, end: &Option<Vec<u8>>| {
            key >= start && end.as_ref().is_none_or(|end| key < end)
        };
        match change.entry {
            _ if !is_new => {}
            ChangedEntry::Put { key, expires_at, .. }
                if expires_at.is_some_and(|at| at <= SystemTime::now()) =>
            {
                self.map.remove(&key);
            }
            ChangedEntry::Put { key, value, .. } => drop(self.map.insert(key, value)),
            ChangedEntry::Delete { key } => drop(self.map.remove(&key)),
            ChangedEntry::DeleteRange { start, end } => {
                self.map.retain(|key, _| !is_in(key, &start, &end));
            }
            ChangedEntry::Load { start, end } => {
                self.loads += 1;
                self.map.retain(|key, _| !is_in(key, &start, &end));
                let loaded = scan()?.into_iter().filter(|(key, _)| is_in(key, &start, &end));
                self.map.extend(loaded);
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    /// The watch itself.
    pub fn watch(&mut self) -> &mut Watch {
        self.watch.as_mut().expect("its database is open")
    }
}

/// Writes a batch of puts, deletions and range deletes to one of the keyspaces.
pub fn write_some(db: &Db, rng: &mut Rng, names: &[&str]) {
    let keyspace = db.keyspace(names[rng.below(names.len())]).unwrap();
    let mut batch = WriteBatch::new();
    for _ in 0..1 + rng.below(20) {
        let number = rng.below(300);
        let mut part = batch.in_keyspace(&keyspace);
        match rng.below(10) {
            0 => drop(part.delete(key(number))),
            1 => drop(part.delete_range(key(number)..key(number + rng.below(40)))),
            _ => drop(part.put(key(number), vec![number as u8; rng.below(900)])),
        }
    }
    db.write_with(batch, &WriteOptions::new().sync(rng.chance(20))).unwrap();
}
