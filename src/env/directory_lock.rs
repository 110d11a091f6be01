//! The directory's lock: held by whatever can still read or write there.
//!
//! `directory` takes it for `db::open` and `repair`. Every read view has a share in it, so a call,
//! an iterator or a snapshot that reads a view keeps the directory locked. `LOCK` is unlocked when
//! the last share goes.
//!
//! - What this process has locked is listed, so that [`Error::Locked`] can say what holds it.
//! - A writer calls [`DirectoryLock::check`] before it begins a log or changes the manifest: a
//!   removed `LOCK` locks nobody out.

use crate::base::error::{Error, LockHolder, Result};
use crate::base::process::Process;
use crate::base::sync::{Arc, plain};
use crate::env::api::{Env, FileId, FileLock, LockMode};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Weak;

/// How often a lock is taken again when its file lost its name at the same moment.
const TRIES: u32 = 10;

/// What this process has locked; what is gone is dropped when the next lock is taken.
static HELD: plain::Mutex<Vec<Weak<Held>>> = plain::Mutex::new(Vec::new());

#[derive(Debug)]
struct Held {
    /// The locked file; `None` where there is none.
    id: Option<FileId>,
    /// The process that locked it.
    process: Process,
    /// The database was closed: only readers are left.
    closed: plain::AtomicBool,
}

/// A held lock; the last owner lets go of it.
pub struct DirectoryLock {
    // Before `held`, so that it is let go first: until then the list says what holds it.
    _lock: Option<Box<dyn FileLock>>,
    held: Arc<Held>,
    path: PathBuf,
}

impl fmt::Debug for DirectoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Where it is says all; an `Env` in memory would print its whole disk.
        f.debug_struct("DirectoryLock").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DirectoryLock {
    /// Locks the file at `path`, creating it if needed.
    ///
    /// # Errors
    /// `Locked` if someone else holds it.
    pub fn take(env: &dyn Env, path: &Path, mode: LockMode) -> Result<Arc<Self>> {
        for _ in 0..TRIES {
            let lock = match env.lock(path, mode) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(Error::Locked { path: path.into(), holder: holder(env, path) });
                }
                result => result.map_err(|error| Error::io("lock", path, error))?,
            };
            let id = lock.id().map_err(|error| Error::io("lock", path, error))?;
            // Between opening and locking it, its name may have gone to another file.
            if is_at(env, path, id)? {
                return Ok(DirectoryLock::new(Some(lock), Some(id), path));
            }
        }
        Err(Error::LockLost { path: path.into() })
    }

    /// The share of a reader in a directory that has no file to lock.
    #[must_use]
    pub fn of_nothing(path: &Path) -> Arc<Self> {
        DirectoryLock::new(None, None, path)
    }

    fn new(lock: Option<Box<dyn FileLock>>, id: Option<FileId>, path: &Path) -> Arc<Self> {
        let (process, closed) = (Process::current(), plain::AtomicBool::new(false));
        let held = Arc::new(Held { id, process, closed });
        let mut list = HELD.lock();
        list.retain(|held| held.strong_count() > 0);
        list.push(Arc::downgrade(&held));
        drop(list);
        Arc::new(DirectoryLock { _lock: lock, held, path: path.to_path_buf() })
    }

    /// The database is closed: from now on only readers keep the lock.
    pub fn close(&self) {
        self.held.closed.store(true, plain::Ordering::Relaxed);
    }

    /// Checks that the name still belongs to the file that is locked.
    ///
    /// # Errors
    /// `LockLost` if not, `Io` if that cannot be seen.
    pub fn check(&self, env: &dyn Env) -> Result<()> {
        match self.held.id {
            Some(id) if !is_at(env, &self.path, id)? => {
                Err(Error::LockLost { path: self.path.clone() })
            }
            _ => Ok(()),
        }
    }
}

fn is_at(env: &dyn Env, path: &Path, id: FileId) -> Result<bool> {
    match env.metadata(path) {
        Ok(metadata) => Ok(metadata.id == id),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("metadata", path, error)),
    }
}

/// What holds the lock on the file at `path`.
fn holder(env: &dyn Env, path: &Path) -> LockHolder {
    let Ok(metadata) = env.metadata(path) else { return LockHolder::OtherProcess };
    let process = Process::current();
    let list = HELD.lock();
    let held = list.iter().filter_map(Weak::upgrade);
    // A forked child has its parent's list.
    let mine = held.filter(|held| held.id == Some(metadata.id) && held.process == process);
    let closed = mine.map(|held| held.closed.load(plain::Ordering::Relaxed));
    match closed.reduce(|all, closed| all && closed) {
        Some(true) => LockHolder::Reader,
        Some(false) => LockHolder::Handle,
        None => LockHolder::OtherProcess,
    }
}
