//! Reads the logs back: where history ends, and whether anything that was durable is missing.
//!
//! Called once by opening, with every log from the manifest's first on, in order; nothing is
//! written. Batches go to `apply` as they are read; if the answer is an error, what was applied
//! must be thrown away.
//!
//! Let S be the first sequence that is missing or bad. If the manifest, or any valid record behind
//! S, says that S was durable, the files are damaged. Otherwise history ends before S if a crash
//! can have left it so: the log ends there, is torn there (see `record::reader`), or the next log
//! begins later than it ends. Everything behind is dropped, later logs included. Any other bad
//! place is damage.
//!
//! A log whose start continues exactly where good records ended settles that nothing is missing
//! there: an earlier recovery judged that tail. A log of an opening that did not finish names a
//! manifest that is not in force yet; it holds no writes and is passed over.

use crate::env::api::{Env, read_file};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::key::SequenceNumber;
use crate::record::format::{HeaderState, RecordFile};
use crate::record::reader::{Record, RecordReader, Step};
use crate::wal::format::{WalBody, WalRecord, WalStart, decode, last_sequence};
use crate::write_batch::DecodedBatch;
use std::io;
use std::path::{Path, PathBuf};

/// A log beyond this was not written by siftdb: room for a write buffer and the largest group.
const LOG_BYTES_MAX: u64 = 16 << 30;

/// What the manifest knows of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestFacts {
    /// The number of the manifest.
    pub number: u64,
    /// Its valid length.
    pub bytes: u64,
    /// The oldest log that is needed, 0 if there is none.
    pub log_number: u64,
    /// Everything up to this sequence is in tables.
    pub flushed_through: SequenceNumber,
    /// The last sequence given to a write.
    pub last_sequence: SequenceNumber,
    /// The last sequence known to be durable.
    pub synced_through: SequenceNumber,
}

/// What the logs held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredLogs {
    /// The last sequence of the history that was recovered, tables included.
    pub last_sequence: SequenceNumber,
    /// The last sequence seen anywhere, dropped records and the manifest included: new writes are
    /// numbered from behind it.
    pub highest_sequence: SequenceNumber,
    /// The last log that is part of the history; the predecessor of the next one. 0 if none.
    pub last_log: u64,
    /// The last log was closed and nothing was dropped: opening need not write anything.
    pub clean: bool,
    /// What was dropped at the end of history, for the user; a crash is the only cause.
    pub dropped: Option<String>,
}

/// Receives each batch with the number of its log, in order.
pub type Apply<'a> = &'a mut dyn FnMut(u64, &DecodedBatch<'_>) -> Result<()>;

/// Reads `logs`, which must be sorted and start at the manifest's first log.
pub fn recover(
    env: &dyn Env,
    directory: &Path,
    logs: &[u64],
    facts: &ManifestFacts,
    apply: Apply<'_>,
) -> Result<RecoveredLogs> {
    if facts.log_number != 0 && logs.first() != Some(&facts.log_number) {
        return Err(missing_log(directory, facts.log_number, "the manifest needs it"));
    }
    let mut recovery = Recovery {
        directory,
        logs,
        facts,
        last: facts.flushed_through,
        next: facts.flushed_through + 1,
        highest: facts.last_sequence.max(facts.flushed_through),
        last_log: 0,
        closed: false,
        bad: None,
        over: false,
        proof: Proof::default(),
        apply,
    };
    for &number in logs {
        let path = FileName::Wal(number).path(directory);
        let bytes = match read_file(env, &path, LOG_BYTES_MAX) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(missing_log(directory, number, "it is needed"));
            }
            result => result?,
        };
        recovery.read_log(&Log { number, path, bytes: &bytes })?;
    }
    recovery.finish()
}

fn missing_log(directory: &Path, number: u64, why: &str) -> Error {
    let path = FileName::Wal(number).path(directory);
    Error::corruption(path, 0, format!("the log is missing and {why}"))
}

fn newer_manifest(log: &Log<'_>, record: &Record<'_>) -> Error {
    log.corruption(record.start, "the log was in use under a newer manifest than CURRENT names")
}

struct Log<'a> {
    number: u64,
    path: PathBuf,
    bytes: &'a [u8],
}

impl Log<'_> {
    fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }
}

/// Where good records end before their time.
struct BadEnd {
    path: PathBuf,
    offset: u64,
    what: String,
}

/// The strongest claim of durability among the records behind the end of history.
#[derive(Default)]
struct Proof {
    synced_through: SequenceNumber,
    place: String,
}

struct Recovery<'a> {
    directory: &'a Path,
    logs: &'a [u64],
    facts: &'a ManifestFacts,
    /// The last sequence of the history so far.
    last: SequenceNumber,
    /// The first sequence behind it; above `last + 1` only where a log says that it skips some.
    next: SequenceNumber,
    highest: SequenceNumber,
    last_log: u64,
    /// The last log has its end record.
    closed: bool,
    /// Set where the last log ends badly, until a later log settles that nothing is missing.
    bad: Option<BadEnd>,
    /// Later logs belong to what is dropped.
    over: bool,
    proof: Proof,
    apply: Apply<'a>,
}

impl Recovery<'_> {
    fn read_log(&mut self, log: &Log<'_>) -> Result<()> {
        let mut reader = RecordReader::new(log.bytes, log.number);
        if self.over {
            return self.read_dropped(log, reader);
        }
        let first = match RecordFile::Wal.check_header(log.number, log.bytes) {
            HeaderState::Bad(bad) => return Err(bad.into_error(&log.path, 0)),
            HeaderState::Torn => return self.end_badly(log, reader, 0, "the log has no beginning"),
            HeaderState::Good => reader.step(),
        };
        let first = match first {
            Step::Record(record) => record,
            Step::End => {
                let offset = log.bytes.len() as u64;
                return self.end_badly(log, reader, offset, "the log has no start record");
            }
            Step::Bad(bad) if bad.torn => {
                return self.end_badly(log, reader, bad.offset, &bad.what);
            }
            Step::Bad(bad) => return Err(log.corruption(bad.offset, bad.what)),
        };
        let start = match self.decode(log, &first)?.body {
            WalBody::Start(start) => start,
            _ => return Err(log.corruption(first.start, "the first record is no start record")),
        };
        if start.manifest_number > self.facts.number {
            return self.pass_over(log, &first, reader);
        }
        if self.follows(log, &first, &start)? {
            self.bad = None;
            self.proof = Proof::default();
            self.closed = false;
            self.next = start.first_sequence;
            self.last_log = log.number;
            self.read_batches(log, reader)
        } else {
            self.over = true;
            self.read_dropped(log, RecordReader::new(log.bytes, log.number))
        }
    }

    /// True if `log` begins where history ends so far, false if sequences are missing between.
    fn follows(&mut self, log: &Log<'_>, record: &Record<'_>, start: &WalStart) -> Result<bool> {
        let (begins_after, first) = (start.previous_last_sequence, start.first_sequence);
        if Some(&log.number) == self.logs.first() {
            if begins_after <= self.last && self.last < first {
                return Ok(true);
            }
            return Err(log.corruption(
                record.start,
                format!(
                    "the log begins with sequence {first} and the tables end with {}",
                    self.last
                ),
            ));
        }
        if (self.last..self.next).contains(&begins_after) {
            return Ok(true);
        }
        if begins_after < self.last {
            return Err(log.corruption(
                record.start,
                format!("the log follows sequence {begins_after} and {} was read", self.last),
            ));
        }
        let previous = start.previous_log;
        if previous >= self.facts.log_number && !self.logs.contains(&previous) {
            // Names are durable before a log is written to, so no crash takes one.
            return Err(missing_log(self.directory, previous, "a later log follows it"));
        }
        if self.bad.is_none() {
            self.bad = Some(BadEnd {
                path: log.path.clone(),
                offset: record.start,
                what: format!("sequences {} to {begins_after} are missing", self.next),
            });
        }
        Ok(false)
    }

    fn read_batches(&mut self, log: &Log<'_>, mut reader: RecordReader<'_>) -> Result<()> {
        loop {
            let record = match reader.step() {
                Step::Record(record) => record,
                Step::End => return Ok(()),
                // Nothing belongs behind an end record, so nothing is lost there.
                Step::Bad(bad) if bad.torn || self.closed => {
                    return self.end_badly(log, reader, bad.offset, &bad.what);
                }
                Step::Bad(bad) => return Err(log.corruption(bad.offset, bad.what)),
            };
            let offset = record.start;
            if self.closed {
                return Err(log.corruption(offset, "a record stands behind the end record"));
            }
            match self.decode(log, &record)?.body {
                WalBody::Start(_) => {
                    return Err(log.corruption(offset, "a second start record"));
                }
                WalBody::Batch(batch) if batch.sequence == self.next => {
                    (self.apply)(log.number, &batch)?;
                    self.last = last_sequence(&batch).unwrap_or(self.next);
                    self.next = self.last + 1;
                }
                WalBody::Batch(batch) => {
                    let (found, expected) = (batch.sequence, self.next);
                    let what = format!("sequence {found} stands where {expected} belongs");
                    return Err(log.corruption(offset, what));
                }
                WalBody::End(end) if (self.last..self.next).contains(&end.last_sequence) => {
                    self.closed = true;
                }
                WalBody::End(end) => {
                    let (found, last) = (end.last_sequence, self.last);
                    let what = format!("the log was closed at sequence {found} and ends at {last}");
                    return Err(log.corruption(offset, what));
                }
            }
        }
    }

    /// History ends in this log unless a later one follows on; what is behind can only prove that
    /// it must not.
    fn end_badly(
        &mut self,
        log: &Log<'_>,
        reader: RecordReader<'_>,
        offset: u64,
        what: &str,
    ) -> Result<()> {
        self.closed = false;
        if self.bad.is_none() {
            self.bad = Some(BadEnd { path: log.path.clone(), offset, what: what.into() });
        }
        self.read_dropped(log, reader)
    }

    /// Looks through records that are not part of history, for what they prove.
    fn read_dropped(&mut self, log: &Log<'_>, mut reader: RecordReader<'_>) -> Result<()> {
        let mut unfinished = false;
        loop {
            let record = match reader.step() {
                Step::Record(record) => record,
                Step::Bad(_) => continue,
                Step::End => return Ok(()),
            };
            let decoded = self.decode(log, &record)?;
            match decoded.body {
                WalBody::Start(start) => unfinished = start.manifest_number > self.facts.number,
                _ if unfinished => return Err(newer_manifest(log, &record)),
                _ => {}
            }
            if !unfinished && decoded.synced_through > self.proof.synced_through {
                self.proof = Proof {
                    synced_through: decoded.synced_through,
                    place: format!("{} at byte {}", log.path.display(), record.start),
                };
            }
        }
    }

    /// A log of an opening that did not finish has nothing but its start record.
    fn pass_over(
        &mut self,
        log: &Log<'_>,
        first: &Record<'_>,
        mut reader: RecordReader<'_>,
    ) -> Result<()> {
        if log.number == self.facts.log_number {
            return Err(newer_manifest(log, first));
        }
        match reader.step() {
            Step::Record(record) => Err(newer_manifest(log, &record)),
            Step::Bad(_) | Step::End => Ok(()),
        }
    }

    /// Decodes a record and checks what any valid record proves, wherever it stands.
    fn decode<'r>(&mut self, log: &Log<'_>, record: &'r Record<'_>) -> Result<WalRecord<'r>> {
        let decoded = decode(&record.payload)
            .map_err(|undecodable| undecodable.into_error(&log.path, record.start))?;
        let (manifest, synced_bytes) = match decoded.body {
            WalBody::End(end) if end.manifest_number > self.facts.number => {
                return Err(newer_manifest(log, record));
            }
            WalBody::Start(start) => (start.manifest_number, start.manifest_synced_bytes),
            WalBody::End(end) => (end.manifest_number, end.manifest_synced_bytes),
            WalBody::Batch(batch) => {
                self.highest = self.highest.max(last_sequence(&batch).unwrap_or(0));
                (0, 0)
            }
        };
        if manifest == self.facts.number && synced_bytes > self.facts.bytes {
            let path = FileName::Manifest(manifest).path(self.directory);
            let what = format!("the manifest ends here and was durable up to byte {synced_bytes}");
            return Err(Error::corruption(path, self.facts.bytes, what));
        }
        Ok(decoded)
    }

    fn finish(mut self) -> Result<RecoveredLogs> {
        if self.facts.synced_through > self.proof.synced_through {
            let synced_through = self.facts.synced_through;
            self.proof = Proof { synced_through, place: "the manifest".into() };
        }
        let last = self.last;
        if self.proof.synced_through >= self.next {
            let Proof { synced_through, place } = self.proof;
            let lost = format!(
                "history ends with sequence {last}; {place} says that {synced_through} was durable"
            );
            return Err(match self.bad {
                Some(bad) => {
                    Error::corruption(bad.path, bad.offset, format!("{}; {lost}", bad.what))
                }
                None => {
                    let number = self.logs.last().copied().unwrap_or(self.facts.log_number);
                    Error::corruption(FileName::Wal(number).path(self.directory), 0, lost)
                }
            });
        }
        Ok(RecoveredLogs {
            last_sequence: last,
            highest_sequence: self.highest.max(last),
            last_log: self.last_log,
            clean: self.closed && self.bad.is_none(),
            dropped: self
                .bad
                .map(|bad| format!("{} at byte {}: {}", bad.path.display(), bad.offset, bad.what)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;
    use crate::wal::format::WalEnd;
    use crate::wal::writer::WalWriter;
    use crate::write_batch::WriteBatch;

    fn batch(keys: &[&str]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for key in keys {
            batch.put(key, "value");
        }
        batch
    }

    #[test]
    fn a_closed_log_comes_back_clean() {
        let env = MemEnv::new();
        let directory = Path::new("/db");
        env.create_dir(directory).unwrap();
        let facts = ManifestFacts { number: 1, bytes: 100, log_number: 2, ..Default::default() };
        let start = WalStart {
            first_sequence: 1,
            manifest_number: 1,
            manifest_synced_bytes: 100,
            ..WalStart::default()
        };
        let mut wal = WalWriter::create(&env, directory, 2, &start).unwrap();
        let (one, two) = (batch(&["a", "b"]), batch(&["c"]));
        wal.append(0, 1, 3, &[one.entries(), two.entries()]).unwrap();
        wal.sync().unwrap();
        wal.append(3, 4, 1, &[two.entries()]).unwrap();
        wal.finish(&WalEnd { last_sequence: 4, manifest_number: 1, manifest_synced_bytes: 100 })
            .unwrap();
        let mut keys = Vec::new();
        let recovered = recover(&env, directory, &[2], &facts, &mut |log, batch| {
            keys.extend(batch.iter().map(|entry| (log, entry.key.to_vec())));
            Ok(())
        })
        .unwrap();
        assert_eq!(keys.len(), 4);
        assert_eq!(
            recovered,
            RecoveredLogs {
                last_sequence: 4,
                highest_sequence: 4,
                last_log: 2,
                clean: true,
                dropped: None
            }
        );
    }
}
