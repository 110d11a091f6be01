//! `VersionSet`: the current version, and the only way to the next one.
//!
//! `apply(edit)` checks the order of the levels, opens the tables that the edit adds, logs the
//! edit, syncs it, then replaces the version. The set is behind one lock. Jobs make tables and
//! their names durable before they apply an edit (I5).
//!
//! [`VersionSet::activate`] creates the manifest of a session before its first edit, as a snapshot
//! of the whole version. So opening and closing writes nothing. After a failed manifest write the
//! record may have reached the disk. So no file is removed any more, and the set refuses edits
//! until [`VersionSet::restart`] or until the database is reopened (I8).

use crate::base::error::{Error, Result};
use crate::base::filename::{FILE_NUMBER_MAX, FileName, parse};
use crate::base::key::SequenceNumber;
use crate::base::levels::LEVELS;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::env::api::{Env, FileKind};
use crate::log::wal::consistency::CleanClose;
use crate::table::filter::layout::FilterPinning;
use crate::table::reader::TableContext;
use crate::tree::edit::{COMPARATOR, FileMeta, FirstLog, VersionEdit};
use crate::tree::handle::{ObsoleteFiles, TableHandle};
use crate::tree::manifest::{ManifestState, ManifestWriter, stage_current, switch_current};
use crate::tree::open_tables::{open_table, open_tables};
use crate::tree::overlap::order_conflicts;
use crate::tree::version::Version;
use std::path::{Path, PathBuf};

/// The manifest in force and how much of it is durable: what a new log's first record carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestPosition {
    /// Number of the manifest.
    pub number: u64,
    /// Bytes of it known to be durable.
    pub synced_bytes: u64,
}

/// What other threads read of the set without taking its lock.
#[derive(Debug, Default)]
pub(crate) struct SharedNumbers {
    /// The next file number; taking one is `fetch_add(1)`.
    pub next_file: AtomicU64,
    /// The manifest in force.
    pub position: Mutex<ManifestPosition>,
}

impl SharedNumbers {
    /// A file number that nothing else has or had.
    pub(crate) fn take_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }
}

/// The current version and its manifest.
#[derive(Debug)]
pub(crate) struct VersionSet {
    env: Arc<dyn Env>,
    directory: PathBuf,
    context: TableContext,
    /// By level: applies to tables as they are opened.
    pinning: [FilterPinning; LEVELS],
    current: Arc<Version>,
    manifest: Option<ManifestWriter>,
    /// A longer manifest is rewritten.
    manifest_bytes: u64,
    failed: bool,
    /// Tables of edits that failed: the manifest in force may name them or not.
    doubtful: Vec<u64>,
    /// Files with lower numbers are from earlier sessions.
    session_start: u64,
    first_log: FirstLog,
    last_sequence: SequenceNumber,
    synced_through: SequenceNumber,
    /// The log that this session began with.
    session_log: Option<u64>,
    abandoned: Vec<FileName>,
    numbers: Arc<SharedNumbers>,
    obsolete: Arc<ObsoleteFiles>,
}

impl VersionSet {
    /// Opens the tables that a replayed manifest names. Writes nothing.
    ///
    /// # Errors
    /// A table is missing, of another size, foreign or damaged.
    pub(crate) fn open(
        env: Arc<dyn Env>,
        directory: &Path,
        context: TableContext,
        pinning: [FilterPinning; LEVELS],
        state: &ManifestState,
        numbers: Arc<SharedNumbers>,
        manifest_bytes: u64,
    ) -> Result<Self> {
        let obsolete = Arc::new(ObsoleteFiles::default());
        let mut levels: [Vec<Arc<TableHandle>>; LEVELS] = Default::default();
        let mut tables = open_tables(&context, directory, &state.levels, &pinning)?.into_iter();
        for (handles, metas) in levels.iter_mut().zip(&state.levels) {
            let opened = metas.iter().zip(&mut tables);
            handles.extend(
                opened.map(|(meta, table)| {
                    TableHandle::new(Arc::new(meta.clone()), table, &obsolete)
                }),
            );
        }
        Ok(VersionSet {
            env,
            directory: directory.to_path_buf(),
            context,
            pinning,
            current: Arc::new(Version::new(levels)),
            manifest: None,
            manifest_bytes,
            failed: false,
            doubtful: Vec::new(),
            session_start: 0,
            first_log: FirstLog {
                number: state.facts.log_number,
                flushed_through: state.facts.flushed_through,
            },
            last_sequence: state.facts.last_sequence,
            synced_through: state.facts.synced_through,
            session_log: None,
            abandoned: Vec::new(),
            numbers,
            obsolete,
        })
    }

    /// The current version.
    #[must_use]
    pub(crate) fn current(&self) -> &Arc<Version> {
        &self.current
    }

    /// True if the manifest in force does not need the file: it may be removed.
    #[must_use]
    pub(crate) fn is_obsolete(&self, name: FileName) -> bool {
        match name {
            FileName::Wal(number) => number < self.first_log.number,
            FileName::Table(number) => !self.live_tables().contains(&number),
            FileName::Manifest(number) => {
                self.manifest.as_ref().is_none_or(|manifest| manifest.number() != number)
            }
            FileName::Temporary(_) => true,
            FileName::Current | FileName::Lock | FileName::Stats => false,
        }
    }

    /// True once a change of the manifest failed: it may have reached the disk or not.
    #[must_use]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Where files that nothing needs any more collect.
    #[must_use]
    pub(crate) fn obsolete(&self) -> &Arc<ObsoleteFiles> {
        &self.obsolete
    }

    /// Logs `edit`, syncs it, and makes the version it leads to the current one. Needs an active
    /// session. `last_sequence` is the last one given to a write.
    ///
    /// # Errors
    /// Tables that cannot be opened leave all as it was. A failed manifest write is final: the set
    /// takes no edits after it.
    pub(crate) fn apply(
        &mut self,
        mut edit: VersionEdit,
        last_sequence: SequenceNumber,
    ) -> Result<Arc<Version>> {
        // Opened and checked before the edit is logged: a refusal leaves manifest and version as
        // they were.
        let next = self.next_version(&edit)?;
        // Before the edit is logged: if the rewrite fails, it says nothing of the edit.
        self.rewrite_if_large()?;
        self.advance(edit.first_log, last_sequence);
        edit = self.stamped(edit)?;
        if let Err(error) = self.append(&edit) {
            self.doubtful.extend(self.new_tables(&edit));
            return Err(error);
        }
        for &(level, number) in &edit.deleted {
            // A table that only moved to another level is still named.
            let moved = edit.added.iter().any(|(_, meta)| meta.number == number);
            let handles = self.current.level(level);
            let gone = handles.iter().find(|handle| handle.meta.number == number);
            if let Some(handle) = gone.filter(|_| !moved) {
                handle.mark_obsolete();
            }
        }
        self.current = Arc::new(next);
        Ok(Arc::clone(&self.current))
    }

    /// The tables that the edit adds and does not only move.
    fn new_tables(&self, edit: &VersionEdit) -> Vec<u64> {
        let moved = |number: &u64| edit.deleted.iter().any(|(_, deleted)| deleted == number);
        let added = edit.added.iter().map(|(_, meta)| meta.number);
        added.filter(|number| !moved(number)).collect()
    }

    /// Continues after a failure with a whole new manifest as file `number`: the version as it is,
    /// with `tables` added to level 0, and `first_log`. The failed manifest is not written to
    /// again, and the files that it may name stay until the new one is in force.
    ///
    /// # Errors
    /// As for `apply`; it may be tried again, with another number.
    pub(crate) fn restart(
        &mut self,
        number: u64,
        tables: Vec<FileMeta>,
        first_log: FirstLog,
    ) -> Result<Arc<Version>> {
        let added = tables.into_iter().map(|meta| (0, meta)).collect();
        let edit = VersionEdit { added, ..VersionEdit::default() };
        self.doubtful.extend(self.new_tables(&edit));
        let before = Arc::clone(&self.current);
        self.current = Arc::new(self.next_version(&edit)?);
        self.session_log = Some(first_log.number);
        self.advance(Some(first_log), first_log.flushed_through);
        if let Err(error) = self.start_manifest(number) {
            self.current = before;
            return Err(error);
        }
        self.failed = false;
        let live: Vec<u64> = self.live_tables();
        let doubtful = std::mem::take(&mut self.doubtful);
        let unnamed = doubtful.into_iter().filter(|number| !live.contains(number));
        self.obsolete.add(unnamed.map(FileName::Table));
        Ok(Arc::clone(&self.current))
    }

    /// The obsolete files except tables, which an iterator may still read.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn leftovers(&self) -> Result<Vec<FileName>> {
        let mut leftovers = self.obsolete_files()?;
        leftovers.retain(|name| !matches!(name, FileName::Table(_)));
        Ok(leftovers)
    }

    fn live_tables(&self) -> Vec<u64> {
        let handles = (0..LEVELS).flat_map(|level| self.current.level(level));
        handles.map(|handle| handle.meta.number).collect()
    }

    /// Creates this session's manifest as file `number` and makes it the one in force. `log`, by a
    /// name that is durable, is the log that the session begins with. The tables and the first log
    /// of `edit`, which recovery wrote, become part of the database in the same step.
    /// `last_sequence` is the last one that recovery found.
    ///
    /// # Errors
    /// As for `apply`. If [`VersionSet::abandoned`] names files then, nothing has changed.
    pub(crate) fn activate(
        &mut self,
        number: u64,
        log: Option<u64>,
        edit: &VersionEdit,
        last_sequence: SequenceNumber,
    ) -> Result<Arc<Version>> {
        self.check_not_failed()?;
        let next = self.next_version(edit)?;
        self.session_start = number;
        self.session_log = log;
        self.advance(edit.first_log, last_sequence);
        self.current = Arc::new(next);
        self.start_manifest(number)?;
        Ok(Arc::clone(&self.current))
    }

    /// True if this session has written a manifest that is in force, or may be.
    #[must_use]
    pub(crate) fn may_have_switched(&self) -> bool {
        self.manifest.is_some() || (self.failed && self.abandoned.is_empty())
    }

    /// The files of a manifest that could not be written and was never put in force.
    #[must_use]
    pub(crate) fn abandoned(&self) -> &[FileName] {
        &self.abandoned
    }

    /// Marks the manifest as that of a session that was closed cleanly, durably, if the session has
    /// one. Every log must be durable before. Takes no edits afterwards.
    ///
    /// # Errors
    /// The failure of the manifest: the mark may be there or not.
    pub(crate) fn mark_closed(&mut self, clean_close: CleanClose) -> Result<()> {
        self.last_sequence = self.last_sequence.max(clean_close.last_sequence);
        self.synced_through = self.last_sequence;
        let edit = VersionEdit { clean_close: Some(clean_close), ..VersionEdit::default() };
        let edit = self.stamped(edit)?;
        self.append(&edit)?;
        self.manifest = None;
        Ok(())
    }

    /// True once this session has a manifest of its own.
    #[must_use]
    pub(crate) fn is_active(&self) -> bool {
        self.manifest.is_some()
    }

    /// Files of earlier sessions that neither the durable manifest nor recovery needs. Empty unless
    /// this session's manifest is in force. Call it before any job of the session can take a table
    /// out of the version: an iterator may still read that table.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn obsolete_files(&self) -> Result<Vec<FileName>> {
        let Some(manifest) = self.manifest.as_ref().filter(|_| !self.failed) else {
            return Ok(Vec::new());
        };
        let entries = self.env.list(&self.directory);
        let entries = entries.map_err(|error| Error::io("list", &self.directory, error))?;
        let live = self.live_tables();
        let files = entries.iter().filter(|entry| entry.kind == FileKind::File);
        let ours = files.filter_map(|entry| parse(&entry.name));
        Ok(ours
            .filter(|name| match name {
                FileName::Current | FileName::Lock | FileName::Stats => false,
                FileName::Manifest(number) => *number < manifest.number(),
                FileName::Wal(number) => *number < self.first_log.number,
                FileName::Table(number) => *number < self.session_start && !live.contains(number),
                FileName::Temporary(number) => *number < self.session_start,
            })
            .collect())
    }

    fn next_version(&self, edit: &VersionEdit) -> Result<Version> {
        let mut levels: [Vec<Arc<TableHandle>>; LEVELS] =
            std::array::from_fn(|level| self.current.level(level).to_vec());
        let mut removed = Vec::new();
        for &(level, number) in &edit.deleted {
            let handles = &mut levels[level];
            let place = handles.iter().position(|handle| handle.meta.number == number);
            match place {
                Some(place) => removed.push(handles.remove(place)),
                None => {
                    let what = format!("edit removes table {number}, not at level {level}");
                    return Err(Error::corruption(&self.directory, 0, what));
                }
            }
        }
        self.check_order(&levels, &edit.added)?;
        for (level, meta) in &edit.added {
            let moved = removed.iter().find(|handle| handle.meta.number == meta.number);
            // A table that moves to another level stays open as it is.
            let handle = match moved {
                Some(handle) => Arc::clone(handle),
                None => {
                    let pinning = self.pinning[*level];
                    let table = open_table(&self.context, &self.directory, meta, pinning)?;
                    // Just written: read it back before the manifest names it.
                    table.load_index()?;
                    TableHandle::new(Arc::new(meta.clone()), table, &self.obsolete)
                }
            };
            levels[*level].push(handle);
        }
        Ok(Version::new(levels))
    }

    /// Refuses an edit that breaks the order of a level (I4). Such an edit could not be replayed,
    /// and lookups could find an older value before a newer one.
    fn check_order(
        &self,
        levels: &[Vec<Arc<TableHandle>>; LEVELS],
        added: &[(usize, FileMeta)],
    ) -> Result<()> {
        for (level, staying) in levels.iter().enumerate() {
            let mut coming = added.iter().filter(|(to, _)| *to == level).peekable();
            if coming.peek().is_none() {
                continue;
            }
            let staying = staying.iter().map(|handle| &*handle.meta);
            let metas = staying.chain(coming.map(|(_, meta)| meta));
            if let Some(clash) = order_conflicts(level, metas).first() {
                let what = format!("by an edit {clash}; this is a defect of siftdb");
                return Err(Error::corruption(&self.directory, 0, what));
            }
        }
        Ok(())
    }

    /// Takes note of a new first log, and of the last sequence given to a write.
    fn advance(&mut self, first_log: Option<FirstLog>, last_sequence: SequenceNumber) {
        self.last_sequence = self.last_sequence.max(last_sequence);
        if let Some(first_log) = first_log {
            self.first_log = first_log;
            // Everything in tables is durable.
            self.synced_through = self.synced_through.max(first_log.flushed_through);
        }
    }

    /// `edit` with the current counters.
    fn stamped(&self, edit: VersionEdit) -> Result<VersionEdit> {
        let next_file = self.numbers.next_file.load(Ordering::Relaxed);
        if next_file > FILE_NUMBER_MAX {
            return Err(Error::InvalidArgument { what: "all file numbers are used up".into() });
        }
        // I10: the next session takes its numbers from here on.
        debug_assert!(edit.added.iter().all(|(_, meta)| meta.number < next_file), "I10");
        Ok(VersionEdit {
            next_file_number: Some(next_file),
            last_sequence: Some(self.last_sequence),
            synced_through: Some(self.synced_through),
            ..edit
        })
    }

    fn check_not_failed(&self) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        let path = FileName::Current.path(&self.directory);
        let what = "an earlier write to the manifest failed; reopen the database";
        Err(Error::io("append", path, std::io::Error::other(what)))
    }

    fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        self.check_not_failed()?;
        let Some(manifest) = self.manifest.as_mut() else {
            let what = "the session has no manifest yet; this is a defect of siftdb";
            return Err(Error::io("append", &self.directory, std::io::Error::other(what)));
        };
        let appended = manifest.append(edit);
        let (number, synced_bytes) = (manifest.number(), manifest.bytes());
        self.record(&appended, number, synced_bytes);
        appended
    }

    /// A whole new manifest: the version as one edit, made durable, then named by CURRENT.
    fn start_manifest(&mut self, number: u64) -> Result<()> {
        let temporary = self.numbers.take_file_number();
        let levels = self.current.files().into_iter().enumerate();
        let tables = levels.flat_map(|(level, metas)| metas.into_iter().map(move |m| (level, m)));
        let snapshot = self.stamped(VersionEdit {
            comparator: Some(COMPARATOR.into()),
            first_log: Some(self.first_log),
            session_log: self.session_log,
            added: tables.map(|(level, meta)| (level, (*meta).clone())).collect(),
            ..VersionEdit::default()
        })?;
        // Reset at the end: after a failure in between nothing is written any more.
        self.failed = true;
        self.abandoned = vec![FileName::Manifest(number), FileName::Temporary(temporary)];
        let (env, directory) = (&*self.env, &self.directory);
        let writer = ManifestWriter::create(env, directory, number, &snapshot)?;
        stage_current(env, directory, number, temporary)?;
        // From here on the new manifest may be in force, whatever the answer.
        self.abandoned.clear();
        switch_current(env, directory, temporary)?;
        self.failed = false;
        let synced_bytes = writer.bytes();
        self.manifest = Some(writer);
        self.record(&Ok(()), number, synced_bytes);
        Ok(())
    }

    fn rewrite_if_large(&mut self) -> Result<()> {
        let long = |manifest: &&ManifestWriter| manifest.needs_rewrite(self.manifest_bytes);
        let Some(old) = self.manifest.as_ref().filter(long) else { return Ok(()) };
        let old = FileName::Manifest(old.number()).path(&self.directory);
        self.start_manifest(self.numbers.take_file_number())?;
        // If this fails the next session removes the old manifest.
        let _ = self.env.remove(&old);
        Ok(())
    }

    fn record(&mut self, outcome: &Result<()>, number: u64, synced_bytes: u64) {
        match outcome {
            Ok(()) => *self.numbers.position.lock() = ManifestPosition { number, synced_bytes },
            Err(_) => self.failed = true,
        }
    }
}
