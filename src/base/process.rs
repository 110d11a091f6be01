//! [`Process`]: the process that made something, so that a forked child can tell that it did not.
//!
//! `fork` copies memory, and with it every handle, but only the thread that called it: workers are
//! gone, locks that other threads held stay locked for ever, files and file locks are shared with
//! the parent. So whatever would wait, write or read a file checks this first and answers
//! [`Error::Forked`]. Lookups of what is in memory do not, since the check is a call of the system.
//! Drops check it too, and leave alone what belongs to the parent.

use crate::base::error::{Error, Result};

/// A process, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Default for Process {
    fn default() -> Self {
        Process::current()
    }
}

impl Process {
    /// The one that calls.
    #[must_use]
    pub fn current() -> Self {
        Process(std::process::id())
    }

    /// False in a child that was forked since.
    #[must_use]
    pub fn is_current(self) -> bool {
        self == Process::current()
    }

    /// Refuses a child that was forked since.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(Error::Forked { process: self.0 }) }
    }
}
