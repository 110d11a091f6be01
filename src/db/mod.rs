//! One database, as its user sees it: [`Db`], [`Keyspace`], [`Snapshot`], [`Transaction`] and
//! [`Follower`].
//!
//! Each public method of [`Db`] is one call into the room that does the work: `read`, `write`,
//! `jobs` or `admin`. This room has the life of a database: `open` and `recover` build its state
//! from the files, `own_writes` is what a transaction has written, `again` runs one until it is
//! committed, `update` has the transactions of one key, `ingest` the bulk loads, `alter` creates
//! and drops keyspaces, `handle` ends a session, `resume` continues after a full disk, `follow`
//! reads while another process writes, `changes` what it wrote, and `watch` what this one writes.

#[cfg(test)]
mod checkpoint_tests;
#[cfg(test)]
mod conflict_tests;
#[cfg(test)]
mod early_flush_tests;
#[cfg(test)]
mod garbage_tests;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod log_switch_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod removal_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod sorter_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
pub(crate) mod readable;
pub(crate) mod follower;
pub(crate) mod watch;
pub(crate) mod database;
pub(crate) mod update;
pub(crate) mod transaction;
pub(crate) mod changes;
mod change_reader;
pub(crate) mod change;
mod again;
mod own_writes;
pub(crate) mod ingest;
pub(crate) mod keyspace;
pub(crate) mod keyspace_batch;
pub(crate) mod snapshot;
pub(crate) mod handle;
mod alter_batch;
pub(crate) mod alter;
pub(crate) mod resume;
mod follow;
mod followed_entries;
pub(crate) mod open;
pub(crate) mod recover;
mod log_memtables;
mod log_memory;
mod read_methods;

pub use change::{Change, ChangedEntry};
pub use changes::Changes;
pub use database::Db;
pub use follower::Follower;
pub use ingest::{IngestEntry, IngestReport, TableWriter};
pub use keyspace::Keyspace;
pub use keyspace_batch::KeyspaceBatch;
pub use readable::Readable;
pub use snapshot::Snapshot;
pub use transaction::{KeyspaceTransaction, Savepoint, Transaction};
pub use watch::Watch;
