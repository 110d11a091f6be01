//! When transactions conflict, scenario by scenario: each fails if one part of the check is gone.
//!
//! The check looks for newer writes in the list of recent ones, in memtables and in tables. Each
//! scenario runs with the other thread's write in each of these places ([`Place`]). Those that need
//! another thread at one moment of a commit are in `src/db/conflict_tests.rs`.

use crate::support::gate::{Gate, GateEnv, Stops};
use crate::support::stores::{as_env, small_options};
use siftdb::env::MemEnv;
use siftdb::{Db, Error, Filter, Keyspace, Result, Transaction, WriteBatch, WriteOptions};
use std::sync::Arc;
use std::time::Duration;

fn open() -> Db {
    small_options().env(as_env(&MemEnv::new())).auto_compaction(false).open("/db").unwrap()
}

/// The keyspace and key of a conflict; none without one.
fn conflict(result: Result<()>) -> Option<(String, Vec<u8>)> {
    match result {
        Ok(()) => None,
        Err(Error::Conflict { keyspace, key }) => Some((keyspace.to_string(), key)),
        Err(error) => panic!("{error}"),
    }
}

/// Where a commit finds what others wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the list of recent writes, and in a memtable.
    List,
    /// In a memtable only.
    Memtable,
    /// In a table of level 0.
    Table,
    /// In a table of a sorted level.
    Level,
}

const PLACES: [Place; 4] = [Place::List, Place::Memtable, Place::Table, Place::Level];

impl Place {
    /// Moves what was written to this place.
    fn bring(self, db: &Db) {
        match self {
            Place::List => return,
            Place::Memtable => {}
            Place::Table => db.flush().unwrap(),
            Place::Level => db.compact_range(..).unwrap(),
        }
        outrun_the_list(db);
    }
}

/// Writes more than the list of recent writes holds, to a keyspace that nobody reads.
fn outrun_the_list(db: &Db) {
    let beside = db.keyspace("beside").unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..400 {
        batch.in_keyspace(&beside).put(format!("{n:03}"), "");
    }
    db.write(batch).unwrap();
}

/// A database with the keys b, d, f and h in a table, and a transaction that has `read` in it and
/// will write `out`.
fn begun(read: impl Fn(&Transaction)) -> (Db, Transaction) {
    let db = open();
    for key in ["b", "d", "f", "h"] {
        db.put(key, "old").unwrap();
    }
    db.compact_range(..).unwrap();
    let tx = db.transaction();
    read(&tx);
    let out = db.keyspace("out").unwrap();
    tx.in_keyspace(&out).put("out", "1").unwrap();
    (db, tx)
}

/// Checks that a transaction with that read conflicts with each of the `hits` at its first key, and
/// with none of the `misses`, wherever these writes are.
fn check(read: impl Fn(&Transaction), hits: &[Write], misses: &[Write]) {
    for place in PLACES {
        for write in hits.iter().chain(misses) {
            let (db, tx) = begun(&read);
            write.run(&db);
            place.bring(&db);
            let found = conflict(tx.commit());
            assert_eq!(found.is_some(), hits.contains(write), "{write:?}, {place:?}: {found:?}");
            assert_eq!(db.keyspace("out").unwrap().get("out").unwrap().is_none(), found.is_some());
            if let (Some((keyspace, key)), Write::Put(written) | Write::Delete(written)) =
                (found, write)
            {
                assert_eq!((&keyspace[..], &key[..]), ("default", written.as_bytes()));
            }
        }
    }
}

/// What another thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Put(&'static str),
    Delete(&'static str),
    DeleteRange(&'static str, &'static str),
}
use Write::{Delete, DeleteRange, Put};

impl Write {
    fn run(self, db: &Db) {
        match self {
            Put(key) => db.put(key, "new").unwrap(),
            Delete(key) => db.delete(key).unwrap(),
            DeleteRange(start, end) => db.delete_range(start..end).unwrap(),
        }
    }
}

/// Reads `steps` entries of a range, forwards or backwards.
fn steps(range: std::ops::Range<&'static str>, steps: usize, back: bool) -> impl Fn(&Transaction) {
    move |tx| {
        let mut iter = tx.range(range.clone());
        for _ in 0..steps {
            let entry = if back { iter.next_back() } else { iter.next() };
            entry.unwrap().unwrap();
        }
    }
}

#[test]
fn a_key_that_was_read_conflicts() {
    let get = |tx: &Transaction| assert!(tx.get("d").unwrap().is_some());
    let hits = [Put("d"), Delete("d"), DeleteRange("c", "e"), DeleteRange("d", "e")];
    let misses = [Put("c"), Put("e"), Delete("b"), DeleteRange("a", "d"), DeleteRange("d0", "z")];
    check(get, &hits, &misses);
    check(|tx| drop(tx.multi_get(["d"]).unwrap()), &hits, &misses);
    check(|tx| tx.set_read_for_update("d").unwrap(), &hits, &misses);
}

#[test]
fn an_absent_key_that_was_read_conflicts() {
    let get = |tx: &Transaction| assert!(tx.get("c").unwrap().is_none());
    check(get, &[Put("c")], &[Put("b"), Put("d"), DeleteRange("a", "c"), DeleteRange("d", "z")]);
    check(|tx| assert!(!tx.contains_key("c").unwrap()), &[Put("c")], &[Put("d")]);
}

#[test]
fn phantoms_of_forward_scans_conflict() {
    // Not ended: from the bound through the last entry.
    let hits = [Put("a5"), Put("c"), Put("d"), Delete("b"), DeleteRange("d", "e")];
    let misses = [Put("a"), Put("e"), Put("f"), DeleteRange("d0", "z"), DeleteRange("A", "a5")];
    check(steps("a5".."g", 2, false), &hits, &misses);
    // Ended: up to the bound.
    let ended = |tx: &Transaction| assert_eq!(tx.range("a5".."g").count(), 3);
    let hits = [Put("a5"), Put("c"), Put("f5"), Delete("f"), DeleteRange("e", "f0")];
    check(ended, &hits, &[Put("a"), Put("g"), Delete("h"), DeleteRange("g", "z")]);
    // Empty: the whole gap.
    let gap = |tx: &Transaction| assert_eq!(tx.range("d1".."d9").count(), 0);
    check(gap, &[Put("d1"), Put("d8")], &[Put("d"), Put("d9"), DeleteRange("e", "z")]);
}

#[test]
fn phantoms_of_backward_scans_conflict() {
    let hits = [Put("f5"), Put("e"), Put("d"), Delete("f"), DeleteRange("c", "d0")];
    let misses = [Put("g"), Put("c"), Put("b"), DeleteRange("a", "d"), DeleteRange("g", "z")];
    check(steps("a5".."g", 2, true), &hits, &misses);
    let ended = |tx: &Transaction| assert_eq!(tx.range("a5".."g").rev().count(), 3);
    let hits = [Put("a5"), Put("c"), Put("f5"), Delete("b"), DeleteRange("a", "c")];
    check(ended, &hits, &[Put("a"), Put("g"), Delete("h"), DeleteRange("g", "z")]);
}

#[test]
fn phantoms_at_first_and_last_conflict() {
    let first = |tx: &Transaction| assert_eq!(tx.first().unwrap().unwrap().0, "b");
    check(first, &[Put(""), Put("a"), Put("b"), Delete("b")], &[Put("b0"), Delete("d")]);
    let last = |tx: &Transaction| assert_eq!(tx.last().unwrap().unwrap().0, "h");
    check(last, &[Put("h0"), Put("z"), Delete("h")], &[Put("g"), Delete("f")]);
}

#[test]
fn an_iterator_that_lives_counts_whole() {
    for place in PLACES {
        for key in ["a", "c", "z"] {
            let (db, tx) = begun(|_| {});
            let mut iter = tx.range("a"..);
            iter.next().unwrap().unwrap();
            db.put(key, "new").unwrap();
            place.bring(&db);
            assert!(conflict(tx.commit()).is_some(), "{key}, {place:?}");
            drop(iter);
        }
    }
}

#[test]
fn cursors_note_each_way_they_went() {
    // From e to f, back to d, and on to h after a seek.
    let read = |tx: &Transaction| {
        let mut cursor = tx.range("a".."z").cursor();
        assert!(cursor.seek("e").unwrap() && cursor.prev().unwrap());
        assert_eq!(cursor.key().unwrap(), b"d");
        assert!(cursor.seek("g").unwrap());
        assert_eq!(cursor.key().unwrap(), b"h");
    };
    let hits = [Put("e"), Put("f"), Put("d5"), Delete("d"), Put("g5"), Delete("h")];
    check(read, &hits, &[Put("c"), Put("f5"), Put("i"), Delete("b")]);
}

#[test]
fn cursors_note_the_ranges_they_sought() {
    // From a5 to b, the gap from d1 to d9, and all from e to g.
    let read = |tx: &Transaction| {
        let mut cursor = tx.range("a".."z").cursor();
        assert!(cursor.seek_range("a5".."c").unwrap());
        assert!(!cursor.seek_range("d1".."d9").unwrap());
        assert!(!cursor.seek_range("zz"..).unwrap());
        assert!(cursor.seek_range("e".."g").unwrap() && cursor.seek_to_last().unwrap());
        assert!(!cursor.prev().unwrap());
    };
    let hits = [Put("a5"), Delete("b"), Put("d1"), Put("d8"), Put("e"), Put("f5")];
    check(read, &hits, &[Put("a"), Put("b5"), Put("d"), Put("d9"), Put("g"), Put("zz")]);
}

/// Both read what the other one writes, and none writes what it reads itself.
#[test]
fn write_skew_is_refused() {
    for place in PLACES {
        let db = open();
        for doctor in ["ada", "bob"] {
            db.put(doctor, "on call").unwrap();
        }
        let (one, other) = (db.transaction(), db.transaction());
        for (tx, leaves) in [(&one, "ada"), (&other, "bob")] {
            assert_eq!(tx.multi_get(["ada", "bob"]).unwrap().iter().flatten().count(), 2);
            tx.delete(leaves).unwrap();
        }
        one.commit().unwrap();
        place.bring(&db);
        assert_eq!(conflict(other.commit()), Some(("default".into(), b"ada".to_vec())));
        assert_eq!(db.iter().count(), 1, "{place:?}");
    }
}

/// As write skew, where both find that a range has nothing and insert into it.
#[test]
fn write_skew_by_scans_is_refused() {
    for place in PLACES {
        let db = open();
        let (one, other) = (db.transaction(), db.transaction());
        for (tx, books) in [(&one, "room 1"), (&other, "room 2")] {
            assert_eq!(tx.prefix("room").count(), 0);
            tx.put(books, "booked").unwrap();
        }
        one.commit().unwrap();
        place.bring(&db);
        assert_eq!(conflict(other.commit()), Some(("default".into(), b"room 1".to_vec())));
        assert_eq!(db.iter().count(), 1, "{place:?}");
    }
}

#[test]
fn of_two_updates_one_is_refused() {
    for place in PLACES {
        let db = open();
        db.put("n", "1").unwrap();
        let (one, other) = (db.transaction(), db.transaction());
        for tx in [&one, &other] {
            assert_eq!(tx.get("n").unwrap().unwrap(), "1");
            tx.put("n", "2").unwrap();
        }
        one.commit().unwrap();
        place.bring(&db);
        assert!(conflict(other.commit()).is_some(), "{place:?}");
    }
}

/// A transaction never sees one half of a write, and a commit refuses what it saw before it.
#[test]
fn read_skew_is_neither_seen_nor_committed() {
    for place in PLACES {
        let db = open();
        let pair = |value: &str| {
            let mut batch = WriteBatch::new();
            batch.put("x", value).put("y", value);
            db.write(batch).unwrap();
        };
        pair("1");
        let (tx, looks) = (db.transaction(), db.transaction());
        for tx in [&tx, &looks] {
            assert_eq!(tx.get("x").unwrap().unwrap(), "1");
        }
        pair("2");
        place.bring(&db);
        for tx in [&tx, &looks] {
            assert_eq!(tx.get("y").unwrap().unwrap(), "1", "{place:?}");
        }
        tx.put("sum", "2").unwrap();
        assert!(conflict(tx.commit()).is_some());
        assert_eq!(conflict(looks.commit()), None, "it writes nothing");
    }
}

#[test]
fn blind_writes_do_not_conflict() {
    for place in PLACES {
        let (db, tx) = begun(|tx| {
            tx.put("b", "tx").unwrap();
            tx.delete("d").unwrap();
            tx.delete_range("e".."g").unwrap();
        });
        [Put("b"), Put("d"), Put("f"), DeleteRange("a", "z")].iter().for_each(|one| one.run(&db));
        place.bring(&db);
        assert_eq!(conflict(tx.commit()), None, "{place:?}");
        assert_eq!(db.get("b").unwrap().unwrap(), "tx");
    }
}

#[test]
fn reads_of_own_writes_do_not_conflict() {
    let own = |tx: &Transaction| {
        tx.put("b", "own").unwrap();
        tx.delete_range("c".."e").unwrap();
        assert_eq!(tx.get("b").unwrap().unwrap(), "own");
        assert_eq!(tx.multi_get(["b", "d"]).unwrap()[1], None);
    };
    check(own, &[], &[Put("b"), Put("d"), DeleteRange("a", "e")]);
}

#[test]
fn reads_remain_after_a_rollback() {
    let read = |tx: &Transaction| {
        let savepoint = tx.savepoint();
        tx.get("d").unwrap();
        assert_eq!(tx.range("e".."g").count(), 1);
        tx.put("d", "tx").unwrap();
        tx.rollback_to(&savepoint).unwrap();
    };
    let hits = [Put("d"), Delete("d"), Put("e"), Put("f"), DeleteRange("f", "g")];
    check(read, &hits, &[Put("b"), Put("c"), Put("g")]);
}

#[test]
fn an_expired_entry_is_no_conflict() {
    for place in PLACES {
        let db = open();
        let soon = WriteOptions::new().expire_after(Duration::from_millis(1));
        db.put_with("k", "v", &soon).unwrap();
        let tx = db.transaction();
        let _ = tx.get("k").unwrap();
        tx.put("out", "1").unwrap();
        while db.get("k").unwrap().is_some() {
            std::thread::yield_now();
        }
        place.bring(&db);
        assert_eq!(conflict(tx.commit()), None, "{place:?}");
    }
}

#[test]
fn the_drop_of_a_read_keyspace_conflicts() {
    type Read = fn(&Transaction, &Keyspace);
    let reads: [(Read, &[u8]); 4] = [
        (|tx, gone| drop(tx.in_keyspace(gone).get("k").unwrap()), b"k"),
        (|tx, gone| drop(tx.in_keyspace(gone).get("absent").unwrap()), b"absent"),
        (|tx, gone| assert_eq!(tx.in_keyspace(gone).prefix("k").count(), 1), b"k"),
        (|tx, gone| tx.in_keyspace(gone).set_read_for_update("j").unwrap(), b"j"),
    ];
    for place in PLACES {
        for (read, key) in reads {
            for again in [false, true] {
                let db = open();
                let gone = db.keyspace("gone").unwrap();
                gone.put("k", "v").unwrap();
                let tx = db.transaction();
                read(&tx, &gone);
                tx.put("out", "1").unwrap();
                db.drop_keyspace("gone").unwrap();
                if again {
                    db.keyspace("gone").unwrap().put("k", "v").unwrap();
                }
                place.bring(&db);
                assert_eq!(conflict(tx.commit()), Some(("gone".into(), key.to_vec())), "{place:?}");
                assert_eq!(db.get("out").unwrap(), None);
            }
        }
    }
}

/// The check reads a table, which takes long. In the meantime a key that it asked for before, or
/// will ask for, is deleted: the leader finds it in the list, or has it checked again.
#[test]
fn writes_during_the_check_conflict() {
    for (key, outruns) in [("0", false), ("0", true), ("x", false), ("x", true)] {
        let (gate, disk) = (Gate::default(), MemEnv::new());
        let options = small_options().block_cache_bytes(0).auto_compaction(false);
        let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
        let db = options.filter(Filter::none()).env(env).open("/db").unwrap();
        db.put(key, "old").unwrap();
        db.compact_range(..).unwrap();
        let tx = db.transaction();
        for key in [key, "b"] {
            tx.get(key).unwrap();
        }
        tx.put("out", "1").unwrap();
        // The table has newer entries around the key, so the check must read it.
        db.put("a", "new").unwrap();
        db.put("c", "new").unwrap();
        db.flush().unwrap();
        gate.shut(Stops::Reads);
        let answer = std::thread::scope(|scope| {
            let committing = scope.spawn(|| tx.commit());
            gate.wait_for_a_call();
            db.delete(key).unwrap();
            if outruns {
                outrun_the_list(&db);
            }
            gate.open();
            committing.join().unwrap()
        });
        let found = conflict(answer);
        assert_eq!(found, Some(("default".into(), key.into())), "{key}, outruns: {outruns}");
        assert_eq!(db.get("out").unwrap(), None);
    }
}

/// The flush of the memtable waits at its sync.
#[test]
fn writes_in_immutable_memtables_conflict() {
    for write in [Put("d"), Delete("d"), DeleteRange("a", "z")] {
        for scans in [false, true] {
            let (gate, disk) = (Gate::default(), MemEnv::new());
            let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
            let db = small_options().immutable_memtables_max(4).env(env).open("/db").unwrap();
            db.put("d", "old").unwrap();
            db.keyspace("beside").unwrap();
            let tx = db.transaction();
            match scans {
                true => assert_eq!(tx.range("c".."e").count(), 1),
                false => assert!(tx.get("d").unwrap().is_some()),
            }
            tx.put("out", "1").unwrap();
            write.run(&db);
            outrun_the_list(&db);
            gate.shut(Stops::Syncs);
            let answer = std::thread::scope(|scope| {
                let flushing = scope.spawn(|| db.flush());
                gate.wait_for_a_call();
                let answer = tx.commit();
                gate.open();
                flushing.join().unwrap().unwrap();
                answer
            });
            assert!(conflict(answer).is_some(), "{write:?}, scans: {scans}");
        }
    }
}
