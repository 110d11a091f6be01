//! What an [`EventListener`] is told: every kind of event, in an order that can be relied on, and
//! nothing that a listener does harms the database.
//!
//! `golden/events.txt` has the events of a scripted run, with times masked and files numbered.
//! `UPDATE_GOLDEN=1 cargo test --test it events` writes it anew.

use crate::support::data::{bytes, key};
use crate::support::filters::filter_offset;
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::stores::{HOME, as_env, files_ending, open, small_options, until};
use siftdb::env::testing::{Calls, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, MemEnv};
use siftdb::{
    CompactionDecision, CompactionFilter, Db, Error, Event, EventListener, Filter, FilterLayout,
    FilterPinning, KeyspaceOptions, Options,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// A listener that keeps what it is told.
#[derive(Default)]
struct Recorder {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
}

impl EventListener for Recorder {
    fn on_event(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
        self.changed.notify_all();
    }
}

impl Recorder {
    fn options(self: &Arc<Self>, options: &Options) -> Options {
        options.clone().event_listener(Arc::clone(self) as Arc<dyn EventListener>)
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    fn kinds(&self) -> Vec<String> {
        self.events().iter().map(kind).collect()
    }

    /// Waits until so many events of this kind have come.
    fn wait_for(&self, wanted: &str, count: usize) {
        let few = |events: &mut Vec<Event>| {
            events.iter().filter(|event| kind(event) == wanted).count() < count
        };
        drop(self.changed.wait_while(self.events.lock().unwrap(), few).unwrap());
    }

    fn count(&self, wanted: &str) -> usize {
        self.kinds().iter().filter(|kind| *kind == wanted).count()
    }
}

/// The name of the variant.
fn kind(event: &Event) -> String {
    let text = format!("{event:?}");
    text.split(' ').next().unwrap_or_default().to_string()
}

/// Events as text, with times masked, and files numbered in the order in which they appear.
#[derive(Default)]
struct Masked {
    names: BTreeMap<String, String>,
    text: String,
}

impl Masked {
    fn add(&mut self, title: &str, recorder: &Recorder) {
        writeln!(self.text, "-- {title}").unwrap();
        let mut lines = Vec::new();
        for event in recorder.events.lock().unwrap().drain(..) {
            let text = format!("{event:?}");
            let mut pieces = text.split("duration: ");
            let mut masked = pieces.next().unwrap_or_default().to_string();
            for piece in pieces {
                let end = piece.find([',', ' ']).unwrap_or(piece.len());
                masked += &format!("duration: TIME{}", &piece[end..]);
            }
            // Checksums depend on the random ids of tables.
            if let Some((before, after)) = masked.split_once("block checksum ") {
                let rest = after.find('"').map_or("", |end| &after[end..]);
                masked = format!("{before}block checksum ...{rest}");
            }
            let line = self.numbered(&masked.replace(&format!("{HOME}/"), ""));
            lines.push(line);
        }
        // Two workers remove files.
        let is_removal = |line: &String| line.starts_with("TableRemoved");
        lines
            .chunk_by_mut(|one, next| is_removal(one) && is_removal(next))
            .for_each(<[String]>::sort_unstable);
        lines.iter().for_each(|line| writeln!(self.text, "{line}").unwrap());
    }

    /// Replaces the names of files: their numbers depend on the schedule.
    fn numbered(&mut self, text: &str) -> String {
        let mut numbered = String::new();
        for word in text.split_inclusive('"') {
            let name = word.trim_end_matches('"');
            match name.rsplit_once('.') {
                Some((number, end)) if number.len() == 6 && number.parse::<u64>().is_ok() => {
                    let count = self.names.keys().filter(|name| name.ends_with(end)).count();
                    let known = self.names.entry(name.to_string());
                    let known = known.or_insert_with(|| format!("{}.{end}", count + 1));
                    numbered += &word.replace(name, known);
                }
                _ => numbered += word,
            }
        }
        numbered
    }
}

fn script_options() -> Options {
    small_options().auto_compaction(false).immutable_memtables_max(1).snappy(false)
}

/// Writes of 30 kB: the write buffer has room for two, and a third fills it.
fn put_large(db: &Db, from: usize, count: usize) -> siftdb::Result<()> {
    (from..from + count).try_for_each(|n| db.put(key(n), bytes(n as u64, 30_000)))
}

/// Two keyspaces, a flush of both, a rewrite and a removal.
fn write_and_compact(db: &Db, recorder: &Recorder) {
    let users = db.keyspace("users").unwrap();
    for round in 0..2 {
        (0..200).for_each(|n| db.put(key(n), bytes(round, 60)).unwrap());
        (0..50).for_each(|n| users.put(key(n), "user").unwrap());
        db.flush().unwrap();
        recorder.wait_for("FlushEnded", 1 + round as usize);
    }
    users.compact_range(..).unwrap();
    recorder.wait_for("TableRemoved", 2);
}

/// A writer that waits for a flush, which the gate holds back.
fn stall(db: &Db, gate: &Gate, recorder: &Recorder) {
    let _opens = OpensOnDrop([gate]);
    gate.shut(Stops::SyncsOf(".sst"));
    put_large(db, 1000, 4).unwrap();
    gate.wait_for_a_call();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put_large(db, 2000, 3));
        let is_stop = |event: &Event| matches!(event, Event::StallBegun { cause: "memtable", .. });
        until("stopped", || recorder.events().iter().any(is_stop));
        gate.open();
        writer.join().unwrap().unwrap();
    });
    recorder.wait_for("FlushEnded", 2);
    let stats = db.stats();
    assert!(stats.memtable_stalls > 0 && stats.memtable_stall_nanos > 0, "{stats}");
    assert_eq!((stats.level0_stalls, stats.level0_stall_nanos), (0, 0), "{stats}");
}

#[test]
fn a_scripted_run_tells_its_events() {
    let (disk, gate, recorder) = (MemEnv::new(), Gate::default(), Arc::new(Recorder::default()));
    let faults = FaultEnv::new(as_env(&disk));
    let env: Arc<dyn Env> = Arc::new(GateEnv::new(Arc::new(faults.clone()), &gate));
    let options = recorder.options(&script_options().env(env));
    let mut masked = Masked::default();
    let db = options.clone().open(HOME).unwrap();
    write_and_compact(&db, &recorder);
    masked.add("two keyspaces are written and flushed twice, one is compacted", &recorder);
    stall(&db, &gate, &recorder);
    masked.add("a writer waits for a flush", &recorder);
    faults
        .fail_at(0, Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Named("write_at")));
    while db.put("a key", bytes(1, 5_000)).is_ok() {}
    assert!(matches!(db.put("a key", "later"), Err(Error::ReadOnly { .. })));
    faults.heal();
    db.resume().unwrap();
    recorder.wait_for("Resumed", 1);
    masked.add("the disk is full, and there is space again", &recorder);
    db.put("key", "value").unwrap();
    db.close().unwrap();
    drop(db);
    let db = options.clone().open(HOME).unwrap();
    db.close().unwrap();
    drop(db);
    masked.add("it is closed and opened", &recorder);
    let users = files_ending(&disk, ".sst").into_iter().last().unwrap();
    let mut table = disk.read_file(&users).unwrap();
    table[filter_offset(&disk, &users, false)] ^= 1;
    disk.write_file(&users, &table);
    let db = options.clone().recovery(siftdb::Recovery::Strict).open(HOME).unwrap();
    (0..3).for_each(|_| drop(db.get("absent").unwrap()));
    db.close().unwrap();
    masked.add("a filter is damaged", &recorder);
    compare_or_update(&masked.text);
}

fn compare_or_update(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/events.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let there = std::fs::read_to_string(path).unwrap();
    for (there, here) in there.lines().zip(text.lines()) {
        assert_eq!(here, there, "golden/events.txt; UPDATE_GOLDEN=1 renews it:\n{text}");
    }
    assert_eq!(there.len(), text.len(), "golden/events.txt differs in length");
}

/// Each end has its begin, tables are created once and removed after that.
fn check_order(events: &[Event]) {
    let (mut flushing, mut compacting, mut stalls) = (false, BTreeSet::new(), Vec::new());
    let mut tables: BTreeMap<&Path, &str> = BTreeMap::new();
    let mut is_read_only = false;
    for event in events {
        match event {
            Event::FlushBegun { .. } => assert!(!std::mem::replace(&mut flushing, true)),
            Event::FlushEnded { .. } => assert!(std::mem::take(&mut flushing)),
            Event::CompactionBegun { number, .. } => assert!(compacting.insert(*number)),
            Event::CompactionEnded { number, .. } => assert!(compacting.remove(number)),
            Event::StallBegun { cause, .. } => stalls.push(*cause),
            Event::StallEnded { cause, .. } => assert_eq!(stalls.pop(), Some(*cause)),
            Event::FilterBuilt { path, .. } => {
                assert_eq!(tables.insert(path, "built"), None, "{path:?}");
            }
            Event::TableCreated { path, .. } => {
                assert_eq!(tables.insert(path, "created"), Some("built"), "{path:?}");
            }
            Event::TableRemoved { path, .. } => {
                assert_eq!(tables.insert(path, "removed"), Some("created"), "{path:?}");
            }
            Event::BackgroundError { .. } => {
                assert!(!std::mem::replace(&mut is_read_only, true));
            }
            Event::Resumed { .. } => assert!(std::mem::take(&mut is_read_only)),
            _ => {}
        }
    }
    assert!(compacting.is_empty() && !flushing && stalls.is_empty());
}

#[test]
fn events_keep_their_order_under_load() {
    let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
    let db = open(&disk, &recorder.options(&small_options())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..600 {
                    db.put(key(n * 3 + thread), bytes(n as u64, 800)).unwrap();
                }
            });
        }
        (0..5).for_each(|_| db.compact_range(..).unwrap());
    });
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    db.close().unwrap();
    let events = recorder.events();
    check_order(&events);
    // What is told is what is counted, and what is there.
    let stats = db.stats();
    let sum = |of: &dyn Fn(&Event) -> u64| events.iter().map(of).sum::<u64>();
    let flushed = sum(&|event| match event {
        Event::FlushEnded { bytes, error: None, .. } => *bytes,
        _ => 0,
    });
    assert!(stats.flushes > 5 && flushed == stats.flush_bytes, "{stats}");
    let compacted = sum(&|event| match event {
        Event::CompactionEnded { bytes, error: None, .. } => *bytes,
        _ => 0,
    });
    assert!(stats.compactions > 1 && compacted == stats.compaction_bytes_written, "{stats}");
    let by_level: Vec<u64> = stats.levels.iter().map(|level| level.bytes_written).collect();
    assert_eq!((by_level[0], by_level.iter().sum()), (flushed, flushed + compacted));
    assert!(stats.levels.iter().all(|level| level.filter_bytes_written <= level.bytes_written));
    assert!(stats.total().filter_bytes_written > 0, "{stats}");
    let stalls = recorder.count("StallEnded") as u64;
    assert!(stalls >= stats.memtable_stalls + stats.level0_stalls, "{stats}");
    let created = events.iter().filter_map(|event| match event {
        Event::TableCreated { path, .. } => Some(path),
        _ => None,
    });
    let removed: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::TableRemoved { path, .. } => Some(path),
            _ => None,
        })
        .collect();
    let mut live: Vec<_> = created.filter(|path| !removed.contains(path)).cloned().collect();
    live.sort();
    assert_eq!(live, files_ending(&disk, ".sst"));
}

/// A listener that reads and writes its own database, and panics now and then.
struct Meddler {
    db: Mutex<Option<Db>>,
    calls: Mutex<usize>,
}

impl EventListener for Meddler {
    fn on_event(&self, event: &Event) {
        let calls = {
            let mut calls = self.calls.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *calls += 1;
            *calls
        };
        let db = self.db.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        if let Some(db) = db {
            // Whatever takes locks, in whatever order.
            db.put("event", format!("{event:?}")).unwrap_or_default();
            let _ = (db.stats(), db.get("event"), db.snapshot(), db.tables(), db.sync());
            if calls.is_multiple_of(4) {
                let _ = (db.flush(), db.compact_range(..));
            }
            if calls.is_multiple_of(3) {
                panic!("a listener that panics");
            }
        }
    }
}

#[test]
fn a_listener_may_use_its_database_and_panic() {
    let meddler = Arc::new(Meddler { db: Mutex::default(), calls: Mutex::default() });
    let disk = MemEnv::new();
    let listener = Arc::clone(&meddler) as Arc<dyn EventListener>;
    let db = open(&disk, &script_options().event_listener(listener)).unwrap();
    *meddler.db.lock().unwrap() = Some(db.clone());
    for n in 0..400 {
        db.put(key(n), bytes(n as u64, 1_000)).unwrap();
        if n % 100 == 99 {
            db.flush().unwrap();
            db.compact_range(..).unwrap();
        }
    }
    *meddler.db.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    // No job has failed, and every event arrives although the listener panicked.
    db.flush().unwrap();
    db.close().unwrap();
    assert!(*meddler.calls.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) > 20);
    drop(db);
    let db = open(&disk, &script_options()).unwrap();
    assert!((0..400).all(|n| *db.get(key(n)).unwrap().unwrap() == *bytes(n as u64, 1_000)));
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

#[test]
fn a_close_in_the_listener_ends() {
    let meddler = Arc::new(Mutex::new(None::<Db>));
    let inside = Arc::clone(&meddler);
    let (sender, returns) = std::sync::mpsc::channel();
    let listener = move |_: &Event| {
        if let Some(db) = inside.lock().unwrap().take() {
            db.close().unwrap();
            sender.send(()).unwrap();
        }
    };
    let disk = MemEnv::new();
    let db = open(&disk, &script_options().event_listener(Arc::new(listener))).unwrap();
    *meddler.lock().unwrap() = Some(db.clone());
    db.put("key", "value").unwrap();
    // The flush ends, or finds the database closed.
    let _ = db.flush();
    while !matches!(db.put("later", ""), Err(Error::Closed)) {
        std::thread::yield_now();
    }
    drop(db);
    // It does not wait for itself.
    returns.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    // The thread of the listener drops the last handle a little later.
    let opened = Mutex::new(None);
    until("opened", || {
        *opened.lock().unwrap() = open(&disk, &script_options()).ok();
        opened.lock().unwrap().is_some()
    });
    let db = opened.into_inner().unwrap().unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
}

/// The other one waits for the listener then.
#[test]
fn a_listener_may_close_during_a_close() {
    let shared = Arc::new(Mutex::new(None::<Db>));
    let inside = Arc::clone(&shared);
    let (sender, entered) = std::sync::mpsc::channel();
    let listener = move |_: &Event| {
        if let Some(db) = inside.lock().unwrap().take() {
            sender.send(()).unwrap();
            until("closed", || matches!(db.put("k", ""), Err(Error::Closed)));
            db.close().unwrap();
            sender.send(()).unwrap();
        }
    };
    let options = script_options().event_listener(Arc::new(listener));
    let db = open(&MemEnv::new(), &options).unwrap();
    *shared.lock().unwrap() = Some(db.clone());
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    entered.recv().unwrap();
    db.close().unwrap();
    entered.try_recv().unwrap();
}

#[test]
fn failed_flushes_create_no_tables() {
    for nth in 0.. {
        let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
        let faults = FaultEnv::new(as_env(&disk));
        let options = recorder.options(&script_options()).env(Arc::new(faults.clone()));
        let db = options.open(HOME).unwrap();
        db.put("key", "value").unwrap();
        let first = faults.calls_of(Calls::Changes);
        let fault = Fault::once(FaultKind::Error(EIO)).among(Calls::Changes);
        faults.fail_at(first + nth, fault);
        let has_failed = db.flush().is_err();
        drop(db);
        let created = recorder.count("TableCreated");
        assert_eq!(created, usize::from(!has_failed), "{nth}: {:?}", recorder.kinds());
        if !has_failed {
            assert!(nth > 5);
            break;
        }
    }
}

#[test]
fn removals_that_fail_are_not_told() {
    let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
    let faults = FaultEnv::new(as_env(&disk));
    let options = recorder.options(&script_options()).env(Arc::new(faults.clone()));
    let db = options.open(HOME).unwrap();
    for _ in 0..2 {
        db.put("key", "value").unwrap();
        db.flush().unwrap();
    }
    let fault = Fault::from_then_on(FaultKind::Error(EIO)).among(Calls::Named("remove"));
    faults.fail_at(0, fault);
    db.compact_range(..).unwrap();
    db.close().unwrap();
    assert!(faults.has_fired() && recorder.count("CompactionEnded") == 1);
    assert_eq!(recorder.count("TableRemoved"), 0);
}

#[test]
fn failed_jobs_end_before_their_background_error() {
    for (call, begun, ended) in [
        ("create_new", "FlushBegun", "FlushEnded"),
        ("sync_all", "CompactionBegun", "CompactionEnded"),
    ] {
        let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
        let faults = FaultEnv::new(as_env(&disk));
        let options = recorder.options(&script_options()).env(Arc::new(faults.clone()));
        let db = options.open(HOME).unwrap();
        db.put("key", "value").unwrap();
        let compacts = ended == "CompactionEnded";
        if compacts {
            db.flush().unwrap();
            db.put("key", "value").unwrap();
            db.flush().unwrap();
            recorder.wait_for("FlushEnded", 2);
        }
        // A flush creates a log first.
        let nth = faults.calls_of(Calls::Named(call)) + u64::from(!compacts);
        faults.fail_at(nth, Fault::once(FaultKind::Error(EIO)).among(Calls::Named(call)));
        let failed = if compacts { db.compact_range(..) } else { db.flush() };
        assert!(failed.is_err() && faults.has_fired(), "{call}");
        drop(db);
        let events = recorder.events();
        check_order(&events);
        let kinds = recorder.kinds();
        let at = |wanted: &str| kinds.iter().rposition(|kind| kind == wanted).unwrap();
        assert!(at(begun) < at(ended) && at(ended) < at("BackgroundError"), "{kinds:?}");
        let is_failed = |event: &Event| match event {
            Event::FlushEnded { error, tables, .. }
            | Event::CompactionEnded { error, tables, .. } => {
                matches!(error, Some(Error::Io { .. })) && *tables == 0
            }
            _ => false,
        };
        assert!(is_failed(&events[at(ended)]), "{events:?}");
    }
}

#[test]
fn damaged_filters_are_told_once_for_each_table() {
    for (layout, partition) in [
        (FilterLayout::Full, false),
        (FilterLayout::Partitioned { block_bytes: 256 }, false),
        (FilterLayout::Partitioned { block_bytes: 256 }, true),
        (FilterLayout::BlockBased { window_bytes: 2048 }, false),
    ] {
        let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
        let options = script_options().filter(Filter::bloom(10.0).layout(layout));
        // From the cache and pinned.
        for share in [0.0, 0.5] {
            let options = recorder.options(&options.clone().filter_pinned_share(share));
            let db = open(&disk, &options).unwrap();
            (0..300).for_each(|n| db.put(key(n), bytes(n as u64, 60)).unwrap());
            db.flush().unwrap();
            db.close().unwrap();
            drop(db);
            for table in files_ending(&disk, ".sst") {
                let mut bytes = disk.read_file(&table).unwrap();
                bytes[filter_offset(&disk, &table, partition)] ^= 0x10;
                disk.write_file(&table, &bytes);
            }
            recorder.events.lock().unwrap().clear();
            let db = open(&disk, &options).unwrap();
            for _ in 0..3 {
                assert!((0..300).all(|n| db.get(key(n)).unwrap().is_some()), "{layout}");
            }
            db.close().unwrap();
            let damaged: Vec<_> = recorder
                .events()
                .into_iter()
                .filter_map(|event| match event {
                    Event::FilterDamaged { path, error, .. } => {
                        assert!(error.is_corruption(), "{error}");
                        Some(path)
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(damaged, files_ending(&disk, ".sst"), "{layout} {partition} {share}");
            files_ending(&disk, ".sst").iter().for_each(|path| drop(disk.remove(path)));
            for path in disk.list_files() {
                disk.remove(&path).unwrap();
            }
        }
    }
}

/// A writer saves `FilterPinning::All`. No opening may fail because it has no memory to pin.
#[test]
fn saved_pinning_is_lowered_where_no_memory_may_be_pinned() {
    let pinned = || Filter::bloom(10.0).pinning(FilterPinning::All);
    let of_level = KeyspaceOptions::new().filter_at_level(0, pinned());
    for (cache_bytes, share) in [(0, 0.5), (128 << 10, 0.0), (1, 0.5)] {
        let disk = MemEnv::new();
        let db = open(&disk, &small_options().filter(pinned())).unwrap();
        let other = db.keyspace_with("other", &of_level).unwrap();
        let saved = (db.settings(), other.settings());
        (0..300).for_each(|n| db.put(key(n), "1").unwrap());
        other.put("k", "1").unwrap();
        db.flush().unwrap();
        let recorder = Arc::new(Recorder::default());
        let small = small_options().block_cache_bytes(cache_bytes).filter_pinned_share(share);
        let options = || recorder.options(&small).env(as_env(&disk));
        let told = |openings: usize| {
            until("told", || recorder.count("FiltersUnpinned") >= openings);
            let is_told = |event: &Event| matches!(event, Event::FiltersUnpinned { .. });
            for event in recorder.events().iter().filter(|event| is_told(event)) {
                assert!(matches!(event, Event::FiltersUnpinned { keyspaces: 2, .. }), "{event:?}");
            }
            assert_eq!(recorder.count("FiltersUnpinned"), openings);
        };
        let follower = options().open_follower(HOME).unwrap();
        for n in 300..310 {
            db.put(key(n), "1").unwrap();
            db.flush().unwrap();
            assert!(follower.refresh().unwrap());
            assert_eq!(follower.iter().count(), n + 1);
        }
        told(1);
        db.close().unwrap();
        drop((db, other));
        assert_eq!(options().open_read_only(HOME).unwrap().iter().count(), 310);
        told(2);
        let db = options().open(HOME).unwrap();
        let other = db.keyspace_with("other", &KeyspaceOptions::new().block_bytes(256)).unwrap();
        db.put(key(310), "1").unwrap();
        db.flush().unwrap();
        assert_eq!(db.stats().pinned_bytes, 0);
        assert_eq!((db.settings(), other.settings()), (saved.0, saved.1.block_bytes(256)));
        drop((db, other));
        told(3);
        // Named by the caller, it stays an error.
        let named = options().filter_at_level(1, pinned()).open(HOME);
        assert!(matches!(named, Err(Error::InvalidOptions { .. })));
        told(3);
        // With memory it is in force again.
        let db = open(&disk, &small_options()).unwrap();
        assert_eq!(db.iter().count(), 311);
        assert!(db.stats().pinned_bytes > 0);
    }
}

/// A compaction filter that waits while it is shut.
#[derive(Debug, Default)]
pub struct Shut(Mutex<bool>, Condvar);

impl Shut {
    pub fn shut(&self) {
        *self.0.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.0.lock().unwrap() = false;
        self.1.notify_all();
    }
}

impl CompactionFilter for Shut {
    fn name(&self) -> &str {
        "test.Shut"
    }

    fn filter(&self, _: &[u8], _: &[u8]) -> CompactionDecision {
        drop(self.1.wait_while(self.0.lock().unwrap(), |shut| *shut).unwrap());
        CompactionDecision::Keep
    }
}

/// A database whose writes are slowed down until the filter is opened.
pub fn slowed_down(open: impl FnOnce(Options) -> Db) -> (Db, Arc<Shut>) {
    let filter = Arc::new(Shut::default());
    let options = small_options().level0_compaction_trigger(1).write_buffer_bytes(1 << 20);
    let db = open(options.compaction_filter(Arc::clone(&filter) as Arc<dyn CompactionFilter>));
    filter.shut();
    // No compaction ends, so level 0 grows.
    for n in 0..7 {
        db.put(key(n % 3), bytes(n as u64, 300)).unwrap();
        db.flush().unwrap();
    }
    // Each waits a millisecond or more.
    (0..5).for_each(|n| db.put(key(n), bytes(n as u64, 100_000)).unwrap());
    (db, filter)
}

#[test]
fn a_close_ends_a_slowdown() {
    let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
    let (db, filter) = slowed_down(|options| open(&disk, &recorder.options(&options)).unwrap());
    recorder.wait_for("StallBegun", 1);
    filter.open();
    db.close().unwrap();
    check_order(&recorder.events());
}

#[test]
fn a_full_level_0_is_told_and_counted() {
    let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
    let (db, filter) = slowed_down(|options| open(&disk, &recorder.options(&options)).unwrap());
    let stalls = |wanted: &str| {
        let is_wanted =
            |event: &&Event| matches!(event, Event::StallBegun { cause, .. } if *cause == wanted);
        recorder.events().iter().filter(is_wanted).count() as u64
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..40 {
                db.put(key(n), "full").unwrap();
                db.flush().unwrap();
            }
        });
        until("stopped", || stalls("level0") > 0);
        filter.open();
        writer.join().unwrap();
    });
    db.close().unwrap();
    check_order(&recorder.events());
    let stats = db.stats();
    assert_eq!(stalls("level0"), stats.level0_stalls, "{stats}");
    assert_eq!(stalls("memtable"), stats.memtable_stalls, "{stats}");
    assert!(stats.level0_stall_nanos > 0, "{stats}");
}

#[test]
fn slowdowns_are_told_as_episodes() {
    let (disk, recorder) = (MemEnv::new(), Arc::new(Recorder::default()));
    let (db, filter) = slowed_down(|options| open(&disk, &recorder.options(&options)).unwrap());
    recorder.wait_for("StallBegun", 1);
    filter.open();
    db.compact_range(..).unwrap();
    db.put("key", "fast").unwrap();
    db.close().unwrap();
    let stats = db.stats();
    assert!(stats.slowdowns >= 5, "{stats}");
    let events = recorder.events();
    check_order(&events);
    // Tables that compactions take away end an episode, and the next flush may begin another.
    let is_slowdown = |event: &&Event| {
        matches!(event, Event::StallEnded { cause: "slowdown", duration, .. }
            if *duration >= std::time::Duration::from_millis(1))
    };
    let episodes = events.iter().filter(is_slowdown).count() as u64;
    assert!((1..=stats.slowdowns - 4).contains(&episodes), "{stats}\n{events:?}");
}
