//! The live snapshots of a database: jobs keep the versions that they see.

use crate::base::key::SequenceNumber;
use crate::base::sync::{AtomicBool, Mutex};
use crate::memtable::memtable::Published;
use std::collections::BTreeMap;

/// Live snapshots and how many hold each sequence.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList {
    live: Mutex<BTreeMap<SequenceNumber, usize>>,
    /// A snapshot may read what range deletes hide from all later reads: its release asks the
    /// workers to remove that.
    pub keep_deleted: AtomicBool,
}

impl SnapshotList {
    /// Reads the published sequence and registers it, in one step.
    pub(crate) fn register(&self, published: &Published) -> SequenceNumber {
        let mut live = self.live.lock();
        let sequence = published.visible();
        *live.entry(sequence).or_insert(0) += 1;
        sequence
    }

    /// Registers once more at the sequence of a live snapshot.
    pub(crate) fn register_again(&self, sequence: SequenceNumber) {
        *self.live.lock().entry(sequence).or_insert(0) += 1;
    }

    /// Takes one registration back.
    pub(crate) fn release(&self, sequence: SequenceNumber) {
        let mut live = self.live.lock();
        if let Some(count) = live.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                live.remove(&sequence);
            }
        }
    }

    /// The sequences at which reads may look from now on, ascending: those of all snapshots, and
    /// the published one. A job asks for them before it reads its input.
    pub(crate) fn needed(&self, published: &Published) -> Vec<SequenceNumber> {
        // Under the lock that `register` takes. A snapshot that registers later reads the published
        // sequence later, so it is at ours or above, and needs no version that the job may drop.
        let live = self.live.lock();
        let mut needed: Vec<_> = live.keys().copied().collect();
        let published = published.visible();
        if needed.last() != Some(&published) {
            needed.push(published);
        }
        needed
    }

    /// The sequence of the oldest snapshot.
    pub(crate) fn oldest(&self) -> Option<SequenceNumber> {
        self.live.lock().keys().next().copied()
    }

    /// The sequence of the newest snapshot.
    pub(crate) fn newest(&self) -> Option<SequenceNumber> {
        self.live.lock().keys().next_back().copied()
    }

    /// Number of snapshots.
    pub(crate) fn len(&self) -> usize {
        self.live.lock().values().sum()
    }
}
