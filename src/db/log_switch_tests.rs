//! Tests of switches to a new log, and of the log that is made ahead of need, before the one in use
//! is full.

use crate::base::error::Error;
use crate::db::database::Db;
use crate::env::api::{Env, RandomFile, WritableFile};
use crate::env::layer::EnvLayer;
use crate::env::mem::MemEnv;
use crate::env::testing::crash::CrashModel;
use crate::env::testing::fault::{Calls, EIO, Fault, FaultEnv, FaultKind};
use crate::jobs::flush::switch_all;
use crate::options::database::Options;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{ThreadId, current, yield_now};
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 64 << 10;

/// Notes the calls that one thread makes on names and directories.
#[derive(Clone, Debug)]
struct ThreadEnv {
    inner: MemEnv,
    thread: ThreadId,
    calls: Arc<Mutex<Vec<String>>>,
}

impl ThreadEnv {
    fn calls(&self) -> MutexGuard<'_, Vec<String>> {
        self.calls.lock().unwrap()
    }

    fn note(&self, call: &str, path: &Path) {
        if current().id() == self.thread {
            self.calls().push(format!("{call} {}", path.display()));
        }
    }
}

impl EnvLayer for ThreadEnv {
    fn inner(&self) -> &dyn Env {
        &self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.note("open_random", path);
        self.inner.open_random(path)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.note("create_new", path);
        self.inner.create_new(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note("sync_dir", path);
        self.inner.sync_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note("rename", to);
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.note("remove", path);
        self.inner.remove(path)
    }
}

/// Logs without a byte.
fn empty_logs(disk: &MemEnv) -> usize {
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "wal");
    let files = disk.list_files().into_iter().filter(|path| is_log(path));
    files.filter(|log| disk.read_file(log).is_some_and(|bytes| bytes.is_empty())).count()
}

/// Waits until the next log is made, and a switch can take it.
#[track_caller]
fn wait_for_the_next_log(db: &Db) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while db.engine().writer.log.lock().ahead.is_none() {
        assert!(Instant::now() < deadline, "nobody makes the next log");
        yield_now();
    }
}

#[test]
fn puts_make_and_remove_no_file() {
    let disk = MemEnv::new();
    let env = ThreadEnv { inner: disk.clone(), thread: current().id(), calls: Arc::default() };
    let options = Options::new().write_buffer_bytes(BUFFER_BYTES);
    let db = options.clone().env(Arc::new(env.clone())).open("/db").unwrap();
    // Begins the session.
    db.put("a", "1").unwrap();
    env.calls().clear();
    assert_eq!(empty_logs(&disk), 0, "a small session has one log");
    let mut number = 0;
    let mut put = || {
        db.put(format!("key{number:05}"), [b'v'; 200]).unwrap();
        number += 1;
    };
    for switches in 1..=20 {
        // Three quarters of a buffer: the next log is asked for and not needed.
        (0..BUFFER_BYTES * 3 / 4 / 300).for_each(|_| put());
        wait_for_the_next_log(&db);
        while db.stats().log_switches < switches {
            put();
        }
    }
    assert_eq!(*env.calls(), Vec::<String>::new());
    wait_for_the_next_log(&db);
    assert_eq!(empty_logs(&disk), 1);
    db.close().unwrap();
    assert_eq!(empty_logs(&disk), 0, "a close removes it");
    let db = options.env(Arc::new(disk)).open("/db").unwrap();
    assert_eq!(db.iter().filter(Result::is_ok).count(), number + 1);
}

/// The start of the new log may be there after a crash. It names the last sequence of the old log,
/// and a later one in that log would be taken for damage.
#[test]
fn no_write_follows_a_switch_that_failed() {
    let disk = MemEnv::with_log();
    let env = FaultEnv::new(Arc::new(disk.clone()));
    let db = Options::new().env(Arc::new(env.clone())).open("/db").unwrap();
    db.put("k", "1").unwrap();
    db.sync().unwrap();
    let writes = Calls::Named("write_at");
    env.fail_at(env.calls_of(writes), Fault::once(FaultKind::ErrorAfter(EIO)).among(writes));
    // As a job does that has not recorded the failure yet.
    assert!(switch_all(db.engine()).is_err() && env.has_fired());
    let written = db.put("k", "2");
    for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
        for seed in 0..200 {
            let left = disk.replay(usize::MAX, model, seed);
            let after = Options::new().env(Arc::new(left)).open("/db");
            let after = after.unwrap_or_else(|error| panic!("{model:?} {seed}: {error}"));
            let found = after.get("k").unwrap().unwrap();
            assert!(found == "1" || written.is_ok(), "{model:?} {seed}");
        }
    }
    assert!(matches!(written, Err(Error::ReadOnly { .. })));
}
