//! A database that appears whole: it is built in a directory next to its own, and renamed in the
//! end.
//!
//! A command that fails or is interrupted removes what it built. One that is killed leaves a
//! directory `.siftdb-import-...`, which can be removed.

use crate::failure::{Failure, Outcome};
use crate::interrupt::{on_interrupt, remove_whole};
use siftdb::env::{DiskEnv, Env};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A database that is being built.
pub struct NewDatabase {
    /// Where it is built.
    pub directory: PathBuf,
    /// Where it will be.
    target: PathBuf,
    /// The next directory above `target` that was there before.
    above: PathBuf,
    _parent: TempDir,
}

impl NewDatabase {
    /// A database that will be in `target`; `None` if there is something already.
    pub fn at(target: &Path) -> Outcome<Option<Self>> {
        let is_missing = |path: &Path| {
            DiskEnv::new().metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        if !is_missing(target) {
            return Ok(None);
        }
        let mut above = directories_above(target);
        let Some(above) = above.find(|path| !is_missing(path)).map(Path::to_path_buf) else {
            return Ok(None);
        };
        let parent = tempfile::Builder::new().prefix(".siftdb-import-").tempdir_in(&above);
        let parent = parent.map_err(|source| {
            Failure::unwritable(target, source, "name a place where files may be created")
        })?;
        let path = parent.path().to_path_buf();
        on_interrupt(move || remove_whole(&path))?;
        // The temporary directory is its owner's alone; the database need not be.
        let directory = parent.path().join("database");
        Ok(Some(NewDatabase { directory, target: target.into(), above, _parent: parent }))
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
        env.rename(&self.directory, &self.target).map_err(unwritable)?;
        // The new name, and those of new directories, survive a crash.
        for directory in directories_above(&self.target) {
            env.sync_dir(directory).map_err(unwritable)?;
            if directory == self.above {
                break;
            }
        }
        Ok(())
    }
}

/// The directories that contain `path`, from the nearest one up.
fn directories_above(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().skip(1).map(|above| match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    })
}
