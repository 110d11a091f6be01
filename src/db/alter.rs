//! Creates and drops keyspaces, and changes their settings.
//!
//! Each is one edit of the manifest. The caller holds the `log` lock, like the leader of the write
//! queue, so no write comes between. All logs are synced before the edit: a crash must not keep a
//! creation or a drop and lose a write that was made before it (I13). A creation is durable before
//! a log record names the number of the keyspace, and a number is never used twice. So recovery
//! skips the entries of numbers that are not there.

use crate::base::error::{Error, Result};
use crate::base::key::{DEFAULT_KEYSPACE, SequenceNumber, check_keyspace_name};
use crate::base::sync::{Arc, Ordering};
use crate::options::keyspace::KeyspaceOptions;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::{KeyspaceState, Keyspaces, written};
use crate::state::lock_rank::RankedGuard;
use crate::state::read_view::ReadView;
use crate::state::session::{self, session_log, sync_logs};
use crate::state::writer::LogState;
use crate::state::writer::Writer;
use crate::tree::edit::{KeyspaceMeta, VersionEdit};
use crate::tree::new_tables::NewTables;
use crate::tree::version::Version;

/// The keyspace `name`, with the settings that `named` names; creates it if it is not there.
///
/// # Errors
/// As `Db::keyspace_with`.
pub(crate) fn open_keyspace(
    engine: &Engine,
    name: &str,
    named: &KeyspaceOptions,
) -> Result<Arc<KeyspaceState>> {
    check_keyspace_name(name)
        .map_err(|why| Error::InvalidArgument { what: format!("not a keyspace: {why}") })?;
    engine.context.process.check()?;
    engine.context.check_open()?;
    engine.context.options.for_keyspace(named).validate()?;
    let there = || engine.catalog.keyspaces.lock().named(name).cloned();
    if let Some(keyspace) = there() {
        return change(engine, keyspace, named);
    }
    if engine.context.read_only {
        return Err(Error::KeyspaceNotFound { name: name.into() });
    }
    let log = exclusive_log(engine)?;
    match there() {
        Some(keyspace) => {
            drop(log);
            change(engine, keyspace, named)
        }
        None => {
            let keyspace = new_keyspace(&engine.context, &engine.catalog, name, named)?;
            keyspace.is_open.store(true, Ordering::SeqCst);
            let created = vec![Arc::clone(&keyspace)];
            let last_sequence = log.last_sequence;
            install(engine, log, Alteration { created, last_sequence, ..Alteration::default() })?;
            engine.writer.watchers.wake();
            Ok(keyspace)
        }
    }
}

/// A keyspace with a number of its own that no edit has created yet.
///
/// # Errors
/// `InvalidArgument` if there are too many; `Closed`.
pub(super) fn new_keyspace(
    context: &Context,
    catalog: &Catalog,
    name: &str,
    named: &KeyspaceOptions,
) -> Result<Arc<KeyspaceState>> {
    let options = Arc::new(context.options.for_keyspace(named));
    let view = ReadView {
        active: Arc::clone(&catalog.empty_memtable),
        active_log: 0,
        immutables: Vec::new(),
        version: Arc::new(Version::new(Default::default())),
        dropped: false,
        lock: Some(catalog.hold()?),
    };
    let served = catalog.default.served.clone();
    let id = catalog.versions.lock().take_keyspace()?;
    Ok(Arc::new(KeyspaceState::new(id, name.into(), options, served, view)))
}

/// What one edit changes.
#[derive(Default)]
pub(super) struct Alteration {
    /// Keyspaces of [`new_keyspace`].
    pub created: Vec<Arc<KeyspaceState>>,
    /// Keyspaces that are there.
    pub dropped: Vec<Arc<KeyspaceState>>,
    /// Tables of level 0, newer than all others, of created keyspaces and of those that stay.
    pub tables: NewTables,
    /// The last sequence in the tables. No log has those above the last sequence of the log, and
    /// the start of the current log skips them. Without tables the last sequence of the log.
    pub last_sequence: SequenceNumber,
}

/// Logs the edit that makes the change, then shows it in one step. All earlier writes are durable.
/// The caller wakes the watches.
///
/// # Errors
/// Tables that cannot be read back, or an order of them that would be wrong: nothing changed. The
/// failure of the manifest is the background error. The change may be durable then, but it is not
/// visible.
pub(super) fn install(
    engine: &Engine,
    mut log: RankedGuard<'_, LogState>,
    change: Alteration,
) -> Result<()> {
    let Alteration { created, dropped, mut tables, last_sequence } = change;
    let mut versions = engine.catalog.versions.lock();
    let files = tables.file_names();
    let edit = VersionEdit {
        next_keyspace: (!created.is_empty()).then(|| versions.next_keyspace),
        synced_through: Some(last_sequence),
        created: created.iter().map(|keyspace| meta_of(keyspace, last_sequence)).collect(),
        dropped: dropped.iter().map(|keyspace| keyspace.id).collect(),
        added: tables.added(),
        ..VersionEdit::default()
    };
    let changed = match versions.apply(edit, &mut tables, last_sequence) {
        Ok(changed) => changed,
        Err(error) if versions.manifest.failed.is_none() => {
            engine.catalog.obsolete.add(files);
            return Err(error);
        }
        Err(error) => return Err(engine.set_background_error(error)),
    };
    let before = log.last_sequence;
    if last_sequence > before {
        (log.last_sequence, log.synced_through) = (last_sequence, last_sequence);
        // It says how long the manifest is. So a follower that reads a later write has the edit. If
        // it fails, that is the background error: there is no later write, and the change is
        // durable already.
        let _ = session::skip_sequences(engine, &mut log, &[]);
    }
    for keyspace in &created {
        if let Some(version) = changed.get(&keyspace.id) {
            let version = Arc::clone(version);
            keyspace.update_view(|view| ReadView { version, ..view.clone() });
        }
    }
    engine.catalog.show(changed);
    // With `versions` locked: a checkpoint that finds a keyspace gone finds its drop counted.
    show_keyspaces(&engine.catalog, &engine.writer, created, &dropped, before, last_sequence);
    drop(versions);
    drop(log);
    if !dropped.is_empty() {
        engine.catalog.clear_dropped();
        // The logs of its memtables may not be needed any more, and a writer may wait for its
        // flush.
        engine.jobs.schedule_flush();
        let _jobs = engine.jobs.schedule.lock();
        engine.jobs.done.notify_all();
    }
    Ok(())
}

/// Publishes `last_sequence` and changes the list of keyspaces.
fn show_keyspaces(
    catalog: &Catalog,
    writer: &Writer,
    created: Vec<Arc<KeyspaceState>>,
    dropped: &[Arc<KeyspaceState>],
    before: SequenceNumber,
    last_sequence: SequenceNumber,
) {
    // Held before the sequence is published: who reads an entry of a batch finds its keyspaces. In
    // one step for a caller that looks for a name.
    let mut keyspaces = catalog.keyspaces.lock();
    // The drops come before the sequence, too: a reader that finds an entry of the batch must find
    // all of its keyspaces dropped. A reader that finds one dropped earlier waits for the sequence
    // (`KeyspaceState::refusal`).
    for keyspace in dropped {
        let view = keyspace.view.load_full();
        if view.active_log != 0 {
            writer.active_bytes.fetch_sub(view.active.bytes(), Ordering::Relaxed);
        }
        keyspace.mark_dropped();
    }
    // In one step for snapshots. The drops are counted before `clear_dropped` looks for snapshots:
    // see `Snapshot::new`.
    catalog.snapshots.in_one_step(|| {
        catalog.published.publish(last_sequence);
        let drops = catalog.drops.load(Ordering::SeqCst) + u64::from(!dropped.is_empty());
        dropped.iter().for_each(|keyspace| keyspace.dropped_as.store(drops, Ordering::SeqCst));
        catalog.drops.store(drops, Ordering::SeqCst);
    });
    created.into_iter().for_each(|keyspace| keyspaces.insert(keyspace));
    dropped.iter().for_each(|keyspace| keyspaces.remove(keyspace.id, before));
}

/// What the manifest says of a keyspace that is created after `last_sequence`.
fn meta_of(keyspace: &KeyspaceState, last_sequence: SequenceNumber) -> KeyspaceMeta {
    let (settings, name) = (keyspace.options.load().data.encoded(), keyspace.name.clone());
    KeyspaceMeta { id: keyspace.id, name, flushed_through: last_sequence, settings }
}

/// Gives `keyspace` the settings that `named` names, unless it has them. They concern tables that
/// are written from now on. They are saved with the first write of the session, or at once after
/// it.
///
/// # Errors
/// `InvalidOptions` if the keyspace is open in this process with other settings;
/// `KeyspaceDropped`; the failure of the manifest.
pub(super) fn change(
    engine: &Engine,
    keyspace: Arc<KeyspaceState>,
    named: &KeyspaceOptions,
) -> Result<Arc<KeyspaceState>> {
    // Without the lock, which is held during writes: most callers change nothing.
    let has_all = |current: &KeyspaceOptions, wanted: &KeyspaceOptions| {
        *wanted == *current && wanted.has_compaction_filter_of(current)
    };
    let current = keyspace.options.load_full();
    if has_all(&current.data, &named.over(&current.data)) {
        keyspace.is_open.store(true, Ordering::SeqCst);
        return Ok(keyspace);
    }
    let mut log = engine.writer.log.lock();
    // An edit for a keyspace that another thread has dropped would make the manifest unreadable.
    written(&engine.catalog.keyspaces.lock(), keyspace.id).map_err(|_| keyspace.dropped())?;
    let current = keyspace.options.load_full();
    let wanted = named.over(&current.data);
    if keyspace.is_open.load(Ordering::SeqCst) {
        let (name, current) = (&keyspace.name, &current.data);
        let filter = match wanted.has_compaction_filter_of(current) {
            true => "",
            false => " and another compaction filter, or none",
        };
        let current = match current.to_string() {
            none if none.is_empty() => "no named settings".into(),
            settings => settings,
        };
        let what = format!("the keyspace {name:?} is open in this process with {current}{filter}");
        return Err(Error::InvalidOptions { what });
    }
    let options = engine.context.options.for_keyspace(&wanted);
    if wanted == current.data {
        // Only the compaction filter is another one, and that is not saved.
        keyspace.set_options(options);
        keyspace.is_open.store(true, Ordering::SeqCst);
        return Ok(keyspace);
    }
    // Since the caller looked, the database may have failed, and be closed: its directory is free.
    if !engine.context.read_only {
        engine.check_writable()?;
    }
    if log.current.is_some() {
        sync_logs(engine, &mut log).map_err(|error| engine.set_background_error(error))?;
    }
    engine
        .catalog
        .versions
        .lock()
        .save_settings(keyspace.id, wanted.encoded(), log.last_sequence)
        .map_err(|error| engine.set_background_error(error))?;
    keyspace.set_options(options);
    keyspace.is_open.store(true, Ordering::SeqCst);
    Ok(keyspace)
}

/// Drops the keyspace `name`.
///
/// # Errors
/// As `Db::drop_keyspace`.
pub(crate) fn drop_keyspace(engine: &Engine, name: &str) -> Result<()> {
    engine.context.process.check()?;
    engine.check_writable()?;
    to_drop(&engine.catalog.keyspaces.lock(), name)?;
    let log = exclusive_log(engine)?;
    // Looked up again: another thread may have dropped the keyspace, and created another one of
    // this name.
    let dropped = vec![to_drop(&engine.catalog.keyspaces.lock(), name)?];
    let last_sequence = log.last_sequence;
    install(engine, log, Alteration { dropped, last_sequence, ..Alteration::default() })?;
    engine.writer.watchers.wake();
    Ok(())
}

/// The keyspace `name`, which may be dropped.
///
/// # Errors
/// `KeyspaceNotFound`; `InvalidArgument` for `default`.
pub(super) fn to_drop(keyspaces: &Keyspaces, name: &str) -> Result<Arc<KeyspaceState>> {
    match keyspaces.named(name) {
        Some(keyspace) if keyspace.id == DEFAULT_KEYSPACE => {
            let what = format!("the keyspace {name:?} cannot be dropped");
            Err(Error::InvalidArgument { what })
        }
        Some(keyspace) => Ok(Arc::clone(keyspace)),
        None => Err(Error::KeyspaceNotFound { name: name.into() }),
    }
}

/// Takes the place of the leader of the write queue, with every earlier write durable.
///
/// # Errors
/// `Closed`, `ReadOnly`, `OpenedReadOnly`, or the failure of a log.
pub(super) fn exclusive_log(engine: &Engine) -> Result<RankedGuard<'_, LogState>> {
    engine.check_writable()?;
    let mut log = engine.writer.log.lock();
    engine.check_writable()?;
    session_log(engine, &mut log)
        .map(drop)
        .and_then(|()| sync_logs(engine, &mut log))
        .and_then(|()| engine.check_lock())
        .map_err(|error| engine.set_background_error(error))?;
    Ok(log)
}
