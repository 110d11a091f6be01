//! Logs: framed records, the write-ahead log that consists of them, and the report of recovery.
//!
//! `record` is the frame that write-ahead logs and manifests share. `wal` writes, recovers and
//! salvages write-ahead logs. `recovery` has the option and the report that users see.

pub(crate) mod wal;
pub(crate) mod record;
pub(crate) mod recovery;
