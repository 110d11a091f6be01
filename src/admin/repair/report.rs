//! The report of a repair.

use crate::base::key::SequenceNumber;
use crate::base::stats::text::counted;
use crate::log::recovery::DroppedPart;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// What a repair without a manifest cannot promise.
const WITHOUT_MANIFEST: &str = "without a manifest: deleted keys may have come back, and what is \
                                missing may be unknown";

/// A file that is no longer part of the database and is kept in the folder `lost`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAside {
    /// The path in `lost` that the file has now.
    pub path: PathBuf,
    /// Why the file was set aside.
    pub why: String,
}

/// Lost entries: of a part of a table that cannot be read, of a whole table, or of a missing log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostEntries {
    /// The keyspace that the entries are of; `None` if that is not known, and for logs, which have
    /// entries of all keyspaces.
    pub keyspace: Option<String>,
    /// The path of the table or log before the repair, even if the file was missing.
    pub path: PathBuf,
    /// The smallest key that a lost entry may have; `None` if that is not known.
    pub from: Option<Vec<u8>>,
    /// The largest key that a lost entry may have; `None` if that is not known.
    pub to: Option<Vec<u8>>,
    /// What is wrong with the file, or why it must exist if it is missing.
    pub what: String,
}

/// A keyspace whose name is not certain: no file that could be read gives it, or files disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenamedKeyspace {
    /// Its number, as log entries and tables name it.
    pub number: u32,
    /// The name that the keyspace has after the repair.
    pub name: String,
    /// The reason why the name is not certain.
    pub why: String,
}

/// The result of [`Db::repair`](crate::Db::repair).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Something was written. False if nothing was damaged: no file was touched then.
    pub changed: bool,
    /// A manifest said which tables belong to the database. If false, every table that was found
    /// took part: deleted keys may have come back, and files may be missing that nothing mentions.
    pub manifest_used: bool,
    /// Tables that were kept unchanged.
    pub tables_kept: u64,
    /// Tables that were written.
    pub tables_written: u64,
    /// Entries in all tables now, old versions and tombstones included.
    pub entries: u64,
    /// Entries of damaged and missing tables that could not be read, as far as their number is
    /// known.
    pub entries_lost: u64,
    /// Entries that were read from logs.
    pub log_entries: u64,
    /// Where entries were lost, missing tables and logs included. Reads of such keys may return an
    /// older version, or a deleted key.
    pub lost: Vec<LostEntries>,
    /// Keyspaces whose names are made up, or chosen among several.
    pub renamed: Vec<RenamedKeyspace>,
    /// The parts of logs, manifests and CURRENT that could not be used.
    pub dropped: Vec<DroppedPart>,
    /// Sequence numbers of logged writes that could not be read.
    pub missing: Vec<RangeInclusive<SequenceNumber>>,
    /// Files that were moved to the folder `lost`. Remove them when you no longer need them.
    pub set_aside: Vec<SetAside>,
    /// The last sequence; new writes get higher ones.
    pub last_sequence: SequenceNumber,
}

impl RepairReport {
    /// True if a manifest says which files there were, and nothing of them is lost. If not,
    /// `siftdb repair` has an exit code of its own.
    ///
    /// Without a manifest it is false: a file that is gone, or an empty keyspace, may have been
    /// named nowhere else.
    #[must_use]
    pub fn saved_everything(&self) -> bool {
        self.manifest_used && self.lost.is_empty() && self.missing.is_empty()
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.changed {
            let are = if self.tables_kept == 1 { "is" } else { "are" };
            let tables = counted(self.tables_kept, "table");
            return write!(f, "nothing to repair: {tables} {are} sound");
        }
        write!(
            f,
            "{} kept, {} written, {}; {} from logs; {}",
            counted(self.tables_kept, "table"),
            self.tables_written,
            counted(self.entries, "entry"),
            counted(self.log_entries, "entry"),
            if self.manifest_used { "as the manifest says" } else { WITHOUT_MANIFEST }
        )?;
        for lost in &self.lost {
            write!(f, "\nlost: ")?;
            if let Some(keyspace) = &lost.keyspace {
                write!(f, "keyspace {keyspace:?}: ")?;
            }
            let end = |key: &Option<Vec<u8>>| match key {
                Some(key) => format!("\"{}\"", key.escape_ascii()),
                None => "an end".into(),
            };
            match (&lost.from, &lost.to) {
                (None, None) => {}
                (from, to) => write!(f, "keys from {} to {}: ", end(from), end(to))?,
            }
            write!(f, "{}: {}", lost.path.display(), lost.what)?;
        }
        if self.entries_lost > 0 {
            write!(f, "\nlost: {} of tables in all", counted(self.entries_lost, "entry"))?;
        }
        for renamed in &self.renamed {
            write!(
                f,
                "\nkeyspace {} is named {:?}: {}",
                renamed.number, renamed.name, renamed.why
            )?;
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
