//! A live copy of the database, by hard links to its tables.
//!
//! [`Db::checkpoint`] makes a database of its own in another directory while others read and write.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = siftdb::Db::open(directory.path().join("app.sift"))?;
//! # let backup = directory.path().join("backup.sift");
//! db.put("ada", "1815")?;
//! db.checkpoint(&backup)?;
//! db.put("ada", "changed")?;
//! let copy = siftdb::Db::open_read_only(&backup)?;
//! assert_eq!(copy.get("ada")?.unwrap(), "1815");
//! # db.close()
//! # }
//! ```
//!
//! - **What it holds:** the database as it was at one moment between the call and its return, in
//!   all keyspaces. Every write that was acknowledged before the call is in it, and of a batch all
//!   or nothing.
//! - **Durability:** it is durable when the call returns. A crash before that leaves a directory
//!   that is marked: opening it returns [`Error::Unfinished`], and the same call begins it again.
//! - **Cost:** a flush and little else, because its tables are hard links to those of this
//!   database. So it shares the disk: copy it elsewhere for a backup against the loss of the disk.
//! - **Again:** the same call with the same path brings it up to date, unless somebody wrote to it.
//!
//! `examples/checkpoint.rs` makes checkpoints while a thread writes. The package `backup-store` in
//! `examples/packages` keeps them in an object store.
//!
//! [`Db::checkpoint`]: crate::Db::checkpoint
//! [`Error::Unfinished`]: crate::Error::Unfinished
