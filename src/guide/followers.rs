//! Other processes read while one process writes.
//!
//! One process writes; any number of others may read at the same time, each through a
//! [`Follower`]. It takes no lock and changes no byte, so the writer neither waits for it nor knows
//! of it. It also reads a database that nobody has open, as [`Db::open_read_only`] does.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("app.sift");
//! # let db = siftdb::Db::open(&path)?;
//! let follower = siftdb::Db::open_follower(&path)?;
//! # db.put("job/1", "done")?;
//! follower.refresh()?; // from now on it shows what the writer has acknowledged before
//! assert_eq!(follower.prefix("job/").count(), 1);
//! # db.close()
//! # }
//! ```
//!
//! | | what is shown |
//! |---|---|
//! | after [`Follower::refresh`] | a prefix of the writes, with all that was acknowledged before |
//! | with [`Options::follow_synced_only`] | a prefix that a power loss leaves; it may lag |
//! | a batch, a transaction | all of it or nothing |
//! | until the next refresh | the same writes, in all keyspaces |
//! | the writer dies or closes | the same; the next writer is followed without reopening |
//! | the history was cut | the same as before; refreshes return [`Error::HistoryChanged`] |
//!
//! - **Read point:** the writer numbers its writes. A follower shows all writes up to some number,
//!   and none after it. It may show writes that are not acknowledged yet, or whose writer got an
//!   error. A refresh never goes back.
//! - **Handles:** a [`Keyspace`], [`Snapshot`] or [`Iter`] of a follower keeps the read point that
//!   it was taken at. Its files are open until it is dropped, so nothing that the writer removes is
//!   missing. The process must be allowed a descriptor for each table.
//! - **Failures:** a refresh that fails leaves the read point as it was, and may be tried again. A
//!   record that the writer is just writing is no damage. An unreadable record is damage if
//!   something valid follows it, or if manifest or logs say that it was durable. Then the refresh
//!   returns its file and offset.
//! - **Changes:** [`Follower::changes`] iterates the writes from a sequence number on, in order,
//!   for caches and indexes that follow. It reads them from the logs. These reach back to the last
//!   flush, or further with [`Options::keep_log_bytes`]; where they do not, [`Error::ChangesGone`]
//!   names the first change that is there. [`super::watches`] has the same in the writer's process.
//! - **Waiting:** [`Follower::wait`] refreshes as soon as the writer has something new.
//! - **Cut histories:** a repair, a database that was created again, restored files, or a loss of
//!   power that the follower survived on a shared disk.
//!
//! [`Db::open_read_only`]: crate::Db::open_read_only
//! [`Error::ChangesGone`]: crate::Error::ChangesGone
//! [`Error::HistoryChanged`]: crate::Error::HistoryChanged
//! [`Follower`]: crate::Follower
//! [`Follower::changes`]: crate::Follower::changes
//! [`Follower::wait`]: crate::Follower::wait
//! [`Follower::refresh`]: crate::Follower::refresh
//! [`Iter`]: crate::Iter
//! [`Keyspace`]: crate::Keyspace
//! [`Options::follow_synced_only`]: crate::Options::follow_synced_only
//! [`Options::keep_log_bytes`]: crate::Options::keep_log_bytes
//! [`Snapshot`]: crate::Snapshot
