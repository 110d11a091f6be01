//! Entries that disappear at a time of their own.
//!
//! [`KeyspaceOptions::expire_after`] says how long after its write an entry of a keyspace expires.
//! [`WriteOptions::expire_after`] and [`WriteOptions::expire_at`] say it for what one call puts,
//! and win over the keyspace. From its time on, an entry is gone.
//!
//! - The time of an entry is decided once, when it is written, in milliseconds since 1970. It is
//!   logged and stored with the entry: no crash, repair or changed setting changes it.
//! - Reads find the entry before its time. A lookup, a `multi_get`, an iterator and a cursor each
//!   go by one time, that of the first expiring entry that they meet.
//! - An older value never comes back: an expired entry hides what a deletion would hide.
//! - A snapshot may lose what expires, and nothing else.
//! - The clock is that of the [`Env`](crate::env::Env), by default the system's. If it goes back,
//!   reads find again what has not expired by then, except what a compaction has removed: that is
//!   gone.
//! - Compactions remove by the clock, or by the time of an earlier removal if that is later. It is
//!   saved with the database and never goes back: a clock that was far ahead shortens later times.
//! - A table in which all has expired is deleted unread, within seconds, if no older table has keys
//!   of its range and no snapshot needs it. Others are rewritten once all their expiring entries
//!   have expired and make half of the table, or by [`Keyspace::compact_range`].
//! - An entry of zero duration, or with a time in the past, is written and gone at once. As a
//!   setting of a keyspace, zero is refused.
//! - `expire_after` beyond 64 bits of milliseconds is "never"; `expire_at` beyond them is refused.
//!
//! Expiry is no write: it takes no sequence number and wakes nobody. Statistics and estimates count
//! expired entries until a compaction removes them. Keyspaces and calls without expiry pay nothing;
//! an entry that expires takes eight bytes more.
//!
//! ```
//! use siftdb::{Db, KeyspaceOptions};
//! use std::time::Duration;
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Db::open(directory.path().join("app.sift"))?;
//! let hour = KeyspaceOptions::new().expire_after(Duration::from_secs(3600));
//! let sessions = db.keyspace_with("sessions", &hour)?;
//! sessions.put("session/1", "ada")?;
//! assert_eq!(sessions.get("session/1")?.unwrap(), "ada"); // for an hour
//! # db.close()
//! # }
//! ```
//!
//! A [`CompactionFilter`] is a rule of your own: compactions ask it which entries to keep, to
//! delete or to change.
//!
//! [`CompactionFilter`]: crate::CompactionFilter
//! [`Keyspace::compact_range`]: crate::Keyspace::compact_range
//! [`KeyspaceOptions::expire_after`]: crate::KeyspaceOptions::expire_after
//! [`WriteOptions::expire_after`]: crate::WriteOptions::expire_after
//! [`WriteOptions::expire_at`]: crate::WriteOptions::expire_at
