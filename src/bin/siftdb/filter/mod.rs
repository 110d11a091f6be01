//! `siftdb filter`: reports, advises, rebuilds and measures filters.
//!
//! One file a subcommand. `stats`, `advise` and `rebuild` open a database,
//! `sim` and `bench` need none. `leveldb` has the report of a LevelDB database.

pub mod stats;
pub mod advise;
pub mod rebuild;
pub mod bench;
pub mod sim;
mod leveldb;
