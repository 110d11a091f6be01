//! The pace of compactions: `compaction_bytes_per_second`.
//!
//! All compactions of a database share it. Each pays for what it wrote, by waiting until the bytes
//! of all have had their time. Flushes, logs and tickets pay nothing, so they go first. While
//! writers are slowed down nobody waits: a compaction that saves the disk must not cost writes.

use crate::base::sync::{Arc, Ordering, thread};
use crate::options::database::NO_PACE;
use crate::state::debt::debt;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use std::time::{Duration, Instant};

/// Bytes after which a compaction pays.
const PAID_BYTES: u64 = 256 << 10;

/// The longest sleep: between two it is seen that the database closes, or that writers wait.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// The pace of all compactions.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a>(&'a Engine);

impl<'a> Pace<'a> {
    /// `None` if there is no limit.
    pub(super) fn of(engine: &'a Engine) -> Option<Self> {
        let limit = engine.context.options.compaction_bytes_per_second;
        (limit < NO_PACE).then_some(Pace(engine))
    }

    /// True if writes are slowed down in any keyspace: its compaction may wait for this one. Also
    /// if the compaction is about to be stopped.
    fn is_free(&self) -> bool {
        let is_behind = |keyspace: &Arc<KeyspaceState>| debt(self.0, keyspace) > 0.0;
        self.0.context.closed.load(Ordering::Relaxed)
            || self.0.jobs.background_error.is_set()
            || self.0.catalog.all_keyspaces().iter().any(is_behind)
    }

    fn pay(&self, bytes: u64) {
        if self.is_free() {
            return;
        }
        let limit = self.0.context.options.compaction_bytes_per_second;
        let time = Duration::from_secs_f64(bytes as f64 / limit as f64);
        let until = {
            let mut paid_until = self.0.jobs.paid_until.lock();
            let now = Instant::now();
            let until = paid_until.map_or(now, |paid| paid.max(now)) + time;
            *paid_until = Some(until);
            until
        };
        while let Some(left) = until.checked_duration_since(Instant::now())
            && !left.is_zero()
            && !self.is_free()
        {
            thread::sleep(left.min(SLEEP_MAX));
        }
    }
}

/// What one compaction, or a part of one, has written.
pub(super) struct PacedOutput<'a> {
    pace: Option<Pace<'a>>,
    /// Bytes of the open table when it was last asked.
    open_bytes: u64,
    unpaid_bytes: u64,
}

impl<'a> PacedOutput<'a> {
    pub(super) fn new(pace: Option<Pace<'a>>) -> Self {
        PacedOutput { pace, open_bytes: 0, unpaid_bytes: 0 }
    }

    /// Waits if it has written enough since the last time. `open_bytes` are those of the open
    /// table; fewer than before are of another one.
    #[inline]
    pub(super) fn wait(&mut self, open_bytes: u64) {
        let Some(pace) = &self.pace else { return };
        self.unpaid_bytes += open_bytes.checked_sub(self.open_bytes).unwrap_or(open_bytes);
        self.open_bytes = open_bytes;
        if self.unpaid_bytes >= PAID_BYTES {
            pace.pay(std::mem::take(&mut self.unpaid_bytes));
        }
    }
}
