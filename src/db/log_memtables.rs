//! [`LogMemtables`]: memtables of entries that were read from logs, by recovery and by followers.
//!
//! A memtable has the entries of one log and keyspace. Who reads the logs decides which entries
//! are inserted: those that no table has.

use crate::base::batch_format::{BatchEntry, DecodedBatch};
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::Arc;
use crate::db::log_memory::LogMemory;
use crate::memtable::memtable::Memtable;
use crate::options::database::Options;
use crate::state::catalog::{Catalog, new_memtable};
use crate::state::read_view::{ImmutableMemtable, ReadView};
use std::collections::BTreeMap;
use std::path::Path;

/// Memtables of log entries, oldest first: one for each log and keyspace.
#[derive(Default)]
pub(super) struct LogMemtables(Vec<LogMemtable>);

/// The entries that one log has of one keyspace.
pub(super) struct LogMemtable {
    pub keyspace: KeyspaceId,
    pub log: u64,
    pub memtable: Arc<Memtable>,
    /// What its entries take.
    pub memory: LogMemory,
    /// The last sequence of its last batch.
    pub last_sequence: SequenceNumber,
}

/// Refuses an entry of a keyspace that was never created: those are below `next_keyspace`.
///
/// # Errors
/// `Corruption` of the log.
pub(super) fn refuse_unknown_keyspaces(
    batch: &DecodedBatch<'_>,
    next_keyspace: u64,
    directory: &Path,
    log: u64,
) -> Result<()> {
    let mut ids = batch.runs().map(|(id, _, _)| id);
    let Some(id) = ids.find(|id| u64::from(*id) >= next_keyspace) else { return Ok(()) };
    let path = FileName::Wal(log).path(directory);
    Err(Error::corruption(path, 0, format!("an entry of keyspace {id}, which was never created")))
}

impl LogMemtables {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The log of the oldest entries.
    pub(super) fn first_log(&self) -> Option<u64> {
        self.0.first().map(|oldest| oldest.log)
    }

    /// Inserts entries of a keyspace, from the sequence `first` on. Their batch ends with `last`.
    pub(super) fn insert<'b>(
        &mut self,
        options: &Options,
        log: u64,
        (keyspace, first, run): (
            KeyspaceId,
            SequenceNumber,
            impl Iterator<Item = BatchEntry<'b>> + Clone,
        ),
        last: SequenceNumber,
        memory: LogMemory,
    ) {
        let fits = |own: &LogMemtable| (own.log, own.keyspace) == (log, keyspace);
        let index = self.0.iter().rposition(fits).unwrap_or_else(|| {
            let (memtable, memory) = (new_memtable(options), LogMemory::default());
            self.0.push(LogMemtable { keyspace, log, memtable, memory, last_sequence: 0 });
            self.0.len() - 1
        });
        let own = &mut self.0[index];
        own.memtable.insert(first, run);
        own.memory += memory;
        own.last_sequence = last;
    }

    /// Drops the memtables that do not satisfy `keep`. Read views that show them go on.
    pub(super) fn retain(&mut self, keep: impl FnMut(&LogMemtable) -> bool) {
        self.0.retain(keep);
    }

    /// What the entries take.
    pub(super) fn memory(&self) -> LogMemory {
        self.0.iter().fold(LogMemory::default(), |mut sum, own| {
            sum += own.memory;
            sum
        })
    }

    /// Removes all memtables; returns those of each keyspace, oldest first.
    pub(super) fn take(&mut self) -> BTreeMap<KeyspaceId, Vec<Arc<Memtable>>> {
        let mut by_keyspace: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for own in self.0.drain(..) {
            by_keyspace.entry(own.keyspace).or_default().push(own.memtable);
        }
        by_keyspace
    }

    /// Puts the memtables into the read views of their keyspaces, for reads up to `sequence`.
    pub(super) fn show(&self, catalog: &Catalog, sequence: SequenceNumber) {
        let keyspaces = catalog.keyspaces.lock();
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<ImmutableMemtable>> = BTreeMap::new();
        // Newest first, as views have them.
        for own in self.0.iter().rev() {
            by_keyspace.entry(own.keyspace).or_default().push(ImmutableMemtable {
                memtable: Arc::clone(&own.memtable),
                first_log: own.log,
                last_log: own.log,
                // Later entries are invisible to these reads.
                last_sequence: own.last_sequence.min(sequence),
            });
        }
        for (id, immutables) in by_keyspace {
            if let Some(keyspace) = keyspaces.get(id) {
                keyspace.update_view(|view| ReadView { immutables, ..view.clone() });
            }
        }
    }
}
