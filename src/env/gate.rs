//! [`GatedEnv`]: an Env that can be shut, for `Db::close_now`.
//!
//! The Env of an open database has a gate. While the database is open everything passes. Once the
//! gate is shut no file can be opened, created, written, renamed or removed through it, and no call
//! that began before is under way. So the directory can be given to another process although
//! iterators, loads and jobs of this one still exist.
//!
//! A file that is open can still be read. Files of tables are never written again, so its contents
//! are what they were. A name is different: another database could give it to another file.

use crate::base::error::ended;
use crate::base::filename::{FileName, parse};
use crate::base::sync::{Arc, Condvar, Mutex};
use crate::env::api::{Env, RandomFile, WritableFile};
use crate::env::layer::EnvLayer;
use std::io;
use std::path::Path;

/// Whether calls may begin, and how many are under way.
#[derive(Debug, Default)]
struct Calls {
    shut: bool,
    under_way: usize,
}

/// Lets calls pass until it is shut.
#[derive(Debug, Default)]
pub(crate) struct EnvGate {
    calls: Mutex<Calls>,
    ended: Condvar,
}

impl EnvGate {
    /// Refuses all later calls, and waits for those that are under way.
    pub(crate) fn shut(&self) {
        let mut calls = self.calls.lock();
        calls.shut = true;
        while calls.under_way > 0 {
            self.ended.wait(&mut calls);
        }
    }

    fn pass<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _under_way = UnderWay::begin(self)?;
        call()
    }
}

/// A call that passed the gate; over on drop.
struct UnderWay<'a>(&'a EnvGate);

impl<'a> UnderWay<'a> {
    fn begin(gate: &'a EnvGate) -> io::Result<Self> {
        let mut calls = gate.calls.lock();
        if calls.shut {
            return Err(ended());
        }
        calls.under_way += 1;
        Ok(UnderWay(gate))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock();
        calls.under_way -= 1;
        if calls.shut {
            self.0.ended.notify_all();
        }
    }
}

/// An Env behind a gate.
#[derive(Debug)]
pub(crate) struct GatedEnv {
    inner: Arc<dyn Env>,
    gate: Arc<EnvGate>,
}

impl GatedEnv {
    /// Puts `env` behind a gate of its own, which is open.
    pub(crate) fn over(env: &Arc<dyn Env>) -> (Arc<dyn Env>, Arc<EnvGate>) {
        let gate = Arc::new(EnvGate::default());
        (Arc::new(GatedEnv { inner: Arc::clone(env), gate: Arc::clone(&gate) }), gate)
    }
}

impl EnvLayer for GatedEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.gate.pass(|| self.inner.open_random(path))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.gate.pass(|| self.inner.create_new(path))?;
        let name = path.file_name().and_then(|name| name.to_str()).and_then(parse);
        // Only leaders write logs, and `close` waits for the last one. A put does not pay.
        if matches!(name, Some(FileName::Wal(_))) {
            return Ok(inner);
        }
        Ok(Box::new(GatedFile { inner, gate: Arc::clone(&self.gate) }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.gate.pass(|| self.inner.sync_dir(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate.pass(|| self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.gate.pass(|| self.inner.remove(path))
    }

    fn hard_link(&self, existing: &Path, new: &Path) -> io::Result<()> {
        self.gate.pass(|| self.inner.hard_link(existing, new))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.gate.pass(|| self.inner.create_dir(path))
    }
}

/// A file that is written through the gate.
#[derive(Debug)]
struct GatedFile {
    inner: Box<dyn WritableFile>,
    gate: Arc<EnvGate>,
}

impl WritableFile for GatedFile {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.gate.pass(|| self.inner.write_at(offset, data))
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.gate.pass(|| self.inner.allocate_zeroed(offset, bytes))
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.gate.pass(|| self.inner.sync_data())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.gate.pass(|| self.inner.sync_all())
    }

    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.inner.try_clone()?;
        Ok(Box::new(GatedFile { inner, gate: Arc::clone(&self.gate) }))
    }
}
