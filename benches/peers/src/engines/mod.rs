//! The engines, one small file for each store, each rival behind the feature of its name.
//! RocksDB and fjall are several engines: the same store with other settings.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod siftdb;

use crate::engine::Engine;

/// Every engine that this binary was built with, in the order of the columns.
pub const ENGINES: &[&Engine] = &[
    &siftdb::ENGINE,
    #[cfg(feature = "rocksdb")]
    &rocksdb::ENGINE,
    #[cfg(feature = "rocksdb")]
    &rocksdb::TUNED,
    #[cfg(feature = "rocksdb")]
    &rocksdb::BLOBS,
    #[cfg(feature = "leveldb")]
    &leveldb::ENGINE,
    #[cfg(feature = "fjall")]
    &fjall::ENGINE,
    #[cfg(feature = "fjall")]
    &fjall::SEPARATED,
    #[cfg(feature = "redb")]
    &redb::ENGINE,
    #[cfg(feature = "lmdb")]
    &lmdb::ENGINE,
];
