//! A flush: the immutable memtables become tables of level 0, and their logs go.
//!
//! [`flush_pending`] is the whole job, run by the flush worker: write the tables, log the edit,
//! store the view without the memtables, remove the logs. Tables
//! are durable before the edit names them (I5), and a log goes only after that edit is durable.
//! After a failed change of the manifest nothing is removed, because the record may have reached
//! the disk (I8).
//!
//! The memtables take no more writes and are all that wait, the oldest included. So everything
//! older than their entries is in tables, and a tombstone may be dropped if no table can hold its
//! key. Versions that a newer one hides from every snapshot are dropped too: writing one key over
//! and over costs one entry a flush. If nothing stays, there is no table. If the index of one table
//! would get too large there are several, disjoint by user key.

use crate::base::error::Result;
use crate::base::filename::FileName;
use crate::base::iterator::api::Direction;
use crate::base::key::SequenceNumber;
use crate::base::stats::counters::Counter;
use crate::base::sync::Arc;
use crate::jobs::compact::filter_budget;
use crate::jobs::compact::output::{JobContext, JobOutcome, Rewrite};
use crate::jobs::compact::stripes::{KeysBelow, SnapshotStripes};
use crate::jobs::obsolete::remove;
use crate::memtable::memtable::Memtable;
use crate::state::read_view::{ImmutableMemtable, ReadView};
use crate::state::shared::Shared;
use crate::tree::edit::{FileMeta, FirstLog, VersionEdit};
use crate::tree::version::LevelFiles;

/// Flushes all immutable memtables into tables. False if there were none.
///
/// # Errors
/// The failure of a table or of the manifest: nothing was removed.
pub(crate) fn flush_pending(shared: &Shared) -> Result<bool> {
    let _one_at_a_time = shared.flushes.lock();
    let view = shared.view.load_full();
    let waiting = &view.immutables;
    if waiting.is_empty() {
        return Ok(false);
    }
    let memtables = waiting.iter().rev().map(|full| Arc::clone(&full.memtable)).collect();
    let tables = write_memtables(shared, memtables, view.version.files(), None)?;
    install(shared, waiting, tables)?;
    shared.want(false, true);
    shared.save_stats();
    Ok(true)
}

/// Writes memtables, oldest first, into tables that no manifest names yet. `levels` is the tree
/// below them. `snapshots` are the sequences that reads need; `None` asks for the live ones.
///
/// # Errors
/// The failure of a table: none is left.
pub(crate) fn write_memtables(
    shared: &Shared,
    memtables: Vec<Arc<Memtable>>,
    levels: LevelFiles,
    snapshots: Option<Vec<SequenceNumber>>,
) -> Result<Vec<FileMeta>> {
    // Before the input is read: a snapshot that registers later is at the published sequence or
    // above it, so it needs no more than these (`SnapshotList::needed`).
    let snapshots = snapshots.unwrap_or_else(|| shared.snapshots.needed(&shared.published));
    let entries = memtables.iter().map(|memtable| memtable.entries() as u64).sum();
    let version = Arc::clone(&shared.view.load().version);
    let filter = filter_budget::flush_filter(shared, &version, &levels, entries);
    let outcome =
        write_tables(&JobContext::new(shared, 0, filter), &memtables, &snapshots, &levels)?;
    let stripe = shared.counters.stripe();
    stripe.add(Counter::Flushes, memtables.len() as u64);
    stripe.add(Counter::FlushBytes, outcome.counts.bytes_written);
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
    let rewrite = Rewrite {
        sources: newest_first.flat_map(|memtable| memtable.iterators(Direction::Forward)).collect(),
        entries: memtables.iter().map(|memtable| memtable.entries() as u64).sum(),
        bytes: memtables.iter().map(|memtable| memtable.bytes() as u64).sum(),
        stripes: SnapshotStripes::new(snapshots, KeysBelow::new(&levels[1..], &levels[0])),
        sequences: None,
        context,
    };
    rewrite.run(|_, _| false)
}

/// Logs the edit that replaces `flushed` with `tables`, then removes the logs.
///
/// # Errors
/// The failure of the manifest: nothing was removed.
fn install(shared: &Shared, flushed: &[ImmutableMemtable], tables: Vec<FileMeta>) -> Result<()> {
    let is_flushed = |full: &ImmutableMemtable| {
        flushed.iter().any(|other| Arc::ptr_eq(&full.memtable, &other.memtable))
    };
    {
        shared.check_lock()?;
        let mut versions = shared.versions.lock();
        let view = shared.view.load();
        let oldest = view.immutables.iter().rev().find(|full| !is_flushed(full));
        let published = shared.published.visible();
        let edit = VersionEdit {
            added: tables.into_iter().map(|meta| (0, meta)).collect(),
            // The oldest log that is still needed. It is durable by name, because a log is created
            // before its memtable enters the view.
            first_log: Some(FirstLog {
                number: oldest.map_or(view.active_log, |full| full.log_number),
                flushed_through: flushed.first().map_or(published, |newest| newest.last_sequence),
            }),
            ..VersionEdit::default()
        };
        // I4: a flush is newer than every table of level 0, because memtables are flushed in order.
        let newest = view.version.level(0).iter().map(|old| old.meta.largest_sequence).max();
        let is_newer = |new: &FileMeta| newest.is_none_or(|old| old < new.smallest_sequence);
        debug_assert!(edit.added.iter().all(|(_, new)| is_newer(new)), "I4");
        let version = versions.apply(edit, published)?;
        // One store takes the memtables out and puts their tables in: no reader sees neither, and
        // none sees both.
        shared.update_view(|view| ReadView {
            immutables: view.immutables.iter().filter(|full| !is_flushed(full)).cloned().collect(),
            version,
            ..view.clone()
        });
    }
    // Only now: the edit above is durable, so recovery does not need these logs.
    let logs: Vec<u64> = flushed.iter().map(|full| full.log_number).collect();
    shared.log.lock().unsynced.retain(|wal| !logs.contains(&wal.number()));
    for number in logs {
        remove(shared, FileName::Wal(number));
    }
    // A worker frees them once no reader holds one (`obsolete.rs`).
    shared.retired.lock().extend(flushed.iter().map(|full| Arc::clone(&full.memtable)));
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::error::Error;

    use crate::env::api::Env;
    use crate::env::mem::MemEnv;
    use crate::env::testing::fault::{EIO, Fault, FaultEnv, FaultKind};
    use crate::jobs::testing::{Tree, path_of};
    use crate::tree::edit::FileMeta;

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
        assert_eq!((counts.entries_in, counts.entries_out, counts.entries_dropped), (5, 4, 1));
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
            let index_bytes = handle.table.properties().index_bytes;
            assert!(index_bytes < 1000 + 3 * 300, "{index_bytes} bytes of index");
        }
        let mut keys: Vec<_> = tables.iter().map(|handle| &handle.meta).collect();
        keys.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        let disjoint = |pair: &[&Arc<FileMeta>]| pair[0].last_key() < pair[1].first_key();
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
        assert_eq!(tree.flush().entries_out, 1);
        tree.check();
    }
}
