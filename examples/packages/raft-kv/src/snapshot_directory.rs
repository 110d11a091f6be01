//! [`SnapshotDirectory`]: a checkpoint in a directory of its own, which is removed when the last
//! handle of it is gone, unless it is the current snapshot.
//!
//! A transfer to a slow node holds a handle, so a newer snapshot does not take its files away.

use crate::storage::Installs;
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
    /// Where a received snapshot counts as pending.
    installs: Option<watch::Sender<Installs>>,
}

impl SnapshotDirectory {
    /// The directory `path`, which this process builds or has found.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        SnapshotDirectory(Arc::new(Owned { path, keep: AtomicBool::new(false), installs: None }))
    }

    /// The directory `path`, for a snapshot from another node. It is pending until the
    /// last handle is gone.
    #[must_use]
    pub fn receiving(path: PathBuf, installs: &watch::Sender<Installs>) -> Self {
        installs.send_modify(|installs| {
            installs.received = true;
            installs.pending += 1;
        });
        let (keep, installs) = (AtomicBool::new(false), Some(installs.clone()));
        SnapshotDirectory(Arc::new(Owned { path, keep, installs }))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The size of its files, without those that cannot be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let files = fs::read_dir(&self.0.path).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|of| of.len()).sum()
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
        if let Some(installs) = &self.installs {
            installs.send_modify(|installs| installs.pending -= 1);
        }
    }
}
