//! Sorts the entries of a bulk load in bounded memory.
//!
//! Entries collect in memory up to a limit. Then they are sorted and written to a *run*: a table
//! without a filter, in a temporary file of the database's directory, that no manifest ever names,
//! or several where the index of one would get too large.
//! At the end all runs are merged, and before that the smallest into larger ones, until there are
//! few enough for one merge. The sequence of an entry in a run is its place in the input, so of the
//! entries of one key the last one comes first, and the others are left out.
//!
//! Dropped, the sorter removes its runs; after a crash the next session removes them.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{ValueKind, put_internal_key, user_key};
use crate::base::sync::Arc;
use crate::env::directory_lock::DirectoryLock;
use crate::env::handle::FilePool;
use crate::jobs::ingest::tables::check_sizes;
use crate::jobs::rewrite::output::new_table_id;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::session;
use crate::table::block::builder::RESTART_INTERVAL;
use crate::table::builder::{TableBuilder, TableOptions};
use crate::table::compression::Compression;
use crate::table::reader::{Table, TableContext};
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::{ObsoleteFiles, TableHandle};
use crate::tree::level_iter::LevelIter;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Runs are read once, from one end to the other: large blocks need few reads.
const BLOCK_BYTES: usize = 64 << 10;

/// Runs that are merged at once, at most. Each takes a block of memory and a descriptor.
pub(crate) const RUNS_MAX: usize = 128;

/// Runs that are merged at once even if their blocks take more memory than a merge may. A block has
/// one entry if that is large.
const RUNS_MIN: usize = 4;

/// Entries of a bulk load, in any order.
pub(crate) struct LoadSorter {
    engine: Arc<Engine>,
    bytes_max: usize,
    index_bytes_max: u64,
    /// Keys and values in memory, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Place>,
    /// Entries that are in runs.
    spilled: u64,
    runs: Vec<SortedRun>,
    /// The numbers of the files of runs, also of one that failed.
    files: BTreeSet<u64>,
    /// Keeps the directory locked while there are files to remove; the last field.
    _lock: Arc<DirectoryLock>,
}

/// Where an entry is in memory.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    key_bytes: u32,
    value_bytes: u32,
    /// Its place in the input, counted from 1.
    entry: u64,
}

impl LoadSorter {
    /// A sorter that takes about `bytes_max` of memory. A table of a run ends when its index has
    /// `index_bytes_max`.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        bytes_max: usize,
        index_bytes_max: u64,
    ) -> Result<Self> {
        Ok(LoadSorter {
            engine: Arc::clone(engine),
            bytes_max,
            index_bytes_max,
            bytes: Vec::new(),
            entries: Vec::new(),
            spilled: 0,
            runs: Vec::new(),
            files: BTreeSet::new(),
            _lock: engine.catalog.hold()?,
        })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `InvalidArgument` for one that is too large; the failure of a file; `Closed`, `ReadOnly`,
    /// `Forked`.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let entry = self.spilled + self.entries.len() as u64 + 1;
        check_sizes(entry, key, value)?;
        let taken = self.bytes.len() + (self.entries.len() + 1) * size_of::<Place>();
        if !self.entries.is_empty() && taken + key.len() + value.len() > self.bytes_max {
            self.spill()?;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_bytes, value_bytes) = (key.len() as u32, value.len() as u32);
        self.entries.push(Place { start, key_bytes, value_bytes, entry });
        Ok(())
    }

    /// Calls `each` with the entries in order, of each key the last one that was added.
    ///
    /// # Errors
    /// The first one of `each`; the failure of a file; `Corruption` of a run.
    pub(crate) fn finish(
        &mut self,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.runs.is_empty() {
            self.sort();
            return self.entries.iter().try_for_each(|place| {
                let (key, value) = place.of(&self.bytes);
                each(key, value)
            });
        }
        self.spill()?;
        (self.bytes, self.entries) = (Vec::new(), Vec::new());
        self.merge_smallest()?;
        self.merge(&self.runs, |internal_key, value| each(user_key(internal_key), value))
    }

    /// Merges runs, the smallest first, until one merge can take those that are left. No more runs
    /// than that needs, so as few entries as possible are written again.
    fn merge_smallest(&mut self) -> Result<()> {
        loop {
            self.runs.sort_by_key(|run| run.tables.iter().map(|table| table.bytes).sum::<u64>());
            let at_once = self.merged_at_once();
            let beyond = self.runs.len() - at_once;
            if beyond == 0 {
                return Ok(());
            }
            // They become one.
            let small: Vec<_> = self.runs.drain(..at_once.min(beyond + 1)).collect();
            let (mut merged, mut run) = (self.open_merge(&small)?, Run::default());
            while let Some((internal_key, value)) = merged.entry() {
                run.add(self, internal_key, value)?;
                merged.next();
            }
            merged.status()?;
            self.runs.push(run.finish()?);
            for table in small.into_iter().flat_map(|run| run.tables) {
                self.remove_run(table.number)?;
            }
        }
    }

    /// How many of the first runs one merge takes.
    fn merged_at_once(&self) -> usize {
        // No entries wait in memory any more, so a merge may use the memory that they had.
        let bytes_max = self.bytes_max.max(RUNS_MAX * BLOCK_BYTES);
        let mut bytes = 0_usize;
        let fits = |(index, run): &(usize, &SortedRun)| {
            bytes = bytes.saturating_add(run.block_bytes);
            *index < RUNS_MIN || bytes <= bytes_max
        };
        self.runs.iter().take(RUNS_MAX).enumerate().take_while(fits).count()
    }

    /// Calls `each` with the entries of `runs` in order, by internal key, of each user key the one
    /// that was added last.
    fn merge(
        &self,
        runs: &[SortedRun],
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut merged = self.open_merge(runs)?;
        while let Some((internal_key, value)) = merged.entry() {
            each(internal_key, value)?;
            merged.next();
        }
        merged.status()
    }

    fn open_merge(&self, runs: &[SortedRun]) -> Result<Merged> {
        let mut merged = MergingIter::new(Direction::Forward, self.open_runs(runs)?);
        merged.seek(None);
        Ok(Merged { merged, last: Vec::new() })
    }

    /// Sorts what is in memory, and leaves out all entries of a key but the last one.
    fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |place: &Place| place.of(bytes).0;
        self.entries
            .sort_unstable_by(|a, b| key(a).cmp(key(b)).then_with(|| b.entry.cmp(&a.entry)));
        self.entries.dedup_by(|later, kept| key(later) == key(kept));
    }

    /// Writes what is in memory to a run.
    fn spill(&mut self) -> Result<()> {
        let last = self.spilled + self.entries.len() as u64;
        self.sort();
        let (bytes, entries) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.entries));
        let (mut run, mut internal_key) = (Run::default(), Vec::new());
        for place in &entries {
            let (key, value) = place.of(&bytes);
            internal_key.clear();
            put_internal_key(&mut internal_key, key, place.entry, ValueKind::Put);
            run.add(self, &internal_key, value)?;
        }
        self.runs.push(run.finish()?);
        // Their memory is used again.
        (self.bytes, self.entries) = (bytes, entries);
        self.bytes.clear();
        self.entries.clear();
        self.spilled = last;
        Ok(())
    }

    /// A new run without entries, and the number of its file.
    fn create_run(&mut self) -> Result<(u64, TableBuilder)> {
        self.engine.context.process.check()?;
        self.engine.check_writable()?;
        if self.files.is_empty() {
            // Before the first number is taken: a session that begins removes older files.
            session::activate(&self.engine)?;
        }
        let number = self.engine.catalog.numbers.take_file_number();
        let path = self.path(number);
        // First: a call that fails may have created it.
        self.files.insert(number);
        let file = self.engine.context.env.create_new(&path);
        let file = file.map_err(|error| Error::io("create_new", &path, error))?;
        let options = TableOptions {
            block_bytes: BLOCK_BYTES,
            restart_interval: RESTART_INTERVAL,
            compression: Compression::None,
            write_bytes: 1 << 20,
            ..TableOptions::default()
        };
        Ok((number, TableBuilder::new(file, path, new_table_id(), options)))
    }

    fn path(&self, number: u64) -> PathBuf {
        FileName::Temporary(number).path(&self.engine.context.directory)
    }

    /// Removes the file of a run that is in a larger one now.
    fn remove_run(&mut self, number: u64) -> Result<()> {
        let path = self.path(number);
        let removed = self.engine.context.env.remove(&path);
        removed.map_err(|error| Error::io("remove", &path, error))?;
        self.files.remove(&number);
        Ok(())
    }

    fn open_runs(&self, runs: &[SortedRun]) -> Result<Vec<LevelIter>> {
        let Context { env, options, cache, .. } = &*self.engine.context;
        let files = FilePool::new(Arc::clone(env), options.max_open_files);
        let context = TableContext::new(files, Arc::clone(cache));
        let never_removed = Arc::new(ObsoleteFiles::default());
        let open = |meta: &FileMeta| {
            let table = Table::open(&context, &self.path(meta.number), meta.expect())?;
            Ok(TableHandle::new(Arc::new(meta.clone()), Arc::new(table), &never_removed))
        };
        let run = |run: &SortedRun| {
            let handles = run.tables.iter().map(open).collect::<Result<_>>()?;
            Ok(LevelIter::new(Direction::Forward, handles, false))
        };
        runs.iter().map(run).collect()
    }
}

/// A run that was written.
#[derive(Default)]
struct SortedRun {
    /// By key.
    tables: Vec<FileMeta>,
    /// About the size of its largest block.
    block_bytes: usize,
}

/// A run that is being written.
#[derive(Default)]
struct Run {
    /// The table that takes entries, and the number of its file.
    open: Option<(u64, TableBuilder)>,
    finished: SortedRun,
}

impl Run {
    fn add(&mut self, sorter: &mut LoadSorter, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let index_bytes = self.open.as_ref().map_or(0, |(_, open)| open.index_bytes());
        if index_bytes >= sorter.index_bytes_max {
            self.end_table()?;
        }
        let (_, builder) = match &mut self.open {
            Some(open) => open,
            none => none.insert(sorter.create_run()?),
        };
        // A block has no more than that, or one entry.
        let block_bytes = BLOCK_BYTES.max(internal_key.len() + value.len());
        self.finished.block_bytes = self.finished.block_bytes.max(block_bytes);
        builder.add(internal_key, value)
    }

    fn end_table(&mut self) -> Result<()> {
        let Some((number, builder)) = self.open.take() else { return Ok(()) };
        self.finished.tables.push(FileMeta::of_summary(number, &builder.finish()?));
        Ok(())
    }

    fn finish(mut self) -> Result<SortedRun> {
        self.end_table()?;
        Ok(self.finished)
    }
}

/// A merge of runs: of each user key the entry that was added last.
struct Merged {
    merged: MergingIter<LevelIter>,
    /// The user key of the entry that was passed last. It keeps its memory.
    last: Vec<u8>,
}

impl Merged {
    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.merged.valid().then(|| (self.merged.key(), self.merged.value()))
    }

    fn next(&mut self) {
        user_key(self.merged.key()).clone_into(&mut self.last);
        // The newest of a key comes first.
        while self.merged.valid() && user_key(self.merged.key()) == self.last {
            self.merged.next();
        }
    }

    fn status(&self) -> Result<()> {
        self.merged.status()
    }
}

impl Place {
    /// Key and value.
    fn of(self, bytes: &[u8]) -> (&[u8], &[u8]) {
        let value = self.start + self.key_bytes as usize;
        (&bytes[self.start..value], &bytes[value..value + self.value_bytes as usize])
    }
}

impl Drop for LoadSorter {
    fn drop(&mut self) {
        if !self.engine.context.process.is_current() {
            return;
        }
        for number in &self.files {
            // What cannot be removed, the next session removes.
            let _ = self.engine.context.env.remove(&self.path(*number));
        }
    }
}
