//! Range deletes: which keys they cover, and for which reads.
//!
//! A [`RangeDelete`] covers each entry of its range that has a smaller sequence. [`RangeDeletes`]
//! is the *fragmented list* of some of them: ranges that are sorted and share no key, each with the
//! sequences of the deletes that cover it. A read at sequence `at` asks a fragment for the newest
//! sequence up to `at`, its *covering* sequence: older entries of the range are deleted for that
//! read. So a lookup is one search, however the deletes overlapped.
//!
//! Tables, jobs and memtables have the same list, and differ in the sequences that they keep. A
//! job keeps one for each snapshot stripe (`jobs/rewrite/stripes.rs`): two deletes that the same
//! snapshots see cover the same entries as the newer one alone. A memtable keeps the newest alone
//! (`memtable/range_deletes.rs`). So `n` nested deletes make at most `2n` sequences, not `n * n`.
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
use crate::base::range::KeyBounds;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

/// The longest bound of a range: the key after the longest one has a zero byte more.
pub(crate) const RANGE_BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// A range of keys that is deleted up to one sequence. Sequences count from 1, so with sequence 0
/// nothing in it is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    /// The first key.
    pub start: Vec<u8>,
    /// The key after the range; `None` if it has no end.
    pub end: Option<Vec<u8>>,
    /// Entries with smaller sequences are deleted.
    pub sequence: SequenceNumber,
}

impl RangeDelete {
    /// True if `key` lies in the range.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        &self.start[..] <= key && !ends_before(&self.end, key)
    }

    /// True if one of the two ranges begins where the other one ends.
    pub(crate) fn touches(&self, other: &RangeDelete) -> bool {
        self.end.as_ref() == Some(&other.start) || other.end.as_ref() == Some(&self.start)
    }

    /// The range around `key` that this delete covers whole, or the one that it covers nowhere.
    pub(crate) fn coverage(&self, key: &[u8]) -> RangeDelete {
        if key < &self.start[..] {
            return RangeDelete { end: Some(self.start.clone()), ..RangeDelete::default() };
        }
        match &self.end {
            Some(end) if &end[..] <= key => {
                RangeDelete { start: end.clone(), ..RangeDelete::default() }
            }
            _ => self.clone(),
        }
    }

    /// Keeps the keys of `other`, the coverage of the same key by other deletes. Both together
    /// cover these keys alike.
    pub(crate) fn intersect(&mut self, other: &RangeDelete) {
        if other.start > self.start {
            self.start.clone_from(&other.start);
        }
        if other.end.is_some() && (self.end.is_none() || other.end < self.end) {
            self.end.clone_from(&other.end);
        }
        self.sequence = self.sequence.max(other.sequence);
    }
}

/// True if a range with this end ends at `key` or before it.
fn ends_before(end: &Option<Vec<u8>>, key: &[u8]) -> bool {
    end.as_deref().is_some_and(|end| end <= key)
}

/// A range of keys, and the sequences of the deletes that cover all of it. The list has its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The key after the range; `None` if it has no end.
    pub end: Option<Vec<u8>>,
    /// Descending; never empty.
    pub sequences: Vec<SequenceNumber>,
}

impl Fragment {
    /// The newest sequence up to `at`; 0 if all are newer.
    pub(crate) fn covering(&self, at: SequenceNumber) -> SequenceNumber {
        let newer = self.sequences.partition_point(|sequence| *sequence > at);
        self.sequences.get(newer).copied().unwrap_or(0)
    }

    /// Bytes of its encoding with that start, at most.
    pub(crate) fn encoded_bytes(&self, start: &[u8]) -> u64 {
        let bounds = start.len() + self.end.as_ref().map_or(0, Vec::len);
        // The lengths of the bounds take three bytes each, and a sequence eight.
        (bounds + 2 * 3 + 8 + 8 * self.sequences.len()) as u64
    }
}

/// A fragmented list of range deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeDeletes {
    /// By first key; the ranges share no key.
    fragments: BTreeMap<Vec<u8>, Fragment>,
}

impl RangeDeletes {
    /// Without fragments.
    pub(crate) const NONE: RangeDeletes = RangeDeletes { fragments: BTreeMap::new() };

    /// The fragments of `deletes`, which may overlap and come in any order. `snapshots` ascend and
    /// end with the published sequence, as for a job: of the deletes that the same snapshots see,
    /// the newest stays. Without snapshots all sequences stay.
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
            fragments.push(start.to_vec(), Fragment { end, sequences });
        }
        fragments
    }

    /// Adds a fragment after all others; joins it with the last one if they touch and are covered
    /// alike. One without sequences adds nothing.
    pub(crate) fn push(&mut self, start: Vec<u8>, fragment: Fragment) {
        if fragment.sequences.is_empty() {
            return;
        }
        if let Some(mut last) = self.fragments.last_entry() {
            debug_assert!(ends_before(&last.get().end, &start));
            if last.get().end.as_ref() == Some(&start) && last.get().sequences == fragment.sequences
            {
                last.get_mut().end = fragment.end;
                return;
            }
        }
        self.fragments.insert(start, fragment);
    }

    /// Adds a delete that is newer than all others and has a key. Its range keeps its sequence
    /// alone.
    // It replaces every fragment in its range: spread over all inserts, each of them costs the
    // logarithm of their number.
    pub(crate) fn cover(&mut self, RangeDelete { start, end, sequence }: &RangeDelete) {
        debug_assert!(end.as_ref().is_none_or(|end| start < end));
        end.iter().for_each(|end| self.cut(end));
        self.cut(start);
        while let Some((inside, _)) = self.fragments.range::<Vec<u8>, _>(start..).next()
            && end.as_ref().is_none_or(|end| inside < end)
        {
            let inside = inside.clone();
            self.fragments.remove(&inside);
        }
        let fragment = Fragment { end: end.clone(), sequences: vec![*sequence] };
        self.fragments.insert(start.clone(), fragment);
    }

    /// Adds a delete that is newer than all others and has a key, joined with the fragments that it
    /// overlaps or touches. Of what it joins it keeps the oldest sequence alone.
    pub(crate) fn join(&mut self, delete: &RangeDelete) {
        let RangeDelete { mut start, mut end, sequence: mut oldest } = delete.clone();
        let up_to = delete.end.as_deref().map_or(Bound::Unbounded, Bound::Included);
        while let Some((first, last)) =
            self.fragments.range::<[u8], _>((Bound::Unbounded, up_to)).next_back()
            && last.end.as_ref().is_none_or(|end| delete.start <= *end)
        {
            let first = first.clone();
            let Some(last) = self.fragments.remove(&first) else { break };
            oldest = last.sequences.into_iter().fold(oldest, SequenceNumber::min);
            end = end.zip(last.end).map(|(end, last)| end.max(last));
            start = start.min(first);
        }
        self.fragments.insert(start, Fragment { end, sequences: vec![oldest] });
    }

    /// Removes the part of the list from `key` on and returns it.
    pub(crate) fn split_off(&mut self, key: &[u8]) -> RangeDeletes {
        self.cut(key);
        RangeDeletes { fragments: self.fragments.split_off(key) }
    }

    /// Cuts the fragment around `key`, so that none has keys on both sides of it.
    fn cut(&mut self, key: &[u8]) {
        let before = (Bound::Unbounded, Bound::Excluded(key));
        if let Some((_, fragment)) = self.fragments.range_mut::<[u8], _>(before).next_back()
            && !ends_before(&fragment.end, key)
        {
            let sequences = fragment.sequences.clone();
            let end = fragment.end.replace(key.to_vec());
            self.fragments.insert(key.to_vec(), Fragment { end, sequences });
        }
    }

    /// The fragments and their starts, in the order of their keys.
    pub(crate) fn fragments(&self) -> btree_map::Iter<'_, Vec<u8>, Fragment> {
        self.fragments.iter()
    }

    /// The first key of the first fragment and the end of the last one; `None` without fragments.
    pub(crate) fn span(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let (start, _) = self.fragments.first_key_value()?;
        let (_, last) = self.fragments.last_key_value()?;
        Some((start, last.end.as_deref()))
    }

    /// True if all fragments end at `key` or before it.
    pub(crate) fn end_before(&self, key: &[u8]) -> bool {
        self.fragments.last_key_value().is_none_or(|(_, last)| ends_before(&last.end, key))
    }

    /// True if a fragment begins before `bound`.
    pub(crate) fn begin_before(&self, bound: &[u8]) -> bool {
        self.fragments.first_key_value().is_some_and(|(first, _)| &first[..] < bound)
    }

    /// True without fragments.
    pub(crate) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The last fragment that begins at `key` or before it.
    #[inline]
    fn at_or_before(&self, key: &[u8]) -> Option<(&Vec<u8>, &Fragment)> {
        self.fragments.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    /// The fragments that do not end at `key` or before it.
    fn from(&self, key: &[u8]) -> btree_map::Range<'_, Vec<u8>, Fragment> {
        let around = self.at_or_before(key).filter(|(_, own)| !ends_before(&own.end, key));
        let first = around.map_or(key, |(start, _)| start);
        self.fragments.range::<[u8], _>((Bound::Included(first), Bound::Unbounded))
    }

    /// The sequence up to which entries of `key` are deleted for a read at `at`; 0 if none is.
    pub(crate) fn covering(&self, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let fragment = self.at_or_before(key).filter(|(_, own)| !ends_before(&own.end, key));
        fragment.map_or(0, |(_, fragment)| fragment.covering(at))
    }

    /// The range around `key` that has the same covering sequence for a read at `at`, and that
    /// sequence. It stays right for that read: later deletes have larger sequences than `at`.
    pub(crate) fn coverage(&self, key: &[u8], at: SequenceNumber) -> RangeDelete {
        let before = self.at_or_before(key);
        match before {
            Some((start, own)) if !ends_before(&own.end, key) => RangeDelete {
                start: start.clone(),
                end: own.end.clone(),
                sequence: own.covering(at),
            },
            _ => {
                let after = (Bound::Excluded(key), Bound::Unbounded);
                let next = self.fragments.range::<[u8], _>(after).next();
                RangeDelete {
                    start: before.and_then(|(_, before)| before.end.clone()).unwrap_or_default(),
                    end: next.map(|(start, _)| start.clone()),
                    sequence: 0,
                }
            }
        }
    }

    /// Moves the end of `range` past the keys that follow it and have a covering sequence above
    /// `above` for a read at `at`. False if there are none.
    pub(crate) fn extend_end(
        &self,
        range: &mut RangeDelete,
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> bool {
        let Some(first) = range.end.take() else { return false };
        let mut end = Some(&first[..]);
        for (start, fragment) in self.from(&first) {
            let touches = end.is_some_and(|end| &start[..] <= end);
            if !touches || fragment.covering(at) <= above {
                break;
            }
            end = fragment.end.as_deref();
        }
        range.end = end.map(<[u8]>::to_vec);
        range.end.as_ref() != Some(&first)
    }

    /// Moves the start of `range` before the keys that come before it, as
    /// [`extend_end`](Self::extend_end).
    pub(crate) fn extend_start(
        &self,
        range: &mut RangeDelete,
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> bool {
        let mut first = &range.start[..];
        let before = (Bound::Unbounded, Bound::Excluded(first));
        for (start, fragment) in self.fragments.range::<[u8], _>(before).rev() {
            let touches = fragment.end.as_deref().is_none_or(|end| first <= end);
            if !touches || fragment.covering(at) <= above {
                break;
            }
            first = start;
        }
        let first = first.to_vec();
        std::mem::replace(&mut range.start, first) != range.start
    }

    /// A key of `bounds` that a delete above `since` covers.
    pub(crate) fn newer_within(
        &self,
        bounds: &KeyBounds,
        since: SequenceNumber,
    ) -> Option<Vec<u8>> {
        let start = &bounds.start[..];
        let shared = self.from(start).map(|(first, own)| ((&first[..]).max(start), own));
        let mut shared = shared.take_while(|(key, _)| bounds.is_before_end(key));
        let newer = shared.find(|(_, own)| own.covering(SequenceNumber::MAX) > since);
        newer.map(|(key, _)| key.to_vec())
    }

    /// The fragments as deletes, which cover each other nowhere unless their ranges are equal.
    pub(crate) fn deletes(&self) -> impl Iterator<Item = RangeDelete> {
        self.fragments.iter().flat_map(|(start, Fragment { end, sequences })| {
            let delete = |sequence: &_| (start.clone(), end.clone(), *sequence);
            let deletes = sequences.iter().map(delete);
            deletes.map(|(start, end, sequence)| RangeDelete { start, end, sequence })
        })
    }

    /// How many sequences the fragments have together.
    pub(crate) fn count(&self) -> u64 {
        self.fragments.values().map(|fragment| fragment.sequences.len() as u64).sum()
    }

    /// The smallest and the largest sequence; `None` without fragments.
    pub(crate) fn sequences(&self) -> Option<(SequenceNumber, SequenceNumber)> {
        let all = || self.fragments.values().flat_map(|fragment| &fragment.sequences);
        Some((*all().min()?, *all().max()?))
    }

    /// About how many bytes of memory they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = |(start, fragment): (&Vec<u8>, &Fragment)| {
            let end = fragment.end.as_ref().map_or(0, Vec::capacity);
            let sequences = fragment.sequences.capacity() * size_of::<SequenceNumber>();
            (size_of::<(Vec<u8>, Fragment)>() + start.capacity() + end + sequences) as u64
        };
        self.fragments.iter().map(bytes).sum()
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) {
        put_varint(dst, self.fragments.len() as u64);
        for (start, Fragment { end, sequences }) in &self.fragments {
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
            let (start, fragment) = decode_fragment(&mut decoder).ok_or_else(cut)??;
            let last = deletes.fragments.last_key_value();
            if last.is_some_and(|(_, last)| !ends_before(&last.end, &start)) {
                return Err("range deletes that are not in the order of their keys".into());
            }
            deletes.fragments.insert(start, fragment);
        }
        if !decoder.is_empty() {
            return Err("a block of range deletes with bytes after its end".into());
        }
        Ok(deletes)
    }
}

impl IntoIterator for RangeDeletes {
    type Item = (Vec<u8>, Fragment);
    type IntoIter = btree_map::IntoIter<Vec<u8>, Fragment>;

    fn into_iter(self) -> Self::IntoIter {
        self.fragments.into_iter()
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
    // Each step leaves out the snapshots that see the same delete: there may be thousands of them,
    // and this is asked at each border.
    let mut rest = snapshots;
    while let Some(last) = rest.last()
        && let Some((newest, _)) = open.range(..=last).next_back()
    {
        kept.push(*newest);
        rest = &rest[..rest.partition_point(|snapshot| snapshot < newest)];
    }
    kept
}

/// The next fragment and its start; `None` if the bytes end before it does.
fn decode_fragment(decoder: &mut Decoder<'_>) -> Option<Result<(Vec<u8>, Fragment), String>> {
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
    Some(Ok((start.to_vec(), Fragment { end: end.map(<[u8]>::to_vec), sequences })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::range::KeyRange;
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
        keys.dedup();
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
                let coverage = fragments.coverage(&key, at);
                prop_assert!(coverage.contains(&key) && coverage.sequence == expected);
                for other in keys().iter().filter(|other| coverage.contains(other)) {
                    prop_assert_eq!(covering(&deletes, other, at), expected);
                }
            }
            let back: Vec<_> = fragments.deletes().collect();
            prop_assert_eq!(&RangeDeletes::fragmented(&back, &[]), &fragments);
            prop_assert_eq!(back.len() as u64, fragments.count());
            let mut bytes = Vec::new();
            fragments.encode(&mut bytes);
            let each = fragments.fragments();
            let sum: u64 = each.map(|(start, own)| own.encoded_bytes(start)).sum();
            prop_assert!(bytes.len() as u64 <= 10 + sum);
            prop_assert_eq!(RangeDeletes::decode(&bytes), Ok(fragments));
        }

        /// Deletes that come one by one, and the oldest sequence of each run.
        #[test]
        fn joined_deletes_cover_their_runs(deletes in drawn(), above in 0..AT) {
            let (mut runs, all) = (RangeDeletes::default(), RangeDeletes::fragmented(&deletes, &[]));
            let sound = |own: &&RangeDelete| own.end.as_ref().is_none_or(|end| own.start < *end);
            deletes.iter().filter(sound).for_each(|delete| runs.join(delete));
            let keys = keys();
            for key in &keys {
                let at_key = || RangeDelete { start: key.clone(), end: Some(key.clone()), sequence: 0 };
                let (mut run, mut covered) = (at_key(), at_key());
                let is_run = runs.extend_end(&mut run, AT, 0);
                prop_assert_eq!(is_run, all.extend_end(&mut covered, AT, 0));
                prop_assert_eq!(&run.end, &covered.end);
                runs.extend_start(&mut run, AT, 0);
                all.extend_start(&mut covered, AT, 0);
                prop_assert_eq!(&run.start, &covered.start);
                // Lower bound: no key of the run has only older deletes.
                let mut newer = at_key();
                if runs.extend_end(&mut newer, AT, above) {
                    let mut inside = keys.iter().filter(|own| newer.contains(own));
                    prop_assert!(inside.all(|own| covering(&deletes, own, AT) > above));
                }
            }
        }

        /// Deletes that come one by one, and the newest sequence alone.
        #[test]
        fn newer_deletes_cover_older_ones(deletes in drawn(), since in 0..AT) {
            let mut newest = RangeDeletes::default();
            let sound = |own: &&RangeDelete| own.end.as_ref().is_none_or(|end| own.start < *end);
            deletes.iter().filter(sound).for_each(|delete| newest.cover(delete));
            prop_assert!(newest.count() <= 2 * deletes.len() as u64);
            let keys = keys();
            for key in &keys {
                prop_assert_eq!(newest.covering(key, AT), covering(&deletes, key, AT));
            }
            for keys in keys.windows(7) {
                let range = (&keys[0]..=&keys[6]).into_bounds();
                let found = newest.newer_within(&range, since);
                let first = keys.iter().find(|key| covering(&deletes, key, AT) > since);
                prop_assert_eq!(found.as_ref(), first);
            }
        }

        #[test]
        fn covered_ranges_end_at_an_uncovered_key(
            deletes in drawn(),
            at in 0..AT,
            above in prop_oneof![Just(0), 0..AT],
        ) {
            let fragments = RangeDeletes::fragmented(&deletes, &[]);
            let keys = keys();
            let is_covered = |key: &Vec<u8>| covering(&deletes, key, at) > above;
            for (position, key) in keys.iter().enumerate() {
                let at_key = || RangeDelete { start: key.clone(), end: Some(key.clone()), sequence: 0 };
                let (mut up, mut down) = (at_key(), at_key());
                let has_next = fragments.extend_end(&mut up, at, above);
                prop_assert_eq!(has_next, is_covered(key));
                prop_assert_eq!(&up.start, key);
                let first_uncovered = keys[position..].iter().find(|key| !is_covered(key));
                prop_assert_eq!(up.end.as_ref(), first_uncovered);
                let has_previous = fragments.extend_start(&mut down, at, above);
                prop_assert_eq!(has_previous, down.start < *key);
                prop_assert_eq!(down.end.as_ref(), Some(key));
                let before = keys[..position].iter().rposition(|key| !is_covered(key));
                prop_assert_eq!(&down.start, &keys[before.map_or(0, |before| before + 1)]);
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
            for (_, fragment) in thinned.fragments() {
                prop_assert!(fragment.sequences.len() <= snapshots.len() + newer);
            }
        }

        #[test]
        fn split_lists_cover_their_part(deletes in drawn(), at in 0usize..79) {
            let keys = keys();
            let all = RangeDeletes::fragmented(&deletes, &[]);
            let mut before = all.clone();
            let after = before.split_off(&keys[at]);
            for (position, key) in keys.iter().enumerate() {
                let expected = all.covering(key, AT);
                let parts = [before.covering(key, AT), after.covering(key, AT)];
                prop_assert_eq!(parts, if position < at { [expected, 0] } else { [0, expected] });
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
        let fragment = |start: &[u8], end: Option<&[u8]>, sequences: &[u64]| {
            let end = end.map(<[u8]>::to_vec);
            (start.to_vec(), Fragment { end, sequences: sequences.to_vec() })
        };
        let refusal = |fragments: Vec<(Vec<u8>, Fragment)>| {
            let mut bytes = Vec::new();
            RangeDeletes { fragments: fragments.into_iter().collect() }.encode(&mut bytes);
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

    /// Older and newer snapshots than the deletes.
    #[test]
    fn fragments_take_no_square_of_the_snapshots() {
        let time = |count: u64| {
            let delete = |n: u64| RangeDelete {
                start: format!("{n:05}").into(),
                end: Some(format!("{n:05}+").into()),
                sequence: count + n,
            };
            let deletes: Vec<_> = (1..=count).map(delete).collect();
            let snapshots: Vec<_> = (1..=count).chain(2 * count + 1..=3 * count).collect();
            let started = std::time::Instant::now();
            assert_eq!(RangeDeletes::fragmented(&deletes, &snapshots).count(), count);
            started.elapsed()
        };
        let few = (0..9).map(|_| time(100)).min().unwrap();
        let many = (0..3).map(|_| time(1_600)).min().unwrap();
        // 16 times as many; the square of that is 256.
        assert!(many < 100 * few, "{few:?} and {many:?}");
    }
}
