//! [`Process`]: the process that created a handle, so that a forked child can be refused.
//!
//! `fork` copies memory, and every handle with it, but only the thread that called it. In the child
//! there are no workers, locks of other threads stay locked for ever, and files and file locks are
//! shared with the parent. So every call that would block, write or read a file first checks the
//! process and returns [`Error::Forked`]. Lookups and scans in memory do not check, because a check
//! is a system call. Drops check too, and do not touch what belongs to the parent.

use crate::base::error::{Error, Result};

/// A process, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Default for Process {
    fn default() -> Self {
        Process::current()
    }
}

impl Process {
    /// The calling process.
    pub(crate) fn current() -> Self {
        Process(std::process::id())
    }

    /// Another process, as a forked child finds it in an inherited handle.
    #[cfg(test)]
    pub(crate) fn other() -> Self {
        Process(0)
    }

    /// False in a process that was forked since.
    #[must_use]
    pub(crate) fn is_current(self) -> bool {
        self == Process::current()
    }

    /// Refuses a process that was forked since.
    ///
    /// # Errors
    /// `Forked`.
    pub(crate) fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(Error::Forked { process: self.0 }) }
    }
}
