//! Replays the logs at an opening, into memtables or into tables.
//!
//! The logs are read twice. The first pass writes nothing and decides every refusal
//! (`log::wal::recover`). The second pass applies the entries:
//!
//! - After a clean close, to memtables, one for each log. Nothing is written, unless the logs hold
//!   more than the write buffer or short sessions left too many logs.
//! - Otherwise to tables, flushed one write buffer at a time: after a crash the page cache may show
//!   bytes that the disk does not have. One new manifest then names the new log and all of these
//!   tables, and only after that old files are removed. An opening that fails earlier removes the
//!   files it wrote.
//!
//! A read-only opening flushes nothing: it refuses logs beyond `read_only_log_bytes_max`.
//!
//! With `Recovery::Strict`, everything that `log::wal::recover` would drop is refused. With
//! `Recovery::Salvage`, `log::wal::salvage` reads the logs that `log::wal::recover` refuses. The
//! report lists what was left out. The salvaged logs get a second name in `lost` before the
//! manifest that makes them obsolete is written.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::{Error, Result};
use crate::base::events::event::Event;
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::base::sync::{Arc, Ordering};
use crate::base::trace::{Span, span};
use crate::db::log_memory::LogMemory;
use crate::db::log_memtables::{LogMemtables, refuse_unknown_keyspaces};
use crate::env::directory::{keep_in_lost, log_numbers, our_files};
use crate::jobs::flush::{FlushInput, write_memtables};
use crate::log::recovery::{DroppedPart, Recovery, RecoveryReport};
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::recover::{RecoveredLogs, replay, survey};
use crate::log::wal::salvage::salvage;
use crate::memtable::memtable::Memtable;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::state::writer::Writer;
use crate::tree::manifest_state::ManifestState;
use crate::tree::new_tables::DurableTables;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

/// Refuses what was dropped at the torn end of a manifest or log, if `recovery` says so.
///
/// # Errors
/// `Corruption` of that file.
pub(crate) fn refuse_torn(dropped: Option<&DroppedPart>, recovery: Recovery) -> Result<()> {
    match dropped {
        Some(part) if recovery == Recovery::Strict => {
            let what = format!("{}; Recovery::Strict drops nothing", part.what);
            Err(Error::corruption(&part.path, part.offset, what))
        }
        _ => Ok(()),
    }
}

/// Recovers the entries of the logs, in memtables or flushed to tables.
///
/// # Errors
/// Damage, as `Options::recovery` says, and failures of writing. Nothing old was removed then, and
/// new files are removed unless the new manifest may be current.
pub(crate) fn recover_logs(
    engine: &Engine,
    files: &[FileName],
    state: &ManifestState,
) -> Result<()> {
    let first_number = engine.catalog.numbers.next_file.load(Ordering::Relaxed);
    let mut kept_in_lost = Vec::new();
    let recovered = try_recover(engine, files, state, &mut kept_in_lost);
    if recovered.is_err() && !engine.catalog.versions.lock().manifest.may_have_switched() {
        remove_made(&engine.context, &engine.catalog, files, first_number, &kept_in_lost);
    }
    recovered
}

/// Removes what an opening that is refused has made, none of the files `before`: its numbers begin
/// at `first`, and nothing names these files.
fn remove_made(
    context: &Context,
    catalog: &Catalog,
    before: &[FileName],
    first: u64,
    kept_in_lost: &[PathBuf],
) {
    let made = first..catalog.numbers.next_file.load(Ordering::Relaxed);
    let is_made = |name: &FileName| {
        name.number().is_some_and(|number| made.contains(&number)) && !before.contains(name)
    };
    let listed = our_files(&*context.env, &context.directory).unwrap_or_default();
    for name in listed.into_iter().filter(is_made) {
        // If that fails, the next opening that succeeds removes the file.
        let _ = context.env.remove(&name.path(&context.directory));
    }
    for path in kept_in_lost {
        let _ = context.env.remove(path);
    }
}

fn try_recover(
    engine: &Engine,
    files: &[FileName],
    state: &ManifestState,
    kept_in_lost: &mut Vec<PathBuf>,
) -> Result<()> {
    let span = span!("recovery", engine.context.directory; logs, entries, tables);
    let started = Instant::now();
    let Recovered { contents, logs, clean, mut report } = read_logs(engine, files, state)?;
    let entries = contents.entries;
    if let Limit::Count(memory) = contents.limit {
        memory.check(&engine.context.options, &engine.context.directory)?;
    }
    let keeps = matches!(contents.limit, Limit::Keep | Limit::Count(_));
    let (memtables, tables) = match keeps {
        true => (contents.memtables, DurableTables::default()),
        false => (LogMemtables::default(), contents.into_tables()?),
    };
    install(&engine.catalog, &engine.writer, &memtables, &logs, clean);
    let keyspaces = engine.catalog.all_keyspaces();
    let there: Vec<_> = keyspaces.iter().map(|keyspace| &**keyspace).collect();
    let mut new = engine.catalog.open_new(&engine.context.directory, tables, 0, &there)?;
    let tables = new.metas().count() as u64;
    let wal = |name: &&FileName| matches!(name, FileName::Wal(n) if *n >= state.facts.log_number);
    let names: Vec<FileName> = files.iter().filter(wal).copied().collect();
    let salvages = engine.context.options.recovery == Recovery::Salvage;
    if salvages && !engine.context.read_only && !report.is_complete() {
        *kept_in_lost = keep_in_lost(&*engine.context.env, &engine.context.directory, &names)?;
        report.set_aside.clone_from(kept_in_lost);
    }
    let (logs, dropped) = (names.len() as u64, report.dropped.len() as u64);
    *engine.context.recovery.lock() = report;
    if !keeps {
        session::begin_recovered(engine, &mut new)?;
    }
    let duration = started.elapsed();
    engine.context.events.emit(|| Event::Recovered { logs, entries, tables, dropped, duration });
    [("logs", logs), ("entries", entries), ("tables", tables)]
        .into_iter()
        .for_each(|(field, value)| span.record(field, value));
    Ok(())
}

/// The result of reading the logs.
struct Recovered<'a> {
    contents: Contents<'a>,
    logs: RecoveredLogs,
    /// The last close was clean, and nothing was dropped.
    clean: bool,
    report: RecoveryReport,
}

fn read_logs<'a>(
    engine: &'a Engine,
    files: &[FileName],
    state: &'a ManifestState,
) -> Result<Recovered<'a>> {
    let mut logs = log_numbers(files);
    logs.retain(|number| *number >= state.facts.log_number);
    let mut report = RecoveryReport::default();
    report.dropped.extend(state.dropped.clone());
    let (env, directory, facts) = (&*engine.context.env, &engine.context.directory, state.facts);
    let refused = match survey(env, directory, &logs, &facts) {
        Ok(found) => {
            refuse_torn(found.dropped.as_ref(), engine.context.options.recovery)?;
            report.dropped.extend(found.dropped.clone());
            report.last_sequence = found.last_sequence;
            // Without any log nothing was ever written.
            let clean = found.clean || (logs.is_empty() && state.facts.log_number == 0);
            let clean = clean && state.dropped.is_none();
            // Otherwise each session too short for a flush would leave one more memtable.
            let too_many =
                found.parts.len() >= engine.context.options.immutable_memtables_max.max(2);
            let mut contents = Contents::new(engine, state, clean && !too_many);
            let mut apply = |log, batch: &DecodedBatch<'_>| contents.apply(log, batch);
            replay(env, directory, &found.parts, &mut apply)?;
            return Ok(Recovered { contents, logs: found, clean, report });
        }
        Err(error) => error,
    };
    let Some((path, offset, what)) = refused.damage() else { return Err(refused) };
    if engine.context.options.recovery != Recovery::Salvage {
        return Err(refused);
    }
    refuse_short_manifest(&engine.context, &engine.catalog, files, &logs, &facts)?;
    let mut contents = Contents::new(engine, state, false);
    let mut apply = |log, batch: &DecodedBatch<'_>| contents.apply(log, batch);
    let salvaged = salvage(env, directory, &logs, &facts, &mut apply)?;
    if salvaged.dropped.is_empty() && salvaged.missing.is_empty() {
        // Every record can be read, but the logs do not fit together.
        let (path, what) = (path.to_path_buf(), what.to_string());
        report.dropped.push(DroppedPart { path, offset, what });
    }
    report.dropped.extend(salvaged.dropped);
    report.missing = salvaged.missing;
    report.last_sequence = salvaged.last_sequence;
    let found = RecoveredLogs {
        last_sequence: salvaged.last_sequence,
        highest_sequence: salvaged.highest_sequence,
        last_log: logs.last().copied().unwrap_or(0),
        ..RecoveredLogs::default()
    };
    Ok(Recovered { contents, logs: found, clean: false, report })
}

/// Refuses to salvage if a log that the manifest needs is missing and there are tables that the
/// manifest does not name. Perhaps the manifest was cut, and these tables hold the entries of that
/// log. Opening would remove them; a repair keeps them.
fn refuse_short_manifest(
    context: &Context,
    catalog: &Catalog,
    files: &[FileName],
    logs: &[u64],
    facts: &ManifestFacts,
) -> Result<()> {
    let Some((log, _)) = facts.missing_from(logs).next() else { return Ok(()) };
    let views = catalog.all_keyspaces().into_iter().map(|keyspace| keyspace.view.load_full());
    let versions: Vec<_> = views.map(|view| Arc::clone(&view.version)).collect();
    let tables = versions.iter().flat_map(|version| version.tables());
    let named: HashSet<u64> = tables.map(|handle| handle.meta.number).collect();
    let unnamed = files.iter().find(|name| match name {
        FileName::Table(number) => *number > facts.log_number && !named.contains(number),
        _ => false,
    });
    let Some(table) = unnamed else { return Ok(()) };
    let path = FileName::Manifest(facts.number).path(&context.directory);
    let what = format!(
        "it does not name {table}, which may hold what {} held; a repair takes both into account",
        FileName::Wal(log)
    );
    Err(Error::corruption(path, facts.bytes, what))
}

/// Where recovered entries go.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// To memtables, up to a write buffer. If there are more, all are flushed.
    Keep,
    /// To tables, a write buffer at a time.
    Flush,
    /// To memtables of this memory, each of about a write buffer and its last log: one that takes
    /// much more could not number its entries. Entries that do not fit are only counted.
    Count(LogMemory),
}

/// The entries of the logs.
struct Contents<'a> {
    engine: &'a Engine,
    limit: Limit,
    /// What the manifest says.
    state: &'a ManifestState,
    /// For each log only if they are to stay.
    memtables: LogMemtables,
    /// Otherwise the first log that the newest of them have entries of.
    log: u64,
    /// In these memtables, from that log on.
    bytes: u64,
    last_sequence: SequenceNumber,
    /// Entries of the logs so far.
    entries: u64,
    /// Tables that were flushed so far; no manifest names them yet.
    tables: DurableTables,
}

impl<'a> Contents<'a> {
    fn new(engine: &'a Engine, state: &'a ManifestState, may_stay: bool) -> Self {
        let limit = match (engine.context.read_only, may_stay) {
            (true, _) => Limit::Count(LogMemory::default()),
            (false, true) => Limit::Keep,
            (false, false) => Limit::Flush,
        };
        Contents {
            engine,
            state,
            limit,
            memtables: LogMemtables::default(),
            log: 0,
            bytes: 0,
            last_sequence: 0,
            entries: 0,
            tables: DurableTables::default(),
        }
    }

    fn apply(&mut self, log_number: u64, batch: &DecodedBatch<'_>) -> Result<()> {
        let options = &self.engine.context.options;
        let directory = &self.engine.context.directory;
        refuse_unknown_keyspaces(batch, self.state.next_keyspace, directory, log_number)?;
        // The entries of dropped keyspaces are skipped. A batch may be in part in tables: each
        // keyspace was flushed by itself.
        let of_keyspace = |id| self.state.keyspaces.get(&id);
        let flushed_through = |id| of_keyspace(id).map(|tables| tables.meta.flushed_through);
        let runs: Vec<_> = batch.runs_after(flushed_through).collect();
        let bytes = runs.iter().map(|(_, _, run)| Memtable::bytes_of(run.clone())).sum();
        let is_full = self.bytes > 0 && self.bytes + bytes > options.write_buffer_bytes as u64;
        match &mut self.limit {
            Limit::Count(memory) => {
                *memory += LogMemory::more(bytes, LogMemory::default(), options);
                if memory.check(options, directory).is_err() {
                    self.memtables = LogMemtables::default();
                    return Ok(());
                }
                if is_full && self.log < log_number {
                    self.bytes = 0;
                }
            }
            Limit::Keep | Limit::Flush if is_full => {
                self.limit = Limit::Flush;
                self.flush()?;
            }
            Limit::Keep | Limit::Flush => {}
        }
        // Where they are not to stay, a memtable has the entries of several logs.
        if self.bytes == 0 || matches!(self.limit, Limit::Keep) {
            self.log = log_number;
        }
        self.bytes += bytes;
        self.last_sequence = batch.last_sequence();
        self.entries += u64::from(batch.count);
        for run in runs {
            self.memtables.insert(options, self.log, run, self.last_sequence, LogMemory::default());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let keyspaces = self.engine.catalog.all_keyspaces();
        let mut memtables = self.memtables.take();
        let input = |keyspace: Arc<KeyspaceState>| {
            let memtables = memtables.remove(&keyspace.id)?;
            let mut levels = keyspace.view.load().version.files.clone();
            // A tombstone must not be dropped while one of these may hold its key.
            let written = self.tables.metas().iter().filter(|meta| meta.keyspace == keyspace.id);
            Arc::make_mut(&mut levels[0]).extend(written.cloned().map(Arc::new));
            Some(FlushInput { keyspace, memtables, levels })
        };
        let inputs = keyspaces.into_iter().filter_map(input).collect();
        debug_assert!(memtables.is_empty(), "the keyspaces are those of the manifest");
        let readers = Some(vec![self.last_sequence]);
        let written = write_memtables(self.engine, inputs, readers)?;
        self.tables.extend(written);
        Ok(())
    }

    fn into_tables(mut self) -> Result<DurableTables> {
        self.flush()?;
        Ok(self.tables)
    }
}

/// Makes the recovered entries visible; new writes continue after the last sequence.
fn install(
    catalog: &Catalog,
    writer: &Writer,
    memtables: &LogMemtables,
    recovered: &RecoveredLogs,
    clean: bool,
) {
    if !memtables.is_empty() {
        let mut logs = writer.live_logs.lock();
        for log in &recovered.logs {
            logs.push(*log, None);
        }
        writer.old_log_bytes.store(logs.bytes(), Ordering::Relaxed);
    }
    memtables.show(catalog, recovered.last_sequence);
    let mut log = writer.log.lock();
    log.last_sequence = recovered.last_sequence;
    log.next_sequence = recovered.highest_sequence + 1;
    log.previous_log = recovered.last_log;
    // A clean close synced them. After a crash, even what the manifest says was synced may be in
    // the page cache only. A new log that repeats it could survive a second crash that the entries
    // do not.
    log.synced_through = if clean { log.last_sequence } else { 0 };
    catalog.published.publish(log.last_sequence);
}
