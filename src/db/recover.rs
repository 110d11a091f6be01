//! What the logs hold: into memtables, and from there into tables where they cannot stay.
//!
//! [`replay_logs`] reads the logs into memtables, one each, and writes nothing. After a clean close
//! that is all, unless too many short sessions left a memtable each. Otherwise [`recover_logs`]
//! flushes what the logs gave into tables at once, since the page cache may show what the disk does
//! not have; only then old files go.
//!
//! `Recovery` is kept to here: `Strict` refuses what `wal::recover` would drop, and `Salvage` asks
//! `wal::salvage` where `wal::recover` refuses. What is left out stands in the report, and with
//! `Salvage` the logs are in `lost` before the manifest that lets them go is written.

use crate::db::jobs::{flush_pending, install_flush};
use crate::db::state::{ImmutableMemtable, ReadView, Shared};
use crate::db::write;
use crate::directory::keep_in_lost;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::recovery::{DroppedPart, Recovery, RecoveryReport};
use crate::sync::{Arc, Ordering};
use crate::version::manifest::ManifestState;
use crate::wal::evidence::ManifestFacts;
use crate::wal::recover::{RecoveredLogs, recover};
use crate::wal::salvage::salvage;
use crate::write_batch::DecodedBatch;

/// What replaying the logs found.
#[derive(Clone, Copy, Debug)]
pub struct Replayed {
    /// The last close was clean: nothing need be written.
    clean: bool,
    /// More memtables than an open database may have waiting.
    too_many: bool,
}

/// Refuses a manifest whose last record was torn, if `recovery` says so.
///
/// # Errors
/// `Corruption` of the manifest.
pub fn torn_manifest(state: &ManifestState, recovery: Recovery) -> Result<()> {
    refuse_torn(state.dropped.as_ref(), recovery)
}

fn refuse_torn(dropped: Option<&DroppedPart>, recovery: Recovery) -> Result<()> {
    match dropped {
        Some(part) if recovery == Recovery::Strict => {
            let what = format!("{}; Recovery::Strict drops nothing", part.what);
            Err(Error::corruption(&part.path, part.offset, what))
        }
        _ => Ok(()),
    }
}

/// Replays the logs into memtables and, unless the close was clean, writes them forward.
///
/// # Errors
/// Damage, as the options say, and failures of writing: then nothing was removed.
pub fn recover_logs(shared: &Arc<Shared>, files: &[FileName], state: &ManifestState) -> Result<()> {
    let Replayed { clean, too_many } = replay_logs(shared, files, state)?;
    if clean && !too_many {
        return Ok(());
    }
    write::activate(shared)?;
    if !flush_pending(shared)? {
        install_flush(shared, &[], Vec::new())?;
    }
    let mut log = shared.log.lock();
    log.synced_through = log.last_sequence;
    drop(log);
    // Again, now that the logs are not needed any more; the worker removes them.
    let orphans = shared.versions.lock().orphans()?;
    shared.jobs.lock().orphans = orphans;
    Ok(())
}

/// Replays the logs into memtables, one each.
///
/// # Errors
/// Damage, as the options say.
pub fn replay_logs(
    shared: &Arc<Shared>,
    files: &[FileName],
    state: &ManifestState,
) -> Result<Replayed> {
    let wal = |name: &FileName| match name {
        FileName::Wal(number) => Some(*number).filter(|number| *number >= state.log_number),
        _ => None,
    };
    let mut logs: Vec<u64> = files.iter().filter_map(wal).collect();
    logs.sort_unstable();
    let mut report = RecoveryReport::default();
    report.dropped.extend(state.dropped.clone());
    let (oldest_first, recovered) = read_logs(shared, files, &logs, state, &mut report)?;
    report.last_sequence = recovered.last_sequence;
    let salvages = shared.options.recovery == Recovery::Salvage;
    if salvages && !shared.read_only && !report.is_complete() {
        let names: Vec<FileName> = logs.iter().map(|number| FileName::Wal(*number)).collect();
        report.set_aside = keep_in_lost(&*shared.env, &shared.directory, &names)?;
    }
    *shared.recovery.lock() = report;
    // Without any log nothing was ever written.
    let clean = recovered.clean || (logs.is_empty() && state.log_number == 0);
    let clean = clean && state.dropped.is_none();
    // Sessions too short for a flush must not leave one more memtable each.
    let too_many = oldest_first.len() >= shared.options.immutable_memtables_max.max(2);
    install_recovered(shared, oldest_first, &recovered, clean);
    Ok(Replayed { clean, too_many })
}

fn read_logs(
    shared: &Shared,
    files: &[FileName],
    logs: &[u64],
    state: &ManifestState,
    report: &mut RecoveryReport,
) -> Result<(Vec<ImmutableMemtable>, RecoveredLogs)> {
    let (env, directory, facts) = (&*shared.env, &shared.directory, state.facts());
    let mut memtables = Memtables { shared, oldest_first: Vec::new() };
    let refused = match recover(env, directory, logs, &facts, &mut |log, batch| {
        memtables.apply(log, batch);
        Ok(())
    }) {
        Ok(recovered) => {
            refuse_torn(recovered.dropped.as_ref(), shared.options.recovery)?;
            report.dropped.extend(recovered.dropped.clone());
            return Ok((memtables.oldest_first, recovered));
        }
        Err(error) => error,
    };
    let Some((path, offset, what)) = refused.damage() else { return Err(refused) };
    if shared.options.recovery != Recovery::Salvage {
        return Err(refused);
    }
    refuse_short_manifest(shared, files, logs, &facts)?;
    let mut memtables = Memtables { shared, oldest_first: Vec::new() };
    let salvaged = salvage(env, directory, logs, &facts, &mut |log, batch| {
        memtables.apply(log, batch);
        Ok(())
    })?;
    if salvaged.dropped.is_empty() && salvaged.missing.is_empty() {
        // All can be read and does not fit together.
        let (path, what) = (path.to_path_buf(), what.to_string());
        report.dropped.push(DroppedPart { path, offset, what });
    }
    report.dropped.extend(salvaged.dropped);
    report.missing = salvaged.missing;
    let recovered = RecoveredLogs {
        last_sequence: salvaged.last_sequence,
        highest_sequence: salvaged.highest_sequence,
        last_log: logs.last().copied().unwrap_or(0),
        clean: false,
        dropped: None,
    };
    Ok((memtables.oldest_first, recovered))
}

/// A log that the manifest needs is missing, and tables are there that the manifest does not name:
/// perhaps it is the manifest that was cut, and they hold what the log held. Going on would remove
/// them; a repair does not.
fn refuse_short_manifest(
    shared: &Shared,
    files: &[FileName],
    logs: &[u64],
    facts: &ManifestFacts,
) -> Result<()> {
    let Some((log, _)) = facts.missing_from(logs) else { return Ok(()) };
    let shape = shared.view.load().version.shape();
    let named = |number: u64| shape.iter().flatten().any(|meta| meta.number == number);
    let unnamed = files.iter().find(|name| match name {
        FileName::Table(number) => *number > facts.log_number && !named(*number),
        _ => false,
    });
    let Some(table) = unnamed else { return Ok(()) };
    let path = FileName::Manifest(facts.number).path(&shared.directory);
    let what = format!(
        "it does not name {table}, which may hold what {} held; a repair takes both into account",
        FileName::Wal(log)
    );
    Err(Error::corruption(path, facts.bytes, what))
}

/// One memtable for each log, made as its batches come.
struct Memtables<'a> {
    shared: &'a Shared,
    oldest_first: Vec<ImmutableMemtable>,
}

impl Memtables<'_> {
    fn apply(&mut self, log_number: u64, batch: &DecodedBatch<'_>) {
        if self.oldest_first.last().is_none_or(|full| full.log_number != log_number) {
            let memtable = Shared::new_memtable(&self.shared.options);
            self.oldest_first.push(ImmutableMemtable { memtable, log_number, last_sequence: 0 });
        }
        if let Some(full) = self.oldest_first.last_mut() {
            full.memtable.apply(batch);
            full.last_sequence = batch.sequence + u64::from(batch.count) - 1;
        }
    }
}

fn install_recovered(
    shared: &Shared,
    oldest_first: Vec<ImmutableMemtable>,
    recovered: &RecoveredLogs,
    clean: bool,
) {
    shared.update_view(|view| ReadView {
        active_log: 0,
        immutables: oldest_first.into_iter().rev().collect(),
        ..view.clone()
    });
    let mut log = shared.log.lock();
    log.last_sequence = recovered.last_sequence;
    log.next_sequence = recovered.highest_sequence + 1;
    log.previous_log = recovered.last_log;
    // A clean close synced them. Else what was read may be in the page cache only, claims of the
    // manifest included, and a log that repeats a claim may survive what the claim is about.
    log.synced_through = if clean { log.last_sequence } else { 0 };
    shared.published.0.store(log.last_sequence, Ordering::Release);
}
