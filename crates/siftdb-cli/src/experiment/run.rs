//! The demonstration: loads a database for each layout, checks that they are equal, measures each.
//!
//! [`run`] creates each database, loads it by `load`, and opens it again for each act, so that an
//! act starts with an empty cache. Before `probe` counts, the run reads the indexes and warms the
//! cache with other keys: `databases`.
//!
//! Invariants: the databases differ only in their filters (tables by level, entries, data blocks
//! and their bytes are compared), and the keys of an act are the same in every column. A difference
//! is a fault in the report and not an error, so that the figures are shown next to it.

use crate::experiment::databases::{Cache, Databases, Lookups};
use crate::experiment::keys::{KeySet, shuffled};
use crate::experiment::load::{KEYS_MAX, KEYS_MIN};
use crate::experiment::report::{Act, ActKind, Report};
use crate::experiment::settings::{Progress, Settings};
use siftdb::{Error, Result};
use std::sync::Arc;

/// Loads the databases and makes the lookups. `progress` is told about every few hundred keys.
///
/// # Errors
/// `InvalidArgument` for fewer than 100 keys; a database of a former run in the way; any failure of
/// a database. Counts that disagree are no error; they are in `Report::faults`.
pub fn run(
    settings: &Settings,
    keys: &KeySet,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    if !(KEYS_MIN..=KEYS_MAX).contains(&keys.len()) {
        let given = keys.len();
        let what = format!(
            "{given} different keys; this takes {KEYS_MIN} to {KEYS_MAX}: name a file with more \
             lines, or none to generate keys"
        );
        return Err(Error::InvalidArgument { what });
    }
    if let Err(error) = settings.env.create_dir(&settings.directory)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        let (path, source) = (settings.directory.clone(), Arc::new(error));
        return Err(Error::Io { op: "create", path, source });
    }
    Databases::load(settings, keys, progress)?;
    let databases = Databases::existing(settings)?;
    let mut faults = databases.differences();
    let plan = plan(settings, keys, &databases)?;
    let lookups: usize = plan.iter().map(|part| part.keys.len()).sum();
    let total = (settings.columns.len() * lookups) as u64;
    let mut looked_up = Progress::count("look up", total, progress);
    let mut acts = Vec::new();
    for part in plan {
        let is_present = |key: &[u8]| match part.kind {
            ActKind::Absent | ActKind::Starved => false,
            ActKind::Present => true,
            ActKind::Mixed => keys.contains(key),
        };
        let Part { keys, warm_up, .. } = &part;
        let lookups = Lookups { keys, warm_up, is_present: &is_present };
        let mut columns = Vec::new();
        for column in &settings.columns {
            let measured = databases.look_up(*column, part.cache, &lookups, &mut looked_up)?;
            let place = format!("{}: {}", part.kind.name(), column.name());
            let named = |fault: &String| format!("{place}: {fault}");
            faults.extend(measured.faults.iter().map(named));
            columns.push((*column, measured));
        }
        acts.push(Act { kind: part.kind, cache_bytes: part.cache.bytes, columns });
    }
    Ok(Report { databases: databases.facts, acts, faults })
}

/// An act before it is measured.
struct Part {
    kind: ActKind,
    keys: Vec<Vec<u8>>,
    /// Other keys, drawn like `keys`: blocks of the measured ones would already be in the cache.
    warm_up: Vec<Vec<u8>>,
    cache: Cache,
}

impl Part {
    /// `draw` draws as many keys as its first argument says, by the seed in its second.
    fn new(
        kind: ActKind,
        (lookups, seed): (usize, u64),
        cache: Cache,
        draw: impl Fn(usize, u64) -> Vec<Vec<u8>>,
    ) -> Self {
        let warm_up = draw(lookups / 10 + 1_000, seed ^ 0x3a93);
        Part { kind, keys: draw(lookups, seed), warm_up, cache }
    }
}

fn plan(settings: &Settings, keys: &KeySet, databases: &Databases<'_>) -> Result<Vec<Part>> {
    let (lookups, seed) = (settings.lookups, settings.seed);
    let absent = |count, seed| keys.absent(count, seed ^ 0xab5e);
    let present = |count, seed| keys.present(count, seed ^ 0x9e5e);
    let (roomy, starved) = databases.caches()?;
    let mut plan = vec![
        Part::new(ActKind::Absent, (lookups, seed), roomy, absent),
        Part::new(ActKind::Present, (lookups, seed), roomy, present),
    ];
    if let Some(ratio) = settings.hit_ratio {
        let mixed = |count: usize, seed| {
            let hits = ((count as f64 * ratio).round() as usize).min(count);
            let mut mixed = present(hits, seed);
            mixed.extend(absent(count - hits, seed));
            let order = shuffled(count as u32, seed ^ 0x313d);
            order.iter().map(|place| mixed[*place as usize].clone()).collect()
        };
        plan.push(Part::new(ActKind::Mixed, (lookups, seed), roomy, mixed));
    }
    plan.push(Part::new(ActKind::Starved, (lookups.div_ceil(5), seed), starved, absent));
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb::env::MemEnv;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn acts_warm_the_cache_with_other_keys_of_their_kind() {
        let keys = KeySet::generate(20_000, 42);
        let mut settings = Settings::new("/warm");
        settings.env = Arc::new(MemEnv::new());
        settings.lookups = 1_000;
        settings.hit_ratio = Some(0.5);
        Databases::load(&settings, &keys, &mut |_| {}).unwrap();
        let databases = Databases::existing(&settings).unwrap();
        for Part { kind, keys: measured, warm_up, .. } in
            plan(&settings, &keys, &databases).unwrap()
        {
            let present = |drawn: &[Vec<u8>]| {
                drawn.iter().filter(|key| keys.contains(key)).count() as f64 / drawn.len() as f64
            };
            assert!((present(&measured) - present(&warm_up)).abs() < 0.01, "{kind:?}");
            // A few are drawn twice by chance.
            let once: BTreeSet<_> = measured.iter().collect();
            let shared = warm_up.iter().filter(|key| once.contains(key)).count();
            assert!(warm_up.len() >= 1_000 && shared < warm_up.len() / 10, "{kind:?}: {shared}");
        }
    }
}
