//! [`Watch`]: the writes of an open database as they are committed.
//!
//! A watch reads the logs, as a follower does, up to the published sequence. So a writer hands
//! nothing over: it wakes the watches after it has published, and goes on. What a watch has not
//! read is in logs, not in memory. Those stay until it has read them, up to a bound. Beyond that
//! they are removed, and the watch returns `ChangesGone`.
//!
//! The keyspaces of a change are looked up when it is read. A drop is no write, so the watch
//! compares the list of keyspaces when one was dropped. All writes to a dropped keyspace are
//! published by then, and the change that says it was dropped comes after them.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::sync::{Arc, Ordering};
use crate::db::change::{Change, ChangedEntry, load, touches, unlogged};
use crate::db::change_reader::{ChangePlace, ChangeReader, Found};
use crate::db::database::Db;
use crate::db::keyspace::Keyspace;
use crate::env::directory_lock::DirectoryLock;
use crate::state::catalog::Catalog;
use crate::state::engine::Engine;
use crate::state::watchers::Watchers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::iter::FusedIterator;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The writes of an open database in their order, as they are committed: of one range
/// ([`Keyspace::watch`]) or of all keyspaces ([`Db::watch`]).
///
/// It is an iterator that blocks until there is a change. [`Watch::next_timeout`] waits for some
/// time only, [`Watch::next_async`] is a future for any executor, and [`Watch::poll_next`] is what
/// a stream needs. It ends when the database is closed and all changes before that were handed out,
/// and when its keyspace was dropped.
///
/// ```
/// use siftdb::{ChangedEntry, Db};
///
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let db = Db::open(directory.path().join("people.sift"))?;
/// let users = db.keyspace("users")?;
/// let mut watch = users.watch("user/".."user0")?;
/// users.put("user/ada", "1815")?;
/// users.put("admin", "root")?; // not in the range
/// users.delete("user/ada")?;
/// let mut changes = Vec::new();
/// db.close()?;
/// for change in watch {
///     changes.push(change?.entry);
/// }
/// let key = b"user/ada".to_vec();
/// let put = ChangedEntry::Put { key: key.clone(), value: b"1815".to_vec(), expires_at: None };
/// assert_eq!(changes, [put, ChangedEntry::Delete { key }]);
/// # Ok(())
/// # }
/// ```
///
/// # What it has
///
/// - Every committed write, with its sequence number and its expiry. Writes of a batch follow each
///   other. A range delete is there if it overlaps the range.
/// - [`ChangedEntry::Load`] for entries that came as tables, and [`ChangedEntry::DropKeyspace`].
/// - No change for what expires, for what a compaction filter removes, and for a keyspace that is
///   created.
/// - Writes that no sync has covered. A position that outlives the computer's power is safe after
///   [`Db::sync`]: without it the numbers of lost writes are given again.
///
/// # What it costs
///
/// Writers wake it and never wait for it. What it has not read stays in the logs: up to
/// [`Options::keep_log_bytes`](crate::Options::keep_log_bytes), or four write buffers if that is
/// more. Beyond that the oldest logs are removed, and the watch returns
/// [`Error::ChangesGone`](crate::Error::ChangesGone) once: `from` is the first change that it
/// misses. Then it goes on with `first`, the one after the last write. So read the range again at a
/// snapshot that is taken after the error, and go on with the watch.
///
/// It keeps no database open. Like a snapshot it keeps the directory of a closed one locked, until
/// it has ended or is dropped, or until [`Db::close_now`].
#[must_use = "a watch hands out changes when it is asked"]
pub struct Watch {
    registration: Registration,
    reader: ChangeReader,
    /// What it watches: the whole database without one.
    scope: Option<(KeyspaceId, KeyBounds)>,
    keyspaces: WatchedKeyspaces,
    read_ahead: VecDeque<Change>,
    /// Keeps the directory locked; `None` when the watch has ended.
    lock: Option<Arc<DirectoryLock>>,
}

/// One line, with the sequence that it reads next.
impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("directory", &self.registration.engine.context.directory)
            .field("next", &self.reader.next)
            .finish_non_exhaustive()
    }
}

impl Keyspace {
    /// The writes to keys of `range` from now on, as they are committed: see [`Watch`]. To have
    /// everything before, too, take a snapshot after this call, read it, and skip the changes up to
    /// [`Snapshot::last_sequence`](crate::Snapshot::last_sequence), but no `DropKeyspace`.
    ///
    /// # Errors
    /// `Closed`, `OpenedReadOnly`, `KeyspaceDropped`, `Io`.
    pub fn watch(&self, range: impl KeyRange) -> Result<Watch> {
        Watch::new(self, Some(range.into_bounds()), None)
    }

    /// As [`Keyspace::watch`], from sequence `from` on: the one after the last change that was
    /// handled. Logs of before are there up to the last flush, and further with
    /// [`Options::keep_log_bytes`](crate::Options::keep_log_bytes).
    ///
    /// # Errors
    /// As for [`Keyspace::watch`]; `ChangesGone` if the logs do not have all changes from there on,
    /// or if that sequence is above the next one, after a loss of power or a repair.
    pub fn watch_from(&self, range: impl KeyRange, from: u64) -> Result<Watch> {
        Watch::new(self, Some(range.into_bounds()), Some(from))
    }
}

impl Db {
    /// The writes to all keyspaces from now on: see [`Keyspace::watch`].
    ///
    /// # Errors
    /// As for [`Keyspace::watch`].
    pub fn watch(&self) -> Result<Watch> {
        Watch::new(self, None, None)
    }

    /// The writes to all keyspaces from sequence `from` on: see [`Keyspace::watch_from`].
    ///
    /// # Errors
    /// As for [`Keyspace::watch_from`].
    pub fn watch_from(&self, from: u64) -> Result<Watch> {
        Watch::new(self, None, Some(from))
    }
}

/// Changes for which a watch keeps memory when it has handed out all that it read ahead.
const READ_AHEAD_KEPT: usize = 1 << 13;

/// What a watch finds.
enum Step {
    Change(Result<Change>),
    /// Nothing yet.
    Wait,
    End,
}

impl Watch {
    /// Watches the range of `keyspace`, or all keyspaces without one; from now on without `from`.
    fn new(keyspace: &Keyspace, range: Option<KeyBounds>, from: Option<u64>) -> Result<Self> {
        let (engine, state) = (keyspace.engine(), &keyspace.state);
        engine.context.process.check()?;
        engine.context.check_takes_writes()?;
        let lock = engine.catalog.hold()?;
        if range.is_some() {
            state.check_there()?;
        }
        let scope = range.map(|range| (state.id, range));
        // From here on every writer wakes it, and no log is removed.
        let mut registration = Registration::new(engine);
        let reader = registration.reader(from)?;
        registration.keep_logs_from(reader.tail.oldest_log());
        // After the reader was placed: all writes to a keyspace that a batch has just created may
        // be before it, and its drop is a change.
        let keyspaces = WatchedKeyspaces::new(&engine.catalog, scope.as_ref().map(|(id, _)| *id));
        let (read_ahead, lock) = (VecDeque::new(), Some(lock));
        Ok(Watch { registration, reader, scope, keyspaces, read_ahead, lock })
    }

    /// The next change, if one is committed within `timeout`; `None` if not.
    ///
    /// # Errors
    /// Those that the iterator returns; `Closed` when the watch has ended.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Change>> {
        // A time that is too long to be told is no limit.
        match self.next_until(Instant::now().checked_add(timeout)) {
            Some(found) => found,
            None => Err(Error::Closed),
        }
    }

    /// The next change, as a future for any executor. Reading the logs blocks: for microseconds
    /// if they are in the page cache. Dropping the future loses no change.
    pub fn next_async(&mut self) -> impl Future<Output = Option<Result<Change>>> + Send + '_ {
        poll_fn(|context| self.poll_next(context))
    }

    /// As `Stream::poll_next` of the crate `futures`. A writer calls the waker after its write,
    /// without a lock, and waits until it returns. A waker may use the database, but one that polls
    /// and writes each time calls itself without end.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Change>>> {
        let generation = self.registration.watchers().wakeup.generation();
        match self.step() {
            Step::Change(change) => Poll::Ready(Some(change)),
            Step::End => Poll::Ready(None),
            Step::Wait => {
                let (number, waker) = (self.registration.number, context.waker().clone());
                if !self.registration.watchers().wake_by(number, generation, waker) {
                    // Looked for again by the next poll: writes that concern others may go on.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// The next change: `None` at the end, `Some(Ok(None))` if none came until `deadline`.
    fn next_until(&mut self, deadline: Option<Instant>) -> Option<Result<Option<Change>>> {
        loop {
            let generation = self.registration.watchers().wakeup.generation();
            match self.step() {
                Step::Change(change) => return Some(change.map(Some)),
                Step::End => return None,
                Step::Wait => {
                    // Each look may meet a wakeup by a write that concerns others.
                    let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
                    if is_over || !self.registration.watchers().wait_past(generation, deadline) {
                        return Some(Ok(None));
                    }
                }
            }
        }
    }

    /// Looks for the next change.
    fn step(&mut self) -> Step {
        if self.lock.is_none() {
            return Step::End;
        }
        let step = self.read().unwrap_or_else(|error| Step::Change(Err(self.after(error))));
        let is_end = match &step {
            Step::Change(Ok(change)) => {
                self.scope.is_some() && change.entry == ChangedEntry::DropKeyspace
            }
            Step::Change(Err(error)) => !matches!(error, Error::ChangesGone { .. }),
            Step::Wait => false,
            Step::End => true,
        };
        if is_end {
            self.registration.end();
            self.lock = None;
        }
        step
    }

    /// Goes on after the last write if logs are gone; the error that says so.
    fn after(&mut self, error: Error) -> Error {
        let Error::ChangesGone { directory, from, .. } = error else { return error };
        match self.registration.reader(None) {
            Ok(reader) => {
                self.reader = reader;
                self.registration.keep_logs_from(self.reader.tail.oldest_log());
                // After the reader was placed: a copy that is read again has keyspaces whose writes
                // are all in the gap, and their drop is a change.
                self.keyspaces.add_present(&self.registration.engine.catalog);
                Error::ChangesGone { directory, from, first: self.reader.next }
            }
            Err(error) => error,
        }
    }

    fn read(&mut self) -> Result<Step> {
        if let Some(change) = self.read_ahead.pop_front() {
            return Ok(Step::Change(Ok(change)));
        }
        let Engine { context, catalog, .. } = &*self.registration.engine;
        context.process.check()?;
        context.check_reads()?;
        // Before the published sequence: no write and no drop comes after the end.
        let is_closed = catalog.default.view.load().lock.is_none();
        self.keyspaces.find_dropped(catalog);
        let published = catalog.published.visible();
        // Before what was written after it: a drop waits for no later write.
        let through = self.keyspaces.first_drop().map_or(published, |drop| drop.min(published));
        while self.read_ahead.is_empty() && self.reader.next <= through {
            self.read_some(through)?;
        }
        let dropped = || self.keyspaces.next_dropped(self.reader.next);
        Ok(match self.read_ahead.pop_front().or_else(dropped) {
            Some(change) => Step::Change(Ok(change)),
            None if is_closed => Step::End,
            None => Step::Wait,
        })
    }

    /// Reads ahead some of what was published up to `through`.
    fn read_some(&mut self, through: SequenceNumber) -> Result<()> {
        let Engine { catalog, writer, .. } = &*self.registration.engine;
        // After the published sequence, so it has every log up to there. The start of a log says
        // where the one before ends: what comes after that was refused.
        self.reader.add_logs(writer.live_logs.lock().all());
        let (scope, keyspaces, read_ahead) =
            (self.scope.as_ref(), &mut self.keyspaces, &mut self.read_ahead);
        // After a batch of many entries.
        read_ahead.shrink_to(READ_AHEAD_KEPT);
        let read = self.reader.read(through, &mut |found| {
            let loads = match found {
                Found::Entry(sequence, entry) => {
                    let is_watched = scope
                        .is_none_or(|(id, range)| entry.keyspace == *id && touches(entry, range));
                    if is_watched {
                        let name = keyspaces.name_of(entry.keyspace, catalog);
                        read_ahead.push_back(Change::of(sequence, name, entry));
                    }
                    return;
                }
                Found::Load(sequence, tables) => load(catalog, sequence, tables),
                Found::Unlogged(last) => unlogged(catalog, last),
            };
            for load in loads {
                if scope.is_none_or(|(id, range)| load.keyspace_number == *id && load.is_in(range))
                {
                    // Its drop is a change, too.
                    keyspaces.name_of(load.keyspace_number, catalog);
                    read_ahead.push_back(load);
                }
            }
        });
        // What was read comes before the error, which the next reading meets again.
        if read_ahead.is_empty() {
            read?;
        }
        self.registration.keep_logs_from(self.reader.tail.oldest_log());
        Ok(())
    }
}

impl Iterator for Watch {
    type Item = Result<Change>;

    /// Blocks until there is a change. `ChangesGone` says that the watch fell behind and has gone
    /// on; it ends after any other error.
    fn next(&mut self) -> Option<Result<Change>> {
        self.next_until(None)?.transpose()
    }
}

impl FusedIterator for Watch {}

/// The registration of a watch: writers wake it, and logs that it has not read stay.
struct Registration {
    engine: Arc<Engine>,
    /// Its number among the watches of the database.
    number: u64,
    /// This log and all later ones stay.
    kept_from: u64,
}

impl Registration {
    fn new(engine: &Arc<Engine>) -> Self {
        let number = engine.writer.watchers.add();
        drop(engine.writer.live_logs.lock().watch(number, 0));
        Registration { engine: Arc::clone(engine), number, kept_from: 0 }
    }

    fn watchers(&self) -> &Watchers {
        &self.engine.writer.watchers
    }

    /// A reader from sequence `from` on; after the last write without one.
    ///
    /// # Errors
    /// `ChangesGone`; `Io`; `Corruption` of a log.
    fn reader(&self, from: Option<SequenceNumber>) -> Result<ChangeReader> {
        let Engine { context, catalog, writer, .. } = &*self.engine;
        // The lock that a writer holds while it publishes: see `Watchers`.
        let log = writer.log.lock();
        let (last, next) = (log.last_sequence, log.next_sequence);
        // Refused writes have later numbers; the next opening may have them.
        let after_last = catalog.published.visible() + 1;
        let end = log.current.as_ref().map(|wal| (wal.number, wal.records.bytes()));
        // Without a log every later one has a new number.
        let new_log = catalog.numbers.next_file.load(Ordering::Relaxed);
        let needed = writer.live_logs.lock().oldest().map_or(new_log, |log| log.number);
        drop(log);
        match from {
            Some(from) if from > next => {
                let directory = context.directory.clone();
                Err(Error::ChangesGone { directory, from, first: after_last })
            }
            Some(from) if from <= last => ChangeReader::new(context, needed, from, last),
            _ => {
                let next = from.unwrap_or(after_last);
                let (log, end) = end.unwrap_or((new_log, 0));
                ChangeReader::at(context, log, ChangePlace { last, next, log, end })
            }
        }
    }

    /// Lets go of the logs before `log`.
    fn keep_logs_from(&mut self, log: u64) {
        if self.kept_from < log {
            self.kept_from = log;
            let unneeded = self.engine.writer.live_logs.lock().watch(self.number, log);
            self.remove(unneeded);
        }
    }

    /// Lets go of all logs: the watch may be dropped long after its end.
    fn end(&mut self) {
        // In a forked child another thread may have held the lock.
        if self.engine.context.process.is_current() {
            self.keep_logs_from(u64::MAX);
        }
    }

    /// Has a worker remove logs that nothing needs any more.
    fn remove(&self, logs: Vec<u64>) {
        if !logs.is_empty() {
            self.engine.catalog.obsolete.add(logs.into_iter().map(FileName::Wal));
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // In a forked child another thread may have held the locks.
        if self.engine.context.process.is_current() {
            self.watchers().remove(self.number);
            let unneeded = self.engine.writer.live_logs.lock().unwatch(self.number);
            self.remove(unneeded);
        }
    }
}

/// The names of the keyspaces that a watch has met, and the drops that it has yet to hand out.
struct WatchedKeyspaces {
    /// `None` for one that was dropped before the watch met it.
    names: BTreeMap<KeyspaceId, Option<Arc<str>>>,
    /// The only one that is watched, if it is one.
    only: Option<KeyspaceId>,
    /// The drops of keyspaces up to here were noticed.
    drops: u64,
    /// The first number that no keyspace had then.
    next: KeyspaceId,
    /// Dropped keyspaces, each with a sequence that no write to it is above.
    dropped: VecDeque<(SequenceNumber, KeyspaceId)>,
}

impl WatchedKeyspaces {
    /// Those that are there, or `only` one of them.
    fn new(catalog: &Catalog, only: Option<KeyspaceId>) -> Self {
        let drops = catalog.drops.load(Ordering::SeqCst);
        let next = catalog.keyspaces.lock().next();
        let (names, dropped) = (BTreeMap::new(), VecDeque::new());
        let mut watched = WatchedKeyspaces { names, only, drops, next, dropped };
        watched.add_present(catalog);
        watched
    }

    /// Adds those that are there.
    fn add_present(&mut self, catalog: &Catalog) {
        let only = self.only;
        let ids = catalog.all_keyspaces().into_iter().map(|keyspace| keyspace.id);
        let ids: Vec<_> = ids.filter(|id| only.is_none_or(|only| *id == only)).collect();
        // One that was dropped since then is found as a drop.
        ids.into_iter().chain(only).for_each(|id| drop(self.name_of(id, catalog)));
    }

    /// The name of a keyspace; `None` if it was dropped before it was asked for.
    fn name_of(&mut self, id: KeyspaceId, catalog: &Catalog) -> Option<Arc<str>> {
        if let Some(name) = self.names.get(&id) {
            return name.clone();
        }
        let there = catalog.keyspaces.lock().get(id).map(|keyspace| Arc::from(&*keyspace.name));
        // The drop of a later one is found by its number.
        if there.is_none() && id < self.next {
            self.dropped.push_back((catalog.published.visible(), id));
        }
        self.names.insert(id, there.clone());
        there
    }

    /// Notices the keyspaces that were dropped.
    fn find_dropped(&mut self, catalog: &Catalog) {
        let drops = catalog.drops.load(Ordering::SeqCst);
        if drops == self.drops {
            return;
        }
        self.drops = drops;
        let there: BTreeSet<_> = {
            let keyspaces = catalog.keyspaces.lock();
            // Those that came and went since the last look, too: a copy may have entries of them
            // that came as tables, and those are in no log.
            if self.only.is_none() {
                let gone = keyspaces.dropped_from(self.next);
                gone.for_each(|id| _ = self.names.entry(id).or_default());
            }
            self.next = keyspaces.next();
            keyspaces.iter().map(|keyspace| keyspace.id).collect()
        };
        // After the list: all writes to what is missing there are published.
        let through = catalog.published.visible();
        let known: BTreeSet<_> = self.dropped.iter().map(|(_, dropped)| *dropped).collect();
        let is_new = |id: &KeyspaceId| !there.contains(id) && !known.contains(id);
        let new: Vec<_> = self.names.keys().copied().filter(is_new).collect();
        self.dropped.extend(new.into_iter().map(|id| (through, id)));
    }

    /// The sequence of the next drop.
    fn first_drop(&self) -> Option<SequenceNumber> {
        self.dropped.front().map(|(last, _)| *last)
    }

    /// The next drop, if all writes to the keyspace were read: those before sequence `next`.
    fn next_dropped(&mut self, next: SequenceNumber) -> Option<Change> {
        let (sequence, keyspace_number) = *self.dropped.front().filter(|(last, _)| *last < next)?;
        self.dropped.pop_front();
        let keyspace = self.names.remove(&keyspace_number).flatten();
        Some(Change { sequence, keyspace_number, keyspace, entry: ChangedEntry::DropKeyspace })
    }
}
