//! A store on a disk that can lose power, the work of its writers, and the checks after a crash.
//!
//! A [`Run`] records what it writes and what is acknowledged. [`Run::recover`] opens the disk that
//! a crash left, compares it with the record, and returns a run that continues from there.

use super::data::bytes;
use super::history::{
    Change, Changes, Found, GENERATION, History, Moment, Names, Violation, WRITERS, key_in,
    split_key,
};
use super::mirror::contradiction;
use super::model::Map;
use super::ranges::{any_range, within};
use super::rng::{Rng, setting};
use super::stores::{HOME, as_env, scan, scan_back};
use siftdb::env::testing::CrashModel;
use siftdb::env::{Env, MemEnv};
use siftdb::{
    Db, Error, Filter, FilterRebuild, Keyspace, KeyspaceOptions, Options, ReadOptions, Result,
    Transaction, WriteBatch, WriteOptions,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

/// All crash models.
pub const MODELS: [CrashModel; 3] = [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix];

/// The keys that writers use.
pub const KEYS: usize = 30;

/// The keyspaces that come and go besides `default`. The last one may do so while several writers
/// use the others.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// How long entries of a keyspace live, in seconds.
fn life_of(name: &str) -> Option<u64> {
    (name == NAMES[1]).then_some(10)
}

/// Every how many changes of a session one is made to fail.
pub fn change_stride() -> usize {
    setting("SIFTDB_CHANGE_STRIDE", 5)
}

/// A disk, its log of calls, and the promises to writers with their times.
pub struct Run {
    pub disk: MemEnv,
    /// The Env of the database: the disk, or a layer on it that fails.
    pub env: Arc<dyn Env>,
    pub options: Options,
    pub history: Arc<Mutex<History>>,
    /// A write has failed: no later one may be acknowledged.
    pub failed: AtomicBool,
    /// Calls on files may fail.
    pub may_fail: bool,
}

pub fn key(number: usize) -> Vec<u8> {
    format!("key{number:02}").into_bytes()
}

impl Run {
    pub fn new(disk: MemEnv, options: &Options) -> Self {
        let env = as_env(&disk);
        disk.set_now(UNIX_EPOCH);
        Run {
            disk,
            env,
            options: options.clone(),
            history: Arc::default(),
            failed: AtomicBool::new(false),
            may_fail: false,
        }
    }

    /// Lets a few seconds pass, in which nobody writes.
    pub fn wait(&self, rng: &mut Rng) {
        let seconds = self.history.lock().unwrap().seconds;
        self.set_clock(seconds + 1 + rng.below(8) as u64);
    }

    fn set_clock(&self, seconds: u64) {
        self.history.lock().unwrap().seconds = seconds;
        self.disk.set_now(UNIX_EPOCH + Duration::from_secs(seconds));
    }

    pub fn now(&self) -> Moment {
        self.disk.log_len() as Moment
    }

    pub fn open(&self) -> Result<Db> {
        self.durably(|| self.options.clone().env(Arc::clone(&self.env)).open(HOME))
    }

    /// Runs something that makes all acknowledged writes durable.
    pub fn durably<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = self.now();
        let done = act()?;
        self.history.lock().unwrap().durable(begun, self.now());
        Ok(done)
    }

    pub fn write(&self, db: &Db, writer: usize, changes: Changes, sync: bool) -> Result<()> {
        let options = WriteOptions::new().sync(sync);
        if self.failed.load(Ordering::SeqCst) {
            let refused = db.write_with(self.batch_of(db, &changes)?, &options);
            assert!(refused.is_err(), "a write after a failed one was acknowledged");
            let transaction = self.transact(db, &changes, &options);
            assert!(transaction.is_err(), "a transaction after a failed write was acknowledged");
            return refused;
        }
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        let mut history = self.history.lock().unwrap();
        let (number, changes) = history.begin(writer, changes, &keys, life_of, self.now());
        drop(history);
        // Every third batch of a writer is a transaction, and others are bulk loads where they can
        // be. Beside every fifth one lives a
        // transaction that reads what the batch writes, and so is refused.
        let refused = match number % 5 {
            0 => self.to_be_refused(db, &changes).ok(),
            _ => None,
        };
        let (mut sync, mut loaded) = (sync, None);
        if number % 3 == 1 {
            loaded = self.ingest(db, &changes);
        }
        sync |= loaded.is_some();
        let result = match number % 3 {
            _ if loaded.is_some() => loaded.unwrap_or(Ok(())),
            0 => self.transact(db, &changes, &options),
            _ => self.batch_of(db, &changes).and_then(|batch| db.write_with(batch, &options)),
        };
        if let Some(refused) = refused {
            let answer = refused.commit_with(&options);
            assert!(answer.is_err(), "what it had read was written, or the database takes none");
            // Any other error is that of a read, or of the failure that every write answers.
            let conflicts = matches!(answer, Err(Error::Conflict { .. }));
            assert!(conflicts || result.is_err() || !self.takes_writes(db) || self.may_fail);
        }
        match &result {
            Ok(()) => {
                self.history.lock().unwrap().acknowledge(writer, number, self.now(), sync);
                // While a call may fail, no thread may write beside the sync: which of the two
                // calls on the log comes first would be chance.
                if number % 4 == 2 && (writer == 0 || !self.may_fail) {
                    self.take_ticket(db, number % 8 == 2 || self.may_fail);
                }
            }
            Err(_) => self.failed.store(true, Ordering::SeqCst),
        }
        result
    }

    /// Takes a ticket, which notes what is durable when it resolves, and waits for it or not.
    fn take_ticket(&self, db: &Db, wait: bool) {
        let (history, disk, begun) = (Arc::clone(&self.history), self.disk.clone(), self.now());
        let note = move |synced: Result<()>| {
            if synced.is_ok() {
                history.lock().unwrap().durable(begun, disk.log_len() as Moment);
            }
        };
        match wait {
            true => note(db.sync_ticket().wait()),
            false => db.sync_ticket().on_done(note),
        }
    }

    /// True if no failure has made the database read-only.
    fn takes_writes(&self, db: &Db) -> bool {
        db.write(WriteBatch::new()).is_ok()
    }

    /// Makes the changes in a transaction that reads some of them first. It runs again after a
    /// conflict. If the check cannot read a file, nothing was written, and a batch follows.
    fn transact(&self, db: &Db, changes: &Changes, options: &WriteOptions) -> Result<()> {
        loop {
            let run = || {
                let tx = db.transaction();
                let savepoint = tx.savepoint();
                self.rubbish(db, &tx, changes)?;
                tx.rollback_to(&savepoint)?;
                self.fill(db, &tx, changes)?;
                tx.commit_with(options)
            };
            match run() {
                Err(Error::Conflict { .. }) => {}
                Err(Error::Io { .. }) if self.takes_writes(db) => {
                    return db.write_with(self.batch_of(db, changes)?, options);
                }
                result => return result,
            }
        }
    }

    /// Makes the changes in a bulk load, if all are puts to `default`. `None` if they are not, or
    /// if the load failed and the database takes writes: then nothing of it appears.
    fn ingest(&self, db: &Db, changes: &Changes) -> Option<Result<()>> {
        let mut entries = Map::new();
        for (key, change) in changes {
            match (split_key(key), change) {
                ((None, key), Change::Put(value)) => entries.insert(key.to_vec(), value.clone()),
                _ => return None,
            };
        }
        let loaded = db.ingest(&entries).map(drop);
        let is_refused = loaded.is_err() && self.takes_writes(db);
        (!is_refused).then_some(loaded)
    }

    /// The keyspace of a key of the history, and its key there.
    fn keyspace_of<'k>(&self, db: &Db, key: &'k [u8]) -> Result<(Keyspace, &'k [u8])> {
        let (generation, key) = split_key(key);
        let keyspace = match generation {
            None => (**db).clone(),
            Some(number) => {
                let name = self.history.lock().unwrap().name_of(number).to_string();
                db.keyspace(&name)?
            }
        };
        Ok((keyspace, key))
    }

    /// Makes the changes in `tx`; every second one after a read, of a key or of a range.
    fn fill(&self, db: &Db, tx: &Transaction, changes: &Changes) -> Result<()> {
        for (place, (key, change)) in changes.iter().enumerate() {
            let (keyspace, key) = self.keyspace_of(db, key)?;
            let part = tx.in_keyspace(&keyspace);
            match change {
                Change::Put(value) => {
                    if place % 2 == 0 {
                        part.get(key)?;
                    }
                    part.put(key, value)?;
                    assert_eq!(part.get(key)?.as_deref(), Some(&value[..]));
                }
                Change::Delete => part.delete(key)?,
                Change::DeleteRange(range) => {
                    part.range(range.clone()).take(2).try_for_each(|entry| entry.map(drop))?;
                    part.delete_range(range.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Writes what must never be seen to all keyspaces of the changes.
    fn rubbish(&self, db: &Db, tx: &Transaction, changes: &Changes) -> Result<()> {
        for (key, _) in changes {
            let (keyspace, _) = self.keyspace_of(db, key)?;
            let part = tx.in_keyspace(&keyspace);
            part.delete_range(..)?;
            part.put("key00", "of a refused transaction")?;
            part.put("refused", "of a refused transaction")?;
        }
        Ok(())
    }

    /// A transaction that reads what the changes write.
    fn to_be_refused(&self, db: &Db, changes: &Changes) -> Result<Transaction> {
        let tx = db.transaction();
        // The number of the writer is the last but one.
        let (own, _) = &changes[changes.len() - 2];
        tx.get(own)?;
        self.rubbish(db, &tx, changes)?;
        Ok(tx)
    }

    /// The batch with these changes, whose keys are those of the history.
    fn batch_of(&self, db: &Db, changes: &Changes) -> Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        for (key, change) in changes {
            let (keyspace, key) = self.keyspace_of(db, key)?;
            let mut batch = batch.in_keyspace(&keyspace);
            match change {
                Change::Put(value) => batch.put(key, value),
                Change::Delete => batch.delete(key),
                Change::DeleteRange(range) => batch.delete_range(range.clone()),
            };
        }
        Ok(batch)
    }

    /// Creates a keyspace, or drops the one of that name: alone, or in a batch of the first writer,
    /// who does nothing else now.
    fn alter(&self, db: &Db, name: &str, rng: &mut Rng) -> Result<()> {
        let there = self.history.lock().unwrap().keyspaces();
        let there = there.into_iter().find(|(other, _)| other == name);
        let begun = self.now();
        if self.failed.load(Ordering::SeqCst) {
            // What the database has, and not the history: a keyspace may have been created before
            // the write that failed, and opening it again changes nothing.
            let refused = match db.keyspaces().iter().any(|other| other == name) {
                false => db.keyspace(name).map(drop),
                true => db.drop_keyspace(name),
            };
            assert!(refused.is_err(), "{name:?} was changed after a failed write");
            return refused;
        }
        let result = match &there {
            None => {
                let generation = self.history.lock().unwrap().begin_creation(name, begun);
                let filters = [Filter::none(), Filter::ribbon(8.0), Filter::bloom(10.0)];
                let mut settings = KeyspaceOptions::new().filter(rng.pick(&filters).clone());
                if let Some(life) = life_of(name) {
                    settings = settings.expire_after(Duration::from_secs(life));
                }
                match rng.chance(50) {
                    true => db.keyspace_with(name, &settings).map(drop),
                    false => self.alter_with(db, Some((generation, name, &settings)), None, rng),
                }
            }
            Some((_, generation)) => {
                self.history.lock().unwrap().begin_drop(*generation, begun);
                match rng.chance(50) {
                    true => db.drop_keyspace(name),
                    false => self.alter_with(db, None, Some(name), rng),
                }
            }
        };
        match result {
            Ok(()) => {
                let mut history = self.history.lock().unwrap();
                match there {
                    None => history.created_last(self.now()),
                    Some((_, generation)) => history.dropped(generation, self.now()),
                }
                history.durable(begun, self.now());
            }
            Err(_) => self.failed.store(true, Ordering::SeqCst),
        }
        result
    }

    /// Creates or drops a keyspace in a batch of the first writer.
    fn alter_with(
        &self,
        db: &Db,
        created: Option<(usize, &str, &KeyspaceOptions)>,
        dropped: Option<&str>,
        rng: &mut Rng,
    ) -> Result<()> {
        let new = created.map(|(generation, ..)| generation);
        let generations = [None, None, new];
        let count = rng.below(4);
        let changes = (0..count).map(|_| any_change(*rng.pick(&generations), &[20, 2000], rng));
        let (changes, keys) = (changes.collect(), (0..KEYS).map(key).collect::<Vec<_>>());
        let (number, changes) =
            self.history.lock().unwrap().begin(0, changes, &keys, life_of, self.now());
        let mut batch = WriteBatch::new();
        for (key, change) in &changes {
            let (generation, key) = split_key(key);
            let mut part = match (generation, created) {
                (Some(_), Some((_, name, settings))) => batch.create_keyspace(name, settings),
                _ => batch.in_keyspace(db),
            };
            match change {
                Change::Put(value) => part.put(key, value),
                Change::Delete => part.delete(key),
                Change::DeleteRange(range) => part.delete_range(range.clone()),
            };
        }
        if let Some((_, name, settings)) = created {
            batch.create_keyspace(name, settings);
        }
        dropped.map(|name| batch.drop_keyspace(name));
        match db.write(batch) {
            // A table could not be written, and nothing was changed.
            Err(Error::Io { .. }) if self.takes_writes(db) => {
                match (created, dropped) {
                    (Some((_, name, settings)), _) => db.keyspace_with(name, settings).map(drop)?,
                    (None, name) => name.map_or(Ok(()), |name| db.drop_keyspace(name))?,
                }
                db.write_with(self.batch_of(db, &changes)?, &WriteOptions::new().sync(true))?;
            }
            answer => answer?,
        }
        self.history.lock().unwrap().acknowledge(0, number, self.now(), true);
        Ok(())
    }

    /// Creates or drops any keyspace.
    pub fn alter_one(&self, db: &Db, rng: &mut Rng) -> Result<()> {
        let name = rng.pick::<&str>(&NAMES);
        self.alter(db, name, rng)
    }

    /// Writes a few batches of one writer. Only the first writer uses the last keyspace.
    pub fn burst(&self, db: &Db, writer: usize, sizes: &[usize], seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed);
        let there = self.history.lock().unwrap().keyspaces();
        let mine = there.into_iter().filter(|(name, _)| writer == 0 || name != NAMES[2]);
        let mut generations: Vec<_> = mine.map(|(_, number)| Some(number)).collect();
        generations.push(None);
        for _ in 0..1 + rng.below(5) {
            let mut changes = Changes::new();
            // Mostly one keyspace, so that they fill at different times.
            let favorite = *rng.pick(&generations);
            for _ in 0..1 + rng.below(4) {
                let generation = if rng.chance(70) { favorite } else { *rng.pick(&generations) };
                changes.push(any_change(generation, sizes, &mut rng));
            }
            self.write(db, writer, changes, rng.chance(20))?;
        }
        Ok(())
    }

    /// Runs several writers and another activity at the same time.
    pub fn crowd(&self, db: &Db, sizes: &[usize], rng: &mut Rng) -> Result<()> {
        let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.next()).collect();
        std::thread::scope(|scope| {
            let write = |writer: usize| self.burst(db, writer, sizes, seeds[writer]);
            let writers: Vec<_> =
                (1..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            let beside = self.maintain(db, rng);
            writers.into_iter().map(|writer| writer.join().unwrap()).fold(beside, Result::and)
        })
    }

    /// Runs a flush, a compaction, a rebuild of filters, a creation, a drop or a sync.
    pub fn maintain(&self, db: &Db, rng: &mut Rng) -> Result<()> {
        match rng.below(7) {
            0 | 1 => self.durably(|| db.flush()),
            2 => {
                let there = self.history.lock().unwrap().keyspaces();
                for (name, _) in there.iter().filter(|_| rng.chance(50)) {
                    db.keyspace(name)?.compact_range(..)?;
                }
                self.durably(|| db.compact_range(key(8)..key(22)))
            }
            3 => db.rebuild_filters(FilterRebuild::All).map(drop),
            4 | 5 => self.alter(db, NAMES[2], rng),
            _ => self.durably(|| db.sync()),
        }
    }

    /// Opens `left`, the disk that a crash after `call` calls left, and compares it with the
    /// promises. Then writes to it, closes or crashes it, and opens it again. Returns what the
    /// crash left, and the run that continued.
    pub fn recover(
        &self,
        left: MemEnv,
        call: usize,
        model: CrashModel,
        rng: &mut Rng,
    ) -> std::result::Result<(Found, Run), Violation> {
        let after = Run::new(left, &self.options);
        after.set_clock(self.history.lock().unwrap().seconds);
        let db = after.open().map_err(|error| Violation::new("open", error))?;
        let history = self.history.lock().unwrap();
        let found = look_at(&db, &history)?;
        let call = call as Moment;
        history.judge(&found, call, model)?;
        if rng.chance(15) {
            let report = db.verify(|_| {}).map_err(|error| Violation::new("verify", error))?;
            if !report.is_sound() {
                return Err(Violation::new("verify", format!("{:?}", report.damage)));
            }
        }
        if rng.chance(15) {
            after.check_changes(&db)?;
        }
        let durable = match model {
            // Only the process died, so a later power cut may still take unsynced writes.
            CrashModel::Kill => history.least(call, CrashModel::Posix),
            CrashModel::Journal | CrashModel::Posix => found.prefix,
        };
        let mut next = history.after_crash(call, &found, &durable);
        drop(history);
        // Opening makes everything durable that it recovered.
        next.durable(0, after.now());
        next.settle(after.now());
        *after.history.lock().unwrap() = next;
        after.go_on(db, rng)?;
        Ok((found, after))
    }

    fn go_on(&self, db: Db, rng: &mut Rng) -> std::result::Result<(), Violation> {
        let violation = |error: siftdb::Error| Violation::new("continuing", error);
        self.burst(&db, 0, &[20, 2000], rng.next()).map_err(violation)?;
        if rng.chance(20) {
            self.wait(rng);
        }
        if rng.chance(20) {
            self.maintain(&db, rng).map_err(violation)?;
        }
        if rng.chance(20) {
            self.alter_one(&db, rng).map_err(violation)?;
            self.burst(&db, 0, &[20, 2000], rng.next()).map_err(violation)?;
        }
        let (end, model, call) = if rng.chance(50) {
            self.durably(|| db.close()).map_err(violation)?;
            (self.disk.clone(), CrashModel::Kill, self.now())
        } else {
            let call = self.now();
            (self.disk.power_cut(), CrashModel::Posix, call)
        };
        drop(db);
        let last = Run::new(end, &self.options);
        let history = self.history.lock().unwrap();
        last.set_clock(history.seconds);
        let db = last.open().map_err(violation)?;
        history.judge(&look_at(&db, &history)?, call, model)?;
        last.check_changes(&db)?;
        db.close().map_err(violation)
    }

    /// The changes that the logs still have, from the first one on, come to what is there.
    fn check_changes(&self, db: &Db) -> std::result::Result<(), Violation> {
        match contradiction(db, self.env.now()) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => Err(Violation::new("changes", what)),
            Err(error) => Err(Violation::new("changes", error)),
        }
    }
}

/// A put, a deletion or a range delete in a generation.
fn any_change(generation: Option<usize>, sizes: &[usize], rng: &mut Rng) -> (Vec<u8>, Change) {
    if rng.chance(8) {
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        let range = any_range(rng, &keys);
        // The numbers of the writers stay. The mark of a generation is written after the ranges.
        let range = if generation.is_none() { within(range, b"", b"~") } else { range };
        return (key_in(generation, b""), Change::DeleteRange(range));
    }
    let (number, size) = (rng.next(), *rng.pick(sizes));
    let key = key_in(generation, &key(rng.below(KEYS)));
    (key, if rng.chance(80) { Change::Put(bytes(number, size)) } else { Change::Delete })
}

/// Reads everything that is there, in every way; returns which part of the history it is.
pub fn look_at(db: &Db, history: &History) -> std::result::Result<Found, Violation> {
    let (mut found, mut names) = (Map::new(), Names::new());
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name).map_err(|error| Violation::new("read", error))?;
        let entries = read_all(&keyspace)?;
        if name == "default" {
            found.extend(entries);
            continue;
        }
        let marker = entries.get(GENERATION).and_then(|tag| tag.as_slice().try_into().ok());
        let generation = marker.map(|tag| u64::from_le_bytes(tag) as usize);
        if generation.is_none() && !entries.is_empty() {
            return Err(Violation::new("content", format!("{name:?} has entries of no time")));
        }
        found.extend(entries.into_iter().map(|(key, value)| (key_in(generation, &key), value)));
        names.insert(name, generation);
    }
    let prefix = history.prefix_of(&found, &names)?;
    Ok(Found { prefix, names })
}

/// The entries of a keyspace, by every kind of read.
fn read_all(keyspace: &Keyspace) -> std::result::Result<Map, Violation> {
    let violation = |error: siftdb::Error| Violation::new("read", error);
    let found = scan(keyspace).map_err(violation)?;
    let backwards = scan_back(keyspace).map_err(violation)?;
    if !backwards.iter().rev().map(|(key, value)| (key, value)).eq(&found) {
        return Err(Violation::new("backwards", "a scan backwards finds something else"));
    }
    let keys: Vec<_> = (0..=KEYS).map(key).collect();
    let together = keyspace.multi_get(&keys).map_err(violation)?;
    for (key, together) in keys.iter().zip(together) {
        let expected = found.get(key).map(Vec::as_slice);
        for use_filters in [true, false] {
            let options = ReadOptions::new().use_filters(use_filters);
            let value = keyspace.get_with(key, &options).map_err(violation)?;
            if value.as_deref() != expected || together.as_deref() != expected {
                let what = format!("{}, filters: {use_filters}", key.escape_ascii());
                return Err(Violation::new("lookup", what));
            }
        }
    }
    Ok(found)
}
