//! Range deletes: which keys they hide, and from which reads.
//!
//! A [`RangeDelete`] hides each entry of its range that has a smaller sequence. [`RangeDeletes`]
//! are those of one table, cut into *fragments*: ranges that are sorted and share no key, each with
//! the sequences of the deletes that cover it. A read at sequence `at` asks a fragment for the
//! newest sequence up to `at`, its *covering* sequence: older entries of the range are deleted for
//! that read. So a lookup is one binary search, however the deletes overlapped.
//!
//! Fragments of a job keep one sequence for each snapshot stripe (`jobs/rewrite/stripes.rs`): two
//! deletes that the same snapshots see hide the same entries as the newer one alone. So `n` nested
//! deletes make at most `2n` sequences without snapshots, not `n * n`.
//!
//! The encoding, one block of a table:
//!
//! ```text
//! deletes  := count: varint  fragment*
//! fragment := start: length-prefixed  end: length-prefixed  sequences
//! sequences := count: varint  newest: varint  (difference to the next older: varint)*
//! ```
//!
//! A range contains its start and not its end. An empty end means no end: no range ends before the
//! empty key.

use crate::base::coding::{Decoder, put_length_prefixed, put_varint};
use crate::base::key::{KEY_BYTES_MAX, SEQUENCE_MAX, SequenceNumber};
use std::collections::BTreeMap;

/// The longest bound of a range: the key after the longest one has a zero byte more.
pub(crate) const RANGE_BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// One deleted range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    /// The first key.
    pub start: Vec<u8>,
    /// The key after the range; `None` if it has no end.
    pub end: Option<Vec<u8>>,
    /// Entries with smaller sequences are deleted.
    pub sequence: SequenceNumber,
}

impl RangeDelete {
    /// The keys around `key` that it covers as it covers `key`: all or none.
    #[must_use]
    pub(crate) fn window(&self, key: &[u8]) -> Window {
        if key < &self.start[..] {
            return Window { until: Some(self.start.clone()), ..Window::default() };
        }
        match &self.end {
            Some(end) if &end[..] <= key => Window { from: end.clone(), ..Window::default() },
            end => Window { from: self.start.clone(), until: end.clone(), covering: self.sequence },
        }
    }
}

/// A range of keys, and the sequences of the deletes that cover all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The first key.
    pub start: Vec<u8>,
    /// The key after the range; `None` if it has no end.
    pub end: Option<Vec<u8>>,
    /// Descending; never empty.
    pub sequences: Vec<SequenceNumber>,
}

impl Fragment {
    /// The newest sequence up to `at`; 0 if all are newer. Sequences count from 1, and an entry is
    /// deleted if its own is smaller: so 0 deletes nothing.
    #[must_use]
    pub(crate) fn covering(&self, at: SequenceNumber) -> SequenceNumber {
        let newer = self.sequences.partition_point(|sequence| *sequence > at);
        self.sequences.get(newer).copied().unwrap_or(0)
    }

    /// Bytes of its encoding, at most.
    #[must_use]
    pub(crate) fn encoded_bytes(&self) -> u64 {
        let bounds = self.start.len() + self.end.as_ref().map_or(0, Vec::len);
        // The lengths of the bounds take three bytes each, and a sequence eight.
        (bounds + 2 * 3 + 8 + 8 * self.sequences.len()) as u64
    }

    /// True if the range ends at `key` or before it.
    #[must_use]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_some_and(|end| end <= key)
    }
}

/// Keys from `from` on and below `until` that have one covering sequence for some read. It stays
/// true for that read: later deletes have larger sequences than it reads at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// The first key.
    pub from: Vec<u8>,
    /// The key after the window; `None` if it has no end.
    pub until: Option<Vec<u8>>,
    /// Entries with smaller sequences are deleted; 0 deletes none.
    pub covering: SequenceNumber,
}

impl Window {
    /// Keeps the keys of `other`, a window of other deletes around the same key: both together
    /// cover these keys alike.
    pub(crate) fn narrow(&mut self, other: Window) {
        if other.from > self.from {
            self.from = other.from;
        }
        if other.until.is_some() && (self.until.is_none() || other.until < self.until) {
            self.until = other.until;
        }
        self.covering = self.covering.max(other.covering);
    }

    /// True if `key` lies in the window.
    #[must_use]
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        &self.from[..] <= key && self.until.as_deref().is_none_or(|until| key < until)
    }
}

/// The range deletes of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeDeletes {
    fragments: Vec<Fragment>,
}

impl RangeDeletes {
    /// Without fragments.
    pub(crate) const NONE: RangeDeletes = RangeDeletes { fragments: Vec::new() };

    /// The fragments of `deletes`, which may overlap and come in any order. `snapshots` ascend and
    /// end with the published sequence, as for a job: of the deletes that the same snapshots see,
    /// the newest stays. Without snapshots all sequences stay.
    #[must_use]
    pub(crate) fn fragmented(deletes: &[RangeDelete], snapshots: &[SequenceNumber]) -> Self {
        let mut borders: Vec<(&[u8], bool, SequenceNumber)> = Vec::with_capacity(2 * deletes.len());
        for delete in deletes {
            if delete.end.as_deref().is_some_and(|end| end <= &delete.start[..]) {
                continue;
            }
            borders.push((&delete.start, true, delete.sequence));
            borders.extend(delete.end.as_deref().map(|end| (end, false, delete.sequence)));
        }
        borders.sort_unstable();
        let mut fragments = RangeDeletes::default();
        // The deletes around the current key, each with the number of its ranges that are open.
        let mut open: BTreeMap<SequenceNumber, usize> = BTreeMap::new();
        let mut rest = &borders[..];
        while let Some(&(start, ..)) = rest.first() {
            let here = rest.iter().take_while(|(key, ..)| *key == start).count();
            for (_, begins, sequence) in &rest[..here] {
                let ranges = open.entry(*sequence).or_default();
                // No range is empty: each one begins at an earlier key than it ends.
                if *begins {
                    *ranges += 1
                } else {
                    *ranges -= 1
                }
                if *ranges == 0 {
                    open.remove(sequence);
                }
            }
            rest = &rest[here..];
            let end = rest.first().map(|(key, ..)| key.to_vec());
            let sequences = newest_of_stripes(&open, snapshots);
            fragments.push(Fragment { start: start.to_vec(), end, sequences });
        }
        fragments
    }

    /// Adds a fragment after all others; joins it with the last one if they touch and are covered
    /// alike. One without sequences adds nothing.
    pub(crate) fn push(&mut self, fragment: Fragment) {
        if fragment.sequences.is_empty() {
            return;
        }
        if let Some(last) = self.fragments.last_mut()
            && last.end.as_ref() == Some(&fragment.start)
            && last.sequences == fragment.sequences
        {
            last.end = fragment.end;
            return;
        }
        debug_assert!(self.fragments.last().is_none_or(|last| last.ends_before(&fragment.start)));
        self.fragments.push(fragment);
    }

    /// The fragments, in the order of their keys.
    #[must_use]
    pub(crate) fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// True if all fragments end at `key` or before it.
    #[must_use]
    pub(crate) fn end_before(&self, key: &[u8]) -> bool {
        self.fragments.last().is_none_or(|last| last.ends_before(key))
    }

    /// True if a fragment begins before `bound`.
    #[must_use]
    pub(crate) fn begin_before(&self, bound: &[u8]) -> bool {
        self.fragments.first().is_some_and(|first| &first.start[..] < bound)
    }

    /// True without fragments.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The sequence up to which entries of `key` are deleted for a read at `at`; 0 if none is.
    #[must_use]
    pub(crate) fn covering(&self, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let fragment = self.fragments.get(self.place(key));
        let fragment = fragment.filter(|fragment| &fragment.start[..] <= key);
        fragment.map_or(0, |fragment| fragment.covering(at))
    }

    /// The keys around `key` that have the same covering sequence for a read at `at`.
    #[must_use]
    pub(crate) fn window(&self, key: &[u8], at: SequenceNumber) -> Window {
        let place = self.place(key);
        match self.fragments.get(place) {
            Some(fragment) if &fragment.start[..] <= key => Window {
                from: fragment.start.clone(),
                until: fragment.end.clone(),
                covering: fragment.covering(at),
            },
            next => {
                let before = place.checked_sub(1).and_then(|place| self.fragments.get(place));
                Window {
                    from: before.and_then(|before| before.end.clone()).unwrap_or_default(),
                    until: next.map(|next| next.start.clone()),
                    covering: 0,
                }
            }
        }
    }

    /// The end of the keys from `key` on that all have a covering sequence for a read at `at`:
    /// `Some(None)` if there is no end, `None` if `key` itself has none.
    #[must_use]
    pub(crate) fn covered_until(&self, key: &[u8], at: SequenceNumber) -> Option<Option<&[u8]>> {
        let mut run = self.fragments[self.place(key)..].iter();
        let covers = |fragment: &&Fragment| fragment.covering(at) > 0;
        let mut last = run.next().filter(|first| &first.start[..] <= key).filter(covers)?;
        while let Some(end) = &last.end
            && let Some(next) = run.next().filter(|next| next.start == *end).filter(covers)
        {
            last = next;
        }
        Some(last.end.as_deref())
    }

    /// The first of the keys before `bound` that all have a covering sequence for a read at `at`;
    /// `None` if the keys just before it have none.
    #[must_use]
    pub(crate) fn covered_before(&self, bound: &[u8], at: SequenceNumber) -> Option<&[u8]> {
        let starts_before = |fragment: &Fragment| &fragment.start[..] < bound;
        let place = self.fragments.partition_point(starts_before).checked_sub(1)?;
        let covers = |fragment: &&Fragment| fragment.covering(at) > 0;
        let mut first = self.fragments.get(place).filter(covers)?;
        if first.end.as_deref().is_some_and(|end| end < bound) {
            return None;
        }
        for before in self.fragments[..place].iter().rev() {
            if before.end.as_ref() != Some(&first.start) || !covers(&before) {
                break;
            }
            first = before;
        }
        Some(&first.start)
    }

    /// The part of the range from `start` to `end`, without the end itself. Without an end the
    /// range has all keys from `start` on.
    #[must_use]
    pub(crate) fn clipped(&self, start: &[u8], end: Option<&[u8]>) -> RangeDeletes {
        let mut clipped = RangeDeletes::default();
        for fragment in &self.fragments[self.place(start)..] {
            let from = start.max(&fragment.start);
            if end.is_some_and(|end| end <= from) {
                break;
            }
            let ends = [fragment.end.as_deref(), end];
            clipped.push(Fragment {
                start: from.to_vec(),
                end: ends.into_iter().flatten().min().map(<[u8]>::to_vec),
                sequences: fragment.sequences.clone(),
            });
        }
        clipped
    }

    /// The fragments as deletes, which cover each other nowhere unless their ranges are equal.
    pub(crate) fn deletes(&self) -> impl Iterator<Item = RangeDelete> {
        self.fragments.iter().flat_map(|Fragment { start, end, sequences }| {
            let delete = |sequence: &_| (start.clone(), end.clone(), *sequence);
            let deletes = sequences.iter().map(delete);
            deletes.map(|(start, end, sequence)| RangeDelete { start, end, sequence })
        })
    }

    /// How many sequences the fragments have together.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.fragments.iter().map(|fragment| fragment.sequences.len() as u64).sum()
    }

    /// The smallest and the largest sequence; `None` without fragments.
    #[must_use]
    pub(crate) fn sequences(&self) -> Option<(SequenceNumber, SequenceNumber)> {
        let all = || self.fragments.iter().flat_map(|fragment| &fragment.sequences);
        Some((*all().min()?, *all().max()?))
    }

    /// About how many bytes of memory they take.
    #[must_use]
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = |fragment: &Fragment| {
            let end = fragment.end.as_ref().map_or(0, Vec::capacity);
            let sequences = fragment.sequences.capacity() * size_of::<SequenceNumber>();
            (size_of::<Fragment>() + fragment.start.capacity() + end + sequences) as u64
        };
        self.fragments.iter().map(bytes).sum()
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) {
        put_varint(dst, self.fragments.len() as u64);
        for Fragment { start, end, sequences } in &self.fragments {
            put_length_prefixed(dst, start);
            put_length_prefixed(dst, end.as_deref().unwrap_or_default());
            put_varint(dst, sequences.len() as u64);
            let mut above = None;
            for sequence in sequences {
                put_varint(dst, above.map_or(*sequence, |above| above - sequence));
                above = Some(*sequence);
            }
        }
    }

    /// Decodes a whole block and checks all of it. The error says what is wrong; the caller adds
    /// the place.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "a block of range deletes that ends early".to_string();
        let mut decoder = Decoder::new(bytes);
        let count = decoder.varint().ok_or_else(cut)?;
        let mut deletes = RangeDeletes::default();
        for _ in 0..count {
            let fragment = decode_fragment(&mut decoder).ok_or_else(cut)??;
            if deletes.fragments.last().is_some_and(|last| !last.ends_before(&fragment.start)) {
                return Err("range deletes that are not in the order of their keys".into());
            }
            deletes.fragments.push(fragment);
        }
        if !decoder.is_empty() {
            return Err("a block of range deletes with bytes after its end".into());
        }
        Ok(deletes)
    }

    /// The first fragment that does not end at `key` or before it.
    fn place(&self, key: &[u8]) -> usize {
        self.fragments.partition_point(|fragment| fragment.ends_before(key))
    }
}

/// Of the deletes `open` those that some snapshot needs, newest first.
fn newest_of_stripes(
    open: &BTreeMap<SequenceNumber, usize>,
    snapshots: &[SequenceNumber],
) -> Vec<SequenceNumber> {
    // Above the last snapshot another one may still be taken between any two.
    let unpublished = snapshots.last().map_or(0, |last| last + 1);
    let mut kept: Vec<_> = open.range(unpublished..).rev().map(|(sequence, _)| *sequence).collect();
    for snapshot in snapshots.iter().rev() {
        let newest = open.range(..=snapshot).next_back().map(|(sequence, _)| *sequence);
        kept.extend(newest.filter(|newest| kept.last() != Some(newest)));
    }
    kept
}

/// The next fragment; `None` if the bytes end before it does.
fn decode_fragment(decoder: &mut Decoder<'_>) -> Option<Result<Fragment, String>> {
    let start = decoder.length_prefixed()?;
    let end = decoder.length_prefixed()?;
    let count = decoder.varint()?;
    if start.len().max(end.len()) > RANGE_BOUND_BYTES_MAX {
        return Some(Err("a range delete whose bound is too long".into()));
    }
    let end = Some(end).filter(|end| !end.is_empty());
    if end.is_some_and(|end| end <= start) {
        return Some(Err("a range delete that ends before its start".into()));
    }
    let mut sequences = vec![decoder.varint()?];
    for _ in 1..count {
        let older = decoder.varint()?;
        let above = sequences.last().copied().unwrap_or_default();
        sequences.push(above.checked_sub(older).filter(|sequence| *sequence < above).unwrap_or(0));
    }
    if count == 0 || sequences.iter().any(|sequence| !(1..=SEQUENCE_MAX).contains(sequence)) {
        return Some(Err("a range delete with impossible sequences".into()));
    }
    Some(Ok(Fragment { start: start.to_vec(), end: end.map(<[u8]>::to_vec), sequences }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: SequenceNumber = 60;

    fn drawn() -> impl Strategy<Value = Vec<RangeDelete>> {
        let key = || proptest::collection::vec(0u8..4, 0..3);
        let end = proptest::option::weighted(0.9, proptest::collection::vec(0u8..5, 1..3));
        proptest::collection::vec((key(), end), 0..12).prop_map(|ranges| {
            let numbered = (1..).zip(ranges);
            numbered.map(|(n, (start, end))| RangeDelete { start, end, sequence: 3 * n }).collect()
        })
    }

    /// The keys that bounds of `drawn` can tell apart.
    fn keys() -> Vec<Vec<u8>> {
        let long = (0u8..6).flat_map(|a| (0u8..6).map(move |b| vec![a, b]));
        let mut keys: Vec<_> = long.chain((0u8..6).map(|a| vec![a])).chain([vec![]]).collect();
        keys.extend(keys.clone().iter().map(|key| [&key[..], &[0]].concat()));
        keys.sort_unstable();
        keys
    }

    fn covering(deletes: &[RangeDelete], key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let covers = |delete: &&RangeDelete| {
            &delete.start[..] <= key
                && delete.end.as_deref().is_none_or(|end| key < end)
                && delete.sequence <= at
        };
        deletes.iter().filter(covers).map(|delete| delete.sequence).max().unwrap_or(0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn fragments_cover_what_their_deletes_do(deletes in drawn(), at in 0..AT) {
            let fragments = RangeDeletes::fragmented(&deletes, &[]);
            for key in keys() {
                let expected = covering(&deletes, &key, at);
                prop_assert_eq!(fragments.covering(&key, at), expected);
                let window = fragments.window(&key, at);
                prop_assert!(window.holds(&key) && window.covering == expected);
                for other in keys().iter().filter(|other| window.holds(other)) {
                    prop_assert_eq!(covering(&deletes, other, at), expected);
                }
            }
            let back: Vec<_> = fragments.deletes().collect();
            prop_assert_eq!(&RangeDeletes::fragmented(&back, &[]), &fragments);
            prop_assert_eq!(back.len() as u64, fragments.count());
            let mut bytes = Vec::new();
            fragments.encode(&mut bytes);
            let sum: u64 = fragments.fragments().iter().map(Fragment::encoded_bytes).sum();
            prop_assert!(bytes.len() as u64 <= 10 + sum);
            prop_assert_eq!(RangeDeletes::decode(&bytes), Ok(fragments));
        }

        #[test]
        fn covered_runs_end_where_a_key_is_bare(deletes in drawn(), at in 0..AT) {
            let fragments = RangeDeletes::fragmented(&deletes, &[]);
            let keys = keys();
            let is_covered = |key: &Vec<u8>| covering(&deletes, key, at) > 0;
            for (place, key) in keys.iter().enumerate() {
                let until = fragments.covered_until(key, at);
                let from = fragments.covered_before(&[key, &[0][..]].concat(), at);
                prop_assert_eq!(until.is_some(), is_covered(key));
                prop_assert_eq!(from.is_some(), is_covered(key));
                let before = fragments.covered_before(key, at);
                prop_assert!(before.is_none_or(|before| before < &key[..]));
                let within = |other: &&Vec<u8>| {
                    *other < key && before.is_some_and(|before| before <= &other[..])
                };
                prop_assert!(keys[..place].iter().filter(within).all(is_covered));
                let (Some(until), Some(from)) = (until, from) else { continue };
                let first_bare = keys[place..].iter().find(|key| !is_covered(key));
                prop_assert_eq!(until, first_bare.map(|key| &key[..]));
                let bare = keys[..place].iter().rposition(|key| !is_covered(key));
                prop_assert_eq!(from, &keys[bare.map_or(0, |bare| bare + 1)][..]);
            }
        }

        /// Thinned by stripes, every snapshot and every later read sees what it did.
        #[test]
        fn snapshots_see_thinned_fragments_alike(
            deletes in drawn(),
            snapshots in proptest::collection::btree_set(0..AT, 1..4),
        ) {
            let snapshots: Vec<_> = snapshots.into_iter().collect();
            let thinned = RangeDeletes::fragmented(&deletes, &snapshots);
            let published = snapshots[snapshots.len() - 1];
            for at in snapshots.iter().copied().chain(published..AT) {
                for key in keys() {
                    prop_assert_eq!(thinned.covering(&key, at), covering(&deletes, &key, at));
                }
            }
            let newer = deletes.iter().filter(|delete| delete.sequence > published).count();
            for fragment in thinned.fragments() {
                prop_assert!(fragment.sequences.len() <= snapshots.len() + newer);
            }
        }

        #[test]
        fn clipped_fragments_cover_their_part(
            deletes in drawn(),
            (start, end) in (0usize..84, 0usize..100),
        ) {
            let keys = keys();
            let fragments = RangeDeletes::fragmented(&deletes, &[]);
            let (start, end) = (&keys[start][..], keys.get(end).map(|key| &key[..]));
            let clipped = fragments.clipped(start, end);
            for key in &keys {
                let inside = start <= &key[..] && end.is_none_or(|end| &key[..] < end);
                let expected = if inside { fragments.covering(key, AT) } else { 0 };
                prop_assert_eq!(clipped.covering(key, AT), expected);
            }
        }

        #[test]
        fn damaged_encodings_never_panic(
            deletes in drawn(),
            at: proptest::sample::Index,
            bit in 0u32..8,
            cut: bool,
        ) {
            let mut bytes = Vec::new();
            RangeDeletes::fragmented(&deletes, &[]).encode(&mut bytes);
            let at = at.index(bytes.len());
            if cut {
                prop_assert!(RangeDeletes::decode(&bytes[..at]).is_err());
            }
            bytes[at] ^= 1 << bit;
            let _ = RangeDeletes::decode(&bytes);
        }
    }

    #[test]
    fn nested_deletes_make_few_sequences() {
        let nested = |n: u64| RangeDelete {
            start: format!("{n:06}").into_bytes(),
            end: Some(format!("{:06}", 100_000 - n).into_bytes()),
            sequence: n + 1,
        };
        let deletes: Vec<_> = (0..20_000).map(nested).collect();
        let fragments = RangeDeletes::fragmented(&deletes, &[20_000]);
        assert_eq!(fragments.count(), 39_999);
        assert!(fragments.memory_bytes() > 39_999 * 16);
        assert_eq!(fragments.sequences(), Some((1, 20_000)));
    }

    #[test]
    fn impossible_fragments_are_refused() {
        let fragment = |start: &[u8], end: Option<&[u8]>, sequences: &[u64]| Fragment {
            start: start.to_vec(),
            end: end.map(<[u8]>::to_vec),
            sequences: sequences.to_vec(),
        };
        let refusal = |fragments: Vec<Fragment>| {
            let mut bytes = Vec::new();
            RangeDeletes { fragments }.encode(&mut bytes);
            RangeDeletes::decode(&bytes).unwrap_err()
        };
        let long = vec![7; RANGE_BOUND_BYTES_MAX + 1];
        assert!(refusal(vec![fragment(b"b", Some(b"b"), &[5])]).contains("ends before"));
        assert!(refusal(vec![fragment(b"b", Some(&long), &[5])]).contains("too long"));
        assert!(refusal(vec![fragment(b"b", None, &[0])]).contains("impossible"));
        assert!(refusal(vec![fragment(b"b", None, &[5, 5])]).contains("impossible"));
        assert!(refusal(vec![fragment(b"b", None, &[1 << 56])]).contains("impossible"));
        let endless = fragment(b"a", None, &[5]);
        assert!(refusal(vec![endless, fragment(b"b", None, &[5])]).contains("order"));
        assert!(RangeDeletes::decode(&[0, 0]).unwrap_err().contains("after its end"));
    }
}
