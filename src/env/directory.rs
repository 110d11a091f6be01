//! The directory of a database: its lock, the files of siftdb in it, and the folder `lost`.
//!
//! `db::open`, `checkpoint` and `repair` use it. Files whose names siftdb does not write are
//! ignored.
//!
//! [`keep_in_lost`] durably gives a file a second name in the folder `lost`, or a copy where the
//! file system has no hard links. At every moment the file has its old name, the new one, or both,
//! so removing the old name later loses nothing.

use crate::base::error::{Error, Result};
use crate::base::filename::{FILE_NUMBER_MAX, FileName, parse};
use crate::base::sync::Arc;
use crate::env::api::{Env, FileKind, LockMode, if_there};
use crate::env::directory_lock::DirectoryLock;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// File numbers from here on are ignored in file names and damaged files. siftdb never gets there,
/// and using such a number could leave no higher ones for new files.
pub(crate) const TRUSTED_NUMBER_MAX: u64 = FILE_NUMBER_MAX / 2;

/// The folder for files that could not be used.
const LOST: &str = "lost";

/// How much of a file is copied at a time.
const COPY_STEP_BYTES: u64 = 1 << 20;

/// Locks LOCK for a writer; creates it if needed.
///
/// # Errors
/// `Locked` if another handle or process holds it.
pub(crate) fn lock_to_write(env: &dyn Env, directory: &Path) -> Result<Arc<DirectoryLock>> {
    DirectoryLock::take(env, &FileName::Lock.path(directory), LockMode::Exclusive)
}

/// Locks LOCK for a reader, which other readers may do too. A reader must not create the file. If
/// it is missing, no writer has used the directory under this path. A writer that starts now can
/// make reads fail, but never make them wrong: file numbers are never reused.
///
/// # Errors
/// `Locked` if a writer holds it.
pub(crate) fn lock_to_read(env: &dyn Env, directory: &Path) -> Result<Arc<DirectoryLock>> {
    let path = FileName::Lock.path(directory);
    let there = if_there(env.metadata(&path));
    match there.map_err(|error| Error::io("lock", &path, error))? {
        None => Ok(DirectoryLock::of_nothing(&path)),
        Some(_) => DirectoryLock::take(env, &path, LockMode::Shared),
    }
}

/// Creates a directory with its missing ancestors, and makes their names durable.
pub(crate) fn create_directories(env: &dyn Env, directory: &Path) -> Result<()> {
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    let there = if_there(env.metadata(parent));
    if there.map_err(|error| Error::io("open", parent, error))?.is_none() {
        create_directories(env, parent)?;
    }
    match env.create_dir(directory) {
        // Another process may have been quicker; LOCK decides which one owns the database.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(Error::io("create_dir", directory, error));
        }
        _ => {}
    }
    env.sync_dir(parent).map_err(|error| Error::io("sync_dir", parent, error))
}

/// Makes the names of an existing directory and of its ancestors durable: whatever created them may
/// not have done so.
///
/// # Errors
/// The parent cannot be synced. This user may have no right to open ancestors further up.
pub(crate) fn sync_ancestors(env: &dyn Env, directory: &Path) -> Result<()> {
    for (distance, ancestor) in directory.ancestors().skip(1).enumerate() {
        let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        match env.sync_dir(ancestor) {
            Err(error) if distance == 0 => return Err(Error::io("sync_dir", ancestor, error)),
            _ => {}
        }
    }
    Ok(())
}

/// The files in the directory whose names siftdb writes.
///
/// # Errors
/// The directory cannot be listed.
pub(crate) fn our_files(env: &dyn Env, directory: &Path) -> Result<Vec<FileName>> {
    let entries = env.list(directory).map_err(|error| Error::io("list", directory, error))?;
    Ok(entries.iter().filter_map(|entry| parse(&entry.name)).collect())
}

/// The numbers of the logs among `files`, in order.
pub(crate) fn log_numbers<'a>(files: impl IntoIterator<Item = &'a FileName>) -> Vec<u64> {
    let number = |name: &FileName| match name {
        FileName::Wal(number) => Some(*number),
        _ => None,
    };
    let mut logs: Vec<u64> = files.into_iter().filter_map(number).collect();
    logs.sort_unstable();
    logs
}

/// The number after the highest one in `files`. Numbers are never reused, not even those of files
/// that no manifest names.
pub(crate) fn number_after(files: &[FileName]) -> u64 {
    let taken = files.iter().filter_map(|name| name.number());
    taken.filter(|number| *number < TRUSTED_NUMBER_MAX).max().map_or(0, |last| last + 1)
}

/// Keeps each file in the folder `lost`, under its own name or, if that is taken, with a number
/// appended; durable when this returns. Returns the new paths. If a file or a link has the name of
/// the folder, the folder is `lost.1`, or the next free name.
///
/// # Errors
/// The folder cannot be created, or a file can be neither linked nor copied. All files then still
/// have their old names.
pub(crate) fn keep_in_lost(
    env: &dyn Env,
    directory: &Path,
    files: &[FileName],
) -> Result<Vec<PathBuf>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let lost = lost_folder(env, directory)?;
    env.sync_dir(directory).map_err(|error| Error::io("sync_dir", directory, error))?;
    let mut kept = Vec::new();
    for name in files {
        kept.push(keep(env, &name.path(directory), &lost)?);
    }
    env.sync_dir(&lost).map_err(|error| Error::io("sync_dir", &lost, error))?;
    Ok(kept)
}

/// The folder `lost`; creates it if needed.
fn lost_folder(env: &dyn Env, directory: &Path) -> Result<PathBuf> {
    let mut others = 0;
    loop {
        let lost = match others {
            0 => directory.join(LOST),
            number => directory.join(format!("{LOST}.{number}")),
        };
        match env.create_dir(&lost) {
            Ok(()) => return Ok(lost),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io("create_dir", lost, error)),
        }
        // A link to a folder does not count: its target may be on another disk.
        match env.metadata(&lost) {
            Ok(found) if found.kind == FileKind::Directory => return Ok(lost),
            Ok(_) => others += 1,
            Err(error) => return Err(Error::io("metadata", lost, error)),
        }
    }
}

fn keep(env: &dyn Env, path: &Path, lost: &Path) -> Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut copies = 0;
    loop {
        let new_path = match copies {
            0 => lost.join(&*name),
            number => lost.join(format!("{name}.{number}")),
        };
        let is_file = env.metadata(path).is_ok_and(|metadata| metadata.kind == FileKind::File);
        let taken = env.metadata(&new_path).is_ok();
        let (op, kept) = match (taken, is_file) {
            (true, _) => ("hard_link", Err(ErrorKind::AlreadyExists.into())),
            (false, true) => ("hard_link", second_name(env, path, &new_path)),
            // A folder, link or device with a name of siftdb cannot have a second name.
            (false, false) => ("rename", env.rename(path, &new_path)),
        };
        match kept {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => copies += 1,
            Err(error) => return Err(Error::io(op, path, error)),
            Ok(()) => return Ok(new_path),
        }
    }
}

/// Gives `path` a second name, or a copy where that cannot be: across file systems, on those
/// without links, and beyond their number. The old name must stay until nothing durable needs it
/// any more. The new name is not durable yet.
pub(crate) fn second_name(env: &dyn Env, path: &Path, new_path: &Path) -> io::Result<()> {
    use ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    match env.hard_link(path, new_path) {
        Err(error)
            if matches!(
                error.kind(),
                CrossesDevices | PermissionDenied | TooManyLinks | Unsupported
            ) =>
        {
            let copied = copy(env, path, new_path);
            if copied.as_ref().is_err_and(|error| error.kind() != ErrorKind::AlreadyExists) {
                // A partial copy would look like a complete one.
                let _ = env.remove(new_path);
            }
            copied
        }
        result => result,
    }
}

/// Copies the contents durably; the name of the copy is not durable yet.
fn copy(env: &dyn Env, path: &Path, new_path: &Path) -> io::Result<()> {
    let from = env.open_random(path)?;
    let bytes = from.len()?;
    let mut to = env.create_new(new_path)?;
    let (mut at, mut buffer) = (0, Vec::new());
    while at < bytes {
        buffer.resize((bytes - at).min(COPY_STEP_BYTES) as usize, 0);
        from.read_exact_at(at, &mut buffer)?;
        to.write_at(at, &buffer)?;
        at += buffer.len() as u64;
    }
    to.sync_all()
}
