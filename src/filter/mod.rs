//! How keys become bits: the encodings of filters, by persisted name.

pub mod registry;
pub mod fast_local_bloom;
pub mod leveldb_bloom;
pub mod simd;
pub mod policy;
pub mod hash;
#[cfg(test)]
pub(crate) mod vectors;

pub use hash::{KeyHash, leveldb_hash, xxph3_64};
