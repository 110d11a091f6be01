//! The manifest: the log of version edits, and `CURRENT`, which names the one in force.
//!
//! A manifest is a record file (see `record`) whose first edit is a snapshot and whose edits are
//! counted from 1. [`ManifestWriter::create`] writes one without putting it in force,
//! [`set_current`] does that; each [`ManifestWriter::append`] is durable when it returns, and after
//! one that failed the writer takes no more: write a new manifest then, and delete nothing.
//!
//! [`replay`] reads one back and checks what the edits say together. A record that a crash cut
//! short at the very end is dropped; anything else that does not fit is `Corruption`. A manifest
//! cut between two records looks whole from here: the logs know how long it was (`wal::recover`).
//!
//! `CURRENT` is one line of text: `siftdb 1 MANIFEST-000007 ` and eight hex digits, the masked
//! CRC-32 of what stands before them.

use crate::checksum::masked;
use crate::env::api::{Env, read_file, replace_file};
use crate::error::{Error, Result};
use crate::filename::{self, FileName};
use crate::key::{SEQUENCE_MAX, SequenceNumber, compare_internal, user_key};
use crate::record::format::{HeaderState, RecordFile, Undecodable};
use crate::record::reader::{RecordReader, Step};
use crate::record::writer::RecordWriter;
use crate::stats::counters::LEVELS;
use crate::version::edit::{COMPARATOR, FileMeta, FirstLog, VersionEdit};
use crate::wal::recover::ManifestFacts;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::iter;
use std::path::Path;

/// A manifest larger than this, and [`REWRITE_FACTOR`] times its snapshot, is written anew.
const REWRITE_BYTES: u64 = 1 << 20;
const REWRITE_FACTOR: u64 = 4;

/// A manifest beyond this was not written by siftdb: room for millions of tables.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

const CURRENT_BYTES_MAX: u64 = 256;
const CURRENT_VERSION: &str = "1";

/// What a manifest says when all its edits are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestState {
    /// Its number.
    pub number: u64,
    /// Its length without a last record that was cut short.
    pub bytes: u64,
    /// What was dropped at the end, if anything; then nobody may append to it.
    pub dropped: Option<String>,
    /// The tables of each level: newest first in level 0, by smallest key in the others.
    pub levels: [Vec<FileMeta>; LEVELS],
    /// The oldest log that is needed.
    pub log_number: u64,
    /// Everything up to this sequence is in tables.
    pub flushed_through: SequenceNumber,
    /// Above every file number in use.
    pub next_file_number: u64,
    /// The last sequence given to a write, as far as the manifest knows.
    pub last_sequence: SequenceNumber,
    /// The last sequence known to be durable, as far as the manifest knows.
    pub synced_through: SequenceNumber,
}

impl ManifestState {
    /// The one edit that makes this state from nothing.
    #[must_use]
    pub fn snapshot(&self) -> VersionEdit {
        let added = self.levels.iter().enumerate();
        VersionEdit {
            ordinal: 0,
            comparator: Some(COMPARATOR.into()),
            first_log: Some(FirstLog {
                number: self.log_number,
                flushed_through: self.flushed_through,
            }),
            next_file_number: Some(self.next_file_number),
            last_sequence: Some(self.last_sequence),
            synced_through: Some(self.synced_through),
            deleted: Vec::new(),
            added: added
                .flat_map(|(level, files)| files.iter().map(move |file| (level, file.clone())))
                .collect(),
        }
    }

    /// What recovery of the logs must know.
    #[must_use]
    pub fn facts(&self) -> ManifestFacts {
        ManifestFacts {
            number: self.number,
            bytes: self.bytes,
            log_number: self.log_number,
            flushed_through: self.flushed_through,
            last_sequence: self.last_sequence,
            synced_through: self.synced_through,
        }
    }
}

/// The number of the manifest in force; `None` if there is no `CURRENT`.
pub fn read_current(env: &dyn Env, directory: &Path) -> Result<Option<u64>> {
    let path = FileName::Current.path(directory);
    match env.metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("metadata", &path, error)),
        Ok(_) => {}
    }
    let contents = read_file(env, &path, CURRENT_BYTES_MAX)?;
    decode_current(&contents).map(Some).map_err(|bad| bad.into_error(&path, 0))
}

/// Puts the manifest `number` in force, by way of the temporary file `temporary_number`. The
/// manifest's own name must be durable: [`ManifestWriter::create`] sees to that.
pub fn set_current(
    env: &dyn Env,
    directory: &Path,
    number: u64,
    temporary_number: u64,
) -> Result<()> {
    let temporary = FileName::Temporary(temporary_number);
    replace_file(env, directory, temporary, FileName::Current, &encode_current(number))
}

fn encode_current(number: u64) -> Vec<u8> {
    let front = format!("siftdb {CURRENT_VERSION} {} ", FileName::Manifest(number));
    let sum = masked(front.as_bytes());
    format!("{front}{sum:08x}\n").into_bytes()
}

/// The manifest number in the contents of a `CURRENT`.
pub fn decode_current(contents: &[u8]) -> std::result::Result<u64, Undecodable> {
    let damaged = |what: &str| Undecodable::Damaged(what.into());
    let text = std::str::from_utf8(contents).map_err(|_| damaged("CURRENT is not text"))?;
    let fields = text.split([' ', '\n']).collect::<Vec<_>>();
    let ["siftdb", version, name, sum, ""] = fields[..] else {
        return Err(damaged("CURRENT is not of the form `siftdb 1 MANIFEST-000001 checksum`"));
    };
    let front = format!("siftdb {version} {name} ");
    if format!("{:08x}", masked(front.as_bytes())) != sum {
        return Err(damaged("CURRENT fails its checksum"));
    }
    if version != CURRENT_VERSION {
        return Err(Undecodable::Unknown(format!("CURRENT of version {version:?}")));
    }
    match filename::parse(name) {
        Some(FileName::Manifest(number)) if encode_current(number) == contents => Ok(number),
        _ => Err(damaged("CURRENT does not name a manifest")),
    }
}

/// Reads manifest `number` back.
pub fn replay(env: &dyn Env, directory: &Path, number: u64) -> Result<ManifestState> {
    let path = FileName::Manifest(number).path(directory);
    let bytes = match read_file(env, &path, MANIFEST_BYTES_MAX) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(Error::corruption(&path, 0, "CURRENT names this manifest; it is missing"));
        }
        result => result?,
    };
    replay_bytes(&path, number, &bytes)
}

/// Replays the contents of manifest `number`; `path` is for errors.
pub fn replay_bytes(path: &Path, number: u64, bytes: &[u8]) -> Result<ManifestState> {
    match RecordFile::Manifest.check_header(number, bytes) {
        HeaderState::Good => {}
        // Its header and snapshot were durable before anything named it.
        HeaderState::Torn => return Err(Error::corruption(path, 0, "the file header is missing")),
        HeaderState::Bad(bad) => return Err(bad.into_error(path, 0)),
    }
    let mut replay = Replay::default();
    replay.state.number = number;
    let mut reader = RecordReader::new(bytes, number);
    loop {
        match reader.step() {
            Step::Record(record) => {
                VersionEdit::decode(&record.payload)
                    .and_then(|edit| replay.apply(edit))
                    .map_err(|bad| bad.into_error(path, record.start))?;
                replay.state.bytes = record.end;
            }
            Step::Bad(bad) => {
                let is_tail = matches!(reader.step(), Step::End);
                if !bad.torn || !is_tail || replay.edits == 0 {
                    return Err(Error::corruption(path, bad.offset, bad.what));
                }
                replay.state.dropped = Some(format!("byte {}: {}", bad.offset, bad.what));
                break;
            }
            Step::End => break,
        }
    }
    let end = replay.state.bytes;
    replay.finish().map_err(|bad| bad.into_error(path, end))
}

/// Calls `visit` with offset and contents of every edit in the manifest `bytes` of file `number`,
/// as far as they decode, and with the text of what does not.
pub fn visit(
    bytes: &[u8],
    number: u64,
    visit: &mut dyn FnMut(u64, std::result::Result<VersionEdit, String>),
) -> HeaderState {
    let mut reader = RecordReader::new(bytes, number);
    loop {
        match reader.step() {
            Step::Record(record) => {
                let edit = VersionEdit::decode(&record.payload);
                visit(record.start, edit.map_err(|bad| format!("{bad:?}")));
            }
            Step::Bad(bad) => visit(bad.offset, Err(bad.what)),
            Step::End => return RecordFile::Manifest.check_header(number, bytes),
        }
    }
}

/// The edits applied so far.
#[derive(Default)]
struct Replay {
    state: ManifestState,
    edits: u64,
    levels: [BTreeMap<u64, FileMeta>; LEVELS],
    numbers: HashSet<u64>,
}

impl Replay {
    fn apply(&mut self, edit: VersionEdit) -> std::result::Result<(), Undecodable> {
        self.edits += 1;
        if edit.ordinal != self.edits {
            return damaged(format!("edit {} stands where {} belongs", edit.ordinal, self.edits));
        }
        if let Some(name) = edit.comparator.as_ref().filter(|name| *name != COMPARATOR) {
            let what = format!("keys in the order {name:?}; known is {COMPARATOR:?}");
            return Err(Undecodable::Unknown(what));
        }
        let is_snapshot = edit.comparator.is_some()
            && edit.first_log.is_some()
            && edit.next_file_number.is_some()
            && edit.last_sequence.is_some();
        if self.edits == 1 && !is_snapshot {
            return damaged("the first edit is not a snapshot".into());
        }
        let state = &mut self.state;
        if let Some(log) = edit.first_log {
            if log.number < state.log_number || log.flushed_through < state.flushed_through {
                return damaged(format!("the first log goes back to {}", log.number));
            }
            state.log_number = log.number;
            state.flushed_through = log.flushed_through;
        }
        let raise = |old: &mut u64, new: Option<u64>| *old = new.unwrap_or(0).max(*old);
        raise(&mut state.next_file_number, edit.next_file_number);
        raise(&mut state.last_sequence, edit.last_sequence);
        raise(&mut state.synced_through, edit.synced_through);
        for (level, number) in edit.deleted {
            if self.levels.get_mut(level).and_then(|files| files.remove(&number)).is_none() {
                return damaged(format!("file {number} leaves level {level} and is not there"));
            }
            self.numbers.remove(&number);
        }
        self.check_in_use(
            self.state.number.max(self.state.log_number),
            self.state.flushed_through,
        )?;
        for (level, file) in edit.added {
            let number = file.number;
            // The counters only rise, so it is enough to look when a file is added.
            self.check_in_use(number, file.largest_sequence)?;
            if !self.numbers.insert(number) {
                return damaged(format!("file {number} is added twice"));
            }
            if let Some(files) = self.levels.get_mut(level) {
                files.insert(number, file);
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
        let (next, last) = (self.state.next_file_number, self.state.last_sequence);
        if number >= next {
            return damaged(format!("the next file number is {next} and {number} is in use"));
        }
        if sequence > last || last > SEQUENCE_MAX {
            return damaged(format!("the last sequence is {last} and {sequence} is in use"));
        }
        Ok(())
    }

    fn finish(mut self) -> std::result::Result<ManifestState, Undecodable> {
        if self.edits == 0 {
            return damaged("the manifest has no snapshot".into());
        }
        for (level, files) in self.levels.into_iter().enumerate() {
            let mut files: Vec<FileMeta> = files.into_values().collect();
            if level == 0 {
                files.sort_by_key(|file| std::cmp::Reverse((file.largest_sequence, file.number)));
            } else {
                files.sort_by(|a, b| compare_internal(&a.smallest, &b.smallest));
                for (left, right) in files.iter().zip(files.iter().skip(1)) {
                    if user_key(&left.largest) >= user_key(&right.smallest) {
                        let (left, right) = (left.number, right.number);
                        return damaged(format!(
                            "files {left} and {right} overlap in level {level}"
                        ));
                    }
                }
            }
            if let Some(place) = self.state.levels.get_mut(level) {
                *place = files;
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
pub struct ManifestWriter {
    records: RecordWriter,
    number: u64,
    ordinal: u64,
    snapshot_bytes: u64,
    buffer: Vec<u8>,
}

impl ManifestWriter {
    /// Creates manifest `number` with `snapshot` as its first edit and makes both contents and
    /// name durable. It is not in force yet.
    pub fn create(
        env: &dyn Env,
        directory: &Path,
        number: u64,
        snapshot: &VersionEdit,
    ) -> Result<Self> {
        let path = FileName::Manifest(number).path(directory);
        let records = RecordWriter::create(env, &path, RecordFile::Manifest, number)?;
        let buffer = Vec::new();
        let mut writer = ManifestWriter { records, number, ordinal: 0, snapshot_bytes: 0, buffer };
        writer.write(snapshot)?;
        writer.records.sync_all()?;
        env.sync_dir(directory).map_err(|e| Error::io("sync_dir", directory, e))?;
        writer.snapshot_bytes = writer.bytes();
        Ok(writer)
    }

    /// Appends an edit and makes it durable. After an error the edit may or may not be there, and
    /// every later call answers the same error.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        self.write(edit)?;
        self.records.sync_data()
    }

    /// The number in the manifest's name.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The length of the manifest; all of it is durable unless an append failed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.records.bytes()
    }

    /// True when a new manifest would be a good deal shorter.
    #[must_use]
    pub fn needs_rewrite(&self) -> bool {
        self.bytes() > REWRITE_BYTES && self.bytes() > REWRITE_FACTOR * self.snapshot_bytes
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
    use crate::env::mem::MemEnv;

    #[test]
    fn current_and_manifest_come_back() {
        let env = MemEnv::new();
        let directory = Path::new("/db");
        env.create_dir(directory).unwrap();
        assert_eq!(read_current(&env, directory).unwrap(), None);
        let state = ManifestState { next_file_number: 8, ..ManifestState::default() };
        let mut writer = ManifestWriter::create(&env, directory, 7, &state.snapshot()).unwrap();
        set_current(&env, directory, 7, 8).unwrap();
        let edit = VersionEdit { last_sequence: Some(5), ..VersionEdit::default() };
        writer.append(&edit).unwrap();
        assert_eq!(read_current(&env, directory).unwrap(), Some(7));
        let back = replay(&env, directory, 7).unwrap();
        assert_eq!((back.last_sequence, back.bytes), (5, writer.bytes()));
    }
}
