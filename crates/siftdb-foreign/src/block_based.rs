//! A filter block with a filter for each window of data offsets, as LevelDB writes it.
//! `siftdb-filter/block_based.rs` describes the layout, which tables of siftdb can have too.

use siftdb_filter::block_based::{Window, each_window, window_bytes, window_of};
use siftdb_filter::bloom::leveldb::{NAME, may_match};

/// The filter block of a table.
#[derive(Debug)]
pub(crate) struct BlockBasedFilter {
    contents: Vec<u8>,
    /// Bits in filters, without the rest of the block, and probes of a key; 0 of both with a policy
    /// other than LevelDB's own, or without keys.
    pub bits: u64,
    pub probes: u32,
}

impl BlockBasedFilter {
    /// Checks the contents of the block, which a policy made. The error says what is wrong.
    pub(crate) fn new(policy: &str, contents: Vec<u8>) -> Result<Self, String> {
        let (mut bits, mut probes) = (0, 0);
        let is_sound = each_window(&contents, |filter| {
            if let Some((&last, body)) = filter.split_last().filter(|_| policy == NAME) {
                bits += 8 * body.len() as u64;
                probes = u32::from(last);
            }
        });
        match is_sound {
            true => Ok(BlockBasedFilter { contents, bits, probes }),
            false => Err("a malformed filter block".into()),
        }
    }

    /// Bytes of data that share a filter.
    pub(crate) fn window_bytes(&self) -> u64 {
        window_bytes(&self.contents)
    }

    /// Whether the data block at `offset` may have a key of this hash, by filters of LevelDB's own
    /// policy.
    pub(crate) fn block_may_contain(&self, offset: u64, hash: u32) -> bool {
        // As in LevelDB, a window without a filter says "maybe".
        match window_of(&self.contents, offset) {
            Window::Filter(filter) => may_match(filter, hash),
            Window::Outside | Window::Damaged => true,
        }
    }
}
