//! The replicated log, the vote and the pointers into the log: openraft's `RaftLogStorage`.
//!
//! Rules that openraft relies on, and what keeps them:
//!
//! | rule | kept by |
//! |---|---|
//! | an entry is acknowledged only when it is durable | the callback of `append` |
//! | a vote is durable before it is sent | `save_vote` waits |
//! | the log has no hole, not even after a crash | one batch or one range delete at a time |
//! | the log begins after the last entry purged | one batch writes both |
//! | nothing is purged that is not applied | `purge` waits for an install, and fails with it |

use crate::durable;
use crate::storage::{Storage, read_record, to_json};
use crate::types::{Entry, LogId, NodeId, StorageError, TypeConfig};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, ToStorageResult};
use openraft::{RaftLogId, Vote};
use siftdb::{WriteBatch, keys};
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

/// The log of a node. Clones read the same log while it is written: openraft has one for each
/// follower that it sends entries to.
#[derive(Clone, Debug)]
pub struct LogStore {
    storage: Arc<Storage>,
}

impl LogStore {
    /// The log in this database.
    #[must_use]
    pub fn new(storage: Arc<Storage>) -> Self {
        LogStore { storage }
    }

    fn entries(&self, range: &impl RangeBounds<u64>) -> io::Result<Vec<Entry>> {
        let key = |index: &u64| keys::encode(index);
        let bounds = (range.start_bound().map(key), range.end_bound().map(key));
        let entries = self.storage.log.range(bounds);
        entries.map(|entry| entry_of(&entry?.1)).collect()
    }

    fn state(&self) -> io::Result<LogState<TypeConfig>> {
        let purged = read_record(&self.storage.raft, "purged")?;
        // One step back from the end of the keyspace: the newest entry.
        let newest = self.storage.log.last()?;
        let last = newest.map(|(_, entry)| entry_of(&entry)).transpose()?;
        let last = last.map(|entry| entry.log_id).or(purged);
        Ok(LogState { last_purged_log_id: purged, last_log_id: last })
    }

    fn delete_upto(&self, last: LogId) -> io::Result<()> {
        let mut batch = WriteBatch::new();
        batch.in_keyspace(&self.storage.raft).put("purged", to_json(&last)?);
        batch.in_keyspace(&self.storage.log).delete_range(..=keys::encode(&last.index));
        Ok(self.storage.db.write(batch)?)
    }

    /// Waits while a snapshot with the entry `last` is being installed.
    async fn installed(&self, last: LogId) -> io::Result<()> {
        let mut installs = self.storage.installs.subscribe();
        loop {
            let (received, lost) = {
                let now = installs.borrow_and_update();
                (now.received, now.failed || now.pending == 0)
            };
            // Read after `pending`, which an install lowers after it has written what is applied.
            // Without a received snapshot, only openraft's test suite purges what is not applied.
            if self.storage.applied()?.last >= Some(last) || !received {
                return Ok(());
            }
            // The install failed, or the state machine stopped before it. After this purge the
            // node could never recover: the log would begin after entries that the data lacks.
            if lost {
                let what = format!("no snapshot up to {last} was installed: the log is kept");
                return Err(io::Error::other(what));
            }
            installs.changed().await.map_err(io::Error::other)?;
        }
    }
}

fn entry_of(json: &[u8]) -> io::Result<Entry> {
    Ok(serde_json::from_slice(json)?)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        self.entries(&range).sto_res(|| (ErrorSubject::Logs, ErrorVerb::Read))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        self.state().sto_res(|| (ErrorSubject::Logs, ErrorVerb::Read))
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<NodeId>) -> Result<(), StorageError> {
        let failed = || (ErrorSubject::Vote, ErrorVerb::Write);
        let mut batch = WriteBatch::new();
        batch.in_keyspace(&self.storage.raft).put("vote", to_json(vote).sto_res(failed)?);
        // A node that forgets its vote in a power loss could vote for two leaders of one term.
        durable::write(&self.storage.db, batch).await.sto_res(failed)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<NodeId>>, StorageError> {
        read_record(&self.storage.raft, "vote").sto_res(|| (ErrorSubject::Vote, ErrorVerb::Read))
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        // Not synced: an older one only means that the leader says again what is committed.
        let json = to_json(&committed);
        let saved = json.and_then(|json| Ok(self.storage.raft.put("committed", json)?));
        saved.sto_res(|| (ErrorSubject::Logs, ErrorVerb::Write))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let committed = read_record::<Option<LogId>>(&self.storage.raft, "committed");
        Ok(committed.sto_res(|| (ErrorSubject::Logs, ErrorVerb::Read))?.flatten())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let failed = || (ErrorSubject::Logs, ErrorVerb::Write);
        let mut batch = WriteBatch::new();
        for entry in entries {
            let key = keys::encode(&entry.get_log_id().index);
            batch.in_keyspace(&self.storage.log).put(key, to_json(&entry).sto_res(failed)?);
        }
        // Visible at return. The callback is what tells the leader that this node has the entries.
        let acknowledge = move |done| callback.log_io_completed(done);
        durable::write_then(&self.storage.db, batch, acknowledge).sto_res(failed)
    }

    async fn truncate(&mut self, from: LogId) -> Result<(), StorageError> {
        // Entries that another leader contradicts. Not synced: what is appended in their place is,
        // and a later write never survives without this one.
        let deleted = self.storage.log.delete_range(keys::encode(&from.index)..);
        let deleted = deleted.map_err(io::Error::from);
        deleted.sto_res(|| (ErrorSubject::Log(from), ErrorVerb::Delete))
    }

    async fn purge(&mut self, last: LogId) -> Result<(), StorageError> {
        // Openraft 0.9 starts the install of a snapshot and then purges the log without waiting
        // for it. A crash in between would leave a log that begins after a gap: the state machine
        // could never get there. So the purge waits.
        let installed = self.installed(last).await;
        let purged = installed.and_then(|()| self.delete_upto(last));
        purged.sto_res(|| (ErrorSubject::Log(last), ErrorVerb::Delete))
    }
}
