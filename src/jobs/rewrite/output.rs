//! The output of every job: entries in order, filtered by the snapshots, into tables that are
//! durable at the end, or gone.
//!
//! [`Rewrite`] is the loop of a flush and of a compaction: it reads the merged inputs, asks
//! [`SnapshotStripes`] which entries and range deletes stay, and counts. Every entry and range
//! delete of the inputs must be read, and each one either written or dropped on purpose. Only an
//! input that is covered whole is not read. A mismatch is an error and nothing of the job remains,
//! because an entry lost here would be lost for good, and a range delete would bring back the
//! entries that it covers (I17).
//!
//! Legal calls of [`OutputTables`]: `(begin_key add*)* finish`. The keys of all tables together
//! must ascend. A table ends only where a user key begins, so `begin_key` is the only call that
//! ends one before `finish`. Each table gets its part of the range deletes (`range_deletes.rs`);
//! one may have nothing else. After [`OutputTables::finish`] the files and their names are durable,
//! so an edit may name them (I5). If a power cut could remove a file that an edit names, the
//! database would become unreadable. Dropped without it, by an error, a stop or a panic, the files
//! of the job are removed again. What cannot be removed, the next opening removes.
//!
//! Numbers come from the counter that all files share, and are never used twice.

use crate::base::error::{Error, Result};
use crate::base::expiry::EXPIRY_BYTES;
use crate::base::filename::FileName;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{
    KeyspaceLabel, LookupKey, SEQUENCE_MAX, SequenceNumber, ValueKind, put_key_with_trailer,
    split_internal_key, unpack_trailer,
};
use crate::base::range_deletes::RangeDeletes;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Ordering, plain};
use crate::env::api::Env;
use crate::jobs::rewrite::entry_rules::EntryRules;
use crate::jobs::rewrite::range_deletes::OutputDeletes;
use crate::jobs::rewrite::stripes::SnapshotStripes;
use crate::options::compaction_filter::CompactionDecision;
use crate::options::levels::TablePlace;
use crate::state::background_error::BackgroundError;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::table::builder::{TableBuilder, TableOptions};
use crate::table::filter::layout::TableFilter;
use crate::table::format::BLOCK_BYTES_MAX;
use crate::tree::file_meta::FileMeta;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Size of a data index at which a job starts another table. An index is one block, and a quarter
/// of what a block may have leaves room for the versions of the last key. Only very long keys in
/// very small blocks ever get there.
pub(crate) const INDEX_BYTES_MAX: u64 = BLOCK_BYTES_MAX as u64 / 4;

/// The counts of a job, for the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    /// Bytes of the input tables of a compaction.
    pub bytes_read: u64,
    /// Bytes of the new tables.
    pub bytes_written: u64,
    /// Bytes of their filters.
    pub filter_bytes_written: u64,
    pub entries_in: u64,
    /// Entries that no read can see any more, left out.
    pub entries_dropped: u64,
    /// Expired entries, which are tombstones now or were left out.
    pub entries_expired: u64,
    /// Entries that the compaction filter removed or replaced.
    pub entries_filtered: u64,
}

impl JobCounts {
    /// Adds those of another part of the job.
    pub(crate) fn add(&mut self, part: &JobCounts) {
        self.bytes_read += part.bytes_read;
        self.bytes_written += part.bytes_written;
        self.filter_bytes_written += part.filter_bytes_written;
        self.entries_in += part.entries_in;
        self.entries_dropped += part.entries_dropped;
        self.entries_expired += part.entries_expired;
        self.entries_filtered += part.entries_filtered;
    }
}

/// Where a job works, and how its tables are made.
#[derive(Debug)]
pub(crate) struct JobContext<'a> {
    pub env: &'a Arc<dyn Env>,
    pub directory: &'a Path,
    /// The counter of file numbers.
    pub next_file_number: &'a AtomicU64,
    /// The settings of tables at the output level.
    pub table_options: TableOptions,
    /// Size of a table's data index at which another table is started.
    pub index_bytes_max: u64,
    /// The rules for entries.
    pub rules: EntryRules,
    /// Set when the database closes: the job ends soon, with [`Error::Closed`].
    ///
    /// [`Error::Closed`]: crate::base::error::Error::Closed
    pub stop: &'a AtomicBool,
    /// After a failure the job ends in the same way, if nothing would install its result.
    pub failure: Option<&'a BackgroundError>,
}

impl<'a> JobContext<'a> {
    /// The job that writes tables to `place`, with `filter`.
    pub(crate) fn new(
        engine: &'a Engine,
        keyspace: &KeyspaceState,
        place: TablePlace,
        filter: Option<TableFilter>,
    ) -> Self {
        let label = KeyspaceLabel { id: keyspace.id, name: keyspace.name.clone() };
        let options = keyspace.options.load();
        let mut table_options =
            options.table_options(label, engine.context.databases(), place, filter);
        table_options.construction.budget = Some(Arc::clone(&engine.context.cache) as _);
        table_options.events = engine.context.events.clone();
        JobContext {
            env: &engine.context.env,
            directory: &engine.context.directory,
            next_file_number: &engine.catalog.numbers.next_file,
            table_options,
            index_bytes_max: INDEX_BYTES_MAX,
            rules: EntryRules::default(),
            stop: &engine.context.closed,
            failure: None,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failure.is_some_and(BackgroundError::is_set)
    }
}

/// The result of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobOutcome {
    /// The new tables, by key, disjoint by user key; written and synced, but in no tree yet.
    pub tables: Vec<FileMeta>,
    pub counts: JobCounts,
}

/// Entries between two checks of the stop flag.
const STOP_CHECK_ENTRIES: u64 = 1024;

/// Before a larger value it is checked, too: a thousand of these may be a terabyte.
const STOP_CHECK_BYTES: usize = 16 << 10;

/// Part of the keys of a job: from `start` on and below `end`, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPart {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

impl KeyPart {
    /// True if the part does not end before `key`, which is not before its start.
    pub(crate) fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Those of the range deletes that begin within the part, cut at its borders.
    fn of_deletes(&self, mut deletes: RangeDeletes) -> RangeDeletes {
        if !self.start.is_empty() {
            deletes = deletes.split_off(&self.start);
        }
        if let Some(end) = &self.end {
            deletes.split_off(end);
        }
        deletes
    }
}

/// The inputs of a job, and how it writes.
pub(crate) struct Rewrite<'a, I> {
    /// Forward iterators over the inputs, newer ones first.
    pub sources: Vec<I>,
    /// The keys that are rewritten.
    pub keys: KeyPart,
    /// Entries that the sources must yield. `None` if there are other parts: the caller counts.
    pub entries: Option<u64>,
    /// Range deletes that the inputs have. `stripes` must have got as many.
    pub range_deletes: u64,
    pub stripes: SnapshotStripes,
    /// What the new tables record as their range of sequences, if not that of their entries.
    pub sequences: Option<RangeInclusive<SequenceNumber>>,
    pub context: &'a JobContext<'a>,
}

impl<I: InternalIterator> Rewrite<'_, I> {
    /// Runs to the end. `cut_before` gets each user key and the bytes of the open table, and says
    /// whether the table ends before that key.
    ///
    /// # Errors
    /// Inputs that cannot be read or are damaged, outputs that cannot be written, or
    /// [`Error::Closed`] when stopped. No output file remains.
    pub(crate) fn run(
        mut self,
        mut cut_before: impl FnMut(&[u8], u64) -> bool,
    ) -> Result<JobOutcome> {
        let mut merged = MergingIter::new(Direction::Forward, std::mem::take(&mut self.sources));
        // I17: without one of them, the entries that it covers would come back.
        if self.stripes.deletes_read != self.range_deletes {
            let (read, expected) = (self.stripes.deletes_read, self.range_deletes);
            return Err(self.damaged(format!("{read} range deletes instead of {expected}")));
        }
        let kept = self.keys.of_deletes(self.stripes.kept_deletes());
        let mut outputs = OutputTables::new(self.context, self.sequences.take(), kept);
        let mut counts = JobCounts::default();
        // Before all versions of the first key.
        let start = LookupKey::new(&self.keys.start, SEQUENCE_MAX);
        merged.seek((!self.keys.start.is_empty()).then_some(start.internal_key()));
        while merged.valid() {
            let is_due = counts.entries_in.is_multiple_of(STOP_CHECK_ENTRIES)
                || merged.value().len() >= STOP_CHECK_BYTES;
            if is_due && self.context.is_stopped() {
                return Err(Error::Closed);
            }
            let key = merged.key();
            let parts = split_internal_key(key);
            let parts = parts.and_then(|(key, trailer)| Some((key, unpack_trailer(trailer)?)));
            let Some((user_key, (sequence, kind))) = parts else {
                return Err(self.damaged("a key without a known kind".to_string()));
            };
            if !self.keys.is_before_end(user_key) {
                break;
            }
            let expired = self.context.rules.has_expired(kind, merged.value());
            counts.entries_expired += u64::from(expired);
            // It hides what a tombstone hides.
            let kind = if expired { ValueKind::Tombstone } else { kind };
            let decision = self.stripes.decide(user_key, sequence, kind);
            // A cut between two versions of one key would put the key into two tables of a sorted
            // level (I4).
            if decision.first_of_key {
                let cut = cut_before(user_key, outputs.open_bytes());
                outputs.begin_key(user_key, cut)?;
            }
            let kept = Kept { key, value: merged.value(), kind, expired };
            let is_written = decision.keep
                && self.write(&mut outputs, kept, decision.first_of_key, &mut counts)?;
            counts.entries_dropped += u64::from(!is_written);
            counts.entries_in += 1;
            merged.next();
        }
        merged.status()?;
        // I17: a damaged input could end early without an error of its own.
        if let Some(expected) = self.entries {
            check_entries_read(self.context.directory, counts.entries_in, expected)?;
        }
        let (tables, filter_bytes) = outputs.finish(counts.entries_in - counts.entries_dropped)?;
        counts.bytes_written = tables.iter().map(|meta| meta.bytes).sum();
        counts.filter_bytes_written = filter_bytes;
        Ok(JobOutcome { tables, counts })
    }

    /// Writes an entry that the stripes keep, as the rules want it. False if they drop it.
    #[inline]
    fn write(
        &mut self,
        outputs: &mut OutputTables<'_>,
        kept: Kept<'_>,
        first_of_key: bool,
        counts: &mut JobCounts,
    ) -> Result<bool> {
        let Kept { key, value, kind, expired } = kept;
        if expired {
            return outputs.add_tombstone(key).map(|()| true);
        }
        if first_of_key && kind != ValueKind::Tombstone && self.context.rules.filter.is_some() {
            return self.write_filtered(outputs, kept, counts);
        }
        // Tables are cut between user keys, so all versions of a key are in one table.
        let garbage = kind == ValueKind::Tombstone || !first_of_key;
        outputs.add(key, value, garbage)?;
        Ok(true)
    }

    /// Writes the newest version of a key as the compaction filter wants it. False if that drops
    /// it.
    fn write_filtered(
        &mut self,
        outputs: &mut OutputTables<'_>,
        kept: Kept<'_>,
        counts: &mut JobCounts,
    ) -> Result<bool> {
        let Kept { key, value, kind, .. } = kept;
        let (user_key, trailer) = split_internal_key(key).unwrap_or((key, 0));
        let time_bytes = if kind == ValueKind::ExpiringPut { EXPIRY_BYTES } else { 0 };
        let (time, own) = value.split_at_checked(time_bytes).unwrap_or((&[], value));
        let sequence = trailer >> 8;
        match self.context.rules.decide(user_key, sequence, own)? {
            CompactionDecision::Keep => outputs.add(key, value, false)?,
            CompactionDecision::Replace(new) => {
                counts.entries_filtered += 1;
                outputs.add(key, &[time, &new].concat(), false)?;
            }
            CompactionDecision::Remove => {
                counts.entries_filtered += 1;
                if self.stripes.tombstone_hides_nothing(user_key, sequence) {
                    return Ok(false);
                }
                outputs.add_tombstone(key)?;
            }
        }
        Ok(true)
    }

    fn damaged(&self, what: String) -> Error {
        Error::corruption(self.context.directory, 0, what)
    }
}

/// Checks that as many entries were read as the inputs have.
///
/// # Errors
/// `Corruption`.
pub(crate) fn check_entries_read(directory: &Path, read: u64, expected: u64) -> Result<()> {
    let what = || format!("{read} entries were read instead of {expected}");
    (read == expected).then_some(()).ok_or_else(|| Error::corruption(directory, 0, what()))
}

/// An entry that a job keeps.
#[derive(Clone, Copy)]
struct Kept<'e> {
    key: &'e [u8],
    /// Its value as it is stored.
    value: &'e [u8],
    /// The kind that it counts as.
    kind: ValueKind,
    /// It was an expiring put and counts as a tombstone.
    expired: bool,
}

/// The tables of one job.
pub(crate) struct OutputTables<'a> {
    context: &'a JobContext<'a>,
    sequences: Option<RangeInclusive<SequenceNumber>>,
    /// The range deletes that are not in a finished table.
    deletes: OutputDeletes,
    open: Option<OpenOutput>,
    finished: Vec<FileMeta>,
    /// Of the finished tables.
    filter_bytes: u64,
    /// Files to remove unless `finish` succeeds.
    provisional: Vec<PathBuf>,
}

struct OpenOutput {
    builder: TableBuilder,
    number: u64,
    garbage: u64,
}

impl<'a> OutputTables<'a> {
    /// An output without tables, for entries and the range deletes `kept`. Each table records the
    /// range of the sequences in it, or `sequences` if given.
    pub(crate) fn new(
        context: &'a JobContext<'a>,
        sequences: Option<RangeInclusive<SequenceNumber>>,
        kept: RangeDeletes,
    ) -> Self {
        // Of a merge within level 0, or of a table that is repaired. Several tables of level 0
        // would be merged again, for ever.
        let deletes = match &sequences {
            Some(_) => OutputDeletes::in_one_table(kept),
            None => OutputDeletes::new(kept, context.table_options.block_bytes),
        };
        OutputTables {
            context,
            sequences,
            deletes,
            open: None,
            finished: Vec::new(),
            filter_bytes: 0,
            provisional: Vec::new(),
        }
    }

    /// Called before the first entry of a user key is added. The open table ends before that key if
    /// its index or its filter is full or if `cut` says so, and where it has all the range deletes
    /// that it may.
    ///
    /// # Errors
    /// A file cannot be created, written or synced; `Defect` if the keys do not ascend.
    pub(crate) fn begin_key(&mut self, user_key: &[u8], cut: bool) -> Result<()> {
        let mut cut = cut || self.is_full();
        while let Some(part) = self.next_part(Some(user_key), cut)? {
            self.end_table(part)?;
            // One end is enough: the table that began now is small.
            cut = false;
        }
        Ok(())
    }

    fn next_part(&mut self, key: Option<&[u8]>, cut: bool) -> Result<Option<RangeDeletes>> {
        let part = self.deletes.next_part(key, cut);
        part.map_err(|what| self.defect(&what))
    }

    /// What only wrong code does: the job ends before an edit names its tables.
    fn defect(&self, what: &str) -> Error {
        Error::Defect { what: format!("{}: {what}", self.context.directory.display()) }
    }

    /// Adds an entry to the open table; `garbage` as [`FileMeta::garbage`] counts it.
    ///
    /// # Errors
    /// The file cannot be created or written; `Defect` if the keys do not ascend.
    pub(crate) fn add(&mut self, internal_key: &[u8], value: &[u8], garbage: bool) -> Result<()> {
        let open = self.open_table()?;
        open.garbage += u64::from(garbage);
        match open.builder.add(internal_key, value) {
            Err(Error::InvalidArgument { what }) => Err(self.defect(&what)),
            added => added,
        }
    }

    fn open_table(&mut self) -> Result<&mut OpenOutput> {
        match &mut self.open {
            Some(open) => Ok(open),
            none => {
                let mut open = OpenOutput::create(self.context, &mut self.provisional)?;
                if let Some(sequences) = &self.sequences {
                    open.builder.record_sequences(sequences);
                }
                Ok(none.insert(open))
            }
        }
    }

    /// Adds a tombstone in place of the entry with that key.
    ///
    /// # Errors
    /// As for [`OutputTables::add`].
    fn add_tombstone(&mut self, internal_key: &[u8]) -> Result<()> {
        let (user_key, trailer) = split_internal_key(internal_key).unwrap_or((internal_key, 0));
        let mut tombstone = Vec::with_capacity(internal_key.len());
        // The sequence stays, so the order does, too.
        let trailer = trailer >> 8 << 8 | ValueKind::Tombstone as u64;
        put_key_with_trailer(&mut tombstone, user_key, trailer);
        self.add(&tombstone, &[], true)
    }

    /// Bytes of the open table so far; 0 without one.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.builder.file_bytes())
    }

    /// True if the index or the filter of the open table is as large as one may get.
    fn is_full(&self) -> bool {
        let limit = self.context.index_bytes_max;
        self.open.as_ref().is_some_and(|OpenOutput { builder, .. }| {
            builder.index_bytes() >= limit || builder.filter_is_too_large()
        })
    }

    /// Ends the open table with its part of the range deletes, if it has anything.
    fn end_table(&mut self, part: RangeDeletes) -> Result<()> {
        if !part.is_empty() {
            self.open_table()?.builder.add_range_deletes(part);
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let summary = open.builder.finish()?;
        self.filter_bytes += summary.properties.filter_bytes;
        self.finished.push(FileMeta {
            garbage: open.garbage,
            ..FileMeta::of_summary(open.number, &summary)
        });
        Ok(())
    }

    /// Ends the last table. Returns all tables, and the bytes of their filters. `entries` is how
    /// many were to be written.
    ///
    /// # Errors
    /// The last file cannot be written or synced, or the tables hold another number of entries.
    pub(crate) fn finish(mut self, entries: u64) -> Result<(Vec<FileMeta>, u64)> {
        while let Some(part) = self.next_part(None, true)? {
            self.end_table(part)?;
        }
        let written: u64 = self.finished.iter().map(|meta| meta.entries).sum();
        if written != entries {
            let what = format!("new tables hold {written} entries instead of {entries}");
            return Err(Error::corruption(self.context.directory, 0, what));
        }
        // I5: each file that was created is written and synced by now. Its name is not durable yet.
        debug_assert_eq!(self.provisional.len(), self.finished.len(), "I5");
        self.provisional.clear();
        Ok((std::mem::take(&mut self.finished), self.filter_bytes))
    }
}

impl OpenOutput {
    /// A new table; its file goes with the job unless the job succeeds.
    fn create(context: &JobContext<'_>, provisional: &mut Vec<PathBuf>) -> Result<Self> {
        let number = context.next_file_number.fetch_add(1, Ordering::Relaxed);
        let path = FileName::Table(number).path(context.directory);
        let file = context.env.create_new(&path);
        let file = file.map_err(|error| Error::io("create_new", &path, error))?;
        provisional.push(path.clone());
        let options = context.table_options.clone();
        let builder = TableBuilder::new(file, path, new_table_id(), options);
        Ok(OpenOutput { builder, number, garbage: 0 })
    }
}

impl Drop for OutputTables<'_> {
    fn drop(&mut self) {
        // Close the file before its name is removed.
        self.open = None;
        for path in &self.provisional {
            // The job already reports the error that made it fail.
            let _ = self.context.env.remove(path);
        }
    }
}

/// A random id for a new table; the checksums of its blocks include it. So a block of another
/// table, of this database or another one, fails its checksum.
pub(crate) fn new_table_id() -> u64 {
    static DRAWN: plain::AtomicU64 = plain::AtomicU64::new(0);
    // `RandomState` is seeded from the system once a thread and then only counts up.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(DRAWN.fetch_add(1, Ordering::Relaxed));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |since| since.as_nanos()));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_ids_do_not_repeat() {
        let mut ids: Vec<u64> = (0..1000).map(|_| new_table_id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
    }
}
