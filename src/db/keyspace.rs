//! [`Keyspace`]: a handle of one keyspace, with everything that reads, writes and maintains it.
//!
//! It keeps the database open like a [`Db`](crate::Db), which derefs to its keyspace `default`.
//! Each method is one call into the room that does the work.

use crate::admin::filter_report::{self, FilterReport};
use crate::admin::manual;
use crate::admin::stats_report;
use crate::admin::table_list::{self, TableInfo};
use crate::admin::verify::{self, VerifyProgress, VerifyReport};
use crate::base::error::Result;
use crate::base::expiry::ReadClock;
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::stats::report::Stats;
use crate::base::sync::Arc;
use crate::base::value::{Key, Value};
use crate::base::write_batch::WriteBatch;
use crate::db::handle::Handle;
use crate::db::keyspace_batch::{KeyspaceBatch, put_with};
use crate::db::read_methods::scan_methods;
use crate::db::snapshot::Snapshot;
use crate::jobs::compact::manual::FilterRebuild;
use crate::options::access::{CompactRangeOptions, ReadOptions, WriteOptions};
use crate::options::keyspace::KeyspaceOptions;
use crate::read::cursor::Cursor;
use crate::read::estimate::{RangeEstimate, estimate};
use crate::read::explain::{Explain, explain};
use crate::read::explain_range::explain_range;
use crate::read::iter::Iter;
use crate::read::multi_get;
use crate::read::point;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::write::commit;
use std::fmt;

/// A keyspace: keys and values of their own, in a tree of their own with settings of its own.
///
/// Keyspaces of a database share its log, its cache and its snapshots, so a [`WriteBatch`] writes
/// to several of them as one step, and a [`Snapshot`] sees all of them at one moment. Each has the
/// filters, block sizes and compression that fit its data. Cheap to clone; every method takes
/// `&self` and may be called from any thread.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let db = siftdb::Db::open(directory.path().join("shop.sift"))?;
/// let (orders, by_customer) = (db.keyspace("orders")?, db.keyspace("orders by customer")?);
/// let mut batch = siftdb::WriteBatch::new();
/// batch.in_keyspace(&orders).put("1001", "a lamp");
/// batch.in_keyspace(&by_customer).put("ada/1001", "");
/// db.write(batch)?;
/// assert_eq!(orders.get("1001")?.unwrap(), "a lamp");
/// # db.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) state: Arc<KeyspaceState>,
}

/// One line, with directory and name.
impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace")
            .field("directory", &self.engine().context.directory)
            .field("name", &self.state.name)
            .finish_non_exhaustive()
    }
}

impl Keyspace {
    /// A handle of the keyspace `state`.
    pub(super) fn new(handle: Arc<Handle>, state: Arc<KeyspaceState>) -> Self {
        Keyspace { handle, state }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// The name, 1 to 255 bytes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its number, which no other keyspace of the database ever has. `default` has 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.state.id
    }

    /// The settings that it uses: those that were named or saved. Others have their built-in
    /// values.
    pub fn settings(&self) -> KeyspaceOptions {
        self.state.options.load().data.clone()
    }

    /// The value of `key`, or `None` if there is none.
    ///
    /// # Errors
    /// An unreadable or damaged file on the way of the key, `Closed`, or `KeyspaceDropped`. Never
    /// "not found" for a key that is there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::new())
    }

    /// As [`Keyspace::get`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    #[inline]
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        point::timed_get(&self.state, key.as_ref(), None, options)
    }

    /// The values of many keys, in the order of `keys`, all as of one moment: no write comes
    /// between two of them, and a batch is visible as a whole or not at all. Keys may come in any
    /// order and repeat.
    ///
    /// This costs less than single lookups: cache misses overlap, and a block that several keys
    /// need is fetched once. On Linux the disk is asked for the missing blocks of a level, up to
    /// 8 MiB, before the first of them is read, so it works on them at the same time. No thread is
    /// started. In [`Keyspace::stats`] each key counts as a lookup, and each fetch of a block
    /// counts once.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("ada", "1815")?;
    /// let years = db.multi_get(["grace", "ada"])?;
    /// assert_eq!(years[0], None);
    /// assert_eq!(years[1].as_deref(), Some(&b"1815"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; the first error on the way of any key is the answer for all.
    pub fn multi_get(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::new())
    }

    /// As [`Keyspace::multi_get`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::multi_get`].
    pub fn multi_get_with(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        multi_get::multi_get(&self.state, keys, None, options, &ReadClock::default())
    }

    /// False only if `key` certainly has no value. Reads no file: tables whose filter is not
    /// pinned count as "may contain".
    ///
    /// # Errors
    /// `Closed`; `KeyspaceDropped`.
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        point::may_contain(&self.state, key.as_ref())
    }

    /// Looks `key` up and says what that touched, table by table.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explain> {
        self.explain_with(key, &ReadOptions::new())
    }

    /// As [`Keyspace::explain`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn explain_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Explain> {
        explain(&self.state, key.as_ref(), None, options)
    }

    /// Says what a scan of `range` touches until its first entry, table by table: which tables
    /// their filters exclude, and which are entered.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn explain_range(&self, range: impl KeyRange) -> Result<Explain> {
        self.explain_range_with(range, &ReadOptions::new())
    }

    /// As [`Keyspace::explain_range`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn explain_range_with(
        &self,
        range: impl KeyRange,
        options: &ReadOptions,
    ) -> Result<Explain> {
        explain_range(&self.state, range.into_bounds(), options)
    }

    /// Writes `value` under `key`. Acknowledged writes survive the death of the process.
    ///
    /// # Errors
    /// `InvalidArgument` for a key over 65,535 bytes or a value over 1 GiB; `Closed`;
    /// `KeyspaceDropped`; `ReadOnly` after an earlier failure; or the failure of this write, after
    /// which the database is read-only.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &WriteOptions::new())
    }

    /// As [`Keyspace::put`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.in_keyspace(self).put(key, value);
        commit::write(self.engine(), batch, options)
    }

    /// Deletes `key`, which need not exist.
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, &WriteOptions::new())
    }

    /// As [`Keyspace::delete`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.in_keyspace(self).delete(key);
        commit::write(self.engine(), batch, options)
    }

    /// Deletes all keys of `range`. It costs the same however many there are: no key is read, and
    /// one entry is written. An empty range writes nothing.
    ///
    /// Snapshots that were taken before still see the keys. Tables whose keys are all deleted
    /// are removed unread as soon as no snapshot needs them and the deletion is durable; the rest
    /// of the space comes back with compactions.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// db.put("2026-01-01", "new year")?;
    /// db.put("2026-11-22", "today")?;
    /// db.delete_range(.."2026-11")?;
    /// assert_eq!(db.first()?.unwrap().0, "2026-11-22");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.delete_range_with(range, &WriteOptions::new())
    }

    /// As [`Keyspace::delete_range`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn delete_range_with(&self, range: impl KeyRange, options: &WriteOptions) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.in_keyspace(self).delete_range(range);
        commit::write(self.engine(), batch, options)
    }

    /// Deletes all keys that start with `prefix`; an empty one deletes all keys. Otherwise as
    /// [`Keyspace::delete_range`].
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range(KeyBounds::of_prefix(prefix.as_ref()))
    }

    scan_methods!("of the keyspace as it is now");

    /// As [`Keyspace::range`], with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        Iter::new(&self.state, None, range.into_bounds(), options)
    }

    /// The database as it is now, to be read later: this keyspace, and by
    /// [`Snapshot::in_keyspace`] any other.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.engine(), &self.state)
    }

    /// Writes the memtables of this keyspace as tables and waits until they are durable.
    /// `Db::flush` does so for all keyspaces.
    ///
    /// # Errors
    /// As for [`Keyspace::put`], and the failure of the flush.
    pub fn flush(&self) -> Result<()> {
        manual::flush_keyspace(self.engine(), &self.state)
    }

    /// Compacts all tables of this keyspace with keys of `range` down, level by level, and waits.
    /// This frees the space of deleted and overwritten entries that no snapshot needs, and joins
    /// neighbors that fit one table. While tables collect in level 0 of a keyspace, its steps
    /// alternate with the compactions that are due, so that no writer waits for its end.
    ///
    /// A table that shares no keys with another, has no such entries and has no small neighbor may
    /// be moved down, or stay, without being read. [`Keyspace::compact_range_with`] can rewrite all
    /// tables.
    ///
    /// # Errors
    /// As for [`Keyspace::flush`], and the failure of the compaction.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.compact_range_with(range, &CompactRangeOptions::new())
    }

    /// As [`Keyspace::compact_range`], with options.
    ///
    /// # Errors
    /// As for [`Keyspace::compact_range`].
    pub fn compact_range_with(
        &self,
        range: impl KeyRange,
        options: &CompactRangeOptions,
    ) -> Result<()> {
        manual::compact_range(self.engine(), &self.state, &range.into_bounds(), options)
    }

    /// Rewrites the tables of this keyspace whose filter is damaged or differs from its settings,
    /// or all tables, and waits. Returns how many tables there were to rewrite. Other threads may
    /// read and write at the same time. Compactions that are due alternate with the rebuild, so
    /// writers do not have to wait.
    ///
    /// A table is rewritten at its level and gets the filter of that level. Tables of level 0 go
    /// down to level 1, together with the tables that share keys with them. If a compaction moves a
    /// table without reading it during this call, the table keeps the filter of its old level.
    /// After a crash, call this again for the rest. If there is nothing to do, nothing is written.
    ///
    /// # Errors
    /// As for [`Keyspace::compact_range`]: a failed compaction makes the database read-only.
    pub fn rebuild_filters(&self, which: FilterRebuild) -> Result<u64> {
        manual::rebuild_filters(self.engine(), &self.state, which)
    }

    /// The filters of all tables of this keyspace: what they are, what its settings ask for, and
    /// what the counters say. The command `siftdb filter stats` lists problems.
    /// This reads no filter, so it shows damage only in filters that were read before.
    /// [`Keyspace::check_filters`] reads them all.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("ada", "1815")?;
    /// db.flush()?;
    /// let report = db.filter_report();
    /// assert_eq!(report.groups(0)[0].like.encoding, "fast-local-bloom");
    /// assert!(report.tables.iter().all(|table| table.is_asked && !table.differs));
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn filter_report(&self) -> FilterReport {
        filter_report::filter_report(self.engine(), &self.state)
    }

    /// [`Keyspace::filter_report`] after reading the filter of every table, past the cache, to find
    /// damaged ones. Nothing is counted.
    ///
    /// # Errors
    /// `Closed`; `Io` if a table cannot be opened. Damage is not an error here.
    pub fn check_filters(&self) -> Result<FilterReport> {
        filter_report::check_filters(self.engine(), &self.state)
    }

    /// [`Db::verify`](crate::Db::verify) of the tables of this keyspace alone, and of manifest and
    /// logs, which all keyspaces share.
    ///
    /// # Errors
    /// `Closed`; `KeyspaceDropped`; damage is no error here.
    pub fn verify(&self, mut progress: impl FnMut(&VerifyProgress)) -> Result<VerifyReport> {
        self.state.check_there()?;
        verify::verify(self.engine(), Some(&self.state.name), &mut progress)
    }

    /// About how many entries and bytes the range holds. Reads no data block, only data indexes
    /// that are not in memory. In each table that the range cuts it is off by up to a block at each
    /// end. Of a memtable that has a thousand entries or more in the range, half is assumed to be
    /// in it.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("ada", "1815")?;
    /// db.put("bob", "1912")?;
    /// assert_eq!(db.estimate_range("a".."b")?.entries, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn estimate_range(&self, range: impl KeyRange) -> Result<RangeEstimate> {
        estimate(&self.state, &range.into_bounds())
    }

    /// The tables of this keyspace, level by level: level 0 newest first, others by key. Reads no
    /// file.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        table_list::tables(&self.state)
    }

    /// What reads of this keyspace counted, and what it holds. Counters of the database, such as
    /// those of its log and its jobs, are 0: `Db::stats` has them. Reads no file.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats_report::keyspace_stats(self.engine(), &self.state)
    }
}

impl Snapshot {
    /// The same moment in another keyspace. Its reads return `InvalidArgument` if the keyspace is
    /// of another database, and `KeyspaceDropped` if it was dropped before the snapshot was taken.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.put("ada", "1852")?;
    /// assert_eq!(snapshot.in_keyspace(&users).get("ada")?.unwrap(), "1815");
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_keyspace(&self, keyspace: &Keyspace) -> Self {
        self.moved_to(keyspace.engine(), &keyspace.state)
    }
}

impl WriteBatch {
    /// The part of the batch that writes to `keyspace`. Without it, entries go to `default`.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// let users = db.keyspace("users")?;
    /// let mut batch = siftdb::WriteBatch::new();
    /// batch.in_keyspace(&users).put("ada", "1815").delete("bob");
    /// batch.put("users changed", "yes");
    /// db.write(batch)
    /// # }
    /// ```
    pub fn in_keyspace(&mut self, keyspace: &Keyspace) -> KeyspaceBatch<'_> {
        let tag = (keyspace.engine().context.instance, keyspace.state.id);
        KeyspaceBatch { batch: self, to: Some(tag) }
    }

    /// Creates the keyspace `name` when the batch is written, and in the same step: after a crash
    /// both are there or neither is. Returns the part of the batch that writes to it; a second call
    /// with the same name and settings returns it again.
    ///
    /// So data can move to another keyspace. Other writes wait while the batch becomes tables, and
    /// it is durable when its call returns. Like every batch it is in memory until then. A
    /// follower has its entries, but they are in no log: for each keyspace
    /// [`Follower::changes`](crate::Follower::changes) and watches have a
    /// [`ChangedEntry::Load`](crate::ChangedEntry::Load).
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// use siftdb::{KeyspaceOptions, WriteBatch};
    ///
    /// let old = db.keyspace("users")?;
    /// old.put("ada", "1815")?;
    ///
    /// let mut batch = WriteBatch::new();
    /// let mut new = batch.create_keyspace("users v2", &KeyspaceOptions::new());
    /// for entry in old.iter() {
    ///     let (name, year) = entry?;
    ///     new.put(name, format!("born {}", String::from_utf8_lossy(&year)));
    /// }
    /// batch.drop_keyspace("users").put("version", "2");
    /// db.write(batch)?;
    /// assert_eq!(db.keyspaces(), ["default", "users v2"]);
    /// assert_eq!(db.keyspace("users v2")?.get("ada")?.unwrap(), "born 1815");
    /// # db.close()
    /// # }
    /// ```
    ///
    /// The write is refused if the keyspace is there already, or if the name or a setting cannot
    /// be. A compaction filter is not saved, so it is refused here: [`Db::keyspace_with`] takes it.
    /// A custom filter policy or prefix extractor must be registered with the database.
    ///
    /// [`Db::keyspace_with`]: crate::Db::keyspace_with
    pub fn create_keyspace(&mut self, name: &str, options: &KeyspaceOptions) -> KeyspaceBatch<'_> {
        let batch = self.create_named(name, &options.encoded());
        if options.compaction_filter.is_some() {
            batch.refuse(format!("a batch that creates {name:?} with a compaction filter"));
        }
        KeyspaceBatch { batch, to: None }
    }

    /// Drops the keyspace `name` when the batch is written, and in the same step: see
    /// [`WriteBatch::create_keyspace`]. The write is refused if the keyspace is not there, if it is
    /// `default`, or if the batch writes to it or creates it.
    pub fn drop_keyspace(&mut self, name: &str) -> &mut Self {
        self.drop_named(name);
        self
    }

    /// As [`WriteBatch::put`], with options of this entry. Its expiry goes before that of
    /// [`Db::write_with`](crate::Db::write_with). A duration begins when the batch is written.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// use siftdb::{WriteBatch, WriteOptions};
    /// use std::time::Duration;
    ///
    /// let hour = WriteOptions::new().expire_after(Duration::from_secs(3600));
    /// let mut batch = WriteBatch::new();
    /// batch.put("user/ada", "1815").put_with("session/ada", "c3a1", &hour);
    /// db.write(batch)
    /// # }
    /// ```
    pub fn put_with(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> &mut Self {
        put_with(self, None, key.as_ref(), value.as_ref(), options);
        self
    }
}
