//! What the manifest and the records of logs prove about each other.
//!
//! Shared by `recover`, which believes nothing but an unbroken history, and `salvage`, which takes
//! what it can get. Both must refuse the same thing: a manifest that is older or shorter than the
//! logs say it was. For then tables that nothing names any more hold part of the data, and going
//! on would lose them; that is work for a repair.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::env::api::Env;
use crate::log::record::reader::RecordReader;
use crate::log::wal::format::WalBody;
use std::io;
use std::path::{Path, PathBuf};

/// A log beyond this was not written by siftdb: room for a write buffer and the largest group.
const LOG_BYTES_MAX: u64 = 16 << 30;

/// The mark of a clean close. It stands in the last edit of a manifest, and every log was synced
/// before it was written: logs that end before it are damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanClose {
    /// The last log.
    pub log: u64,
    /// Where its last record ends, in bytes from its start.
    pub log_bytes: u64,
    /// The last sequence given to a write.
    pub last_sequence: SequenceNumber,
}

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
    /// The log that the session began with, 0 if it had none then.
    pub session_log: u64,
    /// The mark of a clean close, if there is one.
    pub clean_close: Option<CleanClose>,
}

impl ManifestFacts {
    /// Refuses if a record of a log says that the manifest was longer.
    pub fn check(&self, directory: &Path, body: &WalBody<'_>) -> Result<()> {
        let WalBody::Start(start) = body else { return Ok(()) };
        let (manifest, synced_bytes) = (start.manifest_number, start.manifest_synced_bytes);
        if manifest == self.number && synced_bytes > self.bytes {
            let path = FileName::Manifest(manifest).path(directory);
            let what = format!("the manifest ends here and was durable up to byte {synced_bytes}");
            return Err(Error::corruption(path, self.bytes, what));
        }
        Ok(())
    }

    /// Why log `number`, which is missing, should be there; `None` if nothing says so.
    #[must_use]
    pub fn needs(&self, number: u64) -> Option<&'static str> {
        let is_last = self.clean_close.is_some_and(|close| close.log == number);
        match number {
            0 => None,
            // Its writes are in tables.
            _ if number < self.log_number => None,
            _ if is_last => Some("the last close left it as the newest"),
            _ if number == self.log_number => Some("the manifest needs it"),
            // A session makes its log's name durable before its manifest.
            _ if number == self.session_log => Some("the last session began with it"),
            _ => None,
        }
    }

    /// The first log that must be there and is not among `logs`, and why it must.
    #[must_use]
    pub fn missing_from(&self, logs: &[u64]) -> Option<(u64, &'static str)> {
        let closed = self.clean_close.map_or(0, |close| close.log);
        let named = [self.log_number, self.session_log, closed].into_iter();
        let mut missing = named.filter(|number| !logs.contains(number));
        missing.find_map(|number| Some((number, self.needs(number)?)))
    }
}

/// A log, for its errors.
#[derive(Clone, Debug)]
pub struct Log {
    /// The number in its name.
    pub number: u64,
    /// Where it is.
    pub path: PathBuf,
}

impl Log {
    /// Log `number` in `directory`.
    #[must_use]
    pub fn new(directory: &Path, number: u64) -> Self {
        Log { number, path: FileName::Wal(number).path(directory) }
    }

    /// Its records, as far as its first `bytes_max` bytes go; `None` if it is not there.
    ///
    /// # Errors
    /// `Io`; `Corruption` for a file that no siftdb can have written.
    pub fn open(&self, env: &dyn Env, bytes_max: u64) -> Result<Option<RecordReader>> {
        match RecordReader::open_to(env, &self.path, self.number, bytes_max.min(LOG_BYTES_MAX + 1))
        {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(reader) if reader.file_bytes() > LOG_BYTES_MAX => {
                let what = format!("the log is larger than {LOG_BYTES_MAX} bytes");
                Err(self.corruption(LOG_BYTES_MAX, what))
            }
            result => result.map(Some),
        }
    }

    /// Damage at `offset`.
    pub fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }

    /// Another manifest than the one in force belongs to this log, by its record at `offset`.
    #[must_use]
    pub fn of_newer_manifest(&self, offset: u64) -> Error {
        self.corruption(offset, "the log was in use under a newer manifest than CURRENT names")
    }
}

/// A log is not there and `why` it should be.
pub fn missing_log(directory: &Path, number: u64, why: &str) -> Error {
    Error::missing(FileName::Wal(number).path(directory), why)
}
