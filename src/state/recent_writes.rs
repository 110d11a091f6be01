//! [`RecentWrites`]: which keys and ranges the last write groups wrote, so that the leader of the
//! write queue can check a transaction without reading a file.
//!
//! The list has every write above one sequence and up to another one, in order, in a bounded number
//! of bytes: the oldest go first. Groups are noted only while transactions are alive. A group that
//! does not follow the last one noted, because others came between, begins a new list.

use crate::base::batch_format::{BatchEntry, DecodedBatch, WriteKind};
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::{AtomicUsize, Ordering, plain};
use crate::base::value::Key;
use crate::state::lock_rank::{LockRank, RankedGuard, RankedMutex};
use crate::state::read_set::ReadSet;
use std::collections::VecDeque;

/// The bytes that the list may take.
pub(crate) fn recent_write_bytes_max(write_buffer_bytes: usize) -> usize {
    write_buffer_bytes / 8
}

/// The last writes, and how many transactions may ask for them.
#[derive(Debug)]
pub(crate) struct RecentWrites {
    transactions: AtomicUsize,
    /// Bytes of what these have written and read.
    transaction_bytes: plain::AtomicU64,
    list: RankedMutex<RecentList>,
}

impl Default for RecentWrites {
    fn default() -> Self {
        let list = RankedMutex::new(LockRank::RecentWrites, RecentList::default());
        let transaction_bytes = plain::AtomicU64::new(0);
        RecentWrites { transactions: AtomicUsize::new(0), transaction_bytes, list }
    }
}

impl RecentWrites {
    /// A transaction begins, before it takes its snapshot.
    pub(crate) fn begin_transaction(&self) {
        self.transactions.fetch_add(1, Ordering::SeqCst);
    }

    /// A transaction has ended.
    pub(crate) fn end_transaction(&self) {
        if self.transactions.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.list.lock().clear();
        }
    }

    /// Transactions that are alive.
    pub(crate) fn transactions(&self) -> usize {
        self.transactions.load(Ordering::SeqCst)
    }

    /// What one of them takes has changed.
    pub(crate) fn note_transaction_bytes(&self, before: u64, now: u64) {
        // A difference below zero wraps around, as the sum does.
        self.transaction_bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Bytes of what they have written and read.
    pub(crate) fn transaction_bytes(&self) -> u64 {
        self.transaction_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn list(&self) -> RankedGuard<'_, RecentList> {
        self.list.lock()
    }
}

/// The writes of the last groups.
#[derive(Debug, Default)]
pub(crate) struct RecentList {
    /// All writes above this sequence are here,
    after: SequenceNumber,
    /// up to this one.
    through: SequenceNumber,
    /// Ascending by sequence.
    writes: VecDeque<RecentWrite>,
    pub bytes: usize,
}

/// One entry of a batch, without its value.
#[derive(Debug)]
struct RecentWrite {
    sequence: SequenceNumber,
    keyspace: KeyspaceId,
    /// The key; the first one of a range.
    key: Key,
    /// Of a range delete the key after the range; `None` if it has no end.
    range: Option<Option<Box<[u8]>>>,
}

impl RecentWrite {
    fn new(sequence: SequenceNumber, entry: &BatchEntry<'_>) -> Self {
        let range = match entry.kind {
            WriteKind::DeleteRange => Some(entry.range_end().map(Box::from)),
            WriteKind::Delete | WriteKind::Put | WriteKind::PutExpiring => None,
        };
        RecentWrite { sequence, keyspace: entry.keyspace, key: Key::from(entry.key), range }
    }

    /// A key that `reads` has and this entry writes.
    fn conflict(&self, reads: &ReadSet) -> Option<Conflict> {
        let of_keyspace = reads.keyspace(self.keyspace)?;
        let key = match &self.range {
            None => of_keyspace.has(&self.key).then(|| self.key.to_vec()),
            Some(end) => of_keyspace.first_within(&self.key, end.as_deref()),
        };
        Some(Conflict { keyspace: self.keyspace, key: key? })
    }

    fn bytes(&self) -> usize {
        let end = self.range.as_ref().map_or(0, |end| end.as_ref().map_or(0, |end| end.len()));
        size_of::<RecentWrite>() + self.key.len() + end
    }
}

/// A key that a transaction read and that was written after its snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    pub key: Vec<u8>,
}

impl RecentList {
    /// True if every write above `sequence` and up to `last` is here.
    pub(crate) fn cover(&self, sequence: SequenceNumber, last: SequenceNumber) -> bool {
        sequence >= last || (self.after <= sequence && self.through >= last)
    }

    /// True if `sequence` is old enough for more than `count` writes above it to be here, and young
    /// enough for none to be missing.
    pub(crate) fn has_more_above(&self, sequence: SequenceNumber, count: usize) -> bool {
        self.after <= sequence && self.writes.len() - self.first_above(sequence) > count
    }

    /// Compares `reads` with at most `count` writes above `sequence` and up to `last`. Answers the
    /// sequence of the last one that was compared, or `last` if all were.
    ///
    /// # Errors
    /// The first conflict.
    pub(crate) fn compare(
        &self,
        (sequence, last): (SequenceNumber, SequenceNumber),
        count: usize,
        reads: &ReadSet,
    ) -> Result<SequenceNumber, Conflict> {
        let mut compared = 0;
        for write in self.writes.range(self.first_above(sequence)..) {
            if write.sequence > last {
                break;
            }
            if let Some(conflict) = write.conflict(reads) {
                return Err(conflict);
            }
            compared += 1;
            if compared == count {
                return Ok(write.sequence);
            }
        }
        Ok(last.min(self.through).max(sequence))
    }

    /// Notes the entries of a batch that will be numbered from `batch.sequence` on and follow
    /// `previous`, the last sequence before them.
    pub(crate) fn note(
        &mut self,
        previous: SequenceNumber,
        batch: &DecodedBatch<'_>,
        write_buffer_bytes: usize,
    ) {
        if self.through != previous {
            self.clear();
            self.after = previous;
        }
        let mut sequence = batch.sequence;
        for entry in batch.iter() {
            let write = RecentWrite::new(sequence, &entry);
            self.bytes += write.bytes();
            self.writes.push_back(write);
            sequence += 1;
            while self.bytes > recent_write_bytes_max(write_buffer_bytes)
                && let Some(oldest) = self.writes.pop_front()
            {
                self.bytes -= oldest.bytes();
                self.after = oldest.sequence;
            }
        }
        self.through = sequence - 1;
    }

    /// Forgets everything: no transaction is alive, or the last group was not written.
    pub(crate) fn clear(&mut self) {
        // A long list gives its memory back.
        match self.writes.capacity() > 1024 {
            true => self.writes = VecDeque::new(),
            false => self.writes.clear(),
        }
        (self.after, self.through, self.bytes) = (0, 0, 0);
    }

    fn first_above(&self, sequence: SequenceNumber) -> usize {
        self.writes.partition_point(|write| write.sequence <= sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::write_batch::WriteBatch;

    const WRITE_BUFFER_BYTES: usize = 64 << 10;

    /// Notes that many puts from `first` on, after `previous`.
    fn note(list: &mut RecentList, previous: SequenceNumber, first: SequenceNumber, puts: u32) {
        let mut batch = WriteBatch::new();
        for n in 0..puts {
            batch.put(format!("{n:04}"), "");
        }
        list.note(
            previous,
            &DecodedBatch::trusted(first, puts, &batch.entries),
            WRITE_BUFFER_BYTES,
        );
    }

    #[test]
    fn lists_begin_anew_after_a_gap() {
        let mut list = RecentList::default();
        note(&mut list, 4, 5, 2);
        note(&mut list, 6, 7, 1);
        assert!(list.cover(4, 7) && list.cover(5, 6) && list.cover(7, 7) && list.cover(9, 8));
        assert!(!list.cover(3, 7), "an older write may be missing");
        assert!(!list.cover(6, 8), "a newer write is missing");
        // Others wrote 8 and 9, and nobody noted it.
        note(&mut list, 9, 10, 1);
        assert!(!list.cover(7, 10) && !list.cover(8, 10) && list.cover(9, 10));
        assert_eq!(list.writes.len(), 1);
        // Numbers that are not part of the history.
        note(&mut list, 10, 15, 1);
        assert!(list.cover(9, 15) && list.has_more_above(9, 1) && !list.has_more_above(9, 2));
        assert!(!list.has_more_above(8, 0));
    }

    #[test]
    fn the_oldest_writes_go_first() {
        let mut list = RecentList::default();
        for n in 0..400 {
            note(&mut list, 10 + n, 11 + n, 1);
            assert!(list.bytes <= recent_write_bytes_max(WRITE_BUFFER_BYTES));
        }
        let oldest = list.writes.front().unwrap().sequence;
        assert!(oldest > 11 && list.cover(oldest - 1, 410) && !list.cover(oldest - 2, 410));
    }

    #[test]
    fn the_last_transaction_clears_the_list() {
        let recent = RecentWrites::default();
        recent.begin_transaction();
        recent.begin_transaction();
        note(&mut recent.list(), 0, 1, 3);
        recent.end_transaction();
        assert!(recent.list().cover(0, 3));
        recent.end_transaction();
        assert!(!recent.list().cover(0, 3) && recent.list().writes.is_empty());
    }
}
