//! How damage is handled: as an error, or as a note of what is lost, after which reading continues.

use crate::error;
use parking_lot::Mutex;
use siftdb::{Error, Result};
use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part of a file that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// The start of the part, in bytes from the start of the file.
    pub offset: u64,
    /// Why it was not read.
    pub what: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

impl Loss {
    /// The same as an error.
    pub(crate) fn into_error(self) -> Error {
        error::corruption(&self.path, self.offset, self.what)
    }
}

/// The losses that are listed. Seven bytes of a log can be one: a list of all would take many times
/// the memory of the file.
pub(crate) const LOSSES_MAX: usize = 1 << 14;

/// The damage found so far. Clones share the list.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    /// True if damage is noted and is no error.
    pub is_noted: bool,
    losses: Arc<Mutex<Vec<Loss>>>,
}

impl Damage {
    /// An empty list. With `is_noted`, damage is noted in the list and is no error.
    pub(crate) fn new(is_noted: bool) -> Self {
        Damage { is_noted, losses: Arc::default() }
    }

    /// Notes a part that is not read, whether damage is an error or not.
    pub(crate) fn note(&self, path: &Path, offset: u64, what: impl Into<String>) {
        let mut losses = self.losses.lock();
        let what = match losses.len().cmp(&LOSSES_MAX) {
            Ordering::Less => what.into(),
            Ordering::Equal => "this part and those found after it are not listed".into(),
            Ordering::Greater => return,
        };
        losses.push(Loss { path: path.into(), offset, what });
    }

    /// Notes `error` if it is damage and damage is noted.
    ///
    /// # Errors
    /// `error` itself otherwise.
    pub(crate) fn pass(&self, error: Error) -> Result<()> {
        match error {
            Error::Corruption { path, offset, what, .. } if self.is_noted => {
                self.note(&path, offset, what);
            }
            Error::Missing { path, what } if self.is_noted => self.note(&path, 0, what),
            error => return Err(error),
        }
        Ok(())
    }

    /// The parts that were noted.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        self.losses.lock().clone()
    }
}
