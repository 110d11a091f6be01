//! Watches: every committed write once, in order, while it is written, and nothing else.

use crate::support::data::key;
use crate::support::mirror::{Mirror, write_some};
use crate::support::rng::Rng;
use crate::support::stores::{HOME, as_env, begun_logs, open, scan, small_options, until};
use siftdb::env::testing::{Calls, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, EnvLayer, MemEnv, RandomFile};
use siftdb::{
    Change, ChangedEntry, Db, Error, KeyspaceOptions, Result, Watch, WriteBatch, WriteOptions,
};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

const NOW: Duration = Duration::ZERO;

/// What was committed before this call.
fn ready(watch: &mut Watch) -> Vec<Change> {
    std::iter::from_fn(|| watch.next_timeout(NOW).unwrap()).collect()
}

/// The keys and sequences of puts.
fn puts(changes: &[Change]) -> Vec<(u64, String)> {
    let put = |change: &Change| match &change.entry {
        ChangedEntry::Put { key, .. } => {
            (change.sequence, String::from_utf8_lossy(key).into_owned())
        }
        other => panic!("{other:?}"),
    };
    changes.iter().map(put).collect()
}

#[test]
fn watches_rebuild_what_writers_write() {
    let names = ["default", "orders", "users"];
    for seed in 0..4 {
        let env = MemEnv::new();
        let db = open(&env, &small_options()).unwrap();
        let keyspaces = names.map(|name| db.keyspace(name).unwrap());
        let mut mirrors = keyspaces.each_ref().map(|keyspace| Mirror::new(keyspace).unwrap());
        std::thread::scope(|scope| {
            let write = |seed| {
                let (db, mut rng) = (&db, Rng::new(seed));
                move || {
                    for round in 0..400 {
                        write_some(db, &mut rng, &names);
                        match rng.below(60) {
                            0 => db.flush().unwrap(),
                            1 => {
                                let entry = |number| (key(number), b"loaded");
                                let first = rng.below(200);
                                db.ingest((first..first + 30).map(entry)).unwrap();
                            }
                            _ if round % 50 == 0 => db.sync().unwrap(),
                            _ => {}
                        }
                    }
                }
            };
            let writers = [scope.spawn(write(seed * 2)), scope.spawn(write(seed * 2 + 1))];
            while !writers.iter().all(|writer| writer.is_finished()) {
                for (mirror, keyspace) in mirrors.iter_mut().zip(&keyspaces) {
                    mirror.catch_up(keyspace).unwrap();
                }
            }
        });
        for (mirror, keyspace) in mirrors.iter_mut().zip(&keyspaces) {
            mirror.catch_up(keyspace).unwrap();
            assert_eq!(mirror.map, scan(keyspace).unwrap(), "{} of seed {seed}", keyspace.name());
        }
        assert!(mirrors[0].loads > 0, "{seed}");
        // A second watch from some sequence on has the same changes, as far as there are logs.
        let mut all = db.watch().unwrap();
        assert_eq!(ready(&mut all), []);
        db.close().unwrap();
        assert!(all.next().is_none());
        mirrors.iter_mut().for_each(Mirror::end);
    }
}

#[test]
fn changes_of_all_keyspaces_ascend() {
    let env = MemEnv::new();
    let options = small_options().keep_log_bytes(64 << 20);
    let db = open(&env, &options).unwrap();
    let names = ["default", "a", "b"];
    names.iter().for_each(|name| drop(db.keyspace(name).unwrap()));
    let mut watch = db.watch().unwrap();
    let mut rng = Rng::new(7);
    let mut all = Vec::new();
    for round in 0..200 {
        write_some(&db, &mut rng, &names);
        if round % 30 == 29 {
            db.flush().unwrap();
        }
        if rng.chance(40) {
            all.extend(ready(&mut watch));
        }
    }
    all.extend(ready(&mut watch));
    for (change, sequence) in all.iter().zip(1..) {
        assert_eq!(change.sequence, sequence);
        assert_eq!(change.keyspace.as_deref(), Some(names[change.keyspace_number as usize]));
    }
    assert_eq!(all.len() as u64, db.snapshot().last_sequence());
    for _ in 0..20 {
        let from = rng.below(all.len() + 1);
        assert_eq!(ready(&mut db.watch_from(from as u64 + 1).unwrap()), all[from..]);
    }
    assert_eq!(ready(&mut db.watch_from(0).unwrap()), all);
    let a = db.keyspace("a").unwrap();
    let in_a: Vec<_> = all.iter().filter(|change| change.keyspace_number == 1).cloned().collect();
    assert_eq!(ready(&mut a.watch_from(.., 1).unwrap()), in_a);
    // Of a closed database and the next opening.
    db.close().unwrap();
    assert!(watch.next().is_none());
    let db = open(&env, &options).unwrap();
    assert_eq!(ready(&mut db.watch_from(5).unwrap()), all[4..]);
    let gone = db.watch_from(all.len() as u64 + 2).unwrap_err();
    assert!(matches!(gone, Error::ChangesGone { first, .. } if first == all.len() as u64 + 1));
}

#[test]
fn a_watch_has_the_writes_of_its_range() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let users = db.keyspace("users").unwrap();
    let mut watch = users.watch("b".."d").unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(9_000_000_000_000);
    users.put("a", "1").unwrap();
    users.put_with("b", "2", &WriteOptions::new().expire_at(at)).unwrap();
    db.put("c", "of another keyspace").unwrap();
    users.delete("c").unwrap();
    users.delete("d").unwrap();
    users.delete_range("a".."b").unwrap();
    users.delete_range("c\0"..).unwrap();
    users.delete_range("a"..="b").unwrap();
    let found: Vec<_> = ready(&mut watch).into_iter().map(|c| (c.sequence, c.entry)).collect();
    let range = |start: &str, end: Option<&[u8]>| ChangedEntry::DeleteRange {
        start: start.into(),
        end: end.map(<[u8]>::to_vec),
    };
    let put = ChangedEntry::Put { key: b"b".into(), value: b"2".into(), expires_at: Some(at) };
    let expected = [
        (2, put),
        (4, ChangedEntry::Delete { key: b"c".into() }),
        (7, range("c\0", None)),
        (8, range("a", Some(b"b\0"))),
    ];
    assert_eq!(found, expected);
    let error = db.keyspace("users").unwrap().watch_from(.., 99).unwrap_err();
    assert_eq!(error.kind(), "changes_gone");
}

#[test]
fn loads_and_drops_are_changes() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    let [a, b] = ["a", "b"].map(|name| db.keyspace(name).unwrap());
    let mut all = db.watch().unwrap();
    let mut of_a = a.watch("k".."m").unwrap();
    let report = a.ingest([("b", "1"), ("l", "2")]).unwrap();
    let load = Change::clone(&ready(&mut all)[0]);
    assert_eq!((load.sequence, load.keyspace.as_deref()), (report.sequence, Some("a")));
    let (start, end) = (b"b".to_vec(), Some(b"l\0".to_vec()));
    assert_eq!(load.entry, ChangedEntry::Load { start, end });
    assert_eq!(ready(&mut of_a), [load]);
    // Another keyspace, and keys outside of the range. A table of the other one has sequences on
    // both sides of the second load: of two keys, because a flush keeps one version of each.
    b.ingest([("l", "3")]).unwrap();
    b.put("j", "before").unwrap();
    a.ingest([("x", "4")]).unwrap();
    b.put("k", "after").unwrap();
    db.flush().unwrap();
    assert_eq!(ready(&mut of_a), []);
    let names: Vec<_> = ready(&mut all).into_iter().filter_map(|change| change.keyspace).collect();
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["b", "b", "a", "b"]);
    // A load that was compacted with later writes: the range has its keys.
    let mut late = a.watch("a".."c").unwrap();
    a.ingest([("a", "5"), ("b", "6")]).unwrap();
    a.put("b", "7").unwrap();
    db.flush().unwrap();
    a.compact_range(..).unwrap();
    let found = ready(&mut late);
    assert!(
        matches!(&found[0].entry, ChangedEntry::Load { start, .. } if start.as_slice() <= &b"a"[..])
    );
    assert_eq!(found.len(), 2);
    // A batch that creates a keyspace has no entries in a log.
    ready(&mut all);
    let mut batch = WriteBatch::new();
    batch.create_keyspace("c", &siftdb::KeyspaceOptions::new()).put("k", "v");
    batch.in_keyspace(&a).delete("b");
    db.write(batch).unwrap();
    b.ingest([("z", "10")]).unwrap();
    let whole = ChangedEntry::Load { start: Vec::new(), end: None };
    let loaded = ready(&mut all);
    let (load, of_batch) = loaded.split_last().unwrap();
    let names: Vec<_> = of_batch.iter().map(|change| change.keyspace.as_deref().unwrap()).collect();
    assert_eq!(names, ["default", "a", "b", "c"]);
    assert!(of_batch.iter().all(|change| change.entry == whole));
    assert!(load.keyspace.as_deref() == Some("b") && load.entry != whole);
    // A drop comes after the writes of its keyspace, and is the end of its watch.
    ready(&mut of_a);
    a.put("l", "8").unwrap();
    b.put("k", "9").unwrap();
    db.drop_keyspace("a").unwrap();
    db.put("later", "write").unwrap();
    let names: Vec<_> = ready(&mut all).into_iter().map(|c| (c.keyspace, c.entry)).collect();
    let drops = names.iter().position(|(_, entry)| *entry == ChangedEntry::DropKeyspace);
    assert!(drops >= Some(2) && names.len() == 4, "{names:?}");
    assert_eq!(names[drops.unwrap()].0.as_deref(), Some("a"));
    let found: Vec<_> = of_a.by_ref().map(|change| change.unwrap().entry).collect();
    assert!(matches!(found[..], [ChangedEntry::Put { .. }, ChangedEntry::DropKeyspace]));
    assert!(matches!(of_a.next_timeout(NOW), Err(Error::Closed)));
    assert!(matches!(a.watch(..), Err(Error::KeyspaceDropped { .. })));
}

#[test]
fn a_keyspace_that_came_and_went_is_dropped() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    let brief = db.keyspace("brief").unwrap();
    brief.put("k", "v").unwrap();
    db.drop_keyspace("brief").unwrap();
    db.keyspace("brief").unwrap().put("k", "again").unwrap();
    let found: Vec<_> =
        ready(&mut watch).into_iter().map(|c| (c.keyspace_number, c.keyspace, c.entry)).collect();
    let put = |value: &str| {
        let (key, value) = (b"k".to_vec(), value.into());
        ChangedEntry::Put { key, value, expires_at: None }
    };
    let brief: Option<Arc<str>> = Some("brief".into());
    let expected =
        [(1, None, put("v")), (2, brief, put("again")), (1, None, ChangedEntry::DropKeyspace)];
    assert_eq!(found, expected);
    assert_eq!(ready(&mut watch), []);
    // One that the watch knows by a load alone.
    let mut batch = WriteBatch::new();
    batch.create_keyspace("loaded", &siftdb::KeyspaceOptions::new()).put("k", "v");
    db.write(batch).unwrap();
    assert_eq!(ready(&mut watch).len(), 3);
    db.drop_keyspace("loaded").unwrap();
    let dropped = ready(&mut watch);
    assert_eq!((dropped.len(), &dropped[0].entry), (1, &ChangedEntry::DropKeyspace));
    assert_eq!(dropped[0].keyspace.as_deref(), Some("loaded"));
}

#[test]
fn a_drop_comes_before_later_writes() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let brief = db.keyspace("brief").unwrap();
    let mut watch = db.watch().unwrap();
    brief.put("a", "1").unwrap();
    brief.put("b", "2").unwrap();
    db.drop_keyspace("brief").unwrap();
    let mut found = vec![watch.next_timeout(NOW).unwrap().unwrap()];
    // Later writes do not delay the drop.
    for key in ["c", "d"] {
        db.put(key, "3").unwrap();
        found.push(watch.next_timeout(NOW).unwrap().unwrap());
    }
    found.extend(ready(&mut watch));
    let is_drop = |change: &Change| change.entry == ChangedEntry::DropKeyspace;
    let found: Vec<_> = found.iter().map(|change| (change.sequence, is_drop(change))).collect();
    assert_eq!(found, [(1, false), (2, false), (2, true), (3, false), (4, false)]);
}

#[test]
fn a_gap_hides_no_drop() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    // All writes to it are in the gap, so the watch has no change of it.
    let brief = db.keyspace("brief").unwrap();
    brief.put("k", "v").unwrap();
    (0..1000).for_each(|number| db.put(key(number), vec![0; 1000]).unwrap());
    assert!(matches!(watch.next_timeout(NOW), Err(Error::ChangesGone { from: 1, .. })));
    db.drop_keyspace("brief").unwrap();
    let found = ready(&mut watch);
    let is_drop = |change: &Change| change.entry == ChangedEntry::DropKeyspace;
    assert!(found.len() == 1 && is_drop(&found[0]), "{found:?}");
    assert_eq!(found[0].keyspace.as_deref(), Some("brief"));
}

#[test]
fn an_ended_watch_keeps_no_log() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let brief = db.keyspace("brief").unwrap();
    let mut watch = brief.watch(..).unwrap();
    db.drop_keyspace("brief").unwrap();
    assert_eq!(watch.by_ref().count(), 1);
    for number in 0..20 {
        db.put(key(number), "v").unwrap();
        db.flush().unwrap();
    }
    until("without old logs", || begun_logs(&env).len() <= 2);
    assert!(watch.next().is_none());
}

#[test]
fn a_slow_watch_goes_on_after_a_gap() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let mut mirror = Mirror::new(&db).unwrap();
    db.put("first", "write").unwrap();
    let bytes = || -> u64 {
        // A worker may remove one after it was listed.
        begun_logs(&env).iter().filter_map(|log| Some(env.metadata(log).ok()?.bytes)).sum()
    };
    // Four write buffers of logs stay; of one more the oldest goes.
    let mut most = 0;
    for number in 0..3000 {
        db.put(key(number % 100), vec![number as u8; 1000]).unwrap();
        most = most.max(bytes());
    }
    assert!(most > 3 * (64 << 10) && most < 9 * (64 << 10), "{most}");
    let error = loop {
        match mirror.watch().next_timeout(NOW) {
            Ok(change) => assert!(change.is_some(), "no gap"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::ChangesGone { first: 3002, .. }), "{error:?}");
    mirror.apply(&db, Err(error)).unwrap();
    // What it will not read is not kept.
    db.flush().unwrap();
    until("without old logs", || bytes() < 2 * (64 << 10));
    db.put("later", "write").unwrap();
    mirror.catch_up(&db).unwrap();
    assert_eq!((mirror.lags, mirror.last), (1, 3002));
    assert_eq!(mirror.map, scan(&db).unwrap());
}

#[test]
fn changes_before_a_gap_come_before_its_error() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().keep_log_bytes(1 << 20)).unwrap();
    for round in 0..3 {
        (0..20).for_each(|number| db.put(key(number), vec![round; 50]).unwrap());
        db.flush().unwrap();
    }
    // Power was lost once: the first kept log was never synced, and nothing needs it.
    let log = begun_logs(&env).remove(0);
    let bytes = env.read_file(&log).unwrap();
    env.write_file(&log, &bytes[..bytes.len() / 2]);
    let mut watch = db.watch_from(1).unwrap();
    let mut before = 0;
    let error = loop {
        match watch.next_timeout(NOW) {
            Ok(change) => assert_eq!(change.map(|change| change.sequence), Some(before + 1)),
            Err(error) => break error,
        }
        before += 1;
    };
    assert!((5..20).contains(&before), "{before}");
    let is_next = |from| from == before + 1;
    assert!(matches!(error, Error::ChangesGone { from, first: 61, .. } if is_next(from)));
    assert_eq!(ready(&mut watch), []);
    db.put("later", "write").unwrap();
    assert_eq!(puts(&ready(&mut watch)), [(61, "later".to_string())]);
}

#[test]
fn unread_logs_stay_for_a_watch() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    for number in 0..20 {
        db.put(key(number), "v").unwrap();
        db.flush().unwrap();
    }
    let expected: Vec<_> = (0..20).map(|n| (n + 1, format!("key-{n:08}"))).collect();
    assert_eq!(puts(&ready(&mut watch)), expected);
    until("without read logs", || begun_logs(&env).len() <= 2);
    drop(watch);
    // And of one that is dropped nothing stays.
    let unread = db.watch().unwrap();
    (0..5).for_each(|number| {
        db.put(key(number), "w").unwrap();
        db.flush().unwrap();
    });
    assert!(begun_logs(&env).len() >= 5);
    drop(unread);
    until("without unread logs", || begun_logs(&env).len() <= 2);
}

#[test]
fn refused_writes_are_no_changes() {
    let memory = MemEnv::new();
    let fault = FaultEnv::new(Arc::new(memory.clone()));
    let env: Arc<dyn Env> = Arc::new(fault.clone());
    let db = small_options().env(env).open(HOME).unwrap();
    let mut watch = db.watch().unwrap();
    db.put("a", "1").unwrap();
    for kind in [FaultKind::Error(ENOSPC), FaultKind::ErrorAfter(ENOSPC)] {
        let calls = Calls::Named("write_at");
        fault.fail_at(fault.calls_of(calls), Fault::from_then_on(kind).among(calls));
        db.put("refused", "write").unwrap_err();
        assert!(watch.next_timeout(NOW).is_ok());
        fault.heal();
        db.resume().unwrap();
        db.put("b", "2").unwrap();
    }
    let found = ready(&mut watch);
    let keys = found.iter().filter_map(|change| match &change.entry {
        ChangedEntry::Put { key, .. } => Some(&key[..]),
        ChangedEntry::Load { .. } => None,
        other => panic!("{other:?}"),
    });
    assert!(keys.clone().all(|key| key != b"refused") && keys.count() >= 1, "{found:?}");
    assert_eq!(found.last().unwrap().sequence, db.snapshot().last_sequence());
}

#[test]
fn a_gap_ends_before_refused_writes() {
    let fault = FaultEnv::new(Arc::new(MemEnv::new()));
    let options = small_options().env(Arc::new(fault.clone()));
    let db = options.open(HOME).unwrap();
    let mut watch = db.watch().unwrap();
    (0..1000).for_each(|number| db.put(key(number), vec![0; 1000]).unwrap());
    let calls = Calls::Named("sync_data");
    let fails = Fault::from_then_on(FaultKind::Error(EIO)).among(calls);
    fault.fail_at(fault.calls_of(calls), fails);
    db.put_with("refused", "1", &WriteOptions::new().sync(true)).unwrap_err();
    // The next opening has it, with the number after the last write.
    for gone in [watch.next_timeout(NOW).unwrap_err(), db.watch_from(2000).unwrap_err()] {
        assert!(matches!(gone, Error::ChangesGone { first: 1001, .. }), "{gone:?}");
    }
}

#[test]
fn a_repair_is_a_gap_for_a_watch() {
    let env = MemEnv::new();
    let options = small_options().keep_log_bytes(1 << 20);
    let db = open(&env, &options).unwrap();
    (0..20).for_each(|number| db.put(key(number), "v").unwrap());
    db.flush().unwrap();
    (0..30).for_each(|number| db.put(key(number), "lost").unwrap());
    db.close().unwrap();
    // The last log and the manifest are damaged: writes are lost.
    let log = begun_logs(&env).pop().unwrap();
    let bytes = env.read_file(&log).unwrap();
    env.write_file(&log, &bytes[..bytes.len() / 2]);
    env.remove_file(&std::path::Path::new(HOME).join("CURRENT"));
    let report = options.clone().env(as_env(&env)).repair(HOME).unwrap();
    assert!(report.changed && !report.missing.is_empty(), "{report}");
    let db = open(&env, &options).unwrap();
    (0..60).for_each(|number| db.put(key(number), "new").unwrap());
    // No number of a lost write is given again.
    for from in [1, 20, 45, 50] {
        let gone = db.watch_from(from).unwrap_err();
        assert!(matches!(gone, Error::ChangesGone { first: 51, .. }), "{from}: {gone:?}");
    }
    assert_eq!(ready(&mut db.watch_from(51).unwrap()).len(), 60);
    let mut mirror = Mirror::new(&db).unwrap();
    db.put("later", "write").unwrap();
    mirror.catch_up(&db).unwrap();
    assert_eq!(mirror.map, scan(&db).unwrap());
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_polled_watch_is_woken_once() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    assert!(watch.poll_next(&mut context).is_pending());
    assert!(watch.poll_next(&mut context).is_pending());
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let next = |watch: &mut Watch, context: &mut Context<'_>| match watch.poll_next(context) {
        Poll::Ready(change) => change.map(|change| change.unwrap().sequence),
        Poll::Pending => Some(0),
    };
    let mut all = |watch: &mut Watch| [0; 3].map(|_| next(watch, &mut context));
    assert_eq!(all(&mut watch), [Some(1), Some(2), Some(0)]);
    // For whatever is a change, and for the end.
    db.ingest([("c", "3")]).unwrap();
    assert_eq!((all(&mut watch)[0], count.0.load(Ordering::SeqCst)), (Some(3), 2));
    db.keyspace("brief").unwrap();
    all(&mut watch);
    let woken = count.0.load(Ordering::SeqCst);
    db.keyspace("brief").unwrap().put("d", "4").unwrap();
    assert_eq!(all(&mut watch)[0], Some(4));
    db.drop_keyspace("brief").unwrap();
    assert_eq!((all(&mut watch)[0], count.0.load(Ordering::SeqCst)), (Some(4), woken + 2));
    let mut future = Box::pin(watch.next_async());
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    db.put("e", "5").unwrap();
    let ready = future.as_mut().poll(&mut context);
    assert!(matches!(ready, Poll::Ready(Some(Ok(change))) if change.sequence == 5));
    drop(future);
    assert!(watch.poll_next(&mut context).is_pending());
    let woken = count.0.load(Ordering::SeqCst);
    db.close().unwrap();
    assert!(matches!(watch.poll_next(&mut context), Poll::Ready(None)));
    assert_eq!(count.0.load(Ordering::SeqCst), woken + 1);
}

/// Closes the database when it is woken.
struct Closes(Db);

impl Wake for Closes {
    fn wake(self: Arc<Self>) {
        self.0.close().unwrap();
    }
}

/// A waker may poll its task at once, and that may close what is closed already.
#[test]
fn a_waker_that_closes_the_database_does_not_wait_for_ever() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    let waker = Waker::from(Arc::new(Closes(db.clone())));
    assert!(watch.poll_next(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    let (sender, closed) = mpsc::channel();
    std::thread::spawn(move || sender.send(db.close()));
    closed.recv_timeout(Duration::from_secs(60)).expect("closed").unwrap();
    assert!(watch.next().is_none());
}

/// Closes the database when it is woken, and sends the answer.
struct ClosesOnce(Db, Call, mpsc::Sender<Result<()>>);

/// A call of a database.
type Call = fn(&Db) -> Result<()>;

impl Wake for ClosesOnce {
    fn wake(self: Arc<Self>) {
        let _ = self.2.send((self.1)(&self.0));
    }
}

/// Whatever was written: a close waits for flushes, and `close_now` for batches and loads, too.
#[test]
fn a_waker_may_close_the_database_after_any_change() {
    let changes: [(&str, Call); 5] = [
        ("a put", |db| db.put("a", "1")),
        ("a load", |db| db.ingest([("a", "1")]).map(drop)),
        ("a batch", |db| {
            let mut batch = WriteBatch::new();
            batch.create_keyspace("new", &KeyspaceOptions::new()).put("a", "1");
            db.write(batch)
        }),
        ("a new keyspace", |db| db.keyspace("new").map(drop)),
        ("a drop", |db| db.drop_keyspace("old")),
    ];
    let closes: [Call; 2] = [Db::close, Db::close_now];
    for ((what, change), close) in changes.iter().flat_map(|c| closes.map(|close| (c, close))) {
        let env = MemEnv::new();
        let db = open(&env, &small_options()).unwrap();
        db.keyspace("old").unwrap().put("a", "1").unwrap();
        let mut watch = db.watch().unwrap();
        let (sender, closed) = mpsc::channel();
        let waker = Waker::from(Arc::new(ClosesOnce(db.clone(), close, sender)));
        assert!(watch.poll_next(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        let change = *change;
        let writer = std::thread::spawn(move || drop(change(&db)));
        let closed = closed.recv_timeout(Duration::from_secs(20));
        closed.unwrap_or_else(|error| panic!("{what}: {error}")).unwrap();
        writer.join().unwrap();
        drop(watch);
        drop(open(&env, &small_options()).unwrap());
    }
}

#[test]
fn a_blocked_watch_wakes_for_writes_and_the_end() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let watches: Vec<_> = (0..3).map(|_| db.watch().unwrap()).collect();
    std::thread::scope(|scope| {
        let readers = watches.into_iter().map(|watch| {
            scope.spawn(|| watch.map(|change| change.unwrap().sequence).collect::<Vec<_>>())
        });
        let readers: Vec<_> = readers.collect();
        (0..500).for_each(|number| db.put(key(number), "v").unwrap());
        // The last handle is closed, not dropped: what was written before is handed out.
        db.close().unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), (1..=500).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_watch_keeps_a_closed_directory_locked_until_its_end() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    db.put("a", "1").unwrap();
    drop(db);
    assert!(matches!(open(&env, &small_options()), Err(Error::Locked { .. })));
    assert_eq!(watch.by_ref().count(), 1);
    let db = open(&env, &small_options()).unwrap();
    // `close_now` takes the directory, and unread changes with it.
    let mut watch = db.watch().unwrap();
    db.put("b", "2").unwrap();
    db.close_now().unwrap();
    drop(open(&env, &small_options()).unwrap());
    assert!(matches!(watch.next(), Some(Err(Error::Closed))));
    assert!(watch.next().is_none());
    assert!(matches!(db.watch(), Err(Error::Closed)));
}

#[test]
fn only_an_open_writer_can_be_watched() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    db.put("a", "1").unwrap();
    let follower = small_options().env(as_env(&env)).open_follower(HOME).unwrap();
    assert!(matches!(follower.moment().watch(), Err(Error::OpenedReadOnly)));
    drop((db, follower));
    let reader = small_options().env(as_env(&env)).open_read_only(HOME).unwrap();
    assert!(matches!(reader.watch_from(1), Err(Error::OpenedReadOnly)));
}

/// An environment that writes to the keyspace `default` before each read of a log.
#[derive(Clone, Debug, Default)]
struct Busy {
    disk: MemEnv,
    db: Arc<Mutex<Option<Db>>>,
    writes: Arc<AtomicUsize>,
}

const BUSY_WRITES_MAX: usize = 1000;

impl Busy {
    fn write(&self) {
        let db = self.db.lock().unwrap().clone();
        if let Some(db) = db.filter(|_| self.writes.load(Ordering::SeqCst) < BUSY_WRITES_MAX) {
            self.writes.fetch_add(1, Ordering::SeqCst);
            db.put("k", "v").unwrap();
        }
    }

    /// Has the watch of another keyspace look for changes; answers how many writes came with that.
    fn writes_during(look: impl FnOnce(&mut Watch)) -> usize {
        let busy = Busy::default();
        let db = small_options().env(Arc::new(busy.clone())).open(HOME).unwrap();
        let mut watch = db.keyspace("quiet").unwrap().watch(..).unwrap();
        db.put("k", "v").unwrap();
        *busy.db.lock().unwrap() = Some(db);
        look(&mut watch);
        *busy.db.lock().unwrap() = None;
        busy.writes.load(Ordering::SeqCst)
    }
}

impl EnvLayer for Busy {
    fn inner(&self) -> &dyn Env {
        &self.disk
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let file = self.disk.open_random(path)?;
        let is_log = path.extension().is_some_and(|end| end == "wal");
        Ok(if is_log { Arc::new(BusyLog(file, self.clone())) } else { file })
    }
}

#[derive(Debug)]
struct BusyLog(Arc<dyn RandomFile>, Busy);

impl RandomFile for BusyLog {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.write();
        self.0.read_exact_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// An environment that counts the logs that are open to be read.
#[derive(Clone, Debug, Default)]
struct OpenLogs {
    disk: MemEnv,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl EnvLayer for OpenLogs {
    fn inner(&self) -> &dyn Env {
        &self.disk
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let file = self.disk.open_random(path)?;
        if path.extension().is_none_or(|end| end != "wal") {
            return Ok(file);
        }
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Ok(Arc::new(OpenLog(file, Arc::clone(&self.now))))
    }
}

#[derive(Debug)]
struct OpenLog(Arc<dyn RandomFile>, Arc<AtomicUsize>);

impl RandomFile for OpenLog {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

/// With the descriptors of all unread logs, the process had none left for the writer.
#[test]
fn a_late_watch_holds_few_logs_open() {
    let env = OpenLogs::default();
    let options = small_options().env(Arc::new(env.clone())).keep_log_bytes(1 << 30);
    let db = options.open(HOME).unwrap();
    let mut watch = db.watch().unwrap();
    for number in 0..30 {
        db.put(key(number), "v").unwrap();
        db.flush().unwrap();
    }
    assert_eq!(ready(&mut watch).len(), 30);
    assert_eq!(ready(&mut db.watch_from(15).unwrap()).len(), 16);
    assert_eq!(puts(&ready(&mut db.watch_from(1).unwrap())).len(), 30);
    let most = env.most.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most} logs were open");
}

/// Each write wakes every watch. One without changes looked again, however late it was.
#[test]
fn writes_elsewhere_do_not_lengthen_a_wait() {
    let writes = Busy::writes_during(|watch| assert_eq!(watch.next_timeout(NOW).unwrap(), None));
    assert!((1..20).contains(&writes), "{writes}");
}

/// A poll that looks again after each write blocks its executor.
#[test]
fn writes_elsewhere_do_not_hold_a_poll() {
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let writes = Busy::writes_during(|watch| {
        assert!(watch.poll_next(&mut Context::from_waker(&waker)).is_pending());
    });
    assert!((1..20).contains(&writes), "{writes}");
    assert!(count.0.load(Ordering::SeqCst) > 0, "its task looks again");
}
