//! [`FollowedEntries`]: what a follower has read of the logs.
//!
//! Earlier read points share the memtables: entries that are applied later have sequences that
//! those do not see. A memtable goes once the tables have all of its entries. So the memtables of a
//! keyspace always hold everything that is newer than its tables.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::Result;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::db::log_memory::LogMemory;
use crate::db::log_memtables::{LogMemtables, refuse_unknown_keyspaces};
use crate::memtable::memtable::Memtable;
use crate::options::database::Options;
use crate::tree::manifest_state::ManifestState;
use std::path::Path;

/// The entries of the logs that a follower has read.
#[derive(Default)]
pub(super) struct FollowedEntries {
    /// Entries that are newer than the tables.
    pub memtables: LogMemtables,
    pub memory: LogMemory,
    /// Everything up to this sequence was applied or is in tables.
    pub applied: SequenceNumber,
}

impl FollowedEntries {
    /// Drops memtables whose entries are in the tables of `state`, or whose keyspace was dropped.
    pub(super) fn drop_flushed(&mut self, state: &ManifestState) {
        self.memtables.retain(|own| {
            flushed_through(state, own.keyspace).is_some_and(|last| last < own.last_sequence)
        });
        self.memory = self.memtables.memory();
    }

    /// Applies a batch of `log`, unless it was applied before. If the entries take more memory than
    /// they may, the rest is only counted.
    ///
    /// # Errors
    /// `Corruption`: it has an entry of a keyspace that was never created, as far as `state` knows.
    pub(super) fn apply(
        &mut self,
        options: &Options,
        directory: &Path,
        state: &ManifestState,
        log: u64,
        batch: &DecodedBatch<'_>,
    ) -> Result<()> {
        refuse_unknown_keyspaces(batch, state.next_keyspace, directory, log)?;
        let last = batch.last_sequence();
        // A new tail begins with entries that an older one has read.
        if last <= self.applied {
            return Ok(());
        }
        self.applied = last;
        let mut of_record = LogMemory::default();
        // The entries of dropped keyspaces are skipped.
        for run in batch.runs_after(|id| flushed_through(state, id)) {
            let memory = LogMemory::more(Memtable::bytes_of(run.2.clone()), of_record, options);
            of_record += memory;
            self.memory += memory;
            if self.memory.check(options, directory).is_ok() {
                self.memtables.insert(options, log, run, last, memory);
            }
        }
        Ok(())
    }
}

/// The last sequence of the keyspace that is in its tables; `None` if it was dropped.
fn flushed_through(state: &ManifestState, keyspace: KeyspaceId) -> Option<SequenceNumber> {
    let own = state.keyspaces.get(&keyspace)?.meta.flushed_through;
    // A recovery flushes all keyspaces and says it once.
    Some(own.max(state.facts.flushed_through))
}
