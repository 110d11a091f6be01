//! RocksDB's Standard128 Ribbon filter: FastLocalBloom's rate in 7/10 of the space.
//!
//! Bytes: `segments * 16 ‖ fe seed blocks: u24`. The filter is the solution of one linear equation
//! for each key (`banding.rs`); a lookup takes one parity over 128 bits for each column, in one run
//! of bytes (`space.rs`). Building takes more time than Bloom and about 20 bytes of memory a key;
//! asking takes more time too. Bits per key mean those of a Bloom filter with the same rate of
//! false positives: 10 take 7.1 bits of space.
//!
//! Source: `Standard128RibbonBitsBuilder` in RocksDB's `filter_policy.cc`,
//! `SerializableInterleavedSolution` in its `util/ribbon_impl.h`. The bytes equal RocksDB's for the
//! same keys. As in RocksDB, a FastLocalBloom filter is written instead if it is smaller (below
//! 1024 slots), for more than 950 million keys, if none of 256 seeds has a solution, or if the
//! caller refuses the memory. No keys, no bytes.

use crate::bloom::fast_local::{self, ROCKSDB_TRAILER_BYTES};
use crate::cache_line;
use crate::ribbon::banding::{Banding, EquationMaker, parity};
use crate::ribbon::space::{BLOCK_SLOTS, Columns, Plan, SEGMENT_BYTES};

/// The persisted name in the block-based layout, which RocksDB never wrote with this encoding.
/// In the others it is that of all of RocksDB's encodings, [`fast_local::NAME`].
pub const BLOCK_BASED_NAME: &str = "siftdb.Ribbon";

/// First byte of the trailer.
pub const MARKER: u8 = 0xfe;

/// Bytes that one prefetch loads.
const CACHE_LINE_BYTES: usize = 64;

/// Appends the filter of the keys with these hashes: Ribbon, or Bloom in the cases above. Nothing
/// for no keys. `reserve` is asked at most once, for the memory that solving takes until this
/// returns.
pub fn create_filter(
    hashes: &[u64],
    millibits: u32,
    reserve: impl FnOnce(usize) -> bool,
    dst: &mut Vec<u8>,
) {
    let Some(&first) = hashes.first() else { return };
    let solved = Plan::new(hashes.len(), first, millibits)
        .filter(|plan| reserve(Banding::memory_bytes(plan.slots)))
        .and_then(|plan| Some((plan, Banding::solve(hashes, plan.slots, first as u8)?)));
    let Some((plan, (seed, banding))) = solved else {
        return fast_local::create_filter(hashes, millibits, dst);
    };
    let start = dst.len();
    dst.resize(start + plan.body_bytes, 0);
    let blocks = plan.slots / BLOCK_SLOTS;
    banding.write_solution(Columns::new(blocks, plan.body_bytes), &mut dst[start..]);
    let [low, middle, high, _] = blocks.to_le_bytes();
    dst.extend_from_slice(&[MARKER, seed, low, middle, high]);
}

/// The parsed trailer of a Ribbon filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RibbonTrailer {
    equations: EquationMaker,
    columns: Columns,
}

/// The bytes of a filter that answer for one hash.
struct Run {
    /// Offset of the segments of the block that the key's equation starts in, and of the next
    /// block's.
    here: usize,
    next: usize,
    /// Bytes of a block's segments.
    bytes: usize,
    /// The slot within the block.
    slot: u32,
}

impl RibbonTrailer {
    /// Reads the trailer; `None` if it is not one of this encoding or has fewer than two blocks. As
    /// in RocksDB any length is accepted; blocks without segments match everything.
    #[must_use]
    pub fn parse(filter: &[u8]) -> Option<Self> {
        let (body, trailer) = filter.split_last_chunk::<ROCKSDB_TRAILER_BYTES>()?;
        let [MARKER, seed, low, middle, high] = *trailer else { return None };
        let blocks = u32::from_le_bytes([low, middle, high, 0]);
        (blocks >= 2).then(|| RibbonTrailer {
            equations: EquationMaker::new(seed, blocks * BLOCK_SLOTS),
            columns: Columns::new(blocks, body.len()),
        })
    }

    /// Columns of most blocks, and the share of absent keys that pass: of a key that starts in a
    /// block of `c` columns one in `2^c`.
    pub fn columns_and_rate(self) -> (u32, f64) {
        self.columns.count_and_rate(self.equations.starting_blocks())
    }

    #[inline]
    fn run(self, start: u32) -> Run {
        let (first, columns) = self.columns.of(start / BLOCK_SLOTS);
        let slot = start % BLOCK_SLOTS;
        let (here, bytes) = (first * SEGMENT_BYTES, columns * SEGMENT_BYTES);
        // An equation that starts at a block's first slot ends with the block. The block may be the
        // last one, so there may be no next one to read.
        Run { here, next: if slot == 0 { here } else { here + bytes }, bytes, slot }
    }

    /// False only if no key with this hash was among those that `filter` was built from. `filter`
    /// is what was parsed; a shorter one answers "may match".
    #[inline]
    #[must_use]
    pub fn may_match(self, filter: &[u8], hash: u64) -> bool {
        let equation = self.equations.equation(hash);
        let Run { here, next, bytes, slot } = self.run(equation.start);
        let (Some(here), Some(next)) =
            (filter.get(here..here + bytes), filter.get(next..next + bytes))
        else {
            return true;
        };
        let in_here = equation.coefficients << slot;
        // The coefficients that fall into the next block. Two shifts: for slot 0 the sum is 128,
        // and a single shift by 128 would overflow.
        let in_next = equation.coefficients >> 1 >> (BLOCK_SLOTS - 1 - slot);
        let (here, _) = here.as_chunks::<SEGMENT_BYTES>();
        let (next, _) = next.as_chunks::<SEGMENT_BYTES>();
        let mut result = equation.result;
        // One column at a time: the first one already denies every second absent key.
        here.iter().zip(next).all(|(here, next)| {
            let bits = u128::from_le_bytes(*here) & in_here ^ u128::from_le_bytes(*next) & in_next;
            let agrees = parity(bits) == result & 1;
            result >>= 1;
            agrees
        })
    }

    /// Prefetches the bytes that [`may_match`](Self::may_match) will read.
    #[inline]
    pub fn prefetch(self, filter: &[u8], hash: u64) {
        let Run { here, next, bytes, .. } = self.run(self.equations.start(hash));
        let end = (next + bytes).max(here + 1);
        for offset in (here..end).step_by(CACHE_LINE_BYTES) {
            cache_line::prefetch(filter, offset);
        }
        cache_line::prefetch(filter, end - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::xxph3_64;
    use crate::testing::vectors;
    use proptest::prelude::*;
    use serde_json::Value;

    fn hashes(n: u64) -> Vec<u64> {
        (0..n).map(|i| xxph3_64(&vectors::key8(i))).collect()
    }

    fn filter_of(n: u64, millibits: u32) -> Vec<u8> {
        let mut filter = Vec::new();
        create_filter(&hashes(n), millibits, |_| true, &mut filter);
        filter
    }

    /// Asks a Ribbon filter, or the Bloom filter that replaces it.
    fn asks(filter: &[u8], key: &[u8]) -> bool {
        let hash = xxph3_64(key);
        match RibbonTrailer::parse(filter) {
            Some(shape) => shape.may_match(filter, hash),
            None => {
                let shape = fast_local::FastLocalTrailer::parse(filter).expect("a filter");
                shape.may_match(filter, hash)
            }
        }
    }

    #[test]
    fn filters_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_ribbon.json") else { return };
        let mut kinds = [0; 3];
        for case in vectors::array(&file, "cases") {
            let millibits = vectors::number(case, "bits_per_key") as u32 * 1_000;
            let n = vectors::number(case, "n");
            let filter = filter_of(n, millibits);
            assert_eq!(filter, vectors::bytes(case, "filter"), "{millibits} millibits, {n} keys");
            let ribbon = RibbonTrailer::parse(&filter).is_some();
            let kind = if n == 0 { "empty" } else { ["bloom", "ribbon"][usize::from(ribbon)] };
            assert_eq!(case["kind"], kind);
            kinds[usize::from(n > 0) + usize::from(ribbon)] += 1;
            if n == 0 {
                continue;
            }
            assert!((0..n).all(|i| asks(&filter, &vectors::key8(i))));
            let positives: Vec<u64> =
                (0..2000).filter(|j| asks(&filter, &vectors::key8(1_000_000 + j))).collect();
            let expected: Vec<u64> =
                vectors::array(case, "probe_positives").iter().filter_map(Value::as_u64).collect();
            assert_eq!(positives, expected, "{millibits} millibits, {n} keys");
        }
        assert_eq!(kinds, [5, 16, 26], "empty, Bloom, Ribbon");
    }

    #[test]
    fn golden_bytes_and_digest() {
        assert!(filter_of(0, 10_000).is_empty());
        let one_column =
            "268d1aef7d72ef693fbfdd6377f2ef46972e47d4f053603d5a05000000000000fe33020000";
        assert_eq!(vectors::hex(&filter_of(200, 1_000)), one_column);
        // Sizes that fall back to a Bloom filter, and more columns than the vectors have.
        let mut digest = 0u64;
        for millibits in [1_000, 2_500, 5_000, 9_990, 10_000, 15_000, 23_456, 60_000, 100_000] {
            for n in [1, 2, 10, 100, 127, 128, 129, 200, 500, 1_000, 3_000] {
                digest = digest.rotate_left(7) ^ xxph3_64(&filter_of(n, millibits));
            }
        }
        assert_eq!(digest, 0xda68417d91429ac3);
    }

    #[test]
    fn refused_memory_falls_back_to_bloom() {
        let mut asked = 0;
        let mut filter = b"before".to_vec();
        let refuse = |bytes: usize| {
            asked = bytes;
            false
        };
        create_filter(&hashes(3_000), 10_000, refuse, &mut filter);
        assert_eq!(asked, 3_072 * 20);
        let mut bloom = b"before".to_vec();
        fast_local::create_filter(&hashes(3_000), 10_000, &mut bloom);
        assert_eq!(filter, bloom);
        // No memory is reserved for an empty filter, or for one so small that it is a Bloom filter.
        for n in [0, 10] {
            let refuse = |bytes: usize| panic!("{bytes} bytes for {n} keys");
            create_filter(&hashes(n), 10_000, refuse, &mut Vec::new());
        }
    }

    #[test]
    fn ribbon_is_smaller_than_bloom() {
        for n in [10_000u64, 11_111, 30_000, 100_000] {
            let (ribbon, bloom) =
                (filter_of(n, 10_000).len() as u64, fast_local::calculate_space(n, 10_000));
            assert!(ribbon * 100 <= bloom * 72, "{n} keys: {ribbon} bytes, Bloom {bloom}");
        }
    }

    #[test]
    fn false_positives_stay_in_their_band() {
        for (n, millibits) in [
            (1_000u64, 10_000),
            (10_000, 10_000),
            (30_000, 5_000),
            (30_000, 1_000),
            (30_000, 16_000),
        ] {
            let filter = filter_of(n, millibits);
            let probes = 50_000;
            let hits = (0..probes).filter(|j| asks(&filter, &vectors::key8(1_000_000 + j))).count();
            let expected = crate::ribbon::space::expected_fpr(millibits) * probes as f64;
            // Five standard deviations, and a tenth for the rounding to whole blocks.
            let band = 5.0 * expected.sqrt() + expected / 10.0;
            let off = (hits as f64 - expected).abs();
            assert!(off <= band, "{n} keys, {millibits} millibits: {hits}, expected {expected}");
        }
    }

    #[test]
    fn other_trailers_are_not_ribbon() {
        let filter = filter_of(1_000, 10_000);
        assert!(RibbonTrailer::parse(&filter).is_some());
        let with = |at: usize, byte: u8| {
            let mut filter = filter.clone();
            let end = filter.len();
            filter[end - 5 + at] = byte;
            RibbonTrailer::parse(&filter)
        };
        for (marker, is) in [(0xff, false), (0xfd, false), (0, false), (6, false), (0xfe, true)] {
            assert_eq!(with(0, marker).is_some(), is, "{marker}");
        }
        for (blocks, is) in [(0, false), (1, false), (2, true), (255, true)] {
            assert_eq!(with(2, blocks).is_some(), is, "{blocks} blocks");
        }
        assert!((0..5).all(|bytes| RibbonTrailer::parse(&filter[..bytes]).is_none()));
    }

    proptest! {
        #[test]
        fn members_match_at_every_size(n in 1u64..3_000, millibits in 1_000u32..=100_000) {
            let filter = filter_of(n, millibits);
            prop_assert!((0..n).all(|i| asks(&filter, &vectors::key8(i))));
        }

        #[test]
        fn readers_answer_any_bytes(
            body in proptest::collection::vec(any::<u8>(), 0..700),
            seed: u8,
            blocks in prop_oneof![0u32..12, 0u32..1 << 24],
            other in proptest::collection::vec(any::<u8>(), 0..100),
            hashes: Vec<u64>,
        ) {
            let [low, middle, high, _] = blocks.to_le_bytes();
            let filter = [&body[..], &[MARKER, seed, low, middle, high]].concat();
            let shape = RibbonTrailer::parse(&filter);
            prop_assert_eq!(shape.is_some(), blocks >= 2);
            for (shape, hash) in shape.into_iter().flat_map(|s| hashes.iter().map(move |&h| (s, h))) {
                let answer = shape.may_match(&filter, hash);
                prop_assert!(answer || body.len() >= SEGMENT_BYTES);
                shape.prefetch(&filter, hash);
                // Bytes that were not parsed: no panic, and no "no" beyond their end.
                shape.prefetch(&other, hash);
                let answer = shape.may_match(&other, hash);
                prop_assert!(answer || other.len() >= SEGMENT_BYTES);
            }
        }
    }
}
