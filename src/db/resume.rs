//! `Db::resume`: takes writes again after the disk was full, with the same handle.
//!
//! The failure may have left half a record in the log, a whole record that was not acknowledged, or
//! an edit in the manifest that this process does not know of. So neither file is written to again.
//! Everything acknowledged goes from the memtables to tables, and a new log and a new manifest
//! replace the old ones, as when a database is opened.
//!
//! 1. Write, sync and remove a file as large as the write buffer, to see that there is room.
//! 2. Flush all memtables, also the active one, to tables of level 0.
//! 3. Create a new log that names the manifest to come. Recovery ignores it until step 4 is done.
//! 4. Create the manifest with those tables and that log, and install it (I6).
//! 5. Only then take writes and remove the old logs. A refused write cannot reappear any more.
//!
//! A crash before step 4 finds the old manifest and logs; a crash after it finds the new ones. If a
//! step fails, the database stays read-only and `resume` may be called again.

use crate::base::error::{Error, Result};
use crate::base::events::event::Event;
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::base::sync::{Arc, Ordering};
use crate::jobs::flush::{FlushInput, write_memtables};
use crate::jobs::workers::{CompactionToken, wait_for_jobs};
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::read_view::ReadView;
use crate::state::session;
use crate::state::writer::LogState;
use crate::tree::edit::{DeletedFile, FirstLog, VersionEdit};
use crate::tree::set::VersionSet;
use std::time::Instant;

/// Takes writes again after the disk was full.
///
/// # Errors
/// `ReadOnly` if something else failed too; `Io` if there is still no room; as `Db::resume`.
pub(crate) fn resume(engine: &Engine) -> Result<()> {
    engine.context.process.check()?;
    engine.context.check_open()?;
    if engine.context.read_only {
        return Err(Error::OpenedReadOnly);
    }
    if !engine.jobs.background_error.is_set() {
        return Ok(());
    }
    // A job that failed, too, and has not recorded that: later it would count as a new failure.
    wait_for_jobs(&engine.jobs);
    // No compaction, no flush and no write from here on.
    let _token = CompactionToken::wait(engine)?;
    let _flushes = engine.jobs.flushes.lock();
    let mut log = engine.writer.log.lock();
    if !engine.jobs.background_error.is_set() {
        return Ok(());
    }
    engine.jobs.background_error.check_lasting()?;
    probe(&engine.context, &engine.catalog)?;
    let started = Instant::now();
    // A sync that fails here can only be cleared by reopening.
    restart(engine, &mut log).map_err(|error| engine.set_background_error(error))?;
    engine.context.events.emit(|| Event::Resumed { duration: started.elapsed() });
    Ok(())
}

/// Checks that there is room for a full log.
fn probe(context: &Context, catalog: &Catalog) -> Result<()> {
    let name = FileName::Temporary(catalog.numbers.take_file_number());
    let path = name.path(&context.directory);
    let bytes = context.options.write_buffer_bytes as u64;
    let mut file = context.env.create_new(&path).map_err(|e| Error::io("create_new", &path, e))?;
    let written = file.allocate_zeroed(0, bytes).map_err(|e| Error::io("write_at", &path, e));
    let synced = written.and_then(|()| file.sync_all().map_err(|e| Error::io("sync", &path, e)));
    drop(file);
    if context.env.remove(&path).is_err() {
        // A worker tries again after the `resume`.
        catalog.obsolete.add([name]);
    }
    synced
}

/// The tables of a bulk load that was named by the manifest, and then the next log failed: it was
/// refused, so it must not appear.
fn refused_loads(versions: &VersionSet, last_sequence: SequenceNumber) -> Vec<DeletedFile> {
    let mut refused = Vec::new();
    for (keyspace, version) in versions.versions() {
        for (level, tables) in version.files.iter().enumerate() {
            let later = tables.iter().filter(|meta| meta.largest_sequence > last_sequence);
            refused.extend(later.map(|meta| DeletedFile { keyspace, level, number: meta.number }));
        }
    }
    refused
}

/// The files that nothing needs any more.
fn leftovers(engine: &Engine, versions: &VersionSet, begins_session: bool) -> Vec<FileName> {
    // What cannot be listed now, the next session removes.
    let mut leftovers = versions.leftovers().unwrap_or_default();
    if begins_session {
        // The session that could not begin has not looked for logs of earlier ones.
        return session::without_kept_logs(&engine.context, &engine.writer, leftovers);
    }
    let logs = engine.writer.live_logs.lock();
    leftovers.retain(|name| !matches!(name, FileName::Wal(log) if logs.is_kept(*log)));
    leftovers
}

fn restart(engine: &Engine, log: &mut LogState) -> Result<()> {
    let last_sequence = log.last_sequence;
    // Only a failed sync leaves unacknowledged records in the log, and `lasting` refused that.
    debug_assert_eq!(last_sequence, engine.catalog.published.visible());
    let keyspaces = engine.catalog.all_keyspaces();
    let (mut inputs, mut flushed) = (Vec::new(), Vec::new());
    for keyspace in &keyspaces {
        let view = keyspace.view.load_full();
        let full = view.immutables.iter().rev().map(|full| &full.memtable);
        let active = Some(&view.active).filter(|active| !active.is_empty());
        let memtables: Vec<_> = full.chain(active).map(Arc::clone).collect();
        if !memtables.is_empty() {
            flushed.extend(memtables.iter().cloned());
            let levels = view.version.files.clone();
            inputs.push(FlushInput { keyspace: Arc::clone(keyspace), memtables, levels });
        }
    }
    let tables = write_memtables(engine, inputs, None)?;
    let there: Vec<_> = keyspaces.iter().map(|keyspace| &**keyspace).collect();
    let mut tables = engine.catalog.open_new(&engine.context.directory, tables, 0, &there)?;
    let (number, manifest) =
        (engine.catalog.numbers.take_file_number(), engine.catalog.numbers.take_file_number());
    let begins_session = log.current.is_none();
    let wal = session::begin_log(engine, log, number, manifest)
        // The next call writes others.
        .inspect_err(|_| engine.catalog.obsolete.add(tables.file_names()))?;
    let leftovers = {
        let mut versions = engine.catalog.versions.lock();
        let edit = VersionEdit {
            first_log: Some(FirstLog { number, flushed_through: last_sequence }),
            added: tables.added(),
            deleted: refused_loads(&versions, last_sequence),
            ..VersionEdit::default()
        };
        let mut changed = versions.restart(manifest, edit, &mut tables)?;
        for keyspace in &keyspaces {
            let version = changed.remove(&keyspace.id);
            keyspace.update_view(|view| ReadView {
                active: Arc::clone(&engine.catalog.empty_memtable),
                active_log: 0,
                immutables: Vec::new(),
                version: version.unwrap_or_else(|| Arc::clone(&view.version)),
                ..view.clone()
            });
        }
        engine.writer.active_bytes.store(0, Ordering::Relaxed);
        engine.writer.live_logs.lock().take_before(number);
        engine.writer.old_log_bytes.store(0, Ordering::Relaxed);
        leftovers(engine, &versions, begins_session)
    };
    log.current = Some(wal);
    log.unsynced.clear();
    log.synced_through = last_sequence;
    log.resumes += 1;
    engine.catalog.retired.lock().extend(flushed);
    // From here on files are removed again, and writes are taken once the log lock is released.
    engine.jobs.background_error.clear()?;
    engine.catalog.obsolete.add(leftovers);
    engine.jobs.schedule_flush();
    engine.jobs.schedule_compactions(keyspaces.iter().map(|keyspace| keyspace.id));
    let _jobs = engine.jobs.schedule.lock();
    engine.jobs.done.notify_all();
    Ok(())
}
