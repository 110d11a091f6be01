//! [`SnapshotDirectory`]: a checkpoint in a directory of its own, which is removed when the last
//! handle of it is gone, unless it is the current snapshot.
//!
//! A transfer to a slow node holds a handle, so a newer snapshot does not take its files away.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// A handle of the directory.
#[derive(Clone, Debug)]
pub struct SnapshotDirectory(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    path: PathBuf,
    /// True for the current snapshot, which outlives the process.
    keep: AtomicBool,
    /// Counts received snapshots that are neither installed nor thrown away.
    pending: Option<watch::Sender<usize>>,
}

impl SnapshotDirectory {
    /// The directory `path`, which this process builds or has found.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        SnapshotDirectory(Arc::new(Owned { path, keep: AtomicBool::new(false), pending: None }))
    }

    /// The directory `path`, for a snapshot from another node. It counts in `pending` until the
    /// last handle is gone.
    #[must_use]
    pub fn receiving(path: PathBuf, pending: &watch::Sender<usize>) -> Self {
        pending.send_modify(|count| *count += 1);
        let (keep, pending) = (AtomicBool::new(false), Some(pending.clone()));
        SnapshotDirectory(Arc::new(Owned { path, keep, pending }))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether it stays when the last handle is gone.
    pub fn set_keep(&self, yes: bool) {
        self.0.keep.store(yes, Ordering::SeqCst);
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.keep.load(Ordering::SeqCst) {
            // What cannot be removed now is removed at the next start.
            let _ = fs::remove_dir_all(&self.path);
        }
        if let Some(pending) = &self.pending {
            pending.send_modify(|count| *count -= 1);
        }
    }
}
