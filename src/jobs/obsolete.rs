//! Frees memtables and tables and removes files that nothing needs any more.
//!
//! [`ObsoleteFiles`](crate::tree::handle::ObsoleteFiles) lists them: replaced tables after the drop
//! of their last reader, and files of earlier sessions. A flush removes the logs of its memtables
//! itself.

use crate::base::events::event::Event;
use crate::base::filename::FileName;
use crate::base::sync::Arc;
use crate::state::catalog::Catalog;
use crate::state::engine::Engine;

/// Frees flushed memtables that no reader holds any more. Freeing one takes milliseconds, so a
/// worker does it after its job, not the reader that happens to be the last.
pub(crate) fn free_memtables(catalog: &Catalog) {
    let mut retired = catalog.retired.lock();
    // A count of 1 is final: readers clone from a view, and no view has the memtable any more.
    let unread: Vec<_> =
        retired.extract_if(.., |memtable| Arc::strong_count(memtable) == 1).collect();
    drop(retired);
    drop(unread);
}

/// Removes the files that wait for it, and frees their tables. A table is freed with its index and
/// the cached blocks that this refers to: thousands. After a failure they wait for `resume`.
pub(crate) fn remove_files(engine: &Engine) {
    if engine.jobs.background_error.is_set() {
        return;
    }
    let mut files = engine.catalog.obsolete.take().into_iter();
    while let Some((name, table)) = files.next() {
        if !remove(engine, name) {
            engine.catalog.obsolete.put_back(std::iter::once((name, table)).chain(files));
            return;
        }
        drop(table);
    }
}

/// Removes a file that nothing needs. If that fails, the next session removes it: the manifest of
/// that session does not name the file. False after a failure: the file stays.
pub(crate) fn remove(engine: &Engine, name: FileName) -> bool {
    // Under this lock no change of the manifest can fail between the check and the removal (I8).
    let versions = engine.catalog.versions.lock();
    if engine.jobs.background_error.is_set() || versions.manifest.failed.is_some() {
        return false;
    }
    debug_assert!(versions.is_obsolete(name), "I9: {name} is still needed");
    let path = name.path(&engine.context.directory);
    // Its size is asked for the listener only, and before it is gone.
    let is_told = engine.context.events.is_on() && matches!(name, FileName::Table(_));
    let metadata = if is_told { engine.context.env.metadata(&path).ok() } else { None };
    if engine.context.env.remove(&path).is_ok()
        && let Some(metadata) = metadata
    {
        engine.context.events.emit(|| Event::TableRemoved { path, bytes: metadata.bytes });
    }
    true
}
