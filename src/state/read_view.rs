//! [`ReadView`]: the memtables and tables of a keyspace that a read looks at, replaced as a whole.
//!
//! A switch, a flush and a compaction each store a new view; a read keeps the one it loaded. A view
//! is consistent: no entry is missing from it, and an entry that a flush moved is in one place
//! only.

use crate::base::key::SequenceNumber;
use crate::base::sync::Arc;
use crate::env::directory_lock::DirectoryLock;
use crate::memtable::memtable::Memtable;
use crate::tree::version::Version;

/// A full memtable and the logs that hold its writes.
#[derive(Clone, Debug)]
pub(crate) struct ImmutableMemtable {
    /// The memtable; nothing writes to it any more.
    pub memtable: Arc<Memtable>,
    /// The log of its first write.
    pub first_log: u64,
    /// The log of its last write, or a later one: memtables with a first log above it are newer.
    pub last_log: u64,
    /// The last sequence in it. Once its table is durable, so is everything up to this sequence.
    pub last_sequence: SequenceNumber,
}

/// What a read looks at: memtables and tables that together hold every entry once.
#[derive(Clone, Debug)]
pub(crate) struct ReadView {
    /// Takes the writes; the database's one empty memtable before the first of them.
    pub active: Arc<Memtable>,
    /// The log of the active memtable's first write; 0 before that.
    pub active_log: u64,
    /// Memtables that wait for their flush, newest first.
    pub immutables: Vec<ImmutableMemtable>,
    pub version: Arc<Version>,
    /// The keyspace was dropped.
    pub dropped: bool,
    /// A share in the directory's lock; `None` once the database is closed or the keyspace dropped.
    /// The last field, so that it is dropped after the tables.
    pub lock: Option<Arc<DirectoryLock>>,
}

impl ReadView {
    /// The logs that the memtables begin in, newest first; 0 for a memtable without writes.
    pub(crate) fn first_logs(&self) -> impl Iterator<Item = u64> {
        let immutables = self.immutables.iter().map(|immutable| immutable.first_log);
        std::iter::once(self.active_log).chain(immutables)
    }

    /// True if there are range deletes and tables: they may hide some of these whole.
    pub(crate) fn may_have_deleted_tables(&self) -> bool {
        self.version.tables().next().is_some()
            && (self.memtables().any(|memtable| memtable.range_deletes.count() > 0)
                || !self.version.range_deletes.is_empty())
    }

    /// Bytes of the memtables that wait for their flush. Those of a dropped keyspace do not.
    pub(crate) fn immutable_bytes(&self) -> usize {
        match self.dropped {
            true => 0,
            false => self.immutables.iter().map(|full| full.memtable.bytes()).sum(),
        }
    }

    /// All memtables, newest first.
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let immutables = self.immutables.iter().map(|immutable| &immutable.memtable);
        std::iter::once(&self.active).chain(immutables)
    }
}
