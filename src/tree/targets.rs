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
    /// Bytes that `level`, 1 or deeper, may hold while it is the deepest one with tables.
    pub(crate) fn target_bytes(&self, level: usize) -> u64 {
        self.level_base_bytes.saturating_mul(self.growth(level.saturating_sub(1)))
    }

    /// Bytes that `level`, 1 or deeper, may hold before it is due, if the level `deepest` has
    /// `deepest_bytes` and none below it has a table.
    ///
    /// Each level above the deepest may hold a tenth of the next one, but as much as level 1 at
    /// least. What lies above may be older versions of what lies below, or hide it. So a database
    /// takes little more than its live data, as with RocksDB's dynamic level sizes. By
    /// `target_bytes` alone, a level could be as large as the one below it.
    pub(crate) fn due_bytes(&self, level: usize, deepest: usize, deepest_bytes: u64) -> u64 {
        let own = self.target_bytes(level);
        match deepest.checked_sub(level) {
            None | Some(0) => own,
            Some(steps) => own.min(self.level_base_bytes.max(deepest_bytes / self.growth(steps))),
        }
    }

    /// How many times as much a level may hold as the one that is `steps` above it.
    fn growth(&self, steps: usize) -> u64 {
        self.level_multiplier.saturating_pow(u32::try_from(steps).unwrap_or(u32::MAX)).max(1)
    }

    /// True if a table of this size is merged with small neighbours.
    pub(crate) fn is_small(&self, bytes: u64) -> bool {
        bytes < self.table_bytes / SMALL_SHARE
    }

    /// Bytes of the level after the next that one table may overlap.
    pub(crate) fn grandparent_bytes_max(&self) -> u64 {
        self.table_bytes.saturating_mul(GRANDPARENT_TABLES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: CompactionOptions = CompactionOptions {
        level0_compaction_trigger: 4,
        level_base_bytes: 256,
        level_multiplier: 10,
        table_bytes: 64,
    };

    #[test]
    fn level_targets_grow_without_overflow() {
        let targets: Vec<u64> = (1..5).map(|level| OPTIONS.target_bytes(level)).collect();
        assert_eq!(targets, [256, 2560, 25_600, 256_000]);
        let half = u64::MAX / 2;
        let largest = CompactionOptions { level_base_bytes: half, table_bytes: half, ..OPTIONS };
        assert_eq!(largest.target_bytes(6), u64::MAX);
        assert_eq!(largest.due_bytes(2, 6, u64::MAX), half);
        assert_eq!(largest.grandparent_bytes_max(), u64::MAX);
    }

    #[test]
    fn levels_above_the_deepest_are_a_tenth_each() {
        let due =
            |deepest, bytes| [1, 2, 3, 4].map(|level| OPTIONS.due_bytes(level, deepest, bytes));
        assert_eq!(due(4, 100_000), [256, 1000, 10_000, 256_000]);
        // Never less than level 1 may hold, nor more than the setting says.
        assert_eq!(due(4, 1), [256, 256, 256, 256_000]);
        assert_eq!(due(4, u64::MAX), [256, 2560, 25_600, 256_000]);
        // In an empty tree, and below the deepest level.
        assert_eq!(due(0, 0), [256, 2560, 25_600, 256_000]);
    }
}
