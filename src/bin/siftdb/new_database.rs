//! A database that appears whole: it is built in a directory next to its own, and renamed in the
//! end.
//!
//! A command that fails or is interrupted removes what it built. One that is killed leaves a
//! directory `.siftdb-import-...`, which can be removed.
//!
//! A signal during the rename waits until it is done. The process then ends by the signal, and the
//! database is there as a whole.
//!
//! An empty directory is replaced, if the system lets it be. A mount point, for example, is not:
//! there the database is built in place.

use crate::failure::{Failure, Outcome};
use crate::interrupt::{on_interrupt, remove_whole, wait_if_interrupted};
use siftdb::env::{DiskEnv, Env};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// A database that is being built.
pub struct NewDatabase {
    /// Where it is built.
    pub directory: PathBuf,
    /// Where it will be.
    target: PathBuf,
    /// The next directory above `target` that was there before.
    above: PathBuf,
    state: Shared,
    parent: TempDir,
}

/// The state of the directory in which the database is built.
#[derive(PartialEq, Eq)]
enum State {
    Building,
    /// An interrupt removes it, or has removed it.
    Removed,
}

/// The clean-up holds it while it removes, `appear` while it renames: never both at once.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NewDatabase {
    /// A database that will be in `target`; `None` if there is something already, other than an
    /// empty directory that can be replaced.
    pub fn at(target: &Path) -> Outcome<Option<Self>> {
        let is_missing = |path: &Path| {
            DiskEnv::new().metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let is_there = !is_missing(target);
        if is_there && !is_empty_directory(target) {
            return Ok(None);
        }
        let mut above = directories_above(target);
        let Some(above) = above.find(|path| !is_missing(path)).map(Path::to_path_buf) else {
            return Ok(None);
        };
        let parent = tempfile::Builder::new().prefix(".siftdb-import-").tempdir_in(&above);
        let parent = match parent {
            Err(_) if is_there => return Ok(None),
            parent => parent.map_err(|source| {
                Failure::unwritable(target, source, "name a place where files may be created")
            })?,
        };
        // The temporary directory is its owner's alone; the database need not be.
        let directory = parent.path().join("database");
        if is_there && !is_replaceable(target, &directory) {
            return Ok(None);
        }
        let state = Shared(Arc::new(Mutex::new(State::Building)));
        let (path, shared) = (parent.path().to_path_buf(), state.clone());
        on_interrupt(move || {
            let mut state = shared.lock();
            // `appear` does nothing after this, however much could be removed.
            *state = State::Removed;
            remove_whole(&path);
        })?;
        Ok(Some(NewDatabase { directory, target: target.into(), above, state, parent }))
    }

    /// Puts the database, which is closed, where it belongs.
    pub fn appear(self) -> Outcome {
        let env = DiskEnv::new();
        let unwritable = |source| {
            let advice = "nothing was imported; name a place where nothing is";
            Failure::unwritable(&self.target, source, advice)
        };
        let missing: Vec<&Path> =
            directories_above(&self.target).take_while(|path| *path != self.above).collect();
        for directory in missing.into_iter().rev() {
            match env.create_dir(directory) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(unwritable(error));
                }
                _ => {}
            }
        }
        let state = self.state.lock();
        if *state == State::Removed {
            drop(state);
            // Does not return: the process is about to end by the signal.
            wait_if_interrupted();
            return Err(Failure::usage("interrupted; nothing was imported"));
        }
        if let Ok(permissions) = std::fs::metadata(&self.target).map(|found| found.permissions()) {
            std::fs::set_permissions(&self.directory, permissions).map_err(unwritable)?;
        }
        env.rename(&self.directory, &self.target).map_err(unwritable)?;
        drop(state);
        // The new name, and those of new directories, survive a crash.
        for directory in directories_above(&self.target) {
            env.sync_dir(directory).map_err(|source| self.unsynced(directory, source))?;
            if directory == self.above {
                break;
            }
        }
        // Empty by now. It goes before success is reported.
        drop(self.parent);
        Ok(())
    }

    /// A failure after the rename.
    fn unsynced(&self, directory: &Path, source: std::io::Error) -> Failure {
        let target = self.target.display();
        Failure::io(directory, source).with_advice(&format!(
            "the database is in {target}, but its name may not survive a crash; run `sync`"
        ))
    }
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
