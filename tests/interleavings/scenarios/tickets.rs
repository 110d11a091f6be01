//! Tickets beside writers, log switches and a close: none resolves before its sync, and each does.
//!
//! The Env knows of each log how much was written and how much of that is synced. Its syncs take
//! time: what is written while one runs, it does not cover.

use crate::base::error::Error;
use crate::base::sync::{Arc, AtomicBool, Ordering, thread};
use crate::db::database::Db;
use crate::env::api::{Env, WritableFile};
use crate::env::layer::EnvLayer;
use crate::env::mem::MemEnv;
use crate::interleavings::run::check;
use crate::options::database::Options;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Of each log: bytes written and bytes synced. The start record alone counts as nothing: no write
/// is in it.
type Logs = Arc<Mutex<BTreeMap<PathBuf, (u64, u64)>>>;

#[derive(Debug)]
struct SyncedEnv {
    inner: MemEnv,
    logs: Logs,
}

#[derive(Debug)]
struct SyncedFile {
    inner: Box<dyn WritableFile>,
    path: PathBuf,
    logs: Logs,
    turn: AtomicBool,
}

impl SyncedFile {
    fn wrap(inner: Box<dyn WritableFile>, path: &Path, logs: &Logs) -> Box<dyn WritableFile> {
        let (path, logs, turn) = (path.to_path_buf(), Arc::clone(logs), AtomicBool::new(false));
        Box::new(SyncedFile { inner, path, logs, turn })
    }
}

impl EnvLayer for SyncedEnv {
    fn inner(&self) -> &dyn Env {
        &self.inner
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.inner.create_new(path)?;
        Ok(match path.extension().is_some_and(|end| end == "wal") {
            true => SyncedFile::wrap(inner, path, &self.logs),
            false => inner,
        })
    }
}

impl WritableFile for SyncedFile {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)?;
        let mut logs = self.logs.lock().unwrap();
        if let Some((written, _)) = logs.get_mut(&self.path) {
            *written = (*written).max(offset + data.len() as u64);
        } else {
            logs.insert(self.path.clone(), (0, 0));
        }
        Ok(())
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.allocate_zeroed(offset, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let (before, _) = self.logs.lock().unwrap().get(&self.path).copied().unwrap_or_default();
        // Others write now, or not.
        self.turn.load(Ordering::SeqCst);
        self.inner.sync_data()?;
        let mut logs = self.logs.lock().unwrap();
        let (_, synced) = logs.entry(self.path.clone()).or_default();
        *synced = (*synced).max(before);
        Ok(())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        Ok(SyncedFile::wrap(self.inner.try_clone()?, &self.path, &self.logs))
    }
}

fn open() -> (Db, Logs) {
    let logs = Logs::default();
    let env = SyncedEnv { inner: MemEnv::new(), logs: Arc::clone(&logs) };
    let options = Options::new().env(Arc::new(env)).auto_compaction(false);
    (options.open("/db").unwrap(), logs)
}

/// How far each log is written.
fn written(logs: &Logs) -> BTreeMap<PathBuf, u64> {
    let logs = logs.lock().unwrap();
    logs.iter().map(|(path, (written, _))| (path.clone(), *written)).collect()
}

/// Fails unless the logs are synced as far as they were `written`, or tables have what they held:
/// then no memtable began in them.
fn assert_synced(db: &Db, logs: &Logs, written: &BTreeMap<PathBuf, u64>) {
    let view = db.engine().catalog.default.view.load();
    let active = Some(view.active_log).filter(|log| *log > 0);
    let needed = view.immutables.iter().map(|full| full.first_log).chain(active).min();
    let needed = needed.unwrap_or(u64::MAX);
    for (path, written) in written {
        let (_, synced) = logs.lock().unwrap()[path];
        let name = path.file_stem().and_then(|name| name.to_str());
        let number: u64 = name.and_then(|name| name.parse().ok()).unwrap();
        assert!(synced >= *written || number < needed, "{path:?}: {synced} of {written}");
    }
}

pub fn tickets_resolve_after_their_sync() {
    check("tickets", 1500, 3, || {
        let (db, logs) = open();
        thread::scope(|scope| {
            for name in ["a", "b"] {
                let (db, logs) = (&db, &logs);
                scope.spawn(move || {
                    for n in 0..2 {
                        db.put(format!("{name}{n}"), "v").unwrap();
                        let before = written(logs);
                        db.sync_ticket().wait().unwrap();
                        assert_synced(db, logs, &before);
                    }
                });
            }
            scope.spawn(|| {
                db.put("c", "v").unwrap();
                let before = written(&logs);
                db.sync().unwrap();
                assert_synced(&db, &logs, &before);
                db.flush().unwrap();
            });
        });
        assert_eq!(db.iter().count(), 5);
        db.close().unwrap();
        db.stats().wal_syncs
    });
}

pub fn a_close_beside_tickets_resolves_each() {
    check("tickets beside a close", 1500, 3, || {
        let (db, logs) = open();
        let resolved = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut resolved = Vec::new();
                for n in 0..2u8 {
                    let put = db.put([n], "v");
                    let before = written(&logs);
                    match (put, db.sync_ticket().wait()) {
                        (Ok(()), Ok(())) => {
                            assert_synced(&db, &logs, &before);
                            resolved.push(true);
                        }
                        (_, Err(Error::Closed)) => resolved.push(false),
                        other => panic!("{other:?}"),
                    }
                }
                resolved
            });
            scope.spawn(|| {
                // Nobody waits for this one.
                drop(db.sync_ticket());
                db.close().unwrap();
            });
            writer.join().unwrap()
        });
        let before = written(&logs);
        drop(db);
        for (path, (written, synced)) in &*logs.lock().unwrap() {
            assert!(written == synced && before[path] == *written, "{path:?}");
        }
        resolved
    });
}
