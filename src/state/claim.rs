//! [`Claim`]: the part of a tree that a compaction changes while it runs.
//!
//! Compactions that run at the same time claim parts that are apart, so each may take the rest of
//! the tree as it was when it began. An older version of a key can come into a table below a
//! compaction only out of another table below it, and that table was in the list of the compaction
//! when it began: so what it drops as the last of its key is still the last when it ends.

use crate::base::key::KeyspaceId;
use crate::tree::overlap::{KeySpan, borrowed};
use std::ops::{Bound, RangeInclusive};

/// The part of a tree that a compaction changes: its levels, and the keys of its tables there.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub keyspace: KeyspaceId,
    /// From the level of its inputs to that of its outputs.
    pub levels: RangeInclusive<usize>,
    /// The numbers of the tables that it replaces.
    pub tables: Vec<u64>,
    /// The first key of these tables.
    pub start: Vec<u8>,
    /// Where they end. What it writes lies between.
    pub end: Bound<Vec<u8>>,
}

impl Claim {
    /// The keys of the tables that it replaces and of those that it writes.
    pub(crate) fn span(&self) -> KeySpan<'_> {
        KeySpan { start: &self.start, end: borrowed(&self.end) }
    }

    /// True if the two may not run at the same time. Tables of both may be in one level, and what
    /// one writes there may lie between those of the other. That is enough: at level 0, two merged
    /// tables could each be older and newer than the other.
    pub(crate) fn conflicts(&self, other: &Claim) -> bool {
        let shares_level =
            self.levels.start() <= other.levels.end() && other.levels.start() <= self.levels.end();
        self.keyspace == other.keyspace && shares_level && self.span().overlaps(&other.span())
    }
}
