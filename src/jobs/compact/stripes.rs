//! Which entries a flush or compaction keeps: the newest of each key in each snapshot stripe.
//!
//! [`SnapshotStripes::decide`] gets every entry of a merge in the order of internal keys, so the
//! newest version of a key comes first. The *snapshots* are the sequences at which reads may still
//! look: the live snapshots and the last published sequence. Every later read is at that one or
//! above it.
//!
//! Snapshots divide the sequences into stripes. Of the versions of a key in one stripe a reader can
//! only see the newest, so only that one is kept. Above the last snapshot every version is kept,
//! because a snapshot may still be taken between any two of them.
//!
//! A tombstone is dropped if it is the newest in the oldest stripe and no table below the output
//! can hold its key: then there is nothing left to hide. "Can hold" compares key ranges only, so a
//! doubt keeps the tombstone.

use crate::base::key::{SequenceNumber, ValueKind};
use crate::base::sync::Arc;
use crate::tree::edit::FileMeta;

/// The key ranges of all tables that are older than the inputs of a job.
#[derive(Debug, Default)]
pub(crate) struct KeysBelow {
    /// Disjoint tables sorted by key. Each run has the index of its first table that does not end
    /// before the current key.
    runs: Vec<(Vec<Arc<FileMeta>>, usize)>,
}

impl KeysBelow {
    /// `sorted` holds levels from 1 on, `unsorted` tables of level 0.
    #[must_use]
    pub(crate) fn new(sorted: &[Vec<Arc<FileMeta>>], unsorted: &[Arc<FileMeta>]) -> Self {
        let levels = sorted.iter().filter(|tables| !tables.is_empty()).cloned();
        let singles = unsorted.iter().map(|meta| vec![Arc::clone(meta)]);
        KeysBelow { runs: levels.chain(singles).map(|tables| (tables, 0)).collect() }
    }

    /// True if `key` lies in the range of some table. Keys must come in ascending order.
    pub(crate) fn may_hold(&mut self, key: &[u8]) -> bool {
        let mut held = false;
        for (tables, first) in &mut self.runs {
            while tables.get(*first).is_some_and(|meta| meta.ends_before(key)) {
                *first += 1;
            }
            held |= tables.get(*first).is_some_and(|meta| &meta.start[..] <= key);
        }
        held
    }
}

/// The decision on one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// False if no read can see the entry.
    pub keep: bool,
    /// True for the first entry of a user key: only here may an output table end.
    pub first_of_key: bool,
}

/// Decides on the entries of one merge.
#[derive(Debug)]
pub(crate) struct SnapshotStripes {
    snapshots: Vec<SequenceNumber>,
    below: KeysBelow,
    /// The key of the entry before.
    current_key: Option<Vec<u8>>,
    /// The stripe of the entry before, of the same key.
    stripe_above: Option<usize>,
}

impl SnapshotStripes {
    /// `snapshots` ascending, the published sequence last; without any, everything is kept.
    #[must_use]
    pub(crate) fn new(snapshots: &[SequenceNumber], below: KeysBelow) -> Self {
        let snapshots = snapshots.to_vec();
        SnapshotStripes { snapshots, below, current_key: None, stripe_above: None }
    }

    /// Whether to keep the next entry.
    pub(crate) fn decide(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        kind: ValueKind,
    ) -> Decision {
        let first_of_key = self.current_key.as_deref() != Some(key);
        if first_of_key {
            let current = self.current_key.get_or_insert_default();
            current.clear();
            current.extend_from_slice(key);
            self.stripe_above = None;
        }
        // A stripe is named by the index of the oldest snapshot that sees it.
        let stripe = self.snapshots.partition_point(|&snapshot| snapshot < sequence);
        // Above every snapshot and the published sequence.
        let unpublished = stripe == self.snapshots.len();
        // Versions of a key come newest first. If the one before was in the same stripe, every
        // snapshot that sees this version sees that one instead.
        let shadowed = !unpublished && self.stripe_above == Some(stripe);
        self.stripe_above = Some(stripe);
        // In stripe 0 all snapshots see the tombstone. Older versions in this merge are in the same
        // stripe and are dropped as well, and no older table can hold the key.
        let hides_nothing = kind == ValueKind::Tombstone
            && !shadowed
            && !unpublished
            && stripe == 0
            && !self.below.may_hold(key);
        Decision { keep: !shadowed && !hides_nothing, first_of_key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::drawn_levels;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn below(text: &str) -> KeysBelow {
        let levels = drawn_levels(text);
        KeysBelow::new(&levels[1..], &levels[0])
    }

    const NONE: [i64; 0] = [];

    /// The versions of key `k`, as "sequence" or "-sequence" for a tombstone, that are kept.
    fn kept(versions: &[i64], snapshots: &[u64], below: KeysBelow) -> Vec<i64> {
        let mut stripes = SnapshotStripes::new(snapshots, below);
        let kept = versions.iter().filter(|&&version| {
            let kind = if version < 0 { ValueKind::Tombstone } else { ValueKind::Put };
            stripes.decide(b"k", version.unsigned_abs(), kind).keep
        });
        kept.copied().collect()
    }

    #[test]
    fn every_snapshot_keeps_one_version() {
        let versions = [9, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(kept(&versions, &[7], KeysBelow::default()), [9, 8, 7]);
        assert_eq!(kept(&versions, &[3, 7], KeysBelow::default()), [9, 8, 7, 3]);
        assert_eq!(kept(&versions, &[3, 3, 5, 20], KeysBelow::default()), [9, 5, 3]);
        assert_eq!(kept(&versions, &[0, 20], KeysBelow::default()), [9]);
        assert_eq!(kept(&versions, &[], KeysBelow::default()), versions);
    }

    #[test]
    fn needed_tombstones_are_kept() {
        let nothing = KeysBelow::default;
        assert_eq!(kept(&[-5, 4], &[9], nothing()), NONE);
        assert_eq!(kept(&[-5, 4], &[9], below("L3: 1[a..z]")), [-5]);
        assert_eq!(kept(&[-5, 4], &[9], below("L3: 1[a..j] 2[l..z]")), NONE);
        assert_eq!(kept(&[-5, 4], &[9], below("L3: 1[a..j] 2[k..z]")), [-5]);
        assert_eq!(kept(&[-5, 4], &[9], below("L0: 1[a..j] 2[k..z] 3[a..b]")), [-5]);
        // The snapshot at 4 keeps the value, so the tombstone must go on hiding it from others.
        assert_eq!(kept(&[-5, 4], &[4, 9], nothing()), [-5, 4]);
        // A newer value covers the tombstone for all but the snapshot, and that sees none below.
        assert_eq!(kept(&[8, -5, 4], &[6, 9], nothing()), [8]);
        // Not published yet: a snapshot may still be taken before it.
        assert_eq!(kept(&[-5, 4], &[4], nothing()), [-5, 4]);
    }

    #[test]
    fn tables_start_at_a_keys_first_version() {
        let mut stripes = SnapshotStripes::new(&[9], KeysBelow::default());
        let mut first =
            |key: &[u8], sequence| stripes.decide(key, sequence, ValueKind::Put).first_of_key;
        assert!(first(b"", 3) && !first(b"", 2) && first(b"a", 3) && !first(b"a", 1));
    }

    /// Key to versions (sequence to value), the values of a tombstone being `None`.
    type History = BTreeMap<u8, BTreeMap<u64, Option<u8>>>;

    fn read(history: &History, key: u8, at: u64) -> Option<u8> {
        history.get(&key)?.range(..=at).next_back().and_then(|(_, value)| *value)
    }

    proptest! {
        /// Whatever is dropped, every read at a snapshot or from the published sequence on sees
        /// what it saw before; and with one snapshot and nothing below, nothing unneeded stays.
        #[test]
        fn retention_is_invisible_to_readers(
            writes in proptest::collection::vec((0u8..6, any::<Option<u8>>()), 0..60),
            older in proptest::collection::btree_set(0u8..6, 0..4),
            snapshots in proptest::collection::btree_set(0u64..70, 0..4),
            published in prop_oneof![0u64..70, Just(70)],
        ) {
            // Sequences 1 to 9 are in tables below, the writes are merged.
            let mut merged = History::new();
            for (i, &(key, value)) in writes.iter().enumerate() {
                merged.entry(key).or_default().insert(10 + i as u64, value);
            }
            let mut snapshots: BTreeSet<u64> =
                snapshots.into_iter().filter(|&s| s < published).collect();
            snapshots.insert(published);
            let snapshots: Vec<u64> = snapshots.into_iter().collect();
            let drawn: String = older.iter().map(|key| format!(" {key}[{key}..{key}]")).collect();
            let mut stripes = SnapshotStripes::new(&snapshots, below(&format!("L5:{drawn}")));

            let old = |&key: &u8| (key, BTreeMap::from([(1, Some(key))]));
            let base: History = older.iter().map(old).collect();
            let (mut before, mut after) = (base.clone(), base);
            let mut dropped = 0;
            for (&key, versions) in &merged {
                for (&sequence, &value) in versions.iter().rev() {
                    let kind = value.map_or(ValueKind::Tombstone, |_| ValueKind::Put);
                    before.entry(key).or_default().insert(sequence, value);
                    let name = key.to_string();
                    if stripes.decide(name.as_bytes(), sequence, kind).keep {
                        after.entry(key).or_default().insert(sequence, value);
                    } else {
                        dropped += 1;
                    }
                }
            }
            for key in 0..6 {
                for at in snapshots.iter().copied().chain(published..80) {
                    let (expected, found) = (read(&before, key, at), read(&after, key, at));
                    prop_assert_eq!(expected, found, "{} {}", key, at);
                }
            }
            if snapshots.len() == 1 && published == 70 && older.is_empty() {
                let live = (0..6).filter(|&key| read(&before, key, 80).is_some()).count();
                prop_assert_eq!(writes.len() - dropped, live);
            }
        }
    }
}
