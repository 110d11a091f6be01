//! Tests of write groups with transactions in them, which threads form only now and then: the tests
//! commit several requests as one group, or lead the queue themselves.

use crate::base::error::{Error, Result};
use crate::base::sync::Ordering;
use crate::base::write_batch::WriteBatch;
use crate::db::database::Db;
use crate::db::transaction::Transaction;
use crate::env::mem::MemEnv;
use crate::env::testing::crash::CrashModel;
use crate::env::testing::fault::{Calls, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use crate::options::database::Options;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::write_queue::{Committed, Joined, Request, Switch};
use crate::write::commit::{self, CHECKS_MAX, commit_together};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread::{scope, spawn, yield_now};
use std::time::{Duration, Instant};

fn open(env: &MemEnv) -> (Db, FaultEnv) {
    let faulty = FaultEnv::new(Arc::new(env.clone()));
    let options = Options::new().write_buffer_bytes(64 << 10).auto_compaction(false);
    (options.env(Arc::new(faulty.clone())).open("/db").unwrap(), faulty)
}

/// Commits the transactions as one group; true for each that was written, false after a conflict.
fn commit_all(db: &Db, group: &[Transaction]) -> Vec<bool> {
    let group = group.iter().map(|tx| tx.request(false)).collect();
    let answers = commit_together(db.engine(), group);
    let written = answers.into_iter().map(|answer| match answer {
        Ok(Committed::Written) => true,
        Err(Error::Conflict { .. }) => false,
        other => panic!("{other:?}"),
    });
    written.collect()
}

const KEYS: u8 = 12;

fn key(n: u8) -> Vec<u8> {
    vec![b'a' + n]
}

/// The write of a member, in one of two keyspaces.
#[derive(Clone, Debug)]
enum Act {
    Read(u8),
    Scan(u8, u8),
    Put(u8),
    Delete(u8),
    DeleteRange(u8, u8),
}

fn any_act() -> impl Strategy<Value = (usize, Act)> {
    let n = || 0..KEYS;
    let act = prop_oneof![
        2 => n().prop_map(Act::Read),
        1 => (n(), 1..4u8).prop_map(|(n, count)| Act::Scan(n, n + count)),
        3 => n().prop_map(Act::Put),
        1 => n().prop_map(Act::Delete),
        1 => (n(), 1..4u8).prop_map(|(n, count)| Act::DeleteRange(n, n + count)),
    ];
    (0..2usize, act)
}

/// The state of the log that a refused transaction must leave alone.
fn log_state(db: &Db, env: &MemEnv) -> (u64, u64, u64, u64, usize) {
    let log = db.engine().writer.log.lock();
    let stats = db.stats();
    (log.last_sequence, log.next_sequence, stats.wal_bytes, stats.wal_syncs, env.log_len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn members_are_checked_against_earlier_members(
        members in proptest::collection::vec(proptest::collection::vec(any_act(), 1..5), 1..6),
    ) {
        let (db, _) = open(&MemEnv::new());
        let spaces = [db.keyspace("default").unwrap(), db.keyspace("other").unwrap()];
        let mut model: [BTreeMap<Vec<u8>, Vec<u8>>; 2] = Default::default();
        for (place, space) in spaces.iter().enumerate() {
            for n in (0..KEYS).step_by(2) {
                space.put(key(n), "first").unwrap();
                model[place].insert(key(n), b"first".to_vec());
            }
        }
        let transactions: Vec<_> = members.iter().map(|_| db.transaction()).collect();
        let (mut expected, mut entries) = (Vec::new(), 0);
        let mut touched = BTreeSet::new();
        for (number, (acts, tx)) in members.iter().zip(&transactions).enumerate() {
            let value = number.to_string().into_bytes();
            let (mut read, mut own, mut after) = (BTreeSet::new(), BTreeSet::new(), model.clone());
            let mut count = 0;
            for (at, act) in acts {
                let part = tx.in_keyspace(&spaces[*at]);
                match *act {
                    Act::Read(n) => {
                        part.get(key(n)).unwrap();
                        // What the transaction has written itself is no read.
                        read.extend((!own.contains(&(*at, n))).then_some((*at, n)));
                    }
                    Act::Scan(from, to) => {
                        part.range(key(from)..key(to)).for_each(|entry| drop(entry.unwrap()));
                        read.extend((from..to).map(|n| (*at, n)));
                    }
                    Act::Put(n) => {
                        part.put(key(n), &value).unwrap();
                        after[*at].insert(key(n), value.clone());
                        own.insert((*at, n));
                    }
                    Act::Delete(n) => {
                        part.delete(key(n)).unwrap();
                        after[*at].remove(&key(n));
                        own.insert((*at, n));
                    }
                    Act::DeleteRange(from, to) => {
                        part.delete_range(key(from)..key(to)).unwrap();
                        after[*at].retain(|own, _| *own < key(from) || *own >= key(to));
                        own.extend((from..to).map(|n| (*at, n)));
                    }
                }
                count += u64::from(!matches!(act, Act::Read(_) | Act::Scan(..)));
            }
            let refused = read.intersection(&touched).next().is_some();
            expected.push(!refused);
            if !refused {
                entries += count;
                touched.extend(own);
                model = after;
            }
        }
        let before = db.engine().writer.log.lock().last_sequence;
        prop_assert_eq!(commit_all(&db, &transactions), expected);
        prop_assert_eq!(db.engine().writer.log.lock().last_sequence, before + entries);
        for (space, model) in spaces.iter().zip(&model) {
            let found = space.iter().map(|entry| entry.unwrap());
            let found: BTreeMap<_, _> = found.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(&found, model);
        }
    }
}

/// A transaction that read `read` and writes `write`.
fn transaction(db: &Db, read: &str, write: &str) -> Transaction {
    let tx = db.transaction();
    tx.get(read).unwrap();
    tx.put(write, "by a transaction").unwrap();
    tx
}

#[test]
fn groups_of_refused_members_append_nothing() {
    let env = MemEnv::with_log();
    let (db, _) = open(&env);
    db.put("k", "1").unwrap();
    let group = ["a", "b", "c"].map(|write| transaction(&db, "k", write));
    db.put("k", "2").unwrap();
    let before = log_state(&db, &env);
    // A sync of nothing is none.
    let requests = group.iter().map(|tx| tx.request(true)).collect();
    for answer in commit_together(db.engine(), requests) {
        assert!(matches!(answer, Err(Error::Conflict { key, .. }) if key == b"k"));
    }
    assert_eq!(log_state(&db, &env), before);
    drop(group);
    assert_eq!((db.stats().snapshots, db.iter().count()), (0, 1));
}

/// A leader refuses what others write at the same time: the log must have none of it.
#[test]
fn refused_members_are_gone_after_any_crash() {
    for sync in [false, true] {
        let env = MemEnv::with_log();
        let (db, _) = open(&env);
        db.put("k", "1").unwrap();
        let (before, from) = (db.transaction(), env.log_len());
        // The second and the third read what the first writes, by key and by range.
        let group = [("x", "a"), ("a", "refused"), ("y", "b")];
        let group = group.map(|(read, write)| transaction(&db, read, write));
        group[0].in_keyspace(&db).delete_range("m".."n").unwrap();
        before.range("a".."c").for_each(|entry| drop(entry.unwrap()));
        before.put("refused too", "v").unwrap();
        let members = group.iter().chain([&before]).map(|tx| tx.request(sync));
        let answers = commit_together(db.engine(), members.collect());
        let refused: Vec<_> = answers.iter().map(Result::is_err).collect();
        assert_eq!(refused, [false, true, false, true], "{answers:?}");
        let sequence = db.engine().writer.log.lock().last_sequence;
        assert_eq!(sequence, 4, "one before, two of the first member, one of the third");
        db.put("after", "v").unwrap();
        for call in from..=env.log_len() {
            for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
                let (db, _) = open(&env.replay(call, model, call as u64));
                let there = |key: &str| db.get(key).unwrap().is_some();
                assert!(!there("refused") && !there("refused too"), "after call {call}");
                assert_eq!(there("a"), there("b"), "half of a group after call {call}");
                assert!(there("a") || !there("after"), "a hole after call {call}");
                let all = call == env.log_len() && model == CrashModel::Kill;
                assert!(!all || (there("a") && there("after")));
                db.transact(|tx| tx.put("refused", "again")).unwrap();
            }
        }
    }
}

/// A group of three, in the order in which they are numbered, whose second member is refused.
fn group_with_refused(db: &Db) -> [Transaction; 3] {
    [("x", "first"), ("k", "second"), ("y", "third")]
        .map(|(read, write)| transaction(db, read, write))
}

#[test]
fn failures_answer_all_but_refused_members() {
    for (call, error) in [("write_at", ENOSPC), ("write_at", EIO), ("sync_data", EIO)] {
        let env = MemEnv::new();
        let (db, faulty) = open(&env);
        db.put("k", "1").unwrap();
        let group = group_with_refused(&db);
        db.put("k", "2").unwrap();
        let calls = Calls::Named(call);
        faulty.fail_at(faulty.calls_of(calls), Fault::once(FaultKind::Error(error)).among(calls));
        let requests = group.iter().map(|tx| tx.request(true)).collect();
        let answers = commit_together(db.engine(), requests);
        let [Err(Error::Io { .. }), Err(Error::Conflict { key, .. }), Err(Error::Io { .. })] =
            &answers[..]
        else {
            panic!("{call}: {answers:?}");
        };
        assert_eq!(key, b"k");
        assert_eq!(db.iter().count(), 1, "{call}");
    }
}

#[test]
fn transactions_from_before_a_resume_are_checked() {
    let (db, faulty) = open(&MemEnv::new());
    db.put("k", "1").unwrap();
    let group = group_with_refused(&db);
    let of_refused = transaction(&db, "second", "beside the refused one");
    let of_failed = transaction(&db, "first", "beside the failed one");
    let of_earlier = transaction(&db, "k", "z");
    let of_later = transaction(&db, "later", "z");
    let scan = db.transaction();
    assert_eq!(scan.range("f".."g").count(), 0);
    scan.put("beside the failed ones", "v").unwrap();
    db.put("k", "2").unwrap();
    let calls = Calls::Named("write_at");
    faulty.fail_at(faulty.calls_of(calls), Fault::once(FaultKind::Error(ENOSPC)).among(calls));
    let answers = commit_together(db.engine(), group.iter().map(|tx| tx.request(false)).collect());
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    let read_only = of_refused.commit().unwrap_err();
    assert!(matches!(read_only, Error::ReadOnly { .. }), "{read_only}");
    db.resume().unwrap();
    db.put("later", "1").unwrap();
    // What was not written conflicts with nothing. In one group with the leader's list alone, and
    // in commits of their own with a check before.
    let answers = commit_together(db.engine(), vec![of_failed.request(false)]);
    assert!(matches!(answers[..], [Ok(Committed::Unchecked(_))]), "{answers:?}");
    scan.commit().unwrap();
    transaction(&db, "first", "beside the failed one").commit().unwrap();
    for (late, read) in [(of_earlier, "k"), (of_later, "later")] {
        let conflict = late.commit().unwrap_err();
        assert!(matches!(&conflict, Error::Conflict { key, .. } if key == read.as_bytes()));
    }
}

/// Writes more than the list of recent writes holds.
fn overflow_recent_writes(db: &Db) {
    for n in 0..20 {
        let mut batch = WriteBatch::new();
        (0..20).for_each(|at| _ = batch.put(format!("beside {n} {at}"), "v"));
        let answers = commit_together(db.engine(), vec![Request::of(batch)]);
        assert!(answers[0].is_ok(), "{answers:?}");
    }
}

#[test]
fn unchecked_transactions_are_written_in_the_end() {
    for conflicts in [false, true] {
        let (db, _) = open(&MemEnv::new());
        db.put("k", "1").unwrap();
        let tx = transaction(&db, "k", "written");
        let engine = db.engine();
        let result = scope(|scope| {
            // As a writer that leads while the transaction waits in the queue.
            let Joined::Lead(mut leadership, own) =
                engine.writer.queue.join(Request::of(WriteBatch::new()))
            else {
                panic!("nobody else writes");
            };
            let commit = scope.spawn(|| tx.commit());
            for round in 1..=CHECKS_MAX {
                let group = loop {
                    let group = leadership.take_group(&own);
                    if !group.is_empty() {
                        break group;
                    }
                    yield_now();
                };
                assert!(!group[0].reads.as_ref().unwrap().alone, "round {round}");
                overflow_recent_writes(&db);
                if conflicts && round == CHECKS_MAX {
                    let mut batch = WriteBatch::new();
                    batch.put("k", "2");
                    assert!(commit_together(engine, vec![Request::of(batch)])[0].is_ok());
                    overflow_recent_writes(&db);
                }
                let mut answers = commit_together(engine, group);
                assert!(matches!(answers[..], [Ok(Committed::Unchecked(_))]), "{answers:?}");
                leadership.complete(|place| {
                    std::mem::replace(&mut answers[place], Ok(Committed::Written))
                });
            }
            // The next time it leads, whatever is written until then.
            overflow_recent_writes(&db);
            assert!(leadership.take_group(&own).is_empty());
            drop(leadership);
            commit.join().unwrap()
        });
        match result {
            Ok(()) => assert!(!conflicts),
            Err(Error::Conflict { key, .. }) => assert!(conflicts && key == b"k"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(db.get("written").unwrap().is_some(), !conflicts);
    }
}

#[test]
fn requests_that_are_alone_lead() {
    let (db, _) = open(&MemEnv::new());
    let tx = transaction(&db, "k", "v");
    let mut request = tx.request(false);
    request.reads.as_mut().unwrap().alone = true;
    let engine = db.engine();
    scope(|scope| {
        let Joined::Lead(mut leadership, own) =
            engine.writer.queue.join(Request::of(WriteBatch::new()))
        else {
            panic!("nobody else writes");
        };
        let alone = scope.spawn(|| match engine.writer.queue.join(request) {
            Joined::Lead(mut leadership, own) => {
                // Nor does it take others along.
                let others = leadership.take_group(&own).len();
                leadership.complete(|_| Ok(Committed::Written));
                Some(others)
            }
            Joined::Done(_) => None,
        });
        // A later one is not taken before it, so the queue is full when this one has waited.
        for _ in 0..1_000 {
            assert!(leadership.take_group(&own).is_empty(), "it was taken along");
            yield_now();
        }
        drop(leadership);
        assert_eq!(alone.join().unwrap(), Some(0));
    });
}

/// Has another thread load entries, and closes at once when that waits or has ended.
struct ClosesBesideALoad(Db, mpsc::Sender<Result<()>>);

impl Wake for ClosesBesideALoad {
    fn wake(self: Arc<Self>) {
        let db = self.0.clone();
        let load = spawn(move || db.ingest([("b", "2")]));
        while self.0.engine().writer.queue.waiting() == 0 && !load.is_finished() {
            yield_now();
        }
        let _ = self.1.send(self.0.close_now());
    }
}

/// `close_now` waits for a load, which may wait for the lead of the queue. So the thread that wakes
/// does not have it.
#[test]
fn a_waker_that_closes_waits_for_no_load_that_waits_for_its_writer() {
    let (db, _) = open(&MemEnv::new());
    db.put("z", "0").unwrap();
    let mut watch = db.watch().unwrap();
    let (sender, closed) = mpsc::channel();
    let waker = Waker::from(Arc::new(ClosesBesideALoad(db.clone(), sender)));
    assert!(watch.poll_next(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    spawn(move || db.put("a", "1"));
    closed.recv_timeout(Duration::from_secs(20)).expect("closed").unwrap();
}

/// While memtables wait for their flush and old logs are long, each group once looked at all
/// keyspaces, several times.
#[test]
fn writes_cost_the_same_with_many_keyspaces() {
    let time_of = |keyspaces: u32, active_bytes: usize| {
        let options = Options::new().write_buffer_bytes(64 << 10).immutable_memtables_max(16);
        let db = options.env(Arc::new(MemEnv::new())).open("/db").unwrap();
        let mut batch = WriteBatch::new();
        for n in 0..keyspaces {
            _ = batch.create_keyspace(&n.to_string(), &KeyspaceOptions::new());
        }
        db.write(batch).unwrap();
        let engine = db.engine();
        // The flush waits.
        let flushes = engine.jobs.flushes.lock();
        scope(|scope| {
            // Another thread writes: this one may take no lock before `flushes`.
            let time = scope.spawn(|| {
                let waiting = || engine.catalog.default.view.load().immutables.len();
                let active = || engine.writer.active_bytes.load(Ordering::Relaxed);
                while waiting() < 7 || active() < active_bytes {
                    db.put("k", [7; 900]).unwrap();
                }
                let started = Instant::now();
                (0..200).for_each(|_| db.put("k", "v").unwrap());
                assert_eq!(waiting(), 7);
                started.elapsed()
            });
            let time = time.join().unwrap();
            drop(flushes);
            time
        })
    };
    for active_bytes in [0, 40 << 10] {
        let few = (0..3).map(|_| time_of(2, active_bytes)).min().unwrap();
        let many = (0..3).map(|_| time_of(3_000, active_bytes)).min().unwrap();
        assert!(many < 30 * few, "{few:?} and {many:?}");
    }
}

/// Writers wait by this sum, so it must not drift, whatever ends the wait of a memtable.
#[test]
fn the_sum_of_waiting_memtables_is_that_of_the_views() {
    let options = Options::new().write_buffer_bytes(64 << 10).immutable_memtables_max(16);
    let env = MemEnv::new();
    for round in 0..3usize {
        // Of the round before, logs are recovered.
        let db = options.clone().env(Arc::new(env.clone())).open("/db").unwrap();
        let engine = db.engine();
        // It keeps the memtables of keyspaces that are dropped.
        let mut old = db.snapshot();
        for step in 0..400usize {
            let name = (step % 5).to_string();
            let keyspace = db.keyspace(&name).unwrap();
            keyspace.put(step.to_string(), vec![7; step % 9 * 500]).unwrap();
            match step * 7 % (31 + round) {
                0..2 => {
                    // Mostly its memtable still waits when the keyspace goes.
                    old = db.snapshot();
                    commit::switch(engine, Switch::All).unwrap();
                    db.drop_keyspace(&name).unwrap();
                }
                2..5 => keyspace.delete_range(..).unwrap(),
                5 => keyspace.flush().unwrap(),
                6 => db.flush().unwrap(),
                7..10 => commit::switch(engine, Switch::All).unwrap(),
                _ => {}
            }
            // No flush changes a view meanwhile.
            let _flushes = engine.jobs.flushes.lock();
            let keyspaces = engine.catalog.all_keyspaces();
            let bytes = keyspaces.iter().map(|keyspace| keyspace.view.load().immutable_bytes());
            assert_eq!(bytes.sum::<usize>(), engine.catalog.immutable_bytes(), "step {step}");
        }
        drop(old);
        db.close().unwrap();
    }
}
