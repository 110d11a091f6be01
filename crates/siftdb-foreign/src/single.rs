//! A single table of LevelDB or RocksDB: its parts, properties and entries.

use crate::block_file::BlockFile;
use crate::block_handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::error;
use crate::figures::TableFigures;
use crate::filter::FilterLayoutKind;
use crate::filter_figures::FilterFigures;
use crate::internal_key::split;
use crate::key_order::KeyOrder;
use crate::leveldb::table as leveldb;
use crate::lookup_trace::LookupTrace;
use crate::rocksdb::properties::{self, PropertyValue};
use crate::rocksdb::table::{
    self as rocksdb, DICTIONARY_NAME, INDEX_NAME, RANGE_DELETES_NAME, RocksParts,
};
use crate::store::{EntryKind, Store};
use crate::table::{DataBlocks, NamedBlocks, Table, TableEntries};
use crate::trace::{Ends, Tracer};
use crate::verify::{TableCounts, verify};
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// An open table of LevelDB, or a block-based table of RocksDB. Its file is never changed, and one
/// block of it is in memory at a time.
#[derive(Debug)]
pub struct ForeignTable {
    table: Table,
    /// `None` for a table of LevelDB.
    rocks: Option<RocksParts>,
}

/// A part of a table's file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TablePart<'a> {
    /// Its kind: `data`, `index`, `filter`, `metaindex`, `footer`, ….
    pub kind: &'static str,
    /// The name in the metaindex; empty if it has none.
    pub name: &'a [u8],
    /// Its first byte.
    pub offset: u64,
    /// Its length, with compression and checksum.
    pub bytes: u64,
    /// Its compression; empty for the footer.
    pub compression: &'static str,
    /// A user key at or above all keys of the part; only for data blocks and for partitions of the
    /// index or the filter.
    pub separator: Option<&'a [u8]>,
}

/// An item of [`ForeignTable::each_entry`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TableItem<'a> {
    /// A range delete. They come first.
    #[non_exhaustive]
    RangeDelete {
        /// The first user key that it deletes.
        start: &'a [u8],
        /// The first user key after the range.
        end: &'a [u8],
        /// The sequence number as it is stored.
        sequence: u64,
    },
    /// A data block; its entries follow.
    #[non_exhaustive]
    Block {
        /// Counted from 0.
        number: u64,
        /// The block.
        part: TablePart<'a>,
    },
    /// An entry.
    #[non_exhaustive]
    Entry {
        /// The user key.
        key: &'a [u8],
        /// The sequence number as it is stored. The entries of a table that was made to be
        /// ingested have 0, and the property `rocksdb.external_sst_file.global_seqno` has theirs.
        sequence: u64,
        /// Its kind.
        kind: EntryKind,
        /// The value as it is stored; empty of a deletion.
        value: &'a [u8],
    },
}

type PartSink<'a> = &'a mut dyn FnMut(&TablePart<'_>) -> io::Result<()>;
type ItemSink<'a> = &'a mut dyn FnMut(&TableItem<'_>) -> io::Result<bool>;

impl ForeignTable {
    /// True if the file at `path` ends with the magic number of a table of LevelDB or RocksDB.
    #[must_use]
    pub fn is_at(env: &dyn Env, path: &Path) -> bool {
        let magic = BlockFile::open(env, path).and_then(|file| file.magic());
        magic.is_ok_and(|magic| {
            let others = rocksdb::OTHER_MAGICS.into_iter().map(|(magic, _)| magic);
            let mut all = others.chain([leveldb::TABLE_MAGIC, rocksdb::TABLE_MAGIC]);
            all.any(|known| Some(known) == magic)
        })
    }

    /// Opens the table at `path`: reads its footer and, for RocksDB, its properties.
    ///
    /// # Errors
    /// `Io`; `Corruption`; `UnsupportedFormat` for features that are not supported.
    pub fn open(env: &Arc<dyn Env>, path: &Path) -> Result<Self> {
        Self::open_by_magic(&**env, path).map_err(error::of_single_table)
    }

    fn open_by_magic(env: &dyn Env, path: &Path) -> Result<Self> {
        let file = BlockFile::open(env, path)?;
        match file.magic()? {
            Some(leveldb::TABLE_MAGIC) => {
                let table = leveldb::open(env, path, None)?;
                let mut named = table.metaindex()?;
                while named.next(&table.file)? {
                    // Before its format version 1, RocksDB wrote LevelDB's magic number.
                    if named.name().starts_with(b"rocksdb.") {
                        let what = "a table of RocksDB of format version 0; read are 2 to 7";
                        return Err(table.file.unsupported(what));
                    }
                }
                Ok(ForeignTable { table, rocks: None })
            }
            Some(rocksdb::TABLE_MAGIC) => {
                let (table, rocks) = rocksdb::open(env, path, KeyOrder::Bytewise)?;
                Ok(ForeignTable { table, rocks: Some(rocks) })
            }
            magic => {
                let other = rocksdb::OTHER_MAGICS.iter().find(|(other, _)| Some(*other) == magic);
                let what = other.map_or("neither a table of LevelDB nor of RocksDB", |(_, w)| w);
                Err(file.unsupported(what))
            }
        }
    }

    /// The store that wrote it: `leveldb` or `rocksdb`.
    #[must_use]
    pub fn store(&self) -> &'static str {
        match self.table.file.store {
            Store::LevelDb => "leveldb",
            Store::RocksDb => "rocksdb",
        }
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.table.file.bytes
    }

    /// The checksum of blocks: `none`, `CRC-32C`, `xxHash`, `xxHash64` or `XXH3`.
    #[must_use]
    pub fn checksum(&self) -> &'static str {
        self.table.file.checksum.name()
    }

    /// RocksDB's format version.
    #[must_use]
    pub fn format_version(&self) -> Option<u32> {
        self.rocks.as_ref().map(|rocks| rocks.version)
    }

    /// The type of RocksDB's index: `binary search`, `hash`, `two-level` or `with first keys`.
    #[must_use]
    pub fn index_type(&self) -> Option<&'static str> {
        self.rocks.as_ref().map(RocksParts::index_name)
    }

    /// Calls `each` with every property of a table of RocksDB, by name.
    ///
    /// # Errors
    /// As for [`ForeignTable::open`]; `Io` with the operation `print` for an error of `each`.
    pub fn each_property(
        &self,
        each: &mut dyn FnMut(&[u8], PropertyValue<'_>) -> io::Result<()>,
    ) -> Result<()> {
        let Some(rocks) = &self.rocks else { return Ok(()) };
        let file = &self.table.file;
        let each = &mut |name: &[u8], value: PropertyValue<'_>| printed(each(name, value));
        properties::each(file, rocks.properties_at, each).map_err(error::of_single_table)
    }

    /// Calls `each` with every part of the file. First come the data blocks, by key. The blocks
    /// that the metaindex names follow, by name; partitions of a filter come before their index.
    /// Last are the partitions of the index, the index, the metaindex and the footer. Data blocks
    /// are not read, only their compression.
    ///
    /// # Errors
    /// As for [`ForeignTable::each_property`].
    pub fn each_part(&self, each: PartSink<'_>) -> Result<()> {
        self.parts(each).map_err(error::of_single_table)
    }

    fn parts(&self, each: PartSink<'_>) -> Result<()> {
        let table = &self.table;
        let mut blocks = DataBlocks::open(table)?;
        while blocks.next(table)? {
            let separator = Some(blocks.separator_key(table.style));
            printed(each(&self.part("data", &[], blocks.handle(), separator)?))?;
        }
        let mut named = table.metaindex()?;
        while named.next(&table.file)? {
            self.named_parts(&named, each)?;
        }
        if table.style.is_partitioned {
            self.partitions("index partition", table.index, each)?;
        }
        let index_name = if self.format_version() >= Some(6) { INDEX_NAME } else { &[] };
        printed(each(&self.part("index", index_name, table.index, None)?))?;
        printed(each(&self.part("metaindex", &[], table.metaindex, None)?))?;
        let offset = table.file.blocks_end;
        printed(each(&TablePart {
            kind: "footer",
            name: &[],
            offset,
            bytes: table.file.bytes - offset,
            compression: "",
            separator: None,
        }))
    }

    /// Calls `each` with a block that the metaindex names, after its partitions.
    fn named_parts(&self, named: &NamedBlocks, each: PartSink<'_>) -> Result<()> {
        let handle = named.handle;
        let kind = match (FilterLayoutKind::of_name(named.name()), named.name()) {
            (Some((FilterLayoutKind::Partitioned, _)), _) => {
                self.partitions("filter partition", handle, each)?;
                "filter index"
            }
            (Some(_), _) => "filter",
            (_, INDEX_NAME) if self.rocks.is_some() => return Ok(()),
            (_, properties::NAME) => "properties",
            (_, RANGE_DELETES_NAME) => "range deletes",
            (_, DICTIONARY_NAME) => "dictionary",
            (_, name) if name.starts_with(b"rocksdb.hashindex.") => "hash index",
            _ => "other",
        };
        printed(each(&self.part(kind, named.name(), handle, None)?))
    }

    fn partitions(&self, kind: &'static str, index: BlockHandle, each: PartSink<'_>) -> Result<()> {
        let mut partitions = self.table.partitions(index)?;
        while partitions.next(&self.table)? {
            let separator = Some(partitions.separator_key(self.table.style));
            printed(each(&self.part(kind, &[], partitions.handle(), separator)?))?;
        }
        Ok(())
    }

    fn part<'a>(
        &self,
        kind: &'static str,
        name: &'a [u8],
        handle: BlockHandle,
        separator: Option<&'a [u8]>,
    ) -> Result<TablePart<'a>> {
        let file = &self.table.file;
        file.expect_within(handle)?;
        let mut compression = [0];
        file.read_at(handle.offset + handle.size, &mut compression)?;
        let bytes = handle.size + BLOCK_TRAILER_BYTES as u64;
        let compression = file.store.compression_name(compression[0]);
        Ok(TablePart { kind, name, offset: handle.offset, bytes, compression, separator })
    }

    /// Calls `each` with every range delete, then with every data block and its entries, until
    /// `each` returns false. With `block`, only the data block of this number is visited.
    ///
    /// # Errors
    /// As for [`ForeignTable::each_property`]; `InvalidArgument` for a block that the table does
    /// not have.
    pub fn each_entry(&self, block: Option<u64>, each: ItemSink<'_>) -> Result<()> {
        self.items(block, &mut |item| printed(each(item))).map_err(error::of_single_table)
    }

    fn range_deletes(&self, each: &mut dyn FnMut(&TableItem<'_>) -> Result<bool>) -> Result<bool> {
        let handle = self.rocks.as_ref().and_then(|rocks| rocks.range_deletes);
        let Some(handle) = handle else { return Ok(true) };
        let mut entries = self.table.entries(handle)?;
        while let Some((start, end, sequence)) =
            self.table.next_range_delete(handle, &mut entries)?
        {
            if !each(&TableItem::RangeDelete { start, end, sequence })? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn items(
        &self,
        block: Option<u64>,
        each: &mut dyn FnMut(&TableItem<'_>) -> Result<bool>,
    ) -> Result<()> {
        if block.is_none() && !self.range_deletes(each)? {
            return Ok(());
        }
        let table = &self.table;
        let mut entries = TableEntries::open(table)?;
        let mut number = 0;
        // Blocks before the wanted one are not read.
        while block.is_some_and(|wanted| number < wanted) && entries.blocks.next(table)? {
            number += 1;
        }
        while block.is_none_or(|wanted| number == wanted) && entries.next_block(table)? {
            let separator = Some(entries.blocks.separator_key(table.style));
            let part = self.part("data", &[], entries.blocks.handle(), separator)?;
            if !each(&TableItem::Block { number, part })? {
                return Ok(());
            }
            while entries.next(table)? {
                if !each(&entry_of(table, &entries)?)? {
                    return Ok(());
                }
            }
            number += 1;
        }
        match block {
            Some(wanted) if number <= wanted => Err(Error::InvalidArgument {
                what: format!("block {wanted} of {number} data blocks, counted from 0"),
            }),
            _ => Ok(()),
        }
    }

    /// Checks the checksum of every block and the order of keys. The filter must deny no key of the
    /// table, and RocksDB's properties must agree with the counts.
    ///
    /// # Errors
    /// The first contradiction, as `Corruption`; `Io`; `UnsupportedFormat`.
    pub fn verify(&self) -> Result<TableCounts> {
        verify(&self.table, self.rocks.as_ref()).map_err(error::of_single_table)
    }

    /// The figures of its filters, at level 0. The table is read whole.
    ///
    /// # Errors
    /// As for [`ForeignTable::open`].
    pub fn filter_figures(&self) -> Result<TableFigures> {
        let (mut filters, path) = (FilterFigures::default(), self.table.file.path.clone());
        let properties = self.rocks.as_ref().map(|rocks| &rocks.properties);
        filters.count(&self.table, properties).map_err(error::of_single_table)?;
        Ok(TableFigures { path, level: 0, filters })
    }

    /// Looks up `keys` in the table as its store would. The table is read whole.
    ///
    /// # Errors
    /// As for [`ForeignTable::open`].
    pub fn trace_lookups(&self, keys: &[Vec<u8>]) -> Result<LookupTrace> {
        let mut tracer = Tracer::new(keys, KeyOrder::Bytewise);
        tracer.ask(&self.table, Ends::Read).map_err(error::of_single_table)?;
        tracer.end_table();
        Ok(tracer.finish())
    }
}

/// The current entry of `entries`.
fn entry_of<'a>(table: &Table, entries: &'a TableEntries) -> Result<TableItem<'a>> {
    let (key, trailer) = split(entries.key()).unwrap_or_default();
    let kind = entries.kind(table)?;
    Ok(TableItem::Entry { key, sequence: trailer >> 8, kind, value: entries.value() })
}

/// Turns an error of the output into one of siftdb.
fn printed<T>(outcome: io::Result<T>) -> Result<T> {
    outcome.map_err(|source| error::io("print to", Path::new("output"), source))
}
