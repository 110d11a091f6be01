//! All access to files goes through here.
//!
//! [`api`] states the calls; [`disk`] makes them on the real file system; [`mem`] keeps files in
//! memory and forgets at a power cut what was not synced (`mem_disk` is its contents, `mem_crash`
//! the states that a crash may leave); [`testing`] fails or cuts power at the n-th call of another
//! Env; [`counting`] counts reads, the independent witness for the engine's own counters;
//! [`handle`] opens descriptors on demand and bounds how many are open; [`sparing`] makes room when
//! the process has none left.

pub mod testing;
pub(crate) mod foreign;
pub(crate) mod directory;
pub(crate) mod directory_lock;
pub mod sparing;
pub mod handle;
pub mod counting;
pub mod mem;
mod mem_crash;
mod mem_disk;
pub mod disk;
pub mod api;

pub use api::{
    DirectoryEntry, Env, FileId, FileKind, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
pub use counting::CountingEnv;
pub use disk::DiskEnv;
pub use mem::MemEnv;
pub use testing::FaultEnv;
