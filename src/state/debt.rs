//! The debt of the background work: how far flushes and compactions are behind what is written.
//!
//! [`debt`] is 0 while they keep up. Three things make it grow: tables in level 0, bytes above the
//! limits of deeper levels, and the fill of the active memtables while no further memtable may wait
//! for its flush. The larger the debt, the longer a writer waits for each byte ([`delay_nanos`]).
//! So writes become as slow as the background work before they would have to stop. A compaction
//! that has a pace ignores it while there is debt.

use crate::base::levels::LEVELS;
use crate::base::sync::Ordering;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::tree::targets::CompactionOptions;

/// What a byte waits at a debt of one half: at most 50 MB a second are written then.
const NANOS_A_BYTE: f64 = 20.0;

/// A larger debt counts as this one. A byte waits 19 times as long as at one half, so writes go at
/// 2.6 MB a second.
const DEBT_MAX: f64 = 0.95;

/// Tables of level 0 make a debt from this many times its trigger on.
const SLOWDOWN_TRIGGERS: usize = 5;

/// Bytes of deeper levels count if level 0 has this many times its trigger. A compaction takes the
/// level that is above its limit by the largest factor, so level 0 has as many when another is.
const WAITING_TRIGGERS: usize = 2;

/// Bytes above the limits of levels make a debt from this many times `level_base_bytes` on, and
/// the largest debt at four times as many.
const EXCESS_BASES: u64 = 16;

/// How far the work for this keyspace is behind: 0 if it is in time, 1 where writes stop.
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
    let of_memtables = memtable_debt(engine, view);
    let of_tree = match options.auto_compaction {
        true => {
            let bytes = std::array::from_fn(|level| view.version.levels[level].bytes);
            let tables = view.version.level(0).len();
            tree_debt(tables, &bytes, options.level0_stop(), &options.compaction_options())
        }
        false => 0.0,
    };
    // A refused compaction makes no room, however long a writer waits.
    match of_tree > of_memtables && keyspace.refused.lock().is_empty() {
        true => of_tree,
        false => of_memtables,
    }
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
        && engine.catalog.immutable_bytes().saturating_add(buffer)
            <= memtable_bytes_max(buffer, count_max);
    if may_wait { 0.0 } else { share(active, buffer / 2, buffer) }
}

/// Bytes of memtables that may wait for their flush. A memtable exceeds its buffer by its last
/// batch.
pub(crate) fn memtable_bytes_max(buffer: usize, count_max: usize) -> usize {
    buffer.saturating_mul(count_max).saturating_add(buffer / 8)
}

/// The debt of a tree with `tables` in level 0 and levels of these `bytes`. Writes stop at `stop`
/// tables.
fn tree_debt(
    tables: usize,
    bytes: &[u64; LEVELS],
    stop: usize,
    options: &CompactionOptions,
) -> f64 {
    let trigger = options.level0_compaction_trigger;
    let of_level0 = share(tables, SLOWDOWN_TRIGGERS * trigger - 1, stop);
    if tables < WAITING_TRIGGERS * trigger {
        return of_level0;
    }
    let from = EXCESS_BASES as f64 * options.level_base_bytes as f64;
    of_level0.max((excess_bytes(bytes, options) as f64 - from) / (3.0 * from))
}

/// Bytes that the levels from 1 on have above their limits.
fn excess_bytes(bytes: &[u64; LEVELS], options: &CompactionOptions) -> u64 {
    let deepest = bytes.iter().rposition(|bytes| *bytes > 0).unwrap_or(0);
    let levels = bytes.iter().enumerate().skip(1).take(deepest);
    let due = |level| options.due_bytes(level, deepest, bytes[deepest]);
    levels.map(|(level, bytes)| bytes.saturating_sub(due(level))).sum()
}

/// The part of the way from `from` to `to` that `value` has gone.
fn share(value: usize, from: usize, to: usize) -> f64 {
    value.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64
}

/// How long a group of `bytes` waits.
pub(crate) fn delay_nanos(debt: f64, bytes: usize) -> u64 {
    let debt = debt.min(DEBT_MAX);
    (bytes as f64 * NANOS_A_BYTE * debt / (1.0 - debt)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: CompactionOptions = CompactionOptions {
        level0_compaction_trigger: 4,
        level_base_bytes: 1000,
        level_multiplier: 10,
        table_bytes: 100,
    };

    #[test]
    fn delays_grow_smoothly_with_the_debt() {
        let delay = |tables| delay_nanos(tree_debt(tables, &[0; LEVELS], 36, &OPTIONS), 1 << 20);
        let delays: Vec<u64> = (19..=36).map(delay).collect();
        assert_eq!(delays[0], 0);
        assert!(delays.windows(2).all(|pair| pair[0] < pair[1]), "{delays:?}");
        // With one table more, less than three times as long.
        assert!(delays[1..].windows(2).all(|pair| pair[1] < 3 * pair[0]), "{delays:?}");
        assert_eq!(delay_nanos(0.5, 1000), 20_000);
        assert_eq!(delay_nanos(1.0, 1000), delay_nanos(DEBT_MAX, 1000));
    }

    /// With 32 bits, sixteen write buffers of 256 MiB are more than a `usize` counts.
    #[test]
    fn large_write_buffers_do_not_overflow() {
        assert_eq!(memtable_bytes_max(64 << 10, 2), (128 << 10) + (8 << 10));
        assert_eq!(memtable_bytes_max(usize::MAX / 16, 16), usize::MAX);
    }

    #[test]
    fn bytes_above_the_limits_of_levels_make_a_debt() {
        let excess = |bytes| excess_bytes(&bytes, &OPTIONS);
        assert_eq!(excess([5000, 1500, 0, 0, 0, 0, 0]), 500);
        // Level 1 may hold a tenth of level 2, but 1000 at least.
        assert_eq!(excess([0, 1500, 9000, 0, 0, 0, 0]), 500);
        assert_eq!(excess([0, 900, 12_000, 0, 0, 0, 0]), 2000);
        assert_eq!(excess([0, 1100, 12_000, 30_000, 0, 0, 0]), 100 + 9000);
        let debt = |tables, level1| tree_debt(tables, &[0, level1, 0, 0, 0, 0, 0], 36, &OPTIONS);
        assert_eq!([17_000, 41_000, 65_000].map(|bytes| debt(8, bytes)), [0.0, 0.5, 1.0]);
        assert_eq!(debt(7, 65_000), 0.0);
    }
}
