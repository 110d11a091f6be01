//! Tests of commits whose own check is over while another writer leads: the leader's half of the
//! check, and transactions that it sends back.
//!
//! The test takes the lead of the write queue. A transaction that commits then ends its own check
//! and waits in the queue. So the test decides what is written between the two.

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::base::write_batch::WriteBatch;
use crate::db::database::Db;
use crate::db::transaction::Transaction;
use crate::env::mem::MemEnv;
use crate::options::database::Options;
use crate::state::write_queue::{CheckedReads, Joined, Leadership, Request, Switch};
use crate::write::commit::commit_together;
use std::thread::{scope, yield_now};

fn open() -> Db {
    let options = Options::new().write_buffer_bytes(64 << 10).level0_compaction_trigger(1);
    let db = options.env(Arc::new(MemEnv::new())).open("/db").unwrap();
    for key in ["b", "d", "f"] {
        db.put(key, "old").unwrap();
    }
    db.keyspace("beside").unwrap();
    db.compact_range(..).unwrap();
    db
}

/// Takes the lead. Nobody takes the request along.
fn lead(db: &Db) -> Leadership<'_> {
    let reads = CheckedReads { set: Default::default(), through: 0, alone: true };
    let request = Request { reads: Some(Box::new(reads)), ..Request::of(WriteBatch::new()) };
    match db.engine().writer.queue.join(request) {
        Joined::Lead(leadership, _) => leadership,
        Joined::Done(_) => unreachable!("nobody takes it along"),
    }
}

fn wait_for(db: &Db, waiting: usize) {
    while db.engine().writer.queue.waiting() < waiting {
        yield_now();
    }
}

/// Writes while the test leads.
fn write(db: &Db, fill: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    fill(&mut batch);
    let answers = commit_together(db.engine(), vec![Request::of(batch)]);
    answers.into_iter().for_each(|answer| drop(answer.unwrap()));
}

/// As many writes as make the list of recent ones forget those before.
fn outrun_the_list(db: &Db) {
    let beside = db.keyspace("beside").unwrap();
    write(db, |batch| {
        for n in 0..400 {
            batch.in_keyspace(&beside).put(format!("{n:03}"), "");
        }
    });
}

/// Commits the transaction. `between` runs after its own check and before its leader's.
fn commit(db: &Db, tx: Transaction, between: impl FnOnce()) -> Result<()> {
    scope(|scope| {
        let leadership = lead(db);
        let committing = scope.spawn(move || tx.commit());
        wait_for(db, 1);
        between();
        drop(leadership);
        committing.join().unwrap()
    })
}

/// As `commit`, with a step after each check of the transaction's own. It must have its answer
/// after the last step.
fn commit_in_steps(db: &Db, tx: Transaction, steps: Vec<Box<dyn FnOnce() + '_>>) -> Result<()> {
    scope(|scope| {
        let mut leadership = lead(db);
        let committing = scope.spawn(move || tx.commit());
        for step in steps {
            wait_for(db, 1);
            step();
            let next = scope.spawn(|| lead(db));
            wait_for(db, 2);
            drop(leadership);
            // The leader after the transaction, whatever that was told.
            leadership = next.join().unwrap();
        }
        while !committing.is_finished() {
            assert_eq!(db.engine().writer.queue.waiting(), 0, "it was sent back once more");
            yield_now();
        }
        drop(leadership);
        committing.join().unwrap()
    })
}

/// The key of a conflict; none without one.
fn conflict(result: Result<()>) -> Option<Vec<u8>> {
    match result {
        Ok(()) => None,
        Err(Error::Conflict { key, .. }) => Some(key),
        Err(error) => panic!("{error}"),
    }
}

/// A transaction that has `read` and writes `out`.
fn begin(db: &Db, read: impl FnOnce(&Transaction)) -> Transaction {
    let tx = db.transaction();
    read(&tx);
    tx.put("out", "1").unwrap();
    tx
}

fn gets_d(tx: &Transaction) {
    assert!(tx.get("d").unwrap().is_some());
}

fn scans_to_d(tx: &Transaction) {
    let mut iter = tx.range("c"..);
    assert_eq!(iter.next().unwrap().unwrap().0, "d");
}

type Fill = fn(&mut WriteBatch);

/// Writes, with the key where a transaction that has read d conflicts, and one that has read from c
/// through d.
const WRITES: [(Fill, Option<&str>, Option<&str>); 8] = [
    (|batch| _ = batch.put("d", "new"), Some("d"), Some("d")),
    (|batch| _ = batch.put("a", "").delete("d"), Some("d"), Some("d")),
    (|batch| _ = batch.put("c", "new"), None, Some("c")),
    (|batch| _ = batch.delete_range("a".."e"), Some("d"), Some("c")),
    (|batch| _ = batch.delete_range("d"..), Some("d"), Some("d")),
    (|batch| _ = batch.delete_range("e".."z"), None, None),
    (|batch| _ = batch.delete_range("a".."c"), None, None),
    (|batch| _ = batch.put("b", "new").put("d0", "new"), None, None),
];

#[test]
fn leaders_find_writes_since_the_own_check() {
    for outruns in [false, true] {
        for (fill, of_get, of_scan) in WRITES {
            for (read, expected) in [(gets_d as fn(&_), of_get), (scans_to_d, of_scan)] {
                let db = open();
                let answer = commit(&db, begin(&db, read), || {
                    write(&db, fill);
                    if outruns {
                        outrun_the_list(&db);
                    }
                });
                let expected = expected.map(|key| key.as_bytes().to_vec());
                assert_eq!(conflict(answer), expected, "outruns: {outruns}");
                assert_eq!(db.get("out").unwrap().is_none(), expected.is_some());
            }
        }
    }
}

/// The transactions and the batch wait in one queue, in order, and make one group.
#[test]
fn members_are_checked_against_earlier_ones() {
    for (fill, of_get, of_scan) in WRITES {
        for (read, expected) in [(gets_d as fn(&_), of_get), (scans_to_d, of_scan)] {
            for first in [true, false] {
                let db = open();
                let tx = begin(&db, read);
                let mut batch = WriteBatch::new();
                fill(&mut batch);
                let groups = db.stats().write_groups;
                let answer = scope(|scope| {
                    let leadership = lead(&db);
                    let (committing, writing);
                    if first {
                        writing = scope.spawn(|| db.write(batch));
                        wait_for(&db, 1);
                        committing = scope.spawn(|| tx.commit());
                    } else {
                        committing = scope.spawn(|| tx.commit());
                        wait_for(&db, 1);
                        writing = scope.spawn(|| db.write(batch));
                    }
                    wait_for(&db, 2);
                    drop(leadership);
                    writing.join().unwrap().unwrap();
                    committing.join().unwrap()
                });
                assert_eq!(db.stats().write_groups, groups + 1);
                let expected = expected.filter(|_| first).map(|key| key.as_bytes().to_vec());
                assert_eq!(conflict(answer), expected, "the batch is first: {first}");
            }
        }
    }
}

/// Of three transactions in one group the first is refused. The others do not conflict with it, and
/// the last conflicts with the second.
#[test]
fn refused_members_conflict_with_nobody() {
    let db = open();
    let txs = [("b", "d"), ("d", "f"), ("f", "b")].map(|(reads, writes)| {
        let tx = db.transaction();
        tx.get(reads).unwrap();
        tx.put(writes, "new").unwrap();
        tx
    });
    let answers = scope(|scope| {
        let leadership = lead(&db);
        let mut committing = Vec::new();
        for (place, tx) in txs.into_iter().enumerate() {
            committing.push(scope.spawn(move || tx.commit()));
            wait_for(&db, place + 1);
        }
        write(&db, |batch| _ = batch.put("b", "newer"));
        drop(leadership);
        committing.into_iter().map(|one| conflict(one.join().unwrap())).collect::<Vec<_>>()
    });
    assert_eq!(answers, [Some(b"b".to_vec()), None, Some(b"f".to_vec())]);
    let found = ["b", "d", "f"].map(|key| db.get(key).unwrap().unwrap());
    assert_eq!(found, ["newer", "old", "new"]);
}

#[test]
fn transactions_sent_back_are_written_in_the_end() {
    for read in [gets_d as fn(&_), scans_to_d] {
        let db = open();
        let answer = commit(&db, begin(&db, read), || outrun_the_list(&db));
        assert_eq!(conflict(answer), None);
        assert_eq!(db.get("out").unwrap().unwrap(), "1");
    }
}

/// Three times the list is outrun between the transaction's own check and its leader's. Then it
/// leads alone, and what came before is found.
#[test]
fn transactions_sent_back_often_lead_alone() {
    for conflicts in [false, true] {
        for read in [gets_d as fn(&_), scans_to_d] {
            let db = open();
            let mut steps: Vec<Box<dyn FnOnce()>> = Vec::new();
            for _ in 0..3 {
                steps.push(Box::new(|| outrun_the_list(&db)));
            }
            steps.push(Box::new(|| {
                if conflicts {
                    write(&db, |batch| _ = batch.put("d", "new"));
                }
                outrun_the_list(&db);
            }));
            let answer = commit_in_steps(&db, begin(&db, read), steps);
            assert_eq!(conflict(answer), conflicts.then(|| b"d".to_vec()));
            assert_eq!(db.get("out").unwrap().is_some(), !conflicts);
        }
    }
}

/// The snapshot of a transaction is registered until its commit ends. So what a compaction keeps
/// shows that the key was deleted, although the list does not know it any more.
#[test]
fn commits_keep_what_shows_a_conflict() {
    for read in [gets_d as fn(&_), scans_to_d] {
        let db = open();
        let answer = commit(&db, begin(&db, read), || {
            write(&db, |batch| _ = batch.delete("d"));
            outrun_the_list(&db);
            let switch = Request { switch: Switch::All, ..Request::of(WriteBatch::new()) };
            commit_together(db.engine(), vec![switch])
                .into_iter()
                .for_each(|answer| drop(answer.unwrap()));
            let is_down = || {
                let view = db.engine().catalog.default.view.load_full();
                view.immutables.is_empty() && view.version.level(0).is_empty()
            };
            while !is_down() {
                yield_now();
            }
        });
        assert_eq!(conflict(answer), Some(b"d".to_vec()));
    }
}

#[test]
fn a_drop_after_the_own_check_conflicts() {
    let db = open();
    let gone = db.keyspace("gone").unwrap();
    gone.put("k", "v").unwrap();
    let tx = begin(&db, |tx| assert!(tx.in_keyspace(&gone).get("k").unwrap().is_some()));
    let answer = commit(&db, tx, || db.drop_keyspace("gone").unwrap());
    assert_eq!(conflict(answer), Some(b"k".to_vec()));
    assert_eq!(db.get("out").unwrap(), None);
}

/// The transaction writes to the keyspace, too: that it may not any more is no answer to what it
/// read there.
#[test]
fn a_drop_of_what_was_read_and_written_conflicts() {
    let db = open();
    let gone = db.keyspace("gone").unwrap();
    gone.put("k", "v").unwrap();
    let tx = begin(&db, |tx| {
        assert!(tx.in_keyspace(&gone).get("k").unwrap().is_some());
        tx.in_keyspace(&gone).put("k", "new").unwrap();
    });
    let answer = commit(&db, tx, || db.drop_keyspace("gone").unwrap());
    assert_eq!(conflict(answer), Some(b"k".to_vec()));
    assert_eq!(db.get("out").unwrap(), None);
}

#[test]
fn a_close_after_the_own_check_refuses() {
    let db = open();
    let tx = begin(&db, gets_d);
    let answer = commit(&db, tx, || db.close().unwrap());
    assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
}
