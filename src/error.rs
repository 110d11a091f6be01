//! The one error type of siftdb.
//!
//! Every variant says what failed, where (file, offset) and, in its text, what to do about it.
//! A key that is not there is no error: reads answer `Ok(None)`.
//!
//! `Error` is `Clone`, because one failed sync answers every writer of its group and, once
//! latched, every later write; hence the shared `source`. This module imports nothing of siftdb.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What can go wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call on a file. A read may be tried again; after a failed
    /// write or sync the database answers [`Error::ReadOnly`] until it is reopened.
    Io {
        /// The call that failed, for instance `"sync_data"`.
        op: &'static str,
        /// The file or directory it was made on.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A file holds bytes that siftdb cannot have written there. Nothing was skipped or guessed.
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file, in bytes from its start.
        offset: u64,
        /// What is wrong there, with expected and found values where there are any.
        what: String,
        /// The cheapest way out.
        remedy: Remedy,
    },
    /// Bytes in memory changed by themselves between a check and its repetition, so memory or
    /// processor cannot be trusted. What was about to be written was thrown away; the files are as
    /// they were.
    MemoryCorruption {
        /// What was found to differ.
        what: String,
    },
    /// An option, or a combination of options, cannot work. Nothing was created.
    InvalidOptions {
        /// Which option, the value it had and the values it may have.
        what: String,
    },
    /// An argument of a call is beyond a limit. Nothing was written.
    InvalidArgument {
        /// Which argument, its size and the limit.
        what: String,
    },
    /// Another handle, of this process or another, has the database open.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// An earlier write, flush or compaction failed; the database reads on but takes no writes
    /// until it is reopened.
    ReadOnly {
        /// The failure that was latched.
        cause: Arc<Error>,
    },
    /// The database was opened by `open_read_only`, and this call would write.
    OpenedReadOnly,
    /// `close` was called on this database.
    Closed,
    /// A file is of a format, version or kind that this siftdb does not know. It was left alone.
    UnsupportedFormat {
        /// The file.
        path: PathBuf,
        /// What was found and what is known.
        what: String,
    },
}

/// The cheapest way to make a database with a damaged file sound again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// `Db::rebuild_filters`, or `siftdb filter rebuild`: only the filter of a table is damaged,
    /// every entry is there.
    RebuildFilters,
    /// `Db::repair`, or `siftdb repair`: the file only says where the data is, and the data files
    /// say so themselves.
    Repair,
    /// A copy of the file: it holds data of its own. Without a copy, a repair keeps what can be
    /// read.
    RestoreCopy,
}

impl Remedy {
    /// The remedy for damage in the file with this name, wherever in the file it is.
    fn of_file(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.starts_with("MANIFEST-") || name == "CURRENT" {
            true => Remedy::Repair,
            false => Remedy::RestoreCopy,
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::RebuildFilters => {
                "only the table's filter is damaged: rebuild the filters (`siftdb filter rebuild`)"
            }
            Remedy::Repair => "repair the database (`siftdb repair`)",
            Remedy::RestoreCopy => {
                "restore the file from a copy, or keep what can be read with `siftdb repair`"
            }
        })
    }
}

/// `Result` with siftdb's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Wraps what the system said about `op` on `path`.
    pub(crate) fn io(op: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Error::Io { op, path: path.as_ref().to_path_buf(), source: Arc::new(source) }
    }

    /// Damage at `offset` of `path`.
    pub(crate) fn corruption(path: impl AsRef<Path>, offset: u64, what: impl Into<String>) -> Self {
        let path = path.as_ref().to_path_buf();
        let remedy = Remedy::of_file(&path);
        Error::Corruption { path, offset, what: what.into(), remedy }
    }

    /// The same damage, which concerns a filter only; any other error as it is.
    pub(crate) fn of_filter(mut self) -> Self {
        if let Error::Corruption { remedy, .. } = &mut self {
            *remedy = Remedy::RebuildFilters;
        }
        self
    }

    /// True for [`Error::Corruption`] and [`Error::UnsupportedFormat`]: the files are at fault.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption { .. } | Error::UnsupportedFormat { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { op, path, source } => write!(f, "{op} {}: {source}", path.display()),
            Error::Corruption { path, offset, what, remedy } => {
                write!(f, "{} is damaged at byte {offset}: {what}; {remedy}", path.display())
            }
            Error::MemoryCorruption { what } => write!(
                f,
                "memory is damaged: {what}; nothing of it was written and the files are intact; \
                 test this machine's memory, then reopen the database"
            ),
            Error::InvalidOptions { what } => write!(f, "invalid options: {what}"),
            Error::InvalidArgument { what } => write!(f, "invalid argument: {what}"),
            Error::Locked { path } => write!(
                f,
                "{} is locked: another process has the database open, or a database handle, \
                 iterator or snapshot of this process still lives; close or drop it first",
                path.display()
            ),
            Error::ReadOnly { cause } => write!(
                f,
                "the database is read-only since an earlier failure ({cause}); \
                 remove the cause and reopen it"
            ),
            Error::OpenedReadOnly => {
                write!(f, "the database was opened to read only; open it with `open` to write")
            }
            Error::Closed => write!(f, "the database is closed; open it again"),
            Error::UnsupportedFormat { path, what } => write!(
                f,
                "{}: {what}; it may come from a newer siftdb or another program",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(&**source),
            Error::ReadOnly { cause } => Some(&**cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_names_its_cheapest_remedy() {
        for (file, remedy) in [
            ("000007.sst", "restore the file from a copy"),
            ("000007.wal", "restore the file from a copy"),
            ("CURRENT", "; repair the database"),
            ("MANIFEST-000003", "; repair the database"),
        ] {
            let error = Error::corruption(Path::new("/db").join(file), 7, "a wrong byte");
            let text = error.to_string();
            assert!(text.contains(remedy) && text.contains("siftdb repair"), "{text}");
            let text = error.of_filter().to_string();
            assert!(text.ends_with("rebuild the filters (`siftdb filter rebuild`)"), "{text}");
        }
    }
}
