//! Changes: the writes of a database in their order, read while another process makes them.

use crate::support::data::{bytes, key};
use crate::support::mirror::write_some;
use crate::support::rng::Rng;
use crate::support::stores::{HOME, as_env, begun_logs, open, scan, small_options};
use siftdb::env::testing::{Calls, Fault, FaultEnv, FaultKind};
use siftdb::env::{CountingEnv, DiskEnv, Env, MemEnv};
use siftdb::{
    Change, ChangedEntry, CompactRangeOptions, Db, Error, Follower, KeyspaceOptions, Options,
    WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const NAMES: [&str; 3] = ["default", "orders", "users"];

fn write_few(db: &Db, rng: &mut Rng) {
    for _ in 0..rng.below(12) {
        write_some(db, rng, &NAMES);
    }
}

fn keeping(bytes: u64) -> Options {
    small_options().keep_log_bytes(bytes)
}

/// Has memory for what a busy machine leaves in logs for a while.
fn follow(env: &MemEnv) -> Follower {
    let options = small_options().env(as_env(env)).read_only_log_bytes_max(16 << 20);
    options.open_follower(HOME).unwrap()
}

fn changes(follower: &Follower, from: u64) -> Vec<Change> {
    follower.changes(from).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A copy of all keyspaces, by number, that is made of changes alone.
#[derive(Default)]
struct Copy {
    keyspaces: BTreeMap<u32, Map>,
    next: u64,
    loads: usize,
}

impl Copy {
    fn apply(&mut self, change: Change, follower: &Follower) {
        // A load whose tables were compacted may have a change in each keyspace.
        let is_again = matches!(change.entry, ChangedEntry::Load { .. });
        assert!(change.sequence == self.next || is_again && change.sequence + 1 == self.next);
        self.next = change.sequence + 1;
        let map = self.keyspaces.entry(change.keyspace_number).or_default();
        match change.entry {
            ChangedEntry::Put { key, value, .. } => drop(map.insert(key, value)),
            ChangedEntry::Delete { key } => drop(map.remove(&key)),
            ChangedEntry::DeleteRange { start, end } => {
                map.retain(|key, _| *key < start || end.as_ref().is_some_and(|end| key >= end));
            }
            ChangedEntry::Load { start, end } => {
                let keyspace = follower.keyspace(&change.keyspace.unwrap()).unwrap();
                let is_in = |key: &Vec<u8>| *key >= start && end.as_ref().is_none_or(|e| key < e);
                map.retain(|key, _| !is_in(key));
                map.extend(scan(&keyspace).unwrap().into_iter().filter(|(key, _)| is_in(key)));
                self.loads += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn changes_rebuild_what_a_follower_shows() {
    for seed in 0..8 {
        let (env, mut rng) = (MemEnv::new(), Rng::new(seed));
        let options = keeping(64 << 20);
        let mut db = open(&env, &options).unwrap();
        NAMES.iter().for_each(|name| drop(db.keyspace(name).unwrap()));
        let follower = follow(&env);
        let mut copy = Copy { next: 1, ..Copy::default() };
        for _ in 0..60 {
            write_few(&db, &mut rng);
            match rng.below(8) {
                0 => db.flush().unwrap(),
                1 => {
                    db.close().unwrap();
                    db = open(&env, &options).unwrap();
                }
                2 => {
                    let first = rng.below(250);
                    let entries = (first..first + 30).map(|number| (key(number), "loaded"));
                    let name = NAMES[rng.below(NAMES.len())];
                    db.keyspace(name).unwrap().ingest(entries).unwrap();
                }
                _ => {}
            }
            follower.refresh().unwrap();
            let new = changes(&follower, copy.next);
            new.into_iter().for_each(|change| copy.apply(change, &follower));
            assert_eq!(copy.next, follower.last_sequence() + 1);
            for name in NAMES {
                let keyspace = follower.keyspace(name).unwrap();
                let copied = copy.keyspaces.entry(keyspace.number()).or_default();
                assert_eq!(scan(&keyspace).unwrap(), *copied, "{name} of seed {seed}");
            }
        }
        assert!(changes(&follower, copy.next).is_empty() && copy.loads > 0);
        // From any sequence on they are the same.
        let all = changes(&follower, 0);
        for _ in 0..20 {
            let from = rng.below(all.len());
            assert_eq!(changes(&follower, all[from].sequence), all[from..], "{from}");
        }
    }
}

#[test]
fn a_change_says_what_was_written() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let orders = db.keyspace("orders").unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(9_000_000_000_000);
    db.put("a", "1").unwrap();
    orders.put_with("b", "2", &WriteOptions::new().expire_at(at)).unwrap();
    orders.delete_range("c"..).unwrap();
    let follower = follow(&env);
    db.drop_keyspace("orders").unwrap();
    let shown = changes(&follower, 1);
    let name = |change: &Change| change.keyspace.as_deref().map(String::from);
    let places: Vec<_> = shown.iter().map(|c| (c.sequence, c.keyspace_number, name(c))).collect();
    let orders = Some("orders".to_string());
    assert_eq!(places[0], (1, 0, Some("default".into())));
    assert_eq!(places[1..], [(2, 1, orders.clone()), (3, 1, orders)]);
    let put = |key: &str, value: &str, expires_at| ChangedEntry::Put {
        key: key.into(),
        value: value.into(),
        expires_at,
    };
    assert_eq!(shown[0].entry, put("a", "1", None));
    assert_eq!(shown[1].entry, put("b", "2", Some(at)));
    assert_eq!(shown[2].entry, ChangedEntry::DeleteRange { start: b"c".to_vec(), end: None });
    // The drop is no change, and takes the name away.
    follower.refresh().unwrap();
    let shown = changes(&follower, 2);
    assert_eq!(shown.len(), 2);
    assert!(shown.iter().all(|change| change.keyspace.is_none() && change.keyspace_number == 1));
}

#[test]
fn gaps_name_the_next_change() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    (0..50).for_each(|number| db.put(key(number), "old").unwrap());
    db.flush().unwrap();
    let follower = follow(&env);
    let gap = |from: u64| match follower.changes(from) {
        Err(Error::ChangesGone { from: missing, first, .. }) => (missing, first),
        other => panic!("{other:?}"),
    };
    assert_eq!((gap(0), gap(7), gap(50)), ((1, 51), (7, 51), (50, 51)));
    assert!(changes(&follower, 51).is_empty());
    (0..20).for_each(|number| db.put(key(number), "new").unwrap());
    follower.refresh().unwrap();
    assert_eq!(gap(3), (3, 51));
    assert_eq!(changes(&follower, 51).len(), 20);
    assert_eq!(changes(&follower, 60).len(), 11);
    let error = follower.changes(1).unwrap_err();
    assert_eq!(error.kind(), "changes_gone");
    assert!(error.to_string().contains("no change 1; the next one is 51"), "{error}");
}

#[test]
fn a_gap_in_the_middle_follows_the_changes_before() {
    let env = MemEnv::new();
    let db = open(&env, &keeping(1 << 20)).unwrap();
    for round in 0..3 {
        (0..20).for_each(|number| db.put(key(number), vec![round; 50]).unwrap());
        db.flush().unwrap();
    }
    let follower = follow(&env);
    assert_eq!(changes(&follower, 1).len(), 60);
    // Power was lost: the first kept log was never synced, and nothing needs it.
    let logs = begun_logs(&env);
    let mut bytes = env.read_file(&logs[0]).unwrap();
    bytes.truncate(bytes.len() / 2);
    env.write_file(&logs[0], &bytes);
    let mut shown = follower.changes(1).unwrap();
    let before = shown.by_ref().take_while(|change| change.is_ok()).count();
    assert!((5..20).contains(&before), "{before}");
    assert!(shown.next().is_none(), "nothing follows an error");
    match follower.changes(1).unwrap().find_map(Result::err) {
        Some(Error::ChangesGone { from, first: 21, .. }) => assert_eq!(from, before as u64 + 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(changes(&follower, 21).len(), 40);
    // The log in the middle is gone.
    env.remove_file(&logs[1]);
    assert_eq!(changes(&follower, 41).len(), 20);
    assert!(matches!(follower.changes(1), Err(Error::ChangesGone { first: 41, .. })));
}

#[test]
fn a_missing_last_write_is_a_gap() {
    let env = MemEnv::new();
    let db = open(&env, &keeping(1 << 20)).unwrap();
    (0..20).for_each(|number| db.put(key(number), "v").unwrap());
    db.flush().unwrap();
    let log = begun_logs(&env).remove(0);
    let mut bytes = env.read_file(&log).unwrap();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap());
    env.write_file(&log, &bytes);
    let mut shown = follow(&env).changes(1).unwrap();
    assert_eq!(shown.by_ref().take(19).filter(Result::is_ok).count(), 19);
    let gap = shown.next().unwrap();
    assert!(matches!(gap, Err(Error::ChangesGone { from: 20, first: 21, .. })), "{gap:?}");
}

#[test]
fn changes_end_with_the_read_point() {
    let env = MemEnv::new();
    let db = open(&env, &keeping(1 << 20)).unwrap();
    db.put("a", "1").unwrap();
    let follower = follow(&env);
    // Of a batch that creates a keyspace the logs have only the number.
    let mut batch = WriteBatch::new();
    batch.create_keyspace("new", &KeyspaceOptions::new()).put("b", "2");
    db.write(batch).unwrap();
    db.put("c", "3").unwrap();
    let sequences = |from| changes(&follower, from).iter().map(|c| c.sequence).collect::<Vec<_>>();
    assert_eq!(sequences(1), [1]);
    follower.refresh().unwrap();
    assert_eq!(sequences(1), [1, 2, 2, 3]);
    assert_eq!(sequences(2), [2, 2, 3]);
}

#[test]
fn taken_changes_outlive_their_logs() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    (0..40).for_each(|number| db.put(key(number), vec![7; 60_000]).unwrap());
    let follower = follow(&env);
    let from = follower.changes(0).map_or_else(
        |error| match error {
            Error::ChangesGone { first, .. } => first,
            other => panic!("{other}"),
        },
        |_| 1,
    );
    let mut shown = follower.changes(from).unwrap();
    let last = follower.last_sequence();
    let logs = begun_logs(&env);
    db.flush().unwrap();
    (0..40).for_each(|number| db.put(key(number), vec![8; 60_000]).unwrap());
    db.flush().unwrap();
    assert!(logs.iter().all(|log| !begun_logs(&env).contains(log)));
    for sequence in from..=last {
        let change = shown.next().unwrap().unwrap();
        assert_eq!(change.sequence, sequence);
        assert!(matches!(change.entry, ChangedEntry::Put { value, .. } if value[0] == 7));
    }
    assert!(shown.next().is_none());
}

#[test]
fn batches_are_not_torn_between_moments() {
    let env = MemEnv::new();
    let db = open(&env, &keeping(64 << 20)).unwrap();
    let follower = follow(&env);
    let mut next = 1;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..300 {
                let mut batch = WriteBatch::new();
                for number in 0..10 {
                    batch.put(key(number), vec![round as u8; 300]);
                }
                db.write(batch).unwrap();
            }
        });
        loop {
            let is_last = writer.is_finished();
            follower.refresh().unwrap();
            for change in follower.changes(next).unwrap() {
                assert_eq!(change.unwrap().sequence, next);
                next += 1;
            }
            assert_eq!((next - 1) % 10, 0, "a part of a batch");
            if is_last {
                break;
            }
        }
    });
    assert_eq!(next, 3001);
}

#[test]
fn a_load_is_a_change_of_its_range() {
    let env = MemEnv::new();
    let db = open(&env, &keeping(1 << 20)).unwrap();
    let follower = follow(&env);
    db.put("a", "1").unwrap();
    db.ingest([("c", "2"), ("e", "3")]).unwrap();
    follower.refresh().unwrap();
    let load = |sequence, start: &str, end: &[u8]| {
        Change::clone(&changes(&follower, sequence)[0]).entry
            == ChangedEntry::Load { start: start.into(), end: Some(end.into()) }
    };
    assert!(load(2, "c", b"e\0"));
    assert_eq!(changes(&follower, 1).len(), 2);
    db.put("b", "4").unwrap();
    db.ingest([("x", "5")]).unwrap();
    db.ingest([("y", "6")]).unwrap();
    follower.refresh().unwrap();
    assert_eq!(follower.last_sequence(), 5);
    assert!(load(4, "x", b"x\0") && load(5, "y", b"y\0"));
    assert_eq!(changes(&follower, 1).len(), 5);
}

#[test]
fn a_load_that_has_expired_is_a_change() {
    let env = MemEnv::new();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    env.set_now(at(1_000_000));
    let db = open(&env, &keeping(1 << 20).auto_compaction(false)).unwrap();
    let mut watch = db.watch().unwrap();
    let load = |keys: [&str; 2]| {
        db.put("z", "old").unwrap();
        db.flush().unwrap();
        let mut load = db.table_writer().unwrap();
        for (key, seconds) in keys.into_iter().zip([9000, 5]) {
            let expiry = WriteOptions::new().expire_after(Duration::from_secs(seconds));
            load.put_with(key, bytes(seconds, 20_000), &expiry).unwrap();
        }
        assert_eq!(load.finish().unwrap().tables, 2);
        env.set_now(env.now() + Duration::from_secs(10));
    };
    let rewrite = CompactRangeOptions::new().force(true);
    // Of this load nothing is left as it came, and of the next one a table.
    load(["x", "z"]);
    db.compact_range_with(.., &rewrite).unwrap();
    load(["a", "z"]);
    db.compact_range_with("z".., &rewrite).unwrap();
    // The log that begins now names the table that is left.
    db.put("m", "new").unwrap();
    db.flush().unwrap();
    assert_eq!(db.get("z").unwrap(), None);
    let follower = follow(&env);
    let of_watch = std::iter::from_fn(|| watch.next_timeout(Duration::ZERO).unwrap()).collect();
    for found in [of_watch, changes(&follower, 1)] {
        let has_z = |change: &Change| match &change.entry {
            ChangedEntry::Load { start, end } => {
                start[..] <= b"z"[..] && end.as_ref().is_none_or(|end| end[..] > b"z"[..])
            }
            _ => false,
        };
        let loads: Vec<_> = found.iter().filter(|c| has_z(c)).map(|c| c.sequence).collect();
        assert_eq!(loads, [2, 4], "{found:?}");
    }
}

/// The manifest has a load a moment before a log skips its sequence. The writer may die there.
#[test]
fn a_load_that_no_log_tells_of_is_a_change() {
    let mut only_in_manifest = 0;
    for n in 0.. {
        let memory = MemEnv::new();
        let fault = FaultEnv::new(Arc::new(memory.clone()));
        let db = keeping(1 << 20).env(Arc::new(fault.clone())).open(HOME).unwrap();
        db.put("a", "1").unwrap();
        let at = fault.calls_of(Calls::Changes) + n;
        fault.fail_at(at, Fault::from_then_on(FaultKind::PowerCut).among(Calls::Changes));
        let loaded = db.ingest([("c", "2")]);
        let follower = follow(&memory);
        let shown = changes(&follower, 1);
        assert_eq!(shown.len() as u64, follower.last_sequence(), "{n}");
        assert_eq!(follower.get("c").unwrap().is_some(), shown.len() == 2, "{n}");
        if let Some(load) = shown.get(1) {
            let own = ChangedEntry::Load { start: b"c".into(), end: Some(b"c\0".into()) };
            // Its log has begun and does not name its tables yet.
            let any = ChangedEntry::Load { start: Vec::new(), end: None };
            assert!(load.sequence == 2 && [own, any].contains(&load.entry), "{load:?}");
        }
        only_in_manifest += usize::from(shown.len() == 2 && loaded.is_err());
        if loaded.is_ok() {
            break;
        }
    }
    assert!(only_in_manifest > 0);
}

/// Their names are not read with the start of their log, so nothing says that one of them is gone.
#[test]
fn a_load_of_very_many_tables_may_have_any_key() {
    const TABLES: usize = 4_000;
    let env = MemEnv::new();
    env.set_now(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let db = open(&env, &keeping(1 << 20).auto_compaction(false)).unwrap();
    db.put("a", "1").unwrap();
    let mut watch = db.watch().unwrap();
    let mut load = db.table_writer().unwrap();
    for n in 0..TABLES {
        let expires = if n + 1 < TABLES { 9_000 } else { 5 };
        let expiry = WriteOptions::new().expire_after(Duration::from_secs(expires));
        load.put_with(format!("k{n:05}"), bytes(n as u64, 16_500), &expiry).unwrap();
    }
    assert_eq!(load.finish().unwrap().tables, TABLES as u64);
    env.set_now(env.now() + Duration::from_secs(10));
    let last = format!("k{:05}", TABLES - 1);
    let rewrite = CompactRangeOptions::new().force(true);
    db.compact_range_with(last.as_str().., &rewrite).unwrap();
    assert_eq!(db.get(&last).unwrap(), None);
    let of_watch = std::iter::from_fn(|| watch.next_timeout(Duration::ZERO).unwrap()).collect();
    for found in [of_watch, changes(&follow(&env), 2)] {
        let has_last = |change: &Change| match &change.entry {
            ChangedEntry::Load { end, .. } => {
                end.as_ref().is_none_or(|end| end[..] > *last.as_bytes())
            }
            _ => false,
        };
        assert!(found.iter().any(has_last), "{found:?}");
    }
}

#[test]
fn a_waiting_follower_wakes_for_writes() {
    let directory = tempfile::tempdir().unwrap();
    let db = small_options().open(directory.path()).unwrap();
    let on_disk = small_options().open_follower(directory.path()).unwrap();
    let env = MemEnv::new();
    let other = open(&env, &small_options()).unwrap();
    // One that the file system tells, and one that looks by itself.
    for (db, follower) in [(&db, &on_disk), (&other, &follow(&env))] {
        assert!(!follower.wait(Duration::ZERO).unwrap());
        assert!(!follower.wait(Duration::from_millis(20)).unwrap());
        for round in 1..20 {
            std::thread::scope(|scope| {
                scope.spawn(|| db.put(key(round), "v").unwrap());
                while follower.last_sequence() < round as u64 {
                    assert!(follower.wait(Duration::from_secs(60)).unwrap());
                }
            });
            assert_eq!(follower.get(key(round)).unwrap().unwrap(), "v");
        }
    }
}

#[test]
fn a_waiting_follower_does_not_spin() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Env> = Arc::new(DiskEnv::new());
    let told = if cfg!(target_os = "linux") { 3 } else { 10 };
    // One that the file system tells, and one that looks by itself.
    for (env, path, most) in
        [(disk, directory.path(), told), (Arc::new(MemEnv::new()), Path::new(HOME), 10)]
    {
        let db = small_options().env(Arc::clone(&env)).open(path).unwrap();
        db.put("a", "1").unwrap();
        let env = FaultEnv::new(env);
        let follower = small_options().env(Arc::new(env.clone())).open_follower(path).unwrap();
        let begun = env.calls_of(Calls::All);
        assert!(!follower.refresh().unwrap());
        let of_a_look = env.calls_of(Calls::All) - begun;
        assert!(!follower.wait(Duration::from_millis(300)).unwrap());
        let looks = (env.calls_of(Calls::All) - begun) / of_a_look - 1;
        assert!((2..=most).contains(&looks), "{looks} in {path:?}");
    }
}

/// A program asks for the newest changes again and again, and keeps many logs.
#[test]
fn new_changes_open_only_their_logs() {
    let env = MemEnv::new();
    let db = open(&env, &keeping(1 << 30)).unwrap();
    for number in 0..20 {
        db.put(key(number), "v").unwrap();
        db.flush().unwrap();
    }
    let counting = FaultEnv::new(as_env(&env));
    let options = small_options().env(Arc::new(counting.clone()));
    let follower = options.open_follower(HOME).unwrap();
    let opens = |from: u64, count: usize| {
        let before = counting.calls_of(Calls::Named("open_random"));
        let changes = follower.changes(from).unwrap();
        let opens = counting.calls_of(Calls::Named("open_random")) - before;
        assert_eq!(changes.count(), count);
        opens
    };
    assert!(opens(1, 20) >= 20);
    assert!(opens(follower.last_sequence(), 1) <= 3);
    assert!(opens(follower.last_sequence() + 1, 0) <= 3);
}

/// The changes from a sequence on. Of those of a load one: when its tables are compacted, there may
/// be one in each keyspace.
fn read(follower: &Follower, from: u64) -> Result<Vec<Change>, Error> {
    let mut changes = follower.changes(from)?.collect::<Result<Vec<_>, _>>()?;
    for change in &mut changes {
        if let ChangedEntry::Load { start, end } = &mut change.entry {
            (change.keyspace_number, change.keyspace) = (0, None);
            (*start, *end) = (vec![], None);
        }
    }
    changes.dedup();
    Ok(changes)
}

/// Logs are removed between the readings, and some of these have a gap or are left out.
#[test]
fn continued_changes_are_those_of_a_new_follower() {
    let (mut continued, mut gaps) = (0, 0);
    for seed in 0..12 {
        let (env, mut rng) = (MemEnv::new(), Rng::new(seed));
        let options = keeping([0, 20_000, 1 << 20][rng.below(3)]);
        let mut db = open(&env, &options).unwrap();
        NAMES.iter().for_each(|name| drop(db.keyspace(name).unwrap()));
        let follower = follow(&env);
        let mut next = 1;
        for _ in 0..60 {
            write_few(&db, &mut rng);
            match rng.below(8) {
                0 => db.flush().unwrap(),
                1 => {
                    if rng.below(2) == 0 { db.close() } else { db.close_now() }.unwrap();
                    db = open(&env, &options).unwrap();
                }
                2 => drop(db.ingest([(key(rng.below(250)), "loaded")]).unwrap()),
                3 => continue,
                _ => {}
            }
            follower.refresh().unwrap();
            let new = read(&follower, next);
            // It looks last: logs may go in between, but none comes back.
            match (&new, read(&follow(&env), next)) {
                (Ok(new), Ok(expected)) => assert!(*new == expected, "from {next} of {seed}"),
                (Ok(_), Err(Error::ChangesGone { .. })) => {}
                (Err(_), Err(_)) => gaps += 1,
                (_, other) => panic!("from {next} of {seed}: {new:?}, {other:?}"),
            }
            continued += new.map_or(0, |new| new.len());
            next = follower.last_sequence() + 1;
        }
        db.close().unwrap();
    }
    assert!(continued > 1_000 && gaps > 10, "{continued} changes, {gaps} gaps");
}

/// Each reading began at the start of its log, and each look for the end of a log read a MiB.
#[test]
fn continued_changes_read_only_what_was_appended() {
    let env = CountingEnv::new(Arc::new(MemEnv::new()));
    let options = Options::new().env(Arc::new(env.clone()));
    let db = options.clone().open(HOME).unwrap();
    let mut watch = db.watch().unwrap();
    let large = vec![7; 100_000];
    for number in 0..50 {
        db.put(key(number), &large).unwrap();
    }
    assert_eq!(watch.by_ref().take(50).filter(Result::is_ok).count(), 50);
    let follower = options.open_follower(HOME).unwrap();
    let mut next = 1;
    let mut poll = || {
        follower.refresh().unwrap();
        for change in follower.changes(next).unwrap() {
            next = change.unwrap().sequence + 1;
        }
        next
    };
    assert_eq!(poll(), 51, "everything is read once");
    for number in 51..60 {
        db.put(key(number), "small").unwrap();
        let before = env.counts().read_bytes;
        assert_eq!(poll(), 1 + number as u64);
        let of_follower = env.counts().read_bytes - before;
        assert_eq!(watch.next().unwrap().unwrap().sequence, number as u64);
        let of_watch = env.counts().read_bytes - before - of_follower;
        // Pages of 32 KiB: the start of the log and its end. 5 MB are in it.
        assert!(of_follower < 300_000 && of_watch < 100_000, "{of_follower}, {of_watch} bytes");
    }
    db.close().unwrap();
}
