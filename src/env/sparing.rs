//! [`SparingEnv`]: another Env whose calls that need a descriptor try again when there is none.
//!
//! A process may have few descriptors, and who uses siftdb needs some too. The pools of descriptors
//! take what they may hold, without asking how many there are; so whoever meets the limit first, a
//! read, a flush or the opening of another database, lets all pools of the process forget half of
//! theirs and tries again, until it has one or there is nothing more to forget. Its own pool keeps
//! to that half for a while. `db::open` and `repair` put it around the Env of the options.
//!
//! A call that fails for want of a descriptor has changed nothing, so making it again is safe.

use crate::base::sync::Arc;
use crate::env::api::{
    DirectoryEntry, Env, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
use crate::env::handle::forget_descriptors;
use std::io;
use std::path::Path;

/// `ENFILE` and `EMFILE`: the system, or this process, has too many open files.
const NO_DESCRIPTOR: [i32; 2] = [23, 24];

/// How often a call is made again when no pool holds anything: another thread may be about to
/// close what it read with.
const LAST_TRIES: u32 = 3;

/// An Env that makes room for descriptors.
#[derive(Debug)]
pub struct SparingEnv(Arc<dyn Env>);

impl SparingEnv {
    /// Makes the calls of `env`.
    #[must_use]
    pub fn over(env: &Arc<dyn Env>) -> Arc<dyn Env> {
        Arc::new(SparingEnv(Arc::clone(env)))
    }
}

impl SparingEnv {
    fn with_descriptor<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut last_tries = LAST_TRIES;
        loop {
            match call() {
                Err(error)
                    if last_tries > 0
                        && error
                            .raw_os_error()
                            .is_some_and(|code| NO_DESCRIPTOR.contains(&code)) =>
                {
                    if !forget_descriptors(self) {
                        last_tries -= 1;
                        std::thread::yield_now();
                    }
                }
                result => return result,
            }
        }
    }
}

impl Env for SparingEnv {
    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.with_descriptor(|| self.0.open_random(path))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.with_descriptor(|| self.0.create_new(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.with_descriptor(|| self.0.sync_dir(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn hard_link(&self, existing: &Path, new: &Path) -> io::Result<()> {
        self.0.hard_link(existing, new)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.with_descriptor(|| self.0.list(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.0.metadata(path)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        self.with_descriptor(|| self.0.lock(path, mode))
    }
}
