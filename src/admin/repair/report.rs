//! What a repair tells its caller.

use crate::base::key::SequenceNumber;
use crate::log::recovery::DroppedPart;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// A file that is not part of the database any more and stands in the folder `lost`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAside {
    /// Where it is now.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// Entries that are lost: of a place in a table that cannot be read, of a whole table, or of a log
/// that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostEntries {
    /// The table or log, by its path before the repair, also if it was not there.
    pub path: PathBuf,
    /// All of them have keys at or above this one; `None` if that is not known.
    pub from: Option<Vec<u8>>,
    /// All of them have keys at or below this one; `None` if that is not known.
    pub to: Option<Vec<u8>>,
    /// What is wrong with the file there, or that it is missing and what says so.
    pub what: String,
}

/// What [`Db::repair`](crate::Db::repair) kept, set aside and could not save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Something was written. False for a database in which nothing was damaged: no file of it
    /// was touched.
    pub changed: bool,
    /// A manifest told which tables there are. If not, everything that was found took part, and
    /// deleted keys may have come back.
    pub manifest_used: bool,
    /// Tables that stay as they were.
    pub tables_kept: u64,
    /// Tables written anew.
    pub tables_written: u64,
    /// Entries in all tables now: versions and tombstones counted.
    pub entries: u64,
    /// Entries that damaged and missing tables had, beyond those that were read; tables whose count
    /// is not known are not in it.
    pub entries_lost: u64,
    /// Writes that were read from logs.
    pub log_entries: u64,
    /// Where entries were lost, missing tables and logs included: an older version of such a key
    /// may show, or a deleted key.
    pub lost: Vec<LostEntries>,
    /// What of the logs, the manifest and CURRENT could not be used.
    pub dropped: Vec<DroppedPart>,
    /// Sequence numbers of writes that should have been in the logs and could not be read.
    pub missing: Vec<RangeInclusive<SequenceNumber>>,
    /// Files in the folder `lost`. Remove them when nobody wants them any more.
    pub set_aside: Vec<SetAside>,
    /// New writes are numbered from behind this.
    pub last_sequence: SequenceNumber,
}

impl RepairReport {
    /// True if no entry is known to be lost. If not, `siftdb repair` has an exit code of its own.
    #[must_use]
    pub fn saved_everything(&self) -> bool {
        self.lost.is_empty() && self.missing.is_empty()
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.changed {
            return write!(f, "nothing to repair: {} tables are sound", self.tables_kept);
        }
        write!(
            f,
            "{} tables kept, {} written, {} entries; {} entries from logs; {}",
            self.tables_kept,
            self.tables_written,
            self.entries,
            self.log_entries,
            match self.manifest_used {
                true => "as the manifest says",
                false => "without a manifest: deleted keys may have come back",
            }
        )?;
        for lost in &self.lost {
            let end = |key: &Option<Vec<u8>>| match key {
                Some(key) => format!("\"{}\"", key.escape_ascii()),
                None => "an end".into(),
            };
            match (&lost.from, &lost.to) {
                (None, None) => write!(f, "\nlost: ")?,
                (from, to) => write!(f, "\nlost: keys from {} to {}: ", end(from), end(to))?,
            }
            write!(f, "{}: {}", lost.path.display(), lost.what)?;
        }
        if self.entries_lost > 0 {
            write!(f, "\nlost: {} entries of tables in all", self.entries_lost)?;
        }
        for part in &self.dropped {
            write!(f, "\nnot used: {part}")?;
        }
        for range in &self.missing {
            write!(f, "\nmissing: sequences {} to {}", range.start(), range.end())?;
        }
        for file in &self.set_aside {
            write!(f, "\nset aside: {}: {}", file.path.display(), file.why)?;
        }
        Ok(())
    }
}
