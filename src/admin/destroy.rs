//! Removes a database: every file of it, while its lock is held.
//!
//! CURRENT goes first, so from then on the directory opens neither as the old database nor as a new
//! one; a removal that was cut short is repeated. LOCK goes last. Files that siftdb does not write,
//! and the folder `lost`, stay.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::env::descriptor_retry::DescriptorRetryEnv;
use crate::env::directory::{lock_to_write, our_files};
use crate::env::foreign::refuse_foreign;
use crate::options::database::Options;
use std::io::ErrorKind;
use std::path::Path;

/// Removes the database in `directory`; see `Options::destroy`.
///
/// # Errors
/// As `Options::destroy` says.
pub(crate) fn destroy(options: &Options, directory: &Path) -> Result<()> {
    let env = &*DescriptorRetryEnv::over(&options.env);
    match env.metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| Error::io("destroy", directory, error))?,
    };
    refuse_foreign(env, directory)?;
    let _lock = lock_to_write(env, directory)?;
    let mut files = our_files(env, directory)?;
    // The lock may have been created just now.
    files.retain(|name| *name != FileName::Lock);
    files.sort_by_key(|name| *name != FileName::Current);
    for name in files.into_iter().chain([FileName::Lock]) {
        let path = name.path(directory);
        env.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
    }
    env.sync_dir(directory).map_err(|error| Error::io("sync_dir", directory, error))
}
