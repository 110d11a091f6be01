//! Snapshots: what a node that is far behind gets instead of the log.
//!
//! A snapshot is a checkpoint of the keyspaces `applied` and `data.N` in `snapshots/NUMBER` below
//! the database. Its tables are links, so building it costs a flush, while entries are applied on.
//! The checkpoint is one moment of both keyspaces: the record `state` in it says which.
//!
//! The record `snapshot` names the current one. A directory that it does not name is the rest of a
//! build, a transfer or an install that a crash ended, and is removed at the next start.

use crate::log;
use crate::snapshot_directory::SnapshotDirectory;
use crate::storage::{Applied, Storage, read_record, to_json};
use crate::types::{Snapshot, SnapshotMeta};
use serde::{Deserialize, Serialize};
use siftdb::{Db, Options, WriteBatch, WriteOptions};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The record `snapshot`.
#[derive(Serialize, Deserialize)]
struct Current {
    meta: SnapshotMeta,
    /// The name of its directory.
    directory: String,
}

/// The snapshots of a node.
#[derive(Debug)]
pub struct Snapshots {
    storage: Arc<Storage>,
    directory: PathBuf,
    /// The name of the next directory.
    next: AtomicU64,
    current: Mutex<Option<Snapshot>>,
    /// Held while a snapshot is built or installed: one of them at a time.
    changing: Mutex<()>,
}

impl Snapshots {
    /// Finds the current snapshot and removes everything else.
    ///
    /// # Errors
    /// The failure of the database or of the directory.
    pub fn open(storage: Arc<Storage>) -> io::Result<Self> {
        let directory = storage.db.path().join("snapshots");
        let record = read_record::<Current>(&storage.raft, "snapshot")?;
        // Without its files it is no loss: openraft has another one built.
        let record = record.filter(|of| directory.join(&of.directory).join("CURRENT").exists());
        let keep = record.as_ref().map(|of| of.directory.clone());
        let newest = remove_others(&directory, keep.as_deref())?;
        let current = record.map(|of| {
            let found = SnapshotDirectory::new(directory.join(of.directory));
            found.set_keep(true);
            Snapshot { meta: of.meta, snapshot: Box::new(found) }
        });
        Ok(Snapshots {
            storage,
            directory,
            next: AtomicU64::new(newest + 1),
            current: Mutex::new(current),
            changing: Mutex::new(()),
        })
    }

    /// The current snapshot.
    pub fn current(&self) -> Option<Snapshot> {
        lock(&self.current).clone()
    }

    /// A directory for a snapshot that another node sends.
    ///
    /// # Errors
    /// The failure of the directory.
    pub fn receiving(&self) -> io::Result<SnapshotDirectory> {
        let path = self.next_path()?;
        fs::create_dir(&path)?;
        Ok(SnapshotDirectory::receiving(path, &self.storage.installs))
    }

    /// Makes a snapshot of what is applied by now, and makes it the current one.
    ///
    /// # Errors
    /// The failure of the database.
    pub fn build(&self) -> io::Result<Snapshot> {
        let _one = lock(&self.changing);
        let built = SnapshotDirectory::new(self.next_path()?);
        let keyspaces = ["applied", &self.storage.applied()?.data];
        self.storage.db.checkpoint_with(built.path(), &keyspaces)?;
        // Not what is applied now: more may have been since.
        let (_, state) = open_snapshot(built.path())?;
        let last = state.last.map_or_else(|| "none".into(), |last| last.to_string());
        let snapshot_id = format!("{last}.{}", name_of(built.path()));
        let (last_log_id, last_membership) = (state.last, state.membership);
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        let snapshot = self.set_current(WriteBatch::new(), meta, built)?;
        log::snapshot("built", &snapshot);
        Ok(snapshot)
    }

    /// Replaces all data by that of a snapshot from another node.
    ///
    /// Up to the write of step 3 a crash leaves the old data, and after it the new data.
    ///
    /// # Errors
    /// The failure of the database; a snapshot that is not what `meta` says.
    pub fn install(&self, meta: SnapshotMeta, received: SnapshotDirectory) -> io::Result<()> {
        let _one = lock(&self.changing);
        let (snapshot, state) = open_snapshot(received.path())?;
        if state.last != meta.last_log_id {
            let what = format!("the snapshot is of {:?}, not of {:?}", state.last, meta);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let db = &self.storage.db;
        // 1. Its entries as tables of a keyspace that nobody reads yet.
        let old = self.storage.data().name().to_string();
        let new = name_after(&old);
        if db.keyspaces().contains(&new) {
            db.drop_keyspace(&new)?;
        }
        let data = db.keyspace(&new)?;
        let entries = snapshot.keyspace(&state.data)?.iter();
        data.ingest(entries)?;
        // 2. Its directory as one of ours, by links.
        let ours = SnapshotDirectory::new(self.next_path()?);
        snapshot.checkpoint(ours.path())?;
        // 3. One write: from now on the data is there, up to this entry.
        let mut batch = WriteBatch::new();
        let applied = Applied { data: new, ..state };
        batch.in_keyspace(&self.storage.applied).put("state", to_json(&applied)?);
        log::snapshot("installed", &self.set_current(batch, meta, ours)?);
        // 4. Nobody reads the old data any more.
        self.storage.set_data(data);
        Ok(db.drop_keyspace(&old)?)
    }

    /// Writes the rest of `batch` and the record of the new snapshot, and lets the old one go.
    fn set_current(
        &self,
        mut batch: WriteBatch,
        meta: SnapshotMeta,
        new: SnapshotDirectory,
    ) -> io::Result<Snapshot> {
        let record = Current { meta: meta.clone(), directory: name_of(new.path()) };
        batch.in_keyspace(&self.storage.raft).put("snapshot", to_json(&record)?);
        // Durable before the directory of the old one is removed.
        let durable = WriteOptions::new().sync(true);
        self.storage.db.write_with(batch, &durable)?;
        new.set_keep(true);
        let snapshot = Snapshot { meta, snapshot: Box::new(new) };
        if let Some(old) = lock(&self.current).replace(snapshot.clone()) {
            old.snapshot.set_keep(false);
        }
        Ok(snapshot)
    }

    fn next_path(&self) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.directory)?;
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        Ok(self.directory.join(number.to_string()))
    }
}

/// Opens a checkpoint and reads where the state machine stood in it.
fn open_snapshot(path: &Path) -> io::Result<(Db, Applied)> {
    let db = Options::new().open_read_only(path)?;
    let applied = db.keyspace("applied")?;
    let state = read_record(&applied, "state")?.unwrap_or_default();
    Ok((db, state))
}

/// Removes all directories but `keep`. Answers the largest number that one had.
fn remove_others(directory: &Path, keep: Option<&str>) -> io::Result<u64> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut newest = 0;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        newest = newest.max(name.parse().unwrap_or(0));
        if keep != Some(&name) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(newest)
}

/// `data.8` after `data.7`.
fn name_after(data: &str) -> String {
    let number = data.strip_prefix("data.").and_then(|number| number.parse::<u64>().ok());
    format!("data.{}", number.unwrap_or(0) + 1)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
