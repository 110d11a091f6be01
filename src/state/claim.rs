//! [`Claim`]: the part of a tree that a compaction changes while it runs.
//!
//! Compactions that run at the same time claim parts that have no level and key in common. Each
//! lists, when it begins, the deeper tables that may have older versions of its keys, and drops a
//! tombstone only if none has. The list stays right while others run: they may move an older
//! version to another deep table, but only out of a table that is in the list.

use crate::base::key::KeyspaceId;
use crate::tree::overlap::{KeySpan, borrowed};
use std::collections::HashSet;
use std::ops::{Bound, RangeInclusive};

/// The part of a tree that a compaction changes: its levels, and the keys of its tables there.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub keyspace: KeyspaceId,
    /// The level that it takes tables from, up to the level that it writes to.
    pub levels: RangeInclusive<usize>,
    /// The numbers of the tables that it replaces.
    pub tables: HashSet<u64>,
    /// The first key of these tables.
    pub start: Vec<u8>,
    /// Where they end. The tables that it writes are within the same keys.
    pub end: Bound<Vec<u8>>,
}

impl Claim {
    /// The keys of the tables that it replaces and of those that it writes.
    pub(crate) fn span(&self) -> KeySpan<'_> {
        KeySpan { start: &self.start, end: borrowed(&self.end) }
    }

    /// True if the two must not run at the same time: they share a level, and keys there. It is not
    /// enough that they share no table. One could write a table between two of the other, which
    /// become one table.
    pub(crate) fn conflicts(&self, other: &Claim) -> bool {
        let shares_level =
            self.levels.start() <= other.levels.end() && other.levels.start() <= self.levels.end();
        self.keyspace == other.keyspace && shares_level && self.span().overlaps(&other.span())
    }
}
