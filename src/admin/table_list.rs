//! The list of tables of a keyspace, as data: [`TableInfo`].

use crate::base::levels::LEVELS;
use crate::state::keyspace::KeyspaceState;
use crate::tree::handle::TableHandle;
use std::ops::Bound;

/// One table of a keyspace, as [`Keyspace::tables`](crate::Keyspace::tables) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// The level that the table is at, 0 to 6.
    pub level: usize,
    /// The number in its file's name.
    pub number: u64,
    /// The name of its keyspace.
    pub keyspace: String,
    /// The first user key that it has an entry or a range delete of.
    pub first_key: Vec<u8>,
    /// Where its keys end: with its last key, or before the end of a range delete, or nowhere.
    pub end: Bound<Vec<u8>>,
    /// Bytes of its file.
    pub bytes: u64,
    /// Its entries: old versions and tombstones count too.
    pub entries: u64,
    /// Sequences of its range deletes.
    pub range_deletes: u64,
    /// The name of its filter's policy; empty without a filter.
    pub filter_policy: String,
    /// Bytes of its filter.
    pub filter_bytes: u64,
    /// Of these, the index of its partitions; 0 without partitions.
    pub filter_top_level_bytes: u64,
    /// Bytes of its range filter; 0 without one.
    pub range_filter_bytes: u64,
    /// Bytes of its data index.
    pub index_bytes: u64,
    /// Of these, the top level; 0 without partitions.
    pub index_top_level_bytes: u64,
    /// Its data blocks.
    pub data_blocks: u64,
    /// Bytes of these in the file.
    pub data_bytes: u64,
    /// Bytes of its keys and values before compression, each key in full.
    pub raw_bytes: u64,
    /// How its data blocks are compressed where that pays: `none`, `snappy`, `lz4` or `zstd`.
    pub compression: &'static str,
}

/// The tables of `keyspace`, level by level: level 0 newest first, others by key.
pub(crate) fn tables(keyspace: &KeyspaceState) -> Vec<TableInfo> {
    let version = &keyspace.view.load().version;
    let info = |level: usize, handle: &TableHandle| {
        let (table, properties) = (&handle.table, &handle.table.properties);
        TableInfo {
            level,
            number: handle.meta.number,
            keyspace: keyspace.name.clone(),
            first_key: handle.meta.start.clone(),
            end: handle.meta.end.clone(),
            bytes: handle.meta.bytes,
            entries: handle.meta.entries,
            range_deletes: handle.meta.range_deletes,
            filter_policy: properties.filter_policy.clone(),
            filter_bytes: properties.filter_bytes,
            filter_top_level_bytes: table.filter.top_level_bytes(),
            range_filter_bytes: properties.range_filter_bytes,
            index_bytes: properties.index_bytes,
            index_top_level_bytes: table.index.top_level_bytes(),
            data_blocks: properties.data_blocks,
            data_bytes: properties.data_bytes,
            raw_bytes: properties.raw_key_bytes.saturating_add(properties.raw_value_bytes),
            compression: properties.compression.name(),
        }
    };
    let levels = (0..LEVELS).map(|level| (level, version.level(level)));
    levels.flat_map(|(level, tables)| tables.iter().map(move |t| info(level, t))).collect()
}
