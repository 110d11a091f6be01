//! The live snapshots of a database: jobs keep the versions that they see.

use crate::base::key::SequenceNumber;
use crate::base::sync::{AtomicBool, Ordering};
use crate::memtable::memtable::Published;
use crate::state::lock_rank::{LockRank, RankedMutex};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The sequence of a snapshot, and the time when it was taken. Both ascend in the order of
/// registrations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadPoint {
    /// The sequence that it reads at.
    pub sequence: SequenceNumber,
    taken: Instant,
}

/// The sequence alone: a time of this machine says little.
impl fmt::Debug for ReadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sequence.fmt(f)
    }
}

/// Live snapshots and how many hold each read point.
#[derive(Debug)]
pub(crate) struct SnapshotList {
    live: RankedMutex<BTreeMap<ReadPoint, usize>>,
    /// A job has left what only snapshots may read: the release of the oldest one asks the workers
    /// to look again.
    pub is_awaited: AtomicBool,
}

impl Default for SnapshotList {
    fn default() -> Self {
        let live = RankedMutex::new(LockRank::Snapshots, BTreeMap::new());
        SnapshotList { live, is_awaited: AtomicBool::new(false) }
    }
}

impl SnapshotList {
    /// Reads the published sequence and registers it, in one step.
    pub(crate) fn register(&self, published: &Published) -> ReadPoint {
        self.register_with(published, || ()).0
    }

    /// As [`SnapshotList::register`], with the result of `then` in the same step.
    pub(crate) fn register_with<T>(
        &self,
        published: &Published,
        then: impl FnOnce() -> T,
    ) -> (ReadPoint, T) {
        let mut live = self.live.lock();
        let read_point = ReadPoint { sequence: published.visible(), taken: Instant::now() };
        *live.entry(read_point).or_insert(0) += 1;
        (read_point, then())
    }

    /// Calls `change` between two registrations: a snapshot sees all of what it does or nothing.
    pub(crate) fn in_one_step<T>(&self, change: impl FnOnce() -> T) -> T {
        let _live = self.live.lock();
        change()
    }

    /// Registers once more at the read point of a live snapshot.
    pub(crate) fn register_again(&self, read_point: ReadPoint) {
        *self.live.lock().entry(read_point).or_insert(0) += 1;
    }

    /// Takes one registration back. True if the oldest sequence that snapshots read went with it.
    pub(crate) fn release(&self, read_point: ReadPoint) -> bool {
        let mut live = self.live.lock();
        let oldest = |live: &BTreeMap<ReadPoint, usize>| {
            live.keys().next().map(|read_point| read_point.sequence)
        };
        let before = oldest(&live);
        if let Some(count) = live.get_mut(&read_point) {
            *count -= 1;
            if *count == 0 {
                live.remove(&read_point);
            }
        }
        oldest(&live) != before
    }

    /// The sequences at which reads may look from now on, ascending: those of all snapshots, and
    /// the published one. A job asks for them before it reads its input.
    pub(crate) fn needed(&self, published: &Published) -> Vec<SequenceNumber> {
        // Under the lock that `register` takes. A snapshot that registers later reads the published
        // sequence later, so it is at ours or above, and needs no version that the job may drop.
        let live = self.live.lock();
        let mut needed: Vec<_> = live.keys().map(|read_point| read_point.sequence).collect();
        needed.push(published.visible());
        needed.dedup();
        needed
    }

    /// Notes that a job has left what the oldest snapshot of `needed` may read. False if that is
    /// released by now: then nobody else asks the job to look again.
    pub(crate) fn await_release(&self, needed: &[SequenceNumber]) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        // After the note: a release before this look may have missed it.
        self.oldest() == needed.first().copied()
    }

    /// The sequence of the oldest snapshot.
    pub(crate) fn oldest(&self) -> Option<SequenceNumber> {
        self.live.lock().keys().next().map(|read_point| read_point.sequence)
    }

    /// The age of the oldest snapshot.
    pub(crate) fn oldest_age(&self) -> Option<Duration> {
        self.live.lock().keys().next().map(|read_point| read_point.taken.elapsed())
    }

    /// The sequence of the newest snapshot.
    pub(crate) fn newest(&self) -> Option<SequenceNumber> {
        self.live.lock().keys().next_back().map(|read_point| read_point.sequence)
    }

    pub(crate) fn len(&self) -> usize {
        self.live.lock().values().sum()
    }
}
