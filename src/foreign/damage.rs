//! How damage is handled: as an error, or as a note of what is lost, after which reading continues.

use crate::base::error::{Error, Remedy, Result};
use crate::base::sync::{Arc, Mutex};
use crate::log::recovery::DroppedPart;
use std::path::Path;

/// The damage found so far. Clones share the list.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    is_noted: bool,
    parts: Arc<Mutex<Vec<DroppedPart>>>,
}

impl Damage {
    /// An empty list. With `is_noted`, damage is noted in the list and is no error.
    pub(crate) fn new(is_noted: bool) -> Self {
        Damage { is_noted, parts: Arc::default() }
    }

    /// Notes a part that is not read, whether damage is an error or not.
    pub(crate) fn note(&self, path: &Path, offset: u64, what: impl Into<String>) {
        self.parts.lock().push(DroppedPart { path: path.into(), offset, what: what.into() });
    }

    /// Notes `error` if it is damage and damage is noted.
    ///
    /// # Errors
    /// `error` itself otherwise.
    pub(crate) fn pass(&self, error: Error) -> Result<()> {
        match error.damage().filter(|_| self.is_noted) {
            Some((path, offset, what)) => {
                self.note(path, offset, what);
                Ok(())
            }
            None => Err(error.with_remedy(Remedy::OtherStore)),
        }
    }

    /// True if damage is noted and is no error.
    pub(crate) fn is_noted(&self) -> bool {
        self.is_noted
    }

    /// The parts that were noted.
    pub(crate) fn parts(&self) -> Vec<DroppedPart> {
        self.parts.lock().clone()
    }
}
