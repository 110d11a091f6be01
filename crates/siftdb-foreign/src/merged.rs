//! A merge of sorted runs: all versions of all keys, in the order of their internal keys.

use crate::internal_key::{split, user_key};
use crate::key_order::KeyOrder;
use crate::run::TableRun;
use crate::store::EntryKind;
use siftdb::Result;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt;
use std::sync::Arc;

/// The entries of logs, sorted by internal key.
pub(crate) type Logged = Vec<(Vec<u8>, Vec<u8>)>;

/// Whether logs in this order have a value or a deletion of this user key, and not only operands of
/// merges.
pub(crate) fn ends_lookup(logged: &Logged, key: &[u8], order: KeyOrder) -> bool {
    let at = logged.partition_point(|(logged, _)| order.compare(user_key(logged), key).is_lt());
    let versions = logged.get(at..).unwrap_or_default().iter().map_while(|(logged, _)| {
        split(logged).filter(|(user_key, _)| *user_key == key).map(|(_, trailer)| trailer as u8)
    });
    versions.into_iter().any(|kind| kind != EntryKind::Merge as u8)
}

/// An iterator over the entries of sorted runs. Of one user key the newest version comes first.
pub(crate) struct MergedRuns {
    /// The order of all runs.
    order: KeyOrder,
    /// Runs that are before their first entry.
    unread: Vec<Run>,
    /// Runs at an entry; the one with the first internal key is on top.
    runs: BinaryHeap<RunAtEntry>,
}

impl fmt::Debug for MergedRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergedRuns({})", self.unread.len() + self.runs.len())
    }
}

impl MergedRuns {
    /// Before the first entry of runs of tables and of logs that are in this order.
    pub(crate) fn new(
        order: KeyOrder,
        tables: impl Iterator<Item = TableRun>,
        logged: &Arc<Logged>,
    ) -> Self {
        let tables = tables.map(|run| Run::Tables(Box::new(run)));
        let logs = Run::Logs { entries: Arc::clone(logged), passed: 0 };
        MergedRuns { order, unread: tables.chain([logs]).collect(), runs: BinaryHeap::new() }
    }

    /// Moves to the next entry; false after the last. After an error it must not be used again.
    ///
    /// # Errors
    /// `Io`; `Corruption` and `Missing`, unless damage is noted.
    pub(crate) fn next(&mut self) -> Result<bool> {
        if let Some(mut first) = self.runs.peek_mut()
            && !first.run.next()?
        {
            PeekMut::pop(first);
        }
        for mut run in self.unread.drain(..) {
            if run.next()? {
                self.runs.push(RunAtEntry { run, order: self.order });
            }
        }
        Ok(!self.runs.is_empty())
    }

    /// The internal key of the entry.
    pub(crate) fn key(&self) -> &[u8] {
        self.runs.peek().map_or(&[], |first| first.run.key())
    }

    /// The value of the entry.
    pub(crate) fn value(&self) -> &[u8] {
        self.runs.peek().map_or(&[], |first| first.run.value())
    }
}

/// A sorted run of entries.
enum Run {
    Tables(Box<TableRun>),
    /// The current entry is the last of the first `passed` ones.
    Logs {
        entries: Arc<Logged>,
        passed: usize,
    },
}

impl Run {
    /// Moves to the next entry; false after the last.
    fn next(&mut self) -> Result<bool> {
        match self {
            Run::Tables(run) => run.next(),
            Run::Logs { entries, passed } => {
                *passed += 1;
                Ok(*passed <= entries.len())
            }
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Run::Tables(run) => &run.key,
            Run::Logs { entries, passed } => logged(entries, *passed).map_or(&[], |(key, _)| key),
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            Run::Tables(run) => run.value(),
            Run::Logs { entries, passed } => logged(entries, *passed).map_or(&[], |(_, v)| v),
        }
    }
}

fn logged(entries: &Logged, passed: usize) -> Option<&(Vec<u8>, Vec<u8>)> {
    entries.get(passed.checked_sub(1)?)
}

/// A run, ordered by the internal key of its current entry, the first key last.
struct RunAtEntry {
    run: Run,
    order: KeyOrder,
}

impl Ord for RunAtEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.compare_internal(other.run.key(), self.run.key())
    }
}

impl PartialOrd for RunAtEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunAtEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RunAtEntry {}
