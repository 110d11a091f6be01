//! How keys become bits.

pub mod registry;
pub mod fast_local_bloom;
pub mod leveldb_bloom;
pub mod simd;
pub mod policy;
pub mod hash;
