//! Power lost after each call on a file, in each model of a crash: what was synced is there, what
//! is there is a prefix of the writes, batches are whole, and the store goes on from there.
//!
//! A workload runs once over a disk that keeps a log of calls. Every batch also writes its own
//! number under one key, so a state that was found says which prefix it claims to be; all of it
//! must then agree. Creation, recovery and closing are among the calls that crash.
//!
//! `SIFTDB_CRASH_SEEDS` sets how many states of each model are tried at each call; `cargo test`
//! tries one or two, a release thousands of times that.

use crate::support::data::bytes;
use crate::support::filters::all_filters;
use crate::support::model::{Entries, Map, apply, batch_of, first_difference};
use crate::support::rng::{Rng, setting};
use crate::support::stores::{as_env, files_ending, open, scan, scan_back, small_options};
use siftdb::env::MemEnv;
use siftdb::env::mem::CrashModel;
use siftdb::{Db, FilterRebuild, Options, WriteOptions};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Holds the number of the last batch.
const NUMBER_KEY: &[u8] = b"~number";

/// A run of the workload: its disk, and what was promised when.
struct Run {
    env: MemEnv,
    options: Options,
    /// The state after each batch; the first is empty.
    states: Vec<Map>,
    /// Promises in order: from this length of the log on, so many batches are there.
    kept_by_process: Vec<(usize, usize)>,
    kept_by_disk: Vec<(usize, usize)>,
    /// The length of the log when each batch was handed in.
    begun: Vec<usize>,
}

impl Run {
    fn new(options: Options) -> Self {
        let (states, begun) = (vec![Map::new()], vec![0]);
        let (kept_by_process, kept_by_disk) = (Vec::new(), Vec::new());
        Run { env: MemEnv::new(), options, states, kept_by_process, kept_by_disk, begun }
    }

    fn open(&self) -> Db {
        open(&self.env, &self.options).unwrap()
    }

    fn batches(&self) -> usize {
        self.states.len() - 1
    }

    fn write(&mut self, db: &Db, mut entries: Entries, sync: bool) {
        let number = self.batches() as u64 + 1;
        entries.push((NUMBER_KEY.to_vec(), Some(number.to_le_bytes().to_vec())));
        let mut state = self.states[self.batches()].clone();
        apply(&mut state, &entries);
        self.begun.push(self.env.log_len());
        self.states.push(state);
        db.write_with(batch_of(&entries), &WriteOptions::new().sync(sync)).unwrap();
        let batches = self.batches();
        self.kept_by_process.push((self.env.log_len(), batches));
        if sync {
            self.synced();
        }
    }

    /// All batches so far are durable from here on.
    fn synced(&mut self) {
        self.kept_by_disk.push((self.env.log_len(), self.batches()));
    }

    /// At least and at most so many batches are there if all stops after `calls` calls.
    fn bounds(&self, calls: usize, crash_model: CrashModel) -> (usize, usize) {
        let promised = |kept: &[(usize, usize)]| {
            kept.iter().rev().find(|(from, _)| *from <= calls).map_or(0, |(_, batches)| *batches)
        };
        let mut least = promised(&self.kept_by_disk);
        if crash_model == CrashModel::Kill {
            least = least.max(promised(&self.kept_by_process));
        }
        let most = self.begun.iter().rposition(|begun| *begun <= calls).unwrap_or(0);
        (least, most)
    }
}

/// Creation, synced and unsynced writes across several logs, deletions, flushes, compactions,
/// rebuilt filters, a
/// dropped handle, a reopening that recovers, a clean close and a reopening after that.
fn workload(options: Options, seed: u64) -> Run {
    let mut run = Run::new(options);
    let mut rng = Rng::new(seed);
    for session in 0..4 {
        let db = run.open();
        if run.batches() > 0 {
            run.synced();
        }
        for step in 0..14 {
            let mut entries = Entries::new();
            for _ in 0..1 + rng.below(4) {
                let number = rng.next();
                let key = format!("key{:02}", number % 40).into_bytes();
                let size = *rng.pick(&[20, 700, 3000, 9000]);
                let value = rng.chance(80).then(|| bytes(number, size));
                entries.push((key, value));
            }
            run.write(&db, entries, rng.chance(20));
            match (session * 14 + step) % 16 {
                6 => {
                    db.flush().unwrap();
                    run.synced();
                }
                11 => {
                    db.compact_range("key10".."key30").unwrap();
                    run.synced();
                }
                3 | 13 => {
                    db.rebuild_filters(FilterRebuild::All).unwrap();
                }
                14 => {
                    db.sync().unwrap();
                    run.synced();
                }
                _ => {}
            }
        }
        if session % 2 == 1 {
            db.close().unwrap();
            run.synced();
        }
    }
    run
}

/// Looks at what a crash left. Answers how many batches are there.
fn check_state(run: &Run, env: &MemEnv, bounds: (usize, usize), place: &str) -> usize {
    let db = open(env, &run.options).unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = scan(&db).unwrap_or_else(|error| panic!("{place}: {error}"));
    let number = found
        .get(NUMBER_KEY)
        .map_or(0, |bytes| u64::from_le_bytes(bytes.as_slice().try_into().unwrap()) as usize);
    let (least, most) = bounds;
    assert!(number >= least, "{place}: batch {number} is the last, {least} was promised");
    assert!(number <= most, "{place}: batch {number} is there, {most} was the last handed in");
    if let Some(difference) = first_difference(&found, &run.states[number]) {
        panic!("{place}: not the state after batch {number}: {difference}");
    }
    let mut backwards = scan_back(&db).unwrap();
    backwards.reverse();
    assert!(backwards.iter().map(|(key, value)| (key, value)).eq(&found), "{place}: backwards");
    for key in (0..40).map(|key| format!("key{key:02}").into_bytes()) {
        let value = db.get(&key).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(value.as_deref(), found.get(&key).map(Vec::as_slice), "{place}: get");
    }
    number
}

/// Goes on from what a crash left: writes, ends in one of three ways, looks again.
fn go_on(run: &Run, env: &MemEnv, number: usize, seed: u64, place: &str) {
    let fail = |error: siftdb::Error| -> ! { panic!("{place}, going on: {error}") };
    let db = open(env, &run.options).unwrap_or_else(|error| fail(error));
    db.put("key00", "after").unwrap_or_else(|error| fail(error));
    let later = WriteOptions::new().sync(seed % 3 == 1);
    let entries = vec![(b"later".to_vec(), Some(vec![b'l'; 2000]))];
    db.write_with(batch_of(&entries), &later).unwrap_or_else(|error| fail(error));
    let next = match seed % 3 {
        0 => {
            db.close().unwrap_or_else(|error| fail(error));
            drop(db);
            env.clone()
        }
        1 => env.power_cut(),
        _ => {
            db.flush().unwrap_or_else(|error| fail(error));
            env.power_cut()
        }
    };
    let db = open(&next, &run.options).unwrap_or_else(|error| fail(error));
    let mut expected = run.states[number].clone();
    expected.insert(b"key00".to_vec(), b"after".to_vec());
    apply(&mut expected, &entries);
    let found = scan(&db).unwrap_or_else(|error| fail(error));
    if let Some(difference) = first_difference(&found, &expected) {
        panic!("{place}, going on: {difference}");
    }
}

/// Crashes the run after every call. Answers how many states were looked at.
fn crash_everywhere(run: &Run, seeds: u64, every_nth_goes_on: usize) -> usize {
    let calls = run.env.log_len();
    let (next, states) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || {
        loop {
            let call = next.fetch_add(1, Ordering::Relaxed);
            if call > calls {
                return;
            }
            for (crash_model, seed) in variants(seeds) {
                // Another seed at each call, seed 0 (nothing unsynced survives) every time.
                let seed = if seed == 0 { 0 } else { seed + 1000 * call as u64 };
                let place = format!("after call {call} of {calls}, {crash_model:?}, seed {seed}");
                let env = run.env.replay(call, crash_model, seed);
                let bounds = run.bounds(call, crash_model);
                let number = check_state(run, &env, bounds, &place);
                let state = states.fetch_add(1, Ordering::Relaxed);
                if state % every_nth_goes_on == 0 {
                    go_on(run, &env, number, state as u64 / 7, &place);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    states.into_inner()
}

fn variants(seeds: u64) -> Vec<(CrashModel, u64)> {
    let mut variants = vec![(CrashModel::Kill, 0)];
    for seed in 0..seeds {
        variants.extend([(CrashModel::Journal, seed), (CrashModel::Posix, seed)]);
    }
    variants
}

#[test]
fn a_crash_after_any_call_leaves_a_prefix_with_all_that_was_synced() {
    let seeds = setting("SIFTDB_CRASH_SEEDS", 2) as u64;
    let run = workload(small_options(), 1);
    let states = crash_everywhere(&run, seeds, 3);
    println!("{states} crash states after {} calls", run.env.log_len());
    assert!(states > 500, "only {states} states");
}

#[test]
fn a_crash_leaves_a_prefix_under_every_filter() {
    for (number, filter) in all_filters().into_iter().enumerate() {
        let options = small_options().filter(filter.filter).auto_compaction(number % 2 == 0);
        let run = workload(options, 100 + number as u64);
        let calls = run.env.log_len();
        let mut rng = Rng::new(number as u64);
        for trial in 0..40 * setting("SIFTDB_CRASH_SEEDS", 1) as u64 {
            let call = rng.below(calls + 1);
            let crash_model = *rng.pick(&[CrashModel::Journal, CrashModel::Posix]);
            let env = run.env.replay(call, crash_model, trial);
            let bounds = run.bounds(call, crash_model);
            let place = format!("{}: call {call}, {crash_model:?}, seed {trial}", filter.name);
            check_state(&run, &env, bounds, &place);
        }
    }
}

#[test]
fn a_crash_while_recovering_from_a_crash_loses_nothing_more() {
    let run = workload(small_options(), 2);
    let calls = run.env.log_len();
    let mut rng = Rng::new(7);
    let mut states = 0;
    for trial in 0..40 * setting("SIFTDB_CRASH_SEEDS", 1) as u64 {
        let call = rng.below(calls + 1);
        let first_model = *rng.pick(&[CrashModel::Kill, CrashModel::Journal, CrashModel::Posix]);
        let env = run.env.replay(call, first_model, trial);
        let place = format!("call {call}, {first_model:?}, seed {trial}");
        let number = check_state(&run, &env, run.bounds(call, first_model), &place);
        // What recovery found, it must find again, wherever it was cut short.
        let recovery_calls = env.log_len();
        for second in 0..=recovery_calls {
            let crash_model = *rng.pick(&[CrashModel::Journal, CrashModel::Posix]);
            // After a kill the system is alive, and only a power cut may take what was unsynced.
            let least = match first_model {
                CrashModel::Kill if second < recovery_calls => {
                    run.bounds(call, CrashModel::Posix).0
                }
                _ => number,
            };
            let again = env.replay(second, crash_model, trial);
            let place = format!("{place}, then call {second} of {recovery_calls}, {crash_model:?}");
            check_state(&run, &again, (least, number), &place);
            states += 1;
        }
    }
    println!("{states} states of crashed recoveries");
}

#[test]
fn a_crashed_creation_leaves_a_directory_that_opens() {
    let env = MemEnv::new();
    let options = small_options();
    options.clone().env(as_env(&env)).open("/a/b/c").unwrap().close().unwrap();
    for call in 0..=env.log_len() {
        for (crash_model, seed) in variants(6) {
            let after = env.replay(call, crash_model, seed);
            let place = format!("call {call}, {crash_model:?}, seed {seed}");
            let db = options.clone().env(as_env(&after)).open("/a/b/c");
            let db = db.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(db.iter().count(), 0, "{place}");
            db.write_with(batch_of(&vec![(b"k".to_vec(), Some(b"v".to_vec()))]), &synced())
                .unwrap();
            let after = after.power_cut();
            let db = options.clone().env(as_env(&after)).open("/a/b/c").unwrap();
            assert_eq!(db.get("k").unwrap().unwrap(), "v", "{place}");
        }
    }
}

fn synced() -> WriteOptions {
    WriteOptions::new().sync(true)
}

/// A lost sector of a log looks the same whether a crash or the disk took it. Which it was, the
/// records behind it tell: they say what was durable when they were written. A store whose records
/// never do would call damage a torn tail.
#[test]
fn damage_below_what_was_synced_is_told_from_a_torn_tail() {
    let mut run = Run::new(small_options());
    let db = run.open();
    for number in 0..7 {
        run.write(&db, vec![(b"k".to_vec(), Some(vec![number + 1; 3000]))], number == 3);
    }
    let without_sector_of = |number: u8| {
        let env = run.env.replay(run.env.log_len(), CrashModel::Kill, 0);
        let log = files_ending(&env, ".wal").remove(0);
        let mut bytes = env.read_file(&log).unwrap();
        let value = vec![number + 1; 3000];
        let start = bytes.windows(3000).position(|window| window == value).unwrap();
        let sector = (start / 512 + 2) * 512;
        bytes[sector..sector + 512].fill(0);
        env.write_file(&log, &bytes);
        env
    };
    for number in 0..4 {
        let error = open(&without_sector_of(number), &run.options).map(|_| ());
        let error = error.expect_err("a synced batch is damaged");
        assert!(error.is_corruption(), "{error}");
    }
    for number in 4..7 {
        let place = format!("batch {} lost a sector", number + 1);
        let found = check_state(&run, &without_sector_of(number), (4, 7), &place);
        assert_eq!(found, usize::from(number), "{place}");
    }
}
