//! A flush: the oldest immutable memtables become a table of level 0.
//!
//! Called by the background with memtables that take no more writes, in the order of their age
//! and without a gap, the oldest of all first: then everything older than their entries is in the
//! tables, and `retention.rs` may drop a tombstone whose key no table can hold. Versions that
//! another one of the same flush covers are dropped too, so writing one key over and over costs
//! one entry a flush. Where nothing stays there is no table; where the index of one would get too
//! large there are several, disjoint by user key.

use crate::base::error::Result;
use crate::base::iterator::api::Direction;
use crate::base::key::SequenceNumber;
use crate::base::sync::Arc;
use crate::jobs::compact::retention::{KeysBelow, Retention};
use crate::jobs::compact::rewrite::Rewrite;
use crate::jobs::compact::task::{JobContext, JobOutcome};
use crate::memtable::memtable::Memtable;
use crate::tree::version::LevelShape;

/// What to flush.
pub struct FlushJob {
    /// The oldest memtables, oldest first.
    pub memtables: Vec<Arc<Memtable>>,
    /// The live snapshots in ascending order, then the published sequence: taken together, before
    /// the flush.
    pub snapshots: Vec<SequenceNumber>,
    /// The tree as it is, or as it was at any time since the flush before.
    pub levels: LevelShape,
}

/// Writes the memtables into a table.
///
/// # Errors
/// The table cannot be written, the entries read are not as many as the memtables hold, or the
/// job was stopped. No output file remains.
pub fn flush(context: &JobContext<'_>, job: FlushJob) -> Result<JobOutcome> {
    let memtables = &job.memtables;
    let newest_first = memtables.iter().rev();
    let rewrite = Rewrite {
        sources: newest_first.flat_map(|memtable| memtable.walks(Direction::Forward)).collect(),
        entries: memtables.iter().map(|memtable| memtable.entries() as u64).sum(),
        bytes: memtables.iter().map(|memtable| memtable.bytes() as u64).sum(),
        retention: Retention::new(&job.snapshots, KeysBelow::new(&job.levels[1..], &job.levels[0])),
        sequences: None,
        context,
    };
    rewrite.run(|_, _| false)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::error::Error;

    use crate::base::key::user_key;
    use crate::env::api::Env;
    use crate::env::mem::MemEnv;
    use crate::env::testing::fault::{EIO, Fault, FaultEnv, FaultKind};
    use crate::jobs::testing::{Tree, path_of};
    use crate::tree::edit::FileMeta;

    use std::path::Path;

    #[test]
    fn several_memtables_make_one_table_of_what_is_needed() {
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
    fn an_index_too_large_for_one_block_is_spread_over_tables() {
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
        let disjoint =
            |pair: &[&Arc<FileMeta>]| user_key(&pair[0].largest) < user_key(&pair[1].smallest);
        assert!(keys.windows(2).all(disjoint));
    }

    #[test]
    fn what_a_flush_returned_outlives_a_power_cut() {
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
    fn a_flush_that_fails_at_any_call_leaves_no_file() {
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
    fn tombstones_that_hide_nothing_make_no_table() {
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
