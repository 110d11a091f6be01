#![doc = include_str!("../README.md")]

// Top to bottom: a module may only use what is below it in this list. The tests of siftdb check it
// (`tests/it/architecture.rs`).
mod single;
mod verify;
mod trace;
mod lookup_trace;
mod figures;
mod leveldb;
mod rocksdb;
mod entries;
mod merge;
mod range_deletes;
mod merged;
mod run;
mod filter;
mod filter_figures;
mod table;
mod block_based;
mod index;
mod block_file;
mod block;
mod compression;
#[cfg(feature = "codecs")]
mod codecs;
mod block_handle;
mod damage;
mod current;
mod log;
mod checksum;
mod refused;
mod files;
mod store;
mod key_order;
mod internal_key;
mod coding;
mod file;
#[cfg(test)]
mod testing;
mod error;

pub use damage::Loss;
pub use entries::Entries;
pub use figures::TableFigures;
pub use filter_figures::FilterFigures;
pub use leveldb::database::LevelDb;
pub use lookup_trace::{LookupCounts, LookupTrace, TableVisit, TracedBlock};
pub use merge::MergeOperator;
pub use rocksdb::database::{ColumnFamily, RocksDb, RocksDbOptions};
pub use rocksdb::properties::PropertyValue;
pub use single::{ForeignTable, TableItem, TablePart};
pub use store::EntryKind;
pub use verify::TableCounts;
