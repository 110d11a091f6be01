//! [`Changes`]: the writes of a database in their order, read from its logs.
//!
//! Everything up to the read point of a follower is in the logs that are still there, from some
//! sequence on. All of them are opened at the beginning, so the writer may remove them afterwards.
//! A batch is read whole, and a read point ends with a batch, so the changes of two read points
//! never share one.

use crate::base::batch_format::{BatchEntry, DecodedBatch, WriteKind};
use crate::base::error::{Error, Result};
use crate::base::expiry::split_expiring;
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::Arc;
use crate::env::directory::our_files;
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::tail::{LogTail, Reach, TailEnd};
use crate::state::engine::Engine;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::iter::FusedIterator;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of entries that are read ahead.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// A write that a database took: see [`Follower::changes`](crate::Follower::changes).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its sequence number. They rise by one from change to change.
    pub sequence: u64,
    /// The number of its keyspace: 0 for `default`. No other keyspace ever gets it.
    pub keyspace_number: u32,
    /// The name of its keyspace; `None` if that was dropped since.
    pub keyspace: Option<Arc<str>>,
    /// What was written: a value, a deletion, or the deletion of a range.
    pub entry: ChangedEntry,
}

/// The write of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangedEntry {
    /// A value was written under a key.
    Put {
        /// The key, whole.
        key: Vec<u8>,
        /// The value, without the time at which it expires.
        value: Vec<u8>,
        /// From when on it is gone; `None` for never. No change follows at that time.
        expires_at: Option<SystemTime>,
    },
    /// A key was deleted, which need not have been there.
    Delete {
        /// The key that was deleted.
        key: Vec<u8>,
    },
    /// The keys from `start` on and below `end` were deleted; all from `start` on without one.
    DeleteRange {
        /// The first key of the range.
        start: Vec<u8>,
        /// The key after the last one.
        end: Option<Vec<u8>>,
    },
}

impl ChangedEntry {
    fn of(entry: &BatchEntry<'_>) -> Self {
        let key = entry.key.to_vec();
        match entry.kind {
            WriteKind::Delete => ChangedEntry::Delete { key },
            WriteKind::DeleteRange => {
                ChangedEntry::DeleteRange { start: key, end: entry.range_end().map(<[u8]>::to_vec) }
            }
            WriteKind::Put => {
                ChangedEntry::Put { key, value: entry.value.to_vec(), expires_at: None }
            }
            WriteKind::PutExpiring => {
                let (millis, value) = split_expiring(entry.value).unwrap_or_default();
                let expires_at = UNIX_EPOCH.checked_add(Duration::from_millis(millis));
                ChangedEntry::Put { key, value: value.to_vec(), expires_at }
            }
        }
    }
}

/// Iterates the changes of a database: see [`Follower::changes`](crate::Follower::changes). It ends
/// after an error.
pub struct Changes {
    tail: LogTail,
    logs: Vec<u64>,
    facts: ManifestFacts,
    names: BTreeMap<KeyspaceId, Arc<str>>,
    directory: PathBuf,
    /// No opening reads older logs, so damage in them is no damage of the database.
    needed_log: u64,
    /// The next sequence to read, and the last one.
    next: SequenceNumber,
    through: SequenceNumber,
    read_ahead: VecDeque<Change>,
    /// The error after `read_ahead`, if there is one.
    failure: Option<Error>,
}

/// One line, with the sequences that are not read yet.
impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("next", &self.next)
            .field("through", &self.through)
            .finish_non_exhaustive()
    }
}

impl Changes {
    /// The changes from sequence `from` on up to the read point `engine`. The manifest needs no log
    /// before `needed_log`.
    ///
    /// # Errors
    /// `Io`; `ChangesGone`; damage.
    pub(crate) fn new(engine: &Engine, needed_log: u64, from: SequenceNumber) -> Result<Self> {
        let (env, directory) = (Arc::clone(&engine.context.env), &engine.context.directory);
        // The logs of any later manifest may be there too. They say by themselves what is missing.
        let database = engine.context.database;
        let facts = ManifestFacts { database, number: u64::MAX, ..ManifestFacts::default() };
        let number = |name: &FileName| match name {
            FileName::Wal(number) => Some(*number),
            _ => None,
        };
        let mut logs: Vec<u64> = our_files(&*env, directory)?.iter().filter_map(number).collect();
        logs.sort_unstable();
        let mut tail = LogTail::new(env, directory, 0, 0);
        let logs = tail.place_before(from, &logs, &facts)?;
        let keyspaces = engine.catalog.all_keyspaces();
        let names = keyspaces.iter().map(|keyspace| (keyspace.id, Arc::from(&*keyspace.name)));
        let mut changes = Changes {
            tail,
            logs,
            facts,
            names: names.collect(),
            directory: directory.clone(),
            needed_log,
            next: from.max(1),
            through: engine.catalog.published.visible(),
            read_ahead: VecDeque::new(),
            failure: None,
        };
        changes.fill();
        match changes.failure.take_if(|_| changes.read_ahead.is_empty()) {
            Some(error) => Err(error),
            None => Ok(changes),
        }
    }

    /// Reads ahead if nothing is left.
    fn fill(&mut self) {
        while self.read_ahead.is_empty() && self.failure.is_none() && self.next <= self.through {
            if let Err(error) = self.read_some() {
                self.failure = Some(error);
            }
        }
    }

    fn read_some(&mut self) -> Result<()> {
        let before = self.tail.last_sequence();
        let reach = Reach { through: self.through, bytes: READ_AHEAD_BYTES };
        let (next, names, read_ahead) = (&mut self.next, &self.names, &mut self.read_ahead);
        let directory = &self.directory;
        let mut take = |_, batch: &DecodedBatch<'_>| {
            if batch.sequence > *next {
                return Err(gone(directory, *next, batch.sequence));
            }
            for (entry, sequence) in batch.iter().zip(batch.sequence..) {
                if sequence == *next {
                    read_ahead.push_back(Change {
                        sequence,
                        keyspace_number: entry.keyspace,
                        keyspace: names.get(&entry.keyspace).cloned(),
                        entry: ChangedEntry::of(&entry),
                    });
                    *next += 1;
                }
            }
            Ok(())
        };
        match self.tail.read(&self.logs, &self.facts, reach, &mut take) {
            Ok(TailEnd::UpToDate) if self.tail.last_sequence() > before => Ok(()),
            // A change that the read point shows is in no log.
            Ok(_) => Err(gone(&self.directory, self.next, self.through + 1)),
            Err(error) if error.is_corruption() && self.tail.log() < self.needed_log => {
                // Nothing synced this log before its writes were in tables.
                let first = self.tail.next_log_begins_with();
                Err(first.map_or(error, |first| gone(&self.directory, self.next, first)))
            }
            Err(error) => Err(error),
        }
    }
}

fn gone(directory: &Path, from: SequenceNumber, first: SequenceNumber) -> Error {
    Error::ChangesGone { directory: directory.to_path_buf(), from, first }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Result<Change>> {
        self.fill();
        if let Some(change) = self.read_ahead.pop_front() {
            return Some(Ok(change));
        }
        let failure = self.failure.take()?;
        // Nothing follows an error.
        self.through = 0;
        Some(Err(failure))
    }
}

impl FusedIterator for Changes {}
