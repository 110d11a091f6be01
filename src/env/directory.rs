//! The directory of a database: its lock, the files in it that are ours, and `lost`.
//!
//! Called by everything that opens a directory: `db::open`, `repair`. A name that is not ours to
//! the letter is never looked at, and LOCK is never removed.
//!
//! [`keep_in_lost`] gives a file a second name in the folder `lost`, or a copy where there are no
//! second names, durably, before anything else is done about it. So at every moment the file has
//! its old name, the new one, or both, and what takes the old name away later (a sweep of orphans,
//! a repair) loses nothing.

use crate::base::error::{Error, Result};
use crate::base::filename::{FILE_NUMBER_MAX, FileName, parse};
use crate::base::sync::Arc;
use crate::env::api::{Env, FileKind, LockMode};
use crate::env::directory_lock::DirectoryLock;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// File numbers from here on are not believed when they stand in a foreign-made name or a
/// damaged file: as many are left above them.
pub const BELIEVED_MAX: u64 = FILE_NUMBER_MAX / 2;

/// The folder for what could not be used.
const LOST: &str = "lost";

/// How much of a file is copied at a time.
const COPY_STEP_BYTES: u64 = 1 << 20;

/// Takes LOCK, creating it if needed.
///
/// # Errors
/// `Locked` if someone else holds it.
pub fn lock_to_write(env: &dyn Env, directory: &Path) -> Result<Arc<DirectoryLock>> {
    DirectoryLock::take(env, &FileName::Lock.path(directory), LockMode::Exclusive)
}

/// Takes LOCK together with other readers. Where there is no such file, which this must not create,
/// nobody has ever written by this name of the directory, and someone who begins to can only make
/// reads fail: numbers of files are never used twice.
///
/// # Errors
/// `Locked` if a writer holds it.
pub fn lock_to_read(env: &dyn Env, directory: &Path) -> Result<Arc<DirectoryLock>> {
    let path = FileName::Lock.path(directory);
    match env.metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(DirectoryLock::of_nothing(&path)),
        Err(error) => Err(Error::io("lock", path, error)),
        Ok(_) => DirectoryLock::take(env, &path, LockMode::Shared),
    }
}

/// The files in the directory whose names are ours to the letter.
///
/// # Errors
/// The directory cannot be listed.
pub fn our_files(env: &dyn Env, directory: &Path) -> Result<Vec<FileName>> {
    let entries = env.list(directory).map_err(|error| Error::io("list", directory, error))?;
    Ok(entries.iter().filter_map(|entry| parse(&entry.name)).collect())
}

/// The first number that no file of these has, or had: numbers are never used again, not even
/// those of files that no manifest names.
#[must_use]
pub fn number_behind(files: &[FileName]) -> u64 {
    let taken = files.iter().filter_map(|name| name.number());
    taken.filter(|number| *number < BELIEVED_MAX).max().map_or(0, |last| last + 1)
}

/// Keeps each of the files in the folder `lost`, under its own name or, where that is taken, with
/// a number behind it; durable when this returns. Answers the new paths. Where a file or a link has
/// the folder's name, the folder is `lost.1`, or the next that is free.
///
/// # Errors
/// The folder cannot be made, or a file can neither be given a second name nor be copied. Then all
/// files still have their old names.
pub fn keep_in_lost(env: &dyn Env, directory: &Path, files: &[FileName]) -> Result<Vec<PathBuf>> {
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

/// The folder `lost`, made if it is not there.
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
        // A link is none, even one to a folder: what it leads to may be on another disk.
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
        let place = match copies {
            0 => lost.join(&*name),
            number => lost.join(format!("{name}.{number}")),
        };
        let is_file = env.metadata(path).is_ok_and(|metadata| metadata.kind == FileKind::File);
        let taken = env.metadata(&place).is_ok();
        let (op, kept) = match (taken, is_file) {
            (true, _) => ("hard_link", Err(ErrorKind::AlreadyExists.into())),
            (false, true) => ("hard_link", second_name(env, path, &place)),
            // A folder, link or device under a name of ours: nothing that a second name can have.
            (false, false) => ("rename", env.rename(path, &place)),
        };
        match kept {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => copies += 1,
            Err(error) => return Err(Error::io(op, path, error)),
            Ok(()) => return Ok(place),
        }
    }
}

/// Gives `path` a second name or, where files cannot have two, a copy under that name: the old name
/// must stay until something durable does without it.
fn second_name(env: &dyn Env, path: &Path, place: &Path) -> io::Result<()> {
    match env.hard_link(path, place) {
        Err(error)
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
        {
            let copied = copy(env, path, place);
            if copied.as_ref().is_err_and(|error| error.kind() != ErrorKind::AlreadyExists) {
                // Half a file would pass for the whole one.
                let _ = env.remove(place);
            }
            copied
        }
        result => result,
    }
}

/// A durable copy; its name is not durable yet.
fn copy(env: &dyn Env, path: &Path, place: &Path) -> io::Result<()> {
    let from = env.open_random(path)?;
    let bytes = from.len()?;
    let mut to = env.create_new(place)?;
    let (mut at, mut buffer) = (0, Vec::new());
    while at < bytes {
        buffer.resize((bytes - at).min(COPY_STEP_BYTES) as usize, 0);
        from.read_exact_at(at, &mut buffer)?;
        to.write_at(at, &buffer)?;
        at += buffer.len() as u64;
    }
    to.sync_all()
}
