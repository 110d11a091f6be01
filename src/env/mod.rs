//! All access to files goes through an [`Env`].
//!
//! [`DiskEnv`] makes the calls on the real file system. `MapEnv` (feature `mmap`) does the same and
//! reads tables through memory maps. [`MemEnv`] is a file system in memory that can lose power. An
//! Env on top of another one implements [`EnvLayer`]. The feature `inspect` adds `CountingEnv`, and
//! `testing` environments that fail and crash on purpose.
//!
//! Inside, `directory`, `directory_lock` and `foreign` are the directory of a database, its lock,
//! and the refusal of databases of other programs. `handle` opens files on demand and bounds the
//! open descriptors; `descriptor_retry` closes some when the process has none left. `change_signal`
//! waits for another process.

#[cfg(feature = "testing")]
pub mod testing;
pub(crate) mod foreign;
pub(crate) mod directory;
pub(crate) mod directory_lock;
pub(crate) mod change_signal;
pub(crate) mod gate;
pub(crate) mod descriptor_retry;
pub(crate) mod handle;
#[cfg(feature = "inspect")]
pub(crate) mod counting;
#[cfg(feature = "inspect")]
pub(crate) mod watched;
#[cfg(feature = "mmap")]
mod mapped;
pub(crate) mod layer;
pub(crate) mod mem;
mod mem_disk;
pub(crate) mod disk;
pub(crate) mod api;

pub use api::{
    DirectoryEntry, Env, FileId, FileKind, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
#[cfg(feature = "inspect")]
pub use counting::{CountingEnv, IoCounts};
pub use disk::DiskEnv;
pub use layer::EnvLayer;
#[cfg(feature = "mmap")]
pub use mapped::MapEnv;
pub use mem::MemEnv;
