//! The logs of a RocksDB database: in its own directory, or in another one (`wal_dir`).
//!
//! RocksDB reads logs of one directory alone, and `OPTIONS` names it if it is another one. But
//! checkpoints, restored backups and copies have the `OPTIONS` of their origin, whose logs may have
//! later writes. So logs of another directory are read only on request. They are never left out
//! without a word.

use crate::damage::Damage;
use crate::files::Files;
use crate::store::Store;
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The logs to read.
#[derive(Debug, Default)]
pub(crate) struct LogFiles {
    /// By number, from the first that is needed.
    pub logs: BTreeMap<u64, PathBuf>,
    /// The `wal_dir` of `OPTIONS`, if it is another directory and the database has no logs.
    pub left_out: Option<PathBuf>,
}

impl LogFiles {
    /// The logs of the directory `given`. RocksDB would read no others, so those that only the
    /// database's directory has are noted in `damage`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn of_directory(
        env: &dyn Env,
        given: &Path,
        files: &Files,
        first: u64,
        damage: &Damage,
    ) -> Result<Self> {
        let mut logs = Files::list(env, given, Store::RocksDb)?.logs;
        for (_, path) in files.logs.range(first..).filter(|(number, _)| !logs.contains_key(number))
        {
            damage.note(path, 0, "logs are read from another directory, as requested");
        }
        Ok(LogFiles { logs: logs.split_off(&first), left_out: None })
    }

    /// The logs of the database's own directory. If `OPTIONS` names another `wal_dir`, it must not
    /// have more of the logs that are needed. They do not count if RocksDB never opened the
    /// directory: then `OPTIONS` was copied with the name.
    ///
    /// # Errors
    /// `InvalidArgument` if there are such logs; `Io`.
    pub(crate) fn of_database(
        env: &dyn Env,
        files: &Files,
        wal_dir: Option<&str>,
        first: u64,
    ) -> Result<Self> {
        let logs =
            files.logs.range(first..).map(|(number, path)| (*number, path.clone())).collect();
        let home = &files.directory;
        // RocksDB resolved a relative name in the working directory of its process.
        let wal_dir = wal_dir.map(Path::new).filter(|named| {
            let is_named = !named.as_os_str().is_empty();
            is_named && *named != home && !(named.is_relative() && home.ends_with(named))
        });
        let Some(named) = wal_dir else { return Ok(LogFiles { logs, left_out: None }) };
        if files.was_opened
            && let Some(other) = find_directory(env, named, home)?
            && other.logs.range(first..).any(|(number, _)| !files.logs.contains_key(number))
        {
            return Err(refuse(&other.directory, home));
        }
        let left_out = files.logs.is_empty().then(|| named.to_path_buf());
        Ok(LogFiles { logs, left_out })
    }
}

/// The directory of this name, if it exists. A relative one is looked for here, and in the
/// directories above `home`.
fn find_directory(env: &dyn Env, named: &Path, home: &Path) -> Result<Option<Files>> {
    for base in [Path::new("")].into_iter().chain(home.ancestors().skip(1)) {
        match Files::list(env, &base.join(named), Store::RocksDb) {
            Ok(files) => return Ok(Some(files)),
            Err(Error::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn refuse(other: &Path, home: &Path) -> Error {
    let (other, home) = (other.display(), home.display());
    let what = format!(
        "{other} has logs that are not in {home}, and OPTIONS names it as wal_dir; read them with \
         --wal-dir {other}, or leave them out with --wal-dir {home}"
    );
    Error::InvalidArgument { what }
}
