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
use crate::state::catalog::Catalog;
use crate::state::keyspace::KeyspaceState;
use crate::tree::file_meta::FileMeta;
use std::ops::{Bound, RangeInclusive};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A write that a database took, of [`Follower::changes`](crate::Follower::changes) or a
/// [`Watch`](crate::Watch).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its sequence number. They never fall from change to change. That of a dropped keyspace is
    /// the number of a write before the drop.
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
    /// larger than that of the entries. Once the tables of a load were compacted, several keyspaces
    /// may have a change for it. For a batch each keyspace has one, of all its keys, and so have
    /// numbers of refused writes.
    Load {
        /// The first key of the range.
        start: Vec<u8>,
        /// The key after the last one.
        end: Option<Vec<u8>>,
    },
    /// The keyspace was dropped, with all of its entries. Only a [`Watch`](crate::Watch) has this
    /// change.
    DropKeyspace,
}

impl Change {
    /// True if a load has keys of `range`.
    pub(super) fn is_in(&self, range: &KeyBounds) -> bool {
        match &self.entry {
            ChangedEntry::Load { start, end } => overlaps(start, end.as_deref(), range),
            _ => true,
        }
    }
}

impl ChangedEntry {
    /// The change that an entry of a batch makes.
    pub(super) fn of(entry: &BatchEntry<'_>) -> Self {
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
        _ => range.is_after_start(entry.key) && range.is_before_end(entry.key),
    }
}

/// True if a key from `start` on and below `end` can be in `range`.
fn overlaps(start: &[u8], end: Option<&[u8]>, range: &KeyBounds) -> bool {
    let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.into()));
    let written = KeyBounds { start: Bound::Included(start.into()), end };
    !written.within(range).is_empty()
}

/// The changes of the bulk load with this sequence: one, as long as it has tables.
///
/// A compaction puts its entries into tables that have sequences on both sides of it, so the keys
/// of all such tables cover the load.
pub(super) fn load(catalog: &Catalog, sequence: SequenceNumber) -> Vec<Change> {
    let all = catalog.all_keyspaces();
    let tables = |keyspace: &Arc<KeyspaceState>| tables_with(keyspace, sequence);
    let has_own = |keyspace: &&Arc<KeyspaceState>| {
        tables(keyspace).iter().any(|meta| meta.global_sequence == Some(sequence))
    };
    let own = all.iter().find(has_own);
    let spans = all.iter().filter(|keyspace| own.is_none_or(|own| own.id == keyspace.id));
    let change = |keyspace| Some(change_of(keyspace, sequence, span(&tables(keyspace))?));
    spans.filter_map(change).collect()
}

/// The changes of a batch that is in no log, or of numbers that were not used: all keyspaces. The
/// tables of a batch may have deletions, which a compaction drops, so it may have any key. A load
/// is found, too, whose log does not tell of it yet.
pub(super) fn unlogged(
    catalog: &Catalog,
    sequences: &RangeInclusive<SequenceNumber>,
) -> Vec<Change> {
    let last = *sequences.end();
    if *sequences.start() == last && is_load(catalog, last) {
        return load(catalog, last);
    }
    let all = catalog.all_keyspaces();
    all.iter().map(|keyspace| change_of(keyspace, last, (Vec::new(), None))).collect()
}

fn change_of(
    keyspace: &Arc<KeyspaceState>,
    sequence: SequenceNumber,
    (start, end): (Vec<u8>, Option<Vec<u8>>),
) -> Change {
    let (keyspace_number, name) = (keyspace.id, Arc::from(&*keyspace.name));
    let entry = ChangedEntry::Load { start, end };
    Change { sequence, keyspace_number, keyspace: Some(name), entry }
}

/// True if a table of a load has this sequence.
pub(super) fn is_load(catalog: &Catalog, sequence: SequenceNumber) -> bool {
    let all = catalog.all_keyspaces();
    let tables = all.iter().flat_map(|keyspace| tables_with(keyspace, sequence));
    tables.into_iter().any(|meta| meta.global_sequence == Some(sequence))
}

/// The tables that may have an entry with this sequence.
fn tables_with(keyspace: &KeyspaceState, sequence: SequenceNumber) -> Vec<Arc<FileMeta>> {
    let view = keyspace.view.load_full();
    let tables = view.version.tables().map(|handle| &handle.meta);
    let has = |meta: &&Arc<FileMeta>| {
        (meta.smallest_sequence..=meta.largest_sequence).contains(&sequence)
    };
    tables.filter(has).cloned().collect()
}

/// From the first key of all tables to the end of the last one; `None` without tables.
fn span(tables: &[Arc<FileMeta>]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
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
