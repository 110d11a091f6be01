//! How large each level should be: the settings that make a compaction due.

/// An output, or a moved table, may overlap this many full tables one level further down. With more
/// its own compaction would take too long.
const GRANDPARENT_TABLES: u64 = 10;

/// A table below this share of a full one is small: it is merged with small neighbours.
const SMALL_SHARE: u64 = 8;

/// When tables are compacted, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompactionOptions {
    /// Tables at level 0 that make it due.
    pub level0_compaction_trigger: usize,
    /// Bytes that level 1 may hold.
    pub level_base_bytes: u64,
    /// How many times as much each further level may hold.
    pub level_multiplier: u64,
    /// Bytes after which the next output table is started.
    pub table_bytes: u64,
}

impl CompactionOptions {
    /// Bytes that `level`, 1 or deeper, may hold before it is due.
    #[must_use]
    pub(crate) fn target_bytes(&self, level: usize) -> u64 {
        let steps = u32::try_from(level.saturating_sub(1)).unwrap_or(u32::MAX);
        self.level_base_bytes.saturating_mul(self.level_multiplier.saturating_pow(steps))
    }

    /// True if a table of this size is merged with small neighbours.
    #[must_use]
    pub(crate) fn is_small(&self, bytes: u64) -> bool {
        bytes < self.table_bytes / SMALL_SHARE
    }

    /// Bytes of the level after the next that one table may overlap.
    #[must_use]
    pub(crate) fn grandparent_bytes_max(&self) -> u64 {
        self.table_bytes.saturating_mul(GRANDPARENT_TABLES)
    }
}
