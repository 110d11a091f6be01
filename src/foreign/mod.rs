//! Files of other stores, read only: LevelDB's databases.
//!
//! [`LevelDb`] reads what LevelDB writes: `CURRENT`, the manifest, logs and tables. It changes no
//! byte and needs nothing of siftdb's own formats. Tables are read block by block; the entries of
//! the logs, at most a write buffer or two, are in memory.
//!
//! Every checksum is verified, and what a file says is checked before it is used. Damage is an
//! error with file and offset. With `salvage` it is noted, and reading goes on with what is left.
//!
//! Formats: LevelDB's `doc/table_format.md`, `doc/log_format.md`, and `db/version_edit.cc`.

mod leveldb;
mod block;
mod damage;
mod checksum;

pub use leveldb::database::{Entries, LevelDb};
pub use leveldb::figures::FilterFigures;
