//! The error of building a filter. Asking one has no errors: every doubt means "may contain".

use std::fmt;

/// Why no filter was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A custom policy broke its contract.
    BrokenPolicy {
        /// The policy, and what it did.
        what: String,
    },
    /// The filters of a table do not fit its filter block.
    TooLarge {
        /// The limit.
        what: String,
    },
    /// Hashes or filter changed in memory while the filter was built.
    MemoryCorruption {
        /// The check that failed.
        what: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::BrokenPolicy { what } | BuildError::TooLarge { what } => f.write_str(what),
            BuildError::MemoryCorruption { what } => write!(f, "memory is damaged: {what}"),
        }
    }
}

impl std::error::Error for BuildError {}
