//! [`ReadOptions`], [`WriteOptions`] and [`CompactRangeOptions`]: how a single read, write or
//! compaction is done.
//!
//! They are arguments of the methods of `Keyspace` and `Db` that end in `_with`; other methods use
//! the defaults. Each setter takes and returns the value and is `const`, so a program may keep its
//! options in constants. They change the cost of a read or write, what a power loss may take, and
//! when what was written expires. `database` has the settings of a whole database, `keyspace` those
//! of one keyspace.

use crate::base::expiry::Expiry;
use crate::table::reader::TableReadOptions;
use std::time::{Duration, SystemTime};

/// How one read is done.
#[derive(Clone, Debug)]
#[must_use = "read options do nothing until they are given to a read"]
pub struct ReadOptions {
    pub(crate) tables: TableReadOptions,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions::new()
    }
}

impl ReadOptions {
    /// Filters on, blocks are read where needed and kept in the cache.
    pub const fn new() -> Self {
        ReadOptions { tables: TableReadOptions::new() }
    }

    /// Ask filters before tables. Default: true. If off, the same files give the same answers
    /// without any filter, for comparisons.
    pub const fn use_filters(mut self, yes: bool) -> Self {
        self.tables.use_filters = yes;
        self
    }

    /// Keep the blocks that this read loads in the cache. Default: true. Turn it off for a large
    /// scan, so that other blocks stay cached. What a lookup loads of filters and indexes stays in
    /// any case, since the next lookup needs it.
    pub const fn fill_cache(mut self, yes: bool) -> Self {
        self.tables.fill_cache = yes;
        self
    }

    /// Read no file: fail with [`Error::WouldRead`](crate::Error::WouldRead) where a block is
    /// needed that is not in memory. Default: false. RocksDB's name is `kBlockCacheTier`.
    ///
    /// It is for threads that must not wait for a disk, such as those of an async runtime. They
    /// read without I/O first. If that fails, a thread that may wait reads again. An answer equals
    /// that of a normal read: it comes from memtables, filters and cached blocks. A filter that is
    /// not in memory is not asked. A batch fails if one of its keys does, and a scan or cursor at
    /// the first block that it lacks. A table that is mapped (`MapEnv`) is in memory, although the
    /// system may read a page of it. Nothing else of a transaction is limited: its commit may read.
    ///
    /// ```
    /// use siftdb::{Error, ReadOptions};
    ///
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// const IN_MEMORY: ReadOptions = ReadOptions::new().in_memory_only(true);
    /// db.put("ada", "1815")?;
    /// db.flush()?;
    /// // The block of the key is only in the new table.
    /// assert!(matches!(db.get_with("ada", &IN_MEMORY), Err(Error::WouldRead { .. })));
    /// // A filter says that this key is absent.
    /// assert_eq!(db.get_with("alan", &IN_MEMORY)?, None);
    ///
    /// assert_eq!(db.get("ada")?.unwrap(), "1815");
    /// assert_eq!(db.get_with("ada", &IN_MEMORY)?.unwrap(), "1815");
    /// # Ok(())
    /// # }
    /// ```
    pub const fn in_memory_only(mut self, yes: bool) -> Self {
        self.tables.in_memory_only = yes;
        self
    }
}

/// How one write is done.
#[derive(Clone, Debug, Default)]
#[must_use = "write options do nothing until they are given to a write"]
pub struct WriteOptions {
    pub(crate) sync: bool,
    pub(crate) expiry: Option<Expiry>,
}

impl WriteOptions {
    /// The write survives the death of the process, but may be lost at a power loss.
    pub const fn new() -> Self {
        WriteOptions { sync: false, expiry: None }
    }

    /// Wait until the write, and every write before it in any keyspace, survives a power loss.
    /// Default: false. This costs a sync of the log, which concurrent writers share. An entry of a
    /// batch or transaction with this option asks for a sync of all of it.
    pub const fn sync(mut self, yes: bool) -> Self {
        self.sync = yes;
        self
    }

    /// An entry that this call puts is gone for every read that starts at `time` or later, instead
    /// of when the setting of its keyspace says. A time in the past makes it gone at once: then
    /// older values of the keys are hidden, as by a deletion. Times are counted in milliseconds. A
    /// time beyond 64 bits of them is refused. Deletions of the call are not concerned.
    ///
    /// ```
    /// use siftdb::WriteOptions;
    /// use std::time::{Duration, SystemTime};
    ///
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// let soon = SystemTime::now() + Duration::from_secs(3600);
    /// db.put_with("token", "c3a1", &WriteOptions::new().expire_at(soon))?;
    /// assert_eq!(db.get("token")?.unwrap(), "c3a1");
    ///
    /// let past = SystemTime::UNIX_EPOCH;
    /// db.put_with("token", "c3a2", &WriteOptions::new().expire_at(past))?;
    /// assert_eq!(db.get("token")?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn expire_at(mut self, time: SystemTime) -> Self {
        self.expiry = Some(Expiry::At(time));
        self
    }

    /// As [`WriteOptions::expire_at`], for the time that is `duration` after the write, by the
    /// clock of the [`Env`](crate::env::Env). Zero makes it gone at once. A time beyond the range
    /// never comes: `Duration::MAX` keeps what is put to a keyspace that expires.
    pub const fn expire_after(mut self, duration: Duration) -> Self {
        self.expiry = Some(Expiry::After(duration));
        self
    }
}

/// How one [`Keyspace::compact_range_with`](crate::Keyspace::compact_range_with) is done.
#[derive(Clone, Debug, Default)]
#[must_use = "compaction options do nothing until they are given to a compaction"]
pub struct CompactRangeOptions {
    pub(crate) force: bool,
}

impl CompactRangeOptions {
    /// Tables are rewritten only if that frees space or makes fewer tables.
    pub const fn new() -> Self {
        CompactRangeOptions { force: false }
    }

    /// Rewrite every table of the range instead of moving any. Default: false. Use it to bring new
    /// settings (compression, block sizes, filters) to all tables of the keyspace, or to read all
    /// its data once.
    pub const fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }
}
