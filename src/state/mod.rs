//! The state that reads, writes and jobs share.
//!
//! `engine` is one open database: its owners `context`, `catalog`, `writer` and `jobs`; `session`
//! begins the log and manifest of a session and switches memtables; `claim` is the part of a tree
//! that a running compaction changes; `keyspace` is the state of one keyspace and the list of all;
//! `write_queue` forms groups of writers; `read_set` is what a transaction has read and
//! `recent_writes` what it is compared with; `sync_ticket` resolves when earlier writes are
//! synced; `watchers` wakes the watches of the database; `lock_watch` has the workers compare
//! `LOCK` while there are writes; `retry_backoff` lets transactions that run again run one at a
//! time; `read_view` is what a read looks at; `snapshots` lists live snapshots; `live_logs` tells
//! which logs are needed; `background_error` keeps the first failure; `filter_workload` is what a
//! filter budget is divided by; `stats_file` keeps counters across openings; `debt` tells how far
//! flushes and compactions are behind, and `stalls` counts and tells how long writers wait for
//! them; `lock_rank` has the order of the locks, which debug builds check.

pub(crate) mod stalls;
pub(crate) mod debt;
pub(crate) mod session;
pub(crate) mod engine;
pub(crate) mod jobs;
pub(crate) mod claim;
pub(crate) mod writer;
pub(crate) mod catalog;
pub(crate) mod write_queue;
pub(crate) mod sync_ticket;
pub(crate) mod lock_watch;
pub(crate) mod watchers;
pub(crate) mod retry_backoff;
pub(crate) mod recent_writes;
pub(crate) mod read_set;
pub(crate) mod keyspace;
pub(crate) mod read_view;
pub(crate) mod snapshots;
pub(crate) mod live_logs;
pub(crate) mod background_error;
pub(crate) mod filter_workload;
pub(crate) mod stats_file;
pub(crate) mod context;
pub(crate) mod lock_rank;
