//! Files of other stores, read only: LevelDB's databases, single tables of LevelDB and RocksDB.
//!
//! [`LevelDb`] reads a LevelDB database: `CURRENT`, the manifest, logs and tables. It changes no
//! byte. Tables are read block by block; the entries of the logs, at most a write buffer or two,
//! are in memory.
//!
//! [`ForeignTable`] reads a single table of either store: its parts, properties and entries, and
//! the effect of its filter. One block at a time is in memory.
//!
//! Every checksum is verified, and fields of a file are checked before they are used. Damage is an
//! error with file and offset. With `salvage` damage is noted, and the rest is read.
//!
//! Formats: LevelDB's `doc/table_format.md`, `doc/log_format.md`, and `db/version_edit.cc`;
//! RocksDB's `table/format.cc` and `table/block_based/`.

mod single;
mod verify;
mod figures;
mod leveldb;
mod rocksdb;
mod filter;
mod table;
mod block_based;
mod index;
mod block_file;
mod block;
mod damage;
mod checksum;
mod store;

pub use figures::FilterFigures;
pub use leveldb::database::{Entries, LevelDb};
pub use rocksdb::properties::PropertyValue;
pub use single::{ForeignTable, TableItem, TablePart};
pub use store::EntryKind;
pub use verify::TableCounts;
