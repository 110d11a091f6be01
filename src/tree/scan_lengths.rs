//! How many blocks scans read of each level, so that the next one reads as many at once.
//!
//! The scans of a program often have about the same length. A scan that knows its length asks for
//! all of its blocks at once, and waits for the disk once. So each thread remembers how many blocks
//! its scans read from files on average, for each keyspace and level. The last scan counts for a
//! quarter of the average. So after one very long scan, all short scans that follow read about 16
//! blocks in vain, in sum.

use crate::base::levels::LEVELS;
use crate::base::stats::counters::Stripe;
use std::sync::atomic::{AtomicU64, Ordering};

/// The mean of a level is that many bits of one number,
const MEAN_BITS: usize = 8;

/// and counts in parts of a block. So the largest mean is 15 blocks and 15 parts.
const PARTS: u64 = 16;

const LARGEST: u64 = (1 << MEAN_BITS) - 1;

const _: () = assert!(LEVELS * MEAN_BITS <= u64::BITS as usize);

/// The means of one thread and keyspace.
pub(crate) struct ScanLengths<'a>(Option<&'a AtomicU64>);

impl<'a> ScanLengths<'a> {
    #[inline]
    pub(crate) fn of(stripe: &Stripe<'a>) -> Self {
        ScanLengths(stripe.kept_lengths())
    }

    /// How many blocks the next scan will probably read of `level`; 0 if nothing is known.
    #[inline]
    pub(crate) fn expected(&self, level: usize) -> u64 {
        let means = self.0.map_or(0, |means| means.load(Ordering::Relaxed));
        let mean = means >> (level * MEAN_BITS) & LARGEST;
        (mean + PARTS / 2) / PARTS
    }

    /// Notes that a scan has read that many blocks of `level`.
    pub(crate) fn note(&self, level: usize, blocks: u32) {
        let Some(means) = self.0 else { return };
        let (all, shift) = (means.load(Ordering::Relaxed), level * MEAN_BITS);
        let (mean, length) = (all >> shift & LARGEST, (u64::from(blocks) * PARTS).min(LARGEST));
        let mean = mean + length.saturating_sub(mean) / 4 - mean.saturating_sub(length) / 4;
        means.store(all & !(LARGEST << shift) | mean << shift, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_follow_the_last_scans_of_each_level() {
        let means = AtomicU64::new(0);
        let lengths = ScanLengths(Some(&means));
        let note = |level, blocks, times| (0..times).for_each(|_| lengths.note(level, blocks));
        let expected = || [0, 1, LEVELS - 1].map(|level| lengths.expected(level));
        note(1, 4, 10);
        note(LEVELS - 1, u32::MAX, 40);
        assert_eq!(expected(), [0, 4, 16]);
        note(1, 1, 10);
        note(0, 2, 1);
        assert_eq!(expected(), [1, 1, 16]);
        // What short scans read in vain after a long one.
        note(0, 1, 10);
        note(0, 1_000, 1);
        let mut in_vain = 0;
        while lengths.expected(0) > 1 {
            in_vain += lengths.expected(0) - 1;
            lengths.note(0, 1);
        }
        assert!((4..=16).contains(&in_vain), "{in_vain}");
        assert_eq!(expected()[1..], [1, 16]);
    }
}
