//! [`Change`]: a write as a feed hands it out, of [`Changes`](crate::Changes) or a
//! [`Watch`](crate::Watch).
//!
//! The logs have all writes but those of bulk loads and of batches that create keyspaces, which
//! came as tables. A feed passes their sequence numbers, and [`load`] and [`unlogged`] say which
//! keys they may have.

use crate::base::batch_format::{BatchEntry, WriteKind};
use crate::base::expiry::split_expiring;
use crate::base::key::SequenceNumber;
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::base::value::Key;
use crate::state::catalog::Catalog;
use crate::state::keyspace::KeyspaceState;
use crate::tree::file_meta::FileMeta;
use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A write that a database took, of [`Follower::changes`](crate::Follower::changes) or a
/// [`Watch`](crate::Watch).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its sequence number. They never fall from change to change. That of a dropped keyspace is
    /// the number of a write before the drop, which may be below the `first` of a `ChangesGone`.
    pub sequence: u64,
    /// The number of its keyspace: 0 for `default`. No other keyspace ever gets it.
    pub keyspace_number: u32,
    /// The name of its keyspace; `None` if that was dropped before the feed met it.
    pub keyspace: Option<Arc<str>>,
    /// What was written.
    pub entry: ChangedEntry,
}

/// The write of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangedEntry {
    /// A value was written under a key.
    Put {
        /// The key, whole.
        key: Vec<u8>,
        /// The value, without the time at which it expires.
        value: Vec<u8>,
        /// From when on it is gone; `None` for never. No change follows at that time.
        expires_at: Option<SystemTime>,
    },
    /// A key was deleted, which need not have been there.
    Delete {
        /// The key that was deleted.
        key: Vec<u8>,
    },
    /// The keys from `start` on and below `end` were deleted; all from `start` on without one.
    DeleteRange {
        /// The first key of the range.
        start: Vec<u8>,
        /// The key after the last one.
        end: Option<Vec<u8>>,
    },
    /// Entries came as tables: of a bulk load ([`Keyspace::ingest`](crate::Keyspace::ingest)), or
    /// of a batch that created or dropped keyspaces. No log has them. Read the range again, at a
    /// read point that has this sequence; keys outside of it have not changed. The range may be
    /// larger than that of the entries: all keys of the keyspace, once a table of a load was
    /// compacted or removed. If no table of the load is left, each keyspace has such a change. It
    /// has one, too, for a batch, for the numbers of refused writes, and for a load of thousands of
    /// tables or one whose log was read while it was begun.
    Load {
        /// The first key of the range.
        start: Vec<u8>,
        /// The key after the last one.
        end: Option<Vec<u8>>,
    },
    /// The keyspace was dropped, with all of its entries. Only a [`Watch`](crate::Watch) has this
    /// change. One of all keyspaces has it also for those of which it handed out no entry.
    DropKeyspace,
}

impl Change {
    /// The change that an entry of a batch makes, in the keyspace with this name.
    pub(super) fn of(
        sequence: SequenceNumber,
        keyspace: Option<Arc<str>>,
        entry: &BatchEntry<'_>,
    ) -> Self {
        let (keyspace_number, entry) = (entry.keyspace, ChangedEntry::of(entry));
        Change { sequence, keyspace_number, keyspace, entry }
    }

    /// True if a load has keys of `range`.
    pub(super) fn is_in(&self, range: &KeyBounds) -> bool {
        match &self.entry {
            ChangedEntry::Load { start, end } => overlaps(start, end.as_deref(), range),
            _ => true,
        }
    }
}

impl ChangedEntry {
    fn of(entry: &BatchEntry<'_>) -> Self {
        let key = entry.key.to_vec();
        match entry.kind {
            WriteKind::Delete => ChangedEntry::Delete { key },
            WriteKind::DeleteRange => {
                ChangedEntry::DeleteRange { start: key, end: entry.range_end().map(<[u8]>::to_vec) }
            }
            WriteKind::Put => {
                ChangedEntry::Put { key, value: entry.value.to_vec(), expires_at: None }
            }
            WriteKind::PutExpiring => {
                let (millis, value) =
                    split_expiring(entry.value).expect("a decoded batch was checked");
                let expires_at = UNIX_EPOCH.checked_add(Duration::from_millis(millis));
                ChangedEntry::Put { key, value: value.to_vec(), expires_at }
            }
        }
    }
}

/// True if an entry of a batch writes to keys of `range`.
pub(super) fn touches(entry: &BatchEntry<'_>, range: &KeyBounds) -> bool {
    match entry.kind {
        WriteKind::DeleteRange => overlaps(entry.key, entry.range_end(), range),
        _ => range.contains(entry.key),
    }
}

/// True if a key from `start` on and below `end` can be in `range`.
fn overlaps(start: &[u8], end: Option<&[u8]>, range: &KeyBounds) -> bool {
    let written = KeyBounds { start: start.into(), end: end.map(Key::from) };
    !written.within(range).is_empty()
}

/// A first key, and the key after the last one; all keys by default.
type Keys = (Vec<u8>, Option<Vec<u8>>);

/// The changes of the bulk load with this sequence, which made `tables` tables: one, as long as all
/// of them are there. If `tables` is 0, all are.
///
/// A compaction leaves no trace of entries that have expired, or that a compaction filter removed.
/// So a load without one of its tables may have any key: its keyspace has a change of all keys, or
/// each keyspace if none of its tables is left.
pub(super) fn load(catalog: &Catalog, sequence: SequenceNumber, tables: usize) -> Vec<Change> {
    let all = catalog.all_keyspaces();
    let mut loaded = all.iter().map(|keyspace| (keyspace, loaded_tables(keyspace, sequence)));
    let Some((keyspace, own)) = loaded.find(|(_, own)| !own.is_empty()) else {
        return unlogged(catalog, sequence);
    };
    let keys = span(&own).filter(|_| own.len() >= tables);
    vec![change_of(keyspace, sequence, keys.unwrap_or_default())]
}

/// The changes of a batch that is in no log, or of numbers that were not used: all keys of each
/// keyspace. The tables of a batch may have deletions, which a compaction drops, so it may have any
/// key. So may a load that its log did not name when it was opened: nothing says how many tables it
/// made.
pub(super) fn unlogged(catalog: &Catalog, sequence: SequenceNumber) -> Vec<Change> {
    let all = catalog.all_keyspaces();
    all.iter().map(|keyspace| change_of(keyspace, sequence, Keys::default())).collect()
}

fn change_of(
    keyspace: &Arc<KeyspaceState>,
    sequence: SequenceNumber,
    (start, end): Keys,
) -> Change {
    let (keyspace_number, name) = (keyspace.id, Arc::from(&*keyspace.name));
    let entry = ChangedEntry::Load { start, end };
    Change { sequence, keyspace_number, keyspace: Some(name), entry }
}

/// True if a table of a load has this sequence.
pub(super) fn is_load(catalog: &Catalog, sequence: SequenceNumber) -> bool {
    let all = catalog.all_keyspaces();
    all.iter().any(|keyspace| !loaded_tables(keyspace, sequence).is_empty())
}

/// The tables of the load with this sequence.
fn loaded_tables(keyspace: &KeyspaceState, sequence: SequenceNumber) -> Vec<Arc<FileMeta>> {
    let view = keyspace.view.load_full();
    let tables = view.version.tables().map(|handle| &handle.meta);
    tables.filter(|meta| meta.global_sequence == Some(sequence)).cloned().collect()
}

/// From the first key of all tables to the end of the last one; `None` without tables.
fn span(tables: &[Arc<FileMeta>]) -> Option<Keys> {
    let start = tables.iter().map(|meta| meta.start.clone()).min()?;
    let end = |meta: &Arc<FileMeta>| match &meta.end {
        Bound::Unbounded => None,
        Bound::Excluded(end) => Some(end.clone()),
        // No key sorts between a key and that key with a zero byte appended.
        Bound::Included(last) => Some([last, &[0][..]].concat()),
    };
    let ends: Option<Vec<_>> = tables.iter().map(end).collect();
    Some((start, ends.and_then(|ends| ends.into_iter().max())))
}
