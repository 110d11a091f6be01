//! [`ReadOptions`], [`WriteOptions`] and [`CompactRangeOptions`]: how a single read, write or
//! compaction is done.
//!
//! They go to the methods of `Db` that end in `_with`; the others use the defaults. Each setter
//! takes and gives back the value, and is `const`, so that a program may keep its options in
//! constants. None of them changes the answer of a read or the atomicity of a write, only their
//! cost and what a power loss may take. `database` has the settings of a whole database.

use crate::table::reader::TableReadOptions;

/// How one read is done.
#[derive(Clone, Debug)]
#[must_use = "read options do nothing until they are given to a read"]
pub struct ReadOptions {
    pub(crate) use_filters: bool,
    pub(crate) fill_cache: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions::new()
    }
}

impl ReadOptions {
    /// Filters on, blocks are kept in the cache.
    pub const fn new() -> Self {
        ReadOptions { use_filters: true, fill_cache: true }
    }

    /// Ask filters before tables. Default: true. Off answers the same from the same files without
    /// asking any: for comparisons.
    pub const fn use_filters(mut self, yes: bool) -> Self {
        self.use_filters = yes;
        self
    }

    /// Keep the blocks that this read loads in the cache. Default: true. Off spares the cache a
    /// large scan.
    pub const fn fill_cache(mut self, yes: bool) -> Self {
        self.fill_cache = yes;
        self
    }

    /// What the tables need of them.
    #[inline]
    pub(crate) const fn for_tables(&self) -> TableReadOptions {
        let (use_filters, fill_cache) = (self.use_filters, self.fill_cache);
        TableReadOptions { use_filters, fill_cache, filter_said_maybe: false }
    }
}

/// How one write is done.
#[derive(Clone, Debug, Default)]
#[must_use = "write options do nothing until they are given to a write"]
pub struct WriteOptions {
    pub(crate) sync: bool,
}

impl WriteOptions {
    /// The write survives the death of the process, not yet a power loss.
    pub const fn new() -> Self {
        WriteOptions { sync: false }
    }

    /// Wait until the write, and every write before it, would survive a power loss. Default:
    /// false. Costs a sync of the log, shared with all writers of the same moment.
    pub const fn sync(mut self, yes: bool) -> Self {
        self.sync = yes;
        self
    }
}

/// How one [`Db::compact_range_with`](crate::Db::compact_range_with) is done.
#[derive(Clone, Debug, Default)]
#[must_use = "compaction options do nothing until they are given to a compaction"]
pub struct CompactRangeOptions {
    pub(crate) force: bool,
}

impl CompactRangeOptions {
    /// Tables are rewritten only where that gives back space or makes fewer of them.
    pub const fn new() -> Self {
        CompactRangeOptions { force: false }
    }

    /// Rewrite every table of the range, none is moved unread. Default: false. For new options
    /// (compression, block sizes, filters) to reach all tables, or to read all data once.
    pub const fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }
}
