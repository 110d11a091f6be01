//! An open table, as versions share it, and the list of files that nothing needs any more.
//!
//! A version holds its tables open through [`TableHandle`]s. The file of a replaced table is
//! removed after the last version that names the table is dropped (I9). That version may belong to
//! a reader, and a reader must not wait for the file system, nor for thousands of cached blocks
//! that are freed with their table. So the drop only adds file and table to [`ObsoleteFiles`] and
//! wakes the background, which removes them. The file of a table that is not marked obsolete stays.

use crate::base::filename::FileName;
use crate::base::process::Process;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Wakeup};
use crate::table::reader::Table;
use crate::tree::file_meta::FileMeta;

/// A file that nothing needs any more, and the table that was read from it.
pub(crate) type ObsoleteFile = (FileName, Option<Arc<Table>>);

/// Files that nothing needs any more and that wait to be removed.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteFiles {
    files: Mutex<Vec<ObsoleteFile>>,
    /// Replaced tables that a version of some reader still has, and their bytes.
    tables_in_use: AtomicU64,
    bytes_in_use: AtomicU64,
    /// Woken when files come in.
    pub wakeup: Arc<Wakeup>,
    process: Process,
}

impl ObsoleteFiles {
    /// Adds files; wakes the background.
    pub(crate) fn add(&self, names: impl IntoIterator<Item = FileName>) {
        self.files.lock().extend(names.into_iter().map(|name| (name, None)));
        self.wakeup.wake();
    }

    fn add_table(&self, number: u64, table: Arc<Table>) {
        self.files.lock().push((FileName::Table(number), Some(table)));
        self.wakeup.wake();
    }

    /// Adds files that were taken and must wait; wakes nobody.
    pub(crate) fn put_back(&self, files: impl IntoIterator<Item = ObsoleteFile>) {
        self.files.lock().extend(files);
    }

    /// Takes the files that came in since the last call.
    pub(crate) fn take(&self) -> Vec<ObsoleteFile> {
        std::mem::take(&mut *self.files.lock())
    }

    /// How many replaced tables readers still have, and their bytes.
    pub(crate) fn in_use(&self) -> (u64, u64) {
        let figures = [&self.tables_in_use, &self.bytes_in_use];
        let [tables, bytes] = figures.map(|figure| figure.load(Ordering::Relaxed));
        (tables, bytes)
    }

    /// True if no file waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
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
            self.files.add_table(self.meta.number, Arc::clone(&self.table));
        }
    }
}
