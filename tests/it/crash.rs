//! Power loss after each call on a file, in each crash model: synced writes survive, the surviving
//! writes are a prefix, batches are whole, and the database can be used again.
//!
//! A run writes in several sessions, from one thread or several, over a disk that logs its calls;
//! creation, recovery and closing are included. Then the disk is crashed at every call of the log.
//! Each state is opened, read in both directions, with and without filters, written to, closed in
//! some way and opened again. Some of these second runs are crashed too, and some of those again.
//!
//! `SIFTDB_CRASH_STATES` sets how many distinct states are checked. A violation is printed with the
//! seed of its run, its crashes and the calls before the last crash; `SIFTDB_SEED` starts with that
//! seed. The seed does not decide the schedule of threads.

use crate::support::filters::all_filters;
use crate::support::history::{Found, Moment, Violation};
use crate::support::model::batch_of;
use crate::support::rng::{Rng, setting};
use crate::support::run::{MODELS, Run};
use crate::support::stores::{any_block_settings, as_env, begun_logs, open, scan, small_options};
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb::{Db, WriteOptions};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// For states after one crash, and after two: one of how many is crashed again, and at how many
/// calls.
const AGAIN: [(usize, usize); 2] = [(10, 10), (4, 4)];

/// Some sessions of a new store, decided by the seed.
fn workload(seed: u64) -> (Run, usize) {
    let mut rng = Rng::new(seed);
    let filters = all_filters();
    let options = small_options()
        .filter(rng.pick(&filters).filter.clone())
        .default_keyspace(&any_block_settings(&mut rng))
        .auto_compaction(rng.chance(80))
        .keep_log_bytes(*rng.pick(&[0, 20_000, 1 << 20]));
    let run = Run::new(MemEnv::with_log(), &options);
    let sizes = rng.pick(&[[0, 20, 200], [20, 700, 2000], [700, 3000, 9000]]);
    let sessions = 2 + rng.below(3);
    for session in 0..sessions {
        let db = run.open().unwrap();
        for _ in 0..4 + rng.below(16) {
            let done = match rng.below(14) {
                12 => run.alter_one(&db, &mut rng),
                13 => {
                    run.wait(&mut rng);
                    run.alter_one(&db, &mut rng)
                }
                0..=4 => run.burst(&db, 0, sizes, rng.next()),
                5..=7 => run.crowd(&db, sizes, &mut rng),
                _ => run.maintain(&db, &mut rng),
            };
            done.unwrap();
        }
        if session == 0 || rng.chance(50) {
            run.durably(|| db.close()).unwrap();
        } else {
            let dropped = || {
                drop(db);
                Ok(())
            };
            run.durably(dropped).unwrap();
        }
    }
    (run, sessions)
}

/// A crash after a number of calls. Crashes of one state follow each other; each counts the calls
/// since the crash before it.
#[derive(Clone, Copy, Debug)]
struct Crash {
    call: usize,
    model: CrashModel,
    seed: u64,
}

impl Crash {
    fn new(call: usize, model: CrashModel, seed: u64) -> Self {
        Crash { call, model, seed }
    }
}

/// What all threads found.
#[derive(Default)]
struct Tally {
    /// Distinct states by what is on the disk.
    seen: HashSet<u64>,
    /// States of each model, by number of crashes.
    states: [[usize; AGAIN.len() + 1]; MODELS.len()],
    next_seed: u64,
    calls: usize,
    /// By kind.
    violations: BTreeMap<&'static str, usize>,
}

/// Crashes runs in every way.
struct Explorer<'t> {
    tally: &'t Mutex<Tally>,
    seed: u64,
    rng: Rng,
    /// What was found in the states of this run at some second.
    known: HashMap<(u64, u64), Found>,
}

impl Explorer<'_> {
    fn crash_all(&mut self, run: &Run, target: usize) {
        let mut crashes = Vec::new();
        for call in 0..=run.disk.log_len() {
            let [journal, posix, other] = [(); 3].map(|()| self.rng.next());
            crashes.extend([
                Crash::new(call, CrashModel::Kill, 0),
                Crash::new(call, CrashModel::Journal, 0),
                Crash::new(call, CrashModel::Journal, journal),
                Crash::new(call, CrashModel::Posix, 0),
                Crash::new(call, CrashModel::Posix, posix),
                Crash::new(call, CrashModel::Posix, other),
            ]);
        }
        self.crash(run, &crashes, target, &[]);
    }

    /// Crashes `run` in these ways, in order of calls, until `target` states are seen. The crashes
    /// `before` led to it.
    fn crash(&mut self, run: &Run, crashes: &[Crash], target: usize, before: &[Crash]) {
        let mut walk = run.disk.walk_log();
        let seconds = run.history.lock().unwrap().seconds;
        for crash in crashes {
            walk.advance_to(crash.call);
            let env = walk.crash(crash.model, crash.seed);
            let state = hash_of(&env);
            let crashes = [before, &[*crash]].concat();
            if let Some(found) = self.known.get(&(state, seconds)) {
                let history = run.history.lock().unwrap();
                let judged = history.judge(found, crash.call as Moment, crash.model);
                drop(history);
                if let Err(violation) = judged {
                    self.note(run, &violation, &crashes);
                }
                continue;
            }
            {
                let mut tally = self.tally.lock().unwrap();
                if tally.seen.len() >= target {
                    return;
                }
                if tally.seen.insert(state) {
                    tally.states[crash.model as usize][before.len()] += 1;
                }
            }
            let looked = catch_unwind(AssertUnwindSafe(|| {
                run.recover(env, crash.call, crash.model, &mut self.rng)
            }));
            let looked = looked.unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<String>().cloned();
                Err(Violation::new("panic", said.unwrap_or_default()))
            });
            match looked {
                Ok((found, after)) => {
                    self.known.insert((state, seconds), found);
                    self.crash_again(&after, target, &crashes);
                }
                Err(violation) => self.note(run, &violation, &crashes),
            }
        }
    }

    /// Crashes the calls that opening a state, and continuing from it, made.
    fn crash_again(&mut self, after: &Run, target: usize, crashes: &[Crash]) {
        let Some(&(one_in, count)) = AGAIN.get(crashes.len() - 1) else { return };
        if self.rng.below(one_in) > 0 {
            return;
        }
        let calls = after.disk.log_len();
        let crash =
            |rng: &mut Rng| Crash::new(rng.below(calls + 1), *rng.pick(&MODELS), rng.next());
        let mut again: Vec<Crash> = (0..count).map(|_| crash(&mut self.rng)).collect();
        again.sort_by_key(|crash| crash.call);
        self.crash(after, &again, target, crashes);
    }

    fn note(&self, run: &Run, violation: &Violation, crashes: &[Crash]) {
        let call = crashes.last().map_or(0, |crash| crash.call);
        let calls = &run.disk.log_text()[call.saturating_sub(40)..call];
        let Violation { kind, what } = violation;
        println!("{kind}: {what}; seed {}, {crashes:?}; calls {calls:#?}", self.seed);
        *self.tally.lock().unwrap().violations.entry(kind).or_insert(0) += 1;
    }
}

fn hash_of(env: &MemEnv) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in env.list_files() {
        path.hash(&mut hasher);
        env.read_file(&path).hash(&mut hasher);
    }
    hasher.finish()
}

#[test]
fn every_crash_leaves_a_synced_prefix() {
    let target = setting("SIFTDB_CRASH_STATES", if cfg!(debug_assertions) { 4000 } else { 20_000 });
    let first_seed = setting("SIFTDB_SEED", 1) as u64;
    let tally = Mutex::new(Tally { next_seed: first_seed, ..Tally::default() });
    let explore = || {
        loop {
            let seed = {
                let mut tally = tally.lock().unwrap();
                if tally.seen.len() >= target {
                    return;
                }
                tally.next_seed += 1;
                tally.next_seed - 1
            };
            let (run, _) = workload(seed);
            tally.lock().unwrap().calls += run.disk.log_len();
            let rng = Rng::new(seed ^ 0xc5a5);
            let mut explorer = Explorer { tally: &tally, seed, rng, known: HashMap::new() };
            explorer.crash_all(&run, target);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(explore);
        scope.spawn(explore);
    });
    let tally = tally.into_inner().unwrap();
    let (states, seeds) = (tally.seen.len(), first_seed..tally.next_seed);
    println!("{states} distinct states of runs {seeds:?}, {} calls", tally.calls);
    for model in MODELS {
        println!("{model:?}: {:?} states after 1, 2, 3 crashes", tally.states[model as usize]);
    }
    println!("violations: {:?}", tally.violations);
    assert!(tally.violations.is_empty(), "{:?}", tally.violations);
}

/// The runs that the crash test uses contain every kind of job.
#[test]
fn crash_runs_cover_every_job() {
    let mut counts = [0; 4];
    for seed in 1..=10 {
        let (run, sessions) = workload(seed);
        let log = run.disk.log_text();
        let count = |call: &str, end: &str| {
            log.iter().filter(|line| line.starts_with(call) && line.ends_with(end)).count()
        };
        // A session that writes begins with a manifest; further ones are replacements.
        counts[0] += count("Rename", "to: \"/db/CURRENT\" }").saturating_sub(sessions);
        counts[1] += count("Create", ".wal\" }");
        counts[2] += count("Create", ".sst\" }");
        counts[3] += count("Remove", ".sst\" }");
    }
    println!("replaced manifests, logs, tables, removed tables: {counts:?}");
    assert!(counts[0] > 3 && counts[1..].iter().all(|count| *count > 50), "{counts:?}");
}

#[test]
fn a_crashed_creation_can_be_opened() {
    let env = MemEnv::with_log();
    let open = |env: &MemEnv| small_options().env(as_env(env)).open("/a/b/c");
    open(&env).unwrap().close().unwrap();
    for call in 0..=env.log_len() {
        for seed in 0..6 {
            for model in MODELS {
                let after = env.replay(call, model, seed);
                let place = format!("call {call}, {model:?}, seed {seed}");
                let db = open(&after).unwrap_or_else(|error| panic!("{place}: {error}"));
                assert_eq!(db.iter().count(), 0, "{place}");
                write_synced(&db, "v").unwrap();
                let db = open(&after.power_cut()).unwrap();
                assert_eq!(db.get("k").unwrap().unwrap(), "v", "{place}");
            }
        }
    }
}

/// A creation is killed. The next session is killed too, and a third opening is cut short at any
/// call. The directory still opens with what was written. Once, a manifest that names only the log
/// of its session was taken for one that lost its end.
#[test]
fn a_crashed_recovery_after_a_crashed_creation_opens() {
    let created = MemEnv::with_log();
    write_synced(&open(&created, &small_options()).unwrap(), "first").unwrap();
    for first in 0..=created.log_len() {
        let session = created.replay(first, CrashModel::Kill, 0);
        let db = open(&session, &small_options()).unwrap();
        write_synced(&db, "v").unwrap();
        let recovered = session.replay(session.log_len(), CrashModel::Kill, 0);
        drop(db);
        drop(open(&recovered, &small_options()).unwrap());
        for last in 0..=recovered.log_len() {
            for model in MODELS {
                let after = recovered.replay(last, model, 1);
                let place = format!("calls {first} and {last}, {model:?}");
                let db = open(&after, &small_options());
                let db = db.unwrap_or_else(|error| panic!("{place}: {error}"));
                assert_eq!(db.get("k").unwrap().unwrap(), "v", "{place}");
            }
        }
    }
}

fn write_synced(db: &Db, value: &str) -> siftdb::Result<()> {
    let entries = vec![(b"k".to_vec(), Some(value.into()))];
    db.write_with(batch_of(&entries), &WriteOptions::new().sync(true))
}

/// A lost sector of a log looks the same after a crash and after disk damage. The records after it
/// tell the difference: they say what was durable when they were written. Without them damage
/// would look like a torn tail.
#[test]
fn damage_below_the_synced_length_is_corruption() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    for number in 0..7 {
        let entries = vec![(vec![b'0' + number], Some(vec![number + 1; 3000]))];
        db.write_with(batch_of(&entries), &WriteOptions::new().sync(number == 3)).unwrap();
    }
    let without_sector_of = |number: u8| {
        let env = env.replay(env.log_len(), CrashModel::Kill, 0);
        let log = begun_logs(&env).remove(0);
        let mut bytes = env.read_file(&log).unwrap();
        let value = vec![number + 1; 3000];
        let start = bytes.windows(3000).position(|window| window == value).unwrap();
        let sector = (start / 512 + 2) * 512;
        bytes[sector..sector + 512].fill(0);
        env.write_file(&log, &bytes);
        env
    };
    for number in 0..4 {
        let error = open(&without_sector_of(number), &small_options()).map(|_| ());
        let error = error.expect_err("a synced batch is damaged");
        assert!(error.is_corruption(), "{error}");
    }
    for number in 4..7 {
        let db = open(&without_sector_of(number), &small_options()).unwrap();
        assert_eq!(scan(&db).unwrap().len(), usize::from(number), "batch {number} is torn");
    }
}

/// A removal that was not synced may be undone by a crash. What such a log holds is in tables, and
/// newer values may be there.
#[test]
fn a_resurrected_log_is_not_read() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    write_synced(&db, "old").unwrap();
    let log = begun_logs(&env).remove(0);
    let bytes = env.read_file(&log).unwrap();
    write_synced(&db, "new").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    assert!(!env.list_files().contains(&log));
    env.write_file(&log, &bytes);
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
    write_synced(&db, "newer").unwrap();
    db.close().unwrap();
    assert!(!env.list_files().contains(&log), "an orphan stays");
}

/// The number of a file that nothing names is not used again either, because a lost record may have
/// named the file. Temporary files are exempt: they are soon renamed or removed.
#[test]
fn no_file_number_is_used_twice() {
    let created = |log: &[String]| -> HashSet<String> {
        let creates = log.iter().filter_map(|call| call.strip_prefix("Create { path: \"/db/"));
        let lasting = creates.filter(|name| !name.contains(".tmp"));
        lasting.map(|name| name.chars().filter(char::is_ascii_digit).collect()).collect()
    };
    // A background compaction may stop early and remove its outputs without a trace.
    let options = small_options().auto_compaction(false);
    let env = MemEnv::with_log();
    open(&env, &options).unwrap().put("k", "v").unwrap();
    let env = env.replay(env.log_len(), CrashModel::Kill, 0);
    let work = |env: &MemEnv| {
        let db = open(env, &options).unwrap();
        for _ in 0..3 {
            write_synced(&db, "v").unwrap();
            db.flush().unwrap();
        }
        db.compact_range(..).unwrap();
    };
    work(&env);
    let log = env.log_text();
    for call in 0..=log.len() {
        let killed = env.replay(call, CrashModel::Kill, 0);
        work(&killed);
        let (before, after) = (created(&log[..call]), created(&killed.log_text()));
        let again: Vec<_> = before.intersection(&after).collect();
        assert!(again.is_empty(), "after call {call}: {again:?} again");
        assert!(after.len() > 6, "{after:?}");
    }
}
