//! Creates and drops keyspaces, and changes their settings.
//!
//! Each is one edit of the manifest. The caller holds the `log` lock, like the leader of the write
//! queue, so no write comes between. All logs are synced before the edit: a crash must not keep a
//! creation or a drop and lose a write that was made before it (I13). A creation is durable before
//! a log record names the number of the keyspace, and a number is never used twice. So recovery
//! skips the entries of numbers that are not there.

use crate::base::error::{Error, Result};
use crate::base::key::{DEFAULT_KEYSPACE, check_keyspace_name};
use crate::base::sync::{Arc, MutexGuard, Ordering};
use crate::options::keyspace::KeyspaceOptions;
use crate::state::keyspace::{KeyspaceState, written};
use crate::state::read_view::ReadView;
use crate::state::session::{session_log, sync_logs};
use crate::state::shared::{LogState, Shared};
use crate::tree::edit::KeyspaceMeta;

/// The keyspace `name`, with the settings that `named` names; creates it if it is not there.
///
/// # Errors
/// As `Db::keyspace_with`.
pub(crate) fn open_keyspace(
    shared: &Shared,
    name: &str,
    named: &KeyspaceOptions,
) -> Result<Arc<KeyspaceState>> {
    check_keyspace_name(name)
        .map_err(|why| Error::InvalidArgument { what: format!("not a keyspace: {why}") })?;
    shared.process.check()?;
    shared.check_open()?;
    shared.options.for_keyspace(named).validate()?;
    let there = || shared.keyspaces.lock().named(name).cloned();
    if let Some(keyspace) = there() {
        return change(shared, keyspace, named);
    }
    if shared.read_only {
        return Err(Error::KeyspaceNotFound { name: name.into() });
    }
    let log = lead(shared)?;
    match there() {
        Some(keyspace) => {
            drop(log);
            change(shared, keyspace, named)
        }
        None => create(shared, &log, name, named),
    }
}

fn create(
    shared: &Shared,
    log: &LogState,
    name: &str,
    named: &KeyspaceOptions,
) -> Result<Arc<KeyspaceState>> {
    let options = Arc::new(shared.options.for_keyspace(named));
    let mut settings = Vec::new();
    named.encode(&mut settings);
    let mut versions = shared.versions.lock();
    let id = versions.take_keyspace()?;
    let flushed_through = log.last_sequence;
    let meta = KeyspaceMeta { id, name: name.into(), flushed_through, settings };
    let version = versions
        .create(meta, options.filter_pinning(), log.last_sequence)
        .map_err(|error| shared.set_background_error(error))?;
    let view = ReadView {
        active: Arc::clone(&shared.empty_memtable),
        active_log: 0,
        immutables: Vec::new(),
        version,
        dropped: false,
        lock: Some(shared.hold()?),
    };
    let keyspace = Arc::new(KeyspaceState::new(id, name.into(), options, view));
    keyspace.is_open.store(true, Ordering::SeqCst);
    shared.keyspaces.lock().insert(Arc::clone(&keyspace));
    Ok(keyspace)
}

/// Gives `keyspace` the settings that `named` names, unless it has them. They concern tables that
/// are written from now on. They are saved with the first write of the session, or at once after
/// it.
///
/// # Errors
/// `InvalidOptions` if the keyspace is open in this process with other settings;
/// `KeyspaceDropped`; the failure of the manifest.
pub(super) fn change(
    shared: &Shared,
    keyspace: Arc<KeyspaceState>,
    named: &KeyspaceOptions,
) -> Result<Arc<KeyspaceState>> {
    // Without the lock, which is held during writes: most callers change nothing.
    let has_all = |current: &KeyspaceOptions, wanted: &KeyspaceOptions| {
        *wanted == *current && wanted.has_compaction_filter_of(current)
    };
    let current = keyspace.options.load_full();
    if has_all(current.named(), &named.over(current.named())) {
        keyspace.is_open.store(true, Ordering::SeqCst);
        return Ok(keyspace);
    }
    let mut log = shared.log.lock();
    // An edit for a keyspace that another thread has dropped would make the manifest unreadable.
    written(&shared.keyspaces.lock(), keyspace.id).map_err(|_| keyspace.dropped())?;
    let current = keyspace.options.load_full();
    let wanted = named.over(current.named());
    if keyspace.is_open.load(Ordering::SeqCst) {
        let (name, current) = (&keyspace.name, current.named());
        let filter = match wanted.has_compaction_filter_of(current) {
            true => "",
            false => " and another compaction filter, or none",
        };
        let what = format!("the keyspace {name:?} is open in this process with {current}{filter}");
        return Err(Error::InvalidOptions { what });
    }
    let options = shared.options.for_keyspace(&wanted);
    options.validate()?;
    if wanted == *current.named() {
        // Only the compaction filter is another one, and that is not saved.
        keyspace.set_options(options);
        keyspace.is_open.store(true, Ordering::SeqCst);
        return Ok(keyspace);
    }
    if log.current.is_some() {
        sync_logs(shared, &mut log).map_err(|error| shared.set_background_error(error))?;
    }
    let mut settings = Vec::new();
    wanted.encode(&mut settings);
    shared
        .versions
        .lock()
        .save_settings(keyspace.id, settings, options.filter_pinning(), log.last_sequence)
        .map_err(|error| shared.set_background_error(error))?;
    keyspace.set_options(options);
    keyspace.is_open.store(true, Ordering::SeqCst);
    Ok(keyspace)
}

/// Drops the keyspace `name`.
///
/// # Errors
/// As `Db::drop_keyspace`.
pub(crate) fn drop_keyspace(shared: &Shared, name: &str) -> Result<()> {
    shared.process.check()?;
    shared.check_writable()?;
    let there = || {
        let found = shared.keyspaces.lock().named(name).cloned();
        found.ok_or_else(|| Error::KeyspaceNotFound { name: name.into() })
    };
    if there()?.id == DEFAULT_KEYSPACE {
        let what = format!("the keyspace {name:?} cannot be dropped");
        return Err(Error::InvalidArgument { what });
    }
    let log = lead(shared)?;
    // Looked up again: another thread may have dropped the keyspace, and created another one of
    // this name.
    let keyspace = there()?;
    shared
        .versions
        .lock()
        .drop_keyspace(keyspace.id, log.last_sequence)
        .map_err(|error| shared.set_background_error(error))?;
    let view = keyspace.view.load_full();
    if view.active_log != 0 {
        shared.active_bytes.fetch_sub(view.active.bytes(), Ordering::Relaxed);
    }
    // Counted before the look for snapshots below: see `Snapshot::new`.
    let drops = shared.drops.fetch_add(1, Ordering::SeqCst) + 1;
    keyspace.dropped_as.store(drops, Ordering::SeqCst);
    keyspace.mark_dropped();
    shared.keyspaces.lock().remove(keyspace.id, log.last_sequence);
    drop((view, log));
    shared.clear_dropped();
    // The logs of its memtables may not be needed any more, and a writer may wait for its flush.
    shared.want_flush();
    let _jobs = shared.jobs.lock();
    shared.done.notify_all();
    Ok(())
}

/// Takes the place of the leader of the write queue, with every earlier write durable.
///
/// # Errors
/// `Closed`, `ReadOnly`, `OpenedReadOnly`, or the failure of a log.
fn lead(shared: &Shared) -> Result<MutexGuard<'_, LogState>> {
    shared.check_writable()?;
    let mut log = shared.log.lock();
    shared.check_writable()?;
    session_log(shared, &mut log)
        .map(drop)
        .and_then(|()| sync_logs(shared, &mut log))
        .and_then(|()| shared.check_lock())
        .map_err(|error| shared.set_background_error(error))?;
    Ok(log)
}
