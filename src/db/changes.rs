//! [`Changes`]: the writes of a database up to the read point of a follower, in their order.

use crate::base::error::{Error, Result};
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::{Arc, Mutex};
use crate::db::change::{Change, is_load, load, unlogged};
use crate::db::change_reader::{ChangePlace, ChangeReader, Found};
use crate::state::engine::Engine;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::iter::FusedIterator;

/// Iterates the changes of a database: see [`Follower::changes`](crate::Follower::changes). It ends
/// after an error.
pub struct Changes {
    engine: Arc<Engine>,
    reader: ChangeReader,
    names: BTreeMap<KeyspaceId, Arc<str>>,
    through: SequenceNumber,
    read_ahead: VecDeque<Change>,
    /// The error after `read_ahead`, if there is one.
    failure: Option<Error>,
    /// Takes the place where the reading ends.
    ended_at: Arc<Mutex<Option<ChangePlace>>>,
}

/// One line, with the sequences that are not read yet.
impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("next", &self.reader.next)
            .field("through", &self.through)
            .finish_non_exhaustive()
    }
}

impl Changes {
    /// The changes from sequence `from` on up to the read point `engine`. The manifest needs no log
    /// before `needed_log`. If earlier changes `ended_at` that sequence, these continue them and
    /// read only what was appended since.
    ///
    /// # Errors
    /// `Io`; `ChangesGone`; damage.
    pub(super) fn new(
        engine: &Arc<Engine>,
        needed_log: u64,
        from: SequenceNumber,
        ended_at: &Arc<Mutex<Option<ChangePlace>>>,
    ) -> Result<Self> {
        let context = &engine.context;
        let place = *ended_at.lock();
        if let Some(place) = place.filter(|place| place.next == from)
            && let Ok(reader) = ChangeReader::continued(context, needed_log, place)
            && let Ok(changes) = Changes::of(engine, reader, ended_at)
        {
            return Ok(changes);
        }
        // Logs may have been removed since, or their end was lost. This reading tells.
        let through = engine.catalog.published.visible();
        let reader = ChangeReader::new(context, needed_log, from, through)?;
        Changes::of(engine, reader, ended_at)
    }

    fn of(
        engine: &Arc<Engine>,
        reader: ChangeReader,
        ended_at: &Arc<Mutex<Option<ChangePlace>>>,
    ) -> Result<Self> {
        let keyspaces = engine.catalog.all_keyspaces();
        let names = keyspaces.iter().map(|keyspace| (keyspace.id, Arc::from(&*keyspace.name)));
        let mut changes = Changes {
            engine: Arc::clone(engine),
            reader,
            names: names.collect(),
            through: engine.catalog.published.visible(),
            read_ahead: VecDeque::new(),
            failure: None,
            ended_at: Arc::clone(ended_at),
        };
        changes.fill();
        match changes.failure.take_if(|_| changes.read_ahead.is_empty()) {
            Some(error) => Err(error),
            None => Ok(changes),
        }
    }

    /// Reads ahead if nothing is left.
    fn fill(&mut self) {
        let Changes { engine, reader, names, through, read_ahead, failure, ended_at } = self;
        while read_ahead.is_empty() && failure.is_none() && reader.next <= *through {
            let mut take = |found: Found<'_>| match found {
                Found::Entry(sequence, entry) => {
                    let name = names.get(&entry.keyspace).cloned();
                    read_ahead.push_back(Change::of(sequence, name, entry));
                }
                Found::Load(sequence, tables) => {
                    read_ahead.extend(load(&engine.catalog, sequence, tables));
                }
                Found::Unlogged(last) => read_ahead.extend(unlogged(&engine.catalog, last)),
            };
            *failure = reader.read(*through, &mut take).err();
            // A load is in the manifest a moment before a log says that it skips its sequence.
            if matches!(failure, Some(Error::ChangesGone { from, .. }) if from == through)
                && is_load(&engine.catalog, *through)
            {
                *failure = None;
                take(reader.pass_load());
            }
            // In a forked child another thread may have held the lock.
            if failure.is_none()
                && reader.next > *through
                && let Some(mut ended_at) = ended_at.try_lock()
            {
                *ended_at = reader.place();
            }
        }
    }
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
