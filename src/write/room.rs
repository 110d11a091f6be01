//! Room for a group of writes: how long it waits for flushes and compactions.
//!
//! Writes slow down as the background work falls behind (`state/debt.rs`). They stop where that is
//! not enough: a write that needs a new memtable waits while too many memtables wait for their
//! flush or level 0 is full; any write waits while old logs take twice what they may. Each wait is
//! counted with its reason and duration.

use crate::base::error::Result;
use crate::base::sync::{Arc, Ordering};
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::debt::{debt, delay_nanos, memtable_bytes_max};
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::session::{LOG_BUFFERS_MAX, full_keyspaces, has_room, oldest_held_log};
use crate::state::stalls::{self, Stall};
use crate::state::write_queue::{Request, Switch};

/// Waits until the group may be written. Called by the leader without a lock.
///
/// # Errors
/// The background error, or `Closed`, if one came in between.
pub(super) fn make_room(engine: &Engine, group: &[Request]) -> Result<()> {
    let debt = group_debt(engine, group);
    if debt > 0.0 {
        let bytes = group.iter().map(|request| request.batch.entries.len()).sum();
        stalls::slow_down(&engine.context, &engine.writer, delay_nanos(debt, bytes));
    } else {
        stalls::full_speed(&engine.context, &engine.writer);
    }
    let switched = to_switch(engine, group);
    match switched.is_empty() && !logs_wait_for_flush(engine) {
        true => Ok(()),
        false => wait_for_room(engine, &switched),
    }
}

/// Waits until the memtables of `switched` may wait for their flush, level 0 has room for them, and
/// the logs may grow.
///
/// # Errors
/// As for [`make_room`].
#[cold]
fn wait_for_room(engine: &Engine, switched: &[Arc<KeyspaceState>]) -> Result<()> {
    let memtables_full = || {
        logs_wait_for_flush(engine)
            || !may_wait_for_flush(&engine.context, &engine.catalog, switched)
    };
    let level0 = |keyspace: &Arc<KeyspaceState>| keyspace.view.load().version.level(0).len();
    let level0_full = || {
        let stop = engine.context.options.level0_stop();
        let is_full = |keyspace: &Arc<KeyspaceState>| {
            // A refused compaction makes no room, however long a writer waits.
            !keyspace.view.load().dropped && level0(keyspace) >= stop && !keyspace.keeps_level0()
        };
        switched.iter().any(is_full)
    };
    let reasons: [(&dyn Fn() -> bool, Stall); 2] =
        [(&memtables_full, Stall::Memtable), (&level0_full, Stall::Level0)];
    for (full, stall) in reasons {
        if !full() {
            continue;
        }
        stall.during(&engine.context, || {
            let mut jobs = engine.jobs.schedule.lock();
            jobs.flush_wanted = true;
            jobs.compactions_wanted.extend(switched.iter().map(|keyspace| keyspace.id));
            engine.jobs.work.wake();
            while full() && !engine.jobs.background_error.is_set() && !jobs.stopping {
                engine.jobs.done.wait(jobs.for_condvar());
            }
        });
        engine.check_writable()?;
    }
    Ok(())
}

/// How far the background work is behind for the keyspaces that the group writes to.
fn group_debt(engine: &Engine, group: &[Request]) -> f64 {
    let writes_default =
        |request: &Request| !request.batch.is_empty() && request.batch.keyspaces.is_empty();
    let mut largest = match group.iter().any(writes_default) {
        true => debt(engine, &engine.catalog.default),
        false => 0.0,
    };
    for id in group.iter().flat_map(|request| &request.batch.keyspaces) {
        let keyspace = engine.catalog.keyspaces.lock().get(*id).cloned();
        largest = keyspace.map_or(0.0, |keyspace| debt(engine, &keyspace)).max(largest);
    }
    largest
}

/// The keyspaces whose memtables are switched before the group: those that are asked for, and those
/// that make room in the write buffer.
#[inline]
pub(super) fn to_switch(engine: &Engine, group: &[Request]) -> Vec<Arc<KeyspaceState>> {
    match has_room(engine) && group.iter().all(|request| request.switch == Switch::No) {
        true => Vec::new(),
        false => find_to_switch(engine, group),
    }
}

#[cold]
fn find_to_switch(engine: &Engine, group: &[Request]) -> Vec<Arc<KeyspaceState>> {
    let mut keyspaces = full_keyspaces(engine);
    for request in group {
        match request.switch {
            Switch::No => {}
            Switch::All => keyspaces.extend(engine.catalog.all_keyspaces()),
            Switch::Keyspace(id) => {
                keyspaces.extend(engine.catalog.keyspaces.lock().get(id).cloned())
            }
        }
    }
    if keyspaces.is_empty() {
        return keyspaces;
    }
    keyspaces.retain(|keyspace| !keyspace.view.load().active.is_empty());
    keyspaces.sort_by_key(|keyspace| keyspace.id);
    keyspaces.dedup_by_key(|keyspace| keyspace.id);
    keyspaces
}

/// True if the logs take twice what they may, and no active memtable needs the oldest one: then a
/// flush removes it.
#[inline]
fn logs_wait_for_flush(engine: &Engine) -> bool {
    let bytes_max = 2 * LOG_BUFFERS_MAX * engine.context.options.write_buffer_bytes as u64;
    engine.writer.old_log_bytes.load(Ordering::Relaxed) > bytes_max
        && oldest_held_log(engine).is_none()
}

/// True if the memtables of `switched` may join those that wait for their flush: not more than
/// `immutable_memtables_max` write buffers may wait, and of one keyspace not more than that many.
fn may_wait_for_flush(
    context: &Context,
    catalog: &Catalog,
    switched: &[Arc<KeyspaceState>],
) -> bool {
    let count_max = context.options.immutable_memtables_max;
    let views = switched.iter().map(|keyspace| keyspace.view.load());
    // A keyspace that was dropped during the wait is never flushed. Its memtables stay in its view
    // as long as a snapshot reads them.
    let views: Vec<_> = views.filter(|view| !view.dropped).collect();
    if views.iter().any(|view| view.immutables.len() >= count_max) {
        return false;
    }
    let waiting = catalog.immutable_bytes();
    let joining: usize = views.iter().map(|view| view.active.bytes()).sum();
    let buffer = context.options.write_buffer_bytes;
    waiting == 0 || waiting + joining <= memtable_bytes_max(buffer, count_max)
}
