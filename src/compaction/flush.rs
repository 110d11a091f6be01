//! A flush: the oldest immutable memtables become a table of level 0.
//!
//! Called by the background with memtables that take no more writes, in the order of their age
//! and without a gap, the oldest of all first: then everything older than their entries is in the
//! tables, and `retention.rs` may drop a tombstone whose key no table can hold. Versions that
//! another one of the same flush covers are dropped too, so writing one key over and over costs
//! one entry a flush. Where nothing stays there is no table; where the index of one would get too
//! large there are several, disjoint by user key.

use crate::compaction::retention::{KeysBelow, Retention};
use crate::compaction::rewrite::Rewrite;
use crate::compaction::task::{JobContext, JobOutcome};
use crate::error::Result;
use crate::iterator::api::Direction;
use crate::key::SequenceNumber;
use crate::memtable::Memtable;
use crate::sync::Arc;
use crate::version::version::LevelShape;

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
    use crate::cache::Cache;
    use crate::compaction::task::{INDEX_BYTES_MAX, JobCounts};
    use crate::env::api::Env;
    use crate::env::fault::{EIO, Fault, FaultEnv, FaultKind};
    use crate::env::handle::FilePool;
    use crate::env::mem::MemEnv;
    use crate::error::Error;
    use crate::filename::FileName;
    use crate::filter::construction::Construction;
    use crate::iterator::api::InternalIterator;
    use crate::key::{ValueKind, compare_internal, split_internal_key, unpack_trailer, user_key};
    use crate::stats::counters::LEVELS;
    use crate::sync::{AtomicBool, AtomicU64};
    use crate::table::builder::TableOptions;
    use crate::table::filter_block::pinned::FilterPinning;
    use crate::table::format::Compression;
    use crate::table::reader::{Expect, Table, TableContext};
    use crate::version::edit::{FileMeta, VersionEdit};
    use crate::version::handle::{Graveyard, TableHandle};
    use crate::version::level_iter::LevelIter;
    use crate::version::version::Version;
    use crate::write_batch::{DecodedBatch, WriteBatch};
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    pub const DIRECTORY: &str = "/db";

    pub fn table_options() -> TableOptions {
        TableOptions {
            block_bytes: 256,
            restart_interval: 4,
            hash_index: true,
            compression: Compression::None,
            filter: None,
            construction: Construction::default(),
            write_bytes: 64 << 10,
        }
    }

    /// A database without log and manifest, beside a model that forgets nothing.
    pub struct Tree {
        pub env: Arc<dyn Env>,
        /// The files under `env`.
        pub disk: MemEnv,
        pub next_file_number: AtomicU64,
        tables: TableContext,
        graveyard: Arc<Graveyard>,
        pub version: Arc<Version>,
        /// Oldest first; the last one takes the writes.
        pub memtables: Vec<Arc<Memtable>>,
        pub sequence: SequenceNumber,
        pub snapshots: BTreeSet<SequenceNumber>,
        pub index_bytes_max: u64,
        model: BTreeMap<Vec<u8>, BTreeMap<SequenceNumber, Option<Vec<u8>>>>,
    }

    impl Tree {
        pub fn new() -> Self {
            let disk = MemEnv::new();
            Tree::on(disk.clone(), Arc::new(disk))
        }

        /// `env` is `disk`, or something in front of it.
        pub fn on(disk: MemEnv, env: Arc<dyn Env>) -> Self {
            env.create_dir(Path::new(DIRECTORY)).unwrap();
            Tree {
                next_file_number: AtomicU64::new(1),
                tables: TableContext {
                    files: FilePool::new(Arc::clone(&env), 100),
                    cache: Cache::new(1 << 20, 0.5),
                    custom_policies: Vec::new(),
                    custom_prefixes: Vec::new(),
                    pinning: FilterPinning::default(),
                },
                env,
                disk,
                graveyard: Arc::default(),
                version: Arc::new(Version::new(Default::default())),
                memtables: vec![Arc::new(Memtable::new(1 << 16, false))],
                sequence: 0,
                snapshots: BTreeSet::new(),
                index_bytes_max: INDEX_BYTES_MAX,
                model: BTreeMap::new(),
            }
        }

        pub fn write(&mut self, key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) {
            let key = key.into();
            let mut batch = WriteBatch::new();
            match &value {
                Some(value) => batch.put(&key, value),
                None => batch.delete(&key),
            };
            self.sequence += 1;
            let batch = DecodedBatch::trusted(self.sequence, 1, batch.entries());
            self.memtables.last().unwrap().apply(&batch);
            self.model.entry(key).or_default().insert(self.sequence, value);
        }

        pub fn seal(&mut self) {
            self.memtables.push(Arc::new(Memtable::new(1 << 16, false)));
        }

        /// Live snapshots, then the published sequence.
        pub fn needed(&self) -> Vec<SequenceNumber> {
            self.snapshots.iter().copied().chain([self.sequence]).collect()
        }

        pub fn context(&self) -> JobContext<'_> {
            static NEVER: AtomicBool = AtomicBool::new(false);
            JobContext {
                stop: &NEVER,
                env: &self.env,
                directory: Path::new(DIRECTORY),
                next_file_number: &self.next_file_number,
                table_options: table_options(),
                index_bytes_max: self.index_bytes_max,
            }
        }

        pub fn run_flush(&self) -> Result<JobOutcome> {
            let memtables = self.memtables[..self.memtables.len() - 1].to_vec();
            let (snapshots, levels) = (self.needed(), self.version.shape());
            flush(&self.context(), FlushJob { memtables, snapshots, levels })
        }

        /// Writes all memtables out.
        pub fn flush(&mut self) -> JobCounts {
            self.seal();
            let output = self.run_flush().unwrap();
            assert!(output.tables.len() <= 1 || self.index_bytes_max < INDEX_BYTES_MAX);
            self.memtables.drain(..self.memtables.len() - 1);
            let added = output.tables.into_iter().map(|meta| (0, meta)).collect();
            self.install(VersionEdit { added, ..VersionEdit::default() });
            output.counts
        }

        pub fn install(&mut self, edit: VersionEdit) {
            let mut levels: [Vec<Arc<TableHandle>>; LEVELS] =
                std::array::from_fn(|level| self.version.level(level).to_vec());
            let mut removed = Vec::new();
            for (level, number) in edit.deleted {
                let place = levels[level].iter().position(|h| h.meta.number == number).unwrap();
                removed.push(levels[level].remove(place));
            }
            for (level, meta) in edit.added {
                removed.retain(|handle| handle.meta.number != meta.number);
                let path = path_of(meta.number);
                let expect = Expect { table_id: Some(meta.table_id), bytes: Some(meta.bytes) };
                let table = Arc::new(Table::open(&self.tables, &path, expect).unwrap());
                let handle = TableHandle::new(Arc::new(meta), table, &self.graveyard);
                levels[level].push(handle);
            }
            for handle in removed {
                self.env.remove(&path_of(handle.meta.number)).unwrap();
            }
            self.version = Arc::new(Version::new(levels));
        }

        /// Removes the tables of a job that is not to be installed.
        pub fn remove(&self, outcome: &JobOutcome) {
            for meta in &outcome.tables {
                self.env.remove(&path_of(meta.number)).unwrap();
            }
        }

        /// The names of all table files there are, and of those the tree knows.
        pub fn files(&self) -> (BTreeSet<String>, BTreeSet<String>) {
            let listed = self.env.list(Path::new(DIRECTORY)).unwrap();
            let shape = self.version.shape();
            let live = shape.iter().flatten().map(|meta| FileName::Table(meta.number).to_string());
            (listed.into_iter().map(|entry| entry.name).collect(), live.collect())
        }

        /// Every version of every key that there is, in order, gathered by walks in `direction`.
        fn entries(&self, direction: Direction) -> Vec<(Vec<u8>, u64, ValueKind, Vec<u8>)> {
            let mut gathered: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let mut gather = |source: &mut dyn InternalIterator| {
                let first = gathered.len();
                source.seek(None);
                while source.valid() {
                    gathered.push((source.key().to_vec(), source.value().to_vec()));
                    source.next();
                }
                source.status().unwrap();
                if direction == Direction::Reverse {
                    gathered[first..].reverse();
                }
                assert!(
                    gathered[first..].is_sorted_by(|a, b| compare_internal(&a.0, &b.0).is_lt())
                );
            };
            for memtable in &self.memtables {
                memtable.walks(direction).for_each(|mut walk| gather(&mut walk));
            }
            for handle in self.version.level(0) {
                gather(&mut LevelIter::new(direction, vec![handle.clone()], true));
            }
            for level in 1..LEVELS {
                gather(&mut LevelIter::new(direction, self.version.level(level).to_vec(), true));
            }
            gathered.sort_by(|a, b| compare_internal(&a.0, &b.0));
            let parts = gathered.into_iter().map(|(internal_key, value)| {
                let (key, trailer) = split_internal_key(&internal_key).unwrap();
                let (sequence, kind) = unpack_trailer(trailer).unwrap();
                (key.to_vec(), sequence, kind, value)
            });
            parts.collect()
        }

        /// Every needed sequence reads what the model says, and both directions agree.
        pub fn check(&self) {
            let entries = self.entries(Direction::Forward);
            assert_eq!(entries, self.entries(Direction::Reverse));
            for at in self.needed() {
                let mut found: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
                for (key, sequence, kind, value) in &entries {
                    if *sequence <= at {
                        let value = (*kind == ValueKind::Put).then_some(&value[..]);
                        found.entry(key).or_insert(value);
                    }
                }
                let found: Vec<_> =
                    found.into_iter().filter(|(_, value)| value.is_some()).collect();
                let newest = self.model.iter().filter_map(|(key, versions)| {
                    let (_, value) = versions.range(..=at).next_back()?;
                    Some((&key[..], Some(value.as_deref()?)))
                });
                assert_eq!(found, newest.collect::<Vec<_>>(), "at sequence {at}");
            }
        }
    }

    pub fn path_of(number: u64) -> PathBuf {
        FileName::Table(number).path(Path::new(DIRECTORY))
    }

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
