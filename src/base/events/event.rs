//! [`Event`] and [`EventListener`]: what a user's program is told, and how.

use crate::base::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// User code that is called with each [`Event`] of a database: see [`Options::event_listener`]. A
/// function that takes an `&Event` is a listener.
///
/// # The contract
///
/// 1. **One thread calls it, one event at a time.** The thread belongs to the database and holds no
///    lock of it, so the listener may use the database. It need not be quick: nothing waits for it
///    but [`Db::close`] and the drop of the last handle, which return after it got every event.
///    In a callback of a ticket they do not wait for it.
/// 2. **Events come in the order in which they happened**; see [`Event`] for what that means.
/// 3. **Events wait in memory**, at most 4,096. Of more, only the number is kept: the listener gets
///    [`Event::Missed`] in their place.
/// 4. **A panic ends the call and nothing else.** The listener gets the next event.
/// 5. **It is not saved.** Each opening gives it again. In a forked child it is not called.
///
/// If opening fails, events of it may come after the error was returned.
///
/// # Example
///
/// ```
/// use siftdb::{Event, Options};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("db");
/// let written = Arc::new(AtomicU64::new(0));
/// let sum = Arc::clone(&written);
/// let listener = move |event: &Event| {
///     if let Event::TableCreated { bytes, .. } = event {
///         sum.fetch_add(*bytes, Ordering::Relaxed);
///     }
/// };
/// let db = Options::new().event_listener(Arc::new(listener)).open(path)?;
/// db.put("ada", "1815")?;
/// db.flush()?;
/// db.close()?; // After this the listener has got everything.
/// assert!(written.load(Ordering::Relaxed) > 0);
/// # Ok(())
/// # }
/// ```
///
/// [`Options::event_listener`]: crate::Options::event_listener
/// [`Db::close`]: crate::Db::close
pub trait EventListener: Send + Sync {
    /// Called with each event.
    fn on_event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> EventListener for F {
    fn on_event(&self, event: &Event) {
        self(event);
    }
}

/// Something that a database did, with figures. Sizes are bytes of files, if nothing else is said.
///
/// # What the order tells
///
/// - An event of a job that begins comes before the one that ends it, also if the job failed. At
///   most one flush runs at a time. Compactions have a number, because several may run
///   ([`Options::compaction_threads`](crate::Options::compaction_threads)).
/// - [`FilterBuilt`](Event::FilterBuilt) of a table comes before its
///   [`TableCreated`](Event::TableCreated), and that before its
///   [`TableRemoved`](Event::TableRemoved).
/// - The tables of a flush or a compaction are created before it ends. When it has ended, reads see
///   them.
/// - If a flush or compaction fails, it ends before [`BackgroundError`](Event::BackgroundError). It
///   may end with an error that is none of the database: `Closed` if a close stopped it,
///   `KeyspaceDropped` if its keyspace was dropped.
/// - A stall ends before the next one begins, except that a slowdown may have others within, and a
///   bulk load may wait at the same time as a writer.
///
/// Patterns need `..`, because later versions may add figures and kinds of events.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Opening has recovered a database from its manifest and logs. A database that is created, or
    /// followed, has no such event.
    #[non_exhaustive]
    Recovered {
        /// Logs that were read.
        logs: u64,
        /// Entries in them, those included that tables already had.
        entries: u64,
        /// Tables that the entries were written to, if they did not stay in memory.
        tables: u64,
        /// Torn or damaged parts that were dropped: see
        /// [`Db::recovery_report`](crate::Db::recovery_report).
        dropped: u64,
        /// From the first log that was read to the end of the last table.
        duration: Duration,
    },
    /// A flush begins to write memtables to tables of level 0.
    #[non_exhaustive]
    FlushBegun {
        /// Memtables, of all keyspaces.
        memtables: u64,
        /// Entries in these memtables.
        entries: u64,
        /// Bytes of memory that they take.
        bytes: u64,
    },
    /// A flush has ended.
    #[non_exhaustive]
    FlushEnded {
        /// Tables that it wrote; 0 if it failed, or if nothing stayed of the memtables.
        tables: u64,
        /// Entries in these tables.
        entries: u64,
        /// Bytes of these tables.
        bytes: u64,
        /// Time since the flush began.
        duration: Duration,
        /// Why it failed; `None` if it did not.
        error: Option<Error>,
    },
    /// A compaction begins to rewrite tables, or to move them down as they are.
    #[non_exhaustive]
    CompactionBegun {
        /// Several may run at the same time: the end of this one has the same number.
        number: u64,
        /// Name of the keyspace.
        keyspace: String,
        /// The level that it takes tables from.
        input_level: usize,
        /// The level that its tables come to.
        output_level: usize,
        /// Tables that it replaces, of both levels.
        tables: u64,
        /// Entries in these tables.
        entries: u64,
        /// Bytes of these tables.
        bytes: u64,
    },
    /// A compaction has ended.
    #[non_exhaustive]
    CompactionEnded {
        /// The number that it had when it began.
        number: u64,
        /// Name of the keyspace.
        keyspace: String,
        /// The level that it took tables from.
        input_level: usize,
        /// The level that its tables came to.
        output_level: usize,
        /// Tables that it wrote; 0 if it failed, moved tables, or if nothing stayed of them.
        tables: u64,
        /// Entries in the tables that it wrote.
        entries: u64,
        /// Bytes of the tables that it wrote.
        bytes: u64,
        /// Entries that it dropped: old versions, tombstones, expired and hidden entries.
        entries_dropped: u64,
        /// Time since the compaction began.
        duration: Duration,
        /// Why it failed; `None` if it did not.
        error: Option<Error>,
    },
    /// The manifest durably names a new table: of a flush, a compaction, a bulk load or a recovery.
    #[non_exhaustive]
    TableCreated {
        /// Name of the keyspace.
        keyspace: String,
        /// The level that the table is at, 0 to 6.
        level: usize,
        /// The path of the table's file.
        path: PathBuf,
        /// Entries in the table, tombstones included.
        entries: u64,
        /// Bytes of the file.
        bytes: u64,
    },
    /// The file of a table that nothing needs any more was removed.
    #[non_exhaustive]
    TableRemoved {
        /// The path that the file had.
        path: PathBuf,
        /// Bytes of the file.
        bytes: u64,
    },
    /// A new log takes the writes: memtables were switched, the log was long, or a bulk load was
    /// installed.
    #[non_exhaustive]
    LogSwitched {
        /// The path of the new log.
        path: PathBuf,
        /// Bytes of the log before it.
        old_bytes: u64,
        /// How long writers waited for it: for one record, or, if no log was made ahead of need,
        /// for a durable file.
        duration: Duration,
    },
    /// Writes stop or slow down.
    #[non_exhaustive]
    StallBegun {
        /// Why: `"memtable"` if memtables or logs wait for their flush, `"level0"` if level 0 of a
        /// keyspace is full, `"slowdown"` if flushes or compactions are behind, so that writes are
        /// delayed, the more the further they are behind.
        cause: &'static str,
    },
    /// Writes run at full speed again. A slowdown ends with the first write that finds the
    /// background work in time, or with the close.
    #[non_exhaustive]
    StallEnded {
        /// The cause of the [`StallBegun`](Event::StallBegun) that this ends.
        cause: &'static str,
        /// Time since the stall began.
        duration: Duration,
    },
    /// The first failure of a write, sync or job: from now on writes return
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    #[non_exhaustive]
    BackgroundError {
        /// The failure, with the file that it concerns.
        error: Error,
    },
    /// [`Db::resume`](crate::Db::resume) has made the database take writes again.
    #[non_exhaustive]
    Resumed {
        /// How long it took.
        duration: Duration,
    },
    /// The filter of a table was built and written.
    #[non_exhaustive]
    FilterBuilt {
        /// Name of the keyspace.
        keyspace: String,
        /// The file of the table, which is not durable yet.
        path: PathBuf,
        /// The layout, as [`FilterLayout`](crate::FilterLayout) prints it.
        layout: String,
        /// The policy that the table names.
        policy: String,
        /// Keys or prefixes that it was built from, dropped repeats not counted.
        entries: u64,
        /// Bytes of its blocks.
        bytes: u64,
        /// How long the last step took: from the collected hashes to the written filter.
        duration: Duration,
    },
    /// The filter of a table was found damaged. Lookups work without it, slower. Reported
    /// once for each table and opening.
    #[non_exhaustive]
    FilterDamaged {
        /// The file of the table.
        path: PathBuf,
        /// What is wrong, with its place.
        error: Error,
    },
    /// Saved settings ask for [`FilterPinning::All`](crate::FilterPinning::All), and this opening
    /// may pin no memory: `filter_pinned_share` or `block_cache_bytes` is 0. Filters are read
    /// through the cache. Reported once for each opening.
    #[non_exhaustive]
    FiltersUnpinned {
        /// Keyspaces with such settings.
        keyspaces: u64,
    },
    /// Events that were dropped here, because the listener was too slow.
    #[non_exhaustive]
    Missed {
        /// How many events were dropped.
        events: u64,
    },
}
