//! A log file: opening it, and its errors.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::env::api::Env;
use crate::log::record::reader::RecordReader;
use std::io;
use std::path::{Path, PathBuf};

/// siftdb writes no longer log: room for a write buffer and the largest group of batches.
const LOG_BYTES_MAX: u64 = 16 << 30;

/// The file of one log.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    /// The number in the name.
    pub number: u64,
    /// The path of the file.
    pub path: PathBuf,
}

impl LogFile {
    /// Log `number` in `directory`.
    #[must_use]
    pub(crate) fn new(directory: &Path, number: u64) -> Self {
        LogFile { number, path: FileName::Wal(number).path(directory) }
    }

    /// Opens the first `bytes_max` bytes of the log; `None` if the file is missing.
    ///
    /// # Errors
    /// `Io`; `Corruption` if the file is longer than any log.
    pub(crate) fn open(&self, env: &dyn Env, bytes_max: u64) -> Result<Option<RecordReader>> {
        match RecordReader::open_to(env, &self.path, self.number, bytes_max.min(LOG_BYTES_MAX + 1))
        {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(reader) if reader.file_bytes() > LOG_BYTES_MAX => {
                let what = format!("the log is larger than {LOG_BYTES_MAX} bytes");
                Err(self.corruption(LOG_BYTES_MAX, what))
            }
            result => result.map(Some),
        }
    }

    /// The error for damage at `offset`.
    pub(crate) fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }

    /// The error for a record at `offset` that was written under a newer manifest.
    #[must_use]
    pub(crate) fn of_newer_manifest(&self, offset: u64) -> Error {
        self.corruption(offset, "the log was in use under a newer manifest than CURRENT names")
    }
}

/// The error for a missing log; `why` says why it must exist.
pub(crate) fn missing_log(directory: &Path, number: u64, why: &str) -> Error {
    Error::missing(FileName::Wal(number).path(directory), why)
}
