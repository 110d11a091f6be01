//! [`OwnWrites`]: what a transaction has written and not committed, as a batch and as memtables.
//!
//! The batch is what a commit writes. Reads of the transaction need the same entries in order: a
//! memtable for each keyspace, which the first read after a write brings up to date. A transaction
//! that never reads after it has written has none.
//!
//! The entries are numbered from [`OWN_SEQUENCE_FIRST`] on, above everything in the database, in
//! the order of the batch. So a scan reads them as the newest source, and those that were there
//! when it began.

use crate::base::error::{Error, Result};
use crate::base::key::{KeyspaceId, Lookup, LookupKey, OWN_SEQUENCE_FIRST, SEQUENCE_MAX};
use crate::base::sync::Arc;
use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::base::value::Value;
use crate::base::write_batch::{BatchMark, WriteBatch};
use crate::memtable::memtable::Memtable;
use std::collections::BTreeMap;

/// A memtable of one segment and without filters: only its owner reads it.
const MEMTABLE_BYTES: usize = 1 << 20;

/// The writes of a transaction.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    batch: WriteBatch,
    /// The entries of the batch up to here are in the memtables.
    indexed: Indexed,
    memtables: BTreeMap<KeyspaceId, Arc<Memtable>>,
    /// Ascending by number.
    savepoints: Vec<(u64, BatchMark)>,
}

/// A part of the batch, from its begin.
#[derive(Debug, Default)]
struct Indexed {
    bytes: usize,
    count: usize,
}

impl OwnWrites {
    /// The batch, to be read or to be added to.
    pub(super) fn batch(&mut self) -> &mut WriteBatch {
        &mut self.batch
    }

    /// About how many bytes of memory they take.
    pub(super) fn bytes(&self) -> usize {
        let memtables = self.memtables.values().map(|memtable| memtable.bytes());
        let savepoints = self.savepoints.len() * size_of::<(u64, BatchMark)>();
        self.batch.bytes() + memtables.sum::<usize>() + savepoints
    }

    /// The value that they have of a key, or its deletion. `None` if the key was not written.
    /// `unexpired` makes the value of an expiring put of what is stored.
    pub(super) fn get(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        unexpired: impl FnOnce(Value) -> Option<Value>,
    ) -> Option<Option<Value>> {
        let memtable = self.memtable(keyspace)?;
        let lookup = LookupKey::new(key, SEQUENCE_MAX);
        let floor = memtable.covering(&lookup);
        match memtable.get(&lookup, None, floor) {
            Lookup::Found { stored, expires: false } => Some(Some(stored)),
            Lookup::Found { stored, expires: true } => Some(unexpired(stored)),
            Lookup::Deleted => Some(None),
            Lookup::Absent => (floor > 0).then_some(None),
        }
    }

    /// The writes to a keyspace, if there are any.
    pub(super) fn memtable(&mut self, keyspace: KeyspaceId) -> Option<&Arc<Memtable>> {
        self.index();
        self.memtables.get(&keyspace)
    }

    /// How many entries there are.
    pub(super) fn count(&self) -> u64 {
        self.batch.len() as u64
    }

    /// Brings the memtables up to date.
    fn index(&mut self) {
        let Indexed { bytes, count } = self.indexed;
        if count == self.batch.len() {
            return;
        }
        let rest = self.batch.rest(bytes, count, OWN_SEQUENCE_FIRST + count as u64);
        for (keyspace, first, run) in rest.runs() {
            let memtable = self
                .memtables
                .entry(keyspace)
                .or_insert_with(|| Arc::new(Memtable::new(MEMTABLE_BYTES, false)));
            memtable.insert(first, run);
        }
        self.indexed = Indexed { bytes: self.batch.entries().len(), count: self.batch.len() };
    }

    /// Notes the present end of the writes. Answers a number that no other savepoint of this
    /// process has.
    pub(super) fn savepoint(&mut self) -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.savepoints.push((number, self.batch.mark()));
        number
    }

    /// Takes back what was written after the savepoint, and all later savepoints.
    ///
    /// # Errors
    /// `InvalidArgument` for a savepoint of another transaction, and for one that was taken back.
    pub(super) fn rollback_to(&mut self, savepoint: u64) -> Result<()> {
        let Ok(place) = self.savepoints.binary_search_by_key(&savepoint, |(number, _)| *number)
        else {
            let what = "a savepoint of another transaction, or one that was rolled back";
            return Err(Error::InvalidArgument { what: what.into() });
        };
        self.savepoints.truncate(place + 1);
        self.batch.truncate(&self.savepoints[place].1);
        // Scans that are alive keep theirs.
        self.memtables.clear();
        self.indexed = Indexed::default();
        Ok(())
    }

    /// Takes the batch out, to be committed.
    pub(super) fn into_batch(self) -> WriteBatch {
        self.batch
    }
}
