//! A store on a disk that can lose power, the work of its writers, and the checks after a crash.
//!
//! A [`Run`] records what it writes and what is acknowledged. [`Run::recover`] opens the disk that
//! a crash left, compares it with the record, and returns a run that continues from there.

use super::data::bytes;
use super::history::{History, Moment, Prefix, Violation, WRITERS};
use super::model::{Entries, batch_of};
use super::rng::Rng;
use super::stores::{HOME, as_env, scan, scan_back};
use siftdb::env::testing::CrashModel;
use siftdb::env::{Env, MemEnv};
use siftdb::{Db, FilterRebuild, Options, ReadOptions, Result, WriteOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// All crash models.
pub const MODELS: [CrashModel; 3] = [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix];

/// The keys that writers use.
pub const KEYS: usize = 30;

/// A disk, its log of calls, and the promises to writers with their times.
pub struct Run {
    pub disk: MemEnv,
    /// The Env of the database: the disk, or a layer on it that fails.
    pub env: Arc<dyn Env>,
    pub options: Options,
    pub history: Mutex<History>,
    /// A write has failed: no later one may be acknowledged.
    pub failed: AtomicBool,
}

pub fn key(number: usize) -> Vec<u8> {
    format!("key{number:02}").into_bytes()
}

impl Run {
    pub fn new(disk: MemEnv, options: &Options) -> Self {
        let env = as_env(&disk);
        Run {
            disk,
            env,
            options: options.clone(),
            history: Mutex::default(),
            failed: AtomicBool::new(false),
        }
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

    pub fn write(&self, db: &Db, writer: usize, entries: Entries, sync: bool) -> Result<()> {
        let options = WriteOptions::new().sync(sync);
        if self.failed.load(Ordering::SeqCst) {
            let refused = db.write_with(batch_of(&entries), &options);
            assert!(refused.is_err(), "a write after a failed one was acknowledged");
            return refused;
        }
        let (number, entries) = self.history.lock().unwrap().begin(writer, entries, self.now());
        let result = db.write_with(batch_of(&entries), &options);
        match &result {
            Ok(()) => {
                self.history.lock().unwrap().acknowledge(writer, number, self.now(), sync);
            }
            Err(_) => self.failed.store(true, Ordering::SeqCst),
        }
        result
    }

    /// Writes a few batches of one writer.
    pub fn burst(&self, db: &Db, writer: usize, sizes: &[usize], seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed);
        for _ in 0..1 + rng.below(5) {
            let mut entries = Entries::new();
            for _ in 0..1 + rng.below(4) {
                let (number, size) = (rng.next(), *rng.pick(sizes));
                let value = rng.chance(80).then(|| bytes(number, size));
                entries.push((key(rng.below(KEYS)), value));
            }
            self.write(db, writer, entries, rng.chance(20))?;
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

    /// Runs a flush, a compaction, a rebuild of filters or a sync.
    pub fn maintain(&self, db: &Db, rng: &mut Rng) -> Result<()> {
        match rng.below(5) {
            0 | 1 => self.durably(|| db.flush()),
            2 => self.durably(|| db.compact_range(key(8)..key(22))),
            3 => db.rebuild_filters(FilterRebuild::All).map(drop),
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
    ) -> std::result::Result<(Prefix, Run), Violation> {
        let after = Run::new(left, &self.options);
        let db = after.open().map_err(|error| Violation::new("open", error))?;
        let history = self.history.lock().unwrap();
        let prefix = look_at(&db, &history)?;
        let call = call as Moment;
        history.judge(&prefix, call, model)?;
        let durable = match model {
            // Only the process died, so a later power cut may still take unsynced writes.
            CrashModel::Kill => history.least(call, CrashModel::Posix),
            CrashModel::Journal | CrashModel::Posix => prefix,
        };
        let mut next = history.after_crash(call, &prefix, &durable);
        drop(history);
        // Opening makes everything durable that it recovered.
        next.durable(0, after.now());
        *after.history.lock().unwrap() = next;
        after.go_on(db, rng)?;
        Ok((prefix, after))
    }

    fn go_on(&self, db: Db, rng: &mut Rng) -> std::result::Result<(), Violation> {
        let violation = |error: siftdb::Error| Violation::new("going on", error);
        self.burst(&db, 0, &[20, 2000], rng.next()).map_err(violation)?;
        if rng.chance(20) {
            self.maintain(&db, rng).map_err(violation)?;
        }
        let (end, model, call) = if rng.chance(50) {
            self.durably(|| db.close()).map_err(violation)?;
            (self.disk.clone(), CrashModel::Kill, self.now())
        } else {
            let call = self.now();
            (self.disk.power_cut(), CrashModel::Posix, call)
        };
        drop(db);
        let db = Run::new(end, &self.options).open().map_err(violation)?;
        let history = self.history.lock().unwrap();
        history.judge(&look_at(&db, &history)?, call, model)?;
        db.close().map_err(violation)
    }
}

/// Reads everything that is there, in every way; returns which prefix of the history it is.
pub fn look_at(db: &Db, history: &History) -> std::result::Result<Prefix, Violation> {
    let violation = |error: siftdb::Error| Violation::new("read", error);
    let found = scan(db).map_err(violation)?;
    let prefix = history.prefix_of(&found)?;
    let backwards = scan_back(db).map_err(violation)?;
    if !backwards.iter().rev().map(|(key, value)| (key, value)).eq(&found) {
        return Err(Violation::new("backwards", "a scan backwards finds something else"));
    }
    for key in (0..=KEYS).map(key) {
        for use_filters in [true, false] {
            let options = ReadOptions::new().use_filters(use_filters);
            let value = db.get_with(&key, &options).map_err(violation)?;
            if value.as_deref() != found.get(&key).map(Vec::as_slice) {
                let what = format!("{}, filters: {use_filters}", key.escape_ascii());
                return Err(Violation::new("lookup", what));
            }
        }
    }
    Ok(prefix)
}
