//! The blocks of a batch that are in no cache, asked for before the first of them is read.
//!
//! Where files are not in the system's page cache, a read waits for the disk, which serves many
//! reads in the time of one. `tree/multi_get.rs` calls [`read_ahead`] when the blocks of all keys
//! in a level are known and before it searches them: first for parts of data indexes, then for data
//! blocks. It waits for nothing. The search reads the blocks, and has the errors.

use crate::table::batch_key::BatchKey;
use crate::table::format::BlockKind;
use crate::table::reader::Table;

/// Bytes of the blocks that are asked for before the first is searched, at most. They are in the
/// system's page cache.
const BYTES_MAX: u64 = 8 << 20;

/// Asks for the blocks of a kind that the next step will need for these keys and that are not in
/// memory, but for the first one, which is read next. The keys come with their tables.
pub(crate) fn read_ahead<'r, 'b: 'r, 'k: 'b>(
    runs: impl Iterator<Item = (&'r Table, &'r [&'b mut BatchKey<'k>])>,
    kind: BlockKind,
) {
    let (mut is_first, mut bytes) = (true, 0);
    for (table, keys) in runs {
        let mut last = None;
        for key in keys {
            let id = key.block_id();
            let Some(block) = table.missing_block(key, kind).filter(|_| id != last) else {
                continue;
            };
            last = id;
            bytes += block.size;
            if bytes > BYTES_MAX {
                return;
            }
            if !std::mem::take(&mut is_first) {
                table.read_ahead(block);
            }
        }
    }
}
