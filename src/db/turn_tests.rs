//! Tests of the order in which compaction workers and callers of `compact_range` run, and of which
//! threads do.

use crate::base::events::event::Event;
use crate::db::keyspace::Keyspace;
use crate::env::mem::MemEnv;
use crate::jobs::compact::run::Cursors;
use crate::jobs::workers::{CompactionToken, compact_most_urgent};
use crate::options::compaction_filter::{CompactionDecision, CompactionFilter};
use crate::options::database::Options;
use crate::options::keyspace::KeyspaceOptions;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{ThreadId, current, scope, yield_now};
use std::time::{Duration, Instant};

/// After a flush of many keyspaces most of them have nothing to compact. A call asks how urgent all
/// of them are, so it does not end with the first one.
#[test]
fn one_call_passes_all_keyspaces_that_have_nothing_to_do() {
    let options = Options::new().level0_compaction_trigger(2).compaction_threads(1);
    let db = options.env(Arc::new(MemEnv::new())).open("/db").unwrap();
    // The test looks in place of the worker.
    let token = CompactionToken::wait(db.engine()).unwrap();
    let (cursors, jobs) = (Cursors::default(), &db.engine().jobs);
    let keyspaces: Vec<_> = (0..9).map(|n| db.keyspace(&n.to_string()).unwrap()).collect();
    let name_all = || jobs.schedule_compactions(keyspaces.iter().map(Keyspace::number));
    let look = || compact_most_urgent(db.engine(), &cursors, None).unwrap();
    let is_any_named = || !jobs.schedule.lock().compactions_wanted.is_empty();
    db.flush().unwrap();
    jobs.schedule.lock().compactions_wanted.clear();
    name_all();
    assert!(!look() && !is_any_named());
    // The one that is due comes first, and the call ends with it.
    for value in ["1", "2"] {
        keyspaces[5].put("k", value).unwrap();
        keyspaces[5].flush().unwrap();
    }
    name_all();
    assert!(look() && is_any_named());
    assert!(keyspaces[5].tables().iter().all(|table| table.level == 1));
    assert!(!look() && !is_any_named());
    drop(token);
    db.close().unwrap();
}

/// Blocks every compaction that asks it, until the test opens it.
#[derive(Debug, Default)]
struct Gate(OnceLock<()>);

impl CompactionFilter for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn filter(&self, _key: &[u8], _value: &[u8]) -> CompactionDecision {
        self.0.wait();
        CompactionDecision::Keep
    }
}

/// A long compaction of one keyspace does not keep another one waiting.
#[test]
fn compactions_run_beside_one_that_is_held_up() {
    let gate = Arc::new(Gate::default());
    let options = Options::new().level0_compaction_trigger(2).compaction_threads(2);
    let db = options.env(Arc::new(MemEnv::new())).open("/db").unwrap();
    let held_up = KeyspaceOptions::new().compaction_filter(Arc::<Gate>::clone(&gate) as _);
    let slow = db.keyspace_with("slow", &held_up).unwrap();
    let fast = db.keyspace("fast").unwrap();
    let claims = || db.engine().jobs.schedule.lock().claims.len();
    let is_compacted = |keyspace: &Keyspace| keyspace.tables().iter().all(|one| one.level == 1);
    for value in ["1", "2"] {
        slow.put("k", value).unwrap();
        slow.flush().unwrap();
    }
    let begins = within_seconds(&|| claims() == 1);
    for value in ["1", "2"] {
        fast.put("k", value).unwrap();
        fast.flush().unwrap();
    }
    let goes_on = within_seconds(&|| is_compacted(&fast) && claims() == 1);
    let waits = !is_compacted(&slow);
    // Before anything can fail: a close waits for what is held up.
    gate.0.set(()).unwrap();
    assert!(begins && goes_on && waits, "{begins} {goes_on} {waits}");
    assert!(within_seconds(&|| is_compacted(&slow) && claims() == 0));
    assert_eq!(slow.get("k").unwrap().unwrap(), "2");
    db.close().unwrap();
}

/// Whether something becomes true soon.
fn within_seconds(is_done: &dyn Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_done() && Instant::now() < deadline {
        yield_now();
    }
    is_done()
}

/// Counts the entries that it is asked about, and blocks until the test lets it go on.
#[derive(Debug, Default)]
struct Counted(OnceLock<()>, AtomicUsize);

impl CompactionFilter for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn filter(&self, _key: &[u8], _value: &[u8]) -> CompactionDecision {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.wait();
        CompactionDecision::Keep
    }
}

/// A thousand values may be a terabyte.
#[test]
fn a_close_ends_a_compaction_between_two_large_values() {
    let filter = Arc::new(Counted::default());
    let options = Options::new().level0_compaction_trigger(2).compaction_threads(1);
    let options = options.compaction_filter(Arc::<Counted>::clone(&filter) as _);
    let db = options.env(Arc::new(MemEnv::new())).open("/db").unwrap();
    for byte in [1, 2] {
        (0..30).for_each(|n| db.put(format!("{n:02}"), [byte; 100 << 10]).unwrap());
        db.flush().unwrap();
    }
    let asked = || filter.1.load(Ordering::SeqCst);
    let begins = within_seconds(&|| asked() == 1);
    scope(|scope| {
        let closing = scope.spawn(|| db.close());
        let stops = within_seconds(&|| db.engine().context.closed.load(Ordering::SeqCst));
        filter.0.set(()).unwrap();
        closing.join().unwrap().unwrap();
        assert!(begins && stops);
    });
    assert!(asked() <= 2, "{} of 30", asked());
}

/// Threads of the test below.
const THREADS: usize = 3;

/// Holds threads up until several have asked it; at most 20 seconds.
#[derive(Debug, Default)]
struct Meeting(Mutex<Vec<ThreadId>>, Condvar);

impl CompactionFilter for Meeting {
    fn name(&self) -> &'static str {
        "meeting"
    }

    fn filter(&self, _key: &[u8], _value: &[u8]) -> CompactionDecision {
        let mut threads = self.0.lock().unwrap();
        if !threads.contains(&current().id()) {
            threads.push(current().id());
            self.1.notify_all();
            let alone = |threads: &mut Vec<_>| threads.len() < THREADS;
            drop(self.1.wait_timeout_while(threads, Duration::from_secs(20), alone).unwrap());
        }
        CompactionDecision::Keep
    }
}

/// A caller and the threads that are free share one large compaction. Once it has ended, the
/// workers compact as before.
#[test]
fn free_threads_share_a_large_compaction() {
    let meeting = Arc::new(Meeting::default());
    let options = Options::new().snappy(false).table_bytes(16 << 10).compaction_threads(THREADS);
    let options = options.compaction_filter(Arc::<Meeting>::clone(&meeting) as _);
    let options = options.level0_compaction_trigger(2).env(Arc::new(MemEnv::new()));
    let db = options.open("/db").unwrap();
    let fill = |byte: u8| {
        (0..400).for_each(|n| db.put(format!("{n:03}"), [byte; 1000]).unwrap());
        db.flush().unwrap();
    };
    // Level 1 gets the tables that say where to cut.
    meeting.0.lock().unwrap().extend([current().id(); THREADS]);
    fill(1);
    db.compact_range(..).unwrap();
    meeting.0.lock().unwrap().clear();
    fill(2);
    db.compact_range(..).unwrap();
    assert_eq!(meeting.0.lock().unwrap().len(), THREADS);
    // A worker that looks for a task counts for a moment, too.
    let are_free = || db.engine().jobs.schedule.lock().compacting_threads == 0;
    assert!(within_seconds(&are_free), "helpers are given back");
    for byte in [3, 4] {
        fill(byte);
    }
    assert!(within_seconds(&|| db.tables().iter().all(|table| table.level == 1)));
    assert!(db.iter().all(|entry| *entry.unwrap().1 == [4; 1000]));
    db.close().unwrap();
}

/// Under a steady load some compaction is always due. The caller must not wait for all of them.
#[test]
fn a_waiting_caller_compacts_before_the_worker_goes_on() {
    let (ended, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Gate::default()));
    let names = Arc::clone(&ended);
    let listener = move |event: &Event| {
        if let Event::CompactionEnded { keyspace, .. } = event {
            names.lock().unwrap().push(keyspace.clone());
        }
    };
    let options = Options::new().level0_compaction_trigger(2).event_listener(Arc::new(listener));
    let options = options.compaction_threads(1).env(Arc::new(MemEnv::new()));
    let db = options.open("/db").unwrap();
    let held_up = KeyspaceOptions::new().compaction_filter(Arc::<Gate>::clone(&gate) as _);
    for name in ["a", "b", "c", "d"] {
        let keyspace = db.keyspace_with(name, &held_up).unwrap();
        for value in ["1", "2"] {
            keyspace.put("k", value).unwrap();
            keyspace.flush().unwrap();
        }
    }
    // The default keyspace has one table, so that nothing but the call compacts it.
    db.put("k", "1").unwrap();
    scope(|scope| {
        let called = scope.spawn(|| db.compact_range(..));
        let deadline = Instant::now() + Duration::from_secs(20);
        let waits = || db.engine().jobs.schedule.lock().callers_waiting > 0;
        while !waits() && Instant::now() < deadline {
            yield_now();
        }
        gate.0.set(()).unwrap();
        called.join().unwrap().unwrap();
    });
    db.close().unwrap();
    let ended = ended.lock().unwrap();
    assert_eq!(ended.get(1).map(String::as_str), Some("default"), "{ended:?}");
}

/// A call visits level after level down to its bottom level, where it cleans no table that is newer
/// than the call. What other compactions do between its steps must leave it nothing to miss.
#[test]
fn compactions_beside_a_call_stay_above_its_bottom_level() {
    let options = Options::new().level0_compaction_trigger(1).snappy(false);
    let options = options.table_bytes(16 << 10).level_base_bytes(16 << 10);
    let db = options.env(Arc::new(MemEnv::new())).open("/db").unwrap();
    let token = CompactionToken::wait(db.engine()).unwrap();
    let cursors = Cursors::default();
    let compact = |limit| {
        db.engine().jobs.schedule_compactions([db.number()]);
        while compact_most_urgent(db.engine(), &cursors, Some((db.number(), limit))).unwrap() {}
        db.tables().iter().map(|table| (table.level, table.entries)).collect::<Vec<_>>()
    };
    // More than level 1 should have, and one version too many once the snapshot is gone.
    (0..10).for_each(|number| db.put(format!("k{number}"), [0; 6 << 10]).unwrap());
    db.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    db.put("a", "2").unwrap();
    db.flush().unwrap();
    let with_garbage = compact(1);
    assert!(with_garbage.iter().all(|(level, _)| *level == 1), "{with_garbage:?}");
    drop(snapshot);
    assert_eq!(compact(1), with_garbage);
    let entries =
        |tables: Vec<(usize, u64)>| tables.iter().map(|(_, entries)| entries).sum::<u64>();
    assert_eq!((entries(with_garbage), entries(compact(2))), (12, 11));
    assert!(db.tables().iter().any(|table| table.level == 2));
    drop(token);
}
