//! The filter of a memtable: a blocked Bloom filter that takes keys while other threads read it.
//!
//! The high bits of a key's hash choose one cache line of 512 bits. The key has one bit in each of
//! the line's eight words, so a lookup costs one cache line and no branch. Bits are only ever set.
//! All accesses are relaxed: the published sequence orders a bit and its entry, see
//! `memtable/memtable.rs`. The filter is never written to a file, so its bits may change between
//! versions. At 24 bits a key (64 MiB of 200-byte entries) about one absent key in 10,000 passes.

use crate::base::prefetch;
use crate::base::sync::{AtomicU64, OnceLock, Ordering};

/// One cache line of the filter.
#[derive(Default)]
#[repr(align(64))]
struct FilterLine([AtomicU64; 8]);

/// A filter of fixed size, filled by one writer. Without lines it answers "may contain".
pub(crate) struct MemtableFilter {
    lines: usize,
    /// Allocated for the first key: a database that is only read has memtables without keys.
    allocated: OnceLock<Box<[FilterLine]>>,
}

impl MemtableFilter {
    /// An empty filter of that size, rounded down to whole lines; below one line, none.
    pub(crate) fn new(bytes: usize) -> Self {
        MemtableFilter { lines: bytes / size_of::<FilterLine>(), allocated: OnceLock::new() }
    }

    /// Bytes of memory, once it has a key.
    pub(crate) fn bytes(&self) -> usize {
        self.lines * size_of::<FilterLine>()
    }

    /// The line of a hash, by its high bits; `None` before the first key and without lines.
    #[inline]
    fn line(&self, hash: u64) -> Option<&FilterLine> {
        let at = ((u128::from(hash) * self.lines as u128) >> 64) as usize;
        self.allocated.get()?.get(at)
    }

    /// The bit of a hash in word `i`: six bits of the hash, mixed, from the 16th upward.
    #[inline]
    fn bit(hash: u64, i: usize) -> u64 {
        1 << (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (16 + 6 * i) & 63)
    }

    /// Sets the bits of a key's hash. One caller at a time.
    pub(crate) fn add(&self, hash: u64) {
        let allocate = || std::iter::repeat_with(FilterLine::default).take(self.lines).collect();
        self.allocated.get_or_init(allocate);
        let Some(line) = self.line(hash) else { return };
        for (i, word) in line.0.iter().enumerate() {
            // No `fetch_or`: there is one writer, so no bit is lost between load and store.
            let bits = word.load(Ordering::Relaxed) | Self::bit(hash, i);
            word.store(bits, Ordering::Relaxed);
        }
    }

    /// Prefetches the line of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.line(hash) {
            prefetch::prefetch_line(line);
        }
    }

    /// False if the hash was never added.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.line(hash) else { return self.lines == 0 };
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
    use crate::filter::hash::xxph3_64;

    #[test]
    fn memtable_filters_have_no_false_negatives() {
        // Bits a key, and the most false positives among 100,000 absent keys.
        for (bits_per_key, most) in [(10, 2_500), (16, 300), (24, 60)] {
            let keys = 20_000u64;
            let filter = MemtableFilter::new((keys * bits_per_key / 8) as usize);
            let hash = |n: u64| xxph3_64(&n.to_le_bytes());
            assert!((0..keys).all(|n| !filter.may_contain(hash(n))), "empty");
            (0..keys).for_each(|n| filter.add(hash(n)));
            assert!((0..keys).all(|n| filter.may_contain(hash(n))));
            let positives = (0..100_000).filter(|n| filter.may_contain(hash(keys + n))).count();
            assert!(positives <= most, "{positives} at {bits_per_key} bits a key");
        }
    }

    #[test]
    fn a_filter_without_lines_answers_maybe() {
        let filter = MemtableFilter::new(63);
        assert_eq!(filter.bytes(), 0);
        filter.add(1);
        assert!([0, 1, u64::MAX].into_iter().all(|hash| filter.may_contain(hash)));
    }
}
