//! Verify, repair, events, counters and spans of a database in service.
//!
//! # Checks and repair
//!
//! [`Db::open_read_only`] changes no byte. [`Db::verify`] reads and checks everything.
//! [`Keyspace::tables`] lists the tables of a keyspace. [`Db::destroy`] removes a database.
//! [`Db::repair`] makes a sound database from the readable parts of a damaged one.
//! [`Db::recovery_report`] says what opening dropped after a crash, and [`Recovery`] sets what it
//! may drop.
//!
//! # Watching a database
//!
//! - **Events:** [`Options::event_listener`] tells an [`EventListener`] of flushes, compactions,
//!   stalls, tables that come and go, log switches, built and damaged filters, and failures, each
//!   with its figures. It runs in a thread of its own; only a close waits for it.
//! - **Figures:** [`Db::stats`] has counters by level; [`Stats::to_openmetrics`] is their text for
//!   Prometheus and others. With [`Options::latency_histograms`] they say how long calls took
//!   ([`Stats::latency`]).
//! - **Spans:** with the feature `tracing` there are spans `open`, `recovery`, `flush`,
//!   `compaction`, `stall`, `verify` and `repair` of the target `siftdb`, at the level of infos.
//!   Each has the field `directory`.
//!
//! `examples/metrics.rs` shows the first two.
//!
//! [`Db::destroy`]: crate::Db::destroy
//! [`Db::open_read_only`]: crate::Db::open_read_only
//! [`Db::recovery_report`]: crate::Db::recovery_report
//! [`Db::repair`]: crate::Db::repair
//! [`Db::stats`]: crate::Db::stats
//! [`Db::verify`]: crate::Db::verify
//! [`EventListener`]: crate::EventListener
//! [`Keyspace::tables`]: crate::Keyspace::tables
//! [`Options::event_listener`]: crate::Options::event_listener
//! [`Options::latency_histograms`]: crate::Options::latency_histograms
//! [`Recovery`]: crate::Recovery
//! [`Stats::latency`]: crate::Stats::latency
//! [`Stats::to_openmetrics`]: crate::Stats::to_openmetrics
