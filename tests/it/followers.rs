//! Followers: what they show is a prefix of the writes, at every refresh, whatever the writer does.

use crate::support::alone::alone;
use crate::support::counted::{self, Expected};
use crate::support::filters::all_filters;
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{HOME, as_env, copy_of, files, is_honest, small_options};
use crate::support::stores::{name, open};
use siftdb::env::testing::{CrashModel, EIO, EMFILE, Fault, FaultEnv, FaultKind};
use siftdb::env::{DirectoryEntry, Env, EnvLayer, MemEnv, Metadata, RandomFile};
use siftdb::keys::encode;
use siftdb::{Db, Error, Follower, KeyspaceOptions, Options, Readable, WriteBatch, WriteOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Small options for a database on `env`; logs may take much memory.
fn options_on(env: &Arc<dyn Env>) -> Options {
    small_options().env(Arc::clone(env)).read_only_log_bytes_max(16 << 20)
}

fn follow(env: &Arc<dyn Env>) -> siftdb::Result<Follower> {
    options_on(env).open_follower(HOME)
}

/// A writer of a counted history that does everything that a writer may do.
struct Writer {
    disk: FaultEnv,
    options: Options,
    db: Option<Db>,
    seed: u64,
    n: u64,
    /// The last operation before each bulk load.
    loads: Vec<u64>,
}

/// The keyspace of the bulk loads, which no operation writes to.
const LOADED: &str = "loaded";

/// The keyspace that batches create and drop.
const ALTERED: &str = "altered";

impl Writer {
    fn new(options: Options, env: &Arc<dyn Env>, seed: u64) -> Self {
        let disk = FaultEnv::new(Arc::clone(env));
        let options = options.env(Arc::new(disk.clone()));
        let mut writer = Writer { disk, options, db: None, seed, n: 0, loads: Vec::new() };
        writer.db();
        writer
    }

    /// Its process dies: nothing more is written, synced or removed.
    fn die(&mut self) {
        let fault = Fault::from_then_on(FaultKind::PowerCut);
        self.disk.fail_at(self.disk.calls(), fault);
        drop(self.db.take());
        self.disk.heal();
    }

    fn db(&mut self) -> &Db {
        self.db.get_or_insert_with(|| {
            let db = self.options.clone().open(HOME).unwrap();
            counted::prepare(&db, self.n).unwrap();
            db
        })
    }

    fn write(&mut self, operations: usize, sync: bool) {
        for _ in 0..operations {
            self.n += 1;
            let (n, seed) = (self.n, self.seed);
            counted::write(self.db(), seed, n, &WriteOptions::new().sync(sync)).unwrap();
        }
    }

    /// Loads one more entry; the keyspace must be there. Every second one is in a batch that
    /// creates or drops another keyspace.
    fn load(&mut self) {
        let load = self.loads.len() as u64;
        self.loads.push(self.n);
        let loaded = self.db().keyspace(LOADED).unwrap();
        if load.is_multiple_of(2) {
            loaded.ingest([(encode(&load), "loaded")]).unwrap();
            return;
        }
        let mut batch = WriteBatch::new();
        batch.in_keyspace(&loaded).put(encode(&load), "loaded");
        match self.db().keyspaces().iter().any(|name| name == ALTERED) {
            true => _ = batch.drop_keyspace(ALTERED),
            false => _ = batch.create_keyspace(ALTERED, &KeyspaceOptions::new()).put("a", "1"),
        }
        self.db().write(batch).unwrap();
    }

    /// Checks that a moment with operation `n` as its last shows the loads before it and none that
    /// came after it.
    fn check_loads(&self, n: u64, moment: &Db, place: &str) {
        let shown = moment.keyspace(LOADED).unwrap().iter().count();
        let before = |until: u64| self.loads.iter().filter(|after| **after < until).count();
        assert!(
            (before(n)..=before(n + 1)).contains(&shown),
            "{place}: {shown} loads of {:?} with operation {n}",
            self.loads
        );
    }

    /// Flushes what was written and waits until the logs with it are removed.
    fn flush_all(&mut self) {
        let logs = |writer: &Writer| {
            let files = Env::list(&writer.disk, Path::new(HOME)).unwrap();
            let names = files.into_iter().map(|file| file.name);
            names.filter(|name| name.ends_with(".wal")).collect::<Vec<_>>()
        };
        let before = logs(self);
        self.db().flush().unwrap();
        while logs(self).iter().any(|log| before.contains(log)) {
            std::thread::yield_now();
        }
    }

    fn do_something(&mut self, rng: &mut Rng) {
        self.write(rng.below(80), rng.chance(10));
        match rng.below(8) {
            0 => self.db().flush().unwrap(),
            1 => self.db().compact_range(..).unwrap(),
            2 => self.db().keyspace(counted::OTHER).unwrap().compact_range(..).unwrap(),
            3 => drop(self.db.take()),
            4 => self.db.take().map_or(Ok(()), |db| db.close()).unwrap(),
            _ => {}
        }
    }
}

/// What the writer does between two calls of a refresh.
type Between = Box<dyn FnOnce() + Send>;

/// The environment of a follower, whose writer does something before one of the calls.
#[derive(Clone)]
struct InterruptedEnv {
    inner: Arc<dyn Env>,
    /// How many calls come before, and what then happens.
    next: Arc<Mutex<Option<(usize, Between)>>>,
}

impl std::fmt::Debug for InterruptedEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InterruptedEnv")
    }
}

impl InterruptedEnv {
    fn new(inner: &Arc<dyn Env>) -> Self {
        InterruptedEnv { inner: Arc::clone(inner), next: Arc::default() }
    }

    fn interrupt(&self, calls_before: usize, between: Between) {
        *self.next.lock().unwrap() = Some((calls_before, between));
    }

    /// True if no call came so late.
    fn is_left(&self) -> bool {
        self.next.lock().unwrap().take().is_some()
    }

    fn before_a_call(&self) {
        let mut next = self.next.lock().unwrap();
        if let Some((left, _)) = &mut *next
            && *left > 0
        {
            *left -= 1;
            return;
        }
        let between = next.take();
        drop(next);
        if let Some((_, between)) = between {
            between();
        }
    }
}

impl EnvLayer for InterruptedEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.before_a_call();
        let inner = self.inner.open_random(path)?;
        Ok(Arc::new(InterruptedFile { inner, env: self.clone() }))
    }

    /// A listing that is not atomic: it has neither what comes nor what goes at that time.
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.before_a_call();
        let before = self.inner.list(path)?;
        self.before_a_call();
        let mut listed = self.inner.list(path)?;
        listed.retain(|file| before.iter().any(|old| old.name == file.name));
        Ok(listed)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.before_a_call();
        self.inner.metadata(path)
    }
}

#[derive(Debug)]
struct InterruptedFile {
    inner: Arc<dyn RandomFile>,
    env: InterruptedEnv,
}

impl RandomFile for InterruptedFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.env.before_a_call();
        self.inner.read_exact_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.env.before_a_call();
        self.inner.len()
    }
}

/// What the writer did between the last refresh and this one.
const BEFORE: [fn(&mut Writer); 4] = [
    |_| {},
    |writer| {
        writer.write(11, false);
        writer.db().flush().unwrap();
    },
    // The manifest still needs the first log, whose end the follower has read.
    |writer| writer.db().keyspace(counted::OTHER).unwrap().flush().unwrap(),
    // The same, and a table has entries of the second log.
    |writer| {
        for _ in 0..2 {
            writer.write(5, false);
            writer.db().keyspace(counted::OTHER).unwrap().flush().unwrap();
        }
    },
];

/// Each of these comes between any two calls of a refresh.
const ACTIONS: [fn(&mut Writer); 9] = [
    |writer| {
        writer.load();
        writer.write(1, false);
    },
    |writer| {
        writer.write(1, false);
        writer.load();
        writer.flush_all();
        writer.load();
        writer.write(1, false);
    },
    // The manifest is rewritten, and keyspaces come and go.
    |writer| {
        writer.load();
        writer.write(65, false);
        writer.db().compact_range(..).unwrap();
        let target = Path::new(HOME).with_file_name("copy");
        writer.db().checkpoint(target).unwrap();
        writer.write(1, false);
    },
    |writer| writer.flush_all(),
    |writer| writer.write(25, false),
    |writer| {
        writer.write(25, false);
        writer.flush_all();
    },
    |writer| {
        for _ in 0..3 {
            writer.write(25, false);
            writer.flush_all();
        }
        writer.db().compact_range(..).unwrap();
    },
    |writer| {
        writer.write(25, false);
        writer.die();
        writer.write(25, false);
    },
    |writer| {
        writer.flush_all();
        writer.write(45, false);
        writer.flush_all();
        writer.write(1, false);
    },
];

#[test]
fn writers_between_two_calls_leave_a_prefix() {
    for (at, action) in ACTIONS.into_iter().enumerate() {
        for (from, before) in BEFORE.into_iter().enumerate() {
            for calls_before in 0.. {
                let disk: Arc<dyn Env> = Arc::new(MemEnv::new());
                let seed = at as u64;
                let mut writer = Writer::new(small_options(), &disk, seed);
                let env = InterruptedEnv::new(&disk);
                writer.write(10, false);
                writer.db().keyspace(LOADED).unwrap();
                writer.load();
                let interrupted: Arc<dyn Env> = Arc::new(env.clone());
                let follower = follow(&interrupted).unwrap();
                before(&mut writer);
                // No keyspace is created, which would make these writes durable.
                writer.write(5, false);
                let least = writer.n;
                let writer = Arc::new(Mutex::new(writer));
                let interrupting = Arc::clone(&writer);
                let between = move || action(&mut interrupting.lock().unwrap());
                env.interrupt(calls_before, Box::new(between));
                follower.refresh().unwrap();
                let is_over = env.is_left();
                let shown = checked(seed, &follower.moment());
                let place = format!("action {at} before call {calls_before} from {from}");
                assert!(shown >= least, "{place}: {shown}, {least} was acknowledged");
                let writer = writer.lock().unwrap();
                writer.check_loads(shown, &follower.moment(), &place);
                follower.refresh().unwrap();
                assert_eq!(checked(seed, &follower.moment()), writer.n);
                let loads = follower.keyspace(LOADED).unwrap().iter().count();
                assert_eq!(loads, writer.loads.len(), "{place}");
                if is_over {
                    break;
                }
            }
        }
    }
}

/// A writer after 15 operations, and after a keyspace came and went this often.
fn after_changes(disk: &Arc<dyn Env>, changes: usize) -> Writer {
    let mut writer = Writer::new(small_options(), disk, 1);
    writer.write(15, false);
    for _ in 0..changes {
        drop(writer.db().keyspace(ALTERED).unwrap());
        writer.db().drop_keyspace(ALTERED).unwrap();
    }
    writer
}

/// The number of changes after which the next creation of a keyspace begins another manifest. That
/// manifest gives the keyspace's number away first, and names the keyspace in its next edit.
fn changes_before_another_manifest() -> usize {
    let begins_another = |changes: &usize| {
        let disk = MemEnv::new();
        let mut writer = after_changes(&as_env(&disk), *changes);
        let current = || disk.read_file(&Path::new(HOME).join("CURRENT")).unwrap();
        writer.write(4, false);
        let before = current();
        writer.write(1, false);
        before != current()
    };
    (0..100).find(begins_another).unwrap()
}

#[test]
fn keyspaces_that_come_and_go_during_a_refresh_are_no_change() {
    let changes = changes_before_another_manifest();
    let mut pairs = 0;
    for calls_before in 0.. {
        let mut is_created = false;
        for calls_between in 0.. {
            let disk: Arc<dyn Env> = Arc::new(MemEnv::new());
            let mut writer = after_changes(&disk, changes);
            let env = InterruptedEnv::new(&disk);
            let follower = follow(&(Arc::new(env.clone()) as Arc<dyn Env>)).unwrap();
            writer.write(3, false);
            let writer = Arc::new(Mutex::new(writer));
            // It is created after operation 20 and dropped after operation 40.
            let (one, other, again) = (Arc::clone(&writer), Arc::clone(&writer), env.clone());
            let create = move || {
                one.lock().unwrap().write(12, false);
                let drop_it = move || other.lock().unwrap().write(15, false);
                again.interrupt(calls_between, Box::new(drop_it));
            };
            env.interrupt(calls_before, Box::new(create));
            follower.refresh().unwrap();
            env.is_left();
            checked(1, &follower.moment());
            let n = writer.lock().unwrap().n;
            is_created = n >= 30;
            pairs += 1;
            follower.refresh().unwrap();
            assert_eq!(checked(1, &follower.moment()), n);
            if n < 45 {
                break;
            }
        }
        if !is_created {
            break;
        }
    }
    assert!(pairs > 100, "{pairs}");
}

#[test]
fn followers_show_every_acknowledged_write() {
    for seed in seeds(12) {
        let mut rng = Rng::new(seed);
        let env = as_env(&MemEnv::new());
        let filters = all_filters();
        let options = options_on(&env).filter(rng.pick(&filters).filter.clone());
        let mut writer = Writer::new(options, &env, seed);
        let follower = follow(&env).unwrap();
        let mut expected = Expected::new(seed);
        // Earlier moments, and scans that began in them.
        let mut moments: Vec<(Db, Expected)> = Vec::new();
        for _ in 0..40 {
            writer.do_something(&mut rng);
            let before = follower.last_sequence();
            follower.refresh().unwrap();
            assert!(follower.last_sequence() >= before);
            let moment = follower.moment();
            assert_eq!(counted::number(&moment).unwrap(), writer.n, "seed {seed}");
            expected.advance_to(writer.n);
            expected.check(&moment);
            moments.push((moment, expected.clone()));
            if moments.len() > 4 {
                moments.remove(rng.below(moments.len()));
            }
            let (moment, expected) = rng.pick(&moments);
            expected.check(moment);
        }
        drop(writer);
        moments.iter().for_each(|(moment, expected)| expected.check(moment));
        let opened = follow(&env).unwrap();
        expected.check(&opened.moment());
    }
}

#[test]
fn followers_read_beside_a_writing_thread() {
    let env = as_env(&MemEnv::new());
    let mut writer = Writer::new(small_options(), &env, 7);
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                writer.write(1, false);
                acknowledged.store(writer.n, Ordering::SeqCst);
                if writer.n.is_multiple_of(300) {
                    writer.db().compact_range(..).unwrap();
                }
            }
        });
        let stop = StopsOnDrop(&stop);
        let followers = [(); 2].map(|()| {
            scope.spawn(|| {
                let follower = follow(&env).unwrap();
                let (mut expected, mut rng) = (Expected::new(7), Rng::new(1));
                for round in 0..400 {
                    let least = acknowledged.load(Ordering::SeqCst);
                    match follower.refresh() {
                        Ok(_) => {}
                        Err(Error::FollowerOvertaken { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    }
                    let moment = follower.moment();
                    let n = counted::number(&moment).unwrap();
                    assert!(n >= least, "{n} is shown and {least} was acknowledged");
                    expected.advance_to(n);
                    match round % 10 {
                        0 => expected.check(&moment),
                        _ => expected.check_part(&moment, &mut rng),
                    }
                }
            })
        });
        followers.into_iter().for_each(|follower| follower.join().unwrap());
        drop(stop);
    });
}

/// `cargo test --release --all-features --test it refreshes_are_quick -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: writes ten million entries"]
fn refreshes_are_quick_beside_many_entries() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().open(&path).unwrap();
    for first in (0..10_000_000u64).step_by(1000) {
        let mut batch = siftdb::WriteBatch::new();
        (first..first + 1000).for_each(|n| _ = batch.put(encode(&n), [7; 100]));
        db.write(batch).unwrap();
    }
    db.compact_range(..).unwrap();
    let follower = Db::open_follower(&path).unwrap();
    let mut took: Vec<Duration> = (0..50u64)
        .map(|round| {
            (0..1000).for_each(|n| db.put(encode(&(round * 1000 + n)), [8; 100]).unwrap());
            let started = Instant::now();
            assert!(follower.refresh().unwrap());
            started.elapsed()
        })
        .collect();
    took.sort();
    let started = Instant::now();
    assert!(!follower.refresh().unwrap());
    println!("after 1,000 puts: median {:?}, slowest {:?}", took[25], took[49]);
    println!("after nothing: {:?}", started.elapsed());
    assert!(took[25] < Duration::from_millis(5));
}

/// Ends a writer, also if an assertion of another thread fails.
struct StopsOnDrop<'a>(&'a AtomicBool);

impl Drop for StopsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The last operation that a moment shows, after a comparison with all that it must hold.
fn checked(seed: u64, moment: &Db) -> u64 {
    let mut expected = Expected::new(seed);
    expected.advance_to(counted::number(moment).unwrap());
    expected.check(moment);
    expected.n
}

#[test]
fn followers_change_no_byte() {
    let memory = MemEnv::new();
    let mut writer = Writer::new(small_options(), &as_env(&memory), 3);
    let watched = FaultEnv::new(as_env(&memory));
    // No call fails; the changes are listed from here on.
    watched.fail_at(u64::MAX, Fault::once(FaultKind::Error(EIO)));
    let env: Arc<dyn Env> = Arc::new(watched.clone());
    let follower = follow(&env).unwrap();
    let mut rng = Rng::new(3);
    for _ in 0..20 {
        writer.do_something(&mut rng);
        follower.refresh().unwrap();
        assert_eq!(checked(3, &follower.moment()), writer.n);
    }
    let moment = follower.moment();
    let refused = |result: siftdb::Result<()>| {
        assert!(matches!(result, Err(Error::OpenedReadOnly)), "{result:?}");
    };
    refused(moment.put("a", "b"));
    refused(moment.flush());
    refused(moment.compact_range(..));
    refused(moment.drop_keyspace("other"));
    let unknown = follower.keyspace("unknown");
    assert!(matches!(unknown, Err(Error::KeyspaceNotFound { .. })));
    moment.close().unwrap();
    drop((follower, moment));
    assert_eq!(watched.changes(), []);
}

#[test]
fn refresh_says_whether_files_changed() {
    let env = as_env(&MemEnv::new());
    let db = options_on(&env).auto_compaction(false).open(HOME).unwrap();
    let follower = follow(&env).unwrap();
    assert_eq!((follower.last_sequence(), follower.refresh().unwrap()), (0, false));
    db.put("a", "1").unwrap();
    assert!(follower.refresh().unwrap());
    assert_eq!((follower.last_sequence(), follower.refresh().unwrap()), (1, false));
    db.flush().unwrap();
    assert!(follower.refresh().unwrap(), "a table");
    assert_eq!((follower.last_sequence(), follower.refresh().unwrap()), (1, false));
    db.close().unwrap();
    assert!(follower.refresh().unwrap(), "the mark of a clean close");
    assert!(!follower.refresh().unwrap());
    assert_eq!(follower.path(), Path::new(HOME));
    assert!(format!("{follower:?}").contains("last_sequence: 1"));
}

#[test]
fn directories_without_a_database_are_refused() {
    let env = as_env(&MemEnv::new());
    let refused = |env: &Arc<dyn Env>| match follow(env) {
        Err(Error::Io { source, .. }) => source.kind(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&env), std::io::ErrorKind::NotFound);
    env.create_dir(Path::new(HOME)).unwrap();
    assert_eq!(refused(&env), std::io::ErrorKind::NotFound);
    assert!(env.list(Path::new(HOME)).unwrap().is_empty());
}

#[test]
fn handles_keep_their_moment() {
    let env = as_env(&MemEnv::new());
    let db = options_on(&env).open(HOME).unwrap();
    let other = db.keyspace("other").unwrap();
    other.put("k", "old").unwrap();
    let follower = follow(&env).unwrap();
    let (early, before) = (follower.keyspace("other").unwrap(), follower.snapshot());
    other.put("k", "new").unwrap();
    db.compact_range(..).unwrap();
    other.compact_range(..).unwrap();
    follower.refresh().unwrap();
    let late = follower.keyspace("other").unwrap();
    assert_eq!(early.get("k").unwrap().unwrap(), "old");
    assert_eq!(late.get("k").unwrap().unwrap(), "new");
    // A snapshot reads its own moment, whatever moment the handle is of.
    assert_eq!(before.in_keyspace(&late).get("k").unwrap().unwrap(), "old");
    assert_eq!(follower.snapshot().in_keyspace(&early).get("k").unwrap().unwrap(), "new");
    db.drop_keyspace("other").unwrap();
    follower.refresh().unwrap();
    assert_eq!(follower.keyspaces(), ["default"]);
    assert_eq!(early.get("k").unwrap().unwrap(), "old");
    let gone = follower.snapshot().in_keyspace(&late).get("k");
    assert!(matches!(gone, Err(Error::KeyspaceDropped { .. })), "{gone:?}");
    // Moments keep their tables whatever the follower does.
    drop(follower);
    assert_eq!(late.range(..).count(), 1);
}

#[test]
fn reads_outlive_the_files_of_their_moment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = small_options().open(&path).unwrap();
    let value = |round: u32, n: u32| [round.to_le_bytes(), n.to_le_bytes()].concat().repeat(20);
    let fill = |round| {
        (0..3000).for_each(|n: u32| db.put(encode(&n), value(round, n)).unwrap());
        db.compact_range(..).unwrap();
    };
    fill(1);
    let tables = || -> Vec<PathBuf> {
        let paths = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| name(path).ends_with(".sst")).collect()
    };
    let old = tables();
    // The cache has room for none of it.
    let options = small_options().block_cache_bytes(0);
    let follower = options.open_follower(&path).unwrap();
    let mut scan = follower.iter();
    let first = scan.next().unwrap().unwrap();
    assert_eq!(first.0, encode(&0u32));
    fill(2);
    follower.refresh().unwrap();
    // The writer removes a table when its worker gets to it.
    while old.iter().any(|path| path.exists()) {
        std::thread::yield_now();
    }
    let rest = scan.map(|entry| entry.unwrap().1);
    assert!(rest.eq((1..3000).map(|n| value(1, n))));
    assert_eq!(follower.get(encode(&7u32)).unwrap().unwrap(), value(2, 7));
}

#[test]
fn too_few_descriptors_are_named() {
    let test = "followers::too_few_descriptors_are_named";
    alone(test, "ulimit -n 64", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = small_options().open(&path).unwrap();
        let fill = |count: u32| {
            (0..count).for_each(|n| db.put(encode(&n), vec![n as u8; 2000]).unwrap());
            db.compact_range(..).unwrap();
        };
        fill(100);
        let follower = small_options().open_follower(&path).unwrap();
        fill(8000);
        let tables = db.stats().total().tables as usize;
        assert!(tables > 64, "{tables}");
        for refused in [follower.refresh().map(drop), Db::open_follower(&path).map(drop)] {
            let Err(Error::TooFewDescriptors { needed, .. }) = refused else {
                panic!("{refused:?}")
            };
            assert_eq!(needed, tables);
        }
        assert_eq!(follower.iter().count(), 100, "the moment from before");
        db.delete_range(..).unwrap();
        db.compact_range(..).unwrap();
        follower.refresh().unwrap();
        assert_eq!(follower.iter().count(), 0);
    });
}

#[test]
fn every_failing_call_leaves_a_whole_moment() {
    for kind in [FaultKind::Error(EIO), FaultKind::Error(EMFILE)] {
        let memory = MemEnv::new();
        let mut writer = Writer::new(small_options(), &as_env(&memory), 5);
        writer.write(100, false);
        let faulty = FaultEnv::new(as_env(&memory));
        let env: Arc<dyn Env> = Arc::new(faulty.clone());
        let is_typed =
            |error: &Error| is_honest(error) || matches!(error, Error::TooFewDescriptors { .. });
        let mut rng = Rng::new(5);
        let mut follower = None;
        // First each call of an opening, then each of a refresh. EMFILE is tried again.
        let fault = match kind {
            FaultKind::Error(EMFILE) => Fault::from_then_on(kind),
            _ => Fault::once(kind),
        };
        for k in 0.. {
            faulty.fail_at(faulty.calls() + k, fault);
            let opened = follow(&env);
            faulty.heal();
            match opened {
                Ok(opened) => {
                    assert_eq!(checked(5, &opened.moment()), writer.n);
                    follower = Some(opened);
                    if !faulty.has_fired() {
                        break;
                    }
                }
                Err(error) => assert!(is_typed(&error) && faulty.has_fired(), "{error}"),
            }
        }
        let follower = follower.unwrap();
        let mut shown = writer.n;
        for k in 0.. {
            writer.do_something(&mut rng);
            faulty.fail_at(faulty.calls() + k, fault);
            let refreshed = follower.refresh();
            faulty.heal();
            match refreshed {
                Ok(_) => shown = writer.n,
                Err(error) => assert!(is_typed(&error), "{error}"),
            }
            assert_eq!(checked(5, &follower.moment()), shown, "call {k}");
            if !faulty.has_fired() {
                break;
            }
            if rng.chance(50) {
                follower.refresh().unwrap();
                shown = writer.n;
                assert_eq!(checked(5, &follower.moment()), shown);
            }
        }
    }
}

#[test]
fn damage_is_an_error_or_a_prefix() {
    let env = MemEnv::new();
    let mut writer = Writer::new(small_options(), &as_env(&env), 6);
    writer.write(400, false);
    let whole = files(&env);
    let mut rng = Rng::new(6);
    let mut errors = 0;
    for _ in 0..400 {
        let mut damaged = whole.clone();
        let paths: Vec<PathBuf> = damaged.keys().cloned().collect();
        let bytes = damaged.get_mut(rng.pick(&paths)).unwrap();
        let at = rng.below(bytes.len().max(1));
        match rng.below(3) {
            0 => bytes.truncate(at),
            1 => bytes.iter_mut().skip(at).take(20).for_each(|byte| *byte = 0),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << 3),
        }
        match follow(&as_env(&copy_of(&damaged))) {
            Ok(follower) => {
                // A damaged block is found by the read that needs it.
                let entries: siftdb::Result<Vec<_>> = follower.iter().collect();
                match entries.and(counted::number(&follower.moment())) {
                    Ok(n) => assert!(n <= writer.n),
                    Err(error) => assert!(is_honest(&error), "{error}"),
                }
            }
            Err(error) => {
                assert!(is_honest(&error), "{error}");
                errors += 1;
            }
        }
    }
    assert!(errors > 50, "{errors}");
}

/// A database on disk after ten operations, and a follower that shows them.
fn after_ten_operations() -> (tempfile::TempDir, Db, Follower) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = small_options().auto_compaction(false).manifest_bytes(1 << 20).open(&path).unwrap();
    counted::prepare(&db, 0).unwrap();
    (1..=10).for_each(|n| counted::write(&db, 8, n, &WriteOptions::new()).unwrap());
    let follower = Db::open_follower(&path).unwrap();
    (directory, db, follower)
}

/// Flips a bit of the byte at `at`, in place.
fn flip(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn damage_after_a_refresh_is_found() {
    for end in [".wal", "MANIFEST"] {
        let (directory, db, follower) = after_ten_operations();
        let (path, options) = (directory.path().join("db"), WriteOptions::new());
        (11..=19).for_each(|n| counted::write(&db, 8, n, &options).unwrap());
        db.keyspace("more").unwrap();
        // The last record so far is damaged, then others follow.
        let files = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let damaged = files.filter(|path| name(path).contains(end)).max().unwrap();
        let bytes = std::fs::read(&damaged).unwrap();
        let at = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 - 2;
        counted::write(&db, 8, 20, &options).unwrap();
        db.keyspace("even more").unwrap();
        flip(&damaged, at);
        let refused = follower.refresh();
        let Err(Error::Corruption { path: named, .. }) = &refused else { panic!("{refused:?}") };
        assert_eq!(named, &damaged);
        assert_eq!(checked(8, &follower.moment()), 10);
        // An error is no end.
        flip(&damaged, at);
        assert!(follower.refresh().unwrap());
        assert_eq!(counted::number(&follower.moment()).unwrap(), 20);
    }
}

#[test]
fn unfinished_records_are_the_writer_at_work() {
    for end in [".wal", "MANIFEST"] {
        let (directory, db, follower) = after_ten_operations();
        let (path, options) = (directory.path().join("db"), WriteOptions::new());
        let files = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let written = files.filter(|path| name(path).contains(end)).max().unwrap();
        match end {
            ".wal" => counted::write(&db, 8, 11, &options).unwrap(),
            _ => drop(db.keyspace("more").unwrap()),
        }
        let bytes = std::fs::read(&written).unwrap();
        let at = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 - 2;
        flip(&written, at);
        for _ in 0..2 {
            assert!(!follower.refresh().unwrap(), "{end}");
            assert_eq!(checked(8, &follower.moment()), 10);
        }
        flip(&written, at);
        assert!(follower.refresh().unwrap(), "{end}");
    }
}

/// Puts these files in place of all that are there.
fn restore(env: &MemEnv, files: &std::collections::BTreeMap<PathBuf, Vec<u8>>) {
    env.list_files().iter().for_each(|path| env.remove_file(path));
    files.iter().for_each(|(path, bytes)| env.write_file(path, bytes));
}

#[test]
fn cut_histories_are_not_followed() {
    type Cut = fn(&MemEnv, &mut Writer, &MemEnv);
    // Sessions that were never seen, or new files under the numbers of old ones.
    const RESTORED: [&str; 2] =
        ["its manifest was replaced", "the session that was followed is not"];
    let cuts: [(&[&str], Cut); 5] = [
        (&["it was repaired or created again"], |_, writer, _| {
            writer.options.clone().destroy(HOME).unwrap();
            writer.n = 0;
        }),
        (&["it was repaired or created again"], |env, writer, _| {
            let manifest = files(env).into_keys().rfind(|path| name(path).contains("MANIFEST"));
            env.remove_file(&manifest.unwrap());
            writer.options.clone().repair(HOME).unwrap();
        }),
        (&RESTORED, |env, writer, earlier| {
            restore(env, &files(earlier));
            writer.n = 30;
        }),
        (&RESTORED, |env, writer, earlier| {
            restore(env, &files(earlier));
            writer.n = 30;
            writer.write(60, true);
            writer.db().flush().unwrap();
        }),
        // A loss of power that the follower survived, as on a shared disk.
        (&["it continues after sequence"], |env, writer, _| {
            restore(env, &files(&env.power_cut()));
            writer.n = 30;
        }),
    ];
    for (expected, cut) in cuts {
        let env = MemEnv::with_log();
        let options = small_options().auto_compaction(false);
        let mut writer = Writer::new(options, &as_env(&env), 9);
        writer.write(30, false);
        writer.db().sync().unwrap();
        writer.die();
        let earlier = copy_of(&files(&env));
        writer.write(8, false);
        let follower = follow(&as_env(&env)).unwrap();
        assert_eq!(checked(9, &follower.moment()), 38);
        writer.die();
        cut(&env, &mut writer, &earlier);
        writer.db();
        // It says so again and again, and moments stay readable.
        for _ in 0..2 {
            let refused = follower.refresh();
            let Err(Error::HistoryChanged { what, .. }) = refused else {
                panic!("{refused:?}, not: {expected:?}")
            };
            let is_expected = expected.iter().any(|expected| what.starts_with(expected));
            assert!(is_expected, "{what}, not {expected:?}");
            assert_eq!(checked(9, &follower.moment()), 38);
        }
        let opened = follow(&as_env(&env)).unwrap();
        assert_eq!(checked(9, &opened.moment()), writer.n);
    }
}

#[test]
fn followers_go_on_after_writers_die() {
    for seed in seeds(6) {
        let mut rng = Rng::new(seed);
        let env = as_env(&MemEnv::new());
        let mut writer = Writer::new(small_options(), &env, seed);
        let follower = follow(&env).unwrap();
        for _ in 0..20 {
            writer.do_something(&mut rng);
            follower.refresh().unwrap();
            // Some writes before the end, which the next writer flushes.
            writer.write(rng.below(10), false);
            writer.die();
            if rng.chance(50) {
                follower.refresh().unwrap();
                assert_eq!(checked(seed, &follower.moment()), writer.n);
            }
            writer.write(rng.below(10), false);
            follower.refresh().unwrap();
            assert_eq!(checked(seed, &follower.moment()), writer.n);
        }
    }
}

/// The operation that a database of the seed shows, and its loads. Every kind of read finds what
/// operations up to that one leave, so two databases with the same answer show the same.
fn shown_by(seed: u64, db: &Db) -> (u64, Vec<Vec<u8>>) {
    let loaded = |name: &str| db.keyspace(name).unwrap().iter().keys().map(|key| key.unwrap());
    let loads = match db.keyspaces().iter().any(|name| name == LOADED) {
        true => loaded(LOADED).map(|key| key.to_vec()).collect(),
        false => Vec::new(),
    };
    (checked(seed, db), loads)
}

#[test]
fn crashed_databases_show_what_recovery_finds() {
    let env = MemEnv::with_log();
    let mut writer = Writer::new(small_options(), &as_env(&env), 11);
    writer.db().keyspace(LOADED).unwrap();
    // The calls after which an operation is acknowledged.
    let mut acknowledged = vec![0];
    let mut rng = Rng::new(11);
    while writer.n < 600 {
        writer.write(1, rng.chance(10));
        acknowledged.push(env.log_len());
        match rng.below(60) {
            0 => writer.db().flush().unwrap(),
            1 => writer.db().compact_range(..).unwrap(),
            2 => writer.die(),
            3 | 4 => writer.load(),
            _ => {}
        }
    }
    let calls = env.log_len();
    let (mut shown, mut refused) = (0, 0);
    for seed in 0..240 {
        let call = rng.below(calls);
        let model = [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix][seed as usize % 3];
        let place = format!("{model:?}, call {call}, seed {seed}");
        let crashed = env.replay(call, model, seed);
        let expected = options_on(&as_env(&crashed)).open_read_only(HOME);
        let follower = match (follow(&as_env(&crashed)), expected) {
            (Ok(follower), Ok(expected)) => {
                let found = shown_by(11, &follower.moment());
                assert_eq!(found, shown_by(11, &expected), "{place}");
                follower
            }
            (Err(error), Err(expected)) => {
                assert_eq!(error.to_string(), expected.to_string(), "{place}");
                refused += 1;
                continue;
            }
            (follower, expected) => panic!("{place}: {follower:?}, {expected:?}"),
        };
        let (n, loads) = shown_by(11, &follower.moment());
        let least = acknowledged.partition_point(|at| *at <= call) as u64 - 1;
        assert!(n >= least || model != CrashModel::Kill, "{n} is shown, {least} was acknowledged");
        // Without a writer, each refresh finds the same.
        assert!(!follower.refresh().unwrap(), "{place}");
        let db = open(&crashed, &small_options()).unwrap();
        counted::prepare(&db, n).unwrap();
        db.put("later", "").unwrap();
        assert!(follower.refresh().unwrap());
        assert_eq!(follower.iter().count(), db.iter().count(), "{place}");
        db.delete("later").unwrap();
        follower.refresh().unwrap();
        assert_eq!(shown_by(11, &follower.moment()), (n, loads), "{place}");
        shown += 1;
    }
    assert!(shown > 200, "{shown} shown, {refused} refused");
}

#[test]
fn synced_followers_show_what_survives() {
    let env = MemEnv::with_log();
    let mut writer = Writer::new(small_options(), &as_env(&env), 12);
    let options = options_on(&as_env(&env)).follow_synced_only(true);
    let follower = options.open_follower(HOME).unwrap();
    let mut rng = Rng::new(12);
    let mut shown = 0;
    for _ in 0..60 {
        match rng.below(4) {
            0 => writer.do_something(&mut rng),
            1 => writer.db().sync().unwrap(),
            _ => writer.write(rng.below(10), rng.chance(20)),
        }
        follower.refresh().unwrap();
        let n = checked(12, &follower.moment());
        assert!(n >= shown);
        shown = n;
        let survivor = open(&env.power_cut(), &small_options()).unwrap();
        assert!(n <= counted::number(&survivor).unwrap());
    }
    writer.write(1, false);
    writer.db().sync().unwrap();
    let synced = writer.n;
    // The next write says that those before it are durable.
    writer.write(1, false);
    follower.refresh().unwrap();
    assert_eq!(checked(12, &follower.moment()), synced);
    writer.db.take().map_or(Ok(()), |db| db.close()).unwrap();
    follower.refresh().unwrap();
    assert_eq!(checked(12, &follower.moment()), writer.n);
}

#[test]
fn entries_expire_in_followers() {
    let env = MemEnv::new();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    env.set_now(at(1000));
    let db = open(&env, &small_options()).unwrap();
    let hour = WriteOptions::new().expire_after(Duration::from_secs(3600));
    for flushed in [false, true] {
        db.put_with("k", "v", &hour).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        let follower = follow(&as_env(&env)).unwrap();
        assert_eq!(follower.get("k").unwrap().unwrap(), "v");
        env.set_now(at(1000 + 3600));
        assert_eq!(follower.get("k").unwrap(), None);
        assert_eq!(follower.iter().count(), 0);
        env.set_now(at(1000));
    }
}

#[test]
fn logs_beyond_the_limit_are_refused() {
    let env = as_env(&MemEnv::new());
    let db = small_options().env(Arc::clone(&env)).write_buffer_bytes(1 << 20).open(HOME).unwrap();
    let options = |bytes| small_options().env(Arc::clone(&env)).read_only_log_bytes_max(bytes);
    db.put("first", "1").unwrap();
    let follower = options(64 << 10).open_follower(HOME).unwrap();
    (0..200).for_each(|n| db.put(n.to_string(), vec![7; 1000]).unwrap());
    for refused in [follower.refresh().map(drop), options(64 << 10).open_follower(HOME).map(drop)] {
        let Err(Error::LogsTooLarge { bytes, bytes_max, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(bytes_max, 64 << 10);
        // What it says is enough.
        assert_eq!(options(bytes).open_follower(HOME).unwrap().iter().count(), 201);
    }
    assert_eq!(follower.iter().count(), 1);
    db.flush().unwrap();
    follower.refresh().unwrap();
    assert_eq!(follower.iter().count(), 201);
    assert_eq!(Readable::last(&follower).unwrap().unwrap().0, "first");
}

#[test]
fn cut_manifests_are_found_by_logs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = small_options().auto_compaction(false).open(&path).unwrap();
    let other = db.keyspace("other").unwrap();
    db.put("stays in its log", "1").unwrap();
    other.put("k", "1").unwrap();
    let follower = Db::open_follower(&path).unwrap();
    let files = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let manifest = files.filter(|path| name(path).contains("MANIFEST")).max().unwrap();
    let bytes = std::fs::metadata(&manifest).unwrap().len();
    db.keyspace("more").unwrap();
    // The next log says how long the manifest was.
    other.flush().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&manifest).unwrap();
    file.set_len(bytes).unwrap();
    for refused in [follower.refresh().map(drop), Db::open_follower(&path).map(drop)] {
        let Err(Error::Corruption { path, offset, .. }) = &refused else { panic!("{refused:?}") };
        assert_eq!((path, *offset), (&manifest, bytes));
    }
    assert_eq!(follower.get("stays in its log").unwrap().unwrap(), "1");
}

#[test]
fn followers_find_their_session_among_sixteen() {
    for (writers, is_found) in [(15, true), (16, false)] {
        let env = as_env(&MemEnv::new());
        let open = || options_on(&env).open(HOME).unwrap();
        open().put("first", "1").unwrap();
        let follower = follow(&env).unwrap();
        for n in 0..writers {
            let db = open();
            db.put(format!("{n}"), "v").unwrap();
            db.flush().unwrap();
        }
        match follower.refresh() {
            Ok(true) => assert!(is_found && follower.iter().count() == writers + 1),
            Err(Error::HistoryChanged { .. }) => assert!(!is_found),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn threads_share_followers() {
    let env = as_env(&MemEnv::new());
    let db = options_on(&env).open(HOME).unwrap();
    db.put("n", "0").unwrap();
    let follower = follow(&env).unwrap();
    std::thread::scope(|scope| {
        let readers = [(); 3].map(|()| {
            scope.spawn(|| {
                let mut last = 0;
                while last < 100 {
                    follower.refresh().unwrap();
                    let sequence = follower.last_sequence();
                    let n = follower.get("n").unwrap().unwrap();
                    let n: u64 = std::str::from_utf8(&n).unwrap().parse().unwrap();
                    // The put of n has sequence n + 1, and the moment may be a later one by now.
                    assert!(n + 1 >= sequence && n >= last, "{n} after {last}, {sequence}");
                    last = n;
                }
            })
        });
        (1..=100).for_each(|n| db.put("n", n.to_string()).unwrap());
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_keyspace_that_is_later_than_a_snapshot_is_empty_there() {
    let env = as_env(&MemEnv::new());
    let db = options_on(&env).open(HOME).unwrap();
    db.put("k", "0").unwrap();
    let follower = follow(&env).unwrap();
    let (of_writer, of_follower) = (db.snapshot(), follower.snapshot());
    let later = db.keyspace("later").unwrap();
    later.put("k", "1").unwrap();
    follower.refresh().unwrap();
    let followed = follower.keyspace("later").unwrap();
    assert_eq!(followed.get("k").unwrap().unwrap(), "1");
    for (snapshot, later) in [(of_writer, &later), (of_follower, &followed)] {
        let there = snapshot.in_keyspace(later);
        assert_eq!(there.get("k").unwrap(), None);
        assert_eq!(there.multi_get(["k"]).unwrap(), [None]);
        assert_eq!(there.iter().count(), 0);
    }
}
