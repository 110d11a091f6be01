//! The write-ahead log of all keyspaces. A switch of memtables begins the next file. A file is
//! removed once every memtable that began in it or before it is in a table.
//!
//! A log is a record file (see `record`). Payload of a record:
//!
//! ```text
//! record := synced_through: varint  body  kind: u8
//! start  (1) := previous log: varint  its last sequence: varint  first sequence: varint
//!               manifest number: varint  its synced bytes: varint  epoch: varint  database id: 16
//! batch  (2) := a write batch, see `write_batch`
//! loads  (3) := (table id: u64  sequence: varint)+
//! ```
//!
//! The first record is a start. If tables of bulk loads are live then, a record of loads follows,
//! and the log has version 2. Only a repair without a manifest needs it: no such table knows its
//! sequence. The manifest says where a log ended at a clean close
//! ([`consistency::CleanClose`]). `synced_through` is the last sequence known to be durable when
//! the record was written: it tells the loss of unsynced writes from damage. The kind comes last,
//! so that no record ends in a zero byte.
//!
//! [`writer`] appends. [`cursor`] reads one log, item by item, and [`consistency`] checks each item
//! against the manifest. Three policies are over it. [`recover`] reads all logs, or refuses them;
//! [`salvage`] reads what it can from damaged logs; both hand out batches by [`replay`]. [`tail`]
//! follows the logs while another process writes them. [`format`] encodes and decodes payloads.

pub(crate) mod tail;
#[cfg(test)]
mod tail_tests;
pub(crate) mod salvage;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod writer;
pub(crate) mod consistency;
pub(crate) mod cursor;
pub(crate) mod format;
