//! What was written, as it is committed: for caches, search indexes and clients that wait.
//!
//! [`Keyspace::watch`] hands out the writes to a range of keys, and [`Db::watch`] those to all
//! keyspaces. Each comes once, in the order of the commits, with its sequence number.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! use siftdb::ChangedEntry;
//! use std::time::Duration;
//!
//! # let db = siftdb::Db::open(directory.path().join("app.sift"))?;
//! let jobs = db.keyspace("jobs")?;
//! let mut watch = jobs.watch("open/".."open0")?;
//! jobs.put("open/1", "resize a picture")?;
//! let change = watch.next_timeout(Duration::from_secs(1))?.expect("it was committed");
//! assert!(matches!(change.entry, ChangedEntry::Put { key, .. } if key == b"open/1"));
//! # db.close()
//! # }
//! ```
//!
//! | call | waits |
//! |---|---|
//! | `next` of the iterator | until there is a change, or the database is closed |
//! | [`Watch::next_timeout`] | the same, at most that long |
//! | [`Watch::next_async`] | as a future, for any executor |
//! | [`Watch::poll_next`] | not at all: a waker is called, as for a stream |
//!
//! - **A copy that is complete:** watch first, then take a snapshot and read it. Skip the changes
//!   up to [`Snapshot::last_sequence`], but no `DropKeyspace`. `examples/changes.rs` does this.
//! - **A watch that falls behind:** writers never wait for it, and nothing is kept in memory. Logs
//!   that it has not read stay on disk, up to four write buffers or [`Options::keep_log_bytes`].
//!   Beyond that it returns [`Error::ChangesGone`] once and goes on after the last write. Then read
//!   the range again.
//! - **After a restart:** keep the sequence of the last change that was handled, and go on with
//!   [`Keyspace::watch_from`]. `keep_log_bytes` says how far back that may be. Call [`Db::sync`]
//!   before you store a sequence outside of the database. A loss of power takes writes that no sync
//!   covers, and their numbers are given again. After a repair old changes are gone.
//! - **What is no single write:** [`ChangedEntry::Load`] says which range came as tables, of a bulk
//!   load or of a batch that created or dropped keyspaces. [`ChangedEntry::DropKeyspace`] comes
//!   after the last write to a keyspace. For drops while there was no watch, compare
//!   [`Db::keyspaces`]. No change tells of expiry.
//! - **Another process** has the same changes by [`Follower::wait`] and [`Follower::changes`].
//!
//! [`ChangedEntry::DropKeyspace`]: crate::ChangedEntry::DropKeyspace
//! [`ChangedEntry::Load`]: crate::ChangedEntry::Load
//! [`Db::keyspaces`]: crate::Db::keyspaces
//! [`Db::sync`]: crate::Db::sync
//! [`Db::watch`]: crate::Db::watch
//! [`Error::ChangesGone`]: crate::Error::ChangesGone
//! [`Follower::changes`]: crate::Follower::changes
//! [`Follower::wait`]: crate::Follower::wait
//! [`Keyspace::watch`]: crate::Keyspace::watch
//! [`Keyspace::watch_from`]: crate::Keyspace::watch_from
//! [`Options::keep_log_bytes`]: crate::Options::keep_log_bytes
//! [`Snapshot::last_sequence`]: crate::Snapshot::last_sequence
//! [`Watch::next_async`]: crate::Watch::next_async
//! [`Watch::next_timeout`]: crate::Watch::next_timeout
//! [`Watch::poll_next`]: crate::Watch::poll_next
