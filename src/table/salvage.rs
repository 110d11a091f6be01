//! Reads what is sound of a damaged table, block by block, and names the blocks that are not.
//!
//! For repairs only: every other reader stops at the first damage. Needs footer, properties and
//! index, since nothing but the index says where blocks begin. A block counts as sound if its
//! checksum and structure hold, its keys ascend and lie where the index says, and its sequences are
//! those the caller expects, so what comes out is in order and of its table's age. The filter is
//! not read: whoever writes the entries anew makes another.

use crate::error::{Error, Result};
use crate::iterator::api::Direction;
use crate::key::{SequenceNumber, compare_internal, split_internal_key, unpack_trailer, user_key};
use crate::table::block::Block;
use crate::table::block_check::BlockKeys;
use crate::table::block_cursor::BlockCursor;
use crate::table::fetch::TableIo;
use crate::table::format::BlockKind;
use crate::table::index::Index;
use crate::table::reader::Table;
use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// A data block that cannot be read.
#[derive(Clone, Debug)]
pub struct LostBlock {
    /// Every key in it is at or above this one; `None` for the first block.
    pub from: Option<Vec<u8>>,
    /// Every key in it is at or below this one.
    pub to: Vec<u8>,
    /// What is wrong.
    pub error: Error,
}

/// Takes an entry: its internal key and its value.
pub type Keep<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

impl Table {
    /// Gives each entry of each sound block to `keep`, in order. A block with an entry outside of
    /// `sequences` is not sound.
    ///
    /// # Errors
    /// The index cannot be read, or what `keep` answers.
    pub fn salvage(
        &self,
        sequences: &RangeInclusive<SequenceNumber>,
        keep: Keep<'_>,
    ) -> Result<Vec<LostBlock>> {
        let io = &mut TableIo::default();
        let index = self.file().read_index(self.footer().index, BlockKind::Index, io)?;
        let separator = |i: usize| match self.properties().index_key_is_user_key {
            true => index.key(i).to_vec(),
            false => user_key(index.key(i)).to_vec(),
        };
        let mut last_key = Vec::new();
        let mut lost = Vec::new();
        for i in 0..index.len() {
            match self.sound_block(&index, i, sequences, &last_key) {
                Ok(block) => {
                    let mut cursor = BlockCursor::new(Direction::Forward);
                    cursor.seek(&block, None);
                    while cursor.valid() {
                        keep(cursor.key(), cursor.value(&block))?;
                        last_key.clear();
                        last_key.extend_from_slice(cursor.key());
                        cursor.next(&block);
                    }
                }
                Err(error) => {
                    let from = i.checked_sub(1).map(separator);
                    lost.push(LostBlock { from, to: separator(i), error });
                }
            }
        }
        Ok(lost)
    }

    fn sound_block(
        &self,
        index: &Index,
        i: usize,
        sequences: &RangeInclusive<SequenceNumber>,
        last_key: &[u8],
    ) -> Result<Block> {
        let Some(handle) = index.handle(i) else {
            let what = format!("the index has no block {i}");
            return Err(self.file().corruption(self.footer().index.offset, what));
        };
        let contents = self.file().read_raw(handle, BlockKind::Data, &mut TableIo::default())?;
        let wrong = |what: &str| self.file().corruption(handle.offset, what);
        let block = Block::new(&contents, BlockKeys::Internal).map_err(|what| wrong(&what))?;
        let mut cursor = BlockCursor::new(Direction::Forward);
        cursor.seek(&block, None);
        let mut before = last_key.to_vec();
        while cursor.valid() {
            let key = cursor.key();
            if !before.is_empty() && compare_internal(&before, key) != Ordering::Less {
                return Err(wrong("keys out of order"));
            }
            if index.seek(key) != i {
                return Err(wrong("a key outside what the index says of its block"));
            }
            match split_internal_key(key).and_then(|(_, trailer)| unpack_trailer(trailer)) {
                None => return Err(wrong("an entry of an unknown kind")),
                Some((sequence, _)) if !sequences.contains(&sequence) => {
                    return Err(wrong("an entry older or newer than its table"));
                }
                Some(_) => {}
            }
            before.clear();
            before.extend_from_slice(key);
            cursor.next(&block);
        }
        Ok(block)
    }
}
