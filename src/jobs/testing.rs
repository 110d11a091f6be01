//! A tree without log and manifest, next to a model that keeps every version: for tests of jobs.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::Result;
use crate::base::events::delivery::Events;
use crate::base::filename::FileName;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{
    KeyspaceLabel, SequenceNumber, ValueKind, compare_internal, put_internal_key,
    split_internal_key, unpack_trailer,
};
use crate::base::levels::LEVELS;
use crate::base::range_deletes::{RangeDelete, RangeDeletes};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::base::write_batch::WriteBatch;
use crate::cache::cache::Cache;
use crate::env::api::Env;
use crate::env::handle::FilePool;
use crate::env::mem::MemEnv;
use crate::jobs::flush::write_tables;
use crate::jobs::rewrite::entry_rules::EntryRules;
use crate::jobs::rewrite::output::{
    INDEX_BYTES_MAX, JobContext, JobCounts, JobOutcome, new_table_id,
};
use crate::memtable::memtable::Memtable;
use crate::table::builder::{TableBuilder, TableOptions};
use crate::table::compression::Compression;
use crate::table::reader::{Table, TableContext};
use crate::tree::edit::{DeletedFile, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::{ObsoleteFiles, TableHandle};
use crate::tree::level_iter::LevelIter;
use crate::tree::new_tables::DurableTables;
use crate::tree::version::{Places, Version};
use siftdb_filter::construction::Construction;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) const DIRECTORY: &str = "/db";

pub(crate) fn table_options() -> TableOptions {
    TableOptions {
        keyspace: KeyspaceLabel::default(),
        databases: Vec::new(),
        block_bytes: 256,
        restart_interval: 4,
        hash_index: true,
        index_partition_bytes: 100,
        compression: Compression::None,
        filter: None,
        construction: Construction::default(),
        write_bytes: 64 << 10,
        events: Events::default(),
    }
}

/// A database without log and manifest, next to a model that keeps every version.
pub(crate) struct Tree {
    pub env: Arc<dyn Env>,
    /// The files under `env`.
    pub disk: MemEnv,
    pub next_file_number: AtomicU64,
    tables: TableContext,
    obsolete: Arc<ObsoleteFiles>,
    pub version: Arc<Version>,
    /// Oldest first; the last one takes the writes.
    pub memtables: Vec<Arc<Memtable>>,
    pub sequence: SequenceNumber,
    pub snapshots: BTreeSet<SequenceNumber>,
    pub index_bytes_max: u64,
    /// Of data blocks. A table has range deletes of 64 times as many bytes, at most.
    pub block_bytes: usize,
    model: BTreeMap<Vec<u8>, BTreeMap<SequenceNumber, Option<Vec<u8>>>>,
    deleted_ranges: Vec<RangeDelete>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let disk = MemEnv::with_log();
        Tree::on(disk.clone(), Arc::new(disk))
    }

    /// `env` is `disk`, or a layer on it.
    pub(crate) fn on(disk: MemEnv, env: Arc<dyn Env>) -> Self {
        env.create_dir(Path::new(DIRECTORY)).unwrap();
        Tree {
            next_file_number: AtomicU64::new(1),
            tables: TableContext::new(
                FilePool::new(Arc::clone(&env), 100),
                Cache::new(1 << 20, 0.5),
            ),
            env,
            disk,
            obsolete: Arc::default(),
            version: Arc::new(Version::new(Default::default())),
            memtables: vec![Arc::new(Memtable::new(1 << 16, false))],
            sequence: 0,
            snapshots: BTreeSet::new(),
            index_bytes_max: INDEX_BYTES_MAX,
            block_bytes: table_options().block_bytes,
            model: BTreeMap::new(),
            deleted_ranges: Vec::new(),
        }
    }

    pub(crate) fn write(&mut self, key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) {
        let key = key.into();
        let mut batch = WriteBatch::new();
        match &value {
            Some(value) => batch.put(&key, value),
            None => batch.delete(&key),
        };
        self.apply(&batch);
        self.model.entry(key).or_default().insert(self.sequence, value);
    }

    /// Deletes the keys from `start` on and below `end`, if there is one.
    pub(crate) fn delete_range(&mut self, start: Vec<u8>, end: Option<Vec<u8>>) {
        let mut batch = WriteBatch::new();
        match &end {
            Some(end) if *end <= start => return,
            Some(end) => batch.delete_range(&start..end),
            None => batch.delete_range(&start..),
        };
        self.apply(&batch);
        self.deleted_ranges.push(RangeDelete { start, end, sequence: self.sequence });
    }

    fn apply(&mut self, batch: &WriteBatch) {
        self.sequence += 1;
        let batch = DecodedBatch::trusted(self.sequence, 1, &batch.entries);
        self.memtables.last().unwrap().apply(&batch);
    }

    /// Adds an ingested table to level 0, newer than all writes before; `None` deletes.
    pub(crate) fn ingest(&mut self, entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        self.flush();
        self.sequence += 1;
        let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
        let file = self.env.create_new(&path_of(number)).unwrap();
        let id = new_table_id();
        let mut builder = TableBuilder::new(file, path_of(number), id, table_options());
        builder.mark_ingested();
        for (key, value) in entries {
            let kind = if value.is_some() { ValueKind::Put } else { ValueKind::Tombstone };
            let mut internal_key = Vec::new();
            put_internal_key(&mut internal_key, &key, 0, kind);
            builder.add(&internal_key, value.as_deref().unwrap_or_default()).unwrap();
            self.model.entry(key).or_default().insert(self.sequence, value);
        }
        let summary = builder.finish().unwrap();
        let mut meta = FileMeta::of_summary(number, &summary);
        meta.set_global_sequence(self.sequence);
        self.install(VersionEdit { added: vec![(0, meta)], ..VersionEdit::default() });
    }

    pub(crate) fn seal(&mut self) {
        self.memtables.push(Arc::new(Memtable::new(1 << 16, false)));
    }

    /// Live snapshots, then the published sequence.
    pub(crate) fn needed(&self) -> Vec<SequenceNumber> {
        self.snapshots.iter().copied().chain([self.sequence]).collect()
    }

    pub(crate) fn context(&self) -> JobContext<'_> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        JobContext {
            rules: EntryRules::default(),
            stop: &NEVER,
            failure: None,
            env: &self.env,
            directory: Path::new(DIRECTORY),
            next_file_number: &self.next_file_number,
            table_options: TableOptions { block_bytes: self.block_bytes, ..table_options() },
            index_bytes_max: self.index_bytes_max,
        }
    }

    pub(crate) fn run_flush(&self) -> Result<JobOutcome> {
        let memtables = &self.memtables[..self.memtables.len() - 1];
        let levels = &self.version.files;
        let outcome = write_tables(&self.context(), memtables, &self.needed(), levels)?;
        let JobOutcome { tables, counts } = outcome;
        let tables = DurableTables::sync(&*self.env, Path::new(DIRECTORY), tables)?.into_metas();
        Ok(JobOutcome { tables, counts })
    }

    /// Writes all memtables out.
    pub(crate) fn flush(&mut self) -> JobCounts {
        self.seal();
        let output = self.run_flush().unwrap();
        let is_small = |meta: &FileMeta| meta.range_deletes < 100;
        let one = output.tables.len() <= 1 || !output.tables.iter().all(is_small);
        let is_usual = self.block_bytes == table_options().block_bytes;
        assert!(one || !is_usual || self.index_bytes_max < INDEX_BYTES_MAX);
        self.memtables.drain(..self.memtables.len() - 1);
        let added = output.tables.into_iter().map(|meta| (0, meta)).collect();
        self.install(VersionEdit { added, ..VersionEdit::default() });
        output.counts
    }

    pub(crate) fn install(&mut self, edit: VersionEdit) {
        let (mut gone, mut removed) = (Places::default(), Vec::new());
        for DeletedFile { level, number, .. } in edit.deleted {
            let tables = self.version.level(level);
            let place = tables.iter().position(|h| h.meta.number == number).unwrap();
            gone[level].push(place);
            removed.push(Arc::clone(&tables[place]));
        }
        gone.iter_mut().for_each(|places| places.sort_unstable());
        let mut added: [Vec<Arc<TableHandle>>; LEVELS] = Default::default();
        for (level, meta) in edit.added {
            removed.retain(|handle| handle.meta.number != meta.number);
            let path = path_of(meta.number);
            let expect = meta.expect();
            let table = Arc::new(Table::open(&self.tables, &path, expect).unwrap());
            let handle = TableHandle::new(Arc::new(meta), table, &self.obsolete);
            added[level].push(handle);
        }
        for handle in removed {
            self.env.remove(&path_of(handle.meta.number)).unwrap();
        }
        self.version = Arc::new(self.version.changed(&gone, added));
    }

    /// Removes the tables of a job that is not to be installed.
    pub(crate) fn remove(&self, outcome: &JobOutcome) {
        for meta in &outcome.tables {
            self.env.remove(&path_of(meta.number)).unwrap();
        }
    }

    /// The names of all table files there are, and of those the tree knows.
    pub(crate) fn files(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let listed = self.env.list(Path::new(DIRECTORY)).unwrap();
        let tables = self.version.tables();
        let live = tables.map(|handle| FileName::Table(handle.meta.number).to_string());
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
            assert!(gathered[first..].is_sorted_by(|a, b| compare_internal(&a.0, &b.0).is_lt()));
        };
        for memtable in &self.memtables {
            memtable.iterators(direction).for_each(|mut walk| gather(&mut walk));
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

    /// All range deletes that there are.
    fn range_deletes(&self) -> RangeDeletes {
        let mut all: Vec<_> =
            self.memtables.iter().flat_map(|memtable| memtable.range_deletes.all()).collect();
        for handle in self.version.tables() {
            let own: Vec<_> =
                handle.table.range_deletes().iter().flat_map(|own| own.deletes()).collect();
            assert_eq!(own.len() as u64, handle.meta.range_deletes);
            all.extend(own);
        }
        RangeDeletes::fragmented(&all, &[])
    }

    /// Every needed sequence reads what the model says, and both directions agree.
    pub(crate) fn check(&self) {
        let entries = self.entries(Direction::Forward);
        assert_eq!(entries, self.entries(Direction::Reverse));
        let deletes = self.range_deletes();
        let deleted = RangeDeletes::fragmented(&self.deleted_ranges, &[]);
        for at in self.needed() {
            let mut found: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
            for (key, sequence, kind, value) in &entries {
                if *sequence <= at {
                    let is_there = *kind == ValueKind::Put && deletes.covering(key, at) < *sequence;
                    let value = is_there.then_some(&value[..]);
                    found.entry(key).or_insert(value);
                }
            }
            let found: Vec<_> = found.into_iter().filter(|(_, value)| value.is_some()).collect();
            let newest = self.model.iter().filter_map(|(key, versions)| {
                let (sequence, value) = versions.range(..=at).next_back()?;
                if deleted.covering(key, at) > *sequence {
                    return None;
                }
                Some((&key[..], Some(value.as_deref()?)))
            });
            assert_eq!(found, newest.collect::<Vec<_>>(), "at sequence {at}");
        }
    }
}

pub(crate) fn path_of(number: u64) -> PathBuf {
    FileName::Table(number).path(Path::new(DIRECTORY))
}
