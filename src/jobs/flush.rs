//! A flush: the immutable memtables become tables of level 0, and their logs go.
//!
//! [`flush_pending`] is the whole job, run by the flush worker: write the tables, log the edit,
//! store the view without the memtables, remove the logs. [`flush_written`] is that of a
//! checkpoint, on the thread of its caller. Tables are durable before the edit names them (I5),
//! and a log goes only after that edit is durable. After a failed change of the manifest nothing
//! is removed, because the record may have reached the disk (I8).
//!
//! One flush serves all keyspaces, in one edit. A table is durable, but a log may not be: before a
//! newer write of one keyspace gets into a table, the logs with older writes of others are synced.
//!
//! The memtables take no more writes, and none older than them stays behind. So everything
//! older than their entries is in tables, and a tombstone or range delete may be dropped if no
//! table can hold its keys. Entries that no snapshot sees, because a newer one replaces or a range
//! delete covers them, are dropped too: writing one key over and over costs one entry a flush. If
//! nothing stays, there is no table. If the index or the range deletes of one table would get too
//! large there are several, disjoint by user key.

use crate::base::error::Result;
use crate::base::filename::FileName;
use crate::base::iterator::api::Direction;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::stats::counters::Counter;
use crate::base::sync::{Arc, Ordering};
use crate::jobs::compact::filter_budget;
use crate::jobs::job_events::{FlushEvents, TableSums};
use crate::jobs::obsolete::remove;
use crate::jobs::rewrite::output::{JobContext, JobOutcome, KeyPart, Rewrite};
use crate::jobs::rewrite::stripes::{KeysBelow, SnapshotStripes};
use crate::memtable::memtable::Memtable;
use crate::options::levels::TablePlace;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::{ImmutableMemtable, ReadView};
use crate::state::session;
use crate::state::snapshots::ReadPoint;
use crate::state::writer::Writer;
use crate::tree::edit::{FirstLog, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::new_tables::{DurableTables, NewTables, remove_tables};
use crate::tree::version::LevelFiles;
use std::collections::BTreeSet;

/// Flushes all immutable memtables of all keyspaces into tables, in one edit. False if there was
/// nothing to do.
///
/// # Errors
/// The failure of a table or of the manifest: nothing was removed.
pub(crate) fn flush_pending(engine: &Engine) -> Result<bool> {
    flush_pending_through(engine, SequenceNumber::MAX)
}

/// As [`flush_pending`], of the memtables with entries up to `through`.
///
/// # Errors
/// As for [`flush_pending`].
pub(crate) fn flush_pending_through(engine: &Engine, through: SequenceNumber) -> Result<bool> {
    let _one_at_a_time = engine.jobs.flushes.lock();
    // This may have waited for a bulk load that was refused in its last step. Its tables are in the
    // version then, and a new view would show them.
    if engine.jobs.background_error.is_set() { Ok(false) } else { flush_through(engine, through) }
}

/// Flushes everything written so far, in all keyspaces, and calls `then` with the last sequence of
/// it and the number of drops until then. Before `then` returns no other flush runs, and nothing is
/// removed that a read at that sequence needs: so the tables hold that read point and nothing
/// later.
///
/// # Errors
/// As for [`flush_pending`]; `Closed`, `ReadOnly`; the failure of a new log.
pub(crate) fn flush_written<T>(
    engine: &Engine,
    then: impl FnOnce(SequenceNumber, u64) -> T,
) -> Result<T> {
    // First: a flush of the worker in between would write later entries of some keyspaces.
    let _one_at_a_time = engine.jobs.flushes.lock();
    flush_switched(engine, &switch_all(engine)?, then)
}

/// Flushes everything written so far in `keyspace`, and what else waits. The caller holds the lock
/// of flushes.
///
/// # Errors
/// As for [`flush_pending`]; `Closed`, `ReadOnly`; the failure of a new log.
pub(crate) fn flush_keyspace(engine: &Engine, keyspace: &Arc<KeyspaceState>) -> Result<()> {
    {
        // The holder of this lock acts as a leader of the write queue.
        let mut log = engine.writer.log.lock();
        engine.check_writable()?;
        let view = keyspace.view.load_full();
        if view.active_log != 0 && !view.dropped {
            session::switch_memtables(engine, &mut log, &[Arc::clone(keyspace)])?;
        }
    }
    flush_through(engine, SequenceNumber::MAX).map(drop)
}

/// The second half of [`flush_written`]: flushes what [`switch_all`] made immutable, and nothing
/// that became so since.
///
/// # Errors
/// As for [`flush_pending`].
pub(crate) fn flush_switched<T>(
    engine: &Engine,
    switched: &Switched<'_>,
    then: impl FnOnce(SequenceNumber, u64) -> T,
) -> Result<T> {
    flush_through(engine, switched.read_point.sequence)?;
    Ok(then(switched.read_point.sequence, switched.drops))
}

/// The read point of a switch of all memtables. Until this is dropped, jobs keep what reads of that
/// read point need.
pub(crate) struct Switched<'a> {
    engine: &'a Engine,
    read_point: ReadPoint,
    /// Drops of keyspaces until then.
    drops: u64,
}

impl Drop for Switched<'_> {
    fn drop(&mut self) {
        self.engine.release_snapshot(self.read_point);
    }
}

/// Makes all active memtables immutable, and registers the read point after their last entry.
///
/// # Errors
/// `Closed`, `ReadOnly`; the failure of a new log.
pub(crate) fn switch_all(engine: &Engine) -> Result<Switched<'_>> {
    // The holder of this lock acts as a leader of the write queue.
    let mut log = engine.writer.log.lock();
    engine.check_writable()?;
    let mut active = engine.catalog.all_keyspaces();
    active.retain(|keyspace| keyspace.view.load().active_log != 0);
    if !active.is_empty() {
        session::switch_memtables(engine, &mut log, &active)?;
    }
    let read_point = engine.catalog.snapshots.register(&engine.catalog.published);
    debug_assert_eq!(read_point.sequence, log.last_sequence);
    Ok(Switched { engine, read_point, drops: engine.catalog.drops.load(Ordering::SeqCst) })
}

/// Flushes the immutable memtables with entries up to `through`.
fn flush_through(engine: &Engine, through: SequenceNumber) -> Result<bool> {
    let (mut flushed, mut inputs) = (Vec::new(), Vec::new());
    for keyspace in engine.catalog.all_keyspaces() {
        let mut waiting = keyspace.view.load().immutables.clone();
        waiting.retain(|full| full.last_sequence <= through);
        if !waiting.is_empty() {
            let memtables = waiting.iter().rev().map(|full| Arc::clone(&full.memtable)).collect();
            let levels = keyspace.view.load().version.files.clone();
            inputs.push(FlushInput { keyspace: Arc::clone(&keyspace), memtables, levels });
            flushed.push(Flushed { keyspace, waiting });
        }
    }
    match flushed.is_empty() {
        true if !frees_logs(engine) => return Ok(false),
        true => install(engine, &flushed, &mut NewTables::default(), None)?,
        false => {
            make_log_ahead(engine)?;
            let memtables = inputs.iter().flat_map(|input| &input.memtables);
            let events = FlushEvents::begin(engine, memtables.map(|memtable| &**memtable));
            write_memtables(engine, inputs, None)
                .and_then(|tables| {
                    let keyspaces: Vec<_> = flushed.iter().map(|f| &*f.keyspace).collect();
                    let directory = &engine.context.directory;
                    engine.catalog.open_new(directory, tables, 0, &keyspaces)
                })
                .and_then(|mut new| {
                    let files = new.file_names();
                    // Writers that wait for this flush switch as soon as it is installed.
                    let installed = make_log_ahead(engine)
                        .and_then(|()| install(engine, &flushed, &mut new, Some(&events)));
                    installed.inspect_err(|error| {
                        // A `resume` writes others and lets these go.
                        if error.is_out_of_space() {
                            engine.catalog.obsolete.add(files);
                        }
                    })
                })
                .inspect_err(|error| events.failed(error))?;
        }
    }
    engine.jobs.schedule_compactions(flushed.iter().map(|flushed| flushed.keyspace.id));
    engine.save_stats();
    Ok(true)
}

/// Makes the next log if full memtables wait: writers may fill the next one during the flush.
fn make_log_ahead(engine: &Engine) -> Result<()> {
    match engine.catalog.immutable_bytes() > engine.context.options.write_buffer_bytes / 2 {
        true => session::make_log_ahead(engine),
        false => Ok(()),
    }
}

/// The memtables of one keyspace that a flush writes, newest first.
struct Flushed {
    keyspace: Arc<KeyspaceState>,
    waiting: Vec<ImmutableMemtable>,
}

impl Flushed {
    fn has(&self, full: &ImmutableMemtable) -> bool {
        self.waiting.iter().any(|other| Arc::ptr_eq(&full.memtable, &other.memtable))
    }

    fn last_sequence(&self) -> SequenceNumber {
        self.waiting.first().map_or(0, |newest| newest.last_sequence)
    }
}

/// What a flush writes of the keyspace `id`. `flushed` ascends by number, as the list of keyspaces
/// does.
fn flushed_of(flushed: &[Flushed], id: KeyspaceId) -> Option<&Flushed> {
    let index = flushed.binary_search_by_key(&id, |flushed| flushed.keyspace.id);
    index.ok().map(|index| &flushed[index])
}

/// The memtables of one keyspace that become tables.
pub(crate) struct FlushInput {
    pub keyspace: Arc<KeyspaceState>,
    /// Its memtables, oldest first.
    pub memtables: Vec<Arc<Memtable>>,
    /// The tree below them.
    pub levels: LevelFiles,
}

/// Writes memtables into tables that no manifest names yet, and makes the names of all of them
/// durable. `snapshots` are the sequences that reads need; `None` asks for the live ones.
///
/// # Errors
/// The failure of a table: none is left.
pub(crate) fn write_memtables(
    engine: &Engine,
    inputs: Vec<FlushInput>,
    snapshots: Option<Vec<SequenceNumber>>,
) -> Result<DurableTables> {
    // Before the input is read: a snapshot that registers later is at the published sequence or
    // above it, so it needs no more than these (`SnapshotList::needed`).
    let snapshots =
        snapshots.unwrap_or_else(|| engine.catalog.snapshots.needed(&engine.catalog.published));
    let mut tables = Vec::new();
    let written = inputs.iter().try_for_each(|input| {
        tables.extend(write_input(engine, input, &snapshots)?);
        Ok(())
    });
    let Context { env, directory, .. } = &*engine.context;
    match written {
        // Once for all keyspaces.
        Ok(()) => DurableTables::sync(&**env, directory, tables),
        Err(error) => {
            remove_tables(&**env, directory, &tables);
            Err(error)
        }
    }
}

fn write_input(
    engine: &Engine,
    input: &FlushInput,
    snapshots: &[SequenceNumber],
) -> Result<Vec<FileMeta>> {
    let FlushInput { keyspace, memtables, levels } = input;
    let entries = memtables.iter().map(|memtable| memtable.entries() as u64).sum();
    let filter = {
        let version = Arc::clone(&keyspace.view.load().version);
        filter_budget::flush_filter(keyspace, &version, levels, entries)
    };
    let context = JobContext::new(engine, keyspace, TablePlace::LEVEL_0, filter);
    let outcome = write_tables(&context, memtables, snapshots, levels)?;
    let stripe = engine.context.counters.stripe();
    stripe.add(Counter::Flushes, memtables.len() as u64);
    stripe.add(Counter::FlushBytes, outcome.counts.bytes_written);
    let counts = outcome.counts;
    let of_keyspace = keyspace.counters.stripe();
    of_keyspace.add_written(0, counts.bytes_written, counts.filter_bytes_written);
    Ok(outcome.tables)
}

/// The flush itself, without the database around it: merges `memtables`, oldest first, into
/// tables. `snapshots` ascend and end with the published sequence. `levels` is the tree as it is,
/// or as it was at any time since the flush before.
///
/// # Errors
/// The table cannot be written, the entries read are not as many as the memtables hold, or the
/// job was stopped. No output file remains.
pub(crate) fn write_tables(
    context: &JobContext<'_>,
    memtables: &[Arc<Memtable>],
    snapshots: &[SequenceNumber],
    levels: &LevelFiles,
) -> Result<JobOutcome> {
    let newest_first = memtables.iter().rev();
    let range_deletes: Vec<_> =
        memtables.iter().flat_map(|memtable| memtable.range_deletes.all()).collect();
    let below = KeysBelow::new(levels[1..].iter().cloned(), &levels[0]);
    let rewrite = Rewrite {
        sources: newest_first.flat_map(|memtable| memtable.iterators(Direction::Forward)).collect(),
        keys: KeyPart::default(),
        entries: Some(memtables.iter().map(|memtable| memtable.entries() as u64).sum()),
        range_deletes: memtables
            .iter()
            .map(|memtable| memtable.range_deletes.count())
            .sum::<usize>() as u64,
        stripes: SnapshotStripes::new(snapshots, below, &range_deletes),
        sequences: None,
        context,
    };
    rewrite.run(|_, _| false)
}

/// True if older logs wait although no memtable needs them: those of dropped keyspaces.
fn frees_logs(engine: &Engine) -> bool {
    let oldest = engine.writer.live_logs.lock().oldest();
    let needed = first_log(&engine.catalog, &engine.writer, &[]);
    oldest.zip(needed).is_some_and(|(oldest, needed)| oldest.number < needed.number)
}

/// The first log that is needed once `flushed` is in tables.
fn first_log(catalog: &Catalog, writer: &Writer, flushed: &[Flushed]) -> Option<FirstLog> {
    // Before the views: a memtable that begins after this begins in this log or a later one.
    let current = writer.live_logs.lock().current();
    let mut needed = current;
    for keyspace in catalog.all_keyspaces() {
        let view = keyspace.view.load();
        let written = flushed_of(flushed, keyspace.id);
        let waiting = view.immutables.iter();
        let stays = waiting.filter(|full| written.is_none_or(|written| !written.has(full)));
        let logs = stays.map(|full| full.first_log).chain([view.active_log]);
        needed = logs.filter(|log| *log != 0).fold(needed, u64::min);
    }
    writer.live_logs.lock().first_needed(needed)
}

/// Syncs the logs if a memtable that stays may hold entries older than the newest of `flushed`.
/// Otherwise a crash could keep a newer write, in a table, and lose an older one (I13).
fn sync_older_writes(engine: &Engine, flushed: &[Flushed]) -> Result<Option<SequenceNumber>> {
    let last_log = flushed.iter().flat_map(|f| &f.waiting).map(|full| full.last_log).max();
    let Some(last_log) = last_log else { return Ok(None) };
    let is_older = |keyspace: &Arc<KeyspaceState>| {
        let view = keyspace.view.load();
        let is_flushed = |first: u64| {
            let written = flushed_of(flushed, keyspace.id);
            written.is_some_and(|w| w.waiting.iter().any(|full| full.first_log == first))
        };
        view.first_logs().any(|first| first != 0 && first <= last_log && !is_flushed(first))
    };
    if !engine.catalog.all_keyspaces().iter().any(is_older) {
        return Ok(None);
    }
    let last_sequence = flushed.iter().map(Flushed::last_sequence).max().unwrap_or(0);
    if engine.writer.log.lock().synced_through < last_sequence {
        session::sync_beside_writers(engine)?;
    }
    let synced_through = engine.writer.log.lock().synced_through;
    debug_assert!(synced_through >= last_sequence, "the flushed writes were in the logs before");
    Ok(Some(synced_through))
}

/// Logs the edit that replaces `flushed` with `tables`, tells `events` that reads see them, then
/// removes the logs.
///
/// # Errors
/// The failure of the manifest: nothing was removed.
fn install(
    engine: &Engine,
    flushed: &[Flushed],
    new: &mut NewTables,
    events: Option<&FlushEvents<'_>>,
) -> Result<()> {
    let synced_through = sync_older_writes(engine, flushed)?;
    let needed = {
        engine.check_lock()?;
        let mut versions = engine.catalog.versions.lock();
        // A keyspace that was dropped in the meantime has no place for its tables.
        let there: BTreeSet<KeyspaceId> = versions.keyspaces().map(|meta| meta.id).collect();
        let (tables, gone): (Vec<_>, Vec<_>) =
            new.added().into_iter().partition(|(_, meta)| there.contains(&meta.keyspace));
        engine.catalog.obsolete.add(gone.iter().map(|(_, meta)| FileName::Table(meta.number)));
        let sums = TableSums::of(tables.iter().map(|(_, meta)| meta));
        let needed = first_log(&engine.catalog, &engine.writer, flushed);
        let stay = flushed.iter().filter(|f| there.contains(&f.keyspace.id));
        let edit = VersionEdit {
            flushed_through: stay.map(|f| (f.keyspace.id, f.last_sequence())).collect(),
            added: tables,
            // The oldest log that is still needed. It is durable by name, because a log is created
            // before a memtable begins in it.
            first_log: needed,
            synced_through,
            ..VersionEdit::default()
        };
        debug_assert!(edit.added.iter().all(|(_, new)| is_newest(&engine.catalog, new)), "I4");
        let mut changed = versions.apply(edit, new, engine.catalog.published.visible())?;
        // One store takes the memtables of a keyspace out and puts their tables in: no reader sees
        // neither, and none sees both.
        for flushed in flushed.iter().filter(|f| there.contains(&f.keyspace.id)) {
            let version = changed.remove(&flushed.keyspace.id);
            flushed.keyspace.update_view(|view| ReadView {
                immutables: view.immutables.iter().filter(|f| !flushed.has(f)).cloned().collect(),
                version: version.unwrap_or_else(|| Arc::clone(&view.version)),
                ..view.clone()
            });
            // A worker frees them once no reader holds one (`obsolete.rs`).
            let memtables = flushed.waiting.iter().map(|full| Arc::clone(&full.memtable));
            engine.catalog.retired.lock().extend(memtables);
        }
        if let Some(events) = events {
            events.done(sums);
        }
        needed
    };
    if let Some(needed) = needed {
        // Only now: the edit above is durable, so recovery does not need these logs.
        engine.writer.log.lock().unsynced.retain(|wal| wal.number >= needed.number);
        let removed = {
            let mut logs = engine.writer.live_logs.lock();
            let removed = logs.take_before(needed.number);
            engine.writer.old_log_bytes.store(logs.bytes(), Ordering::Relaxed);
            removed
        };
        for number in removed {
            // After a failure it stays until a `resume` or the next session.
            remove(engine, FileName::Wal(number));
        }
    }
    for Flushed { keyspace, .. } in flushed {
        engine.jobs.schedule_tombstone_flush(keyspace);
        // Range deletes of newer memtables may cover the new tables whole.
        engine.jobs.schedule_table_removal(keyspace);
    }
    Ok(())
}

/// I4: a flush is newer than every table of level 0, because memtables are flushed in order.
fn is_newest(catalog: &Catalog, new: &FileMeta) -> bool {
    let keyspace = catalog.keyspaces.lock().get(new.keyspace).cloned();
    let view = keyspace.map(|keyspace| keyspace.view.load_full());
    let level0 = view.iter().flat_map(|view| view.version.level(0));
    level0.map(|old| old.meta.largest_sequence).all(|old| old < new.smallest_sequence)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::error::Error;

    use crate::env::api::Env;
    use crate::env::mem::MemEnv;
    use crate::env::testing::fault::{EIO, Fault, FaultEnv, FaultKind};
    use crate::jobs::testing::{Tree, path_of};
    use crate::tree::file_meta::FileMeta;

    use std::path::Path;

    #[test]
    fn several_memtables_flush_into_one_table() {
        let mut tree = Tree::new();
        tree.write("a", Some(b"1".to_vec()));
        tree.write("b", Some(b"2".to_vec()));
        tree.snapshots.insert(tree.sequence);
        tree.seal();
        tree.write("a", Some(b"3".to_vec()));
        tree.write("a", Some(b"4".to_vec()));
        tree.write("b", None);
        let counts = tree.flush();
        tree.check();
        assert_eq!((counts.entries_in, counts.entries_dropped), (5, 1));
        let meta = &tree.version.level(0)[0].meta;
        // The tombstone, and the two values that only the snapshot needs.
        assert_eq!((meta.entries, meta.garbage), (4, 3));
        assert_eq!((meta.smallest_sequence, meta.largest_sequence), (1, 5));
        assert_eq!(counts.bytes_written, meta.bytes);
    }

    #[test]
    fn large_indexes_are_spread_over_tables() {
        let mut tree = Tree::new();
        tree.index_bytes_max = 1000;
        // Separators of long keys that differ at their end only: an index like the data.
        for i in 0..60 {
            let key = [&[b'k'; 200][..], &[i]].concat();
            for value in 0..3 {
                tree.write(key.clone(), Some(vec![value; 100]));
                tree.snapshots.insert(tree.sequence);
            }
        }
        tree.flush();
        tree.check();
        let tables = tree.version.level(0);
        assert!(tables.len() > 10, "{} tables", tables.len());
        for handle in tables {
            let index_bytes = handle.table.properties.index_bytes;
            // Each separator is larger than a partition, so the top level has all of them again.
            assert!(index_bytes < 2 * (1000 + 3 * 300), "{index_bytes} bytes of index");
        }
        let mut keys: Vec<_> = tables.iter().map(|handle| &handle.meta).collect();
        keys.sort_by(|a, b| a.start.cmp(&b.start));
        let disjoint = |pair: &[&Arc<FileMeta>]| pair[0].ends_before(&pair[1].start);
        assert!(keys.windows(2).all(disjoint));
    }

    #[test]
    fn a_finished_flush_survives_a_power_cut() {
        let mut tree = Tree::new();
        let disk = tree.disk.clone();
        disk.sync_dir(Path::new("/")).unwrap();
        tree.write("a", Some(vec![7; 3000]));
        tree.seal();
        let table = tree.run_flush().unwrap().tables.remove(0);
        let after = disk.power_cut().read_file(&path_of(table.number));
        assert_eq!(after, disk.read_file(&path_of(table.number)));
        assert_eq!(after.unwrap().len() as u64, table.bytes);
    }

    #[test]
    fn a_failed_flush_leaves_no_file() {
        let mut call = 0;
        loop {
            let disk = MemEnv::new();
            let faults = FaultEnv::new(Arc::new(disk.clone()));
            let mut tree = Tree::on(disk, Arc::new(faults.clone()));
            tree.write("a", Some(vec![7; 3000]));
            tree.write("b", Some(vec![8; 3000]));
            tree.seal();
            faults.fail_at(faults.calls() + call, Fault::once(FaultKind::Error(EIO)));
            let outcome = tree.run_flush();
            if !faults.has_fired() {
                assert!(outcome.is_ok() && call >= 4, "{call} calls");
                break;
            }
            assert!(matches!(outcome, Err(Error::Io { .. })), "call {call}: {outcome:?}");
            assert_eq!(tree.files().0.len(), 0, "call {call}");
            // The same memtables are flushed once the cause is gone, under another number.
            faults.heal();
            assert_eq!(tree.run_flush().unwrap().tables.len(), 1);
            call += 1;
        }
    }

    #[test]
    fn unneeded_tombstones_make_no_table() {
        let mut tree = Tree::new();
        tree.write("a", Some(b"1".to_vec()));
        tree.write("a", None);
        tree.write("b", None);
        assert_eq!(tree.flush().entries_dropped, 3);
        assert_eq!(tree.files().0.len(), 0);
        // One that may hide something stays.
        tree.write("c", Some(b"1".to_vec()));
        tree.flush();
        tree.write("c", None);
        tree.write("d", None);
        let counts = tree.flush();
        assert_eq!(counts.entries_in - counts.entries_dropped, 1);
        tree.check();
    }

    #[test]
    fn range_deletes_hide_older_memtables() {
        let mut tree = Tree::new();
        let key = |n: u8| vec![b'k', n];
        (0..9).for_each(|n| tree.write(key(n), Some(vec![n])));
        tree.flush();
        (0..9).for_each(|n| tree.write(key(n), Some(vec![n])));
        tree.seal();
        tree.delete_range(key(2), Some(key(8)));
        tree.write(key(5), Some(vec![50]));
        let counts = tree.flush();
        tree.check();
        assert_eq!((counts.entries_in, counts.entries_dropped), (10, 6));
        let meta = &tree.version.level(0)[0].meta;
        assert_eq!((meta.range_deletes, meta.entries), (1, 4));
        assert_eq!((meta.smallest_sequence, meta.largest_sequence), (10, 20));
        // A table of range deletes alone; its range is theirs.
        tree.delete_range(key(3), None);
        tree.flush();
        tree.check();
        let meta = &tree.version.level(0)[0].meta;
        assert_eq!((meta.range_deletes, meta.entries), (1, 0));
        assert_eq!((&meta.start, &meta.end), (&key(3), &std::ops::Bound::Unbounded));
    }

    #[test]
    fn unneeded_range_deletes_make_no_table() {
        let mut tree = Tree::new();
        tree.write("a", Some(b"1".to_vec()));
        tree.delete_range(b"a".to_vec(), None);
        assert_eq!(tree.flush().entries_dropped, 1);
        assert_eq!(tree.files().0.len(), 0);
        // One that may hide something stays.
        tree.write("c", Some(b"1".to_vec()));
        tree.flush();
        tree.delete_range(b"a".to_vec(), Some(b"c".to_vec()));
        tree.flush();
        assert_eq!(tree.files().0.len(), 1);
        tree.delete_range(b"a".to_vec(), Some(b"d".to_vec()));
        tree.flush();
        assert_eq!(tree.files().0.len(), 2);
        tree.check();
    }
}
