//! Bulk loads: what they answer, when they appear, and what a failure, a crash or damage leaves.

use crate::support::filters::one_of_each_layout;
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::model::Map;
use crate::support::reads::all_reads;
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{HOME, as_env, files_ending, name, open, scan, small_options, until};
use siftdb::env::MemEnv;
use siftdb::env::testing::{Calls, CrashModel, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::{
    ChangedEntry, CompactRangeOptions, CompactionDecision, CompactionFilter, Db, Error,
    KeyspaceOptions, Options, Result, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn key(number: usize) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Some keys of a range, with values that say the round.
fn entries(rng: &mut Rng, round: usize) -> Map {
    let (first, width) = (rng.below(900), 1 + rng.below(400));
    let step = 1 + rng.below(7);
    let value = |rng: &mut Rng| format!("round {round} ").repeat(rng.below(9)).into_bytes();
    (first..first + width).step_by(step).map(|n| (key(n), value(rng))).collect()
}

/// Every way of reading, and a verification.
fn check(db: &Db, expected: &Map, place: &str) {
    let found = all_reads(db, (0..1300).step_by(3).map(key), place);
    assert!(found == *expected, "{place}: {} of {} entries", found.len(), expected.len());
}

/// A write of any kind, to the database and to the map.
fn write_some(db: &Db, map: &mut Map, rng: &mut Rng, round: usize) {
    match rng.below(4) {
        0 => {
            let from = key(rng.below(1200));
            let to = [&from[..], b"9"].concat();
            db.delete_range(&from[..]..&to[..]).unwrap();
            map.retain(|key, _| *key < from || *key >= to);
        }
        1 => {
            let key = key(rng.below(1200));
            db.delete(&key).unwrap();
            map.remove(&key);
        }
        _ => {
            for (key, value) in entries(rng, 1000 + round).into_iter().take(40) {
                db.put(&key, &value).unwrap();
                map.insert(key, value);
            }
        }
    }
}

#[test]
fn loads_read_like_writes() {
    for (seed, filter) in (1..).zip(one_of_each_layout()) {
        let (env, mut rng, mut expected) = (MemEnv::new(), Rng::new(seed), Map::new());
        let options = || small_options().filter(filter.filter.clone());
        let mut db = open(&env, &options()).unwrap();
        let mut sequence = 0;
        for round in 0..40 {
            let place = format!("{}, round {round}", filter.name);
            (0..rng.below(4)).for_each(|_| write_some(&db, &mut expected, &mut rng, round));
            let before = (db.snapshot(), db.iter(), expected.clone());
            let load = entries(&mut rng, round);
            let report = match rng.below(3) {
                0 => db.ingest(&load).unwrap(),
                1 => db.ingest_unsorted(load.iter().rev()).unwrap(),
                _ => {
                    let mut writer = db.table_writer().unwrap();
                    load.iter().for_each(|(key, value)| writer.put(key, value).unwrap());
                    writer.finish().unwrap()
                }
            };
            assert_eq!(report.entries, load.len() as u64);
            assert!(report.tables > 0 && report.bytes > 0 && report.sequence > sequence);
            sequence = report.sequence;
            expected.extend(load);
            check(&db, &expected, &place);
            let (snapshot, iter, earlier) = before;
            let seen: Map = snapshot
                .iter()
                .map(|entry| entry.unwrap())
                .map(|(key, value)| (key.into_vec(), value.into_vec()))
                .collect();
            assert_eq!(seen, earlier, "{place}");
            assert_eq!(iter.count(), earlier.len(), "{place}");
            drop(snapshot);
            if rng.below(3) == 0 {
                db.compact_range(..).unwrap();
                check(&db, &expected, &place);
            }
            if rng.below(4) == 0 {
                if rng.below(2) == 0 {
                    db.close().unwrap();
                }
                drop(db);
                db = open(&env, &options()).unwrap();
                check(&db, &expected, &place);
            }
        }
    }
}

#[test]
fn power_cuts_after_loads_lose_nothing() {
    for seed in seeds(20) {
        let (mut env, mut rng, mut expected) = (MemEnv::with_log(), Rng::new(seed), Map::new());
        for round in 0..12 {
            let db = open(&env, &small_options()).unwrap();
            assert_eq!(scan(&db).unwrap(), expected, "seed {seed}, round {round}");
            // Another keyspace keeps older logs alive.
            let other = db.keyspace("other").unwrap();
            for part in 0..1 + rng.below(3) {
                other.put(key(part), "kept in a log").unwrap();
                write_some(&db, &mut expected, &mut rng, round);
                let load = entries(&mut rng, round);
                db.ingest(&load).unwrap();
                expected.extend(load);
            }
            let cut = env.power_cut();
            drop((db, other));
            env = cut;
        }
    }
}

#[test]
fn refused_loads_leave_nothing() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    db.put("b", "old").unwrap();
    db.flush().unwrap();
    let tables = files_ending(&env, ".sst");
    let many = |n: usize| (key(n), vec![n as u8; 100]);
    // In the last of many entries, when tables are finished.
    let wrong_order = (0..3000).map(many).chain([many(7)]);
    match db.ingest(wrong_order).unwrap_err() {
        Error::KeyOrder { entry, key: wrong, previous } => {
            assert_eq!((entry, wrong, previous), (3001, key(7), key(2999)));
        }
        other => panic!("{other}"),
    }
    let doubled = db.ingest([("a", "1"), ("b", "2"), ("b", "3")]).unwrap_err();
    assert_eq!(doubled.kind(), "key_order");
    assert!(doubled.to_string().starts_with("entry 3 of the load has the key \"b\" after \"b\""));
    let long = db.ingest([(vec![1; 65_536], "")]).unwrap_err();
    assert!(long.to_string().contains("entry 1 of a load has a key of 65536 bytes"), "{long}");
    let failing = (0..3000).map(|n| if n < 2999 { Ok(many(n)) } else { Err(Error::Closed) });
    assert!(matches!(db.ingest(failing), Err(Error::Closed)));
    let failing = (0..3000).map(|n| if n < 2999 { Ok(many(n)) } else { Err(Error::Closed) });
    assert!(matches!(db.ingest_unsorted(failing), Err(Error::Closed)));
    let mut dropped = db.table_writer().unwrap();
    (0..3000).map(many).for_each(|(key, value)| dropped.put(key, value).unwrap());
    assert!(files_ending(&env, ".sst").len() > tables.len());
    drop(dropped);
    // An error that the program ignores.
    let mut ignored = db.table_writer().unwrap();
    ignored.put("b", "1").unwrap();
    let _ = ignored.put("a", "2");
    assert_eq!(ignored.put("c", "3").unwrap_err().kind(), "key_order");
    assert_eq!(ignored.finish().unwrap_err().kind(), "key_order");
    let nothing = db.ingest(Vec::<(Vec<u8>, Vec<u8>)>::new()).unwrap();
    assert_eq!(nothing, Default::default());
    assert_eq!(files_ending(&env, ".sst"), tables);
    assert!(files_ending(&env, ".tmp").is_empty());
    assert_eq!(scan(&db).unwrap().len(), 1);
    assert_eq!(db.get("b").unwrap().unwrap(), "old");
    db.put("c", "still writable").unwrap();
}

#[test]
fn closed_dropped_and_read_only_databases_take_no_load() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let passing = db.keyspace("passing").unwrap();
    let mut writer = passing.table_writer().unwrap();
    writer.put("a", "1").unwrap();
    db.drop_keyspace("passing").unwrap();
    assert!(matches!(writer.finish(), Err(Error::KeyspaceDropped { .. })));
    assert!(matches!(passing.ingest([("a", "1")]), Err(Error::KeyspaceDropped { .. })));
    let mut writer = db.table_writer().unwrap();
    writer.put("a", "1").unwrap();
    db.close().unwrap();
    assert!(matches!(writer.put("b", "1"), Err(Error::Closed)));
    assert!(matches!(writer.finish(), Err(Error::Closed)));
    assert!(matches!(db.ingest([("a", "1")]), Err(Error::Closed)));
    drop((db, passing));
    assert!(files_ending(&env, ".sst").is_empty());
    let read_only = small_options().env(as_env(&env)).open_read_only(HOME).unwrap();
    assert!(matches!(read_only.ingest([("a", "1")]), Err(Error::OpenedReadOnly)));
}

#[test]
fn loads_go_as_deep_as_they_fit() {
    let db = open(&MemEnv::new(), &small_options().auto_compaction(false)).unwrap();
    let one = |name: &str| db.ingest([(name, "1")]).unwrap().level;
    assert_eq!((one("m"), one("a"), one("z")), (1, 1, 1));
    // Above the table that has the key.
    assert_eq!((one("m"), one("m")), (0, 0));
    // The memtable that overlaps is flushed first.
    db.put("m", "2").unwrap();
    assert_eq!((one("m"), one("b"), one("m")), (0, 1, 0));
    // Between tables, without sharing a key with one.
    assert_eq!(db.ingest([("c", "1"), ("l", "1")]).unwrap().level, 1);
    // More than the level should have: one level deeper.
    let large = |from: usize| (from..from + 1000).map(|n| (key(n), vec![1; 100]));
    assert_eq!(db.ingest([("b", "1"), ("c", "1")]).unwrap().level, 0);
    let uncompressed = small_options().snappy(false).auto_compaction(false);
    let deep = open(&MemEnv::new(), &uncompressed).unwrap();
    assert_eq!(deep.ingest(large(0)).unwrap().level, 2);
    assert_eq!(deep.ingest([(key(10), "1")]).unwrap().level, 1);
    assert_eq!(deep.ingest([(key(10), "2")]).unwrap().level, 0);
    assert_eq!(deep.ingest(large(2000)).unwrap().level, 2);
    assert_eq!(deep.get(key(10)).unwrap().unwrap(), "2");
    assert_eq!(db.get("m").unwrap().unwrap(), "1");
    for db in [db, deep] {
        assert!(db.verify(|_| {}).unwrap().is_sound());
    }
}

/// A compaction may write a table over a gap between its inputs. A load that comes into the gap
/// at the same time goes to another level.
#[test]
fn loads_stay_out_of_the_outputs_of_a_running_compaction() {
    let disk = MemEnv::new();
    let gate = Gate::default();
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let db = small_options().auto_compaction(false).env(env).open(HOME).unwrap();
    for keys in [["a", "b"], ["y", "z"]] {
        assert_eq!(db.ingest(keys.map(|key| (key, "old"))).unwrap().level, 1);
    }
    gate.shut(Stops::SyncsOf(".sst"));
    std::thread::scope(|scope| {
        let _opens = OpensOnDrop([&gate]);
        let force = CompactRangeOptions::new().force(true);
        let db = &db;
        let compaction = scope.spawn(move || db.compact_range_with(.., &force));
        gate.wait_for_a_call();
        // Only the output that waits stays closed.
        let newest = files_ending(&disk, ".sst").into_iter().max().unwrap();
        gate.shut(Stops::SyncsOf(name(&newest).to_string().leak()));
        let report = db.ingest([("m", "new")]).unwrap();
        gate.open();
        compaction.join().unwrap().unwrap();
        let output = db.tables().iter().find(|table| table.entries == 4).unwrap().level;
        assert_ne!(report.level, output);
    });
    db.put("n", "on").unwrap();
    assert_eq!(db.iter().count(), 6);
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

/// A database over a disk that fails, with entries in tables, memtables and another keyspace; and
/// a load over them.
struct Failing {
    disk: MemEnv,
    env: FaultEnv,
    db: Db,
    before: Map,
    load: Map,
}

fn options() -> Options {
    small_options().auto_compaction(false)
}

impl Failing {
    fn new() -> Self {
        let disk = MemEnv::new();
        let env = FaultEnv::new(as_env(&disk));
        let db = options().env(Arc::new(env.clone())).open(HOME).unwrap();
        let mut before = Map::new();
        let mut write = |from: usize, to: usize| {
            for n in from..to {
                db.put(key(n), b"before").unwrap();
                before.insert(key(n), b"before".to_vec());
            }
        };
        write(0, 40);
        db.flush().unwrap();
        write(30, 60);
        db.keyspace("other").unwrap().put("a", "in a log").unwrap();
        let load = (20..400).map(|n| (key(n), vec![n as u8; 60])).collect();
        Failing { disk, env, db, before, load }
    }

    fn all(&self) -> Map {
        self.before.iter().chain(&self.load).map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    fn ingest(&self, sorts: bool) -> Result<()> {
        match sorts {
            true => self.db.ingest_unsorted(self.load.iter().rev()),
            false => self.db.ingest(&self.load),
        }
        .map(drop)
    }

    /// Every file of a load that was refused is gone.
    fn check_files(&self, place: &str) {
        let tables = self.db.tables().len() + self.db.keyspace("other").unwrap().tables().len();
        assert_eq!(files_ending(&self.disk, ".sst").len(), tables, "{place}");
        // The worker may be saving counters by way of one.
        let what = format!("without temporary files: {place}");
        until(&what, || files_ending(&self.disk, ".tmp").is_empty());
    }
}

/// Fails each call of a load in a run of its own. Returns how many failed.
fn fail_each(fault: Fault, among: Calls, sorts: bool) -> usize {
    let mut failed = 0;
    for n in 0.. {
        let run = Failing::new();
        run.env.fail_at(run.env.calls_of(among) + n, fault.among(among));
        let place = format!("call {n} of {fault:?}");
        let answer = run.ingest(sorts);
        if !run.env.has_fired() {
            break;
        }
        run.env.heal();
        let Err(error) = answer else {
            // The failure of a removal, or of a job at the same time.
            assert_eq!(scan(&run.db).unwrap(), run.all(), "{place}");
            continue;
        };
        failed += 1;
        assert!(matches!(error, Error::Io { .. } | Error::ReadOnly { .. }), "{place}: {error}");
        assert_eq!(scan(&run.db).unwrap(), run.before, "{place}");
        let mut left = vec![run.before.clone()];
        if run.db.put("~", "on").is_ok() {
            // A removal that fails leaves the file to the next session.
            if among == Calls::All {
                run.check_files(&place);
            }
            run.ingest(sorts).unwrap();
            left = vec![run.all()];
            left[0].insert(b"~".to_vec(), b"on".to_vec());
            assert_eq!(scan(&run.db).unwrap(), left[0], "{place}");
        } else if run.db.resume().is_ok() {
            // It does not come back with later writes.
            run.db.put("~", "on").unwrap();
            left[0].insert(b"~".to_vec(), b"on".to_vec());
            assert_eq!(scan(&run.db).unwrap(), left[0], "{place}");
        } else {
            left.push(run.all());
        }
        drop(run.db);
        let db = open(&run.disk, &options()).unwrap();
        let found = scan(&db).unwrap();
        assert!(left.contains(&found), "{place}: {} entries", found.len());
        assert!(db.verify(|_| {}).unwrap().is_sound(), "{place}");
        db.put("~~", "on").unwrap();
        drop(db);
        let db = open(&run.disk, &options()).unwrap();
        assert_eq!(scan(&db).unwrap().len(), found.len() + 1, "{place}");
    }
    failed
}

#[test]
fn failed_loads_appear_whole_or_not_at_all() {
    for sorts in [false, true] {
        for kind in [FaultKind::Error(EIO), FaultKind::ErrorAfter(EIO), FaultKind::ShortWrite] {
            let failed = fail_each(Fault::once(kind), Calls::All, sorts);
            assert!(failed > 10, "{kind:?}: {failed}");
        }
        let full = Fault::from_then_on(FaultKind::Error(ENOSPC));
        assert!(fail_each(full, Calls::Changes, sorts) > 10);
    }
}

/// A writer dies in the middle of a load, and another one continues: followers follow it, unless
/// they have shown what is no longer there.
#[test]
fn followers_go_on_after_a_load_that_was_cut_short() {
    for n in 0.. {
        let run = Failing::new();
        let follower = options().env(as_env(&run.disk)).open_follower(HOME).unwrap();
        run.env
            .fail_at(run.env.calls_of(Calls::All) + n, Fault::from_then_on(FaultKind::Error(EIO)));
        let answer = run.ingest(false);
        if !run.env.has_fired() {
            break;
        }
        let place = format!("call {n}");
        follower.refresh().unwrap_or_else(|error| panic!("{place}: {error}"));
        let shown = scan(&follower.moment()).unwrap();
        assert!(shown == run.all() || shown == run.before && answer.is_err(), "{place}");
        let (before, all) = (run.before.clone(), run.all());
        drop(run.db);
        for round in 0..3 {
            let db = open(&run.disk, &options()).unwrap();
            db.put(format!("~{round}"), "on").unwrap();
            let found = scan(&db).unwrap();
            match follower.refresh() {
                Ok(_) => assert_eq!(scan(&follower.moment()).unwrap(), found, "{place}, {round}"),
                Err(error) => {
                    let is_changed = matches!(error, Error::HistoryChanged { .. });
                    let lost = shown == all && !found.contains_key(&key(399));
                    assert!(is_changed && lost, "{place}, {round}: {error}");
                }
            }
        }
        assert!(before.len() < all.len());
    }
}

#[test]
fn transactions_conflict_with_loads() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    db.put("b", "1").unwrap();
    // What is read, what is loaded, and whether both conflict.
    let load = |keys: &[&str]| db.ingest(keys.iter().map(|key| (*key, "2"))).unwrap();
    for (reads_range, keys, conflicts) in [
        (false, &["a", "b"][..], true),
        (false, &["a", "c"], false),
        (true, &["b0"], true),
        (true, &["a", "c"], false),
    ] {
        for alone in [true, false] {
            let tx = db.transaction();
            match reads_range {
                true => assert!(tx.range("b".."c").count() > 0),
                false => assert!(tx.get("b").unwrap().is_some()),
            }
            tx.put("written", "3").unwrap();
            if !alone {
                db.put("x", "4").unwrap();
            }
            load(keys);
            if !alone {
                db.put("y", "4").unwrap();
            }
            let answer = tx.commit();
            assert_eq!(matches!(answer, Err(Error::Conflict { .. })), conflicts, "{keys:?}");
            assert!(conflicts || answer.is_ok());
        }
    }
    // One that begins after the load reads it.
    load(&["b"]);
    let tx = db.transaction();
    assert_eq!(tx.get("b").unwrap().unwrap(), "2");
    tx.put("b", "5").unwrap();
    tx.commit().unwrap();
}

#[test]
fn range_deletes_hide_older_loads_only() {
    for compacts in [false, true] {
        let env = MemEnv::new();
        let db = open(&env, &small_options()).unwrap();
        (0..300).for_each(|n| db.put(key(n), "old").unwrap());
        db.delete_range(key(100)..key(200)).unwrap();
        db.ingest((50..250).map(|n| (key(n), "loaded"))).unwrap();
        let earlier = db.snapshot();
        db.delete_range(key(200)..).unwrap();
        if compacts {
            db.compact_range(..).unwrap();
        }
        let check = |db: &Db| {
            assert_eq!(db.iter().count(), 200);
            assert_eq!(db.range(key(50)..).count(), 150);
            assert_eq!(db.get(key(150)).unwrap().unwrap(), "loaded");
            assert_eq!(db.get(key(220)).unwrap(), None);
        };
        check(&db);
        assert_eq!(earlier.range(key(200)..).count(), 100);
        drop((db, earlier));
        check(&open(&env, &small_options()).unwrap());
    }
}

#[test]
fn loaded_entries_expire() {
    let env = MemEnv::new();
    let start = std::time::UNIX_EPOCH + Duration::from_secs(1000);
    env.set_now(start);
    let db = open(&env, &small_options()).unwrap();
    let ten = KeyspaceOptions::new().expire_after(Duration::from_secs(10));
    let passing = db.keyspace_with("passing", &ten).unwrap();
    let after = |seconds| WriteOptions::new().expire_after(Duration::from_secs(seconds));
    let mut writer = passing.table_writer().unwrap();
    writer.put("a", "10 s").unwrap();
    writer.put_with("b", "20 s", &after(20)).unwrap();
    writer.put_with("c", "never", &WriteOptions::new().expire_after(Duration::MAX)).unwrap();
    env.set_now(start + Duration::from_secs(5));
    writer.put_with("d", "11 s", &after(6)).unwrap();
    writer.finish().unwrap();
    passing.ingest_unsorted([("f", "15 s"), ("e", "15 s")]).unwrap();
    let mut writer = passing.table_writer().unwrap();
    let beyond = std::time::UNIX_EPOCH + Duration::from_secs(u64::MAX / 4);
    let refused = writer.put_with("z", "1", &WriteOptions::new().expire_at(beyond));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    assert!(writer.finish().is_err());
    for (seconds, left) in [(9, "abcdef"), (10, "bcdef"), (11, "bcef"), (15, "bc"), (20, "c")] {
        env.set_now(start + Duration::from_secs(seconds));
        let keys: Vec<u8> = scan(&passing).unwrap().into_keys().flatten().collect();
        assert_eq!(keys, left.as_bytes(), "after {seconds} s");
    }
    passing.compact_range(..).unwrap();
    assert_eq!(passing.tables().iter().map(|table| table.entries).sum::<u64>(), 1);
}

#[derive(Debug)]
struct DropsB;

impl CompactionFilter for DropsB {
    fn name(&self) -> &str {
        "drops b"
    }

    fn filter(&self, key: &[u8], _: &[u8]) -> CompactionDecision {
        match key {
            b"b" => CompactionDecision::Remove,
            _ => CompactionDecision::Keep,
        }
    }
}

#[test]
fn compaction_filters_see_loads() {
    let options = small_options().compaction_filter(Arc::new(DropsB));
    let db = open(&MemEnv::new(), &options).unwrap();
    db.ingest([("a", "1"), ("b", "1"), ("c", "1")]).unwrap();
    assert_eq!(db.iter().count(), 3);
    db.compact_range_with(.., &siftdb::CompactRangeOptions::new().force(true)).unwrap();
    assert_eq!(db.iter().count(), 2);
}

#[test]
fn followers_show_loads_whole() {
    let env = MemEnv::new();
    let mut rng = Rng::new(3);
    let mut expected = Map::new();
    let db = open(&env, &small_options()).unwrap();
    let other = db.keyspace("other").unwrap();
    let follower = small_options().env(as_env(&env)).open_follower(HOME).unwrap();
    for round in 0..30 {
        other.put(key(round), "in a log").unwrap();
        write_some(&db, &mut expected, &mut rng, round);
        let load = entries(&mut rng, round);
        let report = db.ingest(&load).unwrap();
        expected.extend(load);
        if rng.below(2) == 0 {
            write_some(&db, &mut expected, &mut rng, round);
        }
        follower.refresh().unwrap();
        assert_eq!(scan(&follower.moment()).unwrap(), expected, "round {round}");
        // No log has the entries of a load, and a log tells of it as long as it is there.
        match follower.changes(report.sequence) {
            Ok(mut changes) => {
                let change = changes.next().unwrap().unwrap();
                assert_eq!(change.sequence, report.sequence);
                assert!(matches!(change.entry, ChangedEntry::Load { .. }), "{change:?}");
            }
            Err(Error::ChangesGone { first, .. }) => assert!(first > report.sequence),
            Err(error) => panic!("{error}"),
        }
    }
    let fresh = small_options().env(as_env(&env)).open_follower(HOME).unwrap();
    assert_eq!(scan(&fresh.moment()).unwrap(), expected);
}

#[test]
fn unsorted_loads_sort_in_bounded_memory() {
    for seed in seeds(6) {
        let (env, mut rng) = (MemEnv::new(), Rng::new(seed));
        let db = open(&env, &small_options()).unwrap();
        let (mut input, mut expected) = (Vec::new(), Map::new());
        // Up to some ten write buffers, with keys that repeat within a run and across runs.
        for n in 0..*rng.pick(&[10, 900, 6000]) {
            let key = key(rng.below(3000));
            let value = format!("{n} ").repeat(rng.below(30)).into_bytes();
            expected.insert(key.clone(), value.clone());
            input.push((key, value));
        }
        let mut most_files = 0;
        let watched = input.iter().inspect(|_| {
            most_files = most_files.max(files_ending(&env, ".tmp").len());
        });
        let report = db.ingest_unsorted(watched.map(|(key, value)| (key, value))).unwrap();
        assert_eq!(report.entries, expected.len() as u64, "seed {seed}");
        assert!(input.len() < 6000 || most_files > 4, "{most_files} runs");
        assert!(files_ending(&env, ".tmp").is_empty());
        check(&db, &expected, &format!("seed {seed}"));
    }
}

#[test]
fn crashed_loads_leave_obsolete_files_only() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options().snappy(false)).unwrap();
    db.put("a", "1").unwrap();
    let mut writer = db.table_writer().unwrap();
    let mut killed = None;
    let unsorted = (0..6000).rev().map(|n| {
        writer.put(key(6000 - n), [7; 50]).unwrap();
        if n == 0 {
            // The process dies with tables of one load and runs of another.
            killed = Some(env.replay(env.log_len(), CrashModel::Kill, 0));
        }
        (key(n), [7; 50])
    });
    db.ingest_unsorted(unsorted).unwrap();
    let left = killed.unwrap();
    assert!(files_ending(&left, ".sst").len() > 5 && files_ending(&left, ".tmp").len() > 2);
    let db = open(&left, &small_options()).unwrap();
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    assert_eq!(db.iter().count(), 2);
    db.close().unwrap();
    assert_eq!(files_ending(&left, ".sst").len(), db.tables().len());
    assert!(files_ending(&left, ".tmp").is_empty());
}

#[test]
fn damaged_loads_are_errors_or_named_losses() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    let load: Map = (0..600).map(|n| (key(n), vec![n as u8; 90])).collect();
    db.ingest(&load).unwrap();
    db.put("~", "on").unwrap();
    db.close().unwrap();
    drop(db);
    let table = files_ending(&env, ".sst").remove(0);
    let sound = env.read_file(&table).unwrap();
    for at in (0..sound.len()).step_by(sound.len() / 40) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x20;
        env.write_file(&table, &bytes);
        let Ok(db) = open(&env, &small_options().auto_compaction(false)) else { continue };
        for (key, value) in &load {
            match db.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "byte {at}"),
                Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
            }
        }
    }
    // A damaged block: the rest is kept, with its sequence.
    let mut bytes = sound;
    bytes[100] ^= 0x20;
    env.write_file(&table, &bytes);
    let report = Options::new().env(as_env(&env)).repair(HOME).unwrap();
    assert!(report.entries_lost > 0 && report.entries_lost < 100, "{report:?}");
    let db = open(&env, &small_options()).unwrap();
    let found = scan(&db).unwrap();
    assert!(
        found.len() > 500 && found.iter().filter(|(k, v)| load.get(*k) == Some(v)).count() > 500
    );
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

#[test]
fn checkpoints_have_loads_with_their_sequence() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    (0..300).for_each(|n| db.put(key(n), "old").unwrap());
    let report = db.ingest((100..200).map(|n| (key(n), "loaded"))).unwrap();
    db.checkpoint("/backup").unwrap();
    db.delete_range(..).unwrap();
    let copy = small_options().env(as_env(&env)).open("/backup").unwrap();
    let loaded = copy.iter().filter(|entry| entry.as_ref().unwrap().1 == "loaded").count();
    assert_eq!((copy.iter().count(), loaded), (300, 100));
    copy.put("later", "1").unwrap();
    assert!(copy.ingest([("later", "2")]).unwrap().sequence > report.sequence);
    assert_eq!(copy.get("later").unwrap().unwrap(), "2");
    assert!(copy.verify(|_| {}).unwrap().is_sound());
}

/// Loads, writes, flushes, compactions and sessions, then all manifests are gone: every log names
/// the sequences of the loads that are live.
#[test]
fn repairs_without_a_manifest_bring_loads_back() {
    for seed in seeds(12) {
        let (mut env, mut rng, mut expected) = (MemEnv::with_log(), Rng::new(seed), Map::new());
        let options = || small_options().auto_compaction(false);
        let mut db = open(&env, &options()).unwrap();
        for round in 0..6 {
            (0..rng.below(3)).for_each(|_| write_some(&db, &mut expected, &mut rng, round));
            let load = entries(&mut rng, round);
            db.ingest(load.clone()).unwrap();
            expected.extend(load);
            match rng.below(5) {
                0 => db.flush().unwrap(),
                1 => db.compact_range(key(300)..key(500)).unwrap(),
                2 => {
                    db.close().unwrap();
                    db = open(&env, &options()).unwrap();
                }
                _ => {}
            }
        }
        write_some(&db, &mut expected, &mut rng, 6);
        db.sync().unwrap();
        let ending = ["closed", "killed", "power cut", "checkpoint"][rng.below(4)];
        let mut home = HOME;
        match ending {
            "killed" => env = env.replay(env.log_len(), CrashModel::Kill, 0),
            "power cut" => env = env.power_cut(),
            "checkpoint" => {
                home = "/copy";
                db.checkpoint(home).unwrap();
            }
            _ => db.close().unwrap(),
        }
        drop(db);
        // Which tables are obsolete says the manifest alone.
        let needed = siftdb::inspect::live_tables(&as_env(&env), Path::new(home)).unwrap().unwrap();
        for path in env.list_files() {
            let is_obsolete = name(&path).ends_with(".sst")
                && path.parent() == Some(Path::new(home))
                && needed.iter().all(|table| table.path != path);
            if is_obsolete || name(&path).starts_with("MANIFEST") || name(&path) == "CURRENT" {
                env.remove_file(&path);
            }
        }
        let place = format!("seed {seed}, {ending}");
        let report = options().env(as_env(&env)).repair(home).unwrap();
        assert!(report.entries_lost == 0 && report.changed, "{place}: {report:?}");
        // The log of the repaired database names them, too.
        for _ in 0..2 {
            let db = options().env(as_env(&env)).open(home).unwrap();
            check(&db, &expected, &place);
            assert!(db.verify(|_| {}).unwrap().is_sound(), "{place}");
            db.close().unwrap();
            drop(db);
            for path in env.list_files() {
                if name(&path).starts_with("MANIFEST") || name(&path) == "CURRENT" {
                    env.remove_file(&path);
                }
            }
            let report = options().env(as_env(&env)).repair(home).unwrap();
            assert_eq!(report.entries_lost, 0, "{place}: {report:?}");
        }
    }
}

/// Writers, compactions, drops and loads at the same time: each load is whole in each snapshot, and
/// a key never goes back.
#[test]
fn loads_beside_writers_are_whole() {
    const ROUNDS: u64 = 60;
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let loads = |db: &Db, worker: usize| {
        for round in 1..=ROUNDS {
            let keys = (0..200).map(|n| (key(n * 5 + worker), round.to_le_bytes()));
            match round % 3 {
                0 => drop(db.ingest_unsorted(keys.rev()).unwrap()),
                1 => drop(db.ingest(keys).unwrap()),
                _ => {
                    let mut batch = siftdb::WriteBatch::new();
                    keys.for_each(|(key, value)| _ = batch.put(key, value));
                    db.write(batch).unwrap();
                }
            }
            if round % 8 == 0 {
                db.compact_range(key(round as usize)..).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                scope.spawn({
                    let db = &db;
                    move || loads(db, worker)
                })
            })
            .collect();
        let alter = scope.spawn(|| {
            for n in 0..30 {
                let passing = db.keyspace("passing").unwrap();
                passing.put(key(n), "1").unwrap();
                let dropped = scope.spawn({
                    let passing = passing.clone();
                    move || passing.ingest((0..50).map(|n| (key(n), "2")))
                });
                db.drop_keyspace("passing").unwrap();
                match dropped.join().unwrap() {
                    Ok(_) | Err(Error::KeyspaceDropped { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let mut seen = [0; 2];
        while workers.iter().any(|worker| !worker.is_finished()) {
            let snapshot = db.snapshot();
            for (worker, seen) in seen.iter_mut().enumerate() {
                let keys: Vec<_> = (0..200).map(|n| key(n * 5 + worker)).collect();
                let values = snapshot.multi_get(&keys).unwrap();
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                let round =
                    values[0].as_ref().map_or(0, |v| u64::from_le_bytes(v[..].try_into().unwrap()));
                assert!(round >= *seen, "{round} after {seen}");
                *seen = round;
            }
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        alter.join().unwrap();
    });
    assert_eq!(db.iter().count(), 400);
    assert!(db.iter().all(|entry| *entry.unwrap().1 == ROUNDS.to_le_bytes()));
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

#[test]
fn sequences_of_removed_loads_stay_used() {
    let start = std::time::UNIX_EPOCH + Duration::from_secs(1000);
    // By a drop, by expiry, by a range delete.
    for removal in 0..3 {
        let env = MemEnv::new();
        env.set_now(start);
        let options = small_options().auto_compaction(false).env(as_env(&env));
        let db = options.clone().open(HOME).unwrap();
        db.put("first", "1").unwrap();
        let ten = KeyspaceOptions::new().expire_after(Duration::from_secs(10));
        let loaded = db.keyspace_with("loaded", &ten).unwrap();
        loaded.ingest([("a", "1")]).unwrap();
        let follower = options.clone().open_follower(HOME).unwrap();
        let mut last = follower.last_sequence();
        let mut check = |place: &str| {
            follower.refresh().unwrap_or_else(|error| panic!("{removal}, {place}: {error}"));
            let fresh = options.clone().open_follower(HOME).unwrap();
            assert_eq!(fresh.last_sequence(), follower.last_sequence(), "{removal}, {place}");
            assert!(follower.last_sequence() >= last, "{removal}, {place}");
            last = follower.last_sequence();
        };
        match removal {
            0 => db.drop_keyspace("loaded").unwrap(),
            1 => {
                env.set_now(start + Duration::from_secs(20));
                loaded.compact_range(..).unwrap();
            }
            _ => {
                loaded.delete_range(..).unwrap();
                loaded.compact_range(..).unwrap();
            }
        }
        check("removed");
        db.close().unwrap();
        check("closed");
        for round in 0..2 {
            let db = options.clone().open(HOME).unwrap();
            check("opened");
            db.put(key(round), "later").unwrap();
            check("written");
            db.close().unwrap();
            check("closed again");
        }
    }
}

#[test]
fn loads_are_counted_by_level() {
    let db = open(&MemEnv::new(), &small_options().auto_compaction(false)).unwrap();
    let report = db.ingest((0..500u64).map(|n| (format!("key{n:05}"), n.to_le_bytes()))).unwrap();
    let stats = db.stats();
    assert_eq!(stats.levels[report.level].bytes_written, report.bytes);
    assert_eq!(stats.total().bytes_written, stats.ingest_bytes);
    assert_eq!(stats.total().filter_bytes_written, stats.total().filter_bytes);
    assert!(
        stats.total().filter_bytes > 0
            && db.keyspace("default").unwrap().stats().total() == stats.total()
    );
}
