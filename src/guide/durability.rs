//! What a crash, a power loss, a failed write and a damaged byte leave.
//!
//! | after | what is there |
//! |---|---|
//! | the process dies | every acknowledged write |
//! | power is lost | every write up to the last [`Db::sync`], [`WriteOptions::sync`] or ticket |
//! | a sync or write fails | every acknowledged write; later writes return [`Error::ReadOnly`] |
//! | a byte is damaged | [`Error::Corruption`] where it matters; in a filter, a slower read |
//!
//! ```
//! use siftdb::{Db, WriteOptions};
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Db::open(directory.path().join("orders.sift"))?;
//! db.put_with("order/1", "paid", &WriteOptions::new().sync(true))?; // durable when it returns
//! db.put("order/2", "new")?;
//! db.put("order/3", "new")?;
//! db.sync()?; // now all three are durable
//! # db.close()
//! # }
//! ```
//!
//! - **Order:** after a power loss the database has some prefix of its writes, over all keyspaces.
//!   If a write survives, every earlier write survives too.
//! - **Batches:** a batch survives whole or not at all.
//! - **Failed writes:** reads still work, but the database must be reopened to write; the error
//!   names the file. If the disk was only full, [`Db::resume`] continues without reopening.
//! - **Damage:** a damaged byte never gives an older value, and never "not found" for a key that
//!   is there.
//! - **Closing:** [`Db::close`] returns the error of the last sync. Dropping the last handle
//!   cannot.
//! - **Servers:** [`Db::sync_ticket`] is a sync that no thread has to wait for. The [`SyncTicket`]
//!   is a future: a server replies to its client when it resolves.
//!
//! [`Db::close`]: crate::Db::close
//! [`Db::resume`]: crate::Db::resume
//! [`Db::sync`]: crate::Db::sync
//! [`Db::sync_ticket`]: crate::Db::sync_ticket
//! [`Error::Corruption`]: crate::Error::Corruption
//! [`Error::ReadOnly`]: crate::Error::ReadOnly
//! [`SyncTicket`]: crate::SyncTicket
//! [`WriteOptions::sync`]: crate::WriteOptions::sync
