//! Changes of the entries that a compaction keeps: tombstones of expired ones, and what the
//! user's compaction filter says.
//!
//! The time of a job never goes back, whatever the clock does: it is at or after the largest time
//! by which the database ever took an entry for expired. That time is saved in the manifest with
//! each edit that removes expired entries. Flushes and repairs have no rules: they write entries as
//! they are.

use crate::base::error::{Error, Result};
use crate::base::expiry::{clock_millis, has_expired};
use crate::base::key::{SequenceNumber, VALUE_BYTES_MAX, ValueKind};
use crate::base::sync::{Arc, Ordering};
use crate::options::compaction_filter::{CompactionDecision, CompactionFilter};
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use siftdb_filter::policy::guarded;

/// The rules of one job. By default nothing expires and no filter is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryRules {
    /// The time that expiries are compared with, in milliseconds since the epoch.
    pub now: u64,
    /// The filter, if there is one.
    pub filter: Option<Arc<dyn CompactionFilter>>,
    /// The newest snapshot: the filter is not asked about what it sees.
    pub newest_snapshot: SequenceNumber,
    /// The published sequence when the job began: the filter is not asked about later entries.
    pub published: SequenceNumber,
}

impl EntryRules {
    /// The rules of a compaction of `keyspace` that begins now. `snapshots` are those that it
    /// keeps entries for, the published sequence last.
    pub(crate) fn of_compaction(
        engine: &Engine,
        keyspace: &KeyspaceState,
        snapshots: &[SequenceNumber],
    ) -> Self {
        EntryRules {
            now: job_time(&engine.context, &engine.catalog),
            filter: keyspace.options.load().data.compaction_filter.clone(),
            // After `snapshots`: one that registered in between is at the published sequence.
            newest_snapshot: engine.catalog.snapshots.newest().unwrap_or(0),
            published: snapshots.last().copied().unwrap_or(0),
        }
    }

    /// True if the entry counts as a tombstone.
    pub(crate) fn has_expired(&self, kind: ValueKind, stored: &[u8]) -> bool {
        kind == ValueKind::ExpiringPut && has_expired(stored, self.now)
    }

    /// The decision about the newest version of a key, which has not expired and which the job
    /// keeps.
    ///
    /// # Errors
    /// [`Error::CompactionFilter`].
    pub(crate) fn decide(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
    ) -> Result<CompactionDecision> {
        let is_asked = self.newest_snapshot < sequence && sequence <= self.published;
        let Some(filter) = self.filter.as_ref().filter(|_| is_asked) else {
            return Ok(CompactionDecision::Keep);
        };
        let failed = |what: String| {
            let name = guarded(|| filter.name().to_string()).unwrap_or_default();
            Err(Error::CompactionFilter { name, what })
        };
        match guarded(|| filter.filter(key, value)) {
            Ok(CompactionDecision::Replace(value)) if value.len() > VALUE_BYTES_MAX => {
                let bytes = value.len();
                failed(format!("a value of {bytes} bytes; at most {VALUE_BYTES_MAX} are allowed"))
            }
            Ok(decision) => Ok(decision),
            Err(panic) => failed(format!("it panicked: {panic}")),
        }
    }
}

/// The time by which a job that begins now removes entries, in milliseconds since the epoch.
pub(crate) fn job_time(context: &Context, catalog: &Catalog) -> u64 {
    let removed = catalog.numbers.expired_through.load(Ordering::Relaxed);
    clock_millis(context.env.now()).max(removed)
}
