//! The write-ahead log: one file per memtable, deleted once its memtable is in a table.
//!
//! A log is a record file (see `record`). Payload of a record:
//!
//! ```text
//! record := synced_through: varint  body  kind: u8
//! start  (1) := previous log: varint  its last sequence: varint  first sequence: varint
//!               manifest number: varint  its synced bytes: varint
//! batch  (2) := a write batch, see `write_batch`
//! ```
//!
//! The first record is a start. Where a log ended at a clean close is in the manifest
//! ([`evidence::CleanClose`]).
//! `synced_through` is the last sequence known to be durable when the record was written: it is
//! what tells a loss of what was never synced from damage to what was. The kind stands last, so
//! that no record ends in a zero byte.
//!
//! [`writer`] appends; [`recover`] reads all logs back, or refuses; [`salvage`] reads what it can
//! from damaged ones; [`evidence`] is what both hold against the manifest; [`format`] encodes and
//! decodes payloads.

pub mod salvage;
pub mod recover;
pub mod writer;
pub mod evidence;
pub mod format;
