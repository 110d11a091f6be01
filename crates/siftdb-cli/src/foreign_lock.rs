//! The lock on a database of LevelDB or RocksDB.

use crate::failure::{Failure, Outcome};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Takes the lock on the database in `directory` as a reader: that of `store` is exclusive. A
/// database that was copied may have no file to lock.
#[expect(clippy::disallowed_methods, reason = "the lock file of another store")]
pub fn lock(directory: &Path, store: &str) -> Outcome<Option<File>> {
    let path = directory.join("LOCK");
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|source| Failure::io(&path, source))?,
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
            let in_use = std::io::Error::other(format!("{store} has this database open"));
            Err(Failure::io(&path, in_use).with_advice("close it there, or use a copy"))
        }
        Err(error) => Err(Failure::io(&path, error.into())),
    }
}
