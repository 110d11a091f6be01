//! [`MemtableRangeDeletes`]: the range deletes of a memtable, which grow while other threads read
//! them.
//!
//! Almost all reads are newer than every delete of the memtable. They ask the *skyline*: ranges
//! that share no key, each with the newest delete that covers it. A new delete has the largest
//! sequence, so it replaces every part of the skyline in its range: an insert costs the logarithm
//! of their number, spread over all inserts.
//!
//! The skyline also answers an older read, unless the newest delete of the key is newer than the
//! read. Then the read looks through the history of deletes, back from its own sequence. The
//! history is in chunks of [`CHUNK_DELETES`]. The chunk at the read's sequence is searched one by
//! one. The chunks before it are read as *blocks*: 1, 2, 4 or more chunks that follow each other,
//! cut into fragments when they are first needed and kept. A number of chunks has one block for
//! each bit of it, so a read asks few blocks, and no block is cut twice.
//!
//! *Runs* are the ranges that the deletes cover together, without regard to which delete covers
//! which part. With them a scan passes ten thousand adjacent deletes in one step.

use crate::base::key::SequenceNumber;
use crate::base::range::KeyBounds;
use crate::base::range_deletes::{RangeDelete, RangeDeletes, Window};
use crate::base::sync::plain::{Mutex, RwLock};
use crate::base::sync::{Arc, AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Deletes of a chunk of the history.
const CHUNK_DELETES: usize = 64;

/// The memory of a delete besides its keys: its places in history, skyline and runs.
const DELETE_BYTES: usize = 384;

/// How often the keys of a delete are stored at most.
const KEY_COPIES: usize = 4;

/// The range deletes of a memtable. One thread inserts, any number read.
#[derive(Default)]
pub(crate) struct MemtableRangeDeletes {
    /// How many there are.
    count: AtomicUsize,
    // No lock is held while another one is taken, or while a block is cut.
    ranges: RwLock<Ranges>,
    /// By the first chunk and the number of chunks.
    blocks: Mutex<BTreeMap<(usize, usize), Arc<RangeDeletes>>>,
}

impl MemtableRangeDeletes {
    /// About how many bytes of memory a delete takes.
    pub(crate) fn bytes_of(start: &[u8], end: Option<&[u8]>) -> usize {
        DELETE_BYTES + KEY_COPIES * (start.len() + end.map_or(0, <[u8]>::len))
    }

    /// How many there are.
    // Relaxed suffices, as for the entries of a memtable: a read that must see a delete loaded a
    // sequence that was published after this count was stored.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a delete with a larger sequence than all others. Its range has a key.
    pub(crate) fn insert(&self, delete: RangeDelete) {
        self.ranges.write().insert(delete);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// All deletes, oldest first.
    pub(crate) fn all(&self) -> Vec<RangeDelete> {
        let ranges = self.ranges.read();
        let chunks = ranges.chunks.iter().flat_map(|chunk| chunk.iter());
        chunks.chain(&ranges.last_chunk).cloned().collect()
    }

    /// A key of `bounds` that a delete above `since` covers.
    pub(crate) fn newer_within(
        &self,
        bounds: &KeyBounds,
        since: SequenceNumber,
    ) -> Option<Vec<u8>> {
        let (start, end) = bounds.half_open();
        let ranges = self.ranges.read();
        // The skyline has the newest delete of every key.
        let first = before(&ranges.skyline, &start).map(|(start, _)| start.clone());
        let from = first.unwrap_or_else(|| start.clone());
        let parts = ranges.skyline.range(from..);
        let mut parts = parts.take_while(|(first, _)| end.as_ref().is_none_or(|end| *first < end));
        let newer = parts.find(|(_, part)| {
            part.newest > since && part.end.as_ref().is_none_or(|own_end| *own_end > start)
        });
        newer.map(|(first, _)| first.clone().max(start))
    }

    /// The sequence up to which entries of `key` are deleted for a read at `at`; 0 if none is.
    // Apart from the lookup: most memtables have no range deletes.
    #[inline(never)]
    pub(crate) fn covering(&self, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let newest = self.ranges.read().part(key).map_or(0, |(_, part)| part.newest);
        if newest <= at { newest } else { self.in_history(key, at).covering }
    }

    /// The keys around `key` that have the same covering sequence for a read at `at`.
    pub(crate) fn window(&self, key: &[u8], at: SequenceNumber) -> Window {
        let window = self.ranges.read().window(key);
        if window.covering <= at { window } else { self.in_history(key, at) }
    }

    /// The end of the keys from `key` on that all have a covering sequence above `above` for a read
    /// at `at`: `Some(None)` if there is no end, `None` if `key` itself has none. Of a read that is
    /// older than some delete there may be more such keys.
    pub(crate) fn covered_until(
        &self,
        key: &[u8],
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> Option<Option<Vec<u8>>> {
        let ranges = self.ranges.read();
        let (_, run) = ranges.run(key)?;
        if run.is_between(above, at) {
            return Some(run.end.clone());
        }
        let part = ranges.part(key)?;
        if part.1.newest <= at {
            return ranges.covered_until(part, above, at);
        }
        drop(ranges);
        let window = self.in_history(key, at);
        (window.covering > above).then_some(window.until)
    }

    /// The first of the keys up to `bound`, without it, that all have a covering sequence above
    /// `above` for a read at `at`; `None` if the keys just before `bound` have none. Of a read that
    /// is older than some delete there may be such keys nevertheless.
    pub(crate) fn covered_before(
        &self,
        bound: &[u8],
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> Option<Vec<u8>> {
        let ranges = self.ranges.read();
        let (start, run) = before(&ranges.runs, bound)?;
        if reaches(&run.end, bound) && run.is_between(above, at) {
            return Some(start.clone());
        }
        let part = before(&ranges.skyline, bound).filter(|(_, part)| reaches(&part.end, bound))?;
        ranges.covered_from(part, above, at)
    }

    /// The range around `key` that the deletes up to `at` cover, from the history.
    #[cold]
    fn in_history(&self, key: &[u8], at: SequenceNumber) -> Window {
        let mut window = Window::default();
        let mut chunks = {
            let ranges = self.ranges.read();
            let last = |chunk: &Arc<[RangeDelete]>| chunk.last().map_or(0, |last| last.sequence);
            let whole = ranges.chunks.partition_point(|chunk| last(chunk) <= at);
            let cut = ranges.chunks.get(whole).map_or(&ranges.last_chunk[..], |chunk| &chunk[..]);
            for delete in cut.iter().rev().filter(|delete| delete.sequence <= at) {
                window.narrow(delete.window(key));
                if window.covering > 0 {
                    return window;
                }
            }
            whole
        };
        while chunks > 0 {
            // The lowest bit of the number has the newest block.
            let length = chunks & chunks.wrapping_neg();
            chunks -= length;
            window.narrow(self.block(chunks, length).window(key, at));
            if window.covering > 0 {
                break;
            }
        }
        window
    }

    /// The fragments of `length` chunks from the chunk `first` on. Of each fragment the newest
    /// sequence is enough: only reads that see all of them ask.
    fn block(&self, first: usize, length: usize) -> Arc<RangeDeletes> {
        let place = (first, length);
        if let Some(block) = self.blocks.lock().get(&place) {
            return Arc::clone(block);
        }
        let chunks: Vec<_> = self.ranges.read().chunks[first..first + length].to_vec();
        let deletes: Vec<_> = chunks.iter().flat_map(|chunk| chunk.iter()).cloned().collect();
        let last = deletes.last().map_or(0, |last| last.sequence);
        let block = Arc::new(RangeDeletes::fragmented(&deletes, &[last]));
        Arc::clone(self.blocks.lock().entry(place).or_insert(block))
    }
}

/// The state that the lock protects.
#[derive(Default)]
struct Ranges {
    /// By first key; the ranges share no key.
    skyline: BTreeMap<Vec<u8>, Part>,
    /// By first key; the ranges neither share a key nor touch.
    runs: BTreeMap<Vec<u8>, Run>,
    /// All deletes but those of the last chunk, oldest first.
    chunks: Vec<Arc<[RangeDelete]>>,
    /// The newest deletes, oldest first; fewer than [`CHUNK_DELETES`].
    last_chunk: Vec<RangeDelete>,
}

/// A range of the skyline.
struct Part {
    /// The key after the range; `None` if it has no end.
    end: Option<Vec<u8>>,
    /// The newest delete that covers it.
    newest: SequenceNumber,
}

/// Keys that are all covered.
struct Run {
    /// The key after the range; `None` if it has no end.
    end: Option<Vec<u8>>,
    /// No newest delete of a key of the run is older.
    oldest: SequenceNumber,
    /// No delete of the run is newer.
    newest: SequenceNumber,
}

impl Run {
    /// True if a read at `at` sees all deletes of the run, and each key has one above `above`.
    fn is_between(&self, above: SequenceNumber, at: SequenceNumber) -> bool {
        self.oldest > above && self.newest <= at
    }
}

/// True if a range with this end lies below `key`.
fn ends_before(end: &Option<Vec<u8>>, key: &[u8]) -> bool {
    end.as_deref().is_some_and(|end| end <= key)
}

/// True if a range with this end has the keys just before `bound`, or begins later.
fn reaches(end: &Option<Vec<u8>>, bound: &[u8]) -> bool {
    end.as_deref().is_none_or(|end| bound <= end)
}

/// The last entry of `map` before `key`.
fn before<'m, T>(map: &'m BTreeMap<Vec<u8>, T>, key: &[u8]) -> Option<(&'m Vec<u8>, &'m T)> {
    map.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back()
}

/// The last entry of `map` at or before `key`.
fn at_or_before<'m, T>(map: &'m BTreeMap<Vec<u8>, T>, key: &[u8]) -> Option<(&'m Vec<u8>, &'m T)> {
    map.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
}

impl Ranges {
    fn insert(&mut self, delete: RangeDelete) {
        debug_assert!(delete.end.as_ref().is_none_or(|end| delete.start < *end));
        self.cover(&delete);
        self.extend_runs(&delete);
        self.last_chunk.push(delete);
        if self.last_chunk.len() == CHUNK_DELETES {
            self.chunks.push(std::mem::take(&mut self.last_chunk).into());
        }
    }

    /// Puts `delete` into the skyline, over all older ones.
    fn cover(&mut self, RangeDelete { start, end, sequence }: &RangeDelete) {
        // What sticks out at the end of the delete keeps its own sequence.
        let mut after = None;
        let before =
            self.skyline.range_mut::<[u8], _>((Bound::Unbounded, Bound::Excluded(&start[..])));
        if let Some((_, part)) = { before }.next_back()
            && !ends_before(&part.end, start)
        {
            let newest = part.newest;
            let old_end = part.end.replace(start.clone());
            after = end
                .clone()
                .filter(|end| !ends_before(&old_end, end))
                .map(|end| (end, old_end, newest));
        }
        while let Some((inside, _)) = self.skyline.range::<Vec<u8>, _>(start..).next()
            && end.as_ref().is_none_or(|end| inside < end)
        {
            let inside = inside.clone();
            let Some(part) = self.skyline.remove(&inside) else { break };
            after = end
                .clone()
                .filter(|end| !ends_before(&part.end, end))
                .map(|end| (end, part.end, part.newest));
        }
        if let Some((start, end, newest)) = after {
            self.skyline.insert(start, Part { end, newest });
        }
        self.skyline.insert(start.clone(), Part { end: end.clone(), newest: *sequence });
    }

    /// Joins `delete` with the runs that it overlaps or touches.
    fn extend_runs(&mut self, RangeDelete { start, end, sequence }: &RangeDelete) {
        let mut run = Run { end: end.clone(), oldest: *sequence, newest: *sequence };
        let mut from = start.clone();
        let touches = |(first, run): &(&Vec<u8>, &Run)| {
            run.end.as_ref().is_none_or(|run_end| run_end >= start)
                && end.as_ref().is_none_or(|end| *first <= end)
        };
        let up_to = end.as_deref().map_or(Bound::Unbounded, Bound::Included);
        loop {
            let before = self.runs.range::<[u8], _>((Bound::Unbounded, up_to)).next_back();
            let Some((first, _)) = before.filter(touches) else { break };
            let first = first.clone();
            let Some(old) = self.runs.remove(&first) else { break };
            run.oldest = run.oldest.min(old.oldest);
            run.end = run.end.zip(old.end).map(|(end, old)| end.max(old));
            from = from.min(first);
        }
        self.runs.insert(from, run);
    }

    /// The part of the skyline that has `key`, and its first key.
    fn part(&self, key: &[u8]) -> Option<(&Vec<u8>, &Part)> {
        at_or_before(&self.skyline, key).filter(|(_, part)| !ends_before(&part.end, key))
    }

    /// The keys around `key` with the same newest delete.
    fn window(&self, key: &[u8]) -> Window {
        if let Some((start, part)) = self.part(key) {
            return Window { from: start.clone(), until: part.end.clone(), covering: part.newest };
        }
        let before = at_or_before(&self.skyline, key);
        let after = self.skyline.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        Window {
            from: before.and_then(|(_, part)| part.end.clone()).unwrap_or_default(),
            until: after.map(|(start, _)| start.clone()),
            covering: 0,
        }
    }

    /// The end of `part` and of those that follow it, while their newest deletes are above `above`
    /// and not after `at`.
    fn covered_until(
        &self,
        (start, part): (&Vec<u8>, &Part),
        above: SequenceNumber,
        at: SequenceNumber,
    ) -> Option<Option<Vec<u8>>> {
        let fits = |part: &&Part| part.newest > above && part.newest <= at;
        let mut last = Some(part).filter(fits)?;
        let later = self.skyline.range::<Vec<u8>, _>((Bound::Excluded(start), Bound::Unbounded));
        for (next, part) in later {
            if last.end.as_ref() != Some(next) || !fits(&part) {
                break;
            }
            last = part;
        }
        Some(last.end.clone())
    }

    /// The start of `part` and of those before it, as [`covered_until`](Self::covered_until).
    fn covered_from(
        &self,
        (start, part): (&Vec<u8>, &Part),
        above: SequenceNumber,
        at: SequenceNumber,
    ) -> Option<Vec<u8>> {
        let fits = |part: &&Part| part.newest > above && part.newest <= at;
        let mut from = Some(part).filter(fits).map(|_| start)?;
        for (before, part) in self.skyline.range::<Vec<u8>, _>(..start).rev() {
            if part.end.as_ref() != Some(from) || !fits(&part) {
                break;
            }
            from = before;
        }
        Some(from.clone())
    }

    /// The run that has `key`, and its first key.
    fn run(&self, key: &[u8]) -> Option<(&Vec<u8>, &Run)> {
        at_or_before(&self.runs, key).filter(|(_, run)| !ends_before(&run.end, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Deletes numbered 3, 6, 9 …: enough for several chunks.
    fn drawn(count: usize) -> impl Strategy<Value = Vec<RangeDelete>> {
        let key = || proptest::collection::vec(0u8..4, 0..3);
        let end = proptest::option::weighted(0.95, proptest::collection::vec(0u8..5, 1..3));
        proptest::collection::vec((key(), end), 0..count).prop_map(|ranges| {
            let sound =
                ranges.into_iter().filter(|(start, end)| end.as_ref().is_none_or(|e| start < e));
            let delete = |(n, (start, end)): (u64, _)| RangeDelete { start, end, sequence: 3 * n };
            (1..).zip(sound).map(delete).collect()
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
        let visible = deletes.iter().rev().filter(|delete| delete.sequence <= at);
        visible
            .map(|delete| delete.window(key).covering)
            .find(|covering| *covering > 0)
            .unwrap_or(0)
    }

    fn inserted(deletes: &[RangeDelete]) -> MemtableRangeDeletes {
        let ranges = MemtableRangeDeletes::default();
        deletes.iter().for_each(|delete| ranges.insert(delete.clone()));
        ranges
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_read_sees_its_deletes(
            deletes in prop_oneof![drawn(12), drawn(700)],
            reads in proptest::collection::vec(0u64..2_200, 8),
        ) {
            let ranges = inserted(&deletes);
            prop_assert_eq!(ranges.count(), deletes.len());
            prop_assert_eq!(&ranges.all(), &deletes);
            let last = deletes.last().map_or(0, |last| last.sequence);
            for at in reads.into_iter().map(|at| at % (last + 2)).chain([last, u64::MAX]) {
                for key in keys() {
                    let expected = covering(&deletes, &key, at);
                    prop_assert_eq!(ranges.covering(&key, at), expected, "{:?} at {}", key, at);
                    let window = ranges.window(&key, at);
                    prop_assert!(window.holds(&key) && window.covering == expected);
                    for other in keys().iter().filter(|other| window.holds(other)) {
                        prop_assert_eq!(covering(&deletes, other, at), expected);
                    }
                }
            }
        }

        #[test]
        fn covered_keys_are_told_both_ways(
            deletes in prop_oneof![drawn(12), drawn(200)],
            reads in proptest::collection::vec((0u64..600, 0u64..600), 8),
        ) {
            let ranges = inserted(&deletes);
            let last = deletes.last().map_or(0, |last| last.sequence);
            let keys = keys();
            let newest = [(last, 0), (u64::MAX, 0), (last, last / 2)];
            for (at, above) in reads.into_iter().chain(newest) {
                let is_covered = |key: &Vec<u8>| covering(&deletes, key, at) > above;
                for (place, key) in keys.iter().enumerate() {
                    let until = ranges.covered_until(key, at, above);
                    let from = ranges.covered_before(&[key, &[0][..]].concat(), at, above);
                    prop_assert_eq!(until.is_some(), is_covered(key));
                    prop_assert!(from.is_none() || is_covered(key));
                    prop_assert!(from.is_some() || at < last || !is_covered(key));
                    let (Some(until), Some(from)) = (until, from) else { continue };
                    let below =
                        |other: &&Vec<u8>| until.as_ref().is_none_or(|until| *other < until);
                    prop_assert!(keys[place..].iter().take_while(below).all(is_covered));
                    let above = |other: &&Vec<u8>| **other >= from;
                    prop_assert!(keys[..=place].iter().filter(above).all(is_covered));
                    // All of them, if the read is newer than every delete.
                    if at >= last {
                        let bare = keys[place..].iter().find(|key| !is_covered(key));
                        prop_assert_eq!(until.as_ref(), bare);
                        let bare = keys[..place].iter().rposition(|key| !is_covered(key));
                        prop_assert_eq!(&from, &keys[bare.map_or(0, |bare| bare + 1)]);
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_are_cut_once() {
        let delete = |n: u64| {
            let start = format!("{:05}", n * 7919 % 10_000).into_bytes();
            RangeDelete { end: Some([&start[..], b"5"].concat()), start, sequence: 2 * n }
        };
        let deletes: Vec<_> = (1..=10_000).map(delete).collect();
        let ranges = inserted(&deletes);
        ranges.insert(RangeDelete { start: vec![], end: None, sequence: 20_001 });
        let read = |n: u64| {
            assert_eq!(ranges.covering(&delete(n).start, 2 * n), 2 * n);
            assert_eq!(ranges.covering(&delete(n).start, 2 * n - 1), 0);
            assert_eq!(ranges.covering(&delete(n).start, 20_000), 2 * n);
            ranges.blocks.lock().len()
        };
        for n in 1..=10_000 {
            read(n);
        }
        // At most one block a chunk, and no read makes another one.
        let blocks = read(1);
        assert!(blocks <= 10_000 / CHUNK_DELETES, "{blocks} blocks");
        assert_eq!((1..=10_000).map(read).max(), Some(blocks));
    }
}
