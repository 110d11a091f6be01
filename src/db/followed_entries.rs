//! [`FollowedEntries`]: what a follower has read of the logs.
//!
//! A memtable has the entries of one log and keyspace. Earlier moments share it: entries that are
//! applied later have sequences that those do not see. It goes once the tables have all of its
//! entries. So the memtables of a keyspace always hold everything that is newer than its tables.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::Arc;
use crate::db::log_memory::LogMemory;
use crate::memtable::memtable::Memtable;
use crate::options::database::Options;
use crate::state::catalog::new_memtable;
use crate::state::engine::Engine;
use crate::state::read_view::{ImmutableMemtable, ReadView};
use crate::tree::manifest::ManifestState;
use std::collections::BTreeMap;
use std::path::Path;

/// The entries of the logs that a follower has read.
#[derive(Default)]
pub(super) struct FollowedEntries {
    /// Oldest first: one for each log and keyspace.
    memtables: Vec<LogMemtable>,
    pub memory: LogMemory,
    /// Everything up to this sequence was applied or is in tables.
    pub applied: SequenceNumber,
}

/// The entries that one log has of one keyspace.
struct LogMemtable {
    keyspace: KeyspaceId,
    log: u64,
    memtable: Arc<Memtable>,
    memory: LogMemory,
    last_sequence: SequenceNumber,
}

impl FollowedEntries {
    /// Lets go of memtables whose entries are in the tables of `state`, or whose keyspace was
    /// dropped. Earlier moments keep them.
    pub(super) fn drop_flushed(&mut self, state: &ManifestState) {
        self.memtables.retain(|full| {
            flushed_through(state, full.keyspace).is_some_and(|last| last < full.last_sequence)
        });
        self.memory = LogMemory::default();
        self.memtables.iter().for_each(|full| self.memory += full.memory);
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
        let mut ids = batch.runs().map(|(id, _, _)| id);
        if let Some(id) = ids.find(|id| u64::from(*id) >= state.next_keyspace) {
            let path = FileName::Wal(log).path(directory);
            let what = format!("an entry of keyspace {id}, which was never created");
            return Err(Error::corruption(path, 0, what));
        }
        let last = batch.last_sequence();
        // A new tail begins with entries that an older one has read.
        if last <= self.applied {
            return Ok(());
        }
        self.applied = last;
        let mut of_record = LogMemory::default();
        // The entries of dropped keyspaces are skipped.
        for (id, first, run) in batch.runs_after(|id| flushed_through(state, id)) {
            let memory = LogMemory::more(Memtable::bytes_of(run.clone()), of_record, options);
            of_record += memory;
            self.memory += memory;
            if self.memory.check(options, directory).is_ok() {
                let full = self.memtable_for(options, log, id);
                full.memtable.insert(first, run);
                full.memory += memory;
                full.last_sequence = last;
            }
        }
        Ok(())
    }

    fn memtable_for(
        &mut self,
        options: &Options,
        log: u64,
        keyspace: KeyspaceId,
    ) -> &mut LogMemtable {
        let fits = |full: &LogMemtable| (full.log, full.keyspace) == (log, keyspace);
        let place = self.memtables.iter().rposition(fits).unwrap_or_else(|| {
            let (memtable, memory) = (new_memtable(options), LogMemory::default());
            self.memtables.push(LogMemtable { keyspace, log, memtable, memory, last_sequence: 0 });
            self.memtables.len() - 1
        });
        &mut self.memtables[place]
    }

    /// Puts the memtables into the views of a moment that shows everything up to `sequence`.
    pub(super) fn show(&self, engine: &Engine, sequence: SequenceNumber) {
        let keyspaces = engine.catalog.keyspaces.lock();
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<ImmutableMemtable>> = BTreeMap::new();
        // Newest first, as views have them.
        for full in self.memtables.iter().rev() {
            by_keyspace.entry(full.keyspace).or_default().push(ImmutableMemtable {
                memtable: Arc::clone(&full.memtable),
                first_log: full.log,
                last_log: full.log,
                // Later entries are not part of this moment.
                last_sequence: full.last_sequence.min(sequence),
            });
        }
        for (id, immutables) in by_keyspace {
            if let Some(keyspace) = keyspaces.get(id) {
                keyspace.update_view(|view| ReadView { immutables, ..view.clone() });
            }
        }
    }
}

/// The last sequence of the keyspace that is in its tables; `None` if it was dropped.
fn flushed_through(state: &ManifestState, keyspace: KeyspaceId) -> Option<SequenceNumber> {
    let own = state.keyspaces.get(&keyspace)?.meta.flushed_through;
    // A recovery flushes all keyspaces and says it once.
    Some(own.max(state.facts.flushed_through))
}
