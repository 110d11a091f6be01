//! `CURRENT` of LevelDB and RocksDB: the name of the manifest.

use crate::error;
use crate::file;
use crate::log::LogReader;
use crate::store::Store;
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// More than the name of a manifest takes.
const CURRENT_BYTES_MAX: u64 = 64;

/// The bytes in front of each file that an `Env` of RocksDB encrypts.
const ENCRYPTION_PREFIX_BYTES: u64 = 4096;

/// Reads `CURRENT`.
///
/// # Errors
/// `Io`; `Corruption` if it is too long for the name of a manifest; `UnsupportedFormat` if it is as
/// long as an encrypted one.
pub(crate) fn read_current(env: &dyn Env, directory: &Path) -> Result<Vec<u8>> {
    let path = directory.join("CURRENT");
    let (file, bytes) = file::open(env, &path)?;
    if bytes > ENCRYPTION_PREFIX_BYTES {
        let what = format!(
            "it has {bytes} bytes: files that an encrypting `Env` wrote are not read; make a \
             copy without encryption in RocksDB"
        );
        return Err(error::unsupported(&path, what));
    }
    file::read_whole(&*file, &path, bytes, CURRENT_BYTES_MAX)
}

/// Opens the manifest that `CURRENT` names.
///
/// # Errors
/// `Io` if there is no `CURRENT`; `Corruption`.
pub(crate) fn open_manifest(
    env: &dyn Env,
    directory: &Path,
    store: Store,
) -> Result<(PathBuf, LogReader)> {
    let current = directory.join("CURRENT");
    let contents = read_current(env, directory)?;
    let name = std::str::from_utf8(&contents).ok().and_then(|text| text.strip_suffix('\n'));
    let number = name.and_then(|name| name.strip_prefix("MANIFEST-"));
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some(number) = number.filter(is_number) else {
        return Err(error::corruption(&current, 0, "it does not name a manifest"));
    };
    let path = directory.join(format!("MANIFEST-{number}"));
    match LogReader::open(env, &path, store, 0) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let what = format!("it names MANIFEST-{number}, which is not there");
            Err(error::corruption(&current, 0, what))
        }
        opened => Ok((path, opened?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb::env::MemEnv;

    #[test]
    fn a_long_current_is_refused_unread() {
        let env = MemEnv::new();
        for (bytes, words) in [(64, None), (65, Some("at most 64")), (5000, Some("encrypting"))] {
            env.write_file(Path::new("/old/CURRENT"), &vec![b'a'; bytes]);
            let read = read_current(&env, Path::new("/old")).map_err(|error| error.to_string());
            match (read, words) {
                (Ok(contents), None) => assert_eq!(contents.len(), bytes),
                (Err(said), Some(words)) => assert!(said.contains(words), "{said}"),
                (read, _) => panic!("{bytes}: {read:?}"),
            }
        }
    }
}
