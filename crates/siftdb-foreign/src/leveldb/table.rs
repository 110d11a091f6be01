//! LevelDB's tables.
//!
//! ```text
//! table   := data block*  filter block?  metaindex block  index block  footer
//! footer  := handle of the metaindex  handle of the index  zeros up to 40 bytes  magic: u64
//! ```
//!
//! Checksums are masked CRC-32C. The index names every data block by an internal key.

use crate::block_file::BlockFile;
use crate::block_handle::BlockHandle;
use crate::coding::{Decoder, get_u64};
use crate::index::IndexStyle;
use crate::run::{OpenTable, TableFile};
use crate::table::Table;
use siftdb::Result;
use siftdb::env::Env;
use std::path::Path;

/// The last eight bytes of a table.
pub(crate) const TABLE_MAGIC: u64 = 0xdb47_7524_8b80_fb57;

const FOOTER_BYTES: usize = 48;

/// Opens a table of a database.
///
/// # Errors
/// `Io`, `Corruption`.
pub(crate) fn open_expected(env: &dyn Env, file: &TableFile) -> Result<OpenTable> {
    let bytes = file.expected.as_ref().map(|expected| expected.bytes);
    let table = open(env, &file.path, bytes)?;
    Ok(OpenTable { table, global_sequence: None, has_exact_ends: true, entries: None })
}

/// Opens a table. `expected_bytes` is what the manifest says.
///
/// # Errors
/// `Io`, `Corruption`.
pub(crate) fn open(env: &dyn Env, path: &Path, expected_bytes: Option<u64>) -> Result<Table> {
    let mut file = BlockFile::open(env, path)?;
    let bytes = file.bytes;
    if let Some(expected) = expected_bytes.filter(|&expected| expected != bytes) {
        let what = format!("the file has {bytes} bytes, the manifest says {expected}");
        return Err(file.damage(bytes.min(expected), what));
    }
    let Some(blocks_end) = bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Err(file.damage(0, "the file is too short for a table"));
    };
    file.blocks_end = blocks_end;
    let mut footer = [0; FOOTER_BYTES];
    file.read_at(blocks_end, &mut footer)?;
    if get_u64(&footer, FOOTER_BYTES - 8) != Some(TABLE_MAGIC) {
        let what = "it does not end with the magic number of LevelDB's tables";
        return Err(file.damage(blocks_end, what));
    }
    let mut decoder = Decoder::new(&footer[..FOOTER_BYTES - 8]);
    let mut handle = || BlockHandle::read(&mut decoder);
    let (Some(metaindex), Some(index)) = (handle(), handle()) else {
        return Err(file.damage(blocks_end, "a malformed footer"));
    };
    let style = IndexStyle::default();
    Ok(Table { file, metaindex, index, style, has_whole_keys: true })
}
