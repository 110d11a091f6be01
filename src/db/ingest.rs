//! Bulk loads: [`TableWriter`], and what [`Keyspace::ingest`] takes and returns.

use crate::base::error::Result;
use crate::base::expiry::{Expiry, clock_millis};
use crate::db::keyspace::Keyspace;
use crate::jobs::ingest::install::{Installed, install};
use crate::jobs::ingest::sort::LoadSorter;
use crate::jobs::ingest::tables::LoadTables;
use crate::jobs::rewrite::output::INDEX_BYTES_MAX;
use crate::options::access::WriteOptions;
use crate::state::keyspace::KeyspaceState;
use std::fmt;

/// What a bulk load did: of [`Keyspace::ingest`], [`Keyspace::ingest_unsorted`] and
/// [`TableWriter::finish`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IngestReport {
    /// Entries that were loaded.
    pub entries: u64,
    /// Tables that the entries became.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
    /// The sequence number of all entries: larger than that of every earlier write. 0 without
    /// entries.
    pub sequence: u64,
    /// The level of the tree that the tables are in.
    pub level: usize,
}

/// An entry of a bulk load: a key and a value, or a `Result` of them, as iterators of siftdb have.
/// An error ends the load, and nothing of it appears.
pub trait IngestEntry: sealed::Sealed {
    /// The key, up to 65,535 bytes.
    type Key: AsRef<[u8]>;
    /// The value, up to 1 GiB.
    type Value: AsRef<[u8]>;

    /// The key and the value.
    ///
    /// # Errors
    /// Key and value, or the error of the source.
    fn into_entry(self) -> Result<(Self::Key, Self::Value)>;
}

mod sealed {
    use crate::base::error::Result;

    /// Implemented here only.
    pub trait Sealed {}
    impl<K, V> Sealed for (K, V) {}
    impl<K, V> Sealed for Result<(K, V)> {}
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> IngestEntry for (K, V) {
    type Key = K;
    type Value = V;

    fn into_entry(self) -> Result<(K, V)> {
        Ok(self)
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> IngestEntry for Result<(K, V)> {
    type Key = K;
    type Value = V;

    fn into_entry(self) -> Result<(K, V)> {
        self
    }
}

/// Writes the tables of a bulk load, entry by entry; see [`Keyspace::table_writer`].
///
/// Nothing is in the database before [`finish`](TableWriter::finish) returns. Dropped before that,
/// the writer removes its files; if the process dies, the next opening that writes removes them.
/// After an error all further calls return the same error.
///
/// It keeps the database open, as a handle does. After [`Db::close`](crate::Db::close) its calls
/// return `Closed`, and the directory stays locked until it is dropped, or until
/// [`Db::close_now`](crate::Db::close_now).
///
/// ```
/// use siftdb::{Db, WriteOptions};
/// use std::time::Duration;
///
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = Db::open(directory.path().join("db"))?;
/// let mut load = db.table_writer()?;
/// for line in "ada 1815\nalan 1912\ngrace 1906".lines() {
///     let Some((name, year)) = line.split_once(' ') else { return Ok(()) }; // nothing appears
///     load.put(name, year)?;
/// }
/// let hour = WriteOptions::new().expire_after(Duration::from_secs(3600));
/// load.put_with("guest", "today", &hour)?;
/// let report = load.finish()?;
/// assert_eq!(report.entries, 4);
/// assert_eq!(db.get("grace")?.unwrap(), "1906");
/// # db.close()
/// # }
/// ```
#[must_use = "nothing is loaded before `finish`"]
pub struct TableWriter {
    // Before the keyspace: its files are removed while the database is open.
    tables: LoadTables,
    keyspace: Keyspace,
}

/// One line.
impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter")
            .field("keyspace", &self.keyspace.name())
            .field("entries", &self.tables.entries)
            .finish_non_exhaustive()
    }
}

impl TableWriter {
    fn new(keyspace: &Keyspace) -> Result<Self> {
        let tables = LoadTables::new(keyspace.engine(), &keyspace.state)?;
        Ok(TableWriter { tables, keyspace: keyspace.clone() })
    }

    /// Adds an entry. Its key must be above the last one.
    ///
    /// # Errors
    /// [`Error::KeyOrder`](crate::Error::KeyOrder) if it is not; `InvalidArgument` for a key over
    /// 65,535 bytes or a value over 1 GiB; the failure of a file, such as a full disk, which leaves
    /// the database as it is; `Closed`; `KeyspaceDropped`; `ReadOnly`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &WriteOptions::new())
    }

    /// As [`TableWriter::put`], with options, of which only the expiry matters: a load is always
    /// durable. The time of an entry is counted from this call.
    ///
    /// # Errors
    /// As for [`TableWriter::put`].
    pub fn put_with(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        let expires_at = expires_at(&self.keyspace.state, options.expiry);
        let expires_at = expires_at.map_err(|error| self.tables.fail(error))?;
        self.tables.add(key.as_ref(), value.as_ref(), expires_at)
    }

    /// Number of entries that were put so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.tables.entries
    }

    /// Makes all entries durable and visible, in one step. Without entries it does nothing.
    ///
    /// # Errors
    /// As for [`TableWriter::put`], and nothing appears. If a log, a flush or the manifest fails,
    /// the database takes no more writes; then the load is not visible, and after the next opening
    /// it is there whole or not at all.
    pub fn finish(mut self) -> Result<IngestReport> {
        self.tables.finish()?;
        if self.tables.entries == 0 {
            return Ok(IngestReport::default());
        }
        let (engine, state) = (self.keyspace.engine(), &self.keyspace.state);
        let Installed { sequence, level } = install(engine, state, &mut self.tables)?;
        let (entries, bytes) = (self.tables.entries, self.tables.bytes());
        let tables = self.tables.finished.len() as u64;
        Ok(IngestReport { entries, tables, bytes, sequence, level })
    }
}

/// When an entry that is loaded now expires: as the call says, or the keyspace.
fn expires_at(keyspace: &KeyspaceState, expiry: Option<Expiry>) -> Result<Option<u64>> {
    let Some(expiry) = expiry.or_else(|| keyspace.expiry()) else { return Ok(None) };
    expiry.check()?;
    Ok(expiry.expires_at(clock_millis(keyspace.served.context.env.now())))
}

impl Keyspace {
    /// Loads many entries: they become tables directly, without log and memtable. Keys must come
    /// in the order of their bytes, each once. The load appears as a whole when this returns, is
    /// durable then, and is newer than everything written before; what is not loaded stays.
    ///
    /// Entries are pairs of a key and a value, or `Result`s of them, as iterators of siftdb yield.
    /// [`Keyspace::table_writer`] is for sources with errors of their own, and for entries that
    /// expire at times of their own. Entries expire as [`Keyspace::put`] would have it.
    ///
    /// Others read and write at the same time. For a moment at the end writers wait: while the load
    /// is put into the tree. If keys of the load were written in the meantime, these writes are
    /// flushed before.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// let square = |n: u32| (n.to_be_bytes(), u64::from(n).pow(2).to_le_bytes());
    /// let report = db.ingest((0..100_000).map(square))?;
    /// assert_eq!(report.entries, 100_000);
    /// let copy = db.keyspace("copy")?;
    /// copy.ingest(db.range(7u32.to_be_bytes()..))?;
    /// assert_eq!(copy.iter().count(), 99_993);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`TableWriter::put`] and [`TableWriter::finish`], and the first one of `entries`:
    /// nothing appears.
    pub fn ingest<E: IngestEntry>(
        &self,
        entries: impl IntoIterator<Item = E>,
    ) -> Result<IngestReport> {
        let mut writer = TableWriter::new(self)?;
        for entry in entries {
            let (key, value) = entry.into_entry()?;
            writer.put(key, value)?;
        }
        writer.finish()
    }

    /// As [`Keyspace::ingest`], for entries in any order. Of the entries of one key the last one
    /// counts.
    ///
    /// They are sorted in memory up to [`Options::write_buffer_bytes`](crate::Options), and beyond
    /// that in files of the database's directory, which take as much space as the entries. At most
    /// 128 of these are merged at once: a load of more write buffers writes some entries again.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// db.ingest_unsorted([("b", "1"), ("a", "2"), ("b", "3")])?;
    /// assert_eq!(db.first()?.unwrap().0, "a");
    /// assert_eq!(db.get("b")?.unwrap(), "3");
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::ingest`], but the order is free.
    pub fn ingest_unsorted<E: IngestEntry>(
        &self,
        entries: impl IntoIterator<Item = E>,
    ) -> Result<IngestReport> {
        let engine = self.engine();
        // Before the source is read: a refusal should not wait for it.
        let mut writer = TableWriter::new(self)?;
        let bytes_max = engine.context.options.write_buffer_bytes;
        let mut sorter = LoadSorter::new(engine, bytes_max, INDEX_BYTES_MAX)?;
        for entry in entries {
            let (key, value) = entry.into_entry()?;
            sorter.add(key.as_ref(), value.as_ref())?;
        }
        sorter.finish(|key, value| writer.put(key, value))?;
        // Its runs take space that the next steps may need.
        drop(sorter);
        writer.finish()
    }

    /// A writer of a bulk load, as [`Keyspace::ingest`] is one, that takes entry by entry.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `OpenedReadOnly`, `KeyspaceDropped`.
    pub fn table_writer(&self) -> Result<TableWriter> {
        TableWriter::new(self)
    }
}
