//! [`Reservation`]: a compaction that has claimed its part of the tree and may run. [`Helpers`]:
//! threads that share its work.

use crate::base::sync::Arc;
use crate::jobs::compact::task::CompactionTask;
use crate::state::claim::Claim;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::tree::version::Version;

/// A task that runs. No other job changes what it claimed; the claim ends on drop.
pub(super) struct Reservation<'a> {
    pub engine: &'a Engine,
    pub keyspace: &'a KeyspaceState,
    pub task: CompactionTask,
    claim: Arc<Claim>,
}

impl<'a> Reservation<'a> {
    /// Asks `pick` for a task, given the version and what running compactions claim, and claims the
    /// task's part of the tree. Returns the version, too. `None` without a task or after a failure.
    pub(super) fn pick(
        engine: &'a Engine,
        keyspace: &'a KeyspaceState,
        pick: impl FnOnce(&Version, &[Arc<Claim>]) -> Option<CompactionTask>,
    ) -> Option<(Self, Arc<Version>)> {
        // Under the lock that an edit takes: the tables are there when they are claimed, and no
        // other worker claims at the same time.
        let _versions = engine.catalog.versions.lock();
        let claims = engine.jobs.claims_before_change(keyspace.id)?;
        let version = Arc::clone(&keyspace.view.load().version);
        let task = pick(&version, &claims)?;
        let claim = Arc::new(task.claim()?);
        debug_assert!(!claims.iter().any(|other| other.conflicts(&claim)), "{claim:?}");
        let mut jobs = engine.jobs.schedule.lock();
        jobs.claims.push(Arc::clone(&claim));
        // What is left of the tree may give another worker something to do.
        jobs.compactions_wanted.insert(keyspace.id);
        engine.jobs.work.wake();
        drop(jobs);
        Some((Reservation { engine, keyspace, task, claim }, version))
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut jobs = self.engine.jobs.schedule.lock();
        jobs.claims.retain(|claim| !Arc::ptr_eq(claim, &self.claim));
        if !jobs.claims.iter().any(|claim| claim.keyspace == self.keyspace.id) {
            self.keyspace.filter_workload.lock().compactions_ended();
        }
        drop(jobs);
        // Those that range deletes hid in the meantime, or what they became.
        self.engine.jobs.schedule_table_removal(self.keyspace);
    }
}

/// Threads that help a compaction, besides the one that it runs in. With those of other compactions
/// they are at most `compaction_threads`.
pub(super) struct Helpers<'a> {
    engine: &'a Engine,
    pub count: usize,
}

impl<'a> Helpers<'a> {
    /// Up to `wanted` of them, as many as are free.
    pub(super) fn take(engine: &'a Engine, wanted: usize) -> Self {
        let mut jobs = engine.jobs.schedule.lock();
        let busy = jobs.compacting_threads + usize::from(jobs.caller_compacts);
        let free = engine.context.options.compaction_threads.saturating_sub(busy);
        let count = wanted.min(free);
        jobs.compacting_threads += count;
        Helpers { engine, count }
    }
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        self.engine.jobs.schedule.lock().compacting_threads -= self.count;
        // One of them may be what a worker waits for.
        self.engine.jobs.work.wake();
        self.engine.jobs.done.notify_all();
    }
}
