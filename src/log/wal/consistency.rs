//! Whether the manifest and the records of the logs agree.
//!
//! `recover` accepts nothing but an unbroken history; `salvage` takes every record that it can
//! read; `tail` waits for a writer at work. All of them read their cursors through
//! [`ConsistencyCheck`]. It refuses a manifest that is older or shorter than a log says it was, and
//! collects the durable watermark. Tables that only the lost edits name may then hold data, and
//! opening would remove them. Only a repair can handle that.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::log::record::format::Undecodable;
use crate::log::wal::cursor::{LogCursor, LogEntry, LogItem};
use crate::log::wal::format::{DatabaseIdentity, WalBody, WalStart};
use std::path::Path;

/// The mark of a clean close, in the last edit of a manifest. Every log was synced before the mark
/// was written, so a log that ends before the mark is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CleanClose {
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
    /// The number of the current manifest.
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
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn check_length(&self, directory: &Path, start: &WalStart) -> Result<()> {
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
    fn needs(&self, number: u64) -> Option<&'static str> {
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

    /// The logs that must exist and are not in `logs`, each with the reason why it must.
    pub(crate) fn missing_from(&self, logs: &[u64]) -> impl Iterator<Item = (u64, &'static str)> {
        let closed = self.clean_close.map_or(0, |close| close.log);
        let named = [self.log_number, self.session_log, closed].into_iter();
        let missing = named.filter(|number| !logs.contains(number));
        missing.filter_map(|number| Some((number, self.needs(number)?)))
    }
}

/// Reads logs through cursors, and checks each record against the manifest.
#[derive(Debug)]
pub(crate) struct ConsistencyCheck<'a> {
    /// The directory of the database.
    pub directory: &'a Path,
    /// The facts of the manifest.
    pub facts: &'a ManifestFacts,
    /// The highest sequence in the manifest and in every record so far.
    pub highest_sequence: SequenceNumber,
    /// The durable watermark: the highest sequence that the manifest or a record so far calls
    /// durable.
    pub durable: SequenceNumber,
    /// The log and offset of the record that says so; `None` if it is the manifest.
    durable_by: Option<(u64, u64)>,
}

impl<'a> ConsistencyCheck<'a> {
    /// A check against `facts`, before the first record.
    pub(crate) fn new(directory: &'a Path, facts: &'a ManifestFacts) -> Self {
        let highest_sequence = facts.last_sequence.max(facts.flushed_through);
        let durable = facts.synced_through;
        ConsistencyCheck { directory, facts, highest_sequence, durable, durable_by: None }
    }

    /// The durable watermark as text, with its source.
    pub(crate) fn durable_text(&self) -> String {
        let source = self.durable_by.map_or("the manifest".into(), |(log, offset)| {
            format!("{} at byte {offset}", FileName::Wal(log).path(self.directory).display())
        });
        format!("{source} says that {} was durable", self.durable)
    }

    /// Reads the next item of `log` and checks it.
    ///
    /// # Errors
    /// `Io`; `UnsupportedFormat`; `Corruption` of the manifest if the record says that it was
    /// longer.
    pub(crate) fn next<'l>(&mut self, log: &'l mut LogCursor) -> Result<LogEntry<'l>> {
        let mut entry = log.next()?;
        let facts = self.facts;
        match entry.item {
            LogItem::Damaged(unknown @ Undecodable::Unknown(_)) => {
                return Err(unknown.into_error(&entry.file.path, entry.start));
            }
            // The manifest of a repair, or of a checkpoint that was brought up to date, has a
            // higher epoch, too. Manifests that were begun since have higher numbers than its.
            LogItem::Record(WalBody::Start(start))
                if start.manifest_number > facts.number
                    || (start.database.id == facts.database.id
                        && start.database.epoch > facts.database.epoch) =>
            {
                return Ok(LogEntry { item: LogItem::StartOfNewerManifest, ..entry });
            }
            // Without a manifest, a repair reads the logs of any epoch.
            LogItem::Record(WalBody::Start(start))
                if start.database != facts.database
                    && facts.database != DatabaseIdentity::default() =>
            {
                let what = "the log is of another database, or from before a repair";
                entry.item = LogItem::Damaged(Undecodable::Damaged(what.into()));
            }
            LogItem::Record(WalBody::Start(start)) => facts.check_length(self.directory, &start)?,
            LogItem::Record(WalBody::Batch(batch)) => {
                self.highest_sequence = self.highest_sequence.max(batch.last_sequence());
            }
            _ => {}
        }
        // A record never calls itself durable, so this says nothing new about an unbroken history.
        if entry.synced_through > self.durable {
            self.durable = entry.synced_through;
            self.durable_by = Some((entry.file.number, entry.start));
        }
        Ok(entry)
    }
}
