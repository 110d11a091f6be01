//! The manifest: the log of version edits. `CURRENT` names the current one (`tree/current.rs`).
//!
//! A manifest is a record file (see `log/record`). Its first edit is a snapshot, and its edits are
//! counted from 1. [`ManifestWriter::create`] writes a manifest before `CURRENT` names it; a new
//! log that it names is created before. Each [`ManifestWriter::append`] is durable when it returns.
//! After one that failed the writer takes no more: then nothing may be removed, and the next
//! opening writes a new manifest.
//!
//! [`replay`] reads one back and checks that its edits fit each other. A record that a crash cut
//! short at the very end is dropped; anything else that does not fit is `Corruption`. A manifest
//! cut between two records looks whole from here: the logs know how long it was
//! (`log::wal::recover`).

use crate::base::error::{Error, Result};
use crate::base::filename::{FILE_NUMBER_MAX, FileName};
use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId, SEQUENCE_MAX, SequenceNumber};
use crate::env::api::Env;
use crate::log::record::format::{
    FILE_HEADER_BYTES, FORMAT_VERSION, HeaderState, RecordFile, Undecodable,
};
use crate::log::record::reader::{BadPlace, RecordReader, Step};
use crate::log::record::writer::RecordWriter;
use crate::log::recovery::DroppedPart;
use crate::log::wal::format::DatabaseIdentity;
use crate::tree::edit::{COMPARATOR, KeyspaceMeta, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest_state::{KeyspaceTables, ManifestState};
use crate::tree::overlap::{order_conflicts, search_order};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

/// A manifest is rewritten only if it is longer than its snapshot by this factor.
const REWRITE_FACTOR: u64 = 4;

/// A manifest beyond this was not written by siftdb: room for millions of tables with the longest
/// keys, of which it has two for each. It is read through a window, so this reserves nothing.
const MANIFEST_BYTES_MAX: u64 = 1 << 40;

/// Reads manifest `number` back.
///
/// # Errors
/// `Missing`, `Corruption`, `UnsupportedFormat`, `Io`.
pub(crate) fn replay(env: &dyn Env, directory: &Path, number: u64) -> Result<ManifestState> {
    let path = FileName::Manifest(number).path(directory);
    match replay_file(env, &path, number) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Err(Error::missing(&path, "CURRENT names this manifest"))
        }
        result => result,
    }
}

/// Opens manifest `number` at `path`.
///
/// # Errors
/// `Io`; `Corruption` if it is longer than any manifest.
fn open_manifest(env: &dyn Env, path: &Path, number: u64) -> Result<RecordReader> {
    let reader = RecordReader::open_to(env, path, number, MANIFEST_BYTES_MAX + 1)?;
    if reader.file_bytes() > MANIFEST_BYTES_MAX {
        let what = format!("the manifest is larger than {MANIFEST_BYTES_MAX} bytes");
        return Err(Error::corruption(path, MANIFEST_BYTES_MAX, what));
    }
    Ok(reader)
}

/// Reads the manifest `number` that is at `path` back, a piece at a time.
///
/// # Errors
/// As for [`replay`]; one that is not there is `Io`.
pub(crate) fn replay_file(env: &dyn Env, path: &Path, number: u64) -> Result<ManifestState> {
    let mut cursor = ManifestCursor::open(env, path, number)?;
    if let Some((bad, is_tail)) = cursor.apply_edits()? {
        // A crash tears only the last record: each append is durable before the next one begins. So
        // a torn place with a record after it is damage.
        if !bad.torn || !is_tail {
            return Err(Error::corruption(path, bad.offset, bad.what));
        }
        let (path, offset) = (path.to_path_buf(), bad.offset);
        cursor.replay.state.dropped = Some(DroppedPart { path, offset, what: bad.what });
    }
    let end = cursor.replay.state.facts.bytes;
    cursor.replay.finish().map_err(|bad| bad.into_error(path, end))
}

/// Reads the edits of one manifest in order and applies them.
#[derive(Debug)]
pub(crate) struct ManifestCursor {
    pub path: PathBuf,
    reader: RecordReader,
    /// The edits so far. Its state names the end of the last one; 0 before the first.
    pub replay: Replay,
}

impl ManifestCursor {
    /// Opens manifest `number` at `path`.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `UnsupportedFormat` of the header.
    pub(crate) fn open(env: &dyn Env, path: &Path, number: u64) -> Result<Self> {
        let mut reader = open_manifest(env, path, number)?;
        match reader.header(RecordFile::Manifest)? {
            HeaderState::Good => {}
            // Header and snapshot were durable before anything named the manifest.
            HeaderState::Torn => {
                return Err(Error::corruption(path, 0, "the file header is missing"));
            }
            HeaderState::Bad(bad) => return Err(bad.into_error(path, 0)),
        }
        let mut replay = Replay::default();
        replay.state.facts.number = number;
        Ok(ManifestCursor { path: path.to_path_buf(), reader, replay })
    }

    /// Continues after the last edit, with what the file holds now: it may have grown.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn reload(&mut self) -> Result<()> {
        self.reader.reload(self.replay.state.facts.bytes.max(FILE_HEADER_BYTES as u64))
    }

    /// Applies the edits up to the end, or to a bad place. Returns that place, and whether it can
    /// be the last record, which was being written: no valid record comes after it, and the
    /// snapshot before it is whole.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `UnsupportedFormat` of an edit.
    pub(crate) fn apply_edits(&mut self) -> Result<Option<(BadPlace, bool)>> {
        loop {
            let bad = match self.reader.step()? {
                Step::Record(record) => {
                    VersionEdit::decode(record.payload)
                        .and_then(|edit| self.replay.apply(edit))
                        .map_err(|bad| bad.into_error(&self.path, record.start))?;
                    self.replay.state.facts.bytes = record.end;
                    continue;
                }
                Step::Bad(bad) => bad,
                Step::End => return Ok(None),
            };
            // The snapshot was durable before anything named the manifest.
            let is_tail = matches!(self.reader.step()?, Step::End) && self.replay.edits > 0;
            return Ok(Some((bad, is_tail)));
        }
    }
}

/// Calls `visit` with offset and contents of every edit in the manifest `number` at `path`, as far
/// as they decode, and with the text of what does not.
///
/// # Errors
/// `Io`.
pub(crate) fn visit(
    env: &dyn Env,
    path: &Path,
    number: u64,
    visit: &mut dyn FnMut(u64, std::result::Result<VersionEdit, String>),
) -> Result<HeaderState> {
    let mut reader = RecordReader::open(env, path, number)?;
    loop {
        match reader.step()? {
            Step::Record(record) => {
                let edit = VersionEdit::decode(record.payload);
                visit(record.start, edit.map_err(|bad| format!("{bad:?}")));
            }
            Step::Bad(bad) => visit(bad.offset, Err(bad.what)),
            Step::End => return reader.header(RecordFile::Manifest),
        }
    }
}

/// The readable part of a manifest in any state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManifestRemains {
    /// Its number: by its header where that is sound, else by its name.
    pub number: u64,
    /// The highest next file number in its edits.
    pub next_file_number: u64,
    /// The highest last sequence in its edits.
    pub last_sequence: SequenceNumber,
    /// The id of every table that an edit adds, with its keyspace.
    pub mentioned: BTreeMap<u64, KeyspaceId>,
    /// The sequence that edits give to the entries of ingested tables, by the id of the table.
    pub global_sequences: BTreeMap<u64, SequenceNumber>,
    /// The tables that its edits add and that no readable edit removes.
    pub named: Vec<FileMeta>,
    /// The identity that the last edit with one gives.
    pub database: DatabaseIdentity,
    /// The ancestors that its edits name.
    pub ancestors: Vec<u128>,
    /// The largest expired-through time in its edits.
    pub expired_through: u64,
    /// The highest next keyspace number that an edit speaks of.
    pub next_keyspace: u64,
    /// The keyspaces that edits create and none of those that can be read drops.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceMeta>,
    /// The keyspaces that an edit drops.
    pub dropped: BTreeSet<KeyspaceId>,
    /// Every keyspace below this number that is not in `keyspaces` was dropped, because the
    /// snapshot does not name it; 0 if the snapshot cannot be read.
    pub known_below: u64,
}

/// Reads what is left of the manifest at `path` with `number` in its name; a newer format version
/// is refused.
///
/// # Errors
/// `UnsupportedFormat`; the file cannot be read.
pub(crate) fn remains(env: &dyn Env, path: &Path, number: u64) -> Result<ManifestRemains> {
    let mut reader = open_manifest(env, path, number)?;
    let claimed = reader.claimed_number()?;
    // A file that was given another name is the manifest that its header says.
    let is_renamed = reader.header(RecordFile::Manifest)? != HeaderState::Good
        && reader.renumber(claimed).header(RecordFile::Manifest)? == HeaderState::Good;
    let number = if is_renamed { claimed } else { number };
    let mut found = ManifestRemains { number, ..ManifestRemains::default() };
    let mut named = BTreeMap::new();
    let header = visit(env, path, number, &mut |_, edit| {
        let Ok(edit) = edit else { return };
        let (next, last) = (edit.next_file_number, edit.last_sequence);
        found.next_file_number = found.next_file_number.max(next.unwrap_or(0));
        found.last_sequence = found.last_sequence.max(last.unwrap_or(0).min(SEQUENCE_MAX));
        found.database = edit.database.unwrap_or(found.database);
        found.ancestors.extend(edit.ancestors);
        found.next_keyspace = found.next_keyspace.max(edit.next_keyspace.unwrap_or(0));
        found.expired_through = found.expired_through.max(edit.expired_through.unwrap_or(0));
        for file in &edit.deleted {
            named.remove(&file.number);
        }
        if edit.comparator.is_some() {
            found.known_below = edit.next_keyspace.unwrap_or(0);
        }
        found.keyspaces.extend(edit.created.into_iter().map(|meta| (meta.id, meta)));
        for (id, settings) in edit.settings {
            found.keyspaces.entry(id).and_modify(|meta| meta.settings = settings);
        }
        for id in edit.dropped {
            found.keyspaces.remove(&id);
            found.dropped.insert(id);
            named.retain(|_, meta: &mut FileMeta| meta.keyspace != id);
        }
        for (_, meta) in edit.added {
            found.mentioned.insert(meta.table_id, meta.keyspace);
            found.global_sequences.extend(meta.global_sequence.map(|given| (meta.table_id, given)));
            named.insert(meta.number, meta);
        }
    })?;
    found.named = named.into_values().collect();
    match header {
        HeaderState::Bad(unknown @ Undecodable::Unknown(_)) => Err(unknown.into_error(path, 0)),
        _ => Ok(found),
    }
}

/// The edits applied so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// Their contents without the tables.
    pub state: ManifestState,
    /// How many they are.
    pub edits: u64,
    /// How many keyspaces they created and dropped.
    pub keyspace_changes: u64,
    /// The tables by keyspace and number, with their levels.
    tables: BTreeMap<(KeyspaceId, u64), (usize, FileMeta)>,
    numbers: HashSet<u64>,
    names: HashSet<String>,
}

impl Replay {
    /// Applies the next edit.
    ///
    /// # Errors
    /// It does not fit what was applied before.
    pub(crate) fn apply(&mut self, edit: VersionEdit) -> std::result::Result<(), Undecodable> {
        self.edits += 1;
        // A missing edit in the middle would leave a tree that looks sound.
        if edit.ordinal != self.edits {
            return damaged(format!("edit {} is where {} belongs", edit.ordinal, self.edits));
        }
        if let Some(name) = edit.comparator.as_ref().filter(|name| *name != COMPARATOR) {
            let what = format!("keys in the order {name:?}; known is {COMPARATOR:?}");
            return Err(Undecodable::Unknown(what));
        }
        let is_snapshot = edit.comparator.is_some()
            && edit.database.is_some()
            && edit.first_log.is_some()
            && edit.next_file_number.is_some()
            && edit.next_keyspace.is_some()
            && edit.last_sequence.is_some()
            && edit.created.iter().any(|meta| meta.id == DEFAULT_KEYSPACE);
        if self.edits == 1 && !is_snapshot {
            return damaged("the first edit is not a snapshot".into());
        }
        if self.state.facts.clean_close.is_some() {
            return damaged("an edit follows the mark of a clean close".into());
        }
        self.apply_counters(&edit)?;
        self.apply_keyspaces(&edit)?;
        for file in edit.deleted {
            let identity = (file.keyspace, file.number);
            if self.tables.remove(&identity).is_none_or(|(level, _)| level != file.level) {
                let (level, number) = (file.level, file.number);
                return damaged(format!("file {number} leaves level {level} and is not there"));
            }
            self.numbers.remove(&file.number);
        }
        for (level, file) in edit.added {
            let number = file.number;
            // The counters only rise, so it is enough to look when a file is added.
            self.check_in_use(number, file.largest_sequence)?;
            if !self.state.keyspaces.contains_key(&file.keyspace) {
                return damaged(format!(
                    "file {number} is of keyspace {}, which is not there",
                    file.keyspace
                ));
            }
            if !self.numbers.insert(number) {
                return damaged(format!("file {number} is added twice"));
            }
            self.tables.insert((file.keyspace, number), (level, file));
        }
        Ok(())
    }

    fn apply_counters(&mut self, edit: &VersionEdit) -> std::result::Result<(), Undecodable> {
        let state = &mut self.state;
        if let Some(log) = edit.first_log {
            if log.number < state.facts.log_number
                || log.flushed_through < state.facts.flushed_through
            {
                return damaged(format!("the first log goes back to {}", log.number));
            }
            state.facts.log_number = log.number;
            state.facts.flushed_through = log.flushed_through;
        }
        if let Some(database) = edit.database {
            if self.edits > 1 {
                return damaged("the identity of the database changes".into());
            }
            state.facts.database = database;
        }
        state.checkpoint_of = state.checkpoint_of.or(edit.checkpoint_of);
        state.sessions.extend(&edit.sessions);
        state.ancestors.extend(&edit.ancestors);
        let raise = |old: &mut u64, new: Option<u64>| *old = new.unwrap_or(0).max(*old);
        raise(&mut state.next_file_number, edit.next_file_number);
        raise(&mut state.next_keyspace, edit.next_keyspace);
        raise(&mut state.expired_through, edit.expired_through);
        raise(&mut state.facts.last_sequence, edit.last_sequence);
        raise(&mut state.facts.synced_through, edit.synced_through);
        raise(&mut state.facts.session_log, edit.session_log);
        state.facts.clean_close = edit.clean_close;
        let facts = &self.state.facts;
        let close = facts.clean_close.unwrap_or_default();
        let number = facts.number.max(facts.log_number).max(facts.session_log).max(close.log);
        let sequence = facts.flushed_through.max(facts.synced_through).max(close.last_sequence);
        self.check_in_use(number, sequence)
    }

    fn apply_keyspaces(&mut self, edit: &VersionEdit) -> std::result::Result<(), Undecodable> {
        let no_such = |id: KeyspaceId| format!("keyspace {id} is changed and is not there");
        self.keyspace_changes += (edit.created.len() + edit.dropped.len()) as u64;
        for meta in &edit.created {
            let (id, name) = (meta.id, &meta.name);
            let keyspaces = &mut self.state.keyspaces;
            if u64::from(id) >= self.state.next_keyspace {
                return damaged(format!("keyspace {id} is in use, which was never given"));
            }
            // Only a snapshot names keyspaces of which an earlier manifest told.
            if self.edits > 1 && meta.flushed_through > self.state.facts.last_sequence {
                return damaged(format!("keyspace {id} begins after the last sequence"));
            }
            if !self.names.insert(name.clone()) {
                return damaged(format!("two keyspaces have the name {name:?}"));
            }
            let tables = KeyspaceTables { meta: meta.clone(), levels: Default::default() };
            if keyspaces.insert(id, tables).is_some() {
                return damaged(format!("keyspace {id} is created twice"));
            }
        }
        for (id, settings) in &edit.settings {
            match self.state.keyspaces.get_mut(id) {
                Some(keyspace) => keyspace.meta.settings.clone_from(settings),
                None => return damaged(no_such(*id)),
            }
        }
        for (id, sequence) in &edit.flushed_through {
            match self.state.keyspaces.get_mut(id) {
                Some(keyspace) if *sequence >= keyspace.meta.flushed_through => {
                    keyspace.meta.flushed_through = *sequence;
                }
                Some(_) => return damaged(format!("keyspace {id} goes back to {sequence}")),
                None => return damaged(no_such(*id)),
            }
            if *sequence > self.state.facts.last_sequence {
                return damaged(format!("keyspace {id} is flushed beyond the last sequence"));
            }
        }
        for &id in &edit.dropped {
            let dropped = self.state.keyspaces.remove(&id).filter(|_| id != DEFAULT_KEYSPACE);
            let Some(dropped) = dropped else {
                return damaged(format!("keyspace {id} is dropped and cannot be"));
            };
            self.names.remove(&dropped.meta.name);
            let of_it = self.tables.range((id, 0)..=(id, u64::MAX));
            let gone: Vec<u64> = of_it.map(|((_, number), _)| *number).collect();
            for number in gone {
                self.tables.remove(&(id, number));
                self.numbers.remove(&number);
            }
        }
        Ok(())
    }

    /// A file number or sequence in use must not be beyond the counter.
    fn check_in_use(
        &self,
        number: u64,
        sequence: SequenceNumber,
    ) -> std::result::Result<(), Undecodable> {
        let (next, last) = (self.state.next_file_number, self.state.facts.last_sequence);
        if number >= next || next > FILE_NUMBER_MAX {
            return damaged(format!("the next file number is {next} and {number} is in use"));
        }
        if sequence > last || last > SEQUENCE_MAX {
            return damaged(format!("the last sequence is {last} and {sequence} is in use"));
        }
        Ok(())
    }

    /// The sum of all edits.
    ///
    /// # Errors
    /// There is no edit, or tables of a level overlap.
    pub(crate) fn finish(mut self) -> std::result::Result<ManifestState, Undecodable> {
        if self.edits == 0 {
            return damaged("the manifest has no snapshot".into());
        }
        let facts = &mut self.state.facts;
        for (_, file) in self.tables.values() {
            facts.tables_through = facts.tables_through.max(file.largest_sequence);
            let ingested = file.global_sequence.unwrap_or(0);
            facts.ingested_through = facts.ingested_through.max(ingested);
        }
        for ((id, _), (level, file)) in self.tables {
            if let Some(keyspace) = self.state.keyspaces.get_mut(&id) {
                keyspace.levels[level].push(file);
            }
        }
        for keyspace in self.state.keyspaces.values_mut() {
            for (level, files) in keyspace.levels.iter_mut().enumerate() {
                files.sort_by(|a, b| search_order(level, a, b));
                if let Some(clash) = order_conflicts(level, &*files).first() {
                    return damaged(clash.to_string());
                }
            }
        }
        Ok(self.state)
    }
}

fn damaged<T>(what: String) -> std::result::Result<T, Undecodable> {
    Err(Undecodable::Damaged(what))
}

/// Appends edits to a new manifest.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    pub records: RecordWriter,
    /// The number in the manifest's name.
    pub number: u64,
    ordinal: u64,
    snapshot_bytes: u64,
    buffer: Vec<u8>,
}

impl ManifestWriter {
    /// Creates manifest `number` with `snapshot` as its first edit and makes both contents and
    /// name durable. It is not current yet.
    pub(crate) fn create(
        env: &dyn Env,
        directory: &Path,
        number: u64,
        snapshot: &VersionEdit,
    ) -> Result<Self> {
        let path = FileName::Manifest(number).path(directory);
        let records =
            RecordWriter::create(env, &path, RecordFile::Manifest, number, FORMAT_VERSION)?;
        let buffer = Vec::new();
        let mut writer = ManifestWriter { records, number, ordinal: 0, snapshot_bytes: 0, buffer };
        writer.write(snapshot)?;
        writer.records.sync_all()?;
        env.sync_dir(directory).map_err(|e| Error::io("sync_dir", directory, e))?;
        writer.snapshot_bytes = writer.records.bytes();
        Ok(writer)
    }

    /// Appends an edit and makes it durable. After an error the edit may or may not be there, and
    /// every later call returns the same error.
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        self.write(edit)?;
        self.records.sync_data()
    }

    /// True when it is longer than `limit_bytes` and a new one would be a good deal shorter.
    pub(crate) fn needs_rewrite(&self, limit_bytes: u64) -> bool {
        self.records.bytes() > limit_bytes
            && self.records.bytes() > REWRITE_FACTOR * self.snapshot_bytes
    }

    fn write(&mut self, edit: &VersionEdit) -> Result<()> {
        self.ordinal += 1;
        self.buffer.clear();
        edit.encode(self.ordinal, &mut self.buffer);
        self.records.append(iter::once(&self.buffer[..]))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::levels::LEVELS;
    use crate::base::sync::Arc;
    use crate::env::mem::MemEnv;
    use crate::env::testing::crash::CrashModel;
    use crate::env::testing::fault::{Calls, EIO, Fault, FaultEnv, FaultKind};
    use crate::log::wal::consistency::{CleanClose, ManifestFacts};
    use crate::tree::current::{read_current, set_current};
    use crate::tree::edit::{DeletedFile, FirstLog, SessionBegin};
    use std::ops::Bound;

    const NUMBER: u64 = 7;

    const DATABASE: DatabaseIdentity = DatabaseIdentity { id: 5, epoch: 2 };

    fn directory() -> &'static Path {
        Path::new("/")
    }

    /// A table with the keys from `start` to `last`, all of sequence `sequence`.
    fn file(number: u64, start: &str, last: &str, sequence: u64) -> FileMeta {
        FileMeta {
            keyspace: 0,
            number,
            table_id: number << 32,
            bytes: 1000 + number,
            start: start.into(),
            end: Bound::Included(last.into()),
            entries: 2,
            garbage: number % 2,
            expiring: Default::default(),
            range_deletes: 0,
            smallest_sequence: sequence,
            largest_sequence: sequence,
            global_sequence: None,
        }
    }

    fn snapshot() -> VersionEdit {
        let state = ManifestState {
            next_file_number: 100,
            checkpoint_of: Some(DatabaseIdentity { id: 6, epoch: 1 }),
            ancestors: vec![6, 9],
            sessions: vec![SessionBegin { id: 4, begins_after: 30 }],
            facts: ManifestFacts {
                last_sequence: 50,
                log_number: 8,
                flushed_through: 40,
                database: DATABASE,
                ..ManifestFacts::default()
            },
            ..ManifestState::new_database(DATABASE)
        };
        state.snapshot()
    }

    fn adding(files: Vec<(usize, FileMeta)>) -> VersionEdit {
        VersionEdit { added: files, ..VersionEdit::default() }
    }

    fn deleting(files: &[(usize, u64)]) -> VersionEdit {
        let deleted = |&(level, number): &(usize, u64)| DeletedFile { keyspace: 0, level, number };
        VersionEdit { deleted: files.iter().map(deleted).collect(), ..VersionEdit::default() }
    }

    fn written(edits: &[VersionEdit]) -> (Vec<u8>, Vec<u64>) {
        let env = MemEnv::with_log();
        let mut writer = ManifestWriter::create(&env, directory(), NUMBER, &edits[0]).unwrap();
        let mut ends = vec![writer.records.bytes()];
        for edit in &edits[1..] {
            writer.append(edit).unwrap();
            ends.push(writer.records.bytes());
        }
        let path = FileName::Manifest(NUMBER).path(directory());
        (env.read_file(&path).unwrap(), ends)
    }

    fn replayed(bytes: &[u8]) -> Result<ManifestState> {
        let (env, path) = (MemEnv::new(), Path::new("/MANIFEST-000007"));
        env.write_file(path, bytes);
        replay_file(&env, path, NUMBER)
    }

    fn refusal(edits: &[VersionEdit]) -> String {
        let (bytes, _) = written(edits);
        match replayed(&bytes) {
            Err(error @ (Error::Corruption { .. } | Error::UnsupportedFormat { .. })) => {
                error.to_string()
            }
            result => panic!("{result:?}"),
        }
    }

    fn sample() -> Vec<VersionEdit> {
        vec![
            snapshot(),
            adding(vec![(0, file(10, "a", "m", 41)), (0, file(11, "b", "c", 42))]),
            VersionEdit {
                first_log: Some(FirstLog { number: 12, flushed_through: 45 }),
                last_sequence: Some(60),
                synced_through: Some(59),
                ..adding(vec![(0, file(13, "x", "z", 45))])
            },
            VersionEdit {
                added: vec![(1, file(15, "n", "z", 42)), (1, file(14, "a", "m", 41))],
                next_file_number: Some(120),
                expired_through: Some(9_000),
                ..deleting(&[(0, 10), (0, 11)])
            },
            // The same file one level down.
            VersionEdit {
                added: vec![(2, file(15, "n", "z", 42))],
                // The time of a later job is never before that of an earlier one.
                expired_through: Some(8_000),
                ..deleting(&[(1, 15)])
            },
            VersionEdit {
                clean_close: Some(CleanClose { log: 16, log_bytes: 700, last_sequence: 60 }),
                ..VersionEdit::default()
            },
        ]
    }

    #[test]
    fn edits_accumulate_into_a_version() {
        let (bytes, ends) = written(&sample());
        let state = replayed(&bytes).unwrap();
        let mut levels: [Vec<FileMeta>; LEVELS] = Default::default();
        levels[0] = vec![file(13, "x", "z", 45)];
        levels[1] = vec![file(14, "a", "m", 41)];
        levels[2] = vec![file(15, "n", "z", 42)];
        let facts = ManifestFacts {
            database: DATABASE,
            number: NUMBER,
            bytes: *ends.last().unwrap(),
            log_number: 12,
            flushed_through: 45,
            last_sequence: 60,
            synced_through: 59,
            tables_through: 45,
            ingested_through: 0,
            session_log: 0,
            clean_close: Some(CleanClose { log: 16, log_bytes: 700, last_sequence: 60 }),
        };
        let default = KeyspaceTables { meta: KeyspaceMeta::default_keyspace(), levels };
        let expected = ManifestState {
            facts,
            dropped: None,
            sessions: vec![SessionBegin { id: 4, begins_after: 30 }],
            checkpoint_of: Some(DatabaseIdentity { id: 6, epoch: 1 }),
            ancestors: vec![6, 9],
            keyspaces: BTreeMap::from([(0, default)]),
            next_keyspace: 1,
            next_file_number: 120,
            expired_through: 9_000,
        };
        assert_eq!(state, expected);
        let (bytes, ends) = written(&[state.snapshot()]);
        assert_eq!(
            replayed(&bytes).unwrap(),
            ManifestState { facts: ManifestFacts { bytes: ends[0], ..facts }, ..expected }
        );
    }

    #[test]
    fn levels_are_ordered_after_recovery() {
        let files = [file(10, "a", "z", 3), file(11, "a", "z", 9), file(12, "a", "z", 5)];
        let deeper = [file(20, "n", "z", 1), file(21, "a", "m", 1)];
        let added = files.map(|file| (0, file)).into_iter().chain(deeper.map(|file| (3, file)));
        let (bytes, _) = written(&[snapshot(), adding(added.collect())]);
        let state = replayed(&bytes).unwrap();
        let numbers = |level: usize| {
            state.keyspaces[&0].levels[level].iter().map(|f| f.number).collect::<Vec<_>>()
        };
        assert_eq!((numbers(0), numbers(3)), (vec![11, 12, 10], vec![21, 20]));
    }

    #[test]
    fn cut_manifests_drop_only_the_torn_edit() {
        for sample in [sample(), keyspace_sample()] {
            let (bytes, ends) = written(&sample);
            for (cut, zeros) in (0..bytes.len()).flat_map(|cut| [(cut, 0), (cut, 700)]) {
                let mut cut_bytes = bytes[..cut].to_vec();
                cut_bytes.resize(cut + zeros, 0);
                let whole = ends.iter().filter(|&&end| end <= cut as u64).count();
                match replayed(&cut_bytes) {
                    Ok(state) => {
                        let expected = replayed(&written(&sample[..whole]).0).unwrap();
                        assert_eq!(state.dropped.is_some(), !ends.contains(&(cut as u64)));
                        assert_eq!(ManifestState { dropped: None, ..state }, expected);
                    }
                    Err(error) => {
                        assert!(error.is_corruption() && whole == 0, "cut at {cut}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_flip_is_refused() {
        for sample in [sample(), keyspace_sample()] {
            let (mut bytes, _) = written(&sample);
            for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                bytes[at] ^= 1 << bit;
                let error = replayed(&bytes).unwrap_err();
                assert!(error.is_corruption(), "byte {at}, bit {bit}: {error}");
                bytes[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn a_torn_edit_before_others_is_corruption() {
        let big = (100..160).map(|i| {
            let name = format!("{i}");
            (1, file(i, &name, &name, 1))
        });
        let raised = VersionEdit { next_file_number: Some(200), ..adding(big.collect()) };
        let (bytes, ends) = written(&[snapshot(), raised, adding(Vec::new())]);
        let sector = (ends[0] as usize / 512 + 2) * 512;
        let mut zeroed = bytes.clone();
        zeroed[sector..sector + 512].fill(0);
        assert!(replayed(&zeroed).unwrap_err().is_corruption());
        // Without the edit after it, it is the torn end.
        zeroed.truncate(ends[1] as usize);
        assert_eq!(replayed(&zeroed).unwrap().facts.bytes, ends[0]);
    }

    #[test]
    fn edits_that_do_not_fit_are_corruption() {
        let a = || file(10, "a", "m", 41);
        let added = || adding(vec![(1, a())]);
        let next = |edit: VersionEdit| refusal(&[snapshot(), added(), edit]);
        assert!(next(added()).contains("file 10 is added twice"));
        assert!(next(adding(vec![(2, a())])).contains("file 10 is added twice"));
        assert!(next(deleting(&[(1, 11)])).contains("file 11 leaves level 1"));
        assert!(next(deleting(&[(2, 10)])).contains("file 10 leaves level 2"));
        let twice = [(0, file(11, "c", "z", 40)), (0, file(12, "a", "c", 40))];
        let as_old = refusal(&[snapshot(), adding(twice.to_vec())]);
        assert!(as_old.contains("000012.sst and 000011.sst overlap in level 0"), "{as_old}");
        let touching = next(adding(vec![(1, file(11, "m", "z", 2))]));
        assert!(touching.contains("000010.sst and 000011.sst overlap in level 1"), "{touching}");
        assert!(next(adding(vec![(0, file(11, "m", "z", 51))])).contains("sequence is 50 and 51"));
        assert!(next(adding(vec![(0, file(100, "m", "z", 1))])).contains("number is 100 and 100"));
        let log = |number, flushed_through| VersionEdit {
            first_log: Some(FirstLog { number, flushed_through }),
            ..VersionEdit::default()
        };
        assert!(next(log(7, 41)).contains("goes back"));
        assert!(next(log(9, 39)).contains("goes back"));
        assert!(next(log(100, 41)).contains("number is 100 and 100"));
        assert!(next(log(9, 51)).contains("sequence is 50 and 51"));
        let mark = |log, last_sequence| VersionEdit {
            clean_close: Some(CleanClose { log, log_bytes: 100, last_sequence }),
            ..VersionEdit::default()
        };
        assert!(next(mark(100, 50)).contains("number is 100 and 100"));
        assert!(next(mark(99, 51)).contains("sequence is 50 and 51"));
        let after = refusal(&[snapshot(), mark(99, 50), added()]);
        assert!(after.contains("an edit follows the mark"), "{after}");
        let claim = VersionEdit { synced_through: Some(51), ..VersionEdit::default() };
        assert!(next(claim).contains("sequence is 50 and 51"));
    }

    #[test]
    fn manifests_start_with_a_full_snapshot() {
        assert!(refusal(&[adding(Vec::new())]).contains("not a snapshot"));
        let foreign = VersionEdit { comparator: Some("other.order".into()), ..snapshot() };
        assert!(refusal(&[foreign]).contains("other.order"));
        let (bytes, _) = written(&[snapshot()]);
        assert!(replayed(&bytes[..20]).unwrap_err().is_corruption());
        assert!(replayed(&[]).unwrap_err().is_corruption());
    }

    #[test]
    fn an_edit_left_out_is_noticed() {
        let (bytes, ends) = written(&sample());
        let mut without_second = bytes[..ends[0] as usize].to_vec();
        without_second.extend_from_slice(&bytes[ends[1] as usize..]);
        let error = replayed(&without_second).unwrap_err().to_string();
        assert!(error.contains("edit 3 is where 2 belongs"), "{error}");
    }

    #[test]
    fn current_and_manifest_survive_every_crash() {
        let env = MemEnv::with_log();
        assert!(replay(&env, directory(), NUMBER).unwrap_err().is_corruption(), "missing");
        assert_eq!(read_current(&env, directory()).unwrap(), None);
        let mut writer = ManifestWriter::create(&env, directory(), NUMBER, &snapshot()).unwrap();
        set_current(&env, directory(), NUMBER, 9).unwrap();
        let installed = env.log_len();
        let edit = VersionEdit { last_sequence: Some(70), ..VersionEdit::default() };
        writer.append(&edit).unwrap();
        ManifestWriter::create(&env, directory(), 20, &snapshot()).unwrap();
        set_current(&env, directory(), 20, 21).unwrap();
        for calls in 0..=env.log_len() {
            let models = [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix];
            for seed in 0..90 {
                let model = models[seed as usize % 3];
                let crashed = env.replay(calls, model, seed);
                let current = read_current(&crashed, directory()).unwrap();
                assert!(current.is_some() || calls < installed, "{calls} {model:?} {seed}");
                if let Some(number) = current {
                    assert!(number == NUMBER || number == 20);
                    replay(&crashed, directory(), number).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_failed_append_stops_the_manifest() {
        for call in ["write_at", "sync_data"] {
            let calls = Calls::Named(call);
            let memory = MemEnv::with_log();
            let env = FaultEnv::new(Arc::new(memory.clone()));
            let mut writer =
                ManifestWriter::create(&env, directory(), NUMBER, &snapshot()).unwrap();
            let fault = Fault::once(FaultKind::Error(EIO)).among(calls);
            env.fail_at(env.calls_of(calls), fault);
            let first = writer.append(&adding(Vec::new())).unwrap_err();
            let calls = memory.log_len();
            let second = writer.append(&adding(Vec::new())).unwrap_err();
            assert_eq!(first.to_string(), second.to_string());
            assert_eq!(memory.log_len(), calls);
        }
    }

    #[test]
    fn a_long_manifest_asks_to_be_rewritten() {
        let env = MemEnv::new();
        let mut writer = ManifestWriter::create(&env, directory(), NUMBER, &snapshot()).unwrap();
        let name = "k".repeat(10_000);
        let mut edits = 0;
        while !writer.needs_rewrite(1 << 20) {
            writer.append(&adding(vec![(0, file(10, &name, &name, 1))])).unwrap();
            edits += 1;
        }
        assert!((50..55).contains(&edits), "{edits}");
        let mut seen = 0;
        let path = FileName::Manifest(NUMBER).path(directory());
        let header = visit(&env, &path, NUMBER, &mut |_, edit| {
            seen += usize::from(edit.is_ok());
        })
        .unwrap();
        assert_eq!((header, seen), (HeaderState::Good, edits + 1));
    }

    /// A keyspace as an edit creates it; settings are any bytes here.
    fn keyspace(id: KeyspaceId, name: &str) -> KeyspaceMeta {
        KeyspaceMeta { id, name: name.into(), flushed_through: 45, settings: vec![7, 1, 3] }
    }

    fn creating(id: KeyspaceId, name: &str) -> VersionEdit {
        VersionEdit {
            next_keyspace: Some(u64::from(id) + 1),
            created: vec![keyspace(id, name)],
            ..VersionEdit::default()
        }
    }

    fn dropping(id: KeyspaceId) -> VersionEdit {
        VersionEdit { dropped: vec![id], ..VersionEdit::default() }
    }

    fn in_keyspace(id: KeyspaceId, number: u64) -> (usize, FileMeta) {
        (1, FileMeta { keyspace: id, ..file(number, "a", "m", 46) })
    }

    /// Edits with each field of keyspaces.
    fn keyspace_sample() -> Vec<VersionEdit> {
        vec![
            snapshot(),
            creating(1, "one"),
            creating(2, "two"),
            VersionEdit {
                settings: vec![(2, vec![9, 2, 1, 1]), (0, vec![1])],
                flushed_through: vec![(0, 46), (2, 47)],
                ..adding(vec![in_keyspace(1, 20), in_keyspace(2, 21)])
            },
            dropping(1),
            creating(3, "one"),
        ]
    }

    #[test]
    fn keyspaces_accumulate_and_go_with_their_tables() {
        let state = replayed(&written(&keyspace_sample()).0).unwrap();
        let metas: Vec<_> = state.keyspaces.values().map(|one| one.meta.clone()).collect();
        let default = KeyspaceMeta {
            flushed_through: 46,
            settings: vec![1],
            ..KeyspaceMeta::default_keyspace()
        };
        let two =
            KeyspaceMeta { flushed_through: 47, settings: vec![9, 2, 1, 1], ..keyspace(2, "two") };
        assert_eq!(metas, [default, two, keyspace(3, "one")]);
        assert_eq!(state.next_keyspace, 4);
        let tables: Vec<_> = state.tables().map(|(level, meta)| (level, meta.clone())).collect();
        assert_eq!(tables, [in_keyspace(2, 21)]);
        // A snapshot of it says the same.
        let again = replayed(&written(&[state.snapshot()]).0).unwrap();
        assert_eq!((again.keyspaces, again.next_keyspace), (state.keyspaces, 4));
    }

    /// Version 0.1 reads such an edit, too: its replay is the same.
    #[test]
    fn one_edit_creates_fills_and_drops() {
        let moving =
            VersionEdit { dropped: vec![1], added: vec![in_keyspace(2, 21)], ..creating(2, "two") };
        let edits = [snapshot(), creating(1, "one"), adding(vec![in_keyspace(1, 20)]), moving];
        let state = replayed(&written(&edits).0).unwrap();
        let names: Vec<_> = state.keyspaces.values().map(|one| &one.meta.name[..]).collect();
        assert_eq!(names, ["default", "two"]);
        assert_eq!(state.tables().map(|(_, meta)| meta.number).collect::<Vec<_>>(), [21]);
        // One name cannot go and come in one edit.
        let again = VersionEdit { dropped: vec![1], ..creating(2, "one") };
        let said = refusal(&[snapshot(), creating(1, "one"), again]);
        assert!(said.contains("two keyspaces have the name"), "{said}");
    }

    #[test]
    fn keyspaces_that_do_not_fit_are_corruption() {
        let next = |edit: VersionEdit| refusal(&[snapshot(), creating(5, "five"), edit]);
        let cases: [(VersionEdit, &str); 15] = [
            (creating(5, "other"), "keyspace 5 is created twice"),
            (creating(6, "five"), "two keyspaces have the name \"five\""),
            (creating(6, "default"), "two keyspaces have the name \"default\""),
            (
                VersionEdit {
                    created: vec![keyspace(6, "x"), keyspace(6, "y")],
                    next_keyspace: Some(7),
                    ..VersionEdit::default()
                },
                "keyspace 6 is created twice",
            ),
            (
                VersionEdit { next_keyspace: None, ..creating(6, "six") },
                "keyspace 6 is in use, which was never given",
            ),
            (
                VersionEdit { next_keyspace: Some(7), ..creating(8, "eight") },
                "keyspace 8 is in use, which was never given",
            ),
            (adding(vec![in_keyspace(4, 20)]), "file 20 is of keyspace 4, which is not there"),
            (adding(vec![in_keyspace(6, 20)]), "file 20 is of keyspace 6, which is not there"),
            (adding(vec![in_keyspace(5, 20), in_keyspace(0, 20)]), "file 20 is added twice"),
            (dropping(4), "keyspace 4 is dropped and cannot be"),
            (dropping(0), "keyspace 0 is dropped and cannot be"),
            (
                VersionEdit { settings: vec![(4, vec![1])], ..VersionEdit::default() },
                "keyspace 4 is changed and is not there",
            ),
            (
                VersionEdit { flushed_through: vec![(4, 46)], ..VersionEdit::default() },
                "keyspace 4 is changed and is not there",
            ),
            (
                VersionEdit { flushed_through: vec![(5, 44)], ..VersionEdit::default() },
                "keyspace 5 goes back to 44",
            ),
            (
                VersionEdit { flushed_through: vec![(5, 51)], ..VersionEdit::default() },
                "keyspace 5 is flushed beyond the last sequence",
            ),
        ];
        for (edit, expected) in cases {
            let said = next(edit.clone());
            assert!(said.contains(expected), "{edit:?}: {said}");
        }
        // Dropped twice, and a table of a dropped one.
        let dropped = || vec![snapshot(), creating(5, "five"), dropping(5)];
        let after = |edit: VersionEdit| refusal(&[dropped(), vec![edit]].concat());
        assert!(after(dropping(5)).contains("cannot be"));
        assert!(after(adding(vec![in_keyspace(5, 20)])).contains("which is not there"));
        let removed = DeletedFile { keyspace: 5, level: 1, number: 20 };
        let removes = VersionEdit { deleted: vec![removed], ..VersionEdit::default() };
        assert!(after(removes).contains("file 20 leaves level 1"));
    }

    #[test]
    fn bad_names_of_keyspaces_are_corruption() {
        for name in ["", &"n".repeat(256), "a\nb", "\0"] {
            let said = refusal(&[snapshot(), creating(1, name)]);
            assert!(said.contains("name"), "{name:?}: {said}");
        }
        replayed(&written(&[snapshot(), creating(1, &"n".repeat(255))]).0).unwrap();
    }
}
