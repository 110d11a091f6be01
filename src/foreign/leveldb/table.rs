//! LevelDB's tables.
//!
//! ```text
//! table   := data block*  filter block?  metaindex block  index block  footer
//! footer  := handle of the metaindex  handle of the index  zeros up to 40 bytes  magic: u64
//! ```
//!
//! Checksums are masked CRC-32C. The index names every data block by an internal key.

use crate::base::coding::{Decoder, get_u64};
use crate::base::error::Result;
use crate::env::api::Env;
use crate::env::foreign::LEVELDB_TABLE_MAGIC;
use crate::foreign::block_file::BlockFile;
use crate::foreign::index::IndexStyle;
use crate::foreign::table::Table;
use crate::table::format::BlockHandle;
use std::path::Path;

const FOOTER_BYTES: usize = 48;

/// Opens a table. `expected_bytes` is what the manifest says.
///
/// # Errors
/// `Io`, `Corruption`.
pub(crate) fn open(env: &dyn Env, path: &Path, expected_bytes: Option<u64>) -> Result<Table> {
    let mut file = BlockFile::open(env, path)?;
    let bytes = file.bytes();
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
    if get_u64(&footer, FOOTER_BYTES - 8) != Some(LEVELDB_TABLE_MAGIC) {
        let what = "it does not end with the magic number of LevelDB's tables";
        return Err(file.damage(blocks_end, what));
    }
    let mut decoder = Decoder::new(&footer[..FOOTER_BYTES - 8]);
    let mut handle = || Some(BlockHandle { offset: decoder.varint()?, size: decoder.varint()? });
    let (Some(metaindex), Some(index)) = (handle(), handle()) else {
        return Err(file.damage(blocks_end, "a malformed footer"));
    };
    let style = IndexStyle::default();
    Ok(Table { file, metaindex, index, style, has_whole_keys: true })
}
