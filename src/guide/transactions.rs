//! Reads and writes as one step, refused if something that was read has changed.
//!
//! [`Keyspace::transact`] runs a function in a [`Transaction`], and again after a conflict. The
//! function reads one snapshot of all keyspaces and its own writes, and its writes are committed
//! as one step.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = siftdb::Db::open(directory.path().join("bank.sift"))?;
//! use siftdb::keys::{decode, encode};
//!
//! db.put("ada", encode(&100u64))?;
//! let move_ten = |tx: &siftdb::Transaction| {
//!     let money = |name| Ok(tx.get(name)?.and_then(|bytes| decode(&bytes).ok()).unwrap_or(0u64));
//!     let (from, to): (u64, u64) = (money("ada")?, money("bob")?);
//!     if from >= 10 {
//!         tx.put("ada", encode(&(from - 10)))?;
//!         tx.put("bob", encode(&(to + 10)))?;
//!     }
//!     Ok(from >= 10)
//! };
//! assert!(db.transact(move_ten)?);
//! # db.close()
//! # }
//! ```
//!
//! - **What is guaranteed:** strict serializability. Transactions and single calls behave as if
//!   each happened at one moment between its begin and its end. That holds for the threads of the
//!   one process that writes. After a crash a transaction is there whole or not at all.
//! - **Conflicts:** a commit returns [`Error::Conflict`] if a key that was read, or a range as far
//!   as it was scanned, has been written since the transaction began: by a transaction, a single
//!   write, a range delete, or the drop of the keyspace. Expiry is no write. Keys that are only
//!   written conflict with nothing: [`Transaction::set_read_for_update`] says that they matter. A
//!   transaction that writes nothing is never refused.
//! - **Cost:** no lock is held while a transaction runs. It keeps its writes and the keys that it
//!   read in memory, up to [`Options::transaction_bytes_max`], and compactions keep what it may
//!   read. The commit asks filters first, and reads a table only if that has newer entries and its
//!   filter does not say "no".
//! - **One key:** [`Keyspace::compare_exchange`], [`Keyspace::put_if_absent`] and
//!   [`Keyspace::update`] try again by themselves.
//!
//! To leave a transaction without writing, return an error, or go back to a
//! [`Savepoint`](crate::Transaction::savepoint) and return a value.
//!
//! [`Error::Conflict`]: crate::Error::Conflict
//! [`Keyspace::compare_exchange`]: crate::Keyspace::compare_exchange
//! [`Keyspace::put_if_absent`]: crate::Keyspace::put_if_absent
//! [`Keyspace::transact`]: crate::Keyspace::transact
//! [`Keyspace::update`]: crate::Keyspace::update
//! [`Options::transaction_bytes_max`]: crate::Options::transaction_bytes_max
//! [`Transaction`]: crate::Transaction
//! [`Transaction::set_read_for_update`]: crate::Transaction::set_read_for_update
