//! [`WatchedEnv`]: an Env that shows every call on another Env, and on its files, to a [`Watcher`].
//!
//! `CountingEnv` and `FaultEnv` are watchers. Dropping a file or a lock is not a call, and neither
//! is making a second handle of a file; the calls of that handle are. Nor is a change signal.

use crate::base::sync::Arc;
use crate::env::api::{
    DirectoryEntry, Env, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A call of [`Env`] or of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub operation: &'static str,
    /// The file or directory; of a rename or link the new name.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "faults choose by it"))]
    pub path: &'a Path,
    /// The length of a read, write or allocation.
    pub bytes: u64,
}

impl<'a> Call<'a> {
    fn new(operation: &'static str, path: &'a Path, bytes: u64) -> Self {
        Call { operation, path, bytes }
    }
}

/// Sees every call, and decides whether and how it is made.
pub(crate) trait Watcher: Clone + Debug + Send + Sync + 'static {
    /// `make` makes the call, with as many bytes as it is told.
    fn call<T>(&self, call: Call<'_>, make: impl FnMut(u64) -> io::Result<T>) -> io::Result<T>;
}

/// An Env whose calls, and those of its files, go through a watcher.
#[derive(Clone, Debug)]
pub(crate) struct WatchedEnv<W> {
    pub inner: Arc<dyn Env>,
    pub watcher: W,
}

/// A file of a [`WatchedEnv`]: an `Arc<dyn RandomFile>` or a `Box<dyn WritableFile>`.
#[derive(Debug)]
struct WatchedFile<F, W> {
    inner: F,
    path: PathBuf,
    watcher: W,
}

impl<W: Watcher> WatchedEnv<W> {
    fn call<T>(
        &self,
        operation: &'static str,
        path: &Path,
        mut make: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.watcher.call(Call::new(operation, path, 0), |_| make())
    }

    fn file<F>(&self, inner: F, path: &Path) -> WatchedFile<F, W> {
        WatchedFile { inner, path: path.to_path_buf(), watcher: self.watcher.clone() }
    }
}

impl<W: Watcher> Env for WatchedEnv<W> {
    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let inner = self.call("open_random", path, || self.inner.open_random(path))?;
        Ok(Arc::new(self.file(inner, path)))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.call("create_new", path, || self.inner.create_new(path))?;
        Ok(Box::new(self.file(inner, path)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call("sync_dir", path, || self.inner.sync_dir(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename", to, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call("remove", path, || self.inner.remove(path))
    }

    fn hard_link(&self, existing: &Path, new: &Path) -> io::Result<()> {
        self.call("hard_link", new, || self.inner.hard_link(existing, new))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call("create_dir", path, || self.inner.create_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.call("list", path, || self.inner.list(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.call("metadata", path, || self.inner.metadata(path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        self.call("lock", path, || self.inner.lock(path, mode))
    }

    fn change_signal(&self, directory: &Path) -> io::Result<OwnedFd> {
        self.inner.change_signal(directory)
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn now(&self) -> SystemTime {
        self.inner.now()
    }
}

impl<W: Watcher> RandomFile for WatchedFile<Arc<dyn RandomFile>, W> {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = buffer.len() as u64;
        let make = |_| self.inner.read_exact_at(offset, buffer);
        self.watcher.call(Call::new("read_exact_at", &self.path, bytes), make)
    }

    fn len(&self) -> io::Result<u64> {
        self.watcher.call(Call::new("len", &self.path, 0), |_| self.inner.len())
    }

    fn expect_random_reads(&self) {
        self.inner.expect_random_reads();
    }

    fn read_ahead(&self, offset: u64, bytes: u64) {
        self.inner.read_ahead(offset, bytes);
    }
}

impl<W: Watcher> WritableFile for WatchedFile<Box<dyn WritableFile>, W> {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let make = |bytes| self.inner.write_at(offset, &data[..bytes as usize]);
        self.watcher.call(Call::new("write_at", &self.path, data.len() as u64), make)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let make = |bytes| self.inner.allocate_zeroed(offset, bytes);
        self.watcher.call(Call::new("allocate_zeroed", &self.path, bytes), make)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.watcher.call(Call::new("sync_data", &self.path, 0), |_| self.inner.sync_data())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.watcher.call(Call::new("sync_all", &self.path, 0), |_| self.inner.sync_all())
    }

    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        let (inner, path) = (self.inner.try_clone()?, self.path.clone());
        Ok(Box::new(WatchedFile { inner, path, watcher: self.watcher.clone() }))
    }
}
