//! The filter block of a LevelDB table: a filter for the keys of the data blocks that begin in each
//! window of the file.
//!
//! ```text
//! block := filter* offset: u32* array_offset: u32  base_lg: u8
//! ```
//!
//! `table/filter/block_based.rs` has this layout in siftdb's own tables.

use crate::base::coding::get_u32;
use crate::filter::bloom::leveldb::{NAME, may_match};

/// The filter block of a table, with its policy.
#[derive(Debug)]
pub(crate) struct TableFilter {
    policy: String,
    contents: Vec<u8>,
    /// Where the offsets begin, and the filters end.
    array: usize,
    windows: usize,
    base_lg: u32,
}

impl TableFilter {
    /// Checks the contents of the block. The error says what is wrong.
    pub(crate) fn new(policy: String, contents: Vec<u8>) -> Result<Self, String> {
        let malformed = "a malformed filter block";
        let end = contents.len().checked_sub(5).ok_or(malformed)?;
        let array = get_u32(&contents, end).ok_or(malformed)? as usize;
        let base_lg = u32::from(contents.last().copied().unwrap_or_default());
        let offsets = end.checked_sub(array).filter(|bytes| bytes.is_multiple_of(4));
        let windows = offsets.filter(|_| base_lg < u64::BITS).ok_or(malformed)? / 4;
        let filter = TableFilter { policy, contents, array, windows, base_lg };
        match (0..windows).all(|window| filter.window(window).is_some()) {
            true => Ok(filter),
            false => Err("filters of a filter block that overlap".into()),
        }
    }

    /// The name of the policy that made it.
    pub(crate) fn policy(&self) -> &str {
        &self.policy
    }

    /// Bytes of a window of data offsets.
    pub(crate) fn window_bytes(&self) -> u64 {
        1 << self.base_lg
    }

    /// Bytes of the block.
    pub(crate) fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    /// Bits in filters, the rest of the block left out, and the probes of a key; `None` if another
    /// policy made it.
    pub(crate) fn bits_and_probes(&self) -> Option<(u64, u32)> {
        let filters = (0..self.windows).filter_map(|window| self.window(window));
        let mut probes = None;
        let mut bits = 0;
        for filter in filters.filter(|filter| !filter.is_empty() && self.is_known()) {
            bits += 8 * (filter.len() as u64 - 1);
            probes = filter.last().map(|&probes| u32::from(probes));
        }
        probes.map(|probes| (bits, probes))
    }

    /// Whether the data block at `offset` may have a key of this hash; `None` if another policy
    /// made the filter.
    pub(crate) fn block_may_contain(&self, offset: u64, hash: u32) -> Option<bool> {
        if !self.is_known() {
            return None;
        }
        let window = usize::try_from(offset >> self.base_lg).ok();
        let filter = window.filter(|window| *window < self.windows).and_then(|w| self.window(w));
        // LevelDB: no filter is "maybe", an empty one "no".
        Some(filter.is_none_or(|filter| !filter.is_empty() && may_match(filter, hash)))
    }

    fn is_known(&self) -> bool {
        self.policy == NAME
    }

    fn window(&self, window: usize) -> Option<&[u8]> {
        // After the last offset comes `array_offset`, where the last filter ends.
        let offset = |window: usize| get_u32(&self.contents, self.array + 4 * window);
        let (start, end) = (offset(window)? as usize, offset(window + 1)? as usize);
        self.contents.get(..self.array)?.get(start..end)
    }
}
