//! Which entries and range deletes a flush or compaction keeps: in each snapshot stripe the newest
//! of each key.
//!
//! [`SnapshotStripes::decide`] gets every entry of a merge in the order of internal keys, so the
//! newest version of a key comes first. The *snapshots* are the sequences at which reads may still
//! look: the live snapshots and the last published sequence. Every later read is at that one or
//! above it.
//!
//! Snapshots divide the sequences into stripes. Of the versions of a key in one stripe a reader can
//! only see the newest, so only that one is kept. Above the last snapshot every version is kept,
//! because a snapshot may still be taken between any two of them. A range delete covers the older
//! versions of its keys that are in its own stripe, as a newer version does.
//!
//! A tombstone is dropped if it is the newest in the oldest stripe and no table below the output
//! can hold its key: then there is nothing left to hide. "Can hold" compares key ranges only, so a
//! doubt keeps the tombstone. For a range delete no such table may hold a key of its range.

use crate::base::key::{SequenceNumber, ValueKind};
use crate::base::range_deletes::{Fragment, RangeDelete, RangeDeletes};
use crate::base::sync::Arc;
use crate::tree::file_meta::FileMeta;

/// The key ranges of all tables that are older than the inputs of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeysBelow {
    /// Disjoint tables sorted by key. Each run has the index of its first table that does not end
    /// before the current key.
    runs: Vec<(Arc<Vec<Arc<FileMeta>>>, usize)>,
}

impl KeysBelow {
    /// `sorted` holds levels from 1 on, `unsorted` tables of level 0.
    pub(crate) fn new(
        sorted: impl IntoIterator<Item = Arc<Vec<Arc<FileMeta>>>>,
        unsorted: &[Arc<FileMeta>],
    ) -> Self {
        let levels = sorted.into_iter().filter(|tables| !tables.is_empty());
        let singles = unsorted.iter().map(|meta| Arc::new(vec![Arc::clone(meta)]));
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

    /// True if a table may hold keys of the range from `start` to `end`, without the end itself.
    /// Without an end the range has all keys from `start` on.
    pub(crate) fn may_hold_any(&self, start: &[u8], end: Option<&[u8]>) -> bool {
        self.runs.iter().any(|(tables, _)| {
            let first = tables.partition_point(|meta| meta.ends_before(start));
            tables.get(first).is_some_and(|meta| end.is_none_or(|end| &meta.start[..] < end))
        })
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

/// Decides on the entries and range deletes of one merge.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotStripes {
    snapshots: Vec<SequenceNumber>,
    below: KeysBelow,
    /// Those of all inputs; of those in one stripe the newest.
    deletes: RangeDeletes,
    /// How many the inputs have.
    pub deletes_read: u64,
    /// The key of the entry before.
    current_key: Option<Vec<u8>>,
    /// The stripe of the entry before, of the same key.
    stripe_above: Option<usize>,
}

impl SnapshotStripes {
    /// `snapshots` ascending, the published sequence last; without any, everything is kept.
    /// `deletes` are those of all inputs, in any order.
    pub(crate) fn new(
        snapshots: &[SequenceNumber],
        below: KeysBelow,
        deletes: &[RangeDelete],
    ) -> Self {
        SnapshotStripes {
            deletes: RangeDeletes::fragmented(deletes, snapshots),
            deletes_read: deletes.len() as u64,
            snapshots: snapshots.to_vec(),
            below,
            current_key: None,
            stripe_above: None,
        }
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
            self.begin_key(key);
        }
        // A stripe is named by the index of the oldest snapshot that sees it.
        let stripe = self.snapshots.partition_point(|&snapshot| snapshot < sequence);
        // Above every snapshot and the published sequence.
        let unpublished = stripe == self.snapshots.len();
        // Versions of a key come newest first. If the one before was in the same stripe, every
        // snapshot that sees this version sees that one instead.
        let shadowed = !unpublished && self.stripe_above == Some(stripe);
        self.stripe_above = Some(stripe);
        // The oldest snapshot that sees the entry sees a newer range delete: so do all of them.
        let deleted = self.covering(key, stripe) > sequence;
        // In stripe 0 all snapshots see the tombstone. Older versions in this merge are in the same
        // stripe and are dropped as well, and no older table can hold the key.
        let hides_nothing = kind == ValueKind::Tombstone
            && !shadowed
            && !unpublished
            && stripe == 0
            && !self.below.may_hold(key);
        Decision { keep: !shadowed && !deleted && !hides_nothing, first_of_key }
    }

    /// True if a tombstone in place of the entry that was kept last, the newest of its key, would
    /// hide nothing.
    pub(crate) fn tombstone_hides_nothing(&mut self, key: &[u8], sequence: SequenceNumber) -> bool {
        self.snapshots.first().is_some_and(|oldest| sequence <= *oldest)
            && !self.below.may_hold(key)
    }

    fn begin_key(&mut self, key: &[u8]) {
        key.clone_into(self.current_key.get_or_insert_default());
        self.stripe_above = None;
    }

    /// The newest range delete of the key that the oldest snapshot of `stripe` sees; 0 without one,
    /// or without a snapshot.
    fn covering(&self, key: &[u8], stripe: usize) -> SequenceNumber {
        self.snapshots.get(stripe).map_or(0, |snapshot| self.deletes.covering(key, *snapshot))
    }

    /// True if no read can see an entry of `meta`: range deletes of the inputs hide the whole table
    /// from every snapshot. Then it need not be read.
    pub(crate) fn covers_table(&self, meta: &FileMeta) -> bool {
        is_deleted(meta, &self.snapshots, |key, at, _| vec![self.deletes.coverage(key, at)])
    }

    /// The range deletes that stay: of each fragment the newest in each stripe. The one of the
    /// oldest stripe goes if no older table can hold a key of the fragment.
    pub(crate) fn kept_deletes(&self) -> RangeDeletes {
        let mut kept = RangeDeletes::default();
        let Some(oldest) = self.snapshots.first() else { return self.deletes.clone() };
        for (start, Fragment { end, sequences }) in self.deletes.fragments() {
            let mut sequences = sequences.clone();
            // All snapshots see it, and this merge drops the older entries of its range.
            if sequences.last().is_some_and(|sequence| sequence <= oldest)
                && !self.below.may_hold_any(start, end.as_deref())
            {
                sequences.pop();
            }
            kept.push(start.clone(), Fragment { end: end.clone(), sequences });
        }
        kept
    }
}

/// True if newer range deletes cover all of `meta` for every read: they cover each key of its
/// range, and every snapshot that sees an entry of the table sees a delete of its key, too.
/// `coverages` returns the coverage of a key for a read, one of each list of range deletes. It may
/// extend one above that sequence over the keys that follow and are covered by others above it.
pub(crate) fn is_deleted(
    meta: &FileMeta,
    snapshots: &[SequenceNumber],
    coverages: impl Fn(&[u8], SequenceNumber, SequenceNumber) -> Vec<RangeDelete>,
) -> bool {
    // The oldest snapshot that may see an entry of the table.
    let oldest = snapshots.partition_point(|snapshot| *snapshot < meta.smallest_sequence);
    let Some(oldest) = snapshots.get(oldest) else { return false };
    let mut from = meta.start.clone();
    loop {
        let mut furthest = None;
        for delete in coverages(&from, *oldest, meta.largest_sequence) {
            match delete.end {
                _ if delete.sequence <= meta.largest_sequence => {}
                Some(end) if !meta.ends_before(&end) => furthest = furthest.max(Some(end)),
                _ => return true,
            }
        }
        let Some(end) = furthest else { return false };
        from = end;
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
        KeysBelow::new(levels[1..].iter().cloned(), &levels[0])
    }

    const NONE: [i64; 0] = [];

    /// The versions of key `k`, as "sequence" or "-sequence" for a tombstone, that are kept.
    fn kept(versions: &[i64], snapshots: &[u64], below: KeysBelow) -> Vec<i64> {
        let mut stripes = SnapshotStripes::new(snapshots, below, &[]);
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
        // The snapshot at 4 keeps the value, so the tombstone must keep hiding it from others.
        assert_eq!(kept(&[-5, 4], &[4, 9], nothing()), [-5, 4]);
        // A newer value covers the tombstone for all but the snapshot, and that sees none below.
        assert_eq!(kept(&[8, -5, 4], &[6, 9], nothing()), [8]);
        // Not published yet: a snapshot may still be taken before it.
        assert_eq!(kept(&[-5, 4], &[4], nothing()), [-5, 4]);
    }

    #[test]
    fn tables_start_at_a_keys_first_version() {
        let mut stripes = SnapshotStripes::new(&[9], KeysBelow::default(), &[]);
        let mut first =
            |key: &[u8], sequence| stripes.decide(key, sequence, ValueKind::Put).first_of_key;
        assert!(first(b"", 3) && !first(b"", 2) && first(b"a", 3) && !first(b"a", 1));
    }

    /// Key to versions (sequence to value), the values of a tombstone being `None`; range deletes.
    #[derive(Clone, Default)]
    struct History {
        versions: BTreeMap<u8, BTreeMap<u64, Option<u8>>>,
        deletes: Vec<RangeDelete>,
    }

    impl History {
        fn insert(&mut self, key: u8, sequence: u64, value: Option<u8>) {
            self.versions.entry(key).or_default().insert(sequence, value);
        }

        /// What a read of `key` sees, and the sequence of the entry.
        fn read(&self, key: u8, at: u64) -> Option<(u64, u8)> {
            let (sequence, value) = self.versions.get(&key)?.range(..=at).next_back()?;
            let deletes = RangeDeletes::fragmented(&self.deletes, &[]);
            let deleted = deletes.covering(&name(key), at);
            (*sequence > deleted).then_some((*sequence, (*value)?))
        }
    }

    fn name(key: u8) -> Vec<u8> {
        key.to_string().into_bytes()
    }

    #[derive(Clone, Debug)]
    enum Drawn {
        Write(u8, Option<u8>),
        Delete(u8, Option<u8>),
    }

    fn drawn() -> impl Strategy<Value = Drawn> {
        let end = proptest::option::weighted(0.9, 0u8..8);
        prop_oneof![
            3 => (0u8..6, any::<Option<u8>>()).prop_map(|(key, value)| Drawn::Write(key, value)),
            1 => (0u8..6, end).prop_map(|(start, end)| Drawn::Delete(start, end)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever is dropped, every read at a snapshot or from the published sequence on sees
        /// what it saw before; and with one snapshot and nothing below, nothing unneeded stays.
        #[test]
        fn retention_is_invisible_to_readers(
            writes in proptest::collection::vec(drawn(), 0..60),
            older in proptest::collection::btree_set(0u8..6, 0..4),
            snapshots in proptest::collection::btree_set(0u64..70, 0..4),
            published in prop_oneof![0u64..70, Just(70)],
        ) {
            // Sequences 1 to 9 are in tables below, the writes are merged.
            let mut base = History::default();
            older.iter().for_each(|key| base.insert(*key, 1, Some(*key)));
            let mut merged = History::default();
            for (sequence, write) in (10..).zip(&writes) {
                match *write {
                    Drawn::Write(key, value) => merged.insert(key, sequence, value),
                    Drawn::Delete(start, end) => {
                        let (start, end) = (name(start), end.map(name));
                        merged.deletes.push(RangeDelete { start, end, sequence });
                    }
                }
            }
            let mut snapshots: BTreeSet<u64> =
                snapshots.into_iter().filter(|&s| s < published).collect();
            snapshots.insert(published);
            let snapshots: Vec<u64> = snapshots.into_iter().collect();
            let drawn: String = older.iter().map(|key| format!(" {key}[{key}..{key}]")).collect();
            let below = below(&format!("L5:{drawn}"));
            let mut stripes = SnapshotStripes::new(&snapshots, below, &merged.deletes);

            let (mut before, mut after) = (base.clone(), base);
            before.deletes = merged.deletes;
            after.deletes = stripes.kept_deletes().deletes().collect();
            let mut kept = 0;
            for (&key, versions) in &merged.versions {
                for (&sequence, &value) in versions.iter().rev() {
                    let kind = value.map_or(ValueKind::Tombstone, |_| ValueKind::Put);
                    before.insert(key, sequence, value);
                    if stripes.decide(&name(key), sequence, kind).keep {
                        after.insert(key, sequence, value);
                        kept += 1;
                    }
                }
            }
            for key in 0..6 {
                for at in snapshots.iter().copied().chain(published..80) {
                    let (expected, found) = (before.read(key, at), after.read(key, at));
                    prop_assert_eq!(expected, found, "{} {}", key, at);
                }
            }
            if snapshots.len() == 1 && published == 70 {
                let live = (0..6).filter_map(|key| before.read(key, 80));
                let live = live.filter(|(sequence, _)| *sequence > 9).count();
                if older.is_empty() {
                    prop_assert_eq!((kept, after.deletes.len()), (live, 0));
                }
                for delete in &after.deletes {
                    let range = (&delete.start, delete.end.as_ref());
                    let hidden = older.iter().map(|key| name(*key)).any(|key| {
                        *range.0 <= key && range.1.is_none_or(|end| key < *end)
                    });
                    prop_assert!(hidden, "{delete:?} hides nothing");
                }
            }
        }

        /// A table that counts as hidden shows nothing to any read, whichever of its keys and
        /// sequences its entries have.
        #[test]
        fn hidden_tables_show_nothing_to_any_read(
            deletes in proptest::collection::vec((0u8..6, proptest::option::of(0u8..8)), 0..12),
            (first, width) in (0u8..6, 0u8..4),
            (age, ages) in (0u64..14, 0u64..4),
            snapshots in proptest::collection::btree_set(0u64..16, 1..4),
        ) {
            let delete = |(sequence, (start, end)): (u64, (u8, Option<u8>))| {
                RangeDelete { start: name(start), end: end.map(name), sequence }
            };
            let deletes: Vec<_> = (1..).zip(deletes).map(delete).collect();
            let snapshots: Vec<_> = snapshots.into_iter().collect();
            let last = first + width;
            let levels = drawn_levels(&format!("L5: 1[{first}..{last}]^{age}@{}", age + ages));
            let stripes = SnapshotStripes::new(&snapshots, KeysBelow::default(), &deletes);
            if stripes.covers_table(&levels[5][0]) {
                let all = RangeDeletes::fragmented(&deletes, &[]);
                let published = *snapshots.last().unwrap();
                for at in snapshots.iter().copied().chain(published..20) {
                    for key in first..=last {
                        let newest = (age + ages).min(at);
                        let hidden = at < age || all.covering(&name(key), at) > newest;
                        prop_assert!(hidden, "{} {}", key, at);
                    }
                }
            }
        }
    }

    #[test]
    fn tables_under_newer_deletes_are_hidden() {
        let delete = |start: &str, end: Option<&str>, sequence| RangeDelete {
            start: start.into(),
            end: end.map(Into::into),
            sequence,
        };
        // The table has keys from d to g and sequences from 5 to 7.
        let is_hidden = |deletes: &[RangeDelete], snapshots: &[u64]| {
            let levels = drawn_levels("L1: 1[d..g]^5@7");
            let below = KeysBelow::default();
            SnapshotStripes::new(snapshots, below, deletes).covers_table(&levels[1][0])
        };
        let one = [delete("d", Some("h"), 8)];
        assert!(is_hidden(&one, &[9]) && is_hidden(&one, &[8]));
        // A snapshot before all of the table, one that sees it, and one after the delete.
        assert!(is_hidden(&one, &[4, 9]) && is_hidden(&one, &[8, 9]));
        assert!(!is_hidden(&one, &[5, 9]) && !is_hidden(&one, &[7, 9]));
        assert!(!is_hidden(&one, &[7]) && !is_hidden(&one, &[]), "not published");
        assert!(!is_hidden(&[delete("d", Some("h"), 7)], &[9]), "not newer");
        assert!(!is_hidden(&[delete("d", Some("g"), 8)], &[9]), "not the last key");
        assert!(!is_hidden(&[delete("da", None, 8)], &[9]), "not the first key");
        let several = [delete("a", Some("e"), 9), delete("e", Some("f"), 8), delete("f", None, 8)];
        assert!(is_hidden(&several, &[9]) && !is_hidden(&several[..2], &[9]));
    }

    #[test]
    fn needed_range_deletes_are_kept() {
        let kept = |deletes: &[u64], snapshots: &[u64], below: KeysBelow| -> Vec<u64> {
            let delete = |&sequence: &u64| RangeDelete {
                start: b"d".to_vec(),
                end: Some(b"g".to_vec()),
                sequence,
            };
            let deletes: Vec<_> = deletes.iter().map(delete).collect();
            let kept = SnapshotStripes::new(snapshots, below, &deletes).kept_deletes();
            kept.deletes().map(|delete| delete.sequence).collect()
        };
        let nothing = KeysBelow::default;
        assert_eq!(kept(&[5, 4], &[9], nothing()), [] as [u64; 0]);
        assert_eq!(kept(&[5, 4], &[9], below("L3: 1[a..d]")), [5]);
        assert_eq!(kept(&[5, 4], &[9], below("L3: 1[a..c] 2[f..z]")), [5]);
        assert_eq!(kept(&[5, 4], &[9], below("L3: 1[a..c] 2[g..z]")), [] as [u64; 0]);
        assert_eq!(kept(&[5, 4], &[9], below("L0: 1[k..l] 2[e..e]")), [5]);
        // The snapshot at 4 may need entries that the delete at 5 hides from others.
        assert_eq!(kept(&[5, 4], &[4, 9], nothing()), [5]);
        assert_eq!(kept(&[5, 4], &[4, 9], below("L3: 1[a..d]")), [5, 4]);
        assert_eq!(kept(&[5, 4], &[3], nothing()), [5, 4], "not published");
        assert_eq!(kept(&[5, 4], &[], nothing()), [5, 4]);
    }
}
