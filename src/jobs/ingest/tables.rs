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
use crate::base::sync::Arc;
use crate::env::directory_lock::DirectoryLock;
use crate::jobs::compact::filter_budget::{IngestedFilters, ingest_filter};
use crate::jobs::ingest::level::deepest_level;
use crate::jobs::ingest::table_thread::TableThread;
use crate::jobs::rewrite::output::{INDEX_BYTES_MAX, new_table_id};
use crate::options::levels::TablePlace;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::table::builder::{TableBuilder, TableSummary};
use crate::tree::file_meta::FileMeta;
use crate::tree::new_tables::DurableTables;
use crate::tree::overlap::KeySpan;
use std::ops::Bound;
use std::path::PathBuf;
use std::thread;

/// About how large an entry is, before there are any.
const ENTRY_BYTES_GUESS: u64 = 128;

/// Bytes of entries between two checks of the process.
const CHECK_BYTES: usize = 4 << 10;

/// A table gets a thread when it has this many blocks: starting one takes as long as some of them.
const THREAD_BLOCKS: u64 = 16;

/// The most memory of full blocks that wait for the thread of a table.
const WAITING_BYTES_MAX: u64 = 1 << 20;

/// The same, as a part of a table.
const WAITING_PART_MAX: u64 = 16;

/// The tables of one load.
pub(crate) struct LoadTables {
    engine: Arc<Engine>,
    keyspace: Arc<KeyspaceState>,
    open: Option<OpenTable>,
    /// A table whose thread completes it, with its number.
    ending: Option<(u64, TableThread)>,
    /// The finished tables, by key.
    pub finished: Vec<FileMeta>,
    /// The finished tables once all are durable.
    pub durable: DurableTables,
    /// Bytes of the filters of the finished tables.
    pub filter_bytes: u64,
    /// About the bytes of all tables before the open one.
    ended_bytes: u64,
    /// Entries of the table before the open one.
    last_entries: Option<u64>,
    /// Whether a second processor is there for a thread.
    has_threads: bool,
    /// Files to remove unless the load is installed.
    provisional: Vec<FileName>,
    pub entries: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// Bytes of entries since the process was last checked.
    unchecked_bytes: usize,
    failed: Option<Error>,
    internal_key: Vec<u8>,
    stored: Vec<u8>,
    /// Keeps the directory locked while there are files to remove; the last field.
    _lock: Arc<DirectoryLock>,
}

struct OpenTable {
    // Before the builder: the thread ends first.
    thread: Option<TableThread>,
    builder: TableBuilder,
    number: u64,
    path: PathBuf,
    /// The size at which the table ends.
    bytes_max: u64,
}

impl LoadTables {
    /// A load without entries. It creates no file.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `OpenedReadOnly`, `Forked`, `KeyspaceDropped`.
    pub(crate) fn new(engine: &Arc<Engine>, keyspace: &Arc<KeyspaceState>) -> Result<Self> {
        engine.context.process.check()?;
        engine.check_writable()?;
        keyspace.check_there()?;
        Ok(LoadTables {
            engine: Arc::clone(engine),
            keyspace: Arc::clone(keyspace),
            open: None,
            ending: None,
            finished: Vec::new(),
            durable: DurableTables::default(),
            filter_bytes: 0,
            ended_bytes: 0,
            last_entries: None,
            has_threads: true,
            provisional: Vec::new(),
            entries: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            unchecked_bytes: 0,
            failed: None,
            internal_key: Vec::new(),
            stored: Vec::new(),
            _lock: engine.catalog.hold()?,
        })
    }

    /// Bytes of the finished tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.finished.iter().map(|meta| meta.bytes).sum()
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
        self.unchecked_bytes += key.len() + value.len();
        if self.unchecked_bytes >= CHECK_BYTES || self.entries == 0 {
            self.engine.context.process.check()?;
            self.unchecked_bytes = 0;
        }
        if let Some(open) = &self.open
            && (open.builder.file_bytes() >= open.bytes_max
                || open.builder.index_bytes() >= INDEX_BYTES_MAX
                || open.builder.filter_is_too_large())
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
        key.clone_into(&mut self.last_key);
        self.write_beside()
    }

    /// Gives full blocks of a large table to its thread.
    fn write_beside(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.builder.detached().are_enough() {
            // A forked child does not have the thread.
            self.engine.context.process.check()?;
            if let Some(thread) = &mut open.thread {
                let bytes_max = WAITING_BYTES_MAX.min(open.bytes_max / WAITING_PART_MAX);
                thread.write(&mut open.builder, bytes_max)?;
            }
        } else if self.has_threads
            && open.thread.is_none()
            && open.builder.properties.data_blocks >= THREAD_BLOCKS
        {
            self.has_threads = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
            if self.has_threads {
                open.thread = TableThread::start(&mut open.builder, &open.path);
                self.has_threads = open.thread.is_some();
            }
        }
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
        self.engine.context.process.check()?;
        self.end_table()?;
        self.join_ending()?;
        self.keyspace.check_there()?;
        let Context { env, directory, .. } = &*self.engine.context;
        self.durable = DurableTables::sync(&**env, directory, self.finished.clone())?;
        Ok(())
    }

    /// Their spans of keys.
    pub(crate) fn spans(&self) -> Vec<KeySpan<'_>> {
        self.finished.iter().map(FileMeta::span).collect()
    }

    /// Leaves the files to the database: an edit names them, or may.
    pub(crate) fn keep(&mut self) {
        self.provisional.clear();
    }

    fn check_going(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.engine.check_writable(),
        }
    }

    /// Makes all later calls answer `error`, or the first one.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.failed.get_or_insert(error).clone()
    }

    fn begin_table(&mut self, key: &[u8]) -> Result<()> {
        self.keyspace.check_there()?;
        if self.entries == 0 {
            self.first_key = key.to_vec();
            // Before the first number is taken: a session that begins removes older files.
            session::activate(&self.engine)?;
        }
        let options = self.keyspace.options.load_full();
        let version = Arc::clone(&self.keyspace.view.load().version);
        // Where the tables would go now. More may come, so it is a guess, and the filter is one
        // for that level.
        let span = KeySpan { start: &self.first_key, end: Bound::Included(key) };
        let bytes = self.ended_bytes + options.table_bytes;
        let compaction = options.compaction_options();
        let levels = &version.files;
        let level = deepest_level(levels, &[span], bytes, &compaction, &[]);
        let expected = self.last_entries.unwrap_or(options.table_bytes / ENTRY_BYTES_GUESS);
        if options.filter_budget().is_some() {
            // What is left of the budget depends on the filter that is being written.
            self.join_ending()?;
        }
        let before = IngestedFilters { entries: self.entries, bytes: self.filter_bytes };
        let filter = ingest_filter(&self.keyspace, &version, level, &before, expected);
        let label = KeyspaceLabel { id: self.keyspace.id, name: self.keyspace.name.clone() };
        let databases = self.engine.context.databases();
        let place = TablePlace::in_tree(level, levels);
        let mut table_options = options.table_options(label, databases, place, filter);
        table_options.construction.budget = Some(Arc::clone(&self.engine.context.cache) as _);
        table_options.events = self.engine.context.events.clone();
        let number = self.engine.catalog.numbers.take_file_number();
        let name = FileName::Table(number);
        let path = name.path(&self.engine.context.directory);
        // First: a call that fails may have created it.
        self.provisional.push(name);
        let file = self.engine.context.env.create_new(&path);
        let file = file.map_err(|error| Error::io("create_new", &path, error))?;
        let builder = TableBuilder::new(file, path.clone(), new_table_id(), table_options);
        let bytes_max = options.table_bytes;
        let mut open = OpenTable { thread: None, builder, number, path, bytes_max };
        open.builder.mark_ingested();
        self.open = Some(open);
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        // Before anything is dropped: a forked child does not have the threads.
        self.engine.context.process.check()?;
        let Some(OpenTable { thread, builder, number, .. }) = self.open.take() else {
            return Ok(());
        };
        self.ended_bytes += builder.file_bytes();
        self.last_entries = Some(builder.properties.entries);
        // One table is being completed at most, while the next is written.
        self.join_ending()?;
        match thread {
            None => self.push(number, &builder.finish()?),
            Some(mut thread) => {
                thread.end(builder)?;
                self.ending = Some((number, thread));
            }
        }
        Ok(())
    }

    /// Waits for the table that a thread completes.
    fn join_ending(&mut self) -> Result<()> {
        let Some((number, thread)) = self.ending.take() else { return Ok(()) };
        self.push(number, &thread.join()?);
        Ok(())
    }

    fn push(&mut self, number: u64, summary: &TableSummary) {
        self.filter_bytes += summary.properties.filter_bytes;
        self.finished.push(FileMeta::of_summary(number, summary));
    }
}

impl Drop for LoadTables {
    fn drop(&mut self) {
        if !self.engine.context.process.is_current() {
            // The threads are not in this process, so they would never end.
            std::mem::forget((self.open.take(), self.ending.take()));
            return;
        }
        // Close the files before their names are removed.
        (self.open, self.ending) = (None, None);
        if self.provisional.is_empty() {
            return;
        }
        // Under this lock no change of the manifest can fail between the check and the removal.
        // After one nothing is removed (I8).
        let versions = self.engine.catalog.versions.lock();
        if versions.manifest.failed.is_some() {
            // A `resume` lets them go.
            self.engine.catalog.obsolete.add(self.provisional.drain(..));
            return;
        }
        let Context { env, directory, .. } = &*self.engine.context;
        for name in &self.provisional {
            // What cannot be removed, the next session removes: nothing names it.
            let _ = env.remove(&name.path(directory));
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
