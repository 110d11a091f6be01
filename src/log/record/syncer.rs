//! [`RecordSyncer`]: syncs a record file on one thread while its writer appends on another.
//!
//! A sync covers every record that was wholly appended before it began. Writer and syncer share the
//! first failure of the file: after it, both refuse every call.

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Mutex, MutexGuard, OnceLock};
use crate::env::api::WritableFile;
use std::io;
use std::path::{Path, PathBuf};

/// The first failure of a write or sync of a file.
#[derive(Debug)]
pub(crate) struct FileFailure {
    path: PathBuf,
    first: OnceLock<Error>,
}

impl FileFailure {
    /// No failure yet of the file at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        FileFailure { path: path.to_path_buf(), first: OnceLock::new() }
    }

    /// The failure, if there was one.
    pub(crate) fn check(&self) -> Result<()> {
        self.first.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Keeps the failure of the call `op`, if it failed.
    pub(crate) fn keep(&self, op: &'static str, result: io::Result<()>) -> Result<()> {
        result.map_err(|source| {
            let error = Error::io(op, &self.path, source);
            self.first.get_or_init(|| error.clone());
            error
        })
    }
}

/// Syncs a record file that another thread may append to.
#[derive(Debug)]
pub(crate) struct RecordSyncer {
    file: Mutex<Box<dyn WritableFile>>,
    failure: Arc<FileFailure>,
}

impl RecordSyncer {
    /// A syncer with a handle of its own of the file.
    pub(crate) fn new(file: Box<dyn WritableFile>, failure: &Arc<FileFailure>) -> Self {
        RecordSyncer { file: Mutex::new(file), failure: Arc::clone(failure) }
    }

    /// The right to sync the file. The system reports a lost write to one sync only. Of two syncs
    /// at the same time, the other one would succeed, although it lost the same write.
    pub(crate) fn turn(&self) -> MutexGuard<'_, Box<dyn WritableFile>> {
        self.file.lock()
    }

    /// Makes durable what was appended before the call.
    ///
    /// # Errors
    /// The first failure of the file.
    pub(crate) fn sync_data(&self) -> Result<()> {
        let mut file = self.turn();
        self.failure.check()?;
        self.failure.keep("sync_data", file.sync_data())
    }
}
