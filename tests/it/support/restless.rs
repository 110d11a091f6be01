//! An Env that yields to other threads in writes, syncs, openings and removals, while the engine
//! holds its locks: for more interleavings of threads.

use super::rng::Rng;
use siftdb::env::{Env, EnvLayer, RandomFile, WritableFile};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Forwards every call, and yields in some of them.
#[derive(Clone, Debug)]
pub struct RestlessEnv {
    inner: Arc<dyn Env>,
    pauses: Arc<Pauses>,
    tables_removed: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Pauses(AtomicU64);

impl Pauses {
    /// Yields up to three times.
    fn pause(&self) {
        let draw = Rng::new(self.0.fetch_add(1, Ordering::Relaxed)).next();
        (0..draw % 4).for_each(|_| std::thread::yield_now());
    }
}

impl RestlessEnv {
    pub fn new(inner: Arc<dyn Env>, seed: u64) -> Self {
        let pauses = Arc::new(Pauses(AtomicU64::new(seed << 32)));
        RestlessEnv { inner, pauses, tables_removed: Arc::default() }
    }

    /// Tables that were removed so far.
    pub fn tables_removed(&self) -> u64 {
        self.tables_removed.load(Ordering::Relaxed)
    }
}

impl EnvLayer for RestlessEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.pauses.pause();
        self.inner.open_random(path)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.inner.create_new(path)?;
        Ok(Box::new(RestlessFile { inner, pauses: Arc::clone(&self.pauses) }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.pauses.pause();
        self.inner.sync_dir(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.pauses.pause();
        if path.extension().is_some_and(|extension| extension == "sst") {
            self.tables_removed.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.remove(path)
    }
}

#[derive(Debug)]
struct RestlessFile {
    inner: Box<dyn WritableFile>,
    pauses: Arc<Pauses>,
}

impl WritableFile for RestlessFile {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pauses.pause();
        self.inner.write_at(offset, data)?;
        self.pauses.pause();
        Ok(())
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.allocate_zeroed(offset, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.pauses.pause();
        self.inner.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.pauses.pause();
        self.inner.sync_all()
    }
}
