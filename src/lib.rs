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
//! tuples so that the bytes sort as the values do. The feature `bytes` turns a [`Value`] into a
//! `bytes::Bytes` without a copy.
//!
//! # Keyspace or key prefix
//!
//! [`Db::keyspace`] opens or creates a [`Keyspace`]: keys, tables, filters and settings of its own.
//! Log, cache, threads and write buffer are those of the database. The methods of [`Db`] that read
//! and write act on the keyspace `default`, which is always there. A [`WriteBatch`] writes to
//! several keyspaces as one step, and a [`Snapshot`] sees all of them at one moment. Functions that
//! take any of the three to read from are written for the trait [`Readable`].
//!
//! The other way to keep kinds of data apart is a prefix of the key: `user/7`, `order/1001`, or the
//! first part of a tuple that [`keys`] encodes.
//!
//! | the data | choose |
//! |---|---|
//! | a kind of record, an index, a queue: a few kinds, known to the program | a keyspace |
//! | needs its own filter, block size or compression | a keyspace |
//! | is deleted as a whole one day: [`Db::drop_keyspace`] takes one edit | a keyspace |
//! | is written and deleted quickly, while other data is scanned | a keyspace |
//! | a part per user, document or day: many, and more each day | a prefix |
//! | is scanned across its parts in one order | a prefix |
//! | parts of a few kilobytes | a prefix |
//!
//! A keyspace is a tree, with tables and files of its own; a lookup in it costs the same, however
//! many others there are. A database has at most 65,535. A prefix costs its bytes in each key, and
//! a [`Filter`] with that [`Prefix`] lets scans of one part skip the tables without it.
//!
//! ```
//! use siftdb::{Db, Filter, KeyspaceOptions, WriteBatch, keys};
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("shop.sift");
//! let db = Db::open(&path)?;
//! let orders = db.keyspace("orders")?;
//! // An index that is only scanned: no filter.
//! let by_user = KeyspaceOptions::new().filter(Filter::none());
//! let by_user = db.keyspace_with("orders by user", &by_user)?;
//!
//! let mut batch = WriteBatch::new();
//! batch.in_keyspace(&orders).put(keys::encode(&1001u64), "a lamp");
//! // The user is a prefix of the key, not a keyspace: there are many users.
//! batch.in_keyspace(&by_user).put(keys::encode(&(7u64, 1001u64)), "");
//! db.write(batch)?; // both or neither
//!
//! let snapshot = db.snapshot();
//! assert_eq!(snapshot.in_keyspace(&by_user).prefix(keys::encode(&(7u64,))).count(), 1);
//! # db.close()
//! # }
//! ```
//!
//! The settings of a keyspace stay with its data: see [`KeyspaceOptions`].
//!
//! # Choosing a filter
//!
//! A [`Filter`] has two sides. The *encoding* says how keys become bits: [`Filter::bloom`]
//! (RocksDB's FastLocalBloom, the default, 10 bits a key), [`Filter::leveldb_bloom`],
//! [`Filter::ribbon`] (the same rate in 7/10 of the space, for more work;
//! [`Filter::bloom_then_ribbon`] uses it at the lower levels), [`Filter::legacy_bloom`] (RocksDB's
//! older one), or [`Filter::custom`] with a custom [`filter::FilterPolicy`]. The *layout* says
//! where the bits of a table are, see [`FilterLayout`]:
//!
//! - **Full**, one filter for the table. A lookup of an absent key is one probe and touches nothing
//!   else of the table; the whole filter must be in memory. For filters that fit.
//! - **Partitioned**, one filter for each run of keys. A lookup searches a small index over the
//!   partitions and asks one of them; only that index must be in memory. For filters that do not
//!   fit.
//! - **Block-based**, one filter for each 2 KiB of the file, as in LevelDB. A lookup searches the
//!   table's index first and then asks. For comparisons.
//!
//! [`Filter::monkey`] takes a memory budget instead of bits a key. It divides the budget over the
//! levels, so that all of them together pass the fewest absent keys. [`Options::filter_last_level`]
//! can leave out the filters of the last level, which serve only lookups of absent keys.
//!
//! A filter may also hold the [`Prefix`] of each key. Then a scan over the keys of one prefix skips
//! the tables without it.
//!
//! By default, levels 0 and 1 have full filters and deeper levels have partitioned ones. More bits
//! pass fewer absent keys: 10 bits pass about 1 %, each further 5 bits a tenth of that. Each table
//! records its own filter, so the setting may change at every opening. A setting that is not named
//! keeps the value that was saved with the keyspace.
//!
//! ```
//! use siftdb::{Filter, FilterLayout, Options};
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("big.sift");
//! let db = Options::new()
//!     .block_cache_bytes(256 << 20)
//!     .filter(Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 4096 }))
//!     .filter_at_level(0, Filter::bloom(14.0).layout(FilterLayout::Full))
//!     .open(&path)?;
//! # db.close()
//! # }
//! ```
//!
//! # Durability
//!
//! | after | what is there |
//! |---|---|
//! | the process dies | every acknowledged write |
//! | power is lost | every write up to the last [`Db::sync`], [`WriteOptions::sync`] or ticket |
//! | a sync or write fails | every acknowledged write; later writes return [`Error::ReadOnly`] |
//! | a byte is damaged | [`Error::Corruption`] where it matters; in a filter, a slower read |
//!
//! After a power loss the database has some prefix of its writes, over all keyspaces. After a
//! failed write, reads still work, but the database must be reopened to write; the error names the
//! file. If the disk was only full, [`Db::resume`] continues without reopening. A damaged byte
//! never gives an older value, and never "not found" for a key that is there.
//!
//! A batch survives as a whole or not at all. [`Db::close`] reports what dropping the last handle
//! cannot: the errors of the last sync.
//!
//! [`Db::sync_ticket`] is a sync that no thread has to wait for: the [`SyncTicket`] is a future,
//! and a server or a replicated log answers when it resolves.
//!
//! # Transactions
//!
//! [`Keyspace::transact`] runs a function in a [`Transaction`], and again after a conflict. The
//! function reads one moment of all keyspaces and its own writes, and its writes are committed as
//! one step.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = siftdb::Db::open(directory.path().join("bank.sift"))?;
//! use siftdb::keys::{decode, encode};
//!
//! db.put("ada", encode(&100u64))?;
//! let move_ten = |tx: &siftdb::Transaction| {
//!     let money = |name| Ok(tx.get(name)?.and_then(|bytes| decode(&bytes).ok()).unwrap_or(0u64));
//!     let (from, to): (u64, u64) = (money("ada")?, money("bob")?);
//!     if from >= 10 {
//!         tx.put("ada", encode(&(from - 10)))?;
//!         tx.put("bob", encode(&(to + 10)))?;
//!     }
//!     Ok(from >= 10)
//! };
//! assert!(db.transact(move_ten)?);
//! # db.close()
//! # }
//! ```
//!
//! - **What is guaranteed:** strict serializability. Transactions and single calls answer as if
//!   each happened at one moment between its begin and its end. That holds for the threads of the
//!   one process that writes. After a crash a transaction is there whole or not at all.
//! - **Conflicts:** a commit answers [`Error::Conflict`] if a key that was read, or a range as far
//!   as it was scanned, has been written since the transaction began: by a transaction, a single
//!   write, a range delete, or the drop of the keyspace. Expiry is no write. Keys that are only
//!   written conflict with nothing: [`Transaction::set_read_for_update`] says that they matter. A
//!   transaction that writes nothing is never refused.
//! - **Cost:** no lock is held while a transaction runs. It keeps its writes and the keys that it
//!   read in memory, up to [`Options::transaction_bytes_max`], and compactions keep what it may
//!   read. The commit asks filters first, and reads a table only if that has newer entries and its
//!   filter does not say "no".
//! - **One key:** [`Keyspace::compare_exchange`], [`Keyspace::put_if_absent`] and
//!   [`Keyspace::update`] try again by themselves.
//!
//! To leave a transaction without writing, return an error, or go back to a
//! [`Savepoint`](Transaction::savepoint) and return a value.
//!
//! # Expiry
//!
//! [`KeyspaceOptions::expire_after`] says how long after its write an entry of a keyspace expires.
//! [`WriteOptions::expire_after`] and [`WriteOptions::expire_at`] say it for what one call puts,
//! and win over the keyspace. From its time on, an entry is gone.
//!
//! - The time of an entry is decided once, when it is written, in milliseconds since 1970. It is
//!   logged and stored with the entry: no crash, repair or changed setting changes it.
//! - Reads find the entry before its time. A lookup, a `multi_get`, an iterator and a cursor each
//!   go by one time, that of the first expiring entry that they meet.
//! - An older value never comes back: an expired entry hides what a deletion would hide.
//! - A snapshot may lose what expires, and nothing else.
//! - The clock is that of the [`Env`](env::Env), by default the system's. If it goes back, reads
//!   find again what has not expired by then, except what a compaction has removed: that is gone.
//! - Compactions remove by the clock, or by the time of an earlier removal if that is later. It is
//!   saved with the database and never goes back: a clock that was far ahead shortens later times.
//! - A table in which all has expired is deleted unread, within seconds, if no older table has keys
//!   of its range and no snapshot needs it. Others are rewritten once all their expiring entries
//!   have expired and make half of the table, or by [`Keyspace::compact_range`].
//! - An entry of zero duration, or with a time in the past, is written and gone at once. As a
//!   setting of a keyspace, zero is refused.
//! - `expire_after` beyond 64 bits of milliseconds is "never"; `expire_at` beyond them is refused.
//!
//! Expiry is no write: it takes no sequence number and wakes nobody. Statistics and estimates count
//! expired entries until a compaction removes them. Keyspaces and calls without expiry pay nothing;
//! an entry that expires takes eight bytes more.
//!
//! ```
//! use siftdb::{Db, KeyspaceOptions};
//! use std::time::Duration;
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Db::open(directory.path().join("app.sift"))?;
//! let hour = KeyspaceOptions::new().expire_after(Duration::from_secs(3600));
//! let sessions = db.keyspace_with("sessions", &hour)?;
//! sessions.put("session/1", "ada")?;
//! assert_eq!(sessions.get("session/1")?.unwrap(), "ada"); // for an hour
//! # db.close()
//! # }
//! ```
//!
//! A [`CompactionFilter`] is a rule of your own: compactions ask it which entries to keep, to
//! delete or to change.
//!
//! # Bulk loads
//!
//! [`Keyspace::ingest`] turns sorted entries into tables directly, without log and memtable;
//! `examples/bulk_load.rs` compares it with the same entries in batches.
//! [`Keyspace::ingest_unsorted`] sorts them first, in bounded memory. [`Keyspace::table_writer`]
//! takes entry by entry, from a source with errors of its own.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = siftdb::Db::open(directory.path().join("db"))?;
//! db.put("key 007", "old")?;
//! let before = db.snapshot();
//! let report = db.ingest((0..1000).map(|n| (format!("key {n:03}"), "new")))?;
//! assert_eq!((report.entries, report.tables), (1000, 1));
//! assert_eq!(db.get("key 007")?.unwrap(), "new");
//! assert_eq!(before.iter().count(), 1);
//! # db.close()
//! # }
//! ```
//!
//! - **When:** all of a load appears in one step, when the call returns, and no read sees a part of
//!   it. It is newer than every write that was acknowledged before that step, also one that was
//!   made during the call. Snapshots and iterators from before never see it.
//! - **Durability:** when the call returns, the load and every earlier write of any keyspace
//!   survive a power loss. After a crash before that, the load is there whole or not at all.
//! - **What it does to others:** an older value of a key in the load is hidden. What is not in the
//!   load stays. An earlier range delete does not hide the load, and a later one does. A
//!   transaction that read a loaded key, or a range with one, conflicts.
//! - **Order:** keys in the order of their bytes, each once; else [`Error::KeyOrder`] names the
//!   entry. `ingest_unsorted` takes any order, and of one key the last entry.
//! - **Refused:** an entry out of order or too large, an error of the source, a full disk while the
//!   tables are written, a dropped keyspace. Nothing appears, the files go, and the database takes
//!   writes as before. After an error a [`TableWriter`] answers the same error to every call.
//! - **Failed:** if a log or the manifest fails in the last step, the database becomes read-only as
//!   after a failed write. The load is not visible, and after [`Db::resume`] it never is; reopened,
//!   the database has it whole or not at all.
//! - **Expiry:** a keyspace with [`KeyspaceOptions::expire_after`] and
//!   [`TableWriter::put_with`] say when entries expire. The time counts from the put of the entry.
//! - **Place:** the deepest level where no table shares keys with the load, there or above, and
//!   where it has room; else level 0. Filters and compression are those of the keyspace. A
//!   [`CompactionFilter`] meets the entries when a compaction does.
//! - **Cost:** a second thread compresses, writes and syncs, where the machine has one. In memory
//!   are about 1.5 MiB of blocks, and the indexes and filter keys of two tables. Others read
//!   and write during the load. In the last step writers wait for a flush of this keyspace,
//!   which holds what was written since a first flush a moment before, and for some syncs.
//! - **Followers:** a [`Follower`] shows a load whole. [`Follower::changes`] ends before it with
//!   [`Error::ChangesGone`], because no log has its entries. All of them have one sequence number,
//!   which the manifest and the logs know and the tables do not: a repair without both puts such
//!   tables into `lost` and reports them as a loss.
//!
//! # Backup
//!
//! [`Db::checkpoint`] makes a database of its own in another directory while others read and write:
//! this one at a moment between the call and its return, in all keyspaces. Whatever was
//! acknowledged before the call is in it, and of a batch all or nothing. It is durable when the
//! call returns. A crash before leaves a directory that is marked: it answers
//! [`Error::Unfinished`], and the same call begins it again.
//!
//! Its tables are links to those of this database, so it costs a flush and little else, and
//! shares its disk: copy it elsewhere for a backup against the loss of the disk. The same call with
//! the same path brings it up to date, unless somebody wrote to it.
//!
//! # Reading while another process writes
//!
//! One process writes; any number of others may read at the same time, each through a
//! [`Follower`]. It takes no lock and changes no byte, so the writer neither waits for it nor knows
//! of it. It also reads a database that nobody has open, as [`Db::open_read_only`] does.
//!
//! ```
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("app.sift");
//! # let db = siftdb::Db::open(&path)?;
//! let follower = siftdb::Db::open_follower(&path)?;
//! # db.put("job/1", "done")?;
//! follower.refresh()?; // from now on it shows what the writer has acknowledged before
//! assert_eq!(follower.prefix("job/").count(), 1);
//! # db.close()
//! # }
//! ```
//!
//! | | what is shown |
//! |---|---|
//! | after [`Follower::refresh`] | a prefix of the writes, with all that was acknowledged before |
//! | with [`Options::follow_synced_only`] | a prefix that a power loss leaves; it may lag |
//! | a batch, a transaction | all of it or nothing |
//! | until the next refresh | the same moment, in all keyspaces |
//! | the writer dies or closes | the same; the next writer is followed without reopening |
//! | the history was cut | the last moment; refreshes return [`Error::HistoryChanged`] |
//!
//! - **Prefix:** the writer numbers its writes. A moment has all writes up to some number, and none
//!   after it. It may have writes that are not acknowledged yet, or whose writer got an error. A
//!   refresh never goes back.
//! - **Handles:** a [`Keyspace`], [`Snapshot`] or [`Iter`] of a follower keeps the moment that it
//!   was taken at. Its files are open until it is dropped, so nothing that the writer removes is
//!   missing. The process must be allowed a descriptor for each table.
//! - **Failures:** a refresh that fails leaves the moment from before, and may be tried again. A
//!   record that the writer is just writing is no damage. A place is damage if something valid
//!   follows it, or if manifest or logs say that it was durable: then the refresh says where.
//! - **Changes:** [`Follower::changes`] iterates the writes from a sequence number on, in order,
//!   for caches and indexes that follow. It reads them from the logs. These reach back to the last
//!   flush, or further with [`Options::keep_log_bytes`]; where they do not, [`Error::ChangesGone`]
//!   names the first change that is there.
//! - **Cut histories:** a repair, a database that was created again, restored files, or a loss of
//!   power that the follower survived on a shared disk.
//!
//! # Maintenance
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
pub use table::filter::layout::FilterLayout;
pub use table::filter::layout::FilterPinning;
