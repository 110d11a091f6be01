//! Removes tables that range deletes hide whole, without reading them.
//!
//! [`remove_deleted_tables`] is the whole job, run by the flush worker. It is scheduled when a
//! range delete becomes visible, after each flush and compaction of a keyspace with range deletes,
//! and when a snapshot goes that was in the way. A table goes if newer range deletes, of memtables
//! or of tables, cover all its keys, and each snapshot that sees an entry of it sees such a delete.
//!
//! A range delete in a memtable is only as durable as the logs. So the logs are synced before the
//! edit that removes a table: otherwise a power loss could take the data and lose the delete (I21).
//!
//! The tables that a running compaction reads stay: it would write their entries again. All other
//! jobs may run at the same time. A job drops a range delete only if no older table of its list
//! overlaps it, and the tables that are removed here are in the lists of all jobs that run.

use crate::base::error::Result;
use crate::base::key::SequenceNumber;
use crate::base::sync::Arc;
use crate::jobs::rewrite::stripes::is_deleted;
use crate::memtable::range_deletes::MemtableRangeDeletes;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::state::session;
use crate::tree::edit::{DeletedFile, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::new_tables::NewTables;
use std::collections::HashSet;

/// Removes the tables of `keyspace` that range deletes hide whole.
///
/// # Errors
/// The failure of a sync or of the manifest; `KeyspaceDropped`. Nothing was removed then.
pub(crate) fn remove_deleted_tables(engine: &Engine, keyspace: &KeyspaceState) -> Result<()> {
    // A session changes no file before its first write, which asks again.
    if !engine.context.options.auto_compaction || !engine.catalog.versions.lock().is_active() {
        return Ok(());
    }
    // Before the view: a snapshot that registers later sees every delete that counts here.
    let snapshots = engine.catalog.snapshots.needed(&engine.catalog.published);
    let view = keyspace.view.load_full();
    let hidden = deleted_tables(&view, &snapshots);
    if keep_deleted(&view, &snapshots, &hidden)
        && !engine.catalog.snapshots.await_release(&snapshots)
    {
        engine.jobs.schedule_table_removal(keyspace);
    }
    // A compaction asks again when it ends.
    let claims = engine.jobs.claims_of(keyspace.id);
    if hidden.iter().all(|number| claims.iter().any(|claim| claim.tables.contains(number))) {
        return Ok(());
    }
    let synced_through = sync_range_deletes(engine, &view)?;
    engine.check_lock()?;
    let removal = |_: &NewTables| {
        // A compaction may have begun or ended since. What it moved is still hidden.
        let claims = engine.jobs.claims_before_change(keyspace.id)?;
        let is_claimed = |number: &u64| claims.iter().any(|claim| claim.tables.contains(number));
        let current = Arc::clone(&keyspace.view.load().version);
        let numbers = current.tables_by_level().map(|(level, table)| (level, table.meta.number));
        let deleted: Vec<_> = numbers
            .filter(|(_, number)| hidden.contains(number) && !is_claimed(number))
            .map(|(level, number)| DeletedFile { keyspace: keyspace.id, level, number })
            .collect();
        let edit = VersionEdit { deleted, synced_through, ..VersionEdit::default() };
        Some(edit).filter(|edit| !edit.deleted.is_empty())
    };
    if engine.catalog.apply(&mut NewTables::default(), removal)? {
        // Range deletes may have nothing below them now.
        engine.jobs.schedule_compactions([keyspace.id]);
    }
    Ok(())
}

/// True if snapshots are in the way of a table that would be hidden without them, or of a range
/// delete that a compaction would drop.
fn keep_deleted(view: &ReadView, snapshots: &[SequenceNumber], hidden: &HashSet<u64>) -> bool {
    let (published, oldest) = match snapshots {
        [oldest, .., published] => (*published, *oldest),
        _ => return false,
    };
    let is_kept = |meta: &FileMeta| meta.range_deletes > 0 && meta.largest_sequence > oldest;
    view.version.tables().any(|table| is_kept(&table.meta))
        || deleted_tables(view, &[published]).len() > hidden.len()
}

/// The numbers of the tables that range deletes of the same view hide.
pub(crate) fn deleted_tables(view: &ReadView, snapshots: &[SequenceNumber]) -> HashSet<u64> {
    let memtables: Vec<_> = view.memtables().map(|memtable| &memtable.range_deletes).collect();
    let sources = &view.version.range_deletes;
    let coverages = |key: &[u8], at, above| {
        let of_memtable = |deletes: &&MemtableRangeDeletes| {
            let mut coverage = deletes.coverage(key, at);
            // Adjacent deletes are one step.
            if coverage.sequence > above {
                deletes.extend_end(&mut coverage, at, above);
            }
            coverage
        };
        let of_memtables = memtables.iter().map(of_memtable);
        of_memtables.chain(sources.iter().filter_map(|source| source.coverage(key, at))).collect()
    };
    let is_hidden = |meta: &FileMeta| is_deleted(meta, snapshots, coverages);
    let hidden = view.version.tables().filter(|table| is_hidden(&table.meta));
    hidden.map(|table| table.meta.number).collect()
}

/// I21: makes the range deletes of the memtables of `view` durable, if there are any.
fn sync_range_deletes(engine: &Engine, view: &ReadView) -> Result<Option<SequenceNumber>> {
    if view.memtables().all(|memtable| memtable.range_deletes.count() == 0) {
        // All deletes are in tables, which the manifest names.
        return Ok(None);
    }
    let mut log = engine.writer.log.lock();
    if log.synced_through < log.last_sequence {
        session::sync_logs(engine, &mut log)?;
    }
    Ok(Some(log.synced_through))
}
