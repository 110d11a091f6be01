//! The tables of one bulk load while they are written.
//!
//! Legal calls: `add* finish`, then `install::install`. Every entry has sequence 0 in its table;
//! the manifest says the sequence of all of them. No table is named before the load is installed.
//! Dropped before that, the tables are removed; after a crash the next session removes them.
//!
//! After an error all later calls answer the same error, so a program that ignores one cannot
//! install a part of its load.

use crate::base::error::{Error, Result};
use crate::base::expiry::put_expiring;
use crate::base::filename::FileName;
use crate::base::key::{
    KEY_BYTES_MAX, KeyspaceLabel, VALUE_BYTES_MAX, ValueKind, put_internal_key,
};
use crate::base::sync::{Arc, Ordering};
use crate::env::directory_lock::DirectoryLock;
use crate::jobs::compact::filter_budget::{IngestedFilters, ingest_filter};
use crate::jobs::compact::output::{INDEX_BYTES_MAX, new_table_id};
use crate::jobs::ingest::level::deepest_level;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::state::shared::Shared;
use crate::table::builder::TableBuilder;
use crate::tree::file_meta::FileMeta;
use crate::tree::overlap::KeySpan;
use std::ops::Bound;
use std::path::PathBuf;

/// About how large an entry is, before there are any.
const ENTRY_BYTES_GUESS: u64 = 128;

/// Bytes of a table between two checks of the process.
const CHECK_BYTES: u64 = 4 << 10;

/// The tables of one load.
pub(crate) struct LoadTables {
    shared: Arc<Shared>,
    keyspace: Arc<KeyspaceState>,
    open: Option<OpenTable>,
    finished: Vec<FileMeta>,
    filters: IngestedFilters,
    /// Files to remove unless the load is installed.
    provisional: Vec<PathBuf>,
    entries: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// The size of the open table when the process was last checked.
    checked_bytes: u64,
    /// The first error.
    failed: Option<Error>,
    internal_key: Vec<u8>,
    stored: Vec<u8>,
    /// Keeps the directory locked while there are files to remove; the last field.
    _lock: Arc<DirectoryLock>,
}

struct OpenTable {
    builder: TableBuilder,
    number: u64,
}

impl LoadTables {
    /// A load without entries. It creates no file.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `OpenedReadOnly`, `Forked`, `KeyspaceDropped`.
    pub(crate) fn new(shared: &Arc<Shared>, keyspace: &Arc<KeyspaceState>) -> Result<Self> {
        shared.process.check()?;
        shared.check_writable()?;
        check_there(keyspace)?;
        Ok(LoadTables {
            shared: Arc::clone(shared),
            keyspace: Arc::clone(keyspace),
            open: None,
            finished: Vec::new(),
            filters: IngestedFilters::default(),
            provisional: Vec::new(),
            entries: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            checked_bytes: 0,
            failed: None,
            internal_key: Vec::new(),
            stored: Vec::new(),
            _lock: shared.hold()?,
        })
    }

    /// Entries so far.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of the finished tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.finished.iter().map(|meta| meta.bytes).sum()
    }

    /// The finished tables, by key.
    pub(crate) fn finished(&self) -> &[FileMeta] {
        &self.finished
    }

    /// Adds an entry, which expires at a time in milliseconds since the epoch if one is given.
    ///
    /// # Errors
    /// `KeyOrder` for a key that is not above the last one; `InvalidArgument` for one that is too
    /// large; the failure of a file; `Closed`, `ReadOnly`, `Forked`, `KeyspaceDropped`.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<()> {
        let added = self.check_going().and_then(|()| self.try_add(key, value, expires_at));
        added.map_err(|error| self.fail(error))
    }

    fn try_add(&mut self, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<()> {
        if self.entries > 0 && key <= &self.last_key[..] {
            let (entry, key, previous) = (self.entries + 1, key.to_vec(), self.last_key.clone());
            return Err(Error::KeyOrder { entry, key, previous });
        }
        check_sizes(self.entries + 1, key, value)?;
        // A forked child must not write to the file of its parent. A system call for each entry
        // would take longer than all else, so it is one for each few kilobytes.
        let file_bytes = self.open.as_ref().map_or(0, |open| open.builder.file_bytes());
        if file_bytes >= self.checked_bytes + CHECK_BYTES || file_bytes == 0 {
            self.shared.process.check()?;
            self.checked_bytes = file_bytes;
        }
        if let Some(open) = &self.open
            && (open.builder.file_bytes() >= self.keyspace.options.load().table_bytes
                || open.builder.index_bytes() >= INDEX_BYTES_MAX)
        {
            self.end_table()?;
        }
        if self.open.is_none() {
            self.begin_table(key)?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        self.internal_key.clear();
        match expires_at {
            Some(expires_at) => {
                put_internal_key(&mut self.internal_key, key, 0, ValueKind::ExpiringPut);
                self.stored.clear();
                put_expiring(&mut self.stored, expires_at, value);
                open.builder.add(&self.internal_key, &self.stored)?;
            }
            None => {
                put_internal_key(&mut self.internal_key, key, 0, ValueKind::Put);
                open.builder.add(&self.internal_key, value)?;
            }
        }
        self.entries += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Ends the last table and makes the names of all of them durable (I5).
    ///
    /// # Errors
    /// As for [`LoadTables::add`].
    pub(crate) fn finish(&mut self) -> Result<()> {
        let finished = self.check_going().and_then(|()| self.try_finish());
        finished.map_err(|error| self.fail(error))
    }

    fn try_finish(&mut self) -> Result<()> {
        self.shared.process.check()?;
        self.end_table()?;
        check_there(&self.keyspace)?;
        if self.finished.is_empty() {
            return Ok(());
        }
        let directory = &self.shared.directory;
        let synced = self.shared.env.sync_dir(directory);
        synced.map_err(|error| Error::io("sync_dir", directory, error))
    }

    /// Leaves the files to the database: an edit names them, or may.
    pub(crate) fn keep(&mut self) {
        self.provisional.clear();
    }

    fn check_going(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.shared.check_writable(),
        }
    }

    /// Makes all later calls answer `error`, or the first one.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.failed.get_or_insert(error).clone()
    }

    fn begin_table(&mut self, key: &[u8]) -> Result<()> {
        check_there(&self.keyspace)?;
        if self.entries == 0 {
            self.first_key = key.to_vec();
            // Before the first number is taken: a session that begins removes older files.
            session::activate(&self.shared)?;
        }
        let options = self.keyspace.options.load_full();
        let version = Arc::clone(&self.keyspace.view.load().version);
        // Where the tables would go now. More may come, so it is a guess, and the filter is one
        // for that level.
        let span = KeySpan { start: &self.first_key, end: Bound::Included(key) };
        let bytes = self.bytes() + options.table_bytes;
        let compaction = options.compaction_options();
        let level = deepest_level(&version.files(), &[span], bytes, &compaction, None);
        let expected = match self.finished.last() {
            Some(last) => last.entries,
            None => options.table_bytes / ENTRY_BYTES_GUESS,
        };
        let filter = ingest_filter(&self.keyspace, &version, level, &self.filters, expected);
        let label = KeyspaceLabel { id: self.keyspace.id, name: self.keyspace.name.clone() };
        let mut table_options = options.table_options(label, level, filter);
        table_options.construction.budget = Some(Arc::clone(&self.shared.cache) as _);
        let number = self.shared.numbers.take_file_number();
        let path = FileName::Table(number).path(&self.shared.directory);
        // First: a call that fails may have created it.
        self.provisional.push(path.clone());
        let file = self.shared.env.create_new(&path);
        let file = file.map_err(|error| Error::io("create_new", &path, error))?;
        let mut builder = TableBuilder::new(file, path, new_table_id(), table_options);
        builder.mark_ingested();
        self.checked_bytes = 0;
        self.open = Some(OpenTable { builder, number });
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        let Some(OpenTable { builder, number }) = self.open.take() else { return Ok(()) };
        let summary = builder.finish()?;
        self.filters.entries += summary.properties.entries;
        self.filters.bytes += summary.properties.filter_bytes;
        self.finished.push(FileMeta::of_summary(number, &summary));
        Ok(())
    }
}

impl Drop for LoadTables {
    fn drop(&mut self) {
        // Close the file before its name is removed.
        self.open = None;
        if !self.shared.process.is_current() || self.provisional.is_empty() {
            return;
        }
        // Under this lock no change of the manifest can fail between the check and the removal.
        // After one nothing is removed (I8).
        let versions = self.shared.versions.lock();
        if versions.has_failed() {
            return;
        }
        for path in &self.provisional {
            // What cannot be removed, the next session removes: nothing names it.
            let _ = self.shared.env.remove(path);
        }
    }
}

/// Refuses what no table may have.
pub(super) fn check_sizes(entry: u64, key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "entry {entry} of a load has a key of {} bytes and a value of {}; at most {KEY_BYTES_MAX} \
         and {VALUE_BYTES_MAX} are allowed",
        key.len(),
        value.len()
    );
    Err(Error::InvalidArgument { what })
}

fn check_there(keyspace: &KeyspaceState) -> Result<()> {
    match keyspace.dropped_as.load(Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err(keyspace.dropped()),
    }
}
