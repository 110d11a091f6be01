//! The live entries of a LevelDB database: a merge of its sorted runs.

use crate::internal_key::{compare, split};
use crate::leveldb::logged::{Logged, VALUE};
use crate::leveldb::run::TableRun;
use siftdb::{Error, Result};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt;
use std::sync::Arc;

/// The live entries of a [`LevelDb`](crate::LevelDb), key by key. Ends after an error.
pub struct Entries {
    /// Runs that are before their first entry.
    unread: Vec<Run>,
    /// Runs at an entry; the one with the smallest internal key is on top.
    runs: BinaryHeap<Run>,
    /// The user key of the entry before. Further entries of this key are old versions.
    last_key: Option<Vec<u8>>,
    error: Option<Error>,
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("last_key", &self.last_key).finish_non_exhaustive()
    }
}

impl Entries {
    pub(crate) fn new(runs: impl Iterator<Item = Run>) -> Self {
        let (unread, runs) = (runs.collect(), BinaryHeap::new());
        Entries { unread, runs, last_key: None, error: None }
    }

    /// Moves every run to its first entry.
    fn start(&mut self) -> Result<()> {
        for mut run in self.unread.drain(..) {
            if run.next()? {
                self.runs.push(run);
            }
        }
        Ok(())
    }
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.start() {
            self.error = Some(error);
        }
        while self.error.is_none()
            && let Some(mut first) = self.runs.peek_mut()
        {
            let (key, trailer) = split(first.key()).unwrap_or_default();
            let is_newest = self.last_key.as_deref() != Some(key);
            let is_live = is_newest && trailer as u8 == VALUE;
            let entry = is_live.then(|| (key.to_vec(), first.value().to_vec()));
            if is_newest {
                let last = self.last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            match first.next() {
                Ok(true) => {}
                Ok(false) => _ = PeekMut::pop(first),
                // Reported after this entry.
                Err(error) => self.error = Some(error),
            }
            if entry.is_some() {
                return entry.map(Ok);
            }
        }
        self.runs.clear();
        self.error.take().map(Err)
    }
}

/// A sorted run of entries, ordered by the internal key of its current entry, the smallest last.
pub(crate) enum Run {
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
            Run::Tables(run) => run.key(),
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

impl Ord for Run {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(other.key(), self.key())
    }
}

impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Run {}
