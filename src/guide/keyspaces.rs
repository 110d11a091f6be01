//! How to keep kinds of data apart: a keyspace, or a prefix of the keys.
//!
//! [`Db::keyspace`] opens or creates a [`Keyspace`]: keys, tables, filters and settings of its own.
//! Log, cache, threads and write buffer are those of the database. The methods of [`Db`] that read
//! and write act on the keyspace `default`, which is always there. A [`WriteBatch`] writes to
//! several keyspaces as one step, and a [`Snapshot`] sees all of them at one point. A function that
//! reads from a [`Db`], a [`Keyspace`] or a [`Snapshot`] is written for the trait [`Readable`].
//!
//! The other way to keep kinds of data apart is a prefix of the key: `user/7`, `order/1001`, or the
//! first part of a tuple that [`keys`] encodes.
//!
//! | the data | choose |
//! |---|---|
//! | a kind of record, an index, a queue: a few kinds, known to the program | a keyspace |
//! | needs its own filter, block size or compression | a keyspace |
//! | is deleted as a whole one day: [`Db::drop_keyspace`] takes one edit | a keyspace |
//! | is written and deleted quickly, while other data is scanned | a keyspace |
//! | a part per user, document or day: many, and more each day | a prefix |
//! | is scanned across its parts in one order | a prefix |
//! | parts of a few kilobytes | a prefix |
//!
//! A keyspace is a tree, with tables and files of its own; a lookup in it costs the same, however
//! many others there are. A database has at most 65,535. A prefix costs its bytes in each key, and
//! a [`Filter`] with that [`Prefix`] lets scans of one part skip the tables without it.
//!
//! ```
//! use siftdb::{Db, Filter, KeyspaceOptions, WriteBatch, keys};
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("shop.sift");
//! let db = Db::open(&path)?;
//! let orders = db.keyspace("orders")?;
//! // An index that is only scanned: no filter.
//! let by_user = KeyspaceOptions::new().filter(Filter::none());
//! let by_user = db.keyspace_with("orders by user", &by_user)?;
//!
//! let mut batch = WriteBatch::new();
//! batch.in_keyspace(&orders).put(keys::encode(&1001u64), "a lamp");
//! // The user is a prefix of the key, not a keyspace: there are many users.
//! batch.in_keyspace(&by_user).put(keys::encode(&(7u64, 1001u64)), "");
//! db.write(batch)?; // both or neither
//!
//! let snapshot = db.snapshot();
//! assert_eq!(snapshot.in_keyspace(&by_user).prefix(keys::encode(&(7u64,))).count(), 1);
//! # db.close()
//! # }
//! ```
//!
//! The settings of a keyspace stay with its data: see [`KeyspaceOptions`].
//!
//! [`Db`]: crate::Db
//! [`Db::drop_keyspace`]: crate::Db::drop_keyspace
//! [`Db::keyspace`]: crate::Db::keyspace
//! [`Filter`]: crate::Filter
//! [`Keyspace`]: crate::Keyspace
//! [`KeyspaceOptions`]: crate::KeyspaceOptions
//! [`Prefix`]: crate::Prefix
//! [`Readable`]: crate::Readable
//! [`Snapshot`]: crate::Snapshot
//! [`WriteBatch`]: crate::WriteBatch
//! [`keys`]: crate::keys
