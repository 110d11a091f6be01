//! Frees memtables and removes files that nothing needs any more.
//!
//! [`ObsoleteFiles`](crate::tree::handle::ObsoleteFiles) lists them: replaced tables after the drop
//! of their last reader, and files of earlier sessions. A flush removes the logs of its memtables
//! itself.

use crate::base::events::event::Event;
use crate::base::filename::FileName;
use crate::base::sync::Arc;
use crate::state::shared::Shared;

/// Frees flushed memtables that no reader holds any more. Freeing one takes milliseconds, so a
/// worker does it after its job, not the reader that happens to be the last.
pub(crate) fn free_memtables(shared: &Shared) {
    let mut retired = shared.retired.lock();
    // A count of 1 is final: readers clone from a view, and no view has the memtable any more.
    let unread: Vec<_> =
        retired.extract_if(.., |memtable| Arc::strong_count(memtable) == 1).collect();
    drop(retired);
    drop(unread);
}

/// Removes the files that wait for it.
pub(crate) fn remove_files(shared: &Shared) {
    for name in shared.obsolete.take() {
        remove(shared, name);
    }
}

/// Removes a file that nothing needs. If that fails, the next session removes it: the manifest of
/// that session does not name the file.
pub(crate) fn remove(shared: &Shared, name: FileName) {
    // Under this lock no change of the manifest can fail between the check and the removal (I8).
    let versions = shared.versions.lock();
    if !shared.background_error.is_set() && !versions.has_failed() {
        debug_assert!(versions.is_obsolete(name), "I9: {name} is still needed");
        let path = name.path(&shared.directory);
        // Its size is asked for the listener only, and before it is gone.
        let is_told = shared.events.is_on() && matches!(name, FileName::Table(_));
        let metadata = if is_told { shared.env.metadata(&path).ok() } else { None };
        if shared.env.remove(&path).is_ok()
            && let Some(metadata) = metadata
        {
            shared.events.note(|| Event::TableRemoved { path, bytes: metadata.bytes });
        }
    }
}
