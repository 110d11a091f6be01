//! All access to files goes through an [`Env`].
//!
//! - [`api`]: the calls. [`disk`]: the calls on the real file system. [`mem`]: a file system in
//!   memory that can lose power.
//! - [`layer`]: what an Env on top of another one implements. [`counting`], [`testing`] and
//!   `descriptor_retry` are such layers.
//! - [`handle`]: files that are opened on demand, with a bound on open descriptors.
//! - `directory`, `directory_lock`, `foreign`: the directory of a database, its lock, and the
//!   refusal of databases of other programs.

pub mod testing;
pub(crate) mod foreign;
pub(crate) mod directory;
pub(crate) mod directory_lock;
pub(crate) mod descriptor_retry;
pub mod handle;
pub mod counting;
pub mod layer;
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
pub use layer::EnvLayer;
pub use mem::MemEnv;
pub use testing::FaultEnv;
