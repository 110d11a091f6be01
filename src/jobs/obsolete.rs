//! Obsolete things: memtables that are in tables, and files that nothing names any more.

use crate::base::filename::FileName;
use crate::base::sync::Arc;
use crate::state::shared::Shared;

/// Frees flushed memtables that nobody reads any more. That takes milliseconds each: it is done
/// here, by a worker behind its job, not in the reader that happens to be the last.
pub fn free_memtables(shared: &Shared) {
    let mut retired = shared.retired.lock();
    let unread: Vec<_> =
        retired.extract_if(.., |memtable| Arc::strong_count(memtable) == 1).collect();
    drop(retired);
    drop(unread);
}

/// Removes the files of tables that no version names any more.
pub fn remove_tables(shared: &Shared) {
    for number in shared.graveyard.take() {
        remove(shared, FileName::Table(number));
    }
}

/// Removes what earlier sessions left behind: found when this session's manifest was in force.
pub fn remove_orphans(shared: &Shared) {
    let orphans = std::mem::take(&mut shared.jobs.lock().orphans);
    for name in orphans {
        remove(shared, name);
    }
}

/// Removes a file that nothing needs. If that fails, the file is an orphan, and the next session
/// sweeps it: its manifest does not name it.
pub fn remove(shared: &Shared, name: FileName) {
    // Under the lock no change of the manifest can fail in between (I8).
    let versions = shared.versions.lock();
    if !shared.failure.is_set() && !versions.has_failed() {
        let _ = shared.env.remove(&name.path(&shared.directory));
    }
}
