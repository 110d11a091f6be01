//! The threads that write the tables of bulk loads: what they write, and what their failures and
//! panics leave.

use crate::support::data::bytes;
use crate::support::model::Map;
use crate::support::stores::{HOME, as_env, files_ending, name, open, scan, small_options};
use siftdb::env::{Env, EnvLayer, MemEnv, WritableFile};
use siftdb::{Db, Error};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a call of such a thread does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Nothing,
    Fails,
    Panics,
}

/// Changes one of the calls that the threads of loads make on files.
#[derive(Clone, Debug)]
struct ThreadEnv {
    inner: Arc<dyn Env>,
    calls: Arc<AtomicU64>,
    /// Each open table has a clone.
    tables: Arc<()>,
    at: u64,
    does: Does,
}

impl ThreadEnv {
    fn new(disk: &MemEnv, at: u64, does: Does) -> Self {
        ThreadEnv { inner: as_env(disk), calls: Arc::default(), tables: Arc::default(), at, does }
    }

    fn call(&self) -> io::Result<()> {
        if std::thread::current().name() != Some("siftdb-load")
            || self.calls.fetch_add(1, Ordering::Relaxed) != self.at
        {
            return Ok(());
        }
        match self.does {
            Does::Nothing => Ok(()),
            Does::Fails => Err(io::Error::other("as asked")),
            Does::Panics => panic!("as asked"),
        }
    }
}

impl EnvLayer for ThreadEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.inner.create_new(path)?;
        let table = name(path).ends_with(".sst").then(|| self.tables.clone());
        let calls = ThreadEnv { tables: Arc::default(), ..self.clone() };
        Ok(Box::new(ThreadFile { inner, env: calls, _table: table }))
    }
}

#[derive(Debug)]
struct ThreadFile {
    inner: Box<dyn WritableFile>,
    env: ThreadEnv,
    _table: Option<Arc<()>>,
}

impl WritableFile for ThreadFile {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.env.call()?;
        self.inner.write_at(offset, data)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.allocate_zeroed(offset, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.env.call()?;
        self.inner.sync_all()
    }
}

/// Entries of several tables and, among them, values of several blocks.
fn entries() -> Map {
    let value = |n: usize| match n % 700 {
        300 => vec![n as u8; 40_000],
        _ => format!("{n} ").repeat(n % 40).into_bytes(),
    };
    (0..3000).map(|n| (format!("key{n:05}").into_bytes(), value(n))).collect()
}

fn has_threads() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

#[test]
fn loads_have_the_same_tables_every_time() {
    let tables = |load: &Map, snappy: bool, table_bytes: u64| {
        let disk = MemEnv::new();
        let env = ThreadEnv::new(&disk, 0, Does::Nothing);
        let options = small_options().snappy(snappy).table_bytes(table_bytes);
        let options = options.level_base_bytes(1 << 20).auto_compaction(false);
        let db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
        db.ingest(load).unwrap();
        assert!(!has_threads() || env.calls.load(Ordering::Relaxed) > 1, "no thread wrote");
        assert_eq!(scan(&db).unwrap(), *load);
        assert!(db.verify(|_| {}).unwrap().is_sound());
        let tables = db.tables().into_iter();
        tables.map(|table| (table.first_key, table.entries, table.bytes)).collect::<Vec<_>>()
    };
    // Of a large table several parts wait for the thread. Half of each value compresses. Small and
    // large values alternate, so that now the load is faster, now the thread.
    let half = |n: u64| if (n / 24).is_multiple_of(2) { 100 } else { 3000 };
    let value = |n: u64| [bytes(n, half(n)), vec![b'v'; half(n)]].concat();
    let large: Map = (0..800).map(|n| (format!("key{n:05}").into_bytes(), value(n))).collect();
    let small = entries();
    let cases = [(&small, false, 16 << 10), (&small, true, 16 << 10), (&large, true, 128 << 10)];
    for (load, snappy, table_bytes) in cases {
        let first = tables(load, snappy, table_bytes);
        assert!(first.len() > 1, "one table of {table_bytes} bytes at most");
        (0..20).for_each(|_| assert_eq!(tables(load, snappy, table_bytes), first));
    }
}

fn check_refusal(db: &Db, disk: &MemEnv, error: &Error, does: Does, place: &str) {
    let why = match does {
        Does::Panics => "its thread panicked: as asked",
        _ => "as asked",
    };
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains(why), "{error}");
    assert!(files_ending(disk, ".sst").is_empty(), "{place}");
    assert!(scan(db).unwrap().contains_key(&b"b"[..]), "{place}");
    assert_eq!(scan(db).unwrap().len(), 1, "{place}");
}

#[test]
fn failed_threads_fail_their_loads() {
    if !has_threads() {
        return;
    }
    let load = entries();
    for does in [Does::Fails, Does::Panics] {
        for at in 0.. {
            let (disk, place) = (MemEnv::new(), format!("{does:?} at call {at}"));
            let env = ThreadEnv::new(&disk, at, does);
            let options = small_options().auto_compaction(false);
            let db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
            db.put("b", "before").unwrap();
            let mut writer = db.table_writer().unwrap();
            let mut put = || load.iter().try_for_each(|(key, value)| writer.put(key, value));
            let failed = put().err();
            // The first error is that of all later calls too.
            if let Some(first) = &failed {
                let second = writer.put("~", "after").unwrap_err();
                assert_eq!(first.to_string(), second.to_string(), "{place}");
            }
            let ended = writer.finish();
            if env.calls.load(Ordering::Relaxed) <= at {
                assert!(at > 10 && failed.is_none() && ended.is_ok(), "{place}");
                break;
            }
            let error = ended.err().unwrap_or_else(|| panic!("{place}: the load appeared"));
            check_refusal(&db, &disk, &error, does, &place);
            db.ingest(&load).unwrap();
            assert_eq!(db.iter().count(), load.len() + 1, "{place}");
            drop(db);
            let db = open(&disk, &small_options()).unwrap();
            assert_eq!(db.iter().count(), load.len() + 1, "{place}");
        }
    }
}

#[test]
fn dropped_loads_end_their_threads() {
    let disk = MemEnv::new();
    let env = ThreadEnv::new(&disk, 0, Does::Nothing);
    let db = small_options().env(Arc::new(env.clone())).open(HOME).unwrap();
    let load = entries();
    for count in (100..3000).step_by(100) {
        let mut writer = db.table_writer().unwrap();
        load.iter().take(count).for_each(|(key, value)| writer.put(key, value).unwrap());
        drop(writer);
        // A thread has its table open until it ends. The others are here and in the database.
        assert_eq!(Arc::strong_count(&env.tables), 2, "{count} entries");
        assert!(files_ending(&disk, ".sst").is_empty(), "{count} entries");
    }
}
