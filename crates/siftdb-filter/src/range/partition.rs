//! A partition of a range filter: the lists of up to [`BLOCKS_PER_PARTITION`] data blocks.
//!
//! ```text
//! partition := first block: u32  blocks: u16  group for each 8 blocks  list for each block
//! group     := offset of its first list, from the first of all: u32  keys: u16 for each block
//! model     := version: u8 (1)  cells a key: u32, in 256ths  shares of the key model: 257 bytes
//! ```
//!
//! The model is stored once for all partitions of a table. Block `i` of the table is in partition
//! `i / 64`. The numbers of keys before a list, in its group, say where it begins. A block with the
//! number 0 has too many keys for a list, and its answer is "maybe"; so do the blocks that the last
//! group lacks.

use crate::range::elias_fano::ListShape;
use crate::range::key_model::{Interval, KEY_MODEL_BYTES, KeyModel, Window};

/// Data blocks of each partition but the last.
pub const BLOCKS_PER_PARTITION: usize = 64;

/// Data blocks of a group.
pub(crate) const BLOCKS_PER_GROUP: usize = 8;

/// Bytes of a group: one cache line has it, as a rule.
const GROUP_BYTES: usize = 4 + 2 * BLOCKS_PER_GROUP;

/// Keys of a block that has a list. The cells of a block are then fewer than 2^31.
pub(crate) const KEYS_PER_BLOCK_MAX: usize = (1 << 14) - 1;

/// Bits per key that a filter may have.
pub(crate) const BITS_MIN: f64 = 4.0;
pub(crate) const BITS_MAX: f64 = 20.0;

const MODEL_VERSION: u8 = 1;

/// What all partitions of a table share: how keys become cells.
#[derive(Clone, Debug)]
pub struct RangeModel {
    /// In 256ths.
    cells_per_key: u32,
    /// Bits of the low part of each number in a list.
    low_bits: u32,
    keys: KeyModel,
}

/// A question to one data block, whose keys are in `lower..=upper`.
#[derive(Clone, Copy, Debug)]
pub struct BlockRange<'k> {
    /// The separator before the block; the smallest key of the table for the first one.
    pub lower: &'k [u8],
    /// The separator after the block.
    pub upper: &'k [u8],
    /// The first key of the range; `None` from the beginning of the block on.
    pub start: Option<&'k [u8]>,
    /// The key after the range; `None` to the end of the block.
    pub end: Option<&'k [u8]>,
}

impl RangeModel {
    /// Bytes of memory.
    pub const MEMORY_BYTES: usize = KeyModel::MEMORY_BYTES + 8;

    pub(crate) fn encode(cells_per_key: u32, shares: &[u8; KEY_MODEL_BYTES]) -> Vec<u8> {
        [&[MODEL_VERSION][..], &cells_per_key.to_le_bytes(), shares].concat()
    }

    /// The model in these bytes. `None` if they are malformed, or of a later version: then the
    /// table has no range filter that can be asked.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        let (cells, shares) = rest.split_first_chunk()?;
        let (cells_per_key, shares) = (u32::from_le_bytes(*cells), shares.try_into().ok()?);
        let is_known = version == MODEL_VERSION && (256..=1 << 25).contains(&cells_per_key);
        is_known.then(|| RangeModel {
            cells_per_key,
            low_bits: (cells_per_key >> 8).ilog2(),
            keys: KeyModel::decode(shares),
        })
    }

    /// May `block` of the table hold a key of the range? `partition` has the bytes of the one that
    /// the block is in. `None` if these are malformed, or of other blocks.
    #[must_use]
    pub fn may_contain(
        &self,
        partition: &[u8],
        block: usize,
        range: &BlockRange<'_>,
    ) -> Option<bool> {
        let BlockRange { lower, upper, start, end } = *range;
        if end.is_some_and(|end| end <= lower) || start.is_some_and(|start| start > upper) {
            return Some(false);
        }
        let (start, end) = (start.filter(|start| *start > lower), end.filter(|end| *end <= upper));
        if start.is_none() && end.is_none() {
            // A block has a key.
            return Some(true);
        }
        let Some((shape, list)) = self.list(partition, block)? else { return Some(true) };
        let shared = common_prefix(lower, upper);
        let window = |key: &[u8]| Window::of(key.get(shared..).unwrap_or_default());
        let interval = |window| self.interval(window);
        let cells = Cells::new(interval(window(lower)), interval(window(upper)), shape.cells);
        let (start, end) = (start.map(window), end.map(window));
        let start_interval = start.map(interval);
        let first = start_interval.map_or(0, |start| cells.cell(start.low));
        // The ends of a narrow range often differ only after the bytes that count.
        let end_interval = if end == start { start_interval } else { end.map(interval) };
        let last = match end_interval {
            None => shape.cells.saturating_sub(1),
            // Keys below an end that is cut may begin with the same bytes.
            Some(Interval { low, is_whole: false, .. }) => cells.cell(low),
            Some(Interval { low, .. }) if low <= cells.low => return Some(false),
            Some(Interval { low, .. }) => cells.cell(low - 1),
        };
        if first > last { Some(false) } else { shape.list.any_within(list, first, last) }
    }

    /// The list of a block; inside `None` if it has none.
    fn list<'p>(
        &self,
        partition: &'p [u8],
        block: usize,
    ) -> Option<Option<(BlockShape, &'p [u8])>> {
        let (first, rest) = partition.split_first_chunk()?;
        let (blocks, rest) = rest.split_first_chunk()?;
        let index = block.checked_sub(u32::from_le_bytes(*first) as usize)?;
        let blocks = usize::from(u16::from_le_bytes(*blocks));
        if index >= blocks {
            return None;
        }
        let (groups, lists) =
            rest.split_at_checked(blocks.div_ceil(BLOCKS_PER_GROUP) * GROUP_BYTES)?;
        let (groups, _) = groups.as_chunks::<GROUP_BYTES>();
        let (offset, counts) = groups.get(index / BLOCKS_PER_GROUP)?.split_first_chunk()?;
        let (counts, _) = counts.as_chunks::<2>();
        let shape = |count: &[u8; 2]| self.shape(usize::from(u16::from_le_bytes(*count)));
        let before = counts.get(..index % BLOCKS_PER_GROUP)?.iter();
        let start = before.fold(u32::from_le_bytes(*offset) as usize, |start, count| {
            start + shape(count).bytes()
        });
        let shape = shape(counts.get(index % BLOCKS_PER_GROUP)?);
        if shape.keys == 0 {
            return Some(None);
        }
        if shape.keys > KEYS_PER_BLOCK_MAX {
            return None;
        }
        Some(Some((shape, lists.get(start..start.checked_add(shape.bytes())?)?)))
    }

    /// The form of a list of `keys` keys.
    #[inline]
    pub(crate) fn shape(&self, keys: usize) -> BlockShape {
        let cells = (keys as u64 * u64::from(self.cells_per_key)) >> 8;
        BlockShape { keys, cells, list: ListShape::new(keys, cells, self.low_bits) }
    }

    pub(crate) fn interval(&self, window: Window) -> Interval {
        self.keys.interval(window)
    }
}

/// The form of a block's list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockShape {
    pub keys: usize,
    pub cells: u64,
    pub list: ListShape,
}

impl BlockShape {
    /// Bytes of the list; none for a block without keys.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        if self.keys == 0 { 0 } else { self.list.bytes() }
    }
}

/// The equal cells between two separators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cells {
    low: u64,
    high: u64,
    /// Cells per 2^32 of the scaled span.
    scale: u64,
}

impl Cells {
    pub(crate) fn new(lower: Interval, upper: Interval, cells: u64) -> Self {
        let (low, high) = (lower.low, upper.high.max(lower.low));
        let scaled = Self::scaled(high - low, high - low);
        Cells { low, high, scale: (cells << 32) / (scaled + 1) }
    }

    /// The upper 32 bits of `distance` after the highest bit of `span` is shifted to the top.
    #[inline]
    fn scaled(distance: u64, span: u64) -> u64 {
        (distance << (span.leading_zeros() & 63)) >> 32
    }

    /// The cell of a number; those outside of the span are in the first or the last one.
    // Never decreasing: the shift, the product and the second shift are all monotone.
    #[inline]
    pub(crate) fn cell(&self, number: u64) -> u64 {
        let distance = number.clamp(self.low, self.high) - self.low;
        (Self::scaled(distance, self.high - self.low) * self.scale) >> 32
    }
}

/// Bytes that all keys of a block begin with. Needed once for a block, so by a plain loop.
pub(crate) fn common_prefix(lower: &[u8], upper: &[u8]) -> usize {
    lower.iter().zip(upper).take_while(|(a, b)| a == b).count()
}
