//! What reads, writes and jobs share.
//!
//! `shared` holds the state and the order of its locks; `session` begins a session's log and
//! manifest and switches to a new memtable; `write_queue` forms groups of writers;
//! `background_error` keeps the first failure; `stats_file` keeps counters across openings.

pub mod session;
pub mod shared;
pub mod write_queue;
pub mod background_error;
pub mod stats_file;
