//! Logs: the framed records of every log file, the write-ahead log, and what recovery reports.

pub mod wal;
pub mod record;
pub mod recovery;
