//! `siftdb filter`: reports, advises, rebuilds and measures filters.
//!
//! One file a subcommand. `stats`, `advise` and `rebuild` open a database, `sim` and `bench` need
//! none. `doctor` finds problems. `foreign` has the report of LevelDB's databases, and of single
//! tables of LevelDB and RocksDB.

pub mod stats;
pub mod advise;
pub mod rebuild;
pub mod bench;
pub mod sim;
mod foreign;
mod doctor;
