//! How large a Ribbon filter is and where its bits are: slots for keys, columns for a rate.
//!
//! A filter has a few more *slots* than keys, in *blocks* of 128, and for each slot one bit in each
//! of its *columns*. Each column halves the share of absent keys that pass. For shares between two
//! powers of two there are two kinds of blocks: those before `upper_start` have one column less.
//!
//! The solution is interleaved: one column of one block is a *segment* of 16 bytes, and the
//! segments of a block follow each other in the order of columns. A lookup so reads the columns of
//! one or two neighbouring blocks, which are in one run of bytes.
//!
//! Source: `BandingConfigHelper` in RocksDB's `util/ribbon_config.cc`,
//! `SerializableInterleavedSolution` in its `util/ribbon_impl.h`, `Standard128RibbonBitsBuilder` in
//! its `filter_policy.cc`. Everything here decides bytes of files and equals RocksDB, the
//! floating-point arithmetic included.

use crate::bloom::fast_local::{self, ROCKSDB_TRAILER_BYTES};

/// Slots of a block, and bits of a key's coefficients.
pub const BLOCK_SLOTS: u32 = 128;

/// Bytes of one column of one block.
pub const SEGMENT_BYTES: usize = 16;

/// Bits of a key's result.
const COLUMNS_MAX: u64 = 32;

/// Filters of more keys are Bloom filters.
const ENTRIES_MAX: u32 = 950_000_000;

/// Filters with fewer slots are compared with a Bloom filter, which may be smaller.
const SLOTS_OF_SMALL_FILTERS: u32 = 1_024;

/// The number of keys for which 2^i slots have a solution with 19 of 20 seeds, as RocksDB's authors
/// measured; 0 for numbers of slots that are not used.
const KEYS_IN_SLOTS: [f64; 18] = [
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 248.851, 499.532, 1_001.26, 2_003.97, 4_005.59,
    8_000.39, 15_966.6, 31_828.1, 63_447.3, 126_506.0,
];

/// Slots per key grow by this with every doubling beyond the measured numbers.
const SLOTS_PER_KEY_STEP: f64 = 0.003_8;

/// The space of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whole blocks, at least two.
    pub slots: u32,
    /// Bytes before the trailer.
    pub body_bytes: usize,
}

impl Plan {
    /// The space of a filter of `entries` keys. `None` where there is no Ribbon filter: for no
    /// keys, too many, or so few that a Bloom filter is smaller. The high half of the first hash
    /// decides between rounding up and down.
    #[must_use]
    pub fn new(entries: usize, first_hash: u64, millibits: u32) -> Option<Self> {
        let entries = u32::try_from(entries).ok()?;
        if !(1..=ENTRIES_MAX).contains(&entries) {
            return None;
        }
        let slots = whole_blocks(slots_for(entries));
        let body_bytes = body_bytes(slots, one_in(millibits), (first_hash >> 32) as u32);
        let bloom_bytes = fast_local::calculate_space(u64::from(entries), millibits);
        if slots < SLOTS_OF_SMALL_FILTERS && bloom_bytes < body_bytes + ROCKSDB_TRAILER_BYTES as u64
        {
            return None;
        }
        Some(Plan { slots, body_bytes: usize::try_from(body_bytes).ok()? })
    }
}

/// One absent key in this many passes: the rate of FastLocalBloom at these millibits.
fn one_in(millibits: u32) -> f64 {
    let probes = fast_local::choose_num_probes(millibits);
    1.0 / fast_local::expected_fpr(f64::from(millibits) / 1_000.0, probes)
}

/// Bytes of the filter of `entries` keys, trailer included and rounded without bias; of the Bloom
/// filter where there is no Ribbon filter.
#[must_use]
pub fn calculate_space(entries: u64, millibits: u32) -> u64 {
    let keys = usize::try_from(entries).unwrap_or(usize::MAX);
    match Plan::new(keys, 0, millibits) {
        Some(plan) => (plan.body_bytes + ROCKSDB_TRAILER_BYTES) as u64,
        None => fast_local::calculate_space(entries, millibits),
    }
}

/// Columns of the blocks from `upper_start` on.
#[must_use]
pub fn columns(millibits: u32) -> u32 {
    let one_in = one_in(millibits);
    if one_in > f64::from(u32::MAX) { COLUMNS_MAX as u32 } else { lower_columns(one_in) + 1 }
}

fn lower_columns(one_in: f64) -> u32 {
    (one_in as u32).max(1).ilog2()
}

/// The share of absent keys that a filter of many keys lets through.
#[must_use]
pub fn expected_fpr(millibits: u32) -> f64 {
    one_in(millibits).min((1u64 << COLUMNS_MAX) as f64).recip()
}

/// The logarithm as RocksDB rounds it: a little too large, so that powers of two stay whole.
fn log2(n: u32) -> f64 {
    #[expect(clippy::approx_constant, reason = "these digits decide bytes of files")]
    const LOG2_E: f64 = 1.442_695_040_9;
    f64::from(n).ln() * LOG2_E
}

/// Slots per key for 2^`log2_slots` slots beyond the measured numbers.
fn slots_per_key(log2_slots: f64) -> f64 {
    const LAST: usize = KEYS_IN_SLOTS.len() - 1;
    let at_last = (1u32 << LAST) as f64 / KEYS_IN_SLOTS[LAST];
    at_last - LAST as f64 * SLOTS_PER_KEY_STEP + log2_slots * SLOTS_PER_KEY_STEP
}

/// The number of keys that fit into 2^`log2_slots` slots.
fn keys_in(log2_slots: u32) -> f64 {
    match KEYS_IN_SLOTS.get(log2_slots as usize) {
        Some(&keys) => keys,
        None => (1u64 << log2_slots) as f64 / slots_per_key(f64::from(log2_slots)),
    }
}

/// Slots for this many keys, interpolated between powers of two; not yet whole blocks.
fn slots_for(entries: u32) -> u32 {
    if entries == 0 {
        return 0;
    }
    let keys = f64::from(entries);
    let mut log2_slots = (log2(entries) + 0.5) as u32;
    if keys_in(log2_slots) == 0.0 {
        return 2 * BLOCK_SLOTS;
    }
    if keys < keys_in(log2_slots) {
        log2_slots -= 1;
    }
    let (lower, upper) = (keys_in(log2_slots), keys_in(log2_slots + 1));
    let slots = (1u64 << log2_slots) as f64;
    ((keys - lower) / (upper - lower) * slots + slots + 0.999_999_999) as u32
}

/// The number of keys for this many slots of whole blocks; the inverse of [`slots_for`].
fn keys_for(slots: u32) -> u32 {
    if slots < 2 * BLOCK_SLOTS {
        return 0;
    }
    let log2_slots = log2(slots);
    let floor = log2_slots as u32;
    if floor as usize + 1 >= KEYS_IN_SLOTS.len() {
        return (f64::from(slots) / slots_per_key(log2_slots)) as u32;
    }
    let portion = f64::from(slots) / (1u64 << floor) as f64 - 1.0;
    (portion * keys_in(floor + 1) + (1.0 - portion) * keys_in(floor)) as u32
}

/// Rounds up to whole blocks, at least two: in a single one all keys would start at slot 0.
fn whole_blocks(slots: u32) -> u32 {
    slots.next_multiple_of(BLOCK_SLOTS).max(2 * BLOCK_SLOTS)
}

/// Bytes of all segments for a rate of one in `one_in`.
fn body_bytes(slots: u32, one_in: f64, rounding: u32) -> u64 {
    let blocks = u64::from(slots / BLOCK_SLOTS);
    if one_in > f64::from(u32::MAX) {
        return blocks * COLUMNS_MAX * SEGMENT_BYTES as u64;
    }
    let columns = lower_columns(one_in);
    let lower_fpr = ((1u64 << columns) as f64).recip();
    let upper_fpr = lower_fpr / 2.0;
    let lower_portion = (1.0 / one_in - upper_fpr) / (lower_fpr - upper_fpr);
    // The number of blocks with fewer columns is no whole number. RocksDB rounds it by a hash, so
    // that the mean rate of many filters is the one that was asked for.
    let bias = (f64::from(rounding) + 0.5) / (1u64 << 32) as f64;
    let starts = f64::from(slots - (BLOCK_SLOTS - 1));
    let upper_start = ((lower_portion * starts + bias) / f64::from(BLOCK_SLOTS)) as u64;
    (blocks * u64::from(columns) + blocks.saturating_sub(upper_start)) * SEGMENT_BYTES as u64
}

/// The number of keys that a filter of `bytes` has room for, a Bloom filter in its place included.
/// Partitions are cut by this number, so it equals RocksDB's estimate, which is exact except for
/// the rounding of blocks.
#[must_use]
pub fn approximate_num_entries(bytes: u64, millibits: u32) -> u64 {
    let body = bytes.saturating_sub(ROCKSDB_TRAILER_BYTES as u64) & !(SEGMENT_BYTES as u64 - 1);
    let one_in = one_in(millibits);
    let bits_per_slot = if one_in > f64::from(u32::MAX) {
        COLUMNS_MAX as f64
    } else {
        let columns = 1 + lower_columns(one_in);
        let upper_fpr = ((1u64 << columns) as f64).recip();
        f64::from(columns) - (1.0 / one_in - upper_fpr) / upper_fpr
    };
    let most = body as f64 * 8.0 / bits_per_slot;
    if most >= f64::from(slots_for(ENTRIES_MAX)) {
        return u64::from(ENTRIES_MAX);
    }
    // An upper limit; the number that fits is a step or two below.
    let mut slots = whole_blocks(most as u32);
    while slots > 0 && body_bytes(slots, one_in, 0) > body {
        slots -= BLOCK_SLOTS;
        if slots == BLOCK_SLOTS {
            slots = 0;
        }
    }
    let entries = u64::from(keys_for(slots));
    if slots < SLOTS_OF_SMALL_FILTERS {
        return entries.max(fast_local::approximate_num_entries(bytes, millibits));
    }
    entries.min(u64::from(ENTRIES_MAX))
}

/// Which segments each block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Columns of the blocks from `upper_start` on; one less before.
    upper: u32,
    upper_start: u32,
}

impl Columns {
    /// Spreads the whole segments of a body over `blocks` blocks, at most 32 to a block.
    #[must_use]
    pub fn new(blocks: u32, body_bytes: usize) -> Self {
        let segments = (body_bytes / SEGMENT_BYTES) as u64;
        let upper = segments.div_ceil(u64::from(blocks.max(1)));
        if upper > COLUMNS_MAX {
            return Columns { upper: COLUMNS_MAX as u32, upper_start: 0 };
        }
        // Less than `blocks`: rounding up added less than one segment to each block.
        let upper_start = upper * u64::from(blocks) - segments.min(upper * u64::from(blocks));
        Columns { upper: upper as u32, upper_start: upper_start as u32 }
    }

    /// The number of columns that most of `blocks` blocks have, and the mean rate of all: a block
    /// of `n` columns has the rate `2^-n`.
    pub fn count_and_rate(self, blocks: u32) -> (u32, f64) {
        let lower = f64::from(self.upper_start.min(blocks)) / f64::from(blocks.max(1));
        let rate = 0.5f64.powi(self.upper as i32) * (1.0 + lower);
        (if lower > 0.5 { self.upper.saturating_sub(1) } else { self.upper }, rate)
    }

    /// The first segment of a block, and its number of columns.
    #[inline]
    #[must_use]
    pub fn of(self, block: u32) -> (usize, usize) {
        // As if all blocks before it had `upper` columns, less one for each that has fewer.
        let first = block as usize * self.upper as usize - block.min(self.upper_start) as usize;
        let columns = self.upper - u32::from(block < self.upper_start);
        (first, columns as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousandths are exact for everything that RocksDB computes from three decimals.
    #[test]
    fn thousandths_keep_three_decimals() {
        for millibits in 1_000..=100_000u32 {
            let decimals = format!("{}.{:03}", millibits / 1_000, millibits % 1_000);
            assert_eq!(Ok(f64::from(millibits) / 1_000.0), decimals.parse());
        }
    }
    use crate::testing::vectors;
    use serde_json::Value;

    fn bits_per_key(entries: usize, millibits: u32) -> f64 {
        let plan = Plan::new(entries, 0, millibits).expect("large enough");
        8.0 * (plan.body_bytes + ROCKSDB_TRAILER_BYTES) as f64 / entries as f64
    }

    #[test]
    fn slots_and_keys_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_ribbon.json") else { return };
        let int = |row: &Value, i: usize| row[i].as_u64().expect("number") as u32;
        for row in vectors::array(&file, "num_slots") {
            assert_eq!(slots_for(int(row, 0)), int(row, 1), "{row}");
            assert_eq!(whole_blocks(slots_for(int(row, 0))), int(row, 2), "{row}");
        }
        for row in vectors::array(&file, "num_to_add") {
            assert_eq!(keys_for(int(row, 0)), int(row, 1), "{row}");
        }
    }

    #[test]
    fn rates_and_sizes_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_ribbon.json") else { return };
        for case in vectors::array(&file, "cases") {
            let millibits = vectors::number(case, "bits_per_key") as u32 * 1_000;
            let n = vectors::number(case, "n");
            let expected = case["desired_one_in_fp_rate"].as_f64().expect("number");
            // The last bit of a number read from JSON may be off; `golden_slots` has the exact
            // numbers.
            assert!((one_in(millibits) / expected - 1.0).abs() < 1e-15, "{millibits} millibits");
            assert_eq!(u64::from(slots_for(n as u32)), vectors::number(case, "slots_unrounded"));
            assert_eq!(
                u64::from(whole_blocks(slots_for(n as u32))) * u64::from(n > 0),
                vectors::number(case, "slots")
            );
            let space = if n == 0 { 0 } else { calculate_space(n, millibits) };
            assert_eq!(space, vectors::number(case, "calculate_space"), "{millibits}, {n} keys");
        }
    }

    /// The kinds of vectors: smallest filters, interpolated ones, and large ones by formula.
    #[test]
    fn golden_slots() {
        for (keys, slots) in [
            (1, 256),
            (129, 256),
            (200, 231),
            (256, 264),
            (1_000, 1_023),
            (1_024, 1_048),
            (65_536, 67_707),
            (100_000, 103_525),
            (1_000_000, 1_047_490),
            (950_000_000, 1_031_068_581),
        ] {
            assert_eq!(slots_for(keys), slots, "{keys} keys");
        }
        for (slots, keys) in
            [(0, 0), (256, 248), (384, 374), (65_536, 63_447), (1 << 20, 1_001_033)]
        {
            assert_eq!(keys_for(slots), keys, "{slots} slots");
        }
        for (millibits, expected) in [
            (1_000, 1.582_876_459_968_701_7),
            (5_000, 10.788_342_018_508_663),
            (10_000, 104.902_353_487_828_18),
            (15_000, 853.089_195_906_945),
            (20_000, 5_852.540_103_839_65),
        ] {
            assert_eq!(one_in(millibits), expected, "{millibits} millibits");
        }
        assert_eq!(body_bytes(10_368, one_in(10_000), 0), 8_800);
    }

    #[test]
    fn ribbon_takes_seven_tenths_of_bloom() {
        for (millibits, n, bits) in [
            (10_000, 1_000_000, 7.05..7.15),
            (15_000, 1_000_000, 10.2..10.4),
            (20_000, 1_000_000, 13.1..13.3),
        ] {
            assert!(bits.contains(&bits_per_key(n, millibits)), "{}", bits_per_key(n, millibits));
        }
        let mut n = 10_000;
        while n < ENTRIES_MAX as usize {
            let (bits, most) = (bits_per_key(n, 10_000), if n < 10_000_000 { 7.2 } else { 7.4 });
            assert!(bits <= most, "{n} keys: {bits} bits a key");
            n += n / 3;
        }
    }

    #[test]
    fn extreme_key_counts_get_no_ribbon() {
        assert_eq!(Plan::new(0, 0, 10_000), None);
        assert_eq!(Plan::new(100, 0, 10_000), None);
        assert!(Plan::new(200, 0, 10_000).is_some());
        assert!(Plan::new(ENTRIES_MAX as usize, 0, 1_000).is_some());
        assert_eq!(Plan::new(ENTRIES_MAX as usize + 1, 0, 1_000), None);
        assert_eq!(Plan::new(usize::MAX, 0, 1_000), None);
    }

    #[test]
    fn estimated_key_counts_fit_tightly() {
        for millibits in [1_000, 2_345, 5_000, 10_000, 16_000, 40_000, 100_000] {
            let mut bytes = 64;
            while bytes < 4 << 20 {
                let entries = approximate_num_entries(bytes, millibits);
                let space = |n: u64| calculate_space(n, millibits);
                if entries > 0 {
                    // For many keys RocksDB's two directions differ by up to 0.2 %.
                    let within = entries - if entries > 12_000 { entries / 500 } else { 0 };
                    assert!(space(within) <= bytes, "{entries} keys in {bytes} bytes");
                    let more = space(entries + entries / 2 + 200);
                    assert!(more > bytes, "{entries} keys in {bytes} bytes at {millibits}");
                }
                bytes += 1 + bytes / 7;
            }
            assert_eq!(approximate_num_entries(u64::MAX, millibits), u64::from(ENTRIES_MAX));
            assert_eq!(approximate_num_entries(0, millibits), 0);
        }
        assert_eq!(approximate_num_entries(231, 10_000), 248);
    }

    #[test]
    fn segments_tile_the_filter_body() {
        for blocks in [2u32, 3, 7, 64, 1_000] {
            for segments in (0..blocks * 4 + 3).chain([blocks * 32 - 1, blocks * 32]) {
                let columns = Columns::new(blocks, segments as usize * SEGMENT_BYTES);
                let mut next = 0;
                for block in 0..blocks {
                    let (first, count) = columns.of(block);
                    assert_eq!(first, next, "block {block} of {blocks}, {segments} segments");
                    next += count;
                }
                assert_eq!(next, segments as usize);
            }
            // More than 32 columns are left unused.
            let columns = Columns::new(blocks, blocks as usize * 40 * SEGMENT_BYTES);
            assert_eq!(columns.of(blocks - 1), ((blocks as usize - 1) * 32, 32));
        }
    }

    #[test]
    fn the_best_rate_has_32_columns() {
        assert_eq!(expected_fpr(100_000), 2f64.powi(-32));
        assert_eq!([1_000, 10_000, 100_000].map(columns), [1, 7, 32]);
        assert_eq!(body_bytes(256, one_in(100_000), 0), 2 * 32 * 16);
        assert!((expected_fpr(10_000) - 0.009_53).abs() < 0.000_01);
    }
}
