//! The log and manifest of a session: their begin, the switch to a new log, their end.
//!
//! A session is the time from an opening to its close. It creates its log and manifest with the
//! first write or the first edit, so opening a database writes nothing. All keyspaces write to one
//! log. A switch makes the active memtables of some keyspaces immutable and begins a new log. The
//! leader of the write queue and the jobs call these functions with the `log` lock held.
//!
//! All active memtables together have one write buffer. When they exceed it, [`full_keyspaces`]
//! says which are switched: the largest, until an eighth of the buffer is free. So a database with
//! many keyspaces writes fewer and larger tables, and one with a single keyspace fills its buffer.
//! When the logs take more than [`LOG_BUFFERS_MAX`] write buffers, the memtables that began in the
//! oldest log are switched too.
//!
//! The next log is made ahead of need, as an empty file with a durable name ([`make_log_ahead`]).
//! So the put that switches writes one record and waits for no directory. A reader of logs that
//! finds such a file reads nothing there.
//!
//! A sync covers every earlier write: older logs with unsynced writes are synced first, so a crash
//! leaves no gap between logs (I13).

use crate::base::error::Result;
use crate::base::events::event::Event;
use crate::base::filename::FileName;
use crate::base::stats::counters::Counter;
use crate::base::sync::{Arc, Ordering};
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::format::{LoadedTable, WalStart};
use crate::log::wal::recover::LiveLog;
use crate::log::wal::writer::{WalFile, WalWriter};
use crate::memtable::memtable::Memtable;
use crate::state::catalog::Catalog;
use crate::state::catalog::new_memtable;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::{ImmutableMemtable, ReadView};
use crate::state::writer::LogState;
use crate::state::writer::Writer;
use crate::tree::edit::{FirstLog, VersionEdit};
use crate::tree::new_tables::NewTables;
use crate::tree::session_manifest::ManifestPosition;
use crate::tree::set::VersionSet;
use std::time::Instant;

/// How far ahead of its tail a log is allocated, at most.
const LOG_ALLOCATION_BYTES_MAX: u64 = 1 << 20;

/// Logs longer than this many write buffers keep no memtable from its flush.
pub(crate) const LOG_BUFFERS_MAX: u64 = 4;

/// Makes sure that this session has a manifest and a log of its own. Called before the first write
/// is acknowledged and before the first edit.
///
/// # Errors
/// The failure of either file; it becomes the background error.
pub(crate) fn activate(engine: &Engine) -> Result<()> {
    engine.context.process.check()?;
    let mut log = engine.writer.log.lock();
    engine.check_writable()?;
    session_log(engine, &mut log).map(drop).map_err(|error| engine.set_background_error(error))
}

/// Begins the session of a database whose logs were written forward into the tables `new`.
///
/// # Errors
/// The failure of the log or the manifest.
pub(crate) fn begin_recovered(engine: &Engine, new: &mut NewTables) -> Result<()> {
    let mut log = engine.writer.log.lock();
    let wal = start_session(engine, &log, Some(new))?;
    log.current = Some(wal);
    // Every entry of the logs is in a durable table.
    log.synced_through = log.last_sequence;
    Ok(())
}

/// The first log after a restart, which names the manifest to come.
///
/// # Errors
/// The failure of the log.
pub(crate) fn begin_log(
    engine: &Engine,
    log: &mut LogState,
    number: u64,
    manifest: u64,
) -> Result<WalWriter> {
    if let Some(old) = &log.current {
        log.previous_log = old.number;
    }
    // Its number is lower. The caller's new manifest does not need it, so it is removed with other
    // files.
    log.ahead = None;
    let coming = ManifestPosition { number: manifest, synced_bytes: 0 };
    create_log(engine, log, log_file(engine, number)?, coming, &[])
}

/// Switches the memtables of `keyspaces` that should be flushed for their tombstones, and those
/// that hold a log if the logs are too long; true if it did. Writers look at the logs, too, but
/// bulk loads begin logs without them.
///
/// # Errors
/// The failure of the new log; it becomes the background error.
pub(crate) fn switch_for_flush(engine: &Engine, keyspaces: &[Arc<KeyspaceState>]) -> Result<bool> {
    let needs_flush = |keyspace: &&Arc<KeyspaceState>| keyspace.needs_tombstone_flush();
    // Only while none waits: the bounds of what waits hold here, too.
    let is_long = full_and_long(engine).1 && engine.catalog.immutable_bytes() == 0;
    if !is_long && !keyspaces.iter().any(|keyspace| needs_flush(&keyspace)) {
        return Ok(false);
    }
    // The holder of this lock acts as a leader of the write queue.
    let mut log = engine.writer.log.lock();
    engine.check_writable()?;
    let mut due: Vec<_> = keyspaces.iter().filter(needs_flush).cloned().collect();
    if is_long {
        due.extend(full_keyspaces(engine));
    }
    if log.current.is_none() || due.is_empty() {
        return Ok(false);
    }
    switch_memtables(engine, &mut log, &due)?;
    Ok(true)
}

/// Makes the active memtables of `keyspaces` immutable and begins a new log.
///
/// # Errors
/// The failure of the new log; it becomes the background error.
pub(crate) fn switch_memtables(
    engine: &Engine,
    log: &mut LogState,
    keyspaces: &[Arc<KeyspaceState>],
) -> Result<()> {
    // The log first: an edit may name it as soon as it is listed, and a log that an edit names must
    // exist after a crash (I5).
    let wal = next_log(engine, log, &[])?;
    let last_sequence = log.last_sequence;
    // I3: everything in the old memtables is published before they become immutable. Readers of
    // the new views rely on it, and the next write goes into a new memtable only after its view is
    // stored (`writable_memtable`).
    debug_assert_eq!(engine.catalog.published.visible(), last_sequence);
    for keyspace in keyspaces {
        let freed = keyspace.view.load().active.bytes();
        keyspace.update_view(|view| {
            if view.active_log == 0 {
                return view.clone();
            }
            engine.writer.active_bytes.fetch_sub(freed, Ordering::Relaxed);
            keyspace.scans_pass_tombstones.store(false, Ordering::Relaxed);
            let old = ImmutableMemtable {
                memtable: Arc::clone(&view.active),
                first_log: view.active_log,
                last_log: log.previous_log,
                last_sequence,
            };
            ReadView {
                active: Arc::clone(&engine.catalog.empty_memtable),
                active_log: 0,
                immutables: std::iter::once(old).chain(view.immutables.iter().cloned()).collect(),
                ..view.clone()
            }
        });
    }
    // The old log is synced before the new one at the next sync (I13). Without unsynced writes it
    // is dropped here; its file stays until the flush.
    if let Some(old) = log.current.replace(wal)
        && log.synced_through < log.last_sequence
    {
        log.unsynced.push(old);
    }
    engine.jobs.schedule_flush();
    Ok(())
}

/// Begins a new log, the one after the current one. No view has the tables of `load` yet.
///
/// # Errors
/// The failure of the log. It becomes the background error while the caller has the lock of the
/// log: the start of the new log may be there after a crash, and no write may follow in the old log
/// that the start does not know of.
fn next_log(engine: &Engine, log: &mut LogState, load: &[LoadedTable]) -> Result<WalWriter> {
    if let Some(old) = &log.current {
        log.previous_log = old.number;
    }
    let started = Instant::now();
    let file = match log.ahead.take() {
        Some(file) => Ok(file),
        None => log_file(engine, engine.catalog.numbers.take_file_number()),
    };
    let manifest = *engine.catalog.numbers.position.lock();
    let wal = file
        .and_then(|file| create_log(engine, log, file, manifest, load))
        .map_err(|error| engine.set_background_error(error))?;
    let number = wal.number;
    engine.context.counters.add(Counter::LogSwitches, 1);
    engine.context.counters.add(Counter::LogSwitchNanos, nanos(started));
    engine.context.events.emit(|| Event::LogSwitched {
        path: FileName::Wal(number).path(&engine.context.directory),
        old_bytes: log.current.as_ref().map_or(0, |wal| wal.records.bytes()),
        duration: started.elapsed(),
    });
    Ok(wal)
}

/// Makes the logs durable with the start of the current one, although that may have no entry: a
/// start says which sequences it skips, and without it the next log would not follow.
///
/// # Errors
/// The failure of a log.
pub(crate) fn sync_starts(engine: &Engine, log: &mut LogState) -> Result<()> {
    let has_entries = log.synced_through < log.last_sequence;
    sync_logs(engine, log)?;
    match &mut log.current {
        Some(wal) if !has_entries => wal.sync(),
        _ => Ok(()),
    }
}

/// Begins a new log whose start skips the sequences that were given and that no log has: of a load,
/// whose tables the log names, or of a batch that changes keyspaces. Makes the start durable. The
/// older logs must be durable.
///
/// # Errors
/// The failure of the new log; it becomes the background error.
pub(crate) fn skip_sequences(
    engine: &Engine,
    log: &mut LogState,
    load: &[LoadedTable],
) -> Result<()> {
    debug_assert!(log.synced_through == log.last_sequence && log.unsynced.is_empty(), "I13");
    let mut wal = next_log(engine, log, load)?;
    wal.sync().map_err(|error| engine.set_background_error(error))?;
    log.current = Some(wal);
    Ok(())
}

/// The active memtable of `keyspace`, a new one if it has no unflushed writes. The caller leads the
/// write queue, and its log is begun.
pub(crate) fn writable_memtable(
    context: &Context,
    writer: &Writer,
    keyspace: &KeyspaceState,
) -> Arc<Memtable> {
    let view = keyspace.view.load();
    if view.active_log != 0 {
        return Arc::clone(&view.active);
    }
    let memtable = new_memtable(&context.options);
    writer.active_bytes.fetch_add(memtable.bytes(), Ordering::Relaxed);
    // I3: readers find the memtable before its first entry is published.
    let active_log = writer.live_logs.lock().current();
    debug_assert_ne!(active_log, 0, "a log is begun before an entry is applied");
    keyspace.update_view(|view| ReadView {
        active: Arc::clone(&memtable),
        active_log,
        ..view.clone()
    });
    memtable
}

/// Whether the write buffer is full, and whether the logs are too long.
#[inline]
fn full_and_long(engine: &Engine) -> (bool, bool) {
    let buffer = engine.context.options.write_buffer_bytes;
    let is_full = engine.writer.active_bytes.load(Ordering::Relaxed) >= buffer;
    let old_log_bytes = engine.writer.old_log_bytes.load(Ordering::Relaxed);
    (is_full, old_log_bytes > LOG_BUFFERS_MAX * buffer as u64)
}

/// True while the write buffer has room and the logs are short: there are no [`full_keyspaces`].
#[inline]
pub(crate) fn has_room(engine: &Engine) -> bool {
    full_and_long(engine) == (false, false)
}

/// The oldest log, if that is not written any more and an active memtable needs it.
pub(crate) fn oldest_held_log(engine: &Engine) -> Option<u64> {
    let oldest = {
        let logs = engine.writer.live_logs.lock();
        logs.oldest().map(|log| log.number).filter(|oldest| *oldest < logs.current())?
    };
    if oldest <= engine.writer.unheld_log.load(Ordering::Relaxed) {
        return None;
    }
    let holds =
        |keyspace: &Arc<KeyspaceState>| (1..=oldest).contains(&keyspace.view.load().active_log);
    if engine.catalog.all_keyspaces().iter().any(holds) {
        return Some(oldest);
    }
    // None will: a memtable begins in the log that is written. So the next group does not ask all
    // keyspaces again.
    engine.writer.unheld_log.store(oldest, Ordering::Relaxed);
    None
}

/// The keyspaces whose memtables are switched now, besides those that a caller asks for.
pub(crate) fn full_keyspaces(engine: &Engine) -> Vec<Arc<KeyspaceState>> {
    let buffer = engine.context.options.write_buffer_bytes;
    let (is_full, is_long) = full_and_long(engine);
    let oldest_log = if is_long { oldest_held_log(engine) } else { None };
    if !is_full && oldest_log.is_none() {
        return Vec::new();
    }
    let mut active = engine.catalog.all_keyspaces();
    active.retain(|keyspace| keyspace.view.load().active_log != 0);
    let bytes = |keyspace: &Arc<KeyspaceState>| keyspace.view.load().active.bytes();
    active.sort_by_cached_key(|keyspace| std::cmp::Reverse(bytes(keyspace)));
    let mut freed = 0;
    active.retain(|keyspace| {
        let holds_log = Some(keyspace.view.load().active_log) <= oldest_log;
        let is_large = is_full && freed < buffer / 8;
        freed += if is_large { bytes(keyspace) } else { 0 };
        is_large || holds_log
    });
    active
}

/// The log of this session; its first use begins the session.
pub(crate) fn session_log<'a>(engine: &Engine, log: &'a mut LogState) -> Result<&'a mut WalWriter> {
    // Taken out and put back: after a failed start there is no log.
    let wal = match log.current.take() {
        Some(wal) => wal,
        None => start_session(engine, log, None)?,
    };
    Ok(log.current.insert(wal))
}

/// Creates the first log of this session, and its manifest where it has none. Everything that was
/// recovered is in the tables `recovered`, if they are given, or in the logs and memtables.
fn start_session(
    engine: &Engine,
    log: &LogState,
    recovered: Option<&mut NewTables>,
) -> Result<WalWriter> {
    let number = engine.catalog.numbers.take_file_number();
    let mut versions = engine.catalog.versions.lock();
    let file = log_file(engine, number)?;
    let first_log = FirstLog { number, flushed_through: log.last_sequence };
    let wal = if versions.is_active() {
        // The session that created the database: from now on a missing log is damage.
        let wal = create_log(engine, log, file, *engine.catalog.numbers.position.lock(), &[])?;
        let edit = VersionEdit { first_log: Some(first_log), ..VersionEdit::default() };
        versions.apply(edit, &mut NewTables::default(), log.last_sequence)?;
        wal
    } else {
        // The log first, and it names the manifest to come. After a crash between the two,
        // recovery finds the log of a session that never began.
        let manifest = engine.catalog.numbers.take_file_number();
        let coming = ManifestPosition { number: manifest, synced_bytes: 0 };
        let wal = create_log(engine, log, file, coming, &[])?;
        let first_log = recovered.is_some().then_some(first_log);
        let mut none = NewTables::default();
        let new = recovered.unwrap_or(&mut none);
        let edit = VersionEdit { first_log, added: new.added(), ..VersionEdit::default() };
        let begun = versions.activate(manifest, Some(number), &edit, new, log.last_sequence);
        if let Err(error) = begun {
            remove_abandoned(&engine.context, &engine.writer, &versions, number);
            return Err(error);
        }
        // Listed now, while every table that a reader may hold is in the version.
        engine.catalog.obsolete.add(without_kept_logs(
            &engine.context,
            &engine.writer,
            versions.obsolete_files()?,
        ));
        wal
    };
    engine.catalog.show(versions.versions().collect());
    let keyspaces: Vec<_> = versions.keyspaces().map(|meta| meta.id).collect();
    drop(versions);
    // Recovered memtables can be flushed from now on.
    engine.jobs.schedule_flush();
    engine.jobs.schedule_compactions(keyspaces);
    let all = engine.catalog.all_keyspaces();
    all.iter().for_each(|keyspace| engine.jobs.schedule_table_removal(keyspace));
    Ok(wal)
}

/// `obsolete` without the logs of earlier sessions that are kept for followers and watches.
pub(crate) fn without_kept_logs(
    context: &Context,
    writer: &Writer,
    mut obsolete: Vec<FileName>,
) -> Vec<FileName> {
    let mut logs = writer.live_logs.lock();
    if logs.keeps_nothing() {
        return obsolete;
    }
    let bytes = |name: &FileName| match name {
        // A log that cannot be asked is not kept.
        FileName::Wal(number) => {
            let metadata = context.env.metadata(&name.path(&context.directory)).ok()?;
            Some((*number, metadata.bytes))
        }
        _ => None,
    };
    let mut older: Vec<_> = obsolete.iter().filter_map(bytes).collect();
    older.sort_unstable();
    logs.keep_older(older);
    obsolete.retain(|name| !matches!(name, FileName::Wal(number) if logs.is_kept(*number)));
    obsolete
}

/// Removes the files of a session that never began: nothing names them, and every further attempt
/// would leave more. They stay if the new manifest may be current.
fn remove_abandoned(context: &Context, writer: &Writer, versions: &VersionSet, log: u64) {
    let abandoned = &versions.manifest.abandoned;
    if abandoned.is_empty() {
        return;
    }
    writer.live_logs.lock().forget(log);
    for name in abandoned.iter().copied().chain([FileName::Wal(log)]) {
        let _ = context.env.remove(&name.path(&context.directory));
    }
}

/// Makes the next log, unless there is one already or the session has no log. Called by jobs, with
/// no lock.
///
/// # Errors
/// The failure of the file.
pub(crate) fn make_log_ahead(engine: &Engine) -> Result<()> {
    let lacks = |log: &LogState| log.current.is_some() && log.ahead.is_none();
    if !lacks(&engine.writer.log.lock()) {
        return Ok(());
    }
    let file = log_file(engine, engine.catalog.numbers.take_file_number())?;
    let mut log = engine.writer.log.lock();
    // A switch that found none in the meantime has begun a later log.
    let follows = log.current.as_ref().is_some_and(|wal| wal.number < file.number);
    if lacks(&log) && follows {
        log.ahead = Some(file);
        return Ok(());
    }
    drop(log);
    file.remove(&*engine.context.env, &engine.context.directory);
    Ok(())
}

/// A new file for log `number`.
fn log_file(engine: &Engine, number: u64) -> Result<WalFile> {
    engine.check_lock()?;
    WalFile::create(&*engine.context.env, &engine.context.directory, number)
}

/// Begins the log in `file`, whose number is above those of all logs before it.
fn create_log(
    engine: &Engine,
    log: &LogState,
    file: WalFile,
    manifest: ManifestPosition,
    load: &[LoadedTable],
) -> Result<WalWriter> {
    engine.check_lock()?;
    // What recovery needs to tell a torn end from a loss: which log and sequence this one follows,
    // and how much of the logs and of the manifest is durable.
    let start = WalStart {
        synced_through: log.synced_through,
        previous_log: log.previous_log,
        previous_last_sequence: log.last_sequence,
        first_sequence: log.next_sequence,
        manifest_number: manifest.number,
        manifest_synced_bytes: manifest.synced_bytes,
        database: engine.context.database,
    };
    // An eighth of the write buffer, so a small store has small logs.
    let step = (engine.context.options.write_buffer_bytes as u64 / 8).min(LOG_ALLOCATION_BYTES_MAX);
    let loads = [&live_loads(&engine.catalog)[..], load].concat();
    let (env, directory) = (&*engine.context.env, &engine.context.directory);
    let number = file.number;
    let wal = WalWriter::begin(file, env, directory, &start, &loads, step)?;
    let live = LiveLog { number, begins_after: log.last_sequence, bytes: 0 };
    let previous_bytes = log.current.as_ref().map(|wal| wal.records.file_bytes());
    let mut logs = engine.writer.live_logs.lock();
    logs.push(live, previous_bytes);
    engine.writer.old_log_bytes.store(logs.bytes(), Ordering::Relaxed);
    Ok(wal)
}

/// The ingested tables of all views. Loads come under the lock of the log, which the caller holds,
/// so none is missing. A table that has just been compacted may be among them.
fn live_loads(catalog: &Catalog) -> Vec<LoadedTable> {
    let mut loads = Vec::new();
    for keyspace in catalog.all_keyspaces() {
        let view = keyspace.view.load();
        loads.extend(view.version.tables().filter_map(|handle| handle.meta.loaded()));
    }
    loads
}

fn sync_older_logs(context: &Context, log: &mut LogState) -> Result<()> {
    // Oldest first, so what this call has made durable is a prefix of the writes at any moment.
    for wal in &mut log.unsynced {
        wal.sync()?;
        context.counters.add(Counter::WalSyncs, 1);
    }
    log.unsynced.clear();
    Ok(())
}

/// Syncs every log with unsynced writes, oldest first.
pub(crate) fn sync_logs(engine: &Engine, log: &mut LogState) -> Result<()> {
    sync_older_logs(&engine.context, log)?;
    if let Some(wal) = log.current.as_mut()
        && log.synced_through < log.last_sequence
    {
        wal.sync()?;
        engine.context.counters.add(Counter::WalSyncs, 1);
    }
    // I13: this log was synced after every older one.
    debug_assert!(log.unsynced.is_empty() && log.synced_through <= log.last_sequence);
    if log.synced_through < log.last_sequence {
        // After the sync, and before these writes are acknowledged: a process that took the
        // directory before the sync may not have read them.
        engine.check_lock()?;
        log.synced_through = log.last_sequence;
    }
    Ok(())
}

/// As `sync_logs`, for the syncing thread: writers go on during the sync.
///
/// # Errors
/// The failure of a sync, which becomes the background error; `ReadOnly` after an earlier failure.
pub(crate) fn sync_beside_writers(engine: &Engine) -> Result<()> {
    let mut log = engine.writer.log.lock();
    // A close waits for this sync, so a closed database is no reason to refuse it.
    engine.jobs.background_error.check()?;
    // I13: read before the syncs begin. What is appended from here on, they may cover or not.
    let through = log.last_sequence;
    if log.synced_through == through {
        return Ok(());
    }
    let resumes = log.resumes;
    let LogState { current, unsynced, .. } = &mut *log;
    let ended: Vec<u64> = unsynced.iter().map(|wal| wal.number).collect();
    let logs = unsynced.iter_mut().chain(current);
    let Some(logs) = logs.map(WalWriter::syncer).collect::<Option<Vec<_>>>() else {
        return sync_logs(engine, &mut log).map_err(|error| engine.set_background_error(error));
    };
    drop(log);
    // Oldest first, as ever.
    let synced = logs.into_iter().try_for_each(|log| {
        log.sync_data()?;
        engine.context.counters.add(Counter::WalSyncs, 1);
        Ok(())
    });
    // As in `sync_logs`. No `resume` excuses it.
    let locked = engine.check_lock();
    let mut log = engine.writer.log.lock();
    locked.map_err(|error| engine.set_background_error(error))?;
    // After a `resume` these writes are in tables that were synced, and these logs are given up.
    // With the log locked, none comes between this check and the background error.
    if let Err(error) = synced
        && log.resumes == resumes
    {
        return Err(engine.set_background_error(error));
    }
    // Another sync, or a `resume`, may have come further.
    log.synced_through = log.synced_through.max(through);
    // Not the log that was current: if it has ended since, it may have later writes.
    log.unsynced.retain(|wal| !ended.contains(&wal.number));
    Ok(())
}

/// Ends the session: syncs everything, then marks a clean close in the manifest. A session that
/// wrote nothing has no log and keeps the mark of the session before it.
///
/// # Errors
/// The failure of a sync or of the mark.
pub(crate) fn finish_log(engine: &Engine) -> Result<()> {
    let mut log = engine.writer.log.lock();
    sync_older_logs(&engine.context, &mut log)?;
    let Some(mut wal) = log.current.take() else { return Ok(()) };
    if let Some(ahead) = log.ahead.take() {
        ahead.remove(&*engine.context.env, &engine.context.directory);
    }
    wal.sync()?;
    engine.check_lock()?;
    // Tickets that wait still find nothing left to sync.
    log.synced_through = log.last_sequence;
    engine.catalog.versions.lock().manifest.close(CleanClose {
        log: wal.number,
        log_bytes: wal.records.bytes(),
        last_sequence: log.last_sequence,
    })
}

pub(crate) fn nanos(started: Instant) -> u64 {
    started.elapsed().as_nanos() as u64
}
