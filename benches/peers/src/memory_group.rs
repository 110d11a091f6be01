//! A control group of the system: it bounds the memory of a process, cached pages of files
//! included.
//!
//! Both versions of the system's interface are known: version 1 has a tree of groups for memory
//! alone, version 2 one for everything.

use crate::engine::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the system mounts its groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// A group below the root of the system's groups.
#[derive(Clone)]
pub struct MemoryGroup {
    directory: PathBuf,
    /// The names of its files.
    limit: &'static str,
    peak: &'static str,
}

impl MemoryGroup {
    /// The group of this name, which may not exist.
    pub fn named(name: &str) -> Self {
        let root = Path::new(GROUPS);
        let (tree, limit, peak) = match root.join("cgroup.controllers").exists() {
            true => (root.to_owned(), "memory.max", "memory.peak"),
            false => (root.join("memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        };
        MemoryGroup { directory: tree.join(name), limit, peak }
    }

    /// Makes the group, for processes that together may take this much memory.
    ///
    /// # Errors
    /// The right to make groups is missing, or the system has none.
    pub fn create(&self, memory_bytes: u64) -> Result<()> {
        let create = || {
            fs::create_dir(&self.directory)?;
            fs::write(self.directory.join(self.limit), memory_bytes.to_string())
        };
        let refused = |error| {
            let directory = self.directory.display();
            format!("{directory}: {error}; this phase needs the right to make control groups")
        };
        Ok(create().map_err(refused)?)
    }

    /// Moves this process into the group. What it has in memory before counts elsewhere.
    pub fn join(&self) -> Result<()> {
        Ok(fs::write(self.directory.join("cgroup.procs"), "0")?)
    }

    /// The most memory that the group had at once.
    pub fn peak_bytes(&self) -> Result<u64> {
        Ok(fs::read_to_string(self.directory.join(self.peak))?.trim().parse()?)
    }

    /// Removes the group, in which no process is any more.
    pub fn remove(&self) -> Result<()> {
        Ok(fs::remove_dir(&self.directory)?)
    }
}
