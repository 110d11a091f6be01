//! Builds the range filter of a table: `(add_key* end_block)* finish`.
//!
//! The key model needs the bytes of all keys, and the bytes that a block shares are known when the
//! separator after it is. So the builder keeps nine bytes of each key until the end.

use crate::construction::{Charge, Construction};
use crate::error::BuildError;
use crate::range::key_model::{Frequencies, Window};
use crate::range::partition::{
    BITS_MAX, BITS_MIN, BLOCKS_PER_GROUP, BLOCKS_PER_PARTITION, BlockShape, Cells,
    KEYS_PER_BLOCK_MAX, RangeModel, common_prefix,
};

/// Collects the keys of a table, block by block, then writes its range filter.
///
/// ```
/// use siftdb_filter::range::{BlockRange, RangeFilterBuilder, RangeModel};
///
/// let mut builder = RangeFilterBuilder::new(12.0)?;
/// for year in [1815u32, 1906, 1912] {
///     builder.add_key(&year.to_be_bytes());
/// }
/// let (lower, upper) = (1815u32.to_be_bytes(), 1912u32.to_be_bytes());
/// builder.end_block(&lower, &upper);
/// let filter = builder.finish()?;
///
/// let model = RangeModel::decode(&filter.model).ok_or("unknown model")?;
/// let partition = filter.partitions().next().ok_or("no partition")?;
/// let may_contain = |start: u32, end: u32| {
///     let (start, end) = (start.to_be_bytes(), end.to_be_bytes());
///     let (start, end) = (Some(&start[..]), Some(&end[..]));
///     model.may_contain(partition, 0, &BlockRange { lower: &lower, upper: &upper, start, end })
/// };
/// assert_eq!(may_contain(1900, 1910), Some(true));
/// assert_eq!(may_contain(1830, 1890), Some(false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RangeFilterBuilder {
    cells_per_key: u32,
    construction: Construction,
    frequencies: Frequencies,
    /// The keys of the unfinished block, one after the other, and where each ends.
    pending: Vec<u8>,
    ends: Vec<usize>,
    /// The keys of finished blocks.
    windows: Vec<Window>,
    blocks: Vec<BlockKeys>,
    charge: Charge,
}

/// A finished block.
#[derive(Debug)]
struct BlockKeys {
    keys: usize,
    lower: Window,
    upper: Window,
}

/// A range filter: a model, and partitions that can be read by themselves.
#[derive(Clone, Debug, Default)]
pub struct BuiltRangeFilter {
    /// For [`RangeModel::decode`].
    pub model: Vec<u8>,
    contents: Vec<u8>,
    ends: Vec<usize>,
}

impl BuiltRangeFilter {
    /// The partitions, each of [`BLOCKS_PER_PARTITION`] blocks or, the last one, fewer.
    pub fn partitions(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let ranges = starts.zip(&self.ends);
        ranges.map(|(start, end)| self.contents.get(*start..*end).unwrap_or_default())
    }

    /// Bytes of all partitions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }
}

impl RangeFilterBuilder {
    /// A filter of about `bits_per_key` bits a key, 4 to 20. One bit more halves the ranges that
    /// pass wrongly.
    ///
    /// # Errors
    /// `bits_per_key` is outside of these limits.
    pub fn new(bits_per_key: f64) -> Result<Self, String> {
        if !(BITS_MIN..=BITS_MAX).contains(&bits_per_key) {
            return Err(format!(
                "{bits_per_key} bits per key of a range filter; it takes {BITS_MIN} to {BITS_MAX}"
            ));
        }
        // A list takes two bits a key more than the cells do, and its numbers up to one.
        let cells_per_key = (256.0 * (bits_per_key - 3.0).exp2()).round() as u32;
        Ok(RangeFilterBuilder {
            cells_per_key,
            construction: Construction::default(),
            frequencies: Frequencies::default(),
            pending: Vec::new(),
            ends: Vec::new(),
            windows: Vec::new(),
            blocks: Vec::new(),
            charge: Charge::default(),
        })
    }

    /// The same builder with the settings of a table. To be called before the first key.
    #[must_use]
    pub fn under(mut self, construction: &Construction) -> Self {
        self.construction = construction.clone();
        self.charge = Charge::new(construction);
        self
    }

    /// Adds a key. Keys come sorted, and repeats are dropped.
    pub fn add_key(&mut self, key: &[u8]) {
        let last = self.ends.split_last().map(|(end, rest)| (rest.last().unwrap_or(&0), end));
        if last.is_some_and(|(start, end)| self.pending.get(*start..*end) == Some(key)) {
            return;
        }
        self.pending.extend_from_slice(key);
        self.ends.push(self.pending.len());
    }

    /// Ends a block. Its keys are in `lower..=upper`.
    pub fn end_block(&mut self, lower: &[u8], upper: &[u8]) {
        let shared = common_prefix(lower, upper);
        let window = |key: &[u8]| Window::of(key.get(shared..).unwrap_or_default());
        let keys = Some(self.ends.len()).filter(|keys| *keys <= KEYS_PER_BLOCK_MAX).unwrap_or(0);
        let mut start = 0;
        for end in self.ends.drain(..).take(keys) {
            let window = window(self.pending.get(start..end).unwrap_or_default());
            start = end;
            self.frequencies.count(window);
            self.windows.push(window);
        }
        self.blocks.push(BlockKeys { keys, lower: window(lower), upper: window(upper) });
        self.pending.clear();
        let block_bytes = self.blocks.len() * size_of::<BlockKeys>();
        self.charge.cover(self.windows.len() * size_of::<Window>() + block_bytes);
    }

    /// The filter of all finished blocks. With [`Construction::verify`], each list is decoded and
    /// compared with the cells that it was made of.
    ///
    /// # Errors
    /// `MemoryCorruption` if such a list differs.
    pub fn finish(self) -> Result<BuiltRangeFilter, BuildError> {
        let model = RangeModel::encode(self.cells_per_key, &self.frequencies.encode());
        let Some(codes) = RangeModel::decode(&model) else {
            return Err(BuildError::MemoryCorruption {
                what: "the model of a range filter".into(),
            });
        };
        let mut built = BuiltRangeFilter { model, ..BuiltRangeFilter::default() };
        let (mut windows, mut numbers) = (&self.windows[..], Vec::new());
        for (number, blocks) in self.blocks.chunks(BLOCKS_PER_PARTITION).enumerate() {
            put_header(&codes, number * BLOCKS_PER_PARTITION, blocks, &mut built.contents);
            for block in blocks {
                let (of_block, rest) = windows.split_at_checked(block.keys).unwrap_or_default();
                windows = rest;
                let verify = self.construction.verify;
                append_list(&codes, block, of_block, verify, &mut numbers, &mut built.contents)?;
            }
            built.ends.push(built.contents.len());
        }
        Ok(built)
    }
}

/// Appends what comes before the lists of a partition.
fn put_header(model: &RangeModel, first: usize, blocks: &[BlockKeys], dst: &mut Vec<u8>) {
    dst.extend_from_slice(&(first as u32).to_le_bytes());
    dst.extend_from_slice(&(blocks.len() as u16).to_le_bytes());
    let mut offset = 0;
    for group in blocks.chunks(BLOCKS_PER_GROUP) {
        dst.extend_from_slice(&(offset as u32).to_le_bytes());
        let counts = group.iter().map(|block| block.keys);
        for keys in counts.chain(std::iter::repeat(0)).take(BLOCKS_PER_GROUP) {
            dst.extend_from_slice(&(keys as u16).to_le_bytes());
            offset += model.shape(keys).bytes();
        }
    }
}

/// Appends the list of a block whose keys have these windows. `numbers` is a buffer.
fn append_list(
    codes: &RangeModel,
    block: &BlockKeys,
    windows: &[Window],
    verify: bool,
    numbers: &mut Vec<u64>,
    dst: &mut Vec<u8>,
) -> Result<(), BuildError> {
    if windows.is_empty() {
        return Ok(());
    }
    let BlockShape { cells, list, .. } = codes.shape(block.keys);
    let cells = Cells::new(codes.interval(block.lower), codes.interval(block.upper), cells);
    let of_keys = || windows.iter().map(|window| cells.cell(codes.interval(*window).low));
    let start = dst.len();
    numbers.clear();
    numbers.extend(of_keys());
    list.encode(numbers, dst);
    let written = dst.get(start..).unwrap_or_default();
    // The numbers are computed again: a damaged one must not confirm itself.
    if verify && !(numbers.is_sorted() && list.decode(written).eq(of_keys())) {
        let what = "a list of a range filter differs from its keys".to_string();
        return Err(BuildError::MemoryCorruption { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::partition::BlockRange;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    /// A filter of sorted keys, in blocks of `per_block`, and the bounds of each block. The
    /// separator after a block is its last key.
    fn build(
        keys: &[Vec<u8>],
        per_block: usize,
        bits: f64,
    ) -> (BuiltRangeFilter, Vec<[Vec<u8>; 2]>) {
        let construction = Construction { verify: true, budget: None };
        let mut builder = RangeFilterBuilder::new(bits).unwrap().under(&construction);
        let mut bounds = Vec::new();
        let mut lower = keys[0].clone();
        for block in keys.chunks(per_block) {
            for key in block {
                builder.add_key(key);
                builder.add_key(key);
            }
            let upper = block[block.len() - 1].clone();
            builder.end_block(&lower, &upper);
            bounds.push([std::mem::replace(&mut lower, upper.clone()), upper]);
        }
        (builder.finish().unwrap(), bounds)
    }

    /// What the filter says of a range, block by block: may any of them hold a key?
    fn ask(
        filter: &BuiltRangeFilter,
        bounds: &[[Vec<u8>; 2]],
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> bool {
        let model = RangeModel::decode(&filter.model).unwrap();
        let partitions: Vec<&[u8]> = filter.partitions().collect();
        bounds.iter().enumerate().any(|(i, [lower, upper])| {
            let range = BlockRange { lower, upper, start, end };
            model.may_contain(partitions[i / BLOCKS_PER_PARTITION], i, &range).unwrap()
        })
    }

    fn letters() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(255)], 0..12)
    }

    proptest! {
        #[test]
        fn a_range_with_a_key_is_never_excluded(
            keys in btree_set(letters(), 1..120),
            ends in vec((letters(), letters()), 40),
            per_block in 1..9usize,
            bits in 4.0..20.0f64,
        ) {
            let keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let (filter, bounds) = build(&keys, per_block, bits);
            for key in &keys {
                let next = [&key[..], &[0]].concat();
                prop_assert!(ask(&filter, &bounds, Some(key), Some(&next)), "{:?}", key);
                prop_assert!(ask(&filter, &bounds, Some(key), None));
                prop_assert!(ask(&filter, &bounds, None, Some(&next)));
            }
            for (start, end) in ends {
                let holds = keys.iter().any(|key| (&start..&end).contains(&key));
                prop_assert!(!holds || ask(&filter, &bounds, Some(&start), Some(&end)));
                let above = [&keys[keys.len() - 1][..], &[0]].concat();
                prop_assert!(!ask(&filter, &bounds, Some(&above), None), "above all keys");
            }
        }

        #[test]
        fn malformed_partitions_do_not_panic(
            bytes in vec(any::<u8>(), 0..200),
            model in vec(any::<u8>(), 262),
            block in 0..90usize,
            ends in (letters(), letters(), letters(), letters()),
        ) {
            let model = [&[1][..], &model[1..4], &[model[4] & 3], &model[5..]].concat();
            if let Some(model) = RangeModel::decode(&model) {
                let (lower, upper, start, end) = (&ends.0, &ends.1, &ends.2, &ends.3);
                let (start, end) = (Some(&start[..]), Some(&end[..]));
                let _ = model.may_contain(&bytes, block, &BlockRange { lower, upper, start, end });
            }
        }
    }

    /// A block with more keys than a list takes says "maybe", and the lists after it are found.
    #[test]
    fn a_block_of_too_many_keys_has_no_list() {
        let mut builder = RangeFilterBuilder::new(10.0).unwrap();
        let text = |number: usize| format!("{number:08}").into_bytes();
        let ends = [0, 3_000, 3_000 + KEYS_PER_BLOCK_MAX + 1, 25_000];
        let bounds = |block: usize| [text(4 * ends[block]), text(4 * ends[block + 1] - 4)];
        for block in 0..3 {
            (ends[block]..ends[block + 1]).for_each(|number| builder.add_key(&text(4 * number)));
            let [lower, upper] = bounds(block);
            builder.end_block(&lower, &upper);
        }
        let filter = builder.finish().unwrap();
        let model = RangeModel::decode(&filter.model).unwrap();
        for block in 0..3 {
            let [lower, upper] = bounds(block);
            let ask = |start: usize| {
                let (start, end) = (&text(start)[..], &text(start + 1)[..]);
                let (start, end) = (Some(start), Some(end));
                let range = BlockRange { lower: &lower, upper: &upper, start, end };
                model.may_contain(filter.partitions().next().unwrap(), block, &range).unwrap()
            };
            let numbers = ends[block]..ends[block + 1] - 1;
            assert!(numbers.clone().all(|number| ask(4 * number)), "block {block}");
            let passed = numbers.clone().filter(|number| ask(4 * number + 2)).count();
            let few = numbers.len() / 10;
            assert_eq!(passed > few, block == 1, "block {block}: {passed} of {}", numbers.len());
        }
    }

    /// Mean gaps are divided into about 2^(bits - 3) cells, so that few empty ranges pass.
    #[test]
    fn empty_ranges_pass_rarely() {
        let mut random = 7u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let binary: Vec<Vec<u8>> = (0..40_000).map(|_| next().to_le_bytes().to_vec()).collect();
        let digits =
            |key: &Vec<u8>| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text: Vec<Vec<u8>> = binary.iter().map(|key| digits(key).into_bytes()).collect();
        for (name, mut keys) in [("integers", binary), ("hexadecimal text", text)] {
            let absent: Vec<Vec<u8>> = keys.iter().step_by(2).cloned().collect();
            keys = keys.into_iter().skip(1).step_by(2).collect();
            keys.sort();
            let (filter, bounds) = build(&keys, 34, 12.0);
            let bits = 8.0 * filter.bytes() as f64 / keys.len() as f64;
            assert!((11.0..12.0).contains(&bits), "{name}: {bits} bits a key");
            let passed = absent.iter().filter(|start| {
                let end = [&start[..], &[0]].concat();
                ask(&filter, &bounds, Some(start), Some(&end))
            });
            let share = passed.count() as f64 / absent.len() as f64;
            assert!(share < 0.01, "{name}: {share} of the empty ranges passed");
        }
    }
}
