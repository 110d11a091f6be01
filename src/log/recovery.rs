//! What opening accepts when a log or the manifest has a torn end, and the report of what it
//! dropped.
//!
//! [`Recovery`] is an option of the user. `log::wal::recover`, `log::wal::salvage` and
//! `tree::manifest` return a [`DroppedPart`] for everything that they drop. `db::recover` collects
//! these in the [`RecoveryReport`], which the database keeps. Nothing is dropped without a report.

use crate::base::key::SequenceNumber;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// What opening does if a log or the manifest has a torn or damaged end.
///
/// Every mode tells parts that were synced from parts that were not: each record of a log says up
/// to which sequence everything was durable when it was written. Damaged tables, a damaged
/// `CURRENT` and a damaged manifest are `Corruption` in every mode; use [`Options::repair`] for
/// them.
///
/// [`Options::repair`]: crate::Options::repair
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The default. Drops a torn end of the last log or of the manifest, if a crash can have caused
    /// it and nothing says that the part was durable. A torn end is a record that is cut off or has
    /// a sector of zeros; the logs after it are dropped too. The database then has a prefix of its
    /// writes, which includes every synced one. Every other inconsistency is `Corruption`.
    #[default]
    TolerateTornTail,
    /// Drops nothing. A torn end of a log or of the manifest is `Corruption`, even if a crash can
    /// have caused it. So is a log that was created and never written, unless it is the newest of
    /// several: that one may have been made ahead of need. Use this mode if a lost unsynced write
    /// must be noticed: a replica can then be copied from another one. Opening with the default
    /// afterwards is possible.
    Strict,
    /// Does the same as the default if that opens the database. If the default refuses because logs
    /// are damaged or missing, this mode recovers every write that can be read, even after the
    /// damage. Then later writes may survive without earlier ones, and keys may have older values.
    /// If anything in the logs was dropped, all logs are kept in the folder `lost` of the database,
    /// and [`Db::recovery_report`](crate::Db::recovery_report) lists what was dropped.
    Salvage,
}

/// A part of a file that recovery did not use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedPart {
    /// The path of the log or manifest.
    pub path: PathBuf,
    /// The start of the part, in bytes from the start of the file.
    pub offset: u64,
    /// Why it was not used.
    pub what: String,
}

impl fmt::Display for DroppedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

/// What opening found in manifest and logs: [`Db::recovery_report`](crate::Db::recovery_report).
///
/// A torn last record is normal after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The last sequence number that was recovered, tables included. Each entry that was ever
    /// written took one, and each bulk load; numbers of refused writes may be skipped.
    pub last_sequence: SequenceNumber,
    /// The dropped parts, in the order of the files.
    pub dropped: Vec<DroppedPart>,
    /// Sequence numbers of writes that existed and could not be read; each number is one entry of a
    /// batch. Only [`Recovery::Salvage`] opens a database with such gaps.
    pub missing: Vec<RangeInclusive<SequenceNumber>>,
    /// The paths of the logs that [`Recovery::Salvage`] kept in the folder `lost`.
    pub set_aside: Vec<PathBuf>,
}

impl RecoveryReport {
    /// True if nothing was dropped or missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.dropped.is_empty() && self.missing.is_empty()
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recovered through sequence {}", self.last_sequence)?;
        for part in &self.dropped {
            write!(f, "\ndropped: {part}")?;
        }
        for range in &self.missing {
            write!(f, "\nmissing: sequences {} to {}", range.start(), range.end())?;
        }
        for path in &self.set_aside {
            write!(f, "\nkept: {}", path.display())?;
        }
        Ok(())
    }
}
