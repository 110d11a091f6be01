//! The data index in the making: one separator and handle per data block.
//!
//! `builder` pushes each block once it knows what follows. Whether user keys suffice as separators
//! is known only at the end, so they are kept as internal keys until then: a separator between two
//! user keys gets trailer 0, which stands behind every version; where one user key goes on in the
//! next block, the separator is the block's last key itself. Either way a lookup finds the only
//! block that can hold its answer. What is written is read by `index`.

use crate::base::key::{put_key_with_trailer, separator, user_key};
use crate::table::block::builder::BlockBuilder;
use crate::table::format::BlockHandle;

/// What an entry takes beside its key, at most or little less: lengths, handle, restart.
const ENTRY_BYTES: usize = 24;

/// The index in the making: separators as internal keys, until it is known whether user keys do.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    keys: Vec<u8>,
    /// End of each key in `keys`, and the block.
    entries: Vec<(usize, BlockHandle)>,
    need_internal_keys: bool,
}

impl IndexBuilder {
    /// The block at `handle` ends with `last`, the following begins with `next`.
    pub fn push(&mut self, last: &[u8], next: Option<&[u8]>, handle: BlockHandle) {
        match next {
            Some(next) if user_key(next) == user_key(last) => {
                self.need_internal_keys = true;
                self.keys.extend_from_slice(last);
            }
            // Trailer 0 stands behind every version of the separator.
            Some(next) => {
                let short = separator(user_key(last), user_key(next));
                put_key_with_trailer(&mut self.keys, &short, 0);
            }
            None => put_key_with_trailer(&mut self.keys, user_key(last), 0),
        }
        self.entries.push((self.keys.len(), handle));
    }

    /// About the size of the block so far, before prefix compression.
    #[must_use]
    pub fn estimated_bytes(&self) -> usize {
        self.keys.len() + self.entries.len() * ENTRY_BYTES
    }

    /// Whether separators can be user keys: no user key stands in two adjacent blocks.
    #[must_use]
    pub fn user_keys_suffice(&self) -> bool {
        !self.need_internal_keys
    }

    /// The index block.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut builder = BlockBuilder::new(1);
        let mut value = Vec::new();
        let mut start = 0;
        for &(end, handle) in &self.entries {
            let key = self.keys.get(start..end).unwrap_or_default();
            start = end;
            value.clear();
            handle.encode(&mut value);
            builder.add(if self.user_keys_suffice() { user_key(key) } else { key }, &value);
        }
        builder.finish().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{LookupKey, ValueKind, put_internal_key};
    use crate::table::index::Index;

    fn key(user: &str, sequence: u64) -> Vec<u8> {
        let mut key = Vec::new();
        put_internal_key(&mut key, user.as_bytes(), sequence, ValueKind::Put);
        key
    }

    fn pushed(blocks: &[(Vec<u8>, Vec<u8>)]) -> Index {
        let mut builder = IndexBuilder::default();
        for (i, (_, last)) in blocks.iter().enumerate() {
            let next = blocks.get(i + 1).map(|(first, _)| &first[..]);
            builder.push(last, next, BlockHandle { offset: 100 * i as u64, size: 95 });
        }
        Index::new(builder.build(), builder.user_keys_suffice(), 1000).unwrap()
    }

    #[test]
    fn separators_are_short_user_keys() {
        let index = pushed(&[
            (key("aardvark", 1), key("abacus", 1)),
            (key("mammoth", 1), key("mamm\u{f8}", 1)),
            (key("zebra", 9), key("zebra", 2)),
        ]);
        let keys: Vec<_> = (0..3).map(|i| index.key(i).escape_ascii().to_string()).collect();
        assert_eq!(keys, ["b", "n", "zebra"]);
    }

    #[test]
    fn versions_are_found_across_blocks() {
        let index = pushed(&[
            (key("a", 1), key("k", 8)),
            (key("k", 7), key("k", 5)),
            (key("k", 4), key("m", 1)),
        ]);
        for (sequence, block) in [(9, 0), (8, 0), (7, 1), (6, 1), (5, 1), (4, 2), (1, 2)] {
            assert_eq!(index.find(&LookupKey::new(b"k", sequence)), Some(block), "at {sequence}");
        }
        assert_eq!(index.find(&LookupKey::new(b"n", 1)), None);
    }
}
