//! The data that all nodes agree on: openraft's `RaftStateMachine`.
//!
//! Entries are applied in their order, several in one batch, and the batch says up to which entry:
//! so no crash applies an entry twice, nor leaves one out. The batch is not synced. Its entries are
//! durable in the log of a majority, and after a power loss they are applied again.

use crate::commands::Changes;
use crate::snapshot_directory::SnapshotDirectory;
use crate::snapshots::Snapshots;
use crate::storage::{Storage, to_json};
use crate::types::{
    Answer, Entry, LogId, Membership, Snapshot, SnapshotMeta, StorageError, TypeConfig,
};
use openraft::storage::RaftStateMachine;
use openraft::{
    EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder, ToStorageResult,
};
use siftdb::WriteBatch;
use std::io;
use std::sync::Arc;

/// The state machine of a node.
#[derive(Clone, Debug)]
pub struct StateMachine {
    storage: Arc<Storage>,
    snapshots: Arc<Snapshots>,
}

impl StateMachine {
    /// The state machine in this database.
    ///
    /// # Errors
    /// The failure of the database or of the directory of snapshots.
    pub fn open(storage: Arc<Storage>) -> io::Result<Self> {
        let snapshots = Arc::new(Snapshots::open(Arc::clone(&storage))?);
        Ok(StateMachine { storage, snapshots })
    }

    fn apply_all(&self, entries: impl IntoIterator<Item = Entry>) -> io::Result<Vec<Answer>> {
        let data = self.storage.data();
        let mut applied = self.storage.applied()?;
        let (mut changes, mut answers) = (Changes::new(&data), Vec::new());
        for entry in entries {
            applied.last = Some(entry.log_id);
            answers.push(match entry.payload {
                // The first entry of a leader, which has no contents.
                EntryPayload::Blank => Answer::Done,
                EntryPayload::Normal(command) => changes.run(command)?,
                EntryPayload::Membership(members) => {
                    applied.membership = Membership::new(Some(entry.log_id), members);
                    Answer::Done
                }
            });
        }
        let mut batch = WriteBatch::new();
        changes.add_to(&mut batch);
        batch.in_keyspace(&self.storage.applied).put("state", to_json(&applied)?);
        self.storage.db.write(batch)?;
        Ok(answers)
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let applied = self.storage.applied();
        let applied = applied.sto_res(|| (ErrorSubject::StateMachine, ErrorVerb::Read))?;
        Ok((applied.last, applied.membership))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Answer>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.apply_all(entries).sto_res(|| (ErrorSubject::StateMachine, ErrorVerb::Write))
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotDirectory>, StorageError> {
        let directory = self.snapshots.receiving();
        directory.map(Box::new).sto_res(|| (ErrorSubject::Snapshot(None), ErrorVerb::Write))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        received: Box<SnapshotDirectory>,
    ) -> Result<(), StorageError> {
        let (snapshots, of) = (Arc::clone(&self.snapshots), meta.clone());
        let installed = blocking(move || snapshots.install(of, *received)).await;
        if installed.is_err() {
            // Here and not in `install`, so that a panic counts too. A purge must not wait for
            // other snapshots now: they may be in a queue that openraft reads after the purge.
            self.storage.installs.send_modify(|installs| installs.failed = true);
        }
        installed.sto_res(|| (ErrorSubject::Snapshot(Some(meta.signature())), ErrorVerb::Write))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        Ok(self.snapshots.current())
    }
}

impl RaftSnapshotBuilder<TypeConfig> for StateMachine {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let snapshots = Arc::clone(&self.snapshots);
        let built = blocking(move || snapshots.build()).await;
        built.sto_res(|| (ErrorSubject::Snapshot(None), ErrorVerb::Write))
    }
}

/// Runs what waits for files on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
