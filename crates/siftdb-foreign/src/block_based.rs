//! A filter block with a filter for each window of data offsets, as LevelDB writes it.
//! `table/filter/block_based.rs` describes the layout, which siftdb's own tables can have too.

use siftdb_filter::block_based::{Window, each_window, window_bytes, window_of};
use siftdb_filter::bloom::leveldb::{NAME, may_match};

/// The filter block of a table, with its policy.
#[derive(Debug)]
pub(crate) struct BlockBasedFilter {
    policy: String,
    contents: Vec<u8>,
    /// Bits in filters, and probes of a key; 0 of both with another policy, or without keys.
    bits: u64,
    probes: u32,
}

impl BlockBasedFilter {
    /// Checks the contents of the block. The error says what is wrong.
    pub(crate) fn new(policy: String, contents: Vec<u8>) -> Result<Self, String> {
        let (mut bits, mut probes) = (0, 0);
        let is_sound = each_window(&contents, |filter| {
            if let Some((&last, body)) = filter.split_last().filter(|_| policy == NAME) {
                bits += 8 * body.len() as u64;
                probes = u32::from(last);
            }
        });
        match is_sound {
            true => Ok(BlockBasedFilter { policy, contents, bits, probes }),
            false => Err("a malformed filter block".into()),
        }
    }

    /// Bytes of data that share a filter.
    pub(crate) fn window_bytes(&self) -> u64 {
        window_bytes(&self.contents)
    }

    /// Bits in the filters, without the rest of the block, and the probes of a key. `None` if
    /// another policy made the filter, or there are no keys.
    pub(crate) fn bits_and_probes(&self) -> Option<(u64, u32)> {
        (self.bits > 0).then_some((self.bits, self.probes))
    }

    /// Whether the data block at `offset` may have a key of this hash; `None` if another policy
    /// made the filter.
    pub(crate) fn block_may_contain(&self, offset: u64, hash: u32) -> Option<bool> {
        if self.policy != NAME {
            return None;
        }
        // As in LevelDB, a window without a filter says "maybe".
        Some(match window_of(&self.contents, offset) {
            Window::Filter(filter) => may_match(filter, hash),
            Window::Outside | Window::Damaged => true,
        })
    }
}
