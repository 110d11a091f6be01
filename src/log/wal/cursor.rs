//! [`LogCursor`] reads a log: records, bad places and the end, each with file and offset.
//!
//! Every reader of logs goes through it. Dumps, `verify` and [`replay`] take the items as they are.
//! Recovery, salvage and the tail of a follower read through a [`ConsistencyCheck`], which compares
//! each record with the manifest. What an item means is the policy of the reader.
//!
//! A header that is not sound is the first item. The records after it can be read all the same,
//! because each has the number of the log in its checksum.
//!
//! [`replay`]: crate::log::wal::replay
//! [`ConsistencyCheck`]: crate::log::wal::consistency::ConsistencyCheck

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::env::api::Env;
use crate::log::record::format::{HeaderState, RecordFile, Undecodable};
use crate::log::record::reader::{BadPlace, RecordReader, Step};
use crate::log::wal::format::{WalBody, WalRecord, decode};
use std::io;
use std::path::{Path, PathBuf};

/// siftdb writes no longer log: room for a write buffer and the largest group of batches.
const LOG_BYTES_MAX: u64 = 16 << 30;

/// The file of one log.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    /// The number in the name.
    pub number: u64,
    /// The path of the file.
    pub path: PathBuf,
}

impl LogFile {
    /// Log `number` in `directory`.
    pub(crate) fn new(directory: &Path, number: u64) -> Self {
        LogFile { number, path: FileName::Wal(number).path(directory) }
    }

    /// The error for damage at `offset`.
    pub(crate) fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }

    /// The error for a record at `offset` that was written under a newer manifest.
    pub(crate) fn of_newer_manifest(&self, offset: u64) -> Error {
        self.corruption(offset, "the log was in use under a newer manifest than CURRENT names")
    }
}

/// The error for a missing log; `why` says why it must exist.
pub(crate) fn missing_log(directory: &Path, number: u64, why: &str) -> Error {
    Error::missing(FileName::Wal(number).path(directory), why)
}

/// An item of a log, with its place.
#[derive(Debug)]
pub(crate) struct LogEntry<'a> {
    pub file: &'a LogFile,
    /// The start of the record or bad place.
    pub start: u64,
    /// The end of the record; `start` if this is none.
    pub end: u64,
    /// The last sequence that the record calls durable; 0 if this is none.
    pub synced_through: SequenceNumber,
    pub item: LogItem<'a>,
}

/// An item of a log.
#[derive(Debug)]
pub(crate) enum LogItem<'a> {
    Record(WalBody<'a>),
    /// The start of a log that was created for a manifest that never became the current one. Only
    /// a consistency check finds it.
    StartOfNewerManifest,
    /// The header of the file, or a record with a valid checksum, that no crash can have caused.
    Damaged(Undecodable),
    /// A place without a valid record, or without a header at offset 0.
    Bad {
        /// What is wrong there.
        what: String,
        /// A crash can have caused it.
        torn: bool,
    },
    /// The end of the file, or only zeros up to the end.
    End,
}

impl LogEntry<'_> {
    /// The entry as a part of an unbroken history. The start of a log is due if `next` is `None`,
    /// else a batch that begins with the sequence `next`. Another record is damage. A log that ends
    /// before its start is torn.
    #[must_use]
    pub(crate) fn due(mut self, next: Option<SequenceNumber>) -> Self {
        let what = match (&self.item, next) {
            (LogItem::End, None) => {
                let what = "the log has no start record".into();
                self.item = LogItem::Bad { what, torn: true };
                return self;
            }
            (LogItem::Record(WalBody::Batch(_) | WalBody::Loads(_)), None) => {
                "the first record is no start record".into()
            }
            (LogItem::Record(WalBody::Start(_)) | LogItem::StartOfNewerManifest, Some(_)) => {
                "a second start record".into()
            }
            (LogItem::Record(WalBody::Batch(batch)), Some(next)) if batch.sequence != next => {
                format!("the batch begins with sequence {}, expected {next}", batch.sequence)
            }
            _ => return self,
        };
        self.item = LogItem::Damaged(Undecodable::Damaged(what));
        self
    }
}

/// Reads the items of one log in order.
#[derive(Debug)]
pub(crate) struct LogCursor {
    /// The log that it reads.
    pub file: LogFile,
    pub reader: RecordReader,
    /// The header was read.
    begun: bool,
    /// The end of the last record with a valid checksum so far; 0 before the first.
    pub end: u64,
}

impl LogCursor {
    /// Opens the first `bytes_max` bytes of log `number`; `None` if the file is missing.
    ///
    /// # Errors
    /// `Io`; `Corruption` if the file is longer than any log.
    pub(crate) fn open(
        env: &dyn Env,
        directory: &Path,
        number: u64,
        bytes_max: u64,
    ) -> Result<Option<Self>> {
        let file = LogFile::new(directory, number);
        match RecordReader::open_to(env, &file.path, number, bytes_max.min(LOG_BYTES_MAX + 1)) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(reader) if reader.file_bytes() > LOG_BYTES_MAX => {
                let what = format!("the log is larger than {LOG_BYTES_MAX} bytes");
                Err(file.corruption(LOG_BYTES_MAX, what))
            }
            result => Ok(Some(LogCursor::new(file, result?))),
        }
    }

    /// A cursor over `file`, which `reader` has opened.
    pub(crate) fn new(file: LogFile, reader: RecordReader) -> Self {
        LogCursor { file, reader, begun: false, end: 0 }
    }

    /// True if this log, one of `logs`, was made ahead of need and not begun: it is empty, and the
    /// newest of several. After a power cut it may also have lost records that were never synced,
    /// all of them: nothing tells, so nothing reports that.
    pub(crate) fn is_ahead(&self, logs: &[u64]) -> bool {
        let is_newest = logs.len() > 1 && logs.last() == Some(&self.file.number);
        is_newest && self.reader.file_bytes() == 0
    }

    /// The next item.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn next(&mut self) -> Result<LogEntry<'_>> {
        let LogCursor { file, reader, begun, end } = self;
        let entry = |file, start, end, item| LogEntry { file, start, end, synced_through: 0, item };
        if !std::mem::replace(begun, true) {
            match reader.header(RecordFile::Wal)? {
                HeaderState::Good => {}
                HeaderState::Torn => {
                    let what = "the log has no valid header".into();
                    return Ok(entry(file, 0, 0, LogItem::Bad { what, torn: true }));
                }
                HeaderState::Bad(bad) => return Ok(entry(file, 0, 0, LogItem::Damaged(bad))),
            }
        }
        let file_bytes = reader.file_bytes();
        Ok(match reader.step()? {
            Step::Record(record) => {
                *end = record.end;
                let (synced_through, item) = match decode(record.payload) {
                    Ok(WalRecord { synced_through, body }) => {
                        (synced_through, LogItem::Record(body))
                    }
                    Err(bad) => (0, LogItem::Damaged(bad)),
                };
                LogEntry { synced_through, ..entry(file, record.start, record.end, item) }
            }
            Step::Bad(BadPlace { offset, what, torn }) => {
                entry(file, offset, offset, LogItem::Bad { what, torn })
            }
            Step::End => entry(file, file_bytes, file_bytes, LogItem::End),
        })
    }

    /// True if a record with a valid checksum comes next: no crash and no writer at work leaves a
    /// bad place before one.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn is_followed(&mut self) -> Result<bool> {
        Ok(matches!(self.reader.step()?, Step::Record(_)))
    }

    /// Refuses a log of a newer manifest that has writes after its start, which was read. An
    /// opening that did not finish leaves such a log, but writes nothing to it.
    ///
    /// # Errors
    /// `Io`; `Corruption` if there is another record than one of bulk loads.
    pub(crate) fn expect_no_writes(&mut self) -> Result<()> {
        loop {
            let LogEntry { file, start, item, .. } = self.next()?;
            match item {
                LogItem::Record(WalBody::Loads(_)) => {}
                LogItem::Bad { .. } | LogItem::End => return Ok(()),
                _ => return Err(file.of_newer_manifest(start)),
            }
        }
    }
}
