//! Which tables a scan may skip, by their filters.
//!
//! `read/scan.rs` makes a [`RangeProbe`] for each scan over tables that answer ranges, and for each
//! range that a cursor seeks. It asks at once where a level has one table for the scan, because a
//! "no" spares the source. Elsewhere `level_iter` asks when it comes to a table, so a scan that
//! ends early asks few. A "no" means that no key of the range is in the table, old versions and
//! tombstones included (I18). So a skipped table changes nothing in the result, in either
//! direction. `table::filter::dispatch` says why one question is enough.
//!
//! The tables of a cursor may lie outside of the range. Those before it are never entered, and at
//! the first one after it the walk over the level ends.
//!
//! Answers are counted by level, and with them the filter blocks that they touched.

use crate::base::iterator::api::Direction;
use crate::base::key::{LookupKey, SEQUENCE_MAX, common_prefix, key_head};
use crate::base::range::KeyBounds;
use crate::base::stats::counters::{Counters, LevelCounter, Stripe};
use crate::base::sync::Arc;
use crate::base::value::Key;
use crate::table::file::TableIo;
use crate::table::filter::ranges::RangeQuestion;
use crate::table::reader::{Table, TableReadOptions};
use crate::tree::level::Fence;
use crate::tree::version::count_scan_io;
use siftdb_filter::encoding::FilterVerdict;
use std::sync::atomic::{AtomicU64, Ordering};

/// From this streak on, most scans ask nothing.
const LONG: u64 = 64;

/// During a long streak, one scan in this many asks, in case asking pays again.
const SAMPLE: u64 = 64;

/// How many questions of a thread's scans did not pay lately.
///
/// Asking costs a scan of one entry two thirds more instructions. Where scans find what they look
/// for, or where the filters cannot tell, that saves nothing. So each "maybe" adds one, and from
/// [`LONG`] on only one scan in [`SAMPLE`] asks. A "no" that may have saved a read ends the streak.
/// A "no" of a range filter about a cached block takes one away: asking costs about half of what it
/// saves there. So scans of cached blocks go on asking if half of the answers are "no".
///
/// A scan that does not ask enters the tables that a filter would exclude, so the guess can cost
/// reads: those of at most 63 scans, after a streak of 64.
///
/// A streak belongs to one thread and one keyspace, as that of lookups
/// ([`HitStreak`](crate::tree::version::HitStreak)).
struct ScanStreak<'a>(Option<&'a AtomicU64>);

impl<'a> ScanStreak<'a> {
    fn of(stripe: &Stripe<'a>) -> Self {
        ScanStreak(stripe.kept_by_scans())
    }

    /// True if the next scan should ask. The number counts the streak, and above [`LONG`] the scans
    /// since the last sample.
    fn asks(&self) -> bool {
        let Some(number) = self.0 else { return true };
        let streak = number.load(Ordering::Relaxed);
        if streak < LONG {
            return true;
        }
        let is_sample = streak + 1 >= LONG + SAMPLE;
        number.store(if is_sample { LONG } else { streak + 1 }, Ordering::Relaxed);
        is_sample
    }

    /// Notes what an answer saved.
    fn note(&self, saved: Saved) {
        let Some(number) = self.0 else { return };
        let streak = number.load(Ordering::Relaxed);
        let streak = match saved {
            Saved::Nothing => streak.max(LONG.min(streak + 1)),
            Saved::CachedBlock => LONG.min(streak).saturating_sub(1),
            Saved::MaybeRead => 0,
        };
        number.store(streak, Ordering::Relaxed);
    }
}

/// What an answer of a filter saved a scan.
enum Saved {
    Nothing,
    /// The search of a block that is in the cache.
    CachedBlock,
    /// A block that may have to be read.
    MaybeRead,
}

/// The range of one scan, as a question to filters.
#[derive(Debug)]
pub(crate) struct RangeProbe {
    start: LookupKey,
    end: Option<Key>,
    /// How many bytes of the start all keys of the range begin with.
    common: usize,
    read: TableReadOptions,
    counters: Arc<Counters>,
}

impl RangeProbe {
    /// For the keys of `bounds`. `None` if asking does not pay.
    #[inline]
    pub(crate) fn for_scan(
        bounds: &KeyBounds,
        read: TableReadOptions,
        counters: &Arc<Counters>,
    ) -> Option<Self> {
        let asks = ScanStreak::of(&counters.stripe()).asks();
        asks.then(|| RangeProbe::new(bounds, read, counters))
    }

    /// For the keys of `bounds`.
    pub(crate) fn new(
        bounds: &KeyBounds,
        read: TableReadOptions,
        counters: &Arc<Counters>,
    ) -> Self {
        RangeProbe {
            start: LookupKey::new(&bounds.start, SEQUENCE_MAX),
            end: bounds.end.clone(),
            common: common_of_range(&bounds.start, bounds.end.as_deref()),
            read,
            counters: Arc::clone(counters),
        }
    }

    /// True if the range ends, in this direction, before the table with this fence.
    pub(crate) fn ends_before(&self, direction: Direction, fence: &Fence) -> bool {
        match (direction, self.start.user_key(), &self.end) {
            (Direction::Forward, _, Some(end)) => fence.starts_from(key_head(end), end),
            (Direction::Forward, _, None) => false,
            (Direction::Reverse, start, _) => fence.ends_before(key_head(start), start),
        }
    }

    /// What the filter of `table`, a table of `level`, says of the range. "No" proves that it holds
    /// no key of it. Call [`count_positive`](Self::count_positive) after a "maybe".
    pub(crate) fn ask(&self, level: usize, table: &Table) -> FilterVerdict {
        self.ask_with(level, table, &mut self.read.io())
    }

    /// The same. Adds what it touched to `io`.
    #[inline]
    pub(crate) fn ask_with(&self, level: usize, table: &Table, io: &mut TableIo) -> FilterVerdict {
        if !table.answers_ranges() {
            return FilterVerdict::NotConsulted;
        }
        let common = self.start.user_key().get(..self.common).unwrap_or_default();
        let range = RangeQuestion { start: &self.start, end: self.end.as_deref(), common };
        let verdict = table.range_may_match(&range, io);
        let stripe = self.counters.stripe();
        count_scan_io(level, io, &stripe);
        match verdict {
            FilterVerdict::NotConsulted | FilterVerdict::Bypassed => {
                ScanStreak::of(&stripe).note(Saved::Nothing);
            }
            FilterVerdict::Maybe => stripe.add_level(level, LevelCounter::ScanPositives, 1),
            FilterVerdict::No => {
                ScanStreak::of(&stripe).note(match io.data_spared {
                    0 => Saved::MaybeRead,
                    _ => Saved::CachedBlock,
                });
                let bytes = table.properties.mean_block_bytes();
                stripe.add_level(level, LevelCounter::ScanNegatives, 1);
                stripe.add_level(level, LevelCounter::ScanBytesAvoided, bytes);
            }
        }
        verdict
    }

    /// Counts whether a "maybe" was right, by the first key that a seek to `bound` in that table
    /// has found, if any; without a bound, the seek began at the end of the table.
    pub(crate) fn count_positive(
        &self,
        level: usize,
        direction: Direction,
        bound: Option<&[u8]>,
        found: Option<&[u8]>,
    ) {
        let (start, end) = (self.start.user_key(), self.end.as_deref());
        let is_in_range = |key: &[u8]| start <= key && end.is_none_or(|end| key < end);
        let covers = |bound: &[u8]| match (direction, end) {
            (Direction::Forward, _) => bound <= start,
            // A range up to a key, inclusive, ends at the successor of that key.
            (Direction::Reverse, Some(end)) => end.strip_suffix(&[0]).unwrap_or(end) <= bound,
            (Direction::Reverse, None) => false,
        };
        let counter = match (found.is_some_and(is_in_range), bound.is_none_or(covers)) {
            (true, _) => LevelCounter::ScanTruePositives,
            (false, true) => LevelCounter::ScanFalsePositives,
            (false, false) => return,
        };
        let stripe = self.counters.stripe();
        ScanStreak::of(&stripe).note(Saved::Nothing);
        stripe.add_level(level, counter, 1);
    }
}

/// How many bytes of `start` every key from `start` on and below `end` begins with.
///
/// First the bytes that both ends share. If `end` has exactly one byte more and it is one above the
/// byte of `start`, then every key has the byte of `start` there, and nothing bounds the following
/// bytes from above. They are at least those of `start`, so each following byte ff of `start` is in
/// every key.
fn common_of_range(start: &[u8], end: Option<&[u8]>) -> usize {
    let mut common = 0;
    if let Some(end) = end {
        common = common_prefix(start, end);
        match (start.get(common), end.get(common..)) {
            (Some(&byte), Some(&[above])) if byte.checked_add(1) == Some(above) => common += 1,
            _ => return common,
        }
    }
    let rest = start.get(common..).unwrap_or_default();
    common + rest.iter().take_while(|byte| **byte == 0xff).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn letter() -> impl Strategy<Value = u8> {
        prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xfe), Just(0xff)]
    }

    /// Every key of up to four bytes over the letters, and some that sort after them.
    fn keys() -> Vec<Vec<u8>> {
        let letters = [0u8, 1, b'a', b'b', b'c', 0xfe, 0xff];
        let mut all = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..4 {
            let longer = |key: &Vec<u8>| letters.map(|letter| [&key[..], &[letter]].concat());
            last = last.iter().flat_map(longer).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    proptest! {
        #[test]
        fn keys_in_range_start_with_the_key_head(
            start in vec(letter(), 0..4),
            end in proptest::option::of(vec(letter(), 0..4)),
        ) {
            let common = &start[..common_of_range(&start, end.as_deref())];
            for key in keys() {
                if key >= start && end.as_ref().is_none_or(|end| key < *end) {
                    prop_assert!(key.starts_with(common), "{:?} {:?}", key, common);
                }
            }
        }

        /// The bounds of a prefix scan give the prefix back, whatever its bytes are.
        #[test]
        fn a_prefix_range_has_the_prefix_as_head(prefix in vec(letter(), 0..6)) {
            let KeyBounds { start, end } = KeyBounds::of_prefix(&prefix);
            prop_assert_eq!(common_of_range(&start, end.as_deref()), prefix.len());
        }
    }

    #[test]
    fn bounds_shorter_than_a_head_are_exact() {
        type Case<'k> = (&'k [u8], Option<&'k [u8]>, usize);
        let cases: [Case<'_>; 9] = [
            (b"abc", Some(b"abd"), 3),
            (b"abc1", Some(b"abd"), 3),
            (b"abc\xff1", Some(b"abd"), 4),
            // "abd" itself is below "abd\0".
            (b"abc", Some(b"abd\0"), 2),
            (b"abc", Some(b"abe"), 2),
            (b"abc", Some(b"abc\0"), 3),
            (b"ab", None, 0),
            (b"\xff\xffa", None, 2),
            (b"", Some(b"a"), 0),
        ];
        for (start, end, common) in cases {
            assert_eq!(common_of_range(start, end), common, "{start:?} {end:?}");
        }
    }
}
