//! A disk that fills up at any call, and `Db::resume` when there is space again: no acknowledged
//! write is lost, and no refused write appears later, at any crash.

#[cfg(target_os = "linux")]
use crate::support::alone::alone;
use crate::support::data::bytes;
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::rng::Rng;
use crate::support::run::{MODELS, change_stride};
use crate::support::stores::{HOME, as_env, files_ending, open, scan, small_options, until};
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb::env::testing::{Calls, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::{
    CompactRangeOptions, CompactionDecision, CompactionFilter, Db, Error, Event, FilterRebuild,
    Options, Result, WriteBatch, WriteOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `EDQUOT`: the user's share of the disk is used up.
const EDQUOT: i32 = 122;

/// Steps of a session; each writes a batch of two entries.
const STEPS: usize = 36;

fn entries(step: usize) -> [(Vec<u8>, Vec<u8>); 2] {
    [0, 1].map(|side| (format!("{step:04}-{side}").into_bytes(), bytes(step as u64, 1800)))
}

/// The result of a write.
#[derive(Clone, Copy, Debug)]
struct Write {
    step: usize,
    acknowledged: bool,
    synced: bool,
    /// Calls made when it returned.
    call: usize,
}

struct Session {
    disk: MemEnv,
    env: FaultEnv,
    db: Db,
    writes: Vec<Write>,
    step: usize,
    /// Calls made when the last `resume` returned; earlier refused writes are gone.
    resumed: Option<usize>,
    place: String,
}

impl Session {
    fn new(options: &Options, place: String) -> Self {
        let disk = MemEnv::with_log();
        let env = FaultEnv::new(as_env(&disk));
        let db = options.clone().env(Arc::new(env.clone())).open(HOME).unwrap();
        Session { disk, env, db, writes: Vec::new(), step: 0, resumed: None, place }
    }

    /// Continues until a call fails, or to the end.
    fn play(&mut self) -> siftdb::Result<()> {
        while self.step < STEPS {
            let step = self.step;
            self.step += 1;
            let mut batch = WriteBatch::new();
            for (key, value) in entries(step) {
                batch.put(key, value);
            }
            let loads = step == 7;
            let synced = loads || step % 5 == 4;
            let options = WriteOptions::new().sync(synced);
            let result = match step % 3 {
                0 => self.transact(step, &options),
                // A load that fails before it is installed leaves the database writable.
                _ if loads => match self.db.ingest(entries(step)) {
                    Err(_) if self.db.write(WriteBatch::new()).is_ok() => {
                        self.db.write_with(batch, &options)
                    }
                    loaded => loaded.map(drop),
                },
                _ => self.db.write_with(batch, &options),
            };
            let call = self.disk.log_len();
            self.writes.push(Write { step, acknowledged: result.is_ok(), synced, call });
            result?;
            match step {
                8 | 21 => self.db.flush()?,
                15 | 29 => self.db.compact_range(..)?,
                18 => drop(self.db.rebuild_filters(FilterRebuild::All)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a step in a transaction, after one that is refused since it read the same.
    fn transact(&self, step: usize, options: &WriteOptions) -> siftdb::Result<()> {
        let [tx, refused] = [(); 2].map(|()| self.db.transaction());
        for (key, value) in entries(step) {
            tx.get(&key)?;
            tx.put(&key, value)?;
        }
        refused.range(b"0000"..b"9999").try_for_each(|entry| entry.map(drop))?;
        refused.delete_range(..)?;
        refused.put("refused", "v")?;
        tx.commit_with(options)?;
        match refused.commit_with(options) {
            // The other one is: the memtable may be full since, and its switch fail.
            Err(Error::Conflict { .. } | Error::ReadOnly { .. } | Error::Io { .. }) => Ok(()),
            other => panic!("{}: {other:?}", self.place),
        }
    }

    fn acknowledged(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let writes = self.writes.iter().filter(|write| write.acknowledged);
        writes.flat_map(|write| entries(write.step)).collect()
    }

    /// Reads show the acknowledged writes and nothing else, in every state of the database.
    fn check_reads(&self) {
        assert_eq!(scan(&self.db).unwrap(), self.acknowledged(), "{}", self.place);
        for write in &self.writes {
            let [(key, value), _] = entries(write.step);
            let expected = write.acknowledged.then_some(value);
            let found = self.db.get(key).unwrap().map(siftdb::Value::into_vec);
            assert_eq!(found, expected, "{}", self.place);
        }
    }

    /// True if the database takes writes again; false if it must be reopened.
    fn resume(&mut self) -> bool {
        match self.db.resume() {
            Ok(()) => {
                self.resumed = Some(self.disk.log_len());
                true
            }
            Err(Error::ReadOnly { cause }) => {
                let refused = matches!(*cause, Error::Io { op: "sync", .. });
                assert!(refused, "{}: {cause}", self.place);
                false
            }
            Err(error) => panic!("{}: {error}", self.place),
        }
    }

    /// A crash after `call` calls must leave a prefix of the writes with every write that was
    /// durable by then.
    fn check_crash(&self, call: usize, model: CrashModel, seed: u64) {
        let place = format!("{}, then {model:?} {seed} after {call}", self.place);
        let left = self.disk.replay(call, model, seed);
        let db = match open(&left, &small_options()) {
            Ok(db) => db,
            Err(error) => panic!("{place}: {error}"),
        };
        let found = scan(&db).unwrap();
        let is_there = |write: &Write| {
            let there = entries(write.step).map(|(key, _)| found.contains_key(&key));
            assert_eq!(there[0], there[1], "{place}: half of step {}", write.step);
            there[0]
        };
        let mut missing = None;
        for write in &self.writes {
            let there = is_there(write);
            if !write.acknowledged {
                let gone = self.resumed.is_some_and(|resumed| resumed <= call);
                assert!(!there || !gone, "{place}: step {} was refused", write.step);
                continue;
            }
            let promised = write.call <= call && (model == CrashModel::Kill || write.synced);
            assert!(there || !promised, "{place}: step {} is lost", write.step);
            assert!(!there || missing.is_none(), "{place}: {} without {missing:?}", write.step);
            missing = missing.or((!there).then_some(write.step));
        }
        db.put("afterwards", "v").unwrap();
        db.close().unwrap();
        drop(db);
        let db = open(&left, &small_options()).unwrap();
        assert_eq!(db.iter().count(), found.len() + 1, "{place}");
        assert!(db.verify(|_| {}).unwrap().is_sound(), "{place}");
    }

    fn check_crashes(&self, count: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        let calls = self.disk.log_len();
        self.check_crash(calls, CrashModel::Kill, 0);
        self.check_crash(calls, CrashModel::Posix, 0);
        for _ in 0..count {
            // Most of them at the failure and after it.
            let near = self.resumed.unwrap_or(calls).saturating_sub(20);
            let call = match rng.chance(70) {
                true => near + rng.below((calls - near).min(40) + 1),
                false => rng.below(calls + 1),
            };
            self.check_crash(call, *rng.pick(&MODELS), rng.next());
        }
    }

    /// Closes, reopens, and finds every write.
    fn finish(self, resumed: bool) {
        assert_eq!(self.db.close().is_ok(), resumed, "{}", self.place);
        if resumed {
            let expected = self.acknowledged();
            drop(self.db);
            let db = open(&self.disk, &small_options()).unwrap();
            assert_eq!(scan(&db).unwrap(), expected, "{}", self.place);
            assert!(db.verify(|_| {}).unwrap().is_sound(), "{}", self.place);
        }
    }
}

const KINDS: [FaultKind; 4] = [
    FaultKind::ShortWrite,
    FaultKind::Error(ENOSPC),
    FaultKind::ErrorAfter(ENOSPC),
    FaultKind::Error(EDQUOT),
];

/// A session whose calls fail from the `n`-th change on. `None` if it never got there.
fn fill_up(kind: FaultKind, n: u64, options: &Options) -> Option<Session> {
    let mut session = Session::new(options, format!("{kind:?} from change {n} on"));
    let fault = Fault::from_then_on(kind).among(Calls::Changes);
    session.env.fail_at(session.env.calls_of(Calls::Changes) + n, fault);
    let failed = session.play().is_err();
    session.check_reads();
    failed.then_some(session)
}

#[test]
fn resume_continues_after_a_full_disk() {
    let (mut resumed, mut refused, stride) = (0, 0, change_stride() as u64);
    for kind in KINDS {
        let (mut n, mut idle) = (0, 0);
        // Background work makes the number of calls vary a little: a gap is not the end.
        while idle < 12 {
            let Some(mut session) = fill_up(kind, n, &small_options()) else {
                (n, idle) = (n + 1, idle + 1);
                continue;
            };
            idle = 0;
            let full = session.db.resume().unwrap_err();
            assert!(matches!(full, Error::Io { .. } | Error::ReadOnly { .. }), "{full}");
            assert!(matches!(session.db.put("k", "v"), Err(Error::ReadOnly { .. })));
            session.check_reads();
            session.env.heal();
            let goes_on = session.resume();
            if goes_on {
                session.play().unwrap();
                resumed += 1;
            } else {
                refused += 1;
            }
            session.check_reads();
            session.check_crashes(4, n);
            session.finish(goes_on);
            n += stride;
        }
    }
    println!("{resumed} resumed, {refused} refused");
    let enough = resumed * stride > 100 && refused * stride > 10;
    assert!(enough, "{resumed} resumed, {refused} refused");
}

/// The disk fills up again while `resume` creates its files.
#[test]
fn a_failed_resume_can_be_repeated() {
    let options = small_options().auto_compaction(false);
    let (mut failed, mut refused) = (0, 0);
    for kind in [FaultKind::ShortWrite, FaultKind::ErrorAfter(ENOSPC)] {
        for n in (3..70).step_by(11) {
            for again in 0.. {
                let Some(mut session) = fill_up(kind, n, &options) else { break };
                session.place = format!("{}, again at {again}", session.place);
                let fault = Fault::once(kind).among(Calls::Changes);
                session.env.fail_at(session.env.calls_of(Calls::Changes) + again, fault);
                let first = session.db.resume();
                if !session.env.has_fired() {
                    break;
                }
                // The next session removes the remains of a failed removal.
                failed += usize::from(first.is_err());
                session.check_reads();
                session.env.heal();
                let goes_on = session.resume();
                if goes_on {
                    session.play().unwrap();
                }
                refused += usize::from(!goes_on);
                session.check_reads();
                session.check_crashes(3, n + 100 * again);
                session.finish(goes_on);
            }
        }
    }
    println!("{failed} failed, {refused} refused");
    assert!(failed > 40, "{failed} failed, {refused} refused");
}

#[test]
fn resume_refuses_other_failures() {
    let db = open(&MemEnv::with_log(), &small_options()).unwrap();
    db.resume().expect("nothing to resume from");
    db.close().unwrap();
    assert!(matches!(db.resume(), Err(Error::Closed)));
    for (name, kind) in [("write_at", EIO), ("sync_data", EIO), ("sync_data", ENOSPC)] {
        let mut session = Session::new(&small_options(), format!("{name} {kind}"));
        session.db.put("k", "v").unwrap();
        let calls = Calls::Named(name);
        let fault = Fault::once(FaultKind::Error(kind)).among(calls);
        session.env.fail_at(session.env.calls_of(calls), fault);
        session.play().unwrap_err();
        for _ in 0..2 {
            let Err(error) = session.db.resume() else { panic!("{}", session.place) };
            assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
            assert!(error.to_string().contains("reopen"), "{error}");
        }
    }
    let disk = MemEnv::with_log();
    let db = open(&disk, &small_options()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let db = small_options().env(as_env(&disk)).open_read_only(HOME).unwrap();
    assert!(matches!(db.resume(), Err(Error::OpenedReadOnly)));
}

#[test]
fn a_failed_sync_rules_out_resume() {
    // One thread meets a full disk while a sync in another thread fails for good.
    let mut session = Session::new(&small_options().auto_compaction(false), "both".into());
    let writes = Calls::Named("write_at");
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(writes);
    session.env.fail_at(session.env.calls_of(writes), full);
    session.play().unwrap_err();
    let syncs = Calls::Named("sync_all");
    let broken = Fault::once(FaultKind::Error(EIO)).among(syncs);
    // The probe's own sync, then that of the table: only the second is of data.
    session.env.fail_at(session.env.calls_of(syncs) + 1, broken);
    session.db.resume().unwrap_err();
    session.env.heal();
    assert!(!session.resume());
    session.check_reads();
}

#[test]
fn iterators_and_snapshots_survive_a_resume() {
    // Nothing runs in the background: a failed sync of a compaction would rule out `resume`.
    let options = small_options().auto_compaction(false);
    let mut session = Session::new(&options, "readers".into());
    session.play().unwrap();
    session.db.flush().unwrap();
    let expected = scan(&session.db).unwrap();
    let (iter, snapshot) = (session.db.iter(), session.db.snapshot());
    let changes = Calls::Changes;
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(changes);
    session.env.fail_at(session.env.calls_of(changes), full);
    session.db.put("0000-0", "new").unwrap_err();
    session.env.heal();
    assert!(session.resume());
    session.db.put("0000-0", "new").unwrap();
    session.db.compact_range(..).unwrap();
    let all = |iter: siftdb::Iter| -> BTreeMap<Vec<u8>, Vec<u8>> {
        iter.map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec())))
            .collect::<siftdb::Result<_>>()
            .unwrap()
    };
    assert_eq!(all(iter), expected);
    assert_eq!(all(snapshot.iter()), expected);
    assert_eq!(session.db.get("0000-0").unwrap().unwrap(), "new");
}

/// Lets the next `later` files be created, and makes the creation of the one after them fail.
fn fail_to_create(env: &FaultEnv, later: u64) {
    let created = env.calls_of(Calls::Named("create_new"));
    let full = Fault::once(FaultKind::Error(ENOSPC)).among(Calls::Named("create_new"));
    env.fail_at(created + later, full);
}

/// A bulk load of the keys "x" and "y" that is refused in its last step: its table is named by the
/// manifest, and the log after it cannot be begun. Returns that table. There was a flush before.
fn refused_load(db: &Db, disk: &MemEnv, env: &FaultEnv) -> PathBuf {
    // The worker creates no other file after these.
    until("saved", || !files_ending(disk, "STATS").is_empty());
    let before: BTreeSet<_> = files_ending(disk, ".sst").into_iter().collect();
    fail_to_create(env, 1);
    assert!(db.ingest([("x", "refused"), ("y", "refused")]).is_err() && env.has_fired());
    files_ending(disk, ".sst").into_iter().find(|path| !before.contains(path)).unwrap()
}

fn faulty(options: Options) -> (MemEnv, FaultEnv, Db) {
    let disk = MemEnv::new();
    let env = FaultEnv::new(as_env(&disk));
    let db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
    (disk, env, db)
}

/// Holds the compaction that asks it until it may go on.
#[derive(Debug, Default)]
struct Hold {
    entered: AtomicBool,
    go: AtomicBool,
}

impl CompactionFilter for Hold {
    fn name(&self) -> &str {
        "test.Hold"
    }

    fn filter(&self, _: &[u8], _: &[u8]) -> CompactionDecision {
        self.entered.store(true, Ordering::SeqCst);
        until("released", || self.go.load(Ordering::SeqCst));
        CompactionDecision::Keep
    }
}

/// A compaction that ended after a refused load made a view of all tables that the manifest names.
/// Then `resume` removed the file of the load under an iterator.
#[test]
fn a_compaction_beside_a_refused_load_does_not_show_it() {
    let hold = Arc::new(Hold::default());
    let options = Options::new().max_open_files(1).block_cache_bytes(0);
    let (disk, env, db) = faulty(options.compaction_filter(Arc::clone(&hold) as _));
    for key in ["a", "b", "c"] {
        db.put(key, "value").unwrap();
    }
    db.flush().unwrap();
    let compaction = std::thread::spawn({
        let db = db.clone();
        move || db.compact_range_with(.., &CompactRangeOptions::new().force(true))
    });
    until("held", || hold.entered.load(Ordering::SeqCst));
    let load = refused_load(&db, &disk, &env);
    hold.go.store(true, Ordering::SeqCst);
    let ended = compaction.join().unwrap();
    assert!(matches!(ended, Err(Error::ReadOnly { .. })), "{ended:?}");
    assert_eq!(db.tables().len(), 1);
    let iter = db.iter();
    env.heal();
    db.resume().unwrap();
    until("removed", || !disk.list_files().contains(&load));
    db.put("d", "later").unwrap();
    let found: Result<Vec<_>> = iter.keys().collect();
    assert_eq!(found.unwrap(), ["a", "b", "c"]);
    assert_eq!(db.iter().count(), 4);
}

/// `verify` reads every table that the manifest names. Another thread may call `resume` meanwhile,
/// which removes the table of a refused load.
#[test]
fn a_resume_beside_a_verification_removes_no_table_that_it_reads() {
    let (disk, env, db) = faulty(Options::new());
    db.put("a", "value").unwrap();
    db.flush().unwrap();
    let load = refused_load(&db, &disk, &env);
    env.heal();
    let mut resumed = false;
    let report = db.verify(|_| {
        if !std::mem::replace(&mut resumed, true) {
            db.resume().unwrap();
            // A worker has removed what nothing reads by the time of a flush.
            db.put("b", "value").unwrap();
            db.flush().unwrap();
        }
    });
    let report = report.unwrap();
    assert!(resumed && report.is_sound(), "{:?}", report.damage);
    until("removed", || !disk.list_files().contains(&load));
}

/// The log of a session that could not begin was removed, and `verify` missed it.
#[test]
fn a_session_that_could_not_begin_leaves_no_damage() {
    let (disk, _, db) = faulty(Options::new());
    db.put("a", "value").unwrap();
    db.close().unwrap();
    drop(db);
    let env = FaultEnv::new(as_env(&disk));
    let db = Options::new().env(Arc::new(env.clone())).open(HOME).unwrap();
    // The log can be created, and the manifest cannot.
    fail_to_create(&env, 1);
    assert!(db.put("b", "value").is_err() && env.has_fired());
    env.heal();
    let report = db.verify(|_| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

/// Tables that are on the disk, and that no keyspace has.
pub fn unnamed_tables(db: &Db, disk: &MemEnv) -> Vec<PathBuf> {
    let named: BTreeSet<_> = db.tables().iter().map(|table| table.number).collect();
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let mut there = files_ending(disk, ".sst");
    there.retain(|path| number(path).is_none_or(|number| !named.contains(&number)));
    there
}

/// Processor time of this process, in ticks.
#[cfg(target_os = "linux")]
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A reader lets a replaced table go while the database takes no writes. Its file has to stay, and
/// the worker that removes such files tried it again and again, without a pause.
#[cfg(target_os = "linux")]
#[test]
fn files_that_wait_for_resume_keep_no_worker_busy() {
    let name = "resume::files_that_wait_for_resume_keep_no_worker_busy";
    alone(name, "", || {
        let (disk, env, db) = faulty(Options::new());
        db.put("a", "old").unwrap();
        db.flush().unwrap();
        let reader = db.iter();
        db.put("a", "new").unwrap();
        db.compact_range(..).unwrap();
        fail_to_create(&env, 0);
        db.put("b", "value").unwrap();
        assert!(db.flush().is_err() && env.has_fired());
        drop(reader);
        // Nothing happens in this time, so there is nothing to wait for.
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(600));
        let spent = ticks() - before;
        assert!(spent < 12, "{spent} ticks of 60");
        db.resume().unwrap();
        until("removed", || unnamed_tables(&db, &disk).is_empty());
    });
}

/// A flush has written its tables, and writers have taken the log that was made ahead meanwhile. The
/// next one cannot be made.
#[test]
fn a_flush_that_can_make_no_log_leaves_no_table() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let env = FaultEnv::new(as_env(&disk));
    let gated = GateEnv::new(Arc::new(env.clone()), &gate);
    // Nothing else creates a file.
    let options = Options::new().write_buffer_bytes(256 << 10);
    let db = options.auto_compaction(false).env(Arc::new(gated)).open(HOME).unwrap();
    let _end = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".sst"));
    // Every 28th is for the next memtable; two of 27 may wait.
    let fill = |keys: std::ops::Range<u8>| {
        keys.for_each(|key| db.put([key], vec![key; 10_000]).unwrap());
    };
    fill(0..28);
    gate.wait_for_a_call();
    fill(28..56);
    fail_to_create(&env, 0);
    gate.open();
    until("failed", || db.write(WriteBatch::new()).is_err());
    assert!(env.has_fired() && !unnamed_tables(&db, &disk).is_empty());
    env.heal();
    db.resume().unwrap();
    until("removed", || unnamed_tables(&db, &disk).is_empty());
    assert_eq!(db.iter().filter(Result::is_ok).count(), 56);
}

/// A write or the creation of a file fails for lack of space, in a flush, a compaction, a load, or
/// the `resume` after that. Once, the new tables of many such jobs stayed until the next opening:
/// each time the disk was full, it got fuller.
#[test]
fn a_resume_leaves_no_table_that_nothing_names() {
    let mut resumed = 0;
    for operation in ["create_new", "write_at"] {
        for again in [None, Some(0), Some(1), Some(2), Some(3)] {
            for n in 0.. {
                let (disk, env, db) = faulty(small_options().compaction_threads(1));
                let fill = |upto: u8| {
                    for number in 0..upto {
                        db.put([number], [number; 2000])?;
                    }
                    db.flush()
                };
                fill(40).unwrap();
                let full = Fault::once(FaultKind::Error(ENOSPC)).among(Calls::Named(operation));
                let calls = || env.calls_of(Calls::Named(operation));
                env.fail_at(calls() + n, full);
                // Refused if a compaction has failed by now.
                let mut load = db.table_writer();
                let loaded = match &mut load {
                    Ok(load) => load.put("a load", "v"),
                    Err(error) => Err(error.clone()),
                };
                let _ = fill(40).and_then(|()| fill(10)).and_then(|()| db.compact_range(..));
                let _ = loaded.and_then(|()| db.ingest([("b", "v")])).and_then(|_| fill(40));
                drop(load);
                let has_fired = env.has_fired();
                env.heal();
                if db.write(WriteBatch::new()).is_err() {
                    if let Some(later) = again {
                        env.fail_at(calls() + later, full);
                        let _ = db.resume();
                        env.heal();
                    }
                    db.resume().unwrap();
                    resumed += 1;
                }
                let place = format!("tables removed: {operation} {n}, then {again:?}");
                until(&place, || unnamed_tables(&db, &disk).is_empty());
                if !has_fired {
                    break;
                }
            }
        }
    }
    assert!(resumed > 100, "{resumed}");
}

/// Nothing installs the result of a compaction that was running when the disk was full. So it ends,
/// and `resume` does not wait for all that it would write.
#[test]
fn resume_waits_for_no_compaction_that_is_in_vain() {
    let env = FaultEnv::new(as_env(&MemEnv::new()));
    let begun = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&begun);
    let listener = move |event: &Event| {
        if matches!(event, Event::CompactionBegun { .. }) {
            seen.store(true, Ordering::SeqCst);
        }
    };
    // At this pace it takes half a minute.
    let options = Options::new().snappy(false).compaction_bytes_per_second(1 << 20);
    let options = options.level0_compaction_trigger(2).event_listener(Arc::new(listener));
    let db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
    for round in 0..2 {
        (0..16_u64).for_each(|n| db.put(n.to_string(), bytes(n + round, 1 << 20)).unwrap());
        db.flush().unwrap();
    }
    until("a compaction begins", || begun.load(Ordering::SeqCst));
    let calls = Calls::Named("write_at");
    env.fail_at(env.calls_of(calls), Fault::once(FaultKind::Error(ENOSPC)).among(calls));
    while db.put("refused", "v").is_ok() {}
    env.heal();
    let started = Instant::now();
    db.resume().unwrap();
    let waited = started.elapsed();
    assert!(waited < Duration::from_secs(8), "{waited:?}");
    db.put("k", "v").unwrap();
    db.close().unwrap();
}

/// What a `resume` could not put in place goes with the next one.
#[test]
fn failed_resumes_leave_no_temporary_files() {
    let mut failed = 0;
    for n in 0..40 {
        let disk = MemEnv::new();
        let env = FaultEnv::new(as_env(&disk));
        let db = small_options().env(Arc::new(env.clone())).open(HOME).unwrap();
        db.put("k", "v").unwrap();
        let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Changes);
        env.fail_at(env.calls_of(Calls::Changes), full);
        db.put("refused", "v").unwrap_err();
        env.heal();
        let full = Fault::once(FaultKind::Error(ENOSPC)).among(Calls::Changes);
        env.fail_at(env.calls_of(Calls::Changes) + n, full);
        failed += usize::from(db.resume().is_err());
        env.heal();
        match db.resume() {
            Ok(()) => until("without temporary files", || files_ending(&disk, ".tmp").is_empty()),
            Err(error) => assert!(matches!(error, Error::ReadOnly { .. }), "{n}: {error}"),
        }
    }
    assert!(failed > 6, "{failed}");
}
