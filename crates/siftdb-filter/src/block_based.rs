//! LevelDB's filter block: one filter per window of data offsets, all in one block.
//!
//! ```text
//! block := filter* offset* array_offset: u32  base_lg: u8
//! ```
//!
//! The keys of all data blocks that *start* in window `i` (from offset `i << base_lg` on) go into
//! filter `i`. `offset` is a `u32` for each window; an empty window has the offset of the next one.
//!
//! Source: LevelDB's `table/filter_block.cc`. The bytes equal LevelDB's for LevelDB Bloom and its
//! window of 2 KiB. The block stores `base_lg`, so other windows can be read. Reading is stricter
//! than LevelDB in two cases: a shift beyond 63 and an empty range outside the filters are damage.

use crate::builder::FilterBuilder;
use crate::error::BuildError;

/// Bytes after the offsets: where they begin, and the logarithm of the window.
const TAIL_BYTES: usize = 5;

/// Writes a filter block.
#[derive(Debug)]
pub struct BlockBasedBuilder {
    base_lg: u32,
    window: FilterBuilder,
    filters: Vec<u8>,
    offsets: Vec<u32>,
    entries: u64,
}

impl BlockBasedBuilder {
    /// A filter for each `window_bytes`, a power of two.
    pub fn new(window: FilterBuilder, window_bytes: usize) -> Self {
        let base_lg = window_bytes.max(1).ilog2();
        BlockBasedBuilder { base_lg, window, filters: Vec::new(), offsets: Vec::new(), entries: 0 }
    }

    /// The next keys belong to a data block at `data_offset`, counted from the first one.
    ///
    /// # Errors
    /// [`BuildError`] of the filters that are finished.
    pub fn start_block(&mut self, data_offset: u64) -> Result<(), BuildError> {
        while data_offset >> self.base_lg > self.offsets.len() as u64 {
            self.finish_window()?;
        }
        Ok(())
    }

    /// Adds a user key.
    pub fn add_key(&mut self, user_key: &[u8]) {
        self.window.add_key(user_key);
    }

    /// Entries of the filters that are finished.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    fn finish_window(&mut self) -> Result<(), BuildError> {
        let offset = u32::try_from(self.filters.len()).map_err(|_| BuildError::TooLarge {
            what: "filters of a table above 4 GiB".to_string(),
        })?;
        self.offsets.push(offset);
        self.entries += self.window.entries() as u64;
        self.window.finish(&mut self.filters)
    }

    /// The bytes of the block, which are LevelDB's for LevelDB Bloom and windows of 2 KiB.
    ///
    /// # Errors
    /// As for [`start_block`](Self::start_block).
    pub fn finish(&mut self) -> Result<Vec<u8>, BuildError> {
        if self.window.entries() > 0 {
            self.finish_window()?;
        }
        let mut contents = std::mem::take(&mut self.filters);
        let array_offset = contents.len() as u32;
        for offset in self.offsets.drain(..) {
            contents.extend_from_slice(&offset.to_le_bytes());
        }
        contents.extend_from_slice(&array_offset.to_le_bytes());
        contents.push(self.base_lg as u8);
        Ok(contents)
    }
}

/// The filter of a data offset.
#[derive(Debug, PartialEq, Eq)]
pub enum Window<'c> {
    /// The filter of the keys in this window; empty for no keys.
    Filter(&'c [u8]),
    /// After the last window; no key was added there.
    Outside,
    /// The block contradicts itself.
    Damaged,
}

/// The window of a data block at `block_offset`.
#[inline]
pub fn window_of(contents: &[u8], block_offset: u64) -> Window<'_> {
    find_window(contents, block_offset).unwrap_or(Window::Damaged)
}

/// Bytes of data that share a filter.
pub fn window_bytes(contents: &[u8]) -> u64 {
    let base_lg = contents.last().copied().unwrap_or_default();
    // A shift beyond 63 is damage, which the window of offset 0 shows.
    1u64.checked_shl(base_lg.into()).unwrap_or(u64::MAX)
}

/// Calls `each` with the filters of all windows in order. False if the block contradicts itself.
pub fn each_window<'c>(contents: &'c [u8], mut each: impl FnMut(&'c [u8])) -> bool {
    let mut offset = Some(0u64);
    while let Some(start) = offset {
        match window_of(contents, start) {
            Window::Filter(filter) => each(filter),
            Window::Outside => return true,
            Window::Damaged => return false,
        }
        offset = start.checked_add(window_bytes(contents));
    }
    true
}

#[inline]
fn get_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[inline]
fn find_window(contents: &[u8], block_offset: u64) -> Option<Window<'_>> {
    let tail = contents.len().checked_sub(TAIL_BYTES)?;
    let base_lg = u32::from(*contents.last()?);
    let array_offset = get_u32(contents, tail)? as usize;
    let windows = tail.checked_sub(array_offset)? / 4;
    let Ok(window) = usize::try_from(block_offset.checked_shr(base_lg)?) else {
        return Some(Window::Outside);
    };
    if window >= windows {
        return Some(Window::Outside);
    }
    // The entry after the last offset is the array offset itself: where the last filter ends.
    let entry = array_offset + 4 * window;
    let start = get_u32(contents, entry)? as usize;
    let end = get_u32(contents, entry + 4)? as usize;
    if end > array_offset {
        return None;
    }
    contents.get(start..end).map(Window::Filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{Encoding, FilterReader};
    use crate::hash::KeyHash;
    use crate::testing::vectors;
    use serde_json::Value;

    fn builder(bits_per_key: u32, window_bytes: usize) -> BlockBasedBuilder {
        let keys = Encoding::LevelDbBloom { bits_per_key }.block_based_builder();
        BlockBasedBuilder::new(keys, window_bytes)
    }

    fn may_contain(contents: &[u8], offset: u64, key: &[u8]) -> bool {
        match window_of(contents, offset) {
            Window::Filter(filter) => {
                FilterReader::LevelDbBloom.may_contain(filter, &KeyHash::new(key))
            }
            Window::Outside | Window::Damaged => true,
        }
    }

    #[test]
    fn blocks_equal_those_of_leveldb() {
        let Some(file) = vectors::load("leveldb_filter_block.json") else { return };
        let cases = vectors::array(&file, "cases");
        assert_eq!(cases.len(), 16);
        for case in cases {
            let bits_per_key = vectors::number(case, "bits_per_key") as u32;
            let mut builder = builder(bits_per_key, 2048);
            for op in vectors::array(case, "ops") {
                match op[0].as_str() {
                    Some("start") => builder.start_block(op[1].as_u64().expect("offset")).unwrap(),
                    Some("add") => builder.add_key(&vectors::unhex(op[1].as_str().expect("key"))),
                    other => panic!("unknown step {other:?}"),
                }
            }
            let contents = builder.finish().unwrap();
            assert_eq!(contents, vectors::bytes(case, "block"), "{}", case["name"]);
            for query in vectors::array(case, "queries") {
                let key = vectors::unhex(query[1].as_str().expect("key"));
                let expected = query[2].as_u64().or(query[2].as_bool().map(u64::from));
                let may = may_contain(&contents, query[0].as_u64().expect("offset"), &key);
                assert_eq!(Some(u64::from(may)), expected, "{} {query}", case["name"]);
            }
        }
    }

    #[test]
    fn arbitrary_filter_blocks_read_like_leveldb() {
        let Some(file) = vectors::load("leveldb_filter_block.json") else { return };
        for case in vectors::array(&file, "reader_edge") {
            let block = vectors::bytes(case, "block");
            let key = vectors::bytes(case, "key");
            let may = may_contain(&block, vectors::number(case, "offset"), &key);
            assert_eq!(Value::from(may), case["may_match"], "{case}");
        }
    }

    #[test]
    fn golden_block() {
        let mut builder = builder(10, 2048);
        assert_eq!(vectors::hex(&builder.finish().unwrap()), "000000000b");
        builder.start_block(0).unwrap();
        builder.add_key(b"hello");
        builder.add_key(b"world");
        builder.start_block(5000).unwrap();
        builder.add_key(b"dup");
        builder.start_block(5100).unwrap();
        let contents = builder.finish().unwrap();
        // Two filters of nine bytes, the second window empty, the third ends at the array.
        assert_eq!(vectors::hex(&contents[..9]), "114000414410401006");
        assert_eq!(vectors::hex(&contents[18..]), "000000000900000009000000120000000b");
        assert!(may_contain(&contents, 2000, b"hello") && may_contain(&contents, 5000, b"dup"));
        assert!(!may_contain(&contents, 3000, b"hello") && !may_contain(&contents, 0, b"dup"));
    }

    #[test]
    fn undefined_filter_blocks_are_not_consulted() {
        let mut builder = builder(10, 2048);
        builder.add_key(b"hello");
        let sound = builder.finish().unwrap();
        assert!(matches!(window_of(&sound, 0), Window::Filter(filter) if filter.len() == 9));
        assert_eq!(window_of(&sound, 2048), Window::Outside);
        assert_eq!(window_of(&sound, u64::MAX), Window::Outside);
        let mut shifted = sound.clone();
        *shifted.last_mut().expect("base_lg") = 64;
        assert_eq!(window_of(&shifted, 0), Window::Damaged);
        // An empty range after the filters: LevelDB says "no", which damage must never say.
        let mut outside = vec![0; 4];
        for offset in [0x40u32, 0x40, 4] {
            outside.extend_from_slice(&offset.to_le_bytes());
        }
        outside.push(11);
        assert_eq!(window_of(&outside, 0), Window::Damaged);
        assert!(may_contain(&outside, 0, b"hello"));
        for cut in 0..5 {
            assert_eq!(window_of(&sound[..cut], 0), Window::Damaged);
        }
    }

    #[test]
    fn other_windows_are_stored_and_honoured() {
        for window_bytes in [256, 4096, 1 << 16] {
            let mut builder = builder(10, window_bytes);
            for block in 0..50u64 {
                builder.start_block(block * 3000).unwrap();
                builder.add_key(&block.to_le_bytes());
            }
            let contents = builder.finish().unwrap();
            assert_eq!(contents.last().map(|lg| 1usize << lg), Some(window_bytes));
            for block in 0..50u64 {
                assert!(may_contain(&contents, block * 3000, &block.to_le_bytes()));
            }
        }
    }
}
