//! The demonstration: loads a database for each layout, checks that they are equal, measures each.
//!
//! [`run`] creates each database, loads it by `load`, and opens it again for each act, so that an
//! act starts with an empty cache. Before `probe` counts, the run reads the indexes and warms the
//! cache: `databases`.
//!
//! Invariants: the databases differ only in their filters (tables by level, entries, data blocks
//! and their bytes are compared), and the keys of an act are the same in every column. A difference
//! is a fault in the report and not an error, so that the figures are shown next to it.

use crate::base::error::{Error, Result};
use crate::experiment::databases::{Cache, Databases, Lookups};
use crate::experiment::keys::{KeySet, shuffled};
use crate::experiment::load::{KEYS_MAX, KEYS_MIN};
use crate::experiment::report::{Act, ActKind, Report};
use crate::experiment::settings::{Progress, Settings, Stage};

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
        return Err(Error::io("create_dir", &settings.directory, error));
    }
    Databases::load(settings, keys, progress)?;
    let databases = Databases::existing(settings)?;
    let mut faults = databases.differences();
    let plan = plan(settings, keys, &databases)?;
    let lookups: usize = plan.iter().map(|part| part.keys.len()).sum();
    let total = (settings.columns.len() * lookups) as u64;
    let mut done = 0;
    let mut looked_up = |count| {
        done += count;
        progress(Progress { stage: Stage::LookUp, done, total });
    };
    let mut acts = Vec::new();
    for part in plan {
        let is_present = |key: &[u8]| match part.kind {
            ActKind::Absent | ActKind::Starved => false,
            ActKind::Present => true,
            ActKind::Mixed => keys.contains(key),
        };
        let lookups = Lookups { keys: &part.keys, is_present: &is_present };
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
    cache: Cache,
}

fn plan(settings: &Settings, keys: &KeySet, databases: &Databases<'_>) -> Result<Vec<Part>> {
    let (lookups, seed) = (settings.lookups, settings.seed);
    let absent = |count| keys.absent(count, seed ^ 0xab5e);
    let present = |count| keys.present(count, seed ^ 0x9e5e);
    let (roomy, starved) = databases.caches()?;
    let part = |kind, keys, cache| Part { kind, keys, cache };
    let mut plan = vec![
        part(ActKind::Absent, absent(lookups), roomy),
        part(ActKind::Present, present(lookups), roomy),
    ];
    if let Some(ratio) = settings.hit_ratio {
        let hits = ((lookups as f64 * ratio).round() as usize).min(lookups);
        let mut mixed = present(hits);
        mixed.extend(absent(lookups - hits));
        let order = shuffled(lookups as u32, seed ^ 0x313d);
        let mixed = order.iter().map(|place| mixed[*place as usize].clone());
        plan.push(part(ActKind::Mixed, mixed.collect(), roomy));
    }
    plan.push(part(ActKind::Starved, absent(lookups.div_ceil(5)), starved));
    Ok(plan)
}
