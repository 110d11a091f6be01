//! [`KeyspaceState`]: the tree of one keyspace, and [`Keyspaces`], all of them by number and name.
//!
//! A keyspace has memtables, tables, settings and counters of its own. Log, sequences, cache,
//! workers and the directory's lock are the database's (`state/engine.rs`).
//!
//! A drop takes the keyspace out of [`Keyspaces`] and closes its view: handles answer
//! `KeyspaceDropped` from then on. Snapshots that were taken before still read the tables in the
//! closed view. They go once the last of these snapshots is released.

use crate::base::error::{Error, Result};
use crate::base::expiry::Expiry;
use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId, SequenceNumber};
use crate::base::levels::LEVELS;
use crate::base::stats::counters::{Counters, Timer};
use crate::base::sync::{
    Arc, ArcSwap, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Wakeup, thread,
};
use crate::memtable::memtable::{Memtable, Published};
use crate::options::database::Options;
use crate::state::context::Context;
use crate::state::filter_workload::FilterWorkload;
use crate::state::lock_rank::{LockRank, RankedMutex};
use crate::state::read_view::ReadView;
use crate::tree::file_meta::FileMeta;
use crate::tree::version::Version;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A scan that passes more tombstones, or covered and expired entries of memtables, than this to
/// reach one entry, some 100 us of work, asks for a flush of the memtable.
pub(crate) const TOMBSTONES_PASSED_MAX: usize = 1024;

/// Tombstones in a memtable that has little else at which it is flushed: a scan passes them in
/// less than a millisecond.
pub(crate) const TOMBSTONES_MAX: usize = 4096;

/// What the keyspaces of a database share: all that a read needs besides its keyspace.
#[derive(Clone)]
pub(crate) struct ReadServices {
    pub context: Arc<Context>,
    /// The last sequence that reads may see.
    pub published: Arc<Published>,
    pub work: Arc<Wakeup>,
    /// Bytes of the memtables that wait for their flush, in all keyspaces. Not kept by followers,
    /// whose memtables grow while views show them.
    pub immutable_bytes: Arc<AtomicUsize>,
}

/// The state of one keyspace.
pub(crate) struct KeyspaceState {
    /// Its number, which no other keyspace of this database ever has.
    pub id: KeyspaceId,
    pub name: String,
    /// The options of the database with the settings of this keyspace.
    pub options: ArcSwap<Options>,
    /// Milliseconds after which puts expire, of `options`; `u64::MAX` for never. Every write group
    /// loads it.
    pub expire_after: AtomicU64,
    /// What reads need besides the keyspace.
    pub served: ReadServices,
    /// Where reads look.
    pub view: ArcSwap<ReadView>,
    /// Serializes replacements of `view`.
    pub view_update: RankedMutex<()>,
    /// The counters of lookups and scans in this keyspace.
    pub counters: Arc<Counters>,
    /// How long they take is counted, too. Next to what every lookup loads.
    pub times_calls: bool,
    /// The input for the division of a filter budget.
    pub filter_workload: RankedMutex<FilterWorkload>,
    /// The tables of compactions whose results were refused. Workers do not try such a compaction
    /// again while all its tables are there.
    pub refused: Mutex<Vec<Vec<u64>>>,
    /// A scan passed many tombstones while the active memtable had many.
    pub scans_pass_tombstones: AtomicBool,
    /// Which drop of a keyspace dropped this one, counted from 1 in this opening; 0 while it is
    /// there.
    pub dropped_as: AtomicU64,
    /// A handle of this process uses its settings.
    pub is_open: AtomicBool,
}

/// One line: the fields would fill pages.
impl fmt::Debug for KeyspaceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyspace {{ id: {}, name: {:?} }}", self.id, self.name)
    }
}

impl KeyspaceState {
    /// A keyspace that reads look for in `view`.
    pub(crate) fn new(
        id: KeyspaceId,
        name: String,
        options: Arc<Options>,
        served: ReadServices,
        view: ReadView,
    ) -> Self {
        KeyspaceState {
            id,
            name,
            served,
            expire_after: AtomicU64::new(options.expire_after_millis()),
            times_calls: options.latency_histograms,
            options: ArcSwap::new(options),
            view: ArcSwap::from_pointee(view),
            view_update: RankedMutex::new(LockRank::ViewUpdate, ()),
            counters: Arc::new(Counters::new()),
            filter_workload: RankedMutex::new(LockRank::FilterWorkload, FilterWorkload::default()),
            refused: Mutex::default(),
            scans_pass_tombstones: AtomicBool::new(false),
            dropped_as: AtomicU64::new(0),
            is_open: AtomicBool::new(id == DEFAULT_KEYSPACE),
        }
    }

    /// A timer for a read, which does nothing unless calls are timed.
    #[inline]
    pub(crate) fn timer(&self) -> Timer {
        Timer::start(self.times_calls)
    }

    /// Gives it other settings.
    pub(crate) fn set_options(&self, options: Options) {
        self.expire_after.store(options.expire_after_millis(), Ordering::Relaxed);
        self.options.store(Arc::new(options));
    }

    /// When its puts expire if the write itself does not say it; `None` for never.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        match self.expire_after.load(Ordering::Relaxed) {
            u64::MAX => None,
            millis => Some(Expiry::After(Duration::from_millis(millis))),
        }
    }

    /// Called by a scan that passed many tombstones on its way to one entry. It does not know where
    /// they were: they count if the memtable may hold them. If it met many covered or expired
    /// entries there, it has asked the memtable for its flush.
    #[cold]
    pub(crate) fn note_passed_tombstones(&self) {
        let active = &self.view.load().active;
        if active.tombstones() < TOMBSTONES_PASSED_MAX / 2 && !active.wants_flush() {
            return;
        }
        self.scans_pass_tombstones.store(true, Ordering::Relaxed);
        if self.needs_tombstone_flush() {
            self.served.work.wake();
        }
    }

    /// True if the active memtable should be flushed for its tombstones although it is not full:
    /// scans pass them, or covered or expired entries; or it holds little else; or it has no
    /// segment left for the entries after a range delete. One such memtable at a time: the next
    /// waits until the table of the last one is compacted. So deletes cost only as many flushes as
    /// compactions can follow. A table of a few deletes is no such table: it may stay in level 0
    /// for long.
    pub(crate) fn needs_tombstone_flush(&self) -> bool {
        let view = self.view.load();
        let (tombstones, entries) = (view.active.tombstones(), view.active.entries());
        let many = match self.scans_pass_tombstones.load(Ordering::Relaxed) {
            true => tombstones >= TOMBSTONES_PASSED_MAX / 2,
            false => tombstones >= TOMBSTONES_MAX && tombstones >= entries / 2,
        };
        let many = many || view.active.wants_flush();
        // Snapshots may keep the memtable of a dropped keyspace. It is never flushed.
        many && self.served.context.options.auto_compaction
            && !view.dropped
            && view.immutables.is_empty()
            && !view.version.level(0).iter().any(|handle| is_tombstone_flush(&handle.meta))
    }

    /// True if the result of a compaction of exactly these tables, in ascending order, was refused.
    pub(crate) fn is_refused(&self, tables: &[u64]) -> bool {
        self.refused.lock().iter().any(|refused| refused == tables)
    }

    /// True if a refused compaction keeps tables in level 0.
    pub(crate) fn keeps_level0(&self) -> bool {
        let (view, refused) = (self.view.load(), self.refused.lock());
        let is_refused = |number: &u64| refused.iter().flatten().any(|other| other == number);
        view.version.level(0).iter().any(|table| is_refused(&table.meta.number))
    }

    /// Replaces the read view by what `change` makes of the current one.
    pub(crate) fn update_view(&self, change: impl FnOnce(&ReadView) -> ReadView) {
        let _one_at_a_time = self.view_update.lock();
        let before = self.view.load_full();
        let next = change(&before);
        let (bytes_before, bytes) = (before.immutable_bytes(), next.immutable_bytes());
        self.view.store(Arc::new(next));
        // A difference below zero wraps around, as the sum does.
        let change = bytes.wrapping_sub(bytes_before);
        self.served.immutable_bytes.fetch_add(change, Ordering::SeqCst);
    }

    /// Why a read finds no lock in `view`, which is of this keyspace. The caller holds no lock.
    #[cold]
    pub(crate) fn refusal(&self, view: &ReadView) -> Error {
        if !view.dropped {
            return Error::Closed;
        }
        // The batch that drops the keyspace may have entries, which the caller could read next. It
        // is about to publish them.
        let is_published = || self.dropped_as.load(Ordering::SeqCst) != 0;
        while !is_published() && self.served.context.process.is_current() {
            thread::yield_now();
        }
        self.dropped()
    }

    /// Refuses a keyspace that was dropped. Waits while a drop is being published. A caller may
    /// hold the lock of the log, and no other one. Drops are published under that lock, so a caller
    /// that holds it never waits here.
    ///
    /// # Errors
    /// `KeyspaceDropped`.
    pub(crate) fn check_there(&self) -> Result<()> {
        let view = self.view.load();
        if view.dropped { Err(self.refusal(&view)) } else { Ok(()) }
    }

    /// The error for a handle of a dropped keyspace.
    pub(crate) fn dropped(&self) -> Error {
        Error::KeyspaceDropped { name: self.name.clone() }
    }

    /// Closes the keyspace to reads, but those of older snapshots.
    pub(crate) fn mark_dropped(&self) {
        self.update_view(|view| ReadView { lock: None, dropped: true, ..view.clone() });
    }

    /// Releases the memtables and tables of a dropped keyspace.
    pub(crate) fn clear_dropped(&self, empty: &Arc<Memtable>) {
        self.update_view(|view| ReadView {
            active: Arc::clone(empty),
            active_log: 0,
            immutables: Vec::new(),
            version: Arc::new(Version::new([const { Vec::new() }; LEVELS])),
            ..view.clone()
        });
    }
}

/// True for a table with as much garbage as a memtable that is flushed for its tombstones.
fn is_tombstone_flush(meta: &FileMeta) -> bool {
    meta.is_mostly_garbage(0) && meta.droppable(0) >= TOMBSTONES_PASSED_MAX as u64 / 2
}

/// All keyspaces of a database.
#[derive(Debug, Default)]
pub(crate) struct Keyspaces {
    by_id: BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    by_name: BTreeMap<String, KeyspaceId>,
    /// Dropped keyspaces that a snapshot may read, with the last sequence before the drop. They
    /// ascend by that.
    dropped: Vec<(SequenceNumber, Arc<KeyspaceState>)>,
    /// The names of the last [`DROPPED_NAMES_MAX`] that were dropped, for errors.
    dropped_names: BTreeMap<KeyspaceId, String>,
    /// Above the numbers of all that are or were here, in this opening or an earlier one.
    next: KeyspaceId,
}

/// That many names of dropped keyspaces are remembered.
const DROPPED_NAMES_MAX: usize = 1024;

impl Keyspaces {
    /// No keyspaces. Earlier openings have given the numbers below `next`.
    pub(crate) fn after(next: u64) -> Self {
        Keyspaces { next: KeyspaceId::try_from(next).unwrap_or(KeyspaceId::MAX), ..Self::default() }
    }

    /// The keyspace of that number.
    pub(crate) fn get(&self, id: KeyspaceId) -> Option<&Arc<KeyspaceState>> {
        self.by_id.get(&id)
    }

    /// The keyspace `default`, once it was inserted.
    pub(crate) fn default_state(&self) -> Option<Arc<KeyspaceState>> {
        self.get(DEFAULT_KEYSPACE).cloned()
    }

    /// The keyspace of that name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<KeyspaceState>> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    /// All of them, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<KeyspaceState>> {
        self.by_id.values()
    }

    /// The first number above those of all that are or were here, in this opening or an earlier
    /// one: a later keyspace gets it or a higher one.
    pub(crate) fn next(&self) -> KeyspaceId {
        self.next
    }

    /// The keyspaces from number `first` on that were here and are not any more. Among those whose
    /// names are forgotten may be numbers that a failed creation took.
    pub(crate) fn dropped_from(&self, first: KeyspaceId) -> impl Iterator<Item = KeyspaceId> {
        let names = &self.dropped_names;
        let remembered = if names.len() < DROPPED_NAMES_MAX { None } else { names.keys().next() };
        let is_known =
            move |id| names.contains_key(&id) || remembered.is_some_and(|first| id < *first);
        (first..self.next).filter(move |id| !self.by_id.contains_key(id) && is_known(*id))
    }

    pub(crate) fn insert(&mut self, keyspace: Arc<KeyspaceState>) {
        self.next = self.next.max(keyspace.id.saturating_add(1));
        self.by_name.insert(keyspace.name.clone(), keyspace.id);
        self.by_id.insert(keyspace.id, keyspace);
    }

    /// Takes a keyspace out. Its view stays for snapshots that see `last_sequence` or less.
    pub(crate) fn remove(&mut self, id: KeyspaceId, last_sequence: SequenceNumber) {
        if let Some(keyspace) = self.by_id.remove(&id) {
            self.by_name.remove(&keyspace.name);
            self.dropped_names.insert(id, keyspace.name.clone());
            if self.dropped_names.len() > DROPPED_NAMES_MAX {
                self.dropped_names.pop_first();
            }
            self.dropped.push((last_sequence, keyspace));
        }
    }

    /// Takes out the dropped keyspaces that no snapshot can read, if `oldest` is the oldest.
    pub(crate) fn take_unread(
        &mut self,
        oldest: Option<SequenceNumber>,
    ) -> Vec<Arc<KeyspaceState>> {
        let is_unread = |dropped: &SequenceNumber| oldest.is_none_or(|oldest| oldest > *dropped);
        let unread = self.dropped.partition_point(|(sequence, _)| is_unread(sequence));
        self.dropped.drain(..unread).map(|(_, keyspace)| keyspace).collect()
    }

    /// True if a dropped keyspace waits for its last snapshot.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }
}

/// The keyspace of a number that a write names.
///
/// # Errors
/// `KeyspaceDropped`.
pub(crate) fn written(keyspaces: &Keyspaces, id: KeyspaceId) -> Result<&Arc<KeyspaceState>> {
    keyspaces.get(id).ok_or_else(|| match keyspaces.dropped_names.get(&id) {
        Some(name) => Error::KeyspaceDropped { name: name.clone() },
        None => Error::keyspace_dropped(id),
    })
}
