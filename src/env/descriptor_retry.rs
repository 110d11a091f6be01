//! [`DescriptorRetryEnv`]: an Env that tries again when the process has no descriptor left.
//!
//! A process may have few descriptors, and the program around siftdb needs some too. Pools of
//! descriptors fill up to their own limits and do not know the limit of the process. When a call
//! fails for want of a descriptor, all pools of the process close half of theirs and the call is
//! made again, until it succeeds or nothing is left to close. `db::open` and `repair` put this Env
//! around the Env of the options.
//!
//! A call that fails for want of a descriptor has changed nothing, so it is safe to make it again.

use crate::base::sync::Arc;
use crate::env::api::{DirectoryEntry, Env, FileLock, LockMode, RandomFile, WritableFile};
use crate::env::handle::evict_descriptors;
use crate::env::layer::EnvLayer;
use std::io;
use std::path::Path;

/// `ENFILE` and `EMFILE`: the system, or this process, has too many open files.
const NO_DESCRIPTOR: [i32; 2] = [23, 24];

/// How often a call is repeated when no pool holds a descriptor: another thread may be about to
/// close one.
const LAST_TRIES: u32 = 3;

/// An Env that closes cached descriptors when the process runs out of them.
#[derive(Debug)]
pub(crate) struct DescriptorRetryEnv(Arc<dyn Env>);

impl DescriptorRetryEnv {
    pub(crate) fn over(env: &Arc<dyn Env>) -> Arc<dyn Env> {
        Arc::new(DescriptorRetryEnv(Arc::clone(env)))
    }
}

/// True if a call failed for want of a descriptor.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| NO_DESCRIPTOR.contains(&code))
}

impl DescriptorRetryEnv {
    fn with_descriptor<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut last_tries = LAST_TRIES;
        loop {
            match call() {
                Err(error) if last_tries > 0 && is_shortage(&error) => {
                    if !evict_descriptors(self) {
                        last_tries -= 1;
                        std::thread::yield_now();
                    }
                }
                result => return result,
            }
        }
    }
}

impl EnvLayer for DescriptorRetryEnv {
    fn inner(&self) -> &dyn Env {
        &*self.0
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.with_descriptor(|| self.0.open_random(path))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.with_descriptor(|| self.0.create_new(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.with_descriptor(|| self.0.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.with_descriptor(|| self.0.list(path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        self.with_descriptor(|| self.0.lock(path, mode))
    }
}
