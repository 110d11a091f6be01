//! Bloom filters: LevelDB's, RocksDB's legacy one, and RocksDB's FastLocalBloom, with the rates of
//! false positives that each has.

pub(crate) mod line_rates;
pub(crate) mod leveldb_rate;
pub(crate) mod legacy;
pub(crate) mod fast_local;
pub(crate) mod leveldb;
pub(crate) mod simd;
