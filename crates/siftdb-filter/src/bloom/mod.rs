//! Bloom filters: LevelDB's, RocksDB's legacy one, and RocksDB's FastLocalBloom, with the rates of
//! false positives that each has.

pub mod line_rates;
pub mod leveldb_rate;
pub mod legacy;
pub mod fast_local;
pub mod leveldb;
pub mod simd;
