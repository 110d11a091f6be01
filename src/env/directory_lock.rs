//! The lock of a database directory, held while anything can still read or write there.
//!
//! `directory` takes it for `db::open` and `repair`. Every read view shares it, so a call, an
//! iterator or a snapshot keeps the directory locked. `LOCK` is unlocked when the last owner drops,
//! or by `close_now`, after which no owner can reach a file any more.
//!
//! - A list of the locks of this process lets [`Error::Locked`] say what holds one of them.
//! - A writer calls [`DirectoryLock::check`] before it starts a log or changes the manifest, and
//!   after each sync, because a removed `LOCK` no longer keeps other processes out.

use crate::base::error::{Error, LockHolder, Result};
use crate::base::process::Process;
use crate::base::sync::{Arc, plain};
use crate::env::api::{Env, FileId, FileLock, LockMode, if_there};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Weak;

/// How often locking is tried when the lock file is renamed or removed at the same time.
const TRIES: u32 = 10;

/// The locks of this process. Taking a lock removes the entries of released ones.
static HELD: plain::Mutex<Vec<Weak<Held>>> = plain::Mutex::new(Vec::new());

#[derive(Debug)]
struct Held {
    /// The locked file; `None` for a reader of a directory without one.
    id: Option<FileId>,
    /// The process that took the lock.
    process: Process,
    /// The database was closed, so only readers hold the lock.
    closed: plain::AtomicBool,
}

/// A held lock; it is released when the last owner drops, or by [`DirectoryLock::release`].
pub(crate) struct DirectoryLock {
    // Declared before `held`, so it drops first: the list must have its entry while it is locked.
    lock: plain::Mutex<Option<Box<dyn FileLock>>>,
    held: Arc<Held>,
    path: PathBuf,
}

impl fmt::Debug for DirectoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The path only: an `Env` in memory would print all of its files.
        f.debug_struct("DirectoryLock").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DirectoryLock {
    /// Locks the file at `path`, creating it if needed.
    ///
    /// # Errors
    /// `Locked` if another handle or process holds it; `LockLost` if the file keeps changing.
    pub(crate) fn take(env: &dyn Env, path: &Path, mode: LockMode) -> Result<Arc<Self>> {
        for _ in 0..TRIES {
            let lock = match env.lock(path, mode) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(Error::Locked { path: path.into(), holder: holder(env, path) });
                }
                result => result.map_err(|error| Error::io("lock", path, error))?,
            };
            let id = lock.id().map_err(|error| Error::io("lock", path, error))?;
            // Another process may have replaced the file after it was opened and before it was
            // locked.
            if is_at(env, path, id)? {
                return Ok(DirectoryLock::new(Some(lock), Some(id), path));
            }
        }
        Err(Error::LockLost { path: path.into() })
    }

    /// The lock of a reader in a directory that has no file to lock.
    pub(crate) fn of_nothing(path: &Path) -> Arc<Self> {
        DirectoryLock::new(None, None, path)
    }

    fn new(lock: Option<Box<dyn FileLock>>, id: Option<FileId>, path: &Path) -> Arc<Self> {
        let (process, closed) = (Process::current(), plain::AtomicBool::new(false));
        let held = Arc::new(Held { id, process, closed });
        let mut list = HELD.lock();
        list.retain(|held| held.strong_count() > 0);
        list.push(Arc::downgrade(&held));
        drop(list);
        Arc::new(DirectoryLock { lock: plain::Mutex::new(lock), held, path: path.to_path_buf() })
    }

    /// Notes that the database was closed: from now on only readers hold the lock.
    pub(crate) fn close(&self) {
        self.held.closed.store(true, plain::Ordering::Relaxed);
    }

    /// Unlocks the directory although there are other owners, who must not use it any more.
    pub(crate) fn release(&self) {
        let mut list = HELD.lock();
        // First: the list must have its entry while it is locked.
        drop(self.lock.lock().take());
        list.retain(|held| !std::ptr::eq(held.as_ptr(), &*self.held));
    }

    /// Checks that the path still names the locked file.
    ///
    /// # Errors
    /// `LockLost` if not, or after [`DirectoryLock::release`]; `Io` if the file system does not
    /// say.
    pub(crate) fn check(&self, env: &dyn Env) -> Result<()> {
        let is_ours = match self.held.id {
            Some(id) => self.lock.lock().is_some() && is_at(env, &self.path, id)?,
            None => true,
        };
        if is_ours { Ok(()) } else { Err(Error::LockLost { path: self.path.clone() }) }
    }
}

fn is_at(env: &dyn Env, path: &Path, id: FileId) -> Result<bool> {
    let found = if_there(env.metadata(path));
    let found = found.map_err(|error| Error::io("metadata", path, error))?;
    Ok(found.is_some_and(|metadata| metadata.id == id))
}

/// What in this process holds the lock on the file at `path`, or that another process does.
fn holder(env: &dyn Env, path: &Path) -> LockHolder {
    let Ok(metadata) = env.metadata(path) else { return LockHolder::OtherProcess };
    let process = Process::current();
    let list = HELD.lock();
    let held = list.iter().filter_map(Weak::upgrade);
    // A forked process has a copy of the list of its parent, whose locks it does not hold.
    let mine = held.filter(|held| held.id == Some(metadata.id) && held.process == process);
    let closed = mine.map(|held| held.closed.load(plain::Ordering::Relaxed));
    match closed.reduce(|all, closed| all && closed) {
        Some(true) => LockHolder::Reader,
        Some(false) => LockHolder::Handle,
        None => LockHolder::OtherProcess,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;

    #[test]
    fn a_released_lock_is_free_and_lost() {
        let (env, path) = (MemEnv::new(), Path::new("/LOCK"));
        let first = DirectoryLock::take(&env, path, LockMode::Exclusive).unwrap();
        let taken = || DirectoryLock::take(&env, path, LockMode::Exclusive);
        let holder = |answer: Result<Arc<DirectoryLock>>| match answer {
            Err(Error::Locked { holder, .. }) => holder,
            other => panic!("{other:?}"),
        };
        assert_eq!(holder(taken()), LockHolder::Handle);
        first.check(&env).unwrap();
        first.release();
        let second = taken().unwrap();
        assert!(matches!(first.check(&env), Err(Error::LockLost { .. })));
        second.check(&env).unwrap();
        second.close();
        // The first owner is not asked any more.
        assert_eq!(holder(taken()), LockHolder::Reader);
        drop(second);
        taken().unwrap();
        drop(first);
    }
}
