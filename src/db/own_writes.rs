//! [`OwnWrites`]: what a transaction has written and not committed, as a batch and as memtables.
//!
//! The batch is what a commit writes. Reads of the transaction need the same entries in order: in
//! memtables, which the first read after a write brings up to date. A transaction that never reads
//! after it has written has none.
//!
//! The memtables are in *layers*. Each has a piece of the batch, and a memtable for each keyspace.
//! Each savepoint ends a layer, so a rollback drops the layers after it and keeps the others. A
//! layer with less than twice the entries of the next ones is joined with them. So there are few
//! layers, and each entry is inserted a few times.
//!
//! The entries are numbered from [`OWN_SEQUENCE_FIRST`] on, above everything in the database, in
//! the order of the batch. So a scan reads them as the newest source, and those that were there
//! when it began.

use crate::base::error::{Error, Result};
use crate::base::key::{KeyspaceId, Lookup, LookupKey, OWN_SEQUENCE_FIRST, SEQUENCE_MAX};
use crate::base::sync::Arc;
use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::base::value::Value;
use crate::base::write_batch::{BatchMark, BatchPlace, WriteBatch};
use crate::memtable::memtable::Memtable;
use std::collections::BTreeMap;

/// A memtable of one segment and without filters: only its owner reads it.
const MEMTABLE_BYTES: usize = 1 << 20;

/// The writes of a transaction.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    /// What a commit writes.
    pub batch: WriteBatch,
    /// Pieces of the batch that follow each other, oldest first.
    layers: Vec<Layer>,
    /// Ascending by number.
    savepoints: Vec<(u64, BatchMark)>,
}

/// A piece of the batch.
#[derive(Debug)]
struct Layer {
    begin: BatchPlace,
    end: BatchPlace,
    memtables: BTreeMap<KeyspaceId, Arc<Memtable>>,
}

impl Layer {
    fn at(begin: BatchPlace) -> Self {
        Layer { begin, end: begin, memtables: BTreeMap::new() }
    }

    /// Inserts what follows in `batch`, up to `end`. A scan that is alive does not see it: it reads
    /// the entries that there were when it began.
    fn extend(&mut self, batch: &WriteBatch, end: BatchPlace) {
        let entries = batch.piece(self.end, end, OWN_SEQUENCE_FIRST + u64::from(self.end.count));
        for (keyspace, first, run) in entries.runs() {
            let new = || Arc::new(Memtable::new(MEMTABLE_BYTES, false));
            self.memtables.entry(keyspace).or_insert_with(new).insert(first, run);
        }
        self.end = end;
    }
}

impl OwnWrites {
    /// About how many bytes of memory they take.
    pub(super) fn bytes(&self) -> usize {
        let memtables = self.layers.iter().flat_map(|layer| layer.memtables.values());
        let memtables = memtables.map(|memtable| memtable.bytes());
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
        let lookup = LookupKey::new(key, SEQUENCE_MAX);
        for memtable in self.memtables(keyspace) {
            let floor = memtable.covering(&lookup);
            match memtable.get(&lookup, None, floor) {
                Lookup::Found { stored, expires: false } => return Some(Some(stored)),
                Lookup::Found { stored, expires: true } => return Some(unexpired(stored)),
                Lookup::Deleted => return Some(None),
                Lookup::Absent if floor > 0 => return Some(None),
                Lookup::Absent => {}
            }
        }
        None
    }

    /// The writes to a keyspace, newest first.
    pub(super) fn memtables(
        &mut self,
        keyspace: KeyspaceId,
    ) -> impl Iterator<Item = &Arc<Memtable>> {
        self.index();
        self.layers.iter().rev().filter_map(move |layer| layer.memtables.get(&keyspace))
    }

    /// The end of the last layer.
    fn indexed(&self) -> BatchPlace {
        self.layers.last().map_or(BatchPlace::default(), |layer| layer.end)
    }

    /// How many savepoints are not after the last layer.
    fn passed_savepoints(&self) -> usize {
        let indexed = self.indexed().count;
        self.savepoints.partition_point(|(_, mark)| mark.end.count <= indexed)
    }

    /// Brings the layers up to date.
    fn index(&mut self) {
        if self.indexed().count as usize == self.batch.len() {
            return;
        }
        for place in self.passed_savepoints()..self.savepoints.len() {
            self.index_through(self.savepoints[place].1.end);
        }
        self.index_through(self.batch.mark().end);
    }

    fn index_through(&mut self, end: BatchPlace) {
        let indexed = self.indexed();
        if indexed.count == end.count {
            return;
        }
        let savepoint = self.passed_savepoints().checked_sub(1);
        let kept = savepoint.map_or(0, |place| self.savepoints[place].1.end.count);
        // A rollback to that savepoint keeps the layers before it.
        if self.layers.last().is_none_or(|layer| layer.begin.count < kept) {
            self.join_layers();
            self.layers.push(Layer::at(indexed));
        }
        if let Some(last) = self.layers.last_mut() {
            last.extend(&self.batch, end);
        }
    }

    /// Joins the last layers, as long as the one before has less than twice their entries.
    fn join_layers(&mut self) {
        let Some(end) = self.layers.last().map(|layer| layer.end) else { return };
        let entries = |layer: &Layer| end.count - layer.begin.count;
        let mut first = self.layers.len() - 1;
        while first > 0 && entries(&self.layers[first - 1]) < 3 * entries(&self.layers[first]) {
            first -= 1;
        }
        if first + 1 < self.layers.len() {
            let mut joined = Layer::at(self.layers[first].begin);
            joined.extend(&self.batch, end);
            self.layers.truncate(first);
            self.layers.push(joined);
        }
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
        let mark = &self.savepoints[place].1;
        self.batch.truncate(mark);
        // Scans that are alive keep theirs.
        while self.layers.pop_if(|layer| layer.end.count > mark.end.count).is_some() {}
        Ok(())
    }
}
