//! The debt of the background work: how far flushes and compactions are behind what is written.
//!
//! [`debt`] is 0 while they keep up, and grows with each of three things: tables in level 0, bytes
//! that deeper levels have above what they may hold, and the fill of the active memtable while no
//! further memtable may wait. Writers wait the longer for each byte the larger it is
//! ([`delay_nanos`]), so they come to go as fast as the background work does, and long before they
//! would have to stop. A compaction that is kept to a pace goes at full speed while there is debt.

use crate::base::levels::LEVELS;
use crate::base::sync::Ordering;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::tree::targets::CompactionOptions;

/// What a byte waits at a debt of one half: at most 50 MB a second are written then.
const NANOS_A_BYTE: f64 = 20.0;

/// The largest debt. A byte waits 19 times as long as at one half, so writes go at 2.6 MB a second.
const DEBT_MAX: f64 = 0.95;

/// With so many times its trigger level 0 waits for other levels. Compactions take the level first
/// that has the most times of what it may hold, so others may be as far above that.
const WAITING_TRIGGERS: usize = 2;

/// Bytes that are behind make a debt from this many times what level 1 may hold, and the largest
/// debt at four times as many.
const BEHIND_BASES: u64 = 16;

/// How far the work for this keyspace is behind: from 0 to [`DEBT_MAX`].
#[inline]
pub(crate) fn debt(engine: &Engine, keyspace: &KeyspaceState) -> f64 {
    let view = keyspace.view.load();
    let waiting = WAITING_TRIGGERS * engine.context.options.level0_compaction_trigger;
    if view.immutables.is_empty() && view.version.level(0).len() < waiting {
        return 0.0;
    }
    debt_of_view(engine, keyspace, &view)
}

#[cold]
fn debt_of_view(engine: &Engine, keyspace: &KeyspaceState, view: &ReadView) -> f64 {
    let options = &engine.context.options;
    let tables = view.version.level(0).len();
    let (slowdown, stop) = (options.level0_slowdown(), options.level0_stop());
    let mut debt = memtable_debt(engine, view);
    // A refused compaction makes no room, however long a writer waits.
    if tables >= slowdown && !keyspace.keeps_level0() {
        debt = debt.max(share(tables, slowdown - 1, stop));
    }
    if options.auto_compaction && tables >= WAITING_TRIGGERS * options.level0_compaction_trigger {
        let levels = keyspace.options.load().compaction_options();
        let sizes = std::array::from_fn(|level| view.version.levels[level].bytes);
        let of_bytes = behind_debt(bytes_behind(&sizes, &levels), levels.level_base_bytes);
        // As above.
        if of_bytes > debt && keyspace.refused.lock().is_empty() {
            debt = of_bytes;
        }
    }
    debt.min(DEBT_MAX)
}

/// The debt of `behind` bytes of deeper levels.
fn behind_debt(behind: u64, level_base_bytes: u64) -> f64 {
    let base = usize::try_from(BEHIND_BASES * level_base_bytes).unwrap_or(usize::MAX);
    share(usize::try_from(behind).unwrap_or(usize::MAX), base, base.saturating_mul(4))
}

/// Of the way from `from` to `to` the part that `value` is beyond `from`; 0 below that.
fn share(value: usize, from: usize, to: usize) -> f64 {
    value.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64
}

/// If no further memtable may wait for its flush, writers would stop once the active ones are full.
/// The second half of these is theirs to slow down in.
fn memtable_debt(engine: &Engine, view: &ReadView) -> f64 {
    let buffer = engine.context.options.write_buffer_bytes;
    let active = engine.writer.active_bytes.load(Ordering::Relaxed);
    if view.immutables.is_empty() || active <= buffer / 2 {
        return 0.0;
    }
    let count_max = engine.context.options.immutable_memtables_max;
    let may_wait = view.immutables.len() < count_max
        && engine.catalog.immutable_bytes() + buffer <= memtable_bytes_max(buffer, count_max);
    if may_wait { 0.0 } else { share(active, buffer / 2, buffer) }
}

/// Bytes of memtables that may wait for their flush. A memtable exceeds its buffer by its last
/// batch.
pub(crate) fn memtable_bytes_max(buffer: usize, count_max: usize) -> usize {
    buffer * count_max + buffer / 8
}

/// Bytes that levels of these sizes, from 1 on, have above what they may hold.
fn bytes_behind(bytes: &[u64; LEVELS], options: &CompactionOptions) -> u64 {
    let deepest = bytes.iter().rposition(|bytes| *bytes > 0).unwrap_or(0);
    let levels = bytes.iter().enumerate().skip(1).take(deepest);
    let due = |level| options.due_bytes(level, deepest, bytes[deepest]);
    levels.map(|(level, bytes)| bytes.saturating_sub(due(level))).sum()
}

/// How long a group of `bytes` waits.
pub(crate) fn delay_nanos(debt: f64, bytes: usize) -> u64 {
    let debt = debt.min(DEBT_MAX);
    (bytes as f64 * NANOS_A_BYTE * debt / (1.0 - debt)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_smoothly_with_the_debt() {
        assert_eq!(share(19, 19, 36), 0.0);
        assert_eq!(delay_nanos(0.0, 1000), 0);
        assert_eq!(delay_nanos(0.5, 1000), 20_000);
        let delays: Vec<u64> =
            (19..=36).map(|tables| delay_nanos(share(tables, 19, 36), 1 << 20)).collect();
        assert!(delays.windows(2).all(|pair| pair[0] < pair[1]), "{delays:?}");
        // From one table to the next at most three times as long, up to the last before the stop.
        let steps = delays[1..].windows(2);
        assert!(steps.clone().all(|pair| pair[1] < 3 * pair[0]), "{delays:?}");
        assert_eq!(delay_nanos(1.0, 1 << 20), delay_nanos(DEBT_MAX, 1 << 20));
        assert_eq!([16, 40, 64].map(|bases| behind_debt(bases << 28, 1 << 28)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn bytes_are_behind_above_what_a_level_may_hold() {
        let options = CompactionOptions {
            level0_compaction_trigger: 4,
            level_base_bytes: 1000,
            level_multiplier: 10,
            table_bytes: 100,
        };
        let behind = |bytes: [u64; LEVELS]| bytes_behind(&bytes, &options);
        assert_eq!(behind([5000, 0, 0, 0, 0, 0, 0]), 0);
        assert_eq!(behind([5000, 1500, 0, 0, 0, 0, 0]), 500);
        // Level 1 may hold a tenth of level 2, but 1000 at least.
        assert_eq!(behind([0, 1500, 9000, 0, 0, 0, 0]), 500);
        assert_eq!(behind([0, 900, 12_000, 0, 0, 0, 0]), 2000);
        assert_eq!(behind([0, 1100, 12_000, 30_000, 0, 0, 0]), 100 + 9000);
    }
}
