//! siftdb: an embedded, persistent key-value store whose reads ask a filter first.
//!
//! Keys and values are bytes, sorted by key. Writes go to a log and to memory, and from there into
//! sorted tables on disk. Every table has a filter that says "certainly not here" for most keys
//! that it does not have. A lookup asks filters before it touches data, and in most layouts before
//! it touches an index. You choose the filter and its layout, and statistics show what each one
//! saved.
//!
//! # Quick start
//!
//! ```
//! use siftdb::{Db, WriteBatch};
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("people.sift");
//! let db = Db::open(&path)?;
//! db.put("ada", "1815")?;
//! assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
//! assert_eq!(db.get("bob")?, None);
//!
//! let mut batch = WriteBatch::new();
//! batch.put("alan", "1912").put("grace", "1906").delete("ada");
//! db.write(batch)?; // all of it or nothing
//!
//! for entry in db.range("a".."h").rev() {
//!     let (key, value) = entry?;
//!     println!("{key:?} {value:?}");
//! }
//!
//! println!("{}", db.stats()); // what the filters did, level by level
//! println!("{}", db.explain("ada")?); // what one lookup touched
//! db.close()
//! # }
//! ```
//!
//! [`Db`] and [`Keyspace`] are cheap handles: clone them and use them from any thread. The database
//! stays open until the last of them is dropped. [`Snapshot`]s, [`Transaction`]s and [`Iter`]s own
//! what they need and may outlive the handle they came from.
//!
//! Keys are bytes, and their order is that of the bytes. [`keys`] encodes numbers, strings and
//! tuples so that the bytes sort as the values do.
//!
//! # Guide
//!
//! Each chapter of the [`guide`] stands by itself:
//!
//! | chapter | subject |
//! |---|---|
//! | [Keyspaces](guide::keyspaces) | a [`Keyspace`] or a key prefix; batches over several |
//! | [Filters](guide::filters) | which [`Filter`] and [`FilterLayout`] to choose; what scans skip |
//! | [Durability](guide::durability) | what a crash leaves; [`Db::sync`] and [`SyncTicket`] |
//! | [Transactions](guide::transactions) | [`Keyspace::transact`], conflicts, changes of one key |
//! | [Expiry](guide::expiry) | entries that disappear at a time; [`CompactionFilter`] |
//! | [Bulk loads](guide::bulk_loads) | [`Keyspace::ingest`]: sorted entries become tables |
//! | [Backup](guide::backup) | [`Db::checkpoint`] while others write |
//! | [Followers](guide::followers) | other processes read while one writes: [`Follower`] |
//! | [Watches](guide::watches) | the writes of an open database, as they are committed: [`Watch`] |
//! | [Operations](guide::operations) | verify, repair, events, counters, spans |
//!
//! # What survives
//!
//! A write that returned survives the death of the process. A power loss may take the newest
//! writes, those that no [`Db::sync`], [`WriteOptions::sync`] or [`SyncTicket`] covers. If a write
//! survives, every earlier write survives too. A batch survives whole or not at all. Damage is an
//! [`Error`] with file and offset; it is never an older value, and never "not found".
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `bytes` | `bytes::Bytes` from a [`Value`], without a copy |
//! | `lz4` | [`Compression::Lz4`] |
//! | `mmap` | `env::MapEnv`, which reads tables through memory maps |
//! | `zstd` | [`Compression::Zstd`]; compiles C |
//! | `tracing` | spans for subscribers of the crate `tracing` |
//! | `inspect` | what tools need: files as text, filters by themselves, counted I/O |
//! | `testing` | environments that fail and crash on purpose, for tests of your program |
//!
//! # Limits
//!
//! Keys have up to 65,535 bytes, values up to 1 GiB, batches up to 2 GiB; empty keys and values are
//! ordinary. A database has up to 65,535 keyspaces, with names of 1 to 255 bytes. The order is
//! bytewise and cannot be changed. One process has a database open to write at a time; others
//! follow it. Unix is the supported platform, and Linux the tested one.
//!
//! `DESIGN.md` explains how it works and why; `docs/` has tuning, formats, crash safety and
//! measurements. The command `siftdb` is the package `siftdb-cli`.

// Without this feature some items have no public path.
#![cfg_attr(feature = "testing", warn(unreachable_pub))]

// The rooms, top to bottom: a module may only use what is below it in this list.
// `tests/it/architecture.rs` checks it.

// -- guide: documentation alone ------------------------------------------------------------------
pub mod guide;

// -- checks: every order of threads ---------------------------------------------------------------
#[cfg(feature = "interleavings")]
#[path = "../tests/interleavings/scenarios/mod.rs"]
pub mod interleavings;

// -- engine: one database, as its user sees it ----------------------------------------------------
mod db;
mod admin;

// -- paths: what a user's call does ---------------------------------------------------------------
mod read;
mod write;

// -- jobs: what runs by itself --------------------------------------------------------------------
mod jobs;
mod state;
mod options;

// -- tree: which tables exist ---------------------------------------------------------------------
mod tree;

// -- containers: where entries live ---------------------------------------------------------------
mod table;
mod memtable;
mod log;

// -- services -------------------------------------------------------------------------------------
pub mod filter;
mod cache;
pub mod env;

// -- vocabulary: knows nothing of the engine ------------------------------------------------------
mod base;

pub use admin::checkpoint::CheckpointReport;
pub use admin::filter_report::{
    FilterDamage, FilterFacts, FilterGroup, FilterReport, WantedFilter,
};
#[cfg(feature = "inspect")]
pub use admin::inspect;
pub use admin::repair::{LostEntries, RenamedKeyspace, RepairReport, SetAside};
pub use admin::table_list::TableInfo;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use admin::test_ingest::add_ingested_table;
pub use admin::verify::{VerifiedKeyspace, VerifyProgress, VerifyReport};
pub use base::error::{Error, LockHolder, Remedy, Result};
pub use base::events::{Event, EventListener};
pub use base::keys;
pub use base::range::KeyRange;
pub use base::stats::report::{LevelStats, Stats};
pub use base::value::{Key, Value};
pub use base::write_batch::{Write, WriteBatch};
pub use db::{
    Change, ChangedEntry, Changes, Db, Follower, IngestEntry, IngestReport, Keyspace,
    KeyspaceBatch, KeyspaceTransaction, Readable, Savepoint, Snapshot, TableWriter, Transaction,
    Watch,
};
pub use jobs::compact::manual::FilterRebuild;
pub use log::recovery::{DroppedPart, Recovery, RecoveryReport};
pub use options::{
    CompactRangeOptions, CompactionDecision, CompactionFilter, Filter, KeyspaceOptions, Options,
    ReadOptions, WriteOptions,
};
pub use read::cursor::Cursor;
pub use read::estimate::RangeEstimate;
pub use read::explain::{
    Explain, ExplainFilter, ExplainOutcome, ExplainStep, ExplainTarget, ExplainTouched,
    FilterAnswer, FilterSource,
};
pub use read::iter::{Iter, Keys};
#[doc(inline)]
pub use siftdb_filter::prefix::Prefix;
pub use state::sync_ticket::SyncTicket;
pub use table::compression::Compression;
pub use table::filter::layout::FilterLayout;
pub use table::filter::layout::FilterPinning;
