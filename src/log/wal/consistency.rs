//! Whether the manifest and the records of the logs agree.
//!
//! `recover` accepts nothing but an unbroken history; `salvage` takes every record that it can
//! read. Both read records through [`ConsistencyCheck`], which refuses a manifest that is older or
//! shorter than a log says it was. Tables that only the lost edits name may then hold data, and
//! opening would remove them. Only a repair can handle that.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::log::record::format::Undecodable;
use crate::log::record::reader::{Record, RecordReader, Step};
use crate::log::wal::file::LogFile;
use crate::log::wal::format::{DatabaseIdentity, WalBody, WalStart, decode, last_sequence};
use std::path::Path;

/// The mark of a clean close, in the last edit of a manifest. Every log was synced before the mark
/// was written, so a log that ends before the mark is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CleanClose {
    /// The last log.
    pub log: u64,
    /// Where its last record ends, in bytes from its start.
    pub log_bytes: u64,
    /// The last sequence given to a write.
    pub last_sequence: SequenceNumber,
}

/// The facts of the manifest about the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestFacts {
    /// The identity of the database.
    pub database: DatabaseIdentity,
    /// The number of the manifest in force.
    pub number: u64,
    /// The length of the manifest up to its last valid record.
    pub bytes: u64,
    /// The oldest log that is needed; 0 if none is.
    pub log_number: u64,
    /// Every entry up to this sequence is in a table.
    pub flushed_through: SequenceNumber,
    /// The last sequence given to a write.
    pub last_sequence: SequenceNumber,
    /// The last sequence known to be durable.
    pub synced_through: SequenceNumber,
    /// The largest sequence in a table.
    pub tables_through: SequenceNumber,
    /// The largest sequence of ingested tables, which is in no log; 0 without such tables.
    pub ingested_through: SequenceNumber,
    /// The log that the session began with; 0 if it began without one.
    pub session_log: u64,
    /// The mark of a clean close, if there is one.
    pub clean_close: Option<CleanClose>,
}

impl ManifestFacts {
    /// Refuses a manifest that was longer when a log was started: its last edits are lost.
    fn check_length(&self, directory: &Path, start: &WalStart) -> Result<()> {
        let (manifest, synced_bytes) = (start.manifest_number, start.manifest_synced_bytes);
        if manifest == self.number && synced_bytes > self.bytes {
            let path = FileName::Manifest(manifest).path(directory);
            let what =
                format!("the manifest ends here, but {synced_bytes} bytes of it were durable");
            return Err(Error::corruption(path, self.bytes, what));
        }
        Ok(())
    }

    /// Why log `number` must exist; `None` if nothing requires it.
    #[must_use]
    pub(crate) fn needs(&self, number: u64) -> Option<&'static str> {
        let is_last = self.clean_close.is_some_and(|close| close.log == number);
        match number {
            0 => None,
            // The writes of older logs are in tables.
            _ if number < self.log_number => None,
            _ if is_last => Some("the last close left it as the newest"),
            _ if number == self.log_number => Some("the manifest needs it"),
            // The name of a session's log is durable before its manifest is.
            _ if number == self.session_log => Some("the last session began with it"),
            _ => None,
        }
    }

    /// The first log that must exist and is not in `logs`, and why it must.
    #[must_use]
    pub(crate) fn missing_from(&self, logs: &[u64]) -> Option<(u64, &'static str)> {
        let closed = self.clean_close.map_or(0, |close| close.log);
        let named = [self.log_number, self.session_log, closed].into_iter();
        let mut missing = named.filter(|number| !logs.contains(number));
        missing.find_map(|number| Some((number, self.needs(number)?)))
    }
}

/// The highest sequence that is known to have been durable, and what says so.
#[derive(Clone, Debug, Default)]
pub(crate) struct DurableWatermark {
    /// The sequence; 0 if nothing is known.
    pub sequence: SequenceNumber,
    /// The file and place that says so.
    pub source: String,
}

impl DurableWatermark {
    /// Raises the watermark to `sequence` if that is higher.
    pub(crate) fn raise(&mut self, sequence: SequenceNumber, source: impl FnOnce() -> String) {
        if sequence > self.sequence {
            *self = DurableWatermark { sequence, source: source() };
        }
    }
}

/// A record of a log, decoded and checked against the manifest.
#[derive(Debug)]
pub(crate) enum CheckedRecord<'a> {
    /// The start of a log.
    Start(WalStart),
    /// The start of a log that was created under a newer manifest than the one in force.
    StartOfNewerManifest,
    /// A batch, and the sequence of its last entry.
    Batch(DecodedBatch<'a>, SequenceNumber),
    /// Bulk loads, which only a repair reads.
    Loads,
    /// A record with a valid checksum that siftdb does not write.
    Damaged(String),
}

/// Decodes records and checks each of them against the manifest.
#[derive(Debug)]
pub(crate) struct ConsistencyCheck<'a> {
    /// The directory of the database.
    pub directory: &'a Path,
    /// The facts of the manifest.
    pub facts: &'a ManifestFacts,
    /// The highest sequence in the manifest and in every record so far.
    pub highest_sequence: SequenceNumber,
    /// The durable sequence, as the manifest and every record so far say.
    pub durable: DurableWatermark,
}

impl<'a> ConsistencyCheck<'a> {
    /// A check against `facts`, before the first record.
    #[must_use]
    pub(crate) fn new(directory: &'a Path, facts: &'a ManifestFacts) -> Self {
        let highest_sequence = facts.last_sequence.max(facts.flushed_through);
        let mut durable = DurableWatermark::default();
        durable.raise(facts.synced_through, || "the manifest".into());
        ConsistencyCheck { directory, facts, highest_sequence, durable }
    }

    /// Decodes and checks one record.
    ///
    /// # Errors
    /// `UnsupportedFormat`; `Corruption` of the manifest if the record says that it was longer.
    pub(crate) fn read<'r>(
        &mut self,
        log: &LogFile,
        record: &Record<'r>,
    ) -> Result<CheckedRecord<'r>> {
        let decoded = match decode(record.payload) {
            Ok(decoded) => decoded,
            Err(Undecodable::Damaged(what)) => return Ok(CheckedRecord::Damaged(what)),
            Err(unknown) => return Err(unknown.into_error(&log.path, record.start)),
        };
        let checked = match decoded.body {
            WalBody::Start(start) if start.manifest_number > self.facts.number => {
                return Ok(CheckedRecord::StartOfNewerManifest);
            }
            // Without a manifest, a repair reads the logs of any epoch.
            WalBody::Start(start)
                if start.database != self.facts.database
                    && self.facts.database != DatabaseIdentity::default() =>
            {
                CheckedRecord::Damaged(
                    "the log is of another database, or from before a repair".into(),
                )
            }
            WalBody::Start(start) => {
                self.facts.check_length(self.directory, &start)?;
                CheckedRecord::Start(start)
            }
            WalBody::Batch(batch) => {
                let last = last_sequence(&batch).unwrap_or(batch.sequence);
                self.highest_sequence = self.highest_sequence.max(last);
                CheckedRecord::Batch(batch, last)
            }
            WalBody::Loads(_) => CheckedRecord::Loads,
        };
        // A record never calls itself durable, so this says nothing new about an unbroken history.
        self.durable.raise(decoded.synced_through, || {
            format!("{} at byte {}", log.path.display(), record.start)
        });
        Ok(checked)
    }

    /// Refuses a log of a newer manifest that has writes after its start, which `reader` has read.
    /// An opening that did not finish leaves such a log, but writes nothing to it.
    ///
    /// # Errors
    /// `Io`; `Corruption` if there is another record than one of bulk loads.
    pub(crate) fn expect_no_writes(&self, log: &LogFile, reader: &mut RecordReader) -> Result<()> {
        loop {
            match reader.step()? {
                Step::Record(record) => match decode(record.payload).map(|record| record.body) {
                    Ok(WalBody::Loads(_)) => {}
                    _ => return Err(log.of_newer_manifest(record.start)),
                },
                Step::Bad(_) | Step::End => return Ok(()),
            }
        }
    }
}
