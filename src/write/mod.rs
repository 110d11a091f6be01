//! Writes: the leader of a group makes room, appends to the log, applies and publishes.
//!
//! `commit` is the path of a put, `room` its waits for flushes and compactions, and `conflict` the
//! check of a transaction. The queue that chooses the leader, and the switch to a new log and
//! memtable, are in `state`, because jobs use them too.

pub(crate) mod commit;
mod room;
mod conflict;
