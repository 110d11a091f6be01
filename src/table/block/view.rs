//! A block where it stands: its entries by position, and the search by order.
//!
//! A [`BlockView`] is the bytes of a block and what `block_check` says of their shape; `block`
//! gives one of what it owns, `lookup_block` one of what was just read. The search is binary over
//! the restart points, then a walk that builds no key, so that it needs nothing that was noted at
//! load. The bytes were checked: should something unsound be met all the same, lookups end as
//! "absent from here on" and nothing panics.

use crate::base::key::common_prefix;
use crate::base::key::{LookupKey, split_internal_key};
use crate::table::block::check::{BlockShape, Entry, decode_entry};
use std::cmp::Ordering;

/// The bytes of a block, of which others may follow, and their shape.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'b> {
    bytes: &'b [u8],
    shape: BlockShape,
}

/// What a lookup found: the newest visible version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Sequence and kind.
    pub trailer: u64,
    /// Where the value begins in the block.
    pub value_start: usize,
    /// Its length.
    pub value_len: usize,
}

impl<'b> BlockView<'b> {
    /// A view of a block of this shape.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'b [u8], shape: BlockShape) -> Self {
        BlockView { bytes, shape }
    }

    /// The newest version of the key that its sequence can see, in a block of internal keys: a walk
    /// from the last restart point that is not behind it.
    ///
    /// It keeps `matched`, the length of the prefix that the entry before has in common with the
    /// wanted user key. An entry that shares more than that with its predecessor is below the
    /// wanted key for the same reason; any other is compared from `shared` on. That holds because
    /// `shared` stays inside user keys, which was checked at load.
    #[must_use]
    pub fn get(&self, key: &LookupKey) -> Option<Found> {
        let wanted = key.user_key();
        let mut at = self.restart(self.restarts_below(key.internal_key()).saturating_sub(1))?;
        let mut matched = 0;
        while let Some(entry) = self.entry_at(at) {
            at = entry.end;
            if entry.shared > matched {
                continue;
            }
            let own = entry.own_key(self.bytes);
            let rest = wanted.get(entry.shared..)?;
            let common = common_prefix(own, rest);
            match (own.get(common), rest.get(common)) {
                (None, None) => {
                    let trailer = self.trailer(&entry)?;
                    if trailer <= key.trailer() {
                        let value_len = entry.end - entry.value_start;
                        return Some(Found { trailer, value_start: entry.value_start, value_len });
                    }
                }
                (None, Some(_)) => {}
                (Some(theirs), Some(ours)) if theirs < ours => {}
                _ => return None,
            }
            matched = entry.shared + common;
        }
        None
    }

    /// How many restart entries stand below the internal key `bound`.
    #[must_use]
    pub fn restarts_below(&self, bound: &[u8]) -> usize {
        let (bound, bound_trailer) = split_internal_key(bound).unwrap_or((bound, 0));
        let (mut low, mut high) = (0, self.shape.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.restart(middle).and_then(|at| self.entry_at(at));
            let below = entry.is_some_and(|entry| {
                let order = entry.own_key(self.bytes).cmp(bound);
                order.then_with(|| Some(bound_trailer).cmp(&self.trailer(&entry))) == Ordering::Less
            });
            if below { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Where restart interval `interval` begins; `None` beyond the last.
    #[inline]
    #[must_use]
    pub fn restart(&self, interval: usize) -> Option<usize> {
        self.shape.restart(self.bytes, interval)
    }

    /// Decodes the entry at `at`; `None` at the end of the entries and where nothing sound stands.
    #[inline]
    #[must_use]
    pub fn entry_at(&self, at: usize) -> Option<Entry> {
        let trailer_bytes = self.shape.trailers.map_or(0, |trailers| trailers.width());
        decode_entry(self.bytes, at, self.shape.entries_end, trailer_bytes)
    }

    /// The trailer of `entry`; `None` in a block whose keys have none.
    #[inline]
    #[must_use]
    pub fn trailer(&self, entry: &Entry) -> Option<u64> {
        self.shape.trailers?.get(self.bytes, entry.key_end)
    }
}
