//! An open table, as versions share it, and how its file goes.
//!
//! A version holds its tables open through [`TableHandle`]s. A table's file goes when the last
//! version that names it is dropped (I9): the handle's drop only puts the number into the
//! [`Graveyard`] and rings the background, which removes the file: whoever drops a version, a
//! reader perhaps, does no I/O. A handle that nobody marked obsolete leaves its
//! file alone.

use crate::base::process::Process;
use crate::base::sync::{Arc, AtomicBool, Bell, Mutex, Ordering};
use crate::table::reader::Table;
use crate::tree::edit::FileMeta;

/// Numbers of files that no version names any more, waiting to be removed.
#[derive(Debug, Default)]
pub struct Graveyard {
    numbers: Mutex<Vec<u64>>,
    bell: Arc<Bell>,
    process: Process,
}

impl Graveyard {
    /// Adds files that were made for an edit which is not in force.
    pub fn put(&self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.lock().extend(numbers);
    }

    /// Takes the numbers that came in since the last call.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.numbers.lock())
    }

    /// True if no number waits.
    pub fn is_empty(&self) -> bool {
        self.numbers.lock().is_empty()
    }

    /// Rings for each number that comes in.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

/// An open table, as versions share it.
#[derive(Debug)]
pub struct TableHandle {
    /// What the manifest says of it.
    pub meta: Arc<FileMeta>,
    /// The open table.
    pub table: Arc<Table>,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl TableHandle {
    /// A table that the next version names.
    #[must_use]
    pub fn new(meta: Arc<FileMeta>, table: Arc<Table>, graveyard: &Arc<Graveyard>) -> Arc<Self> {
        let graveyard = Arc::clone(graveyard);
        Arc::new(TableHandle { meta, table, obsolete: AtomicBool::new(false), graveyard })
    }

    /// The durable manifest no longer names this table: its file goes with its last version.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        // A forked child removes nothing.
        if self.obsolete.load(Ordering::Acquire) && self.graveyard.process.is_current() {
            self.graveyard.numbers.lock().push(self.meta.number);
            self.graveyard.bell.ring();
        }
    }
}
