//! `siftdb filter stats` of a LevelDB or RocksDB database, or of a single table of them.
//!
//! `asked` reads the filters, looks up the given keys and, for a database, simulates these lookups
//! with other settings. `report` has the fields of the answer, `text` prints them. `read_cost` is
//! the time of reads.

pub mod asked;
mod text;
pub mod report;
mod read_cost;
