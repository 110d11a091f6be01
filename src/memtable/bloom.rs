//! The filters of a memtable: blocked Bloom filters that take keys while other threads read them.
//!
//! The high bits of a key's hash choose one cache line of 512 bits. The key has one bit in each of
//! the line's eight words, so a lookup costs one cache line and no branch. Bits are only ever set.
//! Accesses of bits are relaxed: the published sequence orders a bit and its entry, see
//! `memtable/memtable.rs`. The filter is never written to a file, so its bits may change between
//! versions.
//!
//! A filter grows in steps, each four times as large as the step before, and keeps the hashes that
//! fill them. Smaller steps stay allocated, because readers may be in them: they add a third. An
//! entry of 150 bytes has at least 12 bits in a small step, where about one absent key in 200
//! passes. In the filter of a full memtable it has 24, and one in 300 passes.

use crate::base::sync::{AtomicU64, AtomicUsize, OnceLock, Ordering, plain};
use siftdb_filter::cache_line;

/// One cache line of the filter.
#[derive(Default)]
#[repr(align(64))]
struct FilterLine([AtomicU64; 8]);

/// Each step has this many times the lines of the step before.
const GROWTH: usize = 4;

/// The first step has at least this many lines, unless the last step has fewer.
const FIRST_LINES_MIN: usize = 4;

/// Most steps: from 4 lines or more to 85 MiB, for the largest write buffer.
const STEPS_MAX: usize = 10;

/// Bytes in the memtable for one byte of a step: above that comes the next step. All steps together
/// then take at most an 18th: 4 bytes of 96, and a third of that.
const STEP_SHARE: usize = 96;

/// The same for the step before the last one. The last step comes earlier, because it inherits the
/// bits of the step before, which must not be dense.
const LAST_STEP_SHARE: usize = 72;

/// A filter filled by one writer. Of size 0, it answers "may contain".
pub(crate) struct MemtableFilter {
    /// Lines of the first step.
    first_lines: usize,
    /// How many steps there can be; 0 without a filter.
    steps_max: usize,
    /// The number of the step that takes keys, counted from 1; 0 before the first key.
    newest: AtomicUsize,
    /// Allocated only when needed: most memtables of many keyspaces stay small.
    steps: [OnceLock<Box<[FilterLine]>>; STEPS_MAX],
    /// The hashes of all keys, while one of them may have to fill another step; for the writer.
    // Reading 47,000 keys again took a put 12 ms.
    hashes: plain::Mutex<Vec<u64>>,
}

impl MemtableFilter {
    /// An empty filter that grows up to that size, rounded down; below one line, none.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let mut first_lines = bytes_max / size_of::<FilterLine>();
        let mut steps_max = usize::from(first_lines > 0);
        while first_lines / GROWTH >= FIRST_LINES_MIN && steps_max < STEPS_MAX {
            first_lines /= GROWTH;
            steps_max += 1;
        }
        let (newest, steps, hashes) = Default::default();
        MemtableFilter { first_lines, steps_max, newest, steps, hashes }
    }

    /// True if it has no size.
    pub(crate) fn is_none(&self) -> bool {
        self.steps_max == 0
    }

    /// Lines of step `number`, counted from 1; 0 for step 0. Each is an exact multiple of the one
    /// before, see [`inherit`](Self::inherit).
    fn lines_of(&self, number: usize) -> usize {
        number.checked_sub(1).map_or(0, |growths| self.first_lines * GROWTH.pow(growths as u32))
    }

    /// Bytes in the memtable for which step `number` suffices.
    fn suffices_for(&self, number: usize) -> usize {
        let share = match self.steps_max - number {
            0 => return usize::MAX,
            1 => LAST_STEP_SHARE,
            _ => STEP_SHARE,
        };
        self.lines_of(number) * size_of::<FilterLine>() * share
    }

    /// Bytes in the memtable above which the filter must [`grow`](Self::grow).
    pub(crate) fn grows_above(&self) -> usize {
        self.suffices_for(self.newest.load(Ordering::Relaxed))
    }

    /// Makes a step that suffices for a memtable of `held` bytes, more than
    /// [`grows_above`](Self::grows_above). Answers the bytes allocated. The caller is the writer.
    #[cold]
    pub(crate) fn grow(&self, held: usize) -> usize {
        let mut number = self.newest.load(Ordering::Relaxed) + 1;
        while held > self.suffices_for(number) {
            number += 1;
        }
        let lines = std::iter::repeat_with(FilterLine::default).take(self.lines_of(number));
        let step: Box<[FilterLine]> = lines.collect();
        let mut hashes = self.hashes.lock();
        if number == self.steps_max {
            Self::inherit(&step, self.lines().unwrap_or(&[]));
        } else {
            hashes.iter().for_each(|hash| Self::set(&step, *hash));
        }
        if !self.keeps_hashes(number) {
            *hashes = Vec::new();
        }
        let bytes = size_of_val(&*step);
        // The step has every key so far before a reader can see it: `OnceLock` stores with Release
        // and loads with Acquire. Later keys go to this step alone. A reader that may see such a
        // key loaded a sequence published after `newest` was stored, so it asks this step. A reader
        // that asks a smaller step may see only keys that the smaller step has.
        self.steps[number - 1].get_or_init(|| step);
        self.newest.store(number, Ordering::Relaxed);
        bytes
    }

    /// True if, while step `number` takes keys, their hashes may have to fill a later one: any but
    /// the last.
    fn keeps_hashes(&self, number: usize) -> bool {
        number + 1 < self.steps_max
    }

    /// Gives `step` the keys of `smaller` without their hashes: each line gets the bits of the line
    /// that the same hashes choose in `smaller`.
    // The last step inherits: the hashes of a large memtable would take memory, and a put would
    // wait for all of them. Smaller steps do not: the inherited bits of several would pile up.
    fn inherit(step: &[FilterLine], smaller: &[FilterLine]) {
        let Some(ratio) = step.len().checked_div(smaller.len()) else { return };
        // A hash chooses line `hash * lines / 2^64`. With an exact multiple of lines, the lines of
        // one old line are neighbours.
        for (children, line) in step.chunks(ratio).zip(smaller) {
            for (i, word) in line.0.iter().enumerate() {
                let bits = word.load(Ordering::Relaxed);
                children.iter().for_each(|child| child.0[i].store(bits, Ordering::Relaxed));
            }
        }
    }

    /// The step that takes keys, if there is one and this thread sees it.
    #[inline]
    fn lines(&self) -> Option<&[FilterLine]> {
        let newest = self.newest.load(Ordering::Relaxed);
        self.steps.get(newest.wrapping_sub(1))?.get().map(|lines| &**lines)
    }

    /// The line of a hash, by its high bits.
    #[inline]
    fn line(lines: &[FilterLine], hash: u64) -> Option<&FilterLine> {
        lines.get(((u128::from(hash) * lines.len() as u128) >> 64) as usize)
    }

    /// The bit of a hash in word `i`: six bits of the hash, mixed, from the 16th upward.
    #[inline]
    fn bit(hash: u64, i: usize) -> u64 {
        1 << (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (16 + 6 * i) & 63)
    }

    #[inline]
    fn set(lines: &[FilterLine], hash: u64) {
        let Some(line) = Self::line(lines, hash) else { return };
        for (i, word) in line.0.iter().enumerate() {
            let bits = word.load(Ordering::Relaxed) | Self::bit(hash, i);
            word.store(bits, Ordering::Relaxed);
        }
    }

    /// Sets the bits of a key's hash. The caller is the writer, and the filter has grown once.
    #[inline]
    pub(crate) fn add(&self, hash: u64) {
        if let Some(lines) = self.lines() {
            Self::set(lines, hash);
        }
        if self.keeps_hashes(self.newest.load(Ordering::Relaxed)) {
            self.hashes.lock().push(hash);
        }
    }

    /// Prefetches the line of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines().and_then(|lines| Self::line(lines, hash)) {
            cache_line::prefetch_line(line);
        }
    }

    /// False if the hash was never added.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines().and_then(|lines| Self::line(lines, hash)) else {
            // False before the first key. True without a filter, and if this thread sees the number
            // of a step before the step: the smaller ones may lack keys.
            return self.is_none() || self.newest.load(Ordering::Relaxed) > 0;
        };
        let words = line.0.iter().enumerate();
        // No early exit: eight loads of one line cost less than one mispredicted branch.
        0 == words.fold(0, |missing, (i, word)| {
            missing | (Self::bit(hash, i) & !word.load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb_filter::hash::xxph3_64;

    fn hash(n: u64) -> u64 {
        xxph3_64(&n.to_le_bytes())
    }

    #[test]
    fn memtable_filters_have_no_false_negatives() {
        // Bits a key, and the most false positives among 100,000 absent keys.
        for (bits_per_key, most) in [(10, 2_500), (16, 300), (24, 60)] {
            let keys = 20_000u64;
            let filter = MemtableFilter::new((keys * bits_per_key / 8) as usize);
            assert!((0..keys).all(|n| !filter.may_contain(hash(n))), "empty");
            filter.grow(usize::MAX);
            assert!((0..keys).all(|n| !filter.may_contain(hash(n))), "without keys");
            (0..keys).for_each(|n| filter.add(hash(n)));
            assert!((0..keys).all(|n| filter.may_contain(hash(n))));
            let positives = (0..100_000).filter(|n| filter.may_contain(hash(keys + n))).count();
            assert!(positives <= most, "{positives} at {bits_per_key} bits a key");
        }
    }

    #[test]
    fn growing_filters_keep_all_keys() {
        // The second size is no multiple of its first step.
        for (bytes_max, steps) in [(64 << 10, 5), (50_001, 4)] {
            let filter = MemtableFilter::new(bytes_max);
            let (mut filter_bytes, mut grown) = (0, 0);
            for n in 0..20_000 {
                let held = filter_bytes + 200 * (n as usize + 1);
                if held > filter.grows_above() {
                    filter_bytes += filter.grow(held);
                    assert!((0..n).all(|n| filter.may_contain(hash(n))), "at {n}");
                    grown += 1;
                }
                filter.add(hash(n));
                assert!(filter.may_contain(hash(n)));
            }
            assert!((0..20_000).all(|n| filter.may_contain(hash(n))));
            assert_eq!((grown, filter.grows_above()), (steps, usize::MAX));
            assert_eq!(filter.hashes.lock().capacity(), 0, "no step is left to fill");
            let bytes = (1..=steps).map(|number| filter.lines_of(number) * 64).sum::<usize>();
            assert_eq!(filter_bytes, bytes);
        }
    }

    #[test]
    fn a_filter_grows_to_what_is_needed() {
        let filter = MemtableFilter::new(64 << 20);
        assert_eq!(filter.grow(1), 256);
        filter.add(hash(1));
        assert_eq!(filter.grow(90 << 20), 1 << 20);
        assert_eq!(filter.grow(usize::MAX), 64 << 20);
        assert!(filter.may_contain(hash(1)));
    }

    #[test]
    fn a_filter_without_lines_answers_maybe() {
        let filter = MemtableFilter::new(63);
        assert_eq!(filter.grows_above(), usize::MAX);
        filter.add(1);
        assert!([0, 1, u64::MAX].into_iter().all(|hash| filter.may_contain(hash)));
    }
}
