//! Errors of siftdb about files of other stores.

use siftdb::{Error, Remedy};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The error of a call of the system; `op` is a word for users.
pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { op, path: path.to_path_buf(), source: Arc::new(source) }
}

/// The error for damage at `offset` of a file of a database.
pub(crate) fn corruption(path: &Path, offset: u64, what: impl Into<String>) -> Error {
    let (path, what) = (path.to_path_buf(), what.into());
    Error::Corruption { path, offset, what, remedy: Remedy::OtherStore }
}

/// The error for a missing file; `what` says why it must exist.
pub(crate) fn missing(path: impl Into<PathBuf>, what: &str) -> Error {
    Error::Missing { path: path.into(), what: what.into() }
}

/// Turns `Io` for a file that does not exist into `Missing`. Returns other errors unchanged.
pub(crate) fn of_lost_file(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. } if source.kind() == io::ErrorKind::NotFound => {
            missing(path, "the database cannot be read without it")
        }
        error => error,
    }
}

/// The error for a format that is not read.
pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Error {
    Error::UnsupportedFormat { path: path.to_path_buf(), what: what.into() }
}

/// The error with the advice for a single table.
pub(crate) fn of_single_table(mut error: Error) -> Error {
    if let Error::Corruption { remedy, .. } = &mut error {
        *remedy = Remedy::OtherStoreTable;
    }
    error
}
