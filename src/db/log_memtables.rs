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
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Memtables of log entries, oldest first: one for each log and keyspace.
#[derive(Default)]
pub(super) struct LogMemtables {
    all: Vec<LogMemtable>,
    /// Where each is, by log and keyspace.
    places: HashMap<(u64, KeyspaceId), usize>,
}

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
        self.all.is_empty()
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
        let place = *self.places.entry((log, keyspace)).or_insert_with(|| {
            let (memtable, memory) = (new_memtable(options), LogMemory::default());
            self.all.push(LogMemtable { keyspace, log, memtable, memory, last_sequence: 0 });
            self.all.len() - 1
        });
        let own = &mut self.all[place];
        own.memtable.insert(first, run);
        own.memory += memory;
        own.last_sequence = last;
    }

    /// Drops the memtables that do not satisfy `keep`. Read views that show them go on.
    pub(super) fn retain(&mut self, keep: impl FnMut(&LogMemtable) -> bool) {
        self.all.retain(keep);
        let places = self.all.iter().enumerate();
        self.places = places.map(|(place, own)| ((own.log, own.keyspace), place)).collect();
    }

    /// What the entries take.
    pub(super) fn memory(&self) -> LogMemory {
        self.all.iter().fold(LogMemory::default(), |mut sum, own| {
            sum += own.memory;
            sum
        })
    }

    /// Removes all memtables; returns those of each keyspace, oldest first.
    pub(super) fn take(&mut self) -> BTreeMap<KeyspaceId, Vec<Arc<Memtable>>> {
        let mut by_keyspace: BTreeMap<_, Vec<_>> = BTreeMap::new();
        self.places.clear();
        for own in self.all.drain(..) {
            by_keyspace.entry(own.keyspace).or_default().push(own.memtable);
        }
        by_keyspace
    }

    /// Puts the memtables into the read views of their keyspaces, for reads up to `sequence`.
    pub(super) fn show(&self, catalog: &Catalog, sequence: SequenceNumber) {
        let keyspaces = catalog.keyspaces.lock();
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<ImmutableMemtable>> = BTreeMap::new();
        // Newest first, as views have them.
        for own in self.all.iter().rev() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::write_batch::WriteBatch;
    use std::time::{Duration, Instant};

    /// Programs with a keyspace for each of thousands of customers write to one after another.
    #[test]
    fn an_entry_finds_its_memtable_without_asking_all() {
        let options = Options::new().write_buffer_bytes(64 << 10);
        let mut batch = WriteBatch::new();
        batch.put("k", "v");
        let time_of = |keyspaces: u32| -> Duration {
            let mut memtables = LogMemtables::default();
            let started = Instant::now();
            for n in 0..400_000 {
                let (sequence, memory) = (u64::from(n) + 1, LogMemory::default());
                let run = (n % keyspaces, sequence, batch.decoded(sequence).iter());
                memtables.insert(&options, 7, run, sequence, memory);
            }
            started.elapsed()
        };
        let few = (0..3).map(|_| time_of(10)).min().unwrap();
        let many = time_of(10_000);
        assert!(many < 6 * few, "{few:?} and {many:?}");
    }
}
