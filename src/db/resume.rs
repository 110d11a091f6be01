//! `Db::resume`: going on after the disk was full, with the same handle.
//!
//! What failed may have left half a record in the log, a whole one that nobody was told of, or an
//! edit in the manifest that this process does not know to be there. So neither file is written to
//! again, and neither is needed: everything acknowledged goes from the memtables into tables, and a
//! new log and a new manifest take over, as at the opening of a database.
//!
//! 1. A probe: a file as large as the write buffer is written, synced and removed.
//! 2. All memtables, the active one too, into tables of level 0.
//! 3. A new log that names the manifest to come. Until that is in force, recovery passes over it.
//! 4. The manifest, with those tables and that log, by the same steps as any other (I6).
//! 5. Only then writes are taken, and the old logs go. A refused write cannot come back any more.
//!
//! A crash before step 4 finds the old manifest and the old logs, one after it the new ones. If a
//! step fails, the database stays read-only and `resume` may be called again.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::sync::Arc;
use crate::jobs::flush::write_memtables;
use crate::jobs::workers::CompactionToken;
use crate::state::session;
use crate::state::shared::{LogState, ReadView, Shared};
use crate::tree::edit::FirstLog;

/// Goes on after a lack of space.
///
/// # Errors
/// `ReadOnly` if something else failed too; `Io` if there is still no room; as `Db::resume`.
pub fn resume(shared: &Shared) -> Result<()> {
    shared.process.check()?;
    shared.check_open()?;
    if shared.read_only {
        return Err(Error::OpenedReadOnly);
    }
    if !shared.background_error.is_set() {
        return Ok(());
    }
    // No compaction, no flush and no write from here on.
    let _token = CompactionToken::wait(shared)?;
    let _flushes = shared.flushes.lock();
    let mut log = shared.log.lock();
    if !shared.background_error.is_set() {
        return Ok(());
    }
    if let Some(lasting) = shared.background_error.lasting() {
        return Err(Error::ReadOnly { cause: Arc::new(lasting) });
    }
    probe(shared)?;
    // A sync that fails now is one that only reopening can get over.
    restart(shared, &mut log).map_err(|error| shared.set_background_error(error))
}

/// Makes sure that there is room: for a full log, to begin with.
fn probe(shared: &Shared) -> Result<()> {
    let name = FileName::Temporary(shared.numbers.take_file_number());
    let path = name.path(&shared.directory);
    let bytes = shared.options.write_buffer_bytes as u64;
    let mut file = shared.env.create_new(&path).map_err(|e| Error::io("create_new", &path, e))?;
    let written = file.allocate_zeroed(0, bytes).map_err(|e| Error::io("write_at", &path, e));
    let synced = written.and_then(|()| file.sync_all().map_err(|e| Error::io("sync", &path, e)));
    drop(file);
    // If that fails, the next session removes it: it is a temporary file.
    let _ = shared.env.remove(&path);
    synced
}

fn restart(shared: &Shared, log: &mut LogState) -> Result<()> {
    let view = shared.view.load_full();
    let full = view.immutables.iter().rev().map(|full| &full.memtable);
    let active = Some(&view.active).filter(|active| !active.is_empty());
    let memtables: Vec<_> = full.chain(active).map(Arc::clone).collect();
    let last_sequence = log.last_sequence;
    // What the log took and nobody was told of, only a failed sync leaves.
    debug_assert_eq!(last_sequence, shared.published.visible());
    let mut tables = Vec::new();
    if !memtables.is_empty() {
        tables = write_memtables(shared, memtables.clone(), view.version.files(), None)?;
    }
    let (number, manifest) = (shared.numbers.take_file_number(), shared.numbers.take_file_number());
    let wal = session::begin_log(shared, log, number, manifest)?;
    let leftovers = {
        let first_log = FirstLog { number, flushed_through: last_sequence };
        let mut versions = shared.versions.lock();
        let version = versions.restart(manifest, tables, first_log)?;
        shared.update_view(|view| ReadView {
            active: match view.active.is_empty() {
                true => Arc::clone(&view.active),
                false => Shared::new_memtable(&shared.options),
            },
            active_log: number,
            immutables: Vec::new(),
            version,
            ..view.clone()
        });
        // What cannot be listed now, the next session removes.
        versions.leftovers().unwrap_or_default()
    };
    log.current = Some(wal);
    log.unsynced.clear();
    log.synced_through = last_sequence;
    shared.retired.lock().extend(memtables);
    // From now on files are removed again, and writes are taken when the log is let go.
    shared.background_error.clear();
    shared.obsolete.add(leftovers);
    shared.want(true, true);
    let _jobs = shared.jobs.lock();
    shared.done.notify_all();
    Ok(())
}
