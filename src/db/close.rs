//! The end of a session.

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::jobs::obsolete::remove_files;
use crate::state::session;
use crate::state::shared::Shared;

/// The end of a session, after its workers: log synced and ended, counters saved, files that
/// nobody needs removed.
///
/// # Errors
/// The failure of the log, or the one that had made the database read-only.
pub fn finish(shared: &Shared) -> Result<()> {
    if let Some(cause) = shared.background_error.get() {
        return Err(Error::ReadOnly { cause: Arc::new(cause) });
    }
    if shared.read_only {
        return Ok(());
    }
    shared
        .check_lock()
        .and_then(|()| session::finish_log(shared))
        .map_err(|e| shared.set_background_error(e))?;
    shared.retired.lock().clear();
    remove_files(shared);
    shared.save_stats();
    Ok(())
}
