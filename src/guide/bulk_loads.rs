//! Sorted entries become tables directly, without log and memtable.
//!
//! [`Keyspace::ingest`] writes tables from entries that come in the order of their keys.
//! `examples/bulk_load.rs` compares it with the same entries in batches.
//! [`Keyspace::ingest_unsorted`] sorts them first, in bounded memory. [`Keyspace::table_writer`]
//! takes entry by entry, from a source with errors of its own.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = siftdb::Db::open(directory.path().join("db"))?;
//! db.put("key 007", "old")?;
//! let before = db.snapshot();
//! let report = db.ingest((0..1000).map(|n| (format!("key {n:03}"), "new")))?;
//! assert_eq!((report.entries, report.tables), (1000, 1));
//! assert_eq!(db.get("key 007")?.unwrap(), "new");
//! assert_eq!(before.iter().count(), 1);
//! # db.close()
//! # }
//! ```
//!
//! - **When:** all of a load appears in one step, when the call returns, and no read sees a part of
//!   it. It is newer than every write that was acknowledged before that step, also one that was
//!   made during the call. Snapshots and iterators from before never see it.
//! - **Durability:** when the call returns, the load and every earlier write of any keyspace
//!   survive a power loss. After a crash before that, the load is there whole or not at all.
//! - **What it does to others:** an older value of a key in the load is hidden. What is not in the
//!   load stays. An earlier range delete does not hide the load, and a later one does. A
//!   transaction that read a loaded key, or a range with one, conflicts.
//! - **Order:** keys in the order of their bytes, each once; else [`Error::KeyOrder`] names the
//!   entry. `ingest_unsorted` takes any order, and of one key the last entry.
//! - **Refused:** an entry out of order or too large, an error of the source, a full disk while the
//!   tables are written, a dropped keyspace. Nothing appears, the files go, and the database takes
//!   writes as before. After an error a [`TableWriter`] returns the same error to every call.
//! - **Failed:** if a log or the manifest fails in the last step, the database becomes read-only as
//!   after a failed write. The load is not visible, and after [`Db::resume`] it never is; reopened,
//!   the database has it whole or not at all.
//! - **Expiry:** a keyspace with [`KeyspaceOptions::expire_after`] and
//!   [`TableWriter::put_with`] say when entries expire. The time counts from the put of the entry.
//! - **Place:** the deepest level where no table shares keys with the load, there or above, and
//!   where it has room; else level 0. Filters and compression are those of the keyspace. A
//!   [`CompactionFilter`] meets the entries when a compaction does.
//! - **Cost:** a second thread compresses, writes and syncs, where the machine has one. In memory
//!   are up to 3 MiB of blocks, and the indexes and filter keys of two tables. Others read and
//!   write during the load. In the last step writers wait for some syncs. They also wait for a
//!   flush of this keyspace if the load goes to level 0, or if keys of the load were written
//!   after a first flush a moment before.
//! - **Followers and watches:** a [`Follower`] shows a load whole. [`Follower::changes`] and a
//!   [`Watch`] have [`ChangedEntry::Load`] in place of its entries, which no log has.
//! - **Repair:** all entries have one sequence number, which the manifest and the logs know and the
//!   tables do not: a repair without both puts such tables into `lost` and reports them as a loss.
//!
//! [`ChangedEntry::Load`]: crate::ChangedEntry::Load
//! [`CompactionFilter`]: crate::CompactionFilter
//! [`Db::resume`]: crate::Db::resume
//! [`Error::KeyOrder`]: crate::Error::KeyOrder
//! [`Follower`]: crate::Follower
//! [`Follower::changes`]: crate::Follower::changes
//! [`Keyspace::ingest`]: crate::Keyspace::ingest
//! [`Keyspace::ingest_unsorted`]: crate::Keyspace::ingest_unsorted
//! [`Keyspace::table_writer`]: crate::Keyspace::table_writer
//! [`KeyspaceOptions::expire_after`]: crate::KeyspaceOptions::expire_after
//! [`TableWriter`]: crate::TableWriter
//! [`TableWriter::put_with`]: crate::TableWriter::put_with
//! [`Watch`]: crate::Watch
