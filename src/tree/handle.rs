//! An open table, as versions share it, and the list of files that nothing needs any more.
//!
//! A version holds its tables open through [`TableHandle`]s. The file of a replaced table is
//! removed after the last version that names the table is dropped (I9). That version may belong to
//! a reader, and a reader must not wait for the file system. So the drop only adds the file to
//! [`ObsoleteFiles`] and wakes the background, which removes it. The file of a table that is not
//! marked obsolete stays.

use crate::base::filename::FileName;
use crate::base::process::Process;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Wakeup};
use crate::table::reader::Table;
use crate::tree::file_meta::FileMeta;

/// Files that nothing needs any more and that wait to be removed.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteFiles {
    names: Mutex<Vec<FileName>>,
    /// Replaced tables that a version of some reader still has, and their bytes.
    tables_in_use: AtomicU64,
    bytes_in_use: AtomicU64,
    wakeup: Arc<Wakeup>,
    process: Process,
}

impl ObsoleteFiles {
    /// Adds files; wakes the background.
    pub(crate) fn add(&self, names: impl IntoIterator<Item = FileName>) {
        self.names.lock().extend(names);
        self.wakeup.wake();
    }

    /// Takes the names that came in since the last call.
    pub(crate) fn take(&self) -> Vec<FileName> {
        std::mem::take(&mut *self.names.lock())
    }

    /// How many replaced tables readers still have, and their bytes.
    pub(crate) fn in_use(&self) -> (u64, u64) {
        let figures = [&self.tables_in_use, &self.bytes_in_use];
        let [tables, bytes] = figures.map(|figure| figure.load(Ordering::Relaxed));
        (tables, bytes)
    }

    /// True if no file waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.lock().is_empty()
    }

    /// Woken when files come in.
    pub(crate) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }
}

/// An open table, as versions share it.
#[derive(Debug)]
pub(crate) struct TableHandle {
    /// The manifest's facts about it.
    pub meta: Arc<FileMeta>,
    pub table: Arc<Table>,
    obsolete: AtomicBool,
    files: Arc<ObsoleteFiles>,
}

impl TableHandle {
    /// A table that the next version names.
    #[must_use]
    pub(crate) fn new(
        meta: Arc<FileMeta>,
        table: Arc<Table>,
        files: &Arc<ObsoleteFiles>,
    ) -> Arc<Self> {
        let files = Arc::clone(files);
        Arc::new(TableHandle { meta, table, obsolete: AtomicBool::new(false), files })
    }

    /// The durable manifest no longer names this table: its file goes with its last version.
    pub(crate) fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.files.tables_in_use.fetch_add(1, Ordering::Relaxed);
            self.files.bytes_in_use.fetch_add(self.meta.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        // A forked child removes nothing.
        if self.obsolete.load(Ordering::Acquire) && self.files.process.is_current() {
            self.files.tables_in_use.fetch_sub(1, Ordering::Relaxed);
            self.files.bytes_in_use.fetch_sub(self.meta.bytes, Ordering::Relaxed);
            self.files.add([FileName::Table(self.meta.number)]);
        }
    }
}
