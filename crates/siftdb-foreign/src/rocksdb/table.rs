//! RocksDB's block-based tables, format versions 2 to 7.
//!
//! ```text
//! table  := data block*  filter?  index  range deletes?  properties  metaindex  footer
//! footer := checksum: u8  40 bytes  version: u32  magic: u64
//! to 5   := handle of the metaindex  handle of the index  zeros up to 40 bytes
//! from 6 := 3e 00 7a 00  footer checksum: u32  base: u32  bytes of the metaindex: u32  24 zeros
//! ```
//!
//! From version 6 on the metaindex is the last block and names the index, and checksums depend on
//! `base` and the offset besides the bytes. Version 7 names the compression manager. The properties
//! say how the index is written.
//!
//! Format: RocksDB's `table/format.cc` and `table/block_based/`. Unsupported features are refused
//! by name: unknown compressions, comparators, timestamps, blobs within the table, and custom
//! indexes.

use crate::block_file::BlockFile;
use crate::block_handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::checksum::{ChecksumKind, checksum_context};
use crate::coding::{Decoder, get_u32, get_u64};
use crate::index::IndexStyle;
use crate::key_order::KeyOrder;
use crate::rocksdb::properties::{self, EXTERNAL_VERSION, GLOBAL_SEQUENCE, INDEX_TYPE, Properties};
use crate::run::{OpenTable, TableFacts, TableFile};
use crate::store::Store;
use crate::table::{NamedBlocks, Table};
use siftdb::Result;
use siftdb::env::Env;
use std::path::Path;

/// The last eight bytes of a block-based table.
pub(crate) const TABLE_MAGIC: u64 = 0x88e2_41b7_85f4_cff7;

/// The last eight bytes of other tables, and their kinds.
pub(crate) const OTHER_MAGICS: [(u64, &str); 3] = [
    (0x8242_2296_63bf_9564, "a plain table of RocksDB"),
    (0x4f34_18eb_7a8f_13b8, "a plain table of RocksDB"),
    (0x9267_89d0_c5f1_7873, "a cuckoo table of RocksDB"),
];

/// The name of the index in the metaindex, from version 6 on.
pub(crate) const INDEX_NAME: &[u8] = b"rocksdb.index";

/// The name of the range deletes in the metaindex.
pub(crate) const RANGE_DELETES_NAME: &[u8] = b"rocksdb.range_del";

/// The name of the dictionary in the metaindex.
pub(crate) const DICTIONARY_NAME: &[u8] = b"rocksdb.compression_dict";

const USER_INDEX_PREFIX: &[u8] = b"rocksdb.user_defined_index.";
const FOOTER_BYTES: usize = 53;
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=7;

/// The second magic number, which footers have from version 6 on.
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0, 0x7a, 0];

/// The types of an index by their number in the properties.
const INDEX_TYPES: [&str; 4] = ["binary search", "hash", "two-level", "with first keys"];
const TWO_LEVEL: u64 = 2;
const WITH_FIRST_KEYS: u64 = 3;

/// Parts that only RocksDB's tables have.
#[derive(Debug)]
pub(crate) struct RocksParts {
    pub version: u32,
    pub properties: Properties,
    /// The block of the properties.
    pub properties_at: BlockHandle,
    /// The block of range deletes, if there is one.
    pub range_deletes: Option<BlockHandle>,
}

/// Opens a table whose keys are in this order: reads its footer, metaindex and properties.
///
/// # Errors
/// `Io`; `Corruption`; `UnsupportedFormat`, also for a table of another order.
pub(crate) fn open(env: &dyn Env, path: &Path, order: KeyOrder) -> Result<(Table, RocksParts)> {
    let mut file = BlockFile::open(env, path)?;
    let (version, metaindex, index) = read_footer(&mut file)?;
    let names = [INDEX_NAME, properties::NAME, RANGE_DELETES_NAME, DICTIONARY_NAME];
    let [named_index, properties_at, range_deletes, dictionary] =
        blocks_of(&file, metaindex, names)?;
    let Some(index) = index.or(named_index) else {
        return Err(file.damage(metaindex.offset, "the metaindex does not name an index"));
    };
    let Some(properties_at) = properties_at else {
        return Err(file.damage(metaindex.offset, "the metaindex does not name properties"));
    };
    let properties = Properties::read(&file, properties_at)?;
    if let Some(handle) = dictionary {
        file.dictionary = Some(file.read(handle)?);
    }
    refuse(&file, &properties, order)?;
    let Some(index_type) = properties.number(INDEX_TYPE) else {
        return Err(file.damage(properties_at.offset, "no property names the type of the index"));
    };
    let style = IndexStyle {
        is_partitioned: index_type == TWO_LEVEL,
        has_delta_values: properties.is_set("rocksdb.index.value.is.delta.encoded"),
        has_user_keys: properties.is_set("rocksdb.index.key.is.user.key"),
        has_first_keys: index_type == WITH_FIRST_KEYS,
        order,
    };
    let whole_keys = properties.text("rocksdb.block.based.table.whole.key.filtering");
    let has_whole_keys = whole_keys != Some("0");
    let table = Table { file, metaindex, index, style, has_whole_keys };
    Ok((table, RocksParts { version, properties, properties_at, range_deletes }))
}

/// Opens a table of a database.
///
/// # Errors
/// `Io`; `Corruption`; `UnsupportedFormat`.
pub(crate) fn open_expected(env: &dyn Env, file: &TableFile) -> Result<OpenTable> {
    let (table, rocks) = open(env, &file.path, file.order)?;
    expected(table, &rocks, file.expected.as_ref())
}

/// The table with what a database knows about it. `facts` are those of the manifest.
///
/// # Errors
/// `Corruption` if both contradict each other.
pub(crate) fn expected(
    table: Table,
    rocks: &RocksParts,
    facts: Option<&TableFacts>,
) -> Result<OpenTable> {
    let (file, number) = (&table.file, |name| rocks.properties.number(name));
    if let Some(facts) = facts.filter(|facts| facts.bytes != file.bytes) {
        let what = format!("the file has {} bytes, the manifest says {}", file.bytes, facts.bytes);
        return Err(file.damage(file.bytes.min(facts.bytes), what));
    }
    // The database that ingested the table may have written the number into it.
    let written = number(GLOBAL_SEQUENCE).filter(|&sequence| sequence > 0);
    let is_ingested = number(EXTERNAL_VERSION) >= Some(2);
    let known = facts.and_then(|facts| facts.largest_sequence);
    if is_ingested && known.is_some() && written.is_some() && written != known {
        let what = "a global sequence number that is not what the manifest says";
        return Err(file.damage(rocks.properties_at.offset, what));
    }
    let global_sequence = known.or(written).filter(|_| is_ingested);
    let range_deletes = number("rocksdb.num.range-deletions").unwrap_or(0);
    let entries = number("rocksdb.num.entries").map(|all| all.saturating_sub(range_deletes));
    let has_exact_ends = rocks.range_deletes.is_none();
    Ok(OpenTable { table, global_sequence, has_exact_ends, entries })
}

impl RocksParts {
    /// The name of the index type.
    pub(crate) fn index_name(&self) -> &'static str {
        let number = self.properties.number(INDEX_TYPE).unwrap_or_default();
        INDEX_TYPES.get(number as usize).copied().unwrap_or_default()
    }
}

/// Refuses unsupported features by name.
fn refuse(file: &BlockFile, properties: &Properties, order: KeyOrder) -> Result<()> {
    let refused = |what: String| Err(file.unsupported(what));
    if let Some(found) = properties.text("rocksdb.comparator")
        && found != order.name()
    {
        return refused(format!(
            "keys in the order {found:?}; here only {:?} is read",
            order.name()
        ));
    }
    if properties.number("rocksdb.user.defined.timestamps.persisted") == Some(0) {
        return refused("keys without their timestamps".into());
    }
    if properties.text("rocksdb.embedded.blob.stats").is_some() {
        return refused("blobs within the table".into());
    }
    if let Some(number) = properties.number(INDEX_TYPE)
        && number >= INDEX_TYPES.len() as u64
    {
        return refused(format!("an index of the unknown type {number}"));
    }
    // From version 7 on: the compression manager, then the compressions in hexadecimal.
    if let Some((manager, _)) =
        properties.text("rocksdb.compression").and_then(|c| c.split_once(';'))
        && !["", "BuiltinV2"].contains(&manager)
    {
        return refused(format!("compression by {manager:?}"));
    }
    Ok(())
}

/// The blocks of these names, as far as the metaindex has them.
fn blocks_of<const N: usize>(
    file: &BlockFile,
    metaindex: BlockHandle,
    names: [&[u8]; N],
) -> Result<[Option<BlockHandle>; N]> {
    let mut blocks = [None; N];
    let mut named = NamedBlocks::open(file, metaindex)?;
    while named.next(file)? {
        if named.name().starts_with(USER_INDEX_PREFIX) {
            let name = named.name().escape_ascii();
            return Err(file.unsupported(format!("an index of a user's own, {name}")));
        }
        if let Some(at) = names.iter().position(|name| *name == named.name()) {
            blocks[at] = Some(named.handle);
        }
    }
    Ok(blocks)
}

/// The version, and the handles of metaindex and index; the latter up to version 5.
fn read_footer(file: &mut BlockFile) -> Result<(u32, BlockHandle, Option<BlockHandle>)> {
    let Some(start) = file.bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Err(file.damage(0, "the file is too short for a table"));
    };
    (file.store, file.blocks_end) = (Store::RocksDb, start);
    let mut footer = [0; FOOTER_BYTES];
    file.read_at(start, &mut footer)?;
    let malformed = |what: &str| file.damage(start, what);
    let magic = get_u64(&footer, FOOTER_BYTES - 8);
    if let Some((_, what)) = OTHER_MAGICS.iter().find(|(other, _)| Some(*other) == magic) {
        return Err(file.unsupported(*what));
    }
    if magic != Some(TABLE_MAGIC) {
        return Err(malformed("it does not end with the magic number of RocksDB's tables"));
    }
    let version = get_u32(&footer, FOOTER_BYTES - 12).unwrap_or_default();
    if !VERSIONS.contains(&version) {
        return Err(file.unsupported(format!("format version {version}; read are 2 to 7")));
    }
    let Some(checksum) = ChecksumKind::from_byte(footer[0]) else {
        return Err(file.unsupported(format!("the unknown checksum {}", footer[0])));
    };
    if version < 6 {
        let mut decoder = Decoder::new(&footer[1..FOOTER_BYTES - 12]);
        let mut handle = || BlockHandle::read(&mut decoder);
        let (Some(metaindex), Some(index)) = (handle(), handle()) else {
            return Err(malformed("a malformed footer"));
        };
        file.checksum = checksum;
        return Ok((version, metaindex, Some(index)));
    }
    let word = |offset| get_u32(&footer, offset).unwrap_or_default();
    let (stored, base, size) = (word(5), word(9), u64::from(word(13)));
    if footer[1..5] != EXTENDED_MAGIC || base == 0 {
        return Err(malformed("a malformed footer"));
    }
    let mut cleared = footer;
    cleared[5..9].fill(0);
    if stored != checksum.of(&cleared).wrapping_add(checksum_context(base, start)) {
        return Err(malformed("the footer fails its checksum"));
    }
    if footer[33..41] != [0; 8] {
        return Err(file.unsupported("a footer of a later version"));
    }
    let Some(offset) = start.checked_sub(size + BLOCK_TRAILER_BYTES as u64) else {
        return Err(malformed("a metaindex that does not lie within the file"));
    };
    (file.checksum, file.checksum_base) = (checksum, base);
    Ok((version, BlockHandle { offset, size }, None))
}
