//! A database that appears whole: it is built in a directory of its own, and put in its place in
//! the end.
//!
//! That is a rename of the directory, also over an empty one if the system allows that. In other
//! directories without a database, such as a mount point or the current one, the end is a
//! checkpoint: its tables are links, and until they are complete the directory is marked as
//! unfinished. The next import begins again there.
//!
//! A command that fails or is interrupted removes what it built. One that is killed leaves a
//! directory `.siftdb-import-...`, which the next import into the same directory removes: its
//! `LOCK` is locked as long as the command runs.
//!
//! A signal during the last step waits until it is done. The process then ends by the signal, and
//! the database is there as a whole.

use crate::args::options;
use crate::failure::{Failure, Outcome};
use crate::interrupt::{Uninterrupted, remove_whole};
use crate::output::note;
use siftdb::env::{DiskEnv, Env, FileKind, FileLock, LockMode};
use siftdb::{Error, inspect};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A database that is being built.
pub struct NewDatabase {
    /// Where it is built.
    pub directory: PathBuf,
    /// Where it will be.
    target: PathBuf,
    /// The next directory above `target` that was there before. `None` if `target` stays, and gets
    /// the files of the database.
    above: Option<PathBuf>,
    parent: TempDir,
    /// Shows other imports that this one runs.
    _lock: Box<dyn FileLock>,
}

/// How the directory begins in which a database is built.
const PREFIX: &str = ".siftdb-import-";

impl NewDatabase {
    /// A database that will be in `target`; `None` if one is there already, or something that
    /// opening it names. Removes what killed imports left.
    pub fn at(target: &Path) -> Outcome<Option<Self>> {
        let is_missing = |path: &Path| {
            DiskEnv::new().metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let is_there = !is_missing(target);
        if is_there {
            remove_left(target);
            if has_database(target) {
                return Ok(None);
            }
        }
        let mut above = directories_above(target);
        let above = above.find(|path| !is_missing(path)).map(Path::to_path_buf);
        if let Some(above) = above.filter(|_| !is_there || is_empty_directory(target)) {
            remove_left(&above);
            match locked_directory(&above)? {
                Ok((parent, lock)) => {
                    // The temporary directory is its owner's alone; the database need not be.
                    let probe = parent.path().join("database");
                    if !is_there || is_replaceable(target, &probe) {
                        return Ok(Some(Self::build(target, Some(above), parent, lock)));
                    }
                }
                Err(source) if !is_there => return Err(Self::refused(target, source)),
                Err(_) => {}
            }
        }
        let made = locked_directory(target)?;
        let (parent, lock) = made.map_err(|source| Self::refused(target, source))?;
        Ok(Some(Self::build(target, None, parent, lock)))
    }

    fn refused(target: &Path, source: std::io::Error) -> Failure {
        Failure::unwritable(target, source, "name a place where files may be created")
    }

    fn build(
        target: &Path,
        above: Option<PathBuf>,
        parent: TempDir,
        lock: Box<dyn FileLock>,
    ) -> Self {
        let directory = parent.path().join("database");
        NewDatabase { directory, target: target.into(), above, parent, _lock: lock }
    }

    /// Puts the database, which is closed, where it belongs.
    pub fn appear(self) -> Outcome {
        if let Some(above) = &self.above {
            make_directories(&self.target, above).map_err(|source| self.not_there(source))?;
        }
        let uninterrupted = Uninterrupted::begin()?;
        match &self.above {
            Some(_) => self.rename().map_err(|source| self.not_there(source))?,
            None => {
                let built = options().open_read_only(&self.directory);
                let made = built.and_then(|built| built.checkpoint(&self.target));
                made.map_err(|e| Failure::from(e).with_place(&self.directory, &self.target))?;
            }
        }
        drop(uninterrupted);
        // The new name, and those of new directories, survive a crash.
        if let Some(above) = &self.above {
            for directory in directories_above(&self.target) {
                let synced = DiskEnv::new().sync_dir(directory);
                synced.map_err(|source| self.unsynced(directory, source))?;
                if directory == above {
                    break;
                }
            }
        }
        // It goes before success is reported.
        drop(self.parent);
        Ok(())
    }

    fn rename(&self) -> std::io::Result<()> {
        if let Ok(permissions) = std::fs::metadata(&self.target).map(|found| found.permissions()) {
            std::fs::set_permissions(&self.directory, permissions)?;
        }
        DiskEnv::new().rename(&self.directory, &self.target)
    }

    fn not_there(&self, source: std::io::Error) -> Failure {
        let advice = "nothing was imported; name a place where nothing is";
        Failure::unwritable(&self.target, source, advice)
    }

    /// A failure after the rename.
    fn unsynced(&self, directory: &Path, source: std::io::Error) -> Failure {
        let target = self.target.display();
        Failure::io(directory, source).with_advice(&format!(
            "the database is in {target}, but its name may not survive a crash; run `sync`"
        ))
    }
}

/// Creates the directories that contain `path`, up to `above`, which is there.
fn make_directories(path: &Path, above: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = directories_above(path).take_while(|path| *path != above).collect();
    for directory in missing.into_iter().rev() {
        match DiskEnv::new().create_dir(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// A directory with the lock on its file `LOCK`.
type LockedDirectory = (TempDir, Box<dyn FileLock>);

/// A new directory in `above` with a file `LOCK` that is locked. Another import may take one that
/// is not locked yet for one that was left, and remove it.
fn locked_directory(above: &Path) -> Outcome<std::io::Result<LockedDirectory>> {
    let mut uninterrupted = Uninterrupted::begin()?;
    let made = try_locked_directory(above);
    if let Ok((directory, _)) = &made {
        let path = directory.path().to_path_buf();
        uninterrupted.on_interrupt(move || remove_whole(&path));
    }
    Ok(made)
}

fn try_locked_directory(above: &Path) -> std::io::Result<LockedDirectory> {
    let env = DiskEnv::new();
    // As errors of the database name it.
    let above = std::path::absolute(above)?;
    loop {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&above)?;
        let path = directory.path().join("LOCK");
        let locked = env.lock(&path, LockMode::Exclusive).and_then(|lock| {
            let is_named = env.metadata(&path)?.id == lock.id()?;
            Ok(is_named.then_some(lock))
        });
        match locked {
            Ok(Some(lock)) => return Ok((directory, lock)),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock) => {
                return Err(error);
            }
            _ => {}
        }
    }
}

/// Removes what killed imports left in `directory`. Imports of siftdb 0.1.0 had no lock: what one
/// of them left, or still uses, is named.
fn remove_left(directory: &Path) {
    let env = DiskEnv::new();
    let listed = env.list(directory).unwrap_or_default();
    let is_left = |name: &str| name.starts_with(PREFIX);
    for entry in listed.iter().filter(|e| e.kind == FileKind::Directory && is_left(&e.name)) {
        let left = directory.join(&entry.name);
        let lock = left.join("LOCK");
        // An empty one has no lock yet, or not any more.
        if std::fs::remove_dir(&left).is_ok() {
            continue;
        }
        if env.metadata(&lock).is_ok() {
            if let Ok(_locked) = env.lock(&lock, LockMode::Exclusive) {
                remove_whole(&left);
            }
        } else if env.list(&left).is_ok_and(|files| !files.is_empty()) {
            note(&format!("{} was left by an import: remove it if none runs", left.display()));
        }
    }
}

/// Whether a database is in `target`, or something that opening it names. Half of a copy is none.
fn has_database(target: &Path) -> bool {
    let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
    !matches!(inspect::live_tables(&env, target), Ok(None) | Err(Error::Unfinished { .. }))
}

/// Whether `target` is an empty directory, and neither a link to one nor the current one. A shell
/// in a directory that is replaced would see the old one.
fn is_empty_directory(target: &Path) -> bool {
    let is_current = || match (std::env::current_dir(), target.canonicalize()) {
        (Ok(current), Ok(target)) => current.starts_with(target),
        _ => true,
    };
    target.file_name().is_some()
        && std::fs::symlink_metadata(target).is_ok_and(|found| found.is_dir())
        && DiskEnv::new().list(target).is_ok_and(|names| names.is_empty())
        && !is_current()
}

/// Whether a new directory can take the place of the empty directory `target`. Tried with an empty
/// one called `probe`, of the same owner and permissions, so the answer comes before the work.
fn is_replaceable(target: &Path, probe: &Path) -> bool {
    let env = DiskEnv::new();
    let replace = || -> std::io::Result<bool> {
        env.create_dir(probe)?;
        let (old, new) = (std::fs::metadata(target)?, std::fs::metadata(probe)?);
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            return Ok(false);
        }
        std::fs::set_permissions(probe, old.permissions())?;
        env.rename(probe, target)?;
        Ok(true)
    };
    replace().unwrap_or(false)
}

/// The directories that contain `path`, from the nearest one up.
fn directories_above(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().skip(1).map(|above| match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    })
}
