//! Removes a database: every file of it, while its lock is held.
//!
//! CURRENT goes first, so from then on the directory opens neither as the old database nor as a new
//! one; a removal that was cut short is repeated. LOCK goes last. The marker of an unfinished copy
//! goes after the files of the copy, so what is left of them is never taken for a damaged database.
//!
//! Only files that siftdb wrote by their contents are removed. Others stay, whatever their names
//! are, and so does the folder `lost`. A directory without a file of siftdb is not touched.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::env::api::{Env, if_there};
use crate::env::descriptor_retry::DescriptorRetryEnv;
use crate::env::directory::{lock_to_write, our_files};
use crate::env::foreign::{is_ours, refuse_foreign};
use crate::options::database::Options;
use crate::tree::current::read_current;
use std::path::Path;

/// Removes the database in `directory`; see `Options::destroy`.
///
/// # Errors
/// As `Options::destroy` says.
pub(crate) fn destroy(options: &Options, directory: &Path) -> Result<()> {
    let env = &*DescriptorRetryEnv::over(&options.env);
    let there = if_there(env.metadata(directory));
    if there.map_err(|error| Error::io("destroy", directory, error))?.is_none() {
        return Ok(());
    }
    refuse_foreign(env, directory)?;
    if own_files(env, directory)?.is_empty() {
        // An earlier call may have removed all files, and then failed or ended.
        return sync(env, directory);
    }
    let _lock = lock_to_write(env, directory)?;
    if matches!(read_current(env, directory), Err(Error::Unfinished { .. })) {
        remove_unfinished(env, directory)?;
    }
    let mut files = own_files(env, directory)?;
    files.sort_by_key(|name| match name {
        FileName::Current => 0,
        FileName::Lock => 2,
        _ => 1,
    });
    files.into_iter().try_for_each(|name| remove(env, directory, name))?;
    sync(env, directory)
}

/// Removes an unfinished copy, but for LOCK, which the caller holds. CURRENT, its marker, goes
/// after everything else is gone durably.
///
/// # Errors
/// `Io`: the marker is there still, unless its own removal failed.
pub(crate) fn remove_unfinished(env: &dyn Env, directory: &Path) -> Result<()> {
    let mut files = own_files(env, directory)?;
    files.retain(|name| !matches!(name, FileName::Current | FileName::Lock));
    files.into_iter().try_for_each(|name| remove(env, directory, name))?;
    sync(env, directory)?;
    let current = FileName::Current.path(directory);
    if_there(env.remove(&current)).map_err(|error| Error::io("remove", &current, error))?;
    sync(env, directory)
}

/// Removes a file of the directory.
pub(super) fn remove(env: &dyn Env, directory: &Path, name: FileName) -> Result<()> {
    let path = name.path(directory);
    env.remove(&path).map_err(|error| Error::io("remove", &path, error))
}

/// Makes the names in the directory durable.
pub(super) fn sync(env: &dyn Env, directory: &Path) -> Result<()> {
    env.sync_dir(directory).map_err(|error| Error::io("sync_dir", directory, error))
}

/// The files that siftdb wrote, by name and contents.
fn own_files(env: &dyn Env, directory: &Path) -> Result<Vec<FileName>> {
    let mut own = Vec::new();
    for name in our_files(env, directory)? {
        if is_ours(env, directory, name)? {
            own.push(name);
        }
    }
    Ok(own)
}
