//! The names of the files in a database directory: formatting and parsing.
//!
//! | name | what |
//! |---|---|
//! | `CURRENT` | names the current manifest |
//! | `LOCK` | locked while a process has the database open; only `destroy` removes a used one |
//! | `STATS` | counters kept across openings; advisory |
//! | `MANIFEST-000007` | log of version edits |
//! | `000012.wal` | write-ahead log of all keyspaces |
//! | `000013.sst` | table |
//! | `000014.tmp` | a file to be renamed, a run of a bulk load, or a test of the disk's space |
//!
//! Numbers come from one counter and are never reused. [`parse`] accepts exactly the names that
//! [`FileName`] prints. siftdb never touches a file with another name.

use std::fmt;
use std::path::{Path, PathBuf};

/// The counter of file numbers never passes this, so a file that contains more is damaged.
pub(crate) const FILE_NUMBER_MAX: u64 = 1 << 57;

/// The name of a file that belongs to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FileName {
    /// Names the current manifest.
    Current,
    Lock,
    /// Counters kept across openings.
    Stats,
    Manifest(u64),
    /// A write-ahead log.
    Wal(u64),
    Table(u64),
    /// A file that will be renamed.
    Temporary(u64),
}

impl FileName {
    /// The path of this file in `directory`.
    #[must_use]
    pub(crate) fn path(self, directory: &Path) -> PathBuf {
        directory.join(self.to_string())
    }

    /// The number in the name, if the kind has one.
    #[must_use]
    pub(crate) fn number(self) -> Option<u64> {
        match self {
            FileName::Current | FileName::Lock | FileName::Stats => None,
            FileName::Manifest(n)
            | FileName::Wal(n)
            | FileName::Table(n)
            | FileName::Temporary(n) => Some(n),
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Current => f.write_str("CURRENT"),
            FileName::Lock => f.write_str("LOCK"),
            FileName::Stats => f.write_str("STATS"),
            FileName::Manifest(n) => write!(f, "MANIFEST-{n:06}"),
            FileName::Wal(n) => write!(f, "{n:06}.wal"),
            FileName::Table(n) => write!(f, "{n:06}.sst"),
            FileName::Temporary(n) => write!(f, "{n:06}.tmp"),
        }
    }
}

/// Parses the name of a file; `None` if siftdb writes no file of this name.
pub(crate) fn parse(name: &str) -> Option<FileName> {
    use FileName::{Current, Lock, Manifest, Stats, Table, Temporary, Wal};
    let digits = name.trim_matches(|c: char| !c.is_ascii_digit());
    let number = digits.parse().unwrap_or(0);
    let kinds =
        [Current, Lock, Stats, Manifest(number), Wal(number), Table(number), Temporary(number)];
    // Comparing with what is printed refuses "+7.sst", "7.sst" and "0000007.sst".
    kinds.into_iter().find(|file| file.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        for n in [0, 1, 999_999, 1_000_000, u64::MAX] {
            for name in [
                FileName::Manifest(n),
                FileName::Wal(n),
                FileName::Table(n),
                FileName::Temporary(n),
            ] {
                assert_eq!(parse(&name.to_string()), Some(name));
            }
        }
        for name in [FileName::Current, FileName::Lock, FileName::Stats] {
            assert_eq!(parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn foreign_names_are_refused() {
        for name in [
            "",
            ".",
            "CURRENT ",
            "current",
            "7.sst",
            "+00007.sst",
            "0000007.sst",
            "000007.ldb",
            "000007.sst.bak",
            "000007",
            "MANIFEST-",
            "MANIFEST-7",
            "MANIFEST-x",
            "18446744073709551616.sst",
            "-00001.wal",
            "000007.SST",
        ] {
            assert_eq!(parse(name), None, "{name:?}");
        }
    }
}
