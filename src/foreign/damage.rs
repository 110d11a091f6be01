//! What to do about damage: refuse the file, or note what is lost and go on.

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Mutex};
use crate::log::recovery::DroppedPart;
use std::path::Path;

/// What was found damaged so far. Clones share the list.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    goes_on: bool,
    parts: Arc<Mutex<Vec<DroppedPart>>>,
}

impl Damage {
    /// An empty list. With `goes_on`, damage is noted there and is no error.
    pub(crate) fn new(goes_on: bool) -> Self {
        Damage { goes_on, parts: Arc::default() }
    }

    /// Notes a part that is not read, whether damage is an error or not.
    pub(crate) fn note(&self, path: &Path, offset: u64, what: impl Into<String>) {
        self.parts.lock().push(DroppedPart { path: path.into(), offset, what: what.into() });
    }

    /// Notes `error`, if it is damage and reading is to go on.
    ///
    /// # Errors
    /// `error` itself, if not.
    pub(crate) fn pass(&self, error: Error) -> Result<()> {
        match error.damage().filter(|_| self.goes_on) {
            Some((path, offset, what)) => {
                self.note(path, offset, what);
                Ok(())
            }
            None => Err(error.of_other_store()),
        }
    }

    /// True if damage is no error.
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// What was noted.
    pub(crate) fn parts(&self) -> Vec<DroppedPart> {
        self.parts.lock().clone()
    }
}
